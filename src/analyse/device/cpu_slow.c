/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_slow.c - what the slow steps took longer for where only operators on the CPU were traced.
 *
 * A step is operators, the loader, collectives that no operator covers, and what lies between them, where
 * the trace shows nothing: Python, a save, the collector, a sleep. Of each a slow step may have what the
 * others have in the median; what is above is its excess, scaled down to the step's where another is shorter.
 */
#include <math.h>

#include "analyse/device/cpu_rules.h"
#include "base/median.h"
#include "base/upper_bound.h"

struct excess {
	double of[LG_CPU_PARTS], all; /* ns, of the slow steps */
	struct lg_iv hole; /* the longest of them in which nothing is traced */
	const struct lg_gpu_run *run; /* whose */
	bool frames; /* Python stacks are in the trace */
	int64_t ops_slow, ops_normal; /* operators a step, of the last run that had slow ones */
};

static void longest_hole(const struct lg_gpu_run *r, const struct lg_ivs *v, size_t *at, int64_t from,
			 int64_t to, struct excess *e)
{
	int64_t until = from;

	while (*at < v->n && v->v[*at].end <= from)
		++*at;
	for (size_t i = *at; until < to; i++) {
		int64_t next = i < v->n && v->v[i].ts < to ? v->v[i].ts : to;

		if (next - until > e->hole.end - e->hole.ts) {
			e->hole = (struct lg_iv){ until, next, LG_NO_ROW };
			e->run = r;
		}
		until = i < v->n && v->v[i].ts < to ? v->v[i].end : to;
	}
}

/* How many operators slow steps have, and the others, in the median. */
static int count_operators(const struct lg_case *c, const struct lg_gpu_run *r, const struct lg_step *step,
			   struct excess *e)
{
	const struct lg_span_tab *sp = &c->t->span;
	LG_AUTOFREE int64_t *n = lg_calloc(2 * r->n_steps, sizeof *n);
	int64_t *slow = n + r->n_steps;
	size_t n_slow = 0, n_normal = 0;

	if (!n)
		return LG_E_NOMEM;
	LG_LISTED(row, c->idx->span, r->main) {
		size_t s = sp->kind[row] == LG_SPAN_OP ? lg_gpu_step_of(r, sp->ts[row]) : r->n_steps;

		if (s < r->n_steps)
			n[s]++;
	}
	/* What is read lies before what is written. */
	for (size_t s = 0; s < r->n_steps; s++)
		if (step[s].slow)
			slow[n_slow++] = n[s];
		else
			n[n_normal++] = n[s];
	e->ops_slow = lg_median_i64(slow, n_slow);
	e->ops_normal = lg_median_i64(n, n_normal);
	return 0;
}

static int add_run(struct lg_case *c, const struct lg_gpu_run *r, const struct lg_step *step,
		   struct excess *e)
{
	size_t n = r->n_steps, at = 0;
	LG_AUTOFREE int64_t (*by)[LG_CPU_PARTS] = lg_calloc(n, sizeof *by);
	LG_AUTOFREE int64_t *normal = lg_calloc(n, sizeof *normal);
	int64_t usual[LG_CPU_PARTS];
	LG_AUTO_IVS all = { 0 };

	if (!lg_gpu_tells_slow(step, n))
		return 0;
	if (!by || !normal || lg_cpu_parts(&c->scene, r, r->step, n, by, &all))
		return LG_E_NOMEM;
	lg_gpu_usual(step, n, by[0], LG_CPU_PARTS, normal, usual);
	for (size_t s = 0; s < n; s++) {
		double more;

		if (!step[s].slow)
			continue;
		(void)lg_gpu_add_excess(&step[s], by[s], usual, LG_CPU_PARTS, e->of, &more);
		e->all += (double)(step[s].dur - step[s].median);
		e->frames |= r->has_frames;
		longest_hole(r, &all, &at, r->step[s], r->step[s + 1], e);
	}
	return count_operators(c, r, step, e);
}

/* "Optimizer.step#AdamW.step", which ran last before ts on the main thread; NULL = nothing did. */
static const char *last_before(const struct lg_case *c, const struct lg_gpu_run *r, int64_t ts)
{
	const struct lg_gpu_host *h = lg_gpu_main_host(r);
	size_t k = LG_UPPER_BOUND(h->seg, h->n, end, ts);
	uint32_t row = !k ? LG_NO_ROW : h->seg[k - 1].op != LG_NO_ROW ? h->seg[k - 1].op : h->seg[k - 1].span;

	return row == LG_NO_ROW ? NULL : lg_span_name(c->t, row);
}

/* "; the longest such time is 250.2 ms, on rank 1, ..." */
static const char *say_hole(struct lg_case *c, const struct excess *e)
{
	const char *after = last_before(c, e->run, e->hole.ts);
	const char *in = lg_cpu_python(&c->scene, e->run, e->hole.ts, e->hole.end);

	return lg_text(c, "; the longest such time is %.1f ms%s%s%s%s%s", lg_ms(e->hole.end - e->hole.ts),
		       e->run->rank >= 0 ? lg_text(c, " on rank %d", e->run->rank) : "",
		       in ? ", of that " : "", in ? in : "", after && !in ? " and follows " : "",
		       after && !in ? after : "");
}

static void say_where(struct lg_case *c, const struct excess *e)
{
	const char *more = "", *compiling = "";

	if (e->of[LG_CPU_BETWEEN] * 2 > e->all && e->run)
		more = say_hole(c, e);
	else if (e->of[LG_CPU_OPERATORS] * 2 > e->all)
		more = lg_text(c, LG_SAYS_CPU_SLOW_OPERATORS,
			       (long long)e->ops_slow, (long long)e->ops_normal,
			       e->ops_slow * 4 > e->ops_normal * 5 ?
			       "more work, as of an evaluation" : "the same work took longer, as "
			       "where others use the CPUs");
	if (e->of[LG_CPU_COMPILE] > 0.005 * e->all)
		compiling = lg_text(c, "%.0f %% compiling, ", 100 * e->of[LG_CPU_COMPILE] / e->all);
	lg_say(c, LG_SAYS_CPU_SLOW_STEPS, e->all / 1e6, compiling, 100 * e->of[LG_CPU_OPERATORS] /
	       e->all, 100 * e->of[LG_CPU_DATA] / e->all, 100 * e->of[LG_CPU_COMM] / e->all, 100 *
	       e->of[LG_CPU_BETWEEN] / e->all, e->frames ? "" : "with_stack=True or ", more);
}

int lg_cpu_slow_steps(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	struct excess e = { .all = 0 };
	double told = 0;

	for (size_t i = 0, at = 0; i < g->n; at += g->run[i++].n_steps)
		if (g->run[i].scope == LG_SHOWS_CPU && g->run[i].main &&
		    add_run(c, &g->run[i], v->steps + at, &e))
			return LG_E_NOMEM;
	if (e.all <= 0)
		return 0;
	LG_EACH(f, v->findings, v->n_findings) {
		enum lg_cpu_part p = lg_cpu_part_of(f);

		if (p == LG_CPU_PARTS || isnan(f->lost_share))
			continue;
		/* A wait that leaves no event lies where nothing was traced. */
		if (p == LG_CPU_DATA && !(e.of[p] > 0))
			p = LG_CPU_BETWEEN;
		f->excess_share = e.of[p] / e.all;
		told += f->excess_share;
	}
	v->unexplained_share = fmax(0, 1 - told);
	if (v->unexplained_share >= 0.5)
		say_where(c, &e);
	return 0;
}
