/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_spec.h - "my job" in one word, for a job that runs already: which processes are meant by
 *
 *	slurm:ID      ID, ID.STEP or ARRAY_TASK: the cgroup that Slurm made, else SLURM_JOB_ID and its kin
 *	ray:NAME      RAY_JOB_ID, or a worker whose title begins with ray::NAME
 *	container:ID  the container, pod or LXC name in the cgroup's path; 12 hexadecimal digits and more
 *	cgroup:PATH   that cgroup and all below it, of any hierarchy, as this process sees them
 *	match:RE      an extended regular expression that matches the command line
 *
 * The process that asks, what it started and who started it (but for process 1, which adopts) are of no job.
 *
 * What is read belongs to other users and says what they like: a process can give itself any name, title and
 * variable. Where Slurm's cgroup is there, it alone decides, because who is in it is not for the process to
 * say. Every file is read up to a bound, 256 KiB of an environment and 4 KiB of a command line; what lies
 * beyond is not seen.
 */
#ifndef LG_RECORD_JOB_SPEC_H
#define LG_RECORD_JOB_SPEC_H
#include <sys/types.h>

#include "record/procfs.h"

struct lg_job_spec;

/*
 * text: as above, copied. root: where /proc is (tests have others). self: who asks. LG_E_USAGE with one line
 * for a text that names no job. The caller frees it.
 */
int lg_job_spec_new(struct lg_job_spec **ret, const char *text, const char *root, pid_t self,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_job_spec_free(struct lg_job_spec *s);
/* Does a process say so itself, by a name, a title, a variable? Then one of the job may be anybody's. */
bool lg_job_is_joined(const struct lg_job_spec *s);
/* Is pid of the job now? Reads one to three files of it. */
bool lg_job_takes(struct lg_job_spec *s, pid_t pid);

struct lg_job_member {
	pid_t pid, ppid;
	struct lg_proc_rank env; /* as its environment says; children inherit it */
	bool is_rank;            /* the topmost with that rank, of the strongest kind that there is */
};

struct lg_job_found {
	struct lg_job_member *v; /* ranks first, by rank, then the others, by pid; the caller's to free */
	size_t n, cap;
	size_t n_ranks, looked; /* looked: how many processes were looked at */
	size_t hidden;          /* and how many of them this user may not read */
};

/* Everybody who is of the job now. Nobody: LG_E_NOTFOUND, with what was looked for, at how many. */
int lg_job_find(struct lg_job_spec *s, struct lg_job_found *ret, struct lg_error *err) LG_MUST_CHECK;
/* "5 processes, ranks 0 to 3 (pids 71, 72, 73, 74)". Returns buf. */
const char *lg_job_found_text(const struct lg_job_found *f, char *buf, size_t size);

#endif /* LG_RECORD_JOB_SPEC_H */
