/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - a training job for the live matrix: ranks load, compute, meet, update, and mark their stages.
 *
 *	job KEY=VALUE...
 *
 * Starts WORLD ranks of itself. A rank's compute is part host (it spins), part device (it sleeps, as a host
 * does that waits for one). What it does and when goes to OUT/steps.RANK: start, duration, time without a
 * batch, arrival at the collective, how long it had work and no CPU, how long it waited for the disk (ns,
 * CLOCK_MONOTONIC); what it does wrong goes to OUT/acts.RANK: start, duration; what its threads waited for a
 * CPU while it stepped, as the kernel counts it (run_delay of /proc/PID/task/TID/schedstat), to
 * OUT/delay.RANK. No library of training, so that a run is ready at once and short.
 */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <laggard/mark.h>

enum { WORLD_MAX = 16 };

static double value(char **argv, const char *key, double none)
{
	size_t n = strlen(key);

	for (; *argv; argv++)
		if (!strncmp(*argv, key, n) && (*argv)[n] == '=')
			return atof(*argv + n + 1);
	return none;
}

static const char *word(char **argv, const char *key)
{
	size_t n = strlen(key);

	for (; *argv; argv++)
		if (!strncmp(*argv, key, n) && (*argv)[n] == '=')
			return *argv + n + 1;
	exit(2);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static volatile uint64_t sink;
/* ns in this step: with work and no CPU; for the disk. */
static int64_t pushed, fetched;

static int64_t had_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* So much of the CPU's time, however long that takes: who is pushed aside has it yet to do. */
static void spin(double us)
{
	int64_t from = now(), begun = had_cpu(), had;

	do {
		for (int i = 0; i < 5000; i++)
			sink += (uint64_t)i * sink;
		had = had_cpu() - begun;
	} while (had < (int64_t)(us * 1e3));
	pushed += now() - from - had;
}

static void rest(double us)
{
	struct timespec t = { (time_t)(us / 1e6), (long)fmod(us * 1e3, 1e9) };

	nanosleep(&t, NULL);
}

static uint64_t seed;

static double uniform(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(seed >> 11) * 0x1p-53;
}

/* A factor around one; not all of them are small. */
static double noisy(double noise)
{
	return exp(noise * sqrt(-2 * log(uniform() + 1e-12)) * cos(6.2831853 * uniform()));
}

/* -- the loader: one thread, two batches ahead -- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more, less;
	int ready;
	double us, burst_us;
	int burst_every;
} loader = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER,
	     .less = PTHREAD_COND_INITIALIZER };

static void *load(void *none)
{
	(void)none;
	for (int n = 1;; n++) {
		rest(loader.us);
		if (loader.burst_every && n % loader.burst_every == 0)
			rest(loader.burst_us);
		pthread_mutex_lock(&loader.lock);
		while (loader.ready >= 2)
			pthread_cond_wait(&loader.less, &loader.lock);
		loader.ready++;
		pthread_cond_signal(&loader.more);
		pthread_mutex_unlock(&loader.lock);
	}
	return NULL;
}

static int64_t next_batch(void)
{
	int64_t from = now();
	uint64_t mark = lag_mark_stage_begin(LAG_STAGE_BATCH_WAIT);

	pthread_mutex_lock(&loader.lock);
	while (!loader.ready)
		pthread_cond_wait(&loader.more, &loader.lock);
	loader.ready--;
	pthread_cond_signal(&loader.less);
	pthread_mutex_unlock(&loader.lock);
	lag_mark_stage_end(mark);
	return now() - from;
}

/* -- a rank -- */

static struct {
	int rank, world, fd[WORLD_MAX];
	int server, disk; /* -1 = none */
	double host_us, device_us, noise;
	int maps;
	FILE *acts, *delay;
	long long delayed;
} me;

static void compute(double part, enum lag_stage stage)
{
	uint64_t mark = lag_mark_stage_begin(stage);

	for (int i = 0; i < me.maps; i++) {
		size_t n = 256 << 10;
		char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p != MAP_FAILED) {
			for (size_t at = 0; at < n; at += 4096)
				p[at] = 1;
			munmap(p, n);
		}
	}
	spin(me.host_us * part * noisy(me.noise));
	if (me.device_us * part > 50)
		rest(me.device_us * part * noisy(me.noise / 4));
	lag_mark_stage_end(mark);
}

/* All tell rank 0, which tells all. */
static void meet(int64_t n)
{
	uint64_t stage = lag_mark_stage_begin(LAG_STAGE_GRAD_SYNC), mark;
	char c = 0;

	mark = lag_mark_collective_begin("allreduce", "world", n, 1 << 20);
	if (me.rank) {
		if (write(me.fd[0], &c, 1) != 1 || read(me.fd[0], &c, 1) != 1)
			exit(0); /* rank 0 is done */
	} else {
		for (int r = 1; r < me.world; r++)
			if (read(me.fd[r], &c, 1) != 1)
				exit(1);
		for (int r = 1; r < me.world; r++)
			if (write(me.fd[r], &c, 1) != 1)
				exit(1);
	}
	lag_mark_collective_end(mark);
	lag_mark_stage_end(stage);
}

static void act(int64_t from)
{
	fprintf(me.acts, "%lld %lld\n", (long long)from, (long long)(now() - from));
	fflush(me.acts);
}

static void save(const char *out, size_t mb, double serialize_us)
{
	static char block[1 << 20];
	int64_t from = now();
	uint64_t mark = lag_mark_stage_begin(LAG_STAGE_SIDE);
	char path[512];
	int fd;

	snprintf(path, sizeof path, "%s/model.%d", out, me.rank);
	spin(serialize_us);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	for (size_t i = 0; i < mb; i++) {
		memset(block, (int)i + 1, sizeof block);
		if (write(fd, block, sizeof block) < 0)
			break;
	}
	fsync(fd);
	close(fd);
	lag_mark_stage_end(mark);
	act(from);
}

static void fork_child(void)
{
	int64_t from = now();
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	act(from);
}

/* Asks somebody who is not of the job, once there is one, and waits for the answer. */
static void ask(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char c = 0;

	if (me.server < 0) {
		snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
		me.server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(me.server, (struct sockaddr *)&to, sizeof to)) {
			close(me.server);
			me.server = -1;
		}
	}
	if (me.server >= 0 && (write(me.server, &c, 1) != 1 || read(me.server, &c, 1) != 1))
		exit(1);
}

/* Reads from the disk itself, here and there, for so long. */
static void fetch(double us)
{
	enum { BLOCK = 1 << 20 };
	static void *block;
	int64_t from = now(), cpu = had_cpu();
	off_t blocks = lseek(me.disk, 0, SEEK_END) / BLOCK;

	if (!block && posix_memalign(&block, 4096, BLOCK))
		exit(2);
	while (now() - from < (int64_t)(us * 1e3))
		if (pread(me.disk, block, BLOCK, (off_t)(uniform() * (double)blocks) * BLOCK) != BLOCK)
			exit(1);
	fetched += now() - from - (had_cpu() - cpu);
	act(from);
}

/* ns, of all threads that there are. */
static long long waited_for_cpu(void)
{
	DIR *tasks = opendir("/proc/self/task");
	long long all = 0, ran, delay;

	for (struct dirent *e; tasks && (e = readdir(tasks));) {
		char path[320];
		FILE *f;

		snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (f && fscanf(f, "%lld %lld", &ran, &delay) == 2)
			all += delay;
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return all;
}

static void tell_delay(void)
{
	fprintf(me.delay, "%lld\n", waited_for_cpu() - me.delayed);
	fclose(me.delay);
}

static FILE *log_of(const char *out, const char *what)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s.%d", out, what, me.rank);
	f = fopen(path, "we");
	if (!f)
		exit(2);
	return f;
}

static void rank_main(char **argv)
{
	const char *out = word(argv, "out");
	FILE *steps = log_of(out, "steps");
	int64_t end, began;
	int every = (int)value(argv, "every", 0), turn = (int)value(argv, "turn", 0);
	int late = (int)value(argv, "late_rank", -1), forks = (int)value(argv, "fork_every", 0);
	int save_every = (int)value(argv, "save_every", 0), read_every = (int)value(argv, "read_every", 0);
	const char *server = value(argv, "asks", 0) > 0 ? word(argv, "server") : NULL;
	double late_us = value(argv, "late_us", 0);
	size_t bytes = (size_t)(value(argv, "mb", 8) * 1e6);
	char *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	madvise(table, bytes, MADV_NOHUGEPAGE);
	memset(table, 1, bytes);
	if (value(argv, "pin", 0) > 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET((unsigned)(me.rank % (int)sysconf(_SC_NPROCESSORS_ONLN)), &set);
		sched_setaffinity(0, sizeof set, &set);
	}
	signal(SIGPIPE, SIG_IGN); /* of a rank 0 that is done */
	me.acts = log_of(out, "acts");
	me.host_us = value(argv, "host_us", 1000);
	me.device_us = value(argv, "device_us", 1000);
	me.noise = value(argv, "noise", 0.1);
	me.maps = (int)value(argv, "maps", 0);
	seed = (uint64_t)value(argv, "seed", 1) * 977 + (uint64_t)me.rank;
	loader.us = value(argv, "loader_us", 0);
	loader.burst_us = value(argv, "burst_us", 0);
	loader.burst_every = (int)value(argv, "burst_every", 0);
	me.server = me.disk = -1;
	if (read_every) {
		me.disk = open(word(argv, "data"), O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (me.disk < 0)
			exit(2);
	}
	pthread_create(&t, NULL, load, NULL);
	meet(0);
	me.delay = log_of(out, "delay");
	me.delayed = waited_for_cpu();
	atexit(tell_delay); /* also where rank 0 is done first */
	fclose(log_of(out, "ready"));
	end = now() + (int64_t)(value(argv, "seconds", 8) * 1e9);
	for (int n = 1;; n++) {
		int64_t waited, arrived;
		int whose = turn && every ? n / every % me.world : late;

		began = now();
		pushed = fetched = 0;
		if (!me.rank && began > end)
			break;
		waited = next_batch();
		compute(0.35, LAG_STAGE_FORWARD);
		if (late_us > 0 && me.rank == whose && (!every || n % every == 0)) {
			int64_t from = now();

			spin(late_us * noisy(0.05));
			act(from);
		}
		if (server)
			ask(server);
		if (read_every && n % read_every == 0 && !me.rank)
			fetch(value(argv, "read_us", 0));
		compute(0.6, LAG_STAGE_BACKWARD);
		arrived = now();
		meet(n);
		compute(0.05, LAG_STAGE_OPTIMIZER);
		if (save_every && n % save_every == 0 && !me.rank)
			save(out, (size_t)value(argv, "save_mb", 4), value(argv, "serialize_us", 0));
		if (forks && n % forks == 0 && !me.rank)
			fork_child();
		lag_mark_step(n);
		fprintf(steps, "%lld %lld %lld %lld %lld %lld\n", (long long)began, (long long)(now() - began),
			(long long)waited, (long long)arrived, (long long)pushed, (long long)fetched);
	}
	fclose(steps);
	exit(0);
}

int main(int argc, char **argv)
{
	int world = (int)value(argv, "world", 1), pair[WORLD_MAX][2];
	char text[4][32];

	(void)argc;
	if (world < 1 || world > WORLD_MAX)
		return 2;
	if (getenv("JOB_FD")) {
		int first = atoi(getenv("JOB_FD"));

		me.rank = atoi(getenv("RANK"));
		me.world = world;
		for (int r = 1; r < world; r++)
			me.fd[r] = first + 2 * r;
		if (me.rank) {
			me.fd[0] = first + 2 * me.rank + 1;
			for (int r = 1; r < world; r++)
				close(me.fd[r]);
		} else {
			for (int r = 1; r < world; r++)
				close(first + 2 * r + 1);
		}
		rank_main(argv);
	}
	for (int r = 1; r < world; r++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair[r]))
			return 1;
		/* Where the ranks look for them. */
		if (dup2(pair[r][0], 100 + 2 * r) < 0 || dup2(pair[r][1], 101 + 2 * r) < 0)
			return 1;
		close(pair[r][0]);
		close(pair[r][1]);
	}
	for (int r = 0; r < world; r++) {
		if (fork())
			continue;
		snprintf(text[0], sizeof text[0], "%d", r);
		snprintf(text[1], sizeof text[1], "%d", world);
		setenv("RANK", text[0], 1);
		setenv("LOCAL_RANK", text[0], 1);
		setenv("WORLD_SIZE", text[1], 1);
		setenv("JOB_FD", "100", 1);
		/* Only its own ends: the others' would hide that rank 0 is done. */
		for (int o = 1; o < world; o++) {
			if (r)
				fcntl(100 + 2 * o, F_SETFD, FD_CLOEXEC);
			if (o != r)
				fcntl(101 + 2 * o, F_SETFD, FD_CLOEXEC);
		}
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	for (int r = 1; r < world; r++) {
		close(100 + 2 * r);
		close(101 + 2 * r);
	}
	for (int st, bad = 0;;) {
		if (wait(&st) < 0)
			return bad;
		bad |= st != 0;
	}
}
