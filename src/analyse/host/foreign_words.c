/* SPDX-License-Identifier: Apache-2.0 */
/* foreign_words.c - what is said of a correlation in CPU samples, and where there is none. */
#include "analyse/host/foreign.h"

#include <math.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/causes.h"
#include "analyse/steps/steps.h"
#include "base/words.h"

/* Innermost frame that most samples share, outside lock and page-walk plumbing. */
static void name_function(struct lg_case *c, struct lg_finding *f, lg_prc prc,
			  const struct lg_stretches *gaps, size_t *ret_n)
{
	const struct lg_index *x = c->idx;
	struct lg_piece piece = { .hold = UINT32_MAX, .row = UINT32_MAX, .end = LG_END_LOCK };
	LG_AUTOFREE const struct lg_piece **list = lg_scratch(c, gaps->n, sizeof *list);
	LG_AUTOFREE struct lg_piece *v = lg_scratch(c, gaps->n, sizeof *v);
	size_t n = 0;

	*ret_n = 0;
	for (size_t i = 0; list && v && i < gaps->n; i++) {
		v[i] = piece;
		v[i].ts = gaps->v[i].ts;
		v[i].dur = gaps->v[i].end - gaps->v[i].ts;
		v[i].thr = x->main_of[prc];
		LG_LISTED(thr, x->thread, prc) {
			uint32_t p = lg_index_sample_from(x, thr, v[i].ts);

			if (p < x->sample_off[thr + 1] && c->t->sample.ts[x->sample[p]] < gaps->v[i].end)
				v[i].thr = thr;
		}
		list[n++] = &v[i];
	}
	if (n)
		lg_culprit_shared_function(c, f, list, n, ret_n);
}

/* "p <= 0.0005 (20000 random placements, none as good)" */
static const char *odds_text(struct lg_case *c, const struct lg_odds *o)
{
	if (o->as_good)
		return lg_text(c, LG_SAYS_HOST_FOREIGN_ACTIVITY_SOME_AS_GOOD, o->p, o->as_good,
			       o->placed);
	/* is_out_of_reach() */
	if (o->placed < LG_RUNS)
		return lg_text(c, LG_SAYS_HOST_FOREIGN_ACTIVITY_FAR_BELOW, o->p, o->placed,
			       o->placed < LG_FIRST_RUNS ? LG_FEW_RUNS_OFF : LG_RUNS_OFF);
	return lg_text(c, LG_SAYS_HOST_FOREIGN_ACTIVITY_NONE_AS_GOOD, o->p, o->placed);
}

/* What the correlation rests on, and what speaks against it. */
static void tell_proof(struct lg_case *c, struct lg_finding *f, const struct lg_rank *r,
		       const struct lg_candidate *k, const struct lg_rhythm *rhythm, size_t n_beats,
		       size_t samples)
{
	const struct lg_stretches *bursts = &k->bursts;
	const char *others = lg_candidates_text(c);
	int64_t burst_ns = lg_stretches_time(bursts);
	size_t told = 0;

	lg_evidence(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_STOOD_STILL, k->hits, k->n_long,
		    lg_percent(k->covered, burst_ns), 100 * k->usual, odds_text(c, &k->odds));
	f->period_s = isnan(rhythm->period_s) ? 0 : rhythm->period_s;
	if (f->period_s > 0) {
		lg_evidence(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_RHYTHM, n_beats, rhythm->period_s,
			    rhythm->at_most ? "<=" : "=", rhythm->p);
		if (isnan(c->v->period_s)) {
			c->v->period_s = rhythm->period_s;
			c->v->period_p = rhythm->p;
			c->v->period_p_at_most = rhythm->at_most;
			c->v->shape = LG_SHAPE_PERIODIC;
		}
	}
	if (k->rival.prc && k->rival.p < LG_N_HOST_FOREIGN_ACTIVITY_P && k->rival.covered * 2 >= k->covered) {
		f->confidence *= 0.7;
		lg_evidence_against(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_RIVAL,
				    lg_thread_text(c, c->idx->main_of[k->rival.prc]),
				    k->rival.at_most ? "<=" : "=", k->rival.p,
				    lg_ms(k->rival.covered), lg_ms(k->covered));
	}
	if (k->all.n > k->n_judged)
		lg_evidence(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_LEFT_OUT, k->all.n - k->n_judged,
			    lg_thread_text(c, r->thr));
	if (samples)
		lg_evidence(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_SAMPLES, samples);
	if (others)
		lg_evidence(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_CANDIDATES, others,
			    lg_thread_text(c, r->thr));
	for (size_t i = 0; i < bursts->n && told < 4; i++, told++)
		lg_evidence_add(c, f, bursts->v[i].ts, bursts->v[i].end - bursts->v[i].ts,
				LG_SAYS_HOST_FOREIGN_ACTIVITY_MOMENT, lg_thread_text(c, r->thr),
				lg_ms(bursts->v[i].end - bursts->v[i].ts));
}

void lg_tell_foreign(struct lg_case *c, const struct lg_rank *r, const struct lg_candidate *k)
{
	const struct lg_stretches *bursts = &k->bursts;
	int64_t burst_ns = lg_stretches_time(bursts), wall = c->t->last - c->t->first;
	int64_t covered = k->covered, first = 0, last = 0;
	double p = k->odds.p;
	lg_prc prc = k->prc;
	struct lg_finding *f = lg_finding_add(c, LG_R_HOST_FOREIGN_ACTIVITY);
	struct lg_rhythm rhythm;
	struct lg_burst *beat;
	size_t samples, n_at = 0;
	const char *every = "";

	if (!f)
		return;
	beat = lg_scratch(c, k->all.n, sizeof *beat);
	if (!beat)
		return;
	/* Its rhythm is its own: also of the bursts that do not count as evidence. */
	for (size_t i = 0; i < k->all.n; i++)
		if (k->all.v[i].beat) {
			last = k->all.v[i].ts;
			first = n_at ? first : last;
			beat[n_at++] = (struct lg_burst){ last, last, 1 };
		}
	rhythm = lg_rhythm_of(beat, n_at, 0);
	lg_free(beat);
	name_function(c, f, prc, bursts, &samples);
	lg_culprit_identify(c, f, c->idx->main_of[prc], r->thr);
	lg_victim_add(c, f, 1, r->rank, r->prc, r->thr);
	f->stage = "other";
	f->lost_ms = lg_ms(covered);
	f->lost_share = (double)covered / (double)wall;
	f->confidence = fmin(0.8, 0.45 + 0.35 * (double)covered / (double)burst_ns) *
			(p < 0.001 ? 1 : 0.9);
	lg_grade(f, k->hits, wall);
	if (c->rank_of_prc[prc]) { /* who of the two is held up, and whether that is a job, is a guess */
		lg_cap(f, LG_CAP_GUESS);
		lg_evidence_against(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_IS_BUSY);
	}
	if (!lg_is_likely_job(c, r->prc))
		lg_doubt_job(c, f, r->prc);
	if (!isnan(rhythm.period_s))
		every = lg_text(c, " every %.2f s", rhythm.period_s);
	else if (n_at == 2 || n_at == 3)
		every = lg_text(c, ", %.2f s apart", lg_seconds(last - first) / (double)(n_at - 1));
	lg_title(c, f, LG_SAYS_HOST_FOREIGN_ACTIVITY_TITLE, f->culprit.comm ?: "?", f->culprit.pid,
		 lg_in_text(c, f), every, lg_thread_text(c, r->thr));
	tell_proof(c, f, r, k, &rhythm, n_at, samples);
}

/* The thread had no CPU free: who ran while it did not is no proof of anything. */
void lg_tell_cpu_taken(struct lg_case *c, const struct lg_rank *r)
{
	lg_say(c, LG_SAYS_HOST_FOREIGN_ACTIVITY_CPU_TAKEN, lg_thread_text(c, r->thr),
	       c->t->state.n ? LG_SAYS_HOST_FOREIGN_ACTIVITY_MARK_STEPS
	       : LG_SAYS_HOST_FOREIGN_ACTIVITY_RECORD_STATES);
}

/* Too few times to tell: how long it takes to see it often enough. */
void lg_tell_how_long(struct lg_case *c, const struct lg_victim *v, const struct lg_hint *h)
{
	double seen_s = lg_seconds(v->life.end - v->life.ts), times = (double)h->hits;
	double rivals = (double)(h->rivals > 1 ? h->rivals : 1);
	double enough = ceil(log(LG_N_HOST_FOREIGN_ACTIVITY_P / rivals) / log(pow(h->p, 1 / times)));

	enough = fmax(enough, times + LG_N_HOST_FOREIGN_ACTIVITY_HITS);
	lg_say(c, LG_SAYS_HOST_FOREIGN_ACTIVITY_HOW_LONG,
	       lg_thread_text(c, c->idx->main_of[h->prc]), h->hits, lg_s(h->hits),
	       lg_thread_text(c, v->rank->thr), h->p, rivals, seen_s,
	       5 * ceil(1.25 * enough * seen_s / times / 5),
	       5 * ceil(1.25 * enough * seen_s / times / 5));
}
