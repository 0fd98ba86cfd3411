/* SPDX-License-Identifier: Apache-2.0 */
/* test_redact.c - what may be shared of a trace, and what stays of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/order.h"
#include "random_trace.h"
#include "store/builder.h"
#include "store/redact.h"

static struct lg_trace *seal(struct lg_builder *b)
{
	struct lg_trace *t;

	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static struct lg_builder *fresh(void)
{
	struct lg_builder *b;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	return b;
}

static void add_fact(struct lg_builder *b, int64_t ts, const char *key, const char *value)
{
	lg_add_meta(b, &(struct lg_meta_row){ .ts = ts, .key = lg_intern(b, key),
					      .value = lg_intern(b, value) });
}

/* key, what was said, what is left of it */
static const char *const facts[][3] = {
	{ "env.MASTER_ADDR", "10.0.0.1", "redacted-1" },
	{ "env.OMP_NUM_THREADS", "8", "8" },
	{ "env.CUDA_VISIBLE_DEVICES", "0,1,2", "0,1,2" },
	{ "env.OMP_PROC_BIND", "true", "true" },
	{ "env.SLURM_JOB_NAME", "merger-with-acme", "redacted-2" },
	{ "env.COPY", "10.0.0.1", "redacted-1" }, /* equal ones stay equal */
	{ "host.name", "gpu17.acme.example", "redacted-3" },
	{ "host.kernel", "6.1.0", "6.1.0" },
	{ "record.cmdline", "laggard record -- ./x --token=s3cret", "laggard [redacted]" },
	{ "python.executable", "/srv/bob/venv/bin/python3", ".../python3" },
	{ "loader.worker", "at /srv/bob/data.py:88, see https://wiki.acme.example/x",
	  "at .../data.py:88, see https://[redacted]" },
	{ "compiler", "-I/srv/bob/q ~/bob/x /libacme/y /usr/lib/../../srv/bob/z /usr/lib/gcc",
	  "-I.../q ~.../x .../y .../z /usr/lib/gcc" },
	{ "torch.version", "2.6.0 and/or 1/2", "2.6.0 and/or 1/2" },
};

static void facts_lose_what_tells_of_their_owner(void **state)
{
	struct lg_builder *b = fresh();
	struct lg_trace *t;

	(void)state;
	for (size_t i = 0; i < LG_COUNT(facts); i++)
		add_fact(b, (int64_t)i, facts[i][0], facts[i][1]);
	t = seal(b);
	assert_int_equal(lg_redact(t, NULL), 0);
	assert_int_equal(t->meta.n, LG_COUNT(facts));
	for (size_t i = 0; i < LG_COUNT(facts); i++) {
		assert_string_equal(lg_string(t, t->meta.key[i]), facts[i][0]);
		assert_string_equal(lg_string(t, t->meta.value[i]), facts[i][2]);
	}
	/* What no row uses is not in the file. */
	assert_null(memmem(t->str_bytes, t->str_off[t->n_str], "s3cret", 6));
	assert_null(memmem(t->str_bytes, t->str_off[t->n_str], "acme", 4));
	lg_trace_free(t);
}

static const char *const lines[][2] = {
	{ "python3 -u /srv/bob/train.py --token=s3cret", "python3 .../train.py [redacted]" },
	{ "/usr/bin/python3 -m acme.train --lr 1", "/usr/bin/python3 -m acme.train [redacted]" },
	{ "python3 -c import x.py", "python3 [redacted]" },
	{ "bash -c cd /secret; run.sh", "bash [redacted]" },
	{ "nginx", "nginx" },
	{ "  ", "" },
	{ "-m", "-m" },
	{ "python3 -m", "python3 [redacted]" },
};

static void command_lines_keep_their_program(void **state)
{
	(void)state;
	for (size_t i = 0; i < LG_COUNT(lines); i++) {
		struct lg_builder *b = fresh();
		lg_prc p = lg_process_get(b, 900);
		struct lg_process_row r = lg_process_read(b, p);
		struct lg_trace *t;

		r.cmdline = r.comm = lg_intern(b, lines[i][0]);
		lg_process_write(b, p, &r);
		t = seal(b);
		assert_int_equal(lg_redact(t, NULL), 0);
		assert_string_equal(lg_string(t, t->process.cmdline[p]), lines[i][1]);
		/* A name that is a command line is one. */
		assert_string_equal(lg_string(t, t->process.comm[p]),
				    lines[i][strchr(lines[i][0], ' ') != NULL]);
		lg_trace_free(t);
	}
}

static void files_lose_their_folders(void **state)
{
	static const char *const files[][2] = {
		{ "/srv/bob/acme/data.py", ".../data.py" },
		{ "/srv/bob/venv/lib/python3.11/site-packages/torch/optim/sgd.py",
		  ".../site-packages/torch/optim/sgd.py" },
		{ "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6" },
		{ "[kernel.kallsyms]", "[kernel.kallsyms]" },
		{ "acme/model.py", ".../model.py" },
	};
	struct lg_builder *b = fresh();
	lg_frm f[LG_COUNT(files)];
	struct lg_trace *t;

	(void)state;
	for (size_t i = 0; i < LG_COUNT(files); i++)
		f[i] = lg_intern_frame(b, &(struct lg_frame_row){ .name = lg_intern(b, "forward"),
								  .file = lg_intern(b, files[i][0]) });
	t = seal(b);
	assert_int_equal(lg_redact(t, NULL), 0);
	for (size_t i = 0; i < LG_COUNT(files); i++) {
		assert_string_equal(lg_string(t, t->frame.file[f[i]]), files[i][1]);
		assert_string_equal(lg_string(t, t->frame.name[f[i]]), "forward");
	}
	lg_trace_free(t);
}

static void arguments_are_those_that_are_known(void **state)
{
	static const char args[] = "token=hf_abc\tgrid=1,2\tdims=[[2, 3]]\tcmd=train.py --x\tcoll=send\tplain";
	struct lg_builder *b = fresh();
	struct lg_trace *t;

	(void)state;
	lg_add_span(b, &(struct lg_span_row){ .dur = 1, .name = lg_intern(b, "x"),
					      .args = lg_intern(b, args) });
	t = seal(b);
	assert_int_equal(lg_redact(t, NULL), 0);
	assert_string_equal(lg_string(t, t->span.args[0]), "grid=1,2\tdims=[[2, 3]]\tcoll=send");
	lg_trace_free(t);
}

/* Whatever a trace holds: as many rows, every id in range, and twice is as once. */
static void random_traces_stay_whole(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed < 20; seed++) {
		struct lg_builder *b = fresh();
		struct lg_trace *t;
		size_t rows, n;

		random_trace(b, 200, seed);
		t = seal(b);
		rows = t->span.n + t->state.n + t->sample.n;

		assert_int_equal(lg_redact(t, NULL), 0);
		assert_int_equal(t->span.n + t->state.n + t->sample.n, rows);
		for (size_t i = 0; i < t->span.n; i++)
			assert_true(t->span.name[i] < t->n_str && t->span.args[i] < t->n_str);
		n = t->n_str;
		assert_int_equal(lg_redact(t, NULL), 0);
		assert_int_equal(t->n_str, n);
		lg_trace_free(t);
	}
}

static void memory_may_run_out(void **state)
{
	uint64_t n = 1;

	(void)state;
	for (int rc = -1; rc; n++) {
		struct lg_builder *b = fresh();
		struct lg_trace *t;

		for (size_t i = 0; i < LG_COUNT(facts); i++)
			add_fact(b, (int64_t)i, facts[i][0], facts[i][1]);
		t = seal(b);
		lg_alloc_fail_at(n);
		rc = lg_redact(t, NULL);
		lg_alloc_fail_at(0);
		lg_trace_free(t);
		assert_true(n < 1000);
	}
	assert_true(n > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(facts_lose_what_tells_of_their_owner),
		cmocka_unit_test(command_lines_keep_their_program),
		cmocka_unit_test(files_lose_their_folders),
		cmocka_unit_test(arguments_are_those_that_are_known),
		cmocka_unit_test(random_traces_stay_whole),
		cmocka_unit_test(memory_may_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
