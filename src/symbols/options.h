/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - what the user asked of symbols, once for the whole program.
 *
 * Set before the first file is opened and never changed after: importers and the recorder need
 * not carry it through their interfaces. All off is the default.
 */
#ifndef LG_SYMBOLS_OPTIONS_H
#define LG_SYMBOLS_OPTIONS_H
#include <stdbool.h>
#include <sys/types.h>

struct lg_symbol_options {
	bool inlines;    /* frames of inlined functions */
	bool lines;      /* source file and line of each frame */
	bool debuginfod; /* the user's environment names servers: ask them */
	uid_t caller;    /* who called sudo; 0 = nobody: files of that user are believed as one's own */
	char cache[4096]; /* perf's copies of what it recorded ("~/.debug"); "" = do not look */
};

extern struct lg_symbol_options lg_symbol_options;

#endif /* LG_SYMBOLS_OPTIONS_H */
