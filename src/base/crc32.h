/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.h - the checksum of gzip (RFC 1952, section 8), at memory speed where the CPU can multiply
 * without carries. */
#ifndef LG_BASE_CRC32_H
#define LG_BASE_CRC32_H
#include <stddef.h>
#include <stdint.h>

/* Continue crc (0 at first) over the n bytes at p. */
uint32_t lg_crc32(uint32_t crc, const void *p, size_t n);

#endif /* LG_BASE_CRC32_H */
