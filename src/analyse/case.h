/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case.h - what the questions of analyse/ share while one trace is explained.
 *
 * Filled in this order: ranks and steps (steps.c), collectives (collectives.c), locks (locks.c);
 * then chains are followed (chain.c), the critical path is walked (path.c), findings made.
 * All memory is the verdict's arena or freed by lg_explain(). Times: ns on the trace's clock.
 */
#ifndef LG_ANALYSE_CASE_H
#define LG_ANALYSE_CASE_H
#include "analyse/chains/ends.h"
#include "analyse/grade.h"
#include "analyse/verdict.h"
#include "store/index.h"

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
	struct lg_arrival *arrivals; /* its collectives, by arrival */
	size_t n_arrivals;
	size_t gil_first, n_gil; /* its waits in ctx->gil, by time */
};

struct lg_stage_seg {
	int64_t ts, end;
	uint8_t stage;
	uint32_t span; /* row */
};

/* One rank's side of one collective. */
struct lg_arrival {
	int64_t ts, end;     /* began to wait; was let go (equal: an asynchronous call) */
	int64_t came;        /* made its call; INT64_MIN = told by another row (Work.wait) */
	uint32_t span;       /* row */
	uint32_t late_rank;  /* index into ctx->ranks of who came last; UINT32_MAX = unmatched */
	int64_t late_ts;     /* when the last one came */
	int64_t second_ts;   /* when the last but one came */
	uint32_t n_seen;     /* ranks matched */
};

/* A rank's thread waited for Python's lock, and holder had it in [from, end). */
struct lg_gil_wait {
	lg_thr thr, holder;
	int64_t from, end;
};

/* The kernel's work in a rank's main thread, about from .. end; in order of time, disjoint. */
struct lg_chore {
	int64_t from, end;
	uint8_t kind; /* LG_END_FORK, LG_END_RECLAIM */
};

struct lg_chores {
	struct lg_chore *v;
	size_t n;
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
	struct lg_rank *ranks;
	size_t n_ranks;
	struct lg_lock_table *locks;
	struct lg_wait_cache *waits;
	lg_str *span_names;    /* each once; filled by lg_span_names() */
	size_t n_span_names;
	uint32_t *rank_of_thr; /* thread row -> rank index + 1 for main threads, else 0 */
	uint32_t *rank_of_prc; /* process row -> rank index + 1, else 0 */
	uint32_t *quota_rows;  /* counter rows, see quota.c; NULL = not looked for */
	size_t n_quota_rows;
	struct lg_gil_wait *gil; /* NULL = none; see gil.c */
	struct lg_chores *chores; /* by rank; NULL = none; see chores.c */
	lg_prc *parent;        /* by process row, see lg_parent_of(); made at its first call */
	uint8_t *in_job;       /* by process row, see lg_in_job(); made at its first call */
	uint8_t *other_job;    /* by process row: of a marked job that is not judged; NULL = there is none */
	uint8_t *likely_job;   /* by process row, see lg_find_likely_jobs(); NULL = not looked for */
	uint8_t *always_ready; /* by thread row, see lg_find_always_ready(); NULL = not looked for */
	bool has_states;
	uint8_t no_activity;   /* flags of samples that lg_shows_activity() leaves out */
	int32_t victim_pid;    /* that the user named; 0 = none */
	/* registry.c: rules that the finder who is asked leaves to those before it, and how many findings
	 * they have made. */
	const enum lg_rule_id *yields; /* NULL = none */
	size_t told_before;
	size_t limits_cap;           /* of v->limits */
	size_t n_findings_left_out;  /* LG_FINDINGS_MAX was reached */
	int failed;
};

/* The CPU samples of a thread in [from, to), by time. Where a tracepoint was hit says nothing of what the
 * thread is at most of the time, and its innermost frames are the tracepoint's. */
struct lg_cpu_samples {
	uint32_t at, end; /* positions in idx->sample */
	int64_t to;
};

static inline struct lg_cpu_samples lg_cpu_samples(const struct lg_case *c, lg_thr thr, int64_t from,
						   int64_t to)
{
	return (struct lg_cpu_samples){ .at = lg_index_sample_from(c->idx, thr, from),
					.end = c->idx->sample_off[thr + 1],
					.to = to };
}

/* *ret: the row of the next one. False: that was all. */
static inline bool lg_next_cpu_sample(const struct lg_case *c, struct lg_cpu_samples *s, uint32_t *ret)
{
	while (s->at < s->end) {
		*ret = c->idx->sample[s->at++];
		if (c->t->sample.ts[*ret] >= s->to)
			return false;
		if (!(c->t->sample.flags[*ret] & LG_SAMPLE_NO_CPU))
			return true;
	}
	return false;
}

/* Does it tell that its thread ran just then? Hits of tracepoints count where there is nothing better. */
static inline bool lg_shows_activity(const struct lg_case *c, size_t row)
{
	return !(c->t->sample.flags[row] & c->no_activity);
}

/* Append; on exhaustion ctx->failed is set. */
void lg_piece_add(struct lg_case *c, struct lg_pieces *p, const struct lg_piece *piece);

/* ---- steps.c: ranks, their steps, stage segments ---- */
/* A line for the verdict's limits: what could not be seen. text: of the verdict's arena, or static. */
void lg_limit(struct lg_case *c, const char *text);
int lg_find_steps(struct lg_case *c, int32_t victim_pid, struct lg_error *err) LG_MUST_CHECK;
/* Were the states read from /proc now and then? The repetition that they show is the poll's as much as the
 * program's. */
bool lg_is_polled(const struct lg_case *c);
/* r->spans of r->thr: also of a thread that is no rank. */
int lg_rank_spans(struct lg_case *c, struct lg_rank *r) LG_MUST_CHECK;
/* r->segs from r->spans. */
int lg_stage_segments(struct lg_case *c, struct lg_rank *r) LG_MUST_CHECK;
/* What r's slow steps took beyond the median around them; steps: of all ranks. */
int64_t lg_excess_of(const struct lg_rank *r, const struct lg_step *steps);
/* Stage of rank r's main thread at ts. */
uint8_t lg_stage_at(const struct lg_rank *r, int64_t ts);
/* Next stage change of r after ts (INT64_MAX when none). */
int64_t lg_stage_next(const struct lg_rank *r, int64_t ts);

/* ---- infer.c: the same for programs without marks ---- */
/* Did anybody say that p trains: the recorder, or the user? */
bool lg_was_named(const struct lg_case *c, lg_prc p);
/* "nobody said which process trains; the busiest: A, B": where there are several. NULL = there is no doubt. */
const char *lg_candidates_text(struct lg_case *c);
/* A limit that says so, where there is doubt: chosen was judged, and why. */
void lg_say_candidates(struct lg_case *c, lg_thr chosen, const char *why);
/* ---- likely_job.c: does anything show that one of the busiest trains? ---- */
/* steps: of all ranks. Where some are likely jobs the others are left out; *ret_dropped: there were any. */
int lg_find_likely_jobs(struct lg_case *c, const struct lg_step *steps, bool *ret_dropped) LG_MUST_CHECK;
/* Somebody said so, or something shows it. */
bool lg_is_likely_job(const struct lg_case *c, lg_prc p);
/* Two equal processes that are. */
bool lg_are_of_one_job(const struct lg_case *c, lg_prc a, lg_prc b);
/* p, which is none, was held up: that is low at most, and why is said. */
void lg_doubt_job(struct lg_case *c, struct lg_finding *f, lg_prc p);
/* Fill c->ranks with the processes that look like the job (victim_pid: that one). */
int lg_infer_ranks(struct lg_case *c, int32_t victim_pid) LG_MUST_CHECK;
/* Step boundaries from the repetition of the thread's waits; *ret is freed by the caller. */
int lg_infer_boundaries(struct lg_case *c, const struct lg_rank *r, int64_t **ret, size_t *ret_n)
	LG_MUST_CHECK;

/* ---- waits.c: what kind of wait a kernel stack shows ---- */
enum lg_wait_class {
	LG_WAIT_UNKNOWN, LG_WAIT_FUTEX, LG_WAIT_POLL, LG_WAIT_PIPE, LG_WAIT_SOCKET, LG_WAIT_SLEEP,
	LG_WAIT_LOCK, LG_WAIT_DISK, LG_WAIT_CHILD, LG_WAIT_STOP, LG_WAIT_FAULT, LG_WAIT_RECLAIM,
	LG_WAIT_GPU, LG_WAIT_FILE_LOCK, LG_WAIT_ANSWER
};
int lg_waits_new(struct lg_case *c, struct lg_error *err) LG_MUST_CHECK;
void lg_waits_free(struct lg_wait_cache *w);
enum lg_wait_class lg_wait_class_of(struct lg_case *c, uint32_t state_row);
/* The kernel function that a blocked row waited in; 0 = no stack. */
lg_str lg_wait_name_of(struct lg_case *c, uint32_t state_row);
/* What whoever ended a wait in that kernel function did for it ("to post the semaphore"), and the detail of
 * host.waited_for; NULL = none of its own. */
const char *lg_peer_words(const char *function, const char **ret_detail);
/* A piece's lock as one says it: a file lock is known by the function that waits for it. */
const char *lg_lock_text(const struct lg_case *c, lg_str lock);

/* ---- senders.c ---- */
/* Who ended the blocked row, where that is sure; 0 = nobody, or an interrupt. */
lg_thr lg_waker_of(const struct lg_case *c, uint32_t state_row);
/*
 * It waited until a time of its own: whoever woke it before that (a heartbeat, an answer to something else)
 * sent it back to wait in the same place, and the last of these waits was ended by a timer.
 */
bool lg_until_own_timer(const struct lg_case *c, uint32_t state_row);

/* ---- locks.c: who held what ---- */
int lg_locks_new(struct lg_case *c, struct lg_error *err) LG_MUST_CHECK;
void lg_locks_free(struct lg_lock_table *l);
/* The lock wait of thr that covers part of [a, b), first one at or after a; UINT32_MAX = none. */
uint32_t lg_lock_wait_in(struct lg_case *c, lg_thr thr, int64_t a, int64_t b);
/* Split [a, b) of a lock wait by who held the lock; pieces tile [a, b). */
void lg_lock_pieces(struct lg_case *c, uint32_t wait_row, lg_thr of, int64_t a, int64_t b, int hops,
		    struct lg_pieces *out);

/* ---- gil.c: Python's lock ---- */
int lg_find_gil_waits(struct lg_case *c) LG_MUST_CHECK;
/* The first wait of thr for it that covers part of [a, b); NULL = none. */
const struct lg_gil_wait *lg_gil_wait_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b);

/* ---- chores.c: the kernel's work in a main thread, by samples ---- */
int lg_find_chores(struct lg_case *c) LG_MUST_CHECK;
/* "; the copy was pid 17 (tool)": the process that piece p, which ends in a copy, made; "" = not told. */
const char *lg_forked_text(struct lg_case *c, const struct lg_piece *p);
/* The first one of thr that covers part of [a, b); NULL = none. */
const struct lg_chore *lg_chore_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b);

/* ---- collectives.c: who arrived last ---- */
int lg_match_collectives(struct lg_case *c, struct lg_error *err) LG_MUST_CHECK;
/* The collective rank r was waiting in at ts, NULL when none. */
const struct lg_arrival *lg_arrival_at(const struct lg_rank *r, int64_t ts);

/* ---- chain.c: why did thr not get on in [a, b)? ---- */
/* Pieces tile [a, b) exactly, in time order. */
void lg_follow(struct lg_case *c, lg_thr thr, int64_t a, int64_t b, int hops, struct lg_pieces *out);

/* ---- quota.c ---- */
/* Did a cgroup of the job have no quota left at some time near [a, b)? */
bool lg_quota_used_up(struct lg_case *c, int64_t a, int64_t b);
/* Would this recording tell of used-up quotas? Only laggard's own do. */
bool lg_quota_is_told(struct lg_case *c);
/* "/slice/job: 2.5 CPUs"; NULL = not told. */
const char *lg_quota_text(struct lg_case *c);

/* ---- steal.c ---- */
/* A limit that says how much the hypervisor took, where that is worth saying. */
int lg_say_steal(struct lg_case *c) LG_MUST_CHECK;

/* ---- job.c ---- */
/* The life that created p; 0 = not in the trace. */
lg_prc lg_parent_of(struct lg_case *c, lg_prc p);
/* Did `from` start p, itself or by others? */
bool lg_descends(struct lg_case *c, lg_prc p, lg_prc from);
/* Ranks, their loaders and descendants, the command that was recorded, further processes of the
 * same program beside a rank. */
bool lg_in_job(struct lg_case *c, lg_prc p);
/* Did anybody say of p itself that it trains or loads data? */
bool lg_is_worker(const struct lg_case *c, lg_prc p);
/* Is p of another training job, that marks its steps in the same trace? */
bool lg_in_other_job(const struct lg_case *c, lg_prc p);
/*
 * c->ranks have their steps: where they are of several jobs, those of the one with the largest excess are
 * left, and a limit says so. *ret_chosen: some were dropped.
 */
int lg_choose_job(struct lg_case *c, const struct lg_step *steps, bool *ret_chosen) LG_MUST_CHECK;

/* ---- account.c: parts of every step; invariant: parts tile the step ---- */
int lg_account(struct lg_case *c, struct lg_error *err) LG_MUST_CHECK;
/* Parts of steps that are told without scheduler states: which stage is known, what the thread did is not.
 * They replace all that there were. */
int lg_account_stages(struct lg_case *c) LG_MUST_CHECK;

/* ---- path.c: the critical path of the run through all ranks ---- */
/* Pieces tile [first step's start, last step's end) of rank ref, in time order. */
int lg_critical_path(struct lg_case *c, uint32_t ref, struct lg_pieces *out, struct lg_error *err)
	LG_MUST_CHECK;

/* ---- rhythm.c ---- */
struct lg_burst {
	int64_t ts, end; /* ns */
	int64_t weight;  /* of any unit: those with under a twentieth of the heaviest are noise */
};
struct lg_rhythm {
	double period_s, p; /* period NAN when chance explains the spacing */
	bool at_most;       /* p is no more than that: no draw did as well */
	size_t n_events;    /* bursts apart from each other: at the scale of the period, else by gap_ns */
};
/*
 * Are n bursts (sorted by ts; the array is used up) periodic, start to start? Test against chance by Monte
 * Carlo. Those at most gap_ns apart are one; so, where that shows a rhythm, are those of four times as much,
 * and so on: what comes every 3 s may come in pieces.
 */
struct lg_rhythm lg_rhythm_of(struct lg_burst *b, size_t n, int64_t gap_ns);
struct lg_trend {
	enum lg_shape shape; /* LG_SHAPE_DRIFT, _SHIFT or _NONE */
	double shift_s;     /* time of the change since the first step, NAN */
	size_t at;          /* with a shift: the first step of the new level */
	double before_ms, after_ms, slope; /* slope: fraction of the median per run */
	double slower;                     /* with a shape: the end against the beginning, as a share */
};
int lg_trend_of(const struct lg_step *steps, size_t n, struct lg_trend *ret) LG_MUST_CHECK;

/* ---- foreign.c: CPU samples alone ---- */
/* No chain can be proven from samples; tells which process's bursts coincide with the gaps in the
 * job's activity, with the probability of that by chance. */
int lg_find_foreign(struct lg_case *c, struct lg_error *err) LG_MUST_CHECK;

/* ---- log_steps.c ---- */
/* Step times that a log states, where there are no steps. 1 = there are some, 0, or LG_E_NOMEM. */
int lg_steps_of_log(struct lg_case *c) LG_MUST_CHECK;

/* ---- pending.c ---- */
/* A limit: what dumps of the Flight Recorder leave open. 0 or LG_E_NOMEM. */
int lg_say_pending(struct lg_case *c) LG_MUST_CHECK;

/* ---- python_stacks.c ---- */
/* Profiles and dumps of Python stacks, where there are no scheduler states; after all other findings. */
int lg_find_python_stacks(struct lg_case *c) LG_MUST_CHECK;

/* ---- host/cause_rules.c, hook/compile_facts.c, hook/saves.c ---- */
/* Checkpoints of the loop; after all findings. */
int lg_find_data_in_log(struct lg_case *c) LG_MUST_CHECK; /* log_data.c: waits for data that a log states */
int lg_join_saves(struct lg_case *c) LG_MUST_CHECK; /* log_saves.c: those that a job's log tells of */
int lg_find_saves(struct lg_case *c) LG_MUST_CHECK;
int lg_find_compile(struct lg_case *c) LG_MUST_CHECK;
int lg_find_oom(struct lg_case *c) LG_MUST_CHECK; /* oom.c */
/* ---- finding.c ---- */
struct lg_finding *lg_finding_add(struct lg_case *c, enum lg_rule_id rule);
/* Was it told before? */
bool lg_told(const struct lg_case *c, enum lg_rule_id rule);
void lg_evidence_add(struct lg_case *c, struct lg_finding *f, int64_t ts, int64_t dur,
		     const char *fmt, ...) LG_PRINTF(5, 6);
/* What speaks against the finding, or what it cannot tell. */
void lg_evidence_against(struct lg_case *c, struct lg_finding *f, const char *fmt, ...) LG_PRINTF(3, 4);

#endif /* LG_ANALYSE_CASE_H */
