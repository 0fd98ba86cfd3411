/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account.c - the exact account of each step's main-thread time.
 *
 * I1  the parts of a step are contiguous, start at its start and end at its end: they sum to its
 *     duration to the nanosecond, `unexplained` included.
 * I2  a part's kind is the main thread's own state in that time; its cause is where the chain ends.
 */
#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"
#include "base/map.h"

struct account {
	struct lg_part *parts;
	size_t n, cap;
	struct lg_cause *causes;
	size_t n_causes, causes_cap;
	struct lg_map by_key;
};

static uint8_t cause_kind(const struct lg_piece *p)
{
	/* Who computes for itself is nobody's cause. */
	return p->end == LG_END_RUN && !p->hops ? LG_CAUSE_NONE : (uint8_t)lg_end(p->end)->part;
}

static int cause_of(struct lg_case *c, struct account *acc, const struct lg_piece *p, uint32_t *ret)
{
	uint8_t kind = cause_kind(p);
	lg_prc prc = c->t->thread.prc[p->thr];
	uint64_t key = lg_mix64(((uint64_t)prc << 32 | p->lock) * 64 + kind);
	uint32_t at;

	*ret = 0;
	if (kind == LG_CAUSE_NONE)
		return 0;
	at = LG_MAP_APPEND(&acc->by_key, key, acc->causes, acc->n_causes, acc->causes_cap,
			   (struct lg_cause){ .kind = kind, .thr = p->thr, .prc = prc, .lock = p->lock });
	if (!at)
		return LG_E_NOMEM;
	*ret = at - 1;
	acc->causes[*ret].lost += p->dur;
	return 0;
}

/* Same kind, cause, culprit and stage, back to back: one part. */
static int part_add(struct account *acc, size_t step_first, const struct lg_part *p)
{
	struct lg_part *last = acc->n > step_first ? &acc->parts[acc->n - 1] : NULL;

	if (last && last->kind == p->kind && last->cause == p->cause && last->by == p->by &&
	    last->stage == p->stage && last->state == p->state) {
		last->dur += p->dur;
		return 0;
	}
	return LG_APPEND(acc->parts, acc->n, acc->cap, *p);
}

static int account_step(struct lg_case *c, struct account *acc, const struct lg_rank *r,
			struct lg_step *step, struct lg_pieces *scratch)
{
	/* A wait whose chain ends nowhere is unexplained, whatever the scheduler called it. */
	static const uint8_t kinds[] = { [LG_STATE_NONE] = LG_PART_UNEXPLAINED,
					 [LG_RUNNING] = LG_PART_RUNNING,
					 [LG_RUNNABLE] = LG_PART_RUNNABLE,
					 [LG_BLOCKED] = LG_PART_BLOCKED };
	size_t first = acc->n;
	int rc = 0;

	step->part_first = (uint32_t)first;
	scratch->n = 0;
	lg_follow(c, r->thr, step->ts, step->ts + step->dur, 0, scratch);
	if (c->failed)
		return c->failed;
	LG_EACH_WHILE(!rc, p, scratch->v, scratch->n) {
		int64_t a = p->ts, end = p->ts + p->dur;
		uint32_t cause;

		rc = cause_of(c, acc, p, &cause);
		/* A piece that a chain found may span several of the main thread's states. */
		while (!rc && a < end) {
			uint32_t row = lg_index_state_at(c->idx, r->thr, a);
			int64_t to = end, next = lg_stage_next(r, a);
			struct lg_part part = { .ts = a, .kind = LG_PART_UNEXPLAINED,
						.stage = lg_stage_at(r, a), .cause = cause,
						.by = p->thr, .state = row };

			if (row != LG_NO_ROW) {
				int64_t e = lg_row_end(c->t, c->t->state.ts[row],
						       c->t->state.dur[row]);

				part.kind = kinds[c->t->state.kind[row] & 3];
				if (p->end == LG_END_UNKNOWN)
					part.kind = LG_PART_UNEXPLAINED;
				to = LG_MIN(e, to);
			}
			to = LG_MIN(next, to);
			part.dur = to - a;
			rc = part_add(acc, first, &part);
			a = to;
		}
	}
	step->n_parts = (uint32_t)(acc->n - first);
	return rc;
}

int lg_account(struct lg_case *c)
{
	struct lg_verdict *v = c->v;
	struct account acc = { 0 };
	struct lg_pieces scratch = { 0 };
	int rc = LG_APPEND(acc.causes, acc.n_causes, acc.causes_cap, (struct lg_cause){ 0 });

	for (size_t i = 0; !rc && i < c->n_ranks; i++)
		for (size_t k = 0; !rc && k < c->ranks[i].n_steps; k++)
			rc = account_step(c, &acc, &c->ranks[i],
					  &v->steps[c->ranks[i].step_first + k], &scratch);
	if (!rc) {
		v->parts = lg_arena_adopt(&v->arena, acc.parts);
		v->causes = lg_arena_adopt(&v->arena, acc.causes);
		v->n_parts = acc.n;
		v->n_causes = acc.n_causes;
		rc = v->arena.failed ? LG_E_NOMEM : 0;
	} else {
		lg_free(acc.parts);
		lg_free(acc.causes);
	}
	lg_map_done(&acc.by_key);
	lg_free(scratch.v);
	return rc;
}

int lg_account_stages(struct lg_case *c)
{
	struct lg_verdict *v = c->v;
	struct account acc = { 0 };
	struct lg_rank r = { 0 };
	int rc = 0;

	LG_EACH_WHILE(!rc, s, v->steps, v->n_steps) {
		int64_t end = s->ts + s->dur;
		size_t first = acc.n;

		if (s->thr != r.thr) {
			r = (struct lg_rank){ .thr = s->thr };
			rc = lg_rank_spans(c, &r);
			if (!rc)
				rc = lg_stage_segments(c, &r);
		}
		s->part_first = (uint32_t)first;
		for (int64_t a = s->ts, to; !rc && a < end; a = to) {
			struct lg_part part = { .ts = a, .kind = LG_PART_UNEXPLAINED, .state = LG_NO_ROW,
						.stage = lg_stage_at(&r, a) };

			to = lg_stage_next(&r, a);
			to = to < end ? to : end;
			part.dur = to - a;
			rc = part_add(&acc, first, &part);
		}
		s->n_parts = (uint32_t)(acc.n - first);
	}
	v->parts = lg_arena_adopt(&v->arena, acc.parts);
	v->n_parts = v->parts ? acc.n : 0;
	return rc ?: v->arena.failed ? LG_E_NOMEM : 0;
}
