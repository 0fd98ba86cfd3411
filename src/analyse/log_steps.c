/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_steps.c - step times that a job's log states, where nothing else tells of steps.
 *
 * A log without times, or one that prints every tenth step, gives no spans, yet its numbers (counter
 * log.step_ms) tell how long steps are and whether some stand out. What they waited for it cannot tell.
 */
#include <stdlib.h>
#include <string.h>

#include "analyse/case.h"
#include "base/alloc.h"
#include "base/median.h"

enum { MIN_LINES = 3 };

/* The track with most step times: one rank's. 0 = none. */
static lg_trk stated(const struct lg_case *c, size_t *ret_n)
{
	const struct lg_trace *t = c->t;
	size_t *n = lg_calloc(t->track.n + 1, sizeof *n);
	lg_trk best = 0;

	*ret_n = 0;
	if (!n)
		return 0;
	for (size_t i = 0; i < t->counter.n; i++)
		n[t->counter.track[i]]++;
	for (lg_trk k = 1; k < t->track.n; k++)
		if (n[k] > *ret_n && !strcmp(lg_string(t, t->track.name[k]), "log.step_ms")) {
			*ret_n = n[k];
			best = k;
		}
	lg_free(n);
	return best;
}

int lg_steps_of_log(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	struct lg_verdict *v = c->v;
	size_t n, k = 0;
	lg_trk track = stated(c, &n);
	double *ms;

	if (!track || n < MIN_LINES)
		return 0;
	ms = lg_calloc(n, sizeof *ms);
	if (!ms)
		return c->failed = LG_E_NOMEM;
	for (size_t i = 0; i < t->counter.n && k < n; i++)
		if (t->counter.track[i] == track)
			ms[k++] = t->counter.value[i];
	qsort(ms, k, sizeof *ms, lg_cmp_f64);
	v->n_judged = k;
	v->median_ms = ms[k / 2];
	v->p99_ms = ms[(size_t)((double)(k - 1) * 0.99)];
	/* As for steps that were seen: over twice the median and over 1 ms above it. */
	v->slow_threshold_ms = v->median_ms > 1 ? 2 * v->median_ms : v->median_ms + 1;
	for (size_t i = 0; i < k; i++)
		v->n_slow += ms[i] > v->slow_threshold_ms;
	v->shape = v->n_slow ? "bursty" : "steady";
	lg_free(ms);
	return 1;
}
