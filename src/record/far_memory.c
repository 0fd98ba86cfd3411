/* SPDX-License-Identifier: Apache-2.0 */
#include "record/far_memory.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/confine.h"
#include "base/order.h"
#include "record/procfs.h"

enum {
	SOCK = 3,
	START_MS = 2000,
	PATIENCE_MS = 200,  /* memory that was swapped out comes sooner */
	BUSY_MS = 1000,     /* ... unless the reader has not had a CPU */
	WITHHELD_MAX = 4,   /* then nobody is asked any more: a recording may not last long beyond its end */
	PAGE = 4096
};

struct ask {
	uint32_t seq;
	int32_t pid; /* 0: nothing is asked */
	uint32_t n;
	struct {
		uint64_t at, n;
	} range[LG_FAR_RANGES];
};

/* With bytes it is to be written. */
struct question {
	struct ask ask;
	uint8_t bytes[LG_FAR_WRITE];
};

struct answer {
	uint32_t seq;
	int32_t reader; /* who answers */
	uint64_t got[LG_FAR_RANGES];
	uint8_t bytes[LG_FAR_BYTES];
};

struct lg_far {
	pid_t keeper, reader;
	int sock; /* -1: none but ourselves reads */
	uint32_t seq;
	unsigned withheld;
	struct answer answer;
};

/* Bytes read; fewer than n where a page is not there. */
static size_t read_range(int32_t pid, uint64_t at, void *buf, size_t n)
{
	struct iovec to = { buf, n }, from = { (void *)(uintptr_t)at, n };
	ssize_t got = n ? process_vm_readv(pid, &to, 1, &from, 1, 0) : 0;

	if (got >= 0 || n <= PAGE - at % PAGE)
		return got > 0 ? (size_t)got : 0;
	/* One element is read whole or not at all: up to the end of its first page, then. */
	to.iov_len = from.iov_len = PAGE - at % PAGE;
	got = process_vm_readv(pid, &to, 1, &from, 1, 0);
	return got > 0 ? (size_t)got : 0;
}

/* Sets what each got; where all are there, with one call. */
static void read_whole(int32_t pid, struct lg_far_range *r, size_t n)
{
	struct iovec to[LG_FAR_RANGES] = { { NULL, 0 } }, from[LG_FAR_RANGES] = { { NULL, 0 } };
	ssize_t all;
	size_t i = 0;

	for (size_t k = 0; k < n; k++) {
		to[k] = (struct iovec){ r[k].to, r[k].n };
		from[k] = (struct iovec){ (void *)(uintptr_t)r[k].at, r[k].n };
	}
	all = process_vm_readv(pid, to, n, from, n, 0);
	/* It stops at the first that is not whole, having read those before. */
	for (; i < n && all > 0 && (size_t)all >= r[i].n; i++) {
		r[i].got = r[i].n;
		all -= (ssize_t)r[i].n;
	}
	for (; i < n; i++)
		r[i].got = read_range(pid, r[i].at, r[i].to, r[i].n);
}

static void write_all(int32_t pid, struct lg_far_range *r, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct iovec from = { r[i].to, r[i].n }, to = { (void *)(uintptr_t)r[i].at, r[i].n };
		ssize_t k = process_vm_writev(pid, &from, 1, &to, 1, 0);

		r[i].got = k > 0 ? (size_t)k : 0;
	}
}

/* -- keeper and reader -- */

static void read_for_others(void) __attribute__((noreturn));
static void read_for_others(void)
{
	static struct answer a;
	static struct question q;
	ssize_t k = sizeof q.ask;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	for (;;) {
		struct lg_far_range r[LG_FAR_RANGES];
		size_t used = 0, n = LG_MIN(q.ask.n, LG_FAR_RANGES), room = (size_t)k - sizeof q.ask;
		bool writes = room > 0;

		room = writes ? room : sizeof a.bytes;
		for (size_t i = 0; i < n; i++) {
			r[i] = (struct lg_far_range){
				.at = q.ask.range[i].at, .to = (writes ? q.bytes : a.bytes) + used,
				.n = LG_MIN((size_t)q.ask.range[i].n, room - used)
			};
			used += r[i].n;
		}
		(writes ? write_all : read_whole)(q.ask.pid, r, n);
		used = 0;
		for (size_t i = 0; i < n; i++) {
			if (writes) {
				a.got[i] = r[i].got;
				continue;
			}
			memmove(a.bytes + used, r[i].to, r[i].got);
			a.got[i] = r[i].got;
			used += r[i].got;
		}
		a.seq = q.ask.seq;
		a.reader = getpid();
		if (send(SOCK, &a, offsetof(struct answer, bytes) + used, MSG_NOSIGNAL) < 0 ||
		    (k = recv(SOCK, &q, sizeof q, 0)) < (ssize_t)sizeof q.ask)
			_exit(0);
	}
}

/* SIGTERM: another reader is wanted. A reader that ends by itself has no recorder any more. */
static void keep(int sock, pid_t recorder) __attribute__((noreturn));
static void keep(int sock, pid_t recorder)
{
	sigset_t those, all;
	pid_t reader;
	int sig;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&those);
	sigaddset(&those, SIGTERM);
	sigaddset(&those, SIGCHLD);
	(void)signal(SIGCHLD, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	lg_confine_to_socket(sock, SOCK); /* a reader that waits for a page may outlive the recorder */
	(void)prctl(PR_SET_NAME, "laggard-memory", 0, 0, 0);
	if (lg_confine_capabilities(UINT64_C(1) << CAP_SYS_PTRACE, NULL) ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) ||
	    getppid() != recorder)
		_exit(1);
	for (;;) {
		reader = fork();
		if (!reader)
			read_for_others();
		do {
			if (reader < 0 || sigwait(&those, &sig) || waitpid(reader, NULL, WNOHANG) == reader)
				_exit(0);
		} while (sig != SIGTERM);
		(void)kill(reader, SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

/* -- recorder -- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool wants_a_cpu(pid_t pid)
{
	struct lg_proc_stat st;

	return pid > 0 && !lg_proc_stat(pid, 0, &st) && st.state == 'R';
}

/* The answer to the latest question; the bytes of it. */
static bool hear(struct lg_far *f, int patience_ms, size_t *ret)
{
	int64_t began = now_ms();

	for (;;) {
		struct pollfd p = { .fd = f->sock, .events = POLLIN };
		int64_t left = began + patience_ms - now_ms();
		ssize_t n;

		if (poll(&p, 1, left > 0 ? (int)left : 10) < 1) {
			if (left > 0 || (now_ms() - began < BUSY_MS && wants_a_cpu(f->reader)))
				continue;
			return false;
		}
		n = recv(f->sock, &f->answer, sizeof f->answer, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < (ssize_t)offsetof(struct answer, bytes))
			return false;
		f->reader = f->answer.reader;
		if (f->answer.seq != f->seq)
			continue; /* a reader's first word, or a late one */
		*ret = (size_t)n - offsetof(struct answer, bytes);
		return true;
	}
}

static bool ask(struct lg_far *f, int32_t pid, struct lg_far_range *range, size_t n, bool writes)
{
	struct question q = { .ask = { .seq = ++f->seq, .pid = pid, .n = (uint32_t)n } };
	size_t used = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		q.ask.range[i].at = range[i].at;
		q.ask.range[i].n = range[i].n;
		if (writes && range[i].n > sizeof q.bytes - used)
			return false;
		if (writes)
			memcpy(q.bytes + used, range[i].to, range[i].n);
		used += writes ? range[i].n : 0;
	}
	if (send(f->sock, &q, sizeof q.ask + used, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ||
	    !hear(f, PATIENCE_MS, &bytes))
		return false;
	used = 0;
	for (size_t i = 0; i < n; i++) {
		size_t got = (size_t)f->answer.got[i];

		if (got > range[i].n || (!writes && got > bytes - used))
			return false;
		range[i].got = got;
		if (writes)
			continue;
		memcpy(range[i].to, f->answer.bytes + used, got);
		used += got;
	}
	return true;
}

static bool touch(struct lg_far *f, int32_t pid, struct lg_far_range *range, size_t n, bool writes)
{
	for (size_t i = 0; i < n; i++)
		range[i].got = 0;
	if (n > LG_FAR_RANGES)
		return false;
	if (f->sock < 0 && !f->withheld) {
		(writes ? write_all : read_whole)(pid, range, n);
		return true;
	}
	if (f->withheld >= WITHHELD_MAX)
		return false;
	if (ask(f, pid, range, n, writes))
		return true;
	for (size_t i = 0; i < n; i++)
		range[i].got = 0;
	f->withheld++;
	(void)kill(f->keeper, SIGTERM);
	f->reader = f->keeper; /* who is to start the next one */
	return false;
}

bool lg_far_read(struct lg_far *f, int32_t pid, struct lg_far_range *range, size_t n)
{
	return touch(f, pid, range, n, false);
}

bool lg_far_write(struct lg_far *f, int32_t pid, struct lg_far_range *range, size_t n)
{
	return touch(f, pid, range, n, true);
}

void lg_far_lend(struct lg_far *f)
{
	enum { QUESTIONS_MOST = 1 << 20 };

	f->seq += QUESTIONS_MOST;
}

unsigned lg_far_withheld(const struct lg_far *f)
{
	return f->withheld;
}

static bool may_look_into_others(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	return !syscall(SYS_capget, &h, d) && d[0].effective >> CAP_SYS_PTRACE & 1;
}

struct lg_far *lg_far_new(void)
{
	struct lg_far *f = lg_calloc(1, sizeof *f);
	pid_t recorder = getpid();
	size_t none;
	int pair[2];

	if (!f)
		return NULL;
	f->sock = -1;
	if (!may_look_into_others())
		return f;
	f->withheld = WITHHELD_MAX; /* without a reader nothing is read */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return f;
	f->sock = pair[0];
	f->keeper = fork();
	if (!f->keeper)
		keep(pair[1], recorder);
	close(pair[1]);
	if (f->keeper > 0 && hear(f, START_MS, &none))
		f->withheld = 0;
	return f;
}

void lg_far_free(struct lg_far *f)
{
	if (!f)
		return;
	if (f->sock >= 0)
		close(f->sock);
	/* The reader goes with it, as soon as it can. The keeper itself waits for nothing. */
	if (f->keeper > 0) {
		(void)kill(f->keeper, SIGKILL);
		while (waitpid(f->keeper, NULL, 0) < 0 && errno == EINTR)
			;
	}
	lg_free(f);
}
