/* SPDX-License-Identifier: Apache-2.0 */
/* handoff.c - the page that hands the trace beside it to Perfetto's interface (web/src/handoff.ts). */
#include "report/html_text.h"
#include "report/report.h"

void lg_report_handoff(const char *ui, const char *title, struct lg_out *o)
{
	lg_out_printf(o,
		      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '%s'; "
		      "style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'\">\n",
		      lg_handoff_script_digest, lg_page_style_digest);
	lg_out_puts(o, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		       "<meta name=\"color-scheme\" content=\"light dark\">\n<title>laggard: open in Perfetto</title>\n"
		       "<style>");
	lg_out_puts(o, lg_page_style);
	lg_out_puts(o, "</style>\n</head>\n<body data-ui=\"");
	lg_html_text(o, ui);
	lg_out_puts(o, "\" data-title=\"");
	lg_html_text(o, title);
	lg_out_puts(o, "\">\n<main>\n<h1>");
	lg_html_text(o, title);
	lg_out_puts(o, "</h1>\n<p><button type=\"button\">Open in Perfetto</button> "
		       "The browser gives the trace to <code>");
	lg_html_text(o, ui);
	lg_out_puts(o, "</code> in another window; that page computes in the browser and sends it nowhere. Or <a "
		       "href=\"trace.pftrace\" download>save the trace</a>, or go <a href=\".\">to the report</a>.</p>\n"
		       "<p><output></output></p>\n</main>\n<script>");
	lg_out_puts(o, lg_handoff_script);
	lg_out_puts(o, "</script>\n</body>\n</html>\n");
}
