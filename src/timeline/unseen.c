/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unseen.c - the time between two files of one process, in which no profiler ran.
 *
 * It begins where the window of the one file ends and ends where that of the next one begins, each as if its
 * file were alone: with its marked steps, or else with its work and operators. What a profiler does itself
 * when it starts and stops lies outside.
 */
#include "timeline/window.h"

#include "base/upper_bound.h"
#include "store/merge.h"

int64_t lg_gpu_seen_of(const struct lg_gpu_run *r, int64_t a, int64_t b)
{
	int64_t ns = b - a;

	LG_EACH(u, r->unseen, r->n_unseen)
		if (u->ts < b && u->end > a)
			ns -= LG_MIN(u->end, b) - LG_MAX(u->ts, a);
	return ns;
}

/* Of the marked steps between from and to: where the first begins, and the last ends. None: false. */
static bool marked(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r, struct lg_iv in,
		   struct lg_iv *ret)
{
	const struct lg_trace *t = sc->t;
	const struct lg_gpu_host *m = r->main ? lg_gpu_main_host(r) : NULL;
	bool any = false;

	for (size_t p = 0; m && p < m->n_marks; p++) {
		uint32_t row = m->mark[p];

		if (t->span.ts[row] < in.ts || lg_span_end(t, row) > in.end ||
		    (t->span.kind[row] != LG_SPAN_STEP &&
		     lg_gpu_name(sc, g, t->span.name[row]) != LG_NAME_STEP))
			continue;
		if (!any)
			ret->ts = t->span.ts[row];
		ret->end = lg_span_end(t, row);
		any = true;
	}
	/* Its device may be behind. */
	LG_EACH_WHERE(any && w->call != LG_NO_ROW && w->ts >= in.ts && w->ts < in.end, w, r->work, r->n_work)
		if (t->span.ts[w->call] < ret->end)
			ret->end = LG_MAX(ret->end, w->end);
	return any;
}

/* The same of work and operators. */
static void worked(const struct lg_gpu_run *r, struct lg_iv in, struct lg_iv *ret)
{
	*ret = (struct lg_iv){ INT64_MAX, INT64_MIN, LG_NO_ROW };
	LG_EACH_WHERE(w->ts >= in.ts && w->ts < in.end, w, r->work, r->n_work) {
		ret->ts = LG_MIN(ret->ts, w->ts);
		ret->end = LG_MAX(ret->end, w->end);
	}
	LG_EACH(h, r->host, r->n_host) {
		size_t k = LG_UPPER_BOUND(h->seg, h->n, end, in.ts);

		for (; k < h->n && h->seg[k].ts < in.end; k++) {
			if (h->seg[k].op == LG_NO_ROW && !h->seg[k].note)
				continue;
			ret->ts = LG_MIN(ret->ts, h->seg[k].ts);
			ret->end = LG_MAX(ret->end, h->seg[k].end);
		}
	}
}

int lg_gpu_unseen(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
{
	LG_AUTO_IVS gaps = { 0 };
	struct lg_iv of, all, last = { .end = INT64_MAX };
	bool any = lg_profiled_within(sc->t, r->prc, &all);
	int rc = lg_profiled_gaps(sc->t, r->prc, &gaps);

	if (!rc && gaps.n) {
		r->unseen = lg_arena_alloc(sc->arena, gaps.n, sizeof *r->unseen);
		rc = r->unseen ? 0 : LG_E_NOMEM;
	}
	/* Marks of a recording beside them go on where no profiler ran. */
	for (size_t k = 0; !rc && any && gaps.n && k <= gaps.n; k++) {
		struct lg_iv file = { k ? gaps.v[k - 1].end : all.ts,
				      k < gaps.n ? gaps.v[k].ts : all.end, LG_NO_ROW };

		if (!marked(sc, g, r, file, &of))
			worked(r, file, &of);
		if (of.ts > of.end)
			continue;
		if (last.end < of.ts)
			r->unseen[r->n_unseen++] = (struct lg_iv){ last.end, of.ts, LG_NO_ROW };
		last = of;
	}
	return rc;
}
