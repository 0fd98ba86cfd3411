/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_late.c - the rank that the others wait for, where only operators on the CPU were traced (gloo, MPI).
 *
 * As on devices (late_rank.c) all leave a collective together, so that whoever is in it for the shortest time
 * came last, and no common clock is needed. Such rows have no number: a rank's n-th of a name is that of the
 * others, as long as all have as many. What the wait costs is what the others spend in collectives that no
 * operator covers beyond the late rank. Ranks that are late in turn are a limit and no finding: of processes
 * that share CPUs any is late now and then.
 */
#include <math.h>

#include "analyse/device/cpu_rules.h"
#include "base/chance.h"
#include "store/args.h"

#define NOISE_NS 100000
#define CHANCE_MAX 0.05

struct row {
	lg_str name;
	int64_t ts, dur;
	double caused;  /* ns that the others wait in the mean, if it came last */
};

struct rank {
	const struct lg_gpu_run *run;
	struct row *row;
	size_t n, cap, last;   /* last: collectives in which it came last */
	double caused;         /* ns */
	double by[LG_CPU_PARTS]; /* share of its window */
};

struct ranks {
	struct rank *v;
	size_t n, matched, with_wait;
};

LG_ORDER_BY(cmp_row, struct row, LG_CMP(x->name, y->name) ?: LG_CMP(x->ts, y->ts))

static int collect(const struct lg_case *c, struct rank *k)
{
	const struct lg_span_tab *s = &c->t->span;
	const struct lg_gpu_run *r = k->run;

	LG_LISTED(thr, c->idx->thread, r->prc) {
		LG_LISTED(row, c->idx->span, thr) {
			if (s->kind[row] != LG_SPAN_COLLECTIVE || s->dur[row] < 0 || s->ts[row] < r->from ||
			    s->ts[row] >= r->to || lg_span_p2p(c->t, row))
				continue;
			if (LG_APPEND(k->row, k->n, k->cap,
				      (struct row){ s->name[row], s->ts[row], s->dur[row], 0 }))
				return LG_E_NOMEM;
		}
	}
	LG_SORT(k->row, k->n, cmp_row);
	return 0;
}

static int shares(const struct lg_case *c, struct rank *k)
{
	const int64_t window[] = { k->run->from, k->run->to };
	int64_t by[1][LG_CPU_PARTS];

	if (lg_cpu_parts(&c->scene, k->run, window, 1, by, NULL))
		return LG_E_NOMEM;
	for (int p = 0; p < LG_CPU_PARTS; p++)
		k->by[p] = lg_gpu_part(k->run, (double)by[0][p]);
	return 0;
}

static bool comparable(const struct ranks *a)
{
	for (size_t i = 1; i < a->n; i++) {
		if (a->v[i].n != a->v[0].n)
			return false;
		for (size_t k = 0; k < a->v[0].n; k++)
			if (a->v[i].row[k].name != a->v[0].row[k].name)
				return false;
	}
	return a->n >= 2 && a->v[0].n >= LG_N_COMMS_STRAGGLER_MATCHED;
}

/* The one that is late, and last more often than chance makes it; NULL = none. */
static struct rank *late_one(struct ranks *a)
{
	struct rank *late = &a->v[0];
	double all = 0;

	a->matched = a->v[0].n;
	for (size_t k = 0; k < a->matched; k++) {
		double waited = 0;
		size_t best = 0;

		for (size_t i = 1; i < a->n; i++)
			best = a->v[i].row[k].dur < a->v[best].row[k].dur ? i : best;
		for (size_t i = 0; i < a->n; i++)
			waited += (double)a->v[i].row[k].dur - (double)a->v[best].row[k].dur;
		waited /= (double)(a->n - 1);
		if (waited < NOISE_NS)
			continue;
		a->with_wait++;
		a->v[best].last++;
		a->v[best].caused += waited;
		a->v[best].row[k].caused = waited;
		all += waited;
	}
	for (size_t i = 1; i < a->n; i++)
		late = a->v[i].caused > late->caused ? &a->v[i] : late;
	return lg_is_late_one(late->caused, all, late->last, a->with_wait, a->n) &&
	       lg_binomial_tail(a->with_wait, late->last, 1 / (double)a->n) < CHANCE_MAX ? late : NULL;
}

/* Is it late for its batches, or for what it does on the side, which another rule told? more: what the late
 * one has of each part beyond the others. */
static bool is_told(struct lg_case *c, const struct rank *late, const double *more, double lost)
{
	LG_EACH(f, c->v->findings, c->v->n_findings) {
		enum lg_cpu_part p = lg_cpu_part_of(f);

		if (p == LG_CPU_PARTS || more[p] * 2 < lost)
			continue;
		if (strstr(f->title, "; only on "))
			lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_WAIT_TOO, f->title);
		else
			lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_ONLY_ON, f->title, lg_cpu_who(c,
				 late->run));
		f->culprit.rank = late->run->rank;
		return true;
	}
	return false;
}

/* What Python does while nothing else is traced. */
static void tell_python(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r)
{
	const char *in = lg_cpu_python(&c->scene, r, r->from, r->to);

	if (in)
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_PYTHON_DOES, in);
}

static void tell(struct lg_case *c, const struct lg_gpu *g, const struct ranks *a, const struct rank *late)
{
	double more[LG_CPU_PARTS] = { 0 }, others = (double)(a->n - 1), lost;
	const struct lg_gpu_run *r = late->run;
	double wall = (double)lg_gpu_wall(r);
	struct lg_finding *f;
	int64_t *by_step;

	LG_EACH_WHERE(x != late, x, a->v, a->n)
		for (int p = 0; p < LG_CPU_PARTS; p++)
			more[p] += (late->by[p] - x->by[p]) / others;
	lost = fmin(-more[LG_CPU_COMM], late->caused / wall);
	if (lost < LG_N_COMMS_STRAGGLER_CPU)
		return;
	if (!c->v->scope)
		c->v->scope = LG_SCOPE_RANK_LOCAL;
	if (is_told(c, late, more, lost))
		return;
	f = lg_gpu_finding(c, g, LG_R_COMMS_STRAGGLER, lost * wall / 1e6, lost, 0.7, r);
	f->culprit.relation = LG_RELATION_RANK;
	f->culprit.rank = r->rank;
	f->detail = "persistent";
	by_step = lg_arena_alloc(&c->v->arena, r->n_steps + 1, sizeof *by_step);
	for (size_t k = 0; by_step && k < late->n; k++) {
		int64_t *of = &by_step[lg_gpu_step_of(r, late->row[k].ts)];

		*of = (int64_t)fmin((double)*of + late->row[k].caused, 0x1p62); /* of damaged times, too */
	}
	if (by_step)
		lg_gpu_cap_steps(c, f, r, by_step);
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_LAST, lg_cpu_who(c, r), late->last, a->with_wait);
	for (size_t i = 0; i < a->n && i < 8; i++)
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_RANK_ALONE, lg_cpu_who(c, a->v[i].run),
			    a->v[i].last, a->v[i].caused / 1e6, 100 * a->v[i].by[LG_CPU_COMM]);
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_BEYOND_OTHERS, 100 * more[LG_CPU_OPERATORS], 100 *
		    more[LG_CPU_DATA], 100 * more[LG_CPU_BETWEEN]);
	if (more[LG_CPU_BETWEEN] * 4 > lost)
		tell_python(c, f, r);
	lg_evidence_against(c, f, LG_SAYS_COMMS_STRAGGLER_BY_ORDER);
}

/* Nobody in particular is late, and the ranks wait all the same. */
static void say_in_turn(struct lg_case *c, const struct ranks *a)
{
	const char *who = "";
	double comm = 0;

	for (size_t i = 0; i < a->n; i++)
		comm += a->v[i].by[LG_CPU_COMM] / (double)a->n;
	if (comm < 0.1 || !a->with_wait)
		return;
	for (size_t i = 0; i < a->n && i < 8; i++)
		who = lg_text(c, "%s%s%s in %zu", who, i ? ", " : "", lg_cpu_who(c, a->v[i].run),
			      a->v[i].last);
	lg_say(c, LG_SAYS_CPU_LATE_IN_TURN, 100 * comm, who, a->with_wait);
}

int lg_find_late_on_cpu(struct lg_case *c, struct lg_gpu *g)
{
	struct ranks a = { .v = lg_calloc(g->n + 1, sizeof *a.v) };
	struct rank *late;
	int rc = a.v ? 0 : LG_E_NOMEM;

	LG_EACH_WHILE(!rc, r, g->run, g->n) {
		if (!lg_cpu_judged(r))
			continue;
		a.v[a.n].run = r;
		rc = collect(c, &a.v[a.n++]);
	}
	if (!rc && comparable(&a)) {
		late = late_one(&a);
		for (size_t i = 0; i < a.n && !rc; i++)
			rc = shares(c, &a.v[i]);
		if (late && !rc)
			tell(c, g, &a, late);
		else if (!rc)
			say_in_turn(c, &a);
	}
	for (size_t i = 0; a.v && i < a.n; i++)
		lg_free(a.v[i].row);
	lg_free(a.v);
	return rc ? rc : c->failed;
}
