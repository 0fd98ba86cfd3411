/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_modules.c - modules of the model among what two runs are compared by.
 *
 * By path, each with what it calls, on the device if there is one: compiled, a module is one; eager, it is
 * the sum of its parts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "modules/modules.h"
#include "diff/side.h"

static int by_name(const void *a, const void *b)
{
	const struct lg_item *x = a, *y = b;
	int c = x->kind - y->kind;

	c = c ? c : strcmp(x->name, y->name);
	return c ? c : strcmp(x->shape, y->shape);
}

static int join(struct lg_side *s, const struct lg_modules *m, double steps)
{
	struct lg_item *v = lg_arena_alloc(&s->arena, s->n_items + m->n + 1, sizeof *v);

	if (!v)
		return LG_E_NOMEM;
	if (s->n_items)
		memcpy(v, s->items, s->n_items * sizeof *v);
	for (size_t i = 0; i < m->n; i++) {
		const struct lg_module *x = &m->v[i];
		double ms = m->has_device ? x->device : x->forward + x->backward;
		double var = isnan(x->var) ? ms * ms
					   : x->var; /* of the mean: nothing is sure of what was told once */

		v[s->n_items++] = (struct lg_item){ .kind = LG_ITEM_MODULE,
						    .name = lg_arena_strdup(&s->arena, x->path),
						    .shape = "", .ms = ms, .var = var * steps, .count = x->calls,
						    .compiled = x->compiled == LG_MODULE_COMPILED };
	}
	s->items = v;
	qsort(s->items, s->n_items, sizeof *s->items, by_name);
	return 0;
}

int lg_side_modules(struct lg_side *s, const struct lg_verdict *v, const struct lg_side_window *w)
{
	struct lg_modules *m;
	struct lg_error err;
	int rc = lg_modules_new(v, &m, &err);

	if (rc)
		return rc;
	rc = m->n && w->n ? join(s, m, (double)w->n) : 0;
	lg_modules_free(m);
	return rc;
}
