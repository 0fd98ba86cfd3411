/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes of a made /proc are of a job that was named, and in which order. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "record/job_spec.h"
#include "record/lives.h"

enum { SELF = 900 };

static char root[64];

static void put(int pid, const char *name, const char *data, size_t n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/%d/%s", root, pid, name);
	f = fopen(path, "w");
	assert_non_null(f);
	if (!f) /* gcc with sanitizers does not know that the line above ends the test */
		return;
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* words: separated by '|' here and by zeros there. NULL: no such file. */
static void put_words(int pid, const char *name, const char *words)
{
	char text[512];
	size_t n = strlen(words);

	assert_true(n < sizeof text);
	for (size_t i = 0; i < n; i++)
		text[i] = words[i] == '|' ? 0 : words[i];
	text[n] = 0;
	put(pid, name, text, n ? n + 1 : 0);
}

static void process(int pid, int ppid, const char *cmdline, const char *cgroup, const char *env)
{
	char path[128], text[256];

	snprintf(path, sizeof path, "%s/%d", root, pid);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(text, sizeof text, "%d (a) b) S %d 1 1 0 -1 %u 1 1 1 1 5 6 7 8 20 0 1 0 77 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
		 "1 1 17 0 1", pid, ppid, pid == 2 ? 0x00200000u : 0u);
	put(pid, "stat", text, strlen(text));
	put_words(pid, "cmdline", cmdline);
	put(pid, "cgroup", cgroup, strlen(cgroup));
	put_words(pid, "environ", env);
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define STEP(job, step) "0::/system.slice/slurmstepd.scope/job_" #job "/step_" #step "/user/task_0\n"

static int setup(void **state)
{
	(void)state;
	snprintf(root, sizeof root, "/tmp/test_job_spec.XXXXXX");
	assert_non_null(mkdtemp(root));
	process(1, 0, "/sbin/init", "0::/init.scope\n", "");
	process(2, 0, "train.py", "0::/\n", "SLURM_JOB_ID=42"); /* a kernel thread says nothing, whatever it says */
	/* Slurm: the launcher of a step, torchrun's two ranks in the wrong order of pids, a loader of one. */
	process(100, 1, "slurmstepd|[42.0]", "0::/system.slice/slurmstepd.scope/job_42/step_0/slurm\n", "");
	process(101, 100, "python3|torchrun", STEP(42, 0), "SLURM_JOB_ID=42|SLURM_STEP_ID=0|SLURM_PROCID=0");
	process(103, 101, "python3|train.py", STEP(42, 0), "SLURM_JOB_ID=42|SLURM_PROCID=0|RANK=1|WORLD_SIZE=2");
	process(104, 101, "python3|train.py", STEP(42, 0), "SLURM_JOB_ID=42|SLURM_PROCID=0|RANK=0|WORLD_SIZE=2");
	process(105, 104, "python3|train.py", STEP(42, 0), "SLURM_JOB_ID=42|SLURM_PROCID=0|RANK=0|WORLD_SIZE=2");
	process(106, 100, "sleep|9", STEP(42, batch), "SLURM_JOB_ID=42");
	process(110, 1, "python3|other.py", STEP(421, 0), "SLURM_JOB_ID=42"); /* Slurm knows better */
	/* The same without Slurm's cgroups. */
	process(120, 1, "a.out", "0::/user.slice\n", "XSLURM_JOB_ID=50|SLURM_JOB_ID=50|SLURM_STEP_ID=3");
	process(121, 1, "a.out", "0::/user.slice/job_50/nothing\n", "SLURM_JOB_ID=50|SLURM_ARRAY_JOB_ID=49|"
		"SLURM_ARRAY_TASK_ID=7");
	process(122, 1, "a.out", "", "SLURM_JOB_ID=501");
	process(123, 1, "a.out", "", "SLURM_JOB_ID=500|SLURM_JOB_ID=50"); /* getenv() finds the first */
	/* Ray: one with its variable, two by their titles. */
	process(200, 1, "ray::IDLE", "", "RAY_JOB_ID=01000000");
	process(201, 1, "ray::Trainer.fit", "", "");
	process(202, 1, "ray::TrainerTwo.fit", "", "");
	process(203, 1, "sh|-c|echo ray::Trainer", "", "");
	/* Containers. */
	process(300, 1, "a", "0::/system.slice/docker-" HEX64 ".scope\n", "");
	process(301, 1, "a", "1:cpu,cpuacct:/kubepods/burstable/pod1b2c-3d/" HEX64 "\n0::/\n", "");
	process(302, 1, "a", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c_3d.slice/x\n", "");
	process(303, 1, "a", "0::/lxc/web/init.scope\n", "");
	process(304, 1, "a", "0::/lxc/web-2\n", "");
	process(305, 1, "a", "0::/x/" HEX64 "00\n", "");
	/* Who asks: sudo, a shell, laggard, what it forked. Each has the expression in its command line. */
	process(897, 1, "sudo|laggard|--job|match:needle", "", "");
	process(899, 897, "sh|-c|laggard --job match:needle", "", "");
	process(SELF, 899, "laggard|record|--job|match:needle", "0::/me\n", "");
	process(901, SELF, "laggard|record|--job|match:needle", "0::/me\n", "");
	process(950, 1, "python3|needle.py|\033[2J", "0::/me/too\n", "");
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

/* The pids that text finds, in their order: "104 103 ranks 2". */
static const char *found(const char *text)
{
	static char line[256];
	struct lg_job_spec *s = NULL;
	struct lg_job_found f = { 0 };
	struct lg_error err = { 0 };
	int rc = lg_job_spec_new(&s, text, root, SELF, &err);
	size_t n = 0;

	if (!rc)
		rc = lg_job_find(s, &f, &err);
	line[0] = 0;
	for (size_t i = 0; i < f.n; i++) {
		assert_true(lg_job_takes(s, f.v[i].pid));
		n += (size_t)snprintf(line + n, sizeof line - n, "%s%d", i ? " " : "", (int)f.v[i].pid);
	}
	if (f.n_ranks)
		snprintf(line + n, sizeof line - n, " ranks %zu", f.n_ranks);
	if (rc)
		snprintf(line, sizeof line, "%d", rc);
	lg_free(f.v);
	lg_job_spec_free(s);
	return line;
}

static void slurm(void **state)
{
	(void)state;
	/* The strongest numbers count, and a loader has its rank's. */
	assert_string_equal(found("slurm:42"), "104 103 100 101 105 106 ranks 2");
	assert_string_equal(found("slurm:42.batch"), "106");
	assert_string_equal(found("slurm:50"), "120 121");
	assert_string_equal(found("slurm:50.3"), "120");
	assert_string_equal(found("slurm:49_7"), "121");
	assert_string_equal(found("slurm:421"), "110");
	assert_string_equal(found("slurm:43"), "-8");
}

static void ray(void **state)
{
	(void)state;
	assert_string_equal(found("ray:01000000"), "200");
	assert_string_equal(found("ray:Trainer"), "201");
	assert_string_equal(found("ray:Trainer.fit"), "201");
	assert_string_equal(found("ray:Train"), "-8");
}

static void containers(void **state)
{
	(void)state;
	assert_string_equal(found("container:" HEX64), "300 301");
	assert_string_equal(found("container:0123456789ab"), "300 301");
	assert_string_equal(found("container:123456789abc"), "-8"); /* from the middle of one */
	assert_string_equal(found("container:1b2c-3d"), "301 302");
	assert_string_equal(found("container:web"), "303");
}

static void cgroups(void **state)
{
	(void)state;
	assert_string_equal(found("cgroup:/system.slice/slurmstepd.scope/job_42/step_batch"), "106");
	assert_string_equal(found("cgroup:/sys/fs/cgroup/lxc/"), "303 304");
	assert_string_equal(found("cgroup:/sys/fs/cgroup/cpu,cpuacct/kubepods/burstable"), "301");
	assert_string_equal(found("cgroup:/lx"), "-8");
	assert_string_equal(found("cgroup:/me"), "950"); /* not who asks */
}

static void command_lines(void **state)
{
	(void)state;
	assert_string_equal(found("match:needle"), "950");
	assert_string_equal(found("match:^python3 (train|other)[.]py$"), "104 103 105 110 ranks 2");
	assert_string_equal(found("match:^$"), "-8");
}

static void a_job_that_nobody_could_mean(void **state)
{
	static const char *const bad[] = {
		"42", "job:42", "slurm:", "slurm:x", "slurm:4 2", "slurm:42.", "slurm:42_", "slurm:_1", "ray:",
		"container:0123456789a", "container:a/b", "cgroup:/", "cgroup:a", "cgroup:/sys/fs/cgroup/", "match:(",
		"match:(a)\\1", "match:((a{1,100}){1,100}){1,100}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct lg_job_spec *s = NULL;
		struct lg_error err = { 0 };

		if (lg_job_spec_new(&s, bad[i], root, SELF, &err) != LG_E_USAGE)
			fail_msg("%s was taken", bad[i]);
		assert_true(*err.message);
		assert_null(s);
	}
}

static void says_what_it_looked_for(void **state)
{
	struct lg_job_spec *s;
	struct lg_job_found f = { 0 };
	struct lg_error err = { 0 };
	char text[256];

	(void)state;
	assert_int_equal(lg_job_spec_new(&s, "slurm:7_3.batch", root, SELF, &err), 0);
	assert_int_equal(lg_job_find(s, &f, &err), LG_E_NOTFOUND);
	assert_non_null(strstr(err.message, "7_3.batch"));
	assert_non_null(strstr(err.message, "looked at 27 processes")); /* all but the kernel's */
	assert_true(err.offset == LG_NO_OFFSET);
	lg_job_spec_free(s);
	assert_int_equal(lg_job_spec_new(&s, "slurm:42", root, SELF, &err), 0);
	assert_int_equal(lg_job_find(s, &f, &err), 0);
	assert_string_equal(lg_job_found_text(&f, text, sizeof text), "6 processes, ranks 0, 1 (pids 104, 103)");
	lg_free(f.v);
	lg_job_spec_free(s);
}

/* More than the bound, and no zero in it: neither hangs nor reads beyond. */
static void endless_files(void **state)
{
	static char much[300 << 10];
	struct lg_job_spec *s;
	struct lg_error err;

	(void)state;
	process(400, 1, "a", "0::/\n", "");
	memset(much, 'x', sizeof much);
	put(400, "cmdline", much, sizeof much);
	put(400, "environ", much, sizeof much);
	put(400, "cgroup", much, sizeof much);
	assert_string_equal(found("match:x{5}$"), "400");
	assert_string_equal(found("slurm:43"), "-8");
	memcpy(much + sizeof much - 16, "\0SLURM_JOB_ID=43", 16);
	put(400, "environ", much, sizeof much);
	assert_string_equal(found("slurm:43"), "-8"); /* beyond the bound is not seen */
	memcpy(much, "SLURM_JOB_ID=43\0", 16);
	put(400, "environ", much, sizeof much);
	assert_string_equal(found("slurm:43"), "400");
	/* One that is gone meanwhile. */
	assert_int_equal(lg_job_spec_new(&s, "slurm:43", root, SELF, &err), 0);
	assert_false(lg_job_takes(s, 401));
	lg_job_spec_free(s);
}

/* Ranks that process 1 adopted are ranks; what one of them left behind is none. */
static void orphans(void **state)
{
	(void)state;
	process(500, 1, "orphan", "", "RANK=1|WORLD_SIZE=2");
	process(501, 1, "orphan", "", "RANK=0|WORLD_SIZE=2");
	assert_string_equal(found("match:orphan"), "501 500 ranks 2");
	process(502, 1, "orphan", "", "RANK=2|WORLD_SIZE=3");
	process(503, 897, "orphan", "", "RANK=2|WORLD_SIZE=3");
	assert_string_equal(found("match:orphan"), "501 500 503 502 ranks 3");
}

/* A process that sleeps under this name; only once it has it. */
static pid_t start(const char *name)
{
	char *argv[] = { (char *)(uintptr_t)name, "60", NULL };
	pid_t pid = fork();
	char path[64], line[256];

	assert_int_not_equal(pid, -1);
	if (!pid) {
		execv("/bin/sleep", argv);
		_exit(127);
	}
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	for (int i = 0; i < 1000 && (lg_proc_read(path, line, sizeof line) <= 0 || strcmp(line, name)); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	assert_string_equal(line, name);
	return pid;
}

/* Who comes while the job is recorded joins when it is read, and whoever it starts is of the job, too. */
static void joins_later(void **state)
{
	char name[64], text[96];
	struct lg_lives_options opt = { .self = getpid() };
	struct lg_builder *b;
	struct lg_lives *l;
	struct lg_error err;
	pid_t early, late, other;
	struct timespec ts;
	int64_t now;

	(void)state;
	snprintf(name, sizeof name, "needle-%d", (int)getpid());
	snprintf(text, sizeof text, "match:^%s ", name);
	early = start(name);
	/* Whoever asks leaves out what it started itself: here somebody else asks. */
	assert_int_equal(lg_job_spec_new(&opt.job, text, "/proc", early, &err), 0);
	assert_false(lg_job_takes(opt.job, early));
	lg_job_spec_free(opt.job);
	assert_int_equal(lg_job_spec_new(&opt.job, text, "/proc", 0x7fffffff, &err), 0);
	assert_int_equal(lg_builder_new(&b, &err), 0);
	assert_int_equal(lg_lives_new(&l, b, &opt, &err), 0);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
	lg_lives_scan(l, now);
	assert_true(lg_lives_is_job(l, early));
	late = start(name);
	other = start("hay");
	clock_gettime(CLOCK_MONOTONIC, &ts); /* not before /proc says that they began */
	now = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
	for (int i = 0; i < 2; i++) {
		pid_t pid = i ? other : late;

		lg_lives_fork(l, now + 1000000 + i, getpid(), pid, pid);
		lg_lives_exec(l, now + 2000000 + i, pid, "sleep");
	}
	assert_false(lg_lives_is_job(l, late));
	lg_lives_work(l, now);
	assert_true(lg_lives_is_job(l, late));
	assert_false(lg_lives_is_job(l, other));
	/* A pid that no machine has. */
	lg_lives_fork(l, now + 3000000, late, 1 << 23, 1 << 23);
	assert_true(lg_lives_is_job(l, 1 << 23));
	lg_lives_free(l);
	lg_builder_free(b);
	lg_job_spec_free(opt.job);
	kill(early, SIGKILL);
	kill(late, SIGKILL);
	kill(other, SIGKILL);
	for (int i = 0; i < 3; i++)
		wait(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(slurm, setup, teardown),
		cmocka_unit_test_setup_teardown(ray, setup, teardown),
		cmocka_unit_test_setup_teardown(containers, setup, teardown),
		cmocka_unit_test_setup_teardown(cgroups, setup, teardown),
		cmocka_unit_test_setup_teardown(command_lines, setup, teardown),
		cmocka_unit_test_setup_teardown(a_job_that_nobody_could_mean, setup, teardown),
		cmocka_unit_test_setup_teardown(says_what_it_looked_for, setup, teardown),
		cmocka_unit_test_setup_teardown(endless_files, setup, teardown),
		cmocka_unit_test_setup_teardown(orphans, setup, teardown),
		cmocka_unit_test(joins_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
