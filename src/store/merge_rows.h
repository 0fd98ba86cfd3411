/* SPDX-License-Identifier: Apache-2.0 */
/* merge_rows.h - the rows of several sealed traces in one order, with the ids and on the clock of one. */
#ifndef LG_STORE_MERGE_ROWS_H
#define LG_STORE_MERGE_ROWS_H
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "store/builder.h"

/* What becomes of a source's numbers: by old id the new one, what is added to times, and a mark in the
 * kernel's addresses. */
struct lg_renumber {
	uint32_t *str, *prc, *thr, *frm, *stk, *trk;
	int64_t offset;
	uint64_t tag;
};
void lg_renumber_done(struct lg_renumber *r);
/* For ids of a column of that type; NULL: it has none. */
const uint32_t *lg_renumber_ids(const struct lg_renumber *r, uint8_t type);
static inline int64_t lg_renumber_time(const struct lg_renumber *r, int64_t ts)
{
	/* The ends of the scale mean "before the trace", "alive", "always": they stay. */
	if (ts == INT64_MIN || ts == INT64_MAX)
		return ts;
	return (int64_t)((uint64_t)ts + (uint64_t)r->offset);
}

/* Columns that hold a time on the trace's clock: ts, and ts_to of flow. */
static inline bool lg_is_time(const struct lg_col_desc *c)
{
	return c->type == LG_COL_I64 && (!strcmp(c->name, "ts") || !strcmp(c->name, "ts_to"));
}
/* Columns that hold a kernel address. */
static inline bool lg_is_object(const struct lg_col_desc *c)
{
	return c->type == LG_COL_U64 && !strcmp(c->name, "object");
}
/* Tables that may be long, and that nobody looks at between one source and the next (at counters somebody
 * does). */
static inline bool lg_is_large(uint32_t table)
{
	return table == LG_TABLE_state || table == LG_TABLE_sample || table == LG_TABLE_span ||
	       table == LG_TABLE_flow || table == LG_TABLE_mark;
}

struct lg_merge_from {
	struct lg_trace *t; /* sealed; the columns of its large tables go as they are used up */
	struct lg_renumber to;
};
/* The large tables of n sources into b, which has no rows in them: by time, those of equal time by source. */
int lg_merge_rows(struct lg_builder *b, struct lg_merge_from *from, size_t n) LG_MUST_CHECK;

#endif /* LG_STORE_MERGE_ROWS_H */
