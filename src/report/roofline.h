/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.h - what a part of a job costs, as sentences and as JSON. */
#ifndef LG_REPORT_ROOFLINE_H
#define LG_REPORT_ROOFLINE_H
#include "base/out.h"
#include "diff/roofline.h"

void lg_roofline_term(const struct lg_roofline *r, struct lg_out *o);
void lg_roofline_json(const struct lg_roofline *r, struct lg_out *o); /* schema 1 */

#endif /* LG_REPORT_ROOFLINE_H */
