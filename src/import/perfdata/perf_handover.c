/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_handover.h"

#include <pthread.h>
#include <signal.h>

#include "base/alloc.h"

enum {
	BATCH = 512,  /* records; a handover costs a lock and at times a wake-up */
	BATCHES = 32,
	/* Who waited goes on when half of them are empty: a wake-up costs as much as some batches. */
	ROOM = BATCHES / 2,
	AHEAD = 12,   /* records: some hundred ns each, a miss of all caches takes one hundred */
	NEAR = LG_PD_SLOTS,
	ALONE = 8     /* batches worked off by the reader before a thread is worth it */
};

struct batch {
	struct lg_pd_handed entry[BATCH];
	size_t n;
};

/*
 * I1  Batches [done, given) belong to the thread, in this order; the others to the reader. The
 *     numbers only grow; batch i lies in place i % BATCHES.
 * I2  The reader alone counts holds on blocks: it drops those of a batch before it fills its place
 *     again. Batches [dropped, done) still have them.
 */
struct lg_pd_handover {
	struct lg_pd_pool *pool;
	struct lg_pd_hands hands;
	bool tried, threaded; /* threaded: the thread runs; tried: or could not be had */
	int rc; /* of work(), sticky; the thread's, seen by the reader where it takes the lock */
	size_t given, done, dropped;
	size_t left; /* the reader waits for [done, given) to be this short */
	bool end, asleep, waiting;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled, emptied;
	struct batch *batch;
};

static void work_off(struct lg_pd_handover *h, const struct batch *b, int *rc)
{
	size_t soon = h->hands.ahead ? 0 : b->n, sooner = h->hands.nearer ? 0 : b->n;

	for (size_t i = 0; i < b->n && !*rc; i++) {
		for (; soon < b->n && soon < i + AHEAD; soon++)
			h->hands.ahead(h->hands.self, &b->entry[soon]);
		for (; sooner < b->n && sooner < i + NEAR; sooner++)
			h->hands.nearer(h->hands.self, &b->entry[sooner], sooner % LG_PD_SLOTS);
		*rc = h->hands.work(h->hands.self, &b->entry[i], i % LG_PD_SLOTS);
	}
}

static void *run(void *arg)
{
	struct lg_pd_handover *h = arg;
	int rc = 0;

	pthread_mutex_lock(&h->lock);
	for (;;) {
		struct batch *b;

		while (h->done == h->given && !h->end) {
			h->asleep = true;
			pthread_cond_wait(&h->filled, &h->lock);
			h->asleep = false;
		}
		if (h->done == h->given)
			break;
		b = &h->batch[h->done % BATCHES];
		pthread_mutex_unlock(&h->lock);
		work_off(h, b, &rc);
		pthread_mutex_lock(&h->lock);
		h->rc = rc;
		h->done++;
		if (h->waiting && h->given - h->done <= h->left)
			pthread_cond_signal(&h->emptied);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

int lg_pd_handover_new(struct lg_pd_handover **ret, struct lg_pd_pool *pool, const struct lg_pd_hands *hands,
		       struct lg_error *err)
{
	struct lg_pd_handover *h = lg_calloc(1, sizeof *h);

	if (h)
		h->batch = lg_calloc(BATCHES, sizeof *h->batch);
	if (!h || !h->batch) {
		lg_free(h);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	h->pool = pool;
	h->hands = *hands;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->filled, NULL);
	pthread_cond_init(&h->emptied, NULL);
	*ret = h;
	return 0;
}

static void start(struct lg_pd_handover *h)
{
	sigset_t all, old;

	h->tried = true;
	/* Signals are the reader's business: what they interrupt there, this thread must not swallow. But a
	 * fault is of who reads, and ends the process where it is blocked: symbols/shrunk.h takes SIGBUS. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	h->threaded = !pthread_create(&h->thread, NULL, run, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Give back the blocks of what has been worked off. */
static void drop(struct lg_pd_handover *h, size_t done)
{
	for (; h->dropped < done; h->dropped++) {
		struct batch *b = &h->batch[h->dropped % BATCHES];

		for (size_t i = 0; i < b->n; i++)
			lg_pd_block_drop(h->pool, b->entry[i].entry.block);
		b->n = 0;
	}
}

/* The batch being filled, by this thread. */
static int work_alone(struct lg_pd_handover *h)
{
	struct batch *b = &h->batch[h->given % BATCHES];

	if (!b->n) /* of those given are counted that had records: a thread is for many */
		return h->rc;
	work_off(h, b, &h->rc);
	h->done = ++h->given;
	drop(h, h->done);
	return h->rc;
}

/* Hand the batch being filled over; returns with the next place empty, or all of them. */
static int give(struct lg_pd_handover *h, bool all)
{
	size_t done;
	int rc;

	if (h->hands.complete)
		h->hands.complete(h->hands.self);
	if (!h->threaded && !h->tried && h->given == ALONE)
		start(h);
	if (!h->threaded)
		return work_alone(h);
	pthread_mutex_lock(&h->lock);
	if (h->batch[h->given % BATCHES].n) {
		h->given++;
		if (h->asleep)
			pthread_cond_signal(&h->filled);
	}
	h->left = all ? 0 : ROOM;
	if (all || h->given - h->done == BATCHES) {
		h->waiting = true;
		while (h->given - h->done > h->left)
			pthread_cond_wait(&h->emptied, &h->lock);
		h->waiting = false;
	}
	done = h->done;
	rc = h->rc;
	pthread_mutex_unlock(&h->lock);
	drop(h, done);
	return rc;
}

int lg_pd_handover_add(struct lg_pd_handover *h, const struct lg_pd_entry *e, struct lg_pd_handed **ret)
{
	struct batch *b = &h->batch[h->given % BATCHES];

	if (__builtin_expect(b->n == BATCH, 0)) {
		int rc = give(h, false);

		if (rc)
			return rc;
		b = &h->batch[h->given % BATCHES];
	}
	lg_pd_block_hold(e->block);
	*ret = &b->entry[b->n++];
	**ret = (struct lg_pd_handed){ .entry = *e };
	return 0;
}

int lg_pd_handover_wait(struct lg_pd_handover *h)
{
	return give(h, true);
}

void lg_pd_handover_free(struct lg_pd_handover *h)
{
	if (!h)
		return;
	(void)give(h, true);
	if (h->threaded) {
		pthread_mutex_lock(&h->lock);
		h->end = true;
		pthread_cond_signal(&h->filled);
		pthread_mutex_unlock(&h->lock);
		pthread_join(h->thread, NULL);
	}
	pthread_cond_destroy(&h->filled);
	pthread_cond_destroy(&h->emptied);
	pthread_mutex_destroy(&h->lock);
	lg_free(h->batch);
	lg_free(h);
}
