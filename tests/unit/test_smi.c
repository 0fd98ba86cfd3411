/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_trace.h"

static void dmon_is_read_by_header_and_torn_rows_are_counted(void **state)
{
	struct lg_trace *t = feed_fixture("smi/dmon.txt", "nvidia-smi");
	size_t n;

	(void)state;
	assert_true(feed_counter(t, "gpu.power", 0, &n) == 70 + 270 + 280);
	assert_int_equal(n, 3);
	assert_true(feed_counter(t, "gpu.util", 1, &n) == 6 + 98);
	assert_true(feed_counter(t, "gpu.mem_used", 1, &n) == (101 + 20002) * 1048576.0);
	assert_true(feed_counter(t, "gpu.mem_temp", 0, &n) == 0 && n == 0); /* "-" */
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_DAMAGED), 1);
	assert_int_equal(feed_diags(t, LG_DIAG_TIME_CLAMPED), 1);
	assert_string_equal(feed_meta(t, "import.clock"), "relative");
	assert_int_equal(t->last - t->first, 2000000000);
	lg_trace_free(t);
}

static void query_csv_keeps_units_and_says_that_its_zone_is_unknown(void **state)
{
	struct lg_trace *t = feed_fixture("smi/query.csv", "nvidia-smi");
	size_t n;

	(void)state;
	assert_true(feed_counter(t, "gpu.util", 0, &n) == 97 + 99 && n == 2);
	assert_true(feed_counter(t, "gpu.mem_used", 0, &n) == 3072 * 1048576.0);
	assert_true(feed_counter(t, "gpu.mem_used", 1, &n) == 0 && n == 0); /* [N/A] */
	assert_true(feed_counter(t, "gpu.throttle", 0, &n) == 4);
	assert_true(feed_counter(t, "gpu.pstate", 1, &n) == 8);
	assert_int_equal(t->last - t->first, 2000000000); /* across midnight */
	assert_string_equal(feed_meta(t, "import.clock"), "local");
	assert_int_equal(t->clock.n, 0);
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_DAMAGED), 1);
	lg_trace_free(t);
}

static void rows_without_an_index_are_told_apart_by_their_rhythm(void **state)
{
	struct lg_trace *t = feed_fixture("smi/sweeps.csv", "nvidia-smi");
	size_t n;

	(void)state;
	/* 12 sweeps of 3; in the fourth the third row is missing, and the fifth starts with GPU 0 again */
	assert_true(feed_counter(t, "gpu.util", 0, &n) == 0 && n == 12);
	assert_true(feed_counter(t, "gpu.util", 1, &n) == 120 && n == 12);
	assert_true(feed_counter(t, "gpu.util", 2, &n) == 220 && n == 11);
	assert_int_equal(feed_diags(t, LG_DIAG_NOT_UNDERSTOOD), 1);
	lg_trace_free(t);
}

static void utc_stamps_give_a_clock(void **state)
{
	struct lg_trace *t = feed_text("timestamp,gpu_index,temperature_C,utilization_gpu_percent,power_W\n"
				       "2025-09-24T03:41:43.487Z,0, 23, 7, 73.41\n", "nvidia-smi");
	size_t n;

	(void)state;
	assert_int_equal(t->clock.n, 1);
	assert_int_equal(t->clock.value[0], INT64_C(1758685303487000000));
	assert_true(feed_counter(t, "gpu.util", 0, &n) == 7 && n == 1);
	lg_trace_free(t);
}

static void a_header_alone_is_refused(void **state)
{
	static const char text[] = "timestamp, index, utilization.gpu [%]\n";

	(void)state;
	assert_non_null(strstr(feed_refused(text, strlen(text)), "no whole row"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dmon_is_read_by_header_and_torn_rows_are_counted),
		cmocka_unit_test(query_csv_keeps_units_and_says_that_its_zone_is_unknown),
		cmocka_unit_test(rows_without_an_index_are_told_apart_by_their_rhythm),
		cmocka_unit_test(utc_stamps_give_a_clock),
		cmocka_unit_test(a_header_alone_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
