/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_dwarf.h - the debug information that belongs to an opened file, found when first asked for.
 *
 * Everything returned is owned by the lg_elf and lives as long as it. Addresses are those of
 * the file as linked, which separate debug files share.
 */
#ifndef LG_SYMBOLS_ELF_DWARF_H
#define LG_SYMBOLS_ELF_DWARF_H
#include <elfutils/libdw.h>

#include "symbols/elf_symbols.h"

/* NULL when there is no debug information. */
Dwarf *lg_elf_dwarf(struct lg_elf *e);

#endif /* LG_SYMBOLS_ELF_DWARF_H */
