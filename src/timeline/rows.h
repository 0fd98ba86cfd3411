/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - walks over the states, spans and samples of a thread, and over what ran on its CPU. */
#ifndef LG_TIMELINE_ROWS_H
#define LG_TIMELINE_ROWS_H
#include "timeline/scene.h"

/* Rows of a list of the index, by time, each cut to [a, b). */
struct lg_rows {
	const int64_t *ts, *dur;
	const uint32_t *list;
	uint32_t at, end;
	int64_t a, b;
	/* The one that lg_next_row() came to, and its part of [a, b). */
	uint32_t row;
	int64_t from, to;
};

static inline struct lg_rows lg_states_in(const struct lg_scene *sc, lg_thr thr, int64_t a, int64_t b)
{
	return (struct lg_rows){ .ts = sc->t->state.ts, .dur = sc->t->state.dur, .list = sc->idx->state,
				 .at = lg_index_state_from(sc->idx, thr, a),
				 .end = sc->idx->state_off[thr + 1], .a = a, .b = b };
}

static inline struct lg_rows lg_spans_in(const struct lg_scene *sc, lg_thr thr, int64_t a, int64_t b)
{
	return (struct lg_rows){ .ts = sc->t->span.ts, .dur = sc->t->span.dur, .list = sc->idx->span,
				 .at = lg_index_span_from(sc->idx, thr, a),
				 .end = sc->idx->span_off[thr + 1], .a = a, .b = b };
}

/* What ran on that CPU of the machine that thr runs on. */
static inline struct lg_rows lg_runs_in(const struct lg_scene *sc, lg_thr thr, int32_t cpu, int64_t a,
					int64_t b)
{
	uint32_t end, at = lg_index_cpu_from(sc->idx, thr, cpu, a, &end);

	return (struct lg_rows){ .ts = sc->t->state.ts, .dur = sc->t->state.dur, .list = sc->idx->cpu,
				 .at = at, .end = end, .a = a, .b = b };
}

/* False: that was all. */
static inline bool lg_next_row(const struct lg_scene *sc, struct lg_rows *r)
{
	while (r->at < r->end) {
		int64_t end;

		r->row = r->list[r->at++];
		if (r->ts[r->row] >= r->b)
			return false;
		end = lg_row_end(sc->t, r->ts[r->row], r->dur[r->row]);
		r->from = r->ts[r->row] > r->a ? r->ts[r->row] : r->a;
		r->to = end < r->b ? end : r->b;
		if (r->from < r->to)
			return true;
	}
	return false;
}

/* The CPU samples of a thread in [from, to), by time. Where a tracepoint was hit says nothing of what the
 * thread is at most of the time, and its innermost frames are the tracepoint's. */
struct lg_cpu_samples {
	uint32_t at, end; /* positions in idx->sample */
	int64_t to;
};

static inline struct lg_cpu_samples lg_cpu_samples(const struct lg_scene *sc, lg_thr thr, int64_t from,
						   int64_t to)
{
	return (struct lg_cpu_samples){ .at = lg_index_sample_from(sc->idx, thr, from),
					.end = sc->idx->sample_off[thr + 1],
					.to = to };
}

/* *ret: the row of the next one. False: that was all. */
static inline bool lg_next_cpu_sample(const struct lg_scene *sc, struct lg_cpu_samples *s, uint32_t *ret)
{
	while (s->at < s->end) {
		*ret = sc->idx->sample[s->at++];
		if (sc->t->sample.ts[*ret] >= s->to)
			return false;
		if (!(sc->t->sample.flags[*ret] & LG_SAMPLE_NO_CPU))
			return true;
	}
	return false;
}

/* Does it tell that its thread ran just then? Hits of tracepoints count where there is nothing better. */
static inline bool lg_shows_activity(const struct lg_scene *sc, size_t row)
{
	return !(sc->t->sample.flags[row] & sc->no_activity);
}

#endif /* LG_TIMELINE_ROWS_H */
