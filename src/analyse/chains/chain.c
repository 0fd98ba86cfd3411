/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - why a thread did not get on: from a blocked or waiting piece of time to the end of
 * the chain (a holder, a CPU hog, a device, another rank's own computing ...).
 *
 * Chains are graphs over time intervals, not over pids: each hop keeps the interval [a, b) that
 * has to be explained and asks what the next thread did in exactly that time. Hops and pieces
 * are bounded, so a pair of threads that wake each other cannot run away.
 */
#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"

enum {
	MAX_HOPS = 8,
	WAKE_LATENCY_NS = 200000, /* runnable beside an idle CPU: ordinary below this */
	LEFT_OUT_NS = 5000000,    /* and no chance above this: some ticks of the load balancer */
};

void lg_piece_add(struct lg_case *c, struct lg_pieces *p, const struct lg_piece *piece)
{
	if (piece->dur <= 0)
		return;
	(void)lg_failed(c, LG_APPEND(p->v, p->n, p->cap, *piece));
}

/* What is followed, one after the other: a thread's state, and how many hops away from whom it began. */
struct way {
	struct lg_case *c;
	struct lg_pieces *out;
	lg_thr thr;
	uint32_t row;
	int hops;
	enum lg_part_kind kind; /* of the row */
};

/* hop: thr is one hop further. */
static void add(const struct way *w, int64_t a, int64_t b, enum lg_end_kind end, lg_thr thr,
		enum lg_proof proof, int hop)
{
	lg_piece_add(w->c, w->out, &(struct lg_piece){
		.ts = a, .dur = b - a, .of = w->thr, .thr = thr, .end = (uint8_t)end, .proof = (uint8_t)proof,
		.kind = (uint8_t)w->kind, .hops = (uint8_t)(w->hops + hop), .row = w->row,
		.hold = UINT32_MAX });
}

static void unexplained(const struct way *w, int64_t a, int64_t b)
{
	add(w, a, b, LG_END_UNKNOWN, 0, LG_PROOF_NONE, 0);
}

static void run_or_chore(const struct way *w, int64_t a, int64_t b)
{
	const struct lg_chore *f;

	for (; a < b && (f = lg_chore_in(w->c, w->thr, a, b)); a = f->end < b ? f->end : b) {
		int64_t from = f->from > a ? f->from : a, to = f->end < b ? f->end : b;

		add(w, a, from, LG_END_RUN, w->thr, LG_PROOF_SCHED, 0);
		/* Who took the memory is not told. */
		add(w, from, to, (enum lg_end_kind)f->kind, f->kind == LG_END_RECLAIM ? 0 : w->thr,
		    LG_PROOF_SCHED, 0);
	}
	add(w, a, b, LG_END_RUN, w->thr, LG_PROOF_SCHED, 0);
}

/* Running: the collector's share is told apart where the hook marked it. */
static void follow_running(const struct way *w, int64_t a, int64_t b)
{
	struct lg_rows spans = lg_spans_in(&w->c->scene, w->thr, a, b);
	struct way collector = *w;

	while (lg_next_row(&w->c->scene, &spans)) {
		if (w->c->t->span.kind[spans.row] != LG_SPAN_GC)
			continue;
		run_or_chore(w, a, spans.from);
		collector.row = spans.row;
		add(&collector, spans.from, spans.to, LG_END_GC, w->thr, LG_PROOF_SCHED, 0);
		spans.a = a = spans.to;
	}
	run_or_chore(w, a, b);
}

/* Ready, and nobody has the CPU. */
static void beside_idle_cpu(const struct way *w, int64_t a, int64_t b, bool left_out)
{
	bool quota;

	if (b - a < WAKE_LATENCY_NS) {
		add(w, a, b, LG_END_NONE, 0, LG_PROOF_NONE, 0);
		return;
	}
	quota = lg_quota_used_up(w->c, a, b);
	add(w, a, b, quota || left_out ? LG_END_QUOTA : LG_END_UNKNOWN, 0,
	    quota ? LG_PROOF_OWNER : LG_PROOF_NONE, quota || left_out);
}

/* For how long of the row nobody ran on that CPU. */
static int64_t idle_during(const struct lg_case *c, lg_thr thr, uint32_t row, int32_t cpu)
{
	int64_t a = c->t->state.ts[row], b = lg_row_end(c->t, a, c->t->state.dur[row]), idle = b - a;
	struct lg_rows runs = lg_runs_in(&c->scene, thr, cpu, a, b);

	while (lg_next_row(&c->scene, &runs))
		idle -= runs.to - runs.from;
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
static void follow_runnable(const struct way *w, int64_t a, int64_t b)
{
	const struct lg_state_tab *s = &w->c->t->state;
	int32_t cpu = s->cpu[w->row];
	struct lg_rows runs;

	if (cpu < 0) {
		uint32_t next = lg_index_state_at(w->c->idx, w->thr,
						  lg_row_end(w->c->t, s->ts[w->row], s->dur[w->row]));

		cpu = next == LG_NO_ROW ? -1 : s->cpu[next];
	}
	if (is_left_out(w->c, w->thr, w->row, cpu)) {
		beside_idle_cpu(w, a, b, true);
		return;
	}
	runs = lg_runs_in(&w->c->scene, w->thr, cpu, a, b);
	while (lg_next_row(&w->c->scene, &runs)) {
		lg_thr by = s->thr[runs.row];

		if (by == w->thr || w->c->t->thread.flags[by] & LG_THREAD_IDLE)
			continue;
		beside_idle_cpu(w, a, runs.from, false);
		add(w, runs.from, runs.to, LG_END_CPU, by, LG_PROOF_SCHED, 1);
		runs.a = a = runs.to;
	}
	beside_idle_cpu(w, a, b, false);
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

/* What a copy of thr's process took down again meanwhile (chores.c) is thr's own, as the fork is. */
static void own_copies(const struct lg_case *c, lg_thr thr, struct lg_pieces *out, size_t from)
{
	for (size_t i = from; i < out->n; i++)
		if (out->v[i].end == LG_END_FORK && !c->rank_of_thr[out->v[i].of])
			out->v[i].of = thr;
}

/* Of a piece that says nobody else is why: did holder sleep then, and had Python's lock? */
static bool sleeps_with_gil(const struct lg_case *c, lg_thr holder, const struct lg_piece *p)
{
	return (p->end == LG_END_SLEEP || p->end == LG_END_UNKNOWN) && p->row != UINT32_MAX &&
	       c->t->state.thr[p->row] == holder && c->t->state.flags[p->row] & LG_STATE_GIL_HELD;
}

/*
 * It waited for Python's lock: what the holder computed meanwhile is the cause, and so is that it slept with
 * the lock; what the holder itself waited for (a CPU, a disk) stays what it is.
 */
static void follow_gil(struct lg_case *c, const struct lg_gil_wait *w, int64_t a, int64_t b, int hops,
		       struct lg_pieces *out)
{
	const struct lg_trace *t = c->t;
	size_t mark = out->n;

	lg_follow(c, w->holder, a, b, hops + 1, out);
	/* What makes a batch in a loader's worker has its lock, and the thread that hands it on gets it in
	 * between: who waits for a batch waits for what makes it. */
	if (t->process.role[t->thread.prc[w->thr]] == LG_ROLE_LOADER)
		return;
	for (size_t i = mark; i < out->n; i++) {
		struct lg_piece *p = &out->v[i];

		if ((p->end != LG_END_RUN || p->thr != w->holder) && !sleeps_with_gil(c, w->holder, p))
			continue;
		p->thr = w->holder;
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
	lg_thr holder = lg_waker_of(c, row);
	struct lg_rows before = lg_states_in(&c->scene, holder, a, b);

	while (a < b) {
		bool waits = false;
		int64_t from = b;

		while (hops < MAX_HOPS && !waits && lg_next_row(&c->scene, &before)) {
			bool blocked = c->t->state.kind[before.row] == LG_BLOCKED;
			lg_thr by = blocked ? lg_waker_of(c, before.row) : 0;

			waits = by && by != of && lg_wait_class_of(c, before.row) == LG_WAIT_FILE_LOCK;
			from = waits ? before.from : b;
		}
		lg_piece_add(c, out, &(struct lg_piece){
			.ts = a, .dur = from - a, .of = of, .thr = holder, .end = LG_END_LOCK,
			.proof = LG_PROOF_OWNER, .kind = LG_PART_BLOCKED, .hops = (uint8_t)(hops + 1),
			.row = UINT32_MAX, .hold = UINT32_MAX, .lock = lg_wait_name_of(c, row) });
		if (waits)
			follow_file_lock(c, of, before.row, from, before.to, hops + 1, out);
		before.a = a = waits ? before.to : b;
	}
}

/* Is it in a collective from a on? Until the last one came that is the last one's time, then the transfer. */
static bool follow_arrival(const struct way *w, const struct lg_arrival *arr, int64_t a, int64_t b)
{
	struct way transfer = *w;
	int64_t cut;

	if (!arr || arr->late_rank == UINT32_MAX)
		return false;
	cut = arr->late_rank == w->c->rank_of_thr[w->thr] - 1 ? a : arr->late_ts;
	cut = cut < a ? a : cut > b ? b : cut;
	if (cut > a)
		lg_follow(w->c, w->c->ranks[arr->late_rank].thr, a, cut, w->hops + 1, w->out);
	transfer.row = arr->span;
	add(&transfer, cut, b, LG_END_COMM, 0, LG_PROOF_SCHED, 1);
	return true;
}

/* Does who ends such a wait of another program answer it? Else it only happened to run. */
static bool is_answer(const struct lg_case *c, enum lg_wait_class class, uint32_t row, lg_thr waker)
{
	switch (class) {
	case LG_WAIT_FUTEX: case LG_WAIT_PIPE: case LG_WAIT_SOCKET: case LG_WAIT_POLL: case LG_WAIT_CHILD:
	case LG_WAIT_ANSWER:
		return true;
	default:
		return class == LG_WAIT_UNKNOWN && c->t->state.stack[row] && is_program(c, waker);
	}
}

/*
 * Text of a recorder without stacks tells neither what a thread waits for nor in which context it was woken:
 * whoever ran may only have been interrupted. Two of those that may be the job, of one name, of whom one runs
 * while the other is woken, are ranks that wait for each other.
 */
static lg_thr peer_of(const struct lg_case *c, uint32_t row, lg_thr thr)
{
	const struct lg_trace *t = c->t;
	lg_thr by = t->state.waker[row];
	bool told = t->state.stack[row] || t->state.waker_ctx[row] != LG_CTX_UNKNOWN;

	return !told && by && by != thr && c->rank_of_thr[thr] && c->rank_of_thr[by] &&
	       t->thread.comm[thr] == t->thread.comm[by] ? by : 0;
}

/* Blocked and not on a kernel lock. */
static void follow_sleep(const struct way *w, int64_t a, int64_t b)
{
	struct lg_case *c = w->c;
	const struct lg_state_tab *s = &c->t->state;
	enum lg_wait_class class = lg_wait_class_of(c, w->row);
	uint32_t r = c->rank_of_thr[w->thr];
	const struct lg_arrival *arr = r ? lg_arrival_at(&c->ranks[r - 1], a) : NULL;
	lg_thr peer = class == LG_WAIT_UNKNOWN ? peer_of(c, w->row, w->thr) : 0;
	lg_thr waker = peer ?: lg_waker_of(c, w->row), by;
	enum lg_proof proof = LG_PROOF_SCHED;
	bool ours = waker && (peer || same_job(c, w->thr, waker));
	size_t mark = w->out->n;

	if (class == LG_WAIT_DISK) {
		add(w, a, b, LG_END_IO, 0, LG_PROOF_SCHED, 1);
	} else if (class == LG_WAIT_STOP) {
		by = stopper_of(c, w->thr, s->ts[w->row]);
		by = by ?: resumed_by(c, w->thr, w->row, &proof);
		add(w, a, b, LG_END_STOP, by, proof, 1);
	} else if (class == LG_WAIT_SLEEP) {
		add(w, a, b, LG_END_SLEEP, w->thr, LG_PROOF_SCHED, 0);
	} else if (class == LG_WAIT_RECLAIM) {
		add(w, a, b, LG_END_RECLAIM, 0, LG_PROOF_SCHED, 1);
	} else if (class == LG_WAIT_FILE_LOCK && waker) {
		follow_file_lock(c, w->thr, w->row, a, b, w->hops, w->out);
	} else if (follow_arrival(w, arr, a, b)) {
		return;
	} else if (waker && !ours && lg_until_own_timer(c, w->row)) {
		add(w, a, b, LG_END_SLEEP, w->thr, LG_PROOF_SCHED, 0);
	} else if (waker && (ours || is_answer(c, class, w->row, waker))) {
		lg_follow(c, waker, a, b, w->hops + 1, w->out);
		own_copies(c, w->thr, w->out, mark);
		if (!ours)
			blame_peer(c, w->thr, w->row, w->out, mark);
	} else {
		bool irq = s->waker_ctx[w->row] == LG_CTX_SOFTIRQ || s->waker_ctx[w->row] == LG_CTX_HARDIRQ;
		bool net = arr || (irq && (class == LG_WAIT_SOCKET || class == LG_WAIT_POLL));

		add(w, a, b, net ? LG_END_NET : LG_END_UNKNOWN, 0, LG_PROOF_NONE, 0);
	}
}

static void follow_blocked(const struct way *w, int64_t a, int64_t b)
{
	const struct lg_span_tab *s = &w->c->t->span;
	const struct lg_gil_wait *gil = lg_gil_wait_in(w->c, w->thr, a, b);

	if (gil && gil->from <= a && gil->end >= b) {
		follow_gil(w->c, gil, a, b, w->hops, w->out);
		return;
	}
	if (gil && gil->from > a) { /* somebody had it before that holder */
		follow_sleep(w, a, gil->from);
		follow_blocked(w, gil->from, b);
		return;
	}
	while (a < b) {
		uint32_t wait = lg_lock_wait_in(w->c, w->thr, a, b);
		int64_t from, to;

		if (wait == UINT32_MAX) {
			follow_sleep(w, a, b);
			return;
		}
		from = s->ts[wait] > a ? s->ts[wait] : a;
		to = lg_row_end(w->c->t, s->ts[wait], s->dur[wait]);
		to = to > b ? b : to;
		if (from > a)
			follow_sleep(w, a, from);
		lg_lock_pieces(w->c, wait, w->thr, from, to, w->hops, w->out);
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
	p->thr = p->thr ?: p->of; /* who waits for its own writes */
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

/* w->thr, of which no state is known in [a, b). */
static void follow_nothing(const struct way *w, int64_t a, int64_t b)
{
	struct way none = *w;

	none.kind = LG_PART_UNEXPLAINED;
	none.row = UINT32_MAX;
	unexplained(&none, a, b);
}

static void follow_state(struct way *w, int64_t a, int64_t b)
{
	switch (w->c->t->state.kind[w->row]) {
	case LG_RUNNING:
		w->kind = LG_PART_RUNNING;
		follow_running(w, a, b);
		break;
	case LG_RUNNABLE:
		w->kind = LG_PART_RUNNABLE;
		follow_runnable(w, a, b);
		break;
	case LG_BLOCKED:
		w->kind = LG_PART_BLOCKED;
		follow_blocked(w, a, b);
		break;
	default:
		w->kind = LG_PART_UNEXPLAINED;
		unexplained(w, a, b);
	}
}

void lg_follow(struct lg_case *c, lg_thr thr, int64_t a, int64_t b, int hops, struct lg_pieces *out)
{
	const struct lg_rank *r = c->rank_of_thr[thr] ? &c->ranks[c->rank_of_thr[thr] - 1] : NULL;
	struct way w = { .c = c, .out = out, .thr = thr, .hops = hops };
	struct lg_rows states = lg_states_in(&c->scene, thr, a, b);

	while (hops < MAX_HOPS && !c->failed && lg_next_row(&c->scene, &states)) {
		w.row = states.row;
		follow_nothing(&w, a, states.from);
		for (int64_t from = states.from, next; from < states.to; from = next) {
			size_t mark = out->n;

			next = r ? lg_stage_next(r, from) : states.to;
			next = next < states.to ? next : states.to;
			follow_state(&w, from, next);
			if (r)
				restage(c, r, out, mark, lg_stage_at(r, from));
		}
		states.a = a = states.to;
	}
	follow_nothing(&w, a, b);
}
