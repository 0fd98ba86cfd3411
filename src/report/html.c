/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html.c - the verdict and its pictures as one page that needs nothing else: no network, no folder
 * beside it.
 *
 * In this order: what is read without scripts; style and script, whose digests the page's policy
 * permits and nothing besides; what the script draws, as data that no browser runs. The policy is a
 * meta element in front of all of them: it holds for a file, too.
 */
#include "report/html_text.h"
#include "report/report.h"
#include "report/runs.h"

void lg_html_head(struct lg_out *o, const char *title, bool script)
{
	lg_out_printf(o,
		      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		      "%s%s%sstyle-src '%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
		      script ? "script-src '" : "", script ? lg_page_script_digest : "", script ? "'; " : "",
		      lg_page_style_digest);
	lg_out_puts(o, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		       "<meta name=\"color-scheme\" content=\"light dark\">\n"
		       "<meta name=\"referrer\" content=\"no-referrer\">\n"
		       "<meta name=\"generator\" content=\"laggard " LG_VERSION "\">\n<title>");
	lg_html_text(o, title);
	lg_out_puts(o, "</title>\n<style>");
	lg_out_puts(o, lg_page_style);
	lg_out_puts(o, "</style>\n</head>\n<body>\n<header id=\"bar\"><b>laggard</b> <span>finds who makes a training "
		       "step late</span></header>\n<main>\n");
}

int lg_report_html(const struct lg_verdict *v, const struct lg_run_table *runs, struct lg_out *o,
		   struct lg_error *err)
{
	struct lg_accounts a;
	char title[4096];
	int rc = lg_accounts_make(&a, v, err);

	if (rc)
		return rc;
	lg_html_head(o, lg_headline(v, title, sizeof title), true);
	lg_html_verdict(v, o);
	lg_html_steps(v, &a, o);
	lg_html_account(&a, o);
	rc = lg_html_ranks(v, &a, o, err);
	lg_out_puts(o, "<section id=\"timeline\" hidden aria-labelledby=\"timeline-h\"><h2 "
		       "id=\"timeline-h\">Timeline</h2></section>\n"
		       "<noscript><p>The timeline is drawn by a script, which does not run here. "
		       "All of the verdict is on this "
		       "page without it.</p></noscript>\n");
	lg_html_findings(v, o);
	if (runs)
		lg_html_runs(runs, o);
	lg_html_stages(v, o);
	rc = rc ? rc : lg_html_memory(v, o, err);
	rc = rc ? rc : lg_html_contents(v, o, err);
	lg_html_limits(v, o);
	lg_html_inputs(v, o);
	lg_out_puts(o, "</main>\n<footer><p>laggard " LG_VERSION
		       "; every word is defined in doc/contract.md, every finding in "
		       "<code>laggard rules ID</code>.</p></footer>\n");
	lg_out_puts(o, "<script>");
	lg_out_puts(o, lg_page_script);
	lg_out_puts(o, "</script>\n");
	rc = rc ? rc : lg_html_data(v, &a, o, err);
	lg_out_puts(o, "</body>\n</html>\n");
	lg_accounts_done(&a);
	return rc;
}
