/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_inject.h - unpack the embedded Python hook for one command. lg_hook_prepare() and
 * lg_hook_free() are declared in session.h.
 */
#ifndef LG_RECORD_HOOK_INJECT_H
#define LG_RECORD_HOOK_INJECT_H
#include <stddef.h>

#include "base/error.h"

/* Written by tools/embed from src/hook/. */
struct lg_hook_file {
	const char *path; /* "laggard/_ring.py" */
	const unsigned char *data;
	size_t size;
};
extern const struct lg_hook_file lg_hook_files[];
extern const size_t lg_hook_n_files;

struct lg_hook;
/* Where the rings appear. */
const char *lg_hook_marks_dir(const struct lg_hook *h);
/* The same for the hook that is prepared right now, NULL = none: a process records one command at
 * a time, and lg_source_marks has no other way to hear of it. */
const char *lg_hook_current_dir(void);
/*
 * The hook for processes that no recorder starts: unpacked to DIR/env-HASH, of this version and this content,
 * or found there; it stays. dir NULL: /run/laggard for root, else ~/.cache/laggard. *ret: the folder for
 * PYTHONPATH. Refused (LG_E_PERM) where somebody else may write to a folder on the way to it, also to a
 * sticky one: what a cleaner removes there anyone can make anew, and environments would still lead to it.
 */
/* In such a folder: what a Python that runs already is given to run (python_attach.h). */
#define LG_HOOK_ATTACH "attach.py"
int lg_hook_keep(char *ret, size_t size, const char *dir, char **env, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_RECORD_HOOK_INJECT_H */
