/* SPDX-License-Identifier: Apache-2.0 */
#include "base/patient.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/confine.h"

enum {
	SOCK = 3,
	PATIENCE_MS = 500,
	BUSY_MS = 2000,    /* ... unless it has not had a CPU */
	START_MS = 5000,
	IN_ALL = 4,        /* left behind: from then on */
	IMPATIENCE_MS = 20,
	OF_A_USER = 2,
	USERS = 64,
	FORGIVEN_MS = 60000, /* to be asked once more */
	END_MS = 50,
	PACKET = 32 << 10,
};

/* Users who withheld an answer, and how often. */
struct withheld {
	uint64_t who;
	unsigned n;
	int64_t ms; /* when last, CLOCK_MONOTONIC */
};

struct question {
	uint32_t seq;
	unsigned n_users;
	struct withheld withheld[USERS];
	lg_errand *errand; /* NULL: nothing is asked */
	size_t room, n;
	unsigned char told[LG_ERRAND_TOLD];
};

/* An answer is as many of these as it needs; a descriptor comes with the first. */
struct packet {
	uint32_t seq;
	pid_t asker;
	int error;
	bool has_fd;
	size_t all; /* bytes of the answer */
	unsigned char bytes[PACKET];
};

/* One thread alone sends: the recorder's main one. */
static struct {
	pid_t of; /* a forked copy has none */
	pid_t keeper, asker;
	int sock;
	uint32_t seq;
	volatile int32_t *about; /* shared with who asks: whom the question is about */
	unsigned n_left, n_users;
	int64_t left_ms;
	struct withheld withheld[USERS];
} p = { .sock = -1 };

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

ssize_t lg_read_rest(int fd, char *buf, size_t size)
{
	ssize_t got = 1;
	size_t n = 0;
	int e = 0;

	while (got > 0 && n + 1 < size) {
		got = read(fd, buf + n, size - 1 - n);
		if (got < 0 && errno == EINTR) {
			got = 1;
			continue;
		}
		if (got < 0 && !n)
			e = errno;
		n += got > 0 ? (size_t)got : 0;
	}
	buf[n] = 0;
	return e ? -e : (ssize_t)n;
}

ssize_t lg_read_now(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = lg_read_rest(fd, buf, size);
	close(fd);
	return n;
}

/*
 * Whom it is held against: the process's user, status takes no such lock. But of root and of who runs this
 * the one process alone: they attack nobody, and whoever walks a large process of theirs holds its lock for
 * long, which may be what is to be explained.
 */
static uint64_t who_is(int32_t pid)
{
	char path[48], text[4096], *uid_at;
	uint32_t uid;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	uid_at = lg_read_now(path, text, sizeof text) > 0 ? strstr(text, "\nUid:") : NULL;
	uid = uid_at ? (uint32_t)strtoul(uid_at + 5, NULL, 10) : UINT32_MAX;
	return uid && uid != geteuid() ? uid : UINT64_C(1) << 32 | (uint32_t)pid;
}

static bool is_withheld(const struct withheld *users, unsigned n, int32_t pid)
{
	uint64_t who = n ? who_is(pid) : 0;

	for (unsigned i = 0; i < n; i++)
		if (users[i].who == who)
			return users[i].n >= OF_A_USER && now_ms() - users[i].ms < FORGIVEN_MS;
	return false;
}

static void note(int32_t pid)
{
	int64_t now = now_ms();
	uint64_t who = who_is(pid);
	unsigned i = 0;

	p.n_left = now - p.left_ms < FORGIVEN_MS ? p.n_left + 1 : 1;
	p.left_ms = now;
	while (i < p.n_users && p.withheld[i].who != who)
		i++;
	if (i == USERS)
		return;
	p.n_users += i == p.n_users;
	p.withheld[i].who = who;
	p.withheld[i].n++;
	p.withheld[i].ms = now;
}

/* -- keeper and asker -- */

static struct question q; /* in the asker: the one that is being answered */

bool lg_patient_about(int32_t pid)
{
	if (is_withheld(q.withheld, q.n_users, pid))
		return false;
	*p.about = pid;
	return true;
}

static bool send_packet(const struct packet *k, size_t n, int fd)
{
	struct iovec v = { (void *)(uintptr_t)k, offsetof(struct packet, bytes) + n };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} room = { .bytes = { 0 } };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = room.bytes;
		m.msg_controllen = sizeof room.bytes;
		room.align.cmsg_len = CMSG_LEN(sizeof fd);
		room.align.cmsg_level = SOL_SOCKET;
		room.align.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&room.align), &fd, sizeof fd);
	}
	return sendmsg(SOCK, &m, MSG_NOSIGNAL) > 0;
}

static void ask_for_others(void) __attribute__((noreturn));
static void ask_for_others(void)
{
	static struct packet k;
	unsigned char *answer = NULL;
	size_t cap = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	k.asker = getpid();
	for (;;) {
		size_t n = 0, sent = 0, part;
		int fd = -1;

		if (q.errand && q.room > cap) {
			lg_free(answer);
			answer = lg_calloc(1, q.room);
			cap = answer ? q.room : 0;
		}
		k.seq = q.seq;
		k.error = q.errand && q.room > cap ? ENOMEM : 0;
		if (q.errand && !k.error)
			k.error = q.errand(q.told, q.n, answer, q.room, &n, &fd);
		k.has_fd = fd >= 0;
		k.all = n;
		do {
			part = n - sent < PACKET ? n - sent : PACKET;
			if (part)
				memcpy(k.bytes, answer + sent, part);
			if (!send_packet(&k, part, sent ? -1 : fd))
				_exit(0);
			sent += part;
		} while (sent < n);
		if (fd >= 0)
			close(fd);
		if (recv(SOCK, &q, sizeof q, 0) < (ssize_t)offsetof(struct question, told))
			_exit(0);
	}
}

/* SIGTERM: another asker is wanted. One that ends by itself has nobody any more to ask for. */
static void keep(int sock, pid_t parent) __attribute__((noreturn));
static void keep(int sock, pid_t parent)
{
	static const uint8_t needed[] = { CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE, CAP_DAC_READ_SEARCH,
					  CAP_DAC_OVERRIDE };
	uint64_t caps = 0;
	sigset_t those;
	pid_t asker;
	int sig;

	sigemptyset(&those);
	sigaddset(&those, SIGTERM);
	sigaddset(&those, SIGCHLD);
	(void)signal(SIGCHLD, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	for (size_t i = 0; i < sizeof needed; i++)
		caps |= UINT64_C(1) << needed[i];
	if (prctl(PR_CAPBSET_READ, CAP_CHECKPOINT_RESTORE, 0, 0, 0) < 0)
		caps |= UINT64_C(1) << CAP_SYS_ADMIN;
	lg_confine_to_socket(sock, SOCK); /* who is left behind may outlive the recorder */
	(void)prctl(PR_SET_NAME, "laggard-asker", 0, 0, 0);
	if (lg_confine_capabilities(caps, NULL) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) ||
	    getppid() != parent)
		_exit(1);
	for (;;) {
		asker = fork();
		if (!asker)
			ask_for_others();
		do {
			if (asker < 0 || sigwait(&those, &sig) || waitpid(asker, NULL, WNOHANG) == asker) {
				while (waitpid(-1, NULL, WNOHANG) > 0)
					;
				_exit(0);
			}
		} while (sig != SIGTERM);
		(void)kill(asker, SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

/* -- who has the question -- */

static bool wants_a_cpu(pid_t pid)
{
	char path[48], text[512], *end;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	end = lg_read_now(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
	return end && end[1] && end[2] == 'R';
}

/* The next packet, and the descriptor with it; false: none came in time. */
static bool hear(struct packet *k, size_t *ret_n, int *ret_fd, int patience_ms)
{
	int64_t began = now_ms();
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} room;
	struct iovec v = { k, sizeof *k };

	for (;;) {
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room.bytes,
				    .msg_controllen = sizeof room.bytes };
		struct pollfd f = { .fd = p.sock, .events = POLLIN };
		int64_t left = began + patience_ms - now_ms();
		struct cmsghdr *c;
		ssize_t n;
		int fd = -1;

		if (poll(&f, 1, left > 0 ? (int)left : 10) < 1) {
			if (left > 0 || (now_ms() - began < BUSY_MS && wants_a_cpu(p.asker)))
				continue;
			return false;
		}
		n = recvmsg(p.sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < (ssize_t)offsetof(struct packet, bytes)) {
			close(p.sock); /* nobody is there any more */
			p.sock = -1;
			return false;
		}
		c = CMSG_FIRSTHDR(&m);
		if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		    c->cmsg_len == CMSG_LEN(sizeof fd))
			memcpy(&fd, CMSG_DATA(c), sizeof fd);
		p.asker = k->asker;
		if (k->seq == p.seq) {
			*ret_n = (size_t)n - offsetof(struct packet, bytes);
			*ret_fd = fd;
			return true;
		}
		if (fd >= 0)
			close(fd); /* a late answer, or an asker's first word */
	}
}

void lg_patient_anew(void)
{
	int64_t began = now_ms();

	if (p.sock >= 0)
		close(p.sock);
	p.sock = -1;
	if (p.of != getpid() || p.keeper <= 0)
		return;
	/* Who asks ends where nobody is there to hear it, unless it waits itself; and its keeper then. */
	while (!waitpid(p.keeper, NULL, WNOHANG)) {
		if (now_ms() - began > 2 * END_MS)
			break;
		if (now_ms() - began > END_MS)
			(void)kill(p.keeper, SIGKILL);
		usleep(200);
	}
	p.keeper = 0;
}

static bool started(struct packet *k)
{
	static bool ends;
	sigset_t all, old;
	int pair[2], fd;
	pid_t me = getpid();
	size_t n;

	if (p.sock >= 0 && p.of == me)
		return true;
	lg_patient_anew();
	if (p.about)
		(void)munmap((void *)(uintptr_t)p.about, sizeof *p.about);
	p.about = mmap(NULL, sizeof *p.about, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p.about == MAP_FAILED) {
		p.about = NULL;
		return false;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return false;
	p.of = me;
	p.seq = 0;
	q.errand = NULL;
	q.seq = 0;
	sigfillset(&all); /* the keeper waits for its signals; for none there before */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	p.keeper = fork();
	if (!p.keeper)
		keep(pair[1], me);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	close(pair[1]);
	p.sock = pair[0];
	if (!ends)
		ends = !atexit(lg_patient_anew);
	if (p.keeper > 0 && hear(k, &n, &fd, START_MS))
		return true;
	lg_patient_anew();
	return false;
}

/* The whole answer; an errno of our own, when there is none. */
static int answer_of(struct packet *k, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	int fd, patience_ms = p.n_left < IN_ALL ? PATIENCE_MS : IMPATIENCE_MS;
	size_t n, got = 0;

	do {
		if (!hear(k, &n, &fd, patience_ms)) {
			if (*ret_fd >= 0)
				close(*ret_fd);
			*ret_fd = -1;
			return EAGAIN;
		}
		if (fd >= 0)
			*ret_fd = fd;
		n = n < room - got ? n : room - got;
		memcpy((unsigned char *)answer + got, k->bytes, n);
		got += n;
	} while (got < k->all && got < room && n);
	*ret_n = got;
	return !k->error && k->has_fd && *ret_fd < 0 ? EMFILE : k->error; /* our table is full */
}

int lg_patient_send(int32_t pid, lg_errand *errand, const void *told, size_t n, void *answer, size_t room,
		    size_t *ret_n, int *ret_fd)
{
	static struct packet k;
	static struct question ask;
	int fd = -1, rc;
	size_t got = 0;
	bool sent;

	if (ret_n)
		*ret_n = 0;
	if (ret_fd)
		*ret_fd = -1;
	if (n > sizeof ask.told)
		return E2BIG;
	if ((pid && is_withheld(p.withheld, p.n_users, pid)) || !started(&k))
		return EAGAIN;
	ask.seq = ++p.seq;
	ask.n_users = p.n_users;
	ask.errand = errand;
	ask.room = room;
	ask.n = n;
	memcpy(ask.withheld, p.withheld, sizeof ask.withheld);
	memcpy(ask.told, told, n);
	*p.about = pid;
	k.seq = p.seq - 1;
	sent = send(p.sock, &ask, offsetof(struct question, told) + n, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
	rc = sent ? answer_of(&k, answer, room, &got, &fd) : EAGAIN;
	if (k.seq == p.seq) {
		; /* answered: any errno is the errand's */
	} else if (!sent || p.sock < 0) {
		lg_patient_anew(); /* nobody asks any more: no fault of who was asked */
	} else {
		note(*p.about);
		(void)kill(p.keeper, SIGTERM);
		p.asker = p.keeper;
	}
	if (ret_n)
		*ret_n = got;
	if (ret_fd)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

/* -- files -- */

struct file {
	int flags;
	char path[];
};

static int open_one(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	const struct file *f = told;

	(void)n;
	(void)answer;
	(void)room;
	(void)ret_n;
	*ret_fd = open(f->path, f->flags | O_CLOEXEC);
	return *ret_fd < 0 ? errno : 0;
}

static int read_one(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	const struct file *f = told;
	ssize_t got = lg_read_now(f->path, answer, room);

	(void)n;
	(void)ret_fd;
	*ret_n = got > 0 ? (size_t)got : 0;
	return got < 0 ? (int)-got : 0;
}

static int send_file(int32_t pid, lg_errand *errand, const char *path, int flags, void *answer, size_t room,
		     size_t *ret_n, int *ret_fd)
{
	union {
		struct file file;
		char bytes[sizeof(struct file) + 128];
	} ask;
	size_t n = strlen(path) + 1;

	if (n > sizeof ask - sizeof ask.file)
		return ENAMETOOLONG;
	ask.file.flags = flags;
	memcpy(ask.file.path, path, n);
	return lg_patient_send(pid, errand, &ask, sizeof ask.file + n, answer, room, ret_n, ret_fd);
}

ssize_t lg_patient_read(int32_t pid, const char *path, char *buf, size_t size)
{
	size_t n = 0;
	int rc = send_file(pid, read_one, path, 0, buf, size, &n, NULL);

	buf[n] = 0;
	return rc ? -rc : (ssize_t)n;
}

int lg_patient_open(int32_t pid, const char *path, int flags)
{
	int fd, rc = send_file(pid, open_one, path, flags, NULL, 0, NULL, &fd);

	if (rc)
		errno = rc;
	return fd;
}
