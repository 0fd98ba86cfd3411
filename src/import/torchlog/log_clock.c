/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_clock.c - when the lines of a run of steps were printed, where their clock counts in ticks about as
 * long as the steps.
 *
 * A stamp says that a line was printed in [stamp, stamp + tick). Of all the courses through these windows the
 * one with the fewest and slightest bends is taken, a taut string: steps differ by what the stamps force
 * them to, and several in one tick share it evenly. What a lone slow step takes is understated so, by up to a
 * tick, which is spread over those around it. So where the string shows one, it is cut, and each piece is
 * pulled taut by itself.
 */
#include <math.h>

#include "base/alloc.h"
#include "import/torchlog/torchlog.h"

enum { REACH = 512 }; /* lines that one straight part spans at most: what a line of it costs to find */

static double since(const struct lg_log_point *p, size_t i)
{
	return (double)((uint64_t)p[i].stamp - (uint64_t)p[0].stamp);
}

/* Where a straight course through the windows of p would begin; in the first of them. */
static double begin_of(const struct lg_log_point *p, size_t n, double tick)
{
	double x = 0, y = 0, xx = 0, xy = 0, slope, at;

	n = n < REACH ? n : REACH;
	for (size_t i = 0; i < n; i++) {
		x += (double)(p[i].step - p[0].step) / (double)n;
		y += since(p, i) / (double)n;
	}
	for (size_t i = 0; i < n; i++) {
		double dx = (double)(p[i].step - p[0].step) - x;

		xx += dx * dx;
		xy += dx * (since(p, i) - y);
	}
	slope = xx > 0 ? xy / xx : 0;
	at = y - slope * x + tick / 2;
	return fmin(fmax(at, 0), tick);
}

/* The next straight part, from p[a] on: where it ends, and its slope. */
static size_t straight_part(const struct lg_log_point *p, size_t n, size_t a, double tick, double before,
			    double *ret_slope)
{
	double low = -INFINITY, high = INFINITY;
	size_t low_at = a, high_at = a, i;

	for (i = a + 1; i < n && i - a <= REACH; i++) {
		double dx = (double)(p[i].step - p[a].step);
		double from = (since(p, i) - p[a].at) / dx, to = from + tick / dx;

		if (from > high || to < low) {
			*ret_slope = from > high ? high : low;
			return from > high ? high_at : low_at;
		}
		if (from >= low) {
			low = from;
			low_at = i;
		}
		if (to <= high) {
			high = to;
			high_at = i;
		}
	}
	/* Nothing bends it: on as it was, or between the last windows that it has to pass. */
	*ret_slope = isnan(before) ? (low + high) / 2 : fmin(fmax(before, low), high);
	return i - 1;
}

/* p[].at, from p[0].stamp on, in ns. */
static void pull_taut(struct lg_log_point *p, size_t n, double tick)
{
	double slope = NAN;

	p[0].at = begin_of(p, n, tick);
	for (size_t a = 0, end; a + 1 < n; a = end) {
		end = straight_part(p, n, a, tick, slope, &slope);
		slope = fmax(slope, 0);
		for (size_t i = a + 1; i <= end; i++)
			p[i].at = p[a].at + slope * (double)(p[i].step - p[a].step);
	}
}

static double step_of(const struct lg_log_point *p, size_t i)
{
	return (p[i].at - p[i - 1].at) / (double)(p[i].step - p[i - 1].step);
}

/* Is what lies between p[i - 1] and p[i] longer than what lies beside it, by more than the string spread? */
static bool stands_out(const struct lg_log_point *p, size_t n, size_t i, double tick)
{
	double beside = fmax(i > 1 ? step_of(p, i - 1) : 0, i + 1 < n ? step_of(p, i + 1) : 0);

	return beside > 0 && (step_of(p, i) - beside) * (double)(p[i].step - p[i - 1].step) > tick / 2;
}

bool lg_torchlog_pull_taut(struct lg_log_point *p, size_t n, int64_t tick)
{
	LG_AUTOFREE uint8_t *cut = lg_calloc(n, 1);
	size_t from = 0;

	if (!cut)
		return false;
	pull_taut(p, n, (double)tick);
	for (size_t i = 1; i < n; i++)
		cut[i] = stands_out(p, n, i, (double)tick);
	for (size_t i = 1; i <= n; i++) {
		double begin = since(p, from);

		if (i < n && !cut[i])
			continue;
		pull_taut(p + from, i - from, (double)tick);
		for (size_t k = from; k < i; k++)
			p[k].at += begin;
		from = i;
	}
	return true;
}
