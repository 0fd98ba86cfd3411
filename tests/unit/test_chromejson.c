/* SPDX-License-Identifier: Apache-2.0 */
/* test_chromejson.c - generic Chrome traces: pairs, arrows, counters, samples, broken balance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#include "import/chromejson/chromejson.h"
#include "store/args.h"

static int try_text(const char *text, struct lg_trace **ret, struct lg_error *err)
{
	struct lg_json_source *src;
	struct lg_builder *b;
	struct lg_events r;
	int rc;

	assert_int_equal(lg_json_source_memory(&src, text, strlen(text), 50, err), 0);
	lg_events_start(&r, src, "test");
	assert_int_equal(lg_builder_new(&b, err), 0);
	rc = lg_chromejson_read(&r, b, err);
	lg_events_close(&r);
	if (rc)
		lg_builder_free(b);
	else
		rc = lg_builder_seal(b, ret, err);
	return rc;
}

static struct lg_trace *read_text(const char *text)
{
	struct lg_error err = { 0 };
	struct lg_trace *t;

	if (try_text(text, &t, &err))
		fail_msg("%s", err.message);
	return t;
}

/* "name ts+dur;" of all spans, in microseconds, in order. */
static const char *spans(const struct lg_trace *t)
{
	static char buf[1024];
	size_t n = 0;

	buf[0] = 0;
	for (size_t i = 0; i < t->span.n; i++)
		n += (size_t)snprintf(buf + n, sizeof buf - n, "%s %lld+%lld;",
				      lg_string(t, t->span.name[i]),
				      (long long)t->span.ts[i] / 1000,
				      t->span.dur[i] < 0 ? -1 : (long long)t->span.dur[i] / 1000);
	return buf;
}

static uint64_t partial(const struct lg_trace *t)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == LG_DIAG_PARTIAL ? t->diag.count[i] : 0;
	return n;
}

#define EV(ph, name, ts) "{\"ph\":\"" ph "\",\"pid\":1,\"tid\":2,\"name\":\"" name "\",\"ts\":" ts "}"

static void pairs_begins_with_ends(void **state)
{
	static const struct {
		const char *text, *want;
		uint64_t partial;
	} cases[] = {
		{ "[" EV("B", "a", "0") "," EV("B", "b", "1") "," EV("E", "b", "2") "," EV("E", "a", "9"),
		  "a 0+9;b 1+1;", 0 },
		/* Ended in the wrong order: each keeps its own length. */
		{ "[" EV("B", "a", "0") "," EV("B", "b", "1") "," EV("E", "a", "9") "," EV("E", "b", "10") "]",
		  "a 0+9;b 1+9;", 0 },
		/* Not in order of time. */
		{ "[" EV("E", "a", "9") "," EV("E", "b", "2") "," EV("B", "b", "1") "," EV("B", "a", "0") "]",
		  "a 0+9;b 1+1;", 0 },
		/* An end without a name ends the innermost. */
		{ "[" EV("B", "a", "0") "," EV("B", "b", "1") ",{\"ph\":\"E\",\"pid\":1,\"tid\":2,\"ts\":3}]",
		  "a 0+-1;b 1+2;", 1 },
		{ "[" EV("B", "a", "0") "," EV("B", "a", "1") "," EV("B", "c", "2") "]",
		  "a 0+-1;a 1+-1;c 2+-1;", 3 },
		{ "[" EV("E", "a", "4") "," EV("X", "x", "1") "]", "x 1+0;", 1 },
		{ "[" EV("E", "c", "2") "," EV("B", "c", "2") "]", "c 2+0;", 0 },
		{ "{\"traceEvents\": [{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"s\",\"ts\":\"7\","
		  "\"dur\":\"2\",\"args\":{\"list\":[{\"deep\":1},{\"deep\":2}]}}], \"otherData\": {}}",
		  "s 7+2;", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_trace *t = read_text(cases[i].text);

		assert_string_equal(spans(t), cases[i].want);
		assert_int_equal(partial(t), cases[i].partial);
		lg_trace_free(t);
	}
}

static void threads_do_not_mix(void **state)
{
	struct lg_trace *t = read_text(
		"[{\"ph\":\"B\",\"pid\":1,\"tid\":1,\"name\":\"a\",\"ts\":0,\"cat\":\"io\"},"
		"{\"ph\":\"B\",\"pid\":1,\"tid\":\"two\",\"name\":\"b\",\"ts\":1},"
		"{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":5},"
		"{\"ph\":\"E\",\"pid\":1,\"tid\":\"two\",\"ts\":7},"
		"{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"server\"}},"
		"{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"main \\u00e9\"}}]");
	size_t n;
	const char *cat = lg_span_arg(t, 0, "cat", &n);

	(void)state;
	assert_string_equal(spans(t), "a 0+5;b 1+6;");
	assert_int_not_equal(t->span.thr[0], t->span.thr[1]);
	assert_string_equal(lg_string(t, t->process.comm[1]), "server");
	assert_string_equal(lg_string(t, t->thread.comm[t->span.thr[0]]), "main \xc3\xa9");
	assert_memory_equal(cat, "io", n);
	lg_trace_free(t);
}

static void async_spans_get_tracks_and_arrows_flows(void **state)
{
	struct lg_trace *t = read_text(
		"[{\"ph\":\"b\",\"cat\":\"req\",\"id\":\"0x1\",\"pid\":1,\"tid\":1,\"name\":\"get\",\"ts\":0},"
		"{\"ph\":\"b\",\"cat\":\"req\",\"id\":\"0x2\",\"pid\":1,\"tid\":1,\"name\":\"get\",\"ts\":1},"
		"{\"ph\":\"n\",\"cat\":\"req\",\"id\":\"0x1\",\"pid\":1,\"tid\":1,\"name\":\"half\",\"ts\":2},"
		"{\"ph\":\"e\",\"cat\":\"req\",\"id\":\"0x1\",\"pid\":1,\"tid\":3,\"name\":\"get\",\"ts\":4},"
		"{\"ph\":\"e\",\"cat\":\"req\",\"id\":\"0x2\",\"pid\":1,\"tid\":1,\"name\":\"get\",\"ts\":9},"
		"{\"ph\":\"s\",\"cat\":\"f\",\"id\":5,\"pid\":1,\"tid\":1,\"name\":\"x\",\"ts\":1},"
		"{\"ph\":\"t\",\"cat\":\"f\",\"id\":5,\"pid\":1,\"tid\":2,\"name\":\"x\",\"ts\":2},"
		"{\"ph\":\"f\",\"cat\":\"f\",\"id\":5,\"pid\":1,\"tid\":3,\"name\":\"x\",\"ts\":3,\"bp\":\"e\"},"
		"{\"ph\":\"f\",\"cat\":\"f\",\"id\":6,\"pid\":1,\"tid\":3,\"name\":\"x\",\"ts\":3},"
		"{\"ph\":\"C\",\"pid\":1,\"name\":\"mem\",\"ts\":3,\"args\":{\"used\":1.5,\"free\":\"2\"}},"
		"{\"ph\":\"P\",\"pid\":1,\"name\":\"old sample\",\"ts\":3}]");

	(void)state;
	assert_string_equal(spans(t), "get 0+4;get 1+8;");
	assert_int_equal(t->span.thr[0], 0);
	assert_int_not_equal(t->span.track[0], 0);
	assert_int_equal(t->mark.n, 1);
	assert_int_equal(t->flow.n, 2);
	assert_int_equal(t->flow.ts[1], 2000);
	assert_int_equal(t->flow.ts_to[1], 3000);
	assert_int_equal(t->thread.tid[t->flow.thr_to[1]], 3);
	assert_int_equal(partial(t), 1);
	assert_int_equal(t->counter.n, 2);
	assert_true(t->counter.value[0] + t->counter.value[1] == 3.5);
	lg_trace_free(t);
}

static void samples_have_stacks(void **state)
{
	struct lg_trace *t = read_text(
		"{\"traceEvents\": [], \"samples\": [{\"ts\":\"11\",\"pid\":1,\"tid\":\"2\",\"weight\":\"3\",\"sf\":2},"
		"{\"ts\":12,\"pid\":1,\"tid\":2,\"sf\":\"3\"}, {\"ts\":13,\"pid\":1,\"tid\":2,\"sf\":9}],"
		"\"stackFrames\": {\"1\": {\"name\": \"root\"}, \"2\": {\"name\": \"f\", \"parent\": 1},"
		"\"3\": {\"name\": \"loop\", \"parent\": \"3\"}}}");
	lg_stk s = t->sample.stack[0];

	(void)state;
	assert_int_equal(t->sample.n, 3);
	assert_int_equal(t->sample.weight[0], 3);
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[s]]), "f");
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[t->stack.parent[s]]]), "root");
	assert_int_not_equal(t->sample.stack[1], 0); /* a frame that calls itself ends somewhere */
	assert_int_equal(t->sample.stack[2], 0);
	lg_trace_free(t);
}

static void refuses_json_that_is_no_trace(void **state)
{
	struct lg_error err = { 0 };
	struct lg_trace *t;

	(void)state;
	assert_int_equal(try_text("{\"model\": \"gpt\", \"layers\": 12}", &t, &err), LG_E_FORMAT);
	assert_string_equal(err.message, "test: JSON, but no trace: it has no traceEvents");
	assert_int_equal(try_text("{\"traceEvents\": []}", &t, &err), LG_E_FORMAT);
	assert_string_equal(err.message, "test: a trace without events");
	assert_int_equal(try_text("nonsense", &t, &err), LG_E_FORMAT);
}

/* torch.profiler's trace behind a long field of somebody else's, and in a frame that tells nothing. */
/* What other tools call "samples", and lists of their own records. */
static void refuses_json_of_other_tools(void **state)
{
	static const struct {
		const char *text, *says;
	} table[] = {
		{ "{\"nodes\":[{\"id\":1}],\"startTime\":5,\"samples\":[1,2,1],\"timeDeltas\":[3,4,5]}",
		  "test: JSON, but no trace: it has no traceEvents" },
		{ "{\"files\":{\"a.py\":{}},\"samples\":[]}", "test: JSON, but no trace: it has no traceEvents" },
		{ "{\"samples\":[[1,2],{\"x\":1}]}", "test: JSON, but no trace: it has no traceEvents" },
		{ "[{\"id\":1,\"timestamps\":[{\"name\":\"HTTP_RECV_START\",\"ns\":5294383183578}]},{\"id\":1}]",
		  "test: JSON, but no trace: none of its 2 records is an event that tells a time" },
		{ "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":\"soon\"}]",
		  "test: JSON, but no trace: none of its 1 records is an event that tells a time" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct lg_error err = { 0 };
		struct lg_trace *t = NULL;

		if (!try_text(table[i].text, &t, &err))
			fail_msg("read: %s", table[i].text);
		assert_string_equal(err.message, table[i].says);
	}
	/* Of a trace, if an empty one. */
	lg_trace_free(read_text("{\"traceEvents\":[{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
				"\"args\":{\"name\":\"a\"}}]}"));
}

static void hands_torch_profilers_traces_on(void **state)
{
	char path[] = "/tmp/laggard-chrome-XXXXXX";
	size_t n = 100000;
	char *text = malloc(n + 400);
	struct lg_error err = { 0 };
	struct lg_import_info info;
	int fd = mkstemp(path);

	(void)state;
	n = (size_t)sprintf(text, "{\"mine\": \"%0*d\", \"traceEvents\": [{\"ph\":\"X\",\"cat\":\"cpu_op\","
				  "\"name\":\"aten::mm\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2,"
				  "\"args\":{\"External id\": 3}}]}", (int)n, 0);
	for (int z = 0; z < 2; z++) {
		const char *paths[] = { path };
		char *packed = malloc(ZSTD_compressBound(n));
		size_t size = ZSTD_compress(packed, ZSTD_compressBound(n), text, n, 1);
		struct lg_trace *t;

		assert_int_equal(ftruncate(fd, 0), 0);
		if (pwrite(fd, z ? packed : text, z ? size : n, 0) < 0)
			fail();
		if (lg_import(paths, 1, &t, &info, &err))
			fail_msg("%s", err.message);
		assert_int_equal(t->span.n, 1);
		assert_int_equal(t->span.kind[0], LG_SPAN_OP);
		lg_trace_free(t);
		free(packed);
	}
	close(fd);
	unlink(path);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_begins_with_ends),
		cmocka_unit_test(threads_do_not_mix),
		cmocka_unit_test(async_spans_get_tracks_and_arrows_flows),
		cmocka_unit_test(samples_have_stacks),
		cmocka_unit_test(refuses_json_that_is_no_trace),
		cmocka_unit_test(refuses_json_of_other_tools),
		cmocka_unit_test(hands_torch_profilers_traces_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
