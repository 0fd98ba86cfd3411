/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - runs that are judged beside the one that this process reads, each in a process of its own.
 *
 * A process that reads files may start no others (base/confine.h): who will start them is made before. It
 * reads nothing, waits to be asked, has two at a time judged, and passes their rows on.
 */
#ifndef LG_CLI_RUNS_H
#define LG_CLI_RUNS_H
#include <stdint.h>
#include <sys/types.h>

#include "cli/load.h"
#include "report/runs.h"

struct lg_runs {
	pid_t pid; /* 0 = none */
	int ask, answer;
	size_t n_paths;
};

/* Before the first lg_load_paths(). victim_pid: as for lg_judge(). Without processes to be had there are no
 * rows, and that is all. */
void lg_runs_start(struct lg_runs *r, const struct lg_paths *paths, int32_t victim_pid);
/*
 * Have the files that l left out judged, those of one run together; where l is NULL each file by itself.
 * *ret: rows in the order of the files, freed by the caller. Once.
 */
int lg_runs_judge(struct lg_runs *r, const struct lg_loaded *l,
		  struct lg_run_row **ret, size_t *ret_n, struct lg_error *err) LG_MUST_CHECK;
/* Of l, which is judged: runs that were left out, behind the one that was not; without any, its ranks.
 * ret->row is freed by the caller, also where this fails. */
int lg_runs_table(struct lg_runs *r, const struct lg_loaded *l, struct lg_run_table *ret,
		  struct lg_error *err) LG_MUST_CHECK;
void lg_runs_done(struct lg_runs *r);

#endif /* LG_CLI_RUNS_H */
