/* SPDX-License-Identifier: Apache-2.0 */
/* test_perf_order.c - records into time order, and from one thread to the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/median.h"
#include "import/perfdata/perf_handover.h"
#include "random_trace.h"

enum { RECORDS = 40000 };

struct taken {
	uint64_t ts[RECORDS], offset[RECORDS];
	size_t n, fail_at;
};

static int take(void *self, const struct lg_pd_entry *e)
{
	struct taken *t = self;

	assert_true(t->n < RECORDS);
	t->ts[t->n] = e->ts;
	t->offset[t->n++] = e->offset;
	return t->n == t->fail_at ? LG_E_NOMEM : 0;
}

/* Four CPUs' buffers, one after the other, round by round; times repeat. */
static void hands_out_what_every_cpu_wrote_in_order(void **state)
{
	static struct taken got;
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	struct lg_pd_order o = { .pool = &pool, .window = SIZE_MAX, .deliver = take, .self = &got };
	uint64_t seed = 5, cpu[4] = { 0 };
	size_t n = 0;

	(void)state;
	got = (struct taken){ 0 };
	for (uint64_t round = 1; n < RECORDS; round++) {
		for (int c = 0; c < 4; c++) {
			/* nothing of a round is older than the newest of the round before the last */
			cpu[c] = cpu[c] > (round - 1) * 100 ? cpu[c] : (round - 1) * 100;
			while (n < RECORDS && cpu[c] < (round + 1) * 100 - 20) {
				struct lg_pd_record r = { .size = 40, .offset = n++, .block = &block };

				cpu[c] += rnd(&seed) % 20;
				assert_int_equal(lg_pd_order_add(&o, &r, cpu[c]), 0);
			}
		}
		assert_int_equal(lg_pd_order_round(&o), 0);
	}
	assert_true(got.n > RECORDS / 2); /* bounded: rounds hand out what is final */
	assert_int_equal(lg_pd_order_flush(&o), 0);
	assert_int_equal(got.n, RECORDS);
	assert_int_equal(o.late, 0);
	for (size_t i = 1; i < RECORDS; i++) {
		assert_true(got.ts[i] >= got.ts[i - 1]);
		if (got.ts[i] == got.ts[i - 1])
			assert_true(got.offset[i] > got.offset[i - 1]);
	}
	assert_int_equal(block.refs, 1);
	lg_pd_order_done(&o);
}

/* Times that fall all the way, and no rounds: the window decides, and says what came too late. */
static void orders_within_the_window(void **state)
{
	static struct taken got;
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	struct lg_pd_order o = { .pool = &pool, .window = 40 * 1000, .deliver = take, .self = &got };

	(void)state;
	got = (struct taken){ 0 };
	for (size_t i = 0; i < RECORDS; i++) {
		struct lg_pd_record r = { .size = 40, .offset = i, .block = &block };

		assert_int_equal(lg_pd_order_add(&o, &r, RECORDS - i), 0);
	}
	assert_int_equal(lg_pd_order_flush(&o), 0);
	assert_int_equal(got.n, RECORDS);
	assert_true(o.late > RECORDS / 2 && o.late < RECORDS);
	assert_int_equal(block.refs, 1);
	lg_pd_order_done(&o);
}

static int take_handed(void *self, const struct lg_pd_handed *e)
{
	return take(self, &e->entry);
}

static void hands_over_all_in_order(void **state)
{
	static struct taken got;
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	struct lg_pd_handover *h;

	(void)state;
	/* fail_at: never; while it is still done on the spot; in the thread */
	for (size_t fail_at = 0; fail_at <= 20000; fail_at = fail_at ? fail_at * 200 : 100) {
		int rc = 0;

		got = (struct taken){ .fail_at = fail_at };
		assert_int_equal(lg_pd_handover_new(&h, &pool, take_handed, NULL, &got, NULL), 0);
		for (size_t i = 0; i < RECORDS && !rc; i++) {
			rc = lg_pd_handover_add(h, &(struct lg_pd_handed){ .entry = { i, NULL, &block, i } });
			if (!rc && i % 10000 == 9999) {
				rc = lg_pd_handover_wait(h);
				assert_int_equal(got.n, rc ? fail_at : i + 1);
			}
		}
		assert_int_equal(rc, fail_at ? LG_E_NOMEM : 0);
		if (fail_at)
			assert_int_equal(lg_pd_handover_wait(h), LG_E_NOMEM);
		lg_pd_handover_free(h);
		assert_int_equal(block.refs, 1);
		assert_int_equal(got.n, fail_at ? fail_at : RECORDS);
		for (size_t i = 0; i < got.n; i++)
			assert_int_equal(got.offset[i], i);
	}
}

static void selects_what_a_sort_would_put_there(void **state)
{
	enum { N = 2000 };
	int64_t v[N], w[N];
	uint64_t seed = 9;

	(void)state;
	for (int round = 0; round < 200; round++) {
		size_t n = 1 + rnd(&seed) % N, k = rnd(&seed) % n;
		uint64_t values = 1 + rnd(&seed) % (round % 2 ? 5 : 1u << 20);

		for (size_t i = 0; i < n; i++)
			v[i] = w[i] = round % 5 == 0 ? (int64_t)i : round % 7 == 0 ? -(int64_t)i
				      : (int64_t)(rnd(&seed) % values) - 100;
		qsort(w, n, sizeof *w, lg_cmp_i64);
		assert_int_equal(lg_select_i64(v, n, k), w[k]);
	}
}

/* What is forgotten may be forgotten; what is remembered is right, and each version has its own. */
static void remembers_chains(void **state)
{
	enum { CHAINS = 1000000, LENGTH = 40 };
	struct lg_pd_chain_memo *m = lg_pd_memo_new();
	size_t known = 0, recent = 0;

	(void)state;
	assert_non_null(m);
	for (uint64_t pass = 0; pass < 2; pass++) {
		for (uint64_t i = 1; i <= CHAINS; i++) {
			uint64_t chain[LENGTH] = { i * 0x9e3779b97f4a7c15u, i / 3 };
			struct lg_pd_chain_key k = lg_pd_memo_key((uint8_t *)chain, 2 + i % (LENGTH - 1), 1);
			lg_stk stk;

			lg_pd_memo_version(&k, i % 5, i % 5);
			stk = lg_pd_memo_get(m, k.tag, k.place);
			assert_true(stk == 0 || (pass && stk == i));
			known += stk != 0;
			if (pass)
				continue;
			lg_pd_memo_put(m, k.tag, k.place, (lg_stk)i);
			recent += lg_pd_memo_get(m, k.tag, k.place) == i;
			lg_pd_memo_version(&k, 7, 7);
			assert_int_equal(lg_pd_memo_get(m, k.tag, k.place), 0);
		}
	}
	assert_int_equal(recent, CHAINS);
	assert_true(known > CHAINS / 10);
	lg_pd_memo_free(m);
}

/* The callers of one chain are not the chain that consists of them. */
static void keeps_callers_apart(void **state)
{
	uint64_t chain[3] = { 1, 2, 3 };
	struct lg_pd_chain_key whole = lg_pd_memo_key((uint8_t *)chain, 3, 2);
	struct lg_pd_chain_key part = lg_pd_memo_key((uint8_t *)(chain + 1), 2, 1);

	(void)state;
	assert_true(whole.callers_tag == part.tag && whole.callers_place == part.place);
	lg_pd_memo_version(&whole, 4, 4);
	lg_pd_memo_version(&part, 4, 4);
	assert_true(whole.callers_tag != part.tag);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hands_out_what_every_cpu_wrote_in_order),
		cmocka_unit_test(orders_within_the_window),
		cmocka_unit_test(hands_over_all_in_order),
		cmocka_unit_test(remembers_chains),
		cmocka_unit_test(keeps_callers_apart),
		cmocka_unit_test(selects_what_a_sort_would_put_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
