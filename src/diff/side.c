/* SPDX-License-Identifier: Apache-2.0 */
/* side.c - a verdict and its trace as the numbers that a comparison needs. */
#include "diff/side.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/host/steal.h"
#include "analyse/steps/log_steps.h"
#include "base/alloc.h"
#include "diff/diff.h"
#include "store/index.h"

enum { KEY_MAX = 200, STEPS_MIN = 3 };

void lg_side_free(struct lg_side *s)
{
	if (!s)
		return;
	lg_arena_done(&s->arena);
	lg_free(s);
}

double lg_side_mean(const struct lg_side *s)
{
	return lg_mean_of(s->s.step, s->s.n);
}

double lg_side_median(const struct lg_side *s)
{
	double *v, m;

	if (!s->s.n)
		return (double)NAN;
	v = lg_calloc(s->s.n, sizeof *v);
	if (!v)
		return (double)NAN;
	memcpy(v, s->s.step, s->s.n * sizeof *v);
	m = lg_quantile_of(v, s->s.n, 0.5);
	lg_free(v);
	return m;
}

const char *lg_side_fact(const struct lg_side *s, const char *key)
{
	for (size_t i = 0; i < s->n_facts; i++)
		if (!strcmp(s->facts[i].key, key))
			return s->facts[i].value;
	return NULL;
}

const char *lg_side_key(struct lg_arena *a, const char *cmdline, const char *comm)
{
	char key[KEY_MAX];
	const char *from = cmdline && *cmdline ? cmdline : comm ? comm : "";
	size_t n = 0;

	for (const char *p = from; *p && n + 1 < sizeof key; p++) {
		bool number = isdigit((unsigned char)*p);

		if (number && n && key[n - 1] == '#')
			continue;
		key[n++] = number ? '#' : iscntrl((unsigned char)*p) ? ' ' : *p;
	}
	key[n] = 0;
	/* A list of numbers (pids) may be longer in the other run. */
	for (char *p; (p = strstr(key, "# #"));)
		memmove(p + 1, p + 3, strlen(p + 3) + 1);
	return lg_arena_strdup(a, key);
}

/* Taken from the step by somebody outside the training process. */
static bool by_host(uint8_t cause)
{
	return cause == LG_CAUSE_LOCK || cause == LG_CAUSE_CPU || cause == LG_CAUSE_IO ||
	       cause == LG_CAUSE_STOPPED;
}

static void step_series(struct lg_side *s, const struct lg_verdict *v, const struct lg_step *step)
{
	size_t i = s->s.n++;
	int64_t dur = step->done ? step->done - step->ready : step->dur;

	s->s.step[i] = (double)dur / 1e6;
	for (uint32_t k = 0; k < step->n_parts; k++) {
		const struct lg_part *p = &v->parts[step->part_first + k];
		uint8_t stage = p->stage && p->stage < LG_STAGE_MAX ? p->stage
								    : (uint8_t)LG_STAGE_OTHER;

		if (p->cause && p->cause < v->n_causes && by_host(v->causes[p->cause].kind))
			continue;
		s->s.clean[stage][i] += (double)p->dur / 1e6;
		s->s.clean[0][i] += (double)p->dur / 1e6;
	}
	if (!step->n_parts) {
		s->s.clean[0][i] = s->s.clean[LG_STAGE_OTHER][i] = s->s.step[i];
		return;
	}
	/* What its device takes longer, or less, than the host at its stages. */
	s->s.clean[0][i] += (double)(dur - step->dur) / 1e6;
	s->s.clean[LG_STAGE_OTHER][i] += (double)(dur - step->dur) / 1e6;
}

/*
 * The device had nothing to do when the window began, and the host did not wait for it: that step's time is
 * that of both, one behind the other, as that of no later step. It is left out where that leaves enough.
 */
static bool fills_queue(const struct lg_step *first, size_t n)
{
	return first->done > first->ts + first->dur && first->ready == first->ts && n > STEPS_MIN;
}

/*
 * Steps of the first rank that has judged ones. With its device a step takes what the device needs for it:
 * how far the host runs ahead is no speed.
 */
static int series(struct lg_side *s, const struct lg_verdict *v, struct lg_side_window *w)
{
	struct lg_arena *a = &s->arena;
	struct lg_step *judged, *device;
	size_t first = 0, n = 0;

	while (first < v->n_steps && v->steps[first].warmup)
		first++;
	if (first < v->n_steps)
		w->thr = v->steps[first].thr;
	for (size_t i = first; i < v->n_steps; i++)
		n += v->steps[i].thr == w->thr && !v->steps[i].warmup;
	if (n && fills_queue(&v->steps[first], n)) {
		first++;
		n--;
	}
	judged = lg_arena_alloc(a, n + 1, sizeof *judged);
	device = lg_arena_alloc(a, n + 1, sizeof *device);
	s->s.step = lg_arena_alloc(a, n + 1, sizeof(double));
	for (int g = 0; g < LG_STAGE_MAX; g++)
		s->s.clean[g] = lg_arena_alloc(a, n + 1, sizeof(double));
	if (a->failed)
		return LG_E_NOMEM;
	for (size_t i = first; i < v->n_steps; i++) {
		if (v->steps[i].thr != w->thr || v->steps[i].warmup)
			continue;
		judged[w->n] = device[w->n] = v->steps[i];
		device[w->n].ts = v->steps[i].ready;
		device[w->n++].dur = v->steps[i].done - v->steps[i].ready;
		step_series(s, v, &v->steps[i]);
	}
	w->steps = judged;
	w->device = n && judged[0].done ? device : NULL;
	s->has_device = w->device;
	if (n) {
		w->prc = judged[0].prc;
		w->from = judged[0].ts;
		w->to = judged[n - 1].ts + judged[n - 1].dur;
		s->wall_ms = (double)(w->to - w->from) / 1e6;
		s->ref_rank = judged[0].rank;
		s->ref_pid = v->trace->process.pid[w->prc];
	} else {
		w->from = v->trace->first;
		w->to = v->trace->last > v->trace->first ? v->trace->last : v->trace->first;
	}
	return 0;
}

/*
 * A job's log tells how long its steps took, and nothing of what was in them: the values of
 * the track that is most surely the training's (torchlog). The first tells of the start-up.
 */
static int logged_steps(struct lg_side *s, const struct lg_index *x, struct lg_side_window *w)
{
	const struct lg_trace *t = x->t;
	const struct lg_counter_tab *c = &t->counter;
	struct lg_stated of = lg_stated_steps(x, 4);

	if (of.track) {
		bool first = true;

		s->s.step = lg_arena_alloc(&s->arena, of.n, sizeof(double));
		for (int g = 0; g < LG_STAGE_MAX; g++)
			s->s.clean[g] = lg_arena_alloc(&s->arena, of.n, sizeof(double));
		for (size_t i = 0; !s->arena.failed && i < c->n; i++) {
			if (c->track[i] != of.track || !(c->value[i] > 0))
				continue;
			if (!first) {
				s->s.step[s->s.n] = c->value[i];
				s->s.clean[0][s->s.n] = s->s.clean[LG_STAGE_OTHER][s->s.n] = c->value[i];
				s->wall_ms += c->value[i];
				s->s.n++;
			}
			first = false;
		}
		w->prc = t->track.prc[of.track];
		s->ref_rank = t->process.rank[w->prc];
	}
	return s->arena.failed ? LG_E_NOMEM : 0;
}

/* Facts that differ from start to start, or are about the recorder: no news. */
static bool volatile_fact(const char *key)
{
	static const char *const prefixes[] = { "record.", "join.", "group.", "process.", "import.",
						"env.LAGGARD", "env.LAG_", "env.MASTER_", "env.TORCHELASTIC_",
						"debug.", "torch.grad_enabled", "trace.", "dist.groups",
						"torch.profiler." };
	static const char *const exact[] = { "env.RANK", "env.LOCAL_RANK", "env.GROUP_RANK",
					     "env.ROLE_RANK", "env.SLURM_JOB_ID", "env.SLURM_JOBID",
					     "host.name", "compile.requested" };

	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(key, prefixes[i], strlen(prefixes[i])))
			return true;
	for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
		if (!strcmp(key, exact[i]))
			return true;
	return false;
}

struct fact_row {
	const char *key, *value;
	size_t row;
};

/* By key, the newest first. */
static int cmp_fact(const void *a, const void *b)
{
	const struct fact_row *x = a, *y = b;
	int c = strcmp(x->key, y->key);

	return c ? c : (x->row < y->row) - (x->row > y->row);
}

/* The last value of every fact of the machine and of the reference process. */
static int facts(struct lg_side *s, const struct lg_trace *t, lg_prc prc)
{
	const struct lg_meta_tab *m = &t->meta;
	struct fact_row *all = lg_calloc(m->n, sizeof *all);
	size_t n = 0;

	s->facts = lg_arena_alloc(&s->arena, m->n + 1, sizeof *s->facts);
	if (!all || !s->facts) {
		lg_free(all);
		return LG_E_NOMEM;
	}
	for (size_t i = 0; i < m->n; i++) {
		const char *key = lg_string(t, m->key[i]);

		if ((!m->prc[i] || m->prc[i] == prc) && !volatile_fact(key))
			all[n++] = (struct fact_row){ key, lg_string(t, m->value[i]), i };
	}
	qsort(all, n, sizeof *all, cmp_fact);
	for (size_t i = 0; i < n; i++)
		if (!i || strcmp(all[i].key, all[i - 1].key))
			s->facts[s->n_facts++] = (struct lg_side_fact){ all[i].key, all[i].value };
	lg_free(all);
	return 0;
}

/*
 * What is seen n times in a window comes at least this part of that in the mean of such windows, with
 * 95 %: the rate of a Poisson process (chi-squared of 2 n degrees of freedom, by Wilson and Hilferty). What
 * lies close together is seen once; of bursts of many sizes n is how many of one size would vary as they do.
 */
static double sure_part(const double *by_step, size_t n)
{
	double sum = 0, squares = 0, seen, root;
	size_t block = lg_bootstrap_block(n);

	for (size_t i = 0; i < n; i += block) {
		double one = 0;

		for (size_t k = i; k < n && k < i + block; k++)
			one += by_step[k];
		sum += one;
		squares += one * one;
	}
	seen = squares > 0 ? sum * sum / squares : 0;
	root = 1 - 1 / (9 * seen) - 1.645 / (3 * sqrt(seen));
	return seen >= 1 && root > 0 ? root * root * root : 0;
}

/*
 * Half of the 95 % interval of what f lost per step, as its own moments tell it: what comes in a rhythm is
 * surer than what came in one burst. The bootstrap says so of many steps; of few it may draw none that has
 * any, and says nothing. What the device lost lies where its steps do.
 */
static int half_of(const struct lg_finding *f, double ms, const struct lg_side_window *w, double *ret)
{
	const struct lg_step *steps = f->device_causes && w->device ? w->device : w->steps;
	double *by_step, lo, sum = 0;
	bool ok;

	*ret = NAN;
	if (!f->n_moments || !w->n)
		return 0;
	by_step = lg_calloc(w->n, sizeof *by_step);
	if (!by_step)
		return LG_E_NOMEM;
	for (size_t i = 0; i < f->n_moments; i++) {
		size_t at = 0, end = w->n;

		if (f->moments[i].ts < steps[0].ts)
			continue;
		while (end - at > 1) {
			size_t mid = (at + end) / 2;

			*(steps[mid].ts <= f->moments[i].ts ? &at : &end) = mid;
		}
		by_step[at] += (double)f->moments[i].dur;
		sum += (double)f->moments[i].dur;
	}
	ok = lg_bootstrap_lower(by_step, w->n, &lo);
	if (ok && sum > 0 && !isnan(lo))
		*ret = ms * (1 - fmax(lo * (double)w->n / sum, sure_part(by_step, w->n)));
	lg_free(by_step);
	return ok ? 0 : LG_E_NOMEM;
}

static int stolen(struct lg_side *s, const struct lg_verdict *v)
{
	struct lg_cpu_taken k;
	int rc = lg_cpu_taken(v, &k);

	s->stolen_ms = !rc && k.told && k.wall > 0
			       ? (k.steal.ns + k.interrupts.ns) / k.wall * lg_side_mean(s) : (double)NAN;
	return rc;
}

static int findings(struct lg_side *s, const struct lg_verdict *v, const struct lg_side_window *w)
{
	s->findings = lg_arena_alloc(&s->arena, v->n_findings + 1, sizeof *s->findings);
	if (!s->findings)
		return LG_E_NOMEM;
	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *f = &v->findings[i];
		const char *who = lg_side_key(&s->arena, f->culprit.cmdline, f->culprit.comm);
		/* lost_ms is of the run's wall: the same share of a step. */
		double half, ms = isnan(f->lost_ms) ? (double)NAN
				  : !isnan(f->lost_share) ? f->lost_share * lg_side_mean(s)
				  : s->s.n ? f->lost_ms / (double)s->s.n : (double)NAN;

		/* Who and which lock; a cause inside the job is told apart by its stage. */
		if (!f->culprit.relation || f->culprit.relation != LG_RELATION_OTHER_PROCESS)
			who = f->stage ? f->stage : "";
		if (half_of(f, ms, w, &half))
			return LG_E_NOMEM;
		s->findings[s->n_findings++] = (struct lg_side_finding){
			.id = f->id, .severity = lg_severity_text(f->severity), .row = (uint32_t)i,
			.key = lg_arena_printf(&s->arena, "%s|%s", who,
					       f->culprit.lock ? f->culprit.lock : ""),
			.ms = ms, .half = half };
	}
	return 0;
}

/* What the hook said about the compiler: marks and facts of the reference process. */
static void compiler(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
{
	const struct lg_mark_tab *m = &t->mark;
	size_t n_mode = 0;

	s->compile.mode = "";
	s->compile.frames = NAN;
	for (size_t i = 0; i < t->meta.n; i++)
		if (t->meta.prc[i] == w->prc &&
		    !strcmp(lg_string(t, t->meta.key[i]), "compile.requested"))
			s->compile.asked = true;
	for (size_t i = 0; i < m->n; i++) {
		const char *name = lg_string(t, m->name[i]);

		if (t->thread.prc[m->thr[i]] != w->prc)
			continue;
		if (!strcmp(name, "compile.requested"))
			s->compile.asked = true;
		else if (!strcmp(name, "dynamo.frames.ok"))
			s->compile.frames = (double)m->value[i];
		else if (!strcmp(name, "dispatch_mode") && m->ts[i] >= w->from && ++n_mode)
			s->compile.mode = lg_string(t, m->text[i]);
	}
	/* The counter is told when it changes: with the compiler asked for and the hook alive,
	 * silence means zero. */
	if (s->compile.asked && isnan(s->compile.frames))
		s->compile.frames = 0;
}

int lg_side_new(const struct lg_verdict *v, struct lg_side **ret, struct lg_error *err)
{
	struct lg_side *s = lg_calloc(1, sizeof *s);
	struct lg_side_window w = { 0 };
	int rc;

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	s->trace = v->trace;
	s->inputs = v->inputs;
	s->n_inputs = v->n_inputs;
	s->limits = v->limits;
	s->n_limits = v->n_limits;
	s->has_states = v->trace->state.n > 0;
	s->n_ranks = v->n_ranks;
	s->ref_rank = s->ref_pid = -1;
	s->compile.regions = NAN;
	rc = series(s, v, &w);
	if (!rc && !w.n)
		rc = logged_steps(s, v->index, &w);
	if (!rc)
		rc = facts(s, v->trace, w.prc);
	if (!rc)
		rc = lg_side_items(s, v->trace, v->index, &w);
	if (!rc)
		rc = lg_side_modules(s, v, &w);
	if (!rc)
		rc = lg_side_host(s, v->trace, &w);
	if (!rc)
		rc = lg_side_gauges(s, v->trace, &w);
	if (!rc)
		rc = findings(s, v, &w);
	if (!rc)
		rc = stolen(s, v);
	if (!rc)
		compiler(s, v->trace, &w);
	if (rc || s->arena.failed) {
		lg_side_free(s);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = s;
	return 0;
}
