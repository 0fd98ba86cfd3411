/* SPDX-License-Identifier: Apache-2.0 */
/* agent_jobs.c - from jobs to their recorders, from steps to rows, from slow steps to evidence; within a
 * budget. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/order.h"
#include "cli/agent.h"
#include "fleet/questions.h"
#include "record/procfs.h"

extern char **environ;

#define SECOND LG_AGENT_SECOND
/* A window is asked about where its slow steps took so much of it: as a finding of severity low. */
#define WORTH_ASKING 0.01
#define DUMP_PATIENCE (30 * SECOND)
#define JUDGE_PATIENCE (120 * SECOND)
/* Seconds' worth of the budget: may be saved up, is there at first, may be owed before something goes. */
enum {
	SAVED_S = 600,
	FIRST_S = 200,
	OWED_S = 120,
	SHED_EVERY_S = 60,
	RESTORE_AFTER_S = 600,
	LEVELS = 3,
	STEP_PACKETS = 4096
};

int64_t lg_agent_now(void)
{
	return lg_monotonic_ns();
}

static uint64_t wall_us(const struct lg_agent *a, int64_t ts)
{
	int64_t wall = ts + a->wall_offset;

	return wall > 0 ? (uint64_t)wall / 1000 : 0;
}

/* ---- the recorder of a job ------------------------------------------------------------------------ */

/* In the recorder: a pipe takes a packet whole or not at all. */
static void tell_step(void *arg, const struct lg_step_told *t)
{
	(void)!write(*(int *)arg, t, sizeof *t);
}

static void record(const struct lg_agent *a, const struct lg_agent_job *j, const char *out, int to)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	bool samples = a->level < 1 && a->set.freq_hz;
	struct lg_record_options r = {
		.out = out,
		.pids = j->pids,
		.n_pids = j->n,
		.freq_hz = samples ? (unsigned)a->set.freq_hz : 0,
		.ring_ns = a->set.window_ns + a->set.window_ns / 2,
		.confine = true,
		.quiet = true,
		.profile = a->level < 1 ? LG_PROFILE_DEFAULT : LG_PROFILE_LIGHT,
		.no_python = a->level >= 1,
		.tier = a->level < 2 ? LG_TIER_AUTO : LG_TIER_PROCFS,
		.env = environ,
		.cmdline = "laggard agent",
		.step = tell_step,
		.step_arg = &to,
	};
	int status = LG_EXIT_FAILED;

	if (lg_record(&r, &status, &err)) {
		lg_complain(&err);
		status = LG_EXIT_FAILED;
	}
	_exit(status);
}

static void start_recorder(struct lg_agent *a, struct lg_agent_job *j)
{
	char out[PATH_MAX + 8];
	pid_t parent = getpid();
	int p[2];

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK)) {
		lg_agent_trouble(a, "pipe: %s", strerror(errno));
		return;
	}
	(void)fcntl(p[0], F_SETPIPE_SZ, 1 << 20); /* a second in which we do not run */
	snprintf(j->ring, sizeof j->ring, "%s/ring/%016" PRIx64 "-%u", a->set.state, j->id, j->attempt);
	snprintf(out, sizeof out, "%s.lag", j->ring);
	j->dumps = 0;
	j->recorder = fork();
	if (!j->recorder) {
		prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody else would end it */
		if (getppid() != parent)
			_exit(0);
		close(p[0]);
		close(a->lock);
		record(a, j, out, p[1]);
	}
	close(p[1]);
	if (j->recorder < 0) {
		j->recorder = 0;
		close(p[0]);
		lg_agent_trouble(a, "fork: %s", strerror(errno));
		return;
	}
	j->steps = p[0];
	j->phase = LG_AGENT_RECORDING;
	j->window_from = lg_agent_now();
	j->asked_at = 0;
}

/* but: a file that is still needed; "" = none. */
static void remove_ring(const struct lg_agent_job *j, const char *but)
{
	char path[PATH_MAX + 32];

	if (!*j->ring)
		return;
	snprintf(path, sizeof path, "%s.lag", j->ring);
	if (strcmp(path, but))
		unlink(path);
	for (unsigned i = 1; i <= j->dumps; i++) {
		snprintf(path, sizeof path, "%s-%u.lag", j->ring, i);
		unlink(path);
	}
}

static void stop_recorder(struct lg_agent_job *j)
{
	if (j->recorder > 0)
		kill(j->recorder, SIGTERM);
}

/* ---- jobs ----------------------------------------------------------------------------------------- */

static void describe(struct lg_agent *a, struct lg_agent_job *j)
{
	struct lg_fleet_job row = { .job = j->id,
				    .attempt = (uint16_t)j->attempt,
				    .name = j->name,
				    .sched = j->sched,
				    .world = (uint32_t)LG_MAX(j->world, (int32_t)j->n),
				    .started_us = j->start_us };
	char user[16];

	snprintf(user, sizeof user, "%u", j->uid);
	row.user = user;
	row.ver = wall_us(a, lg_agent_now());
	lg_fleet_add_job(a->batch, &row);
}

static struct lg_agent_job *job_like(struct lg_agent *a, const struct lg_node_job *n)
{
	for (size_t i = 0; i < a->n_jobs; i++) {
		struct lg_agent_job *j = &a->job[i];

		if (j->uid == n->uid && j->attempt == n->attempt && !strcmp(j->name, n->name))
			return j;
	}
	return NULL;
}

static void end_job(struct lg_agent *a, struct lg_agent_job *j);

static size_t jobs_of(const struct lg_agent *a, uint32_t uid)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n_jobs; i++)
		n += a->job[i].uid == uid && a->job[i].phase != LG_AGENT_ENDING;
	return n;
}

/* All places are taken, and this user has none: who has two or more gives up the one that came last. */
static void make_room(struct lg_agent *a, uint32_t uid)
{
	struct lg_agent_job *last = NULL;
	size_t most = 1;

	for (size_t i = 0; i < a->n_jobs; i++) {
		size_t n = jobs_of(a, a->job[i].uid);

		if (a->job[i].phase == LG_AGENT_ENDING || n < most || n < 2)
			continue;
		most = n;
		last = &a->job[i];
	}
	if (!last || a->reserved || jobs_of(a, uid))
		return;
	a->reserved = true;
	a->reserved_for = uid;
	end_job(a, last);
}

static struct lg_agent_job *add_job(struct lg_agent *a, const struct lg_node_job *n)
{
	struct lg_agent_job *j = &a->job[a->n_jobs];
	char cluster[160];

	if (a->n_jobs >= (size_t)a->set.jobs || a->n_jobs == LG_AGENT_JOBS ||
	    (a->reserved && n->uid != a->reserved_for)) {
		a->left_out++;
		make_room(a, n->uid);
		return NULL;
	}
	a->reserved = false;
	*j = (struct lg_agent_job){ .sched = n->sched, .uid = n->uid, .attempt = n->attempt, .steps = -1 };
	memcpy(j->name, n->name, sizeof j->name);
	/* A name is what a user says: it is that user's alone. */
	snprintf(cluster, sizeof cluster, "%s/%u", a->set.cluster, n->uid);
	j->id = lg_fleet_job_number(cluster, j->name);
	j->start_us = wall_us(a, lg_agent_now());
	a->n_jobs++;
	return j;
}

/* Ranks that were there stay as they are. False: without memory. */
static bool take_ranks(struct lg_agent_job *j, const struct lg_node_job *n)
{
	struct lg_agent_rank *rank = lg_calloc(n->n, sizeof *rank);
	pid_t *pids = lg_calloc(n->n, sizeof *pids);

	if (!rank || !pids) {
		lg_free(rank);
		lg_free(pids);
		return false;
	}
	for (size_t i = 0; i < n->n; i++) {
		pids[i] = n->rank[i].pid;
		rank[i].rank = n->rank[i].rank;
		for (size_t k = 0; k < j->n; k++)
			if (j->rank[k].rank == rank[i].rank)
				rank[i] = j->rank[k];
	}
	lg_free(j->rank);
	lg_free(j->pids);
	j->rank = rank;
	j->pids = pids;
	j->n = n->n;
	return true;
}

static bool same_pids(const struct lg_agent_job *j, const struct lg_node_job *n)
{
	if (j->n != n->n)
		return false;
	for (size_t i = 0; i < n->n; i++)
		if (j->pids[i] != n->rank[i].pid)
			return false;
	return true;
}

/* Ranks come one after the other: two looks that see the same are enough. */
static void settle(struct lg_agent *a, struct lg_agent_job *j, const struct lg_node_job *n)
{
	bool same = same_pids(j, n);

	j->world = LG_MAX(j->world, n->world);
	if (j->phase == LG_AGENT_RECORDING && !same && n->n >= j->n) {
		stop_recorder(j); /* a rank is new: the next look starts a recorder that knows it */
		j->phase = LG_AGENT_SETTLING;
	}
	if (j->phase != LG_AGENT_SETTLING || j->recorder)
		return;
	if (!same) {
		if (!take_ranks(j, n))
			lg_agent_trouble(a, "out of memory");
		return;
	}
	if (lg_agent_now() < j->retry_at)
		return;
	describe(a, j);
	start_recorder(a, j);
}

static void add_row(struct lg_agent *a, struct lg_agent_job *j, struct lg_agent_rank *r,
		    struct lg_fleet_rank_step *row)
{
	row->job = j->id;
	row->attempt = (uint16_t)j->attempt;
	row->rank = (uint32_t)r->rank;
	row->node = a->node;
	row->ver = wall_us(a, lg_agent_now());
	lg_fleet_add_rank_step(a->batch, row);
	r->last_s = (double)row->dur_us / 1e6 / row->steps;
	r->step_s += (double)row->dur_us / 1e6;
	r->wait_s += (double)row->wait_us / 1e6;
	r->steps += row->steps;
	a->batch_due |= lg_fleet_batch_full(a->batch);
}

static void end_job(struct lg_agent *a, struct lg_agent_job *j)
{
	struct lg_fleet_rank_step row;

	lg_agent_take_steps(a, j);
	for (size_t i = 0; i < j->n; i++)
		if (lg_fold_end(&j->rank[i].fold, &row))
			add_row(a, j, &j->rank[i], &row);
	stop_recorder(j);
	j->phase = LG_AGENT_ENDING;
}

static void forget_job(struct lg_agent *a, size_t i)
{
	struct lg_agent_job *j = &a->job[i];

	remove_ring(j, "");
	if (j->steps >= 0)
		close(j->steps);
	lg_free(j->rank);
	lg_free(j->pids);
	if (a->judged_job == j)
		a->judged_job = NULL;
	else if (a->judged_job > j)
		a->judged_job--;
	memmove(j, j + 1, (a->n_jobs - i - 1) * sizeof *j);
	a->n_jobs--;
}

void lg_agent_look(struct lg_agent *a)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	const struct lg_node_job *n;
	bool waits = false;
	size_t n_n;

	if (lg_node_jobs_look(a->found, &n, &n_n, &err)) {
		lg_agent_trouble(a, "%s", err.message);
		return;
	}
	for (size_t i = 0; i < a->n_jobs; i++)
		a->job[i].seen = false;
	a->left_out = lg_node_jobs_left_out(a->found);
	a->unmarked = 0;
	for (size_t i = 0; i < n_n; i++) {
		struct lg_agent_job *j = job_like(a, &n[i]);

		/* Without marks there are no steps, and nothing that evidence could be asked about. */
		a->unmarked += !n[i].marks;
		waits |= n[i].marks && n[i].uid == a->reserved_for;
		j = j || !n[i].marks ? j : add_job(a, &n[i]);
		if (!j)
			continue;
		j->seen = true;
		settle(a, j, &n[i]);
	}
	a->reserved &= waits; /* else who it was kept for has gone */
	for (size_t i = a->n_jobs; i--;) {
		if (a->job[i].seen && a->job[i].phase != LG_AGENT_ENDING)
			continue;
		if (a->job[i].phase != LG_AGENT_ENDING)
			end_job(a, &a->job[i]);
		if (!a->job[i].recorder && a->judged_job != &a->job[i])
			forget_job(a, i);
	}
}

void lg_agent_end_jobs(struct lg_agent *a)
{
	for (size_t i = 0; i < a->n_jobs; i++)
		if (a->job[i].phase != LG_AGENT_ENDING)
			end_job(a, &a->job[i]);
	for (size_t i = a->n_jobs; i--;) {
		if (a->job[i].recorder > 0)
			(void)waitpid(a->job[i].recorder, NULL, 0);
		forget_job(a, i);
	}
}

/* ---- steps ---------------------------------------------------------------------------------------- */

static struct lg_agent_rank *rank_of(struct lg_agent_job *j, const struct lg_step_told *t)
{
	for (size_t i = 0; i < j->n; i++)
		if (t->rank >= 0 ? j->rank[i].rank == t->rank : j->pids[i] == t->pid)
			return &j->rank[i];
	return NULL; /* it says it is one that no process here is */
}

void lg_agent_take_steps(struct lg_agent *a, struct lg_agent_job *j)
{
	struct lg_step_told t;

	_Static_assert((int)LG_FOLD_STAGES == (int)LG_STAGE_MAX, "stages of fold.h");
	/* The recorder writes packets whole; no more than a second's worth at once. */
	for (unsigned i = 0;
	     j->steps >= 0 && i < STEP_PACKETS && read(j->steps, &t, sizeof t) == (ssize_t)sizeof t; i++) {
		struct lg_agent_rank *r = rank_of(j, &t);
		struct lg_fold_step s = {
			.number = t.number, .t0_us = wall_us(a, t.ts), .dur = t.dur, .wait = t.wait
		};
		struct lg_fleet_rank_step row;
		int64_t late;

		if (!r)
			continue;
		memcpy(s.stage, t.stage, sizeof s.stage);
		if (lg_fold_add(&r->fold, &s, &row, &late))
			add_row(a, j, r, &row);
		r->late += late;
		r->late_s += (double)late / 1e9;
		j->n_steps++;
	}
}

/* ---- evidence ------------------------------------------------------------------------------------- */

static void start_judge(struct lg_agent *a, struct lg_agent_job *j, const char *path)
{
	pid_t parent = getpid();
	int p[2];

	if (pipe2(p, O_CLOEXEC)) {
		lg_agent_trouble(a, "pipe: %s", strerror(errno));
		unlink(path);
		return;
	}
	snprintf(a->judge_path, sizeof a->judge_path, "%s", path);
	a->judge = fork();
	if (!a->judge) {
		sigset_t none;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		close(p[0]);
		close(a->lock);
		lg_agent_judge(a->judge_path, a->judge_from, a->judge_to, p[1]);
	}
	close(p[1]);
	if (a->judge < 0) {
		a->judge = 0;
		close(p[0]);
		unlink(path);
		lg_agent_trouble(a, "fork: %s", strerror(errno));
		return;
	}
	(void)fcntl(p[0], F_SETFL, O_NONBLOCK);
	a->judge_fd = p[0];
	a->judge_began = lg_agent_now();
	a->judge_stalls = 0;
	a->judged_job = j;
	j->judged++;
}

static void clean(char *s, size_t size)
{
	s[size - 1] = 0;
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			*s = '?';
}

/* What a process says that read a file of many users' words: a stranger's, too. */
static void add_stall(struct lg_agent *a, struct lg_agent_job *j, struct lg_agent_stall *s)
{
	struct lg_fleet_stall row = { .job = j->id, .attempt = (uint16_t)j->attempt, .node = a->node };
	XXH64_hash_t h;
	bool known = false;

	clean(s->rule, sizeof s->rule);
	clean(s->stage, sizeof s->stage);
	clean(s->process, sizeof s->process);
	clean(s->func, sizeof s->func);
	clean(s->object, sizeof s->object);
	clean(s->stack, sizeof s->stack);
	clean(s->said, sizeof s->said);
	for (size_t i = 0; i < j->n; i++)
		known |= j->rank[i].rank == s->rank;
	row.rank = (uint32_t)(known ? s->rank : j->n ? j->rank[0].rank : 0);
	row.t0_us = wall_us(a, LG_MIN(LG_MAX(s->ts, a->judge_from), a->judge_to));
	row.dur_us = (uint64_t)(a->judge_to - a->judge_from) / 1000;
	row.lost_us = LG_MIN((uint64_t)LG_MAX(s->lost, 0) / 1000, row.dur_us);
	row.waited = (uint32_t)LG_MAX(j->world, (int32_t)j->n);
	row.step = s->step < 0 || s->step > UINT32_MAX ? 0 : (uint32_t)s->step;
	row.conf = LG_MIN(s->conf, (uint8_t)100);
	row.seen = LG_MIN(s->seen, 1000000u);
	row.pid = s->pid > 0 ? (uint32_t)s->pid : 0;
	row.rule = s->rule;
	row.stage = s->stage;
	row.process = s->process;
	row.func = s->func;
	row.object = s->object;
	row.stack = s->stack;
	row.said = s->said;
	h = XXH3_64bits(s->rule, strlen(s->rule));
	h = XXH3_64bits_withSeed(s->process, strlen(s->process), h);
	row.culprit = XXH3_64bits_withSeed(s->func, strlen(s->func), h);
	row.ver = wall_us(a, lg_agent_now());
	lg_fleet_add_stall(a->batch, &row);
	j->lost_us += row.lost_us;
}

void lg_agent_take_stalls(struct lg_agent *a)
{
	struct lg_agent_stall s;

	while (a->judge_fd >= 0 && a->judged_job && a->judge_stalls < LG_AGENT_STALLS &&
	       read(a->judge_fd, &s, sizeof s) == (ssize_t)sizeof s) {
		a->judge_stalls++;
		add_stall(a, a->judged_job, &s);
	}
	if (a->judge > 0 && lg_agent_now() - a->judge_began > JUDGE_PATIENCE)
		kill(a->judge, SIGKILL);
}

/* The dump that was asked for is there, or it has been waited for too long. */
static void look_for_dump(struct lg_agent *a, struct lg_agent_job *j, int64_t now)
{
	char path[PATH_MAX + 32];
	struct stat st;

	snprintf(path, sizeof path, "%s-%u.lag", j->ring, j->dumps);
	if (!stat(path, &st)) {
		j->asked_at = 0;
		start_judge(a, j, path);
	} else if (now - j->asked_at > DUMP_PATIENCE) {
		j->asked_at = 0;
		j->unjudged++;
	}
}

static void end_window(struct lg_agent *a, struct lg_agent_job *j, int64_t now)
{
	int64_t late = 0;
	bool busy = a->judge || a->judge_fd >= 0;

	for (size_t i = 0; i < a->n_jobs; i++)
		busy |= a->job[i].asked_at != 0;
	for (size_t i = 0; i < j->n; i++)
		late = LG_MAX(late, j->rank[i].late);
	if ((double)late >= WORTH_ASKING * (double)(now - j->window_from)) {
		if (busy && now - j->window_from < a->set.window_ns + a->set.window_ns * 2 / 5)
			return; /* the ring still has all of it */
		if (busy || a->credit_s < 0 || a->level >= 2 || kill(j->recorder, SIGUSR1)) {
			j->unjudged++;
		} else {
			j->dumps++;
			j->asked_at = now;
			a->judge_from = j->window_from;
			a->judge_to = now;
		}
	}
	for (size_t i = 0; i < j->n; i++)
		j->rank[i].late = 0;
	j->window_from = now;
}

void lg_agent_windows(struct lg_agent *a)
{
	int64_t now = lg_agent_now();

	for (size_t i = 0; i < a->n_jobs; i++) {
		struct lg_agent_job *j = &a->job[i];

		if (j->asked_at)
			look_for_dump(a, j, now);
		else if (j->phase == LG_AGENT_RECORDING && j->recorder > 0 &&
			 now - j->window_from >= a->set.window_ns)
			end_window(a, j, now);
	}
}

/* The window that ended with its recorder: the file that it wrote at its end has it. */
static void judge_the_end(struct lg_agent *a, struct lg_agent_job *j)
{
	char path[PATH_MAX + 32];
	int64_t late = 0, now = lg_agent_now();
	struct stat st;

	snprintf(path, sizeof path, "%s.lag", j->ring);
	for (size_t i = 0; i < j->n; i++) {
		late = LG_MAX(late, j->rank[i].late);
		j->rank[i].late = 0;
	}
	if (!j->asked_at && (double)late < WORTH_ASKING * (double)(now - j->window_from))
		return;
	if (a->judge || a->judge_fd >= 0 || a->credit_s < 0 || a->level >= 2 || stat(path, &st)) {
		j->unjudged++;
		return;
	}
	a->judge_from = j->asked_at ? a->judge_from : j->window_from;
	a->judge_to = now;
	start_judge(a, j, path);
}

/* ---- children and the budget ---------------------------------------------------------------------- */

void lg_agent_child_ended(struct lg_agent *a, pid_t pid, int status, double cpu_s)
{
	a->gone_cpu_s += cpu_s;
	if (pid == a->judge) {
		lg_agent_take_stalls(a);
		close(a->judge_fd);
		a->judge_fd = -1;
		a->judge = 0;
		unlink(a->judge_path);
		if (status && a->judged_job)
			a->judged_job->unjudged++;
		a->judged_job = NULL;
		return;
	}
	if (pid == a->sender)
		a->sender = 0;
	for (size_t i = 0; i < a->n_jobs; i++) {
		struct lg_agent_job *j = &a->job[i];

		if (pid != j->recorder)
			continue;
		lg_agent_take_steps(a, j);
		if (j->steps >= 0)
			close(j->steps);
		j->steps = -1;
		j->recorder = 0;
		judge_the_end(a, j);
		j->asked_at = 0;
		remove_ring(j, a->judged_job == j ? a->judge_path : "");
		if (j->phase == LG_AGENT_RECORDING) { /* nobody told it to */
			j->failures++;
			j->retry_at = lg_agent_now() + LG_MIN(j->failures, UINT64_C(60)) * 5 * SECOND;
			j->phase = LG_AGENT_SETTLING;
		}
	}
}

/* Of a living process and of those that it waited for. */
static double cpu_of(pid_t pid)
{
	unsigned long long t[4];
	char path[64], buf[1024], *end;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (lg_proc_read(path, buf, sizeof buf) <= 0 || !(end = strrchr(buf, ')')) ||
	    sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3]) != 4)
		return 0;
	return (double)(t[0] + t[1] + t[2] + t[3]) / (double)sysconf(_SC_CLK_TCK);
}

static void set_level(struct lg_agent *a, int level, int64_t now)
{
	a->level = level;
	a->level_at = now;
	lg_say("%s", lg_agent_level_text(level));
	for (size_t i = 0; i < a->n_jobs; i++)
		if (a->job[i].phase == LG_AGENT_RECORDING) {
			stop_recorder(&a->job[i]);
			a->job[i].phase = LG_AGENT_SETTLING;
		}
}

/* What was spent since the last time, against what was allowed. */
void lg_agent_reckon(struct lg_agent *a)
{
	int64_t now = lg_agent_now();
	struct rusage own;
	double cpu, rate, dt = (double)(now - a->reckoned_at) / 1e9;
	size_t ranks = 0;

	if (dt < 1)
		return;
	getrusage(RUSAGE_SELF, &own);
	cpu = a->gone_cpu_s + (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
	      (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
	cpu += a->sender > 0 ? cpu_of(a->sender) : 0;
	cpu += a->judge > 0 ? cpu_of(a->judge) : 0;
	for (size_t i = 0; i < a->n_jobs; i++) {
		cpu += a->job[i].recorder > 0 ? cpu_of(a->job[i].recorder) : 0;
		ranks += a->job[i].n;
	}
	rate = a->set.budget * (double)LG_MAX(ranks, (size_t)1);
	if (!a->reckoned_at)
		a->credit_s = FIRST_S * rate;
	else
		a->credit_s += LG_MIN(dt, 60.0) * rate - (cpu - a->cpu_s);
	a->credit_s = LG_MIN(a->credit_s, SAVED_S * rate);
	a->cpu_s = cpu;
	a->reckoned_at = now;
	if (a->credit_s < -OWED_S * rate && a->level + 1 < LEVELS &&
	    now - a->level_at > SHED_EVERY_S * SECOND)
		set_level(a, a->level + 1, now);
	else if (a->level && a->credit_s > 0 && now - a->level_at > RESTORE_AFTER_S * SECOND)
		set_level(a, a->level - 1, now);
}
