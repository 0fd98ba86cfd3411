/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_feed.c - one small state machine per thread, one word per CPU.
 *
 *            waking                switch in             switch out, able to run
 *   BLOCKED --------> RUNNABLE --------------> RUNNING ---------------> RUNNABLE
 *      ^                                          | switch out, sleeping
 *      +------------------------------------------+
 *
 * I1  a thread's rows are emitted in time order: `since` only grows and every row ends at it.
 * I2  RUNNING means: the thread is cpu[task.cpu].cur. Everything else is waiting or unknown.
 * I3  gaps[] is sorted and disjoint; a row of a waiting thread never crosses one, because the
 *     missing events may have let the thread run there. A running thread's row is only cut by
 *     gaps of its own CPU, where its switch-out would have been seen.
 *
 * A waking that arrives while the thread still runs is kept in `pend`: try_to_wake_up() fires
 * the tracepoint before the sleeper has finished __schedule() on its own CPU, so the waking can
 * carry an earlier time than the switch-out it ends (kernel/sched/core.c). It is used only when
 * the thread is switched in with no later waking, which cannot happen otherwise.
 */
#include "store/sched_feed.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/map.h"
#include "store/sched_feed_internal.h"

#define TID_DIRECT (1 << 22) /* PID_MAX_LIMIT of 64-bit Linux: below it tids index an array */
#define CPU_MAX 65536

/* include/linux/sched.h: TASK_REPORT bits as the tracepoint shows them. */
enum { STATE_MASK = 0xff, STATE_REPORT_MAX = 0x100, STATE_DEAD = 0x30 };

int lg_sched_feed_new(struct lg_sched_feed **ret, struct lg_builder *b,
		      const struct lg_sched_options *opt, struct lg_error *err)
{
	struct lg_sched_feed *f = lg_calloc(1, sizeof *f);

	if (!f || lg_grow(&f->task, &f->task_cap, 1024, sizeof *f->task)) {
		lg_free(f);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	f->b = b;
	f->opt = *opt;
	f->n_task = 1; /* 0 = none */
	*ret = f;
	return 0;
}

void lg_sched_feed_free(struct lg_sched_feed *f)
{
	if (!f)
		return;
	lg_free(f->task);
	lg_free(f->by_tid);
	lg_map_done(&f->far_tid);
	lg_free(f->cpu);
	lg_free(f->gap);
	lg_free(f->mm);
	lg_map_done(&f->mm_i);
	lg_map_done(&f->mm_of_pid);
	lg_free(f);
}

struct lg_sched_stats lg_sched_feed_stats(const struct lg_sched_feed *f)
{
	return f->stats;
}

/* -- threads and CPUs -- */

static uint32_t slot_of(struct lg_sched_feed *f, int32_t tid)
{
	if (tid >= 0 && tid < TID_DIRECT)
		return (size_t)tid < f->by_tid_cap ? f->by_tid[tid] : 0;
	return lg_map_get(&f->far_tid, (uint32_t)tid);
}

static int slot_set(struct lg_sched_feed *f, int32_t tid, uint32_t i)
{
	size_t old = f->by_tid_cap;

	if (tid < 0 || tid >= TID_DIRECT)
		return lg_map_set(&f->far_tid, (uint32_t)tid, i);
	if ((size_t)tid >= old) {
		if (lg_grow(&f->by_tid, &f->by_tid_cap, (size_t)tid + 1, sizeof *f->by_tid))
			return LG_E_NOMEM;
		for (size_t k = old; k < f->by_tid_cap; k++)
			f->by_tid[k] = 0;
	}
	f->by_tid[tid] = i;
	return 0;
}

static void task_reset(struct lg_sched_task *t, int32_t pid, int32_t tid, int64_t since)
{
	*t = (struct lg_sched_task){ .tid = tid, .pid = pid, .cpu = -1, .since = since,
				     .pend_ts = INT64_MIN };
}

/* The thread's slot, made when missing; NULL when memory is exhausted. */
struct lg_sched_task *lg_sched_task_get(struct lg_sched_feed *f, int32_t pid, int32_t tid)
{
	uint32_t i = slot_of(f, tid);
	struct lg_sched_task *t;

	if (!i) {
		if (f->n_task >= UINT32_MAX ||
		    lg_grow(&f->task, &f->task_cap, f->n_task + 1, sizeof *f->task) ||
		    slot_set(f, tid, (uint32_t)f->n_task)) {
			f->failed = LG_E_NOMEM;
			return NULL;
		}
		i = (uint32_t)f->n_task++;
		task_reset(&f->task[i], -1, tid, INT64_MIN);
	}
	t = &f->task[i];
	/* Looked up at first sight and kept: after the exit record the same tid would be taken
	 * for a new life, while the dying thread still has its last switch to come. */
	if (!t->thr || (t->pid < 0 && pid >= 0)) {
		t->pid = pid;
		t->thr = lg_thread_get(f->b, tid ? pid : 0, tid);
		t->born = lg_thread_read(f->b, t->thr).start;
	}
	return t;
}

lg_thr lg_sched_thr(struct lg_sched_feed *f, int32_t pid, int32_t tid)
{
	struct lg_sched_task *t = tid < 0 ? NULL : lg_sched_task_get(f, pid, tid);

	return t ? t->thr : 0;
}

static struct lg_sched_cpu *cpu_get(struct lg_sched_feed *f, int32_t cpu)
{
	size_t old = f->n_cpu;

	if (cpu < 0 || cpu >= CPU_MAX)
		return NULL;
	if ((size_t)cpu >= old) {
		if (lg_grow(&f->cpu, &f->cpu_cap, (size_t)cpu + 1, sizeof *f->cpu)) {
			f->failed = LG_E_NOMEM;
			return NULL;
		}
		f->n_cpu = (size_t)cpu + 1;
		for (size_t k = old; k < f->n_cpu; k++)
			f->cpu[k] = (struct lg_sched_cpu){ .cur = -1, .known = f->opt.start };
	}
	return &f->cpu[cpu];
}

/* -- gaps -- */

/* First gap that ends after ts; n_gap when there is none. */
static size_t gap_after(const struct lg_sched_feed *f, int64_t ts)
{
	size_t lo = 0, hi = f->n_gap;

	if (!hi || f->gap[hi - 1].to <= ts)
		return hi;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->gap[mid].to <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool lg_sched_gap_between(const struct lg_sched_feed *f, int64_t from, int64_t to)
{
	size_t i = gap_after(f, from);

	return i < f->n_gap && f->gap[i].from < to;
}

/* From when on everything about waiting threads is known. */
static int64_t known_since(const struct lg_sched_feed *f)
{
	int64_t to = f->n_gap ? f->gap[f->n_gap - 1].to : INT64_MIN;

	return to > f->opt.start ? to : f->opt.start;
}

/* -- rows -- */

static void emit(struct lg_sched_feed *f, const struct lg_sched_task *t, int64_t from, int64_t to,
		 uint8_t flags)
{
	struct lg_state_row r = { .ts = from, .dur = to - from, .thr = t->thr, .cpu = t->cpu,
				  .kind = t->kind, .reason = t->reason, .flags = flags };

	if (to <= from || !t->tid || t->kind == LG_STATE_NONE)
		return;
	if (t->kind != LG_RUNNING) {
		r.waker = t->waker;
		r.waker_ctx = t->waker_ctx;
		r.waker_stack = t->waker_stack;
	}
	if (t->kind == LG_BLOCKED) {
		r.cpu = -1;
		r.stack = t->stack;
		r.object = t->object;
		r.blocker = t->blocker;
		r.blocker_stack = t->blocker_stack;
	}
	lg_add_state(f->b, &r);
}

static void forget(struct lg_sched_task *t)
{
	t->waker = t->blocker = 0;
	t->stack = t->waker_stack = t->blocker_stack = 0;
	t->object = 0;
	t->reason = LG_WHY_NONE;
	t->waker_ctx = LG_CTX_UNKNOWN;
	t->cpu = -1;
}

/*
 * The thread's present state ends at ts. A waiting state that crosses a gap is drawn up to the
 * gap; what came after it is left to the caller, who knows what the closing event proves.
 * Returns true where the row was whole.
 */
static bool close_state(struct lg_sched_feed *f, struct lg_sched_task *t, int64_t ts)
{
	size_t g;
	bool whole = true;

	if (t->kind == LG_STATE_NONE)
		return false;
	if (t->kind != LG_RUNNING && f->n_gap && (g = gap_after(f, t->since)) < f->n_gap &&
	    f->gap[g].from < ts) {
		lg_thr waker = t->waker;

		if (t->kind == LG_BLOCKED)
			t->waker = 0;
		emit(f, t, t->since, f->gap[g].from, t->flags | LG_STATE_EDGE);
		t->waker = waker;
		whole = false;
	} else {
		emit(f, t, t->since, ts, t->flags);
	}
	if (ts > t->since)
		t->since = ts;
	return whole;
}

static void enter(struct lg_sched_task *t, enum lg_state_kind kind, enum lg_state_reason reason)
{
	forget(t);
	t->kind = (uint8_t)kind;
	t->reason = (uint8_t)reason;
	t->flags = 0;
}

/* Where knowledge about a thread that is not in a known state begins. */
static int64_t unseen_since(const struct lg_sched_feed *f, const struct lg_sched_task *t)
{
	int64_t from = known_since(f);

	if (from < t->since)
		from = t->since;
	return from < t->born ? t->born : from;
}

static int64_t in_order(struct lg_sched_feed *f, const struct lg_sched_task *t, int64_t ts)
{
	if (ts >= t->since)
		return ts;
	f->stats.late++;
	return t->since;
}

uint64_t lg_sched_state_bit(char letter)
{
	static const struct {
		char letter;
		uint64_t bit;
	} bits[] = { { 'S', 1 }, { 'D', 2 }, { 'T', 4 }, { 't', 8 }, { 'X', 16 }, { 'x', 16 },
		     { 'Z', 32 }, { 'P', 64 }, { 'I', 128 }, { '+', STATE_REPORT_MAX } };

	for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
		if (bits[i].letter == letter)
			return bits[i].bit;
	return 0;
}

enum lg_state_reason lg_sched_reason(uint64_t state)
{
	static const uint8_t reasons[8] = { LG_WHY_SLEEP, LG_WHY_DISK, LG_WHY_STOPPED,
					    LG_WHY_TRACED, LG_WHY_DEAD, LG_WHY_DEAD,
					    LG_WHY_PARKED, LG_WHY_IDLE };

	if (!(state & STATE_MASK) || (state & STATE_REPORT_MAX))
		return LG_WHY_PREEMPTED;
	return state & STATE_DEAD ? LG_WHY_DEAD : reasons[__builtin_ctzll(state & STATE_MASK)];
}

static void take_pend(struct lg_sched_task *t)
{
	t->waker = t->pend_waker;
	t->waker_ctx = t->pend_ctx;
	t->waker_stack = t->pend_stack;
}

/*
 * t leaves a CPU on which it was not known to run: its switch-in was not told. last = the switch
 * before on that CPU; was_idle: it had gone idle then.
 *
 * That it ran is certain, since when is not. A thread that was woken runs at once on an idle CPU.
 * Where nobody was seen to wake it, or others ran there, the time since `last` gets no row: to draw
 * it as blocked or runnable would be false for sure.
 */
static void untold_run(struct lg_sched_feed *f, struct lg_sched_task *t, int32_t cpu, int64_t last,
		       bool was_idle, int64_t ts)
{
	bool woken = t->kind == LG_RUNNABLE && !lg_sched_gap_between(f, t->since, ts);
	int64_t from;

	t->pend_ts = INT64_MIN; /* of a sleep that is over */
	if (last > ts)
		last = ts; /* a gap that reaches into the future ends there */
	t->flags |= LG_STATE_EDGE;
	close_state(f, t, last);
	from = t->since > last ? t->since : last;
	enter(t, LG_RUNNING, LG_WHY_NONE);
	t->cpu = cpu;
	if (woken && was_idle)
		emit(f, t, from, ts, LG_STATE_EDGE);
}

/* last, cur: the switch before on this CPU, and to whom it was; -1 = not known. */
static void switch_out(struct lg_sched_feed *f, const struct lg_sched_switch *e,
		       const struct lg_sched_cpu *c, int64_t last, int32_t cur)
{
	struct lg_sched_task *t = lg_sched_task_get(f, e->prev_pid, e->prev_tid);
	enum lg_state_reason why = lg_sched_reason(e->prev_state);
	int64_t ts;

	if (!t)
		return;
	ts = in_order(f, t, e->ts);
	if (t->kind == LG_RUNNING && t->cpu == e->cpu) {
		close_state(f, t, ts);
	} else if ((t->kind == LG_BLOCKED || t->kind == LG_RUNNABLE) && cur >= 0 &&
		   cur != e->prev_tid) {
		untold_run(f, t, e->cpu, last, !cur, ts);
		t->since = ts;
	} else {
		/* Nothing was switched on this CPU since c->known, so it ran all that time. */
		int64_t from;

		if (t->kind == LG_RUNNING)
			t->kind = LG_STATE_NONE; /* its switch-out on the other CPU was lost */
		else
			close_state(f, t, c->known);
		ts = in_order(f, t, ts);
		from = c->known > t->since ? c->known : t->since;
		if (from < t->born)
			from = t->born;
		enter(t, LG_RUNNING, LG_WHY_NONE);
		t->cpu = e->cpu;
		if (c->cur < 0 && from != INT64_MIN)
			emit(f, t, from, ts, LG_STATE_EDGE);
		t->since = ts;
	}
	if (why == LG_WHY_PREEMPTED) {
		enter(t, LG_RUNNABLE, why);
		t->cpu = e->cpu;
	} else if (why == LG_WHY_DEAD) {
		lg_sched_locks_cut(f, t);
		task_reset(t, -1, e->prev_tid, ts); /* the next one with this tid is another */
	} else {
		enter(t, LG_BLOCKED, why);
		t->stack = e->stack;
		if (t->n_wait) {
			const struct lg_sched_wait *w = &t->wait[t->n_wait - 1];

			t->object = w->lock;
			t->blocker = w->owner;
			t->blocker_stack = w->owner_stack;
		}
	}
}

static void switch_in(struct lg_sched_feed *f, const struct lg_sched_switch *e)
{
	struct lg_sched_task *t = lg_sched_task_get(f, e->next_pid, e->next_tid);
	int64_t ts, from;
	bool pend;

	if (!t)
		return;
	ts = in_order(f, t, e->ts);
	pend = t->pend_ts != INT64_MIN;
	switch (t->kind) {
	case LG_RUNNING:
		f->stats.mismatch++;
		break;
	case LG_BLOCKED:
		if (pend && !lg_sched_gap_between(f, t->since, ts)) {
			from = t->since;
			enter(t, LG_RUNNABLE, LG_WHY_WOKEN);
			take_pend(t);
			emit(f, t, from, ts, 0);
			break;
		}
		/* fall through */
	case LG_RUNNABLE:
		if (!close_state(f, t, ts) && f->opt.has_waking) {
			/* Behind the gap nobody woke it, and here it runs: it was runnable. */
			enter(t, LG_RUNNABLE, LG_WHY_NONE);
			emit(f, t, known_since(f), ts, LG_STATE_EDGE);
		}
		break;
	default:
		from = unseen_since(f, t);
		if (from == INT64_MIN || !f->opt.has_waking || !f->opt.has_fork)
			break;
		if (pend && t->pend_ts > from && t->pend_ts <= ts) {
			enter(t, LG_BLOCKED, LG_WHY_NONE);
			take_pend(t);
			emit(f, t, from, t->pend_ts, LG_STATE_EDGE);
			from = t->pend_ts;
			enter(t, LG_RUNNABLE, LG_WHY_WOKEN);
			take_pend(t);
			emit(f, t, from, ts, 0);
		} else {
			enter(t, LG_RUNNABLE, LG_WHY_NONE);
			emit(f, t, from, ts, LG_STATE_EDGE);
		}
	}
	enter(t, LG_RUNNING, LG_WHY_NONE);
	t->pend_ts = INT64_MIN;
	t->since = ts;
	t->cpu = e->cpu;
}

void lg_sched_switched(struct lg_sched_feed *f, const struct lg_sched_switch *e)
{
	struct lg_sched_cpu *c;
	int64_t last;

	if (f->opt.start == INT64_MIN)
		f->opt.start = e->ts;
	c = cpu_get(f, e->cpu);
	if (!c)
		return;
	f->stats.switches++;
	last = c->known;
	if (c->cur >= 0 && c->cur != e->prev_tid) {
		/* A switch is missing although nobody said so: until when cur ran is unknown. */
		struct lg_sched_task *was = lg_sched_task_get(f, -1, c->cur);

		f->stats.mismatch++;
		if (was)
			was->untold++;
		if (was && was->kind == LG_RUNNING && was->cpu == e->cpu) {
			was->kind = LG_STATE_NONE;
			was->since = was->since > e->ts ? was->since : e->ts;
		}
		c->known = e->ts;
	}
	if (e->prev_tid)
		switch_out(f, e, c, last, c->cur);
	if (e->next_tid)
		switch_in(f, e);
	c->cur = e->next_tid;
	c->known = e->ts;
}

void lg_sched_woke(struct lg_sched_feed *f, const struct lg_sched_waking *e)
{
	/* The waker first: getting a slot may move the array. */
	lg_thr waker = lg_sched_thr(f, e->waker_pid, e->waker_tid);
	struct lg_sched_task *t = e->tid ? lg_sched_task_get(f, -1, e->tid) : NULL;
	int64_t ts;

	if (f->opt.start == INT64_MIN)
		f->opt.start = e->ts;
	f->stats.wakings++;
	if (!t)
		return;
	if (t->kind == LG_RUNNABLE && !lg_sched_gap_between(f, t->since, e->ts))
		return; /* told twice, or it was about to sleep when it was preempted */
	ts = in_order(f, t, e->ts);
	if (t->kind == LG_RUNNING || t->kind == LG_STATE_NONE) {
		t->pend_ts = ts;
		t->pend_waker = waker;
		t->pend_ctx = (uint8_t)e->ctx;
		t->pend_stack = e->stack;
		return;
	}
	t->waker = waker;
	t->waker_ctx = (uint8_t)e->ctx;
	t->waker_stack = e->stack;
	if (!close_state(f, t, ts)) {
		/* Only a sleeping thread is woken: behind the gap it slept. */
		enter(t, LG_BLOCKED, LG_WHY_NONE);
		t->waker = waker;
		t->waker_ctx = (uint8_t)e->ctx;
		emit(f, t, known_since(f), ts, LG_STATE_EDGE);
	}
	enter(t, LG_RUNNABLE, LG_WHY_WOKEN);
	t->waker = waker;
	t->waker_ctx = (uint8_t)e->ctx;
	t->waker_stack = e->stack;
	t->cpu = e->target_cpu;
}

/*
 * Each queue's part of the wait is a row of its own: whoever ran on that CPU meanwhile is why it waited. A
 * waking tells where the sleeper had run before, and is followed at once by a move to where it is put
 * (kernel/sched/core.c, try_to_wake_up()): that is the beginning of the wait, and no part of it.
 */
void lg_sched_moved(struct lg_sched_feed *f, const struct lg_sched_move *e)
{
	enum { PLACING_NS = 50000 };
	uint32_t i = slot_of(f, e->tid);
	struct lg_sched_task *t = i ? &f->task[i] : NULL;
	int64_t ts;

	if (!t || t->kind != LG_RUNNABLE)
		return;
	ts = in_order(f, t, e->ts);
	if (e->from_cpu >= 0 && ts - t->since >= PLACING_NS) {
		t->cpu = e->from_cpu;
		close_state(f, t, ts);
	}
	t->cpu = e->to_cpu;
}

void lg_sched_forked(struct lg_sched_feed *f, int64_t ts, int32_t pid, int32_t tid)
{
	uint32_t i = slot_of(f, tid);
	struct lg_sched_task *t;

	if (tid <= 0)
		return;
	if (i && f->task[i].kind == LG_RUNNABLE && f->task[i].reason == LG_WHY_NEW)
		return; /* told twice */
	if (i) {
		/* The old life ended unseen; when, nobody knows. */
		lg_sched_locks_cut(f, &f->task[i]);
		task_reset(&f->task[i], -1, tid, f->task[i].since);
	}
	t = lg_sched_task_get(f, pid, tid);
	if (!t)
		return;
	t->since = in_order(f, t, ts);
	enter(t, LG_RUNNABLE, LG_WHY_NEW);
}

void lg_sched_exited(struct lg_sched_feed *f, int64_t ts, int32_t tid)
{
	uint32_t i = slot_of(f, tid);

	(void)ts;
	if (i)
		lg_sched_locks_cut(f, &f->task[i]);
}

static void gap_cpu(struct lg_sched_feed *f, int64_t from, int64_t to, int32_t cpu)
{
	struct lg_sched_cpu *c = cpu_get(f, cpu);
	struct lg_sched_task *t;

	if (!c)
		return;
	if (c->cur > 0 && (t = lg_sched_task_get(f, -1, c->cur)) && t->kind == LG_RUNNING &&
	    t->cpu == cpu) {
		if (from < t->since)
			from = t->since;
		t->flags |= LG_STATE_EDGE;
		close_state(f, t, from);
		t->kind = LG_STATE_NONE;
	}
	c->cur = -1;
	if (c->known < to)
		c->known = to;
}

void lg_sched_gap(struct lg_sched_feed *f, int64_t from, int64_t to, int32_t cpu)
{
	if (from >= to)
		return;
	f->stats.gaps++;
	if (cpu >= 0)
		gap_cpu(f, from, to, cpu);
	else
		for (size_t k = 0; k < f->n_cpu; k++)
			gap_cpu(f, from, to, (int32_t)k);
	/* Notices of several CPUs overlap; merging backwards keeps I3. */
	while (f->n_gap && f->gap[f->n_gap - 1].to >= from) {
		struct lg_sched_hole *last = &f->gap[--f->n_gap];

		if (last->from < from)
			from = last->from;
		if (last->to > to)
			to = last->to;
	}
	if (lg_grow(&f->gap, &f->gap_cap, f->n_gap + 1, sizeof *f->gap)) {
		f->failed = LG_E_NOMEM;
		return;
	}
	f->gap[f->n_gap++] = (struct lg_sched_hole){ from, to };
}

static void finish_state(struct lg_sched_feed *f, struct lg_sched_task *t)
{
	struct lg_state_row r = { .ts = t->since, .dur = -1, .thr = t->thr, .cpu = t->cpu,
				  .kind = t->kind, .reason = t->reason,
				  .flags = t->flags | LG_STATE_EDGE };

	if (t->kind == LG_STATE_NONE || !t->tid)
		return;
	if (t->kind != LG_RUNNING && lg_sched_gap_between(f, t->since, INT64_MAX)) {
		close_state(f, t, INT64_MAX);
		return;
	}
	if (t->kind == LG_BLOCKED) {
		r.cpu = -1;
		r.stack = t->stack;
		r.object = t->object;
		r.blocker = t->blocker;
		r.blocker_stack = t->blocker_stack;
	} else if (t->kind == LG_RUNNABLE) {
		r.waker = t->waker;
		r.waker_ctx = t->waker_ctx;
		r.waker_stack = t->waker_stack;
	}
	lg_add_state(f->b, &r);
}

/* No buffer was full: the kernel did not tell. So this is no LOST_EVENTS. */
static void report_untold(struct lg_sched_feed *f, const struct lg_sched_task *worst, int64_t ts)
{
	struct lg_trace *t = lg_builder_trace(f->b);

	char most[64] = "";
	const char *comm = worst ? lg_string(t, t->thread.comm[worst->thr]) : "";

	if (worst && !worst->tid)
		snprintf(most, sizeof most, ", %u of them away from an idle CPU", worst->untold);
	else if (worst)
		snprintf(most, sizeof most, ", %u of them away from thread %d%s%.16s%s",
			 worst->untold, worst->tid, *comm ? " (" : "", comm, *comm ? ")" : "");
	lg_add_diag_now(f->b, LG_DIAG_PARTIAL, ts, f->stats.mismatch,
			"the kernel did not tell %llu of %llu thread switches%s; the time around "
			"them is left out",
			(unsigned long long)f->stats.mismatch,
			(unsigned long long)f->stats.switches, most);
}

int lg_sched_feed_finish(struct lg_sched_feed *f, int64_t ts, struct lg_error *err)
{
	const struct lg_sched_task *worst = NULL;

	for (size_t i = 1; i < f->n_task; i++) {
		struct lg_sched_task *t = &f->task[i];

		if (t->untold > (worst ? worst->untold : 0))
			worst = t;
		finish_state(f, t);
		t->kind = LG_STATE_NONE;
		lg_sched_locks_finish(f, t, ts);
	}
	if (f->stats.mismatch)
		report_untold(f, worst, ts);
	if (f->failed)
		return lg_fail(err, f->failed, LG_NO_OFFSET, "out of memory");
	return 0;
}
