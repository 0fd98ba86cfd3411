/* SPDX-License-Identifier: Apache-2.0 */
#include "record/asleep.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/order.h"
#include "record/procfs.h"

int64_t lg_exec_start(const char *sched)
{
	const char *at = NULL;
	double ms;
	char *end;

	/* The first line holds the name that the thread gave itself: the last such line is the kernel's. */
	for (const char *s = sched; (s = strstr(s, "\nse.exec_start")); s++)
		at = s;
	at = at ? strchr(at, ':') : NULL;
	if (!at)
		return -1;
	ms = strtod(at + 1, &end);
	return end == at + 1 || !(ms >= 0 && ms < 9e12) ? -1 : (int64_t)(ms * 1e6);
}

int64_t lg_rq_clock_skew(const char *stat, int64_t ns_per_tick)
{
	int64_t least = INT64_MAX, most = 0;

	for (const char *s = stat; (s = strstr(s, "\ncpu")); s++) {
		long long user, nice, system, idle, iowait, irq, soft, steal;
		int64_t away;

		if (sscanf(s, "\ncpu%*d %lld %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle,
			   &iowait, &irq, &soft, &steal) < 8 || irq < 0 || soft < 0 || steal < 0 ||
		    __builtin_add_overflow(irq, soft, &away) || __builtin_add_overflow(away, steal, &away) ||
		    __builtin_mul_overflow(away, ns_per_tick, &away))
			continue;
		least = LG_MIN(least, away);
		most = LG_MAX(most, away);
	}
	return most > least ? most - least : 0;
}

/* The CPU on which a thread ran last: field 39 of its stat (proc(5)); -1 = not known. */
static int last_cpu(int32_t pid, int32_t tid)
{
	char path[64], text[4096];
	const char *at;
	int cpu;

	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
	at = lg_proc_read(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
	for (int field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	return at && sscanf(at, " %d", &cpu) == 1 && cpu >= 0 ? cpu : -1;
}

/* The clock of the CPU that we run on, a tick ago at most; -1 = not there. */
static int64_t clock_here(void)
{
	char text[65536];

	return lg_proc_read("/proc/thread-self/sched", text, sizeof text) > 0 ? lg_exec_start(text) : -1;
}

/* The same of another CPU, to which we go and from which we come back; -1 = we may not run there. */
static int64_t clock_of(int cpu)
{
	enum { SETS = 8 }; /* of 1024 CPUs */
	cpu_set_t ours[SETS], there[SETS];
	int64_t now = -1;

	if (cpu < 0 || cpu >= SETS * CPU_SETSIZE || sched_getaffinity(0, sizeof ours, ours))
		return -1;
	memset(there, 0, sizeof there);
	CPU_SET_S(cpu, sizeof there, there);
	if (!sched_setaffinity(0, sizeof there, there))
		now = clock_here();
	(void)sched_setaffinity(0, sizeof ours, ours);
	return now;
}

int64_t lg_asleep_ns(int32_t pid, int32_t tid)
{
	enum { TICKS_A_SECOND = 100, APART_NS = 1000000000 }; /* USER_HZ, which /proc is written in */
	char path[64], text[65536];
	int64_t then, now, skew;

	snprintf(path, sizeof path, "/proc/%d/task/%d/sched", pid, tid);
	then = lg_proc_read(path, text, sizeof text) > 0 ? lg_exec_start(text) : -1;
	if (then < 0)
		return 0;
	skew = lg_proc_read("/proc/stat", text, sizeof text) > 0
		       ? lg_rq_clock_skew(text, INT64_C(1000000000) / TICKS_A_SECOND) : INT64_MAX;
	/* Within days they are minutes apart: then its own CPU is asked. */
	if (skew > APART_NS && (now = clock_of(last_cpu(pid, tid))) >= 0)
		return now < then ? 0 : now - then;
	now = clock_here();
	return now < then || now - then < skew ? 0 : now - then - skew;
}

/* Calls that a time limit ends, and where it is given: as milliseconds, or where it lies. */
static const struct {
	long nr;
	int arg; /* from 0 */
	bool ms;
} timed[] = {
#ifdef SYS_poll
	{ SYS_poll, 2, true },
#endif
#ifdef SYS_select
	{ SYS_select, 4, false },
#endif
#ifdef SYS_epoll_wait
	{ SYS_epoll_wait, 3, true },
#endif
	{ SYS_ppoll, 2, false },
	{ SYS_pselect6, 4, false },
	{ SYS_epoll_pwait, 3, true },
	{ SYS_futex, 3, false },
	{ SYS_rt_sigtimedwait, 2, false },
	{ SYS_semtimedop, 3, false },
	{ SYS_io_getevents, 4, false },
	{ SYS_nanosleep, 0, false },
	{ SYS_clock_nanosleep, 2, false },
	{ SYS_restart_syscall, -1, false }, /* one of these after a signal */
};

bool lg_sleep_is_timed(const char *syscall)
{
	unsigned long long arg[6];
	long nr;

	if (sscanf(syscall, "%ld %llx %llx %llx %llx %llx %llx", &nr, arg, arg + 1, arg + 2, arg + 3, arg + 4,
		   arg + 5) < 7)
		return false; /* it runs, or sleeps in no call */
	for (size_t i = 0; i < sizeof timed / sizeof *timed; i++)
		if (timed[i].nr == nr)
			return timed[i].arg < 0 ||
			       (timed[i].ms ? (int32_t)arg[timed[i].arg] >= 0 : arg[timed[i].arg] != 0);
	return false;
}

bool lg_asleep_timed(int32_t pid, int32_t tid)
{
	char path[64], text[512];

	snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, tid);
	return lg_proc_read(path, text, sizeof text) > 0 && lg_sleep_is_timed(text);
}
