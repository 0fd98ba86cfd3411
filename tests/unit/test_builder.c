/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "store/builder.h"

static struct lg_builder *fresh(void)
{
	struct lg_builder *b;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	return b;
}

static void test_strings(void **state)
{
	enum { N = 200000 };
	struct lg_builder *b = fresh();
	const struct lg_trace *t = lg_builder_trace(b);
	static lg_str id[N];
	char text[32];

	(void)state;
	assert_int_equal(lg_intern(b, ""), 0);
	assert_int_equal(lg_intern(b, NULL), 0);
	assert_int_equal(lg_intern_n(b, "a\0b", 3), lg_intern(b, "a"));
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		id[i] = lg_intern(b, text);
		assert_int_not_equal(id[i], 0);
	}
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		assert_int_equal(lg_intern(b, text), id[i]);
		assert_string_equal(lg_string(t, id[i]), text);
	}
	assert_int_equal(t->n_str, N + 2);
	lg_builder_free(b);
}

/* The end of a path that lies in the pool itself, while the pool has to grow and move. */
static void test_string_from_pool(void **state)
{
	struct lg_builder *b = fresh();
	const struct lg_trace *t = lg_builder_trace(b);
	char text[128];

	(void)state;
	for (int i = 0; i < 20000; i++) {
		lg_str whole, part;

		snprintf(text, sizeof text, "/usr/lib/x86_64-linux-gnu/lib%d.so", i);
		whole = lg_intern(b, text);
		part = lg_intern(b, strrchr(lg_string(t, whole), '/') + 1);
		assert_string_equal(lg_string(t, part), strrchr(text, '/') + 1);
	}
	lg_builder_free(b);
}

static void test_long_string(void **state)
{
	struct lg_builder *b = fresh();
	size_t n = (1 << 20) + 5;
	char *big = malloc(n + 1);
	lg_str id;

	(void)state;
	assert_non_null(big);
	memset(big, 'x', n);
	memcpy(big + (1 << 20) - 1, "\xe2\x82\xac", 3); /* across the cut */
	big[n] = 0;
	id = lg_intern(b, big);
	assert_int_equal(strlen(lg_string(lg_builder_trace(b), id)), (1 << 20) - 1);
	assert_int_equal(lg_intern(b, big), id);
	free(big);
	lg_builder_free(b);
}

static void test_frames(void **state)
{
	struct lg_builder *b = fresh();
	lg_str dso = lg_intern(b, "libc.so"), name = lg_intern(b, "read"), n2 = lg_intern(b, "pread");
	struct lg_frame_row bare = { .pc = 0x10, .dso = dso };
	struct lg_frame_row named = { .pc = 0x10, .dso = dso, .name = name, .line = 7 };
	lg_frm f = lg_intern_frame(b, &bare), g;

	(void)state;
	assert_int_equal(lg_intern_frame(b, &bare), f);
	lg_frame_set_name(b, f, name, 0, 7);
	/* Found by what it was, and by what it is. */
	assert_int_equal(lg_intern_frame(b, &bare), f);
	assert_int_equal(lg_intern_frame(b, &named), f);
	lg_frame_set_name(b, f, n2, 0, 9);
	assert_int_equal(lg_intern_frame(b, &bare), f);
	named.name = n2;
	named.line = 9;
	assert_int_equal(lg_intern_frame(b, &named), f);
	/* Two files' functions of one name may begin at the same line. */
	named.file = lg_intern(b, "a.py");
	g = lg_intern_frame(b, &named);
	assert_int_not_equal(g, f);
	named.file = lg_intern(b, "b.py");
	assert_int_not_equal(lg_intern_frame(b, &named), g);
	named.file = lg_intern(b, "a.py");
	assert_int_equal(lg_intern_frame(b, &named), g);
	named.file = 0;
	/* Another function at the same address (inlined) is another frame. */
	named.kind = LG_FRAME_INLINED;
	g = lg_intern_frame(b, &named);
	assert_int_not_equal(g, f);
	lg_frame_set_name(b, 0, name, 0, 0);
	lg_frame_set_name(b, 1000, name, 0, 0);
	assert_int_equal(lg_builder_trace(b)->frame.name[0], 0);
	lg_builder_free(b);
}

static void test_stacks(void **state)
{
	struct lg_builder *b = fresh();
	const struct lg_trace *t = lg_builder_trace(b);
	lg_frm f = lg_intern_frame(b, &(struct lg_frame_row){ .pc = 1 });
	lg_frm g = lg_intern_frame(b, &(struct lg_frame_row){ .pc = 2 });
	lg_stk a = lg_intern_stack(b, 0, f), c = lg_intern_stack(b, a, g);

	(void)state;
	assert_int_equal(lg_intern_stack(b, lg_intern_stack(b, 0, f), g), c);
	assert_int_not_equal(lg_intern_stack(b, 0, g), c);
	assert_int_equal(t->stack.depth[c], 2);
	assert_int_equal(lg_intern_stack(b, 99, f), 0);
	assert_int_equal(lg_intern_stack(b, a, 99), 0);
	lg_builder_free(b);
}

static void test_pid_reuse(void **state)
{
	struct lg_builder *b = fresh();
	const struct lg_trace *t = lg_builder_trace(b);
	lg_thr a, c, d;

	(void)state;
	a = lg_thread_start(b, 1, 500, 500, 100);
	assert_int_equal(lg_thread_get(b, 500, 500), a);
	assert_int_equal(lg_thread_start(b, 1, 500, 500, 100), a); /* told twice */
	lg_thread_end(b, 500, 200);
	assert_int_equal(t->thread.end[a], 200);
	assert_int_equal(t->process.end[t->thread.prc[a]], 200);
	c = lg_thread_start(b, 2, 500, 500, 300);
	assert_int_not_equal(c, a);
	assert_int_not_equal(t->thread.prc[c], t->thread.prc[a]);
	assert_int_equal(t->process.ppid[t->thread.prc[c]], 2);
	/* The exit was lost: the next fork ends the life. */
	d = lg_thread_start(b, 3, 500, 500, 400);
	assert_int_not_equal(d, c);
	assert_int_equal(t->thread.end[c], 400);
	assert_int_equal(t->process.end[t->thread.prc[c]], 400);
	/* The last slice is told after the exit: the same life. Under another pid it is a new one. */
	lg_thread_end(b, 500, 450);
	assert_int_equal(lg_thread_get(b, 500, 500), d);
	assert_int_equal(lg_thread_get(b, -1, 500), d);
	a = lg_thread_get(b, 501, 500);
	assert_int_not_equal(a, d);
	assert_int_equal(t->thread.start[a], 450);
	/* The tid of an open life under another pid: its start is unknown, not the end of time. */
	c = lg_thread_get(b, 600, 600);
	lg_add_state(b, &(struct lg_state_row){ .thr = c });
	d = lg_thread_get(b, 700, 600);
	assert_int_equal(t->thread.start[d], INT64_MIN);
	lg_builder_free(b);
}

/* /proc was read before the fork's record was: one life, unless it did something before. */
static void test_fork_told_late(void **state)
{
	struct lg_builder *b = fresh();
	const struct lg_trace *t = lg_builder_trace(b);
	lg_thr a = lg_thread_get(b, 800, 800), c = lg_thread_get(b, 900, 900);

	(void)state;
	assert_int_equal(lg_thread_start(b, 7, 800, 800, 100), a);
	assert_int_equal(t->thread.start[a], 100);
	assert_int_equal(t->process.start[t->thread.prc[a]], 100);
	assert_int_equal(t->process.ppid[t->thread.prc[a]], 7);
	lg_add_state(b, &(struct lg_state_row){ .ts = 50, .dur = 10, .thr = c });
	assert_int_not_equal(lg_thread_start(b, 7, 900, 900, 100), c);
	assert_int_equal(t->thread.end[c], 100);
	lg_builder_free(b);
}

static void test_pid_known_later(void **state)
{
	struct lg_builder *b = fresh();
	const struct lg_trace *t = lg_builder_trace(b);
	lg_thr thr = lg_thread_get(b, -1, 42), x, y;
	lg_prc ghost;

	(void)state;
	lg_thread_name(b, thr, lg_intern(b, "worker"));
	assert_int_equal(t->process.pid[t->thread.prc[thr]], 42);
	/* Nobody has the right process yet: the row is corrected. */
	assert_int_equal(lg_thread_get(b, 40, 42), thr);
	assert_int_equal(t->process.pid[t->thread.prc[thr]], 40);
	assert_int_equal(lg_process_get(b, 40), t->thread.prc[thr]);
	assert_int_equal(t->process.comm[t->thread.prc[thr]], 0);
	assert_false(t->thread.flags[thr] & LG_THREAD_MAIN);
	assert_int_equal(lg_thread_get(b, -1, 42), thr);
	/* The right process is there: the thread moves, the ghost never lived. */
	x = lg_thread_get(b, -1, 43);
	ghost = t->thread.prc[x];
	y = lg_thread_get(b, 40, 40);
	assert_int_equal(lg_thread_get(b, 40, 43), x);
	assert_int_equal(t->thread.prc[x], t->thread.prc[y]);
	assert_int_equal(t->process.end[ghost], INT64_MIN);
	assert_int_not_equal(lg_process_get(b, 43), ghost);
	lg_builder_free(b);
}

static void test_out_of_range(void **state)
{
	struct lg_builder *b = fresh();
	struct lg_process_row p = { .pid = 9 };

	(void)state;
	lg_thread_name(b, 77, 0);
	lg_thread_end(b, 12345, 1);
	lg_process_write(b, 77, &p);
	lg_process_write(b, 0, &p);
	assert_int_equal(lg_process_read(b, 77).rank, -1);
	assert_int_equal(lg_process_read(b, 0).pid, 0);
	assert_int_equal(lg_thread_process(b, 77), 0);
	assert_int_equal(lg_thread_read(b, 77).tid, 0);
	/* Ending the idle thread would end it on every CPU. */
	lg_thread_get(b, 0, 0);
	lg_thread_end(b, 0, 5);
	assert_int_equal(lg_thread_read(b, lg_thread_get(b, 0, 0)).end, INT64_MAX);
	lg_builder_free(b);
}

struct seen {
	size_t strings, rows[LG_TABLE_MAX];
	int fail_table;
};

static int on_strings(void *self, const struct lg_trace *t, size_t first, size_t last,
		      struct lg_error *err)
{
	struct seen *s = self;

	(void)t;
	(void)err;
	s->strings += last - first;
	return 0;
}

static int on_rows(void *self, const struct lg_table_desc *d, const struct lg_tab *tab,
		   const uint32_t *rows, size_t n, struct lg_error *err)
{
	struct seen *s = self;

	(void)tab;
	assert_int_equal(!!rows, d->is_dict);
	if ((int)d->id == s->fail_table)
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "no");
	s->rows[d->id] += n;
	return 0;
}

static const struct lg_sink sink = { .strings = on_strings, .rows = on_rows };

static void test_flush(void **state)
{
	struct lg_builder *b = fresh();
	struct seen s = { 0 };
	lg_prc p;

	(void)state;
	lg_add_mark(b, &(struct lg_mark_row){ .ts = 1, .name = lg_intern(b, "m") });
	p = lg_process_get(b, 5);
	assert_int_equal(lg_builder_flush(b, &sink, &s, NULL), 0);
	assert_int_equal(s.strings, 1);
	assert_int_equal(s.rows[LG_TABLE_mark], 1);
	assert_int_equal(s.rows[LG_TABLE_process], 1);
	/* Nothing twice; a changed row once more. */
	assert_int_equal(lg_builder_flush(b, &sink, &s, NULL), 0);
	assert_int_equal(s.rows[LG_TABLE_process] + s.rows[LG_TABLE_mark] + s.strings, 3);
	lg_process_write(b, p, &(struct lg_process_row){ .pid = 5, .rank = 1 });
	lg_process_write(b, p, &(struct lg_process_row){ .pid = 5, .rank = 2 });
	assert_int_equal(lg_builder_flush(b, &sink, &s, NULL), 0);
	assert_int_equal(s.rows[LG_TABLE_process], 2);
	/* A sink that fails keeps the rows. */
	s.fail_table = LG_TABLE_mark;
	lg_add_mark(b, &(struct lg_mark_row){ .ts = 2 });
	assert_int_equal(lg_builder_flush(b, &sink, &s, NULL), LG_E_IO);
	assert_int_equal(lg_builder_trace(b)->mark.n, 1);
	s.fail_table = 0;
	assert_int_equal(lg_builder_flush(b, &sink, &s, NULL), 0);
	assert_int_equal(s.rows[LG_TABLE_mark], 2);
	lg_builder_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strings),	       cmocka_unit_test(test_string_from_pool),
		cmocka_unit_test(test_long_string),    cmocka_unit_test(test_frames),
		cmocka_unit_test(test_stacks),	       cmocka_unit_test(test_pid_reuse),
		cmocka_unit_test(test_fork_told_late), cmocka_unit_test(test_pid_known_later),
		cmocka_unit_test(test_out_of_range),   cmocka_unit_test(test_flush),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
