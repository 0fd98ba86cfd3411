/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - the program under `laggard record -- CMD`.
 *
 * It is forked first and waits before its exec until the sources run, so nothing of it is missed.
 * It stays in laggard's process group and session: the terminal's Ctrl-C, Ctrl-Z and job control
 * reach it as if laggard were not there. It does not die with laggard.
 */
#ifndef LG_RECORD_LAUNCH_H
#define LG_RECORD_LAUNCH_H
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct lg_launch;

struct lg_user {
	uid_t uid;
	gid_t gid;
	const char *name; /* whose groups it gets */
};

/* Fork. The child becomes user (NULL: stays who we are; only root can give another) and gets mask and
 * the default SIGPIPE before its exec. */
int lg_launch_fork(struct lg_launch **ret, char **cmd, char **env, const struct lg_user *user,
		   const sigset_t *mask, struct lg_error *err) LG_MUST_CHECK;
pid_t lg_launch_pid(const struct lg_launch *l);
/* Let it exec. On failure err says why and lg_launch_status() is 127 (not found) or 126. */
int lg_launch_go(struct lg_launch *l, struct lg_error *err) LG_MUST_CHECK;
/* Has it ended? block: wait for that. */
bool lg_launch_ended(struct lg_launch *l, bool block);
void lg_launch_signal(struct lg_launch *l, int sig);
/* Exit status, or 128 + signal; -1 while it runs. */
int lg_launch_status(const struct lg_launch *l);
/* A child that never got to its exec is ended; a running program goes on. */
void lg_launch_free(struct lg_launch *l);

#endif /* LG_RECORD_LAUNCH_H */
