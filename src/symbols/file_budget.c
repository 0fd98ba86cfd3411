/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/file_budget.h"

#include <unistd.h>

#include "symbols/options.h"

/* What strangers may have of the first two, 256 MiB, leaves room for the rest of an import in the smallest
 * --max-memory that is the default (1 GiB). Hardly a debug file without a build id has 1 GiB. */
enum { STRANGERS = 4 }; /* have one part in so many */
static const uint64_t most[LG_FILE_COSTS] = {
	[LG_COST_UNPACKED] = 512ull << 20, [LG_COST_KEPT] = 512ull << 20, [LG_COST_SUMMED] = 4ull << 30
};

static _Atomic uint64_t spent[LG_FILE_COSTS][2]; /* by one's own files, by those of strangers */
static _Atomic size_t over[LG_FILE_COSTS];

void lg_file_budget_begin(void)
{
	for (unsigned i = 0; i < LG_FILE_COSTS; i++)
		spent[i][0] = spent[i][1] = over[i] = 0;
}

bool lg_is_own(uid_t owner)
{
	return !owner || owner == geteuid() ||
	       (lg_symbol_options.caller && owner == lg_symbol_options.caller);
}

static bool fits(uint64_t spent_so_far, uint64_t n, uint64_t max)
{
	return spent_so_far <= max && n <= max - spent_so_far;
}

bool lg_file_spend(enum lg_file_cost what, uid_t owner, uint64_t n)
{
	bool strange = !lg_is_own(owner);
	uint64_t theirs = spent[what][1], all = spent[what][0] + theirs;

	if (!fits(all, n, most[what]) || (strange && !fits(theirs, n, most[what] / STRANGERS))) {
		over[what]++;
		return false;
	}
	spent[what][strange] += n;
	return true;
}

size_t lg_file_over_budget(enum lg_file_cost what)
{
	return over[what];
}
