/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html_pictures.c - the pictures that need no script: steps as bars, ranks by steps, and where the
 * time of slow steps went beside that of typical ones.
 *
 * Inline SVG with presentation attributes: they work where a policy forbids styles, and the page's
 * own style overrides them in the dark. One path a colour: the file stays small. What many steps
 * share in a column is the largest of them, never their mean, which would hide the slow one.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "report/html_text.h"
#include "report/report.h"
#include "report/text.h"

enum { WIDTH = 1200, COLUMNS = 480, STRIP = 132, LINKS = 96, ROW = 16, MOST_RANKS = 64, HEATS = 6 };

/* Okabe and Ito's colours; vermillion is kept for the culprit. */
static const struct {
	uint8_t stage;
	const char *colour;
} stage_colours[] = {
	{ LG_STAGE_BATCH_WAIT, "#e69f00" }, { LG_STAGE_H2D, "#f0e442" },
	{ LG_STAGE_FORWARD, "#0072b2" },    { LG_STAGE_BACKWARD, "#56b4e9" },
	{ LG_STAGE_GRAD_SYNC, "#009e73" },  { LG_STAGE_OPTIMIZER, "#cc79a7" },
	{ LG_STAGE_SIDE, "#8c6d31" },	    { LG_STAGE_OTHER, "#c4c4c4" },
};

uint32_t lg_html_stage(unsigned k, const char **ret_colour)
{
	if (k >= LG_COUNT(stage_colours))
		return 0;
	*ret_colour = stage_colours[k].colour;
	return stage_colours[k].stage;
}

/* What a column of the strip stands for: the longest step in it. */
struct column {
	uint32_t step; /* plus 1; 0 = none */
};

struct strip {
	const struct lg_verdict *v;
	const struct lg_accounts *a;
	struct column col[COLUMNS];
	int64_t from, to, top; /* ns; top: of the scale */
	bool shown[LG_STAGE_MAX];
};

static double x_of(const struct strip *s, int64_t ts)
{
	return (double)(ts - s->from) * WIDTH / (double)(s->to - s->from);
}

static bool strip_fill(struct strip *s)
{
	const struct lg_verdict *v = s->v;
	int64_t typical = (int64_t)(isfinite(v->median_ms) ? v->median_ms * 1e6 : 0);

	s->from = INT64_MAX;
	s->to = INT64_MIN;
	for (size_t i = 0; i < v->n_steps; i++) {
		s->from = LG_MIN(s->from, v->steps[i].ts);
		s->to = LG_MAX(s->to, v->steps[i].ts + v->steps[i].dur);
	}
	if (s->to <= s->from)
		return false;
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *st = &v->steps[i];
		size_t c = (size_t)LG_MIN((double)(COLUMNS - 1), x_of(s, st->ts) * COLUMNS / WIDTH);
		uint32_t was = s->col[c].step;
		/* A warm-up step is long in any case: it gives way to one that is judged. */
		bool better = !was || (v->steps[was - 1].warmup && !st->warmup) ||
			      (v->steps[was - 1].warmup == st->warmup &&
			       st->dur > v->steps[was - 1].dur);

		if (better)
			s->col[c].step = (uint32_t)i + 1;
		if (!st->warmup)
			s->top = LG_MAX(s->top, st->dur);
	}
	if (typical && s->top > 8 * typical)
		s->top = 8 * typical;
	s->top = s->top ? s->top : s->to - s->from;
	return true;
}

static double height(const struct strip *s, int64_t ns)
{
	double h = (double)ns * (STRIP - 12) / (double)s->top;

	return h < STRIP - 4 ? h : STRIP - 4;
}

/* Each column's own width: steps longer than a column leave those behind them empty. */
static double bar_width(const struct strip *s, size_t c)
{
	const struct lg_step *st = &s->v->steps[s->col[c].step - 1];
	double w = (double)st->dur * WIDTH / (double)(s->to - s->from),
	       least = (double)WIDTH / COLUMNS;

	return (w > least ? w : least) - 0.4;
}

static void strip_bars(struct strip *s, unsigned k, struct lg_out *o)
{
	bool any = false;

	for (size_t c = 0; c < COLUMNS; c++) {
		const int64_t *stage;
		double y = STRIP, from, h;
		size_t i = s->col[c].step;

		if (!i || s->v->steps[i - 1].warmup)
			continue;
		stage = s->a->stage_ns + (i - 1) * LG_STAGE_MAX;
		for (unsigned j = 0; j < k; j++)
			y -= height(s, stage[stage_colours[j].stage]);
		h = height(s, stage[stage_colours[k].stage]);
		if (h < 0.15 || y <= 4)
			continue;
		h = h > y - 4 ? y - 4 : h;
		from = x_of(s, s->v->steps[i - 1].ts);
		if (!any)
			lg_out_printf(o, "<path class=\"stage-%s\" fill=\"%s\" d=\"",
				      lg_stage_name(stage_colours[k].stage),
				      stage_colours[k].colour);
		any = true;
		lg_out_printf(o, "M%.1f %.1fh%.1fv-%.1fh-%.1fz", from, y, bar_width(s, c), h,
			      bar_width(s, c));
	}
	if (any)
		lg_out_puts(o, "\"/>\n");
	s->shown[stage_colours[k].stage] = any;
}

static void strip_warmup(const struct strip *s, struct lg_out *o)
{
	lg_out_puts(o, "<path class=\"warmup\" fill=\"#e4e4de\" d=\"");
	for (size_t c = 0; c < COLUMNS; c++) {
		const struct lg_step *st = s->col[c].step ? &s->v->steps[s->col[c].step - 1] : NULL;

		if (st && st->warmup)
			lg_out_printf(o, "M%.1f %dh%.1fv-%.1fh-%.1fz", x_of(s, st->ts), STRIP,
				      bar_width(s, c), height(s, st->dur), bar_width(s, c));
	}
	lg_out_puts(o, "\"/>\n");
}

/* The slow ones are outlined, and lead to their moment. */
static void strip_slow(const struct strip *s, struct lg_out *o)
{
	size_t links = 0;

	for (size_t c = 0; c < COLUMNS; c++) {
		const struct lg_step *st = s->col[c].step ? &s->v->steps[s->col[c].step - 1] : NULL;
		double x, w, h;

		if (!st || !st->slow)
			continue;
		x = x_of(s, st->ts);
		w = bar_width(s, c);
		h = height(s, st->dur);
		if (links++ < LINKS) {
			lg_out_puts(o, "<a href=\"");
			lg_html_href(o, s->v, st->ts, st->dur);
			lg_out_printf(o,
				      "\"><title>slow step %lld, rank %d: %.2f ms, %.2f ms beyond "
				      "its median</title>",
				      (long long)st->number, st->rank, (double)st->dur / 1e6,
				      (double)(st->dur - st->median) / 1e6);
		}
		lg_out_printf(o,
			      "<rect class=\"slow\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
			      "height=\"%.1f\" fill=\"#fff\" "
			      "fill-opacity=\"0\" stroke=\"#111\" stroke-width=\"1\"/>"
			      "<path class=\"slow-tick\" fill=\"#111\" d=\"M%.1f %d l-3 6h6z\"/>",
			      x, STRIP - h, w, h, x + w / 2, STRIP + 2);
		lg_out_puts(o, links <= LINKS ? "</a>\n" : "\n");
	}
}

static void strip_axis(const struct strip *s, struct lg_out *o)
{
	double from = lg_report_seconds(s->v, s->from), to = lg_report_seconds(s->v, s->to);

	if (isfinite(s->v->median_ms)) {
		double y = STRIP - height(s, (int64_t)(s->v->median_ms * 1e6));

		lg_out_printf(
		    o,
		    "<path class=\"median\" stroke=\"#111\" stroke-dasharray=\"4 3\" fill=\"none\" "
		    "d=\"M0 %.1fH%d\"/>\n",
		    y, WIDTH);
	}
	lg_out_printf(o, "<path class=\"axis\" stroke=\"#777\" fill=\"none\" d=\"M0 %d.5H%d\"/>\n",
		      STRIP, WIDTH);
	for (int i = 0; i <= 6; i++)
		lg_out_printf(o,
			      "<text class=\"label\" x=\"%d\" y=\"%d\" font-size=\"11\" "
			      "fill=\"#555\" text-anchor=\"%s\">"
			      "%.2f s</text>\n",
			      i * WIDTH / 6, STRIP + 20,
			      !i       ? "start"
			      : i == 6 ? "end"
				       : "middle",
			      from + (to - from) * i / 6);
	lg_out_printf(o,
		      "<text class=\"label\" x=\"2\" y=\"11\" font-size=\"11\" fill=\"#555\">%.4g "
		      "ms</text>\n",
		      (double)s->top / 1e6);
}

void lg_html_swatch(struct lg_out *o, const char *class, const char *colour)
{
	lg_out_printf(o,
		      "<svg class=\"swatch\" width=\"12\" height=\"12\" aria-hidden=\"true\">"
		      "<rect class=\"%s\" x=\"0.5\" y=\"0.5\" width=\"11\" height=\"11\" "
		      "fill=\"%s\" stroke=\"#555\"/></svg> ",
		      class, colour);
}

void lg_html_steps(const struct lg_verdict *v, const struct lg_accounts *a, struct lg_out *o)
{
	struct strip s = { .v = v, .a = a };

	if (!strip_fill(&s))
		return;
	lg_out_printf(
	    o,
	    "<section id=\"steps\" aria-labelledby=\"steps-h\"><h2 id=\"steps-h\">Steps</h2>\n"
	    "<div class=\"picture\" id=\"strip\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" "
	    "role=\"group\" "
	    "aria-label=\"Step times over the run: %zu steps, %zu of them slow\">\n",
	    WIDTH, STRIP + 24, WIDTH, v->n_steps, v->n_slow);
	strip_warmup(&s, o);
	for (unsigned k = 0; k < LG_COUNT(stage_colours); k++)
		strip_bars(&s, k, o);
	strip_slow(&s, o);
	strip_axis(&s, o);
	lg_out_puts(o, "</svg></div>\n<p class=\"legend\">");
	for (unsigned k = 0; k < LG_COUNT(stage_colours); k++) {
		char class[48];

		if (!s.shown[stage_colours[k].stage])
			continue;
		snprintf(class, sizeof class, "stage-%s", lg_stage_name(stage_colours[k].stage));
		lg_out_puts(o, "<span>");
		lg_html_swatch(o, class, stage_colours[k].colour);
		lg_out_printf(o, "%s</span> ", lg_stage_name(stage_colours[k].stage));
	}
	lg_out_puts(o, "<span>outlined: slow</span> <span>pale: warm-up</span> <span>dashed: "
		       "median</span> <span>a bar is the longest step of its "
		       "place, of all ranks</span></p>\n</section>\n");
}

/* ---- ranks by steps ---- */

static const char *const heat_colours[HEATS] = { "#f7e8dc", "#f1cda9", "#e9a86e",
						 "#d98036", "#b85a10", "#7f3600" };
static const double heat_from[HEATS] = { 0.05, 0.15, 0.3, 0.6, 1.2, 2.5 };

struct heat {
	int32_t rank[MOST_RANKS];
	size_t n;
	double *v; /* [rank * COLUMNS + column]: the largest lateness by the median step */
	int64_t late[MOST_RANKS]; /* beyond the median, of all steps */
	int64_t from, to;
};

static int heat_fill(struct heat *h, const struct lg_verdict *v, const struct lg_accounts *a)
{
	double typical = v->median_ms * 1e6;

	h->n = LG_MIN(v->n_ranks, (size_t)MOST_RANKS);
	memcpy(h->rank, v->ranks, h->n * sizeof *h->rank);
	h->from = INT64_MAX;
	h->to = INT64_MIN;
	h->v = lg_calloc(MOST_RANKS * COLUMNS, sizeof *h->v);
	if (!h->v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < v->n_steps; i++) {
		h->from = LG_MIN(h->from, v->steps[i].ts);
		h->to = LG_MAX(h->to, v->steps[i].ts + v->steps[i].dur);
	}
	for (size_t i = 0; i < v->n_steps; i++) {
		size_t r = 0, c;

		while (r < h->n && h->rank[r] != v->steps[i].rank)
			r++;
		if (r == h->n || !(typical > 0))
			continue;
		c = (size_t)LG_MIN(COLUMNS - 1., (double)(v->steps[i].ts - h->from) * COLUMNS /
						     (double)(h->to - h->from));
		h->late[r] += LG_MAX(a->late_ns[i], 0);
		h->v[r * COLUMNS + c] = LG_MAX(h->v[r * COLUMNS + c],
					       (double)a->late_ns[i] / typical);
	}
	return 0;
}

static void heat_cells(const struct heat *h, int level, struct lg_out *o)
{
	double next = level + 1 < HEATS ? heat_from[level + 1] : (double)INFINITY,
	       w = (double)WIDTH / COLUMNS;

	lg_out_printf(o, "<path class=\"heat-%d\" fill=\"%s\" d=\"", level, heat_colours[level]);
	for (size_t r = 0; r < h->n; r++)
		for (size_t c = 0; c < COLUMNS; c++) {
			double x = h->v[r * COLUMNS + c];

			if (x >= heat_from[level] && x < next)
				lg_out_printf(o, "M%.1f %zuh%.1fv%dh-%.1fz", (double)c * w, r * ROW,
					      w, ROW - 1, w);
		}
	lg_out_puts(o, "\"/>\n");
}

int lg_html_ranks(const struct lg_verdict *v, const struct lg_accounts *a, struct lg_out *o,
		  struct lg_error *err)
{
	struct heat h = { 0 };

	if (v->n_ranks < 2 || !v->n_steps || !(v->median_ms > 0))
		return 0;
	if (heat_fill(&h, v, a))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (h.to > h.from) {
		lg_out_printf(
		    o,
		    "<section id=\"ranks\" aria-labelledby=\"ranks-h\"><h2 id=\"ranks-h\">Who is "
		    "late</h2>\n"
		    "<div class=\"picture\" id=\"heat\"><svg viewBox=\"-90 0 %d %zu\" width=\"%d\" "
		    "role=\"img\" "
		    "aria-label=\"Ranks by time: each rank's own lateness\">\n"
		    "<rect class=\"ground\" width=\"%d\" height=\"%zu\" fill=\"#f6f6f4\"/>\n",
		    WIDTH + 180, h.n * ROW + 2, WIDTH, WIDTH, h.n * ROW);
		for (int level = 0; level < HEATS; level++)
			heat_cells(&h, level, o);
		for (size_t r = 0; r < h.n; r++)
			lg_out_printf(o,
				      "<text class=\"label\" x=\"-6\" y=\"%zu\" font-size=\"12\" "
				      "fill=\"#333\" text-anchor=\"end\">"
				      "rank %d</text><text class=\"label\" x=\"%d\" y=\"%zu\" "
				      "font-size=\"12\" fill=\"#333\">%.1f ms</text>\n",
				      r * ROW + 12, h.rank[r], WIDTH + 6, r * ROW + 12,
				      (double)h.late[r] / 1e6);
		lg_out_puts(o, "</svg></div>\n<p class=\"legend\">");
		for (int level = 0; level < HEATS; level++) {
			char class[16];

			snprintf(class, sizeof class, "heat-%d", level);
			lg_out_puts(o, "<span>");
			lg_html_swatch(o, class, heat_colours[level]);
			lg_out_printf(o, "from %.0f %%</span> ", heat_from[level] * 100);
		}
		lg_out_printf(o,
			      "<span>of the median step, beyond the rank's own median; without "
			      "what it waited in "
			      "collectives; at the right the sum</span>%s</p>\n</section>\n",
			      v->n_ranks > h.n ? " <span>the first 64 ranks</span>" : "");
	}
	lg_free(h.v);
	return 0;
}

/* ---- the account ---- */

/* Causes first, the heaviest in vermillion; then what the thread did itself. */
static const char *slot_class(const struct lg_accounts *a, size_t i)
{
	static const char *const own[] = { "running", "runnable", "blocked", "unexplained" };
	static const char *const cause[] = { "cause-0", "cause-1", "cause-2",
					     "cause-3", "cause-4", "cause-5" };

	return a->slot[i].cause ? cause[LG_MIN(i - LG_COUNT(own), LG_COUNT(cause) - 1)]
				: own[a->slot[i].kind % 4];
}

static const char *slot_colour(const struct lg_accounts *a, size_t i)
{
	static const char *const own[] = { "#0072b2", "#e69f00", "#56b4e9", "#bbbbbb" };
	static const char *const cause[] = { "#d55e00", "#cc79a7", "#f0e442",
					     "#009e73", "#8c6d31", "#5b2a6e" };

	return a->slot[i].cause ? cause[LG_MIN(i - LG_COUNT(own), LG_COUNT(cause) - 1)]
				: own[a->slot[i].kind % 4];
}

static void bar(const struct lg_accounts *a, bool slow, double scale, int y, struct lg_out *o)
{
	double n = (double)(slow ? a->n_slow : a->n_typical), x = 0;

	for (size_t k = 0; k < a->n_slots; k++) {
		double ns = (double)(slow ? a->slot[k].slow_ns : a->slot[k].typical_ns) / n;

		if (ns * scale < 0.05)
			continue;
		lg_out_printf(o,
			      "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"26\" "
			      "fill=\"%s\" stroke=\"#444\" "
			      "stroke-width=\"0.5\"><title>",
			      slot_class(a, k), x, y, ns * scale, slot_colour(a, k));
		lg_html_text(o, a->slot[k].name);
		lg_out_printf(o, ": %.3f ms a step</title></rect>\n", ns / 1e6);
		x += ns * scale;
	}
	lg_out_printf(o,
		      "<text class=\"label\" x=\"-6\" y=\"%d\" font-size=\"12\" fill=\"#333\" "
		      "text-anchor=\"end\">%s</text>"
		      "<text class=\"label\" x=\"%.1f\" y=\"%d\" font-size=\"12\" "
		      "fill=\"#333\">%.2f ms</text>\n",
		      y + 17, slow ? "slow" : "typical", x + 6, y + 17,
		      (double)(slow ? a->slow_ns : a->typical_ns) / n / 1e6);
}

void lg_html_account(const struct lg_accounts *a, struct lg_out *o)
{
	double slow = a->n_slow ? (double)a->slow_ns / (double)a->n_slow : 0;
	double typical = a->n_typical ? (double)a->typical_ns / (double)a->n_typical : 0;
	double scale = 1080 / LG_MAX(slow, typical);

	if (!(slow > 0 || typical > 0))
		return;
	lg_out_printf(o,
		      "<section id=\"account\" aria-labelledby=\"account-h\"><h2 "
		      "id=\"account-h\">Where a step's time goes</h2>\n"
		      "<div class=\"picture\"><svg viewBox=\"-60 0 1240 %d\" width=\"1200\" "
		      "role=\"img\" aria-label=\"The mean "
		      "account of a slow step beside that of a typical one; the table below has "
		      "the numbers\">\n",
		      slow > 0 && typical > 0 ? 66 : 32);
	if (typical > 0)
		bar(a, false, scale, 2, o);
	if (slow > 0)
		bar(a, true, scale, typical > 0 ? 36 : 2, o);
	lg_out_puts(o, "</svg></div>\n<div class=\"wide\"><table><thead><tr><th scope=\"col\">of "
		       "the main threads' time</th>"
		       "<th scope=\"col\">typical step, ms</th><th scope=\"col\">slow step, "
		       "ms</th><th scope=\"col\">difference, ms</th>"
		       "<th scope=\"col\">all slow steps, ms</th></tr></thead><tbody>\n");
	for (size_t k = 0; k < a->n_slots; k++) {
		double s = a->n_slow ? (double)a->slot[k].slow_ns / (double)a->n_slow / 1e6
				     : (double)NAN;
		double t = a->n_typical ? (double)a->slot[k].typical_ns / (double)a->n_typical / 1e6
					: (double)NAN;
		char buf[32];

		if (!a->slot[k].slow_ns && !a->slot[k].typical_ns)
			continue;
		lg_out_puts(o, "<tr><th scope=\"row\">");
		lg_html_swatch(o, slot_class(a, k), slot_colour(a, k));
		lg_html_text(o, a->slot[k].name);
		lg_out_printf(o, "</th><td>%s</td>", lg_text_num(buf, sizeof buf, t, 3));
		lg_out_printf(o, "<td>%s</td>", lg_text_num(buf, sizeof buf, s, 3));
		lg_out_printf(o, "<td>%s</td><td data-ns=\"%lld\">",
			      lg_text_num(buf, sizeof buf, s - t, 3),
			      (long long)a->slot[k].slow_ns);
		lg_html_exact_ms(o, a->slot[k].slow_ns);
		lg_out_puts(o, "</td></tr>\n");
	}
	lg_out_printf(o,
		      "</tbody><tfoot><tr><th scope=\"row\">all, over %zu typical and %zu "
		      "slow</th><td>%.3f</td><td>%.3f</td>"
		      "<td>%.3f</td><td data-sum-ns=\"%lld\">",
		      a->n_typical, a->n_slow, typical / 1e6, slow / 1e6,
		      a->n_slow ? (slow - typical) / 1e6 : 0, (long long)a->slow_ns);
	lg_html_exact_ms(o, a->slow_ns);
	lg_out_puts(o, "</td></tr></tfoot></table></div></section>\n");
}
