/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"

static void test_empty(void **state)
{
	struct lg_map m = { 0 };

	(void)state;
	assert_int_equal(lg_map_get(&m, 0), 0);
	lg_map_remove(&m, 5);
	lg_map_done(&m);
}

/* Against a plain array, with keys dense enough to collide and to be removed inside runs. */
static void test_against_array(void **state)
{
	enum { KEYS = 3000, ROUNDS = 200000 };
	static uint32_t want[KEYS];
	struct lg_map m = { 0 };
	uint64_t seed = 42;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t r = seed = lg_mix64(seed), key = r % KEYS;

		if (r >> 32 & 1) {
			uint32_t value = (uint32_t)(r >> 40) + 1;

			assert_int_equal(lg_map_set(&m, key * 4096, value), 0);
			want[key] = value;
		} else {
			lg_map_remove(&m, key * 4096);
			want[key] = 0;
		}
		assert_int_equal(lg_map_get(&m, key * 4096), want[key]);
	}
	for (size_t k = 0; k < KEYS; k++) {
		assert_int_equal(lg_map_get(&m, k * 4096), want[k]);
		n += !!want[k];
	}
	assert_int_equal(m.n, n);
	assert_int_equal(lg_map_get(&m, 1), 0);
	lg_map_done(&m);
}

/* 0 means absent: storing it removes. */
static void test_zero_value(void **state)
{
	struct lg_map m = { 0 };

	(void)state;
	assert_int_equal(lg_map_set(&m, UINT64_MAX, 7), 0);
	assert_int_equal(lg_map_set(&m, UINT64_MAX, 0), 0);
	assert_int_equal(lg_map_set(&m, 1, 0), 0);
	assert_int_equal(lg_map_get(&m, UINT64_MAX), 0);
	assert_int_equal(m.n, 0);
	lg_map_done(&m);
}

static void test_no_memory(void **state)
{
	struct lg_map m = { 0 };
	uint64_t n = 0;
	int rc = 0;

	(void)state;
	for (uint64_t fail = 1; fail < 20; fail++) {
		lg_alloc_fail_at(fail);
		for (n = 0; n < 1000 && !(rc = lg_map_set(&m, n, (uint32_t)n + 1)); n++)
			;
		lg_alloc_fail_at(0);
		assert_true(rc == 0 || rc == LG_E_NOMEM);
		/* What was in before the failure still is. */
		for (uint64_t k = 0; k < n; k++)
			assert_int_equal(lg_map_get(&m, k), k + 1);
		lg_map_done(&m);
	}
	assert_int_equal(rc, 0);
}

/* Each key has one element, in the order in which they first came; without memory nothing is made. */
static void test_append(void **state)
{
	enum { KEYS = 100, ROUNDS = 1000 };
	struct lg_map m = { 0 };
	uint64_t *v = NULL;
	size_t n = 0, cap = 0;

	(void)state;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t key = i * 7 % KEYS;

		assert_int_equal(LG_MAP_APPEND(&m, key, v, n, cap, key), i < KEYS ? i + 1 : i % KEYS + 1);
	}
	assert_int_equal(n, KEYS);
	for (size_t i = 0; i < KEYS; i++)
		assert_int_equal(v[i], i * 7 % KEYS);
	for (uint64_t key = KEYS; n < KEYS + 2; key++) {
		size_t before = n;

		lg_alloc_fail_at(1);
		if (!LG_MAP_APPEND(&m, key, v, n, cap, key))
			assert_int_equal(n, before);
		lg_alloc_fail_at(0);
	}
	lg_free(v);
	lg_map_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_against_array),
		cmocka_unit_test(test_zero_value),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_append),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
