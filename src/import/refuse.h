/* SPDX-License-Identifier: Apache-2.0 */
/* refuse.h - the one line for a file from which no importer can read anything. */
#ifndef LG_IMPORT_REFUSE_H
#define LG_IMPORT_REFUSE_H
#include <stddef.h>

#include "base/error.h"
#include "import/source/head.h"

/*
 * 0, or LG_E_FORMAT and why nothing at all comes out of a gzip, zstd or xz file: where it ends or is wrong.
 * path is opened only where its first bytes alone do not tell. name: what people call it.
 */
int lg_refuse_packed(const char *name, const char *path, const uint8_t *head, size_t n, struct lg_error *err)
	LG_MUST_CHECK;
#define LG_REFUSE_LIST "; laggard reads: "
/*
 * For whoever named the wrong file: what it seems to be, LG_REFUSE_LIST and formats, what could have been
 * read: separated by ", ", as many whole ones as the line has room for.
 */
int lg_refuse_unknown(const char *name, const struct lg_head *h, const char *formats, struct lg_error *err);

#endif /* LG_IMPORT_REFUSE_H */
