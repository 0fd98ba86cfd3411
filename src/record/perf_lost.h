/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_lost.h - where the holes of a perf ring begin.
 *
 * The kernel writes PERF_RECORD_LOST when there is room again, with that moment's time; what is
 * missing lies between the ring's previous record and it.
 */
#ifndef LG_RECORD_PERF_LOST_H
#define LG_RECORD_PERF_LOST_H
#include "record/perf_ring.h"

#define LG_PERF_HOLE 0x4c47u /* header.type of ours: the kernel's types are small numbers */

/* Goes through the session's queue in place of the kernel's record. */
struct lg_perf_hole {
	struct perf_event_header header;
	int64_t from, to;
	uint64_t count;
	int32_t cpu;
	uint32_t event; /* as lg_perf_head.event: whose record found room again */
};

struct lg_perf_lost {
	int64_t *last; /* by CPU: time of its newest record */
	size_t n;
};

void lg_perf_lost_seen(struct lg_perf_lost *l, int cpu, int64_t ts);
struct lg_perf_hole lg_perf_lost_hole(struct lg_perf_lost *l, int cpu,
				      const struct perf_event_header *h,
				      const struct lg_perf_head *head);
void lg_perf_lost_done(struct lg_perf_lost *l);

#endif /* LG_RECORD_PERF_LOST_H */
