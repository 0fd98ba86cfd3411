/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>

#include "rules/rules.h"

static const struct lg_worth_row rows[] = {
#define LOUD(name, strength, share, n) { LG_R_##name, true, (n), (strength), (share) },
#define QUIET(name, strength, share, n) { LG_R_##name, false, (n), (strength), (share) },
/* Of a rule that was never drawn. */
#define NEW_LOUD(strength, share, n) { LG_R_MAX, true, (n), (strength), (share) },
#define NEW_QUIET(strength, share, n) { LG_R_MAX, false, (n), (strength), (share) },
#include "rules/calibration.def"
};

enum { ROWS = sizeof rows / sizeof *rows };

const struct lg_worth_row *lg_worth_next(enum lg_rule_id rule, const struct lg_worth_row *last)
{
	for (const struct lg_worth_row *r = last ? last + 1 : rows; r < rows + ROWS; r++)
		if (r->rule == rule)
			return r;
	return NULL;
}

double lg_worth(enum lg_rule_id rule, bool loud, double strength, unsigned *ret_draws)
{
	const double slack = 1e-3; /* of what was printed and read again */
	double worth = strength;
	unsigned draws = 0;
	bool seen = false;

	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].rule != rule || rows[i].loud != loud)
			continue;
		if (strength >= rows[i].from - slack)
			worth = rows[i].worth;
		else if (!seen && worth > rows[i].worth) /* weaker than all that were drawn */
			worth = rows[i].worth;
		seen = true;
		if (strength >= rows[i].from - slack)
			draws += rows[i].draws;
	}
	if (ret_draws)
		*ret_draws = draws;
	return seen || rule == LG_R_MAX ? worth : fmin(strength, lg_worth(LG_R_MAX, loud, strength, NULL));
}
