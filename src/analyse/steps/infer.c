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

#include "analyse/steps/steps.h"
#include "analyse/chains/culprit.h"
#include "base/side_thread.h"
#include "base/map.h"
#include "base/median.h"
#include "base/words.h"

enum { MIN_EVENTS = 12, MIN_EVENTS_UNTOLD = 20, MAX_RANKS = 16, GROUPS_MAX = 256 };
#define MIN_STEP_NS 1000000ll
#define MAX_STEP_NS 60000000000ll
#define SAME_SPREAD 0.05
#define POLL_SHARE 0.01

struct busy {
	lg_prc prc;
	lg_thr thr;
	int64_t run;
};

LG_ORDER_BY(cmp_busy, struct busy, LG_CMP(y->run, x->run))

/* CPU samples of each thread, of rows [from, to). */
struct share {
	const struct lg_case *c;
	size_t from, to;
	int64_t *n;
};

static void count_samples(void *arg)
{
	const struct share *h = arg;
	const struct lg_sample_tab *s = &h->c->t->sample;

	for (size_t i = h->from; i < h->to; i++)
		if (!(s->flags[i] & LG_SAMPLE_IDLE) && lg_shows_activity(h->c, i))
			h->n[s->thr[i]]++;
}

/* n: of each thread, in two rows of them; the sum is in the first. */
static void share_samples(const struct lg_case *c, int64_t *n)
{
	enum { WORTH_A_THREAD = 1 << 17 };
	size_t rows = c->t->sample.n, threads = c->t->thread.n;
	struct share first = { .c = c, .to = rows / 2, .n = n };
	struct share second = { .c = c, .from = rows / 2, .to = rows, .n = n + threads };
	struct lg_side_thread beside;

	lg_side_thread_start(&beside, rows >= WORTH_A_THREAD, count_samples, &second);
	count_samples(&first);
	lg_side_thread_wait(&beside);
	for (size_t i = 0; i < threads; i++)
		n[i] += n[threads + i];
}

/* CPU time of every process and its busiest thread: running states, else sample weights. */
static struct busy *busiest(const struct lg_case *c, size_t *ret_n)
{
	const struct lg_trace *t = c->t;
	struct busy *v = lg_calloc(t->process.n, sizeof *v);
	LG_AUTOFREE int64_t *thr_ns = lg_calloc(t->thread.n, 2 * sizeof *thr_ns);

	*ret_n = 0;
	if (!v || !thr_ns) {
		lg_free(v);
		return NULL;
	}
	for (size_t i = 0; i < t->state.n; i++)
		if (t->state.kind[i] == LG_RUNNING && t->state.dur[i] > 0)
			thr_ns[t->state.thr[i]] += t->state.dur[i];
	if (!t->state.n)
		share_samples(c, thr_ns);
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
	LG_AUTOFREE struct busy *v = busiest(c, &n_busy);
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
			if (most && 4 * (double)v[i].run < (double)most)
				break;
			most = most ? most : v[i].run;
		} else if (4 * (double)v[i].run < (double)v[0].run ||
			   4 * (double)v[i].run < (double)(t->state.n ? t->last - t->first : 0)) {
			break; /* a fourth of a CPU, and of what the busiest takes */
		}
		*r = (struct lg_rank){ .prc = v[i].prc, .thr = v[i].thr,
				       .rank = t->process.rank[v[i].prc], .inferred = true };
		n++;
	}
	c->n_ranks = n;
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
	int64_t *ts, median; /* of the distances */
	size_t n, cap;
	double spread;
};

/* Spread of the spacings around their median (MAD / median); INFINITY when it is no rhythm. */
static double irregularity(struct lg_case *c, const int64_t *ts, size_t n, int64_t *ret_median)
{
	LG_AUTOFREE int64_t *d = lg_scratch(c, n, sizeof *d);
	int64_t median;
	double spread = INFINITY;

	*ret_median = 0;
	if (!d || n < 2)
		return INFINITY;
	for (size_t i = 0; i + 1 < n; i++)
		d[i] = ts[i + 1] - ts[i];
	median = lg_median_i64(d, n - 1);
	if (median >= MIN_STEP_NS && median <= MAX_STEP_NS) {
		for (size_t i = 0; i + 1 < n; i++)
			d[i] = llabs(d[i] - median);
		spread = (double)lg_median_i64(d, n - 1) / (double)median;
	}
	*ret_median = median;
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

struct groups {
	struct group v[GROUPS_MAX];
	struct lg_map by_key;
	size_t n;
};

static int add_to(struct groups *g, uint64_t key, int64_t ts)
{
	uint32_t at = lg_map_get(&g->by_key, key);
	struct group *x;

	if (!at && g->n == GROUPS_MAX)
		return 0;
	if (!at) {
		at = (uint32_t)++g->n;
		if (lg_map_set(&g->by_key, key, at))
			return LG_E_NOMEM;
	}
	x = &g->v[at - 1];
	return LG_APPEND(x->ts, x->n, x->cap, ts);
}

/*
 * Each wait is of two groups: its kind with whoever ended it, which tells waits apart where there are no
 * stacks, and its kind alone. Whom an interrupt struck is chance, and so is who runs on the CPU to which a
 * remote wake-up was sent (sched_wakeup is hit there): with the waker such a rhythm has holes.
 */
static int sort_waits(const struct lg_case *c, const struct lg_rank *r, struct groups *g)
{
	const struct lg_state_tab *s = &c->t->state;
	int rc = 0;

	LG_EACH_ROW_WHILE(!rc, row, r->states, r->n_states) {
		lg_thr waker = s->waker_ctx[row] <= LG_CTX_TASK ? s->waker[row] : 0;
		uint64_t kind = lg_mix64((uint64_t)s->stack[row] << 8 | s->reason[row]);

		if (s->kind[row] != LG_BLOCKED || s->dur[row] <= 0)
			continue;
		rc = add_to(g, kind, s->ts[row] + s->dur[row]);
		if (!rc && waker)
			rc = add_to(g, kind ^ waker, s->ts[row] + s->dur[row]);
	}
	return rc;
}

/*
 * A thread that wakes again and again, and whose process does nothing meanwhile, polls (gloo's loop does
 * with a limit of 10 ms while a collective hangs): a rhythm, but no steps.
 */
static bool is_poll(struct lg_case *c, const struct lg_rank *r, const struct group *g)
{
	int64_t from = g->ts[0], to = g->ts[g->n - 1];
	double share = to > from ? (double)lg_process_ran(c, r->prc, from, to) / (double)(to - from) : 1;
	char every[LG_MS_TEXT];

	if (share >= POLL_SHARE)
		return false;
	lg_limit(c, lg_arena_printf(&c->v->arena, "%s wakes every %s, and its process runs for %.2f %% of the time: it "
				    "polls, these are no steps", lg_thread_text(c, r->thr),
				    lg_ms_text((double)g->median / 1e6, every), 100 * share));
	return true;
}

int lg_infer_boundaries(struct lg_case *c, const struct lg_rank *r, int64_t **ret, size_t *ret_n)
{
	LG_AUTOFREE struct groups *g = lg_calloc(1, sizeof *g);
	/* Thinned, even waits at random come near 0.4: where nobody said that this is the job, more is
	 * asked. */
	bool told = lg_was_named(c, r->prc);
	double best_score = told ? 0.5 : 0.3;
	int64_t window = c->t->first <= c->t->last ? c->t->last - c->t->first : 0; /* no rows: no extent */
	struct group *best = NULL;
	int rc;

	*ret = NULL;
	*ret_n = 0;
	if (!g)
		return LG_E_NOMEM;
	rc = sort_waits(c, r, g);
	LG_EACH_WHILE(!rc, x, g->v, g->n) {
		double cover;

		if (x->n < MIN_EVENTS)
			continue;
		x->n = thin(c, x->ts, x->n);
		if (x->n < (told ? MIN_EVENTS : MIN_EVENTS_UNTOLD))
			continue;
		x->spread = irregularity(c, x->ts, x->n, &x->median);
		/* It must go on over most of the recording, not in one corner. */
		cover = (double)x->median * (double)x->n / (double)(window ? window : 1);
		if (cover < 0.5)
			x->spread = INFINITY;
		if (x->spread < best_score) {
			best_score = x->spread;
			best = x;
		}
	}
	/* Of the same rhythm the one that misses least of it. */
	for (size_t i = 0; !rc && best && i < g->n; i++)
		if (g->v[i].n > best->n && g->v[i].spread < best_score + SAME_SPREAD &&
		    llabs(g->v[i].median - best->median) * 10 < best->median)
			best = &g->v[i];
	if (best && is_poll(c, r, best))
		best = NULL;
	if (best) {
		*ret = best->ts;
		*ret_n = best->n;
		best->ts = NULL;
	}
	LG_EACH(x, g->v, g->n)
		lg_free(x->ts);
	lg_map_done(&g->by_key);
	return rc;
}
