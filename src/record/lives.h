/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives.h - which processes there are, which of them are the job, and which rank each one is.
 *
 * Sources tell forks, execs and exits in time order; /proc is read once per life and once per
 * exec, the job first, others at a bounded rate. A process that lived too shortly to be read
 * keeps what it inherited. Owned by the session; one thread.
 */
#ifndef LG_RECORD_LIVES_H
#define LG_RECORD_LIVES_H
#include "record/job_spec.h"
#include "store/builder.h"

struct lg_lives;

struct lg_lives_options {
	int32_t self, child;    /* own pid; the command's, 0 = none */
	const pid_t *pids;      /* -p */
	size_t n_pids;
	struct lg_job_spec *job; /* who is of it joins when it is read (job_spec.h); NULL = nobody */
	const char *token;      /* "KEY=VALUE" in the environment of whoever descends from cmd, or NULL */
};

int lg_lives_new(struct lg_lives **ret, struct lg_builder *b, const struct lg_lives_options *opt,
		 struct lg_error *err) LG_MUST_CHECK;
void lg_lives_free(struct lg_lives *l);
/* Read all of /proc: what ran before the recording, or (again) what no source told of. */
void lg_lives_scan(struct lg_lives *l, int64_t now);
/* Each returns false when the event was known already. */
bool lg_lives_fork(struct lg_lives *l, int64_t ts, int32_t ppid, int32_t pid, int32_t tid);
bool lg_lives_exec(struct lg_lives *l, int64_t ts, int32_t pid, const char *comm);
bool lg_lives_exit(struct lg_lives *l, int64_t ts, int32_t pid, int32_t tid);
bool lg_lives_is_job(const struct lg_lives *l, int32_t pid);
/* A process of the job that marks nowhere, as far as is known, will in the kept folder of uid. False: it is
 * none. */
bool lg_lives_will_mark(struct lg_lives *l, int32_t pid, uint32_t uid);
/* A source knows the rank better than the environment (torch.distributed.get_rank()). */
void lg_lives_rank(struct lg_lives *l, int32_t pid, int32_t rank, int32_t world, int32_t local);
/* Read what is waiting to be read, within the rate. */
void lg_lives_work(struct lg_lives *l, int64_t now);
/* Settle the roles. *ret_ranks: processes with a rank. */
void lg_lives_finish(struct lg_lives *l, unsigned *ret_ranks);
/* Call f for each living process of the job. */
void lg_lives_each_job(struct lg_lives *l, void (*f)(void *arg, int32_t pid), void *arg);
/* Call f for each living process of the job that was told to mark in a folder that is kept (laggard env), and
 * with the number in that folder's name: /dev/shm/laggard-UID/kept. */
void lg_lives_each_marking(struct lg_lives *l, void (*f)(void *arg, int32_t pid, uint32_t uid), void *arg);

#endif /* LG_RECORD_LIVES_H */
