/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case.h - what the questions of analyse/ share while one trace is explained.
 *
 * Filled in this order: ranks and steps (steps.c), collectives (collectives.c), locks (locks.c);
 * then chains are followed (chain.c), the critical path is walked (path.c), findings made.
 * All memory is the verdict's arena or freed by lg_explain(). Times: ns on the trace's clock.
 * What nearly every question calls comes with it: <string.h>, memory, walks, order, the index.
 */
#ifndef LG_ANALYSE_CASE_H
#define LG_ANALYSE_CASE_H
#include <string.h>

#include "analyse/chains/ends.h"
#include "analyse/grade.h"
#include "analyse/verdict.h"
#include "rules/says.h"
#include "timeline/rows.h"

/* The main thread of one training process: whose lateness is the question. */
struct lg_rank {
	lg_prc prc;
	lg_thr thr;
	int32_t rank;            /* -1 = unknown */
	bool inferred;           /* no marks: steps are told from the thread's own rhythm */
	const uint32_t *states;  /* its state rows, by time */
	size_t n_states;
	const uint32_t *spans;   /* its steps, stages, collectives and waits in user space, by time */
	size_t n_spans;
	size_t step_first, n_steps; /* in verdict->steps */
	struct lg_stage_seg *segs;  /* which stage the thread is in, by time; disjoint */
	size_t n_segs;
	struct lg_meeting *met; /* inferred steps: what ends each of them, by time */
	size_t n_met;
	struct lg_arrival *arrivals; /* its collectives, by arrival */
	size_t n_arrivals;
};

struct lg_stage_seg {
	int64_t ts, end;
	uint8_t stage;
	uint32_t span; /* row */
};

/* Where a step ends that was inferred: the thread handed work over, and went on. */
struct lg_meeting {
	int64_t came, end; /* equal: it did not wait */
};

/* One rank's side of one collective. */
struct lg_arrival {
	int64_t ts, end;     /* began to wait; was let go (equal: an asynchronous call) */
	int64_t came;        /* made its call; INT64_MIN = told by another row (Work.wait) */
	uint32_t span;       /* row; UINT32_MAX: inferred */
	uint32_t late_rank;  /* index into ctx->ranks of who came last; UINT32_MAX = unmatched */
	int64_t late_ts;     /* when the last one came */
	int64_t second_ts;   /* when the last but one came */
	int64_t first_ts;    /* when the first one came */
	uint32_t second_rank;
	uint32_t n_seen;     /* ranks matched */
};

/* A thread waited for Python's lock, and holder had it in [from, end). */
struct lg_gil_wait {
	lg_thr thr, holder; /* holder 0: not known */
	int64_t from, end;
	int64_t asked;      /* since when it was asked to give the lock up; INT64_MAX = it was not */
	bool last;          /* with its end the wait is over; else it goes on in the next one of thr */
	bool told;          /* by the recorder; else by its shape */
};

/* The kernel's work in a rank's main thread, or in its copy, about from .. end. */
struct lg_chore {
	lg_thr thr;
	int64_t from, end;
	uint8_t kind; /* LG_END_FORK, LG_END_RECLAIM */
	enum lg_fork_part { LG_FORK_COPIED, LG_FORK_ON_WRITE, LG_FORK_TAKEN_DOWN } part; /* of LG_END_FORK */
};

/* How the end was established; confidence grows with the number. */
enum lg_proof { LG_PROOF_NONE, LG_PROOF_WAKER, LG_PROOF_OWNER_READER, LG_PROOF_OWNER, LG_PROOF_HOLD,
		LG_PROOF_SCHED };

struct lg_piece {
	int64_t ts, dur;
	lg_thr of;        /* whose time this is (a main thread, or a helper it waited for) */
	lg_thr thr;       /* culprit thread at the end of the chain */
	uint8_t end;      /* enum lg_end_kind */
	uint8_t proof;    /* enum lg_proof */
	uint8_t kind;     /* enum lg_part_kind of `of` */
	uint8_t hops;     /* length of the chain */
	uint32_t row;     /* span row (lock wait), or state row; UINT32_MAX = none */
	uint32_t hold;    /* span row of the hold; UINT32_MAX = none */
	lg_str lock;
};

struct lg_pieces {
	struct lg_piece *v;
	size_t n, cap;
};

struct lg_lock_table; /* locks.c */
struct lg_wait_cache; /* waits.c */

struct lg_case {
	const struct lg_trace *t;
	struct lg_index *idx; /* the verdict's */
	struct lg_verdict *v;
	struct lg_scene scene; /* the same for timeline/ */
	struct lg_rank *ranks;
	size_t n_ranks;
	struct lg_lock_table *locks;
	struct lg_wait_cache *waits;
	uint32_t *rank_of_thr; /* thread row -> rank index + 1 for main threads, else 0 */
	uint32_t *rank_of_prc; /* process row -> rank index + 1, else 0 */
	uint32_t *quota_rows;  /* counter rows, see quota.c; NULL = not looked for */
	size_t n_quota_rows;
	struct lg_gil_wait *gil; /* by thread, then time; NULL = none; see gil.c */
	size_t n_gil;
	bool gil_untold;       /* of a rank: who had the lock was not recorded */
	struct lg_chore *chores; /* by thread, then time, disjoint; see chores.c */
	size_t n_chores;
	lg_prc *parent;        /* by process row, see lg_parent_of(); made at its first call */
	uint8_t *in_job;       /* by process row, see lg_in_job(); made at its first call */
	uint8_t *other_job;    /* by process row: of a marked job that is not judged; NULL = there is none */
	uint8_t *likely_job;   /* by process row, see lg_find_likely_jobs(); NULL = not looked for */
	uint8_t *always_ready; /* by thread row, see lg_find_always_ready(); NULL = not looked for */
	bool has_states;
	int32_t victim_pid;    /* that the user named; 0 = none */
	/* registry.c: rules that the finder who is asked leaves to those before it, and how many findings
	 * they have made. */
	const enum lg_rule_id *yields; /* NULL = none */
	size_t told_before;
	size_t n_findings_left_out;  /* LG_FINDINGS_MAX was reached */
	struct lg_finding scrap;     /* see lg_finding_or_scrap() */
	int failed;
};

#define lg_percent(part, of) (100 * (double)(part) / (double)(of))

static inline bool lg_is_mark(const struct lg_trace *t, size_t i, const char *name)
{
	return !strcmp(lg_string(t, t->mark.name[i]), name);
}

/* For each mark i of that name; and of process p alone. */
#define LG_EACH_MARK(i, t, name) \
	for (size_t i = 0; i < (t)->mark.n; i++) \
		if (!lg_is_mark((t), i, (name))) { } else
#define LG_EACH_MARK_OF(i, t, p, name) \
	for (size_t i = 0; i < (t)->mark.n; i++) \
		if ((t)->thread.prc[(t)->mark.thr[i]] != (p) || !lg_is_mark((t), i, (name))) { } else

/* -1 = of none. */
static inline int32_t lg_rank_of_mark(const struct lg_trace *t, size_t i)
{
	return t->process.rank[t->thread.prc[t->mark.thr[i]]];
}

/* Does rc say that something failed? Then the case remembers it. */
static inline bool lg_failed(struct lg_case *c, int rc)
{
	if (rc)
		c->failed = rc;
	return rc != 0;
}

/* As lg_calloc(); on exhaustion the case remembers it. */
static inline void *lg_scratch(struct lg_case *c, size_t n, size_t size)
{
	void *p = lg_calloc(n, size);

	if (!p)
		c->failed = LG_E_NOMEM;
	return p;
}

/* Append; on exhaustion ctx->failed is set. */
void lg_piece_add(struct lg_case *c, struct lg_pieces *p, const struct lg_piece *piece);

/* A line for the verdict's limits: what could not be seen. text: of the verdict's arena, or static. */
void lg_limit(struct lg_case *c, const char *text);

/* The same, written as printf() does. */
#define lg_say(c, ...) lg_limit((c), lg_text((c), __VA_ARGS__))

/*
 * what was found in the input, and no rule judges: while there is any, nobody says that nothing is wrong.
 * A noun for the headline ("2 killed workers"), of the verdict's arena, or static. example: a line of it for the
 * limits; NULL = another limit says it.
 */
void lg_not_judged(struct lg_case *c, const char *what, const char *example);

/* ---- finding.c ---- */
struct lg_finding *lg_finding_add(struct lg_case *c, enum lg_rule_id rule);
/* The same, never NULL: one that nobody is told of is written to c->scrap. */
struct lg_finding *lg_finding_or_scrap(struct lg_case *c, enum lg_rule_id rule);
/* The same, graded as what has no price so far. stage: LG_STAGE_NONE where no part of a step is meant. */
struct lg_finding *lg_finding_about(struct lg_case *c, enum lg_rule_id rule, uint32_t stage,
				    enum lg_relation culprit, double confidence);
/* Is there nothing to add: was it told before, or what it yields to (rules.def, YIELDS)? */
bool lg_is_told(const struct lg_case *c, enum lg_rule_id rule);
/* What another finder told, to be read or added to. The first one; NULL. */
struct lg_finding *lg_told(const struct lg_case *c, enum lg_rule_id rule);
/* A line of evidence, written as printf() does; ts INT64_MIN: of no moment. against: what speaks against the
 * finding, or what it cannot tell. */
void lg_evidence_put(struct lg_case *c, struct lg_finding *f, bool against, int64_t ts, int64_t dur,
		     const char *fmt, ...) LG_PRINTF(6, 7);
#define lg_evidence_add(c, f, ts, dur, ...) lg_evidence_put((c), (f), false, (ts), (dur), __VA_ARGS__)
#define lg_evidence(c, f, ...) lg_evidence_put((c), (f), false, INT64_MIN, 0, __VA_ARGS__)
#define lg_evidence_against(c, f, ...) lg_evidence_put((c), (f), true, INT64_MIN, 0, __VA_ARGS__)
/* One more of those that it held up; room for at most so many is made at the first. */
void lg_victim_add(struct lg_case *c, struct lg_finding *f, size_t at_most, int32_t rank, lg_prc p,
		   lg_thr thr);
/* One of several ranks that f accuses together. */
void lg_culprit_rank_add(struct lg_case *c, struct lg_finding *f, int32_t rank);
#define lg_text(c, ...) lg_arena_printf(&(c)->v->arena, __VA_ARGS__)
#define lg_title(c, f, ...) ((f)->title = lg_text(c, __VA_ARGS__))

/* before and what, where there is anything to say. */
static inline const char *lg_with(struct lg_case *c, const char *before, const char *what)
{
	return what && *what ? lg_text(c, "%s%s", before, what) : "";
}

/* "0-8, 10" of n numbers in order, which may repeat: so many ranges at most, then " ...". *ret_n: distinct
 * ones. */
const char *lg_ranges_text(struct lg_case *c, const int64_t *v, size_t n, size_t at_most, size_t *ret_n);
/* Its part of the slow steps' excess is explained. */
void lg_explains_excess(struct lg_verdict *v, const struct lg_finding *f);
/* Nothing else says what the run is bound by: waits for data, if they are such a share. */
void lg_bound_by_data(struct lg_case *c, double share, const char *why);

#endif /* LG_ANALYSE_CASE_H */
