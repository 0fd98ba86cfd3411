/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - put in order what is nearly so.
 *
 * Traces arrive as a few lists that are in order each (threads, streams, copies of both): merging the
 * runs that are there takes n * log(runs) comparisons and hardly a move, qsort() n * log(n).
 */
#ifndef LG_BASE_ORDER_H
#define LG_BASE_ORDER_H
#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"

/* Stable: what compares equal stays as it was. n may be 0, then v may be NULL. LG_E_NOMEM leaves some
 * order of the same elements. */
int lg_order(void *v, size_t n, size_t size, int (*cmp)(const void *a, const void *b)) LG_MUST_CHECK;

/* Less, equal or greater, as qsort() asks: of several keys LG_CMP(a, b) ?: LG_CMP(c, d). */
#define LG_CMP(a, b) (((a) > (b)) - ((a) < (b)))

/* Defines what qsort() and lg_order() ask, of elements of that type: by LG_CMP()s of x and y, the two. */
#define LG_ORDER_BY(name, type, ...)                    \
	static int name(const void *a_, const void *b_) \
	{                                               \
		const type *x = a_, *y = b_;            \
		return __VA_ARGS__;                     \
	}

/* v may be NULL where n is 0. */
#define LG_SORT(v, n, cmp) ((n) ? qsort((v), (n), sizeof *(v), (cmp)) : (void)0)

/* How many elements an array has. */
#define LG_COUNT(v) (sizeof(v) / sizeof *(v))

/* Either may be evaluated twice. */
#define LG_MIN(a, b) ((a) < (b) ? (a) : (b))
#define LG_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif /* LG_BASE_ORDER_H */
