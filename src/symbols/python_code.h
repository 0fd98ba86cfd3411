/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_code.h - CPython code objects, as copied out of a process, to function, file and line.
 *
 * The copy is a file of records, in the order of their numbers: this head, then the bytes of the two strings
 * and of the line table as they lay in memory, padded to 8. Whoever made them may be anybody: they are read
 * in the process that reads symbols.
 *
 * Line tables: lnotab_notes (3.8 to 3.10) and locations (since 3.11) below Objects/ of CPython.
 */
#ifndef LG_SYMBOLS_PYTHON_CODE_H
#define LG_SYMBOLS_PYTHON_CODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_python_object {
	uint32_t bytes;      /* of the record */
	uint32_t minor;      /* 3.minor */
	int32_t first_line;
	uint32_t n_name, n_file, n_table;
	uint32_t code_units; /* from the object's start to its instructions, in units of two bytes */
	uint32_t zero;
};

enum { LG_PYTHON_STRING_MAX = 56 + 4 * 255, LG_PYTHON_TABLE_MAX = 64 << 10 };
/* A frame's pc: number of the object << 16 | units into it; LG_PYTHON_NO_UNITS: not known. */
#define LG_PYTHON_NO_UNITS 0xffffu

struct lg_python_dump;

/* Reads fd from its start; whole records up to the first that is not. LG_E_NOMEM, LG_E_IO. */
int lg_python_dump_open(struct lg_python_dump **ret, int fd) LG_MUST_CHECK;
void lg_python_dump_free(struct lg_python_dump *d);
/* "function\nfile\nline"; NULL = there is no such object. Control characters become '?'. */
const char *lg_python_dump_find(const struct lg_python_dump *d, uint64_t pc, char *buf, size_t size);

#endif /* LG_SYMBOLS_PYTHON_CODE_H */
