/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bounds.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "import/import.h"

#define GIB ((uint64_t)1 << 30)
/* What a trace needs in memory is 2 to 10 times its file, or 2 to 40 times a packed one. */
enum { TIMES = 64 };
/* No machine is so full that a small trace should not be read. */
#define LEAST (GIB / 4)

static uint64_t given, allowed, of_files;
static bool endless; /* an input without a size */

uint64_t lg_bounds(void)
{
	return allowed;
}

int64_t lg_parse_size(const char *s)
{
	static const char units[] = "kmgt";
	const char *unit;
	char *end;
	double v;

	if (!(*s >= '0' && *s <= '9'))
		return -1;
	v = strtod(s, &end);
	unit = *end ? strchr(units, *end | 0x20) : NULL;
	if (unit) {
		for (const char *u = units; u <= unit; u++)
			v *= 1024;
		end++;
		if (*end == 'i')
			end++;
		if (*end == 'B')
			end++;
	}
	return *end || v < 1 || v > 1e18 ? -1 : (int64_t)v;
}

int lg_max_memory_option(const struct lg_command *cmd, const char *size)
{
	int64_t n = lg_parse_size(size);

	if (n < (int64_t)64 << 20)
		return lg_usage(cmd, "--max-memory wants a size of 64M or more, such as 8G, not \"%s\"", size);
	given = (uint64_t)n;
	return -1;
}

/* The number behind key in a file of lines "key number"; UINT64_MAX where there is none. key "": the file's. */
static uint64_t number_in(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	uint64_t v = UINT64_MAX;
	char line[256];

	while (f && fgets(line, sizeof line, f)) {
		char *end, *at = line + strlen(key);

		if (strncmp(line, key, strlen(key)))
			continue;
		errno = 0;
		v = strtoull(at, &end, 10);
		if (end == at || errno) /* "max" */
			v = UINT64_MAX;
		break;
	}
	if (f)
		fclose(f);
	return v;
}

/* What the group at path may take beside what it has; page cache can be had back. */
static uint64_t free_in(const char *path, const char *max, const char *now)
{
	char file[4352];
	uint64_t limit, used, cache;

	snprintf(file, sizeof file, "%s/%s", path, max);
	limit = number_in(file, "");
	if (limit > INT64_MAX / 2) /* none; of v1 it is the largest multiple of a page */
		return UINT64_MAX;
	snprintf(file, sizeof file, "%s/%s", path, now);
	used = number_in(file, "");
	snprintf(file, sizeof file, "%s/memory.stat", path);
	cache = number_in(file, "inactive_file ");
	if (used == UINT64_MAX)
		return UINT64_MAX;
	if (cache != UINT64_MAX)
		used = used > cache ? used - cache : 0;
	return limit > used ? limit - used : 0;
}

/* Of the groups this process is in, from its own up to the root. */
static uint64_t free_in_cgroups(void)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	uint64_t least = UINT64_MAX;
	char line[4200], path[4300];

	while (f && fgets(line, sizeof line, f)) {
		bool v2 = !strncmp(line, "0::", 3);
		char *name = v2 ? line + 3 : strstr(line, ":memory:"), *cut;

		if (!name)
			continue;
		name += v2 ? 0 : 8;
		name[strcspn(name, "\n")] = 0;
		snprintf(path, sizeof path, "/sys/fs/cgroup%s%s", v2 ? "" : "/memory", name);
		for (;;) {
			uint64_t left = v2 ? free_in(path, "memory.max", "memory.current")
					   : free_in(path, "memory.limit_in_bytes", "memory.usage_in_bytes");

			least = left < least ? left : least;
			cut = strrchr(path, '/');
			if (!cut || cut <= path + strlen("/sys/fs/"))
				break;
			*cut = 0;
		}
	}
	if (f)
		fclose(f);
	return least;
}

static uint64_t of_machine(void)
{
	uint64_t kib = number_in("/proc/meminfo", "MemAvailable:"), group = free_in_cgroups(), left;

	left = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
	left = group < left ? group : left;
	return left == UINT64_MAX ? UINT64_MAX : left / 4 * 3;
}

static void add_files(char **paths, size_t n)
{
	struct stat st;

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(paths[i], "-") || stat(paths[i], &st) || !S_ISREG(st.st_mode))
			endless = true; /* a pipe, or a folder whose files are not counted */
		else
			of_files += (uint64_t)st.st_size;
	}
}

/* The shadow of AddressSanitizer or ThreadSanitizer is a private mapping of terabytes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CAN_LIMIT = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
enum { CAN_LIMIT = 0 };
#else
enum { CAN_LIMIT = 1 };
#endif
#else
enum { CAN_LIMIT = 1 };
#endif

void lg_bounds_set(char **paths, size_t n)
{
	struct rlimit r;

	add_files(paths, n);
	allowed = given;
	if (!given) {
		uint64_t by_files = GIB + of_files * TIMES;

		allowed = of_machine();
		if (!endless && by_files < allowed)
			allowed = by_files;
		if (allowed < LEAST)
			allowed = LEAST;
	}
	lg_import_room = allowed;
	if (!CAN_LIMIT || getrlimit(RLIMIT_DATA, &r))
		return;
	r.rlim_cur = allowed < r.rlim_max ? allowed : r.rlim_max;
	(void)setrlimit(RLIMIT_DATA, &r);
}
