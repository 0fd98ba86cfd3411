/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_places.c - where in the program the main thread spends its time, where the trace has Python stacks or
 * annotations.
 *
 * A place is the innermost function of the program's own and what it calls in a library or the interpreter.
 */
#include "timeline/cpu_time.h"
#include "base/map.h"

const char *lg_gpu_place(const struct lg_scene *sc, uint32_t op, uint32_t site)
{
	const struct lg_trace *t = sc->t;
	const char *where = NULL, *what = NULL;

	if (op != LG_NO_ROW) {
		lg_stk s = t->span.stack[op];
		char buf[256];

		what = lg_span_name(t, op);
		/* Traces of 2021 carry the call stack with the operator: innermost user frame. */
		for (; s && !where; s = t->stack.parent[s])
			if (!lg_is_library_path(lg_frame_text(t, t->stack.frame[s], buf, sizeof buf)) &&
			    !lg_is_library_path(lg_stack_file(t, s)))
				where = lg_arena_strdup(sc->arena, buf);
	}
	if (site != LG_NO_ROW) {
		lg_stk s = t->span.kind[site] == LG_SPAN_PYTHON ? t->span.stack[site] : 0;
		lg_frm f = s ? t->stack.frame[s] : 0;

		where = lg_span_name(t, site);
		if (f && *lg_string(t, t->frame.file[f]) && t->frame.line[f])
			where = lg_arena_printf(sc->arena, "%s:%u %s", lg_string(t, t->frame.file[f]),
					t->frame.line[f], lg_string(t, t->frame.name[f]));
	}
	if (where && what)
		return lg_arena_printf(sc->arena, "%s at %s", what, where);
	return where ? where : what;
}

struct places {
	struct lg_cpu_place *v;
	size_t n, cap;
	struct lg_map by_key; /* names -> place + 1 */
};

/* What a stretch is in: the call, where it is no function of the program itself, nor the whole step. */
static uint32_t call_of(const struct lg_trace *t, const struct lg_host_seg *s)
{
	if (s->span == LG_NO_ROW || s->span == s->site || t->span.kind[s->span] == LG_SPAN_STEP)
		return LG_NO_ROW;
	return s->span;
}

static lg_str name_of(const struct lg_trace *t, uint32_t row)
{
	return row != LG_NO_ROW ? t->span.name[row] : 0;
}

static int charge(const struct lg_trace *t, struct places *l, const struct lg_host_seg *s, int64_t ns)
{
	uint64_t key = ((uint64_t)name_of(t, s->site) << 32 | name_of(t, call_of(t, s))) + 1;
	uint32_t at = LG_MAP_APPEND(&l->by_key, key, l->v, l->n, l->cap,
				    (struct lg_cpu_place){ .site = s->site, .call = call_of(t, s) });
	struct lg_cpu_place *p = at ? &l->v[at - 1] : NULL;

	if (!p)
		return LG_E_NOMEM;
	p->ns += ns;
	lg_keep_longest(&p->longest, &p->at, ns, s->ts);
	return 0;
}

LG_ORDER_BY(cmp_place, struct lg_cpu_place, LG_CMP(y->ns, x->ns) ?: LG_CMP(x->at, y->at))

size_t lg_cpu_places(const struct lg_scene *sc, const struct lg_gpu_run *r, const struct lg_cpu_time_of *what,
		     struct lg_cpu_place *ret, size_t n)
{
	const struct lg_gpu_host *h = lg_gpu_main_host(r);
	size_t at = 0;
	struct places l = { .n = 0 };
	int rc = 0;

	LG_EACH_WHILE(!rc, s, h->seg, h->n)
		if ((what->class == LG_HOST_NONE ? lg_host_is_python(s) : s->class == what->class) &&
		    s->ts >= what->from && s->end <= what->to &&
		    (s->site != LG_NO_ROW || call_of(sc->t, s) != LG_NO_ROW))
			rc = charge(sc->t, &l, s, s->end - s->ts -
				    (what->busy ? lg_iv_shared(what->busy, &at, s->ts, s->end) : 0));
	(void)lg_scene_failed(sc, rc);
	LG_SORT(l.v, l.n, cmp_place);
	n = rc ? 0 : LG_MIN(n, l.n);
	if (n)
		memcpy(ret, l.v, n * sizeof *ret);
	lg_free(l.v);
	lg_map_done(&l.by_key);
	return n;
}

const char *lg_cpu_where(const struct lg_scene *sc, const struct lg_cpu_place *p)
{
	const char *where = lg_gpu_place(sc, LG_NO_ROW, p->site);
	const char *call = p->call != LG_NO_ROW ? lg_span_name(sc->t, p->call) : NULL;

	if (!where || !call)
		return where ? where : call;
	return lg_arena_printf(sc->arena, "%s, in %s", where, call);
}

const char *lg_cpu_python(const struct lg_scene *sc, const struct lg_gpu_run *r, int64_t from, int64_t to)
{
	const int64_t window[] = { from, to };
	int64_t by[1][LG_CPU_PARTS], told = 0;
	struct lg_cpu_time_of what = { LG_HOST_NONE, from, to, NULL };
	struct lg_cpu_place p[3];
	struct lg_ivs busy;
	const char *text = NULL;
	size_t n;

	if (sc->arena->failed || lg_scene_failed(sc, lg_cpu_parts(sc, r, window, 1, by, &busy)))
		return NULL;
	what.busy = &busy;
	n = lg_cpu_places(sc, r, &what, p, 3);
	for (size_t i = 0; i < n && p[i].ns * 5 >= p[0].ns; i++) {
		told += p[i].ns;
		text = lg_arena_printf(sc->arena, "%s%s%.1f ms at %s", text ? text : "", text ? ", " : "",
			       lg_ms(p[i].ns), lg_cpu_where(sc, &p[i]));
	}
	lg_free(busy.v);
	return told * 2 >= by[0][LG_CPU_BETWEEN] ? text : NULL;
}
