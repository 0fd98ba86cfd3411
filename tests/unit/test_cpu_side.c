/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cpu_side.c - what the main thread does beside operators where no device was traced: saves, messages,
 * and what Python's stacks tell of the rest. Each with its twin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu_outcome.h"
#include "report/report.h"

#define US 1000ll
#define MS 1000000ll

static const char flush[] = "train.py(97): flush_metrics";
static const char save[] = "torch/serialization.py(850): save", emit[] = "logging/__init__.py(1510): info";

/* Ten steps and more of some milliseconds of operators, with Python's stacks. */
static struct gpu_plan on_cpu(void)
{
	struct gpu_plan p = gpu_healthy;

	p.kernel_ns = US; /* who launches what is not there is not held up by it, either */
	p.no_device = p.no_gpu = p.no_launches = p.frames = true;
	return p;
}

static bool limited(const struct outcome *o, const char *text)
{
	for (size_t i = 0; i < o->v->n_limits; i++)
		if (strstr(o->v->limits[i], text))
			return true;
	return false;
}

static void saves_and_messages_are_no_operators(void **state)
{
	static const struct {
		const char *call, *id;
	} tab[] = { { save, "side.checkpoint" }, { emit, "side.logging" } };
	struct outcome o;

	(void)state;
	for (size_t i = 0; i < sizeof tab / sizeof *tab; i++) {
		struct gpu_plan p = on_cpu();
		const struct lg_finding *f;

		p.side = tab[i].call;
		p.side_ns = 600 * US;
		o = first(&p, tab[i].id);
		f = &o.v->findings[0];
		assert_int_equal(f->severity, LG_SEVERITY_HIGH);
		assert_string_equal(f->stage, "side");
		assert_true(f->lost_share > 0.2 && f->lost_share < 0.5);
		assert_non_null(strstr(f->culprit.function, tab[i].call));
		assert_non_null(strstr(o.v->bound_why, "saving and writing messages"));
		assert_null(strstr(f->title, "only on"));
		done(&o);
		p.n_steps = 40;
		p.only_every = 10; /* four times, and why these steps are slow */
		p.side_ns = 40 * MS;
		o = explain(&p);
		f = find(o.v, tab[i].id);
		assert_non_null(f);
		assert_int_equal(f->severity, LG_SEVERITY_HIGH);
		assert_non_null(strstr(f->title, "(seen 4 times)"));
		assert_true(f->excess_share > 0.9 && o.v->unexplained_share < 0.1);
		done(&o);
		p.side_ns = 60 * US; /* a line now and then */
		o = explain(&p);
		assert_null(find(o.v, tab[i].id));
		assert_null(strstr(o.v->bound_why, "saving"));
		done(&o);
	}
}

static void stacks_name_what_runs_between_operators(void **state)
{
	struct gpu_plan p = on_cpu();
	struct outcome o;
	char buf[1024];

	(void)state;
	quiet(&p);
	o = explain(&p);
	assert_null(o.v->untraced_in);
	assert_false(limited(&o, "nothing runs but Python"));
	done(&o);
	p.side = flush;
	p.side_ns = 4 * MS;
	o = explain(&p);
	assert_non_null(o.v->untraced_in);
	assert_non_null(strstr(o.v->untraced_in, "at train.py(97): flush_metrics"));
	assert_true(limited(&o, "nothing runs but Python"));
	assert_non_null(strstr(lg_headline(o.v, buf, sizeof buf), "but Python: "));
	assert_null(strstr(buf, "with_stack"));
	done(&o);
	p.side = NULL; /* nothing names it: how to find out */
	p.pause_ns = 4 * MS;
	p.frames = false;
	o = explain(&p);
	assert_null(o.v->untraced_in);
	assert_non_null(strstr(lg_headline(o.v, buf, sizeof buf), "with_stack=True"));
	done(&o);
}

/* What the program calls its own code is no operator; torch's annotations are of its work. */
static void an_annotation_of_the_program_is_no_operator(void **state)
{
	static const struct {
		const char *name;
		bool python;
	} tab[] = { { "report", true }, { "Thing.step#Thing.step", false } };
	struct outcome o;

	(void)state;
	for (size_t i = 0; i < sizeof tab / sizeof *tab; i++) {
		struct gpu_plan p = on_cpu();

		p.frames = false;
		p.side = tab[i].name;
		p.side_note = true;
		p.side_ns = 4 * MS;
		o = explain(&p);
		assert_int_equal(o.v->untraced_share > 0.5, tab[i].python);
		assert_int_equal(o.v->untraced_in && strstr(o.v->untraced_in, "ms at report"), tab[i].python);
		assert_int_equal(limited(&o, "with_stack=True tells the lines"), tab[i].python);
		done(&o);
		p.side_ns = 60 * US;
		o = explain(&p);
		assert_true(o.v->untraced_share < 0.25);
		done(&o);
	}
}

static void the_longest_pause_of_slow_steps_has_a_name(void **state)
{
	struct gpu_plan p = on_cpu();
	struct outcome o;

	(void)state;
	p.n_steps = 40;
	p.side = flush;
	p.side_ns = 60 * MS;
	p.only_every = 10;
	o = explain(&p);
	assert_true(limited(&o, "of that 60.0 ms at train.py(97): flush_metrics"));
	assert_false(limited(&o, "with_stack"));
	done(&o);
	p.side = NULL;
	p.pause_ns = 60 * MS;
	p.frames = false;
	o = explain(&p);
	assert_true(limited(&o, "with_stack=True or laggard record"));
	assert_false(limited(&o, "train.py"));
	done(&o);
}

/* In too few steps to be graded, but it is why these are slow. */
static void slow_steps_that_the_compiler_works_in(void **state)
{
	struct gpu_plan p = on_cpu();
	struct outcome o;

	(void)state;
	p.n_steps = 40;
	p.only_every = 10;
	p.compile_ns = 40 * MS;
	o = explain(&p);
	assert_true(o.v->n_slow >= 3);
	assert_non_null(find(o.v, "compile.in_step"));
	assert_true(find(o.v, "compile.in_step")->excess_share > 0.9 && o.v->unexplained_share < 0.1);
	assert_false(limited(&o, "as of an evaluation"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saves_and_messages_are_no_operators),
		cmocka_unit_test(slow_steps_that_the_compiler_works_in),
		cmocka_unit_test(stacks_name_what_runs_between_operators),
		cmocka_unit_test(an_annotation_of_the_program_is_no_operator),
		cmocka_unit_test(the_longest_pause_of_slow_steps_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
