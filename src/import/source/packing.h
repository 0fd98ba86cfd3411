/* SPDX-License-Identifier: Apache-2.0 */
/* packing.h - how the head of a file tells that it is compressed. */
#ifndef LG_IMPORT_SOURCE_PACKING_H
#define LG_IMPORT_SOURCE_PACKING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Any of these, by its first bytes. */
static inline bool lg_is_packed(const void *head, size_t n)
{
	return lg_is_gzip(head, n) || lg_is_zstd(head, n) || lg_is_xz(head, n);
}

/* xz -9 takes 65 MiB; what takes more than this was made to. */
#define LG_XZ_MEMORY ((uint64_t)256 << 20)

/* What PowerShell and spreadsheets write in front of UTF-8 is no text: the first column is named "timestamp". */
static inline size_t lg_mark_size(const char *p, size_t n)
{
	return n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
}

/*
 * No trace shrinks so much: a .json.gz of a profiler by 10 to 40, a log that says the same over and over by
 * 100. What unpacks to more was made to fill memory, a disk or the time of who reads it (deflate goes to
 * 1032, zstd and xz to ten thousands); the first 256 MiB are let pass, which are read in a second or two.
 */
#define LG_SWOLLEN                                                                    \
	"it unpacks to more than 256 MiB and 256 times its size, and is read no "     \
	"further (unpacked by hand, it is read whole)"
static inline bool lg_is_swollen(uint64_t packed, uint64_t unpacked)
{
	return unpacked > (uint64_t)256 << 20 && unpacked / 256 > packed;
}

#endif /* LG_IMPORT_SOURCE_PACKING_H */
