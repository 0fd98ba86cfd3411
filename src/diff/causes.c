/* SPDX-License-Identifier: Apache-2.0 */
/*
 * causes.c - what explains the change, each millisecond once, and the gate's verdict.
 *
 * The change of the mean step is the change of what the host took (the findings' own lost time,
 * from wait chains) plus the change of the step's own time, stage by stage. The latter is a pool
 * for each stage; explanations draw on the pools in the order of how directly they are known: the
 * job's own findings of the verdict, a lost compilation, a change that saves memory, single
 * operators and kernels; what then remains of a stage is regress.stage. Facts that changed cannot
 * be measured alone: they are one finding, loud only when something is left to explain.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/chains/ends.h"
#include "analyse/grade.h"
#include "base/order.h"
#include "base/agree.h"
#include "diff/causes.h"
#include "rules/says.h"

enum { FINDINGS_MAX = 64, EVIDENCE_MAX = 12, SHARES_MAX = 64 };

struct lg_finding *lg_cause_add(struct lg_causes *c, enum lg_rule_id rule)
{
	struct lg_verdict *v = &c->d->v;
	struct lg_finding *f;

	if (v->n_findings == FINDINGS_MAX)
		return NULL;
	f = &v->findings[v->n_findings];
	*f = lg_finding_blank(rule);
	f->evidence = lg_arena_alloc(&v->arena, EVIDENCE_MAX, sizeof *f->evidence);
	if (!f->evidence)
		return NULL;
	v->n_findings++;
	return f;
}

void lg_cause_say(struct lg_causes *c, struct lg_finding *f, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (f->n_evidence == EVIDENCE_MAX) {
		f->evidence_left_out++;
		return;
	}
	va_start(ap, fmt);
	lg_vagree(text, sizeof text, fmt, ap);
	va_end(ap);
	f->evidence[f->n_evidence++] = (struct lg_evidence){
		.text = lg_arena_strdup(&c->d->v.arena, text), .ts = INT64_MIN };
}

/* What it costs: ms per step, at least lo of it for sure. */
void lg_cause_price(struct lg_causes *c, struct lg_finding *f, double ms, double lo)
{
	double mean = c->d->mean_ms[1];

	f->lost_ms = ms * (double)c->d->after->s.n;
	f->lost_share = mean > 0 ? ms / mean : (double)NAN;
	lg_grade_share(f, mean > 0 ? lo / mean : 0);
	c->told += ms;
}

#define SHARE_NOISE 0.1

struct lg_share *lg_cause_share(struct lg_causes *c, const char *what, const char *id, double ms)
{
	struct lg_diff *d = c->d;
	bool sure = d->mean.lo > 1 || d->mean.hi < 1;
	double share = sure && d->delta_ms != 0 ? ms / d->delta_ms : (double)NAN;

	/* What goes the other way, or is outdone by what does, is no part of the change; a little more than
	 * all of it, as measured, is all. */
	if (share > 1 && share <= 1 + SHARE_NOISE)
		share = 1;
	if (d->n_shares == SHARES_MAX)
		return NULL;
	d->shares[d->n_shares] = (struct lg_share){
		what, id, ms, share >= 0 && share <= 1 ? share : (double)NAN, false };
	return &d->shares[d->n_shares++];
}

static const struct lg_side_finding *same_before(const struct lg_causes *c, const struct lg_side_finding *f)
{
	const struct lg_side *b = c->d->before;

	for (size_t i = 0; i < b->n_findings; i++)
		if (!strcmp(b->findings[i].id, f->id) && !strcmp(b->findings[i].key, f->key))
			return &b->findings[i];
	return NULL;
}

static const struct lg_holder_change *holder_of(const struct lg_causes *c, int32_t pid)
{
	for (size_t i = 0; i < c->d->n_holders; i++)
		if (c->d->holders[i].pid == pid && c->d->holders[i].ms_after > 0)
			return &c->d->holders[i];
	return NULL;
}

uint32_t lg_cause_stage(const char *name)
{
	for (uint32_t g = 1; name && g < LG_STAGE_MAX; g++)
		if (!strcmp(lg_stage_name(g), name))
			return g;
	return LG_STAGE_OTHER;
}

/* A copy of a finding of AFTER's verdict with room for more evidence. */
static struct lg_finding *finding_copy(struct lg_causes *c, const struct lg_finding *g)
{
	struct lg_finding *f = lg_cause_add(c, g->rule);
	struct lg_evidence *room;

	if (!f)
		return NULL;
	room = f->evidence;
	*f = *g;
	f->evidence = room;
	f->n_evidence = f->evidence_left_out = 0;
	f->fix = f->tradeoff = f->confirm = NULL; /* given anew by advise */
	f->cost_per_hour = NAN;
	return f;
}

static void evidence_of(struct lg_finding *f, const struct lg_finding *g)
{
	for (size_t i = 0; i < g->n_evidence && f->n_evidence < EVIDENCE_MAX; i++)
		f->evidence[f->n_evidence++] = g->evidence[i];
}

static bool in_host(const char *id)
{
	return lg_is_taken_by_host(lg_rule_from(id));
}

static const struct lg_process_change *new_process(const struct lg_causes *c, int32_t pid)
{
	for (size_t i = 0; i < c->d->n_processes; i++)
		if (!c->d->processes[i].gone && c->d->processes[i].p->pid == pid)
			return &c->d->processes[i];
	return NULL;
}

/* What of the growth one finding of AFTER may have, ms per step; half: of its interval. */
struct portion {
	double ms, half;
	double from[LG_STAGE_MAX];
	bool unsure; /* none of it made steps longer than they were in the mean */
};

/* No more than the stage grew by. */
static void draw(struct lg_causes *c, uint32_t g, double ms, struct portion *p)
{
	ms = fmin(ms, c->pool[g]);
	if (!(ms > 0))
		return;
	c->pool[g] -= ms;
	c->lo[g] -= ms;
	p->ms += ms;
	p->from[g] += ms;
	p->half = hypot(p->half, fmin(c->half[g], ms)); /* no more than that can be wrong */
}

static void give_back(struct lg_causes *c, struct portion *p)
{
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++) {
		c->pool[g] += p->from[g];
		c->lo[g] += p->from[g];
	}
	*p = (struct portion){ 0 };
}

static double worth_telling(const struct lg_causes *c)
{
	return LG_N_ANY_LOW * c->d->mean_ms[1];
}

static double before_ms(const struct lg_causes *c, const struct lg_side_finding *s)
{
	const struct lg_side_finding *was = same_before(c, s);

	return was && !isnan(was->ms) ? was->ms : 0;
}

static bool marked(const struct lg_causes *c, uint32_t g)
{
	for (size_t i = 0; i < c->d->n_stages; i++)
		if (lg_cause_stage(c->d->stages[i].name) == g)
			return true;
	return false;
}

static bool has_device(const struct lg_side *s)
{
	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i].kind == LG_ITEM_KERNEL)
			return true;
	return false;
}

static bool by_other_process(const struct lg_finding *f)
{
	return f->culprit.relation == LG_RELATION_OTHER_PROCESS;
}

/* Of a late rank, or of one that is not compared, and for whose loader or save the compared one waits. */
static bool by_rank(const struct lg_causes *c, const struct lg_finding *f)
{
	return (f->culprit.relation == LG_RELATION_RANK) ||
	       (f->culprit.rank >= 0 && f->culprit.rank != c->d->after->ref_rank);
}

/*
 * What AFTER's own findings may have of the growth: first each of its own stage's, then, where that is not
 * all of it, of others'. A trace may mark no stage of that name: its time is in "other". What a device takes,
 * the host waits for wherever it next needs the device, in whatever stage that is. A late rank's peers wait
 * where they need the collective (with DDP inside the backward pass); itself it is late in any stage.
 */
static void draw_all(struct lg_causes *c, struct portion *portion)
{
	const struct lg_side *a = c->d->after;
	bool device = has_device(a);

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < a->n_findings; i++) {
			const struct lg_side_finding *s = &a->findings[i];
			const struct lg_finding *f = &c->after->findings[s->row];
			bool anywhere = device || by_rank(c, f);
			uint32_t own = lg_cause_stage(f->stage);
			double want = s->ms - before_ms(c, s);

			if (in_host(s->id) || !(want >= worth_telling(c)))
				continue;
			if (!pass)
				draw(c, own, want - portion[i].ms, &portion[i]);
			else if (anywhere || !marked(c, own))
				draw(c, LG_STAGE_OTHER, want - portion[i].ms, &portion[i]);
			for (uint32_t g = 1; pass && anywhere && g < LG_STAGE_MAX; g++)
				draw(c, g, want - portion[i].ms, &portion[i]);
			if (pass && portion[i].ms < worth_telling(c))
				give_back(c, &portion[i]);
		}
}

/* Where it is not told (an older baseline), there may be none of it, or twice as much. */
static double half_of(const struct lg_side_finding *s)
{
	if (!s || isnan(s->ms))
		return 0;
	return isnan(s->half) ? s->ms : s->half;
}

/*
 * A cause that says in which steps it took how much is as sure as that, however much all the rest of a step
 * differs from one to the next. What BEFORE has no finding of may have been there below what rules ask for,
 * and no longer than the stage was. NAN = not told.
 */
static double own_half(const struct lg_causes *c, const struct lg_side_finding *s)
{
	const struct lg_side_finding *was = same_before(c, s);
	uint32_t own = lg_cause_stage(c->after->findings[s->row].stage);
	double below = LG_N_ANY_MEDIUM * c->d->mean_ms[0];

	if (isnan(s->half) || (was && isnan(was->half)) || c->d->other_tool ||
	    has_device(c->d->before) != has_device(c->d->after))
		return (double)NAN;
	return hypot(s->half, was ? was->half : marked(c, own) ? fmin(below, c->before[own]) : below);
}

/* In the stages in which nothing else is done: what these grew by at most. */
static double own_most(const struct lg_causes *c, const struct lg_side_finding *s)
{
	uint32_t own = lg_cause_stage(c->after->findings[s->row].stage);

	for (size_t i = 0; i < c->d->n_stages && (own == LG_STAGE_BATCH_WAIT || own == LG_STAGE_SIDE); i++)
		if (lg_cause_stage(c->d->stages[i].name) == own)
			return c->d->stages[i].hi;
	return INFINITY;
}

/*
 * Where it is not sure that steps are longer, their change is noise, and bounds a cause that is measured for
 * itself by no more than its upper end. What got no part of the mean's change is told for that, and no louder
 * than what has no price at all.
 */
static void draw_slack(struct lg_causes *c, struct portion *portion)
{
	const struct lg_side *a = c->d->after;

	for (size_t i = 0; i < a->n_findings; i++) {
		const struct lg_side_finding *s = &a->findings[i];
		double more = fmin(fmin(s->ms - before_ms(c, s), c->slack), own_most(c, s));

		if (in_host(s->id) || isnan(s->ms) || isnan(own_half(c, s)) || portion[i].ms > 0 ||
		    !(more >= worth_telling(c)))
			continue;
		c->slack -= more;
		portion[i] = (struct portion){ .ms = more, .half = more, .unsure = true };
	}
}

/* Nothing is done in the stage batch_wait but to wait for the next batch: where that is told, it has all. */
static void draw_waits(struct lg_causes *c, struct portion *portion)
{
	for (size_t i = 0; i < c->d->after->n_findings; i++)
		if (portion[i].ms > 0 && lg_rule_from(c->d->after->findings[i].id) == LG_R_DATA_LOADER_WAIT)
			draw(c, LG_STAGE_BATCH_WAIT, c->pool[LG_STAGE_BATCH_WAIT], &portion[i]);
}

static void draw_measured(struct lg_causes *c, struct portion *portion)
{
	draw_all(c, portion);
	draw_waits(c, portion);
	draw_slack(c, portion);
}

/*
 * A wait for batches, a save, a line in a log: measured, and no computation. What slows all operators (a
 * debugging aid, code that is no longer compiled) made it longer at most as many times as what computes; what
 * lies beyond is its own, and taken first.
 */
static void draw_beside(struct lg_causes *c, struct portion *portion)
{
	const struct lg_side *a = c->d->after;
	double before = 0, more = 0;

	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		if (g != LG_STAGE_BATCH_WAIT && g != LG_STAGE_SIDE && g != LG_STAGE_GRAD_SYNC) {
			before += c->before[g];
			more += c->pool[g];
		}
	for (size_t i = 0; i < a->n_findings; i++) {
		const struct lg_side_finding *s = &a->findings[i];
		const struct lg_finding *f = &c->after->findings[s->row];
		uint32_t own = lg_cause_stage(f->stage);
		double was = before_ms(c, s), want = s->ms - was * (1 + fmax(0, more / before));

		if (in_host(s->id) || isnan(s->ms) || !(before > 0) ||
		    (own != LG_STAGE_BATCH_WAIT && own != LG_STAGE_SIDE))
			continue;
		draw(c, marked(c, own) ? own : LG_STAGE_OTHER, want, &portion[i]);
		if (by_rank(c, f))
			draw(c, LG_STAGE_OTHER, want - portion[i].ms, &portion[i]);
		if (portion[i].ms < worth_telling(c))
			give_back(c, &portion[i]);
	}
}

/* A measured cause that AFTER has and BEFORE has not, or has less of. */
static void measured(struct lg_causes *c, const struct lg_side_finding *s, struct portion p)
{
	const struct lg_finding *g = &c->after->findings[s->row];
	const struct lg_holder_change *h = holder_of(c, g->culprit.pid);
	double before = before_ms(c, s), lo;
	struct lg_share *share;
	struct lg_finding *f;

	if (in_host(s->id)) {
		p.ms = s->ms - before;
		lo = p.ms - hypot(half_of(s), half_of(same_before(c, s)));
	} else { /* the higher of two lower ends; what is not told is none */
		double own = s->ms - before - own_half(c, s);

		lo = fmax(p.ms - p.half, isnan(own) ? own : fmin(p.ms, own));
	}
	if (!(p.ms >= worth_telling(c)))
		return;
	f = finding_copy(c, g);
	if (!f)
		return;
	lg_cause_price(c, f, p.ms, lo);
	lg_cap_as(f, g); /* too few episodes stay too few */
	if (p.unsure) {
		lg_cap(f, LG_CAP_GUESS);
		lg_cause_say(c, f, "in the mean steps are no longer than they were: by chance, or because other work got less");
	}
	f->confidence = g->confidence * (c->d->before->has_states || !in_host(s->id) ? 1 : 0.8);
	f->title = before > 0
		? lg_arena_printf(&c->d->v.arena, "%s (%.2f ms per step, %.2f before)", g->title, s->ms, before)
		: lg_arena_printf(&c->d->v.arena, "new: %s (%.2f ms per step)", g->title, s->ms);
	if (before <= 0 && !c->d->before->has_states && in_host(s->id))
		lg_cause_say(c, f, "the run before recorded no scheduler states: it could not have shown this");
	else if (before <= 0)
		lg_cause_say(c, f, "the run before has no such finding in %zu steps", c->d->before->s.n);
	else
		lg_cause_say(c, f, "lost per step: %.3f ms before, %.3f ms after", before, s->ms);
	if (p.ms > s->ms - before + worth_telling(c))
		lg_cause_say(c, f, "%.3f ms per step of it are the rest of what stage %s grew by", p.ms - (s->ms - before),
			     g->stage);
	for (uint32_t k = 1; k < LG_STAGE_MAX; k++)
		if (k != lg_cause_stage(g->stage) && k != LG_STAGE_OTHER && p.from[k] >= worth_telling(c))
			lg_cause_say(c, f, "%.3f ms per step of it made stage %s longer", p.from[k], lg_stage_name(k));
	if (new_process(c, g->culprit.pid))
		lg_cause_say(c, f, "this process was not there before: %s", new_process(c, g->culprit.pid)->p->cmdline);
	if (h && !isnan(h->period_after))
		lg_cause_say(c, f, "it holds the %s every %.3f s%s", h->lock, h->period_after,
		    isnan(h->period_before) ? "; it did not before" :
		    lg_arena_printf(&c->d->v.arena, "; every %.3f s before", h->period_before));
	evidence_of(f, g);
	share = lg_cause_share(c, f->title, f->id, p.ms);
	if (share)
		share->rare = g->seen > 0;
}

/* Causes that BEFORE had and AFTER has not: they hide a part of what got worse. */
static void gone(struct lg_causes *c)
{
	const struct lg_side *b = c->d->before, *a = c->d->after;

	for (size_t i = 0; i < b->n_findings; i++) {
		const struct lg_side_finding *s = &b->findings[i];
		double now = 0;

		if (isnan(s->ms) || !in_host(s->id))
			continue;
		for (size_t k = 0; k < a->n_findings; k++)
			if (!strcmp(a->findings[k].id, s->id) && !strcmp(a->findings[k].key, s->key) &&
			    !isnan(a->findings[k].ms))
				now = a->findings[k].ms;
		if (s->ms - now >= 0.01 * c->d->mean_ms[1])
			lg_cause_share(c, lg_arena_printf(&c->d->v.arena, "%s: %s (%s)", now > 0 ? "less" : "gone",
						     s->id, s->key), NULL, now - s->ms);
	}
}

/*
 * More samples in a step take longer, as many times at most: what a stage grew by within that is no cause's.
 * Collectives and the host's other work do not grow with them. Fewer samples need not take less time, so
 * nothing is asked of them.
 */
static void more_work(struct lg_causes *c)
{
	double ms = 0, more = c->d->work.times - 1;

	for (uint32_t g = 1; more > 0 && g < LG_STAGE_MAX; g++) {
		double part = fmin(c->pool[g], more * c->before[g]);

		if (g == LG_STAGE_GRAD_SYNC || g == LG_STAGE_SIDE || !(part > 0))
			continue;
		c->pool[g] -= part;
		c->lo[g] -= part;
		c->before[g] += part; /* as it would be with the work of AFTER */
		ms += part;
	}
	if (ms > 0)
		lg_cause_share(c, lg_arena_printf(&c->d->v.arena, "a step does %.4g times the work", more + 1),
			       "regress.workload", ms);
}

/* What the stages of the set grew by (net), in ms per step, and half of its interval. */
static double growth(const struct lg_causes *c, uint32_t set, double *ret_half)
{
	double ms = 0, var = 0, sum = 0;

	for (uint32_t g = 1; g < LG_STAGE_MAX; g++) {
		if (!(set & 1u << g) || c->pool[g] == 0)
			continue;
		ms += c->pool[g];
		sum += c->pool[g] - c->lo[g];
		var += (c->pool[g] - c->lo[g]) * (c->pool[g] - c->lo[g]);
	}
	*ret_half = c->together ? sum : sqrt(var);
	return ms;
}

/* Nothing is left of what the stages of the set grew by. */
static void empty(struct lg_causes *c, uint32_t set)
{
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		if (set & 1u << g)
			c->pool[g] = c->lo[g] = 0;
}

/* Take what the stages of the set grew by (net). Returns ms per step, *ret_lo its lower bound. */
double lg_cause_drain(struct lg_causes *c, uint32_t set, double *ret_lo)
{
	double half, ms = growth(c, set, &half);

	*ret_lo = ms - half;
	if (!(*ret_lo > 0))
		return 0; /* not more than noise: stays where it is */
	empty(c, set);
	return ms;
}

/* The stages in which the model computes; all of them where the input knows no stages. */
uint32_t lg_cause_compute_stages(const struct lg_causes *c, bool every_operator)
{
	uint32_t set = 1u << LG_STAGE_FORWARD | 1u << LG_STAGE_BACKWARD;
	bool known = false;

	for (size_t i = 0; i < c->d->n_stages; i++)
		known |= !strcmp(c->d->stages[i].name, "forward") || !strcmp(c->d->stages[i].name, "backward");
	/* A dispatch mode stands before every operator of the process, the optimizer's and the
	 * dataset's included. DDP's reducer works inside the backward pass: waiting is part of it. */
	if (every_operator || !known)
		set |= 1u << LG_STAGE_OPTIMIZER | 1u << LG_STAGE_OTHER | 1u << LG_STAGE_H2D |
		       1u << LG_STAGE_BATCH_WAIT;
	return set | 1u << LG_STAGE_GRAD_SYNC;
}

static const struct lg_finding *after_finding(const struct lg_causes *c, const char *id)
{
	for (size_t i = 0; c->after && i < c->after->n_findings; i++)
		if (!strcmp(c->after->findings[i].id, id))
			return &c->after->findings[i];
	return NULL;
}

static bool had_before(const struct lg_causes *c, const char *id)
{
	for (size_t i = 0; i < c->d->before->n_findings; i++)
		if (!strcmp(c->d->before->findings[i].id, id))
			return true;
	return false;
}

/* In the comparison already. */
static bool told(const struct lg_causes *c, const char *id)
{
	for (size_t i = 0; i < c->d->v.n_findings; i++)
		if (!strcmp(c->d->v.findings[i].id, id))
			return true;
	return false;
}

void lg_cause_top_items(struct lg_causes *c, struct lg_finding *f, const char *kind)
{
	size_t told = 0;

	for (size_t i = 0; i < c->d->n_items && told < 3; i++) {
		const struct lg_change *x = &c->d->items[i];
		char name[LG_KERNEL_TEXT];

		if (strcmp(x->kind, kind) || !x->sure || x->delta <= 0)
			continue;
		lg_cause_say(c, f, "%s %s%s%s: %.3f ms per step before, %.3f after (%.1f calls, %.1f)", kind,
		    lg_change_name(x, name, sizeof name),
		    *x->shape ? " " : "", x->shape, x->before, x->after, x->count_before, x->count_after);
		told++;
	}
}

/*
 * What AFTER's verdict has and BEFORE's has not, without a price of its own: a flag, a collective that hangs,
 * a link below its speed. Where steps are no longer than they were it costs nothing that shows.
 */
static void unpriced(struct lg_causes *c, const struct lg_side_finding *s)
{
	const struct lg_finding *g = &c->after->findings[s->row];
	struct lg_finding *f;

	if (!isnan(s->ms) || c->d->other_tool || same_before(c, s) || told(c, s->id) ||
	    (!by_other_process(g) && had_before(c, s->id)))
		return;
	f = finding_copy(c, g);
	if (!f)
		return;
	if (c->d->mean.lo <= 1 && lg_policy(f->rule)->basis != LG_BASIS_HANG)
		lg_cap(f, LG_CAP_GUESS);
	f->title = lg_arena_printf(&c->d->v.arena, "new: %s", g->title);
	lg_cause_say(c, f, "the run before has no such finding%s", c->d->mean.lo <= 1
		     ? "; steps are not surely longer than they were" : "");
	evidence_of(f, g);
}

/*
 * The price of something that is proven to have changed. Where two runs differ so much from step to step
 * that a medium loss may hide in it, the cost is not measured (and the finding stays medium), not nothing.
 */
static double price_change(struct lg_causes *c, struct lg_finding *f, uint32_t set, double *ret_lo)
{
	double half, more = growth(c, set, &half), most = more + half;
	double ms = lg_cause_drain(c, set, ret_lo), mean = c->d->mean_ms[1];

	if (ms > 0 || lg_severity_of(mean > 0 ? most / mean : 0) < LG_SEVERITY_MEDIUM) {
		lg_cause_price(c, f, ms, *ret_lo);
		return ms;
	}
	f->lost_ms = f->lost_share = (double)NAN;
	lg_grade_unpriced(f);
	lg_cause_say(c, f, "not priced, because these two runs vary too much: the stages it touches changed by %+.3f ms "
		     "per step (95 %%: %+.3f to %+.3f), so that it may cost nothing or up to %.3f; compare longer or "
		     "quieter ones", more, more - half, most, most);
	return 0;
}

static bool may_be_priced(struct lg_causes *c, struct lg_finding *f)
{
	size_t before = c->d->before->s.n, after = c->d->after->s.n;

	if (before >= 3 && after >= 3)
		return true;
	lg_cause_say(c, f, "not priced, because %zu and %zu steps can be compared: three on each side would do", before,
		     after);
	return false;
}

static void compile_lost(struct lg_causes *c)
{
	const struct lg_side_compile *b = &c->d->before->compile, *a = &c->d->after->compile;
	const struct lg_finding *g = after_finding(c, "compile.skipped");
	bool regions = b->regions > 0 && !(a->regions > 0.5 * b->regions) && !isnan(a->regions);
	bool frames = b->frames > 0 && a->frames == 0;
	bool told = g && !had_before(c, "compile.skipped") && !(isnan(b->frames) && isnan(b->regions));
	bool not_asked = b->asked && !a->asked && b->frames > 0;
	struct lg_finding *f;
	double ms, lo;

	if (!regions && !frames && !told && !not_asked)
		return;
	f = g ? finding_copy(c, g) : lg_cause_add(c, LG_R_COMPILE_SKIPPED);
	if (!f)
		return;
	c->compile_told = true;
	if (!g) {
		f->confidence = 0.9;
		f->stage = lg_stage_name(LG_STAGE_FORWARD);
		f->culprit.relation = LG_RELATION_SELF;
		f->culprit.pid = f->culprit.tid = c->d->after->ref_pid;
		f->culprit.rank = c->d->after->ref_rank;
		f->title = not_asked ? LG_SAYS_COMPILE_SKIPPED_NOT_CALLED
			   : regions && a->regions > 0 ? LG_SAYS_COMPILE_SKIPPED_FEWER_REGIONS
						       : LG_SAYS_COMPILE_SKIPPED_NO_REGIONS;
	}
	if (regions)
		lg_cause_say(c, f, "compiled regions per step: %.1f before, %.1f after", b->regions, a->regions);
	if (!isnan(b->frames) && !isnan(a->frames))
		lg_cause_say(c, f, "frames compiled by torch._dynamo: %.0f before, %.0f after", b->frames, a->frames);
	if (*a->mode && !*b->mode)
		lg_cause_say(c, f, "dispatch mode active after, not before: %s", a->mode);
	lg_grade_unpriced(f);
	if (may_be_priced(c, f)) {
		uint32_t set = lg_cause_compute_stages(c, *a->mode && !*b->mode);

		ms = price_change(c, f, set, &lo);
		/* What it cost cannot be told from noise: then neither can what else these stages, all of
		 * whose operators are other ones now, would have lost. */
		empty(c, set);
		if (ms > 0)
			lg_cause_say(c, f, "own time of the stages it touches: %+.3f ms per step, at least %+.3f", ms, lo);
		else if (!isnan(f->lost_ms))
			lg_cause_say(c, f, "it costs no more than the noise between these two runs");
		lg_cause_share(c, f->title, f->id, ms);
	}
	if (g)
		evidence_of(f, g);
	lg_cause_top_items(c, f, "op");
	lg_cause_top_items(c, f, "kernel");
}

static void compile_gained(struct lg_causes *c)
{
	const struct lg_side_compile *b = &c->d->before->compile, *a = &c->d->after->compile;

	if ((a->regions > 0 && b->regions == 0) || (a->frames > 0 && b->frames == 0))
		lg_cause_share(c, "compiled regions gained (their effect is in the stages)", NULL, 0);
}

static void debug_left_on(struct lg_causes *c)
{
	const struct lg_finding *g = after_finding(c, "debug.left_on");
	struct lg_finding *f;
	double ms, lo;

	if (!g || had_before(c, "debug.left_on"))
		return;
	f = finding_copy(c, g);
	if (!f)
		return;
	lg_grade_unpriced(f);
	if (c->compile_told) {
		lg_cause_say(c, f, "not there before; its cost is part of the lost compilation's");
	} else if (may_be_priced(c, f)) {
		ms = price_change(c, f, lg_cause_compute_stages(c, true), &lo);
		if (!isnan(f->lost_ms))
			lg_cause_say(c, f, "not there before; the stages' own time grew by %.3f ms per step", ms);
		lg_cause_share(c, f->title, f->id, ms);
	}
	evidence_of(f, g);
}

static int cmp_share(const void *a, const void *b)
{
	const struct lg_share *x = a, *y = b;

	return x->rare - y->rare ?: LG_CMP(fabs(y->ms), fabs(x->ms));
}

/*
 * A host that runs ahead of its device waits for it sooner or later: what it does longer in one stage it
 * waits less in another. Only by what is left of all together is the step longer, and that is as sure as the
 * sum is: where in its step a host waits may be anywhere, the step as long as ever.
 */
static int settle_stages(struct lg_causes *c)
{
	const struct lg_series *b = &c->d->before->s, *a = &c->d->after->s;
	double more = 0, less = 0, left, half;
	struct lg_bootstrap r;

	if (!lg_bootstrap(b->clean[0], b->n, a->clean[0], a->n, &r))
		return LG_E_NOMEM;
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		*(c->pool[g] > 0 ? &more : &less) += fabs(c->pool[g]);
	left = fabs(more - less);
	half = (more - less) - r.delta_lo;
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++) {
		double of = c->pool[g] > 0 ? more : less;
		double rest = of > 0 ? fmax(0, 2 * of - more - less) / of : 0;
		double own = (c->pool[g] - c->lo[g]) * rest;

		c->pool[g] *= rest;
		c->half[g] = left > 0 ? fmin(own, half * fabs(c->pool[g]) / left) : 0;
		c->lo[g] = c->pool[g] - c->half[g];
	}
	c->together = true;
	if (!(c->d->mean.lo > 1) && r.delta_hi > more - less)
		c->slack = fmax(0, r.delta_hi) - fmax(0, more - less);
	return 0;
}

/* By how much each stage's own time grew. */
static int fill_pools(struct lg_causes *c)
{
	const struct lg_diff *d = c->d;

	for (size_t i = 0; i < d->n_stages; i++) {
		uint32_t g = lg_cause_stage(d->stages[i].name);

		c->pool[g] = d->stages[i].delta;
		c->lo[g] = d->stages[i].lo;
		c->half[g] = d->stages[i].delta - d->stages[i].lo;
		c->before[g] = d->stages[i].before;
	}
	return d->n_stages && d->after->has_device ? settle_stages(c) : 0;
}

int lg_diff_causes(struct lg_diff *d, const struct lg_verdict *after_v)
{
	struct lg_causes c = { .d = d, .after = after_v };
	const struct lg_side *a = d->after;
	struct portion *portion = lg_arena_alloc(&d->v.arena, a->n_findings + 1, sizeof *portion);

	d->v.findings = lg_arena_alloc(&d->v.arena, FINDINGS_MAX, sizeof *d->v.findings);
	d->shares = lg_arena_alloc(&d->v.arena, SHARES_MAX, sizeof *d->shares);
	if (!d->v.findings || !d->shares || !portion)
		return LG_E_NOMEM;
	d->v.n_findings = 0;
	if (fill_pools(&c))
		return LG_E_NOMEM;
	/* Unmeasured and compiled first: they explain whole stages; then the verdict's own causes. */
	for (size_t i = 0; after_v && i < a->n_findings; i++)
		if (in_host(a->findings[i].id) && !isnan(a->findings[i].ms))
			measured(&c, &a->findings[i], (struct portion){ 0 });
	gone(&c);
	more_work(&c);
	if (after_v)
		draw_beside(&c, portion);
	compile_lost(&c);
	compile_gained(&c);
	debug_left_on(&c);
	lg_causes_memory(&c);
	if (after_v)
		draw_measured(&c, portion);
	for (size_t i = 0; after_v && i < a->n_findings; i++)
		if (!in_host(a->findings[i].id))
			measured(&c, &a->findings[i], portion[i]);
	lg_causes_rest(&c);
	if (lg_causes_determinism(&c))
		return LG_E_NOMEM;
	for (size_t i = 0; after_v && i < a->n_findings; i++)
		unpriced(&c, &a->findings[i]);
	lg_findings_calibrate(&d->v);
	lg_findings_rank(&d->v);
	if (d->n_shares)
		qsort(d->shares, d->n_shares, sizeof *d->shares, cmp_share);
	lg_diff_headline(d);
	lg_diff_gate(d);
	return d->v.arena.failed ? LG_E_NOMEM : 0;
}
