/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - what a recording says about the machine, its clocks and itself. */
#ifndef LG_RECORD_FACTS_H
#define LG_RECORD_FACTS_H
#include "record/session.h"

/* host.*, record.* rows that are known at the start. */
void lg_facts_machine(struct lg_builder *b, const struct lg_record_options *opt, enum lg_tier tier);

/* Clock pairs: CLOCK_REALTIME and CLOCK_BOOTTIME against CLOCK_MONOTONIC. */
struct lg_clock_watch {
	int64_t next, offset; /* when to read again; REALTIME - MONOTONIC at the last reading */
	bool started;
};
/* Read the pairs if it is time (or force); a step of the wall clock becomes a diag row. */
void lg_facts_clocks(struct lg_builder *b, struct lg_clock_watch *w, int64_t now, bool force);

struct lg_cost {
	int64_t cpu_ns, rss_bytes, wall_ns;
};
/* CPU time of this process since `since` (may be NULL) and its peak memory. */
struct lg_cost lg_facts_cost(const struct lg_cost *since);

#endif /* LG_RECORD_FACTS_H */
