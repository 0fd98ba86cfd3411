/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - how the segments are cut at a moment. The segments of the snapshot, less those that came
 * later and with those that went; between the allocations that live then, each rounded up as the
 * allocator does.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "memory/parts.h"

/* c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
 * kLargeBuffer, kRoundLarge */
enum {
	MIN_BLOCK = 512,
	SMALL_REQUEST = 1 << 20,
	SMALL_SEGMENT = 2 << 20,
	LARGE_REQUEST = 10 << 20,
	LARGE_SEGMENT = 20 << 20,
	LARGE_GRAIN = 2 << 20
};
#define PINNED_BELOW 0.05

struct piece {
	uint64_t from, to;
	lg_stk stack;
	int came; /* segments: +1, -1 = it is gone again */
};

struct pieces {
	struct piece *v;
	size_t n, cap;
};

uint64_t lg_memory_segment_for(uint64_t bytes)
{
	if (bytes <= SMALL_REQUEST)
		return SMALL_SEGMENT;
	if (bytes < LARGE_REQUEST)
		return LARGE_SEGMENT;
	return (bytes + LARGE_GRAIN - 1) / LARGE_GRAIN * LARGE_GRAIN;
}

static int by_address(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return x->came - y->came;
}

static int add(struct pieces *p, uint64_t from, uint64_t bytes, lg_stk stack, int came)
{
	if (!bytes || from + bytes < from)
		return 0;
	return LG_APPEND(p->v, p->n, p->cap, (struct piece){ from, from + bytes, stack, came });
}

/* Segments that stood at ts: those of the snapshot, and what happened since undone. */
static int segments_at(struct lg_memory_work *w, const struct lg_memory_device *d, int64_t ts,
		       struct pieces *p)
{
	const struct lg_span_tab *s = &w->t->span;
	size_t n = 0;
	int rc = 0;

	for (size_t i = 0; i < d->n_rows && !rc; i++) {
		uint32_t row = d->rows[i];
		enum lg_memory_row kind = lg_memory_row(w, row);

		if (kind == LG_MEM_SEGMENT)
			rc = add(p, s->object[row], s->bytes[row], 0, 1);
		else if (s->ts[row] > ts &&
			 (kind == LG_MEM_SEGMENT_FREE || kind == LG_MEM_SEGMENT_UNMAP))
			rc = add(p, s->object[row], s->bytes[row], 0, 1);
		else if (s->ts[row] > ts &&
			 (kind == LG_MEM_SEGMENT_ALLOC || kind == LG_MEM_SEGMENT_MAP))
			rc = add(p, s->object[row], s->bytes[row], 0, -1);
	}
	if (rc || !p->n)
		return rc;
	qsort(p->v, p->n, sizeof *p->v, by_address);
	/* One that came and went, or went and came again, is there twice for each way. */
	for (size_t i = 0, k; i < p->n; i = k) {
		int came = 0;

		for (k = i; k < p->n && p->v[k].from == p->v[i].from && p->v[k].to == p->v[i].to; k++)
			came += p->v[k].came;
		if (came > 0)
			p->v[n++] = p->v[i];
	}
	p->n = n;
	return 0;
}

static int allocations_at(struct lg_memory_work *w, const struct lg_memory_device *d, int64_t ts,
			  struct pieces *p)
{
	const struct lg_span_tab *s = &w->t->span;
	int rc = 0;

	for (size_t i = 0; i < d->n_rows && !rc; i++) {
		uint32_t row = d->rows[i];
		uint64_t bytes = s->bytes[row] + (MIN_BLOCK - s->bytes[row] % MIN_BLOCK) % MIN_BLOCK;

		if (s->ts[row] <= ts && lg_memory_row(w, row) == LG_MEM_ALLOC &&
		    lg_lives_at(s, row, ts))
			rc = add(p, s->object[row], bytes, s->stack[row], 1);
	}
	if (p->n)
		qsort(p->v, p->n, sizeof *p->v, by_address);
	return rc;
}

/* The allocator does not split off what is no more than a small request: a gap of that size is a part
 * of the block before it. */
static void idle(struct lg_memory_pieces *r, const struct piece *seg, uint64_t bytes)
{
	if (bytes <= SMALL_REQUEST && seg->to - seg->from > SMALL_SEGMENT)
		return;
	r->idle += bytes;
	r->idle_pages += bytes - bytes % LG_MEMORY_PAGE;
	r->largest = bytes > r->largest ? bytes : r->largest;
}

/* One segment, and the allocations from *at on that lie in it. */
static void cut(const struct piece *seg, const struct pieces *live, size_t *at,
		struct lg_memory_pieces *r, struct lg_by_stack *pins)
{
	uint64_t free_from = seg->from, held = 0, before = r->idle;
	size_t first;

	while (*at < live->n && live->v[*at].from < seg->from)
		(*at)++;
	first = *at;
	for (; *at < live->n && live->v[*at].from < seg->to; (*at)++) {
		uint64_t from = live->v[*at].from,
			 to = live->v[*at].to < seg->to ? live->v[*at].to : seg->to;

		if (from > free_from)
			idle(r, seg, from - free_from);
		held += to > from ? to - from : 0;
		free_from = to > free_from ? to : free_from;
	}
	if (seg->to > free_from)
		idle(r, seg, seg->to - free_from);
	r->reserved += seg->to - seg->from;
	if (!held)
		return;
	r->idle_in_used += r->idle - before;
	if ((double)held >= PINNED_BELOW * (double)(seg->to - seg->from))
		return;
	r->pinned++;
	r->pinned_bytes += seg->to - seg->from;
	r->pinned_live += held;
	for (size_t i = first; i < *at; i++)
		lg_by_stack_add(pins, live->v[i].stack, live->v[i].to - live->v[i].from);
}

int lg_memory_pieces_at(struct lg_memory_work *w, const struct lg_memory_device *d, int64_t ts,
			uint64_t asked, struct lg_memory_pieces *ret)
{
	struct pieces segments = { 0 }, live = { 0 };
	struct lg_by_stack pins = { 0 };
	size_t at = 0;
	int rc = segments_at(w, d, ts, &segments) ?: allocations_at(w, d, ts, &live) ?:
		 lg_by_stack_new(w, &pins);

	*ret = (struct lg_memory_pieces){ .ts = ts };
	for (size_t i = 0; i < segments.n && !rc; i++)
		if (asked <= SMALL_REQUEST || segments.v[i].to - segments.v[i].from > SMALL_SEGMENT)
			cut(&segments.v[i], &live, &at, ret, &pins);
	if (!rc)
		rc = lg_by_stack_end(w, &pins, &ret->pins, &ret->n_pins);
	lg_free(pins.v);
	lg_free(segments.v);
	lg_free(live.v);
	return rc;
}
