/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounds.h - how much memory a command that reads files may take.
 *
 * Whatever a file makes an importer or an analysis allocate, in whichever library, comes out of the process's
 * data (RLIMIT_DATA: heap and private writable mappings; mapped input files do not count). At the limit an
 * allocation fails, which every caller survives, and one line says so.
 */
#ifndef LG_CLI_BOUNDS_H
#define LG_CLI_BOUNDS_H
#include <stddef.h>
#include <stdint.h>

#include "cli/command.h"

/* getopt_long()'s row and the help's line for it, the same in every reader. */
enum { LG_MAX_MEMORY = 0x4d4d };
#define LG_MAX_MEMORY_OPTION { "max-memory", required_argument, NULL, LG_MAX_MEMORY }
#define LG_MAX_MEMORY_HELP \
	"  --max-memory SIZE    take no more memory than this, such as 8G (laggard(1) says what else)\n"

/* The option's value. -1: taken; else the exit status, after one line about it. */
int lg_max_memory_option(const struct lg_command *cmd, const char *size);
/* "64M" to bytes; -1 when it is no size. */
int64_t lg_parse_size(const char *s);
/*
 * These files are about to be read: set the limit to what the option says, else to the least of three
 * quarters of what machine and cgroup have free, and 1 GiB and 64 times the size of all files so far.
 */
void lg_bounds_set(char **paths, size_t n);
/* What lg_bounds_set() allowed; 0 = nothing was limited. */
uint64_t lg_bounds(void);

#endif /* LG_CLI_BOUNDS_H */
