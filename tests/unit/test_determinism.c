/* SPDX-License-Identifier: Apache-2.0 */
/* Where two runs part, from fingerprints and from the losses of logs; and where ranks of one run do. */
#include "diff/determinism.h"
#include "outcome.h"
#include "store/builder.h"

enum { STEPS = 8, PARTS = 5, RANKS = 2 };

enum cause { NOTHING, SEED, INPUT, FORWARD, BACKWARD, OPTIMIZER, TAMPER, MISSING, LOST };

struct run {
	struct lg_builder *b;
	lg_thr thr;
	int64_t ts, n;
};

static void add(struct run *r, const char *name, const char *text, int64_t value)
{
	lg_add_mark(r->b, &(struct lg_mark_row){ .ts = r->ts++,
						 .thr = r->thr,
						 .value = value,
						 .name = lg_intern(r->b, name),
						 .text = lg_intern(r->b, text) });
}

static void mark(struct run *r, const char *name, const char *text, int64_t value)
{
	bool step = !strcmp(name, "det.step");

	if (step && r->n)
		add(r, "det.end", "", r->n - 1);
	add(r, name, text, value);
	r->n = step ? 1 : r->n + 1;
}

/*
 * One rank. Values are made of the step and of what went wrong before; other: they are those of the other
 * run. Python's own generator is never seeded and never used.
 */
static void steps(struct run *r, enum cause cause, bool other)
{
	int64_t wrong = 0;

	mark(r, "det.step", "", 1);
	mark(r, "det.rng", "torch", 77 + other); /* before the program seeds it */
	for (int64_t s = 1; s <= STEPS; s++) {
		bool now = s == PARTS && other;
		double loss;
		int64_t bits;

		if (s > 1)
			mark(r, "det.step", "", s);
		mark(r, "det.rng", "torch", 1000 + 2 * s + (cause == SEED && s >= PARTS ? other : 0));
		mark(r, "det.rng", "random", 5 + other);
		if (s == 1)
			mark(r, "det.param", "w", 4000);
		wrong += cause == INPUT && now;
		mark(r, "det.input", "batch[0]", 100 * s + wrong);
		wrong += (cause == FORWARD || cause == SEED) && now;
		loss = 2.0 / (double)(s + 3 * wrong);
		memcpy(&bits, &loss, sizeof bits);
		mark(r, "det.loss", "loss", bits);
		wrong += cause == BACKWARD && now;
		mark(r, "det.grad", "late", 200 * s);
		if (cause == LOST && now)
			r->n++; /* one that did not come */
		if (!(cause == MISSING && now))
			mark(r, "det.grad", "w", 300 * s + wrong);
		wrong += cause == OPTIMIZER && now;
		mark(r, "det.param", "w", 400 * s + wrong);
		if (cause == TAMPER && now)
			mark(r, "det.outside", "w", 400 * s + ++wrong);
	}
	mark(r, "det.step", "", STEPS + 1);
	mark(r, "det.rng", "torch", 1000 + 2 * (STEPS + 1) + (cause == SEED ? other : 0));
	add(r, "det.end", "", r->n - 1);
}

static lg_thr rank_thread(struct lg_builder *b, int32_t rank, int32_t world)
{
	lg_thr thr = lg_thread_get(b, 900 + rank, 900 + rank);
	lg_prc prc = lg_thread_process(b, thr);
	struct lg_process_row row = lg_process_read(b, prc);

	row.role = LG_ROLE_RANK;
	row.rank = world > 1 ? rank : -1;
	row.world = world;
	lg_process_write(b, prc, &row);
	if (world > 1)
		lg_meta_setf(b, prc, "ddp.0.broadcast_buffers", "True");
	lg_meta_setf(b, prc, "det.threads", "1");
	return thr;
}

/* odd: the rank whose values are those of the other run; -1 = none, RANKS = all. */
static struct lg_trace *made(enum cause cause, int32_t world, int32_t odd)
{
	struct lg_builder *b;
	struct lg_trace *t;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int32_t k = 0; k < world; k++) {
		struct run r = { .b = b, .thr = rank_thread(b, k, world), .ts = 1000 };

		steps(&r, cause, odd == RANKS || odd == k);
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static struct lg_det compared(struct lg_trace *a, struct lg_trace *b, struct lg_arena *arena)
{
	struct lg_det d;

	assert_int_equal(lg_det_compare(a, b, arena, &d), 0);
	return d;
}

static void the_first_tensor_is_named(void **state)
{
	static const struct {
		enum cause cause;
		const char *kind, *tensor;
	} want[] = {
		{ SEED, "rng", "torch" },  { INPUT, "input", "batch[0]" }, { FORWARD, "loss", "loss" },
		{ BACKWARD, "grad", "w" }, { MISSING, "grad", "w" },       { OPTIMIZER, "param", "w" },
		{ TAMPER, "param", "w" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct lg_trace *a = made(want[i].cause, 1, -1), *b = made(want[i].cause, 1, RANKS);
		struct lg_arena arena = { 0 };
		struct lg_det d = compared(a, b, &arena);

		assert_int_equal(d.basis, LG_DET_PRINTS);
		assert_false(d.equal);
		assert_int_equal(d.first.step, PARTS);
		assert_int_equal(d.first.equal_at, PARTS - 1);
		assert_string_equal(d.first.kind, want[i].kind);
		assert_string_equal(d.first.tensor, want[i].tensor);
		assert_int_equal(d.first.outside, want[i].cause == TAMPER);
		lg_arena_done(&arena);
		lg_trace_free(a);
		lg_trace_free(b);
	}
}

/* A generator that differs and is never drawn from is a note; one that differs before it is seeded is not. */
static void equal_runs_are_equal(void **state)
{
	struct lg_trace *a = made(NOTHING, 1, -1), *b = made(NOTHING, 1, RANKS);
	struct lg_arena arena = { 0 };
	struct lg_det d = compared(a, b, &arena);

	(void)state;
	assert_true(d.equal);
	assert_int_equal(d.steps_compared, STEPS);
	assert_int_equal(d.first.step, -1);
	assert_int_equal(d.n_notes, 1);
	assert_non_null(strstr(d.notes[0], "(random;"));
	lg_arena_done(&arena);
	lg_trace_free(a);
	lg_trace_free(b);
}

/* A step of which fingerprints were lost is not compared, and no tensor is missing in it. */
static void what_was_lost_accuses_nobody(void **state)
{
	struct lg_trace *a = made(NOTHING, 1, -1), *b = made(LOST, 1, RANKS);
	struct lg_arena arena = { 0 };
	struct lg_det d = compared(a, b, &arena);

	(void)state;
	assert_true(d.equal);
	assert_int_equal(d.steps_compared, STEPS - 1);
	lg_arena_done(&arena);
	lg_trace_free(a);
	lg_trace_free(b);
}

static void one_rank_is_named(void **state)
{
	struct lg_trace *a = made(BACKWARD, RANKS, -1), *b = made(BACKWARD, RANKS, 1);
	struct lg_arena arena = { 0 };
	struct lg_det d = compared(a, b, &arena);

	(void)state;
	assert_string_equal(d.first.kind, "grad");
	assert_int_equal(d.first.rank, 1);
	lg_arena_done(&arena);
	lg_trace_free(a);
	lg_trace_free(b);
}

/* In one recording: a rank whose parameter changed outside of the optimizer's step, and one of which that is
 * not known. */
static void parameters_of_ranks_part(void **state)
{
	static const struct {
		enum cause cause;
		int32_t odd;
		bool found;
		int32_t rank;
	} want[] = {
		{ TAMPER, 1, true, 1 },
		{ OPTIMIZER, 1, true, -1 },
		{ NOTHING, -1, false, -1 },
		{ TAMPER, RANKS, false, -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct lg_trace *t = made(want[i].cause, RANKS, want[i].odd);
		struct outcome o = judge(t);
		const struct lg_finding *f = find(o.v, "det.diverged");

		assert_int_equal(f != NULL, want[i].found);
		if (f) {
			assert_int_equal(f->culprit.rank, want[i].rank);
			assert_int_equal(f->n_culprit_ranks, want[i].rank < 0 ? 2 : 0);
			assert_non_null(strstr(f->title, "from step 5 on the parameter w"));
		}
		done(&o);
	}
}

/* A log: lines of steps and their losses. */
static struct lg_trace *log_of(double at_parting, int64_t parts)
{
	struct lg_builder *b;
	struct lg_trace *t;
	lg_trk trk;
	lg_thr thr;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	thr = lg_thread_get(b, 900, 900);
	trk = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
						      .prc = lg_thread_process(b, thr),
						      .name = lg_intern(b, "log.loss") });
	for (int64_t s = 1; s <= STEPS; s++) {
		lg_add_mark(b, &(struct lg_mark_row){ .ts = 1000 * s,
						      .thr = thr,
						      .value = 10 * s,
						      .name = lg_intern(b, "log.step") });
		lg_add_counter(b, &(struct lg_counter_row){ .ts = 1000 * s,
							    .track = trk,
							    .value = s == parts ? at_parting
										: 2.5 - (double)s / 8 });
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

/* 2.5 - 5/8 = 1.875: three digits. 1.8753 prints the same in three of them, 1.876 does not. */
static void losses_of_logs_part_in_the_digits_that_both_print(void **state)
{
	struct lg_trace *a = log_of(0, -1), *b = log_of(1.876, 5), *more = log_of(1.8753, 5);
	struct lg_arena arena = { 0 };
	struct lg_det d = compared(a, b, &arena);

	(void)state;
	assert_int_equal(d.basis, LG_DET_LOGS);
	assert_int_equal(d.first.step, 50);
	assert_int_equal(d.first.equal_at, 40);
	assert_true(d.first.before == 1.875 && d.first.after == 1.876);
	assert_true(compared(a, a, &arena).equal);
	assert_true(compared(a, more, &arena).equal);
	lg_arena_done(&arena);
	lg_trace_free(a);
	lg_trace_free(b);
	lg_trace_free(more);
}

static void what_tells_nothing_is_not_equal(void **state)
{
	struct lg_builder *b;
	struct lg_trace *t, *a = made(NOTHING, 1, -1);
	struct lg_arena arena = { 0 };

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	assert_int_equal(compared(t, a, &arena).basis, LG_DET_NOTHING);
	assert_false(compared(t, t, &arena).equal);
	lg_arena_done(&arena);
	lg_trace_free(t);
	lg_trace_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_tensor_is_named),
		cmocka_unit_test(equal_runs_are_equal),
		cmocka_unit_test(what_was_lost_accuses_nobody),
		cmocka_unit_test(one_rank_is_named),
		cmocka_unit_test(parameters_of_ranks_part),
		cmocka_unit_test(losses_of_logs_part_in_the_digits_that_both_print),
		cmocka_unit_test(what_tells_nothing_is_not_equal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
