/* SPDX-License-Identifier: Apache-2.0 */
/* diff_term.c - the comparison for a terminal. What makes it unfair is said first. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/diff_report.h"
#include "report/text.h"

enum { WIDTH = 96, ITEMS_SHOWN = 12, FACTS_SHOWN = 12, GAUGES_SHOWN = 24 };

static void style(const struct lg_term_options *t, struct lg_out *o, const char *sgr)
{
	if (t->colour)
		lg_out_printf(o, "\033[%sm", sgr);
}

static void head(const struct lg_term_options *t, struct lg_out *o, const char *text)
{
	style(t, o, "2");
	lg_out_puts(o, text);
	lg_out_puts(o, "\n");
	style(t, o, "0");
}

static void row(struct lg_out *o, const struct lg_change *c)
{
	char a[32], b[32], x[32], name[LG_KERNEL_TEXT];

	lg_out_printf(o, "  %10s %10s %c%9s%s  ", lg_text_num(a, sizeof a, c->before, 3),
		      lg_text_num(b, sizeof b, c->after, 3), c->delta < 0 ? '-' : '+',
		      lg_text_num(x, sizeof x, fabs(c->delta), 3), c->sure ? " " : "?");
	if (strcmp(c->kind, "stage") || !isnan(c->count_before))
		lg_out_printf(o, "%s ", c->kind);
	lg_text_safe(o, lg_change_name(c, name, sizeof name));
	if (*c->shape) {
		lg_out_puts(o, " ");
		lg_text_safe(o, c->shape);
	}
	if (!isnan(c->count_before) && fabs(c->count_before - c->count_after) > 0.01)
		lg_out_printf(o, " (calls per step: %.2f, %.2f)", c->count_before, c->count_after);
	lg_out_puts(o, "\n");
}

static void shares(const struct lg_diff *d, const struct lg_term_options *t, struct lg_out *o,
		   unsigned width)
{
	if (!d->n_shares)
		return;
	head(t, o, "what explains the change    ms per step   share");
	for (size_t i = 0; i < d->n_shares; i++) {
		char ms[32], sh[32], buf[1200];

		snprintf(buf, sizeof buf, "%s%s%s", d->shares[i].id ? d->shares[i].id : "",
			 d->shares[i].id ? ": " : "", d->shares[i].what);
		lg_out_printf(o, "  %c%10s %6s%s  ", d->shares[i].ms < 0 ? '-' : '+',
			      lg_text_num(ms, sizeof ms, fabs(d->shares[i].ms), 3),
			      lg_text_num(sh, sizeof sh, d->shares[i].share * 100, 0),
			      isfinite(d->shares[i].share) ? "%" : " ");
		lg_text_wrap(o, buf, 22, 22, width);
	}
	lg_out_puts(o, "\n");
}

/* Those that both sides have: a run without steps has not lost its stages. */
static void stages(const struct lg_diff *d, const struct lg_term_options *t, struct lg_out *o)
{
	size_t shown = 0;

	for (size_t i = 0; i < d->n_stages; i++) {
		if (isnan(d->stages[i].delta))
			continue;
		if (!shown++)
			head(t, o, "own time of a step by stage: ms before, after, difference (? = within the "
				   "noise)");
		row(o, &d->stages[i]);
	}
	if (shown)
		lg_out_puts(o, "\n");
}

static void items(const struct lg_diff *d, const struct lg_term_options *t, struct lg_out *o)
{
	size_t shown = 0;

	for (size_t i = 0; i < d->n_items && shown < ITEMS_SHOWN; i++) {
		if (!d->items[i].sure || !strcmp(d->items[i].kind, "stage") ||
		    !strcmp(d->items[i].kind, "module"))
			continue;
		if (!shown++)
			head(t, o, "operators, kernels, functions: ms per step before, after, difference");
		row(o, &d->items[i]);
	}
	if (shown)
		lg_out_puts(o, "\n");
}

/* The innermost that a change lies in: those around it changed with it. */
static void modules(const struct lg_diff *d, const struct lg_term_options *t, struct lg_out *o)
{
	size_t shown = 0;

	for (size_t i = 0; i < d->n_items && shown < ITEMS_SHOWN; i++) {
		const struct lg_change *x = &d->items[i];

		if (!x->sure || strcmp(x->kind, "module") || lg_diff_is_within(d, x))
			continue;
		if (!shown++)
			head(t, o, "modules with what they call: ms per step before, after, difference");
		row(o, x);
		if (x->was_compiled != x->is_compiled && x->count_before > 0 && x->count_after > 0)
			lg_out_printf(o, "      its compiled region is %s\n", x->was_compiled ? "gone" : "new");
	}
	if (shown)
		lg_out_puts(o, "\n");
}

static void gauges(const struct lg_diff *d, const struct lg_term_options *t, struct lg_out *o)
{
	size_t shown = 0;

	for (size_t i = 0; i < d->n_gauges && shown < GAUGES_SHOWN; i++) {
		const struct lg_gauge_change *g = &d->gauges[i];
		char a[32], b[32], x[32], lo[32], hi[32], dev[48];

		if (!g->sure)
			continue;
		if (!shown++)
			head(t, o, "devices: median reading before, after, difference (95 % interval)");
		lg_out_printf(o, "  %10s %10s %c%9s  (%s to %s)  %s ", lg_text_num(a, sizeof a, g->before, 1),
			      lg_text_num(b, sizeof b, g->after, 1), g->delta < 0 ? '-' : '+',
			      lg_text_num(x, sizeof x, fabs(g->delta), 1),
			      lg_text_num(lo, sizeof lo, g->lo, 1),
			      lg_text_num(hi, sizeof hi, g->hi, 1), lg_gauge_device(g, dev, sizeof dev));
		lg_text_safe(o, g->metric);
		lg_out_puts(o, *g->unit ? ", " : "");
		lg_text_safe(o, g->unit);
		lg_out_puts(o, "\n");
	}
	if (d->n_gauges > shown)
		lg_out_printf(o, "  %s%zu readings of the devices %s (--json has all)\n", shown ? "... and " : "",
			      d->n_gauges - shown, shown == GAUGES_SHOWN ? "more" : "within the noise");
	if (d->n_gauges)
		lg_out_puts(o, "\n");
}

static void facts(const struct lg_diff *d, const struct lg_term_options *t, struct lg_out *o,
		  unsigned width)
{
	char buf[1200];

	if (d->n_facts)
		head(t, o, "versions, flags, environment");
	for (size_t i = 0; i < d->n_facts && i < FACTS_SHOWN; i++) {
		snprintf(buf, sizeof buf, "%s: %s -> %s", d->facts[i].key,
			 d->facts[i].before ? d->facts[i].before : "(not told)",
			 d->facts[i].after ? d->facts[i].after : "(not told)");
		lg_out_puts(o, "  ");
		lg_text_wrap(o, buf, 2, 4, width);
	}
	if (d->n_facts > FACTS_SHOWN)
		lg_out_printf(o, "  ... and %zu more (--json has all)\n", d->n_facts - FACTS_SHOWN);
	if (d->n_facts)
		lg_out_puts(o, "\n");
}

void lg_diff_term(const struct lg_diff *d, const struct lg_term_options *opt, struct lg_out *o)
{
	unsigned width = opt->width ? opt->width : WIDTH;
	char buf[1200];

	if (d->n_unfair) {
		style(opt, o, "1;33");
		lg_text_wrap(o, "Mind: this is no comparison of like with like.", 0, 0, width);
		style(opt, o, "0");
		for (size_t i = 0; i < d->n_unfair; i++) {
			lg_out_puts(o, " - ");
			lg_text_wrap(o, d->unfair[i], 3, 3, width);
		}
		if (!isnan(d->samples.value)) {
			snprintf(buf, sizeof buf, "samples per second: %.3f of what they were (95 %%: %.3f to %.3f)",
				 d->samples.value, d->samples.lo, d->samples.hi);
			lg_out_puts(o, " - ");
			lg_text_wrap(o, buf, 3, 3, width);
		}
		lg_out_puts(o, "\n");
	}
	style(opt, o, "1");
	lg_text_wrap(o, d->headline, 0, 0, width);
	style(opt, o, "0");
	if (d->gate.verdict) {
		snprintf(buf, sizeof buf, "%s: %s", d->gate.verdict, d->gate.why);
		style(opt, o, strcmp(d->gate.verdict, "pass") ? "1;31" : "32");
		lg_text_wrap(o, buf, 0, 2, width);
		style(opt, o, "0");
	}
	lg_out_puts(o, "\n");
	shares(d, opt, o, width);
	stages(d, opt, o);
	modules(d, opt, o);
	items(d, opt, o);
	gauges(d, opt, o);
	facts(d, opt, o, width);
	lg_term_findings(&d->v, opt, o);
}
