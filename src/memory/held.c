/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - what is held at a moment, by stack and by kind. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"
#include "memory/parts.h"

int lg_by_stack_new(const struct lg_memory_work *w, struct lg_by_stack *ret)
{
	ret->n = w->t->stack.n;
	ret->v = lg_calloc(ret->n + 1, sizeof *ret->v);
	return ret->v ? 0 : LG_E_NOMEM;
}

void lg_by_stack_add(struct lg_by_stack *b, lg_stk stack, uint64_t bytes)
{
	b->v[stack].stack = stack;
	b->v[stack].bytes += bytes;
	b->v[stack].count++;
}

static int larger(const void *a, const void *b)
{
	const struct lg_memory_stack *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

int lg_by_stack_end(const struct lg_memory_work *w, struct lg_by_stack *b, struct lg_memory_stack **ret,
		    size_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n; i++)
		if (b->v[i].count)
			b->v[n++] = b->v[i];
	if (n > 1)
		qsort(b->v, n, sizeof *b->v, larger);
	*ret = lg_arena_alloc(w->a, n + 1, sizeof **ret);
	for (size_t i = 0; *ret && i < n; i++)
		(*ret)[i] = b->v[i];
	*ret_n = n;
	lg_free(b->v);
	b->v = NULL;
	return *ret ? 0 : LG_E_NOMEM;
}

int lg_memory_held_at(struct lg_memory_work *w, const struct lg_memory_device *d, int64_t ts,
		      struct lg_memory_held *ret)
{
	const struct lg_span_tab *s = &w->t->span;
	struct lg_by_stack by;

	*ret = (struct lg_memory_held){ .ts = ts };
	if (lg_by_stack_new(w, &by))
		return LG_E_NOMEM;
	for (size_t i = 0; i < d->n_rows && s->ts[d->rows[i]] <= ts; i++) {
		uint32_t row = d->rows[i];

		if (lg_memory_row(w, row) != LG_MEM_ALLOC || !lg_lives_at(s, row, ts))
			continue;
		ret->bytes += s->bytes[row];
		ret->by_kind[lg_memory_kind(w, row)] += s->bytes[row];
		lg_by_stack_add(&by, s->stack[row], s->bytes[row]);
	}
	return lg_by_stack_end(w, &by, &ret->by_stack, &ret->n_stacks);
}

/* The kind of what lies at an address, by the life of its allocation. */
static int kinds_by_address(struct lg_memory_work *w, const struct lg_memory_device *d,
			    struct lg_map *ret)
{
	const struct lg_span_tab *s = &w->t->span;

	for (size_t i = 0; i < d->n_rows; i++) {
		uint32_t row = d->rows[i];

		if (s->dur[row] < 0 && lg_memory_row(w, row) == LG_MEM_ALLOC &&
		    lg_map_set(ret, s->object[row], lg_memory_kind(w, row) + 1U))
			return LG_E_NOMEM;
	}
	return 0;
}

int lg_memory_held_now(struct lg_memory_work *w, const struct lg_memory_device *d,
		       struct lg_memory_held *ret)
{
	const struct lg_span_tab *s = &w->t->span;
	struct lg_map kinds = { 0 };
	struct lg_by_stack by;

	*ret = (struct lg_memory_held){ .ts = d->last };
	if (kinds_by_address(w, d, &kinds) || lg_by_stack_new(w, &by)) {
		lg_map_done(&kinds);
		return LG_E_NOMEM;
	}
	for (size_t i = 0; i < d->n_rows; i++) {
		uint32_t row = d->rows[i], kind;

		if (lg_memory_row(w, row) != LG_MEM_HELD)
			continue;
		kind = lg_map_get(&kinds, s->object[row]);
		ret->bytes += s->bytes[row];
		ret->by_kind[kind ? kind - 1 : LG_MEMORY_UNKNOWN] += s->bytes[row];
		lg_by_stack_add(&by, s->stack[row], s->bytes[row]);
	}
	lg_map_done(&kinds);
	return lg_by_stack_end(w, &by, &ret->by_stack, &ret->n_stacks);
}
