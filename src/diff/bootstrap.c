/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bootstrap.c - how sure is it that two series of step times differ?
 *
 * Successive steps are not independent (a slow disk stays slow for a while, an agent comes every
 * 200 steps), so blocks are drawn, not steps: the circular block bootstrap (Politis and Romano
 * 1992). Blocks of a twentieth of the series, at least n^(1/3): long enough to hold a disturbance
 * that comes and goes, and still enough of them to draw from.
 *
 * A run that drifts (a machine that gets busier, a cache that fills) has blocks that differ by where
 * they lie; and of few steps the bootstrap draws too narrow an interval. So the quarters of each run
 * (under eight steps: the steps) are compared as well, as independent means (Welch), and the wider
 * interval counts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"
#include "diff/diff.h"

enum {
	STEPS_MIN = 3, /* fewer say nothing about how much steps differ */
	QUARTERS = 4, QUARTERED_FROM = 8,
	REPLICATES = 600,
	MEDIAN_MAX = 2048 /* steps in a replicate's median: every k-th is drawn beyond */
};

double lg_mean_of(const double *v, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += v[i];
	return n ? sum / (double)n : (double)NAN;
}

/* The k-th smallest, by Wirth's selection in place. */
static double nth(double *v, size_t n, size_t at)
{
	ptrdiff_t lo = 0, hi = (ptrdiff_t)n - 1, k = (ptrdiff_t)at;

	while (lo < hi) {
		ptrdiff_t i = lo, j = hi;
		double p = v[k];

		do {
			while (v[i] < p)
				i++;
			while (p < v[j])
				j--;
			if (i <= j) {
				double x = v[i];

				v[i++] = v[j];
				v[j--] = x;
			}
		} while (i <= j);
		if (j < k)
			lo = i;
		if (k < i)
			hi = j;
	}
	return v[k];
}

double lg_quantile_of(double *v, size_t n, double q)
{
	double at = n ? q * (double)(n - 1) : 0, two[2];
	size_t k = (size_t)at;

	if (!n)
		return (double)NAN;
	two[0] = two[1] = nth(v, n, k);
	/* What stands behind it is no smaller: the next one is the least of that. */
	for (size_t i = k + 1; i < n; i++)
		two[1] = i == k + 1 || v[i] < two[1] ? v[i] : two[1];
	return lg_quantile_f64(two, 2, at - (double)k);
}

double lg_student95(double df)
{
	/* Two-sided 95 % of Student's t for 1 ... 20 degrees of freedom. */
	static const double t[] = { 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
				    2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09 };

	if (!(df >= 1))
		return t[0];
	return df < 20 ? t[(int)df - 1] : 2.09;
}

#define SEED 0x6c616767617264 /* fixed: the same input gives the same bytes */

struct drawer {
	const double *v;
	double *sum;     /* prefix sums over two rounds of the circle */
	size_t n, block, stride;
	double *scratch;
};

size_t lg_bootstrap_block(size_t n)
{
	size_t block = n / 20 > (size_t)cbrt((double)n) ? n / 20 : (size_t)cbrt((double)n);

	return block ? block : 1;
}

static bool drawer_init(struct drawer *d, const double *v, size_t n)
{
	d->v = v;
	d->n = n;
	d->block = lg_bootstrap_block(n);
	d->stride = n / MEDIAN_MAX + 1;
	d->sum = lg_calloc(2 * n + 1, sizeof *d->sum);
	d->scratch = lg_calloc(n + 1, sizeof *d->scratch);
	if (!d->sum || !d->scratch)
		return false;
	for (size_t i = 0; i < 2 * n; i++)
		d->sum[i + 1] = d->sum[i] + v[i % n];
	return true;
}

static void drawer_done(struct drawer *d)
{
	lg_free(d->sum);
	lg_free(d->scratch);
}

static uint64_t next(uint64_t *state)
{
	return lg_mix64((*state)++);
}

static void draw(struct drawer *d, uint64_t *rng, double *ret_mean, double *ret_median)
{
	size_t left = d->n, kept = 0;
	double sum = 0;

	while (left) {
		size_t len = left < d->block ? left : d->block;
		size_t at = (size_t)(next(rng) % d->n);

		sum += d->sum[at + len] - d->sum[at];
		for (size_t i = 0; i < len; i += d->stride)
			d->scratch[kept++] = d->v[(at + i) % d->n];
		left -= len;
	}
	*ret_mean = sum / (double)d->n;
	*ret_median = nth(d->scratch, kept, kept / 2);
}

static void interval(double *v, double *ret_lo, double *ret_hi)
{
	qsort(v, REPLICATES, sizeof *v, lg_cmp_f64);
	*ret_lo = v[REPLICATES * 25 / 1000];
	*ret_hi = v[REPLICATES - 1 - REPLICATES * 25 / 1000];
}

static double plain_median(const double *v, size_t n, double *scratch)
{
	memcpy(scratch, v, n * sizeof *v);
	return nth(scratch, n, n / 2);
}

/* Variance of a mean (or median) as its parts tell it; *ret_df = parts - 1. */
static double spread(struct drawer *d, bool median, double *ret_df)
{
	size_t parts = d->n < QUARTERED_FROM ? d->n : QUARTERS;
	double v[QUARTERED_FROM], mean = 0, var = 0;

	for (size_t i = 0; i < parts; i++) {
		size_t from = d->n * i / parts, to = d->n * (i + 1) / parts;

		v[i] = median ? plain_median(d->v + from, to - from, d->scratch)
			      : lg_mean_of(d->v + from, to - from);
		mean += v[i] / (double)parts;
	}
	for (size_t i = 0; i < parts; i++)
		var += (v[i] - mean) * (v[i] - mean);
	*ret_df = (double)parts - 1;
	return var / *ret_df / (double)parts;
}

/* Half of the interval that the runs' own drift asks for. */
static double drift(struct drawer *b, struct drawer *a, bool median)
{
	double df_b, df_a, vb = spread(b, median, &df_b), va = spread(a, median, &df_a), df;

	if (!(vb + va > 0))
		return 0;
	df = (vb + va) * (vb + va) / (vb * vb / df_b + va * va / df_a);
	return lg_student95(df) * sqrt(vb + va);
}

/*
 * The upper end, half an interval above the value. As long as that is less than the value it is taken to be
 * log-normal; beyond, where a pause is most of a mean, that would promise millions, and the tangent is taken.
 */
static double times_more(double half, double of)
{
	double x = half / of;

	return x <= 1 ? exp(x) : M_E * x;
}

static void widen(double half, double of, struct lg_ratio *ratio, double delta, double *lo, double *hi)
{
	*lo = fmin(*lo, delta - half);
	*hi = fmax(*hi, delta + half);
	if (ratio->value > 0 && of > 0) {
		ratio->lo = fmin(ratio->lo, ratio->value * exp(-half / of));
		ratio->hi = fmax(ratio->hi, ratio->value * times_more(half, of));
	}
}

bool lg_bootstrap_lower(const double *v, size_t n, double *ret)
{
	struct drawer d = { 0 };
	uint64_t rng = SEED;
	double *mean = lg_calloc(REPLICATES, sizeof *mean), hi, median;
	bool ok = mean && drawer_init(&d, v, n);

	*ret = NAN;
	if (ok && n >= STEPS_MIN) {
		for (size_t i = 0; i < REPLICATES; i++)
			draw(&d, &rng, &mean[i], &median);
		interval(mean, ret, &hi);
	}
	lg_free(mean);
	drawer_done(&d);
	return ok;
}

bool lg_bootstrap(const double *before, size_t n_before, const double *after, size_t n_after,
		  struct lg_bootstrap *ret)
{
	struct drawer b = { 0 }, a = { 0 };
	struct lg_bootstrap r = { { NAN, NAN, NAN }, { NAN, NAN, NAN }, NAN, NAN, NAN, NAN, NAN };
	uint64_t rng = SEED;
	double *out, m[2], med[2];
	bool ok;

	*ret = r;
	if (!n_before || !n_after)
		return true;
	out = lg_calloc(4 * REPLICATES, sizeof *out);
	ok = out && drawer_init(&b, before, n_before) && drawer_init(&a, after, n_after);
	if (ok) {
		m[0] = lg_mean_of(before, n_before);
		m[1] = lg_mean_of(after, n_after);
		med[0] = plain_median(before, n_before, b.scratch);
		med[1] = plain_median(after, n_after, a.scratch);
		r.mean.value = m[0] > 0 ? m[1] / m[0] : (double)NAN;
		r.median.value = med[0] > 0 ? med[1] / med[0] : (double)NAN;
		r.med_delta = med[1] - med[0];
		for (size_t i = 0; i < REPLICATES; i++) {
			double bm, bd, am, ad;

			draw(&b, &rng, &bm, &bd);
			draw(&a, &rng, &am, &ad);
			out[i] = bm > 0 ? am / bm : 1;
			out[REPLICATES + i] = bd > 0 ? ad / bd : 1;
			out[2 * REPLICATES + i] = am - bm;
			out[3 * REPLICATES + i] = ad - bd;
		}
		if (m[0] > 0)
			interval(out, &r.mean.lo, &r.mean.hi);
		if (med[0] > 0)
			interval(out + REPLICATES, &r.median.lo, &r.median.hi);
		interval(out + 2 * REPLICATES, &r.delta_lo, &r.delta_hi);
		interval(out + 3 * REPLICATES, &r.med_lo, &r.med_hi);
		widen(drift(&b, &a, false), m[1], &r.mean, m[1] - m[0], &r.delta_lo, &r.delta_hi);
		widen(drift(&b, &a, true), med[1], &r.median, r.med_delta, &r.med_lo, &r.med_hi);
		if (n_before < STEPS_MIN || n_after < STEPS_MIN)
			r.mean.lo = r.mean.hi = r.median.lo = r.median.hi = r.delta_lo = r.delta_hi =
				r.med_lo = r.med_hi = NAN;
		*ret = r;
	}
	lg_free(out);
	drawer_done(&b);
	drawer_done(&a);
	return ok;
}
