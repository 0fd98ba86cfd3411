/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

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
	assert_string_equal(feed_meta(t, "join.query.csv.how"), "zone");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clocks_decide_where_both_know_the_wall_clock),
		cmocka_unit_test(collectives_then_steps_decide_where_no_clock_does),
		cmocka_unit_test(local_times_find_their_zone_by_overlap),
		cmocka_unit_test(what_has_no_times_is_put_at_the_start_and_said_so),
		cmocka_unit_test(files_of_one_run_share_processes_and_state_how_they_were_joined),
		cmocka_unit_test(ranks_without_pids_stay_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
