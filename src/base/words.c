/* SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *lg_ms_text(double ms, char buf[LG_MS_TEXT])
{
	static const struct {
		double below, ms;
		const char *name;
	} units[] = { { 1e-3, 1e-6, "ns" }, { 0.1, 1e-3, "us" }, { 999.5, 1, "ms" }, { INFINITY, 1000, "s" } };
	size_t u = 0;
	double v;
	int decimals;

	while (fabs(ms) >= units[u].below && u + 1 < sizeof units / sizeof *units)
		u++;
	v = ms / units[u].ms;
	decimals = fabs(v) >= 99.95 ? 0 : fabs(v) >= 9.995 ? 1 : 2;
	snprintf(buf, LG_MS_TEXT, "%.*f", decimals, v);
	/* No zeros at the end: they would promise digits that nobody measured. */
	for (size_t n = decimals ? strlen(buf) : 0; n && (buf[n - 1] == '0' || buf[n - 1] == '.'); n--) {
		bool point = buf[n - 1] == '.';

		buf[n - 1] = 0;
		if (point)
			break;
	}
	snprintf(buf + strlen(buf), LG_MS_TEXT - strlen(buf), " %s", units[u].name);
	return buf;
}

const char *lg_bytes_text(double bytes, char buf[LG_BYTES_TEXT])
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	unsigned u = 0;
	double v = bytes < 0 ? -bytes : bytes;

	for (; v >= 1024 && u < 4; u++)
		v /= 1024;
	snprintf(buf, LG_BYTES_TEXT, u ? "%s%.2f %s" : "%s%.0f %s", bytes < 0 ? "-" : "", v, units[u]);
	return buf;
}

const char *lg_ordinal_text(uint64_t n, char buf[LG_ORDINAL_TEXT])
{
	static const char *const ends[] = { "th", "st", "nd", "rd" };
	uint64_t last = n / 10 % 10 == 1 ? 0 : n % 10;

	snprintf(buf, LG_ORDINAL_TEXT, "%llu%s", (unsigned long long)n, ends[last < 4 ? last : 0]);
	return buf;
}
