/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h - several runs, or the ranks of one, as a table, and what they have in common. */
#ifndef LG_REPORT_RUNS_H
#define LG_REPORT_RUNS_H
#include <math.h>

#include "analyse/verdict.h"
#include "base/out.h"
#include "report/json_write.h"
#include "report/report.h"

enum { LG_RUN_TOLD = 12 };

/* One row. Plain data of a fixed size: it comes from the process that judged the run. */
struct lg_run_row {
	char name[256], format[24], host[65]; /* name: of the first of its files */
	uint32_t files, ranks;
	int32_t rank;                         /* -1: a run of none or several */
	uint64_t steps;
	double median_ms, lost_ms, lost_share; /* of the first finding; NAN = not known */
	char title[256];                       /* of the first finding; without one the verdict's sentence */
	/* Findings of low severity and above, the largest first. */
	struct lg_run_told {
		enum lg_rule_id rule;
		enum lg_severity severity;
		double share;
	} told[LG_RUN_TOLD];
	uint32_t n_told;
	bool failed; /* it could not be judged; title says why */
};

/* Of a run that could not be judged; name and title are still to be set. */
#define LG_RUN_FAILED                                                                                  \
	{                                                                                                  \
		.files = 1, .rank = -1, .median_ms = (double)NAN, .lost_ms = (double)NAN,                  \
		.lost_share = (double)NAN, .failed = true                                                  \
	}

/* The row of a whole run. */
void lg_run_row_of(const struct lg_verdict *v, struct lg_run_row *ret);
/* A row for each rank that has steps, where there are two or more, else *ret_n = 0. *ret: the caller's.
 * Of findings a row has those that name that rank: as the one to blame, the worst, or the only victim. */
int lg_run_ranks(const struct lg_verdict *v, struct lg_run_row **ret, size_t *ret_n) LG_MUST_CHECK;
/* Is anything told in a row that rows from another process may hold by mistake? Made harmless. */
void lg_run_row_check(struct lg_run_row *r);

/* Rows as a table; fewer than two are none, but for JSON. */
struct lg_run_table {
	struct lg_run_row *row;
	size_t n;
	const struct lg_verdict *of; /* whose ranks they are; NULL = runs */
};
/* For the terminal. all: every row, else of many ranks those that a finding names. */
void lg_report_runs(const struct lg_run_table *t, bool all, const struct lg_term_options *opt,
		    struct lg_out *o);
/* A line for each run, or for each rank that a finding names, and for what they have in common. */
void lg_brief_runs(const struct lg_run_table *t, struct lg_out *o);
void lg_markdown_runs(const struct lg_run_table *t, struct lg_out *o);
/* A section of the page. */
void lg_html_runs(const struct lg_run_table *t, struct lg_out *o);
/* The rows as the key "runs" of an object that is open. */
void lg_json_runs(const struct lg_run_table *t, struct lg_json *j);

#endif /* LG_REPORT_RUNS_H */
