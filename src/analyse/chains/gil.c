/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gil.c - when a thread waited for Python's global interpreter lock, and for which thread.
 *
 * A recorder that knows where the lock is tells each wait for it by the address slept on, and who had it
 * then (LG_STATE_GIL_WAIT): exact, of every thread. A holder is asked to give it up by each timer that ends
 * such a sleep; Python code does so at its next call or jump back, a native call that keeps the lock when it
 * returns.
 *
 * Elsewhere waits of a rank's main thread are told by their shape.
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
#include "base/order.h"

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
	struct lg_cpu_samples samples = lg_cpu_samples(&c->scene, w->holder, w->from, w->end);
	uint32_t row;

	while (lg_next_cpu_sample(&c->scene, &samples, &row)) {
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
					    .end = s->ts[last] + s->dur[last],
					    .asked = s->ts[row] + s->dur[row], .last = true };
		since = at_work_since(c, one.holder, one.from, one.end);
		one.from = since > one.from ? since : one.from;
		if (one.from >= one.end)
			continue;
		if (LG_APPEND(w->v, w->n, w->cap, one))
			return LG_E_NOMEM;
	}
	return 0;
}

/* ---- told by the recorder ---- */

/* A sleep of thr for the lock, or its part, while holder had it. */
static int add_told(struct waits *w, size_t first, struct lg_gil_wait one, bool by_timer)
{
	struct lg_gil_wait *before = w->n > first ? &w->v[w->n - 1] : NULL;

	if (one.from >= one.end)
		return 0;
	if (before && !before->last && before->holder == one.holder) {
		before->end = one.end;
		before->last = one.last;
		before->asked = by_timer ? LG_MIN(before->asked, one.end) : before->asked;
		return 0;
	}
	one.asked = by_timer ? one.end : INT64_MAX;
	one.told = true;
	return LG_APPEND(w->v, w->n, w->cap, one) ? LG_E_NOMEM : 0;
}

/* The sleep in that row: who had the lock when it began, and who ended it, may be two. */
static int add_sleep(const struct lg_case *c, struct waits *w, size_t first, uint32_t row)
{
	const struct lg_state_tab *s = &c->t->state;
	int64_t from = s->ts[row], end = lg_row_end(c->t, s->ts[row], s->dur[row]), cut;
	bool timer = s->waker_ctx[row] == LG_CTX_HARDIRQ || s->waker_ctx[row] == LG_CTX_SOFTIRQ;
	lg_thr by = s->waker_ctx[row] == LG_CTX_TASK ? s->waker[row] : 0;
	lg_thr thr = s->thr[row], holder = s->blocker[row];
	int rc = 0;

	if (by == thr || c->t->thread.prc[by] != c->t->thread.prc[thr])
		by = 0;
	holder = holder ?: by;
	cut = by && by != holder ? at_work_since(c, by, from, end) : end;
	rc = add_told(w, first, (struct lg_gil_wait){
		.thr = thr, .holder = holder, .from = from, .end = cut,
		.last = cut == end && !timer }, timer);
	if (!rc && cut < end)
		rc = add_told(w, first, (struct lg_gil_wait){
			.thr = thr, .holder = by, .from = cut, .end = end, .last = true }, false);
	return rc;
}

static int add_told_of(const struct lg_case *c, lg_thr thr, struct waits *w)
{
	const struct lg_state_tab *s = &c->t->state;
	size_t first = w->n;
	int rc = 0;

	for (uint32_t i = c->idx->state_off[thr]; i < c->idx->state_off[thr + 1] && !rc; i++) {
		uint32_t row = c->idx->state[i];

		if (s->kind[row] == LG_BLOCKED && s->flags[row] & LG_STATE_GIL_WAIT)
			rc = add_sleep(c, w, first, row);
		else if (w->n > first && s->kind[row] != LG_RUNNABLE &&
			 (s->kind[row] != LG_RUNNING || s->dur[row] > BETWEEN_NS))
			w->v[w->n - 1].last = true; /* it got it by itself */
	}
	if (w->n > first)
		w->v[w->n - 1].last = true;
	return rc;
}

/* By process: does its recorder tell? */
static bool *who_is_told(const struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	bool *told = lg_calloc(t->process.n, sizeof *told);

	for (size_t i = 0; told && i < t->state.n; i++)
		if (t->state.flags[i] & (LG_STATE_GIL_WAIT | LG_STATE_GIL_HELD))
			told[t->thread.prc[t->state.thr[i]]] = true;
	for (size_t i = 0; told && i < t->sample.n; i++)
		if (t->sample.flags[i] & (LG_SAMPLE_GIL | LG_SAMPLE_NO_GIL))
			told[t->thread.prc[t->sample.thr[i]]] = true;
	return told;
}

/* ---- both ---- */

LG_ORDER_BY(by_thread_and_time, struct lg_gil_wait, LG_CMP(x->thr, y->thr) ?: LG_CMP(x->from, y->from))

int lg_find_gil_waits(struct lg_case *c)
{
	LG_AUTOFREE bool *told = who_is_told(c);
	struct waits w = { 0 };
	int rc = told ? 0 : LG_E_NOMEM;

	for (lg_thr thr = 1; thr < c->t->thread.n && !rc; thr++)
		if (told[c->t->thread.prc[thr]])
			rc = add_told_of(c, thr, &w);
	for (size_t i = 0; i < c->n_ranks && !rc; i++) {
		size_t first = w.n;

		if (told[c->ranks[i].prc])
			continue;
		c->gil_untold = true;
		rc = find_in(c, &c->ranks[i], &w);
		if (!rc) {
			struct waits own = { w.v ? w.v + first : NULL, w.n - first, 0 };

			rc = own.n ? keep_proven(c, &own) : 0;
			w.n = first + own.n;
		}
	}
	LG_SORT(w.v, w.n, by_thread_and_time);
	c->gil = lg_arena_adopt(&c->v->arena, w.v);
	c->n_gil = c->gil ? w.n : 0;
	return rc ?: w.v && !c->gil ? LG_E_NOMEM : 0;
}

const struct lg_gil_wait *lg_gil_wait_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b)
{
	const struct lg_gil_wait *w = c->gil;
	size_t lo = 0, hi = c->n_gil;

	while (lo < hi) { /* the first one that ends after a */
		size_t mid = lo + (hi - lo) / 2;

		if (w[mid].thr < thr || (w[mid].thr == thr && w[mid].end <= a))
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo < c->n_gil && w[lo].thr == thr && w[lo].from < b && !w[lo].holder)
		lo++;
	return lo < c->n_gil && w[lo].thr == thr && w[lo].from < b ? &w[lo] : NULL;
}
