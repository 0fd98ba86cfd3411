/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_jobs.h - which training jobs run on this machine, found by what their launchers put into
 * environments.
 *
 * A job's name is the first of these: LAGGARD_JOB_ID, RAY_JOB_ID, TORCHELASTIC_RUN_ID (but for "none",
 * torchrun's default), KUBEFLOW_TRAINING_JOB_ID, SLURM_JOB_ID; else where its ranks meet (MASTER_ADDR,
 * MASTER_PORT) and, since a port is used again, the hour in which they began, or the very time where all
 * ranks are on this machine (LOCAL_WORLD_SIZE). A restart (TORCHELASTIC_RESTART_COUNT, SLURM_RESTART_COUNT)
 * is another attempt at it. A rank is the topmost process with that rank in its environment: loader workers
 * inherit it.
 *
 * An environment is read once in a process's life and once more when its name changes, of so many processes
 * in a look: each read takes a lock of that process. All of it is what users say of themselves: a job is of
 * one user, whatever its name.
 */
#ifndef LG_RECORD_NODE_JOBS_H
#define LG_RECORD_NODE_JOBS_H
#include "record/procfs.h"

enum { LG_NODE_JOB_NAME = 96, LG_NODE_JOBS_MAX = 64, LG_NODE_RANKS_MAX = 256, LG_NODE_JOBS_OF_USER = 16 };

struct lg_node_rank {
	pid_t pid;
	uint64_t start; /* clock ticks since boot */
	int32_t rank;
};

struct lg_node_job {
	char name[LG_NODE_JOB_NAME];
	const char *sched; /* "torchrun", "slurm", "ray", "kubeflow", "mpi", "laggard" (told by hand) */
	uint32_t uid, attempt;
	int32_t world;     /* 0 = not known */
	uint64_t start;    /* of its first rank here, clock ticks since boot */
	bool marks;        /* its environment leads to the hook (laggard env) */
	struct lg_node_rank *rank; /* by rank */
	size_t n, cap;
};

struct lg_node_jobs;

/* self: this process and what it started are of no job. */
int lg_node_jobs_new(struct lg_node_jobs **ret, pid_t self, struct lg_error *err) LG_MUST_CHECK;
void lg_node_jobs_free(struct lg_node_jobs *j);
/* Look again. *ret: those that have a rank now, valid until the next look. */
int lg_node_jobs_look(struct lg_node_jobs *j, const struct lg_node_job **ret, size_t *ret_n,
		      struct lg_error *err) LG_MUST_CHECK;
/* Jobs and ranks beyond the limits, in the last look. */
size_t lg_node_jobs_left_out(const struct lg_node_jobs *j);

#endif /* LG_RECORD_NODE_JOBS_H */
