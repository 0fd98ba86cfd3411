/* SPDX-License-Identifier: Apache-2.0 */
/* test_trigger.c - what --trigger takes and refuses; which step times are a moment, and which are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/order.h"
#include "record/memory_watch.h"
#include "record/moment.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define STEP (20 * MS)
#define RING (60 * SECOND)

static void expressions_are_read(void **state)
{
	static const struct {
		const char *text, *shown;
		enum lg_trigger_kind kind;
		double v; /* times, ns or share */
	} good[] = {
		{ "step > 3x", "step > 3x", LG_TRIGGER_USUAL, 3 },
		{ "step>1.5x", "step > 1.5x", LG_TRIGGER_USUAL, 1.5 },
		{ "  step  >  200ms ", "step > 200ms", LG_TRIGGER_STEP, 200e6 },
		{ "step > 1m", "step > 1m", LG_TRIGGER_STEP, 60e9 },
		{ "hang > 60s", "hang > 60s", LG_TRIGGER_HANG, 60e9 },
		{ "rss > 90%", "rss > 90%", LG_TRIGGER_RSS, 0.9 },
	};

	(void)state;
	for (size_t i = 0; i < LG_COUNT(good); i++) {
		struct lg_error err = { 0 };
		struct lg_trigger t;
		double v;

		assert_int_equal(lg_trigger_parse(good[i].text, &t, &err), 0);
		assert_int_equal(t.kind, good[i].kind);
		assert_string_equal(t.text, good[i].shown);
		v = t.kind == LG_TRIGGER_USUAL ? t.times : t.kind == LG_TRIGGER_RSS ? t.share : (double)t.ns;
		assert_true(v > good[i].v * 0.999 && v < good[i].v * 1.001);
		assert_int_equal(lg_trigger_wants_marks(&t), t.kind != LG_TRIGGER_RSS);
	}
}

static void what_is_no_expression_is_refused_in_one_line(void **state)
{
	static const char *const bad[] = {
		"", ">", "step", "step > ", "step > 3", "step > x", "step > 1x", "step > 0.5x", "step > -3x",
		"step > 3xx", "step > 3 x", "step >= 3x", "step < 3x", "step > 0ms", "step > infx", "step > nanx",
		"step > 1e3x", "step > 0x10s", "step > 20000x", "step > 2d", "hang > 60", "hang > 3x", "hang > 10ms",
		"hang > 90%", "hang > 48h", "rss > 90", "rss > 0%", "rss > 100%", "rss > 4GiB", "rss>9..0%",
		"loss > 3x", "steps > 3x", "step > 3x or hang > 60s", "step > 99999999999999999999999999999999x",
		"a very long name that no buffer has room for > 3x", "> 3x", "step > 3x\n",
	};

	(void)state;
	for (size_t i = 0; i < LG_COUNT(bad); i++) {
		struct lg_error err = { 0 };
		struct lg_trigger t = { .ns = 42 };

		if (lg_trigger_parse(bad[i], &t, &err) != LG_E_USAGE)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_equal(t.ns, 42);
		assert_non_null(strstr(err.message, "'step > 3x'")); /* what is accepted */
		assert_non_null(strstr(err.message, "rss > 90%"));
	}
}

/* A loop of one rank or more whose steps take what the test says, and what came of it. */
struct run {
	struct lg_trigger t[LG_TRIGGERS_MAX];
	size_t n_triggers;
	struct lg_moments *m;
	int64_t now, number;
	unsigned ranks, n;
	struct lg_moment last;
};

static void look(struct run *r)
{
	struct lg_moment got;

	if (lg_moments_due(r->m, r->now, &got)) {
		r->last = got;
		r->n++;
	}
}

static void begin(struct run *r, unsigned ranks, const char *first, const char *second)
{
	const char *text[] = { first, second };

	memset(r, 0, sizeof *r);
	for (size_t i = 0; i < 2 && text[i]; i++)
		assert_int_equal(lg_trigger_parse(text[i], &r->t[r->n_triggers++], NULL), 0);
	assert_int_equal(lg_moments_new(&r->m, r->t, r->n_triggers, RING, NULL), 0);
	r->now = 1000 * SECOND;
	r->ranks = ranks;
	for (unsigned i = 0; i < ranks; i++) {
		lg_moments_who(r->m, i, 900 + (int32_t)i, (int32_t)i);
		lg_moments_step(r->m, i, r->number, r->now - STEP, STEP);
	}
}

static unsigned end(struct run *r)
{
	r->now += 20 * SECOND;
	look(r);
	lg_moments_free(r->m);
	return r->n;
}

/* A step of all ranks. The last rank's marks come a little after the others'. */
static void step(struct run *r, int64_t dur)
{
	int64_t ts = r->now;

	r->now += dur;
	r->number++;
	for (unsigned i = 0; i < r->ranks; i++)
		lg_moments_step(r->m, i, r->number, ts, dur);
	look(r);
}

/* Not all the same: about a tenth more or less. */
static void steps(struct run *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		step(r, STEP + (int64_t)(r->number * 7919 % 41 - 20) * STEP / 200);
}

static void a_steady_loop_is_no_moment(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 2, "step > 3x", "step > 200ms");
	steps(&r, 5000);
	assert_int_equal(end(&r), 0);
}

static void one_stall_is_one_moment(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", NULL);
	steps(&r, 300);
	step(&r, 900 * MS);
	assert_int_equal(r.n, 0); /* what follows is to be in the file */
	steps(&r, 1000);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.last.kind, LG_TRIGGER_USUAL);
	assert_string_equal(r.last.what, "step > 3x");
	assert_int_equal(r.last.dur, 900 * MS);
	assert_int_equal(r.last.step, 301);
	assert_int_equal(r.last.rank, 0);
	assert_int_equal(r.last.pid, 900);
	assert_true(r.last.need_ns >= 10 * SECOND);
	assert_non_null(strstr(r.last.why, "step 301 of rank 0 took 900 ms"));
	assert_int_equal(end(&r), 1);
}

static void stalls_that_lie_apart_are_one_moment_each(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", NULL);
	for (unsigned i = 1; i <= 7; i++) {
		steps(&r, 700 + 13 * i * i); /* 14 s and more */
		step(&r, (200 + 40 * i) * MS);
		steps(&r, 60);
	}
	assert_int_equal(end(&r), 7);
}

static void stalls_close_to_each_other_are_one_event(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", NULL);
	steps(&r, 300);
	for (unsigned i = 0; i < 5; i++) {
		step(&r, 200 * MS);
		steps(&r, 5 + i * i);
	}
	steps(&r, 300);
	assert_int_equal(end(&r), 1);
}

/* In a job all ranks are late when one is. */
static void ranks_that_are_late_together_are_one_event(void **state)
{
	struct run r;
	int64_t ts;

	(void)state;
	begin(&r, 3, "step > 3x", NULL);
	steps(&r, 300);
	ts = r.now;
	r.now += SECOND;
	r.number++;
	lg_moments_step(r.m, 0, r.number, ts, 990 * MS);
	lg_moments_step(r.m, 1, r.number, ts, 1000 * MS);
	lg_moments_step(r.m, 2, r.number, ts, 980 * MS);
	for (unsigned i = 0; i < 3; i++) /* in step again */
		lg_moments_lost(r.m, i, r.now);
	steps(&r, 500);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.last.rank, 1); /* the longest */
	assert_non_null(strstr(r.last.why, "2 other ranks were late with it"));
	assert_int_equal(end(&r), 1);
}

static void warm_up_is_no_moment(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", "step > 200ms");
	step(&r, 30 * SECOND); /* the first step compiles */
	for (unsigned i = 0; i < 6; i++)
		step(&r, 2 * SECOND / (i + 1));
	steps(&r, 500);
	assert_int_equal(end(&r), 0);
}

/* A checkpoint that is marked is no part of the step; what is late beside it is. */
static void side_work_is_no_moment(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", "step > 200ms");
	for (unsigned i = 0; i < 40; i++) {
		steps(&r, 49);
		lg_moments_side(r.m, 0, r.now + 5 * MS, true);
		lg_moments_side(r.m, 0, r.now + 6 * MS, true); /* torch.save in a callback */
		lg_moments_side(r.m, 0, r.now + 1400 * MS, false);
		lg_moments_side(r.m, 0, r.now + 1405 * MS, false);
		step(&r, 1420 * MS);
	}
	assert_int_equal(r.n, 0);
	steps(&r, 49);
	lg_moments_side(r.m, 0, r.now, true);
	lg_moments_side(r.m, 0, r.now + 1400 * MS, false);
	step(&r, 2000 * MS);
	steps(&r, 100);
	assert_int_equal(r.n, 1);
	assert_non_null(strstr(r.last.why, "took 600 ms"));
	assert_non_null(strstr(r.last.why, "beside 1.4 s of side work"));
	assert_int_equal(end(&r), 1);
}

/* A save that goes on into the next step is in both, each its part. */
static void side_work_over_the_edge_of_a_step(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", NULL);
	steps(&r, 100);
	lg_moments_side(r.m, 0, r.now + 10 * MS, true);
	step(&r, 500 * MS);
	lg_moments_side(r.m, 0, r.now + 700 * MS, false);
	step(&r, 715 * MS);
	steps(&r, 200);
	assert_int_equal(end(&r), 0);
}

/* An evaluation each 50 steps that nobody marked: from the fourth on it is the loop's own, and what is
 * longer than those is not. */
static void what_recurs_by_the_step_is_the_loops_own(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", "step > 200ms");
	for (unsigned i = 0; i < 40; i++) {
		steps(&r, 599);
		step(&r, 700 * MS + i % 3 * 20 * MS);
	}
	steps(&r, 100);
	assert_int_equal(r.n, 3);
	steps(&r, 499);
	step(&r, 5000 * MS);
	steps(&r, 100);
	assert_int_equal(end(&r), 4);
}

static void a_drift_is_no_moment(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", NULL);
	for (int64_t i = 0; i < 3000; i++)
		step(&r, STEP + i * STEP / 300); /* ten times as long at its end */
	assert_int_equal(end(&r), 0);
}

static void a_shift_is_told_once(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", "step > 60ms");
	steps(&r, 300);
	for (unsigned i = 0; i < 2000; i++)
		step(&r, 4 * STEP + i % 5 * MS);
	assert_int_equal(end(&r), 1);
}

static void a_step_that_does_not_end_is_told_before_it_leaves_the_ring(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 1, "step > 3x", NULL);
	steps(&r, 100);
	for (unsigned i = 0; i < 40; i++) {
		r.now += SECOND;
		look(&r);
		assert_int_equal(r.n, i < 30 ? 0 : 1);
	}
	assert_non_null(strstr(r.last.why, "has not ended after"));
	assert_int_equal(r.last.step, r.number + 1);
	/* Nor is it told again once it ends. */
	lg_moments_step(r.m, 0, ++r.number, r.now - 40 * SECOND, 40 * SECOND);
	steps(&r, 100);
	assert_int_equal(end(&r), 1);
}

static void a_hang_is_told_once(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 2, "hang > 60s", NULL);
	steps(&r, 100);
	r.now += 500 * MS;
	lg_moments_mark(r.m, 1, r.now); /* rank 1 came to the collective, rank 0 did not */
	for (unsigned i = 0; i < 400; i++) {
		r.now += SECOND;
		look(&r);
		assert_int_equal(r.n, i < 60 ? 0 : 1);
	}
	assert_int_equal(r.last.rank, 0);
	assert_non_null(strstr(r.last.why, "has marked nothing for 60"));
	steps(&r, 100);
	assert_int_equal(r.n, 1);
	for (unsigned i = 0; i < 100; i++) {
		r.now += SECOND;
		look(&r);
	}
	assert_int_equal(r.n, 2); /* another one */
	for (unsigned i = 0; i < 2; i++)
		lg_moments_gone(r.m, i);
	r.now += 100 * SECOND;
	assert_int_equal(end(&r), 2);
}

/* Marks without an end of a step: an evaluation. And one rank saves while the others wait for it. */
static void who_moves_or_saves_does_not_hang(void **state)
{
	struct run r;

	(void)state;
	begin(&r, 2, "hang > 10s", NULL);
	steps(&r, 100);
	for (unsigned i = 0; i < 100; i++) {
		r.now += SECOND;
		lg_moments_mark(r.m, i % 2, r.now);
		look(&r);
	}
	lg_moments_side(r.m, 0, r.now, true);
	for (unsigned i = 0; i < 300; i++) {
		r.now += SECOND;
		look(&r);
	}
	lg_moments_side(r.m, 0, r.now, false);
	lg_moments_mark(r.m, 1, r.now);
	steps(&r, 10);
	assert_int_equal(r.n, 0);
	lg_moments_free(r.m);
}

static void memory_is_told_when_it_comes_over(void **state)
{
	static const double share[] = { 0.5, 0.89, 0.91, 0.92, 0.88, 0.93, 0.84, 0.95, 0.95 };
	struct run r;

	(void)state;
	begin(&r, 1, "rss > 90%", NULL);
	for (size_t i = 0; i < LG_COUNT(share); i++) {
		r.now += 5 * SECOND;
		lg_moments_memory(r.m, r.now, share[i], "the machine's 4 GB");
		look(&r);
		r.now += 5 * SECOND;
		look(&r);
	}
	assert_string_equal(r.last.why, "95 % of the machine's 4 GB is in use");
	assert_int_equal(r.last.rank, -1);
	assert_int_equal(end(&r), 2);
}

/* What files are read into can be dropped: it is no reason to fire. */
static void what_can_be_taken_back_does_not_count(void **state)
{
	(void)state;
	assert_true(lg_memory_stat_used("anon 1000\nfile 90000\nkernel_stack 20\nshmem 300\nfile_mapped 7\n"
					"inactive_anon 5\nslab_unreclaimable 4\npagetables 1\n", true) == 1325);
	assert_true(lg_memory_stat_used("cache 5\nrss 7\ntotal_cache 90000\ntotal_rss 1000\ntotal_shmem 200", false) ==
		    1200);
	assert_true(lg_memory_stat_used("", true) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expressions_are_read),
		cmocka_unit_test(what_is_no_expression_is_refused_in_one_line),
		cmocka_unit_test(a_steady_loop_is_no_moment),
		cmocka_unit_test(one_stall_is_one_moment),
		cmocka_unit_test(stalls_that_lie_apart_are_one_moment_each),
		cmocka_unit_test(stalls_close_to_each_other_are_one_event),
		cmocka_unit_test(ranks_that_are_late_together_are_one_event),
		cmocka_unit_test(warm_up_is_no_moment),
		cmocka_unit_test(side_work_is_no_moment),
		cmocka_unit_test(side_work_over_the_edge_of_a_step),
		cmocka_unit_test(what_recurs_by_the_step_is_the_loops_own),
		cmocka_unit_test(a_drift_is_no_moment),
		cmocka_unit_test(a_shift_is_told_once),
		cmocka_unit_test(a_step_that_does_not_end_is_told_before_it_leaves_the_ring),
		cmocka_unit_test(a_hang_is_told_once),
		cmocka_unit_test(who_moves_or_saves_does_not_hang),
		cmocka_unit_test(memory_is_told_when_it_comes_over),
		cmocka_unit_test(what_can_be_taken_back_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
