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
#include "store/builder.h"

struct lg_session;

enum lg_profile { LG_PROFILE_LIGHT, LG_PROFILE_DEFAULT, LG_PROFILE_DEEP };
enum lg_tier { LG_TIER_AUTO, LG_TIER_BPF, LG_TIER_PERF, LG_TIER_OWN, LG_TIER_PROCFS };

struct lg_record_options {
	const char *out;      /* path of the .lag file */
	char **cmd;           /* NULL = none */
	pid_t *pids;          /* -p */
	size_t n_pids;
	int64_t for_ns;       /* 0 = until the command ends or a signal */
	int64_t ring_ns;      /* 0 = keep everything */
	unsigned freq_hz;     /* CPU samples */
	enum lg_profile profile;
	enum lg_tier tier;    /* AUTO = best that probes well */
	size_t ring_bytes;    /* per CPU; 0 = default */
	bool hook, quiet;     /* hook: inject the Python hook into cmd */
};

/* What probing found, for doctor and for the line that record prints. */
struct lg_probe {
	bool works;
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
};

/* For sources. */
struct lg_builder *lg_session_builder(struct lg_session *s);
const struct lg_record_options *lg_session_options(const struct lg_session *s);
/* src_i: index given by the session at start, see lg_session_source_index(). */
void lg_session_push(struct lg_session *s, unsigned src_i, int64_t ts, const void *rec, size_t n);
unsigned lg_session_source_index(const struct lg_session *s); /* valid inside start() */
/* Wake the session when fd is readable (epoll). */
int lg_session_watch(struct lg_session *s, int fd, struct lg_error *err);
/* A process of the job was found (rank, worker, launcher): sources may track it closely. */
bool lg_session_is_job(const struct lg_session *s, int32_t pid);
pid_t lg_session_self(const struct lg_session *s);

/* Kernel + user address lists to an interned stack; addrs innermost first. */
lg_stk lg_session_stack(struct lg_session *s, int32_t pid, const uint64_t *kernel, size_t n_kernel,
			const uint64_t *user, size_t n_user);
/* A mapping of an executable file or of anonymous code in pid. name borrowed for the call. */
void lg_session_map(struct lg_session *s, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		    const char *name, int64_t ts);

/* Run a whole recording; *ret_status is what `laggard record` exits with. */
int lg_record(const struct lg_record_options *opt, int *ret_status, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_RECORD_SESSION_H */
