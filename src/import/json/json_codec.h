/* SPDX-License-Identifier: Apache-2.0 */
/* json_codec.h - bytes of a file out of their compression, in blocks. Used by json_source.c only. */
#ifndef LG_IMPORT_JSON_CODEC_H
#define LG_IMPORT_JSON_CODEC_H
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct lg_json_codec;

/* fd is read from its position; with fd < 0 the n bytes at data are the file. */
int lg_json_codec_new(struct lg_json_codec **ret, int fd, const void *data, size_t n,
		      struct lg_error *err) LG_MUST_CHECK;
/*
 * Fill out (size bytes); *ret_n < size only at the end. LG_E_IO with *ret_errno. Damaged or cut off
 * compressed data ends the text: lg_json_codec_fault() says so.
 */
int lg_json_codec_read(struct lg_json_codec *c, char *out, size_t size, size_t *ret_n,
		       int *ret_errno) LG_MUST_CHECK;
const char *lg_json_codec_fault(const struct lg_json_codec *c); /* "" = none */
void lg_json_codec_free(struct lg_json_codec *c);

#endif /* LG_IMPORT_JSON_CODEC_H */
