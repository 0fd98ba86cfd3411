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

/* What cards of several makes draw, W: at rest, and at most; data sheets and tables of nvidia-smi, rocm-smi
 * and hl-smi. The last one is never seen at rest: a context keeps its clock up. */
static const struct make {
	const char *name;
	int rest, limit, mhz;
} makes[] = {
	{ "NVIDIA H100 SXM", 70, 700, 1980 }, { "NVIDIA A100 PCIe", 35, 250, 1410 },
	{ "NVIDIA L4", 16, 72, 2040 },
	{ "Tesla T4", 10, 70, 1590 }, { "Tesla V100", 42, 300, 1530 },
	{ "GeForce RTX 3090", 25, 350, 2100 },
	{ "AMD MI300X", 140, 750, 2100 }, { "AMD MI250X", 90, 560, 1700 },
	{ "Intel Max 1550", 160, 600, 1600 },
	{ "Gaudi 2", 100, 600, 1650 }, { "in use at rest", 130, 350, 1700 },
};

struct use {
	double of_range; /* power while busy */
	double of_clock;
	int memory, cards;
	bool rests, limit;
};

static struct outcome used_so(const struct make *m, const struct use *u)
{
	static char text[1 << 17];
	size_t k = (size_t)sprintf(text, "timestamp, index, utilization.gpu [%%], utilization.memory [%%], "
					 "power.draw [W], %sclocks.current.sm [MHz], clocks.max.sm [MHz]\n",
				   u->limit ? "power.limit [W], " : "");
	bool in_use = m == &makes[sizeof makes / sizeof *makes - 1];

	for (int i = 0; i < 200 * u->cards; i++) {
		int s = i / u->cards;
		bool busy = !u->rests || s % 5;
		double more = busy ? u->of_range * (m->limit - m->rest) : 0;
		double watts = m->rest * (1 + 0.01 * (s % 3)) + more;

		k += (size_t)sprintf(text + k, "2026/03/01 10:%02d:%02d.000, %d, %d %%, %d %%, %.2f W, ", s / 60,
				     s % 60, i % u->cards, busy ? 98 : 0, busy ? u->memory : 0, watts);
		if (u->limit)
			k += (size_t)sprintf(text + k, "%d W, ", m->limit);
		k += (size_t)sprintf(text + k, "%.0f MHz, %d MHz\n",
				     (busy || in_use ? u->of_clock : 0.15) * m->mhz, m->mhz);
	}
	return judge(feed_text(text, "nvidia-smi"));
}

static void cards_of_all_makes_spin_at_little_power(void **state)
{
	/* Alone and together, with and without a rest to look at. */
	static const struct use ill[] = {
		{ 0.12, 0.97, 1, 1, true, true }, { 0.12, 0.97, 1, 4, true, true },
		{ 0.05, 0.97, 1, 1, false, true }, { 0.20, 0.80, 5, 4, true, true },
	};
	static const struct use healthy[] = {
		{ 0.45, 0.97, 20, 4, true, true }, { 0.45, 0.97, 20, 4, true, false },
		{ 0.97, 0.9, 50, 4, true, true }, { 0.35, 0.97, 20, 1, true, true },
		{ 0.60, 0.97, 20, 1, false, true }, { 0.85, 0.97, 20, 1, false, false },
		/* a clock that is locked low; memory that is the limit */
		{ 0.15, 0.5, 20, 4, true, true }, { 0.22, 0.97, 60, 1, true, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
		for (size_t k = 0; k < sizeof ill / sizeof *ill; k++) {
			struct outcome o = used_so(&makes[i], &ill[k]);
			const struct lg_finding *f = find(o.v, "gpu.util_lies");
			/* Of the last one rest is not known. */
			bool seen = (ill[k].rests && makes[i].limit > 3 * makes[i].rest) ||
				    makes[i].limit >= 7 * makes[i].rest;


			if (seen && (!f || !is_loud(f)))
				fail_msg("%s spins (%zu) and is not told", makes[i].name, k);
			if (f)
				assert_null(strstr(f->title, "never exceeds"));
			done(&o);
		}
		for (size_t k = 0; k < sizeof healthy / sizeof *healthy; k++) {
			struct outcome o = used_so(&makes[i], &healthy[k]);

			if (loud(o.v))
				fail_msg("%s works (%zu): %s", makes[i].name, k, o.v->findings[0].title);
			done(&o);
		}
	}
}

/* n devices, of which the last `hot` are too hot; each a little more than the one before it. */
static struct outcome heat(int n, int hot)
{
	static char text[1 << 18];
	size_t k = (size_t)sprintf(text, "timestamp, index, utilization.gpu [%%], power.draw [W], clocks.sm [MHz], "
					 "clocks_event_reasons.active\n");

	for (int i = 0; i < 240 * n; i++) {
		int g = i % n, s = i / n;
		bool now = g >= n - hot && s % 10 < 5 + g % 2;

		k += (size_t)sprintf(text + k, "2026/03/01 10:%02d:%02d.000, %d, 97 %%, 400 W, %d MHz, 0x%016x\n", s / 60,
				     s % 60, g, now ? 1300 : 1980, now ? 0x40 : 0);
	}
	return judge(feed_text(text, "nvidia-smi"));
}

static void one_device_is_named_only_where_it_stands_apart(void **state)
{
	struct outcome o = heat(8, 1);

	(void)state;
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "device 7 is throttled"));
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "wait for the slowest"));
	done(&o);
	o = heat(8, 3);
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "3 of 8 devices are throttled"));
	done(&o);
	o = heat(4, 4); /* the room is too hot */
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "4 of 4 devices are throttled"));
	done(&o);
	o = heat(1, 1); /* nobody waits for it */
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "device 0 is throttled"));
	assert_null(strstr(find(o.v, "gpu.throttled")->title, "slowest"));
	done(&o);
}

struct smi {
	double util, power, clock, reasons;
};

static void counter(struct lg_builder *b, lg_trk gpu, const char *name, int64_t ts, double value)
{
	lg_trk k = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER, .parent = gpu,
							   .index = -1, .name = lg_intern(b, name) });

	lg_add_counter(b, &(struct lg_counter_row){ .ts = ts, .track = k, .value = value });
}

/* 600 readings of each device; the first 60 at rest. fn gives the others. */
static struct outcome smi_of(int from, int to, struct smi (*fn)(int gpu, int i))
{
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int g = from; g < to; g++) {
		lg_trk gpu = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .index = g,
								     .name = lg_intern(b, "GPU") });

		for (int i = 0; i < 600; i++) {
			struct smi x = i < 60 ? (struct smi){ 0, 70, 300, 0 } : fn(g, i);

			counter(b, gpu, "gpu.util", i * 100 * MS, x.util);
			counter(b, gpu, "gpu.power", i * 100 * MS, x.power);
			counter(b, gpu, "gpu.clock_sm", i * 100 * MS, x.clock);
			counter(b, gpu, "gpu.throttle", i * 100 * MS, x.reasons);
		}
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

static struct outcome smi(struct smi (*fn)(int gpu, int i))
{
	return smi_of(0, 4, fn);
}

static struct smi working(int gpu, int i)
{
	return (struct smi){ 95 + gpu % 3, 420 + i % 50, 1700, 4 /* power cap: normal */ };
}

static struct smi spinning(int gpu, int i)
{
	if (!gpu)
		return (struct smi){ i % 50 ? 2 : 80, 120, 1700, 0 };
	return (struct smi){ 100, 140 + i % 9, 1700, 0 };
}

static struct smi spinning_half(int gpu, int i)
{
	return i % 100 < 50 ? working(gpu, i) : spinning(gpu, i);
}

static struct smi hot(int gpu, int i)
{
	return gpu == 2 && i % 3 ? (struct smi){ 99, 300, 1100, 0x40 } : working(gpu, i);
}

/* One device busy at little power (filler kernels), the others never used. */
static struct smi alone(int gpu, int i)
{
	return gpu == 1 ? (struct smi){ 100, 100 + i % 9, 1700, 0 } : (struct smi){ 0, 70, 300, 0 };
}

static struct smi alone_half(int gpu, int i)
{
	return i % 100 < 50 ? working(gpu, i) : alone(gpu, i);
}

static struct smi slower(int gpu, int i)
{
	struct smi x = working(gpu, i);

	x.clock = gpu == 1 ? 1300 : 1700;
	return x;
}

/* From then on a third slower, at a third less power: nobody cools it. */
static struct smi overheats(int gpu, int i)
{
	struct smi x = { 98, 640 + i % 20, 1755, 0 };

	if (gpu == 1 && i >= 120)
		x = (struct smi){ 98, 430 + i % 20, 1170, 0 };
	return x;
}

static struct smi all_overheat(int gpu, int i)
{
	(void)gpu;
	return overheats(1, i);
}

/* Heavy kernels slow the clock down, and take what power there is. */
static struct smi heavier_at_times(int gpu, int i)
{
	(void)gpu;
	return i % 100 < 50 ? (struct smi){ 98, 690, 1170, 0 } : (struct smi){ 98, 640, 1755, 0 };
}

/* A burst's last reading: its load is told for the second past, its clock for now. */
static struct smi bursts(int gpu, int i)
{
	(void)gpu;
	return i % 10 < 7 ? (struct smi){ 98, 640, 1755, 0 } : i % 10 < 9 ? (struct smi){ 92, 90, 345, 0 }
							      : (struct smi){ 0, 70, 345, 0 };
}

/* By its own clock before, where no reason tells; the price is of the readings that are slow. */
static void a_clock_that_comes_down_at_less_power(void **state)
{
	static const struct {
		struct smi (*of)(int gpu, int i);
		const char *said; /* NULL = healthy */
	} rows[] = {
		{ overheats, "device 1 is clocked 33 % lower than its peers in" },
		{ all_overheat, "4 of 4 devices are clocked 33 % lower than at other times in" },
		{ heavier_at_times, NULL },
		{ bursts, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = smi(rows[i].of);
		const struct lg_finding *f = find(o.v, "gpu.throttled");

		if (!f != !rows[i].said || (f && !strstr(f->title, rows[i].said)))
			fail_msg("row %zu: %s", i, f ? f->title : "nothing");
		if (f)
			assert_true(fabs(f->lost_share - 480.0 / 600 / 3) < 0.02);
		done(&o);
	}
}

static void counters_tell_spinning_and_throttled_devices(void **state)
{
	struct outcome o = smi(working);

	(void)state;
	for (size_t i = 0; i < o.v->n_findings; i++)
		assert_false(is_loud(&o.v->findings[i]));
	done(&o);
	o = smi(spinning); /* never seen at work: known by its power at rest */
	assert_true(o.v->n_findings >= 1);
	assert_string_equal(o.v->findings[0].id, "gpu.util_lies");
	assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
	done(&o);
	o = smi(spinning_half);
	assert_string_equal(o.v->findings[0].id, "gpu.util_lies");
	done(&o);
	o = smi(hot);
	assert_string_equal(o.v->findings[0].id, "gpu.throttled");
	assert_true(strstr(o.v->findings[0].title, "device 2") != NULL);
	done(&o);
	o = smi(slower);
	assert_string_equal(o.v->findings[0].id, "gpu.throttled");
	assert_true(strstr(o.v->findings[0].title, "device 1") != NULL);
	done(&o);
}

/* Alone it spins as well, and waits for no other device. */
static void a_device_alone_waits_for_no_other(void **state)
{
	struct outcome o = smi_of(1, 2, alone);

	(void)state;
	for (int n = 0; n < 3; n++) {
		const struct lg_finding *f = find(o.v, "gpu.util_lies");

		assert_non_null(f);
		assert_true(is_loud(f));
		assert_null(strstr(f->title, "collective"));
		assert_non_null(strstr(f->title, "no other device works"));
		for (size_t i = 0; i < f->n_evidence; i++)
			assert_null(strstr(f->evidence[i].text, "wait for what its rank does"));
		done(&o);
		o = n ? smi(alone) : smi_of(1, 2, alone_half);
	}
	done(&o);
	o = smi_of(1, 2, working);
	assert_int_equal(loud(o.v), 0);
	done(&o);
	o = smi_of(1, 3, spinning); /* two, and they can */
	assert_non_null(strstr(find(o.v, "gpu.util_lies")->title, "wait in a collective"));
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

/* Four devices, read 60 times; `column` of device 2 becomes `value` in the middle. */
static struct outcome faulty(const char *column, const char *before, const char *after)
{
	static char text[1 << 15];
	size_t k = (size_t)sprintf(text, "timestamp, index, utilization.gpu [%%], power.draw [W], clocks.sm [MHz], %s\n", column);

	for (int i = 0; i < 240; i++)
		k += (size_t)sprintf(text + k, "2026/03/01 10:%02d:%02d.000, %d, 97 %%, %d W, 1980 MHz, %s\n", i / 4 / 60,
				     i / 4 % 60, i % 4, 650 + i % 7, i % 4 == 2 && i >= 120 ? after : before);
	return judge(feed_text(text, "nvidia-smi"));
}

/* What a counter of faults counts has no price here, and is no all-clear either. */
static void counters_that_no_rule_reads_are_told(void **state)
{
	static const struct {
		const char *column, *before, *after, *told; /* NULL: nothing to be told of */
	} rows[] = {
		{ "ecc.errors.uncorrected.volatile.total", "0", "1", "memory errors that ECC could not correct" },
		{ "ecc.errors.corrected.volatile.total", "0", "17", "memory errors that ECC corrected" },
		{ "ecc.errors.corrected.aggregate.total", "5", "5", NULL }, /* long ago */
		{ "retired_pages.pending", "No", "Yes", "pages of device memory that wait to be retired" },
		{ "retired_pages.pending", "No", "No", NULL },
		{ "remapped_rows.uncorrectable", "0", "1", "rows of device memory that were remapped" },
		{ "clocks_event_reasons.active", "0x0000000000000000", "0x0000000000000002",
		  "clocks that a setting holds down" },
		{ "clocks_event_reasons.active", "0x0000000000000000", "0x0000000000000001", NULL },
		{ "fan.speed [%]", "30 %", "80 %", NULL },
		{ "new.thing", "1", "2", "what some counters say" },
		{ "new.thing", "1", "1", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = faulty(rows[i].column, rows[i].before, rows[i].after);

		assert_int_equal(loud(o.v), 0);
		if (!rows[i].told != !o.v->not_judged ||
		    (rows[i].told && !strstr(o.v->not_judged, rows[i].told)))
			fail_msg("%s: %s", rows[i].column, o.v->not_judged ? o.v->not_judged : "nothing");
		if (rows[i].told)
			assert_true(has_limit(o.v, rows[i].told));
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_limit_that_came_down_is_a_throttle),
		cmocka_unit_test(a_power_cap_under_heavy_work_is_normal),
		cmocka_unit_test(the_clock_of_an_idle_device_is_no_loss),
		cmocka_unit_test(a_lower_clock_without_a_reason_is_said_to_have_none),
		cmocka_unit_test(cards_of_all_makes_spin_at_little_power),
		cmocka_unit_test(one_device_is_named_only_where_it_stands_apart),
		cmocka_unit_test(counters_tell_spinning_and_throttled_devices),
		cmocka_unit_test(a_clock_that_comes_down_at_less_power),
		cmocka_unit_test(a_device_alone_waits_for_no_other),
		cmocka_unit_test(no_device_is_left_out),
		cmocka_unit_test(counters_that_no_rule_reads_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
