/* SPDX-License-Identifier: Apache-2.0 */
/* test_seal.c - sorting and checking at the end of a build, and the index over the result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "random_trace.h"
#include "store/index.h"

static struct lg_builder *fresh(void)
{
	struct lg_builder *b;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	return b;
}

static struct lg_trace *seal(struct lg_builder *b)
{
	struct lg_trace *t;

	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static void test_sorted_and_stable(void **state)
{
	uint64_t seed = 3;
	struct lg_builder *b = fresh();
	struct lg_trace *t;

	(void)state;
	for (int64_t i = 0; i < 50000; i++)
		lg_add_mark(b, &(struct lg_mark_row){
				       .ts = (int64_t)(rnd(&seed) % 1000) * 1000003 - 500000000,
				       .value = i });
	t = seal(b);
	for (size_t i = 1; i < t->mark.n; i++) {
		assert_true(t->mark.ts[i] >= t->mark.ts[i - 1]);
		if (t->mark.ts[i] == t->mark.ts[i - 1])
			assert_true(t->mark.value[i] > t->mark.value[i - 1]);
	}
	assert_int_equal(t->first, t->mark.ts[0]);
	assert_int_equal(t->last, t->mark.ts[t->mark.n - 1]);
	lg_trace_free(t);
}

/* A few lists dealt out in turns, as a profiler writes its threads; one more than are merged; many more.
 * Enough rows for a second thread; every column goes along. */
static void test_lists_in_turns(void **state)
{
	static const unsigned counts[] = { 2, 7, 24, 25, 60 };
	enum { ROWS = 150000 };

	(void)state;
	for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
		uint64_t seed = 11 + k;
		struct lg_builder *b = fresh();
		int64_t clock[60] = { 0 };
		struct lg_trace *t;

		for (int64_t i = 0; i < ROWS;) {
			unsigned list = (unsigned)(rnd(&seed) % counts[k]);

			for (unsigned n = (unsigned)(rnd(&seed) % 9); n && i < ROWS; n--, i++) {
				clock[list] += (int64_t)(rnd(&seed) % 4) * 5; /* equal times, too */
				lg_add_span(b, &(struct lg_span_row){ .ts = clock[list], .seq = i,
								      .dur = 7, .bytes = (uint64_t)i * 3,
								      .flags = (uint32_t)i,
								      .kind = (uint8_t)(i & 7),
								      .object = (uint64_t)(i == 5) });
			}
		}
		t = seal(b);
		assert_int_equal(t->span.n, ROWS);
		for (size_t i = 0; i < ROWS; i++) {
			int64_t seq = t->span.seq[i];

			if (i && t->span.ts[i] == t->span.ts[i - 1])
				assert_true(seq > t->span.seq[i - 1]);
			else if (i)
				assert_true(t->span.ts[i] > t->span.ts[i - 1]);
			assert_int_equal(t->span.bytes[i], (uint64_t)seq * 3);
			assert_int_equal(t->span.flags[i], (uint32_t)seq);
			assert_int_equal(t->span.kind[i], seq & 7);
			assert_int_equal(t->span.dur[i], 7);
			assert_int_equal(t->span.object[i], seq == 5);
		}
		/* What is added to a sealed table (a diag row of a merge, say) must fit or make room. */
		assert_true(t->span.cap >= t->span.n);
		lg_trace_free(t);
	}
}

/* In order but for a few: late ones, early ones, equal ones. */
static void test_few_late(void **state)
{
	uint64_t seed = 7;
	struct lg_builder *b = fresh();
	struct lg_trace *t;

	(void)state;
	for (int64_t i = 0; i < 50000; i++) {
		int64_t ts = i / 3 * 10;

		if (i % 1000 == 999)
			ts -= (int64_t)(rnd(&seed) % 400);
		lg_add_mark(b, &(struct lg_mark_row){ .ts = ts, .value = i,
						      .name = lg_intern(b, i % 2 ? "odd" : "even") });
	}
	t = seal(b);
	assert_int_equal(t->mark.n, 50000);
	for (size_t i = 1; i < t->mark.n; i++) {
		assert_true(t->mark.ts[i] >= t->mark.ts[i - 1]);
		if (t->mark.ts[i] == t->mark.ts[i - 1])
			assert_true(t->mark.value[i] > t->mark.value[i - 1]);
		assert_string_equal(lg_string(t, t->mark.name[i]), t->mark.value[i] % 2 ? "odd" : "even");
	}
	lg_trace_free(t);
}

static void test_empty(void **state)
{
	struct lg_trace *t = seal(fresh());
	struct lg_index *x;

	(void)state;
	assert_true(t->first > t->last);
	assert_int_equal(t->process.n, 1);
	assert_int_equal(lg_index_new(&x, t, NULL), 0);
	assert_int_equal(lg_index_state_at(x, 0, 5), LG_NO_ROW);
	assert_int_equal(lg_index_cpu_at(x, 0, 0, 5), LG_NO_ROW);
	lg_index_free(x);
	lg_trace_free(t);
}

/* Ids out of range are cleared, counted, and the count is not lost when the table is full. */
static void test_bad_ids(void **state)
{
	(void)state;
	for (size_t fill = 0; fill < 70; fill++) {
		struct lg_builder *b = fresh();
		struct lg_trace *t;
		size_t noted = 0;

		for (size_t i = 0; i < fill; i++)
			lg_add_diag(b, &(struct lg_diag_row){ .id = LG_DIAG_OWN_COST });
		lg_add_state(b, &(struct lg_state_row){ .ts = 9, .dur = 1, .thr = 99, .stack = 5 });
		t = seal(b);
		assert_int_equal(t->state.thr[0], 0);
		assert_int_equal(t->diag.n, fill + 1);
		for (size_t i = 0; i < t->diag.n; i++)
			if (t->diag.id[i] == LG_DIAG_FILE_DAMAGED) {
				assert_int_equal(t->diag.count[i], 2);
				noted++;
			}
		assert_int_equal(noted, 1);
		lg_trace_free(t);
	}
}

static void test_impossible_times(void **state)
{
	struct lg_builder *b = fresh();
	struct lg_trace *t;

	(void)state;
	lg_add_state(b, &(struct lg_state_row){ .ts = INT64_MAX - 5, .dur = 100 });
	lg_add_state(b, &(struct lg_state_row){ .ts = INT64_MIN, .dur = -1 });
	lg_add_state(b, &(struct lg_state_row){ .ts = 10, .dur = -7 });
	lg_add_span(b, &(struct lg_span_row){ .ts = INT64_MIN + 1, .dur = INT64_MAX });
	lg_meta_set(b, 0, "k", "v");
	t = seal(b);
	/* Every difference of two times fits into an int64. */
	assert_true(t->first < 0 && t->last > 0);
	for (size_t i = 0; i < t->state.n; i++) {
		int64_t end;

		assert_true(t->state.dur[i] >= -1);
		assert_false(__builtin_add_overflow(t->state.ts[i],
						    t->state.dur[i] < 0 ? 0 : t->state.dur[i], &end));
		assert_false(__builtin_sub_overflow(end, t->first, &end));
	}
	assert_int_equal(t->meta.ts[0], INT64_MIN);
	assert_int_equal(t->diag.n, 2);
	lg_trace_free(t);
}

static void test_stack_cycles(void **state)
{
	struct lg_builder *b = fresh();
	const struct lg_table_desc *d = lg_schema_table(LG_TABLE_stack);
	uint32_t ids[2] = { 1, 2 }, parent[2] = { 2, 1 }, frame[2] = { 0, 0 }, depth[2] = { 9, 9 };
	const void *cols[] = { parent, frame, depth };
	struct lg_trace *t;

	(void)state;
	assert_int_equal(lg_builder_put_columns(b, d, 2, ids, cols), 0);
	t = seal(b);
	assert_int_equal(t->stack.parent[1], 0);
	assert_int_equal(t->stack.parent[2], 1);
	assert_int_equal(t->stack.depth[2], 2);
	assert_int_equal(t->diag.n, 1);
	lg_trace_free(t);
}

/* The index against a plain search through all rows. */
static void test_index(void **state)
{
	uint64_t seed = 11;
	struct lg_builder *b = fresh();
	struct lg_trace *t;
	struct lg_index *x;
	int64_t at[9] = { 0 };

	(void)state;
	for (int k = 1; k < 9; k++)
		lg_thread_get(b, 10, 10 + k);
	for (int i = 0; i < 4000; i++) {
		int k = 1 + (int)(rnd(&seed) % 8);
		int64_t dur = (int64_t)(rnd(&seed) % 50);

		at[k] += (int64_t)(rnd(&seed) % 3 ? 0 : 7); /* holes */
		lg_add_state(b, &(struct lg_state_row){
					.ts = at[k], .dur = dur, .thr = (lg_thr)k, .cpu = k % 3,
					.kind = k % 3 == 2 ? LG_RUNNING : LG_BLOCKED });
		lg_add_span(b, &(struct lg_span_row){
				       .ts = at[k], .thr = (lg_thr)k,
				       .dur = (int64_t)(rnd(&seed) % (i % 100 ? 40 : 4000)) });
		at[k] += dur;
	}
	t = seal(b);
	assert_int_equal(lg_index_new(&x, t, NULL), 0);
	for (int i = 0; i < 3000; i++) {
		lg_thr thr = (lg_thr)(rnd(&seed) % 9);
		int64_t ts = (int64_t)(rnd(&seed) % 15000);
		uint32_t want = LG_NO_ROW, got = lg_index_state_at(x, thr, ts), n = 0, p;

		for (uint32_t r = 0; r < t->state.n; r++)
			if (t->state.thr[r] == thr && t->state.ts[r] <= ts &&
			    ts < t->state.ts[r] + t->state.dur[r])
				want = r;
		assert_int_equal(got, want);
		for (uint32_t r = 0; r < t->span.n; r++)
			n += t->span.thr[r] == thr && t->span.ts[r] <= ts &&
			     ts < t->span.ts[r] + t->span.dur[r];
		for (p = lg_index_span_from(x, thr, ts);
		     p < x->span_off[thr + 1] && t->span.ts[x->span[p]] <= ts; p++)
			n -= t->span.ts[x->span[p]] + t->span.dur[x->span[p]] > ts;
		assert_int_equal(n, 0);
	}
	/* CPU 2 runs threads 2, 5 and 8 (this test's rows may overlap there: only ids are checked). */
	for (int64_t ts = 0; ts < 5000; ts += 13) {
		uint32_t row = lg_index_cpu_at(x, 1, 2, ts);

		if (row != LG_NO_ROW) {
			assert_int_equal(t->state.cpu[row], 2);
			assert_int_equal(t->state.kind[row], LG_RUNNING);
			assert_true(t->state.ts[row] <= ts);
		}
		assert_int_equal(lg_index_cpu_at(x, 1, 0, ts), LG_NO_ROW);
		assert_int_equal(lg_index_cpu_at(x, 1, 5000, ts), LG_NO_ROW);
		assert_int_equal(lg_index_cpu_at(x, 1, -1, ts), LG_NO_ROW);
	}
	assert_int_equal(x->thread_off[2] - x->thread_off[1], 8);
	lg_index_free(x);
	lg_trace_free(t);
}

static void test_index_no_memory(void **state)
{
	struct lg_builder *b = fresh();
	struct lg_trace *t;
	struct lg_index *x;
	int rc;

	(void)state;
	random_trace(b, 100, 1);
	t = seal(b);
	for (uint64_t n = 1;; n++) {
		lg_alloc_fail_at(n);
		rc = lg_index_new(&x, t, NULL);
		if (lg_alloc_count() < n)
			break;
		assert_int_equal(rc, LG_E_NOMEM);
	}
	lg_alloc_fail_at(0);
	assert_int_equal(rc, 0);
	lg_index_free(x);
	lg_trace_free(t);
}

/* What a builder is given, and what stands in a file's columns. */
static void test_forged_counts(void **state)
{
	struct lg_builder *b = fresh();
	struct lg_trace *t;
	char text[32];

	(void)state;
	lg_add_diag_now(b, LG_DIAG_LOST_EVENTS, 1, UINT64_MAX, "given");
	assert_int_equal(lg_builder_trace(b)->diag.count[0], LG_COUNT_MAX);
	lg_add_diag_now(b, LG_DIAG_LOST_EVENTS, 2, LG_COUNT_MAX - 1, "the most");
	lg_add_diag_now(b, LG_DIAG_LOST_EVENTS, 3, 1, "read");
	lg_builder_trace(b)->diag.count[2] = UINT64_MAX / 2 + 2;
	t = seal(b);
	assert_int_equal(t->diag.count[0], LG_COUNT_MAX);
	assert_int_equal(t->diag.count[1], LG_COUNT_MAX - 1);
	assert_int_equal(t->diag.count[2], LG_COUNT_MAX);
	assert_int_equal(lg_count_sum(UINT64_MAX, 1), LG_COUNT_MAX);
	assert_int_equal(lg_count_sum(LG_COUNT_MAX - 2, 1), LG_COUNT_MAX - 1);
	assert_string_equal(lg_count_text(lg_count_sum(LG_COUNT_MAX - 1, 1), text, sizeof text),
			    "an implausible number");
	assert_string_equal(lg_count_text(LG_COUNT_MAX - 1, text, sizeof text), "999999999999999");
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sorted_and_stable), cmocka_unit_test(test_few_late),
		cmocka_unit_test(test_lists_in_turns),
		cmocka_unit_test(test_empty),		  cmocka_unit_test(test_forged_counts),
		cmocka_unit_test(test_bad_ids),		  cmocka_unit_test(test_impossible_times),
		cmocka_unit_test(test_stack_cycles),	  cmocka_unit_test(test_index),
		cmocka_unit_test(test_index_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
