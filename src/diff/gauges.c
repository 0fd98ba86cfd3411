/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gauges.c - the devices' readings of two runs: utilisation, clocks, power, memory, temperature by their
 * medians, reasons to run slower by the share of readings that name them.
 *
 * Readings of one run depend on each other (an epoch, a checkpoint), as steps do: the same block bootstrap
 * tells what is noise. What is less than a fiftieth is no news, however sure: sensors round.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "diff/diff.h"

enum { POINTS_MAX = 512, READINGS_MIN = 8 };
#define NEWS 0.02

/* NVML's nvmlClocksEventReason*, as nvidia-smi -q -d PERFORMANCE calls them. */
static const struct {
	uint64_t bit;
	const char *says;
} reasons[] = {
	{ 0x1, "gpu.throttle: idle" }, { 0x2, "gpu.throttle: applications clocks setting" },
	{ 0x4, "gpu.throttle: sw power cap" }, { 0x8, "gpu.throttle: hw slowdown" },
	{ 0x10, "gpu.throttle: sync boost" }, { 0x20, "gpu.throttle: sw thermal slowdown" },
	{ 0x40, "gpu.throttle: hw thermal slowdown" }, { 0x80, "gpu.throttle: hw power brake slowdown" },
	{ 0x100, "gpu.throttle: display clocks setting" },
};

/* A series of at most POINTS_MAX: medians, or means, of so many neighbours. */
static size_t points(const double *v, size_t n, bool mean, double *scratch, double *out)
{
	size_t m = n < POINTS_MAX ? n : POINTS_MAX;

	for (size_t i = 0; i < m; i++) {
		size_t from = n * i / m, k = n * (i + 1) / m - from;

		memcpy(scratch, v + from, k * sizeof *v);
		out[i] = mean ? lg_mean_of(scratch, k) : lg_quantile_of(scratch, k, 0.5);
	}
	return m;
}

/* v: before, after. scale: to the unit in which it is told. */
static int compare(struct lg_diff *d, const struct lg_side_gauge *g, const char *metric, const char *unit,
		   const double *const v[2], const size_t n[2], bool share, double scale)
{
	size_t most = n[0] > n[1] ? n[0] : n[1], m[2];
	LG_AUTOFREE double *scratch = lg_calloc(most + 1, sizeof *scratch);
	LG_AUTOFREE double *p = lg_calloc(2 * POINTS_MAX, sizeof *p);
	struct lg_gauge_change *x = &d->gauges[d->n_gauges];
	struct lg_bootstrap b;
	double at[2];

	if (!scratch || !p)
		return LG_E_NOMEM;
	for (int i = 0; i < 2; i++) {
		memcpy(scratch, v[i], n[i] * sizeof *scratch);
		at[i] = scale * (share ? lg_mean_of(scratch, n[i]) : lg_quantile_of(scratch, n[i], 0.5));
		m[i] = points(v[i], n[i], share, scratch, p + i * POINTS_MAX);
	}
	if (!lg_bootstrap(p, m[0], p + POINTS_MAX, m[1], &b))
		return LG_E_NOMEM;
	*x = (struct lg_gauge_change){
		.gpu = g->gpu, .host = g->host, .metric = metric, .unit = unit, .before = at[0],
		.after = at[1], .delta = at[1] - at[0], .lo = scale * (share ? b.delta_lo : b.med_lo),
		.hi = scale * (share ? b.delta_hi : b.med_hi), .n_before = n[0], .n_after = n[1] };
	/* Of a share (in percent) two in a hundred readings; of a median two percent. */
	x->sure = n[0] >= READINGS_MIN && n[1] >= READINGS_MIN && (x->lo > 0 || x->hi < 0) &&
		  fabs(x->delta) >= NEWS * (share ? scale : fmax(fabs(at[0]), fabs(at[1])));
	d->n_gauges++;
	return 0;
}

/* One reason after the other, those that were ever told. */
static int compare_reasons(struct lg_diff *d, const struct lg_side_gauge *b, const struct lg_side_gauge *a)
{
	const struct lg_side_gauge *g[2] = { b, a };
	const size_t n[2] = { b->n, a->n };
	LG_AUTOFREE double *before = lg_calloc(b->n + 1, sizeof *before);
	LG_AUTOFREE double *after = lg_calloc(a->n + 1, sizeof *after);
	double *to[2] = { before, after };
	int rc = before && after ? 0 : LG_E_NOMEM;

	for (size_t r = 0; !rc && r < sizeof reasons / sizeof *reasons; r++) {
		double sum = 0;

		for (int s = 0; s < 2; s++)
			for (size_t i = 0; i < n[s]; i++) {
				double x = g[s]->v[i];

				to[s][i] = x >= 0 && x < 1e15 && ((uint64_t)x & reasons[r].bit) ? 1 : 0;
				sum += to[s][i];
			}
		if (sum > 0)
			rc = compare(d, b, reasons[r].says, "% of readings", (const double *const[]){ before, after },
				     n, true, 100);
	}
	return rc;
}

int lg_diff_gauges(struct lg_diff *d)
{
	const struct lg_side *b = d->before, *a = d->after;
	size_t i = 0, k = 0;
	int rc = 0;

	d->gauges = lg_arena_alloc(&d->v.arena, b->n_gauges * (sizeof reasons / sizeof *reasons) + 1,
				   sizeof *d->gauges);
	if (!d->gauges)
		return LG_E_NOMEM;
	while (!rc && i < b->n_gauges && k < a->n_gauges) {
		const struct lg_side_gauge *x = &b->gauges[i], *y = &a->gauges[k];
		int c = lg_side_cmp_gauge(x, y);
		bool share = !strncmp(x->metric, "gpu.throttle.", 13) || !strcmp(x->unit, "bool");
		bool bytes = !strncmp(x->unit, "bytes", 5);

		i += c <= 0;
		k += c >= 0;
		if (c || !x->n || !y->n)
			continue;
		if (!strcmp(x->metric, "gpu.throttle"))
			rc = compare_reasons(d, x, y);
		else
			rc = compare(d, x, x->metric, share ? "% of readings" : !bytes ? x->unit
							   : x->unit[5] ? "MiB/s" : "MiB",
				     (const double *const[]){ x->v, y->v }, (const size_t[]){ x->n, y->n },
				     share, share ? 100 : bytes ? 0x1p-20 : 1);
	}
	return rc;
}

const char *lg_gauge_device(const struct lg_gauge_change *g, char *buf, size_t size)
{
	if (g->host)
		snprintf(buf, size, "GPU %d of machine %u", g->gpu, g->host + 1);
	else
		snprintf(buf, size, "GPU %d", g->gpu);
	return buf;
}
