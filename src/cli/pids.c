/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pids.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

bool lg_parse_number(const char *s, long min, long max, long *ret)
{
	char *end;

	errno = 0;
	*ret = strtol(s, &end, 10);
	return end != s && !*end && !errno && *ret >= min && *ret <= max;
}

int lg_pids_option(const struct lg_command *cmd, const char *text, struct lg_pids *pids)
{
	char *copy = lg_strdup(text), *save = NULL;
	int rc = LG_EXIT_OK;

	if (!copy)
		return lg_usage(cmd, "out of memory");
	for (char *w = strtok_r(copy, ",", &save); w && !rc; w = strtok_r(NULL, ",", &save)) {
		long v;
		char path[64];

		if (!lg_parse_number(w, 1, 1 << 30, &v)) {
			rc = lg_usage(cmd, "-p %s: not a process id", w);
			break;
		}
		snprintf(path, sizeof path, "/proc/%ld", v);
		if (access(path, F_OK)) {
			rc = lg_usage(cmd, "-p %ld: there is no such process", v);
		} else if (LG_APPEND(pids->v, pids->n, pids->cap, (pid_t)v)) {
			rc = lg_usage(cmd, "out of memory");
		}
	}
	lg_free(copy);
	return rc;
}
