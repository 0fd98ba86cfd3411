/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_turns.c - CPU samples as a flame chart, for a sink that is told what closes and what opens.
 *
 * What a sample opens and closes follows from it and the one before. So the walk only cuts the samples
 * of a thread into parts and makes their frames known; each part is looked at where it is written.
 *
 * I1  What a part finds open is what the one before leaves open: both ask joined().
 */
#include "report/timeline_internal.h"

/* SLICES: that a sample opens, roughly: so much work is one. What a part's samples become stays in the
 * cache until it is written. */
enum { AT_ONCE = 256, SLICES = 8, PART = 1024 };

/* Does the sample at ts go on with what one before it leaves open at `end`? In front of the window nothing
 * is drawn, and at its end everything ends. */
static bool joined(const struct lg_timeline *c, int64_t end, int64_t ts)
{
	return end == ts && ts > c->w.from && ts < c->w.to;
}

/* What the sample in front of p, of the same thread, leaves open for one at ts. */
static void find_open(const struct lg_timeline *c, lg_thr thr, uint32_t p, int64_t ts, struct tl_open *open)
{
	uint32_t first = c->x->sample_off[thr], to = c->x->sample_off[thr + 1];
	size_t same;

	while (p > first && !tl_is_tick(c->t, c->x->sample[p - 1]))
		p--;
	if (p > first && joined(c, tl_tick_at(c, p - 1, to).end, ts))
		open->depth = tl_stack_frames(c->t, open, c->t->sample.stack[c->x->sample[p - 1]], &same);
}

static void write_rows(const struct tl_part *p, struct lg_pen *pen)
{
	const struct lg_timeline *c = p->c;
	const struct lg_sample_tab *s = &c->t->sample;
	uint32_t rows[AT_ONCE];
	size_t n = 0;

	for (uint32_t i = p->sample; i < p->samples; i++) {
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

void tl_turns_write(const struct tl_part *p, struct lg_pen *pen)
{
	const struct lg_timeline *c = p->c;
	const struct lg_tl_sink *sink = c->sink;
	uint32_t to = c->x->sample_off[p->track.thr + 1];
	struct tl_open open = { .end = INT64_MIN };
	struct tl_tick k;
	bool started = false;

	if (sink->samples)
		write_rows(p, pen);
	for (uint32_t i = p->sample; i < p->samples; i = k.next) {
		lg_stk stk = c->t->sample.stack[c->x->sample[i]];
		size_t was, n, same;

		tl_fetch(c, i, to);
		k = tl_tick_at(c, i, to); /* a part begins with a tick */
		if (!tl_clip(c, &k.ts, &k.end))
			continue;
		if (!started) {
			sink->start(c->self, pen, &p->track);
			find_open(c, p->track.thr, i, k.ts, &open);
			open.end = k.ts;
			started = true;
		}
		was = open.depth;
		if (k.ts != open.end) /* a gap: all of it ends */
			open.depth = 0;
		n = tl_stack_frames(c->t, &open, stk, &same);
		if (was > same || n > same)
			sink->turn(c->self, pen, open.end, was - same, k.ts, &open.frame[same], n - same);
		open.depth = n;
		open.end = k.end;
	}
	if (started && (k.next >= to || !joined(c, open.end, c->t->sample.ts[c->x->sample[k.next]])))
		sink->turn(c->self, pen, open.end, open.depth, 0, NULL, 0);
}

static void cut(struct lg_timeline *c, const struct lg_tl_track *track, uint32_t from, uint32_t to)
{
	tl_part_add(c, &(struct tl_part){ .track = *track, .sample = from, .samples = to });
	c->batch[c->now].n += (size_t)(to - from) * SLICES;
	if (!c->failed)
		tl_batch_write(c, false);
}

void tl_turns(struct lg_timeline *c, lg_thr thr)
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
