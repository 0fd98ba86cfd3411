/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/steps/judge.h"

#include "analyse/steps/steps.h"
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/median.h"

enum {
	MEDIAN_WINDOW = 51,  /* steps in the rolling median; odd */
	SETUP_NS = 1000000000,
};
#define MS_NS 1e6

double lg_slow_beyond(double usual, double ms)
{
	return fmax(2 * usual, usual + ms);
}

/*
 * Warm-up: leading steps (lazy initialisation, compilation, first touch of memory) until the first
 * run of three ordinary ones, at most a fifth of all. A gap of more than a second and twenty
 * steps inside that fifth is set-up between two loops (calibration, loading): what precedes it
 * is not the loop that is judged.
 */
static size_t warmup_length(const struct lg_step *s, size_t n, int64_t median)
{
	size_t limit = n / 5, from = 0, i, calm = 0;

	for (i = 0; i < limit; i++)
		if (s[i].dur > SETUP_NS && s[i].dur > median * 20)
			from = i + 1;
	for (i = from; i < limit && calm < 3; i++)
		calm = s[i].dur < median * 2 ? calm + 1 : 0;
	return calm == 3 ? i - 3 : n > 10 ? limit : n > 2;
}

/* Of the steps around each; O(n * window). */
static int rolling_median(struct lg_step *s, size_t n)
{
	int64_t *w = lg_calloc(MEDIAN_WINDOW, sizeof *w);

	if (!w)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t a = i > MEDIAN_WINDOW / 2 ? i - MEDIAN_WINDOW / 2 : 0;
		size_t z = a + MEDIAN_WINDOW < n ? a + MEDIAN_WINDOW : n, k = 0;

		if (z == n && n > MEDIAN_WINDOW)
			a = n - MEDIAN_WINDOW;
		for (size_t j = a; j < z; j++)
			w[k++] = s[j].dur;
		qsort(w, k, sizeof *w, lg_cmp_i64);
		s[i].median = w[k / 2];
	}
	lg_free(w);
	return 0;
}

int lg_judge_steps(struct lg_step *s, size_t n, enum lg_steps_of from)
{
	int64_t *d = lg_calloc(n, sizeof *d), median;
	size_t warm = 0;
	int rc = 0;

	if (!d)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++)
		d[i] = s[i].dur;
	qsort(d, n, sizeof *d, lg_cmp_i64);
	median = n ? d[n / 2] : 0;
	lg_free(d);
	if (from == LG_STEPS_OF_RUN) {
		warm = warmup_length(s, n, median);
		rc = rolling_median(s + warm, n - warm);
	}
	for (size_t i = 0; i < n; i++) {
		s[i].warmup = i < warm;
		s[i].median = i < warm ? s[i].dur : from == LG_STEPS_OF_RUN ? s[i].median : median;
		s[i].slow = (double)s[i].dur > lg_slow_beyond((double)s[i].median, MS_NS);
	}
	return rc;
}

void lg_sum_up_steps(struct lg_verdict *v, double *ms, size_t n)
{
	if (!n)
		return;
	qsort(ms, n, sizeof *ms, lg_cmp_f64);
	v->median_ms = lg_quantile_f64(ms, n, 0.5);
	v->p99_ms = lg_quantile_f64(ms, n, 0.99);
	v->slow_threshold_ms = lg_slow_beyond(v->median_ms, 1);
}

void lg_judge_shape(struct lg_verdict *v, bool periodic, const struct lg_trend *trend, bool bursty)
{
	if (periodic) {
		v->shape = LG_SHAPE_PERIODIC;
	} else if (trend && trend->shape) {
		v->shape = trend->shape;
		v->slower = trend->slower;
	} else {
		v->shape = bursty ? LG_SHAPE_BURSTY : LG_SHAPE_STEADY;
	}
}
