/* SPDX-License-Identifier: Apache-2.0 */
/* test_order.c - merging runs against a plain stable sort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/order.h"

struct item {
	uint32_t key, at; /* at: where it stood */
	char pad[5];
};

static int by_key(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (x->key > y->key) - (x->key < y->key);
}

static uint32_t rnd(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	return *x ^= *x << 5;
}

/* Several lists in order, one after the other; jitter moves elements by a few places. */
static void fill(struct item *v, size_t n, size_t lists, uint32_t jitter, uint32_t keys, uint32_t *x)
{
	for (size_t i = 0; i < n; i++) {
		size_t in_list = i % ((n + lists - 1) / lists);

		v[i] = (struct item){ .key = (uint32_t)(in_list * keys / n) + (jitter ? rnd(x) % jitter : 0),
				      .at = (uint32_t)i };
	}
}

static void check(const struct item *v, size_t n, uint64_t sum)
{
	uint64_t s = 0;

	for (size_t i = 0; i < n; i++) {
		s += (uint64_t)v[i].key * 31 + v[i].at;
		if (i) {
			assert_true(v[i - 1].key <= v[i].key);
			if (v[i - 1].key == v[i].key)
				assert_true(v[i - 1].at < v[i].at);
		}
	}
	assert_true(s == sum);
}

static void test_orders(void **state)
{
	uint32_t x = 7;

	(void)state;
	for (size_t n = 0; n < 300; n += n < 20 ? 1 : 37)
		for (size_t lists = 1; lists < 9; lists++)
			for (uint32_t jitter = 0; jitter < 200; jitter = jitter * 3 + 2) {
				struct item *v = lg_calloc(n, sizeof *v);
				uint64_t sum = 0;

				assert_non_null(v);
				fill(v, n, lists, jitter, 400, &x);
				for (size_t i = 0; i < n; i++)
					sum += (uint64_t)v[i].key * 31 + v[i].at;
				assert_int_equal(lg_order(v, n, sizeof *v, by_key), 0);
				check(v, n, sum);
				lg_free(v);
			}
	assert_int_equal(lg_order(NULL, 0, 8, by_key), 0);
}

static size_t n_cmp;

static int counting(const void *a, const void *b)
{
	n_cmp++;
	return by_key(a, b);
}

/* What it is for: lists end to end cost one look at each element and one merge, not n * log(n). */
static void test_runs_are_cheap(void **state)
{
	enum { N = 100000 };
	struct item *v = lg_calloc(N, sizeof *v);
	uint32_t x = 1;

	(void)state;
	assert_non_null(v);
	fill(v, N, 1, 0, N, &x);
	n_cmp = 0;
	assert_int_equal(lg_order(v, N, sizeof *v, counting), 0);
	assert_int_equal(n_cmp, N - 1);
	fill(v, N, 2, 0, N, &x);
	n_cmp = 0;
	assert_int_equal(lg_order(v, N, sizeof *v, counting), 0);
	assert_true(n_cmp < 2 * N + 100);
	lg_free(v);
}

static void test_memory(void **state)
{
	struct item v[6] = { { .key = 3 }, { .key = 1 }, { .key = 2 },
			     { .key = 0 }, { .key = 9 }, { .key = 4 } };

	(void)state;
	for (uint64_t at = 1; at < 3; at++) {
		struct item w[6];

		memcpy(w, v, sizeof w);
		lg_alloc_fail_at(at);
		assert_int_equal(lg_order(w, 6, sizeof *w, by_key), LG_E_NOMEM);
		lg_alloc_fail_at(0);
		assert_int_equal(lg_order(w, 6, sizeof *w, by_key), 0);
		for (size_t i = 1; i < 6; i++)
			assert_true(w[i - 1].key < w[i].key);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_runs_are_cheap),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
