/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc.h - the one seam through which laggard allocates.
 *
 * A test may make the n-th allocation fail (lg_alloc_fail_at); sizes are multiplied with an
 * overflow check. Memory from here is released with lg_free().
 */
#ifndef LG_BASE_ALLOC_H
#define LG_BASE_ALLOC_H
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* n * size bytes, zeroed; NULL on overflow or exhaustion. n * size == 0 gives a valid pointer. */
void *lg_calloc(size_t n, size_t size);
/* The same for a hash table or an index that is used all over and at random. */
void *lg_calloc_table(size_t n, size_t size);
/* Resize to n * size bytes; the old block survives a failure. */
void *lg_realloc(void *p, size_t n, size_t size);
char *lg_strdup(const char *s);
void lg_free(void *p);

/* Fail the n-th allocation from now (1 = the next); 0 switches the failure off. Tests only. */
void lg_alloc_fail_at(uint64_t n);
/* Allocations made since the last lg_alloc_fail_at(). */
uint64_t lg_alloc_count(void);

/* Grow *p (elements of size bytes) so that need elements fit; doubles. 0 or LG_E_NOMEM. */
int lg_grow(void *p, size_t *cap, size_t need, size_t size) __attribute__((warn_unused_result));

/* Adds an element behind the n of v, which grows as by lg_grow(). 0 or LG_E_NOMEM. */
#define LG_APPEND(v, n, cap, ...) \
	(lg_grow(&(v), &(cap), (n) + 1, sizeof *(v)) ? LG_E_NOMEM : ((v)[(n)++] = __VA_ARGS__, 0))

static inline void lg_free_p(void *p)
{
	lg_free(*(void **)p);
}
#define LG_AUTOFREE __attribute__((cleanup(lg_free_p)))

#endif /* LG_BASE_ALLOC_H */
