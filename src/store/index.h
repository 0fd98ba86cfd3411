/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - rows of a sealed trace by thread and by CPU, so that "what did thread t do at time x"
 * is a binary search.
 *
 * A list is the half-open range [off[k], off[k + 1]) of positions in an array of row numbers,
 * sorted by ts (rows of equal ts keep their order). Lists of thread 0 hold rows without a thread
 * (spans of a track). The index borrows the trace and is read-only once built: threads may share
 * it. Built in O(rows).
 *
 *   for (uint32_t p = lg_index_state_from(x, thr, a); p < x->state_off[thr + 1]; p++) {
 *           uint32_t row = x->state[p];
 *           if (t->state.ts[row] >= b)
 *                   break;
 *           ... row overlaps [a, b) ...
 *   }
 */
#ifndef LG_STORE_INDEX_H
#define LG_STORE_INDEX_H
#include "store/trace.h"

#define LG_NO_ROW UINT32_MAX

/* What is asked of spans most. In the table the rows of many ranks lie between those of one. */
struct lg_span_at {
	int64_t ts, dur;
	lg_str name;
	uint8_t kind, stage;
};

struct lg_index {
	const struct lg_trace *t;
	size_t n_thr;                      /* = t->thread.n */
	uint32_t *state_off, *state;       /* by thread; rows of a thread do not overlap, except
					    * those of the idle thread, which runs on every CPU */
	uint32_t *span_off, *span;         /* by thread; spans nest and overlap */
	struct lg_span_at *span_at;        /* at position p: of row span[p] */
	int64_t *span_reach;               /* for lg_index_span_reach() */
	uint32_t *sample_off, *sample;     /* by thread */
	uint32_t *main_of;                 /* by process: its main thread's row, 0 = not seen */
	uint32_t *thread_off, *thread;     /* by process: its thread rows, in row order */
	uint32_t *meta_off, *meta;         /* by process: its facts, in row order */
	uint32_t *counter_off, *counter;   /* by track */

	/* Running rows by CPU. CPUs of different hosts (merged recordings) are different lists:
	 * list number = host_i * n_cpu + cpu, host_i from host_of[process]. SUMMED rows are left
	 * out: they stand for many slices and say nothing about one moment. */
	uint32_t *cpu_off, *cpu;
	uint32_t n_cpu, n_host;
	uint32_t *host_of;                 /* by process row */
};

/* For each row of v[0..n), by value, as long as cond holds. */
#define LG_EACH_ROW(row, v, n) LG_EACH_ROW_WHILE(1, row, v, n)
#define LG_EACH_ROW_WHILE(cond, row, v, n)                                                              \
	for (uint32_t row##_at = 0, row; (cond) && row##_at < (n) && (row = (v)[row##_at], true); row##_at++)
/* The same of a list of the index: the rows of one thread or process, LG_LISTED(row, x->span, thr). */
#define LG_LISTED(row, list, of) LG_LISTED_WHILE(1, row, list, of)
#define LG_LISTED_WHILE(cond, row, list, of)                                                             \
	for (uint32_t row##_at = list##_off[of], row;                                                     \
	     (cond) && row##_at < list##_off[(of) + 1] && (row = (list)[row##_at], true); row##_at++)

/* How far ahead rows are fetched that a list names: those of one thread lie far from each other in the table,
 * where the processor does not look by itself. */
enum { LG_ROWS_AHEAD = 16 };

int lg_index_new(struct lg_index **ret, const struct lg_trace *t, struct lg_error *err) LG_MUST_CHECK;
void lg_index_free(struct lg_index *x);

/* Rows 0 .. n_rows - 1 by the number below n_lists that ids has for each, as above. Both are the caller's,
 * also after a failure; NULL before. */
int lg_index_lists(const uint32_t *ids, size_t n_rows, size_t n_lists, uint32_t **ret_off,
		   uint32_t **ret_row) LG_MUST_CHECK;

/* State row of thr that covers ts (start <= ts < end; a cut-off row covers all that follows).
 * LG_NO_ROW when nothing is known about that moment. */
uint32_t lg_index_state_at(const struct lg_index *x, lg_thr thr, int64_t ts);
/* Position in x->state of the first row of thr that ends after ts; state_off[thr + 1] if none. */
uint32_t lg_index_state_from(const struct lg_index *x, lg_thr thr, int64_t ts);
/* The same for spans: rows before it all end at or before ts (later ones may, too: check). */
uint32_t lg_index_span_from(const struct lg_index *x, lg_thr thr, int64_t ts);
/* The latest end of the spans of a list, which begins at position `first`, up to position p of it. */
int64_t lg_index_span_reach(const struct lg_index *x, uint32_t first, uint32_t p);
/* Position in x->sample of the first sample of thr at or after ts. */
uint32_t lg_index_sample_from(const struct lg_index *x, lg_thr thr, int64_t ts);

/* Last value of a fact of prc; NULL when it was never told. */
const char *lg_index_fact(const struct lg_index *x, lg_prc prc, const char *key);

/* CPU number cpu of the machine that thr runs on (0: the first machine). */
uint32_t lg_index_cpu_at(const struct lg_index *x, lg_thr of, int32_t cpu, int64_t ts);
/* Position in x->cpu of the first running row that ends after ts, and the end of that list.
 * Both are equal (an empty range) for a CPU without rows. */
uint32_t lg_index_cpu_from(const struct lg_index *x, lg_thr of, int32_t cpu, int64_t ts,
			   uint32_t *ret_end);

#endif /* LG_STORE_INDEX_H */
