/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_ahead.c - a short queue of batches of events.
 *
 * I1  a batch is the scanner's (made .. taken + N_BATCHES), is in the queue, or is the one that is being
 *     worked off (taken - 1).
 * I2  the events of a batch lie in one window; a batch is handed over before the window moves, and its
 *     blocks stay until it is worked off (lg_json_source_release()).
 * I3  before the source moves text that events may point to, the queue is worked off.
 *
 * A thread that had to wait is woken when there is a good deal to do: to wake one up costs as much as
 * dozens of events. And where batches pile up, their numbers are read here: who is ahead has the time.
 */
#include "import/json/json_ahead.h"

#include <pthread.h>

#include "base/alloc.h"

enum { N_BATCHES = 12, BATCH = 1024, ROOM = N_BATCHES / 2, PILE = 2, TEXT_AHEAD = 4 };

struct batch {
	struct lg_event *v;
	size_t n;
	unsigned window; /* lg_json_source_taken() */
};

struct lg_ahead {
	struct lg_events *r;
	struct batch batch[N_BATCHES];
	struct lg_event *events; /* of all batches; a short file touches few of its pages */

	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	unsigned made, taken; /* batches; all before taken - 1 are worked off */
	bool waiting;         /* all before taken are */
	bool full, idle;      /* the scanner waits for room; the other side for a batch */
	bool draining;        /* the scanner waits until everything is worked off */
	bool behind;          /* scanner: the other side is */
	bool stop, over;      /* nobody wants more; no more batches come */
	int rc;               /* then: LG_ITEM_END or an error */
	struct lg_error err;

	struct batch *now;    /* being worked off, from `at` on */
	size_t at;
};

/* An event's cache lines come from the other thread's core: ask for them some events ahead (a macro, as
 * what is to be done with them must be a constant). */
#define ahead_of(e, n, write)                                                                              \
	do {                                                                                               \
		for (size_t at_ = 0; at_ < sizeof *(e) + 64; at_ += 64)                                    \
			__builtin_prefetch((const char *)((e) + (n)) + at_, write);                        \
	} while (0)

/* And so does the text that it points to: its name and what its arguments begin with. */
static void text_of(const struct lg_event *e)
{
	enum { MOST = 256 };

	__builtin_prefetch(e->name.p);
	for (uint32_t i = 0; i < e->args.n && i < MOST; i += 64)
		__builtin_prefetch(e->args.p + i);
}

static struct batch *filling(struct lg_ahead *a)
{
	return &a->batch[a->made % N_BATCHES];
}

/* Hand over what there is and, with drain, wait until all of it is worked off. */
static int hand_over(struct lg_ahead *a, bool drain)
{
	unsigned most = N_BATCHES - 2; /* the next batch must be free, too */
	bool stop, wake;

	pthread_mutex_lock(&a->lock);
	filling(a)->window = lg_json_source_taken(a->r->src);
	a->made++;
	wake = a->idle;
	a->behind = a->made - a->taken >= PILE;
	while (!a->stop && (drain ? a->taken != a->made || !a->waiting : a->made - a->taken > most)) {
		if (wake)
			pthread_cond_broadcast(&a->cond);
		wake = false;
		a->draining = drain;
		a->full = true;
		most = N_BATCHES - 1 - ROOM;
		pthread_cond_wait(&a->cond, &a->lock);
	}
	a->draining = a->full = false;
	stop = a->stop;
	pthread_mutex_unlock(&a->lock);
	/* Now, not before: who is woken wants the lock. */
	if (wake)
		pthread_cond_broadcast(&a->cond);
	filling(a)->n = 0;
	return stop ? LG_E_IO : 0;
}

int lg_ahead_before_more(struct lg_ahead *a, const char *keep)
{
	return hand_over(a, lg_json_source_moves(a->r->src, keep));
}

static void *scanner(void *arg)
{
	struct lg_ahead *a = arg;
	struct lg_error err = { 0 };
	int rc = 0;

	for (;;) {
		struct batch *b = filling(a), *now;
		struct lg_event *e = &b->v[b->n]; /* there is room: a full batch is handed over */

		rc = lg_events_scan(a->r, e, &err);
		if (rc <= 0)
			break;
		/* The window may have moved, and with it the batch, before there was an event: what lies
		 * behind the end of the one that was handed over is nobody else's. */
		now = filling(a);
		if (now != b)
			now->v[now->n] = *e;
		b = now;
		e = &b->v[b->n++];
		ahead_of(e, 4, 1);
		e->item = (uint8_t)rc;
		if (a->behind && rc == LG_ITEM_EVENT)
			lg_event_times(e);
		if (b->n == BATCH && hand_over(a, false)) {
			rc = LG_E_IO;
			break;
		}
	}
	pthread_mutex_lock(&a->lock);
	filling(a)->window = lg_json_source_taken(a->r->src);
	a->made++;
	a->over = true;
	a->rc = rc;
	a->err = err;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static void ahead_free(struct lg_ahead *a)
{
	lg_free(a->events);
	pthread_cond_destroy(&a->cond);
	pthread_mutex_destroy(&a->lock);
	lg_free(a);
}

void lg_ahead_start(struct lg_events *r)
{
	struct lg_ahead *a;

	if (!lg_json_source_hold(r->src))
		return;
	a = lg_calloc(1, sizeof *a);
	if (!a) {
		lg_json_source_unhold(r->src);
		return;
	}
	a->r = r;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->cond, NULL);
	a->events = lg_calloc((size_t)N_BATCHES * BATCH, sizeof *a->events);
	for (size_t i = 0; a->events && i < N_BATCHES; i++)
		a->batch[i].v = a->events + i * BATCH;
	/* Before the thread runs: it reads r->ahead. */
	r->ahead = a;
	if (!a->events || pthread_create(&a->thread, NULL, scanner, a)) {
		lg_json_source_unhold(r->src);
		r->ahead = NULL;
		ahead_free(a);
	}
}

/* The next batch, the last one being worked off; NULL at the end. */
static struct batch *next_batch(struct lg_ahead *a)
{
	struct batch *b = NULL;
	bool wake, helped;

	/* A batch behind this one may lie in the same window: its block is not given back. */
	if (a->now)
		lg_json_source_release(a->r->src, a->now->window);
	pthread_mutex_lock(&a->lock);
	a->waiting = true;
	if (a->draining)
		pthread_cond_broadcast(&a->cond);
	while (a->made == a->taken && !a->over) {
		pthread_mutex_unlock(&a->lock);
		helped = lg_json_source_help(a->r->src);
		pthread_mutex_lock(&a->lock);
		if (helped || a->made != a->taken || a->over)
			continue;
		a->idle = true;
		pthread_cond_wait(&a->cond, &a->lock);
		a->idle = false;
	}
	if (a->made != a->taken) {
		b = &a->batch[a->taken++ % N_BATCHES];
		a->waiting = false;
	}
	wake = a->full && a->made - a->taken <= N_BATCHES - 1 - ROOM;
	pthread_mutex_unlock(&a->lock);
	if (wake)
		pthread_cond_broadcast(&a->cond);
	return b;
}

int lg_ahead_next(struct lg_ahead *a, struct lg_event **ret, struct lg_error *err)
{
	while (!a->now || a->at == a->now->n) {
		struct batch *b = next_batch(a);

		if (!b) {
			a->now = NULL;
			if (a->rc < 0 && err)
				*err = a->err;
			return a->rc;
		}
		a->now = b;
		a->at = 0;
	}
	*ret = &a->now->v[a->at++];
	ahead_of(*ret, 6, 0);
	if (a->at + TEXT_AHEAD <= a->now->n)
		text_of(*ret + TEXT_AHEAD);
	return (*ret)->item;
}

void lg_ahead_stop(struct lg_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
	lg_json_source_stop(a->r->src);
	pthread_join(a->thread, NULL);
	ahead_free(a);
}
