/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <time.h>
#include <zstd.h>

#include "feed_trace.h"
#include "import/source/file_rank.h"
#include "import/torchlog/step_regex.h"

static void records_of_several_lines_become_one_mark(void **state)
{
	struct lg_trace *t = feed_fixture("torchlog/job.log", "log");
	size_t i;

	(void)state;
	feed_expect_mark(t, "log.graph_break", 0, 0, "/app/train.py:6: Unsupported: builtin: print");
	assert_int_equal(feed_marks(t, "log.graph_break"), 1);
	feed_expect_mark(t, "log.recompile", 0, 1, "g (/app/train.py:8): 4/0: L['n'] == 0; 4/0: tensor 'x' size");
	feed_expect_mark(t, "log.recompile_limit", 0, 8, "last reason: 6/0: L['s'] == ''");
	i = feed_mark(t, "log.compile_skipped", 0);
	assert_int_equal(feed_marks(t, "log.compile_skipped"), 1); /* "in skipfiles" is noise */
	assert_int_equal(t->thread.tid[t->mark.thr[i]], 28211);
	assert_int_equal(t->process.rank[t->thread.prc[t->mark.thr[i]]], 0);
	lg_trace_free(t);
}

static void known_sentences_have_names_and_values(void **state)
{
	struct lg_trace *t = feed_fixture("torchlog/job.log", "log");
	size_t i = feed_mark(t, "log.watchdog_timeout", 0);

	(void)state;
	assert_int_equal(t->mark.value[i], 78);
	assert_int_equal(t->process.rank[t->thread.prc[t->mark.thr[i]]], 1);
	assert_int_equal(t->mark.ts[i] % 1000000000, 61727749);
	feed_expect_mark(t, "log.oom", 0, INT64_C(3) << 29, "1.09 GiB is free");
	feed_expect_mark(t, "log.tf32_off", 0, 0, NULL);
	feed_expect_mark(t, "log.loader_workers", 0, 16, NULL);
	feed_expect_mark(t, "log.memory_summary", 0, 0,
			 "OOMs 1, cudaMalloc retries 2, Allocated memory 2048 KiB (peak 4096 KiB), GPU reserved");
	assert_string_equal(feed_meta(t, "import.clock"), "local");
	lg_trace_free(t);
}

static void step_lines_of_frameworks_give_steps(void **state)
{
	struct lg_trace *t = feed_fixture("torchlog/steps.log", "log");
	static const int64_t number[] = { 10, 11, 20, 21, 100, 10, -1, 10, 11 };
	size_t n, spans = 0;

	(void)state;
	assert_int_equal(feed_marks(t, "log.step"), 9);
	for (int k = 0; k < 9; k++)
		feed_expect_mark(t, "log.step", k, number[k], NULL);
	for (size_t i = 0; i < t->span.n; i++) {
		assert_int_equal(t->span.kind[i], LG_SPAN_STEP);
		spans += t->span.seq[i] == 11 && t->span.dur[i] == 500000000;
		spans += t->span.seq[i] == 21 &&
			       t->span.dur[i] == 2000000000; /* from the times of two lines */
	}
	assert_int_equal(spans, 2);
	/* 512.5 500 | 2000 | 123.45 | 250 */
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 512.5 + 500 + 2000 + 123.45 + 250);
	assert_true(feed_counter(t, "log.bar_ms", 1, &n) == 500 + 2000);
	assert_true(feed_counter(t, "log.tokens_per_s", -1, &n) == 2534 && n == 2);
	lg_trace_free(t);
}

/* A cut of a log begins with step lines: nothing of torch's own stands before them. */
static void a_log_may_begin_with_its_steps(void **state)
{
	struct lg_trace *t = feed_text(
		"[rank0]:[titan] 2026-03-01 10:00:01,123 - root - INFO - step:  1  loss:  7.1  tps: 16,384\n"
		"[rank0]:[titan] 2026-03-01 10:00:02,123 - root - INFO - step:  2  loss:  7.0  tps: 16,384\n", "log");
	size_t n;

	(void)state;
	assert_int_equal(feed_marks(t, "log.step"), 2);
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 1000 && n == 1);
	lg_trace_free(t);
	t = feed_text("step: 1 loss: 2.3\nstep: 2 loss: 2.2\nstep: 3 val loss: 2.1\n", "log");
	assert_int_equal(feed_marks(t, "log.step"), 2);
	assert_true(feed_counter(t, "log.loss", -1, &n) == 4.5);
	lg_trace_free(t);
	/* Two steps in a tick of the clock share it. */
	t = feed_text("2026-03-01 10:00:01 INFO trainer: step 10/90 loss 2.3\n"
		      "2026-03-01 10:00:01 INFO trainer: step 11/90 loss 2.3\n"
		      "2026-03-01 10:00:02 INFO trainer: step 12/90 loss 2.3\n"
		      "2026-03-01 10:00:02 INFO trainer: step 13/90 loss 2.3\n"
		      "2026-03-01 10:00:03 INFO trainer: step 14/90 loss 2.3\n"
		      "2026-03-01 10:00:03 INFO trainer: lr step 3e-4 loss 2.3, item 5 lost, first 0.5 loss\n", "log");
	assert_int_equal(feed_marks(t, "log.step"), 5);
	assert_true(fabs(feed_counter(t, "log.step_ms", -1, &n) - 2000) < 50 && n == 4);
	lg_trace_free(t);
}

static void torchrun_keeps_each_ranks_log_in_a_folder(void **state)
{
	static const struct {
		const char *path;
		int32_t rank;
	} names[] = {
		{ "logs/none_x/attempt_0/3/stdout.log", 3 },
		{ "attempt_1/12/stderr.log", 12 },
		{ "/a/attempt_7/attempt_0/0/stdout.log", 0 },
		{ "rank_2.log", 2 },
		{ "attempt_0/3/job.log", -1 },
		{ "attempt_0/stdout.log", -1 },
		{ "attempt_0/99999999999999/stdout.log", -1 },
		{ "my_attempt_0/3/stdout.log", -1 },
		{ "attempt_", -1 },
		{ "stdout.log", -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (lg_log_file_rank(names[i].path) != names[i].rank)
			fail_msg("%s: %d", names[i].path, lg_log_file_rank(names[i].path));
}

/* Epochs of four lines, 100 ms apart, of each step and of every other. */
static void another_epoch_begins_with_a_step(void **state)
{
	char text[4096];
	struct lg_trace *t;
	size_t n, spans;

	(void)state;
	for (int every = 1; every <= 2; every++) {
		size_t k = 0;

		for (int i = 0; i < 16; i++)
			k += (size_t)sprintf(text + k, "2026-03-01 10:00:%02d,%d00 step %d loss 2.3\n", i / 10,
					     i % 10, i % 4 * every);
		t = feed_text(text, "log");
		spans = 0;
		for (size_t i = 0; i < t->span.n; i++)
			spans += t->span.kind[i] == LG_SPAN_STEP && t->span.dur[i] == 100000000;
		/* Of steps without a line nobody knows how many ended the epoch. */
		assert_int_equal(spans, every == 1 ? 15 : 0);
		assert_true(fabs(feed_counter(t, "log.step_ms", -1, &n) - (every == 1 ? 1500 : 600)) < 1e-3);
		assert_int_equal(n, every == 1 ? 15 : 12);
		lg_trace_free(t);
	}
}

/* train_time is the time of all steps so far, and step_avg its mean: neither is a step's. */
static void steps_are_the_differences_of_a_running_total(void **state)
{
	static const struct {
		const char *text;
		double sum;
		size_t n, marks;
	} rows[] = {
		/* the first line is no step's, nor is the validation's of a step that was told */
		{ "step:0/90 val_loss:11.0 train_time:300ms step_avg:nanms\n"
		  "step:1/90 train_loss:10.9 train_time:20300ms step_avg:nanms\n"
		  "step:2/90 train_loss:10.8 train_time:20550ms step_avg:nanms\n"
		  "step:2/90 val_loss:10.7 train_time:20560ms step_avg:nanms\n"
		  "step:3/90 train_loss:10.6 train_time:20800ms step_avg:nanms\n", 20000 + 250 + 250, 3, 4 },
		/* the total starts anew, and the counting too */
		{ "step:9/90 train_loss:5.0 train_time:9000ms step_avg:100.00ms\n"
		  "step:10/90 train_loss:5.0 train_time:80ms step_avg:nanms\n"
		  "step:11/90 train_loss:5.0 train_time:180ms step_avg:100.00ms\n"
		  "step:1/90 train_loss:5.0 train_time:500ms step_avg:nanms\n"
		  "step:2/90 train_loss:5.0 train_time:650ms step_avg:nanms\n", 100 + 150, 2, 5 },
		/* lines of every tenth step, in other units */
		{ "step:10/90 train_time:1.5s step_avg:0.15s\nstep:20/90 train_time:3.5s step_avg:0.17s\n"
		  "step:30/90 train_time:5 s\n", 200 + 150, 2, 3 },
		{ "step:1/90 train_time:0.5min\nstep:2/90 train_time:1.0min\n", 30000, 1, 2 },
		/* whole seconds: the one that moves is of two steps */
		{ "step:1/90 train_time:1s\nstep:2/90 train_time:1s\nstep:3/90 train_time:2s\n", 500, 1, 3 },
		/* no unit, no number */
		{ "step:1/90 train_time:100\nstep:2/90 train_time:nanms\nstep:3/90 train_time:300\n", 0, 0, 3 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_trace *t = feed_text(rows[i].text, "log");
		size_t n;
		double sum = feed_counter(t, "log.step_ms", -1, &n);

		if (n != rows[i].n || fabs(sum - rows[i].sum) > 1e-6 ||
		    feed_marks(t, "log.step") != rows[i].marks)
			fail_msg("text %zu: %zu steps, %g ms, %zu marks", i, n, sum,
				 (size_t)feed_marks(t, "log.step"));
		lg_trace_free(t);
	}
}

/* A zstd block of 128 KiB gives nothing out before it is whole, and noise does not shrink. */
static void a_packed_file_is_known_by_what_is_inside(void **state)
{
	static const struct {
		const char *before, *line, *line_end, *after, *format;
	} rows[] = {
		{ "", "note ", "\n", " iteration 10/ 100 | elapsed time per iteration (ms): 512.5 |\n"
		  " iteration 11/ 100 | elapsed time per iteration (ms): 512.5 |\n", "log" },
		{ "{\"schemaVersion\":1,\"traceEvents\":[",
		  "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1,\"name\":\"", "\"},\n",
		  "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1}]}", "kineto" },
	};
	enum { ROOM = 1 << 20 };
	char *text = malloc(ROOM), *packed = malloc(ROOM); /* style: memory */
	uint32_t seed = 1;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t k = (size_t)sprintf(text, "%s", rows[i].before);
		const char *path;

		while (k < 400000) {
			uint32_t v[3];

			for (int j = 0; j < 3; j++)
				v[j] = seed = seed * 1664525 + 1013904223;
			k += (size_t)sprintf(text + k, "%s%08x%08x%08x%s", rows[i].line, v[0], v[1], v[2],
					     rows[i].line_end);
		}
		k += (size_t)sprintf(text + k, "%s", rows[i].after);
		k = ZSTD_compress(packed, ROOM, text, k, 1);
		assert_false(ZSTD_isError(k));
		path = feed_file(packed, k);
		lg_trace_free(feed_read(path, rows[i].format));
		unlink(path);
	}
	free(text);
	free(packed);
}

static void torch_trace_gives_compilations_and_the_zone(void **state)
{
	struct lg_trace *t = feed_fixture("torchlog/trace.log", "log");
	size_t i = 0;

	(void)state;
	while (i < t->span.n && t->span.kind[i] != LG_SPAN_COMPILE)
		i++;
	assert_true(i < t->span.n);
	assert_int_equal(t->span.dur[i], 12500000);
	feed_expect_mark(t, "log.recompile", 0, 1, "0/0: L['n'] == 3");
	feed_expect_mark(t, "log.graph_break", 0, 0, "fn (/app/model.py:9) [0/0]: why not");
	assert_int_equal(t->clock.n, 1);
	/* the line of 07:28:48.051, seven hours behind UTC, whatever year was taken */
	assert_int_equal(t->clock.value[0], INT64_C(1712154528051000000));
	assert_int_equal(t->process.rank[t->thread.prc[t->span.thr[i]]], 2);
	lg_trace_free(t);
}

/* The compiler began anew: for a break, or for what it had learned of a number. */
static void to_begin_anew_is_no_graph_break(void **state)
{
	static const char log[] =
		"V0403 07:28:48.065000 4711 torch/_dynamo/utils.py:685] {\"compilation_metrics\": {\"co_name\": \"fn\", "
		"\"co_filename\": \"/app/model.py\", \"co_firstlineno\": 9, \"start_time\": 1712154528.05, "
		"\"entire_frame_compile_time_s\": 0.0125, \"fail_type\": null, \"restart_reasons\": [\"%s\"]}, "
		"\"frame_id\": 0, \"frame_compile_id\": 0, \"attempt\": 1}\n";
	static const struct {
		const char *reason;
		bool breaks;
	} tab[] = { { "<class 'torch._dynamo.exc.UnspecializeRestartAnalysis'>", false },
		    { "<class 'torch._dynamo.exc.TensorifyScalarRestartAnalysis'>", false },
		    { "Unknown fail_and_restart_analysis", true }, { "call_function print", true } };
	char text[1024];

	(void)state;
	for (size_t i = 0; i < sizeof tab / sizeof *tab; i++) {
		struct lg_trace *t;
		bool found = false;

		snprintf(text, sizeof text, log, tab[i].reason);
		t = feed_text(text, "log");
		for (size_t k = 0; k < t->mark.n; k++)
			found |= !strcmp(lg_string(t, t->mark.name[k]), "log.graph_break");
		assert_int_equal(found, tab[i].breaks);
		assert_int_equal(t->span.n, 1);
		lg_trace_free(t);
	}
}

static void times_of_other_forms_are_read(void **state)
{
	static const char *const rows[] = {
		"03/14/2026 09:26:53 step 1 loss 2\n03/14/2026 09:26:55 step 2 loss 2\n",
		"14/03/2026 09:26:53 step 1 loss 2\n14/03/2026 09:26:55 step 2 loss 2\n",
		"14.03.2026 09:26:53,123 step 1 loss 2\n14.03.2026 09:26:55,123 step 2 loss 2\n",
		"1773480413.405 step 1 loss 2\n1773480415.405 step 2 loss 2\n",
		"[1773480413.4] step 1 loss 2\n[1773480415.4] step 2 loss 2\n",
		"Mar  4 09:26:53 step 1 loss 2\nMar  4 09:26:55 step 2 loss 2\n",
		"Mar 14 09:26:53 gpu-7 python3[812]: step 1 loss 2\n"
		"Mar 14 09:26:55 gpu-7 python3[812]: step 2 loss 2\n",
		"2026-03-14T09:26:53.5+00:00 gpu-7 run.sh[812]: step 1 loss 2\n"
		"2026-03-14T09:26:55.5+00:00 gpu-7 run.sh[812]: step 2 loss 2\n",
		"[23:59:59] INFO step 1 loss 2\n[00:00:01] INFO step 2 loss 2\n",
		"09:26:53 | step 1 loss 2\n09:26:55 | step 2 loss 2\n",
		"2026-03-14 23:59:59 begin\n[00:00:01.25] step 1 loss 2\n[00:00:03.25] step 2 loss 2\n",
		/* no times */
		"1773480413 step 1 loss 2\n1773480415 step 2 loss 2\n",
		"1773480413.405,1 step 1 loss 2\n1773480415.405,1 step 2 loss 2\n",
		"33/14/2026 09:26:53 step 1 loss 2\n33/14/2026 09:26:55 step 2 loss 2\n",
		"Mai  4 09:26:53 step 1 loss 2\nMai  4 09:26:55 step 2 loss 2\n",
		"25:26:53 step 1 loss 2\n25:26:55 step 2 loss 2\n",
		"[09:26:53<01:10] step 1 loss 2\n[09:26:55<01:08] step 2 loss 2\n",
	};
	enum { WITH = 11 };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_trace *t = feed_text(rows[i], "log");
		size_t n;
		double ms = feed_counter(t, "log.step_ms", -1, &n);

		if (i < WITH ? n != 1 || ms != 2000 : n != 0)
			fail_msg("row %zu: %zu of %.3f ms", i, n, ms);
		assert_int_equal(feed_diags(t, LG_DIAG_NO_TIMES), i < WITH ? 0 : 1);
		lg_trace_free(t);
	}
}

static void who_printed_is_in_the_tag_of_syslog(void **state)
{
	struct lg_trace *t = feed_text("Mar 14 09:26:53 gpu-7 python3[812]: step 1 loss 2\n"
				       "Mar 14 09:26:53 gpu-7 python3[813]: step 1 loss 2\n", "log");

	(void)state;
	assert_int_equal(t->process.n, 2 + 1); /* [0] is none */
	lg_trace_free(t);
}

static void the_user_says_what_a_step_line_is(void **state)
{
	static const char log[] = "hello\n"
				  "2025-10-03 18:37:01,000 trainer | global_step=1,000 took 512.5 ms\n"
				  "2025-10-03 18:37:01,750 trainer | global_step=1,001 took 0.5 s\n"
				  "2025-10-03 18:37:02,000 trainer | evaluating\n"
				  "2025-10-03 18:37:03,000 trainer | global_step=1,002 skipped\n";
	struct lg_error err;
	struct lg_trace *t;
	size_t n;

	(void)state;
	assert_non_null(strstr(feed_refused("a=1\nb=2\n", 8), "not a trace"));
	assert_int_equal(lg_step_regex_set("global_step=([0-9,]+) (took ([0-9.]+))?", &err), 0);
	assert_int_equal(lg_step_regex_set("global_step=([0-9,]+)( took |)([0-9.]*)", &err), 0);
	/* Group 2 is " took ": no number, so the time is that between the lines. */
	t = feed_text(log, "log");
	assert_int_equal(feed_marks(t, "log.step"), 3);
	feed_expect_mark(t, "log.step", 0, 1000, NULL);
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 750 + 1250 && n == 2);
	lg_trace_free(t);
	assert_int_equal(lg_step_regex_set("global_step=([0-9,]+) took ([0-9.]+)", &err), 0);
	t = feed_text(log, "log");
	assert_int_equal(feed_marks(t, "log.step"), 2);
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 512.5 + 500 && n == 2);
	lg_trace_free(t);
	/* Where no line is known otherwise, and lines that look like JSON. */
	assert_int_equal(lg_step_regex_set("\"i\": *([0-9]+), *\"ms\": *([0-9.]+)", &err), 0);
	t = feed_text("{\"i\": 7, \"ms\": 12.5}\n{\"i\": 8, \"ms\": 13.5}\n", "log");
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 26 && n == 2);
	lg_trace_free(t);
	/* Nothing matches: said, and what is known otherwise is still read. */
	t = feed_fixture("torchlog/steps.log", "log");
	assert_int_equal(feed_marks(t, "log.step"), 9);
	assert_true(feed_diags(t, LG_DIAG_NOT_UNDERSTOOD) >= 1);
	lg_trace_free(t);
	assert_int_equal(lg_step_regex_set(NULL, &err), 0);
}

static void an_expression_that_cannot_be_used_is_refused_in_one_line(void **state)
{
	static const char *const rows[][2] = {
		{ "step ([0-9]+", "no extended regular expression" }, { "step [0-9]+", "no group" },
		{ "(a)\\1", "back references" }, { "(((a{1,200}){1,200}){1,200})", "multiply" },
		{ "(a{1,100}){1,100}([0-9])", "multiply" }, { "step\n([0-9]+)", "longer" }, { "*(a)(", "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_error err = { 0 };

		assert_int_equal(lg_step_regex_set(rows[i][0], &err), LG_E_USAGE);
		assert_null(strchr(err.message, '\n'));
		if (!strstr(err.message, rows[i][1]))
			fail_msg("%s: %s", rows[i][0], err.message);
		assert_false(lg_step_regex_given());
	}
}

/* Whatever the expression and the line: bounded time for each line. */
static void no_line_takes_long(void **state)
{
	static const char *const rows[] = { "(a*)*b", "(a|aa)*(b|c)*([0-9]+)", "((a*)*)*([0-9]+)$", "(.*)(.*)(.*)(.*)x",
					    "^(.*a.*a.*a.*a)*$", "(a{1,30}){1,30}([0-9])", "((a|b){1,10}){1,10}([0-9])x" };
	char *line = malloc(1 << 20);

	(void)state;
	assert_non_null(line);
	memset(line, 'a', (1 << 20) - 1);
	line[(1 << 20) - 1] = 0;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct timespec a, b;
		int64_t step;
		double ms;

		assert_int_equal(lg_step_regex_set(rows[i], NULL), 0);
		clock_gettime(CLOCK_MONOTONIC, &a);
		(void)lg_step_regex_match(line, &step, &ms);
		clock_gettime(CLOCK_MONOTONIC, &b);
		ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
		if (ms > 2000)
			fail_msg("%s took %.0f ms on one line", rows[i], ms);
	}
	free(line);
	assert_int_equal(lg_step_regex_set(NULL, NULL), 0);
}

static void any_other_text_is_refused_in_one_line(void **state)
{
	static const char text[] = "dear diary\nnothing happened\n";

	(void)state;
	assert_non_null(strstr(feed_refused(text, strlen(text)), "not a trace"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_of_several_lines_become_one_mark),
		cmocka_unit_test(known_sentences_have_names_and_values),
		cmocka_unit_test(step_lines_of_frameworks_give_steps),
		cmocka_unit_test(torch_trace_gives_compilations_and_the_zone),
		cmocka_unit_test(a_log_may_begin_with_its_steps),
		cmocka_unit_test(another_epoch_begins_with_a_step),
		cmocka_unit_test(torchrun_keeps_each_ranks_log_in_a_folder),
		cmocka_unit_test(steps_are_the_differences_of_a_running_total),
		cmocka_unit_test(a_packed_file_is_known_by_what_is_inside),
		cmocka_unit_test(to_begin_anew_is_no_graph_break),
		cmocka_unit_test(times_of_other_forms_are_read),
		cmocka_unit_test(who_printed_is_in_the_tag_of_syslog),
		cmocka_unit_test(the_user_says_what_a_step_line_is),
		cmocka_unit_test(an_expression_that_cannot_be_used_is_refused_in_one_line),
		cmocka_unit_test(no_line_takes_long),
		cmocka_unit_test(any_other_text_is_refused_in_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
