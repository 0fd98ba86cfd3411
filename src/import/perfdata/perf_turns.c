/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_turns.c - what threads did, by what each tells of itself.
 *
 * PERF_RECORD_SWITCH says when a thread left its CPU, whether it could have gone on, and when it came back;
 * not why it waited. sched_switch of a recording of tasks (perf record -p) says when one left and why; the
 * switch back to it is hit by somebody else, whom such a recording does not see. Where both are there each
 * adds what the other lacks. Where only sched_switch is, the next sample of the thread shows that it is back:
 * its clock counts only while it has a CPU (kernel/events/core.c, cpu_clock_event_add()), so it came back
 * one sampling period before that at the earliest. What lies between is not known and gets no row.
 */
#include "import/perfdata/perf_import.h"

enum { THERE_AND_BACK_NS = 1000 }; /* no two switches take less: for so long it waited in any case */

static void state_until(struct lg_pd *p, const struct lg_pd_task *task, int64_t ts)
{
	const struct lg_pd_turn *t = &task->turn;
	struct lg_state_row row = { .ts = t->since, .thr = task->thr, .kind = t->doing,
				    .reason = t->reason, .cpu = t->doing == LG_BLOCKED ? -1 : t->cpu };

	if (t->doing == LG_STATE_NONE || ts <= t->since || t->since < 0 || !task->thr) /* or without a time */
		return;
	row.dur = ts - t->since;
	if (t->doing == LG_BLOCKED)
		row.stack = t->stack;
	if (t->doing != LG_RUNNING) {
		row.waker = t->waker;
		row.waker_ctx = t->waker_ctx;
		row.waker_stack = t->waker_stack;
	}
	lg_add_state(p->b, &row);
}

static void becomes(struct lg_pd *p, struct lg_pd_task *task, int64_t ts, enum lg_state_kind kind,
		    enum lg_state_reason why)
{
	struct lg_pd_turn *t = &task->turn;
	bool waited = t->doing == LG_BLOCKED || t->doing == LG_RUNNABLE;

	if (p->sees_turns && waited && why != LG_WHY_WOKEN) { /* a waking is told in time */
		int64_t all = ts > t->since && t->since >= 0 ? ts - t->since : 0, sure = all - p->turn_grain;

		if (sure < THERE_AND_BACK_NS)
			sure = THERE_AND_BACK_NS;
		state_until(p, task, sure < all ? t->since + sure : ts);
	} else {
		state_until(p, task, ts);
	}
	t->doing = (uint8_t)kind;
	t->reason = (uint8_t)why;
	t->since = ts > t->since ? ts : t->since;
	t->told = false;
	if (kind != LG_RUNNABLE || why != LG_WHY_WOKEN) {
		t->waker = 0;
		t->waker_ctx = LG_CTX_UNKNOWN;
		t->waker_stack = 0;
	}
}

static void leaves(struct lg_pd *p, struct lg_pd_task *task, int64_t ts, enum lg_state_reason why)
{
	becomes(p, task, ts,
		why == LG_WHY_PREEMPTED ? LG_RUNNABLE : why == LG_WHY_DEAD ? LG_STATE_NONE : LG_BLOCKED, why);
}

void lg_pd_turns_switch(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, int32_t cpu, bool out,
			bool preempted)
{
	struct lg_pd_turn *t = &task->turn;

	if (!task->tid)
		return;
	if (!out) {
		becomes(p, task, ts, LG_RUNNING, LG_WHY_NONE);
		t->cpu = cpu;
	} else if (t->told) { /* it left at that time, and why is known */
		t->told = false;
	} else {
		t->cpu = cpu;
		t->stack = 0;
		leaves(p, task, ts, preempted ? LG_WHY_PREEMPTED : LG_WHY_NONE);
	}
}

void lg_pd_turns_leave(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, lg_stk stk, int32_t cpu,
		       enum lg_state_reason why)
{
	if (!task->tid)
		return;
	task->turn.cpu = cpu;
	leaves(p, task, ts, why);
	task->turn.stack = stk;
	task->turn.told = !p->sees_turns;
}

void lg_pd_turns_woke(struct lg_pd *p, int64_t ts, int32_t tid, lg_thr waker, enum lg_ctx ctx, lg_stk stk)
{
	struct lg_pd_task *task = lg_pd_task_find(&p->tasks, tid);
	struct lg_pd_turn *t = task ? &task->turn : NULL;

	if (!t || t->doing != LG_BLOCKED || ts < t->since)
		return;
	t->waker = waker;
	t->waker_ctx = (uint8_t)ctx;
	t->waker_stack = stk;
	becomes(p, task, ts, LG_RUNNABLE, LG_WHY_WOKEN);
	t->cpu = -1;
}

void lg_pd_turns_seen(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, int32_t cpu)
{
	if (task->turn.doing == LG_RUNNING || !task->tid)
		return;
	becomes(p, task, ts, LG_RUNNING, LG_WHY_NONE);
	task->turn.cpu = cpu;
}

void lg_pd_turns_exit(struct lg_pd *p, int64_t ts, int32_t tid)
{
	struct lg_pd_task *task = lg_pd_task_find(&p->tasks, tid);

	if (task && task->turn.doing == LG_RUNNING)
		becomes(p, task, ts, LG_STATE_NONE, LG_WHY_NONE);
}

void lg_pd_turns_gap(struct lg_pd *p, int64_t from, int32_t cpu)
{
	for (size_t i = 0; i < p->tasks.n; i++) {
		struct lg_pd_task *task = &p->tasks.task[i];
		struct lg_pd_turn *t = &task->turn;

		if (t->doing != LG_STATE_NONE &&
		    (cpu < 0 || t->cpu < 0 || t->cpu == cpu || t->doing != LG_RUNNING))
			becomes(p, task, from, LG_STATE_NONE, LG_WHY_NONE);
	}
}

void lg_pd_turns_finish(struct lg_pd *p)
{
	for (size_t i = 0; i < p->tasks.n; i++)
		if (!p->tasks.task[i].ended)
			becomes(p, &p->tasks.task[i], p->last_ts, LG_STATE_NONE, LG_WHY_NONE);
}
