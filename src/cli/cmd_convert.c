/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c - any importable file to a file that other tools open. */
#include <getopt.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cli/bounds.h"
#include "cli/load.h"
#include "import/import.h"
#include "report/convert.h"
#include "report/profile.h"
#include "store/lag_write.h"
#include "store/redact.h"
#include "symbols/options.h"

enum format { CHROME, CHROME_GZ, PFTRACE, FOLDED, SPEEDSCOPE, PPROF, LAG, UNKNOWN };

/* Longer suffixes first: .speedscope.json is not Chrome JSON. */
static const struct {
	const char *suffix;
	enum format format;
} suffixes[] = {
	{ ".speedscope.json", SPEEDSCOPE }, { ".pb.gz", PPROF },
	{ ".json.gz", CHROME_GZ }, { ".json", CHROME },
	{ ".perfetto-trace", PFTRACE }, { ".pftrace", PFTRACE },
	{ ".folded", FOLDED }, { ".lag", LAG },
};
enum { N_SUFFIXES = sizeof suffixes / sizeof *suffixes };

static enum format format_of(const char *path)
{
	size_t n = strlen(path);

	for (size_t i = 0; i < N_SUFFIXES; i++) {
		size_t s = strlen(suffixes[i].suffix);

		if (n >= s && !strcmp(path + n - s, suffixes[i].suffix))
			return suffixes[i].format;
	}
	return UNKNOWN;
}

/* As the suffix, with its first dot or without, or as the tool that reads it. */
static enum format format_named(const char *name)
{
	static const struct {
		const char *name;
		enum format format;
	} tools[] = { { "chrome", CHROME }, { "perfetto", PFTRACE }, { "speedscope", SPEEDSCOPE },
		      { "pprof", PPROF } };

	for (size_t i = 0; i < N_SUFFIXES; i++)
		if (!strcmp(name, suffixes[i].suffix) || !strcmp(name, suffixes[i].suffix + 1))
			return suffixes[i].format;
	for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
		if (!strcmp(name, tools[i].name))
			return tools[i].format;
	return UNKNOWN;
}

static bool to_stdout(const char *out)
{
	return !strcmp(out, "-");
}

struct options {
	const char *out;
	enum format format;
	int64_t from, to; /* from the start of the trace; -1 = not given */
	bool verdict, redact;
};

/* As parse(): is it told what to write, and does that do no harm? */
static int check_output(struct options *opt)
{
	const struct lg_command *cmd = &lg_cmd_convert;

	if (opt->format == UNKNOWN)
		opt->format = format_of(opt->out);
	if (opt->format == UNKNOWN && to_stdout(opt->out))
		return lg_usage(cmd, "standard output has no suffix to take the format from: add --format json, "
				     "pftrace, folded, speedscope, pprof or lag");
	if (opt->format == UNKNOWN)
		return lg_usage(cmd, "\"%s\": the format comes from the suffix: .json or .json.gz "
				     "(Chrome), .pftrace (Perfetto), .folded (stacks), .speedscope.json, "
				     ".pb.gz (pprof), .lag (laggard); or from --format", opt->out);
	if (to_stdout(opt->out) && isatty(STDOUT_FILENO) && opt->format != CHROME && opt->format != FOLDED &&
	    opt->format != SPEEDSCOPE)
		return lg_usage(cmd, "this format is no text: it is not written to a terminal");
	return -1;
}

enum { FORMAT = 256, FROM, TO, NO_VERDICT, REDACT, INLINE, LINES, STEP_REGEX };
static const struct option longs[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "format", required_argument, NULL, FORMAT },
	{ "from", required_argument, NULL, FROM },
	{ "to", required_argument, NULL, TO },
	{ "no-verdict", no_argument, NULL, NO_VERDICT },
	{ "redact", no_argument, NULL, REDACT },
	{ "inline", no_argument, NULL, INLINE },
	{ "lines", no_argument, NULL, LINES },
	{ "step-regex", required_argument, NULL, STEP_REGEX },
	LG_MAX_MEMORY_OPTION,
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* Exit status to leave with, or -1 to go on. */
static int parse(int argc, char **argv, struct options *opt)
{
	const struct lg_command *cmd = &lg_cmd_convert;
	int64_t *t;
	int c;

	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, ":ho:", longs, NULL)) != -1) {
		switch (c) {
		case 'o':
			opt->out = optarg;
			break;
		case FORMAT:
			opt->format = format_named(optarg);
			if (opt->format == UNKNOWN)
				return lg_usage(cmd, "--format wants one of json, json.gz, pftrace, folded, "
						     "speedscope, pprof, lag, not \"%s\"", optarg);
			break;
		case FROM:
		case TO:
			t = c == FROM ? &opt->from : &opt->to;
			*t = lg_parse_duration(optarg);
			if (*t < 0)
				return lg_usage(cmd, "--%s wants a time from the start, like 2.5s, "
						     "not \"%s\"", c == FROM ? "from" : "to", optarg);
			break;
		case NO_VERDICT:
			opt->verdict = false;
			break;
		case REDACT:
			opt->redact = true;
			break;
		case INLINE:
			lg_symbol_options.inlines = true;
			break;
		case LINES:
			lg_symbol_options.lines = true;
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
	if (!opt->out)
		return lg_usage(cmd, "no output given (-o OUT)");
	if (opt->from >= 0 && opt->to >= 0 && opt->to <= opt->from)
		return lg_usage(cmd, "--to is not after --from");
	return check_output(opt);
}

static struct lg_window window(const struct lg_trace *t, const struct options *opt)
{
	struct lg_window w = { INT64_MIN, INT64_MAX };
	int64_t start = t->first <= t->last ? t->first : 0;

	if (opt->from >= 0 && __builtin_add_overflow(start, opt->from, &w.from))
		w.from = INT64_MAX;
	if (opt->to >= 0 && __builtin_add_overflow(start, opt->to, &w.to))
		w.to = INT64_MAX;
	return w;
}

/* A window behind the last row would make a file without a row, and not say why. */
static int check_window(const struct lg_trace *t, const struct options *opt, struct lg_error *err)
{
	int64_t length = t->first <= t->last ? t->last - t->first : 0;

	if (opt->from <= 0 || opt->from <= length)
		return 0;
	return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET,
		       "nothing lies behind --from %.9g s: the data are %.9g s long, from 0 s on",
		       (double)opt->from / 1e9, (double)length / 1e9);
}

static int write_lag(const struct lg_loaded *l, const struct options *opt, struct lg_error *err)
{
	struct lg_window w = window(l->trace, opt);
	struct lg_trace *part;
	int rc;

	if (opt->from < 0 && opt->to < 0)
		return lg_lag_save(l->trace, opt->out, err);
	rc = lg_window_trace(&part, l->trace, &w, err);
	if (rc)
		return rc;
	rc = lg_lag_save(part, opt->out, err);
	lg_window_trace_free(part);
	return rc;
}

static int write_out(const struct lg_loaded *l, const struct options *opt, struct lg_error *err)
{
	struct lg_window w = window(l->trace, opt);
	struct lg_out *o;
	int rc;

	if (opt->format == LAG)
		return write_lag(l, opt, err);
	rc = lg_out_open(&o, opt->out, opt->format == CHROME_GZ || opt->format == PPROF ? LG_OUT_GZIP
											 : LG_OUT_PLAIN,
			 err);
	if (rc)
		return rc;
	if (opt->format == PFTRACE)
		rc = lg_perfetto_write(l->trace, l->verdict, &w, o, err);
	else if (opt->format == FOLDED)
		rc = lg_folded_write(l->trace, &w, o, err);
	else if (opt->format == SPEEDSCOPE)
		rc = lg_speedscope_write(l->trace, &w, o, err);
	else if (opt->format == PPROF)
		rc = lg_pprof_write(l->trace, &w, o, err);
	else
		rc = lg_chrome_write(l->trace, l->verdict, &w, o, err);
	if (rc) {
		lg_out_abort(o);
		return rc;
	}
	return lg_out_close(o, err);
}

/* A profile of nothing is a file that is as good as empty: not without a word. */
static void say_if_empty(const struct lg_loaded *l, const struct options *opt)
{
	struct lg_window w = window(l->trace, opt);
	struct lg_error ignored;
	struct lg_profile p;

	if ((opt->format != FOLDED && opt->format != SPEEDSCOPE && opt->format != PPROF) ||
	    lg_profile_make(&p, l->trace, &w, &ignored))
		return;
	if (!p.n)
		lg_say("%s holds no stack: there are no CPU samples in what was read", opt->out);
	lg_profile_done(&p);
}

static int run(int argc, char **argv)
{
	struct options opt = { .format = UNKNOWN, .from = -1, .to = -1, .verdict = true };
	struct lg_loaded l = { 0 };
	struct lg_error err = { 0 };
	int rc = parse(argc, argv, &opt), refused;

	if (rc >= 0)
		return rc;
	lg_import_keeps_all = !opt.redact; /* what no analysis reads is what nobody knows to be harmless */
	rc = lg_load_run(argv + optind, (size_t)(argc - optind), &l, &err);
	refused = !rc && !to_stdout(opt.out) ? lg_paths_refuse(&l.paths, &lg_cmd_convert, "-o", opt.out) : -1;
	if (refused >= 0) {
		lg_loaded_done(&l);
		return refused;
	}
	if (!rc)
		rc = check_window(l.trace, &opt, &err);
	if (!rc && opt.redact)
		rc = lg_redact(l.trace, &err);
	/* The drawing is worth having without the steps: a failing analysis is said, not fatal. */
	opt.verdict = opt.verdict && (opt.format == CHROME || opt.format == CHROME_GZ ||
				      opt.format == PFTRACE);
	if (!rc && opt.verdict && lg_judge(&l, 0, (double)NAN, &err)) {
		lg_complain(&err);
		if (l.verdict)
			lg_verdict_free(l.verdict);
		l.verdict = NULL;
	}
	if (!rc) {
		lg_progress_start("writing ...");
		rc = write_out(&l, &opt, &err);
		lg_progress_stop();
	}
	if (!rc)
		say_if_empty(&l, &opt);
	if (rc)
		lg_complain(&err);
	lg_loaded_done(&l);
	return rc ? LG_EXIT_FAILED : LG_EXIT_OK;
}

const struct lg_command lg_cmd_convert = {
	.name = "convert",
	.args = "FILE... -o OUT [--format F] [--from T] [--to T] [--step-regex RE]",
	.summary = "write the timeline for Chrome tracing, Perfetto and other tools",
	.help =
	"The format comes from OUT's suffix, or from --format:\n"
	"  .json .json.gz    Chrome trace: chrome://tracing, ui.perfetto.dev, speedscope\n"
	"  .pftrace          Perfetto protobuf: ui.perfetto.dev, trace_processor\n"
	"  .folded           CPU samples as collapsed stacks: flamegraph.pl, speedscope\n"
	"  .speedscope.json  CPU samples of each thread: speedscope\n"
	"  .pb.gz            CPU samples: pprof\n"
	"  .lag              laggard's own\n\n"
	"  -o OUT            where to write; - is standard output\n"
	"  --format F        json json.gz pftrace folded speedscope pprof lag, whatever OUT is called\n"
	"  --from T, --to T  only what lies between, as time from the start: 2.5 2.5s 500ms 1m\n"
	"  --no-verdict      do not analyse; leave the lane of judged steps out\n"
	"  --redact          leave out arguments, folders, environment, hosts: to be shared\n"
	"  --inline          frames of inlined functions, from debug information (perf.data)\n"
	"  --lines           source file and line of each frame (perf.data)\n"
	"  --step-regex RE   what a step's line looks like in a job's log (laggard-explain(1))\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard convert run.lag -o run.pftrace --from 10s --to 15s\n"
	"  laggard convert perf.data -o - --format folded | flamegraph.pl > cpu.svg\n",
	.run = run,
};
