/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * threads.bpf.h - settings, maps, small helpers, and the life of a thread's storage.
 * Part of laggard.bpf.c (one translation unit: everything is inlined into the programs).
 */
#ifndef LG_THREADS_BPF_H
#define LG_THREADS_BPF_H

/* Values of include/linux/sched.h, unchanged since 4.14 (newer bits are not looked at). */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define TASK_EXIT 0xb0 /* EXIT_DEAD | EXIT_ZOMBIE | TASK_DEAD */
#define TASK_PARKED 0x40
#define TASK_NOLOAD 0x400
#define PF_EXITING 0x4
#define PF_KTHREAD 0x200000
/* enum of include/trace/events/lock.h */
#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32
/* Lower bits of the owner word of rwsem and mutex are flags, both at most three. */
#define OWNER_FLAGS 7ul
#define RWSEM_READER_OWNED 1ul
/* Of rw_semaphore.count, kernel/locking/rwsem.c since 5.2. */
#define RWSEM_WRITER_LOCKED 1l
#define RWSEM_FLAG_WAITERS 2l

/* Same numbers as enum lg_state_reason and enum lg_ctx (bpf_source.c asserts it). */
enum { WHY_NONE, WHY_PREEMPTED, WHY_WOKEN, WHY_NEW, WHY_SLEEP, WHY_DISK, WHY_IOWAIT, WHY_STOPPED,
       WHY_TRACED, WHY_DEAD, WHY_PARKED, WHY_IDLE };
enum { CTX_UNKNOWN, CTX_TASK, CTX_SOFTIRQ, CTX_HARDIRQ, CTX_NMI };

/* Set before loading. */
const volatile __u32 cfg_self = 0;             /* tgid of the recorder */
const volatile __u32 cfg_ring_shift = 0;       /* CPUs share a ring in groups of 2^shift */
const volatile __u32 cfg_ring_half = 1u << 20; /* wake the reader above this fill */
const volatile __u64 cfg_slice_ns = 0;         /* shorter slices of other processes are summed */
const volatile __u64 cfg_sleep_ns = 1000000;   /* other processes: sleeps worth a record */
const volatile __u64 cfg_stack_ns = 100000;    /* blocked this long: take the stack */
const volatile __u64 cfg_stack_gap_ns = 20000000; /* other processes: between two such stacks */
const volatile __u64 cfg_lock_ns = 10000;      /* other processes: lock waits worth a record */
const volatile __u64 cfg_lock_stack_ns = 50000;
const volatile __u64 cfg_hold_ns = 20000;      /* foreign holds */
const volatile __u64 cfg_own_hold_ns = 100000;
const volatile __u64 cfg_memory_ns = 10000;
const volatile bool cfg_own_holds = true;
const volatile bool cfg_user_stacks = true;
const volatile bool cfg_task_from_pid = false; /* the kernel has that kfunc (6.2) */
const volatile bool cfg_rdonly_cast = false;   /* as well */
const volatile bool cfg_mmap_path = false;     /* mmap_lock tracepoints carry a cgroup path (until 6.12) */
const volatile __s32 cfg_preempt_at = 0;       /* from a CPU's run queue to its preempt_count; 0 = unknown */
const volatile __u32 cfg_pidns_level = 0;      /* depth of the recorder's pid namespace */

/* Changed while running. */
bool enabled = false;
__u64 exec_woke = 0;     /* when an exec called the reader last */
bool lost_some = false; /* since user space looked last */
bool at_end = false;    /* the iterator reports open states instead of tasks */
__u32 rwsem_waiters = 0; /* threads in the map `rwsem_waits` */
__u32 job_version = 0;  /* counts changes of the map `jobs` */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, 1 << 12);
	});
} rings SEC(".maps");

/* By kind; in one value, so that the reader asks for all of them at once. */
struct lost_counts {
	__u64 n[LG_BPF_KINDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost_counts);
} lost SEC(".maps");

/* Processes of the training job: never thresholded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} jobs SEC(".maps");

/* Where Python processes keep their frames: one entry for all of one build. [0] is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LG_BPF_PYTHON_LAYOUTS);
	__type(key, __u32);
	__type(value, struct lg_bpf_python_layout);
} python_layouts SEC(".maps");

/* The job's Python processes: which of these, and where the lock is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct lg_bpf_python_process);
} pythons SEC(".maps");

enum { SCRATCH_WAKING, SCRATCH_LOCK, SCRATCH_RELEASE, SCRATCH_MEMORY, SCRATCH_COMPACT, SCRATCH_ITER,
       SCRATCH_MAX };

struct scratch {
	__u8 bytes[2048];
};

#define WAKE_RECORDS 128
#define JOB_NAP_NS 1000000 /* shorter sleeps of the job no step can feel */
#define PYTHON_PLACES 8
#define STATELESS_ENOUGH 16 /* of 256: the counter wraps, then it is asked 16 times */
#define PYTHON_NAPS 16 /* this many in a row, and the next is taken for one more */

/* Scratch behind the greatest record: the sleeper's raw stack. */
#define RAW_STACK_AT 1024
#define RAW_STACK_WORDS 64

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_MAX);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct hold {
	__u64 ts, mm;
	__u32 flags, tgid;
};

struct this_cpu {
	__u32 records; /* written, see wake_flag() */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct this_cpu);
} cpus SEC(".maps");

/* Sleeps in a row that no step can feel, at lines of Python with that hash. */
struct naps {
	__u8 n[PYTHON_PLACES];
};

/*
 * In the order in which it is touched, so that a switch brings in few cache lines. (The kernel puts eight
 * bytes of its own before it.)
 */
struct thread {
	/* every switch and waking */
	__u64 in_ts, off_ts, wake_ts;
	__u64 tent_ts;     /* woken while (still) on the CPU, see invariant 2 */
	__u32 tid, tgid;
	__u32 waker_tid, tent_waker;
	__u16 wake_cpu;
	__u8 running, off_why, waker_ctx, tent_ctx, job, edge;
	__u32 job_version;
	__u16 cpu;         /* where it runs or ran */
	__u8 gap;          /* its coming was not reported */
	__u8 shallow;      /* user stacks of one frame in a row, see user_stack() */
	__u64 exec;        /* se.sum_exec_runtime when it left last */
	__u32 sum_n;
	__u8 n_user;
	__u8 python, n_python; /* which layout, 0 = no Python; frames below, where it left the CPU */
	__u8 stateless;        /* sleeps in a row in which it had no frame of Python */
	struct hold own, foreign;
	/* sleeps */
	struct naps naps;
	__u64 python_state; /* that was found to be its own */
	__u64 gil;          /* of its process; 0 = not known */
	__u32 gil_holder;   /* see lg_bpf_sleep */
	__u8 gil_is;        /* of the newest sleep: LG_BPF_GIL_*, 0 = neither */
	__u64 stack_ts;     /* of the newest stack of a sleep */
	__u64 walked_ts;    /* of the newest that was walked, see read_raw_stack() */
	__u64 stack_places, stack_mark; /* of that one; places 0 = none */
	__u8 plain; /* 1 + user frames of the newest told plain sleep that was there; 0 = none */
	__u64 moved_ts;     /* put from one CPU's queue into another's, in the newest wait or before */
	__u64 lock, lock_begin;
	__u32 lcb;
	__u32 owner_tid, owner_tgid, owner_flags;
	/* below: rarely touched */
	__u64 sum_since, sum_run;
	__u8 n_peer, hold_kernel, hold_user;
	__u8 nap; /* which of `naps` the newest sleep counts in */
	__u64 memory_begin[2];
	__u64 peer[LG_BPF_PEER_FRAMES];
	__u64 user[LG_BPF_USER_FRAMES];
	__u64 hold_frames[LG_BPF_KERNEL_FRAMES + LG_BPF_USER_FRAMES];
	__u64 python_frames[LG_BPF_PYTHON_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
void bpf_task_release(struct task_struct *p) __ksym __weak;
void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/* ---- small things ---------------------------------------------------------------------- */

static __always_inline __u32 pid_of(struct pid *pid, __u32 fallback)
{
	__u64 at = bpf_core_field_offset(struct pid, numbers) +
		   cfg_pidns_level * bpf_core_type_size(struct upid);
	__u32 level = 0;
	int nr = 0;

	if (bpf_probe_read_kernel(&level, sizeof(level), &pid->level) || level < cfg_pidns_level)
		return fallback; /* lives outside the recorder's namespace */
	if (bpf_probe_read_kernel(&nr, sizeof(nr), (char *)pid + at) || nr <= 0)
		return fallback;
	return (__u32)nr;
}

static __always_inline __u32 tid_of(struct task_struct *t)
{
	return cfg_pidns_level ? pid_of(t->thread_pid, (__u32)t->pid) : (__u32)t->pid;
}

static __always_inline __u32 tgid_of(struct task_struct *t)
{
	return cfg_pidns_level ? pid_of(t->group_leader->thread_pid, (__u32)t->tgid)
			       : (__u32)t->tgid;
}

static __always_inline struct thread *thread_of(struct task_struct *t)
{
	return bpf_task_storage_get(&threads, t, 0, 0);
}

/*
 * What this CPU is at. x86 keeps its preempt_count in a per-CPU variable, which programs can name only under
 * CONFIG_KALLSYMS_ALL; but the queue that the current thread is in is this CPU's, is a per-CPU variable as
 * well, and BTF has how far apart the two are.
 */
static __always_inline __u8 context_now(void)
{
	struct task_struct *cur = bpf_get_current_task_btf();
	struct thread_info___preempt *info = (void *)&cur->thread_info;
	__s64 at = cfg_preempt_at;
	__u32 count = 0;

	if (bpf_core_field_exists(info->preempt_count)) {
		count = (__u32)BPF_CORE_READ(info, preempt_count);
	} else {
		if (!at || !bpf_core_field_exists(cur->se.cfs_rq) ||
		    !bpf_core_field_exists(cur->se.cfs_rq->rq))
			return CTX_UNKNOWN;
		if (bpf_core_field_exists(struct pcpu_hot, preempt_count))
			at += bpf_core_field_offset(struct pcpu_hot, preempt_count);
		/* A load costs a nanosecond, a helper forty; any struct that starts with a number will do. */
		if (cfg_rdonly_cast) {
			struct upid *word = bpf_rdonly_cast((void *)((__u64)cur->se.cfs_rq->rq + at),
							    bpf_core_type_id_kernel(struct upid));

			count = (__u32)word->nr;
		} else if (bpf_probe_read_kernel(&count, sizeof(count), (void *)cur->se.cfs_rq->rq + at)) {
			return CTX_UNKNOWN;
		}
	}
	/* include/linux/preempt.h: 0x100 is "serving", 0x200 and up "disabled" softirqs. */
	if (count & 0xf00000)
		return CTX_NMI;
	if (count & 0xf0000)
		return CTX_HARDIRQ;
	return count & 0x100 ? CTX_SOFTIRQ : CTX_TASK;
}

static __always_inline void *scratch_of(__u32 i)
{
	return bpf_map_lookup_elem(&scratches, &i);
}

static __always_inline struct this_cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline void count_lost(__u32 kind)
{
	__u32 zero = 0;
	struct lost_counts *counts = bpf_map_lookup_elem(&lost, &zero);

	if (counts && kind < LG_BPF_KINDS)
		counts->n[kind]++;
	lost_some = true;
}

static __always_inline void *ring_of(__u32 cpu)
{
	__u32 i = cpu >> cfg_ring_shift;

	return bpf_map_lookup_elem(&rings, &i);
}

/*
 * The reader comes by a timer; only a ring that fills faster than expected calls it, and only once every
 * WAKE_RECORDS of a CPU: looking costs, and a call is an interrupt to oneself.
 */
static __always_inline __u64 wake_flag(void *ring)
{
	struct this_cpu *here = this_cpu();

	if (!here || ++here->records % WAKE_RECORDS)
		return BPF_RB_NO_WAKEUP;
	return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) < cfg_ring_half ? BPF_RB_NO_WAKEUP
									   : BPF_RB_FORCE_WAKEUP;
}

static __always_inline void fill(struct lg_bpf_hdr *h, __u64 ts, __u32 tid, __u32 tgid, __u8 kind)
{
	h->ts = ts;
	h->tid = tid;
	h->tgid = tgid;
	h->kind = kind;
	h->n_kernel = 0;
	h->n_user = 0;
	h->flags = 0;
	h->cpu = (__u16)bpf_get_smp_processor_id();
	h->n_peer = 0;
	h->n_python = 0;
}

/* False: lost, and counted. */
static __always_inline bool output(void *rec, __u64 size, __u32 kind)
{
	void *ring = ring_of(bpf_get_smp_processor_id());

	if (ring && !bpf_ringbuf_output(ring, rec, size, wake_flag(ring)))
		return true;
	count_lost(kind);
	return false;
}

/* bytes of a stack helper -> whole frames, in a range that the verifier can see */
static __always_inline __u32 frame_bytes(long n, __u32 max)
{
	if (n <= 0)
		return 0;
	if (n > max)
		n = max;
	return (__u32)n & 0x1f8;
}

/* Kernel (and user) stack of the current thread behind a record's fixed part; its new size. */
static __always_inline __u32 own_stack(void *ctx, void *rec, __u32 at, bool user)
{
	struct lg_bpf_hdr *h = rec;
	__u32 k, u;

	k = frame_bytes(bpf_get_stack(ctx, rec + at, 8 * LG_BPF_KERNEL_FRAMES, 0),
			8 * LG_BPF_KERNEL_FRAMES);
	h->n_kernel = (__u8)(k / 8);
	if (k == 8 * LG_BPF_KERNEL_FRAMES)
		h->flags |= LG_BPF_MANY_KERNEL;
	at += k;
	if (!user)
		return at;
	u = frame_bytes(bpf_get_stack(ctx, rec + at, 8 * LG_BPF_USER_FRAMES, BPF_F_USER_STACK),
			8 * LG_BPF_USER_FRAMES);
	h->n_user = (__u8)(u / 8);
	return at + u;
}

/* ---- threads come and go ---------------------------------------------------------------- */

#define EXEC_WAKE_NS 100000000

static __always_inline void is_job_now(struct thread *th)
{
	struct lg_bpf_python_process *python;

	th->job_version = job_version;
	th->job = bpf_map_lookup_elem(&jobs, &th->tgid) != 0;
	python = th->job ? bpf_map_lookup_elem(&pythons, &th->tgid) : 0;
	th->python = python ? (__u8)python->layout : 0;
	th->gil = python ? python->gil : 0;
}

static __always_inline struct thread *thread_new(struct task_struct *t)
{
	struct thread *th = bpf_task_storage_get(&threads, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!th) {
		count_lost(LG_BPF_TASK);
		return 0;
	}
	th->tid = tid_of(t);
	th->tgid = tgid_of(t);
	th->exec = t->se.sum_exec_runtime;
	is_job_now(th);
	return th;
}

static __always_inline void fill_task(struct lg_bpf_task *r, struct task_struct *t, __u64 ts,
				      __u32 tid, __u32 tgid)
{
	fill(&r->h, ts, tid, tgid, LG_BPF_TASK);
	r->mm = (__u64)t->mm;
	r->start = t->start_boottime;
	r->ptgid = tgid_of(t->real_parent);
	r->task_flags = t->flags;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), &t->comm);
}

static __always_inline void report_task(struct task_struct *t, struct task_struct *parent,
					struct thread *th, __u64 ts, __u8 flags)
{
	void *ring = ring_of(bpf_get_smp_processor_id());
	struct lg_bpf_task *r;
	__u64 wake;

	r = ring ? bpf_ringbuf_reserve(ring, sizeof(*r), 0) : 0;
	if (!r) {
		count_lost(LG_BPF_TASK);
		return;
	}
	wake = wake_flag(ring);
	fill_task(r, t, ts, th->tid, th->tgid);
	if (parent)
		r->ptgid = tgid_of(parent);
	r->h.flags = flags;
	/*
	 * A new program may be gone soon, and its command line and maps with it: the reader is called
	 * to look, though not at each of thousands.
	 */
	if ((flags & LG_BPF_EXEC) && ts - exec_woke > EXEC_WAKE_NS) {
		exec_woke = ts;
		wake = BPF_RB_FORCE_WAKEUP;
	}
	bpf_ringbuf_submit(r, wake);
}

/* A loader's workers are forks: what is where is the same. An exec is told to user space, which takes it
 * back. */
static __always_inline void python_fork(struct thread *th, __u32 parent)
{
	struct lg_bpf_python_process copy, *of = bpf_map_lookup_elem(&pythons, &parent);

	if (!of)
		return;
	copy = *of;
	if (!bpf_map_update_elem(&pythons, &th->tgid, &copy, BPF_ANY))
		th->python = (__u8)copy.layout;
	th->gil = th->python ? copy.gil : 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(lg_fork, struct task_struct *parent, struct task_struct *child)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *th;

	if (!enabled)
		return 0;
	th = thread_new(child);
	if (!th)
		return 0;
	if (th->tgid != tgid_of(parent) && !th->job) {
		__u32 tgid = tgid_of(parent);
		__u32 *job = bpf_map_lookup_elem(&jobs, &tgid);

		if (job) {
			bpf_map_update_elem(&jobs, &th->tgid, job, BPF_ANY);
			th->job = 1;
			python_fork(th, tgid);
		}
	}
	th->off_ts = now;
	th->off_why = WHY_NEW;
	report_task(child, parent, th, now, LG_BPF_FORK);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(lg_exec, struct task_struct *p)
{
	struct thread *th;

	if (!enabled)
		return 0;
	th = thread_of(p);
	if (!th)
		return 0;
	th->tid = tid_of(p); /* a thread that is not the leader becomes it */
	th->python_state = 0;
	report_task(p, 0, th, bpf_ktime_get_ns(), LG_BPF_EXEC);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(lg_rename, struct task_struct *t, const char *comm)
{
	void *ring = ring_of(bpf_get_smp_processor_id());
	struct lg_bpf_task *r;
	struct thread *th;

	if (!enabled)
		return 0;
	th = thread_of(t);
	if (!th)
		return 0;
	r = ring ? bpf_ringbuf_reserve(ring, sizeof(*r), 0) : 0;
	if (!r) {
		count_lost(LG_BPF_TASK);
		return 0;
	}
	fill_task(r, t, bpf_ktime_get_ns(), th->tid, th->tgid);
	/* The tracepoint comes before the change. */
	bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), comm);
	bpf_ringbuf_submit(r, wake_flag(ring));
	return 0;
}

#endif /* LG_THREADS_BPF_H */
