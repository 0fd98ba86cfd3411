/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.h - the one way rows get into a trace.
 *
 * Recorders and importers add rows in any order; the builder interns strings, frames and
 * stacks, keeps one row per process and thread life, and seals the result (sorted, validated).
 * With a sink the builder is a funnel of bounded size: lg_builder_flush() hands complete
 * columns to the sink and forgets the time tables' rows (the recorder's ring and .lag writer).
 *
 * Errors are sticky: adders return nothing; lg_builder_failed() tells (only LG_E_NOMEM is
 * possible), and flush and seal report it. One thread only. Times must already be on the
 * trace's clock.
 */
#ifndef LG_STORE_BUILDER_H
#define LG_STORE_BUILDER_H
#include <stdbool.h>

#include "store/trace.h"

struct lg_builder;

int lg_builder_new(struct lg_builder **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_builder_free(struct lg_builder *b);
int lg_builder_failed(const struct lg_builder *b);
/*
 * For a recorder, whose dictionaries other users fill (store/budget.h). From lg_builder_limit() on what is
 * new is charged to who lg_builder_for() named last; pid 0 (as at first): to nobody. A process whose role is
 * of the job is the job's, else its user's. Beyond a budget, a new string is "[over budget]", a stack ends
 * where it was known to, and new lives share one row of their user.
 */
struct lg_budget_limits;
void lg_builder_limit(struct lg_builder *b, const struct lg_budget_limits *limits);
void lg_builder_for(struct lg_builder *b, int32_t pid);
/* Memory beside the dictionaries that grows with what the process does; false = it may not have it.
 * *ret_account: for giving it back. */
bool lg_builder_charge(struct lg_builder *b, int32_t pid, size_t bytes, uint32_t *ret_account);
void lg_builder_give_back(struct lg_builder *b, uint32_t account, size_t bytes);
/* A diag row at ts for each account that was denied something since it was last told. */
void lg_builder_tell_budget(struct lg_builder *b, int64_t ts);
/* Whoever adds rows found no memory for what they follow from: as if an adder had found none. */
void lg_builder_fail(struct lg_builder *b);
/* The rows so far, for readers inside store/ and for tests; time tables are unsorted. */
struct lg_trace *lg_builder_trace(struct lg_builder *b);

/* Strings: interned, NUL-terminated. n bytes may not contain NUL (cut there). 0 for "". */
lg_str lg_intern(struct lg_builder *b, const char *s);
lg_str lg_intern_n(struct lg_builder *b, const char *s, size_t n);
/* The string where it is interned already, else 0. */
lg_str lg_interned(const struct lg_builder *b, const char *s);
/* Frames are interned over (kind, dso, pc, name, line); build_id and file of the first win. */
lg_frm lg_intern_frame(struct lg_builder *b, const struct lg_frame_row *f);
/* One more callee below parent (0 = outermost frame). */
lg_stk lg_intern_stack(struct lg_builder *b, lg_stk parent, lg_frm frame);
/* Give a frame its function later (symbol resolution); file may be 0. */
void lg_frame_set_name(struct lg_builder *b, lg_frm f, lg_str name, lg_str file, uint32_t line);

/*
 * Processes and threads, by the life that covers ts. get creates what is missing; the row keeps
 * start = INT64_MIN ("before the trace") until a fork says otherwise.
 * thread_get(pid 0, tid 0) is the idle thread, shared by all CPUs. pid -1 = not known: an
 * existing thread row with that tid is used, else a process row with pid = tid is made and
 * corrected when the pid becomes known.
 */
lg_prc lg_process_get(struct lg_builder *b, int32_t pid);
lg_thr lg_thread_get(struct lg_builder *b, int32_t pid, int32_t tid);
/* The newest life with this id, ended or not; 0 = none. Creates nothing. */
lg_thr lg_thread_find(const struct lg_builder *b, int32_t tid);
/* A fork or thread creation: starts a new life at ts, ending any older one with the same id. */
lg_thr lg_thread_start(struct lg_builder *b, int32_t ppid, int32_t pid, int32_t tid, int64_t ts);
/* Exit of a thread (of the whole process when tid == pid). The kernel tells of the exit before the
 * thread's last moments (its last slice, the release of its memory), so later rows with the same
 * ids are still this life; only lg_thread_start(), or the id under another pid, begins a new one. */
void lg_thread_end(struct lg_builder *b, int32_t tid, int64_t ts);
void lg_thread_name(struct lg_builder *b, lg_thr thr, lg_str comm);
/* Read and change one process row; change through set so that the sink learns of it. */
struct lg_process_row lg_process_read(const struct lg_builder *b, lg_prc p);
void lg_process_write(struct lg_builder *b, lg_prc p, const struct lg_process_row *row);
struct lg_thread_row lg_thread_read(const struct lg_builder *b, lg_thr thr);
int64_t lg_thread_ended(const struct lg_builder *b, lg_thr thr); /* `end` of that row */
void lg_thread_write(struct lg_builder *b, lg_thr thr, const struct lg_thread_row *row);
/* A row exactly as given, without looking for a life that it could be (merge.c). */
lg_prc lg_process_add(struct lg_builder *b, const struct lg_process_row *row);
lg_thr lg_thread_add(struct lg_builder *b, const struct lg_thread_row *row);
lg_prc lg_thread_process(const struct lg_builder *b, lg_thr thr);
lg_trk lg_track_get(struct lg_builder *b, const struct lg_track_row *t); /* interned over all fields */

/* lg_add_state(b, &(struct lg_state_row){...}) and so on for every time table. */
#define T_DICT(name)
#define T_TIME(name) void lg_add_##name(struct lg_builder *b, const struct lg_##name##_row *r);
#define T(name, id, kind) T_##kind(name)
LG_TABLES(T)
#undef T
#undef T_TIME
#undef T_DICT

/* Shorthands. */
void lg_add_diag_now(struct lg_builder *b, enum lg_diag_id id, int64_t ts, uint64_t count,
		     const char *fmt, ...) LG_PRINTF(5, 6);
void lg_meta_set(struct lg_builder *b, lg_prc prc, const char *key, const char *value);
void lg_meta_setf(struct lg_builder *b, lg_prc prc, const char *key, const char *fmt, ...)
	LG_PRINTF(4, 5);

/*
 * Where flushed rows go. `strings` are pool entries [first, last); dict tables come with the
 * rows that are new or changed (rows[] lists their ids), time tables whole.
 */
struct lg_sink {
	int (*strings)(void *self, const struct lg_trace *t, size_t first, size_t last,
		       struct lg_error *err);
	int (*rows)(void *self, const struct lg_table_desc *d, const struct lg_tab *tab,
		    const uint32_t *rows, size_t n, struct lg_error *err);
	/* rows == NULL: all n rows of tab in order */
};
/* Hand everything new to sink and empty the time tables. */
int lg_builder_flush(struct lg_builder *b, const struct lg_sink *sink, void *self,
		     struct lg_error *err) LG_MUST_CHECK;
/* Bytes held by time rows not flushed yet. */
size_t lg_builder_pending(const struct lg_builder *b);

/* Sort, validate, give the trace away; the builder is freed whatever happens. */
int lg_builder_seal(struct lg_builder *b, struct lg_trace **ret, struct lg_error *err) LG_MUST_CHECK;

/* For merge_rows.c: a time table that is empty gets these columns of n rows, allocated each, for its own. Not
 * empty: LG_E_USAGE, and they stay the caller's. */
int lg_builder_take_columns(struct lg_builder *b, const struct lg_table_desc *d, size_t n,
			    void *const *cols) LG_MUST_CHECK;
/* For lag_read.c: append n rows of raw columns (schema order, sizes per schema). For a
 * dictionary table ids[i] says which row it is: the table grows to hold it, later rows win. */
int lg_builder_put_columns(struct lg_builder *b, const struct lg_table_desc *d, size_t n,
			   const uint32_t *ids, const void *const *cols) LG_MUST_CHECK;
/* For lag_read.c: append pool entry number lg_builder_trace(b)->n_str without interning. */
int lg_builder_put_string(struct lg_builder *b, const char *s, size_t n) LG_MUST_CHECK;

#endif /* LG_STORE_BUILDER_H */
