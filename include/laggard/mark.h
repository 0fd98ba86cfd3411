/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark.h - tell laggard what your program is doing: stages, steps, values.
 *
 *	#include <laggard/mark.h>
 *
 *	uint64_t t = lag_mark_stage_begin(LAG_STAGE_FORWARD);
 *	forward(batch);
 *	lag_mark_stage_end(t);
 *	lag_mark_step(n);
 *
 * Header only, C99 and C++11 with GNU atomics (gcc, clang), Linux. Without a recorder (environment
 * variable LAGGARD_MARKS unset) every call is a load and a branch. Any thread may mark at any
 * time; after the first mark nothing blocks, nothing is allocated, errno is kept. A forked child has
 * its marks off.
 *
 * The file LAGGARD_MARKS/mark.<pid>.<n>, which every writer makes for itself (words are
 * little-endian u64, or i64 where a value can be negative):
 *
 *	0      header: the words of enum lag_mark_header, one page
 *	4096   slots of 64 bytes: index, ts, what, name | group << 32, seq, bytes, token, index
 *	...    names: { u32 length, bytes } each 8-aligned; id = offset in the area / 8 + 1, 0 = none
 *
 *	index  1, 2, 3 ...; slot number = index modulo slots. Written first and last: a slot is
 *	       whole when both are the same and the first is still the same after copying.
 *	ts     CLOCK_MONOTONIC, ns
 *	what   tid | enum lag_mark_what << 32 | span kind << 40 | stage << 48 | LAG_MARK_* << 56
 *	seq    collective: number in its group; MARK: value; STEP: number; else 0
 *	token  END: index of its BEGIN; SPAN: duration in ns
 *	META   name = key, group = value; MARK: group = text; OFF: group = reason
 */
#ifndef LAGGARD_MARK_H
#define LAGGARD_MARK_H
#include <stdint.h>

enum lag_stage {
	LAG_STAGE_NONE, LAG_STAGE_BATCH_WAIT, LAG_STAGE_H2D, LAG_STAGE_FORWARD, LAG_STAGE_BACKWARD,
	LAG_STAGE_GRAD_SYNC, LAG_STAGE_OPTIMIZER, LAG_STAGE_SIDE, LAG_STAGE_OTHER
};

/* --- the format, for readers ------------------------------------------------------------------ */

#define LAG_MARK_MAGIC 0x314b52414d47414cULL /* "LAGMARK1" */
#define LAG_MARK_VERSION 1
#define LAG_MARK_PAGE 4096

enum lag_mark_header {
	LAG_MARK_H_MAGIC, LAG_MARK_H_VERSION, LAG_MARK_H_SIZE, LAG_MARK_H_PID,
	LAG_MARK_H_START,      /* process start: field 22 of /proc/PID/stat */
	LAG_MARK_H_SLOTS,      /* a power of two */
	LAG_MARK_H_SLOTS_OFF, LAG_MARK_H_NAMES_OFF, LAG_MARK_H_NAMES_CAP,
	LAG_MARK_H_NEXT,       /* private to the writer */
	LAG_MARK_H_NAMES_USED,
	LAG_MARK_H_ROLE,       /* enum lag_mark_role */
	LAG_MARK_H_RANK,       /* -1 = none */
	LAG_MARK_H_WORLD,      /* 0 = unknown */
	LAG_MARK_H_LOCAL_RANK, /* -1 = unknown */
	LAG_MARK_H_FLAGS,      /* enum lag_mark_flag */
	LAG_MARK_H_PID_NS,     /* inode of /proc/self/ns/pid */
	LAG_MARK_H_CREATED,    /* CLOCK_MONOTONIC, ns */
	LAG_MARK_H_NAMES_LOST, /* names that found no room */
	LAG_MARK_H_WORDS
};
enum lag_mark_role {
	LAG_MARK_ROLE_UNKNOWN, LAG_MARK_ROLE_TRAINS, LAG_MARK_ROLE_LOADER, LAG_MARK_ROLE_WORKER
};
enum lag_mark_flag { LAG_MARK_FLAG_OFF = 1, LAG_MARK_FLAG_CLOSED = 2 };
enum lag_mark_what {
	LAG_MARK_BEGIN = 1, LAG_MARK_END, LAG_MARK_SPAN, LAG_MARK_MARK, LAG_MARK_META, LAG_MARK_STEP,
	LAG_MARK_OFF
};
/* Span kinds, as in laggard's own tables. */
enum lag_mark_kind {
	LAG_MARK_K_OTHER = 0, LAG_MARK_K_STAGE = 2, LAG_MARK_K_COPY = 5, LAG_MARK_K_COLLECTIVE = 6,
	LAG_MARK_K_GC = 11, LAG_MARK_K_WAIT = 16
};
enum lag_mark_bit {
	LAG_MARK_ASYNC = 1, LAG_MARK_HAND = 2, LAG_MARK_IMPLICIT = 4,
	LAG_MARK_START = 8 /* STEP: a step begins here; without it one ends */
};

#ifndef LAGGARD_MARK_FORMAT_ONLY

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined(__USE_MISC) /* glibc: set by gnu99 and later gnu modes, _DEFAULT_SOURCE, _GNU_SOURCE */
#error "laggard/mark.h needs -std=gnu99 or later, or -D_DEFAULT_SOURCE"
#endif

#if defined(__cplusplus)
extern "C" {
#endif

/* One ring for each program or shared object that marks: weak definitions are merged there. */
struct lag_mark_state {
	uint64_t *map;      /* NULL: off */
	int tried;          /* the ring was made, or there is no recorder */
	uint64_t slots;
	unsigned names;     /* entries of name[] in use */
	pthread_mutex_t lock;
	struct { const char *s; uint32_t id; } name[256]; /* by address of the caller's literal */
};
__attribute__((weak, visibility("hidden"))) struct lag_mark_state lag_mark_state_ = {
	0, 0, 0, 0, PTHREAD_MUTEX_INITIALIZER, {{0, 0}}
};
#define LAG_MARK_SLOTS_ 16384u
#define LAG_MARK_NAMES_ 65536u

static inline uint64_t lag_mark_now_(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint32_t lag_mark_tid_(void)
{
	static __thread uint32_t tid;

	if (tid == 0)
		tid = (uint32_t)syscall(SYS_gettid);
	return tid;
}

static inline uint64_t lag_mark_start_(void)
{
	char buf[1024], *p;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC), field;
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	p = strrchr(buf, ')'); /* the name before it may hold anything */
	for (field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

static inline int64_t lag_mark_env_(const char *name, int64_t none)
{
	const char *v = getenv(name);

	return v && *v ? (int64_t)strtoll(v, NULL, 10) : none;
}

static inline void lag_mark_fork_(void)
{
	/* The parent's pages are shared with this child: writing here would forge its marks. */
	__atomic_store_n(&lag_mark_state_.map, (uint64_t *)0, __ATOMIC_RELEASE);
}

static inline void lag_mark_create_(const char *dir)
{
	const uint64_t names_off = LAG_MARK_PAGE + (uint64_t)LAG_MARK_SLOTS_ * 64;
	const uint64_t size = names_off + LAG_MARK_NAMES_;
	char temporary[4096], path[4096];
	struct stat st;
	uint64_t *w;
	void *m = MAP_FAILED;
	int fd, n;

	n = snprintf(temporary, sizeof(temporary), "%s/.new.%ld.%llx.c", dir, (long)getpid(),
		     (unsigned long long)lag_mark_now_());
	if (n < 0 || (size_t)n >= sizeof(temporary))
		return;
	fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	/* Reserve now: a full /dev/shm must fail here and not as SIGBUS later. */
	if (posix_fallocate(fd, 0, (off_t)size) == 0)
		m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (m == MAP_FAILED) {
		unlink(temporary);
		return;
	}
	w = (uint64_t *)m;
	w[LAG_MARK_H_VERSION] = LAG_MARK_VERSION;
	w[LAG_MARK_H_SIZE] = size;
	w[LAG_MARK_H_PID] = (uint64_t)getpid();
	w[LAG_MARK_H_START] = lag_mark_start_();
	w[LAG_MARK_H_SLOTS] = LAG_MARK_SLOTS_;
	w[LAG_MARK_H_SLOTS_OFF] = LAG_MARK_PAGE;
	w[LAG_MARK_H_NAMES_OFF] = names_off;
	w[LAG_MARK_H_NAMES_CAP] = LAG_MARK_NAMES_;
	w[LAG_MARK_H_NEXT] = 1;
	w[LAG_MARK_H_RANK] = (uint64_t)lag_mark_env_("RANK", lag_mark_env_("SLURM_PROCID", -1));
	w[LAG_MARK_H_WORLD] = (uint64_t)lag_mark_env_("WORLD_SIZE", lag_mark_env_("SLURM_NTASKS", 0));
	w[LAG_MARK_H_LOCAL_RANK] =
		(uint64_t)lag_mark_env_("LOCAL_RANK", lag_mark_env_("SLURM_LOCALID", -1));
	w[LAG_MARK_H_PID_NS] = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
	w[LAG_MARK_H_CREATED] = lag_mark_now_();
	w[LAG_MARK_H_MAGIC] = LAG_MARK_MAGIC;
	for (n = 0; n < 1000; n++) {
		int len = snprintf(path, sizeof(path), "%s/mark.%ld.%d", dir, (long)getpid(), n);

		/* link() never replaces: another pid namespace may use the same pid. */
		if (len < 0 || (size_t)len >= sizeof(path) || link(temporary, path) == 0 ||
		    errno != EEXIST)
			break;
	}
	unlink(temporary);
	pthread_atfork(NULL, NULL, lag_mark_fork_);
	lag_mark_state_.slots = LAG_MARK_SLOTS_;
	__atomic_store_n(&lag_mark_state_.map, w, __ATOMIC_RELEASE);
}

/* The ring, made at the first mark; NULL without a recorder. */
static inline uint64_t *lag_mark_map_(void)
{
	if (__builtin_expect(__atomic_load_n(&lag_mark_state_.tried, __ATOMIC_ACQUIRE) == 0, 0)) {
		int keep = errno;
		const char *dir;

		pthread_mutex_lock(&lag_mark_state_.lock);
		dir = getenv("LAGGARD_MARKS");
		if (!lag_mark_state_.tried && dir && *dir)
			lag_mark_create_(dir);
		__atomic_store_n(&lag_mark_state_.tried, 1, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&lag_mark_state_.lock);
		errno = keep;
	}
	return __atomic_load_n(&lag_mark_state_.map, __ATOMIC_ACQUIRE);
}

/* Intern a string that lives as long as the program (a literal). 0 when there is no room. */
static inline uint32_t lag_mark_name(const char *s)
{
	struct lag_mark_state *st = &lag_mark_state_;
	uint64_t *w = lag_mark_map_();
	unsigned i, n = __atomic_load_n(&st->names, __ATOMIC_ACQUIRE);
	uint32_t id = 0;

	if (!w || !s || !*s)
		return 0;
	for (i = 0; i < n; i++)
		if (st->name[i].s == s)
			return st->name[i].id;
	pthread_mutex_lock(&st->lock);
	for (i = 0; i < st->names && st->name[i].s != s; i++)
		;
	if (i < st->names) {
		id = st->name[i].id;
	} else {
		uint64_t used = w[LAG_MARK_H_NAMES_USED];
		uint32_t len = (uint32_t)strnlen(s, 4096);
		char *at = (char *)w + w[LAG_MARK_H_NAMES_OFF] + used;

		if (i < sizeof(st->name) / sizeof(st->name[0]) &&
		    used + 4 + len <= LAG_MARK_NAMES_) {
			memcpy(at, &len, 4);
			memcpy(at + 4, s, len);
			w[LAG_MARK_H_NAMES_USED] = (used + 4 + len + 7) & ~(uint64_t)7;
			id = (uint32_t)(used / 8 + 1);
			st->name[i].s = s;
			st->name[i].id = id;
			__atomic_store_n(&st->names, i + 1, __ATOMIC_RELEASE);
		} else {
			w[LAG_MARK_H_NAMES_LOST]++;
		}
	}
	pthread_mutex_unlock(&st->lock);
	return id;
}

/* One slot; returns its index, 0 without a recorder. */
static inline uint64_t lag_mark_put_(enum lag_mark_what what, unsigned kind, unsigned stage,
				     unsigned bits, uint32_t name, uint32_t group, int64_t seq,
				     uint64_t bytes, uint64_t token)
{
	uint64_t *w = lag_mark_map_(), *slot, i;

	if (!w)
		return 0;
	i = __atomic_fetch_add(&w[LAG_MARK_H_NEXT], 1, __ATOMIC_RELAXED);
	slot = w + LAG_MARK_PAGE / 8 + (i & (LAG_MARK_SLOTS_ - 1)) * 8;
	__atomic_store_n(&slot[0], i, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&slot[1], lag_mark_now_(), __ATOMIC_RELAXED);
	__atomic_store_n(&slot[2],
			 lag_mark_tid_() | (uint64_t)what << 32 | (uint64_t)kind << 40 |
				 (uint64_t)stage << 48 | (uint64_t)bits << 56,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&slot[3], name | (uint64_t)group << 32, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[4], (uint64_t)seq, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[5], bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[6], token, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[7], i, __ATOMIC_RELEASE);
	return i;
}

/* --- for programs ------------------------------------------------------------------------------ */

static inline int lag_mark_recording(void)
{
	return lag_mark_map_() != (uint64_t *)0;
}

/* A stage of the training step on this thread; end it on the same thread, innermost first. */
static inline uint64_t lag_mark_stage_begin(enum lag_stage stage)
{
	uint64_t *w = lag_mark_map_();

	if (w && stage != LAG_STAGE_NONE && w[LAG_MARK_H_ROLE] == LAG_MARK_ROLE_UNKNOWN)
		__atomic_store_n(&w[LAG_MARK_H_ROLE], (uint64_t)LAG_MARK_ROLE_TRAINS,
				 __ATOMIC_RELAXED);
	return lag_mark_put_(LAG_MARK_BEGIN, LAG_MARK_K_STAGE, stage, LAG_MARK_HAND, 0, 0, 0, 0, 0);
}
static inline void lag_mark_stage_end(uint64_t token)
{
	if (token)
		lag_mark_put_(LAG_MARK_END, 0, 0, 0, 0, 0, 0, 0, token);
}

/* Any other named piece of work. name: a literal. End with lag_mark_end(). */
static inline uint64_t lag_mark_begin(const char *name)
{
	return lag_mark_put_(LAG_MARK_BEGIN, LAG_MARK_K_OTHER, 0, LAG_MARK_HAND, lag_mark_name(name),
			     0, 0, 0, 0);
}
static inline void lag_mark_end(uint64_t token)
{
	lag_mark_stage_end(token);
}

/* A collective: seq counts the collectives of this group, alike on every rank. */
static inline uint64_t lag_mark_collective_begin(const char *op, const char *group, int64_t seq,
						 uint64_t bytes)
{
	return lag_mark_put_(LAG_MARK_BEGIN, LAG_MARK_K_COLLECTIVE, LAG_STAGE_NONE, LAG_MARK_HAND,
			     lag_mark_name(op), lag_mark_name(group), seq, bytes, 0);
}
static inline void lag_mark_collective_end(uint64_t token)
{
	lag_mark_stage_end(token);
}

/* Step number n of the training loop ends here. */
static inline void lag_mark_step(int64_t n)
{
	lag_mark_put_(LAG_MARK_STEP, 0, 0, LAG_MARK_HAND, 0, 0, n, 0, 0);
}

/* An instant with a value. name: a literal. */
static inline void lag_mark_value(const char *name, int64_t value)
{
	lag_mark_put_(LAG_MARK_MARK, 0, 0, LAG_MARK_HAND, lag_mark_name(name), 0, value, 0, 0);
}

/* Tell which rank this is, when it is not in RANK / WORLD_SIZE / LOCAL_RANK. */
static inline void lag_mark_rank(int64_t rank, int64_t world, int64_t local_rank)
{
	uint64_t *w = lag_mark_map_();

	if (w) {
		__atomic_store_n(&w[LAG_MARK_H_RANK], (uint64_t)rank, __ATOMIC_RELAXED);
		__atomic_store_n(&w[LAG_MARK_H_WORLD], (uint64_t)world, __ATOMIC_RELAXED);
		__atomic_store_n(&w[LAG_MARK_H_LOCAL_RANK], (uint64_t)local_rank, __ATOMIC_RELAXED);
	}
}

#if defined(__cplusplus)
}
#endif
#endif /* LAGGARD_MARK_FORMAT_ONLY */
#endif /* LAGGARD_MARK_H */
