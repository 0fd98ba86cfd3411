/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_bound.c - what bounds a training of which only operators on the CPU were traced.
 *
 * Nothing hides the wait for a batch there, nor a collective while no thread of the process computes. Where
 * the machine has a device that was not traced, operators may have waited for it: then only the loader's own
 * time says anything.
 */
#include <math.h>
#include <string.h>

#include "analyse/device/timeline_gpu.h"
#include "analyse/facts.h"
#include "base/alloc.h"
#include "store/index.h"

static enum lg_cpu_kind kind_of(const struct lg_case *c, const struct lg_host_seg *s)
{
	if (s->class == LG_HOST_LOADER)
		return LG_CPU_DATA;
	if (s->span != LG_NO_ROW && c->t->span.kind[s->span] == LG_SPAN_COLLECTIVE)
		return LG_CPU_COMM;
	return s->class == LG_HOST_NONE ? 0 : LG_CPU_COMPUTE;
}

/* Collectives are rows of threads that run no operators. */
static int add_collectives(const struct lg_case *c, const struct lg_gpu_run *r, struct lg_gpu_ivs *all)
{
	const struct lg_span_tab *s = &c->t->span;

	for (uint32_t k = c->idx->thread_off[r->prc]; k < c->idx->thread_off[r->prc + 1]; k++) {
		lg_thr thr = c->idx->thread[k];

		for (uint32_t p = c->idx->span_off[thr]; p < c->idx->span_off[thr + 1]; p++) {
			uint32_t row = c->idx->span[p];

			if (s->kind[row] != LG_SPAN_COLLECTIVE || s->dur[row] <= 0 || s->ts[row] >= r->to)
				continue;
			if (lg_grow(&all->v, &all->cap, all->n + 1, sizeof *all->v))
				return LG_E_NOMEM;
			all->v[all->n++] = (struct lg_gpu_iv){ s->ts[row], s->ts[row] + s->dur[row], row };
		}
	}
	return 0;
}

int lg_cpu_busy(const struct lg_case *c, const struct lg_gpu_run *r, unsigned kinds, struct lg_gpu_ivs *ret)
{
	struct lg_gpu_ivs all = { 0 };
	size_t n = 0;

	*ret = all;
	for (size_t h = 0; h < r->n_host; h++) {
		const struct lg_gpu_host *o = &r->host[h];
		size_t own = all.n; /* this thread's begin here */

		for (size_t i = 0; i < o->n; i++) {
			const struct lg_host_seg *s = &o->seg[i];

			if (s->end <= r->from || s->ts >= r->to || !(kind_of(c, s) & kinds))
				continue;
			/* Nearly every one begins where the last one ends. */
			if (all.n > own && s->ts <= all.v[all.n - 1].end) {
				all.v[all.n - 1].end = s->end;
				continue;
			}
			if (lg_grow(&all.v, &all.cap, all.n + 1, sizeof *all.v)) {
				lg_free(all.v);
				return LG_E_NOMEM;
			}
			all.v[all.n++] = (struct lg_gpu_iv){ s->ts, s->end, LG_NO_ROW };
		}
	}
	if ((kinds & LG_CPU_COMM && add_collectives(c, r, &all)) || lg_gpu_iv_order(&all)) {
		lg_free(all.v);
		return LG_E_NOMEM;
	}
	for (size_t i = 0; i < all.n; i++) {
		if (!n || all.v[i].ts > all.v[n - 1].end)
			all.v[n++] = all.v[i];
		else if (all.v[i].end > all.v[n - 1].end)
			all.v[n - 1].end = all.v[i].end;
	}
	all.n = n;
	*ret = all;
	return 0;
}

int64_t lg_cpu_within(const struct lg_gpu_ivs *v, size_t *at, int64_t from, int64_t to)
{
	int64_t sum = 0;

	while (*at < v->n && v->v[*at].end <= from)
		++*at;
	for (size_t i = *at; i < v->n && v->v[i].ts < to; i++)
		sum += (v->v[i].end < to ? v->v[i].end : to) - (v->v[i].ts > from ? v->v[i].ts : from);
	return sum;
}

/* ns of r's window in which a thread of the process does one of the kinds; -1 without memory. */
static int64_t covered(const struct lg_case *c, const struct lg_gpu_run *r, unsigned kinds)
{
	struct lg_gpu_ivs all;
	size_t at = 0;
	int64_t sum;

	if (lg_cpu_busy(c, r, kinds, &all))
		return -1;
	sum = lg_cpu_within(&all, &at, r->from, r->to);
	lg_free(all.v);
	return sum;
}

/* What was found to be waiting for batches, also where no event says so (batch_wait.c). */
static const struct lg_finding *told_wait(const struct lg_verdict *v)
{
	for (size_t i = 0; i < v->n_findings; i++)
		if (!strcmp(v->findings[i].id, "data.loader_wait") && !isnan(v->findings[i].lost_share))
			return &v->findings[i];
	return NULL;
}

static bool has_collectives(const struct lg_trace *t)
{
	return t->span.n && memchr(t->span.kind, LG_SPAN_COLLECTIVE, t->span.n);
}

int lg_bound_on_cpu(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	bool device = false;
	const struct lg_finding *told = told_wait(v);
	double wall = 0, data = 0, compute = 0, comm = 0, unknown;

	for (size_t i = 0; i < g->n; i++) {
		const struct lg_gpu_run *r = &g->run[i];
		int64_t a, b, all;

		if (r->scope != LG_SCOPE_CPU || !r->main || r->n_steps < 3 || r->to <= r->from)
			continue;
		a = covered(c, r, LG_CPU_DATA);
		b = covered(c, r, LG_CPU_DATA | LG_CPU_COMPUTE);
		all = has_collectives(c->t) ? covered(c, r, LG_CPU_DATA | LG_CPU_COMPUTE | LG_CPU_COMM) : b;
		if (a < 0 || b < 0 || all < 0)
			return LG_E_NOMEM;
		device |= lg_fact_of(c, r->prc, "gpu.0.name") != NULL;
		wall += (double)(r->to - r->from);
		data += (double)a;
		compute += (double)(b - a);
		comm += (double)(all - b);
	}
	if (!(wall > 0))
		return 0;
	data = fmax(data / wall, told ? fmin(told->lost_share, 1 - (compute + comm) / wall) : 0);
	compute /= wall;
	comm /= wall;
	unknown = fmax(0, 1 - data - compute - comm);
	if (device && data < 0.3) {
		v->bound_why = "not judged: operators on the CPU only, and the machine's device was not traced";
		return 0;
	}
	v->bound_why = lg_arena_printf(&v->arena, "operators on the CPU; of the steps' time %.0f %% in operators, "
				       "%.0f %% waiting for data, %.0f %% collectives not under operators, %.0f %% "
				       "between them, not explained", compute * 100, data * 100, comm * 100,
				       unknown * 100);
	if (unknown > 0.5)
		return 0;
	v->bound_confidence = (device ? 0.8 : 0.95) - unknown;
	if (told)
		v->bound_confidence = fmin(v->bound_confidence, told->confidence);
	if (data >= 0.3 && data > comm)
		v->bound = "data";
	else if (comm >= 0.3)
		v->bound = "comms";
	else
		v->bound = data + comm >= 0.3 ? "mixed" : "host";
	return 0;
}
