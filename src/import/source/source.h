/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - the bytes or lines of an input, plain, gzip, zstd or xz (told by its first bytes).
 *
 * What cannot be unpacked ends the input early: lg_source_damage() then says where and why. One
 * thread.
 */
#ifndef LG_IMPORT_SOURCE_SOURCE_H
#define LG_IMPORT_SOURCE_SOURCE_H
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_source;

int lg_source_open(struct lg_source **ret, const char *path, struct lg_error *err) LG_MUST_CHECK;
void lg_source_close(struct lg_source *s);
/* Up to n unpacked bytes; 0 at the end. */
size_t lg_source_read(struct lg_source *s, void *buf, size_t n);
/*
 * The next line without its end ("\n", "\r\n", or "\r" of a progress bar), NUL-terminated, valid
 * until the next call. 1, or 0 at the end. A line beyond 1 MiB is cut; lg_source_cut() counts them.
 */
int lg_source_line(struct lg_source *s, char **ret_line, size_t *ret_n);
uint64_t lg_source_cut(const struct lg_source *s);
/* Unpacked bytes so far. */
uint64_t lg_source_offset(const struct lg_source *s);
/* NULL, or why the input ended before it should. */
const char *lg_source_damage(const struct lg_source *s);

/* The whole input, NUL-terminated (lg_free). LG_E_LIMIT beyond limit bytes. *ret_damage as above:
 * a string constant or NULL. */
int lg_source_all(const char *path, size_t limit, char **ret, size_t *ret_n,
		  const char **ret_damage, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_IMPORT_SOURCE_SOURCE_H */
