/* SPDX-License-Identifier: Apache-2.0 */
/* diff_markdown.c - the comparison for a pull request or a job summary. */
#include <math.h>
#include <string.h>

#include "report/diff_report.h"
#include "report/text.h"

enum { ITEMS_SHOWN = 15, GAUGES_SHOWN = 24 };

static void rows(struct lg_out *o, const struct lg_change *v, size_t n, const char *title)
{
	size_t shown = 0;
	char a[32], b[32], c[32], name[LG_KERNEL_TEXT];

	for (size_t i = 0; i < n && shown < ITEMS_SHOWN; i++) {
		if (!isnan(v[i].count_before) && (!v[i].sure || !strcmp(v[i].kind, "stage")))
			continue;
		if (!shown++)
			lg_out_printf(o, "| %s | before, ms per step | after | difference |\n|---|---:|---:|---:|\n",
				      title);
		lg_out_puts(o, "| ");
		lg_markdown_text(o, lg_change_name(&v[i], name, sizeof name));
		if (*v[i].shape) {
			lg_out_puts(o, " ");
			lg_markdown_text(o, v[i].shape);
		}
		lg_out_printf(o, " | %s | %s | %s%s%s |\n", lg_text_num(a, sizeof a, v[i].before, 3),
			      lg_text_num(b, sizeof b, v[i].after, 3), v[i].delta > 0 ? "+" : "",
			      lg_text_num(c, sizeof c, v[i].delta, 3), v[i].sure ? "" : " (noise)");
	}
	if (shown)
		lg_out_puts(o, "\n");
}

static void gauges(const struct lg_diff *d, struct lg_out *o)
{
	size_t shown = 0;

	for (size_t i = 0; i < d->n_gauges && shown < GAUGES_SHOWN; i++) {
		const struct lg_gauge_change *g = &d->gauges[i];
		char a[32], b[32], x[32], dev[48];

		if (!g->sure)
			continue;
		if (!shown++)
			lg_out_puts(o, "| device | median before | after | difference |\n|---|---:|---:|---:|\n");
		lg_out_printf(o, "| %s ", lg_gauge_device(g, dev, sizeof dev));
		lg_markdown_text(o, g->metric);
		lg_out_puts(o, *g->unit ? ", " : "");
		lg_markdown_text(o, g->unit);
		lg_out_printf(o, " | %s | %s | %s%s |\n", lg_text_num(a, sizeof a, g->before, 1),
			      lg_text_num(b, sizeof b, g->after, 1), g->delta > 0 ? "+" : "",
			      lg_text_num(x, sizeof x, g->delta, 1));
	}
	if (shown)
		lg_out_puts(o, "\n");
}

void lg_diff_markdown(const struct lg_diff *d, struct lg_out *o)
{
	char a[32], b[32];

	if (d->n_unfair) {
		lg_out_puts(o, "**No comparison of like with like:**\n\n");
		for (size_t i = 0; i < d->n_unfair; i++) {
			lg_out_puts(o, "- ");
			lg_markdown_text(o, d->unfair[i]);
			lg_out_puts(o, "\n");
		}
		lg_out_puts(o, "\n");
	}
	lg_out_puts(o, "## ");
	lg_markdown_text(o, d->headline);
	lg_out_puts(o, "\n\n");
	if (d->gate.verdict) {
		lg_out_printf(o, "**%s**: ", d->gate.verdict);
		lg_markdown_text(o, d->gate.why);
		lg_out_puts(o, "\n\n");
	}
	if (d->n_shares) {
		lg_out_puts(o, "| what explains the change | ms per step | share |\n|---|---:|---:|\n");
		for (size_t i = 0; i < d->n_shares; i++) {
			lg_out_puts(o, "| ");
			lg_markdown_text(o, d->shares[i].what);
			lg_out_printf(o, " | %s%s | %s%s |\n", d->shares[i].ms > 0 ? "+" : "",
				      lg_text_num(a, sizeof a, d->shares[i].ms, 3),
				      lg_text_num(b, sizeof b, d->shares[i].share * 100, 0),
				      isfinite(d->shares[i].share) ? " %" : "");
		}
		lg_out_puts(o, "\n");
	}
	rows(o, d->stages, d->n_stages, "stage, own time");
	rows(o, d->items, d->n_items, "operator, kernel, function");
	gauges(d, o);
	if (d->n_facts) {
		lg_out_puts(o, "| version, flag, environment | before | after |\n|---|---|---|\n");
		for (size_t i = 0; i < d->n_facts; i++) {
			lg_out_puts(o, "| ");
			lg_markdown_text(o, d->facts[i].key);
			lg_out_puts(o, " | ");
			lg_markdown_text(o, d->facts[i].before ? d->facts[i].before : "-");
			lg_out_puts(o, " | ");
			lg_markdown_text(o, d->facts[i].after ? d->facts[i].after : "-");
			lg_out_puts(o, " |\n");
		}
		lg_out_puts(o, "\n");
	}
	lg_markdown_findings(&d->v, o);
	lg_out_puts(o, "_laggard " LG_VERSION "_\n");
}
