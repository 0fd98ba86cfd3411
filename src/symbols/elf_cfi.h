/* SPDX-License-Identifier: Apache-2.0 */
/* elf_cfi.h - the call frame information that belongs to an opened file, found when first asked for. */
#ifndef LG_SYMBOLS_ELF_CFI_H
#define LG_SYMBOLS_ELF_CFI_H
#include "symbols/unwind.h"

struct lg_cfi;
struct lg_elf;

enum { LG_ELF_CFI = 2 };

/*
 * 0 = .eh_frame of the file, 1 = .debug_frame of it or, where it has neither, of its debug file. NULL =
 * there is none, or the file is for another machine.
 */
struct lg_cfi *lg_elf_cfi(struct lg_elf *e, unsigned which, enum lg_machine machine);

#endif /* LG_SYMBOLS_ELF_CFI_H */
