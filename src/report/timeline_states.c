/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_states.c - running, runnable, blocked: what the scheduler did with a thread. */
#include "report/timeline_internal.h"

#define BLOCKED "blocked: "

/* Each with "blocked: " in front, for both the reason and the slice's name. */
static const char *const reasons[] = {
	[LG_WHY_NONE] = NULL,
	[LG_WHY_PREEMPTED] = BLOCKED "preempted",
	[LG_WHY_WOKEN] = BLOCKED "woken",
	[LG_WHY_NEW] = BLOCKED "new",
	[LG_WHY_SLEEP] = BLOCKED "sleep",
	[LG_WHY_DISK] = BLOCKED "uninterruptible",
	[LG_WHY_IOWAIT] = BLOCKED "io",
	[LG_WHY_STOPPED] = BLOCKED "stopped",
	[LG_WHY_TRACED] = BLOCKED "traced",
	[LG_WHY_DEAD] = BLOCKED "exited",
	[LG_WHY_PARKED] = BLOCKED "parked",
	[LG_WHY_IDLE] = BLOCKED "idle",
};

static const char *ctx_name(uint8_t ctx)
{
	static const char *const names[] = { NULL, "task", "softirq", "hardirq", "nmi" };

	return ctx < 5 ? names[ctx] : NULL;
}

/* Many short slices as one row: most of it the thread may not have run at all. */
static bool only_at_times(const struct lg_state_tab *s, uint32_t row)
{
	return s->kind[row] == LG_RUNNING && s->flags[row] & LG_STATE_SUMMED && s->run[row] < s->dur[row];
}

static const char *colour(const struct lg_state_tab *s, uint32_t row)
{
	if (only_at_times(s, row))
		return "thread_state_unknown";
	switch (s->kind[row]) {
	case LG_RUNNING:
		return "thread_state_running";
	case LG_RUNNABLE:
		return "thread_state_runnable";
	default:
		return s->reason[row] == LG_WHY_IOWAIT ? "thread_state_iowait" :
		       s->reason[row] == LG_WHY_DISK ? "thread_state_uninterruptible" :
						       "thread_state_sleeping";
	}
}

static const char *const kinds[] = { "state unknown", "running", "runnable", "blocked" };

static void emit(struct lg_timeline *c, const struct lg_tl_track *track, uint32_t row, int64_t ts,
		 int64_t end)
{
	const struct lg_state_tab *s = &c->t->state;
	const char *why = s->reason[row] < sizeof reasons / sizeof *reasons ?
			  reasons[s->reason[row]] : NULL;
	const char *ctx = ctx_name(s->waker_ctx[row]);
	const char *name = s->kind[row] == LG_BLOCKED && why ? why : only_at_times(s, row) ? "running at times" :
			   kinds[s->kind[row] < 4 ? s->kind[row] : 0];

	tl_args_reset(c);
	if (why)
		tl_arg_static(c, "reason", why + sizeof BLOCKED - 1);
	if (s->cpu[row] >= 0)
		tl_arg_int(c, "cpu", s->cpu[row]);
	tl_arg_thread(c, "waker", s->waker[row]);
	/* A waker in interrupt context is an arbitrary victim of the interrupt: say so. */
	if (s->waker[row] && ctx)
		tl_arg_static(c, "waker_context", ctx);
	tl_arg_thread(c, "blocker", s->blocker[row]);
	if (s->object[row])
		tl_arg_fmt(c, "object", "0x%llx", (unsigned long long)s->object[row]);
	if (s->flags[row] & LG_STATE_SUMMED) {
		tl_arg_static(c, "summed", "many short slices");
		tl_arg_num(c, "running_inside_ms", (double)s->run[row] / 1e6);
	}
	if (s->flags[row] & LG_STATE_EDGE)
		tl_arg_static(c, "edge", "begins or ends outside the trace");
	if (s->dur[row] < 0)
		tl_arg_static(c, "cut_off", "by the end of the trace");
	tl_arg_stack(c, "stack", s->stack[row]);
	tl_arg_stack(c, "waker_stack", s->waker_stack[row]);
	tl_arg_stack(c, "blocker_stack", s->blocker_stack[row]);
	tl_slice(c, track, ts, end, name, tl_id_static(name), "state", colour(s, row));
	if (c->sink->state)
		c->sink->state(c->self, track, row, ts);
}

void tl_states(struct lg_timeline *c, lg_thr thr)
{
	const struct lg_state_tab *s = &c->t->state;
	struct lg_tl_track track = { 0 };

	/* The idle thread runs on all CPUs at once and says nothing. */
	if (c->t->thread.flags[thr] & LG_THREAD_IDLE || c->x->state_off[thr] == c->x->state_off[thr + 1])
		return;
	/* Rows of a thread do not overlap in what we record; a damaged or foreign input may say
	 * otherwise, so they are dealt to tracks like spans. */
	c->n_items = 0;
	for (uint32_t p = c->x->state_off[thr]; p < c->x->state_off[thr + 1]; p++) {
		uint32_t row = c->x->state[p];

		if (tl_item_add(c, s->ts[row], lg_row_end(c->t, s->ts[row], s->dur[row]), row, 0))
			return;
	}
	if (!c->n_items || tl_deal(c))
		return;
	for (size_t i = 0; i < c->n_items && !c->failed; i++) {
		const struct tl_item *it = &c->items[i];

		if (!i || it->overlap != track.overlap) {
			if (i)
				c->sink->track_end(c->self, &track);
			tl_thread_track(c, thr, LG_LANE_STATE, it->overlap, &track);
		}
		emit(c, &track, it->row, it->ts, it->end);
	}
	c->sink->track_end(c->self, &track);
}
