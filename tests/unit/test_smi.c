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
	assert_int_equal(feed_diags(t, LG_DIAG_NO_TIMES), 1);
	assert_int_equal(feed_diags(t, LG_DIAG_TIME_CLAMPED), 0);
	assert_string_equal(feed_meta(t, "import.clock"), "relative");
	assert_int_equal(t->last - t->first, 2000000000);
	lg_trace_free(t);
}

/* dmon -i 2,3 */
static void sweeps_without_device_0_are_told_apart(void **state)
{
	static const int from[] = { 0, 1, 2 };

	(void)state;
	for (size_t i = 0; i < sizeof from / sizeof *from; i++)
		for (int gpus = 1; gpus < 3; gpus++) {
			char text[2048] = "# gpu    pwr    sm   pclk\n# Idx      W     %    MHz\n";
			struct lg_trace *t;

			for (int k = 0; k < 20 * gpus; k++)
				sprintf(text + strlen(text), "  %d  400  98  1980\n", from[i] + k % gpus);
			t = feed_text(text, "nvidia-smi");
			assert_int_equal(t->last - t->first, 19000000000);
			lg_trace_free(t);
		}
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

/* A table without an index: rows of GPU i % gpus, gap(i) ms after the last. */
static struct lg_trace *feed_gaps(size_t n, size_t gpus, int (*gap)(size_t i))
{
	size_t size = 64 + n * 48, at;
	char *text = calloc(1, size);
	struct lg_trace *t;
	int64_t ms = 0;

	assert_non_null(text);
	at = (size_t)snprintf(text, size, "timestamp, power.draw [W], utilization.gpu [%%]\n");
	for (size_t i = 0; i < n; i++) {
		ms += i ? gap(i) : 0;
		at += (size_t)snprintf(text + at, size - at, "2025/10/03 10:%02d:%02d.%03d, 100.0 W, %d %%\n",
				       (int)(ms / 60000), (int)(ms / 1000 % 60), (int)(ms % 1000),
				       (int)(i % gpus) * 10);
	}
	t = feed_text(text, "nvidia-smi");
	free(text);
	return t;
}

static int noise(size_t i)
{
	uint32_t h = (uint32_t)i * 0x9e3779b1u;

	h = (h ^ h >> 15) * 0x85ebca77u;
	h = (h ^ h >> 13) * 0xc2b2ae3du;
	return (int)((h ^ h >> 16) & 0xffff);
}

/* Three devices, every 200 ms; one gap in forty inside a sweep is of any size up to the sleep. */
static int late_answers(size_t i)
{
	if (!(i % 3))
		return 195 + noise(i) % 12;
	return noise(i) % 40 ? 3 + noise(i) % 4 : 8 + noise(i * 7) % 180;
}

/* One device, read by a loop that is held up now and then: by 1 to 40 times its period. */
static int held_up(size_t i)
{
	return noise(i) % 8 ? 20 + noise(i) % 7 : 20 + noise(i) % 800;
}

/* One device whose rows come in bunches of 2 to 9: a reader that writes when its buffer is full. */
static int bunches(size_t i)
{
	return noise(i) % 4 ? 2 : 300;
}

/* One device, asked once a second; every 32nd row the writer stood for another three. */
static int a_pause_in_32(size_t i)
{
	return (i % 32 ? 1000 : 3900) + noise(i) % 9;
}

static int even(size_t i)
{
	return 99 + noise(i) % 4;
}

static void late_answers_do_not_hide_the_rhythm(void **state)
{
	struct lg_trace *t = feed_gaps(900, 3, late_answers);
	size_t n;

	(void)state;
	/* A late answer of nearly the sleep is taken as a new sweep: few rows, and the next is right. */
	assert_true(feed_counter(t, "gpu.util", 0, &n) < 100 && n >= 295 && n <= 305);
	assert_true(feed_counter(t, "gpu.util", 1, &n) > 2850 && n >= 292 && n <= 300);
	assert_true(feed_counter(t, "gpu.util", 2, &n) > 5800 && n >= 292 && n <= 300);
	assert_int_equal(feed_diags(t, LG_DIAG_NOT_UNDERSTOOD), 1);
	lg_trace_free(t);
}

static void one_device_is_not_made_several(void **state)
{
	static int (*const gap[])(size_t i) = { even, held_up, bunches, a_pause_in_32 };
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof gap / sizeof *gap; i++) {
		struct lg_trace *t = feed_gaps(600, 1, gap[i]);

		(void)feed_counter(t, "gpu.util", 0, &n);
		assert_int_equal(n, 600);
		/* What could be groups of any size is said; an even table needs no note. */
		assert_int_equal(feed_diags(t, LG_DIAG_NOT_UNDERSTOOD), gap[i] == bunches);
		lg_trace_free(t);
	}
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

/* --format=csv,noheader: values that nothing names. With the line of names on top it is read. */
static void values_without_names_are_refused_as_that(void **state)
{
	static const char names[] = "timestamp, utilization.gpu [%], memory.used [MiB], power.draw [W]\n";
	static const char rows[] = "2026/04/25 16:06:06.780, 7 %, 2 MiB, 11.64 W\n"
				   "2026/04/25 16:06:11.788, 8 %, 2 MiB, 11.36 W\n";
	char text[512];
	struct lg_trace *t;
	size_t n;

	(void)state;
	assert_non_null(strstr(feed_refused(rows, strlen(rows)), "noheader"));
	snprintf(text, sizeof text, "%s%s", names, rows);
	t = feed_text(text, "nvidia-smi");
	assert_true(feed_counter(t, "gpu.util", 0, &n) == 15 && n == 2);
	lg_trace_free(t);
}

/* Two files as one run; the tracks of GPU 0 that have a counter of utilisation, and their sums. */
static size_t devices_of(const char *a, const char *b, double *ret_first, double *ret_second)
{
	const char *paths[2] = { feed_file(a, strlen(a)), feed_file(b, strlen(b)) };
	struct lg_import_info info[2];
	struct lg_error err = { 0 };
	struct lg_trace *t;
	double sum[2] = { 0 };
	lg_trk seen[2] = { 0 };
	size_t n = 0;

	if (lg_import(paths, 2, &t, info, &err))
		fail_msg("%s", err.message);
	for (size_t i = 0; i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i], gpu = t->track.parent[k];
		size_t d = 0;

		if (strcmp(lg_string(t, t->track.name[k]), "gpu.util") || t->track.index[gpu])
			continue;
		while (d < n && seen[d] != gpu)
			d++;
		assert_true(d < 2);
		if (d == n)
			seen[n++] = gpu;
		sum[d] += t->counter.value[i];
		if (d)
			assert_non_null(strstr(lg_string(t, t->track.name[gpu]), ": GPU 0"));
	}
	*ret_first = sum[0];
	*ret_second = sum[1];
	unlink(paths[0]);
	unlink(paths[1]);
	lg_trace_free(t);
	return n;
}

static void tables_of_two_hosts_are_two_sets_of_devices(void **state)
{
	static const char head[] = "timestamp, index, utilization.gpu [%], power.draw [W]\n";
	static const char with_uuid[] = "timestamp, index, uuid, utilization.gpu [%]\n";
	char a[512], b[512];
	double x, y;

	(void)state;
	/* One moment, one number, one reading, twice: two hosts. */
	snprintf(a, sizeof a, "%s2025/10/03 18:37:01.100, 0, 90 %%, 300 W\n2025/10/03 18:37:02.100, 0, 80 %%, 310 W\n",
		 head);
	snprintf(b, sizeof b, "%s2025/10/03 18:37:01.400, 0, 5 %%, 60 W\n2025/10/03 18:37:02.400, 0, 7 %%, 61 W\n",
		 head);
	assert_int_equal(devices_of(a, b, &x, &y), 2);
	assert_true(x == 170 && y == 12);
	/* The log goes on in a second file: one host. */
	snprintf(b, sizeof b, "%s2025/10/03 18:40:01.400, 0, 5 %%, 60 W\n2025/10/03 18:40:02.400, 0, 7 %%, 61 W\n",
		 head);
	assert_int_equal(devices_of(a, b, &x, &y), 1);
	assert_true(x == 182);
	/* Where the tables have UUIDs, those decide, whatever the times. */
	snprintf(a, sizeof a, "%s2025/10/03 18:37:01, 0, GPU-aa01, 90 %%\n2025/10/03 18:37:02, 0, GPU-aa01, 80 %%\n",
		 with_uuid);
	snprintf(b, sizeof b, "%s2025/10/03 18:40:01, 0, GPU-bb02, 5 %%\n2025/10/03 18:40:02, 0, GPU-bb02, 7 %%\n",
		 with_uuid);
	assert_int_equal(devices_of(a, b, &x, &y), 2);
	snprintf(b, sizeof b, "%s2025/10/03 18:37:01, 0, GPU-aa01, 5 %%\n2025/10/03 18:37:02, 0, GPU-aa01, 7 %%\n",
		 with_uuid);
	assert_int_equal(devices_of(a, b, &x, &y), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dmon_is_read_by_header_and_torn_rows_are_counted),
		cmocka_unit_test(sweeps_without_device_0_are_told_apart),
		cmocka_unit_test(query_csv_keeps_units_and_says_that_its_zone_is_unknown),
		cmocka_unit_test(rows_without_an_index_are_told_apart_by_their_rhythm),
		cmocka_unit_test(late_answers_do_not_hide_the_rhythm),
		cmocka_unit_test(one_device_is_not_made_several),
		cmocka_unit_test(utc_stamps_give_a_clock),
		cmocka_unit_test(a_header_alone_is_refused),
		cmocka_unit_test(values_without_names_are_refused_as_that),
		cmocka_unit_test(tables_of_two_hosts_are_two_sets_of_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
