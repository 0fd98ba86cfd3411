/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h - a thread that gives full buffers away while the next one is being filled.
 *
 * Writing to a file is the kernel copying and finding room, compressing is all of a core: neither
 * needs to hold up who makes the bytes. Buffers are taken in the order they are handed over.
 */
#ifndef LG_BASE_BEHIND_H
#define LG_BASE_BEHIND_H
#include <stddef.h>

struct lg_behind;

/* take() runs in the thread, one buffer at a time. Every buffer has size bytes. NULL when there is
 * no memory or no thread: the caller does the work itself then. */
struct lg_behind *lg_behind_new(size_t size, void (*take)(void *self, const unsigned char *p, size_t n),
				void *self);
/* n bytes of buf are to be taken. Returns a buffer to go on with; waits while all are full. */
unsigned char *lg_behind_give(struct lg_behind *b, unsigned char *buf, size_t n);
/* Everything given has been taken: what take() keeps in self may be looked at. */
void lg_behind_wait(struct lg_behind *b);
/* Waits, and ends the thread. What the caller holds (the last one that it was handed) stays its own. */
void lg_behind_free(struct lg_behind *b);

#endif /* LG_BASE_BEHIND_H */
