/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/chains/ends.h"

#include "analyse/verdict.h"

static const struct lg_end ends[] = {
#define X(name, cause, where, kind, accused, own, sum, how, share, side, batch, sure, ...)                  \
	[LG_END_##name] = { .is = LG_IS_##cause, .place = LG_PLACE_##where, .part = LG_CAUSE_##kind,         \
			    .rule = LG_R_##accused, .own_rule = LG_R_##own, .charged = LG_CHARGED_##sum,     \
			    .did = LG_DID_##how, .pool = LG_POOL_##share, .in_side = LG_RESTAGED_##side,     \
			    .in_batch = LG_RESTAGED_##batch, .stepless = LG_STEPLESS_##sure },
#include "rules/ends.def"
};

const struct lg_end *lg_end(enum lg_end_kind end)
{
	return &ends[end];
}

bool lg_is_taken_by_host(enum lg_rule_id rule)
{
	for (int i = 0; i < LG_END_MAX; i++)
		if (ends[i].pool == LG_POOL_HOST && (ends[i].rule == rule || ends[i].own_rule == rule))
			return true;
	return false;
}
