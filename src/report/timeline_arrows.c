/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_arrows.c - who woke, held up and launched whom.
 *
 * Readers of Chrome JSON draw an arrow from slice to slice: to them one that begins or ends where none is
 * open is an error. So what is drawn is noted, and each end of an arrow stands on the lane that suits it best
 * of those with a slice at that moment.
 */
#include "base/alloc.h"
#include "report/timeline_internal.h"

/* A new list for a track, whose slices come in one go. */
static struct tl_opens *begin_track(struct lg_timeline *c, uint64_t id)
{
	if (lg_grow(&c->opens, &c->opens_cap, c->n_opens + 1, sizeof *c->opens) ||
	    lg_map_set(&c->opens_of, id, (uint32_t)c->n_opens + 1)) {
		c->failed = LG_E_NOMEM;
		return NULL;
	}
	c->opens[c->n_opens] = (struct tl_opens){ .track = id, .first = c->n_open };
	return &c->opens[c->n_opens++];
}

void tl_note_open(struct lg_timeline *c, const struct lg_tl_track *t, int64_t ts, int64_t end)
{
	struct tl_opens *of = c->n_opens ? &c->opens[c->n_opens - 1] : NULL;
	struct tl_open *last;

	if (t->overlap || ts == end) /* async events and instants, to Chrome */
		return;
	if (!of || of->track != t->id)
		of = begin_track(c, t->id);
	if (!of)
		return;
	last = of->n ? &c->open[c->n_open - 1] : NULL;
	if (last && ts <= last->end) {
		last->end = end > last->end ? end : last->end;
		return;
	}
	if (lg_grow(&c->open, &c->open_cap, c->n_open + 1, sizeof *c->open)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	c->open[c->n_open++] = (struct tl_open){ ts, end };
	of->n++;
}

/* A slice that ends at ts is closed before the arrow comes, one that begins there is open. */
static bool is_open(const struct lg_timeline *c, uint64_t track, int64_t ts)
{
	uint32_t row = lg_map_get(&c->opens_of, track);
	size_t low, high;

	if (!row)
		return false;
	low = c->opens[row - 1].first;
	high = low + c->opens[row - 1].n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (c->open[mid].end <= ts)
			low = mid + 1;
		else
			high = mid;
	}
	return low < c->opens[row - 1].first + c->opens[row - 1].n && c->open[low].ts <= ts;
}

/* Where an arrow of a thread ends: on this lane if a slice is open there. */
static bool find_end(struct lg_timeline *c, lg_thr thr, enum lg_tl_lane lane, int64_t ts,
		     struct lg_tl_track *ret)
{
	const enum lg_tl_lane lanes[] = { lane, LG_LANE_STATE, LG_LANE_MAIN };

	for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
		if (!(c->lane_known[thr] & 1u << lanes[i]))
			continue;
		tl_thread_track(c, thr, lanes[i], 0, ret);
		if (is_open(c, ret->id, ts))
			return true;
	}
	tl_thread_track(c, thr, LG_LANE_MAIN, 0, ret);
	return false;
}

/* The flow table does not widen the trace: an arrow may not leave it. */
static bool is_drawn(const struct lg_timeline *c, int64_t ts)
{
	return ts >= c->w.from && ts < c->w.to && ts >= c->t->first && ts <= c->t->last;
}

struct end {
	lg_thr thr;
	enum lg_tl_lane lane;
	int64_t ts;
};

static void arrow(struct lg_timeline *c, const char *name, struct end from, struct end to)
{
	struct lg_tl_flow f = { .name = name, .ts = from.ts, .ts_to = to.ts };
	struct lg_tl_track a, b;
	bool bound;

	if (!from.thr || !to.thr || !is_drawn(c, from.ts) || !is_drawn(c, to.ts))
		return;
	bound = find_end(c, from.thr, from.lane, from.ts, &a);
	f.bound = find_end(c, to.thr, to.lane, to.ts, &b) && bound && from.ts <= to.ts;
	f.id = ++c->flow_id;
	f.from = &a;
	f.to = &b;
	c->sink->flow(c->self, &f);
}

void tl_flow_onto(struct lg_timeline *c, const char *name, uint32_t flow, const struct lg_tl_track *to)
{
	const struct lg_flow_tab *t = &c->t->flow;
	struct lg_tl_flow f = { .name = name, .to = to, .ts = t->ts[flow], .ts_to = t->ts_to[flow] };
	struct lg_tl_track a;

	if (!t->thr[flow] || !is_drawn(c, f.ts) || !is_drawn(c, f.ts_to))
		return;
	f.bound = find_end(c, t->thr[flow], LG_LANE_MAIN, f.ts, &a) && is_open(c, to->id, f.ts_to) &&
		  f.ts <= f.ts_to;
	f.id = ++c->flow_id;
	f.from = &a;
	c->sink->flow(c->self, &f);
}

/* Waker -> woken, at the wakeup; not from interrupts, whose current task did nothing. */
static void wakes(struct lg_timeline *c)
{
	const struct lg_state_tab *s = &c->t->state;

	for (size_t i = 0; i < s->n && !c->failed; i++) {
		int64_t at;

		if (s->kind[i] != LG_BLOCKED || !s->waker[i] || s->dur[i] < 0 ||
		    s->waker_ctx[i] > LG_CTX_TASK || s->flags[i] & LG_STATE_SUMMED ||
		    c->t->thread.flags[s->waker[i]] & LG_THREAD_IDLE)
			continue;
		at = s->ts[i] + s->dur[i];
		arrow(c, "wake", (struct end){ s->waker[i], LG_LANE_STATE, at },
		      (struct end){ s->thr[i], LG_LANE_STATE, at });
	}
}

/* Holder -> waiter, at the moment the waiter starts to wait: who stands in whose way. */
static void locks(struct lg_timeline *c)
{
	const struct lg_span_tab *s = &c->t->span;

	for (size_t i = 0; i < s->n && !c->failed; i++)
		if (s->kind[i] == LG_SPAN_LOCK_WAIT && s->peer[i] && s->peer[i] != s->thr[i] &&
		    !s->track[i])
			arrow(c, "lock", (struct end){ s->peer[i], LG_LANE_LOCK_HOLD, s->ts[i] },
			      (struct end){ s->thr[i], LG_LANE_LOCK_WAIT, s->ts[i] });
}

void tl_flows(struct lg_timeline *c)
{
	static const char *const names[] = { "flow", "wake", "lock", "launch", "collective" };
	const struct lg_flow_tab *f = &c->t->flow;
	bool have[5] = { 0 };

	for (size_t i = 0; i < f->n && !c->failed; i++) {
		unsigned kind = f->kind[i] < 5 ? f->kind[i] : 0;
		enum lg_tl_lane lane = kind == LG_FLOW_WAKE || kind == LG_FLOW_LOCK ? LG_LANE_STATE :
				       LG_LANE_MAIN;

		have[kind] = true;
		arrow(c, names[kind], (struct end){ f->thr[i], lane, f->ts[i] },
		      (struct end){ f->thr_to[i], lane, f->ts_to[i] });
	}
	/* Most sources give wakers and holders as columns of the rows themselves. */
	if (!have[LG_FLOW_WAKE])
		wakes(c);
	if (!have[LG_FLOW_LOCK])
		locks(c);
}
