/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_sched_feed.c - any sequence of scheduler and lock events, however contradictory.
 *
 * Input: 8 bytes an event {what, cpu, thread, other thread, state, lock, time step (2, signed)}.
 * Property: state rows of one thread never overlap, no row is longer than the trace, and a gap on
 * every CPU has nothing drawn across it.
 */
#include <stdlib.h>
#include <string.h>

#include "store/sched_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define START 1000000

static void event(struct lg_sched_feed *f, const uint8_t *e, int64_t ts)
{
	int32_t a = e[2] % 32, b = e[3] % 32;
	uint64_t lock = 0x10000 + (e[5] & 15) * 0x1000u + (e[5] & 16 ? 0x88 : 0);
	struct lg_sched_mmap_lock m = { .ts = ts, .mm = lock & ~0xfffull, .pid = a, .tid = a,
					.write = e[4] & 1, .success = !(e[4] & 2) };

	switch (e[0] % 10) {
	case 0: case 1:
		lg_sched_switched(f, &(struct lg_sched_switch){
			.ts = ts, .cpu = e[1] % 4, .prev_pid = e[4] & 64 ? -1 : a, .prev_tid = a,
			.prev_state = e[4] & 1 ? e[4] : e[4] & 2 ? 0x100 : 0, .next_pid = -1,
			.next_tid = b });
		break;
	case 2:
		lg_sched_woke(f, &(struct lg_sched_waking){ .ts = ts, .cpu = e[1] % 4, .tid = a,
							    .waker_pid = b, .waker_tid = b });
		break;
	case 3:
		lg_sched_forked(f, ts, b, a);
		break;
	case 4:
		lg_sched_exited(f, ts, a);
		break;
	case 5:
		lg_sched_contention_begin(f, &(struct lg_sched_contention){
			.ts = ts, .lock = lock, .flags = e[4], .pid = a, .tid = a });
		break;
	case 6:
		lg_sched_contention_end(f, ts, a, lock);
		break;
	case 7:
		lg_sched_mmap_acquired(f, &m);
		break;
	case 8:
		lg_sched_mmap_released(f, &m);
		break;
	default:
		lg_sched_gap(f, ts, ts + e[4] * 100, e[1] % 5 - 1);
	}
}

static void check(const struct lg_trace *t, int64_t end)
{
	int64_t *last = calloc(t->thread.n, sizeof *last);

	if (!last)
		abort();
	for (size_t i = 0; i < t->state.n; i++) {
		int64_t to = t->state.dur[i] < 0 ? INT64_MAX : t->state.ts[i] + t->state.dur[i];

		if (t->state.ts[i] < START || (t->state.dur[i] >= 0 && to > end) ||
		    t->state.ts[i] < last[t->state.thr[i]] || !t->state.kind[i])
			abort();
		last[t->state.thr[i]] = to;
	}
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.ts[i] < START || t->span.dur[i] < -1 || !t->span.object[i])
			abort();
	free(last);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_sched_options o = { .start = START, .has_waking = true, .has_fork = true };
	struct lg_sched_feed *f;
	struct lg_builder *b;
	int64_t ts = START, end = START;

	if (lg_builder_new(&b, NULL))
		return 0;
	if (lg_sched_feed_new(&f, b, &o, NULL)) {
		lg_builder_free(b);
		return 0;
	}
	for (; n >= 8; p += 8, n -= 8) {
		int16_t step;

		memcpy(&step, p + 6, sizeof step);
		ts += step < -50 ? -step : step; /* a little disorder is allowed */
		if (ts < START)
			ts = START;
		if (ts > end)
			end = ts;
		event(f, p, ts);
	}
	if (lg_sched_feed_finish(f, end, NULL))
		abort();
	check(lg_builder_trace(b), end + 25500 /* a gap may reach beyond the last event */);
	lg_sched_feed_free(f);
	lg_builder_free(b);
	return 0;
}
