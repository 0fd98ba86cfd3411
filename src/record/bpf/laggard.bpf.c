/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * laggard.bpf.c - the kernel side of the recorder's first tier: who ran, who waited for whom.
 *
 * Only tp_btf programs: fentry and kprobes are refused on many machines, and raw_tp would not
 * give the trusted task pointers that task storage and bpf_get_task_stack() demand.
 *
 * Invariants
 *  1. Everything known about a thread lives in its task storage. It is created when the thread is
 *     forked or by the iterator at the start, never in the scheduler's programs: allocating there
 *     may wake kswapd while the run queue's lock is held.
 *  2. A thread's slice is written by the CPU it leaves; its waking by any CPU, under pi_lock.
 *     They race only while the thread is on its way off the CPU, see `tent_ts`.
 *  3. Scratch memory belongs to one program: a program never nests in itself on one CPU.
 *  4. Times in which nothing is recorded one by one are summed per thread and flushed with its next
 *     record, so that running time is exact at any threshold.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "records.h"
#include "threads.bpf.h"
#include "python.bpf.h"
#include "sched.bpf.h"
#include "locks.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- memory pressure, signals ------------------------------------------------------------- */

static __always_inline int memory_begin(__u32 what)
{
	struct thread *th;

	if (!enabled)
		return 0;
	th = thread_of(bpf_get_current_task_btf());
	if (th)
		th->memory_begin[what - 1] = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int memory_end(void *ctx, __u32 what)
{
	struct lg_bpf_memory *r;
	struct thread *th;
	__u64 now, begin;

	if (!enabled)
		return 0;
	th = thread_of(bpf_get_current_task_btf());
	if (!th || !th->memory_begin[what - 1])
		return 0;
	now = bpf_ktime_get_ns();
	begin = th->memory_begin[what - 1];
	th->memory_begin[what - 1] = 0;
	if (now - begin < cfg_memory_ns)
		return 0;
	r = scratch_of(what == LG_BPF_RECLAIM ? SCRATCH_MEMORY : SCRATCH_COMPACT);
	if (!r)
		return 0;
	fill(&r->h, now, th->tid, th->tgid, LG_BPF_MEMORY);
	r->begin = begin;
	r->what = what;
	r->zero = 0;
	output(r, own_stack(ctx, r, sizeof(*r), false), LG_BPF_MEMORY);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int lg_reclaim_begin(void *ctx)
{
	return memory_begin(LG_BPF_RECLAIM);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int lg_reclaim_end(void *ctx)
{
	return memory_end(ctx, LG_BPF_RECLAIM);
}

SEC("tp_btf/mm_compaction_begin")
int lg_compaction_begin(void *ctx)
{
	return memory_begin(LG_BPF_COMPACT);
}

SEC("tp_btf/mm_compaction_end")
int lg_compaction_end(void *ctx)
{
	return memory_end(ctx, LG_BPF_COMPACT);
}

SEC("tp_btf/signal_generate")
int BPF_PROG(lg_signal, int sig, void *info, struct task_struct *target, int group, int result)
{
	/* What stops, continues, kills: SIGABRT KILL SEGV TERM CONT STOP TSTP TTIN TTOU */
	const __u32 wanted = 1u << 6 | 1u << 9 | 1u << 11 | 1u << 15 | 1u << 18 | 1u << 19 |
			     1u << 20 | 1u << 21 | 1u << 22;
	struct lg_bpf_signal *r;
	void *ring;

	if (!enabled || sig < 1 || sig > 31 || !(wanted >> sig & 1))
		return 0;
	ring = ring_of(bpf_get_smp_processor_id());
	r = ring ? bpf_ringbuf_reserve(ring, sizeof(*r), 0) : 0;
	if (!r) {
		count_lost(LG_BPF_SIGNAL);
		return 0;
	}
	fill(&r->h, bpf_ktime_get_ns(), tid_of(target), tgid_of(target), LG_BPF_SIGNAL);
	r->sig = (__u32)sig;
	r->sender_tid = tid_of(bpf_get_current_task_btf());
	r->sender_tgid = tgid_of(bpf_get_current_task_btf());
	r->result = result;
	bpf_ringbuf_submit(r, wake_flag(ring));
	return 0;
}

/* ---- the iterator: all threads at the start, their open states at the end ------------------ */

static __always_inline void list_task(struct seq_file *seq, struct task_struct *t, __u64 now)
{
	struct lg_bpf_task *r;
	struct thread *th;
	__u8 why;

	r = scratch_of(SCRATCH_ITER);
	if (!r)
		return;
	th = bpf_task_storage_get(&threads, t, 0, 0);
	if (!th) {
		th = thread_new(t);
		if (!th)
			return;
		why = why_off(t, false, t->__state);
		th->edge = 1;
		if (t->on_cpu) {
			th->running = 1;
			th->in_ts = now;
		} else if (!th->in_ts) {
			th->off_ts = now;
			th->off_why = why;
		}
	}
	fill_task(r, t, now, th->tid, th->tgid);
	bpf_seq_write(seq, r, sizeof(*r));
}

/* For writing; of readers a lock knows the last only, so an open hold of theirs is not told. */
static __always_inline __u64 holds_own_since(struct thread *th, struct task_struct *t)
{
	if (!LOCK_LINE)
		return th->own.ts;
	if (!t->mm || !is_write_locked(t->mm) ||
	    (t->mm->mmap_lock.owner.counter & ~OWNER_FLAGS) != (__u64)t)
		return 0;
	th->own.flags = LG_BPF_HOLD_WRITE;
	return own_hold_since(th, t->mm);
}

static __always_inline void list_open(struct seq_file *seq, struct task_struct *t, __u64 now)
{
	struct lg_bpf_open *r;
	struct thread *th;

	r = scratch_of(SCRATCH_ITER);
	th = thread_of(t);
	if (!r || !th)
		return;
	fill(&r->h, now, th->tid, th->tgid, LG_BPF_OPEN);
	r->h.flags = th->waker_ctx | (th->edge ? LG_BPF_EDGE : 0);
	r->h.cpu = th->cpu;
	r->in_ts = th->in_ts;
	r->off_ts = th->off_ts;
	r->wake_ts = th->wake_ts;
	r->waker_tid = th->waker_tid;
	r->wake_cpu = th->wake_cpu;
	r->running = th->running;
	r->off_why = th->off_why | th->gil_is;
	r->gil_holder = th->gil_holder;
	r->sum_n = th->sum_n;
	r->sum_since = th->sum_since;
	r->sum_run = th->sum_run;
	/* The scratch still holds the thread before: what is not set below must be cleared. */
	r->lock = 0;
	r->lock_mm = 0;
	r->hold_kernel = 0;
	r->hold_user = 0;
	r->peer_kernel = 0;
	if (th->lock) {
		r->lock = th->lock;
		r->lock_begin = th->lock_begin;
		r->lock_mm_tgid = 0;
		r->lcb = th->lcb;
		r->owner_tid = th->owner_tid;
		r->owner_tgid = th->owner_tgid;
		r->owner_flags = th->owner_flags;
		r->peer_kernel = th->n_peer;
		bpf_probe_read_kernel(r->peer_frames, sizeof(r->peer_frames), th->peer);
		if ((th->lcb & (LCB_F_READ | LCB_F_WRITE)) && t->mm &&
		    th->lock - bpf_core_field_offset(struct mm_struct, mmap_lock) == (__u64)t->mm) {
			r->lock_mm = (__u64)t->mm;
			r->lock_mm_tgid = th->tgid;
		}
	}
	r->hold_begin[0] = th->foreign.ts;
	r->hold_mm[0] = th->foreign.mm;
	r->hold_tgid[0] = th->foreign.tgid;
	r->hold_flags[0] = th->foreign.flags;
	r->hold_begin[1] = holds_own_since(th, t);
	r->hold_mm[1] = (__u64)t->mm;
	r->hold_tgid[1] = th->tgid;
	r->hold_flags[1] = th->own.flags;
	if (th->foreign.ts) {
		r->hold_kernel = th->hold_kernel;
		r->hold_user = th->hold_user;
		bpf_probe_read_kernel(r->hold_frames, sizeof(r->hold_frames), th->hold_frames);
	}
	if (!th->running && th->off_why >= WHY_SLEEP) {
		r->h.n_kernel = (__u8)(frame_bytes(bpf_get_task_stack(t, r->kernel, sizeof(r->kernel), 0),
						   sizeof(r->kernel)) / 8);
		r->h.n_user = th->n_user;
		bpf_probe_read_kernel(r->user, sizeof(r->user), th->user);
		r->h.n_python = th->n_python;
		bpf_probe_read_kernel(r->python, sizeof(r->python), th->python_frames);
	}
	bpf_seq_write(seq, r, sizeof(*r));
}

SEC("iter/task")
int lg_iterate(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u64 now;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	if (at_end)
		list_open(ctx->meta->seq, t, now);
	else
		list_task(ctx->meta->seq, t, now);
	return 0;
}
