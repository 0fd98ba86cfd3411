/* SPDX-License-Identifier: Apache-2.0 */
/* Mark rings: what the reader takes, what it refuses, and the rows that come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "record/marks.h"

#define SLOTS 16u
#define NAMES_OFF (LAG_MARK_PAGE + SLOTS * 64)
#define NAMES_CAP 4096u
#define SIZE (NAMES_OFF + NAMES_CAP)
#define PID 77

/* A ring in a file that we write as its process would. */
struct fixture {
	int fd;
	uint64_t next, names;
	int64_t now;
	struct lg_mark_ring r;
	struct lg_builder *b;
	struct lg_mark_rows *rows;
};

static void put(struct fixture *f, uint64_t off, const void *p, size_t n)
{
	assert_int_equal(pwrite(f->fd, p, n, (off_t)off), n);
}

static void put_word(struct fixture *f, unsigned i, uint64_t v)
{
	put(f, i * 8u, &v, 8);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	char path[] = "/tmp/laggard-test-XXXXXX";

	f->fd = mkstemp(path);
	unlink(path);
	assert_int_equal(ftruncate(f->fd, SIZE), 0);
	f->next = 1;
	f->now = 1000;
	put_word(f, LAG_MARK_H_MAGIC, LAG_MARK_MAGIC);
	put_word(f, LAG_MARK_H_VERSION, LAG_MARK_VERSION);
	put_word(f, LAG_MARK_H_SIZE, SIZE);
	put_word(f, LAG_MARK_H_PID, PID);
	put_word(f, LAG_MARK_H_SLOTS, SLOTS);
	put_word(f, LAG_MARK_H_SLOTS_OFF, LAG_MARK_PAGE);
	put_word(f, LAG_MARK_H_NAMES_OFF, NAMES_OFF);
	put_word(f, LAG_MARK_H_NAMES_CAP, NAMES_CAP);
	assert_int_equal(lg_mark_ring_init(&f->r, f->fd, NULL), 0);
	f->r.delayed = false; /* this writer's stores are in order */
	assert_int_equal(lg_builder_new(&f->b, NULL), 0);
	assert_int_equal(lg_mark_rows_new(&f->rows, f->b, PID, &f->r, NULL), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	lg_mark_rows_free(f->rows);
	lg_builder_free(f->b);
	close(f->fd);
	free(f);
	return 0;
}

static uint32_t name(struct fixture *f, const char *s)
{
	uint32_t len = (uint32_t)strlen(s), id = (uint32_t)(f->names / 8 + 1);

	put(f, NAMES_OFF + f->names, &len, 4);
	put(f, NAMES_OFF + f->names + 4, s, len);
	f->names = (f->names + 4 + len + 7) & ~7u;
	return id;
}

struct mark {
	unsigned what, kind, stage, bits, tid;
	uint32_t name, group;
	int64_t seq;
	uint64_t bytes, token;
};

/* The n-th word of a slot stays unwritten when n < 8: a writer that was stopped there. */
static uint64_t write_until(struct fixture *f, struct mark m, unsigned words)
{
	uint64_t i = f->next++;
	uint64_t w[8] = { i, (uint64_t)(f->now += 10),
			  (m.tid ? m.tid : PID) | (uint64_t)m.what << 32 | (uint64_t)m.kind << 40 |
				  (uint64_t)m.stage << 48 | (uint64_t)m.bits << 56,
			  m.name | (uint64_t)m.group << 32, (uint64_t)m.seq, m.bytes, m.token, i };

	put(f, LAG_MARK_PAGE + (i % SLOTS) * 64, w, words * 8);
	return i;
}

static uint64_t write_mark(struct fixture *f, struct mark m)
{
	return write_until(f, m, 8);
}

static uint64_t stage_begin(struct fixture *f, unsigned stage)
{
	return write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN, .kind = LAG_MARK_K_STAGE,
					    .stage = stage });
}

static void stage_end(struct fixture *f, uint64_t token)
{
	write_mark(f, (struct mark){ .what = LAG_MARK_END, .token = token });
}

/* Read all there is into rows; returns slots read. */
static size_t take(struct fixture *f, bool final, uint64_t *ret_lost)
{
	struct lg_mark_slot s[64];
	uint64_t lost;
	size_t n = lg_mark_ring_read(&f->r, s, 64, final, &lost);

	if (lost)
		lg_mark_rows_lost(f->rows, f->now, lost);
	for (size_t i = 0; i < n; i++)
		lg_mark_rows_add(f->rows, &s[i]);
	if (ret_lost)
		*ret_lost = lost;
	return n;
}

static const struct lg_span_tab *spans(struct fixture *f)
{
	return &lg_builder_trace(f->b)->span;
}

static const char *text(struct fixture *f, lg_str s)
{
	return lg_string(lg_builder_trace(f->b), s);
}

static void pairs_beginnings_with_ends_on_each_thread(void **state)
{
	struct fixture *f = *state;
	uint64_t a = stage_begin(f, LAG_STAGE_FORWARD), b, c;

	b = write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN, .kind = LAG_MARK_K_COLLECTIVE,
					 .tid = 78, .name = name(f, "all_reduce"),
					 .group = name(f, "default"), .seq = 41, .bytes = 4096,
					 .bits = LAG_MARK_ASYNC | LAG_MARK_IMPLICIT });
	c = write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN, .name = name(f, "inner") });
	stage_end(f, c);
	write_mark(f, (struct mark){ .what = LAG_MARK_END, .tid = 78, .token = b });
	stage_end(f, a);
	assert_int_equal(take(f, false, NULL), 6);
	assert_int_equal(spans(f)->n, 3);
	assert_string_equal(text(f, spans(f)->name[0]), "inner");
	assert_int_equal(spans(f)->kind[0], LG_SPAN_OTHER);
	assert_int_equal(spans(f)->dur[0], 10);
	assert_int_equal(spans(f)->kind[1], LG_SPAN_COLLECTIVE);
	assert_string_equal(text(f, spans(f)->name[1]), "all_reduce");
	assert_string_equal(text(f, spans(f)->group[1]), "default");
	assert_int_equal(spans(f)->seq[1], 41);
	assert_int_equal(spans(f)->bytes[1], 4096);
	assert_int_equal(spans(f)->flags[1], LG_SPAN_ASYNC | LG_SPAN_IMPLICIT);
	assert_int_equal(spans(f)->stage[2], LG_STAGE_FORWARD);
	assert_int_equal(spans(f)->ts[2], 1010);
	assert_int_equal(spans(f)->dur[2], 50);
	assert_int_not_equal(spans(f)->thr[1], spans(f)->thr[2]);
}

static void closes_inner_spans_whose_end_was_lost(void **state)
{
	struct fixture *f = *state;
	uint64_t outer = stage_begin(f, LAG_STAGE_BACKWARD);

	stage_begin(f, LAG_STAGE_SIDE);
	stage_end(f, outer);
	stage_end(f, 4711); /* never began */
	take(f, false, NULL);
	assert_int_equal(spans(f)->n, 2);
	assert_int_equal(spans(f)->ts[0] + spans(f)->dur[0], spans(f)->ts[1] + spans(f)->dur[1]);
	assert_true(spans(f)->ts[1] <= spans(f)->ts[0]);
}

/* Of a job that ran before: its first stage may be a step's last, and what began earlier has no length. */
static void a_ring_joined_in_the_middle_begins_with_a_mark(void **state)
{
	struct fixture *f = *state;

	lg_mark_rows_joined(f->rows);
	stage_end(f, 4711);
	stage_end(f, stage_begin(f, LAG_STAGE_OPTIMIZER));
	write_mark(f, (struct mark){ .what = LAG_MARK_STEP, .seq = 100 });
	stage_end(f, stage_begin(f, LAG_STAGE_FORWARD));
	write_mark(f, (struct mark){ .what = LAG_MARK_STEP, .seq = 101 });
	take(f, false, NULL);
	assert_int_equal(spans(f)->n, 3); /* two stages, one step */
	assert_int_equal(spans(f)->kind[2], LG_SPAN_STEP);
	assert_int_equal(spans(f)->seq[2], 101);
	assert_int_equal(spans(f)->dur[2], 30);
}

static void a_copy_counts_as_the_stage_it_takes(void **state)
{
	struct fixture *f = *state;

	write_mark(f, (struct mark){ .what = LAG_MARK_SPAN, .kind = LAG_MARK_K_COPY,
				     .stage = LAG_STAGE_H2D, .bytes = 64, .token = 5 });
	write_mark(f, (struct mark){ .what = LAG_MARK_SPAN, .kind = LAG_MARK_K_GC, .seq = 2,
				     .token = UINT64_MAX });
	take(f, false, NULL);
	assert_int_equal(spans(f)->n, 3);
	assert_int_equal(spans(f)->kind[0], LG_SPAN_COPY);
	assert_int_equal(spans(f)->bytes[0], 64);
	assert_int_equal(spans(f)->kind[1], LG_SPAN_STAGE);
	assert_int_equal(spans(f)->dur[1], 5);
	assert_int_equal(spans(f)->kind[2], LG_SPAN_GC);
	assert_int_equal(spans(f)->dur[2], 0); /* a length that cannot be */
}

static void step(struct fixture *f, int64_t n, unsigned bits)
{
	write_mark(f, (struct mark){ .what = LAG_MARK_STEP, .seq = n, .bits = bits });
}

static void steps_run_from_mark_to_mark(void **state)
{
	struct fixture *f = *state;

	stage_end(f, stage_begin(f, LAG_STAGE_BATCH_WAIT)); /* 1010: opens the first */
	step(f, 1, 0);                                       /* 1030 */
	step(f, 2, 0);                                       /* 1040 */
	stage_begin(f, LAG_STAGE_FORWARD);                   /* 1050 */
	take(f, false, NULL);
	assert_int_equal(spans(f)->n, 3);
	assert_int_equal(spans(f)->kind[1], LG_SPAN_STEP);
	assert_int_equal(spans(f)->ts[1], 1010);
	assert_int_equal(spans(f)->dur[1], 20);
	assert_int_equal(spans(f)->seq[1], 1);
	assert_int_equal(spans(f)->ts[2], 1030);
	assert_int_equal(spans(f)->seq[2], 2);
	lg_mark_rows_end(f->rows, INT64_MAX, false); /* a hang: shown, without a length */
	assert_int_equal(spans(f)->n, 5);
	assert_int_equal(spans(f)->dur[3], -1);
	assert_int_equal(spans(f)->kind[4], LG_SPAN_STEP);
	assert_int_equal(spans(f)->dur[4], -1);
	assert_int_equal(spans(f)->seq[4], 3);
}

/* What a watcher was told: a letter each, and the lengths of steps. */
struct told {
	char what[128];
	int64_t steps[8];
	size_t n, n_steps;
};

/* What a step was told to have spent where. */
struct spent {
	struct lg_mark_rows *rows;
	struct lg_mark_times t[4];
	size_t n;
};

static void spend(void *arg, enum lg_mark_saw what, int64_t number, int64_t ts, int64_t dur)
{
	struct spent *s = arg;

	(void)number;
	(void)ts;
	(void)dur;
	if (what == LG_MARK_SAW_STEP && s->n < 4)
		s->t[s->n++] = *lg_mark_rows_times(s->rows);
}

static void a_step_is_told_with_its_stages(void **state)
{
	struct fixture *f = *state;
	struct spent s = { .rows = f->rows };
	uint64_t outer, inner, shared;

	lg_mark_rows_watch(f->rows, spend, &s);
	write_mark(f, (struct mark){ .what = LAG_MARK_STEP, .seq = 1 }); /* opens the first, 10 ns a mark */
	outer = stage_begin(f, LAG_STAGE_FORWARD);
	inner = stage_begin(f, LAG_STAGE_H2D);
	stage_end(f, inner); /* 10 of h2d */
	stage_end(f, outer); /* 30 of forward, 10 of them h2d's */
	write_mark(f, (struct mark){ .what = LAG_MARK_STEP, .seq = 2 });
	take(f, false, NULL);
	outer = stage_begin(f, LAG_STAGE_BACKWARD);
	shared = write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN,
					      .kind = LAG_MARK_K_COLLECTIVE,
					      .bits = LAG_MARK_IMPLICIT });
	inner = write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN, .kind = LAG_MARK_K_WAIT });
	stage_end(f, inner);
	stage_end(f, shared); /* 30, in which the wait is */
	stage_end(f, outer);
	write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN,
				     .kind = LAG_MARK_K_STAGE,
				     .stage = LAG_STAGE_OPTIMIZER,
				     .tid = 99 });
	write_mark(f, (struct mark){ .what = LAG_MARK_STEP, .seq = 3 });
	take(f, false, NULL);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.t[0].stage[LG_STAGE_FORWARD], 20);
	assert_int_equal(s.t[0].stage[LG_STAGE_H2D], 10);
	assert_int_equal(s.t[0].wait, 0);
	assert_int_equal(s.t[1].stage[LG_STAGE_BACKWARD], 50);
	assert_int_equal(s.t[1].stage[LG_STAGE_FORWARD], 0);
	assert_int_equal(s.t[1].wait, 30);
	assert_int_equal(s.t[1].stage[LG_STAGE_OPTIMIZER], 0); /* another thread's */
}

static void saw(void *arg, enum lg_mark_saw what, int64_t number, int64_t ts, int64_t dur)
{
	static const char letter[] = { [LG_MARK_SAW_STEP] = 's', [LG_MARK_SAW_SIDE] = '(',
				       [LG_MARK_SAW_SIDE_END] = ')', [LG_MARK_SAW_LOSS] = 'x',
				       [LG_MARK_SAW_ANY] = '.' };
	struct told *t = arg;

	(void)ts;
	assert_true(t->n + 1 < sizeof t->what);
	if (what != LG_MARK_SAW_ANY)
		t->what[t->n++] = letter[what];
	if (what != LG_MARK_SAW_STEP)
		return;
	assert_int_equal(number, t->n_steps + 1);
	t->steps[t->n_steps++] = dur;
}

/* Side work counts where the steps are: what another thread saves meanwhile is not in them. */
static void a_watcher_is_told_of_steps_and_of_their_side_work(void **state)
{
	struct fixture *f = *state;
	struct told t = { .n = 0 };
	uint64_t side, other;

	lg_mark_rows_watch(f->rows, saw, &t);
	stage_end(f, stage_begin(f, LAG_STAGE_FORWARD));
	step(f, 1, 0);
	side = stage_begin(f, LAG_STAGE_SIDE);
	other = write_mark(f, (struct mark){ .what = LAG_MARK_BEGIN, .kind = LAG_MARK_K_STAGE,
					     .stage = LAG_STAGE_SIDE, .tid = PID + 1 });
	stage_end(f, side);
	write_mark(f, (struct mark){ .what = LAG_MARK_END, .token = other, .tid = PID + 1 });
	step(f, 2, 0);
	write_mark(f, (struct mark){ .what = LAG_MARK_SPAN, .kind = LAG_MARK_K_STAGE, .stage = LAG_STAGE_SIDE,
				     .token = 5 });
	take(f, true, NULL);
	lg_mark_rows_lost(f->rows, f->now, 3);
	assert_string_equal(t.what, "s()s()x");
	assert_int_equal(t.steps[0], 20);
	assert_int_equal(t.steps[1], 50);
}

static void marks_by_hand_win_and_the_gap_is_no_step(void **state)
{
	struct fixture *f = *state;

	stage_end(f, stage_begin(f, LAG_STAGE_FORWARD));
	step(f, 1, 0);
	step(f, 1, LAG_MARK_HAND); /* 1040 */
	step(f, 2, 0);             /* ignored from now on */
	step(f, 2, LAG_MARK_HAND); /* 1060 */
	take(f, false, NULL);
	assert_int_equal(spans(f)->n, 3);
	assert_int_equal(spans(f)->flags[1], 0);
	assert_int_equal(spans(f)->flags[2], LG_SPAN_HAND);
	assert_int_equal(spans(f)->ts[2], 1040);
	assert_int_equal(spans(f)->dur[2], 20);
}

static void inference_steps_carry_the_number_they_began_with(void **state)
{
	struct fixture *f = *state;

	stage_begin(f, LAG_STAGE_BATCH_WAIT);
	step(f, 1, LAG_MARK_START);
	step(f, 2, LAG_MARK_START);
	take(f, false, NULL);
	assert_int_equal(spans(f)->n, 1);
	assert_int_equal(spans(f)->seq[0], 1);
	assert_int_equal(spans(f)->ts[0], 1020);
}

static void a_process_that_ended_closes_what_it_left_open(void **state)
{
	struct fixture *f = *state;

	stage_begin(f, LAG_STAGE_FORWARD);
	take(f, true, NULL);
	lg_mark_rows_end(f->rows, 5000, false);
	assert_int_equal(spans(f)->n, 1);
	assert_int_equal(spans(f)->dur[0], 5000 - 1010);
	stage_begin(f, LAG_STAGE_FORWARD);
	take(f, true, NULL);
	lg_mark_rows_end(f->rows, 6000, true); /* said goodbye: no evidence */
	assert_int_equal(spans(f)->n, 1);
}

static void notices_what_was_overwritten(void **state)
{
	struct fixture *f = *state;
	uint64_t lost;
	size_t n;

	stage_begin(f, LAG_STAGE_FORWARD);
	assert_int_equal(take(f, false, &lost), 1);
	for (int i = 0; i < 40; i++)
		step(f, i, 0);
	n = take(f, false, &lost);
	assert_int_equal(n + lost, 40);
	assert_true(lost >= 40 - SLOTS && n > 0);
	assert_int_equal(lg_builder_trace(f->b)->diag.n, 1);
	assert_int_equal(lg_builder_trace(f->b)->diag.id[0], LG_DIAG_MARKS_LOST);
	assert_int_equal(lg_builder_trace(f->b)->diag.count[0], lost);
	/* The span that was open has no end any more, and the steps beside the hole no length. */
	for (size_t i = 0; i < spans(f)->n; i++)
		assert_int_equal(spans(f)->dur[i], 10);
	assert_int_equal(spans(f)->n, n - 1);
}

static void waits_for_a_slot_that_is_being_written_then_gives_it_up(void **state)
{
	struct fixture *f = *state;
	uint64_t lost;

	stage_end(f, stage_begin(f, LAG_STAGE_FORWARD));
	write_until(f, (struct mark){ .what = LAG_MARK_STEP }, 7); /* killed before the last word */
	assert_int_equal(take(f, false, &lost), 2);
	assert_int_equal(take(f, false, &lost), 0);
	step(f, 1, 0); /* another thread */
	for (int i = 0; i < 9; i++) {
		assert_int_equal(take(f, false, &lost), 0);
		assert_int_equal(lost, 0);
	}
	assert_int_equal(take(f, false, &lost), 1);
	assert_int_equal(lost, 1);
	write_until(f, (struct mark){ .what = LAG_MARK_STEP }, 7);
	step(f, 2, 0);
	assert_int_equal(take(f, true, &lost), 1); /* nobody will come back for it */
	assert_int_equal(lost, 1);
}

static void gives_up_the_last_slot_before_the_wrap_too(void **state)
{
	struct fixture *f = *state;
	uint64_t lost;

	while (f->next < SLOTS - 1)
		step(f, 0, 0);
	take(f, false, &lost);
	write_until(f, (struct mark){ .what = LAG_MARK_STEP }, 1); /* slot 15, then 0 */
	step(f, 1, 0);
	assert_int_equal(take(f, false, &lost), 0);
	assert_int_equal(take(f, true, &lost), 1);
	assert_int_equal(lost, 1);
}

static void weak_memory_order_takes_a_slot_one_read_later(void **state)
{
	struct fixture *f = *state;

	f->r.delayed = true;
	stage_begin(f, LAG_STAGE_FORWARD);
	assert_int_equal(take(f, false, NULL), 0);
	stage_begin(f, LAG_STAGE_SIDE);
	assert_int_equal(take(f, false, NULL), 1);
	assert_int_equal(take(f, false, NULL), 1);
	assert_int_equal(take(f, false, NULL), 0);
	for (int i = 0; i < 30; i++) {
		step(f, i, 0);
		take(f, false, NULL);
	}
	assert_int_equal(take(f, true, NULL), 1);
}

static void refuses_headers_that_lie(void **state)
{
	static const struct { unsigned word; uint64_t value; int code; } bad[] = {
		{ LAG_MARK_H_MAGIC, 1, LG_E_FORMAT },
		{ LAG_MARK_H_VERSION, 2, LG_E_UNSUPPORTED },
		{ LAG_MARK_H_SIZE, SIZE + 1, LG_E_FORMAT },
		{ LAG_MARK_H_SIZE, UINT64_MAX, LG_E_LIMIT },
		{ LAG_MARK_H_SLOTS, 0, LG_E_FORMAT },
		{ LAG_MARK_H_SLOTS, 17, LG_E_FORMAT },
		{ LAG_MARK_H_SLOTS, 1u << 19, LG_E_FORMAT },
		{ LAG_MARK_H_SLOTS, UINT64_MAX, LG_E_LIMIT },
		{ LAG_MARK_H_SLOTS_OFF, 8, LG_E_FORMAT },
		{ LAG_MARK_H_SLOTS_OFF, LAG_MARK_PAGE + 4, LG_E_FORMAT },
		{ LAG_MARK_H_SLOTS_OFF, UINT64_MAX - 7, LG_E_FORMAT },
		{ LAG_MARK_H_NAMES_OFF, UINT64_MAX - 7, LG_E_FORMAT },
		{ LAG_MARK_H_NAMES_CAP, UINT64_MAX, LG_E_FORMAT },
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct lg_mark_ring r = { .fd = -7 };
		struct lg_error err = { 0 };
		uint64_t was;

		assert_int_equal(pread(f->fd, &was, 8, (off_t)bad[i].word * 8), 8);
		put_word(f, bad[i].word, bad[i].value);
		assert_int_equal(lg_mark_ring_init(&r, f->fd, &err), bad[i].code);
		assert_int_equal(r.fd, -7);
		assert_true(err.message[0]);
		put_word(f, bad[i].word, was);
	}
	assert_int_equal(ftruncate(f->fd, 64), 0);
	assert_int_equal(lg_mark_ring_init(&f->r, f->fd, NULL), LG_E_FORMAT);
}

static void garbage_costs_bounded_work_and_no_more(void **state)
{
	struct fixture *f = *state;
	uint64_t x = 1, lost, pos = 0;

	for (int round = 0; round < 300; round++) {
		unsigned char bytes[SLOTS * 64];

		for (size_t i = 0; i < sizeof bytes; i++)
			bytes[i] = (unsigned char)((x = x * 6364136223846793005u + 1) >> 56);
		/* Indices that look right around words that do not. */
		for (uint64_t i = 0; i < SLOTS; i++) {
			uint64_t index = (uint64_t)round * 1000 * SLOTS + i;

			if (round % 3) {
				memcpy(bytes + i * 64, &index, 8);
				memcpy(bytes + i * 64 + 56, &index, 8);
			}
		}
		put(f, LAG_MARK_PAGE, bytes, sizeof bytes);
		put(f, NAMES_OFF, bytes, sizeof bytes);
		for (int i = 0; i < 4; i++) {
			assert_true(take(f, round % 7 == 0, &lost) <= SLOTS);
			assert_true(f->r.pos >= pos);
			pos = f->r.pos;
		}
	}
	assert_true(pos > 1000);
	assert_int_equal(ftruncate(f->fd, 100), 0); /* pulled from under us */
	assert_int_equal(take(f, true, &lost), 0);
	lg_mark_rows_end(f->rows, 1 << 30, false);
	assert_int_equal(lg_builder_failed(f->b), 0);
}

static void names_stay_inside_their_area(void **state)
{
	struct fixture *f = *state;
	uint32_t long_ = 5000, id = name(f, "right");
	char buf[4096];

	assert_int_equal(lg_mark_ring_name(&f->r, id, buf, sizeof buf), 5);
	assert_memory_equal(buf, "right", 5);
	assert_int_equal(lg_mark_ring_name(&f->r, id, buf, 3), 3);
	assert_int_equal(lg_mark_ring_name(&f->r, 0, buf, sizeof buf), 0);
	assert_int_equal(lg_mark_ring_name(&f->r, UINT32_MAX, buf, sizeof buf), 0);
	put(f, NAMES_OFF + 512, &long_, 4);
	assert_int_equal(lg_mark_ring_name(&f->r, 512 / 8 + 1, buf, sizeof buf), 0);
	long_ = 3;
	put(f, NAMES_OFF + NAMES_CAP - 4, &long_, 4);
	assert_int_equal(lg_mark_ring_name(&f->r, (NAMES_CAP - 8) / 8 + 1, buf, sizeof buf), 0);
}

static void tells_when_the_process_says_who_it_is(void **state)
{
	struct fixture *f = *state;

	assert_false(lg_mark_ring_header(&f->r));
	put_word(f, LAG_MARK_H_RANK, 3);
	put_word(f, LAG_MARK_H_ROLE, LAG_MARK_ROLE_TRAINS);
	assert_true(lg_mark_ring_header(&f->r));
	assert_int_equal(f->r.header[LAG_MARK_H_RANK], 3);
	assert_false(lg_mark_ring_header(&f->r));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(pairs_beginnings_with_ends_on_each_thread),
		T(a_step_is_told_with_its_stages),
		T(closes_inner_spans_whose_end_was_lost),
		T(a_ring_joined_in_the_middle_begins_with_a_mark),
		T(a_copy_counts_as_the_stage_it_takes),
		T(steps_run_from_mark_to_mark),
		T(a_watcher_is_told_of_steps_and_of_their_side_work),
		T(marks_by_hand_win_and_the_gap_is_no_step),
		T(inference_steps_carry_the_number_they_began_with),
		T(a_process_that_ended_closes_what_it_left_open),
		T(notices_what_was_overwritten),
		T(waits_for_a_slot_that_is_being_written_then_gives_it_up),
		T(gives_up_the_last_slot_before_the_wrap_too),
		T(weak_memory_order_takes_a_slot_one_read_later),
		T(refuses_headers_that_lie),
		T(garbage_costs_bounded_work_and_no_more),
		T(names_stay_inside_their_area),
		T(tells_when_the_process_says_who_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
