/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/advise.h"

#include <math.h>
#include <string.h>

/* As `laggard rules --json` says it. */
#define BASIS_MEASURED "measured"
#define BASIS_UNMEASURED "fixed"
#define BASIS_HANG "hang"
#define BASIS_LOW "low"
#define BASIS_INFO "info"

/* By rule but for the first, which is none. */
static const struct lg_rule rules[] = {
#define RULE(name, rid, rbasis, rwhose, says, seen, limit, rfix, cost, test, more)                          \
	{ .id = rid, .sentence = says, .signal = seen, .threshold = limit, .basis = BASIS_##rbasis,          \
	  .advice = { rfix, cost, test }, .sources = more },
#include "rules/rules.def"
};

const struct lg_rule *lg_rules(size_t *ret_n)
{
	*ret_n = sizeof rules / sizeof *rules;
	return rules;
}

const struct lg_rule *lg_rule_find(const char *id)
{
	enum lg_rule_id rule = lg_rule_from(id);

	return rule ? &rules[rule - 1] : NULL;
}

/* A cold start comes once: it has no price an hour. */
static bool is_once(const struct lg_finding *f)
{
	return lg_rule_from(f->id) == LG_R_WARMUP_DOMINATES;
}

/*
 * What all losses take together. Findings of one timeline give each moment to one of them and add up. A
 * recording and a profiler's trace of one run are two timelines of the same moments (the device idles
 * because the host is blocked): then the larger sum counts, not both.
 */
static void money(struct lg_verdict *v, double per_hour)
{
	double device = 0, host = 0, lost;
	bool both = v->trace && (v->trace->state.n || v->trace->sample.n);

	if (!(per_hour > 0))
		return;
	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *f = &v->findings[i];

		if (isfinite(f->lost_share) && f->lost_share > 0 && !is_once(f))
			*(lg_policy(lg_rule_from(f->id))->loss_of == LG_LOSS_OF_DEVICE ? &device : &host) +=
				f->lost_share;
	}
	lost = both ? fmax(device, host) : device + host;
	/* All of it can be lost only in theory; the price of an hour done must stay a number. */
	lost = fmin(lost, 0.99);
	v->cost.per_hour = per_hour;
	v->cost.lost_share = lost;
	v->cost.per_training_hour = per_hour / (1 - lost);
}

static const char *join(struct lg_verdict *v, const char *text, const char *says, const char *more)
{
	return !more ? text : lg_arena_printf(&v->arena, "%s%s%s: %s", text ? text : "", text ? " " : "", says, more);
}

static const struct lg_advice *advice_for(const struct lg_finding *f);

/* Each part's own advice, named. */
static void advise_parts(struct lg_verdict *v, struct lg_finding *f)
{
	const char *fix = NULL, *tradeoff = NULL, *confirm = NULL;

	for (size_t i = 0; i < f->n_loss_parts; i++) {
		const struct lg_loss_part *p = &f->loss_parts[i];
		struct lg_finding one = *f;
		const struct lg_advice *a;

		one.detail = p->detail;
		a = advice_for(&one);
		fix = join(v, fix, p->says, a->fix);
		tradeoff = join(v, tradeoff, p->says, a->tradeoff);
		confirm = join(v, confirm, p->says, a->confirm);
	}
	f->fix = f->fix ? f->fix : fix;
	f->tradeoff = f->tradeoff ? f->tradeoff : tradeoff;
	f->confirm = f->confirm ? f->confirm : confirm;
}

/* To set it as the others have it. */
static void advise_setting(struct lg_verdict *v, struct lg_finding *f)
{
	const struct lg_setting *s = f->setting;
	struct lg_arena *a = &v->arena;

	if (!s)
		return;
	f->fix = lg_arena_printf(a, "On %s run `%s` before the job starts (it is %s there, %s on the others): look at the "
				 "image, the launcher's environment and /etc/nccl.conf or ~/.nccl.conf of that host.",
				 s->where, s->others ? lg_arena_printf(a, "export %s=%s", s->key, s->others)
						     : lg_arena_printf(a, "unset %s", s->key),
				 s->value, s->others ? s->others : "unset");
	f->tradeoff = "None where the setting was forgotten; where it was made to get around a fault of that host, the "
		      "fault comes back and has to be repaired.";
	f->confirm = "Start the job once without it: the same lines of NCCL's log then read as on the others.";
}

static const struct lg_advice *advice_for(const struct lg_finding *f)
{
	static const struct lg_advice none;
	const struct lg_rule *r = lg_rule_find(f->id);
	const struct lg_advice *a = lg_lock_advice(f);

	if (!a)
		a = lg_detail_advice(f);
	return a ? a : r ? &r->advice : &none;
}

int lg_advise(struct lg_verdict *v, double cost_per_hour, struct lg_error *err)
{
	for (size_t i = 0; i < v->n_findings; i++) {
		struct lg_finding *f = &v->findings[i];
		const struct lg_advice *advice = advice_for(f);
		const struct lg_rule *r = lg_rule_find(f->id);
		const struct lg_advice *usual = r ? &r->advice : advice;

		advise_setting(v, f);
		advise_parts(v, f);
		if (!f->fix)
			f->fix = advice->fix;
		if (!f->tradeoff)
			f->tradeoff = advice->tradeoff ? advice->tradeoff : usual->tradeoff;
		if (!f->confirm)
			f->confirm = advice->confirm ? advice->confirm : usual->confirm;
		/* NAN on either side (not asked, not measurable) stays NAN. */
		f->cost_per_hour = is_once(f) ? (double)NAN : cost_per_hour * f->lost_share;
	}
	money(v, cost_per_hour);
	if (v->arena.failed)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	return 0;
}
