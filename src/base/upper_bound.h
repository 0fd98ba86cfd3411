/* SPDX-License-Identifier: Apache-2.0 */
/* upper_bound.h - by bisection, where what is later begins in a list that is in order of a time. */
#ifndef LG_BASE_UPPER_BOUND_H
#define LG_BASE_UPPER_BOUND_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* As below: size of an element, at: of its key. v may be NULL where n is 0. */
static inline size_t lg_upper_bound(const void *v, size_t n, size_t size, size_t at, int64_t limit)
{
	size_t lo = 0;

	while (lo < n) {
		size_t mid = (lo + n) / 2;
		int64_t key;

		memcpy(&key, (const char *)v + mid * size + at, sizeof key);
		if (key <= limit)
			lo = mid + 1;
		else
			n = mid;
	}
	return lo;
}

/* How many of the n elements of v, which are in order of their int64_t `key`, have one of at most limit. */
#define LG_UPPER_BOUND(v, n, key, limit) \
	lg_upper_bound((v), (n), sizeof *(v), offsetof(__typeof__(*(v)), key), (limit))

/* Moves lo to the first of [lo, hi) of which `before`, an expression of its place mid, does not hold: it
 * holds of all before one of which it holds. */
#define LG_BISECT(lo, hi, mid, before)                    \
	for (size_t mid; (lo) < (hi);) {                   \
		mid = (lo) + ((hi) - (lo)) / 2;            \
		(before) ? ((lo) = mid + 1) : ((hi) = mid); \
	}

#endif /* LG_BASE_UPPER_BOUND_H */
