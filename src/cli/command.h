/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - the command table: one cmd_<name>.c per row. Only cli/ prints, exits, reads env. */
#ifndef LG_CLI_COMMAND_H
#define LG_CLI_COMMAND_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/duration.h"
#include "base/error.h"

enum { LG_EXIT_OK = 0, LG_EXIT_FAILED = 1, LG_EXIT_USAGE = 2, LG_EXIT_FINDING = 3 };

struct lg_command {
	const char *name, *args, *summary;
	const char *help; /* options and an example, shown by --help */
	int (*run)(int argc, char **argv); /* argv[0] = command name; returns the exit status */
};
extern const struct lg_command lg_cmd_record, lg_cmd_explain, lg_cmd_convert, lg_cmd_steps,
	lg_cmd_doctor, lg_cmd_rules, lg_cmd_diff, lg_cmd_query, lg_cmd_hang, lg_cmd_env,
	lg_cmd_trigger, lg_cmd_memory, lg_cmd_view, lg_cmd_mcp,
	lg_cmd_completions, lg_cmd_top, lg_cmd_selftest, lg_cmd_roofline,
	lg_cmd_determinism, lg_cmd_fleet, lg_cmd_agent;
/* Those that are built, in the order of the help. */
extern const struct lg_command *const lg_commands[];
extern const size_t lg_n_commands;

/* "laggard: TEXT" on stderr: one line whatever names from outside are in it (base/printable.h). */
void lg_say(const char *fmt, ...) LG_PRINTF(1, 2);
/* The same for a message, with the byte offset where there is one. */
void lg_complain(const struct lg_error *err);
/* Usage error: the message and where help is. Returns LG_EXIT_USAGE. */
int lg_usage(const struct lg_command *cmd, const char *fmt, ...) LG_PRINTF(2, 3);
/* Print cmd's help on stdout. Returns LG_EXIT_OK. */
int lg_help(const struct lg_command *cmd);
/* For what getopt_long() returned and no command has a case for: 'h', ':' (a value is missing) and '?'.
 * word: of the command line. Returns the status to exit with. */
int lg_option_rest(const struct lg_command *cmd, int c, const char *word);
/* On whose behalf root runs (sudo): SUDO_UID, SUDO_GID; false when there is nobody but root. */
bool lg_invoker(uid_t *ret_uid, gid_t *ret_gid);

#endif /* LG_CLI_COMMAND_H */
