/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_hang.c - does the run move, and who keeps it: a short look at processes, or what files tell. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/bounds.h"
#include "cli/load.h"
#include "cli/pids.h"
#include "record/runtime_dir.h"
#include "record/session.h"
#include "report/report.h"

extern char **environ;

/* Long enough to see one who asks every 5 s ask again: torch.utils.data's MP_STATUS_CHECK_INTERVAL. */
#define LOOK_NS 6000000000ll

struct options {
	bool json;
	struct lg_pids pids;
	int64_t for_ns;
};

static bool living(const struct options *opt)
{
	return opt->pids.n || opt->pids.job;
}

/* *ret_exit >= 0: leave with that status. */
static int parse(int argc, char **argv, struct options *opt)
{
	enum { JSON = 256, FOR, STEP_REGEX, JOB };
	static const struct option longs[] = {
		{ "json", no_argument, NULL, JSON },
		{ "pid", required_argument, NULL, 'p' },
		{ "job", required_argument, NULL, JOB },
		{ "for", required_argument, NULL, FOR },
		{ "step-regex", required_argument, NULL, STEP_REGEX },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_command *cmd = &lg_cmd_hang;
	int c;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":hp:", longs, NULL)) != -1) {
		switch (c) {
		case JSON:
			opt->json = true;
			break;
		case 'p':
			c = lg_pids_option(cmd, optarg, &opt->pids);
			if (c)
				return c;
			break;
		case JOB:
			c = lg_job_option(cmd, optarg, &opt->pids);
			if (c)
				return c;
			break;
		case FOR:
			opt->for_ns = lg_parse_duration(optarg);
			if (opt->for_ns <= 0)
				return lg_usage(cmd, "--for %s: a duration such as 4s or 1m", optarg);
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
	if (!living(opt) && optind >= argc)
		return lg_usage(cmd, "neither -p PID nor --job nor a FILE given");
	if (living(opt) && optind < argc)
		return lg_usage(cmd, "-p and --job look at living processes, FILE at what is known of them: give one "
				"of them");
	return -1;
}

static int judge_and_print(char **paths, size_t n, const struct options *opt)
{
	struct lg_term_options t = lg_terminal();
	struct lg_loaded l = { 0 };
	struct lg_error err = { 0 };
	struct lg_out *o;
	int rc = LG_EXIT_FAILED;

	if (lg_load_run(paths, n, &l, &err) || lg_judge(&l, 0, (double)NAN, &err) ||
	    lg_out_open(&o, "-", LG_OUT_PLAIN, &err)) {
		lg_complain(&err);
	} else {
		if (opt->json)
			lg_hang_json(l.verdict, o);
		else
			lg_hang_term(l.verdict, &t, o);
		rc = lg_finish(o);
	}
	lg_loaded_done(&l);
	return rc;
}

static void say(void *arg, const char *line)
{
	(void)arg;
	lg_say("%s", line);
}

/* Record for a moment, into a folder that goes with us. */
static int look(const struct options *opt)
{
	struct lg_record_options r = { .freq_hz = 99, .profile = LG_PROFILE_DEFAULT, .confine = true,
				       .quiet = true, .pids = opt->pids.v, .n_pids = opt->pids.n,
				       .job = opt->pids.job, .env = environ, .for_ns = opt->for_ns, .cmdline = "laggard hang",
				       .say = say };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_runtime_dir d;
	char path[sizeof d.path + 16], *paths[] = { path };
	int rc = LG_EXIT_FAILED;

	if (lg_runtime_dir_make(&d, true, environ, &err)) {
		lg_complain(&err);
		return rc;
	}
	snprintf(path, sizeof path, "%s/hang.lag", d.path);
	r.out = path;
	lg_progress_start("looking");
	if (lg_record(&r, &rc, &err)) {
		lg_progress_stop();
		lg_complain(&err);
		rc = LG_EXIT_FAILED;
	} else {
		lg_progress_stop();
		rc = judge_and_print(paths, 1, opt);
	}
	lg_runtime_dir_remove(&d);
	return rc;
}

static int run(int argc, char **argv)
{
	struct options opt = { .for_ns = LOOK_NS };
	int rc = parse(argc, argv, &opt);

	if (rc < 0 && !living(&opt)) {
		rc = judge_and_print(argv + optind, (size_t)(argc - optind), &opt);
	} else if (rc < 0) {
		rc = lg_job_pids(&opt.pids, true);
		rc = rc ? rc : look(&opt);
	}
	lg_pids_free(&opt.pids);
	return rc;
}

const struct lg_command lg_cmd_hang = {
	.name = "hang",
	.args = "-p PID,... | --job JOB | FILE... [OPTION]...",
	.summary = "a run that does not move: where each rank stands, and whom the others wait for",
	.help =
	"Looks at living processes for six seconds, without stopping them, or reads what is there: Flight Recorder\n"
	"dumps, py-spy dumps, logs, recordings. Says whether the run moves (running), stands (waiting: a pause may\n"
	"look like this; hung: for half a minute and more) or has ended (finished), the Python stack of each rank's\n"
	"main thread, equal ones together, and then the verdict.\n\n"
	"  -p PID,...           the ranks' processes (repeatable)\n"
	"  --job JOB            slurm:ID, ray:NAME, container:ID, cgroup:PATH or match:REGEX (laggard-record(1))\n"
	"  --for DUR            look for so long (default 6s)\n"
	"  --json               as explain --json, and an object \"hang\" (laggard-hang(1))\n"
	"  --step-regex RE      what a step's line looks like in a job's log (laggard-explain(1))\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard hang -p $(pgrep -d, -f train.py)\n",
	.run = run,
};
