/* SPDX-License-Identifier: Apache-2.0 */
/* test_counter_floors.c - from which readings on a device is said to be throttled, or to spin (floor.h). */
#include "floor.h"

struct reading {
	double util, power, clock, reasons; /* clock: 0 = not read */
	double mem, limit;                  /* likewise */
};

/* What devices read that work; the first readings are at rest. */
static const struct reading at_rest = { 0, 70, 300, 0, 0, 0 }, at_work = { 97, 420, 1700, 0, 0, 0 };
enum { AT_REST = 60, HOT = 0x40, CAPPED = 0x4 };

static void counter(struct lg_builder *b, lg_trk gpu, const char *name, int64_t ts, double value)
{
	lg_trk k = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER, .parent = gpu,
							   .index = -1, .name = lg_intern(b, name) });

	lg_add_counter(b, &(struct lg_counter_row){ .ts = ts, .track = k, .value = value });
}

/* `rest` and n readings of each of `gpus`; of() says the k-th of those at work. */
static struct lg_trace *table_after(int rest, int gpus, int n,
				    struct reading (*of)(int gpu, int k, int64_t x), int64_t x)
{
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int g = 0; g < gpus; g++) {
		lg_trk gpu = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .index = g,
								     .name = lg_intern(b, "GPU") });

		for (int i = 0; i < rest + n; i++) {
			struct reading r = i < rest ? at_rest : of(g, i - rest, x);

			counter(b, gpu, "gpu.util", i * 100 * MS, r.util);
			counter(b, gpu, "gpu.power", i * 100 * MS, r.power);
			if (r.clock > 0)
				counter(b, gpu, "gpu.clock_sm", i * 100 * MS, r.clock);
			if (r.mem > 0)
				counter(b, gpu, "gpu.mem_util", i * 100 * MS, r.mem);
			if (r.limit > 0)
				counter(b, gpu, "gpu.power_limit", i * 100 * MS, r.limit);
			counter(b, gpu, "gpu.throttle", i * 100 * MS, r.reasons);
		}
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static struct lg_trace *table(int gpus, int n, struct reading (*of)(int gpu, int k, int64_t x), int64_t x)
{
	return table_after(AT_REST, gpus, n, of, x);
}

/* Evenly: x of each thousand. */
static bool among(int k, int64_t x)
{
	return (k + 1) * x / 1000 > k * x / 1000;
}

/* ---- throttled ---- */

static struct reading slowed_by(double reasons)
{
	return (struct reading){ .util = 97, .power = 300, .clock = 1100, .reasons = reasons };
}

static struct reading hot_now_and_then(int gpu, int k, int64_t x)
{
	return gpu == 1 && among(k, x) ? slowed_by(HOT) : at_work;
}

static struct lg_trace *hot(int64_t x)
{
	return table(3, 2000, hot_now_and_then, x);
}

static struct reading all_hot(int gpu, int k, int64_t x)
{
	(void)gpu;
	return k < x ? slowed_by(HOT) : at_rest;
}

static struct lg_trace *few_hot(int64_t x)
{
	return table(1, 100, all_hot, x);
}

static struct reading capped_now_and_then(int gpu, int k, int64_t x)
{
	return gpu == 1 && among(k, x) ? slowed_by(CAPPED) : at_work;
}

static struct lg_trace *capped(int64_t x)
{
	return table(3, 2000, capped_now_and_then, x);
}

static struct reading capped_lower(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	if (gpu == 1 && k % 2) {
		r.reasons = CAPPED;
		r.clock -= r.clock * (double)x / 1000;
	}
	return r;
}

static struct lg_trace *lower_when_capped(int64_t x)
{
	return table(3, 400, capped_lower, x);
}

/* A quarter of the clock is gone, and it draws so much of what it draws uncapped. */
static struct reading capped_drawing(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	if (gpu == 1 && k % 2)
		r = (struct reading){ .util = r.util, .power = r.power * (double)x / 1000,
				      .clock = r.clock * 0.75, .reasons = CAPPED };
	return r;
}

static struct lg_trace *drawing_more(int64_t x)
{
	return table(3, 400, capped_drawing, x);
}

static struct reading slower_one(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)k;
	if (gpu == 1)
		r.clock -= r.clock * (double)x / 1000;
	return r;
}

static struct lg_trace *slower(int64_t x)
{
	return table(3, 400, slower_one, x);
}

/* So many of ten readings in a row. */
static struct reading slower_a_while(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	if (gpu == 1 && k % 10 < x) {
		r.clock *= 0.75;
		r.power *= 0.75;
	}
	return r;
}

static struct lg_trace *slower_again_and_again(int64_t x)
{
	return table(3, 400, slower_a_while, x);
}

/* ---- busy, and nothing done ---- */

static struct reading spins_now_and_then(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	if (among(k, x))
		r.power = 140;
	return r;
}

static struct lg_trace *spinning(int64_t x)
{
	return table(2, 2000 - AT_REST, spins_now_and_then, x * 2000 / (2000 - AT_REST));
}

static struct reading spins_at_first(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	if (k < x)
		r.power = 140;
	return r;
}

static struct lg_trace *few_spinning(int64_t x)
{
	return table(2, 100, spins_at_first, x);
}

static double of_two(int64_t x)
{
	return 2 * (double)x;
}

static struct reading half_busy(int gpu, int k, int64_t x)
{
	(void)gpu;
	return k % 2 ? at_work : (struct reading){ .util = (double)x, .power = 140, .clock = 1700 };
}

static struct lg_trace *half_spinning(int64_t x)
{
	return table(2, 400, half_busy, x);
}

/* Half the time at x watts, the other half at full work. */
static struct reading at_power(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	if (k % 2)
		r.power = (double)x;
	return r;
}

static struct lg_trace *at_watts(int64_t x)
{
	return table(2, 400, at_power, x);
}

static double of_its_range(int64_t x)
{
	return ((double)x - at_rest.power) / (at_work.power - at_rest.power);
}

/* The same where none ever does full work: only beside rest it is little. */
static struct reading never_full(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	r.power = k % 2 ? (double)x : 250;
	return r;
}

static struct lg_trace *never_at_full(int64_t x)
{
	return table(2, 400, never_full, x);
}

static double of_rest(int64_t x)
{
	return (double)x / at_rest.power;
}

/* One that works alone waits for no other: less power is asked for before it counts as spinning. */
static struct lg_trace *alone_at_watts(int64_t x)
{
	return table(1, 400, at_power, x);
}

/* Half the time at little power and x percent of the memory's time. */
static struct reading at_memory(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	r.mem = k % 2 ? (double)x : 60;
	if (k % 2)
		r.power = 140;
	return r;
}

static struct lg_trace *busy_memory(int64_t x)
{
	return table(2, 400, at_memory, x);
}

/* Half the time at a third of its power, alone, with a memory that is used so little. */
static struct reading hardly_fed(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	r.mem = k % 2 ? (double)x : 60;
	if (k % 2)
		r.power = at_rest.power + 0.3 * (at_work.power - at_rest.power);
	return r;
}

static struct lg_trace *alone_with_memory(int64_t x)
{
	return table(1, 400, hardly_fed, x);
}

/* Half the time at little power, and at so much of the clock. */
static struct reading at_clock(int gpu, int k, int64_t x)
{
	struct reading r = at_work;

	(void)gpu;
	if (k % 2) {
		r.power = 140;
		r.clock *= (double)x / 1000;
	}
	return r;
}

static struct lg_trace *at_lower_clock(int64_t x)
{
	return table(2, 400, at_clock, x);
}

/* Never at rest: half the time at x watts, the other half at full work. */
static struct lg_trace *never_at_rest(int64_t x)
{
	return table_after(0, 2, 400, at_power, x);
}

static double full_to_that(int64_t x)
{
	return at_work.power / (double)x;
}

/* The same with a limit of 400 W that is known. */
static struct reading with_limit(int gpu, int k, int64_t x)
{
	struct reading r = at_power(gpu, k, x);

	r.limit = 400;
	return r;
}

static struct lg_trace *limited(int64_t x)
{
	return table_after(0, 2, 400, with_limit, x);
}

/* A tenth of it, and 35 % of the way from there. */
static double of_400_watts(int64_t x)
{
	return (double)x / 400;
}

static const struct floor floors[] = {
	{ "gpu.throttled", 0.05, 0.0515, { .made = hot }, 5, .told = 500, .truth = per_mille, .says = "is throttled" },
	{ "gpu.throttled", 30, 30, { .made = few_hot }, 5, .told = 90, .truth = as_it_is },
	{ "gpu.throttled", 0.05, 0.0515, { .made = capped }, 20, .told = 500, .truth = per_mille, .says = "power" },
	{ "gpu.throttled", 0.10, 0.102, { .made = lower_when_capped }, 5, .told = 500, .truth = per_mille, .says = "power",
	  .others = true },
	{ "gpu.throttled", 1.09, 1.101, { .made = drawing_more }, 1500, .told = 900, .truth = per_mille, .says = "power",
	  .others = true },
	{ "gpu.throttled", 0.0999, 0.102, { .made = slower }, 5, .told = 500, .truth = per_mille },
	{ "gpu.throttled", 5, 5, { .made = slower_again_and_again }, 1, .told = 8, .truth = as_it_is, .others = true },
	{ "gpu.util_lies", 0.03, 0.031, { .made = spinning }, 5, .told = 500 },
	{ "gpu.util_lies", 0.10, 0.102, { .made = spinning }, 5, .told = 500, .loudly = true },
	{ "gpu.util_lies", 30, 30, { .made = few_spinning }, 5, .told = 60, .truth = of_two },
	{ "gpu.util_lies", 90, 90, { .made = half_spinning }, 20, .told = 99, .truth = as_it_is },
	{ "gpu.util_lies", 0.345, 0.35, { .made = at_watts }, 400, .told = 100, .truth = of_its_range },
	/* 35 % of the way from rest to 4.5 times rest */
	{ "gpu.util_lies", 2.2, 2.225, { .made = never_at_full }, 240, .told = 100, .truth = of_rest },
	{ "gpu.util_lies", 0.245, 0.25, { .made = alone_at_watts }, 400, .told = 80, .truth = of_its_range },
	{ "gpu.util_lies", 4, 4, { .made = alone_with_memory }, 60, .told = 1, .truth = as_it_is },
	{ "gpu.util_lies", 29, 29, { .made = busy_memory }, 90, .told = 2, .truth = as_it_is },
	{ "gpu.util_lies", 0.7, 0.705, { .made = at_lower_clock }, 200, .told = 1000, .truth = per_mille },
	{ "gpu.util_lies", 4.5, 4.6, { .made = never_at_rest }, 300, .told = 40, .truth = full_to_that },
	{ "gpu.util_lies", 0.41, 0.415, { .made = limited }, 390, .told = 60, .truth = of_400_watts },
};

static struct outcome at(const struct floor *f, int64_t x)
{
	return judge(f->made(x));
}

static void told_from_its_threshold_on(void **state)
{
	(void)state;
	floors_judge(floors, sizeof floors / sizeof *floors, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_from_its_threshold_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
