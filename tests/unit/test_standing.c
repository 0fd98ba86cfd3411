/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in which nothing moves: where the ranks sleep tells who is waited for. And jobs that only wait. */
#include "outcome.h"
#include "store/builder.h"

enum { PID = 900, RANKS = 3 };

static const char *const backward = "_engine_run_backward", *const device = "read_loss";
static const char collectives[] = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py";

struct job {
	const char *op[RANKS]; /* the collective that it waits in; NULL = it is elsewhere */
	int64_t seconds;
	double rank_1_runs, worker_runs; /* ms of every 100 */
	int64_t asleep_s[RANKS]; /* at its end, in one go; 0 = nobody knows */
	bool timed[RANKS];       /* that sleep ends by itself */
	bool worker_as_rank;     /* the worker, rank 0's child, was taken for a rank without a number */
};

static lg_stk frame(struct lg_builder *b, lg_stk caller, const char *name, const char *file, uint32_t line)
{
	struct lg_frame_row row = { .name = lg_intern(b, name), .file = lg_intern(b, file), .line = line,
				    .kind = LG_FRAME_PYTHON };

	return lg_intern_stack(b, caller, lg_intern_frame(b, &row));
}

static lg_thr process(struct lg_builder *b, int32_t pid, int32_t rank, uint8_t role)
{
	lg_thr thr = lg_thread_get(b, pid, pid);
	lg_prc p = lg_thread_process(b, thr);
	struct lg_process_row row = lg_process_read(b, p);

	lg_thread_name(b, thr, lg_intern(b, "python3"));
	row.role = role;
	row.rank = rank;
	lg_process_write(b, p, &row);
	return thr;
}

static lg_thr worker(struct lg_builder *b, uint8_t role)
{
	lg_thr thr = process(b, PID + 50, -1, role);
	struct lg_process_row row = lg_process_read(b, lg_thread_process(b, thr));

	row.ppid = PID;
	lg_process_write(b, lg_thread_process(b, thr), &row);
	return thr;
}

static void runs(struct lg_builder *b, lg_thr thr, double ms, int64_t seconds)
{
	for (int64_t at = 0; at < seconds * 1000; at += 100) {
		lg_add_state(b, &(struct lg_state_row){ .ts = at * MS, .dur = (int64_t)(ms * MS), .thr = thr,
							.kind = LG_RUNNING });
		lg_add_state(b, &(struct lg_state_row){
			.ts = at * MS + (int64_t)(ms * MS), .dur = (int64_t)((100 - ms) * MS), .thr = thr,
			.cpu = -1, .kind = LG_BLOCKED, .reason = LG_WHY_SLEEP });
	}
}

static struct outcome of(const struct job *j)
{
	struct lg_builder *b;
	struct lg_trace *t;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int32_t r = 0; r < RANKS; r++) {
		lg_thr thr = process(b, PID + r, r, LG_ROLE_RANK);
		lg_stk at = frame(b, 0, "<module>", "/home/me/train.py", 11);

		at = !j->op[r]		 ? frame(b, at, "waits_for_nobody", "/home/me/train.py", 6)
		     : j->op[r] == device ? frame(b, at, device, "/home/me/train.py", 20)
					  : frame(b, at, j->op[r], j->op[r] == backward ?
						  "/usr/lib/python3/dist-packages/torch/autograd/graph.py" : collectives, 1541);
		if (r == 1 && j->rank_1_runs > 0)
			runs(b, thr, j->rank_1_runs, j->seconds);
		else
			lg_add_state(b, &(struct lg_state_row){
				.ts = 0, .dur = -1, .thr = thr, .kind = LG_BLOCKED, .cpu = -1,
				.reason = LG_WHY_SLEEP, .flags = LG_STATE_EDGE, .stack = at });
		if (j->asleep_s[r])
			lg_add_mark(b, &(struct lg_mark_row){
				.ts = j->seconds * 1000 * MS, .thr = thr, .name = lg_intern(b, "asleep"),
				.value = j->asleep_s[r] * 1000 * MS,
				.text = j->timed[r] ? lg_intern(b, "timed") : 0 });
		runs(b, lg_thread_get(b, PID + r, PID + 100 + r), 0.2, j->seconds); /* gloo's, which polls */
	}
	runs(b, worker(b, j->worker_as_rank ? LG_ROLE_RANK : LG_ROLE_JOB), j->worker_runs, j->seconds);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

#define ELSEWHERE { "all_reduce", NULL, "all_reduce" }

static void who_sleeps_elsewhere_is_missing(void **state)
{
	struct job j = { .op = ELSEWHERE, .seconds = 40 };
	struct outcome o = of(&j);
	const struct lg_finding *f = find(o.v, "comms.missing_rank");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_HIGH);
	assert_int_equal(f->culprit.rank, 1);
	assert_string_equal(f->title, "rank 1 sleeps in waits_for_nobody (train.py:6), ranks 0, 2 wait in all_reduce at "
				      "<module> (train.py:11), for 40 s at least");
	assert_int_equal(f->n_evidence, RANKS);
	assert_non_null(strstr(f->evidence[1].text, "sleeps in waits_for_nobody (train.py:6) < <module> (train.py:11)"));
	done(&o);
	j.seconds = 5; /* a healthy pause is as long */
	o = of(&j);
	assert_int_equal(loud(o.v), 0);
	assert_non_null(o.v->still);
	assert_non_null(strstr(o.v->still, "rank 1 sleeps in waits_for_nobody (train.py:6), ranks 0, 2 wait in"));
	assert_true(has_limit(o.v, "nothing in it ran for the last 5.0 s; a pause may be"));
	done(&o);
}

/* Its sleeps are a loader's, not a rank's, and it stands in nobody's way. */
static void what_a_rank_started_is_no_rank(void **state)
{
	struct job j = { .op = ELSEWHERE, .seconds = 40, .worker_runs = 0.1, .worker_as_rank = true };
	struct outcome o = of(&j);
	const struct lg_finding *f = find(o.v, "comms.missing_rank");

	(void)state;
	assert_int_equal(o.v->hang.n, RANKS);
	assert_int_equal(o.v->hang.ranks[0].rank, 0);
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 1);
	done(&o);
}

/* Who tries again now and then may have been there for longer than it sleeps now: the others tell. */
static void a_sleep_that_ends_by_itself_is_not_the_begin(void **state)
{
	static const struct {
		struct job job;
		const char *hung; /* for so long; NULL = no */
	} rows[] = {
		{ { .asleep_s = { 42, 8, 43 }, .timed = { false, true, true } }, "42 s" },
		{ { .asleep_s = { 42, 8, 43 } }, NULL }, /* it came 8 s ago */
		{ { .asleep_s = { 9, 35, 9 }, .timed = { true, true, true } }, "35 s" },
		{ { .asleep_s = { 9, 8, 9 }, .timed = { true, true, true } }, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job j = { .op = ELSEWHERE, .seconds = 6 };
		const struct lg_finding *f;
		struct outcome o;

		memcpy(j.asleep_s, rows[i].job.asleep_s, sizeof j.asleep_s);
		memcpy(j.timed, rows[i].job.timed, sizeof j.timed);
		o = of(&j);
		f = find(o.v, "comms.missing_rank");
		if (!f != !rows[i].hung || (f && !strstr(f->title, rows[i].hung)))
			fail_msg("row %zu: %s", i, f ? f->title : "nothing");
		done(&o);
	}
}

static void collectives_that_no_frame_shows(void **state)
{
	struct job ddp = { .op = { backward, NULL, backward }, .seconds = 40 };
	struct job reads = { .op = { device, NULL, device }, .seconds = 40 };
	struct outcome o = of(&ddp);
	const struct lg_finding *f = find(o.v, "comms.missing_rank");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 1);
	assert_int_equal(f->n_against, 0);
	done(&o);
	o = of(&reads);
	f = find(o.v, "comms.missing_rank");
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 1);
	assert_int_equal(f->n_against, 1);
	done(&o);
	reads.op[0] = NULL; /* two stand elsewhere: who of them is the odd one? */
	o = of(&reads);
	f = find(o.v, "comms.missing_rank");
	assert_true(!f || f->culprit.rank == 2);
	done(&o);
}

static void where_all_wait_nobody_is_accused(void **state)
{
	struct job same = { .op = { "all_reduce", "all_reduce", "all_reduce" }, .seconds = 40 };
	struct job parted = { .op = { "all_reduce", "broadcast", "all_reduce" }, .seconds = 40 };
	struct outcome o = of(&same);
	const struct lg_finding *f = find(o.v, "comms.missing_rank");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, -1);
	assert_int_equal(f->n_against, 1);
	done(&o);
	o = of(&parted);
	f = find(o.v, "comms.mismatch");
	assert_non_null(f);
	assert_non_null(strstr(f->title, "ranks 0, 2 wait in all_reduce at <module> (train.py:11), rank 1 waits in broadcast"));
	done(&o);
}

static void what_may_still_come_is_no_standstill(void **state)
{
	static const struct job rows[] = {
		{ .op = ELSEWHERE, .seconds = 40, .rank_1_runs = 50 }, /* an evaluation on one rank */
		{ .op = ELSEWHERE, .seconds = 40, .rank_1_runs = 0.1 }, /* it polls for something */
		{ .op = ELSEWHERE, .seconds = 40, .worker_runs = 50 }, /* a compiler's worker */
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = of(&rows[i]);

		if (loud(o.v) || (o.v->still && strstr(o.v->still, "waits_for_nobody")))
			fail_msg("row %zu: %s", i, o.v->still ? o.v->still : o.v->findings[0].title);
		done(&o);
	}
}

struct told {
	int32_t world;
	const char *port[RANKS];
	bool spins; /* ranks 0 and 2, in a driver; else they sleep in all_reduce */
	const char *dso;
};

/* Forty seconds in which rank 1 sleeps elsewhere, or, where ports are told, all meet. */
static struct outcome told(const struct told *j)
{
	struct lg_builder *b;
	struct lg_trace *t;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int32_t r = 0; r < RANKS; r++) {
		lg_thr thr = process(b, PID + r, r, LG_ROLE_RANK);
		bool spins = j->spins && r != 1;
		lg_stk at = frame(b, 0, "<module>", "/home/me/train.py", 11), leaf;
		struct lg_process_row row = lg_process_read(b, lg_thread_process(b, thr));

		row.world = j->world;
		lg_process_write(b, lg_thread_process(b, thr), &row);
		if (j->port[r])
			lg_meta_set(b, lg_thread_process(b, thr), "env.MASTER_PORT", j->port[r]);
		at = spins ? frame(b, at, "reads_loss", "/home/me/train.py", 20)
		     : r == 1 && !j->port[r] ? frame(b, at, "waits_for_nobody", "/home/me/train.py", 6)
					     : frame(b, at, "init_process_group", collectives, 754);
		lg_add_state(b, &(struct lg_state_row){
			.ts = 0, .dur = -1, .thr = thr, .cpu = spins ? r : -1, .stack = spins ? 0 : at,
			.kind = spins ? LG_RUNNING : LG_BLOCKED, .reason = LG_WHY_SLEEP,
			.flags = LG_STATE_EDGE });
		leaf = spins ? lg_intern_stack(b, at, lg_intern_frame(b, &(struct lg_frame_row){
					.pc = 64, .dso = lg_intern(b, j->dso), .kind = LG_FRAME_USER })) : 0;
		for (int64_t at_ms = 0; spins && at_ms < 40000; at_ms += 10)
			lg_add_sample(b, &(struct lg_sample_row){
				.ts = at_ms * MS, .weight = 10 * MS, .thr = thr, .cpu = r, .stack = leaf,
				.event = lg_intern(b, "cpu-clock") });
		runs(b, lg_thread_get(b, PID + r, PID + 100 + r), 0.2, 40);
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

static void what_ranks_were_told_differently(void **state)
{
	struct outcome o = told(&(struct told){ .world = 3, .port = { "29500", "29501", "29500" } });
	const struct lg_finding *f = find(o.v, "comms.missing_rank");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 1);
	assert_non_null(strstr(f->title, "ranks 0, 2 were given MASTER_PORT 29500, rank 1 29501: they never meet; "));
	done(&o);
	o = told(&(struct told){ .world = 4, .port = { "29500", "29500", "29500" } });
	f = find(o.v, "comms.missing_rank");
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, -1); /* it may be on another host */
	assert_non_null(strstr(f->title, "rank 3 of 4 is not here; ranks 0-2 wait in init_process_group"));
	done(&o);
	o = told(&(struct told){ .world = 3, .port = { "29500", "29500", "29500" } });
	f = find(o.v, "comms.missing_rank");
	assert_non_null(f);
	assert_null(strstr(f->title, "given"));
	done(&o);
}

static void who_spins_in_a_driver_waits(void **state)
{
	struct outcome o = told(&(struct told){ .world = 3, .spins = true, .dso = "/usr/lib/libcuda.so.535.1" });
	const struct lg_finding *f = find(o.v, "comms.missing_rank");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 1);
	assert_non_null(strstr(f->title, "ranks 0, 2 wait in reads_loss (train.py:20)"));
	done(&o);
	o = told(&(struct told){ .world = 3, .spins = true, .dso = "/usr/lib/libtorch_cpu.so" }); /* it computes */
	assert_null(find(o.v, "comms.missing_rank"));
	assert_true(!o.v->still || !strstr(o.v->still, "waits_for_nobody"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_sleeps_elsewhere_is_missing),
		cmocka_unit_test(what_a_rank_started_is_no_rank),
		cmocka_unit_test(a_sleep_that_ends_by_itself_is_not_the_begin),
		cmocka_unit_test(collectives_that_no_frame_shows),
		cmocka_unit_test(where_all_wait_nobody_is_accused),
		cmocka_unit_test(what_may_still_come_is_no_standstill),
		cmocka_unit_test(what_ranks_were_told_differently),
		cmocka_unit_test(who_spins_in_a_driver_waits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
