/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lateness.c - ranks that come late by their own doing: they computed or slept, and no chain leads further.
 * It may be one rank, or one after the other.
 *
 * In slow steps it is what such a rank did beyond the usual. In the others: what it did while the others
 * already waited is not it. Whoever lost 20 ms at the beginning of a step is seen at its end, doing what the
 * others have done before. So the whole way since the ranks were last together is compared with that of the
 * rank that came before it: a rank is late by what it does longer than that one.
 */
#include "analyse/chains/chains.h"
#include "analyse/chains/tally.h"
#include "base/median.h"

struct lg_own_time lg_own_time_in(struct lg_case *c, const struct lg_rank *r, int64_t a, int64_t b,
				  struct lg_pieces *scratch)
{
	struct lg_own_time own = { 0 };

	scratch->n = 0;
	lg_follow(c, r->thr, a, b, 0, scratch);
	LG_EACH(p, scratch->v, scratch->n) {
		if (c->t->thread.prc[p->of] != r->prc)
			continue;
		if (lg_is_cause(p->end))
			own.stalled += p->dur;
		else if (p->end == LG_END_SLEEP)
			own.slept += p->dur;
		else if (lg_is_own_doing(p->end))
			own.ran += p->dur;
	}
	return own;
}

/* When the ranks were together before r came to this one; INT64_MIN: not known. */
static int64_t together_before(const struct lg_rank *r, int64_t came)
{
	const struct lg_arrival *a = lg_arrival_at(r, came);

	/* The work on an asynchronous one overlaps with what follows: nobody was let go there. */
	return a && a > r->arrivals && a[-1].end > a[-1].ts && a[-1].end <= came ? a[-1].end : INT64_MIN;
}

/* How much longer the last rank of a collective was at that than the last but one, since they were last
 * together; negative where it was shorter. */
static struct lg_own_time late_by(struct lg_case *c, const struct lg_arrival *a, struct lg_pieces *scratch)
{
	const struct lg_rank *late = &c->ranks[a->late_rank], *second = &c->ranks[a->second_rank];
	int64_t from = together_before(late, a->late_ts), before = together_before(second, a->second_ts);
	struct lg_own_time own, other, seen = lg_own_time_in(c, late, a->second_ts, a->late_ts, scratch);
	int64_t most = seen.ran + seen.slept;

	if (from == INT64_MIN || before == INT64_MIN)
		return seen;
	own = lg_own_time_in(c, late, from, a->late_ts, scratch);
	other = lg_own_time_in(c, second, before, a->second_ts, scratch);
	own.ran -= other.ran;
	own.slept -= other.slept;
	/* No more than the others saw of it: the rest was made up for elsewhere. */
	if (own.ran + own.slept > most) {
		own.ran = own.ran >= most ? most : own.slept >= most ? 0 : own.ran;
		own.slept = most - own.ran;
	}
	return own;
}

/* The rank that it belongs to, or that started its process. */
static uint32_t rank_above(struct lg_case *c, lg_thr thr)
{
	enum { GENERATIONS = 4 };

	return lg_rank_above(c, c->t->thread.prc[thr], GENERATIONS);
}

/* Per step of ref: time on the path that was somebody's own doing, of it asleep; time with a cause; who had
 * most of the first; and how long that one kept the first to arrive. */
struct step_sum {
	int64_t own, slept, caused, kept;
	uint32_t rank;
};

static void sum_step(struct lg_case *c, const struct lg_tally *y, size_t *at, const struct lg_step *s,
		     int64_t *by_rank, struct step_sum *sum)
{
	int64_t a = s->ts, b = s->ts + s->dur, most = 0;

	memset(by_rank, 0, c->n_ranks * sizeof *by_rank);
	while (*at < y->n_path && y->path[*at].ts + y->path[*at].dur <= a)
		++*at;
	for (size_t j = *at; j < y->n_path && y->path[j].ts < b; j++) {
		const struct lg_piece *p = &y->path[j];
		int64_t from = p->ts > a ? p->ts : a;
		int64_t to = p->ts + p->dur < b ? p->ts + p->dur : b;
		uint32_t q;

		if (to <= from)
			continue;
		if (lg_is_cause(p->end))
			sum->caused += to - from;
		if (!lg_is_own_doing(p->end))
			continue;
		sum->own += to - from;
		sum->slept += p->end == LG_END_SLEEP ? to - from : 0;
		q = rank_above(c, p->of);
		if (q != UINT32_MAX)
			by_rank[q] += to - from;
	}
	sum->rank = UINT32_MAX;
	for (uint32_t q = 0; q < c->n_ranks; q++)
		if (by_rank[q] > most) {
			most = by_rank[q];
			sum->rank = q;
		}
}

static int sum_steps(struct lg_case *c, const struct lg_tally *y, struct step_sum *sum)
{
	const struct lg_rank *r = &c->ranks[y->ref];
	const struct lg_step *s = &c->v->steps[r->step_first];
	LG_AUTOFREE int64_t *by_rank = lg_calloc(c->n_ranks, sizeof *by_rank);
	size_t at = 0, i = 0;

	if (!by_rank)
		return LG_E_NOMEM;
	for (size_t k = 0; k < r->n_steps; k++) {
		sum_step(c, y, &at, &s[k], by_rank, &sum[k]);
		while (i < r->n_arrivals && r->arrivals[i].ts < s[k].ts)
			i++;
		for (size_t j = i; j < r->n_arrivals && r->arrivals[j].ts < s[k].ts + s[k].dur; j++)
			if (r->arrivals[j].late_rank == sum[k].rank && r->arrivals[j].came != INT64_MIN)
				sum[k].kept += r->arrivals[j].late_ts - r->arrivals[j].first_ts;
	}
	return 0;
}

/* What is usual: the medians of the steps that are not slow. */
static int usual_sum(const struct lg_step *s, const struct step_sum *sum, size_t n_steps,
		     struct step_sum *ret)
{
	LG_AUTOFREE int64_t *own = lg_calloc(n_steps, sizeof *own);
	LG_AUTOFREE int64_t *slept = lg_calloc(n_steps, sizeof *slept);
	int rc = own && slept ? 0 : LG_E_NOMEM;
	size_t n = 0;

	for (size_t k = 0; !rc && k < n_steps; k++)
		if (!s[k].slow && !s[k].warmup) {
			own[n] = sum[k].own;
			slept[n++] = sum[k].slept;
		}
	*ret = (struct step_sum){ .own = lg_median_i64(own, n), .slept = lg_median_i64(slept, n) };
	return rc ?: n ? 1 : 0;
}

/* What slow steps took beyond the usual by their ranks' own doing, and whom of them the others waited for. */
static int late_in_slow_steps(struct lg_case *c, struct lg_tally *y, struct lg_late_rank *of)
{
	const struct lg_rank *r = &c->ranks[y->ref];
	const struct lg_step *s = &c->v->steps[r->step_first];
	LG_AUTOFREE struct step_sum *sum = lg_calloc(r->n_steps, sizeof *sum);
	struct step_sum usual;
	int rc = sum ? sum_steps(c, y, sum) : LG_E_NOMEM;
	bool any;

	rc = rc ?: usual_sum(s, sum, r->n_steps, &usual);
	any = rc > 0;
	for (size_t k = 0; any && k < r->n_steps; k++) {
		int64_t excess = s[k].dur - s[k].median, extra = sum[k].own - usual.own;
		int64_t asleep = sum[k].slept - usual.slept;

		if (!s[k].slow || s[k].warmup || sum[k].rank == UINT32_MAX)
			continue;
		if (extra > excess - sum[k].caused)
			extra = excess - sum[k].caused;
		if (extra <= excess / 4)
			continue;
		y->own_excess += extra;
		/* Nobody waits for one that is alone; nor where all took that long at once. */
		if (c->n_ranks < 2 || (y->straggler.n_matched && sum[k].kept * 4 < extra))
			continue;
		of[sum[k].rank].slow_lost += extra;
		of[sum[k].rank].slow_slept += asleep > extra ? extra : asleep > 0 ? asleep : 0;
		of[sum[k].rank].n_events++;
	}
	return rc < 0 ? rc : 0;
}

/* What i is late by beyond the noise that all ranks share: what the others are late by on average, where they
 * are the last. */
static struct lg_own_time beyond_noise(const struct lg_late_rank *of, size_t n, size_t i)
{
	struct lg_own_time noise = { 0 }, own = of[i].steady;

	for (size_t k = 0; k < n; k++)
		if (k != i) {
			noise.ran += of[k].steady.ran / (int64_t)(n - 1);
			noise.slept += of[k].steady.slept / (int64_t)(n - 1);
		}
	own.ran -= LG_MAX(noise.ran, 0);
	own.slept -= LG_MAX(noise.slept, 0);
	return own;
}

/* Late now and then is noise; late nearly always is a cause. */
static int late_in_most_steps(struct lg_case *c, struct lg_tally *y, struct lg_late_rank *of)
{
	const struct lg_rank *ref = &c->ranks[y->ref];
	size_t slow_at = 0;
	struct lg_pieces scratch = { 0 };
	struct lg_own_time own = { 0 };
	uint32_t late = UINT32_MAX;

	LG_EACH(a, ref->arrivals, ref->n_arrivals) {
		if (a->late_rank == UINT32_MAX || a->n_seen < c->n_ranks || a->came == INT64_MIN)
			continue;
		y->straggler.n_matched++;
		of[a->late_rank].n_last++;
		if (lg_iv_shared(&y->slow, &slow_at, a->second_ts, a->late_ts))
			continue; /* slow steps are counted by their excess */
		own = late_by(c, a, &scratch);
		of[a->late_rank].steady.ran += own.ran;
		of[a->late_rank].steady.slept += own.slept;
	}
	for (uint32_t i = 0; i < c->n_ranks; i++)
		if (of[i].n_last && of[i].n_last * 4 >= y->straggler.n_matched * 3)
			late = i; /* there is one at most */
	own = late == UINT32_MAX ? own : beyond_noise(of, c->n_ranks, late);
	for (uint32_t i = 0; i < c->n_ranks; i++)
		of[i].steady = i == late && (own.ran + own.slept) * 20 >= y->wall
				       ? own : (struct lg_own_time){ 0 };
	lg_free(scratch.v);
	return c->failed;
}

/* What the named ranks did, and where they were late in slow steps only, what they did in those. */
static void gather(struct lg_case *c, const struct lg_tally *y, struct lg_straggler *g)
{
	size_t slow_at = 0;
	int64_t longest = 0;

	g->pieces = lg_arena_alloc(&c->v->arena, y->n_path, sizeof *g->pieces);
	LG_EACH_WHILE(g->pieces, p, y->path, y->n_path) {
		bool slow = lg_iv_shared(&y->slow, &slow_at, p->ts, p->ts + p->dur) * 2 > p->dur;
		uint32_t q = lg_is_own_doing(p->end) ? rank_above(c, p->of) : UINT32_MAX;

		if (q == UINT32_MAX || !g->of_rank[q].lost)
			continue;
		if (slow && p->end == LG_END_SLEEP && p->dur > longest) {
			longest = p->dur;
			g->sleeper = p->thr;
		}
		if ((g->steady || slow) && c->t->thread.prc[p->of] == c->ranks[q].prc)
			g->pieces[g->n_pieces++] = p;
	}
}

static int median_lateness(const struct lg_rank *ref, struct lg_straggler *g)
{
	LG_AUTOFREE int64_t *late = lg_calloc(ref->n_arrivals, sizeof *late);
	size_t n = 0;

	if (!late)
		return LG_E_NOMEM;
	for (size_t i = 0; i < ref->n_arrivals; i++)
		if (ref->arrivals[i].late_rank != UINT32_MAX && g->of_rank[ref->arrivals[i].late_rank].lost)
			late[n++] = ref->arrivals[i].late_ts - ref->arrivals[i].second_ts;
	g->median_late = lg_median_i64(late, n);
	return 0;
}

/* One rank if most of it is that one's, else all that it is spread over. */
static void name_late_ranks(const struct lg_case *c, struct lg_straggler *g)
{
	struct lg_late_rank *of = g->of_rank;
	int64_t all = 0, slept = 0, steadily = 0; /* asleep more than it ran */
	uint32_t best = 0;

	for (uint32_t i = 0; i < c->n_ranks; i++) {
		of[i].lost = of[i].slow_lost + of[i].steady.ran + of[i].steady.slept;
		all += of[i].lost;
		best = of[i].lost > of[best].lost ? i : best;
	}
	if (!all)
		return;
	g->rank = best;
	for (uint32_t i = 0; i < c->n_ranks; i++) {
		double share = (double)of[i].lost / (double)all, most = (double)of[best].lost / (double)all;

		if (i != best && (most >= LG_N_ANY_ONE_RANK || share < LG_N_COMMS_STRAGGLER_NAMED))
			of[i].lost = 0;
		if (!of[i].lost)
			continue;
		g->n_late++;
		g->lost += of[i].lost;
		g->slow_lost += of[i].slow_lost;
		slept += 2 * of[i].slow_slept - of[i].slow_lost;
		steadily += of[i].steady.slept - of[i].steady.ran;
		g->n_last += of[i].n_last;
		g->n_events += of[i].n_events;
	}
	g->steady = g->lost > 2 * g->slow_lost;
	g->slept = (g->steady ? steadily : slept) > 0;
}

int lg_find_late_ranks(struct lg_case *c, struct lg_tally *y)
{
	struct lg_straggler *g = &y->straggler;
	int rc;

	g->rank = UINT32_MAX;
	g->of_rank = lg_arena_alloc(&c->v->arena, c->n_ranks, sizeof *g->of_rank);
	if (!g->of_rank)
		return LG_E_NOMEM;
	rc = late_in_most_steps(c, y, g->of_rank) ?: late_in_slow_steps(c, y, g->of_rank);
	if (rc)
		return rc;
	name_late_ranks(c, g);
	if (g->rank == UINT32_MAX)
		return 0;
	gather(c, y, g);
	return median_lateness(&c->ranks[y->ref], g);
}
