/* SPDX-License-Identifier: Apache-2.0 */
#include <zlib.h>
#include <zstd.h>

#include "feed_trace.h"

static void stacks_have_threads_and_weights(void **state)
{
	struct lg_trace *t = feed_text("python-4711;main (train.py:3);step (train.py:9) 7\n"
				       "python-4711;main (train.py:3);read;system_call_[k] 2\n"
				       "process 4800:\"python worker.py\";work (w.py:5) 3\n"
				       "thread (0x7F00): MainThread;main (train.py:3) 4\n"
				       "dd;[unknown];read 10101010\n", "folded stacks");
	lg_stk s;

	(void)state;
	assert_int_equal(t->sample.n, 5);
	assert_int_equal(t->sample.weight[0], 7);
	assert_int_equal(t->sample.weight[4], 10101010);
	assert_int_equal(t->thread.tid[t->sample.thr[0]], 4711);
	assert_int_equal(t->thread.tid[t->sample.thr[2]], 4800);
	assert_string_equal(lg_string(t, t->thread.comm[t->sample.thr[3]]), "MainThread");
	s = t->sample.stack[0];
	assert_int_equal(t->stack.depth[s], 2);
	assert_int_equal(t->frame.kind[t->stack.frame[s]], LG_FRAME_PYTHON);
	assert_int_equal(t->frame.line[t->stack.frame[s]], 9);
	s = t->sample.stack[1];
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[s]]), "system_call");
	assert_int_equal(t->frame.kind[t->stack.frame[s]], LG_FRAME_KERNEL);
	assert_true(t->sample.flags[1] & LG_SAMPLE_KERNEL);
	lg_trace_free(t);
}

static void a_line_that_is_none_is_counted(void **state)
{
	char text[8192] = "";
	struct lg_trace *t;

	(void)state;
	for (int i = 0; i < 300; i++)
		strcat(text, "a;b;c;d;e;f 12\n"); /* beyond what the sniffer sees */
	strcat(text, "what is this\n");
	t = feed_text(text, "folded stacks");
	assert_int_equal(t->sample.n, 300);
	assert_int_equal(feed_diags(t, LG_DIAG_NOT_UNDERSTOOD), 1);
	lg_trace_free(t);
}

static void packed_files_are_read_and_cut_ones_say_so(void **state)
{
	static const char text[] = "a;b 1\na;c 2\n";
	uint8_t gz[256], zs[256];
	z_stream z = { .next_in = (Bytef *)(uintptr_t)text, .avail_in = sizeof text - 1, .next_out = gz,
		       .avail_out = sizeof gz };
	size_t n_gz, n_zs = ZSTD_compress(zs, sizeof zs, text, sizeof text - 1, 3);
	struct lg_trace *t;
	const char *path;

	(void)state;
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, 0), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	n_gz = sizeof gz - z.avail_out;
	deflateEnd(&z);
	path = feed_file(gz, n_gz);
	t = feed_read(path, "folded stacks");
	assert_int_equal(t->sample.n, 2);
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_TRUNCATED), 0);
	lg_trace_free(t);
	unlink(path);
	path = feed_file(gz, n_gz - 6);
	t = feed_read(path, "folded stacks");
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_TRUNCATED), 1);
	lg_trace_free(t);
	unlink(path);
	path = feed_file(zs, n_zs);
	t = feed_read(path, "folded stacks");
	assert_int_equal(t->sample.n, 2);
	lg_trace_free(t);
	unlink(path);
}

static void a_command_line_may_have_semicolons(void **state)
{
	static const char *const command[] = { "python -c import t; t.main()", "python t.py" };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		char text[256];
		struct lg_trace *t;

		sprintf(text, "process 47:\"%s\";main (t.py:1);step (t.py:9) 60\n"
			      "process 47:\"%s\";main (t.py:1) 40\n", command[i], command[i]);
		t = feed_text(text, "folded stacks");
		assert_int_equal(t->sample.n, 2);
		assert_int_equal(t->stack.depth[t->sample.stack[0]], 2);
		assert_string_equal(lg_string(t, t->process.cmdline[t->thread.prc[t->sample.thr[0]]]),
				    command[i]);
		lg_trace_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stacks_have_threads_and_weights),
		cmocka_unit_test(a_line_that_is_none_is_counted),
		cmocka_unit_test(packed_files_are_read_and_cut_ones_say_so),
		cmocka_unit_test(a_command_line_may_have_semicolons),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
