/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters.h - what /proc and the cgroup files count, once a second, as counter rows.
 *
 *   cpu.steal cpu.irq cpu.softirq   ratio of the second that ends at ts, one track per CPU
 *   psi.cpu.some psi.memory.full... ratio of the second in which some/all tasks were stalled
 *   mem.available                   bytes
 *   cgroup.throttled PATH           ns of the second in which the group was out of CPU quota
 *   disk.* io.*                     see disks.h
 *
 * A counter holds until its next row: an equal value is repeated only every 5 s (for the ring).
 */
#ifndef LG_RECORD_COUNTERS_H
#define LG_RECORD_COUNTERS_H
#include "record/lives.h"
#include "store/builder.h"

struct lg_counters;
int lg_counters_new(struct lg_counters **ret, struct lg_builder *b, struct lg_lives *lives,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_counters_free(struct lg_counters *c);
/* Read and add rows if a second has passed since the last time. */
void lg_counters_read(struct lg_counters *c, int64_t now);
/* The rest of a second at the end. */
void lg_counters_last(struct lg_counters *c, int64_t now);

#endif /* LG_RECORD_COUNTERS_H */
