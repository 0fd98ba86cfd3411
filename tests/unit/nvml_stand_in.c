/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_stand_in.c - a library with the C interface of libnvidia-ml.so.1, which plays devices.
 * NVML_PLAYS in the environment says which ones; what it means is in plays[] and in the functions
 * below.
 *
 * Prototypes and structures are written from the API reference (docs.nvidia.com/deploy/nvml-api),
 * apart from those of the recorder. With -DOLD_DRIVER it has only the names without a version, as a
 * driver of 2015 had.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef int nvmlReturn_t;
struct nvmlDevice_st { int index; };
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef void *nvmlEventSet_t;

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
       TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 18 };
enum { DEVICES = 4, GIB = 1 << 30 };

enum play {
	HEALTHY, /* two cards under heavy work */
	HOT,     /* the second is slowed down by heat, half of the time */
	CAPPED,  /* the second's power limit came down */
	SPINS,   /* all are "busy" and draw next to nothing */
	ERRORS,  /* ECC errors come on the second, and Xid 79 and 48 */
	LOST,    /* the second falls off the bus */
	HANGS_AT_ONCE, HANGS, CRASHES_AT_ONCE, CRASHES, ENDS,
	GARBAGE, MANY, PARTED, HAS_NOTHING, NO_DEVICES, NO_DRIVER, MAY_NOT, MISMATCH, LIES, BREAKS_OUT, PLAYS
};
static const char *const plays[PLAYS] = {
	"healthy", "hot", "capped", "spins", "errors", "lost", "hangs-at-once", "hangs", "crashes-at-once", "crashes",
	"ends", "garbage", "many", "parted", "has-nothing", "no-devices", "no-driver", "may-not", "mismatch", "lies",
	"breaks-out"
};

static struct nvmlDevice_st devices[1000];
static enum play play;
static unsigned sweeps; /* begun so far */
static char escaped[64];

/* The plays go on with the sweeps, whatever the time. */
static unsigned at(void)
{
	return sweeps;
}

static void hang(void) __attribute__((noreturn));
static void hang(void)
{
	for (;;)
		pause();
}

/* Packets of its own, in the name of the process that it runs in. */
static void lie(void)
{
	unsigned char bytes[1500];
	uint32_t seed = 1;

	for (int i = 0; i < 30000; i++) {
		size_t n = 24 + (seed >> 8) % 1400;

		for (size_t k = 0; k < sizeof bytes; k++)
			bytes[k] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
		memset(bytes, 0, 16);
		bytes[0] = (unsigned char)(i % 10); /* a kind that there is, of a device that there is */
		bytes[4] = (unsigned char)(i % 70);
		(void)!send(3, bytes, n, MSG_NOSIGNAL);
	}
}

static void tried(const char *what, long rc)
{
	if (rc >= 0)
		snprintf(escaped + strlen(escaped), sizeof escaped - strlen(escaped), " %s", what);
}

/* What a library could do to the machine, if nobody took care. */
static void break_out(void)
{
	static const char path[] = "/tmp/nvml-stand-in-was-here";
	char *const argv[] = { NULL };
	pid_t pid;
	int fd;

	pid = fork();
	if (!pid)
		_exit(0);
	tried("fork", pid);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	tried("write", fd < 0 ? -1 : write(fd, "x", 1)); /* an empty file is all that it can make */
	if (fd >= 0)
		close(fd);
	tried("execve", execve("/bin/true", argv, argv));
	tried("kill", kill(getppid(), 0));
	tried("ptrace", syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, getppid(), 0, 0));
	tried("socket", socket(AF_UNIX, SOCK_STREAM, 0));
	if (!geteuid())
		tried("root", 0);
	tried("setuid", setuid(0));
	tried("shadow", open("/etc/shadow", O_RDONLY));
	for (fd = 4; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			tried("descriptor", 0);
	(void)unlink(path);
}

static nvmlReturn_t init(void)
{
	const char *want = getenv("NVML_PLAYS");

	for (size_t i = 0; i < PLAYS; i++)
		if (want && !strcmp(want, plays[i]))
			play = (enum play)i;
	for (int i = 0; i < 1000; i++)
		devices[i].index = i;
	switch (play) {
	case HANGS_AT_ONCE: hang();
	case CRASHES_AT_ONCE: raise(SIGSEGV); break;
	case LIES: lie(); break;
	case BREAKS_OUT: break_out(); break;
	case NO_DRIVER: return DRIVER_NOT_LOADED;
	case MAY_NOT: return NO_PERMISSION;
	case MISMATCH: return VERSION_MISMATCH;
	default: break;
	}
	return SUCCESS;
}

static nvmlReturn_t count(unsigned *n)
{
	*n = play == NO_DEVICES ? 0 : play == MANY || play == GARBAGE ? 1000 : play == BREAKS_OUT ? 1 : 2;
	return SUCCESS;
}

static nvmlReturn_t handle(unsigned i, nvmlDevice_t *d)
{
	*d = &devices[i];
	return SUCCESS;
}

#ifdef OLD_DRIVER
EXPORT nvmlReturn_t nvmlInit(void);
EXPORT nvmlReturn_t nvmlInit(void) { return init(); }
EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *n);
EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *n) { return count(n); }
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *d);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *d) { return handle(i, d); }
#else
EXPORT nvmlReturn_t nvmlInit_v2(void);
EXPORT nvmlReturn_t nvmlInit_v2(void) { return init(); }
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n);
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) { return count(n); }
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) { return handle(i, d); }
#endif

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned n);
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned n)
{
	if (play == GARBAGE)
		memset(text, 0x1b, n);
	else
		snprintf(text, n, "%s%s", "550.54.15", escaped);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *text, unsigned n);
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *text, unsigned n)
{
	(void)d;
	if (play == GARBAGE)
		memset(text, '\n', n);
	else
		snprintf(text, n, "Stand-in 80GB");
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *text, unsigned n);
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *text, unsigned n)
{
	snprintf(text, n, "GPU-00000000-0000-0000-0000-%012d", d->index);
	return SUCCESS;
}

/* What is now, of a device: shared by the getters. */
static nvmlReturn_t state(nvmlDevice_t d)
{
	if (play == LOST && d->index == 1 && at() > 30)
		return GPU_IS_LOST;
	return play == HAS_NOTHING ? NOT_SUPPORTED : SUCCESS;
}

static int slowed(nvmlDevice_t d)
{
	if (d->index != 1)
		return 0;
	return play == HOT ? at() / 8 % 2 : play == CAPPED ? at() > 40 : 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending);
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending)
{
	*current = *pending = play == PARTED;
	return state(d);
}

struct utilization { unsigned gpu, memory; };
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, struct utilization *u);
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, struct utilization *u)
{
	sweeps += d->index == 0;
	if (play == PARTED)
		return NOT_SUPPORTED;
	u->gpu = play == GARBAGE ? 4000000000u : play == SPINS ? 100 : 97;
	u->memory = play == SPINS ? 1 : 45;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw);
EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw)
{
	if (play == HANGS && d->index == 1 && at() > 30)
		hang();
	if (play == ENDS && at() > 30)
		_exit(0);
	*mw = play == GARBAGE ? ~0u : play == SPINS ? 130000 : play == CAPPED && slowed(d) ? 400000 : 610000;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw);
EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw)
{
	*mw = play == CAPPED && slowed(d) ? 400000 : 700000;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *c);
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *c)
{
	(void)sensor;
	*c = play == GARBAGE ? 100000 : slowed(d) ? 91 : 62;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz);
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz)
{
	if (play == CRASHES && at() > 30)
		raise(SIGSEGV);
	*mhz = type == 2 ? 2619 : slowed(d) ? 1100 : 1980;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz);
EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz)
{
	*mhz = type == 2 ? 2619 : 1980;
	return state(d);
}

static nvmlReturn_t reasons(nvmlDevice_t d, unsigned long long *bits)
{
	*bits = play == GARBAGE ? ~0ULL : !slowed(d) ? 0 : play == HOT ? 0x20 : 0x4;
	return state(d);
}

#ifdef OLD_DRIVER
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits);
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits)
{
	return reasons(d, bits);
}
#else
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *bits);
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *bits)
{
	return reasons(d, bits);
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct memory_v2 *m);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct memory_v2 *m)
{
	if (m->version != (sizeof *m | 2u << 24))
		return 25; /* ARGUMENT_VERSION_MISMATCH */
	m->total = 80ULL * GIB;
	m->reserved = GIB / 2;
	m->used = play == GARBAGE ? ~0ULL : 60ULL * GIB;
	m->free = m->total - m->reserved - m->used;
	return state(d);
}
#endif

struct memory { unsigned long long total, free, used; };
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct memory *m);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct memory *m)
{
	m->total = 80ULL * GIB;
	m->used = 60ULL * GIB + GIB / 2;
	m->free = m->total - m->used;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, unsigned counter, unsigned *kb);
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, unsigned counter, unsigned *kb)
{
	usleep(20000);
	*kb = counter ? 12000000 : 3000000; /* 1 = received */
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, unsigned type, unsigned counter,
						unsigned long long *n);
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, unsigned type, unsigned counter,
						unsigned long long *n)
{
	(void)counter;
	*n = play == ERRORS && d->index == 1 && at() > 30 ? (type ? 2 : 40) : 0;
	return state(d);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned *n);
EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned *n)
{
	*n = 3; /* what was before is nobody's business */
	return state(d);
}

struct process {
	unsigned pid;
	unsigned long long bytes;
#ifndef OLD_DRIVER
	unsigned gpu_instance, compute_instance;
#endif
};

static nvmlReturn_t processes(nvmlDevice_t d, unsigned *n, struct process *p)
{
	const char *pid = getenv("NVML_PID");

	if (play == GARBAGE) {
		for (unsigned i = 0; i < *n; i++)
			p[i] = (struct process){ .pid = i * 0x10000001u, .bytes = ~0ULL - i };
		*n = 4000000000u;
		return SUCCESS;
	}
	if (*n < 1)
		return INSUFFICIENT_SIZE;
	*n = pid != NULL;
	if (pid)
		*p = (struct process){ .pid = (unsigned)strtoul(pid, NULL, 10), .bytes = 59ULL * GIB };
	return state(d);
}

#ifdef OLD_DRIVER
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned *n, struct process *p);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned *n, struct process *p)
{
	return processes(d, n, p);
}
#else
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, struct process *p);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, struct process *p)
{
	return processes(d, n, p);
}

/* Events are of newer drivers, too. */
EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set);
EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	*set = devices;
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set);
EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set)
{
	(void)set;
	return types == 8 ? state(d) : NOT_SUPPORTED;
}

struct event { nvmlDevice_t device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct event *e, unsigned ms);
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct event *e, unsigned ms)
{
	static const unsigned xids[] = { 48, 79, 79 };
	static size_t told;

	(void)set;
	if (play == GARBAGE) {
		*e = (struct event){ .device = (nvmlDevice_t)(uintptr_t)0xdead, .type = 8, .data = ~0ULL };
		return SUCCESS;
	}
	if (play != ERRORS || at() < 30 || told == 3 || ms)
		return TIMEOUT;
	*e = (struct event){ .device = &devices[1], .type = 8, .data = xids[told++] };
	return SUCCESS;
}
#endif
