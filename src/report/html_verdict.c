/* SPDX-License-Identifier: Apache-2.0 */
/* html_verdict.c - the verdict as plain HTML: what is read where no script runs, in print and by a
 * screen reader. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/order.h"
#include "report/html_text.h"
#include "report/json_write.h"
#include "report/report.h"
#include "report/text.h"

/* Where a number is to be seen; dur < 0 = nowhere. */
struct moment {
	int64_t ts, dur;
};

static const struct moment nowhere = { 0, -1 };

/* A number with its name, which leads to where it shows; nothing where it is unknown. */
static void fact(struct lg_out *o, const struct lg_verdict *v, const char *label, const char *text,
		 struct moment at)
{
	bool shows = at.dur >= 0 && v->trace && isfinite(lg_report_seconds(v, at.ts));

	if (!text || !*text)
		return;
	lg_out_printf(o, "<div><dt>%s</dt><dd>", label);
	if (shows) {
		lg_out_puts(o, "<a href=\"");
		lg_html_href(o, v, at.ts, at.dur);
		lg_out_puts(o, "\">");
	}
	lg_html_text(o, text);
	lg_out_puts(o, shows ? "</a></dd></div>\n" : "</dd></div>\n");
}

/* The first moment that a finding has evidence of. */
static struct moment of_finding(const struct lg_finding *f)
{
	for (size_t i = 0; i < f->n_evidence; i++)
		if (f->evidence[i].ts != INT64_MIN)
			return (struct moment){ f->evidence[i].ts, LG_MAX(f->evidence[i].dur, 0) };
	return nowhere;
}

/* The judged step whose time is nearest to so much. */
static struct moment step_of(const struct lg_verdict *v, double ms)
{
	struct moment at = nowhere;
	double apart = (double)INFINITY;

	for (size_t i = 0; i < v->n_steps; i++) {
		double d = fabs((double)v->steps[i].dur / 1e6 - ms);

		if (v->steps[i].warmup || d >= apart)
			continue;
		apart = d;
		at = (struct moment){ v->steps[i].ts, v->steps[i].dur };
	}
	return at;
}

static struct moment slowest(const struct lg_verdict *v)
{
	struct moment at = nowhere;
	int64_t most = INT64_MIN;

	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];

		if (!s->slow || s->dur - s->median <= most)
			continue;
		most = s->dur - s->median;
		at = (struct moment){ s->ts, s->dur };
	}
	return at;
}

/* From the first to the last step. */
static struct moment whole(const struct lg_verdict *v)
{
	int64_t from = INT64_MAX, to = INT64_MIN;

	for (size_t i = 0; i < v->n_steps; i++) {
		from = LG_MIN(from, v->steps[i].ts);
		to = LG_MAX(to, v->steps[i].ts + v->steps[i].dur);
	}
	return from < to ? (struct moment){ from, to - from } : nowhere;
}

static void facts(const struct lg_verdict *v, struct lg_out *o)
{
	const struct lg_finding *f = lg_named(v);
	struct moment lost = f ? of_finding(f) : nowhere, all = whole(v);
	char buf[4096], num[32], more[32];

	if (lost.dur < 0)
		lost = all;
	lg_out_puts(o, "<dl class=\"facts\">\n");
	if (f && isfinite(f->lost_ms)) {
		snprintf(buf, sizeof buf, "%s ms", lg_text_num(num, sizeof num, f->lost_ms, 1));
		fact(o, v, "lost", buf, lost);
	}
	if (f && isfinite(f->lost_share)) {
		snprintf(buf, sizeof buf, "%s %%",
			 lg_text_num(num, sizeof num, f->lost_share * 100, 1));
		fact(o, v, "of the run", buf, lost);
	}
	if (f) {
		snprintf(buf, sizeof buf, "%.2f", f->confidence);
		fact(o, v, "confidence", buf, lost);
	}
	if (f && isfinite(f->cost_per_hour)) {
		snprintf(buf, sizeof buf, "%.2f", f->cost_per_hour);
		fact(o, v, "cost an hour", buf, lost);
	}
	if (v->n_judged) {
		snprintf(buf, sizeof buf, "%zu of %zu", v->n_slow, v->n_judged);
		fact(o, v, "slow steps", buf, v->n_slow ? slowest(v) : all);
	}
	if (isfinite(v->median_ms)) {
		snprintf(buf, sizeof buf, "%s ms", lg_text_num(num, sizeof num, v->median_ms, 2));
		fact(o, v, "step median", buf, step_of(v, v->median_ms));
		snprintf(buf, sizeof buf, "%s ms", lg_text_num(more, sizeof more, v->p99_ms, 2));
		fact(o, v, "p99", buf, step_of(v, v->p99_ms));
	}
	if (v->shape && isfinite(v->period_s))
		snprintf(buf, sizeof buf, "%s, every %s s", lg_shape_text(v->shape),
			 lg_text_num(num, sizeof num, v->period_s, v->period_s < 0.1 ? 4 : 2));
	else
		snprintf(buf, sizeof buf, "%s", v->shape ? lg_shape_text(v->shape) : "");
	fact(o, v, "shape", buf, all);
	fact(o, v, "scope", v->scope ? lg_scope_text(v->scope) : "", all);
	fact(o, v, "bound", v->bound ? lg_bound_text(v->bound) : "", all);
	if (isfinite(v->unexplained_share)) {
		snprintf(buf, sizeof buf, "%s %%",
			 lg_text_num(num, sizeof num, v->unexplained_share * 100, 1));
		fact(o, v, "unexplained", buf, all);
	}
	lg_out_puts(o, "</dl>\n");
}

static void paragraph(struct lg_out *o, const char *class, const char *text)
{
	if (!text || !*text)
		return;
	lg_out_printf(o, "<p class=\"%s\">", class);
	lg_html_text(o, text);
	lg_out_puts(o, "</p>\n");
}

static void row(struct lg_out *o, const char *label, const char *text)
{
	if (!text || !*text)
		return;
	lg_out_printf(o, "<dt>%s</dt><dd>", label);
	lg_html_text(o, text);
	lg_out_puts(o, "</dd>\n");
}

/* What to do about it, and how to make sure first. */
static void to_do(const struct lg_finding *f, struct lg_out *o)
{
	row(o, "fix", f->fix);
	row(o, "trade-off", f->tradeoff);
	row(o, "to confirm", f->confirm);
}

void lg_html_verdict(const struct lg_verdict *v, struct lg_out *o)
{
	const struct lg_finding *f = lg_named(v);
	char buf[4096];

	for (size_t i = 0; i < v->n_fired; i++)
		paragraph(o, "fired", lg_text_fired(&v->fired[i], buf, sizeof buf));
	lg_out_printf(o, "<h1 class=\"%s\">", f ? lg_severity_text(f->severity) : "none");
	lg_html_text(o, lg_headline(v, buf, sizeof buf));
	lg_out_puts(o, "</h1>\n");
	facts(v, o);
	if (f) {
		lg_out_puts(o, "<dl class=\"to-do\">\n");
		to_do(f, o);
		lg_out_puts(o, "</dl>\n");
	}
	if (v->n_judged)
		paragraph(o, "steps-line", lg_steps_line(v, buf, sizeof buf));
	if (v->bound && v->bound_why) {
		snprintf(buf, sizeof buf, "bound: %s (confidence %.2f): %s",
			 lg_bound_text(v->bound), v->bound_confidence, v->bound_why);
		paragraph(o, "bound", buf);
	}
	paragraph(o, "money", lg_text_money(v, buf, sizeof buf));
}

static void evidence(struct lg_out *o, const struct lg_verdict *v, const char *label,
		     const struct lg_evidence *e, size_t n, size_t left_out)
{
	struct moment all = whole(v);

	if (!n)
		return;
	lg_out_printf(o, "<dt>%s</dt><dd><ul>\n", label);
	for (size_t i = 0; i < n; i++) {
		lg_out_puts(o, "<li>");
		if (e[i].ts != INT64_MIN && isfinite(lg_report_seconds(v, e[i].ts))) {
			lg_html_moment(o, v, e[i].ts, e[i].dur);
			lg_out_puts(o, " ");
		} else if (all.dur > 0 && isfinite(lg_report_seconds(v, all.ts))) {
			lg_out_puts(o, "<a class=\"at\" href=\"");
			lg_html_href(o, v, all.ts, all.dur);
			lg_out_puts(o, "\">all steps</a> ");
		}
		lg_html_text(o, e[i].text);
		lg_out_puts(o, "</li>\n");
	}
	if (left_out)
		lg_out_printf(o, "<li>and %zu more</li>\n", left_out);
	lg_out_puts(o, "</ul></dd>\n");
}

static void finding(const struct lg_verdict *v, size_t i, struct lg_out *o)
{
	const struct lg_finding *f = &v->findings[i];
	char buf[4096];

	lg_out_printf(o,
		      "<article class=\"finding %s\" id=\"finding-%zu\">\n<h3><span "
		      "class=\"severity\">%s</span> ",
		      lg_severity_text(f->severity), i + 1, lg_severity_text(f->severity));
	lg_html_text(o, f->title);
	lg_out_printf(o, "</h3>\n<p class=\"price\"><code>%s</code> ", f->id);
	lg_html_text(o, lg_text_lost(f, buf, sizeof buf));
	if (isfinite(f->cost_per_hour))
		lg_out_printf(o, "; %.2f an hour", f->cost_per_hour);
	lg_out_puts(o, "</p>\n<dl>\n");
	to_do(f, o);
	row(o, "who", lg_text_who(f, buf, sizeof buf));
	if (f->culprit.function)
		row(o, "doing", lg_text_stack(f, 12, buf, sizeof buf));
	row(o, "lock", f->culprit.lock);
	row(o, "victims", lg_text_victims(f, buf, sizeof buf));
	row(o, "stage", f->stage);
	row(o, "detail", f->detail);
	evidence(o, v, "evidence", f->evidence, f->n_evidence, f->evidence_left_out);
	evidence(o, v, "against", f->against, f->n_against, f->against_left_out);
	lg_out_puts(o, "</dl>\n</article>\n");
}

void lg_html_findings(const struct lg_verdict *v, struct lg_out *o)
{
	size_t minor = 0;

	lg_out_puts(o, "<section id=\"findings\" aria-labelledby=\"findings-h\">\n<h2 "
		       "id=\"findings-h\">Findings</h2>\n");
	for (size_t i = 0; i < v->n_findings; i++) {
		minor += v->findings[i].severity == LG_SEVERITY_INFO;
		if (v->findings[i].severity != LG_SEVERITY_INFO)
			finding(v, i, o);
	}
	if (minor == v->n_findings)
		lg_out_puts(o,
			    minor ? "<p>None of low severity or above.</p>\n" : "<p>None.</p>\n");
	if (minor) {
		lg_out_printf(o,
			      "<details class=\"minor\"><summary>%zu minor, below 1 %% of the run "
			      "or for information"
			      "</summary>\n",
			      minor);
		for (size_t i = 0; i < v->n_findings; i++)
			if (v->findings[i].severity == LG_SEVERITY_INFO)
				finding(v, i, o);
		lg_out_puts(o, "</details>\n");
	}
	lg_out_puts(o, "</section>\n");
}

void lg_html_stages(const struct lg_verdict *v, struct lg_out *o)
{
	char buf[32];

	if (!v->n_stages)
		return;
	lg_out_puts(
	    o,
	    "<section id=\"stages\" aria-labelledby=\"stages-h\"><h2 id=\"stages-h\">Stages</h2>\n"
	    "<table><thead><tr><th scope=\"col\">stage</th><th scope=\"col\">median, ms</th>"
	    "<th scope=\"col\">share, %</th><th scope=\"col\">excess in slow steps, "
	    "ms</th></tr></thead><tbody>\n");
	for (size_t i = 0; i < v->n_stages; i++) {
		const struct lg_stage_sum *s = &v->stages[i];

		if (!(s->median_ms > 0) && !(s->share > 0) && !(s->slow_excess_ms > 0))
			continue; /* does not occur in this run */
		lg_out_printf(o, "<tr><th scope=\"row\">%s</th>", s->stage);
		lg_out_printf(o, "<td>%s</td>", lg_text_num(buf, sizeof buf, s->median_ms, 4));
		lg_out_printf(o, "<td>%s</td>", lg_text_num(buf, sizeof buf, s->share * 100, 2));
		lg_out_printf(o, "<td>%s</td></tr>\n",
			      lg_text_num(buf, sizeof buf, s->slow_excess_ms, 3));
	}
	lg_out_puts(o, "</tbody></table></section>\n");
}

void lg_html_limits(const struct lg_verdict *v, struct lg_out *o)
{
	lg_out_puts(o, "<section id=\"limits\" aria-labelledby=\"limits-h\"><h2 "
		       "id=\"limits-h\">What could not be seen</h2>\n");
	if (!v->n_limits)
		lg_out_puts(o, "<p>Nothing is known to be missing.</p>\n");
	else
		lg_out_puts(o, "<ul>\n");
	for (size_t i = 0; i < v->n_limits; i++) {
		lg_out_puts(o, "<li>");
		lg_html_text(o, v->limits[i]);
		lg_out_puts(o, "</li>\n");
	}
	lg_out_puts(o, v->n_limits ? "</ul></section>\n" : "</section>\n");
}

void lg_html_inputs(const struct lg_verdict *v, struct lg_out *o)
{
	char num[32];

	lg_out_puts(
	    o,
	    "<section id=\"inputs\" aria-labelledby=\"inputs-h\"><h2 id=\"inputs-h\">Inputs</h2>\n"
	    "<div class=\"wide\"><table><thead><tr><th scope=\"col\">file</th><th "
	    "scope=\"col\">format</th>"
	    "<th scope=\"col\">host</th><th scope=\"col\">s</th><th scope=\"col\">samples</th>"
	    "<th scope=\"col\">states</th><th scope=\"col\">spans</th><th "
	    "scope=\"col\">counters</th>"
	    "<th scope=\"col\">lost</th></tr></thead><tbody>\n");
	for (size_t i = 0; i < v->n_inputs; i++) {
		const struct lg_input *in = &v->inputs[i];

		lg_out_puts(o, "<tr><th scope=\"row\">");
		lg_html_text(o, in->path);
		lg_out_puts(o, "</th><td>");
		lg_html_text(o, in->format);
		lg_out_puts(o, "</td><td>");
		lg_html_text(o, in->host);
		lg_out_printf(o,
			      "</td><td>%s</td><td>%llu</td><td>%llu</td><td>%llu</td><td>%llu</"
			      "td><td>%llu</td></tr>\n",
			      lg_text_num(num, sizeof num, in->duration_s, 3),
			      (unsigned long long)in->rows_sample,
			      (unsigned long long)in->rows_state, (unsigned long long)in->rows_span,
			      (unsigned long long)in->rows_counter,
			      (unsigned long long)in->lost_events);
	}
	lg_out_puts(o, "</tbody></table></div></section>\n");
}
