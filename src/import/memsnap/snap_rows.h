/* SPDX-License-Identifier: Apache-2.0 */
/* snap_rows.h - events, segments and blocks of a snapshot, in the order of the file, become rows. */
#ifndef LG_IMPORT_MEMSNAP_SNAP_ROWS_H
#define LG_IMPORT_MEMSNAP_SNAP_ROWS_H
#include "base/map.h"
#include "store/builder.h"

enum lg_snap_action {
	LG_SNAP_NONE,
	LG_SNAP_ALLOC,
	LG_SNAP_FREE_REQUESTED,
	LG_SNAP_FREE_COMPLETED,
	LG_SNAP_SEGMENT_ALLOC,
	LG_SNAP_SEGMENT_FREE,
	LG_SNAP_SEGMENT_MAP,
	LG_SNAP_SEGMENT_UNMAP,
	LG_SNAP_SNAPSHOT,
	LG_SNAP_OOM
};

struct lg_snap_event {
	enum lg_snap_action action;
	uint64_t addr, size;
	int64_t stream, ts; /* ts INT64_MIN: the event has no time */
	lg_stk stack;
};

enum lg_snap_state { LG_SNAP_INACTIVE, LG_SNAP_ALLOCATED, LG_SNAP_PENDING };

struct lg_snap_block {
	enum lg_snap_state state;
	uint64_t addr, size, requested;
	int64_t stream;
	lg_stk stack;
};

struct lg_snap_segment {
	uint64_t addr, size;
	int64_t stream;
	lg_stk stack;
	lg_str pool, type;
};

struct lg_snap_device;
struct lg_snap_rows {
	struct lg_builder *b;
	lg_prc prc;			   /* whose memory it is */
	struct lg_snap_device *device[64]; /* by number; NULL = not in the file */
	int64_t first, last;		   /* of all events; first > last: none */
	bool timed;
	uint64_t odd; /* events of no device that there can be */
	lg_str s_alloc, s_before;
};

void lg_snap_begin(struct lg_snap_rows *r, struct lg_builder *b, lg_prc prc);
void lg_snap_event(struct lg_snap_rows *r, int64_t device, const struct lg_snap_event *e);
void lg_snap_segment(struct lg_snap_rows *r, int64_t device, const struct lg_snap_segment *s);
void lg_snap_block(struct lg_snap_rows *r, int64_t device, const struct lg_snap_block *k);
/* All has been read: what is alive, what stands at the snapshot, the counters. */
void lg_snap_end(struct lg_snap_rows *r);
void lg_snap_done(struct lg_snap_rows *r);

#endif /* LG_IMPORT_MEMSNAP_SNAP_ROWS_H */
