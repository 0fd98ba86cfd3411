/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gil.c - when a rank's thread waited for Python's global interpreter lock, and for which thread.
 *
 * Who wants the lock waits for a condition for the switch interval (5 ms), asks for it, and waits again
 * (Python/ceval_gil.c, take_gil(); the same in 3.8 to 3.14): futex waits that a timer ends, one after the
 * other with microseconds in between, until drop_gil() of the holder ends the last one. So the
 * one that ends it is the last holder; and it held the lock since it last waited for anything: to get the
 * lock after that it would have had to wait, like this thread. That such waits are of the lock, and not of
 * something else that is polled, is told by what the other thread did meanwhile: it ran the
 * interpreter's code (CPU samples), which only the holder may. All three, or nothing is said.
 */
#include "analyse/chains/chains.h"
#include "base/map.h"
#include "base/upper_bound.h"

enum {
	ROWS_MAX = 8192,         /* of one wait: some seconds */
	INTERVAL_MIN_NS = 1000000,
	BETWEEN_NS = 500000,     /* computes between two waits */
	SAMPLES_MIN = 5
};

struct waits {
	struct lg_gil_wait *v;
	size_t n, cap;
};

static bool ended_by_timer(const struct lg_case *c, uint32_t row)
{
	const struct lg_state_tab *s = &c->t->state;

	return s->dur[row] >= INTERVAL_MIN_NS &&
	       (s->waker_ctx[row] == LG_CTX_HARDIRQ || s->waker_ctx[row] == LG_CTX_SOFTIRQ);
}

/* From states[i], a futex wait that a timer ended: *ret_k is the row in which that chain ends. True if a
 * thread of the process ended it. */
static bool last_of(struct lg_case *c, const struct lg_rank *r, size_t i, size_t *ret_k)
{
	const struct lg_state_tab *s = &c->t->state;
	size_t to = i + ROWS_MAX < r->n_states ? i + ROWS_MAX : r->n_states;

	*ret_k = i;
	for (size_t k = i + 1; k < to; k++) {
		uint32_t row = r->states[k];
		lg_thr waker;

		*ret_k = k;
		if (s->kind[row] == LG_RUNNABLE)
			continue;
		if (s->kind[row] == LG_RUNNING && s->dur[row] >= 0 && s->dur[row] <= BETWEEN_NS)
			continue;
		if (s->kind[row] != LG_BLOCKED || s->dur[row] < 0 || lg_wait_class_of(c, row) > LG_WAIT_FUTEX)
			return false;
		if (ended_by_timer(c, row))
			continue;
		waker = s->waker_ctx[row] == LG_CTX_TASK ? s->waker[row] : 0;
		return waker && waker != r->thr && c->t->thread.prc[waker] == r->prc;
	}
	return false;
}

/* When thr came back from its last wait before `end`, as far as that is after `from`. */
static int64_t at_work_since(const struct lg_case *c, lg_thr thr, int64_t from, int64_t end)
{
	const struct lg_state_tab *s = &c->t->state;
	uint32_t first = c->idx->state_off[thr], p = lg_index_state_from(c->idx, thr, end);

	if (p >= c->idx->state_off[thr + 1] && p > first)
		p--;
	for (int i = 0; i < ROWS_MAX && p >= first && p < c->idx->state_off[thr + 1]; i++, p--) {
		uint32_t row = c->idx->state[p];

		if (s->ts[row] < end && s->kind[row] != LG_RUNNING && s->kind[row] != LG_RUNNABLE)
			return lg_row_end(c->t, s->ts[row], s->dur[row]);
		if (s->ts[row] <= from)
			return from;
		if (p == first)
			return s->ts[row];
	}
	return end;
}

bool lg_is_interpreters(const struct lg_trace *t, lg_frm f)
{
	const char *name = lg_string(t, t->frame.name[f]);

	return t->frame.kind[f] != LG_FRAME_KERNEL && t->frame.kind[f] != LG_FRAME_PYTHON &&
	       (!strncmp(name, "_Py", 3) || !strncmp(name, "Py", 2) ||
		lg_is_python_file(lg_string(t, t->frame.dso[f])));
}

/* Was it in the interpreter itself? A library that it called may have given the lock up before. */
static bool runs_python(const struct lg_case *c, lg_stk s)
{
	while (s && c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_KERNEL)
		s = c->t->stack.parent[s];
	return s && (c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_PYTHON ||
		     lg_is_interpreters(c->t, c->t->stack.frame[s]));
}

static void count_samples(const struct lg_case *c, const struct lg_gil_wait *w, size_t *all, size_t *python)
{
	struct lg_cpu_samples samples = lg_cpu_samples(c, w->holder, w->from, w->end);
	uint32_t row;

	while (lg_next_cpu_sample(c, &samples, &row)) {
		++*all;
		*python += runs_python(c, c->t->sample.stack[row]);
	}
}

struct ran {
	size_t all, python; /* CPU samples */
	bool proves;
};

/* Keep the waits for threads that ran Python meanwhile. */
static int keep_proven(const struct lg_case *c, struct waits *w)
{
	LG_AUTOFREE struct ran *ran = NULL;
	struct lg_map by_thr = { 0 };
	size_t n = 0, cap = 0;
	int rc = 0;

	LG_EACH_WHILE(!rc, x, w->v, w->n) {
		uint32_t at = LG_MAP_APPEND(&by_thr, x->holder, ran, n, cap, (struct ran){ 0 });

		rc = at ? 0 : LG_E_NOMEM;
		if (at)
			count_samples(c, x, &ran[at - 1].all, &ran[at - 1].python);
	}
	for (size_t i = 0; i < n; i++)
		ran[i].proves = ran[i].all >= SAMPLES_MIN && ran[i].python * 2 > ran[i].all;
	LG_KEEP(x, w->v, w->n, !rc && ran[lg_map_get(&by_thr, x->holder) - 1].proves);
	lg_map_done(&by_thr);
	return rc;
}

static int find_in(struct lg_case *c, const struct lg_rank *r, struct waits *w)
{
	const struct lg_state_tab *s = &c->t->state;

	for (size_t i = 0; i < r->n_states; i++) {
		uint32_t row = r->states[i], last;
		struct lg_gil_wait one;
		int64_t since;
		bool ended;
		size_t k;

		if (s->kind[row] != LG_BLOCKED || !ended_by_timer(c, row) ||
		    lg_wait_class_of(c, row) != LG_WAIT_FUTEX)
			continue;
		ended = last_of(c, r, i, &k);
		i = k; /* what begins in between ends there, too */
		if (!ended)
			continue;
		last = r->states[k];
		one = (struct lg_gil_wait){ .thr = r->thr, .holder = s->waker[last], .from = s->ts[row],
					    .end = s->ts[last] + s->dur[last] };
		since = at_work_since(c, one.holder, one.from, one.end);
		one.from = since > one.from ? since : one.from;
		if (one.from >= one.end)
			continue;
		if (LG_APPEND(w->v, w->n, w->cap, one))
			return LG_E_NOMEM;
	}
	return 0;
}

int lg_find_gil_waits(struct lg_case *c)
{
	struct waits w = { 0 };
	int rc = 0;

	for (size_t i = 0; i < c->n_ranks && !rc; i++) {
		size_t first = w.n;

		c->ranks[i].gil_first = first;
		rc = find_in(c, &c->ranks[i], &w);
		if (!rc) {
			struct waits own = { w.v ? w.v + first : NULL, w.n - first, 0 };

			rc = own.n ? keep_proven(c, &own) : 0;
			w.n = first + own.n;
			c->ranks[i].n_gil = own.n;
		}
	}
	c->gil = lg_arena_adopt(&c->v->arena, w.v);
	return rc ?: w.v && !c->gil ? LG_E_NOMEM : 0;
}

const struct lg_gil_wait *lg_gil_wait_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b)
{
	uint32_t r = c->rank_of_thr[thr];
	const struct lg_gil_wait *own;
	size_t n, i;

	if (!r || !c->gil)
		return NULL;
	own = c->gil + c->ranks[r - 1].gil_first;
	n = c->ranks[r - 1].n_gil;
	i = LG_UPPER_BOUND(own, n, end, a);
	return i < n && own[i].from < b ? &own[i] : NULL;
}
