/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infer.c - steps of a program that marks nothing: from the repetition in its main thread's own
 * activity.
 *
 * A training loop waits in the same places once (or k times) a step. Waits are grouped by where
 * they happen (blocked stack, and who ended them); for each group the spacing of its ends is
 * looked at, and the group whose spacing is most regular cuts the time into steps. Stalls do not
 * hurt: regularity is judged by the spread around the median, in which a stalled step is one
 * outlier. Whom of its own process the thread wakes is grouped in the same way.
 *
 * Ranks of one job go on together when the last of them has come, and who comes last does not wait: of one
 * rank alone such waits have holes, of all of them hardly any. So the same groups are made of all ranks
 * together, too. Where a rhythm still has holes (the thread ran in one distance as long as in several
 * others), there are no steps: two that look like one are no better than a wrong accusation.
 *
 * The thread: the one that is busiest in the busiest processes. Everything here is called inferred
 * in the report.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/steps/steps.h"
#include "analyse/chains/chains.h"
#include "analyse/chains/culprit.h"
#include "base/side_thread.h"
#include "base/map.h"
#include "base/median.h"
#include "base/upper_bound.h"
#include "base/words.h"

enum { MIN_EVENTS = 12, MIN_EVENTS_UNTOLD = 20, MAX_RANKS = 16, GROUPS_MAX = 1024 };
#define MIN_STEP_NS 1000000ll
#define MAX_STEP_NS 60000000000ll
#define SAME_SPREAD 0.05
#define POLL_SHARE 0.01
#define CLOCK_SHARE 0.8 /* of the time, asleep until a timer says so: not the work sets this pace */
#define CLOCK_JITTER_NS 100000
#define CLOCK_LATE_NS 300000
#define HOLE 1.6          /* times the median: two steps less what one may be shorter than the median */
#define HOLES_MOST 0.1

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
		if (!(s->flags[i] & LG_SAMPLE_IDLE) && lg_shows_activity(&h->c->scene, i))
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

int lg_infer_ranks(struct lg_case *c)
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
		if (c->victim_pid) {
			if (t->process.pid[v[i].prc] != c->victim_pid)
				continue;
		} else if (told) {
			if (role != LG_ROLE_RANK && role != LG_ROLE_JOB &&
			    t->process.rank[v[i].prc] < 0)
				continue;
			/* Launchers and shells of the job hardly run. */
			if (most && 4 * (double)v[i].run < (double)most)
				break;
			most = most ?: v[i].run;
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
			text = lg_text(c, "%s%s %s", text, i ? "," : "", lg_thread_text(c, r->thr));
	}
	return c->n_ranks > TOLD ? lg_text(c, "%s and %zu more", text, c->n_ranks - TOLD) : text;
}

void lg_say_candidates(struct lg_case *c, lg_thr chosen, const char *why)
{
	const char *text = lg_candidates_text(c);

	if (text)
		lg_say(c, LG_SAYS_STEPS_CHOSEN, text, lg_thread_text(c, chosen), why);
}

struct group {
	int64_t *ts, median; /* of the distances */
	int64_t delay; /* behind the group that was chosen; -1: it tells nothing of that */
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

/* Of events less than `apart` behind the one before only that one is left; how many are. */
static size_t keep_apart(int64_t *ts, size_t n, int64_t apart)
{
	size_t k = n > 0;

	for (size_t i = 1; i < n; i++)
		if (ts[i] - ts[k - 1] >= apart)
			ts[k++] = ts[i];
	return k;
}

/* Several waits of one group in one step: keep the first of each burst. */
static size_t thin(struct lg_case *c, int64_t *ts, size_t n)
{
	int64_t median;

	for (size_t pass = 0, before = 0; pass < 3 && n > MIN_EVENTS && n != before; pass++) {
		if (irregularity(c, ts, n, &median) < 0.35)
			break;
		before = n;
		n = keep_apart(ts, n, LG_MAX(median / 2, MIN_STEP_NS) + 1);
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
 * remote wake-up was sent (sched_wakeup is hit there): with the waker such a rhythm has holes. salt keeps
 * groups of one rank and of all apart.
 */
static int sort_waits(const struct lg_case *c, const struct lg_rank *r, uint64_t salt, struct groups *g)
{
	const struct lg_state_tab *s = &c->t->state;
	int rc = 0;

	LG_EACH_ROW_WHILE(!rc, row, r->states, r->n_states) {
		lg_thr waker = s->waker_ctx[row] <= LG_CTX_TASK ? s->waker[row] : 0;
		uint64_t kind = lg_mix64((uint64_t)s->stack[row] << 8 | s->reason[row]) ^ salt;
		int64_t end = s->ts[row] + s->dur[row];

		if (s->kind[row] != LG_BLOCKED || s->dur[row] <= 0)
			continue;
		rc = add_to(g, kind, end);
		if (!rc && waker && !salt)
			rc = add_to(g, kind ^ waker, end);
	}
	return rc;
}

/*
 * Who hands work over and then sleeps, having run for no more than a millisecond, waits for it: that is one
 * event, and it is over when the sleep is. Ranks that come early sleep long, the last one hardly, and all go
 * on at about the same time.
 */
static int64_t end_of_hand_over(struct lg_case *c, const struct lg_rank *r, int64_t ts)
{
	const struct lg_state_tab *s = &c->t->state;
	int64_t end = ts, ran = 0;
	size_t lo = 0, hi = r->n_states;

	LG_BISECT(lo, hi, mid, s->ts[r->states[mid]] < ts);
	ran = lo < r->n_states ? s->ts[r->states[lo]] - ts : 0; /* of the state in which it handed over */
	for (; lo < r->n_states && ran < MIN_STEP_NS; lo++) {
		uint32_t row = r->states[lo];

		if (s->kind[row] == LG_RUNNING)
			ran += s->dur[row];
		else if (s->kind[row] == LG_BLOCKED && s->reason[row] == LG_WHY_SLEEP && s->dur[row] > 0 &&
			 lg_wait_class_of(c, row) != LG_WAIT_SLEEP)
			end = s->ts[row] + s->dur[row];
	}
	return end;
}

/*
 * Whom of its own process it wakes, and when: a queue filled, a collective handed to its worker. That does
 * not depend on who comes first. Workers of one pool take turns: one group of all, one by name and place.
 */
static int sort_wakes(struct lg_case *c, const struct lg_rank *r, struct groups *g)
{
	const struct lg_state_tab *s = &c->t->state;
	const uint64_t any = lg_mix64(UINT64_MAX - 1);
	size_t first = g->n;
	int rc = 0;

	LG_LISTED(thr, c->idx->thread, r->prc)
		LG_LISTED_WHILE(!rc, row, c->idx->state, thr) {
			int64_t end = s->ts[row] + s->dur[row];

			if (thr == r->thr || s->kind[row] != LG_BLOCKED || s->dur[row] <= 0 ||
			    s->waker[row] != r->thr || s->waker_ctx[row] > LG_CTX_TASK)
				continue;
			end = end_of_hand_over(c, r, end);
			rc = add_to(g, any, end);
			if (!rc)
				rc = add_to(g, any ^ lg_mix64((uint64_t)s->stack[row] << 32 |
							      c->t->thread.comm[thr]), end);
		}
	for (size_t i = first; i < g->n; i++)
		LG_SORT(g->v[i].ts, g->v[i].n, lg_cmp_i64);
	return rc;
}

/* Ranks of one job on one machine, as their environments or the hook say. */
static bool is_beside(const struct lg_case *c, const struct lg_rank *a, const struct lg_rank *b)
{
	const struct lg_process_tab *p = &c->t->process;

	return a->rank >= 0 && b->rank >= 0 && a->rank != b->rank && p->world[a->prc] > 1 &&
	       p->world[a->prc] == p->world[b->prc] && p->comm[a->prc] == p->comm[b->prc] &&
	       p->host[a->prc] == p->host[b->prc];
}

/* The groups of all ranks of r's job together, where what ended for several at once is one event. */
static int sort_waits_together(const struct lg_case *c, const struct lg_rank *r, struct groups *g)
{
	const uint64_t salt = 0x9e3779b97f4a7c15u;
	size_t first = g->n;
	bool any = false;
	int rc = 0;

	LG_EACH_WHILE(!rc, q, c->ranks, c->n_ranks) {
		if (q != r && !is_beside(c, r, q))
			continue;
		any |= q != r;
		rc = sort_waits(c, q, salt, g);
	}
	for (size_t i = first; i < g->n; i++) {
		struct group *x = &g->v[i];

		LG_SORT(x->ts, x->n, lg_cmp_i64);
		x->n = any ? keep_apart(x->ts, x->n, MIN_STEP_NS) : 0;
	}
	return rc;
}

/* What comes this soon behind an event of a rhythm belongs to the same step: several waits end together. */
static void merge_close(struct lg_case *c, struct group *g)
{
	g->n = keep_apart(g->ts, g->n, g->median / 3);
	g->spread = irregularity(c, g->ts, g->n, &g->median);
}

/* Is the distance behind event i like the others? */
static bool is_usual(const struct group *g, size_t i)
{
	int64_t d = g->ts[i + 1] - g->ts[i];

	return 2 * d > g->median && d < 2 * g->median;
}

/* Before and behind the loop the thread waits as well (imports, a rendezvous): steps begin with the first few
 * distances in a row that are like the others, and end with the last. */
static void trim(struct group *g)
{
	enum { IN_A_ROW = 5 };
	size_t first = 0, last = g->n - 1;

	for (size_t alike = 0; first + 1 < g->n && alike < IN_A_ROW; first++)
		alike = is_usual(g, first) ? alike + 1 : 0;
	first -= LG_MIN(first, (size_t)IN_A_ROW);
	for (size_t alike = 0; last > first && alike < IN_A_ROW; last--)
		alike = is_usual(g, last - 1) ? alike + 1 : 0;
	last = LG_MIN(last + IN_A_ROW, g->n - 1);
	if (last < first + MIN_EVENTS)
		return;
	memmove(g->ts, g->ts + first, (last - first + 1) * sizeof *g->ts);
	g->n = last - first + 1;
}

/* How long the thread ran in each distance between events; out has n - 1 of them. */
static void runs_between(const struct lg_case *c, const struct lg_rank *r, const int64_t *ts, size_t n,
			 int64_t *out)
{
	const struct lg_state_tab *s = &c->t->state;
	size_t k = 0;

	memset(out, 0, (n - 1) * sizeof *out);
	LG_EACH_ROW(row, r->states, r->n_states) {
		int64_t from = s->ts[row], to = from + (s->dur[row] > 0 ? s->dur[row] : 0);

		if (s->kind[row] != LG_RUNNING)
			continue;
		while (k + 1 < n && ts[k + 1] <= from)
			k++;
		for (size_t i = k; i + 1 < n && ts[i] < to; i++) {
			int64_t a = LG_MAX(from, ts[i]), z = LG_MIN(to, ts[i + 1]);

			out[i] += z > a ? z - a : 0;
		}
	}
}

/*
 * Does g, though more regular, lack events that x has? Where x has one between two of g the thread has worked
 * for longer than elsewhere: for a step and a half at least. (An event in the middle of each step, or of
 * some, does not make them longer.)
 */
static bool has_what_misses(struct lg_case *c, const struct lg_rank *r, const struct group *g,
			    const struct group *x)
{
	LG_AUTOFREE int64_t *ran = lg_scratch(c, g->n, sizeof *ran);
	LG_AUTOFREE int64_t *v = lg_scratch(c, 2 * g->n, sizeof *v);
	int64_t *with = v, *bare = v + g->n;
	size_t n_with = 0, n_bare = 0, k = 0;

	if (!ran || !v)
		return false;
	runs_between(c, r, g->ts, g->n, ran);
	for (size_t i = 0; i + 1 < g->n; i++) {
		int64_t from = g->ts[i] + x->median / 3, to = g->ts[i + 1] - x->median / 3;

		while (k < x->n && x->ts[k] < from)
			k++;
		if (k < x->n && x->ts[k] < to)
			with[n_with++] = ran[i];
		else
			bare[n_bare++] = ran[i];
	}
	return n_with >= MIN_EVENTS / 2 && n_bare >= MIN_EVENTS / 2 &&
	       2 * lg_median_i64(with, n_with) > 3 * lg_median_i64(bare, n_bare);
}

/* How long behind an event of g the next one of x usually comes, within a step; -1: seldom one. */
static int64_t usual_delay(struct lg_case *c, const struct group *g, const struct group *x)
{
	LG_AUTOFREE int64_t *d = lg_scratch(c, g->n, sizeof *d);
	size_t n = 0, k = 0;

	for (size_t i = 0; d && i + 1 < g->n; i++) {
		while (k < x->n && x->ts[k] < g->ts[i])
			k++;
		if (k < x->n && x->ts[k] < g->ts[i + 1])
			d[n++] = x->ts[k] - g->ts[i];
	}
	return d && 2 * n > g->n ? lg_median_i64(d, n) : -1;
}

/* The first event of x that stands for one of g within (from, to), `apart` from both; 0: there is none. */
static int64_t stand_in(const struct group *x, int64_t from, int64_t to, int64_t apart)
{
	size_t lo = 0, hi = x->n;

	LG_BISECT(lo, hi, mid, x->ts[mid] < from + apart + x->delay);
	return lo < x->n && x->ts[lo] - x->delay <= to - apart ? x->ts[lo] - x->delay : 0;
}

/* The same of g, the caller's to free, and what is usual of it. NULL: without memory. */
static int64_t *runs_of(struct lg_case *c, const struct lg_rank *r, const struct group *g, double *ret_usual)
{
	int64_t *ran = lg_scratch(c, g->n, sizeof *ran);
	LG_AUTOFREE int64_t *sorted = lg_scratch(c, g->n, sizeof *sorted);

	if (!ran || !sorted) {
		lg_free(ran);
		return NULL;
	}
	runs_between(c, r, g->ts, g->n, ran);
	memcpy(sorted, ran, (g->n - 1) * sizeof *ran);
	*ret_usual = (double)lg_median_i64(sorted, g->n - 1);
	return ran;
}

/* Did the thread do the work of several steps in distance i? */
static bool is_hole(const struct group *g, const int64_t *ran, double usual, size_t i)
{
	return usual > 0 && (double)ran[i] > HOLE * usual &&
	       (double)(g->ts[i + 1] - g->ts[i]) > HOLE * (double)g->median;
}

/*
 * A worker that is awake is not woken, a queue that is not empty is not waited for: where the thread did the
 * work of several steps between two events, and something else that it does in each step came more than once,
 * that says how many there were. They are taken for equally long.
 */
static int fill_holes(struct lg_case *c, const struct lg_rank *r, const struct groups *all,
		      struct group *g)
{
	double usual = 0;
	LG_AUTOFREE int64_t *ran = runs_of(c, r, g, &usual);
	struct group full = { 0 };
	int rc = 0;

	if (!ran)
		return LG_E_NOMEM;
	for (size_t i = 0; !rc && i < g->n; i++) {
		bool hole = i + 1 < g->n && is_hole(g, ran, usual, i);

		rc = LG_APPEND(full.ts, full.n, full.cap, g->ts[i]);
		for (const struct group *x = all->v; hole && !rc && x < all->v + all->n; x++) {
			int64_t ts = g->ts[i], more = 0;

			while (x->delay >= 0 && (ts = stand_in(x, ts, g->ts[i + 1], g->median / 3)))
				more++;
			for (int64_t k = 1; !rc && k <= more; k++)
				rc = LG_APPEND(full.ts, full.n, full.cap,
					       g->ts[i] + (g->ts[i + 1] - g->ts[i]) / (more + 1) * k);
			hole = !more;
		}
	}
	lg_free(g->ts);
	g->ts = full.ts;
	g->n = full.n;
	g->cap = full.cap;
	return rc;
}

/* In too many of its distances the thread did the work of several. */
static bool has_holes(struct lg_case *c, const struct lg_rank *r, const struct group *g)
{
	double usual = 0;
	LG_AUTOFREE int64_t *ran = runs_of(c, r, g, &usual);
	size_t holes = 0;

	for (size_t i = 0; ran && i + 1 < g->n; i++)
		holes += is_hole(g, ran, usual, i);
	if ((double)holes <= HOLES_MOST * (double)(g->n - 1))
		return false;
	lg_say(c, LG_SAYS_STEPS_HOLES, lg_thread_text(c, r->thr), holes, g->n - 1);
	return true;
}

/* May a timer have ended it: a sleep, or a wait for events or a condition that an interrupt ended? */
static bool may_be_timed(struct lg_case *c, uint32_t row)
{
	enum lg_wait_class class = lg_wait_class_of(c, row);

	return class == LG_WAIT_SLEEP || (c->t->state.waker_ctx[row] == LG_CTX_HARDIRQ &&
					  (class == LG_WAIT_POLL || class == LG_WAIT_FUTEX));
}

/*
 * How long, as a share of the time, r sleeps until a timer ends it: for the same time each, which is a whole
 * number of milliseconds and what a timer is late. (A device that is waited for takes about as long each
 * time, not as long to a tenth of a millisecond, and seldom such a number.)
 */
static double paced_by_clock(struct lg_case *c, const struct lg_rank *r, const struct group *g)
{
	const struct lg_state_tab *s = &c->t->state;
	LG_AUTOFREE int64_t *d = lg_scratch(c, g->n, sizeof *d);
	int64_t from = g->ts[0], to = g->ts[g->n - 1], median, slept = 0;
	size_t n = 0, k = 0;

	if (!d || to <= from)
		return 0;
	LG_EACH_ROW(row, r->states, r->n_states) {
		int64_t end = s->ts[row] + s->dur[row];

		while (k < g->n && g->ts[k] < end)
			k++;
		if (s->kind[row] != LG_BLOCKED || k == g->n || n == g->n || g->ts[k] != end ||
		    !may_be_timed(c, row))
			continue;
		d[n++] = s->dur[row];
		slept += s->dur[row];
	}
	if (2 * n < g->n)
		return 0;
	median = lg_median_i64(d, n);
	for (size_t i = 0; i < n; i++)
		d[i] = llabs(d[i] - median);
	return lg_median_i64(d, n) <= CLOCK_JITTER_NS && median % 1000000 <= CLOCK_LATE_NS
		       ? (double)slept / (double)(to - from) : 0;
}

/*
 * A thread that wakes again and again, and whose process does nothing meanwhile, polls (gloo's loop does
 * with a limit of 10 ms while a collective hangs): a rhythm, but no steps. So does one that sleeps most of
 * the time, always until the same limit of time, whatever it does in between (a server's loop).
 */
static bool is_poll(struct lg_case *c, const struct lg_rank *r, const struct group *g)
{
	int64_t from = g->ts[0], to = g->ts[g->n - 1];
	double share = to > from ? (double)lg_process_ran(c, r->prc, from, to) / (double)(to - from) : 1;
	double slept = paced_by_clock(c, r, g);
	char every[LG_MS_TEXT];

	lg_ms_text(lg_ms(g->median), every);
	if (share < POLL_SHARE)
		lg_say(c, LG_SAYS_STEPS_POLLS, lg_thread_text(c, r->thr), every, 100 * share);
	else if (slept >= CLOCK_SHARE)
		lg_say(c, LG_SAYS_STEPS_POLLS_BY_TIMER, lg_thread_text(c, r->thr), every,
		       100 * slept);
	return share < POLL_SHARE || slept >= CLOCK_SHARE;
}

/* Where the thread itself waited for an event, since when. */
static int meetings(struct lg_case *c, struct lg_rank *r, const struct group *g)
{
	const struct lg_state_tab *s = &c->t->state;
	size_t k = 0;

	r->met = lg_arena_alloc(&c->v->arena, g->n, sizeof *r->met);
	if (!r->met)
		return LG_E_NOMEM;
	r->n_met = g->n;
	for (size_t i = 0; i < g->n; i++)
		r->met[i] = (struct lg_meeting){ g->ts[i], g->ts[i] };
	LG_EACH_ROW(row, r->states, r->n_states) {
		int64_t end = s->ts[row] + s->dur[row];

		while (k < g->n && g->ts[k] < end)
			k++;
		if (k == g->n)
			break;
		if (s->kind[row] == LG_BLOCKED && g->ts[k] == end)
			r->met[k].came = s->ts[row];
	}
	return 0;
}

/*
 * How uneven, less is better. Of few events: what so many hardly exceed (two standard errors of a median
 * absolute deviation, each 1.17 / sqrt(n) of it), for of a dozen chance alone makes some more even than any
 * step is. And k steps of independent lengths are sqrt(k) times as even as one (what comes every 25th): that
 * proves no longer step; 0.6 prefers the shorter one where both would do.
 */
static double unevenness(const struct group *g)
{
	return g->spread * (1 + 2.3 / sqrt((double)g->n)) * pow((double)g->median, 0.6);
}

int lg_infer_boundaries(struct lg_case *c, struct lg_rank *r, int64_t **ret, size_t *ret_n)
{
	LG_AUTOFREE struct groups *g = lg_calloc(1, sizeof *g);
	/* Thinned, even waits at random come near 0.4: where nobody said that this is the job, more is
	 * asked. */
	bool told = lg_was_named(c, r->prc);
	const double most = told ? 0.5 : 0.3;
	double best_score = INFINITY, spread = most;
	int64_t window = c->t->first <= c->t->last ? c->t->last - c->t->first : 0; /* no rows: no extent */
	struct group *best = NULL;
	int rc;

	*ret = NULL;
	*ret_n = 0;
	if (!g)
		return LG_E_NOMEM;
	rc = sort_waits(c, r, 0, g) ?: sort_wakes(c, r, g) ?: sort_waits_together(c, r, g);
	LG_EACH_WHILE(!rc, x, g->v, g->n) {
		double cover;

		if (x->n < MIN_EVENTS)
			continue;
		x->n = thin(c, x->ts, x->n);
		if (x->n < (told ? MIN_EVENTS : MIN_EVENTS_UNTOLD))
			continue;
		(void)irregularity(c, x->ts, x->n, &x->median);
		merge_close(c, x);
		/* It must go on over most of the recording, not in one corner. */
		cover = (double)x->median * (double)x->n / (double)(window ?: 1);
		if (cover < 0.5)
			x->spread = INFINITY;
		if (x->spread < most && unevenness(x) < best_score) {
			best_score = unevenness(x);
			spread = x->spread;
			best = x;
		}
	}
	/* Of the same rhythm the one that misses least of it. */
	for (size_t i = 0; !rc && best && i < g->n; i++)
		if (g->v[i].n > best->n && ((g->v[i].spread < spread + SAME_SPREAD &&
					     llabs(g->v[i].median - best->median) * 10 < best->median) ||
					    (g->v[i].spread < most && has_what_misses(c, r, best, &g->v[i]))))
			best = &g->v[i];
	if (best)
		trim(best);
	for (size_t i = 0; !rc && best && i < g->n; i++)
		g->v[i].delay = &g->v[i] != best && 2 * g->v[i].n > best->n ? usual_delay(c, best, &g->v[i])
									    : -1;
	if (!rc && best)
		rc = fill_holes(c, r, g, best);
	if (!rc && best && (is_poll(c, r, best) || has_holes(c, r, best)))
		best = NULL;
	if (!rc && best)
		rc = meetings(c, r, best);
	if (!rc && best) {
		*ret = best->ts;
		*ret_n = best->n;
		best->ts = NULL;
	}
	LG_EACH(x, g->v, g->n)
		lg_free(x->ts);
	lg_map_done(&g->by_key);
	return rc;
}
