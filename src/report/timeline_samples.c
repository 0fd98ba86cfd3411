/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_samples.c - CPU samples as a flame chart: slice by slice (turns: timeline_turns.c).
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

enum { GAPS_MAX = 1 << 14 };
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

size_t tl_stack_frames(const struct lg_trace *t, struct tl_open *open, lg_stk stk, size_t *ret_same)
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

/*
 * I1  The open slices are flames[item[0..depth)]; they end at `end` unless the next sample goes on.
 * I2  A slice's end is set once, when it closes.
 */
struct flame {
	struct lg_timeline *c;
	struct tl_batch *b;
	struct tl_open open;
	size_t item[TL_DEPTH];
	bool fresh; /* the sink may not know all frames of the slices that were not given away */
};

static void close_from(struct flame *f, size_t depth)
{
	while (f->open.depth > depth)
		f->b->flames[f->item[--f->open.depth]].end = f->open.end;
}

/* The slices are collected first (opening order is nesting order) and given away at the end of
 * the thread, because a slice's end is known only later. */
static bool add_sample(struct flame *f, int64_t ts, lg_stk stk)
{
	struct lg_timeline *c = f->c;
	struct tl_batch *b = f->b;
	size_t same, n = tl_stack_frames(c->t, &f->open, stk, &same);

	close_from(f, same);
	if (lg_grow(&b->flames, &b->cap, b->n + n - same, sizeof *b->flames)) {
		c->failed = LG_E_NOMEM;
		return false;
	}
	for (size_t i = same; i < n; i++) {
		lg_frm frame = f->open.frame[i];

		f->item[i] = b->n;
		b->flames[b->n++] = (struct lg_tl_slice){ .ts = ts, .frame = frame };
		f->fresh |= c->known && c->known[frame] != 1;
	}
	f->open.depth = n;
	return true;
}

static const char *colour_of(uint32_t kind)
{
	return kind == LG_FRAME_KERNEL ? "rail_response" : kind == LG_FRAME_PYTHON ? "rail_idle" : NULL;
}

/* What says nothing that the slice's category and name do not: with it, most events of a system-wide file
 * would be a fifth longer. */
static bool is_plain_dso(const char *dso)
{
	return !*dso || !strcmp(dso, "[kernel.kallsyms]") || !strcmp(dso, "[unknown]");
}

/* All of a slice but its place and times; name is for texts that are not kept. */
static void describe(struct lg_timeline *c, lg_frm frame, struct lg_tl_event *e, char name[TL_FRAME])
{
	static const char *const cats[] = { "sample,user", "sample,kernel", "sample,python",
					    "sample,inlined" };
	const struct lg_frame_tab *f = &c->t->frame;

	tl_args_reset(c);
	if (!is_plain_dso(lg_string(c->t, f->dso[frame])))
		tl_arg_pool(c, "dso", f->dso[frame]);
	tl_arg_source(c, frame);
	e->name = tl_frame(c, frame, name, TL_FRAME);
	e->name_id = tl_id(TL_ID_FRAME, frame);
	e->cat = cats[f->kind[frame] < 4 ? f->kind[frame] : 0];
	e->colour = colour_of(f->kind[frame]);
	e->args = c->args;
	e->n_args = c->n_args;
}

/* Is what slices of this frame consist of known to the sink? */
static bool knows(struct lg_timeline *c, lg_frm frame)
{
	if (!c->known[frame]) {
		char name[TL_FRAME];
		struct lg_tl_event e = { .frame = frame };

		describe(c, frame, &e, name);
		c->known[frame] = c->sink->know(c->self, &e) ? 1 : 2;
	}
	return c->known[frame] == 1;
}

void tl_know_stack(struct lg_timeline *c, lg_stk stk)
{
	for (; stk && !c->stack_known[stk]; stk = c->t->stack.parent[stk]) {
		c->stack_known[stk] = 1;
		(void)knows(c, c->t->stack.frame[stk]);
	}
}

/* Are all frames of the slices that will be drawn? */
static bool all_known(struct lg_timeline *c, const struct tl_batch *b, size_t from)
{
	for (size_t i = from; i < b->n; i++) {
		struct lg_tl_slice it = b->flames[i];

		if (c->known[it.frame] != 1 && tl_clip(c, &it.ts, &it.end) && !knows(c, it.frame))
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

/* The thread's slices, from `from` on: now, or with its batch. */
static void give_away(struct flame *f, lg_thr thr, size_t from)
{
	struct lg_timeline *c = f->c;
	struct tl_batch *b = f->b;
	struct lg_tl_track track = { .thr = thr };
	bool bulk;

	if (b->n == from)
		return;
	tl_thread_track(c, thr, LG_LANE_SAMPLE, 0, &track);
	bulk = c->known && (!f->fresh || all_known(c, b, from));
	f->fresh = false;
	for (size_t i = from; bulk && i < b->n; i += TL_PART)
		tl_part_add(c, &(struct tl_part){ .track = track, .from = i,
						  .to = b->n - i < TL_PART ? b->n : i + TL_PART });
	if (!bulk) {
		emit(c, b, from, &track);
		b->n = from;
	}
}

void tl_tracepoint(struct lg_timeline *c, lg_thr thr, struct lg_tl_track *track, uint32_t row)
{
	const struct lg_sample_tab *s = &c->t->sample;

	if (s->flags[row] & LG_SAMPLE_IDLE || s->ts[row] < c->w.from || s->ts[row] >= c->w.to)
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

/* Slice by slice, each with its end. */
static void flames(struct lg_timeline *c, lg_thr thr)
{
	uint32_t to = c->x->sample_off[thr + 1];
	struct flame *f = lg_calloc(1, sizeof *f);
	struct lg_tl_track lane = { 0 };
	struct tl_tick k;
	size_t first;

	if (!f) {
		c->failed = LG_E_NOMEM;
		return;
	}
	f->c = c;
	f->b = &c->batch[c->now];
	f->open.end = INT64_MIN;
	first = f->b->n;
	for (uint32_t p = c->x->sample_off[thr]; p < to && !c->failed; p++) {
		uint32_t row = c->x->sample[p];

		tl_fetch(c, p, to);
		if (!tl_is_tick(c->t, row)) {
			tl_tracepoint(c, thr, &lane, row);
			continue;
		}
		k = tl_tick_at(c, p, to);
		if (k.ts != f->open.end)
			close_from(f, 0);
		/* Nothing is open: what there is need not wait for the thread's end. */
		if (!f->open.depth && c->known && f->b->n >= c->batch_size) {
			give_away(f, thr, first);
			tl_batch_write(c, false);
			f->b = &c->batch[c->now];
			first = 0;
		}
		if (c->failed || !add_sample(f, k.ts, c->t->sample.stack[row]))
			break;
		f->open.end = k.end;
	}
	close_from(f, 0);
	if (!c->failed)
		give_away(f, thr, first);
	lg_free(f);
}

void tl_samples(struct lg_timeline *c, lg_thr thr)
{
	if (c->x->sample_off[thr] == c->x->sample_off[thr + 1])
		return;
	if (c->sink->turn)
		tl_turns(c, thr);
	else
		flames(c, thr);
	if (!c->failed)
		tl_batch_write(c, false);
}
