/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_samples.c - CPU samples as a flame chart.
 *
 * A sample says what ran at one moment. Samples of a thread no further apart than 1.5 periods
 * are joined: a frame that both stacks share, from the outermost on, is one slice. A sample
 * stands for the time until the next one of its thread, at most one period.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/timeline_internal.h"

enum { DEPTH_MAX = 512, GAPS_MAX = 1 << 16 };
#define DEFAULT_PERIOD (INT64_C(1000000000) / 99) /* record's default frequency */

static bool is_tick(const struct lg_trace *t, uint32_t row)
{
	return !(t->sample.flags[row] & (LG_SAMPLE_TRACEPOINT | LG_SAMPLE_OFFCPU | LG_SAMPLE_IDLE));
}

static int by_value(const void *pa, const void *pb)
{
	const int64_t *a = pa, *b = pb;

	return *a < *b ? -1 : *a > *b;
}

/*
 * The sampling period in ns: the median weight of clock events, which is the period by
 * definition; for other events the lower quartile of the distances within threads (a busy
 * thread's samples are one period apart, idle gaps only make distances longer).
 */
int64_t tl_sample_period(const struct lg_timeline *c)
{
	const struct lg_sample_tab *s = &c->t->sample;
	size_t stride = s->n / GAPS_MAX + 1, n = 0, n_weight = 0;
	int64_t *v = lg_calloc(GAPS_MAX, sizeof *v), *w = lg_calloc(GAPS_MAX, sizeof *w);
	int64_t period = DEFAULT_PERIOD;

	for (size_t p = 1; v && w && p < s->n; p += stride) {
		uint32_t row = c->x->sample[p], before = c->x->sample[p - 1];
		const char *event = lg_string(c->t, s->event[row]);

		if (!is_tick(c->t, row))
			continue;
		if (strstr(event, "clock") && s->weight[row] && s->weight[row] < INT64_C(1) << 40 &&
		    n_weight < GAPS_MAX)
			w[n_weight++] = (int64_t)s->weight[row];
		if (s->thr[row] == s->thr[before] && n < GAPS_MAX &&
		    !__builtin_sub_overflow(s->ts[row], s->ts[before], &v[n]) && v[n] > 0)
			n++;
	}
	if (n_weight) {
		qsort(w, n_weight, sizeof *w, by_value);
		period = w[n_weight / 2];
	} else if (n >= 8) {
		qsort(v, n, sizeof *v, by_value);
		period = v[n / 4];
	}
	lg_free(v);
	lg_free(w);
	return period > 0 ? period : DEFAULT_PERIOD;
}

/*
 * I1  The open slices are flames[item[0..depth)]; they end at `end` unless the next sample goes on.
 * I2  A slice's end is set once, when it closes.
 * I3  stk[i] is a stack whose frames are open[0..i].
 */
struct flame {
	struct lg_timeline *c;
	lg_frm open[DEPTH_MAX], frames[DEPTH_MAX]; /* frames: of the sample being looked at */
	lg_stk stk[DEPTH_MAX], stks[DEPTH_MAX];
	size_t item[DEPTH_MAX];
	size_t depth;
	int64_t end;
	lg_stk stack; /* whose frames are open */
};

/* Fill frames and stks, outermost first, from *ret_same on: so many are open as they are. */
static size_t frames_of(struct flame *f, lg_stk stk, size_t *ret_same)
{
	const struct lg_trace *t = f->c->t;
	size_t depth = t->stack.depth[stk], n = depth < DEPTH_MAX ? depth : DEPTH_MAX, i = depth;

	/* What is too deep is cut at the inner end. Two samples mostly share their callers: from the
	 * first common stack on there is nothing to look at. */
	for (; stk && i; stk = t->stack.parent[stk]) {
		if (--i >= n)
			continue;
		if (i < f->depth && f->stk[i] == stk) {
			*ret_same = i + 1;
			return n;
		}
		f->frames[i] = t->stack.frame[stk];
		f->stks[i] = stk;
	}
	*ret_same = 0;
	return stk || i ? 0 : n;
}

static void close_from(struct flame *f, size_t depth)
{
	while (f->depth > depth)
		f->c->flames[f->item[--f->depth]].end = f->end;
}

/* The slices are collected first (opening order is nesting order) and given away at the end of
 * the thread, because a slice's end is known only later. */
static bool add_sample(struct flame *f, lg_stk stk, uint32_t pos)
{
	struct lg_timeline *c = f->c;
	size_t same, n = frames_of(f, stk, &same);

	while (same < f->depth && same < n && f->open[same] == f->frames[same])
		same++;
	close_from(f, same);
	if (lg_grow(&c->flames, &c->flames_cap, c->n_flames + n - f->depth, sizeof *c->flames)) {
		c->failed = LG_E_NOMEM;
		return false;
	}
	for (size_t i = f->depth; i < n; i++) {
		f->open[i] = f->frames[i];
		f->stk[i] = f->stks[i];
		f->item[i] = c->n_flames;
		c->flames[c->n_flames++] = (struct tl_flame){ .first = pos, .frame = f->frames[i] };
	}
	f->depth = n;
	f->stack = stk;
	return true;
}

static const char *colour_of(uint32_t kind)
{
	return kind == LG_FRAME_KERNEL ? "rail_response" : kind == LG_FRAME_PYTHON ? "rail_idle" : NULL;
}

static void emit(struct lg_timeline *c, lg_thr thr)
{
	static const char *const cats[] = { "sample,user", "sample,kernel", "sample,python",
					    "sample,inlined" };
	const struct lg_frame_tab *f = &c->t->frame;
	struct lg_tl_track track;
	char name[TL_FRAME];

	if (!c->n_flames)
		return;
	tl_thread_track(c, thr, LG_LANE_SAMPLE, 0, &track);
	for (size_t i = 0; i < c->n_flames; i++) {
		const struct tl_flame *it = &c->flames[i];
		int64_t ts = c->t->sample.ts[c->x->sample[it->first]], end = it->end;
		lg_frm frame = it->frame;
		struct lg_tl_event e;

		if (!tl_clip(c, &ts, &end))
			continue;
		e = (struct lg_tl_event){ .track = &track, .ts = ts, .end = end, .frame = frame };
		if (c->sink->again && c->sink->again(c->self, &e))
			continue;
		tl_args_reset(c);
		if (f->dso[frame])
			tl_arg_pool(c, "dso", f->dso[frame]);
		tl_arg_source(c, frame);
		e.name = tl_frame(c, frame, name, sizeof name);
		e.name_id = tl_id(TL_ID_FRAME, frame);
		e.cat = cats[f->kind[frame] < 4 ? f->kind[frame] : 0];
		e.colour = colour_of(f->kind[frame]);
		e.args = c->args;
		e.n_args = c->n_args;
		c->sink->slice(c->self, &e);
	}
	c->sink->track_end(c->self, &track);
}

/* Tracepoint samples are moments, not time: instants. */
static void tracepoint(struct lg_timeline *c, lg_thr thr, struct lg_tl_track *track, uint32_t row)
{
	const struct lg_sample_tab *s = &c->t->sample;

	if (s->ts[row] < c->w.from || s->ts[row] >= c->w.to)
		return;
	if (!track->id)
		tl_thread_track(c, thr, LG_LANE_SAMPLE, 0, track);
	tl_args_reset(c);
	if (s->cpu[row] >= 0)
		tl_arg_int(c, "cpu", s->cpu[row]);
	tl_arg_stack(c, "stack", s->stack[row]);
	tl_instant(c, track, s->ts[row], s->event[row] ? lg_string(c->t, s->event[row]) : "event",
		   s->event[row] ? tl_id(TL_ID_POOL, s->event[row]) : 0, "event");
}

void tl_samples(struct lg_timeline *c, lg_thr thr, int64_t period)
{
	const struct lg_sample_tab *s = &c->t->sample;
	uint32_t from = c->x->sample_off[thr], to = c->x->sample_off[thr + 1];
	struct flame *f;
	struct lg_tl_track thread = { 0 }, lane = { 0 };

	if (from == to)
		return;
	f = lg_calloc(1, sizeof *f);
	if (!f) {
		c->failed = LG_E_NOMEM;
		return;
	}
	f->c = c;
	f->end = INT64_MIN;
	c->n_flames = 0;
	for (uint32_t p = from; p < to && !c->failed; p++) {
		uint32_t row = c->x->sample[p], next = p + 1;
		int64_t ts = s->ts[row], end;

		if (!is_tick(c->t, row)) {
			if (!(s->flags[row] & LG_SAMPLE_IDLE))
				tracepoint(c, thr, &lane, row);
			continue;
		}
		while (next < to && !is_tick(c->t, c->x->sample[next]))
			next++;
		if (__builtin_add_overflow(ts, period, &end))
			end = INT64_MAX;
		/* Up to the next sample, across a gap of up to 1.5 periods. */
		if (next < to && (uint64_t)s->ts[c->x->sample[next]] - (uint64_t)ts <=
					 (uint64_t)period + (uint64_t)period / 2)
			end = s->ts[c->x->sample[next]];
		if (ts != f->end)
			close_from(f, 0);
		/* Most samples of a busy thread are like the one before. */
		if ((!f->depth || s->stack[row] != f->stack) && !add_sample(f, s->stack[row], p))
			break;
		f->end = end;
		if (c->sink->sample && ts >= c->w.from && ts < c->w.to) {
			if (!thread.id)
				tl_thread_track(c, thr, LG_LANE_MAIN, 0, &thread);
			c->sink->sample(c->self, &thread, row);
		}
	}
	close_from(f, 0);
	if (!c->failed)
		emit(c, thr);
	lg_free(f);
}
