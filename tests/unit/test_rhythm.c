/* SPDX-License-Identifier: Apache-2.0 */
/* test_rhythm.c - periods and shifts that are there are found, whatever comes between; none in chance. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analyse/steps/judge.h"
#include "base/median.h"

#define MS 1000000LL
#define STEP (16 * MS)

enum { ROUNDS = 300 };

/* In [0, 1). */
static double chance(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (double)(*x >> 11) * 0x1p-53;
}

static void a_period_is_found_through_missed_beats(void **state)
{
	struct lg_burst b[16];
	struct lg_rhythm r;
	uint64_t x = 88172645463325252;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 14; i++) {
		int64_t ts = i * 2500 * MS + (int64_t)(20 * (double)MS * chance(&x));

		if (i != 4 && i != 9)
			b[n++] = (struct lg_burst){ ts, ts + 20 * MS, 20 * MS };
	}
	r = lg_rhythm_of(b, n, STEP);
	assert_true(fabs(r.period_s - 2.5) < 0.01);
	assert_true(r.p < 0.002);
	assert_true(r.at_most); /* none of the draws is as regular */
	assert_int_equal(r.n_events, 12);
}

/* Every three seconds, in one to four pieces with pauses of some steps between them, as a job does whose
 * threads take turns on a CPU. */
static void what_comes_in_pieces_has_the_period_of_the_whole(void **state)
{
	uint64_t x = 1181783497276652981;

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct lg_burst b[64];
		struct lg_rhythm r;
		size_t n = 0;

		for (int i = 0; i < 9; i++) {
			int64_t ts = i * 3000 * MS;
			int pieces = 1 + (int)(4 * chance(&x));

			for (int k = 0; k < pieces; k++) {
				int64_t dur = (int64_t)((20 + 50 * chance(&x)) * (double)MS);

				b[n++] = (struct lg_burst){ ts, ts + dur, dur };
				ts += dur + (int64_t)((20 + 40 * chance(&x)) * (double)MS);
			}
		}
		r = lg_rhythm_of(b, n, STEP);
		assert_true(fabs(r.period_s - 3) < 0.05);
		assert_true(r.p < 0.01);
		assert_int_equal(r.n_events, 9);
	}
}

/* How often a period is seen in bursts at random times, each of up to so many pieces. */
static int seen_in_chance(int n_bursts, int max_pieces)
{
	uint64_t x = 2463534242 + (uint64_t)n_bursts * 64 + (uint64_t)max_pieces;
	int seen = 0;

	for (int round = 0; round < ROUNDS; round++) {
		struct lg_burst b[256];
		size_t n = 0;

		for (int i = 0; i < n_bursts; i++) {
			int64_t ts = (int64_t)(60e9 * chance(&x));
			int pieces = 1 + (int)((double)max_pieces * chance(&x));

			for (int k = 0; k < pieces; k++) {
				b[n++] = (struct lg_burst){ ts, ts + 5 * MS, 5 * MS };
				ts += (int64_t)((10 + 90 * chance(&x)) * (double)MS);
			}
		}
		qsort(b, n, sizeof *b, lg_cmp_i64);
		seen += !isnan(lg_rhythm_of(b, n, STEP).period_s);
	}
	return seen;
}

/* The test is at 1 %: of 300, more than 12 would come once in 30,000 (binomial). */
static void chance_has_no_period(void **state)
{
	(void)state;
	assert_in_range(seen_in_chance(5, 1), 0, 12);
	assert_in_range(seen_in_chance(12, 1), 0, 12);
	assert_in_range(seen_in_chance(40, 1), 0, 12);
	assert_in_range(seen_in_chance(8, 5), 0, 12);
	assert_in_range(seen_in_chance(30, 5), 0, 12);
}

static void few_or_absurd_moments_are_nothing(void **state)
{
	struct lg_burst b[] = { { INT64_MIN, INT64_MAX, 1 }, { 0, 0, 1 }, { 5, 1, -3 },
				{ INT64_MAX, INT64_MAX, 1 }, { INT64_MAX, INT64_MAX, INT64_MAX / 2 } };
	struct lg_burst same[8] = { { 7, 7, 1 } };

	(void)state;
	assert_true(isnan(lg_rhythm_of(b, 0, 0).period_s));
	assert_true(isnan(lg_rhythm_of(same, 8, 0).period_s));
	assert_true(isnan(lg_rhythm_of(b, 5, STEP).period_s));
}

/* About normal: of mean 0 and deviation 1. */
static double noise(uint64_t *x)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += chance(x);
	return sum;
}

enum run { EVEN, WIDE, LONG_TAIL, TWO_MODES, OUTLIERS, RAMP, LEVELS };

/* The i-th of n steps of such a run, in ms; of LEVELS, 40 % longer from the at-th on. */
static double step_ms(enum run run, size_t i, size_t n, size_t at, uint64_t *x)
{
	double e = noise(x);

	switch (run) {
	case EVEN:
		return 100 + 5 * e;
	case WIDE:
		return fmax(100 + 20 * e, 1);
	case LONG_TAIL:
		return 100 * exp(0.7 * e);
	case TWO_MODES:
		return (chance(x) < 0.4 ? 160 : 100) + 3 * e;
	case OUTLIERS:
		return (chance(x) < 0.2 ? 500 : 100) + 3 * e;
	case RAMP:
		return 100 + 50 * (double)i / (double)n + 3 * e;
	case LEVELS:
		break;
	}
	return (100 + 4 * e) * (i < at ? 1 : 1.4);
}

/* How many of `rounds` runs of n steps are called that; ret_off: of shifts, more than a step off `at`. */
static int shapes_seen(enum lg_shape shape, enum run run, size_t n, size_t at, int rounds, int *ret_off)
{
	uint64_t x = 88172645463325252 + n;
	int seen = 0;

	*ret_off = 0;
	for (int round = 0; round < rounds; round++) {
		struct lg_step s[48] = { 0 };
		struct lg_trend t;
		int64_t ts = 7 * STEP;

		for (size_t i = 0; i < n; i++) {
			s[i].ts = ts;
			s[i].dur = (int64_t)(step_ms(run, i, n, at, &x) * (double)MS);
			ts += s[i].dur;
		}
		assert_int_equal(lg_trend_of_steps(s, n, &t), 0);
		seen += t.shape == shape;
		if (t.shape == LG_SHAPE_SHIFT)
			*ret_off += fabs(t.shift_s * 1e9 - (double)(s[at].ts - s[0].ts)) > 150 * (double)MS;
	}
	return seen;
}

static int shifts_seen(enum run run, size_t n, size_t at, int rounds, int *ret_off)
{
	return shapes_seen(LG_SHAPE_SHIFT, run, n, at, rounds, ret_off);
}

/* A profiler's window or a short log has this many steps. */
static void a_shift_of_few_steps_is_found(void **state)
{
	int off;

	(void)state;
	assert_in_range(shifts_seen(LEVELS, 16, 8, 300, &off), 270, 300);
	assert_in_range(off, 0, 3);
	assert_in_range(shifts_seen(LEVELS, 24, 7, 300, &off), 270, 300);
	assert_in_range(off, 0, 3);
	assert_in_range(shifts_seen(LEVELS, 47, 40, 300, &off), 270, 300);
	assert_in_range(off, 0, 3);
	/* Fewer than six after it might be a pause. */
	assert_int_equal(shifts_seen(LEVELS, 20, 17, 300, &off), 0);
	assert_int_equal(shifts_seen(LEVELS, 12, 6, 300, &off), 0);
}

static void chance_and_ramps_of_few_steps_are_no_shift(void **state)
{
	int off;

	(void)state;
	for (enum run run = EVEN; run < LEVELS; run++)
		for (size_t n = 16; n < 48; n += 7)
			assert_in_range(shifts_seen(run, n, 0, 1000, &off), 0, 3);
}

static void a_drift_of_few_steps_is_found(void **state)
{
	int off;

	(void)state;
	for (size_t n = 16; n < 48; n += 7) {
		assert_in_range(shapes_seen(LG_SHAPE_DRIFT, RAMP, n, 0, 300, &off), 285, 300);
		assert_in_range(shapes_seen(LG_SHAPE_DRIFT, LEVELS, n, n / 2, 300, &off), 0, 3);
		for (enum run run = EVEN; run < RAMP; run++)
			assert_in_range(shapes_seen(LG_SHAPE_DRIFT, run, n, 0, 1000, &off), 0, 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_period_is_found_through_missed_beats),
		cmocka_unit_test(what_comes_in_pieces_has_the_period_of_the_whole),
		cmocka_unit_test(chance_has_no_period),
		cmocka_unit_test(few_or_absurd_moments_are_nothing),
		cmocka_unit_test(a_shift_of_few_steps_is_found),
		cmocka_unit_test(chance_and_ramps_of_few_steps_are_no_shift),
		cmocka_unit_test(a_drift_of_few_steps_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
