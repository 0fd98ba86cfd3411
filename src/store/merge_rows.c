/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge_rows.c - each source's rows are in order: from which source each row of all comes is found once, by
 * times, then column after column is made of it, and those it is made of go. So there is never more than one
 * column twice.
 *
 * Time is cut in two, one half for each of two threads.
 */
#include "store/merge_rows.h"

#include "base/side_thread.h"

void lg_renumber_done(struct lg_renumber *r)
{
	lg_free(r->str);
	lg_free(r->prc);
	lg_free(r->thr);
	lg_free(r->frm);
	lg_free(r->stk);
	lg_free(r->trk);
	*r = (struct lg_renumber){ 0 };
}

const uint32_t *lg_renumber_ids(const struct lg_renumber *r, uint8_t type)
{
	switch (type) {
	case LG_COL_STR:
		return r->str;
	case LG_COL_STK:
		return r->stk;
	case LG_COL_FRM:
		return r->frm;
	case LG_COL_THR:
		return r->thr;
	case LG_COL_PRC:
		return r->prc;
	case LG_COL_TRK:
		return r->trk;
	default:
		return NULL;
	}
}

/* The next row of a source. */
struct next {
	int64_t ts;
	uint32_t source;
};

/* Rows [first, first + n) of all, of each source from[] to to[]. */
struct half {
	const struct lg_merge_from *source;
	size_t n_sources;
	const struct lg_table_desc *d;
	size_t *from, *to;
	size_t first, n;
	uint32_t *order; /* of all */
	struct next *next;
	uint32_t *lost;  /* a tree whose leaves are the sources: at each node who lost there */
	const void **at; /* by source: its next value of the column */
	/* The column that is made. */
	size_t column;
	void *made;
};

static const void *column_of(const struct half *h, size_t source, size_t c)
{
	return lg_trace_table_const(h->source[source].t, h->d)->col[c];
}

static bool before(struct next a, struct next b)
{
	return a.ts < b.ts || (a.ts == b.ts && a.source < b.source);
}

/* Of node i's sources the first; the others stay where they lost. Sources are the leaves n .. 2n - 1. */
static uint32_t play(struct half *h, size_t i)
{
	size_t n = h->n_sources;
	uint32_t a, b;

	if (i >= n)
		return (uint32_t)(i - n);
	a = play(h, 2 * i);
	b = play(h, 2 * i + 1);
	h->lost[i] = before(h->next[a], h->next[b]) ? b : a;
	return h->lost[i] == b ? a : b;
}

static void find_order(void *arg)
{
	struct half *h = arg;
	size_t n = h->n_sources;
	uint32_t *out = h->order + h->first, first;

	for (size_t s = 0; s < n; s++) {
		const int64_t *ts = column_of(h, s, 0);
		bool any = h->from[s] < h->to[s];

		h->at[s] = any ? ts + h->from[s] : NULL;
		/* One that has no more comes behind all that have. */
		h->next[s] = (struct next){ INT64_MAX, UINT32_MAX };
		if (any)
			h->next[s] = (struct next){ lg_renumber_time(&h->source[s].to, ts[h->from[s]]),
						    (uint32_t)s };
	}
	first = play(h, 1);
	for (size_t i = 0; i < h->n; i++) {
		const int64_t *at = h->at[first], *ts = column_of(h, first, 0);

		out[i] = first;
		h->at[first] = ++at;
		if (at == ts + h->to[first])
			h->next[first] = (struct next){ INT64_MAX, UINT32_MAX };
		else
			h->next[first].ts = lg_renumber_time(&h->source[first].to, *at);
		for (size_t k = (first + n) / 2; k; k /= 2)
			if (before(h->next[h->lost[k]], h->next[first])) {
				uint32_t swap = h->lost[k];

				h->lost[k] = first;
				first = swap;
			}
	}
}

#define MAKE(type, expr)                                                                        \
	do {                                                                                    \
		type *made = (type *)h->made + h->first;                                        \
                                                                                                \
		for (size_t i = 0; i < h->n; i++) {                                             \
			uint32_t s = order[i];                                                  \
			const type *at = h->at[s];                                              \
			const struct lg_renumber *to = &h->source[s].to;                        \
			type v = *at;                                                           \
                                                                                                \
			(void)to;                                                               \
			h->at[s] = at + 1;                                                      \
			made[i] = (expr);                                                       \
		}                                                                               \
	} while (0)

static void make_column(void *arg)
{
	struct half *h = arg;
	const struct lg_col_desc *c = &h->d->cols[h->column];
	const uint32_t *order = h->order + h->first;

	for (size_t s = 0; s < h->n_sources; s++) {
		h->at[s] = NULL;
		if (h->from[s] < h->to[s])
			h->at[s] = (const char *)column_of(h, s, h->column) + h->from[s] * c->size;
	}
	if (lg_is_time(c))
		MAKE(int64_t, lg_renumber_time(to, v));
	else if (lg_is_object(c))
		MAKE(uint64_t, v ? v ^ to->tag : 0);
	else if (lg_renumber_ids(&h->source[0].to, c->type))
		MAKE(uint32_t, lg_renumber_ids(to, c->type)[v]);
	else if (c->size == 8)
		MAKE(uint64_t, v);
	else if (c->size == 4)
		MAKE(uint32_t, v);
	else
		MAKE(uint8_t, v);
}

/* Nothing but zeros, as what a source does not know is; id 0 stays that. */
static bool is_zero(const struct half *h, size_t c)
{
	for (size_t s = 0; s < h->n_sources; s++) {
		size_t bytes = lg_trace_table_const(h->source[s].t, h->d)->n * h->d->cols[c].size;
		const char *col = column_of(h, s, c);

		if (bytes && (*col || memcmp(col, col + 1, bytes - 1)))
			return false;
	}
	return !lg_is_time(&h->d->cols[c]);
}

static void both(struct half half[2], void (*work)(void *arg))
{
	enum { WORTH_A_THREAD = 1 << 16 };
	struct lg_side_thread beside;

	lg_side_thread_start(&beside, half[1].n >= WORTH_A_THREAD, work, &half[1]);
	work(&half[0]);
	lg_side_thread_wait(&beside);
}

/* Which rows are whose: cut at the middle row of the source that has most. */
static void cut(struct half half[2])
{
	size_t n = half->n_sources, most = 0, rows = 0;
	int64_t middle = 0;

	for (size_t s = 0; s < n; s++) {
		size_t k = lg_trace_table_const(half->source[s].t, half->d)->n;
		const int64_t *ts = column_of(half, s, 0);

		rows += k;
		if (k > most) {
			most = k;
			middle = lg_renumber_time(&half->source[s].to, ts[k / 2]);
		}
		half[1].to[s] = k;
	}
	for (size_t s = 0; s < n; s++) {
		const int64_t *ts = column_of(half, s, 0);
		size_t lo = 0, hi = half[1].to[s];

		while (lo < hi) {
			size_t mid = lo + (hi - lo) / 2;

			if (lg_renumber_time(&half->source[s].to, ts[mid]) < middle)
				lo = mid + 1;
			else
				hi = mid;
		}
		half[0].to[s] = half[1].from[s] = lo;
		half[0].n += lo;
	}
	half[1].first = half[0].n;
	half[1].n = rows - half[0].n;
}

static void release_column(struct lg_merge_from *from, size_t n, const struct lg_table_desc *d, size_t c)
{
	for (size_t s = 0; s < n; s++) {
		struct lg_tab *tab = lg_trace_table(from[s].t, d);

		lg_free(tab->col[c]);
		tab->col[c] = NULL;
	}
}

static int merge_table(struct lg_builder *b, struct lg_merge_from *from, size_t n, struct half half[2])
{
	const struct lg_table_desc *d = half->d;
	void *cols[32] = { NULL };
	size_t rows;
	int rc = d->n_cols <= sizeof cols / sizeof *cols ? 0 : LG_E_LIMIT;

	half[0].first = half[0].n = 0;
	cut(half);
	rows = half[0].n + half[1].n;
	if (rc || !rows)
		return rc;
	half[0].order = half[1].order = lg_realloc(NULL, rows, sizeof *half->order);
	if (!half->order)
		return LG_E_NOMEM;
	both(half, find_order);
	for (size_t c = 0; c < d->n_cols && !rc; c++) {
		bool zero = is_zero(half, c);

		cols[c] = zero ? lg_calloc(rows, d->cols[c].size) : lg_realloc(NULL, rows, d->cols[c].size);
		if (!cols[c]) {
			rc = LG_E_NOMEM;
		} else if (!zero) {
			half[0].column = half[1].column = c;
			half[0].made = half[1].made = cols[c];
			both(half, make_column);
		}
		if (!rc)
			release_column(from, n, d, c);
	}
	lg_free(half->order);
	rc = rc ? rc : lg_builder_take_columns(b, d, rows, cols);
	for (size_t c = 0; rc && c < d->n_cols; c++)
		lg_free(cols[c]);
	return rc;
}

int lg_merge_rows(struct lg_builder *b, struct lg_merge_from *from, size_t n)
{
	LG_AUTOFREE size_t *at = lg_calloc(4 * n, sizeof *at);
	LG_AUTOFREE struct next *next = lg_calloc(2 * n, sizeof *next);
	LG_AUTOFREE uint32_t *lost = lg_calloc(2 * n, sizeof *lost);
	LG_AUTOFREE const void **values = lg_calloc(2 * n, sizeof *values);
	struct half half[2] = { { .source = from, .n_sources = n } };
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	int rc = at && next && lost && values ? 0 : LG_E_NOMEM;

	half[1] = half[0];
	for (size_t i = 0; !rc && i < 2; i++) {
		half[i].from = at + 2 * i * n;
		half[i].to = at + (2 * i + 1) * n;
		half[i].next = next + i * n;
		half[i].lost = lost + i * n;
		half[i].at = values + i * n;
	}
	for (size_t i = 0; !rc && i < n_tab; i++) {
		if (!lg_is_large(d[i].id))
			continue;
		half[0].d = half[1].d = &d[i];
		rc = merge_table(b, from, n, half);
	}
	return rc;
}
