/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_read.h - read a .lag file (layout: lag_chunk.h, laggard-format(5)).
 *
 * The file is untrusted: every size is checked before memory is taken for it, every checksum
 * before a byte is used. Damage costs the chunks it hits and is counted in FILE_DAMAGED rows, a
 * missing end in a FILE_TRUNCATED row; only a file in which nothing is readable is an error,
 * which carries the byte offset.
 */
#ifndef LG_STORE_LAG_READ_H
#define LG_STORE_LAG_READ_H
#include "store/builder.h"

/* Into a new builder (ids are taken over as they are). path "-" is standard input. */
int lg_lag_read(const char *path, struct lg_builder *b, struct lg_error *err) LG_MUST_CHECK;
/* The same from memory (tests, fuzzing). */
int lg_lag_read_bytes(const void *p, size_t n, struct lg_builder *b,
		      struct lg_error *err) LG_MUST_CHECK;
/* Read and seal. */
int lg_lag_open(const char *path, struct lg_trace **ret, struct lg_error *err) LG_MUST_CHECK;
/* 0 = not a .lag file ... 100 = certain, by its first bytes. */
int lg_lag_sniff(const uint8_t *head, size_t n);

#endif /* LG_STORE_LAG_READ_H */
