/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h - the samples of a trace added up: what the formats that know no time share.
 *
 * Counted are samples of running code. A trace that has none of these (perf record -g of a
 * tracepoint alone) gives its tracepoints' samples: there they are what was asked for.
 */
#ifndef LG_REPORT_PROFILE_H
#define LG_REPORT_PROFILE_H
#include <stdbool.h>

#include "report/timeline.h"

struct lg_profile_row {
	uint32_t event; /* index in events */
	lg_thr thr;
	lg_stk stack;
	uint64_t count, weight;
};

struct lg_profile_event {
	lg_str name;
	bool is_time;  /* its weights are ns of CPU time */
	bool is_count; /* its weights are numbers of samples: lg_profile_samples() */
};

struct lg_profile {
	struct lg_profile_event *event;
	size_t n_event, event_cap;
	struct lg_profile_row *row; /* by event, thread, stack */
	size_t n, cap;
	int64_t first, last;        /* times of the samples; first > last when there are none */
	bool tracepoints;           /* it is these that were counted */
};

/* Is sample i inside the window and of the kind that p counts? */
bool lg_profile_counts(const struct lg_profile *p, const struct lg_trace *t, const struct lg_window *w,
		       size_t i);
/* Does the window hold only tracepoint samples (or none)? */
bool lg_profile_only_tracepoints(const struct lg_trace *t, const struct lg_window *w);
/* What sample i stands for; never 0, and never so much that sums overflow (a broken input). */
static inline uint64_t lg_profile_weight(const struct lg_trace *t, size_t i)
{
	uint64_t w = t->sample.weight[i], most = UINT64_C(1) << 44; /* 5 h in ns */

	return w > most ? most : w ? w : 1;
}
/* Do an event's weights say how many samples were taken, as in folded stacks, where a row is a line? */
bool lg_profile_counts_samples(const struct lg_trace *t, lg_str event);
/* How many samples row i stands for: its weight where that is a number of samples, else it is one. */
uint64_t lg_profile_samples(const struct lg_trace *t, size_t i);
int lg_profile_make(struct lg_profile *ret, const struct lg_trace *t, const struct lg_window *w,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_profile_done(struct lg_profile *p);
/* Index in events of an event's name; it is there. */
uint32_t lg_profile_event_of(const struct lg_profile *p, lg_str name);

#endif /* LG_REPORT_PROFILE_H */
