/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_and_scope.c - the run as a whole: shape of the slowness and its scope.
 *
 * Scope is by the rank in which the excess originates: in each slow step every rank's own stalls
 * (waits whose chain does not lead into another rank) are added up; whoever has most is the
 * origin, and where all have about as much at once the step is everybody's.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/steps/steps.h"
#include "analyse/chains/tally.h"
#include "analyse/steps/judge.h"
#include "base/median.h"

/* The slow ones of n steps, of all ranks, in order: those that touch or overlap are an episode. */
static struct lg_burst *slow_steps(const struct lg_step *step, size_t n, int64_t min_excess, size_t *ret_n)
{
	struct lg_burst *b = lg_calloc(n, sizeof *b);

	*ret_n = 0;
	if (!b)
		return NULL;
	LG_EACH(s, step, n) {
		if (s->slow && s->dur - s->median >= min_excess)
			b[(*ret_n)++] = (struct lg_burst){ s->ts, s->ts + s->dur, s->dur - s->median };
	}
	qsort(b, *ret_n, sizeof *b, lg_cmp_i64); /* ts comes first */
	return b;
}

static int64_t largest_excess(const struct lg_step *step, size_t n)
{
	int64_t most = 0;

	LG_EACH_WHERE(s->slow, s, step, n)
		most = LG_MAX(s->dur - s->median, most);
	return most;
}

int lg_rhythm_of_slow(const struct lg_step *step, size_t n, int64_t median, struct lg_rhythm *ret)
{
	for (int large = 0; large < 2 && isnan(ret->period_s); large++) {
		size_t n_slow;
		struct lg_burst *b = slow_steps(step, n, large ? largest_excess(step, n) / 4 : 0, &n_slow);

		if (!b)
			return LG_E_NOMEM;
		*ret = lg_rhythm_of(b, n_slow, median / 4);
		lg_free(b);
	}
	return 0;
}

void lg_shape_with_rhythm(struct lg_verdict *v, const struct lg_rhythm *rhythm,
			  const struct lg_trend *trend, double excess)
{
	v->period_s = v->period_p = NAN;
	lg_judge_shape(v, !isnan(rhythm->period_s), trend, excess);
	if (v->shape == LG_SHAPE_PERIODIC) {
		v->period_s = rhythm->period_s;
		v->period_p = rhythm->p;
		v->period_p_at_most = rhythm->at_most;
	}
}

static int judge_shape(struct lg_case *c, const struct lg_tally *y)
{
	struct lg_verdict *v = c->v;
	const struct lg_rank *ref = &c->ranks[y->ref];
	double share = y->wall > 0 ? (double)y->excess / (double)y->wall : 0;
	struct lg_rhythm rhythm = { .period_s = NAN, .p = 1 };
	int64_t most = 0;
	struct lg_trend trend;

	if (lg_trend_of_steps(&v->steps[ref->step_first], ref->n_steps, &trend))
		return LG_E_NOMEM;
	/* The rhythm of what explains most of the slow steps is the run's; else that of all episodes;
	 * else that of the large ones, which small ordinary noise cannot blur. */
	for (size_t i = 0; i < y->n_causes; i++)
		if (y->causes[i].slow_lost * 3 > y->excess && y->causes[i].slow_lost > most &&
		    !isnan(y->causes[i].rhythm.period_s)) {
			rhythm = y->causes[i].rhythm;
			most = y->causes[i].slow_lost;
		}
	if (v->n_slow &&
	    lg_rhythm_of_slow(v->steps, v->n_steps, v->steps[ref->step_first].median, &rhythm))
		return LG_E_NOMEM;
	v->shift_s = NAN;
	v->slope = trend.slope;
	lg_shape_with_rhythm(v, &rhythm, &trend, share);
	if (v->shape == LG_SHAPE_SHIFT)
		v->shift_s = trend.shift_s;
	return 0;
}

static int judge_scope(struct lg_case *c, const struct lg_tally *y)
{
	struct lg_verdict *v = c->v;
	const struct lg_rank *ref = &c->ranks[y->ref];
	struct lg_pieces scratch = { 0 };
	size_t with_steps = 0;
	double all = 0, total = 0, most = 0;
	LG_AUTOFREE double *votes = NULL;
	LG_AUTOFREE int64_t *own = NULL;

	for (size_t i = 0; i < c->n_ranks; i++)
		with_steps += c->ranks[i].n_steps > 0;
	if (with_steps < 2) {
		v->scope = LG_SCOPE_SINGLE;
		return 0;
	}
	votes = lg_calloc(c->n_ranks, sizeof *votes);
	own = lg_calloc(c->n_ranks, sizeof *own);
	if (!votes || !own)
		return LG_E_NOMEM;
	LG_EACH_WHILE(!c->failed, s, &v->steps[ref->step_first], ref->n_steps) {
		int64_t top = 0, sum = 0;
		size_t origin = 0, big = 0;

		if (!s->slow || s->warmup)
			continue;
		for (size_t i = 0; i < c->n_ranks; i++) {
			own[i] = lg_own_time_in(c, &c->ranks[i], s->ts, s->ts + s->dur, &scratch).stalled;
			sum += own[i];
			if (own[i] > top) {
				top = own[i];
				origin = i;
			}
		}
		if (top * 4 < s->dur - s->median)
			continue; /* no stall explains it: the straggler's vote is below */
		for (size_t i = 0; i < c->n_ranks; i++)
			big += own[i] * 2 >= top;
		/* One after the other adds up to more than the step lost; at once does not. */
		if (big == c->n_ranks && sum > (s->dur - s->median) * 5 / 4)
			all += (double)(s->dur - s->median);
		else
			votes[origin] += (double)(s->dur - s->median);
		total += (double)(s->dur - s->median);
	}
	for (size_t i = 0; i < c->n_ranks; i++) {
		votes[i] += (double)y->straggler.of_rank[i].lost;
		total += (double)y->straggler.of_rank[i].lost;
		most = votes[i] > most ? votes[i] : most;
	}
	if (total <= 0 || all >= LG_N_ANY_AT_ONCE * total)
		v->scope = LG_SCOPE_GLOBAL;
	else
		v->scope = most >= LG_N_ANY_ONE_RANK * total ? LG_SCOPE_RANK_LOCAL : LG_SCOPE_ROTATING;
	lg_free(scratch.v);
	return 0;
}

/* Steps that are left out as warm-up may be what most of a short run is. It is no loss of the loop's. */
static void tell_warmup(struct lg_case *c, const struct lg_tally *y)
{
	const struct lg_rank *r = &c->ranks[y->ref];
	const struct lg_step *s = &c->v->steps[r->step_first];
	double wall = 0, warm = 0, usual = c->v->median_ms * 1e6;
	struct lg_finding *f;
	size_t n = 0;

	for (size_t k = 0; k < r->n_steps; k++) {
		wall += (double)s[k].dur;
		warm += s[k].warmup ? (double)s[k].dur - usual : 0;
		n += s[k].warmup;
	}
	if (!n || n == r->n_steps || !(warm > LG_N_WARMUP_DOMINATES_FLOOR * wall))
		return;
	f = lg_finding_about(c, LG_R_WARMUP_DOMINATES, LG_STAGE_OTHER, LG_RELATION_SELF, 0.8);
	f->detail = "recording";
	f->culprit.pid = c->t->process.pid[r->prc];
	f->culprit.rank = r->rank;
	lg_title(c, f, LG_SAYS_WARMUP_DOMINATES_SET_UP, 100 * warm / wall, n, r->n_steps);
	lg_evidence_add(c, f, s[0].ts, s[n - 1].ts + s[n - 1].dur - s[0].ts,
			LG_SAYS_WARMUP_DOMINATES_MORE, warm / 1e9, wall / 1e9);
}

int lg_judge_run(struct lg_case *c, const struct lg_tally *y)
{
	int rc = judge_shape(c, y) ?: judge_scope(c, y);

	if (!rc)
		tell_warmup(c, y);
	return rc ?: c->failed;
}
