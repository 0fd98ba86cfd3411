/* SPDX-License-Identifier: Apache-2.0 */
/* pids.h - lists of processes on a command line. */
#ifndef LG_CLI_PIDS_H
#define LG_CLI_PIDS_H
#include <sys/types.h>

#include "cli/command.h"

struct lg_pids {
	pid_t *v; /* the caller's to free */
	size_t n, cap;
};

/* A decimal number from min to max, and nothing else. */
bool lg_parse_number(const char *s, long min, long max, long *ret);
/* The value of -p, "PID,PID...", behind those that are there. 0, or the exit status after a line about it. */
int lg_pids_option(const struct lg_command *cmd, const char *text, struct lg_pids *pids);

#endif /* LG_CLI_PIDS_H */
