/* SPDX-License-Identifier: Apache-2.0 */
/*
 * points.c - moments between steps: the ends of a profiler's steps or of an optimizer's, by
 * annotations; else when forward code asks for memory after the backward pass or the optimizer did, by
 * stacks. A loop that tells none of these is not cut into steps: within one, memory grows as it should.
 */
#include <string.h>

#include "memory/parts.h"

enum { MIN_POINTS = 4 };

static int add_point(struct lg_memory_work *w, struct lg_memory_points *p, int64_t ts)
{
	p->ts = lg_arena_room(w->a, p->ts, p->n, sizeof *p->ts);
	if (!p->ts)
		return LG_E_NOMEM;
	p->ts[p->n++] = ts;
	return 0;
}

static bool is_end(const struct lg_memory_work *w, const struct lg_memory_device *d, uint32_t row,
		   bool steps)
{
	static const char optimizer[] = "Optimizer.step#";
	const struct lg_trace *t = w->t;

	if (t->thread.prc[t->span.thr[row]] != t->track.prc[d->track])
		return false;
	if (steps)
		return t->span.kind[row] == LG_SPAN_STEP;
	return t->span.kind[row] == LG_SPAN_NOTE &&
	       !strncmp(lg_string(t, t->span.name[row]), optimizer, sizeof optimizer - 1);
}

/* Annotations by their begins, of which none lies in another of its kind: their ends are in order as
 * well. */
static int by_annotations(struct lg_memory_work *w, struct lg_memory_device *d, bool steps)
{
	const struct lg_span_tab *s = &w->t->span;
	int rc = 0;

	d->points = (struct lg_memory_points){ 0 };
	for (uint32_t row = 0; row < s->n && !rc; row++) {
		int64_t end = is_end(w, d, row, steps) ? lg_span_end(w->t, row) : INT64_MIN;

		if (end >= d->first && end <= d->last &&
		    (!d->points.n || end > d->points.ts[d->points.n - 1]))
			rc = add_point(w, &d->points, end);
	}
	d->points.told = steps ? "by the profiler's steps" : "by the ends of the optimizer's steps";
	return rc;
}

static int by_passes(struct lg_memory_work *w, struct lg_memory_device *d)
{
	const struct lg_span_tab *s = &w->t->span;
	bool after = false;
	int rc = 0;

	d->points = (struct lg_memory_points){
		.told = "by where forward code follows the backward pass, in the "
			"stacks"
	};
	for (size_t i = 0; i < d->n_rows && !rc; i++) {
		uint32_t row = d->rows[i];
		unsigned at;

		if (lg_memory_row(w, row) != LG_MEM_ALLOC || s->args[row])
			continue;
		at = s->stack[row] ? w->at[s->stack[row]] : w->allocs_have_stacks ? LG_AT_BACKWARD : 0;
		if (at & (LG_AT_BACKWARD | LG_AT_OPTIMIZER)) {
			after = true;
		} else if (at & LG_AT_MODULE && after) {
			after = false;
			rc = add_point(w, &d->points, s->ts[row] - 1);
		}
	}
	return rc;
}

int lg_memory_find_points(struct lg_memory_work *w, struct lg_memory_device *d)
{
	int rc = by_annotations(w, d, true);

	if (!rc && d->points.n < MIN_POINTS)
		rc = by_annotations(w, d, false);
	if (!rc && d->points.n < MIN_POINTS)
		rc = by_passes(w, d);
	if (!rc && d->points.n < MIN_POINTS)
		d->points = (struct lg_memory_points){ 0 };
	return rc;
}
