/* SPDX-License-Identifier: Apache-2.0 */
/* test_perfetto.c - the protobuf writer byte by byte, and a failing allocation at every point. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "report/convert.h"
#include "report/protobuf.h"
#include "random_trace.h"
#include "store/builder.h"
#include "synthetic_run.h"

static void is_bytes(const struct lg_pb *b, const char *want, size_t n)
{
	assert_false(b->failed);
	assert_int_equal(b->n, n);
	assert_memory_equal(b->p, want, n);
}

static void writes_what_the_encoding_guide_shows(void **state)
{
	struct lg_pb b = { 0 };
	size_t at;

	(void)state;
	lg_pb_varint(&b, 1, 150);
	is_bytes(&b, "\x08\x96\x01", 3);
	lg_pb_reset(&b);
	lg_pb_varint(&b, 1, UINT64_MAX);
	is_bytes(&b, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
	lg_pb_reset(&b);
	lg_pb_string(&b, 2, "testing");
	is_bytes(&b, "\x12\x07testing", 9);
	lg_pb_reset(&b);
	lg_pb_fixed64(&b, 47, 0x0102030405060708);
	is_bytes(&b, "\xf9\x02\x08\x07\x06\x05\x04\x03\x02\x01", 10);
	lg_pb_reset(&b);
	at = lg_pb_open(&b, 3);
	lg_pb_varint(&b, 1, 150);
	lg_pb_close(&b, at);
	is_bytes(&b, "\x1a\x03\x08\x96\x01", 5);
	/* A length that needs a second byte moves what it is the length of; one message in another,
	 * on both sides of the limit. */
	for (size_t n = 120; n < 140; n += 2) {
		size_t outer, inner, len = 2 + (n > 127) + n, at_x = len > 127 ? 3 : 2;

		lg_pb_reset(&b);
		outer = lg_pb_open(&b, 1);
		inner = lg_pb_open(&b, 2);
		for (size_t i = 0; i < n / 2; i++)
			lg_pb_varint(&b, 15, 'x');
		lg_pb_close(&b, inner);
		lg_pb_close(&b, outer);
		assert_int_equal(b.n, 2 + (len > 127) + len);
		assert_int_equal(b.p[1] & 0x7f, len & 0x7f);
		assert_int_equal(b.p[at_x], 2 << 3 | 2);
		assert_int_equal(b.p[at_x + 1] & 0x7f, n & 0x7f);
		assert_int_equal(b.p[b.n - 2], 15 << 3);
		assert_int_equal(b.p[b.n - 1], 'x');
	}
	lg_pb_done(&b);
}

static void writes_long_numbers_at_once(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (unsigned bits = 0; bits <= 64; bits++)
		for (int k = 0; k < 200; k++) {
			uint8_t one[16] = { 0 }, all[16 + 8] = { 0 };
			uint64_t v = rnd(&seed) ^ rnd(&seed) << 32;
			size_t n;

			v = k == 0 ? 0 : k == 1 ? UINT64_MAX : v;
			v = bits < 64 ? v & ((UINT64_C(1) << bits) - 1) : v;
			n = (size_t)(lg_pb_raw(one, v) - one);
			assert_int_equal(lg_pb_long(all, v) - all, n);
			assert_memory_equal(one, all, n);
		}
}

static void replaces_what_is_not_utf8(void **state)
{
	static const char *const rows[][2] = {
		{ "a\xff" "b", "a?b" }, { "\xc3\xa4", "\xc3\xa4" }, { "\xc3", "?" }, { "\xed\xa0\x80", "???" },
		{ "\xf4\x90\x80\x80", "????" }, { "\xe2\x82\xac", "\xe2\x82\xac" }, { "\xc0\x80", "??" },
	};
	struct lg_pb b = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i][1]);

		lg_pb_reset(&b);
		lg_pb_string(&b, 1, rows[i][0]);
		assert_int_equal(b.n, n + 2);
		assert_memory_equal(b.p + 2, rows[i][1], n);
	}
	lg_pb_done(&b);
}

/* protos/perfetto/trace/profiling/stack_sample.proto of v58: StackSample.execution_context = 3, and in it
 * iid = 1, cpu = 2, mode = 3 with MODE_USER = 1, MODE_KERNEL = 2. */
static void samples_say_their_cpu_and_mode(void **state)
{
	static const struct {
		int32_t cpu;
		uint32_t flags;
		const char *bytes;
		size_t n;
	} rows[] = {
		{ 5, LG_SAMPLE_KERNEL, "\x1a\x04\x10\x05\x18\x02", 6 },
		{ 5, 0, "\x1a\x04\x10\x05\x18\x01", 6 },
		{ 300, 0, "\x1a\x05\x10\xac\x02\x18\x01", 7 },
		{ 0, LG_SAMPLE_KERNEL, "\x1a\x04\x10\x00\x18\x02", 6 },
		{ -1, 0, "\x1a\x02\x18\x01", 4 },
	};
	const struct lg_window all = { INT64_MIN, INT64_MAX };
	struct lg_builder *b;
	struct lg_error err;
	struct lg_trace *t;
	struct lg_out *o;
	const char *at;
	size_t left;

	(void)state;
	assert_int_equal(lg_builder_new(&b, &err), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		lg_add_sample(b, &(struct lg_sample_row){
					 .ts = (int64_t)i * 10, .thr = lg_thread_get(b, 7, 7),
					 .cpu = rows[i].cpu, .flags = rows[i].flags,
					 .event = lg_intern(b, "cpu-clock"), .weight = 10 });
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	assert_int_equal(lg_out_memory(&o, &err), 0);
	assert_int_equal(lg_perfetto_write(t, NULL, &all, o, &err), 0);
	at = lg_out_view(o);
	left = lg_out_bytes(o);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *found = memmem(at, left, rows[i].bytes, rows[i].n);

		assert_non_null(found); /* in the order of the samples */
		left -= (size_t)(found - at) + rows[i].n;
		at = found + rows[i].n;
	}
	assert_int_equal(lg_out_close(o, &err), 0);
	lg_trace_free(t);
}

static int write_both(const struct lg_trace *t, size_t *ret_bytes)
{
	const struct lg_window all = { INT64_MIN, INT64_MAX };
	int rc = 0;

	for (int format = 0; format < 3; format++) {
		struct lg_error err = { 0 };
		struct lg_out *o;
		int one;

		one = lg_out_memory(&o, &err);
		if (one)
			return one;
		one = format == 0 ? lg_chrome_write(t, NULL, &all, o, &err) :
		      format == 1 ? lg_perfetto_write(t, NULL, &all, o, &err) :
				    lg_folded_write(t, &all, o, &err);
		if (one && !*err.message)
			fail_msg("failure without a message");
		*ret_bytes += lg_out_bytes(o);
		if (one)
			lg_out_abort(o);
		else
			one = lg_out_close(o, &err);
		rc = rc ? rc : one;
	}
	return rc;
}

static void survives_every_failing_allocation(void **state)
{
	struct run_plan plan = { .n_ranks = 2, .n_steps = 5, .only_rank = -1, .steady_late_rank = -1,
				 .stall = STALL_LOCK, .period_ns = 20000000, .stall_ns = 5000000 };
	struct lg_trace *t = synthetic_run(&plan);
	size_t bytes = 0, again;
	uint64_t n = 0, made;
	int rc;

	(void)state;
	assert_int_equal(write_both(t, &bytes), 0);
	do {
		lg_alloc_fail_at(++n);
		again = 0;
		rc = write_both(t, &again);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		if (rc)
			assert_int_equal(rc, LG_E_NOMEM);
		else
			assert_int_equal(again, bytes); /* nothing is left out silently */
	} while (made >= n);
	assert_true(n > 20);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_what_the_encoding_guide_shows),
		cmocka_unit_test(writes_long_numbers_at_once),
		cmocka_unit_test(replaces_what_is_not_utf8),
		cmocka_unit_test(samples_say_their_cpu_and_mode),
		cmocka_unit_test(survives_every_failing_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
