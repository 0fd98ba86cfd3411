/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_order.c - what waits is one sorted run per CPU and round: the runs are merged while they are
 * handed out, so that nothing but the records themselves and their list takes room.
 *
 * I1  entry[0..n) is in the order in which the records were read; runs are maximal stretches of it
 *     whose times do not fall, found anew each time.
 * I2  heap[0..n_heap) holds the runs that have something left, the one with the least (time, run)
 *     first: of equal times the one read first is handed out first.
 */
#include "import/perfdata/perf_order.h"

#include "base/alloc.h"

struct lg_pd_run {
	uint32_t at, end; /* what is left of it */
};

struct lg_pd_head {
	uint64_t ts; /* of the first that is left */
	uint32_t run;
};

static size_t run_end(const struct lg_pd_entry *e, size_t i, size_t n)
{
	for (i++; i < n && e[i].ts >= e[i - 1].ts; i++)
		;
	return i;
}

static inline bool before(struct lg_pd_head a, struct lg_pd_head b)
{
	return a.ts != b.ts ? a.ts < b.ts : a.run < b.run;
}

static inline void sift_down(struct lg_pd_order *o, size_t i, struct lg_pd_head moved)
{
	for (;;) {
		size_t k = 2 * i + 1;

		if (k >= o->n_heap)
			break;
		if (k + 1 < o->n_heap && before(o->heap[k + 1], o->heap[k]))
			k++;
		if (!before(o->heap[k], moved))
			break;
		o->heap[i] = o->heap[k];
		i = k;
	}
	o->heap[i] = moved;
}

static int find_runs(struct lg_pd_order *o)
{
	size_t n = 0;

	if (o->n > UINT32_MAX)
		return LG_E_NOMEM;
	for (size_t i = 0, end; i < o->n; i = end) {
		end = run_end(o->entry, i, o->n);
		if (lg_grow(&o->run, &o->run_cap, n + 1, sizeof *o->run))
			return LG_E_NOMEM;
		o->run[n++] = (struct lg_pd_run){ (uint32_t)i, (uint32_t)end };
	}
	if (lg_grow(&o->heap, &o->heap_cap, n, sizeof *o->heap))
		return LG_E_NOMEM;
	o->n_run = o->n_heap = n;
	for (size_t i = 0; i < n; i++)
		o->heap[i] = (struct lg_pd_head){ o->entry[o->run[i].at].ts, (uint32_t)i };
	for (size_t i = n / 2; i-- > 0;)
		sift_down(o, i, o->heap[i]);
	return 0;
}

/* Close the gaps that what was handed out left. */
static void close_up(struct lg_pd_order *o)
{
	size_t n = 0;

	for (size_t i = 0; i < o->n_run; i++) {
		size_t left = o->run[i].end - o->run[i].at;

		memmove(o->entry + n, o->entry + o->run[i].at, left * sizeof *o->entry);
		n += left;
	}
	o->n = n;
}

/* At most `most` records, oldest first, none younger than limit. */
static int hand_out(struct lg_pd_order *o, uint64_t limit, size_t most)
{
	int rc;

	if (!o->n)
		return 0;
	rc = find_runs(o);
	if (rc)
		return rc;
	for (; most && o->n_heap && !rc; most--) {
		struct lg_pd_head head = o->heap[0];
		struct lg_pd_run *r = &o->run[head.run];
		const struct lg_pd_entry *e = &o->entry[r->at];

		if (e->ts > limit)
			break;
		if (e->ts < o->delivered)
			o->late++;
		else
			o->delivered = e->ts;
		rc = o->deliver(o->self, e);
		lg_pd_block_drop(o->pool, e->block);
		if (++r->at < r->end)
			head.ts = o->entry[r->at].ts;
		else
			head = o->heap[--o->n_heap];
		sift_down(o, 0, head);
	}
	close_up(o);
	return rc;
}

/* No end of a round came for long: hand out the older half. */
static int squeeze(struct lg_pd_order *o)
{
	int rc = hand_out(o, UINT64_MAX, o->n / 2 + 1);

	o->bytes /= 2;
	return rc;
}

struct lg_pd_entry *lg_pd_order_grow(struct lg_pd_order *o)
{
	return lg_grow(&o->entry, &o->cap, o->n + 1, sizeof *o->entry) ? NULL : &o->entry[o->n];
}

int lg_pd_order_add(struct lg_pd_order *o, uint16_t size)
{
	const struct lg_pd_entry *e = &o->entry[o->n++];

	lg_pd_block_hold(e->block);
	o->bytes += size;
	if (e->ts > o->newest)
		o->newest = e->ts;
	return __builtin_expect(o->bytes > o->window, 0) ? squeeze(o) : 0;
}

void lg_pd_order_take_back(struct lg_pd_order *o, uint16_t size)
{
	lg_pd_block_drop(o->pool, o->entry[--o->n].block);
	o->bytes -= size < o->bytes ? size : o->bytes;
}

int lg_pd_order_round(struct lg_pd_order *o)
{
	int rc = hand_out(o, o->final, SIZE_MAX);

	o->final = o->newest;
	o->bytes = 0;
	return rc;
}

int lg_pd_order_until(struct lg_pd_order *o, uint64_t limit)
{
	size_t n = o->n;
	int rc = hand_out(o, limit, SIZE_MAX);

	/* Records know their sizes, their list does not: those that wait have the size of all. */
	o->bytes = n ? (size_t)((double)o->bytes * (double)o->n / (double)n) : 0;
	return rc;
}

int lg_pd_order_flush(struct lg_pd_order *o)
{
	o->bytes = 0;
	return hand_out(o, UINT64_MAX, SIZE_MAX);
}

void lg_pd_order_done(struct lg_pd_order *o)
{
	for (size_t i = 0; i < o->n; i++)
		lg_pd_block_drop(o->pool, o->entry[i].block);
	lg_free(o->entry);
	lg_free(o->run);
	lg_free(o->heap);
	o->entry = NULL;
	o->run = NULL;
	o->heap = NULL;
	o->n = o->cap = o->run_cap = o->heap_cap = 0;
}
