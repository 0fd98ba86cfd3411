/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.h - the one judge of steps: which are warm-up, which are slow, and what all of them come to.
 *
 * Finders of steps are many (marks, spans, rhythm, device rows, lines of a log); what a step is, once
 * found, is judged here alike. Slow: further above what is usual than the run's own noise reaches
 * (contract.md#slow-step).
 */
#ifndef LG_ANALYSE_STEPS_JUDGE_H
#define LG_ANALYSE_STEPS_JUDGE_H
#include "analyse/steps/steps.h"

/* By whom steps were found, and so what is usual around one. */
enum lg_steps_of {
	LG_STEPS_OF_RUN,    /* marked or inferred: the rolling median; leading ones may be warm-up */
	LG_STEPS_OF_WINDOW, /* a profiler's window: its median; where it begins is settled before */
};

/* From where on a step is slow; ms: a millisecond in the unit of usual. */
double lg_slow_beyond(double usual, double noise, double ms);
/* median, slow and warmup of n steps of one thread, in order. grain: of the clock that timed them, which
 * shows no less. *noise: the least so far, INFINITY before the first, for lg_sum_up_steps(). */
int lg_judge_steps(struct lg_step *s, size_t n, enum lg_steps_of from, int64_t grain, double *noise)
	LG_MUST_CHECK;
/* ms in order, their median, and from where on one of them is slow. */
double lg_slow_of(double *ms, size_t n, double *ret_median);
/* v's min, median, p99, max and threshold, of n durations in ms, which are put in order. */
void lg_sum_up_steps(struct lg_verdict *v, double *ms, size_t n, double noise);
/* How slow steps lie: in a rhythm, else in a change of the level (which may be NULL), else anyhow. excess:
 * what the v->n_slow took beyond the usual, as a share of the run. */
void lg_judge_shape(struct lg_verdict *v, bool periodic, const struct lg_trend *trend, double excess);
/* lg_trend_of() of n steps, and when a shift was. */
int lg_trend_of_steps(const struct lg_step *step, size_t n, struct lg_trend *ret) LG_MUST_CHECK;
/* ---- shape_and_scope.c ---- */
/* The rhythm of the slow ones of n steps, or else of the slowest, which ordinary noise cannot blur: asked for
 * where *ret has none. median: of a step. */
int lg_rhythm_of_slow(const struct lg_step *step, size_t n, int64_t median,
		      struct lg_rhythm *ret) LG_MUST_CHECK;
/* v's shape, and its period where it has one. */
void lg_shape_with_rhythm(struct lg_verdict *v, const struct lg_rhythm *rhythm,
			  const struct lg_trend *trend, double excess);

#endif /* LG_ANALYSE_STEPS_JUDGE_H */
