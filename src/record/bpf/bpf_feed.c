/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf_feed.c - what the BPF programs saw, as rows.
 *
 * A slice becomes up to three state rows: blocked [off, wake), runnable [wake, in), running
 * [in, out). The stack of the sleep and the kernel lock slept on come in records of their own a
 * little earlier and are kept per thread until that slice arrives.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "record/asleep.h"
#include "record/bpf/bpf_feed.h"
#include "record/bpf/kernel_data.h"
#include "record/session.h"

/* The numbers of sched.bpf.h and locks.bpf.h are ours: the kernel side cannot include trace.h. */
_Static_assert(LG_WHY_PREEMPTED == 1 && LG_WHY_WOKEN == 2 && LG_WHY_NEW == 3 && LG_WHY_SLEEP == 4 &&
	       LG_WHY_DISK == 5 && LG_WHY_IOWAIT == 6 && LG_WHY_STOPPED == 7 && LG_WHY_TRACED == 8 &&
	       LG_WHY_DEAD == 9 && LG_WHY_PARKED == 10 && LG_WHY_IDLE == 11, "WHY_* of the programs");
_Static_assert(LG_CTX_TASK == 1 && LG_CTX_SOFTIRQ == 2 && LG_CTX_HARDIRQ == 3 && LG_CTX_NMI == 4,
	       "CTX_* of the programs");

/* enum of include/trace/events/lock.h */
enum { LCB_F_SPIN = 1, LCB_F_READ = 2, LCB_F_WRITE = 4, LCB_F_RT = 8, LCB_F_PERCPU = 16,
       LCB_F_MUTEX = 32 };
#define PF_KTHREAD 0x00200000u

#define N_WAITS 4
#define LOOKS_MAX 8 /* for Python in one round: each reads a process's files and memory */
#define LOOKED 256  /* rounds after which a process is not looked at any more */

struct wait { /* a lock wait that an unfinished slice may have slept in */
	int64_t begin, end;
	uint64_t object;
	lg_thr owner;
	lg_stk owner_stack;
};

#define N_MOVES 8 /* the balancer moves nobody more often than every few ms */

struct thread {
	int64_t last_end;    /* of its newest state row: rows of a thread never overlap */
	int64_t sleep_begin; /* of `sleep_stack` */
	lg_stk sleep_stack, sender_stack;
	lg_stk plain_stack;  /* of its last plain sleep (lg_bpf_sleep) in the place of `frames`; 0 = none */
	uint32_t sender, gil_holder; /* of the same waking: see lg_bpf_sleep */
	uint64_t *frames;    /* kernel frames of its last sleep, LG_BPF_KERNEL_FRAMES of room; may be NULL */
	unsigned n_frames;
	unsigned n_waits;    /* ever */
	struct wait waits[N_WAITS];
	struct move {        /* of the wait for a CPU that is not over: until then it was in that queue */
		int64_t ts;
		int32_t from_cpu;
	} moves[N_MOVES];
	unsigned n_moves;
	bool known; /* had a slice since its birth or its last death */
};

struct lg_bpf_feed {
	struct lg_session *s;
	struct lg_builder *b;
	struct lg_bpf_watch watch;
	unsigned n_looks;       /* for Python, that are left in this round */
	struct lg_map pythons;  /* pid -> rounds in which it was none; LOOKED = it is one, or never will be */
	struct lg_map by_tid; /* -> index + 1 into threads */
	struct thread *threads;
	size_t n_threads, cap_threads;
	uint32_t *unused;     /* indices of threads that have died */
	size_t n_unused, cap_unused;
	struct lg_map mms;    /* kernel address of mm -> tgid */
	struct lg_map known;  /* tgid -> 1 = seen, 2 = of the job and told so */
	int32_t *pids;        /* keys of `known` */
	size_t n_pids, cap_pids;
	uint64_t mmap_lock_offset; /* of mmap_lock in mm_struct, learnt from a wait; 0 = not yet */
	struct lg_kernel_data *data;
	bool summed;
};

int lg_bpf_feed_new(struct lg_bpf_feed **ret, struct lg_session *s, const struct lg_bpf_watch *watch,
		    struct lg_error *err)
{
	struct lg_bpf_feed *f = lg_calloc(1, sizeof *f);

	if (!f)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	f->s = s;
	f->b = lg_session_builder(s);
	f->watch = *watch;
	/* Without it locks have no names and stacks begin with a few frames of tracing. */
	if (lg_kernel_data_load(&f->data))
		f->data = NULL;
	*ret = f;
	return 0;
}

void lg_bpf_feed_free(struct lg_bpf_feed *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n_threads; i++)
		lg_free(f->threads[i].frames);
	lg_map_done(&f->by_tid);
	lg_map_done(&f->mms);
	lg_map_done(&f->known);
	lg_map_done(&f->pythons);
	lg_free(f->threads);
	lg_free(f->unused);
	lg_free(f->pids);
	lg_kernel_data_free(f->data);
	lg_free(f);
}

static const size_t fixed_size[LG_BPF_KINDS] = {
	[LG_BPF_SLICE] = sizeof(struct lg_bpf_slice),
	[LG_BPF_SUM] = sizeof(struct lg_bpf_sum),
	[LG_BPF_SLEEP] = sizeof(struct lg_bpf_sleep),
	[LG_BPF_TASK] = sizeof(struct lg_bpf_task),
	[LG_BPF_LOCK] = sizeof(struct lg_bpf_lock),
	[LG_BPF_HOLD] = sizeof(struct lg_bpf_hold),
	[LG_BPF_MEMORY] = sizeof(struct lg_bpf_memory),
	[LG_BPF_SIGNAL] = sizeof(struct lg_bpf_signal),
	[LG_BPF_MOVE] = sizeof(struct lg_bpf_move),
	[LG_BPF_PYTHON] = sizeof(struct lg_bpf_python),
	[LG_BPF_OPEN] = sizeof(struct lg_bpf_open),
};

/* No clock of this machine is 146 years old; below that differences cannot overflow. */
static bool is_time(const uint8_t *at, size_t first, size_t end)
{
	uint64_t t;

	for (; first < end; first += 8) {
		memcpy(&t, at + first, 8);
		if (t >> 62)
			return false;
	}
	return true;
}

#define TIMES(type, a, b) is_time(rec, offsetof(struct type, a), offsetof(struct type, b) + 8)

static bool has_times(const void *rec, unsigned kind)
{
	if (!TIMES(lg_bpf_hdr, ts, ts))
		return false;
	switch (kind) {
	case LG_BPF_SLICE:
		return TIMES(lg_bpf_slice, in_ts, wake_ts);
	case LG_BPF_SUM:
		return TIMES(lg_bpf_sum, since, run);
	case LG_BPF_SLEEP:
		return TIMES(lg_bpf_sleep, off_ts, off_ts);
	case LG_BPF_LOCK:
		return TIMES(lg_bpf_lock, begin, begin);
	case LG_BPF_HOLD:
		return TIMES(lg_bpf_hold, begin, begin);
	case LG_BPF_MEMORY:
		return TIMES(lg_bpf_memory, begin, begin);
	case LG_BPF_OPEN:
		return TIMES(lg_bpf_open, in_ts, lock_begin) &&
		       TIMES(lg_bpf_open, hold_begin[0], hold_begin[1]);
	default:
		return true;
	}
}

bool lg_bpf_record_ok(const void *rec, size_t n)
{
	struct lg_bpf_hdr h;
	size_t frames;

	if (n < sizeof h)
		return false;
	memcpy(&h, rec, sizeof h);
	if (h.kind == LG_BPF_NONE || h.kind >= LG_BPF_KINDS || n < fixed_size[h.kind] ||
	    !has_times(rec, h.kind))
		return false;
	if (h.kind == LG_BPF_OPEN) {
		const struct lg_bpf_open *o = rec;

		return h.n_kernel <= LG_BPF_KERNEL_FRAMES && h.n_user <= LG_BPF_USER_FRAMES &&
		       h.n_python <= LG_BPF_PYTHON_FRAMES && o->hold_kernel <= LG_BPF_KERNEL_FRAMES &&
		       o->hold_user <= LG_BPF_USER_FRAMES && o->peer_kernel <= LG_BPF_PEER_FRAMES;
	}
	frames = (size_t)h.n_kernel + h.n_user + h.n_peer + h.n_python;
	return n >= fixed_size[h.kind] + 8 * frames;
}

/* ---- who ---------------------------------------------------------------------------------- */

/* A thread's last records may come after its exit was told: they belong to the life that ended. */
static lg_thr thread_at(struct lg_bpf_feed *f, uint32_t tgid, uint32_t tid, int64_t ts)
{
	lg_thr old = lg_thread_find(f->b, (int32_t)tid);

	if (old && lg_thread_ended(f->b, old) != INT64_MAX && lg_thread_ended(f->b, old) >= ts)
		return old;
	return lg_thread_get(f->b, tgid ? (int32_t)tgid : -1, (int32_t)tid);
}

static struct thread *state_of(struct lg_bpf_feed *f, uint32_t tid)
{
	uint32_t i = lg_map_get(&f->by_tid, tid);

	if (i)
		return &f->threads[i - 1];
	if (f->n_unused) {
		i = f->unused[--f->n_unused];
	} else {
		if (lg_grow(&f->threads, &f->cap_threads, f->n_threads + 1, sizeof *f->threads))
			return NULL;
		i = (uint32_t)f->n_threads++;
	}
	f->threads[i] = (struct thread){.last_end = INT64_MIN};
	if (lg_map_set(&f->by_tid, tid, i + 1))
		return NULL;
	return &f->threads[i];
}

static void forget_thread(struct lg_bpf_feed *f, uint32_t tid)
{
	uint32_t i = lg_map_get(&f->by_tid, tid);

	if (!i)
		return;
	lg_map_remove(&f->by_tid, tid);
	lg_free(f->threads[i - 1].frames);
	f->threads[i - 1].frames = NULL;
	if (!lg_grow(&f->unused, &f->cap_unused, f->n_unused + 1, sizeof *f->unused))
		f->unused[f->n_unused++] = i - 1;
}

static void ask_job(struct lg_bpf_feed *f, int32_t pid)
{
	if (lg_map_get(&f->known, (uint32_t)pid) == 2 || !lg_session_is_job(f->s, pid))
		return;
	if (!lg_map_set(&f->known, (uint32_t)pid, 2))
		f->watch.job(f->watch.arg, pid);
}

/* Is pid, of the job, CPython? Then it is told, and not looked for again. Only while n_looks is not 0. */
static bool find_python(struct lg_bpf_feed *f, int32_t pid)
{
	uint64_t gil = 0;
	const struct lg_bpf_python_layout *layout = lg_session_python(f->s, pid, &gil);

	f->n_looks--;
	if (!layout)
		return false;
	f->watch.python(f->watch.arg, pid, layout, gil);
	if (lg_map_set(&f->pythons, (uint32_t)pid, LOOKED))
		f->n_looks = 0;
	return true;
}

/* An interpreter is there some time after its program began, and then where it is does not change: looked for
 * in rounds 1, 2, 4, 8 ... */
static void ask_python(struct lg_bpf_feed *f, int32_t pid)
{
	uint32_t round = lg_map_get(&f->pythons, (uint32_t)pid) + 1;
	bool look = !(round & (round - 1));

	if (round > LOOKED || lg_map_get(&f->known, (uint32_t)pid) != 2 || (look && !f->n_looks))
		return;
	if ((!look || !find_python(f, pid)) && lg_map_set(&f->pythons, (uint32_t)pid, round))
		f->n_looks = 0;
}

/* Another program: told late, it may have been looked at as what it is now. */
static void exec_python(struct lg_bpf_feed *f, int32_t pid)
{
	lg_map_remove(&f->pythons, (uint32_t)pid);
	if (!f->n_looks || lg_map_get(&f->known, (uint32_t)pid) != 2 || !find_python(f, pid))
		f->watch.python(f->watch.arg, pid, NULL, 0);
}

void lg_bpf_feed_jobs(struct lg_bpf_feed *f)
{
	size_t i, n = 0;

	f->n_looks = LOOKS_MAX;
	for (i = 0; i < f->n_pids; i++) {
		if (!lg_map_get(&f->known, (uint32_t)f->pids[i]))
			continue; /* died */
		ask_job(f, f->pids[i]);
		ask_python(f, f->pids[i]);
		f->pids[n++] = f->pids[i];
	}
	f->n_pids = n;
}

static void know_process(struct lg_bpf_feed *f, int32_t pid)
{
	if (!lg_map_get(&f->known, (uint32_t)pid)) {
		if (lg_grow(&f->pids, &f->cap_pids, f->n_pids + 1, sizeof *f->pids) ||
		    lg_map_set(&f->known, (uint32_t)pid, 1))
			return;
		f->pids[f->n_pids++] = pid;
	}
	ask_job(f, pid);
}

static void set_mm(struct lg_bpf_feed *f, lg_prc p, uint32_t tgid, uint64_t mm)
{
	struct lg_process_row row = lg_process_read(f->b, p);

	if (!mm || !p)
		return;
	if (lg_map_set(&f->mms, mm, tgid))
		return; /* only a process's name for its lock is lost */
	if (row.mm == mm)
		return;
	row.mm = mm;
	lg_process_write(f->b, p, &row);
}

static void feed_task(struct lg_bpf_feed *f, const struct lg_bpf_task *r)
{
	int32_t tid = (int32_t)r->h.tid, tgid = (int32_t)r->h.tgid;
	char comm[sizeof r->comm + 1];
	lg_thr thr;

	memcpy(comm, r->comm, sizeof r->comm);
	comm[sizeof r->comm] = 0;
	if (r->h.flags & LG_BPF_FORK) {
		forget_thread(f, r->h.tid);
		if (tid == tgid) {
			lg_map_remove(&f->known, (uint32_t)tgid);
			lg_map_remove(&f->pythons, (uint32_t)tgid);
		}
		lg_session_fork(f->s, (int64_t)r->h.ts, (int32_t)r->ptgid, tgid, tid);
	}
	if (r->h.flags & LG_BPF_EXEC) {
		lg_session_exec(f->s, (int64_t)r->h.ts, tgid, comm);
		exec_python(f, tgid);
	}
	thr = lg_thread_get(f->b, tgid, tid);
	lg_thread_name(f->b, thr, lg_intern(f->b, comm));
	if (r->task_flags & PF_KTHREAD) {
		struct lg_thread_row t = lg_thread_read(f->b, thr);
		struct lg_process_row p = lg_process_read(f->b, t.prc);

		if (!(t.flags & LG_THREAD_KERNEL)) {
			t.flags |= LG_THREAD_KERNEL;
			lg_thread_write(f->b, thr, &t);
		}
		if (p.role == LG_ROLE_OTHER) {
			p.role = LG_ROLE_KERNEL;
			lg_process_write(f->b, t.prc, &p);
		}
		return;
	}
	set_mm(f, lg_thread_process(f->b, thr), r->h.tgid, r->mm);
	if (tid == tgid)
		know_process(f, tgid);
}

/* ---- states --------------------------------------------------------------------------------- */

/* Adds [ts, end) of a thread, cut where it would overlap what is there; end < 0 = still so. */
static void add_state(struct lg_bpf_feed *f, struct thread *t, struct lg_state_row *row, int64_t end)
{
	if (t->last_end > row->ts)
		row->ts = t->last_end;
	if (end >= 0 && end <= row->ts)
		return;
	row->dur = end < 0 ? -1 : end - row->ts;
	if (end < 0)
		row->flags |= LG_STATE_EDGE;
	t->last_end = end < 0 ? INT64_MAX : end;
	lg_add_state(f->b, row);
}

static const struct wait *find_wait(const struct thread *t, int64_t off, int64_t end)
{
	unsigned i, n = t->n_waits < N_WAITS ? t->n_waits : N_WAITS;

	for (i = 1; i <= n; i++) {
		const struct wait *w = &t->waits[(t->n_waits - i) % N_WAITS];

		if (w->begin <= off && w->end >= (end < 0 ? INT64_MAX : end))
			return w;
	}
	return NULL;
}

struct off { /* time off the CPU, [off, in) */
	int64_t off, wake, in; /* in < 0: not back yet; wake 0 = not known */
	uint32_t waker;
	int32_t cpu;
	uint8_t why, ctx, flags; /* why: with LG_BPF_GIL_*; flags: of the wait's start */
};

/* Ready to run: each queue's part is a row of its own. cpu: where it ran then. */
static void add_ready(struct lg_bpf_feed *f, struct thread *t, struct lg_state_row *row, int64_t end)
{
	int32_t cpu = row->cpu;

	for (unsigned i = 0; i < t->n_moves; i++) {
		if (t->moves[i].ts <= row->ts || (end >= 0 && t->moves[i].ts >= end))
			continue;
		row->cpu = t->moves[i].from_cpu;
		add_state(f, t, row, t->moves[i].ts);
		row->ts = t->moves[i].ts;
		row->flags = 0;
	}
	row->cpu = cpu;
	add_state(f, t, row, end);
}

/* The stack of a sleep from `off` on, which no record told. */
static void asleep_there(struct thread *t, const struct lg_bpf_hdr *h, uint64_t off)
{
	if (!(h->flags & LG_BPF_ASLEEP_THERE))
		return;
	t->sleep_begin = (int64_t)off;
	t->sleep_stack = t->plain_stack;
	t->sender = 0;
	t->gil_holder = 0;
}

/* Who had the lock that thr waited for: it is numbered as its process numbers it, which may not be ours. */
static lg_thr gil_holder(struct lg_bpf_feed *f, lg_thr thr, uint32_t tid)
{
	lg_thr holder = tid ? lg_thread_find(f->b, (int32_t)tid) : 0;

	return holder && holder != thr &&
	       lg_thread_process(f->b, holder) == lg_thread_process(f->b, thr) ? holder : 0;
}

static void add_off(struct lg_bpf_feed *f, struct thread *t, lg_thr thr, const struct off *o)
{
	lg_thr waker = o->waker ? lg_thread_get(f->b, -1, (int32_t)o->waker) : 0;
	struct lg_state_row row = {
		.ts = o->off, .thr = thr, .cpu = o->cpu, .reason = o->why & LG_BPF_WHY_MASK,
		.flags = o->flags, .waker = waker, .waker_ctx = o->ctx,
	};
	int64_t blocked_end = o->wake ? o->wake : o->in;
	const struct wait *w;

	if (row.reason < LG_WHY_SLEEP) {
		row.kind = LG_RUNNABLE;
		add_ready(f, t, &row, o->in);
		return;
	}
	row.kind = LG_BLOCKED;
	row.cpu = -1;
	if (t->sleep_stack && t->sleep_begin == o->off)
		row.stack = t->sleep_stack;
	if (t->sender && t->sleep_begin == o->off && o->ctx == LG_CTX_SOFTIRQ) {
		row.waker = lg_thread_get(f->b, -1, (int32_t)t->sender);
		row.waker_stack = t->sender_stack;
	}
	w = find_wait(t, o->off, blocked_end);
	if (w) {
		row.object = w->object;
		row.blocker = w->owner;
		row.blocker_stack = w->owner_stack;
	}
	row.flags |= (o->why & LG_BPF_GIL_WAIT ? LG_STATE_GIL_WAIT : 0) |
		     (o->why & LG_BPF_GIL_HELD ? LG_STATE_GIL_HELD : 0);
	if (o->why & LG_BPF_GIL_WAIT && t->sleep_begin == o->off)
		row.blocker = gil_holder(f, thr, t->gil_holder);
	add_state(f, t, &row, blocked_end);
	if (!o->wake)
		return;
	row = (struct lg_state_row){
		.ts = o->wake, .thr = thr, .cpu = o->cpu, .kind = LG_RUNNABLE,
		.reason = LG_WHY_WOKEN, .waker = waker, .waker_ctx = o->ctx,
	};
	add_ready(f, t, &row, o->in);
}

static void feed_slice(struct lg_bpf_feed *f, const struct lg_bpf_slice *r)
{
	int64_t out = (int64_t)r->h.ts, in = (int64_t)r->in_ts;
	struct thread *t = state_of(f, r->h.tid);
	lg_thr thr = thread_at(f, r->h.tgid, r->h.tid, r->off_ts ? (int64_t)r->off_ts : in);
	uint8_t edge = r->h.flags & LG_BPF_EDGE ? LG_STATE_EDGE : 0;
	bool gap = r->h.flags & LG_BPF_GAP;
	uint8_t why = r->off_why & LG_BPF_WHY_MASK;
	struct lg_state_row row = {
		.ts = in, .thr = thr, .cpu = r->h.cpu, .kind = LG_RUNNING,
	};

	if (!t)
		return;
	/* The kernel tells of an exit before the last slice; only a first slice that begins after the
	 * exit is somebody new, whose fork was lost. */
	if (!t->known && r->h.tgid && lg_thread_ended(f->b, thr) < (r->off_ts ? (int64_t)r->off_ts : in))
		row.thr = thr = lg_thread_start(f->b, 0, (int32_t)r->h.tgid, (int32_t)r->h.tid,
						r->off_ts ? (int64_t)r->off_ts : in);
	t->known = true;
	asleep_there(t, &r->h, r->off_ts);
	if (r->off_ts && why && (!gap || (r->wake_ts && why >= LG_WHY_SLEEP))) {
		add_off(f, t, thr, &(struct off){
			.off = (int64_t)r->off_ts, .wake = (int64_t)r->wake_ts,
			/* With a gap only the wait until its waking is certain. */
			.in = gap ? (int64_t)r->wake_ts : in, .waker = r->waker_tid,
			.cpu = r->h.cpu, .why = r->off_why,
			.ctx = r->h.flags & LG_BPF_CTX_MASK, .flags = edge,
		});
		edge = 0;
	}
	row.flags = edge;
	add_state(f, t, &row, out);
	t->sleep_stack = 0;
	t->sender = 0;
	t->gil_holder = 0;
	t->n_moves = 0;
	if (r->out_why != LG_WHY_DEAD)
		return;
	/* Told after its last slice, so that this one belongs to the life that ends here. */
	forget_thread(f, r->h.tid);
	if (r->h.tid != r->h.tgid || (r->h.flags & LG_BPF_LAST))
		lg_session_exit(f->s, out, (int32_t)r->h.tgid, (int32_t)r->h.tid);
	if (r->h.flags & LG_BPF_LAST) {
		if (r->h.tid != r->h.tgid)
			lg_session_exit(f->s, out, (int32_t)r->h.tgid, (int32_t)r->h.tgid);
		lg_map_remove(&f->known, r->h.tgid);
	}
}

static void add_sum(struct lg_bpf_feed *f, uint32_t tgid, uint32_t tid, int64_t since, int64_t end,
		    int64_t run)
{
	struct thread *t = state_of(f, tid);
	struct lg_state_row row = {
		.ts = since, .cpu = -1, .kind = LG_RUNNING, .flags = LG_STATE_SUMMED, .run = run,
	};

	if (!t)
		return;
	row.thr = thread_at(f, tgid, tid, since);
	add_state(f, t, &row, end);
	if (!f->summed) {
		f->summed = true;
		lg_add_diag_now(f->b, LG_DIAG_SUMMED, since, 1,
				"short slices of processes outside the job are summed per thread");
	}
}

/* frames: the kernel's, then the user's; python: of the same moment. */
static lg_stk mixed_stack(struct lg_bpf_feed *f, uint32_t tgid, const uint64_t *frames, size_t n_kernel,
			  size_t n_user, const uint64_t *python, size_t n_python)
{
	if (!n_kernel && !n_user && !n_python)
		return 0;
	return lg_session_stack(f->s, &(struct lg_addresses){
		.pid = (int32_t)tgid, .kernel = frames, .n_kernel = n_kernel, .user = frames + n_kernel,
		.n_user = n_user, .python = python, .n_python = n_python });
}

/* Of a stack that was taken in the thread's own context: it begins inside the BPF program. */
static lg_stk stack_of(struct lg_bpf_feed *f, uint32_t tgid, const uint64_t *frames, size_t n_kernel,
		       size_t n_user)
{
	size_t i, skip = 0;

	for (i = 0; f->data && i < n_kernel && i < 6; i++)
		if (lg_kernel_data_is_tracing(f->data, frames[i]))
			skip = i + 1;
	return mixed_stack(f, tgid, frames + skip, n_kernel - skip, n_user, NULL, 0);
}

static void feed_sleep(struct lg_bpf_feed *f, const struct lg_bpf_sleep *r)
{
	uint64_t both[LG_BPF_KERNEL_FRAMES + LG_BPF_USER_FRAMES];
	const uint64_t *python = (const uint64_t *)(r + 1) + r->h.n_kernel + r->h.n_user + r->h.n_peer;
	struct thread *t = state_of(f, r->h.tid);

	if (!t)
		return;
	t->sleep_begin = (int64_t)r->off_ts;
	t->sleep_stack = 0;
	t->sender = r->sender_tid;
	t->gil_holder = r->gil_holder;
	t->sender_stack = 0;
	if (r->sender_tid && r->h.n_peer <= LG_BPF_SENDER_FRAMES) {
		size_t own = r->h.n_user + (r->h.flags & LG_BPF_SAME ? 0u : r->h.n_kernel);
		uint64_t frames[LG_BPF_SENDER_FRAMES];

		memcpy(frames, (const uint64_t *)(r + 1) + own, (size_t)8 * r->h.n_peer);
		t->sender_stack = stack_of(f, 0, frames, r->h.n_peer, 0);
	}
	if (r->h.flags & LG_BPF_SAME) {
		size_t n = t->n_frames;

		/* Not there when the ring had no room for them: better none than wrong ones. */
		if (!n || r->h.n_user > LG_BPF_USER_FRAMES)
			return;
		memcpy(both, t->frames, 8 * n);
		memcpy(both + n, r + 1, (size_t)8 * r->h.n_user);
		t->sleep_stack = mixed_stack(f, r->h.tgid, both, n, r->h.n_user, python, r->h.n_python);
		if (lg_bpf_is_plain(r->h.n_user, r->h.n_python))
			t->plain_stack = t->sleep_stack;
		return;
	}
	t->n_frames = 0;
	t->plain_stack = 0;
	if (r->h.n_kernel > LG_BPF_KERNEL_FRAMES || r->h.n_user > LG_BPF_USER_FRAMES)
		return;
	if (!t->frames)
		t->frames = lg_calloc(LG_BPF_KERNEL_FRAMES, sizeof *t->frames);
	if (t->frames) {
		t->n_frames = r->h.n_kernel;
		memcpy(t->frames, r + 1, (size_t)8 * r->h.n_kernel);
	}
	t->sleep_stack = mixed_stack(f, r->h.tgid, (const uint64_t *)(r + 1), r->h.n_kernel, r->h.n_user,
				     python, r->h.n_python);
	if (lg_bpf_is_plain(r->h.n_user, r->h.n_python))
		t->plain_stack = t->sleep_stack;
}

/* ---- locks ----------------------------------------------------------------------------------- */

struct lock_wait {
	uint32_t tgid, tid;
	int64_t begin, end; /* end < 0: still waiting */
	uint64_t lock, mm;
	uint32_t lcb, mm_tgid, owner_tid, owner_tgid, owner_flags;
	lg_stk stack, peer_stack;
};

/* Length of a span; begin and end may come from CPUs whose clocks differ by a few ns. */
static int64_t length(int64_t begin, int64_t end)
{
	if (end < 0)
		return -1;
	return end > begin ? end - begin : 0;
}

static const char *lock_class(uint32_t lcb)
{
	if (lcb & LCB_F_MUTEX)
		return "mutex";
	if (lcb & LCB_F_PERCPU)
		return "percpu_rwsem";
	if (lcb & LCB_F_RT)
		return "rt_mutex";
	if (lcb & (LCB_F_READ | LCB_F_WRITE))
		return "rwsem";
	return "semaphore";
}

static lg_str lock_name(struct lg_bpf_feed *f, uint64_t lock, uint32_t lcb)
{
	const char *symbol;
	char text[128];

	symbol = f->data ? lg_kernel_data_find(f->data, lock) : NULL;
	if (!symbol)
		return lg_intern(f->b, lock_class(lcb));
	snprintf(text, sizeof text, "%s %s", lock_class(lcb), symbol);
	return lg_intern(f->b, text);
}

static void add_lock_wait(struct lg_bpf_feed *f, struct lock_wait *w)
{
	bool rwsem = (w->lcb & (LCB_F_READ | LCB_F_WRITE)) &&
		     !(w->lcb & (LCB_F_SPIN | LCB_F_RT | LCB_F_PERCPU | LCB_F_MUTEX));
	struct lg_span_row row = {
		.ts = w->begin, .dur = length(w->begin, w->end),
		.thr = thread_at(f, w->tgid, w->tid, w->begin),
		.kind = LG_SPAN_LOCK_WAIT, .stack = w->stack, .peer_stack = w->peer_stack,
	};
	struct thread *t = state_of(f, w->tid);

	if (rwsem && w->mm && !f->mmap_lock_offset)
		f->mmap_lock_offset = w->lock - w->mm;
	if (rwsem && !w->mm && f->mmap_lock_offset) {
		/* Kernels without CONFIG_MEMCG: mm_struct has no owner, but we know the mms. */
		w->mm_tgid = lg_map_get(&f->mms, w->lock - f->mmap_lock_offset);
		if (w->mm_tgid)
			w->mm = w->lock - f->mmap_lock_offset;
	}
	row.flags = (w->lcb & LCB_F_READ ? LG_SPAN_READ : 0u) |
		    (w->lcb & LCB_F_WRITE ? LG_SPAN_WRITE : 0u) |
		    (w->lcb & LCB_F_SPIN ? LG_SPAN_SPIN : 0u) |
		    (w->lcb & LCB_F_MUTEX ? LG_SPAN_MUTEX : 0u) |
		    (w->lcb & LCB_F_PERCPU ? LG_SPAN_PERCPU : 0u) |
		    (w->lcb & LCB_F_RT ? LG_SPAN_RT : 0u) |
		    (w->owner_flags & LG_BPF_OWNER_READER ? LG_SPAN_OWNER_READER : 0u);
	if (w->mm) {
		row.flags |= LG_SPAN_MMAP_LOCK;
		if (w->mm_tgid != w->tgid)
			row.flags |= LG_SPAN_FOREIGN;
		row.object = w->mm;
		row.name = lg_intern(f->b, "mmap_lock");
	} else {
		row.object = w->lock;
		row.name = lock_name(f, w->lock, w->lcb);
	}
	if (w->owner_tid)
		row.peer = thread_at(f, w->owner_tgid, w->owner_tid, w->begin);
	lg_add_span(f->b, &row);
	if (!t)
		return;
	t->waits[t->n_waits++ % N_WAITS] = (struct wait){
		.begin = w->begin, .end = w->end < 0 ? INT64_MAX : w->end,
		.object = row.object, .owner = row.peer, .owner_stack = row.peer_stack,
	};
}

static void feed_lock(struct lg_bpf_feed *f, const struct lg_bpf_lock *r)
{
	const uint64_t *frames = (const uint64_t *)(r + 1);
	struct lock_wait w = {
		.tgid = r->h.tgid, .tid = r->h.tid, .begin = (int64_t)r->begin,
		.end = (int64_t)r->h.ts, .lock = r->lock, .mm = r->mm, .lcb = r->lcb,
		.mm_tgid = r->mm_tgid, .owner_tid = r->owner_tid, .owner_tgid = r->owner_tgid,
		.owner_flags = r->owner_flags,
		.stack = stack_of(f, r->h.tgid, frames, r->h.n_kernel, r->h.n_user),
		.peer_stack = stack_of(f, r->owner_tgid, frames + r->h.n_kernel + r->h.n_user,
				       r->h.n_peer, 0),
	};

	add_lock_wait(f, &w);
}

static void add_hold(struct lg_bpf_feed *f, uint32_t tgid, uint32_t tid, int64_t begin, int64_t end,
		     uint64_t mm, uint32_t mm_tgid, uint32_t flags, lg_stk stack)
{
	struct lg_span_row row = {
		.ts = begin, .dur = length(begin, end),
		.thr = thread_at(f, tgid, tid, begin),
		.kind = LG_SPAN_LOCK_HOLD, .object = mm, .stack = stack,
		.name = lg_intern(f->b, "mmap_lock"),
		.flags = LG_SPAN_MMAP_LOCK | (flags & LG_BPF_HOLD_READ ? LG_SPAN_READ : 0u) |
			 (flags & LG_BPF_HOLD_WRITE ? LG_SPAN_WRITE : 0u),
	};

	if (!mm_tgid)
		mm_tgid = lg_map_get(&f->mms, mm);
	if (mm_tgid) {
		row.peer = thread_at(f, mm_tgid, mm_tgid, begin);
		if (mm_tgid != tgid)
			row.flags |= LG_SPAN_FOREIGN;
	}
	lg_add_span(f->b, &row);
}

static void feed_hold(struct lg_bpf_feed *f, const struct lg_bpf_hold *r)
{
	add_hold(f, r->h.tgid, r->h.tid, (int64_t)r->begin, (int64_t)r->h.ts, r->mm, r->mm_tgid,
		 r->hold_flags,
		 stack_of(f, r->h.tgid, (const uint64_t *)(r + 1), r->h.n_kernel, r->h.n_user));
}

static void feed_memory(struct lg_bpf_feed *f, const struct lg_bpf_memory *r)
{
	lg_add_span(f->b, &(struct lg_span_row){
		.ts = (int64_t)r->begin, .dur = length((int64_t)r->begin, (int64_t)r->h.ts),
		.thr = thread_at(f, r->h.tgid, r->h.tid, (int64_t)r->begin),
		.kind = LG_SPAN_MEMORY,
		.name = lg_intern(f->b, r->what == LG_BPF_RECLAIM ? "direct_reclaim" : "compaction"),
		.stack = stack_of(f, r->h.tgid, (const uint64_t *)(r + 1), r->h.n_kernel, 0),
	});
}

static void feed_move(struct lg_bpf_feed *f, const struct lg_bpf_move *r)
{
	struct thread *t = state_of(f, r->h.tid);

	if (!t)
		return;
	if (t->n_moves == N_MOVES) /* the oldest may be of a wait that was told as part of a sum */
		memmove(t->moves, t->moves + 1, --t->n_moves * sizeof *t->moves);
	t->moves[t->n_moves++] = (struct move){ (int64_t)r->h.ts, (int32_t)r->from_cpu };
}

static void feed_signal(struct lg_bpf_feed *f, const struct lg_bpf_signal *r)
{
	static const struct { uint32_t sig; const char *name; } names[] = {
		{6, "SIGABRT"}, {9, "SIGKILL"}, {11, "SIGSEGV"}, {15, "SIGTERM"}, {18, "SIGCONT"},
		{19, "SIGSTOP"}, {20, "SIGTSTP"}, {21, "SIGTTIN"}, {22, "SIGTTOU"},
	};
	lg_thr sender = r->sender_tid ? thread_at(f, r->sender_tgid, r->sender_tid, (int64_t)r->h.ts)
				      : 0;
	const char *name = "signal";
	char text[128];
	size_t i;

	for (i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].sig == r->sig)
			name = names[i].name;
	snprintf(text, sizeof text, "%s from pid %u tid %u (%s)", name, r->sender_tgid, r->sender_tid,
		 sender ? lg_string(lg_builder_trace(f->b), lg_thread_read(f->b, sender).comm)
			: "kernel");
	lg_add_mark(f->b, &(struct lg_mark_row){
		.ts = (int64_t)r->h.ts, .thr = thread_at(f, r->h.tgid, r->h.tid, (int64_t)r->h.ts),
		.name = lg_intern(f->b, "signal"), .value = r->sender_tid,
		.text = lg_intern(f->b, text),
	});
}

void lg_bpf_feed(struct lg_bpf_feed *f, const void *rec, size_t n)
{
	uint64_t aligned[LG_BPF_MAX_RECORD / 8 + 1];

	if (n > sizeof aligned || !lg_bpf_record_ok(rec, n))
		return;
	if ((uintptr_t)rec % 8)
		rec = memcpy(aligned, rec, n);
	lg_builder_for(f->b, (int32_t)((const struct lg_bpf_hdr *)rec)->tgid);
	switch (((const struct lg_bpf_hdr *)rec)->kind) {
	case LG_BPF_SLICE:
		feed_slice(f, rec);
		break;
	case LG_BPF_SUM: {
		const struct lg_bpf_sum *r = rec;

		add_sum(f, r->h.tgid, r->h.tid, (int64_t)r->since, (int64_t)r->h.ts, (int64_t)r->run);
		break;
	}
	case LG_BPF_SLEEP:
		feed_sleep(f, rec);
		break;
	case LG_BPF_TASK:
		feed_task(f, rec);
		break;
	case LG_BPF_LOCK:
		feed_lock(f, rec);
		break;
	case LG_BPF_HOLD:
		feed_hold(f, rec);
		break;
	case LG_BPF_MEMORY:
		feed_memory(f, rec);
		break;
	case LG_BPF_SIGNAL:
		feed_signal(f, rec);
		break;
	case LG_BPF_MOVE:
		feed_move(f, rec);
		break;
	case LG_BPF_PYTHON: {
		const struct lg_bpf_python *r = rec;
		unsigned gil = (r->h.flags & LG_BPF_SAMPLE_GIL ? LG_SAMPLE_GIL : 0u) |
			       (r->h.flags & LG_BPF_SAMPLE_NO_GIL ? LG_SAMPLE_NO_GIL : 0u);

		lg_session_python_sample(f->s, (int32_t)r->h.tid, (int64_t)r->h.ts, (const uint64_t *)(r + 1),
					 r->h.n_python, (uint8_t)gil);
		break;
	}
	default:
		break; /* LG_BPF_OPEN comes from the iterator only */
	}
}

/* ---- the edges of the recording ----------------------------------------------------------------- */

void lg_bpf_feed_start(struct lg_bpf_feed *f, const void *list, size_t n)
{
	const struct lg_bpf_task *r = list;

	for (; n >= sizeof *r; r++, n -= sizeof *r)
		feed_task(f, r);
}

/* A thread that has not run since the recording began: where it sleeps, and for how long. */
static size_t add_asleep(struct lg_bpf_feed *f, lg_thr thr, const struct lg_bpf_open *r,
			 uint64_t python[LG_BPF_PYTHON_FRAMES], int64_t stopped)
{
	int32_t pid = (int32_t)r->h.tgid, tid = (int32_t)r->h.tid;
	size_t n = lg_session_python_asleep(f->s, pid, tid, python);
	int64_t ns = n ? lg_asleep_ns(pid, tid) : 0;

	if (ns > 0)
		lg_add_mark(f->b, &(struct lg_mark_row){
			.ts = stopped, .thr = thr, .value = ns, .name = lg_intern(f->b, "asleep"),
			.text = lg_asleep_timed(pid, tid) ? lg_intern(f->b, "timed") : 0 });
	return n;
}

static void feed_open(struct lg_bpf_feed *f, const struct lg_bpf_open *r, int64_t stopped)
{
	uint32_t tid = r->h.tid, tgid = r->h.tgid;
	struct thread *t = state_of(f, tid);
	unsigned i;
	lg_thr thr;

	if (!t)
		return;
	thr = thread_at(f, tgid, tid, stopped);
	if (r->lock) {
		struct lock_wait w = {
			.tgid = tgid, .tid = tid, .begin = (int64_t)r->lock_begin, .end = -1,
			.lock = r->lock, .mm = r->lock_mm, .lcb = r->lcb,
			.mm_tgid = r->lock_mm_tgid, .owner_tid = r->owner_tid,
			.owner_tgid = r->owner_tgid, .owner_flags = r->owner_flags,
			.stack = stack_of(f, tgid, (const uint64_t *)r->kernel,
					  r->h.n_kernel, 0),
			.peer_stack = stack_of(f, r->owner_tgid, (const uint64_t *)r->peer_frames,
					       r->peer_kernel, 0),
		};

		add_lock_wait(f, &w);
	}
	for (i = 0; i < 2; i++)
		if (r->hold_begin[i]) {
			uint64_t frames[LG_BPF_KERNEL_FRAMES + LG_BPF_USER_FRAMES];
			size_t k = i ? 0 : r->hold_kernel, u = i ? 0 : r->hold_user;

			memcpy(frames, r->hold_frames, 8 * k);
			memcpy(frames + k, r->hold_frames + LG_BPF_KERNEL_FRAMES, 8 * u);
			add_hold(f, tgid, tid, (int64_t)r->hold_begin[i], -1, r->hold_mm[i],
				 r->hold_tgid[i], r->hold_flags[i], stack_of(f, tgid, frames, k, u));
		}
	if (r->sum_n)
		add_sum(f, tgid, tid, (int64_t)r->sum_since,
			r->off_ts ? (int64_t)r->off_ts : stopped, (int64_t)r->sum_run);
	if (r->off_ts && r->off_why && (r->off_why & LG_BPF_WHY_MASK) != LG_WHY_DEAD) {
		uint64_t frames[LG_BPF_KERNEL_FRAMES + LG_BPF_USER_FRAMES], python[LG_BPF_PYTHON_FRAMES];
		size_t k = r->h.n_kernel, u = r->h.n_user, n = r->h.n_python;

		memcpy(frames, r->kernel, 8 * k);
		memcpy(frames + k, r->user, 8 * u);
		memcpy(python, r->python, 8 * n);
		if (!r->running && !n && r->h.flags & LG_BPF_EDGE)
			n = add_asleep(f, thr, r, python, stopped);
		if (!r->running && (k || u || n)) {
			t->sleep_begin = (int64_t)r->off_ts;
			t->gil_holder = r->gil_holder;
			t->sleep_stack = mixed_stack(f, tgid, frames, k, u, python, n);
		}
		asleep_there(t, &r->h, r->off_ts);
		add_off(f, t, thr, &(struct off){
			.off = (int64_t)r->off_ts, .wake = (int64_t)r->wake_ts,
			.in = r->running ? (int64_t)r->in_ts : -1, .waker = r->waker_tid, .cpu = -1,
			.why = r->off_why, .ctx = r->h.flags & LG_BPF_CTX_MASK,
			.flags = r->h.flags & LG_BPF_EDGE ? LG_STATE_EDGE : 0,
		});
	}
	if (r->running)
		add_state(f, t, &(struct lg_state_row){
			.ts = (int64_t)r->in_ts, .thr = thr, .cpu = r->h.cpu, .kind = LG_RUNNING,
		}, -1);
}

void lg_bpf_feed_end(struct lg_bpf_feed *f, const void *list, size_t n, int64_t stopped)
{
	const struct lg_bpf_open *r = list;

	for (; n >= sizeof *r; r++, n -= sizeof *r)
		if (lg_bpf_record_ok(r, sizeof *r))
			feed_open(f, r, stopped);
}
