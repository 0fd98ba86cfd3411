/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_order.h"

#include "base/alloc.h"

static int reserve_tmp(struct lg_pd_order *o)
{
	return lg_grow(&o->tmp, &o->tmp_cap, o->n, sizeof *o->tmp);
}

static size_t run_end(const struct lg_pd_entry *e, size_t i, size_t n)
{
	for (i++; i < n && e[i].ts >= e[i - 1].ts; i++)
		;
	return i;
}

/* One pass: neighbouring runs of from[] are merged into to[]. Returns the number of runs left. */
static size_t merge_pass(const struct lg_pd_entry *from, struct lg_pd_entry *to, size_t n)
{
	size_t runs = 0;

	for (size_t a = 0, mid, end; a < n; a = end, runs++) {
		size_t i = a, k, out = a;

		mid = run_end(from, a, n);
		end = mid < n ? run_end(from, mid, n) : n;
		k = mid;
		while (i < mid && k < end)
			to[out++] = from[i].ts <= from[k].ts ? from[i++] : from[k++];
		memcpy(to + out, from + i, (mid - i) * sizeof *to);
		memcpy(to + out + (mid - i), from + k, (end - k) * sizeof *to);
	}
	return runs;
}

/* Natural merge sort, stable: what waits is one sorted run per CPU and round. */
static int sort(struct lg_pd_order *o)
{
	if (run_end(o->entry, 0, o->n) == o->n)
		return 0;
	if (reserve_tmp(o))
		return LG_E_NOMEM;
	do {
		struct lg_pd_entry *swap = o->entry;
		size_t cap = o->cap, runs = merge_pass(o->entry, o->tmp, o->n);

		o->entry = o->tmp;
		o->cap = o->tmp_cap;
		o->tmp = swap;
		o->tmp_cap = cap;
		if (runs <= 1)
			return 0;
	} while (1);
}

static int hand_out(struct lg_pd_order *o, size_t n)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < n && !rc; i++) {
		const struct lg_pd_entry *e = &o->entry[i];

		if (e->ts < o->delivered)
			o->late++;
		else
			o->delivered = e->ts;
		rc = o->deliver(o->self, e);
		lg_pd_block_drop(o->pool, e->block);
	}
	o->n -= i;
	memmove(o->entry, o->entry + i, o->n * sizeof *o->entry);
	return rc;
}

static int deliver_upto(struct lg_pd_order *o, uint64_t limit)
{
	size_t lo = 0, hi = o->n;
	int rc;

	if (!o->n)
		return 0;
	rc = sort(o);
	if (rc)
		return rc;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (o->entry[mid].ts <= limit)
			lo = mid + 1;
		else
			hi = mid;
	}
	return hand_out(o, lo);
}

/* No end of a round came for long: hand out the older half. */
static int squeeze(struct lg_pd_order *o)
{
	int rc = sort(o);

	if (!rc)
		rc = hand_out(o, o->n / 2 + 1);
	o->bytes /= 2;
	return rc;
}

int lg_pd_order_add(struct lg_pd_order *o, const struct lg_pd_record *r, uint64_t ts)
{
	if (__builtin_expect(o->n >= o->cap, 0) &&
	    lg_grow(&o->entry, &o->cap, o->n + 1, sizeof *o->entry))
		return LG_E_NOMEM;
	lg_pd_block_hold(r->block);
	o->entry[o->n++] = (struct lg_pd_entry){ ts, r->p, r->block, r->offset };
	o->bytes += r->size;
	if (ts > o->newest)
		o->newest = ts;
	return __builtin_expect(o->bytes > o->window, 0) ? squeeze(o) : 0;
}

int lg_pd_order_round(struct lg_pd_order *o)
{
	int rc = deliver_upto(o, o->final);

	o->final = o->newest;
	o->bytes = 0;
	return rc;
}

int lg_pd_order_flush(struct lg_pd_order *o)
{
	o->bytes = 0;
	return deliver_upto(o, UINT64_MAX);
}

void lg_pd_order_done(struct lg_pd_order *o)
{
	for (size_t i = 0; i < o->n; i++)
		lg_pd_block_drop(o->pool, o->entry[i].block);
	lg_free(o->entry);
	lg_free(o->tmp);
	o->entry = o->tmp = NULL;
	o->n = o->cap = o->tmp_cap = 0;
}
