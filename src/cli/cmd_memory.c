/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_memory.c - what fills a device's memory, and what became of the rest of it. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

#include "cli/bounds.h"
#include "cli/load.h"
#include "report/report.h"

struct options {
	int as;
	bool at_peak;
	long top;
};

enum { JSON = 256, MARKDOWN, FOLDED, PEAK, TOP, STACKS = 10 };

static int set_as(struct options *opt, int as)
{
	if (opt->as && opt->as != as)
		return lg_usage(&lg_cmd_memory, "--json, --markdown and --folded all want the output: give one of them");
	opt->as = as;
	return -1;
}

static int parse_top(struct options *opt, const char *text)
{
	char *end;

	errno = 0;
	opt->top = strtol(text, &end, 10);
	if (errno || end == text || *end || opt->top < 0)
		return lg_usage(&lg_cmd_memory, "--top wants a number of stacks, 0 = all, not \"%s\"", text);
	return -1;
}

/* The exit status, or -1: go on. */
static int parse(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, JSON },
		{ "markdown", no_argument, NULL, MARKDOWN },
		{ "folded", no_argument, NULL, FOLDED },
		{ "peak", no_argument, NULL, PEAK },
		{ "top", required_argument, NULL, TOP },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, rc = -1;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (rc < 0 && (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == JSON || c == MARKDOWN || c == FOLDED)
			rc = set_as(opt, c);
		else if (c == PEAK)
			opt->at_peak = true;
		else if (c == TOP)
			rc = parse_top(opt, optarg);
		else if (c == LG_MAX_MEMORY)
			rc = lg_max_memory_option(&lg_cmd_memory, optarg);
		else
			rc = lg_option_rest(&lg_cmd_memory, c, argv[optind - 1]);
	}
	if (rc < 0 && optind >= argc)
		return lg_usage(&lg_cmd_memory, "no FILE given");
	if (rc < 0 && opt->at_peak && opt->as != FOLDED)
		return lg_usage(&lg_cmd_memory, "--peak goes with --folded: all else tells of both");
	return rc;
}

static int print(const struct lg_verdict *v, const struct options *opt)
{
	struct lg_term_options t = lg_terminal();
	struct lg_out *o = lg_stdout_open();

	if (!o)
		return LG_EXIT_FAILED;
	if (opt->as == JSON)
		lg_memory_json(v, (size_t)opt->top, o);
	else if (opt->as == MARKDOWN)
		lg_memory_markdown(v, (size_t)opt->top, o);
	else if (opt->as == FOLDED)
		lg_memory_folded(v, opt->at_peak, o);
	else
		lg_memory_term(v, (size_t)opt->top, &t, o);
	return lg_finish(o);
}

static int run(int argc, char **argv)
{
	struct options opt = { .top = STACKS };
	struct lg_loaded l = { 0 };
	struct lg_error err = { 0 };
	int rc = parse(argc, argv, &opt);

	if (rc >= 0)
		return rc;
	if (lg_load_run(argv + optind, (size_t)(argc - optind), &l, &err) ||
	    lg_judge(&l, 0, (double)NAN, &err)) {
		lg_complain(&err);
		rc = LG_EXIT_FAILED;
	} else {
		rc = print(l.verdict, &opt);
	}
	lg_loaded_done(&l);
	return rc;
}

const struct lg_command lg_cmd_memory = {
	.name = "memory",
	.args = "FILE... [OPTION]...",
	.summary = "say what fills a device's memory, what grows, and why a request failed",
	.help =
	"FILE is a snapshot (torch.cuda.memory._dump_snapshot(), a pickle of _snapshot()), a job's log with\n"
	"the allocator's messages, or any other file laggard can import that tells of memory.\n\n"
	"  --json         the verdict as JSON, schema 1, and \"memory\" (laggard-memory(1))\n"
	"  --markdown     for an issue or a chat\n"
	"  --folded       collapsed stacks of the bytes that are held at the snapshot, for a flame graph\n"
	"  --peak         --folded: of those at the peak of the history\n"
	"  --top N        so many stacks of each list, 10 by default; 0 = all\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard memory snapshot.pickle\n",
	.run = run,
};
