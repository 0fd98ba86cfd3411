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
	char **unread; /* "PATH: why": what lies in a folder and could not be read */
	size_t *unread_name; /* how long PATH is */
	size_t n_unread, cap_unread, cap_unread_name;
};

/* How many of unread may well be of the run: named like a file that is read, a rank's, or a log. */
size_t lg_paths_missed(const struct lg_paths *p);

/*
 * Add a file, or the files of a folder in the order of their names: those of a kind that laggard
 * may read. The others are named on stderr and in unread, but for hidden ones. A folder
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
/* That path is left out, for that reason: said on stderr, and kept. */
int lg_paths_unread(struct lg_paths *p, const char *path, const char *why,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_paths_done(struct lg_paths *p);

#endif /* LG_CLI_PATHS_H */
