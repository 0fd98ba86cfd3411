/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h - operands as files: a folder stands for the traces that lie in it. */
#ifndef LG_CLI_PATHS_H
#define LG_CLI_PATHS_H
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct lg_command;

struct lg_paths {
	char **path;
	bool *perhaps; /* from a folder, and its first bytes leave open whether it is a trace */
	size_t n, cap, cap_perhaps;
};

/*
 * Add a file, or the files of a folder in the order of their names: those of a kind that laggard
 * may read. The others are named on stderr, but for hidden ones; folders in it are not entered. A folder
 * that is one recording (lg_import_is_folder()) counts as a file.
 */
int lg_paths_add(struct lg_paths *p, const char *path, struct lg_error *err) LG_MUST_CHECK;
/* The same for all operands of a command; where it fails p is empty. */
int lg_paths_operands(struct lg_paths *p, char **operands, size_t n, struct lg_error *err) LG_MUST_CHECK;
/* Are these one file: by any name, or, where it is still to be written, one name in one folder? */
bool lg_same_file(const char *a, const char *b);
/* The first of p, which was read, that writing to out would replace; NULL = none. */
const char *lg_paths_find(const struct lg_paths *p, const char *out);
/* -1, or the exit status of a usage error: nothing that was read is written over by `option` out. */
int lg_paths_refuse(const struct lg_paths *p, const struct lg_command *cmd, const char *option,
		    const char *out);
void lg_paths_done(struct lg_paths *p);

#endif /* LG_CLI_PATHS_H */
