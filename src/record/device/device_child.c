/* SPDX-License-Identifier: Apache-2.0 */
#include "record/device/device_child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "record/session.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
/* The driver of a card that nobody uses is started by the first question, for seconds, card by card. */
#define OPEN_PATIENCE (60 * SECOND)
#define PATIENCE (5 * SECOND)
#define OWES (1500 * MS) /* at the end of a recording: a sweep a second, and some */
#define AWAY (2 * SECOND) /* whoever did not listen for so long was stopped, and it may have been, too */
#define AHEAD (1 * MS)

enum { REFUSED_MOST = 10000, REAP_MS = 50, NOTES_MOST = 16, SLACK = 8 };

struct lg_device_child {
	const struct lg_device_reader *r;
	pid_t pid;
	int sock;
	volatile struct lg_device_doing *doing; /* its to write: read once, and not believed */
	int64_t began, heard, period;
	int64_t asked; /* when it was listened to */
	bool ready, said_why, told;
	bool named[LG_DEVICES_MAX];
	unsigned notes, xids;
	uint64_t refused;
	struct {
		int64_t last; /* time */
		int64_t n;
	} said[LG_DEVICES_MAX][2]; /* SAMPLE, USERS */
};

struct lg_device_child *lg_device_child_new(const struct lg_device_reader *r, unsigned hz)
{
	struct lg_device_child *c = lg_calloc(1, sizeof *c);
	pid_t recorder = getpid();
	int pair[2];

	if (!c)
		return NULL;
	c->r = r;
	c->sock = -1;
	c->period = SECOND / (hz ? hz : 1);
	c->doing = mmap(NULL, sizeof *c->doing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c->doing == MAP_FAILED)
		c->doing = NULL;
	if (!c->doing || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		lg_device_child_free(c);
		return NULL;
	}
	c->doing->device = -1;
	c->sock = pair[0];
	c->began = c->heard = c->asked = lg_monotonic_ns();
	c->pid = fork();
	if (!c->pid)
		lg_device_worker(r, pair[1], recorder, c->doing, hz);
	close(pair[1]);
	if (c->pid < 0) {
		lg_device_child_free(c);
		return NULL;
	}
	return c;
}

/* Its status, where it is dead soon enough; -1: it is not. */
static int reap(pid_t pid, int ms)
{
	const struct timespec one = { .tv_nsec = MS };

	for (;; ms--) {
		int st = 0;
		pid_t got = waitpid(pid, &st, WNOHANG);

		if (got == pid)
			return st;
		if ((got < 0 && errno != EINTR) || ms <= 0)
			return -1;
		(void)nanosleep(&one, NULL);
	}
}

static int end(struct lg_device_child *c, bool kill_it)
{
	int st = -1;

	if (c->sock >= 0)
		close(c->sock);
	c->sock = -1;
	if (c->pid > 0) {
		if (kill_it)
			(void)kill(c->pid, SIGKILL);
		st = reap(c->pid, REAP_MS);
		if (st < 0 && !kill_it)
			(void)kill(c->pid, SIGKILL);
	}
	c->pid = 0;
	return st;
}

void lg_device_child_free(struct lg_device_child *c)
{
	if (!c)
		return;
	(void)end(c, true);
	if (c->doing)
		(void)munmap((void *)(uintptr_t)c->doing, sizeof *c->doing);
	lg_free(c);
}

const struct lg_device_reader *lg_device_child_reader(const struct lg_device_child *c)
{
	return c->r;
}

uint64_t lg_device_child_refused(const struct lg_device_child *c)
{
	return c->refused;
}

int lg_device_child_fd(const struct lg_device_child *c)
{
	return c->sock;
}

/* "nvmlDeviceGetPowerUsage of device 3", or what is known of it. */
static const char *doing_text(const struct lg_device_child *c, char *buf, size_t size)
{
	uint32_t call = c->doing->call;
	int32_t device = c->doing->device;
	const char *name = c->r->call_name ? c->r->call_name(call) : NULL;

	if (!name)
		snprintf(buf, size, "it");
	else if (device >= 0 && device < LG_DEVICES_MAX)
		snprintf(buf, size, "%s of device %d", name, device);
	else
		snprintf(buf, size, "%s", name);
	return buf;
}

static void silent_text(const struct lg_device_child *c, int64_t now, char *why, size_t size)
{
	char doing[96];

	snprintf(why, size, "%s: %s has not returned for %.1f s", c->r->name,
		 doing_text(c, doing, sizeof doing), (double)(now - c->heard) / 1e9);
}

/* Not more often than it was asked for; a sweep that was held up may be close to the next. */
static bool is_due(struct lg_device_child *c, const struct lg_device_packet *p, int64_t now)
{
	bool users = p->kind == LG_DEVICE_USERS;

	if (!c->ready || p->ts < c->began || p->ts > now + AHEAD ||
	    p->ts <= c->said[p->device][users].last ||
	    c->said[p->device][users].n > SLACK + 2 * ((now - c->began) / c->period))
		return false;
	c->said[p->device][users].last = p->ts;
	c->said[p->device][users].n++;
	return true;
}

static bool may_be(struct lg_device_child *c, const struct lg_device_packet *p, int64_t now)
{
	switch (p->kind) {
	case LG_DEVICE_NOTE:
		return c->notes++ < NOTES_MOST;
	case LG_DEVICE_XID:
		return c->ready && p->ts >= c->began && p->ts <= now + AHEAD && c->xids++ < REFUSED_MOST;
	case LG_DEVICE_SAMPLE:
	case LG_DEVICE_USERS:
		return is_due(c, p, now);
	case LG_DEVICE_IS:
		if (!c->ready || c->named[p->device])
			return false;
		return c->named[p->device] = true;
	default:
		return !c->ready && !c->said_why; /* the first word, once */
	}
}

static enum lg_device_heard ended(struct lg_device_child *c, bool kill_it, char *why, size_t size)
{
	char doing[96];
	int st;

	doing_text(c, doing, sizeof doing);
	st = end(c, kill_it);
	c->told = true;
	if (!*why && !c->said_why && !kill_it) {
		if (st >= 0 && WIFSIGNALED(st))
			snprintf(why, size, "%s: signal %d (%s) ended the process that asks, in %s", c->r->name,
				 WTERMSIG(st), strsignal(WTERMSIG(st)), doing);
		else
			snprintf(why, size, "%s: the process that asks ended, in %s", c->r->name, doing);
	}
	return LG_HEARD_ENDED;
}

enum lg_device_heard lg_device_child_hear(struct lg_device_child *c, int64_t now,
					  struct lg_device_packet *ret, char *why, size_t size)
{
	struct lg_device_packet raw;

	*why = 0;
	if (c->told)
		return LG_HEARD_NOTHING;
	if (now - c->asked > AWAY)
		c->heard = now;
	c->asked = now;
	for (;;) {
		/* What does not fit is cut, and then its length does not agree with its head. */
		ssize_t n = recv(c->sock, &raw, sizeof raw, MSG_DONTWAIT);
		uint32_t refused;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n <= 0)
			return ended(c, false, why, size);
		/* It may have been said since the caller looked at the clock. */
		now = LG_MAX(now, lg_monotonic_ns());
		if (!lg_device_packet_take(&raw, (size_t)n, ret, &refused) || !may_be(c, ret, now)) {
			if (++c->refused < REFUSED_MOST)
				continue;
			snprintf(why, size, "%s: it says what cannot be, or more often than it was asked",
				 c->r->name);
			return ended(c, true, why, size);
		}
		c->refused += refused;
		c->heard = now;
		c->ready |= ret->kind == LG_DEVICE_READY;
		c->said_why |= ret->kind == LG_DEVICE_NONE || ret->kind == LG_DEVICE_FAILED;
		return LG_HEARD_PACKET;
	}
	if (now - c->heard < (c->ready ? PATIENCE + 2 * c->period : OPEN_PATIENCE))
		return LG_HEARD_NOTHING;
	silent_text(c, now, why, size);
	return ended(c, true, why, size);
}

bool lg_device_child_owes(const struct lg_device_child *c, int64_t now, char *why, size_t size)
{
	/* Between two sweeps it does nothing. */
	if (c->told || now - c->heard < OWES + c->period || !c->doing->call)
		return false;
	silent_text(c, now, why, size);
	return true;
}
