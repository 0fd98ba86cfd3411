/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_trace.c - write a made-up .lag file for the tests of convert, explain and steps.
 *
 *   make_trace KIND OUT
 *
 * stall    two ranks, a foreign lock holder every 400 ms (see tests/unit/synthetic_run.h)
 * ranks    eight ranks for a minute, of which another is held up every 2.5 s
 * hour     two ranks for an hour, held up every 25 s
 * healthy  two ranks, not held up
 * nasty    what a drawing program trips over: see nasty() below
 * random   every table and column at random (tests/unit/random_trace.h)
 * threads  10,000 threads
 * stacks   two busy threads' samples: deep stacks, gaps, equal times, tracepoints between
 * empty    not one row
 */
#include <stdio.h>
#include <string.h>

#include "../unit/random_trace.h"
#include "../unit/synthetic_run.h"
#include "store/lag_write.h"

static lg_stk stack(struct lg_builder *b, const char *const *names, uint32_t kind)
{
	lg_stk s = 0;

	for (; *names; names++)
		s = lg_intern_stack(b, s, lg_intern_frame(b, &(struct lg_frame_row){
						.kind = kind, .name = lg_intern(b, *names),
						.dso = lg_intern(b, "/lib/x.so"),
						.file = lg_intern(b, "x.c"), .line = 7 }));
	return s;
}

static void op(struct lg_builder *b, lg_thr t, int64_t ts, int64_t dur, const char *name)
{
	lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = t, .kind = LG_SPAN_OP,
					      .name = lg_intern(b, name) });
}

/* Names that must be escaped, rows cut off, spans that overlap, equal times, no length, a reused
 * pid and tid, samples with gaps, counters that JSON cannot hold, losses outside the trace. */
static void nasty(struct lg_builder *b)
{
	static const char *const main_foo[] = { "main", "foo", NULL };
	static const char *const main_foo_bar[] = { "main", "foo", "bar", NULL };
	static const char *const main_baz[] = { "main", "baz", NULL };
	static const char *const smap[] = { "read", "vfs_read", "smap_gather_stats",
					    "down_read_killable", NULL };
	const int64_t t0 = INT64_C(1234567890123456789), ms = 1000000;
	lg_thr a = lg_thread_get(b, 900, 900), w = lg_thread_get(b, 900, 901), o, again;
	lg_stk s1 = stack(b, main_foo, LG_FRAME_USER), s2 = stack(b, main_foo_bar, LG_FRAME_USER);
	lg_stk s3 = stack(b, main_baz, LG_FRAME_PYTHON), hold = stack(b, smap, LG_FRAME_KERNEL);
	struct lg_process_row p = lg_process_read(b, lg_thread_process(b, a));
	lg_trk gauge, stream;
	int64_t at;

	p.comm = lg_intern(b, "quote\"back\\slash\x01\x1b[31m\xff\xc3");
	p.cmdline = lg_intern(b, "python3 <b>train</b>.py | --x=\"1,2\"\n");
	p.rank = 0;
	p.mm = 0xffff888012345678;
	lg_process_write(b, lg_thread_process(b, a), &p);
	lg_thread_name(b, a, lg_intern(b, "m\xc3\xa4in\t\"t\""));
	o = lg_thread_start(b, 1, 4711, 4711, t0 - ms);
	lg_thread_name(b, o, lg_intern(b, "agent"));

	/* Nested, equal, crossing, zero-length, cut off. */
	op(b, a, t0 + 1, 10 * ms, "outer");
	op(b, a, t0 + 1, 10 * ms, "same interval");
	op(b, a, t0 + 1, 0, "nothing at the start");
	op(b, a, t0 + 2 * ms, 3 * ms + 1, "inner");
	op(b, a, t0 + 4 * ms, 9 * ms, "crosses outer");
	op(b, a, t0 + 5 * ms, 10 * ms, "crosses both");
	op(b, a, t0 + 10 * ms + 1, 0, "at the end");
	op(b, a, t0 + 20 * ms, -1, "cut off");
	op(b, a, t0 + 21 * ms, 1, "inside the cut off one");
	lg_add_span(b, &(struct lg_span_row){ .ts = t0, .dur = 30 * ms, .thr = a, .kind = LG_SPAN_STEP,
					      .seq = 17 });
	for (int i = 0; i < 5; i++) /* asynchronous collectives overlap each other */
		lg_add_span(b, &(struct lg_span_row){
				.ts = t0 + i * ms, .dur = 4 * ms, .thr = a, .kind = LG_SPAN_COLLECTIVE,
				.flags = LG_SPAN_ASYNC, .seq = i, .group = lg_intern(b, "default_pg"),
				.name = lg_intern(b, "all_reduce"), .bytes = UINT64_MAX });
	lg_add_span(b, &(struct lg_span_row){ .ts = t0 + 2 * ms, .dur = 6 * ms, .thr = o,
					      .kind = LG_SPAN_LOCK_HOLD, .peer = a,
					      .flags = LG_SPAN_MMAP_LOCK | LG_SPAN_READ | LG_SPAN_FOREIGN,
					      .object = p.mm, .name = lg_intern(b, "mmap_lock"),
					      .stack = hold });
	lg_add_span(b, &(struct lg_span_row){ .ts = t0 + 3 * ms, .dur = 5 * ms, .thr = a,
					      .kind = LG_SPAN_LOCK_WAIT, .peer = o,
					      .flags = LG_SPAN_MMAP_LOCK | LG_SPAN_WRITE, .object = p.mm,
					      .name = lg_intern(b, "mmap_lock"), .peer_stack = hold });

	/* States back to back, all touching; one cut off. */
	at = t0;
	for (int i = 0; i < 12; i++) {
		lg_add_state(b, &(struct lg_state_row){
				.ts = at, .dur = ms / 3, .thr = a, .cpu = i % 4,
				.kind = (uint8_t)(1 + i % 3),
				.reason = (uint8_t)(i % 3 == 2 ? LG_WHY_DISK + i % 2 : 0),
				.waker = i % 3 == 2 ? o : 0, .waker_ctx = LG_CTX_TASK,
				.stack = i % 3 == 2 ? s2 : 0, .object = 0xffffffff81000000 });
		at += ms / 3;
	}
	lg_add_state(b, &(struct lg_state_row){ .ts = at, .dur = -1, .thr = a, .cpu = -1,
						.kind = LG_BLOCKED, .reason = LG_WHY_SLEEP });
	lg_add_state(b, &(struct lg_state_row){ .ts = t0, .dur = 35 * ms, .thr = o, .cpu = 2,
						.kind = LG_RUNNING });
	lg_add_state(b, &(struct lg_state_row){ .ts = t0, .dur = 9 * ms, .thr = w, .cpu = 3,
						.kind = LG_BLOCKED, .reason = LG_WHY_IOWAIT, .waker = o,
						.waker_ctx = LG_CTX_HARDIRQ });

	/* Samples every 10 ms, a gap, two at one moment, one without a stack, a tracepoint. */
	for (int i = 0; i < 10; i++)
		lg_add_sample(b, &(struct lg_sample_row){
				.ts = t0 + (i < 6 ? i : i + 20) * 10 * ms, .weight = 10 * 1000000,
				.thr = w, .cpu = 1, .stack = i == 9 ? 0 : i % 3 == 2 ? s3 : i % 2 ? s2 : s1,
				.event = lg_intern(b, "cpu-clock") });
	lg_add_sample(b, &(struct lg_sample_row){ .ts = t0 + 10 * ms, .weight = 10 * 1000000, .thr = w,
						  .stack = s1, .event = lg_intern(b, "cpu-clock") });
	lg_add_sample(b, &(struct lg_sample_row){ .ts = t0 + 11 * ms, .weight = 1, .thr = w,
						  .stack = s1, .flags = LG_SAMPLE_TRACEPOINT,
						  .event = lg_intern(b, "sched:sched_switch") });

	gauge = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
							.name = lg_intern(b, "load"),
							.unit = lg_intern(b, "%"), .index = -1 });
	for (int i = 0; i < 4; i++)
		lg_add_counter(b, &(struct lg_counter_row){ .ts = t0 + i * ms, .track = gauge,
							    .value = i == 2 ? 0.0 / (i - 2.0) :
							    i == 3 ? 1e308 * 10 : 0.1 + i });
	stream = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_STREAM, .index = 7,
							 .name = lg_intern(b, "stream 7"),
							 .prc = lg_thread_process(b, a) });
	for (int i = 0; i < 3; i++)
		lg_add_span(b, &(struct lg_span_row){ .ts = t0 + i * ms, .dur = 3 * ms / 2, .track = stream,
						      .kind = LG_SPAN_KERNEL,
						      .name = lg_intern(b, "gemm") });
	lg_add_mark(b, &(struct lg_mark_row){ .ts = t0 + 3 * ms, .thr = a, .value = -5,
					      .name = lg_intern(b, "FlopCounterMode"),
					      .text = lg_intern(b, "active \"mode\"") });
	lg_add_diag(b, &(struct lg_diag_row){ .ts = t0 + 5 * ms, .dur = 2 * ms, .count = 77, .cpu = 1,
					      .id = LG_DIAG_LOST_EVENTS });
	lg_add_diag(b, &(struct lg_diag_row){ .ts = 0, .id = LG_DIAG_OWN_COST, .cpu = -1, .count = 1,
					      .text = lg_intern(b, "1 % of a CPU") });
	lg_add_clock(b, &(struct lg_clock_row){ .ts = t0, .value = t0 + 1000, .clock = 7 });
	lg_add_clock(b, &(struct lg_clock_row){ .ts = t0, .clock = 0,
						.value = INT64_C(1790000000000000000) });
	lg_meta_set(b, 0, "torch.version", "2.6");
	lg_meta_set(b, 0, "torch.version", "2.6.0");

	/* The agent ends; its pid and tid come back as another process. */
	lg_thread_end(b, 4711, t0 + 36 * ms);
	again = lg_thread_start(b, 1, 4711, 4711, t0 + 37 * ms);
	lg_thread_name(b, again, lg_intern(b, "reused"));
	lg_add_state(b, &(struct lg_state_row){ .ts = t0 + 37 * ms, .dur = 2 * ms, .thr = again,
						.kind = LG_RUNNING, .cpu = 0 });
}

static void threads(struct lg_builder *b)
{
	for (int32_t i = 0; i < 10000; i++) {
		lg_thr t = lg_thread_get(b, 1000 + i / 100, 100000 + i);

		for (int k = 0; k < 3; k++)
			lg_add_state(b, &(struct lg_state_row){ .ts = 1000000000 + i * 10 + k * 100000,
								.dur = 100000, .thr = t, .cpu = i % 256,
								.kind = (uint8_t)(1 + k) });
	}
}

/* More than one part of a flame chart each (report/timeline_turns.c). */
static void stacks(struct lg_builder *b)
{
	static const char *const names[] = { "a", "b", "c", "d", "recursive" };
	const int64_t ms = 1000000;
	lg_frm frame[5];
	uint32_t x = 2463534242;

	for (int i = 0; i < 5; i++)
		frame[i] = lg_intern_frame(b, &(struct lg_frame_row){ .name = lg_intern(b, names[i]) });
	for (int k = 0; k < 2; k++) {
		lg_thr thr = lg_thread_get(b, 100 + k, 100 + k);
		lg_stk path[600] = { 0 };
		int64_t ts = 1000000000;
		int depth = 0;

		for (int i = 0; i < 700; i++) {
			int leave, enter;

			x ^= x << 13;
			x ^= x >> 17;
			x ^= x << 5;
			leave = i % 97 ? (int)(x >> 4 & 3) : depth;
			enter = i % 300 == 7 ? 590 - depth : (int)(x >> 8 & 3);
			depth = depth > leave ? depth - leave : 0;
			for (int e = 0; e < enter && depth < 599; e++, depth++) {
				lg_frm f = frame[depth > 100 ? 4 : (x >> (e + 12)) % 5];

				path[depth + 1] = lg_intern_stack(b, path[depth], f);
			}
			lg_add_sample(b, &(struct lg_sample_row){
					.ts = ts, .thr = thr, .stack = x >> 20 & 31 ? path[depth] : 0,
					.weight = 1, .event = lg_intern(b, "cycles") });
			if (x >> 25 & 1)
				lg_add_sample(b, &(struct lg_sample_row){
						.ts = ts + ms / 3, .thr = thr, .flags = LG_SAMPLE_TRACEPOINT,
						.event = lg_intern(b, "sched:sched_wakeup") });
			ts += i % 50 == 49 ? 7 * ms : i % 31 == 30 ? 0 : ms + (x >> 26) * 8000;
		}
	}
}

/* A watcher that ran 100 ms in many short slices of 10 s, which are one row; and one that ran a second. */
static void summed(struct lg_builder *b)
{
	lg_thr t = lg_thread_get(b, 70, 70);

	(void)lg_thread_get(b, 80, 80);
	for (int i = 0; i < 2; i++) {
		lg_prc p = lg_process_get(b, i ? 80 : 70);
		struct lg_process_row row = lg_process_read(b, p);

		row.comm = lg_intern(b, i ? "worker" : "watcher");
		lg_process_write(b, p, &row);
	}
	lg_add_state(b, &(struct lg_state_row){ .ts = 1000000000, .dur = INT64_C(10000000000), .thr = t,
						.cpu = -1, .kind = LG_RUNNING, .flags = LG_STATE_SUMMED,
						.run = 100000000 });
	lg_add_state(b, &(struct lg_state_row){ .ts = 2000000000, .dur = 1000000000, .cpu = 0,
						.thr = lg_thread_get(b, 80, 80), .kind = LG_RUNNING });
}

int main(int argc, char **argv)
{
	struct lg_error err = { 0 };
	struct lg_trace *t = NULL;
	struct lg_builder *b = NULL;
	struct run_plan plan = { .n_ranks = 2, .n_steps = 400, .only_rank = -1, .steady_late_rank = -1 };

	if (argc != 3) {
		fprintf(stderr, "usage: make_trace stall|ranks|hour|healthy|nasty|random|threads|stacks|summed|hostile|empty OUT\n");
		return 2;
	}
	if (!strcmp(argv[1], "ranks")) {
		plan.n_ranks = 8;
		plan.n_steps = 6000;
		plan.stall = STALL_LOCK;
		plan.period_ns = 2500000000;
		plan.stall_ns = 80000000;
		t = synthetic_run(&plan);
	} else if (!strcmp(argv[1], "hour")) {
		plan.n_steps = 360000;
		plan.stall = STALL_LOCK;
		plan.period_ns = 25000000000;
		plan.stall_ns = 80000000;
		t = synthetic_run(&plan);
	} else if (!strcmp(argv[1], "stall") || !strcmp(argv[1], "hostile") || !strcmp(argv[1], "healthy")) {
		if (strcmp(argv[1], "healthy")) {
			plan.stall = STALL_LOCK;
			plan.culprit = argv[1][0] == 'h' ? "\"=x\x1b[2J\n::error" : NULL;
			plan.period_ns = 400000000;
			plan.stall_ns = 80000000;
		}
		t = synthetic_run(&plan);
	} else {
		if (lg_builder_new(&b, &err))
			goto fail;
		if (!strcmp(argv[1], "nasty"))
			nasty(b);
		else if (!strcmp(argv[1], "random"))
			random_trace(b, 400, 42);
		else if (!strcmp(argv[1], "threads"))
			threads(b);
		else if (!strcmp(argv[1], "stacks"))
			stacks(b);
		else if (!strcmp(argv[1], "summed"))
			summed(b);
		if (lg_builder_seal(b, &t, &err))
			goto fail;
	}
	if (lg_lag_save(t, argv[2], &err))
		goto fail;
	lg_trace_free(t);
	return 0;
fail:
	fprintf(stderr, "make_trace: %s\n", err.message);
	return 1;
}
