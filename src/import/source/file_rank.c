/* SPDX-License-Identifier: Apache-2.0 */
#include "import/source/file_rank.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { RANK_MAX = 1 << 20 };

static bool starts(const char *p, const char *word)
{
	return !strncasecmp(p, word, strlen(word));
}

/* Behind the word: the number, and that it ends well; -1 = none. */
static int32_t number(const char *p, bool whole)
{
	int32_t v = 0;

	if (*p == '-' || *p == '_' || *p == '=')
		p++;
	if (!isdigit((unsigned char)*p))
		return -1;
	for (; isdigit((unsigned char)*p) && v < RANK_MAX; p++)
		v = v * 10 + (*p - '0');
	if (v >= RANK_MAX || isdigit((unsigned char)*p) || (whole && *p && *p != '.'))
		return -1;
	return v;
}

int32_t lg_file_rank(const char *path)
{
	const char *base = strrchr(path, '/');
	int32_t found = -1;

	/* A copy of a pipe has a number, not a name. */
	if (!strncmp(path, "/proc/self/fd/", 14))
		return -1;
	base = base ? base + 1 : path;
	for (const char *p = base; *p; p++) {
		int32_t v = -1;

		if (p > base && isalpha((unsigned char)p[-1]))
			continue;
		if (starts(p, "rank") &&
		    !(p - base >= 6 && starts(p - 6, "local")))
			v = number(p + 4, false);
		else if (starts(p, "worker") && p == base)
			v = number(p + 6, true);
		found = v >= 0 ? v : found;
	}
	return found;
}

int32_t lg_log_file_rank(const char *path)
{
	int32_t v = lg_file_rank(path);
	const char *in = strstr(path, "/attempt_"), *next;

	if (v >= 0 || (!in && !starts(path, "attempt_")))
		return v;
	for (in = in ? in + 1 : path; (next = strstr(in, "/attempt_")); in = next + 1)
		;
	in += strlen("attempt_");
	in += strspn(in, "0123456789");
	if (*in != '/' || !starts(in + 1 + strspn(in + 1, "0123456789"), "/std"))
		return -1;
	for (in++; isdigit((unsigned char)*in) && v < RANK_MAX; in++)
		v = (v < 0 ? 0 : v) * 10 + (*in - '0');
	return *in == '/' && v < RANK_MAX ? v : -1;
}
