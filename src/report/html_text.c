/* SPDX-License-Identifier: Apache-2.0 */
#include "report/html_text.h"

#include <math.h>
#include <string.h>

#include "base/printable.h"
#include "report/report.h"
#include "report/text.h"

enum { LONGEST = 4000 };

void lg_html_text(struct lg_out *o, const char *s)
{
	static const char special[] = "&<>\"'";
	static const char *const as[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#39;" };
	size_t shown = 0;

	while (s && *s) {
		size_t n = lg_printable((const unsigned char *)s);
		const char *at = strchr(special, *s);

		if (shown++ == LONGEST) {
			lg_out_printf(o, " ... (%zu bytes more)", strlen(s));
			return;
		}
		if (at)
			lg_out_puts(o, as[at - special]);
		else if (n)
			lg_out_write(o, s, n);
		else
			lg_out_printf(o, "\\x%02x", (unsigned char)*s);
		s += n ? n : 1;
	}
}

void lg_html_href(struct lg_out *o, const struct lg_verdict *v, int64_t ts, int64_t dur)
{
	double s = lg_report_seconds(v, ts);

	lg_out_printf(o, "#t=%.6f-%.6f", s, s + (dur > 0 ? (double)dur / 1e9 : 0));
}

void lg_html_moment(struct lg_out *o, const struct lg_verdict *v, int64_t ts, int64_t dur)
{
	double s = lg_report_seconds(v, ts);

	if (!isfinite(s))
		return;
	lg_out_puts(o, "<a class=\"at\" href=\"");
	lg_html_href(o, v, ts, dur);
	lg_out_printf(o, "\">%.3f s", s);
	if (dur > 0)
		lg_out_printf(o, ", %.1f ms", (double)dur / 1e6);
	lg_out_puts(o, "</a>");
}

void lg_html_exact_ms(struct lg_out *o, int64_t ns)
{
	int64_t a = ns < 0 ? -ns : ns;

	lg_out_printf(o, "%s%lld.%06lld", ns < 0 ? "-" : "", (long long)(a / 1000000),
		      (long long)(a % 1000000));
}
