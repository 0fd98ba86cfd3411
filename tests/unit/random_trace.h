/* SPDX-License-Identifier: Apache-2.0 */
/* random_trace.h - traces for tests: every table, every column, reproducible from a seed. */
#ifndef LG_TESTS_RANDOM_TRACE_H
#define LG_TESTS_RANDOM_TRACE_H
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "store/builder.h"

static inline uint64_t rnd(uint64_t *seed)
{
	*seed += 0x9e3779b97f4a7c15u;
	return lg_mix64(*seed);
}

/* Extremes now and then: they are where varints and differences go wrong. */
static inline uint64_t odd(uint64_t *seed)
{
	switch (rnd(seed) % 8) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return (uint64_t)INT64_MIN;
	case 3:
		return INT64_MAX;
	default:
		return rnd(seed) >> rnd(seed) % 64;
	}
}

static inline lg_str a_string(struct lg_builder *b, uint64_t *seed)
{
	char text[64];

	snprintf(text, sizeof text, "string %llu", (unsigned long long)(rnd(seed) % 50));
	return lg_intern(b, text);
}

/* All columns random; ids within their tables. ts ascending or not as sorted says. */
static inline void random_trace(struct lg_builder *b, size_t rows, uint64_t seed)
{
	uint32_t n_prc = 5, n_thr = 12, n_frm = 20, n_stk = 30, n_trk = 4;
	int64_t ts = 1000000000;
	lg_stk stk = 0;

	for (uint32_t i = 1; i <= n_prc; i++) {
		lg_prc p = lg_process_get(b, (int32_t)(100 * i));
		struct lg_process_row r = lg_process_read(b, p);

		r.rank = (int32_t)i - 2;
		r.mm = odd(&seed);
		r.cmdline = a_string(b, &seed);
		lg_process_write(b, p, &r);
	}
	for (uint32_t i = 0; i < n_thr; i++) {
		int32_t pid = (int32_t)(100 * (1 + i % n_prc));
		lg_thr t = lg_thread_get(b, pid, pid + (int32_t)(i / n_prc));

		lg_thread_name(b, t, a_string(b, &seed));
	}
	for (uint32_t i = 0; i < n_frm; i++)
		lg_intern_frame(b, &(struct lg_frame_row){ .pc = odd(&seed) + i,
							   .dso = a_string(b, &seed),
							   .name = a_string(b, &seed),
							   .line = (uint32_t)rnd(&seed) });
	for (uint32_t i = 0; i < n_stk; i++)
		stk = lg_intern_stack(b, i % 7 ? stk : 0, (lg_frm)(1 + rnd(&seed) % n_frm));
	for (uint32_t i = 0; i < n_trk; i++)
		lg_track_get(b, &(struct lg_track_row){ .kind = i, .name = a_string(b, &seed),
							.prc = i, .index = (int32_t)i - 1 });
	n_stk = (uint32_t)lg_builder_trace(b)->stack.n - 1;
	n_frm = (uint32_t)lg_builder_trace(b)->frame.n - 1;
#define THR (lg_thr)(rnd(&seed) % (n_thr + 1))
#define STK (lg_stk)(rnd(&seed) % (n_stk + 1))
	for (size_t i = 0; i < rows; i++) {
		int64_t dur = (int64_t)(rnd(&seed) % 5000000);

		ts += (int64_t)(rnd(&seed) % 100000);
		lg_add_state(b, &(struct lg_state_row){
					.ts = ts - dur, .dur = i % 97 ? dur : -1, .thr = THR,
					.cpu = (int32_t)(rnd(&seed) % 5) - 1,
					.kind = (uint8_t)(1 + rnd(&seed) % 3),
					.reason = (uint8_t)rnd(&seed), .waker_ctx = 1,
					.flags = (uint8_t)(rnd(&seed) % 2), .waker = THR,
					.blocker = i % 9 ? 0 : THR, .object = odd(&seed),
					.stack = STK, .waker_stack = STK, .blocker_stack = 0,
					.run = (int64_t)odd(&seed) });
		if (i % 3 == 0)
			lg_add_sample(b, &(struct lg_sample_row){ .ts = ts, .weight = odd(&seed),
								  .thr = THR, .cpu = 3,
								  .stack = STK,
								  .event = a_string(b, &seed),
								  .flags = (uint32_t)odd(&seed) });
		if (i % 4 == 0)
			lg_add_span(b, &(struct lg_span_row){
					       .ts = ts - dur, .dur = dur, .thr = THR,
					       .track = (lg_trk)(rnd(&seed) % 4),
					       .kind = 7, .stage = (uint8_t)(i % 9),
					       .flags = (uint32_t)odd(&seed),
					       .name = a_string(b, &seed), .group = a_string(b, &seed),
					       .seq = (int64_t)odd(&seed), .bytes = odd(&seed),
					       .object = odd(&seed), .peer = THR, .stack = STK,
					       .peer_stack = STK });
		if (i % 5 == 0)
			lg_add_counter(b, &(struct lg_counter_row){
						  .ts = ts, .track = (lg_trk)(i % 4),
						  .value = (double)rnd(&seed) / 7 });
		if (i % 6 == 0)
			lg_add_flow(b, &(struct lg_flow_row){ .ts = ts, .ts_to = ts + dur,
							      .thr = THR, .thr_to = THR, .kind = 1,
							      .id = odd(&seed) });
		if (i % 50 == 0)
			lg_add_mark(b, &(struct lg_mark_row){ .ts = ts, .thr = THR,
							      .name = a_string(b, &seed),
							      .value = (int64_t)odd(&seed),
							      .text = a_string(b, &seed) });
	}
#undef THR
#undef STK
	lg_add_clock(b, &(struct lg_clock_row){ .ts = ts, .value = ts + 77, .clock = 0, .error = 5,
						.source = a_string(b, &seed) });
	lg_meta_set(b, 0, "host.name", "h1");
	lg_meta_set(b, 2, "torch.version", "1.13");
	lg_add_diag_now(b, LG_DIAG_LOST_EVENTS, ts, 3, "%d rings", 2);
}

/* Number of cells that differ, of the rows both have, plus differing row counts. */
static inline size_t trace_differences(const struct lg_trace *a, const struct lg_trace *b)
{
	size_t n_tab, bad = 0;
	const struct lg_table_desc *d = lg_schema(&n_tab);

	for (size_t i = 0; i < n_tab; i++) {
		const struct lg_tab *x = lg_trace_table_const(a, &d[i]);
		const struct lg_tab *y = lg_trace_table_const(b, &d[i]);

		bad += x->n != y->n;
		for (size_t c = 0; c < d[i].n_cols; c++) {
			size_t size = d[i].cols[c].size;

			for (size_t k = 0; k < x->n && k < y->n; k++)
				bad += !!memcmp((const char *)x->col[c] + k * size,
						(const char *)y->col[c] + k * size, size);
		}
	}
	bad += a->n_str != b->n_str;
	for (size_t i = 0; i < a->n_str && i < b->n_str; i++)
		bad += !!strcmp(lg_string(a, (lg_str)i), lg_string(b, (lg_str)i));
	return bad;
}

#endif /* LG_TESTS_RANDOM_TRACE_H */
