/* SPDX-License-Identifier: Apache-2.0 */
/* duration.h - lengths of time as people write them. */
#ifndef LG_BASE_DURATION_H
#define LG_BASE_DURATION_H
#include <stdint.h>

/* "2.5s" "500ms" "1m" "7d" "3" (seconds) to ns; <0 when it is none of these. */
int64_t lg_parse_duration(const char *s);

/* a + b, or the most there is: what a file says may be anything. */
static inline int64_t lg_sum_ns(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Of ns. */
#define lg_ms(ns) ((double)(ns) / 1e6)
#define lg_seconds(ns) ((double)(ns) / 1e9)

#endif /* LG_BASE_DURATION_H */
