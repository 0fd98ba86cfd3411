/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_spans.c - steps of a log by their lines' stamps, and steps as spans, where the clock is finer than they
 * are.
 *
 * Whether it is, the steps of a thread tell together, when all are known: taking each by itself would keep
 * the slow ones of a log with whole seconds and drop the others.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/median.h"
#include "base/order.h"
#include "import/torchlog/torchlog.h"

enum {
	TICKS = 2,   /* a step that the clock tells nothing of is no longer than so many of its ticks */
	COARSE = 50, /* of fewer ticks, steps seem to differ by several percent that do not */
};
#define OUTSIDE 0.1 /* of the stated time: more is no jitter of a loop */
#define WORTH_A_WORD 0.01 /* of the run */
#define LONGEST_NS 1000000000000000 /* eleven days */

static void add(struct lg_torchlog *l, const struct lg_log_line *line, struct lg_log_span *span)
{
	if (lg_grow(&l->span, &l->cap_span, l->n_span + 1, sizeof *l->span)) {
		lg_builder_fail(l->b);
		return;
	}
	span->ts = line->ts;
	span->tick = l->resolution;
	span->thr = lg_torchlog_thread(l, line);
	span->order = l->n_span;
	span->line = l->lines;
	span->data_ms = (double)NAN;
	l->span[l->n_span++] = *span;
}

void lg_torchlog_span(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number, int64_t dur,
		      int64_t before)
{
	if (line->ts != INT64_MIN && dur > 0)
		add(l, line, &(struct lg_log_span){ .dur = dur, .before = before, .number = number,
						    .steps = 1, .stated = true, .bar = true });
}

void lg_torchlog_stamped_step(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number,
			      int64_t steps, double ms, int64_t before)
{
	bool stated = isfinite(ms);

	add(l, line, &(struct lg_log_span){ .number = number, .steps = steps, .before = before,
					    .stated = stated, .dur = stated ? (int64_t)(ms * 1e6) : 0 });
}

void lg_torchlog_waited(struct lg_torchlog *l, const struct lg_log_line *line, double ms)
{
	/* Its row follows that of the step, which is added when all are known. */
	if (l->n_span && l->span[l->n_span - 1].line == l->lines)
		l->span[l->n_span - 1].data_ms = ms;
	else
		lg_torchlog_counter(l, line, "log.data_ms", "ms", -1, ms);
}

/* How long is it from a to the later b? */
static uint64_t between(int64_t a, int64_t b)
{
	return (uint64_t)b - (uint64_t)a;
}

static void add_value(struct lg_torchlog *l, const struct lg_log_span *s, const char *name, double ms)
{
	struct lg_track_row track = { .kind = LG_TRACK_COUNTER, .name = lg_intern(l->b, name),
				      .prc = lg_thread_process(l->b, s->thr), .index = -1,
				      .unit = lg_intern(l->b, "ms") };

	lg_add_counter(l->b, &(struct lg_counter_row){ .ts = s->ts, .value = ms,
						       .track = lg_track_get(l->b, &track) });
}

static void add_time(struct lg_torchlog *l, const struct lg_log_span *s, double ms)
{
	if (ms > 0)
		add_value(l, s, "log.step_ms", ms);
	if (isfinite(s->data_ms))
		add_value(l, s, "log.data_ms", s->data_ms);
}

/* When the lines of a run were printed. False: out of memory. *ret_tick: of a coarse clock, else 0. */
static bool place_lines(const struct lg_log_span *s, size_t n, struct lg_log_point *p, int64_t *ret_tick)
{
	int64_t tick = 0;

	for (size_t i = 0; i < n; i++) {
		p[i] = (struct lg_log_point){ .stamp = s[i].ts, .at = (double)between(s[0].ts, s[i].ts),
					      .step = i ? p[i - 1].step + s[i].steps : 0 };
		tick = s[i].tick > tick ? s[i].tick : tick;
	}
	*ret_tick = p[n - 1].at < COARSE * (double)tick * (double)p[n - 1].step ? tick : 0;
	return !*ret_tick || lg_torchlog_pull_taut(p, n, tick);
}

/*
 * Of lines that tell by their stamps, the first of which only says since when: dur and, moved, ts. A counter
 * keeps the stamp, by which it is found to be its line's.
 */
static void time_lines(struct lg_torchlog *l, struct lg_log_span *s, size_t n, const struct lg_log_point *p,
		       int64_t tick)
{
	for (size_t i = 0; i < n; i++) {
		double late = p[i].at - (double)between(p[0].stamp, p[i].stamp);
		double dur = i ? (p[i].at - p[i - 1].at) / (double)s[i].steps : 0;

		s[i].steps = i ? s[i].steps : 0;
		s[i].dur = dur > 0 && dur < LONGEST_NS ? (int64_t)dur : 0;
		if (s[i].dur || isfinite(s[i].data_ms))
			add_time(l, &s[i], (double)s[i].dur / 1e6);
		s[i].ts += tick && late > 0 ? (int64_t)(late < (double)tick ? late : (double)tick) : 0;
	}
}

/*
 * Of lines that state how long a step took. Megatron's leaves out what the loop does between them, a save or
 * an evaluation: steps tile the time, so what passed beyond the stated times, and beyond what does so as a
 * rule, counts with the step behind. Returns how many ms.
 */
static double state_lines(struct lg_torchlog *l, const struct lg_log_span *s, size_t n,
			  const struct lg_log_point *p)
{
	LG_AUTOFREE double *beyond = lg_calloc(n + 1, sizeof *beyond);
	double usual = 0, sum = 0;

	for (size_t i = 1; beyond && i < n; i++)
		beyond[i - 1] = p[i].at - p[i - 1].at - (double)s[i].dur * (double)s[i].steps;
	if (beyond && n > 1)
		usual = fmax(0, lg_median_f64(beyond, n - 1));
	for (size_t i = 0; i < n; i++) {
		double stated = (double)s[i].dur * (double)(s[i].steps ? s[i].steps : 1);
		double more = i ? p[i].at - p[i - 1].at - stated - usual : 0;

		more = more > fmax(2 * (double)s[i].tick, OUTSIDE * stated) ? more / 1e6 : 0;
		sum += more;
		add_time(l, &s[i], (double)s[i].dur / 1e6 + (i ? more / (double)s[i].steps : 0));
	}
	return sum;
}

/* Do lines a and the later b lie in one run: do they tell alike, and is it known how far apart they are? */
static bool run_on(const struct lg_log_span *a, const struct lg_log_span *b)
{
	return !b->bar && b->steps && a->stated == b->stated && between(a->ts, b->ts) < INT64_MAX / 2;
}

/* The runs of one thread's lines. */
static bool time_runs(struct lg_torchlog *l, struct lg_log_span *s, size_t n)
{
	lg_prc prc = lg_thread_process(l->b, s->thr);
	struct lg_log_step *of = lg_torchlog_last_step(l, s->thr, 0);
	LG_AUTOFREE struct lg_log_point *p = lg_calloc(n, sizeof *p);
	double outside = 0, all = 0;
	size_t stamped = 0;
	int64_t tick = 0, one;

	for (size_t i = 0, end; p && i < n; i = end) {
		end = i + 1;
		while (!s[i].bar && end < n && run_on(&s[end - 1], &s[end]) &&
		       between(s[i].ts, s[end].ts) < INT64_MAX / 2)
			end++;
		if (s[i].bar)
			continue;
		if (!place_lines(s + i, end - i, p, &one))
			return false;
		if (s[i].stated) {
			outside += state_lines(l, s + i, end - i, p);
			all += p[end - i - 1].at / 1e6;
			continue;
		}
		time_lines(l, s + i, end - i, p, one);
		stamped += end - i - 1;
		tick = one > tick ? one : tick;
	}
	if (of && stamped > of->n_stated)
		lg_meta_set(l->b, prc, "log.step_times", "stamps");
	if (tick)
		lg_meta_setf(l->b, prc, "log.tick_ns", "%lld", (long long)tick);
	if (outside > WORTH_A_WORD * all)
		lg_meta_setf(l->b, prc, "log.outside_ms", "%.3f", outside);
	return p;
}

/*
 * A line's time is cut down to the clock's tick. A step that seems to begin before the one before has ended
 * did so later, by less than a tick; what is then still too much is cut off. line, end: of the one before.
 */
static void place(const struct lg_log_span *s, int64_t *line, int64_t *end, int64_t *ret_from)
{
	int64_t before = *line == s->before && *end > s->before ? *end : s->before;
	int64_t from = s->ts - s->dur, late = 0;

	if (s->stated && before != INT64_MIN && before > from)
		late = before - from < s->tick ? before - from : s->tick - 1;
	*line = s->ts;
	*end = s->ts + late;
	*ret_from = from + late;
	if (s->stated && before != INT64_MIN && before > *ret_from)
		*ret_from = before < *end ? before : *end;
}

static void add_spans(struct lg_torchlog *l, const struct lg_log_span *s, size_t n)
{
	size_t coarse = 0, all = 0;
	int64_t line = INT64_MIN, end = INT64_MIN, from;

	for (size_t i = 0; i < n; i++) {
		all += s[i].steps == 1 && s[i].dur;
		coarse += s[i].steps == 1 && s[i].dur && s[i].dur <= TICKS * s[i].tick;
	}
	for (size_t i = 0; i < n && 2 * coarse <= all; i++) {
		if (s[i].steps != 1 || !s[i].dur)
			continue;
		place(&s[i], &line, &end, &from);
		lg_add_span(l->b, &(struct lg_span_row){ .ts = from, .dur = end - from, .thr = s[i].thr,
							 .kind = LG_SPAN_STEP, .seq = s[i].number,
							 .name = lg_intern(l->b, "log step") });
	}
}

LG_ORDER_BY(cmp_thread, struct lg_log_span, LG_CMP(x->thr, y->thr) ?: LG_CMP(x->order, y->order))

void lg_torchlog_add_spans(struct lg_torchlog *l)
{
	bool ok = true;

	if (l->n_span)
		qsort(l->span, l->n_span, sizeof *l->span, cmp_thread);
	for (size_t i = 0, end; ok && i < l->n_span; i = end) {
		end = i + 1;
		while (end < l->n_span && l->span[end].thr == l->span[i].thr)
			end++;
		ok = time_runs(l, l->span + i, end - i);
		add_spans(l, l->span + i, end - i);
	}
	if (!ok)
		lg_builder_fail(l->b);
}
