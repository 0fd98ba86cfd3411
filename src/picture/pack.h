/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h - numbers and texts as data blocks of a page: columns of variable-length integers,
 * compressed, in base64, in an element that no browser runs. Exactly one gzip member a block,
 * without a time: same numbers, same bytes.
 *
 * A block of columns: their number, then the length of each in bytes (32 bits, little-endian), then
 * the columns; seven bits a byte, the low ones first, the top bit says that more follow.
 */
#ifndef LG_PICTURE_PACK_H
#define LG_PICTURE_PACK_H
#include <stdint.h>

#include "base/out.h"

struct lg_column {
	uint8_t *v;
	size_t n, cap;
	int failed;
};

void lg_column_add(struct lg_column *c, uint64_t v);
void lg_column_add_signed(struct lg_column *c, int64_t v); /* 0, -1, 1, -2 ... */
void lg_columns_done(struct lg_column *c, size_t n);

/* Writes the element with id "b<id>"; *ret_bytes (may be NULL) is what it takes in the page. */
int lg_block_write(struct lg_out *o, uint32_t id, const void *p, size_t n,
		   size_t *ret_bytes) LG_MUST_CHECK;
int lg_columns_write(struct lg_out *o, uint32_t id, const struct lg_column *c, size_t n,
		     size_t *ret_bytes) LG_MUST_CHECK;

#endif /* LG_PICTURE_PACK_H */
