/* SPDX-License-Identifier: Apache-2.0 */
/*
 * determinism.c - where two runs part: step by step, rank by rank, and within a step in the order in
 * which things came to be.
 *
 * A generator in another state is a cause only where numbers are drawn from it: Python's and NumPy's
 * differ in any two runs of a program that does not seed them, and most never use them. So one is told
 * that differs at two looks in a row and moved in between, the first time that it does so, if what
 * differs lies behind the first of the looks.
 */
#include "diff/determinism.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/grade.h"
#include "base/alloc.h"
#include "base/each.h"
#include "base/order.h"
#include "rules/says.h"

enum { GENERATORS_MAX = 64 };

/* Where two lists of fingerprints part. */
struct parting {
	int64_t step;  /* INT64_MAX = nowhere */
	uint8_t order; /* of what differs, within the step */
	size_t a, b;   /* the two; one may be SIZE_MAX: the other run has none */
	const struct lg_prints *pa, *pb;
};

/* What depends on what, across ranks, of which each has its own list. */
static uint8_t order_of(const struct lg_print *v, bool after_loss)
{
	switch (v->kind) {
	case LG_PRINT_INPUT:
		return 0;
	case LG_PRINT_LOSS:
		return 2;
	case LG_PRINT_GRAD:
		return 3;
	default:
		return after_loss ? 4 : 1;
	}
}

static bool is_data(const struct lg_print *v)
{
	return v->kind != LG_PRINT_RNG && v->kind != LG_PRINT_OP;
}

/* The next that is data, from i to end. */
static size_t data(const struct lg_prints *p, size_t i, size_t end)
{
	while (i < end && !is_data(&p->v[i]))
		i++;
	return i;
}

static bool same_tensor(const struct lg_prints *pa, size_t a, const struct lg_prints *pb, size_t b)
{
	return pa->v[a].kind == pb->v[b].kind &&
	       !strcmp(lg_string(pa->t, pa->v[a].name), lg_string(pb->t, pb->v[b].name));
}

static bool comes(const struct lg_prints *pa, size_t a, const struct lg_prints *pb, size_t b, size_t end_b)
{
	for (; b < end_b; b++)
		if (same_tensor(pa, a, pb, b))
			return true;
	return false;
}

/* One step of one rank; true: it parts here. */
static bool step_parts(const struct lg_prints *pa, size_t a, size_t end_a, const struct lg_prints *pb,
		       size_t b, size_t end_b, struct parting *ret)
{
	bool after_loss = false;

	for (;; a++, b++) {
		a = data(pa, a, end_a);
		b = data(pb, b, end_b);
		if (a == end_a && b == end_b)
			return false;
		if (a < end_a && b < end_b && same_tensor(pa, a, pb, b)) {
			if (pa->v[a].value == pb->v[b].value) {
				after_loss |= pa->v[a].kind == LG_PRINT_LOSS;
				continue;
			}
		} else if (a == end_a || (b < end_b && comes(pa, a, pb, b, end_b))) {
			a = SIZE_MAX; /* only the second run has it */
		} else {
			b = SIZE_MAX;
		}
		*ret = (struct parting){ .a = a, .b = b, .pa = pa, .pb = pb };
		ret->order = order_of(a != SIZE_MAX ? &pa->v[a] : &pb->v[b], after_loss);
		ret->step = a != SIZE_MAX ? pa->v[a].step : pb->v[b].step;
		return true;
	}
}

/* Two processes: the first step that parts. A step that one run alone has is not compared: it may
 * have been cut. */
static void run_parts(const struct lg_prints *pa, const struct lg_prints *pb, struct parting *ret,
		      size_t *ret_steps, int64_t *ret_equal)
{
	size_t a = 0, b = 0;

	ret->step = INT64_MAX;
	while (a < pa->n && b < pb->n) {
		size_t end_a = lg_print_step_end(pa, a), end_b = lg_print_step_end(pb, b);

		if (pa->v[a].step < pb->v[b].step) {
			a = end_a;
			continue;
		}
		if (pb->v[b].step < pa->v[a].step) {
			b = end_b;
			continue;
		}
		*ret_steps += data(pa, a, end_a) < end_a; /* at exit there are looks at generators alone */
		if (step_parts(pa, a, end_a, pb, b, end_b, ret))
			return;
		*ret_equal = pa->v[a].step;
		a = end_a;
		b = end_b;
	}
}

/* ---- generators ---- */

/* The next look at a generator of that name from i on; p->n = none. */
static size_t look_from(const struct lg_prints *p, size_t i, const char *name)
{
	while (i < p->n && (p->v[i].kind != LG_PRINT_RNG || strcmp(lg_string(p->t, p->v[i].name), name)))
		i++;
	return i;
}

/* Was this generator in another state when it was drawn from, for the first time about where the
 * runs part? */
static bool drawn_otherwise(const struct parting *w, const char *name)
{
	const struct lg_prints *pa = w->pa, *pb = w->pb;
	size_t at = w->a != SIZE_MAX ? w->a : w->b;
	const struct lg_prints *of = w->a != SIZE_MAX ? pa : pb;
	size_t a = look_from(pa, 0, name), b = look_from(pb, 0, name);

	while (a < pa->n && b < pb->n) {
		size_t next_a = look_from(pa, a + 1, name), next_b = look_from(pb, b + 1, name);
		size_t here = of == pa ? a : b;

		if (here > at || next_a >= pa->n || next_b >= pb->n)
			return false;
		if (pa->v[a].value != pb->v[b].value && pa->v[next_a].value != pb->v[next_b].value &&
		    (pa->v[a].value != pa->v[next_a].value || pb->v[b].value != pb->v[next_b].value))
			return of->v[of == pa ? next_a : next_b].step >= w->step;
		a = next_a;
		b = next_b;
	}
	return false;
}

/* Names of generators, each once; returns how many. */
static size_t generators(const struct lg_prints *p, lg_str *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n && n < GENERATORS_MAX; i++) {
		bool known = p->v[i].kind != LG_PRINT_RNG;

		for (size_t k = 0; k < n && !known; k++)
			known = ret[k] == p->v[i].name;
		if (!known)
			ret[n++] = p->v[i].name;
	}
	return n;
}

static const char *guilty_generator(const struct parting *w)
{
	lg_str names[GENERATORS_MAX];
	size_t n = generators(w->pa, names);

	for (size_t i = 0; i < n; i++)
		if (drawn_otherwise(w, lg_string(w->pa->t, names[i])))
			return lg_string(w->pa->t, names[i]);
	return NULL;
}

static bool never_equal(const struct lg_prints *pa, size_t a, const struct lg_prints *pb, size_t b,
			const char *name)
{
	while (a < pa->n && b < pb->n) {
		if (pa->v[a].value == pb->v[b].value)
			return false;
		a = look_from(pa, a + 1, name);
		b = look_from(pb, b + 1, name);
	}
	return true;
}

/* Generators that differ, of which nothing came. */
static void note_idle_generators(const struct lg_prints *pa, const struct lg_prints *pb, struct lg_arena *a,
				 struct lg_det *ret)
{
	lg_str of[GENERATORS_MAX];
	size_t n = generators(pa, of);
	const char *names = NULL;

	for (size_t i = 0; i < n; i++) {
		const char *name = lg_string(pa->t, of[i]);
		size_t b = look_from(pb, 0, name);

		if (b < pb->n && never_equal(pa, look_from(pa, 0, name), pb, b, name))
			names = names ? lg_arena_printf(a, "%s, %s", names, name) : name;
	}
	if (!names)
		return;
	ret->notes = lg_arena_room(a, ret->notes, ret->n_notes, sizeof *ret->notes);
	if (ret->notes)
		ret->notes[ret->n_notes++] = lg_arena_printf(
			a,
			"generators in other states (%s; they are not seeded): nothing that "
			"was compared depends on them",
			names);
}

/* ---- both together ---- */

static double number_of(const struct lg_prints *p, size_t i)
{
	double v;

	if (i == SIZE_MAX || p->v[i].kind != LG_PRINT_LOSS || !p->v[i].number)
		return (double)NAN;
	memcpy(&v, &p->v[i].value, sizeof v);
	return v;
}

static void tell_first(const struct parting *w, struct lg_det *ret)
{
	const struct lg_prints *of = w->a != SIZE_MAX ? w->pa : w->pb;
	const struct lg_print *v = &of->v[w->a != SIZE_MAX ? w->a : w->b];
	const char *generator = guilty_generator(w);

	ret->first.step = w->step;
	ret->first.kind = lg_print_kind_text(v->kind);
	ret->first.tensor = lg_string(of->t, v->name);
	ret->first.outside = v->kind == LG_PRINT_OUTSIDE;
	ret->first.before = number_of(w->pa, w->a);
	ret->first.after = number_of(w->pb, w->b);
	if (generator) {
		ret->first.then_kind = ret->first.kind;
		ret->first.then_tensor = ret->first.tensor;
		ret->first.kind = "rng";
		ret->first.tensor = generator;
	}
}

/* The process of the other run that is pa[i]: of its rank, or the same in order where there are no
 * ranks. */
static const struct lg_prints *partner(const struct lg_prints *pa, size_t i, const struct lg_prints *pb,
				       size_t n_b)
{
	for (size_t k = 0; k < n_b; k++)
		if (pa[i].rank >= 0 ? pb[k].rank == pa[i].rank : pb[k].rank < 0 && k == i)
			return &pb[k];
	return NULL;
}

/* One rank alone whose same tensor parts in that step is named; where all do, none is. */
static int32_t rank_of(const struct parting *v, size_t n, const struct parting *first)
{
	size_t same = 0;

	LG_EACH(w, v, n)
		same += w->step == first->step && w->order == first->order;
	return same == 1 && n > 1 ? first->pa->rank : -1;
}

static int ranks_within(const struct lg_prints *p, size_t n, struct lg_arena *a, struct lg_det *ret)
{
	struct lg_ranks_part part;
	int rc = lg_ranks_part(p, n, a, &part);

	if (rc || !part.found ||
	    (ret->first.step >= 0 && (ret->first.step < part.step ||
				      (ret->first.step == part.step && strcmp(ret->first.kind, "param")))))
		return rc;
	/* Of two ranks that differ, the one is it that is another in another run. */
	if (part.rank < 0 && ret->first.step == part.step &&
	    !strcmp(ret->first.tensor, lg_string(p[0].t, part.tensor)))
		part.rank = ret->first.rank;
	ret->first.step = part.step;
	ret->first.equal_at = part.equal_at;
	ret->first.kind = "param";
	ret->first.tensor = lg_string(p[0].t, part.tensor);
	ret->first.rank = part.rank;
	ret->first.outside = part.outside;
	ret->first.between_ranks = true;
	ret->equal = false;
	return 0;
}

static int compare_prints(const struct lg_prints *pa, size_t n_a, const struct lg_prints *pb, size_t n_b,
			  struct lg_arena *a, struct lg_det *ret)
{
	struct parting *v = lg_arena_alloc(a, n_a + 1, sizeof *v), *first = NULL;
	size_t n = 0;
	int rc = 0;

	if (!v)
		return LG_E_NOMEM;
	ret->basis = LG_DET_PRINTS;
	ret->every = LG_MAX(pa[0].every, pb[0].every);
	for (size_t i = 0; i < n_a; i++) {
		const struct lg_prints *other = partner(pa, i, pb, n_b);
		size_t steps = 0;
		int64_t equal = -1;

		if (!other)
			continue;
		run_parts(&pa[i], other, &v[n], &steps, &equal);
		ret->steps_compared = LG_MAX(ret->steps_compared, steps);
		if (v[n].step != INT64_MAX && (!first || v[n].step < first->step ||
					       (v[n].step == first->step && v[n].order < first->order))) {
			first = &v[n];
			ret->first.equal_at = equal;
		}
		n++;
	}
	ret->equal = ret->steps_compared && !first;
	if (first) {
		tell_first(first, ret);
		ret->first.rank = rank_of(v, n, first);
	}
	rc = ranks_within(pa, n_a, a, ret);
	rc = rc ? rc : lg_det_facts(&pa[0], &pb[0], a, ret);
	if (!rc && ret->equal)
		note_idle_generators(&pa[0], &pb[0], a, ret);
	return rc;
}

int lg_det_compare(const struct lg_trace *before, const struct lg_trace *after, struct lg_arena *a,
		   struct lg_det *ret)
{
	struct lg_prints *pa, *pb;
	size_t n_a, n_b;
	int rc;

	*ret = (struct lg_det){
		.first = { .step = -1, .equal_at = -1, .rank = -1, .before = NAN, .after = NAN }
	};
	rc = lg_prints_of(before, a, &pa, &n_a);
	rc = rc ? rc : lg_prints_of(after, a, &pb, &n_b);
	if (rc)
		return rc;
	if (n_a && n_b)
		return compare_prints(pa, n_a, pb, n_b, a, ret);
	return lg_det_logs(before, after, a, ret);
}
