/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_handover.h - records in time order, handed from the thread that reads and orders them to one
 * that makes rows of them: the two take about the same time and share nothing else.
 *
 * Bounded: a fixed number of records waits, then the reader does. Short files are worked off by the
 * reader itself, and so is everything where no thread is to be had.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_HANDOVER_H
#define LG_IMPORT_PERFDATA_PERF_HANDOVER_H
#include "import/perfdata/perf_seen_chains.h"
#include "import/perfdata/perf_order.h"

struct lg_pd_handover;

enum { LG_PD_SLOTS = 8 };

struct lg_pd_handed {
	struct lg_pd_entry entry;
	struct lg_pd_seen seen; /* of a sample's chain */
	const struct lg_pd_attr *plain; /* entry.look.plain */
};

struct lg_pd_hands {
	/* Of the caller: all that was added is complete when it returns. May be NULL. */
	void (*complete)(void *self);
	/* Some records before work(): what it will need can be fetched. May be NULL. */
	void (*ahead)(void *self, const struct lg_pd_handed *e);
	/* Fewer records before it, when what ahead() fetched is there: what that leads to. May be NULL. */
	void (*nearer)(void *self, const struct lg_pd_handed *e, size_t slot);
	/* Called for each record in the order of the adds; what it fails with, adds return. slot, below
	 * LG_PD_SLOTS: for what nearer() found, the records in between have others. */
	int (*work)(void *self, const struct lg_pd_handed *e, size_t slot);
	void *self;
};

int lg_pd_handover_new(struct lg_pd_handover **ret, struct lg_pd_pool *pool, const struct lg_pd_hands *hands,
		       struct lg_error *err) LG_MUST_CHECK;
/* Takes a hold on the entry's block until it has been worked off. *ret: what the caller has to fill, all 0
 * but for the entry; stays where it is until complete(). */
int lg_pd_handover_add(struct lg_pd_handover *h, const struct lg_pd_entry *e,
		       struct lg_pd_handed **ret) LG_MUST_CHECK;
/* Everything added has been worked off: what work() uses may be looked at and changed. */
int lg_pd_handover_wait(struct lg_pd_handover *h) LG_MUST_CHECK;
/* Waits as well. */
void lg_pd_handover_free(struct lg_pd_handover *h);

#endif /* LG_IMPORT_PERFDATA_PERF_HANDOVER_H */
