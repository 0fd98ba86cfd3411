/* SPDX-License-Identifier: Apache-2.0 */
/*
 * marks.h - slots of one mark ring to rows: spans, steps, marks, facts.
 *
 * marks.c finds and drains the rings; this half (mark_rows.c) knows nothing of files or sessions,
 * so tests and fuzzers feed it directly. Slots come in ring order.
 */
#ifndef LG_RECORD_MARKS_H
#define LG_RECORD_MARKS_H
#include "record/mark_ring.h"
#include "store/builder.h"

struct lg_mark_rows;

/* pid: in the recorder's namespace. ring: for names, borrowed. */
int lg_mark_rows_new(struct lg_mark_rows **ret, struct lg_builder *b, int32_t pid,
		     const struct lg_mark_ring *ring, struct lg_error *err) LG_MUST_CHECK;
void lg_mark_rows_free(struct lg_mark_rows *m);
void lg_mark_rows_add(struct lg_mark_rows *m, const struct lg_mark_slot *s);
/* Marks were lost at ts: what is open can no longer be closed rightly. */
void lg_mark_rows_lost(struct lg_mark_rows *m, int64_t ts, uint64_t count);
/* The last slot was added. end: when the process ended, INT64_MAX = it runs on.
 * clean: it said goodbye, so what is open is no evidence of anything. */
void lg_mark_rows_end(struct lg_mark_rows *m, int64_t end, bool clean);
/* The ring was written long before: its first stage does not begin its first step. */
void lg_mark_rows_joined(struct lg_mark_rows *m);
/* The life this ring belongs to. */
lg_prc lg_mark_rows_process(const struct lg_mark_rows *m);
/* What is seen while rows are made, for who watches the steps (moment.h). */
enum lg_mark_saw {
	LG_MARK_SAW_STEP, LG_MARK_SAW_SIDE, LG_MARK_SAW_SIDE_END, LG_MARK_SAW_LOSS, LG_MARK_SAW_ANY
};
/* STEP: number, ts and dur of one that has ended. SIDE: the steps' thread begins or ends side work at ts. */
typedef void lg_mark_saw_fn(void *arg, enum lg_mark_saw what, int64_t number, int64_t ts, int64_t dur);
/* Of the step that STEP tells of, on its own thread: each stage but for what is nested in it, and how long
 * it was in collectives, backward passes that DDP shares included. ns. */
struct lg_mark_times {
	int64_t stage[LG_STAGE_MAX], wait;
};
const struct lg_mark_times *lg_mark_rows_times(const struct lg_mark_rows *m);
void lg_mark_rows_watch(struct lg_mark_rows *m, lg_mark_saw_fn *f, void *arg);
/* How thread ids of the ring map to the recorder's; NULL = they are the same. */
typedef int32_t lg_mark_tid_fn(void *arg, int32_t pid, int32_t ns_tid);
void lg_mark_rows_set_tids(struct lg_mark_rows *m, lg_mark_tid_fn *f, void *arg);

#endif /* LG_RECORD_MARKS_H */
