/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - sentences and fields that the terminal and the Markdown report share. */
#ifndef LG_REPORT_TEXT_H
#define LG_REPORT_TEXT_H
#include "analyse/verdict.h"
#include "base/out.h"

/* Number for people; "-" where unknown. Written into buf, returned (as all below). */
const char *lg_text_num(char *buf, size_t size, double v, int decimals);
/* A bar of that height, 0 to 1, a column wide: one of eight. */
const char *lg_text_bar(double height, bool utf8);
const char *lg_text_who(const struct lg_finding *f, char *buf, size_t size);
const char *lg_text_stack(const struct lg_finding *f, size_t max, char *buf, size_t size);
const char *lg_text_victims(const struct lg_finding *f, char *buf, size_t size);
/* What the run costs and what of that is lost; "" when not asked. */
const char *lg_text_money(const struct lg_verdict *v, char *buf, size_t size);
const char *lg_text_lost(const struct lg_finding *f, char *buf, size_t size);

/*
 * Print text from column col, wrapped at width columns, later lines indented, with a newline at
 * the end. Only printable characters leave: what lg_printable() refuses becomes '?', and so does what would
 * make a line a command to a CI runner.
 */
void lg_text_wrap(struct lg_out *o, const char *text, unsigned col, unsigned indent,
		  unsigned width);
/* The same cleaning without wrapping or newline. */
void lg_text_safe(struct lg_out *o, const char *text);

/*
 * Text from outside as a field of CSV (RFC 4180): quoted where it must be, what may not be shown as \n or
 * \xNN (base/printable.h). Text that a spreadsheet would compute (a first character of = + - @) gets an
 * apostrophe in front, as spreadsheets themselves mark text; numbers do not go through here.
 */
void lg_csv_text(struct lg_out *o, const char *text);

/* Text from outside as Markdown, and the sections "findings" and "limits" (markdown.c). */
void lg_markdown_text(struct lg_out *o, const char *s);
void lg_markdown_findings(const struct lg_verdict *v, struct lg_out *o);
/* The same sections for the terminal (term.c). */
struct lg_term_options;
void lg_term_findings(const struct lg_verdict *v, const struct lg_term_options *opt, struct lg_out *o);

#endif /* LG_REPORT_TEXT_H */
