/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - why a thread did not get on: from a blocked or waiting piece of time to the end of
 * the chain (a holder, a CPU hog, a device, another rank's own computing ...).
 *
 * Chains are graphs over time intervals, not over pids: each hop keeps the interval [a, b) that
 * has to be explained and asks what the next thread did in exactly that time. Hops and pieces
 * are bounded, so a pair of threads that wake each other cannot run away.
 */
#include <string.h>

#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"
#include "base/alloc.h"

enum {
	MAX_HOPS = 8,
	WAKE_LATENCY_NS = 200000, /* runnable beside an idle CPU: ordinary below this */
	LEFT_OUT_NS = 5000000,    /* and no chance above this: some ticks of the load balancer */
};

void lg_piece_add(struct lg_case *c, struct lg_pieces *p, const struct lg_piece *piece)
{
	if (piece->dur <= 0)
		return;
	if (lg_grow(&p->v, &p->cap, p->n + 1, sizeof *p->v)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	p->v[p->n++] = *piece;
}

static void add(struct lg_case *c, struct lg_pieces *out, lg_thr of, int64_t a, int64_t b,
		enum lg_part_kind kind, enum lg_end_kind end, lg_thr thr, enum lg_proof proof,
		uint32_t row, int hops)
{
	lg_piece_add(c, out, &(struct lg_piece){ .ts = a, .dur = b - a, .of = of, .thr = thr,
						 .end = (uint8_t)end, .proof = (uint8_t)proof,
						 .kind = (uint8_t)kind, .hops = (uint8_t)hops,
						 .row = row, .hold = UINT32_MAX });
}

static void run_or_chore(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b, int hops,
			struct lg_pieces *out)
{
	const struct lg_chore *f;

	for (; a < b && (f = lg_chore_in(c, thr, a, b)); a = f->end < b ? f->end : b) {
		int64_t from = f->from > a ? f->from : a, to = f->end < b ? f->end : b;

		add(c, out, thr, a, from, LG_PART_RUNNING, LG_END_RUN, thr, LG_PROOF_SCHED, row, hops);
		/* Who took the memory is not told. */
		add(c, out, thr, from, to, LG_PART_RUNNING, (enum lg_end_kind)f->kind,
		    f->kind == LG_END_RECLAIM ? 0 : thr, LG_PROOF_SCHED, row, hops);
	}
	add(c, out, thr, a, b, LG_PART_RUNNING, LG_END_RUN, thr, LG_PROOF_SCHED, row, hops);
}

/* Running: the collector's share is told apart where the hook marked it. */
static void follow_running(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b,
			   int hops, struct lg_pieces *out)
{
	const struct lg_span_tab *s = &c->t->span;
	uint32_t p = lg_index_span_from(c->idx, thr, a);

	for (; a < b && p < c->idx->span_off[thr + 1]; p++) {
		uint32_t span = c->idx->span[p];
		int64_t from, to;

		if (s->ts[span] >= b)
			break;
		if (s->kind[span] != LG_SPAN_GC)
			continue;
		from = s->ts[span] > a ? s->ts[span] : a;
		to = lg_row_end(c->t, s->ts[span], s->dur[span]);
		if (to > b)
			to = b;
		if (to <= from)
			continue;
		run_or_chore(c, thr, row, a, from, hops, out);
		add(c, out, thr, from, to, LG_PART_RUNNING, LG_END_GC, thr, LG_PROOF_SCHED, span,
		    hops);
		a = to;
	}
	run_or_chore(c, thr, row, a, b, hops, out);
}

/* Ready, and nobody has the CPU. */
static void beside_idle_cpu(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b, bool left_out,
			    int hops, struct lg_pieces *out)
{
	bool quota;

	if (b - a < WAKE_LATENCY_NS) {
		add(c, out, thr, a, b, LG_PART_RUNNABLE, LG_END_NONE, 0, LG_PROOF_NONE, row, hops);
		return;
	}
	quota = lg_quota_used_up(c, a, b);
	add(c, out, thr, a, b, LG_PART_RUNNABLE, quota || left_out ? LG_END_QUOTA : LG_END_UNKNOWN, 0,
	    quota ? LG_PROOF_OWNER : LG_PROOF_NONE, row, quota || left_out ? hops + 1 : hops);
}

/* For how long of the row nobody ran on that CPU. */
static int64_t idle_during(const struct lg_case *c, lg_thr thr, uint32_t row, int32_t cpu)
{
	const struct lg_state_tab *s = &c->t->state;
	int64_t a = s->ts[row], b = lg_row_end(c->t, a, s->dur[row]), idle = b - a;
	uint32_t end, p = lg_index_cpu_from(c->idx, thr, cpu, a, &end);

	for (; p < end; p++) {
		uint32_t run = c->idx->cpu[p];
		int64_t to = lg_row_end(c->t, s->ts[run], s->dur[run]);

		if (s->ts[run] >= b)
			break;
		idle -= (to < b ? to : b) - (s->ts[run] > a ? s->ts[run] : a);
	}
	return idle;
}

/*
 * It lost its CPU although it could go on, and was left out although that CPU fell idle: it was in no queue.
 * A cgroup without quota is taken out of them, and who has the CPU meanwhile takes nothing from it.
 */
static bool is_left_out(struct lg_case *c, lg_thr thr, uint32_t row, int32_t cpu)
{
	const struct lg_state_tab *s = &c->t->state;

	return cpu >= 0 && s->reason[row] == LG_WHY_PREEMPTED && !(s->flags[row] & LG_STATE_EDGE) &&
	       s->dur[row] >= LEFT_OUT_NS && !lg_quota_is_told(c) &&
	       idle_during(c, thr, row, cpu) >= LEFT_OUT_NS;
}

/* Runnable: whoever ran on the CPU that thr was queued for. */
static void follow_runnable(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b,
			    int hops, struct lg_pieces *out)
{
	const struct lg_state_tab *s = &c->t->state;
	int32_t cpu = s->cpu[row];
	uint32_t p, end;

	if (cpu < 0) {
		uint32_t next = lg_index_state_at(c->idx, thr,
						  lg_row_end(c->t, s->ts[row], s->dur[row]));

		cpu = next == LG_NO_ROW ? -1 : s->cpu[next];
	}
	if (is_left_out(c, thr, row, cpu)) {
		beside_idle_cpu(c, thr, row, a, b, true, hops, out);
		return;
	}
	p = lg_index_cpu_from(c->idx, thr, cpu, a, &end);
	for (; a < b && p < end; p++) {
		uint32_t run = c->idx->cpu[p];
		int64_t from = s->ts[run] > a ? s->ts[run] : a;
		int64_t to = lg_row_end(c->t, s->ts[run], s->dur[run]);

		if (from >= b)
			break;
		if (to > b)
			to = b;
		if (s->thr[run] == thr || c->t->thread.flags[s->thr[run]] & LG_THREAD_IDLE ||
		    to <= from)
			continue;
		beside_idle_cpu(c, thr, row, a, from, false, hops, out);
		add(c, out, thr, from, to, LG_PART_RUNNABLE, LG_END_CPU, s->thr[run],
		    LG_PROOF_SCHED, row, hops + 1);
		a = to;
	}
	beside_idle_cpu(c, thr, row, a, b, false, hops, out);
}

/* Who sent the signal that stopped thr: the recorder leaves `signal` marks with the sender. */
static lg_thr stopper_of(const struct lg_case *c, lg_thr thr, int64_t ts)
{
	const struct lg_mark_tab *m = &c->t->mark;
	const struct lg_thread_tab *t = &c->t->thread;
	int64_t tid = 0, at = 0;

	/* `signal` rows lie on the target; value is the sender's tid, text begins with the name. */
	for (size_t i = 0; i < m->n && m->ts[i] <= ts + 1000000; i++) {
		const char *text = lg_string(c->t, m->text[i]);

		if (t->prc[m->thr[i]] != t->prc[thr] || m->ts[i] < ts - 1000000000 ||
		    strcmp(lg_string(c->t, m->name[i]), "signal"))
			continue;
		if (!strncmp(text, "SIGSTOP", 7) || !strncmp(text, "SIGT", 4)) {
			tid = m->value[i];
			at = m->ts[i];
		}
	}
	for (lg_thr i = 1; tid && i < t->n; i++)
		if (t->tid[i] == tid && t->start[i] <= at && t->end[i] >= at)
			return i;
	return 0;
}

/* Kernel threads end waits on behalf of devices and of others: only a program's own doing is its own. */
static bool is_program(const struct lg_case *c, lg_thr thr)
{
	return !(c->t->thread.flags[thr] & (LG_THREAD_KERNEL | LG_THREAD_IDLE)) &&
	       c->t->process.role[c->t->thread.prc[thr]] != LG_ROLE_KERNEL;
}

/*
 * Nobody saw a signal: whoever let it go on stopped it, as a rule. Out of ptrace_stop() that is certain: only
 * its tracer can (kernel/ptrace.c, ptrace_resume(), __ptrace_unlink()).
 */
static lg_thr resumed_by(struct lg_case *c, lg_thr thr, uint32_t row, enum lg_proof *ret)
{
	lg_thr waker = lg_waker_of(c, row);

	if (!waker || !is_program(c, waker) || c->t->thread.prc[waker] == c->t->thread.prc[thr])
		return 0;
	*ret = strcmp(lg_string(c->t, lg_wait_name_of(c, row)), "ptrace_stop") ? LG_PROOF_WAKER : LG_PROOF_OWNER;
	return waker;
}

static bool same_job(const struct lg_case *c, lg_thr a, lg_thr b)
{
	lg_prc p = c->t->thread.prc[a], q = c->t->thread.prc[b];

	return p == q || (c->t->process.rank[p] >= 0 && c->t->process.rank[q] >= 0 &&
			  !lg_in_other_job(c, p) && !lg_in_other_job(c, q));
}

/*
 * It waited for a program that is not of the job: what the chain found of that program's own doing
 * (it computed, or it slept before it answered) is why the step waited. Locks, CPUs and devices that
 * the program itself waited for stay what they are.
 */
static void blame_peer(struct lg_case *c, lg_thr thr, uint32_t row, struct lg_pieces *out, size_t from)
{
	lg_str name = lg_wait_name_of(c, row);

	for (size_t i = from; i < out->n; i++) {
		struct lg_piece *p = &out->v[i];

		if ((p->end != LG_END_RUN && p->end != LG_END_SLEEP) ||
		    lg_in_job(c, c->t->thread.prc[p->thr]))
			continue;
		p->of = thr;
		p->kind = LG_PART_BLOCKED;
		p->end = LG_END_PEER;
		p->proof = LG_PROOF_WAKER;
		p->lock = name;
	}
}

/*
 * It waited for Python's lock: what the holder computed meanwhile is the cause; what the holder itself
 * waited for (a CPU) stays what it is.
 */
static void follow_gil(struct lg_case *c, const struct lg_gil_wait *w, int64_t a, int64_t b, int hops,
		       struct lg_pieces *out)
{
	size_t mark = out->n;

	lg_follow(c, w->holder, a, b, hops + 1, out);
	for (size_t i = mark; i < out->n; i++) {
		struct lg_piece *p = &out->v[i];

		if (p->end != LG_END_RUN || p->thr != w->holder)
			continue;
		p->of = w->thr;
		p->kind = LG_PART_BLOCKED;
		p->end = LG_END_GIL;
		p->proof = LG_PROOF_OWNER;
	}
}

/*
 * In [a, b) `of` waits for a file lock, which its waker gave up at the end: only who gives one up wakes the
 * others (fs/locks.c, locks_wake_up_blocks()). Of several who wait, each is woken by the one before it, which
 * had to wait itself: that long, whoever it waited for had the lock. row: the state of who waits last.
 */
static void follow_file_lock(struct lg_case *c, lg_thr of, uint32_t row, int64_t a, int64_t b, int hops,
			     struct lg_pieces *out)
{
	const struct lg_state_tab *s = &c->t->state;
	lg_thr holder = lg_waker_of(c, row);
	uint32_t p = lg_index_state_from(c->idx, holder, a);

	while (a < b) {
		int64_t from = b, end = b;
		uint32_t wait = LG_NO_ROW;

		for (; hops < MAX_HOPS && wait == LG_NO_ROW && p < c->idx->state_off[holder + 1]; p++) {
			uint32_t at = c->idx->state[p];
			lg_thr before = s->kind[at] == LG_BLOCKED ? lg_waker_of(c, at) : 0;

			if (s->ts[at] >= b)
				break;
			end = lg_row_end(c->t, s->ts[at], s->dur[at]);
			if (end <= a || !before || before == of ||
			    lg_wait_class_of(c, at) != LG_WAIT_FILE_LOCK)
				continue;
			from = s->ts[at] > a ? s->ts[at] : a;
			end = end < b ? end : b;
			wait = at;
		}
		if (wait == LG_NO_ROW)
			from = end = b;
		if (from > a)
			lg_piece_add(c, out, &(struct lg_piece){
				.ts = a, .dur = from - a, .of = of, .thr = holder, .end = LG_END_LOCK,
				.proof = LG_PROOF_OWNER, .kind = LG_PART_BLOCKED, .hops = (uint8_t)(hops + 1),
				.row = UINT32_MAX, .hold = UINT32_MAX, .lock = lg_wait_name_of(c, row) });
		if (wait != LG_NO_ROW)
			follow_file_lock(c, of, wait, from, end, hops + 1, out);
		a = end;
	}
}

/* Blocked and not on a kernel lock. */
static void follow_sleep(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b, int hops,
			 struct lg_pieces *out)
{
	const struct lg_state_tab *s = &c->t->state;
	enum lg_wait_class class = lg_wait_class_of(c, row);
	uint32_t r = c->rank_of_thr[thr];
	enum lg_end_kind end = LG_END_UNKNOWN;
	lg_thr waker = lg_waker_of(c, row), by;
	enum lg_proof proof = LG_PROOF_SCHED;

	switch (class) {
	case LG_WAIT_DISK:
		add(c, out, thr, a, b, LG_PART_BLOCKED, LG_END_IO, 0, LG_PROOF_SCHED, row, hops + 1);
		return;
	case LG_WAIT_STOP:
		by = stopper_of(c, thr, s->ts[row]);
		by = by ? by : resumed_by(c, thr, row, &proof);
		add(c, out, thr, a, b, LG_PART_BLOCKED, LG_END_STOP, by, proof, row, hops + 1);
		return;
	case LG_WAIT_SLEEP:
		add(c, out, thr, a, b, LG_PART_BLOCKED, LG_END_SLEEP, thr, LG_PROOF_SCHED, row,
		    hops);
		return;
	case LG_WAIT_RECLAIM:
		add(c, out, thr, a, b, LG_PART_BLOCKED, LG_END_RECLAIM, 0, LG_PROOF_SCHED, row,
		    hops + 1);
		return;
	case LG_WAIT_FILE_LOCK:
		if (!waker)
			break;
		follow_file_lock(c, thr, row, a, b, hops, out);
		return;
	default:
		break;
	}
	if (r) {
		const struct lg_arrival *arr = lg_arrival_at(&c->ranks[r - 1], a);

		if (arr && arr->late_rank != UINT32_MAX) {
			int64_t cut = arr->late_rank == r - 1 ? a : arr->late_ts;

			cut = cut < a ? a : cut > b ? b : cut;
			if (cut > a)
				lg_follow(c, c->ranks[arr->late_rank].thr, a, cut, hops + 1, out);
			add(c, out, thr, cut, b, LG_PART_BLOCKED, LG_END_COMM, 0, LG_PROOF_SCHED,
			    arr->span, hops + 1);
			return;
		}
		if (arr)
			end = LG_END_NET;
	}
	if (waker && !same_job(c, thr, waker) && lg_until_own_timer(c, row)) {
		add(c, out, thr, a, b, LG_PART_BLOCKED, LG_END_SLEEP, thr, LG_PROOF_SCHED, row, hops);
		return;
	}
	if (waker &&
	    (same_job(c, thr, waker) || class == LG_WAIT_FUTEX || class == LG_WAIT_PIPE ||
	     class == LG_WAIT_SOCKET || class == LG_WAIT_POLL || class == LG_WAIT_CHILD ||
	     class == LG_WAIT_ANSWER ||
	     (class == LG_WAIT_UNKNOWN && s->stack[row] && is_program(c, waker)))) {
		size_t mark = out->n;

		lg_follow(c, waker, a, b, hops + 1, out);
		if (!same_job(c, thr, waker))
			blame_peer(c, thr, row, out, mark);
		return;
	}
	if (s->waker_ctx[row] == LG_CTX_SOFTIRQ || s->waker_ctx[row] == LG_CTX_HARDIRQ)
		end = class == LG_WAIT_SOCKET || class == LG_WAIT_POLL ? LG_END_NET : end;
	add(c, out, thr, a, b, LG_PART_BLOCKED, end, 0, LG_PROOF_NONE, row, hops);
}

static void follow_blocked(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b,
			   int hops, struct lg_pieces *out)
{
	const struct lg_span_tab *s = &c->t->span;
	const struct lg_gil_wait *gil = lg_gil_wait_in(c, thr, a, b);

	if (gil && gil->from <= a && gil->end >= b) {
		follow_gil(c, gil, a, b, hops, out);
		return;
	}
	if (gil && gil->from > a) { /* somebody had it before that holder */
		follow_sleep(c, thr, row, a, gil->from, hops, out);
		follow_blocked(c, thr, row, gil->from, b, hops, out);
		return;
	}
	while (a < b) {
		uint32_t wait = lg_lock_wait_in(c, thr, a, b);
		int64_t from, to;

		if (wait == UINT32_MAX) {
			follow_sleep(c, thr, row, a, b, hops, out);
			return;
		}
		from = s->ts[wait] > a ? s->ts[wait] : a;
		to = lg_row_end(c->t, s->ts[wait], s->dur[wait]);
		to = to > b ? b : to;
		if (from > a)
			follow_sleep(c, thr, row, a, from, hops, out);
		lg_lock_pieces(c, wait, thr, from, to, hops, out);
		a = to;
	}
}

/*
 * A save is more than the call that has the name: the file is opened and cut before it, written out and
 * synced behind it. What the thread itself did there, and waited for the disk, is the save's, as far as it is
 * near; and what it waited for its own writes in any case.
 */
static bool is_of_save(const struct lg_case *c, const struct lg_rank *r, const struct lg_piece *p)
{
	enum { NEAR = 2 /* times as long as the call */ };
	const struct lg_stage_seg *save;
	const char *call;
	int64_t apart;

	if (p->end != LG_END_RUN && p->end != LG_END_IO && p->end != LG_END_SLEEP && p->end != LG_END_NONE)
		return false;
	save = lg_save_beside(c, r, p->ts);
	if (!save)
		return false;
	apart = p->ts >= save->end ? p->ts - save->end : save->ts - p->ts;
	return apart <= NEAR * (save->end - save->ts) ||
	       (p->end == LG_END_IO && lg_io_kind_of(c, p->row, &call) >= LG_IO_WRITE);
}

static void side(struct lg_piece *p)
{
	p->end = LG_END_SIDE;
	p->thr = p->thr ? p->thr : p->of; /* who waits for its own writes */
}

/* Everything inside a checkpoint or log call, or while waiting for a batch, is that stage's
 * cost unless a host cause explains it better. */
static void restage(const struct lg_case *c, const struct lg_rank *r, struct lg_pieces *out, size_t from,
		    uint8_t stage)
{
	for (size_t i = from; i < out->n; i++) {
		struct lg_piece *p = &out->v[i];

		if (stage == LG_STAGE_SIDE ? lg_end(p->end)->in_side == LG_RESTAGED_SIDE
					   : stage == LG_STAGE_OTHER && is_of_save(c, r, p))
			side(p);
		else if (stage == LG_STAGE_BATCH_WAIT && lg_end(p->end)->in_batch == LG_RESTAGED_LOADER)
			p->end = LG_END_LOADER;
	}
}

static void follow_state(struct lg_case *c, lg_thr thr, uint32_t row, int64_t a, int64_t b, int hops,
			 struct lg_pieces *out)
{
	switch (c->t->state.kind[row]) {
	case LG_RUNNING:
		follow_running(c, thr, row, a, b, hops, out);
		break;
	case LG_RUNNABLE:
		follow_runnable(c, thr, row, a, b, hops, out);
		break;
	case LG_BLOCKED:
		follow_blocked(c, thr, row, a, b, hops, out);
		break;
	default:
		add(c, out, thr, a, b, LG_PART_UNEXPLAINED, LG_END_UNKNOWN, 0, LG_PROOF_NONE, row,
		    hops);
	}
}

void lg_follow(struct lg_case *c, lg_thr thr, int64_t a, int64_t b, int hops, struct lg_pieces *out)
{
	const struct lg_state_tab *s = &c->t->state;
	const struct lg_rank *r = c->rank_of_thr[thr] ? &c->ranks[c->rank_of_thr[thr] - 1] : NULL;
	uint32_t p = lg_index_state_from(c->idx, thr, a), end = c->idx->state_off[thr + 1];

	if (hops >= MAX_HOPS) {
		add(c, out, thr, a, b, LG_PART_UNEXPLAINED, LG_END_UNKNOWN, 0, LG_PROOF_NONE,
		    UINT32_MAX, hops);
		return;
	}
	for (; a < b && p < end && !c->failed; p++) {
		uint32_t row = c->idx->state[p];
		int64_t from = s->ts[row] > a ? s->ts[row] : a;
		int64_t to = lg_row_end(c->t, s->ts[row], s->dur[row]);

		if (from >= b)
			break;
		if (to > b)
			to = b;
		add(c, out, thr, a, from, LG_PART_UNEXPLAINED, LG_END_UNKNOWN, 0, LG_PROOF_NONE,
		    UINT32_MAX, hops);
		while (from < to) {
			int64_t next = r ? lg_stage_next(r, from) : to;
			size_t mark = out->n;

			if (next > to)
				next = to;
			follow_state(c, thr, row, from, next, hops, out);
			if (r)
				restage(c, r, out, mark, lg_stage_at(r, from));
			from = next;
		}
		a = to > a ? to : a;
	}
	add(c, out, thr, a, b, LG_PART_UNEXPLAINED, LG_END_UNKNOWN, 0, LG_PROOF_NONE, UINT32_MAX,
	    hops);
}
