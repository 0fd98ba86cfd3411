/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/steps/judge.h"

#include "analyse/steps/steps.h"
#include <math.h>
#include <stdlib.h>

#include "base/median.h"

enum {
	MEDIAN_WINDOW = 51,  /* steps in the rolling median; odd */
	SETUP_NS = 1000000000,
};
#define MS_NS 1e6

/* Of n durations in order, of which those above the quantile q are left out: how far the tail above the
 * median reaches. */
static double reach_of(const double *sorted, size_t n, double q)
{
	double usual = lg_quantile_f64(sorted, n, 0.5);
	double tail = (lg_quantile_f64(sorted, n, q) - usual) / usual / log(0.5 / (1 - q));

	return fmin(1, fmax(LG_N_ANY_SLOW, tail * log(LG_N_ANY_NOISE_RUNS / 2. * (double)n)));
}

/*
 * How far noise reaches, as a share of the usual, of n durations in order, or of their ratios to it.
 *
 * It has a tail: taken for exponential above the median, it is known by the median and one quantile
 * above it. Its reach is where a run of n steps has one in hundred: tail * ln(50 n). The quantile leaves
 * out what may be slow, 15 % of the steps (of fewer than 20 a quarter); where more are, the reach is large,
 * and twice the usual is the line.
 *
 * But up to LG_N_ANY_APART of them may stand apart: the gap to the others is as wide as the reach of these,
 * while of noise alone the gap below the k longest is tail / k wide in the mean. Then the others are the
 * noise.
 */
static double noise_of(const double *sorted, size_t n)
{
	double q = n >= LG_N_ANY_FEW_STEPS ? LG_N_ANY_NOISE : LG_N_ANY_NOISE_OF_FEW, most = 0, all, below;
	size_t at = 0;

	if (n < 3 || !(lg_quantile_f64(sorted, n, 0.5) > 0))
		return 1;
	all = reach_of(sorted, n, q);
	for (size_t i = (size_t)ceil((1 - LG_N_ANY_APART) * (double)n), end = (size_t)(q * (double)n) + 2;
	     i < LG_MIN(n, end); i++)
		if (sorted[i] - sorted[i - 1] > most) {
			most = sorted[i] - sorted[i - 1];
			at = i;
		}
	if (n < LG_N_ANY_FEW_STEPS || !at)
		return all;
	below = reach_of(sorted, at, q);
	return most >= below * lg_quantile_f64(sorted, at, 0.5) ? fmin(all, below) : all;
}

double lg_slow_beyond(double usual, double noise, double ms)
{
	return fmax(usual * (1 + noise), usual + ms);
}

double lg_slow_of(double *ms, size_t n, double *ret_median)
{
	qsort(ms, n, sizeof *ms, lg_cmp_f64);
	*ret_median = lg_quantile_f64(ms, n, 0.5);
	return lg_slow_beyond(*ret_median, noise_of(ms, n), 1);
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
	LG_AUTOFREE int64_t *w = lg_calloc(MEDIAN_WINDOW, sizeof *w);

	if (!w)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t a = i > MEDIAN_WINDOW / 2 ? i - MEDIAN_WINDOW / 2 : 0;
		size_t z = a + MEDIAN_WINDOW < n ? a + MEDIAN_WINDOW : n, k = 0;

		if (z == n && n > MEDIAN_WINDOW)
			a = n - MEDIAN_WINDOW;
		for (size_t j = a; j < z; j++)
			w[k++] = s[j].dur;
		s[i].median = lg_median_i64(w, k);
	}
	return 0;
}

/*
 * A slow one took so much more as the clock can show, else those that follow each other did so together. What
 * it cannot show may be that of its ticks.
 */
static void drop_below_grain(struct lg_step *s, size_t n, int64_t grain)
{
	for (size_t i = 0, end; i < n; i = end) {
		double sum = 0;
		int64_t most = 0;

		for (end = i; end < n && s[end].slow; end++) {
			sum += (double)(s[end].dur - s[end].median);
			most = LG_MAX(s[end].dur - s[end].median, most);
		}
		for (size_t k = i; k < end; k++)
			s[k].slow = most < grain ? sum >= (double)grain : s[k].dur - s[k].median >= grain;
		end += end == i;
	}
}

int lg_judge_steps(struct lg_step *s, size_t n, enum lg_steps_of from, int64_t grain, double *noise)
{
	LG_AUTOFREE int64_t *d = lg_calloc(n, sizeof *d);
	int64_t median;
	LG_AUTOFREE double *ratio = lg_calloc(n, sizeof *ratio);
	double own;
	size_t warm = 0;
	int rc = 0;

	if (!n)
		return 0;
	if (!d || !ratio)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++)
		d[i] = s[i].dur;
	median = lg_median_i64(d, n);
	if (from == LG_STEPS_OF_RUN) {
		warm = warmup_length(s, n, median);
		rc = rolling_median(s + warm, n - warm);
	}
	for (size_t i = 0; i < n; i++) {
		s[i].warmup = i < warm;
		s[i].median = i < warm ? s[i].dur : from == LG_STEPS_OF_RUN ? s[i].median : median;
		ratio[i] = s[i].median > 0 ? (double)s[i].dur / (double)s[i].median : 1;
	}
	qsort(ratio + warm, n - warm, sizeof *ratio, lg_cmp_f64);
	own = noise_of(ratio + warm, n - warm);
	*noise = fmin(*noise, own);
	for (size_t i = 0; i < n; i++)
		s[i].slow = (double)s[i].dur > lg_slow_beyond((double)s[i].median, own, MS_NS);
	if (grain)
		drop_below_grain(s, n, grain);
	return rc;
}

void lg_sum_up_steps(struct lg_verdict *v, double *ms, size_t n, double noise)
{
	if (!n)
		return;
	qsort(ms, n, sizeof *ms, lg_cmp_f64);
	v->median_ms = lg_quantile_f64(ms, n, 0.5);
	v->p99_ms = lg_quantile_f64(ms, n, 0.99);
	v->min_ms = ms[0];
	v->max_ms = ms[n - 1];
	v->uneven = lg_quantile_f64(ms, n, 0.9) - lg_quantile_f64(ms, n, 0.1) >
		    LG_N_ANY_UNEVEN * v->median_ms;
	v->slow_threshold_ms = lg_slow_beyond(v->median_ms, noise, 1);
}

void lg_judge_shape(struct lg_verdict *v, bool periodic, const struct lg_trend *trend, double excess)
{
	bool bursty = v->n_slow && excess >= LG_N_ANY_BURST;

	if (periodic && bursty) {
		v->shape = LG_SHAPE_PERIODIC;
	} else if (trend && trend->shape) {
		v->shape = trend->shape;
		v->slower = trend->slower;
	} else {
		v->shape = bursty ? LG_SHAPE_BURSTY : v->uneven ? LG_SHAPE_NONE : LG_SHAPE_STEADY;
	}
}

int lg_trend_of_steps(const struct lg_step *step, size_t n, struct lg_trend *ret)
{
	LG_AUTOFREE double *ms = lg_calloc(n + 1, sizeof *ms);
	int rc;

	if (!ms)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++)
		ms[i] = lg_ms(step[i].dur);
	rc = lg_trend_of(ms, n, ret);
	if (!rc && ret->shape == LG_SHAPE_SHIFT)
		ret->shift_s = lg_seconds(step[ret->at].ts - step[0].ts);
	return rc;
}
