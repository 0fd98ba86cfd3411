/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inlines.h - from an address to the lines of source there: functions that were inlined, and
 * where in its file each one is. Reads .debug_info and .debug_line, of the file or of its separate
 * debug file. Costs microseconds to milliseconds: ask once an address.
 */
#ifndef LG_SYMBOLS_INLINES_H
#define LG_SYMBOLS_INLINES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lg_elf;

struct lg_source_frame {
	const char *name; /* mangled where the language does; NULL = the debug info names none */
	const char *file; /* NULL = not known */
	uint32_t line;    /* 0 = not known */
};

/*
 * ret[0] is the innermost inlined function at vaddr, ret[n - 1] the function that has the code;
 * file and line say where execution is in each. 0: there is no debug information about vaddr.
 * Text is borrowed from e.
 */
size_t lg_elf_source(struct lg_elf *e, uint64_t vaddr, struct lg_source_frame *ret, size_t max);

/* Files so far that have so many scopes that not all addresses were looked for in all of them. */
size_t lg_inlines_cut(void);

#endif /* LG_SYMBOLS_INLINES_H */
