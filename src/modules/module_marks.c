/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_marks.c - the hook's sums by module.
 *
 * It tells sums since the program began, those that changed, behind a mark "module.steps" each time. What
 * counts is the difference of the last and the first time; a sum that was not told then was 0, unless the
 * beginning is not in the trace (a ring).
 */
#include <stdlib.h>

#include "analyse/case.h"
#include "modules/modules.h"
#include "base/map.h"

enum { WARM = 5 }; /* steps before the hook tells for the first time */
enum { FORWARD, BACKWARD, CALLS, N_SUMS };

struct told {
	int64_t first[N_SUMS], last[N_SUMS];
	int64_t at[N_SUMS]; /* value when the cell began */
	bool seen[N_SUMS];
	lg_str path;
	uint8_t compiled;
};

struct marks {
	struct lg_module_sums *s;
	struct told *v;
	size_t n, cap;
	struct lg_map of; /* path -> index + 1 */
	size_t times;     /* that sums were told */
	int64_t first_steps, last_steps;
};

/* Whatever a ring says. */
static int64_t value_of(const struct lg_trace *t, size_t row)
{
	return LG_MAX(t->mark.value[row], 0);
}

static bool is(const struct lg_trace *t, size_t row, const char *name)
{
	return !strcmp(lg_string(t, t->mark.name[row]), name);
}

/* The lowest rank that tells. */
static lg_prc whose(const struct lg_trace *t, int32_t *ret_rank)
{
	lg_prc prc = 0;

	*ret_rank = -1;
	LG_EACH_MARK(i, t, "module.steps") {
		int32_t rank = lg_rank_of_mark(t, i);

		if (!prc || (rank >= 0 && rank < *ret_rank)) {
			prc = t->thread.prc[t->mark.thr[i]];
			*ret_rank = rank;
		}
	}
	return prc;
}

static struct told *told_of(struct marks *k, lg_str path)
{
	uint32_t at = lg_map_get(&k->of, path);

	if (at)
		return &k->v[at - 1];
	if (!path || k->n == LG_MODULES_MAX || lg_grow(&k->v, &k->cap, k->n + 1, sizeof *k->v) ||
	    lg_map_set(&k->of, path, (uint32_t)k->n + 1))
		return NULL;
	k->v[k->n] = (struct told){ .path = path };
	return &k->v[k->n++];
}

static void take(struct marks *k, size_t row)
{
	static const char *const names[N_SUMS] = { "module.forward", "module.backward", "module.calls" };
	const struct lg_trace *t = k->s->t;
	struct told *m = k->times ? told_of(k, t->mark.text[row]) : NULL;
	int64_t value = value_of(t, row);

	if (!m)
		return;
	if (is(t, row, "module.compiled"))
		m->compiled = value <= LG_MODULE_PARTS ? (uint8_t)value : (uint8_t)LG_MODULE_EAGER;
	for (int i = 0; i < N_SUMS; i++) {
		if (!is(t, row, names[i]))
			continue;
		if (!m->seen[i] && (k->times == 1 || k->first_steps > WARM))
			m->first[i] = value;
		m->seen[i] = true;
		m->last[i] = LG_MAX(m->last[i], value);
	}
}

static void each_mark(struct marks *k, void (*f)(struct marks *k, size_t row))
{
	const struct lg_trace *t = k->s->t;

	k->times = 0;
	for (size_t i = 0; i < t->mark.n; i++) {
		if (t->thread.prc[t->mark.thr[i]] != k->s->prc || strncmp(lg_string(t, t->mark.name[i]), "module.", 7))
			continue;
		if (is(t, i, "module.left_out")) {
			k->s->left_out = (size_t)value_of(t, i);
		} else if (is(t, i, "module.steps")) {
			k->first_steps = k->times++ ? k->first_steps : value_of(t, i);
			k->last_steps = value_of(t, i);
		}
		f(k, i);
	}
}

static _Thread_local const struct lg_trace *of_trace; /* for qsort() */

/* A dot before all else, so that what a module is made of follows it. */
static int by_path(const void *a, const void *b)
{
	const char *p = lg_string(of_trace, ((const struct told *)a)->path);
	const char *q = lg_string(of_trace, ((const struct told *)b)->path);

	while (*p && *p == *q)
		p++, q++;
	return (*p == '.' ? 1 : (unsigned char)*p) - (*q == '.' ? 1 : (unsigned char)*q);
}

static bool within(const char *path, const char *up)
{
	size_t n = strlen(up);

	return !strncmp(path, up, n) && path[n] == '.';
}

static int build(struct marks *k)
{
	struct lg_module_sums *s = k->s;
	uint32_t up = 0;

	of_trace = s->t;
	qsort(k->v, k->n, sizeof *k->v, by_path);
	lg_map_done(&k->of);
	k->of = (struct lg_map){ 0 };
	for (size_t i = 0; i < k->n; i++) {
		const char *path = lg_string(s->t, k->v[i].path);
		struct lg_module_sum *m;

		while (up && !within(path, s->v[up - 1].path))
			up = s->v[up - 1].up;
		m = lg_module_add(s, path, up);
		if (!m || lg_map_set(&k->of, k->v[i].path, (uint32_t)i + 1))
			return LG_E_NOMEM;
		m->forward = (double)(k->v[i].last[FORWARD] - k->v[i].first[FORWARD]) / 1e6;
		m->backward = (double)(k->v[i].last[BACKWARD] - k->v[i].first[BACKWARD]) / 1e6;
		m->calls = (double)(k->v[i].last[CALLS] - k->v[i].first[CALLS]);
		m->compiled = k->v[i].compiled;
		for (int j = 0; j < N_SUMS; j++)
			k->v[i].at[j] = k->v[i].first[j];
		up = (uint32_t)s->n;
	}
	return 0;
}

/* Own ms a step between two times that it was told. */
static void into_cell(struct marks *k, size_t row)
{
	const struct lg_trace *t = k->s->t;
	uint32_t at = k->times > 1 ? lg_map_get(&k->of, t->mark.text[row]) : 0;
	bool forward = is(t, row, "module.forward");
	struct told *m = at ? &k->v[at - 1] : NULL;
	size_t cell = k->times - 2;

	if (!m || cell >= k->s->n_cells || (!forward && !is(t, row, "module.backward")))
		return;
	k->s->v[at - 1].cell[cell] +=
		(double)(value_of(t, row) - m->at[forward ? FORWARD : BACKWARD]) / 1e6;
	m->at[forward ? FORWARD : BACKWARD] = value_of(t, row);
}

/* A cell's sum to the mean of the steps that passed. */
static void means(struct marks *k)
{
	const struct lg_trace *t = k->s->t;
	int64_t before = 0;
	size_t times = 0;

	for (size_t i = 0; i < t->mark.n; i++) {
		if (t->thread.prc[t->mark.thr[i]] != k->s->prc || !is(t, i, "module.steps"))
			continue;
		if (times && times - 1 < k->s->n_cells)
			for (size_t m = 0; m < k->s->n; m++)
				k->s->v[m].cell[times - 1] /= (double)LG_MAX(value_of(t, i) - before, 1);
		before = value_of(t, i);
		times++;
	}
}

int lg_modules_of_marks(struct lg_module_sums *s)
{
	struct marks k = { .s = s };
	int rc = 0;

	s->prc = whose(s->t, &s->rank);
	if (!s->prc)
		return 0;
	each_mark(&k, take);
	s->n_cells = k.times > 1 ? LG_MIN(k.times - 1, (size_t)LG_MODULE_CELLS) : 0;
	s->steps = (double)(k.last_steps - k.first_steps);
	if (s->steps > 0)
		rc = build(&k);
	if (!rc && s->n) {
		each_mark(&k, into_cell);
		means(&k);
	}
	lg_map_done(&k.of);
	lg_free(k.v);
	return rc;
}
