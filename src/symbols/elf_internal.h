/* SPDX-License-Identifier: Apache-2.0 */
/* elf_internal.h - what elf_symbols.c, elf_cfi.c and elf_dwarf.c share. */
#ifndef LG_SYMBOLS_ELF_INTERNAL_H
#define LG_SYMBOLS_ELF_INTERNAL_H
#include <elfutils/libdw.h>
#include <stdbool.h>
#include <sys/types.h>

#include "symbols/cfi.h"
#include "symbols/elf_cfi.h"
#include "symbols/elf_symbols.h"

struct lg_elf_sym {
	uint64_t addr;
	uint32_t size, name;
};

struct lg_elf_part {
	int fd;
	Elf *elf;
	char *image; /* what elf reads when not a file */
	const char *str;
	size_t n_str;
};

enum { LG_ELF_MAIN, LG_ELF_DEBUG, LG_ELF_MINI, LG_ELF_PARTS };

struct lg_elf {
	struct lg_elf_part part[LG_ELF_PARTS];
	struct lg_elf_sym *sym;
	size_t n, cap;
	struct {
		uint64_t offset, vaddr, size;
	} load[32];
	size_t n_load;
	char build_id[LG_BUILD_ID_HEX];
	uid_t owner; /* who pays for it: file_budget.h */
	char *debug_dir;
	bool debug_tried, dwarf_tried, cfi_tried;
	Dwarf *dwarf, *main_dwarf;
	struct lg_cfi cfi[LG_ELF_CFI];
	enum lg_machine machine; /* once cfi_tried */
	struct lg_elf_lines *lines; /* inlines.c */
};

/* Open the separate debug file, once; false when there is none. */
bool lg_elf_need_debug(struct lg_elf *e);
void lg_elf_lines_free(struct lg_elf_lines *l);
void lg_elf_dwarf_done(struct lg_elf *e);

#endif /* LG_SYMBOLS_ELF_INTERNAL_H */
