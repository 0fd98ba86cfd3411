/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_trigger.c - ask a recorder that runs to write what its ring holds.
 *
 * SIGUSR1 ends a process that does not expect it, and a process id may belong to another one by the time
 * a signal is sent to it. So a descriptor of the process is opened first (pidfd_open(2)), then all is asked
 * that shows that it is a recorder, then that descriptor is signalled: if the process ended in between,
 * whatever was read of its successor, nobody gets the signal.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/patient.h"
#include "cli/pids.h"
#include "record/procfs.h"

enum { CMDLINE_BYTES = 64 << 10, LISTED_MAX = 8 };

/* What a process is. */
struct recorder {
	pid_t pid, parent;
	uid_t user;
	char out[128]; /* as its -o says; "" = it chose a name itself */
	char *cmdline;
	size_t n;
};

/* An errand: does it run our program, or another build of it, or one that was replaced since it began? */
static int run_ours(const void *told, size_t told_n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	char path[64], to[PATH_MAX], *name;
	struct stat self, that;
	ssize_t n;

	(void)told_n;
	(void)answer;
	(void)room;
	(void)ret_n;
	(void)ret_fd;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)*(const pid_t *)told);
	if (!stat(path, &that) && !stat("/proc/self/exe", &self) && that.st_dev == self.st_dev &&
	    that.st_ino == self.st_ino)
		return 0;
	n = readlink(path, to, sizeof to - 1);
	if (n <= 0)
		return ENOENT;
	to[n] = 0;
	name = strrchr(to, '/');
	return name && (!strcmp(name, "/laggard") || !strcmp(name, "/laggard (deleted)")) ? 0 : ENOEXEC;
}

static bool is_laggard(pid_t pid)
{
	return !lg_patient_send(pid, run_ours, &pid, sizeof pid, NULL, 0, NULL, NULL);
}

/* Effective user, parent, and whether it has SIGUSR1 blocked, as a recorder has, who reads it from a
 * descriptor: its default would end the process. */
static bool read_status(pid_t pid, uid_t *ret_user, pid_t *ret_parent, bool *ret_blocked)
{
	char path[64], text[8192], *uid, *parent, *blocked;
	unsigned real, effective;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (lg_proc_read(path, text, sizeof text) <= 0)
		return false;
	/* The name comes first and cannot hold a newline that is not escaped. */
	uid = strstr(text, "\nUid:");
	parent = strstr(text, "\nPPid:");
	blocked = strstr(text, "\nSigBlk:");
	if (!uid || !parent || !blocked || sscanf(uid + 5, "%u %u", &real, &effective) != 2)
		return false;
	*ret_user = effective;
	*ret_parent = (pid_t)strtol(parent + 6, NULL, 10);
	*ret_blocked = strtoull(blocked + 8, NULL, 16) >> (SIGUSR1 - 1) & 1;
	return true;
}

/* laggard record ... --ring ..., --memory or --profiler: as far as its own options go. */
static bool has_ring(struct recorder *r)
{
	const char *end = r->cmdline + r->n;
	bool ring = false;
	int i = 0;

	for (const char *a = r->cmdline; a < end; a += strlen(a) + 1, i++) {
		if (i == 1 && strcmp(a, "record") != 0)
			return false;
		if (i > 1 && !strcmp(a, "--"))
			break;
		ring |= i > 1 && (!strcmp(a, "--ring") || !strncmp(a, "--ring=", 7) || !strcmp(a, "--memory") ||
				 !strcmp(a, "--profiler") || !strncmp(a, "--profiler=", 11));
		if (i > 1 && !strcmp(a, "-o") && a + 3 < end)
			snprintf(r->out, sizeof r->out, "%s", a + 3);
	}
	return ring;
}

static bool same_program(pid_t pid, const struct recorder *r)
{
	static char text[CMDLINE_BYTES];
	char path[64];
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	n = lg_proc_read(path, text, sizeof text);
	return n > 0 && (size_t)n == r->n && !memcmp(text, r->cmdline, r->n);
}

/* NULL: it is one. Else why not, as the end of a sentence about it. */
static const char *no_recorder(pid_t pid, struct recorder *ret)
{
	static char text[CMDLINE_BYTES];
	char path[64];
	bool blocked;
	ssize_t n;

	*ret = (struct recorder){ .pid = pid };
	if (!read_status(pid, &ret->user, &ret->parent, &blocked))
		return "is not there";
	if (geteuid() && ret->user != geteuid())
		return "is another user's";
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	n = lg_proc_read(path, text, sizeof text);
	ret->cmdline = text;
	ret->n = n > 0 ? (size_t)n : 0;
	if (!is_laggard(pid) || !ret->n)
		return "is no recorder: laggard record";
	if (!has_ring(ret))
		return "does not record with --ring, --memory or --profiler";
	if (same_program(ret->parent, ret))
		return "is a helper of a recorder, which is its parent";
	if (!blocked)
		return "has not begun to record yet, or is none";
	return NULL;
}

/* The descriptor of the process, opened before it is looked at. */
static int look(pid_t pid, struct recorder *ret, const char **ret_why)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	*ret_why = fd >= 0 ? NULL : errno == ESRCH || errno == EINVAL ? "is not there" : strerror(errno);
	if (!*ret_why)
		*ret_why = no_recorder(pid, ret);
	return fd;
}

static int ask(int fd, const struct recorder *r)
{
	char whose[48] = "";

	if (r->user != geteuid())
		snprintf(whose, sizeof whose, " of user %u", (unsigned)r->user);
	if (syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0)) {
		lg_say("cannot signal process %d: %s", (int)r->pid, strerror(errno));
		return LG_EXIT_FAILED;
	}
	if (*r->out)
		lg_say("asked recorder %d%s to write what it holds, beside %s", (int)r->pid, whose, r->out);
	else
		lg_say("asked recorder %d%s to write what it holds", (int)r->pid, whose);
	return LG_EXIT_OK;
}

static int ask_one(pid_t pid)
{
	struct recorder r = { .pid = pid };
	const char *why;
	int fd = look(pid, &r, &why), rc = LG_EXIT_FAILED;

	if (why)
		lg_say("process %d %s", (int)pid, why);
	else
		rc = ask(fd, &r);
	if (fd >= 0)
		close(fd);
	return rc;
}

struct found {
	struct lg_pids pids;
	bool ours; /* of this very user: what others call a recorder is asked only where there is none */
};

static void found(void *arg, int32_t pid)
{
	struct found *all = arg;
	struct recorder r;
	bool ours;

	if ((all->ours && all->pids.n == all->pids.cap) || no_recorder(pid, &r))
		return;
	ours = r.user == geteuid();
	if (ours && !all->ours)
		all->pids.n = 0;
	all->ours |= ours;
	if (ours == all->ours && all->pids.n < all->pids.cap)
		all->pids.v[all->pids.n++] = pid;
}

static int ask_the_only_one(void)
{
	pid_t v[LISTED_MAX];
	struct found look_for = { .pids = { .v = v, .cap = LISTED_MAX } };
	const struct lg_pids *all = &look_for.pids;
	char list[16 * LISTED_MAX] = "";

	if (lg_proc_each("/proc", found, &look_for)) {
		lg_say("cannot read /proc");
		return LG_EXIT_FAILED;
	}
	if (!all->n) {
		lg_say("no recorder with --ring runs here%s", geteuid() ? " that is yours" : "");
		return LG_EXIT_FAILED;
	}
	if (all->n == 1)
		return ask_one(v[0]);
	for (size_t i = 0; i < all->n; i++)
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", i ? ", " : "", (int)v[i]);
	lg_say("several recorders run (%s%s): -p PID names one", list, all->n == LISTED_MAX ? ", ..." : "");
	return LG_EXIT_FAILED;
}

static int run(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "pid", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_command *cmd = &lg_cmd_trigger;
	const char *text = NULL;
	long pid;
	int c;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":hp:", longs, NULL)) != -1) {
		if (c != 'p')
			return lg_option_rest(cmd, c, argv[optind - 1]);
		if (text)
			return lg_usage(cmd, "one PID at a time");
		text = optarg;
	}
	if (optind < argc && (text || optind + 1 < argc))
		return lg_usage(cmd, "one PID at a time");
	if (optind < argc)
		text = argv[optind];
	if (!text)
		return ask_the_only_one();
	if (!lg_parse_number(text, 1, INT_MAX, &pid))
		return lg_usage(cmd, "\"%s\" is no process id", text);
	return ask_one((pid_t)pid);
}

const struct lg_command lg_cmd_trigger = {
	.name = "trigger",
	.args = "[-p PID]",
	.summary = "have a recorder that runs with --ring write what it holds",
	.help =
	"  -p PID               of the recorder; not needed where only one of yours runs\n\n"
	"It writes FILE-N beside the FILE of its -o and goes on. Nothing else is ever signalled than a\n"
	"recorder of this user (root: of any).\n\n"
	"example:\n"
	"  laggard record --ring 60s -o job.lag -- torchrun train.py &\n"
	"  laggard trigger\n",
	.run = run,
};
