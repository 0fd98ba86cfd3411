/* SPDX-License-Identifier: Apache-2.0 */
/* headline.c - the comparison in one sentence, and whether it breaks the limit of a CI job. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff/causes.h"

/* Inputs without steps that tell how the devices did. */
static const char *of_gauges(const struct lg_diff *d, struct lg_arena *a)
{
	const struct lg_gauge_change *first = NULL;
	double most = -1;
	char dev[48];
	size_t n = 0;

	for (size_t i = 0; i < d->n_gauges; i++) {
		const struct lg_gauge_change *g = &d->gauges[i];
		double part = fabs(g->delta) / fmax(fabs(g->before), fabs(g->after));

		if (!g->sure)
			continue;
		n++;
		if (part > most) {
			most = part;
			first = g;
		}
	}
	if (!first)
		return lg_arena_printf(a, "No repeating steps in one of the two inputs; of %zu readings of "
				       "the devices none changed beyond the noise.", d->n_gauges);
	return lg_arena_printf(a, "No repeating steps in one of the two inputs; %zu of %zu readings of the "
			       "devices changed, most of all %s: %s %.4g before, %.4g after (%s).", n, d->n_gauges,
			       lg_gauge_device(first, dev, sizeof dev), first->metric, first->before,
			       first->after, *first->unit ? first->unit : "no unit");
}

/* What took less time than before, first of all: a stage, where stages are known, else what ran. */
static const struct lg_change *most_gained(const struct lg_change *v, size_t n)
{
	const struct lg_change *best = NULL;

	for (size_t i = 0; i < n; i++)
		if (v[i].sure && v[i].delta < 0 && strcmp(v[i].kind, "module") && (!best || v[i].delta < best->delta))
			best = &v[i];
	return best;
}

static const char *gained(const struct lg_diff *d, struct lg_arena *a)
{
	const struct lg_change *x = most_gained(d->stages, d->n_stages);
	char name[LG_KERNEL_TEXT];

	x = x ? x : most_gained(d->items, d->n_items);
	return x ? lg_arena_printf(a, " Most of it: %s %s %.3f ms a step.", x->kind, lg_change_name(x, name, sizeof name),
				   x->delta) : "";
}

/* Of all that goes the other way the most, where no finding tells of it. */
static const char *lost(const struct lg_diff *d, struct lg_arena *a)
{
	const struct lg_share *most = NULL;

	for (size_t i = 0; i < d->n_shares; i++)
		if (d->shares[i].ms > (most ? most->ms : 0.01 * d->mean_ms[1]))
			most = &d->shares[i];
	return most ? lg_arena_printf(a, " What got worse: %s (%+.3f ms a step).", most->what, most->ms) : "";
}

bool lg_ratio_is_told(const struct lg_ratio *r)
{
	return r->hi < 10 * r->lo;
}

static const char *interval(const struct lg_ratio *r, struct lg_arena *a)
{
	if (!lg_ratio_is_told(r))
		return " (a few steps make most of a mean: how it changed cannot be told)";
	return lg_arena_printf(a, " (95 %%: %+.1f to %+.1f %%)", (r->lo - 1) * 100, (r->hi - 1) * 100);
}

static const char *sentence(const struct lg_diff *d, struct lg_arena *a)
{
	const char *what, *cause = "", *sure = "", *typical = "", *more = "", *better = "";
	bool faster = false;
	const struct lg_finding *first = NULL;
	size_t n = 0;

	if (isnan(d->mean.value) && d->n_gauges)
		return of_gauges(d, a);
	if (isnan(d->mean.value))
		return "No repeating steps in one of the two inputs: only what they are can be compared.";
	if (isnan(d->mean.lo))
		what = "Too few steps to say whether the step time changed";
	else if (d->mean.lo > 1)
		what = lg_arena_printf(a, "%.1f %% slower", (d->mean.value - 1) * 100);
	else if (d->median.lo > 1)
		what = lg_arena_printf(a, "%.1f %% slower in the median", (d->median.value - 1) * 100);
	else if ((faster = d->mean.hi < 1))
		what = lg_arena_printf(a, "%.1f %% faster", (1 - d->mean.value) * 100);
	else if ((faster = d->median.hi < 1))
		what = lg_arena_printf(a, "%.1f %% faster in the median", (1 - d->median.value) * 100);
	else
		what = "No change beyond the noise";
	if (faster)
		better = gained(d, a);
	for (size_t i = 0; i < d->v.n_findings; i++)
		if (d->v.findings[i].severity >= LG_SEVERITY_MEDIUM) {
			first = first ? first : &d->v.findings[i];
			n++;
		}
	if (n > 1)
		more = lg_arena_printf(a, " (and %zu more finding%s)", n - 1, n > 2 ? "s" : "");
	if (n)
		cause = lg_arena_printf(a, " %s: %s%s.", faster ? "What is worse" : first->lost_ms > 0 ? "Most of it" : "What is new",
					first->title, more);
	else if (faster)
		cause = lost(d, a);
	else if (!(d->mean.lo > 1) && d->median.lo > 1 && d->n_shares && !d->shares[0].rare &&
		 d->shares[0].ms > 0)
		cause = lg_arena_printf(a, " Most of it: %s.", d->shares[0].what);
	if (!isnan(d->mean.lo))
		sure = interval(&d->mean, a);
	if ((!(d->mean.lo > 1) && d->median.lo > 1) || (!(d->mean.hi < 1) && d->median.hi < 1))
		typical = interval(&d->median, a);
	return lg_arena_printf(a, "%s: mean step %.3f ms before, %.3f ms after%s; median %.3f and %.3f%s.%s%s",
			       what, d->mean_ms[0], d->mean_ms[1], sure, d->median_ms[0], d->median_ms[1],
			       typical, better, cause);
}

void lg_diff_headline(struct lg_diff *d)
{
	d->headline = sentence(d, &d->v.arena);
	if (d->parts && !strstr(d->headline, d->parts))
		d->headline = lg_arena_printf(&d->v.arena, "%s Besides, %s.", d->headline, d->parts);
}

void lg_diff_gate(struct lg_diff *d)
{
	struct lg_arena *a = &d->v.arena;
	struct lg_ratio m = d->mean, q = d->median;
	const char *of = "step time";

	if (isnan(d->gate.limit))
		return;
	/* With another batch size the step time means nothing; the samples per second do. */
	if (d->n_unfair && !isnan(d->samples.value)) {
		m = q = (struct lg_ratio){ 1 / d->samples.value, 1 / d->samples.hi, 1 / d->samples.lo };
		of = "time per sample";
	}
	if (isnan(m.lo) || d->before->s.n < 3 || d->after->s.n < 3) {
		d->gate.verdict = "unknown";
		d->gate.why = "fewer than three judged steps on a side: nothing can be said about the limit";
	} else if (m.lo - 1 > d->gate.limit || q.lo - 1 > d->gate.limit) {
		const struct lg_ratio *r = m.lo - 1 > d->gate.limit ? &m : &q;

		d->gate.verdict = "fail";
		d->gate.why = lg_arena_printf(a, "%s %s grew by %.1f %% (95 %%: %.1f to %.1f %%), over the limit of "
					      "%.1f %%", r == &m ? "mean" : "median", of, (r->value - 1) * 100,
					      (r->lo - 1) * 100, (r->hi - 1) * 100, d->gate.limit * 100);
	} else {
		d->gate.verdict = "pass";
		d->gate.why = lg_arena_printf(a, "mean %s changed by %+.1f %% (95 %%: %+.1f to %+.1f %%)%s %.1f %%", of,
					      (m.value - 1) * 100, (m.lo - 1) * 100, (m.hi - 1) * 100,
					      m.value - 1 > d->gate.limit
					      ? ": the noise does not exclude that it is within" : "; the limit is",
					      d->gate.limit * 100);
	}
}
