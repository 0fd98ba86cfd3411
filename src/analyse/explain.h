/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain.h - the one entry of the analyses: sealed trace in, verdict out.
 *
 * Pure: same trace and options, same verdict. The verdict borrows the trace (keep it alive).
 * The caller fills verdict->inputs (it knows the files); advise/ fills fix and tradeoff.
 */
#ifndef LG_ANALYSE_EXPLAIN_H
#define LG_ANALYSE_EXPLAIN_H
#include "analyse/verdict.h"

struct lg_explain_options {
	int32_t victim_pid; /* judge this process even if it shows no marks; 0 = by marks and ranks */
	char *const *unread; /* [n_unread]: "PATH: why" of files that were to be read, too */
	size_t n_unread, n_missed; /* missed: of unread, by their names likely to be of the run */
};

int lg_explain(const struct lg_trace *t, const struct lg_explain_options *opt,
	       struct lg_verdict **ret, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_ANALYSE_EXPLAIN_H */
