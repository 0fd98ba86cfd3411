/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range_steps.c - steps told from ranges that the program names itself and that come back.
 *
 * Numbers in names do not matter ("batch 3", "execute_context_1(64)"), unless they begin again: layer_0 to
 * layer_3 over and over are parts of what comes back. What lies inside another range is a part, too: of a
 * forward pass, an epoch, a request. Ranges that hold little of the work, and those that other threads run
 * as well, are no steps of the process.
 */
#include <ctype.h>

#include "timeline/cost.h"

enum { NAMES_MAX = 64, STEPS_MIN = 3 };

bool lg_range_same_name(const char *a, const char *b)
{
	while (*a && *b)
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			while (isdigit((unsigned char)*a))
				a++;
			while (isdigit((unsigned char)*b))
				b++;
		} else if (*a++ != *b++) {
			return false;
		}
	return *a == *b;
}

bool lg_range_may_be_step(const struct lg_scene *sc, struct lg_gpu *g, uint32_t row)
{
	const struct lg_trace *t = sc->t;
	const char *name = lg_span_name(t, row);

	return (t->span.kind[row] == LG_SPAN_NOTE ||
		(t->span.kind[row] == LG_SPAN_STAGE && t->span.stage[row] == LG_STAGE_FORWARD)) &&
	       !lg_on_list(LG_LIST_NO_STEP, name) &&
	       lg_gpu_name(sc, g, t->span.name[row]) != LG_NAME_COMPILED_REGION;
}

bool lg_range_next(const struct lg_trace *t, struct lg_range_walk *w, uint32_t *ret)
{
	while (w->next < w->h->n_marks) {
		uint32_t row = w->h->mark[w->next++];
		int64_t ts = t->span.ts[row], end = lg_span_end(t, row);

		if (t->span.kind[row] != LG_SPAN_NOTE && t->span.kind[row] != LG_SPAN_STAGE)
			continue;
		if (ts < w->covered - LG_GPU_ROUNDING_NS || (ts < w->covered && end <= w->covered))
			continue;
		w->covered = end;
		*ret = row;
		return true;
	}
	return false;
}

/*
 * Among names that come often enough, the one with the most time tells how often: of those that come as
 * often, the first begins a step. NULL = none.
 */
static const char *recurring(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_host *h)
{
	struct { const char *name; size_t n; int64_t ns; } seen[NAMES_MAX];
	const struct lg_trace *t = sc->t;
	size_t n = 0, best = NAMES_MAX;
	struct lg_range_walk w = lg_range_walk(h);
	uint32_t row;

	while (lg_range_next(t, &w, &row)) {
		const char *name = lg_span_name(t, row);
		size_t k = 0;

		if (!lg_range_may_be_step(sc, g, row))
			continue;
		while (k < n && !lg_range_same_name(seen[k].name, name))
			k++;
		if (k == n && n == NAMES_MAX)
			continue;
		if (k == n)
			seen[n++] = (typeof(seen[0])){ .name = name };
		seen[k].n++;
		seen[k].ns += t->span.dur[row];
	}
	for (size_t k = 0; k < n; k++)
		if (seen[k].n >= STEPS_MIN && (best == NAMES_MAX || seen[k].ns > seen[best].ns))
			best = k;
	/* seen[] is in the order in which they came first. */
	for (size_t k = 0; best < NAMES_MAX && k < best; k++)
		if (seen[k].n == seen[best].n)
			return seen[k].name;
	return best == NAMES_MAX ? NULL : seen[best].name;
}

/* The rows of that name, outermost ranges of one host. */
struct rows {
	uint32_t *v;
	size_t n, cap;
};

static int rows_of(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_host *h, const char *name,
		   struct rows *ret)
{
	struct lg_range_walk w = lg_range_walk(h);
	uint32_t row;

	while (lg_range_next(sc->t, &w, &row)) {
		if (!lg_range_may_be_step(sc, g, row) ||
		    !lg_range_same_name(lg_span_name(sc->t, row), name))
			continue;
		if (LG_APPEND(ret->v, ret->n, ret->cap, row))
			return LG_E_NOMEM;
	}
	return 0;
}

/* Names that come over and over in one order, each with its own number: the first of them begins a step. */
static void keep_first_of_turns(const struct lg_trace *t, struct rows *a)
{
	size_t turn = 1, k = 0;

	while (turn < a->n && t->span.name[a->v[turn]] != t->span.name[a->v[0]])
		turn++;
	if (turn < 2 || a->n < STEPS_MIN * turn)
		return;
	for (size_t i = turn; i < a->n; i++)
		if (t->span.name[a->v[i]] != t->span.name[a->v[i - turn]])
			return;
	for (size_t i = 0; i < a->n; i += turn)
		a->v[k++] = a->v[i];
	a->n = k;
}

/* Do other threads run more such ranges than the main one? Then these are the requests of a pool. */
static bool of_a_pool(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r,
		      const struct lg_gpu_host *m, const char *name, size_t own)
{
	size_t others = 0;

	for (size_t h = 0; h < r->n_host && others <= own; h++) {
		struct lg_range_walk w = lg_range_walk(&r->host[h]);
		uint32_t row;

		if (&r->host[h] == m)
			continue;
		while (lg_range_next(sc->t, &w, &row))
			others += lg_range_may_be_step(sc, g, row) &&
				  lg_range_same_name(lg_span_name(sc->t, row), name);
	}
	return others > own;
}

/* Is half of the device's time, or of the window without a device, ordered in [from, to)? */
static bool holds_the_work(const struct lg_gpu_run *r, int64_t from, int64_t to)
{
	int64_t in = 0, all = 0;

	LG_EACH(w, r->work, r->n_work) {
		int64_t ts = lg_gpu_ordered_at(w);

		all += w->end - w->ts;
		in += ts >= from && ts < to ? w->end - w->ts : 0;
	}
	return r->n_work ? in * 2 >= all : (to - from) * 2 >= r->to - r->from;
}

/* The last step takes as long as its range or the longest of the others: what follows may be no step. */
int64_t lg_last_step_end(const int64_t *begin, size_t n, int64_t end, int64_t to)
{
	int64_t longest = 0;

	for (size_t i = 1; i < n; i++)
		longest = begin[i] - begin[i - 1] > longest ? begin[i] - begin[i - 1] : longest;
	end = LG_MAX(end, begin[n - 1] + longest);
	return end < to ? end : to;
}

int lg_range_steps(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r,
		   const struct lg_gpu_host *m, const char **ret_name, int64_t **ret, size_t *ret_n)
{
	const struct lg_trace *t = sc->t;
	const char *name = recurring(sc, g, m);
	struct rows a = { 0 };
	LG_AUTOFREE int64_t *b = NULL;
	size_t n = 0;
	int rc = name ? rows_of(sc, g, m, name, &a) : 0;

	*ret_n = 0;
	if (!rc && name && !of_a_pool(sc, g, r, m, name, a.n)) {
		keep_first_of_turns(t, &a);
		b = lg_calloc(a.n + 1, sizeof *b);
		rc = b ? 0 : LG_E_NOMEM;
	}
	for (size_t i = 0; b && i < a.n; i++)
		if (!n || t->span.ts[a.v[i]] > b[n - 1])
			b[n++] = t->span.ts[a.v[i]];
	if (n >= STEPS_MIN) {
		b[n] = lg_last_step_end(b, n, lg_span_end(t, a.v[a.n - 1]), r->to);
		if (b[n] > b[n - 1] && holds_the_work(r, b[0], b[n])) {
			*ret = b;
			*ret_n = n + 1;
			*ret_name = name;
			b = NULL;
		}
	}
	lg_free(a.v);
	return rc;
}
