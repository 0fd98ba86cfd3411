/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - what a training process told about itself through the hook: facts (meta rows of its process,
 * written again when they change), and findings that rest on them.
 *
 * One recording cannot measure what a flag costs, so such findings have no lost time and say what would
 * measure it.
 */
#ifndef LG_ANALYSE_HOOK_FACTS_H
#define LG_ANALYSE_HOOK_FACTS_H
#include "analyse/case.h"

/* Share of [from, to) during which a 0/1 fact was not 0. */
double lg_fact_share(const struct lg_case *c, lg_prc prc, const char *key, int64_t from, int64_t to);

/* The judged steps of r. */
struct lg_fact_span {
	int64_t from, to;
	size_t n;
};
struct lg_fact_span lg_fact_window(const struct lg_case *c, const struct lg_rank *r);

/*
 * A finding about ranks' own processes whose cost is not known: medium. *f: the one that has been told of
 * another rank, or NULL; r is a victim of it. Returns a new one, of which more has to be said; NULL = none.
 */
struct lg_finding *lg_fact_finding(struct lg_case *c, struct lg_finding **f, const struct lg_rank *r,
				   enum lg_rule_id rule, double confidence);

#endif /* LG_ANALYSE_HOOK_FACTS_H */
