/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/agree.h"
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

static char text[256];
#define say(...) (lg_agree(text, sizeof text, __VA_ARGS__), text)

static void what_is_counted_agrees_with_its_number(void **state)
{
	size_t one = 1, two = 2;

	(void)state;
	assert_string_equal(say("%zu waits of the loader with %s", one, "x"), "1 wait of the loader with x");
	assert_string_equal(say("%zu waits of the loader with %s", two, "x"), "2 waits of the loader with x");
	assert_string_equal(say("%zu collective kernels, %.1f ms", one, 1.0), "1 collective kernel, 1.0 ms");
	assert_string_equal(say("%.0f copies, %zu stretches, %d processes", 1.2, one, 1), "1 copy, 1 stretch, 1 process");
	assert_string_equal(say("%.0f copies, %zu stretches, %d processes", 0.0, two, 11), "0 copies, 2 stretches, 11 processes");
	/* The noun is of the last, what they do of the first. */
	assert_string_equal(say("%zu of %zu devices show %d", one, one, 1), "1 of 1 device shows 1");
	assert_string_equal(say("%zu of %zu devices show", one, two), "1 of 2 devices shows");
	assert_string_equal(say("%zu of the %zu slow steps are those", two, two), "2 of the 2 slow steps are those");
	assert_string_equal(say("the %zu other ranks that report call %s", one, "f"), "the 1 other rank that reports calls f");
	assert_string_equal(say("%zu of %zu start while kernels run", one, two), "1 of 2 starts while kernels run");
	assert_string_equal(say("%zu fatal while kernels run", one), "1 fatal while kernels run");
	/* No count, none of what is counted, or not of that number. */
	assert_string_equal(say("rank %d waits, step %zu takes", 1, one), "rank 1 waits, step 1 takes");
	assert_string_equal(say("%zu of the steps, %.1f times, %s kernels", one, 1.0, "1"), "1 of the steps, 1.0 times, 1 kernels");
	assert_string_equal(say("%s: 1 of %d kernels", "\1a\2kernels", 2), "\1a\2kernels: 1 of 2 kernels");
	assert_string_equal(say("%d %% of %5.2f%s", 1, 1.5, " waits"), "1 % of  1.50 waits");
	assert_int_equal(lg_agree(text, sizeof text, "%zu waits", one), 6);
	/* A text that is cut is cut within a word, too. */
	assert_int_equal(strlen(say("%-247s%zu waits of", "x", one)), 253);
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
		cmocka_unit_test(what_is_counted_agrees_with_its_number),
		cmocka_unit_test(places_in_an_order_have_their_ends),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
