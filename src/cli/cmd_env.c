/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_env.c - laggard env: what the environment of workers needs that laggard does not start. */
#include <getopt.h>
#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/out.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/pids.h"
#include "record/hook_inject.h"
#include "record/runtime_dir.h"

extern char **environ;

enum form { SH, JSON, YAML };

struct options {
	enum form form;
	const char *dir;
	uid_t uid; /* whom the workers run as */
};

static int user_option(const char *name, struct options *opt)
{
	const struct passwd *pw;
	long n;

	if (lg_parse_number(name, 0, UINT32_MAX - 1, &n)) {
		opt->uid = (uid_t)n; /* of a container: nobody here need have that number */
		return 0;
	}
	pw = getpwnam(name);
	if (!pw)
		return lg_usage(&lg_cmd_env, "--user %s: there is no such user", name);
	opt->uid = pw->pw_uid;
	return 0;
}

/* >= 0: leave with that status. */
static int parse(int argc, char **argv, struct options *opt)
{
	enum { O_JSON = 256, O_YAML, O_DIR, O_USER };
	static const struct option longs[] = {
		{ "json", no_argument, NULL, O_JSON },
		{ "yaml", no_argument, NULL, O_YAML },
		{ "dir", required_argument, NULL, O_DIR },
		{ "user", required_argument, NULL, O_USER },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, rc;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		switch (c) {
		case O_JSON:
		case O_YAML:
			if (opt->form)
				return lg_usage(&lg_cmd_env, "--json or --yaml, once");
			opt->form = c == O_JSON ? JSON : YAML;
			break;
		case O_DIR:
			if (*optarg != '/')
				return lg_usage(&lg_cmd_env, "--dir %s: want a path from the root", optarg);
			opt->dir = optarg;
			break;
		case O_USER:
			rc = user_option(optarg, opt);
			if (rc)
				return rc;
			break;
		default:
			return lg_option_rest(&lg_cmd_env, c, argv[optind - 1]);
		}
	}
	return optind < argc ? lg_usage(&lg_cmd_env, "no argument \"%s\"", argv[optind]) : -1;
}

/* Neither needs quoting: lg_hook_keep() refuses a path that would. */
static int print(const struct options *opt, const char *path, const char *marks)
{
	char text[4096 + 512];
	struct lg_out *o;

	if (opt->form == JSON)
		snprintf(text, sizeof text, "{\"env_vars\": {\"PYTHONPATH\": \"%s\", \"LAGGARD_MARKS\": \"%s\"}}\n",
			 path, marks);
	else if (opt->form == YAML)
		snprintf(text, sizeof text, "- name: PYTHONPATH\n  value: \"%s\"\n- name: LAGGARD_MARKS\n  value: \"%s\"\n",
			 path, marks);
	else
		snprintf(text, sizeof text, "export PYTHONPATH=%s\"${PYTHONPATH:+:$PYTHONPATH}\"\n"
			 "export LAGGARD_MARKS=%s\n", path, marks);
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	lg_out_puts(o, text);
	return lg_finish(o);
}

static int run(int argc, char **argv)
{
	struct options opt = { .uid = geteuid() };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	char path[4096], marks[64];
	uid_t uid;
	gid_t gid;
	int rc;

	if (lg_invoker(&uid, &gid))
		opt.uid = uid;
	rc = parse(argc, argv, &opt);
	if (rc >= 0)
		return rc;
	if (lg_hook_keep(path, sizeof path, opt.dir, environ, &err)) {
		lg_complain(&err);
		return err.code == LG_E_USAGE ? LG_EXIT_USAGE : LG_EXIT_FAILED;
	}
	snprintf(marks, sizeof marks, "/dev/shm/laggard-%u/kept", (unsigned)opt.uid);
	rc = print(&opt, path, marks);
	if (rc)
		return rc;
	lg_say("keep %s until the last process that was started with it has ended, on each machine and in each "
	       "container where one is; without it they run unmarked", path);
	lg_say("a process has 1.3 MB in %s while it lives; laggard record --job or -p reads what it marks there", marks);
	return rc;
}

const struct lg_command lg_cmd_env = {
	.name = "env",
	.args = "[OPTION]...",
	.summary = "what the environment of workers needs that laggard does not start, to mark their steps",
	.help =
	"Unpacks the Python hook into a folder that stays and that nobody else can take over, and prints the variables\n"
	"that lead a worker to it: for a shell, for Ray's runtime_env, for a container's env. A later laggard record --job\n"
	"or -p has exact steps and stages of such a job, however long it has run.\n\n"
	"  --json               as Ray's runtime_env: {\"env_vars\": {...}}\n"
	"  --yaml               as the env list of a container in Kubernetes\n"
	"  --dir DIR            unpack into DIR, such as one that all machines share (default /run/laggard for root, else\n"
	"                       ~/.cache/laggard)\n"
	"  --user NAME          whom the workers run as, a name or a number (default: who ran sudo, else who runs this)\n\n"
	"example:\n"
	"  eval \"$(laggard env --dir ~/laggard)\"; srun torchrun train.py\n",
	.run = run,
};
