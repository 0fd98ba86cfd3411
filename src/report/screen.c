/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.c - the verdict on one screen: the sentence, a picture of the steps, who waits for whom, what to do.
 *
 * All that is known is in term.c's report. A picture is drawn of characters: eight heights, of blocks where
 * the terminal shows them and of ASCII elsewhere; what is slow is marked below, so that no colour is needed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"
#include "report/json_write.h"
#include "report/report.h"
#include "report/text.h"

enum { DEFAULT_WIDTH = 80, MIN_WIDTH = 40, MAX_WIDTH = 250, LABEL = 10, ALSO_SHOWN = 3 };

struct screen {
	struct lg_out *o;
	unsigned width;
	bool colour, utf8;
};

/* What a column of the picture stands for. */
struct column {
	double longest; /* ns; 0 = no step */
	double end;     /* of that one, in columns */
	bool slow;
};

static void style(const struct screen *s, const char *sgr)
{
	if (s->colour)
		lg_out_printf(s->o, "\033[%sm", sgr);
}

/* Text in at most `lines` lines from column `indent` on, where the cursor is; what is cut ends in dots. */
static void fit(const struct screen *s, const char *text, unsigned indent, unsigned lines)
{
	size_t room = (size_t)(s->width - indent) * lines, n = strlen(text), word;
	char cut[MAX_WIDTH * 8];

	/* Lines end at words: some of each is not used. */
	room -= room / 8;
	room = room < sizeof cut - 8 ? room : sizeof cut - 8;
	if (n <= room) {
		lg_text_wrap(s->o, text, indent, indent, s->width);
		return;
	}
	for (word = room; word && text[word] != ' '; word--)
		;
	word = word ? word : lg_whole_chars(text, n, room);
	snprintf(cut, sizeof cut, "%.*s ...", (int)word, text);
	lg_text_wrap(s->o, cut, indent, indent, s->width);
}

static void field(const struct screen *s, const char *label, const char *text, unsigned lines)
{
	if (!text || !*text)
		return;
	style(s, "2");
	lg_out_printf(s->o, "%-*s", LABEL, label);
	style(s, "0");
	fit(s, text, LABEL, lines);
}

static void draw(const struct screen *s, const char *label, const struct column *c, size_t n)
{
	double longest = 0;
	bool slow = false;

	for (size_t i = 0; i < n; i++) {
		longest = c[i].longest > longest ? c[i].longest : longest;
		slow = slow || c[i].slow;
	}
	if (!(longest > 0))
		return;
	lg_out_printf(s->o, "%-*s", LABEL, label);
	for (size_t i = 0; i < n; i++) {
		if (!(c[i].longest > 0)) {
			lg_out_write(s->o, " ", 1);
			continue;
		}
		if (c[i].slow)
			style(s, "31");
		lg_out_puts(s->o, lg_text_bar(c[i].longest / longest, s->utf8));
		if (c[i].slow)
			style(s, "0");
	}
	lg_out_write(s->o, "\n", 1);
	if (!slow)
		return;
	lg_out_printf(s->o, "%-*s", LABEL, "  slow");
	while (n && !c[n - 1].slow)
		n--;
	for (size_t i = 0; i < n; i++)
		lg_out_write(s->o, c[i].slow ? "^" : " ", 1);
	lg_out_write(s->o, "\n", 1);
}

/* Each column is a part of the run, or of the period that it is folded by; the longest step counts. */
static void steps(const struct screen *s, const struct lg_verdict *v, const char *label, double fold)
{
	struct column c[MAX_WIDTH] = { { .longest = 0 } };
	size_t n = s->width - LABEL, shown = 0;
	int64_t first = INT64_MAX, last = INT64_MIN;
	double span;

	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *k = &v->steps[i];

		if (k->warmup)
			continue;
		first = k->ts < first ? k->ts : first;
		last = k->ts > last ? k->ts : last;
		shown++;
	}
	if (shown < 2)
		return;
	n = shown < n && !(fold > 0) ? shown : n;
	span = fold > 0 ? fold : (double)last - (double)first + 1;
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *k = &v->steps[i];
		double at = (double)k->ts - (double)first;
		struct column *to;

		if (k->warmup)
			continue;
		at = (fold > 0 ? fmod(at, fold) : at) / span * (double)n;
		to = &c[at < (double)n ? (size_t)at : n - 1];
		if ((double)k->dur > to->longest) {
			to->longest = (double)k->dur;
			to->end = at + to->longest / span * (double)n;
		}
		to->slow = to->slow || k->slow;
	}
	/* A step goes on over the columns up to its end in which none begins. */
	for (size_t i = 1; i < n; i++)
		if (!(c[i].longest > 0) && c[i - 1].end > (double)i)
			c[i] = c[i - 1];
	draw(s, label, c, n);
}

/* One link of the chain, below what waits for it. */
static void link(const struct screen *s, const char *label, unsigned depth, const char *text)
{
	unsigned indent = LABEL + (depth ? depth * 3 : 0);

	lg_out_printf(s->o, "%-*s", LABEL, label);
	if (depth) {
		lg_out_printf(s->o, "%*s", (int)(depth - 1) * 3, "");
		lg_out_puts(s->o, s->utf8 ? "\xe2\x94\x94\xe2\x94\x80 " : "`- ");
	}
	fit(s, text, indent, 2);
}

static void chain(const struct screen *s, const struct lg_finding *f)
{
	char who[512], text[1024];
	unsigned depth = 0;

	if (!f->n_victims && f->culprit.pid < 0 && !f->culprit.function)
		return;
	if (f->n_victims) {
		lg_text_victims(f, who, sizeof who);
		snprintf(text, sizeof text, "%s%s%s", who, f->stage ? ", in " : "", f->stage ? f->stage : "");
		link(s, "waits", depth++, text);
	}
	if (f->culprit.lock) {
		snprintf(text, sizeof text, "for %s", f->culprit.lock);
		link(s, depth ? "" : "waits", depth, text);
		depth++;
	}
	if (f->culprit.pid >= 0 || f->culprit.comm || f->culprit.function) {
		char pid[LG_PID_TEXT], rank[32] = "";
		const typeof(f->culprit) *by = &f->culprit;

		if (by->rank >= 0)
			snprintf(rank, sizeof rank, "rank %d%s", by->rank, by->pid >= 0 ? ", " : "");
		snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s", by->lock ? "held by " : depth ? "<- " : "", rank,
			 by->pid >= 0 ? lg_pid_text(by->pid, pid) : "", by->comm ? " (" : "",
			 by->comm ? by->comm : "", by->comm ? ")" : "", by->function ? " in " : "",
			 by->function ? by->function : "");
		link(s, depth ? "" : "who", depth, text);
	}
}

static void also(const struct screen *s, const struct lg_verdict *v, const struct lg_finding *lead)
{
	size_t n = 0, low = 0;

	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *f = &v->findings[i];
		char text[1024];

		if (f == lead || f->severity == LG_SEVERITY_INFO)
			continue;
		if (n++ >= ALSO_SHOWN) {
			low += f->severity == LG_SEVERITY_LOW;
			continue;
		}
		snprintf(text, sizeof text, "%s: %s", lg_severity_text(f->severity), f->title);
		field(s, n == 1 ? "also" : "", text, 2);
	}
	if (n > ALSO_SHOWN) {
		char more[64];

		/* The sentence counts medium and high ones alone. */
		snprintf(more, sizeof more, low ? "... and %zu more, %zu of them low" : "... and %zu more",
			 n - ALSO_SHOWN, low);
		field(s, "", more, 1);
	}
}

void lg_report_screen(const struct lg_verdict *v, const struct lg_term_options *opt, struct lg_out *o)
{
	struct screen s = { o, opt->width ? opt->width : DEFAULT_WIDTH, opt->colour, opt->utf8 };
	const struct lg_finding *lead = lg_named(v);
	char buf[4096];

	s.width = s.width < MIN_WIDTH ? MIN_WIDTH : s.width > MAX_WIDTH ? MAX_WIDTH : s.width;
	for (size_t i = 0; i < v->n_fired; i++)
		lg_text_wrap(o, lg_text_fired(&v->fired[i], buf, sizeof buf), 0, 2, s.width);
	style(&s, "1");
	lg_text_wrap(o, lg_headline(v, buf, sizeof buf), 0, 0, s.width);
	style(&s, "0");
	if (lead)
		field(&s, "lost", lg_text_lost(lead, buf, sizeof buf), 2);
	if (*lg_text_money(v, buf, sizeof buf))
		lg_text_wrap(o, buf, 0, 2, s.width);
	if (v->n_judged) {
		field(&s, "run", lg_steps_line(v, buf, sizeof buf), 3);
		steps(&s, v, "steps", 0);
		if (v->shape == LG_SHAPE_PERIODIC && v->period_s > 0) {
			char label[32];

			snprintf(label, sizeof label, v->period_s < 1 ? "in %.0f ms" : "in %.3g s",
				 v->period_s < 1 ? v->period_s * 1e3 : v->period_s);
			steps(&s, v, label, v->period_s * 1e9);
		}
	}
	if (lead) {
		chain(&s, lead);
		field(&s, "fix", lead->fix, 3);
		field(&s, "trade-off", lead->tradeoff, 2);
	}
	also(&s, v, lead);
	for (size_t i = 0; i < v->n_limits && i < (lead ? 1 : 3); i++)
		field(&s, i ? "" : "limits", v->limits[i], 2);
	snprintf(buf, sizeof buf, "-v shows the evidence, the stages and all of %zu finding%s and %zu limit%s",
		 v->n_findings, v->n_findings == 1 ? "" : "s", v->n_limits, v->n_limits == 1 ? "" : "s");
	style(&s, "2");
	lg_text_wrap(o, buf, 0, 2, s.width);
	style(&s, "0");
}

void lg_report_brief(const struct lg_verdict *v, struct lg_out *o)
{
	char lost[512], buf[4096];

	if (!v->n_findings) {
		lg_text_safe(o, lg_headline(v, buf, sizeof buf));
		lg_out_write(o, "\n", 1);
	}
	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *f = &v->findings[i];

		lg_text_lost(f, lost, sizeof lost);
		snprintf(buf, sizeof buf, "%s %s: %s%s%s%s", lg_severity_text(f->severity), f->id, f->title,
			 *lost ? " (" : "", lost, *lost ? ")" : "");
		lg_text_safe(o, buf);
		lg_out_write(o, "\n", 1);
	}
}
