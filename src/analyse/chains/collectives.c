/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.c - match each rank's side of a collective and find who came last.
 *
 * Ranks are joined by (process group, sequence number), never by clocks or by order. A rank that
 * arrives early waits; whatever delayed the last one delayed everybody (contract.md#late-rank).
 *
 * Arrival of an explicit collective is the call. DDP's reducer is called from C++ inside
 * backward(); the hook marks the backward as one implicit collective, and the arrival is where
 * the main thread's last wait begins: the reducer waits for its buckets after all gradients are
 * there (torch/csrc/distributed/c10d/reducer.cpp, finalize_backward), so from there to the end
 * it hardly runs. Waits for kernel locks, devices or a CPU before that are its own delays.
 * An asynchronous collective arrives at its call and waits in Work.wait(), a row of its own with
 * the same group and number.
 */
#include <stdlib.h>

#include "analyse/chains/chains.h"
#include "base/map.h"
#include "base/median.h"
#include "base/upper_bound.h"

/* Own running time allowed after the arrival: copying buckets back. */
enum { TAIL_RUN_NUM = 1, TAIL_RUN_DEN = 5, TAIL_RUN_SPAN_DEN = 8 };

static bool is_peer_wait(struct lg_case *c, uint32_t row, lg_thr thr, int64_t a, int64_t b)
{
	enum lg_wait_class w;

	if (c->t->state.kind[row] != LG_BLOCKED || c->t->state.reason[row] != LG_WHY_SLEEP)
		return false;
	w = lg_wait_class_of(c, row);
	if (w != LG_WAIT_UNKNOWN && w != LG_WAIT_FUTEX && w != LG_WAIT_POLL &&
	    w != LG_WAIT_SOCKET && w != LG_WAIT_GPU && w != LG_WAIT_PIPE)
		return false;
	return lg_lock_wait_in(c, thr, a, b) == UINT32_MAX;
}

/*
 * Beginning of the terminal wait of [from, to): going backwards, the earliest wait for a peer
 * after which the thread ran for at most a fifth of the time that was left, and less than an
 * eighth of its typical span. `to` when it did not wait.
 */
static int64_t terminal_wait(struct lg_case *c, lg_thr thr, int64_t from, int64_t to, int64_t typical)
{
	const struct lg_index *x = c->idx;
	const struct lg_state_tab *s = &c->t->state;
	uint32_t first = lg_index_state_from(x, thr, from);
	uint32_t p = lg_index_state_from(x, thr, to);
	int64_t arrival = to, busy = 0;

	if (p == x->state_off[thr + 1] || s->ts[x->state[p]] >= to) {
		if (p == first)
			return to;
		p--;
	}
	for (;; p--) {
		uint32_t row = x->state[p];
		int64_t a = s->ts[row] > from ? s->ts[row] : from;
		int64_t e = lg_row_end(c->t, s->ts[row], s->dur[row]);

		e = LG_MIN(e, to);
		if (e > a) {
			if (is_peer_wait(c, row, thr, a, e)) {
				if (busy * TAIL_RUN_DEN <= (to - a) * TAIL_RUN_NUM &&
				    busy * TAIL_RUN_SPAN_DEN <= typical)
					arrival = a;
			} else {
				busy += e - a;
			}
		}
		if (p == first || busy * TAIL_RUN_SPAN_DEN > typical)
			break;
	}
	return arrival;
}

static int64_t typical_span(struct lg_case *c, const struct lg_rank *r)
{
	const struct lg_span_tab *s = &c->t->span;
	LG_AUTOFREE int64_t *d = lg_calloc(r->n_spans, sizeof *d);
	size_t n = 0;

	for (size_t i = 0; d && i < r->n_spans; i++)
		if (s->kind[r->spans[i]] == LG_SPAN_COLLECTIVE &&
		    (s->flags[r->spans[i]] & LG_SPAN_IMPLICIT) && s->dur[r->spans[i]] > 0)
			d[n++] = s->dur[r->spans[i]];
	return lg_median_i64(d, n);
}

LG_ORDER_BY(cmp_arrival, struct lg_arrival, LG_CMP(x->ts, y->ts))

static int collect(struct lg_case *c, struct lg_rank *r)
{
	const struct lg_span_tab *s = &c->t->span;
	int64_t typical = typical_span(c, r);

	r->arrivals = lg_arena_alloc(&c->v->arena, r->n_spans, sizeof *r->arrivals);
	if (!r->arrivals)
		return LG_E_NOMEM;
	LG_EACH_ROW(row, r->spans, r->n_spans) {
		struct lg_arrival a = { .span = row, .late_rank = UINT32_MAX };

		bool waits = s->kind[row] == LG_SPAN_WAIT && s->group[row];

		if ((s->kind[row] != LG_SPAN_COLLECTIVE && !waits) || s->dur[row] < 0)
			continue;
		a.ts = a.came = s->ts[row];
		a.end = s->ts[row] + s->dur[row];
		if (waits)
			a.came = INT64_MIN;
		else if (s->flags[row] & LG_SPAN_ASYNC)
			a.end = a.ts;
		else if (s->flags[row] & LG_SPAN_IMPLICIT)
			a.ts = a.came = terminal_wait(c, r->thr, s->ts[row], a.end, typical);
		r->arrivals[r->n_arrivals++] = a;
	}
	qsort(r->arrivals, r->n_arrivals, sizeof *r->arrivals, cmp_arrival);
	return 0;
}

struct match {
	int64_t late_ts, second_ts, first_ts;
	uint32_t late_rank, second_rank, n;
};

static uint64_t key_of(const struct lg_case *c, uint32_t row)
{
	return lg_mix64((uint64_t)c->t->span.group[row] << 40 ^ (uint64_t)c->t->span.seq[row]) |
	       1;
}

static const struct match nobody_came = { .late_ts = INT64_MIN, .second_ts = INT64_MIN,
					  .first_ts = INT64_MAX };

static void comes(struct match *m, int64_t ts, uint32_t rank)
{
	m->n++;
	m->first_ts = LG_MIN(ts, m->first_ts);
	if (ts > m->late_ts) {
		m->second_ts = m->late_ts;
		m->second_rank = m->late_rank;
		m->late_ts = ts;
		m->late_rank = rank;
	} else if (ts > m->second_ts) {
		m->second_ts = ts;
		m->second_rank = rank;
	}
}

struct side {
	int64_t end;
	uint32_t rank, i; /* in c->ranks, in its met */
};

LG_ORDER_BY(cmp_side, struct side, LG_CMP(x->end, y->end))

/* The sides that end within `apart` of v[0], each of another rank; how many there are. */
static size_t together(const struct side *v, size_t n, int64_t apart)
{
	size_t k = 1;

	for (; k < n && v[k].end - v[0].end <= apart; k++)
		for (size_t j = 0; j < k; j++)
			if (v[j].rank == v[k].rank)
				return k;
	return k;
}

/* When the last of n sides came, and who: not after the first of them went on. */
static struct match last_of(const struct lg_case *c, const struct side *v, size_t n)
{
	struct match m = nobody_came;

	LG_EACH(x, v, n)
		comes(&m, c->ranks[x->rank].met[x->i].came, x->rank);
	m.late_ts = LG_MIN(m.late_ts, v[0].end);
	m.second_ts = LG_MIN(m.second_ts, v[0].end);
	return m;
}

/* Nobody goes on before the last one has come. (What that one has to send, another thread of it sends, and
 * the answer may be elsewhere while it itself is on its way to wait: that is `early`.) */
static bool waits_for_all(const struct lg_case *c, const struct side *v, size_t n, int64_t early)
{
	bool all = true;

	LG_EACH(x, v, n)
		all &= c->ranks[x->rank].met[x->i].came - v[0].end <= early;
	return all;
}

static int64_t usual_step(struct lg_case *c, const struct lg_rank *r)
{
	LG_AUTOFREE int64_t *d = lg_calloc(r->n_met, sizeof *d);

	for (size_t i = 0; d && i + 1 < r->n_met; i++)
		d[i] = r->met[i + 1].end - r->met[i].end;
	c->failed = d ? c->failed : LG_E_NOMEM;
	return d && r->n_met > 1 ? lg_median_i64(d, r->n_met - 1) : 0;
}

/*
 * Ranks whose steps were inferred: where steps of all of them end together (none later than a third of a
 * step, which a busy CPU may cost) and hardly ever one a twentieth of a step before the last has come, they
 * wait for each other there, as if a collective were marked.
 */
static int match_met(struct lg_case *c)
{
	LG_AUTOFREE struct side *v = NULL;
	size_t n = 0, n_ranks = 0, most = 0, met = 0;
	int64_t apart = INT64_MAX, early;

	for (uint32_t i = 0; i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];

		if (!r->inferred || r->rank < 0 || !r->n_met || r->n_spans)
			return 0;
		n += r->n_met;
		most = LG_MAX(r->n_met, most);
		n_ranks++;
		apart = LG_MIN(usual_step(c, r) / 3, apart);
	}
	early = apart / 20 * 3;
	v = n_ranks > 1 ? lg_calloc(n, sizeof *v) : NULL;
	if (!v)
		return n_ranks > 1 ? LG_E_NOMEM : 0;
	n = 0;
	for (uint32_t i = 0; i < c->n_ranks; i++)
		for (uint32_t k = 0; k < c->ranks[i].n_met; k++)
			v[n++] = (struct side){ c->ranks[i].met[k].end, i, k };
	qsort(v, n, sizeof *v, cmp_side);
	for (size_t at = 0, k; at < n; at += k) {
		k = together(v + at, n - at, apart);
		met += k == n_ranks && waits_for_all(c, v + at, k, early);
	}
	if (10 * met < 9 * most)
		return 0;
	LG_EACH(r, c->ranks, c->n_ranks) {
		r->arrivals = lg_arena_alloc(&c->v->arena, r->n_met, sizeof *r->arrivals);
		if (!r->arrivals)
			return LG_E_NOMEM;
	}
	for (size_t at = 0, k; at < n; at += k) {
		struct match m;

		k = together(v + at, n - at, apart);
		if (k != n_ranks || !waits_for_all(c, v + at, k, early))
			continue;
		m = last_of(c, v + at, k);
		LG_EACH(x, v + at, k) {
			struct lg_rank *r = &c->ranks[x->rank];

			r->arrivals[r->n_arrivals++] = (struct lg_arrival){
				.ts = r->met[x->i].came, .end = r->met[x->i].end, .came = r->met[x->i].came,
				.span = UINT32_MAX, .late_rank = m.late_rank, .late_ts = m.late_ts,
				.second_ts = m.second_ts, .first_ts = m.first_ts,
				.second_rank = m.second_rank, .n_seen = m.n };
		}
	}
	return 0;
}

int lg_match_collectives(struct lg_case *c)
{
	struct lg_map by_key = { 0 };
	LG_AUTOFREE struct match *m = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < c->n_ranks; i++)
		rc = collect(c, &c->ranks[i]);
	for (uint32_t i = 0; !rc && i < c->n_ranks; i++) {
		LG_EACH_WHILE(!rc, a, c->ranks[i].arrivals, c->ranks[i].n_arrivals) {
			uint32_t at = LG_MAP_APPEND(&by_key, key_of(c, a->span), m, n, cap, nobody_came);

			rc = at ? 0 : LG_E_NOMEM;
			if (!rc && a->came != INT64_MIN)
				comes(&m[at - 1], a->came, i);
		}
	}
	for (uint32_t i = 0; !rc && i < c->n_ranks; i++) {
		LG_EACH(a, c->ranks[i].arrivals, c->ranks[i].n_arrivals) {
			const struct match *at = &m[lg_map_get(&by_key, key_of(c, a->span)) - 1];

			if (at->n < 2)
				continue;
			/* Seen by fewer ranks than the rest of the run: still a bound, not a
			 * proof; the late one may be a rank that was not recorded. */
			a->late_rank = at->late_rank;
			a->late_ts = at->late_ts;
			a->second_ts = at->second_ts;
			a->first_ts = at->first_ts;
			a->second_rank = at->second_rank;
			a->n_seen = at->n;
		}
	}
	lg_map_done(&by_key);
	return rc ?: match_met(c);
}

const struct lg_arrival *lg_arrival_at(const struct lg_rank *r, int64_t ts)
{
	size_t n = LG_UPPER_BOUND(r->arrivals, r->n_arrivals, ts, ts);

	return n && r->arrivals[n - 1].end > ts ? &r->arrivals[n - 1] : NULL;
}
