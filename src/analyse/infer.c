/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infer.c - steps of a program that marks nothing: from the repetition in its main thread's own
 * activity.
 *
 * A training loop waits in the same places once (or k times) a step. Waits are grouped by where
 * they happen (blocked stack, and who ended them); for each group the spacing of its ends is
 * looked at, and the group whose spacing is most regular cuts the time into steps. Stalls do not
 * hurt: regularity is judged by the spread around the median, in which a stalled step is one
 * outlier.
 *
 * The thread: the one that is busiest in the busiest processes. Everything here is called inferred
 * in the report.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/case.h"
#include "analyse/host/culprit.h"
#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"

enum { MIN_EVENTS = 12, MIN_EVENTS_UNTOLD = 20, MAX_RANKS = 16, GROUPS_MAX = 256 };
#define MIN_STEP_NS 1000000ll
#define MAX_STEP_NS 60000000000ll

struct busy {
	lg_prc prc;
	lg_thr thr;
	int64_t run;
};

static int cmp_busy(const void *a, const void *b)
{
	const struct busy *x = a, *y = b;

	return (x->run < y->run) - (x->run > y->run);
}

/* CPU time of every process and its busiest thread: running states, else sample weights. */
static struct busy *busiest(const struct lg_case *c, size_t *ret_n)
{
	const struct lg_trace *t = c->t;
	struct busy *v = lg_calloc(t->process.n, sizeof *v);
	int64_t *thr_ns = lg_calloc(t->thread.n, sizeof *thr_ns);

	*ret_n = 0;
	if (!v || !thr_ns) {
		lg_free(v);
		lg_free(thr_ns);
		return NULL;
	}
	if (t->state.n)
		for (size_t i = 0; i < t->state.n; i++)
			if (t->state.kind[i] == LG_RUNNING && t->state.dur[i] > 0)
				thr_ns[t->state.thr[i]] += t->state.dur[i];
	if (!t->state.n)
		for (size_t i = 0; i < t->sample.n; i++)
			if (!(t->sample.flags[i] & LG_SAMPLE_IDLE) && lg_shows_activity(c, i))
				thr_ns[t->sample.thr[i]] += 1;
	for (lg_thr i = 1; i < t->thread.n; i++) {
		lg_prc p = t->thread.prc[i];

		if (t->thread.flags[i] & (LG_THREAD_IDLE | LG_THREAD_KERNEL) ||
		    t->process.role[p] == LG_ROLE_RECORDER || t->process.pid[p] <= 0)
			continue;
		v[p].prc = p;
		v[p].run += thr_ns[i];
		if (!v[p].thr || thr_ns[i] > thr_ns[v[p].thr])
			v[p].thr = i;
	}
	lg_free(thr_ns);
	qsort(v, t->process.n, sizeof *v, cmp_busy);
	*ret_n = t->process.n;
	return v;
}

bool lg_was_named(const struct lg_case *c, lg_prc p)
{
	uint32_t role = c->t->process.role[p];

	return role == LG_ROLE_RANK || role == LG_ROLE_JOB || c->victim_pid;
}

int lg_infer_ranks(struct lg_case *c, int32_t victim_pid)
{
	const struct lg_trace *t = c->t;
	size_t n = 0, n_busy;
	struct busy *v = busiest(c, &n_busy);
	bool told = false;
	int64_t most = 0; /* CPU time of the job's busiest process, ns */

	if (!v)
		return LG_E_NOMEM;
	for (lg_prc p = 1; p < t->process.n; p++)
		told |= t->process.role[p] == LG_ROLE_RANK || t->process.role[p] == LG_ROLE_JOB ||
			t->process.rank[p] >= 0;
	for (size_t i = 0; i < n_busy && n < MAX_RANKS; i++) {
		uint32_t role = t->process.role[v[i].prc];
		struct lg_rank *r = &c->ranks[n];

		if (!v[i].prc || !v[i].thr)
			continue;
		if (victim_pid) {
			if (t->process.pid[v[i].prc] != victim_pid)
				continue;
		} else if (told) {
			if (role != LG_ROLE_RANK && role != LG_ROLE_JOB &&
			    t->process.rank[v[i].prc] < 0)
				continue;
			/* Launchers and shells of the job hardly run. */
			if (most && v[i].run * 4 < most)
				break;
			most = most ? most : v[i].run;
		} else if (v[i].run * 4 < v[0].run || v[i].run * 4 < (t->state.n ? t->last - t->first : 0)) {
			break; /* a fourth of a CPU, and of what the busiest takes */
		}
		*r = (struct lg_rank){ .prc = v[i].prc, .thr = v[i].thr,
				       .rank = t->process.rank[v[i].prc], .inferred = true };
		n++;
	}
	c->n_ranks = n;
	lg_free(v);
	return 0;
}

const char *lg_candidates_text(struct lg_case *c)
{
	enum { TOLD = 4 };
	const char *text = "nobody said which process trains; the busiest are";

	if (c->n_ranks < 2)
		return NULL;
	for (size_t i = 0; i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];

		if (!r->inferred || r->rank >= 0 || lg_was_named(c, r->prc))
			return NULL;
		if (i < TOLD)
			text = lg_arena_printf(&c->v->arena, "%s%s %s", text, i ? "," : "", lg_thread_text(c, r->thr));
	}
	return c->n_ranks > TOLD ? lg_arena_printf(&c->v->arena, "%s and %zu more", text, c->n_ranks - TOLD) : text;
}

void lg_say_candidates(struct lg_case *c, lg_thr chosen, const char *why)
{
	const char *text = lg_candidates_text(c);

	if (text)
		lg_limit(c, lg_arena_printf(&c->v->arena, "%s: %s was judged, %s; --victim PID names another", text,
					    lg_thread_text(c, chosen), why));
}

struct group {
	int64_t *ts;
	size_t n, cap;
};

/* Spread of the spacings around their median (MAD / median); INFINITY when it is no rhythm. */
static double irregularity(struct lg_case *c, const int64_t *ts, size_t n, int64_t *ret_median)
{
	int64_t *d = lg_calloc(n, sizeof *d), median;
	double spread = INFINITY;

	*ret_median = 0;
	if (!d)
		c->failed = LG_E_NOMEM;
	if (!d || n < 2) {
		lg_free(d);
		return INFINITY;
	}
	for (size_t i = 0; i + 1 < n; i++)
		d[i] = ts[i + 1] - ts[i];
	qsort(d, n - 1, sizeof *d, lg_cmp_i64);
	median = d[(n - 1) / 2];
	if (median >= MIN_STEP_NS && median <= MAX_STEP_NS) {
		for (size_t i = 0; i + 1 < n; i++)
			d[i] = llabs(d[i] - median);
		qsort(d, n - 1, sizeof *d, lg_cmp_i64);
		spread = (double)d[(n - 1) / 2] / (double)median;
	}
	*ret_median = median;
	lg_free(d);
	return spread;
}

/* Several waits of one group in one step: keep the first of each burst. */
static size_t thin(struct lg_case *c, int64_t *ts, size_t n)
{
	int64_t median;
	size_t k = 0;

	for (int pass = 0; pass < 3 && n > MIN_EVENTS; pass++) {
		double spread = irregularity(c, ts, n, &median);

		if (spread < 0.35)
			break;
		k = 1;
		for (size_t i = 1; i < n; i++)
			if (ts[i] - ts[k - 1] > (median > MIN_STEP_NS ? median / 2 : MIN_STEP_NS))
				ts[k++] = ts[i];
		if (k == n)
			break;
		n = k;
	}
	return n;
}

int lg_infer_boundaries(struct lg_case *c, const struct lg_rank *r, int64_t **ret, size_t *ret_n)
{
	const struct lg_state_tab *s = &c->t->state;
	struct group *g = lg_calloc(GROUPS_MAX, sizeof *g);
	struct lg_map by_key = { 0 };
	size_t n = 0, best = SIZE_MAX;
	/* Thinned, even waits at random come near 0.4: where nobody said that this is the job, more is
	 * asked. */
	bool told = lg_was_named(c, r->prc);
	double best_score = told ? 0.5 : 0.3;
	int64_t window = c->t->first <= c->t->last ? c->t->last - c->t->first : 0; /* no rows: no extent */
	int rc = g ? 0 : LG_E_NOMEM;

	*ret = NULL;
	*ret_n = 0;
	for (size_t i = 0; !rc && i < r->n_states; i++) {
		uint32_t row = r->states[i], at;
		uint64_t key;

		if (s->kind[row] != LG_BLOCKED || s->dur[row] <= 0)
			continue;
		/* In an interrupt the waker is whoever it struck. */
		key = lg_mix64((uint64_t)s->stack[row] << 8 | s->reason[row]) ^
		      (s->waker_ctx[row] <= LG_CTX_TASK ? s->waker[row] : 0);
		at = lg_map_get(&by_key, key);
		if (!at) {
			if (n == GROUPS_MAX)
				continue;
			rc = lg_map_set(&by_key, key, (uint32_t)++n);
			if (rc)
				break;
			at = (uint32_t)n;
		}
		rc = lg_grow(&g[at - 1].ts, &g[at - 1].cap, g[at - 1].n + 1, sizeof(int64_t));
		if (!rc)
			g[at - 1].ts[g[at - 1].n++] = s->ts[row] + s->dur[row];
	}
	for (size_t i = 0; !rc && i < n; i++) {
		int64_t median = 0;
		double spread, cover;

		if (g[i].n < MIN_EVENTS)
			continue;
		g[i].n = thin(c, g[i].ts, g[i].n);
		if (g[i].n < (told ? MIN_EVENTS : MIN_EVENTS_UNTOLD))
			continue;
		spread = irregularity(c, g[i].ts, g[i].n, &median);
		/* It must go on over most of the recording, not in one corner. */
		cover = (double)median * (double)g[i].n / (double)(window ? window : 1);
		if (cover < 0.5)
			continue;
		if (spread < best_score) {
			best_score = spread;
			best = i;
		}
	}
	if (!rc && best != SIZE_MAX) {
		*ret = g[best].ts;
		*ret_n = g[best].n;
		g[best].ts = NULL;
	}
	for (size_t i = 0; g && i < n; i++)
		lg_free(g[i].ts);
	lg_free(g);
	lg_map_done(&by_key);
	return rc;
}
