/* SPDX-License-Identifier: Apache-2.0 */
/* chance.h - how many ways there are. */
#ifndef LG_BASE_CHANCE_H
#define LG_BASE_CHANCE_H
#include <math.h>
#include <stddef.h>

/* The logarithm of how many ways there are to choose k of n; k <= n. */
static inline double lg_ln_choose(size_t n, size_t k)
{
	return lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
}

#endif /* LG_BASE_CHANCE_H */
