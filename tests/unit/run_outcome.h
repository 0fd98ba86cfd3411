/* SPDX-License-Identifier: Apache-2.0 */
/* run_outcome.h - judge a made-up run and look at what was found; for the tests of host causes. */
#ifndef LG_TESTS_RUN_OUTCOME_H
#define LG_TESTS_RUN_OUTCOME_H
#include "base/alloc.h"
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

/* Whatever allocation fails: that is said, or the verdict is what it is with memory. */
static inline void survives_without_memory(const struct run_plan *p)
{
	struct outcome o = explain(p);
	uint64_t n = 0, made;

	do {
		struct lg_verdict *v;
		int rc;

		lg_alloc_fail_at(++n);
		rc = lg_explain(o.t, NULL, &v, NULL);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		if (rc) {
			assert_int_equal(rc, LG_E_NOMEM);
			continue;
		}
		assert_int_equal(v->n_findings, o.v->n_findings);
		for (size_t i = 0; i < v->n_findings; i++)
			assert_string_equal(v->findings[i].title, o.v->findings[i].title);
		if (o.v->shape)
			assert_string_equal(v->shape, o.v->shape);
		assert_int_equal(v->n_limits, o.v->n_limits);
		for (size_t i = 0; i < v->n_limits; i++)
			assert_string_equal(v->limits[i], o.v->limits[i]);
		lg_verdict_free(v);
	} while (made >= n);
	assert_true(n > 30);
	done(&o);
}

#endif /* LG_TESTS_RUN_OUTCOME_H */
