/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_inject.h - unpack the embedded Python hook for one command. lg_hook_prepare() and
 * lg_hook_free() are declared in session.h.
 */
#ifndef LG_RECORD_HOOK_INJECT_H
#define LG_RECORD_HOOK_INJECT_H
#include <stddef.h>

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

#endif /* LG_RECORD_HOOK_INJECT_H */
