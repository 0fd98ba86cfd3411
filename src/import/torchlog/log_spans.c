/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_spans.c - steps of a log as spans, where its clock is finer than they are.
 *
 * Whether it is, the steps of a thread tell together, when all are known: taking each by itself would keep
 * the slow ones of a log with whole seconds and drop the others.
 */
#include "base/alloc.h"
#include "import/torchlog/torchlog.h"

/* A step that the clock tells nothing of is no longer than two of its ticks. */
enum { TICKS = 2 };

void lg_torchlog_span(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number, int64_t dur,
		      int64_t before)
{
	if (line->ts == INT64_MIN || dur <= 0)
		return;
	if (lg_grow(&l->span, &l->cap_span, l->n_span + 1, sizeof *l->span)) {
		lg_builder_fail(l->b);
		return;
	}
	l->span[l->n_span++] = (struct lg_log_span){ .ts = line->ts, .dur = dur, .before = before,
						     .tick = l->resolution, .number = number,
						     .thr = lg_torchlog_thread(l, line) };
}

/* What is known of a thread's steps. */
struct of_thread {
	size_t n, coarse;
	int64_t line, end; /* of its last span: when its line says that it ended, and when it did */
};

/*
 * A line's time is cut down to the clock's tick. A step that seems to begin before the one before has ended
 * did so later, by less than a tick; what is then still too much is cut off.
 */
static void place(const struct lg_log_span *s, struct of_thread *of, int64_t *ret_from, int64_t *ret_to)
{
	int64_t before = of->line == s->before && of->end > s->before ? of->end : s->before;
	int64_t from = s->ts - s->dur, late = 0;

	if (before != INT64_MIN && before > from)
		late = before - from < s->tick ? before - from : s->tick - 1;
	*ret_to = s->ts + late;
	*ret_from = from + late;
	if (before != INT64_MIN && before > *ret_from)
		*ret_from = before < *ret_to ? before : *ret_to;
	of->line = s->ts;
	of->end = *ret_to;
}

void lg_torchlog_add_spans(struct lg_torchlog *l)
{
	struct of_thread *of;
	lg_thr last = 0;

	for (size_t i = 0; i < l->n_span; i++)
		last = l->span[i].thr > last ? l->span[i].thr : last;
	of = lg_calloc((size_t)last + 1, sizeof *of);
	if (!of) {
		lg_builder_fail(l->b);
		return;
	}
	for (size_t i = 0; i < l->n_span; i++) {
		struct of_thread *o = &of[l->span[i].thr];

		o->line = INT64_MIN;
		o->n++;
		o->coarse += l->span[i].dur <= TICKS * l->span[i].tick;
	}
	for (size_t i = 0; i < l->n_span; i++) {
		const struct lg_log_span *s = &l->span[i];
		struct of_thread *o = &of[s->thr];
		int64_t from, to;

		if (2 * o->coarse > o->n)
			continue;
		place(s, o, &from, &to);
		lg_add_span(l->b, &(struct lg_span_row){ .ts = from, .dur = to - from, .thr = s->thr,
							 .kind = LG_SPAN_STEP, .seq = s->number,
							 .name = lg_intern(l->b, "log step") });
	}
	lg_free(of);
}
