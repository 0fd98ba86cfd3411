/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_turns.c - CPU samples as a flame chart: what closes and what opens.
 *
 * A sample says what ran at one moment. It stands for the time until the next one of its thread, up to 1.5
 * periods, or for one period. Samples that follow each other are joined: a frame that both stacks share, from
 * the outermost on, is one slice. A sample that stands for no time, as another has the same moment, opens
 * nothing: there are readers that cannot tell where a slice of length 0 belongs.
 *
 * What a sample opens and closes follows from it and the one before. So the walk only cuts the samples
 * of a thread into parts and makes their frames known; each part is looked at where it is written.
 *
 * I1  What a part finds open is what the one before leaves open: both ask joined().
 */
#include <string.h>

#include "report/timeline_internal.h"

/* SLICES: that a sample opens, roughly: so much work is one. What a part's samples become stays in the
 * cache until it is written. */
enum { AT_ONCE = 256, SLICES = 8, PART = 1024 };

/* What is open after a sample, outermost first; what is deeper than this is cut at the inner end. */
struct open {
	lg_frm frame[TL_DEPTH];
	lg_stk stk[TL_DEPTH]; /* whose frames are frame[0..i] */
	lg_frm drawn[TL_DEPTH]; /* frame[], before the sample that is being looked at */
	size_t depth;
	int64_t end;
};

/* Puts a stack's frames into open, all but depth, and returns their number; the first *ret_same go on. */
static size_t stack_frames(const struct lg_trace *t, struct open *open, lg_stk stk, size_t *ret_same)
{
	size_t depth = t->stack.depth[stk], n = depth < TL_DEPTH ? depth : TL_DEPTH, i = depth;
	size_t same = n < open->depth ? n : open->depth;

	for (; stk && i; stk = t->stack.parent[stk]) {
		lg_frm frame = t->stack.frame[stk];

		if (--i >= n)
			continue;
		if (i < open->depth) {
			/* Two samples mostly share their callers: from the first common stack on there is
			 * nothing to look at. */
			if (open->stk[i] == stk) {
				*ret_same = same;
				return n;
			}
			same = open->frame[i] == frame ? same : i;
		}
		open->frame[i] = frame;
		open->stk[i] = stk;
	}
	*ret_same = stk || i ? 0 : same;
	return stk || i ? 0 : n;
}

/* Does the sample at ts go on with what one before it leaves open at `end`? In front of the window nothing
 * is drawn, and at its end everything ends. */
static bool joined(const struct lg_timeline *c, int64_t end, int64_t ts)
{
	return end == ts && ts > c->w.from && ts < c->w.to;
}

/* What the sample in front of p, of the same thread, leaves open for one at ts. */
static void find_open(const struct lg_timeline *c, lg_thr thr, uint32_t p, int64_t ts, struct open *open)
{
	uint32_t first = c->x->sample_off[thr], to = c->x->sample_off[thr + 1];
	int64_t at = c->t->sample.ts[c->x->sample[p]];
	size_t same;

	/* Those of the same moment stand for no time. */
	while (p > first && (!tl_is_tick(c->t, c->x->sample[p - 1]) ||
			     c->t->sample.ts[c->x->sample[p - 1]] == at))
		p--;
	if (p > first && joined(c, tl_tick_at(c, p - 1, to).end, ts))
		open->depth = stack_frames(c->t, open, c->t->sample.stack[c->x->sample[p - 1]], &same);
	memcpy(open->drawn, open->frame, open->depth * sizeof *open->drawn);
}

static void write_rows(const struct tl_part *p, struct lg_pen *pen)
{
	const struct lg_timeline *c = p->c;
	const struct lg_sample_tab *s = &c->t->sample;
	uint32_t rows[AT_ONCE];
	size_t n = 0;

	for (uint32_t i = p->from; i < p->to; i++) {
		uint32_t row = c->x->sample[i];

		if (!tl_is_tick(c->t, row) || s->ts[row] < c->w.from || s->ts[row] >= c->w.to)
			continue;
		rows[n++] = row;
		if (n == AT_ONCE) {
			c->sink->samples(c->self, pen, p->track.thr, rows, n);
			n = 0;
		}
	}
	if (n)
		c->sink->samples(c->self, pen, p->track.thr, rows, n);
}

/* The frames that the sample's stack has, in place of those that the one before left open. */
static void draw(const struct tl_part *p, struct lg_pen *pen, struct open *open, int64_t ts, lg_stk stk)
{
	size_t was = open->depth, same;
	struct lg_tl_turn turn = { .end = open->end, .ts = ts };

	if (ts != open->end) /* a gap: all of it ends */
		open->depth = 0;
	open->depth = stack_frames(p->c->t, open, stk, &same);
	turn.ended = open->drawn + same;
	turn.n_ended = was - same;
	turn.frame = open->frame + same;
	turn.n = open->depth - same;
	if (turn.n_ended || turn.n)
		p->c->sink->turn(p->c->self, pen, &p->track, &turn);
	memcpy(open->drawn + same, turn.frame, turn.n * sizeof *turn.frame);
}

void tl_turns_write(const struct tl_part *p, struct lg_pen *pen)
{
	const struct lg_timeline *c = p->c;
	uint32_t to = c->x->sample_off[p->track.thr + 1];
	struct open open = { .end = INT64_MIN };
	struct tl_tick k = { .next = to };
	bool started = false;

	if (c->sink->samples)
		write_rows(p, pen);
	for (uint32_t i = p->from; i < p->to; i = k.next) {
		tl_fetch(c, i, to);
		k = tl_tick_at(c, i, to); /* a part begins with a tick */
		if (!tl_clip(c, &k.ts, &k.end) || k.ts == k.end)
			continue;
		if (!started) {
			if (c->sink->start)
				c->sink->start(c->self, pen, &p->track);
			find_open(c, p->track.thr, i, k.ts, &open);
			open.end = k.ts;
			started = true;
		}
		draw(p, pen, &open, k.ts, c->t->sample.stack[c->x->sample[i]]);
		open.end = k.end;
	}
	if (started && open.depth &&
	    (k.next >= to || !joined(c, open.end, c->t->sample.ts[c->x->sample[k.next]])))
		c->sink->turn(c->self, pen, &p->track,
			      &(struct lg_tl_turn){ .end = open.end, .ended = open.drawn,
						    .n_ended = open.depth });
}

static void cut(struct lg_timeline *c, const struct lg_tl_track *track, uint32_t from, uint32_t to)
{
	tl_part_add(c, &(struct tl_part){ .track = *track, .from = from, .to = to });
	c->batch[c->now].n += (size_t)(to - from) * SLICES;
	if (!c->failed)
		tl_batch_write(c, false);
}

void tl_samples(struct lg_timeline *c, lg_thr thr)
{
	const struct lg_sample_tab *s = &c->t->sample;
	uint64_t longest = (uint64_t)c->period + (uint64_t)c->period / 2;
	uint32_t to = c->x->sample_off[thr + 1], from = to, p; /* from = to: no part has begun */
	struct lg_tl_track thread = { 0 }, lane = { 0 };

	for (p = c->x->sample_off[thr]; p < to && !c->failed; p++) {
		uint32_t row = c->x->sample[p];

		tl_fetch(c, p, to);
		if (s->ts[row] >= c->w.to) /* and all that come */
			break;
		if (!tl_is_tick(c->t, row)) {
			tl_tracepoint(c, thr, &lane, row);
			continue;
		}
		if (s->ts[row] < c->w.from && (uint64_t)c->w.from - (uint64_t)s->ts[row] > longest)
			continue;
		if (from == to)
			from = p;
		if (!lane.id)
			tl_thread_track(c, thr, LG_LANE_SAMPLE, 0, &lane);
		tl_know_stack(c, s->stack[row]);
		if (c->sink->know_sample && s->ts[row] >= c->w.from) {
			if (!thread.id)
				tl_thread_track(c, thr, LG_LANE_MAIN, 0, &thread);
			c->sink->know_sample(c->self, &thread, row);
		}
		if (p + 1 - from >= PART) {
			cut(c, &lane, from, p + 1);
			from = to;
		}
	}
	if (!c->failed && from < p)
		cut(c, &lane, from, p);
}
