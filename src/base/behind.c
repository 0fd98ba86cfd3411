/* SPDX-License-Identifier: Apache-2.0 */
#include "base/behind.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/alloc.h"

/* Buffers: enough that neither side waits for the other's scheduling; few enough to stay in the cache.
 * Pieces to be made: as many as keep both sides busy when one is held up. */
enum { SPARE = 3, PENS = 8, QUEUE = SPARE + PENS };

enum state { MADE, TO_MAKE, MAKING };

struct piece {
	enum state state;
	unsigned char *p; /* a buffer that was given; NULL: in pen */
	size_t n;
	struct lg_pen *pen;
	void (*make)(void *arg, struct lg_pen *pen);
	void *arg;
};

/*
 * I1  piece[(first + i) % QUEUE], i < n: handed over, not taken yet, oldest first. The thread takes
 *     piece[first] without the lock; it leaves the queue when that is done.
 * I2  There are SPARE + 1 buffers: the caller's, those in the queue, and empty[0..n_empty). There are
 *     PENS pens: those in the queue, and idle[0..n_idle). So the queue always has room for either.
 * I3  Who finds a piece TO_MAKE makes it, caller or thread, without the lock; it is MAKING meanwhile.
 */
struct lg_behind {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct piece piece[QUEUE];
	size_t first, n;
	unsigned char *empty[SPARE];
	size_t n_empty;
	struct lg_pen pen[PENS], *idle[PENS];
	size_t n_idle;
	uint64_t made; /* bytes of all pieces that were made */
	bool end;
	void (*take)(void *self, const unsigned char *p, size_t n);
	void *self;
};

unsigned char *lg_pen_more(struct lg_pen *pen, size_t n)
{
	if (pen->failed || lg_grow(&pen->p, &pen->cap, pen->n + n, 1)) {
		pen->failed = true;
		return NULL;
	}
	return pen->p + pen->n;
}

static void make(struct lg_behind *b, struct piece *f)
{
	f->state = MAKING;
	pthread_mutex_unlock(&b->lock);
	f->pen->n = 0;
	f->make(f->arg, f->pen);
	pthread_mutex_lock(&b->lock);
	f->state = MADE;
	b->made += f->pen->n;
	pthread_cond_broadcast(&b->changed);
}

static void take(struct lg_behind *b, struct piece *f)
{
	pthread_mutex_unlock(&b->lock);
	if (f->p)
		b->take(b->self, f->p, f->n);
	else if (f->pen->failed)
		b->take(b->self, NULL, 1);
	else
		b->take(b->self, f->pen->p, f->pen->n);
	pthread_mutex_lock(&b->lock);
	if (f->p)
		b->empty[b->n_empty++] = f->p;
	else
		b->idle[b->n_idle++] = f->pen;
	b->first = (b->first + 1) % QUEUE;
	b->n--;
	pthread_cond_broadcast(&b->changed);
}

static void *run(void *arg)
{
	struct lg_behind *b = arg;

	pthread_mutex_lock(&b->lock);
	for (;;) {
		struct piece *f = &b->piece[b->first];

		if (!b->n && b->end)
			break;
		if (b->n && f->state == TO_MAKE)
			make(b, f);
		else if (b->n && f->state == MADE)
			take(b, f);
		else
			pthread_cond_wait(&b->changed, &b->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void release(struct lg_behind *b)
{
	for (size_t i = 0; i < b->n_empty; i++)
		lg_free(b->empty[i]);
	for (size_t i = 0; i < PENS; i++)
		lg_free(b->pen[i].p);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	lg_free(b);
}

struct lg_behind *lg_behind_new(size_t size, void (*take_one)(void *self, const unsigned char *p, size_t n),
				void *self)
{
	struct lg_behind *b = lg_calloc(1, sizeof *b);
	sigset_t all, old;
	bool ok;

	if (!b)
		return NULL;
	b->take = take_one;
	b->self = self;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	while (b->n_empty < SPARE && (b->empty[b->n_empty] = lg_realloc(NULL, size, 1)))
		b->n_empty++;
	for (; b->n_idle < PENS; b->n_idle++)
		b->idle[b->n_idle] = &b->pen[b->n_idle];
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
	b->piece[(b->first + b->n++) % QUEUE] = (struct piece){ .p = buf, .n = n };
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	return next;
}

/* Make one piece that nobody has begun; false when there is none. */
static bool help(struct lg_behind *b)
{
	for (size_t i = 0; i < b->n; i++) {
		struct piece *f = &b->piece[(b->first + i) % QUEUE];

		if (f->state == TO_MAKE) {
			make(b, f);
			return true;
		}
	}
	return false;
}

void lg_behind_later(struct lg_behind *b, void (*make_one)(void *arg, struct lg_pen *pen), void *arg)
{
	pthread_mutex_lock(&b->lock);
	while (!b->n_idle)
		if (!help(b))
			pthread_cond_wait(&b->changed, &b->lock);
	b->piece[(b->first + b->n++) % QUEUE] = (struct piece){
		.state = TO_MAKE, .pen = b->idle[--b->n_idle], .make = make_one, .arg = arg };
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static bool making(const struct lg_behind *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->piece[(b->first + i) % QUEUE].state == MAKING)
			return true;
	return false;
}

uint64_t lg_behind_settle(struct lg_behind *b)
{
	uint64_t made;

	pthread_mutex_lock(&b->lock);
	while (help(b))
		;
	while (making(b))
		pthread_cond_wait(&b->changed, &b->lock);
	made = b->made;
	b->made = 0;
	pthread_mutex_unlock(&b->lock);
	return made;
}

void lg_behind_wait(struct lg_behind *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->n)
		pthread_cond_wait(&b->changed, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

void lg_behind_free(struct lg_behind *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->end = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL); /* the queue is empty then */
	release(b);
}
