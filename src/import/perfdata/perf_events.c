/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_events.c - what tracepoints and context-switch records say: thread states, waits, spans.
 *
 * Each event's fields are bound once, by name, to their places in the payload; other tracepoints
 * stay what every sample is: a row with the event's name and stack.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "import/perfdata/perf_import.h"
#include "import/perfdata/perf_syscalls.h"
#include "store/sched_feed.h"

enum kind {
	EV_NONE, EV_SWITCH, EV_WAKING, EV_WAKEUP, EV_MOVE, EV_EXEC, EV_CONTEND, EV_CONTENDED, EV_MM_TAKEN,
	EV_MM_RELEASED, EV_IO_ISSUE, EV_IO_DONE, EV_SYSCALL, EV_SYSRET, EV_IRQ, EV_IRQ_END,
	EV_SOFTIRQ, EV_SOFTIRQ_END, EV_KINDS
};
enum { FIELDS = 6, IO_MAX = 65536, SYSCALLS_MAX = 1024 };

struct place {
	uint16_t offset, size; /* size 0 = the kernel that recorded has no such field */
	bool is_signed;
};

struct bound {
	enum kind kind;
	struct place at[FIELDS], common_flags;
	const struct lg_pd_format *format;
	lg_str name; /* syscalls:sys_enter_NAME */
};

struct io {
	int64_t ts;
	lg_thr thr;
	lg_stk stack;
	uint64_t bytes;
	lg_str name;
};

struct per_cpu {
	int64_t irq, softirq; /* since; INT64_MIN = not in one */
	lg_str irq_name;
	lg_trk track;
};

struct lg_pd_events {
	struct bound *bound;
	size_t n_bound;
	struct lg_sched_feed *feed;
	bool has_switch, has_waking, has_wakeup, has_locks, has_records;
	bool tied; /* sched_switch is told of the recorded tasks only, when they leave a CPU */
	uint64_t subsampled, lost_halves;
	struct io *io;
	size_t n_io, io_cap;
	struct lg_map io_at;
	struct per_cpu *cpu;
	size_t n_cpu, cpu_cap;
	lg_str *syscall; /* names by number; NULL until the first */
};

static const struct {
	const char *name;
	enum kind kind;
	const char *field[FIELDS];
} known[] = {
	{ "sched:sched_switch", EV_SWITCH, { "prev_pid", "prev_state", "next_pid", "next_comm" } },
	{ "sched:sched_waking", EV_WAKING, { "pid", "target_cpu", "comm" } },
	{ "sched:sched_wakeup", EV_WAKEUP, { "pid", "target_cpu", "comm" } },
	{ "sched:sched_wakeup_new", EV_WAKEUP, { "pid", "target_cpu", "comm" } },
	{ "sched:sched_migrate_task", EV_MOVE, { "pid", "orig_cpu", "dest_cpu" } },
	{ "sched:sched_process_exec", EV_EXEC, { "pid" } },
	{ "lock:contention_begin", EV_CONTEND, { "lock_addr", "flags" } },
	{ "lock:contention_end", EV_CONTENDED, { "lock_addr" } },
	{ "mmap_lock:mmap_lock_acquire_returned", EV_MM_TAKEN, { "mm", "write", "success" } },
	{ "mmap_lock:mmap_lock_released", EV_MM_RELEASED, { "mm", "write" } },
	{ "block:block_rq_issue", EV_IO_ISSUE, { "dev", "sector", "nr_sector", "rwbs", "bytes" } },
	{ "block:block_rq_complete", EV_IO_DONE, { "dev", "sector", "nr_sector" } },
	{ "raw_syscalls:sys_enter", EV_SYSCALL, { "id" } },
	{ "raw_syscalls:sys_exit", EV_SYSRET, { "id" } },
	{ "irq:irq_handler_entry", EV_IRQ, { "irq", "name" } },
	{ "irq:irq_handler_exit", EV_IRQ_END, { "irq" } },
	{ "irq:softirq_entry", EV_SOFTIRQ, { "vec" } },
	{ "irq:softirq_exit", EV_SOFTIRQ_END, { "vec" } },
};

static struct place place_of(const struct lg_pd_format *f, const char *name)
{
	const struct lg_tp_field *field = name ? lg_tp_field(&f->tp, name) : NULL;

	if (!field || field->offset > UINT16_MAX || field->size > UINT16_MAX)
		return (struct place){ 0 };
	return (struct place){ (uint16_t)field->offset, (uint16_t)field->size, field->is_signed };
}

static bool bind(struct lg_pd *p, const struct lg_pd_format *f, struct bound *b)
{
	static const char enter[] = "syscalls:sys_enter_", leave[] = "syscalls:sys_exit_";

	*b = (struct bound){ .format = f, .common_flags = place_of(f, "common_flags") };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (strcmp(known[i].name, f->name))
			continue;
		b->kind = known[i].kind;
		for (int k = 0; k < FIELDS; k++)
			b->at[k] = place_of(f, known[i].field[k]);
		return true;
	}
	if (!strncmp(f->name, enter, sizeof enter - 1)) {
		b->kind = EV_SYSCALL;
		b->name = lg_intern(p->b, f->name + sizeof enter - 1);
	} else if (!strncmp(f->name, leave, sizeof leave - 1)) {
		b->kind = EV_SYSRET;
		b->name = lg_intern(p->b, f->name + sizeof leave - 1);
	}
	b->at[0] = place_of(f, "__syscall_nr");
	return b->kind != EV_NONE;
}

/*
 * Events of tasks and not of CPUs: sched_switch is hit by whom it takes the CPU from, so that only switches
 * away from the tasks are there (perf_tp_event() in kernel/events/core.c). perf asks for the CPU of samples
 * where it records CPUs, and for a start at exec() where it records the program that it starts and no more
 * (evsel__config() in tools/perf/util/evsel.c).
 */
static bool is_tied(const struct lg_pd *p)
{
	const struct lg_pd_attrs *attrs = &p->h.attrs;
	bool tied = p->h.of_tasks;

	for (size_t i = 0; i < attrs->n; i++) {
		const struct lg_pd_attr *a = &attrs->attr[i];

		tied |= (a->flags & PDF_ENABLE_ON_EXEC) != 0 ||
			(a->type != PD_TYPE_TRACEPOINT && a->at.time >= 0 && a->at.cpu < 0);
	}
	return tied;
}

/* Sampling period in ns of events that count as time passes on a CPU. (The kernel steers the period of
 * counted cycles towards a frequency; that of a clock is exact.) */
static int64_t sampling_grain(const struct lg_pd *p)
{
	enum { TASK_CLOCK = 1, CYCLES = 0 }; /* PERF_COUNT_*; the CPU clock is 0 */
	int64_t grain = INT64_MAX;

	for (size_t i = 0; i < p->h.attrs.n; i++) {
		const struct lg_pd_attr *a = &p->h.attrs.attr[i];
		bool clock = a->type == PD_TYPE_SOFTWARE && a->config <= TASK_CLOCK;
		bool cycles = a->type == PD_TYPE_HARDWARE && a->config == CYCLES;
		int64_t ns = INT64_MAX;

		if (!a->period || a->period > INT32_MAX || (!clock && !cycles))
			continue;
		if (a->flags & PDF_FREQ)
			ns = (clock ? 1 : 2) * 1000000000ll / (int64_t)a->period;
		else if (clock)
			ns = (int64_t)a->period;
		grain = ns < grain ? ns : grain;
	}
	return grain;
}

int lg_pd_events_new(struct lg_pd *p, struct lg_error *err)
{
	struct lg_pd_events *e = lg_calloc(1, sizeof *e);
	struct lg_pd_attrs *attrs = &p->h.attrs;

	if (!e)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p->events = e;
	e->bound = lg_calloc(attrs->n, sizeof *e->bound);
	if (!e->bound)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	for (size_t i = 0; i < attrs->n; i++) {
		struct lg_pd_attr *a = &attrs->attr[i];
		const struct lg_pd_format *f = NULL;
		struct bound *b = &e->bound[e->n_bound];

		e->has_records |= (a->flags & PDF_CONTEXT_SWITCH) != 0;
		if (a->type == PD_TYPE_TRACEPOINT)
			f = lg_pd_formats_by_id(&p->h.formats, a->config);
		if (!f || !(a->sample_type & PDS_RAW) || a->at.time < 0 || !bind(p, f, b))
			continue;
		a->event = (uint32_t)++e->n_bound;
		e->has_switch |= b->kind == EV_SWITCH;
		e->has_waking |= b->kind == EV_WAKING;
		e->has_wakeup |= b->kind == EV_WAKEUP;
		e->has_locks |= b->kind >= EV_CONTEND && b->kind <= EV_MM_RELEASED;
	}
	e->tied = is_tied(p);
	if (e->tied)
		lg_meta_set(p->b, 0, "record.scope", "processes");
	p->turn_grain = sampling_grain(p);
	p->sees_turns = e->tied && e->has_switch && !e->has_records;
	return 0;
}

void lg_pd_events_free(struct lg_pd_events *e)
{
	if (!e)
		return;
	lg_sched_feed_free(e->feed);
	lg_free(e->bound);
	lg_free(e->io);
	lg_map_done(&e->io_at);
	lg_free(e->cpu);
	lg_free(e->syscall);
	lg_free(e);
}

static struct lg_sched_feed *feed_of(struct lg_pd *p)
{
	struct lg_pd_events *e = p->events;
	struct lg_sched_options opt = { .start = p->first_ts,
					.has_waking = e->has_waking || e->has_wakeup,
					.has_fork = true };

	if (!e->feed && lg_sched_feed_new(&e->feed, p->b, &opt, NULL))
		e->feed = NULL;
	return e->feed;
}

static uint64_t value(const struct lg_pd_sample *s, const struct place *at, bool swap)
{
	const uint8_t *q = s->raw + at->offset;

	if (!at->size || (size_t)at->offset + at->size > s->n_raw)
		return 0;
	switch (at->size) {
	case 1:
		return at->is_signed ? (uint64_t)(int8_t)*q : *q;
	case 2:
		return at->is_signed ? (uint64_t)(int16_t)pd_u16(q, swap) : pd_u16(q, swap);
	case 4:
		return at->is_signed ? (uint64_t)(int32_t)pd_u32(q, swap) : pd_u32(q, swap);
	case 8:
		return pd_u64(q, swap);
	default:
		return 0;
	}
}

/* A char array, or a __data_loc string. */
static lg_str text(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s,
		   const struct place *at, bool dynamic)
{
	size_t offset = at->offset, n = at->size;

	(void)b;
	if (dynamic) {
		uint32_t loc = (uint32_t)value(s, at, p->h.swap);

		offset = loc & 0xffff;
		n = loc >> 16;
	}
	if (!n || offset + n > s->n_raw)
		return 0;
	return lg_intern_n(p->b, (const char *)s->raw + offset,
			   strnlen((const char *)s->raw + offset, n));
}

/* pid of a thread that only its tid is told of; name it where it is new. */
static int32_t pid_of(struct lg_pd *p, int32_t tid, const struct lg_pd_sample *s, const struct place *comm)
{
	struct lg_pd_task *t;

	if (!tid)
		return 0;
	t = lg_pd_task_find(&p->tasks, tid);
	if (t)
		return t->pid;
	t = lg_pd_task_get(&p->tasks, -1, tid);
	if (t && comm->size >= 8)
		lg_thread_name(p->b, t->thr, text(p, NULL, s, comm, false));
	return -1;
}

static enum lg_ctx context_of(const struct bound *b, const struct lg_pd_sample *s, bool swap)
{
	/* TRACE_FLAG_* of include/linux/trace_events.h */
	uint64_t f = value(s, &b->common_flags, swap);

	if (!b->common_flags.size)
		return LG_CTX_UNKNOWN;
	return f & 0x40 ? LG_CTX_NMI : f & 0x08 ? LG_CTX_HARDIRQ : f & 0x10 ? LG_CTX_SOFTIRQ : LG_CTX_TASK;
}

/* Of a recording of tasks. */
static void turn_event(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s, int64_t ts,
		       struct lg_pd_task *task, lg_stk stk)
{
	int32_t tid = (int32_t)value(s, &b->at[0], p->h.swap);

	if (b->kind == EV_SWITCH) {
		uint64_t prev_state = lg_pd_format_state(b->format, value(s, &b->at[1], p->h.swap));

		if (s->tid == tid)
			lg_pd_turns_leave(p, ts, task, stk, s->cpu, lg_sched_reason(prev_state));
		return;
	}
	if (b->kind != EV_MOVE)
		lg_pd_turns_woke(p, ts, tid, task->thr, context_of(b, s, p->h.swap), stk);
}

static void sched_event(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s,
			int64_t ts, struct lg_pd_task *task, lg_stk stk)
{
	struct lg_sched_feed *f = feed_of(p);
	bool swap = p->h.swap;
	int32_t tid = (int32_t)value(s, &b->at[0], swap);

	if (p->events->tied && p->events->has_switch) {
		turn_event(p, b, s, ts, task, stk);
		return;
	}
	if (!f)
		return;
	if (b->kind == EV_SWITCH) {
		int32_t next = (int32_t)value(s, &b->at[2], swap);

		lg_sched_switched(f, &(struct lg_sched_switch){
			.ts = ts, .cpu = s->cpu, .prev_tid = tid,
			.prev_pid = s->tid == tid ? s->pid : -1,
			.prev_state = lg_pd_format_state(b->format, value(s, &b->at[1], swap)),
			.next_tid = next, .next_pid = pid_of(p, next, s, &b->at[3]), .stack = stk });
		return;
	}
	if (b->kind == EV_MOVE) {
		lg_sched_moved(f, &(struct lg_sched_move){ ts, tid, (int32_t)value(s, &b->at[1], swap),
							   (int32_t)value(s, &b->at[2], swap) });
		return;
	}
	if (b->kind == EV_WAKEUP && p->events->has_waking && strcmp(b->format->name, "sched:sched_wakeup_new")) {
		/* sched_waking told who woke it; here it has its place. */
		lg_sched_moved(f, &(struct lg_sched_move){ ts, tid, -1, (int32_t)value(s, &b->at[1], swap) });
		return;
	}
	(void)pid_of(p, tid, s, &b->at[2]);
	lg_sched_woke(f, &(struct lg_sched_waking){
		.ts = ts, .cpu = s->cpu, .tid = tid, .waker_pid = s->pid, .waker_tid = s->tid,
		.target_cpu = (int32_t)value(s, &b->at[1], swap), .ctx = context_of(b, s, swap),
		.stack = stk });
}

static void lock_event(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s,
		       int64_t ts, lg_stk stk)
{
	struct lg_sched_feed *f = feed_of(p);
	bool swap = p->h.swap;
	uint64_t object = value(s, &b->at[0], swap);
	struct lg_sched_mmap_lock m = { .ts = ts, .mm = object, .pid = s->pid, .tid = s->tid,
					.write = value(s, &b->at[1], swap) & 0xff,
					.success = value(s, &b->at[2], swap) & 0xff, .stack = stk };

	if (!f)
		return;
	switch (b->kind) {
	case EV_CONTEND:
		lg_sched_contention_begin(f, &(struct lg_sched_contention){
			.ts = ts, .lock = object, .flags = (uint32_t)value(s, &b->at[1], swap),
			.pid = s->pid, .tid = s->tid, .stack = stk });
		break;
	case EV_CONTENDED:
		lg_sched_contention_end(f, ts, s->tid, object);
		break;
	case EV_MM_TAKEN:
		lg_sched_mmap_acquired(f, &m);
		break;
	default:
		lg_sched_mmap_released(f, &m);
		break;
	}
}

static uint64_t io_key(uint64_t dev, uint64_t sector)
{
	return lg_mix64(dev) ^ sector;
}

static void io_issue(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s, int64_t ts,
		     lg_thr thr, lg_stk stk)
{
	struct lg_pd_events *e = p->events;
	bool swap = p->h.swap;
	uint64_t dev = value(s, &b->at[0], swap), key = io_key(dev, value(s, &b->at[1], swap));
	uint32_t i = lg_map_get(&e->io_at, key);
	uint64_t bytes = value(s, &b->at[4], swap);
	char name[64], how = 0;

	if (b->at[3].size && (size_t)b->at[3].offset + b->at[3].size <= s->n_raw)
		how = (char)s->raw[b->at[3].offset];
	if (!i) {
		if (e->n_io >= IO_MAX || lg_grow(&e->io, &e->io_cap, e->n_io + 1, sizeof *e->io) ||
		    lg_map_set(&e->io_at, key, (uint32_t)e->n_io + 1))
			return;
		i = (uint32_t)++e->n_io;
	}
	/* dev_t of the kernel: 12 bits of major above 20 of minor */
	snprintf(name, sizeof name, "%s %u:%u",
		 how == 'R' ? "read" : how == 'W' ? "write" : how == 'D' ? "discard" : "flush",
		 (unsigned)(dev >> 20), (unsigned)(dev & 0xfffff));
	e->io[i - 1] = (struct io){ ts, thr, stk, bytes ? bytes : 512 * value(s, &b->at[2], swap),
				    lg_intern(p->b, name) };
}

static void io_done(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s, int64_t ts)
{
	struct lg_pd_events *e = p->events;
	bool swap = p->h.swap;
	uint64_t key = io_key(value(s, &b->at[0], swap), value(s, &b->at[1], swap));
	uint32_t i = lg_map_get(&e->io_at, key);
	const struct io *io = i ? &e->io[i - 1] : NULL;

	if (!io || io->ts == INT64_MIN || ts < io->ts)
		return;
	lg_add_span(p->b, &(struct lg_span_row){ .ts = io->ts, .dur = ts - io->ts, .thr = io->thr,
						 .kind = LG_SPAN_IO, .name = io->name,
						 .bytes = io->bytes, .stack = io->stack });
	/* The slot is used again; the table is emptied when many have been. */
	e->io[i - 1].ts = INT64_MIN;
	lg_map_remove(&e->io_at, key);
	if (!e->io_at.n)
		e->n_io = 0;
}

/* raw_syscalls tell the number only, and a 32-bit program counts in its own way. */
static lg_str syscall_name(struct lg_pd *p, const struct lg_pd_task *task, uint64_t nr)
{
	struct lg_pd_events *e = p->events;
	bool is_32 = lg_pd_space_is_32(&p->code.spaces, task->space);
	const char *known_as;
	lg_str *at = NULL;
	char buf[48];

	if (!e->syscall)
		e->syscall = lg_calloc(2 * SYSCALLS_MAX, sizeof *e->syscall);
	if (e->syscall && nr < SYSCALLS_MAX)
		at = &e->syscall[2 * nr + is_32];
	if (at && *at)
		return *at;
	known_as = lg_pd_syscall_name(p->h.arch, is_32, nr);
	if (!known_as) {
		snprintf(buf, sizeof buf, "syscall %llu%s", (unsigned long long)nr, is_32 ? " (32-bit)" : "");
		known_as = buf;
	}
	if (!at)
		return lg_intern(p->b, known_as);
	return *at = lg_intern(p->b, known_as);
}

static void syscall_event(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s,
			  int64_t ts, struct lg_pd_task *task, lg_stk stk)
{
	uint64_t nr = value(s, &b->at[0], p->h.swap);
	lg_str name = b->name;

	if (b->kind == EV_SYSCALL) {
		task->syscall_ts = ts;
		task->syscall_nr = nr;
		task->syscall_stk = stk;
		return;
	}
	if (task->syscall_ts == INT64_MIN || task->syscall_nr != nr || ts < task->syscall_ts)
		return;
	if (!name)
		name = syscall_name(p, task, nr);
	lg_add_span(p->b, &(struct lg_span_row){ .ts = task->syscall_ts, .dur = ts - task->syscall_ts,
						 .thr = task->thr, .kind = LG_SPAN_SYSCALL, .name = name,
						 .seq = (int64_t)nr, .stack = task->syscall_stk });
	task->syscall_ts = INT64_MIN;
}

static struct per_cpu *irq_cpu(struct lg_pd *p, int32_t cpu)
{
	struct lg_pd_events *e = p->events;
	char name[16];

	if (cpu < 0 || cpu >= 65536)
		return NULL;
	while (e->n_cpu <= (size_t)cpu) {
		if (lg_grow(&e->cpu, &e->cpu_cap, e->n_cpu + 1, sizeof *e->cpu))
			return NULL;
		e->cpu[e->n_cpu++] = (struct per_cpu){ INT64_MIN, INT64_MIN, 0, 0 };
	}
	if (!e->cpu[cpu].track) {
		snprintf(name, sizeof name, "CPU %d", cpu);
		e->cpu[cpu].track = lg_track_get(p->b, &(struct lg_track_row){
			.kind = LG_TRACK_CPU, .name = lg_intern(p->b, name), .index = cpu });
	}
	return &e->cpu[cpu];
}

static void irq_span(struct lg_pd *p, const struct per_cpu *c, int64_t since, int64_t ts, lg_str name)
{
	if (since != INT64_MIN && ts >= since)
		lg_add_span(p->b, &(struct lg_span_row){ .ts = since, .dur = ts - since,
							 .track = c->track, .kind = LG_SPAN_IRQ,
							 .name = name });
}

static void irq_event(struct lg_pd *p, const struct bound *b, const struct lg_pd_sample *s, int64_t ts)
{
	static const char *const vec_name[] = { "softirq HI", "softirq TIMER", "softirq NET_TX",
						"softirq NET_RX", "softirq BLOCK", "softirq IRQ_POLL",
						"softirq TASKLET", "softirq SCHED", "softirq HRTIMER",
						"softirq RCU" };
	struct per_cpu *c = irq_cpu(p, s->cpu);
	uint64_t n = value(s, &b->at[0], p->h.swap);
	char name[64];

	if (!c)
		return;
	switch (b->kind) {
	case EV_IRQ:
		c->irq = ts;
		snprintf(name, sizeof name, "irq %llu %.40s", (unsigned long long)n,
			 lg_string(lg_builder_trace(p->b), text(p, b, s, &b->at[1], true)));
		c->irq_name = lg_intern(p->b, name);
		break;
	case EV_IRQ_END:
		irq_span(p, c, c->irq, ts, c->irq_name);
		c->irq = INT64_MIN;
		break;
	case EV_SOFTIRQ:
		c->softirq = ts;
		break;
	default:
		irq_span(p, c, c->softirq, ts, lg_intern(p->b, n < 10 ? vec_name[n] : "softirq"));
		c->softirq = INT64_MIN;
		break;
	}
}

bool lg_pd_is_switch(const struct lg_pd *p, const struct lg_pd_attr *a)
{
	return a->event && p->events->bound[a->event - 1].kind == EV_SWITCH;
}

void lg_pd_events_sample(struct lg_pd *p, struct lg_pd_attr *a, const struct lg_pd_sample *s,
			 int64_t ts, struct lg_pd_task *task, lg_stk stk)
{
	struct lg_pd_events *e = p->events;
	const struct bound *b = &e->bound[a->event - 1];

	if (!s->raw)
		return;
	/* One event stands for several: the ones between are missing, and with them any pairing. */
	if (s->period > 1)
		e->subsampled++;
	switch (b->kind) {
	case EV_SWITCH:
	case EV_WAKING:
	case EV_WAKEUP:
	case EV_MOVE:
		sched_event(p, b, s, ts, task, stk);
		break;
	case EV_EXEC:
		if (e->feed)
			lg_sched_mm_drop(e->feed, s->pid);
		break;
	case EV_CONTEND:
	case EV_CONTENDED:
	case EV_MM_TAKEN:
	case EV_MM_RELEASED:
		lock_event(p, b, s, ts, stk);
		break;
	case EV_IO_ISSUE:
		io_issue(p, b, s, ts, task->thr, stk);
		break;
	case EV_IO_DONE:
		io_done(p, b, s, ts);
		break;
	case EV_SYSCALL:
	case EV_SYSRET:
		syscall_event(p, b, s, ts, task, stk);
		break;
	case EV_IRQ:
	case EV_IRQ_END:
	case EV_SOFTIRQ:
	case EV_SOFTIRQ_END:
		irq_event(p, b, s, ts);
		break;
	default:
		break;
	}
}

void lg_pd_events_switch(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, int32_t cpu, bool out,
			 bool preempted)
{
	if (!p->events->has_switch || p->events->tied)
		lg_pd_turns_switch(p, ts, task, cpu, out, preempted);
}

void lg_pd_events_fork(struct lg_pd *p, int64_t ts, int32_t pid, int32_t tid)
{
	if (p->events->has_switch && !p->events->tied && feed_of(p))
		lg_sched_forked(p->events->feed, ts, pid, tid);
}

void lg_pd_events_exit(struct lg_pd *p, int64_t ts, int32_t tid)
{
	if (p->events->feed)
		lg_sched_exited(p->events->feed, ts, tid);
	lg_pd_turns_exit(p, ts, tid);
}

void lg_pd_events_gap(struct lg_pd *p, int64_t from, int64_t to, int32_t cpu)
{
	if (p->events->feed)
		lg_sched_gap(p->events->feed, from, to, cpu);
	if (p->events->has_records || p->events->tied)
		lg_pd_turns_gap(p, from, cpu);
}

/* Nothing tells when a thread came back to a CPU but what it did there. */
static void note_tied(struct lg_pd *p)
{
	lg_add_diag_now(p->b, LG_DIAG_PARTIAL, p->last_ts, 1,
			"perf record -p tells when a thread left its CPU, not when it came back nor who had "
			"that CPU: its next sample shows that it was back; add --switch-events, or record the "
			"whole machine (-a)");
}

int lg_pd_events_finish(struct lg_pd *p, struct lg_error *err)
{
	struct lg_pd_events *e = p->events;
	struct lg_trace *t = lg_builder_trace(p->b);
	int rc = 0;

	lg_pd_turns_finish(p);
	if (p->sees_turns)
		note_tied(p);
	if (e->feed)
		rc = lg_sched_feed_finish(e->feed, p->last_ts, err);
	if (rc || !e->subsampled)
		return rc;
	/*
	 * perf record -F subsamples tracepoints, too: with switches missing, running and waiting
	 * times would be invented. What was drawn before the first hole is taken back as well: the
	 * holes are everywhere, they only show where two events were merged into one.
	 */
	t->state.n = 0;
	t->span.n = 0;
	lg_add_diag_now(p->b, LG_DIAG_SUBSAMPLED, p->last_ts, e->subsampled,
			"%llu tracepoint events stand for more than one (perf record -F); record with "
			"-e cpu-clock/freq=999/ -e sched:sched_switch",
			(unsigned long long)e->subsampled);
	return 0;
}
