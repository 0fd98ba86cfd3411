/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause.c - somebody beside the job of the live matrix, who does something now and then.
 *
 *	cause hog  LOG FIRST_MS PERIOD_MS MS CPU THREADS       has the CPU for MS (CPU -1: any)
 *	cause walk LOG FIRST_MS PERIOD_MS FILE PID...          reads /proc/PID/FILE of each in turn
 *	cause stop LOG FIRST_MS PERIOD_MS MS PID...            stops one after the other for MS
 *	cause serve LOG FIRST_MS PERIOD_MS MS SOCKET BUSY      answers at once, but for MS, when it computes
 *	                                                       (BUSY 1) or sleeps
 *
 * Each act is a line in LOG: start and duration in ns, CLOCK_MONOTONIC.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_until(int64_t at)
{
	struct timespec t = { at / 1000000000, at % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

static int64_t busy_until;

static void *busy(void *none)
{
	volatile uint64_t x = 1;

	(void)none;
	while (now() < busy_until)
		for (int i = 0; i < 1000; i++)
			x = x * 3 + 1;
	return NULL;
}

static void hog(double ms, int threads)
{
	pthread_t t[64];
	int n = threads - 1 < 64 ? threads - 1 : 64;

	busy_until = now() + (int64_t)(ms * 1e6);
	for (int i = 0; i < n; i++)
		pthread_create(&t[i], NULL, busy, NULL);
	busy(NULL);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void walk(const char *file, const char *pid)
{
	char path[128], buf[65536];
	int fd;

	snprintf(path, sizeof path, "/proc/%s/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && read(fd, buf, sizeof buf) > 0)
		;
	if (fd >= 0)
		close(fd);
}

/* Whoever asks is answered, until then. */
static void serve_until(int64_t at, const char *path)
{
	enum { MAX = 32 };
	static struct pollfd p[MAX];
	static nfds_t n;
	struct sockaddr_un me = { .sun_family = AF_UNIX };

	if (!n) {
		snprintf(me.sun_path, sizeof me.sun_path, "%s", path);
		p[0].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		p[0].events = POLLIN;
		if (bind(p[0].fd, (struct sockaddr *)&me, sizeof me) || listen(p[0].fd, MAX))
			exit(2);
		n = 1;
	}
	for (int64_t left; (left = at - now()) > 0;) {
		struct timespec t = { left / 1000000000, left % 1000000000 };

		if (ppoll(p, n, &t, NULL) <= 0)
			continue;
		if (p[0].revents && n < MAX) {
			p[n].fd = accept4(p[0].fd, NULL, NULL, SOCK_CLOEXEC);
			p[n].events = POLLIN;
			n += p[n].fd >= 0;
		}
		for (nfds_t i = 1; i < n; i++) {
			char c;

			if (p[i].revents && (read(p[i].fd, &c, 1) != 1 || write(p[i].fd, &c, 1) != 1))
				p[i].events = 0, p[i].fd = -1;
		}
	}
}

int main(int argc, char **argv)
{
	FILE *log = argc > 5 ? fopen(argv[2], "we") : NULL;
	int64_t at = now(), period;

	if (!log)
		return 2;
	at += (int64_t)(atof(argv[3]) * 1e6);
	period = (int64_t)(atof(argv[4]) * 1e6);
	if (!strcmp(argv[1], "hog") && argc > 6 && atoi(argv[6]) >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET((unsigned)atoi(argv[6]), &set);
		sched_setaffinity(0, sizeof set, &set);
	}
	for (int n = 0;; n++, at += period) {
		int64_t from;

		if (!strcmp(argv[1], "serve") && argc > 7)
			serve_until(at, argv[6]);
		else
			sleep_until(at);
		from = now();
		if (!strcmp(argv[1], "hog")) {
			hog(atof(argv[5]), argc > 7 ? atoi(argv[7]) : 1);
		} else if (!strcmp(argv[1], "serve") && argc > 7) {
			if (atoi(argv[7]))
				hog(atof(argv[5]), 1);
			else
				sleep_until(from + (int64_t)(atof(argv[5]) * 1e6));
		} else if (argc < 7) {
			return 2;
		} else if (!strcmp(argv[1], "walk")) {
			walk(argv[5], argv[6 + n % (argc - 6)]);
		} else {
			pid_t pid = atoi(argv[6 + n % (argc - 6)]);

			if (kill(pid, SIGSTOP))
				return 0;
			sleep_until(from + (int64_t)(atof(argv[5]) * 1e6));
			kill(pid, SIGCONT);
		}
		fprintf(log, "%lld %lld\n", (long long)from, (long long)(now() - from));
		fflush(log);
	}
}
