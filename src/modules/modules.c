/* SPDX-License-Identifier: Apache-2.0 */
/* modules.c - what was gathered of modules to a tree with shares. */
#include "modules/modules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/case.h"

enum { CELLS_MIN = 4 };

struct lg_module_sum *lg_module_add(struct lg_module_sums *s, const char *path, uint32_t up)
{
	struct lg_module_sum *m;

	if (s->n == LG_MODULES_MAX || lg_grow(&s->v, &s->cap, s->n + 1, sizeof *s->v))
		return NULL;
	m = &s->v[s->n];
	*m = (struct lg_module_sum){ .path = path, .up = up,
				     .cell = lg_arena_alloc(s->arena, s->n_cells + 1, sizeof *m->cell) };
	if (!m->path || !m->cell)
		return NULL;
	s->n++;
	return m;
}

/* The mean step of the process, ms. */
static double mean_step(const struct lg_verdict *v, lg_prc prc)
{
	double sum = 0;
	size_t n = 0;

	LG_EACH(s, v->steps, v->n_steps) {
		if (s->prc != prc || s->warmup)
			continue;
		sum += (double)s->dur / 1e6;
		n++;
	}
	return n ? sum / (double)n : (double)NAN;
}

/* All that is below a module into it. Who calls comes before who is called. */
static void add_up(struct lg_module_sums *s, struct lg_module *v)
{
	for (size_t i = s->n; i-- > 0;) {
		const struct lg_module_sum *m = &s->v[i];

		v[i].forward += v[i].own_forward;
		v[i].backward += v[i].own_backward;
		v[i].device += v[i].own_device;
		if (!m->up)
			continue;
		v[m->up - 1].forward += v[i].forward;
		v[m->up - 1].backward += v[i].backward;
		v[m->up - 1].device += v[i].device;
		for (size_t c = 0; c < s->n_cells; c++)
			s->v[m->up - 1].cell[c] += m->cell[c];
	}
}

/* Of the mean. */
static double variance(const struct lg_module_sums *s, const struct lg_module_sum *m)
{
	double mean = 0, var = 0, n = (double)s->n_cells;

	if (s->n_cells < CELLS_MIN)
		return (double)NAN;
	for (size_t c = 0; c < s->n_cells; c++)
		mean += m->cell[c] / n;
	for (size_t c = 0; c < s->n_cells; c++)
		var += (m->cell[c] - mean) * (m->cell[c] - mean) / (n - 1) / n;
	return var;
}

static _Thread_local const struct lg_module *sorted_by; /* for qsort() */

static int longest_first(const void *a, const void *b)
{
	const struct lg_module *x = &sorted_by[*(const uint32_t *)a], *y = &sorted_by[*(const uint32_t *)b];
	double p = x->forward + x->backward, q = y->forward + y->backward;

	if (x->up != y->up)
		return x->up < y->up ? -1 : 1;
	if (x->device != y->device)
		return x->device < y->device ? 1 : -1;
	return p != q ? (p < q) - (p > q) : strcmp(x->path, y->path);
}

/* Rows in order of who calls them, then the tree is walked without recursion. */
static int order(struct lg_modules *r, const struct lg_module *v, size_t n)
{
	LG_AUTOFREE uint32_t *row = lg_calloc(n + 1, sizeof *row), *first = lg_calloc(n + 2, sizeof *first);
	LG_AUTOFREE uint32_t *stack = lg_calloc(n + 1, sizeof *stack),
			     *place = lg_calloc(n + 1, sizeof *place);
	size_t depth = 0;

	if (!row || !first || !stack || !place)
		return LG_E_NOMEM;
	for (uint32_t i = 0; i < n; i++)
		row[i] = i;
	sorted_by = v;
	qsort(row, n, sizeof *row, longest_first);
	for (size_t i = 0; i < n; i++)
		first[v[i].up + 1]++;
	for (size_t i = 1; i < n + 2; i++)
		first[i] += first[i - 1];
	for (uint32_t k = first[1]; k-- > first[0];)
		stack[depth++] = row[k];
	while (depth) {
		uint32_t i = stack[--depth];
		struct lg_module *m = &r->v[r->n];

		*m = v[i];
		place[i] = (uint32_t)++r->n;
		if (v[i].up) {
			m->up = place[v[i].up - 1];
			m->depth = r->v[m->up - 1].depth + 1;
		}
		for (uint32_t k = first[i + 2]; k-- > first[i + 1];)
			stack[depth++] = row[k];
	}
	return 0;
}

static int finish(struct lg_modules *r, struct lg_module_sums *s, const struct lg_verdict *v)
{
	LG_AUTOFREE struct lg_module *m = lg_calloc(s->n + 1, sizeof *m);
	double step = mean_step(v, s->prc);

	r->v = lg_arena_alloc(&r->arena, s->n + 1, sizeof *r->v);
	if (!m || !r->v)
		return LG_E_NOMEM;
	r->rank = s->rank;
	r->steps = s->steps;
	r->left_out = s->left_out;
	r->has_device = s->has_device;
	for (size_t i = 0; i < s->n; i++)
		m[i] = (struct lg_module){ .path = s->v[i].path,
					   .up = s->v[i].up,
					   .calls = s->v[i].calls / s->steps,
					   .own_forward = s->v[i].forward / s->steps,
					   .own_backward = s->v[i].backward / s->steps,
					   .own_device = s->v[i].device / s->steps,
					   .compiled = s->v[i].compiled };
	add_up(s, m);
	for (size_t i = 0; i < s->n; i++) {
		m[i].share = (s->has_device ? m[i].device : m[i].forward + m[i].backward) / step;
		m[i].var = variance(s, &s->v[i]);
	}
	return order(r, m, s->n);
}

int lg_modules_new(const struct lg_verdict *v, struct lg_modules **ret, struct lg_error *err)
{
	struct lg_modules *r = lg_calloc(1, sizeof *r);
	struct lg_module_sums s = { .t = v->trace, .rank = -1 };
	int rc = r ? 0 : LG_E_NOMEM;

	if (r) {
		s.arena = &r->arena;
		rc = lg_modules_of_marks(&s);
		if (!rc && !s.n)
			rc = lg_modules_of_spans(&s, v);
		if (!rc && s.n && s.steps > 0)
			rc = finish(r, &s, v);
	}
	lg_free(s.v);
	if (rc) {
		lg_modules_free(r);
		return lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	}
	*ret = r;
	return 0;
}

void lg_modules_free(struct lg_modules *m)
{
	if (!m)
		return;
	lg_arena_done(&m->arena);
	lg_free(m);
}
