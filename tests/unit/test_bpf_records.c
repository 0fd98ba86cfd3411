/* SPDX-License-Identifier: Apache-2.0 */
/* test_bpf_records.c - records of the BPF programs, made by hand, to rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record/bpf/bpf_feed.h"
#include "record/session.h"

/* The part of a session that the feed uses. */
struct lg_session {
	struct lg_builder *b;
	int32_t job, python; /* pids */
	struct lg_bpf_python_layout layout;
	int32_t sampled_tid;
	int64_t sampled_ts;
	size_t sampled_n;
	uint8_t sampled_gil;
	uint64_t sampled_first;
};

struct lg_builder *lg_session_builder(struct lg_session *s) { return s->b; }
bool lg_session_is_job(const struct lg_session *s, int32_t pid) { return pid == s->job; }
void lg_session_fork(struct lg_session *s, int64_t ts, int32_t ppid, int32_t pid, int32_t tid)
{
	lg_thread_start(s->b, ppid, pid, tid, ts);
}
void lg_session_exec(struct lg_session *s, int64_t ts, int32_t pid, const char *comm)
{
	(void)s, (void)ts, (void)pid, (void)comm;
}
void lg_session_exit(struct lg_session *s, int64_t ts, int32_t pid, int32_t tid)
{
	(void)pid;
	lg_thread_end(s->b, tid, ts);
}
lg_stk lg_session_stack(struct lg_session *s, const struct lg_addresses *of)
{
	size_t n_user = of->n_user, n_kernel = of->n_kernel, n_python = of->n_python;
	lg_stk stk = 0;

	while (n_python--)
		stk = lg_intern_stack(s->b, stk, lg_intern_frame(s->b, &(struct lg_frame_row){
			.pc = of->python[n_python], .kind = LG_FRAME_PYTHON}));
	while (n_user--)
		stk = lg_intern_stack(s->b, stk, lg_intern_frame(s->b, &(struct lg_frame_row){
			.pc = of->user[n_user], .kind = LG_FRAME_USER}));
	while (n_kernel--)
		stk = lg_intern_stack(s->b, stk, lg_intern_frame(s->b, &(struct lg_frame_row){
			.pc = of->kernel[n_kernel], .kind = LG_FRAME_KERNEL}));
	return stk;
}

const struct lg_bpf_python_layout *lg_session_python(struct lg_session *s, int32_t pid, uint64_t *ret_gil)
{
	*ret_gil = 0x6110;
	return s->python == pid ? &s->layout : NULL;
}

size_t lg_session_python_asleep(struct lg_session *s, int32_t pid, int32_t tid, uint64_t *frames)
{
	(void)s;
	(void)pid;
	(void)tid;
	(void)frames;
	return 0;
}

void lg_session_python_sample(struct lg_session *s, int32_t tid, int64_t ts, const uint64_t *frames, size_t n,
			      uint8_t gil)
{
	s->sampled_gil = gil;
	s->sampled_tid = tid;
	s->sampled_ts = ts;
	s->sampled_n = n;
	s->sampled_first = n ? frames[0] : 0;
}

struct fixture {
	struct lg_session s;
	struct lg_bpf_feed *f;
	int32_t told_job, told_python; /* python: negative where it was taken back */
};

static void on_job(void *arg, int32_t pid)
{
	((struct fixture *)arg)->told_job = pid;
}

static void on_python(void *arg, int32_t pid, const struct lg_bpf_python_layout *layout, uint64_t gil)
{
	assert_int_equal(gil, layout ? 0x6110 : 0);
	((struct fixture *)arg)->told_python = layout ? pid : -pid;
}

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);

	assert_non_null(x);
	x->s.job = 900;
	assert_int_equal(lg_builder_new(&x->s.b, NULL), 0);
	assert_int_equal(lg_bpf_feed_new(&x->f, &x->s, &(struct lg_bpf_watch){ on_job, on_python, x }, NULL),
			 0);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	lg_bpf_feed_free(x->f);
	lg_builder_free(x->s.b);
	free(x);
	return 0;
}

static struct lg_bpf_hdr header(uint8_t kind, uint64_t ts, uint32_t tgid, uint32_t tid)
{
	return (struct lg_bpf_hdr){.kind = kind, .ts = ts, .tgid = tgid, .tid = tid, .cpu = 3};
}

static void slice(struct fixture *x, uint32_t tid, uint64_t off, uint8_t why, uint64_t wake,
		  uint64_t in, uint64_t out, uint8_t out_why, uint8_t flags)
{
	struct lg_bpf_slice r = {
		.h = header(LG_BPF_SLICE, out, 900, tid), .off_ts = off, .off_why = why,
		.wake_ts = wake, .in_ts = in, .out_why = out_why, .waker_tid = wake ? 77 : 0,
	};

	r.h.flags = flags;
	lg_bpf_feed(x->f, &r, sizeof r);
}

static struct lg_state_row state_row(struct fixture *x, size_t i)
{
	const struct lg_state_tab *t = &lg_builder_trace(x->s.b)->state;

	assert_true(i < t->n);
	return (struct lg_state_row){
		.ts = t->ts[i], .dur = t->dur[i], .thr = t->thr[i], .cpu = t->cpu[i],
		.kind = t->kind[i], .reason = t->reason[i], .waker_ctx = t->waker_ctx[i],
		.flags = t->flags[i], .waker = t->waker[i], .blocker = t->blocker[i],
		.object = t->object[i], .stack = t->stack[i], .waker_stack = t->waker_stack[i],
		.blocker_stack = t->blocker_stack[i], .run = t->run[i],
	};
}

static size_t n_states(struct fixture *x)
{
	return lg_builder_trace(x->s.b)->state.n;
}

static void check(struct fixture *x, size_t i, int kind, int reason, int64_t ts, int64_t dur)
{
	struct lg_state_row r = state_row(x, i);

	assert_int_equal(r.kind, kind);
	assert_int_equal(r.reason, reason);
	assert_int_equal(r.ts, ts);
	assert_int_equal(r.dur, dur);
}

static void a_slice_is_blocked_then_runnable_then_running(void **state)
{
	struct fixture *x = *state;

	slice(x, 901, 100, LG_WHY_DISK, 150, 170, 300, LG_WHY_SLEEP, LG_CTX_TASK);
	assert_int_equal(n_states(x), 3);
	check(x, 0, LG_BLOCKED, LG_WHY_DISK, 100, 50);
	check(x, 1, LG_RUNNABLE, LG_WHY_WOKEN, 150, 20);
	check(x, 2, LG_RUNNING, 0, 170, 130);
	assert_int_equal(state_row(x, 2).cpu, 3);
	assert_int_equal(lg_thread_read(x->s.b, state_row(x, 0).waker).tid, 77);
	assert_int_equal(state_row(x, 0).waker_ctx, LG_CTX_TASK);
}

static void a_preempted_thread_was_runnable_all_the_time(void **state)
{
	struct fixture *x = *state;

	slice(x, 901, 100, LG_WHY_PREEMPTED, 0, 170, 300, LG_WHY_SLEEP, 0);
	assert_int_equal(n_states(x), 2);
	check(x, 0, LG_RUNNABLE, LG_WHY_PREEMPTED, 100, 70);
	check(x, 1, LG_RUNNING, 0, 170, 130);
}

static void move(struct fixture *x, uint32_t tid, uint64_t ts, uint32_t from)
{
	struct lg_bpf_move r = { .h = header(LG_BPF_MOVE, ts, 900, tid), .from_cpu = from };

	lg_bpf_feed(x->f, &r, sizeof r);
}

/* It ran on CPU 3 (the header's), after it had waited for 1 and for 2. */
static void a_wait_for_a_cpu_is_told_of_each_queue(void **state)
{
	struct fixture *x = *state;

	for (int i = 0; i < 9; i++)
		move(x, 901, 10 + i, 7); /* of a wait that is over */
	move(x, 901, 160, 1);
	move(x, 901, 165, 2);
	slice(x, 901, 100, LG_WHY_SLEEP, 150, 170, 300, LG_WHY_SLEEP, LG_CTX_TASK);
	check(x, 0, LG_BLOCKED, LG_WHY_SLEEP, 100, 50);
	check(x, 1, LG_RUNNABLE, LG_WHY_WOKEN, 150, 10);
	assert_int_equal(state_row(x, 1).cpu, 1);
	check(x, 2, LG_RUNNABLE, LG_WHY_WOKEN, 160, 5);
	assert_int_equal(state_row(x, 2).cpu, 2);
	check(x, 3, LG_RUNNABLE, LG_WHY_WOKEN, 165, 5);
	assert_int_equal(state_row(x, 3).cpu, 3);
	check(x, 4, LG_RUNNING, 0, 170, 130);
	assert_int_equal(n_states(x), 5);
	/* The next wait, in one queue. */
	slice(x, 901, 300, LG_WHY_PREEMPTED, 0, 400, 500, LG_WHY_SLEEP, 0);
	check(x, 5, LG_RUNNABLE, LG_WHY_PREEMPTED, 300, 100);
	assert_int_equal(state_row(x, 5).cpu, 3);
	assert_int_equal(n_states(x), 7);
}

static void a_waking_that_was_not_seen_leaves_the_wait_blocked(void **state)
{
	struct fixture *x = *state;

	slice(x, 901, 100, LG_WHY_SLEEP, 0, 170, 300, LG_WHY_SLEEP, 0);
	assert_int_equal(n_states(x), 2);
	check(x, 0, LG_BLOCKED, LG_WHY_SLEEP, 100, 70);
}

static void nothing_is_claimed_for_a_gap(void **state)
{
	struct fixture *x = *state;

	slice(x, 901, 100, LG_WHY_SLEEP, 150, 300, 300, LG_WHY_SLEEP, LG_BPF_GAP);
	assert_int_equal(n_states(x), 1);
	check(x, 0, LG_BLOCKED, LG_WHY_SLEEP, 100, 50);
	slice(x, 901, 300, LG_WHY_PREEMPTED, 0, 400, 400, LG_WHY_SLEEP, LG_BPF_GAP);
	assert_int_equal(n_states(x), 1);
}

static void rows_of_a_thread_never_overlap(void **state)
{
	struct fixture *x = *state;
	size_t i;

	slice(x, 901, 0, 0, 0, 100, 300, LG_WHY_SLEEP, 0);
	slice(x, 901, 200, LG_WHY_SLEEP, 250, 280, 400, LG_WHY_SLEEP, 0); /* lies about 200..300 */
	for (i = 1; i < n_states(x); i++)
		assert_true(state_row(x, i).ts >= state_row(x, i - 1).ts + state_row(x, i - 1).dur);
	assert_int_equal(state_row(x, n_states(x) - 1).ts, 300);
}

static void the_last_slice_ends_the_life_and_a_reused_pid_is_another(void **state)
{
	struct fixture *x = *state;
	lg_thr first;

	slice(x, 900, 0, 0, 0, 100, 200, LG_WHY_DEAD, LG_BPF_LAST);
	first = state_row(x, 0).thr;
	assert_int_equal(lg_thread_read(x->s.b, first).end, 200);
	assert_int_equal(lg_process_read(x->s.b, lg_thread_process(x->s.b, first)).end, 200);
	slice(x, 900, 0, 0, 0, 500, 600, LG_WHY_SLEEP, 0);
	assert_int_not_equal(state_row(x, 1).thr, first);
}

static void a_leader_that_dies_before_its_threads_keeps_the_process_alive(void **state)
{
	struct fixture *x = *state;
	lg_thr leader, other;

	slice(x, 901, 0, 0, 0, 50, 60, LG_WHY_SLEEP, 0);
	slice(x, 900, 0, 0, 0, 100, 200, LG_WHY_DEAD, 0);
	other = state_row(x, 0).thr;
	leader = state_row(x, 1).thr;
	assert_int_equal(lg_process_read(x->s.b, lg_thread_process(x->s.b, leader)).end, INT64_MAX);
	slice(x, 901, 60, LG_WHY_SLEEP, 0, 300, 400, LG_WHY_DEAD, LG_BPF_LAST);
	assert_int_equal(state_row(x, n_states(x) - 1).thr, other);
	assert_int_equal(lg_process_read(x->s.b, lg_thread_process(x->s.b, leader)).end, 400);
}

struct sleep_record {
	struct lg_bpf_sleep r;
	uint64_t frames[3];
};

/* Thread 901 slept from 100 to 150, with two kernel frames and one user frame. */
static struct sleep_record slept(struct fixture *x)
{
	struct sleep_record s = {
		.r = {.h = header(LG_BPF_SLEEP, 150, 900, 901), .off_ts = 100},
		.frames = {0x30, 0x20, 0x10},
	};

	s.r.h.n_kernel = 2;
	s.r.h.n_user = 1;
	lg_bpf_feed(x->f, &s, sizeof s);
	slice(x, 901, 100, LG_WHY_SLEEP, 150, 170, 300, LG_WHY_SLEEP, 0);
	return s;
}

static void a_sleep_gets_its_stack_and_only_its_own(void **state)
{
	struct fixture *x = *state;

	(void)slept(x);
	slice(x, 901, 300, LG_WHY_SLEEP, 350, 370, 400, LG_WHY_SLEEP, 0);
	assert_int_equal(lg_builder_trace(x->s.b)->stack.depth[state_row(x, 0).stack], 3);
	assert_int_equal(state_row(x, 3).stack, 0);
}

static void who_was_on_the_cpu_of_a_soft_interrupt_is_kept_with_its_stack(void **state)
{
	struct fixture *x = *state;
	struct {
		struct lg_bpf_sleep r;
		uint64_t frames[4];
	} s = { .r = { .h = header(LG_BPF_SLEEP, 150, 900, 901), .off_ts = 100, .sender_tid = 77 },
		.frames = { 0x30, 0x10, 0x50, 0x40 } };

	s.r.h.n_kernel = 1;
	s.r.h.n_user = 1;
	s.r.h.n_peer = 2;
	lg_bpf_feed(x->f, &s, sizeof s);
	slice(x, 901, 100, LG_WHY_SLEEP, 150, 170, 300, LG_WHY_SLEEP, LG_CTX_SOFTIRQ);
	assert_int_equal(state_row(x, 0).waker, lg_thread_find(x->s.b, 77));
	assert_int_equal(lg_builder_trace(x->s.b)->stack.depth[state_row(x, 0).waker_stack], 2);
	assert_int_equal(lg_builder_trace(x->s.b)->stack.depth[state_row(x, 0).stack], 2);
	/* Of the next waking nothing was told. */
	slice(x, 901, 300, LG_WHY_SLEEP, 350, 370, 400, LG_WHY_SLEEP, LG_CTX_SOFTIRQ);
	assert_int_equal(state_row(x, 3).waker_stack, 0);
}

static void the_same_place_is_told_by_a_flag(void **state)
{
	struct fixture *x = *state;
	struct sleep_record s = slept(x);

	/* the same kernel frames; the user frames are its own */
	s.r.h = header(LG_BPF_SLEEP, 350, 900, 901);
	s.r.h.flags = LG_BPF_SAME;
	s.r.off_ts = 300;
	s.r.h.n_user = 1;
	s.frames[0] = 0x10;
	lg_bpf_feed(x->f, &s, sizeof s.r + 8);
	slice(x, 901, 300, LG_WHY_SLEEP, 350, 370, 400, LG_WHY_SLEEP, 0);
	assert_int_equal(state_row(x, 3).stack, state_row(x, 0).stack);
	/* another thread with that flag, whose frames never came, has none */
	s.r.h = header(LG_BPF_SLEEP, 350, 900, 902);
	s.r.h.flags = LG_BPF_SAME;
	lg_bpf_feed(x->f, &s, sizeof s.r);
	slice(x, 902, 300, LG_WHY_SLEEP, 350, 370, 400, LG_WHY_SLEEP, 0);
	assert_int_equal(state_row(x, 6).stack, 0);
}

static void asleep_there(struct fixture *x, uint32_t tid, uint64_t off)
{
	struct lg_bpf_slice r = {
		.h = header(LG_BPF_SLICE, off + 100, 900, tid), .in_ts = off + 70, .off_ts = off,
		.wake_ts = off + 50, .off_why = LG_WHY_SLEEP, .out_why = LG_WHY_SLEEP,
	};

	r.h.flags = LG_BPF_ASLEEP_THERE;
	lg_bpf_feed(x->f, &r, sizeof r);
}

static void a_plain_sleep_in_the_last_ones_place_is_told_by_its_slice(void **state)
{
	struct fixture *x = *state;
	struct sleep_record s = slept(x); /* rows 0 to 2 */

	asleep_there(x, 901, 300);
	assert_int_not_equal(state_row(x, 3).stack, 0);
	assert_int_equal(state_row(x, 3).stack, state_row(x, 0).stack);
	/* The sleep after it has none, unless that is told, too. */
	slice(x, 901, 400, LG_WHY_SLEEP, 450, 470, 500, LG_WHY_SLEEP, 0);
	assert_int_equal(state_row(x, 6).stack, 0);
	/* One that is not plain in the same place changes nothing; one elsewhere leaves none to refer to. */
	s.r.h = header(LG_BPF_SLEEP, 550, 900, 901);
	s.r.h.flags = LG_BPF_SAME;
	s.r.h.n_user = 2;
	s.r.off_ts = 500;
	lg_bpf_feed(x->f, &s, sizeof s.r + 16);
	slice(x, 901, 500, LG_WHY_SLEEP, 550, 570, 600, LG_WHY_SLEEP, 0);
	asleep_there(x, 901, 600);
	assert_int_not_equal(state_row(x, 9).stack, state_row(x, 0).stack);
	assert_int_equal(state_row(x, 12).stack, state_row(x, 0).stack);
	s.r.h = header(LG_BPF_SLEEP, 750, 900, 901);
	s.r.h.n_kernel = 1;
	s.r.h.n_user = 2;
	s.r.off_ts = 700;
	lg_bpf_feed(x->f, &s, sizeof s.r + 24);
	slice(x, 901, 700, LG_WHY_SLEEP, 750, 770, 800, LG_WHY_SLEEP, 0);
	asleep_there(x, 901, 800);
	assert_int_not_equal(state_row(x, 15).stack, 0);
	assert_int_equal(state_row(x, 18).stack, 0);
	/* Nor has another thread, of which no stack came. */
	asleep_there(x, 902, 300);
	assert_int_equal(state_row(x, 21).stack, 0);
}

static void lock_wait(struct fixture *x, uint64_t begin, uint64_t end, uint64_t lock, uint64_t mm,
		      uint32_t lcb, uint32_t owner)
{
	struct lg_bpf_lock r = {
		.h = header(LG_BPF_LOCK, end, 900, 901), .begin = begin, .lock = lock, .mm = mm,
		.mm_tgid = mm ? 900 : 0, .lcb = lcb, .owner_tid = owner, .owner_tgid = owner,
		.owner_flags = LG_BPF_OWNER_READER,
	};

	lg_bpf_feed(x->f, &r, sizeof r);
}

static void a_wait_for_a_lock_explains_the_blocked_state_inside_it(void **state)
{
	struct fixture *x = *state;
	const struct lg_span_tab *t = &lg_builder_trace(x->s.b)->span;

	lock_wait(x, 95, 172, 0x1040, 0x1000, 4 /* write */, 4711);
	slice(x, 901, 100, LG_WHY_DISK, 150, 170, 300, LG_WHY_SLEEP, LG_CTX_TASK);
	slice(x, 901, 300, LG_WHY_SLEEP, 350, 360, 400, LG_WHY_SLEEP, LG_CTX_TASK);
	assert_int_equal(t->n, 1);
	assert_int_equal(t->kind[0], LG_SPAN_LOCK_WAIT);
	assert_int_equal(t->flags[0], LG_SPAN_WRITE | LG_SPAN_MMAP_LOCK | LG_SPAN_OWNER_READER);
	assert_int_equal(t->object[0], 0x1000);
	assert_string_equal(lg_string(lg_builder_trace(x->s.b), t->name[0]), "mmap_lock");
	assert_int_equal(state_row(x, 0).object, 0x1000);
	assert_int_equal(lg_thread_read(x->s.b, state_row(x, 0).blocker).tid, 4711);
	assert_int_equal(state_row(x, 3).object, 0); /* the later sleep is another one */
}

static void the_place_of_mmap_lock_is_learnt_for_kernels_that_do_not_tell_the_owner(void **state)
{
	struct fixture *x = *state;
	const struct lg_span_tab *t = &lg_builder_trace(x->s.b)->span;
	struct lg_bpf_task task = {
		.h = header(LG_BPF_TASK, 10, 950, 950), .mm = 0x9000, .comm = "trainer",
	};

	lg_bpf_feed(x->f, &task, sizeof task);
	lock_wait(x, 20, 30, 0x9040, 0, 2, 0);
	assert_false(t->flags[0] & LG_SPAN_MMAP_LOCK); /* not known yet */
	lock_wait(x, 40, 50, 0x1040, 0x1000, 4, 0);
	lock_wait(x, 60, 70, 0x9040, 0, 2, 0);
	assert_true(t->flags[2] & LG_SPAN_MMAP_LOCK);
	assert_true(t->flags[2] & LG_SPAN_FOREIGN);
	assert_int_equal(t->object[2], 0x9000);
	lock_wait(x, 80, 90, 0x9040, 0, 32 /* a mutex there is no mmap_lock */, 0);
	assert_false(t->flags[3] & LG_SPAN_MMAP_LOCK);
}

static void a_hold_names_the_process_whose_memory_it_is(void **state)
{
	struct fixture *x = *state;
	const struct lg_trace *t = lg_builder_trace(x->s.b);
	struct lg_bpf_hold r = {
		.h = header(LG_BPF_HOLD, 500, 4711, 4712), .begin = 100, .mm = 0x1000,
		.mm_tgid = 900, .hold_flags = LG_BPF_HOLD_READ | LG_BPF_HOLD_FOREIGN,
	};

	lg_bpf_feed(x->f, &r, sizeof r);
	assert_int_equal(t->span.n, 1);
	assert_int_equal(t->span.dur[0], 400);
	assert_int_equal(t->thread.tid[t->span.thr[0]], 4712);
	assert_int_equal(t->thread.tid[t->span.peer[0]], 900);
	assert_int_equal(t->span.flags[0], LG_SPAN_MMAP_LOCK | LG_SPAN_READ | LG_SPAN_FOREIGN);
}

static void sums_keep_the_running_time(void **state)
{
	struct fixture *x = *state;
	struct lg_bpf_sum r = {
		.h = header(LG_BPF_SUM, 1000, 950, 951), .since = 100, .run = 333, .n = 12,
	};

	lg_bpf_feed(x->f, &r, sizeof r);
	assert_int_equal(state_row(x, 0).flags, LG_STATE_SUMMED);
	assert_int_equal(state_row(x, 0).run, 333);
	assert_int_equal(state_row(x, 0).dur, 900);
	assert_int_equal(lg_builder_trace(x->s.b)->diag.n, 1);
}

static void what_is_open_at_the_end_has_no_length(void **state)
{
	struct fixture *x = *state;
	const struct lg_trace *t = lg_builder_trace(x->s.b);
	struct lg_bpf_open r = {
		.h = header(LG_BPF_OPEN, 1000, 900, 901), .off_ts = 700, .off_why = LG_WHY_DISK,
		.lock = 0x1040, .lock_begin = 690, .lock_mm = 0x1000, .lock_mm_tgid = 900, .lcb = 4,
		.owner_tid = 4711, .owner_tgid = 4711,
	};

	r.h.n_kernel = 2;
	lg_bpf_feed_end(x->f, &r, sizeof r, 1000);
	assert_int_equal(n_states(x), 1);
	check(x, 0, LG_BLOCKED, LG_WHY_DISK, 700, -1);
	assert_int_equal(state_row(x, 0).object, 0x1000);
	assert_int_equal(lg_thread_read(x->s.b, state_row(x, 0).blocker).tid, 4711);
	assert_true(state_row(x, 0).stack);
	assert_true(state_row(x, 0).flags & LG_STATE_EDGE);
	assert_int_equal(t->span.n, 1);
	assert_int_equal(t->span.dur[0], -1);
}

static void a_thread_woken_at_the_end_had_a_whole_wait(void **state)
{
	struct fixture *x = *state;
	struct lg_bpf_open r = {
		.h = header(LG_BPF_OPEN, 1000, 900, 901), .off_ts = 700, .off_why = LG_WHY_SLEEP,
		.wake_ts = 990,
	};

	lg_bpf_feed_end(x->f, &r, sizeof r, 1000);
	assert_int_equal(n_states(x), 2);
	check(x, 0, LG_BLOCKED, LG_WHY_SLEEP, 700, 290);
	assert_int_equal(state_row(x, 0).flags & LG_STATE_EDGE, 0);
	check(x, 1, LG_RUNNABLE, LG_WHY_WOKEN, 990, -1);
	assert_true(state_row(x, 1).flags & LG_STATE_EDGE);
}

static void a_process_of_the_job_is_told_once_it_is_known(void **state)
{
	struct fixture *x = *state;
	struct lg_bpf_task r = {.h = header(LG_BPF_TASK, 10, 950, 950), .mm = 0x9000};

	x->s.job = 0;
	lg_bpf_feed(x->f, &r, sizeof r);
	assert_int_equal(x->told_job, 0);
	x->s.job = 950; /* its rank was found later */
	lg_bpf_feed_jobs(x->f);
	assert_int_equal(x->told_job, 950);
	x->told_job = 0;
	lg_bpf_feed_jobs(x->f);
	assert_int_equal(x->told_job, 0);
}

static void python_frames_are_part_of_a_sleeps_stack(void **state)
{
	struct fixture *x = *state;
	struct {
		struct lg_bpf_sleep r;
		uint64_t frames[5];
	} s = { .r = { .h = header(LG_BPF_SLEEP, 150, 900, 901), .off_ts = 100, .sender_tid = 77 },
		.frames = { 0x30, 0x10, 0x50, 0xabc, 0xdef } };
	const struct lg_trace *t = lg_builder_trace(x->s.b);
	lg_stk stack;

	s.r.h.n_kernel = 1;
	s.r.h.n_user = 1;
	s.r.h.n_peer = 1;
	s.r.h.n_python = 2;
	lg_bpf_feed(x->f, &s, sizeof s);
	slice(x, 901, 100, LG_WHY_SLEEP, 150, 170, 300, LG_WHY_SLEEP, 0);
	stack = state_row(x, 0).stack;
	assert_int_equal(t->stack.depth[stack], 4);
	while (t->stack.parent[stack])
		stack = t->stack.parent[stack];
	assert_int_equal(t->frame.pc[t->stack.frame[stack]], 0xdef);
	assert_int_equal(t->frame.kind[t->stack.frame[stack]], LG_FRAME_PYTHON);
	s.r.h.n_python = 3;
	assert_false(lg_bpf_record_ok(&s, sizeof s));
}

static void python_frames_of_a_sample_go_to_who_samples(void **state)
{
	struct fixture *x = *state;
	struct {
		struct lg_bpf_python r;
		uint64_t frames[2];
	} s = { .r = { .h = header(LG_BPF_PYTHON, 150, 900, 901) }, .frames = { 0xabc, 0xdef } };

	s.r.h.n_python = 2;
	lg_bpf_feed(x->f, &s, sizeof s);
	assert_int_equal(x->s.sampled_tid, 901);
	assert_int_equal(x->s.sampled_ts, 150);
	assert_int_equal(x->s.sampled_n, 2);
	assert_int_equal(x->s.sampled_first, 0xabc);
	assert_int_equal(x->s.sampled_gil, 0);
	s.r.h.flags = LG_BPF_SAMPLE_GIL;
	lg_bpf_feed(x->f, &s, sizeof s);
	assert_int_equal(x->s.sampled_gil, LG_SAMPLE_GIL);
	s.r.h.flags = LG_BPF_SAMPLE_NO_GIL;
	lg_bpf_feed(x->f, &s, sizeof s);
	assert_int_equal(x->s.sampled_gil, LG_SAMPLE_NO_GIL);
}

static void who_had_pythons_lock_is_a_thread_of_the_process(void **state)
{
	static const struct {
		uint32_t holder; /* as the process says */
		uint8_t how, flags;
		bool known;
	} cases[] = {
		{ 902, LG_BPF_GIL_WAIT, LG_STATE_GIL_WAIT, true },
		{ 700, LG_BPF_GIL_WAIT, LG_STATE_GIL_WAIT, false }, /* another process's */
		{ 901, LG_BPF_GIL_WAIT, LG_STATE_GIL_WAIT, false }, /* itself */
		{ 0, LG_BPF_GIL_WAIT, LG_STATE_GIL_WAIT, false },
		{ 902, LG_BPF_GIL_HELD, LG_STATE_GIL_HELD, false },
		{ 902, 0, 0, false },
	};
	struct fixture *x = *state;
	uint64_t at = 1000;

	lg_thread_get(x->s.b, 900, 902);
	lg_thread_get(x->s.b, 700, 700);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, at += 1000) {
		struct lg_bpf_sleep s = { .h = header(LG_BPF_SLEEP, at + 500, 900, 901), .off_ts = at,
					  .gil_holder = cases[i].holder };
		struct lg_state_row row;

		lg_bpf_feed(x->f, &s, sizeof s);
		slice(x, 901, at, LG_WHY_SLEEP | cases[i].how, at + 500, at + 600, at + 700,
		      LG_WHY_PREEMPTED, 0);
		row = state_row(x, 3 * i);
		assert_int_equal(row.kind, LG_BLOCKED);
		assert_int_equal(row.reason, LG_WHY_SLEEP);
		assert_int_equal(row.flags, cases[i].flags);
		assert_int_equal(row.blocker, cases[i].known ? lg_thread_get(x->s.b, 900, 902) : 0);
	}
}

static void an_interpreter_is_looked_for_less_and_less_often_until_it_is_there(void **state)
{
	struct fixture *x = *state;
	struct lg_bpf_task t = { .h = header(LG_BPF_TASK, 50, 900, 900), .ptgid = 1, .comm = "python3" };
	int rounds = 0;

	t.h.flags = LG_BPF_FORK;
	lg_bpf_feed(x->f, &t, sizeof t);
	lg_bpf_feed_jobs(x->f);
	lg_bpf_feed_jobs(x->f);
	assert_int_equal(x->told_python, 0);
	x->s.python = 900; /* after rounds 1 and 2 come 4, 8 ... */
	while (!x->told_python && rounds < 100) {
		lg_bpf_feed_jobs(x->f);
		rounds++;
	}
	assert_int_equal(rounds, 2);
	assert_int_equal(x->told_python, 900);
	x->told_python = 0;
	lg_bpf_feed_jobs(x->f);
	assert_int_equal(x->told_python, 0);
	/* It runs something else: taken back, and looked for anew. */
	x->s.python = 0;
	t.h.flags = LG_BPF_EXEC;
	lg_bpf_feed(x->f, &t, sizeof t);
	assert_int_equal(x->told_python, -900);
	x->s.python = 900;
	lg_bpf_feed_jobs(x->f);
	assert_int_equal(x->told_python, 900);
}

static void refuses_records_whose_sizes_do_not_agree(void **state)
{
	struct fixture *x = *state;
	struct lg_bpf_slice s = {.h = header(LG_BPF_SLICE, 300, 900, 901), .in_ts = 100};
	struct lg_bpf_open open = {.h = header(LG_BPF_OPEN, 300, 900, 901)};

	assert_true(lg_bpf_record_ok(&s, sizeof s));
	assert_false(lg_bpf_record_ok(&s, sizeof s - 1));
	assert_false(lg_bpf_record_ok(&s, 0));
	s.h.n_kernel = 1;
	assert_false(lg_bpf_record_ok(&s, sizeof s));
	s.h.n_kernel = 0;
	s.h.kind = LG_BPF_KINDS;
	assert_false(lg_bpf_record_ok(&s, sizeof s));
	s.h.kind = LG_BPF_NONE;
	assert_false(lg_bpf_record_ok(&s, sizeof s));
	assert_true(lg_bpf_record_ok(&open, sizeof open));
	open.peer_kernel = LG_BPF_PEER_FRAMES + 1;
	assert_false(lg_bpf_record_ok(&open, sizeof open));
	lg_bpf_feed(x->f, &s, sizeof s);
	assert_int_equal(n_states(x), 0);
}

static void survives_any_bytes(void **state)
{
	struct fixture *x = *state;
	struct lg_trace *t;
	uint64_t seed = 1;
	int i;

	for (i = 0; i < 20000; i++) {
		unsigned char rec[700];
		size_t n, k;

		for (k = 0; k < sizeof rec; k++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			rec[k] = (unsigned char)(seed >> 56);
		}
		for (k = 7; k < sizeof rec && i % 8; k += 8)
			rec[k] &= 0x1f; /* mostly times that pass */
		n = (size_t)(seed >> 33) % sizeof rec;
		((struct lg_bpf_hdr *)(void *)rec)->kind = (uint8_t)(i % (LG_BPF_KINDS + 1));
		((struct lg_bpf_hdr *)(void *)rec)->tid &= 0x3f;
		((struct lg_bpf_hdr *)(void *)rec)->tgid &= 0x3f;
		((struct lg_bpf_hdr *)(void *)rec)->n_kernel &= 7;
		((struct lg_bpf_hdr *)(void *)rec)->n_user &= 7;
		((struct lg_bpf_hdr *)(void *)rec)->n_peer &= 7;
		lg_bpf_feed(x->f, rec, n);
	}
	assert_true(n_states(x) > 100);
	/* sealing validates every id */
	assert_int_equal(lg_builder_seal(x->s.b, &t, NULL), 0);
	lg_trace_free(t);
	assert_int_equal(lg_builder_new(&x->s.b, NULL), 0); /* for teardown */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_slice_is_blocked_then_runnable_then_running),
		T(a_preempted_thread_was_runnable_all_the_time),
		T(a_wait_for_a_cpu_is_told_of_each_queue),
		T(a_waking_that_was_not_seen_leaves_the_wait_blocked),
		T(nothing_is_claimed_for_a_gap),
		T(rows_of_a_thread_never_overlap),
		T(the_last_slice_ends_the_life_and_a_reused_pid_is_another),
		T(a_leader_that_dies_before_its_threads_keeps_the_process_alive),
		T(a_sleep_gets_its_stack_and_only_its_own),
		T(the_same_place_is_told_by_a_flag),
		T(a_plain_sleep_in_the_last_ones_place_is_told_by_its_slice),
		T(who_was_on_the_cpu_of_a_soft_interrupt_is_kept_with_its_stack),
		T(a_wait_for_a_lock_explains_the_blocked_state_inside_it),
		T(the_place_of_mmap_lock_is_learnt_for_kernels_that_do_not_tell_the_owner),
		T(a_hold_names_the_process_whose_memory_it_is),
		T(sums_keep_the_running_time),
		T(what_is_open_at_the_end_has_no_length),
		T(a_thread_woken_at_the_end_had_a_whole_wait),
		T(a_process_of_the_job_is_told_once_it_is_known),
		T(python_frames_are_part_of_a_sleeps_stack),
		T(python_frames_of_a_sample_go_to_who_samples),
		T(who_had_pythons_lock_is_a_thread_of_the_process),
		T(an_interpreter_is_looked_for_less_and_less_often_until_it_is_there),
		T(refuses_records_whose_sizes_do_not_agree),
		T(survives_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
