/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of programs that mark nothing: told where they are, and not told where they cannot be. */
#include "outcome.h"
#include "store/builder.h"

enum { PID = 900, HELPER = 50, RANKS = 2, STEPS = 400, STEP_US = 20000 };

struct plan {
	int ranks;
	void (*made)(struct lg_builder *b); /* by this, and nothing below counts */
	bool helpers;      /* the main thread hands each collective to a thread of its own */
	int more_every;    /* then one rank, in turn, computes 60 ms longer; 0 = never */
	int ahead_us;      /* in each third step the others go on so long before the last waits */
	bool alone;        /* one rank: whether it waits is chance */
	int asleep_us;     /* one thread that sleeps so long each time, */
	int jitter_us;     /* give or take, */
	int works_us;      /* and then works */
};

static lg_stk stack(struct lg_builder *b, const char *name, uint32_t kind)
{
	struct lg_frame_row row = { .kind = kind, .name = lg_intern(b, name) };

	return lg_intern_stack(b, 0, lg_intern_frame(b, &row));
}

static void state(struct lg_builder *b, lg_thr thr, int64_t from, int64_t to, struct lg_state_row row)
{
	row.ts = from * US;
	row.dur = (to - from) * US;
	row.thr = thr;
	row.kind = row.reason ? LG_BLOCKED : LG_RUNNING;
	row.cpu = row.reason ? -1 : 0;
	if (to > from)
		lg_add_state(b, &row);
}

static uint32_t chance(uint32_t *seed)
{
	return (*seed = *seed * 1664525 + 1013904223) >> 16;
}

static lg_thr rank_of(struct lg_builder *b, int r, int world)
{
	lg_thr thr = lg_thread_get(b, PID + 100 * r, PID + 100 * r);
	lg_prc p = lg_thread_process(b, thr);
	struct lg_process_row row = lg_process_read(b, p);

	lg_thread_name(b, thr, lg_intern(b, "python3"));
	row.comm = lg_intern(b, "python3");
	row.host = lg_intern(b, "h1");
	row.role = world > 1 ? LG_ROLE_RANK : LG_ROLE_JOB;
	row.rank = world > 1 ? r : -1;
	row.world = world > 1 ? (int32_t)world : 0;
	lg_process_write(b, p, &row);
	return thr;
}

/* Two ranks that wait for each other at the end of each step; who comes first is chance. */
static void together(struct lg_builder *b, const struct plan *p)
{
	lg_thr main[RANKS], helper[RANKS];
	lg_stk wait = stack(b, "futex_wait_queue", LG_FRAME_KERNEL);
	int64_t at[RANKS] = { 0 }, slept[RANKS] = { 0 }, last = 0;
	uint32_t seed = 7;

	for (int r = 0; r < RANKS; r++) {
		main[r] = rank_of(b, r, RANKS);
		helper[r] = lg_thread_get(b, PID + 100 * r, PID + 100 * r + HELPER);
		lg_thread_name(b, helper[r], lg_intern(b, "python3"));
	}
	for (int k = 0; k < STEPS; k++) {
		int64_t came[RANKS], end = 0;

		for (int r = 0; r < RANKS; r++) {
			came[r] = last + STEP_US - 3000 + (int64_t)(chance(&seed) % 3000);
			if (p->more_every && k % p->more_every == p->more_every - 1 &&
			    k / p->more_every % RANKS == r)
				came[r] += 60000;
			end = came[r] + 200 > end ? came[r] + 200 : end;
		}
		for (int r = 0; r < RANKS; r++) {
			/* The exchange takes a moment: who hands it over waits for that, too. */
			bool waits = p->helpers || came[r] + 200 < end;
			bool ahead = p->ahead_us && k % 3 == 0 && came[r] + 200 + p->ahead_us < end;
			int64_t until = ahead ? end - 200 - p->ahead_us : end;

			state(b, main[r], at[r], waits ? came[r] : end, (struct lg_state_row){ 0 });
			at[r] = until;
			if (waits)
				state(b, main[r], came[r], until, (struct lg_state_row){
					.reason = LG_WHY_SLEEP, .stack = wait,
					.waker = p->helpers ? helper[r] : 0,
					.waker_ctx = p->helpers ? LG_CTX_TASK : LG_CTX_SOFTIRQ });
			if (!p->helpers)
				continue;
			state(b, helper[r], slept[r], came[r], (struct lg_state_row){
				.reason = LG_WHY_SLEEP, .stack = wait, .waker = main[r],
				.waker_ctx = LG_CTX_TASK });
			state(b, helper[r], came[r], came[r] + 50, (struct lg_state_row){ 0 });
			slept[r] = came[r] + 50;
		}
		last = end;
	}
}

static void alone(struct lg_builder *b, const struct plan *p)
{
	lg_thr main = rank_of(b, 0, 1);
	lg_stk wait = stack(b, p->asleep_us ? "do_epoll_wait" : "futex_wait_queue", LG_FRAME_KERNEL);
	uint32_t seed = 7;
	int64_t at = 0;

	for (int k = 0; k < STEPS; k++) {
		int64_t run = p->asleep_us ? p->works_us : STEP_US - 2000, sleep = p->asleep_us;

		if (p->alone)
			sleep = chance(&seed) % 3 ? 2000 : 0;
		else if (p->jitter_us)
			sleep += (int64_t)(chance(&seed) % (uint32_t)(2 * p->jitter_us)) - p->jitter_us;
		state(b, main, at, at + run, (struct lg_state_row){ 0 });
		state(b, main, at + run, at + run + sleep, (struct lg_state_row){
			.reason = LG_WHY_SLEEP, .stack = wait,
			.waker_ctx = p->asleep_us ? LG_CTX_HARDIRQ : LG_CTX_SOFTIRQ });
		at += run + sleep;
	}
}

/*
 * Two steps and one in which somebody else has the CPU for as long as they take: the thread hands work over
 * in each, and waits in the second and the third. Its waits are more regular than its steps.
 */
static void beside_a_neighbour(struct lg_builder *b)
{
	lg_thr main = rank_of(b, 0, 1), helper = lg_thread_get(b, PID, PID + HELPER);
	lg_stk wait = stack(b, "futex_wait_queue", LG_FRAME_KERNEL);
	const struct lg_state_row without_cpu = { .kind = LG_RUNNABLE };
	int64_t at = 0, slept = 0;
	uint32_t seed = 7;

	for (int k = 0; k < STEPS / 3; k++) {
		int64_t more = (int64_t)(chance(&seed) % 4000);

		for (int i = 0; i < 3; i++) {
			int64_t run = i ? i == 1 ? 18000 - more : 16000 : 14000 + more;
			struct lg_state_row row = without_cpu;

			state(b, main, at, at + run, (struct lg_state_row){ 0 });
			at += run;
			if (i == 2) {
				row.ts = at * US;
				row.dur = 16000 * US;
				row.thr = main;
				lg_add_state(b, &row);
				at += 16000;
			}
			state(b, helper, slept, at, (struct lg_state_row){
				.reason = LG_WHY_SLEEP, .stack = wait, .waker = main,
				.waker_ctx = LG_CTX_TASK });
			state(b, helper, at, at + 50, (struct lg_state_row){ 0 });
			slept = at + 50;
			if (i)
				state(b, main, at, at + 500, (struct lg_state_row){
					.reason = LG_WHY_SLEEP, .stack = wait, .waker = helper,
					.waker_ctx = LG_CTX_TASK });
			at += i ? 500 : 0;
		}
	}
}

/* A worker that one step in thirty finds awake; in each step the thread waits for a socket, here or there. */
static void busy_worker(struct lg_builder *b)
{
	lg_thr main = rank_of(b, 0, 1), helper = lg_thread_get(b, PID, PID + HELPER);
	lg_stk wait = stack(b, "futex_wait_queue", LG_FRAME_KERNEL), receive = stack(b, "tcp_recvmsg", LG_FRAME_KERNEL);
	int64_t slept = 0;
	uint32_t seed = 7;

	for (int k = 0; k < STEPS; k++) {
		int64_t at = (int64_t)k * STEP_US, asks = at + 6000 + (int64_t)(chance(&seed) % 6000);

		state(b, main, at, asks, (struct lg_state_row){ 0 });
		state(b, main, asks, asks + 1000, (struct lg_state_row){
			.reason = LG_WHY_SLEEP, .stack = receive, .waker_ctx = LG_CTX_SOFTIRQ });
		state(b, main, asks + 1000, at + STEP_US, (struct lg_state_row){ 0 });
		if (k % 30 == 17)
			continue;
		state(b, helper, slept, at + STEP_US, (struct lg_state_row){
			.reason = LG_WHY_SLEEP, .stack = wait, .waker = main, .waker_ctx = LG_CTX_TASK });
		state(b, helper, at + STEP_US, at + STEP_US + 50, (struct lg_state_row){ 0 });
		slept = at + STEP_US + 50;
	}
}

/* Steps of chance's length, and every 25th waits for a disk as well. */
static void saves_now_and_then(struct lg_builder *b)
{
	lg_thr main = rank_of(b, 0, 1);
	lg_stk wait = stack(b, "futex_wait_queue", LG_FRAME_KERNEL), disk = stack(b, "folio_wait_bit", LG_FRAME_KERNEL);
	uint32_t seed = 7;
	int64_t at = 0;

	for (int k = 0; k < STEPS; k++) {
		int64_t run = STEP_US - 6000 + (int64_t)(chance(&seed) % 8000);

		state(b, main, at, at + run, (struct lg_state_row){ 0 });
		state(b, main, at + run, at + run + 2000, (struct lg_state_row){
			.reason = LG_WHY_SLEEP, .stack = wait, .waker_ctx = LG_CTX_SOFTIRQ });
		at += run + 2000;
		if (k % 25 != 24)
			continue;
		state(b, main, at, at + 300, (struct lg_state_row){ 0 });
		state(b, main, at + 300, at + 3000, (struct lg_state_row){
			.reason = LG_WHY_IOWAIT, .stack = disk, .waker_ctx = LG_CTX_SOFTIRQ });
		at += 3000;
	}
}

/* Two ranks of one job, as alike and as late as those together, that do not wait for each other. */
static void side_by_side(struct lg_builder *b)
{
	lg_stk wait = stack(b, "futex_wait_queue", LG_FRAME_KERNEL);

	for (int r = 0; r < RANKS; r++) {
		lg_thr main = rank_of(b, r, RANKS);
		uint32_t seed = 7 + (uint32_t)r;
		int64_t at = 3000 * r;

		for (int k = 0; k < STEPS; k++) {
			int64_t run = STEP_US - 3000 + (int64_t)(chance(&seed) % 3000);

			run += k % 25 == 24 && r ? 60000 : 0;
			state(b, main, at, at + run, (struct lg_state_row){ 0 });
			state(b, main, at + run, at + run + 300, (struct lg_state_row){
				.reason = LG_WHY_SLEEP, .stack = wait, .waker_ctx = LG_CTX_SOFTIRQ });
			at += run + 300;
		}
	}
}

static struct outcome run(const struct plan *p)
{
	struct lg_builder *b;
	struct lg_trace *t;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	if (p->made)
		p->made(b);
	else if (p->ranks == RANKS)
		together(b, p);
	else
		alone(b, p);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return judge(t);
}

/* Within 2 % of what was planned, for each rank. */
static void assert_steps(const struct outcome *o, double median_ms)
{
	assert_true((double)o->v->n_steps > RANKS * STEPS * 0.98);
	assert_true((double)o->v->n_steps < RANKS * STEPS * 1.02);
	assert_true(fabs(o->v->median_ms - median_ms) < 0.02 * median_ms);
}

static void a_collective_ends_a_step_whoever_comes_first(void **state)
{
	struct plan p = { .ranks = RANKS, .helpers = true };
	struct outcome o = run(&p);

	(void)state;
	assert_steps(&o, 19.2);
	assert_int_equal(loud(o.v), 0);
	done(&o);
	p.helpers = false; /* nobody is woken: of both ranks together the waits have no holes */
	o = run(&p);
	assert_steps(&o, 19.2);
	assert_int_equal(loud(o.v), 0);
	done(&o);
}

static void the_late_rank_is_known_without_marks(void **state)
{
	struct plan p = { .ranks = RANKS, .helpers = true, .more_every = 25 };
	struct outcome o = run(&p);
	const struct lg_finding *f = find(o.v, "comms.straggler");

	(void)state;
	assert_steps(&o, 19.2);
	assert_non_null(f);
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	assert_true(fabs(o.v->period_s - 25 * 0.0192 - 0.060) < 0.02);
	judged_without_memory(&o);
	done(&o);
}

/* What the last one sends another thread of it may send before it comes to wait itself. Ranks that go on long
 * before it do not wait for it. */
static void the_late_rank_may_send_before_it_waits(void **state)
{
	struct plan p = { .ranks = RANKS, .helpers = true, .more_every = 25, .ahead_us = 600 };
	struct outcome o = run(&p);

	(void)state;
	assert_steps(&o, 19.2);
	assert_non_null(find(o.v, "comms.straggler"));
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	done(&o);
	p.ahead_us = 1400;
	o = run(&p);
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
}

/* As many steps as were made, give or take such shares, of a median between two. */
static void assert_rhythm(void (*made)(struct lg_builder *b), double least, double most, double from_ms,
			  double to_ms)
{
	struct plan p = { .made = made };
	struct outcome o = run(&p);

	assert_true((double)o.v->n_steps > STEPS * least && (double)o.v->n_steps < STEPS * most);
	assert_true(o.v->median_ms > from_ms && o.v->median_ms < to_ms);
	done(&o);
}

static void what_comes_every_25_steps_is_no_step(void **state)
{
	(void)state;
	assert_rhythm(saves_now_and_then, 0.97, 1.03, 19, 21);
}

static void the_more_regular_waits_lack_steps(void **state)
{
	(void)state;
	assert_rhythm(beside_a_neighbour, 0.97, 1.02, 15, 19);
}

static void what_a_worker_missed_is_filled_in(void **state)
{
	struct plan p = { .made = busy_worker };
	struct outcome o = run(&p);

	(void)state;
	assert_true((double)o.v->n_steps > STEPS * 0.985 && (double)o.v->n_steps <= STEPS);
	assert_int_equal(o.v->n_slow, 0);
	assert_true(fabs(o.v->median_ms - 20) < 0.2);
	done(&o);
}

static void ranks_that_do_not_wait_for_each_other_are_late_alone(void **state)
{
	struct plan p = { .made = side_by_side };
	struct outcome o = run(&p);

	(void)state;
	assert_true((double)o.v->n_steps > RANKS * STEPS * 0.97);
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
}

static void waits_that_are_not_in_each_step_are_none(void **state)
{
	struct plan p = { .alone = true };
	struct outcome o = run(&p);

	(void)state;
	assert_int_equal(o.v->n_steps, 0);
	assert_true(has_limit(o.v, "does not wait in each of its steps"));
	assert_int_equal(loud(o.v), 0);
	done(&o);
}

static void a_servers_poll_loop_has_no_steps(void **state)
{
	struct plan p = { .asleep_us = 10080, .jitter_us = 20, .works_us = 1000 };
	struct outcome o = run(&p);

	(void)state;
	assert_int_equal(o.v->n_steps, 0);
	assert_true(has_limit(o.v, "because a timer says so"));
	done(&o);
	p.works_us = 4000; /* its work sets the pace as well */
	o = run(&p);
	assert_true((double)o.v->n_steps > STEPS * 0.98);
	done(&o);
	/* a device, which is no timer */
	p = (struct plan){ .asleep_us = 10080, .jitter_us = 300, .works_us = 1000 };
	o = run(&p);
	assert_true((double)o.v->n_steps > STEPS * 0.98);
	done(&o);
	p = (struct plan){ .asleep_us = 10600, .jitter_us = 20, .works_us = 1000 };
	o = run(&p);
	assert_true((double)o.v->n_steps > STEPS * 0.98);
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_collective_ends_a_step_whoever_comes_first),
		cmocka_unit_test(the_late_rank_is_known_without_marks),
		cmocka_unit_test(the_late_rank_may_send_before_it_waits),
		cmocka_unit_test(what_comes_every_25_steps_is_no_step),
		cmocka_unit_test(the_more_regular_waits_lack_steps),
		cmocka_unit_test(what_a_worker_missed_is_filled_in),
		cmocka_unit_test(ranks_that_do_not_wait_for_each_other_are_late_alone),
		cmocka_unit_test(waits_that_are_not_in_each_step_are_none),
		cmocka_unit_test(a_servers_poll_loop_has_no_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
