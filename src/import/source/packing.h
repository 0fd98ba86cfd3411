/* SPDX-License-Identifier: Apache-2.0 */
/* packing.h - how the head of a file tells that it is compressed. */
#ifndef LG_IMPORT_SOURCE_PACKING_H
#define LG_IMPORT_SOURCE_PACKING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A member that is deflated, the one method there is (RFC 1952, 2.3.1). */
static inline bool lg_is_gzip(const void *head, size_t n)
{
	const uint8_t *p = head;

	return n >= 3 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8;
}

/* A frame, or a skippable one, with which pzstd begins every file (RFC 8878, sections 3.1.1 and 3.1.2). */
static inline bool lg_is_zstd(const void *head, size_t n)
{
	const uint8_t *p = head;

	return n >= 4 && ((p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd) ||
			  ((p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18));
}

/* The .xz file format, 2.1.1.1. */
static inline bool lg_is_xz(const void *head, size_t n)
{
	const uint8_t *p = head;

	return n >= 6 && p[0] == 0xfd && p[1] == '7' && p[2] == 'z' && p[3] == 'X' && p[4] == 'Z' && !p[5];
}

#endif /* LG_IMPORT_SOURCE_PACKING_H */
