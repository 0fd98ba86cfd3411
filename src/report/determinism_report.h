/* SPDX-License-Identifier: Apache-2.0 */
/* determinism_report.h - what `laggard determinism` prints; nothing is computed here. */
#ifndef LG_REPORT_DETERMINISM_REPORT_H
#define LG_REPORT_DETERMINISM_REPORT_H
#include "diff/determinism.h"
#include "report/report.h"

void lg_determinism_json(const struct lg_det_run *r, struct lg_out *o); /* schema 1 and "determinism" */
void lg_determinism_term(const struct lg_det_run *r, const struct lg_term_options *opt, struct lg_out *o);

#endif /* LG_REPORT_DETERMINISM_REPORT_H */
