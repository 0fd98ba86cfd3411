/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aside.h - a piece of work in a thread of its own while the caller does another.
 *
 *   struct lg_aside a;
 *   lg_aside_start(&a, n > 100000, work, arg);
 *   ... what neither needs nor changes what work() does ...
 *   lg_aside_wait(&a);
 */
#ifndef LG_BASE_ASIDE_H
#define LG_BASE_ASIDE_H
#include <pthread.h>
#include <stdbool.h>

struct lg_aside {
	pthread_t thread;
	bool threaded;
};

/* Where it is not worth a thread, or there is none, work(arg) is done before this returns. */
void lg_aside_start(struct lg_aside *a, bool worth, void (*work)(void *arg), void *arg);
/* work() has returned. Once for each start. */
void lg_aside_wait(struct lg_aside *a);

#endif /* LG_BASE_ASIDE_H */
