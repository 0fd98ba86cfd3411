/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives.c - the process tree as the recording sees it.
 *
 * A rank's children inherit RANK (loader workers, compile workers), so the rank is the topmost
 * process with that variable: the one whose creator had not the same. Roles are decided when a
 * life's environment is known and settled at the end, when a stronger kind of variable may have
 * turned up below (torchrun's RANK under srun's SLURM_PROCID: then PROCID counts nodes).
 *
 * I1  by_pid maps a pid to index + 1 of its newest life; ended lives stay in `all`, as long
 *     as they had a rank or belong to the job, else their slot is used again.
 * I2  a life's row in the builder is `prc`; pid reuse makes a new life and a new row.
 */
#include "record/lives.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"

struct life {
	int32_t pid, ppid;
	lg_prc prc;
	int64_t since;  /* fork time, or INT64_MIN */
	int64_t seen;   /* when it was first heard of */
	int64_t exec_ts;
	uint32_t creator;   /* index + 1 in all; 0 = unknown */
	lg_prc creator_prc; /* tells whether that slot is still the creator's */
	struct lg_proc_rank env;       /* its own environment's */
	struct lg_proc_rank inherited; /* its creator's at the fork */
	uint32_t marks;     /* number in the name of the folder that it was told to mark in, + 1 */
	bool alive, job, execd, queued, kernel, read, topmost, told, orphan;
};

struct lg_lives {
	struct lg_builder *b;
	struct lg_lives_options opt;
	struct life *all;
	size_t n, cap;
	uint32_t *unused, *job_queue, *other_queue;
	size_t n_unused, unused_cap, n_job, job_cap, n_other, other_cap;
	struct lg_map by_pid;
	bool explicit_job; /* a command, -p or --job: ranks of other jobs are none of ours */
	uint64_t not_read;
	int64_t scanned;    /* when the last scan began */
	lg_thr scan_rows;   /* rows below it were there at the first scan */
	char *buf;
	lg_prc keep_prc;   /* for keep_variable() */
	lg_str host;
};

enum {
	READ_BUF = 256 << 10,
	OTHERS_QUEUED = 4096,
	JOB_READS = 400,  /* a call, ten calls a second: a job starts with a burst */
	OTHER_READS = 10,
	SOUGHT_READS = 40, /* where one of them may be of the job */
	TICK_NS = 10 * 1000 * 1000, /* the grain of start times in /proc */
	SAME_FORK_NS = 50 * 1000 * 1000 /* two tellers of one fork differ by less; no pid comes
					 * round again that soon (kernel/pid.c allocates in a
					 * circle) */
};

int lg_lives_new(struct lg_lives **ret, struct lg_builder *b, const struct lg_lives_options *opt,
		 struct lg_error *err)
{
	struct lg_lives *l = lg_calloc(1, sizeof *l);
	char host[256] = "";

	if (!l)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	l->buf = lg_calloc(READ_BUF, 1);
	if (!l->buf) {
		lg_free(l);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	l->b = b;
	l->opt = *opt;
	l->explicit_job = opt->child || opt->n_pids || opt->job;
	l->scanned = INT64_MIN;
	if (lg_proc_read("/proc/sys/kernel/hostname", host, sizeof host) > 0)
		host[strcspn(host, "\n")] = 0;
	l->host = lg_intern(b, host);
	*ret = l;
	return 0;
}

void lg_lives_free(struct lg_lives *l)
{
	if (!l)
		return;
	lg_map_done(&l->by_pid);
	lg_free(l->all);
	lg_free(l->unused);
	lg_free(l->job_queue);
	lg_free(l->other_queue);
	lg_free(l->buf);
	lg_free(l);
}

static struct life *find(const struct lg_lives *l, int32_t pid)
{
	uint32_t i = lg_map_get(&l->by_pid, (uint32_t)pid);

	return i && l->all[i - 1].alive ? &l->all[i - 1] : NULL;
}

/* The pointer is good until the next add. NULL without memory: the life goes untracked, its row
 * in the builder exists all the same. */
static struct life *add(struct lg_lives *l, int32_t pid, int32_t ppid, int64_t since, int64_t now)
{
	struct life *p, *parent;
	size_t i;

	if (l->n_unused) {
		i = l->unused[--l->n_unused];
	} else {
		if (lg_grow(&l->all, &l->cap, l->n + 1, sizeof *l->all))
			return NULL;
		i = l->n++;
	}
	p = &l->all[i];
	*p = (struct life){ .pid = pid,
			    .ppid = ppid,
			    .since = since,
			    .seen = now,
			    .alive = true,
			    .env = { -1, 0, -1, LG_RANK_NONE },
			    .inherited = { -1, 0, -1, LG_RANK_NONE } };
	p->prc = lg_process_get(l->b, pid);
	parent = find(l, ppid);
	if (parent && parent != p) {
		p->creator = (uint32_t)(parent - l->all) + 1;
		p->creator_prc = parent->prc;
		p->env = p->inherited = parent->env;
		p->job = parent->job;
		p->kernel = parent->kernel && parent->pid == 2;
	}
	if (pid == l->opt.child)
		p->job = true;
	for (size_t k = 0; k < l->opt.n_pids; k++)
		if (l->opt.pids[k] == pid)
			p->job = true;
	if (lg_map_set(&l->by_pid, (uint32_t)pid, (uint32_t)i + 1))
		return NULL;
	return p;
}

static void enqueue(struct lg_lives *l, struct life *p)
{
	bool ok;

	if (p->queued || p->kernel)
		return;
	if (p->job) {
		ok = !lg_grow(&l->job_queue, &l->job_cap, l->n_job + 1, sizeof *l->job_queue);
		if (ok)
			l->job_queue[l->n_job++] = (uint32_t)(p - l->all);
	} else {
		ok = l->n_other < OTHERS_QUEUED &&
		     !lg_grow(&l->other_queue, &l->other_cap, l->n_other + 1,
			      sizeof *l->other_queue);
		if (ok)
			l->other_queue[l->n_other++] = (uint32_t)(p - l->all);
	}
	p->queued = ok;
	l->not_read += !ok;
}

static bool same_rank(const struct lg_proc_rank *a, const struct lg_proc_rank *b)
{
	return a->kind == b->kind && a->rank == b->rank;
}

/*
 * What p got from its creator, known late: the creator's environment is read up to a round after
 * its exec, and it may fork before that. Not when the creator became another program since.
 */
static void inherited_late(const struct lg_lives *l, struct life *p)
{
	const struct life *child = p;

	/* A fork that never exec'd and died unread has its own creator's environment, and so on. */
	for (int depth = 0; depth < 16 && child->creator; depth++) {
		const struct life *c = &l->all[child->creator - 1];

		if (c->prc != child->creator_prc)
			return;
		if (c->read) {
			if (child->since == INT64_MIN || c->exec_ts <= child->since)
				p->inherited = c->env;
			return;
		}
		if (c->execd)
			return;
		child = c;
	}
}

/* Give the row the rank and role that its life has earned so far. */
static void set_role(struct lg_lives *l, struct life *p)
{
	struct lg_process_row r = lg_process_read(l->b, p->prc);
	bool ours = !l->explicit_job || p->job;
	uint32_t was = r.role;

	inherited_late(l, p);
	p->topmost = p->told || (p->env.kind && !same_rank(&p->env, &p->inherited));
	if (p->pid == l->opt.self)
		r.role = LG_ROLE_RECORDER;
	else if (p->kernel)
		r.role = LG_ROLE_KERNEL;
	else if (ours && p->topmost)
		r.role = LG_ROLE_RANK;
	else if (ours && p->env.kind && !p->execd && p->since != INT64_MIN && p->creator &&
		 l->all[p->creator - 1].prc == p->creator_prc && l->all[p->creator - 1].topmost)
		r.role = LG_ROLE_LOADER; /* forked by a rank and never exec'd: its own worker */
	else if (p->job || (ours && p->env.kind))
		r.role = LG_ROLE_JOB;
	if (ours && p->env.kind && (r.role == LG_ROLE_RANK || r.role == LG_ROLE_LOADER)) {
		r.rank = p->env.rank;
		r.world = p->env.world;
		r.local_rank = p->env.local_rank;
	} else if (was == LG_ROLE_RANK || was == LG_ROLE_LOADER) {
		r.rank = r.local_rank = -1; /* it exec'd something else */
		r.world = 0;
	}
	if (!l->explicit_job && p->env.kind)
		p->job = true;
	lg_process_write(l->b, p->prc, &r);
}

static void keep_variable(void *arg, const char *key, const char *value)
{
	struct lg_lives *l = arg;
	char full[64];

	snprintf(full, sizeof full, "env.%s", key);
	lg_meta_set(l->b, l->keep_prc, full, value);
}

/* Came later and is of the job that was asked for, or was forked before its creator was known to be. */
static bool joins(const struct lg_lives *l, const struct life *p)
{
	const struct life *c = p->creator ? &l->all[p->creator - 1] : NULL;

	return l->opt.job && ((c && c->prc == p->creator_prc && c->job) || lg_job_takes(l->opt.job, p->pid));
}

/* What is never kept back (base/patient.h). */
static void read_plain(struct lg_lives *l, const struct life *p, struct lg_process_row *r)
{
	char path[64], text[16384], container[128] = "";
	struct lg_proc_status status;

	snprintf(path, sizeof path, "/proc/%d/status", p->pid);
	if (lg_proc_read(path, text, sizeof text) > 0) {
		lg_proc_parse_status(text, &status);
		r->uid = status.uid;
		r->ns_pid = status.ns_pid;
	}
	snprintf(path, sizeof path, "/proc/%d/cgroup", p->pid);
	if (!p->kernel && lg_proc_read(path, text, sizeof text) > 0) {
		lg_proc_container(text, container, sizeof container);
		r->container = lg_intern(l->b, container);
	}
}

/* Read one life's facts. False when the process is gone or is another one by now. */
static bool read_life(struct lg_lives *l, struct life *p)
{
	enum { STAT, CMDLINE, ENVIRON };
	struct lg_proc_text text[] = { { .name = "stat", .size = 1024 }, { .name = "cmdline", .size = 4096 },
				       { .name = "environ", .size = READ_BUF - 8192 } };
	/* With an explicit job only its own members' environments are anybody's business. */
	bool its_own = !l->explicit_job || p->job || l->opt.token;
	struct lg_proc_text *c = &text[CMDLINE], *e = &text[ENVIRON];
	struct lg_proc_stat st;
	struct lg_process_row r;
	int rc;

	lg_proc_texts(p->pid, text, p->kernel ? 1 : its_own ? 3 : 2, l->buf, READ_BUF);
	rc = text[STAT].n < 0 ? LG_E_NOTFOUND
			      : lg_proc_parse_stat(text[STAT].text, (size_t)text[STAT].n, &st);
	if (text[STAT].n == -EAGAIN) /* another of them may be what is kept back */
		rc = lg_proc_stat(p->pid, 0, &st);
	if (rc && rc != LG_E_IO)
		return false;
	/* A start time has the grain of a clock tick, 10 ms. */
	if (!rc && p->since != INT64_MIN &&
	    lg_proc_ticks_to_monotonic(st.start) > p->since + SAME_FORK_NS)
		return false;
	lg_builder_for(l->b, p->pid);
	r = lg_process_read(l->b, p->prc);
	if (!rc) {
		p->kernel = st.flags & LG_PF_KTHREAD;
		r.ppid = r.ppid ?: st.ppid;
		r.comm = r.comm ?: lg_intern(l->b, st.comm);
	}
	r.host = l->host;
	read_plain(l, p, &r);
	if (!p->kernel && c->n > 0)
		r.cmdline = lg_intern_n(l->b, c->text, lg_proc_join_cmdline(c->text, (size_t)c->n));
	lg_process_write(l->b, p->prc, &r);
	if (!p->kernel && !p->job && joins(l, p))
		p->job = true;
	/* A fork without exec has its creator's (mm is copied, so is the environment). */
	if (!p->kernel && (its_own || p->job)) {
		struct lg_proc_rank was = p->env;

		if (!its_own)
			lg_proc_texts(p->pid, e, 1, l->buf, READ_BUF);
		if (e->n > 0) {
			size_t n = (size_t)e->n;

			/* A daemon of the job that no fork event tied to it. */
			if (l->opt.token && lg_environ_has(e->text, n, l->opt.token))
				p->job = true;
			p->marks = !l->explicit_job || p->job ? lg_proc_kept_marks(e->text, n) : 0;
			if (was.kind != LG_RANK_TOLD && (!l->explicit_job || p->job))
				lg_proc_parse_environ(e->text, n, &p->env, NULL, NULL);
			inherited_late(l, p);
			if (p->env.kind && !same_rank(&p->env, &p->inherited)) {
				l->keep_prc = p->prc;
				lg_proc_parse_environ(e->text, n, &was, keep_variable, l);
			}
		} else if (!p->env.kind) {
			/* A zombie has no memory left to read it from. What its creator has is the
			 * nearest known, and else its own children would look like new ranks. */
			inherited_late(l, p);
			p->env = p->inherited;
		}
	}
	p->read = true;
	set_role(l, p);
	return true;
}

struct scan {
	struct lg_lives *l;
	int64_t now;
	int32_t pid;
	bool kernel;
	int32_t next[LG_PROC_STATS];
	size_t n_next;
};

static void scan_thread(void *arg, int32_t tid)
{
	struct scan *s = arg;
	char path[64], comm[LG_PROC_COMM];
	lg_thr thr;
	struct lg_thread_row r;

	lg_builder_for(s->l->b, s->pid);
	thr = lg_thread_get(s->l->b, s->pid, tid);
	r = lg_thread_read(s->l->b, thr);
	if (r.comm)
		return; /* known from a scan or from its events */
	snprintf(path, sizeof path, "/proc/%d/task/%d/comm", s->pid, tid);
	if (lg_proc_read(path, comm, sizeof comm) > 0) {
		comm[strcspn(comm, "\n")] = 0;
		lg_thread_name(s->l->b, thr, lg_intern(s->l->b, comm));
	}
	if (s->kernel) {
		r = lg_thread_read(s->l->b, thr);
		r.flags |= LG_THREAD_KERNEL;
		lg_thread_write(s->l->b, thr, &r);
	}
}

static void scan_process(struct scan *s, int32_t pid, const struct lg_proc_stat *st)
{
	struct lg_lives *l = s->l;
	struct life *p = find(l, pid);
	char path[64];

	if (!p) {
		/* First scan: it ran before. Later ones: it was missed, and /proc knows since when. */
		int64_t since = l->scanned == INT64_MIN ? INT64_MIN
							: lg_proc_ticks_to_monotonic(st->start);

		p = add(l, pid, st->ppid, INT64_MIN, s->now);
		if (!p)
			return;
		p->kernel = st->flags & LG_PF_KTHREAD;
		p->orphan = st->ppid <= 1 || !find(l, st->ppid);
		if (l->scanned != INT64_MIN) {
			struct lg_process_row r = lg_process_read(l->b, p->prc);

			if (since < l->scanned)
				since = l->scanned; /* it was not there then */
			if (r.start == INT64_MIN) {
				r.start = since;
				lg_process_write(l->b, p->prc, &r);
			}
		}
		enqueue(l, p);
	} else if (l->scanned != INT64_MIN && !p->kernel) {
		/* No source told of its exec: its name did. */
		struct lg_process_row r = lg_process_read(l->b, p->prc);

		if (r.comm && strcmp(lg_string(lg_builder_trace(l->b), r.comm), st->comm))
			(void)lg_lives_exec(l, s->now, pid, st->comm);
	}
	s->pid = pid;
	s->kernel = p->kernel;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	if (st->n_threads > 1)
		(void)lg_proc_each(path, scan_thread, s);
	else
		scan_thread(s, pid);
}

static void scan_some(struct scan *s)
{
	struct lg_proc_stat st[LG_PROC_STATS];
	int rc[LG_PROC_STATS];

	lg_proc_stats(s->next, s->n_next, st, rc);
	for (size_t i = 0; i < s->n_next; i++)
		if (!rc[i])
			scan_process(s, s->next[i], &st[i]);
	s->n_next = 0;
}

static void scan_next(void *arg, int32_t pid)
{
	struct scan *s = arg;

	s->next[s->n_next++] = pid;
	if (s->n_next == LG_PROC_STATS)
		scan_some(s);
}

void lg_lives_scan(struct lg_lives *l, int64_t now)
{
	struct scan s = { .l = l, .now = now };
	bool first = l->scanned == INT64_MIN;

	(void)lg_proc_each("/proc", scan_next, &s);
	scan_some(&s);
	if (first) {
		/* Everybody is known: whoever was met before its parent learns of it now. Parents
		 * have smaller pids except where pids went round, so look until nothing changes. */
		for (bool again = true; again;) {
			again = false;
			for (size_t i = 0; i < l->n; i++) {
				struct life *p = &l->all[i], *parent = find(l, p->ppid);

				if (parent && parent->job && !p->job)
					p->job = again = true;
			}
		}
		for (size_t i = 0; i < l->n; i++)
			if (l->all[i].alive)
				(void)read_life(l, &l->all[i]);
		for (size_t i = 0; i < l->n; i++) {
			struct life *p = &l->all[i], *parent = find(l, p->ppid);

			p->queued = false;
			if (parent && parent != p) {
				p->creator = (uint32_t)(parent - l->all) + 1;
				p->creator_prc = parent->prc;
			}
			p->execd = true; /* not known; it is no fork that we saw */
			set_role(l, p);
		}
		l->n_job = l->n_other = 0;
	}
	if (first)
		l->scan_rows = (uint32_t)lg_builder_trace(l->b)->thread.n;
	l->scanned = now;
}

/* What a new process has from its creator until its own facts are read. */
static void inherit(struct lg_lives *l, struct life *p, int32_t ppid, lg_thr thr)
{
	struct life *parent = find(l, ppid);
	struct lg_process_row r = lg_process_read(l->b, p->prc), from;

	r.ppid = ppid;
	if (parent && parent != p) {
		from = lg_process_read(l->b, parent->prc);
		p->creator = (uint32_t)(parent - l->all) + 1;
		p->creator_prc = parent->prc;
		p->inherited = parent->env;
		if (!p->read) {
			r.uid = from.uid;
			r.cmdline = from.cmdline;
			r.container = from.container;
		}
		r.host = from.host;
		if (!r.comm)
			r.comm = from.comm;
	}
	lg_process_write(l->b, p->prc, &r);
	if (!lg_thread_read(l->b, thr).comm && r.comm)
		lg_thread_name(l->b, thr, r.comm);
}

bool lg_lives_fork(struct lg_lives *l, int64_t ts, int32_t ppid, int32_t pid, int32_t tid)
{
	lg_thr old = lg_thread_find(l->b, tid), thr = old;
	struct lg_thread_row t = lg_thread_read(l->b, old);
	struct life *p;

	lg_builder_for(l->b, pid == tid ? ppid : pid);
	if (old && t.end != INT64_MAX && ts <= t.end)
		return false; /* told again after its end */
	if (old && t.end == INT64_MAX && t.start != INT64_MIN && ts - t.start < SAME_FORK_NS)
		return false; /* told again */
	if (old && t.end == INT64_MAX && t.start == INT64_MIN &&
	    (ts <= l->scanned || old >= l->scan_rows)) {
		/* A scan ran ahead of the queue, or something used it before its fork was told. */
		t.start = ts;
		lg_thread_write(l->b, old, &t);
		if (pid == tid) {
			struct lg_process_row r = lg_process_read(l->b, t.prc);

			r.start = ts;
			lg_process_write(l->b, t.prc, &r);
		}
	} else {
		thr = lg_thread_start(l->b, ppid, pid, tid, ts);
	}
	if (pid != tid) {
		struct lg_process_row r = lg_process_read(l->b, lg_thread_process(l->b, thr));

		/* a thread starts with its creator's name */
		if (!lg_thread_read(l->b, thr).comm && r.comm)
			lg_thread_name(l->b, thr, r.comm);
		return true;
	}
	p = find(l, pid);
	if (p && thr != old) { /* its exit was lost */
		p->alive = false;
		lg_map_remove(&l->by_pid, (uint32_t)pid);
		p = NULL;
	}
	if (!p)
		p = add(l, pid, ppid, ts, ts);
	if (!p)
		return true;
	p->since = ts;
	p->execd = false;
	inherit(l, p, ppid, thr);
	set_role(l, p);
	enqueue(l, p);
	return true;
}

bool lg_lives_exec(struct lg_lives *l, int64_t ts, int32_t pid, const char *comm)
{
	struct life *p = find(l, pid);

	if (!p)
		p = add(l, pid, 0, INT64_MIN, ts);
	if (comm && *comm)
		lg_thread_name(l->b, lg_thread_get(l->b, pid, pid), lg_intern(l->b, comm));
	if (!p)
		return true;
	p->execd = true;
	p->exec_ts = ts;
	p->read = false;
	set_role(l, p);
	enqueue(l, p);
	return true;
}

bool lg_lives_exit(struct lg_lives *l, int64_t ts, int32_t pid, int32_t tid)
{
	struct life *p;

	lg_thread_end(l->b, tid, ts);
	if (pid != tid)
		return true;
	p = find(l, pid);
	if (!p)
		return false;
	p->alive = false;
	lg_map_remove(&l->by_pid, (uint32_t)pid);
	if (!p->job && !p->env.kind && !p->queued &&
	    !lg_grow(&l->unused, &l->unused_cap, l->n_unused + 1, sizeof *l->unused))
		l->unused[l->n_unused++] = (uint32_t)(p - l->all);
	return true;
}

bool lg_lives_is_job(const struct lg_lives *l, int32_t pid)
{
	const struct life *p = find(l, pid);

	return p && p->job;
}

bool lg_lives_will_mark(struct lg_lives *l, int32_t pid, uint32_t uid)
{
	struct life *p = find(l, pid);

	if (!p || !p->job || p->marks)
		return false;
	p->marks = uid + 1;
	return true;
}

void lg_lives_rank(struct lg_lives *l, int32_t pid, int32_t rank, int32_t world, int32_t local)
{
	struct life *p = find(l, pid);

	if (!p)
		p = add(l, pid, 0, INT64_MIN, l->scanned);
	if (!p)
		return;
	p->env = (struct lg_proc_rank){ rank, world, local, LG_RANK_TOLD };
	p->told = true;
	set_role(l, p);
}

static size_t read_some(struct lg_lives *l, uint32_t *queue, size_t n, size_t limit)
{
	size_t k = n < limit ? n : limit;

	for (size_t i = 0; i < k; i++) {
		struct life *p = &l->all[queue[i]];

		p->queued = false;
		if (p->alive)
			(void)read_life(l, p);
	}
	memmove(queue, queue + k, (n - k) * sizeof *queue);
	return n - k;
}

void lg_lives_work(struct lg_lives *l, int64_t now)
{
	(void)now;
	if (l->n_job)
		l->n_job = read_some(l, l->job_queue, l->n_job, JOB_READS);
	if (l->n_other)
		l->n_other = read_some(l, l->other_queue, l->n_other,
				       l->opt.job ? SOUGHT_READS : OTHER_READS);
}

/* A source told that another process has this rank: the environment was a wrapper's. */
static bool told_otherwise(const struct lg_lives *l, const struct life *p)
{
	if (p->told)
		return false;
	for (size_t i = 0; i < l->n; i++)
		if (l->all[i].told && l->all[i].env.rank == p->env.rank)
			return true;
	return false;
}

/*
 * A daemon of the job whose creator was gone before anybody saw it has the rank's variables too.
 * It is the rank only if no older process had the same rank at the same time.
 */
static bool shadowed(const struct lg_lives *l, const struct life *p)
{
	struct lg_process_row mine, other;

	if (!p->orphan || p->told)
		return false;
	mine = lg_process_read(l->b, p->prc);
	for (size_t i = 0; i < l->n; i++) {
		const struct life *q = &l->all[i];

		if (q == p || !q->topmost || q->orphan || !same_rank(&p->env, &q->env))
			continue;
		other = lg_process_read(l->b, q->prc);
		if (other.end <= mine.start)
			continue;
		if (other.start < mine.start - TICK_NS ||
		    (other.start < mine.start + TICK_NS && other.pid < mine.pid))
			return true;
	}
	return false;
}

void lg_lives_finish(struct lg_lives *l, unsigned *ret_ranks)
{
	enum lg_rank_kind best = LG_RANK_NONE;
	unsigned n = 0;

	while (l->n_job)
		l->n_job = read_some(l, l->job_queue, l->n_job, JOB_READS);
	for (size_t i = 0; i < l->n; i++) {
		struct life *p = &l->all[i];

		if (p->prc && p->topmost && (!l->explicit_job || p->job) && p->env.kind > best &&
		    p->env.kind < LG_RANK_TOLD)
			best = p->env.kind;
	}
	for (size_t i = 0; i < l->n; i++) {
		struct life *p = &l->all[i];
		struct lg_process_row r;

		if (!p->prc || !p->env.kind)
			continue;
		r = lg_process_read(l->b, p->prc);
		if (r.role == LG_ROLE_RANK &&
		    (p->env.kind < best || told_otherwise(l, p) || shadowed(l, p))) {
			r.role = LG_ROLE_JOB;
			r.rank = r.local_rank = -1;
			r.world = 0;
			lg_process_write(l->b, p->prc, &r);
		}
		n += r.role == LG_ROLE_RANK;
	}
	*ret_ranks = n;
	if (l->not_read)
		lg_add_diag_now(l->b, LG_DIAG_PARTIAL, l->scanned, l->not_read,
				"%llu short-lived processes have no command line",
				(unsigned long long)l->not_read);
}

void lg_lives_each_job(struct lg_lives *l, void (*f)(void *arg, int32_t pid), void *arg)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->all[i].alive && l->all[i].job && !l->all[i].kernel)
			f(arg, l->all[i].pid);
}

void lg_lives_each_marking(struct lg_lives *l, void (*f)(void *arg, int32_t pid, uint32_t uid), void *arg)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->all[i].alive && l->all[i].marks && l->all[i].job)
			f(arg, l->all[i].pid, l->all[i].marks - 1);
}
