/* SPDX-License-Identifier: Apache-2.0 */
/* run_outcome.h - judge a made-up run and look at what was found; for the tests of host causes. */
#ifndef LG_TESTS_RUN_OUTCOME_H
#define LG_TESTS_RUN_OUTCOME_H
#include "outcome.h"
#include "synthetic_run.h"

static const struct run_plan base = { .n_ranks = 2, .n_steps = 2000, .only_rank = -1,
				      .steady_late_rank = -1, .stall_ns = 80 * MS };

/* The plan of a run in which `stall` happens every period_ms. */
static inline struct run_plan stalls(enum stall stall, int64_t period_ms)
{
	struct run_plan p = base;

	p.stall = stall;
	p.period_ns = period_ms * MS;
	return p;
}

static inline struct outcome explain(const struct run_plan *p)
{
	return judge(synthetic_run(p));
}

/* What is found in a run by that plan, which must be there. */
static inline const struct lg_finding *told(const struct run_plan *p, const char *id, struct outcome *ret)
{
	const struct lg_finding *f;

	*ret = explain(p);
	f = find(ret->v, id);
	if (!f)
		fail_msg("no %s; found: %s", id, ret->v->n_findings ? ret->v->findings[0].title : "nothing");
	return f;
}

static inline void survives_without_memory(const struct run_plan *p)
{
	struct outcome o = explain(p);

	judged_without_memory(&o);
	done(&o);
}

#endif /* LG_TESTS_RUN_OUTCOME_H */
