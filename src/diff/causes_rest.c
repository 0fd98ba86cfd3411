/* SPDX-License-Identifier: Apache-2.0 */
/*
 * causes_rest.c - what is left when the known causes have taken their part: single operators and
 * kernels, stages, the step; then what has no price of its own: versions, new processes, other work.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/grade.h"
#include "diff/causes.h"
#include "rules/device_names.h"

enum { PROCESSES_TOLD = 5, FACTS_TOLD = 8 };

/*
 * What of a growth is more than two runs of one program may differ by. half: of its own interval. Two errors
 * that have nothing to do with each other add up in quadrature; more load goes one way.
 */
static double beyond_noise(const struct lg_causes *c, double ms, double half, double before)
{
	const struct lg_diff *d = c->d;

	return ms - hypot(half, (d->between - d->load) * before) - d->load * before;
}

static double beyond(const struct lg_causes *c, uint32_t g)
{
	return beyond_noise(c, c->pool[g], c->pool[g] - c->lo[g], c->before[g]);
}

static void say_between(struct lg_causes *c, struct lg_finding *f)
{
	const struct lg_diff *d = c->d;

	if (!isnan(d->noise))
		lg_cause_say(c, f, "runs of this program differ by %.1f %% (95 %%, %zu runs of the baseline): the severity "
		    "counts what is beyond", d->between * 100, d->before->n_runs);
	else if (d->load > 0.01)
		lg_cause_say(c, f, "one run a side, and other processes used more of the CPUs in the second: up to %.1f %% "
		    "may be that; the severity counts what is beyond", d->between * 100);
	else
		lg_cause_say(c, f, "one run a side: up to %.1f %% may lie between two runs of one program; the severity "
		    "counts what is beyond", d->between * 100);
}

/* ms per step from which on an operator is told: of a step, and one pause of seconds makes no step longer. */
static double op_floor(const struct lg_diff *d)
{
	return LG_N_REGRESS_OP_FLOOR * fmin(d->mean_ms[1], d->median_ms[1]);
}

static double left_over(const struct lg_causes *c)
{
	double sum = 0;

	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		sum += c->lo[g] > 0 ? c->pool[g] : 0;
	return sum;
}

static void take_evenly(struct lg_causes *c, double ms)
{
	double sum = left_over(c);

	for (uint32_t g = 1; g < LG_STAGE_MAX && sum > 0; g++)
		if (c->lo[g] > 0) {
			double rest = 1 - ms / sum;

			c->pool[g] *= rest;
			c->lo[g] *= rest;
		}
}

/*
 * The rows of one operator in shapes that only one of the runs has, as one: another shape makes no new
 * operator. False when there is nothing to gather, or x is not the first of them.
 */
static bool in_other_shapes(const struct lg_causes *c, size_t first, struct lg_change *x)
{
	double se = 0;

	*x = c->d->items[first];
	x->before = x->after = x->count_before = x->count_after = 0;
	for (size_t i = 0; i < c->d->n_items; i++) {
		const struct lg_change *y = &c->d->items[i];
		double s = (y->hi - y->lo) / 2;

		if (strcmp(y->kind, x->kind) || strcmp(y->name, x->name) ||
		    (y->count_before > 0 && y->count_after > 0))
			continue;
		if (i < first && y->sure && y->delta > 0)
			return false;
		x->before += y->before;
		x->after += y->after;
		x->count_before += y->count_before;
		x->count_after += y->count_after;
		se = hypot(se, s);
	}
	x->delta = x->after - x->before;
	x->lo = x->delta - se;
	x->hi = x->delta + se;
	x->sure = x->delta > 2 * se; /* four standard errors, as for one row */
	return true;
}

/* What was called as often as x is now, and is gone: x may have taken its place, as another library's kernel
 * or another type's does. The one that took longest; NULL = none. */
static const struct lg_change *in_place_of(const struct lg_causes *c, const struct lg_change *x)
{
	const struct lg_change *found = NULL;

	for (size_t i = 0; i < c->d->n_items; i++) {
		const struct lg_change *y = &c->d->items[i];

		if (strcmp(y->kind, x->kind) || y->count_after > 0 || !y->sure || !(y->before > 0) ||
		    fabs(y->count_before - x->count_after) > 0.1 * x->count_after)
			continue;
		if (!found || y->before > found->before)
			found = y;
	}
	return found;
}

static const char *operator_title(const struct lg_causes *c, const struct lg_change *x)
{
	const struct lg_change *was = x->before > 0 ? NULL : in_place_of(c, x);
	struct lg_arena *a = &c->d->v.arena;
	char is[LG_KERNEL_TEXT], old[LG_KERNEL_TEXT];
	const char *name = lg_change_name(x, is, sizeof is);

	if (x->before > 0)
		return lg_arena_printf(a, "%s %s takes %.3f ms per step, %.3f before", x->kind, name, x->after,
				       x->before);
	if (was)
		return lg_arena_printf(a, "%s %s is new: %.3f ms per step; %s, called as often before, took %.3f and is "
				       "gone", x->kind, name, x->after, lg_change_name(was, old, sizeof old), was->before);
	return lg_arena_printf(a, "%s %s is new: %.3f ms per step", x->kind, name, x->after);
}

/*
 * Operators whose own time is the wait for what was launched before: they take longer when anything on the
 * device does, and then the kernel that does is the cause.
 */
static bool waits_for_device(const struct lg_causes *c, const struct lg_change *x)
{
	return c->d->after->has_device && !strcmp(x->kind, "op") &&
	       lg_on_list(LG_LIST_WAITS_FOR_DEVICE, x->name);
}

static void operators(struct lg_causes *c, bool waits)
{
	double more = c->d->work.times > 1 ? c->d->work.times - 1 : 0;

	for (size_t i = 0; i < c->d->n_items; i++) {
		struct lg_change x = c->d->items[i];
		double ms, expected;
		bool other_shapes;
		struct lg_finding *f;

		if ((strcmp(x.kind, "op") && strcmp(x.kind, "kernel")) || !x.sure || x.delta <= 0 ||
		    waits_for_device(c, &x) != waits)
			continue;
		if (fmin(x.delta, left_over(c)) < op_floor(c->d))
			continue; /* a stage's finding lists the small ones */
		other_shapes = !(x.count_before > 0) && *x.shape;
		if (other_shapes && !in_other_shapes(c, i, &x))
			continue;
		expected = more * x.before; /* of the larger batch */
		ms = fmin(x.delta - expected, left_over(c));
		if (!x.sure || x.lo <= expected || ms < op_floor(c->d))
			continue;
		f = lg_cause_add(c, LG_R_REGRESS_OP);
		if (!f)
			return;
		f->confidence = 0.85;
		f->detail = x.kind;
		f->culprit.relation = LG_RELATION_SELF;
		f->culprit.function = x.name;
		f->title = operator_title(c, &x);
		lg_cause_price(c, f, ms, fmin(ms, beyond_noise(c, x.delta - expected, x.delta - x.lo,
						   x.before + expected)));
		lg_cause_say(c, f, "calls per step: %.2f before, %.2f after%s%s", x.count_before, x.count_after,
		    !*x.shape ? "" : other_shapes && x.before > 0 ? "; in other shapes than before, as " : "; shape ",
		    x.shape);
		lg_cause_say(c, f, "95 %% interval of the difference: %+.3f to %+.3f ms per step", x.lo, x.hi);
		if (expected > 0)
			lg_cause_say(c, f, "with %.4g times the work up to %.3f ms were to be expected", more + 1,
				     x.before + expected);
		if (x.before > 0)
			say_between(c, f);
		take_evenly(c, ms);
		lg_cause_share(c, f->title, f->id, ms);
	}
}

/* By how much some of the step's work grew although the mean step did not: ms per step. */
static double outweighed(const struct lg_causes *c)
{
	const struct lg_diff *d = c->d;
	double more = 0, told = 0, typical = d->median.lo > 1 ? d->median_ms[1] - d->median_ms[0] : 0;

	if (d->mean.lo > 1)
		return 0;
	for (size_t i = 0; i < d->n_stages; i++)
		more += d->stages[i].sure ? fmax(0, d->stages[i].delta) : 0;
	for (size_t i = 0; i < d->n_shares; i++)
		told += d->shares[i].rare ? 0 : fmax(0, d->shares[i].ms);
	return fmax(more, typical) - told;
}

/* The stage that got shorter by most: what is longer is so beside it. */
static void owe(struct lg_causes *c, double ms)
{
	uint32_t least = 1;

	for (uint32_t g = 2; g < LG_STAGE_MAX; g++)
		least = c->pool[g] < c->pool[least] ? g : least;
	if (c->pool[least] < 0)
		c->pool[least] -= ms;
}

/* Kernels, and on a host without a device operators, that take longer while the step as a whole does not. */
static void operators_outweighed(struct lg_causes *c)
{
	const char *kind = c->d->after->has_device ? "kernel" : "op";
	double left = outweighed(c);

	for (size_t i = 0; i < c->d->n_items; i++) {
		const struct lg_change *x = &c->d->items[i];
		double ms = fmin(x->delta, left);

		if (strcmp(x->kind, kind) || !x->sure || ms < op_floor(c->d) ||
		    beyond_noise(c, x->delta, x->delta - x->lo, x->before) <= 0)
			continue;
		lg_cause_share(c, operator_title(c, x), NULL, ms);
		owe(c, ms);
		left -= ms;
	}
}

/* The usual step is shorter for sure where the mean is not: what ran that takes less. */
static void gained_in_the_median(struct lg_causes *c)
{
	const struct lg_diff *d = c->d;
	const char *kind = d->after->has_device ? "kernel" : "op";
	double left = !(d->mean.hi < 1) && d->median.hi < 1 ? d->median_ms[0] - d->median_ms[1] : 0;

	for (size_t i = 0; i < d->n_items; i++) {
		const struct lg_change *x = &d->items[i];

		if (strcmp(x->kind, kind) || !x->sure ||
		    fmin(-x->delta, left) < op_floor(d))
			continue;
		lg_cause_share(c, operator_title(c, x), NULL, fmax(x->delta, -left));
		left += x->delta;
	}
}

static void stages(struct lg_causes *c)
{
	for (size_t i = 0; i < c->d->n_stages; i++) {
		const struct lg_change *x = &c->d->stages[i];
		uint32_t g = lg_cause_stage(x->name);
		struct lg_finding *f;

		if (!(c->lo[g] > 0) || c->pool[g] < LG_N_REGRESS_STAGE_FLOOR * c->d->mean_ms[1]) {
			if (c->pool[g] != 0 && x->sure && fabs(c->pool[g]) >= 0.005 * c->d->mean_ms[1])
				lg_cause_share(c, lg_arena_printf(&c->d->v.arena, "%s: own time", x->name), NULL, c->pool[g]);
			continue;
		}
		f = lg_cause_add(c, LG_R_REGRESS_STAGE);
		if (!f)
			return;
		f->confidence = 0.8;
		f->stage = x->name;
		f->culprit.relation = LG_RELATION_SELF;
		f->title = c->d->n_stages > 1
			? lg_arena_printf(&c->d->v.arena, "stage %s takes %.2f ms of its own per step, %.2f before",
					  x->name, x->after, x->before)
			: lg_arena_printf(&c->d->v.arena, "a step takes %.2f ms of its own, %.2f before", x->after,
					  x->before);
		lg_cause_price(c, f, c->pool[g], beyond(c, g));
		lg_cause_say(c, f, "95 %% interval of the difference: %+.3f to %+.3f ms per step (block bootstrap over "
		    "%zu and %zu steps)", x->lo, x->hi, c->d->before->s.n, c->d->after->s.n);
		say_between(c, f);
		lg_cause_top_items(c, f, "function");
		lg_cause_share(c, f->title, f->id, c->pool[g]);
	}
}

static void facts(struct lg_causes *c, double unexplained)
{
	struct lg_diff *d = c->d;
	bool alarm = unexplained >= LG_N_REGRESS_VERSION_UNEXPLAINED * d->mean_ms[1];
	struct lg_finding *f;
	const char *list = "";
	size_t n = 0, told = 0;

	for (size_t i = 0; i < d->n_facts; i++) {
		if (lg_diff_is_workload(&d->facts[i]))
			continue;
		if (n++ < FACTS_TOLD)
			list = lg_arena_printf(&d->v.arena, "%s%s%s", list, told++ ? ", " : "", d->facts[i].key);
	}
	if (!n)
		return;
	f = lg_cause_add(c, LG_R_REGRESS_VERSION);
	if (!f)
		return;
	f->confidence = alarm ? 0.5 : 0.3;
	f->culprit.relation = LG_RELATION_SELF;
	f->title = lg_arena_printf(&d->v.arena, "versions, flags or environment changed: %s%s", list,
				   n > told ? lg_arena_printf(&d->v.arena, " and %zu more", n - told) : "");
	/* What a fact costs alone cannot be measured here. It is worth an alarm only when time was
	 * lost that nothing else accounts for. */
	lg_grade_unpriced(f);
	if (!alarm)
		lg_cap(f, LG_CAP_EXPLAINED);
	for (size_t i = 0; i < d->n_facts; i++)
		if (!lg_diff_is_workload(&d->facts[i]))
			lg_cause_say(c, f, "%s: %s before, %s after", d->facts[i].key,
				     d->facts[i].before ? d->facts[i].before : "not told",
				     d->facts[i].after ? d->facts[i].after : "not told");
	if (alarm)
		lg_cause_say(c, f, "%.3f ms per step have no other explanation; change them back one at a time to measure "
		    "each", unexplained);
}

static void processes(struct lg_causes *c)
{
	struct lg_diff *d = c->d;
	struct lg_finding *f = NULL;
	size_t told = 0;

	for (size_t i = 0; i < d->n_processes; i++) {
		const struct lg_side_process *p = d->processes[i].p;
		bool known = d->processes[i].gone;

		for (size_t k = 0; k < d->v.n_findings; k++)
			known |= d->v.findings[k].culprit.pid == p->pid;
		if (known || told++ >= PROCESSES_TOLD)
			continue;
		f = lg_cause_add(c, LG_R_REGRESS_PROCESS);
		if (!f)
			return;
		f->confidence = 0.9;
		f->culprit.relation = LG_RELATION_OTHER_PROCESS;
		f->culprit.pid = p->pid;
		f->culprit.comm = p->comm;
		f->culprit.cmdline = p->cmdline;
		f->title = lg_arena_printf(&d->v.arena, "%s (pid %d) runs now and did not before; no lost time "
					   "leads to it", p->comm, p->pid);
		f->lost_ms = f->lost_share = 0;
		lg_cause_say(c, f, "it used %.1f %% of a CPU", p->cpu * 100);
	}
	if (told > PROCESSES_TOLD)
		lg_cause_say(c, f, "... and %zu more processes that run now and did not before", told - PROCESSES_TOLD);
}

static void workload(struct lg_causes *c)
{
	struct lg_diff *d = c->d;
	struct lg_finding *f = d->n_unfair ? lg_cause_add(c, LG_R_REGRESS_WORKLOAD) : NULL;

	if (!f)
		return;
	lg_grade_unpriced(f);
	f->confidence = 0.95;
	f->culprit.relation = LG_RELATION_SELF;
	f->title = lg_arena_printf(&d->v.arena, "the two runs did not do the same work: %s%s", d->unfair[0],
				   d->n_unfair > 1 ? " ..." : "");
	for (size_t i = 0; i < d->n_unfair; i++)
		lg_cause_say(c, f, "%s", d->unfair[i]);
	if (!isnan(d->samples.value)) {
		lg_cause_say(c, f, "samples per second: %.3f of what they were (95 %%: %.3f to %.3f)", d->samples.value,
		    d->samples.lo, d->samples.hi);
		return; /* the catalogue's advice is about the batch */
	}
	/* Nothing is advised about what only one of the two can know. */
	if (d->other_tool && d->n_unfair == 1) {
		f->title = lg_arena_printf(&d->v.arena, "the two runs were %s", d->unfair[0]);
		f->advice = "tool";
		return;
	}
	f->advice = d->other_tool ? "configuration_and_tool" : "configuration";
}

static void rest(struct lg_causes *c)
{
	struct lg_diff *d = c->d;
	double sum = 0, left, between = isnan(d->noise) ? d->between - d->load : 0;
	struct lg_finding *f;

	for (size_t i = 0; i < d->n_shares; i++)
		sum += d->shares[i].ms;
	left = d->delta_ms - sum;
	if (d->mean.lo - 1 > LG_N_REGRESS_STEP_FLOOR && left > LG_N_REGRESS_STEP_FLOOR * d->mean_ms[1] &&
	    left > LG_N_REGRESS_STEP_PART * d->delta_ms &&
	    (f = lg_cause_add(c, LG_R_REGRESS_STEP))) {
		f->confidence = 0.7;
		f->title = lg_arena_printf(&d->v.arena, "steps take %.2f ms longer and these inputs do not show why",
					   left);
		/* The spread of a baseline's runs is in the interval already. */
		lg_cause_price(c, f, left, fmin(left, d->mean_ms[0] * (d->mean.value - 1 - d->load -
							       hypot(d->mean.value - d->mean.lo, between))));
		lg_cause_say(c, f, "mean step: %.3f ms before, %.3f after; median %.3f and %.3f", d->mean_ms[0],
		    d->mean_ms[1], d->median_ms[0], d->median_ms[1]);
		say_between(c, f);
		lg_cause_share(c, f->title, f->id, left);
	} else if (fabs(left) >= 0.002 * d->mean_ms[1]) {
		struct lg_share *share = lg_cause_share(c, "not explained", NULL, left);

		if (share)
			share->rare = !(d->mean.lo > 1) && !(d->mean.hi < 1) &&
				      (d->median.lo > 1 || d->median.hi < 1);
	}
}

/* The machine itself gave less. Which steps that hit is not known, so it is low at most, as in `explain`. */
static void stolen(struct lg_causes *c)
{
	double before = c->d->before->stolen_ms, after = c->d->after->stolen_ms;
	double ms = fmin(after - before, left_over(c));
	struct lg_finding *f;

	if (!(after - before >= 0.01 * c->d->mean_ms[1]) || !(f = lg_cause_add(c, LG_R_HOST_STEAL)))
		return;
	f->confidence = 0.9;
	f->culprit.relation = LG_RELATION_HARDWARE;
	f->title = lg_arena_printf(&c->d->v.arena, "the hypervisor and interrupts took %.2f ms of a step's CPU time, "
				   "%.2f before", after, before);
	lg_cause_price(c, f, ms, ms);
	lg_cause_say(c, f, "at least %.1f %% of a step, %.1f %% before (/proc/stat)", 100 * after / c->d->mean_ms[1],
		     100 * before / c->d->mean_ms[0]);
	lg_cause_share(c, f->title, f->id, ms);
	take_evenly(c, ms);
}

void lg_causes_rest(struct lg_causes *c)
{
	double unexplained = 0;

	stolen(c);
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		unexplained += beyond(c, g) > 0 ? beyond(c, g) : 0;
	operators(c, false);
	operators(c, true); /* what nothing else accounts for */
	operators_outweighed(c);
	gained_in_the_median(c);
	stages(c);
	rest(c);
	facts(c, unexplained);
	processes(c);
	workload(c);
}
