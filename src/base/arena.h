/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - memory of one phase, released in one call. Single-threaded. Blocks never move. */
#ifndef LG_BASE_ARENA_H
#define LG_BASE_ARENA_H
#include <stddef.h>
#include <stdarg.h>

#include "base/error.h"

struct lg_arena {
	struct lg_arena_block *head;
	int failed; /* sticky: some allocation returned NULL */
};

/* Zeroed, 16-byte aligned; NULL when memory is exhausted (and a->failed is set). */
void *lg_arena_alloc(struct lg_arena *a, size_t n, size_t size);
/* Formatted string; "" when memory is exhausted. */
const char *lg_arena_printf(struct lg_arena *a, const char *fmt, ...) LG_PRINTF(2, 3);
const char *lg_arena_strdup(struct lg_arena *a, const char *s);
/* Memory of lg_calloc() or lg_realloc() becomes the arena's: p again. On failure (sticky as above) p is
 * freed and NULL returned. p = NULL stays NULL. */
void *lg_arena_adopt(struct lg_arena *a, void *p);
/* The same for p, in the place of old, which the arena had adopted and which is freed; as lg_arena_adopt()
 * where it had not. */
void *lg_arena_readopt(struct lg_arena *a, void *old, void *p);
/* Room for one more element of size bytes behind the n of v, which begins as NULL and grows by this alone: v,
 * or a copy of twice the size where it is full. NULL as lg_arena_alloc(); v stays as it was. */
void *lg_arena_room(struct lg_arena *a, void *v, size_t n, size_t size);
/* All that b has becomes a's, b is empty: two threads had one each. */
void lg_arena_join(struct lg_arena *a, struct lg_arena *b);
void lg_arena_done(struct lg_arena *a);

#endif /* LG_BASE_ARENA_H */
