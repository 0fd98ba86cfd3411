/* SPDX-License-Identifier: Apache-2.0 */
#include "base/printable.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Marks that change how other letters are laid out (UAX #9, 2.1 to 2.4), and separators of lines. */
static bool misleads(uint32_t c)
{
	return c == 0x061c || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

size_t lg_printable(const unsigned char *s)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] <= 0xdf ? 2 :
		     s[0] >= 0xe0 && s[0] <= 0xef ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
	uint32_t c = 0;

	if (len == 1)
		return s[0] >= 0x20 && s[0] != 0x7f;
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if (len == 2 && s[0] == 0xc2 && s[1] < 0xa0) /* C1 controls steer terminals as C0 does */
		return 0;
	if (len == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)))
		return 0;
	if (len == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)))
		return 0;
	if (len == 2)
		c |= (s[0] & 0x1fu) << 6;
	else if (len == 3)
		c |= (s[0] & 0x0fu) << 12;
	if (len < 4 && misleads(c))
		return 0;
	return len;
}

bool lg_is_command(const char *text)
{
	text += strspn(text, " ");
	return text[0] == ':' && text[1] == ':';
}

static size_t escape(char *to, size_t size, unsigned char c)
{
	const char *at = c ? strchr("\nn\rr\tt", c) : NULL;

	if (at)
		return (size_t)snprintf(to, size, "\\%c", at[1]);
	return (size_t)snprintf(to, size, "\\x%02x", c);
}

const char *lg_show(char *to, size_t size, const char *text, bool starts_line)
{
	const unsigned char *s = (const unsigned char *)text;
	const unsigned char *colon = starts_line && lg_is_command(text) ? s + strspn(text, " ") + 1 : NULL;
	size_t n = 0, whole = 0; /* whole: how much may stay when "..." is put behind it */

	while (*s) {
		size_t len = s == colon || (*s == '#' && s > (const unsigned char *)text && s[-1] == '#')
				     ? 0 : lg_printable(s);
		size_t used = len ? len : 1;
		char piece[8];

		if (len)
			memcpy(piece, s, len);
		else
			len = escape(piece, sizeof piece, *s);
		if (n + len + 1 > size) {
			n = whole;
			if (n + 4 <= size)
				n += (size_t)snprintf(to + n, size - n, "...");
			break;
		}
		memcpy(to + n, piece, len);
		s += used;
		n += len;
		if (n + 4 <= size)
			whole = n;
	}
	if (size)
		to[n] = 0;
	return to;
}
