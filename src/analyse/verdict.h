/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - what the analyses conclude: the derived tables `step`, `part`, `finding`,
 * `evidence` and the summary that `explain` prints (schema 1; words: doc/contract.md).
 *
 * Filled by analyse/, read by advise/ (adds words) and report/ (prints). All strings live in
 * the verdict's arena or are literals; everything is freed by lg_verdict_free().
 */
#ifndef LG_ANALYSE_VERDICT_H
#define LG_ANALYSE_VERDICT_H
#include <stdbool.h>

#include "base/arena.h"
#include "memory/memory.h"
#include "rules/rules.h"
#include "store/trace.h"

/* One nanosecond-exact piece of a step's main-thread time. Pieces of a step are contiguous. */
enum lg_part_kind { LG_PART_RUNNING, LG_PART_RUNNABLE, LG_PART_BLOCKED, LG_PART_UNEXPLAINED };
struct lg_part {
	int64_t ts, dur;
	uint8_t kind, stage;
	uint32_t cause; /* index into causes[]; 0 = none (own running, ordinary wait) */
	lg_thr by;      /* who had the CPU / held the lock / woke it; 0 = unknown */
	uint32_t state; /* row of the state table; UINT32_MAX = none */
};

/* What a step's device did, in ns; the four sum to its duration. */
struct lg_step_device {
	int64_t compute, comm, copy, idle; /* comm, copy: nothing else ran */
	const char *idle_cause;            /* of most of the idle time; NULL = none */
};

struct lg_step {
	int64_t ts, dur, median; /* ns; median = rolling median of this rank around here */
	int64_t number;
	lg_prc prc;
	lg_thr thr;              /* main thread */
	int32_t rank;            /* -1 = no rank known */
	bool slow, warmup;       /* warm-up steps are listed but not judged */
	uint32_t part_first, n_parts;
	/* With its device: from when all was done that was ordered before it until all is done that it
	 * orders. A host that runs ahead begins steps before that. Both 0: no device is known. */
	int64_t ready, done;
	const struct lg_step_device *device; /* NULL = not known */
};

/* The end of a chain: findings are causes that are worth a sentence. */
enum lg_cause_kind {
	LG_CAUSE_NONE, LG_CAUSE_LOCK, LG_CAUSE_CPU, LG_CAUSE_RUNNING, LG_CAUSE_IO, LG_CAUSE_STOPPED,
	LG_CAUSE_OTHER
};
struct lg_cause {
	uint8_t kind;
	lg_thr thr;    /* culprit thread, 0 = unknown */
	lg_prc prc;
	lg_str lock;   /* lock class name */
	int64_t lost;  /* ns, each nanosecond of the run once */
};

struct lg_evidence {
	const char *text;
	int64_t ts, dur; /* ns on the trace's clock; ts INT64_MIN = not a moment */
};

struct lg_finding {
	enum lg_rule_id rule;
	const char *id;       /* the rule's: host.lock_held ... */
	enum lg_severity severity; /* by grade.c alone */
	double confidence;    /* how often findings of such strength are right (lg_worth()) */
	double strength;      /* of its evidence, 0 to 1, by the rule; NAN = not stated */
	const char *title, *stage, *detail; /* detail may be NULL */
	double lost_ms, lost_share, excess_share; /* NAN = null */
	bool doubted; /* nobody said, and nothing shows, that whoever was held up trains: low at most */
	bool ordinary; /* such a share belongs to the work itself: low at most, however often it was seen */
	uint32_t device_causes; /* not printed: bits 1 << enum lg_gpu_cause whose time lost_ms is */
	struct {
		enum lg_relation relation;
		int32_t pid, tid;     /* -1 = null */
		const char *comm, *cmdline, *function, *lock, *container; /* NULL = null */
		int32_t rank;         /* -1 = null */
		const char **stack;
		size_t n_stack;
	} culprit;
	int32_t *culprit_ranks; /* several that are accused together; culprit.rank: -1, or the worst */
	size_t n_culprit_ranks;
	struct { int32_t rank, pid, tid; } *victims;
	size_t n_victims;
	struct lg_evidence *evidence, *against;
	size_t n_evidence, n_against;
	size_t evidence_left_out, against_left_out; /* lines that found no room */
	const char *advice;   /* not printed: its words of advise/ fit better than those of detail; NULL */
	/* Not printed: what is set on some hosts, and how on the others (NULL: unset); NULL = none. */
	const struct lg_setting { const char *where, *key, *value, *others; } *setting;
	const char *confirm;  /* experiment that would confirm it; NULL */
	const char *fix, *tradeoff;
	/* Where the loss has parts that want different advice; not printed. detail is that of the first. */
	struct lg_loss_part { const char *says, *detail; } *loss_parts;
	size_t n_loss_parts;  /* 0 = it is one */
	double cost_per_hour; /* NAN = not asked */
	double period_s;      /* not printed: it comes back so often; 0 = not known */
	size_t seen;          /* a profiler's window: most of it came in so few episodes; 0 = it came often */
	struct lg_time_lost { int64_t ts, dur; } *moments; /* not printed: what lost_ms was added up from */
	size_t n_moments;     /* 0 = not kept */
};

struct lg_stage_sum {
	const char *stage;
	double median_ms, share, slow_excess_ms;
};

struct lg_input {
	const char *path, *format, *host;
	int32_t rank; /* that it is of; -1 = of several, or not known */
	double duration_s;
	uint64_t lost_events, rows_sample, rows_state, rows_span, rows_counter;
};

/* What fired the trigger that wrote an input (fired.c). */
struct lg_fired {
	const char *what, *why; /* the expression, or the signal; a sentence of the recorder */
	int64_t ts, dur;        /* of the moment; dur 0 = it is none that lasts */
	int32_t pid, rank;      /* -1 = null */
	int64_t step;           /* -1 = null */
	size_t finding;         /* the one that is about most of it; SIZE_MAX = none */
	const char *answer;     /* what took its time; NULL = not known */
};

/* What a thread had to do with Python's lock (the GIL) in one place, in the whole run (gil_account.c). */
struct lg_gil_row {
	lg_thr thr, by;      /* by: waited: who had it; 0 = not known */
	enum lg_gil_did did; /* waited, asleep: exact */
	lg_frm python;       /* innermost Python frame; 0 = not known */
	lg_str native;       /* what that had called, asleep: in the kernel; 0 = nothing, or not known */
	uint64_t times;      /* waits (that ended with this holder), sleeps, or samples */
	int64_t ns, longest; /* longest: a whole wait, a sleep; else 0 */
	int64_t refused;     /* of a wait: since the holder had been asked to give it up */
	int64_t error;       /* of ns, at 95 %; 0 = exact */
};

/* Does the run move (host/standing.c)? */
enum lg_hang_state { LG_HANG_UNKNOWN, LG_HANG_RUNNING, LG_HANG_WAITING, LG_HANG_HUNG, LG_HANG_FINISHED };
struct lg_hang_rank {
	int32_t rank, pid;      /* -1 = null */
	enum lg_hang_state state;
	const char *op, *group; /* last collective, or function of one that it sleeps in; NULL = not known */
	int64_t seq, bytes;     /* -1 = not known */
	bool left;              /* it came out of it */
	const char **stack;     /* Python frames of its main thread, innermost first */
	size_t n_stack;
};

struct lg_verdict {
	struct lg_arena arena;
	const struct lg_trace *trace;
	struct lg_index *index; /* of the trace */
	struct lg_input *inputs;
	size_t n_inputs;

	struct lg_step *steps;
	size_t n_steps;       /* all, sorted by (rank, ts) */
	struct lg_part *parts;
	size_t n_parts;
	struct lg_cause *causes; /* [0] is "none" */
	size_t n_causes;

	/* Schema 1 "steps": NAN / NULL where unknown. */
	size_t n_judged, n_slow;
	const char *unjudged; /* why no step is judged, as the head of a sentence; NULL = no such reason */
	bool cut;             /* a file ends before its data does */
	double min_ms, median_ms, p99_ms, max_ms, slow_threshold_ms, period_s, period_p, shift_s, slope;
	bool uneven;           /* step times lie far apart, and none of them need be slow */
	bool period_p_at_most; /* period_p is an upper bound */
	enum lg_shape shape;
	enum lg_scope scope;
	int32_t *ranks;
	size_t n_ranks;

	struct lg_stage_sum *stages;
	size_t n_stages;
	enum lg_bound bound;
	const char *bound_why;
	double bound_confidence;

	struct lg_finding *findings; /* ranked */
	size_t n_findings;
	double unexplained_share;    /* NAN = null */
	double rank_apart;           /* how much longer rank_longer's steps are than all others', or 0 */
	int32_t rank_longer;
	double slower;               /* shift, drift: how much longer steps are at the end, a share; or 0 */
	double untraced_share;       /* of all steps' time: nothing that the input shows ran; 0 = little */
	double alone_share;          /* the same in collectives, of a rank whose peers are not in the input */
	const char *untraced_in;     /* where Python's stacks say it went; NULL */
	bool inference;              /* what repeats trains nothing */
	double own_share;            /* of the slow steps' excess: the job computed or slept; 0 = little */
	double slow_excess_ms;       /* what slow steps took too much, where stages do not tell; else 0 */

	/* Checkpoints that the loop wrote itself (saves.c); n 0 = none was seen. */
	struct {
		size_t n;
		double stall_share;    /* of the run */
		double bytes;          /* NAN = no source tells; so the next two */
		double bytes_per_s;    /* while saving */
		double bytes_per_hour; /* of the run: bandwidth of the storage */
	} saves;
	/* Money (advise.c); per_hour 0 = not asked. */
	struct {
		double per_hour;          /* what the run costs */
		double lost_share;        /* of it, by all measured findings; each moment once */
		double per_training_hour; /* what an hour of training done costs */
	} cost;
	struct {
		enum lg_hang_state state;
		double since_s;         /* stood for so long at least; NAN = it moves */
		struct lg_hang_rank *ranks;
		size_t n;
	} hang;
	struct lg_gil_row *gil; /* by thread, what it did, time; NULL = no source tells */
	size_t n_gil;
	struct lg_fired *fired;
	size_t n_fired;
	const struct lg_memory *memory; /* of devices; NULL = the input tells nothing of it */
	const char *still;           /* the run stands still: who, since when; NULL */
	const char *not_judged;      /* what the input tells of and no rule judges: the first of n; NULL */
	size_t n_not_judged;
	double lost_kernels;         /* share that is not in the trace; 0: whole, but for some */
	const char **limits;
	size_t n_limits;
};

void lg_verdict_free(struct lg_verdict *v);
/* A finding of which nothing is known yet but its id. */
struct lg_finding lg_finding_blank(enum lg_rule_id rule);

#endif /* LG_ANALYSE_VERDICT_H */
