/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - see facts.h. */
#include "analyse/hook/facts.h"

#include "analyse/chains/culprit.h"

double lg_fact_share(const struct lg_case *c, lg_prc prc, const char *key, int64_t from, int64_t to)
{
	const struct lg_meta_tab *m = &c->t->meta;
	int64_t on = 0, since = from;
	bool is_on = false;

	LG_LISTED(i, c->idx->meta, prc) {
		int64_t ts;

		if (strcmp(lg_string(c->t, m->key[i]), key))
			continue;
		ts = m->ts[i] < from ? from : m->ts[i] > to ? to : m->ts[i];
		if (is_on)
			on += ts - since;
		since = ts;
		is_on = strcmp(lg_string(c->t, m->value[i]), "0") != 0;
	}
	if (is_on)
		on += to - since;
	return to > from ? (double)on / (double)(to - from) : 0;
}

struct lg_finding *lg_fact_finding(struct lg_case *c, struct lg_finding **f, const struct lg_rank *r,
				   enum lg_rule_id rule, double confidence)
{
	bool first = !*f;

	if (first)
		*f = lg_finding_add(c, rule);
	if (!*f)
		return NULL;
	if (first) {
		lg_culprit_identify(c, *f, r->thr, r->thr);
		lg_grade_unpriced(*f);
		(*f)->stage = lg_stage_name(LG_STAGE_FORWARD);
		(*f)->confidence = confidence;
	}
	lg_victim_add(c, *f, c->n_ranks, r->rank, r->prc, r->thr);
	return first ? *f : NULL;
}

struct lg_fact_span lg_fact_window(const struct lg_case *c, const struct lg_rank *r)
{
	struct lg_fact_span j = { 0 };

	LG_EACH(s, &c->v->steps[r->step_first], r->n_steps) {
		if (s->warmup)
			continue;
		if (!j.n++)
			j.from = s->ts;
		j.to = s->ts + s->dur;
	}
	return j;
}
