/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - how many times the work of a step before is in a step after: told by the batch size, or read off
 * the shapes of the operators' inputs.
 *
 * A larger batch multiplies one dimension of every activation by the same ratio and leaves every parameter
 * as it is. So the operators' rows that only one run has belong together in pairs, of one name and as many
 * calls a step (or so many times as many: operators may work sample by sample), that differ by one ratio;
 * where nearly all do, that ratio is what the work grew by. Runs whose shapes change from step to step have
 * no such ratio, nor have two different models.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diff/diff.h"

enum { RATIOS_MAX = 32, ROWS_MAX = 64 };
#define DIMENSION_MAX UINT64_C(1000000000000000)
#define PAIRED 0.8    /* of the time in shapes that only one run has */
#define TOUCHED 0.25  /* of all time in operators of known shapes: parameters' own operators stay */

/* How one shape becomes the other. */
struct step_up {
	uint64_t from, to;  /* of the smallest dimension that changed */
	uint64_t first, elsewhere, flat, twice; /* tensors that changed: see end_of_tensor() */
	size_t n;           /* dimensions that changed */
};

struct ratio {
	uint64_t num, den;
	double ms;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* Digits at *p; 0 where the number is no dimension that could be a batch's. */
static uint64_t number(const char **p)
{
	uint64_t v = 0;

	while (isdigit((unsigned char)**p)) {
		v = v < DIMENSION_MAX ? v * 10 + (uint64_t)(**p - '0') : v;
		++*p;
	}
	return v < DIMENSION_MAX ? v : 0;
}

/*
 * Of one tensor: which dimensions changed. A matrix may be transposed, or have a sample's positions in the
 * same dimension as the samples: only what has more dimensions tells where the batch is. A model of another
 * width changes two dimensions of its weights, longer samples two of what relates positions to each other.
 */
static void end_of_tensor(struct step_up *u, size_t len, size_t n_changed, size_t first)
{
	if (n_changed > 1)
		u->twice++;
	else if (n_changed && len < 3)
		u->flat += first == 0;
	else if (n_changed)
		*(first ? &u->elsewhere : &u->first) += 1;
}

/* Are the two alike but for dimensions that grew by one ratio? */
static bool grown(const char *b, const char *a, struct ratio *ret, struct step_up *u)
{
	size_t len = 0, n_changed = 0, first = 0;

	*ret = (struct ratio){ 0 };
	*u = (struct step_up){ 0 };
	while (*b && *a) {
		if (isdigit((unsigned char)*b) && isdigit((unsigned char)*a)) {
			uint64_t x = number(&b), y = number(&a), g;

			if (x != y) {
				if (!x || !y)
					return false;
				g = gcd(x, y);
				if (ret->den && (ret->den != x / g || ret->num != y / g))
					return false;
				ret->num = y / g;
				ret->den = x / g;
				if (!u->from || x < u->from) {
					u->from = x;
					u->to = y;
				}
				first = n_changed++ ? first : len;
				u->n++;
			}
			len++;
			continue;
		}
		if (*b != *a)
			return false;
		if (*b == '[' || *b == ']') {
			end_of_tensor(u, len, n_changed, first);
			len = n_changed = first = 0;
		}
		b++;
		a++;
	}
	return !*b && !*a && ret->den;
}

/* An operator's row whose shape is known to its end (side_items.c cuts long ones). */
static bool shaped(const struct lg_change *x)
{
	int depth = 0;
	bool digits = false;

	if (strcmp(x->kind, "op"))
		return false;
	for (const char *p = x->shape; *p; p++) {
		depth += (*p == '[') - (*p == ']');
		digits |= isdigit((unsigned char)*p) != 0;
	}
	return digits && !depth;
}

struct rows {
	const struct lg_change *v[2][ROWS_MAX]; /* of one name: that only the run before, after has */
	size_t n[2];
};

/* One row before and one after that may be one operator with more or less work. */
static bool partners(const struct lg_change *b, const struct lg_change *a, struct ratio *ret,
		     struct step_up *u)
{
	double more = a->count_after / b->count_before, times;

	if (!grown(b->shape, a->shape, ret, u))
		return false;
	times = (double)ret->num / (double)ret->den;
	return fabs(more - 1) <= 0.02 || fabs(more - times) <= 0.02 * times;
}

static void vote(const struct rows *r, struct ratio *v, size_t *n)
{
	for (size_t i = 0; i < r->n[0]; i++)
		for (size_t k = 0; k < r->n[1]; k++) {
			struct ratio one;
			struct step_up u;
			size_t j = 0;

			if (!partners(r->v[0][i], r->v[1][k], &one, &u))
				continue;
			while (j < *n && (v[j].num != one.num || v[j].den != one.den))
				j++;
			if (j == *n && *n < RATIOS_MAX)
				v[(*n)++] = one;
			if (j < *n)
				v[j].ms += r->v[0][i]->before;
		}
}

/* The partner at this ratio in which the least changed. */
static bool best_partner(const struct rows *r, size_t i, const struct ratio *at, struct step_up *ret)
{
	struct ratio one;
	struct step_up u;

	ret->n = SIZE_MAX;
	for (size_t k = 0; k < r->n[1]; k++)
		if (partners(r->v[0][i], r->v[1][k], &one, &u) && one.num == at->num && one.den == at->den &&
		    u.n < ret->n)
			*ret = u;
	return ret->n < SIZE_MAX;
}

/* Time before of rows that have a partner at this ratio. */
static double paired(const struct rows *r, const struct ratio *at, struct step_up *sum)
{
	double ms = 0;

	for (size_t i = 0; i < r->n[0]; i++) {
		struct step_up u;

		if (!best_partner(r, i, at, &u))
			continue;
		ms += r->v[0][i]->before;
		sum->first += u.first;
		sum->elsewhere += u.elsewhere;
		sum->flat += u.flat;
		sum->twice += u.twice;
		if (!sum->from || u.from < sum->from) {
			sum->from = u.from;
			sum->to = u.to;
		}
	}
	return ms;
}

static int cmp_name(const void *a, const void *b)
{
	const struct lg_change *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* The rows of v[*at]'s name that one run lacks; *at moves behind them. */
static void next_rows(const struct lg_change **v, size_t n, size_t *at, struct rows *r)
{
	const char *name = v[*at]->name;

	r->n[0] = r->n[1] = 0;
	for (; *at < n && !strcmp(v[*at]->name, name); ++*at) {
		bool gone = v[*at]->count_before > 0 && !(v[*at]->count_after > 0);
		bool came = v[*at]->count_after > 0 && !(v[*at]->count_before > 0);

		if ((gone || came) && r->n[came] < ROWS_MAX)
			r->v[came][r->n[came]++] = v[*at];
	}
}

int lg_diff_work_of_shapes(struct lg_diff *d, struct lg_work *ret)
{
	const struct lg_change **v = lg_arena_alloc(&d->v.arena, d->n_items + 1, sizeof *v);
	struct ratio votes[RATIOS_MAX];
	const struct ratio *best = NULL;
	double ms = 0, only = 0, pairs = 0;
	size_t n = 0, n_votes = 0;
	struct step_up sum = { 0 };
	struct rows r;

	*ret = (struct lg_work){ .times = (double)NAN };
	if (!v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < d->n_items; i++)
		if (shaped(&d->items[i])) {
			const struct lg_change *x = v[n++] = &d->items[i];

			ms += x->before;
			only += x->count_after > 0 ? 0 : x->before;
		}
	if (!n || only < TOUCHED * ms)
		return 0;
	qsort(v, n, sizeof *v, cmp_name);
	for (size_t i = 0; i < n;) {
		next_rows(v, n, &i, &r);
		vote(&r, votes, &n_votes);
	}
	for (size_t i = 0; i < n_votes; i++)
		best = !best || votes[i].ms > best->ms ? &votes[i] : best;
	for (size_t i = 0; best && i < n;) {
		next_rows(v, n, &i, &r);
		pairs += paired(&r, best, &sum);
	}
	if (!best || pairs < PAIRED * only || pairs < TOUCHED * ms)
		return 0;
	ret->times = (double)best->num / (double)best->den;
	ret->from = sum.from;
	ret->to = sum.to;
	/* Some code has the batch in another dimension, for a while: most tensors tell. */
	ret->batch = !sum.twice && (sum.first + sum.elsewhere ? sum.first > sum.elsewhere : sum.flat > 0);
	return 0;
}
