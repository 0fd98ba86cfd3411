/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "rules/rules.h"

enum { LG_R_ANY = LG_R_NONE };

static const struct {
	enum lg_rule_id rule;
	unsigned draws;
	double from, worth;
} rows[] = {
#define WORTH(name, strength, share, n) { LG_R_##name, (n), (strength), (share) },
#include "rules/calibration.def"
	{ LG_R_MAX, 0, 0, 0 },
};

double lg_worth(enum lg_rule_id rule, double strength, unsigned *ret_draws)
{
	const double slack = 1e-9; /* of what was printed and read again */
	double worth = strength;
	unsigned draws = 0;
	bool own = false, found = false;

	for (size_t i = 0; rows[i].rule != LG_R_MAX; i++)
		own = own || (rule != LG_R_NONE && rows[i].rule == rule);
	for (size_t i = 0; rows[i].rule != LG_R_MAX; i++) {
		if (rows[i].rule != (own ? rule : LG_R_ANY))
			continue;
		if (!found || strength >= rows[i].from - slack)
			worth = rows[i].worth;
		found = true;
		draws += own ? rows[i].draws : 0;
	}
	if (ret_draws)
		*ret_draws = draws;
	return worth;
}
