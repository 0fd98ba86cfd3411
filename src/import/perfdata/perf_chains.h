/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_chains.h - recorded threads, and call chains to interned stacks.
 *
 * Half of all chains were seen before, address by address: by their numbers (perf_seen_chains.h) their stacks
 * are known. Of others the callers were. Two chains of one thread mostly share their outer frames: the last
 * new chain of each thread is kept, outermost first, and only what differs is looked up: by the files and
 * places of all addresses up to there, which processes of one program have in common.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_CHAINS_H
#define LG_IMPORT_PERFDATA_PERF_CHAINS_H
#include "import/perfdata/perf_buckets.h"
#include "import/perfdata/perf_code.h"
#include "import/perfdata/perf_handover.h"
#include "import/perfdata/perf_sample.h"
#include "import/plumbing.h"

struct lg_unwinder;

struct lg_pd_link { /* one address of a chain, outermost first */
	uint64_t ip, key; /* key: hash of it and all that is further out, as steps are known by */
	lg_stk stk;       /* 0 = not asked for yet */
	uint8_t tag;      /* enum lg_pd_context, LEAF */
};

struct lg_pd_task {
	int32_t pid, tid;
	lg_thr thr;
	uint32_t space;
	uint64_t version;        /* of the space and of the kernel's code when link[] was made */
	struct lg_pd_link *link;
	size_t n, cap;
	struct lg_pd_turn {      /* perf_turns.c */
		int64_t since;   /* start of what it does; INT64_MIN = not known */
		int32_t cpu;     /* on which it runs, or ran last; -1 = not told */
		uint8_t doing;   /* enum lg_state_kind */
		uint8_t reason;  /* enum lg_state_reason */
		uint8_t waker_ctx;
		bool told;       /* sched_switch said why it leaves its CPU, the record is still to come */
		lg_stk stack, waker_stack;
		lg_thr waker;
	} turn;
	bool ended;
	uint32_t n_lives;
	int64_t syscall_ts;      /* entered; INT64_MIN = not inside one */
	uint64_t syscall_nr;
	lg_stk syscall_stk;
};

/* A stack by all its addresses, or by its callers' stack and one address: a 64-bit hash of them that is not
 * compared further, as in perf_seen_chains.h. Direct-mapped, as big as half a second-level cache. */
enum { LG_PD_STEPS_BITS = 16 };
struct lg_pd_step {
	uint64_t key;
	lg_stk stk; /* 0 = free */
};

struct lg_pd_tasks {
	struct lg_builder *b;
	struct lg_pd_code *code;
	struct lg_pd_task *task;
	size_t n, cap;
	struct lg_map by_tid;    /* tid -> index + 1 */
	struct { int32_t tid; uint32_t i; } recent[64]; /* by low bits; i: index + 1 */
	bool exact_callers;      /* return addresses were moved back already (simpleperf) */
	bool swap;
	struct lg_plumbing plumbing;
	struct lg_pd_step *step; /* NULL until the first chain */
	/* By number of the chain (perf_seen_chains.h). check: of the number and of the last time that
	 * somebody used addresses again without a record of it. */
	struct lg_pd_known { lg_stk stk; uint32_t check; } *known;
	size_t n_known;          /* places in it */
	/* Chains without their innermost address: many new ones differ from a known one there only. */
	struct lg_pd_buckets callers; /* -> stack */
	/* What those of the next records are known by. */
	struct lg_pd_called { uint64_t tag; uint32_t place; bool any; } called_by[LG_PD_SLOTS];
	size_t slot;             /* of the record that is worked off */
	uint32_t known_since;
	uint64_t cut;            /* chains that were longer than any stack may be */
	/* --call-graph dwarf: the chain made of a stack copy, in place of the sample's own */
	struct lg_unwinder *unwinder;
	uint64_t *unwound;
	uint64_t n_unwound, n_part, n_no_unwind; /* stacks; of them incomplete; not to be read here */
};

void lg_pd_tasks_done(struct lg_pd_tasks *t);
/* The thread that lives now; pid -1 = not known. NULL when memory is exhausted. */
struct lg_pd_task *lg_pd_task_get(struct lg_pd_tasks *t, int32_t pid, int32_t tid);
/* NULL = never seen. */
struct lg_pd_task *lg_pd_task_find(struct lg_pd_tasks *t, int32_t tid);
struct lg_pd_task *lg_pd_task_fork(struct lg_pd_tasks *t, int32_t ppid, int32_t pid, int32_t tid,
				   int64_t ts);
void lg_pd_task_exit(struct lg_pd_tasks *t, int32_t tid, int64_t ts);
/* Fetch what stack_known() will look at. */
void lg_pd_known_ahead(const struct lg_pd_tasks *t, const struct lg_pd_seen *seen);
/* A new chain's n > 0 addresses are at hand: find by what its callers are known, and fetch that. version: of
 * what addresses mean (perf_seen_chains.h). */
void lg_pd_callers_ahead(struct lg_pd_tasks *t, const uint8_t *chain, size_t n, uint64_t version,
			 size_t slot);
/* The stack of a sample taken at time, where its chain is known by its number; 0 = lg_pd_stack_of() finds
 * out. */
lg_stk lg_pd_stack_known(struct lg_pd_tasks *t, uint64_t time, const struct lg_pd_seen *seen);
/* The stack of a sample: of its chain, else of its address alone. misc: of the record; seen: of the chain. */
lg_stk lg_pd_stack_of(struct lg_pd_tasks *t, struct lg_pd_task *task, const struct lg_pd_sample *s,
		      uint16_t misc, const struct lg_pd_seen *seen);

#endif /* LG_IMPORT_PERFDATA_PERF_CHAINS_H */
