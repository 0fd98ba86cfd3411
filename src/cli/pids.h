/* SPDX-License-Identifier: Apache-2.0 */
/* pids.h - processes on a command line: one by one, or a job. */
#ifndef LG_CLI_PIDS_H
#define LG_CLI_PIDS_H
#include <sys/types.h>

#include "cli/command.h"
#include "record/job_spec.h"

struct lg_pids {
	pid_t *v; /* the caller's to free, as job is */
	size_t n, cap;
	struct lg_job_spec *job; /* --job; NULL = not given */
};

/* A decimal number from min to max, and nothing else. */
bool lg_parse_number(const char *s, long min, long max, long *ret);
/* The value of -p, "PID,PID...", behind those that are there. 0, or the exit status after a line about it. */
int lg_pids_option(const struct lg_command *cmd, const char *text, struct lg_pids *pids);
/* The value of --job. 0, or the exit status after a line about it. */
int lg_job_option(const struct lg_command *cmd, const char *text, struct lg_pids *pids);
/* Add who is of that job now, and say so unless quiet. 0, or the exit status after a line about it: there
 * is nobody. */
int lg_job_pids(struct lg_pids *pids, bool quiet);
void lg_pids_free(struct lg_pids *pids);

#endif /* LG_CLI_PIDS_H */
