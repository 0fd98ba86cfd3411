/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings_log.h - which test was told what: lines "FILE:TEST TRACE ID SEVERITY" in the file that
 * LG_FINDINGS_LOG names (TRACE counts the verdicts of a test; ID is "-" where nothing was found). With it
 * tools/check-findings sees that each finding's tests in tests/findings.tsv do what they stand for.
 *
 * Include behind cmocka.h, in the one file of a test.
 */
#ifndef LG_TESTS_FINDINGS_LOG_H
#define LG_TESTS_FINDINGS_LOG_H
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/verdict.h"

static const char *running_test = "?";
static unsigned n_verdicts;

/* cmocka does not say which test runs: each begins with a set-up that notes its name. */
static inline int note_test(void **state)
{
	running_test = *state;
	n_verdicts = 0;
	return 0;
}

#undef cmocka_unit_test
#define cmocka_unit_test(f) { #f, f, note_test, NULL, (void *)(uintptr_t)#f }

static inline void log_findings(const struct lg_verdict *v)
{
	const char *path = getenv("LG_FINDINGS_LOG");
	FILE *out = path ? fopen(path, "a") : NULL;

	n_verdicts++;
	if (!out)
		return;
	if (!v->n_findings)
		fprintf(out, "%s:%s %u - -\n", program_invocation_short_name, running_test, n_verdicts);
	for (size_t i = 0; i < v->n_findings; i++)
		fprintf(out, "%s:%s %u %s %s\n", program_invocation_short_name, running_test, n_verdicts,
			v->findings[i].id, lg_severity_text(v->findings[i].severity));
	fclose(out);
}

#endif /* LG_TESTS_FINDINGS_LOG_H */
