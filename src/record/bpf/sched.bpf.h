/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sched.bpf.h - slices and sleeps: the scheduler's tracepoints. Part of laggard.bpf.c. */
#ifndef LG_SCHED_BPF_H
#define LG_SCHED_BPF_H

#define QUEUED_NS 50000          /* in one queue: less is where it was put at its waking, or no matter */
#define OTHERS_QUEUED_NS 1000000 /* the same of others than the job */
#define WALK_AGAIN_NS 1000000000
#define SENDER_SKIP 6
#define SHALLOW_ENOUGH 32 /* of 256: the counter wraps, then it walks 32 times */

static __always_inline __u8 why_off(struct task_struct *t, bool preempt, unsigned int state)
{
	if (preempt || !(state & 0xff))
		return WHY_PREEMPTED; /* sched_yield() too: able to run, not running */
	if (state & TASK_EXIT)
		return WHY_DEAD;
	if (state & TASK_UNINTERRUPTIBLE) {
		if (state & TASK_NOLOAD)
			return WHY_IDLE;
		return BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait) ? WHY_IOWAIT : WHY_DISK;
	}
	if (state & TASK_STOPPED)
		return WHY_STOPPED;
	if (state & TASK_TRACED)
		return WHY_TRACED;
	if (state & TASK_PARKED)
		return WHY_PARKED;
	return WHY_SLEEP;
}

static __always_inline void flush_sum(struct thread *th, void *ring, __u64 end)
{
	struct lg_bpf_sum *r = ring ? bpf_ringbuf_reserve(ring, sizeof(*r), 0) : 0;

	if (!r) {
		count_lost(LG_BPF_SUM);
		return; /* the sum goes on and is not lost, only coarser */
	}
	fill(&r->h, end, th->tid, th->tgid, LG_BPF_SUM);
	r->since = th->sum_since;
	r->run = th->sum_run;
	r->n = th->sum_n;
	r->zero = 0;
	bpf_ringbuf_submit(r, wake_flag(ring));
	th->sum_n = 0;
	th->sum_run = 0;
}

/* Is this slice worth a record of its own? */
static __always_inline bool is_worth(const struct thread *th, __u64 now, __u8 why)
{
	__u64 woken;

	if (th->job || (!cfg_slice_ns && th->tgid != cfg_self) || why == WHY_DEAD)
		return true;
	if (th->tgid == cfg_self)
		return false;
	if (now - th->in_ts >= cfg_slice_ns)
		return true;
	if (th->off_why == WHY_PREEMPTED || th->off_why == WHY_NEW)
		return th->in_ts - th->off_ts >= cfg_slice_ns;
	woken = th->wake_ts ? th->wake_ts : th->in_ts;
	if (th->in_ts - woken >= cfg_slice_ns)
		return true;
	if (th->off_why == WHY_STOPPED || th->off_why == WHY_TRACED)
		return true;
	return woken - th->off_ts >= (th->off_why == WHY_SLEEP || th->off_why == WHY_IDLE
					      ? cfg_sleep_ns
					      : cfg_slice_ns);
}

/* Where a thread entered the kernel; 0 = not known. */
static __always_inline __u64 user_ip(struct task_struct *t)
{
	struct pt_regs___x86 *regs = (void *)bpf_task_pt_regs(t);
	struct pt_regs___arm64 *arm = (void *)regs;

	if (bpf_core_field_exists(regs->ip))
		return regs->ip;
	return bpf_core_field_exists(arm->pc) ? arm->pc : 0;
}

/*
 * Programs without frame pointers, as most distributions build Python, give one frame however long one
 * walks: then that frame is taken from the registers, and a walk tried again now and then.
 */
static __always_inline void user_stack(void *ctx, struct thread *th, struct task_struct *t)
{
	__u32 n;

	if (th->shallow >= SHALLOW_ENOUGH && ++th->shallow) {
		th->user[0] = user_ip(t);
		th->n_user = th->user[0] != 0;
		return;
	}
	n = frame_bytes(bpf_get_stack(ctx, th->user, sizeof(th->user), BPF_F_USER_STACK),
			sizeof(th->user)) / 8;
	th->n_user = (__u8)n;
	th->shallow = n > 1 ? 0 : th->shallow + 1;
}

static __always_inline void leave(void *ctx, struct thread *th, struct task_struct *t, __u64 now,
				  bool preempt, unsigned int state)
{
	__u8 why = why_off(t, preempt, state);
	__u32 cpu = bpf_get_smp_processor_id();
	void *ring = ring_of(cpu);
	struct lg_bpf_slice *r;

	if (th->job_version != job_version)
		is_job_now(th);
	if (!th->in_ts) {
		/* Was already running when the recording began: known since then. */
		th->in_ts = th->off_ts ? th->off_ts : now;
		th->off_ts = 0;
		th->edge = 1;
	} else if (!th->running) {
		/*
		 * It left without having come. Seen with threads of a container's supervisor: the
		 * tracepoint does not fire for some of their switches, for perf neither. How long
		 * it ran is in the scheduler's own account, which is brought up to date before a
		 * switch (update_curr() in put_prev_task()).
		 */
		__u64 least = th->wake_ts > th->off_ts ? th->wake_ts : th->off_ts;

		count_lost(LG_BPF_NONE);
		th->tent_ts = 0;
		th->in_ts = now - (t->se.sum_exec_runtime - th->exec);
		if (th->in_ts < least || th->in_ts > now) {
			th->in_ts = now;
			th->gap = 1;
		}
	}
	th->exec = t->se.sum_exec_runtime;
	if (is_worth(th, now, why)) {
		if (th->sum_n)
			flush_sum(th, ring, th->off_ts ? th->off_ts : th->in_ts);
		r = ring ? bpf_ringbuf_reserve(ring, sizeof(*r), 0) : 0;
		if (r) {
			fill(&r->h, now, th->tid, th->tgid, LG_BPF_SLICE);
			r->h.flags = th->waker_ctx | (th->edge ? LG_BPF_EDGE : 0) |
				     (th->gap ? LG_BPF_GAP : 0);
			if (why == WHY_DEAD && t->signal->live.counter == 0)
				r->h.flags |= LG_BPF_LAST;
			r->in_ts = th->in_ts;
			r->off_ts = th->off_ts;
			r->wake_ts = th->wake_ts;
			r->waker_tid = th->waker_tid;
			r->off_why = th->off_why | (th->python ? th->gil_is : 0);
			r->out_why = why;
			r->wake_cpu = th->wake_cpu;
			bpf_ringbuf_submit(r, wake_flag(ring));
		} else {
			count_lost(LG_BPF_SLICE);
		}
	} else {
		if (!th->sum_n++)
			th->sum_since = th->off_ts ? th->off_ts : th->in_ts;
		th->sum_run += now - th->in_ts;
		if (now - th->sum_since > 1000000000ull)
			flush_sum(th, ring, now);
	}
	th->edge = 0;
	th->gap = 0;
	th->running = 0;
	th->off_ts = now;
	th->off_why = why;
	th->wake_ts = 0;
	th->waker_tid = 0;
	th->waker_ctx = 0;
	th->n_user = 0;
	th->n_python = 0;
	if (th->python) { /* what others have it for nothing lies in another cache line */
		th->gil_is = 0;
		th->gil_holder = 0;
	}
	if (why < WHY_SLEEP)
		return;
	if (th->tent_ts && now - th->tent_ts < 100000) {
		/*
		 * Woken between setting its state and getting here: the waker saw the state, and
		 * waits for this CPU to let go (try_to_wake_up(), on_cpu).
		 */
		th->wake_ts = now;
		th->waker_tid = th->tent_waker;
		th->waker_ctx = th->tent_ctx;
	}
	if (cfg_user_stacks && th->job && th->tid == th->tgid)
		user_stack(ctx, th, t);
	if (cfg_user_stacks && th->python)
		python_sleeps(th, t);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(lg_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct thread *th;
	__u64 now;

	if (!enabled)
		return 0;
	now = bpf_ktime_get_ns();
	if (prev->pid) {
		th = thread_of(prev);
		if (th)
			leave(ctx, th, prev, now, preempt, prev_state);
	}
	if (next->pid) {
		th = thread_of(next);
		if (th) {
			if (th->running && th->in_ts) {
				/* It came without having left: when is lost, how long it ran is not. */
				count_lost(LG_BPF_NONE);
				if (!th->sum_n++)
					th->sum_since = th->in_ts;
				th->sum_run += next->se.sum_exec_runtime - th->exec;
				th->exec = next->se.sum_exec_runtime;
				th->off_ts = 0;
				th->off_why = WHY_NONE;
				th->wake_ts = 0;
			}
			th->in_ts = now;
			th->tent_ts = 0;
			th->running = 1;
			th->cpu = (__u16)bpf_get_smp_processor_id();
		}
	}
	return 0;
}

/*
 * Walking a stack by the ORC tables costs 10 us, and the helper threads of a training job sleep in
 * the same place ten thousand times. So the walk leaves behind where in the innermost 512 bytes it
 * found its return addresses; the same addresses in the same places, after the same entry to
 * the kernel, are the same stack. (Not the same depth: CONFIG_RANDOMIZE_KSTACK_OFFSET throws dice
 * at every system call.)
 */
static __always_inline bool read_raw_stack(struct task_struct *p, __u64 *raw, __u32 words)
{
	struct task_struct___arm64 *arm = (void *)p;
	__u64 sp = bpf_core_field_exists(arm->thread.cpu_context.sp) ? arm->thread.cpu_context.sp
								      : p->thread.sp;

	if (words > RAW_STACK_WORDS)
		words = RAW_STACK_WORDS;
	return sp && !bpf_probe_read_kernel(raw, 8 * words, (void *)sp);
}

static __always_inline __u64 stack_mark(struct task_struct *p, const __u64 *raw, __u64 places)
{
	struct pt_regs___x86 *regs = (void *)bpf_task_pt_regs(p);
	struct pt_regs___arm64 *arm = (void *)regs;
	const __u64 odd = 0x9e3779b97f4a7c15ull;
	__u64 mark = user_ip(p) << 16, other = 0;
	__u32 i;

	if (bpf_core_field_exists(regs->orig_ax))
		mark ^= regs->orig_ax;
	else if (bpf_core_field_exists(arm->syscallno))
		mark ^= (__u32)arm->syscallno;
	/*
	 * Without a branch for each: the verifier would follow each way through them. Two at a time: each
	 * product waits for the one before.
	 */
	for (i = 0; i < RAW_STACK_WORDS; i += 2) {
		if (i && i % 16 == 0 && !(places >> i))
			break;
		mark = (mark ^ (raw[i] & -(places >> i & 1))) * odd;
		other = (other ^ (raw[i + 1] & -(places >> i >> 1 & 1))) * odd;
	}
	return (mark ^ other >> 32) * odd ^ other;
}

/* How many words of a raw stack those are: rounded up, for the verifier's sake. */
static __always_inline __u32 words_of(__u64 places)
{
	return places >> 32 ? (places >> 48 ? 64 : 48) : (places >> 16 ? 32 : 16);
}

/* Where the first of the frames are in the raw stack, as bits. */
static __always_inline __u64 return_places(const __u64 *raw, __u64 *frames, __u32 n)
{
	__u64 places = 0, k = 0, hit, negative;
	__u32 i;

	/* What no stack holds ends the list, where it is not full. */
	frames[n & (2 * LG_BPF_KERNEL_FRAMES - 1)] = 0x9e3779b97f4a7c15ull;
	for (i = 0; i < RAW_STACK_WORDS; i++) {
		hit = raw[i] ^ frames[k & (LG_BPF_KERNEL_FRAMES - 1)];
		negative = -hit;
		/* Or clang makes a branch of it, and the verifier has 2^64 ways to follow. */
		asm volatile("" : "+r"(negative));
		hit = ((hit | negative) >> 63) ^ 1;
		places |= hit << i;
		k += hit;
	}
	return k >= 2 ? places : 0;
}

/*
 * A packet over the loopback is received in a soft interrupt on the sender's CPU, inside its own system
 * call (drivers/net/loopback.c queues it, __local_bh_enable_ip() on the way out receives it). A soft
 * interrupt may as well follow a hard one that struck whoever ran. The stack tells which; it is read by
 * analyse/chains/senders.c. Between threads of the job collectives tell more, and it is their hottest path:
 * only a main thread's waking is looked at there.
 */
static __always_inline bool may_be_sent(const struct thread *th, struct task_struct *current)
{
	struct pt_regs___x86 *regs = (void *)bpf_task_pt_regs(current);
	struct pt_regs___arm64 *arm = (void *)regs;
	struct thread *sender;

	if (!th->job || !current->pid || (current->flags & PF_KTHREAD))
		return false;
	sender = thread_of(current);
	if (!sender || (sender->job && th->tid != th->tgid))
		return false;
	/* An interrupt out of user space leaves -1 (arch/x86/include/asm/idtentry.h); arm64 NO_SYSCALL. */
	if (bpf_core_field_exists(regs->orig_ax))
		return (long)BPF_CORE_READ(regs, orig_ax) >= 0;
	return !bpf_core_field_exists(arm->syscallno) || BPF_CORE_READ(arm, syscallno) >= 0;
}

/* Frames of a sleeper behind its record's fixed part; their bytes. Often it is one: a helper costs more. */
static __always_inline __u32 append(struct lg_bpf_sleep *r, __u32 at, const __u64 *frames, __u8 n,
				    __u32 max)
{
	__u32 k = (n * 8u) & 0xf8;

	if (k == 8)
		*(__u64 *)((void *)r + at) = *frames;
	else
		bpf_probe_read_kernel((void *)r + at, k <= max ? k : max, frames);
	return k;
}

/* Is it asleep where it was when its stack was walked last? */
static __always_inline bool asleep_there(const struct thread *th, struct task_struct *p, __u64 *raw,
					 __u64 now)
{
	/* Another CPU's cache has it: no more of it than is looked at. */
	return th->stack_places && now - th->walked_ts < WALK_AGAIN_NS &&
	       read_raw_stack(p, raw, words_of(th->stack_places)) &&
	       stack_mark(p, raw, th->stack_places) == th->stack_mark;
}

static __always_inline void sleeper_stack(void *ctx, struct thread *th, struct task_struct *p, __u64 now,
					  bool sent)
{
	struct lg_bpf_sleep *r = scratch_of(SCRATCH_WAKING);
	bool plain = lg_bpf_is_plain(th->n_user, th->n_python), there, readable;
	__u64 *raw, *frames;
	__u32 k = 0, size = sizeof(*r);

	if (!r)
		return;
	raw = (void *)r + RAW_STACK_AT;
	frames = (void *)r + sizeof(*r);
	there = asleep_there(th, p, raw, now);
	if (there && plain && !sent && !th->gil_holder && th->plain == 1 + th->n_user) {
		th->waker_ctx |= LG_BPF_ASLEEP_THERE;
		return;
	}
	fill(&r->h, now, th->tid, th->tgid, LG_BPF_SLEEP);
	r->off_ts = th->off_ts;
	r->sender_tid = 0;
	r->gil_holder = th->gil_holder;
	if (there) {
		r->h.flags = LG_BPF_SAME;
	} else {
		readable = read_raw_stack(p, raw, RAW_STACK_WORDS);
		/* Straight into the ring is refused together with a task reference (libbpf 1.1). */
		k = frame_bytes(bpf_get_task_stack(p, frames, 8 * LG_BPF_KERNEL_FRAMES, 0),
				8 * LG_BPF_KERNEL_FRAMES);
		r->h.n_kernel = (__u8)(k / 8);
		if (k == 8 * LG_BPF_KERNEL_FRAMES)
			r->h.flags = LG_BPF_MANY_KERNEL;
		th->stack_places = readable ? return_places(raw, frames, k / 8) : 0;
		if (th->stack_places)
			th->stack_mark = stack_mark(p, raw, th->stack_places);
		th->walked_ts = now;
		th->plain = 0;
	}
	size += k;
	if (plain)
		th->plain = 1 + th->n_user;
	if (th->n_user) {
		r->h.n_user = th->n_user;
		size += append(r, size, th->user, th->n_user, sizeof(th->user));
	}
	if (sent) {
		r->sender_tid = tid_of(bpf_get_current_task_btf());
		/* The innermost are ours and the wake-up's. */
		k = frame_bytes(bpf_get_stack(ctx, (void *)r + size, 8 * LG_BPF_SENDER_FRAMES, SENDER_SKIP),
				8 * LG_BPF_SENDER_FRAMES);
		r->h.n_peer = (__u8)(k / 8);
		size += k;
	}
	if (th->n_python) {
		r->h.n_python = th->n_python;
		size += append(r, size, th->python_frames, th->n_python, sizeof(th->python_frames));
	}
	if (!output(r, size, LG_BPF_SLEEP))
		th->stack_places = 0; /* user space does not have it */
}

static __always_inline int waking(void *ctx, struct task_struct *p)
{
	struct thread *th = thread_of(p);
	__u64 now, least; /* ns */
	__u32 waker = 0;
	__u8 ctx_now;

	if (!th)
		return 0;
	now = bpf_ktime_get_ns();
	/*
	 * Another CPU's cache has all this. Written first, it comes to be changed at once, and not to be read
	 * first. Of one that is not on the CPU it means nothing: coming there clears it.
	 */
	*(volatile __u64 *)&th->tent_ts = now;
	ctx_now = context_now();
	if (ctx_now == CTX_TASK) {
		/* In an interrupt the current thread is only a bystander. */
		if (cfg_pidns_level)
			waker = tid_of(bpf_get_current_task_btf());
		else
			waker = (__u32)bpf_get_current_pid_tgid();
	}
	if (th->running) {
		th->tent_waker = waker;
		th->tent_ctx = ctx_now;
		return 0;
	}
	if (th->wake_ts || th->off_why < WHY_SLEEP)
		return 0;
	th->wake_ts = now;
	th->waker_tid = waker;
	th->waker_ctx = ctx_now;
	th->wake_cpu = (__u16)bpf_get_smp_processor_id();
	if (!th->off_ts || th->tgid == cfg_self)
		return 0;
	if (th->n_python)
		python_wakes(th, now - th->off_ts);
	/*
	 * A stack costs ten times what the rest does. Every uninterruptible sleep has one, and every
	 * sleep of the job that a step can feel (a millisecond); of shorter naps, and of those of
	 * others, which only matter to a chain when they are long, some.
	 */
	least = th->job || th->off_why != WHY_SLEEP ? cfg_stack_ns : cfg_sleep_ns;
	if (th->off_why == WHY_IDLE || now - th->off_ts < least)
		return 0;
	least = th->job ? JOB_NAP_NS : cfg_stack_gap_ns;
	if (th->off_why == WHY_SLEEP && now - th->off_ts < least &&
	    now - th->stack_ts < cfg_stack_gap_ns)
		return 0;
	th->stack_ts = now;
	sleeper_stack(ctx, th, p, now,
		      ctx_now == CTX_SOFTIRQ && may_be_sent(th, bpf_get_current_task_btf()));
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(lg_waking, struct task_struct *p)
{
	return enabled ? waking(ctx, p) : 0;
}

/* The CPU in whose queue it is. */
static __always_inline __u32 queue_of(struct task_struct *p, const struct thread *th)
{
	struct task_struct___cpu *old = (void *)p;

	if (bpf_core_field_exists(p->thread_info.cpu))
		return BPF_CORE_READ(p, thread_info.cpu);
	return bpf_core_field_exists(old->cpu) ? BPF_CORE_READ(old, cpu) : th->cpu;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(lg_moved, struct task_struct *p)
{
	struct lg_bpf_move *r;
	struct thread *th;
	__u64 now, since;
	void *ring;

	th = enabled ? thread_of(p) : 0;
	if (!th || th->running || !th->off_ts || th->tgid == cfg_self)
		return 0;
	since = th->off_why < WHY_SLEEP ? th->off_ts : th->wake_ts;
	if (!since)
		return 0; /* asleep */
	now = bpf_ktime_get_ns();
	since = th->moved_ts > since ? th->moved_ts : since;
	if (now - since < (th->job ? QUEUED_NS : OTHERS_QUEUED_NS))
		return 0;
	ring = ring_of(bpf_get_smp_processor_id());
	r = ring ? bpf_ringbuf_reserve(ring, sizeof(*r), 0) : 0;
	if (!r) {
		count_lost(LG_BPF_MOVE);
		return 0;
	}
	th->moved_ts = now;
	fill(&r->h, now, th->tid, th->tgid, LG_BPF_MOVE);
	r->from_cpu = queue_of(p, th);
	r->zero = 0;
	bpf_ringbuf_submit(r, wake_flag(ring));
	return 0;
}

/* A new thread's first wait starts when its parent puts it on a run queue. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(lg_wakeup_new, struct task_struct *p)
{
	struct thread *th;

	if (!enabled)
		return 0;
	th = thread_of(p);
	if (!th || th->running)
		return 0;
	th->off_ts = bpf_ktime_get_ns();
	th->off_why = WHY_NEW;
	th->waker_ctx = CTX_TASK;
	if (cfg_pidns_level)
		th->waker_tid = tid_of(bpf_get_current_task_btf());
	else
		th->waker_tid = (__u32)bpf_get_current_pid_tgid();
	return 0;
}

#endif /* LG_SCHED_BPF_H */
