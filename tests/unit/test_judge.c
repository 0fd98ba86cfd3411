/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps are slow: those beyond the run's own noise. In ms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "analyse/steps/judge.h"

enum { MS = 1000000, MOST = 2000 };

static struct lg_step step[MOST];

static size_t slow_of(size_t n, double *ret_noise)
{
	size_t slow = 0;

	*ret_noise = INFINITY;
	assert_int_equal(lg_judge_steps(step, n, LG_STEPS_OF_RUN, 0, ret_noise), 0);
	for (size_t i = 0; i < n; i++)
		slow += step[i].slow;
	return slow;
}

/* Steps of `usual` that swing by one hundredth, and every so many by so much longer. */
static size_t slow_in(size_t n, double usual, size_t every, double times)
{
	double noise;

	for (size_t i = 0; i < n; i++) {
		double ms = usual * (1 + 0.01 * sin((double)(i * i)));

		if (every && i % every == every - 1)
			ms *= times;
		step[i] = (struct lg_step){ .dur = (int64_t)(ms * MS) };
	}
	return slow_of(n, &noise);
}

static void a_step_beyond_the_noise_is_slow_though_it_is_not_twice_as_long(void **state)
{
	(void)state;
	assert_int_equal(slow_in(1000, 100, 50, 1.4), 20);
	assert_int_equal(slow_in(40, 10000, 10, 1.3), 4); /* few and long: 3 s each */
	assert_int_equal(slow_in(1000, 100, 10, 2.5), 100);
	assert_int_equal(slow_in(1000, 100, 50, 1.08), 0); /* under a tenth */
	assert_int_equal(slow_in(1000, 4, 50, 1.2), 0);    /* under a millisecond */
	assert_int_equal(slow_in(1000, 100, 0, 1), 0);
	/* So many that they are what is usual: twice the median is the line. */
	assert_int_equal(slow_in(1000, 100, 4, 1.5), 0);
	assert_int_equal(slow_in(1000, 100, 4, 2.5), 250);
	/* More than the noise's quantile leaves out, but far from the others. */
	assert_int_equal(slow_in(1000, 100, 5, 1.4), 200);
	assert_int_equal(slow_in(120, 11, 6, 1.36), 20);
	assert_int_equal(slow_in(120, 11, 6, 1.08), 0);
}

/* An exponential tail of a tenth of the step: 1 run in 100 may have a step beyond its reach. */
static void noise_makes_no_slow_steps(void **state)
{
	size_t runs = 0;
	double noise = INFINITY;

	(void)state;
	srandom(7);
	for (int run = 0; run < 50; run++) {
		for (size_t i = 0; i < MOST; i++) {
			double u = (1 + (double)random()) / 2147483649.0;

			step[i].dur = (int64_t)(100 * MS * (1 - 0.02 * log(u)));
		}
		runs += slow_of(MOST, &noise) > 0;
		assert_true(noise > 0.15 && noise < 0.35); /* a step of 1.4 is no noise */
	}
	assert_true(runs <= 3);
}

static void of_few_steps_the_largest_does_not_make_the_noise(void **state)
{
	/* The first is warm-up. */
	static const double odd[] = { 300, 100, 101, 103, 150, 104 };
	static const double wide[] = { 300, 100, 110, 120, 150, 130 };
	double noise;

	(void)state;
	for (size_t i = 0; i < 6; i++)
		step[i] = (struct lg_step){ .dur = (int64_t)(odd[i] * MS) };
	assert_int_equal(slow_of(6, &noise), 1);
	assert_true(step[4].slow);
	for (size_t i = 0; i < 6; i++)
		step[i] = (struct lg_step){ .dur = (int64_t)(wide[i] * MS) };
	assert_int_equal(slow_of(6, &noise), 0);
}

/* The line that is told is that of steps; of requests that are not there nothing is known. */
static void none_says_nothing_of_the_noise(void **state)
{
	double noise;

	(void)state;
	assert_int_equal(slow_in(40, 100, 10, 1.3), 4);
	(void)slow_of(40, &noise);
	assert_true(noise >= 0.10 && noise < 0.3);
	assert_int_equal(lg_judge_steps(step, 0, LG_STEPS_OF_WINDOW, 0, &noise), 0);
	assert_true(noise >= 0.10 && noise < 0.3);
}

static void slow_steps_are_a_shape_where_they_cost_something(void **state)
{
	struct lg_verdict v = { .n_slow = 1 };

	(void)state;
	lg_judge_shape(&v, false, NULL, 0.015);
	assert_int_equal(v.shape, LG_SHAPE_BURSTY);
	lg_judge_shape(&v, true, NULL, 0.015);
	assert_int_equal(v.shape, LG_SHAPE_PERIODIC);
	lg_judge_shape(&v, true, NULL, 0.005);
	assert_int_equal(v.shape, LG_SHAPE_STEADY);
}

static enum lg_shape shape_of(const double *ms, size_t n, struct lg_verdict *v)
{
	double sorted[8];

	*v = (struct lg_verdict){ 0 };
	for (size_t i = 0; i < n; i++)
		sorted[i] = ms[i];
	lg_sum_up_steps(v, sorted, n, 1);
	lg_judge_shape(v, false, NULL, 0);
	return v->shape;
}

static void steps_that_lie_far_apart_are_not_steady(void **state)
{
	static const double apart[] = { 118, 116, 1015, 1068, 1076 };
	static const double level[] = { 1001, 1016, 1015, 1068, 1076 };
	/* Nine tenths to one tenth: 49 and 51 % of the median. */
	static const double near[] = { 755, 755, 1000, 1245, 1245 };
	static const double beyond[] = { 745, 745, 1000, 1255, 1255 };
	struct lg_verdict v;

	(void)state;
	assert_int_equal(shape_of(apart, 5, &v), LG_SHAPE_NONE);
	assert_true(v.uneven && v.min_ms == 116 && v.max_ms == 1076 && v.median_ms == 1015);
	assert_int_equal(shape_of(level, 5, &v), LG_SHAPE_STEADY);
	(void)shape_of(near, 5, &v);
	assert_false(v.uneven);
	(void)shape_of(beyond, 5, &v);
	assert_true(v.uneven);
}

/* 60 steps of 12 ms, of which those at `slow` take 7 ms longer. */
static enum lg_shape shape_at(const size_t *slow, size_t n, double share, struct lg_verdict *v)
{
	struct lg_rhythm rhythm = { .period_s = NAN, .p = 1 };
	int64_t now = 0;

	for (size_t i = 0, k = 0; i < 60; i++) {
		bool is = k < n && slow[k] == i;

		step[i] = (struct lg_step){ .ts = now, .dur = (is ? 19 : 12) * MS, .median = 12 * MS,
					    .slow = is };
		now += step[i].dur;
		k += is;
	}
	*v = (struct lg_verdict){ .n_slow = n };
	assert_int_equal(lg_rhythm_of_slow(step, 60, 12 * MS, &rhythm), 0);
	lg_shape_with_rhythm(v, &rhythm, NULL, share);
	return v->shape;
}

static void slow_steps_in_a_rhythm_are_periodic(void **state)
{
	static const size_t seventh[] = { 6, 13, 20, 27, 34, 41, 48, 55 };
	static const size_t anyhow[] = { 3, 5, 17, 21, 24, 39, 44, 58 };
	struct lg_verdict v;

	(void)state;
	assert_int_equal(shape_at(seventh, 8, 0.07, &v), LG_SHAPE_PERIODIC);
	assert_true(fabs(v.period_s - 0.091) < 0.001 && v.period_p < 0.01);
	assert_int_equal(shape_at(anyhow, 8, 0.07, &v), LG_SHAPE_BURSTY);
	assert_true(isnan(v.period_s));
	assert_int_equal(shape_at(seventh, 8, 0.005, &v), LG_SHAPE_STEADY); /* of no weight */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_beyond_the_noise_is_slow_though_it_is_not_twice_as_long),
		cmocka_unit_test(noise_makes_no_slow_steps),
		cmocka_unit_test(of_few_steps_the_largest_does_not_make_the_noise),
		cmocka_unit_test(none_says_nothing_of_the_noise),
		cmocka_unit_test(slow_steps_are_a_shape_where_they_cost_something),
		cmocka_unit_test(steps_that_lie_far_apart_are_not_steady),
		cmocka_unit_test(slow_steps_in_a_rhythm_are_periodic),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
