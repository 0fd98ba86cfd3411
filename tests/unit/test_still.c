/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that do not go on, and memory that does: no healthy runs, though no rule accuses anybody. In ms. */
#include "outcome.h"
#include "store/builder.h"

enum { PID = 900, STEP = 100 };

struct life {
	int steps_to;   /* the loop runs until then; 0 = never */
	int polls_to;   /* from then on it waits, waking every 10 ms, until then */
	double poll_ms; /* that it runs each time */
	bool marks;
};

static void state_at(struct lg_builder *b, lg_thr thr, double from, double to, uint8_t kind)
{
	struct lg_state_row row = { .ts = (int64_t)(from * MS), .dur = (int64_t)((to - from) * MS),
				    .thr = thr, .kind = kind, .cpu = kind == LG_RUNNING ? 0 : -1 };

	if (kind == LG_BLOCKED) {
		row.reason = LG_WHY_SLEEP;
		row.waker_ctx = LG_CTX_HARDIRQ;
	}
	lg_add_state(b, &row);
}

static struct outcome run(const struct life *l)
{
	struct lg_builder *b;
	struct lg_trace *t;
	lg_thr thr;
	lg_prc p;
	struct lg_process_row row;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	thr = lg_thread_get(b, PID, PID);
	lg_thread_name(b, thr, lg_intern(b, "python3"));
	p = lg_thread_process(b, thr);
	row = lg_process_read(b, p);
	row.role = LG_ROLE_JOB;
	lg_process_write(b, p, &row);
	for (int at = 0; at < l->steps_to; at += STEP) {
		state_at(b, thr, at, at + 0.9 * STEP, LG_RUNNING);
		state_at(b, thr, at + 0.9 * STEP, at + STEP, LG_BLOCKED);
		if (l->marks)
			lg_add_span(b, &(struct lg_span_row){ .ts = at * MS, .dur = STEP * MS, .thr = thr,
							      .kind = LG_SPAN_STEP, .flags = LG_SPAN_HAND });
	}
	for (int at = l->steps_to; at < l->polls_to; at += 10) {
		state_at(b, thr, at, at + l->poll_ms, LG_RUNNING);
		state_at(b, thr, at + l->poll_ms, at + 10, LG_BLOCKED);
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

static void a_poll_is_no_loop_of_steps(void **state)
{
	struct life hung = { .polls_to = 60000, .poll_ms = 0.02 };
	struct life works = { .polls_to = 20000, .poll_ms = 2 };
	struct outcome o = run(&hung);

	(void)state;
	assert_int_equal(o.v->n_steps, 0);
	assert_true(has_limit(o.v, "it polls, these are no steps"));
	assert_non_null(o.v->still);
	assert_non_null(strstr(o.v->still, "did next to nothing in the last 60"));
	done(&o);
	o = run(&works); /* the same rhythm, with work in it */
	assert_true(o.v->n_steps > 1000);
	assert_null(o.v->still);
	assert_false(has_limit(o.v, "polls"));
	done(&o);
}

static void a_run_that_ended_long_before_its_recording_stands_still(void **state)
{
	struct life hung = { .steps_to = 20000, .polls_to = 60000, .poll_ms = 0.02, .marks = true };
	struct life saves = { .steps_to = 20000, .polls_to = 60000, .poll_ms = 5, .marks = true };
	struct life soon = { .steps_to = 20000, .polls_to = 45000, .poll_ms = 0.02, .marks = true };
	struct outcome o = run(&hung);

	(void)state;
	assert_true(o.v->n_judged > 150);
	assert_non_null(o.v->still);
	assert_non_null(strstr(o.v->still, "began no step in the last 40 s"));
	assert_true(has_limit(o.v, "the run stands still"));
	done(&o);
	o = run(&saves); /* busy with something else */
	assert_null(o.v->still);
	done(&o);
	o = run(&soon); /* less than half a minute */
	assert_null(o.v->still);
	done(&o);
}

static void a_process_stands_still_below_two_percent(void **state)
{
	struct life below = { .steps_to = 20000, .polls_to = 60000, .poll_ms = 0.19, .marks = true };
	struct life above = below;
	struct outcome o = run(&below);

	(void)state;
	assert_non_null(o.v->still);
	done(&o);
	above.poll_ms = 0.22;
	o = run(&above);
	assert_null(o.v->still);
	done(&o);
}

/* Two ranks' steps of 100 ms: rank 0 makes 100, rank 1 these, from its first one on. */
static struct outcome two_ranks(int steps, int from)
{
	struct lg_builder *b;
	struct lg_trace *t;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int rank = 0; rank < 2; rank++) {
		lg_thr thr = lg_thread_get(b, PID + rank, PID + rank);
		lg_prc p = lg_thread_process(b, thr);
		struct lg_process_row row = lg_process_read(b, p);

		row.role = LG_ROLE_RANK;
		row.rank = rank;
		lg_process_write(b, p, &row);
		for (int i = 0; i < (rank ? steps : 100); i++)
			lg_add_span(b, &(struct lg_span_row){
				.ts = (i + (rank ? from : 0)) * STEP * MS, .dur = STEP * MS, .seq = i,
				.thr = thr, .kind = LG_SPAN_STEP });
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

static void a_rank_whose_trace_ends_before_the_others_is_told(void **state)
{
	static const struct {
		int steps, from;
		bool told;
	} rows[] = {
		{ 40, 0, true }, { 8, 0, true }, { 89, 0, true }, { 100, 0, false }, { 92, 0, false },
		{ 7, 0, false },   /* too few to know their pace */
		{ 40, 40, false }, /* in the midst of the others': as it was asked for */
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = two_ranks(rows[i].steps, rows[i].from);

		if (rows[i].told != (o.v->not_judged && strstr(o.v->not_judged, "why rank 1 tells of no step") != NULL))
			fail_msg("row %zu: %s", i, o.v->not_judged ? o.v->not_judged : "silent");
		assert_int_equal(has_limit(o.v, "why rank 1 tells of no step"), rows[i].told);
		done(&o);
	}
}

/* of 64 readings; bend: from there on it stays as it is. */
static struct outcome memory(double mb_a_reading, int bend)
{
	struct lg_builder *b;
	struct lg_trace *t;
	lg_trk k;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	k = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER, .name = lg_intern(b, "gpu.mem_used"),
						    .unit = lg_intern(b, "bytes"), .index = 3 });
	for (int i = 0; i < 64; i++)
		lg_add_counter(b, &(struct lg_counter_row){ .ts = i * 1000 * MS, .track = k,
			.value = 1e9 + 1e6 * mb_a_reading * (i < bend ? i : bend) });
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

static void memory_that_grows_to_the_end_is_not_passed_over(void **state)
{
	static const struct {
		double mb;
		int bend;
		bool told;
	} rows[] = { { 5, 64, true }, { 2.2, 64, true }, { 1.8, 64, false }, { 50, 20, false },
		     { -5, 64, false } };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = memory(rows[i].mb, rows[i].bend);

		if (rows[i].told != (o.v->not_judged && strstr(o.v->not_judged, "memory that grows") != NULL))
			fail_msg("row %zu: %s", i, o.v->not_judged ? o.v->not_judged : "silent");
		assert_int_equal(has_limit(o.v, "gpu.mem_used of device 3"), rows[i].told);
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_poll_is_no_loop_of_steps),
		cmocka_unit_test(a_run_that_ended_long_before_its_recording_stands_still),
		cmocka_unit_test(a_process_stands_still_below_two_percent),
		cmocka_unit_test(a_rank_whose_trace_ends_before_the_others_is_told),
		cmocka_unit_test(memory_that_grows_to_the_end_is_not_passed_over),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
