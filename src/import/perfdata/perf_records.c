/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_records.c - each record, in time order, to rows.
 *
 * Formats: enum perf_event_type in include/uapi/linux/perf_event.h. Records that perf made up
 * about what existed before it started have time 0.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "import/perfdata/perf_import.h"

enum { CPUS_MAX = 65536, KTHREADD = 2 /* its pid */ };

static void short_record(struct lg_pd *p, uint64_t offset)
{
	if (!p->short_records++)
		p->short_at = offset;
}

/* What is known of one CPU, to give losses their length. */
static struct lg_pd_cpu *cpu_of(struct lg_pd *p, int32_t cpu)
{
	size_t old = p->n_cpu;

	if (cpu < 0 || cpu >= CPUS_MAX)
		return NULL;
	if ((size_t)cpu >= p->n_cpu) {
		size_t n = (size_t)cpu + 1;

		if (lg_grow(&p->cpu, &p->cpu_cap, n, sizeof *p->cpu))
			return NULL;
		p->n_cpu = n;
		for (size_t i = old; i < n; i++)
			p->cpu[i] = (struct lg_pd_cpu){ INT64_MIN, INT64_MIN };
	}
	return &p->cpu[cpu];
}

static void seen_on(struct lg_pd *p, int32_t cpu, int64_t ts)
{
	struct lg_pd_cpu *c = __builtin_expect((size_t)cpu < p->n_cpu, 1) ? &p->cpu[cpu]
									  : cpu_of(p, cpu);

	if (c)
		c->last = ts;
}

/* -- what lives and where -- */

static void comm_record(struct lg_pd *p, const struct lg_pd_sample *who, struct pd_cursor *c,
			uint16_t misc)
{
	int32_t pid = (int32_t)pd_take_u32(c), tid = (int32_t)pd_take_u32(c);
	const char *comm = (const char *)c->p;
	size_t n = strnlen(comm, pd_left(c));
	struct lg_pd_task *task;

	(void)who;
	if (c->bad || tid < 0)
		return;
	if (misc & PDM_COMM_EXEC)
		lg_pd_space_clear(&p->code.spaces, pid);
	task = lg_pd_task_get(&p->tasks, pid, tid);
	if (task && tid)
		lg_thread_name(p->b, task->thr, lg_intern_n(p->b, comm, n < 64 ? n : 64));
}

static void fork_record(struct lg_pd *p, struct pd_cursor *c, int64_t ts, bool made_up)
{
	int32_t pid = (int32_t)pd_take_u32(c), ppid = (int32_t)pd_take_u32(c);
	int32_t tid = (int32_t)pd_take_u32(c), ptid = (int32_t)pd_take_u32(c);
	struct lg_pd_task *task, *parent;

	if (c->bad || tid <= 0)
		return;
	if (made_up) {
		task = lg_pd_task_get(&p->tasks, pid, tid);
		if (task && pid == tid && ppid > 0 && ppid != pid) {
			lg_prc prc = lg_thread_process(p->b, task->thr);
			struct lg_process_row row = lg_process_read(p->b, prc);

			row.ppid = ppid;
			lg_process_write(p->b, prc, &row);
		}
		return;
	}
	task = lg_pd_task_fork(&p->tasks, ppid, pid, tid, ts);
	if (!task)
		return;
	lg_pd_space_fork(&p->code.spaces, ppid, pid);
	parent = lg_pd_task_find(&p->tasks, ptid);
	if (parent) {
		lg_thr thr = lg_pd_task_find(&p->tasks, tid)->thr;

		lg_thread_name(p->b, thr, lg_thread_read(p->b, parent->thr).comm);
	}
	lg_pd_events_fork(p, ts, pid, tid);
}

static void exit_record(struct lg_pd *p, struct pd_cursor *c, int64_t ts)
{
	int32_t tid;

	(void)pd_take(c, 8); /* pid, ppid */
	tid = (int32_t)pd_take_u32(c);
	if (c->bad || tid <= 0)
		return;
	lg_pd_events_exit(p, ts, tid);
	lg_pd_task_exit(&p->tasks, tid, ts);
}

static void map_record(struct lg_pd *p, struct pd_cursor *c, int64_t ts, uint16_t misc, bool two)
{
	int32_t pid = (int32_t)pd_take_u32(c);
	struct lg_pd_map m = { 0 };
	const uint8_t *id = NULL;
	char hex[41] = "";
	const char *name;
	uint64_t len;
	size_t n_id = 0;

	(void)pd_take_u32(c); /* tid */
	m.start = pd_take_u64(c);
	len = pd_take_u64(c);
	m.pgoff = pd_take_u64(c);
	if (two) {
		id = pd_take(c, 24);
		(void)pd_take_u64(c); /* protection, flags */
	}
	name = (const char *)c->p;
	if (c->bad || (misc & PDM_MMAP_DATA))
		return;
	if (id && (misc & PDM_MMAP_BUILD_ID)) {
		n_id = id[0] <= 20 ? id[0] : 20;
		for (size_t i = 0; i < n_id; i++)
			snprintf(hex + 2 * i, 3, "%02x", id[4 + i]);
		m.build_id = lg_intern(p->b, hex);
	}
	m.end = m.start + len < m.start ? UINT64_MAX : m.start + len;
	if (pid == -1 || (misc & PDM_CPUMODE) == PDM_KERNEL) {
		char path[4096];

		snprintf(path, sizeof path, "%.*s", (int)strnlen(name, pd_left(c)), name);
		lg_pd_code_kernel_map(&p->code, m.start, len, m.pgoff, path, m.build_id);
		return;
	}
	if ((misc & PDM_CPUMODE) >= PDM_GUEST_KERNEL)
		return;
	m.name = lg_intern_n(p->b, name, strnlen(name, pd_left(c)));
	if (id && !(misc & PDM_MMAP_BUILD_ID))
		m.inode = lg_pd_code_inode(&p->code, &(struct lg_pd_inode){
				.name = m.name, .maj = pd_u32(id, c->swap), .min = pd_u32(id + 4, c->swap),
				.ino = pd_u64(id + 8, c->swap), .gen = pd_u64(id + 16, c->swap), .ts = ts });
	lg_pd_space_map(&p->code.spaces, pid, &m);
}

static void ksymbol_record(struct lg_pd *p, struct pd_cursor *c)
{
	uint64_t addr = pd_take_u64(c);
	uint32_t len = pd_take_u32(c);
	const uint8_t *flags = pd_take(c, 4);
	char name[512];

	if (!flags)
		return;
	snprintf(name, sizeof name, "%.*s", (int)strnlen((const char *)c->p, pd_left(c)),
		 (const char *)c->p);
	/* PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER */
	lg_pd_code_ksymbol(&p->code, addr, pd_u16(flags + 2, c->swap) & 1 ? 0 : len, name);
}

/* Of the process that a child of kthreadd is, or kthreadd itself; no program was ever mapped there. */
static bool is_kthread(const struct lg_pd *p, const struct lg_trace *t, lg_prc prc)
{
	int32_t pid = t->process.pid[prc];

	return pid > 0 && (pid == KTHREADD || t->process.ppid[prc] == KTHREADD) &&
	       !lg_pd_space_was_mapped(&p->code.spaces, pid);
}

/*
 * All threads of the kernel are kthreadd's children, and it is process 2 (rest_init() in init/main.c): no
 * record says more. Inside a container's PID namespace 2 is anybody, so its name must be kthreadd's. A
 * helper that the kernel started (call_usermodehelper()) has its program mapped.
 */
void lg_pd_kernel_threads(struct lg_pd *p)
{
	const struct lg_trace *t = lg_builder_trace(p->b);
	bool there = false;

	for (lg_prc i = 1; i < t->process.n && !there; i++)
		there = t->process.pid[i] == KTHREADD && is_kthread(p, t, i) &&
			!strcmp(lg_string(t, t->process.comm[i]), "kthreadd");
	for (lg_thr i = 1; there && i < t->thread.n; i++) {
		struct lg_thread_row thr = lg_thread_read(p->b, i);
		struct lg_process_row prc;

		if (!is_kthread(p, t, thr.prc))
			continue;
		thr.flags |= LG_THREAD_KERNEL;
		lg_thread_write(p->b, i, &thr);
		prc = lg_process_read(p->b, thr.prc);
		if (prc.role != LG_ROLE_OTHER)
			continue;
		prc.role = LG_ROLE_KERNEL;
		lg_process_write(p->b, thr.prc, &prc);
	}
}

/* Several may be ranks, or a rank and whoever is suspected: only if they are of one name they are one job. */
void lg_pd_named_job(struct lg_pd *p)
{
	const struct lg_trace *t = lg_builder_trace(p->b);
	lg_str comm = 0;

	for (int make = 0; make < 2; make++)
		for (lg_prc i = 1; i < t->process.n; i++) {
			struct lg_process_row row = lg_process_read(p->b, i);
			bool named = false;

			for (size_t k = 0; k < p->h.n_named; k++)
				named |= row.pid == p->h.named[k];
			if (!named || row.role != LG_ROLE_OTHER)
				continue;
			if (!make && comm && row.comm != comm)
				return;
			comm = row.comm;
			row.role = LG_ROLE_JOB;
			if (make)
				lg_process_write(p->b, i, &row);
		}
}

/* -- what is missing -- */

static void lost_record(struct lg_pd *p, const struct lg_pd_sample *who, int64_t ts, uint64_t n,
			enum lg_diag_id id)
{
	struct lg_pd_cpu *cpu = cpu_of(p, who->cpu);
	int64_t from = cpu && cpu->last != INT64_MIN && cpu->last <= ts ? cpu->last : ts;

	const char *why = id == LG_DIAG_LOST_EVENTS ? "perf's buffer was full"
						    : "the processor could not keep them";

	if (!n)
		return;
	if (id == LG_DIAG_LOST_EVENTS)
		p->lost = lg_count_sum(p->lost, n);
	lg_add_diag(p->b, &(struct lg_diag_row){ .ts = from, .dur = ts - from, .id = id,
						 .cpu = who->cpu, .count = n,
						 .text = lg_intern(p->b, why) });
	if (id == LG_DIAG_LOST_EVENTS)
		lg_pd_events_gap(p, from, ts, who->cpu);
}

/*
 * Two records of one name. The kernel's tells of samples that its hardware dropped
 * (perf_log_lost_samples() in kernel/events/core.c), which never were events: it has a time. perf record's
 * own stand at the end without one (record__save_lost_samples() in tools/perf/builtin-record.c): what
 * each event could not write (PERF_FORMAT_LOST), samples or not. That counts the same failures as
 * PERF_RECORD_LOST does (__perf_output_begin() in kernel/events/ring_buffer.c raises both), and those of
 * which no such record came, because nothing was written to that buffer any more.
 */
static void lost_samples_record(struct lg_pd *p, const struct lg_pd_sample *who, int64_t ts, uint64_t n,
				uint16_t misc, bool made_up)
{
	if (misc & PDM_LOST_SAMPLES_BPF) /* left out on request */
		return;
	if (made_up && !p->timeless_file)
		p->lost_by_event = lg_count_sum(p->lost_by_event, n);
	else
		lost_record(p, who, ts, n, LG_DIAG_LOST_SAMPLES);
}

static void throttle_record(struct lg_pd *p, const struct lg_pd_sample *who, int64_t ts, bool begins)
{
	struct lg_pd_cpu *cpu = cpu_of(p, who->cpu);
	int64_t from = cpu ? cpu->throttled : INT64_MIN;

	if (begins) {
		p->n_throttles++;
		if (cpu && from == INT64_MIN) {
			cpu->throttled = ts;
			return;
		}
		if (cpu)
			return;
	} else if (!cpu || from == INT64_MIN) {
		return;
	} else {
		cpu->throttled = INT64_MIN;
	}
	from = begins ? ts : from;
	lg_add_diag(p->b, &(struct lg_diag_row){ .ts = from, .dur = ts > from ? ts - from : 0,
						 .id = LG_DIAG_THROTTLED, .cpu = who->cpu, .count = 1 });
}

/* -- samples -- */

/* Of number 0: the idle task, or a thread that the recorder's PID namespace does not know. */
static uint32_t idle_flag(struct lg_pd *p, uint16_t misc, lg_stk stk)
{
	uint16_t mode = misc & PDM_CPUMODE;

	if (mode == PDM_USER || mode == PDM_GUEST_USER)
		return 0;
	return lg_idle_stack(&p->idle, lg_builder_trace(p->b), stk) ? LG_SAMPLE_IDLE : 0;
}

static int sample_record(struct lg_pd *p, const uint8_t *rec, uint16_t misc, uint16_t size,
			 int64_t ts, uint64_t offset, const struct lg_pd_seen *seen)
{
	struct lg_pd_attr *a = lg_pd_attr_of(&p->h.attrs, rec, size, true);
	struct lg_sample_row row = { .ts = ts, .cpu = -1 };
	struct lg_pd_sample s;
	struct lg_pd_task *task;

	if (!a) {
		lg_add_sample(p->b, &row);
		return 0;
	}
	if (lg_pd_sample_read(&s, a, rec, size, p->h.swap))
		short_record(p, offset);
	row.event = a->name;
	row.cpu = s.cpu;
	row.weight = s.period;
	row.flags = (a->type == PD_TYPE_TRACEPOINT ? LG_SAMPLE_TRACEPOINT : 0u) |
		    ((misc & PDM_CPUMODE) == PDM_KERNEL ? LG_SAMPLE_KERNEL : 0u);
	task = a->at.tid >= 0 && size >= a->at.fixed ? lg_pd_task_get(&p->tasks, s.pid, s.tid) : NULL;
	if (!task && a->at.tid < 0)
		task = lg_pd_task_get(&p->tasks, -1, -1); /* an event without TID: nobody's */
	if (task) {
		row.thr = task->thr;
		row.stack = lg_pd_stack_of(&p->tasks, task, &s, misc, seen);
		row.flags |= s.tid == 0 ? idle_flag(p, misc, row.stack) : 0u;
	}
	if (__builtin_expect(p->timeless_file, 0))
		row.ts = (int64_t)p->timeless++ * 1000;
	lg_add_sample(p->b, &row);
	if (s.cpu >= 0)
		seen_on(p, s.cpu, ts);
	if (__builtin_expect(p->sees_turns, 0) && task && !lg_pd_is_switch(p, a))
		lg_pd_turns_seen(p, ts, task, s.cpu);
	if (a->event && task && !p->timeless_file) {
		const struct lg_trace *t = lg_builder_trace(p->b);

		lg_pd_events_sample(p, a, &s, ts, task,
				    lg_without_plumbing(&p->tasks.plumbing, t, row.stack));
	}
	return 0;
}

/* As sample_record(), of what was taken apart already. */
static void plain_sample(struct lg_pd *p, const struct lg_pd_handed *h, int64_t ts)
{
	const struct lg_pd_attr *a = h->plain;
	const struct lg_pd_look *look = &h->entry.look;
	struct lg_sample_row row = { .ts = ts, .cpu = look->cpu, .event = a->name, .weight = look->period };
	struct lg_pd_task *task = lg_pd_task_get(&p->tasks, look->pid, look->tid);

	row.flags = (a->type == PD_TYPE_TRACEPOINT ? LG_SAMPLE_TRACEPOINT : 0u) |
		    ((look->misc & PDM_CPUMODE) == PDM_KERNEL ? LG_SAMPLE_KERNEL : 0u);
	if (task) {
		row.thr = task->thr;
		row.stack = lg_pd_stack_known(&p->tasks, h->entry.ts, &h->seen);
		if (!row.stack) {
			const uint8_t *rec = h->entry.rec;
			bool swap = p->h.swap;
			struct lg_pd_sample *s = &p->plain;

			s->time = h->entry.ts;
			s->chain = rec + look->chain_at;
			s->n_chain = look->n;
			s->ip = a->at.ip >= 0 ? pd_u64(rec + a->at.ip, swap) : 0;
			row.stack = lg_pd_stack_of(&p->tasks, task, s, look->misc, &h->seen);
		}
		row.flags |= a->at.tid >= 0 && look->tid == 0 ? idle_flag(p, look->misc, row.stack) : 0u;
	}
	if (__builtin_expect(p->timeless_file, 0))
		row.ts = (int64_t)p->timeless++ * 1000;
	lg_add_sample(p->b, &row);
	if (look->cpu >= 0)
		seen_on(p, look->cpu, ts);
	if (__builtin_expect(p->sees_turns, 0) && task)
		lg_pd_turns_seen(p, ts, task, look->cpu);
}

/* The wide form names the other thread, too, which has a record of its own. */
static void switch_record(struct lg_pd *p, const struct lg_pd_sample *who, int64_t ts, uint16_t misc)
{
	struct lg_pd_task *task = who->tid >= 0 ? lg_pd_task_get(&p->tasks, who->pid, who->tid) : NULL;

	if (task && who->time != LG_PD_NO_TIME)
		lg_pd_events_switch(p, ts, task, who->cpu, misc & PDM_SWITCH_OUT, misc & PDM_SWITCH_PREEMPT);
}

static void other_record(struct lg_pd *p, const struct lg_pd_sample *who, struct pd_cursor *c,
			 uint32_t type, uint16_t misc, int64_t ts, bool made_up)
{
	uint64_t n;

	switch (type) {
	case PD_COMM:
		comm_record(p, who, c, misc);
		break;
	case PD_FORK:
		fork_record(p, c, ts, made_up);
		break;
	case PD_EXIT:
		exit_record(p, c, ts);
		break;
	case PD_MMAP:
	case PD_MMAP2:
		map_record(p, c, made_up ? INT64_MIN : ts, misc, type == PD_MMAP2);
		break;
	case PD_LOST:
		(void)pd_take_u64(c); /* event id */
		n = pd_take_u64(c);
		lost_record(p, who, ts, n, LG_DIAG_LOST_EVENTS);
		break;
	case PD_LOST_SAMPLES:
		n = pd_take_u64(c);
		lost_samples_record(p, who, ts, n, misc, made_up);
		break;
	case PD_THROTTLE:
	case PD_UNTHROTTLE:
		throttle_record(p, who, ts, type == PD_THROTTLE);
		break;
	case PD_SWITCH:
	case PD_SWITCH_CPU_WIDE:
		switch_record(p, who, ts, misc);
		break;
	case PD_KSYMBOL:
		ksymbol_record(p, c);
		break;
	default: /* known, but nothing that the trace has a place for */
		break;
	}
}

int lg_pd_record_in_order(struct lg_pd *p, const struct lg_pd_handed *r)
{
	const uint8_t *rec = r->entry.rec;
	uint64_t raw_ts = r->entry.ts, offset = r->entry.offset;
	uint32_t type = r->plain ? PD_SAMPLE : pd_u32(rec, p->h.swap);
	uint16_t misc = r->plain ? r->entry.look.misc : pd_u16(rec + 4, p->h.swap);
	bool made_up = raw_ts == 0 || raw_ts == LG_PD_NO_TIME;
	int64_t ts = made_up ? p->last_ts : (int64_t)(raw_ts & INT64_MAX);
	struct lg_pd_sample who;
	struct lg_pd_attr *a;
	struct pd_cursor c;
	uint16_t size;

	if (!made_up) {
		if (p->first_ts == INT64_MIN)
			p->first_ts = p->code.home.first_ts = ts;
		p->last_ts = ts;
	}
	if (__builtin_expect(r->plain != NULL, 1)) {
		plain_sample(p, r, ts);
	} else if (size = pd_u16(rec + 6, p->h.swap), type == PD_SAMPLE) {
		(void)sample_record(p, rec, misc, size, ts, offset, &r->seen);
	} else {
		a = lg_pd_attr_of(&p->h.attrs, rec, size, false);
		lg_pd_trailer_read(&who, a, rec, size, p->h.swap);
		c = (struct pd_cursor){ .p = rec + PD_RECORD_HEADER, .swap = p->h.swap };
		c.end = rec + size - (a && size >= PD_RECORD_HEADER + a->at.trailer ? a->at.trailer : 0);
		other_record(p, &who, &c, type, misc, ts, made_up);
		if (c.bad)
			short_record(p, offset);
	}
	if (p->code.spaces.failed)
		return LG_E_NOMEM;
	return lg_builder_failed(p->b);
}
