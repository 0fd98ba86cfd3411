/* SPDX-License-Identifier: Apache-2.0 */
/* html_contents.c - what the file holds, where there is a verdict and where there is none. */
#include <stdio.h>

#include "base/agree.h"
#include "base/order.h"
#include "picture/contents.h"
#include "report/contents.h"
#include "report/html_text.h"

int lg_html_contents(const struct lg_verdict *v, struct lg_out *o, struct lg_error *err)
{
	static const char *const title[] = { "Processes, by CPU time",
					     "Functions, by samples",
					     "Kernels",
					     "Copies",
					     "Collectives",
					     "Operators",
					     "Events" };
	const struct lg_trace *t = v->trace;
	struct lg_contents c;
	char name[512];
	char rows[256];
	int rc = lg_contents_make(&c, v, err);

	if (rc || !t)
		return rc;
	lg_out_puts(o, "<section id=\"contents\" aria-labelledby=\"contents-h\"><h2 "
		       "id=\"contents-h\">What the input holds</h2>\n");
	if (t->last > t->first) {
		lg_agree(rows, sizeof rows,
			 "%.3f s; %zu processes, %zu threads; %zu samples, %zu states, %zu spans, "
			 "%zu counter values",
			 (double)(t->last - t->first) / 1e9, LG_MAX(t->process.n, (size_t)1) - 1,
			 LG_MAX(t->thread.n, (size_t)1) - 1, t->sample.n, t->state.n, t->span.n,
			 t->counter.n);
		lg_out_printf(o, "<p class=\"note\">%s</p>\n", rows);
	}
	lg_out_puts(o, "<div class=\"columns\">\n");
	for (int k = 0; k < LG_CONTENT_MAX; k++) {
		if (!c.of[k].n)
			continue;
		lg_out_printf(o,
			      "<details%s><summary>%s (%zu)</summary><table><thead><tr><th "
			      "scope=\"col\">name</th>"
			      "<th scope=\"col\">ms</th><th scope=\"col\">%%</th><th "
			      "scope=\"col\">count</th></tr></thead><tbody>\n",
			      v->n_steps ? "" : " open", title[k], c.of[k].names);
		for (size_t i = 0; i < c.of[k].n; i++) {
			const struct lg_content_row *r = &c.of[k].top[i];

			lg_out_puts(o, "<tr><th scope=\"row\">");
			lg_html_text(o, lg_content_name(t, (enum lg_content)k, r->id, name, sizeof name));
			if (k == LG_CONTENT_EVENT)
				lg_out_puts(o, "</th><td></td><td></td><td>");
			else
				lg_out_printf(o, "</th><td>%.3f</td><td>%.1f</td><td>", (double)r->ns / 1e6,
					      100 * (double)r->ns / (double)c.of[k].ns);
			if (r->count)
				lg_out_printf(o, "%llu", (unsigned long long)r->count);
			lg_out_puts(o, "</td></tr>\n");
		}
		lg_out_puts(o, "</tbody></table></details>\n");
	}
	lg_out_puts(o, "</div></section>\n");
	return 0;
}
