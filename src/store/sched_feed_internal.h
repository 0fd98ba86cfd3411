/* SPDX-License-Identifier: Apache-2.0 */
/* sched_feed_internal.h - what sched_feed.c (states) and sched_locks.c (locks) share. */
#ifndef LG_STORE_SCHED_FEED_INTERNAL_H
#define LG_STORE_SCHED_FEED_INTERNAL_H
#include "base/map.h"
#include "store/sched_feed.h"

#define LG_SCHED_WAITS 4 /* a sleeping lock's wait may nest a spin inside; deeper was never seen */
#define LG_SCHED_HOLDS 4 /* fork holds parent's and child's mmap_lock */

struct lg_sched_wait {
	uint64_t lock, mm; /* mm: known to be this mm's mmap_lock */
	int64_t ts, end;
	lg_thr owner;
	lg_stk stack, owner_stack;
	uint32_t flags; /* LG_SPAN_* */
};

struct lg_sched_hold {
	uint64_t mm;
	int64_t ts;
	lg_stk stack;
	bool write;
};

struct lg_sched_task {
	int64_t since, born, pend_ts;
	uint64_t object;
	lg_thr thr, waker, pend_waker, blocker;
	lg_stk stack, waker_stack, pend_stack, blocker_stack;
	int32_t tid, pid, cpu;
	uint32_t untold; /* switches away from it that nobody told */
	uint8_t kind, reason, waker_ctx, flags, pend_ctx;
	uint8_t n_wait, n_hold;
	struct lg_sched_wait wait[LG_SCHED_WAITS];
	struct lg_sched_wait done; /* ended, its mmap_lock event may be next; lock 0 = none */
	struct lg_sched_hold hold[LG_SCHED_HOLDS];
};

struct lg_sched_cpu {
	int32_t cur;   /* tid; -1 = not known */
	int64_t known; /* nothing was switched here between this time and the next event */
};

struct lg_sched_hole {
	int64_t from, to;
};

/* One address space as seen through its mmap_lock. */
struct lg_sched_mm {
	uint64_t mm;
	int64_t last_wait;     /* latest time at which somebody is known to have waited for it */
	int32_t owner;         /* pid; 0 = not known */
	int32_t candidate;     /* pid of the latest un-nested writer */
	uint32_t votes, waiting;
	int32_t holder;        /* tid of the holder that has had it longest; 0 = none known */
	int64_t last_from, last_to; /* the hold that ended last */
	lg_thr last_thr;
	lg_stk last_stack;
};

struct lg_sched_feed {
	struct lg_builder *b;
	struct lg_sched_options opt;
	struct lg_sched_stats stats;
	int failed;
	struct lg_sched_task *task;
	size_t n_task, task_cap;
	uint32_t *by_tid; /* tid -> task */
	size_t by_tid_cap;
	struct lg_map far_tid;
	struct lg_sched_cpu *cpu;
	size_t n_cpu, cpu_cap;
	struct lg_sched_hole *gap;
	size_t n_gap, gap_cap;
	struct lg_sched_mm *mm;
	size_t n_mm, mm_cap;
	struct lg_map mm_i;      /* mm -> index + 1 */
	struct lg_map mm_of_pid; /* pid -> index + 1 */
	/* offsetof(struct mm_struct, mmap_lock), learned from waits followed by their event */
	uint64_t lock_offset, lock_offset_seen;
	uint32_t lock_offset_votes;
};

struct lg_sched_task *lg_sched_task_get(struct lg_sched_feed *f, int32_t pid, int32_t tid);
lg_thr lg_sched_thr(struct lg_sched_feed *f, int32_t pid, int32_t tid);
bool lg_sched_gap_between(const struct lg_sched_feed *f, int64_t from, int64_t to);
/* The thread is gone: what it waited for or held ended unseen. */
void lg_sched_locks_cut(struct lg_sched_feed *f, struct lg_sched_task *t);
void lg_sched_locks_finish(struct lg_sched_feed *f, struct lg_sched_task *t, int64_t ts);

#endif /* LG_STORE_SCHED_FEED_INTERNAL_H */
