/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_thread.h - a piece of work in a thread of its own while the caller does another.
 *
 *   struct lg_side_thread a;
 *   lg_side_thread_start(&a, n > 100000, work, arg);
 *   ... what neither needs nor changes what work() does ...
 *   lg_side_thread_wait(&a);
 */
#ifndef LG_BASE_SIDE_THREAD_H
#define LG_BASE_SIDE_THREAD_H
#include <pthread.h>
#include <stdbool.h>

struct lg_side_thread {
	pthread_t thread;
	bool threaded;
};

/* Where it is not worth a thread, or there is none, work(arg) is done before this returns. */
void lg_side_thread_start(struct lg_side_thread *a, bool worth, void (*work)(void *arg), void *arg);
/* work() has returned. Once for each start. */
void lg_side_thread_wait(struct lg_side_thread *a);

#endif /* LG_BASE_SIDE_THREAD_H */
