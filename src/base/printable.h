/* SPDX-License-Identifier: Apache-2.0 */
/*
 * printable.h - text from outside, made harmless where a person or a machine reads lines.
 *
 * Names in a trace are chosen by whoever wrote the file or named the process: they can hold what steers
 * a terminal, what begins a new line, what turns the order of letters round (bidirectional marks), and what a
 * CI runner takes for a command of its own ("::error::" at a line's start, "##[...]" anywhere in it).
 */
#ifndef LG_BASE_PRINTABLE_H
#define LG_BASE_PRINTABLE_H
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at s that may be shown as it is; 0: it may not (control characters of C0 and C1,
 * line and paragraph separators, bidirectional marks, what is no UTF-8, the terminating zero). */
size_t lg_printable(const unsigned char *s);
/*
 * text as one line: what may not be shown becomes \n, \r, \t or \xNN, a byte each; so does the second # of
 * "##", and, where starts_line is set, the second colon of a "::" behind nothing but spaces. At most size - 1
 * bytes and a terminating zero: what does not fit is cut, "..." at its end. Returns to.
 */
const char *lg_show(char *to, size_t size, const char *text, bool starts_line);
/* How many of n bytes fit into `most` without a part of a UTF-8 sequence behind them. */
static inline size_t lg_whole_chars(const char *s, size_t n, size_t most)
{
	size_t k = n < most ? n : most;

	for (int back = 0; back < 3 && k && k < n && ((unsigned char)s[k] & 0xc0) == 0x80; back++)
		k--;
	return k;
}
/* Would a CI runner take a line that begins with text for a command? */
bool lg_is_command(const char *text);

#endif /* LG_BASE_PRINTABLE_H */
