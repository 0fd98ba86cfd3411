/* SPDX-License-Identifier: Apache-2.0 */
/* lag.h - laggard's own recordings (the reader is store/lag_read.c). */
#ifndef LG_IMPORT_LAG_LAG_H
#define LG_IMPORT_LAG_LAG_H
#include "import/import.h"

extern const struct lg_importer lg_import_lag;

#endif /* LG_IMPORT_LAG_LAG_H */
