/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/words.h"

static void lengths_of_time_have_a_unit_and_no_exponent(void **state)
{
	static const struct {
		double ms;
		const char *text;
	} rows[] = { { 8700, "8.7 s" }, { 0.5, "0.5 ms" }, { 12.34, "12.3 ms" }, { 1000, "1 s" }, { 999.4, "999 ms" },
		     { 87, "87 ms" }, { 0.0123, "12.3 us" }, { 100, "100 ms" }, { 86400e3, "86400 s" },
		     { 0, "0 ns" }, { 9.996, "10 ms" }, { 5.0, "5 ms" }, { 2.05, "2.05 ms" } };
	char buf[LG_MS_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(lg_ms_text(rows[i].ms, buf), rows[i].text);
}

static void only_one_is_one(void **state)
{
	(void)state;
	assert_string_equal(lg_s(1), "");
	assert_string_equal(lg_s(0), "s");
	assert_string_equal(lg_s(2), "s");
}

static void places_in_an_order_have_their_ends(void **state)
{
	static const struct {
		uint64_t n;
		const char *text;
	} rows[] = { { 0, "0th" }, { 1, "1st" }, { 2, "2nd" }, { 3, "3rd" }, { 4, "4th" }, { 11, "11th" }, { 12, "12th" },
		     { 13, "13th" }, { 21, "21st" }, { 111, "111th" }, { 181, "181st" }, { UINT64_MAX, "18446744073709551615th" } };
	char buf[LG_ORDINAL_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(lg_ordinal_text(rows[i].n, buf), rows[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths_of_time_have_a_unit_and_no_exponent),
		cmocka_unit_test(only_one_is_one),
		cmocka_unit_test(places_in_an_order_have_their_ends),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
