/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one recording: sources push raw records, the session puts them in time order and
 * hands them back to their source, which adds rows to the builder; chunks go to the .lag file
 * or to the in-memory ring.
 *
 *   source.drain  -> lg_session_push()  (hot: copies bytes, nothing else)
 *   each round    -> sort what is older than the cutoff, source.feed() in time order
 *   every second  -> lg_builder_flush() into lg_writer (file) or lg_ring
 *
 * Rounds: a record may arrive at most one drain interval late, so everything older than the
 * start of the previous drain is final (the FINISHED_ROUND rule of perf).
 * One thread. Times pushed are CLOCK_MONOTONIC ns.
 */
#ifndef LG_RECORD_SESSION_H
#define LG_RECORD_SESSION_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/map.h"
#include "record/launch.h"
#include "record/trigger.h"
#include "store/builder.h"

struct lg_session;

enum lg_profile { LG_PROFILE_LIGHT, LG_PROFILE_DEFAULT, LG_PROFILE_DEEP };
enum lg_tier { LG_TIER_AUTO, LG_TIER_BPF, LG_TIER_PERF, LG_TIER_OWN, LG_TIER_PROCFS };

/* A step that a process has marked. */
struct lg_step_told {
	int32_t pid, rank, world; /* -1, 0 = not known */
	int64_t number, ts, dur;  /* CLOCK_MONOTONIC, ns */
	int64_t stage[LG_STAGE_MAX], wait; /* marks.h: struct lg_mark_times */
};

struct lg_record_options {
	const char *out;      /* path of the .lag file */
	char **cmd;           /* NULL = none */
	const struct lg_user *user; /* whom cmd runs as; NULL = as laggard itself */
	pid_t *pids;          /* -p */
	size_t n_pids;
	struct lg_job_spec *job; /* --job: who joins pids later (job_spec.h); NULL = nobody */
	int64_t for_ns;       /* 0 = until the command ends or a signal */
	int64_t at_ns;        /* begin when the wall clock is a multiple of it; 0 = at once */
	int64_t ring_ns;      /* 0 = keep everything */
	const struct lg_trigger *triggers; /* when to write what the ring holds; at most LG_TRIGGERS_MAX */
	size_t n_triggers;
	unsigned max_dumps;   /* that triggers write; those that a signal asks for do not count */
	unsigned freq_hz;     /* CPU samples */
	unsigned device_hz;   /* readings of devices a second; 0 = none */
	enum lg_profile profile;
	enum lg_tier tier;    /* AUTO = best that probes well */
	size_t ring_bytes;    /* per CPU; 0 = default */
	bool redact;          /* what tells of its owner goes from what is written (store/redact.h) */
	bool hook, quiet;     /* hook: inject the Python hook into cmd */
	bool memory;          /* sample page faults; the hook tells of the allocator and writes snapshots */
	const char *attach;   /* LG_HOOK_ATTACH, for Pythons of the job that run already; NULL = nothing */
	unsigned profiler;    /* steps of torch.profiler that the hook takes: when something fires, and */
	int64_t profiler_every_ns; /* so often; 0, and no ring: once */
	bool no_python;       /* read no frames of Python's interpreters */
	bool confine;         /* give up for good what the calling process needs no more once sources run */
	char **env;           /* environment of cmd (libraries never read environ); NULL = empty */
	const char *cmdline;  /* laggard's own, for the meta row record.cmdline */
	size_t queue_bytes;   /* bound of the queue of records not fed yet; 0 = default */
	/* One line for the user, without newline; NULL = silence. */
	void (*say)(void *arg, const char *line);
	/* Called about once a second; NULL = never. */
	void (*report)(void *arg, double seconds, uint64_t events, uint64_t bytes, uint64_t lost);
	void *say_arg;
	/* Called for each step of a rank as it ends, at most a few drains later; NULL = nobody asks. */
	void (*step)(void *arg, const struct lg_step_told *t);
	void *step_arg;
};

/* What probing found, for doctor and for the line that record prints. */
struct lg_probe {
	bool works;
	char found[256]; /* what is there, where that is not clear */
	char lost[256]; /* what is not seen without it */
	char why[256];  /* why it does not work */
	char fix[256];  /* command or setting that would make it work */
};

struct lg_source {
	const char *name, *summary;
	/* Try for real (open, load, attach) and undo it; never decide by kernel version. */
	int (*probe)(struct lg_probe *ret, struct lg_error *err);
	int (*start)(struct lg_session *s, void **ret_self, struct lg_error *err);
	int (*drain)(void *self, struct lg_error *err); /* calls lg_session_push() */
	void (*feed)(void *self, int64_t ts, const void *rec, size_t n); /* time order */
	int (*stop)(void *self, struct lg_error *err);  /* stop producing; a last drain follows */
	int (*finish)(void *self, struct lg_error *err); /* last rows (open states, costs) */
	void (*free)(void *self);
	/* In place of stop, in a forked copy of the session that writes what there is so far: look at what is
	 * under way, change nothing that the original shares. NULL = nothing to do. */
	int (*look)(void *self, struct lg_error *err);
	bool late_ok; /* feed takes records older than some that it has been fed */
};

/*
 * Every source there is, in order of preference. A build without libbpf has no lg_source_bpf;
 * src/record/meson.build defines LG_HAVE_SOURCE_<X> for each one that is in.
 */
extern const struct lg_source lg_source_bpf;         /* tier bpf: states, contention, holders */
extern const struct lg_source lg_source_tracepoints; /* tier perf: the same from tracepoints */
extern const struct lg_source lg_source_perf;        /* bpf, perf, own: samples, mmap, fork ... */
extern const struct lg_source lg_source_marks;       /* all tiers: rings of the training program */
extern const struct lg_source lg_source_procfs;      /* all tiers: counters; tier procfs: states */
extern const struct lg_source lg_source_devices;     /* all tiers: counters of devices */

/* For sources. */
struct lg_builder *lg_session_builder(struct lg_session *s);
const struct lg_record_options *lg_session_options(const struct lg_session *s);
/* src_i: index given by the session at start, see lg_session_source_index(). */
void lg_session_push(struct lg_session *s, unsigned src_i, int64_t ts, const void *rec, size_t n);
unsigned lg_session_source_index(const struct lg_session *s); /* valid inside start() */
/* Wake the session when fd is readable (epoll). */
int lg_session_watch(struct lg_session *s, int fd, struct lg_error *err);
/* From drain(), of a ring that cannot wake anybody: how much of its room was found taken. */
void lg_session_filled(struct lg_session *s, uint64_t found, uint64_t room);
/* A source's records may be pushed one drain after the one that could have read them. */
void lg_session_holds_back(struct lg_session *s);
/* A process of the job was found (rank, worker, launcher): sources may track it closely. */
bool lg_session_is_job(const struct lg_session *s, int32_t pid);
bool lg_session_will_mark(struct lg_session *s, int32_t pid, uint32_t uid); /* lives.h */
pid_t lg_session_self(const struct lg_session *s);

/* The tier in force, never AUTO: lg_source_perf opens own processes only when it is OWN. */
enum lg_tier lg_session_tier(const struct lg_session *s);
const char *lg_tier_name(enum lg_tier tier); /* "bpf", "perf", "own", "procfs" */
/* The child that runs opt->cmd, stopped before its exec while sources start; 0 = none. */
pid_t lg_session_child(const struct lg_session *s);
int64_t lg_monotonic_ns(void);
/* A copy that writes the ring (session_dump.c): what it feeds, the original feeds as well. */
bool lg_session_is_copy(const struct lg_session *s);
void lg_session_say(struct lg_session *s, const char *fmt, ...) LG_PRINTF(2, 3);

/*
 * Lives, told by sources from feed(). Several sources may tell the same event: the second one is
 * recognised and ignored. These change the builder (use them instead of lg_thread_start/end),
 * keep the job's membership (a child of the job is of the job, whoever adopts it later), have
 * cmdline, cgroup and rank of new processes read from /proc, and tell lg_addrs.
 * ppid: pid of the creating process; a new thread has ppid == pid.
 */
void lg_session_fork(struct lg_session *s, int64_t ts, int32_t ppid, int32_t pid, int32_t tid);
void lg_session_exec(struct lg_session *s, int64_t ts, int32_t pid, const char *comm);
void lg_session_exit(struct lg_session *s, int64_t ts, int32_t pid, int32_t tid);

/* Whom marks are told to that may be a moment to write the ring; NULL = nobody asked. */
struct lg_moments;
struct lg_moments *lg_session_moments(struct lg_session *s);

/* A source knows a process's rank better than its environment does (get_rank()). */
void lg_session_rank(struct lg_session *s, int32_t pid, int32_t rank, int32_t world, int32_t local);

/*
 * What stands behind lg_session_stack() and lg_session_map(): the address spaces. The session
 * makes it before any source starts and frees it after the last one. (addrs.c)
 */
struct lg_addrs;
int lg_addrs_new(struct lg_addrs **ret, struct lg_session *s, struct lg_error *err) LG_MUST_CHECK;
void lg_addrs_free(struct lg_addrs *a);
void lg_addrs_fork(struct lg_addrs *a, int64_t ts, int32_t ppid, int32_t pid);
void lg_addrs_exec(struct lg_addrs *a, int64_t ts, int32_t pid);
void lg_addrs_exit(struct lg_addrs *a, int64_t ts, int32_t pid);
/* Give names to frames that have none yet. Called before flushes with little_ns of time to
 * spend, and once at the end with all = true. */
void lg_addrs_resolve(struct lg_addrs *a, bool all, int64_t little_ns);
/* Around a fork whose child resolves what there is so far: before it in the parent, after it in the child,
 * which then shares no reader with the parent. Only in a session with a ring. */
void lg_addrs_lend(struct lg_addrs *a);
void lg_addrs_apart(struct lg_addrs *a);
struct lg_addrs *lg_session_addrs(struct lg_session *s);
struct lg_lives;
struct lg_lives *lg_session_lives(struct lg_session *s);
struct lg_devices;
struct lg_devices *lg_session_devices(struct lg_session *s); /* NULL = none are asked */

/* What a stack is made of, innermost first. Python's frames are as in bpf/records.h; they take the place of
 * the interpreter's own function among the user's, or stand behind those. */
struct lg_addresses {
	int32_t pid;
	const uint64_t *kernel, *user, *python;
	size_t n_kernel, n_user, n_python;
};

/* Address lists to an interned stack. */
lg_stk lg_session_stack(struct lg_session *s, const struct lg_addresses *of);
/*
 * Is pid CPython, and where does it keep its frames? NULL: no, or not yet. From time to time for those of the
 * job: it looks at pid's files and at its memory. *ret_gil: address of its lock, 0 = not known.
 */
struct lg_bpf_python_layout;
const struct lg_bpf_python_layout *lg_session_python(struct lg_session *s, int32_t pid, uint64_t *ret_gil);
/*
 * Python's frames of the CPU sample that comes next of a thread, told by the source that sees them; the
 * source of samples takes them: their number, at most LG_SESSION_PYTHON. gil: LG_SAMPLE_GIL, _NO_GIL, 0.
 */
enum { LG_SESSION_PYTHON = 24 };
void lg_session_python_sample(struct lg_session *s, int32_t tid, int64_t ts, const uint64_t *frames,
			      size_t n, uint8_t gil);
size_t lg_session_take_python(struct lg_session *s, int32_t tid, int64_t ts, uint64_t *frames,
			      uint8_t *ret_gil);
/* Python's frames of a thread that has not run since the recording began; at its end, process by process. */
size_t lg_session_python_asleep(struct lg_session *s, int32_t pid, int32_t tid, uint64_t *frames);
/* The program that tells them, to be run at each sample; -1 = there is none. Valid while its source lives. */
void lg_session_set_sampler(struct lg_session *s, int prog_fd);
int lg_session_sampler(const struct lg_session *s);
/* A mapping of an executable file (inode 0: of one that is not known) or of anonymous code in pid. name
 * borrowed for the call. */
void lg_session_map(struct lg_session *s, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		    uint64_t inode, const char *name, int64_t ts);

/*
 * hook_inject.c: unpack the Python hook and make cmd's environment from `env`. *ret_env is a
 * NULL-terminated array of strings, owned by *ret_hook like the files it unpacked; marks of any
 * process started with it reach lg_source_marks. Failure means: no hook, record goes on.
 * user: whom cmd runs as, NULL = as laggard itself.
 */
struct lg_hook;
int lg_hook_prepare(struct lg_hook **ret_hook, const struct lg_user *user, char **env, char ***ret_env,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_hook_free(struct lg_hook *h);

/* Run a whole recording; *ret_status is what `laggard record` exits with. */
int lg_record(const struct lg_record_options *opt, int *ret_status, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_RECORD_SESSION_H */
