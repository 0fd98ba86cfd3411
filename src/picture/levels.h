/* SPDX-License-Identifier: Apache-2.0 */
/*
 * levels.h - lanes at several levels of detail, as data blocks within a budget of bytes.
 *
 * Level k has every mark of 2^k ns or longer as it is. What is shorter is put together by absolute
 * buckets of 2^k ns, so that nothing moves when a viewer pans: spans become the longest of them
 * with their number; states become the shares of the bucket, never the longest, which would turn 40
 * % blocked into all or nothing. Level 0 is everything: of the whole trace where the budget allows,
 * else around the slowest steps.
 */
#ifndef LG_PICTURE_LEVELS_H
#define LG_PICTURE_LEVELS_H
#include "picture/lanes.h"
#include "picture/pack.h"

struct lg_block {
	int64_t from, to; /* ns since the trace's first row */
	uint32_t id, n;
	unsigned k;
};

/* Rows of a dictionary that a page refers to, numbered anew in the order in which they were met; 0
 * = none. */
struct lg_used {
	uint32_t *number; /* by row */
	uint32_t *row;	  /* by number */
	size_t n, cap;	  /* n: the highest number */
	size_t n_rows;
};
uint32_t lg_used_number(struct lg_used *u, uint32_t row, int *failed);

struct lg_levels {
	struct lg_block *block;
	size_t n, cap, bytes;
	bool whole; /* level 0 is there for all of the trace */
	uint32_t next_id;
	struct lg_used name, stack, thread;
};

/* The marks of level k of a lane; *ret is the caller's. */
int lg_level_of(const struct lg_lane *lane, unsigned k, struct lg_mark **ret,
		size_t *ret_n) LG_MUST_CHECK;
/* ret->next_id is the first number for a block. */
int lg_levels_write(struct lg_levels *ret, const struct lg_lanes *lanes, const struct lg_verdict *v,
		    size_t budget, struct lg_out *o, struct lg_error *err) LG_MUST_CHECK;
void lg_levels_done(struct lg_levels *l);

#endif /* LG_PICTURE_LEVELS_H */
