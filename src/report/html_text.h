/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html_text.h - parts of the page (explain --html), and how text from outside gets into it: by
 * lg_html_text() alone, so that no name can begin a tag, end an attribute, or turn the order of
 * letters round.
 */
#ifndef LG_REPORT_HTML_TEXT_H
#define LG_REPORT_HTML_TEXT_H
#include "analyse/verdict.h"
#include "base/out.h"
#include "picture/accounts.h"

/* Text for an element or a quoted attribute; what may not be shown is a visible \xNN, and what is
 * longer than a few thousand bytes is cut. NULL is "". */
void lg_html_text(struct lg_out *o, const char *s);
/* "12.503 s" as a link to that moment of the timeline; dur < 0 = not known. */
void lg_html_moment(struct lg_out *o, const struct lg_verdict *v, int64_t ts, int64_t dur);
/* The address of a moment: "#t=12.503000-12.522800". */
void lg_html_href(struct lg_out *o, const struct lg_verdict *v, int64_t ts, int64_t dur);
/* "12.345678 ms" with all digits, from an integer. */
void lg_html_exact_ms(struct lg_out *o, int64_t ns);

/* html_verdict.c */
void lg_html_verdict(const struct lg_verdict *v, struct lg_out *o);
void lg_html_findings(const struct lg_verdict *v, struct lg_out *o);
void lg_html_stages(const struct lg_verdict *v, struct lg_out *o);
void lg_html_limits(const struct lg_verdict *v, struct lg_out *o);
void lg_html_inputs(const struct lg_verdict *v, struct lg_out *o);
/* html_pictures.c: inline SVG with presentation attributes, which need no style; a table beside
 * each. */
void lg_html_steps(const struct lg_verdict *v, const struct lg_accounts *a, struct lg_out *o);
int lg_html_ranks(const struct lg_verdict *v, const struct lg_accounts *a, struct lg_out *o,
		  struct lg_error *err) LG_MUST_CHECK;
void lg_html_account(const struct lg_accounts *a, struct lg_out *o);

/* html_memory.c; nothing where the trace counts no bytes. */
int lg_html_memory(const struct lg_verdict *v, struct lg_out *o, struct lg_error *err) LG_MUST_CHECK;
/* html.c: up to what the page says; its policy permits the page's style, and its script or none. */
void lg_html_head(struct lg_out *o, const char *title, bool script);
/* html_pictures.c: the k-th stage in the order that bars are stacked in, and its colour; 0 = no more. */
uint32_t lg_html_stage(unsigned k, const char **ret_colour);
void lg_html_swatch(struct lg_out *o, const char *class, const char *colour);

/* html_contents.c */
int lg_html_contents(const struct lg_verdict *v, struct lg_out *o,
		     struct lg_error *err) LG_MUST_CHECK;
/* html_data.c: what the page's script draws. */
int lg_html_data(const struct lg_verdict *v, const struct lg_accounts *a, struct lg_out *o,
		 struct lg_error *err) LG_MUST_CHECK;

/* Made from web/dist/ by tools/embed. */
extern const char lg_page_script[], lg_page_style[], lg_page_script_digest[], lg_page_style_digest[],
	lg_handoff_script[], lg_handoff_script_digest[];

#endif /* LG_REPORT_HTML_TEXT_H */
