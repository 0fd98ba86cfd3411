/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_symbols.h - functions of one ELF file.
 *
 * Taken from .symtab, else from .dynsym plus what .gnu_debugdata (xz, "mini debug info") or the
 * separate debug file of the same build id adds. The file stays mapped and names point into it:
 * 16 bytes a symbol and no copies, so libtorch's symbols cost a few MB and tens of ms.
 */
#ifndef LG_SYMBOLS_ELF_SYMBOLS_H
#define LG_SYMBOLS_ELF_SYMBOLS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define LG_BUILD_ID_HEX 65 /* 32 bytes in hex and the NUL; the common SHA-1 has 20 */

struct lg_elf;

/* fd is duplicated. debug_dir: usually "/usr/lib/debug"; NULL = do not look. */
int lg_elf_open(struct lg_elf **ret, int fd, const char *debug_dir, struct lg_error *err) LG_MUST_CHECK;
/* The image is copied. */
int lg_elf_open_memory(struct lg_elf **ret, const void *image, size_t n,
		       struct lg_error *err) LG_MUST_CHECK;
void lg_elf_free(struct lg_elf *e);
/* Give back the pages of the file that were read; they come back where they are read again. */
void lg_elf_forget(struct lg_elf *e);
/* "" when it has none. */
const char *lg_elf_build_id(const struct lg_elf *e);
/* Offset in the file to address as linked. */
bool lg_elf_vaddr(const struct lg_elf *e, uint64_t offset, uint64_t *ret_vaddr);
/* Symbol that contains vaddr, as in the file (mangled); NULL when none does. */
const char *lg_elf_find(const struct lg_elf *e, uint64_t vaddr, uint64_t *ret_offset);

/* Only the build id: reads the headers and one note. False when there is none. */
bool lg_elf_build_id_of(int fd, char ret_hex[LG_BUILD_ID_HEX]);

#endif /* LG_SYMBOLS_ELF_SYMBOLS_H */
