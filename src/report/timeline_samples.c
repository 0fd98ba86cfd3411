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
 * I1  The open slices are items[item[0..depth)]; they end at `end` unless the next sample goes on.
 * I2  An item's end is set once, when its slice closes.
 */
struct flame {
	struct lg_timeline *c;
	lg_frm open[DEPTH_MAX];
	size_t item[DEPTH_MAX]; /* in c->items: its row holds the frame */
	size_t depth;
	int64_t end;
	lg_stk stack; /* whose frames are open */
};

static size_t frames_of(const struct lg_trace *t, lg_stk stk, lg_frm *out)
{
	size_t depth = t->stack.depth[stk], n = depth < DEPTH_MAX ? depth : DEPTH_MAX, i = depth;

	/* Outermost first; what is too deep is cut at the inner end. */
	for (; stk && i; stk = t->stack.parent[stk])
		if (--i < n)
			out[i] = t->stack.frame[stk];
	return stk || i ? 0 : n;
}

static void close_from(struct flame *f, size_t depth)
{
	while (f->depth > depth)
		f->c->items[f->item[--f->depth]].end = f->end;
}

/* The slices are collected first (opening order is nesting order) and given away at the end of
 * the thread, because a slice's end is known only later. */
static bool add_sample(struct flame *f, const lg_frm *frames, size_t n, int64_t ts)
{
	struct lg_timeline *c = f->c;
	size_t same = 0;

	while (same < f->depth && same < n && f->open[same] == frames[same])
		same++;
	close_from(f, same);
	if (lg_grow(&c->items, &c->items_cap, c->n_items + n - same, sizeof *c->items)) {
		c->failed = LG_E_NOMEM;
		return false;
	}
	for (size_t i = same; i < n; i++) {
		f->open[i] = frames[i];
		f->item[i] = c->n_items;
		c->items[c->n_items++] = (struct tl_item){ .ts = ts, .row = frames[i] };
	}
	f->depth = n;
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

	if (!c->n_items)
		return;
	tl_thread_track(c, thr, LG_LANE_SAMPLE, 0, &track);
	for (size_t i = 0; i < c->n_items; i++) {
		const struct tl_item *it = &c->items[i];
		int64_t ts = it->ts, end = it->end;

		if (!tl_clip(c, &ts, &end))
			continue;
		tl_args_reset(c);
		if (f->dso[it->row])
			tl_arg_pool(c, "dso", f->dso[it->row]);
		tl_arg_source(c, it->row);
		tl_slice(c, &track, ts, end, tl_frame(c, it->row, name, sizeof name),
			 tl_id(TL_ID_FRAME, it->row), cats[f->kind[it->row] < 4 ? f->kind[it->row] : 0],
			 colour_of(f->kind[it->row]));
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
	lg_frm *frames;
	struct lg_tl_track thread = { 0 }, lane = { 0 };

	if (from == to)
		return;
	f = lg_calloc(1, sizeof *f);
	frames = lg_calloc(DEPTH_MAX, sizeof *frames);
	if (!f || !frames) {
		c->failed = LG_E_NOMEM;
		goto done;
	}
	f->c = c;
	f->end = INT64_MIN;
	c->n_items = 0;
	for (uint32_t p = from; p < to && !c->failed; p++) {
		uint32_t row = c->x->sample[p], next = p + 1;
		int64_t ts = s->ts[row], end;
		size_t n;

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
		if (!f->depth || s->stack[row] != f->stack) {
			n = frames_of(c->t, s->stack[row], frames);
			if (!add_sample(f, frames, n, ts))
				break;
			f->stack = s->stack[row];
		}
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
done:
	lg_free(f);
	lg_free(frames);
}
