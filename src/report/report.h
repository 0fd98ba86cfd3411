/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - a verdict as text. Reports compute nothing: they print what the analyses found and
 * the words that advise/ added. Same verdict, same bytes. Failures are the lg_out's sticky error.
 */
#ifndef LG_REPORT_REPORT_H
#define LG_REPORT_REPORT_H
#include <stdbool.h>

#include "analyse/verdict.h"
#include "base/out.h"

struct lg_term_options {
	bool colour;
	unsigned width; /* columns; 0 = the report's own */
	bool utf8;      /* blocks and lines can be shown */
};

void lg_report_json(const struct lg_verdict *v, struct lg_out *o);     /* schema 1 */
/* For a code host. runs: the table beside the verdict (runs.h), here and below; NULL = none. */
struct lg_run_table;
void lg_report_sarif(const struct lg_verdict *v, const struct lg_run_table *runs, struct lg_out *o);
/* For an issue or a chat. */
void lg_report_markdown(const struct lg_verdict *v, const struct lg_run_table *runs, struct lg_out *o);
/* One page, with pictures (html.c). Unlike the others it adds up, and can run out of memory. */
int lg_report_html(const struct lg_verdict *v, const struct lg_run_table *runs, struct lg_out *o,
		   struct lg_error *err) LG_MUST_CHECK;
/* The page that hands "trace.pftrace", which lies beside it, to Perfetto's interface at ui (handoff.c). */
void lg_report_handoff(const char *ui, const char *title, struct lg_out *o);
void lg_report_term(const struct lg_verdict *v, const struct lg_term_options *opt,
		    struct lg_out *o);

/* On one screen, with a picture of the steps (screen.c); one line a finding. */
void lg_report_screen(const struct lg_verdict *v, const struct lg_term_options *opt, struct lg_out *o);
/* What `laggard top` shows of the last seconds (top.c). */
struct lg_accounts;
struct lg_machine;
struct lg_top {
	const struct lg_machine *machine;
	const char *head;       /* of what and of when */
	unsigned width;         /* of the screen */
	bool colour, utf8;
};
void lg_report_top(const struct lg_verdict *v, const struct lg_accounts *a, const struct lg_top *how,
		   struct lg_out *o);
void lg_report_brief(const struct lg_verdict *v, struct lg_out *o);

/* The finding that the sentence is about; NULL = none at medium or above, or a large one goes before it. */
const struct lg_finding *lg_lead(const struct lg_verdict *v);
/* What the one sentence is about: that one, or the first where it is named although it is little; or NULL. */
const struct lg_finding *lg_named(const struct lg_verdict *v);
/* The one sentence: what an on-call engineer reads first. Written into buf, returned. */
const char *lg_headline(const struct lg_verdict *v, char *buf, size_t size);
/* "5210 steps, median 5.1 ms ..." shared by the text reports. */
const char *lg_steps_line(const struct lg_verdict *v, char *buf, size_t size);
/* What fired the trigger that wrote an input, and what took that moment's time. */
const char *lg_text_fired(const struct lg_fired *f, char *buf, size_t size);
/* Seconds from the start of the trace. */
double lg_report_seconds(const struct lg_verdict *v, int64_t ts);

/* laggard hang: the verdict, and where each rank stands. */
void lg_hang_json(const struct lg_verdict *v, struct lg_out *o);
void lg_hang_term(const struct lg_verdict *v, const struct lg_term_options *opt, struct lg_out *o);

/* laggard explain --modules: the tree; the verdict as JSON with it. least: a share below which nothing is
 * shown. */
struct lg_modules;
void lg_modules_term(const struct lg_modules *m, double least, const struct lg_term_options *opt,
		     struct lg_out *o);
void lg_modules_json(const struct lg_verdict *v, const struct lg_modules *m, struct lg_out *o);

/* laggard memory: the verdict and the account of memory; the largest n stacks, 0 = all. */
void lg_memory_json(const struct lg_verdict *v, size_t n, struct lg_out *o);
void lg_memory_markdown(const struct lg_verdict *v, size_t n, struct lg_out *o);
void lg_memory_term(const struct lg_verdict *v, size_t n, const struct lg_term_options *opt,
		    struct lg_out *o);
/* What is held at the snapshot, or at the peak, as collapsed stacks of bytes. */
void lg_memory_folded(const struct lg_verdict *v, bool at_peak, struct lg_out *o);

/* laggard steps. */
void lg_steps_table(const struct lg_verdict *v, struct lg_out *o);
void lg_steps_csv(const struct lg_verdict *v, struct lg_out *o);
void lg_steps_json(const struct lg_verdict *v, struct lg_out *o);

#endif /* LG_REPORT_REPORT_H */
