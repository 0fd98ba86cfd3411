/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gil_account.c - what each thread had to do with Python's lock (the GIL) in the whole run.
 *
 * Waits, and sleeps with the lock, are exact. Time on the CPU is what samples show, each of which tells
 * whether its thread had the lock (LG_SAMPLE_GIL, _NO_GIL): as good as their number.
 */
#include <math.h>

#include "analyse/chains/chains.h"
#include "base/map.h"
#include "base/order.h"
#include "base/words.h"

enum { ROWS_MAX = 4096 /* beyond it places are not told apart */ };

struct account {
	struct lg_gil_row *v;
	size_t n, cap;
	struct lg_map at;
	bool failed; /* without memory */
};

/* Is it in the C library, the loader or the kernel's page of code? Anybody may have called it. */
static bool is_anybodys(const struct lg_trace *t, lg_frm f)
{
	static const char *const files[] = { "libc.so", "libc-2", "ld-linux", "ld-2", "libm.so", "libm-2",
					     "libpthread", "[vdso]" };
	const char *file = lg_file_name(lg_string(t, t->frame.dso[f]));

	for (size_t i = 0; i < LG_COUNT(files); i++)
		if (!strncmp(file, files[i], strlen(files[i])))
			return true;
	return false;
}

int64_t lg_gil_weight(const struct lg_trace *t, uint32_t row)
{
	return (int64_t)LG_MIN(t->sample.weight[row], (uint64_t)INT64_MAX);
}

struct lg_gil_place lg_gil_place_of(const struct lg_trace *t, lg_stk stack)
{
	struct lg_gil_place p = { .did = LG_GIL_PYTHON };
	bool known = false;

	for (lg_stk s = stack; s; s = t->stack.parent[s]) {
		lg_frm f = t->stack.frame[s];

		if (t->frame.kind[f] == LG_FRAME_KERNEL)
			continue;
		if (t->frame.kind[f] == LG_FRAME_PYTHON) {
			p.python = f;
			break;
		}
		if (known || lg_is_interpreters(t, f)) {
			p.did = known ? p.did : LG_GIL_PYTHON;
			known = true;
			continue;
		}
		known = !is_anybodys(t, f);
		p.did = known ? LG_GIL_NATIVE : LG_GIL_LIBRARY;
		p.native = t->frame.name[f] ?: t->frame.dso[f];
	}
	if (p.did == LG_GIL_PYTHON)
		p.native = 0;
	return p;
}

/* Frames of one line are many: the instruction is in them. */
static uint64_t place_key(const struct lg_trace *t, lg_frm python, lg_str native)
{
	return lg_mix64(lg_mix64((uint64_t)t->frame.name[python] << 32 | t->frame.file[python]) ^
			((uint64_t)t->frame.line[python] << 32 | native));
}

static void count(const struct lg_trace *t, struct account *a, const struct lg_gil_row *what)
{
	bool full = a->n >= ROWS_MAX;
	lg_frm python = full ? 0 : what->python;
	lg_str native = full ? 0 : what->native;
	uint64_t key = lg_mix64((uint64_t)what->thr << 32 | what->by) ^ place_key(t, python, native) ^
		       (uint64_t)what->did;
	uint32_t at = LG_MAP_APPEND(&a->at, key, a->v, a->n, a->cap,
				    (struct lg_gil_row){ .thr = what->thr, .by = what->by, .did = what->did,
							 .python = python, .native = native });
	struct lg_gil_row *r = at ? &a->v[at - 1] : NULL;

	if (!r) {
		a->failed = true;
		return;
	}
	r->times += what->times;
	r->ns = lg_sum_ns(r->ns, what->ns);
	r->refused = lg_sum_ns(r->refused, what->refused);
	r->longest = LG_MAX(r->longest, what->longest);
}

/* For how long the holder kept it after it was asked: while it waited for a CPU it could not give it up. */
static int64_t refused(const struct lg_case *c, const struct lg_gil_wait *w)
{
	struct lg_rows states;
	int64_t ns = 0;

	if (!w->holder || w->asked >= w->end)
		return 0;
	states = lg_states_in(&c->scene, w->holder, w->asked, w->end);
	while (lg_next_row(&c->scene, &states))
		if (c->t->state.kind[states.row] != LG_RUNNABLE)
			ns = lg_sum_ns(ns, states.to - states.from);
	return ns;
}

static void count_waits(const struct lg_case *c, struct account *a)
{
	int64_t whole = 0;

	for (size_t i = 0; i < c->n_gil; i++) {
		const struct lg_gil_wait *w = &c->gil[i];

		if (!w->told)
			continue;
		whole = lg_sum_ns(whole, w->end - w->from);
		count(c->t, a, &(struct lg_gil_row){
			.thr = w->thr, .by = w->holder, .did = LG_GIL_WAITED, .times = w->last,
			.ns = w->end - w->from, .longest = w->last ? whole : 0,
			.refused = refused(c, w) });
		whole = w->last ? 0 : whole;
	}
}

static void count_sleeps(struct lg_case *c, struct account *a)
{
	const struct lg_state_tab *s = &c->t->state;

	for (uint32_t row = 0; row < s->n; row++) {
		struct lg_gil_place p;
		int64_t ns;

		if (s->kind[row] != LG_BLOCKED || !(s->flags[row] & LG_STATE_GIL_HELD))
			continue;
		p = lg_gil_place_of(c->t, s->stack[row]);
		ns = lg_row_end(c->t, s->ts[row], s->dur[row]) - s->ts[row];
		count(c->t, a, &(struct lg_gil_row){
			.thr = s->thr[row], .did = LG_GIL_ASLEEP, .python = p.python,
			.native = lg_wait_name_of(c, row), .times = 1, .ns = ns, .longest = ns });
	}
}

static void count_samples(const struct lg_case *c, struct account *a)
{
	const struct lg_sample_tab *s = &c->t->sample;

	for (size_t row = 0; row < s->n; row++) {
		struct lg_gil_row r = { .thr = s->thr[row], .times = 1,
					.ns = lg_gil_weight(c->t, (uint32_t)row) };
		struct lg_gil_place p;

		if (!(s->flags[row] & (LG_SAMPLE_GIL | LG_SAMPLE_NO_GIL)))
			continue;
		p = lg_gil_place_of(c->t, s->stack[row]);
		if (s->flags[row] & LG_SAMPLE_NO_GIL && p.did == LG_GIL_PYTHON)
			continue; /* on its way to the lock, or back from it */
		r.did = s->flags[row] & LG_SAMPLE_NO_GIL ? LG_GIL_RELEASED : p.did;
		r.python = p.python;
		r.native = p.native;
		count(c->t, a, &r);
	}
}

LG_ORDER_BY(by_thread_then_time, struct lg_gil_row,
	    LG_CMP(x->thr, y->thr) ?: LG_CMP(x->did, y->did) ?: LG_CMP(y->ns, x->ns) ?:
		    LG_CMP(x->python, y->python))

int lg_account_gil(struct lg_case *c)
{
	struct account a = { 0 };

	count_waits(c, &a);
	count_sleeps(c, &a);
	count_samples(c, &a);
	lg_map_done(&a.at);
	for (size_t i = 0; i < a.n; i++) /* of n independent samples, 95 of 100 times */
		if (a.v[i].did != LG_GIL_WAITED && a.v[i].did != LG_GIL_ASLEEP)
			a.v[i].error = (int64_t)(1.96 * (double)a.v[i].ns / sqrt((double)a.v[i].times));
	LG_SORT(a.v, a.n, by_thread_then_time);
	c->v->gil = lg_arena_adopt(&c->v->arena, a.v);
	c->v->n_gil = c->v->gil ? a.n : 0;
	return a.failed || (a.v && !c->v->gil) ? LG_E_NOMEM : 0;
}
