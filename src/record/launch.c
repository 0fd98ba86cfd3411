/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - fork, wait for the word, exec.
 *
 *   laggard  --go-->      child    one byte: exec; end of file (laggard died): exit
 *   laggard  <--errno--   child    closed by a successful exec (O_CLOEXEC)
 */
#include "record/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"

struct lg_launch {
	pid_t pid;
	int go_fd, error_fd, status;
	char *name;
};

/* For good: a way back to root would be a way for cmd. */
static int become(const struct lg_user *user)
{
	if (initgroups(user->name, user->gid) || setresgid(user->gid, user->gid, user->gid) ||
	    setresuid(user->uid, user->uid, user->uid))
		return errno;
	return user->uid && !setresuid((uid_t)-1, 0, (uid_t)-1) ? EPERM : 0;
}

static void child(char **cmd, char **env, const struct lg_user *user, const sigset_t *mask, int go, int error)
	__attribute__((noreturn));
static void child(char **cmd, char **env, const struct lg_user *user, const sigset_t *mask, int go, int error)
{
	char c;
	int e = 0;
	ssize_t n;

	do
		n = read(go, &c, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(127);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (user)
		e = become(user);
	if (!e) {
		/* execvpe looks cmd[0] up in the PATH that laggard itself has, as a shell would. */
		execvpe(cmd[0], cmd, env);
		e = errno;
	}
	do
		n = write(error, &e, sizeof e);
	while (n < 0 && errno == EINTR);
	_exit(e == ENOENT ? 127 : 126);
}

int lg_launch_fork(struct lg_launch **ret, char **cmd, char **env, const struct lg_user *user,
		   const sigset_t *mask, struct lg_error *err)
{
	static char *empty[] = { NULL };
	struct lg_launch *l = lg_calloc(1, sizeof *l);
	int go[2] = { -1, -1 }, error[2] = { -1, -1 }, e;

	if (!l || !(l->name = lg_strdup(cmd[0]))) {
		lg_free(l);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	if (pipe2(go, O_CLOEXEC) || pipe2(error, O_CLOEXEC))
		goto failed;
	l->status = -1;
	l->pid = fork();
	if (l->pid < 0)
		goto failed;
	if (!l->pid) {
		close(go[1]);
		close(error[0]);
		child(cmd, env ? env : empty, user, mask, go[0], error[1]);
	}
	close(go[0]);
	close(error[1]);
	l->go_fd = go[1];
	l->error_fd = error[0];
	*ret = l;
	return 0;
failed:
	e = errno;
	for (int i = 0; i < 2; i++) {
		if (go[i] >= 0)
			close(go[i]);
		if (error[i] >= 0)
			close(error[i]);
	}
	lg_free(l->name);
	lg_free(l);
	return lg_fail_errno(err, e, "cannot start %s", cmd[0]);
}

pid_t lg_launch_pid(const struct lg_launch *l)
{
	return l->pid;
}

int lg_launch_go(struct lg_launch *l, struct lg_error *err)
{
	int e = 0;
	ssize_t n;

	do
		n = write(l->go_fd, "", 1);
	while (n < 0 && errno == EINTR);
	close(l->go_fd);
	l->go_fd = -1;
	do
		n = read(l->error_fd, &e, sizeof e);
	while (n < 0 && errno == EINTR);
	close(l->error_fd);
	l->error_fd = -1;
	if (n != (ssize_t)sizeof e)
		return 0;
	(void)lg_launch_ended(l, true);
	if (e == ENOENT)
		return lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "cannot start %s: not found",
			       l->name);
	return lg_fail_errno(err, e, "cannot start %s", l->name);
}

bool lg_launch_ended(struct lg_launch *l, bool block)
{
	int st;
	pid_t got;

	if (l->status >= 0)
		return true;
	do
		got = waitpid(l->pid, &st, block ? 0 : WNOHANG);
	while (got < 0 && errno == EINTR);
	if (got == 0)
		return false;
	if (got < 0)
		l->status = 126; /* somebody else reaped it: there is no status to return */
	else
		l->status = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
	return true;
}

void lg_launch_signal(struct lg_launch *l, int sig)
{
	if (l->status < 0)
		(void)kill(l->pid, sig);
}

int lg_launch_status(const struct lg_launch *l)
{
	return l->status;
}

void lg_launch_free(struct lg_launch *l)
{
	if (!l)
		return;
	if (l->go_fd >= 0) {
		close(l->go_fd);
		(void)lg_launch_ended(l, true);
	}
	if (l->error_fd >= 0)
		close(l->error_fd);
	lg_free(l->name);
	lg_free(l);
}
