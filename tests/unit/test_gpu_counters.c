/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_counters.c - what a table of nvidia-smi says of its devices' clocks. */
#include "feed_trace.h"
#include "outcome.h"

struct phase {
	int watts, mhz, violation; /* violation: % of dmon's pviol, or the reason bit of a CSV */
};

/* Two devices; [device][half of the run]. */
static struct outcome table(bool dmon, const struct phase of[2][2])
{
	static char text[1 << 16];
	size_t k = 0;

	k += (size_t)sprintf(text, dmon ? "#Date       Time        gpu    pwr     sm   pclk  pviol  tviol\n"
					  "#YYYYMMDD   HH:MM:SS    Idx      W      %%    MHz      %%   bool\n"
					: "timestamp, index, utilization.gpu [%%], power.draw [W], clocks.sm [MHz], "
					  "clocks_event_reasons.active\n");
	for (int i = 0; i < 400; i++) {
		int g = i % 2, s = i / 2, jitter = (i * 7) % 5;
		const struct phase *p = &of[g][s >= 100];

		k += (size_t)sprintf(text + k, dmon ? " 20260301   10:%02d:%02d  %d  %d  98  %d  %d  0\n"
						    : "2026/03/01 10:%02d:%02d.000, %d, 97 %%, %d W, %d MHz, 0x%016x\n",
				     s / 60, s % 60, g, p->watts + jitter, p->mhz - jitter, p->violation);
	}
	return judge(feed_text(text, "nvidia-smi"));
}

static void a_power_limit_that_came_down_is_a_throttle(void **state)
{
	static const struct {
		bool dmon;
		struct phase of[2][2];
	} rows[] = {
		/* pviol on all devices in the second half; the reason of one; of one all the time */
		{ true, { { { 400, 1980, 0 }, { 400, 1200, 60 } },
			  { { 400, 1980, 0 }, { 400, 1200, 60 } } } },
		{ false, { { { 300, 1900, 0 }, { 250, 1100, 4 } }, { { 300, 1900, 0 }, { 300, 1900, 0 } } } },
		{ false, { { { 250, 1100, 4 }, { 250, 1100, 4 } }, { { 300, 1900, 0 }, { 300, 1900, 0 } } } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = table(rows[i].dmon, rows[i].of);
		const struct lg_finding *f = find(o.v, "gpu.throttled");

		assert_non_null(f);
		assert_string_equal(f->detail, "power");
		assert_int_equal(f->severity, LG_SEVERITY_HIGH);
		assert_true(f->lost_share > 0.15 && f->lost_share < 0.45);
		done(&o);
	}
}

static void a_power_cap_under_heavy_work_is_normal(void **state)
{
	static const struct phase of[][2][2] = {
		/* capped throughout; capped where heavy kernels draw more; a clock that hardly gives way */
		{ { { 400, 1850, 4 }, { 400, 1850, 4 } }, { { 400, 1850, 4 }, { 400, 1850, 4 } } },
		{ { { 400, 1980, 0 }, { 690, 1500, 4 } }, { { 400, 1980, 0 }, { 690, 1500, 4 } } },
		{ { { 400, 1980, 0 }, { 400, 1900, 4 } }, { { 400, 1980, 0 }, { 400, 1900, 4 } } },
		{ { { 400, 1980, 0 }, { 400, 1980, 0 } }, { { 400, 1980, 0 }, { 400, 1980, 0 } } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		for (int dmon = 0; dmon < 2; dmon++) {
			struct outcome o = table(dmon, of[i]);

			if (o.v->n_findings)
				fail_msg("healthy row %zu: %s", i, o.v->findings[0].title);
			done(&o);
		}
}

/* n devices at 1980 MHz; the last has this reason, and this clock under load: every other ten seconds. */
static struct outcome load(int n, int reason, int mhz)
{
	static char text[1 << 17];
	size_t k = (size_t)sprintf(text, "timestamp, index, utilization.gpu [%%], power.draw [W], clocks.sm [MHz], "
					 "clocks_event_reasons.active\n");

	for (int i = 0; i < 240 * n; i++) {
		int s = i / n, last = i % n == n - 1, busy = s / 10 % 2 == 0;

		k += (size_t)sprintf(text + k, "2026/03/01 10:%02d:%02d.000, %d, %d %%, %d W, %d MHz, 0x%016x\n", s / 60,
				     s % 60, i % n, busy ? 97 : 0, busy ? 400 : 60,
				     !busy ? 210 : last ? mhz : 1980, (last ? reason : 0) | !busy);
	}
	return judge(feed_text(text, "nvidia-smi"));
}

static void the_clock_of_an_idle_device_is_no_loss(void **state)
{
	struct outcome o = load(2, 0x20, 1860);
	const struct lg_finding *f = find(o.v, "gpu.throttled");

	(void)state;
	assert_non_null(f);
	assert_true(f->lost_share > 0.02 && f->lost_share < 0.04); /* 6 % of half the time */
	done(&o);
	o = load(2, 0x20, 1980); /* warm, and no slower for it */
	f = find(o.v, "gpu.throttled");
	assert_true(!f || !is_loud(f));
	done(&o);
}

static void a_lower_clock_without_a_reason_is_said_to_have_none(void **state)
{
	struct outcome o = load(4, 0x2, 1600);
	const struct lg_finding *f = find(o.v, "gpu.throttled");

	(void)state;
	assert_non_null(f);
	for (size_t i = 0; i < f->n_evidence; i++)
		assert_null(strstr(f->evidence[i].text, "not in this input"));
	done(&o);
	o = load(4, 0, 1970);
	assert_null(find(o.v, "gpu.throttled"));
	done(&o);
}

/* More devices than a rack has. */
static void no_device_is_left_out(void **state)
{
	enum { N = 300 };
	static const char *const name[] = { "gpu.util", "gpu.clock_sm", "gpu.throttle" };
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;
	struct outcome o;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int g = 0; g < N; g++) {
		const double v[] = { 98, g == N - 1 ? 1200 : 1980, g == N - 1 ? 0x40 : 0 };
		struct lg_track_row of = { .kind = LG_TRACK_GPU, .index = g, .name = lg_intern(b, "GPU") };

		of.parent = lg_track_get(b, &of);
		of.kind = LG_TRACK_COUNTER;
		for (int m = 0; m < 3; m++) {
			of.name = lg_intern(b, name[m]);
			for (int64_t s = 0; s < 60; s++) {
				struct lg_counter_row row = { .ts = s * 1000 * MS, .value = v[m] };

				row.track = lg_track_get(b, &of);
				lg_add_counter(b, &row);
			}
		}
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	o = judge(t);
	assert_non_null(find(o.v, "gpu.throttled"));
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "device 299"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_limit_that_came_down_is_a_throttle),
		cmocka_unit_test(a_power_cap_under_heavy_work_is_normal),
		cmocka_unit_test(the_clock_of_an_idle_device_is_no_loss),
		cmocka_unit_test(a_lower_clock_without_a_reason_is_said_to_have_none),
		cmocka_unit_test(no_device_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
