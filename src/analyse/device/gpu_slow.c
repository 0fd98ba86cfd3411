/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_slow.c - what the slow steps of a profiler's trace took longer for.
 *
 * Every nanosecond of a step has one cause (gpu_idle.c). Of each cause a slow step may have as much as the
 * median of the steps that are not slow; what is above that is its excess, scaled down where the causes
 * together have more than the step: another took less.
 *
 * A host that paused while its device worked off the queue has a long step, in which the device computes what
 * earlier steps ordered: that is no longer computation, and no loss.
 */
#include <math.h>

#include "analyse/device/device_rules.h"
#include "base/median.h"
#include "timeline/comm_match.h"

enum { NORMAL_MIN = 3 };

/* ns; all: of the slow steps. */
struct excess {
	double of[LG_GPU_BY_MAX], all;
	double behind; /* the device worked off what was ordered before */
	double waited; /* of the collectives': for a rank that came late */
};

bool lg_gpu_tells_slow(const struct lg_step *step, size_t n)
{
	size_t n_slow = 0;

	for (size_t s = 0; s < n; s++)
		n_slow += step[s].slow;
	return n_slow && n - n_slow >= NORMAL_MIN;
}

void lg_gpu_usual(const struct lg_step *step, size_t n, const int64_t *by, size_t kinds, int64_t *scratch,
		  int64_t *usual)
{
	for (size_t k = 0; k < kinds; k++) {
		size_t m = 0;

		for (size_t s = 0; s < n; s++)
			if (!step[s].slow)
				scratch[m++] = by[s * kinds + k];
		usual[k] = lg_median_i64(scratch, m);
	}
}

double lg_gpu_add_excess(const struct lg_step *step, const int64_t *by, const int64_t *usual, size_t kinds,
			 double *of, double *ret_more)
{
	double all = (double)(step->dur - step->median), more = 0, scale;

	for (size_t k = 0; k < kinds; k++)
		more += by[k] > usual[k] ? (double)(by[k] - usual[k]) : 0;
	scale = more > all ? all / more : 1;
	for (size_t k = 0; k < kinds; k++)
		if (by[k] > usual[k])
			of[k] += (double)(by[k] - usual[k]) * scale;
	*ret_more = more;
	return scale;
}

/* How much longer than in the median of the others the device needed for what step s ordered. */
static int64_t own_excess(const struct lg_step *step, size_t s, int64_t usual)
{
	int64_t own = step[s].done - step[s].ready - usual;

	return step[s].done ? own > 0 ? own : 0 : INT64_MAX;
}

/* How long run `at` waits for others in collectives, by its steps. */
static void waits_of(const struct lg_gpu *g, uint32_t at, int64_t *by_step)
{
	const struct lg_gpu_run *r = &g->run[at];
	const struct lg_coll *v = g->colls->v;

	for (struct lg_coll_sides x = { 0 }; lg_coll_next_sides(g, &x);)
		for (size_t k = x.from; k < x.to && x.waited; k++) {
			const struct lg_gpu_work *w = v[k].run == at ? &r->work[v[k].work] : NULL;
			size_t s = w ? lg_gpu_step_of(r, w->ts) : r->n_steps;

			if (s < r->n_steps)
				by_step[s] += v[k].dur - v[x.best].dur;
		}
}

/* What of the excess of r's collectives in slow steps is waiting. */
static int add_waits(const struct lg_gpu *g, const struct lg_gpu_run *r, const struct lg_step *step,
		     double comm, struct excess *e)
{
	size_t n = r->n_steps;
	LG_AUTOFREE int64_t *waited = lg_calloc(2 * n, sizeof *waited);
	int64_t usual;
	double sum = 0;

	if (!waited)
		return LG_E_NOMEM;
	waits_of(g, (uint32_t)(r - g->run), waited);
	lg_gpu_usual(step, n, waited, 1, waited + n, &usual);
	for (size_t s = 0; s < n; s++)
		if (step[s].slow && waited[s] > usual)
			sum += (double)(waited[s] - usual);
	e->waited += fmin(sum, comm);
	return 0;
}

/* step: the rows of r's steps. */
static int add_run(const struct lg_gpu *g, const struct lg_gpu_run *r, const struct lg_step *step,
		   struct excess *e)
{
	double comm = e->of[LG_GPU_BY_COMM];
	size_t n = r->n_steps, m = 0;
	LG_AUTOFREE int64_t (*by)[LG_GPU_BY_MAX] = lg_calloc(n, sizeof *by);
	LG_AUTOFREE int64_t *normal = lg_calloc(n, sizeof *normal);
	int64_t usual[LG_GPU_BY_MAX], length;

	if (!lg_gpu_tells_slow(step, n))
		return 0;
	if (!by || !normal)
		return LG_E_NOMEM;
	for (size_t s = 0, at = 0; s < n; s++)
		lg_gpu_add_pieces(r, &at, r->step[s], r->step[s + 1], by[s]);
	lg_gpu_usual(step, n, by[0], LG_GPU_BY_MAX, normal, usual);
	for (size_t s = 0; s < n; s++)
		if (!step[s].slow)
			normal[m++] = step[s].done - step[s].ready;
	length = lg_median_i64(normal, m);
	for (size_t s = 0; s < n; s++) {
		double more, scale, own, compute;

		if (!step[s].slow)
			continue;
		scale = lg_gpu_add_excess(&step[s], by[s], usual, LG_GPU_BY_MAX, e->of, &more);
		e->all += (double)(step[s].dur - step[s].median);
		compute = fmax(0, (double)(by[s][LG_GPU_BY_COMPUTE] - usual[LG_GPU_BY_COMPUTE]));
		own = fmax(0, (double)own_excess(step, s, length) - (more - compute));
		if (compute > own) {
			e->of[LG_GPU_BY_COMPUTE] -= (compute - own) * scale;
			e->behind += (compute - own) * scale;
		}
	}
	return g->late && g->colls ? add_waits(g, r, step, e->of[LG_GPU_BY_COMM] - comm, e) : 0;
}

static double share_of(const struct excess *e, uint32_t mask)
{
	double sum = 0;

	for (uint32_t k = 0; k < LG_GPU_BY_MAX; k++)
		if (mask >> k & 1)
			sum += e->of[k];
	return sum / e->all;
}

/* A verdict without a cause still tells where to look. */
static void say_where(struct lg_case *c, const struct excess *e)
{
	const uint32_t copies = LG_GPU_BIT(LG_GPU_BY_D2H);

	lg_say(c, LG_SAYS_TRACE_SLOW_STEPS, e->all / 1e6, 100 * share_of(e,
	       LG_GPU_BIT(LG_GPU_BY_COMPUTE)), 100 * share_of(e, LG_GPU_BIT(LG_GPU_BY_COMM)), 100 *
	       share_of(e, LG_GPU_DATA | copies), 100 * share_of(e, LG_GPU_HOST & ~copies), 100 *
	       e->behind / e->all);
}

int lg_gpu_slow_steps(struct lg_case *c, struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	struct excess e = { .all = 0 };
	uint32_t told = 0;
	size_t at = 0;

	/* Steps are in the order of the runs (steps_of()). */
	LG_EACH(r, g->run, g->n) {
		if (lg_gpu_judged(r) && r->n_pieces && add_run(g, r, v->steps + at, &e))
			return LG_E_NOMEM;
		at += r->n_steps;
	}
	if (e.all <= 0)
		return lg_cpu_slow_steps(c, g);
	LG_EACH_WHERE(f->device_causes, f, v->findings, v->n_findings) {
		f->excess_share = share_of(&e, f->device_causes);
		if (f->rule == LG_R_COMMS_EXPOSED)
			f->excess_share = fmax(0, f->excess_share - e.waited / e.all);
		/* What makes the steps slow is no jitter. */
		if (f->rule == LG_R_COMMS_STRAGGLER && f->excess_share >= 0.5 &&
		    v->n_slow >= LG_N_CHAIN_TIMES)
			f->confidence = fmax(f->confidence, LG_N_COMMS_STRAGGLER_SLOW);
		told |= f->device_causes;
	}
	v->unexplained_share = fmax(0, 1 - share_of(&e, told) - e.behind / e.all);
	if (v->unexplained_share >= 0.5)
		say_where(c, &e);
	return 0;
}
