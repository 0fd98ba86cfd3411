/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally.h - the critical path added up: per cause, per slow step, per rank.
 */
#ifndef LG_ANALYSE_CHAINS_TALLY_H
#define LG_ANALYSE_CHAINS_TALLY_H
#include "analyse/steps/steps.h"

enum { LG_FINDINGS_MAX = 64, LG_EVIDENCE_MAX = 12 };

struct lg_cause_sum {
	uint8_t end;         /* enum lg_end_kind */
	uint8_t stage;       /* where most of it hit */
	lg_prc prc;          /* culprit process; 0 = unknown */
	lg_thr thr;          /* its thread with most of the time */
	lg_thr victim;       /* thread hit longest */
	lg_str lock;
	int64_t left_out;    /* ns: its victims were ready beside an idle CPU, by LG_END_QUOTA */
	bool own_job;        /* culprit belongs to the same job */
	int64_t lost;        /* ns on the critical path */
	int64_t slow_lost;   /* of it inside slow steps, beyond what it takes of the others */
	int64_t by_proof[LG_PROOF_SCHED + 1];
	const struct lg_piece **pieces;
	size_t n_pieces;
	size_t n_steps_hit;  /* steps that lost at least a fiftieth of the median step to it */
	bool steady;         /* there in one step of five, or mostly outside slow steps */
	size_t n_members;    /* processes added up here: children of prc when > 1 */
	lg_prc member[3];    /* those with most of the time */
	size_t other_holds;  /* holds of the culprit on this kind of lock in the whole run */
	struct lg_rhythm rhythm; /* and how many separate occurrences: from a step's gap on */
	uint8_t *of_rank;    /* by rank index: was hit */
};

/* For each piece of a cause, in order of time. */
#define LG_EACH_PIECE(p, sum) LG_EACH_PIECE_WHILE(1, p, sum)
#define LG_EACH_PIECE_WHILE(cond, p, sum)                                                          \
	for (const struct lg_piece *const *p##_at = (sum)->pieces, *p;                              \
	     (cond) && p##_at != (sum)->pieces + (sum)->n_pieces && (p = *p##_at, true); p##_at++)

/* What a rank's own process did, ns: it computed, it slept, it was held up by what something caused. */
struct lg_own_time {
	int64_t ran, slept, stalled;
};

/* A rank that came late by its own doing, ns. */
struct lg_late_rank {
	int64_t lost;                  /* all of it; 0 = it is not named */
	int64_t slow_lost, slow_slept; /* beyond the usual in slow steps; the latter asleep */
	struct lg_own_time steady;     /* in the others, where it is nearly always last */
	size_t n_last, n_events;       /* collectives in which it was last; slow steps */
};

/* All that are named, of_rank[i].lost > 0, added up. */
struct lg_straggler {
	uint32_t rank;       /* index of the one that is named first; UINT32_MAX = none */
	struct lg_late_rank *of_rank; /* by index */
	size_t n_late;       /* named: more than one, if they are late in turn */
	bool steady;
	int64_t lost, slow_lost, median_late;
	bool slept;          /* it, or who it waited for, more than it ran, as far as late by it */
	lg_thr sleeper;      /* the longest at a time in slow steps; 0 = nobody did */
	size_t n_last, n_matched, n_events;
	const struct lg_piece **pieces;
	size_t n_pieces;
};

struct lg_tally {
	const struct lg_piece *path;
	size_t n_path;
	uint32_t ref;        /* rank whose steps cut the path */
	int64_t wall;        /* ns: length of the path */
	int64_t excess;      /* ns: sum over slow steps of duration - rolling median */
	int64_t explained;   /* ns of excess with a cause */
	int64_t unknown;     /* ns of the path without evidence */
	int64_t by_end[LG_END_MAX];
	size_t n_slow;
	struct lg_ivs slow;  /* when: ref's slow steps */
	struct lg_cause_sum *causes; /* by lost, descending */
	size_t n_causes;
	struct lg_straggler straggler;
	int64_t own_excess;  /* ns of slow steps' excess that was somebody's own running */
};

/* ---- lateness.c ---- */
/* Of rank r's own process in [a, b), on the way of its main thread. scratch: used up. */
struct lg_own_time lg_own_time_in(struct lg_case *c, const struct lg_rank *r, int64_t a, int64_t b,
				  struct lg_pieces *scratch);
/* Fills y->straggler and y->own_excess. */
int lg_find_late_ranks(struct lg_case *c, struct lg_tally *y) LG_MUST_CHECK;

/* Everything lives in the verdict's arena. Also sets the verdict's shape, scope and period. */
int lg_tally(struct lg_case *c, uint32_t ref, const struct lg_pieces *path, struct lg_tally *ret)
	LG_MUST_CHECK;
/* Scope, shape, period, from the tally and all ranks' slow steps. */
int lg_judge_run(struct lg_case *c, const struct lg_tally *y) LG_MUST_CHECK;
const struct lg_piece *lg_longest_piece(const struct lg_cause_sum *s);
/* Share of events that were lost while recording, 0..1. */
double lg_loss_share(const struct lg_case *c);
int lg_find_causes(struct lg_case *c, const struct lg_tally *y) LG_MUST_CHECK;

/* Own threads push each other aside where strangers have the other CPUs: that is doubted (others.c). */
void lg_doubt_oversubscribed(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s);
/* Waits of r, which has no steps: what they cost is not known. wall: ns that were seen of it. */
bool lg_finding_of_waits(struct lg_case *c, const struct lg_rank *r, const struct lg_cause_sum *s,
			 int64_t wall);
/* The same held up another rank as well: what the one lost that lost most counts. */
void lg_finding_of_waits_too(struct lg_finding *f, struct lg_case *c, const struct lg_rank *r,
			     const struct lg_cause_sum *s, int64_t wall);
/* There are no steps: what is proven of the ranks' waits all the same (stepless.c). *ret_found: a finding. */
int lg_judge_stepless(struct lg_case *c, bool *ret_found) LG_MUST_CHECK;

#endif /* LG_ANALYSE_CHAINS_TALLY_H */
