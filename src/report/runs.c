/* SPDX-License-Identifier: Apache-2.0 */
#include "report/runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/median.h"
#include "base/order.h"
#include "report/html_text.h"
#include "report/text.h"

enum { WIDTH = 80, NAME = 26, NAME_MAX_WIDE = 60, ROWS_SHOWN = 16, COMMON_SHOWN = 8 };

static void tell(struct lg_run_row *r, const struct lg_finding *f)
{
	if (f->severity == LG_SEVERITY_INFO)
		return;
	if (!r->n_told) {
		r->lost_ms = f->lost_ms;
		r->lost_share = f->lost_share;
		snprintf(r->title, sizeof r->title, "%s", f->title ? f->title : "");
	}
	if (r->n_told < LG_RUN_TOLD)
		r->told[r->n_told++] = (struct lg_run_told){ f->rule, f->severity, f->lost_share };
}

static void set_input(struct lg_run_row *r, const struct lg_input *in)
{
	snprintf(r->name, sizeof r->name, "%s", in->path);
	snprintf(r->format, sizeof r->format, "%s", in->format);
	snprintf(r->host, sizeof r->host, "%s", in->host ? in->host : "");
}

void lg_run_row_of(const struct lg_verdict *v, struct lg_run_row *ret)
{
	char text[4096];

	*ret = (struct lg_run_row){ .files = (uint32_t)v->n_inputs, .ranks = (uint32_t)v->n_ranks, .rank = -1,
				    .steps = v->n_judged, .median_ms = v->median_ms, .lost_ms = (double)NAN,
				    .lost_share = (double)NAN };
	if (v->n_inputs)
		set_input(ret, &v->inputs[0]);
	if (v->n_ranks == 1)
		ret->rank = v->ranks[0];
	LG_EACH(f, v->findings, v->n_findings)
		tell(ret, f);
	if (!ret->n_told)
		snprintf(ret->title, sizeof ret->title, "%s", lg_headline(v, text, sizeof text));
}

/* Is f about that rank and no other? */
static bool is_about(const struct lg_finding *f, int32_t rank)
{
	if (f->culprit.rank == rank)
		return true;
	for (size_t i = 0; i < f->n_culprit_ranks; i++)
		if (f->culprit_ranks[i] == rank)
			return true;
	return f->culprit.rank < 0 && !f->n_culprit_ranks && f->n_victims == 1 && f->victims[0].rank == rank;
}

static int rank_row(const struct lg_verdict *v, size_t from, size_t to, struct lg_run_row *r)
{
	LG_AUTOFREE double *ms = lg_calloc(to - from, sizeof *ms);
	int32_t rank = v->steps[from].rank;

	if (!ms)
		return LG_E_NOMEM;
	*r = (struct lg_run_row){ .rank = rank, .ranks = 1, .lost_ms = (double)NAN,
				  .lost_share = (double)NAN };
	for (size_t i = from; i < to; i++)
		if (!v->steps[i].warmup)
			ms[r->steps++] = (double)v->steps[i].dur / 1e6;
	r->median_ms = r->steps ? lg_median_f64(ms, r->steps) : (double)NAN;
	LG_EACH(in, v->inputs, v->n_inputs)
		if (in->rank == rank && !r->files++)
			set_input(r, in);
	if (!r->files && v->n_inputs == 1)
		set_input(r, &v->inputs[0]);
	snprintf(r->host, sizeof r->host, "%s",
		 *r->host ? r->host : lg_string(v->trace, v->trace->process.host[v->steps[from].prc]));
	LG_EACH(f, v->findings, v->n_findings)
		if (is_about(f, rank))
			tell(r, f);
	return 0;
}

int lg_run_ranks(const struct lg_verdict *v, struct lg_run_row **ret, size_t *ret_n)
{
	struct lg_run_row *rows = lg_calloc(v->n_ranks + 1, sizeof *rows);
	size_t n = 0;
	int rc = rows ? 0 : LG_E_NOMEM;

	*ret = rows;
	*ret_n = 0;
	for (size_t at = 0, to; at < v->n_steps && !rc; at = to) {
		lg_prc prc = v->steps[at].prc;

		for (to = at; to < v->n_steps && v->steps[to].prc == prc; to++)
			;
		if (v->steps[at].rank >= 0 && n < v->n_ranks)
			rc = rank_row(v, at, to, &rows[n++]);
	}
	*ret_n = !rc && n > 1 ? n : 0;
	return rc;
}

static void end_text(char *s, size_t size)
{
	s[size - 1] = 0;
}

void lg_run_row_check(struct lg_run_row *r)
{
	end_text(r->name, sizeof r->name);
	end_text(r->format, sizeof r->format);
	end_text(r->host, sizeof r->host);
	end_text(r->title, sizeof r->title);
	r->n_told = LG_MIN(r->n_told, (uint32_t)LG_RUN_TOLD);
	for (uint32_t i = 0; i < r->n_told; i++) {
		if ((unsigned)r->told[i].rule >= LG_R_MAX)
			r->told[i].rule = LG_R_NONE;
		if ((unsigned)r->told[i].severity > LG_SEVERITY_HIGH)
			r->told[i].severity = LG_SEVERITY_INFO;
	}
}

static const char *rule_of(const struct lg_run_told *t)
{
	return t->rule ? lg_policy(t->rule)->id : "";
}

/* ---- the terminal -------------------------------------------------------------------------------- */

/* How much of all names, up to a slash, is the same. */
static size_t common_folder(const struct lg_run_row *r, size_t n)
{
	const char *slash = strrchr(r[0].name, '/');
	size_t len = slash ? (size_t)(slash - r[0].name) + 1 : 0;

	for (size_t i = 1; i < n; i++)
		while (len && strncmp(r[i].name, r[0].name, len))
			while (--len && r[0].name[len - 1] != '/')
				;
	return len;
}

static const char *number(char *buf, size_t size, double v, const char *unit)
{
	char num[32];

	if (!isfinite(v))
		return "-";
	snprintf(buf, size, "%s%s", lg_text_num(num, sizeof num, v, fabs(v) < 100 ? 2 : 0), unit);
	return buf;
}

/* What a row says, column by column. */
enum { NAMED, KIND, RANK, STEPS, MEDIAN, LOST, FOUND, CELLS };
static const char *const heads[CELLS] = { "", "kind", "rank", "steps", "median ms", "lost", "" };
struct cells {
	char text[CELLS][sizeof(((struct lg_run_row *)NULL)->name) + 32];
};

static const char *head(const struct lg_run_table *t, size_t k)
{
	return k == NAMED ? (t->of ? "ranks" : "runs") : k == FOUND ? (t->of ? "what names it" : "first finding") : heads[k];
}

static void fill(const struct lg_run_table *t, const struct lg_run_row *r, size_t folder, struct cells *c)
{
	enum { SIZE = sizeof c->text[0] };
	char num[48];

	if (r->files > 1 && !t->of)
		snprintf(c->text[NAMED], SIZE, "%s +%u", r->name + folder, r->files - 1);
	else
		snprintf(c->text[NAMED], SIZE, "%s", r->name + folder);
	snprintf(c->text[KIND], SIZE, "%s", r->format);
	snprintf(c->text[RANK], SIZE, r->rank >= 0 ? "%d" : r->ranks > 1 ? "%u of" : "-",
		 r->rank >= 0 ? r->rank : (int)r->ranks);
	snprintf(c->text[STEPS], SIZE, "%llu", (unsigned long long)r->steps);
	snprintf(c->text[MEDIAN], SIZE, "%s", number(num, sizeof num, r->median_ms, ""));
	snprintf(c->text[LOST], SIZE, "%s", number(num, sizeof num, 100 * r->lost_share, " %"));
	if (r->n_told)
		snprintf(c->text[FOUND], SIZE, "%s %s%s", lg_severity_text(r->told[0].severity), rule_of(&r->told[0]),
			 r->n_told > 1 ? " ..." : "");
	else
		snprintf(c->text[FOUND], SIZE, "%s", r->failed ? "could not be judged" : "-");
}

/* Of many ranks those are shown that a finding names. */
static bool shown(const struct lg_run_table *t, const struct lg_run_row *r)
{
	return !t->of || t->n <= ROWS_SHOWN || r->n_told;
}

static size_t n_hidden(const struct lg_run_table *t)
{
	size_t n = 0;

	LG_EACH(x, t->row, t->n)
		n += !shown(t, x);
	return n;
}

static void term_row(const struct cells *c, int wide, struct lg_out *o)
{
	const char *name = c->text[NAMED];
	int n = (int)strlen(name), skip = n > wide ? n - wide : 0;

	/* The end tells files apart; never the middle of a character. */
	while (skip && ((unsigned char)name[skip] & 0xc0) == 0x80)
		skip++;
	lg_text_safe(o, name + skip);
	lg_out_printf(o, "%*s ", LG_MAX(wide - n + skip, 0), "");
	lg_text_safe(o, c->text[KIND]);
	lg_out_printf(o, "%*s %5s %7s %9s %7s %s\n", LG_MAX(8 - (int)strlen(c->text[KIND]), 0), "", c->text[RANK],
		      c->text[STEPS], c->text[MEDIAN], c->text[LOST], c->text[FOUND]);
}

/* What several have in common, a sentence each. */
struct common {
	char text[COMMON_SHOWN][1024];
	size_t n;
};

/* Of ranks: what holds up several of them, whether or not one of them is to blame. */
static void common_of_ranks(const struct lg_run_table *t, struct common *c)
{
	char whose[64];

	LG_EACH(f, t->of->findings, t->of->n_findings) {
		if (f->severity == LG_SEVERITY_INFO || f->n_victims < 2 || c->n >= COMMON_SHOWN)
			continue;
		if (f->n_victims >= t->n)
			snprintf(whose, sizeof whose, "all %zu ranks", t->n);
		else
			snprintf(whose, sizeof whose, "%zu of %zu ranks", f->n_victims, t->n);
		snprintf(c->text[c->n++], sizeof c->text[0], "%s: %s %s: %s", whose, lg_severity_text(f->severity),
			 f->id, f->title);
	}
}

static void common_of_runs(const struct lg_run_table *t, struct common *c)
{
	size_t in[LG_R_MAX] = { 0 }, judged = 0;
	double least[LG_R_MAX], most[LG_R_MAX];

	LG_EACH(x, t->row, t->n) {
		judged += !x->failed;
		for (uint32_t i = 0; i < x->n_told; i++) {
			enum lg_rule_id k = x->told[i].rule;
			bool again = false; /* of several of one rule the largest counts */

			for (uint32_t j = 0; j < i; j++)
				again |= x->told[j].rule == k;
			if (again)
				continue;
			least[k] = in[k] ? fmin(least[k], x->told[i].share) : x->told[i].share;
			most[k] = in[k] ? fmax(most[k], x->told[i].share) : x->told[i].share;
			in[k]++;
		}
	}
	for (size_t most_runs = judged; most_runs > 1; most_runs--)
		for (int k = LG_R_NONE + 1; k < LG_R_MAX; k++) {
			char share[64] = "";

			if (in[k] != most_runs || c->n >= COMMON_SHOWN)
				continue;
			if (isfinite(least[k]))
				snprintf(share, sizeof share, ", %.1f to %.1f %% lost", 100 * least[k], 100 * most[k]);
			snprintf(c->text[c->n++], sizeof c->text[0], "in common: %s in %zu of %zu%s",
				 lg_policy((enum lg_rule_id)k)->id, in[k], t->n, share);
		}
}

static const struct common *find_common(const struct lg_run_table *t, struct common *c)
{
	c->n = 0;
	if (t->of)
		common_of_ranks(t, c);
	else
		common_of_runs(t, c);
	if (!c->n)
		snprintf(c->text[c->n++], sizeof c->text[0], "in common: no finding");
	return c;
}

void lg_report_runs(const struct lg_run_table *t, bool all, const struct lg_term_options *opt,
		    struct lg_out *o)
{
	unsigned width = opt->width > WIDTH ? opt->width : WIDTH;
	size_t folder, hidden = all ? 0 : n_hidden(t);
	struct common common;
	struct cells c;
	int wide = NAME;

	if (t->n < 2)
		return;
	folder = common_folder(t->row, t->n);
	LG_EACH(x, t->row, t->n)
		wide = LG_MAX(wide, LG_MIN((int)strlen(x->name + folder) + 4, NAME_MAX_WIDE));
	wide = LG_MIN(wide, (int)width - 54);
	lg_out_printf(o, "\n%-*s %-8s %5s %7s %9s %7s %s\n", wide, head(t, NAMED), head(t, KIND), head(t, RANK),
		      head(t, STEPS), head(t, MEDIAN), head(t, LOST), head(t, FOUND));
	LG_EACH_WHERE(all || shown(t, x), x, t->row, t->n) {
		fill(t, x, folder, &c);
		term_row(&c, wide, o);
	}
	if (hidden)
		lg_out_printf(o, "%s%zu ranks that no finding names (-v lists them)\n", hidden < t->n ? "and " : "",
			      hidden);
	LG_EACH_WHERE(x->failed, x, t->row, t->n) {
		lg_text_safe(o, x->name + folder);
		lg_out_puts(o, ": ");
		lg_text_wrap(o, x->title, 2, 2, width);
	}
	find_common(t, &common);
	for (size_t i = 0; i < common.n; i++)
		lg_text_wrap(o, common.text[i], 0, 2, width);
}

/* ---- one line each, Markdown, the page ------------------------------------------------------------ */

void lg_brief_runs(const struct lg_run_table *t, struct lg_out *o)
{
	size_t folder = t->n > 1 ? common_folder(t->row, t->n) : 0;
	struct common common;
	struct cells c;

	if (t->n < 2)
		return;
	LG_EACH_WHERE(!t->of || x->n_told, x, t->row, t->n) {
		fill(t, x, folder, &c);
		lg_out_puts(o, t->of ? "rank " : "run ");
		if (t->of)
			lg_out_printf(o, "%s, ", c.text[RANK]);
		lg_text_safe(o, c.text[NAMED]);
		lg_out_printf(o, ": %s, %s ms a step, lost %s\n", c.text[FOUND], c.text[MEDIAN], c.text[LOST]);
	}
	find_common(t, &common);
	for (size_t i = 0; i < common.n; i++) {
		lg_text_safe(o, common.text[i]);
		lg_out_puts(o, "\n");
	}
}

void lg_markdown_runs(const struct lg_run_table *t, struct lg_out *o)
{
	size_t folder = t->n > 1 ? common_folder(t->row, t->n) : 0, hidden = n_hidden(t);
	struct common common;
	struct cells c;

	if (t->n < 2)
		return;
	for (size_t k = 0; k < CELLS; k++)
		lg_out_printf(o, "| %s ", head(t, k));
	lg_out_puts(o, "|\n|---|---|---:|---:|---:|---:|---|\n");
	LG_EACH_WHERE(shown(t, x), x, t->row, t->n) {
		fill(t, x, folder, &c);
		for (size_t k = 0; k < CELLS; k++) {
			lg_out_puts(o, "| ");
			lg_markdown_text(o, c.text[k]);
			lg_out_puts(o, " ");
		}
		lg_out_puts(o, "|\n");
	}
	lg_out_puts(o, "\n");
	if (hidden)
		lg_out_printf(o, "- %zu ranks that no finding names are not in the table\n", hidden);
	find_common(t, &common);
	for (size_t i = 0; i < common.n; i++) {
		lg_out_puts(o, "- ");
		lg_markdown_text(o, common.text[i]);
		lg_out_puts(o, "\n");
	}
	lg_out_puts(o, "\n");
}

void lg_html_runs(const struct lg_run_table *t, struct lg_out *o)
{
	size_t folder = t->n > 1 ? common_folder(t->row, t->n) : 0;
	struct common common;
	struct cells c;

	if (t->n < 2)
		return;
	lg_out_printf(o, "<section id=\"runs\" aria-labelledby=\"runs-h\"><h2 id=\"runs-h\">%s</h2>\n<ul>\n",
		      t->of ? "Ranks beside each other" : "Runs beside each other");
	find_common(t, &common);
	for (size_t i = 0; i < common.n; i++) {
		lg_out_puts(o, "<li>");
		lg_html_text(o, common.text[i]);
		lg_out_puts(o, "</li>\n");
	}
	lg_out_puts(o, "</ul>\n<div class=\"wide\"><table><thead><tr>");
	for (size_t k = 0; k < CELLS; k++)
		lg_out_printf(o, "<th scope=\"col\">%s</th>", head(t, k));
	lg_out_puts(o, "</tr></thead><tbody>\n");
	LG_EACH(x, t->row, t->n) {
		fill(t, x, folder, &c);
		for (size_t k = 0; k < CELLS; k++) {
			lg_out_puts(o, k ? "<td>" : "<tr><th scope=\"row\">");
			lg_html_text(o, c.text[k]);
			lg_out_puts(o, k ? "</td>" : "</th>");
		}
		lg_out_puts(o, "</tr>\n");
	}
	lg_out_puts(o, "</tbody></table></div></section>\n");
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_row(struct lg_json *j, const struct lg_run_row *r)
{
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "path", r->name);
	lg_json_key_int(j, "files", r->files);
	lg_json_key_str(j, "format", r->format);
	lg_json_key_str(j, "host", *r->host ? r->host : NULL);
	lg_json_key_id(j, "rank", r->rank);
	lg_json_key_int(j, "ranks", r->ranks);
	lg_json_key_int(j, "steps", (int64_t)r->steps);
	lg_json_key_num(j, "median_ms", r->median_ms, 4);
	lg_json_key_num(j, "lost_ms", r->lost_ms, 3);
	lg_json_key_num(j, "lost_share", r->lost_share, 5);
	lg_json_key_str(j, "finding", r->n_told ? rule_of(&r->told[0]) : NULL);
	lg_json_key_str(j, "severity", r->n_told ? lg_severity_text(r->told[0].severity) : NULL);
	lg_json_key_str(j, "title", *r->title ? r->title : NULL);
	lg_json_key(j, "failed");
	lg_json_bool(j, r->failed);
	lg_json_close(j, '}');
}

void lg_json_runs(const struct lg_run_table *t, struct lg_json *j)
{
	if (!t->n)
		return;
	lg_json_key(j, "runs");
	lg_json_open(j, '[');
	LG_EACH(x, t->row, t->n)
		json_row(j, x);
	lg_json_close(j, ']');
}
