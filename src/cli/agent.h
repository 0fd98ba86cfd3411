/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h - the parts of laggard agent: what it is told, what it found of a job, and the processes that it
 * starts.
 *
 *	the agent	finds jobs, folds their steps, keeps its own rows, writes batches into the spool
 *	a recorder	one for each job, with a ring; tells each step through a pipe
 *	a judge		of what a ring held while steps were slow; without privileges, as every reader
 *	the sender	takes batches out of the spool to the store, again and again until it has them
 */
#ifndef LG_CLI_AGENT_H
#define LG_CLI_AGENT_H
#include <limits.h>
#include <stdatomic.h>

#include "base/out.h"
#include "cli/command.h"
#include "fleet/fold.h"
#include "fleet/spool.h"
#include "fleet/store.h"
#include "record/node_jobs.h"
#include "record/session.h"
#include "serve/serve.h"

#define LG_AGENT_SECOND INT64_C(1000000000)
enum { LG_AGENT_JOBS = 8, LG_AGENT_TEXT = 256 };

/* agent_settings.c. */
struct lg_agent_settings {
	char state[LG_AGENT_TEXT], store[LG_AGENT_TEXT], user[64], token_file[LG_AGENT_TEXT],
		ca_file[LG_AGENT_TEXT];
	char cluster[64], node[64], textfile[LG_AGENT_TEXT];
	int64_t scan_ns, flush_ns, window_ns, keep_ns;
	uint64_t spool_bytes;
	double budget;   /* of a CPU, for each rank */
	long freq_hz, jobs, metrics; /* metrics: a port, 0 = none */
};

/* What it is without a word: a node's own rows alone, nothing sent. */
struct lg_agent_settings lg_agent_defaults(void);
/* One setting; LG_E_USAGE with a line that says what is wanted. */
int lg_agent_set(struct lg_agent_settings *s, const char *key, const char *value,
		 struct lg_error *err) LG_MUST_CHECK;
/* "KEY = VALUE" lines of a file, # begins a comment. must: it has to be there. */
int lg_agent_read(struct lg_agent_settings *s, const char *path, bool must,
		  struct lg_error *err) LG_MUST_CHECK;
bool lg_agent_is_setting(const char *key);

/* What the sender tells, in memory that it shares with the agent. */
struct lg_agent_sent {
	_Atomic uint64_t batches, rows, damaged_rows, failures, last_ok_us;
	_Atomic uint32_t writing; /* odd while error is being written */
	char error[LG_AGENT_TEXT];
};

/* agent_send.c. A process that sends what lies in the spool until it gets SIGTERM or its parent ends; -1 =
 * none. */
pid_t lg_agent_send_start(const struct lg_agent_settings *s, struct lg_agent_sent *sent, int lock);

/* agent_judge.c. What a judge says of a ring's file: a finding, or a victim's part of one. */
struct lg_agent_stall {
	int64_t ts, step;         /* CLOCK_MONOTONIC, ns; -1 = not known */
	int64_t lost;             /* ns, within the window */
	int32_t rank, pid;        /* the victim's; the culprit's; -1 = not known */
	uint32_t seen;
	uint8_t conf;             /* percent */
	char rule[48], stage[24], process[64], func[128], object[64], stack[512], said[400];
};
enum { LG_AGENT_STALLS = 64 }; /* of one file, at most */
/* In a child: judge path and write the stalls to fd; what was lost from `from` to `to` counts. Never
 * returns. */
void lg_agent_judge(char *path, int64_t from, int64_t to, int fd) __attribute__((noreturn));

struct lg_agent_rank {
	int32_t rank;
	struct lg_fold fold;
	int64_t late;             /* in this window, ns */
	uint64_t steps;
	double last_s, step_s, wait_s, late_s; /* of the last row; sums, for metrics */
};

enum lg_agent_phase { LG_AGENT_SETTLING, LG_AGENT_RECORDING, LG_AGENT_ENDING };

struct lg_agent_job {
	char name[LG_NODE_JOB_NAME];
	const char *sched;
	uint64_t id, start_us;
	uint32_t uid, attempt;
	int32_t world;
	bool seen;                /* in the last look */
	enum lg_agent_phase phase;
	size_t n_before;          /* ranks, in the look before */
	pid_t *pids;
	struct lg_agent_rank *rank;
	size_t n;
	pid_t recorder;
	int steps;                /* a pipe; -1 = none */
	unsigned dumps;
	int64_t window_from;      /* CLOCK_MONOTONIC */
	int64_t asked_at;         /* a dump is on its way; 0 = none */
	char ring[PATH_MAX];      /* the recorder's file, without its suffix */
	uint64_t n_steps, lost_us;
	uint64_t judged, unjudged; /* windows with slow steps */
	uint64_t failures;         /* starts of a recorder */
	int64_t retry_at;
};

struct lg_agent {
	struct lg_agent_settings set;
	struct lg_fleet *own;     /* of this node */
	struct lg_fleet_batch *batch;
	struct lg_spool spool;
	struct lg_agent_sent *sent;
	struct lg_live *page;     /* metrics, as they are served; NULL = they are not */
	struct lg_server *server;
	char token[72];
	struct lg_node_jobs *found;
	struct lg_agent_job job[LG_AGENT_JOBS];
	size_t n_jobs, left_out, unmarked; /* unmarked: jobs that run without the hook */
	bool reserved;            /* the next place is for that user, who has none */
	uint32_t reserved_for;
	uint64_t agent_id, seq, rows, told_lost;
	uint32_t node;
	int64_t wall_offset;      /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	int64_t began;
	pid_t sender, judge;
	int lock;                 /* of the state folder: no child keeps it */
	struct lg_agent_job *judged_job;
	int judge_fd;
	int64_t judge_began, judge_from, judge_to;
	size_t judge_stalls;
	char judge_path[PATH_MAX];
	double credit_s, cpu_s, gone_cpu_s; /* CPU time that may be spent; spent; of children that ended */
	int level;                /* what has been shed */
	int64_t level_at, reckoned_at;
	bool batch_due;
	char said[LG_AGENT_TEXT]; /* the last thing that went wrong */
};

/* agent_state.c: status.json, status.txt and the textfile. */
void lg_agent_write_state(struct lg_agent *a);
/* Serve the metrics on 127.0.0.1, to who has the token in metrics.token, which is made where it is not
 * there. */
int lg_agent_serve(struct lg_agent *a, struct lg_error *err) LG_MUST_CHECK;
const char *lg_agent_level_text(int level);
/* laggard agent status. Returns the exit status. */
int lg_agent_status(const struct lg_agent_settings *s, bool json);
/* Hold the state folder; LG_E_PERM: another agent does. *ret_fd stays open. */
int lg_agent_lock(const struct lg_agent_settings *s, int *ret_fd, struct lg_error *err) LG_MUST_CHECK;

/* agent_jobs.c: from processes to recorders, from steps to rows. */
int64_t lg_agent_now(void);
void lg_agent_look(struct lg_agent *a);
void lg_agent_take_steps(struct lg_agent *a, struct lg_agent_job *j);
void lg_agent_windows(struct lg_agent *a);
void lg_agent_take_stalls(struct lg_agent *a);
void lg_agent_reckon(struct lg_agent *a);
void lg_agent_end_jobs(struct lg_agent *a);
void lg_agent_child_ended(struct lg_agent *a, pid_t pid, int status, double cpu_s);
/* In cmd_agent.c: a line of what went wrong, once in a while. */
void lg_agent_trouble(struct lg_agent *a, const char *fmt, ...) LG_PRINTF(2, 3);

#endif /* LG_CLI_AGENT_H */
