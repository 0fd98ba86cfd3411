/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_explain.c - the verdict. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/advise.h"
#include "modules/modules.h"
#include "base/alloc.h"
#include "cli/bounds.h"
#include "cli/load.h"
#include "cli/runs.h"
#include "import/import.h"
#include "report/contents.h"
#include "report/report.h"
#include "report/runs.h"

#define LEAST_SHARE 0.01 /* of a module, to be shown without -v */

enum { AS_SCREEN, AS_JSON, AS_MARKDOWN, AS_SARIF, AS_TERM, AS_BRIEF };

struct options {
	int as;
	int32_t victim;
	double cost, gpus;
	const char *fail_on;
	bool modules;
	const char *html; /* where the page goes, besides what is printed; NULL */
};

static bool fails(const struct lg_verdict *v, const struct lg_run_table *t, const char *on)
{
	enum lg_severity least;
	bool by_severity = lg_severity_from(on, &least);

	for (size_t i = 0; !t->of && i < t->n; i++)
		for (uint32_t k = 0; k < t->row[i].n_told; k++) {
			const struct lg_run_told *f = &t->row[i].told[k];

			if (by_severity ? f->severity >= least : f->rule == lg_rule_from(on))
				return true;
		}
	return lg_fails(v, on);
}

/* *ret_exit >= 0: leave with that status. */
static int parse(int argc, char **argv, struct options *opt)
{
	enum { JSON = 256, MARKDOWN, BRIEF, VICTIM, COST, FAIL_ON,
	       STEP_REGEX, GPUS, HTML, SARIF, MODULES };
	static const struct option longs[] = {
		{ "json", no_argument, NULL, JSON },
		{ "markdown", no_argument, NULL, MARKDOWN },
		{ "sarif", no_argument, NULL, SARIF },
		{ "brief", no_argument, NULL, BRIEF },
		{ "verbose", no_argument, NULL, 'v' },
		{ "modules", no_argument, NULL, MODULES },
		{ "html", required_argument, NULL, HTML },
		{ "victim", required_argument, NULL, VICTIM },
		{ "cost-per-hour", required_argument, NULL, COST },
		{ "gpus", required_argument, NULL, GPUS },
		{ "fail-on", required_argument, NULL, FAIL_ON },
		{ "step-regex", required_argument, NULL, STEP_REGEX },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_command *cmd = &lg_cmd_explain;
	char *end;
	long pid;
	int c, as;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":hv", longs, NULL)) != -1) {
		switch (c) {
		case JSON:
		case MARKDOWN:
		case SARIF:
		case BRIEF:
		case 'v':
			as = c == JSON ? AS_JSON : c == MARKDOWN ? AS_MARKDOWN : c == SARIF ? AS_SARIF
			     : c == BRIEF ? AS_BRIEF : AS_TERM;
			if (opt->as && opt->as != as)
				return lg_usage(cmd, "-v, --brief, --json, --markdown and --sarif each want the output: "
						     "give one of them");
			opt->as = as;
			break;
		case HTML:
			opt->html = optarg;
			break;
		case MODULES:
			opt->modules = true;
			break;
		case VICTIM:
			errno = 0;
			pid = strtol(optarg, &end, 10);
			if (errno || end == optarg || *end || pid <= 0 || pid > INT32_MAX)
				return lg_usage(cmd, "--victim wants a process id, not \"%s\"", optarg);
			opt->victim = (int32_t)pid;
			break;
		case COST:
			opt->cost = strtod(optarg, &end);
			if (end == optarg || *end || !isfinite(opt->cost) || opt->cost < 0)
				return lg_usage(cmd, "--cost-per-hour wants a number, not \"%s\"", optarg);
			break;
		case GPUS:
			opt->gpus = strtod(optarg, &end);
			if (end == optarg || *end || !isfinite(opt->gpus) || opt->gpus <= 0)
				return lg_usage(cmd, "--gpus wants their number, not \"%s\"", optarg);
			break;
		case FAIL_ON:
			c = lg_fail_on_option(cmd, optarg, &opt->fail_on);
			if (c >= 0)
				return c;
			break;
		case STEP_REGEX:
			c = lg_step_regex_option(cmd, optarg);
			if (c >= 0)
				return c;
			break;
		case LG_MAX_MEMORY:
			c = lg_max_memory_option(cmd, optarg);
			if (c >= 0)
				return c;
			break;
		default:
			return lg_option_rest(cmd, c, argv[optind - 1]);
		}
	}
	if (optind >= argc)
		return lg_usage(cmd, "no FILE given");
	if (opt->modules && opt->as != AS_SCREEN && opt->as != AS_TERM && opt->as != AS_JSON)
		return lg_usage(cmd, "--modules is a tree by itself, or goes with -v or --json");
	if (opt->gpus > 0 && isnan(opt->cost))
		return lg_usage(cmd, "--gpus goes with --cost-per-hour, the price of one");
	if (opt->gpus > 0)
		opt->cost *= opt->gpus;
	return -1;
}

static void print_json(const struct lg_verdict *v, const struct lg_run_table *rows,
		       const struct lg_contents *holds, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(v, &j);
	if (holds)
		lg_json_contents(v, holds, &j);
	lg_json_runs(rows, &j);
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}

static int print(const struct lg_verdict *v, const struct lg_run_table *rows, const struct options *opt)
{
	struct lg_term_options t = lg_terminal();
	struct lg_error err = { 0 };
	struct lg_contents holds;
	bool wanted = lg_contents_wanted(v);
	struct lg_out *o;

	if (wanted && lg_contents_make(&holds, v, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	if (opt->as == AS_JSON)
		print_json(v, rows, wanted ? &holds : NULL, o);
	else if (opt->as == AS_MARKDOWN)
		lg_report_markdown(v, rows, o);
	else if (opt->as == AS_SARIF)
		lg_report_sarif(v, rows, o);
	else if (opt->as == AS_TERM)
		lg_report_term(v, &t, o);
	else if (opt->as == AS_BRIEF)
		lg_report_brief(v, o);
	else
		lg_report_screen(v, &t, o);
	if (wanted && (opt->as == AS_SCREEN || opt->as == AS_TERM))
		lg_report_contents(v, &holds, &t, o);
	if (opt->as == AS_SCREEN || opt->as == AS_TERM)
		lg_report_runs(rows, opt->as == AS_TERM, &t, o);
	else if (opt->as == AS_BRIEF)
		lg_brief_runs(rows, o);
	return lg_finish(o);
}

static int print_modules(const struct lg_verdict *v, const struct options *opt)
{
	struct lg_term_options t = lg_terminal();
	struct lg_error err = { 0 };
	struct lg_modules *m;
	struct lg_out *o;

	if (lg_modules_new(v, &m, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	o = lg_stdout_open();
	if (o && opt->as == AS_JSON)
		lg_modules_json(v, m, o);
	else if (o)
		lg_modules_term(m, opt->as == AS_TERM ? 0 : LEAST_SHARE, &t, o);
	lg_modules_free(m);
	return o ? lg_finish(o) : LG_EXIT_FAILED;
}

static int write_page(const struct lg_verdict *v, const struct lg_run_table *rows, const char *path)
{
	struct lg_error err = { 0 };
	struct lg_out *o;
	int rc;

	if (lg_out_open(&o, path, LG_OUT_PLAIN, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	lg_progress_start("drawing ...");
	rc = lg_report_html(v, rows, o, &err);
	lg_progress_stop();
	if (!rc)
		return lg_finish(o);
	lg_out_abort(o);
	lg_complain(&err);
	return LG_EXIT_FAILED;
}

/* Together they are too large: a table of what each says by itself. */
static int each_alone(struct lg_runs *runs, const struct options *opt, struct lg_error *err)
{
	static const char why[] = "Together the files need more memory than there is: each was judged by itself, and "
				  "nothing is told of one by another";
	const char *limit = why;
	struct lg_verdict none = { .limits = &limit, .n_limits = 1, .unjudged = why, .min_ms = NAN,
				   .median_ms = NAN, .p99_ms = NAN, .max_ms = NAN, .slow_threshold_ms = NAN,
				   .period_s = NAN,
				   .period_p = NAN, .shift_s = NAN, .slope = NAN, .unexplained_share = NAN,
				   .bound_confidence = NAN, .hang.since_s = NAN };
	struct lg_run_table t = { 0 };
	int rc = lg_runs_judge(runs, NULL, &t.row, &t.n, err);

	if (rc)
		lg_complain(err);
	rc = rc ? LG_EXIT_FAILED : print(&none, &t, opt);
	if (!rc && opt->fail_on && fails(&none, &t, opt->fail_on))
		rc = LG_EXIT_FINDING;
	lg_free(t.row);
	return rc;
}

/* The verdict is there: what is printed and written of it. */
static int tell(const struct lg_loaded *l, const struct lg_run_table *t, const struct options *opt)
{
	int rc = opt->html ? write_page(l->verdict, t, opt->html) : LG_EXIT_OK;

	if (!rc && !(opt->html && !strcmp(opt->html, "-")))
		rc = opt->modules ? print_modules(l->verdict, opt) : print(l->verdict, t, opt);
	if (!rc && opt->fail_on && fails(l->verdict, t, opt->fail_on))
		rc = LG_EXIT_FINDING;
	return rc;
}

static int run(int argc, char **argv)
{
	struct options opt = { .cost = (double)NAN };
	struct lg_paths paths = { 0 };
	struct lg_runs runs = { 0 };
	struct lg_loaded l = { 0 };
	struct lg_error err = { 0 };
	struct lg_run_table t = { 0 };
	int rc = parse(argc, argv, &opt), refused;
	bool several;

	if (rc >= 0)
		return rc;
	rc = lg_paths_operands(&paths, argv + optind, (size_t)(argc - optind), &err);
	refused = !rc && opt.html ? lg_paths_refuse(&paths, &lg_cmd_explain, "--html", opt.html) : -1;
	several = !rc && refused < 0 && paths.n > 1;
	if (several)
		lg_runs_start(&runs, &paths, opt.victim);
	lg_import_parts_runs = true;
	if (!rc && refused < 0)
		rc = lg_load_paths(&paths, &l, &err) ?: lg_judge(&l, opt.victim, opt.cost, &err) ?:
		     lg_runs_table(&runs, &l, &t, &err);
	if (refused >= 0) {
		rc = refused;
	} else if (rc == LG_E_NOMEM && several && !opt.html) {
		lg_loaded_done(&l);
		rc = each_alone(&runs, &opt, &err);
	} else if (rc) {
		lg_complain(&err);
		rc = LG_EXIT_FAILED;
	} else {
		rc = tell(&l, &t, &opt);
	}
	lg_runs_done(&runs);
	lg_paths_done(&paths);
	lg_loaded_done(&l);
	lg_free(t.row);
	return rc;
}

const struct lg_command lg_cmd_explain = {
	.name = "explain",
	.args = "FILE... [OPTION]...",
	.summary = "say who made the steps late, with proof, fix and trade-off",
	.help =
	"FILE is a recording or any file laggard can import, or a folder of such; several files are several\n"
	"ranks, hosts or sources of one run. Ranks are compared in a table; so are other runs among the files.\n\n"
	"  -v, --verbose        all of it: evidence, stages, every finding and limit\n"
	"  --brief              one line a finding\n"
	"  --json               the verdict as JSON, schema 1 (laggard-explain(1))\n"
	"  --markdown           for an issue or a chat\n"
	"  --sarif              for a code host, SARIF 2.1.0\n"
	"  --modules            where forward and backward spend their time, by module, as a tree: of a recording with\n"
	"                       record --modules, or a profiler's trace with Python stacks; with --json besides the verdict\n"
	"  --html OUT           besides, one page with pictures that opens in any browser, without a network;\n"
	"                       - = to standard output, instead of the verdict\n"
	"  --victim PID         judge this process, marked or not\n"
	"  --cost-per-hour N    what the run costs an hour: findings say their part of it, and the\n"
	"                       verdict what an hour of training done costs\n"
	"  --gpus N             the price above is of one GPU, and the run has N\n"
	"  --fail-on WHAT       exit 3 if there is a finding with this id, or at least this severity\n"
	"                       (high, medium, low, info)\n"
	"  --step-regex RE      what a step's line looks like in a job's log: extended regular expression,\n"
	"                       group 1 the step's number, group 2 (if any) its time in ms, or in s\n"
	"                       where s or sec follows it\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard explain run.lag --fail-on medium\n",
	.run = run,
};
