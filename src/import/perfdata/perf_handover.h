/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_handover.h - records in time order, handed from the thread that reads and orders them to one
 * that makes rows of them: the two take about the same time and share nothing else.
 *
 * Bounded: a fixed number of records waits, then the reader does. Short files are worked off on
 * the spot, and so is everything where no thread is to be had.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_HANDOVER_H
#define LG_IMPORT_PERFDATA_PERF_HANDOVER_H
#include "import/perfdata/perf_memo.h"
#include "import/perfdata/perf_order.h"

struct lg_pd_handover;

struct lg_pd_handed {
	struct lg_pd_entry entry;
	/* Made where the bytes are in the cache: of a sample's chain, and what else there is where a sample
	 * is nothing but fixed fields and a chain. plain: its event, NULL = it is not, or damaged. */
	struct lg_pd_chain_key chain;
	const struct lg_pd_attr *plain;
	uint64_t period;
	int32_t pid, tid, cpu;
	uint16_t misc;
};

/* ahead(), which may be NULL, some records before work(): what it will need can be fetched.
 * work() is called for each record in the order of the adds; what it fails with, adds return. */
int lg_pd_handover_new(struct lg_pd_handover **ret, struct lg_pd_pool *pool,
		       int (*work)(void *self, const struct lg_pd_handed *e),
		       void (*ahead)(void *self, const struct lg_pd_handed *e), void *self,
		       struct lg_error *err) LG_MUST_CHECK;
/* Takes a hold on the entry's block until it has been worked off. */
int lg_pd_handover_add(struct lg_pd_handover *h, const struct lg_pd_handed *e) LG_MUST_CHECK;
/* Everything added has been worked off: what work() uses may be looked at and changed. */
int lg_pd_handover_wait(struct lg_pd_handover *h) LG_MUST_CHECK;
/* Waits as well. */
void lg_pd_handover_free(struct lg_pd_handover *h);

#endif /* LG_IMPORT_PERFDATA_PERF_HANDOVER_H */
