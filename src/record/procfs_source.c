/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs_source.c - the source that always works: counters in every tier, and coarse states of the
 * job's threads in tier procfs, and in tier own for processes that were running already (perf_source.c
 * has exact ones of the command that it starts).
 *
 *   last look            this look             schedstat says: 6 ms run, 3 ms waited
 *   |---- blocked 11 ms ----|- runnable 3 -|-- running 6 --|
 *
 * Between two looks only sums are known: the pieces are true in length, not in place, and marked
 * LG_STATE_SUMMED. A thread whose sums stand still is blocked since the last look; its wchan is
 * read once then. A look costs two small reads a thread, so the interval grows until the looking
 * stays below a twentieth of one CPU.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/counters.h"
#include "record/session.h"

#define MS INT64_C(1000000)
#define LOOK (20 * MS)
#define SCAN (250 * MS) /* at least; nothing else tells of processes that come and go */
#define SHARE 20 /* looking costs at most one in so many */

struct watched {
	int32_t pid, tid;
	lg_thr thr;
	uint64_t run, wait, slices;
	int64_t last;       /* time of the last look */
	int64_t carry;      /* ran before it, told after it: the sum grows at ticks only */
	int64_t since;      /* of the open blocked or runnable piece; 0 = none is open */
	struct lg_state_row open;
	bool alive;
};

struct procfs {
	struct lg_session *s;
	struct lg_builder *b;
	struct lg_counters *counters;
	struct watched *t;
	size_t n, cap;
	struct lg_map by_tid;
	int32_t pid; /* for add_thread() */
	bool states, coarse;
	int64_t next_look, next_scan, every;
	int timer;
};

static int probe(struct lg_probe *ret, struct lg_error *err)
{
	char text[256];
	ssize_t n = lg_proc_read("/proc/self/schedstat", text, sizeof text);

	if (lg_proc_read("/proc/self/stat", text, sizeof text) <= 0)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "/proc is not mounted");
	ret->works = true;
	snprintf(ret->lost, sizeof ret->lost, "command lines, counters, PSI, throttling");
	if (n <= 0)
		snprintf(ret->why, sizeof ret->why, "no schedstat in this kernel");
	return 0;
}

static void procfs_free(void *self)
{
	struct procfs *p = self;

	if (!p)
		return;
	if (p->timer >= 0)
		close(p->timer);
	lg_counters_free(p->counters);
	lg_map_done(&p->by_tid);
	lg_free(p->t);
	lg_free(p);
}

static int start(struct lg_session *s, void **ret_self, struct lg_error *err)
{
	struct procfs *p = lg_calloc(1, sizeof *p);
	struct itimerspec every = { .it_interval.tv_nsec = LOOK, .it_value.tv_nsec = LOOK };
	int rc;

	if (!p)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p->s = s;
	p->b = lg_session_builder(s);
	p->timer = -1;
	p->every = LOOK;
	p->states = lg_session_tier(s) == LG_TIER_PROCFS ||
		    (lg_session_tier(s) == LG_TIER_OWN && !lg_session_child(s));
	rc = lg_counters_new(&p->counters, p->b, lg_session_lives(s), err);
	if (!rc && p->states) {
		p->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (p->timer < 0 || timerfd_settime(p->timer, 0, &every, NULL))
			rc = lg_fail_errno(err, errno, "timerfd");
		else
			rc = lg_session_watch(s, p->timer, err);
		lg_add_diag_now(p->b, LG_DIAG_NO_FEATURE, lg_monotonic_ns(), 1,
				"states come from /proc every %d ms: coarse, without wakers, "
				"holders and stacks", (int)(LOOK / MS));
	}
	if (rc) {
		procfs_free(p);
		return rc;
	}
	*ret_self = p;
	return 0;
}

/* run_ns wait_ns slices (kernel/sched/core.c via fs/proc/base.c, proc_pid_schedstat). */
static bool read_schedstat(const struct watched *w, uint64_t v[3])
{
	char path[64], text[96], *p = text;

	snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", w->pid, w->tid);
	if (lg_proc_read(path, text, sizeof text) <= 0)
		return false;
	for (int i = 0; i < 3; i++)
		v[i] = strtoull(p, &p, 10);
	return true;
}

static void add_thread(void *arg, int32_t tid)
{
	struct procfs *p = arg;
	struct watched *w;
	uint64_t v[3];

	if (lg_map_get(&p->by_tid, (uint32_t)tid))
		return;
	if (lg_grow(&p->t, &p->cap, p->n + 1, sizeof *p->t))
		return;
	w = &p->t[p->n];
	*w = (struct watched){ .pid = p->pid, .tid = tid, .alive = true };
	if (!read_schedstat(w, v) || lg_map_set(&p->by_tid, (uint32_t)tid, (uint32_t)p->n + 1))
		return;
	w->run = v[0];
	w->wait = v[1];
	w->slices = v[2];
	w->last = lg_monotonic_ns();
	w->thr = lg_thread_get(p->b, p->pid, tid);
	p->n++;
}

static void add_process(void *arg, int32_t pid)
{
	struct procfs *p = arg;
	char path[64];

	p->pid = pid;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	(void)lg_proc_each(path, add_thread, p);
}

static lg_stk wchan(struct procfs *p, const struct watched *w)
{
	char path[64], text[128];
	struct lg_frame_row f = { .kind = LG_FRAME_KERNEL };

	snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", w->pid, w->tid);
	if (lg_proc_read(path, text, sizeof text) <= 0 || !strcmp(text, "0"))
		return 0;
	f.dso = lg_intern(p->b, "[kernel.kallsyms]");
	f.name = lg_intern(p->b, text);
	return lg_intern_stack(p->b, 0, lg_intern_frame(p->b, &f));
}

/* Sums stand still: say what it does, from the last look on. */
static void open_piece(struct procfs *p, struct watched *w)
{
	struct lg_proc_stat st;
	struct lg_state_row *r = &w->open;

	if (lg_proc_stat(w->pid, w->tid, &st))
		return;
	*r = (struct lg_state_row){ .ts = w->last, .thr = w->thr, .cpu = -1,
				    .kind = LG_BLOCKED, .flags = LG_STATE_SUMMED };
	switch (st.state) {
	case 'R':
		r->kind = LG_RUNNABLE;
		break;
	case 'D':
		r->reason = LG_WHY_DISK;
		break;
	case 'T':
		r->reason = LG_WHY_STOPPED;
		break;
	case 't':
		r->reason = LG_WHY_TRACED;
		break;
	case 'Z':
	case 'X':
		r->reason = LG_WHY_DEAD;
		break;
	case 'I':
		r->reason = LG_WHY_IDLE;
		break;
	default:
		r->reason = LG_WHY_SLEEP;
		break;
	}
	if (r->kind == LG_BLOCKED)
		r->stack = wchan(p, w);
	w->since = w->last;
}

static void close_piece(struct procfs *p, struct watched *w, int64_t ts)
{
	if (!w->since)
		return;
	w->open.dur = ts - w->since;
	if (w->open.dur > 0)
		lg_add_state(p->b, &w->open);
	w->since = 0;
}

/* A piece of the time between two looks; *from moves on. */
static void add_piece(struct procfs *p, const struct watched *w, enum lg_state_kind kind,
		      int64_t *from, int64_t dur)
{
	if (dur <= 0)
		return;
	lg_add_state(p->b, &(struct lg_state_row){
				   .ts = *from, .dur = dur, .thr = w->thr, .cpu = -1,
				   .kind = (uint8_t)kind,
				   .reason = kind == LG_BLOCKED ? LG_WHY_SLEEP : LG_WHY_NONE,
				   .flags = LG_STATE_SUMMED,
				   .run = kind == LG_RUNNING ? dur : 0 });
	*from += dur;
}

static void look(struct procfs *p, struct watched *w)
{
	int64_t now, run, wait, idle, from;
	uint64_t v[3];

	if (!read_schedstat(w, v)) {
		close_piece(p, w, w->last);
		lg_map_remove(&p->by_tid, (uint32_t)w->tid);
		lg_thread_end(p->b, w->tid, w->last);
		w->alive = false;
		return;
	}
	now = lg_monotonic_ns();
	run = v[0] > w->run ? (int64_t)(v[0] - w->run) : 0;
	wait = v[1] > w->wait ? (int64_t)(v[1] - w->wait) : 0;
	if (!run && v[2] == w->slices) {
		if (!w->since)
			open_piece(p, w);
	} else {
		from = w->last;
		/* A wait for a CPU is added when it ends: the open piece has shown it already. */
		if (w->since && w->open.kind == LG_RUNNABLE)
			wait -= wait < from - w->since ? wait : from - w->since;
		run += w->carry;
		w->carry = run > now - from ? run - (now - from) : 0;
		run -= w->carry;
		if (wait > now - from - run)
			wait = now - from - run;
		idle = now - from - run - wait;
		if (w->since && w->open.kind == LG_BLOCKED) {
			from += idle; /* what was open went on for so long */
			idle = 0;
		}
		close_piece(p, w, from);
		add_piece(p, w, LG_BLOCKED, &from, idle);
		add_piece(p, w, LG_RUNNABLE, &from, wait);
		add_piece(p, w, LG_RUNNING, &from, run);
	}
	w->run = v[0];
	w->wait = v[1];
	w->slices = v[2];
	w->last = now;
}

static void look_at_all(struct procfs *p, int64_t now)
{
	size_t kept = 0;
	int64_t took;

	if (now >= p->next_scan) {
		lg_lives_scan(lg_session_lives(p->s), now);
		lg_lives_each_job(lg_session_lives(p->s), add_process, p);
		took = lg_monotonic_ns() - now;
		p->next_scan = now + (took * SHARE > SCAN ? took * SHARE : SCAN);
	}
	for (size_t i = 0; i < p->n; i++)
		look(p, &p->t[i]);
	for (size_t i = 0; i < p->n; i++) {
		if (!p->t[i].alive)
			continue;
		if (kept != i) {
			p->t[kept] = p->t[i];
			/* replacing an existing key never allocates */
			(void)!lg_map_set(&p->by_tid, (uint32_t)p->t[kept].tid, (uint32_t)kept + 1);
		}
		kept++;
	}
	p->n = kept;
	took = lg_monotonic_ns() - now;
	p->every = took * SHARE > LOOK ? took * SHARE : LOOK;
	if (p->every > 2 * LOOK && !p->coarse) {
		p->coarse = true;
		lg_add_diag_now(p->b, LG_DIAG_PARTIAL, now, 1,
				"%zu threads: /proc is read every %d ms only", p->n,
				(int)(p->every / MS));
	}
	p->next_look = now + p->every - 5 * MS; /* the timer's own grain */
}

static int drain(void *self, struct lg_error *err)
{
	struct procfs *p = self;
	int64_t now = lg_monotonic_ns();
	uint64_t ticks;

	(void)err;
	if (p->timer >= 0)
		(void)!read(p->timer, &ticks, sizeof ticks);
	if (p->states && now >= p->next_look)
		look_at_all(p, now);
	lg_counters_read(p->counters, now);
	return 0;
}

static void feed(void *self, int64_t ts, const void *rec, size_t n)
{
	(void)self, (void)ts, (void)rec, (void)n; /* nothing is pushed: rows are added at once */
}

static int stop(void *self, struct lg_error *err)
{
	struct procfs *p = self;

	(void)err;
	if (p->states)
		look_at_all(p, lg_monotonic_ns());
	lg_counters_last(p->counters, lg_monotonic_ns());
	p->states = false;
	return 0;
}

static int finish(void *self, struct lg_error *err)
{
	struct procfs *p = self;

	(void)err;
	for (size_t i = 0; i < p->n; i++)
		close_piece(p, &p->t[i], p->t[i].last);
	return 0;
}

const struct lg_source lg_source_procfs = {
	.name = "procfs",
	.summary = "counters and coarse states from /proc",
	.probe = probe,
	.start = start,
	.drain = drain,
	.feed = feed,
	.stop = stop,
	.look = stop,
	.finish = finish,
	.free = procfs_free,
};
