/* SPDX-License-Identifier: Apache-2.0 */
#include "base/behind.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/alloc.h"

/* Enough that neither side waits for the other's scheduling; few enough to stay in the cache. */
enum { SPARE = 3 };

struct full {
	unsigned char *p;
	size_t n;
};

/*
 * I1  full[(first + i) % SPARE], i < n_full: handed over, not taken yet, oldest first. The thread
 *     works on full[first] without the lock; it leaves the queue when that is done.
 * I2  There are SPARE + 1 buffers: the caller's, those in the queue, and empty[0..n_empty).
 */
struct lg_behind {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct full full[SPARE];
	size_t first, n_full;
	unsigned char *empty[SPARE];
	size_t n_empty;
	bool end;
	void (*take)(void *self, const unsigned char *p, size_t n);
	void *self;
};

static void *run(void *arg)
{
	struct lg_behind *b = arg;

	pthread_mutex_lock(&b->lock);
	for (;;) {
		struct full f;

		while (!b->n_full && !b->end)
			pthread_cond_wait(&b->changed, &b->lock);
		if (!b->n_full)
			break;
		f = b->full[b->first];
		pthread_mutex_unlock(&b->lock);
		b->take(b->self, f.p, f.n);
		pthread_mutex_lock(&b->lock);
		b->first = (b->first + 1) % SPARE;
		b->n_full--;
		b->empty[b->n_empty++] = f.p;
		pthread_cond_signal(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void release(struct lg_behind *b)
{
	for (size_t i = 0; i < b->n_empty; i++)
		lg_free(b->empty[i]);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	lg_free(b);
}

struct lg_behind *lg_behind_new(size_t size, void (*take)(void *self, const unsigned char *p, size_t n),
				void *self)
{
	struct lg_behind *b = lg_calloc(1, sizeof *b);
	sigset_t all, old;
	bool ok;

	if (!b)
		return NULL;
	b->take = take;
	b->self = self;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	while (b->n_empty < SPARE && (b->empty[b->n_empty] = lg_realloc(NULL, size, 1)))
		b->n_empty++;
	/* Signals are the caller's business, but who writes into a closed pipe is told itself. */
	sigfillset(&all);
	sigdelset(&all, SIGPIPE);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ok = b->n_empty == SPARE && !pthread_create(&b->thread, NULL, run, b);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ok)
		return b;
	release(b);
	return NULL;
}

unsigned char *lg_behind_give(struct lg_behind *b, unsigned char *buf, size_t n)
{
	unsigned char *next;

	pthread_mutex_lock(&b->lock);
	while (!b->n_empty)
		pthread_cond_wait(&b->changed, &b->lock);
	next = b->empty[--b->n_empty];
	/* An empty one was there, so one place of the queue is free (I2). */
	b->full[(b->first + b->n_full++) % SPARE] = (struct full){ buf, n };
	pthread_cond_signal(&b->changed);
	pthread_mutex_unlock(&b->lock);
	return next;
}

void lg_behind_wait(struct lg_behind *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->n_full)
		pthread_cond_wait(&b->changed, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

void lg_behind_free(struct lg_behind *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->end = true;
	pthread_cond_signal(&b->changed);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL); /* the queue is empty then */
	release(b);
}
