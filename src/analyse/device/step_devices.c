/* SPDX-License-Identifier: Apache-2.0 */
/* step_devices.c - what a step's device did in it, and for what it idled longest: gpu_idle.c's pieces. */
#include "analyse/device/device_rules.h"

/* What the idle time of a cause is called in a table. */
static const char *const idle_by[LG_GPU_BY_MAX] = {
	[LG_GPU_BY_LOADER] = "loader",	       [LG_GPU_BY_BATCH] = "next batch",
	[LG_GPU_BY_SYNC] = "synchronisation",  [LG_GPU_BY_ALLOC] = "allocation",
	[LG_GPU_BY_COMPILE] = "compilation",   [LG_GPU_BY_SIDE] = "checkpoint",
	[LG_GPU_BY_LOG] = "logging",	       [LG_GPU_BY_COLD] = "first use",
	[LG_GPU_BY_AUTOTUNE] = "autotuning",   [LG_GPU_BY_OPTIMIZER] = "optimizer's launches",
	[LG_GPU_BY_ZERO] = "zero_grad's launches", [LG_GPU_BY_CAST] = "casts' launches",
	[LG_GPU_BY_WRAPPER] = "DDP's own work", [LG_GPU_BY_CHECK] = "anomaly detection",
	[LG_GPU_BY_LAUNCH] = "launches",
	[LG_GPU_BY_OTHER] = "another device",  [LG_GPU_BY_QUEUED] = "dependency or missing rows",
	[LG_GPU_BY_UNKNOWN] = "unknown",
};

static const struct lg_gpu_run *run_of(const struct lg_gpu *g, lg_prc prc)
{
	LG_EACH(r, g->run, g->n)
		if (r->prc == prc && lg_gpu_judged(r) && r->n_pieces && !r->n_requests)
			return r;
	return NULL;
}

/* The first piece that ends after ts; they tile the window. */
static size_t piece_at(const struct lg_gpu_run *r, int64_t ts)
{
	size_t lo = 0, hi = r->n_pieces;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (r->piece[mid].ts + r->piece[mid].dur <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct lg_step_device sum_up(const struct lg_gpu_run *r, const struct lg_step *s)
{
	struct lg_step_device d = { 0 };
	int64_t by[LG_GPU_BY_MAX] = { 0 }, end = s->ts + s->dur;
	int most = -1;

	for (size_t i = piece_at(r, s->ts); i < r->n_pieces && r->piece[i].ts < end; i++) {
		const struct lg_gpu_piece *p = &r->piece[i];

		by[p->cause] += LG_MIN(p->ts + p->dur, end) - LG_MAX(p->ts, s->ts);
	}
	d.compute = by[LG_GPU_BY_COMPUTE];
	d.comm = by[LG_GPU_BY_COMM];
	d.copy = by[LG_GPU_BY_PAGEABLE] + by[LG_GPU_BY_PINNED] + by[LG_GPU_BY_D2H];
	d.idle = s->dur - d.compute - d.comm - d.copy;
	for (int k = 0; k < LG_GPU_BY_MAX; k++)
		if (idle_by[k] && by[k] > 0 && (most < 0 || by[k] > by[most]))
			most = k;
	d.idle_cause = most < 0 ? NULL : idle_by[most];
	return d;
}

int lg_step_devices(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_step_device *d = NULL;
	const struct lg_gpu_run *r = NULL;

	LG_EACH(s, c->v->steps, c->v->n_steps) {
		if (!r || r->prc != s->prc)
			r = run_of(g, s->prc);
		if (!r || s->ts < r->from || s->ts + s->dur > r->to)
			continue;
		d = lg_arena_alloc(&c->v->arena, 1, sizeof *d);
		if (!d)
			return LG_E_NOMEM;
		*d = sum_up(r, s);
		s->device = d;
	}
	return 0;
}
