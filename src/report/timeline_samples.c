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
#include "base/median.h"
#include "report/timeline_internal.h"

enum { DEPTH_MAX = 512, GAPS_MAX = 1 << 14 };
#define DEFAULT_PERIOD (INT64_C(1000000000) / 99) /* record's default frequency */

/*
 * The sampling period in ns: the median weight of clock events, which is the period by
 * definition; for other events the lower quartile of the distances within threads (a busy
 * thread's samples are one period apart, idle gaps only make distances longer).
 */
int64_t tl_sample_period(const struct lg_timeline *c)
{
	const struct lg_sample_tab *s = &c->t->sample;
	size_t stride = s->n / GAPS_MAX + 1, n = 0, n_weight = 0;
	lg_str event = 0; /* that is_clock is of */
	bool is_clock = false;
	int64_t *v = lg_calloc(GAPS_MAX, sizeof *v), *w = lg_calloc(GAPS_MAX, sizeof *w);
	int64_t period = DEFAULT_PERIOD;

	for (size_t p = 1; v && w && p < s->n; p += stride) {
		uint32_t row = c->x->sample[p], before = c->x->sample[p - 1];

		if (!tl_is_tick(c->t, row))
			continue;
		if (s->event[row] != event) {
			event = s->event[row];
			is_clock = strstr(lg_string(c->t, event), "clock");
		}
		if (is_clock && s->weight[row] && s->weight[row] < INT64_C(1) << 40 &&
		    n_weight < GAPS_MAX)
			w[n_weight++] = (int64_t)s->weight[row];
		if (s->thr[row] == s->thr[before] && n < GAPS_MAX &&
		    !__builtin_sub_overflow(s->ts[row], s->ts[before], &v[n]) && v[n] > 0)
			n++;
	}
	if (n_weight) {
		period = lg_select_i64(w, n_weight, n_weight / 2);
	} else if (n >= 8) {
		period = lg_select_i64(v, n, n / 4);
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
	struct tl_batch *b;
	uint32_t pos; /* of the sample being looked at, and its time */
	int64_t ts;
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
		f->b->flames[f->item[--f->depth]].end = f->end;
}

/* The slices are collected first (opening order is nesting order) and given away at the end of
 * the thread, because a slice's end is known only later. */
static bool add_sample(struct flame *f, lg_stk stk)
{
	struct lg_timeline *c = f->c;
	struct tl_batch *b = f->b;
	size_t same, n = frames_of(f, stk, &same);

	while (same < f->depth && same < n && f->open[same] == f->frames[same])
		same++;
	close_from(f, same);
	if (lg_grow(&b->flames, &b->cap, b->n + n - f->depth, sizeof *b->flames)) {
		c->failed = LG_E_NOMEM;
		return false;
	}
	if (c->known && n > f->depth && b->n - b->part[b->n_part - 1].from >= TL_PART) {
		tl_part_end(c, f->pos, f->item, f->depth);
		if (c->failed)
			return false;
	}
	for (size_t i = f->depth; i < n; i++) {
		f->open[i] = f->frames[i];
		f->stk[i] = f->stks[i];
		f->item[i] = b->n;
		b->flames[b->n++] = (struct lg_tl_slice){ .ts = f->ts, .frame = f->frames[i] };
	}
	f->depth = n;
	f->stack = stk;
	return true;
}

static const char *colour_of(uint32_t kind)
{
	return kind == LG_FRAME_KERNEL ? "rail_response" : kind == LG_FRAME_PYTHON ? "rail_idle" : NULL;
}

/* All of a slice but its place and times; name is for texts that are not kept. */
static void describe(struct lg_timeline *c, lg_frm frame, struct lg_tl_event *e, char name[TL_FRAME])
{
	static const char *const cats[] = { "sample,user", "sample,kernel", "sample,python",
					    "sample,inlined" };
	const struct lg_frame_tab *f = &c->t->frame;

	tl_args_reset(c);
	if (f->dso[frame])
		tl_arg_pool(c, "dso", f->dso[frame]);
	tl_arg_source(c, frame);
	e->name = tl_frame(c, frame, name, TL_FRAME);
	e->name_id = tl_id(TL_ID_FRAME, frame);
	e->cat = cats[f->kind[frame] < 4 ? f->kind[frame] : 0];
	e->colour = colour_of(f->kind[frame]);
	e->args = c->args;
	e->n_args = c->n_args;
}

/* Has the sink what the slices that will be drawn consist of? */
static bool known(struct lg_timeline *c, const struct tl_batch *b, size_t from)
{
	char name[TL_FRAME];

	for (size_t i = from; i < b->n; i++) {
		const struct lg_tl_slice *it = &b->flames[i];
		struct lg_tl_event e = { .frame = it->frame, .end = it->end };

		if (__builtin_expect(c->known[it->frame] == 1, 1))
			continue;
		e.ts = it->ts;
		if (!tl_clip(c, &e.ts, &e.end))
			continue;
		if (!c->known[it->frame]) {
			describe(c, it->frame, &e, name);
			c->known[it->frame] = c->sink->know(c->self, &e) ? 1 : 2;
		}
		if (c->known[it->frame] != 1)
			return false;
	}
	return true;
}

/* Slice by slice: for a sink that cannot do it in bulk, or not with these frames. */
static void emit(struct lg_timeline *c, const struct tl_batch *b, size_t from,
		 const struct lg_tl_track *track)
{
	char name[TL_FRAME];

	for (size_t i = from; i < b->n; i++) {
		const struct lg_tl_slice *it = &b->flames[i];
		struct lg_tl_event e = { .track = track, .ts = it->ts, .end = it->end,
					 .frame = it->frame };

		if (!tl_clip(c, &e.ts, &e.end))
			continue;
		describe(c, it->frame, &e, name);
		c->sink->slice(c->self, &e);
	}
	c->sink->track_end(c->self, track);
}

/* The thread's slices, from `from` on, and its samples: now, or with its batch. */
static void give_away(struct flame *f, lg_thr thr, size_t from, size_t first_part, uint32_t end)
{
	struct lg_timeline *c = f->c;
	struct tl_batch *b = f->b;
	struct lg_tl_track track = { .thr = thr };
	uint32_t start;
	bool any = b->n > from;

	if (any)
		tl_thread_track(c, thr, LG_LANE_SAMPLE, 0, &track);
	if (c->known && known(c, b, from)) {
		tl_parts_end(c, first_part, &track, end);
		return;
	}
	if (any)
		emit(c, b, from, &track);
	b->n = from;
	if (!c->known)
		return;
	/* The samples alone are left. */
	start = b->part[first_part].sample;
	b->n_part = first_part;
	tl_part_end(c, start, NULL, 0);
	if (!c->failed)
		tl_parts_end(c, first_part, &track, end);
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

/* A thread's rows and stacks lie all over their tables. */
static inline void fetch(const struct lg_timeline *c, uint32_t p, uint32_t to)
{
	enum { ROW = 16, STACK = 8 };
	const struct lg_sample_tab *s = &c->t->sample;

	if (to - p <= ROW)
		return;
	__builtin_prefetch(&s->ts[c->x->sample[p + ROW]]);
	__builtin_prefetch(&s->flags[c->x->sample[p + ROW]]);
	__builtin_prefetch(&s->stack[c->x->sample[p + ROW]]);
	__builtin_prefetch(&c->t->stack.parent[s->stack[c->x->sample[p + STACK]]]);
	__builtin_prefetch(&c->t->stack.frame[s->stack[c->x->sample[p + STACK]]]);
	__builtin_prefetch(&c->t->stack.depth[s->stack[c->x->sample[p + STACK]]]);
}

void tl_samples(struct lg_timeline *c, lg_thr thr, int64_t period)
{
	const struct lg_sample_tab *s = &c->t->sample;
	uint32_t from = c->x->sample_off[thr], to = c->x->sample_off[thr + 1];
	struct flame *f;
	struct lg_tl_track thread = { 0 }, lane = { 0 };
	size_t first_flame, first_part;

	if (from == to)
		return;
	f = lg_calloc(1, sizeof *f);
	if (!f) {
		c->failed = LG_E_NOMEM;
		return;
	}
	f->c = c;
	f->b = &c->batch[c->now];
	f->end = INT64_MIN;
	first_flame = f->b->n;
	first_part = f->b->n_part;
	if (c->known)
		tl_part_end(c, from, NULL, 0);
	for (uint32_t p = from; p < to && !c->failed; p++) {
		uint32_t row = c->x->sample[p], next = p + 1;
		int64_t ts = s->ts[row], end;

		fetch(c, p, to);
		if (!tl_is_tick(c->t, row)) {
			if (!(s->flags[row] & LG_SAMPLE_IDLE))
				tracepoint(c, thr, &lane, row);
			continue;
		}
		while (next < to && !tl_is_tick(c->t, c->x->sample[next]))
			next++;
		if (__builtin_add_overflow(ts, period, &end))
			end = INT64_MAX;
		/* Up to the next sample, across a gap of up to 1.5 periods. */
		if (next < to && (uint64_t)s->ts[c->x->sample[next]] - (uint64_t)ts <=
					 (uint64_t)period + (uint64_t)period / 2)
			end = s->ts[c->x->sample[next]];
		if (ts != f->end)
			close_from(f, 0);
		/* Nothing is open: what there is need not wait for the thread's end. */
		if (!f->depth && c->known && f->b->n >= c->batch_size) {
			give_away(f, thr, first_flame, first_part, p);
			tl_batch_write(c, false);
			f->b = &c->batch[c->now];
			first_flame = first_part = 0;
			tl_part_end(c, p, NULL, 0);
			if (c->failed)
				break;
		}
		/* Most samples of a busy thread are like the one before. */
		f->pos = p;
		f->ts = ts;
		if ((!f->depth || s->stack[row] != f->stack) && !add_sample(f, s->stack[row]))
			break;
		f->end = end;
		if (c->sink->know_sample && ts >= c->w.from && ts < c->w.to) {
			if (!thread.id)
				tl_thread_track(c, thr, LG_LANE_MAIN, 0, &thread);
			c->sink->know_sample(c->self, &thread, row);
		}
	}
	close_from(f, 0);
	if (!c->failed)
		give_away(f, thr, first_flame, first_part, to);
	lg_free(f);
	if (!c->failed)
		tl_batch_write(c, false);
}
