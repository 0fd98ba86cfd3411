/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c - counting sort of row numbers into lists, of half of the rows in each of two threads. The
 * tables are sorted by ts already, so filling each list in row order leaves it sorted.
 */
#include "store/index.h"

#include <string.h>

#include "base/alloc.h"
#include "base/side_thread.h"
#include "base/map.h"

/* CPU numbers above this come from damaged input (NR_CPUS of the kernel is at most 8192). */
enum { CPUS_MAX = 8192 };

/* key(row) for each table: which list a row belongs to; UINT32_MAX = none. */
struct keys {
	const struct lg_index *x;
	const uint32_t *ids; /* a table's id column; NULL: CPU key */
};

static uint32_t cpu_key(const struct lg_index *x, size_t row)
{
	const struct lg_state_tab *s = &x->t->state;
	int32_t cpu = s->cpu[row];

	if (s->kind[row] != LG_RUNNING || (s->flags[row] & LG_STATE_SUMMED) || cpu < 0 ||
	    (uint32_t)cpu >= x->n_cpu)
		return UINT32_MAX;
	return x->host_of[x->t->thread.prc[s->thr[row]]] * x->n_cpu + (uint32_t)cpu;
}

static inline uint32_t key_of(const struct keys *k, size_t row)
{
	return k->ids ? k->ids[row] : cpu_key(k->x, row);
}

/* Rows [from, to): how many are in each list, then where the next one of each list goes. */
struct half {
	const struct keys *k;
	size_t from, to;
	uint32_t *at, *row;
	struct lg_span_at *span_at; /* NULL: not of spans */
};

static void count(void *arg)
{
	struct half *h = arg;

	for (size_t i = h->from; i < h->to; i++) {
		uint32_t key = key_of(h->k, i);

		if (key != UINT32_MAX)
			h->at[key]++;
	}
}

static void fill(void *arg)
{
	struct half *h = arg;

	for (size_t i = h->from; i < h->to; i++) {
		uint32_t key = key_of(h->k, i);

		if (key != UINT32_MAX)
			h->row[h->at[key]++] = (uint32_t)i;
	}
}

static void fill_spans(void *arg)
{
	struct half *h = arg;
	const struct lg_span_tab *s = &h->k->x->t->span;

	for (size_t i = h->from; i < h->to; i++) {
		uint32_t p = h->at[s->thr[i]]++;

		h->row[p] = (uint32_t)i;
		h->span_at[p] = (struct lg_span_at){ s->ts[i], s->dur[i], s->name[i], s->kind[i],
						     s->stage[i] };
	}
}

static void both(struct half half[2], void (*work)(void *arg))
{
	enum { WORTH_A_THREAD = 1 << 17 };
	struct lg_side_thread beside;

	lg_side_thread_start(&beside, half[1].to >= WORTH_A_THREAD, work, &half[1]);
	work(&half[0]);
	lg_side_thread_wait(&beside);
}

/* ret_span_at: where the rows are spans, by thread; else NULL. */
static int lists_of(struct keys k, size_t n_rows, size_t n_lists, uint32_t **ret_off, uint32_t **ret_row,
		    struct lg_span_at **ret_span_at)
{
	uint32_t *off = lg_calloc(n_lists + 1, sizeof *off), *at = lg_calloc(n_lists + 1, 2 * sizeof *at);
	struct half half[2] = { { .k = &k, .to = n_rows / 2, .at = at },
				{ .k = &k, .from = n_rows / 2, .to = n_rows } };
	uint32_t sum = 0;

	/* Handed over at once, so that lg_index_free() releases it after a failure. */
	*ret_off = off;
	if (off && at) {
		half[1].at = at + n_lists;
		both(half, count);
		for (size_t i = 0; i < n_lists; i++) {
			uint32_t first = half[0].at[i], second = half[1].at[i];

			off[i] = half[0].at[i] = sum;
			half[1].at[i] = sum + first;
			sum += first + second;
		}
		off[n_lists] = sum;
		*ret_row = half[0].row = half[1].row = lg_calloc(sum, sizeof **ret_row);
	}
	if (*ret_row && ret_span_at)
		*ret_span_at = half[0].span_at = half[1].span_at = lg_calloc(sum, sizeof **ret_span_at);
	if (*ret_row && ret_span_at && *ret_span_at)
		both(half, fill_spans);
	else if (*ret_row && !ret_span_at)
		both(half, fill);
	lg_free(at);
	return *ret_row && (!ret_span_at || *ret_span_at) ? 0 : LG_E_NOMEM;
}

static int lists(struct keys k, size_t n_rows, size_t n_lists, uint32_t **ret_off, uint32_t **ret_row)
{
	return lists_of(k, n_rows, n_lists, ret_off, ret_row, NULL);
}

int lg_index_lists(const uint32_t *ids, size_t n_rows, size_t n_lists, uint32_t **ret_off, uint32_t **ret_row)
{
	return lists((struct keys){ .ids = ids }, n_rows, n_lists, ret_off, ret_row);
}

static int number_hosts(struct lg_index *x)
{
	const struct lg_process_tab *p = &x->t->process;
	struct lg_map seen = { 0 };
	int rc = 0;

	x->host_of = lg_calloc(p->n, sizeof *x->host_of);
	if (!x->host_of)
		return LG_E_NOMEM;
	for (size_t i = 1; i < p->n && !rc; i++) {
		uint32_t h = lg_map_get(&seen, p->host[i]);

		if (!h) {
			h = ++x->n_host;
			rc = lg_map_set(&seen, p->host[i], h);
		}
		x->host_of[i] = h - 1;
	}
	if (!x->n_host)
		x->n_host = 1;
	lg_map_done(&seen);
	return rc;
}

/* span_reach[k]: up to the end of block k of positions, of the list that goes on there. One for each position
 * would be a tenth of all that a trace of spans needs. */
enum { REACH = 16 };

static int64_t end_at(const struct lg_index *x, uint32_t p)
{
	const struct lg_span_at *s = &x->span_at[p];

	return s->dur < 0 ? INT64_MAX : s->ts + s->dur;
}

static int reach(struct lg_index *x)
{
	x->span_reach = lg_calloc(x->span_off[x->n_thr] / REACH + 1, sizeof *x->span_reach);
	if (!x->span_reach)
		return LG_E_NOMEM;
	for (size_t thr = 0; thr < x->n_thr; thr++) {
		int64_t max = INT64_MIN;

		for (uint32_t p = x->span_off[thr]; p < x->span_off[thr + 1]; p++) {
			int64_t end = end_at(x, p);

			max = end > max ? end : max;
			x->span_reach[p / REACH] = max;
		}
	}
	return 0;
}

int64_t lg_index_span_reach(const struct lg_index *x, uint32_t first, uint32_t p)
{
	uint32_t from = p - p % REACH;
	int64_t max = from > first ? x->span_reach[from / REACH - 1] : INT64_MIN;

	for (uint32_t k = from > first ? from : first; k <= p; k++)
		max = end_at(x, k) > max ? end_at(x, k) : max;
	return max;
}

/* The LG_THREAD_MAIN row, else the row whose tid is the pid; the newest wins (exec keeps both). */
static int main_threads(struct lg_index *x)
{
	const struct lg_trace *t = x->t;

	x->main_of = lg_calloc(t->process.n, sizeof *x->main_of);
	if (!x->main_of)
		return LG_E_NOMEM;
	for (size_t i = 1; i < t->thread.n; i++) {
		lg_prc p = t->thread.prc[i];

		if (p && ((t->thread.flags[i] & LG_THREAD_MAIN) ||
			  t->thread.tid[i] == t->process.pid[p]))
			x->main_of[p] = (uint32_t)i;
	}
	return 0;
}

/* Empty tables have no id column (NULL): their lists are empty all the same. */
static int none(const struct lg_index *x, uint32_t **off, uint32_t **list)
{
	if (*off)
		return 0;
	*off = lg_calloc(x->n_thr + 2, sizeof **off);
	*list = lg_calloc(1, sizeof **list);
	return *off && *list ? 0 : LG_E_NOMEM;
}

int lg_index_new(struct lg_index **ret, const struct lg_trace *t, struct lg_error *err)
{
	struct lg_index *x = lg_calloc(1, sizeof *x);
	struct keys k = { .x = x };

	if (!x)
		goto fail;
	x->t = t;
	x->n_thr = t->thread.n;
	for (size_t i = 0; i < t->state.n; i++) {
		int32_t cpu = t->state.cpu[i];

		if (cpu >= 0 && cpu < CPUS_MAX && (uint32_t)cpu >= x->n_cpu)
			x->n_cpu = (uint32_t)cpu + 1;
	}
	if (number_hosts(x))
		goto fail;
	k.ids = t->state.thr;
	if (t->state.n && lists(k, t->state.n, x->n_thr, &x->state_off, &x->state))
		goto fail;
	k.ids = t->span.thr;
	if (t->span.n && lists_of(k, t->span.n, x->n_thr, &x->span_off, &x->span, &x->span_at))
		goto fail;
	k.ids = t->sample.thr;
	if (t->sample.n && lists(k, t->sample.n, x->n_thr, &x->sample_off, &x->sample))
		goto fail;
	k.ids = t->thread.prc;
	if (lists(k, t->thread.n, t->process.n, &x->thread_off, &x->thread))
		goto fail;
	k.ids = t->meta.prc;
	if (lists(k, t->meta.n, t->process.n, &x->meta_off, &x->meta))
		goto fail;
	k.ids = t->counter.track;
	if (lists(k, t->counter.n, t->track.n, &x->counter_off, &x->counter))
		goto fail;
	k.ids = NULL;
	if (lists(k, t->state.n, (size_t)x->n_host * x->n_cpu, &x->cpu_off, &x->cpu))
		goto fail;
	if (none(x, &x->state_off, &x->state) || none(x, &x->span_off, &x->span) ||
	    none(x, &x->sample_off, &x->sample))
		goto fail;
	if (reach(x) || main_threads(x))
		goto fail;
	*ret = x;
	return 0;
fail:
	lg_index_free(x);
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

void lg_index_free(struct lg_index *x)
{
	if (!x)
		return;
	lg_free(x->state_off);
	lg_free(x->state);
	lg_free(x->span_off);
	lg_free(x->span);
	lg_free(x->span_at);
	lg_free(x->span_reach);
	lg_free(x->sample_off);
	lg_free(x->sample);
	lg_free(x->main_of);
	lg_free(x->thread_off);
	lg_free(x->thread);
	lg_free(x->meta_off);
	lg_free(x->meta);
	lg_free(x->counter_off);
	lg_free(x->counter);
	lg_free(x->cpu_off);
	lg_free(x->cpu);
	lg_free(x->host_of);
	lg_free(x);
}

/* First position in [lo, hi) whose ts is above (or_equal: at or above) the given one. */
static uint32_t bound(const uint32_t *list, uint32_t lo, uint32_t hi, const int64_t *ts, int64_t at,
		      int or_equal)
{
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int64_t v = ts[list[mid]];

		if (or_equal ? v >= at : v > at)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* First position of a list without overlaps whose row ends after ts: the last row that starts at
 * or before ts, where it reaches beyond it, else the next one. */
static uint32_t ends_after(const struct lg_state_tab *s, const uint32_t *list, uint32_t first,
			   uint32_t end, int64_t ts)
{
	uint32_t p = bound(list, first, end, s->ts, ts, 0);

	if (p > first) {
		uint32_t row = list[p - 1];

		if (s->dur[row] < 0 || s->ts[row] + s->dur[row] > ts)
			return p - 1;
	}
	return p;
}

uint32_t lg_index_state_from(const struct lg_index *x, lg_thr thr, int64_t ts)
{
	return ends_after(&x->t->state, x->state, x->state_off[thr], x->state_off[thr + 1], ts);
}

uint32_t lg_index_state_at(const struct lg_index *x, lg_thr thr, int64_t ts)
{
	uint32_t p = lg_index_state_from(x, thr, ts);

	if (p == x->state_off[thr + 1] || x->t->state.ts[x->state[p]] > ts)
		return LG_NO_ROW;
	return x->state[p];
}

uint32_t lg_index_span_from(const struct lg_index *x, lg_thr thr, int64_t ts)
{
	uint32_t first = x->span_off[thr], lo = first, hi = x->span_off[thr + 1];

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (lg_index_span_reach(x, first, mid) > ts)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

uint32_t lg_index_sample_from(const struct lg_index *x, lg_thr thr, int64_t ts)
{
	return bound(x->sample, x->sample_off[thr], x->sample_off[thr + 1], x->t->sample.ts, ts, 1);
}

uint32_t lg_index_cpu_from(const struct lg_index *x, lg_thr of, int32_t cpu, int64_t ts,
			   uint32_t *ret_end)
{
	size_t list;

	*ret_end = 0;
	if (cpu < 0 || (uint32_t)cpu >= x->n_cpu)
		return 0;
	list = (size_t)x->host_of[x->t->thread.prc[of]] * x->n_cpu + (uint32_t)cpu;
	*ret_end = x->cpu_off[list + 1];
	return ends_after(&x->t->state, x->cpu, x->cpu_off[list], x->cpu_off[list + 1], ts);
}

uint32_t lg_index_cpu_at(const struct lg_index *x, lg_thr of, int32_t cpu, int64_t ts)
{
	uint32_t end, p = lg_index_cpu_from(x, of, cpu, ts, &end);

	if (p >= end || x->t->state.ts[x->cpu[p]] > ts)
		return LG_NO_ROW;
	return x->cpu[p];
}

const char *lg_index_fact(const struct lg_index *x, lg_prc prc, const char *key)
{
	const struct lg_meta_tab *m = &x->t->meta;
	const char *value = NULL;

	LG_LISTED(i, x->meta, prc) {
		if (!strcmp(lg_string(x->t, m->key[i]), key))
			value = lg_string(x->t, m->value[i]);
	}
	return value;
}
