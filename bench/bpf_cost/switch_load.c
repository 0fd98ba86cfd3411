/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switch_load - as many context switches as asked for: one pair of processes per CPU that hand a
 * byte to and fro through pipes. Prints how many round trips each pair made and how long one took.
 *
 *   switch_load SECONDS [ROUND_TRIPS_PER_SECOND_AND_PAIR]     (0 = as many as possible)
 */
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void pair(int cpu, double seconds, double rate, uint64_t *ret_n)
{
	int to[2], from[2];
	uint64_t n = 0;
	double first;
	pid_t child;
	char c = 0;

	pin(cpu);
	if (pipe(to) || pipe(from))
		exit(1);
	child = fork();
	if (child < 0)
		exit(1);
	if (!child) {
		close(to[1]);
		close(from[0]);
		while (read(to[0], &c, 1) == 1 && write(from[1], &c, 1) == 1)
			;
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	first = now_s();
	for (;;) {
		if (write(to[1], &c, 1) != 1 || read(from[0], &c, 1) != 1)
			break;
		n++;
		if (n % 64 == 0) {
			double t = now_s() - first;

			if (t >= seconds)
				break;
			if (rate > 0 && (double)n / rate > t)
				usleep((useconds_t)(((double)n / rate - t) * 1e6));
		}
	}
	close(to[1]);
	waitpid(child, NULL, 0);
	*ret_n = n;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1, rate = argc > 2 ? atof(argv[2]) : 0, first;
	cpu_set_t allowed;
	uint64_t *n, sum = 0;
	int cpu, n_pairs = 0;

	n = mmap(NULL, CPU_SETSIZE * sizeof *n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n == MAP_FAILED || sched_getaffinity(0, sizeof allowed, &allowed))
		return 1;
	first = now_s();
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		pid_t p;

		if (!CPU_ISSET(cpu, &allowed))
			continue;
		p = fork();
		if (p < 0)
			return 1;
		if (!p) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pair(cpu, seconds, rate, &n[cpu]);
			_exit(0);
		}
		n_pairs++;
	}
	while (wait(NULL) > 0)
		;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		sum += n[cpu];
	/* A round trip is two switches and two wake-ups. */
	printf("%d pairs, %llu round trips, %.0f switches/s, %.0f ns a round trip\n", n_pairs,
	       (unsigned long long)sum, 2.0 * (double)sum / (now_s() - first),
	       sum ? (now_s() - first) * 1e9 * n_pairs / (double)sum : 0.0);
	return 0;
}
