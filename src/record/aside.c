/* SPDX-License-Identifier: Apache-2.0 */
#include "record/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOW_PRIORITY = 10 };

int lg_aside_start(struct lg_aside *a, int (*work)(void *arg, struct lg_error *err), void *arg,
		   struct lg_error *err)
{
	int pair[2];

	if (pipe2(pair, O_CLOEXEC))
		return lg_fail_errno(err, errno, "pipe");
	a->pid = fork();
	if (!a->pid) {
		struct lg_error e = { .offset = LG_NO_OFFSET };

		close(pair[0]);
		(void)setpriority(PRIO_PROCESS, 0, LOW_PRIORITY);
		e.code = work(arg, &e);
		/* A pipe has room for it: nobody need be there to read. */
		if (write(pair[1], &e, sizeof e) != (ssize_t)sizeof e)
			_exit(1);
		_exit(0);
	}
	close(pair[1]);
	if (a->pid < 0) {
		int e = errno;

		close(pair[0]);
		a->pid = 0;
		return lg_fail_errno(err, e, "fork");
	}
	a->from = pair[0];
	return 0;
}

bool lg_aside_ended(struct lg_aside *a, bool wait, int *ret_rc, struct lg_error *err)
{
	struct lg_error e;
	pid_t got;
	int st;

	if (!a->pid)
		return false;
	do
		got = waitpid(a->pid, &st, wait ? 0 : WNOHANG);
	while (got < 0 && errno == EINTR);
	if (!got)
		return false;
	if (read(a->from, &e, sizeof e) == (ssize_t)sizeof e) {
		e.message[sizeof e.message - 1] = 0;
		*err = e;
		*ret_rc = e.code;
	} else {
		*ret_rc = got > 0 && WIFSIGNALED(st)
				  ? lg_fail(err, LG_E_IO, LG_NO_OFFSET, "it was ended by signal %d", WTERMSIG(st))
				  : lg_fail(err, LG_E_IO, LG_NO_OFFSET, "it ended without a word");
	}
	close(a->from);
	a->pid = 0;
	return true;
}
