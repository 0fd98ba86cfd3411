/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_grade.c - what a finding's worth on drawn jobs (tests/matrix) does to it. lg_worth() is this file's
 * own: the table that it reads otherwise is measured, and changes when it is measured again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "analyse/grade.h"
#include "analyse/verdict.h"

static double worth;
static unsigned draws;

double lg_worth(enum lg_rule_id rule, bool loud, double strength, unsigned *ret_draws)
{
	(void)rule;
	(void)loud;
	(void)strength;
	*ret_draws = draws;
	return worth;
}

static enum lg_severity calibrated(enum lg_severity severity, double as_often, unsigned of_draws)
{
	struct lg_finding f = { .severity = severity, .confidence = 0.9, .strength = NAN };
	struct lg_verdict v = { .findings = &f, .n_findings = 1 };

	worth = as_often;
	draws = of_draws;
	lg_findings_calibrate(&v);
	assert_true(f.strength == 0.9 && f.confidence == as_often);
	return f.severity;
}

/* Less than half, of eight draws at least; what is loud stays so, and says how sure it is. */
static void what_was_right_in_less_than_half_of_the_draws_is_a_fact(void **state)
{
	(void)state;
	assert_int_equal(calibrated(LG_SEVERITY_LOW, 0.49, 8), LG_SEVERITY_INFO);
	assert_int_equal(calibrated(LG_SEVERITY_LOW, 0.49, 7), LG_SEVERITY_LOW);
	assert_int_equal(calibrated(LG_SEVERITY_LOW, 0.51, 8), LG_SEVERITY_LOW);
	assert_int_equal(calibrated(LG_SEVERITY_LOW, 0.1, 0), LG_SEVERITY_LOW);
	assert_int_equal(calibrated(LG_SEVERITY_MEDIUM, 0.49, 8), LG_SEVERITY_MEDIUM);
	assert_int_equal(calibrated(LG_SEVERITY_INFO, 0.99, 8), LG_SEVERITY_INFO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_right_in_less_than_half_of_the_draws_is_a_fact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
