/* SPDX-License-Identifier: Apache-2.0 */
/* test_roofline.c - windows and steps of a made-up job to what a part of it costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diff/roofline.h"
#include "store/builder.h"

#define MS INT64_C(1000000)

enum { STEPS = 10 };

struct job {
	struct lg_builder *b;
	int64_t now;
	lg_thr thr;
	unsigned n;
};

static struct job job_begin(void)
{
	struct job j = { .now = 1000 };

	assert_int_equal(lg_builder_new(&j.b, NULL), 0);
	j.thr = lg_thread_get(j.b, 10, 10);
	return j;
}

static struct lg_roofline *judge(struct job *j, struct lg_trace **t)
{
	struct lg_roofline *r;

	assert_int_equal(lg_builder_seal(j->b, t, NULL), 0);
	assert_int_equal(lg_roofline_new(*t, &r, NULL), 0);
	return r;
}

static void mark(struct job *j, const char *name, int64_t value, const char *text)
{
	lg_add_mark(j->b, &(struct lg_mark_row){ .ts = j->now,
						 .thr = j->thr,
						 .value = value,
						 .name = lg_intern(j->b, name),
						 .text = lg_intern(j->b, text) });
}

static void step(struct job *j, int64_t ns)
{
	lg_add_span(j->b, &(struct lg_span_row){ .ts = j->now, .dur = ns, .thr = j->thr, .kind = LG_SPAN_STEP,
						 .seq = ++j->n });
	j->now += ns;
}

/* As the hook tells it: marks come a moment after the step that they follow. */
static void window(struct job *j, int64_t round, const char *kind, int64_t ns)
{
	step(j, 100 * MS); /* settling */
	j->now += 2000;
	mark(j, "roofline.window", round, kind);
	for (int i = 0; i < STEPS; i++)
		step(j, ns + (i % 2 ? 1000 : -1000));
	j->now += 2000;
	mark(j, "roofline.end", round, kind);
}

static void done(struct lg_roofline *r, struct lg_trace *t)
{
	lg_roofline_free(r);
	lg_trace_free(t);
}

static void a_loader_of_half_the_time(void **state)
{
	struct job j = job_begin();
	struct lg_trace *t;
	struct lg_roofline *r;

	(void)state;
	for (int i = 1; i <= 4; i++) {
		window(&j, i, "real", 40 * MS + i * 10000);
		window(&j, i, "cached", 20 * MS + i * 20000);
	}
	r = judge(&j, &t);
	assert_int_equal(r->n_parts, 1);
	assert_string_equal(r->parts[0].kind, "cached");
	assert_int_equal(r->parts[0].rounds, 4);
	assert_float_equal(r->parts[0].share, 0.5, 0.001);
	assert_true(r->parts[0].lo < r->parts[0].share && r->parts[0].share < r->parts[0].hi);
	assert_true(r->parts[0].hi - r->parts[0].lo < 0.01);
	assert_float_equal(r->parts[0].with, 25, 0.1);
	assert_float_equal(r->parts[0].without, 50, 0.2);
	assert_int_equal(r->counted, 80);
	assert_int_equal(r->steps, 88);
	assert_int_equal(r->processes, 1);
	done(r, t);
}

/* What drifts during the run is in both windows of a round; an interval says how much is not. */
static void nothing_is_lost_to_a_loader_that_costs_nothing(void **state)
{
	static const int drift[] = { 0, 3, -2, 5, 1, -4 };
	struct job j = job_begin();
	struct lg_trace *t;
	struct lg_roofline *r;

	(void)state;
	for (int i = 1; i <= 6; i++) {
		window(&j, i, "real", (20 + i) * MS + drift[i - 1] * 10000);
		window(&j, i, "cached", (20 + i) * MS - drift[i - 1] * 10000);
	}
	r = judge(&j, &t);
	assert_true(fabs(r->parts[0].share) < 0.005);
	assert_true(r->parts[0].lo < 0 && r->parts[0].hi > 0 && r->parts[0].hi < 0.03);
	done(r, t);
}

static void parts_are_held_against_windows_of_kept_batches(void **state)
{
	struct job j = job_begin();
	struct lg_trace *t;
	struct lg_roofline *r;

	(void)state;
	for (int i = 1; i <= 3; i++) {
		window(&j, i, "real", 100 * MS);
		window(&j, i, "cached", 40 * MS);
		window(&j, i, "quiet", 30 * MS);
		window(&j, i, "without:layers.1", 10 * MS);
	}
	r = judge(&j, &t);
	assert_int_equal(r->n_parts, 3);
	assert_float_equal(r->parts[0].share, 0.6, 0.001);
	assert_float_equal(r->parts[1].share, 0.25, 0.001);
	assert_string_equal(r->parts[2].kind, "without:layers.1");
	assert_float_equal(r->parts[2].share, 0.75, 0.001);
	done(r, t);
}

static void saves_and_evaluations_are_not_of_a_window(void **state)
{
	struct job j = job_begin();
	struct lg_trace *t;
	struct lg_roofline *r;

	(void)state;
	for (int i = 1; i <= 3; i++) {
		window(&j, i, "real", 20 * MS);
		step(&j, 100 * MS);
		mark(&j, "roofline.window", i, "cached");
		for (int k = 0; k < STEPS; k++) {
			if (k == 4) { /* a save of a second, and a step with an evaluation of ten */
				lg_add_span(j.b, &(struct lg_span_row){ .ts = j.now + MS,
									.dur = 1000 * MS,
									.thr = j.thr,
									.kind = LG_SPAN_STAGE,
									.stage = LG_STAGE_SIDE });
				step(&j, 1020 * MS);
			} else if (k == 7) {
				j.now += MS;
				mark(&j, "roofline.skip", 1, "evaluation");
				j.now -= MS;
				step(&j, 10000 * MS);
			} else {
				step(&j, 20 * MS);
			}
		}
		mark(&j, "roofline.end", i, "cached");
	}
	r = judge(&j, &t);
	assert_float_equal(r->parts[0].share, 0, 0.001);
	assert_int_equal(r->skipped, 3);
	done(r, t);
}

static void two_rounds_and_windows_cut_off_are_too_few(void **state)
{
	struct job j = job_begin();
	struct lg_trace *t;
	struct lg_roofline *r;

	(void)state;
	for (int i = 1; i <= 2; i++) {
		window(&j, i, "real", 20 * MS);
		window(&j, i, "cached", 10 * MS);
	}
	window(&j, 3, "real", 20 * MS);
	mark(&j, "roofline.window", 3, "cached");
	step(&j, 10 * MS);
	r = judge(&j, &t);
	assert_int_equal(r->parts[0].rounds, 2);
	assert_true(isnan(r->parts[0].share));
	done(r, t);
}

static void what_was_refused_is_told_once(void **state)
{
	struct job j = job_begin();
	struct lg_trace *t;
	struct lg_roofline *r;

	(void)state;
	for (int i = 0; i < 20; i++)
		lg_add_meta(j.b, &(struct lg_meta_row){ .ts = j.now, .key = lg_intern(j.b, "roofline.cannot.collectives"),
							.value = lg_intern(j.b, "there is one rank") });
	r = judge(&j, &t);
	assert_int_equal(r->n_parts, 0);
	assert_int_equal(r->n_refused, 1);
	assert_string_equal(r->refused[0].part, "collectives");
	assert_null(r->loader);
	done(r, t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_loader_of_half_the_time),
		cmocka_unit_test(nothing_is_lost_to_a_loader_that_costs_nothing),
		cmocka_unit_test(parts_are_held_against_windows_of_kept_batches),
		cmocka_unit_test(saves_and_evaluations_are_not_of_a_window),
		cmocka_unit_test(two_rounds_and_windows_cut_off_are_too_few),
		cmocka_unit_test(what_was_refused_is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
