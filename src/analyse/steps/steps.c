/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.c - which threads train, and where their steps begin and end.
 *
 * A step is [boundary i, boundary i+1) of one main thread, so steps tile the time between the
 * first and the last boundary: a stall between two optimizer steps belongs to a step wherever it
 * falls. Boundaries, best first: steps marked by hand, steps marked by the hook, ends of the
 * optimizer stage, starts of the forward stage (inference).
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/steps/steps.h"
#include "analyse/steps/judge.h"
#include "analyse/steps/log_steps.h"
#include "base/upper_bound.h"
#include "rules/device_names.h"
#include "store/merge.h"

enum { MIN_STEPS = 4 };

struct boundaries {
	int64_t *ts;
	size_t n, cap;
};

static int push(struct boundaries *b, int64_t ts)
{
	if (b->n && b->ts[b->n - 1] == ts)
		return 0;
	return LG_APPEND(b->ts, b->n, b->cap, ts);
}

/*
 * A recording and a profiler's trace of one process, joined, both say where its steps begin: the hook's
 * have no name. Together they would cut every step in two; those that cover more time are taken.
 */
static bool named_steps(const struct lg_case *c, const struct lg_rank *r, bool by_hand)
{
	const struct lg_span_tab *s = &c->t->span;
	double covered[2] = { 0 };

	LG_EACH_ROW(row, r->spans, r->n_spans) {
		if (s->kind[row] == LG_SPAN_STEP && s->dur[row] > 0 &&
		    !!(s->flags[row] & LG_SPAN_HAND) == by_hand)
			covered[s->name[row] != 0] += (double)s->dur[row];
	}
	return covered[1] > covered[0];
}

/* Step spans of thr: begin of each, and the end of the last where it is known. */
static int from_step_spans(const struct lg_case *c, const struct lg_rank *r, bool by_hand,
			   struct boundaries *b)
{
	const struct lg_span_tab *s = &c->t->span;
	bool named = named_steps(c, r, by_hand);
	int64_t end = INT64_MIN;

	LG_EACH_ROW(row, r->spans, r->n_spans) {
		if (s->kind[row] != LG_SPAN_STEP || !!(s->flags[row] & LG_SPAN_HAND) != by_hand ||
		    (s->name[row] != 0) != named)
			continue;
		if (s->dur[row] < 0)
			continue; /* cut off: its length is not known */
		if (push(b, s->ts[row]))
			return LG_E_NOMEM;
		end = s->ts[row] + s->dur[row];
	}
	return b->n && end > b->ts[b->n - 1] ? push(b, end) : 0;
}

static int from_stage(const struct lg_case *c, const struct lg_rank *r, uint8_t stage, bool ends,
		      struct boundaries *b)
{
	const struct lg_span_tab *s = &c->t->span;
	int64_t covered = INT64_MIN; /* skip spans nested in one of the same stage */

	LG_EACH_ROW(row, r->spans, r->n_spans) {
		if (s->kind[row] != LG_SPAN_STAGE || s->stage[row] != stage || s->dur[row] < 0 ||
		    s->ts[row] < covered)
			continue;
		covered = s->ts[row] + s->dur[row];
		if (push(b, ends ? covered : s->ts[row]))
			return LG_E_NOMEM;
	}
	return 0;
}

bool lg_is_polled(const struct lg_case *c)
{
	const char *tier = lg_meta_get(c->t, "record.tier");

	return !strcmp(tier, "own") || !strcmp(tier, "procfs");
}

static int find_boundaries(struct lg_case *c, struct lg_rank *r, struct boundaries *b)
{
	int rc = 0;

	if (r->inferred && lg_is_polled(c)) {
		lg_limit(c, LG_SAYS_STEPS_ONLY_ONE);
		return 0;
	}
	if (r->inferred) {
		lg_free(b->ts);
		rc = lg_infer_boundaries(c, r, &b->ts, &b->n);
		b->cap = b->n;
		return rc;
	}
	for (int best = 0; best < 4; best++) {
		b->n = 0;
		rc = best < 2 ? from_step_spans(c, r, !best, b)
			      : from_stage(c, r, best == 2 ? LG_STAGE_OPTIMIZER : LG_STAGE_FORWARD, best == 2,
					   b);
		if (rc || b->n >= MIN_STEPS)
			break;
	}
	return rc;
}

struct segs {
	struct lg_stage_seg *v;
	size_t n, cap;
};

static int seg_add(struct segs *l, int64_t from, int64_t to, const struct lg_stage_seg *of)
{
	struct lg_stage_seg seg = *of;

	seg.ts = from;
	seg.end = to;
	if (from >= to || !LG_APPEND(l->v, l->n, l->cap, seg))
		return 0;
	lg_free(l->v);
	return LG_E_NOMEM;
}

/*
 * Stage of the main thread over time: the innermost stage span wins. Spans nest (backward contains
 * grad_sync), so one sweep with a stack gives disjoint segments.
 */
int lg_stage_segments(struct lg_case *c, struct lg_rank *r)
{
	const struct lg_span_tab *s = &c->t->span;
	struct lg_stage_seg stack[64];
	struct segs l = { 0 };
	size_t depth = 0;
	int64_t now = INT64_MIN;

	for (size_t i = 0; i <= r->n_spans; i++) {
		uint32_t row = i < r->n_spans ? r->spans[i] : 0;
		int64_t ts = INT64_MAX;

		if (i < r->n_spans) {
			bool sync = s->kind[row] == LG_SPAN_COLLECTIVE &&
				    !(s->flags[row] & (LG_SPAN_IMPLICIT | LG_SPAN_ASYNC));

			if (s->kind[row] != LG_SPAN_STAGE && !sync)
				continue;
			ts = s->ts[row];
		}
		while (depth && stack[depth - 1].end <= ts) {
			if (seg_add(&l, now, stack[depth - 1].end, &stack[depth - 1]))
				return LG_E_NOMEM;
			now = stack[--depth].end > now ? stack[depth].end : now;
		}
		if (i == r->n_spans)
			break;
		if (depth && seg_add(&l, now, ts, &stack[depth - 1]))
			return LG_E_NOMEM;
		if (depth < 64) {
			int64_t end = lg_row_end(c->t, ts, s->dur[row]);

			/* Times are rounded: what lies mostly behind a span follows it. */
			while (depth && end - stack[depth - 1].end > stack[depth - 1].end - ts)
				depth--;
			/* A child cannot outlive its parent; clip what overlaps wrongly. */
			if (depth && end > stack[depth - 1].end)
				end = stack[depth - 1].end;
			stack[depth++] = (struct lg_stage_seg){
				.ts = ts, .end = end, .span = row,
				.stage = s->kind[row] == LG_SPAN_COLLECTIVE
						 ? (uint8_t)LG_STAGE_GRAD_SYNC : s->stage[row] };
		}
		now = ts;
	}
	r->segs = lg_arena_adopt(&c->v->arena, l.v);
	r->n_segs = r->segs ? l.n : 0;
	return c->v->arena.failed ? LG_E_NOMEM : 0;
}

static size_t seg_upper(const struct lg_rank *r, int64_t ts)
{
	return LG_UPPER_BOUND(r->segs, r->n_segs, ts, ts);
}

uint8_t lg_stage_at(const struct lg_rank *r, int64_t ts)
{
	size_t i = seg_upper(r, ts);

	return i && r->segs[i - 1].end > ts ? r->segs[i - 1].stage : (uint8_t)LG_STAGE_OTHER;
}

static bool is_save(const struct lg_case *c, const struct lg_stage_seg *g)
{
	return g->stage == LG_STAGE_SIDE &&
	       lg_on_list(LG_LIST_SIDE_SAVES, lg_string(c->t, c->t->span.name[g->span]));
}

const struct lg_stage_seg *lg_save_beside(const struct lg_case *c, const struct lg_rank *r, int64_t ts)
{
	size_t i = seg_upper(r, ts);

	if (i && r->segs[i - 1].end > ts)
		return NULL;
	if (i && is_save(c, &r->segs[i - 1]))
		return &r->segs[i - 1];
	return i < r->n_segs && is_save(c, &r->segs[i]) ? &r->segs[i] : NULL;
}

int64_t lg_stage_next(const struct lg_rank *r, int64_t ts)
{
	size_t i = seg_upper(r, ts);

	if (i && r->segs[i - 1].end > ts)
		return r->segs[i - 1].end;
	return i < r->n_segs ? r->segs[i].ts : INT64_MAX;
}

int64_t lg_excess_of(const struct lg_rank *r, const struct lg_step *steps)
{
	int64_t sum = 0;

	LG_EACH(s, &steps[r->step_first], r->n_steps)
		sum += s->slow ? s->dur - s->median : 0;
	return sum;
}

/* Of each process the thread that carries its steps: most step and stage spans, else the main thread. */
static void training_threads(const struct lg_case *c, const uint32_t *marks_of, lg_thr *ret_best)
{
	for (lg_thr i = 1; i < c->t->thread.n; i++) {
		lg_thr *best = &ret_best[c->t->thread.prc[i]];

		/* Row 0 is no thread and has no marks. */
		if (marks_of[i] > marks_of[*best] ||
		    (!marks_of[*best] && (c->t->thread.flags[i] & LG_THREAD_MAIN)))
			*best = i;
	}
}

LG_ORDER_BY(cmp_rank, struct lg_rank, LG_CMP(x->rank, y->rank) ?: LG_CMP(x->prc, y->prc))

int lg_rank_spans(struct lg_case *c, struct lg_rank *r)
{
	const uint8_t *kind = c->t->span.kind;
	uint32_t *v = NULL;
	size_t n = 0, cap = 0;

	LG_LISTED(row, c->idx->span, r->thr) {
		if (kind[row] != LG_SPAN_STEP && kind[row] != LG_SPAN_STAGE &&
		    kind[row] != LG_SPAN_COLLECTIVE && kind[row] != LG_SPAN_WAIT)
			continue;
		if (LG_APPEND(v, n, cap, row)) {
			lg_free(v);
			return LG_E_NOMEM;
		}
	}
	r->spans = lg_arena_adopt(&c->v->arena, v);
	r->n_spans = r->spans ? n : 0;
	return n && !r->spans ? LG_E_NOMEM : 0;
}

static int index_ranks(struct lg_case *c)
{
	size_t n = c->n_ranks;

	memset(c->rank_of_thr, 0, c->t->thread.n * sizeof *c->rank_of_thr);
	memset(c->rank_of_prc, 0, c->t->process.n * sizeof *c->rank_of_prc);
	qsort(c->ranks, n, sizeof *c->ranks, cmp_rank);
	for (size_t i = 0; i < n; i++) {
		struct lg_rank *r = &c->ranks[i];

		r->states = c->idx->state + c->idx->state_off[r->thr];
		r->n_states = c->idx->state_off[r->thr + 1] - c->idx->state_off[r->thr];
		if (lg_rank_spans(c, r))
			return LG_E_NOMEM;
		c->rank_of_thr[r->thr] = (uint32_t)i + 1;
		if (!c->rank_of_prc[r->prc])
			c->rank_of_prc[r->prc] = (uint32_t)i + 1;
	}
	return 0;
}

static int collect_ranks(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint32_t *marks_of = lg_calloc(t->thread.n, sizeof *marks_of);
	LG_AUTOFREE uint32_t *prc_marks = lg_calloc(t->process.n, sizeof *prc_marks);
	LG_AUTOFREE lg_thr *trains = lg_calloc(t->process.n, sizeof *trains);
	size_t n = 0;

	c->ranks = lg_arena_alloc(&c->v->arena, t->process.n, sizeof *c->ranks);
	c->rank_of_thr = lg_arena_alloc(&c->v->arena, t->thread.n, sizeof *c->rank_of_thr);
	c->rank_of_prc = lg_arena_alloc(&c->v->arena, t->process.n, sizeof *c->rank_of_prc);
	if (!marks_of || !prc_marks || !trains || !c->ranks || !c->rank_of_thr || !c->rank_of_prc)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->span.n; i++) {
		uint8_t k = t->span.kind[i];
		bool step = k == LG_SPAN_STEP ||
			    (k == LG_SPAN_STAGE && (t->span.stage[i] == LG_STAGE_OPTIMIZER ||
						    t->span.stage[i] == LG_STAGE_FORWARD));

		if (!step)
			continue;
		marks_of[t->span.thr[i]]++;
		prc_marks[t->thread.prc[t->span.thr[i]]]++;
	}
	marks_of[0] = 0;
	training_threads(c, marks_of, trains);
	for (lg_prc p = 1; p < t->process.n; p++) {
		struct lg_rank *r = &c->ranks[n];
		uint32_t role = t->process.role[p];

		if (role == LG_ROLE_LOADER || role == LG_ROLE_RECORDER || role == LG_ROLE_KERNEL)
			continue;
		if ((c->victim_pid && t->process.pid[p] != c->victim_pid) || prc_marks[p] < MIN_STEPS)
			continue;
		r->prc = p;
		r->thr = trains[p];
		r->rank = t->process.rank[p];
		if (r->thr)
			n++;
	}
	c->n_ranks = n;
	return (n ? 0 : lg_infer_ranks(c)) ?: index_ranks(c);
}

/* A step of a distributed run happens on every rank: it is counted once. */
static int summarise(struct lg_case *c, double noise)
{
	struct lg_verdict *v = c->v;
	LG_AUTOFREE double *d = lg_calloc(v->n_steps, sizeof *d);
	LG_AUTOFREE uint8_t *slow = NULL;
	size_t n = 0, most = 0;

	for (size_t i = 0; i < c->n_ranks; i++)
		most = LG_MAX(c->ranks[i].n_steps, most);
	slow = lg_calloc(most, 1);
	if (!d || !slow)
		return LG_E_NOMEM;
	LG_EACH(r, c->ranks, c->n_ranks) {
		size_t judged = 0;

		for (size_t k = 0; k < r->n_steps; k++) {
			const struct lg_step *s = &v->steps[r->step_first + k];

			if (s->warmup)
				continue;
			judged++;
			d[n++] = lg_ms(s->dur);
			slow[k] |= s->slow;
		}
		v->n_judged = LG_MAX(judged, v->n_judged);
	}
	for (size_t k = 0; k < most; k++)
		v->n_slow += slow[k];
	lg_sum_up_steps(v, d, n, noise);
	v->ranks = lg_arena_alloc(&v->arena, c->n_ranks, sizeof *v->ranks);
	if (!v->ranks)
		return LG_E_NOMEM;
	for (size_t i = 0; i < c->n_ranks; i++)
		if (c->ranks[i].n_steps && c->ranks[i].rank >= 0)
			v->ranks[v->n_ranks++] = c->ranks[i].rank;
	return 0;
}

/* A step that two files have parts of is the first one's. */
static int end_with_its_file(const struct lg_case *c, const struct lg_rank *r, struct lg_step *step, size_t n)
{
	LG_AUTO_IVS gaps = { 0 };
	int rc = lg_profiled_gaps(c->t, r->prc, &gaps);

	for (size_t k = 0, i = 0; !rc && k < n && i < gaps.n; k++) {
		while (i < gaps.n && gaps.v[i].ts <= step[k].ts)
			i++;
		if (i < gaps.n && gaps.v[i].ts < step[k].ts + step[k].dur)
			step[k].dur = gaps.v[i].ts - step[k].ts;
	}
	return rc;
}

static int steps_of_ranks(struct lg_case *c, struct lg_step **ret, size_t *ret_n, double *ret_noise)
{
	struct boundaries b = { 0 };
	struct lg_step *steps = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	*ret_noise = INFINITY;
	LG_EACH_WHILE(!rc, r, c->ranks, c->n_ranks) {
		b.n = 0;
		rc = find_boundaries(c, r, &b) ?: lg_stage_segments(c, r);
		r->step_first = n;
		for (size_t k = 0; !rc && k + 1 < b.n; k++) {
			rc = LG_APPEND(steps, n, cap, (struct lg_step){
				.ts = b.ts[k], .dur = b.ts[k + 1] - b.ts[k], .number = (int64_t)k,
				.prc = r->prc, .thr = r->thr, .rank = r->rank });
		}
		r->n_steps = n - r->step_first;
		rc = rc ?: end_with_its_file(c, r, steps + r->step_first, r->n_steps);
		if (!rc && r->n_steps)
			rc = lg_judge_steps(steps + r->step_first, r->n_steps, LG_STEPS_OF_RUN,
					    lg_log_tick(c->t, r->prc), ret_noise);
	}
	lg_free(b.ts);
	*ret = steps;
	*ret_n = n;
	return rc;
}

int lg_find_steps(struct lg_case *c)
{
	LG_AUTOFREE struct lg_step *steps = NULL;
	bool dropped = false;
	double noise = 0;
	size_t n = 0;
	int rc = collect_ranks(c) ?: steps_of_ranks(c, &steps, &n, &noise) ?:
		 lg_find_likely_jobs(c, steps, &dropped);

	/* Of inferred ones nobody said that they are jobs; without states there is one file a rank. */
	if (!rc && c->n_ranks > 1 && !c->ranks[0].inferred && c->has_states)
		rc = lg_choose_job(c, steps, &dropped);
	if (!rc && dropped) {
		lg_free(steps);
		steps = NULL;
		rc = index_ranks(c) ?: steps_of_ranks(c, &steps, &n, &noise);
	}
	if (rc)
		return rc;
	c->v->steps = lg_arena_alloc(&c->v->arena, n + 1, sizeof *steps);
	if (!c->v->steps)
		return LG_E_NOMEM;
	c->v->n_steps = n;
	if (n)
		memcpy(c->v->steps, steps, n * sizeof *steps);
	return summarise(c, noise);
}
