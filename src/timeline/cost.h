/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - names that are looked for, and what the work launched there costs. */
#ifndef LG_TIMELINE_COST_H
#define LG_TIMELINE_COST_H
#include "timeline/window.h"

/* ---- gpu_cost.c: names that are looked for ---- */
/* Collect the names that spans have, once; before the next one. */
int lg_span_names(struct lg_scene *sc) LG_MUST_CHECK;
/* The span names that are on a list: a byte for each string, freed by the caller; NULL = none does, so
 * that there is nothing to look for, or no memory is left, which the arena remembers. */
uint8_t *lg_span_pick(const struct lg_scene *sc, enum lg_name_list list) LG_MUST_CHECK;

/* ---- gpu_cost.c: places on the host, and what the work launched there costs ---- */
struct lg_gpu_sums {
	int64_t ns, savable, longest, at;
	size_t n, spans;
	uint32_t row;  /* of the longest */
	int64_t *by_step; /* savable, where there are steps to tell apart; of the arena */
};
/* The rows of a thread that the host began for r's window, by time. */
struct lg_gpu_rows {
	const struct lg_scene *sc;
	const uint8_t *picked; /* names, see lg_span_pick(); NULL = all */
	uint32_t at, end;
	int64_t from, to;
};
static inline struct lg_gpu_rows lg_gpu_rows(const struct lg_scene *sc, const struct lg_gpu_run *r,
					     lg_thr thr, const uint8_t *picked)
{
	return (struct lg_gpu_rows){ sc, picked, sc->idx->span_off[thr], sc->idx->span_off[thr + 1],
				     lg_gpu_asked_from(r), r->to };
}
/* *ret: the next one. False: that was all. */
static inline bool lg_gpu_next_row(struct lg_gpu_rows *w, uint32_t *ret)
{
	while (w->at < w->end) {
		const struct lg_span_at *s = &w->sc->idx->span_at[w->at++];

		if (s->ts >= w->from && s->ts < w->to && (!w->picked || w->picked[s->name])) {
			*ret = w->sc->idx->span[w->at - 1];
			return true;
		}
	}
	return false;
}
/* What is asked most of the one that it gave last. */
static inline const struct lg_span_at *lg_gpu_this_row(const struct lg_gpu_rows *w)
{
	return &w->sc->idx->span_at[w->at - 1];
}
/* Those of thr whose name is on the list as stretches, the outermost whole; freed by the caller. */
struct lg_ivs lg_gpu_spans(const struct lg_scene *sc, const struct lg_gpu_run *r, lg_thr thr,
			       enum lg_name_list list) LG_MUST_CHECK;
/* Did thr launch it within a? */
static inline bool lg_gpu_called_within(const struct lg_gpu_work *w, lg_thr thr,
					const struct lg_ivs *a)
{
	return w->call != LG_NO_ROW && w->caller == thr && lg_iv_within(a, w->called);
}
/* Add work i of r to s. */
void lg_gpu_sum_in(const struct lg_scene *sc, const struct lg_gpu_run *r, size_t i, struct lg_gpu_sums *s);
/* Add the work that thr launched within a. */
void lg_gpu_sum_within(const struct lg_scene *sc, const struct lg_gpu_run *r, lg_thr thr,
		       const struct lg_ivs *a, struct lg_gpu_sums *s);
/* Work launched inside the outermost spans of r's threads whose name is on the list. */
struct lg_gpu_sums lg_gpu_sum_under(const struct lg_scene *sc, const struct lg_gpu_run *r,
				    enum lg_name_list list) LG_MUST_CHECK;
/* Adds what [from, to) of r's window is, by cause; *at: a piece that does not end before from, afterwards one
 * that does not end before to. */
void lg_gpu_add_pieces(const struct lg_gpu_run *r, size_t *at, int64_t from, int64_t to, int64_t *by);
/* Idle time for want of launches that lies within a. */
int64_t lg_gpu_late_within(const struct lg_gpu_run *r, const struct lg_ivs *a);
/* A piece gets another cause. */
static inline void lg_gpu_charge(struct lg_gpu_run *r, struct lg_gpu_piece *p, uint8_t cause)
{
	r->by[p->cause] -= p->dur;
	p->cause = cause;
	r->by[cause] += p->dur;
}
/* Idle time within a whose cause is in the mask `of` gets another one, so that it is not counted twice. */
int lg_gpu_carve(const struct lg_scene *sc, struct lg_gpu_run *r, const struct lg_ivs *a, uint32_t of,
		 uint8_t into) LG_MUST_CHECK;
/* ---- cpu_places.c ---- */
/* "train.py:42 step" or a module or an operator: where in the user's code. NULL = not in the trace. */
const char *lg_gpu_place(const struct lg_scene *sc, uint32_t op, uint32_t site);

#endif /* LG_TIMELINE_COST_H */
