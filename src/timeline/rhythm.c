/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rhythm.c - is the slowness periodic, does it drift, did it begin at a moment?
 *
 * Period: the spacings d of n bursts are compared with the nearest multiples of a candidate
 * period P: score(P) = mean |d/P - round(d/P)|, round at least 1, so a missed burst (a tick that
 * hit nobody) does not destroy the rhythm. Candidates are the spacings themselves. The score of
 * the best candidate is compared with that of n bursts as long as these, at random moments of the same
 * window and as far apart as these must be to count as separate, drawn RUNS times (Monte Carlo test
 * against chance); p = (better + 1) / (RUNS + 1), times the number of scales at which it was asked. Where
 * no draw was better that is an upper bound, and is said to be one.
 *
 * Shift: the split of the run that best separates two levels (least absolute deviation around the
 * medians of both sides); drift: Theil-Sen slope over block medians. A run too short for blocks is split
 * step by step, and only two levels that hardly touch count.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "timeline/rhythm.h"
#include "base/alloc.h"
#include "base/each.h"
#include "base/map.h"
#include "base/median.h"
#include "base/order.h"

enum { RUNS = 2000, MAX_EVENTS = 256, CANDIDATES = 24, MIN_EVENTS = 4 };
enum { BLOCKS = 64, STEPS_MIN = 48 }; /* at least six blocks, of eight steps */
enum { FEW_MIN = 16, SIDE_MIN = 6 };   /* of steps that are looked at one by one */
#define P_LIMIT 0.01
#define SCORE_LIMIT 0.12

/* Mean distance of the spacings from whole multiples; multiples above 1 pay, else a tiny P
 * would fit everything. */
static double score_of(const double *d, size_t n, double period)
{
	double sum = 0, ticks = 0;

	for (size_t i = 0; i < n; i++) {
		double k = round(d[i] / period);

		if (k < 1)
			k = 1;
		sum += fabs(d[i] / period - k);
		ticks += k;
	}
	/* n of `ticks` beats were seen: at least two in three must be. */
	return sum / (double)n + (ticks > 1.5 * (double)n ? ticks / (double)n - 1.5 : 0);
}

static double best_period(const double *d, size_t n, double *ret_score)
{
	double sorted[MAX_EVENTS], best = NAN, best_score = INFINITY;
	size_t step = n > CANDIDATES ? n / CANDIDATES : 1;

	memcpy(sorted, d, n * sizeof *d);
	qsort(sorted, n, sizeof *sorted, lg_cmp_f64);
	for (size_t i = 0; i < n; i += step) {
		double s;

		if (sorted[i] <= 0)
			continue;
		s = score_of(d, n, sorted[i]);
		if (s < best_score) {
			best_score = s;
			best = sorted[i];
		}
	}
	*ret_score = best_score;
	return best;
}

/* Least squares of event time against beat number: uses the whole span, so it is far more exact
 * than any single spacing. */
static double refine(const double *t, const double *d, size_t n_d, double period)
{
	double k = 0, sk = 0, st = 0, skk = 0, skt = 0, n = (double)(n_d + 1);

	st = t[0];
	for (size_t i = 0; i < n_d; i++) {
		double beats = round(d[i] / period);

		k += beats < 1 ? 1 : beats;
		sk += k;
		st += t[i + 1];
		skk += k * k;
		skt += k * t[i + 1];
	}
	return (n * skt - sk * st) / (n * skk - sk * sk);
}

/* In place: bursts at most gap apart are one. Then those that weigh next to nothing are left out: a
 * microsecond of contention between two real stalls would hide a rhythm. */
static size_t join(struct lg_burst *b, size_t n, int64_t gap)
{
	int64_t most = 0;
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		if (k && (b[i].ts <= b[k - 1].end ||
			  (uint64_t)b[i].ts - (uint64_t)b[k - 1].end <= (uint64_t)gap)) {
			b[k - 1].weight += b[i].weight;
			b[k - 1].end = b[i].end > b[k - 1].end ? b[i].end : b[k - 1].end;
		} else {
			b[k++] = b[i];
		}
		most = b[k - 1].weight > most ? b[k - 1].weight : most;
	}
	LG_KEEP(x, b, k, x->weight >= most / 20);
	return k;
}

/* The period of these bursts, NAN when chance explains it. ret_score only with a period. */
static double period_of(const struct lg_burst *b, size_t n, int64_t gap, double *ret_p, bool *ret_at_most,
			double *ret_score)
{
	double t[MAX_EVENTS], d[MAX_EVENTS], least[MAX_EVENTS], u[MAX_EVENTS], span, room, period;
	uint64_t seed = 0x6c616767617264; /* fixed: the same input gives the same answer */
	size_t better = 0;

	*ret_p = 1;
	*ret_at_most = false;
	n = LG_MIN(n, MAX_EVENTS);
	for (size_t i = 0; i < n; i++)
		t[i] = (double)(int64_t)((uint64_t)b[i].ts - (uint64_t)b[0].ts) / 1e9;
	span = room = t[n - 1];
	for (size_t i = 0; i + 1 < n; i++) {
		d[i] = t[i + 1] - t[i];
		least[i] = fmin(d[i], ((double)b[i].end - (double)b[i].ts + (double)gap) / 1e9);
		room -= least[i];
	}
	if (!(span > 0))
		return NAN;
	period = best_period(d, n - 1, ret_score);
	if (isnan(period) || *ret_score > SCORE_LIMIT)
		return NAN;
	for (size_t run = 0; run < RUNS; run++) {
		double null_score;

		/* Same window: the first and last burst are fixed, the others fall anywhere. */
		for (size_t i = 0; i < n; i++) {
			seed = lg_mix64(seed + i);
			u[i] = (double)(seed >> 11) * 0x1p-53 * room;
		}
		u[0] = 0;
		u[n - 1] = room;
		qsort(u, n, sizeof *u, lg_cmp_f64);
		for (size_t i = 0; i + 1 < n; i++)
			u[i] = u[i + 1] - u[i] + least[i];
		(void)best_period(u, n - 1, &null_score);
		better += null_score <= *ret_score;
	}
	*ret_p = (double)(better + 1) / (RUNS + 1);
	*ret_at_most = !better;
	return refine(t, d, n - 1, period);
}

struct lg_rhythm lg_rhythm_of(struct lg_burst *b, size_t n, int64_t gap_ns)
{
	struct lg_rhythm r = { .period_s = NAN, .p = 1 }, none;
	double best_score = INFINITY;
	size_t scales = 0, tried = 0;

	n = join(b, n, gap_ns);
	r.n_events = n;
	none = r;
	for (int64_t gap = gap_ns; n >= MIN_EVENTS; n = join(b, n, gap)) {
		if (n != tried) {
			bool at_most;
			double p, score, period = period_of(b, n, gap, &p, &at_most, &score);

			if (!isnan(period) && (p < r.p || (p <= r.p && score < best_score))) {
				r = (struct lg_rhythm){ .period_s = period, .p = p, .at_most = at_most,
							.n_events = n };
				best_score = score;
			}
			scales++;
			tried = n;
		}
		if (!gap || __builtin_mul_overflow(gap, 4, &gap))
			break;
	}
	r.p *= (double)scales;
	return r.p < P_LIMIT ? r : none;
}

/* Medians of up to BLOCKS equal blocks of steps: slow steps do not move them. */
static int block_medians(const double *ms, size_t n, double *level, size_t *ret_n)
{
	size_t blocks = n / 8 < BLOCKS ? n / 8 : BLOCKS;
	LG_AUTOFREE double *w = lg_calloc(n, sizeof *w);

	*ret_n = blocks;
	if (!w)
		return LG_E_NOMEM;
	for (size_t b = 0; b < blocks; b++) {
		size_t a = n * b / blocks, z = n * (b + 1) / blocks;

		for (size_t i = a; i < z; i++)
			w[i - a] = ms[i];
		level[b] = lg_median_f64(w, z - a);
	}
	return 0;
}

static double spread(const double *v, size_t n, double *ret_median)
{
	double w[BLOCKS], sum = 0;

	memcpy(w, v, n * sizeof *v);
	*ret_median = lg_median_f64(w, n);
	for (size_t i = 0; i < n; i++)
		sum += fabs(v[i] - *ret_median);
	return sum;
}

/* Where v parts best into two levels, each of `side` and more; *ret_cost: what is left of its spread. */
static size_t best_split(const double *v, size_t n, size_t side, struct lg_trend *t, double *ret_cost)
{
	size_t at = side;

	*ret_cost = INFINITY;
	for (size_t i = side; i + side <= n; i++) {
		double before, after;
		double cost = spread(v, i, &before) + spread(v + i, n - i, &after);

		if (cost < *ret_cost) {
			*ret_cost = cost;
			at = i;
			t->before_ms = before;
			t->after_ms = after;
		}
	}
	return at;
}

/* Theil-Sen: the median of all slopes, an element. n <= BLOCKS. */
static double slope_of(const double *v, size_t n)
{
	double slopes[BLOCKS * BLOCKS / 2];
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++)
			slopes[k++] = (v[j] - v[i]) / (double)(j - i);
	return lg_median_f64(slopes, k);
}

/* More than a tenth of v above (or below) the level between the two sides. */
static bool touches(const double *v, size_t n, double level, bool above)
{
	size_t out = 0;

	for (size_t i = 0; i < n; i++)
		out += above ? v[i] > level : v[i] < level;
	return out * 10 > n;
}

/*
 * A shift or a drift in FEW_MIN to STEPS_MIN steps. Steps, not medians, so one that is an outlier counts as
 * three times the usual at most; the levels are three times as far apart as the steps of a side are from
 * theirs; a line does not explain it nearly as well. A drift: the line explains half of what they are apart,
 * and over all of them it rises by three times as much as they are from it. (1000 random runs each, normal,
 * log-normal, of two modes, with outliers: at most three were called either.)
 */
static void trend_of_few(const double *ms, size_t n, struct lg_trend *t)
{
	double v[STEPS_MIN], flat[STEPS_MIN], most, slope, median, best, mid, apart, all, off, rise;
	struct lg_trend found = *t;
	size_t at;
	bool up;

	for (size_t i = 0; i < n; i++)
		v[i] = ms[i];
	(void)spread(v, n, &median);
	most = 3 * median;
	for (size_t i = 0; i < n; i++)
		v[i] = fmin(v[i], most);
	all = spread(v, n, &median);
	at = best_split(v, n, SIDE_MIN, &found, &best);
	up = found.after_ms > found.before_ms;
	slope = slope_of(v, n);
	for (size_t i = 0; i < n; i++)
		flat[i] = v[i] - slope * (double)i;
	off = spread(flat, n, &mid);
	mid = (found.before_ms + found.after_ms) / 2;
	apart = fabs(found.after_ms - found.before_ms);
	rise = slope * (double)n / median;
	if (fabs(rise) > 0.2 && off < 0.5 * all && fabs(rise) * median * (double)n > 3 * off && off < best) {
		t->shape = LG_SHAPE_DRIFT;
		t->slope = t->slower = rise;
		return;
	}
	if (apart <= 0.2 * found.before_ms || apart < 3 * best / (double)n || touches(v, at, mid, up) ||
	    touches(v + at, n - at, mid, !up) || best >= 0.7 * off)
		return;
	*t = found;
	t->shape = LG_SHAPE_SHIFT;
	t->at = at;
	t->slower = t->after_ms / t->before_ms - 1;
}

/* The step of [from, to) at which the levels part: fewest lie on the wrong side of the one between them. */
static size_t step_of_shift(const double *ms, size_t from, size_t to, const struct lg_trend *t)
{
	double mid = (t->before_ms + t->after_ms) / 2;
	size_t at = from;
	int best = 0, sum = 0;

	for (size_t i = from; i < to; i++) {
		sum += (ms[i] < mid) == (t->before_ms < mid) ? 1 : -1;
		if (sum > best) {
			best = sum;
			at = i + 1;
		}
	}
	return at;
}

int lg_trend_of(const double *ms, size_t n, struct lg_trend *t)
{
	double level[BLOCKS], all, median, best;
	size_t blocks, at;

	*t = (struct lg_trend){ .shift_s = NAN, .before_ms = NAN, .after_ms = NAN };
	if (n < FEW_MIN)
		return 0;
	if (n < STEPS_MIN) {
		trend_of_few(ms, n, t);
		return 0;
	}
	if (block_medians(ms, n, level, &blocks))
		return LG_E_NOMEM;
	all = spread(level, blocks, &median);
	at = best_split(level, blocks, 2, t, &best);
	t->at = step_of_shift(ms, n * (at - 1) / blocks, n * (at + 1) / blocks, t);
	t->slope = slope_of(level, blocks) * (double)blocks / median;
	/* A step in the level explains most of its spread; a ramp leaves half of it. */
	if (fabs(t->after_ms - t->before_ms) > 0.2 * t->before_ms && best < 0.35 * all)
		t->shape = LG_SHAPE_SHIFT;
	else if (fabs(t->slope) > 0.2 && best < 0.75 * all)
		t->shape = LG_SHAPE_DRIFT;
	if (t->shape)
		t->slower = t->shape == LG_SHAPE_SHIFT ? t->after_ms / t->before_ms - 1 : t->slope;
	return 0;
}
