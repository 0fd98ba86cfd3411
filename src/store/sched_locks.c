/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_locks.c - the half of the scheduler feed that knows locks: LOCK_WAIT and LOCK_HOLD spans.
 *
 * A wait is contention_begin .. contention_end of one thread and lock. A mutex says begin twice,
 * first while it spins for the owner and again when it goes to sleep, with one end
 * (kernel/locking/mutex.c): that is one wait.
 *
 * An mmap_lock has two names: the rwsem's address in the contention events, the mm in its own
 * events. The kernel takes the lock and then fires acquire_returned in the same thread, so a
 * finished wait is kept back (`done`) until the thread's next lock event says whether it was
 * one. Their distance is offsetof(struct mm_struct, mmap_lock), the same for every mm: two
 * equal distances teach it, and from then on a wait is recognised when it begins.
 */
#include <string.h>

#include "base/alloc.h"
#include "store/kernel_names.h"
#include "store/sched_feed_internal.h"

/* include/trace/events/lock.h */
enum { LCB_F_SPIN = 1, LCB_F_READ = 2, LCB_F_WRITE = 4, LCB_F_RT = 8, LCB_F_PERCPU = 16,
       LCB_F_MUTEX = 32 };

#define MM_STRUCT_MAX 8192    /* bytes; the struct is about 1.3 kB plus its CPU mask */
#define RETURN_NS_MAX 1000000 /* contention_end to acquire_returned; an interrupt may lie between */

static struct lg_sched_mm *mm_find(const struct lg_sched_feed *f, uint64_t mm)
{
	uint32_t i = lg_map_get(&f->mm_i, mm);

	return i ? &f->mm[i - 1] : NULL;
}

static struct lg_sched_mm *mm_get(struct lg_sched_feed *f, uint64_t mm)
{
	struct lg_sched_mm *m = mm_find(f, mm);

	if (m)
		return m;
	if (f->n_mm >= UINT32_MAX - 1 ||
	    lg_grow(&f->mm, &f->mm_cap, f->n_mm + 1, sizeof *f->mm) ||
	    lg_map_set(&f->mm_i, mm, (uint32_t)f->n_mm + 1)) {
		f->failed = LG_E_NOMEM;
		return NULL;
	}
	m = &f->mm[f->n_mm++];
	*m = (struct lg_sched_mm){ .mm = mm, .last_wait = INT64_MIN };
	return m;
}

static uint32_t own_mm(const struct lg_sched_feed *f, int32_t pid)
{
	return pid < 0 ? 0 : lg_map_get(&f->mm_of_pid, (uint32_t)pid);
}

bool lg_sched_mm_known(const struct lg_sched_feed *f, uint64_t mm)
{
	const struct lg_sched_mm *m = mm_find(f, mm);

	return m && m->owner;
}

void lg_sched_mm_owner(struct lg_sched_feed *f, uint64_t mm, int32_t pid)
{
	struct lg_sched_mm *m = mm ? mm_get(f, mm) : NULL;
	struct lg_process_row row;
	lg_prc p;

	if (!m || pid <= 0 || m->owner == pid)
		return;
	m->owner = pid;
	if (lg_map_set(&f->mm_of_pid, (uint32_t)pid, (uint32_t)(m - f->mm) + 1))
		f->failed = LG_E_NOMEM;
	p = lg_process_get(f->b, pid);
	row = lg_process_read(f->b, p);
	row.mm = mm;
	lg_process_write(f->b, p, &row);
}

void lg_sched_mm_drop(struct lg_sched_feed *f, int32_t pid)
{
	uint32_t i = own_mm(f, pid);

	if (!i)
		return;
	if (f->mm[i - 1].owner == pid) {
		f->mm[i - 1].owner = f->mm[i - 1].candidate = 0;
		f->mm[i - 1].votes = 0;
	}
	lg_map_remove(&f->mm_of_pid, (uint32_t)pid);
}

static uint32_t span_flags(uint32_t lcb)
{
	return (lcb & LCB_F_SPIN ? LG_SPAN_SPIN : 0u) | (lcb & LCB_F_READ ? LG_SPAN_READ : 0u) |
	       (lcb & LCB_F_WRITE ? LG_SPAN_WRITE : 0u) | (lcb & LCB_F_RT ? LG_SPAN_RT : 0u) |
	       (lcb & LCB_F_PERCPU ? LG_SPAN_PERCPU : 0u) |
	       (lcb & LCB_F_MUTEX ? LG_SPAN_MUTEX : 0u);
}

/*
 * Functions that take an mmap_lock themselves (mm/mmap.c, mm/util.c, mm/madvise.c, mm/mprotect.c, mm/gup.c,
 * mm/memory.c, arch/x86/mm/fault.c; before 6.4 faults take it in the handler): where its own events were not
 * recorded, the waiter's stack tells which rwsem it is.
 */
static bool takes_mmap_lock(const char *name)
{
	static const char *const takers[] = {
		"vm_mmap_pgoff", "__vm_munmap", "vm_munmap", "vm_brk_flags", "do_mprotect_pkey", "do_madvise",
		"madvise_lock", "lock_mm_and_find_vma", "do_user_addr_fault", "__mm_populate", "dup_mmap", "dup_mm",
		"exit_mmap", "do_mlock", "do_shmat", "gup_fast_fallback", "internal_get_user_pages_fast",
		"__get_user_pages_locked", "__gup_longterm_locked", "mmap_read_lock", "mmap_write_lock",
		"mmap_read_lock_killable", "mmap_write_lock_killable" };
	static const char *const calls[] = { "_sys_brk", "_sys_munmap", "_sys_mremap", "_sys_mprotect",
					     "_sys_madvise" };
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
		if (!strcmp(name, takers[i]))
			return true;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (n > strlen(calls[i]) && !strcmp(name + n - strlen(calls[i]), calls[i]))
			return true;
	return false;
}

static bool waits_for_mmap_lock(const struct lg_sched_feed *f, lg_stk stack)
{
	const struct lg_trace *t = lg_builder_trace(f->b);

	for (; stack; stack = t->stack.parent[stack]) {
		lg_frm frame = t->stack.frame[stack];
		const char *name = lg_string(t, t->frame.name[frame]);

		if (t->frame.kind[frame] != LG_FRAME_KERNEL)
			return false;
		/* Whoever called those of the lock and of the event itself wanted the lock. */
		if (!lg_is_plumbing(name, LG_PLUMBING_WANTED))
			return takes_mmap_lock(name);
	}
	return false;
}

static const char *lock_class(uint32_t flags)
{
	if (flags & LG_SPAN_MMAP_LOCK)
		return "mmap_lock";
	if (flags & LG_SPAN_MUTEX)
		return "mutex";
	if (flags & LG_SPAN_PERCPU)
		return "percpu_rwsem";
	if (flags & LG_SPAN_SPIN)
		return flags & (LG_SPAN_READ | LG_SPAN_WRITE) ? "rwlock" : "spinlock";
	if (flags & LG_SPAN_RT)
		return "rtmutex";
	if (flags & (LG_SPAN_READ | LG_SPAN_WRITE))
		return "rwsem";
	return "lock"; /* semaphores give no flags (kernel/locking/semaphore.c) */
}

static void emit_wait(struct lg_sched_feed *f, const struct lg_sched_task *t,
		      const struct lg_sched_wait *w, int64_t dur)
{
	uint32_t flags = w->flags | (w->mm ? LG_SPAN_MMAP_LOCK : 0u);
	const char *name = lock_class(flags);

	if (!strcmp(name, "rwsem") && waits_for_mmap_lock(f, w->stack))
		name = "mmap_lock";
	lg_add_span(f->b, &(struct lg_span_row){ .ts = w->ts,
						 .dur = dur,
						 .thr = t->thr,
						 .kind = LG_SPAN_LOCK_WAIT,
						 .flags = flags,
						 .name = lg_intern(f->b, name),
						 .object = w->mm ? w->mm : w->lock,
						 .peer = w->owner,
						 .stack = w->stack,
						 .peer_stack = w->owner_stack });
}

static void flush_done(struct lg_sched_feed *f, struct lg_sched_task *t)
{
	if (!t->done.lock)
		return;
	emit_wait(f, t, &t->done, t->done.end - t->done.ts);
	t->done.lock = 0;
}

static struct lg_sched_hold *hold_find(struct lg_sched_task *t, uint64_t mm)
{
	for (size_t k = t->n_hold; k-- > 0;)
		if (t->hold[k].mm == mm)
			return &t->hold[k];
	return NULL;
}

static void wait_starts(struct lg_sched_feed *f, struct lg_sched_task *t, struct lg_sched_wait *w)
{
	struct lg_sched_mm *m = NULL;
	struct lg_sched_task *holder;
	struct lg_sched_hold *h;
	lg_thr thr = t->thr;

	if (f->lock_offset_votes >= 2)
		m = mm_find(f, w->lock - f->lock_offset);
	if (!m)
		return;
	w->mm = m->mm;
	m->waiting++;
	m->last_wait = w->ts;
	if (!m->holder)
		return;
	/* The holder is known already, its slot exists: the array does not move here. */
	holder = lg_sched_task_get(f, -1, m->holder);
	h = holder ? hold_find(holder, m->mm) : NULL;
	if (!h || holder->thr == thr)
		return;
	if (!w->owner)
		w->owner = holder->thr;
	if (w->owner == holder->thr)
		w->owner_stack = h->stack;
}

void lg_sched_contention_begin(struct lg_sched_feed *f, const struct lg_sched_contention *e)
{
	lg_thr owner = e->owner_tid > 0 ? lg_sched_thr(f, -1, e->owner_tid) : 0;
	struct lg_sched_task *t = lg_sched_task_get(f, e->pid, e->tid);
	uint32_t flags = span_flags(e->flags) | (e->owner_reader ? LG_SPAN_OWNER_READER : 0u);
	struct lg_sched_wait *w;

	/* The idle thread is one row for all CPUs: what it spins on belongs to nobody. */
	if (!t || !e->tid)
		return;
	f->stats.contentions++;
	flush_done(f, t);
	if (t->n_wait && t->wait[t->n_wait - 1].lock == e->lock) {
		w = &t->wait[t->n_wait - 1];
		w->flags = flags | (w->flags & LG_SPAN_OWNER_READER);
		return;
	}
	if (t->n_wait == LG_SCHED_WAITS) {
		/* Ends were lost: the oldest waits cannot all be open. */
		f->stats.lock_lost += t->n_wait;
		t->n_wait = 0;
	}
	w = &t->wait[t->n_wait++];
	*w = (struct lg_sched_wait){ .lock = e->lock, .ts = e->ts, .flags = flags, .owner = owner,
				     .stack = e->stack, .owner_stack = e->owner_stack };
	wait_starts(f, t, w);
}

static void wait_over(struct lg_sched_feed *f, const struct lg_sched_wait *w, int64_t ts)
{
	struct lg_sched_mm *m = w->mm ? mm_find(f, w->mm) : NULL;

	if (!m)
		return;
	if (m->waiting)
		m->waiting--;
	if (m->last_wait < ts)
		m->last_wait = ts;
}

void lg_sched_contention_end(struct lg_sched_feed *f, int64_t ts, int32_t tid, uint64_t lock)
{
	struct lg_sched_task *t = tid ? lg_sched_task_get(f, -1, tid) : NULL;
	size_t k;

	if (!t)
		return;
	for (k = t->n_wait; k > 0 && t->wait[k - 1].lock != lock; k--)
		;
	if (!k) {
		f->stats.lock_lost++; /* began before the trace, or its begin was lost */
		return;
	}
	flush_done(f, t);
	while (t->n_wait > k) { /* nested waits whose end was lost */
		wait_over(f, &t->wait[--t->n_wait], ts);
		f->stats.lock_lost++;
	}
	t->n_wait--;
	wait_over(f, &t->wait[k - 1], ts);
	if (lg_sched_gap_between(f, t->wait[k - 1].ts, ts)) {
		f->stats.lock_lost++; /* may be two waits with an end and a begin lost between */
		return;
	}
	t->done = t->wait[k - 1];
	t->done.end = ts > t->done.ts ? ts : t->done.ts;
}

/* Was the wait that just ended one for this mm's lock? */
static void match_wait(struct lg_sched_feed *f, struct lg_sched_task *t,
		       const struct lg_sched_mmap_lock *e, struct lg_sched_mm *m)
{
	struct lg_sched_wait *w = &t->done;
	uint64_t distance = w->lock - e->mm;

	if (!w->lock || w->mm || distance >= MM_STRUCT_MAX || e->ts - w->end > RETURN_NS_MAX)
		return;
	if (f->lock_offset_votes >= 2) {
		if (distance != f->lock_offset)
			return;
	} else if (distance == f->lock_offset_seen) {
		f->lock_offset = distance;
		f->lock_offset_votes = 2;
	} else {
		f->lock_offset_seen = distance; /* lock_offset_seen 0: mmap_lock is never first */
		f->lock_offset_votes = 1;
	}
	w->mm = e->mm;
	if (m->last_wait < w->end)
		m->last_wait = w->end;
	/* Not recognised when it began: who held it then has just let go. */
	if (!w->owner && m->last_thr != t->thr && m->last_from <= w->ts && m->last_to > w->ts) {
		w->owner = m->last_thr;
		w->owner_stack = m->last_stack;
	}
}

static bool is_foreign(const struct lg_sched_feed *f, const struct lg_sched_mm *m, int32_t pid)
{
	uint32_t own = own_mm(f, pid);

	/* A vforked child runs in its parent's mm: only the owner's pid differs there. */
	return m->owner && pid >= 0 && m->owner != pid && (!own || f->mm[own - 1].mm != m->mm);
}

static void emit_hold(struct lg_sched_feed *f, const struct lg_sched_task *t,
		      const struct lg_sched_hold *h, int64_t end, bool cut)
{
	const struct lg_sched_mm *m = mm_find(f, h->mm);
	bool foreign = m && is_foreign(f, m, t->pid);
	bool waited = m && (m->waiting || m->last_wait >= h->ts);
	lg_thr peer;

	if (end - h->ts < f->opt.hold_min_ns && !waited &&
	    (!foreign || (f->opt.self && t->pid == f->opt.self)))
		return;
	f->stats.holds_kept++;
	/* The owner's main thread; may make the thread's slot-less row, not a slot. */
	peer = m && m->owner ? lg_thread_get(f->b, m->owner, m->owner) : 0;
	lg_add_span(f->b, &(struct lg_span_row){
				  .ts = h->ts,
				  .dur = cut ? -1 : end - h->ts,
				  .thr = t->thr,
				  .kind = LG_SPAN_LOCK_HOLD,
				  .flags = LG_SPAN_MMAP_LOCK |
					   (h->write ? LG_SPAN_WRITE : LG_SPAN_READ) |
					   (foreign ? LG_SPAN_FOREIGN : 0u),
				  .name = lg_intern(f->b, "mmap_lock"),
				  .object = h->mm,
				  .peer = peer,
				  .stack = h->stack });
}

static void hold_ends(struct lg_sched_feed *f, struct lg_sched_task *t, struct lg_sched_hold *h,
		      int64_t ts)
{
	struct lg_sched_mm *m = mm_find(f, h->mm);

	if (m && m->holder == t->tid)
		m->holder = 0;
	if (m) {
		m->last_from = h->ts;
		m->last_to = ts;
		m->last_thr = t->thr;
		m->last_stack = h->stack;
	}
	if (lg_sched_gap_between(f, h->ts, ts))
		f->stats.lock_lost++; /* a release and a new acquisition may be missing */
	else
		emit_hold(f, t, h, ts > h->ts ? ts : h->ts, false);
	for (struct lg_sched_hold *last = &t->hold[--t->n_hold]; h < last; h++)
		h[0] = h[1];
}

/* mmap, munmap, brk and mprotect write-lock the caller's own mm; so two such acquisitions in a
 * row by one process name the owner. fork and exec write-lock a second mm: nested, or one that
 * is about to be the caller's own. */
static void vote(struct lg_sched_feed *f, struct lg_sched_mm *m, int32_t pid)
{
	if (pid <= 0 || m->owner == pid)
		return;
	if (m->candidate != pid) {
		m->candidate = pid;
		m->votes = 0;
	}
	if (++m->votes >= 2)
		lg_sched_mm_owner(f, m->mm, pid);
}

void lg_sched_mmap_acquired(struct lg_sched_feed *f, const struct lg_sched_mmap_lock *e)
{
	struct lg_sched_task *t = e->tid ? lg_sched_task_get(f, e->pid, e->tid) : NULL;
	struct lg_sched_mm *m = t && e->mm ? mm_get(f, e->mm) : NULL;
	struct lg_sched_hold *h;

	if (!m)
		return;
	match_wait(f, t, e, m);
	flush_done(f, t);
	if (!e->success)
		return;
	f->stats.holds++;
	h = hold_find(t, e->mm);
	if (h) { /* mmap_write_downgrade() says it again, for reading */
		if (!h->write || e->write)
			f->stats.lock_lost++;
		hold_ends(f, t, h, e->ts);
	} else if (e->write && !t->n_hold) {
		vote(f, m, e->pid);
	}
	if (t->n_hold == LG_SCHED_HOLDS) {
		f->stats.lock_lost += t->n_hold; /* releases were lost */
		t->n_hold = 0;
	}
	t->hold[t->n_hold++] = (struct lg_sched_hold){ .mm = e->mm, .ts = e->ts, .stack = e->stack,
						       .write = e->write };
	if (!m->holder || e->write)
		m->holder = t->tid;
}

void lg_sched_mmap_released(struct lg_sched_feed *f, const struct lg_sched_mmap_lock *e)
{
	struct lg_sched_task *t = e->tid ? lg_sched_task_get(f, e->pid, e->tid) : NULL;
	struct lg_sched_hold *h = t ? hold_find(t, e->mm) : NULL;

	if (!t)
		return;
	flush_done(f, t);
	if (h)
		hold_ends(f, t, h, e->ts);
	else
		f->stats.lock_lost++;
}

void lg_sched_locks_cut(struct lg_sched_feed *f, struct lg_sched_task *t)
{
	flush_done(f, t);
	f->stats.lock_lost += (uint64_t)t->n_wait + t->n_hold;
	while (t->n_wait)
		wait_over(f, &t->wait[--t->n_wait], t->since);
	for (; t->n_hold; t->n_hold--) {
		struct lg_sched_mm *m = mm_find(f, t->hold[t->n_hold - 1].mm);

		if (m && m->holder == t->tid)
			m->holder = 0;
	}
}

void lg_sched_locks_finish(struct lg_sched_feed *f, struct lg_sched_task *t, int64_t ts)
{
	flush_done(f, t);
	for (size_t k = 0; k < t->n_wait; k++)
		if (!lg_sched_gap_between(f, t->wait[k].ts, ts))
			emit_wait(f, t, &t->wait[k], -1);
	for (size_t k = 0; k < t->n_hold; k++)
		if (!lg_sched_gap_between(f, t->hold[k].ts, ts))
			emit_hold(f, t, &t->hold[k], ts, true);
	t->n_wait = t->n_hold = 0;
}
