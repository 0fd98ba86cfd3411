/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - numbers as a sentence has them: "1 wait", "8.7 s". */
#ifndef LG_BASE_WORDS_H
#define LG_BASE_WORDS_H
#include <stdint.h>

enum { LG_MS_TEXT = 32, LG_BYTES_TEXT = 32, LG_ORDINAL_TEXT = 24 };

/* What a noun ends in behind n of it: printf("%zu wait%s", n, lg_s(n)). */
static inline const char *lg_s(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* A length of time in ms: three digits and a unit, never an exponent: "0.123 ms", "87 ms", "8.7 s". Returns buf. */
const char *lg_ms_text(double ms, char buf[LG_MS_TEXT]);
/* "1st", "12th", "22nd". Returns buf. */
const char *lg_ordinal_text(uint64_t n, char buf[LG_ORDINAL_TEXT]);
/* "1.70 GiB", "96.00 KiB", "12 bytes". Returns buf. */
const char *lg_bytes_text(double bytes, char buf[LG_BYTES_TEXT]);

#endif /* LG_BASE_WORDS_H */
