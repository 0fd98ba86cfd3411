/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bootstrap.c - how sure is it that two series of step times differ?
 *
 * Successive steps are not independent (a slow disk stays slow for a while, an agent comes every
 * 200 steps), so blocks are drawn, not steps: the circular block bootstrap (Politis and Romano
 * 1992). Blocks of a twentieth of the series, at least n^(1/3): long enough to hold a disturbance
 * that comes and goes, and still enough of them to draw from.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"
#include "diff/diff.h"

enum {
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
	if (!n)
		return (double)NAN;
	return nth(v, n, (size_t)(q * (double)(n - 1) + 0.5));
}

struct drawer {
	const double *v;
	double *sum;     /* prefix sums over two rounds of the circle */
	size_t n, block, stride;
	double *scratch;
};

static bool drawer_init(struct drawer *d, const double *v, size_t n)
{
	d->v = v;
	d->n = n;
	d->block = n / 20;
	if (d->block < (size_t)cbrt((double)n))
		d->block = (size_t)cbrt((double)n);
	if (d->block < 1)
		d->block = 1;
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

bool lg_bootstrap(const double *before, size_t n_before, const double *after, size_t n_after,
		  struct lg_bootstrap *ret)
{
	struct drawer b = { 0 }, a = { 0 };
	struct lg_bootstrap r = { { NAN, NAN, NAN }, { NAN, NAN, NAN }, NAN, NAN, NAN, NAN, NAN };
	uint64_t rng = 0x6c616767617264; /* fixed: the same input gives the same bytes */
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
		*ret = r;
	}
	lg_free(out);
	drawer_done(&b);
	drawer_done(&a);
	return ok;
}
