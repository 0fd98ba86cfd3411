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

/* A process of a that is in b, too, by its rank, or as the only one of both. */
static bool find_common(const struct lg_trace *a, const struct lg_trace *b, lg_prc *ret_p, lg_prc *ret_q)
{
	size_t n = a->process.n < LOOKED_AT ? a->process.n : LOOKED_AT;
	size_t m = b->process.n < LOOKED_AT ? b->process.n : LOOKED_AT;

	*ret_p = only_process(a);
	*ret_q = only_process(b);
	if (*ret_p && *ret_q && a->process.rank[*ret_p] == b->process.rank[*ret_q])
		return true;
	for (lg_prc p = 1; p < n; p++) {
		if (a->process.rank[p] < 0)
			continue;
		for (lg_prc q = 1; q < m; q++)
			if (a->process.rank[p] == b->process.rank[q]) {
				*ret_p = p;
				*ret_q = q;
				return true;
			}
	}
	return false;
}

bool lg_other_run(const struct lg_trace *a, const struct lg_trace *b)
{
	lg_prc p, q;

	return find_common(a, b, &p, &q) && differ(a, p, b, q);
}

/* The lowest and the highest number of p's steps, or of its other rows of that kind, where 0 is none. */
static bool numbers_of(const struct lg_trace *t, lg_prc p, enum lg_span_kind kind, int64_t *ret_low,
		       int64_t *ret_high)
{
	int64_t least = kind != LG_SPAN_STEP;

	*ret_low = INT64_MAX;
	*ret_high = -1;
	for (size_t i = 0; i < t->span.n; i++) {
		int64_t n = t->span.seq[i];

		if (t->span.kind[i] != kind || n < least || t->thread.prc[t->span.thr[i]] != p)
			continue;
		*ret_low = n < *ret_low ? n : *ret_low;
		*ret_high = n > *ret_high ? n : *ret_high;
	}
	return *ret_high >= 0;
}

/*
 * What a process counts from its start to its end, whoever looks at it: what autograd recorded (ATen's
 * sequence_number.cpp), and CUPTI the calls of the driver (correlationId in cupti_activity.h). In a process
 * that was started anew both begin at their first number.
 */
static bool counts_on(const struct lg_trace *earlier, lg_prc p, const struct lg_trace *later, lg_prc q)
{
	static const enum lg_span_kind kinds[] = { LG_SPAN_OP, LG_SPAN_RUNTIME };
	int64_t low[2], high[2];

	for (size_t i = 0; i < 2; i++)
		if (numbers_of(earlier, p, kinds[i], &low[0], &high[0]) &&
		    numbers_of(later, q, kinds[i], &low[1], &high[1]))
			return low[1] >= high[0];
	return false;
}

enum lg_numbers lg_step_numbers(const struct lg_trace *earlier, const struct lg_trace *later)
{
	int64_t low[2], high[2];
	lg_prc p, q;

	/* A log that goes on from a checkpoint says so itself. */
	if (!find_common(earlier, later, &p, &q) || earlier->process.pid[p] <= 0 ||
	    later->process.pid[q] <= 0 || !numbers_of(earlier, p, LG_SPAN_STEP, &low[0], &high[0]) ||
	    !numbers_of(later, q, LG_SPAN_STEP, &low[1], &high[1]))
		return LG_NUMBERS_NONE;
	if (low[1] >= high[0])
		return LG_NUMBERS_GO_ON;
	return counts_on(earlier, p, later, q) ? LG_NUMBERS_OF_PROFILE : LG_NUMBERS_ANEW;
}
