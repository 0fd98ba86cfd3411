/* SPDX-License-Identifier: Apache-2.0 */
#include "record/node_jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/order.h"

enum {
	READS = 200,            /* environments, a look */
	PROCESSES = 1 << 16,
	ENVIRON = 64 << 10, STATUS = 4 << 10,
	ROOM = ENVIRON + STATUS + 64,
	ABOVE = 8,
	YOUNG_TICKS = 100,      /* a second: what is younger may still call exec() */
};

/* The variables that name a job. */
enum var { MINE, RAY, ELASTIC, KUBEFLOW, SLURM, RESTARTS, SLURM_RESTARTS, ADDR, PORT, LOCAL_WORLD, VARS };
static const char *const var_names[VARS] = {
	"LAGGARD_JOB_ID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID", "KUBEFLOW_TRAINING_JOB_ID", "SLURM_JOB_ID",
	"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE",
};

struct told {
	char v[VARS][LG_NODE_JOB_NAME];
	char name[LG_NODE_JOB_NAME]; /* of its job, "" = not named yet */
	const char *sched;
};

struct process {
	pid_t pid, ppid;
	uint64_t start, comm; /* comm: of its text */
	uint32_t seen;        /* the look in which it was there */
	bool read;
	struct lg_proc_rank env;
	struct told *told;    /* NULL: it has no rank */
	uint32_t uid;
	bool marks;
};

struct lg_node_jobs {
	pid_t self;
	struct process *v;
	size_t n, cap;
	struct lg_map at;     /* pid -> index + 1 */
	uint32_t look;
	int32_t *pid;         /* of this look */
	size_t n_pid, cap_pid;
	struct lg_node_job job[LG_NODE_JOBS_MAX];
	size_t n_jobs, left_out;
	char *buf;
	bool nomem;
};

int lg_node_jobs_new(struct lg_node_jobs **ret, pid_t self, struct lg_error *err)
{
	struct lg_node_jobs *j = lg_calloc(1, sizeof *j);

	if (!j || !(j->buf = lg_calloc(ROOM, 1))) {
		lg_free(j);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	j->self = self;
	*ret = j;
	return 0;
}

void lg_node_jobs_free(struct lg_node_jobs *j)
{
	if (!j)
		return;
	for (size_t i = 0; i < j->n; i++)
		lg_free(j->v[i].told);
	for (size_t i = 0; i < LG_NODE_JOBS_MAX; i++)
		lg_free(j->job[i].rank);
	lg_map_done(&j->at);
	lg_free(j->pid);
	lg_free(j->buf);
	lg_free(j->v);
	lg_free(j);
}

size_t lg_node_jobs_left_out(const struct lg_node_jobs *j)
{
	return j->left_out;
}

static void add_pid(void *arg, int32_t pid)
{
	struct lg_node_jobs *j = arg;

	if (j->n_pid < PROCESSES)
		j->nomem |= LG_APPEND(j->pid, j->n_pid, j->cap_pid, pid) != 0;
	else
		j->left_out++;
}

static struct process *process_of(struct lg_node_jobs *j, pid_t pid)
{
	uint32_t i = pid > 0 ? lg_map_get(&j->at, (uint64_t)pid) : 0;

	return i ? &j->v[i - 1] : NULL;
}

static uint64_t hash_of(const char *s)
{
	uint64_t h = 14695981039346656037u; /* FNV-1a: to see that it changed */

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 1099511628211u;
	return h;
}

static void keep(void *arg, const char *key, const char *value)
{
	struct told *t = arg;

	for (size_t i = 0; i < VARS; i++)
		if (!strcmp(key, var_names[i]))
			snprintf(t->v[i], sizeof t->v[i], "%s", value);
}

static void read_environment(struct lg_node_jobs *j, struct process *p)
{
	struct lg_proc_text text[] = { { .name = "environ", .size = ENVIRON }, { .name = "status", .size = STATUS } };
	struct lg_proc_status st = { 0 };
	struct told told = { 0 };

	p->read = true;
	lg_free(p->told);
	p->told = NULL;
	p->env = (struct lg_proc_rank){ .rank = -1, .local_rank = -1 };
	lg_proc_texts(p->pid, text, LG_COUNT(text), j->buf, ROOM);
	if (text[0].n <= 0 || text[1].n <= 0)
		return;
	lg_proc_parse_environ(text[0].text, (size_t)text[0].n, &p->env, keep, &told);
	if (!p->env.kind)
		return;
	lg_proc_parse_status(text[1].text, &st);
	p->uid = st.uid;
	p->marks = lg_proc_kept_marks(text[0].text, (size_t)text[0].n) != 0;
	p->told = lg_calloc(1, sizeof *p->told);
	if (p->told)
		*p->told = told;
	else
		j->nomem = true;
}

/* Those whose environment is to be read now get it read; true: p is known. */
static void look_at(struct lg_node_jobs *j, const struct lg_proc_stat *st, uint64_t now_ticks,
		    unsigned *reads)
{
	struct process *p = process_of(j, st->pid), fresh = { .pid = st->pid, .start = st->start };
	uint64_t comm = hash_of(st->comm);

	if (st->flags & LG_PF_KTHREAD || st->state == 'Z' || st->state == 'X')
		return;
	if (p && p->start != st->start) {
		lg_free(p->told);
		*p = fresh;
	}
	if (!p) {
		uint32_t at = LG_MAP_APPEND(&j->at, (uint64_t)st->pid, j->v, j->n, j->cap, fresh);

		if (!at) {
			j->nomem = true;
			return;
		}
		p = &j->v[at - 1];
	}
	p->ppid = st->ppid;
	p->seen = j->look;
	if (p->comm != comm)
		p->read = false;
	p->comm = comm;
	if (p->read || now_ticks - p->start < YOUNG_TICKS || *reads >= READS)
		return;
	(*reads)++;
	read_environment(j, p);
}

/* Who asks, or what it started: a recorder inherits the environment of whoever started it. */
static bool is_ours(struct lg_node_jobs *j, const struct process *p)
{
	for (unsigned i = 0; p && i < ABOVE; i++) {
		if (p->pid == j->self)
			return true;
		p = process_of(j, p->ppid);
	}
	return false;
}

static bool same_rank(const struct process *a, const struct process *b)
{
	return a->env.kind == b->env.kind && a->env.rank == b->env.rank;
}

/* A loader, or anything else that inherited the rank of its parent. */
static bool is_below_its_rank(struct lg_node_jobs *j, const struct process *p)
{
	const struct process *up = process_of(j, p->ppid);

	return up && up->seen == j->look && up->told && same_rank(up, p);
}

/* "" = nothing names it but the place where its ranks meet. */
static const char *given_name(const struct told *t, const char **ret_sched)
{
	static const char *const scheds[] = { "laggard", "ray", "torchrun", "kubeflow", "slurm" };

	for (unsigned i = MINE; i <= SLURM; i++) {
		if (!*t->v[i] || (i == ELASTIC && !strcmp(t->v[i], "none")))
			continue;
		*ret_sched = scheds[i];
		return t->v[i];
	}
	return "";
}

static bool meet_at_one_place(const struct process *a, const struct process *b)
{
	return a->uid == b->uid && !strcmp(a->told->v[ADDR], b->told->v[ADDR]) &&
	       !strcmp(a->told->v[PORT], b->told->v[PORT]);
}

/* A port is used again: ranks that begin within a minute of each other are of one job. */
static const char *name_of_peer(struct lg_node_jobs *j, const struct process *p)
{
	uint64_t near = 60 * (uint64_t)sysconf(_SC_CLK_TCK);

	for (size_t i = 0; i < j->n; i++) {
		const struct process *x = &j->v[i];

		if (x != p && x->told && *x->told->name && meet_at_one_place(x, p) &&
		    (x->start > p->start ? x->start - p->start : p->start - x->start) <= near)
			return x->told->name;
	}
	return NULL;
}

/* Once in a life: a name stays when the rank that gave it is gone. */
static void name_job(struct lg_node_jobs *j, const struct process *p)
{
	static const char *const kinds[] = { "mpi", "slurm", "mpi", "torchrun", "torchrun" };
	struct told *t = p->told;
	const char *name = given_name(t, &t->sched);
	bool whole = p->env.world && strtol(t->v[LOCAL_WORLD], NULL, 10) == p->env.world;
	struct timespec wall, boot;
	char when[32] = "";
	struct tm tm;
	time_t began;

	if (*name) {
		snprintf(t->name, sizeof t->name, "%s", name);
		return;
	}
	t->sched = kinds[p->env.kind < LG_COUNT(kinds) ? p->env.kind : 0];
	name = name_of_peer(j, p);
	if (name) {
		snprintf(t->name, sizeof t->name, "%s", name);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	began = wall.tv_sec - boot.tv_sec + (time_t)(p->start / (uint64_t)sysconf(_SC_CLK_TCK));
	if (gmtime_r(&began, &tm))
		strftime(when, sizeof when, whole ? "%Y%m%dT%H%M%S" : "%Y%m%dT%H", &tm);
	snprintf(t->name, sizeof t->name, "%.40s:%.8s@%s", *t->v[ADDR] ? t->v[ADDR] : "local", t->v[PORT], when);
}

static struct lg_node_job *job_for(struct lg_node_jobs *j, const struct lg_node_job *like)
{
	struct lg_node_job *job;
	size_t of_user = 0;

	for (size_t i = 0; i < j->n_jobs; i++) {
		job = &j->job[i];
		if (!strcmp(job->name, like->name) && job->uid == like->uid && job->attempt == like->attempt)
			return job;
		of_user += job->uid == like->uid;
	}
	if (j->n_jobs == LG_NODE_JOBS_MAX || of_user == LG_NODE_JOBS_OF_USER)
		return NULL;
	job = &j->job[j->n_jobs++];
	*job = (struct lg_node_job){ .sched = like->sched,
				     .uid = like->uid,
				     .attempt = like->attempt,
				     .rank = job->rank,
				     .cap = job->cap,
				     .start = UINT64_MAX };
	memcpy(job->name, like->name, sizeof job->name);
	return job;
}

static void add_rank(struct lg_node_jobs *j, const struct process *p)
{
	struct lg_node_job like = { .uid = p->uid }, *job;
	const char *restarts = *p->told->v[RESTARTS] ? p->told->v[RESTARTS] : p->told->v[SLURM_RESTARTS];

	if (!*p->told->name)
		name_job(j, p);
	memcpy(like.name, p->told->name, sizeof like.name);
	like.sched = p->told->sched;
	like.attempt = (uint32_t)LG_MIN(strtoul(restarts, NULL, 10), 65535ul);
	job = job_for(j, &like);
	if (!job || job->n == LG_NODE_RANKS_MAX) {
		j->left_out++;
		return;
	}
	job->world = LG_MAX(job->world, p->env.world);
	job->start = LG_MIN(job->start, p->start);
	job->marks |= p->marks;
	j->nomem |= LG_APPEND(job->rank, job->n, job->cap,
			      (struct lg_node_rank){ p->pid, p->start, p->env.rank }) != 0;
}

LG_ORDER_BY(cmp_rank, struct lg_node_rank, LG_CMP(x->rank, y->rank) ?: LG_CMP(x->pid, y->pid))

/* Under srun a launcher has a number of Slurm's and its children ranks of torch: those are the ranks. */
static bool has_ranks_below(struct lg_node_jobs *j, const struct process *p)
{
	for (size_t i = 0; i < j->n; i++) {
		const struct process *c = &j->v[i];

		if (c->seen != j->look || !c->told || c->env.kind <= p->env.kind)
			continue;
		for (unsigned k = 0; c && k < ABOVE; k++) {
			if (c->ppid == p->pid)
				return true;
			c = process_of(j, c->ppid);
		}
	}
	return false;
}

static void forget_gone(struct lg_node_jobs *j)
{
	size_t kept = 0;

	for (size_t i = 0; i < j->n; i++) {
		if (j->v[i].seen != j->look) {
			lg_map_remove(&j->at, (uint64_t)j->v[i].pid);
			lg_free(j->v[i].told);
			continue;
		}
		if (kept != i) {
			j->v[kept] = j->v[i];
			j->nomem |= lg_map_set(&j->at, (uint64_t)j->v[kept].pid, (uint32_t)kept + 1) != 0;
		}
		kept++;
	}
	j->n = kept;
}

int lg_node_jobs_look(struct lg_node_jobs *j, const struct lg_node_job **ret, size_t *ret_n,
		      struct lg_error *err)
{
	struct timespec boot;
	unsigned reads = 0;
	uint64_t ticks;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	ticks = (uint64_t)boot.tv_sec * (uint64_t)sysconf(_SC_CLK_TCK);
	j->look++;
	j->n_pid = j->n_jobs = j->left_out = 0;
	j->nomem = false;
	if (lg_proc_each("/proc", add_pid, j))
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "cannot read /proc");
	for (size_t i = 0; i < j->n_pid; i += LG_PROC_STATS) {
		struct lg_proc_stat st[LG_PROC_STATS];
		int rc[LG_PROC_STATS];
		size_t n = LG_MIN(j->n_pid - i, (size_t)LG_PROC_STATS);

		lg_proc_stats(j->pid + i, n, st, rc);
		for (size_t k = 0; k < n; k++)
			if (!rc[k])
				look_at(j, &st[k], ticks, &reads);
	}
	forget_gone(j);
	for (size_t i = 0; i < j->n; i++) {
		const struct process *p = &j->v[i];

		if (p->told && !is_below_its_rank(j, p) && !is_ours(j, p) && !has_ranks_below(j, p))
			add_rank(j, p);
	}
	if (j->nomem)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	for (size_t i = 0; i < j->n_jobs; i++)
		LG_SORT(j->job[i].rank, j->job[i].n, cmp_rank);
	*ret = j->job;
	*ret_n = j->n_jobs;
	return 0;
}
