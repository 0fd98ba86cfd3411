/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What part of a profiler's window is steady work, and how much one look at it may claim: cold starts,
 * steps whose kernels were lost, losses that came too seldom to be graded. Each with its twin.
 */
#include "gpu_outcome.h"
#include "report/report.h"

static bool limited(const struct outcome *o, const char *what)
{
	for (size_t i = 0; i < o->v->n_limits; i++)
		if (strstr(o->v->limits[i], what))
			return true;
	return false;
}

/* What came in few steps: its grade, and that it is said once. */
static void seen(const struct outcome *o, const char *id, const char *words, enum lg_severity severity)
{
	const struct lg_finding *f = find(o->v, id);

	assert_non_null(f);
	if (f->severity != severity)
		fail_msg("%s is %s: %s", id, lg_severity_text(f->severity), f->title);
	if (words)
		assert_non_null(strstr(f->title, words));
	else
		assert_null(strstr(f->title, "(seen "));
	assert_false(limited(o, "too short to tell"));
}

static void an_allocation_in_every_step_is_no_cold_start(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	for (p.alloc_ns = 4 * MS; p.alloc_ns < 100 * MS; p.alloc_ns *= 2) {
		p.n_alloc = 1;
		o = first(&p, "gpu.allocator_sync");
		assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
		assert_null(find(o.v, "warmup.dominates"));
		done(&o);
	}
	/* Once in ten steps: the others are judged, and one proves a twentieth of its share. */
	p.n_steps = 10;
	p.only_every = 6;
	p.alloc_ns = 60 * MS;
	o = explain(&p);
	assert_null(find(o.v, "warmup.dominates"));
	seen(&o, "gpu.allocator_sync", "(seen once)", LG_SEVERITY_LOW);
	done(&o);
	/* In the first step, for as long as all others: a cold start, and what follows is judged. */
	p = gpu_healthy;
	p.cold_ns = 200 * MS;
	o = explain(&p);
	assert_non_null(find(o.v, "warmup.dominates"));
	assert_non_null(find(o.v, "gpu.bound"));
	done(&o);
}

/* A first step that is judged with the others: what its launches take at first is no slow host's. */
static void a_slow_first_launch_is_a_cold_start_and_no_slow_host(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.cold_ns = 20 * MS;
	o = explain(&p);
	assert_null(find(o.v, "gpu.launch_bound"));
	assert_true(limited(&o, "first-time initialisation"));
	done(&o);
	/* Of a program that has done thousands of steps it is none. */
	p.first_step = 5000;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.launch_bound"));
	assert_false(limited(&o, "first-time initialisation"));
	done(&o);
}

static void steps_are_told_from_the_thread_that_has_them(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.no_step_marks = true;
	p.autograd_heavy = true;
	p.cold_ns = 200 * MS;
	o = explain(&p);
	assert_true(o.v->n_steps >= 8);
	assert_true(limited(&o, "steps told from Optimizer.step"));
	assert_non_null(find(o.v, "gpu.bound"));
	done(&o);
}

static void marks_that_overlap_by_rounding_are_all_steps(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o = explain(&p);
	double p99_ms = o.v->p99_ms;

	(void)state;
	done(&o);
	for (p.overlap_ns = 0; p.overlap_ns <= 1000; p.overlap_ns = 10 * p.overlap_ns + 1) {
		o = explain(&p);
		assert_int_equal(o.v->n_steps, p.n_steps);
		assert_true(fabs(o.v->p99_ms - p99_ms) < 0.01);
		done(&o);
	}
}

static void a_loss_in_few_steps_counts_as_far_as_they_prove_it(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;
	double sure;

	(void)state;
	p.pause_ns = 80 * MS;
	p.only_every = 5;
	p.n_steps = 10; /* in two of ten: 61 % of the window, of which two prove 11 % */
	o = explain(&p);
	seen(&o, "gpu.launch_bound", "(seen twice)", LG_SEVERITY_HIGH);
	assert_string_equal(find(o.v, "gpu.launch_bound")->detail, "pauses");
	sure = find(o.v, "gpu.launch_bound")->strength;
	done(&o);
	p.n_steps = 20;
	o = explain(&p);
	seen(&o, "gpu.launch_bound", "(seen 4 times)", LG_SEVERITY_HIGH);
	assert_true(find(o.v, "gpu.launch_bound")->strength > sure);
	done(&o);
	p.n_steps = 25; /* five alike: four of them have four fifths, but are not most */
	o = explain(&p);
	seen(&o, "gpu.launch_bound", NULL, LG_SEVERITY_HIGH);
	done(&o);
	p.pause_ns = 30 * MS; /* 37 %, and 7 % */
	p.n_steps = 10;
	o = explain(&p);
	seen(&o, "gpu.launch_bound", "(seen twice)", LG_SEVERITY_MEDIUM);
	done(&o);
	p.pause_ns = 10 * MS; /* 16 %, and 3 % */
	o = explain(&p);
	seen(&o, "gpu.launch_bound", "(seen twice)", LG_SEVERITY_LOW);
	done(&o);
	p.pause_ns = 80 * MS;
	p.n_steps = 30; /* in six */
	o = first(&p, "gpu.launch_bound");
	seen(&o, "gpu.launch_bound", NULL, LG_SEVERITY_HIGH);
	assert_string_equal(o.v->findings[0].detail, "pauses"); /* compilation does not help, though */
	assert_non_null(strstr(o.v->findings[0].title, "6 pauses of "));
	assert_null(strstr(o.v->findings[0].fix, "torch.compile"));
	done(&o);
	p.n_steps = 3; /* in each of three */
	p.only_every = 0;
	o = first(&p, "gpu.launch_bound");
	seen(&o, "gpu.launch_bound", NULL, LG_SEVERITY_HIGH);
	done(&o);

	p = gpu_healthy;
	p.compile_ns = 80 * MS;
	p.only_every = 7;
	o = explain(&p);
	seen(&o, "compile.in_step", "(seen once)", LG_SEVERITY_LOW);
	done(&o);
	p.compile_ns = 200 * MS; /* 67 %, of which one proves 3.4 % */
	o = explain(&p);
	seen(&o, "compile.in_step", "(seen once)", LG_SEVERITY_MEDIUM);
	done(&o);
	p.only_every = 0;
	o = first(&p, "compile.in_step");
	seen(&o, "compile.in_step", NULL, LG_SEVERITY_HIGH);
	done(&o);
}

/* Kernels of one step, as of an evaluation, are not what the loop does. */
static void what_few_steps_run_is_graded_by_what_they_prove(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.launch_ns = 40 * US;
	p.kernel = "ampere_sgemm_128x64_tn";
	o = first(&p, "gpu.no_tensor_core");
	assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
	done(&o);
	p.kernel_at_times = true;
	p.only_every = 4; /* two of ten */
	o = explain(&p);
	seen(&o, "gpu.no_tensor_core", "(seen twice)", LG_SEVERITY_LOW);
	done(&o);
	/* On the CPU, one long wait of the loader and one in each step. */
	p = gpu_healthy;
	p.no_device = p.no_launches = true;
	p.loader_ns = 80 * MS;
	o = first(&p, "data.loader_wait");
	assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
	done(&o);
	p.loader_every = 10;
	o = explain(&p);
	seen(&o, "data.loader_wait", "(seen once)", LG_SEVERITY_MEDIUM);
	done(&o);
	p.loader_ns = 40 * MS;
	o = explain(&p);
	seen(&o, "data.loader_wait", "(seen once)", LG_SEVERITY_LOW);
	done(&o);
}

/* Of a step on the CPU, what the loader takes is told as it is, and little of it is no trouble. */
static void a_loader_that_takes_little_of_a_step_on_the_cpu_is_low(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.no_device = p.no_launches = true;
	o = explain(&p);
	assert_null(find(o.v, "data.loader_wait"));
	done(&o);
	for (int percent = 2; percent < 10; percent += 3) {
		p.loader_ns = percent * 50 * US; /* a step takes 5 ms, whether or not it does that first */
		o = explain(&p);
		f = find(o.v, "data.loader_wait");
		assert_non_null(f);
		assert_int_equal(f->severity, LG_SEVERITY_LOW);
		assert_true(fabs(f->lost_share - percent / 100.0) < 0.005);
		assert_non_null(strstr(f->title, "of the step's time"));
		done(&o);
	}
	p.loader_ns = 25 * US;
	o = explain(&p);
	assert_null(find(o.v, "data.loader_wait"));
	done(&o);
}

/* One pause in one step, in which the host runs operators that launch nothing: still one, by its function. */
static void one_pause_of_many_operators_is_one(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.n_steps = 1;
	p.n_kernels = 400;
	p.hole_ns = 100 * US; /* before a first kernel there is no launch to wait for */
	p.convs = 1;
	p.python[0] = (struct gpu_python){ "train.py", "resize" };
	p.python[1] = (struct gpu_python){ "train.py", "normalize" };
	p.python_calls = 50000;
	p.frames = true;
	o = explain(&p);
	f = find(o.v, "gpu.launch_bound");
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	assert_string_equal(f->detail, "pauses");
	assert_non_null(strstr(f->evidence[0].text, "longest pause"));
	assert_non_null(strstr(f->evidence[0].text, "in train.py(7): step"));
	assert_null(strstr(f->fix, "torch.compile"));
	done(&o);
	p = gpu_healthy; /* launches that are slow one by one are helped by compilation */
	p.launch_ns = 120 * US;
	o = first(&p, "gpu.launch_bound");
	assert_string_equal(o.v->findings[0].detail, "not_compiled");
	done(&o);
}

/* Many short waits and one long: the long one does not raise the grade of the short ones. */
static void one_long_pause_does_not_grade_many_short_ones(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.launch_ns = 50200; /* a little slower than the device */
	p.pause_ns = 40 * MS;
	p.only_every = 10;
	p.n_steps = 12;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.launch_bound"));
	seen(&o, "gpu.launch_bound", "(seen once)", LG_SEVERITY_LOW);
	done(&o);
}

/* Short kernels behind a slow way to the device: each is launched while the last one still runs, and the
 * device runs dry all the same. What takes longer than a launch does here waits for something else. */
static void a_launch_that_takes_its_time_is_the_hosts(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel_ns = 4 * US;
	p.launch_ns = 10 * US;
	for (p.latency_ns = 11 * US; p.latency_ns <= 19 * US; p.latency_ns += 2 * US) {
		o = first(&p, "gpu.launch_bound");
		/* Four of ten microseconds are kernels. */
		assert_true(o.v->findings[0].lost_share > 0.5 && o.v->findings[0].lost_share < 0.65);
		assert_false(limited(&o, "although work was queued"));
		done(&o);
	}
	/* Rows are missing, and calls are far ahead: still work that was queued. */
	p = gpu_healthy;
	p.lost_every = 5;
	o = explain(&p);
	assert_null(find(o.v, "gpu.launch_bound"));
	assert_true(limited(&o, "although work was queued"));
	done(&o);
}

/* Nothing is said of a device whose work is missing, nor of what it may have waited for. */
static void not_judged(const struct gpu_plan *p, const char *why)
{
	struct outcome o = explain(p);

	assert_int_equal(o.v->n_findings, 0);
	assert_int_equal(o.v->bound, LG_BOUND_UNKNOWN);
	assert_true(o.v->bound_confidence <= 0);
	assert_int_equal(o.v->n_judged, 0);
	assert_non_null(o.v->unjudged);
	assert_true(limited(&o, why));
	done(&o);
}

static void a_trace_without_its_kernels_is_not_judged(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.loader_ns = 20 * MS; /* of which the device hides half: 92 % would be data's */
	o = first(&p, "data.loader_wait");
	assert_null(o.v->unjudged);
	done(&o);
	p.no_device = true; /* launches, and not one kernel */
	not_judged(&p, "no row of the device is in the trace");
	p.no_launches = true; /* the profiler was never asked for the device: see cpu_bound.c */
	o = explain(&p);
	assert_null(o.v->unjudged);
	assert_true(limited(&o, "no device activity in this trace"));
	done(&o);
	p = gpu_healthy;
	p.loader_ns = 20 * MS;
	p.n_steps = 16;
	for (p.lost_steps = 9; p.lost_steps <= 15; p.lost_steps++)
		not_judged(&p, "kernels are missing from the trace");
	p.lost_steps = 0;
	p.lost_every = 3; /* throughout */
	not_judged(&p, "kernels are missing from the trace");
}

static void steps_whose_kernels_were_lost_are_left_out(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;
	double usual_ms;

	(void)state;
	p.lost_steps = 3;
	p.n_steps = 12;
	p.launch_ns = 40 * US; /* not far ahead of the device */
	quiet(&p);
	o = explain(&p);
	assert_true(limited(&o, "have no kernel in the trace"));
	assert_true(limited(&o, "3 steps at the beginning"));
	assert_int_equal(o.v->n_steps, 9);
	assert_non_null(find(o.v, "gpu.bound"));
	done(&o);
	/* The device is far behind: until it comes to what is kept, its work was lost. */
	p.launch_ns = gpu_healthy.launch_ns;
	p.n_steps = 16;
	quiet(&p);
	o = explain(&p);
	assert_true(limited(&o, "have no kernel in the trace"));
	assert_non_null(find(o.v, "gpu.bound"));
	done(&o);
	/* The last ones: those that are kept last until the device has done them. */
	p.lost_steps = 0;
	o = explain(&p);
	usual_ms = o.v->median_ms;
	done(&o);
	p.lost_from = 13;
	quiet(&p);
	o = explain(&p);
	assert_true(limited(&o, "3 at the end are left out"));
	assert_true(fabs(o.v->median_ms - usual_ms) < 0.1 * usual_ms);
	done(&o);
	p.lost_from = 0;
	p.lost_steps = 3;
	/* What the others have is found all the same. */
	p.launch_ns = 40 * US;
	p.loader_ns = 8 * MS;
	o = first(&p, "data.loader_wait");
	done(&o);
	/* Too few others: nothing is said about the host. */
	p = gpu_healthy;
	p.n_steps = 4;
	p.lost_steps = 2;
	p.launch_ns = 40 * US;
	not_judged(&p, "kernels are missing from the trace");
	/* One in six, everywhere: nothing is said about the host. */
	p = gpu_healthy;
	p.lost_every = 6;
	p.launch_ns = 60 * US;
	o = explain(&p);
	assert_null(find(o.v, "gpu.launch_bound"));
	assert_true(limited(&o, "whether the host launches too slowly cannot be told"));
	done(&o);
	/* One in a hundred is missing everywhere: that matters to nobody. */
	p = gpu_healthy;
	p.lost_every = 100;
	o = explain(&p);
	assert_int_equal(o.v->n_steps, p.n_steps);
	assert_false(limited(&o, "no kernel in the trace"));
	done(&o);
}

/* What is not in the trace clears nobody, however little of it that is; one that is whole does. */
static void a_trace_that_is_not_whole_clears_nobody(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;
	char buf[1024];

	(void)state;
	p.n_steps = 20;
	p.sync_every = p.n_kernels;
	o = explain(&p);
	assert_non_null(strstr(lg_headline(o.v, buf, sizeof buf), "Nothing is wrong that this input can show"));
	done(&o);
	p.lost_from = 8;
	for (p.lost_until = 9; p.lost_until <= 12; p.lost_until++) {
		o = explain(&p);
		lg_headline(o.v, buf, sizeof buf);
		if (strstr(buf, "Nothing is wrong") || !strstr(buf, "the trace is not whole"))
			fail_msg("%d steps lost: %s", p.lost_until - p.lost_from, buf);
		done(&o);
	}
}

/* A buffer of the profiler's overflowed: while its rows are missing the device only seems to idle, whatever
 * the host waits for; what the other steps wait for is found all the same. */
static void rows_lost_in_the_middle_are_no_idle_time(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;
	double alone_ms;

	(void)state;
	p.n_steps = 20;
	p.sync_every = p.n_kernels;
	quiet(&p);
	p.lost_from = 8;
	p.lost_until = 11;
	quiet(&p);
	p.lost_from = p.lost_until = 0;
	p.loader_ns = 8 * MS;
	o = first(&p, "data.loader_wait");
	alone_ms = o.v->findings[0].lost_ms;
	done(&o);
	p.lost_from = 8;
	p.lost_until = 11;
	o = explain(&p);
	f = find(o.v, "data.loader_wait");
	assert_non_null(f);
	assert_true(f->lost_ms > 0.75 * alone_ms && f->lost_ms <= 1.02 * alone_ms);
	done(&o);
}

/* Steps told from the ends of optimizers, with several a step, or a pause that is longer than all steps. */
static void a_long_pause_joins_no_steps(void **state)
{
	(void)state;
	for (int optimizers = 0; optimizers < 3; optimizers++)
		for (int pause = 0; pause < 2; pause++) {
			struct gpu_plan p = gpu_healthy;
			struct outcome o;

			p.n_steps = 30;
			p.no_step_marks = true;
			p.optimizers = optimizers;
			p.pause_ns = pause ? 20000 * MS : 0;
			p.only_every = 16;
			o = explain(&p);
			assert_int_equal(o.v->n_steps, 30);
			done(&o);
		}
}

/* The host orders five steps while the device does one: all of them are judged, as the device does them. */
static void a_host_far_ahead_hides_no_work_of_its_device(void **state)
{
	/* The queue is empty when the window begins; or full of what was before. */
	const int unseen[] = { 0, 20 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct gpu_plan p = gpu_healthy;
		struct outcome o;

		p.launch_ns = 2 * US;
		p.unseen_steps = unseen[i];
		p.n_steps = unseen[i] + 5;
		quiet(&p);
		o = explain(&p);
		assert_int_equal(o.v->n_steps, 5);
		assert_non_null(find(o.v, "gpu.bound"));
		assert_non_null(strstr(find(o.v, "gpu.bound")->title, "keeps up"));
		assert_true(fabs(o.v->median_ms - 10) < 0.5);
		done(&o);
		p.copy = COPY_PINNED_SAME;
		p.copy_ns = 2 * MS; /* of 12 */
		o = first(&p, "data.serial_copy");
		assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
		if (!(fabs(o.v->findings[0].lost_share - 2 / 12.0) < 0.01))
			fail_msg("share %g", o.v->findings[0].lost_share);
		assert_true(fabs(o.v->findings[0].lost_ms - 5 * 2) < 0.5);
		/* A sixth is lost: the kernels are not all that is left to do. */
		assert_null(strstr(find(o.v, "gpu.bound")->title, "keeps up"));
		done(&o);
	}
}

/* Until the queue is full, the host marks a step each 0.4 ms, then each 10 ms. */
static void short_marks_before_the_queue_is_full_are_steps(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.launch_ns = 2 * US;
	p.n_steps = 16;
	quiet(&p);
	o = explain(&p);
	assert_int_equal(o.v->n_steps, 16);
	assert_int_equal(o.v->n_slow, 0);
	assert_true(fabs(o.v->median_ms - 10) < 0.5);
	done(&o);
}

/* Steps ahead until its queue is full, and at the end it waits for the device: no step is longer for that,
 * nor where rows of some are missing. */
static void a_host_that_waits_at_the_end_had_no_slower_steps(void **state)
{
	struct gpu_plan p = gpu_healthy;
	char buf[1024];

	(void)state;
	p.launch_ns = 2 * US;
	p.n_steps = 16;
	p.sync_at_end = true;
	for (p.lost_until = 0; p.lost_until <= 8; p.lost_until += 8) {
		struct outcome o;

		p.lost_from = p.lost_until ? 6 : 0;
		o = explain(&p);
		assert_int_equal(o.v->n_steps, 16);
		assert_int_equal(o.v->n_slow, 0);
		if (!(fabs(o.v->median_ms - 10) < 0.5 && o.v->min_ms > 9 && o.v->max_ms < 11))
			fail_msg("%g to %g ms", o.v->min_ms, o.v->max_ms);
		assert_null(strstr(lg_headline(o.v, buf, sizeof buf), "slower"));
		done(&o);
	}
}

/* ProfilerStep#550 is step 550 of the run, whichever of the window is judged first. */
static void steps_keep_the_numbers_that_the_program_gave_them(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct gpu_plan p = gpu_healthy;
		int64_t left_out = kind == 1; /* a cold start */
		struct outcome o;

		p.first_step = 550;
		p.cold_ns = kind == 1 ? 200 * MS : p.cold_ns;
		p.launch_ns = kind == 2 ? 2 * US : p.launch_ns; /* the device is steps behind */
		o = explain(&p);
		assert_true(o.v->n_steps >= 3);
		for (size_t i = 0; i < o.v->n_steps; i++)
			assert_int_equal(o.v->steps[i].number, 550 + left_out + (int64_t)i);
		done(&o);
		p.no_step_marks = true; /* told from something else: they are counted */
		o = explain(&p);
		assert_int_equal(o.v->steps[0].number, 0);
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_allocation_in_every_step_is_no_cold_start),
		cmocka_unit_test(a_slow_first_launch_is_a_cold_start_and_no_slow_host),
		cmocka_unit_test(steps_are_told_from_the_thread_that_has_them),
		cmocka_unit_test(marks_that_overlap_by_rounding_are_all_steps),
		cmocka_unit_test(a_loss_in_few_steps_counts_as_far_as_they_prove_it),
		cmocka_unit_test(what_few_steps_run_is_graded_by_what_they_prove),
		cmocka_unit_test(a_loader_that_takes_little_of_a_step_on_the_cpu_is_low),
		cmocka_unit_test(one_pause_of_many_operators_is_one),
		cmocka_unit_test(one_long_pause_does_not_grade_many_short_ones),
		cmocka_unit_test(a_launch_that_takes_its_time_is_the_hosts),
		cmocka_unit_test(a_trace_without_its_kernels_is_not_judged),
		cmocka_unit_test(steps_whose_kernels_were_lost_are_left_out),
		cmocka_unit_test(a_trace_that_is_not_whole_clears_nobody),
		cmocka_unit_test(rows_lost_in_the_middle_are_no_idle_time),
		cmocka_unit_test(a_long_pause_joins_no_steps),
		cmocka_unit_test(a_host_far_ahead_hides_no_work_of_its_device),
		cmocka_unit_test(short_marks_before_the_queue_is_full_are_steps),
		cmocka_unit_test(a_host_that_waits_at_the_end_had_no_slower_steps),
		cmocka_unit_test(steps_keep_the_numbers_that_the_program_gave_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
