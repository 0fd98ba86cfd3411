/* SPDX-License-Identifier: Apache-2.0 */
#include "report/runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/median.h"
#include "base/order.h"
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

static void row(const struct lg_run_row *r, size_t folder, int wide, bool ranks, struct lg_out *o)
{
	char name[sizeof r->name + 32], rank[24] = "-", median[48], share[48];
	int n, skip;

	n = snprintf(name, sizeof name, "%s", r->name + folder);
	if (r->files > 1 && !ranks)
		n = snprintf(name, sizeof name, "%s +%u", r->name + folder, r->files - 1);
	skip = n > wide ? n - wide : 0; /* the end tells files apart; never the middle of a character */
	while (skip && ((unsigned char)name[skip] & 0xc0) == 0x80)
		skip++;
	if (r->rank >= 0)
		snprintf(rank, sizeof rank, "%d", r->rank);
	else if (r->ranks > 1)
		snprintf(rank, sizeof rank, "%u of", r->ranks);
	lg_text_safe(o, name + skip);
	lg_out_printf(o, "%*s ", LG_MAX(wide - n + skip, 0), "");
	lg_text_safe(o, r->format);
	lg_out_printf(o, "%*s %5s %7llu %9s %7s ", LG_MAX(8 - (int)strlen(r->format), 0), "", rank,
		      (unsigned long long)r->steps, number(median, sizeof median, r->median_ms, ""),
		      number(share, sizeof share, 100 * r->lost_share, " %"));
	if (r->n_told)
		lg_out_printf(o, "%s %s%s\n", lg_severity_text(r->told[0].severity), rule_of(&r->told[0]),
			      r->n_told > 1 ? " ..." : "");
	else
		lg_out_printf(o, "%s\n", r->failed ? "could not be judged" : "-");
}

/* Of ranks: what holds up several of them, whether or not one of them is to blame. */
static void common_of_ranks(const struct lg_verdict *v, size_t n, unsigned width, struct lg_out *o)
{
	size_t shown = 0;
	char text[1024], whose[64];

	LG_EACH(f, v->findings, v->n_findings) {
		if (f->severity == LG_SEVERITY_INFO || f->n_victims < 2 || shown++ >= COMMON_SHOWN)
			continue;
		if (f->n_victims >= n)
			snprintf(whose, sizeof whose, "all %zu ranks", n);
		else
			snprintf(whose, sizeof whose, "%zu of %zu ranks", f->n_victims, n);
		snprintf(text, sizeof text, "%s: %s %s: %s", whose, lg_severity_text(f->severity), f->id, f->title);
		lg_text_wrap(o, text, 0, 2, width);
	}
	if (!shown)
		lg_out_puts(o, "in common: no finding\n");
}

static void common_of_runs(const struct lg_run_row *r, size_t n, unsigned width, struct lg_out *o)
{
	size_t in[LG_R_MAX] = { 0 }, shown = 0, judged = 0;
	double least[LG_R_MAX], most[LG_R_MAX];
	char text[512];

	LG_EACH(x, r, n) {
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
			if (in[k] != most_runs || shown++ >= COMMON_SHOWN)
				continue;
			if (isfinite(least[k]))
				snprintf(text, sizeof text, "in common: %s in %zu of %zu, %.1f to %.1f %% lost",
					 lg_policy((enum lg_rule_id)k)->id, in[k], n, 100 * least[k],
					 100 * most[k]);
			else
				snprintf(text, sizeof text, "in common: %s in %zu of %zu",
					 lg_policy((enum lg_rule_id)k)->id, in[k], n);
			lg_text_wrap(o, text, 0, 2, width);
		}
	if (!shown)
		lg_out_puts(o, "in common: no finding\n");
}

void lg_report_runs(const struct lg_run_row *r, size_t n, const struct lg_verdict *v, bool all,
		    const struct lg_term_options *opt, struct lg_out *o)
{
	unsigned width = opt->width > WIDTH ? opt->width : WIDTH;
	size_t folder, shown = 0;
	int wide = NAME;

	if (n < 2)
		return;
	folder = common_folder(r, n);
	LG_EACH(x, r, n)
		wide = LG_MAX(wide, LG_MIN((int)strlen(x->name + folder) + 4, NAME_MAX_WIDE));
	wide = LG_MIN(wide, (int)width - 54);
	lg_out_printf(o, "\n%-*s %-8s %5s %7s %9s %7s %s\n", wide, v ? "ranks" : "runs", "kind", "rank", "steps",
		      "median ms", "lost", v ? "what names it" : "first finding");
	LG_EACH(x, r, n) {
		if (!all && v && n > ROWS_SHOWN && !x->n_told)
			continue;
		row(x, folder, wide, v != NULL, o);
		shown++;
	}
	if (shown < n)
		lg_out_printf(o, "%s%zu ranks that no finding names (-v lists them)\n",
			      shown ? "and " : "", n - shown);
	LG_EACH(x, r, n)
		if (x->failed) {
			lg_text_safe(o, x->name + folder);
			lg_out_puts(o, ": ");
			lg_text_wrap(o, x->title, 2, 2, width);
		}
	if (v)
		common_of_ranks(v, n, width, o);
	else
		common_of_runs(r, n, width, o);
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

void lg_json_runs(const struct lg_run_row *r, size_t n, struct lg_json *j)
{
	lg_json_key(j, "runs");
	lg_json_open(j, '[');
	LG_EACH(x, r, n)
		json_row(j, x);
	lg_json_close(j, ']');
}
