/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "base/alloc.h"
#include "base/map.h"
#include "feed_trace.h"
#include "import/join.h"
#include "import/source/frame.h"
#include "import/source/stamp.h"
#include "store/lag_write.h"

#define S INT64_C(1000000000)
#define EPOCH (INT64_C(1700000000) * S)

static struct lg_trace *seal(struct lg_builder *b)
{
	struct lg_trace *t;

	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static struct lg_builder *new_trace(void)
{
	struct lg_builder *b;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	return b;
}

static void add_steps(struct lg_builder *b, lg_thr thr, int64_t first, int64_t number, int n, int64_t jitter)
{
	for (int i = 0; i < n; i++)
		lg_add_span(b, &(struct lg_span_row){ .ts = first + i * S + (i % 2 ? jitter : 0),
			       .dur = S / 2,
						      .thr = thr, .kind = LG_SPAN_STEP, .seq = number + i,
						      .name = lg_intern(b, "step") });
}

static void add_collectives(struct lg_builder *b, lg_thr thr, int64_t end, int n)
{
	for (int i = 0; i < n; i++)
		lg_add_span(b, &(struct lg_span_row){ .ts = end + i * S - 1000, .dur = 1000, .thr = thr,
						      .kind = LG_SPAN_COLLECTIVE, .seq = i,
						      .group = lg_intern(b, "0"), .name = lg_intern(b, "ar") });
}

/* A recording: its own clock, and the wall clock at one moment. */
static struct lg_builder *recording(int64_t mono, int64_t wall)
{
	struct lg_builder *b = new_trace();

	lg_add_clock(b, &(struct lg_clock_row){ .ts = mono, .value = wall, .clock = CLOCK_REALTIME,
		       .error = 50 });
	return b;
}

static struct lg_join join(const struct lg_trace *ref, const struct lg_trace *t)
{
	struct lg_join j;

	assert_int_equal(lg_join_find(ref, t, &j, NULL), 0);
	return j;
}

static void clocks_decide_where_both_know_the_wall_clock(void **state)
{
	struct lg_builder *a = recording(5 * S, EPOCH), *b = new_trace();
	struct lg_trace *x, *y;
	struct lg_join j;

	(void)state;
	add_steps(a, lg_thread_get(a, 7, 7), 5 * S, 0, 5, 0);
	add_steps(b, lg_thread_get(b, 8, 8), EPOCH + S, 0, 5, 0); /* other steps: the clock wins */
	lg_time_base(b, LG_TIME_REALTIME, EPOCH, 100, "t");
	x = seal(a);
	y = seal(b);
	j = join(x, y);
	assert_string_equal(j.how, "clocks");
	assert_int_equal(y->first + j.offset, 6 * S);
	assert_int_equal(j.error, 150);
	assert_true(j.sure);
	lg_trace_free(x);
	lg_trace_free(y);
}

static void collectives_then_steps_decide_where_no_clock_does(void **state)
{
	struct lg_builder *a = new_trace(), *b = new_trace(), *c = new_trace();
	struct lg_trace *x, *y, *z;
	struct lg_join j;

	(void)state;
	lg_time_base(a, LG_TIME_RELATIVE, 0, 0, "");
	lg_time_base(b, LG_TIME_RELATIVE, 0, 0, "");
	lg_time_base(c, LG_TIME_RELATIVE, 0, 0, "");
	add_collectives(a, lg_thread_get(a, 7, 7), 100 * S, 10);
	add_steps(a, lg_thread_get(a, 7, 7), 90 * S, 5, 10, 0);
	add_collectives(b, lg_thread_get(b, 7, 7), 40 * S, 10);
	add_steps(b, lg_thread_get(b, 7, 7), 90 * S, 5, 10, 0); /* would say 0 */
	add_steps(c, lg_thread_get(c, 9, 9), 10 * S, 8, 10, 2000);
	x = seal(a);
	y = seal(b);
	z = seal(c);
	j = join(x, y);
	assert_string_equal(j.how, "collectives");
	assert_int_equal(j.offset, 60 * S);
	assert_int_equal(j.matches, 10);
	j = join(x, z);
	assert_string_equal(j.how, "steps");
	assert_in_range(j.offset, 83 * S - 2000, 83 * S); /* step 8 lies at 93 s and at 10 s */
	assert_int_equal(j.matches, 7);
	assert_in_range(j.error, 1, 2001);
	lg_trace_free(x);
	lg_trace_free(y);
	lg_trace_free(z);
}

static struct lg_trace *local_log(int64_t printed, int64_t length)
{
	struct lg_builder *b = new_trace();

	for (int64_t at = 0; at <= length; at += S)
		lg_add_mark(b, &(struct lg_mark_row){ .ts = printed + at, .name = lg_intern(b, "m") });
	lg_time_base(b, LG_TIME_LOCAL, printed, S, "log");
	return seal(b);
}

static void local_times_find_their_zone_by_overlap(void **state)
{
	struct lg_builder *a = recording(5 * S, EPOCH);
	struct lg_trace *x, *y;
	struct lg_join j;

	(void)state;
	add_steps(a, lg_thread_get(a, 7, 7), 5 * S, 0, 20, 0);
	x = seal(a);
	y = local_log(EPOCH - 7 * 3600 * S + 2 * S, 10 * S); /* UTC-7 */
	j = join(x, y);
	assert_string_equal(j.how, "zone");
	assert_true(j.sure);
	assert_int_equal(y->first + j.offset, 7 * S);
	lg_trace_free(y);
	y = local_log(EPOCH + (5 * 3600 + 2700) * S + 2 * S, 10 * S); /* Nepal: +5:45 */
	j = join(x, y);
	assert_true(j.sure);
	assert_int_equal(y->first + j.offset, 7 * S);
	lg_trace_free(y);
	y = local_log(EPOCH - 4 * 86400 * S, 10 * S); /* another day: no zone helps */
	j = join(x, y);
	assert_false(j.sure);
	lg_trace_free(y);
	y = local_log(EPOCH - 3 * 3600 * S, 6 * 3600 * S); /* six hours of log: many zones fit */
	j = join(x, y);
	assert_false(j.sure);
	assert_true(j.error >= 3600 * S);
	lg_trace_free(y);
	lg_trace_free(x);
}

static void what_has_no_times_is_put_at_the_start_and_said_so(void **state)
{
	struct lg_builder *a = recording(5 * S, EPOCH), *b = new_trace();
	struct lg_trace *x, *y;
	struct lg_join j;

	(void)state;
	add_steps(a, lg_thread_get(a, 7, 7), 5 * S, 0, 20, 0);
	lg_add_mark(b, &(struct lg_mark_row){ .ts = 0, .name = lg_intern(b, "m") });
	lg_time_base(b, LG_TIME_NONE, 0, 0, "");
	x = seal(a);
	y = seal(b);
	j = join(x, y);
	assert_string_equal(j.how, "start");
	assert_false(j.sure);
	assert_int_equal(j.offset, x->first);
	assert_true(lg_join_rank(x) < lg_join_rank(y));
	lg_trace_free(x);
	lg_trace_free(y);
}

/* explain run.lag _dump_0.pickle gpu.csv: one run */
static void files_of_one_run_share_processes_and_state_how_they_were_joined(void **state)
{
	struct lg_builder *b = recording(5 * S, INT64_C(1758581237) * S);
	char lag[64] = "/tmp/laggard-join-XXXXXX";
	const char *paths[3];
	struct lg_import_info info[3];
	struct lg_process_row row;
	struct lg_trace *t;
	lg_thr thr = lg_thread_get(b, 4711, 4711);
	size_t fr = 0, found = 0;

	(void)state;
	close(mkstemp(lag));
	row = lg_process_read(b, lg_thread_process(b, thr));
	row.rank = 0;
	row.world = 2;
	lg_process_write(b, lg_thread_process(b, thr), &row);
	lg_thread_write(b, thr, &(struct lg_thread_row){ .start = INT64_MIN, .end = INT64_MAX, .tid = 4711,
							 .prc = lg_thread_process(b, thr),
								       .flags = LG_THREAD_MAIN });
	lg_meta_set(b, 0, "host.name", "nodeA");
	add_steps(b, thr, 5 * S, 0, 20, 0);
	t = seal(b);
	assert_int_equal(lg_lag_save(t, lag, NULL), 0);
	lg_trace_free(t);
	paths[0] = feed_path("smi/query.csv"); /* the worst clock comes first on the command line */
	paths[1] = feed_path("flightrec/_dump_0.pickle");
	paths[2] = lag;
	assert_int_equal(lg_import(paths, 3, &t, info, NULL), 0);
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.kind[i] == LG_SPAN_COLLECTIVE) {
			assert_int_equal(t->process.pid[t->thread.prc[t->span.thr[i]]], 4711);
			assert_int_equal(t->thread.tid[t->span.thr[i]], 4711);
			fr++;
		}
	assert_int_equal(fr, 4);
	for (size_t i = 1; i < t->process.n; i++)
		found += t->process.rank[i] == 0;
	assert_int_equal(found, 1);
	assert_string_equal(feed_meta(t, "join._dump_0.pickle.how"), "clocks");
	/* Eleven days later nvidia-smi saw another run. */
	assert_non_null(strstr(info[0].left_out, "days after "));
	assert_string_equal(feed_meta(t, "join.query.csv.how"), "");
	assert_int_equal(t->counter.n, 0);
	unlink(lag);
	lg_trace_free(t);
}

/* Two dumps are two ranks, though neither numbers its process. */
static void ranks_without_pids_stay_apart(void **state)
{
	const char *paths[2] = { feed_path("flightrec/_dump_0.pickle"), feed_path("flightrec/_dump_1.pickle") };
	struct lg_import_info info[2];
	struct lg_trace *t;

	(void)state;
	assert_int_equal(lg_import(paths, 2, &t, info, NULL), 0);
	assert_int_equal(t->process.n, 3);
	assert_int_equal(t->process.rank[1] + t->process.rank[2], 1);
	assert_int_equal(t->thread.n, 3);
	lg_trace_free(t);
}

/* ---- without numbers ---- */

enum { N_COLLECTIVES = 120 };

/* All-reduces that two ranks see end together, but for some microseconds; 0 = as regular as a clock. */
static struct lg_trace *rank_of(int64_t clock, int from, int to, int rank, int64_t irregular, bool optimizer)
{
	struct lg_builder *b = new_trace();
	lg_thr thr = lg_thread_get(b, 40 + rank, 40 + rank);
	int64_t at = EPOCH;

	for (int i = 0; i < to; i++) {
		int64_t own = (int64_t)(lg_mix64((uint64_t)(i * 2 + rank)) % 8000);
		int64_t dur = 300000 + (int64_t)(lg_mix64((uint64_t)i + 999) % 200000);

		at += 5000000 + (irregular ? (int64_t)(lg_mix64((uint64_t)i) % (uint64_t)irregular) : 0);
		if (i < from || (rank && i % 37 == 5)) /* a profiler may lack some */
			continue;
		lg_add_span(b, &(struct lg_span_row){ .ts = clock + at + own - dur, .dur = dur, .thr = thr,
						      .kind = optimizer ? LG_SPAN_STAGE : LG_SPAN_COLLECTIVE,
						      .stage = optimizer ? LG_STAGE_OPTIMIZER : 0, .seq = -1,
						      .name = lg_intern(b, optimizer ? "step" : "all_reduce") });
	}
	return seal(b);
}

static void ends_that_come_together_tell_two_clocks_apart(void **state)
{
	struct lg_trace *a = rank_of(0, 0, N_COLLECTIVES, 0, 3000000, false), *b;
	struct lg_join j = { 0 };

	(void)state;
	/* Ahead by three seconds, and recorded from another step on. */
	b = rank_of(3 * S, 20, N_COLLECTIVES + 30, 1, 3000000, false);
	assert_int_equal(lg_join_by_ends(a, b, &j), 1);
	assert_string_equal(j.how, "collectives");
	assert_true(llabs(j.offset + 3 * S) <= 8000);
	assert_in_range(j.error, 1, 8001);
	assert_in_range(j.matches, 80, 100);
	lg_trace_free(b);
	/* The same with optimizer steps. */
	lg_trace_free(a);
	a = rank_of(0, 0, N_COLLECTIVES, 0, 3000000, true);
	b = rank_of(-7 * S, 30, 60, 1, 3000000, true);
	assert_int_equal(lg_join_by_ends(a, b, &j), 0);
	assert_int_equal(lg_join_by_optimizer(a, b, &j), 1);
	assert_true(llabs(j.offset - 7 * S) <= 8000);
	lg_trace_free(b);
	lg_trace_free(a);
}

static void what_is_alike_everywhere_is_not_guessed(void **state)
{
	struct lg_trace *a = rank_of(0, 0, N_COLLECTIVES, 0, 0, false), *b;
	struct lg_join j = { 0 };

	(void)state;
	b = rank_of(3 * S, 20, N_COLLECTIVES, 1, 0, false); /* every 5 ms: any of them may be the first */
	assert_int_equal(lg_join_by_ends(a, b, &j), 0);
	lg_trace_free(b);
	b = rank_of(3 * S, 20, 30, 1, 3000000, false); /* too few */
	assert_int_equal(lg_join_by_ends(a, b, &j), 0);
	lg_trace_free(b);
	lg_trace_free(a);
	/* Other steps of the same job: nothing in common. */
	a = rank_of(0, 0, 60, 0, 3000000, false);
	b = rank_of(0, 60, 120, 1, 3000000, false);
	assert_int_equal(lg_join_by_ends(a, b, &j), 0);
	lg_trace_free(a);
	lg_trace_free(b);
}

/* Local times, or UTC: one step of a second. */
static struct lg_trace *dated(enum lg_time_base base, int64_t at, int guessed)
{
	struct lg_builder *b = new_trace();

	lg_time_base(b, base, at, 50, "log");
	if (guessed)
		lg_meta_set(b, 0, "import.year", "guessed");
	add_steps(b, lg_thread_get(b, 1, 1), at, 0, 2, 0);
	return seal(b);
}

static void what_is_of_another_time_is_known_to_be(void **state)
{
	static const struct {
		enum lg_time_base a, b;
		int64_t days;
		int guessed, apart;
	} cases[] = {
		{ LG_TIME_REALTIME, LG_TIME_REALTIME, 0, 0, 0 },
		{ LG_TIME_REALTIME, LG_TIME_REALTIME, 30, 0, 30 },
		{ LG_TIME_REALTIME, LG_TIME_REALTIME, -30, 0, -30 },
		{ LG_TIME_REALTIME, LG_TIME_LOCAL, -200, 0, -199 }, /* the nearest zone's */
		{ LG_TIME_REALTIME, LG_TIME_LOCAL, 0, 0, 0 },
		{ LG_TIME_LOCAL, LG_TIME_LOCAL, 3, 0, 3 },
		{ LG_TIME_LOCAL, LG_TIME_LOCAL, 300, 1, 0 }, /* a year that nobody told */
		{ LG_TIME_REALTIME, LG_TIME_RELATIVE, 300, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_trace *a = dated(cases[i].a, EPOCH, 0);
		struct lg_trace *b = dated(cases[i].b, EPOCH + cases[i].days * 86400 * S, cases[i].guessed);
		struct lg_join j = join(a, b);

		assert_int_equal((j.apart + (j.apart < 0 ? -1 : 1) * 43200 * S) / (86400 * S),
				 cases[i].apart);
		assert_int_equal(j.apart != 0, cases[i].apart != 0);
		lg_trace_free(a);
		lg_trace_free(b);
	}
}

static void no_memory_is_an_error_and_leaks_nothing(void **state)
{
	const char *paths[3] = { feed_path("flightrec/_dump_0.pickle"), feed_path("torchlog/steps.log"),
				 feed_path("smi/query.csv") };
	struct lg_trace *a = rank_of(0, 0, 40, 0, 3000000, false), *b = rank_of(S, 0, 40, 1, 3000000, false);
	struct lg_import_info info[3];
	struct lg_error err;
	struct lg_trace *t, *whole;
	uint64_t n = 0, made;
	int rc;

	(void)state;
	do {
		struct lg_join j;

		lg_alloc_fail_at(++n);
		rc = lg_join_find(a, b, &j, &err);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		assert_int_equal(rc, made < n ? 0 : LG_E_NOMEM);
	} while (rc);
	lg_trace_free(a);
	lg_trace_free(b);
	assert_int_equal(lg_import(paths, 3, &whole, info, &err), 0);
	n = 0;
	do {
		lg_alloc_fail_at(++n);
		rc = lg_import(paths, 3, &t, info, &err);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		/* A file that could not be read for want of memory may be called a short one. */
		if (rc) {
			assert_true(err.code && *err.message);
			continue;
		}
		/* Who asked in vain whether a file is its own does without; nobody loses a row. */
		assert_int_equal(t->span.n, whole->span.n);
		assert_int_equal(t->counter.n, whole->counter.n);
		assert_int_equal(t->process.n, whole->process.n);
		lg_trace_free(t);
	} while (made >= n);
	lg_trace_free(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clocks_decide_where_both_know_the_wall_clock),
		cmocka_unit_test(collectives_then_steps_decide_where_no_clock_does),
		cmocka_unit_test(local_times_find_their_zone_by_overlap),
		cmocka_unit_test(what_has_no_times_is_put_at_the_start_and_said_so),
		cmocka_unit_test(files_of_one_run_share_processes_and_state_how_they_were_joined),
		cmocka_unit_test(ranks_without_pids_stay_apart),
		cmocka_unit_test(ends_that_come_together_tell_two_clocks_apart),
		cmocka_unit_test(what_is_alike_everywhere_is_not_guessed),
		cmocka_unit_test(what_is_of_another_time_is_known_to_be),
		cmocka_unit_test(no_memory_is_an_error_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
