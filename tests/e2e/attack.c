/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attack.c - what an unprivileged user may do beside a recording, as fast as one CPU allows.
 *
 *   attack names             a thread's name changed over and over, no two alike
 *   attack threads           threads that live a moment, each with a name of its own
 *   attack processes         the same for processes
 *   attack maps FOLDER       files with long names mapped as code, unmapped and deleted
 *   attack stacks            CPU time and waits in call chains of random addresses in code of its own
 *   attack ring FILE         a mark ring, all of whose names are large and different, filled as it is read
 *
 * As uid 65534 where it can, but for the ring, which is of whoever the job is (laggard record --user);
 * until it is killed, or for ATTACK_SECONDS.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAGGARD_MARK_FORMAT_ONLY
#include "laggard/mark.h"

static uint64_t n;

static uint64_t draw(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static void rename_me(void)
{
	char name[16];

	snprintf(name, sizeof name, "x%llu", (unsigned long long)n++);
	prctl(PR_SET_NAME, name);
}

static void *brief(void *arg)
{
	rename_me();
	return arg;
}

static void threads(void)
{
	pthread_t t;

	if (!pthread_create(&t, NULL, brief, NULL))
		pthread_join(t, NULL);
}

static void processes(void)
{
	pid_t p = fork();

	n++;
	if (!p) {
		rename_me();
		_exit(0);
	}
	if (p > 0)
		waitpid(p, NULL, 0);
}

static void maps(const char *folder)
{
	char path[4096], name[256];
	void *m;
	int fd;

	memset(name, 'n', sizeof name);
	snprintf(name + 200, 50, "%llu", (unsigned long long)n++);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT, 0700);
	if (fd < 0)
		exit(3);
	if (n % 64 == 1 && ftruncate(fd, 4096))
		exit(3);
	m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (m != MAP_FAILED)
		munmap(m, 4096);
	close(fd);
	unlink(path);
}

/* A chain of frame pointers through the words of `chain`, then some time, or a wait, below it. */
static __attribute__((noinline)) void below(void **chain, int wait)
{
	void **frame = __builtin_frame_address(0), *was = *frame;
	struct timespec t = { .tv_nsec = 1 };

	*frame = chain;
	if (wait)
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	else
		for (volatile int i = 0; i < 20000; i++)
			;
	*frame = was;
}

static void stacks(void)
{
	enum { DEPTH = 126, CODE = 256 << 20 };
	static void *chain[2 * DEPTH + 2];
	static char *code;

	if (!code)
		code = mmap(NULL, CODE, PROT_READ | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (int i = 0; i < DEPTH; i++) {
		chain[2 * i] = i + 1 < DEPTH ? &chain[2 * i + 2] : NULL;
		chain[2 * i + 1] = code + draw() % CODE;
	}
	below(chain, n++ & 1);
}

/*
 * A name of 4 KiB, the most that is read of one, for each eight bytes of 64 MiB: no byte is zero, so that
 * each word taken for a length is large, and small enough for what lies behind.
 */
static void ring(const char *path)
{
	enum { SLOTS = 1 << 16, NAMES = 200 << 20, READ = (64 << 20) / 8 };
	const uint64_t off = LAG_MARK_PAGE + (uint64_t)SLOTS * 64, size = off + NAMES;
	char made[4200];
	int fd, self = open("/proc/self/stat", O_RDONLY);
	char text[1024] = "", *p;
	uint64_t *w, index = 1;
	struct stat ns;

	snprintf(made, sizeof made, "%.*s/.new.%d", (int)(strrchr(path, '/') - path), path, (int)getpid());
	fd = open(made, O_RDWR | O_CREAT | O_EXCL, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)size) || read(self, text, sizeof text - 1) <= 0 ||
	    stat("/proc/self/ns/pid", &ns))
		exit(3);
	w = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w == MAP_FAILED)
		exit(3);
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		exit(3);
	for (uint64_t i = 0; i < NAMES / 8; i++)
		w[off / 8 + i] = (draw() & 0x7777777703777777u) | 0x0808080801080808u;
	w[LAG_MARK_H_VERSION] = LAG_MARK_VERSION;
	w[LAG_MARK_H_SIZE] = size;
	w[LAG_MARK_H_PID] = (uint64_t)getpid();
	w[LAG_MARK_H_START] = strtoull(p + 1, NULL, 10);
	w[LAG_MARK_H_SLOTS] = SLOTS;
	w[LAG_MARK_H_SLOTS_OFF] = LAG_MARK_PAGE;
	w[LAG_MARK_H_NAMES_OFF] = off;
	w[LAG_MARK_H_NAMES_CAP] = NAMES;
	w[LAG_MARK_H_NAMES_LOST] = INT64_MAX;
	w[LAG_MARK_H_RANK] = (uint64_t)-1;
	w[LAG_MARK_H_PID_NS] = ns.st_ino;
	w[LAG_MARK_H_MAGIC] = LAG_MARK_MAGIC;
	if (rename(made, path))
		exit(3);
	for (;;) {
		for (int i = 0; i < SLOTS / 2; i++, index++) {
			uint64_t *s = (uint64_t *)(void *)((char *)w + LAG_MARK_PAGE + (index % SLOTS) * 64);
			struct timespec t;

			clock_gettime(CLOCK_MONOTONIC, &t);
			s[0] = index;
			s[1] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
			s[2] = (uint64_t)getpid() | (uint64_t)LAG_MARK_MARK << 32;
			s[3] = (1 + draw() % READ) | (1 + draw() % READ) << 32;
			s[7] = index;
		}
		usleep(100000);
	}
}

int main(int argc, char **argv)
{
	const char *seconds = getenv("ATTACK_SECONDS"), *what = argc > 1 ? argv[1] : "";

	if (!geteuid() && strcmp(what, "ring") && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))
		return 3;
	alarm(seconds ? (unsigned)atoi(seconds) : 60);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!strcmp(what, "ring") && argc > 2)
		ring(argv[2]);
	for (;;) {
		if (!strcmp(what, "names"))
			rename_me();
		else if (!strcmp(what, "threads"))
			threads();
		else if (!strcmp(what, "processes"))
			processes();
		else if (!strcmp(what, "maps") && argc > 2)
			maps(argv[2]);
		else if (!strcmp(what, "stacks"))
			stacks();
		else
			return 2;
	}
}
