/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - who trains, where steps begin, which job is judged, and how slow steps lie. */
#ifndef LG_ANALYSE_STEPS_STEPS_H
#define LG_ANALYSE_STEPS_STEPS_H
#include "analyse/case.h"
#include "timeline/rhythm.h"

/* ---- steps.c: ranks, their steps, stage segments ---- */
int lg_find_steps(struct lg_case *c) LG_MUST_CHECK;
/* Were the states read from /proc now and then? The repetition that they show is the poll's as much as the
 * program's. */
bool lg_is_polled(const struct lg_case *c);
/* r->spans of r->thr: also of a thread that is no rank. */
int lg_rank_spans(struct lg_case *c, struct lg_rank *r) LG_MUST_CHECK;
/* r->segs from r->spans. */
int lg_stage_segments(struct lg_case *c, struct lg_rank *r) LG_MUST_CHECK;
/* What r's slow steps took beyond the median around them; steps: of all ranks. */
int64_t lg_excess_of(const struct lg_rank *r, const struct lg_step *steps);
/* Stage of rank r's main thread at ts. */
uint8_t lg_stage_at(const struct lg_rank *r, int64_t ts);
/* In no stage at ts, and the one before or behind it is a save; NULL = it is not so. */
const struct lg_stage_seg *lg_save_beside(const struct lg_case *c, const struct lg_rank *r, int64_t ts);
/* Next stage change of r after ts (INT64_MAX when none). */
int64_t lg_stage_next(const struct lg_rank *r, int64_t ts);

/* ---- infer.c: the same for programs without marks ---- */
/* Did anybody say that p trains: the recorder, or the user? */
bool lg_was_named(const struct lg_case *c, lg_prc p);
/* "nobody said which process trains; the busiest: A, B": where there are several. NULL = there is no doubt. */
const char *lg_candidates_text(struct lg_case *c);
/* A limit that says so, where there is doubt: chosen was judged, and why. */
void lg_say_candidates(struct lg_case *c, lg_thr chosen, const char *why);
/* ---- likely_job.c: does anything show that one of the busiest trains? ---- */
/* steps: of all ranks. Where some are likely jobs the others are left out; *ret_dropped: there were any. */
int lg_find_likely_jobs(struct lg_case *c, const struct lg_step *steps, bool *ret_dropped) LG_MUST_CHECK;
/* Somebody said so, or something shows it. */
bool lg_is_likely_job(const struct lg_case *c, lg_prc p);
/* Two equal processes that are. */
bool lg_are_of_one_job(const struct lg_case *c, lg_prc a, lg_prc b);
/* p, which is none, was held up: that is low at most, and why is said. */
void lg_doubt_job(struct lg_case *c, struct lg_finding *f, lg_prc p);
/* Fill c->ranks with the processes that look like the job (c->victim_pid: that one). */
int lg_infer_ranks(struct lg_case *c) LG_MUST_CHECK;
/* Step boundaries from the repetition of the thread's waits; *ret is freed by the caller. Fills r->met. */
int lg_infer_boundaries(struct lg_case *c, struct lg_rank *r, int64_t **ret, size_t *ret_n)
	LG_MUST_CHECK;

/* ---- job.c ---- */
/* The life that created p; 0 = not in the trace. */
lg_prc lg_parent_of(struct lg_case *c, lg_prc p);
/* Did `from` start p, itself or by others? */
bool lg_descends(struct lg_case *c, lg_prc p, lg_prc from);
/* Index of the rank that p is, or that started it within so many generations; UINT32_MAX: none. */
uint32_t lg_rank_above(struct lg_case *c, lg_prc p, int generations);
/* Did a rank with a number start p, itself or by others? */
bool lg_has_numbered_parent(struct lg_case *c, lg_prc p);
/* Ranks, their loaders and descendants, the command that was recorded, further processes of the
 * same program beside a rank. */
bool lg_in_job(struct lg_case *c, lg_prc p);
/* Did anybody say of p itself that it trains or loads data? */
bool lg_is_worker(const struct lg_case *c, lg_prc p);
/* Is p of another training job, that marks its steps in the same trace? */
bool lg_in_other_job(const struct lg_case *c, lg_prc p);
/* The recorder, as laggard marks itself, and a copy of it; or the program that the trace says it was recorded
 * by, from beginning to end. What it does to the job is the price of looking, and no finding. */
bool lg_is_recorder(struct lg_case *c, lg_prc p);
/*
 * c->ranks have their steps: where they are of several jobs, those of the one with the largest excess are
 * left, and a limit says so. *ret_chosen: some were dropped.
 */
int lg_choose_job(struct lg_case *c, const struct lg_step *steps, bool *ret_chosen) LG_MUST_CHECK;

/* ---- log_steps.c ---- */
/* Step times that a log states, where there are no steps. 1 = there are some, 0, or LG_E_NOMEM. */
int lg_steps_of_log(struct lg_case *c) LG_MUST_CHECK;

/* ---- still.c ---- */
/* CPU time of all its threads in [from, to), by states; ns. */
int64_t lg_process_ran(const struct lg_case *c, lg_prc p, int64_t from, int64_t to);
/* The end of r's last state; it has some. */
int64_t lg_seen_until(const struct lg_case *c, const struct lg_rank *r);

#endif /* LG_ANALYSE_STEPS_STEPS_H */
