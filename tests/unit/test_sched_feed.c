/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduler and lock events in, rows out: single cases, then a simulated machine whose truth is
 * known to the nanosecond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "store/sched_feed.h"

#define START 1000
#define S 1u /* prev_state: TASK_INTERRUPTIBLE */
#define D 2u
#define MUTEX 32u
#define SPIN 1u
#define RD 2u
#define WR 4u

static struct lg_builder *b;
static struct lg_sched_feed *f;

static int open_feed(void **state)
{
	struct lg_sched_options o = { .start = START, .has_waking = true, .has_fork = true,
				      .hold_min_ns = 100 };

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	return lg_sched_feed_new(&f, b, &o, NULL);
}

static int close_feed(void **state)
{
	(void)state;
	lg_sched_feed_free(f);
	lg_builder_free(b);
	return 0;
}

static void sw(int64_t ts, int cpu, int prev, uint64_t prev_state, int next)
{
	lg_sched_switched(f, &(struct lg_sched_switch){ .ts = ts, .cpu = cpu, .prev_pid = prev,
							.prev_tid = prev, .prev_state = prev_state,
							.next_pid = -1, .next_tid = next });
}

static void wake(int64_t ts, int tid, int waker)
{
	lg_sched_woke(f, &(struct lg_sched_waking){ .ts = ts, .tid = tid, .waker_pid = waker,
						    .waker_tid = waker, .target_cpu = 0,
						    .ctx = LG_CTX_TASK });
}

static void move(int64_t ts, int tid, int from, int to)
{
	lg_sched_moved(f, &(struct lg_sched_move){ .ts = ts, .tid = tid, .from_cpu = from, .to_cpu = to });
}

static void begin(int64_t ts, int tid, uint64_t lock, uint32_t flags)
{
	lg_sched_contention_begin(f, &(struct lg_sched_contention){
		.ts = ts, .pid = tid, .tid = tid, .lock = lock, .flags = flags });
}

static void hold(int64_t ts, int tid, uint64_t mm, bool write, lg_stk stack)
{
	lg_sched_mmap_acquired(f, &(struct lg_sched_mmap_lock){ .ts = ts, .pid = tid, .tid = tid,
		.mm = mm, .write = write, .success = true, .stack = stack });
}

static void release(int64_t ts, int tid, uint64_t mm)
{
	lg_sched_mmap_released(f, &(struct lg_sched_mmap_lock){ .ts = ts, .pid = tid, .tid = tid,
								.mm = mm });
}

static void expect(size_t i, int tid, enum lg_state_kind kind, int64_t ts, int64_t dur)
{
	struct lg_trace *t = lg_builder_trace(b);

	assert_true(i < t->state.n);
	assert_int_equal(t->thread.tid[t->state.thr[i]], tid);
	assert_int_equal(t->state.kind[i], kind);
	assert_int_equal(t->state.ts[i], ts);
	assert_int_equal(t->state.dur[i], dur);
}

static void follows_a_thread_through_sleep_wake_and_run(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1100, 0, 7, D, 0);
	wake(1300, 7, 9);
	sw(1350, 0, 0, 0, 7);
	sw(1400, 0, 7, 0, 8);
	assert_int_equal(lg_sched_feed_finish(f, 1500, NULL), 0);
	expect(0, 7, LG_RUNNING, 1000, 100);
	assert_int_equal(t->state.flags[0], LG_STATE_EDGE);
	expect(1, 7, LG_BLOCKED, 1100, 200);
	assert_int_equal(t->state.reason[1], LG_WHY_DISK);
	assert_int_equal(t->thread.tid[t->state.waker[1]], 9);
	assert_int_equal(t->state.waker_ctx[1], LG_CTX_TASK);
	expect(2, 7, LG_RUNNABLE, 1300, 50);
	assert_int_equal(t->state.reason[2], LG_WHY_WOKEN);
	expect(3, 7, LG_RUNNING, 1350, 50);
	assert_int_equal(t->state.flags[3], 0);
	/* 8 was never woken in the trace and now runs: it had been runnable all along. */
	expect(4, 8, LG_RUNNABLE, 1000, 400);
	expect(5, 7, LG_RUNNABLE, 1400, -1);
	assert_int_equal(t->state.reason[5], LG_WHY_PREEMPTED);
	expect(6, 8, LG_RUNNING, 1400, -1);
	assert_int_equal(t->state.n, 7);
}

/* In whose queue it waited, and how long, and not where it ran in the end. */
static void a_wait_for_a_cpu_is_told_of_each_queue(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1100, 0, 7, 0, 8); /* preempted on CPU 0 */
	move(40001100, 7, 0, 3);
	move(40061100, 7, 3, 2);
	sw(40091100, 2, 0, 0, 7);
	expect(1, 8, LG_RUNNABLE, START, 100);
	expect(2, 7, LG_RUNNABLE, 1100, 40000000);
	assert_int_equal(t->state.cpu[2], 0);
	assert_int_equal(t->state.reason[2], LG_WHY_PREEMPTED);
	expect(3, 7, LG_RUNNABLE, 40001100, 60000);
	assert_int_equal(t->state.cpu[3], 3);
	expect(4, 7, LG_RUNNABLE, 40061100, 30000);
	assert_int_equal(t->state.cpu[4], 2);
	assert_int_equal(t->state.reason[4], LG_WHY_PREEMPTED);
	assert_int_equal(t->state.n, 5);
}

/* sched_waking tells where it slept; where it is put comes at once, or from sched_wakeup. */
static void placing_a_woken_thread_is_no_part_of_its_wait(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1100, 0, 7, S, 0);
	move(1200, 7, 0, 1); /* asleep: nothing that is waited for */
	wake(1300, 7, 9);
	move(1400, 7, 0, 3);
	move(2000000, 7, -1, 2); /* sched_wakeup, as late as an interrupt on that CPU */
	sw(9000000, 2, 0, 0, 7);
	move(9000100, 7, 2, 3); /* it runs */
	expect(1, 7, LG_BLOCKED, 1100, 200);
	expect(2, 7, LG_RUNNABLE, 1300, 9000000 - 1300);
	assert_int_equal(t->state.cpu[2], 2);
	assert_int_equal(t->state.n, 3);
	move(9000200, 1234, 0, 1); /* never seen: no row, no crash */
	sw(9100000, 2, 7, S, 0);
	expect(3, 7, LG_RUNNING, 9000000, 100000);
}

static void preemption_of_a_thread_about_to_sleep_is_runnable(void **state)
{
	(void)state;
	sw(1100, 0, 7, S | 0x100, 0);
	sw(1200, 0, 0, 0, 7);
	expect(1, 7, LG_RUNNABLE, 1100, 100);
}

static void a_waking_just_before_the_switch_out_is_used(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1100, 0, 0, 0, 7);
	wake(1198, 7, 9);
	sw(1200, 0, 7, S, 0);
	sw(1250, 0, 0, 0, 7);
	expect(2, 7, LG_RUNNABLE, 1200, 50);
	assert_int_equal(t->thread.tid[t->state.waker[2]], 9);
	assert_int_equal(t->state.reason[2], LG_WHY_WOKEN);
	assert_int_equal(t->state.n, 3);
}

static void a_stale_waking_is_not_used_for_the_next_sleep(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1100, 0, 0, 0, 7);
	wake(1150, 7, 9); /* it was still on its CPU and went on running */
	sw(1200, 0, 7, S, 0);
	wake(1400, 7, 5);
	sw(1450, 0, 0, 0, 7);
	expect(2, 7, LG_BLOCKED, 1200, 200);
	assert_int_equal(t->thread.tid[t->state.waker[2]], 5);
}

static void a_gap_cuts_what_may_hide_an_event(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1010, 0, 0, 0, 7);  /* runs on the CPU that loses events */
	sw(1020, 1, 0, 0, 8);  /* runs on one that does not */
	sw(1030, 2, 9, S, 0);  /* sleeps */
	lg_sched_gap(f, 1100, 1200, 0);
	wake(1300, 9, 8);
	sw(1320, 2, 0, 0, 9);
	sw(1400, 0, 7, S, 0);
	sw(1500, 1, 8, S, 0);
	expect(3, 7, LG_RUNNING, 1010, 90);
	assert_int_equal(t->state.flags[3], LG_STATE_EDGE);
	expect(4, 9, LG_BLOCKED, 1030, 70);
	assert_int_equal(t->state.waker[4], 0);
	expect(5, 9, LG_BLOCKED, 1200, 100);
	assert_int_equal(t->state.flags[5], LG_STATE_EDGE);
	assert_int_equal(t->thread.tid[t->state.waker[5]], 8);
	expect(6, 9, LG_RUNNABLE, 1300, 20);
	assert_int_equal(t->state.flags[6], 0);
	expect(7, 7, LG_RUNNING, 1200, 200);
	expect(8, 8, LG_RUNNING, 1020, 480);
	assert_int_equal(t->state.flags[8], 0);
	assert_int_equal(t->state.n, 9);
}

static void a_switch_that_contradicts_the_last_one_invents_nothing(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1010, 0, 0, 0, 7);
	sw(1500, 0, 8, S, 0); /* when did 7 stop and 8 start? */
	for (size_t i = 0; i < t->state.n; i++)
		assert_int_not_equal(t->state.kind[i], LG_RUNNING);
	assert_int_equal(lg_sched_feed_finish(f, 2000, NULL), 0);
	assert_int_equal(t->diag.n, 1);
	assert_int_equal(t->diag.id[0], LG_DIAG_PARTIAL);
	assert_non_null(strstr(lg_string(t, t->diag.text[0]), "thread 7"));
}

static void two_switch_outs_prove_that_it_ran(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1100, 0, 0, 0, 7);
	sw(1200, 0, 7, S, 0);
	wake(1300, 7, 9);
	sw(1400, 0, 7, S, 0); /* idle -> 7 was not told */
	expect(1, 7, LG_RUNNING, 1100, 100);
	expect(2, 7, LG_BLOCKED, 1200, 100);
	expect(3, 7, LG_RUNNING, 1300, 100);
	assert_int_equal(t->state.cpu[3], 0);
	assert_int_equal(t->state.flags[3], LG_STATE_EDGE);
	wake(1500, 7, 9);
	sw(1550, 0, 0, 0, 7);
	expect(4, 7, LG_BLOCKED, 1400, 100);
	expect(5, 7, LG_RUNNABLE, 1500, 50);
}

static void two_switch_outs_without_a_waking_leave_the_time_open(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);
	int64_t drawn = 0;

	(void)state;
	sw(1100, 0, 0, 0, 7);
	sw(1200, 0, 7, S, 0);
	sw(1400, 0, 7, S, 0);
	sw(1600, 0, 7, 0, 8); /* preempted: the same */
	sw(1900, 0, 7, S, 8); /* and once more from the waiting for a CPU, which 8 had */
	for (size_t i = 0; i < t->state.n; i++)
		if (t->thread.tid[t->state.thr[i]] == 7 && t->state.ts[i] >= 1200)
			drawn += t->state.dur[i];
	assert_int_equal(drawn, 0);
	assert_int_equal(lg_sched_feed_finish(f, 2000, NULL), 0);
	assert_int_equal(t->diag.n, 1);
	assert_non_null(strstr(lg_string(t, t->diag.text[0]), "away from an idle CPU"));
	assert_null(strstr(lg_string(t, t->diag.text[0]), "thread 0"));
}

static void an_untold_run_is_open_where_another_thread_had_the_cpu(void **state)
{
	(void)state;
	sw(1100, 0, 0, 0, 7);
	sw(1200, 0, 7, S, 8);
	wake(1250, 7, 9);
	sw(1300, 0, 8, 0, 5); /* 7 waits on */
	sw(1400, 0, 7, S, 0); /* 5 -> 7 was not told */
	sw(1500, 0, 0, 0, 5);
	expect(3, 7, LG_BLOCKED, 1200, 50);
	expect(6, 7, LG_RUNNABLE, 1250, 50);
	for (size_t i = 7; i < lg_builder_trace(b)->state.n; i++)
		assert_int_not_equal(lg_builder_trace(b)->thread.tid[lg_builder_trace(b)->state.thr[i]], 7);
}

static void a_dead_thread_ends_and_its_tid_starts_again(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);
	lg_thr first;

	(void)state;
	lg_thread_start(b, 1, 7, 7, 1005);
	lg_sched_forked(f, 1005, 7, 7);
	sw(1010, 0, 0, 0, 7);
	lg_sched_exited(f, 1090, 7);
	lg_thread_end(b, 7, 1090);
	sw(1100, 0, 7, 0x10, 0);
	expect(0, 7, LG_RUNNABLE, 1005, 5);
	assert_int_equal(t->state.reason[0], LG_WHY_NEW);
	expect(1, 7, LG_RUNNING, 1010, 90);
	first = t->state.thr[1];
	lg_thread_start(b, 1, 7, 7, 1200);
	lg_sched_forked(f, 1200, 7, 7);
	sw(1210, 0, 0, 0, 7);
	sw(1220, 0, 7, S, 0);
	assert_int_not_equal(t->state.thr[3], first);
	assert_int_equal(t->thread.start[t->state.thr[3]], 1200);
	expect(3, 7, LG_RUNNING, 1210, 10);
}

static void a_mutex_that_spins_then_sleeps_is_one_wait(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	sw(1010, 0, 0, 0, 7);
	begin(1100, 7, 0xabc0, MUTEX | SPIN);
	begin(1150, 7, 0xabc0, MUTEX);
	sw(1160, 0, 7, D, 0);
	wake(1300, 7, 9);
	sw(1310, 0, 0, 0, 7);
	lg_sched_contention_end(f, 1320, 7, 0xabc0);
	assert_int_equal(lg_sched_feed_finish(f, 1400, NULL), 0);
	assert_int_equal(t->span.n, 1);
	assert_int_equal(t->span.ts[0], 1100);
	assert_int_equal(t->span.dur[0], 220);
	assert_int_equal(t->span.kind[0], LG_SPAN_LOCK_WAIT);
	assert_int_equal(t->span.flags[0], LG_SPAN_MUTEX);
	assert_string_equal(lg_string(t, t->span.name[0]), "mutex");
	assert_int_equal(t->state.object[2], 0xabc0); /* the blocked row names the lock */
	assert_int_equal(t->state.kind[2], LG_BLOCKED);
}

static void nested_waits_and_a_lost_end(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	begin(1100, 7, 0xa0, RD);
	begin(1110, 7, 0xb0, SPIN);
	lg_sched_contention_end(f, 1120, 7, 0xb0);
	begin(1130, 7, 0xc0, SPIN); /* never ends */
	lg_sched_contention_end(f, 1150, 7, 0xa0);
	lg_sched_contention_end(f, 1160, 7, 0xd0); /* never began */
	begin(1170, 7, 0xe0, RD | SPIN);
	assert_int_equal(lg_sched_feed_finish(f, 1400, NULL), 0);
	assert_int_equal(t->span.n, 3);
	assert_int_equal(t->span.object[0], 0xb0);
	assert_int_equal(t->span.object[1], 0xa0);
	assert_int_equal(t->span.dur[1], 50);
	assert_int_equal(t->span.object[2], 0xe0);
	assert_int_equal(t->span.dur[2], -1);
	assert_int_equal(lg_sched_feed_stats(f).lock_lost, 2);
}

#define MM_A 0x100000u
#define MM_B 0x200000u
#define OFFSET 0x88u

static void a_foreign_reader_is_named_as_the_holder(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);
	lg_stk walk = lg_intern_stack(b, 0, lg_intern_frame(b, &(struct lg_frame_row){ .pc = 5 }));
	size_t n;

	(void)state;
	/* Victim 20 maps memory: two write acquisitions make mm A its own; it waits twice. */
	for (int i = 0; i < 2; i++) {
		int64_t at = 1100 + 50 * i;

		begin(at, 20, MM_A + OFFSET, WR);
		lg_sched_contention_end(f, at + 10, 20, MM_A + OFFSET);
		hold(at + 11, 20, MM_A, true, 0);
		release(at + 20, 20, MM_A);
	}
	assert_true(lg_sched_mm_known(f, MM_A));
	n = t->span.n;
	assert_int_equal(n, 2); /* the waits; nobody waited for the short holds */
	hold(2000, 30, MM_A, false, walk); /* the agent */
	begin(2010, 20, MM_A + OFFSET, WR);
	release(2040, 30, MM_A);
	lg_sched_contention_end(f, 2041, 20, MM_A + OFFSET);
	hold(2042, 20, MM_A, true, 0);
	release(2043, 20, MM_A);
	assert_int_equal(t->span.kind[n], LG_SPAN_LOCK_HOLD);
	assert_int_equal(t->span.flags[n], LG_SPAN_MMAP_LOCK | LG_SPAN_READ | LG_SPAN_FOREIGN);
	assert_int_equal(t->thread.tid[t->span.thr[n]], 30);
	assert_int_equal(t->thread.tid[t->span.peer[n]], 20);
	assert_int_equal(t->span.dur[n], 40);
	assert_int_equal(t->span.stack[n], walk);
	assert_int_equal(t->span.kind[n + 1], LG_SPAN_LOCK_WAIT);
	assert_int_equal(t->span.object[n + 1], MM_A);
	assert_int_equal(t->thread.tid[t->span.peer[n + 1]], 30);
	assert_int_equal(t->span.peer_stack[n + 1], walk);
	assert_int_equal(lg_process_read(b, lg_process_get(b, 20)).mm, MM_A);
}

static void the_first_wait_names_the_holder_too(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	/* Nobody knows yet where in an mm its lock lies; the next event of the thread tells. */
	hold(2000, 30, MM_A, false, 0);
	begin(2010, 20, MM_A + OFFSET, WR);
	release(2040, 30, MM_A);
	lg_sched_contention_end(f, 2041, 20, MM_A + OFFSET);
	hold(2042, 20, MM_A, true, 0);
	assert_int_equal(t->span.kind[0], LG_SPAN_LOCK_WAIT);
	assert_int_equal(t->span.object[0], MM_A);
	assert_int_equal(t->thread.tid[t->span.peer[0]], 30);
}

static lg_stk kernel_stack(const char *const *outermost_first)
{
	lg_stk s = 0;

	for (; *outermost_first; outermost_first++)
		s = lg_intern_stack(b, s, lg_intern_frame(b, &(struct lg_frame_row){
			.kind = LG_FRAME_KERNEL, .name = lg_intern(b, *outermost_first) }));
	return s;
}

static void the_waiters_stack_tells_which_rwsem_it_is(void **state)
{
	static const char *const mapping[] = { "do_syscall_64", "ksys_mmap_pgoff", "vm_mmap_pgoff", "down_write_killable",
					       "rwsem_down_write_slowpath", NULL };
	static const char *const writing[] = { "do_syscall_64", "vfs_write", "ext4_buffered_write_iter", "down_write",
					       "rwsem_down_write_slowpath", NULL };
	/* A file's lock that is wanted while the address space is being changed is a file's lock. */
	static const char *const within[] = { "vm_mmap_pgoff", "ext4_file_mmap", "down_read", NULL };
	const char *const *stacks[] = { mapping, writing, within, NULL };
	const char *const names[] = { "mmap_lock", "rwsem", "rwsem", "rwsem" };
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	for (int i = 0; i < 4; i++) {
		lg_sched_contention_begin(f, &(struct lg_sched_contention){
			.ts = 1100 + 100 * i, .pid = 7, .tid = 7, .lock = 0xa0, .flags = WR,
			.stack = stacks[i] ? kernel_stack(stacks[i]) : 0 });
		lg_sched_contention_end(f, 1150 + 100 * i, 7, 0xa0);
	}
	assert_int_equal(lg_sched_feed_finish(f, 2000, NULL), 0);
	assert_int_equal(t->span.n, 4);
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(lg_string(t, t->span.name[i]), names[i]);
}

static void short_holds_that_nobody_waits_for_are_left_out(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	hold(1100, 20, MM_A, true, 0);
	release(1150, 20, MM_A);
	hold(1200, 20, MM_A, true, 0);
	hold(1210, 20, MM_B, true, 0); /* fork holds both */
	release(1290, 20, MM_B);
	release(1300, 20, MM_A);
	assert_int_equal(t->span.n, 1);
	assert_int_equal(t->span.dur[0], 100);
	assert_int_equal(t->span.flags[0], LG_SPAN_MMAP_LOCK | LG_SPAN_WRITE);
	assert_false(lg_sched_mm_known(f, MM_B));
	hold(1400, 20, MM_A, false, 0);
	lg_sched_gap(f, 1450, 1460, 1);
	release(1900, 20, MM_A); /* may be another acquisition's */
	assert_int_equal(t->span.n, 1);
}

static void a_downgrade_splits_the_hold(void **state)
{
	struct lg_trace *t = lg_builder_trace(b);

	(void)state;
	hold(1100, 20, MM_A, true, 0);
	hold(1300, 20, MM_A, false, 0);
	release(1600, 20, MM_A);
	assert_int_equal(t->span.n, 2);
	assert_int_equal(t->span.dur[0], 200);
	assert_int_equal(t->span.dur[1], 300);
	assert_int_equal(t->span.flags[1] & LG_SPAN_READ, LG_SPAN_READ);
	assert_int_equal(lg_sched_feed_stats(f).lock_lost, 0);
}

/* -- a machine whose truth is known -- */

#define N_THR 50
#define N_CPU 4
#define N_EVENT 200000

static uint64_t seed = 88172645463325252u;

static uint32_t rnd(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 33) % n);
}

struct sim {
	int kind[N_THR], cur[N_CPU];
	int64_t since[N_THR], total[N_THR][4];
	int64_t now;
};

static void sim_to(struct sim *s, int i, int kind)
{
	s->total[i][s->kind[i]] += s->now - s->since[i];
	s->since[i] = s->now;
	s->kind[i] = kind;
}

/* Thread i has tid 100 + i; events of CPU `lossy` are withheld during its gaps. */
static void simulate(struct sim *s, int lossy, int64_t *ret_lost)
{
	int64_t gap_to = 0;

	*s = (struct sim){ .now = START };
	for (int i = 0; i < N_THR; i++) {
		s->kind[i] = i < N_CPU ? LG_RUNNING : LG_BLOCKED;
		s->since[i] = START;
	}
	for (int c = 0; c < N_CPU; c++)
		s->cur[c] = c;
	for (int n = 0; n < N_EVENT; n++) {
		int i = (int)rnd(N_THR), c = (int)rnd(N_CPU), prev = s->cur[c];
		bool lose;

		s->now += 1 + rnd(1000);
		if (lossy >= 0 && s->now >= gap_to && rnd(2000) == 0) {
			gap_to = s->now + rnd(300000);
			lg_sched_gap(f, s->now, gap_to, lossy);
			*ret_lost += gap_to - s->now;
		}
		lose = c == lossy && s->now < gap_to;
		if (rnd(2) && s->kind[i] == LG_BLOCKED) {
			if (!lose)
				wake(s->now, 100 + i, prev >= 0 ? 100 + prev : 0);
			sim_to(s, i, LG_RUNNABLE);
			continue;
		}
		if (s->kind[i] != LG_RUNNABLE)
			i = -1;
		if (i < 0 && prev < 0)
			continue;
		uint64_t st = rnd(3) ? S : 0;

		if (!lose)
			sw(s->now, c, prev >= 0 ? 100 + prev : 0, prev >= 0 ? st : 0,
			   i >= 0 ? 100 + i : 0);
		if (prev >= 0)
			sim_to(s, prev, st ? LG_BLOCKED : LG_RUNNABLE);
		if (i >= 0)
			sim_to(s, i, LG_RUNNING);
		s->cur[c] = i;
	}
	s->now += 1000;
}

static void check_rows(const struct sim *s, int64_t sum[N_THR][4])
{
	struct lg_trace *t = lg_builder_trace(b);
	int64_t end[N_THR] = { 0 };

	memset(sum, 0, sizeof(int64_t) * N_THR * 4);
	for (size_t k = 0; k < t->state.n; k++) {
		int i = t->thread.tid[t->state.thr[k]] - 100;
		int64_t to = t->state.dur[k] < 0 ? s->now : t->state.ts[k] + t->state.dur[k];

		assert_in_range(i, 0, N_THR - 1);
		assert_true(t->state.ts[k] >= end[i]); /* rows of one thread never overlap */
		assert_true(to <= s->now);
		end[i] = to;
		sum[i][t->state.kind[k]] += to - t->state.ts[k];
	}
}

static void the_sums_are_the_simulated_machines_to_the_nanosecond(void **state)
{
	static struct sim s;
	int64_t sum[N_THR][4], lost = 0;

	(void)state;
	simulate(&s, -1, &lost);
	for (int i = 0; i < N_THR; i++)
		sim_to(&s, i, LG_STATE_NONE);
	assert_int_equal(lg_sched_feed_finish(f, s.now, NULL), 0);
	check_rows(&s, sum);
	for (int i = 0; i < N_THR; i++)
		for (int k = LG_RUNNING; k <= LG_BLOCKED; k++)
			assert_int_equal(sum[i][k], s.total[i][k]);
	assert_int_equal(lg_sched_feed_stats(f).mismatch, 0);
}

static void losses_only_ever_leave_holes(void **state)
{
	static struct sim s;
	int64_t sum[N_THR][4], lost = 0, all = 0, drawn = 0;

	(void)state;
	simulate(&s, 1, &lost);
	for (int i = 0; i < N_THR; i++)
		sim_to(&s, i, LG_STATE_NONE);
	assert_int_equal(lg_sched_feed_finish(f, s.now, NULL), 0);
	check_rows(&s, sum);
	assert_true(lost > 0);
	for (int i = 0; i < N_THR; i++)
		for (int k = LG_RUNNING; k <= LG_BLOCKED; k++) {
			/* Nothing is drawn that was not so... */
			assert_true(sum[i][k] <= s.total[i][k]);
			all += s.total[i][k];
			drawn += sum[i][k];
		}
	/* ... and most of what lies outside the gaps is drawn. */
	assert_true(drawn > all / 10 * 6);
	assert_true(drawn < all);
	assert_int_equal(lg_sched_feed_stats(f).mismatch, 0);
}

static void survives_every_failed_allocation(void **state)
{
	struct lg_sched_options o = { .start = START, .has_waking = true, .has_fork = true };

	(void)state;
	for (uint64_t n = 1; n < 60; n++) {
		struct lg_builder *keep_b = b;
		struct lg_sched_feed *keep_f = f;

		assert_int_equal(lg_builder_new(&b, NULL), 0);
		lg_alloc_fail_at(n);
		if (!lg_sched_feed_new(&f, b, &o, NULL)) {
			for (int i = 0; i < 3000; i++) {
				sw(2000 + i, i % 70, 0, 0, 100 + i);
				hold(2000 + i, 100 + i, MM_A + (unsigned)i * 64, true, 0);
			}
			lg_sched_gap(f, 100000, 100001, -1);
			assert_true(lg_sched_feed_finish(f, 200000, NULL) <= 0);
			lg_sched_feed_free(f);
		}
		lg_alloc_fail_at(0);
		lg_builder_free(b);
		b = keep_b;
		f = keep_f;
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_feed, close_feed)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(follows_a_thread_through_sleep_wake_and_run),
		TEST(a_wait_for_a_cpu_is_told_of_each_queue),
		TEST(placing_a_woken_thread_is_no_part_of_its_wait),
		TEST(preemption_of_a_thread_about_to_sleep_is_runnable),
		TEST(a_waking_just_before_the_switch_out_is_used),
		TEST(a_stale_waking_is_not_used_for_the_next_sleep),
		TEST(a_gap_cuts_what_may_hide_an_event),
		TEST(a_switch_that_contradicts_the_last_one_invents_nothing),
		TEST(two_switch_outs_prove_that_it_ran),
		TEST(two_switch_outs_without_a_waking_leave_the_time_open),
		TEST(an_untold_run_is_open_where_another_thread_had_the_cpu),
		TEST(a_dead_thread_ends_and_its_tid_starts_again),
		TEST(a_mutex_that_spins_then_sleeps_is_one_wait),
		TEST(nested_waits_and_a_lost_end),
		TEST(a_foreign_reader_is_named_as_the_holder),
		TEST(the_first_wait_names_the_holder_too),
		TEST(the_waiters_stack_tells_which_rwsem_it_is),
		TEST(short_holds_that_nobody_waits_for_are_left_out),
		TEST(a_downgrade_splits_the_hold),
		TEST(the_sums_are_the_simulated_machines_to_the_nanosecond),
		TEST(losses_only_ever_leave_holes),
		TEST(survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
