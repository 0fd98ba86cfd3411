/* SPDX-License-Identifier: Apache-2.0 */
/* test_page.c - what a page draws: sums that are exact, levels that do not lie, names that stay
 * names. */
#include "base/order.h"
#include "picture/levels.h"
#include "report/html_text.h"
#include "report/report.h"
#include "run_outcome.h"

static char *page_of(const struct lg_verdict *v, size_t *ret_n)
{
	struct lg_out *o;
	char *text;

	assert_int_equal(lg_out_memory(&o, NULL), 0);
	assert_int_equal(lg_report_html(v, NULL, o, NULL), 0);
	text = lg_out_take(o, ret_n);
	assert_non_null(text);
	assert_int_equal(lg_out_close(o, NULL), 0);
	return text;
}

static void the_slots_of_each_step_sum_to_its_duration(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 400);
	struct outcome o = explain(&p);
	struct lg_accounts a;
	int64_t slow = 0, typical = 0;

	(void)state;
	assert_int_equal(lg_accounts_make(&a, o.v, NULL), 0);
	assert_true(a.n_slow >= 5 && a.n_typical > a.n_slow);
	for (size_t i = 0; i < o.v->n_steps; i++) {
		int64_t slots = 0, stages = 0;

		for (size_t k = 0; k < a.n_slots; k++)
			slots += a.ns[i * a.n_slots + k];
		for (size_t k = 0; k < LG_STAGE_MAX; k++)
			stages += a.stage_ns[i * LG_STAGE_MAX + k];
		assert_int_equal(slots, o.v->steps[i].dur);
		assert_int_equal(stages, o.v->steps[i].dur);
	}
	for (size_t k = 0; k < a.n_slots; k++) {
		slow += a.slot[k].slow_ns;
		typical += a.slot[k].typical_ns;
	}
	assert_int_equal(slow, a.slow_ns);
	assert_int_equal(typical, a.typical_ns);
	lg_accounts_done(&a);
	done(&o);
}

static void who_held_the_lock_has_a_slot_and_typical_steps_have_none_of_it(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 400);
	struct outcome o = explain(&p);
	struct lg_accounts a;
	const struct lg_account_slot *s = NULL;

	(void)state;
	assert_int_equal(lg_accounts_make(&a, o.v, NULL), 0);
	for (size_t k = 0; k < a.n_slots && !s; k++)
		s = a.slot[k].cause ? &a.slot[k] : NULL;
	assert_non_null(s);
	assert_non_null(strstr(s->name, "mmap_lock held by"));
	assert_non_null(strstr(s->name, "4711"));
	assert_true(s->slow_ns > 0);
	assert_true(s->typical_ns * 20 < s->slow_ns);
	lg_accounts_done(&a);
	done(&o);
}

/* Of eight ranks that all wait, only the one that was held up is late by itself. */
static void a_rank_that_waits_in_a_collective_is_not_late(void **state)
{
	struct run_plan p = stalls(STALL_RUN, 400);
	struct lg_accounts a;
	int64_t late[2] = { 0 };
	struct outcome o;

	(void)state;
	p.only_rank = 0;
	p.explicit_collective = true;
	o = explain(&p);
	assert_int_equal(lg_accounts_make(&a, o.v, NULL), 0);
	for (size_t i = 0; i < o.v->n_steps; i++)
		if (o.v->steps[i].slow && (o.v->steps[i].rank == 0 || o.v->steps[i].rank == 1))
			late[o.v->steps[i].rank] += a.late_ns[i];
	assert_true(late[0] > 20 * MS);
	assert_true(late[1] < late[0] / 5);
	lg_accounts_done(&a);
	done(&o);
}

static struct lg_mark mark(int64_t ts, int64_t dur, uint8_t kind, lg_str name)
{
	return (struct lg_mark){ .ts = ts, .dur = dur, .kind = kind, .name = name, .n = 1 };
}

/* 40 % blocked is 40 % at every level, not all and not nothing. */
static void states_of_a_bucket_keep_their_shares(void **state)
{
	struct lg_mark v[200], *got;
	struct lg_lane lane = { .kind = LG_ROW_STATES, .v = v, .n = 200 };
	size_t n;

	(void)state;
	for (int i = 0; i < 100; i++) {
		v[2 * i] = mark(i * 100, 60, LG_RUNNING, 0);
		v[2 * i + 1] = mark(i * 100 + 60, 40, LG_BLOCKED, 0);
	}
	assert_int_equal(lg_level_of(&lane, 12, &got, &n), 0);
	assert_true(n >= 2 && n <= 4);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(got[i].kind, LG_MARK_MIXED);
		assert_in_range(got[i].a & 255, 145, 160);
		assert_in_range(got[i].a >> 16 & 255, 95, 110);
	}
	lg_free(got);
}

static void short_spans_become_the_longest_with_their_number_and_long_ones_stay(void **state)
{
	struct lg_mark v[5] = { mark(0, 10, LG_SPAN_OP, 1), mark(20, 30, LG_SPAN_OP, 2),
				mark(60, 5, LG_SPAN_OP, 3), mark(70, 200, LG_SPAN_OP, 4),
				mark(280, 1, LG_SPAN_OP, 5) };
	struct lg_lane lane = { .kind = LG_ROW_SPANS, .v = v, .n = 5 };
	struct lg_mark *got;
	size_t n, sum = 0;

	(void)state;
	assert_int_equal(lg_level_of(&lane, 6, &got, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(got[0].name, 2);
	assert_int_equal(got[0].n, 3);
	assert_int_equal(got[0].ts, 0);
	assert_int_equal(got[0].dur, 65);
	assert_int_equal(got[1].name, 4);
	assert_int_equal(got[1].dur, 200);
	for (size_t i = 0; i < n; i++)
		sum += got[i].n;
	assert_int_equal(sum, 5);
	lg_free(got);
}

/* Buckets are absolute: the same marks later, in the middle of others, are put together alike. */
static void buckets_do_not_depend_on_what_is_around(void **state)
{
	struct lg_mark v[64], *all, *part;
	struct lg_lane lane = { .kind = LG_ROW_SPANS, .v = v, .n = 64 };
	size_t n_all, n_part;

	(void)state;
	for (int i = 0; i < 64; i++)
		v[i] = mark(i * 10, 9, LG_SPAN_OP, (lg_str)i);
	assert_int_equal(lg_level_of(&lane, 6, &all, &n_all), 0);
	lane.v =
	    v +
	    13; /* from 130 ns on: its first bucket, of 128, is as it was but for what is gone */
	lane.n = 64 - 13;
	assert_int_equal(lg_level_of(&lane, 6, &part, &n_part), 0);
	for (size_t i = 1; i < n_part; i++)
		assert_memory_equal(&part[i], &all[n_all - n_part + i], sizeof *part);
	lg_free(all);
	lg_free(part);
}

static void a_column_holds_every_number(void **state)
{
	static const int64_t numbers[] = {
		0,	   1,	     -1, 127, 128, -128, INT64_C(1) << 52, -(INT64_C(1) << 52),
		INT64_MAX, INT64_MIN
	};
	struct lg_column c = { 0 };
	size_t at = 0;

	(void)state;
	for (size_t i = 0; i < LG_COUNT(numbers); i++)
		lg_column_add_signed(&c, numbers[i]);
	for (size_t i = 0; i < LG_COUNT(numbers); i++) {
		uint64_t v = 0;
		unsigned shift = 0;

		do {
			v |= (uint64_t)(c.v[at] & 127) << shift;
			shift += 7;
		} while (c.v[at++] & 128);
		assert_true((int64_t)(v >> 1 ^ -(v & 1)) == numbers[i]);
	}
	assert_int_equal(at, c.n);
	lg_columns_done(&c, 1);
}

static void names_from_outside_stay_names(void **state)
{
	static const struct {
		const char *text, *page;
	} cases[] = {
		{ "</script><script>alert(1)</script>",
		  "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" },
		{ "\" onload='x' <!--", "&quot; onload=&#39;x&#39; &lt;!--" },
		{ "\033]0;x\a", "\\x1b]0;x\\x07" },
		{ "a\xe2\x80\xae"
		  "b",
		  "a\\xe2\\x80\\xaeb" },
		{ "\xc2\x9b"
		  "31m \xff",
		  "\\xc2\\x9b31m \\xff" },
		{ "R\xc3\xa9seau", "R\xc3\xa9seau" },
	};
	struct lg_out *o;
	char *big = lg_calloc(1000001, 1);

	(void)state;
	assert_non_null(big);
	memset(big, '<', 1000000);
	assert_int_equal(lg_out_memory(&o, NULL), 0);
	for (size_t i = 0; i < LG_COUNT(cases); i++) {
		lg_html_text(o, cases[i].text);
		lg_out_write(o, "", 1);
		assert_string_equal(lg_out_view(o), cases[i].page);
		lg_out_clear(o);
	}
	lg_html_text(o, big);
	assert_true(lg_out_bytes(o) < 20000);
	lg_out_abort(o);
	lg_free(big);
}

static void the_same_run_gives_the_same_bytes(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 400);
	struct outcome a = explain(&p), b = explain(&p);
	size_t n, m;
	char *x = page_of(a.v, &n), *y = page_of(b.v, &m);

	(void)state;
	assert_int_equal(n, m);
	assert_memory_equal(x, y, n);
	assert_non_null(strstr(x, "Content-Security-Policy"));
	assert_non_null(strstr(x, "4711"));
	assert_null(strstr(x, " style="));
	lg_free(x);
	lg_free(y);
	done(&a);
	done(&b);
}

static void memory_that_ends_is_an_error_and_nothing_worse(void **state)
{
	struct run_plan p = {
		.n_ranks = 2, .n_steps = 30, .only_rank = -1, .steady_late_rank = -1
	};
	struct outcome o = explain(&p);

	(void)state;
	for (uint64_t n = 1;; n += n / 12 + 1) {
		struct lg_error err = { 0 };
		struct lg_out *to;
		uint64_t made;
		int rc;

		assert_int_equal(lg_out_memory(&to, NULL), 0);
		lg_alloc_fail_at(n);
		rc = lg_report_html(o.v, NULL, to, &err);
		rc = rc ? rc : lg_out_failed(to);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		lg_out_abort(to);
		if (made < n) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_true(rc < 0);
	}
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_slots_of_each_step_sum_to_its_duration),
		cmocka_unit_test(who_held_the_lock_has_a_slot_and_typical_steps_have_none_of_it),
		cmocka_unit_test(a_rank_that_waits_in_a_collective_is_not_late),
		cmocka_unit_test(states_of_a_bucket_keep_their_shares),
		cmocka_unit_test(
		    short_spans_become_the_longest_with_their_number_and_long_ones_stay),
		cmocka_unit_test(buckets_do_not_depend_on_what_is_around),
		cmocka_unit_test(a_column_holds_every_number),
		cmocka_unit_test(names_from_outside_stay_names),
		cmocka_unit_test(the_same_run_gives_the_same_bytes),
		cmocka_unit_test(memory_that_ends_is_an_error_and_nothing_worse),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
