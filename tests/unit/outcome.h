/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.h - judge a made-up trace and look at what was found. */
#ifndef LG_TESTS_OUTCOME_H
#define LG_TESTS_OUTCOME_H
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
#include "base/alloc.h"
#include "findings_log.h"

#define US 1000ll
#define MS 1000000ll

struct outcome {
	struct lg_trace *t;
	struct lg_verdict *v;
};

/* Whatever the trace: the parts of every step tile it to the nanosecond. */
static inline void assert_tiled(const struct lg_verdict *v)
{
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];
		int64_t at = s->ts;

		assert_true(s->part_first + s->n_parts <= v->n_parts);
		for (uint32_t k = 0; k < s->n_parts; k++) {
			const struct lg_part *part = &v->parts[s->part_first + k];

			assert_int_equal(part->ts, at);
			assert_true(part->dur > 0);
			at += part->dur;
		}
		assert_int_equal(at, s->ts + s->dur);
	}
}

/* Takes the trace. */
static inline struct outcome judge(struct lg_trace *t)
{
	struct outcome o = { .t = t };

	assert_non_null(t);
	assert_int_equal(lg_explain(t, NULL, &o.v, NULL), 0);
	assert_int_equal(lg_advise(o.v, (double)NAN, NULL), 0);
	for (size_t i = 0; i < o.v->n_findings; i++) {
		/* Every id that is told is in the catalogue, with its advice. */
		if (!lg_rule_find(o.v->findings[i].id))
			fail_msg("no rule for %s", o.v->findings[i].id);
		assert_non_null(o.v->findings[i].fix);
		assert_non_null(o.v->findings[i].tradeoff);
		assert_non_null(o.v->findings[i].confirm);
		assert_true(o.v->findings[i].confidence > 0 && o.v->findings[i].confidence <= 1);
	}
	assert_tiled(o.v);
	log_findings(o.v);
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

static inline bool is_loud(const struct lg_finding *f)
{
	return f->severity == LG_SEVERITY_MEDIUM || f->severity == LG_SEVERITY_HIGH;
}

static inline size_t loud(const struct lg_verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_findings; i++)
		n += is_loud(&v->findings[i]);
	return n;
}

static inline bool says_for(const struct lg_finding *f, const char *text)
{
	for (size_t i = 0; i < f->n_evidence; i++)
		if (strstr(f->evidence[i].text, text))
			return true;
	return false;
}

static inline bool has_limit(const struct lg_verdict *v, const char *words)
{
	for (size_t i = 0; i < v->n_limits; i++)
		if (strstr(v->limits[i], words))
			return true;
	return false;
}

/* Whatever allocation fails: that is said, or the verdict is what it is with memory. */
static inline void judged_without_memory(const struct outcome *o)
{
	uint64_t n = 0, made;

	do {
		struct lg_verdict *v;
		int rc;

		lg_alloc_fail_at(++n);
		rc = lg_explain(o->t, NULL, &v, NULL);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		if (rc) {
			assert_int_equal(rc, LG_E_NOMEM);
			continue;
		}
		assert_int_equal(v->n_findings, o->v->n_findings);
		for (size_t i = 0; i < v->n_findings; i++)
			assert_string_equal(v->findings[i].title, o->v->findings[i].title);
		assert_int_equal(v->shape, o->v->shape);
		assert_int_equal(v->n_limits, o->v->n_limits);
		for (size_t i = 0; i < v->n_limits; i++)
			assert_string_equal(v->limits[i], o->v->limits[i]);
		lg_verdict_free(v);
	} while (made >= n);
	assert_true(n > 30);
}

#endif /* LG_TESTS_OUTCOME_H */
