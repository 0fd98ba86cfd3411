/* SPDX-License-Identifier: Apache-2.0 */
/* elf_exports.h - where an ELF file keeps what it exports by name. */
#ifndef LG_SYMBOLS_ELF_EXPORTS_H
#define LG_SYMBOLS_ELF_EXPORTS_H
#include <stddef.h>
#include <stdint.h>

struct lg_elf_export {
	const char *name;
	/*
	 * at: where its code would be mapped at the offset that it has in the file, this is how far behind it
	 * the symbol is: mapping's start - its offset in the file + at. 0 = it is not exported.
	 */
	uint64_t at, size;
};

/* Look up n names in the dynamic symbols of fd. 0, or LG_E_FORMAT: not an ELF file. Only in the process that
 * reads symbols: a file that shrinks meanwhile ends it. */
int lg_elf_exports(int fd, struct lg_elf_export *v, size_t n);

#endif /* LG_SYMBOLS_ELF_EXPORTS_H */
