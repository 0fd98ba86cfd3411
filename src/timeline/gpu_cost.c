/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_cost.c - what work on the device costs that need not be there: the part of kernels that other
 * work waited for, and the idle time before them for want of launches.
 */
#include "timeline/cost.h"

#include "base/upper_bound.h"

int lg_span_names(struct lg_scene *sc)
{
	const struct lg_span_tab *s = &sc->t->span;
	uint8_t *seen = lg_calloc(sc->t->n_str + 1, 1);
	size_t n = 0;

	if (!seen)
		return LG_E_NOMEM;
	for (size_t i = 0; i < s->n; i++) {
		n += !seen[s->name[i]];
		seen[s->name[i]] = 1;
	}
	sc->n_span_names = 0;
	sc->span_names = lg_arena_alloc(sc->arena, n + 1, sizeof *sc->span_names);
	for (lg_str k = 0; sc->span_names && k < sc->t->n_str; k++)
		if (seen[k])
			sc->span_names[sc->n_span_names++] = k;
	lg_free(seen);
	return sc->span_names ? 0 : LG_E_NOMEM;
}

uint8_t *lg_span_pick(const struct lg_scene *sc, enum lg_name_list list)
{
	uint8_t *picked = NULL;

	for (size_t i = 0; i < sc->n_span_names; i++) {
		if (!lg_on_list(list, lg_string(sc->t, sc->span_names[i])))
			continue;
		if (!picked)
			picked = lg_calloc(sc->t->n_str, 1);
		if (lg_scene_failed(sc, picked ? 0 : LG_E_NOMEM))
			break;
		picked[sc->span_names[i]] = 1;
	}
	return picked;
}

/* What making work i infinitely fast would save: from when the next work was waiting for it. */
static int64_t savable(const struct lg_gpu_run *r, size_t i)
{
	const struct lg_gpu_work *w = &r->work[i];
	int64_t ready;

	if (!lg_gpu_in_window(r, w))
		return 0;
	if (i + 1 >= r->n_work || r->work[i + 1].call == LG_NO_ROW)
		return w->end - w->ts;
	ready = r->work[i + 1].called;
	if (ready <= w->ts)
		return w->end - w->ts;
	for (size_t h = 0; h < r->n_host; h++) {
		const struct lg_host_seg *s = lg_host_at(&r->host[h], w->end);

		/* The host waits for this kernel. */
		if (s && (s->class == LG_HOST_SYNC || s->class == LG_HOST_COPY))
			return w->end - w->ts;
	}
	return ready < w->end ? w->end - ready : 0;
}

void lg_gpu_sum_in(const struct lg_scene *sc, const struct lg_gpu_run *r, size_t i, struct lg_gpu_sums *s)
{
	int64_t d = r->work[i].end - r->work[i].ts, saved = savable(r, i);

	s->ns += d;
	s->savable += saved;
	if (saved && r->n_steps >= 2 && !s->by_step)
		s->by_step = lg_arena_alloc(sc->arena, r->n_steps + 1, sizeof *s->by_step);
	if (saved && s->by_step)
		s->by_step[lg_gpu_step_of(r, r->behind ? r->work[i].called : r->work[i].ts)] += saved;
	s->n++;
	if (d > s->longest) {
		s->longest = d;
		s->at = r->work[i].ts;
		s->row = r->work[i].span;
	}
}

void lg_gpu_sum_within(const struct lg_scene *sc, const struct lg_gpu_run *r, lg_thr thr,
		       const struct lg_ivs *a, struct lg_gpu_sums *s)
{
	for (size_t i = 0; a->n && i < r->n_work; i++)
		if (lg_gpu_called_within(&r->work[i], thr, a))
			lg_gpu_sum_in(sc, r, i, s);
}

/* Those of the rows whose names are picked. */
static struct lg_ivs spans_of(const struct lg_scene *sc, const struct lg_gpu_run *r, lg_thr thr,
				  const uint8_t *picked)
{
	struct lg_gpu_rows w = lg_gpu_rows(sc, r, thr, picked);
	struct lg_ivs a = { 0 };
	uint32_t row;

	while (picked && !sc->arena->failed && lg_gpu_next_row(&w, &row))
		(void)lg_scene_failed(sc, lg_iv_add(&a, sc->t->span.ts[row], lg_span_end(sc->t, row), row));
	return a;
}

struct lg_ivs lg_gpu_spans(const struct lg_scene *sc, const struct lg_gpu_run *r, lg_thr thr,
			       enum lg_name_list list)
{
	LG_AUTOFREE uint8_t *picked = lg_span_pick(sc, list);

	return spans_of(sc, r, thr, picked);
}

struct lg_gpu_sums lg_gpu_sum_under(const struct lg_scene *sc, const struct lg_gpu_run *r,
				    enum lg_name_list list)
{
	LG_AUTOFREE uint8_t *picked = lg_span_pick(sc, list);
	struct lg_gpu_sums s = { .row = LG_NO_ROW };

	LG_EACH_WHILE(picked, h, r->host, r->n_host) {
		LG_AUTO_IVS a = spans_of(sc, r, h->thr, picked);

		s.spans += a.n;
		lg_gpu_sum_within(sc, r, h->thr, &a, &s);
	}
	return s;
}

/* A part of a piece that lies in a stretch, both by number. */
struct part {
	size_t piece, stretch;
	int64_t from, to;
};

void lg_gpu_add_pieces(const struct lg_gpu_run *r, size_t *at, int64_t from, int64_t to, int64_t *by)
{
	for (; *at < r->n_pieces && r->piece[*at].ts < to; ++*at) {
		const struct lg_gpu_piece *p = &r->piece[*at];
		int64_t ts = LG_MAX(p->ts, from), end = p->ts + p->dur < to ? p->ts + p->dur : to;

		if (end > ts)
			by[p->cause] += end - ts;
		if (p->ts + p->dur > to)
			return;
	}
}

/* The first of n pieces, from i on, that ends after ts: near i, as a rule. */
static size_t piece_after(const struct lg_gpu_piece *v, size_t n, size_t i, int64_t ts)
{
	size_t lo = i, hi = i;

	for (size_t by = 1; hi < n && v[hi].ts + v[hi].dur <= ts; by *= 2) {
		lo = hi + 1;
		hi += by;
	}
	hi = LG_MIN(hi, n);
	LG_BISECT(lo, hi, mid, v[mid].ts + v[mid].dur <= ts);
	return lo;
}

/* From *p (all zero but .to = INT64_MIN at first) on to the next part of a piece with a cause in of. */
static bool next_part(const struct lg_gpu_piece *v, size_t n, const struct lg_ivs *a, uint32_t of,
		      struct part *p)
{
	for (; p->stretch < a->n; p->stretch++) {
		const struct lg_iv *s = &a->v[p->stretch];
		int64_t from = LG_MAX(s->ts, p->to);

		if (from >= s->end)
			continue;
		for (p->piece = piece_after(v, n, p->piece, from); p->piece < n; p->piece++) {
			int64_t ts = v[p->piece].ts, end = ts + v[p->piece].dur;

			if (ts >= s->end)
				break;
			if (!(of >> v[p->piece].cause & 1))
				continue;
			p->from = LG_MAX(ts, from);
			p->to = LG_MIN(end, s->end);
			return true;
		}
	}
	return false;
}

int64_t lg_gpu_late_within(const struct lg_gpu_run *r, const struct lg_ivs *a)
{
	struct part p = { .to = INT64_MIN };
	int64_t sum = 0;

	while (next_part(r->piece, r->n_pieces, a, LG_GPU_BIT(LG_GPU_BY_LAUNCH), &p))
		sum += p.to - p.from;
	return sum;
}

/* [from, to) becomes the piece in front of v[n], unless it is empty. */
static size_t put(struct lg_gpu_piece *v, size_t n, struct lg_gpu_piece like, int64_t from, int64_t to,
		  uint8_t cause)
{
	if (to <= from)
		return n;
	like.ts = from;
	like.dur = to - from;
	like.cause = cause;
	v[n - 1] = like;
	return n - 1;
}

static int make_room(const struct lg_scene *sc, struct lg_gpu_run *r, size_t more)
{
	size_t need = r->n_pieces + more;
	struct lg_gpu_piece *p = r->piece;

	if (need <= r->cap_pieces)
		return 0;
	/* Half as much again: there are other causes to be taken out. */
	p = lg_realloc(NULL, need + need / 2, sizeof *p);
	if (!p)
		return LG_E_NOMEM;
	memcpy(p, r->piece, r->n_pieces * sizeof *p);
	p = lg_arena_readopt(sc->arena, r->piece, p);
	if (!p)
		return LG_E_NOMEM;
	r->piece = p;
	r->cap_pieces = need + need / 2;
	return 0;
}

/* The parts become pieces of their own, the last one first: what lies behind it moves up, once. */
static void cut_out(struct lg_gpu_run *r, const struct part *part, size_t n_parts, size_t more, uint8_t into)
{
	struct lg_gpu_piece *v = r->piece;
	size_t in = r->n_pieces, out = in + more; /* not moved yet; moved: from there on */

	r->n_pieces += more;
	while (n_parts) {
		size_t at = part[n_parts - 1].piece;
		const struct lg_gpu_piece whole = v[at];
		int64_t end = whole.ts + whole.dur;

		out -= in - (at + 1);
		if (out != at + 1)
			memmove(v + out, v + at + 1, (in - (at + 1)) * sizeof *v);
		in = at;
		for (; n_parts && part[n_parts - 1].piece == at; n_parts--) {
			const struct part *p = &part[n_parts - 1];

			out = put(v, out, whole, p->to, end, whole.cause);
			out = put(v, out, whole, p->from, p->to, into);
			r->by[whole.cause] -= p->to - p->from;
			r->by[into] += p->to - p->from;
			end = p->from;
		}
		out = put(v, out, whole, whole.ts, end, whole.cause);
	}
}

int lg_gpu_carve(const struct lg_scene *sc, struct lg_gpu_run *r, const struct lg_ivs *a, uint32_t of,
		 uint8_t into)
{
	struct part p = { .to = INT64_MIN }, *part = NULL;
	size_t n = 0, cap = 0, more = 0;
	int rc = 0;

	while (!rc && next_part(r->piece, r->n_pieces, a, of, &p)) {
		const struct lg_gpu_piece *q = &r->piece[p.piece];
		int64_t open = n && part[n - 1].piece == p.piece ? part[n - 1].to : q->ts;

		/* What is left of the piece in front of this part, and behind it. */
		more += (p.from > open) + (p.to < q->ts + q->dur);
		rc = LG_APPEND(part, n, cap, p);
	}
	if (!rc && n)
		rc = make_room(sc, r, more);
	if (!rc)
		cut_out(r, part, n, more, into);
	lg_free(part);
	return rc;
}
