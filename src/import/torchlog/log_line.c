/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_line.c - what stands before the message.
 *
 *   [rank3]:V1120 23:42:27.869000 28211 torch/_dynamo/guards.py:2791] [4/1] [__recompiles] Recompiling ...
 *   [rank1]:[E810 03:04:11.061727749 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog ...
 *   [default0]: [2024-01-01 12:00:00] iteration 10/ 1000 | ...
 *   2025-10-03 18:37:01,832 - root - INFO - step: 10 ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/source/stamp.h"
#include "import/torchlog/torchlog.h"

#define SECOND INT64_C(1000000000)
enum { PID_MAX = 4194304, RANK_MAX = 1 << 20 };

/* ESC [ ... letter, and ESC ] ... BEL. */
static void strip_escapes(char *p)
{
	char *to = p;

	if (!strchr(p, '\x1b'))
		return;
	while (*p) {
		if (*p != '\x1b') {
			*to++ = *p++;
			continue;
		}
		p++;
		if (*p == '[') {
			p++;
			while (*p && (*p < '@' || *p > '~'))
				p++;
		} else if (*p == ']') {
			while (*p && *p != '\a')
				p++;
		}
		p += *p != 0;
	}
	*to = 0;
}

/* A number that ends with c, at *p, which moves behind c. */
static int number_then(const char **p, char c, int64_t max, int64_t *ret)
{
	const char *q = *p;
	int64_t v = 0;

	if (*q < '0' || *q > '9')
		return 0;
	for (; *q >= '0' && *q <= '9'; q++) {
		if (v > (max - (*q - '0')) / 10)
			return 0;
		v = v * 10 + (*q - '0');
	}
	if (*q != c)
		return 0;
	*ret = v;
	*p = q + 1;
	return 1;
}

/* "[rank3]:", "[default0]:" (torchrun's: among the ranks of a host), "3:" (srun -l) */
static int rank_prefix(const char **p, struct lg_log_line *l)
{
	static const char *const before[] = { "[rank", "[default", "[Rank ", "" };
	int64_t v;

	for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
		size_t k = strlen(before[i]);
		const char *q = *p + k;

		if (strncmp(*p, before[i], k) || !number_then(&q, k ? ']' : ':', k ? RANK_MAX : 99999, &v))
			continue;
		if (i == 2)
			return 0; /* "[Rank 1] Watchdog ...": part of the message; see message_rank() */
		if ((!k && (*q != ' ' || l->ts != INT64_MIN)) || (i == 1 && l->local >= 0))
			continue;
		*(i == 1 ? &l->local : &l->rank) = (int32_t)v;
		q += *q == ':';
		*p = q + strspn(q, " ");
		return 1;
	}
	return 0;
}

static int64_t resolution_of(const struct lg_stamp *t)
{
	return t->digits >= 9 ? 1 : t->digits >= 6 ? 1000 : t->digits >= 3 ? 1000000 : SECOND;
}

/* "V1120 23:42:27.869000 28211 torch/x.py:435]" and, in brackets, "E810 03:04:11.061 File.cpp:683]". */
static int glog(const char **p, int year, struct lg_log_line *l)
{
	const char *q = *p + (**p == '['), *bracket;
	struct lg_stamp t;
	int digits = 0, md, month, day;
	size_t k;
	int64_t pid;

	if (!*q || !strchr("VDIWECF", *q))
		return 0;
	while (q[1 + digits] >= '0' && q[1 + digits] <= '9' && digits < 5)
		digits++;
	if ((digits != 3 && digits != 4) || q[1 + digits] != ' ')
		return 0;
	md = lg_digits(q + 1, digits);
	month = md / 100;
	day = md % 100;
	if (month < 1 || month > 12 || day < 1 || day > 31)
		return 0;
	k = lg_stamp_read(q + digits + 2, strlen(q + digits + 2), &t);
	if (!k || t.has_date)
		return 0;
	l->level = *q;
	q += digits + 2 + k;
	q += strspn(q, " ");
	bracket = q;
	if (number_then(&bracket, ' ', INT64_C(1) << 60, &pid)) {
		/* torch up to 2.2 prints the Python thread's address there */
		if (pid > 0 && pid <= PID_MAX)
			l->pid = (int32_t)pid;
		q = bracket;
	}
	bracket = strchr(q, ']');
	if (!bracket || bracket - q > 512 || !memchr(q, ':', (size_t)(bracket - q)))
		return 0;
	l->ts = lg_days(year, month, day) * 86400 * SECOND + t.ns;
	l->resolution = resolution_of(&t);
	l->is_glog = l->has_day = 1;
	*p = bracket + 1 + (bracket[1] == ' '); /* further spaces are the record's indentation */
	return 1;
}

/*
 * "03/14/2026 09:26:53", the month first unless it cannot be, "14.03.2026 09:26:53,123", the day first, and
 * seconds since 1970 with a fraction. Bytes used, 0 = none.
 */
static size_t other_date(const char *s, struct lg_stamp *t)
{
	size_t n = strnlen(s, 40), k;
	char text[48];
	int a, b, year = 0;
	int64_t seconds;

	if (n > 12 && s[10] == '.' && lg_digits(s, 5) >= 10000 && lg_digits(s + 5, 5) >= 0) {
		seconds = (int64_t)lg_digits(s, 5) * 100000 + lg_digits(s + 5, 5);
		k = strspn(s + 11, "0123456789");
		if (k < 1 || k > 9 || (s[11 + k] != ' ' && s[11 + k] != ']'))
			return 0;
		*t = (struct lg_stamp){ .has_date = 1, .has_zone = 1, .digits = (int)k };
		t->ns = lg_digits(s + 11, (int)k);
		for (size_t i = k; i < 9; i++)
			t->ns *= 10;
		t->ns += seconds * SECOND;
		return 11 + k;
	}
	if (n < 19 || (s[2] != '/' && s[2] != '.') || s[5] != s[2] || s[10] != ' ')
		return 0;
	a = lg_digits(s, 2);
	b = lg_digits(s + 3, 2);
	year = lg_digits(s + 6, 4);
	if (a < 1 || b < 1 || year < 0)
		return 0;
	if (s[2] == '.' ? b <= 12 : a > 12) {
		int day = a;

		a = b;
		b = day;
	}
	snprintf(text, sizeof text, "%04d-%02d-%02d%.*s", year, a, b, (int)(n - 10), s + 10);
	return lg_stamp_read(text, strlen(text), t);
}

/* A date and time, bare or in brackets, with the usual separators behind it. */
static int stamp(const char **p, struct lg_log_line *l)
{
	const char *q = *p + (**p == '[' || **p == '(');
	struct lg_stamp t;
	size_t k = lg_stamp_read(q, strlen(q), &t);

	if (!k && !(k = other_date(q, &t)))
		return 0;
	if (!t.has_date)
		return 0;
	l->ts = t.ns;
	l->has_zone = t.has_zone;
	l->has_year = l->has_day = 1;
	l->resolution = resolution_of(&t);
	q += k;
	if (**p == '[' || **p == '(') {
		const char *close = strchr(q, **p == '[' ? ']' : ')');

		if (close && close - q < 32)
			q = close + 1;
	}
	*p = q + strspn(q, " ,:-|");
	return 1;
}

/* "Nov 20 09:26:53 ", the day with a space or a zero before it: RFC 3164, section 4.1.2, which has no year. */
static int syslog_stamp(const char **p, int year, struct lg_log_line *l)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const char *q = *p, *month = strnlen(q, 16) < 16 ? NULL : memmem(months, sizeof months - 1, q, 3);
	struct lg_stamp t;
	int day;
	size_t k;

	if (!month || (month - months) % 3 || q[3] != ' ' || q[6] != ' ')
		return 0;
	day = q[4] == ' ' ? lg_digits(q + 5, 1) : lg_digits(q + 4, 2);
	k = lg_stamp_read(q + 7, strlen(q + 7), &t);
	if (day < 1 || day > 31 || !k || t.has_date || q[7 + k] != ' ')
		return 0;
	l->ts = lg_days(year, (int)(month - months) / 3 + 1, day) * 86400 * SECOND + t.ns;
	l->resolution = resolution_of(&t);
	l->has_day = 1;
	*p = q + 7 + k + 1;
	return 1;
}

/* "host program[1234]: ", which loggers of the system put between the time and what was printed. */
static void syslog_tag(const char **p, struct lg_log_line *l)
{
	const char *host_end = *p + strcspn(*p, " "), *tag = host_end + (*host_end == ' '), *q;
	int64_t pid;

	q = tag + strcspn(tag, " [:");
	if (host_end == *p || q == tag || *q != '[' || q - *p > 128)
		return;
	q++;
	if (!number_then(&q, ']', PID_MAX, &pid) || pid < 1 || q[0] != ':' || q[1] != ' ')
		return;
	l->pid = (int32_t)pid;
	*p = q + 2;
}

/* "[09:26:53]", "09:26:53.123 ", "09:26:53 | ": a time without a date begins the line. */
static int time_of_day(const char **p, struct lg_log_line *l)
{
	const char *q = *p + (**p == '[');
	struct lg_stamp t;
	size_t k = lg_stamp_read(q, strlen(q), &t);

	if (!k || t.has_date || (**p == '[' ? q[k] != ']' : q[k] != ' '))
		return 0;
	l->ts = t.ns;
	l->resolution = resolution_of(&t);
	q += k + 1;
	*p = q + strspn(q, " ,:-|");
	return 1;
}

/* "[titan] 2025-01-01 ...": a name before the time */
static int name_before_stamp(const char **p, struct lg_log_line *l)
{
	const char *end = **p == '[' ? strchr(*p, ']') : NULL, *q;

	if (!end || end - *p > 40 || end[1] != ' ')
		return 0;
	q = end + 2;
	if (!stamp(&q, l))
		return 0;
	*p = q;
	return 1;
}

/* "[4/1]", "[0/2_1]", "[!0/4/1]" (compiled autograd), "[__recompiles]" */
static void brackets(const char **p, struct lg_log_line *l)
{
	while (**p == '[') {
		const char *q = *p + 1, *end = strchr(q, ']');
		int64_t a, b;

		if (!end || end - q > 40)
			return;
		if (!strncmp(q, "__", 2)) {
			size_t k = (size_t)(end - q) - 2;

			k = k < sizeof l->artifact - 1 ? k : sizeof l->artifact - 1;
			memcpy(l->artifact, q + 2, k);
			l->artifact[k] = 0;
		} else {
			if (*q == '!' && strchr(q, '/'))
				q = strchr(q, '/') + 1;
			if (!number_then(&q, '/', INT32_MAX, &a))
				return;
			b = strtol(q, NULL, 10);
			l->frame = (int32_t)a;
			l->compile = b >= 0 && b < INT32_MAX ? (int32_t)b : -1;
		}
		*p = end + 1 + (end[1] == ' ');
	}
}

/*
 * "[Rank 1] Watchdog", "[PG 0 (default_pg) Rank 1] Exception", "[PG ID 0 PG GUID 0(default_pg) Rank 1]". In
 * other groups the rank is the one that the process has there (ProcessGroupNCCL.cpp, createLogPrefix), not
 * the job's.
 */
static void message_rank(struct lg_log_line *l)
{
	const char *at = l->msg, *end, *r;
	int64_t v;

	if (*at != '[' || !(end = strchr(at, ']')) || end - at > 120)
		return;
	if (!strncmp(at, "[PG ", 4) && strncmp(at, "[PG 0 Rank ", 11) &&
	    !memmem(at, (size_t)(end - at), "default_pg", 10) &&
	    !memmem(at, (size_t)(end - at), "GUID 0 Rank ", 12))
		return;
	r = memmem(at, (size_t)(end - at), "Rank ", 5);
	if (r) {
		r += 5;
		if (number_then(&r, ']', RANK_MAX, &v) && l->rank < 0)
			l->rank = (int32_t)v;
	}
}

void lg_log_line_parse(char *text, int year, struct lg_log_line *ret)
{
	const char *p = text;

	strip_escapes(text);
	*ret = (struct lg_log_line){ .ts = INT64_MIN, .rank = -1, .local = -1, .pid = -1, .frame = -1,
				     .compile = -1, .text = text };
	for (int i = 0; i < 5; i++) {
		p += strspn(p, " ");
		if (!ret->is_glog && glog(&p, year, ret)) {
			brackets(&p, ret);
			break;
		}
		if (ret->ts == INT64_MIN &&
		    (stamp(&p, ret) || name_before_stamp(&p, ret) || syslog_stamp(&p, year, ret))) {
			syslog_tag(&p, ret);
			continue;
		}
		if (ret->ts == INT64_MIN && time_of_day(&p, ret))
			continue;
		if (ret->rank >= 0 || !rank_prefix(&p, ret))
			break;
	}
	ret->msg = p;
	message_rank(ret);
}
