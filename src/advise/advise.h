/* SPDX-License-Identifier: Apache-2.0 */
/* advise.h - finding id to words: what to do, what it costs, what would confirm it. */
#ifndef LG_ADVISE_ADVISE_H
#define LG_ADVISE_ADVISE_H
#include "analyse/verdict.h"

struct lg_advice {
	const char *fix, *tradeoff, *confirm;
};

struct lg_rule {
	const char *id, *sentence, *signal;
	const char *threshold; /* with {NUMBER}s: lg_rule_fill() */
	const char *basis;     /* "measured", "fixed", "low" or "info" */
	struct lg_advice advice;
	const char *sources; /* one a line */
};

/* The catalogue in its order; *ret_n its length. */
const struct lg_rule *lg_rules(size_t *ret_n);
/* By id; NULL when unknown. */
const struct lg_rule *lg_rule_find(const char *id);

/*
 * Give every finding its fix, trade-off and confirming experiment (what an analysis already
 * wrote stays), and what it costs an hour when the whole run costs cost_per_hour (NAN = not
 * asked); and the verdict what all losses cost together. A finding without a rule keeps its NULLs:
 * the verdict is worth more than the advice.
 */
int lg_advise(struct lg_verdict *v, double cost_per_hour, struct lg_error *err) LG_MUST_CHECK;

/* Words that fit better than the rule's; NULL = those do. */
const struct lg_advice *lg_lock_advice(const struct lg_finding *f); /* by the lock and what its holder did */
const struct lg_advice *lg_detail_advice(const struct lg_finding *f);

#endif /* LG_ADVISE_ADVISE_H */
