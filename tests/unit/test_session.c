/* SPDX-License-Identifier: Apache-2.0 */
/* The order and the bounds of the record queue, /proc parsers, the process tree, the launcher. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "record/launch.h"
#include "record/lives.h"
#include "record/record_queue.h"
#include "store/builder.h"

/* Record queue -------------------------------------------------------------------------------- */

struct seen {
	int64_t ts[4096];
	uint32_t tag[4096];
	size_t n;
};

static void take(void *arg, unsigned src, int64_t ts, const void *rec, size_t n)
{
	struct seen *s = arg;

	(void)src;
	assert_true(n >= 4);
	assert_int_equal((uintptr_t)rec % 8, 0);
	assert_true(s->n < 4096);
	memcpy(&s->tag[s->n], rec, 4);
	s->ts[s->n++] = ts;
}

static struct lg_queue *queue(size_t max)
{
	struct lg_queue *q;
	struct lg_error err;

	assert_int_equal(lg_queue_new(&q, max, &err), 0);
	return q;
}

static void hands_out_sorted_runs_in_time_order(void **state)
{
	struct lg_queue *q = queue(1 << 20);
	static struct seen s;
	uint32_t tag = 0;

	(void)state;
	s.n = 0;
	srand(7);
	/* 13 rings of different length and a second drain that continues them. */
	for (int drain = 0; drain < 2; drain++) {
		for (int ring = 0; ring < 13; ring++) {
			int64_t ts = drain * 1000 + rand() % 50;

			for (int k = rand() % 40; k > 0; k--) {
				char rec[24] = { 0 };

				memcpy(rec, &tag, 4);
				lg_queue_push(q, 0, false, ts, rec, 4 + (size_t)(rand() % 20));
				tag++;
				ts += rand() % 20;
			}
		}
		lg_queue_round(q, drain * 1000, take, &s);
	}
	assert_true(s.n > 0 && s.n < tag);
	lg_queue_round(q, INT64_MAX, take, &s);
	assert_int_equal(s.n, tag);
	assert_int_equal(lg_queue_bytes(q), 0);
	for (size_t i = 1; i < s.n; i++) {
		assert_true(s.ts[i] >= s.ts[i - 1]);
		if (s.ts[i] == s.ts[i - 1]) /* equal times keep the order of their push */
			assert_true(s.tag[i] > s.tag[i - 1]);
	}
	lg_queue_free(q);
}

static void keeps_what_is_newer_than_the_cutoff(void **state)
{
	struct lg_queue *q = queue(1 << 20);
	static struct seen s;
	uint64_t v = 1;

	(void)state;
	s.n = 0;
	lg_queue_push(q, 0, false, 30, &v, 8);
	lg_queue_push(q, 0, false, 10, &v, 8);
	lg_queue_push(q, 0, false, 20, &v, 8);
	lg_queue_round(q, 20, take, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.ts[0], 10);
	lg_queue_push(q, 0, false, 25, &v, 8);
	lg_queue_round(q, 31, take, &s);
	assert_int_equal(s.n, 4);
	assert_int_equal(s.ts[1], 20);
	assert_int_equal(s.ts[2], 25);
	assert_int_equal(s.ts[3], 30);
	lg_queue_free(q);
}

static void counts_what_is_over_the_bound(void **state)
{
	struct lg_queue *q = queue(1 << 16);
	static struct seen s;
	char rec[1024] = { 0 };
	struct lg_queue_loss l;

	(void)state;
	s.n = 0;
	for (int i = 0; i < 100; i++)
		lg_queue_push(q, 3, false, i, rec, sizeof rec);
	assert_true(lg_queue_bytes(q) <= 1 << 16);
	lg_queue_round(q, INT64_MAX, take, &s);
	l = lg_queue_losses(q, 3);
	assert_int_equal(s.n + l.full, 100);
	assert_true(l.full > 0);
	assert_int_equal(l.last, 99);
	assert_int_equal(l.first, (int64_t)s.n);
	l = lg_queue_losses(q, 3);
	assert_int_equal(l.full, 0);
	assert_true(l.first > l.last);
	lg_queue_free(q);
}

static void drops_late_records_unless_their_source_takes_them(void **state)
{
	struct lg_queue *q = queue(1 << 20);
	static struct seen s;
	uint64_t v = 1;
	struct lg_queue_loss l;

	(void)state;
	s.n = 0;
	lg_queue_push(q, 0, false, 100, &v, 8);
	lg_queue_round(q, 200, take, &s);
	lg_queue_push(q, 1, false, 50, &v, 8);
	lg_queue_push(q, 2, true, 60, &v, 8);
	lg_queue_round(q, 200, take, &s);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.ts[1], 60);
	l = lg_queue_losses(q, 1);
	assert_int_equal(l.late, 1);
	assert_int_equal(l.first, 50);
	lg_queue_free(q);
}

static void reports_records_lost_for_want_of_memory(void **state)
{
	struct lg_queue *q = queue(1 << 20);
	static struct seen s;
	uint64_t v = 1, lost = 0;

	(void)state;
	s.n = 0;
	for (uint64_t fail = 1; fail < 12; fail++) {
		lg_alloc_fail_at(fail);
		for (int i = 0; i < 40; i++)
			lg_queue_push(q, 0, true, 1000 - i, &v, 8);
		lg_queue_round(q, 980, take, &s);
		lg_alloc_fail_at(0);
	}
	lg_queue_round(q, INT64_MAX, take, &s);
	lost = lg_queue_losses(q, 0).full;
	assert_int_equal(s.n + lost, 11 * 40);
	assert_true(lost > 0);
	lg_queue_free(q);
}

/* Parsers ------------------------------------------------------------------------------------- */

static void reads_a_name_with_parentheses_and_spaces(void **state)
{
	static const char text[] = "42 (a) b (c)) S 7 42 42 0 -1 4194304 1 2 3 4 50 60 0 0 20 0 9 0 "
				   "123456 7 8 9 1 1 1 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0\n";
	struct lg_proc_stat st;

	(void)state;
	assert_int_equal(lg_proc_parse_stat(text, sizeof text - 1, &st), 0);
	assert_string_equal(st.comm, "a) b (c)");
	assert_int_equal(st.pid, 42);
	assert_int_equal(st.state, 'S');
	assert_int_equal(st.ppid, 7);
	assert_int_equal(st.utime, 50);
	assert_int_equal(st.stime, 60);
	assert_int_equal(st.n_threads, 9);
	assert_int_equal(st.start, 123456);
	assert_int_equal(st.cpu, 3);
	/* Any cut is refused or read, never overrun (run under ASan). */
	for (size_t n = 0; n < sizeof text - 1; n++) {
		char *part = lg_calloc(n + 1, 1);

		memcpy(part, text, n);
		(void)lg_proc_parse_stat(part, n, &st);
		lg_free(part);
	}
}

static void asks_many_processes_and_many_files_at_once(void **state)
{
	struct lg_proc_text v[] = { { .name = "stat", .size = 512 }, { .name = "none", .size = 64 },
				    { .name = "cmdline", .size = 8 }, { .name = "environ", .size = 4096 } };
	struct lg_proc_stat st[3];
	char buf[8192];
	pid_t child = fork();
	int32_t pid[] = { getpid(), 1 << 30, child };
	int rc[3];

	(void)state;
	if (!child) {
		(void)execle("/bin/sleep", "sleep", "60", NULL, (char *[]){ "WORLD_SIZE=2", "RANK=1", NULL });
		_exit(1);
	}
	assert_true(child > 0);
	(void)usleep(200000);
	lg_proc_stats(pid, 3, st, rc);
	assert_int_equal(rc[0], 0);
	assert_int_equal(st[0].ppid, getppid());
	assert_int_equal(rc[1], LG_E_NOTFOUND);
	assert_int_equal(rc[2], 0);
	assert_string_equal(st[2].comm, "sleep");
	lg_proc_texts(child, v, 4, buf, sizeof buf);
	assert_int_equal(lg_proc_parse_stat(v[0].text, (size_t)v[0].n, &st[0]), 0);
	assert_int_equal(st[0].pid, child);
	assert_int_equal(v[1].n, -ENOENT);
	assert_int_equal(v[2].n, 7); /* cut */
	assert_memory_equal(v[2].text, "sleep\0006", 8);
	assert_true(lg_environ_has(v[3].text, (size_t)v[3].n, "RANK=1"));
	lg_proc_texts(child, v, 4, buf, 4096); /* has not the room */
	for (size_t i = 0; i < 4; i++)
		assert_true(v[i].n < 0);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	lg_proc_texts(child, v, 1, buf, sizeof buf);
	assert_int_equal(v[0].n, -ENOENT);
}

static struct lg_proc_rank rank_of(const char *text, size_t n)
{
	struct lg_proc_rank r;

	lg_proc_parse_environ(text, n, &r, NULL, NULL);
	return r;
}
#define RANK_OF(text) rank_of(text, sizeof(text))

static void torchrun_wins_over_slurm_and_mpi(void **state)
{
	struct lg_proc_rank r;

	(void)state;
	r = RANK_OF("SLURM_PROCID=3\0SLURM_NTASKS=4\0RANK=17\0WORLD_SIZE=32\0LOCAL_RANK=1");
	assert_int_equal(r.kind, LG_RANK_TORCH);
	assert_int_equal(r.rank, 17);
	assert_int_equal(r.world, 32);
	assert_int_equal(r.local_rank, 1);
	r = RANK_OF("PATH=/bin\0SLURM_PROCID=3\0SLURM_NTASKS=4\0SLURM_LOCALID=0");
	assert_int_equal(r.kind, LG_RANK_SLURM);
	assert_int_equal(r.rank, 3);
	r = RANK_OF("OMPI_COMM_WORLD_RANK=5\0OMPI_COMM_WORLD_SIZE=8\0SLURM_PROCID=0");
	assert_int_equal(r.kind, LG_RANK_MPI);
	assert_int_equal(r.rank, 5);
	/* RANK alone is anybody's variable, and nonsense is none. */
	assert_int_equal(RANK_OF("RANK=3").kind, LG_RANK_NONE);
	assert_int_equal(RANK_OF("RANK=x\0WORLD_SIZE=2").kind, LG_RANK_NONE);
	assert_int_equal(RANK_OF("RANK=-1\0WORLD_SIZE=2").kind, LG_RANK_NONE);
	assert_int_equal(RANK_OF("SLURM_NTASKS=2").kind, LG_RANK_NONE);
}

static void keep(void *arg, const char *key, const char *value)
{
	char *all = arg;

	strcat(strcat(strcat(strcat(all, key), "="), value), ";");
}

static void keeps_only_listed_variables(void **state)
{
	static const char env[] = "AWS_SECRET_ACCESS_KEY=x\0MASTER_ADDR=h1\0TOKEN=y\0RANK=0\0"
				  "WORLD_SIZE=1\0RANKLE=z";
	char all[256] = "";
	struct lg_proc_rank r;

	(void)state;
	lg_proc_parse_environ(env, sizeof env, &r, keep, all);
	assert_string_equal(all, "MASTER_ADDR=h1;RANK=0;WORLD_SIZE=1;");
	assert_true(lg_environ_has(env, sizeof env, "TOKEN=y"));
	assert_false(lg_environ_has(env, sizeof env, "TOKEN="));
}

static void names_containers_pods_and_batch_steps(void **state)
{
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	static const struct { const char *text, *want; } t[] = {
		{ "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-" HEX64 ".scope\n",
		  "0123456789ab" },
		{ "4:memory:/docker/" HEX64 "\n0::/\n", "0123456789ab" },
		{ "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_1\n", "slurm:77.0" },
		{ "1:cpu:/slurm/uid_0/job_9\n", "slurm:9" },
		{ "0::/lxc/web/x\n", "lxc:web" },
		{ "0::/user.slice/user-0.slice\n", "" },
		{ "", "" },
	};
	char buf[128];

	(void)state;
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		lg_proc_container(t[i].text, buf, sizeof buf);
		assert_string_equal(buf, t[i].want);
	}
	lg_proc_cgroup_path("2:cpuacct:/a\n1:cpu,cpuset:/b\n0::/c d\n", "cpu", buf, sizeof buf);
	assert_string_equal(buf, "/b");
	lg_proc_cgroup_path("2:cpuacct:/a\n1:cpu,cpuset:/b\n0::/c d\n", NULL, buf, sizeof buf);
	assert_string_equal(buf, "/c d");
	lg_proc_cgroup_path("2:cpuacct:/a\n", "cpu", buf, sizeof buf);
	assert_string_equal(buf, "");
}

static void reads_the_pid_inside_a_container(void **state)
{
	struct lg_proc_status s;

	(void)state;
	lg_proc_parse_status("Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t4711\t33\t5\n", &s);
	assert_int_equal(s.uid, 1000);
	assert_int_equal(s.ns_pid, 5);
	lg_proc_parse_status("Name:\tx\nNSpid:\t4711\n", &s);
	assert_int_equal(s.ns_pid, 0);
}

static void knows_the_folder_that_is_kept_by_its_form_alone(void **state)
{
	static const struct { const char *env; uint32_t want; } rows[] = {
		{ "LAGGARD_MARKS=/dev/shm/laggard-1000/kept", 1001 },
		{ "LAGGARD_MARKS=/dev/shm/laggard-0/kept", 1 },
		{ "LAGGARD_MARKS=/dev/shm/laggard-0/kept/x", 0 },
		{ "LAGGARD_MARKS=/dev/shm/laggard-0/../kept", 0 },
		{ "LAGGARD_MARKS=/dev/shm/laggard-/kept", 0 },
		{ "LAGGARD_MARKS=/dev/shm/laggard- 1/kept", 0 },
		{ "LAGGARD_MARKS=/dev/shm/laggard--1/kept", 0 },
		{ "LAGGARD_MARKS=/dev/shm/laggard-4294967295/kept", 0 },
		{ "LAGGARD_MARKS=/dev/shm/laggard-99999999999999999999999/kept", 0 },
		{ "XLAGGARD_MARKS=/dev/shm/laggard-1/kept", 0 },
		{ "LAGGARD_MARKS=/run/laggard/0123456789abcdef/marks", 0 },
		{ "", 0 },
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = (size_t)snprintf(text, sizeof text, "A=1%c%s%cB=2", 0, rows[i].env, 0);

		assert_int_equal(lg_proc_kept_marks(text, n + 1), rows[i].want);
		/* cut off in it: nothing is known of its end */
		if (*rows[i].env)
			assert_int_equal(lg_proc_kept_marks(text, n - 4), 0);
	}
}

/* Process tree -------------------------------------------------------------------------------- */

struct tree {
	struct lg_builder *b;
	struct lg_lives *l;
};

enum { CHILD = 1 << 23 }; /* pids that no machine has: /proc has nothing about them */

static int setup(void **state)
{
	struct tree *t = calloc(1, sizeof *t);
	struct lg_error err;
	struct lg_lives_options opt = { .self = CHILD - 1, .child = CHILD };

	assert_int_equal(lg_builder_new(&t->b, &err), 0);
	assert_int_equal(lg_lives_new(&t->l, t->b, &opt, &err), 0);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct tree *t = *state;

	lg_lives_free(t->l);
	lg_builder_free(t->b);
	free(t);
	return 0;
}

#define MS INT64_C(1000000)

static size_t lives_of(struct tree *t, int32_t pid)
{
	const struct lg_trace *tr = lg_builder_trace(t->b);
	size_t n = 0;

	for (size_t i = 1; i < tr->process.n; i++)
		n += tr->process.pid[i] == pid;
	return n;
}

static void a_fork_told_twice_is_one_life(void **state)
{
	struct tree *t = *state;

	assert_true(lg_lives_fork(t->l, 1000 * MS, 1, CHILD, CHILD));
	assert_false(lg_lives_fork(t->l, 1001 * MS, 1, CHILD, CHILD));
	assert_int_equal(lives_of(t, CHILD), 1);
	assert_true(lg_lives_exit(t->l, 2000 * MS, CHILD, CHILD));
	/* told again after its end, late */
	assert_false(lg_lives_fork(t->l, 1002 * MS, 1, CHILD, CHILD));
	/* the pid comes round: another life */
	assert_true(lg_lives_fork(t->l, 9000 * MS, 1, CHILD, CHILD));
	assert_int_equal(lives_of(t, CHILD), 2);
	/* and again, its exit having been lost */
	assert_true(lg_lives_fork(t->l, 19000 * MS, 1, CHILD, CHILD));
	assert_int_equal(lives_of(t, CHILD), 3);
}

static void the_job_is_whoever_descends_from_it(void **state)
{
	struct tree *t = *state;

	lg_lives_fork(t->l, 1000 * MS, 1, CHILD, CHILD);
	lg_lives_fork(t->l, 2000 * MS, CHILD, CHILD + 1, CHILD + 1);
	lg_lives_fork(t->l, 3000 * MS, CHILD + 1, CHILD + 2, CHILD + 2);
	lg_lives_exit(t->l, 4000 * MS, CHILD + 1, CHILD + 1); /* the double fork's middle */
	lg_lives_fork(t->l, 5000 * MS, CHILD + 2, CHILD + 3, CHILD + 3);
	lg_lives_fork(t->l, 5000 * MS, 1, CHILD + 9, CHILD + 9);
	assert_true(lg_lives_is_job(t->l, CHILD));
	assert_true(lg_lives_is_job(t->l, CHILD + 2));
	assert_true(lg_lives_is_job(t->l, CHILD + 3));
	assert_false(lg_lives_is_job(t->l, CHILD + 1)); /* gone */
	assert_false(lg_lives_is_job(t->l, CHILD + 9));
}

static struct lg_process_row row_of(struct tree *t, int32_t pid)
{
	return lg_process_read(t->b, lg_process_get(t->b, pid));
}

static void children_of_a_rank_are_no_ranks(void **state)
{
	struct tree *t = *state;
	unsigned ranks;

	lg_lives_fork(t->l, 1000 * MS, 1, CHILD, CHILD);
	lg_lives_exec(t->l, 1001 * MS, CHILD, "python3");
	lg_lives_rank(t->l, CHILD, 4, 8, 0);
	lg_lives_fork(t->l, 2000 * MS, CHILD, CHILD + 1, CHILD + 1);
	lg_lives_fork(t->l, 2100 * MS, CHILD, CHILD + 2, CHILD + 2);
	lg_lives_exec(t->l, 2101 * MS, CHILD + 2, "sh");
	lg_lives_finish(t->l, &ranks);
	assert_int_equal(ranks, 1);
	assert_int_equal(row_of(t, CHILD).role, LG_ROLE_RANK);
	assert_int_equal(row_of(t, CHILD).rank, 4);
	assert_int_equal(row_of(t, CHILD).world, 8);
	assert_int_equal(row_of(t, CHILD + 1).role, LG_ROLE_LOADER);
	assert_int_equal(row_of(t, CHILD + 1).rank, 4);
	assert_int_equal(row_of(t, CHILD + 2).role, LG_ROLE_JOB);
	assert_int_equal(row_of(t, CHILD + 2).rank, -1);
}

/* The state of a process in /proc/PID/stat, 0 = there is none. */
static char state_of(int32_t pid)
{
	char path[64], line[512], *end;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	n = lg_proc_read(path, line, sizeof line);
	end = n > 0 ? strrchr(line, ')') : NULL;
	return end ? end[2] : 0;
}

/* Whether the process has become this program: until then its environment may read as empty. */
static bool runs(int32_t pid, const char *comm)
{
	char path[64], line[64];
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/comm", pid);
	n = lg_proc_read(path, line, sizeof line);
	return n > 0 && !strncmp(line, comm, strlen(comm)) && state_of(pid) == 'S';
}

/* A rank; a shell of it that ended and that nobody has waited for; that shell's child, alive. */
struct orphaned {
	int32_t rank, middle, daemon;
};

static void start_orphaned(struct orphaned *o)
{
	char *env[] = { "RANK=1", "WORLD_SIZE=2", "PATH=/usr/bin:/bin", NULL };
	char *argv[] = { "sh", "-c", "sh -c 'sleep 60 >&- & echo $$ $!' & exec sleep 60 >&-", NULL };
	char text[64] = "";
	size_t got = 0;
	int fd[2];
	ssize_t n;

	assert_int_equal(pipe(fd), 0);
	o->rank = fork();
	assert_int_not_equal(o->rank, -1);
	if (!o->rank) {
		dup2(fd[1], 1);
		close(fd[0]);
		close(fd[1]);
		execve("/bin/sh", argv, env);
		_exit(127);
	}
	close(fd[1]);
	while (got < sizeof text - 1 && (n = read(fd[0], text + got, sizeof text - 1 - got)) > 0)
		got += (size_t)n;
	close(fd[0]);
	assert_int_equal(sscanf(text, "%d %d", &o->middle, &o->daemon), 2);
	for (int i = 0; i < 1000 && state_of(o->middle) != 'Z'; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	assert_int_equal(state_of(o->middle), 'Z');
	for (int i = 0; i < 1000 && !runs(o->rank, "sleep"); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	assert_true(runs(o->rank, "sleep"));
}

/* The environment of a zombie cannot be read: it has not lost the rank for that. */
static void a_daemon_of_a_zombie_is_no_rank(void **state)
{
	struct tree *t = *state;
	struct lg_lives_options opt = { .self = getpid() };
	struct lg_lives *l;
	struct lg_error err;
	struct orphaned o;
	struct timespec ts;
	unsigned ranks;
	int64_t now;

	start_orphaned(&o);
	opt.child = o.rank;
	assert_int_equal(lg_lives_new(&l, t->b, &opt, &err), 0);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = ts.tv_sec * 1000 * MS + ts.tv_nsec;
	lg_lives_fork(l, now, getpid(), o.rank, o.rank);
	lg_lives_exec(l, now + 1, o.rank, "sleep");
	lg_lives_fork(l, now + 2, o.rank, o.middle, o.middle);
	lg_lives_exec(l, now + 3, o.middle, "sh");
	lg_lives_work(l, now + 4);
	lg_lives_fork(l, now + 5, o.middle, o.daemon, o.daemon);
	lg_lives_exec(l, now + 6, o.daemon, "sleep");
	lg_lives_work(l, now + 7);
	lg_lives_finish(l, &ranks);
	assert_int_equal(ranks, 1);
	assert_int_equal(row_of(t, o.rank).role, LG_ROLE_RANK);
	assert_int_equal(row_of(t, o.rank).rank, 1);
	assert_int_equal(row_of(t, o.middle).role, LG_ROLE_JOB);
	assert_int_equal(row_of(t, o.daemon).role, LG_ROLE_JOB);
	lg_lives_free(l);
	kill(o.daemon, SIGKILL);
	kill(o.rank, SIGKILL);
	waitpid(o.rank, NULL, 0);
}

static void a_thread_has_its_process_and_name(void **state)
{
	struct tree *t = *state;
	lg_thr thr;

	lg_lives_fork(t->l, 1000 * MS, 1, CHILD, CHILD);
	lg_lives_exec(t->l, 1001 * MS, CHILD, "python3");
	lg_lives_fork(t->l, 1500 * MS, CHILD, CHILD, CHILD + 5);
	thr = lg_thread_find(t->b, CHILD + 5);
	assert_int_not_equal(thr, 0);
	assert_int_equal(lg_thread_read(t->b, thr).start, 1500 * MS);
	assert_int_equal(lg_thread_process(t->b, thr), lg_process_get(t->b, CHILD));
	assert_string_equal(lg_string(lg_builder_trace(t->b), lg_thread_read(t->b, thr).comm),
			    "python3");
	assert_int_equal(lives_of(t, CHILD), 1);
}

static void reads_itself_from_proc(void **state)
{
	struct tree *t = *state;
	struct lg_process_row r;

	lg_lives_scan(t->l, INT64_C(1) << 60);
	r = row_of(t, (int32_t)getpid());
	assert_int_equal(r.ppid, getppid());
	assert_int_equal(r.uid, getuid());
	assert_non_null(strstr(lg_string(lg_builder_trace(t->b), r.cmdline),
			       program_invocation_short_name));
	assert_int_equal(r.start, INT64_MIN);
}

/* Launcher ------------------------------------------------------------------------------------ */

static int status_of(const char *script)
{
	char sh[] = "/bin/sh", c[] = "-c", *text = strdup(script);
	char *cmd[] = { sh, c, text, NULL }, *env[] = { NULL };
	struct lg_error err = { 0 };
	struct lg_launch *l;
	sigset_t mask;
	int st;

	sigemptyset(&mask);
	assert_int_equal(lg_launch_fork(&l, cmd, env, NULL, &mask, &err), 0);
	assert_false(lg_launch_ended(l, false)); /* it waits */
	assert_int_equal(lg_launch_go(l, &err), 0);
	assert_true(lg_launch_ended(l, true));
	st = lg_launch_status(l);
	lg_launch_free(l);
	free(text);
	return st;
}

static void returns_the_status_as_a_shell_does(void **state)
{
	(void)state;
	assert_int_equal(status_of("exit 0"), 0);
	assert_int_equal(status_of("exit 7"), 7);
	assert_int_equal(status_of("kill -9 $$"), 128 + 9);
	assert_int_equal(status_of("kill -TERM $$"), 128 + 15);
	/* SIGPIPE is ignored in a recorder, never in what it starts. */
	assert_int_equal(status_of("kill -PIPE $$; exit 1"), 128 + SIGPIPE);
}

static void says_what_cannot_be_run(void **state)
{
	char missing[] = "/nonexistent/program", refused[] = "/dev/null";
	char *cmd[] = { missing, NULL };
	struct lg_error err = { 0 };
	struct lg_launch *l;
	sigset_t mask;

	(void)state;
	sigemptyset(&mask);
	assert_int_equal(lg_launch_fork(&l, cmd, NULL, NULL, &mask, &err), 0);
	assert_int_equal(lg_launch_go(l, &err), LG_E_NOTFOUND);
	assert_non_null(strstr(err.message, missing));
	assert_int_equal(lg_launch_status(l), 127);
	lg_launch_free(l);
	cmd[0] = refused;
	assert_int_equal(lg_launch_fork(&l, cmd, NULL, NULL, &mask, &err), 0);
	assert_true(lg_launch_go(l, &err) < 0);
	assert_int_equal(lg_launch_status(l), 126);
	lg_launch_free(l);
}

int main(void)
{
#define TREE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(knows_the_folder_that_is_kept_by_its_form_alone),
		cmocka_unit_test(hands_out_sorted_runs_in_time_order),
		cmocka_unit_test(keeps_what_is_newer_than_the_cutoff),
		cmocka_unit_test(counts_what_is_over_the_bound),
		cmocka_unit_test(drops_late_records_unless_their_source_takes_them),
		cmocka_unit_test(reports_records_lost_for_want_of_memory),
		cmocka_unit_test(reads_a_name_with_parentheses_and_spaces),
		cmocka_unit_test(asks_many_processes_and_many_files_at_once),
		cmocka_unit_test(torchrun_wins_over_slurm_and_mpi),
		cmocka_unit_test(keeps_only_listed_variables),
		cmocka_unit_test(names_containers_pods_and_batch_steps),
		cmocka_unit_test(reads_the_pid_inside_a_container),
		TREE(a_fork_told_twice_is_one_life),
		TREE(the_job_is_whoever_descends_from_it),
		TREE(children_of_a_rank_are_no_ranks),
		TREE(a_daemon_of_a_zombie_is_no_rank),
		TREE(a_thread_has_its_process_and_name),
		TREE(reads_itself_from_proc),
		cmocka_unit_test(returns_the_status_as_a_shell_does),
		cmocka_unit_test(says_what_cannot_be_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
