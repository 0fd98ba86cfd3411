/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h - several recordings of one run become one trace.
 *
 * Sources of one machine (same host name, or same boot id where both have one) share its
 * processes and threads by (pid, life); machines are kept apart by process.host. What is known of
 * a second machine as such has keys "<host>/<key>" in meta, its kernel addresses (object, mm) a mark
 * in their upper 16 bits, its own tracks names "<host>: <name>".
 */
#ifndef LG_STORE_MERGE_H
#define LG_STORE_MERGE_H
#include "base/intervals.h"
#include "store/builder.h"

/* What to add to t's times to get ref's. 0 within one boot of one machine; else the difference
 * of the CLOCK_REALTIME pairs (clock table). LG_E_NOTFOUND where no clock rows decide
 * (*ret_offset is 0 then); *ret_error is the bound of the error in ns. */
int lg_merge_offset(const struct lg_trace *ref, const struct lg_trace *t, int64_t *ret_offset,
		    int64_t *ret_error) LG_MUST_CHECK;

/*
 * Sources are copied into b, ids remapped, times shifted. The rows of their large tables, each of which is in
 * order, are put in order when all are known; behind one another they would have to be sorted, and be there
 * twice.
 */
struct lg_merger {
	struct lg_merge_from *from;
	size_t n, cap;
};
/* src, which is sealed, is the merger's from now on, also after a failure. label: what people call it;
 * devices that are not those of b although they are numbered alike (tables of nvidia-smi of two machines) get
 * it in their tracks' names. */
int lg_merge_add(struct lg_merger *g, struct lg_builder *b, struct lg_trace *src, int64_t offset,
		 const char *label, struct lg_error *err) LG_MUST_CHECK;
/* Once, behind the last one. */
int lg_merge_finish(struct lg_merger *g, struct lg_builder *b, struct lg_error *err) LG_MUST_CHECK;
void lg_merger_done(struct lg_merger *g);
/* Of a process, in meta: one of its sources, in which operators are, begins and ends then. */
#define LG_META_PROFILED_FROM "join.profiled.from"
#define LG_META_PROFILED_TO "join.profiled.to"
/* And that source is cut. */
#define LG_META_PROFILED_CUT "join.profiled.cut"
/* Is a source that has prc's operators cut (not only one beside it)? */
bool lg_profiled_cut(const struct lg_trace *t, lg_prc prc);
/* From the begin of the first such source of prc to the end of the last. False: there is none. */
bool lg_profiled_within(const struct lg_trace *t, lg_prc prc, struct lg_iv *ret);
/* Between such sources, by time: when nobody looked at prc. ret->v is the caller's. LG_E_NOMEM. */
int lg_profiled_gaps(const struct lg_trace *t, lg_prc prc, struct lg_ivs *ret) LG_MUST_CHECK;
/* Value of a meta row (prc 0) by key; "" when absent. Borrowed from t. */
const char *lg_meta_get(const struct lg_trace *t, const char *key);

#endif /* LG_STORE_MERGE_H */
