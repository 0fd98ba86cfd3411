/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_thread.h - a thread that gives full buffers away while the next one is being filled.
 *
 * Writing to a file is the kernel copying and finding room, compressing is all of a core: neither
 * needs to hold up who makes the bytes. Buffers are taken in the order they are handed over.
 *
 * Where the bytes of one piece do not depend on those of others, making them can be left to whoever
 * has time, this thread or the caller: they keep their place in the order.
 */
#ifndef LG_BASE_WRITER_THREAD_H
#define LG_BASE_WRITER_THREAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct lg_writer_thread;

/* Where a piece is made. */
struct lg_pen {
	unsigned char *p;
	size_t n, cap;
	bool failed; /* no memory for more */
};

unsigned char *lg_pen_more(struct lg_pen *pen, size_t n);
/* Room for n bytes at the end, which stays where it is (pen->n) until it is moved; NULL when memory is
 * exhausted. */
static inline unsigned char *lg_pen_room(struct lg_pen *pen, size_t n)
{
	return pen->cap - pen->n >= n ? pen->p + pen->n : lg_pen_more(pen, n);
}

/* As memcpy(), where what is beyond the end of both, up to LG_PEN_SLACK bytes, may be read and written. */
enum { LG_PEN_SLACK = 32 };
static inline unsigned char *lg_pen_put(unsigned char *at, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i += LG_PEN_SLACK)
		memcpy(at + i, (const unsigned char *)p + i, LG_PEN_SLACK);
	return at + n;
}

/* take() runs in the thread, one buffer at a time; p = NULL, n not 0: there was no memory for a piece. Every
 * buffer has size bytes. NULL when there is no memory or no thread: the caller does the work itself then. */
struct lg_writer_thread *
lg_writer_thread_new(size_t size, void (*take)(void *self, const unsigned char *p, size_t n), void *self);
/* n bytes of buf are to be taken. Returns a buffer to go on with; waits while all are full. */
unsigned char *lg_writer_thread_give(struct lg_writer_thread *b, unsigned char *buf, size_t n);
/* A piece to be made. make() is called once, from this thread or the caller's (in here, or in
 * lg_writer_thread_settle()), for several pieces at a time. */
void lg_writer_thread_later(struct lg_writer_thread *b, void (*make)(void *arg, struct lg_pen *pen),
			    void *arg);
/* No make() runs any more nor will; returns how many bytes were made since it was last called. */
uint64_t lg_writer_thread_settle(struct lg_writer_thread *b);
/* Everything given has been taken: what take() keeps in self may be looked at. */
void lg_writer_thread_wait(struct lg_writer_thread *b);
/* Waits, and ends the thread. What the caller holds (the last one that it was handed) stays its own. */
void lg_writer_thread_free(struct lg_writer_thread *b);

#endif /* LG_BASE_WRITER_THREAD_H */
