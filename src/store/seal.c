/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seal.h"

#include <string.h>

#include "base/alloc.h"

/* Stable merge sort of row numbers by ts; the tables arrive as few sorted runs (one per source),
 * which natural merging turns into a handful of linear passes. */
static int sort_index(const int64_t *ts, size_t n, uint32_t *idx)
{
	uint32_t *tmp = lg_calloc(n, sizeof *tmp);
	uint32_t *src = idx, *dst = tmp;
	size_t *run = NULL, n_run = 0, cap = 0;

	if (!tmp)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		idx[i] = (uint32_t)i;
		if (!i || ts[i] < ts[i - 1]) {
			if (lg_grow(&run, &cap, n_run + 2, sizeof *run)) {
				lg_free(tmp);
				lg_free(run);
				return LG_E_NOMEM;
			}
			run[n_run++] = i;
		}
	}
	run[n_run] = n;
	while (n_run > 1) {
		size_t out = 0;

		for (size_t r = 0; r < n_run; r += 2) {
			size_t a = run[r], am = r + 1 < n_run ? run[r + 1] : n;
			size_t z = am, zm = r + 2 < n_run ? run[r + 2] : n, k = a;

			while (a < am && z < zm)
				dst[k++] = ts[src[z]] < ts[src[a]] ? src[z++] : src[a++];
			while (a < am)
				dst[k++] = src[a++];
			while (z < zm)
				dst[k++] = src[z++];
			run[out++] = run[r];
		}
		run[out] = n;
		n_run = out;
		uint32_t *swap = src;

		src = dst;
		dst = swap;
	}
	if (src != idx)
		memcpy(idx, src, n * sizeof *idx);
	lg_free(tmp);
	lg_free(run);
	return 0;
}

static int sort_table(struct lg_tab *tab, const struct lg_table_desc *d)
{
	const int64_t *ts = tab->col[0]; /* every time table's first column is ts */
	size_t n = tab->n, i;
	uint32_t *idx;
	char *tmp;
	int rc;

	for (i = 1; i < n && ts[i] >= ts[i - 1]; i++)
		;
	if (i >= n)
		return 0;
	if (n > UINT32_MAX)
		return LG_E_LIMIT;
	idx = lg_calloc(n, sizeof *idx);
	tmp = lg_calloc(n, 8);
	rc = idx && tmp ? sort_index(ts, n, idx) : LG_E_NOMEM;
	for (size_t c = 0; !rc && c < d->n_cols; c++) {
		size_t size = d->cols[c].size;

		switch (size) {
		case 8:
			for (i = 0; i < n; i++)
				((uint64_t *)(void *)tmp)[i] = ((uint64_t *)tab->col[c])[idx[i]];
			break;
		case 4:
			for (i = 0; i < n; i++)
				((uint32_t *)(void *)tmp)[i] = ((uint32_t *)tab->col[c])[idx[i]];
			break;
		default:
			for (i = 0; i < n; i++)
				((uint8_t *)tmp)[i] = ((uint8_t *)tab->col[c])[idx[i]];
		}
		memcpy(tab->col[c], tmp, n * size);
	}
	lg_free(idx);
	lg_free(tmp);
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

static uint64_t check_ids(struct lg_trace *t)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	uint64_t bad = 0;

	for (size_t i = 0; i < n_tab; i++) {
		struct lg_tab *tab = lg_trace_table(t, &d[i]);

		for (size_t c = 0; c < d[i].n_cols; c++) {
			size_t limit = id_limit(t, d[i].cols[c].type);
			uint32_t *v = tab->col[c];

			if (!limit)
				continue;
			for (size_t k = 0; k < tab->n; k++)
				if (v[k] >= limit) {
					v[k] = 0;
					bad++;
				}
		}
	}
	for (size_t k = 1; k < t->stack.n; k++) {
		if (t->stack.parent[k] >= k) {
			t->stack.parent[k] = 0;
			bad++;
		}
		t->stack.depth[k] = t->stack.depth[t->stack.parent[k]] + 1;
	}
	return bad;
}

/* Rows whose end would overflow or lie before their start come from damaged input. */
static void check_dur(int64_t *ts, int64_t *dur, size_t n, uint64_t *bad)
{
	for (size_t i = 0; i < n; i++) {
		int64_t end;

		if (dur[i] < -1 || __builtin_add_overflow(ts[i], dur[i], &end)) {
			dur[i] = 0;
			++*bad;
		}
	}
}

static void extent_of(struct lg_trace *t, const int64_t *ts, const int64_t *dur, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int64_t end = dur && dur[i] > 0 ? ts[i] + dur[i] : ts[i];

		if (ts[i] < t->first)
			t->first = ts[i];
		if (end > t->last)
			t->last = end;
	}
}

int lg_seal(struct lg_trace *t, struct lg_error *err)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	uint64_t bad = check_ids(t);

	check_dur(t->state.ts, t->state.dur, t->state.n, &bad);
	check_dur(t->span.ts, t->span.dur, t->span.n, &bad);
	check_dur(t->diag.ts, t->diag.dur, t->diag.n, &bad);
	for (size_t i = 0; i < n_tab; i++) {
		if (d[i].is_dict)
			continue;
		if (sort_table(lg_trace_table(t, &d[i]), &d[i]))
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	/* Facts (meta) and notes (diag, clock) do not widen the recording. */
	t->first = INT64_MAX;
	t->last = INT64_MIN;
	extent_of(t, t->state.ts, t->state.dur, t->state.n);
	extent_of(t, t->sample.ts, NULL, t->sample.n);
	extent_of(t, t->span.ts, t->span.dur, t->span.n);
	extent_of(t, t->counter.ts, NULL, t->counter.n);
	extent_of(t, t->mark.ts, NULL, t->mark.n);
	if (bad && t->diag.n < t->diag.cap) {
		size_t i = t->diag.n++;

		for (size_t c = 0; c < lg_schema_table(LG_TABLE_diag)->n_cols; c++)
			memset((char *)((struct lg_tab *)(void *)&t->diag)->col[c] +
				       i * lg_schema_table(LG_TABLE_diag)->cols[c].size,
			       0, lg_schema_table(LG_TABLE_diag)->cols[c].size);
		t->diag.ts[i] = t->last;
		t->diag.id[i] = LG_DIAG_FILE_DAMAGED;
		t->diag.cpu[i] = -1;
		t->diag.count[i] = bad;
	}
	t->mutable_ = 0;
	return 0;
}
