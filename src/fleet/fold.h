/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold.h - the steps of a rank, folded to about a row a second.
 *
 * A row has the steps with the same number / 2^k, where k is the least with which a row lasts a second and
 * more. So the rows of ranks that step together lie on each other, and a wider row on whole narrower ones.
 * The longest step keeps its number. Knows no clock and no file; one thread.
 */
#ifndef LG_FLEET_FOLD_H
#define LG_FLEET_FOLD_H
#include "fleet/rows.h"

enum { LG_FOLD_USUAL = 32, LG_FOLD_STAGES = 9 }; /* stages as enum lg_stage has them */

struct lg_fold_step {
	int64_t number;
	uint64_t t0_us; /* wall clock */
	int64_t dur, stage[LG_FOLD_STAGES], wait; /* ns */
};

struct lg_fold {
	struct lg_fleet_rank_step row; /* row.steps 0: none is open */
	int64_t sum[LG_FOLD_STAGES], dur, wait, longest;
	uint64_t width; /* steps of a row */
	int64_t recent[LG_FOLD_USUAL], usual;
	uint32_t n_recent;
	uint64_t last_row_us;
};

/*
 * One more step. True: *ret is a row that is whole (job, attempt, rank, node and ver are the caller's to
 * set). *ret_late: what the step took beyond the rank's usual one where that is long enough to be asked why,
 * else 0; ns.
 */
bool lg_fold_add(struct lg_fold *f, const struct lg_fold_step *s, struct lg_fleet_rank_step *ret,
		 int64_t *ret_late);
/* What is open, at the end. */
bool lg_fold_end(struct lg_fold *f, struct lg_fleet_rank_step *ret);

#endif /* LG_FLEET_FOLD_H */
