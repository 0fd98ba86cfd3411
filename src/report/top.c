/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.c - a verdict of the last seconds on a terminal's screen: steps, ranks side by side, who stalls whom.
 *
 * Lines are built whole, made harmless (base/printable.h) and cut at the screen's edge. Colour only repeats
 * what letters say.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "base/order.h"
#include "base/printable.h"
#include "picture/accounts.h"
#include "picture/machine.h"
#include "report/report.h"
#include "report/text.h"

enum { MIN_WIDTH = 40, MAX_WIDTH = 400, LINE_BYTES = 2048, FINDINGS_SHOWN = 8 };
enum { BESIDE_BAR = 60, BAR_MIN = 8, BAR_MAX = 60, HEADLINE_LINES = 3 };

struct top {
	struct lg_out *o;
	unsigned width;
	bool colour, utf8;
};

/* One line, in a style (a number of ECMA-48's SGR; NULL = plain). */
static void LG_PRINTF(3, 4) line(struct top *t, const char *sgr, const char *fmt, ...)
{
	char text[LINE_BYTES], shown[2 * LINE_BYTES];
	size_t n = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_show(shown, sizeof shown, text, false);
	for (size_t columns = 0; shown[n] && columns < t->width; columns++)
		n += lg_printable((const unsigned char *)shown + n) ?: 1;
	if (t->colour && sgr)
		lg_out_printf(t->o, "\033[%sm%.*s\033[0m\n", sgr, (int)n, shown);
	else
		lg_out_printf(t->o, "%.*s\n", (int)n, shown);
}

/* ---- steps --------------------------------------------------------------------------------------- */

/* The longest step of each column's time, over all ranks, and below it which were slow. */
static void strip(struct top *t, const struct lg_verdict *v)
{
	char text[MAX_WIDTH * 3 + 1] = "", slow[MAX_WIDTH + 1] = "";
	int64_t column[MAX_WIDTH] = { 0 }, first = INT64_MAX, last = INT64_MIN, longest = 0;
	unsigned columns = t->width - 6;
	size_t n = 0;

	for (size_t i = 0; i < v->n_steps; i++) {
		first = LG_MIN(first, v->steps[i].ts);
		last = LG_MAX(last, v->steps[i].ts);
	}
	if (first >= last)
		return;
	memset(slow, ' ', columns);
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];
		size_t at = (size_t)((double)(s->ts - first) / ((double)(last - first) + 1) * columns);

		column[at] = LG_MAX(column[at], s->dur);
		longest = LG_MAX(longest, s->dur);
		if (s->slow)
			slow[at] = '^';
	}
	for (unsigned i = 0; i < columns; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s",
				      column[i] ? lg_text_bar((double)column[i] / (double)longest, t->utf8) : " ");
	line(t, NULL, "steps %s", text);
	if (strchr(slow, '^'))
		line(t, "31", "slow  %s", slow);
}

/* ---- ranks --------------------------------------------------------------------------------------- */

struct rank {
	int32_t rank, pid;
	size_t n, n_slow;
	int64_t first, last, longest, own;
	double median, p99;
	int64_t stage[LG_STAGE_MAX];
};

LG_ORDER_BY(cmp_ns, int64_t, LG_CMP(*x, *y))

/* The steps from *at on that are of one process: they stand together. */
static struct rank rank_at(const struct lg_verdict *v, const struct lg_accounts *a, size_t *at,
			   int64_t *scratch)
{
	const struct lg_step *s = &v->steps[*at];
	struct rank r = { .rank = s->rank, .pid = v->trace->process.pid[s->prc], .first = s->ts };
	lg_prc prc = s->prc;

	for (; *at < v->n_steps && v->steps[*at].prc == prc; ++*at) {
		s = &v->steps[*at];
		scratch[r.n++] = s->dur;
		r.n_slow += s->slow;
		r.own += a->own_ns[*at];
		r.last = s->ts + s->dur;
		r.longest = LG_MAX(r.longest, s->dur);
		for (size_t k = 0; k < LG_STAGE_MAX; k++)
			r.stage[k] += a->stage_ns[*at * LG_STAGE_MAX + k];
	}
	LG_SORT(scratch, r.n, cmp_ns);
	r.median = (double)scratch[r.n / 2] / 1e6;
	r.p99 = (double)scratch[(r.n - 1) * 99 / 100] / 1e6;
	return r;
}

/* One letter a stage: what a step consists of. */
static const char letters[LG_STAGE_MAX] = {
	[LG_STAGE_NONE] = '.', [LG_STAGE_BATCH_WAIT] = 'w', [LG_STAGE_H2D] = 'h', [LG_STAGE_FORWARD] = 'f',
	[LG_STAGE_BACKWARD] = 'b', [LG_STAGE_GRAD_SYNC] = 'g', [LG_STAGE_OPTIMIZER] = 'o',
	[LG_STAGE_SIDE] = 's', [LG_STAGE_OTHER] = '.'
};

static void bar(const struct rank *r, char *text, size_t width)
{
	int64_t sum = 0, done = 0;
	size_t n = 0;

	for (size_t k = 0; k < LG_STAGE_MAX; k++)
		sum += r->stage[k];
	for (size_t k = 0; k < LG_STAGE_MAX && sum > 0; k++) {
		done += r->stage[k];
		while (n < width && (double)n + 0.5 < (double)done / (double)sum * (double)width)
			text[n++] = letters[k];
	}
	text[n] = 0;
}

/* Is it accused, with a price, of making the others late? */
static bool is_late(const struct lg_verdict *v, int32_t rank)
{
	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *f = &v->findings[i];

		if (f->severity < LG_SEVERITY_LOW || rank < 0)
			continue;
		if (f->culprit.rank == rank)
			return true;
		for (size_t k = 0; k < f->n_culprit_ranks; k++)
			if (f->culprit_ranks[k] == rank)
				return true;
		for (size_t k = 0; k < f->n_victims && f->n_victims == 1; k++)
			if (f->victims[k].rank == rank)
				return true;
	}
	return false;
}

static void ranks(struct top *t, const struct lg_verdict *v, const struct lg_accounts *a)
{
	int64_t *scratch = lg_calloc(v->n_steps + 1, sizeof *scratch);
	unsigned wide = t->width > BESIDE_BAR ? t->width - BESIDE_BAR : 0;

	if (!scratch || !v->n_steps) {
		lg_free(scratch);
		return;
	}
	wide = LG_MAX(LG_MIN(wide, (unsigned)BAR_MAX), (unsigned)BAR_MIN);
	line(t, "7", "RANK      PID STEPS/S MEDIAN    P99    MAX    OWN SLOW   %-*s", (int)wide + 2, "STEP");
	for (size_t at = 0; at < v->n_steps;) {
		struct rank r = rank_at(v, a, &at, scratch);
		double s = (double)(r.last - r.first) / 1e9;
		char text[BAR_MAX + 1], name[16] = "-";
		bool late = is_late(v, r.rank);

		bar(&r, text, wide);
		if (r.rank >= 0)
			snprintf(name, sizeof name, "%d", r.rank);
		line(t, late ? "31" : NULL, "%4s %8d %7.1f %6.1f %6.1f %6.1f %6.1f %4zu %c [%s]", name, r.pid,
		     s > 0 ? (double)r.n / s : 0, r.median, r.p99, (double)r.longest / 1e6,
		     (double)r.own / (double)r.n / 1e6, r.n_slow, late ? '<' : ' ', text);
	}
	line(t, "2", "in ms, OWN: without collectives; < late; wait h2d forward backward gsync optim side");
	lg_free(scratch);
}

/* ---- the machine --------------------------------------------------------------------------------- */

static void loader(struct top *t, const struct lg_machine *m)
{
	char workers[96] = "";

	if (m->workers)
		snprintf(workers, sizeof workers, "; %zu worker%s on %.2f CPUs", m->workers,
			 m->workers == 1 ? "" : "s", m->workers_cpus);
	if (isfinite(m->batch_wait))
		line(t, NULL, "loader  %.1f %% of the steps' time waits for a batch%s", 100 * m->batch_wait, workers);
}

static void cpus(struct top *t, const struct lg_verdict *v, const struct lg_machine *m)
{
	char text[512] = "", of[32] = "", pid[LG_PID_TEXT];
	size_t n = 0;

	for (size_t i = 0; i < m->n_busiest && n < sizeof text; i++) {
		const char *comm = lg_string(v->trace, v->trace->process.comm[m->busiest[i].prc]);

		n += (size_t)snprintf(text + n, sizeof text - n, "%s %.40s%s%s%s %.2f", i ? "," : ":", comm,
				      *comm ? " (" : "", lg_pid_text(v->trace->process.pid[m->busiest[i].prc], pid),
				      *comm ? ")" : "", m->busiest[i].cpus);
	}
	if (m->cpus > 0)
		snprintf(of, sizeof of, " of %.0f", m->cpus);
	if (m->cpus_busy > 0)
		line(t, NULL, "CPUs    %.2f%s busy%s", m->cpus_busy, of, text);
}

static void devices(struct top *t, const struct lg_machine *m)
{
	for (size_t i = 0; i < m->n_devices; i++) {
		const struct lg_machine_device *d = &m->device[i];
		char text[256] = "";
		size_t n = 0;

		if (isfinite(d->busy))
			n += (size_t)snprintf(text + n, sizeof text - n, " busy %.0f %%", 100 * d->busy);
		if (isfinite(d->util))
			n += (size_t)snprintf(text + n, sizeof text - n, " util %.0f %%", d->util);
		if (isfinite(d->watts))
			n += (size_t)snprintf(text + n, sizeof text - n, " %.0f W", d->watts);
		if (isfinite(d->bytes))
			snprintf(text + n, sizeof text - n, " %.2f GiB", d->bytes / (1 << 30));
		line(t, NULL, "device %2d%s", d->index, text);
	}
	if (m->devices_left)
		line(t, "2", "device    and more");
}

/* ---- who stalls whom ----------------------------------------------------------------------------- */

static void stalls(struct top *t, const struct lg_verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_findings && n < FINDINGS_SHOWN; i++) {
		const struct lg_finding *f = &v->findings[i];
		char whom[256] = "", who[512] = "";

		if (f->severity < LG_SEVERITY_LOW)
			continue;
		if (!n++)
			line(t, "7", "%-*s", (int)t->width, "  LOST MS  WHO WAITS <- FOR WHOM");
		if (f->n_victims)
			lg_text_victims(f, whom, sizeof whom);
		snprintf(who, sizeof who, "%s (pid %d)%s%s", f->culprit.comm, f->culprit.pid,
			 f->culprit.function ? " in " : "", f->culprit.function ?: "");
		if (isfinite(f->lost_ms) && f->culprit.comm && f->culprit.pid >= 0)
			line(t, f->severity >= LG_SEVERITY_MEDIUM ? "1" : NULL, "%9.1f  %s%s%s%s%s", f->lost_ms, whom,
			     *whom ? " <- " : "", who, f->culprit.lock ? ", " : "", f->culprit.lock ?: "");
		else if (isfinite(f->lost_ms))
			line(t, f->severity >= LG_SEVERITY_MEDIUM ? "1" : NULL, "%9.1f  %s", f->lost_ms, f->title);
		else
			line(t, NULL, "        -  %s", f->title);
	}
}

/* In lines that end at words. */
static void headline(struct top *t, const char *text)
{
	for (int i = 0; *text && i < HEADLINE_LINES; i++) {
		size_t n = strlen(text), cut = t->width;

		if (n > cut && i + 1 < HEADLINE_LINES)
			for (n = cut; n > cut / 2 && text[n] != ' '; n--)
				;
		line(t, "1", "%.*s", (int)n, text);
		text += n;
		text += strspn(text, " ");
	}
}

void lg_report_top(const struct lg_verdict *v, const struct lg_accounts *a, const struct lg_top *how,
		   struct lg_out *o)
{
	struct top t = { .o = o, .width = LG_MAX(how->width, (unsigned)MIN_WIDTH), .colour = how->colour,
			 .utf8 = how->utf8 };
	char buf[4096];

	t.width = LG_MIN(t.width, (unsigned)MAX_WIDTH);
	line(&t, "1", "laggard top  %s", how->head);
	if (v->n_judged)
		line(&t, NULL, "%s", lg_steps_line(v, buf, sizeof buf));
	strip(&t, v);
	ranks(&t, v, a);
	loader(&t, how->machine);
	cpus(&t, v, how->machine);
	devices(&t, how->machine);
	stalls(&t, v);
	headline(&t, lg_headline(v, buf, sizeof buf));
	if (v->n_limits)
		line(&t, "2", "not seen: %s%s", v->limits[0], v->n_limits > 1 ? " (and more: explain)" : "");
}
