/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_outcome.h - judge a simulated loop and look at what was found; for the tests of the device's rules. */
#ifndef LG_TESTS_GPU_OUTCOME_H
#define LG_TESTS_GPU_OUTCOME_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "advise/advise.h"
#include "analyse/explain.h"
#include "synthetic_gpu.h"

#define US 1000ll
#define MS 1000000ll

struct outcome {
	struct lg_trace *t;
	struct lg_verdict *v;
};

static inline struct outcome judge(struct lg_trace *t)
{
	struct outcome o = { .t = t };
	struct lg_error err;

	assert_non_null(t);
	assert_int_equal(lg_explain(t, NULL, &o.v, &err), 0);
	assert_int_equal(lg_advise(o.v, (double)NAN, &err), 0);
	for (size_t i = 0; i < o.v->n_findings; i++) {
		/* Every id that is told is in the catalogue, with its advice. */
		if (!lg_rule_find(o.v->findings[i].id))
			fail_msg("no rule for %s", o.v->findings[i].id);
		assert_non_null(o.v->findings[i].fix);
		assert_true(o.v->findings[i].confidence > 0 && o.v->findings[i].confidence <= 1);
	}
	/* Whatever kind of trace: the parts of every step tile it to the nanosecond. */
	for (size_t i = 0; i < o.v->n_steps; i++) {
		const struct lg_step *s = &o.v->steps[i];
		int64_t at = s->ts;

		assert_true(s->part_first + s->n_parts <= o.v->n_parts);
		for (uint32_t k = 0; k < s->n_parts; k++) {
			assert_int_equal(o.v->parts[s->part_first + k].ts, at);
			at += o.v->parts[s->part_first + k].dur;
		}
		assert_int_equal(at, s->ts + s->dur);
	}
	return o;
}

static inline struct outcome explain(const struct gpu_plan *p)
{
	return judge(synthetic_gpu(p));
}

static inline void done(struct outcome *o)
{
	lg_verdict_free(o->v);
	lg_trace_free(o->t);
}

static inline const struct lg_finding *find(const struct lg_verdict *v, const char *id)
{
	for (size_t i = 0; i < v->n_findings; i++)
		if (!strcmp(v->findings[i].id, id))
			return &v->findings[i];
	return NULL;
}

static inline bool is_loud(const struct lg_finding *f)
{
	return !strcmp(f->severity, "medium") || !strcmp(f->severity, "high");
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
