/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_roofline.c - laggard roofline: run a job with parts of it stood in for, in turn, and say what each
 * costs.
 *
 * The job runs under our own `record`, without samples: its hook marks steps and windows, and nothing else
 * is wanted of that recording.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/load.h"
#include "cli/own_command.h"
#include "cli/pids.h"
#include "diff/roofline.h"
#include "record/runtime_dir.h"
#include "report/roofline.h"

extern char **environ;

enum { WINDOW = 20, KEEP = 32, WITHOUT_MAX = 32, SETTINGS = 8192, GRACE_S = 10 };

struct options {
	bool json, quiet;
	long window, keep;
	int64_t for_ns;
	char *out;                       /* the recording, where it is wanted; NULL */
	const char *without[WITHOUT_MAX];
	size_t n_without;
	char **cmd;
};

static int number(const char *name, const char *v, long least, long most, long *ret)
{
	return lg_parse_number(v, least, most, ret) ? -1
	       : lg_usage(&lg_cmd_roofline, "%s %s: want a number, %ld to %ld", name, v, least, most);
}

static int without(struct options *opt, const char *path)
{
	if (!*path || strlen(path) > 200 || strpbrk(path, "\n="))
		return lg_usage(&lg_cmd_roofline, "--without wants a module's path, such as encoder.layers.3");
	if (opt->n_without == WITHOUT_MAX)
		return lg_usage(&lg_cmd_roofline, "--without: %d modules at most", WITHOUT_MAX);
	opt->without[opt->n_without++] = path;
	return -1;
}

/* >= 0: leave with that status. */
static int parse(int argc, char **argv, struct options *opt)
{
	enum { O_JSON = 256, O_WINDOW, O_KEEP, O_FOR, O_COLLECTIVES, O_WITHOUT };
	static const struct option longs[] = {
		{ "json", no_argument, NULL, O_JSON },
		{ "window", required_argument, NULL, O_WINDOW },
		{ "keep", required_argument, NULL, O_KEEP },
		{ "for", required_argument, NULL, O_FOR },
		{ "collectives", required_argument, NULL, O_COLLECTIVES },
		{ "without", required_argument, NULL, O_WITHOUT },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, rc = -1;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (rc < 0 && (c = getopt_long(argc, argv, "+:ho:", longs, NULL)) != -1) {
		if (c == O_JSON)
			opt->json = true;
		else if (c == O_WINDOW)
			rc = number("--window", optarg, 2, 100000, &opt->window);
		else if (c == O_KEEP)
			rc = number("--keep", optarg, 1, 4096, &opt->keep);
		else if (c == O_FOR)
			rc = (opt->for_ns = lg_parse_duration(optarg)) > 0 ? -1
			     : lg_usage(&lg_cmd_roofline, "--for %s: want a duration such as 30s or 2m", optarg);
		else if (c == O_COLLECTIVES)
			rc = !strcmp(optarg, "off") ? (opt->quiet = true, -1)
			     : lg_usage(&lg_cmd_roofline, "--collectives %s: off is all there is", optarg);
		else if (c == O_WITHOUT)
			rc = without(opt, optarg);
		else if (c == 'o')
			opt->out = optarg;
		else
			rc = lg_option_rest(&lg_cmd_roofline, c, argv[optind - 1]);
	}
	if (rc < 0 && optind >= argc)
		return lg_usage(&lg_cmd_roofline, "no command given: laggard roofline -- python3 train.py");
	opt->cmd = argv + optind;
	return rc;
}

/* What hook/laggard/_roofline.py reads. */
static bool set_environment(const struct options *opt)
{
	LG_AUTOFREE char *text = lg_calloc(SETTINGS, 1);
	size_t n;

	if (!text)
		return false;
	n = (size_t)snprintf(text, SETTINGS, "window=%ld\nkeep=%ld\nquiet=%d", opt->window, opt->keep, opt->quiet);
	for (size_t i = 0; i < opt->n_without; i++)
		n += (size_t)snprintf(text + n, SETTINGS - n, "\nwithout=%s", opt->without[i]);
	return !setenv("LAGGARD_ROOFLINE", text, 1);
}

/* Our own record, with what the command prints on standard error: standard output is for the result. */
static pid_t start(const struct options *opt, const char *file)
{
	static const char *const options[] = { "-q", "--tier", "procfs", "-F", "0", "--device-rate", "0", "--no-python",
					       NULL };
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	/* Nobody would wait for the job any more. */
	if (!set_environment(opt) || prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
		_exit(LG_EXIT_FAILED);
	lg_become_record(options, file, opt->cmd);
}

/* A status as a shell has it. ended: by us, or by who pressed Ctrl-C. */
static int wait_for(pid_t pid, int64_t for_ns, bool *ended)
{
	struct timespec left = { for_ns / 1000000000, for_ns % 1000000000 };
	sigset_t set, old;
	siginfo_t info;
	int status = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	while (!waitpid(pid, &status, WNOHANG)) {
		int sig = for_ns ? sigtimedwait(&set, &info, &left) : sigwaitinfo(&set, &info);

		if (sig == SIGTERM || (sig < 0 && errno == EAGAIN)) {
			(void)kill(pid, SIGTERM);
			*ended = true;
			left = (struct timespec){ GRACE_S, 0 }; /* the second one makes record leave it */
		}
		*ended |= sig == SIGINT; /* the terminal gave it to the job, too */
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Why there is nothing to say; NULL: there is. */
static const char *nothing(const struct lg_roofline *r, const struct options *opt, char *buf, size_t size)
{
	long least = opt->keep + 2 * LG_ROOFLINE_ROUNDS_MIN * (opt->window + 3);

	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i].rounds >= LG_ROOFLINE_ROUNDS_MIN)
			return NULL;
	if (r->off)
		snprintf(buf, size, "%s: %.300s", r->steps ? "the hook stopped" : "no training step was seen", r->off);
	else if (!r->steps)
		snprintf(buf, size, "no training step was seen: the command must train with torch, in a Python that reads "
			 "PYTHONPATH, or mark its steps (laggard-mark(3))");
	else if (!r->loader && !opt->quiet && !opt->n_without)
		snprintf(buf, size, "%zu steps, but no torch DataLoader was iterated over: what feeds this job is not known, "
			 "and cannot be stood in for", r->steps);
	else if (r->n_refused && !r->n_parts)
		snprintf(buf, size, "%.200s was not taken out: %.200s", r->refused[0].part, r->refused[0].why);
	else
		snprintf(buf, size, "%zu steps are too few: with --window %ld and --keep %ld about %ld are wanted", r->steps,
			 opt->window, opt->keep, least);
	return buf;
}

static int print(const struct lg_roofline *r, const struct options *opt)
{
	struct lg_out *o = lg_stdout_open();

	if (!o)
		return LG_EXIT_FAILED;
	if (opt->json)
		lg_roofline_json(r, o);
	else
		lg_roofline_term(r, o);
	return lg_finish(o);
}

static int tell(char *file, const struct options *opt)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_roofline *r = NULL;
	struct lg_loaded l = { 0 };
	int rc = LG_EXIT_FAILED;
	const char *why;
	char buf[700];

	if (lg_load(&file, 1, &l, &err) || lg_roofline_new(l.trace, &r, &err)) {
		lg_complain(&err);
	} else {
		why = nothing(r, opt, buf, sizeof buf);
		if (why)
			lg_say("%s", why);
		else
			rc = print(r, opt);
	}
	lg_roofline_free(r);
	lg_loaded_done(&l);
	return rc;
}

static int run(int argc, char **argv)
{
	struct options opt = { .window = WINDOW, .keep = KEEP };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_runtime_dir dir;
	char file[sizeof dir.path + 16];
	int rc = parse(argc, argv, &opt), status;
	bool ended = false;
	pid_t pid;

	if (rc >= 0)
		return rc;
	if (lg_runtime_dir_make(&dir, false, environ, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	snprintf(file, sizeof file, "%s/run.lag", dir.path);
	pid = start(&opt, opt.out ? opt.out : file);
	if (pid < 0) {
		lg_say("cannot start a process: %s", strerror(errno));
		rc = LG_EXIT_FAILED;
	} else {
		status = wait_for(pid, opt.for_ns, &ended);
		if (status == 126 || status == 127) {
			rc = LG_EXIT_FAILED; /* record said why */
		} else {
			if (status && !ended)
				lg_say("the command ended with status %d", status);
			rc = tell(opt.out ? opt.out : file, &opt);
			rc = status && !ended ? LG_EXIT_FAILED : rc;
		}
	}
	lg_runtime_dir_remove(&dir);
	return rc;
}

const struct lg_command lg_cmd_roofline = {
	.name = "roofline",
	.args = "[OPTION]... -- CMD...",
	.summary = "would a faster loader help, and by how much: steps a second with and without it",
	.help =
	"Runs CMD, and hands its model kept batches in place of the DataLoader's in every other window of steps. What the\n"
	"job makes of itself meanwhile is worth nothing: it learns from few batches. CMD's output goes to standard error.\n\n"
	"  --window N           steps in a window (default 20)\n"
	"  --keep N             batches that are kept, of each shape as far as there is room (default 32)\n"
	"  --for DUR            end CMD after 30s, 2m; without it CMD ends by itself, or by Ctrl-C\n"
	"  --collectives off    besides, windows in which no rank waits for another\n"
	"  --without MODULE     besides, windows without that module, such as encoder.layers.3 (repeatable)\n"
	"  -o, --output FILE    keep the recording\n"
	"  --json               as JSON, schema 1 (laggard-roofline(1))\n"
	"\n"
	"example:\n"
	"  laggard roofline --for 2m -- torchrun --nproc-per-node 8 train.py\n",
	.run = run,
};
