/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steal.c - CPU time that a thread seemed to have and had not: the hypervisor's and the interrupts' share.
 *
 * A guest cannot see when it stood still: between two switches it counts as running, and so does the time
 * of interrupts. Only how much of it there was is known, per CPU and second (/proc/stat,
 * record/counters.c). Of a thread's running time on a CPU that share is gone at least: idle time is never
 * stolen. Which steps it hit is not known, so it is never a measured loss, and "low" at most.
 */
#include "analyse/host/steal.h"

#include "analyse/finders.h"
#include <math.h>

#include "analyse/chains/tally.h"
#include "base/upper_bound.h"

#define SECOND_NS INT64_C(1000000000) /* what a row is about: the second that ends at its ts */

enum { STEAL, IRQ, SOFTIRQ, KINDS };
static const char *const names[KINDS] = { "cpu.steal", "cpu.irq", "cpu.softirq" };

/* Rows of one counter, by time; a row stands until the next one: it is written when the value changes. */
struct rows {
	const uint32_t *v;
	size_t n;
};

struct taken {
	struct rows (*cpu)[KINDS];
	size_t n_cpus;
};

static int kind_of(const struct lg_trace *t, lg_trk k)
{
	const char *name = lg_string(t, t->track.name[k]);

	for (int i = 0; i < KINDS; i++)
		if (!strcmp(name, names[i]) && t->track.index[k] >= 0)
			return i;
	return KINDS;
}

static int gather(const struct lg_index *x, struct taken *ret)
{
	const struct lg_trace *t = x->t;

	for (lg_trk i = 0; i < t->track.n; i++)
		if (kind_of(t, i) < KINDS && (size_t)t->track.index[i] >= ret->n_cpus)
			ret->n_cpus = (size_t)t->track.index[i] + 1;
	ret->cpu = lg_calloc(ret->n_cpus + 1, sizeof *ret->cpu);
	for (lg_trk i = 0; ret->cpu && i < t->track.n; i++)
		if (kind_of(t, i) < KINDS)
			ret->cpu[t->track.index[i]][kind_of(t, i)] = (struct rows){
				x->counter + x->counter_off[i], x->counter_off[i + 1] - x->counter_off[i] };
	return ret->cpu ? 0 : LG_E_NOMEM;
}

/* What was taken of [from, to). */
static void add_taken(const struct lg_trace *t, const struct rows *u, int64_t from, int64_t to,
		      struct lg_taken *ret)
{
	const struct lg_counter_tab *k = &t->counter;
	size_t at = 0, end = u->n;

	/* The first that is about what comes after from. */
	LG_BISECT(at, end, mid, k->ts[u->v[mid]] - SECOND_NS <= from);
	for (at -= at > 0; at < u->n && k->ts[u->v[at]] - SECOND_NS < to; at++) {
		double value = k->value[u->v[at]];
		int64_t a = k->ts[u->v[at]] - SECOND_NS;
		int64_t b = at + 1 < u->n ? k->ts[u->v[at + 1]] - SECOND_NS : to;

		a = a > from ? a : from;
		b = b < to ? b : to;
		if (b <= a || !(value > 0) || value > 1)
			continue;
		ret->ns += value * (double)(b - a);
		ret->most = fmax(ret->most, value);
	}
}

/* Counters of several machines have the same names. */
static bool one_host(const struct lg_verdict *v)
{
	for (size_t i = 1; i < v->n_inputs; i++)
		if (v->inputs[i].host && v->inputs[0].host && strcmp(v->inputs[i].host, v->inputs[0].host))
			return false;
	return true;
}

static void add_part(const struct lg_trace *t, const struct taken *s, const struct lg_part *p,
		     struct lg_cpu_taken *ret)
{
	int64_t end = p->ts + p->dur;
	size_t cpu;

	if (p->kind != LG_PART_RUNNING || p->state == UINT32_MAX)
		return;
	ret->running += (double)p->dur;
	cpu = (size_t)t->state.cpu[p->state];
	if (cpu >= s->n_cpus)
		return;
	add_taken(t, &s->cpu[cpu][STEAL], p->ts, end, &ret->steal);
	add_taken(t, &s->cpu[cpu][IRQ], p->ts, end, &ret->interrupts);
	add_taken(t, &s->cpu[cpu][SOFTIRQ], p->ts, end, &ret->interrupts);
}

int lg_cpu_taken(const struct lg_verdict *v, struct lg_cpu_taken *ret)
{
	struct taken s = { 0 };
	int rc = gather(v->index, &s);

	*ret = (struct lg_cpu_taken){ .told = !rc && s.n_cpus && one_host(v) };
	LG_EACH_WHILE(ret->told, step, v->steps, v->n_steps) {
		ret->wall += step->warmup ? 0 : (double)step->dur;
		for (uint32_t p = step->warmup ? step->n_parts : 0; p < step->n_parts; p++)
			add_part(v->trace, &s, &v->parts[step->part_first + p], ret);
	}
	lg_free(s.cpu);
	return rc;
}

static void tell(struct lg_case *c, const struct lg_cpu_taken *k, const struct lg_taken *x, const char *who,
		 const char *detail)
{
	double share = k->running > 0 ? x->ns / k->running : 0;
	struct lg_finding *f;

	if (!(x->ns > 0 && x->ns >= LG_N_HOST_STEAL_SAID * k->wall))
		return;
	lg_say(c, LG_SAYS_HOST_STEAL_LIMIT, who, 100 * share, 100 * x->most);
	if (x->ns < LG_N_HOST_STEAL_FLOOR * k->wall)
		return;
	f = lg_finding_about(c, LG_R_HOST_STEAL, LG_STAGE_NONE, LG_RELATION_HARDWARE, 0.9);
	f->detail = detail;
	lg_title(c, f, LG_SAYS_HOST_STEAL_TITLE, who, 100 * share);
	lg_evidence(c, f, LG_SAYS_HOST_STEAL_AT_LEAST, x->ns / 1e6, k->running / 1e6);
	lg_evidence(c, f, LG_SAYS_HOST_STEAL_WORST, 100 * x->most);
	lg_evidence_against(c, f, LG_SAYS_HOST_STEAL_ONLY_SUMS);
	if (x == &k->interrupts)
		lg_evidence_against(c, f, LG_SAYS_HOST_STEAL_OWN_TRAFFIC);
}

/* A rank that the hypervisor stopped seems to work longer than its peers. Which one it was is not known:
 * where they are late in turn it may be each, else a rank's part of what was taken counts. */
static void doubt_late_ranks(struct lg_case *c, const struct lg_cpu_taken *k)
{
	struct lg_finding *f = c->has_states ? lg_told(c, LG_R_COMMS_STRAGGLER) : NULL;

	double ns = f && f->n_culprit_ranks > 1 ? k->steal.ns : k->steal.ns / (double)LG_MAX(c->n_ranks, 1);

	if (!f || !(f->lost_ms > 0) || ns < 0.5 * f->lost_ms * 1e6)
		return;
	lg_cap(f, LG_CAP_GUESS);
	lg_evidence_against(c, f, LG_SAYS_HOST_STEAL_LATE_RANK, k->steal.ns / 1e6);
}

int lg_say_steal(struct lg_case *c)
{
	struct lg_cpu_taken k;
	int rc = lg_cpu_taken(c->v, &k);

	if (rc)
		return rc;
	doubt_late_ranks(c, &k);
	tell(c, &k, &k.steal, "the hypervisor", "hypervisor");
	tell(c, &k, &k.interrupts, "interrupts", "interrupts");
	return c->failed;
}
