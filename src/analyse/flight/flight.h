/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - dumps of the Flight Recorder, put together: who waits in what, and for whom.
 *
 * A dump says of each group of its rank: the last collective that was enqueued, the last that completed, and
 * what is in the ring. A group is one by name and ranks: names come again when groups are split.
 *
 * A rank waits in the oldest collective of a group that has not completed on it. It waits for those members
 * that have not enqueued that one. Whoever others wait for, and who waits for nobody, is where the chain
 * ends. A run that moves and is dumped has collectives under way, too; but as its hosts run ahead, the oldest
 * of them is one that all have entered. Dumps from different moments contradict each other: a collective
 * that completed on one rank was entered by all.
 */
#ifndef LG_ANALYSE_FLIGHT_FLIGHT_H
#define LG_ANALYSE_FLIGHT_FLIGHT_H
#include "analyse/case.h"

enum { LG_FLIGHT_RANKS = 1 << 17 };
#define LG_FLIGHT_RUNS_APART (10 * INT64_C(1000000000)) /* nothing starts a job again sooner */

/* A dump's side of a group. */
struct lg_flight_side {
	const char *name;   /* of the group */
	const char *fact;   /* its description and ranks */
	lg_prc prc;
	uint32_t group;     /* equal for equal groups; from 1 */
	int64_t enqueued, completed; /* the last; -1 = none, or not known */
	int64_t oldest;     /* that has not completed; -1 = none */
	uint32_t row;       /* of the oldest, LG_NO_ROW where the ring has lost it */
	uint32_t last_row;  /* of the last in the ring, or LG_NO_ROW */
	bool status;        /* the numbers are the dump's own, not only the ring's */
	bool counted;       /* so is that of what completed */
};

/* A collective in a ring. */
struct lg_flight_entry {
	uint32_t group, row, side;
	lg_prc prc;
	int64_t seq;
};

struct lg_flight {
	struct lg_case *c;
	struct lg_flight_side *side; /* by process, then by name */
	size_t n, cap;
	struct lg_flight_entry *entry; /* by group, number, process */
	size_t n_entries, cap_entries;
	lg_prc *of_rank;    /* LG_FLIGHT_RANKS */
	uint8_t *dumped;    /* by process */
	uint8_t *empty;     /* by process: its ring is */
	uint8_t *waits;     /* by process: for another rank */
	uint8_t *unlike;    /* by group: the numbers of its ranks do not belong together */
	uint8_t two_runs;   /* some group's are of two runs */
	size_t n_dumped, n_groups;
};

/* Who of the group of s has entered what s waits in. */
struct lg_flight_look {
	const struct lg_flight *d;
	const struct lg_flight_side *s;
	size_t here;           /* members with a dump that knows the group */
	size_t missing;        /* of them: by their numbers they have not */
	size_t nothing;        /* of them: whose ring is empty, without numbers */
	size_t absent;         /* members without a dump */
	int32_t first_absent;
	int64_t most;          /* that has completed on any member */
	void (*each)(struct lg_flight_look *l, lg_prc p); /* of missing and nothing; may be NULL */
	void *arg;
};

/* Are there dumps? */
bool lg_flight_any(const struct lg_trace *t);
/* d: zeroed but for c. */
int lg_flight_read(struct lg_flight *d) LG_MUST_CHECK;
void lg_flight_done(struct lg_flight *d);
/* The side of process p of the same group; NULL. */
struct lg_flight_side *lg_flight_side_of(const struct lg_flight *d, lg_prc p,
					 const struct lg_flight_side *like);
struct lg_flight_look lg_flight_look(const struct lg_flight *d, const struct lg_flight_side *s,
				     void (*each)(struct lg_flight_look *l, lg_prc p), void *arg);
static inline bool lg_flight_waits(const struct lg_flight *d, const struct lg_flight_side *s)
{
	return s->oldest >= 0 && !d->unlike[s->group];
}

/* ---- flight_parted.c ---- */
/* comms.mismatch: ranks entered different collectives under one number. */
int lg_flight_parted(struct lg_flight *d) LG_MUST_CHECK;
/* Ranks that are missing, or whose calls part: from dumps of the Flight Recorder, from the hook's marks. */
int lg_find_flight(struct lg_case *c) LG_MUST_CHECK;    /* flight_rules.c */
int lg_find_sequences(struct lg_case *c) LG_MUST_CHECK; /* sequences.c */
/* A finding about a hang. */
struct lg_finding *lg_flight_finding(struct lg_case *c, enum lg_rule_id rule, double confidence,
				     int32_t rank);
/* "inputs [2,8] BFloat16 at train.py:12 step" */
const char *lg_flight_inputs(struct lg_case *c, uint32_t row);

#endif /* LG_ANALYSE_FLIGHT_FLIGHT_H */
