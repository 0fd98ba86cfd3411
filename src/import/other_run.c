/* SPDX-License-Identifier: Apache-2.0 */
#include "import/other_run.h"

#include <string.h>

#include "store/merge.h"

enum { LOOKED_AT = 4096 }; /* processes of a file: ranks come first in what profilers write */

/* The only process of t that has a number; 0 = there are several, or none. */
static lg_prc only_process(const struct lg_trace *t)
{
	lg_prc only = 0;

	for (lg_prc p = 1; p < t->process.n; p++) {
		if (t->process.pid[p] <= 0)
			continue;
		if (only)
			return 0;
		only = p;
	}
	return only;
}

int32_t lg_rank_of_file(const struct lg_trace *t)
{
	int32_t rank = LG_NO_RANK;

	for (lg_prc p = 1; p < t->process.n; p++) {
		if (t->process.rank[p] < 0 || t->process.rank[p] == rank)
			continue;
		if (rank >= 0)
			return LG_NO_RANK;
		rank = t->process.rank[p];
	}
	return rank;
}

/* A host that one of them does not name may be any. */
static bool differ(const struct lg_trace *a, lg_prc p, const struct lg_trace *b, lg_prc q)
{
	const char *x = lg_meta_get(a, "host.name"), *y = lg_meta_get(b, "host.name");

	if (a->process.pid[p] <= 0 || b->process.pid[q] <= 0)
		return false;
	return a->process.pid[p] != b->process.pid[q] || (*x && *y && strcmp(x, y));
}

bool lg_other_run(const struct lg_trace *a, const struct lg_trace *b)
{
	size_t n = a->process.n < LOOKED_AT ? a->process.n : LOOKED_AT;
	size_t m = b->process.n < LOOKED_AT ? b->process.n : LOOKED_AT;
	lg_prc p = only_process(a), q = only_process(b);

	if (p && q && a->process.rank[p] == b->process.rank[q])
		return differ(a, p, b, q);
	for (p = 1; p < n; p++) {
		if (a->process.rank[p] < 0)
			continue;
		for (q = 1; q < m; q++)
			if (a->process.rank[p] == b->process.rank[q])
				return differ(a, p, b, q);
	}
	return false;
}
