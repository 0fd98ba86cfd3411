/* SPDX-License-Identifier: Apache-2.0 */
/* log_steps.h - which of the step times that a job's log states are the training's. */
#ifndef LG_ANALYSE_STEPS_LOG_STEPS_H
#define LG_ANALYSE_STEPS_LOG_STEPS_H
#include "analyse/case.h"

/* How sure it is that a track's values are those of a training's steps: the greater, the surer. */
enum lg_stated_kind {
	LG_STATED_NONE,
	LG_STATED_OTHER_WORK, /* a progress bar that evaluates, or names other work */
	LG_STATED_BAR,   /* one that does not say what it counts */
	LG_STATED_LOOP,  /* one that names a training loop */
	LG_STATED_LINES, /* step lines */
};

struct lg_stated {
	lg_trk track; /* one rank's; 0 = none */
	size_t n;     /* of its values */
	enum lg_stated_kind kind;
};

/* The surest track of at least min step times, of those the one with most. */
struct lg_stated lg_stated_steps(const struct lg_index *x, size_t min);
/* How many steps a line of p stands for: a loop may print every tenth. */
double lg_steps_per_line(const struct lg_trace *t, lg_prc p);

/* The ticks of the clock that timed p's steps, ns; 0 = finer than matters, or they are of no log. */
int64_t lg_log_tick(const struct lg_trace *t, lg_prc p);
/* Limits: whence a log's step times are, and how fine. */
void lg_say_log_steps(struct lg_case *c);

/* A limit, where lines of a log tell of steps and none how long one took: what is known of their rate. False
 * = there are no such lines, or not the log alone was read. */
bool lg_say_untimed_steps(struct lg_case *c);

/* Is one rank slower than all others, whose steps do not wait for it? Says so, and sets the scope. */
int lg_compare_log_ranks(struct lg_case *c) LG_MUST_CHECK;

/* Is a job's log all that was read? Where there is more, that says more. */
bool lg_is_log_alone(const struct lg_case *c);
/* Step lines behind a mark: it was caught, or the job was started anew. of_rank: the same rank's only. */
size_t lg_step_lines_after(const struct lg_trace *t, size_t mark, bool of_rank);

#endif /* LG_ANALYSE_STEPS_LOG_STEPS_H */
