/* SPDX-License-Identifier: Apache-2.0 */
#include "report/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/agree.h"
#include "base/printable.h"
#include "base/words.h"
#include "report/json_write.h"
#include "report/report.h"

struct sbuf {
	char *p;
	size_t n, size;
};

static void add(struct sbuf *b, const char *fmt, ...) LG_PRINTF(2, 3);
static void add(struct sbuf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (b->n + 1 >= b->size)
		return;
	va_start(ap, fmt);
	n = lg_vagree(b->p + b->n, b->size - b->n, fmt, ap);
	va_end(ap);
	if (n > 0)
		b->n += (size_t)n < b->size - b->n ? (size_t)n : b->size - b->n - 1;
}

static struct sbuf start(char *buf, size_t size)
{
	if (size)
		*buf = 0;
	return (struct sbuf){ buf, 0, size };
}

const char *lg_text_num(char *buf, size_t size, double v, int decimals)
{
	if (!isfinite(v))
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%.*f", fabs(v) >= 1e9 ? 0 : decimals, v);
	return buf;
}

static const char *relation_words(enum lg_relation r)
{
	static const char *const words[] = {
		[LG_RELATION_NONE] = NULL, [LG_RELATION_OTHER_PROCESS] = "another process",
		[LG_RELATION_SAME_PROCESS] = "the same process", [LG_RELATION_KERNEL] = "the kernel",
		[LG_RELATION_RANK] = "a rank of the job", [LG_RELATION_SELF] = "itself",
		[LG_RELATION_HARDWARE] = "hardware",
	};

	return words[r];
}

const char *lg_text_bar(double height, bool utf8)
{
	static const char *const blocks[] = { "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84",
					      "\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88" };
	static const char *const ascii[] = { "_", ".", ",", "-", "=", "+", "*", "#" };

	return (utf8 ? blocks : ascii)[(int)(height * 7 + 0.5)];
}

const char *lg_text_who(const struct lg_finding *f, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);
	const char *rel = relation_words(f->culprit.relation);

	if (f->culprit.pid >= 0)
		add(&b, "pid %d", f->culprit.pid);
	if (f->culprit.tid >= 0 && f->culprit.tid != f->culprit.pid)
		add(&b, "%stid %d", b.n ? ", " : "", f->culprit.tid);
	if (f->culprit.comm)
		add(&b, "%s%s", b.n ? " " : "", f->culprit.comm);
	if (f->culprit.rank >= 0)
		add(&b, "%srank %d", b.n ? ", " : "", f->culprit.rank);
	if (rel)
		add(&b, "%s%s%s", b.n ? " (" : "", rel, b.n ? ")" : "");
	if (f->culprit.container && *f->culprit.container)
		add(&b, " in %s", f->culprit.container);
	if (f->culprit.cmdline && *f->culprit.cmdline)
		add(&b, ": %s", f->culprit.cmdline);
	return buf;
}

/* A frame of the function itself: "tokenize", or with its line "tokenize (data.py:88)". */
static bool is_frame_of(const char *frame, const char *function)
{
	size_t n = strlen(function);

	return !strncmp(frame, function, n) && (!frame[n] || !strncmp(frame + n, " (", 2));
}

const char *lg_text_stack(const struct lg_finding *f, size_t max, char *buf, size_t size)
{
	const char *function = f->culprit.function;
	struct sbuf b = start(buf, size);
	size_t from = 0;

	/* The function may sit below frames that say nothing (a lock's slow path): then the
	 * stack is shown from that function on. */
	for (size_t i = 0; function && i < f->culprit.n_stack; i++)
		if (is_frame_of(f->culprit.stack[i], function)) {
			function = f->culprit.stack[i];
			from = i + 1;
			break;
		}
	if (function)
		add(&b, "%s", function);
	for (size_t i = from, shown = 1; i < f->culprit.n_stack && shown < max; i++, shown++)
		add(&b, "%s%s", b.n ? " < " : "", f->culprit.stack[i]);
	if (f->culprit.n_stack > from + max)
		add(&b, " ...");
	return buf;
}

const char *lg_text_victims(const struct lg_finding *f, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);
	size_t shown = f->n_victims < 16 ? f->n_victims : 16;
	char pid[LG_PID_TEXT];

	for (size_t i = 0; i < shown; i++) {
		lg_pid_text(f->victims[i].pid, pid);
		if (f->victims[i].rank >= 0)
			add(&b, "%srank %d (%s)", i ? ", " : "", f->victims[i].rank, pid);
		else
			add(&b, "%s%s", i ? ", " : "", pid);
	}
	if (shown < f->n_victims)
		add(&b, " and %zu more", f->n_victims - shown);
	return buf;
}

const char *lg_text_lost(const struct lg_finding *f, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);

	if (isfinite(f->lost_ms)) {
		add(&b, "%.1f ms", f->lost_ms);
		if (isfinite(f->lost_share))
			add(&b, ", %.1f %% of the run", f->lost_share * 100);
		if (isfinite(f->excess_share))
			add(&b, ", %.0f %% of the slow steps' excess", f->excess_share * 100);
	} else if (isfinite(f->lost_share)) { /* of a profile without times */
		add(&b, "%.1f %% of the samples", f->lost_share * 100);
	} else {
		add(&b, "cannot be measured from this input");
	}
	add(&b, "; confidence %.2f", f->confidence);
	return buf;
}

const char *lg_text_money(const struct lg_verdict *v, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);

	if (!(v->cost.per_hour > 0))
		return buf;
	add(&b, "cost: %.2f an hour, %.2f of it lost (%.1f %%): an hour of training done costs %.2f",
	    v->cost.per_hour, v->cost.per_hour * v->cost.lost_share, v->cost.lost_share * 100,
	    v->cost.per_training_hour);
	if (v->saves.n)
		add(&b, "; %zu checkpoint%s stall %.1f %% of the run (%.2f an hour)", v->saves.n,
		    v->saves.n > 1 ? "s" : "", v->saves.stall_share * 100,
		    v->saves.stall_share * v->cost.per_hour);
	if (v->saves.n && isfinite(v->saves.bytes))
		add(&b, " and write %.1f MB at %.0f MB/s, %.1f GB an hour", v->saves.bytes / 1e6,
		    v->saves.bytes_per_s / 1e6, v->saves.bytes_per_hour / 1e9);
	return buf;
}

static bool matters(const struct lg_finding *f)
{
	return f->severity == LG_SEVERITY_HIGH || f->severity == LG_SEVERITY_MEDIUM;
}

/* What the slow steps took beyond the usual, as a share of all steps' time. */
static double slow_share(const struct lg_verdict *v)
{
	double excess = v->slow_excess_ms;

	for (size_t i = 0; i < v->n_stages; i++)
		if (v->stages[i].slow_excess_ms > 0)
			excess += v->stages[i].slow_excess_ms * (double)v->n_slow;
	return excess > 0 ? excess / (excess + v->median_ms * (double)v->n_judged) : 0;
}

/* For good, and beyond what such a shape is told from. */
static bool got_slower(const struct lg_verdict *v)
{
	return v->slower > 0 && v->shape && (v->shape == LG_SHAPE_SHIFT || v->shape == LG_SHAPE_DRIFT);
}

/* One or two may be anything, unless the run is short beside them. */
static bool slow_steps_matter(const struct lg_verdict *v)
{
	return slow_share(v) >= (v->n_slow >= 3 ? 0.03 : 0.1);
}

/* That slow steps are much of the time, and what is known of it. */
static void add_slow_steps(struct sbuf *b, const struct lg_verdict *v, const char *lead, double share,
			   const char *what)
{
	add(b, "%s: %zu of %zu steps %s slow, which took %.0f %% of the time; %.0f %% of that %s.", lead, v->n_slow,
	    v->n_judged, v->n_slow == 1 ? "was" : "were", slow_share(v) * 100, share * 100, what);
}

/* Where the trace shows nothing. A loop that trains nothing is called what it is. */
static void add_untraced(struct sbuf *b, const struct lg_verdict *v)
{
	char ms[32];

	if (v->inference)
		add(b, "Inference or evaluation, %zu steps of %s ms: %.0f %% of their time is traced work, for ",
		    v->n_judged, lg_text_num(ms, sizeof ms, v->median_ms, 2), 100 - v->untraced_share * 100);
	else
		add(b, "No cause proven: for ");
	add(b, "%.0f %% of %s time nothing runs that this input shows ", v->untraced_share * 100,
	    v->inference ? "the" : "the steps'");
	if (v->untraced_in)
		add(b, "but Python: %s.", v->untraced_in);
	else
		add(b, "(Python, a save, a sleep, a lock: with_stack=True or laggard record tells).");
}

/* Large, but not graded: seen too few times, or of one that nothing shows to train. */
static bool is_large(const struct lg_finding *f)
{
	return f->lost_share >= 0.03 && (f->doubted || !f->ordinary);
}

static bool is_hang(const struct lg_finding *f)
{
	return lg_policy(lg_rule_from(f->id))->basis == LG_BASIS_HANG;
}

const struct lg_finding *lg_lead(const struct lg_verdict *v)
{
	/* Who waits for a run that hangs is not helped by what made it slow before. */
	for (size_t i = 0; i < v->n_findings; i++)
		if (matters(&v->findings[i]) && is_hang(&v->findings[i]))
			return &v->findings[i];
	/* What cannot be measured comes last, also behind what is little (contract.md#order). */
	for (size_t i = 0; i < v->n_findings && (!i || !is_large(&v->findings[0])); i++)
		if (matters(&v->findings[i]))
			return &v->findings[i];
	return NULL;
}

/* Small beside the whole run, but it is why slow steps are slow; NULL = none is. */
static const struct lg_finding *why_slow(const struct lg_verdict *v)
{
	const struct lg_finding *most = NULL;

	for (size_t i = 0; v->n_judged && v->n_slow >= 5 && i < v->n_findings; i++)
		if (v->findings[i].excess_share >= (most ? most->excess_share : 0.3))
			most = &v->findings[i];
	return most;
}

const struct lg_finding *lg_named(const struct lg_verdict *v)
{
	const struct lg_finding *lead = lg_lead(v);

	if (lead || !v->n_findings)
		return lead;
	return !v->n_judged || is_large(&v->findings[0]) ? &v->findings[0] : why_slow(v);
}

static void add_more(struct sbuf *b, size_t n)
{
	if (n)
		add(b, " (and %zu more finding%s)", n, n > 1 ? "s" : "");
}

/* Nothing is wrong: only where all that the input tells of was judged (contract.md#nothing-wrong). */
static void add_all_clear(struct sbuf *b, const struct lg_verdict *v)
{
	add(b, "%s: %zu step%s%s", v->not_judged || v->cut ? "Nothing was found in what could be judged"
						 : "Nothing is wrong that this input can show",
	    v->n_judged, lg_s(v->n_judged), v->inference ? " of inference or evaluation" : "");
	if (v->n_slow)
		add(b, ", %zu of them slow", v->n_slow);
	add(b, ", no finding at medium or above.");
	if (v->n_limits && !v->not_judged)
		add(b, " Mind the limits below.");
}

static bool is_sentence(const struct sbuf *b)
{
	return b->n && b->p[b->n - 1] == '.';
}

const char *lg_text_fired(const struct lg_fired *f, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);

	add(&b, "fired: %s: %s", f->what, f->why);
	if (f->answer)
		add(&b, "; %s", f->answer);
	if (!is_sentence(&b))
		add(&b, ".");
	return buf;
}

const char *lg_headline(const struct lg_verdict *v, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);
	const struct lg_finding *lead = lg_lead(v);
	size_t n = 0;

	for (size_t i = 0; i < v->n_findings; i++)
		n += matters(&v->findings[i]);
	if (v->still && !(lead && is_hang(lead))) {
		add(&b, "The run stands still: %s", v->still);
		add_more(&b, n);
	} else if (lead) {
		add(&b, "%s", lead->title);
		add_more(&b, n - 1);
	} else if (!v->n_judged && v->n_findings) {
		add(&b, "%s", v->findings[0].title);
	} else if (v->n_findings && is_large(&v->findings[0]) && v->findings[0].doubted) {
		add(&b, "%s: %.0f %% of this input, but nothing shows that who was held up trains; --victim PID says so",
		    v->findings[0].title, v->findings[0].lost_share * 100);
		add_more(&b, n);
	} else if (v->n_findings && is_large(&v->findings[0])) {
		/* Seen too few times for medium or high (contract.md#severity). */
		add(&b, "%s: %.0f %% of this run%s", v->findings[0].title, v->findings[0].lost_share * 100,
		    v->findings[0].seen ? "" : ", but too few times to grade; record longer");
		add_more(&b, n);
	} else if (!v->n_judged && v->unjudged) {
		add(&b, "%s: nothing is judged.", v->unjudged);
	} else if (!v->n_judged && v->n_steps) {
		add(&b, "Nothing is judged: %zu step%s in this input, and the limits below say why not.", v->n_steps,
		    v->n_steps == 1 ? "" : "s");
	} else if (!v->n_judged) {
		add(&b, "No repeating training steps found in this input: nothing is judged.");
	} else if ((lead = why_slow(v))) {
		add(&b, "%s (%.0f %% of the slow steps' excess, %.1f %% of the run)", lead->title,
		    lead->excess_share * 100, lead->lost_share * 100);
	} else if (v->own_share >= 0.5 && slow_steps_matter(v)) {
		add_slow_steps(&b, v, "Mostly the job's own doing", v->own_share, "its own threads computed or slept");
		if (v->n_limits)
			add(&b, " The limits below say more.");
	} else if (v->unexplained_share >= 0.5 && slow_steps_matter(v)) {
		add_slow_steps(&b, v, v->inference ? "Inference or evaluation, no cause proven" : "No cause proven",
			       v->unexplained_share, "is unexplained");
		if (v->n_limits)
			add(&b, " The limits below say why.");
	} else if (got_slower(v)) {
		add(&b, "Steps got %.0f %% slower in the course of this input (a %s), and nothing in it says why.",
		    100 * v->slower, lg_shape_text(v->shape));
		if (v->n_limits)
			add(&b, " Mind the limits below.");
	} else if (v->rank_apart > 0) {
		add(&b, "The steps of rank %d take %.0f %% longer than those of any other rank, and nothing in this input "
			"says why. Mind the limits below.", v->rank_longer, 100 * v->rank_apart);
	} else if (v->alone_share >= 0.25) {
		add(&b, "No cause proven: for %.0f %% of the steps' time this rank is in collectives, and its file alone "
			"does not show whom it waits for; give the files of all ranks.", v->alone_share * 100);
	} else if (v->untraced_share >= 0.25) {
		add_untraced(&b, v);
	} else {
		add_all_clear(&b, v);
	}
	if (v->cut && (v->n_judged || !v->unjudged))
		add(&b, "%s file is cut: what it ends before is not judged.", is_sentence(&b) ? " The" : "; the");
	if (lead && v->lost_kernels > 0)
		add(&b, "%s trace is not whole: %.0f %% of the kernels are not in it.", is_sentence(&b) ? " The" : "; the",
		    v->lost_kernels * 100);
	if (!lead && v->not_judged)
		add(&b, "%s judged: %s%s.", is_sentence(&b) ? " Not" : "; not", v->not_judged,
		    v->n_not_judged > 3 ? " and more" : "");
	return buf;
}

const char *lg_steps_line(const struct lg_verdict *v, char *buf, size_t size)
{
	struct sbuf b = start(buf, size);
	char a[32], c[32], least[32], most[32];

	add(&b, "steps: %zu, min %s ms, median %s ms, p99 %s ms, max %s ms", v->n_judged,
	    lg_text_num(least, sizeof least, v->min_ms, 2), lg_text_num(a, sizeof a, v->median_ms, 2),
	    lg_text_num(c, sizeof c, v->p99_ms, 2), lg_text_num(most, sizeof most, v->max_ms, 2));
	add(&b, "; %zu slow", v->n_slow);
	if (isfinite(v->slow_threshold_ms))
		add(&b, " (over %s ms)", lg_text_num(a, sizeof a, v->slow_threshold_ms, 2));
	if (!v->shape && v->uneven)
		add(&b, "; without a level of their own: a tenth and nine tenths of them lie far apart");
	if (v->shape) {
		add(&b, "; %s", lg_shape_text(v->shape));
		if (isfinite(v->period_s) && v->period_s < 0.1)
			add(&b, ", every %s ms", lg_text_num(a, sizeof a, 1e3 * v->period_s, 1));
		else if (isfinite(v->period_s))
			add(&b, ", every %s s", lg_text_num(a, sizeof a, v->period_s, 2));
		if (isfinite(v->period_p))
			add(&b, " (by chance: p %s %.2g)", v->period_p_at_most ? "<=" : "=", v->period_p);
		if (isfinite(v->shift_s))
			add(&b, " at %s s", lg_text_num(a, sizeof a, v->shift_s, 2));
	}
	if (v->scope)
		add(&b, "; %s", lg_scope_text(v->scope));
	if (v->n_ranks) {
		add(&b, "; rank%s", v->n_ranks > 1 ? "s" : "");
		for (size_t i = 0; i < v->n_ranks && i < 16; i++)
			add(&b, " %d", v->ranks[i]);
		if (v->n_ranks > 16)
			add(&b, " ... (%zu ranks)", v->n_ranks);
	}
	return buf;
}

/* One word (up to a space or the end), cleaned; returns its columns. o NULL = only count. At a line's start
 * it may not be a command to a CI runner (base/printable.h), nor one of the other kind anywhere. */
static unsigned word(struct lg_out *o, const unsigned char **ps, bool line_start)
{
	const unsigned char *s = *ps;
	const unsigned char *colon = line_start && lg_is_command((const char *)s) ? s + 1 : NULL;
	unsigned cols = 0;

	while (*s && *s != ' ') {
		size_t len = s == colon || (*s == '#' && s > *ps && s[-1] == '#') ? 0 : lg_printable(s);

		if (o && len)
			lg_out_write(o, s, len);
		else if (o)
			lg_out_write(o, *s == '\t' || *s == '\n' ? " " : "?", 1);
		s += len ? len : 1;
		cols++;
	}
	*ps = s;
	return cols;
}

void lg_text_wrap(struct lg_out *o, const char *text, unsigned col, unsigned indent, unsigned width)
{
	const unsigned char *s = (const unsigned char *)text;
	bool line_start = true;

	while (*s) {
		const unsigned char *look = s;
		unsigned cols;

		if (*s == ' ') {
			s++;
			continue;
		}
		cols = word(NULL, &look, false);
		if (!line_start && col + 1 + cols > width) {
			lg_out_printf(o, "\n%*s", (int)indent, "");
			col = indent;
			line_start = true;
		}
		if (!line_start) {
			lg_out_write(o, " ", 1);
			col++;
		}
		col += word(o, &s, line_start);
		line_start = false;
	}
	lg_out_write(o, "\n", 1);
}

void lg_text_safe(struct lg_out *o, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	bool line_start = true;

	while (*s) {
		if (*s == ' ') {
			lg_out_write(o, s++, 1);
			continue;
		}
		(void)word(o, &s, line_start);
		line_start = false;
	}
}

void lg_csv_text(struct lg_out *o, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	bool quoted = strpbrk(text, ",\"") || lg_is_command(text);

	if (quoted)
		lg_out_write(o, "\"", 1);
	if (*s && strchr("=+-@", *s))
		lg_out_write(o, "'", 1);
	while (*s) {
		bool command = *s == '#' && s > (const unsigned char *)text && s[-1] == '#';
		size_t n = lg_printable(s);
		char one[8];

		if (*s == '"')
			lg_out_write(o, "\"", 1);
		if (command) {
			lg_out_puts(o, "\\x23");
		} else if (n) {
			lg_out_write(o, s, n);
		} else {
			const char piece[2] = { (char)*s, 0 };

			lg_out_puts(o, lg_show(one, sizeof one, piece, false));
		}
		s += n ? n : 1;
	}
	if (quoted)
		lg_out_write(o, "\"", 1);
}
