/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol_child.c - the recorder's side of symbol_wire.h.
 *
 * Nothing here waits without an end: every send and every answer has a deadline, after which the child is
 * killed and no more is asked.
 */
#include "symbols/symbol_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#define DEBUG_DIR "/usr/lib/debug"

enum {
	START_MS = 2000,
	GRACE_MS = 250,        /* beyond its own budget: a machine with more to do than CPUs */
	BUILD_ID_MS = 50,
	BUILD_IDS_MS = 500,    /* all that were slow together; then no more are asked for */
	SLOW_MS = 5,
	LOOK_MS = 100,         /* how often it is asked whether the reader still runs, */
	LOOKS_IDLE = 10,       /* and how often in a row it may not have: stopped, a read that hangs */
	REAP_MS = 200,         /* who is frozen, or waits for a disk, does not even die */
	DEBUG_FILES_MAX = 16,  /* candidates of one file */
};

struct lg_symbol_child {
	pid_t keeper, reader;
	int sock;
	bool gone, stopped, has_owner;
	uid_t owner; /* whose files the reader has seen */
	uint32_t seq;
	int64_t ids_ms; /* spent on slow build ids */
	char packet[LG_PACKET_BYTES];
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* CPU time of a process so far; -1: there is none. */
static int64_t ran_ns(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (pid <= 0 || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return -1;
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Who does not die now is left to do so: its user is its own, and it has nobody to answer to. */
static void reap(pid_t pid)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	for (int i = 0; i < REAP_MS; i++) {
		pid_t got = waitpid(pid, NULL, WNOHANG);

		if (got && (got > 0 || errno != EINTR))
			return;
		(void)nanosleep(&ms, NULL);
	}
}

static void give_up(struct lg_symbol_child *c)
{
	c->gone = true;
	if (c->sock >= 0)
		close(c->sock);
	c->sock = -1;
	/* The reader goes with its keeper (PR_SET_PDEATHSIG). */
	if (c->keeper > 0) {
		(void)kill(c->keeper, SIGKILL);
		reap(c->keeper);
	}
	c->keeper = 0;
}

static bool wait_until(struct lg_symbol_child *c, short what, int64_t deadline)
{
	struct pollfd p = { .fd = c->sock, .events = what };
	int64_t ran = ran_ns(c->reader);

	/* Looks are counted, not their time: who stops the recorder as well (Ctrl-Z) costs no names. */
	for (int idle = 0; idle < LOOKS_IDLE; idle++) {
		int64_t left = deadline - now_ms(), now;
		int n = left < 0 ? 0 : poll(&p, 1, left < LOOK_MS ? (int)left : LOOK_MS);

		/* Also where there is always more to hear. */
		if (n > 0)
			return true;
		if (n < 0 ? errno != EINTR : left <= LOOK_MS)
			return false;
		now = ran_ns(c->reader);
		if (now != ran)
			idle = 0;
		ran = now;
	}
	c->stopped = true;
	return false;
}

static bool ask(struct lg_symbol_child *c, const struct lg_ask *a, const void *rest, size_t n, int fd,
		int64_t deadline)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	struct lg_ask head = *a;
	struct iovec io[2] = { { &head, sizeof head }, { (void *)(uintptr_t)rest, n } };
	struct msghdr m = { .msg_iov = io, .msg_iovlen = 2 };

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
						  .cmsg_len = CMSG_LEN(sizeof fd) };
		memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
	}
	for (;;) {
		ssize_t sent = sendmsg(c->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0)
			return true;
		if (errno == EINTR)
			continue;
		if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_until(c, POLLOUT, deadline))
			return false;
	}
}

/* The next packet; 0 when there is none until the deadline, or never again. */
static size_t hear(struct lg_symbol_child *c, struct lg_say *ret, int64_t deadline)
{
	while (wait_until(c, POLLIN, deadline)) {
		/* What does not fit is cut, and then its head and its length do not agree. There is no room
		 * for descriptors: the kernel throws them away. */
		ssize_t n = recv(c->sock, c->packet, sizeof c->packet, MSG_DONTWAIT);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0 || !lg_answer_head(c->packet, (size_t)n, ret))
			return 0;
		if (ret->kind == LG_SAY_READER)
			c->reader = ret->status;
		else if (ret->kind == LG_SAY_DIED || ret->seq == c->seq)
			return (size_t)n;
	}
	return 0;
}

int lg_symbol_child_new(struct lg_symbol_child **ret, struct lg_error *err)
{
	struct lg_symbol_child *c = lg_calloc(1, sizeof *c);
	pid_t recorder = getpid();
	struct lg_say say;
	int pair[2];

	if (!c)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		int e = errno;

		lg_free(c);
		return lg_fail_errno(err, e, "socketpair");
	}
	c->sock = pair[0];
	c->keeper = fork();
	if (!c->keeper)
		lg_symbol_keeper(pair[1], recorder);
	close(pair[1]);
	if (c->keeper < 0 || !hear(c, &say, now_ms() + START_MS) || say.kind != LG_SAY_DONE || say.status) {
		lg_symbol_child_free(c);
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "the process that reads symbols cannot be confined here");
	}
	*ret = c;
	return 0;
}

void lg_symbol_child_free(struct lg_symbol_child *c)
{
	if (!c)
		return;
	give_up(c);
	lg_free(c);
}

void lg_symbol_child_lend(struct lg_symbol_child *c)
{
	enum { QUESTIONS_MOST = 1 << 20 };

	c->seq += QUESTIONS_MOST;
	c->has_owner = true;
	c->owner = (uid_t)-1; /* chown(2): nobody's */
}

/* A question about a file of owner, as a reader who has seen no other's. */
static bool begin(struct lg_symbol_child *c, const struct lg_ask *a, int fd, uid_t owner, int64_t deadline)
{
	struct lg_ask leave = { .kind = LG_ASK_LEAVE };

	if (c->has_owner && c->owner != owner && !ask(c, &leave, NULL, 0, -1, deadline))
		return false;
	c->has_owner = true;
	c->owner = owner;
	return ask(c, a, NULL, 0, fd, deadline);
}

/* A short question, answered in one packet of that kind: its size, 0 = no answer. */
static size_t ask_shortly(struct lg_symbol_child *c, enum lg_ask_kind what, int fd, uid_t owner,
			  enum lg_say_kind kind)
{
	int64_t began = now_ms(), deadline = began + BUILD_ID_MS + GRACE_MS;
	struct lg_ask a = { .kind = what, .budget_ms = BUILD_ID_MS };
	struct lg_say say;
	size_t n = 0;

	if (c->gone || c->ids_ms > BUILD_IDS_MS)
		return 0;
	a.seq = ++c->seq;
	if (begin(c, &a, fd, owner, deadline))
		n = hear(c, &say, deadline);
	/* Late on a busy machine is no reason to lose all names: a late answer has an old number. */
	if (!n && now_ms() < deadline)
		give_up(c);
	if (now_ms() - began > SLOW_MS)
		c->ids_ms += now_ms() - began;
	return n && say.kind == kind ? n : 0;
}

bool lg_symbol_child_build_id(struct lg_symbol_child *c, int fd, uid_t owner, char ret_hex[LG_BUILD_ID_HEX])
{
	size_t n = ask_shortly(c, LG_ASK_BUILD_ID, fd, owner, LG_SAY_OPENED);

	ret_hex[0] = 0;
	return n && lg_answer_id(c->packet, n, ret_hex) && *ret_hex;
}

bool lg_symbol_child_exports(struct lg_symbol_child *c, int fd, uid_t owner, struct lg_say_exports *ret)
{
	size_t n = ask_shortly(c, LG_ASK_EXPORTS, fd, owner, LG_SAY_EXPORTS);

	return n && lg_answer_exports(c->packet, n, ret);
}

static bool send_pcs(struct lg_symbol_child *c, const struct lg_symbol_job *job, int64_t deadline)
{
	for (size_t at = 0; at < job->n;) {
		struct lg_ask a = { .kind = LG_ASK_PCS, .seq = c->seq, .n = LG_PACKET_PCS };

		if (job->n - at < a.n)
			a.n = (uint32_t)(job->n - at);
		if (!ask(c, &a, job->pcs + at, a.n * sizeof *job->pcs, -1, deadline))
			return false;
		at += a.n;
	}
	return true;
}

static bool answer_debug(struct lg_symbol_child *c, const struct lg_symbol_job *job, size_t n, unsigned which,
			 int64_t deadline)
{
	struct lg_ask a = { .kind = LG_ASK_DEBUG, .seq = c->seq };
	struct lg_debug_names d;
	int fd;
	bool ok;

	if (!lg_answer_debug(c->packet, n, &d))
		return false;
	fd = lg_debug_candidate(&d, job->fd, DEBUG_DIR, which);
	ok = ask(c, &a, NULL, 0, fd, deadline);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* One packet of a job's answer. 1: that was the last; 0: go on; -1: nothing more is believed of the child. */
static int take(struct lg_symbol_child *c, const struct lg_symbol_job *job, struct lg_answer *a,
		const struct lg_say *say, size_t n, lg_named_fn *named, void *self, struct lg_symbol_end *ret)
{
	char id[LG_BUILD_ID_HEX];

	switch (say->kind) {
	case LG_SAY_OPENED:
		if (!lg_answer_id(c->packet, n, id))
			return -1;
		ret->no_file = say->status != 0;
		ret->other_build = *id && *job->build_id && strcmp(id, job->build_id);
		return 0;
	case LG_SAY_NAMES:
		if (ret->other_build || a->cut)
			return 0;
		return lg_answer_names(a, c->packet, n, named, self) ? 0 : -1;
	case LG_SAY_DIED:
		ret->signal = say->status > 0 && say->status < 65 ? say->status : SIGKILL;
		return 1;
	default:
		return say->kind == LG_SAY_DONE ? 1 : -1;
	}
}

void lg_symbol_child_names(struct lg_symbol_child *c, const struct lg_symbol_job *job, lg_named_fn *named,
			   void *self, struct lg_symbol_end *ret)
{
	int64_t deadline = now_ms() + job->budget_ms + GRACE_MS;
	struct lg_ask a = { .kind = job->kind, .n = (uint32_t)job->n, .budget_ms = job->budget_ms };
	struct lg_answer answer = { .n_pcs = job->n, .bytes_left = job->name_bytes };
	int last = c->gone ? -1 : 0, files = 0;

	*ret = (struct lg_symbol_end){ 0 };
	a.seq = ++c->seq;
	if (!last && (!begin(c, &a, job->fd, job->owner, deadline) || !send_pcs(c, job, deadline)))
		last = -1;
	while (!last) {
		struct lg_say say;
		size_t n = hear(c, &say, deadline);

		if (!n) {
			ret->stopped = c->stopped;
			ret->late = !c->stopped && now_ms() >= deadline;
			last = -1;
		} else if (say.kind == LG_SAY_WANT_DEBUG) {
			last = files++ < DEBUG_FILES_MAX && answer_debug(c, job, n, say.n, deadline) ? 0 : -1;
		} else {
			last = take(c, job, &answer, &say, n, named, self, ret);
		}
	}
	ret->cut = answer.cut;
	ret->gone = last < 0;
	if (last < 0)
		give_up(c);
}
