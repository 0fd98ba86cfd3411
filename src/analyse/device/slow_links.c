/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_links.c - equal collectives that take longer in one group than in others, or from some moment on.
 *
 * What a collective's kernel takes on the rank that came last is the transfer (comm_match.h), provided that
 * all of its ranks are here. Equal are those of one operation, one size and as many ranks. Where the devices
 * compute longer from that moment on as well, it is not the link (gpu.throttled).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "timeline/comm_match.h"
#include "base/median.h"
#include "base/upper_bound.h"
#include "base/words.h"
#include "store/args.h"

#define LATENCY_NS 100000 /* what takes less waits for the network's latency, not for its width */

struct transfer {
	const char *op;
	uint64_t bytes;
	uint32_t ranks, group;
	uint32_t from, to;   /* its sides */
	uint32_t run, work;  /* that came last, and its row */
	int64_t ts, dur;
	int64_t over;        /* ns beyond what equal ones take */
};

LG_ORDER_BY(cmp_transfer, struct transfer, strcmp(x->op, y->op) ?: LG_CMP(x->bytes, y->bytes) ?:
	    LG_CMP(x->ranks, y->ranks) ?: LG_CMP(x->group, y->group) ?: LG_CMP(x->ts, y->ts))

struct links {
	struct lg_case *c;
	struct lg_gpu *g;
	const struct lg_coll *side; /* of g->colls */
	struct transfer *v;
	size_t n, cap;
	int64_t *scratch;    /* room for n */
	/* What is told of: the transfer with most beyond its equals, and what is usual. */
	const struct transfer *worst;
	int64_t median, usual;
	size_t others;       /* groups that it is compared with; 0 = with itself, before since */
	int64_t since;
};

/* Are all of its ranks here? */
static bool is_whole(const struct links *l, uint32_t row, size_t sides)
{
	size_t n;
	const char *size = lg_span_arg(l->c->t, row, "size", &n);

	return size ? strtoul(size, NULL, 10) == sides : sides == l->g->n;
}

static int collect(struct links *l)
{
	for (struct lg_coll_sides x = { 0 }; lg_coll_next_sides(l->g, &x);) {
		const struct lg_coll *last = &l->side[x.best];
		const struct lg_gpu_run *r = &l->g->run[last->run];
		const struct lg_gpu_work *w = &r->work[last->work];
		uint64_t bytes = lg_coll_bytes(l->c->t, w->span);

		if (!bytes || !lg_gpu_judged(r) || !lg_gpu_in_window(r, w) ||
		    !is_whole(l, w->span, x.to - x.from))
			continue;
		if (LG_APPEND(l->v, l->n, l->cap, (struct transfer){
				.op = last->op, .bytes = bytes, .ranks = (uint32_t)(x.to - x.from),
				.group = last->group, .from = (uint32_t)x.from, .to = (uint32_t)x.to,
				.run = last->run, .work = last->work, .ts = w->ts, .dur = last->dur }))
			return LG_E_NOMEM;
	}
	LG_SORT(l->v, l->n, cmp_transfer);
	l->scratch = lg_calloc(l->n + 1, sizeof *l->scratch);
	return l->scratch ? 0 : LG_E_NOMEM;
}

static bool equal(const struct transfer *a, const struct transfer *b)
{
	return a->op == b->op && a->bytes == b->bytes && a->ranks == b->ranks;
}

/* For each [i, j) of l->v[from..to) that are equal and of one group. */
#define EACH_GROUP(l, i, j, from, to) \
	LG_EACH_RUN(i, j, from, to, equal(&(l)->v[j], &(l)->v[i]) && (l)->v[j].group == (l)->v[i].group)

/* The duration below which so many tenths of v[i..j) are. */
static int64_t tenth(const struct links *l, size_t i, size_t j, size_t tenths)
{
	for (size_t k = i; k < j; k++)
		l->scratch[k - i] = l->v[k].dur;
	LG_SORT(l->scratch, j - i, lg_cmp_i64);
	return l->scratch[(j - i - 1) * tenths / 10];
}

/* v[i..j) take beyond `usual`; the worst of all is told of. */
static void take(struct links *l, size_t i, size_t j, int64_t usual)
{
	int64_t median = tenth(l, i, j, 5);

	for (size_t k = i; k < j; k++)
		l->v[k].over = LG_MAX(l->v[k].dur - usual, 0);
	if (l->worst && median - usual <= l->median - l->usual)
		return;
	l->worst = &l->v[i];
	l->median = median;
	l->usual = usual;
}

static bool is_longer(int64_t low, int64_t median, int64_t usual, double by)
{
	return (double)median >= (double)usual * (1 + by) && (double)low >= (double)usual * (1 + by / 2);
}

/* The median of sorted v[0..n) without one that is x. */
static int64_t median_of_others(const int64_t *v, size_t n, int64_t x)
{
	size_t at = (n - 2) / 2, lo = 0, hi = n;

	LG_BISECT(lo, hi, mid, v[mid] < x);
	return v[at + (at >= lo)];
}

/* Of the equal ones v[a..b): groups that take longer than most of the others. */
static void compare_groups(struct links *l, size_t a, size_t b)
{
	LG_AUTOFREE int64_t *medians = lg_scratch(l->c, b - a + 1, sizeof *medians);
	size_t n = 0;

	if (!medians)
		return;
	EACH_GROUP(l, i, j, a, b)
		if (j - i >= LG_N_COMMS_DEGRADED_LINK_TRANSFERS)
			medians[n++] = tenth(l, i, j, 5);
	if (n < 2)
		return;
	LG_SORT(medians, n, lg_cmp_i64);
	EACH_GROUP(l, i, j, a, b) {
		int64_t median, usual;

		if (j - i < LG_N_COMMS_DEGRADED_LINK_TRANSFERS)
			continue;
		median = tenth(l, i, j, 5);
		usual = median_of_others(medians, n, median);
		if (usual < LATENCY_NS ||
		    !is_longer(tenth(l, i, j, 1), median, usual, LG_N_COMMS_DEGRADED_LINK_GROUP))
			continue;
		take(l, i, j, usual);
		l->others = LG_MAX(n - 1, l->others);
	}
}

/* Where v[i..j), by time, part best into two levels: most of the squares is between them (Otsu). */
static size_t parts_at(const struct links *l, size_t i, size_t j)
{
	double sum = 0, all = 0, best = -1;
	size_t at = i;

	for (size_t k = i; k < j; k++)
		all += (double)l->v[k].dur;
	for (size_t k = i + 1; k < j; k++) {
		double n = (double)(k - i), m = (double)(j - k), between;

		sum += (double)l->v[k - 1].dur;
		between = n * m * (sum / n - (all - sum) / m) * (sum / n - (all - sum) / m);
		if (between > best) {
			best = between;
			at = k;
		}
	}
	return at;
}

/* Do the devices compute as long in a step of r before `since` as from then on? */
static bool computes_alike(const struct lg_gpu_run *r, int64_t since)
{
	int64_t before[LG_GPU_BY_MAX] = { 0 }, after[LG_GPU_BY_MAX] = { 0 };
	size_t step = lg_gpu_step_of(r, since), at = 0;
	double a, b;

	if (step < 3 || step + 3 > r->n_steps)
		return false; /* too few to tell */
	lg_gpu_add_pieces(r, &at, r->from, r->step[step], before);
	lg_gpu_add_pieces(r, &at, r->step[step], r->to, after);
	a = (double)before[LG_GPU_BY_COMPUTE] / (double)step;
	b = (double)after[LG_GPU_BY_COMPUTE] / (double)(r->n_steps - step);
	return b <= a * 1.1;
}

/* Do v[i..j) take longer from v[k] on? */
static bool changes_at(const struct links *l, size_t i, size_t k, size_t j)
{
	int64_t usual;

	if (k - i < LG_N_COMMS_DEGRADED_LINK_TRANSFERS || j - k < LG_N_COMMS_DEGRADED_LINK_TRANSFERS)
		return false;
	usual = tenth(l, i, k, 5);
	return usual >= LATENCY_NS && tenth(l, k, j, 1) > tenth(l, i, k, 9) &&
	       is_longer(tenth(l, k, j, 1), tenth(l, k, j, 5), usual, LG_N_COMMS_DEGRADED_LINK_SINCE);
}

/* From one moment on all that parts there takes longer. */
static void compare_in_time(struct links *l)
{
	double most = 0;

	EACH_GROUP(l, i, j, 0, l->n) {
		double more;
		size_t k = j - i > 1 ? parts_at(l, i, j) : i;

		if (!changes_at(l, i, k, j) || !computes_alike(&l->g->run[l->v[k].run], l->v[k].ts))
			continue;
		more = (double)(tenth(l, k, j, 5) - tenth(l, i, k, 5)) * (double)(j - k);
		if (more > most) {
			most = more;
			l->since = l->v[k].ts;
		}
	}
	if (!(most > 0))
		return;
	EACH_GROUP(l, i, j, 0, l->n) {
		const struct lg_gpu_run *r = &l->g->run[l->v[i].run];
		double two_steps = 2 * (double)lg_gpu_wall(r) / (double)LG_MAX(r->n_steps, 1u);
		size_t k = j - i > 1 ? parts_at(l, i, j) : i;

		if (changes_at(l, i, k, j) &&
		    fabs((double)(l->v[k].ts - l->since)) <= two_steps)
			take(l, k, j, tenth(l, i, k, 5));
	}
}

/* Of r, in [from, to): ns in which nothing but collectives ran. */
static int64_t exposed_in(const struct lg_gpu_run *r, int64_t from, int64_t to)
{
	size_t lo = 0, hi = r->n_pieces;
	int64_t sum = 0;

	LG_BISECT(lo, hi, mid, r->piece[mid].ts + r->piece[mid].dur <= from);
	for (; lo < r->n_pieces && r->piece[lo].ts < to; lo++) {
		const struct lg_gpu_piece *p = &r->piece[lo];

		if (p->cause == LG_GPU_BY_COMM)
			sum += LG_MIN(p->ts + p->dur, to) - LG_MAX(p->ts, from);
	}
	return sum;
}

/* Against the steps before: what was partly hidden then is not now. At most what they take longer. */
static int64_t lost_since(const struct links *l, uint32_t run, int64_t *by_step)
{
	const struct lg_gpu_run *r = &l->g->run[run];
	size_t since = lg_gpu_step_of(r, l->since);
	LG_AUTOFREE int64_t *before = since < r->n_steps ? lg_scratch(l->c, since + 1, sizeof *before) : NULL;
	LG_AUTOFREE int64_t *over = before ? lg_scratch(l->c, r->n_steps, sizeof *over) : NULL;
	int64_t usual, sum = 0;

	if (!over)
		return 0;
	for (size_t s = 0; s < since; s++)
		before[s] = exposed_in(r, r->step[s], r->step[s + 1]);
	usual = lg_median_i64(before, since);
	LG_EACH(x, l->v, l->n)
		for (size_t k = x->from, s; x->over && k < x->to; k++) {
			if (l->side[k].run != run)
				continue;
			s = lg_gpu_step_of(r, r->work[l->side[k].work].ts);
			if (s < r->n_steps)
				over[s] += x->over;
		}
	for (size_t s = since; s < r->n_steps; s++) {
		int64_t ns = LG_MIN(exposed_in(r, r->step[s], r->step[s + 1]) - usual, over[s]);

		ns = LG_MAX(ns, 0);
		sum += ns;
		by_step[s] = ns;
	}
	return sum;
}

/* What of it nothing hides, by run: sums[]; or by the steps of one run, where by_step is not NULL. */
static void add_lost(const struct links *l, int64_t *sums, uint32_t run, int64_t *by_step)
{
	LG_EACH(x, l->v, l->n)
		for (size_t k = x->from; x->over && k < x->to; k++) {
			const struct lg_coll *side = &l->side[k];
			const struct lg_gpu_run *r = &l->g->run[side->run];
			const struct lg_gpu_work *w = &r->work[side->work];
			size_t step;
			int64_t ns;

			if (by_step && side->run != run)
				continue;
			ns = LG_MIN(exposed_in(r, w->ts, w->end), x->over);
			if (!by_step)
				sums[side->run] += ns;
			else if ((step = lg_gpu_step_of(r, w->ts)) < r->n_steps)
				by_step[step] += ns;
		}
}

/* "ranks 1, 3" */
static const char *members(const struct links *l, const struct transfer *x)
{
	enum { TOLD = 8 };
	const char *text = "ranks ";

	for (size_t k = x->from; k < x->to && k < x->from + TOLD; k++)
		text = lg_text(l->c, "%s%s%d", text, k == x->from ? "" : ", ", l->g->run[l->side[k].run].rank);
	return x->ranks > TOLD ? lg_text(l->c, "%s and %u more", text, x->ranks - TOLD) : text;
}

static void say(struct links *l, const struct lg_gpu_run *r, int64_t ns, int64_t *by_step)
{
	struct lg_case *c = l->c;
	const struct transfer *w = l->worst;
	double wall = (double)lg_gpu_wall(r);
	struct lg_finding *f = lg_gpu_finding(c, l->g, LG_R_COMMS_DEGRADED_LINK, lg_ms(ns), (double)ns / wall,
					      l->others == 1 ? 0.8 : 0.9, r);
	char size[LG_BYTES_TEXT];
	size_t n = 0;

	f->device_causes = LG_GPU_BIT(LG_GPU_BY_COMM);
	f->culprit.relation = LG_RELATION_NONE;
	f->culprit.rank = f->culprit.pid = -1;
	f->culprit.function = NULL;
	lg_gpu_cap_steps(c, f, r, by_step);
	for (size_t k = w->from; k < w->to; k++)
		lg_culprit_rank_add(c, f, l->g->run[l->side[k].run].rank);
	LG_EACH(x, l->v, l->n)
		n += x->over > 0;
	lg_bytes_text((double)w->bytes, size);
	if (l->others) {
		lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_GROUP_TITLE, w->op, size, lg_ms(l->median),
			 lg_string(c->t, w->group), members(l, w), lg_ms(l->usual), l->others,
			 l->others == 1 ? "" : "s");
		if (l->others == 1)
			lg_evidence_against(c, f, LG_SAYS_COMMS_DEGRADED_LINK_ONE_GROUP);
	} else {
		const struct lg_gpu_run *last = &l->g->run[w->run];
		int64_t ordered = lg_gpu_ordered_at(&last->work[w->work]);

		lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SINCE_TITLE, lg_gpu_asked_in(last, ordered) + 1,
			 last->n_steps, w->op, size, lg_ms(l->median), lg_ms(l->usual));
	}
	lg_evidence_add(c, f, w->ts, w->dur, LG_SAYS_COMMS_DEGRADED_LINK_RATES, n, lg_ms(l->median) > 0 ?
			(double)w->bytes / (double)l->median : 0, (double)w->bytes / (double)l->usual);
}

/* The run that loses most by it, and by its steps; what the others are to know of it. */
static int price(struct links *l, struct lg_gpu_slow_link *told, uint32_t *ret_run, int64_t **ret_by_step)
{
	LG_AUTOFREE int64_t *sums = lg_scratch(l->c, l->g->n, sizeof *sums);
	uint32_t run = l->worst->run;

	if (!sums)
		return LG_E_NOMEM;
	add_lost(l, sums, 0, NULL);
	for (uint32_t i = 0; i < l->g->n; i++) {
		told->runs += sums[i] > 0;
		told->mean += (double)sums[i] / (double)l->g->n;
		run = l->others && sums[i] > sums[run] ? i : run;
	}
	*ret_run = run;
	*ret_by_step = lg_arena_alloc(&l->c->v->arena, l->g->run[run].n_steps + 1, sizeof **ret_by_step);
	if (!*ret_by_step)
		return LG_E_NOMEM;
	if (l->others) {
		add_lost(l, NULL, run, *ret_by_step);
		told->most = (double)sums[run];
	} else {
		told->most = (double)lost_since(l, run, *ret_by_step);
		told->mean = told->most * (double)told->runs / (double)l->g->n;
	}
	return 0;
}

static int judge(struct links *l)
{
	struct lg_gpu_slow_link *told;
	const struct lg_gpu_run *r;
	int64_t *by_step;
	uint32_t run;

	LG_EACH_RUN(i, j, 0, l->n, equal(&l->v[j], &l->v[i]))
		compare_groups(l, i, j);
	if (!l->worst)
		compare_in_time(l);
	if (!l->worst)
		return 0;
	told = lg_arena_alloc(&l->c->v->arena, 1, sizeof *told);
	if (!told || price(l, told, &run, &by_step))
		return LG_E_NOMEM;
	r = &l->g->run[run];
	if (r->n_steps >= 2 &&
	    told->most >= LG_N_COMMS_DEGRADED_LINK_FLOOR * (double)lg_gpu_wall(r)) {
		l->g->slow_link = told;
		say(l, r, (int64_t)told->most, by_step);
	}
	return l->c->failed;
}

int lg_find_slow_links(struct lg_case *c, struct lg_gpu *g)
{
	struct links l = { .c = c, .g = g };
	int rc = g->n > 1 ? lg_colls_find(&c->scene, g) : 0;

	if (!rc && g->colls && g->colls->n) {
		l.side = g->colls->v;
		rc = collect(&l) ?: judge(&l);
	}
	lg_free(l.v);
	lg_free(l.scratch);
	return rc;
}
