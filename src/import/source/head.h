/* SPDX-License-Identifier: Apache-2.0 */
/* head.h - the first bytes of an input, as they are and unpacked: all that tells whose format it is. */
#ifndef LG_IMPORT_SOURCE_HEAD_H
#define LG_IMPORT_SOURCE_HEAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_head {
	const uint8_t *p; /* as they are; borrowed */
	size_t n;
	char *text;       /* unpacked if they are packed (up to 64 KiB then), without a byte order mark; a NUL
			   * behind it */
	size_t n_text;
};

/* Unpacks once what every format looks at. p is borrowed until lg_head_done(). */
int lg_head_open(struct lg_head *h, const uint8_t *p, size_t n) LG_MUST_CHECK;
void lg_head_done(struct lg_head *h);
/* Does the text hold word? */
bool lg_head_has(const struct lg_head *h, const char *word);
/* No text: a byte of zero is in it. */
bool lg_head_is_binary(const struct lg_head *h);

#endif /* LG_IMPORT_SOURCE_HEAD_H */
