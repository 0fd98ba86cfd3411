/* SPDX-License-Identifier: Apache-2.0 */
#include "base/writer_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/alloc.h"

/* Buffers and pens: enough that neither side waits for the other's scheduling; few enough to stay in the
 * cache. Pieces to be made: as many as keep the thread busy while the caller prepares the next ones. */
enum { SPARE = 3, PENS = 8, QUEUE = 4096 };

enum state { MADE, TO_MAKE, MAKING };

struct piece {
	enum state state;
	unsigned char *p; /* a buffer that was given; NULL: in pen */
	size_t n;
	struct lg_pen *pen; /* from MAKING on */
	void (*make)(void *arg, struct lg_pen *pen);
	void *arg;
};

/*
 * I1  piece[(first + i) % QUEUE], i < n: handed over, not taken yet, oldest first. The thread takes
 *     piece[first] without the lock; it leaves the queue when that is done.
 * I2  There are SPARE + 1 buffers: the caller's, those in the queue, and empty[0..n_empty). There are
 *     PENS pens: those in the queue, and idle[0..n_idle).
 * I3  piece[(first + i) % QUEUE], i < begun, are MADE or MAKING; of the rest those that are to be made
 *     have no pen yet. Whoever has time, caller or thread, makes the oldest of them, without the lock.
 *     So when no pen is idle the first piece that had one is in front of all that still need one: the
 *     thread takes it, and nobody waits for ever.
 */
struct lg_writer_thread {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct piece piece[QUEUE];
	size_t first, n, begun;
	unsigned char *empty[SPARE];
	size_t n_empty;
	struct lg_pen pen[PENS], *idle[PENS];
	size_t n_idle;
	uint64_t made; /* bytes of all pieces that were made */
	unsigned asleep;
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

static void sleep_until_changed(struct lg_writer_thread *b)
{
	b->asleep++;
	pthread_cond_wait(&b->changed, &b->lock);
	b->asleep--;
}

static void wake(struct lg_writer_thread *b)
{
	if (b->asleep)
		pthread_cond_broadcast(&b->changed);
}

/* Make the oldest piece that nobody has begun; false when there is none, or no pen for it. */
static bool make_one(struct lg_writer_thread *b)
{
	struct piece *f;

	while (b->begun < b->n && b->piece[(b->first + b->begun) % QUEUE].state == MADE)
		b->begun++;
	if (b->begun == b->n || !b->n_idle)
		return false;
	f = &b->piece[(b->first + b->begun++) % QUEUE];
	f->state = MAKING;
	f->pen = b->idle[--b->n_idle];
	pthread_mutex_unlock(&b->lock);
	f->pen->n = 0;
	f->make(f->arg, f->pen);
	pthread_mutex_lock(&b->lock);
	f->state = MADE;
	b->made += f->pen->n;
	wake(b);
	return true;
}

static void take(struct lg_writer_thread *b, struct piece *f)
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
	b->begun -= b->begun != 0;
	wake(b);
}

static void *run(void *arg)
{
	struct lg_writer_thread *b = arg;

	pthread_mutex_lock(&b->lock);
	for (;;) {
		struct piece *f = &b->piece[b->first];

		if (!b->n && b->end)
			break;
		if (b->n && f->state == MADE)
			take(b, f);
		else if (!make_one(b))
			sleep_until_changed(b);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void release(struct lg_writer_thread *b)
{
	for (size_t i = 0; i < b->n_empty; i++)
		lg_free(b->empty[i]);
	for (size_t i = 0; i < PENS; i++)
		lg_free(b->pen[i].p);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	lg_free(b);
}

struct lg_writer_thread *
lg_writer_thread_new(size_t size, void (*take_one)(void *self, const unsigned char *p, size_t n),
				void *self)
{
	struct lg_writer_thread *b = lg_calloc(1, sizeof *b);
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

unsigned char *lg_writer_thread_give(struct lg_writer_thread *b, unsigned char *buf, size_t n)
{
	unsigned char *next;

	pthread_mutex_lock(&b->lock);
	while (!b->n_empty)
		sleep_until_changed(b);
	next = b->empty[--b->n_empty];
	b->piece[(b->first + b->n++) % QUEUE] = (struct piece){ .p = buf, .n = n };
	wake(b);
	pthread_mutex_unlock(&b->lock);
	return next;
}

void lg_writer_thread_later(struct lg_writer_thread *b, void (*make)(void *arg, struct lg_pen *pen),
			    void *arg)
{
	pthread_mutex_lock(&b->lock);
	while (b->n > QUEUE - SPARE - 1) /* the buffers find room at any time */
		if (!make_one(b))
			sleep_until_changed(b);
	b->piece[(b->first + b->n++) % QUEUE] = (struct piece){ .state = TO_MAKE, .make = make, .arg = arg };
	wake(b);
	pthread_mutex_unlock(&b->lock);
}

/* Waits for a change where a piece is still to be made, or being made. */
static bool unmade(struct lg_writer_thread *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->piece[(b->first + i) % QUEUE].state != MADE) {
			sleep_until_changed(b);
			return true;
		}
	return false;
}

uint64_t lg_writer_thread_settle(struct lg_writer_thread *b)
{
	uint64_t made;

	pthread_mutex_lock(&b->lock);
	while (make_one(b) || unmade(b))
		;
	made = b->made;
	b->made = 0;
	pthread_mutex_unlock(&b->lock);
	return made;
}

void lg_writer_thread_wait(struct lg_writer_thread *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->n)
		sleep_until_changed(b);
	pthread_mutex_unlock(&b->lock);
}

void lg_writer_thread_free(struct lg_writer_thread *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->end = true;
	wake(b);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL); /* the queue is empty then */
	release(b);
}
