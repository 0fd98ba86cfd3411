/* SPDX-License-Identifier: Apache-2.0 */
/* window.c - the part of a trace between two moments, as a trace. */
#include <string.h>

#include "base/alloc.h"
#include "report/convert.h"

/* Facts and clock readings hold beyond their moment: they stay whole. */
static bool kept_whole(uint32_t id)
{
	return id == LG_TABLE_meta || id == LG_TABLE_clock;
}

/* The table's length column, by name: state, span and diag have one. */
static const int64_t *column(const struct lg_table_desc *d, const struct lg_tab *tab, const char *name)
{
	for (size_t c = 0; c < d->n_cols; c++)
		if (!strcmp(d->cols[c].name, name))
			return tab->col[c];
	return NULL;
}

int lg_window_trace(struct lg_trace **ret, const struct lg_trace *t, const struct lg_window *w,
		    struct lg_error *err)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	struct lg_trace *part = lg_calloc(1, sizeof *part);

	if (!part)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	*part = *t;
	/* First take the time tables out, so that a failure frees none of t's columns. */
	for (size_t i = 0; i < n_tab; i++)
		if (!d[i].is_dict && !kept_whole(d[i].id))
			memset(lg_trace_table(part, &d[i]), 0,
			       sizeof(struct lg_tab) + d[i].n_cols * sizeof(void *));
	for (size_t i = 0; i < n_tab; i++) {
		const struct lg_tab *from = lg_trace_table_const(t, &d[i]);
		struct lg_tab *to = lg_trace_table(part, &d[i]);
		const int64_t *ts, *dur;

		if (d[i].is_dict || kept_whole(d[i].id))
			continue;
		ts = column(&d[i], from, "ts");
		dur = column(&d[i], from, "dur");
		for (size_t c = 0; c < d[i].n_cols; c++) {
			to->col[c] = lg_calloc(from->n, d[i].cols[c].size);
			if (!to->col[c]) {
				lg_window_trace_free(part);
				return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
			}
		}
		to->cap = from->n;
		for (size_t r = 0; r < from->n; r++) {
			int64_t end = dur ? lg_row_end(t, ts[r], dur[r]) : ts[r];

			if (ts[r] >= w->to || (end <= w->from && ts[r] < w->from))
				continue;
			for (size_t c = 0; c < d[i].n_cols; c++) {
				size_t size = d[i].cols[c].size;

				memcpy((char *)to->col[c] + to->n * size,
				       (const char *)from->col[c] + r * size, size);
			}
			to->n++;
		}
	}
	*ret = part;
	return 0;
}

void lg_window_trace_free(struct lg_trace *part)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);

	if (!part)
		return;
	for (size_t i = 0; i < n_tab; i++) {
		struct lg_tab *tab = lg_trace_table(part, &d[i]);

		if (d[i].is_dict || kept_whole(d[i].id))
			continue;
		for (size_t c = 0; c < d[i].n_cols; c++)
			lg_free(tab->col[c]);
	}
	lg_free(part);
}
