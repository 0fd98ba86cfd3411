/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that hardly ever waits shows no steps: that it was stopped, or had no CPU, is told all the same. */
#include "outcome.h"
#include "store/builder.h"

enum { LOOP = 900, OTHER = 4711, LENGTH = 8000 };

enum held_up { STOPPED, NO_CPU, BY_MANY /* the same, each time another process */,
	       LEFT_OUT /* of a used-up quota: mostly nobody has the CPU */ };

struct loop {
	enum held_up how;
	int n;      /* times */
	int64_t ms; /* each */
	bool named, own, torch, passing; /* passing: each time another, started by OTHER */
};

static void add_state(struct lg_builder *b, lg_thr thr, int64_t from, int64_t to, struct lg_state_row s)
{
	s.ts = from;
	s.dur = to - from;
	s.thr = thr;
	lg_add_state(b, &s);
}

static struct outcome explained(const struct loop *l)
{
	static const int at[] = { 300, 1100, 1500, 2900, 3300, 4900, 6700, 7300 };
	struct lg_frame_row frame = { .pc = 0x10, .kind = LG_FRAME_USER };
	struct lg_builder *b;
	struct lg_trace *t;
	struct lg_process_row row;
	lg_thr thr, other;
	int64_t from = 0;
	lg_stk stk;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	thr = lg_thread_get(b, LOOP, LOOP);
	other = lg_thread_get(b, l->own ? LOOP : OTHER, OTHER);
	row = lg_process_read(b, lg_thread_process(b, thr));
	row.role = l->named ? LG_ROLE_JOB : LG_ROLE_OTHER;
	lg_process_write(b, lg_thread_process(b, thr), &row);
	frame.dso = lg_intern(b, l->torch ? "/x/libtorch_cpu.so" : "/x/libz.so");
	stk = lg_intern_stack(b, 0, lg_intern_frame(b, &frame));
	for (int i = 0; i < l->n; i++) {
		int64_t ts = at[i] * MS, end = ts + l->ms * MS;

		add_state(b, thr, from, ts, (struct lg_state_row){ .kind = LG_RUNNING });
		lg_add_sample(b, &(struct lg_sample_row){ .ts = ts - MS, .thr = thr, .stack = stk,
							  .weight = MS });
		if (l->how == BY_MANY)
			other = lg_thread_get(b, 7000 + i, 7000 + i);
		add_state(b, thr, ts, end, l->how == STOPPED
			  ? (struct lg_state_row){ .kind = LG_BLOCKED, .reason = LG_WHY_STOPPED, .cpu = -1,
						   .waker = other, .waker_ctx = LG_CTX_TASK }
			  : (struct lg_state_row){ .kind = LG_RUNNABLE, .reason = LG_WHY_PREEMPTED });
		if (l->passing) {
			other = lg_thread_get(b, 6000 + i, 6000 + i);
			row = lg_process_read(b, lg_thread_process(b, other));
			row.ppid = OTHER;
			row.start = ts - MS;
			row.end = end + MS;
			lg_process_write(b, lg_thread_process(b, other), &row);
		}
		add_state(b, other, ts, l->how == LEFT_OUT && i % 4 ? ts + 2 * MS : end, l->how == STOPPED
			  ? (struct lg_state_row){ .kind = LG_BLOCKED, .reason = LG_WHY_SLEEP, .cpu = -1 }
			  : (struct lg_state_row){ .kind = LG_RUNNING });
		from = end;
	}
	add_state(b, thr, from, LENGTH * MS, (struct lg_state_row){ .kind = LG_RUNNING });
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

static void what_held_it_up_is_priced_in_the_time_that_was_seen(void **state)
{
	static const struct {
		struct loop l;
		const char *severity; /* NULL = no finding */
		bool told;            /* in the limits */
	} cases[] = {
		{ { STOPPED, 8, 40, true, false, false, false }, "medium", false },
		{ { NO_CPU, 8, 40, true, false, false, false }, "medium", false },
		{ { STOPPED, 8, 150, true, false, false, false }, "high", false },
		{ { NO_CPU, 8, 40, false, false, true, false }, "medium", false }, /* its stacks show that it trains */
		{ { NO_CPU, 8, 40, true, false, false, true }, "medium", false }, /* of one master */
		{ { STOPPED, 8, 40, false, false, false, false }, NULL, true },    /* nothing shows it */
		{ { NO_CPU, 8, 40, false, false, false, false }, NULL, true },
		{ { STOPPED, 4, 80, true, false, false, false }, NULL, true },     /* too few to be graded */
		{ { NO_CPU, 8, 15, true, false, false, false }, NULL, true },      /* too little */
		{ { NO_CPU, 8, 28, true, false, false, false }, NULL, true }, /* 2.8 % */
		{ { NO_CPU, 8, 32, true, false, false, false }, "medium", false }, /* 3.2 % */
		{ { STOPPED, 8, 2, true, false, false, false }, NULL, false },
		{ { NO_CPU, 8, 2, true, false, false, false }, NULL, false },
		{ { NO_CPU, 8, 40, true, true, false, false }, NULL, false }, /* a thread of its own had it */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct loop *l = &cases[i].l;
		struct outcome o = explained(l);
		const struct lg_finding *f = find(o.v, l->how == STOPPED ? "host.stopped" : "host.cpu_contention");

		assert_int_equal(o.v->n_steps, 0);
		assert_int_equal(f != NULL, cases[i].severity != NULL);
		assert_int_equal(has_limit(o.v, "proven, but no steps were seen that it made late"), cases[i].told);
		if (f) {
			assert_string_equal(lg_severity_text(f->severity), cases[i].severity);
			assert_int_equal(f->culprit.pid, OTHER);
			assert_int_equal(f->victims[0].pid, LOOP);
			assert_true(fabs(f->lost_ms - (double)l->n * (double)l->ms) < 0.01);
			assert_true(fabs(f->lost_share - f->lost_ms / LENGTH) < 0.001);
			assert_non_null(strstr(f->against[0].text, "the price is the time that the thread stood still"));
		}
		done(&o);
	}
}

/* Of the waits beside an idle CPU nobody else is the cause, and of the others perhaps not. */
static void who_has_the_cpu_of_one_without_quota_is_doubted(void **state)
{
	const struct loop l = { LEFT_OUT, 8, 40, true, false, false, false };
	struct outcome o = explained(&l);
	const struct lg_finding *quota = find(o.v, "host.cpu_throttled"), *cpu = find(o.v, "host.cpu_contention");

	(void)state;
	assert_non_null(quota);
	assert_int_equal(quota->severity, LG_SEVERITY_LOW);
	assert_true(fabs(quota->lost_ms - 240) < 0.01);
	assert_non_null(strstr(quota->title, "probably"));
	assert_true(!cpu || cpu->severity == LG_SEVERITY_LOW);
	done(&o);
}

/* Two ranks without a CPU because of the same one: one finding, and the price of the one that lost more. */
static void ranks_that_the_same_one_held_up_have_one_finding(void **state)
{
	struct lg_process_row row = { 0 };
	struct lg_builder *b;
	struct lg_trace *t;
	struct outcome o;
	const struct lg_finding *f;
	lg_thr hog;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	hog = lg_thread_get(b, OTHER, OTHER);
	for (int rank = 0; rank < 2; rank++) {
		lg_thr thr = lg_thread_get(b, LOOP + rank, LOOP + rank);
		struct lg_state_row ready = { .kind = LG_RUNNABLE, .reason = LG_WHY_PREEMPTED };
		struct lg_state_row runs = { .kind = LG_RUNNING, .cpu = 1 + rank };
		int64_t from = 0;

		row = lg_process_read(b, lg_thread_process(b, thr));
		row.role = LG_ROLE_JOB;
		lg_process_write(b, lg_thread_process(b, thr), &row);
		for (int i = 0; i < 8; i++) {
			int64_t ts = (100 + 900 * i + 37 * (i % 3)) * MS, end = ts + (rank ? 60 : 40) * MS;

			add_state(b, thr, from, ts, runs);
			add_state(b, thr, ts, end, ready);
			if (rank)
				add_state(b, hog, ts, end, (struct lg_state_row){ .kind = LG_RUNNING });
			from = end;
		}
		add_state(b, thr, from, LENGTH * MS, runs);
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	o = judge(t);
	f = find(o.v, "host.cpu_contention");
	assert_int_equal(o.v->n_findings, 1);
	assert_non_null(f);
	assert_int_equal(f->n_victims, 2);
	assert_true(fabs(f->lost_ms - 480) < 0.01);
	done(&o);
}

/* Two of each process that nobody named are told, and how many more there are; none where there are two. */
static void causes_beyond_what_is_told_are_counted(void **state)
{
	const struct loop eight = { .how = BY_MANY, .n = 8, .ms = 160 };
	const struct loop two = { .how = BY_MANY, .n = 2, .ms = 160 };
	struct outcome o = explained(&eight);

	(void)state;
	assert_true(has_limit(o.v, "proven, but no steps were seen that it made late"));
	assert_true(has_limit(o.v, "... and 6 more causes that took a percent of its time and more"));
	done(&o);
	o = explained(&two);
	assert_true(has_limit(o.v, "proven, but no steps were seen that it made late"));
	assert_false(has_limit(o.v, "more causes"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_held_it_up_is_priced_in_the_time_that_was_seen),
		cmocka_unit_test(ranks_that_the_same_one_held_up_have_one_finding),
		cmocka_unit_test(who_has_the_cpu_of_one_without_quota_is_doubted),
		cmocka_unit_test(causes_beyond_what_is_told_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
