/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_junit.c - the comparison as a JUnit suite (the XML that CI servers read; windyroad's schema).
 *
 * The case "step time" is the gate. Each finding is a case, too; one at medium or above fails only
 * when the gate failed or none was asked for: what a gate lets pass is no failure.
 */
#include <string.h>

#include "report/diff_report.h"

/* XML 1.0 has no way to write most control characters: they go. Malformed UTF-8 becomes '?'. */
static void xml(struct lg_out *o, const char *s)
{
	for (const unsigned char *p = (const unsigned char *)(s ? s : ""); *p; p++) {
		size_t n = *p < 0x80 ? 1 : *p >= 0xc2 && *p < 0xe0 ? 2 : *p >= 0xe0 && *p < 0xf0 ? 3
			   : *p >= 0xf0 && *p < 0xf5 ? 4 : 0;

		for (size_t i = 1; i < n; i++)
			if ((p[i] & 0xc0) != 0x80)
				n = 0;
		/* U+FFFE, U+FFFF and surrogates are not characters of XML, overlong forms not UTF-8. */
		if ((n == 3 && ((p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe) ||
				(p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xe0 && p[1] < 0xa0))) ||
		    (n == 4 && ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))))
			n = 0;
		if (*p == '<')
			lg_out_puts(o, "&lt;");
		else if (*p == '>')
			lg_out_puts(o, "&gt;");
		else if (*p == '&')
			lg_out_puts(o, "&amp;");
		else if (*p == '"')
			lg_out_puts(o, "&quot;");
		else if (*p < 0x20 || *p == 0x7f)
			lg_out_write(o, " ", 1);
		else if (!n)
			lg_out_write(o, "?", 1);
		else {
			lg_out_write(o, p, n);
			p += n - 1;
		}
	}
}

static bool loud(const struct lg_finding *f)
{
	return f->severity == LG_SEVERITY_HIGH || f->severity == LG_SEVERITY_MEDIUM;
}

static void finding_case(const struct lg_finding *f, bool fails, struct lg_out *o)
{
	lg_out_puts(o, "    <testcase classname=\"laggard.diff\" name=\"");
	xml(o, f->id);
	lg_out_puts(o, ": ");
	xml(o, f->culprit.function ? f->culprit.function : f->culprit.comm ? f->culprit.comm
							 : f->stage ? f->stage : f->title);
	lg_out_puts(o, "\" time=\"0\">\n");
	lg_out_printf(o, "      <%s", fails ? "failure" : "system-out");
	if (fails) {
		lg_out_printf(o, " type=\"%s\" message=\"", lg_severity_text(f->severity));
		xml(o, f->title);
		lg_out_puts(o, "\"");
	}
	lg_out_puts(o, ">");
	xml(o, f->title);
	for (size_t i = 0; i < f->n_evidence; i++) {
		lg_out_puts(o, "\n");
		xml(o, f->evidence[i].text);
	}
	if (f->fix) {
		lg_out_puts(o, "\nfix: ");
		xml(o, f->fix);
	}
	lg_out_printf(o, "</%s>\n    </testcase>\n", fails ? "failure" : "system-out");
}

void lg_diff_junit(const struct lg_diff *d, struct lg_out *o)
{
	bool failed = d->gate.verdict && !strcmp(d->gate.verdict, "fail");
	bool unknown = d->gate.verdict && !strcmp(d->gate.verdict, "unknown");
	size_t failures = failed;

	for (size_t i = 0; i < d->v.n_findings; i++)
		failures += loud(&d->v.findings[i]) && (failed || !d->gate.verdict);
	lg_out_puts(o, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
	lg_out_printf(o, "  <testsuite name=\"laggard diff\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" "
		      "skipped=\"%d\" time=\"0\">\n", d->v.n_findings + 1, failures, unknown);
	lg_out_puts(o, "    <testcase classname=\"laggard.diff\" name=\"step time\" time=\"0\">\n");
	if (failed) {
		lg_out_puts(o, "      <failure type=\"slower\" message=\"");
		xml(o, d->gate.why);
		lg_out_puts(o, "\">");
		xml(o, d->headline);
		lg_out_puts(o, "</failure>\n");
	} else if (unknown) {
		lg_out_puts(o, "      <skipped message=\"");
		xml(o, d->gate.why);
		lg_out_puts(o, "\"/>\n");
	} else {
		lg_out_puts(o, "      <system-out>");
		xml(o, d->headline);
		lg_out_puts(o, "</system-out>\n");
	}
	lg_out_puts(o, "    </testcase>\n");
	for (size_t i = 0; i < d->v.n_findings; i++)
		finding_case(&d->v.findings[i], loud(&d->v.findings[i]) && (failed || !d->gate.verdict), o);
	lg_out_puts(o, "  </testsuite>\n</testsuites>\n");
}
