/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_seen_chains.h - call chains seen before, by number.
 *
 * Who reads the records asks for the numbers, who makes rows of them keeps by number what the chain was
 * found to be: the two may be different threads, as long as the records come to both in one order. A chain
 * has another number once what its addresses mean may have changed: that is told by the records, too.
 *
 * A chain is known by a key of perf_buckets.h and is not compared. Where new ones take the numbers of old
 * ones, what is kept by number is kept with the check.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_SEEN_CHAINS_H
#define LG_IMPORT_PERFDATA_PERF_SEEN_CHAINS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "import/perfdata/perf_order.h"

struct lg_pd_seen_chains;

struct lg_pd_number {
	uint32_t i;     /* from 1 on; 0 = none */
	uint32_t check; /* differs between two chains that had i one after the other */
};

struct lg_pd_seen {
	struct lg_pd_number whole;
	uint64_t version; /* of what its addresses mean, with where it begins */
	bool fresh;       /* it is new: its bytes will be looked at */
};

/* NULL when memory is exhausted. */
struct lg_pd_seen_chains *lg_pd_seen_chains_new(void);
void lg_pd_seen_chains_free(struct lg_pd_seen_chains *m);
/* What a chain of n > 0 addresses is asked for by, whenever that is: tag, place, n and begins of look, whose
 * misc is set. */
void lg_pd_seen_chains_look(struct lg_pd_look *look, const uint8_t *chain, size_t n, bool swap);
/*
 * Of a thread of look->pid. *ret gets its number some calls later, lg_pd_seen_chains_settle() at the latest:
 * where that is is on its way from memory meanwhile. Until then ret stays where it is.
 */
void lg_pd_seen_chains_ask(struct lg_pd_seen_chains *m, const struct lg_pd_look *look,
			   struct lg_pd_seen *ret);
void lg_pd_seen_chains_settle(struct lg_pd_seen_chains *m);
/* For what is asked from here on: what lies where in pid may have changed; in the kernel. */
void lg_pd_seen_chains_changed(struct lg_pd_seen_chains *m, int32_t pid);
void lg_pd_seen_chains_kernel_changed(struct lg_pd_seen_chains *m);

#endif /* LG_IMPORT_PERFDATA_PERF_SEEN_CHAINS_H */
