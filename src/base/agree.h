/* SPDX-License-Identifier: Apache-2.0 */
/* agree.h - sentences in which nouns and verbs agree with the numbers before them: "1 wait", "2 waits". */
#ifndef LG_BASE_AGREE_H
#define LG_BASE_AGREE_H
#include <stdarg.h>
#include <stddef.h>

/*
 * vsnprintf() of a skeleton that is written in the plural: where a whole number (%zu, %d, %.0f ...) comes out
 * as 1, the noun behind it is its singular, and so are verbs behind that: "%zu of %zu devices show" becomes
 * "1 of 2 devices shows". Only words of the skeleton change, and those that agree.c knows. Returns how many
 * characters the text has without its end; of one that does not fit into buf, as many as it has at most.
 */
int lg_vagree(char *buf, size_t size, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));
/* The same as snprintf(). */
int lg_agree(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif /* LG_BASE_AGREE_H */
