/* SPDX-License-Identifier: Apache-2.0 */
/* diff_pair.h - two traces, their verdicts and what differs between them. */
#ifndef LG_TESTS_DIFF_PAIR_H
#define LG_TESTS_DIFF_PAIR_H
#include <math.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>

#include "analyse/explain.h"
#include "diff/diff.h"
#include "findings_log.h"

struct pair {
	struct lg_trace *t[2];
	struct lg_verdict *v[2];
	struct lg_side *s[2];
	struct lg_diff *d;
};

/* Takes the traces over; done() frees them. limit: as lg_diff_new()'s fail_over. */
static inline struct pair compare_traces(struct lg_trace *before, struct lg_trace *after, double limit)
{
	struct pair p = { .t = { before, after } };
	struct lg_error err;

	for (int i = 0; i < 2; i++) {
		assert_non_null(p.t[i]);
		assert_int_equal(lg_explain(p.t[i], NULL, &p.v[i], &err), 0);
		assert_int_equal(lg_side_new(p.v[i], &p.s[i], &err), 0);
	}
	assert_int_equal(lg_diff_new(p.s[0], p.s[1], p.v[1], limit, &p.d, &err), 0);
	log_findings(&p.d->v);
	return p;
}

static inline void done(struct pair *p)
{
	lg_diff_free(p->d);
	for (int i = 0; i < 2; i++) {
		lg_side_free(p->s[i]);
		lg_verdict_free(p->v[i]);
		lg_trace_free(p->t[i]);
	}
}

static inline const struct lg_finding *find(const struct pair *p, const char *id)
{
	for (size_t i = 0; i < p->d->v.n_findings; i++)
		if (!strcmp(p->d->v.findings[i].id, id))
			return &p->d->v.findings[i];
	return NULL;
}

/* Findings at medium or above. */
static inline size_t loud(const struct pair *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->d->v.n_findings; i++)
		n += p->d->v.findings[i].severity == LG_SEVERITY_HIGH ||
		     p->d->v.findings[i].severity == LG_SEVERITY_MEDIUM;
	return n;
}

/* Where a knob's finding is told first, between a silent position and one at which it is told (floor.h). */
static inline int64_t told_from(struct pair (*run)(int64_t x), bool (*is_told)(const struct pair *p),
				int64_t silent, int64_t told)
{
	int ends = 2; /* are looked at first */

	while (ends || labs(told - silent) > 1 + (silent < told ? silent : told) / 100) {
		int64_t x = ends == 2 ? silent : ends == 1 ? told : silent + (told - silent) / 2;
		struct pair p = run(x);
		bool is = is_told(&p);

		done(&p);
		if (ends)
			assert_int_equal(is, ends == 1);
		else
			*(is ? &told : &silent) = x;
		ends -= ends > 0;
	}
	return told;
}

/* Each millisecond of the change once, whatever explains it; findings by what they cost. */
static inline void check_sum(const struct pair *p)
{
	double sum = 0;

	for (size_t i = 0; i < p->d->n_shares; i++)
		sum += p->d->shares[i].ms;
	assert_true(fabs(sum - p->d->delta_ms) <= 0.002 * p->d->mean_ms[1] + 1e-9);
	for (size_t i = 1; i < p->d->v.n_findings; i++) {
		double x = p->d->v.findings[i - 1].lost_ms, y = p->d->v.findings[i].lost_ms;

		assert_true(isnan(y) || x >= y);
	}
}

#endif
