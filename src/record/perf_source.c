/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_source.c - CPU samples of every process, and the lives, names and mappings behind them.
 *
 * Two events a CPU: cpu-clock at freq_hz with call chains (no PMU needed, works in any VM), and
 * a dummy that carries fork, exit, comm, mmap2 and ksymbol records, so that they arrive even
 * while sampling is throttled. With --memory a third: every 64th minor page fault, which tells what touched
 * memory first. In tier `own` the same for the recorded command alone, and the dummy
 * tells its context switches too: PERF_RECORD_SWITCH needs no privilege for processes of one's own,
 * and gives running, preempted and blocked exactly, though not who woke whom.
 *
 * Samples of the recorder itself are counted, not kept: see finish().
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/code_maps.h"
#include "record/perf_intake.h"
#include "record/session.h"
#include "store/sched_feed.h"

#define RING_DEFAULT ((size_t)512 << 10)
#define RINGS_MAX ((size_t)64 << 20) /* of all CPUs together */
#define FAULTS_A_SAMPLE 64 /* 256 KiB of small pages */
#define DYING_NS 1000000000 /* a thread may be sampled after its exit record, on its way out */

struct source {
	struct lg_perf_intake in;
	struct lg_sched_feed *sched; /* tier own; else NULL */
	uint32_t ev_sample, ev_side, ev_fault; /* ev_fault: UINT32_MAX = none */
	bool kernel; /* kernel frames are allowed */
	lg_str s_event, s_fault;
	pid_t self;
	struct lg_map thr_of_tid;
	uint64_t n_samples, n_self, self_ns;
	uint64_t n_user, n_short; /* samples with user frames; with one only */
};

static struct perf_event_attr sample_attr(unsigned freq_hz, bool own, bool kernel)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		/* A per-task cpu-clock counts the CPU's time, also that of others. */
		.config = own ? PERF_COUNT_SW_TASK_CLOCK : PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.sample_freq = freq_hz ? freq_hz : 99,
		.sample_type = PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN,
		.exclude_idle = 1,
		.exclude_kernel = !kernel,
		.exclude_callchain_kernel = !kernel,
		.exclude_hv = 1,
	};
}

static struct perf_event_attr fault_attr(bool kernel)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_PAGE_FAULTS_MIN,
		.sample_period = FAULTS_A_SAMPLE,
		/* With PERF_SAMPLE_PERIOD each is a sample (kernel/events/core.c, perf_swevent_event()). */
		.sample_type = PERF_SAMPLE_CALLCHAIN,
		.exclude_kernel = !kernel,
		.exclude_callchain_kernel = 1,
		.exclude_hv = 1,
	};
}

static struct perf_event_attr side_attr(bool kernel, bool own)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.ksymbol = kernel && !own,
		.context_switch = own,
		.exclude_kernel = !kernel,
	};
}

static int open_events(struct source *p, size_t ring_bytes, unsigned freq_hz, pid_t pid, int sampler,
		       bool faults, struct lg_error *err)
{
	struct perf_event_attr attr;
	int rc = lg_perf_set_new(&p->in.set, ring_bytes, pid, err);

	if (rc)
		return rc;
	if (sampler >= 0)
		lg_perf_set_program(p->in.set, sampler);
	p->kernel = true;
	p->ev_fault = UINT32_MAX;
	attr = sample_attr(freq_hz, pid > 0, true);
	rc = lg_perf_set_add(p->in.set, &attr, NULL, pid > 0 ? "task-clock" : "cpu-clock",
			     &p->ev_sample, err);
	if (rc == LG_E_PERM && pid > 0) { /* perf_event_paranoid 2 allows user space of one's own */
		p->kernel = false;
		attr = sample_attr(freq_hz, true, false);
		rc = lg_perf_set_add(p->in.set, &attr, NULL, "task-clock:u", &p->ev_sample, err);
	}
	if (rc)
		return rc;
	attr = side_attr(p->kernel, pid > 0);
	rc = lg_perf_set_add(p->in.set, &attr, NULL, "dummy", &p->ev_side, err);
	if (rc && attr.ksymbol) { /* ksymbol records: Linux 5.1 */
		attr.ksymbol = 0;
		rc = lg_perf_set_add(p->in.set, &attr, NULL, "dummy", &p->ev_side, err);
	}
	if (!rc && faults) {
		attr = fault_attr(p->kernel);
		rc = lg_perf_set_add(p->in.set, &attr, NULL, "page-faults", &p->ev_fault, err);
	}
	return rc;
}

static int probe(struct lg_probe *ret, struct lg_error *err)
{
	struct source p = { 0 };
	int rc = open_events(&p, (size_t)64 << 10, 99, -1, -1, false, err);

	if (!rc)
		rc = lg_perf_set_enable(p.in.set, err);
	lg_perf_set_free(p.in.set);
	snprintf(ret->lost, sizeof ret->lost,
		 "what threads do while they run: no CPU samples of any process");
	ret->works = !rc;
	if (rc && err) {
		snprintf(ret->why, sizeof ret->why, "%.200s", err->message);
		snprintf(ret->fix, sizeof ret->fix,
			 "run as root, or: sysctl kernel.perf_event_paranoid=-1");
	}
	return 0;
}

static size_t ring_size(const struct lg_record_options *o)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t bytes = o->ring_bytes ? o->ring_bytes : RING_DEFAULT;

	while (!o->ring_bytes && cpus > 1 && bytes * (size_t)cpus > RINGS_MAX && bytes > 65536)
		bytes /= 2;
	return bytes;
}

static void source_free(void *self)
{
	struct source *p = self;

	if (!p)
		return;
	lg_perf_set_free(p->in.set);
	lg_sched_feed_free(p->sched);
	lg_perf_lost_done(&p->in.lost);
	lg_map_done(&p->thr_of_tid);
	lg_free(p);
}

static int start(struct lg_session *s, void **ret_self, struct lg_error *err)
{
	const struct lg_record_options *o = lg_session_options(s);
	struct source *p = lg_calloc(1, sizeof *p);
	pid_t pid = -1;
	int rc = 0, fd;

	if (!p)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p->in.s = s;
	p->in.b = lg_session_builder(s);
	p->in.index = lg_session_source_index(s);
	p->self = lg_session_self(s);
	if (lg_session_tier(s) == LG_TIER_OWN) {
		pid = lg_session_child(s) ? lg_session_child(s) : o->n_pids ? o->pids[0] : -1;
		if (pid < 0)
			rc = lg_fail(err, LG_E_USAGE, LG_NO_OFFSET,
				     "without privileges only a command given after -- is sampled");
	}
	if (!rc)
		rc = open_events(p, ring_size(o), o->freq_hz, pid, lg_session_sampler(s), o->memory,
				 err);
	/* Of a process that runs already only the thread asked for would be told. */
	if (!rc && pid > 0 && lg_session_child(s)) {
		struct lg_sched_options so = { .start = lg_monotonic_ns() };

		rc = lg_sched_feed_new(&p->sched, p->in.b, &so, err);
	}
	p->s_fault = lg_intern(p->in.b, "page-faults");
	p->s_event = lg_intern(p->in.b, pid > 0 ? "task-clock" : "cpu-clock");
	if (!rc)
		rc = lg_perf_set_enable(p->in.set, err);
	for (size_t i = 0; !rc && (fd = lg_perf_set_fd(p->in.set, i)) >= 0; i++)
		rc = lg_session_watch(s, fd, err);
	if (rc) {
		source_free(p);
		return rc;
	}
	for (size_t i = 0; i < o->n_pids; i++)
		lg_addrs_read_now(lg_session_addrs(s), o->pids[i]);
	p->in.rescanned = lg_monotonic_ns();
	*ret_self = p;
	return 0;
}

static int drain(void *self, struct lg_error *err)
{
	struct source *p = self;
	int rc = lg_perf_intake_drain(&p->in, err);

	if (!rc)
		lg_perf_intake_rescan(&p->in, lg_monotonic_ns());
	return rc;
}

/* The thread's row, also for a moment after its exit was told. */
static lg_thr thread_of(struct source *p, int32_t pid, int32_t tid, int64_t ts)
{
	lg_thr thr = lg_map_get(&p->thr_of_tid, (uint32_t)tid);

	if (thr) {
		struct lg_thread_row row = lg_thread_read(p->in.b, thr);

		if (row.end != INT64_MAX && ts >= row.end - DYING_NS && ts < row.end + DYING_NS &&
		    ts >= row.start)
			return thr;
	}
	thr = lg_thread_get(p->in.b, tid ? pid : 0, tid);
	if (thr)
		(void)!lg_map_set(&p->thr_of_tid, (uint32_t)tid, thr);
	return thr;
}

static void feed_sample(struct source *p, const struct perf_event_header *h,
			const struct lg_perf_head *head)
{
	struct lg_sample_row row = { .ts = head->ts, .cpu = head->cpu, .event = p->s_event };
	uint64_t python[LG_SESSION_PYTHON];
	uint8_t gil;
	bool fault = head->event == p->ev_fault;
	size_t at = fault ? 0 : sizeof row.weight; /* of the chain: only the clock's have a period */
	struct lg_perf_chain c;

	if (fault && !lg_session_is_job(p->in.s, head->pid))
		return;
	if ((head->event != p->ev_sample && !fault) || head->n_body < at ||
	    !lg_perf_chain(head->body + at, head->n_body - at, &c)) {
		p->in.not_understood++;
		return;
	}
	if (fault)
		row.weight = FAULTS_A_SAMPLE;
	else
		memcpy(&row.weight, head->body, sizeof row.weight);
	p->n_samples += !fault;
	if (head->pid == p->self) {
		p->n_self++;
		p->self_ns += row.weight;
		return;
	}
	if (head->pid < 0 || head->tid < 0)
		return; /* reaped while on its last instructions: its ids are gone */
	p->n_user += c.n_user > 0 && !fault;
	p->n_short += c.n_user == 1 && !fault;
	row.thr = thread_of(p, head->pid, head->tid, head->ts);
	row.stack = lg_session_stack(p->in.s, &(struct lg_addresses){
		.pid = head->pid, .kernel = c.kernel, .n_kernel = c.n_kernel, .user = c.user,
		.n_user = c.n_user, .python = python,
		.n_python = lg_session_take_python(p->in.s, head->tid, head->ts, python, &gil) });
	row.flags = gil;
	if ((h->misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL)
		row.flags |= LG_SAMPLE_KERNEL;
	if (fault) {
		row.event = p->s_fault;
		row.flags |= LG_SAMPLE_TRACEPOINT; /* no clock of the CPU took it */
	}
	lg_add_sample(p->in.b, &row);
}

/* The string that begins at offset of the body, bounded by it. */
static bool text_at(const struct lg_perf_head *head, size_t offset, char *buf, size_t size)
{
	size_t n;

	if (offset >= head->n_body)
		return false;
	n = strnlen((const char *)head->body + offset, head->n_body - offset);
	if (n >= size)
		n = size - 1;
	memcpy(buf, head->body + offset, n);
	buf[n] = 0;
	return true;
}

/*
 * Of a CPU only the job's threads are told: between them it is as good as idle. The last switch of
 * a dying thread is not told (perf_event_exit_task() comes first): its exit record takes its place.
 */
static void feed_switch(struct source *p, const struct perf_event_header *h,
			const struct lg_perf_head *head)
{
	struct lg_sched_switch e = { .ts = head->ts, .cpu = head->cpu, .prev_pid = -1, .next_pid = -1 };

	if (!p->sched || head->tid <= 0)
		return;
	if (h->type == PERF_RECORD_SWITCH && !(h->misc & PERF_RECORD_MISC_SWITCH_OUT)) {
		e.next_pid = head->pid;
		e.next_tid = head->tid;
	} else {
		enum { PREEMPTED = 0, ASLEEP = 1, DEAD = 16 }; /* as sched_switch has it */

		e.prev_pid = head->pid;
		e.prev_tid = head->tid;
		e.prev_state = h->type == PERF_RECORD_EXIT ? DEAD
			       : h->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT ? PREEMPTED : ASLEEP;
	}
	lg_sched_switched(p->sched, &e);
}

static void exited(struct source *p, const struct perf_event_header *h,
		   const struct lg_perf_head *head, int32_t pid, int32_t tid)
{
	if (head->tid == tid)
		feed_switch(p, h, head);
	lg_session_exit(p->in.s, head->ts, pid, tid);
}

/* PERF_RECORD_MMAP2: maj, min, ino; 0 where a build id stands in their place. */
static uint64_t inode_of(const struct perf_event_header *h, const struct lg_perf_head *head)
{
	uint64_t ino;

	memcpy(&ino, head->body + 40, sizeof ino);
	return h->misc & PERF_RECORD_MISC_MMAP_BUILD_ID ? 0 : ino;
}

static void feed_side(struct source *p, const struct perf_event_header *h,
		      const struct lg_perf_head *head)
{
	int32_t id[4];
	uint64_t w[3];
	uint32_t len;
	uint16_t flags;
	char text[4096];

	switch (h->type) {
	case PERF_RECORD_SWITCH:
		feed_switch(p, h, head);
		return;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		if (head->n_body < 24)
			break;
		memcpy(id, head->body, sizeof id); /* pid, ppid, tid, ptid */
		if (h->type == PERF_RECORD_FORK)
			lg_session_fork(p->in.s, head->ts, id[1], id[0], id[2]);
		else
			exited(p, h, head, id[0], id[2]);
		return;
	case PERF_RECORD_COMM:
		if (head->n_body < 9 || !text_at(head, 8, text, 16 + 1))
			break;
		memcpy(id, head->body, 8);
		if (h->misc & PERF_RECORD_MISC_COMM_EXEC)
			lg_session_exec(p->in.s, head->ts, id[0], text);
		lg_thread_name(p->in.b, thread_of(p, id[0], id[1], head->ts), lg_intern(p->in.b, text));
		return;
	case PERF_RECORD_MMAP2:
		if (head->n_body < 64 || !text_at(head, 64, text, sizeof text))
			break;
		memcpy(id, head->body, 8);
		memcpy(w, head->body + 8, sizeof w); /* addr, len, pgoff */
		if (id[0] > 0) /* -1: the kernel's own text */
			lg_session_map(p->in.s, id[0], w[0], w[1], w[2], inode_of(h, head), text, head->ts);
		return;
	case PERF_RECORD_KSYMBOL:
		if (head->n_body < 16 || !text_at(head, 16, text, sizeof text))
			break;
		memcpy(w, head->body, 8);
		memcpy(&len, head->body + 8, 4);
		memcpy(&flags, head->body + 14, 2);
		lg_addrs_ksymbol(lg_session_addrs(p->in.s), w[0],
				 flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER ? 0 : len, text);
		return;
	case PERF_RECORD_THROTTLE:
		lg_add_diag_now(p->in.b, LG_DIAG_THROTTLED, head->ts, 1,
				"CPU samples of CPU %d: the interrupt took too long", head->cpu);
		return;
	case PERF_RECORD_UNTHROTTLE:
		return;
	default:
		break;
	}
	p->in.not_understood++;
}

static void feed(void *self, int64_t ts, const void *rec, size_t n)
{
	struct source *p = self;
	const struct perf_event_header *h = rec;
	struct lg_perf_head head;

	(void)ts;
	if (h->type == LG_PERF_HOLE) {
		const struct lg_perf_hole *hole = rec;

		if (p->sched)
			lg_sched_gap(p->sched, hole->from, hole->to, hole->cpu);
		lg_add_diag(p->in.b, &(struct lg_diag_row){
					  .ts = hole->from,
					  .dur = hole->to - hole->from,
					  .id = hole->event == p->ev_side ? LG_DIAG_LOST_EVENTS
									  : LG_DIAG_LOST_SAMPLES,
					  .cpu = hole->cpu,
					  .count = hole->count,
					  .text = lg_intern(p->in.b, "sampling ring was full") });
		return;
	}
	if (!lg_perf_head(p->in.set, h, n, &head)) {
		p->in.not_understood++;
		return;
	}
	lg_builder_for(p->in.b, head.pid);
	if (h->type == PERF_RECORD_SAMPLE)
		feed_sample(p, h, &head);
	else
		feed_side(p, h, &head);
}

static int stop(void *self, struct lg_error *err)
{
	(void)err;
	lg_perf_set_disable(((struct source *)self)->in.set);
	return 0;
}

static int finish(void *self, struct lg_error *err)
{
	struct source *p = self;
	int64_t now = lg_monotonic_ns();

	lg_add_diag_now(p->in.b, LG_DIAG_OWN_COST, now, p->n_self,
			"%llu of %llu CPU samples were the recorder's own (about %.3f s of CPU time); "
			"they are not in the trace",
			(unsigned long long)p->n_self, (unsigned long long)p->n_samples,
			(double)p->self_ns / 1e9);
	if (p->in.not_understood)
		lg_add_diag_now(p->in.b, LG_DIAG_NOT_UNDERSTOOD, now, p->in.not_understood,
				"perf records of unknown kind or size");
	/* The kernel walks user stacks by frame pointers, which distributions leave out. */
	if (p->n_short * 4 > p->n_user)
		lg_add_diag_now(p->in.b, LG_DIAG_STACK_TRUNCATED, now, p->n_short,
				"%llu of %llu user stacks show only the innermost function: that code "
				"is built without frame pointers",
				(unsigned long long)p->n_short, (unsigned long long)p->n_user);
	if (lg_perf_set_program_refused(p->in.set))
		lg_add_diag_now(p->in.b, LG_DIAG_NO_FEATURE, now, 1,
				"the kernel runs no program at CPU samples: they have no Python frames");
	if (!p->kernel)
		lg_add_diag_now(p->in.b, LG_DIAG_NO_PERMISSION, now, 1,
				"CPU samples cover user space only");
	if (p->sched) {
		lg_add_diag_now(p->in.b, LG_DIAG_NO_FEATURE, now, 1,
				"without privileges: states of the job's own threads are exact, but "
				"without wakers, lock holders and the stacks of waits");
		return lg_sched_feed_finish(p->sched, now, err);
	}
	return 0;
}

const struct lg_source lg_source_perf = {
	.name = "perf",
	.summary = "CPU samples with call stacks, process lives and mappings",
	.probe = probe,
	.start = start,
	.drain = drain,
	.feed = feed,
	.stop = stop,
	.finish = finish,
	.free = source_free,
};
