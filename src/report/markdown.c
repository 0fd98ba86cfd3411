/* SPDX-License-Identifier: Apache-2.0 */
/* markdown.c - the verdict for an issue, a pull request or a chat (CommonMark with tables). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"
#include "report/report.h"
#include "report/runs.h"
#include "report/text.h"

/* Text from outside may not end a table cell, start a tag or a link, or hold control characters. */
static void md(struct lg_out *o, const char *s)
{
	while (*s) {
		size_t n = lg_printable((const unsigned char *)s);

		if (strchr("\\`*_{}[]<>#|~", *s))
			lg_out_write(o, "\\", 1);
		lg_out_write(o, n ? s : " ", n ? n : 1);
		s += n ? n : 1;
	}
}

static void item(struct lg_out *o, const char *label, const char *text)
{
	if (!text || !*text)
		return;
	lg_out_printf(o, "- **%s**: ", label);
	md(o, text);
	lg_out_puts(o, "\n");
}

static void evidence(struct lg_out *o, const struct lg_verdict *v, const char *label,
		     const struct lg_evidence *e, size_t n, size_t left_out)
{
	if (!n)
		return;
	lg_out_printf(o, "- **%s**:\n", label);
	for (size_t i = 0; i < n; i++) {
		double s = lg_report_seconds(v, e[i].ts);

		lg_out_puts(o, "  - ");
		if (isfinite(s)) {
			lg_out_printf(o, "at %.3f s", s);
			if (e[i].dur > 0)
				lg_out_printf(o, ", %.1f ms", (double)e[i].dur / 1e6);
			lg_out_puts(o, ": ");
		}
		md(o, e[i].text);
		lg_out_puts(o, "\n");
	}
	if (left_out)
		lg_out_printf(o, "  - and %zu more\n", left_out);
}

static void finding(struct lg_out *o, const struct lg_verdict *v, size_t i)
{
	const struct lg_finding *f = &v->findings[i];
	char buf[4096];

	lg_out_printf(o, "### %zu. ", i + 1);
	md(o, f->title);
	lg_out_printf(o, "\n\n- **rule**: `%s`, severity **%s**\n", f->id,
		      lg_severity_text(f->severity));
	item(o, "who", lg_text_who(f, buf, sizeof buf));
	if (f->culprit.function)
		item(o, "doing", lg_text_stack(f, 12, buf, sizeof buf));
	item(o, "lock", f->culprit.lock);
	item(o, "victims", lg_text_victims(f, buf, sizeof buf));
	item(o, "lost", lg_text_lost(f, buf, sizeof buf));
	item(o, "stage", f->stage);
	item(o, "detail", f->detail);
	evidence(o, v, "evidence", f->evidence, f->n_evidence, f->evidence_left_out);
	evidence(o, v, "against", f->against, f->n_against, f->against_left_out);
	item(o, "to confirm", f->confirm);
	item(o, "fix", f->fix);
	item(o, "trade-off", f->tradeoff);
	if (isfinite(f->cost_per_hour))
		lg_out_printf(o, "- **cost**: %.2f an hour\n", f->cost_per_hour);
	lg_out_puts(o, "\n");
}

void lg_markdown_text(struct lg_out *o, const char *s)
{
	md(o, s);
}

void lg_markdown_findings(const struct lg_verdict *v, struct lg_out *o)
{
	for (size_t i = 0; i < v->n_findings; i++)
		finding(o, v, i);
	if (v->n_limits) {
		lg_out_puts(o, "### Limits\n\n");
		for (size_t i = 0; i < v->n_limits; i++) {
			lg_out_puts(o, "- ");
			md(o, v->limits[i]);
			lg_out_puts(o, "\n");
		}
		lg_out_puts(o, "\n");
	}
}

void lg_report_markdown(const struct lg_verdict *v, const struct lg_run_table *runs, struct lg_out *o)
{
	char buf[4096], a[32], b[32], c[32];

	for (size_t i = 0; i < v->n_fired; i++) {
		md(o, lg_text_fired(&v->fired[i], buf, sizeof buf));
		lg_out_puts(o, "\n\n");
	}
	lg_out_puts(o, "## ");
	md(o, lg_headline(v, buf, sizeof buf));
	lg_out_puts(o, "\n\n");
	if (*lg_text_money(v, buf, sizeof buf)) {
		md(o, buf);
		lg_out_puts(o, "\n\n");
	}
	if (v->n_judged) {
		md(o, lg_steps_line(v, buf, sizeof buf));
		if (v->bound) {
			lg_out_printf(o, "; bound: %s (confidence %.2f)", lg_bound_text(v->bound), v->bound_confidence);
			if (v->bound_why) {
				lg_out_puts(o, ", ");
				md(o, v->bound_why);
			}
		}
		lg_out_puts(o, "\n\n");
	}
	if (v->n_stages) {
		lg_out_puts(o, "| stage | median ms | share | excess in slow steps, ms |\n"
			       "|---|---:|---:|---:|\n");
		for (size_t i = 0; i < v->n_stages; i++) {
			const struct lg_stage_sum *s = &v->stages[i];

			if (!(s->median_ms > 0) && !(s->share > 0) && !(s->slow_excess_ms > 0))
				continue; /* does not occur in this run */
			lg_out_puts(o, "| ");
			md(o, s->stage);
			lg_out_printf(o, " | %s | %s %% | %s |\n",
				      lg_text_num(a, sizeof a, s->median_ms, 3),
				      lg_text_num(b, sizeof b, s->share * 100, 1),
				      lg_text_num(c, sizeof c, s->slow_excess_ms, 1));
		}
		lg_out_puts(o, "\n");
	}
	lg_markdown_findings(v, o);
	if (runs)
		lg_markdown_runs(runs, o);
	lg_out_puts(o, "_laggard " LG_VERSION ", ");
	for (size_t i = 0; i < v->n_inputs; i++) {
		lg_out_puts(o, i ? ", " : "");
		md(o, v->inputs[i].path ? v->inputs[i].path : "?");
		lg_out_printf(o, " (%.1f s)", v->inputs[i].duration_s);
	}
	lg_out_puts(o, "_\n");
}
