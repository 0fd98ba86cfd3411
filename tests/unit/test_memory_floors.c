/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_floors.c - from where on the memory of a device is worth a finding (floor.h). */
#include "floor.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
enum { STEPS = 20, WARM_UP = STEPS / 5 };

struct made {
	struct lg_builder *b;
	lg_trk gpu, allocator;
	lg_thr thr;
	int64_t allocated, reserved;
	uint64_t top;
};

static struct made begin(void)
{
	struct made m = { .top = (uint64_t)1 << 44 };
	lg_prc prc;

	assert_int_equal(lg_builder_new(&m.b, NULL), 0);
	prc = lg_process_add(m.b, &(struct lg_process_row){ .start = INT64_MIN,
							    .end = INT64_MAX,
							    .pid = -1,
							    .rank = -1,
							    .local_rank = -1 });
	m.thr = lg_thread_add(m.b, &(struct lg_thread_row){ .start = INT64_MIN,
							    .end = INT64_MAX,
							    .tid = -1,
							    .prc = prc,
							    .flags = LG_THREAD_MAIN });
	m.gpu = lg_track_get(m.b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
							  .prc = prc,
							  .name = lg_intern(m.b, "GPU 0") });
	m.allocator = lg_track_get(m.b, &(struct lg_track_row){ .kind = LG_TRACK_MEMORY,
								.parent = m.gpu,
								.prc = prc,
								.name = lg_intern(m.b, "allocator") });
	return m;
}

static lg_stk place(struct made *m, const char *function)
{
	lg_frm f =
		lg_intern_frame(m->b, &(struct lg_frame_row){ .kind = LG_FRAME_PYTHON,
							      .line = 5,
							      .name = lg_intern(m->b, function),
							      .file = lg_intern(m->b, "/job/train.py"),
							      .dso = lg_intern(m->b, "[python]") });

	return lg_intern_stack(m->b, 0, f);
}

static void row(struct made *m, const char *name, int64_t ts, int64_t dur, uint64_t at, int64_t bytes,
		lg_stk stack)
{
	lg_add_span(m->b, &(struct lg_span_row){ .ts = ts,
						 .dur = dur,
						 .track = m->allocator,
						 .kind = LG_SPAN_MEMORY,
						 .name = lg_intern(m->b, name),
						 .bytes = (uint64_t)bytes,
						 .object = at,
						 .stack = stack });
}

static void count(struct made *m, const char *name, int64_t ts, int64_t value)
{
	lg_trk k = lg_track_get(m->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
							      .parent = m->gpu,
							      .name = lg_intern(m->b, name),
							      .unit = lg_intern(m->b, "bytes") });

	lg_add_counter(m->b, &(struct lg_counter_row){ .ts = ts, .track = k, .value = (double)value });
}

/* A segment of its own for an allocation, which lives from ts on for dur; it is told as a block where
 * it stays. */
static void lives(struct made *m, int64_t ts, int64_t dur, int64_t bytes, int64_t room, lg_stk stack)
{
	uint64_t at = m->top;

	m->top += (uint64_t)(room + GIB);
	row(m, "segment", STEPS * 100 * MS, 0, at, room, 0);
	m->reserved += room;
	if (!bytes)
		return;
	row(m, "alloc", ts, dur, at, bytes, stack);
	if (dur < 0)
		row(m, "block.active_allocated", STEPS * 100 * MS, 0, at, bytes, stack);
	m->allocated += bytes;
	count(m, "memory allocated", ts, m->allocated);
}

static void steps(struct made *m, int64_t from, int64_t n)
{
	for (int64_t i = from; i < from + n; i++)
		lg_add_span(m->b, &(struct lg_span_row){ .ts = i * 100 * MS,
							 .dur = 90 * MS,
							 .thr = m->thr,
							 .seq = i,
							 .kind = LG_SPAN_STEP,
							 .name = lg_intern(m->b, "ProfilerStep") });
}

static struct lg_trace *end(struct made *m)
{
	struct lg_trace *t;

	count(m, "memory reserved", 0, m->reserved);
	assert_int_equal(lg_builder_seal(m->b, &t, NULL), 0);
	return t;
}

/* ---- a request that fails, and x steps after it ---- */

static struct lg_trace *caught(int64_t x)
{
	struct made m = begin();

	lives(&m, 0, -1, GIB, GIB, place(&m, "build"));
	steps(&m, 0, 6 + x);
	row(&m, "oom", 595 * MS, 0, 0, 4 * GIB, place(&m, "forward"));
	return end(&m);
}

/* ---- idle beside what lives ---- */

static struct lg_trace *idle_share(int64_t x)
{
	struct made m = begin();

	lives(&m, MS, -1, 10 * GIB / 1000 * (1000 - x), 10 * GIB, place(&m, "build"));
	return end(&m);
}

static struct lg_trace *idle_mib(int64_t x)
{
	struct made m = begin();

	lives(&m, MS, -1, (600 - x) * MIB, 600 * MIB, place(&m, "build"));
	return end(&m);
}

/* ---- what grows ---- */

/* In each of n steps `grows` stay, `swings` live over every other end of a step, and `shrinks` of
 * before go. */
static struct lg_trace *grown(int64_t n, int64_t base, int64_t grows, int64_t swings, int64_t shrinks)
{
	struct made m = begin();
	lg_stk keep = place(&m, "remember"), other = place(&m, "drop");

	lives(&m, 0, -1, base, base, place(&m, "build"));
	steps(&m, 0, n);
	for (int64_t i = 0; i < n; i++) {
		lives(&m, i * 100 * MS + 10 * MS, -1, grows, grows, keep);
		if (i % 2 && swings)
			lives(&m, i * 100 * MS + 20 * MS, 100 * MS, swings, swings, keep);
		if (shrinks)
			lives(&m, 1 * MS, i * 100 * MS + 30 * MS, shrinks, shrinks, other);
	}
	return end(&m);
}

static struct lg_trace *few_steps(int64_t x)
{
	return grown(x, GIB, 100 * MIB, 0, 0);
}

static double looked_at(int64_t x)
{
	return (double)(x - x / 5 - 1);
}

static struct lg_trace *swinging(int64_t x)
{
	return grown(STEPS, GIB, 100 * MIB, x * MIB, 0);
}

/* How much of the changes a line explains: by the definition, over the steps that are looked at. */
static double fit(int64_t x)
{
	double v[STEPS], mean = 0, line = 0, mx = 0, xx = 0, xy = 0, all = 0, rest = 0;
	int n = STEPS - WARM_UP;

	for (int i = 0; i < n; i++) {
		v[i] = 100.0 * (i + WARM_UP) + ((i + WARM_UP) % 2 ? (double)x : 0);
		mean += v[i] / n;
		mx += (double)i / n;
	}
	for (int i = 0; i < n; i++) {
		xx += (i - mx) * (i - mx);
		xy += (i - mx) * (v[i] - mean);
	}
	for (int i = 0; i < n; i++) {
		line = mean + xy / xx * (i - mx);
		rest += (v[i] - line) * (v[i] - line);
		all += (v[i] - mean) * (v[i] - mean);
	}
	return 1 - rest / all;
}

static struct lg_trace *slow(int64_t x)
{
	return grown(STEPS, 10 * GIB, x * 10000, 0, 0);
}

/* All of it in the steps that are looked at, of what is there at the end. */
static double growth(int64_t x)
{
	double one = (double)x * 10000;

	return one * (STEPS - WARM_UP - 1) / (10.0 * (double)GIB + one * STEPS);
}

static struct lg_trace *one_for_another(int64_t x)
{
	return grown(STEPS, GIB, 100 * MIB, 0, x * MIB);
}

static double of_all(int64_t x)
{
	return 1 - (double)x / 100;
}

/* ---- segments that go and come ---- */

static struct lg_trace *go_and_come(int64_t n, int64_t bytes)
{
	struct made m = begin();

	lives(&m, MS, -1, 10 * GIB, 10 * GIB, place(&m, "build"));
	for (int64_t i = 0; i < n; i++) {
		row(&m, "segment_free", (2 * i + 2) * MS, 0, (uint64_t)GIB, bytes, place(&m, "clean"));
		row(&m, "segment_alloc", (2 * i + 3) * MS, 0, (uint64_t)GIB, bytes,
		    place(&m, "forward"));
	}
	return end(&m);
}

static struct lg_trace *often(int64_t x)
{
	return go_and_come(x, GIB);
}

static struct lg_trace *much(int64_t x)
{
	return go_and_come(10, x * MIB);
}

static double of_reserved(int64_t x)
{
	return (double)x * 10 / (10 * 1024);
}

static const struct floor floors[] = {
	{ "mem.oom", 1, 1, { .made = caught }, 9, .told = 0, .truth = as_it_is, .loudly = true },
	{ "mem.fragmentation",
	  0.20,
	  0.202,
	  { .made = idle_share },
	  30,
	  .told = 600,
	  .truth = per_mille },
	{ "mem.fragmentation", 256, 257, { .made = idle_mib }, 130, .told = 500, .truth = as_it_is },
	{ "mem.leak", 5, 5, { .made = few_steps }, 4, .told = STEPS, .truth = looked_at },
	{ "mem.leak", 0.90, 0.91, { .made = swinging }, 2000, .told = 0, .truth = fit },
	{ "mem.leak", 0.01, 0.0102, { .made = slow }, 10, .told = 10000, .truth = growth },
	{ "mem.leak", 0.50, 0.51, { .made = one_for_another }, 100, .told = 0, .truth = of_all },
	{ "mem.churn", 5, 5, { .made = often }, 1, .told = 9, .truth = as_it_is },
	{ "mem.churn", 0.05, 0.051, { .made = much }, 2, .told = 500, .truth = of_reserved },
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
