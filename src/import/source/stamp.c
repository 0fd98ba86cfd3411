/* SPDX-License-Identifier: Apache-2.0 */
#include "import/source/stamp.h"

#include <time.h>

#define SECOND INT64_C(1000000000)

int lg_digits(const char *s, int n)
{
	int v = 0;

	for (int i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (s[i] - '0');
	}
	return v;
}

/* Howard Hinnant's days_from_civil, from the definition of the Gregorian calendar's 400-year era. */
int64_t lg_days(int64_t year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year, era = (y >= 0 ? y : y - 399) / 400;
	int64_t yoe = y - era * 400, doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* "2025-10-03", "2025/10/03" or "20251003" */
static size_t date(const char *s, size_t n, int64_t *ret_days)
{
	int dense = n >= 8 && lg_digits(s, 8) >= 0;
	int y, m, d;

	if (!dense && (n < 10 || (s[4] != '-' && s[4] != '/') || s[7] != s[4]))
		return 0;
	y = lg_digits(s, 4);
	m = lg_digits(s + (dense ? 4 : 5), 2);
	d = lg_digits(s + (dense ? 6 : 8), 2);
	if (y < 1970 || y > 2200 || m < 1 || m > 12 || d < 1 || d > 31)
		return 0;
	*ret_days = lg_days(y, m, d);
	return dense ? 8 : 10;
}

static size_t zone(const char *s, size_t n, int64_t *ret_seconds)
{
	int h, m = 0;
	size_t used = 3;

	if (n && *s == 'Z') {
		*ret_seconds = 0;
		return 1;
	}
	if (n < 3 || (*s != '+' && *s != '-') || (h = lg_digits(s + 1, 2)) < 0 || h > 14)
		return 0;
	if (n >= 6 && s[3] == ':' && lg_digits(s + 4, 2) >= 0) {
		m = lg_digits(s + 4, 2);
		used = 6;
	} else if (n >= 5 && lg_digits(s + 3, 2) >= 0) {
		m = lg_digits(s + 3, 2);
		used = 5;
	}
	*ret_seconds = (*s == '-' ? -1 : 1) * (h * 3600 + m * 60);
	return used;
}

size_t lg_stamp_read(const char *s, size_t n, struct lg_stamp *ret)
{
	int64_t days = 0, offset, frac = 0;
	size_t at = date(s, n, &days), k;
	struct lg_stamp t = { .has_date = at > 0 };
	int h, m, sec;

	if (at) {
		if (at >= n || (s[at] != ' ' && s[at] != 'T' && s[at] != '_'))
			return 0;
		while (at < n && (s[at] == ' ' || s[at] == 'T' || s[at] == '_'))
			at++;
	}
	if (n - at < 8 || s[at + 2] != ':' || s[at + 5] != ':')
		return 0;
	h = lg_digits(s + at, 2);
	m = lg_digits(s + at + 3, 2);
	sec = lg_digits(s + at + 6, 2);
	if (h < 0 || h > 23 || m < 0 || m > 59 || sec < 0 || sec > 60)
		return 0;
	at += 8;
	if (at + 1 < n && (s[at] == '.' || s[at] == ',') && s[at + 1] >= '0' && s[at + 1] <= '9')
		for (at++; at < n && s[at] >= '0' && s[at] <= '9'; at++)
			if (t.digits < 9) {
				frac = frac * 10 + (s[at] - '0');
				t.digits++;
			}
	for (int i = t.digits; i < 9; i++)
		frac *= 10;
	t.ns = ((days * 24 + h) * 60 + m) * 60 * SECOND + sec * SECOND + frac;
	k = t.has_date ? zone(s + at, n - at, &offset) : 0;
	if (k) {
		t.ns -= offset * SECOND;
		t.has_zone = 1;
		at += k;
	}
	*ret = t;
	return at;
}

const char *lg_time_base_name(enum lg_time_base base)
{
	static const char *const name[] = { "realtime", "local", "relative", "none" };

	return name[base];
}

void lg_time_base(struct lg_builder *b, enum lg_time_base base, int64_t ts, int64_t error,
		  const char *source)
{
	lg_add_meta(b, &(struct lg_meta_row){ .ts = INT64_MIN, .key = lg_intern(b, "import.clock"),
					      .value = lg_intern(b, lg_time_base_name(base)) });
	if (base == LG_TIME_REALTIME)
		lg_add_clock(b, &(struct lg_clock_row){ .ts = ts, .value = ts,
							.clock = CLOCK_REALTIME, .error = error,
							.source = lg_intern(b, source) });
}
