/* SPDX-License-Identifier: Apache-2.0 */
/* agent_settings.c - the one table of what laggard agent can be told, in its file and on its command line. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/order.h"
#include "cli/agent.h"
#include "cli/bounds.h"
#include "cli/pids.h"

enum { FILE_MAX_BYTES = 64 << 10 };

enum kind { TEXT, DURATION, SIZE, SHARE, NUMBER };
static const struct {
	const char *key;
	enum kind kind;
	size_t at, size;
	double least, most; /* seconds, bytes, a share, a number */
	const char *want;
} settings[] = {
#define AT(member) offsetof(struct lg_agent_settings, member), sizeof ((struct lg_agent_settings *)0)->member
	{ "state", TEXT, AT(state), 0, 0, "a folder" },
	{ "store", TEXT, AT(store), 0, 0, "sqlite:PATH or http(s)://HOST:PORT/DB" },
	{ "user", TEXT, AT(user), 0, 0, "a name" },
	{ "token-file", TEXT, AT(token_file), 0, 0, "a file" },
	{ "ca-file", TEXT, AT(ca_file), 0, 0, "a file" },
	{ "cluster", TEXT, AT(cluster), 0, 0, "a name" },
	{ "node", TEXT, AT(node), 0, 0, "a name" },
	{ "textfile", TEXT, AT(textfile), 0, 0, "a file" },
	{ "scan", DURATION, AT(scan_ns), 0.5, 300, "a duration from 0.5s to 5m" },
	{ "flush", DURATION, AT(flush_ns), 0.5, 300, "a duration from 0.5s to 5m" },
	{ "window", DURATION, AT(window_ns), 5, 60, "a duration from 5s to 60s" },
	{ "keep", DURATION, AT(keep_ns), 60, 30 * 86400.0, "a duration from 1m to 30d" },
	{ "spool-size", SIZE, AT(spool_bytes), 4096, 1e12, "a size from 4K on, such as 1G" },
	{ "budget", SHARE, AT(budget), 0.0001, 1, "a share of a CPU for each rank, such as 0.5%" },
	{ "freq", NUMBER, AT(freq_hz), 0, 99, "samples a second, 0 to 99" },
	{ "metrics", NUMBER, AT(metrics), 0, 65535, "a port, 0 = none" },
	{ "jobs", NUMBER, AT(jobs), 1, LG_AGENT_JOBS, "a number of jobs, 1 to 8" },
#undef AT
};

struct lg_agent_settings lg_agent_defaults(void)
{
	struct lg_agent_settings s = { .state = "/var/lib/laggard", .scan_ns = 5 * LG_AGENT_SECOND,
				       .flush_ns = 10 * LG_AGENT_SECOND, .window_ns = 20 * LG_AGENT_SECOND,
				       .keep_ns = 86400 * LG_AGENT_SECOND, .spool_bytes = UINT64_C(1) << 30,
				       .budget = 0.005, .freq_hz = 19, .jobs = 4 };
	struct utsname u;

	if (!uname(&u))
		snprintf(s.node, sizeof s.node, "%.63s", u.nodename);
	return s;
}

static size_t find(const char *key)
{
	size_t i = 0;

	while (i < LG_COUNT(settings) && strcmp(settings[i].key, key))
		i++;
	return i;
}

bool lg_agent_is_setting(const char *key)
{
	return find(key) < LG_COUNT(settings);
}

static bool share(const char *s, double *ret)
{
	char *end;

	*ret = strtod(s, &end);
	if (end == s || *s == '-')
		return false;
	if (*end == '%') {
		*ret /= 100;
		end++;
	}
	return !*end;
}

int lg_agent_set(struct lg_agent_settings *s, const char *key, const char *value, struct lg_error *err)
{
	size_t i = find(key);
	int64_t n = -1;
	double v = 0;
	bool ok = false;
	char *to;
	long l;

	if (i == LG_COUNT(settings))
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "no setting \"%.60s\"", key);
	to = (char *)s + settings[i].at;
	switch (settings[i].kind) {
	case TEXT:
		ok = strlen(value) < settings[i].size;
		if (ok)
			snprintf(to, settings[i].size, "%s", value);
		break;
	case DURATION:
		n = lg_parse_duration(value);
		v = (double)n / 1e9;
		break;
	case SIZE:
		n = lg_parse_size(value);
		v = (double)n;
		break;
	case SHARE:
		ok = share(value, &v) && v >= settings[i].least && v <= settings[i].most;
		if (ok)
			memcpy(to, &v, sizeof v);
		break;
	case NUMBER:
		ok = lg_parse_number(value, (long)settings[i].least, (long)settings[i].most, &l);
		if (ok)
			memcpy(to, &l, sizeof l);
		break;
	}
	if (settings[i].kind == DURATION || settings[i].kind == SIZE) {
		ok = n >= 0 && v >= settings[i].least && v <= settings[i].most;
		if (ok)
			memcpy(to, &n, sizeof n);
	}
	return ok ? 0 : lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "%s: want %s, not \"%.100s\"", key, settings[i].want, value);
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t");
	n = strlen(s);
	while (n && strchr(" \t\r", s[n - 1]))
		s[--n] = 0;
	return s;
}

static int take_lines(struct lg_agent_settings *s, char *text, const char *path, struct lg_error *err)
{
	unsigned line = 0;
	int rc = 0;

	for (char *next = text; !rc && next;) {
		char *at = next, *eq;

		next = strchr(at, '\n');
		if (next)
			*next++ = 0;
		line++;
		at[strcspn(at, "#")] = 0;
		at = trim(at);
		if (!*at)
			continue;
		eq = strchr(at, '=');
		if (!eq)
			return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%.200s:%u: want KEY = VALUE", path, line);
		*eq = 0;
		rc = lg_agent_set(s, trim(at), trim(eq + 1), err);
		if (rc)
			return lg_error_prefix(err, "%.200s:%u: ", path, line);
	}
	return 0;
}

int lg_agent_read(struct lg_agent_settings *s, const char *path, bool must, struct lg_error *err)
{
	static char text[FILE_MAX_BYTES + 1];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_MAX_BYTES);
	int e = errno;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return fd < 0 && e == ENOENT && !must ? 0 : lg_fail_errno(err, e, "cannot read %.300s", path);
	if (n == FILE_MAX_BYTES)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%.300s is too long for settings", path);
	text[n] = 0;
	return take_lines(s, text, path, err);
}
