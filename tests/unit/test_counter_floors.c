/* SPDX-License-Identifier: Apache-2.0 */
/* test_counter_floors.c - from which readings on a device is said to be throttled, or to spin (floor.h). */
#include "floor.h"

struct reading {
	double util, power, clock, reasons; /* clock: 0 = not read */
};

/* What devices read that work; the first readings are at rest. */
static const struct reading at_rest = { 0, 70, 300, 0 }, at_work = { 97, 420, 1700, 0 };
enum { AT_REST = 60, HOT = 0x40, CAPPED = 0x4 };

static void counter(struct lg_builder *b, lg_trk gpu, const char *name, int64_t ts, double value)
{
	lg_trk k = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER, .parent = gpu,
							   .index = -1, .name = lg_intern(b, name) });

	lg_add_counter(b, &(struct lg_counter_row){ .ts = ts, .track = k, .value = value });
}

/* n readings of each of `gpus`; of() says the k-th of those at work. */
static struct lg_trace *table(int gpus, int n, struct reading (*of)(int gpu, int k, int64_t x), int64_t x)
{
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int g = 0; g < gpus; g++) {
		lg_trk gpu = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .index = g,
								     .name = lg_intern(b, "GPU") });

		for (int i = 0; i < AT_REST + n; i++) {
			struct reading r = i < AT_REST ? at_rest : of(g, i - AT_REST, x);

			counter(b, gpu, "gpu.util", i * 100 * MS, r.util);
			counter(b, gpu, "gpu.power", i * 100 * MS, r.power);
			if (r.clock > 0)
				counter(b, gpu, "gpu.clock_sm", i * 100 * MS, r.clock);
			counter(b, gpu, "gpu.throttle", i * 100 * MS, r.reasons);
		}
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

/* Evenly: x of each thousand. */
static bool among(int k, int64_t x)
{
	return (k + 1) * x / 1000 > k * x / 1000;
}

/* ---- throttled ---- */

static struct reading hot_now_and_then(int gpu, int k, int64_t x)
{
	return gpu == 1 && among(k, x) ? (struct reading){ 97, 300, 1100, HOT } : at_work;
}

static struct lg_trace *hot(int64_t x)
{
	return table(3, 2000, hot_now_and_then, x);
}

static struct reading all_hot(int gpu, int k, int64_t x)
{
	(void)gpu;
	return k < x ? (struct reading){ 97, 300, 1100, HOT } : at_rest;
}

static struct lg_trace *few_hot(int64_t x)
{
	return table(1, 100, all_hot, x);
}

static struct reading capped_now_and_then(int gpu, int k, int64_t x)
{
	return gpu == 1 && among(k, x) ? (struct reading){ 97, 300, 1100, CAPPED } : at_work;
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
		r = (struct reading){ r.util, r.power * (double)x / 1000, r.clock * 0.75, CAPPED };
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
	return k % 2 ? at_work : (struct reading){ (double)x, 140, 1700, 0 };
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

static const struct floor floors[] = {
	{ "gpu.throttled", 0.05, 0.0515, { .made = hot }, 5, .told = 500, .truth = per_mille, .says = "is throttled" },
	{ "gpu.throttled", 30, 30, { .made = few_hot }, 5, .told = 90, .truth = as_it_is },
	{ "gpu.throttled", 0.05, 0.0515, { .made = capped }, 20, .told = 500, .truth = per_mille, .says = "power" },
	{ "gpu.throttled", 0.10, 0.102, { .made = lower_when_capped }, 5, .told = 500, .truth = per_mille, .says = "power",
	  .others = true },
	{ "gpu.throttled", 1.09, 1.101, { .made = drawing_more }, 1500, .told = 900, .truth = per_mille, .says = "power",
	  .others = true },
	{ "gpu.throttled", 0.0999, 0.102, { .made = slower }, 5, .told = 500 },
	{ "gpu.util_lies", 0.03, 0.031, { .made = spinning }, 5, .told = 500 },
	{ "gpu.util_lies", 0.10, 0.102, { .made = spinning }, 5, .told = 500, .loudly = true },
	{ "gpu.util_lies", 30, 30, { .made = few_spinning }, 5, .told = 60, .truth = of_two },
	{ "gpu.util_lies", 90, 90, { .made = half_spinning }, 20, .told = 99, .truth = as_it_is },
	{ "gpu.util_lies", 0.345, 0.35, { .made = at_watts }, 400, .told = 100, .truth = of_its_range },
	/* 35 % of the way from rest to 4.5 times rest */
	{ "gpu.util_lies", 2.2, 2.225, { .made = never_at_full }, 240, .told = 100, .truth = of_rest },
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
