/* SPDX-License-Identifier: Apache-2.0 */
/* test_fired.c - a file that a trigger wrote says what fired it and who took that moment's time. */
#include "report/report.h"
#include "run_outcome.h"

enum { AT_MS = 9000 };

/* One stall in the whole run, and a trigger on it. */
static struct run_plan fired_by(enum stall stall)
{
	struct run_plan p = stalls(stall, AT_MS);

	p.stalls_for_ns = (AT_MS + 20) * MS;
	p.fired = "step > 3x";
	p.fired_at_ns = AT_MS * MS;
	p.fired_ns = 100 * MS;
	p.only_rank = 0;
	return p;
}

static const struct lg_fired *the_one(const struct outcome *o)
{
	assert_int_equal(o->v->n_fired, 1);
	assert_string_equal(o->v->fired[0].what, "step > 3x");
	assert_int_equal(o->v->fired[0].pid, RANK_PID);
	assert_int_equal(o->v->fired[0].rank, 0);
	assert_int_equal(o->v->fired[0].step, 42);
	return &o->v->fired[0];
}

static void a_run_that_nothing_fired_for_says_nothing(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, AT_MS);
	struct outcome o = explain(&p);

	(void)state;
	assert_int_equal(o.v->n_fired, 0);
	done(&o);
}

/* 80 ms of 20 s are no finding, and yet it is what was asked for. */
static void a_moment_too_small_for_a_finding_is_judged(void **state)
{
	struct run_plan p = fired_by(STALL_LOCK);
	struct outcome o = explain(&p);
	const struct lg_fired *f = the_one(&o);
	char text[1024];

	(void)state;
	assert_null(find(o.v, "host.lock_held"));
	assert_true(f->finding == SIZE_MAX);
	assert_non_null(f->answer);
	assert_non_null(strstr(f->answer, "mmap_lock"));
	assert_non_null(strstr(f->answer, "held it"));
	assert_non_null(strstr(lg_text_fired(f, text, sizeof text), "fired: step > 3x: step 42 took long; "));
	done(&o);
}

static void a_moment_of_what_is_found_points_to_the_finding(void **state)
{
	struct run_plan p = fired_by(STALL_LOCK);
	struct outcome o;
	const struct lg_finding *d;

	(void)state;
	p.period_ns = 3000 * MS;
	d = told(&p, "host.lock_held", &o);
	assert_ptr_equal(&o.v->findings[the_one(&o)->finding], d);
	assert_non_null(strstr(the_one(&o)->answer, d->title));
	done(&o);
}

static void ones_own_computing_is_said_to_be_that(void **state)
{
	struct run_plan p = fired_by(STALL_RUN);
	struct outcome o = explain(&p);

	(void)state;
	assert_non_null(strstr(the_one(&o)->answer, "computed"));
	assert_null(strstr(the_one(&o)->answer, "held"));
	done(&o);
}

/* The trigger was asked for by a signal, or on memory: no moment that lasts. */
static void what_does_not_last_has_no_answer(void **state)
{
	struct run_plan p = fired_by(STALL_LOCK);
	struct outcome o;

	(void)state;
	p.fired_ns = 0;
	o = explain(&p);
	assert_null(the_one(&o)->answer);
	done(&o);
}

/* Rows of a file that somebody else wrote. */
static void absurd_moments_do_no_harm(void **state)
{
	static const int64_t absurd[][2] = {
		{ INT64_MAX - 2 * 1000 * MS, INT64_MAX }, { -5000 * MS, INT64_MAX }, { 0, -1 },
		{ 0, INT64_MIN },
	};

	(void)state;
	for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
		struct run_plan p = fired_by(STALL_LOCK);
		struct outcome o;

		p.fired_at_ns = absurd[i][0];
		p.fired_ns = absurd[i][1];
		o = explain(&p);
		assert_true(the_one(&o)->dur >= 0);
		assert_null(the_one(&o)->answer); /* no step took that time */
		done(&o);
	}
}

static void it_survives_without_memory(void **state)
{
	struct run_plan p = fired_by(STALL_LOCK);

	(void)state;
	p.n_steps = 60;
	survives_without_memory(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_that_nothing_fired_for_says_nothing),
		cmocka_unit_test(a_moment_too_small_for_a_finding_is_judged),
		cmocka_unit_test(a_moment_of_what_is_found_points_to_the_finding),
		cmocka_unit_test(ones_own_computing_is_said_to_be_that),
		cmocka_unit_test(what_does_not_last_has_no_answer),
		cmocka_unit_test(absurd_moments_do_no_harm),
		cmocka_unit_test(it_survives_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
