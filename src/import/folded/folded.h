/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folded.h - stacks folded to one line each: "outermost;...;innermost COUNT" (FlameGraph's
 * stackcollapse, py-spy record -f raw, bpftrace and others). A line is one sample of that weight. The
 * first element is the thread where the maker puts one there ("comm", "comm-pid", "thread (0x..):
 * name", 'process 7:"python"').
 */
#ifndef LG_IMPORT_FOLDED_FOLDED_H
#define LG_IMPORT_FOLDED_FOLDED_H
#include "import/import.h"

extern const struct lg_importer lg_import_folded;

#endif /* LG_IMPORT_FOLDED_FOLDED_H */
