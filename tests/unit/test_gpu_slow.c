/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_slow.c - the excess of a profiler's slow steps: whose it is, and how much is nobody's. */
#include "gpu_outcome.h"

static struct gpu_plan forty_steps(void)
{
	struct gpu_plan p = gpu_healthy;

	p.n_steps = 40;
	p.sync_every = p.n_kernels; /* the host does not run ahead of a whole step */
	return p;
}

static void the_cause_of_slow_steps_has_their_excess(void **state)
{
	struct gpu_plan p = forty_steps();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.loader_ns = 100 * MS;
	p.loader_every = 5;
	o = first(&p, "data.loader_wait");
	f = &o.v->findings[0];
	assert_true(o.v->n_slow >= 5);
	if (!(f->excess_share > 0.95 && f->excess_share <= 1.0001))
		fail_msg("excess_share %g", f->excess_share);
	assert_true(o.v->unexplained_share >= 0 && o.v->unexplained_share < 0.05);
	assert_false(has_limit(o.v, "slow steps took"));
	done(&o);
}

static void what_no_finding_explains_is_said(void **state)
{
	struct gpu_plan p = forty_steps();
	struct outcome o;

	(void)state;
	p.heavy_ns = 100 * MS;
	p.heavy_every = 5;
	o = explain(&p);
	assert_true(o.v->n_slow >= 5);
	assert_int_equal(loud(o.v), 0);
	assert_int_equal(o.v->shape, LG_SHAPE_PERIODIC);
	if (!(fabs(o.v->period_s * 1e3 - 5 * o.v->median_ms - 100) < 10))
		fail_msg("period %g s of steps of %g ms", o.v->period_s, o.v->median_ms);
	if (!(o.v->unexplained_share > 0.95 && o.v->unexplained_share <= 1.0001))
		fail_msg("unexplained_share %g", o.v->unexplained_share);
	assert_true(has_limit(o.v, "the device computed longer for 100 %") ||
		    has_limit(o.v, "the device computed longer for 99 %"));
	done(&o);
}

/* Each rank shows the same slow steps: these are no more slow steps than one rank has. */
static void a_step_that_is_slow_on_two_ranks_counts_once(void **state)
{
	struct gpu_plan p = forty_steps();
	struct outcome alone, both;

	(void)state;
	p.heavy_ns = 100 * MS;
	p.heavy_every = 5;
	alone = explain(&p);
	p.n_ranks = 2;
	both = explain(&p);
	assert_int_equal(both.v->n_ranks, 2);
	assert_int_equal(both.v->n_judged, alone.v->n_judged);
	assert_int_equal(both.v->n_slow, alone.v->n_slow);
	done(&alone);
	done(&both);
}

/* The queue hides most of the wait: what the device works off meanwhile is no longer computation. */
static void work_of_earlier_steps_is_not_longer(void **state)
{
	struct gpu_plan p = forty_steps();
	struct outcome o;

	(void)state;
	p.sync_every = 0;
	p.n_steps = 120; /* the queue is far shorter than the window */
	p.loader_ns = 40 * MS;
	p.loader_every = 5;
	o = explain(&p);
	assert_true(o.v->n_slow >= 5);
	if (!(o.v->unexplained_share < 0.1))
		fail_msg("unexplained_share %g", o.v->unexplained_share);
	assert_false(has_limit(o.v, "the device computed longer"));
	done(&o);
}

/* Both, in different steps: each has its part, whichever is told. */
static void parts_of_the_excess_add_up(void **state)
{
	struct gpu_plan p = forty_steps();
	struct outcome o;

	(void)state;
	p.heavy_ns = 100 * MS;
	p.heavy_every = 10;
	p.n_steps = 80;
	p.loader_ns = 300 * MS;
	p.loader_every = 10;
	o = first(&p, "data.loader_wait");
	/* 7 of 8 waits are judged: the first is warm-up. 2100 of 2900 ms */
	if (!(o.v->findings[0].excess_share > 0.65 && o.v->findings[0].excess_share < 0.8))
		fail_msg("excess_share %g of %zu slow steps", o.v->findings[0].excess_share, o.v->n_slow);
	assert_true(fabs(o.v->findings[0].excess_share + o.v->unexplained_share - 1) < 0.02);
	done(&o);
}

static void steady_steps_have_no_excess(void **state)
{
	struct gpu_plan p = forty_steps();
	struct outcome o;

	(void)state;
	p.loader_ns = 100 * MS;
	o = first(&p, "data.loader_wait");
	assert_int_equal(o.v->n_slow, 0);
	assert_true(isnan(o.v->findings[0].excess_share) && isnan(o.v->unexplained_share));
	done(&o);
}

/* A clock that falls for good: no step is slow beside its neighbours, yet this is no steady run. */
static void a_device_that_slows_down_for_good_is_told(void **state)
{
	struct gpu_plan p = forty_steps();
	struct outcome o;

	(void)state;
	p.n_steps = 96;
	o = explain(&p);
	assert_int_equal(o.v->shape, LG_SHAPE_STEADY);
	assert_false(has_limit(o.v, "from then on"));
	done(&o);
	p.slower_from = 48;
	o = explain(&p);
	assert_int_equal(o.v->shape, LG_SHAPE_SHIFT);
	assert_true(fabs(o.v->slower - 0.7) < 0.1);
	assert_true(fabs(o.v->shift_s - 0.5) < 0.1);
	assert_true(has_limit(o.v, "from then on a step takes 7.0 ms longer, and the device computes 7.0 ms"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cause_of_slow_steps_has_their_excess),
		cmocka_unit_test(what_no_finding_explains_is_said),
		cmocka_unit_test(a_step_that_is_slow_on_two_ranks_counts_once),
		cmocka_unit_test(work_of_earlier_steps_is_not_longer),
		cmocka_unit_test(parts_of_the_excess_add_up),
		cmocka_unit_test(steady_steps_have_no_excess),
		cmocka_unit_test(a_device_that_slows_down_for_good_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
