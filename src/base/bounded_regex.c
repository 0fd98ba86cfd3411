/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bounded_regex.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RE_MAX = 512, PLACES_MAX = 1000, DEPTH_MAX = 32 };

/* The end of a bracket expression that begins at p: "[", a "]" right behind it, "[:alpha:]". */
static const char *bracket_end(const char *p)
{
	p += p[1] == '^' ? 2 : 1;
	p += *p == ']';
	while (*p && *p != ']') {
		const char *close = *p == '[' && p[1] && strchr(":.=", p[1]) ? strchr(p + 2, ']') : NULL;

		p = close ? close + 1 : p + 1;
	}
	return *p ? p : p - 1;
}

/* How many places the automaton has about, repetitions written out; nested ones multiply. */
static double places(const char *re, bool *ret_back_reference)
{
	double group[DEPTH_MAX], here = 0, last = 0;
	size_t depth = 0;

	*ret_back_reference = false;
	for (const char *p = re; *p; p++) {
		if (*p == '(' && depth < DEPTH_MAX) {
			group[depth++] = here;
			here = last = 0;
			continue;
		}
		if (*p == '(')
			return PLACES_MAX + 1; /* deeper than anybody writes */
		if (*p == ')' && depth) {
			last = here > 1 ? here : 1;
			here = group[--depth] + last;
			continue;
		}
		if (*p == '{' && isdigit((unsigned char)p[1])) {
			double n = strtod(p + 1, NULL);
			const char *comma = strpbrk(p, ",}");

			if (comma && *comma == ',' && isdigit((unsigned char)comma[1]))
				n = strtod(comma + 1, NULL);
			here += n > 1 ? last * (n - 1) : 0;
			last *= n > 1 ? n : 1;
			p += strcspn(p, "}");
			p -= !*p;
			continue;
		}
		if (*p == '\\' && p[1]) {
			p++;
			*ret_back_reference |= *p >= '1' && *p <= '9';
		} else if (*p == '[') {
			p = bracket_end(p);
		}
		last = 1;
		here++;
	}
	while (depth)
		here += group[--depth];
	return here;
}

int lg_regex_bounded(const char *re, struct lg_error *err)
{
	bool back;

	if (strlen(re) > RE_MAX || strchr(re, '\n'))
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "the expression is longer than %d bytes, or than a "
			       "line", RE_MAX);
	if (places(re, &back) > (double)PLACES_MAX)
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "\"%.80s\": its repetitions {n,m} multiply to too much",
			       re);
	if (back)
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "\"%.80s\": back references (\\1 to \\9) are not "
			       "supported", re);
	return 0;
}
