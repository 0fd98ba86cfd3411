/* SPDX-License-Identifier: Apache-2.0 */
/* run_outcome.h - judge a made-up run and look at what was found; for the tests of host causes. */
#ifndef LG_TESTS_RUN_OUTCOME_H
#define LG_TESTS_RUN_OUTCOME_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "advise/advise.h"
#include "analyse/explain.h"
#include "base/alloc.h"
#include "synthetic_run.h"

#define MS 1000000ll

struct outcome {
	struct lg_trace *t;
	struct lg_verdict *v;
};

static inline struct outcome explain(const struct run_plan *p)
{
	struct outcome o;
	struct lg_error err;

	o.t = synthetic_run(p);
	assert_int_equal(lg_explain(o.t, NULL, &o.v, &err), 0);
	/* Whatever the cause: the parts of every step tile it to the nanosecond. */
	for (size_t i = 0; i < o.v->n_steps; i++) {
		const struct lg_step *s = &o.v->steps[i];
		int64_t at = s->ts;

		for (uint32_t k = 0; k < s->n_parts; k++) {
			const struct lg_part *part = &o.v->parts[s->part_first + k];

			assert_int_equal(part->ts, at);
			assert_true(part->dur > 0);
			at += part->dur;
		}
		assert_int_equal(at, s->ts + s->dur);
	}
	return o;
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

static inline bool has_limit(const struct lg_verdict *v, const char *words)
{
	for (size_t i = 0; i < v->n_limits; i++)
		if (strstr(v->limits[i], words))
			return true;
	return false;
}

static inline size_t loud(const struct lg_verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_findings; i++)
		n += !strcmp(v->findings[i].severity, "medium") ||
		     !strcmp(v->findings[i].severity, "high");
	return n;
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

static const struct run_plan base = { .n_ranks = 2, .n_steps = 2000, .only_rank = -1,
				      .steady_late_rank = -1, .stall_ns = 80 * MS };

#endif /* LG_TESTS_RUN_OUTCOME_H */
