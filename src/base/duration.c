/* SPDX-License-Identifier: Apache-2.0 */
#include "base/duration.h"

#include <stdlib.h>
#include <string.h>

int64_t lg_parse_duration(const char *s)
{
	static const struct { const char *unit; double ns; } units[] = {
		{ "", 1e9 }, { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 },
		{ "m", 60e9 }, { "min", 60e9 }, { "h", 3600e9 }, { "d", 86400e9 },
	};
	char *end;
	double v;

	/* strtod would also take " 1", "inf", "0x1p3" and "nan". */
	if (!(*s >= '0' && *s <= '9') && *s != '.')
		return -1;
	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		return -1;
	v = strtod(s, &end);
	if (end == s || v < 0)
		return -1;
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		if (strcmp(end, units[i].unit))
			continue;
		/* 2^63 ns; half a nanosecond is rounded up so that 0.1 s is 100000000. */
		if (!(v * units[i].ns < 9.2e18))
			return -1;
		return (int64_t)(v * units[i].ns + 0.5);
	}
	return -1;
}
