/* SPDX-License-Identifier: Apache-2.0 */
/*
 * term.c - the verdict for somebody on call, over ssh, in 80 to 100 columns.
 *
 * Text that comes from the machine (command lines, thread names) may hold escape sequences:
 * everything goes through put_safe(), which lets only printable characters out.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/json_write.h"
#include "report/report.h"
#include "report/text.h"

enum { LABEL = 14, DEFAULT_WIDTH = 96, MIN_WIDTH = 40, EVIDENCE_SHOWN = 5, MINOR_SHOWN = 5, STACK_SHOWN = 6 };

struct term {
	struct lg_out *o;
	unsigned width;
	bool colour;
};

static void style(const struct term *t, const char *sgr)
{
	if (t->colour)
		lg_out_printf(t->o, "\033[%sm", sgr);
}

static const char *severity_sgr(enum lg_severity s)
{
	static const char *const sgr[] = { [LG_SEVERITY_INFO] = "2", [LG_SEVERITY_LOW] = "36",
					   [LG_SEVERITY_MEDIUM] = "1;33", [LG_SEVERITY_HIGH] = "1;31" };

	return sgr[s];
}

/* "   label        text wrapped under itself" */
static void field(const struct term *t, const char *label, const char *text)
{
	if (!text || !*text)
		return;
	style(t, "2");
	lg_out_printf(t->o, "   %-*s", LABEL - 3, label);
	style(t, "0");
	lg_text_wrap(t->o, text, LABEL, LABEL, t->width);
}

static void fieldf(const struct term *t, const char *label, const char *fmt, ...)
	LG_PRINTF(3, 4);
static void fieldf(const struct term *t, const char *label, const char *fmt, ...)
{
	char buf[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	field(t, label, buf);
}

static void stages(const struct term *t, const struct lg_verdict *v)
{
	if (!v->n_stages)
		return;
	style(t, "2");
	lg_out_puts(t->o, "stage          median ms    share   excess in slow steps, ms\n");
	style(t, "0");
	for (size_t i = 0; i < v->n_stages; i++) {
		const struct lg_stage_sum *s = &v->stages[i];
		char a[32], b[32], c[32];

		if (!(s->median_ms > 0) && !(s->share > 0) && !(s->slow_excess_ms > 0))
			continue; /* does not occur in this run */
		lg_out_printf(t->o, "  %-11s %10s %7s%%   %10s\n", s->stage,
			      lg_text_num(a, sizeof a, s->median_ms, 3),
			      lg_text_num(b, sizeof b, s->share * 100, 1),
			      lg_text_num(c, sizeof c, s->slow_excess_ms, 1));
	}
	lg_out_puts(t->o, "\n");
}

/* "helper (job.py:12), hrtimer_nanosleep": where it was. */
static void gil_place(const struct lg_trace *t, const struct lg_gil_row *r, char *buf, size_t size)
{
	lg_frm f = r->python;
	size_t n = 0;

	*buf = 0;
	if (r->did == LG_GIL_WAITED && r->by)
		n = (size_t)snprintf(buf, size, "for thread %d", t->thread.tid[r->by]);
	if (f)
		n = (size_t)snprintf(buf, size, "%s (%s:%u)", lg_string(t, t->frame.name[f]),
				     lg_file_name(lg_string(t, t->frame.file[f])), t->frame.line[f]);
	if (n >= size)
		return;
	if (r->native)
		snprintf(buf + n, size - n, "%s%s", n ? ", " : "", lg_file_name(lg_string(t, r->native)));
	else if (r->refused >= 1000000)
		snprintf(buf + n, size - n, ", %.1f ms of it after asking", (double)r->refused / 1e6);
}

/* Python's lock: who waited, and who had it meanwhile. */
static void gil(const struct term *t, const struct lg_verdict *v)
{
	static const char *const words[] = { "waited", "had it: Python", "had it: native call", "had it: C library",
					     "had it asleep", "native without it" };
	const struct lg_trace *trace = v->trace;
	enum { LEAST_SAMPLES = 10 };
	int64_t least = 0;
	char place[256];

	for (size_t i = 0; i < v->n_gil; i++)
		if (v->gil[i].did == LG_GIL_WAITED && v->gil[i].ns > least)
			least = v->gil[i].ns;
	if (least < 1000000)
		return;
	least /= 20;
	style(t, "2");
	lg_out_puts(t->o, "Python's lock (the GIL)                times        ms   longest\n");
	style(t, "0");
	for (size_t i = 0; i < v->n_gil; i++) {
		const struct lg_gil_row *r = &v->gil[i];
		char a[32], b[32];

		if (r->ns < least || (r->error && r->times < LEAST_SAMPLES))
			continue;
		gil_place(trace, r, place, sizeof place);
		lg_out_printf(t->o, "  thread %-8d %-19s %6llu %9s %9s  %s\n", trace->thread.tid[r->thr],
			      words[r->did], (unsigned long long)r->times,
			      lg_text_num(a, sizeof a, (double)r->ns / 1e6, 1),
			      r->error ? "(samples)" : lg_text_num(b, sizeof b, (double)r->longest / 1e6, 1), place);
	}
	lg_out_puts(t->o, "\n");
}

static void evidence(const struct term *t, const struct lg_verdict *v, const char *label,
		     const struct lg_evidence *e, size_t n, size_t left_out)
{
	size_t shown = n < EVIDENCE_SHOWN ? n : EVIDENCE_SHOWN;

	for (size_t i = 0; i < shown; i++) {
		double s = lg_report_seconds(v, e[i].ts);

		if (!isfinite(s))
			field(t, i ? "" : label, e[i].text);
		else if (e[i].dur > 0)
			fieldf(t, i ? "" : label, "at %.3f s, %.1f ms: %s", s, (double)e[i].dur / 1e6,
			       e[i].text);
		else
			fieldf(t, i ? "" : label, "at %.3f s: %s", s, e[i].text);
	}
	if (n + left_out > shown)
		fieldf(t, "", left_out ? "... and %zu more (--json has %zu of them)" : "... and %zu more (--json has all)",
		       n + left_out - shown, n - shown);
}

/* As it is counted here, where what is info has no number. */
static size_t number_of(const struct lg_verdict *v, size_t i)
{
	size_t n = 1;

	for (size_t k = 0; k < i; k++)
		n += v->findings[k].severity != LG_SEVERITY_INFO;
	return n;
}

/* Findings of one rule often share their advice: say it once. */
static void advice(const struct term *t, const struct lg_verdict *v, size_t i)
{
	const struct lg_finding *f = &v->findings[i];

	for (size_t k = 0; k < i; k++) {
		const struct lg_finding *g = &v->findings[k];

		if (g->severity != LG_SEVERITY_INFO && f->fix && g->fix && !strcmp(f->fix, g->fix) &&
		    f->confirm == g->confirm && f->tradeoff == g->tradeoff) {
			fieldf(t, "fix", "as for %zu", number_of(v, k));
			return;
		}
	}
	field(t, "to confirm", f->confirm);
	field(t, "fix", f->fix);
	field(t, "trade-off", f->tradeoff);
}

static void finding(const struct term *t, const struct lg_verdict *v, size_t i)
{
	const struct lg_finding *f = &v->findings[i];
	char buf[4096];
	size_t first_col = (size_t)snprintf(buf, sizeof buf, "%zu. %s: ", number_of(v, i),
					    lg_severity_text(f->severity));

	style(t, severity_sgr(f->severity));
	lg_out_puts(t->o, buf);
	style(t, "0");
	style(t, "1");
	lg_text_wrap(t->o, f->title, (unsigned)first_col, 3, t->width);
	style(t, "0");
	field(t, "who", lg_text_who(f, buf, sizeof buf));
	if (f->culprit.function)
		field(t, "doing", lg_text_stack(f, STACK_SHOWN, buf, sizeof buf));
	field(t, "lock", f->culprit.lock);
	field(t, "victims", lg_text_victims(f, buf, sizeof buf));
	field(t, "lost", lg_text_lost(f, buf, sizeof buf));
	field(t, "stage", f->stage);
	field(t, "detail", f->detail);
	evidence(t, v, "evidence", f->evidence, f->n_evidence, f->evidence_left_out);
	evidence(t, v, "against", f->against, f->n_against, f->against_left_out);
	advice(t, v, i);
	if (isfinite(f->cost_per_hour))
		fieldf(t, "cost", "%.2f an hour", f->cost_per_hour);
	lg_out_puts(t->o, "\n");
}

/* What is below 1 % of the run gets a line: it is context, not a call to act. */
static void minor(const struct term *t, const struct lg_verdict *v)
{
	size_t n = 0, shown = 0;

	for (size_t i = 0; i < v->n_findings; i++)
		n += v->findings[i].severity == LG_SEVERITY_INFO;
	if (!n)
		return;
	style(t, "2");
	lg_out_puts(t->o, "minor\n");
	style(t, "0");
	for (size_t i = 0; i < v->n_findings && shown < MINOR_SHOWN; i++) {
		const struct lg_finding *f = &v->findings[i];
		char buf[1024], ms[32];

		if (f->severity != LG_SEVERITY_INFO)
			continue;
		shown++;
		snprintf(buf, sizeof buf, "%s%s%s%s", f->title, isfinite(f->lost_ms) ? " (" : "",
			 isfinite(f->lost_ms) ? lg_text_num(ms, sizeof ms, f->lost_ms, 1) : "",
			 isfinite(f->lost_ms) ? " ms)" : "");
		lg_out_puts(t->o, " - ");
		lg_text_wrap(t->o, buf, 3, 3, t->width);
	}
	if (n > shown)
		lg_out_printf(t->o, " - ... and %zu more (--json has all)\n", n - shown);
	lg_out_puts(t->o, "\n");
}

void lg_term_findings(const struct lg_verdict *v, const struct lg_term_options *opt, struct lg_out *o)
{
	struct term t = { o, opt->width ? opt->width : DEFAULT_WIDTH, opt->colour };

	if (t.width < MIN_WIDTH)
		t.width = MIN_WIDTH;
	for (size_t i = 0; i < v->n_findings; i++)
		if (v->findings[i].severity != LG_SEVERITY_INFO)
			finding(&t, v, i);
	minor(&t, v);
	if (v->n_limits) {
		style(&t, "2");
		lg_out_puts(o, "limits\n");
		style(&t, "0");
		for (size_t i = 0; i < v->n_limits; i++) {
			lg_out_puts(o, " - ");
			lg_text_wrap(o, v->limits[i], 3, 3, t.width);
		}
	}
}

void lg_report_term(const struct lg_verdict *v, const struct lg_term_options *opt,
		    struct lg_out *o)
{
	struct term t = { o, opt->width ? opt->width : DEFAULT_WIDTH, opt->colour };
	char buf[4096], num[32];

	if (t.width < MIN_WIDTH)
		t.width = MIN_WIDTH;
	for (size_t i = 0; i < v->n_fired; i++)
		lg_text_wrap(o, lg_text_fired(&v->fired[i], buf, sizeof buf), 0, 2, t.width);
	style(&t, "1");
	lg_text_wrap(o, lg_headline(v, buf, sizeof buf), 0, 0, t.width);
	style(&t, "0");
	if (lg_lead(v)) {
		lg_out_puts(o, "lost: ");
		lg_text_wrap(o, lg_text_lost(lg_lead(v), buf, sizeof buf), 6, 6, t.width);
	}
	if (*lg_text_money(v, buf, sizeof buf))
		lg_text_wrap(o, buf, 0, 2, t.width);
	lg_out_puts(o, "\n");
	if (v->n_judged) {
		lg_text_wrap(o, lg_steps_line(v, buf, sizeof buf), 0, 2, t.width);
		if (v->bound) {
			snprintf(buf, sizeof buf, "bound: %s (confidence %.2f)%s%s", lg_bound_text(v->bound),
				 v->bound_confidence, v->bound_why ? ": " : "",
				 v->bound_why ? v->bound_why : "");
			lg_text_wrap(o, buf, 0, 2, t.width);
		}
		if (isfinite(v->unexplained_share)) {
			snprintf(buf, sizeof buf, "unexplained: %s %% %s",
				 lg_text_num(num, sizeof num, v->unexplained_share * 100, 1),
				 v->n_slow ? "of the slow steps' excess" : "of the time");
			lg_text_wrap(o, buf, 0, 2, t.width);
		}
		lg_out_puts(o, "\n");
		stages(&t, v);
		gil(&t, v);
	}
	lg_term_findings(v, opt, o);
}
