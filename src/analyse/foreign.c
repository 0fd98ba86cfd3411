/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - CPU samples alone: whose bursts coincide with the gaps in the job's activity?
 *
 * A thread that computes shows a sample every period. When the whole process shows none for much
 * longer than usual, it was stalled; samples cannot say by what. If another process's bursts of
 * activity fall into those gaps far more often than chance allows, it is named, as a correlation.
 *
 * Test: the candidate's bursts keep their lengths and are thrown anywhere in the recording, RUNS
 * times (Monte Carlo); p is the share of throws that cover as much of the gaps, multiplied by
 * the number of candidates (Bonferroni).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/culprit.h"
#include "analyse/tally.h"
#include "base/alloc.h"
#include "base/map.h"

enum { RUNS = 4000, BURSTS_MAX = 4096, GAPS_MAX = 4096, CANDIDATES_MAX = 512, MIN_GAPS = 2 };
#define WINDOW_NS 100000000ll
#define MIN_GAP_NS 5000000ll
#define P_LIMIT 0.01

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

static int cmp_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
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
	qsort(d, n - 1, sizeof *d, cmp_i64);
	period = d[(n - 1) / 2];
	lg_free(d);
	return period;
}

/* Gaps in the activity of the process: much longer than the largest gap of an ordinary window. */
static int find_gaps(const struct lg_case *c, lg_prc prc, int64_t period, struct intervals *gaps)
{
	const struct lg_sample_tab *s = &c->t->sample;
	size_t n_windows = (size_t)((c->t->last - c->t->first) / WINDOW_NS) + 1, used = 0;
	int64_t *largest = lg_calloc(n_windows, sizeof *largest), last = INT64_MIN, limit;
	int rc = 0;

	if (!largest)
		return LG_E_NOMEM;
	for (int pass = 0; !rc && pass < 2; pass++) {
		if (pass) {
			for (size_t i = 0; i < n_windows; i++)
				if (largest[i])
					largest[used++] = largest[i];
			if (used < 4)
				break;
			qsort(largest, used, sizeof *largest, cmp_i64);
			limit = largest[used / 2] * 3;
			limit = limit > 4 * period ? limit : 4 * period;
			limit = limit > MIN_GAP_NS ? limit : MIN_GAP_NS;
		}
		last = INT64_MIN;
		for (size_t i = 0; !rc && i < s->n; i++) {
			if (c->t->thread.prc[s->thr[i]] != prc || (s->flags[i] & LG_SAMPLE_OFFCPU))
				continue;
			if (last != INT64_MIN) {
				int64_t gap = s->ts[i] - last;
				size_t w = (size_t)((last - c->t->first) / WINDOW_NS);

				if (!pass && gap > largest[w])
					largest[w] = gap;
				if (pass && gap > limit && gaps->n < GAPS_MAX)
					rc = add(gaps, last, s->ts[i]);
			}
			last = s->ts[i];
		}
	}
	lg_free(largest);
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

static void tell(struct lg_case *c, const struct lg_rank *r, lg_prc prc, const struct intervals *gaps,
		 const struct intervals *bursts, int64_t covered, double p, size_t hit)
{
	int64_t gap_ns = 0, wall = c->t->last - c->t->first, *at;
	struct lg_finding *f = lg_finding_add(c, "host.foreign_activity");
	struct lg_rhythm rhythm;
	size_t samples, n_at = 0, told = 0;
	const char *every = "";

	at = lg_calloc(bursts->n, sizeof *at);
	if (!f || !at) {
		lg_free(at);
		return;
	}
	for (size_t i = 0; i < gaps->n; i++)
		gap_ns += gaps->v[i].end - gaps->v[i].ts;
	for (size_t i = 0; i < bursts->n; i++)
		if (inside(gaps, bursts->v[i].ts, bursts->v[i].end) > 0)
			at[n_at++] = bursts->v[i].ts;
	rhythm = lg_rhythm_of(at, n_at);
	name_function(c, f, prc, gaps, &samples);
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
	f->excess_share = (double)covered / (double)gap_ns;
	f->confidence = fmin(0.8, 0.45 + 0.35 * f->excess_share) * (p < 0.001 ? 1 : 0.9);
	f->severity = hit < 5 ? f->lost_share >= 0.01 ? "low" : "info"
		      : f->lost_share >= 0.10 ? "high"
		      : f->lost_share >= 0.03 ? "medium"
		      : f->lost_share >= 0.01 ? "low" : "info";
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
			"%zu of %zu stalls fall into its bursts; by chance with p = %.4f (%d random "
			"placements, corrected for the number of processes)", hit, gaps->n, p, RUNS);
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
	for (size_t i = 0; i < gaps->n && told < 4; i++) {
		int64_t ns = gaps->v[i].end - gaps->v[i].ts;

		for (size_t k = 0; k < bursts->n; k++)
			if (bursts->v[k].ts < gaps->v[i].end && bursts->v[k].end > gaps->v[i].ts) {
				lg_evidence_add(c, f, gaps->v[i].ts, ns,
						"no sample of %s for %.1f ms while it ran",
						lg_thread_text(c, r->thr), (double)ns / 1e6);
				told++;
				break;
			}
	}
	lg_free(at);
}

struct candidate {
	lg_prc prc;
	double p;
	int64_t covered;
	size_t hit;
	struct intervals bursts;
};

/* Victims stall together; a job's own processes are no strangers to each other. */
static bool is_job(const struct lg_case *c, lg_prc p)
{
	for (size_t i = 0; i < c->n_ranks; i++)
		if (c->ranks[i].prc == p)
			return true;
	return c->t->process.rank[p] >= 0 || c->t->process.role[p] == LG_ROLE_RANK ||
	       c->t->process.role[p] == LG_ROLE_LOADER;
}

static int judge_victim(struct lg_case *c, const struct lg_rank *r, struct candidate *best,
			struct intervals *gaps)
{
	int64_t period = sampling_period(c, r->thr), wall = c->t->last - c->t->first;
	size_t n_candidates = 0;
	int rc;

	if (period <= 0)
		return 0;
	rc = find_gaps(c, r->prc, period, gaps);
	if (rc || gaps->n < MIN_GAPS)
		return rc;
	for (lg_prc p = 1; !rc && p < c->t->process.n && n_candidates < CANDIDATES_MAX; p++) {
		struct candidate k = { .prc = p };
		int64_t busy = 0;

		if (is_job(c, p) || c->t->process.pid[p] <= 0 ||
		    c->t->process.role[p] == LG_ROLE_RECORDER)
			continue;
		rc = find_bursts(c, p, period, &k.bursts);
		for (size_t i = 0; i < k.bursts.n; i++) {
			int64_t in = inside(gaps, k.bursts.v[i].ts, k.bursts.v[i].end);

			busy += k.bursts.v[i].end - k.bursts.v[i].ts;
			k.covered += in;
		}
		for (size_t i = 0; i < gaps->n; i++)
			for (size_t j = 0; j < k.bursts.n; j++)
				if (k.bursts.v[j].ts < gaps->v[i].end &&
				    k.bursts.v[j].end > gaps->v[i].ts) {
					k.hit++;
					break;
				}
		n_candidates += k.bursts.n > 0;
		/* Always busy: it coincides with everything and explains nothing. */
		if (!rc && k.hit >= MIN_GAPS && busy * 5 < wall * 3) {
			k.p = chance(c, gaps, &k.bursts, k.covered);
			if (!best->prc || k.p < best->p ||
			    (k.p <= best->p && k.covered > best->covered)) {
				lg_free(best->bursts.v);
				*best = k;
				continue;
			}
		}
		lg_free(k.bursts.v);
	}
	best->p *= (double)n_candidates;
	return rc;
}

int lg_find_foreign(struct lg_case *c, struct lg_error *err)
{
	struct candidate best = { 0 };
	struct intervals best_gaps = { 0 };
	const struct lg_rank *victim = NULL;
	int rc = 0;

	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		struct candidate k = { 0 };
		struct intervals gaps = { 0 };
		int64_t sum = 0;

		rc = judge_victim(c, &c->ranks[i], &k, &gaps);
		for (size_t g = 0; g < gaps.n; g++)
			sum += gaps.v[g].end - gaps.v[g].ts;
		if (!rc && k.prc && k.p < P_LIMIT && k.covered * 3 > sum &&
		    (!victim || k.covered > best.covered)) {
			lg_free(best.bursts.v);
			lg_free(best_gaps.v);
			best = k;
			best_gaps = gaps;
			victim = &c->ranks[i];
		} else {
			lg_free(k.bursts.v);
			lg_free(gaps.v);
		}
	}
	if (!rc && victim)
		tell(c, victim, best.prc, &best_gaps, &best.bursts, best.covered, best.p, best.hit);
	lg_free(best.bursts.v);
	lg_free(best_gaps.v);
	rc = rc ? rc : c->failed;
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}
