/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_trace.h"

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
	/* 512.5 500 | 2000 | 123.45 | 250 | 500 2000 */
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 512.5 + 500 + 2000 + 123.45 + 250 + 500 + 2000);
	assert_true(feed_counter(t, "log.tokens_per_s", -1, &n) == 2534 && n == 2);
	lg_trace_free(t);
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
		cmocka_unit_test(any_other_text_is_refused_in_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
