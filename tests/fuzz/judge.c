/* SPDX-License-Identifier: Apache-2.0 */
#include "judge.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/advise.h"
#include "analyse/explain.h"
#include "base/alloc.h"
#include "diff/diff.h"
#include "report/convert.h"
#include "report/diff_report.h"
#include "report/report.h"
#include "report/runs.h"

#define ROUNDING 1e-6 /* a sum of shares may be so much above 1 */

#define must(cond, ...) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "judge: " __VA_ARGS__); \
			fputc('\n', stderr); \
			abort(); \
		} \
	} while (0)

/* NAN is "not known" everywhere. */
static bool number(double v, double least, double most)
{
	return isnan(v) || (v >= least && v <= most && isfinite(v));
}

static bool share(double v)
{
	return number(v, 0, 1 + ROUNDING);
}

/* Is one of the words, which end with NULL, or NULL itself. */
static bool one_of(const char *s, const char *const *words)
{
	while (s && *words && strcmp(s, *words))
		words++;
	return !s || *words;
}

static void check_part_sums(const struct lg_verdict *v)
{
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];
		int64_t at = s->ts;

		must(s->dur >= 0 && s->n_parts <= v->n_parts && s->part_first <= v->n_parts - s->n_parts,
		     "step %zu lasts %lld ns and has parts that are not there", i, (long long)s->dur);
		for (uint32_t k = 0; k < s->n_parts; k++) {
			const struct lg_part *p = &v->parts[s->part_first + k];

			must(p->ts == at && p->dur >= 0 && p->cause < (v->n_causes ? v->n_causes : 1),
			     "part %u of step %zu does not follow on the one before", k, i);
			at += p->dur;
		}
		must(!s->n_parts || at == s->ts + s->dur, "the parts of step %zu are not as long as it is", i);
	}
}

/* A number of ours that is none: before its unit. The input's own words may be "number of nan iterations". */
static bool prints_nan(const char *text, size_t n)
{
	static const char *const units[] = { "%", "ms", "us", "s ", "GB", "MB", "KB", "W ", "MHz", "times" };
	static const char *const words[] = { "nan ", "inf " };
	const char *end = text + n;

	for (size_t w = 0; w < 2; w++)
		for (const char *p = text; (p = memmem(p, (size_t)(end - p), words[w], 4));) {
			p += 4;
			for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
				size_t len = strlen(units[i]);

				if ((size_t)(end - p) >= len && !memcmp(p, units[i], len))
					return true;
			}
		}
	return false;
}

static void check_finding(const struct lg_verdict *v, const struct lg_finding *f)
{
	static const char *const stages[] = { "batch_wait", "h2d", "forward", "backward", "grad_sync",
					      "optimizer", "side", "other", NULL };

	must(f->id && lg_rule_find(f->id), "finding \"%s\" has no rule", f->id ? f->id : "");
	must(lg_severity_text(f->severity), "%s: severity %d", f->id, (int)f->severity);
	must(f->title && *f->title, "%s: no title", f->id);
	must(f->culprit.relation == LG_RELATION_NONE || lg_relation_text(f->culprit.relation), "%s: relation %d",
	     f->id, (int)f->culprit.relation);
	must(one_of(f->stage, stages), "%s: stage %s", f->id, f->stage);
	must(f->confidence >= 0 && f->confidence <= 1, "%s: confidence %g", f->id, f->confidence);
	must(number(f->lost_ms, 0, 1e300), "%s: lost_ms %g", f->id, f->lost_ms);
	must(share(f->lost_share), "%s: lost_share %g", f->id, f->lost_share);
	must(share(f->excess_share), "%s: excess_share %g", f->id, f->excess_share);
	must(number(f->cost_per_hour, 0, 1e300), "%s: cost %g", f->id, f->cost_per_hour);
	for (size_t i = 0; i < f->n_evidence + f->n_against; i++) {
		const struct lg_evidence *e = i < f->n_evidence ? &f->evidence[i]
								: &f->against[i - f->n_evidence];

		must(e->text && *e->text && !prints_nan(e->text, strlen(e->text)), "%s: evidence \"%s\"", f->id,
		     e->text ? e->text : "");
	}
	must(!v->trace || f->culprit.n_stack < 10000, "%s: a stack of %zu", f->id, f->culprit.n_stack);
}

static void check_verdict(const struct lg_verdict *v)
{
	/* A log may tell of steps only how many they were and how long they took. */
	must(v->n_slow <= v->n_judged && (!v->n_steps || v->n_judged <= v->n_steps),
	     "%zu slow of %zu judged of %zu steps", v->n_slow, v->n_judged, v->n_steps);
	must(number(v->median_ms, 0, 1e300) && number(v->p99_ms, 0, 1e300) &&
	     number(v->slow_threshold_ms, 0, 1e300) && number(v->period_s, 0, 1e300), "step times");
	must(share(v->period_p) && number(v->shift_s, -1e300, 1e300) && number(v->slope, -1e300, 1e300),
	     "shape of the run");
	must((v->shape == LG_SHAPE_NONE || lg_shape_text(v->shape)) &&
	     (v->scope == LG_SCOPE_NONE || lg_scope_text(v->scope)) &&
	     (v->bound == LG_BOUND_NONE || lg_bound_text(v->bound)), "words that there are not");
	must(share(v->bound_confidence) && share(v->unexplained_share) && share(v->untraced_share) &&
	     share(v->own_share), "shares: bound %g, unexplained %g, untraced %g, own %g", v->bound_confidence,
	     v->unexplained_share, v->untraced_share, v->own_share);
	must(share(v->cost.lost_share), "cost of a share of %g", v->cost.lost_share);
	for (size_t i = 0; i < v->n_stages; i++)
		must(share(v->stages[i].share) && number(v->stages[i].median_ms, 0, 1e300) &&
		     number(v->stages[i].slow_excess_ms, -1e300, 1e300), "stage %s", v->stages[i].stage);
	for (size_t i = 0; i < v->n_findings; i++) {
		check_finding(v, &v->findings[i]);
		must(!i || isnan(v->findings[i].lost_ms) ||
		     v->findings[i].lost_ms <= v->findings[i - 1].lost_ms, "%s does not stand in the order of loss", v->findings[i].id);
	}
	check_part_sums(v);
}

static struct lg_out *memory(void)
{
	struct lg_out *o;

	if (lg_out_memory(&o, NULL))
		abort();
	return o;
}

/* Close it; fault tells what is wrong with the bytes, NULL = any will do. */
static void check_out(struct lg_out *o, const char *what, const char *(*fault)(const char *, size_t))
{
	size_t n;
	char *bytes = lg_out_take(o, &n);

	must(bytes, "%s could not be written", what);
	if (fault && fault(bytes, n))
		fprintf(stderr, "%.*s\n", (int)(n < 20000 ? n : 20000), bytes);
	must(!fault || !fault(bytes, n), "%s: %s", what, fault(bytes, n));
	lg_free(bytes);
	if (lg_out_close(o, NULL))
		abort();
}

/* What is not known is "-" or left out, never a word of C's for it. */
static const char *text_fault(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 && text[i] != '\n')
			return "control character";
	return prints_nan(text, n) ? "a word of C's for no number" : NULL;
}

/* Does an attribute that holds numbers alone (a path, a place, a size) hold a word of C's? */
static bool is_odd_picture(const char *at, const char *end)
{
	static const char *const attributes[] = { " d=\"", " x=\"", " y=\"", " x1=\"", " y1=\"", " x2=\"",
						  " y2=\"", " r=\"", " width=\"", " height=\"",
						  " viewBox=\"", " points=\"" };

	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		size_t n = strlen(attributes[i]);

		for (const char *p = at; (p = memmem(p, (size_t)(end - p), attributes[i], n));) {
			const char *close;

			p += n;
			close = memchr(p, '"', (size_t)(end - p));
			if (!close)
				return true;
			if (memmem(p, (size_t)(close - p), "nan", 3) || memmem(p, (size_t)(close - p), "inf", 3))
				return true;
		}
	}
	return false;
}

/* As text; and no number of a picture is a word of C's. (Names may be; their quotes are &quot; there.) */
static const char *page_fault(const char *text, size_t n)
{
	const char *script = memmem(text, n, "<script>", 8);

	if (!script)
		return "no script";
	for (const char *p = text; p < script; p++)
		if ((unsigned char)*p < 0x20 && *p != '\n')
			return "control character";
	return is_odd_picture(text, script) ? "a word of C's in a picture" : NULL;
}

static void check_reports(const struct lg_verdict *v)
{
	static const struct {
		const char *what;
		void (*write)(const struct lg_verdict *v, struct lg_out *o);
		const char *(*fault)(const char *, size_t);
	} reports[] = {
		{ "explain --json", lg_report_json, fuzz_json_fault },
		{ "steps", lg_steps_table, text_fault },
		{ "steps --csv", lg_steps_csv, text_fault },
		{ "steps --json", lg_steps_json, fuzz_json_fault },
	};
	struct lg_term_options narrow = { .width = 40 };
	struct lg_run_table ranks = { .of = v };
	struct lg_out *o = memory();

	must(!lg_run_ranks(v, &ranks.row, &ranks.n), "no table of ranks");
	lg_report_term(v, &narrow, o);
	lg_report_runs(&ranks, false, &narrow, o);
	check_out(o, "explain", text_fault);
	o = memory();
	lg_report_markdown(v, &ranks, o);
	check_out(o, "explain --markdown", text_fault);
	o = memory();
	must(!lg_report_html(v, &ranks, o, NULL), "the page could not be written");
	lg_free(ranks.row);
	check_out(o, "explain --html", page_fault);
	for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
		o = memory();
		reports[i].write(v, o);
		check_out(o, reports[i].what, reports[i].fault);
	}
}

/* 0, or that memory or a limit of the format was reached; then nothing is known of the bytes. */
static void check_format(int rc, struct lg_out *o, const char *what,
			 const char *(*fault)(const char *, size_t))
{
	if (rc)
		lg_out_abort(o);
	else
		check_out(o, what, fault);
}

static void check_formats(const struct lg_trace *t, const struct lg_verdict *v)
{
	struct lg_window all = { INT64_MIN, INT64_MAX }, half = all;
	struct lg_out *o = memory();

	if (t->first <= t->last)
		half.from = (int64_t)(((__int128)t->first + t->last) / 2);
	check_format(lg_chrome_write(t, v, &all, o, NULL), o, "Chrome", fuzz_json_fault);
	o = memory();
	check_format(lg_chrome_write(t, NULL, &half, o, NULL), o, "Chrome, half of it", fuzz_json_fault);
	o = memory();
	check_format(lg_perfetto_write(t, v, &all, o, NULL), o, "Perfetto", fuzz_protobuf_fault);
	o = memory();
	check_format(lg_folded_write(t, &all, o, NULL), o, "folded", NULL);
	o = memory();
	check_format(lg_speedscope_write(t, &all, o, NULL), o, "speedscope", fuzz_json_fault);
	o = memory();
	check_format(lg_pprof_write(t, &all, o, NULL), o, "pprof", fuzz_protobuf_fault);
}

static void check_diff(const struct lg_verdict *v)
{
	static const struct {
		const char *what;
		void (*write)(const struct lg_diff *d, struct lg_out *o);
		const char *(*fault)(const char *, size_t);
	} reports[] = {
		{ "diff --json", lg_diff_json, fuzz_json_fault }, { "diff --markdown", lg_diff_markdown, text_fault },
		{ "diff --junit", lg_diff_junit, text_fault }, { "diff --github", lg_diff_github, NULL },
	};
	struct lg_term_options wide = { .colour = false };
	struct lg_side *before, *after;
	struct lg_diff *d;
	struct lg_out *o = memory();

	if (lg_side_new(v, &before, NULL) || lg_side_new(v, &after, NULL) ||
	    lg_diff_new(before, after, v, 0.05, &d, NULL) || lg_advise(&d->v, (double)NAN, NULL))
		abort();
	must(isnan(d->delta_ms) || d->delta_ms == 0, "a run differs from itself by %g ms a step", d->delta_ms);
	must(!d->gate.verdict || strcmp(d->gate.verdict, "fail"), "a run is slower than itself: %s", d->gate.why);
	must(!d->v.n_findings, "a run has changed against itself: %s", d->v.findings[0].title);
	lg_diff_term(d, &wide, o);
	check_out(o, "diff", text_fault);
	for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
		o = memory();
		reports[i].write(d, o);
		check_out(o, reports[i].what, reports[i].fault);
	}
	lg_diff_free(d);
	lg_side_free(before);
	lg_side_free(after);
}

void fuzz_judge(const struct lg_trace *t)
{
	struct lg_input input = { .path = "fuzz", .format = "fuzz", .host = "" };
	struct lg_error err = { 0 };
	struct lg_verdict *v;

	must(!lg_explain(t, NULL, &v, &err), "lg_explain: %s", err.message);
	v->inputs = &input;
	v->n_inputs = 1;
	must(!lg_advise(v, 10, &err), "lg_advise: %s", err.message);
	check_verdict(v);
	check_reports(v);
	check_formats(t, v);
	check_diff(v);
	lg_verdict_free(v);
}
