/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seal.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/side_thread.h"

/*
 * Stable sort of row numbers by ts. State rows are written when they end, so their starts are
 * locally out of order everywhere (no long sorted runs): least-significant-digit radix sort, which
 * costs the same for any order; digits that all keys share are skipped, 60 s of recording need 4.
 */
static int by_digits(const int64_t *ts, size_t n, uint32_t *idx, uint32_t *tmp)
{
	enum { BITS = 11, BUCKETS = 1 << BITS };
	uint32_t *src = idx, *dst = tmp;
	uint32_t *count = lg_calloc(BUCKETS, sizeof *count);
	int64_t min = INT64_MAX, max = INT64_MIN;

	if (!count)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		idx[i] = (uint32_t)i;
		min = ts[i] < min ? ts[i] : min;
		max = ts[i] > max ? ts[i] : max;
	}
	for (unsigned shift = 0; shift < 64; shift += BITS) {
		uint32_t *swap, sum = 0;

		if (((uint64_t)max - (uint64_t)min) >> shift == 0)
			break;
		memset(count, 0, BUCKETS * sizeof *count);
		for (size_t i = 0; i < n; i++)
			count[((uint64_t)ts[i] - (uint64_t)min) >> shift & (BUCKETS - 1)]++;
		for (size_t k = 0; k < BUCKETS; k++) {
			uint32_t c = count[k];

			count[k] = sum;
			sum += c;
		}
		for (size_t i = 0; i < n; i++) {
			uint64_t key = (uint64_t)ts[src[i]] - (uint64_t)min;

			dst[count[key >> shift & (BUCKETS - 1)]++] = src[i];
		}
		swap = src;
		src = dst;
		dst = swap;
	}
	if (src != idx)
		memcpy(idx, src, n * sizeof *idx);
	lg_free(count);
	return 0;
}

/*
 * A profiler's trace is a few lists (its threads, its streams) dealt out in turns: each row goes behind
 * the latest row that is not later than it, and the few lists that come of that are merged. Lists are
 * ordered by their last row, latest first: who comes first in the file is in an earlier list or further
 * ahead in the same, so that equal times keep their order. false: more lists than that; idx is not set.
 */
static bool by_lists(const int64_t *ts, size_t n, uint32_t *idx, uint32_t *next)
{
	enum { LISTS = 24 };
	uint32_t head[LISTS], tail[LISTS];
	int64_t last[LISTS], first[LISTS];
	size_t lists = 0, out = 0;

	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < lists && last[k] > ts[i])
			k++;
		if (k == lists) {
			if (lists == LISTS)
				return false;
			head[lists] = (uint32_t)i;
			first[lists++] = ts[i];
		} else {
			next[tail[k]] = (uint32_t)i;
		}
		tail[k] = (uint32_t)i;
		last[k] = ts[i];
	}
	while (lists) {
		size_t min = 0, also = lists;

		/* The list that goes on, and the one that interrupts it. */
		for (size_t k = 1; k < lists; k++) {
			if (first[k] < first[min]) {
				also = min;
				min = k;
			} else if (also == lists || first[k] < first[also]) {
				also = k;
			}
		}
		for (;;) {
			uint32_t row = head[min];

			idx[out++] = row;
			if (row == tail[min]) {
				lists--;
				memmove(head + min, head + min + 1, (lists - min) * sizeof *head);
				memmove(tail + min, tail + min + 1, (lists - min) * sizeof *tail);
				memmove(first + min, first + min + 1, (lists - min) * sizeof *first);
				break;
			}
			head[min] = next[row];
			first[min] = ts[next[row]];
			if (also < lists &&
			    (first[min] > first[also] || (first[min] == first[also] && also < min)))
				break;
		}
	}
	return true;
}

static int sort_index(const int64_t *ts, size_t n, uint32_t *idx)
{
	uint32_t *tmp = lg_calloc(n, sizeof *tmp);
	int rc = tmp ? 0 : LG_E_NOMEM;

	if (!rc && !by_lists(ts, n, idx, tmp))
		rc = by_digits(ts, n, idx, tmp);
	lg_free(tmp);
	return rc;
}

/* Row `from` goes in front of row `to`; those between move up. */
static void move_row(struct lg_tab *tab, const struct lg_table_desc *d, size_t from, size_t to)
{
	for (size_t c = 0; c < d->n_cols; c++) {
		size_t size = d->cols[c].size;
		char *col = tab->col[c], row[8];

		memcpy(row, col + from * size, size);
		memmove(col + (to + 1) * size, col + to * size, (from - to) * size);
		memcpy(col + to * size, row, size);
	}
}

/*
 * Records that came a little late are put where they belong: in a table that is in order but for
 * those, that is cheaper than any sort and takes no memory. True when the table is in order; when
 * too much would have to move it is left as far as it got (stable all the same).
 */
static bool put_in_place(struct lg_tab *tab, const struct lg_table_desc *d)
{
	const int64_t *ts = tab->col[0]; /* every time table's first column is ts */
	size_t budget = tab->n / 2;

	for (size_t i = 1; i < tab->n; i++) {
		size_t lo = 0, hi = i;

		if (__builtin_expect(ts[i] >= ts[i - 1], 1))
			continue;
		while (lo < hi) {
			size_t mid = lo + (hi - lo) / 2;

			if (ts[mid] <= ts[i])
				lo = mid + 1;
			else
				hi = mid;
		}
		if (i - lo > budget)
			return false;
		budget -= i - lo;
		move_row(tab, d, i, lo);
	}
	return true;
}

/* Columns from `first` on, every `step`th, into the order of idx; tmp has room for the widest. */
struct gather {
	struct lg_tab *tab;
	const struct lg_table_desc *d;
	const uint32_t *idx;
	char *tmp;
	size_t first, step;
};

static void *gather(void *arg)
{
	struct gather *g = arg;
	const uint32_t *idx = g->idx;
	size_t n = g->tab->n, i;

	for (size_t c = g->first; c < g->d->n_cols; c += g->step) {
		size_t size = g->d->cols[c].size;
		char *col = g->tab->col[c];

		/* All the same (what this source does not know: zeros) is in any order already. */
		if (!memcmp(col, col + size, (n - 1) * size))
			continue;
		switch (size) {
		case 8:
			for (i = 0; i < n; i++)
				((uint64_t *)(void *)g->tmp)[i] = ((uint64_t *)(void *)col)[idx[i]];
			/* Exchanged, not copied back: the new column has room for n rows. */
			g->tab->col[c] = g->tmp;
			g->tmp = col;
			continue;
		case 4:
			for (i = 0; i < n; i++)
				((uint32_t *)(void *)g->tmp)[i] = ((uint32_t *)(void *)col)[idx[i]];
			break;
		default:
			for (i = 0; i < n; i++)
				((uint8_t *)g->tmp)[i] = ((uint8_t *)col)[idx[i]];
		}
		memcpy(col, g->tmp, n * size);
	}
	return NULL;
}

static int sort_table(struct lg_tab *tab, const struct lg_table_desc *d)
{
	enum { WORTH_A_THREAD = 1 << 17 };
	size_t n = tab->n;
	struct gather g = { .tab = tab, .d = d, .step = 1 }, half;
	uint32_t *idx;
	pthread_t thread;
	int rc;

	if (put_in_place(tab, d))
		return 0;
	g.idx = idx = lg_calloc(n, sizeof *idx);
	g.tmp = lg_calloc(n, 8);
	rc = idx && g.tmp ? sort_index(tab->col[0], n, idx) : LG_E_NOMEM;
	if (!rc) {
		half = g;
		half.first = 1;
		half.step = g.step = 2;
		half.tmp = n >= WORTH_A_THREAD ? lg_calloc(n, 8) : NULL;
		/* Where there is no second one, this thread does both halves. */
		if (half.tmp && !pthread_create(&thread, NULL, gather, &half)) {
			gather(&g);
			pthread_join(thread, NULL);
		} else {
			g.step = 1;
			gather(&g);
		}
		lg_free(half.tmp);
		tab->cap = n;
	}
	lg_free(idx);
	lg_free(g.tmp);
	return rc;
}

static size_t id_limit(const struct lg_trace *t, uint8_t type)
{
	switch (type) {
	case LG_COL_STR:
		return t->n_str;
	case LG_COL_STK:
		return t->stack.n;
	case LG_COL_FRM:
		return t->frame.n;
	case LG_COL_THR:
		return t->thread.n;
	case LG_COL_PRC:
		return t->process.n;
	case LG_COL_TRK:
		return t->track.n;
	default:
		return 0;
	}
}

static uint32_t greatest(const uint32_t *v, size_t n)
{
	uint32_t most = 0;

	for (size_t i = 0; i < n; i++)
		most = v[i] > most ? v[i] : most;
	return most;
}

struct id_check {
	struct lg_trace *t;
	uint64_t bad;
};

static void check_ids(void *arg)
{
	struct id_check *check = arg;
	struct lg_trace *t = check->t;
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	uint64_t bad = 0;

	for (size_t i = 0; i < n_tab; i++) {
		struct lg_tab *tab = lg_trace_table(t, &d[i]);

		for (size_t c = 0; c < d[i].n_cols; c++) {
			size_t limit = id_limit(t, d[i].cols[c].type);
			uint32_t *v = tab->col[c];

			/* As good as always none is wrong. */
			if (!limit || greatest(v, tab->n) < limit)
				continue;
			for (size_t k = 0; k < tab->n; k++)
				if (v[k] >= limit) {
					v[k] = 0;
					bad++;
				}
		}
	}
	/* Trees: a parent is older than its child, so that no walk can go round in circles. */
	for (size_t k = 1; k < t->track.n; k++)
		if (t->track.parent[k] >= k) {
			t->track.parent[k] = 0;
			bad++;
		}
	for (size_t k = 1; k < t->stack.n; k++) {
		if (t->stack.parent[k] >= k) {
			t->stack.parent[k] = 0;
			bad++;
		}
		t->stack.depth[k] = t->stack.depth[t->stack.parent[k]] + 1;
	}
	check->bad = bad;
}

/* Differences of any two times fit into an int64. 2^62 ns are 146 years either way. */
#define TIME_MAX (((int64_t)1 << 62) - 1)

static uint64_t check_times(int64_t *ts, size_t n, int no_moment)
{
	uint64_t bad = 0;

	for (size_t i = 0; i < n; i++)
		if ((ts[i] > TIME_MAX || ts[i] < -TIME_MAX) &&
		    !(no_moment && ts[i] == INT64_MIN)) {
			ts[i] = ts[i] < 0 ? -TIME_MAX : TIME_MAX;
			bad++;
		}
	return bad;
}

/* Rows whose end would overflow or lie before their start come from damaged input. */
static uint64_t check_dur(const int64_t *ts, int64_t *dur, size_t n)
{
	uint64_t bad = 0;

	for (size_t i = 0; i < n; i++)
		if (dur[i] != -1 && (dur[i] < 0 || (ts[i] > 0 && dur[i] > TIME_MAX - ts[i]))) {
			dur[i] = 0;
			bad++;
		}
	return bad;
}

/* Stages index arrays. */
static uint64_t check_stages(uint8_t *stage, size_t n)
{
	uint64_t bad = 0;

	for (size_t i = 0; i < n; i++)
		if (stage[i] >= LG_STAGE_MAX) {
			stage[i] = LG_STAGE_OTHER;
			bad++;
		}
	return bad;
}

static void extent_of(struct lg_trace *t, const int64_t *ts, const int64_t *dur, size_t n)
{
	int64_t first = t->first, last = t->last;

	for (size_t i = 0; i < n; i++) {
		int64_t end = dur && dur[i] > 0 ? ts[i] + dur[i] : ts[i];

		first = ts[i] < first ? ts[i] : first;
		last = end > last ? end : last;
	}
	t->first = first;
	t->last = last;
}

static void check_counts(struct lg_diag_tab *d)
{
	for (size_t i = 0; i < d->n; i++)
		d->count[i] = lg_count_sum(d->count[i], 0);
}

/* One more diag row (the builder's own functions are not at hand here). */
static int add_diag(struct lg_trace *t, enum lg_diag_id id, uint64_t count)
{
	const struct lg_table_desc *d = lg_schema_table(LG_TABLE_diag);
	struct lg_tab *tab = lg_trace_table(t, d);
	size_t i = tab->n;

	for (size_t c = 0; c < d->n_cols; c++) {
		size_t size = d->cols[c].size;
		void *p = i < tab->cap ? tab->col[c] : lg_realloc(tab->col[c], i + 1, size);

		if (!p)
			return LG_E_NOMEM;
		tab->col[c] = p;
		memset((char *)p + i * size, 0, size);
	}
	if (i == tab->cap)
		tab->cap = i + 1;
	tab->n++;
	t->diag.ts[i] = t->first <= t->last ? t->last : 0;
	t->diag.id[i] = id;
	t->diag.cpu[i] = -1;
	t->diag.count[i] = count;
	return 0;
}

/* Tables are sorted each by itself: spans in one thread, all others in another. */
struct sorting {
	struct lg_trace *t;
	bool spans; /* only that one; else all but it */
	int rc;
};

static void sort_tables(void *arg)
{
	struct sorting *s = arg;
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);

	for (size_t i = 0; i < n_tab && !s->rc; i++)
		if (!d[i].is_dict && (d[i].id == LG_TABLE_span) == s->spans)
			s->rc = sort_table(lg_trace_table(s->t, &d[i]), &d[i]);
}

int lg_seal(struct lg_trace *t, struct lg_error *err)
{
	enum { WORTH_A_THREAD = 1 << 17 };
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	struct id_check ids = { .t = t };
	struct sorting spans = { .t = t, .spans = true }, others = { .t = t };
	struct lg_side_thread beside;
	bool many = t->span.n + t->state.n + t->sample.n >= WORTH_A_THREAD;
	uint64_t bad = 0, clamped = 0;

	/* Row numbers are 32 bits wide, and UINT32_MAX means "no row" (index.h, lg_part.state). */
	for (size_t i = 0; i < n_tab; i++)
		if (lg_trace_table(t, &d[i])->n >= UINT32_MAX)
			return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET,
				       "too many rows in table %s: at most %u can be opened at once",
				       d[i].name, UINT32_MAX - 1);
	/* Ids and times are different columns. */
	lg_side_thread_start(&beside, many, check_ids, &ids);
	/* INT64_MIN is "always" in meta (not looked at) and "no particular moment" in diag. */
	clamped += check_times(t->state.ts, t->state.n, 0);
	clamped += check_times(t->sample.ts, t->sample.n, 0);
	clamped += check_times(t->span.ts, t->span.n, 0);
	clamped += check_times(t->counter.ts, t->counter.n, 0);
	clamped += check_times(t->flow.ts, t->flow.n, 0);
	clamped += check_times(t->flow.ts_to, t->flow.n, 0);
	clamped += check_times(t->mark.ts, t->mark.n, 0);
	clamped += check_times(t->clock.ts, t->clock.n, 0);
	clamped += check_times(t->diag.ts, t->diag.n, 1);
	bad += check_dur(t->state.ts, t->state.dur, t->state.n);
	bad += check_dur(t->span.ts, t->span.dur, t->span.n);
	bad += check_dur(t->diag.ts, t->diag.dur, t->diag.n);
	bad += check_stages(t->span.stage, t->span.n);
	check_counts(&t->diag);
	/* Facts (meta) and notes (diag, clock) do not widen the recording. */
	t->first = INT64_MAX;
	t->last = INT64_MIN;
	extent_of(t, t->state.ts, t->state.dur, t->state.n);
	extent_of(t, t->sample.ts, NULL, t->sample.n);
	extent_of(t, t->span.ts, t->span.dur, t->span.n);
	extent_of(t, t->counter.ts, NULL, t->counter.n);
	extent_of(t, t->mark.ts, NULL, t->mark.n);
	lg_side_thread_wait(&beside);
	bad += ids.bad;
	if ((bad && add_diag(t, LG_DIAG_FILE_DAMAGED, bad)) ||
	    (clamped && add_diag(t, LG_DIAG_TIME_CLAMPED, clamped)))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	lg_side_thread_start(&beside, many, sort_tables, &others);
	sort_tables(&spans);
	lg_side_thread_wait(&beside);
	if (spans.rc || others.rc)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	t->mutable_ = 0;
	return 0;
}
