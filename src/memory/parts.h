/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - what the files of memory/ share. */
#ifndef LG_MEMORY_PARTS_H
#define LG_MEMORY_PARTS_H
#include "memory/memory.h"

enum lg_memory_row {
	LG_MEM_NONE, LG_MEM_ALLOC, LG_MEM_SEGMENT, LG_MEM_IDLE, LG_MEM_HELD, LG_MEM_PENDING,
	LG_MEM_SEGMENT_ALLOC, LG_MEM_SEGMENT_FREE, LG_MEM_SEGMENT_MAP, LG_MEM_SEGMENT_UNMAP, LG_MEM_OOM
};

/* What one stack says of the memory that was asked for, or given back, in it: bits. */
enum { LG_AT_OPTIMIZER = 1, LG_AT_BACKWARD = 2, LG_AT_MODULE = 4, LG_AT_PLACE = 8, LG_AT_EMPTY_CACHE = 16 };

struct lg_memory_work {
	const struct lg_trace *t;
	struct lg_arena *a;
	uint8_t *row_of_name;  /* by string: enum lg_memory_row + 1; 0 = not looked at */
	uint8_t *at;           /* by stack: LG_AT_* */
	bool frees_have_stacks, allocs_have_stacks; /* Python's alone, and at least one */
	/* Times of an optimizer's step, by annotations: begins and ends in turn, disjoint, by time. */
	int64_t *optimizer;
	size_t n_optimizer;
};

enum lg_memory_row lg_memory_row(struct lg_memory_work *w, uint32_t row);
/* LG_AT_* of all stacks; kinds.c. 0 or LG_E_NOMEM. */
int lg_memory_places(struct lg_memory_work *w) LG_MUST_CHECK;
/* What an allocation is for. */
enum lg_memory_kind lg_memory_kind(const struct lg_memory_work *w, uint32_t row);
/* What is held at ts, by the lives of allocations (held.c). */
int lg_memory_held_at(struct lg_memory_work *w, const struct lg_memory_device *d, int64_t ts,
		      struct lg_memory_held *ret) LG_MUST_CHECK;
/* The same at the snapshot, by its blocks. */
int lg_memory_held_now(struct lg_memory_work *w, const struct lg_memory_device *d, struct lg_memory_held *ret)
	LG_MUST_CHECK;

/* How the segments are cut at ts. asked: a request that it is for, which small segments cannot hold; 0 =
 * any. */
int lg_memory_pieces_at(struct lg_memory_work *w, const struct lg_memory_device *d, int64_t ts,
			uint64_t asked, struct lg_memory_pieces *ret) LG_MUST_CHECK;
int lg_memory_find_points(struct lg_memory_work *w, struct lg_memory_device *d) LG_MUST_CHECK; /* points.c */
int lg_memory_find_leak(struct lg_memory_work *w, struct lg_memory_device *d) LG_MUST_CHECK; /* growth.c */
void lg_memory_find_churn(struct lg_memory_work *w, struct lg_memory_device *d);             /* churn.c */
int lg_memory_find_ooms(struct lg_memory_work *w, struct lg_memory_device *d) LG_MUST_CHECK; /* ooms.c */
/* Is it alive at ts? */
static inline bool lg_lives_at(const struct lg_span_tab *s, uint32_t row, int64_t ts)
{
	return s->ts[row] <= ts && (s->dur[row] < 0 || s->ts[row] + s->dur[row] > ts);
}

/* Bytes by stack, while they are added up. */
struct lg_by_stack {
	struct lg_memory_stack *v; /* by stack row */
	size_t n;
};
int lg_by_stack_new(const struct lg_memory_work *w, struct lg_by_stack *ret) LG_MUST_CHECK;
void lg_by_stack_add(struct lg_by_stack *b, lg_stk stack, uint64_t bytes);
/* The largest first, in the arena; b is done with. */
int lg_by_stack_end(const struct lg_memory_work *w, struct lg_by_stack *b, struct lg_memory_stack **ret,
		    size_t *ret_n)
	LG_MUST_CHECK;

#endif /* LG_MEMORY_PARTS_H */
