/* SPDX-License-Identifier: Apache-2.0 */
/* debug_file.h - where the symbols are that a file was stripped of. */
#ifndef LG_SYMBOLS_DEBUG_FILE_H
#define LG_SYMBOLS_DEBUG_FILE_H
#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbols/elf_symbols.h"

/* What a file says of its debug file; "" where it says nothing. */
struct lg_debug_names {
	char build_id[LG_BUILD_ID_HEX];
	char link[256]; /* of .gnu_debuglink, no path */
	uint32_t crc;   /* of the whole file that link names */
};

/* Where it may be, in the order in which one looks. */
enum {
	LG_DEBUG_BY_ID,   /* below debug_dir */
	LG_DEBUG_BESIDE, LG_DEBUG_IN_FOLDER, LG_DEBUG_IN_TREE, /* by link: beside it, .debug, debug_dir */
	LG_DEBUG_BY_SERVER,
	LG_DEBUG_CANDIDATES
};

/* Open one of them, if it is there, without looking into it; fd: of the file itself, to know its folder. */
int lg_debug_candidate(const struct lg_debug_names *d, int fd, const char *debug_dir, unsigned which);
/* Who opens them for this process: the above, or where nothing can be opened, one who asks. */
typedef int lg_debug_open_fn(const struct lg_debug_names *d, int fd, const char *debug_dir, unsigned which);
extern lg_debug_open_fn *lg_debug_opener;

/*
 * The separate debug file of elf, opened: by build id below debug_dir, by the name and checksum
 * in .gnu_debuglink, from a debuginfod server if the user has any. fd: elf's own, to know its
 * folder. -1 when there is none. debug_dir NULL = only look beside the file.
 */
int lg_debug_file_open(Elf *elf, int fd, const char *build_id, const char *debug_dir);
/* A file from the debuginfod servers, by build id; -1 when they do not have it (or there are none). */
int lg_debuginfod_open(const char *build_id, bool executable);
/*
 * The recorded file itself where its path leads to another one by now: perf keeps copies
 * (perf-buildid-cache), debuginfod servers have those of distributions. -1 = nowhere.
 */
int lg_build_id_open(const char *build_id);
/* perf's copy of a kernel's /proc/kallsyms, of the first boot that perf recorded; -1 = there is none. */
int lg_build_id_kallsyms_open(const char *build_id);
/* .gnu_debugdata ("mini debug info") unpacked, lg_free() it; NULL when there is none, or it is too much for a
 * file of that owner (file_budget.h). */
char *lg_mini_debug(Elf *elf, uid_t owner, size_t *ret_n);

#endif /* LG_SYMBOLS_DEBUG_FILE_H */
