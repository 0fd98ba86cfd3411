/* SPDX-License-Identifier: Apache-2.0 */
/* intervals.h - stretches of time that do not overlap, in order. */
#ifndef LG_BASE_INTERVALS_H
#define LG_BASE_INTERVALS_H
#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

/* By start, disjoint. */
struct lg_ivs {
	struct lg_iv {
		int64_t ts, end;
		uint32_t row; /* what it is of; UINT32_MAX = nothing */
	} *v;
	size_t n, cap;
};
static inline void lg_ivs_done(struct lg_ivs *a)
{
	lg_free(a->v);
}
#define LG_AUTO_IVS __attribute__((cleanup(lg_ivs_done))) struct lg_ivs
/* Must come in order; what overlaps the last one is cut. LG_E_NOMEM. */
int lg_iv_add(struct lg_ivs *a, int64_t ts, int64_t end, uint32_t row) LG_MUST_CHECK;
/* In any order, before lg_iv_join(); what touches the last one put in, from a->v[own] on, becomes one
 * with it: each thread's stretches are in order, and nearly every one begins where the last one ends. */
int lg_iv_put(struct lg_ivs *a, size_t own, int64_t ts, int64_t end) LG_MUST_CHECK;
/* Of stretches put in in any order, their union. */
int lg_iv_join(struct lg_ivs *a) LG_MUST_CHECK;
int64_t lg_iv_sum(const struct lg_ivs *a);
/* ns of [from, to) in a; *at: 0 at first, from never goes back. */
int64_t lg_iv_shared(const struct lg_ivs *a, size_t *at, int64_t from, int64_t to);
bool lg_iv_within(const struct lg_ivs *a, int64_t ts);

/* The longest of what comes, the first of equal ones, and when it began. */
static inline void lg_keep_longest(int64_t *longest, int64_t *at, int64_t dur, int64_t ts)
{
	if (dur > *longest) {
		*longest = dur;
		*at = ts;
	}
}

#endif /* LG_BASE_INTERVALS_H */
