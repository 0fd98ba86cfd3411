/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_outcome.h - judge a simulated loop and look at what was found; for the tests of the device's rules. */
#ifndef LG_TESTS_GPU_OUTCOME_H
#define LG_TESTS_GPU_OUTCOME_H
#include "outcome.h"
#include "synthetic_gpu.h"

static inline struct outcome explain(const struct gpu_plan *p)
{
	return judge(synthetic_gpu(p));
}

static inline void quiet(const struct gpu_plan *p)
{
	struct outcome o = explain(p);

	for (size_t i = 0; i < o.v->n_findings; i++)
		if (is_loud(&o.v->findings[i]))
			fail_msg("healthy, but %s: %s", o.v->findings[i].id, o.v->findings[i].title);
	done(&o);
}

/* The first finding is id, loud. */
static inline struct outcome first(const struct gpu_plan *p, const char *id)
{
	struct outcome o = explain(p);

	if (!o.v->n_findings)
		fail_msg("nothing found, wanted %s; bound: %s", id, o.v->bound_why);
	if (strcmp(o.v->findings[0].id, id))
		fail_msg("found %s (%s), wanted %s; bound: %s", o.v->findings[0].id, o.v->findings[0].title, id,
			 o.v->bound_why);
	assert_true(is_loud(&o.v->findings[0]) || !strcmp(id, "warmup.dominates") || !strcmp(id, "gpu.bound"));
	return o;
}

#endif /* LG_TESTS_GPU_OUTCOME_H */
