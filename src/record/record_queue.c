/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_queue.c - natural merge sort of pushed records, a round at a time.
 *
 *   items  [ left over from the last round, sorted | CPU 0's run | CPU 1's run | ... ]
 *   bytes  [ record | record | ... ]    items point into it; records are 8-byte aligned
 *
 * A drain visits one ring after the other and every ring is in time order, so the items are k
 * sorted runs: merging neighbours pairwise costs n * log2(k) and no comparison is wasted on what
 * is in order already. What is not handed out yet is copied to a fresh buffer once a round.
 *
 * I1  items[0 .. n_sorted) are in time order.
 * I2  used + the item arrays stay below max; a push over that is dropped and counted.
 */
#include "record/record_queue.h"

#include <string.h>

#include "base/alloc.h"

struct item {
	int64_t ts;
	uint32_t off8; /* of the record in bytes, in units of 8 */
	uint32_t len : 24, src : 7, late_ok : 1;
};

struct lg_queue {
	size_t max;
	struct item *items, *spare;
	size_t n, cap, spare_cap, n_sorted;
	char *bytes, *spare_bytes;
	size_t used, bytes_cap, spare_bytes_cap;
	size_t *runs; /* ends of the sorted runs */
	size_t runs_cap;
	int64_t handed_out; /* newest time given to a feed */
	struct lg_queue_loss loss[LG_QUEUE_SOURCES];
};

static const struct lg_queue_loss no_loss = { .first = INT64_MAX, .last = INT64_MIN };

int lg_queue_new(struct lg_queue **ret, size_t max_bytes, struct lg_error *err)
{
	struct lg_queue *q = lg_calloc(1, sizeof *q);

	if (!q)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* off8 reaches 32 GiB; nobody wants a queue of that size. */
	q->max = max_bytes < (1u << 16) ? 1u << 16 : max_bytes;
	q->handed_out = INT64_MIN;
	for (unsigned i = 0; i < LG_QUEUE_SOURCES; i++)
		q->loss[i] = no_loss;
	*ret = q;
	return 0;
}

void lg_queue_free(struct lg_queue *q)
{
	if (!q)
		return;
	lg_free(q->items);
	lg_free(q->spare);
	lg_free(q->bytes);
	lg_free(q->spare_bytes);
	lg_free(q->runs);
	lg_free(q);
}

static void lose(struct lg_queue *q, unsigned src, int64_t ts, bool late)
{
	struct lg_queue_loss *l = &q->loss[src];

	if (late)
		l->late++;
	else
		l->full++;
	if (ts < l->first)
		l->first = ts;
	if (ts > l->last)
		l->last = ts;
}

void lg_queue_push(struct lg_queue *q, unsigned src, bool late_ok, int64_t ts, const void *rec,
		   size_t n)
{
	size_t room = (n + 7) & ~(size_t)7;

	if (src >= LG_QUEUE_SOURCES)
		return;
	if (n >= 1u << 24 || q->used + room + (q->n + 1) * sizeof *q->items > q->max ||
	    lg_grow(&q->bytes, &q->bytes_cap, q->used + room, 1) ||
	    lg_grow(&q->items, &q->cap, q->n + 1, sizeof *q->items)) {
		lose(q, src, ts, false);
		return;
	}
	memcpy(q->bytes + q->used, rec, n);
	q->items[q->n++] = (struct item){ .ts = ts,
					  .off8 = (uint32_t)(q->used / 8),
					  .len = (uint32_t)n & 0xffffffu,
					  .src = src & 0x7fu,
					  .late_ok = late_ok };
	q->used += room;
}

static void merge(const struct item *a, size_t na, const struct item *b, size_t nb,
		  struct item *out)
{
	while (na && nb) {
		if (b->ts < a->ts) {
			*out++ = *b++;
			nb--;
		} else {
			*out++ = *a++;
			na--;
		}
	}
	memcpy(out, a, na * sizeof *a);
	memcpy(out + na, b, nb * sizeof *b);
}

/* 0, or LG_E_NOMEM with the items untouched. */
static int sort_items(struct lg_queue *q)
{
	size_t n_runs = 0;

	for (size_t i = q->n_sorted > 1 ? q->n_sorted : 1; i <= q->n; i++) {
		if (i < q->n && q->items[i].ts >= q->items[i - 1].ts)
			continue;
		if (lg_grow(&q->runs, &q->runs_cap, n_runs + 1, sizeof *q->runs))
			return LG_E_NOMEM;
		q->runs[n_runs++] = i;
	}
	if (n_runs > 1 && lg_grow(&q->spare, &q->spare_cap, q->cap, sizeof *q->spare))
		return LG_E_NOMEM;
	while (n_runs > 1) {
		size_t from = 0, k = 0;
		struct item *was = q->items;
		size_t was_cap = q->cap;

		for (size_t i = 0; i < n_runs; i += 2) {
			size_t mid = q->runs[i];
			size_t end = i + 1 < n_runs ? q->runs[i + 1] : mid;

			merge(q->items + from, mid - from, q->items + mid, end - mid,
			      q->spare + from);
			q->runs[k++] = end;
			from = end;
		}
		n_runs = k;
		q->items = q->spare;
		q->cap = q->spare_cap;
		q->spare = was;
		q->spare_cap = was_cap;
	}
	q->n_sorted = q->n;
	return 0;
}

/* Copy what items[first ..] points at to the other buffer, so that the queue starts small again. */
static void keep_from(struct lg_queue *q, size_t first)
{
	size_t used = 0;
	char *was = q->bytes;
	size_t was_cap = q->bytes_cap;

	if (first == q->n) {
		q->n = q->n_sorted = q->used = 0;
		return;
	}
	if (!first)
		return;
	for (size_t i = first; i < q->n; i++)
		used += ((size_t)q->items[i].len + 7) & ~(size_t)7;
	/* Without memory for the copy the bytes stay where they are: bounded by max all the same. */
	if (!lg_grow(&q->spare_bytes, &q->spare_bytes_cap, used ? used : 1, 1)) {
		used = 0;
		for (size_t i = first; i < q->n; i++) {
			struct item *it = &q->items[i];

			memcpy(q->spare_bytes + used, q->bytes + (size_t)it->off8 * 8, it->len);
			it->off8 = (uint32_t)(used / 8);
			used += ((size_t)it->len + 7) & ~(size_t)7;
		}
		q->bytes = q->spare_bytes;
		q->bytes_cap = q->spare_bytes_cap;
		q->spare_bytes = was;
		q->spare_bytes_cap = was_cap;
		q->used = used;
	}
	memmove(q->items, q->items + first, (q->n - first) * sizeof *q->items);
	q->n -= first;
	q->n_sorted = q->n;
}

enum { AHEAD = 8 }; /* records that are called into the cache before their turn */

void lg_queue_round(struct lg_queue *q, int64_t cutoff,
		    void (*feed)(void *arg, unsigned src, int64_t ts, const void *rec, size_t n),
		    void *arg)
{
	size_t i;

	if (!q->n)
		return;
	if (sort_items(q)) {
		/* Order cannot be had: nothing may be fed, and the loss must be seen. */
		for (i = 0; i < q->n; i++)
			lose(q, q->items[i].src, q->items[i].ts, false);
		q->n = q->n_sorted = q->used = 0;
		return;
	}
	for (i = 0; i < q->n && q->items[i].ts < cutoff; i++) {
		const struct item *it = &q->items[i];

		if (i + AHEAD < q->n)
			__builtin_prefetch(q->bytes + (size_t)q->items[i + AHEAD].off8 * 8);
		if (it->ts < q->handed_out && !it->late_ok) {
			lose(q, it->src, it->ts, true);
			continue;
		}
		if (it->ts > q->handed_out)
			q->handed_out = it->ts;
		feed(arg, it->src, it->ts, q->bytes + (size_t)it->off8 * 8, it->len);
	}
	keep_from(q, i);
}

size_t lg_queue_bytes(const struct lg_queue *q)
{
	return q->used + q->n * sizeof *q->items;
}

struct lg_queue_loss lg_queue_losses(struct lg_queue *q, unsigned src)
{
	struct lg_queue_loss l = q->loss[src];

	q->loss[src] = no_loss;
	return l;
}
