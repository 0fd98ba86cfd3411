/* SPDX-License-Identifier: Apache-2.0 */
/* own_command.h - one of laggard's commands as a process of its own, and what it prints. */
#ifndef LG_CLI_OWN_COMMAND_H
#define LG_CLI_OWN_COMMAND_H
#include <stdbool.h>
#include <stddef.h>

/* What came out: p has room for max bytes; cut: there were more. */
struct lg_printed {
	char *p;
	size_t n, max;
	bool cut;
	int fd; /* while it runs */
};

/* Run this program with argv, without input. said: standard error; NULL = it goes where ours goes. The exit
 * status, failed where a signal ended it; -1: it could not be started, errno. */
int lg_run_own_command(char *const *argv, struct lg_printed *out, struct lg_printed *said);

/* In a child: become `laggard record OPTIONS -o FILE -- CMD`. What that prints is no result of who asked: it
 * goes to standard error. options and cmd end with NULL; where that fails the child ends. */
_Noreturn void lg_become_record(const char *const *options, const char *file, char *const *cmd);

#endif /* LG_CLI_OWN_COMMAND_H */
