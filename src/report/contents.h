/* SPDX-License-Identifier: Apache-2.0 */
/* contents.h - what a file holds, for the terminal and as JSON, where nothing could be concluded from it. */
#ifndef LG_REPORT_CONTENTS_H
#define LG_REPORT_CONTENTS_H
#include "picture/contents.h"
#include "report/json_write.h"
#include "report/report.h"

/* Is there no verdict, so that this is all that there is to say? */
bool lg_contents_wanted(const struct lg_verdict *v);
void lg_report_contents(const struct lg_verdict *v, const struct lg_contents *c,
			const struct lg_term_options *opt, struct lg_out *o);
/* As the key "contents" of an object that is open. */
void lg_json_contents(const struct lg_verdict *v, const struct lg_contents *c, struct lg_json *j);
/* What a row is of: written into buf, or a string of the trace. */
const char *lg_content_name(const struct lg_trace *t, enum lg_content kind, uint32_t id, char *buf,
			    size_t size);

#endif /* LG_REPORT_CONTENTS_H */
