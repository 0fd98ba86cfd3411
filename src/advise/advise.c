/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/advise.h"

#include <string.h>

#include "advise/rules.def"
#include "advise/rules_gpu.def"

static const struct lg_rule rules[] = {
#define R(rid, rfloor, rsentence, rsignal, rthreshold, rfix, rtradeoff, rconfirm, rsources)        \
	{ .id = rid, .floor = rfloor, .sentence = rsentence, .signal = rsignal,                    \
	  .threshold = rthreshold, .fix = rfix, .tradeoff = rtradeoff, .confirm = rconfirm,        \
	  .sources = rsources },
	LG_RULES(R)
	LG_GPU_RULES(R)
#undef R
};

const struct lg_rule *lg_rules(size_t *ret_n)
{
	*ret_n = sizeof rules / sizeof *rules;
	return rules;
}

const struct lg_rule *lg_rule_find(const char *id)
{
	for (size_t i = 0; id && i < sizeof rules / sizeof *rules; i++)
		if (!strcmp(rules[i].id, id))
			return &rules[i];
	return NULL;
}

int lg_advise(struct lg_verdict *v, double cost_per_hour, struct lg_error *err)
{
	for (size_t i = 0; i < v->n_findings; i++) {
		struct lg_finding *f = &v->findings[i];
		const struct lg_rule *r = lg_rule_find(f->id);
		struct lg_lock_advice words = { 0 };

		if (r)
			words = (struct lg_lock_advice){ r->fix, r->tradeoff, r->confirm };
		if (r && !strcmp(r->id, "host.lock_held") && lg_lock_advice(f))
			words = *lg_lock_advice(f);
		if (!f->fix)
			f->fix = words.fix;
		if (!f->tradeoff)
			f->tradeoff = words.tradeoff;
		if (!f->confirm)
			f->confirm = words.confirm;
		/* NAN on either side (not asked, not measurable) stays NAN. */
		f->cost_per_hour = cost_per_hour * f->lost_share;
	}
	if (v->arena.failed)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	return 0;
}
