/* SPDX-License-Identifier: Apache-2.0 */
/* diff_report.h - a comparison as text, one format a function; nothing is computed here. */
#ifndef LG_REPORT_DIFF_REPORT_H
#define LG_REPORT_DIFF_REPORT_H
#include "diff/diff.h"
#include "report/report.h"

void lg_diff_term(const struct lg_diff *d, const struct lg_term_options *opt, struct lg_out *o);
void lg_diff_json(const struct lg_diff *d, struct lg_out *o); /* schema 1 and the object "diff" */
struct lg_json;
/* Facts that differ, as a list below key. */
void lg_diff_facts_json(struct lg_json *j, const char *key, const struct lg_fact_change *v, size_t n);
void lg_diff_markdown(const struct lg_diff *d, struct lg_out *o);
void lg_diff_junit(const struct lg_diff *d, struct lg_out *o); /* JUnit XML, one suite */
void lg_diff_html(const struct lg_diff *d, struct lg_out *o); /* one page, without a script */
void lg_diff_github(const struct lg_diff *d, struct lg_out *o); /* workflow commands */

#endif /* LG_REPORT_DIFF_REPORT_H */
