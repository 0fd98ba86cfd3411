/* SPDX-License-Identifier: Apache-2.0 */
/* finding.c - findings and their evidence, and what else is told of a run. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "analyse/chains/tally.h"
#include "base/agree.h"

struct lg_finding lg_finding_blank(enum lg_rule_id rule)
{
	struct lg_finding f = { .rule = rule, .id = lg_policy(rule)->id, .lost_ms = NAN, .lost_share = NAN,
				.excess_share = NAN, .cost_per_hour = NAN, .strength = NAN, .title = "" };

	f.culprit.pid = f.culprit.tid = f.culprit.rank = -1;
	return f;
}

static struct lg_finding *told_by(const struct lg_verdict *v, size_t n, enum lg_rule_id rule)
{
	for (size_t i = 0; i < n; i++)
		if (v->findings[i].rule == rule)
			return &v->findings[i];
	return NULL;
}

struct lg_finding *lg_told(const struct lg_case *c, enum lg_rule_id rule)
{
	return told_by(c->v, c->v->n_findings, rule);
}

bool lg_is_told(const struct lg_case *c, enum lg_rule_id rule)
{
	bool told = lg_told(c, rule);
	enum lg_rule_id other;

	for (size_t n = 0; !told && (other = lg_rule_yields(rule, n)); n++)
		told = lg_told(c, other);
	return told;
}

/* Is it one that the finder who is asked does not tell again (registry.c)? */
static bool is_left_to_others(const struct lg_case *c, enum lg_rule_id rule)
{
	for (const enum lg_rule_id *y = c->yields; y && *y; y++)
		if (*y == rule)
			return told_by(c->v, c->told_before, rule);
	return false;
}

struct lg_finding *lg_finding_add(struct lg_case *c, enum lg_rule_id rule)
{
	struct lg_verdict *v = c->v;
	struct lg_finding *f;

	if (is_left_to_others(c, rule))
		return NULL;
	if (v->n_findings == LG_FINDINGS_MAX) {
		c->n_findings_left_out++;
		return NULL;
	}
	f = &v->findings[v->n_findings++];
	*f = lg_finding_blank(rule);
	f->evidence = lg_arena_alloc(&v->arena, LG_EVIDENCE_MAX, sizeof *f->evidence);
	f->against = lg_arena_alloc(&v->arena, LG_EVIDENCE_MAX, sizeof *f->against);
	if (!f->evidence || !f->against) {
		v->n_findings--;
		return NULL;
	}
	return f;
}

struct lg_finding *lg_finding_or_scrap(struct lg_case *c, enum lg_rule_id rule)
{
	struct lg_finding *f = lg_finding_add(c, rule);

	c->scrap = lg_finding_blank(rule);
	return f ?: &c->scrap;
}

struct lg_finding *lg_finding_about(struct lg_case *c, enum lg_rule_id rule, uint32_t stage,
				    enum lg_relation culprit, double confidence)
{
	struct lg_finding *f = lg_finding_or_scrap(c, rule);

	lg_grade_unpriced(f);
	f->confidence = confidence;
	f->stage = stage ? lg_stage_name(stage) : NULL;
	f->culprit.relation = culprit;
	return f;
}

void lg_evidence_put(struct lg_case *c, struct lg_finding *f, bool against, int64_t ts, int64_t dur,
		     const char *fmt, ...)
{
	struct lg_evidence *list = against ? f->against : f->evidence;
	size_t *n = against ? &f->n_against : &f->n_evidence;
	char text[1024];
	va_list ap;

	if (*n == LG_EVIDENCE_MAX) {
		(*(against ? &f->against_left_out : &f->evidence_left_out))++;
		return;
	}
	va_start(ap, fmt);
	lg_vagree(text, sizeof text, fmt, ap);
	va_end(ap);
	if (list) /* of c->scrap there is none */
		list[(*n)++] = (struct lg_evidence){
			.text = lg_arena_strdup(&c->v->arena, text), .ts = ts, .dur = dur };
}

void lg_culprit_rank_add(struct lg_case *c, struct lg_finding *f, int32_t rank)
{
	int32_t *v = lg_arena_room(&c->v->arena, f->culprit_ranks, f->n_culprit_ranks, sizeof *v);

	if (!v)
		return;
	f->culprit_ranks = v;
	v[f->n_culprit_ranks++] = rank;
}

void lg_limit(struct lg_case *c, const char *text)
{
	const char **v = lg_arena_room(&c->v->arena, c->v->limits, c->v->n_limits, sizeof *v);

	if (!v)
		return;
	c->v->limits = v;
	v[c->v->n_limits++] = text;
}

void lg_not_judged(struct lg_case *c, const char *what, const char *example)
{
	enum { IN_HEADLINE = 3 };
	struct lg_verdict *v = c->v;

	if (v->n_not_judged++ < IN_HEADLINE)
		v->not_judged = !v->not_judged ? what : lg_text(c, "%s, %s", v->not_judged, what);
	if (example)
		lg_say(c, "no rule judges %s%s%s", what, *example ? ": " : "", example);
}

void lg_explains_excess(struct lg_verdict *v, const struct lg_finding *f)
{
	if (isfinite(v->unexplained_share) && isfinite(f->excess_share))
		v->unexplained_share = fmax(0, v->unexplained_share - f->excess_share);
}

void lg_bound_by_data(struct lg_case *c, double share, const char *why)
{
	if (c->v->bound != LG_BOUND_NONE || share < LG_N_BOUND_CAUSE)
		return;
	c->v->bound = LG_BOUND_DATA;
	c->v->bound_confidence = LG_N_BOUND_SURE_WAITS;
	c->v->bound_why = why;
}

void lg_victim_add(struct lg_case *c, struct lg_finding *f, size_t at_most, int32_t rank, lg_prc p,
		   lg_thr thr)
{
	if (!f->victims)
		f->victims = lg_arena_alloc(&c->v->arena, at_most, sizeof *f->victims);
	if (f->victims && f->n_victims < at_most)
		f->victims[f->n_victims++] = (typeof(*f->victims)){
			.rank = rank, .pid = c->t->process.pid[p], .tid = c->t->thread.tid[thr] };
}

const char *lg_ranges_text(struct lg_case *c, const int64_t *v, size_t n, size_t at_most, size_t *ret_n)
{
	const char *text = "";
	size_t ranges = 0;

	*ret_n = 0;
	LG_EACH_RUN(i, j, 0, n, v[j] <= v[j - 1] + 1) {
		*ret_n += (size_t)(v[j - 1] - v[i]) + 1;
		if (ranges++ < at_most)
			text = v[j - 1] > v[i] ? lg_text(c, "%s%s%lld-%lld", text,
							 *text ? ", " : "", (long long)v[i],
							 (long long)v[j - 1])
				: lg_text(c, "%s%s%lld", text, *text ? ", " : "", (long long)v[i]);
	}
	return ranges > at_most ? lg_text(c, "%s ...", text) : text;
}
