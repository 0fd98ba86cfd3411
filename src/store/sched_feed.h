/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_feed.h - scheduler and lock events in, `state` rows and LOCK_WAIT / LOCK_HOLD spans out.
 *
 * Pure: knows no kernel, no file. The tracepoint recorder and the perf.data importer both feed
 * it. Events come in time order; one that is older than what its thread already did (clocks of
 * two CPUs differ a little) is moved forward to that moment, never backwards, so rows of one
 * thread never overlap.
 *
 * What is not known is not drawn: after a gap notice the rows that may hide a lost event end at
 * the gap's start, carry LG_STATE_EDGE, and begin again where a later event proves the state.
 * Nothing allocates per event once a thread is known. One thread only.
 */
#ifndef LG_STORE_SCHED_FEED_H
#define LG_STORE_SCHED_FEED_H
#include <stdbool.h>

#include "store/builder.h"

struct lg_sched_feed;

struct lg_sched_options {
	int64_t start;       /* first moment at which all events were being recorded */
	bool has_waking;     /* sched_waking is recorded: a switch-in without one was runnable */
	bool has_fork;       /* forks are recorded: a thread not forked was there from the start */
	int64_t hold_min_ns; /* shorter holds are kept only if foreign or waited for */
	int32_t self;        /* recorder's pid: its own short holds are left out; 0 = none */
};

struct lg_sched_switch {
	int64_t ts;
	uint64_t prev_state; /* as in the sched_switch tracepoint since Linux 4.14 */
	int32_t cpu;
	int32_t prev_pid, prev_tid; /* pids are tgids; -1 = not known */
	int32_t next_pid, next_tid;
	lg_stk stack; /* where prev blocked */
};

struct lg_sched_waking {
	int64_t ts;
	int32_t cpu; /* of the waker */
	int32_t tid; /* who is woken */
	int32_t waker_pid, waker_tid;
	int32_t target_cpu;
	enum lg_ctx ctx;
	lg_stk stack; /* the waker's */
};

/* A thread that waits for a CPU is put into another one's queue (sched_migrate_task), or its place is told
 * behind its waking (sched_wakeup; from_cpu -1). */
struct lg_sched_move {
	int64_t ts;
	int32_t tid, from_cpu, to_cpu;
};

/* lock:contention_begin. flags are the kernel's LCB_F_* (include/trace/events/lock.h). */
struct lg_sched_contention {
	int64_t ts;
	uint64_t lock;
	uint32_t flags;
	int32_t pid, tid;
	int32_t owner_tid;   /* as the lock's owner word said; 0 = not known */
	bool owner_reader;   /* the owner word named a reader: only the last one to come */
	lg_stk stack, owner_stack;
};

struct lg_sched_mmap_lock {
	int64_t ts;
	uint64_t mm;
	int32_t pid, tid; /* who takes or releases */
	bool write;
	bool success;     /* acquire_returned only */
	lg_stk stack;
};

/* What could not be turned into rows. */
struct lg_sched_stats {
	uint64_t switches, wakings, contentions, holds, holds_kept;
	uint64_t late;       /* events moved forward to keep a thread's rows in order */
	uint64_t mismatch;   /* switch events that contradict the one before on their CPU */
	uint64_t lock_lost;  /* lock events without their other half */
	uint64_t gaps;
};

int lg_sched_feed_new(struct lg_sched_feed **ret, struct lg_builder *b,
		      const struct lg_sched_options *opt, struct lg_error *err) LG_MUST_CHECK;
void lg_sched_feed_free(struct lg_sched_feed *f);

/* The bit of prev_state that the tracepoint prints as this letter; '+' = preempted; 0 = another. */
uint64_t lg_sched_state_bit(char letter);
/* What prev_state says of a thread that leaves its CPU: LG_WHY_PREEMPTED = it could go on, LG_WHY_DEAD = it
 * never will, else why it sleeps. */
enum lg_state_reason lg_sched_reason(uint64_t prev_state);

void lg_sched_switched(struct lg_sched_feed *f, const struct lg_sched_switch *e);
void lg_sched_woke(struct lg_sched_feed *f, const struct lg_sched_waking *e);
/* Of one that does not wait for a CPU nothing is noted. */
void lg_sched_moved(struct lg_sched_feed *f, const struct lg_sched_move *e);
/* A new life of tid begins; pid -1 = not known yet. */
void lg_sched_forked(struct lg_sched_feed *f, int64_t ts, int32_t pid, int32_t tid);
/* tid will run only as far as its last switch. */
void lg_sched_exited(struct lg_sched_feed *f, int64_t ts, int32_t tid);
/*
 * Events of cpu in [from, to) were lost; cpu -1 = of all CPUs. Best told before the events that
 * follow `from` (to may lie in the future): rows already drawn are not taken back.
 */
void lg_sched_gap(struct lg_sched_feed *f, int64_t from, int64_t to, int32_t cpu);

void lg_sched_contention_begin(struct lg_sched_feed *f, const struct lg_sched_contention *e);
void lg_sched_contention_end(struct lg_sched_feed *f, int64_t ts, int32_t tid, uint64_t lock);
void lg_sched_mmap_acquired(struct lg_sched_feed *f, const struct lg_sched_mmap_lock *e);
void lg_sched_mmap_released(struct lg_sched_feed *f, const struct lg_sched_mmap_lock *e);
/*
 * It is known that mm is pid's. Without being told, the feed concludes it from two un-nested
 * write acquisitions by the same process: mmap, munmap, brk and mprotect write-lock the
 * caller's own mm, readers of other processes' memory (procfs, process_vm_readv) only read-lock.
 */
void lg_sched_mm_owner(struct lg_sched_feed *f, uint64_t mm, int32_t pid);
/* Is the owner of mm known? */
bool lg_sched_mm_known(const struct lg_sched_feed *f, uint64_t mm);
/* pid got a new mm (exec) or none (exit). */
void lg_sched_mm_drop(struct lg_sched_feed *f, int32_t pid);

/* Last rows: what is still open gets dur -1. ts = last moment at which events were recorded. */
int lg_sched_feed_finish(struct lg_sched_feed *f, int64_t ts, struct lg_error *err) LG_MUST_CHECK;
struct lg_sched_stats lg_sched_feed_stats(const struct lg_sched_feed *f);

#endif /* LG_STORE_SCHED_FEED_H */
