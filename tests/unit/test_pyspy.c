/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_trace.h"

static const char *leaf(const struct lg_trace *t, size_t sample)
{
	lg_stk s = t->sample.stack[sample];

	return s ? lg_string(t, t->frame.name[t->stack.frame[s]]) : "";
}

static void a_dump_is_one_sample_a_thread(void **state)
{
	struct lg_trace *t = feed_fixture("pyspy/dump.txt", "py-spy dump");

	(void)state;
	assert_int_equal(t->sample.n, 2);
	assert_string_equal(leaf(t, 0), "wait");
	assert_int_equal(t->stack.depth[t->sample.stack[0]], 3);
	assert_int_equal(t->thread.tid[t->sample.thr[0]], 4711);
	assert_string_equal(lg_string(t, t->process.cmdline[1]), "python train.py --lr 1");
	assert_int_equal(t->frame.line[t->stack.frame[t->sample.stack[0]]], 324);
	assert_int_equal(t->frame.kind[t->stack.frame[t->sample.stack[1]]], LG_FRAME_USER);
	feed_expect_mark(t, "pyspy.thread", 0, 2, "wait");
	feed_expect_mark(t, "pyspy.thread", 1, 0, "poll");
	lg_trace_free(t);
}

static void its_json_says_the_same(void **state)
{
	struct lg_trace *t = feed_fixture("pyspy/dump.json", "py-spy dump");

	(void)state;
	assert_int_equal(t->sample.n, 2);
	assert_string_equal(leaf(t, 0), "wait");
	assert_int_equal(t->thread.tid[t->sample.thr[0]], 4711);
	lg_trace_free(t);
}

static void speedscope_weights_are_ns_and_events_become_samples(void **state)
{
	struct lg_trace *t = feed_fixture("pyspy/sampled.speedscope.json", "speedscope");
	uint64_t own = 0, other = 0, step = 0;

	(void)state;
	for (size_t i = 0; i < t->sample.n; i++) {
		uint64_t w = t->sample.weight[i];

		if (t->thread.tid[t->sample.thr[i]] == 4711)
			own += w;
		else
			other += w;
		step += t->thread.tid[t->sample.thr[i]] != 4711 && !strcmp(leaf(t, i), "step") ? w : 0;
	}
	assert_int_equal(own, 40000000);
	assert_int_equal(other, 9000000);
	assert_int_equal(step, 3000000);
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_DAMAGED), 1); /* frame 99 */
	lg_trace_free(t);
}

static void a_chrometrace_of_py_spy_becomes_samples(void **state)
{
	struct lg_trace *t = feed_fixture("pyspy/chrometrace.json", "py-spy chrometrace");

	(void)state;
	assert_int_equal(t->sample.n, 3);
	assert_string_equal(leaf(t, 1), "step");
	assert_int_equal(t->sample.weight[1], 20000000);
	assert_int_equal(t->sample.ts[1], 10000000);
	lg_trace_free(t);
}

static void a_cut_file_keeps_what_came_before(void **state)
{
	static const char text[] =
		"{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\"shared\":{\"frames\":"
		"[{\"name\":\"a\"}]},\"profiles\":[{\"type\":\"sampled\",\"unit\":\"none\",\"weights\":[1,1,1],"
		"\"samples\":[[0],[0";
	struct lg_trace *t = feed_text(text, "speedscope");

	(void)state;
	assert_int_equal(t->sample.n, 2);
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_TRUNCATED), 1);
	lg_trace_free(t);
}

/* Deeper than what is kept: frames that end are those that were left out, and the loss is told. */
static void too_deep_stacks_keep_their_outer_frames(void **state)
{
	enum { DEEP = 5000, KEPT = 10 };
	char *text = malloc(DEEP * 256);
	size_t k = (size_t)sprintf(text, "[");
	struct lg_trace *t;

	(void)state;
	for (int i = 0; i < DEEP; i++)
		k += (size_t)sprintf(text + k, "{\"cat\":\"py-spy\",\"ph\":\"B\",\"pid\":7,\"tid\":0,\"ts\":%d,"
				     "\"name\":\"f%d\",\"args\":{\"filename\":\"a.py\",\"line\":1}},\n", i, i);
	for (int i = DEEP; i-- > KEPT;)
		k += (size_t)sprintf(text + k, "{\"cat\":\"py-spy\",\"ph\":\"E\",\"pid\":7,\"tid\":0,\"ts\":%d,"
				     "\"name\":\"f%d\"},\n", DEEP + DEEP - i, i);
	sprintf(text + k, "{\"cat\":\"py-spy\",\"ph\":\"E\",\"pid\":7,\"tid\":0,\"ts\":%d,\"name\":\"f%d\"}]", 3 * DEEP,
		KEPT - 1);
	t = feed_text(text, "py-spy chrometrace");
	assert_int_equal(t->stack.depth[t->sample.stack[t->sample.n - 1]], KEPT);
	assert_string_equal(leaf(t, t->sample.n - 1), "f9");
	assert_int_equal(feed_diags(t, LG_DIAG_STACK_TRUNCATED), 1);
	lg_trace_free(t);
	k = (size_t)sprintf(text, "Process 7: python a.py\nPython v3.11.2 (/usr/bin/python3)\n\nThread 7 (active): "
				  "\"MainThread\"\n");
	for (int i = 0; i < DEEP; i++)
		k += (size_t)sprintf(text + k, "    f%d (a.py:%d)\n", i, i + 1);
	t = feed_text(text, "py-spy dump");
	assert_string_equal(leaf(t, 0), "f0");
	assert_int_equal(feed_diags(t, LG_DIAG_STACK_TRUNCATED), 1);
	lg_trace_free(t);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dump_is_one_sample_a_thread),
		cmocka_unit_test(its_json_says_the_same),
		cmocka_unit_test(speedscope_weights_are_ns_and_events_become_samples),
		cmocka_unit_test(a_chrometrace_of_py_spy_becomes_samples),
		cmocka_unit_test(a_cut_file_keeps_what_came_before),
		cmocka_unit_test(too_deep_stacks_keep_their_outer_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
