/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's events as perf script prints them: both forms, odd ones, and the states made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "import/perfscript/perfscript.h"
#include "import/perfscript/script_sched.h"

static struct lg_ps_sched_line parsed(const char *line)
{
	struct lg_ps_sched_line e;
	struct lg_ps_line l;

	assert_int_equal(lg_ps_parse(&l, line, strlen(line), false), LG_PS_EVENT);
	lg_ps_sched_parse(&e, &l);
	return e;
}

static void is_switch(const char *line, int32_t prev, uint64_t state, int32_t next, const char *comm)
{
	struct lg_ps_sched_line e = parsed(line);

	assert_int_equal(e.kind, LG_PS_SWITCH);
	assert_true(e.understood);
	assert_int_equal(e.prev_tid, prev);
	assert_int_equal(e.next_tid, next);
	assert_int_equal(e.prev_state, state);
	assert_int_equal(e.comm.n, strlen(comm));
	assert_memory_equal(e.comm.p, comm, e.comm.n);
}

static void reads_switches_of_both_forms(void **state)
{
	(void)state;
	is_switch("job 7 [001] 1.000001: sched:sched_switch: prev_comm=job prev_pid=7 prev_prio=120 prev_state=S ==> "
		  "next_comm=swapper/1 next_pid=0 next_prio=120", 7, 1, 0, "swapper/1");
	is_switch("a b 7/9 [001] 1.000001:          1 sched:sched_switch: prev_comm=a b prev_pid=9 prev_prio=-2 "
		  "prev_state=R+ ==> next_comm=Web Content next_pid=8 next_prio=98", 9, 256, 8, "Web Content");
	is_switch("x 7 [001] 1.000001: sched:sched_switch: prev_comm=x prev_pid=7 prev_prio=120 prev_state=D|K ==> "
		  "next_comm=y next_pid=8 next_prio=120", 7, 2, 8, "y");
	is_switch("x 7 [001] 1.000001: sched:sched_switch: x:7 [120] R ==> kworker/u8:2:31 [120]", 7, 0, 31,
		  "kworker/u8:2");
	is_switch("x 7 [001] 1.000001: sched:sched_switch: a b:7 [120] T ==> c d:8 [98]", 7, 4, 8, "c d");
}

static void reads_wakings_of_both_forms(void **state)
{
	struct lg_ps_sched_line e;

	(void)state;
	e = parsed("x 7 [001] 1.000001: sched:sched_waking: comm=a b pid=8 prio=120 target_cpu=003");
	assert_int_equal(e.kind, LG_PS_WAKING);
	assert_true(e.understood && e.tid == 8 && e.target_cpu == 3 && e.comm.n == 3);
	e = parsed("x 7 [001] 1.000001: sched:sched_wakeup: comm=a pid=8 prio=120 success=1 target_cpu=003");
	assert_int_equal(e.kind, LG_PS_WAKEUP);
	assert_true(e.understood && e.tid == 8 && e.target_cpu == 3);
	e = parsed("x 7 [001] 1.000001: sched:sched_wakeup_new: a:b:8 [120] success=1 CPU:002");
	assert_int_equal(e.kind, LG_PS_WAKEUP_NEW);
	assert_true(e.understood && e.tid == 8 && e.target_cpu == 2 && e.comm.n == 3);
	e = parsed("x 7 [001] 1.000001: sched:sched_migrate_task: comm=a b pid=8 prio=120 orig_cpu=3 dest_cpu=1");
	assert_int_equal(e.kind, LG_PS_MOVE);
	assert_true(e.understood && e.tid == 8 && e.from_cpu == 3 && e.target_cpu == 1);
	e = parsed("x 7 [001] 1.000001: sched:sched_waking: a:8 [120]");
	assert_true(e.understood && e.target_cpu == -1);
	assert_int_equal(parsed("x 7 [001] 1.000001: sched:sched_stat_runtime: comm=x pid=8").kind, LG_PS_NO_SCHED);
}

static void lines_that_lack_something_are_not_understood(void **state)
{
	static const char *const lines[] = {
		"x 7 [001] 1.000001: sched:sched_switch:",
		"x 7 [001] 1.000001: sched:sched_switch: prev_comm=x prev_pid=7 prev_prio=120 prev_state=S",
		"x 7 [001] 1.000001: sched:sched_switch: prev_comm=x prev_pid=7 prev_prio=120 prev_state= ==> "
		"next_comm=y next_pid=8 next_prio=1",
		"x 7 [001] 1.000001: sched:sched_switch: prev_comm=x prev_pid=99999999999 prev_prio=120 prev_state=S "
		"==> next_comm=y next_pid=8 next_prio=1",
		"x 7 1.000001: sched:sched_switch: prev_comm=x prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=y "
		"next_pid=8 next_prio=120", /* on which CPU? */
		"x 7 [001] 1.000001: sched:sched_switch: x:7 [120] ==> y:8 [120]",
		"x 7 [001] 1.000001: sched:sched_switch: x [120] S ==> y:8 [120]",
		"x 7 [001] 1.000001: sched:sched_waking: comm=a prio=120",
		"x 7 [001] 1.000001: sched:sched_migrate_task: comm=a pid=8 prio=120 dest_cpu=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct lg_ps_sched_line e = parsed(lines[i]);

		assert_true(e.kind != LG_PS_NO_SCHED);
		if (e.understood)
			fail_msg("%s", lines[i]);
	}
}

static struct lg_trace *import_lines(const char *text)
{
	char path[] = "/tmp/lg-test-XXXXXX";
	int fd = mkstemp(path);
	struct lg_error err = { 0 };
	struct lg_builder *b;
	struct lg_trace *t = NULL;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	assert_int_equal(lg_builder_new(&b, &err), 0);
	if (lg_import_perfscript.run(path, b, &err))
		fail_msg("%s", err.message);
	unlink(path);
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	return t;
}

static uint64_t told(const struct lg_trace *t, enum lg_diag_id id)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == (uint32_t)id ? t->diag.count[i] : 0;
	return n;
}

#define SWITCH(who, at, prev, s, next) \
	who " [001] " at ": sched:sched_switch: prev_comm=" prev " prev_prio=120 prev_state=" s " ==> next_comm=" \
	next " next_prio=120\n"
#define FRAME(at, name) "\tffffffff8" at " " name " ([kernel.kallsyms])\n"
#define ASLEEP FRAME("2000000", "__schedule") FRAME("2000100", "do_nanosleep") "\n"
#define IN_CALL FRAME("1000000", "try_to_wake_up") FRAME("1000100", "pipe_write") "\n"
#define STRUCK FRAME("1000000", "try_to_wake_up") FRAME("1000200", "hrtimer_interrupt") \
	       FRAME("1000300", "asm_sysvec_apic_timer_interrupt") "\n"

static const char beginning[] = SWITCH("swapper 0", "1.000000", "swapper/1 prev_pid=0", "R", "job next_pid=7");

/* A thread sleeps, is woken by another in a system call or by a timer, waits for its CPU, and runs. */
static void makes_states_as_of_perf_data(void **state)
{
	(void)state;
	for (int struck = 0; struck < 2; struck++) {
		char text[4096];
		struct lg_trace *t;
		size_t blocked = SIZE_MAX, ready = SIZE_MAX;

		snprintf(text, sizeof text, "%s\n%s%s%s\n%s", beginning,
			 SWITCH("job 7", "1.010000", "job prev_pid=7", "S", "other next_pid=8") ASLEEP
			 "other 8 [001] 1.030000: sched:sched_waking: comm=job pid=7 prio=120 target_cpu=001\n",
			 struck ? STRUCK : IN_CALL,
			 SWITCH("other 8", "1.035000", "other prev_pid=8", "R+", "job next_pid=7"),
			 SWITCH("job 7", "1.040000", "job prev_pid=7", "S", "swapper/1 next_pid=0"));
		t = import_lines(text);
		for (size_t i = 0; i < t->state.n; i++) {
			if (t->thread.tid[t->state.thr[i]] != 7)
				continue;
			blocked = t->state.kind[i] == LG_BLOCKED && blocked == SIZE_MAX ? i : blocked;
			ready = t->state.kind[i] == LG_RUNNABLE ? i : ready;
		}
		assert_true(blocked != SIZE_MAX && ready != SIZE_MAX);
		assert_int_equal(t->state.ts[blocked], 1010000000);
		assert_int_equal(t->state.dur[blocked], 20000000);
		assert_int_equal(t->state.reason[blocked], LG_WHY_SLEEP);
		assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[t->state.stack[blocked]]]), "__schedule");
		assert_int_equal(t->thread.tid[t->state.waker[blocked]], 8);
		assert_int_equal(t->state.waker_ctx[blocked], struck ? LG_CTX_HARDIRQ : LG_CTX_TASK);
		assert_int_equal(t->state.dur[ready], 5000000);
		assert_int_equal(t->state.cpu[ready], 1);
		assert_int_equal(t->sample.n, 5);
		assert_int_equal(told(t, LG_DIAG_NOT_UNDERSTOOD), 0);
		assert_int_equal(told(t, LG_DIAG_PARTIAL), 0);
		lg_trace_free(t);
	}
}

static void odd_ones_are_counted_and_keep_their_row(void **state)
{
	struct lg_trace *t = import_lines(SWITCH("swapper 0", "1.000000", "swapper/1 prev_pid=0", "R", "job next_pid=7")
		"\njob 7 [001] 1.010000: sched:sched_switch: prev_comm=job prev_pid=7 ==> nonsense\n\n"
		"job 7 [001] 1.020000: cpu-clock: \n\n");

	(void)state;
	assert_int_equal(t->sample.n, 3);
	assert_int_equal(told(t, LG_DIAG_NOT_UNDERSTOOD), 1);
	lg_trace_free(t);
}

/* What was lost on a CPU may have been the thread's turn: its wait ends where that began. */
static void no_wait_goes_over_a_loss(void **state)
{
	(void)state;
	for (int lost = 0; lost < 2; lost++) {
		char text[4096];
		struct lg_trace *t;
		int64_t longest = 0;

		snprintf(text, sizeof text, "%s\n%s\n%s%s\n%s", beginning,
			 SWITCH("job 7", "1.010000", "job prev_pid=7", "S", "swapper/1 next_pid=0"),
			 lost ? "job 7 [001] 1.040000: PERF_RECORD_LOST lost 42\n\n" : "",
			 SWITCH("swapper 0", "1.050000", "swapper/1 prev_pid=0", "R", "job next_pid=7"),
			 SWITCH("job 7", "1.060000", "job prev_pid=7", "S", "swapper/1 next_pid=0"));
		t = import_lines(text);
		for (size_t i = 0; i < t->state.n; i++)
			if (t->state.kind[i] == LG_BLOCKED && t->state.dur[i] > longest)
				longest = t->state.dur[i];
		assert_int_equal(longest, lost ? 0 : 40000000);
		lg_trace_free(t);
	}
}

/* A line of another event without a CPU: the programs were recorded, not the CPUs. */
static void single_programs_give_no_states(void **state)
{
	static const char *const clock[] = { "job 7 [001] 1.005000: 1000000 cpu-clock: \n\n",
					     "job 7 1.005000: 1000000 cpu-clock: \n\n" };

	(void)state;
	for (int tied = 0; tied < 2; tied++) {
		char text[2048];
		struct lg_trace *t;

		snprintf(text, sizeof text, "%s\n%s%s\n", beginning, clock[tied],
			 SWITCH("job 7", "1.010000", "job prev_pid=7", "S", "swapper/1 next_pid=0"));
		t = import_lines(text);
		assert_int_equal(t->state.n == 0, tied);
		assert_int_equal(told(t, LG_DIAG_PARTIAL), tied ? 2 : 0);
		assert_int_equal(t->sample.n, 3);
		lg_trace_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_switches_of_both_forms),
		cmocka_unit_test(reads_wakings_of_both_forms),
		cmocka_unit_test(lines_that_lack_something_are_not_understood),
		cmocka_unit_test(makes_states_as_of_perf_data),
		cmocka_unit_test(odd_ones_are_counted_and_keep_their_row),
		cmocka_unit_test(no_wait_goes_over_a_loss),
		cmocka_unit_test(single_programs_give_no_states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
