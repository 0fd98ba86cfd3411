/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_worker.c - see device_worker.h.
 *
 * Bounds: what it may write (nothing), how much memory it may have, how many files; how much CPU time
 * it takes (a quarter of one: where a sweep is dearer, sweeps are seldom, and that is said). How long
 * a call takes, and how many packets come, is the recorder's to bound (device_child.c).
 */
#include "record/device/device_worker.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/confine.h"
#include "record/session.h"

#define SECOND INT64_C(1000000000)
#define REST_MOST (2 * SECOND) /* who is silent for longer is taken for hung */
/* What it maps of the driver is not counted. */
#define DATA_BYTES ((rlim_t)512 << 20)
enum { SOCK = 3, FILES = 1024, PART = 4 /* it takes at most one in so many of a CPU */ };

/* -- confinement -- */

static void limit(int what, rlim_t value)
{
	struct rlimit r = { value, value }, old;

	if (!getrlimit(what, &old) && old.rlim_max < value)
		r.rlim_cur = r.rlim_max = old.rlim_max;
	(void)setrlimit(what, &r);
}

/* The recorder takes some signals through a descriptor, and ignores others. */
static void usual_signals(void)
{
	static const int those[] = { SIGALRM, SIGCHLD, SIGBUS, SIGSEGV, SIGABRT };
	sigset_t none;

	for (size_t i = 0; i < sizeof those / sizeof *those; i++)
		(void)signal(those[i], SIG_DFL);
	(void)signal(SIGXFSZ, SIG_IGN); /* writing files fails, and is no reason to die */
	sigemptyset(&none);
	sigaddset(&none, SIGINT); /* to the whole group: the recorder decides */
	sigaddset(&none, SIGTERM);
	sigaddset(&none, SIGHUP);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* All of it before code that is not ours runs. */
static int confine(pid_t recorder, struct lg_error *err)
{
	int rc;

	(void)prctl(PR_SET_NAME, "laggard-devices", 0, 0, 0);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, 0);
	limit(RLIMIT_NOFILE, FILES);
	if (!LG_CONFINE_SANITIZER)
		limit(RLIMIT_DATA, DATA_BYTES);
	rc = lg_confine_to_own_user(err);
	if (rc)
		return rc;
	/* After the change of the user, which forgets it. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		return lg_fail_errno(err, errno, "prctl");
	if (getppid() != recorder)
		_exit(0);
	return lg_confine_to_files(false, err);
}

/* -- packets -- */

void lg_device_send(struct lg_device_out *o, const struct lg_device_packet *p)
{
	size_t n = lg_device_packet_size(p->kind, p->n);
	ssize_t sent;

	do
		sent = send(o->sock, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)n)
		return;
	if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS)
		_exit(0); /* nobody listens any more */
	o->dropped++;
}

void lg_device_say(struct lg_device_out *o, enum lg_device_say kind, int32_t device, uint32_t n,
		   const char *fmt, ...)
{
	struct lg_device_packet p = { .kind = kind, .device = device, .n = n, .ts = lg_monotonic_ns() };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p.u.text, sizeof p.u.text, fmt, ap);
	va_end(ap);
	lg_device_send(o, &p);
}

void lg_device_begin(struct lg_device_out *o, int32_t device)
{
	o->p.kind = LG_DEVICE_SAMPLE;
	o->p.device = device;
	o->p.n = 0;
	o->p.ts = lg_monotonic_ns();
}

void lg_device_put(struct lg_device_out *o, enum lg_device_counter what, double value)
{
	if (o->p.n < LG_DC_MAX && isfinite(value))
		o->p.u.value[o->p.n++] = (struct lg_device_value){ .what = what, .value = value };
}

void lg_device_end(struct lg_device_out *o)
{
	lg_device_send(o, &o->p); /* an empty one, too: it shows that there is an answer */
}

/* -- rounds -- */

static void wait_until(int64_t ts)
{
	const struct timespec t = { .tv_sec = ts / SECOND, .tv_nsec = ts % SECOND };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static int64_t cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static void rounds(const struct lg_device_reader *r, void *self, struct lg_device_out *o)
	__attribute__((noreturn));
static void rounds(const struct lg_device_reader *r, void *self, struct lg_device_out *o)
{
	int64_t next = lg_monotonic_ns(), rare = next;
	uint64_t told_dropped = 0;
	bool told_dear = false;

	for (;;) {
		int64_t began = lg_monotonic_ns(), spent = cpu_time(), rest;
		bool seldom = began >= rare;

		r->sweep(self, o, seldom);
		if (seldom)
			rare = began + SECOND - o->period / 2;
		spent = cpu_time() - spent;
		rest = (PART - 1) * spent < REST_MOST ? (PART - 1) * spent : REST_MOST;
		next += o->period;
		if (next < lg_monotonic_ns() + rest)
			next = lg_monotonic_ns() + rest;
		if (next < began + o->period / 2)
			next = began + o->period / 2;
		/* Once a second it may take longer: what is rare is asked then. */
		if (rest > o->period && !seldom && !told_dear) {
			told_dear = true;
			lg_device_say(o, LG_DEVICE_NOTE, -1, 0,
				      "asking all devices takes %.0f ms of CPU time: they are asked every %.1f s only",
				      (double)spent / 1e6, (double)(next - began) / 1e9);
		}
		if (o->dropped > told_dropped) {
			told_dropped = o->dropped;
			lg_device_say(o, LG_DEVICE_NOTE, -1, 0, "%llu packets found no room",
				      (unsigned long long)o->dropped);
		}
		lg_device_doing(o, 0, -1);
		wait_until(next);
	}
}

void lg_device_worker(const struct lg_device_reader *r, int sock, pid_t recorder,
		      volatile struct lg_device_doing *doing, unsigned hz)
{
	static struct lg_device_out o;
	struct lg_error err = { 0 };
	void *self;

	o.sock = SOCK;
	o.doing = doing;
	o.period = SECOND / (hz ? hz : 1);
	usual_signals();
	lg_confine_to_socket(sock, SOCK);
	if (confine(recorder, &err)) {
		lg_device_say(&o, LG_DEVICE_FAILED, -1, 0, "the process that would ask them cannot be confined: %s",
			      err.message);
		_exit(0);
	}
	self = r->open(r, &o);
	if (!self)
		_exit(0);
	rounds(r, self, &o);
}
