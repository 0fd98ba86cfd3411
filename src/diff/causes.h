/* SPDX-License-Identifier: Apache-2.0 */
/* causes.h - what the files causes*.c share: the account of what is still to be explained. */
#ifndef LG_DIFF_CAUSES_H
#define LG_DIFF_CAUSES_H
#include "diff/diff.h"

struct lg_causes {
	struct lg_diff *d;
	const struct lg_verdict *after;
	double pool[LG_STAGE_MAX], lo[LG_STAGE_MAX]; /* ms per step; lower bound of the interval */
	double half[LG_STAGE_MAX], before[LG_STAGE_MAX]; /* half of it; the stage's time before */
	bool together;  /* the intervals are parts of one: settle_stages() */
	double slack;   /* ms per step that steps may be longer by, beyond what they were in the mean */
	double told;    /* ms per step that findings account for */
	bool compile_told;
};

/* ---- causes.c ---- */
uint32_t lg_cause_stage(const char *name);   /* by its name; LG_STAGE_OTHER for others */
/* A new finding without loss; NULL when there is no room. */
struct lg_finding *lg_cause_add(struct lg_causes *c, enum lg_rule_id rule);
void lg_cause_say(struct lg_causes *c, struct lg_finding *f, const char *fmt, ...) LG_PRINTF(3, 4);
/* What it costs: ms per step, at least lo of it for sure. */
void lg_cause_price(struct lg_causes *c, struct lg_finding *f, double ms, double lo);
/* NULL: there was no room. */
struct lg_share *lg_cause_share(struct lg_causes *c, const char *what, const char *id, double ms);
/* Take what the stages of the set grew by (net). Returns ms per step, *ret_lo its lower bound. */
double lg_cause_drain(struct lg_causes *c, uint32_t set, double *ret_lo);
/* The stages in which the model computes; all of them where the input knows no stages. */
uint32_t lg_cause_compute_stages(const struct lg_causes *c, bool every_operator);
void lg_cause_top_items(struct lg_causes *c, struct lg_finding *f, const char *kind);

/* ---- causes_memory.c: memory bought with time ---- */
void lg_causes_memory(struct lg_causes *c);
/* ---- causes_determinism.c: what the two compute, where they tell */
int lg_causes_determinism(struct lg_causes *c) LG_MUST_CHECK;
/* ---- causes_rest.c: differences without evidence of a cause, and those without a price ---- */
void lg_causes_rest(struct lg_causes *c);

#endif /* LG_DIFF_CAUSES_H */
