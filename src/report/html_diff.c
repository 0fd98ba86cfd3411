/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html_diff.c - a comparison as one page: both runs on one scale, step below step, and what explains it.
 *
 * Nothing of it needs a script. A column is the longest step of its part of the run, never a mean, which
 * would hide the slow one; the n-th step of one run stands above the n-th of the other.
 */
#include <math.h>
#include <stdio.h>

#include "base/each.h"
#include "base/median.h"
#include "base/order.h"
#include "report/diff_report.h"
#include "report/html_text.h"
#include "report/text.h"

enum { WIDTH = 1200, COLUMNS = 480, HEIGHT = 120, GAP = 34, ITEMS_SHOWN = 20 };

/* Where a step's time is that no stage of its own has: something of the host took it. */
static const char *const taken_colour = "#d55e00";

struct strips {
	size_t most;  /* steps of the longer run */
	double top;   /* ms: of the scale of both */
	bool taken, shown[LG_STAGE_MAX];
};

/* The longest step of column c of so many; -1 = there is none. */
static long longest(const struct lg_series *s, size_t c, size_t columns, size_t most)
{
	size_t from = c * most / columns, to = (c + 1) * most / columns;
	long best = -1;

	for (size_t i = from; i < to && i < s->n; i++)
		if (best < 0 || s->step[i] > s->step[best])
			best = (long)i;
	return best;
}

static double height(const struct strips *p, double ms)
{
	return LG_MIN(LG_MAX(ms, 0) / p->top, 1.) * HEIGHT;
}

/* One path a colour, over all columns: k-th stage, or behind the last what was taken. */
static bool bars(const struct strips *p, const struct lg_series *s, unsigned k, int y, struct lg_out *o)
{
	const char *colour = taken_colour;
	uint32_t stage = lg_html_stage(k, &colour);
	size_t columns = LG_MIN(p->most, (size_t)COLUMNS);
	double w = (double)WIDTH / (double)columns;
	bool any = false;

	for (size_t c = 0; c < columns; c++) {
		long i = longest(s, c, columns, p->most);
		double below = 0, ms, h;

		if (i < 0)
			continue;
		for (unsigned j = 0; j < k; j++) {
			const char *unused;
			uint32_t g = lg_html_stage(j, &unused);

			below += g && s->clean[g] ? s->clean[g][i] : 0;
		}
		ms = stage ? (s->clean[stage] ? s->clean[stage][i] : 0) : s->step[i] - below;
		h = height(p, below + ms) - height(p, below);
		if (h < 0.15)
			continue;
		if (!any)
			lg_out_printf(o, "<path class=\"%s%s\" fill=\"%s\" d=\"", stage ? "stage-" : "taken",
				      stage ? lg_stage_name(stage) : "", colour);
		any = true;
		lg_out_printf(o, "M%.1f %.1fh%.1fv-%.1fh-%.1fz", (double)c * w, y + HEIGHT - height(p, below), w - 0.4, h,
			      w - 0.4);
	}
	if (any)
		lg_out_puts(o, "\"/>\n");
	return any;
}

static void strip(struct strips *p, const struct lg_diff *d, int which, struct lg_out *o)
{
	const struct lg_series *s = which ? &d->after->s : &d->before->s;
	int y = 16 + which * (HEIGHT + GAP);
	const char *colour;

	lg_out_printf(o, "<text class=\"label\" x=\"2\" y=\"%d\" font-size=\"12\" fill=\"#555\">%s: %zu steps, median %.3f "
			 "ms</text>\n",
		      y - 4, which ? "after" : "before", s->n, d->median_ms[which]);
	for (unsigned k = 0; lg_html_stage(k, &colour); k++)
		p->shown[lg_html_stage(k, &colour)] |= bars(p, s, k, y, o);
	for (unsigned k = 0;; k++)
		if (!lg_html_stage(k, &colour)) {
			p->taken |= bars(p, s, k, y, o);
			break;
		}
	/* The median of before in both: what after is held against. */
	lg_out_printf(o, "<path class=\"median\" stroke=\"#111\" stroke-dasharray=\"4 3\" fill=\"none\" d=\"M0 %.1fH%d\"/>\n",
		      y + HEIGHT - height(p, d->median_ms[0]), WIDTH);
	lg_out_printf(o, "<path class=\"axis\" stroke=\"#777\" fill=\"none\" d=\"M0 %d.5H%d\"/>\n", y + HEIGHT, WIDTH);
}

static void steps(const struct lg_diff *d, struct lg_out *o)
{
	struct strips p = { .most = LG_MAX(d->before->s.n, d->after->s.n) };
	const char *colour;
	uint32_t stage;

	for (int which = 0; which < 2; which++) {
		const struct lg_series *s = which ? &d->after->s : &d->before->s;

		for (size_t i = 0; i < s->n; i++)
			p.top = fmax(p.top, s->step[i]);
	}
	/* One step that took minutes would leave nothing of the others. */
	p.top = fmin(p.top, 8 * fmax(d->median_ms[0], d->median_ms[1]));
	if (!(p.top > 0) || !p.most)
		return;
	lg_out_printf(o, "<section id=\"steps\" aria-labelledby=\"steps-h\"><h2 id=\"steps-h\">Steps, on one scale</h2>\n<div "
			 "class=\"picture\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" aria-label=\"Steps before, "
			 "and below them steps after, on one scale; the tables have the numbers\">\n",
		      WIDTH, 2 * (HEIGHT + GAP), WIDTH);
	strip(&p, d, 0, o);
	strip(&p, d, 1, o);
	lg_out_puts(o, "</svg></div>\n<p class=\"legend\">");
	for (unsigned k = 0; (stage = lg_html_stage(k, &colour)); k++) {
		char class[48];

		if (!p.shown[stage])
			continue;
		snprintf(class, sizeof class, "stage-%s", lg_stage_name(stage));
		lg_out_puts(o, "<span>");
		lg_html_swatch(o, class, colour);
		lg_out_printf(o, "%s</span> ", lg_stage_name(stage));
	}
	if (p.taken) {
		lg_out_puts(o, "<span>");
		lg_html_swatch(o, "taken", taken_colour);
		lg_out_puts(o, "taken by the host, or in no stage</span> ");
	}
	lg_out_printf(o, "<span>dashed: median before</span> <span>scale: 0 to %.4g ms</span></p>\n</section>\n", p.top);
}

static void cell(struct lg_out *o, double v, int decimals, bool sign)
{
	char buf[32];

	v = fabs(v) < 0.0005 ? 0 : v; /* no "-0.000" */
	lg_out_printf(o, "<td>%s%s</td>", sign && v > 0 ? "+" : "", lg_text_num(buf, sizeof buf, v, decimals));
}

static void begin_table(struct lg_out *o, const char *id, const char *title, const char *const *column)
{
	lg_out_printf(o, "<section id=\"%s\" aria-labelledby=\"%s-h\"><h2 id=\"%s-h\">%s</h2>\n"
			 "<div class=\"wide\"><table><thead><tr>", id, id, id, title);
	for (; *column; column++)
		lg_out_printf(o, "<th scope=\"col\">%s</th>", *column);
	lg_out_puts(o, "</tr></thead><tbody>\n");
}

static void end_table(struct lg_out *o)
{
	lg_out_puts(o, "</tbody></table></div></section>\n");
}

static void changes(const struct lg_change *v, size_t n, const char *id, const char *title, struct lg_out *o)
{
	size_t shown = 0;

	LG_EACH(x, v, n) {
		char name[LG_KERNEL_TEXT];

		if ((!isnan(x->count_before) && !x->sure) || shown >= ITEMS_SHOWN)
			continue;
		if (!shown++)
			begin_table(o, id, title, (const char *const[]){ "ms per step", "before", "after", "difference",
				    "95 %, from", "to", "", NULL });
		lg_out_puts(o, "<tr><th scope=\"row\">");
		lg_html_text(o, lg_change_name(x, name, sizeof name));
		if (*x->shape) {
			lg_out_puts(o, " ");
			lg_html_text(o, x->shape);
		}
		lg_out_puts(o, "</th>");
		cell(o, x->before, 3, false);
		cell(o, x->after, 3, false);
		cell(o, x->delta, 3, true);
		cell(o, x->lo, 3, true);
		cell(o, x->hi, 3, true);
		lg_out_printf(o, "<td>%s</td></tr>\n",
			      isnan(x->before) || x->count_before == 0  ? "new"
			      : isnan(x->after) || x->count_after == 0 ? "gone"
			      : !x->sure || fabs(x->delta) < 0.0005    ? ""
			      : x->delta > 0				? "worse"
									: "better");
	}
	if (shown)
		end_table(o);
}

static void shares(const struct lg_diff *d, struct lg_out *o)
{
	if (!d->n_shares)
		return;
	begin_table(o, "shares", "What explains the change", (const char *const[]){ "what", "ms per step", "share, %", NULL });
	LG_EACH(x, d->shares, d->n_shares) {
		lg_out_puts(o, "<tr><th scope=\"row\">");
		lg_html_text(o, x->what);
		lg_out_puts(o, "</th>");
		cell(o, x->ms, 3, true);
		cell(o, x->share * 100, 0, false);
		lg_out_puts(o, "</tr>\n");
	}
	end_table(o);
}

static void facts(const struct lg_diff *d, struct lg_out *o)
{
	if (!d->n_facts)
		return;
	begin_table(o, "facts", "Versions, flags, environment", (const char *const[]){ "what", "before", "after", NULL });
	LG_EACH(x, d->facts, d->n_facts) {
		lg_out_puts(o, "<tr><th scope=\"row\">");
		lg_html_text(o, x->key);
		lg_out_puts(o, "</th><td>");
		lg_html_text(o, x->before ? x->before : "-");
		lg_out_puts(o, "</td><td>");
		lg_html_text(o, x->after ? x->after : "-");
		lg_out_puts(o, "</td></tr>\n");
	}
	end_table(o);
}

static void head(const struct lg_diff *d, struct lg_out *o)
{
	const char *class = d->gate.verdict && *d->gate.verdict == 'f' ? "high" : "none";

	lg_out_printf(o, "<h1 class=\"%s\">", class);
	lg_html_text(o, d->headline);
	lg_out_puts(o, "</h1>\n");
	if (d->gate.verdict) {
		lg_out_printf(o, "<p class=\"fired\">%s: ", d->gate.verdict);
		lg_html_text(o, d->gate.why);
		lg_out_puts(o, "</p>\n");
	}
	LG_EACH(x, d->unfair, d->n_unfair) {
		lg_out_puts(o, "<p class=\"fired\">No comparison of like with like: ");
		lg_html_text(o, *x);
		lg_out_puts(o, "</p>\n");
	}
	lg_out_puts(o, "<dl class=\"facts\">\n");
	lg_out_printf(o, "<div><dt>mean step before</dt><dd>%.3f ms</dd></div><div><dt>after</dt><dd>%.3f ms</dd></div>\n",
		      d->mean_ms[0], d->mean_ms[1]);
	lg_out_printf(o, "<div><dt>median before</dt><dd>%.3f ms</dd></div><div><dt>after</dt><dd>%.3f ms</dd></div>\n",
		      d->median_ms[0], d->median_ms[1]);
	if (lg_ratio_is_told(&d->mean))
		lg_out_printf(o, "<div><dt>change of the mean, 95 %%</dt><dd>%+.1f to %+.1f %%</dd></div>\n",
			      100 * (d->mean.lo - 1), 100 * (d->mean.hi - 1));
	lg_out_puts(o, "</dl>\n");
}

void lg_diff_html(const struct lg_diff *d, struct lg_out *o)
{
	struct lg_verdict v = d->v;

	v.trace = NULL; /* there is no timeline that a moment could lead to */
	lg_html_head(o, d->headline, false);
	head(d, o);
	steps(d, o);
	shares(d, o);
	changes(d->stages, d->n_stages, "stages", "Stages, own time", o);
	changes(d->items, d->n_items, "items", "Operators, kernels, functions", o);
	facts(d, o);
	lg_html_findings(&v, o);
	lg_html_limits(&v, o);
	lg_out_puts(o, "</main>\n<footer><p>laggard " LG_VERSION "</p></footer>\n</body>\n</html>\n");
}
