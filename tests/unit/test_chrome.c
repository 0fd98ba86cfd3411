/* SPDX-License-Identifier: Apache-2.0 */
/* test_chrome.c - Chrome JSON text: exact times, nesting against async, names that need escaping.
 * (tests/e2e/test_convert.py reads whole files back.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "report/convert.h"
#include "store/builder.h"

static const struct lg_window all = { INT64_MIN, INT64_MAX };

static struct lg_builder *builder(void)
{
	struct lg_builder *b;
	struct lg_error err;

	assert_int_equal(lg_builder_new(&b, &err), 0);
	return b;
}

static char *drawn(struct lg_builder *b, const struct lg_window *w)
{
	struct lg_trace *t;
	struct lg_error err;
	struct lg_out *o;
	size_t n;
	char *s;

	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	assert_int_equal(lg_out_memory(&o, &err), 0);
	assert_int_equal(lg_chrome_write(t, NULL, w, o, &err), 0);
	s = lg_out_take(o, &n);
	assert_non_null(s);
	assert_int_equal(lg_out_close(o, &err), 0);
	lg_trace_free(t);
	return s;
}

static size_t count(const char *s, const char *what)
{
	size_t n = 0;

	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

/* One B and one E of this name, at these times. */
static void is_pair(const char *s, const char *ts, const char *end, const char *name)
{
	char text[128];

	snprintf(text, sizeof text, "\"ph\":\"B\",\"pid\":7,\"tid\":7,\"ts\":%s,\"name\":\"%s\"", ts, name);
	assert_int_equal(count(s, text), 1);
	snprintf(text, sizeof text, "\"ph\":\"E\",\"pid\":7,\"tid\":7,\"ts\":%s,\"name\":\"%s\"}", end, name);
	assert_int_equal(count(s, text), 1);
}

/* The phase and the name of each event that is no metadata, in the order of the file: "Ba Ea ia ". An E with
 * empty arguments is written E+. */
static void is_order(const char *s, const char *want)
{
	char got[512] = "";
	size_t n = 0;

	for (; (s = strstr(s, "{\"ph\":\"")); s++) {
		char ph = s[7];
		const char *name = strstr(s, "\"name\":\"") + 8, *end = strchr(name, '"');
		const char *mark = !strncmp(end, "\",\"args\":{}}", 12) ? "+" : "";

		if (ph != 'M')
			n += (size_t)snprintf(got + n, sizeof got - n, "%c%s%.*s ", ph, mark, (int)(end - name), name);
	}
	assert_string_equal(got, want);
}

static void op(struct lg_builder *b, int64_t ts, int64_t dur, const char *name)
{
	lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = lg_thread_get(b, 7, 7),
					      .kind = LG_SPAN_OP, .name = lg_intern(b, name) });
}

static void times_are_exact_to_the_nanosecond(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	op(b, INT64_C(9007199254740993), 1, "a"); /* 2^53 + 1: a double would lose the last digit */
	op(b, INT64_C(9007199254740993) + 86400000000001, 999, "b");
	s = drawn(b, &all);
	assert_non_null(strstr(s, "\"start_ns\":\"9007199254740993\""));
	is_pair(s, "0.000", "0.001", "a");
	is_pair(s, "86400000000.001", "86400000001.000", "b");
	lg_free(s);
}

static void the_whole_range_of_time_is_drawn_without_overflow(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	/* The range that sealing leaves times in. */
	op(b, INT64_MIN / 2 + 1, 5, "early");
	op(b, INT64_MIN / 2 + 1, -1, "all");
	op(b, INT64_MAX / 2 - 3, 2, "late");
	s = drawn(b, &all);
	is_pair(s, "9223372036854775.803", "9223372036854775.805", "late");
	is_pair(s, "0.000", "9223372036854775.805", "all");
	lg_free(s);
}

static void what_crosses_becomes_async(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	op(b, 0, 100, "outer");
	op(b, 10, 20, "inner");
	op(b, 50, 100, "crossing");
	op(b, 60, 10, "inner too");
	op(b, 100, 50, "after");
	s = drawn(b, &all);
	assert_int_equal(count(s, "\"ph\":\"B\""), 4);
	assert_int_equal(count(s, "\"ph\":\"E\""), 4);
	assert_int_equal(count(s, "\"ph\":\"b\""), 1);
	assert_int_equal(count(s, "\"ph\":\"e\""), 1);
	assert_non_null(strstr(s, "\"ph\":\"b\",\"pid\":7,\"tid\":7,\"ts\":0.050,\"id2\":{\"local\":\"a1\"},"
			       "\"name\":\"crossing\""));
	lg_free(s);
}

static void slices_open_and_close_in_the_order_of_their_nesting(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	op(b, 0, 100, "outer");
	op(b, 0, 100, "same");
	op(b, 0, 0, "moment");
	op(b, 10, 90, "inner");
	op(b, 100, 0, "at the end");
	op(b, 100, 5, "next");
	op(b, 110, 5, "later");
	s = drawn(b, &all);
	is_order(s, "Bouter Bsame imoment Binner Einner Esame Eouter Bnext iat the end Enext Blater Elater ");
	lg_free(s);
}

/* speedscope takes an E and a B of one moment for one slice of length 0 when they look alike. */
static void an_end_does_not_look_like_the_begin_of_its_moment(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	op(b, 0, 20, "p");
	op(b, 0, 10, "a");
	op(b, 10, 10, "a");
	op(b, 20, 5, "p");
	op(b, 30, 5, "p");
	s = drawn(b, &all);
	is_order(s, "Bp Ba E+a Ba Ea E+p Bp Ep Bp Ep ");
	lg_free(s);
}

static lg_stk stack(struct lg_builder *b, const char *names)
{
	lg_stk stk = 0;
	char one[2] = "";

	for (; *names; names++) {
		*one = *names;
		stk = lg_intern_stack(b, stk, lg_intern_frame(b, &(struct lg_frame_row){
								 .name = lg_intern(b, one) }));
	}
	return stk;
}

static void sample(struct lg_builder *b, int64_t ts, const char *names)
{
	lg_add_sample(b, &(struct lg_sample_row){ .ts = ts, .thr = lg_thread_get(b, 7, 7), .weight = 100,
						  .event = lg_intern(b, "cpu-clock"), .stack = stack(b, names) });
}

static void samples_open_and_close_what_changed(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	sample(b, 0, "xpa");
	sample(b, 100, "xa");
	sample(b, 200, "xab");
	sample(b, 200, "xac"); /* the one before stands for no time */
	sample(b, 300, "y");
	sample(b, 700, "y");
	s = drawn(b, &all);
	is_order(s, "Bx Bp Ba E+a Ep Ba Bc Ec Ea Ex By Ey By Ey ");
	lg_free(s);
}

static void further_facts_are_arguments(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	lg_add_span(b, &(struct lg_span_row){
			       .dur = 5, .thr = lg_thread_get(b, 7, 7), .kind = LG_SPAN_OP, .bytes = 4,
			       .name = lg_intern(b, "x"),
			       .args = lg_intern(b, "grid=1,2\tregs=032\t\tn=-7\tbytes=6\tplain\tq\"=a=b\te=") });
	s = drawn(b, &all);
	/* A key that is there already is not said twice; "032" is no number. */
	assert_non_null(strstr(s, "\"args\":{\"bytes\":4,\"grid\":\"1,2\",\"regs\":\"032\",\"n\":-7,"
				  "\"args\":\"plain\",\"q\\\"\":\"a=b\",\"e\":\"\"}}"));
	lg_free(s);
}

static void more_facts_than_fit_are_cut_and_said(void **state)
{
	struct lg_builder *b = builder();
	char text[4096] = "", *s;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 60; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%sk%d=%d", i ? "\t" : "", i, i);
	lg_add_span(b, &(struct lg_span_row){ .dur = 5, .thr = lg_thread_get(b, 7, 7), .kind = LG_SPAN_OP,
					      .name = lg_intern(b, "x"), .args = lg_intern(b, text) });
	memset(text, 'v', sizeof text - 1);
	text[1] = '=';
	lg_add_span(b, &(struct lg_span_row){ .ts = 5, .dur = 5, .thr = lg_thread_get(b, 7, 7),
					      .kind = LG_SPAN_OP, .name = lg_intern(b, "y"),
					      .args = lg_intern(b, text) });
	s = drawn(b, &all);
	assert_non_null(strstr(s, "\"k38\":38,\"more\":\"...\"}}"));
	assert_null(strstr(s, "\"k39\""));
	assert_non_null(strstr(s, "vvv ...\"}}"));
	lg_free(s);
}

static void counters_and_steps_say_which(void **state)
{
	struct lg_builder *b = builder();
	lg_trk gpu = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .index = 1,
							     .name = lg_intern(b, "GPU 1") });
	struct lg_track_row rows[] = {
		{ .kind = LG_TRACK_COUNTER, .name = lg_intern(b, "cpu.irq"), .index = 3 },
		{ .kind = LG_TRACK_COUNTER, .name = lg_intern(b, "psi"), .index = -1 },
		{ .kind = LG_TRACK_COUNTER, .name = lg_intern(b, "util"), .index = -1, .parent = gpu },
	};
	char *s;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		lg_add_counter(b, &(struct lg_counter_row){ .value = 1, .track = lg_track_get(b, &rows[i]) });
	for (int64_t seq = -1; seq < 8; seq += 4)
		lg_add_span(b, &(struct lg_span_row){ .ts = 10 * (seq + 1), .dur = 10, .seq = seq,
						      .thr = lg_thread_get(b, 7, 7), .kind = LG_SPAN_STEP,
						      .name = seq == 7 ? 0 : lg_intern(b, "ProfilerStep") });
	s = drawn(b, &all);
	assert_int_equal(count(s, "\"name\":\"cpu.irq 3\""), 1);
	assert_int_equal(count(s, "\"name\":\"psi\""), 1);
	assert_int_equal(count(s, "\"name\":\"GPU 1 util\""), 1);
	is_pair(s, "0.000", "0.010", "ProfilerStep");
	is_pair(s, "0.040", "0.050", "ProfilerStep#3");
	is_pair(s, "0.080", "0.090", "step 7");
	lg_free(s);
}

static void a_thousand_that_overlap_stay_a_thousand(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	for (int i = 0; i < 1000; i++)
		op(b, i, 1000, "x");
	s = drawn(b, &all);
	assert_int_equal(count(s, "\"ph\":\"B\""), 1);
	assert_int_equal(count(s, "\"ph\":\"E\""), 1);
	assert_int_equal(count(s, "\"ph\":\"b\""), 999);
	lg_free(s);
}

static void names_are_escaped(void **state)
{
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	op(b, 0, 1, "q\"b\\n\n\x01\x7f" "\xff" "\xc3\xa4");
	s = drawn(b, &all);
	assert_non_null(strstr(s, "\"name\":\"q\\\"b\\\\n\\u000a\\u0001\\u007f\\ufffd\xc3\xa4\""));
	lg_free(s);
}

static void an_empty_trace_is_an_empty_list(void **state)
{
	char *s = drawn(builder(), &all);

	(void)state;
	assert_non_null(strstr(s, "\"traceEvents\":[\n],\"arrows_left_out\":0}\n"));
	lg_free(s);
}

static void idle_threads_and_interrupt_wakes_are_not_drawn(void **state)
{
	struct lg_builder *b = builder();
	lg_thr idle = lg_thread_get(b, 0, 0), a = lg_thread_get(b, 7, 7), w = lg_thread_get(b, 8, 8);
	char *s;

	(void)state;
	lg_add_state(b, &(struct lg_state_row){ .ts = 0, .dur = 10, .thr = idle, .kind = LG_RUNNING });
	for (uint8_t ctx = LG_CTX_UNKNOWN; ctx <= LG_CTX_NMI; ctx++)
		lg_add_state(b, &(struct lg_state_row){ .ts = ctx * 10, .dur = 10, .thr = a, .waker = w,
							.waker_ctx = ctx, .kind = LG_BLOCKED });
	lg_add_state(b, &(struct lg_state_row){ .ts = 0, .dur = 100, .thr = w, .kind = LG_RUNNING });
	s = drawn(b, &all);
	assert_int_equal(count(s, "\"name\":\"running\""), 2); /* B and E */
	assert_int_equal(count(s, "\"ph\":\"s\""), 2); /* task and unknown */
	assert_int_equal(count(s, "\"waker_context\":\"hardirq\""), 1);
	lg_free(s);
}

static void the_window_is_half_open(void **state)
{
	struct lg_window w = { 100, 200 };
	struct lg_builder *b = builder();
	char *s;

	(void)state;
	op(b, 0, 100, "ends where it begins");
	op(b, 0, 101, "reaches in");
	op(b, 100, 0, "moment at the start");
	op(b, 199, 50, "reaches out");
	op(b, 200, 5, "begins where it ends");
	s = drawn(b, &w);
	assert_null(strstr(s, "ends where it begins"));
	assert_null(strstr(s, "begins where it ends"));
	is_pair(s, "0.100", "0.101", "reaches in");
	assert_non_null(strstr(s, "\"ph\":\"i\",\"pid\":7,\"tid\":7,\"ts\":0.100,\"s\":\"t\",\"name\":\"moment at the start\""));
	is_pair(s, "0.199", "0.200", "reaches out");
	lg_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_exact_to_the_nanosecond),
		cmocka_unit_test(the_whole_range_of_time_is_drawn_without_overflow),
		cmocka_unit_test(what_crosses_becomes_async),
		cmocka_unit_test(slices_open_and_close_in_the_order_of_their_nesting),
		cmocka_unit_test(an_end_does_not_look_like_the_begin_of_its_moment),
		cmocka_unit_test(samples_open_and_close_what_changed),
		cmocka_unit_test(further_facts_are_arguments),
		cmocka_unit_test(more_facts_than_fit_are_cut_and_said),
		cmocka_unit_test(counters_and_steps_say_which),
		cmocka_unit_test(a_thousand_that_overlap_stay_a_thousand),
		cmocka_unit_test(names_are_escaped),
		cmocka_unit_test(an_empty_trace_is_an_empty_list),
		cmocka_unit_test(idle_threads_and_interrupt_wakes_are_not_drawn),
		cmocka_unit_test(the_window_is_half_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
