/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracepoints.c - tier 2: scheduler and lock events from perf tracepoints.
 *
 *   sched_switch twice, by complementary filters: with the kernel stack where prev goes to
 *   sleep, without where it is merely preempted (the larger half, and its stack says nothing).
 *   contention_begin and mmap_lock_acquire_returned with kernel and user stack: the waiter's,
 *   and the holder's taken in its own context.
 *
 * Which process an mm belongs to: reading one byte of /proc/PID/cmdline makes the kernel take
 * that process's mmap_lock for a moment (get_mm_cmdline(), fs/proc/base.c), so our own
 * acquire_returned event between the read's beginning and end carries PID's mm. Asked once for
 * each process: for all at the start, for new ones when they first touch an mm that nobody is
 * known to own. (Votes in the scheduler feed are the fallback.)
 *
 * A kernel may not tell every switch (seen: a sandbox whose supervisor's threads run no
 * tracepoints at all). The feed notices switches that contradict each other and draws nothing
 * between them.
 *
 * Holds are kept or dropped in user space (sched_locks.c): a perf filter knows no durations and
 * cannot compare an mm with the current task's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/procfs.h"
#include "record/perf_intake.h"
#include "record/session.h"
#include "store/sched_feed.h"
#include "store/tracepoint_format.h"

#define RING_DEFAULT ((size_t)8 << 20) /* 0.3 s of 250,000 switches a second */
#define RINGS_MAX ((size_t)256 << 20) /* of all CPUs together */
#define ASKS_A_DRAIN 64
#define INIT_PID_NS 0xEFFFFFFCu /* PROC_PID_INIT_INO, include/linux/proc_ns.h */

enum tp {
	TP_SWITCH_RUN, TP_SWITCH_BLOCK, TP_WAKING, TP_MOVE, TP_FORK, TP_EXIT, TP_EXEC,
	TP_BEGIN, TP_END, TP_ACQUIRED, TP_RELEASED, TP_MAX
};

/* kernel: call chain wanted; user: with user frames; optional: younger than the oldest kernel. */
static const struct {
	const char *group, *name, *filter;
	bool kernel, user, optional;
	const char *need[4];
} tps[TP_MAX] = {
	/* prev_state is 0 or TASK_REPORT_MAX where prev could go on (include/trace/events/sched.h) */
	[TP_SWITCH_RUN] = { "sched", "sched_switch", "prev_state == 0 || prev_state == 256", 0, 0, 0,
			    { "prev_pid", "prev_state", "next_pid" } },
	[TP_SWITCH_BLOCK] = { "sched", "sched_switch", "prev_state != 0 && prev_state != 256", 1, 0, 0,
			      { "prev_pid", "prev_state", "next_pid" } },
	[TP_WAKING] = { "sched", "sched_waking", NULL, 0, 0, 0, { "pid", "target_cpu" } },
	[TP_MOVE] = { "sched", "sched_migrate_task", NULL, 0, 0, 1, { "pid", "orig_cpu", "dest_cpu" } },
	[TP_FORK] = { "sched", "sched_process_fork", NULL, 0, 0, 0, { "child_pid" } },
	[TP_EXIT] = { "sched", "sched_process_exit", NULL, 0, 0, 0, { "pid" } },
	[TP_EXEC] = { "sched", "sched_process_exec", NULL, 0, 0, 0, { "pid" } },
	/* The idle task's waits hold nobody up but itself. lock:*: Linux 5.19 */
	[TP_BEGIN] = { "lock", "contention_begin", "common_pid != 0", 1, 1, 1,
		       { "lock_addr", "flags" } },
	[TP_END] = { "lock", "contention_end", "common_pid != 0", 0, 0, 1, { "lock_addr" } },
	/* mmap_lock:*: Linux 5.11 */
	[TP_ACQUIRED] = { "mmap_lock", "mmap_lock_acquire_returned", NULL, 1, 1, 1,
			  { "mm", "write", "success" } },
	[TP_RELEASED] = { "mmap_lock", "mmap_lock_released", NULL, 0, 0, 1, { "mm" } },
};

struct opened {
	struct lg_tp_format format;
	const struct lg_tp_field *arg[4], *flags; /* need[]; common_flags */
	bool on, chain;
};

struct ask {
	int64_t from, to;
	int32_t pid;
};

struct source {
	struct lg_perf_intake in;
	struct lg_sched_feed *sched;
	struct opened tp[TP_MAX];
	uint8_t tp_of_event[TP_MAX];
	int64_t started, stopped;
	int32_t self, self_tid;
	struct ask *ask; /* cmdlines read, in time order; [ask_head, n_ask) may still have events */
	size_t n_ask, ask_cap, ask_head;
	int32_t to_ask[ASKS_A_DRAIN];
	size_t n_to_ask;
	struct lg_map asked;
	uint64_t lost_records, tp_count[TP_MAX];
};

/* -- opening -- */

static int read_format(const char *group, const char *name, struct lg_tp_format *ret,
		       struct lg_error *err)
{
	static const char *const roots[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	char path[256], text[16384];
	int fd = -1;
	ssize_t n;

	for (size_t i = 0; fd < 0 && i < 2; i++) {
		snprintf(path, sizeof path, "%s/events/%s/%s/format", roots[i], group, name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && errno == EACCES)
			break;
	}
	if (fd < 0)
		return lg_fail_errno(err, errno, "tracepoint %s:%s", group, name);
	n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n < 0)
		return lg_fail_errno(err, errno, "%s", path);
	text[n] = 0;
	return lg_tp_format_parse(ret, text, err);
}

static int open_tp(struct source *p, enum tp i, enum lg_profile profile, struct lg_error *err)
{
	struct opened *o = &p->tp[i];
	bool chain = tps[i].kernel || (i == TP_WAKING && profile == LG_PROFILE_DEEP);
	struct perf_event_attr attr = { .type = PERF_TYPE_TRACEPOINT,
					.sample_period = 1,
					.sample_type = PERF_SAMPLE_RAW,
					.exclude_callchain_user = !tps[i].user };
	char what[80];
	uint32_t event;
	int rc = read_format(tps[i].group, tps[i].name, &o->format, err);

	if (rc)
		return rc;
	for (size_t k = 0; k < 4 && tps[i].need[k]; k++) {
		o->arg[k] = lg_tp_field(&o->format, tps[i].need[k]);
		if (!o->arg[k])
			return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
				       "tracepoint %s:%s has no field %s", tps[i].group,
				       tps[i].name, tps[i].need[k]);
	}
	o->flags = lg_tp_field(&o->format, "common_flags");
	attr.config = o->format.id;
	if (chain)
		attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
	snprintf(what, sizeof what, "%s:%s", tps[i].group, tps[i].name);
	rc = lg_perf_set_add(p->in.set, &attr, tps[i].filter, what, &event, err);
	if (rc)
		return rc;
	p->tp_of_event[event] = (uint8_t)i;
	o->on = true;
	o->chain = chain;
	return 0;
}

/* missing: one line for the optional ones that are not there. */
static int open_all(struct source *p, size_t ring_bytes, enum lg_profile profile, char *missing,
		    size_t missing_size, struct lg_error *err)
{
	struct stat st;
	int rc;

	missing[0] = 0;
	if (!stat("/proc/self/ns/pid", &st) && st.st_ino != INIT_PID_NS)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "tracepoints name threads by the host's ids, not this pid namespace's");
	rc = lg_perf_set_new(&p->in.set, ring_bytes, -1, err);
	for (enum tp i = 0; !rc && i < TP_MAX; i++) {
		rc = open_tp(p, i, profile, err);
		if (rc && tps[i].optional && rc != LG_E_PERM) {
			size_t n = strlen(missing);

			snprintf(missing + n, missing_size - n, "%s%s:%s", n ? ", " : "",
				 tps[i].group, tps[i].name);
			rc = 0;
		}
	}
	if (!rc)
		rc = lg_perf_set_enable(p->in.set, err);
	return rc;
}

static int probe(struct lg_probe *ret, struct lg_error *err)
{
	struct source p = { 0 };
	char missing[160];
	int rc = open_all(&p, (size_t)64 << 10, LG_PROFILE_DEFAULT, missing, sizeof missing, err);

	lg_perf_set_free(p.in.set);
	ret->works = !rc;
	snprintf(ret->lost, sizeof ret->lost, "%s%s",
		 rc ? "why threads wait: scheduler states, wakers, locks and their holders"
		    : *missing ? "lock waits and holders, not in this kernel: "
			       : "",
		 rc ? "" : missing);
	if (rc && err) {
		snprintf(ret->why, sizeof ret->why, "%.200s", err->message);
		snprintf(ret->fix, sizeof ret->fix, "%s",
			 rc == LG_E_UNSUPPORTED ? "run in the host's pid namespace (docker: --pid=host)"
			 : rc == LG_E_PERM	? "run as root, or with CAP_PERFMON and a readable "
						  "/sys/kernel/tracing"
						: "mount -t tracefs tracefs /sys/kernel/tracing");
	}
	return 0;
}

/* -- whose mm -- */

static void ask_mm(struct source *p, int32_t pid)
{
	char path[64], byte[2];
	struct ask a = { .pid = pid };

	if (lg_map_get(&p->asked, (uint32_t)pid) || lg_map_set(&p->asked, (uint32_t)pid, 1) ||
	    lg_grow(&p->ask, &p->ask_cap, p->n_ask + 1, sizeof *p->ask))
		return;
	snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
	a.from = lg_monotonic_ns();
	if (lg_proc_read(path, byte, sizeof byte) < 0)
		return;
	a.to = lg_monotonic_ns();
	p->ask[p->n_ask++] = a;
}

static void ask_everybody(struct source *p)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		char *end;
		long pid = strtol(d->d_name, &end, 10);

		if (!*end && pid > 0 && pid <= INT32_MAX && pid != p->self)
			ask_mm(p, (int32_t)pid);
	}
	if (dir)
		closedir(dir);
}

/* An acquisition of ours: the answer to the read that surrounds it. */
static void answered(struct source *p, int64_t ts, uint64_t mm)
{
	while (p->ask_head < p->n_ask && p->ask[p->ask_head].to < ts)
		p->ask_head++;
	if (p->ask_head < p->n_ask && p->ask[p->ask_head].from <= ts)
		lg_sched_mm_owner(p->sched, mm, p->ask[p->ask_head].pid);
	if (p->ask_head == p->n_ask)
		p->ask_head = p->n_ask = 0;
}

static void want_to_ask(struct source *p, int32_t pid)
{
	if (pid > 0 && pid != p->self && p->n_to_ask < ASKS_A_DRAIN &&
	    !lg_map_get(&p->asked, (uint32_t)pid))
		p->to_ask[p->n_to_ask++] = pid;
}

/* -- the source -- */

static void source_free(void *self)
{
	struct source *p = self;

	if (!p)
		return;
	lg_perf_set_free(p->in.set);
	lg_sched_feed_free(p->sched);
	lg_perf_lost_done(&p->in.lost);
	lg_map_done(&p->asked);
	lg_free(p->ask);
	lg_free(p);
}

static size_t ring_size(const struct lg_record_options *o)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t bytes = o->ring_bytes ? o->ring_bytes : RING_DEFAULT;

	while (!o->ring_bytes && cpus > 1 && bytes * (size_t)cpus > RINGS_MAX && bytes > 262144)
		bytes /= 2;
	return bytes;
}

static int start(struct lg_session *s, void **ret_self, struct lg_error *err)
{
	const struct lg_record_options *o = lg_session_options(s);
	struct lg_sched_options so = { .has_waking = true, .has_fork = true };
	struct source *p = lg_calloc(1, sizeof *p);
	char missing[160];
	int rc, fd;

	if (!p)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p->in.s = s;
	p->in.b = lg_session_builder(s);
	p->in.index = lg_session_source_index(s);
	p->self = lg_session_self(s);
	p->self_tid = gettid();
	rc = open_all(p, ring_size(o), o->profile, missing, sizeof missing, err);
	so.start = lg_monotonic_ns();
	so.self = p->self;
	so.hold_min_ns = o->profile == LG_PROFILE_LIGHT ? 1000000
			 : o->profile == LG_PROFILE_DEEP ? 10000
							 : 100000;
	if (!rc)
		rc = lg_sched_feed_new(&p->sched, p->in.b, &so, err);
	for (size_t i = 0; !rc && (fd = lg_perf_set_fd(p->in.set, i)) >= 0; i++)
		rc = lg_session_watch(s, fd, err);
	if (rc) {
		source_free(p);
		return rc;
	}
	if (*missing)
		lg_add_diag_now(p->in.b, LG_DIAG_NO_FEATURE, so.start, 1,
				"this kernel has no tracepoints %s", missing);
	if (p->tp[TP_ACQUIRED].on)
		ask_everybody(p);
	p->in.rescanned = p->started = so.start;
	*ret_self = p;
	return 0;
}

static int drain(void *self, struct lg_error *err)
{
	struct source *p = self;
	int rc = lg_perf_intake_drain(&p->in, err);
	int64_t now = lg_monotonic_ns();

	while (p->n_to_ask)
		ask_mm(p, p->to_ask[--p->n_to_ask]);
	if (!rc && !p->stopped)
		lg_perf_intake_rescan(&p->in, now);
	return rc;
}

/* The bits of common_flags (enum trace_flag_type, include/linux/trace_events.h). */
static enum lg_ctx context_of(const struct opened *o, const uint8_t *raw, size_t n)
{
	int64_t flags = lg_tp_int(o->flags, raw, n);

	if (!o->flags)
		return LG_CTX_UNKNOWN;
	return flags & 0x40 ? LG_CTX_NMI
	       : flags & 8  ? LG_CTX_HARDIRQ
	       : flags & 16 ? LG_CTX_SOFTIRQ
			    : LG_CTX_TASK;
}

static void feed_mmap(struct source *p, enum tp i, const struct lg_perf_head *head,
		      const int64_t arg[4], lg_stk stack)
{
	struct lg_sched_mmap_lock e = { .ts = head->ts, .mm = (uint64_t)arg[0], .pid = head->pid,
					.tid = head->tid, .write = arg[1] != 0,
					.success = arg[2] != 0, .stack = stack };

	if (i == TP_RELEASED) {
		lg_sched_mmap_released(p->sched, &e);
		return;
	}
	if (head->tid == p->self_tid)
		answered(p, head->ts, e.mm);
	else if (!lg_sched_mm_known(p->sched, e.mm))
		want_to_ask(p, head->pid);
	lg_sched_mmap_acquired(p->sched, &e);
}

static void feed_event(struct source *p, enum tp i, const struct lg_perf_head *head,
		       const uint8_t *raw, size_t n, lg_stk stack)
{
	const struct opened *o = &p->tp[i];
	int64_t arg[4];

	for (size_t k = 0; k < 4; k++)
		arg[k] = lg_tp_int(o->arg[k], raw, n);
	switch (i) {
	case TP_SWITCH_RUN:
	case TP_SWITCH_BLOCK:
		lg_sched_switched(p->sched, &(struct lg_sched_switch){
			.ts = head->ts, .cpu = head->cpu, .prev_pid = head->pid,
			.prev_tid = (int32_t)arg[0], .prev_state = (uint64_t)arg[1],
			.next_pid = -1, .next_tid = (int32_t)arg[2], .stack = stack });
		break;
	case TP_WAKING:
		lg_sched_woke(p->sched, &(struct lg_sched_waking){
			.ts = head->ts, .cpu = head->cpu, .tid = (int32_t)arg[0],
			.waker_pid = head->pid, .waker_tid = head->tid,
			.target_cpu = (int32_t)arg[1], .ctx = context_of(o, raw, n),
			.stack = stack });
		break;
	case TP_MOVE:
		lg_sched_moved(p->sched, &(struct lg_sched_move){ .ts = head->ts, .tid = (int32_t)arg[0],
								  .from_cpu = (int32_t)arg[1],
								  .to_cpu = (int32_t)arg[2] });
		break;
	case TP_FORK: /* its process is told by the perf source's fork record, a little earlier */
		lg_sched_forked(p->sched, head->ts, -1, (int32_t)arg[0]);
		lg_map_remove(&p->asked, (uint32_t)arg[0]);
		break;
	case TP_EXIT:
		lg_sched_exited(p->sched, head->ts, (int32_t)arg[0]);
		if (head->pid == (int32_t)arg[0])
			lg_sched_mm_drop(p->sched, head->pid);
		break;
	case TP_EXEC:
		lg_sched_mm_drop(p->sched, (int32_t)arg[0]);
		lg_map_remove(&p->asked, (uint32_t)arg[0]);
		break;
	case TP_BEGIN:
		lg_sched_contention_begin(p->sched, &(struct lg_sched_contention){
			.ts = head->ts, .lock = (uint64_t)arg[0], .flags = (uint32_t)arg[1],
			.pid = head->pid, .tid = head->tid, .stack = stack });
		break;
	case TP_END:
		lg_sched_contention_end(p->sched, head->ts, head->tid, (uint64_t)arg[0]);
		break;
	case TP_ACQUIRED:
	case TP_RELEASED:
		feed_mmap(p, i, head, arg, stack);
		break;
	case TP_MAX:
		break;
	}
}

static void feed(void *self, int64_t ts, const void *rec, size_t n)
{
	struct source *p = self;
	const struct perf_event_header *h = rec;
	struct lg_perf_head head;
	struct lg_perf_chain c = { 0 };
	uint32_t raw_size;
	lg_stk stack = 0;
	enum tp i;

	/* The events are switched on and off one after the other: outside of [start, stop] some
	 * are there and some are not. */
	if (ts < p->started || (p->stopped && ts > p->stopped))
		return;
	if (h->type == LG_PERF_HOLE) {
		const struct lg_perf_hole *hole = rec;

		p->lost_records += hole->count;
		lg_sched_gap(p->sched, hole->from, hole->to, hole->cpu);
		lg_add_diag(p->in.b, &(struct lg_diag_row){
					  .ts = hole->from,
					  .dur = hole->to - hole->from,
					  .id = LG_DIAG_LOST_EVENTS,
					  .cpu = hole->cpu,
					  .count = hole->count,
					  .text = lg_intern(p->in.b, "scheduler and lock events: ring was full") });
		return;
	}
	if (!lg_perf_head(p->in.set, h, n, &head) || h->type != PERF_RECORD_SAMPLE ||
	    head.event >= TP_MAX) {
		p->in.not_understood++;
		return;
	}
	lg_builder_for(p->in.b, head.pid);
	i = p->tp_of_event[head.event];
	if ((p->tp[i].chain && !lg_perf_chain(head.body, head.n_body, &c)) ||
	    head.n_body - c.bytes < 4) {
		p->in.not_understood++;
		return;
	}
	memcpy(&raw_size, head.body + c.bytes, 4);
	if (raw_size > head.n_body - c.bytes - 4) {
		p->in.not_understood++;
		return;
	}
	p->tp_count[i]++;
	if (c.n_kernel || c.n_user)
		stack = lg_session_stack(p->in.s, &(struct lg_addresses){
			.pid = head.pid, .kernel = c.kernel, .n_kernel = c.n_kernel, .user = c.user,
			.n_user = c.n_user });
	feed_event(p, i, &head, head.body + c.bytes + 4, raw_size, stack);
}

static int stop(void *self, struct lg_error *err)
{
	struct source *p = self;

	(void)err;
	p->stopped = lg_monotonic_ns();
	lg_perf_set_disable(p->in.set);
	return 0;
}

static int finish(void *self, struct lg_error *err)
{
	struct source *p = self;
	struct lg_sched_stats st = lg_sched_feed_stats(p->sched);
	int64_t end = p->stopped ? p->stopped : lg_monotonic_ns();

	lg_meta_setf(p->in.b, 0, "record.tracepoints",
		     "switches %llu, wakings %llu, contentions %llu, mmap_lock holds %llu (%llu kept), "
		     "lost %llu, gaps %llu, late %llu, lock events without their other half %llu",
		     (unsigned long long)st.switches, (unsigned long long)st.wakings,
		     (unsigned long long)st.contentions, (unsigned long long)st.holds,
		     (unsigned long long)st.holds_kept, (unsigned long long)p->lost_records,
		     (unsigned long long)st.gaps, (unsigned long long)st.late,
		     (unsigned long long)st.lock_lost);
	if (p->in.not_understood)
		lg_add_diag_now(p->in.b, LG_DIAG_NOT_UNDERSTOOD, end, p->in.not_understood,
				"tracepoint records of unknown kind or size");
	return lg_sched_feed_finish(p->sched, end, err);
}

const struct lg_source lg_source_tracepoints = {
	.name = "tracepoints",
	.summary = "scheduler states, wakers, lock waits and mmap_lock holders from perf tracepoints",
	.probe = probe,
	.start = start,
	.drain = drain,
	.feed = feed,
	.stop = stop,
	.finish = finish,
	.free = source_free,
};
