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

#include "diff/diff.h"

enum { FINDINGS_MAX = 64, EVIDENCE_MAX = 12, SHARES_MAX = 64, PROCESSES_TOLD = 5, FACTS_TOLD = 8 };

struct causes {
	struct lg_diff *d;
	const struct lg_verdict *after;
	double pool[LG_STAGE_MAX], lo[LG_STAGE_MAX]; /* ms per step; lower bound of the interval */
	double told;    /* ms per step that findings account for */
	bool compile_told;
};

static const char *severity_of(double share)
{
	return share >= 0.10 ? "high" : share >= 0.03 ? "medium" : share >= 0.01 ? "low" : "info";
}

static int level(const char *severity)
{
	return !strcmp(severity, "high") ? 3 : !strcmp(severity, "medium") ? 2 : !strcmp(severity, "low");
}

static struct lg_finding *finding_add(struct causes *c, const char *id)
{
	struct lg_verdict *v = &c->d->v;
	struct lg_finding *f;

	if (v->n_findings == FINDINGS_MAX)
		return NULL;
	f = &v->findings[v->n_findings];
	*f = (struct lg_finding){ .id = id, .severity = "info", .lost_ms = NAN, .lost_share = NAN,
				  .excess_share = NAN, .cost_per_hour = NAN, .title = "" };
	f->culprit.pid = f->culprit.tid = f->culprit.rank = -1;
	f->evidence = lg_arena_alloc(&v->arena, EVIDENCE_MAX, sizeof *f->evidence);
	if (!f->evidence)
		return NULL;
	v->n_findings++;
	return f;
}

static void say(struct causes *c, struct lg_finding *f, const char *fmt, ...) LG_PRINTF(3, 4);
static void say(struct causes *c, struct lg_finding *f, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (f->n_evidence == EVIDENCE_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	f->evidence[f->n_evidence++] = (struct lg_evidence){
		.text = lg_arena_strdup(&c->d->v.arena, text), .ts = INT64_MIN };
}

/* What it costs: ms per step, at least lo of it for sure. */
static void price(struct causes *c, struct lg_finding *f, double ms, double lo)
{
	double mean = c->d->mean_ms[1];

	f->lost_ms = ms * (double)c->d->after->s.n;
	f->lost_share = mean > 0 ? ms / mean : (double)NAN;
	f->severity = severity_of(mean > 0 ? lo / mean : 0);
	c->told += ms;
}

static void share_add(struct causes *c, const char *what, const char *id, double ms)
{
	struct lg_diff *d = c->d;
	bool sure = d->mean.lo > 1 || d->mean.hi < 1;

	if (d->n_shares < SHARES_MAX)
		d->shares[d->n_shares++] = (struct lg_share){
			what, id, ms, sure && d->delta_ms != 0 ? ms / d->delta_ms : (double)NAN };
}

static const struct lg_side_finding *same_before(const struct causes *c, const struct lg_side_finding *f)
{
	const struct lg_side *b = c->d->before;

	for (size_t i = 0; i < b->n_findings; i++)
		if (!strcmp(b->findings[i].id, f->id) && !strcmp(b->findings[i].key, f->key))
			return &b->findings[i];
	return NULL;
}

static const struct lg_holder_change *holder_of(const struct causes *c, int32_t pid)
{
	for (size_t i = 0; i < c->d->n_holders; i++)
		if (c->d->holders[i].pid == pid && c->d->holders[i].ms_after > 0)
			return &c->d->holders[i];
	return NULL;
}

static uint32_t stage_number(const char *name)
{
	for (uint32_t g = 1; name && g < LG_STAGE_MAX; g++)
		if (!strcmp(lg_stage_name(g), name))
			return g;
	return LG_STAGE_OTHER;
}

/* A copy of a finding of AFTER's verdict with room for more evidence. */
static struct lg_finding *finding_copy(struct causes *c, const struct lg_finding *g)
{
	struct lg_finding *f = finding_add(c, g->id);
	struct lg_evidence *room;

	if (!f)
		return NULL;
	room = f->evidence;
	*f = *g;
	f->evidence = room;
	f->n_evidence = 0;
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
	return !strcmp(id, "host.lock_held") || !strcmp(id, "host.cpu_contention") ||
	       !strcmp(id, "host.oversubscribed") || !strcmp(id, "host.io_wait") ||
	       !strcmp(id, "host.stopped");
}

static const struct lg_process_change *new_process(const struct causes *c, int32_t pid)
{
	for (size_t i = 0; i < c->d->n_processes; i++)
		if (!c->d->processes[i].gone && c->d->processes[i].p->pid == pid)
			return &c->d->processes[i];
	return NULL;
}

/* A measured cause that AFTER has and BEFORE has not, or has less of. */
static void measured(struct causes *c, const struct lg_side_finding *s)
{
	const struct lg_finding *g = &c->after->findings[s->row];
	const struct lg_side_finding *was = same_before(c, s);
	double before = was && !isnan(was->ms) ? was->ms : 0, delta = s->ms - before;
	const struct lg_holder_change *h = holder_of(c, g->culprit.pid);
	struct lg_finding *f;

	if (!in_host(s->id)) {
		double *pool = &c->pool[stage_number(g->stage)];

		/* Its time lies in the stage's own: never more than the stage grew by. */
		delta = fmin(delta, fmax(*pool, 0));
		if (delta < 0.01 * c->d->mean_ms[1])
			return;
		*pool -= delta;
	}
	if (delta < 0.01 * c->d->mean_ms[1])
		return;
	f = finding_copy(c, g);
	if (!f)
		return;
	price(c, f, delta, delta);
	if (level(g->severity) < level(f->severity))
		f->severity = g->severity; /* too few episodes stay too few */
	f->confidence = g->confidence * (c->d->before->has_states || !in_host(s->id) ? 1 : 0.8);
	f->title = before > 0
		? lg_arena_printf(&c->d->v.arena, "%s (%.2f ms per step, %.2f before)", g->title, s->ms, before)
		: lg_arena_printf(&c->d->v.arena, "new: %s (%.2f ms per step)", g->title, s->ms);
	if (before <= 0 && !c->d->before->has_states && in_host(s->id))
		say(c, f, "the run before recorded no scheduler states: it could not have shown this");
	else if (before <= 0)
		say(c, f, "the run before lost nothing to it in %zu steps", c->d->before->s.n);
	else
		say(c, f, "lost per step: %.3f ms before, %.3f ms after", before, s->ms);
	if (new_process(c, g->culprit.pid))
		say(c, f, "this process was not there before: %s", new_process(c, g->culprit.pid)->p->cmdline);
	if (h && !isnan(h->period_after))
		say(c, f, "it holds the %s every %.3f s%s", h->lock, h->period_after,
		    isnan(h->period_before) ? "; it did not before" :
		    lg_arena_printf(&c->d->v.arena, "; every %.3f s before", h->period_before));
	evidence_of(f, g);
	share_add(c, f->title, f->id, delta);
}

/* Causes that BEFORE had and AFTER has not: they hide a part of what got worse. */
static void gone(struct causes *c)
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
			share_add(c, lg_arena_printf(&c->d->v.arena, "%s: %s (%s)", now > 0 ? "less" : "gone",
						     s->id, s->key), NULL, now - s->ms);
	}
}

/* Take what the stages of the set grew by (net). Returns ms per step, *ret_lo its lower bound. */
static double drain(struct causes *c, uint32_t set, double *ret_lo)
{
	double ms = 0, var = 0;

	for (uint32_t g = 1; g < LG_STAGE_MAX; g++) {
		if (!(set & 1u << g) || c->pool[g] == 0)
			continue;
		ms += c->pool[g];
		var += (c->pool[g] - c->lo[g]) * (c->pool[g] - c->lo[g]);
	}
	*ret_lo = ms - sqrt(var);
	if (!(*ret_lo > 0))
		return 0; /* not more than noise: stays where it is */
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		if (set & 1u << g)
			c->pool[g] = c->lo[g] = 0;
	return ms;
}

/* The stages in which the model computes; all of them where the input knows no stages. */
static uint32_t compute_stages(const struct causes *c, bool every_operator)
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

static const struct lg_finding *after_finding(const struct causes *c, const char *id)
{
	for (size_t i = 0; c->after && i < c->after->n_findings; i++)
		if (!strcmp(c->after->findings[i].id, id))
			return &c->after->findings[i];
	return NULL;
}

static bool had_before(const struct causes *c, const char *id)
{
	for (size_t i = 0; i < c->d->before->n_findings; i++)
		if (!strcmp(c->d->before->findings[i].id, id))
			return true;
	return false;
}

static void top_items(struct causes *c, struct lg_finding *f, const char *kind)
{
	size_t told = 0;

	for (size_t i = 0; i < c->d->n_items && told < 3; i++) {
		const struct lg_change *x = &c->d->items[i];

		if (strcmp(x->kind, kind) || !x->sure || x->delta <= 0)
			continue;
		say(c, f, "%s %s%s%s: %.3f ms per step before, %.3f after (%.1f calls, %.1f)", kind, x->name,
		    *x->shape ? " " : "", x->shape, x->before, x->after, x->count_before, x->count_after);
		told++;
	}
}

static void compile_lost(struct causes *c)
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
	f = g ? finding_copy(c, g) : finding_add(c, "compile.skipped");
	if (!f)
		return;
	c->compile_told = true;
	if (!g) {
		f->confidence = 0.9;
		f->stage = lg_stage_name(LG_STAGE_FORWARD);
		f->culprit.relation = "self";
		f->culprit.pid = f->culprit.tid = c->d->after->ref_pid;
		f->culprit.rank = c->d->after->ref_rank;
		f->title = not_asked ? "torch.compile was used before and is not called any more: the module runs eagerly"
			   : regions && a->regions > 0
			   ? "part of the compiled regions is gone: their operators run eagerly"
			   : "the compiled regions are gone: their operators run eagerly";
	}
	if (regions)
		say(c, f, "compiled regions per step: %.1f before, %.1f after", b->regions, a->regions);
	if (!isnan(b->frames) && !isnan(a->frames))
		say(c, f, "frames compiled by torch._dynamo: %.0f before, %.0f after", b->frames, a->frames);
	if (*a->mode && !*b->mode)
		say(c, f, "dispatch mode active after, not before: %s", a->mode);
	f->severity = "medium";
	if (c->d->before->s.n >= 3 && c->d->after->s.n >= 3) {
		ms = drain(c, compute_stages(c, *a->mode && !*b->mode), &lo);
		price(c, f, ms, lo);
		if (ms > 0)
			say(c, f, "own time of the stages it touches: %+.3f ms per step, at least %+.3f", ms, lo);
		else
			say(c, f, "it costs no more than the noise between these two runs");
		share_add(c, f->title, f->id, ms);
	}
	if (g)
		evidence_of(f, g);
	top_items(c, f, "op");
	top_items(c, f, "kernel");
}

static void compile_gained(struct causes *c)
{
	const struct lg_side_compile *b = &c->d->before->compile, *a = &c->d->after->compile;

	if ((a->regions > 0 && b->regions == 0) || (a->frames > 0 && b->frames == 0))
		share_add(c, "compiled regions gained (their effect is in the stages)", NULL, 0);
}

static void debug_left_on(struct causes *c)
{
	const struct lg_finding *g = after_finding(c, "debug.left_on");
	struct lg_finding *f;
	double ms, lo;

	if (!g || had_before(c, "debug.left_on"))
		return;
	f = finding_copy(c, g);
	if (!f)
		return;
	f->severity = "medium";
	if (c->compile_told) {
		say(c, f, "not there before; its cost is part of the lost compilation's");
	} else if (c->d->before->s.n >= 3 && c->d->after->s.n >= 3) {
		ms = drain(c, compute_stages(c, true), &lo);
		price(c, f, ms, lo);
		say(c, f, "not there before; the stages' own time grew by %.3f ms per step", ms);
		share_add(c, f->title, f->id, ms);
	}
	evidence_of(f, g);
}

/* ---- memory bought with time ---- */

static double count_of(const struct lg_side *s, uint8_t kind, const char *part)
{
	double n = 0;

	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i].kind == kind && strstr(s->items[i].name, part))
			n += s->items[i].count;
	return n;
}

/* aten::native_layer_norm and the n bytes "NativeLayerNorm"? */
static bool same_operator(const char *forward, const char *backward, size_t n)
{
	size_t m = 0;

	if (strncmp(forward, "aten::", 6))
		return false;
	for (forward += 6; *forward; forward++) {
		if (*forward == '_')
			continue;
		if (m == n || (*forward | 32) != (backward[m] | 32))
			return false;
		m++;
	}
	return m == n;
}

/* "AddmmBackward0" is the backward of aten::addmm: how often does each forward operator run for
 * one backward? With recomputation twice, without it once. */
static double forwards_per_backward(const struct lg_side *s)
{
	double forward = 0, backward = 0;

	for (size_t i = 0; i < s->n_items; i++) {
		const struct lg_item *b = &s->items[i];
		const char *end = strstr(b->name, "Backward0");
		size_t n = end ? (size_t)(end - b->name) : 0;

		/* "autograd::engine::evaluate_function: AddmmBackward0" encloses the operator itself. */
		if (b->kind != LG_ITEM_OP || !n || end[9] || strchr(b->name, ':'))
			continue;
		backward += b->count;
		/* Rows of one name and several shapes stand together: look for the forward once. */
		for (size_t k = 0; k < s->n_items && !(i && !strcmp(s->items[i - 1].name, b->name)); k++)
			if (s->items[k].kind == LG_ITEM_OP && same_operator(s->items[k].name, b->name, n))
				forward += s->items[k].count;
	}
	return backward > 0 ? forward / backward : (double)NAN;
}

static void memory_change(struct causes *c, const char *detail, const char *title, uint32_t set,
			  const char *proof)
{
	double lo, ms = drain(c, set, &lo);
	struct lg_finding *f;

	if (ms < 0.01 * c->d->mean_ms[1])
		return; /* bought for nothing measurable: no news */
	f = finding_add(c, "regress.memory_saving");
	if (!f)
		return;
	f->detail = detail;
	f->confidence = 0.85;
	f->title = lg_arena_printf(&c->d->v.arena, "%s: %.2f ms per step", title, ms);
	price(c, f, ms, lo);
	say(c, f, "%s", proof);
	top_items(c, f, "op");
	top_items(c, f, "kernel");
	share_add(c, f->title, f->id, ms);
}

static void memory_saving(struct causes *c)
{
	const struct lg_side *b = c->d->before, *a = c->d->after;
	double x = count_of(b, LG_ITEM_OP, "Checkpoint"), y = count_of(a, LG_ITEM_OP, "Checkpoint");
	double p = forwards_per_backward(b), q = forwards_per_backward(a);
	double gb = count_of(b, LG_ITEM_COLLECTIVE, "gather") + count_of(b, LG_ITEM_COLLECTIVE, "scatter");
	double ga = count_of(a, LG_ITEM_COLLECTIVE, "gather") + count_of(a, LG_ITEM_COLLECTIVE, "scatter");
	double sb = count_of(b, LG_ITEM_STAGE_CALL, "backward"), sa = count_of(a, LG_ITEM_STAGE_CALL, "backward");
	struct lg_arena *ar = &c->d->v.arena;
	uint32_t compute = compute_stages(c, false);

	if (b->n_items && ((y > 0 && x <= 0) || q > 1.25 * p))
		memory_change(c, "checkpointing", "activation checkpointing runs forward operators again in the "
			      "backward pass", compute,
			      y > 0 && x <= 0 ? lg_arena_printf(ar, "checkpointed functions per step: 0 before, %.1f after", y)
			      : lg_arena_printf(ar, "forward operators for one of their backward: %.2f before, %.2f "
						"after", p, q));
	if (b->n_items && ga >= 1 && ga > 2 * gb)
		memory_change(c, "sharding", "parameters are sharded now and gathered in every step",
			      1u << LG_STAGE_GRAD_SYNC | 1u << LG_STAGE_FORWARD | 1u << LG_STAGE_BACKWARD,
			      lg_arena_printf(ar, "gathers and scatters per step: %.1f before, %.1f after", gb, ga));
	if (sb > 0 && sa > 1.5 * sb)
		memory_change(c, "accumulation", "gradients are accumulated over more backward passes a step",
			      compute, lg_arena_printf(ar, "backward passes per step: %.1f before, %.1f after", sb, sa));
}

/* ---- what is left ---- */

static double left_over(const struct causes *c)
{
	double sum = 0;

	for (uint32_t g = 1; g < LG_STAGE_MAX; g++)
		sum += c->lo[g] > 0 ? c->pool[g] : 0;
	return sum;
}

static void take_evenly(struct causes *c, double ms)
{
	double sum = left_over(c);

	for (uint32_t g = 1; g < LG_STAGE_MAX && sum > 0; g++)
		if (c->lo[g] > 0) {
			double rest = 1 - ms / sum;

			c->pool[g] *= rest;
			c->lo[g] *= rest;
		}
}

static void operators(struct causes *c)
{
	for (size_t i = 0; i < c->d->n_items; i++) {
		const struct lg_change *x = &c->d->items[i];
		double ms = fmin(x->delta, left_over(c));
		struct lg_finding *f;

		if ((strcmp(x->kind, "op") && strcmp(x->kind, "kernel")) || !x->sure || x->delta <= 0)
			continue;
		if (ms < 0.03 * c->d->mean_ms[1])
			continue; /* a stage's finding lists the small ones */
		f = finding_add(c, "regress.op");
		if (!f)
			return;
		f->confidence = 0.85;
		f->detail = x->kind;
		f->culprit.relation = "self";
		f->culprit.function = x->name;
		f->title = x->before > 0
			? lg_arena_printf(&c->d->v.arena, "%s %s takes %.3f ms per step, %.3f before", x->kind,
					  x->name, x->after, x->before)
			: lg_arena_printf(&c->d->v.arena, "%s %s is new: %.3f ms per step", x->kind, x->name,
					  x->after);
		price(c, f, ms, fmin(ms, x->lo));
		say(c, f, "calls per step: %.2f before, %.2f after%s%s", x->count_before, x->count_after,
		    *x->shape ? "; shape " : "", x->shape);
		say(c, f, "95 %% interval of the difference: %+.3f to %+.3f ms per step", x->lo, x->hi);
		take_evenly(c, ms);
		share_add(c, f->title, f->id, ms);
	}
}

static void stages(struct causes *c)
{
	for (size_t i = 0; i < c->d->n_stages; i++) {
		const struct lg_change *x = &c->d->stages[i];
		uint32_t g = stage_number(x->name);
		struct lg_finding *f;

		if (!(c->lo[g] > 0) || c->pool[g] < 0.01 * c->d->mean_ms[1]) {
			if (c->pool[g] != 0 && x->sure && fabs(c->pool[g]) >= 0.005 * c->d->mean_ms[1])
				share_add(c, lg_arena_printf(&c->d->v.arena, "%s: own time", x->name), NULL, c->pool[g]);
			continue;
		}
		f = finding_add(c, "regress.stage");
		if (!f)
			return;
		f->confidence = 0.8;
		f->stage = x->name;
		f->culprit.relation = "self";
		f->title = c->d->n_stages > 1
			? lg_arena_printf(&c->d->v.arena, "stage %s takes %.2f ms of its own per step, %.2f before",
					  x->name, x->after, x->before)
			: lg_arena_printf(&c->d->v.arena, "a step takes %.2f ms of its own, %.2f before", x->after,
					  x->before);
		price(c, f, c->pool[g], c->lo[g]);
		say(c, f, "95 %% interval of the difference: %+.3f to %+.3f ms per step (block bootstrap over "
		    "%zu and %zu steps)", x->lo, x->hi, c->d->before->s.n, c->d->after->s.n);
		top_items(c, f, "function");
		share_add(c, f->title, f->id, c->pool[g]);
	}
}

static void facts(struct causes *c, double unexplained)
{
	struct lg_diff *d = c->d;
	struct lg_finding *f;
	const char *list = "";
	size_t n = 0;

	if (!d->n_facts)
		return;
	for (size_t i = 0; i < d->n_facts && n < FACTS_TOLD; i++, n++)
		list = lg_arena_printf(&d->v.arena, "%s%s%s", list, n ? ", " : "", d->facts[i].key);
	f = finding_add(c, "regress.version");
	if (!f)
		return;
	f->confidence = unexplained >= 0.03 * d->mean_ms[1] ? 0.5 : 0.3;
	f->culprit.relation = "self";
	f->title = lg_arena_printf(&d->v.arena, "versions, flags or environment changed: %s%s", list,
				   d->n_facts > n ? " ..." : "");
	/* What a fact costs alone cannot be measured here. It is worth an alarm only when time was
	 * lost that nothing else accounts for. */
	f->severity = unexplained >= 0.03 * d->mean_ms[1] ? "medium" : "info";
	for (size_t i = 0; i < d->n_facts; i++)
		say(c, f, "%s: %s before, %s after", d->facts[i].key,
		    d->facts[i].before ? d->facts[i].before : "not told",
		    d->facts[i].after ? d->facts[i].after : "not told");
	if (f->severity[0] == 'm')
		say(c, f, "%.3f ms per step have no other explanation; change them back one at a time to measure "
		    "each", unexplained);
}

static void processes(struct causes *c)
{
	struct lg_diff *d = c->d;
	size_t told = 0;

	for (size_t i = 0; i < d->n_processes && told < PROCESSES_TOLD; i++) {
		const struct lg_side_process *p = d->processes[i].p;
		struct lg_finding *f;
		bool known = d->processes[i].gone;

		for (size_t k = 0; k < d->v.n_findings; k++)
			known |= d->v.findings[k].culprit.pid == p->pid;
		if (known)
			continue;
		f = finding_add(c, "regress.process");
		if (!f)
			return;
		told++;
		f->confidence = 0.9;
		f->culprit.relation = "other_process";
		f->culprit.pid = p->pid;
		f->culprit.comm = p->comm;
		f->culprit.cmdline = p->cmdline;
		f->title = lg_arena_printf(&d->v.arena, "%s (pid %d) runs now and did not before; no lost time "
					   "leads to it", p->comm, p->pid);
		f->lost_ms = f->lost_share = 0;
		say(c, f, "it used %.1f %% of a CPU", p->cpu * 100);
	}
}

static void workload(struct causes *c)
{
	struct lg_diff *d = c->d;
	struct lg_finding *f = d->n_unfair ? finding_add(c, "regress.workload") : NULL;

	if (!f)
		return;
	f->severity = "medium";
	f->confidence = 0.95;
	f->culprit.relation = "self";
	f->title = lg_arena_printf(&d->v.arena, "the two runs did not do the same work: %s%s", d->unfair[0],
				   d->n_unfair > 1 ? " ..." : "");
	for (size_t i = 0; i < d->n_unfair; i++)
		say(c, f, "%s", d->unfair[i]);
	if (!isnan(d->samples.value))
		say(c, f, "samples per second: %.3f of what they were (95 %%: %.3f to %.3f)", d->samples.value,
		    d->samples.lo, d->samples.hi);
}

static int cmp_finding(const void *a, const void *b)
{
	const struct lg_finding *x = a, *y = b;

	if (isnan(x->lost_ms) != isnan(y->lost_ms))
		return isnan(x->lost_ms) ? 1 : -1;
	if (!isnan(x->lost_ms) && x->lost_ms != y->lost_ms)
		return x->lost_ms < y->lost_ms ? 1 : -1;
	return strcmp(x->id, y->id);
}

static int cmp_share(const void *a, const void *b)
{
	double x = fabs(((const struct lg_share *)a)->ms), y = fabs(((const struct lg_share *)b)->ms);

	return (x < y) - (x > y);
}

static void rest(struct causes *c)
{
	struct lg_diff *d = c->d;
	double sum = 0, left;
	struct lg_finding *f;

	for (size_t i = 0; i < d->n_shares; i++)
		sum += d->shares[i].ms;
	left = d->delta_ms - sum;
	if (d->mean.lo - 1 > 0.03 && left > 0.03 * d->mean_ms[1] && left > 0.3 * d->delta_ms &&
	    (f = finding_add(c, "regress.step"))) {
		f->confidence = 0.7;
		f->title = lg_arena_printf(&d->v.arena, "steps take %.2f ms longer and these inputs do not show why",
					   left);
		price(c, f, left, fmin(left, (d->mean.lo - 1) * d->mean_ms[0]));
		say(c, f, "mean step: %.3f ms before, %.3f after; median %.3f and %.3f", d->mean_ms[0],
		    d->mean_ms[1], d->median_ms[0], d->median_ms[1]);
		share_add(c, f->title, f->id, left);
	} else if (fabs(left) >= 0.002 * d->mean_ms[1]) {
		share_add(c, "not explained", NULL, left);
	}
}

static const char *headline(const struct lg_diff *d, struct lg_arena *a)
{
	const char *what, *cause = "";
	double p = (d->mean.value - 1) * 100;
	size_t n = 0;

	if (isnan(d->mean.value))
		return "No repeating steps in one of the two inputs: only what they are can be compared.";
	if (isnan(d->mean.lo))
		what = "Too few steps to say whether the step time changed";
	else if (d->mean.lo > 1 || d->median.lo > 1)
		what = lg_arena_printf(a, "%.1f %% slower", p > 0 || !(d->median.lo > 1) ? p
				       : (d->median.value - 1) * 100);
	else if (d->mean.hi < 1)
		what = lg_arena_printf(a, "%.1f %% faster", -p);
	else
		what = "No change beyond the noise";
	while (n < d->v.n_findings && level(d->v.findings[n].severity) >= 2)
		n++;
	if (n)
		cause = lg_arena_printf(a, " Most of it: %s%s", d->v.findings[0].title,
					n > 1 ? lg_arena_printf(a, " (and %zu more finding%s).", n - 1, n > 2 ? "s" : "")
					      : ".");
	return lg_arena_printf(a, "%s: mean step %.3f ms before, %.3f ms after (95 %%: %+.1f to %+.1f %%); "
			       "median %.3f and %.3f.%s", what, d->mean_ms[0], d->mean_ms[1],
			       (d->mean.lo - 1) * 100, (d->mean.hi - 1) * 100, d->median_ms[0],
			       d->median_ms[1], cause);
}

static void gate(struct lg_diff *d)
{
	struct lg_arena *a = &d->v.arena;
	struct lg_ratio m = d->mean, q = d->median;
	const char *of = "step time";

	if (isnan(d->gate.limit))
		return;
	/* With another batch size the step time means nothing; the samples per second do. */
	if (d->n_unfair && !isnan(d->samples.value)) {
		m = q = (struct lg_ratio){ 1 / d->samples.value, 1 / d->samples.hi, 1 / d->samples.lo };
		of = "time per sample";
	}
	if (isnan(m.lo) || d->before->s.n < 3 || d->after->s.n < 3) {
		d->gate.verdict = "unknown";
		d->gate.why = "fewer than three judged steps on a side: nothing can be said about the limit";
	} else if (m.lo - 1 > d->gate.limit || q.lo - 1 > d->gate.limit) {
		const struct lg_ratio *r = m.lo - 1 > d->gate.limit ? &m : &q;

		d->gate.verdict = "fail";
		d->gate.why = lg_arena_printf(a, "%s %s grew by %.1f %% (95 %%: %.1f to %.1f %%), over the limit of "
					      "%.1f %%", r == &m ? "mean" : "median", of, (r->value - 1) * 100,
					      (r->lo - 1) * 100, (r->hi - 1) * 100, d->gate.limit * 100);
	} else {
		d->gate.verdict = "pass";
		d->gate.why = lg_arena_printf(a, "mean %s changed by %+.1f %% (95 %%: %+.1f to %+.1f %%)%s %.1f %%", of,
					      (m.value - 1) * 100, (m.lo - 1) * 100, (m.hi - 1) * 100,
					      m.value - 1 > d->gate.limit
					      ? ": the noise does not exclude that it is within" : "; the limit is",
					      d->gate.limit * 100);
	}
}

int lg_diff_causes(struct lg_diff *d, const struct lg_verdict *after_v)
{
	struct causes c = { .d = d, .after = after_v };
	const struct lg_side *a = d->after;
	double unexplained;

	d->v.findings = lg_arena_alloc(&d->v.arena, FINDINGS_MAX, sizeof *d->v.findings);
	d->shares = lg_arena_alloc(&d->v.arena, SHARES_MAX, sizeof *d->shares);
	if (!d->v.findings || !d->shares)
		return LG_E_NOMEM;
	d->v.n_findings = 0;
	for (size_t i = 0; i < d->n_stages; i++) {
		uint32_t g = stage_number(d->stages[i].name);

		c.pool[g] = d->stages[i].delta;
		c.lo[g] = d->stages[i].lo;
	}
	/* Unmeasured and compiled first: they explain whole stages; then the verdict's own causes. */
	for (size_t i = 0; after_v && i < a->n_findings; i++)
		if (in_host(a->findings[i].id) && !isnan(a->findings[i].ms))
			measured(&c, &a->findings[i]);
	gone(&c);
	compile_lost(&c);
	compile_gained(&c);
	debug_left_on(&c);
	memory_saving(&c);
	for (size_t i = 0; after_v && i < a->n_findings; i++)
		if (!in_host(a->findings[i].id) && !isnan(a->findings[i].ms))
			measured(&c, &a->findings[i]);
	unexplained = left_over(&c);
	operators(&c);
	stages(&c);
	rest(&c);
	facts(&c, unexplained);
	processes(&c);
	workload(&c);
	if (d->v.n_findings)
		qsort(d->v.findings, d->v.n_findings, sizeof *d->v.findings, cmp_finding);
	if (d->n_shares)
		qsort(d->shares, d->n_shares, sizeof *d->shares, cmp_share);
	d->headline = headline(d, &d->v.arena);
	gate(d);
	return d->v.arena.failed ? LG_E_NOMEM : 0;
}
