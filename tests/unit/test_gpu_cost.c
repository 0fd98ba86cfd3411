/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_cost.c - what is asked of the pieces of a window, against the same asked of every nanosecond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "analyse/device/device_rules.h"
#include "timeline/cost.h"
#include "analyse/chains/tally.h"
#include "base/alloc.h"
#include "store/builder.h"

enum { WINDOW = 4000 };

static uint32_t rnd(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	return *x ^= *x << 5;
}

/* Pieces of 1 to `most` ns that tile [0, WINDOW), half of them for want of launches; no room for more. */
static void tile(struct lg_arena *arena, struct lg_gpu_run *r, uint32_t most, uint32_t *x)
{
	*r = (struct lg_gpu_run){ .to = WINDOW, .cap_pieces = WINDOW };
	r->piece = lg_arena_alloc(arena, WINDOW, sizeof *r->piece);
	assert_non_null(r->piece);
	for (int64_t at = 0; at < WINDOW; at += r->piece[r->n_pieces++].dur) {
		int64_t dur = 1 + rnd(x) % most;
		struct lg_gpu_piece *p = &r->piece[r->n_pieces];

		*p = (struct lg_gpu_piece){ .ts = at, .dur = at + dur < WINDOW ? dur : WINDOW - at,
					    .cause = rnd(x) & 64 ? LG_GPU_BY_LAUNCH : LG_GPU_BY_SYNC };
		p->span = (uint32_t)r->n_pieces;
		p->op = p->site = LG_NO_ROW;
		r->by[p->cause] += p->dur;
	}
	r->cap_pieces = r->n_pieces;
}

static void stretches(struct lg_ivs *a, uint32_t most, uint32_t *x)
{
	*a = (struct lg_ivs){ 0 };
	for (int64_t at = rnd(x) % most; at < WINDOW + 10;) {
		int64_t end = at + 1 + rnd(x) % most;

		assert_int_equal(lg_iv_add(a, at, end, LG_NO_ROW), 0);
		at = end + (rnd(x) & 32 ? 0 : rnd(x) % most); /* some touch */
	}
}

static void each_moment_has_its_cause(void **state)
{
	static struct { uint8_t cause; uint32_t span; } want[WINDOW];
	uint32_t x = 1;

	(void)state;
	for (int round = 0; round < 400; round++) {
		struct lg_arena arena = { 0 };
		const struct lg_scene scene = { .arena = &arena };
		struct lg_gpu_run r;
		struct lg_ivs a;
		int64_t late = 0, by[LG_GPU_BY_MAX] = { 0 }, at = 0;

		tile(&arena, &r, 1u << (round % 9), &x);
		stretches(&a, 1u << (round % 7 + 1), &x);
		for (size_t i = 0; i < r.n_pieces; i++)
			for (int64_t t = r.piece[i].ts; t < r.piece[i].ts + r.piece[i].dur; t++) {
				bool moved = r.piece[i].cause == LG_GPU_BY_LAUNCH && lg_iv_within(&a, t);

				want[t].cause = moved ? LG_GPU_BY_BATCH : r.piece[i].cause;
				want[t].span = r.piece[i].span;
				by[want[t].cause]++;
				late += moved;
			}
		assert_int_equal(lg_gpu_late_within(&r, &a), late);
		assert_int_equal(lg_gpu_carve(&scene, &r, &a, LG_GPU_BIT(LG_GPU_BY_LAUNCH),
					      LG_GPU_BY_BATCH), 0);
		assert_memory_equal(r.by, by, sizeof by);
		for (size_t i = 0; i < r.n_pieces; i++) {
			assert_int_equal(r.piece[i].ts, at);
			assert_true(r.piece[i].dur > 0);
			for (; at < r.piece[i].ts + r.piece[i].dur; at++) {
				assert_int_equal(r.piece[i].cause, want[at].cause);
				assert_int_equal(r.piece[i].span, want[at].span);
			}
		}
		assert_int_equal(at, WINDOW);
		assert_int_equal(lg_gpu_late_within(&r, &a), 0);
		lg_free(a.v);
		lg_arena_done(&arena);
	}
}

/* Two threads sum the pieces where there are many of them: places are the same, each with the first of its
 * longest pieces. */
static void places_of_many_pieces_are_one(void **state)
{
	enum { MANY = 1 << 17, NAMES = 3 };
	static const char *const names[NAMES] = { "aten::one", "aten::two", "aten::three" };
	struct lg_error err;
	struct lg_builder *b;
	struct lg_trace *t;
	struct lg_verdict v = { 0 };
	struct lg_case c = { .v = &v };
	struct lg_gpu_run r = { .n_pieces = MANY };
	struct lg_finding *f;
	char want[128];

	(void)state;
	assert_int_equal(lg_builder_new(&b, &err), 0);
	for (int i = 0; i < NAMES; i++)
		lg_add_span(b, &(struct lg_span_row){ .ts = i, .name = lg_intern(b, names[i]) });
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	c.t = t;
	c.scene = (struct lg_scene){ .t = t, .arena = &v.arena };
	v.findings = lg_arena_alloc(&v.arena, LG_FINDINGS_MAX, sizeof *v.findings);
	r.piece = lg_arena_alloc(&v.arena, MANY, sizeof *r.piece);
	assert_true(v.findings && r.piece);
	/* "one" in the first half, "three" in the second, "two" in both, as long at first as later. */
	for (uint32_t i = 0; i < MANY; i++)
		r.piece[i] = (struct lg_gpu_piece){ .ts = 1000 * (int64_t)i, .dur = 1000,
						    .cause = LG_GPU_BY_LAUNCH, .span = LG_NO_ROW,
						    .op = i % 2 ? 1 : i < MANY / 2 ? 0 : 2,
						    .site = LG_NO_ROW };
	r.piece[MANY / 2 + 2].dur = 1500;
	r.piece[8].cause = LG_GPU_BY_SYNC;
	f = lg_finding_add(&c, LG_R_GPU_LAUNCH_BOUND);
	assert_non_null(f);
	lg_gpu_moments(&c, f, &r, 1u << LG_GPU_BY_LAUNCH, 5, "idle");
	assert_int_equal(c.failed, 0);
	assert_int_equal(f->n_evidence, 3);
	for (int i = 0; i < NAMES; i++) {
		static const int order[NAMES] = { 1, 2, 0 };
		static const size_t times[NAMES] = { MANY / 2, MANY / 4, MANY / 4 - 1 };
		static const uint32_t first[NAMES] = { 1, MANY / 2 + 2, 0 };

		snprintf(want, sizeof want, "idle %.1f ms in %zu times: %s",
			 ((double)times[i] * 1000 + (i == 1 ? 500 : 0)) / 1e6, times[i], names[order[i]]);
		assert_string_equal(f->evidence[i].text, want);
		assert_int_equal(f->evidence[i].ts, 1000 * (int64_t)first[i]);
		assert_int_equal(f->evidence[i].dur, i == 1 ? 1500 : 1000);
	}
	lg_arena_done(&v.arena);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_moment_has_its_cause),
		cmocka_unit_test(places_of_many_pieces_are_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
