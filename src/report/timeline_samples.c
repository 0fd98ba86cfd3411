/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_samples.c - what CPU samples say that does not depend on those around them: how far apart they are
 * taken, what a frame shows, those that are moments (the flame chart: timeline_turns.c).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "report/timeline_internal.h"

enum { GAPS_MAX = 1 << 14 };
#define DEFAULT_PERIOD (INT64_C(1000000000) / 99) /* record's default frequency */

/*
 * The sampling period in ns: the median weight of clock events, which is the period by
 * definition; for other events the lower quartile of the distances within threads of those that follow
 * each other (a busy thread's samples are one period apart, idle gaps only make distances longer).
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
		if (s->thr[row] == s->thr[before] && tl_is_tick(c->t, before) && n < GAPS_MAX &&
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

void tl_know_stack(struct lg_timeline *c, lg_stk stk)
{
	for (; stk && !c->stack_known[stk]; stk = c->t->stack.parent[stk]) {
		lg_frm frame = c->t->stack.frame[stk];
		struct lg_tl_event e = { .frame = frame };
		char name[TL_FRAME];

		c->stack_known[stk] = 1;
		if (c->frame_known[frame])
			continue;
		c->frame_known[frame] = 1;
		describe(c, frame, &e, name);
		c->sink->know(c->self, &e);
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
