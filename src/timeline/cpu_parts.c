/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_parts.c - what a process does that has no device: each nanosecond is of one part. */
#include "timeline/cpu_time.h"

/* What a thread beside the main one saves or writes holds nobody up. */
static enum lg_cpu_part part_of(const struct lg_scene *sc, const struct lg_host_seg *s, bool main)
{
	if (s->class == LG_HOST_LOADER)
		return LG_CPU_DATA;
	if (s->class == LG_HOST_SIDE)
		return main ? LG_CPU_SAVE : LG_CPU_BETWEEN;
	if (s->class == LG_HOST_LOG)
		return main ? LG_CPU_LOG : LG_CPU_BETWEEN;
	if (s->class == LG_HOST_COMPILE && main)
		return LG_CPU_COMPILE;
	if (s->span != LG_NO_ROW && sc->t->span.kind[s->span] == LG_SPAN_COLLECTIVE)
		return LG_CPU_COMM;
	return lg_host_is_python(s) ? LG_CPU_BETWEEN : LG_CPU_OPERATORS;
}

/* Collectives are rows of threads that run no operators. */
static int add_collectives(const struct lg_scene *sc, const struct lg_gpu_run *r, struct lg_ivs *all)
{
	const struct lg_span_tab *s = &sc->t->span;

	LG_LISTED(thr, sc->idx->thread, r->prc) {
		LG_LISTED(row, sc->idx->span, thr) {
			if (s->kind[row] == LG_SPAN_COLLECTIVE && s->dur[row] > 0 && s->ts[row] < r->to &&
			    lg_iv_put(all, all->n, s->ts[row], s->ts[row] + s->dur[row]))
				return LG_E_NOMEM;
		}
	}
	return 0;
}

/* When a thread of r's process does that or an earlier part: disjoint, in order; ret->v is the caller's, also
 * without memory. */
static int busy(const struct lg_scene *sc, const struct lg_gpu_run *r, enum lg_cpu_part part,
		struct lg_ivs *ret)
{
	int rc = 0;

	ret->n = 0;
	LG_EACH(o, r->host, r->n_host) {
		size_t own = ret->n; /* this thread's begin here */

		for (size_t i = 0; i < o->n && !rc; i++)
			if (lg_host_in_window(r, &o->seg[i]) &&
			    part_of(sc, &o->seg[i], o->thr == r->main) <= part)
				rc = lg_iv_put(ret, own, o->seg[i].ts, o->seg[i].end);
	}
	if (!rc && part == LG_CPU_COMM)
		rc = add_collectives(sc, r, ret);
	return rc ? rc : lg_iv_join(ret);
}

/* Else it is what it was without. */
static bool has_part(const struct lg_scene *sc, const struct lg_gpu_run *r, enum lg_cpu_part part)
{
	const struct lg_trace *t = sc->t;

	if (part == LG_CPU_SAVE || part == LG_CPU_LOG)
		return r->has_side;
	if (part == LG_CPU_COMPILE)
		return r->has_compile;
	return part != LG_CPU_COMM || (t->span.n && memchr(t->span.kind, LG_SPAN_COLLECTIVE, t->span.n));
}

int lg_cpu_parts(const struct lg_scene *sc, const struct lg_gpu_run *r, const int64_t *at, size_t n,
		 int64_t (*by)[LG_CPU_PARTS], struct lg_ivs *ret_any)
{
	struct lg_ivs v = { 0 };

	for (enum lg_cpu_part k = LG_CPU_DATA; k < LG_CPU_BETWEEN; k++) {
		size_t i = 0;

		if (has_part(sc, r, k) && busy(sc, r, k, &v)) {
			lg_free(v.v);
			return LG_E_NOMEM;
		}
		for (size_t s = 0; s < n; s++)
			by[s][k] = lg_iv_shared(&v, &i, at[s], at[s + 1]);
	}
	for (size_t s = 0; s < n; s++) {
		by[s][LG_CPU_BETWEEN] = lg_gpu_seen(r, at[s], at[s + 1]) - by[s][LG_CPU_COMM];
		for (enum lg_cpu_part k = LG_CPU_COMM; k > LG_CPU_DATA; k--)
			by[s][k] -= by[s][k - 1];
	}
	if (ret_any)
		*ret_any = v;
	else
		lg_free(v.v);
	return 0;
}
