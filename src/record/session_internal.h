/* SPDX-License-Identifier: Apache-2.0 */
/* session_internal.h - the parts of a session: session.c runs it, session_dump.c writes its ring. */
#ifndef LG_RECORD_SESSION_INTERNAL_H
#define LG_RECORD_SESSION_INTERNAL_H
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>

#include "record/aside.h"
#include "record/facts.h"
#include "record/memory_watch.h"
#include "record/moment.h"
#include "record/record_queue.h"
#include "record/session.h"
#include "record/tier.h"
#include "store/lag_ring.h"
#include "store/lag_write.h"

#define MS INT64_C(1000000)

#ifdef LG_HAVE_ADDRS
#define ADDRS(call) (call)
#else
#define ADDRS(call) ((void)0)
#endif

struct running {
	const struct lg_source *src;
	void *self;
	bool failed;
};

struct lg_session {
	const struct lg_record_options *opt;
	struct lg_builder *b;
	struct lg_queue *q;
	struct lg_lives *lives;
	struct lg_addrs *addrs;
	struct lg_launch *child;
	struct lg_devices *devices;
	struct lg_hook *hook;
	char **env, token[64];
	char snapshots[PATH_MAX + 32]; /* "LAGGARD_MEMORY=...", of the names of the hook's snapshots; "" = none */
	char profiler[PATH_MAX + 48];  /* "LAGGARD_PROFILER=...", of its traces; "" = none */
	int64_t profiled;              /* when the hook was asked for one last */
	struct lg_writer *writer;
	struct lg_ring *ring;
	struct running run[LG_QUEUE_SOURCES];
	unsigned n_run, starting;
	enum lg_tier tier;
	int epoll, signals;
	sigset_t old_mask;
	struct sigaction old_pipe;
	struct rlimit old_files;
	struct lg_clock_watch clocks;
	struct lg_cost cost;
	int64_t began, drain_began, last_drain, flushed;
	int64_t drain_every;
	unsigned fullest; /* permille of the fullest ring that cannot call, in this drain */
	uint64_t events, lost;
	unsigned dumps, interrupts;
	struct lg_moments *moments; /* NULL: nothing but signals asks for dumps */
	struct lg_memory_watch *memory;
	struct lg_aside aside;      /* one dump is written at a time */
	char dump_path[PATH_MAX];   /* it is written there */
	struct lg_moment dumped;    /* what for */
	pid_t asked_by;             /* SIGUSR1 */
	uid_t asked_by_user;
	int64_t cpu_ns;             /* at the fork: the copy's own clock begins anew */
	unsigned triggered;
	bool told_stepless, silent; /* silent: a copy, the original says it */
	int64_t begins;             /* --at: not before; 0 = at once */
	int sampler;      /* a program for each CPU sample; -1 = none */
	bool stop, hurry, dump, woken, held_back, output_failed;
	char refused[640], refused_tiers[48]; /* tiers that do not work here */
	int64_t next_check;
};

void lg_session_source_failed(struct lg_session *s, struct running *r, const struct lg_error *err);
int lg_session_flush(struct lg_session *s, struct lg_error *err) LG_MUST_CHECK;
/* What is under way, names, costs: the rows after which nothing comes. */
/* A file that was written, as --redact wants it. */
int lg_session_redact(struct lg_session *s, const char *path, struct lg_error *err) LG_MUST_CHECK;
int lg_session_last_rows(struct lg_session *s, unsigned *ret_ranks, struct lg_error *err) LG_MUST_CHECK;

/* session_dump.c. What triggers need, when the ring is made. */
int lg_session_watch_moments(struct lg_session *s, struct lg_error *err) LG_MUST_CHECK;
/* After a drain: write what is due. often: about once a second. */
void lg_session_dumps(struct lg_session *s, int64_t now, bool often);
/* Wait for what is being written; say what could never fire. */
void lg_session_dumps_end(struct lg_session *s);

#endif /* LG_RECORD_SESSION_INTERNAL_H */
