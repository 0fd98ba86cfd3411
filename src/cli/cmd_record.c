/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_record.c - laggard record: options, the name of the file, lines on stderr. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "cli/pids.h"
#include "record/hook_inject.h"
#include "record/session.h"
#include "store/trace.h"

extern char **environ;

#define BEFORE_HANG INT64_C(10000000000)
#define LEAST_AT INT64_C(1000000000)
#define MOST_AT INT64_C(86400000000000)

enum { DUMPS = 10 }; /* that triggers write; a ring is tens of megabytes */

/* Progress is one line that is written over; a message ends it. */
struct talk {
	bool tty, line_open;
};

static void end_line(struct talk *t)
{
	if (t->line_open)
		fputc('\n', stderr);
	t->line_open = false;
}

static void say(void *arg, const char *line)
{
	end_line(arg);
	lg_say("%s", line);
}

static void report(void *arg, double seconds, uint64_t events, uint64_t bytes, uint64_t lost)
{
	struct talk *t = arg;
	char number[32];

	fprintf(stderr, "\rlaggard: %.0f s, %llu events, %.1f MB, %s lost; Ctrl-C ends   ",
		seconds, (unsigned long long)events, (double)bytes * 1e-6,
		lg_count_text(lost, number, sizeof number));
	fflush(stderr);
	t->line_open = true;
}

/* laggard-20260131-1.lag: the first number that is free in this directory. */
static char *default_name(void)
{
	char name[64], date[16];
	time_t now = time(NULL);
	struct stat st;
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(date, sizeof date, "%Y%m%d", &tm);
	for (unsigned i = 1; i < 100000; i++) {
		snprintf(name, sizeof name, "laggard-%s-%u.lag", date, i);
		if (lstat(name, &st)) /* a link that leads nowhere takes a name as well */
			break;
	}
	return lg_strdup(name);
}

static int64_t parse_size(const char *s)
{
	char *end;
	double v;

	if (!(*s >= '0' && *s <= '9'))
		return -1;
	v = strtod(s, &end);
	if (*end == 'k' || *end == 'K')
		v *= 1024, end++;
	else if (*end == 'm' || *end == 'M')
		v *= 1 << 20, end++;
	else if (*end == 'g' || *end == 'G')
		v *= 1 << 30, end++;
	return *end || v < 1 || v > 64e9 ? -1 : (int64_t)v;
}

struct parsed {
	struct lg_record_options o;
	struct lg_user user;
	const char *user_name; /* --user */
	bool modules, attach;
	char attach_script[PATH_MAX];
	struct lg_pids pids;
	struct lg_trigger triggers[LG_TRIGGERS_MAX];
};

static int bad(const char *name, const char *value, const char *want)
{
	return lg_usage(&lg_cmd_record, "%s %s: %s", name, value, want);
}

/* --trigger, --max-dumps, --at and --profiler. */
static int set_moment(struct parsed *p, const char *name, const char *v)
{
	struct lg_error err = { 0 };
	long n;

	if (!strcmp(name, "--max-dumps")) {
		if (!lg_parse_number(v, 1, 100000, &n))
			return bad(name, v, "a number of files, 1 to 100000");
		p->o.max_dumps = (unsigned)n;
		return 0;
	}
	if (!strcmp(name, "--at")) {
		p->o.at_ns = *v == '/' ? lg_parse_duration(v + 1) : -1;
		if (p->o.at_ns < LEAST_AT || p->o.at_ns > MOST_AT)
			return bad(name, v, "/ and a duration from a second to a day: /10s begins at a full ten seconds");
		return 0;
	}
	if (!strcmp(name, "--profiler")) {
		char steps[8] = "";
		const char *slash = strchr(v, '/');

		snprintf(steps, sizeof steps, "%.*s", slash ? (int)LG_MIN(slash - v, 7) : 7, v);
		p->o.profiler_every_ns = slash ? lg_parse_duration(slash + 1) : 0;
		if (!lg_parse_number(steps, 1, 1000, &n) || (slash && p->o.profiler_every_ns < LEAST_AT))
			return bad(name, v, "a number of steps, 1 to 1000, and how often: 3, 3/10m");
		p->o.profiler = (unsigned)n;
		return 0;
	}
	if (p->o.n_triggers == LG_TRIGGERS_MAX)
		return bad(name, v, "there may be 8 at most");
	if (lg_trigger_parse(v, &p->triggers[p->o.n_triggers], &err))
		return lg_usage(&lg_cmd_record, "--trigger %s", err.message);
	p->o.n_triggers++;
	return 0;
}

/* One option with its value. */
static int set_option(struct parsed *p, const char *name, const char *v)
{
	static const struct { const char *name; enum lg_tier tier; } tiers[] = {
		{ "auto", LG_TIER_AUTO }, { "bpf", LG_TIER_BPF }, { "perf", LG_TIER_PERF },
		{ "own", LG_TIER_OWN }, { "procfs", LG_TIER_PROCFS },
	};
	static const char *const profiles[] = { "light", "default", "deep" };
	long n;
	int64_t d;

	if (!strcmp(name, "-o") || !strcmp(name, "--output")) {
		p->o.out = v;
		return 0;
	}
	if (!strcmp(name, "-p") || !strcmp(name, "--pid"))
		return lg_pids_option(&lg_cmd_record, v, &p->pids);
	if (!strcmp(name, "--job"))
		return lg_job_option(&lg_cmd_record, v, &p->pids);
	if (!strcmp(name, "-F") || !strcmp(name, "--freq")) {
		if (!lg_parse_number(v, 0, 20000, &n))
			return bad(name, v, "a number of samples a second, 0 to 20000");
		p->o.freq_hz = (unsigned)n;
		return 0;
	}
	if (!strcmp(name, "--device-rate")) {
		if (!lg_parse_number(v, 0, 10, &n))
			return bad(name, v, "a number of readings a second, 0 to 10");
		p->o.device_hz = (unsigned)n;
		return 0;
	}
	if (!strcmp(name, "--for") || !strcmp(name, "--ring")) {
		d = lg_parse_duration(v);
		if (d <= 0)
			return bad(name, v, "a duration such as 30s, 500ms or 2m");
		*(strcmp(name, "--for") ? &p->o.ring_ns : &p->o.for_ns) = d;
		return 0;
	}
	if (!strcmp(name, "--ring-bytes")) {
		d = parse_size(v);
		if (d < 4096)
			return bad(name, v, "a size of 4k or more, such as 4M");
		p->o.ring_bytes = (size_t)d;
		return 0;
	}
	if (!strcmp(name, "--profile")) {
		for (size_t i = 0; i < 3; i++)
			if (!strcmp(v, profiles[i])) {
				p->o.profile = (enum lg_profile)i;
				return 0;
			}
		return bad(name, v, "light, default or deep");
	}
	if (!strcmp(name, "--tier")) {
		for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++)
			if (!strcmp(v, tiers[i].name)) {
				p->o.tier = tiers[i].tier;
				return 0;
			}
		return bad(name, v, "auto, bpf, perf, own or procfs");
	}
	if (strcmp(name, "--user"))
		return set_moment(p, name, v);
	p->user_name = v;
	return 0;
}

static bool set_flag(struct parsed *p, const char *a)
{
	const struct { const char *name; bool *flag, to; } flags[] = {
		{ "--no-hook", &p->o.hook, false },	{ "--no-python", &p->o.no_python, true },
		{ "--memory", &p->o.memory, true },	{ "--modules", &p->modules, true },
		{ "--attach-hook", &p->attach, true },	{ "--redact", &p->o.redact, true },
		{ "-q", &p->o.quiet, true },		{ "--quiet", &p->o.quiet, true },
	};

	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (!strcmp(a, flags[i].name)) {
			*flags[i].flag = flags[i].to;
			return true;
		}
	return false;
}

static int parse(struct parsed *p, int argc, char **argv)
{
	static const char *const with_value[] = {
		"-o", "--output", "-p", "--pid", "--job", "-F", "--freq", "--for", "--ring", "--ring-bytes",
		"--profile", "--tier", "--user", "--device-rate", "--trigger", "--max-dumps", "--at",
		"--profiler",
	};
	int i;

	for (i = 1; i < argc; i++) {
		const char *a = argv[i], *v = NULL;
		const char *eq = !strncmp(a, "--", 2) ? strchr(a, '=') : NULL;
		size_t n = eq ? (size_t)(eq - a) : strlen(a);
		char name[16];
		int rc;

		if (!strcmp(a, "--")) {
			i++;
			break;
		}
		if (*a != '-')
			break; /* laggard record CMD... as perf and strace allow */
		if (!strcmp(a, "-a") || !strcmp(a, "--all"))
			continue; /* always so */
		if (set_flag(p, a))
			continue;
		for (size_t k = 0; k < sizeof with_value / sizeof *with_value; k++) {
			const char *w = with_value[k];
			size_t len = strlen(w);

			if (len == n && !strncmp(a, w, n))
				v = eq ? eq + 1 : i + 1 < argc ? argv[++i] : "";
			else if (len == 2 && !strncmp(a, w, 2))
				v = a + 2; /* -F99 */
			if (!v)
				continue;
			snprintf(name, sizeof name, "%s", w);
			break;
		}
		if (!v)
			return lg_usage(&lg_cmd_record, "unknown option %s", a);
		if (!*v)
			return lg_usage(&lg_cmd_record, "%s needs a value", name);
		rc = set_option(p, name, v);
		if (rc)
			return rc;
	}
	if (i < argc)
		p->o.cmd = argv + i;
	else if (i > 1 && !strcmp(argv[i - 1], "--"))
		return lg_usage(&lg_cmd_record, "-- needs a command");
	return LG_EXIT_OK;
}

/* The hook reads of it in its environment. */
static int want_modules(struct parsed *p)
{
	if (p->o.profiler && (!p->o.cmd || !p->o.hook))
		return lg_usage(&lg_cmd_record, "--profiler needs -- CMD and the hook that marks its steps");
	if (!p->modules)
		return 0;
	if (!p->o.cmd || !p->o.hook)
		return lg_usage(&lg_cmd_record, "--modules needs -- CMD and the hook that marks its steps");
	if (setenv("LAGGARD_MODULES", "1", 1))
		return lg_usage(&lg_cmd_record, "out of memory");
	p->o.env = environ; /* setenv() may have moved it */
	return 0;
}

static int want_attached(struct parsed *p)
{
	struct lg_error err;
	size_t n;

	if (!p->attach)
		return 0;
	if ((!p->o.n_pids && !p->o.job) || p->o.no_python)
		return lg_usage(&lg_cmd_record, "--attach-hook needs -p or --job: a job that runs already");
	if (lg_hook_keep(p->attach_script, sizeof p->attach_script - sizeof "/" LG_HOOK_ATTACH, NULL, environ, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	n = strlen(p->attach_script);
	snprintf(p->attach_script + n, sizeof p->attach_script - n, "/" LG_HOOK_ATTACH);
	p->o.attach = p->attach_script;
	return 0;
}

/* What would never write a file is refused before anything runs. */
static int check_triggers(struct parsed *p)
{
	p->o.triggers = p->triggers;
	if (p->o.n_triggers && !p->o.ring_ns)
		return lg_usage(&lg_cmd_record, "--trigger writes what a ring holds: add --ring DUR, such as --ring 60s");
	for (size_t i = 0; i < p->o.n_triggers; i++) {
		const struct lg_trigger *t = &p->triggers[i];

		if (lg_trigger_wants_marks(t) && (p->o.cmd ? !p->o.hook : !p->o.n_pids && !p->o.job))
			return lg_usage(&lg_cmd_record, "--trigger '%s' needs the steps that the hook marks: -- CMD "
					"without --no-hook, or the -p or --job of one that was started with what "
					"laggard env prints", t->text);
		if (t->kind != LG_TRIGGER_HANG || p->o.ring_ns >= t->ns + BEFORE_HANG)
			continue;
		p->o.ring_ns = t->ns + BEFORE_HANG;
		if (!p->o.quiet)
			lg_say("'%s': the ring keeps %.3g s, so that it holds what was before", t->text,
			       (double)p->o.ring_ns * 1e-9);
	}
	return 0;
}

/* Whom CMD runs as: --user, or who ran sudo. What sudo would set in its environment is set in ours, of
 * which the command gets a copy. */
static int choose_user(struct parsed *p)
{
	const struct passwd *pw;
	uid_t uid;
	gid_t gid;
	long n;

	if (p->user_name && !p->o.cmd)
		return lg_usage(&lg_cmd_record, "--user is for a CMD");
	if (!p->o.cmd || (!p->user_name && !lg_invoker(&uid, &gid)))
		return 0;
	if (!p->user_name)
		pw = getpwuid(uid);
	else if (lg_parse_number(p->user_name, 0, INT_MAX, &n))
		pw = getpwuid((uid_t)n);
	else
		pw = getpwnam(p->user_name);
	if (!pw && !p->user_name)
		return lg_usage(&lg_cmd_record, "SUDO_UID %u is no user here: say --user NAME", (unsigned)uid);
	if (!pw)
		return lg_usage(&lg_cmd_record, "--user %s: there is no such user", p->user_name);
	if (pw->pw_uid == geteuid())
		return 0;
	if (geteuid())
		return lg_usage(&lg_cmd_record, "--user %s: only root can start a command as another user",
				pw->pw_name);
	/* pw is nobody's to change: no more is asked of the user database here. */
	p->user = (struct lg_user){ .uid = pw->pw_uid, .gid = pw->pw_gid, .name = pw->pw_name };
	p->o.user = &p->user;
	if (setenv("USER", pw->pw_name, 1) || setenv("LOGNAME", pw->pw_name, 1) ||
	    setenv("HOME", pw->pw_dir, 1) || setenv("SHELL", *pw->pw_shell ? pw->pw_shell : "/bin/sh", 1))
		return lg_usage(&lg_cmd_record, "out of memory");
	p->o.env = environ; /* setenv() may have moved it */
	return 0;
}

static char *join(int argc, char **argv)
{
	size_t size = sizeof "laggard", n;
	char *text;

	for (int i = 0; i < argc; i++)
		size += strlen(argv[i]) + 1;
	text = lg_calloc(size, 1);
	if (!text)
		return NULL;
	n = (size_t)snprintf(text, size, "laggard");
	for (int i = 0; i < argc; i++)
		n += (size_t)snprintf(text + n, size - n, " %s", argv[i]);
	return text;
}

/* A recording must not become file 2 of a caller that closed it: the next message would land in
 * it. Closed again by CMD's exec, so that CMD finds what it would have found. */
static void fill_standard_files(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
			return;
}

static int run(int argc, char **argv)
{
	struct talk talk = { .tty = isatty(STDERR_FILENO) };
	struct parsed p = { .o = { .freq_hz = 99,
				   .device_hz = 1,
				   .max_dumps = DUMPS,
				   .profile = LG_PROFILE_DEFAULT,
				   .hook = true,
				   .confine = true,
				   .env = environ,
				   .say = say,
				   .say_arg = &talk } };
	LG_AUTOFREE char *name = NULL, *line = NULL;
	struct lg_error err = { .offset = LG_NO_OFFSET };
	int status = LG_EXIT_FAILED;

	for (int i = 1; i < argc && strcmp(argv[i], "--") && argv[i][0] == '-'; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return lg_help(&lg_cmd_record);
	status = parse(&p, argc, argv);
	if (!status)
		status = lg_job_pids(&p.pids, p.o.quiet);
	p.o.pids = p.pids.v;
	p.o.n_pids = p.pids.n;
	p.o.job = p.pids.job;
	status = status ? status : check_triggers(&p);
	status = status ? status : want_modules(&p);
	status = status ? status : want_attached(&p);
	if (!status)
		status = choose_user(&p);
	if (status)
		goto out;
	fill_standard_files();
	if (!p.o.out) {
		name = default_name();
		p.o.out = name;
	}
	line = join(argc, argv);
	p.o.cmdline = line;
	/* The command writes to the same terminal: a line that is written over would tear it. */
	if (talk.tty && !p.o.cmd && !p.o.quiet)
		p.o.report = report;
	if (!p.o.out) {
		err.code = LG_E_NOMEM;
		status = LG_EXIT_FAILED;
		lg_complain(&err);
	} else if (lg_record(&p.o, &status, &err)) {
		end_line(&talk);
		lg_complain(&err);
	}
out:
	lg_pids_free(&p.pids);
	return status;
}

const struct lg_command lg_cmd_record = {
	.name = "record",
	.args = "[OPTION...] [-- CMD...]",
	.summary = "record the whole machine; with -- CMD start it, follow it and mark its steps",
	.help =
		"  -o FILE              write FILE (default laggard-DATE-N.lag)\n"
		"  -p PID,...           these processes are the job (repeatable)\n"
		"  --job JOB            this job, which runs already: slurm:ID, ray:NAME, container:ID,\n"
		"                       cgroup:PATH or match:REGEX (of command lines)\n"
		"  -a                   the whole machine (always so)\n"
		"  --user NAME          start CMD as NAME (default: who ran sudo, else as laggard)\n"
		"  --for DUR            stop after 30s, 500ms, 2m; CMD goes on\n"
		"  --ring DUR           keep only the last DUR; laggard trigger writes it to FILE-N\n"
		"  --trigger EXPR       with --ring: write a file of the moment when 'step > 3x' (its usual),\n"
		"                       'step > 200ms', 'hang > 60s' or 'rss > 90%' (repeatable)\n"
		"  --max-dumps N        so many files of triggers at most (default 10)\n"
		"  --at /DUR            begin at the next multiple of DUR on the wall clock: /10s\n"
		"  -F HZ                CPU samples a second and CPU (default 99; 0 = none)\n"
		"  --device-rate HZ     readings of GPUs a second, 1 to 10 (default 1; 0 = none)\n"
		"  --profile P          light, default or deep: how much detail\n"
		"  --tier T             bpf, perf, own or procfs instead of the best that works\n"
		"  --ring-bytes SIZE    of each CPU's buffer, such as 4M\n"
		"  --memory             which lines touch memory first; of CUDA: the allocator's history, its\n"
		"                       statistics every 10 steps, a snapshot where a request fails\n"
		"  --attach-hook        have the Python (3.14 on) of a job that runs already mark its steps\n"
		"  --profiler K         K steps of torch.profiler in the job: once, or with --ring where a\n"
		"                       trigger fires; K/DUR: every DUR. explain joins them\n"
		"  --no-hook            do not mark the steps of Python programs\n"
		"  --modules            where forward and backward spend their time, by module of the model\n"
		"  --no-python          read no frames of Python's interpreters\n"
		"  --redact             write no arguments, folders, environment, hosts: to be shared\n"
		"  -q                   no lines on stderr but errors\n\n"
		"Ctrl-C ends the recording (with CMD: when CMD has ended; a second one at once).\n"
		"The exit status is CMD's, 128+N when signal N ended it.\n\n"
		"Example:\n"
		"  laggard record -o run.lag -- torchrun --nproc-per-node 2 train.py\n"
		"  laggard explain run.lag\n"
		"  laggard record --job slurm:4711 --for 60s\n",
	.run = run,
};
