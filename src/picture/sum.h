/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - times of a file that others wrote, added up: a sum that is too large stays large. */
#ifndef LG_PICTURE_SUM_H
#define LG_PICTURE_SUM_H
#include <stdint.h>

#include "base/order.h"

#define LG_MOST_NS (INT64_C(1) << 60)

/* a is such a sum, or 0. What is negative counts as nothing. */
static inline int64_t lg_sum_ns(int64_t a, int64_t b)
{
	return LG_MIN(a + LG_MIN(LG_MAX(b, 0), LG_MOST_NS), LG_MOST_NS);
}

/* part / of in 255ths, at most 255. */
static inline uint64_t lg_share_255(int64_t part, int64_t of)
{
	return (uint64_t)LG_MIN(255., 255 * (double)LG_MAX(part, 0) / (double)LG_MAX(of, 1));
}

#endif /* LG_PICTURE_SUM_H */
