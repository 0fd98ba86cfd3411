/* SPDX-License-Identifier: Apache-2.0 */
/* perfscript.h - the text that perf script prints, plain or packed. */
#ifndef LG_IMPORT_PERFSCRIPT_PERFSCRIPT_H
#define LG_IMPORT_PERFSCRIPT_PERFSCRIPT_H
#include "import/import.h"

extern const struct lg_importer lg_import_perfscript;

#endif /* LG_IMPORT_PERFSCRIPT_PERFSCRIPT_H */
