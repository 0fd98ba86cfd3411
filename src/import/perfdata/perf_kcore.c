/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_kcore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbols/kallsyms.h"
#include "symbols/open_foreign.h"

/* A distribution's has 12 MB, one with every option and its modules 30. */
#define KALLSYMS_MAX_BYTES (64 << 20)

/* Opened as a place only; -1. */
static int folder_beside(const char *path)
{
	const char *base = strrchr(path, '/');
	char folder[4096];
	int n;

	if (strcmp(base ? base + 1 : path, "data"))
		return -1;
	n = snprintf(folder, sizeof folder, "%.*skcore_dir", base ? (int)(base + 1 - path) : 0, path);
	if (n < 0 || (size_t)n >= sizeof folder)
		return -1;
	return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

bool lg_pd_kcore_is_beside(const char *path)
{
	int folder = folder_beside(path);

	if (folder >= 0)
		close(folder);
	return folder >= 0;
}

void lg_pd_kcore_open(struct lg_pd_kcore *k, const char *path)
{
	int folder = folder_beside(path);
	struct stat st;

	*k = (struct lg_pd_kcore){ 0 };
	if (folder < 0)
		return;
	k->fd = lg_foreign_open_at(folder, "kallsyms");
	if (k->fd < 0 && errno == EINVAL)
		snprintf(k->why, sizeof k->why, "is no file");
	else if (k->fd < 0)
		snprintf(k->why, sizeof k->why, "cannot be read: %s", strerror(errno));
	close(folder);
	if (k->fd < 0)
		return;
	k->open = true;
	if (fstat(k->fd, &st))
		snprintf(k->why, sizeof k->why, "cannot be read: %s", strerror(errno));
	else if (st.st_size > KALLSYMS_MAX_BYTES)
		snprintf(k->why, sizeof k->why, "has %lld bytes, more than any kernel's",
			 (long long)st.st_size);
	if (k->why[0])
		lg_pd_kcore_done(k);
}

void lg_pd_kcore_done(struct lg_pd_kcore *k)
{
	if (k->open)
		close(k->fd);
	k->open = false;
}

static void say_why(struct lg_pd_kcore *k, int rc, const char *message)
{
	if (rc == LG_E_PERM)
		snprintf(k->why, sizeof k->why, "has no addresses: they were hidden from perf");
	else if (rc == LG_E_FORMAT)
		snprintf(k->why, sizeof k->why, "has no functions");
	else
		snprintf(k->why, sizeof k->why, "cannot be read: %.120s", message);
}

struct lg_kallsyms *lg_pd_kcore_take(struct lg_pd_kcore *k, const char *ref_name, uint64_t ref)
{
	struct lg_kallsyms *table;
	struct lg_error err = { 0 };
	uint64_t at;
	bool cut;
	int rc;

	if (!k->open)
		return NULL;
	rc = lg_kallsyms_read(&table, k->fd, "kcore_dir/kallsyms", &cut, &err);
	lg_pd_kcore_done(k);
	if (rc) {
		say_why(k, rc, err.message);
		return NULL;
	}
	at = *ref_name && ref ? lg_kallsyms_address(table, ref_name) : ref;
	if (at != ref) {
		snprintf(k->why, sizeof k->why, "is of another kernel or boot: %.31s is not where it was "
			 "recorded", ref_name);
		lg_kallsyms_free(table);
		return NULL;
	}
	if (cut)
		snprintf(k->why, sizeof k->why, "ends inside a line: what was behind it, and functions of "
			 "modules, have no names");
	return table;
}
