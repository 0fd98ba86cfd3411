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

int lg_job_option(const struct lg_command *cmd, const char *text, struct lg_pids *pids)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };

	if (pids->job)
		return lg_usage(cmd, "--job %s: one job at a time", text);
	return lg_job_spec_new(&pids->job, text, "/proc", getpid(), &err) ? lg_usage(cmd, "--job %s", err.message)
									  : LG_EXIT_OK;
}

int lg_job_pids(struct lg_pids *pids, bool quiet)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_job_found found = { 0 };
	char text[512];
	int rc = 0;

	if (!pids->job)
		return LG_EXIT_OK;
	rc = lg_job_find(pids->job, &found, &err);
	for (size_t i = 0; !rc && i < found.n; i++)
		rc = LG_APPEND(pids->v, pids->n, pids->cap, found.v[i].pid);
	if (rc && !err.code)
		err.code = rc;
	if (rc)
		lg_complain(&err);
	else if (!quiet)
		lg_say("the job: %s", lg_job_found_text(&found, text, sizeof text));
	lg_free(found.v);
	return rc ? LG_EXIT_FAILED : LG_EXIT_OK;
}

void lg_pids_free(struct lg_pids *pids)
{
	lg_free(pids->v);
	lg_job_spec_free(pids->job);
}
