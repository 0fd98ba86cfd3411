/* SPDX-License-Identifier: Apache-2.0 */
/*
 * growth.c - what grows from step to step. What each stack holds is read at the points between steps,
 * of which the first ones are left out (the optimizer's state and caches come then); a line through
 * these is its slope.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "memory/parts.h"
#include "rules/rules.h"

enum { POINTS_MAX = 256 };
#define WARM_UP 0.2 /* of the points */

struct series {
	const int64_t *ts;
	size_t n, every, first; /* every: steps from one that is read to the next */
	uint32_t *slot;		/* by stack, + 1; 0 = nothing of it lives at the end */
	lg_stk *stack;		/* by slot */
	size_t n_slots;
	double *v;   /* by slot, then point */
	double *all; /* of everything */
};

/* How many of the points that are read lie before ts. */
static size_t before(const struct series *s, int64_t ts)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->ts[s->first + mid * s->every] < ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Only what lives at the last point can have grown to it. */
static void find_slots(struct lg_memory_work *w, const struct lg_memory_device *d, struct series *s)
{
	const struct lg_span_tab *t = &w->t->span;
	int64_t last = s->ts[s->first + (s->n - 1) * s->every];

	for (size_t i = 0; i < d->n_rows; i++) {
		uint32_t row = d->rows[i];

		if (lg_memory_row(w, row) != LG_MEM_ALLOC || t->args[row] || s->slot[t->stack[row]] ||
		    !lg_lives_at(t, row, last))
			continue;
		s->stack[s->n_slots] = t->stack[row];
		s->slot[t->stack[row]] = (uint32_t)++s->n_slots;
	}
}

static void add_lives(struct lg_memory_work *w, const struct lg_memory_device *d, struct series *s)
{
	const struct lg_span_tab *t = &w->t->span;

	for (size_t i = 0; i < d->n_rows; i++) {
		uint32_t row = d->rows[i], slot = s->slot[t->stack[row]];
		size_t from, to;

		if (lg_memory_row(w, row) != LG_MEM_ALLOC)
			continue;
		from = before(s, t->ts[row]);
		to = t->dur[row] < 0 ? s->n : before(s, t->ts[row] + t->dur[row]);
		for (int in_slot = 0; in_slot < 2; in_slot++) {
			double *v = in_slot ? s->v + (slot - 1) * s->n : s->all;

			if (from >= to || (in_slot && (!slot || t->args[row])))
				continue;
			v[from] += (double)t->bytes[row];
			if (to < s->n)
				v[to] -= (double)t->bytes[row];
		}
	}
	for (size_t k = 0; k <= s->n_slots; k++) {
		double *v = k ? s->v + (k - 1) * s->n : s->all;

		for (size_t i = 1; i < s->n; i++)
			v[i] += v[i - 1];
	}
}

/* Slope for each point, and how much of the changes the line explains. */
static double slope_of(const double *v, size_t n, double *ret_r2)
{
	double mx = (double)(n - 1) / 2, my = 0, xx = 0, xy = 0, yy = 0;

	for (size_t i = 0; i < n; i++)
		my += v[i] / (double)n;
	for (size_t i = 0; i < n; i++) {
		double x = (double)i - mx, y = v[i] - my;

		xx += x * x;
		xy += x * y;
		yy += y * y;
	}
	*ret_r2 = yy > 0 ? xy * xy / (xx * yy) : 0;
	return xx > 0 ? xy / xx : 0;
}

static int faster(const void *a, const void *b)
{
	const struct lg_memory_growing *x = a, *y = b;

	if (x->per_step != y->per_step)
		return x->per_step < y->per_step ? 1 : -1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int conclude(struct lg_memory_work *w, struct lg_memory_device *d, const struct series *s)
{
	struct lg_memory_leak *k = &d->leak;
	double r2;

	k->steps = (s->n - 1) * s->every;
	k->allocated_per_step = slope_of(s->all, s->n, &r2) / (double)s->every;
	k->v = lg_arena_alloc(w->a, s->n_slots + 1, sizeof *k->v);
	if (!k->v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < s->n_slots; i++) {
		const double *v = s->v + i * s->n;
		double slope = slope_of(v, s->n, &r2) / (double)s->every;

		if (slope <= 0 || r2 < LG_N_MEM_LEAK_FIT)
			continue;
		k->v[k->n++] = (struct lg_memory_growing){ .stack = s->stack[i],
							   .per_step = slope,
							   .r2 = r2,
							   .bytes = (uint64_t)v[s->n - 1] };
		k->per_step += slope;
		if (w->at[s->stack[i]] & LG_AT_MODULE && !(w->at[s->stack[i]] & LG_AT_OPTIMIZER))
			k->graph_per_step += slope;
	}
	if (k->n > 1)
		qsort(k->v, k->n, sizeof *k->v, faster);
	return 0;
}

int lg_memory_find_leak(struct lg_memory_work *w, struct lg_memory_device *d)
{
	struct series s = { .ts = d->points.ts, .first = (size_t)(WARM_UP * (double)d->points.n) };
	size_t points = d->points.n - s.first;
	int rc = 0;

	d->leak = (struct lg_memory_leak){ 0 };
	if (points < LG_N_MEM_LEAK_STEPS + 1)
		return 0;
	s.every = (points + POINTS_MAX - 1) / POINTS_MAX;
	s.n = (points - 1) / s.every + 1;
	s.slot = lg_calloc(w->t->stack.n + 1, sizeof *s.slot);
	s.stack = lg_calloc(w->t->stack.n + 1, sizeof *s.stack);
	if (s.slot && s.stack)
		find_slots(w, d, &s);
	s.v = lg_calloc(s.n_slots * s.n + 1, sizeof *s.v);
	s.all = lg_calloc(s.n + 1, sizeof *s.all);
	if (s.slot && s.stack && s.v && s.all) {
		add_lives(w, d, &s);
		rc = conclude(w, d, &s);
	} else {
		rc = LG_E_NOMEM;
	}
	lg_free(s.slot);
	lg_free(s.stack);
	lg_free(s.v);
	lg_free(s.all);
	return rc;
}
