/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - CPU samples alone: during whose bursts does the job stand still?
 *
 * A thread that computes shows a sample every period; while it is stalled it shows none. Samples
 * cannot say by what. But if the training thread stands still during another process's bursts of
 * activity far more than at other times, that process is named, as a correlation.
 *
 * Test: the candidate's bursts keep their lengths and are thrown anywhere in the recording, RUNS
 * times (Monte Carlo); p is the share of throws in which the thread stood still for as long,
 * multiplied by the number of candidates (Bonferroni). How often it stands still of its own
 * accord (waiting for other ranks, pushed off a busy CPU) is in the throws, so it needs no
 * threshold.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/culprit.h"
#include "analyse/severity.h"
#include "analyse/tally.h"
#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"

enum { RUNS = 4000, BURSTS_MAX = 4096, CANDIDATES_MAX = 512, MIN_HITS = 2 };
enum { STILL_PERIODS = 3, BURST_PERIODS = 4 }; /* shorter is below what the sampling can tell */
#define P_LIMIT 0.01
#define STILL_SHARE 0.7  /* of a burst: then the thread stood still during it */
#define STILL_MORE 0.3   /* above its ordinary share */

struct interval {
	int64_t ts, end;
};

struct intervals {
	struct interval *v;
	size_t n, cap;
};

static int add(struct intervals *l, int64_t ts, int64_t end)
{
	if (lg_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v))
		return LG_E_NOMEM;
	l->v[l->n++] = (struct interval){ ts, end };
	return 0;
}

/* Sampling period: the median spacing of the samples of one busy thread. */
static int64_t sampling_period(const struct lg_case *c, lg_thr thr)
{
	const struct lg_index *x = c->idx;
	size_t n = x->sample_off[thr + 1] - x->sample_off[thr];
	int64_t *d, period;

	if (n < 8)
		return 0;
	d = lg_calloc(n, sizeof *d);
	if (!d)
		return 0;
	for (size_t i = 1; i < n; i++)
		d[i - 1] = c->t->sample.ts[x->sample[x->sample_off[thr] + i]] -
			   c->t->sample.ts[x->sample[x->sample_off[thr] + i - 1]];
	period = lg_select_i64(d, n - 1, (n - 1) / 2);
	lg_free(d);
	return period;
}

/* When the thread stood still: no sample for more than STILL_PERIODS. */
static int find_gaps(const struct lg_case *c, lg_thr thr, int64_t period, struct intervals *gaps)
{
	const struct lg_index *x = c->idx;
	const struct lg_sample_tab *s = &c->t->sample;
	int64_t last = c->t->first;
	int rc = 0;

	for (uint32_t p = x->sample_off[thr]; !rc && p < x->sample_off[thr + 1]; p++) {
		uint32_t row = x->sample[p];

		if (s->flags[row] & LG_SAMPLE_OFFCPU)
			continue;
		if (s->ts[row] - last > STILL_PERIODS * period)
			rc = add(gaps, last + period / 2, s->ts[row] - period / 2);
		last = s->ts[row];
	}
	if (!rc && c->t->last - last > STILL_PERIODS * period)
		rc = add(gaps, last + period / 2, c->t->last);
	return rc;
}

/* Bursts of a process: its samples closer together than five periods. */
static int find_bursts(const struct lg_case *c, lg_prc prc, int64_t period, struct intervals *out)
{
	const struct lg_index *x = c->idx;
	const struct lg_sample_tab *s = &c->t->sample;
	int rc = 0;

	for (uint32_t k = x->thread_off[prc]; !rc && k < x->thread_off[prc + 1]; k++) {
		lg_thr thr = x->thread[k];

		for (uint32_t p = x->sample_off[thr]; !rc && p < x->sample_off[thr + 1]; p++) {
			int64_t ts = s->ts[x->sample[p]];

			if (out->n && ts - out->v[out->n - 1].end <= 5 * period &&
			    ts >= out->v[out->n - 1].ts)
				out->v[out->n - 1].end = ts + period;
			else if (out->n < BURSTS_MAX)
				rc = add(out, ts, ts + period);
		}
	}
	return rc;
}

/* Time of [a, b) inside gaps (sorted, disjoint). */
static int64_t inside(const struct intervals *gaps, int64_t a, int64_t b)
{
	size_t lo = 0, hi = gaps->n;
	int64_t sum = 0;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (gaps->v[mid].end > a)
			hi = mid;
		else
			lo = mid + 1;
	}
	for (; lo < gaps->n && gaps->v[lo].ts < b; lo++) {
		int64_t from = gaps->v[lo].ts > a ? gaps->v[lo].ts : a;
		int64_t to = gaps->v[lo].end < b ? gaps->v[lo].end : b;

		sum += to - from;
	}
	return sum;
}

static double chance(const struct lg_case *c, const struct intervals *gaps,
		     const struct intervals *bursts, int64_t covered)
{
	int64_t span = c->t->last - c->t->first;
	uint64_t seed = 0x6c61676761726432;
	size_t as_good = 0;

	for (size_t run = 0; run < RUNS; run++) {
		int64_t sum = 0;

		for (size_t i = 0; i < bursts->n; i++) {
			int64_t len = bursts->v[i].end - bursts->v[i].ts, at;

			seed = lg_mix64(seed + i);
			at = c->t->first + (int64_t)((double)(seed >> 11) * 0x1p-53 *
						     (double)(span > len ? span - len : 0));
			sum += inside(gaps, at, at + len);
		}
		as_good += sum >= covered;
		if ((double)as_good >= P_LIMIT * (RUNS + 1))
			return 1; /* it can no longer come below the limit */
	}
	return (double)(as_good + 1) / (RUNS + 1);
}

/* Innermost frame that most samples share, outside lock and page-walk plumbing. */
static void name_function(struct lg_case *c, struct lg_finding *f, lg_prc prc,
			  const struct intervals *gaps, size_t *ret_n)
{
	const struct lg_index *x = c->idx;
	struct lg_piece piece = { .hold = UINT32_MAX, .row = UINT32_MAX, .end = LG_END_LOCK };
	const struct lg_piece **list = lg_calloc(gaps->n, sizeof *list);
	struct lg_piece *v = lg_calloc(gaps->n, sizeof *v);
	size_t n = 0;

	*ret_n = 0;
	for (size_t i = 0; list && v && i < gaps->n; i++) {
		v[i] = piece;
		v[i].ts = gaps->v[i].ts;
		v[i].dur = gaps->v[i].end - gaps->v[i].ts;
		v[i].thr = x->main_of[prc];
		for (uint32_t k = x->thread_off[prc]; k < x->thread_off[prc + 1]; k++) {
			uint32_t p = lg_index_sample_from(x, x->thread[k], v[i].ts);

			if (p < x->sample_off[x->thread[k] + 1] &&
			    c->t->sample.ts[x->sample[p]] < gaps->v[i].end)
				v[i].thr = x->thread[k];
		}
		list[n++] = &v[i];
	}
	if (n)
		lg_culprit_shared_function(c, f, list, n, ret_n);
	lg_free(list);
	lg_free(v);
}

static void tell(struct lg_case *c, const struct lg_rank *r, lg_prc prc, const struct intervals *bursts,
		 int64_t covered, double p, size_t n_long, double usual)
{
	int64_t burst_ns = 0, wall = c->t->last - c->t->first, *at;
	size_t hit = bursts->n;
	struct lg_finding *f = lg_finding_add(c, "host.foreign_activity");
	struct lg_rhythm rhythm;
	size_t samples, n_at = 0, told = 0;
	const char *every = "";

	at = lg_calloc(bursts->n, sizeof *at);
	if (!f || !at) {
		lg_free(at);
		return;
	}
	for (size_t i = 0; i < bursts->n; i++) {
		burst_ns += bursts->v[i].end - bursts->v[i].ts;
		at[n_at++] = bursts->v[i].ts;
	}
	rhythm = lg_rhythm_of(at, n_at);
	name_function(c, f, prc, bursts, &samples);
	lg_culprit_identify(c, f, c->idx->main_of[prc], r->thr);
	f->victims = lg_arena_alloc(&c->v->arena, 1, sizeof *f->victims);
	if (f->victims) {
		f->victims[0].rank = r->rank;
		f->victims[0].pid = c->t->process.pid[r->prc];
		f->victims[0].tid = c->t->thread.tid[r->thr];
		f->n_victims = 1;
	}
	f->stage = "other";
	f->lost_ms = (double)covered / 1e6;
	f->lost_share = (double)covered / (double)wall;
	f->confidence = fmin(0.8, 0.45 + 0.35 * (double)covered / (double)burst_ns) *
			(p < 0.001 ? 1 : 0.9);
	f->severity = hit < LG_REPEATS_MIN ? lg_severity_of_few(f->lost_share) : lg_severity_of(f->lost_share);
	if (!isnan(rhythm.period_s))
		every = lg_arena_printf(&c->v->arena, " every %.2f s", rhythm.period_s);
	else if (n_at == 2 || n_at == 3)
		every = lg_arena_printf(&c->v->arena, ", %.2f s apart",
					(double)(at[n_at - 1] - at[0]) / 1e9 / (double)(n_at - 1));
	f->title = lg_arena_printf(&c->v->arena,
				   "bursts of %s (pid %d)%s%s%s coincide with stalls of %s: a correlation, "
				   "no wait chain was recorded", f->culprit.comm ? f->culprit.comm : "?",
				   f->culprit.pid, f->culprit.function ? " in " : "",
				   f->culprit.function ? f->culprit.function : "", every,
				   lg_thread_text(c, r->thr));
	lg_evidence_add(c, f, INT64_MIN, 0,
			"stood still during %zu of its %zu bursts (%.0f %% of their time; %.0f %% is "
			"usual); by chance with p = %.4f (%d random placements, corrected for the "
			"number of processes)", hit, n_long, 100 * (double)covered / (double)burst_ns,
			100 * usual, p, RUNS);
	if (!isnan(rhythm.period_s)) {
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu bursts, %.3f s apart (chance: p = %.4f)", n_at,
				rhythm.period_s, rhythm.p);
		if (isnan(c->v->period_s)) {
			c->v->period_s = rhythm.period_s;
			c->v->period_p = rhythm.p;
			c->v->shape = "periodic";
		}
	}
	if (samples)
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu CPU samples of it inside the stalls", samples);
	for (size_t i = 0; i < bursts->n && told < 4; i++, told++)
		lg_evidence_add(c, f, bursts->v[i].ts, bursts->v[i].end - bursts->v[i].ts,
				"%s stood still for most of the %.1f ms while it ran",
				lg_thread_text(c, r->thr),
				(double)(bursts->v[i].end - bursts->v[i].ts) / 1e6);
	lg_free(at);
}

struct candidate {
	lg_prc prc;
	double p, usual;
	int64_t covered;
	size_t n_long;
	struct intervals bursts; /* long ones; in the end those in which the thread stood still */
};

/* A job's own processes are no strangers to each other: they stall together. */
static bool is_job(const struct lg_case *c, lg_prc p)
{
	for (size_t i = 0; i < c->n_ranks; i++)
		if (c->ranks[i].prc == p)
			return true;
	return c->t->process.rank[p] >= 0 || c->t->process.role[p] == LG_ROLE_RANK ||
	       c->t->process.role[p] == LG_ROLE_LOADER;
}

/* Keep the bursts that are long enough to be judged. */
static int64_t keep_long(struct intervals *b, int64_t period)
{
	size_t n = 0;
	int64_t sum = 0;

	for (size_t i = 0; i < b->n; i++)
		if (b->v[i].end - b->v[i].ts >= BURST_PERIODS * period) {
			sum += b->v[i].end - b->v[i].ts;
			b->v[n++] = b->v[i];
		}
	b->n = n;
	return sum;
}

static int judge_candidate(const struct lg_case *c, const struct intervals *gaps, int64_t period,
			   struct candidate *k)
{
	int64_t wall = c->t->last - c->t->first, busy, still = 0;
	size_t hits = 0;
	int rc = find_bursts(c, k->prc, period, &k->bursts);

	k->p = 1;
	if (rc)
		return rc;
	busy = keep_long(&k->bursts, period);
	k->n_long = k->bursts.n;
	for (size_t i = 0; i < k->bursts.n; i++) {
		const struct interval *b = &k->bursts.v[i];
		int64_t in = inside(gaps, b->ts, b->end);

		still += in;
		hits += (double)in >= STILL_SHARE * (double)(b->end - b->ts);
	}
	/* Always busy: it coincides with everything and explains nothing. */
	if (hits < MIN_HITS || busy * 5 > wall * 3 || hits * 5 < k->bursts.n * 3 ||
	    (double)still < (k->usual + STILL_MORE) * (double)busy)
		return 0;
	k->p = chance(c, gaps, &k->bursts, still);
	hits = 0;
	for (size_t i = 0; i < k->bursts.n; i++) {
		const struct interval b = k->bursts.v[i];
		int64_t in = inside(gaps, b.ts, b.end);

		if ((double)in < STILL_SHARE * (double)(b.end - b.ts))
			continue;
		k->covered += in;
		k->bursts.v[hits++] = b;
	}
	k->bursts.n = hits;
	return 0;
}

static int judge_victim(struct lg_case *c, const struct lg_rank *r, struct candidate *best)
{
	int64_t period = sampling_period(c, r->thr), wall = c->t->last - c->t->first, still = 0;
	struct intervals gaps = { 0 };
	size_t n_candidates = 0;
	int rc;

	if (period <= 0 || wall <= 0)
		return 0;
	rc = find_gaps(c, r->thr, period, &gaps);
	for (size_t i = 0; i < gaps.n; i++)
		still += gaps.v[i].end - gaps.v[i].ts;
	best->p = 1;
	for (lg_prc p = 1; !rc && p < c->t->process.n && n_candidates < CANDIDATES_MAX; p++) {
		struct candidate k = { .prc = p, .usual = (double)still / (double)wall };

		if (is_job(c, p) || c->t->process.pid[p] <= 0 ||
		    c->t->process.role[p] == LG_ROLE_RECORDER)
			continue;
		rc = judge_candidate(c, &gaps, period, &k);
		n_candidates += k.n_long >= MIN_HITS;
		if (!rc && (k.p < best->p || (k.p <= best->p && k.covered > best->covered))) {
			lg_free(best->bursts.v);
			*best = k;
		} else {
			lg_free(k.bursts.v);
		}
	}
	best->p *= (double)n_candidates;
	lg_free(gaps.v);
	return rc;
}

int lg_find_foreign(struct lg_case *c, struct lg_error *err)
{
	struct candidate best = { 0 };
	const struct lg_rank *victim = NULL;
	int rc = 0;

	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		struct candidate k = { 0 };

		rc = judge_victim(c, &c->ranks[i], &k);
		if (!rc && k.prc && k.p < P_LIMIT && (!victim || k.covered > best.covered)) {
			lg_free(best.bursts.v);
			best = k;
			victim = &c->ranks[i];
		} else {
			lg_free(k.bursts.v);
		}
	}
	if (!rc && victim)
		tell(c, victim, best.prc, &best.bursts, best.covered, best.p, best.n_long, best.usual);
	lg_free(best.bursts.v);
	rc = rc ? rc : c->failed;
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}
