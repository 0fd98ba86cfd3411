/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_trace.h"

static void entries_become_collectives_of_the_named_rank(void **state)
{
	struct lg_trace *t = feed_fixture("flightrec/_dump_0.pickle", "flight recorder");

	(void)state;
	assert_int_equal(t->span.n, 4);
	assert_int_equal(t->span.kind[0], LG_SPAN_COLLECTIVE);
	assert_int_equal(t->span.ts[0], INT64_C(1758581237526848193) + 1000000);
	assert_int_equal(t->span.dur[0], 500000);
	assert_int_equal(t->span.dur[2], -1);
	assert_int_equal(t->span.seq[3], 4);
	assert_int_equal(t->span.bytes[0], 40);
	assert_string_equal(lg_string(t, t->span.group[0]), "0");
	assert_int_equal(t->stack.depth[t->span.stack[0]], 2);
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[t->span.stack[0]]]), "all_reduce");
	assert_int_equal(t->process.rank[1], 0);
	assert_int_equal(t->process.world[1], 2);
	assert_int_equal(feed_marks(t, "flight.pending"), 2);
	assert_string_equal(feed_meta(t, "flight.pg.0.last_enqueued"), "4");
	assert_string_equal(feed_meta(t, "flight.last.0"), "4 -1 2");
	assert_string_equal(feed_meta(t, "flight.group.0"), "default_pg [0, 1]");
	assert_int_equal(t->clock.n, 1);
	lg_trace_free(t);
}

static void json_says_the_same_but_not_whose_it_is(void **state)
{
	struct lg_trace *t = feed_fixture("flightrec/dump.json", "flight recorder");

	(void)state;
	assert_int_equal(t->span.n, 3);
	assert_int_equal(t->span.dur[1], 500000);
	assert_int_equal(t->process.rank[1], -1);
	assert_int_equal(feed_diags(t, LG_DIAG_PARTIAL), 1);
	lg_trace_free(t);
}

static void a_pickle_that_would_run_code_is_refused(void **state)
{
	static const char evil[] = "\x80\x02" "cos\nsystem\nq\0(X\2\0\0\0idtq\1Rq\2.";

	(void)state;
	assert_non_null(strstr(feed_refused(evil, sizeof evil - 1), "could run code"));
}

static void another_pickle_is_told_what_it_is(void **state)
{
	static const char number[] = "\x80\x02K\x05.";

	(void)state;
	assert_non_null(strstr(feed_refused(number, sizeof number - 1), "neither a Flight Recorder dump"));
}

static void every_cut_of_a_dump_is_read_or_refused(void **state)
{
	FILE *f = fopen(feed_path("flightrec/_dump_0.pickle"), "rb");
	char buf[16384];
	size_t n, last = 0, counts = 0; /* how many different numbers of spans the cuts leave */

	(void)state;
	assert_non_null(f);
	n = fread(buf, 1, sizeof buf, f);
	fclose(f);
	for (size_t k = 4; k < n; k += 7) {
		const char *path = feed_file(buf, k);
		struct lg_import_info info;
		struct lg_trace *t;

		if (!lg_import(&path, 1, &t, &info, NULL)) {
			/* More of the file never means less of the dump, and none has more than the whole. */
			assert_in_range(t->span.n, last, 4);
			assert_int_equal(feed_diags(t, LG_DIAG_FILE_TRUNCATED), 1);
			counts += t->span.n > last;
			last = t->span.n;
			lg_trace_free(t);
		}
		unlink(path);
	}
	assert_int_equal(last, 4);
	assert_true(counts >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_become_collectives_of_the_named_rank),
		cmocka_unit_test(json_says_the_same_but_not_whose_it_is),
		cmocka_unit_test(a_pickle_that_would_run_code_is_refused),
		cmocka_unit_test(another_pickle_is_told_what_it_is),
		cmocka_unit_test(every_cut_of_a_dump_is_read_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
