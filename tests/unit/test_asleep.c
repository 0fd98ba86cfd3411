/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel tells of a sleep that began before anybody looked. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "record/asleep.h"

static void the_kernels_line_counts(void **state)
{
	(void)state;
	assert_int_equal(lg_exec_start("python3 (23940, #threads: 6)\n---\n"
				       "se.exec_start                                :       2617084.843242\n"
				       "se.vruntime                                  :            12.5\n"), 2617084843242);
	/* A thread may be called so. */
	assert_int_equal(lg_exec_start("x\nse.exec_start:9 (1, #threads: 1)\nse.exec_start : 5.5\n"), 5500000);
	assert_int_equal(lg_exec_start("x\nse.exec_start: (1, #threads: 1)\n"), -1);
	assert_int_equal(lg_exec_start("python3 (1, #threads: 1)\nse.exec_start : -5\n"), -1);
	assert_int_equal(lg_exec_start("python3 (1, #threads: 1)\nse.exec_start : nan\n"), -1);
	assert_int_equal(lg_exec_start("python3 (1, #threads: 1)\nse.exec_start : 1e300\n"), -1);
	assert_int_equal(lg_exec_start(""), -1);
}

static void clocks_differ_by_what_others_took(void **state)
{
	(void)state;
	assert_int_equal(lg_rq_clock_skew("cpu  9 9 9 9 9 99 99 99 0 0\ncpu0 1 1 1 1 1 2 3 4 0 0\n"
					  "cpu1 1 1 1 1 1 2 3 24 0 0\nintr 5\n", 10), 200);
	assert_int_equal(lg_rq_clock_skew("cpu  9 9 9 9 9 99 99 99 0 0\ncpu0 1 1 1 1 1 2 3 4 0 0\n", 10), 0);
	assert_int_equal(lg_rq_clock_skew("cpu0 1 1 1 1 1 9223372036854775807 9 9\ncpu1 1\n", 10), 0);
	assert_int_equal(lg_rq_clock_skew("", 10), 0);
}

/* Whatever the clocks of two CPUs differ by: this machine's may be seconds apart, or not. */
static void who_sleeps_on_another_cpu_has_slept_so_long(void **state)
{
	cpu_set_t all, one;
	int64_t ns = 0;
	pid_t child;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
	for (int cpu = 0, n = 0; cpu < CPU_SETSIZE && n < 3; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		n++;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		child = fork();
		if (!child) {
			(void)sched_setaffinity(0, sizeof one, &one);
			for (;;)
				pause();
		}
		assert_true(child > 0);
		(void)sleep(2);
		ns = lg_asleep_ns(child, child);
		(void)kill(child, SIGKILL);
		(void)waitpid(child, NULL, 0);
		if (!ns)
			skip(); /* the kernel does not tell */
		assert_true(ns > 900000000 && ns < 60000000000);
	}
	assert_int_equal(sched_getaffinity(0, sizeof one, &one), 0);
	assert_true(CPU_EQUAL(&one, &all));
}

static void who_runs_has_not_slept(void **state)
{
	(void)state;
	assert_true(lg_asleep_ns(getpid(), getpid()) < 1000000000);
	assert_int_equal(lg_asleep_ns(1 << 30, 1 << 30), 0);
}

static void a_call_with_a_limit_ends_by_itself(void **state)
{
	char text[128];
	(void)state;
	assert_true(lg_asleep_timed(getpid(), getpid()) == false); /* it runs */
	for (int limit = 0; limit < 2; limit++) {
		snprintf(text, sizeof text, "%ld 0x7ffe86959f80 0x0 0x0 0x%x 0x0 0x0 0x7ffe86959ec8 0x7ffaf3be172e\n",
			 (long)SYS_futex, limit ? 0x1000U : 0);
		assert_int_equal(lg_sleep_is_timed(text), limit);
		snprintf(text, sizeof text, "%ld 0x4 0x7ffe86959f80 0x1 0x%x 0x0 0x8 0x7ffe86959ec8 0x7ffaf3be172e\n",
			 (long)SYS_epoll_pwait, limit ? 5000U : 0xffffffffU);
		assert_int_equal(lg_sleep_is_timed(text), limit);
	}
	assert_false(lg_sleep_is_timed("running\n"));
	assert_false(lg_sleep_is_timed("-1 0x7ffe86959ec8 0x7ffaf3be172e\n"));
	assert_false(lg_sleep_is_timed("0 0x3 0x7ffe86959f80 0x2000 0x1 0x1 0x1 0x7ffe86959ec8 0x7ffaf3be172e\n"));
	assert_false(lg_sleep_is_timed(""));
}

static void a_sleeper_s_call_is_asked_for(void **state)
{
	pid_t child[2];

	(void)state;
	for (int timed = 0; timed < 2; timed++) {
		child[timed] = fork();
		if (!child[timed])
			for (;;)
				(void)(timed ? (int)sleep(60) : pause());
		assert_true(child[timed] > 0);
	}
	(void)usleep(300000);
	assert_false(lg_asleep_timed(child[0], child[0]));
	assert_true(lg_asleep_timed(child[1], child[1]));
	for (int timed = 0; timed < 2; timed++) {
		(void)kill(child[timed], SIGKILL);
		(void)waitpid(child[timed], NULL, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_kernels_line_counts),
		cmocka_unit_test(clocks_differ_by_what_others_took),
		cmocka_unit_test(who_sleeps_on_another_cpu_has_slept_so_long),
		cmocka_unit_test(who_runs_has_not_slept),
		cmocka_unit_test(a_call_with_a_limit_ends_by_itself),
		cmocka_unit_test(a_sleeper_s_call_is_asked_for),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
