/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* locks.bpf.h - waits for sleeping locks and holds of mmap_lock. Part of laggard.bpf.c. */
#ifndef LG_LOCKS_BPF_H
#define LG_LOCKS_BPF_H

/* The process whose mmap_lock this is, or 0: then *ret_mm is 0 too. */
static __always_inline __u32 mm_of_lock(__u64 lock, __u64 *ret_mm)
{
	struct task_struct *cur = bpf_get_current_task_btf(), *owner = 0;
	__u64 mm = lock - bpf_core_field_offset(struct mm_struct, mmap_lock), his = 0;

	*ret_mm = 0;
	if (mm == (__u64)cur->mm) {
		*ret_mm = mm;
		return tgid_of(cur);
	}
	/*
	 * Somebody else's mm, as a reader of procfs takes it? Then it has an owner that uses this
	 * very mm. For any other rwsem these reads give nonsense that does not close the circle.
	 */
	if (!bpf_core_field_exists(struct mm_struct, owner))
		return 0; /* no CONFIG_MEMCG: user space knows the mms */
	if (bpf_probe_read_kernel(&owner, sizeof(owner), &((struct mm_struct *)mm)->owner) || !owner)
		return 0;
	if (bpf_probe_read_kernel(&his, sizeof(his), &owner->mm) || his != mm)
		return 0;
	*ret_mm = mm;
	if (cfg_pidns_level) {
		struct task_struct *leader = 0;
		struct pid *pid = 0;
		__u32 tgid = 0;

		bpf_probe_read_kernel(&tgid, sizeof(tgid), &owner->tgid);
		bpf_probe_read_kernel(&leader, sizeof(leader), &owner->group_leader);
		bpf_probe_read_kernel(&pid, sizeof(pid), &leader->thread_pid);
		return pid_of(pid, tgid);
	} else {
		__u32 tgid = 0;

		bpf_probe_read_kernel(&tgid, sizeof(tgid), &owner->tgid);
		return tgid;
	}
}

static __always_inline void see_owner(struct thread *th, __u64 lock, __u32 lcb)
{
	struct task_struct *owner, *task;
	__u64 word = 0, at;
	__u32 tid = 0, nr, tgid = 0, flags = 0;
	int on_cpu = 0;

	if (lcb & (LCB_F_SPIN | LCB_F_PERCPU))
		return; /* no owner one could read; of semaphores neither */
	if ((lcb & LCB_F_RT) && bpf_core_field_exists(struct rt_mutex_base, owner))
		at = bpf_core_field_offset(struct rt_mutex_base, owner);
	else if ((lcb & LCB_F_MUTEX) && bpf_core_field_exists(struct mutex, owner))
		at = bpf_core_field_offset(struct mutex, owner);
	else if ((lcb & (LCB_F_READ | LCB_F_WRITE)) && bpf_core_field_exists(struct rw_semaphore, owner))
		at = bpf_core_field_offset(struct rw_semaphore, owner);
	else
		return;
	if (bpf_probe_read_kernel(&word, sizeof(word), (void *)(lock + at)))
		return;
	owner = (struct task_struct *)(word & ~OWNER_FLAGS);
	if (!owner)
		return;
	/* The same bit of a rt_mutex says that somebody waits. */
	if (!(lcb & (LCB_F_MUTEX | LCB_F_RT)) && (word & RWSEM_READER_OWNED))
		flags |= LG_BPF_OWNER_READER; /* the last reader that came, perhaps gone by now */
	if (bpf_probe_read_kernel(&tid, sizeof(tid), &owner->pid) ||
	    bpf_probe_read_kernel(&tgid, sizeof(tgid), &owner->tgid))
		return;
	bpf_probe_read_kernel(&on_cpu, sizeof(on_cpu), &owner->on_cpu);
	if (on_cpu)
		flags |= LG_BPF_OWNER_RUNNING;
	nr = tid;
	if (cfg_pidns_level) {
		struct task_struct *leader = 0;
		struct pid *pid = 0;

		bpf_probe_read_kernel(&pid, sizeof(pid), &owner->thread_pid);
		tid = pid_of(pid, tid);
		bpf_probe_read_kernel(&leader, sizeof(leader), &owner->group_leader);
		bpf_probe_read_kernel(&pid, sizeof(pid), &leader->thread_pid);
		tgid = pid_of(pid, tgid);
	}
	/*
	 * The word may name a reader that is long gone and whose memory is reused. Looking the
	 * number up again tells; and only so may the stack of a task be taken, which gives
	 * nothing while it runs (arch/x86 refuses to unwind a running task).
	 */
	if (cfg_task_from_pid) {
		task = bpf_task_from_pid((__s32)nr);
		if (task) {
			__u64 same = (__u64)task;

			/* Or the compiler hands the untrusted twin to the helper below. */
			asm volatile("" : "+r"(same));
			if (same == (__u64)owner) {
				flags |= LG_BPF_OWNER_VERIFIED;
				if (!on_cpu)
					th->n_peer = (__u8)(frame_bytes(bpf_get_task_stack(task, th->peer,
						sizeof(th->peer), 0), sizeof(th->peer)) / 8);
			}
			bpf_task_release(task);
		}
		if (!(flags & LG_BPF_OWNER_VERIFIED))
			return;
	}
	th->owner_tid = tid;
	th->owner_tgid = tgid;
	th->owner_flags = flags;
}

/* The holder of a rwsem can be asked who waits first: not with PREEMPT_RT. */
#define LOCK_LINE                                                                                          \
	(bpf_core_field_exists(struct rw_semaphore, count) &&                                               \
	 bpf_core_field_exists(struct rw_semaphore, wait_list) &&                                           \
	 bpf_core_field_exists(struct rwsem_waiter, task))

/* Waits for a rwsem, by the address of the waiting task: who lets it go finds that in the lock's line. */
struct rwsem_wait {
	__u64 lock, begin;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct rwsem_wait);
} rwsem_waits SEC(".maps");

static __always_inline bool is_rwsem(__u32 lcb)
{
	return (lcb & (LCB_F_READ | LCB_F_WRITE)) &&
	       !(lcb & (LCB_F_SPIN | LCB_F_PERCPU | LCB_F_MUTEX));
}

SEC("tp_btf/contention_begin")
int BPF_PROG(lg_contention_begin, void *lock, unsigned int lcb)
{
	struct task_struct *cur;
	struct thread *th;

	/* Spinning on a mutex is the first half of waiting for it; other spinning is not ours. */
	if (!enabled || (lcb & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN)
		return 0;
	cur = bpf_get_current_task_btf();
	th = thread_of(cur);
	if (!th)
		return 0;
	if (th->lock != (__u64)lock) {
		th->lock = (__u64)lock;
		th->lock_begin = bpf_ktime_get_ns();
		th->lcb = 0;
		th->owner_tid = 0;
		th->owner_tgid = 0;
		th->owner_flags = 0;
		th->n_peer = 0;
		if (LOCK_LINE && is_rwsem(lcb)) {
			struct rwsem_wait wait = { (__u64)lock, th->lock_begin };
			__u64 me = (__u64)cur;

			/* One whose end was not seen has its place still, and is counted. */
			if (!bpf_map_update_elem(&rwsem_waits, &me, &wait, BPF_NOEXIST))
				__sync_fetch_and_add(&rwsem_waiters, 1);
			else
				bpf_map_update_elem(&rwsem_waits, &me, &wait, BPF_ANY);
		}
	} else if (th->n_peer) {
		return 0;
	}
	th->lcb |= lcb;
	see_owner(th, (__u64)lock, lcb & LCB_F_MUTEX ? LCB_F_MUTEX : lcb);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(lg_contention_end, void *lock, int ret)
{
	struct task_struct *cur;
	struct lg_bpf_lock *r;
	struct thread *th;
	__u32 size = sizeof(*r);
	__u64 now, dur;

	if (!enabled)
		return 0;
	cur = bpf_get_current_task_btf();
	th = thread_of(cur);
	if (!th || !th->lock || th->lock != (__u64)lock)
		return 0;
	if (LOCK_LINE && is_rwsem(th->lcb)) {
		__u64 me = (__u64)cur;

		if (!bpf_map_delete_elem(&rwsem_waits, &me))
			__sync_fetch_and_add(&rwsem_waiters, -1);
	}
	now = bpf_ktime_get_ns();
	dur = now - th->lock_begin;
	th->lock = 0;
	if (dur < (th->job ? 1000 : cfg_lock_ns))
		return 0;
	r = scratch_of(SCRATCH_LOCK);
	if (!r)
		return 0;
	fill(&r->h, now, th->tid, th->tgid, LG_BPF_LOCK);
	r->begin = th->lock_begin;
	r->lock = (__u64)lock;
	r->mm = 0;
	r->mm_tgid = 0;
	r->lcb = th->lcb;
	r->owner_tid = th->owner_tid;
	r->owner_tgid = th->owner_tgid;
	r->owner_flags = th->owner_flags;
	r->zero = 0;
	if (is_rwsem(th->lcb))
		r->mm_tgid = mm_of_lock((__u64)lock, &r->mm);
	/* Still inside the slow path: the same frames as while it waited. */
	if (dur >= cfg_lock_stack_ns)
		size = own_stack(ctx, r, size, th->job);
	if (th->n_peer) {
		bpf_probe_read_kernel((void *)r + size, sizeof(th->peer), th->peer);
		r->h.n_peer = th->n_peer;
		size += (th->n_peer * 8u) & 0xf8;
	}
	output(r, size, LG_BPF_LOCK);
	return 0;
}

/* ---- holds of mmap_lock ------------------------------------------------------------------ */

static __always_inline __u32 tgid_of_mm(struct mm_struct *mm)
{
	if (!bpf_core_field_exists(struct mm_struct, owner))
		return 0;
	if (cfg_pidns_level) {
		struct pid *pid = mm->owner->group_leader->thread_pid;

		return pid_of(pid, (__u32)mm->owner->tgid);
	}
	return (__u32)mm->owner->tgid; /* 0 when there is none: such reads fault to 0 */
}

/*
 * A training process takes its own mmap_lock some ten thousand times a second and is seldom waited for in it.
 * So of its holds only those are told that somebody waits for at their end, which is one bit of the lock's
 * word, and from when the first in line began to wait. When it was taken is noted only while anybody waits
 * for any rwsem: one that was taken while nobody did is older than the wait. (kernel/locking/rwsem.c)
 * Without LOCK_LINE each hold is timed, and the long ones are told.
 */

/* Between acquire and release: is it held for writing? (The tracepoints come while it is held.) */
static __always_inline bool is_write_locked(struct mm_struct *mm)
{
	return mm->mmap_lock.count.counter & RWSEM_WRITER_LOCKED;
}

/*
 * 0: nobody is in line, or his wait was not seen. Who is may leave while this looks, and what is read on his
 * stack be anything: it has to be a task that waits for this very lock.
 */
static __always_inline __u64 waited_for_since(struct mm_struct *mm)
{
	__u64 first = (__u64)mm->mmap_lock.wait_list.next, task = 0;
	struct rwsem_wait *wait;

	if (bpf_probe_read_kernel(&task, sizeof(task), &((struct rwsem_waiter *)first)->task))
		return 0;
	wait = bpf_map_lookup_elem(&rwsem_waits, &task);
	return wait && wait->lock == (__u64)&mm->mmap_lock ? wait->begin : 0;
}

static __always_inline __u64 own_hold_since(const struct thread *th, struct mm_struct *mm)
{
	__u64 since = waited_for_since(mm);

	return since && th->own.mm == (__u64)mm && th->own.ts > since ? th->own.ts : since;
}

SEC("tp_btf/mmap_lock_acquire_returned")
int BPF_PROG(lg_mmap_acquired, struct mm_struct *mm)
{
	bool write, success, own;
	struct task_struct *cur;
	struct thread *th;
	struct hold *hold;
	__u32 k, u;

	/* Which arguments exist depends on the kernel; the verifier drops the other branch. */
	if (cfg_mmap_path) {
		write = ctx[2];
		success = ctx[3];
		asm volatile(""); /* no one load from a computed place, which is refused */
	} else {
		write = ctx[1];
		success = ctx[2];
	}
	if (!enabled || !success)
		return 0;
	cur = bpf_get_current_task_btf();
	own = mm == cur->mm;
	if (own ? !cfg_own_holds || (LOCK_LINE && !rwsem_waiters) : (cur->flags & PF_EXITING))
		return 0; /* exit_mmap(): its own once, but exit_mm() has cleared ->mm */
	if (own && LOCK_LINE && !write && is_write_locked(mm))
		return 0; /* mmap_write_downgrade(): the release sees that it happened */
	th = thread_of(cur);
	if (!th)
		return 0;
	hold = own ? &th->own : &th->foreign;
	if (hold->ts && hold->mm == (__u64)mm && !(own && LOCK_LINE)) {
		hold->flags |= LG_BPF_HOLD_READ; /* mmap_write_downgrade() */
		return 0;
	}
	hold->ts = bpf_ktime_get_ns();
	hold->mm = (__u64)mm;
	hold->flags = write ? LG_BPF_HOLD_WRITE : LG_BPF_HOLD_READ;
	hold->tgid = 0;
	if (own)
		return 0;
	/*
	 * Somebody works on another process's memory. Nobody can take this stack from outside while
	 * it runs, so it is taken here, in its own context.
	 */
	hold->tgid = tgid_of_mm(mm);
	th->hold_kernel = 0;
	th->hold_user = 0;
	if (hold->tgid == th->tgid)
		return 0; /* fork() and exec(): the new mm, which nobody else can want yet */
	hold->flags |= LG_BPF_HOLD_FOREIGN;
	k = frame_bytes(bpf_get_stack(ctx, th->hold_frames, 8 * LG_BPF_KERNEL_FRAMES, 0),
			8 * LG_BPF_KERNEL_FRAMES);
	u = frame_bytes(bpf_get_stack(ctx, th->hold_frames + LG_BPF_KERNEL_FRAMES,
				      8 * LG_BPF_USER_FRAMES, BPF_F_USER_STACK),
			8 * LG_BPF_USER_FRAMES);
	th->hold_kernel = (__u8)(k / 8);
	th->hold_user = (__u8)(u / 8);
	return 0;
}

SEC("tp_btf/mmap_lock_released")
int BPF_PROG(lg_mmap_released, struct mm_struct *mm)
{
	struct task_struct *cur;
	struct lg_bpf_hold *r;
	struct thread *th;
	struct hold *hold;
	__u32 size = sizeof(*r);
	__u64 now, since;
	bool own;

	if (!enabled)
		return 0;
	cur = bpf_get_current_task_btf();
	own = mm == cur->mm;
	if (own && (!cfg_own_holds || (LOCK_LINE && !(mm->mmap_lock.count.counter & RWSEM_FLAG_WAITERS))))
		return 0;
	th = thread_of(cur);
	if (!th)
		return 0;
	hold = own ? &th->own : &th->foreign;
	if (own && LOCK_LINE) {
		since = own_hold_since(th, mm);
		hold->flags = is_write_locked(mm) ? LG_BPF_HOLD_WRITE : LG_BPF_HOLD_READ;
	} else {
		since = hold->mm == (__u64)mm ? hold->ts : 0;
	}
	if (!since)
		return 0;
	hold->ts = 0;
	now = bpf_ktime_get_ns();
	if (now - since < (own || !(hold->flags & LG_BPF_HOLD_FOREIGN) ? cfg_own_hold_ns : cfg_hold_ns))
		return 0;
	r = scratch_of(SCRATCH_RELEASE);
	if (!r)
		return 0;
	fill(&r->h, now, th->tid, th->tgid, LG_BPF_HOLD);
	r->begin = since;
	r->mm = (__u64)mm;
	r->mm_tgid = own ? th->tgid : hold->tgid;
	r->hold_flags = hold->flags;
	if (own) {
		size = own_stack(ctx, r, size, false);
	} else {
		r->h.n_kernel = th->hold_kernel;
		bpf_probe_read_kernel((void *)r + size, 8 * LG_BPF_KERNEL_FRAMES, th->hold_frames);
		size += (th->hold_kernel * 8u) & 0x1f8;
		r->h.n_user = th->hold_user;
		bpf_probe_read_kernel((void *)r + size, 8 * LG_BPF_USER_FRAMES,
				      th->hold_frames + LG_BPF_KERNEL_FRAMES);
		size += (th->hold_user * 8u) & 0xf8;
	}
	output(r, size, LG_BPF_HOLD);
	return 0;
}

#endif /* LG_LOCKS_BPF_H */
