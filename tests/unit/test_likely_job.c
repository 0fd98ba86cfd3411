/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody said which process trains: what shows that one does, and what is not enough. Times in ms. */
#include <stdio.h>

#include "outcome.h"
#include "store/builder.h"

enum { WORKER = 900, HOG = 4711, LENGTH = 10000, STEP = 20, WAIT = 6, STALL = 60, EVERY = 600 };

enum ended_by { EACH_OTHER, PACKETS, TIMERS };

struct pair {
	enum ended_by by;
	int step[2];       /* of each */
	int sway;          /* the second falls behind by 1 ms a step for so many, then catches up; 0 = not */
	const char *name[2], *dso;
	int n;
};

static lg_thr worker(struct lg_builder *b, const struct pair *p, int i)
{
	lg_thr thr = lg_thread_get(b, WORKER + i, WORKER + i);

	lg_thread_name(b, thr, lg_intern(b, p->name[i]));
	return thr;
}

static void state_at(struct lg_builder *b, lg_thr thr, int from, int to, struct lg_state_row s)
{
	s.ts = from * MS;
	s.dur = (to - from) * MS;
	s.thr = thr;
	lg_add_state(b, &s);
}

/* Each step computes and waits; now and then all of them are ready while the hog has a CPU. */
static void works(struct lg_builder *b, const struct pair *p, int i, lg_thr hog)
{
	struct lg_state_row wait = { .kind = LG_BLOCKED, .reason = LG_WHY_SLEEP, .cpu = -1 };
	struct lg_state_row runs = { .kind = LG_RUNNING, .cpu = i };
	struct lg_state_row pushed = { .kind = LG_RUNNABLE, .reason = LG_WHY_PREEMPTED, .cpu = i };
	lg_thr thr = worker(b, p, i), other = p->n > 1 ? worker(b, p, !i) : hog;
	int next = EVERY, at = 0, k = 0;
	lg_stk stk = 0;

	if (p->dso)
		stk = lg_intern_stack(b, 0, lg_intern_frame(b, &(struct lg_frame_row){
			.pc = 0x10, .dso = lg_intern(b, p->dso), .kind = LG_FRAME_USER }));
	if (p->by != TIMERS)
		wait.waker = p->by == EACH_OTHER ? other : hog;
	wait.waker_ctx = p->by == EACH_OTHER ? LG_CTX_TASK
			 : p->by == PACKETS ? LG_CTX_SOFTIRQ : LG_CTX_HARDIRQ;
	while (at < LENGTH) {
		int run_to = at + p->step[i] - WAIT;

		if (p->sway && i)
			run_to += k++ / p->sway % 2 ? -1 : 1;

		if (at >= next) {
			state_at(b, thr, at, at + STALL, pushed);
			if (!i)
				state_at(b, hog, at, at + STALL, runs);
			next += EVERY;
			run_to += STALL;
			at += STALL;
		}
		state_at(b, thr, at, run_to, runs);
		lg_add_sample(b, &(struct lg_sample_row){ .ts = (at + 1) * MS, .thr = thr, .cpu = i,
							  .stack = stk, .weight = MS });
		state_at(b, thr, run_to, run_to + WAIT, wait);
		at = run_to + WAIT;
	}
}

/* What is found of the hog, and how bad. */
static const char *severity_of(const struct pair *p)
{
	static char severity[16];
	struct lg_builder *b;
	struct lg_trace *t;
	struct outcome o;
	const struct lg_finding *f;
	lg_thr hog;
	bool doubted = false;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	hog = lg_thread_get(b, HOG, HOG);
	lg_thread_name(b, hog, lg_intern(b, "hog"));
	for (int i = 0; i < p->n; i++)
		works(b, p, i, hog);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	o = judge(t);
	f = find(o.v, "host.cpu_contention");
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, HOG);
	for (size_t i = 0; i < f->n_against; i++)
		doubted |= strstr(f->against[i].text, "--victim PID says so") != NULL;
	snprintf(severity, sizeof severity, "%s", lg_severity_text(f->severity));
	assert_int_equal(doubted, !strcmp(severity, "low"));
	done(&o);
	return severity;
}

static void one_process_with_a_rhythm_may_be_anything(void **state)
{
	struct pair p = { .by = PACKETS, .step = { STEP }, .name = { "server" }, .n = 1 };

	(void)state;
	assert_string_equal(severity_of(&p), "low");
	p.dso = "/usr/lib/libssl.so.3";
	assert_string_equal(severity_of(&p), "low");
}

static void code_of_a_framework_shows_a_job(void **state)
{
	static const char *const libraries[] = { "/x/torch/lib/libtorch_cpu.so", "/usr/lib/libnccl.so.2",
						 "/usr/lib/libmpi.so.40" };
	struct pair p = { .by = PACKETS, .step = { STEP }, .name = { "python3" }, .n = 1 };

	(void)state;
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
		p.dso = libraries[i];
		assert_string_equal(severity_of(&p), "medium");
	}
}

static void equal_processes_in_step_are_a_job(void **state)
{
	struct pair p = { .by = EACH_OTHER, .step = { STEP, STEP }, .name = { "solver", "solver" }, .n = 2 };

	(void)state;
	assert_string_equal(severity_of(&p), "medium");
	p.by = PACKETS; /* an interrupt ended the waits: the steps show it */
	assert_string_equal(severity_of(&p), "medium");
}

/* Side by side each at its own pace; in step by timers of their own; a server and its client. */
static void equal_processes_alone_are_none(void **state)
{
	struct pair own = { .by = PACKETS, .step = { STEP, STEP + 3 }, .name = { "worker", "worker" }, .n = 2 };
	struct pair pollers = { .by = TIMERS, .step = { STEP, STEP }, .name = { "poller", "poller" }, .n = 2 };
	struct pair client = { .by = EACH_OTHER, .step = { STEP, STEP }, .name = { "server", "client" }, .n = 2 };

	(void)state;
	assert_string_equal(severity_of(&own), "low");
	assert_string_equal(severity_of(&pollers), "low");
	assert_string_equal(severity_of(&client), "low");
}

/* As long as each other's steps, but more than half a step apart now and then: nobody waits for nobody. */
static void processes_that_sway_against_each_other_are_none(void **state)
{
	struct pair p = { .by = PACKETS, .step = { STEP, STEP }, .sway = 2, .name = { "solver", "solver" }, .n = 2 };

	(void)state;
	assert_string_equal(severity_of(&p), "medium");
	p.sway = 11;
	assert_string_equal(severity_of(&p), "low");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_process_with_a_rhythm_may_be_anything),
		cmocka_unit_test(code_of_a_framework_shows_a_job),
		cmocka_unit_test(equal_processes_in_step_are_a_job),
		cmocka_unit_test(equal_processes_alone_are_none),
		cmocka_unit_test(processes_that_sway_against_each_other_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
