/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_determinism.c - run a program twice, or take two recordings or logs: where do they part? */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advise/advise.h"
#include "cli/bounds.h"
#include "cli/load.h"
#include "cli/own_command.h"
#include "diff/determinism.h"
#include "record/runtime_dir.h"
#include "report/determinism_report.h"

extern char **environ;

enum { EVERY_MAX = 1000000, RUNS = 4, PATH_BYTES = 600 };

struct options {
	bool json, flags;
	long every;
	const char *keep; /* -o: PREFIX of the recordings */
	char **cmd;       /* NULL: two files */
	char **files;
	size_t n_files;
};

/* What is run, and what of that becomes known. */
struct runs {
	char path[RUNS][PATH_BYTES];
	struct lg_loaded l[RUNS];
	size_t n;
};

static int parse_every(struct options *opt, const char *text)
{
	char *end;

	errno = 0;
	opt->every = strtol(text, &end, 10);
	if (errno || end == text || *end || opt->every < 1 || opt->every > EVERY_MAX)
		return lg_usage(&lg_cmd_determinism, "--every wants a number of steps, 1 to %d, not \"%s\"", EVERY_MAX,
				text);
	return -1;
}

/* The exit status, or -1: go on. */
static int parse(int argc, char **argv, struct options *opt)
{
	enum { JSON = 256, EVERY, FLAGS, STEP_REGEX };
	static const struct option longs[] = {
		{ "json", no_argument, NULL, JSON },
		{ "every", required_argument, NULL, EVERY },
		{ "flags", no_argument, NULL, FLAGS },
		{ "output", required_argument, NULL, 'o' },
		{ "step-regex", required_argument, NULL, STEP_REGEX },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_command *cmd = &lg_cmd_determinism;
	int c, rc = -1, own = 1;

	/* What is behind it belongs to CMD. */
	while (own < argc && strcmp(argv[own], "--"))
		own++;
	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (rc < 0 && (c = getopt_long(own, argv, ":ho:", longs, NULL)) != -1) {
		if (c == JSON)
			opt->json = true;
		else if (c == EVERY)
			rc = parse_every(opt, optarg);
		else if (c == FLAGS)
			opt->flags = true;
		else if (c == 'o')
			opt->keep = optarg;
		else if (c == STEP_REGEX)
			rc = lg_step_regex_option(cmd, optarg);
		else if (c == LG_MAX_MEMORY)
			rc = lg_max_memory_option(cmd, optarg);
		else
			rc = lg_option_rest(cmd, c, argv[optind - 1]);
	}
	if (rc >= 0)
		return rc;
	opt->files = argv + optind;
	opt->n_files = (size_t)(own - optind);
	if (own < argc) {
		opt->cmd = argv + own + 1;
		if (own + 1 == argc)
			return lg_usage(cmd, "-- needs a command");
		return opt->n_files ? lg_usage(cmd, "either two files, or -- CMD: \"%s\"", opt->files[0]) : -1;
	}
	if (opt->flags || opt->keep || opt->every)
		return lg_usage(cmd, "--flags, --every and -o go with -- CMD: two files were made already");
	return opt->n_files == 2 ? -1 : lg_usage(cmd, "two recordings, two logs, or -- CMD");
}

/* ---- runs ---- */

static void become_recorder(const struct options *opt, const char *path, const char *flags)
{
	static const char *const options[] = { "-q", "-F", "0", "--device-rate", "0", "--no-python", "--tier",
					       "procfs", "--profile", "light", NULL };
	char every[32];
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	snprintf(every, sizeof every, "%ld", opt->every ? opt->every : 1);
	signal(SIGINT, SIG_DFL);
	if (null < 0 || dup2(null, 0) || setenv("LAGGARD_DETERMINISM", every, 1))
		_exit(LG_EXIT_FAILED);
	if (flags && (setenv("LAGGARD_DETERMINISM_FLAGS", flags, 1) ||
		      setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1) || setenv("PYTHONHASHSEED", "0", 0)))
		_exit(LG_EXIT_FAILED);
	lg_become_record(options, path, opt->cmd);
}

/* Its exit status is the command's. */
static int record(const struct options *opt, const char *path, const char *flags)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		become_recorder(opt, path, flags);
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_all(const struct options *opt, const char *prefix, struct runs *r)
{
	static const char *const names[RUNS] = { "1", "2", "flags-1", "flags-2" };
	/* Attention is made deterministic only where torch may refuse what cannot be. */
	const char *flags = "refuse";
	size_t n = opt->flags ? RUNS : 2;

	signal(SIGINT, SIG_IGN); /* the recorder ends the command, and itself */
	for (r->n = 0; r->n < n; r->n++) {
		char *path = r->path[r->n];
		int status;

		if (snprintf(path, PATH_BYTES, "%s-%s.lag", prefix, names[r->n]) >= PATH_BYTES)
			return lg_usage(&lg_cmd_determinism, "-o %s: too long", prefix);
		status = record(opt, path, r->n >= 2 ? flags : NULL);
		if (status < 0) {
			lg_say("cannot start a process: %s", strerror(errno));
			return LG_EXIT_FAILED;
		}
		if (status && r->n == 2 && strcmp(flags, "warn") != 0) {
			lg_say("%s ended with status %d where torch refuses what is not deterministic: again, with "
			       "warnings instead", opt->cmd[0], status);
			flags = "warn";
			r->n--;
			continue;
		}
		if (status) {
			lg_say("%s ended with status %d in run %s: there is nothing to compare", opt->cmd[0],
			       status, names[r->n]);
			return LG_EXIT_FAILED;
		}
	}
	signal(SIGINT, SIG_DFL);
	return 0;
}

/* ---- judging ---- */

static int load(struct runs *r, struct lg_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < r->n && !rc; i++) {
		char *paths[] = { r->path[i] };

		rc = lg_load(paths, 1, &r->l[i], err);
		rc = rc ? rc : lg_judge(&r->l[i], 0, (double)NAN, err);
	}
	return rc;
}

static int print(const struct lg_det_run *run, const struct options *opt)
{
	struct lg_term_options t = lg_terminal();
	struct lg_out *o = lg_stdout_open();

	if (!o)
		return LG_EXIT_FAILED;
	if (opt->json)
		lg_determinism_json(run, o);
	else
		lg_determinism_term(run, &t, o);
	return lg_finish(o);
}

static int judge(struct runs *r, const struct options *opt)
{
	const struct lg_verdict *v[RUNS] = { 0 };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_det_run *run = NULL;
	int rc = load(r, &err);

	for (size_t i = 0; i < r->n; i++)
		v[i] = r->l[i].verdict;
	rc = rc ? rc : lg_det_run_new(v, r->n, &run, &err);
	rc = rc ? rc : lg_advise(&run->v, (double)NAN, &err);
	if (rc) {
		lg_complain(&err);
		rc = LG_EXIT_FAILED;
	} else if (!run->d.basis || !run->d.steps_compared) {
		lg_say("%s", opt->cmd ? "no step of the runs can be compared: the hook saw no training step of a "
					"Python program with torch"
				      : "nothing to compare: neither fingerprints (laggard determinism -o PREFIX "
					"-- CMD) nor losses of the same steps in both");
		rc = LG_EXIT_FAILED;
	} else {
		rc = print(run, opt);
		rc = rc ? rc : run->d.equal ? LG_EXIT_OK : LG_EXIT_FINDING;
	}
	lg_det_run_free(run);
	for (size_t i = 0; i < r->n; i++)
		lg_loaded_done(&r->l[i]);
	return rc;
}

static int run(int argc, char **argv)
{
	struct options opt = { 0 };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_runtime_dir d;
	struct runs r = { 0 };
	char prefix[sizeof d.path + 8];
	int rc = parse(argc, argv, &opt);

	if (rc >= 0)
		return rc;
	if (!opt.cmd) {
		for (r.n = 0; r.n < 2; r.n++)
			if (snprintf(r.path[r.n], PATH_BYTES, "%s", opt.files[r.n]) >= PATH_BYTES)
				return lg_usage(&lg_cmd_determinism, "%s: too long", opt.files[r.n]);
		return judge(&r, &opt);
	}
	if (opt.keep) {
		rc = run_all(&opt, opt.keep, &r);
		return rc ? rc : judge(&r, &opt);
	}
	if (lg_runtime_dir_make(&d, true, environ, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	snprintf(prefix, sizeof prefix, "%s/run", d.path);
	rc = run_all(&opt, prefix, &r);
	rc = rc ? rc : judge(&r, &opt);
	lg_runtime_dir_remove(&d);
	return rc;
}

const struct lg_command lg_cmd_determinism = {
	.name = "determinism",
	.args = "[OPTION]... -- CMD... | [OPTION]... A B",
	.summary = "run a program twice: which step and tensor differ first, and why",
	.help =
	"Runs CMD twice with the hook, which takes fingerprints of each step: states of random generators, the\n"
	"batch, the loss, each gradient and each parameter. Says where the runs part. CMD's output goes to\n"
	"standard error, its input is empty. A and B: two recordings of that kind, or two logs, of which the\n"
	"losses are compared. Exit status 3 where they differ.\n\n"
	"  --json               the verdict as JSON, schema 1, and \"determinism\" (laggard-determinism(1))\n"
	"  --every N            fingerprints of each Nth step (default 1): cheaper, and less exact\n"
	"  --flags              two more runs with torch's deterministic operators: are they equal, and slower?\n"
	"  -o PREFIX            keep the recordings: PREFIX-1.lag, PREFIX-2.lag\n"
	"  --step-regex RE      what a step's line looks like in a log (laggard-explain(1))\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard determinism -- python3 train.py --max-steps 200\n"
	"  laggard determinism monday.log tuesday.log\n",
	.run = run,
};
