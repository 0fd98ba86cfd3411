/* SPDX-License-Identifier: Apache-2.0 */
/* samples.h - what flame graphs and the folded run are drawn from: CPU samples, waits, and who ran
 * when. */
#ifndef LG_PICTURE_SAMPLES_H
#define LG_PICTURE_SAMPLES_H
#include "picture/levels.h"

enum { LG_ACTIVE = 12, LG_ACTIVE_BUCKETS = 4096 };

struct lg_active {
	lg_prc prc[LG_ACTIVE]; /* those that are accused, then those that ran most */
	size_t n, n_accused;
	int64_t bucket_ns;
	size_t n_buckets;
};

/* CPU samples: time, thread, stack, weight in ns; every *ret_every-th. Numbers go through `used`.
 */
int lg_samples_write(struct lg_levels *used, const struct lg_verdict *v, struct lg_out *o,
		     size_t *ret_n, size_t *ret_every) LG_MUST_CHECK;
/* Waits with a stack, the longest first to be kept: time, length, thread, stack; *ret_left_ns: of
 * the others. */
int lg_waits_write(struct lg_levels *used, const struct lg_verdict *v, struct lg_out *o,
		   size_t *ret_n, int64_t *ret_left_ns) LG_MUST_CHECK;
/* A column for each process: ns of each bucket in which it ran. */
int lg_active_write(struct lg_levels *used, const struct lg_verdict *v, struct lg_out *o,
		    struct lg_active *ret) LG_MUST_CHECK;
/* Number, rank, start, duration, median, flags (1 slow, 2 warm-up), own, late; then a column for
 * each slot of the account and for each stage. */
int lg_steps_write(struct lg_levels *used, const struct lg_verdict *v, const struct lg_accounts *a,
		   struct lg_out *o) LG_MUST_CHECK;

#endif /* LG_PICTURE_SAMPLES_H */
