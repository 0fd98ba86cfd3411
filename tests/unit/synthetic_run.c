/* SPDX-License-Identifier: Apache-2.0 */
#include "synthetic_run.h"

#include <stdio.h>
#include <stdlib.h>

#define MS 1000000ll

struct maker {
	struct lg_builder *b;
	const struct run_plan *p;
	lg_thr thr[16], helper[16], culprit, relay;
	int64_t t[16];      /* each rank's clock */
	lg_stk hold_stack, wait_stack, futex_stack, sample_stack, file_stack, socket_stack, nap_stack;
	lg_stk sync_stack, open_stack, child_stack, read_stack, tcp_stack, interrupted_stack;
	int64_t next_stall;
	int n_stalls;
	const char *const *const *run_stack; /* of plan's run_stacks */
};

static lg_stk on_top_of(struct lg_builder *b, lg_stk s, const char *const *names)
{
	for (; *names; names++)
		s = lg_intern_stack(b, s, lg_intern_frame(b, &(struct lg_frame_row){
							  .kind = LG_FRAME_KERNEL,
							  .name = lg_intern(b, *names) }));
	return s;
}

static lg_stk stack_of(struct lg_builder *b, const char *const *names)
{
	return on_top_of(b, 0, names);
}

static void state(struct maker *m, lg_thr thr, int64_t ts, int64_t dur, int kind, int why, int cpu,
		  lg_thr waker, lg_stk stack)
{
	if (dur <= 0)
		return;
	if (m->p->samples_only) {
		int64_t shift = m->p->innocent && thr == m->culprit ? 200 * MS : 0;

		for (int64_t s = (ts + MS - 1) / MS * MS; kind == LG_RUNNING && s < ts + dur; s += MS)
			lg_add_sample(m->b, &(struct lg_sample_row){ .ts = s + shift, .thr = thr, .cpu = cpu,
								     .stack = stack, .weight = MS });
		return;
	}
	lg_add_state(m->b, &(struct lg_state_row){ .ts = ts, .dur = dur, .thr = thr, .cpu = cpu,
						   .kind = (uint8_t)kind, .reason = (uint8_t)why,
						   .waker = waker, .stack = stack,
						   .waker_ctx = waker ? LG_CTX_TASK : LG_CTX_SOFTIRQ });
}

static void span(struct maker *m, lg_thr thr, int64_t ts, int64_t dur, int kind, int stage)
{
	if (m->p->no_marks || m->p->samples_only)
		return;
	lg_add_span(m->b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = thr,
						 .kind = (uint8_t)kind, .stage = (uint8_t)stage,
						 .seq = -1 });
}

/* One of torch._dynamo's reasons, and the count of all of its kind. */
static void told(struct maker *m, int r, const char *name, int64_t value, const char *text)
{
	char count[64];

	snprintf(count, sizeof count, "%ss", name);
	lg_add_mark(m->b, &(struct lg_mark_row){ .ts = m->t[r], .thr = m->thr[r], .value = value,
						 .name = lg_intern(m->b, count) });
	lg_add_mark(m->b, &(struct lg_mark_row){ .ts = m->t[r], .thr = m->thr[r], .value = value,
						 .name = lg_intern(m->b, name),
						 .text = lg_intern(m->b, text) });
}

static void run(struct maker *m, int r, int64_t ns)
{
	state(m, m->thr[r], m->t[r], ns, LG_RUNNING, 0, r, 0, 0);
	m->t[r] += ns;
}

static void stall_lock(struct maker *m, lg_thr waiter, uint64_t mm, int64_t a, int64_t ns)
{
	if (m->p->samples_only) {
		state(m, m->culprit, a, ns, LG_RUNNING, 0, 7, 0, m->sample_stack);
		return;
	}
	lg_add_span(m->b, &(struct lg_span_row){ .ts = a, .dur = ns, .thr = waiter,
						 .kind = LG_SPAN_LOCK_WAIT, .object = mm,
						 .flags = LG_SPAN_MMAP_LOCK | LG_SPAN_WRITE,
						 .name = lg_intern(m->b, "mmap_lock"),
						 .peer = m->p->no_hold_rows ? m->culprit : 0,
						 .stack = m->wait_stack });
	if (!m->p->no_hold_rows)
		lg_add_span(m->b, &(struct lg_span_row){ .ts = a - MS, .dur = ns + MS - 20000,
							 .thr = m->culprit,
							 .kind = LG_SPAN_LOCK_HOLD, .object = mm,
							 .flags = LG_SPAN_MMAP_LOCK | LG_SPAN_READ |
								  LG_SPAN_FOREIGN,
							 .name = lg_intern(m->b, "mmap_lock"),
							 .stack = m->hold_stack });
	for (int64_t s = a; s < a + ns; s += 10 * MS)
		lg_add_sample(m->b, &(struct lg_sample_row){ .ts = s, .thr = m->culprit, .cpu = 7,
							     .stack = m->sample_stack,
							     .flags = m->p->sample_flags,
							     .weight = 10 * MS });
}

/* Futex waits of 5 ms, the last one (or each second) ended by the helper; in between it asks for the lock. */
static void stall_gil(struct maker *m, int r, int64_t a, int64_t ns)
{
	bool told = m->p->gil != GIL_UNTOLD, given = m->p->gil == GIL_GIVEN, asked = false;
	int64_t at = a, end = a + ns, from = m->p->helper_came_late ? a + ns / 2 : a - MS;
	lg_stk code = lg_intern_stack(m->b, 0, lg_intern_frame(m->b, &(struct lg_frame_row){
		.kind = LG_FRAME_USER, .pc = 0x1234, .dso = lg_intern(m->b, m->p->helper_runs) }));

	while (at < end) {
		bool last = end - at <= 5100000;
		int64_t wait = last ? end - at : asked ? 40000 : 5050000;
		bool by_helper = (last || asked) && !m->p->not_by_helper;

		lg_add_state(m->b, &(struct lg_state_row){
			.ts = at, .dur = wait, .thr = m->thr[r], .cpu = -1, .kind = LG_BLOCKED,
			.reason = LG_WHY_SLEEP, .stack = m->futex_stack,
			.waker = by_helper ? m->helper[r] : 0,
			.flags = told ? LG_STATE_GIL_WAIT : 0,
			.blocker = told && m->p->gil != GIL_NOBODYS ? m->helper[r] : 0,
			.waker_ctx = by_helper ? LG_CTX_TASK : LG_CTX_HARDIRQ });
		asked = given && !asked;
		at += wait;
		if (!last)
			state(m, m->thr[r], at, 20000, LG_RUNNING, 0, r, 0, 0);
		at += last ? 0 : 20000;
	}
	if (m->p->helper_came_late)
		state(m, m->helper[r], a - MS, from - a + MS, LG_BLOCKED, LG_WHY_SLEEP, -1, 0,
		      m->nap_stack);
	if (m->p->gil == GIL_SLEPT)
		lg_add_state(m->b, &(struct lg_state_row){
			.ts = from, .dur = end - from + 10000, .thr = m->helper[r], .cpu = -1,
			.kind = LG_BLOCKED, .reason = LG_WHY_SLEEP, .stack = m->nap_stack,
			.flags = LG_STATE_GIL_HELD });
	else
		state(m, m->helper[r], from, end - from + 10000, LG_RUNNING, 0, 5, 0, 0);
	state(m, m->helper[r], end + 10000, MS, LG_BLOCKED, LG_WHY_SLEEP, -1, m->thr[r], m->futex_stack);
	for (int64_t s = from; s < end && m->p->gil != GIL_SLEPT; s += 10 * MS)
		lg_add_sample(m->b, &(struct lg_sample_row){ .ts = s, .thr = m->helper[r], .cpu = 5,
							     .stack = code, .weight = 10 * MS,
							     .flags = told ? LG_SAMPLE_GIL : 0 });
}

static void stall_socket(struct maker *m, int r, int64_t a, int64_t ns)
{
	enum { BETWEEN = 50000 };
	int n = m->p->n_waits ? m->p->n_waits : 1;
	lg_stk stack = m->p->wait_stack ? stack_of(m->b, m->p->wait_stack) : m->socket_stack;

	if (m->p->by_way) {
		state(m, m->relay, a, ns - BETWEEN, LG_BLOCKED, LG_WHY_SLEEP, -1, m->culprit,
		      m->p->relay_stack ? stack_of(m->b, m->p->relay_stack) : stack);
		state(m, m->relay, a + ns - BETWEEN, BETWEEN, LG_RUNNING, 0, 6, 0, 0);
	}
	for (int i = 0; i < n; i++, a += ns / n) {
		bool last = i == n - 1, timer = last && m->p->own_timer;
		int64_t dur = ns / n - (last ? 0 : BETWEEN);

		lg_add_state(m->b, &(struct lg_state_row){
			.ts = a, .dur = dur, .thr = m->thr[r], .cpu = -1, .kind = LG_BLOCKED,
			.reason = LG_WHY_SLEEP, .stack = stack,
			.waker = timer ? 0 : m->relay ? m->relay : m->culprit,
			.waker_ctx = timer ? LG_CTX_HARDIRQ : LG_CTX_TASK });
		if (!last)
			state(m, m->thr[r], a + dur, BETWEEN, LG_RUNNING, 0, r, 0, 0);
	}
}

static void stall(struct maker *m, int r)
{
	int64_t a = m->t[r], ns = m->p->stall_ns, half;
	uint64_t mm = 0xffff888000000000u + (uint64_t)r * 4096;

	if (m->p->servants) {
		int32_t pid = 6000 + m->n_stalls;
		struct lg_process_row row;

		m->culprit = lg_thread_get(m->b, pid, pid);
		row = lg_process_read(m->b, lg_thread_process(m->b, m->culprit));
		row.ppid = CULPRIT_PID;
		row.start = a - MS;
		row.end = a + ns + MS;
		lg_process_write(m->b, lg_thread_process(m->b, m->culprit), &row);
	}
	switch (m->p->stall) {
	case STALL_LOCK:
		state(m, m->thr[r], a, ns, LG_BLOCKED, LG_WHY_DISK, -1, m->culprit, m->wait_stack);
		stall_lock(m, m->thr[r], mm, a, ns);
		break;
	case STALL_CPU:
		state(m, m->thr[r], a, ns, LG_RUNNABLE, LG_WHY_PREEMPTED, m->p->cpu_untold ? -1 : r, 0, 0);
		state(m, m->culprit, a, ns, LG_RUNNING, 0, r, 0, 0);
		if (m->p->crowded)
			for (int cpu = 0; cpu < 8; cpu++)
				if (cpu != r)
					state(m, lg_thread_get(m->b, 7000 + cpu, 7000 + cpu), a, ns,
					      LG_RUNNING, 0, cpu, 0, 0);
		/* What came back from an interrupt, on top of a library without symbols. */
		for (int64_t ts = a; ts < a + ns; ts += 1000000)
			lg_add_sample(m->b, &(struct lg_sample_row){ .ts = ts, .thr = m->culprit, .cpu = r,
								     .flags = m->p->sample_flags,
								     .stack = m->interrupted_stack });
		break;
	case STALL_RUN:
		state(m, m->thr[r], a, ns, LG_RUNNING, 0, r, 0, 0);
		if (m->p->run_stacks && m->run_stack)
			m->run_stack += m->run_stack[1] != NULL;
		else
			m->run_stack = m->p->run_stacks;
		for (int64_t ts = a; (m->p->run_stack || m->run_stack) && ts < a + ns; ts += MS)
			lg_add_sample(m->b, &(struct lg_sample_row){
				.ts = ts, .thr = m->thr[r], .cpu = r,
				.stack = stack_of(m->b, m->run_stack ? *m->run_stack : m->p->run_stack) });
		break;
	case STALL_FORK: /* one half in the fork, the other waiting for the child */
		half = a + ns / 2;
		state(m, m->thr[r], a, half - a, LG_RUNNING, 0, r, 0, 0);
		state(m, m->thr[r], half, a + ns - half, LG_BLOCKED, LG_WHY_SLEEP, -1, m->culprit,
		      m->child_stack);
		state(m, m->culprit, half, a + ns - half, LG_RUNNING, 0, 7, 0, 0);
		for (int64_t ts = a; ts < a + ns; ts += MS)
			lg_add_sample(m->b, &(struct lg_sample_row){
				.ts = ts, .thr = ts < half ? m->thr[r] : m->culprit, .cpu = ts < half ? r : 7,
				.stack = stack_of(m->b, ts < half ? m->p->run_stack : m->p->child_runs) });
		break;
	case STALL_GC: /* what the hook's gc.callbacks tell */
		state(m, m->thr[r], a, ns, LG_RUNNING, 0, r, 0, 0);
		lg_add_span(m->b, &(struct lg_span_row){ .ts = a, .dur = ns, .thr = m->thr[r],
							 .kind = LG_SPAN_GC, .seq = -1 });
		break;
	case STALL_BATCH: /* a loader without workers */
		state(m, m->thr[r], a, ns, LG_RUNNING, 0, r, 0, 0);
		span(m, m->thr[r], a, ns, LG_SPAN_STAGE, LG_STAGE_BATCH_WAIT);
		break;
	case STALL_STOP:
		state(m, m->thr[r], a, ns, LG_BLOCKED, LG_WHY_STOPPED, -1, m->culprit, 0);
		state(m, m->culprit, a, ns, LG_BLOCKED, LG_WHY_SLEEP, -1, 0, m->nap_stack);
		break;
	case STALL_FUTEX_HELPER_LOCK:
		state(m, m->thr[r], a, ns, LG_BLOCKED, LG_WHY_SLEEP, -1, m->helper[r],
		      m->futex_stack);
		if (m->p->helper_computes) {
			state(m, m->helper[r], a, ns, LG_RUNNING, 0, 5, 0, 0);
			break;
		}
		state(m, m->helper[r], a, ns - 50000, LG_BLOCKED, LG_WHY_DISK, -1, m->culprit,
		      m->wait_stack);
		state(m, m->helper[r], a + ns - 50000, 50000, LG_RUNNING, 0, 5, 0, 0);
		stall_lock(m, m->helper[r], mm, a, ns - 50000);
		break;
	case STALL_FILE_LOCK:
		/* Where all want it, each gets it from the one before, and has it for a moment. */
		if (m->p->all_ranks)
			ns += 200000 * r;
		state(m, m->thr[r], a, ns, LG_BLOCKED, LG_WHY_SLEEP, -1,
		      m->p->all_ranks && r ? m->thr[r - 1] : m->culprit, m->file_stack);
		break;
	case STALL_QUOTA:
		state(m, m->thr[r], a, ns, LG_RUNNABLE, LG_WHY_PREEMPTED, r, 0, 0);
		break;
	case STALL_GIL:
		stall_gil(m, r, a, ns);
		break;
	case STALL_TCP:
		lg_add_state(m->b, &(struct lg_state_row){
			.ts = a, .dur = ns, .thr = m->thr[r], .cpu = -1, .kind = LG_BLOCKED,
			.reason = LG_WHY_SLEEP, .stack = m->tcp_stack, .waker = m->culprit,
			.waker_ctx = LG_CTX_SOFTIRQ, .waker_stack = stack_of(m->b, m->p->waker_stack) });
		state(m, m->culprit, a, ns, LG_RUNNING, 0, 7, 0, 0);
		break;
	case STALL_SYNC:
	case STALL_READ:
		state(m, m->thr[r], a, ns, LG_BLOCKED, LG_WHY_IOWAIT, -1, 0,
		      m->p->stall == STALL_SYNC ? m->sync_stack : m->read_stack);
		break;
	case STALL_SOCKET:
		stall_socket(m, r, a, ns);
		if (m->p->asleep)
			state(m, m->culprit, a, ns, LG_BLOCKED, LG_WHY_SLEEP, -1, 0, m->nap_stack);
		else
			state(m, m->culprit, a, ns, LG_RUNNING, 0, 7, 0, 0);
		break;
	default:
		return;
	}
	m->t[r] += ns;
}

static void wait_disk(struct maker *m, int r, int64_t ns, lg_stk stack)
{
	state(m, m->thr[r], m->t[r], ns, LG_BLOCKED, LG_WHY_IOWAIT, -1, 0, stack);
	m->t[r] += ns;
}

static void step(struct maker *m, int k)
{
	const struct run_plan *p = m->p;
	int64_t back[16], last = 0;
	int hit = -1;

	if (p->period_ns && m->t[0] >= m->next_stall &&
	    (!p->stalls_for_ns || m->t[0] < 1000 * MS + p->stalls_for_ns)) {
		hit = p->only_rank >= 0 ? p->only_rank : m->n_stalls % p->n_ranks;
		m->n_stalls++;
		m->next_stall += p->period_ns;
	}
	for (int r = 0; r < p->n_ranks; r++) {
		if (k >= p->recompiles_from && k < p->recompiles_from + p->recompiles)
			told(m, r, "dynamo.recompile", k - p->recompiles_from + 1,
			     "forward /app/net.py:7: size mismatch at index 0");
		if (k >= 30 && k < 30 + p->modes)
			lg_add_mark(m->b, &(struct lg_mark_row){ .ts = m->t[r], .thr = m->thr[r],
								 .name = lg_intern(m->b, "dispatch_mode"),
								 .text = lg_intern(m->b, "a.b.FlopCounterMode") });
		if (p->graph_breaks && k == 3)
			told(m, r, "dynamo.graph_break", p->graph_breaks, "call_function print in /app/net.py:9");
	}
	for (int r = 0; r < p->n_ranks; r++) {
		bool noisy = p->batch_every && k % p->batch_every == p->batch_every - 1;
		int64_t batch = p->batch_ns + (noisy ? p->batch_more_ns : 0), begin = m->t[r] + batch;
		int64_t jitter = (k * 7 + r * 3) % 5 * 20000 + (noisy ? p->noise_ns : 0) +
				 (k % 4 == 2 * r ? p->in_turn_ns : 0);

		if (batch) {
			span(m, m->thr[r], m->t[r], batch, LG_SPAN_STAGE, LG_STAGE_BATCH_WAIT);
			run(m, r, batch);
		}
		run(m, r, 2 * MS + (k < p->warm_steps ? p->warm_ns : 0));
		if (hit == r || (hit >= 0 && p->all_ranks))
			stall(m, r);
		run(m, r, 2 * MS + jitter);
		span(m, m->thr[r], begin, m->t[r] - begin, LG_SPAN_STAGE, LG_STAGE_FORWARD);
		back[r] = m->t[r];
		run(m, r, 5 * MS + (r == p->steady_late_rank ? p->steady_late_ns : 0));
		if (m->t[r] > last)
			last = m->t[r];
	}
	last += 300000;
	for (int r = 0; r < p->n_ranks; r++) {
		int64_t arrive = m->t[r], begin = p->explicit_collective ? arrive : back[r];

		if (p->strangers)
			last = arrive + 300000;

		state(m, m->thr[r], arrive, last - arrive, LG_BLOCKED, LG_WHY_SLEEP, -1, 0,
		      m->futex_stack);
		m->t[r] = last;
		if (p->inference)
			continue;
		span(m, m->thr[r], back[r],
		     (p->explicit_collective ? arrive : last) - back[r], LG_SPAN_STAGE,
		     LG_STAGE_BACKWARD);
		if (!p->no_marks && !p->samples_only && !p->strangers)
			lg_add_span(m->b, &(struct lg_span_row){
					  .ts = begin, .dur = last - begin, .thr = m->thr[r],
					  .kind = LG_SPAN_COLLECTIVE, .seq = k,
					  .group = lg_intern(m->b, "ddp:0"),
					  .name = lg_intern(m->b, "all_reduce"),
					  .flags = p->explicit_collective ? 0 : LG_SPAN_IMPLICIT });
		run(m, r, 500000);
		span(m, m->thr[r], last, 500000, LG_SPAN_STAGE, LG_STAGE_OPTIMIZER);
		if (!r && p->save_every && k % p->save_every == p->save_every - 1) {
			const char *name = p->save_as ? p->save_as : "torch.save";

			wait_disk(m, r, p->open_ns, m->open_stack);
			if (!p->save_unmarked)
				lg_add_span(m->b, &(struct lg_span_row){
					.ts = m->t[r], .dur = p->save_ns, .thr = m->thr[r], .seq = -1,
					.kind = LG_SPAN_STAGE, .stage = LG_STAGE_SIDE,
					.name = lg_intern(m->b, name) });
			run(m, r, p->save_ns);
			wait_disk(m, r, p->sync_ns, m->sync_stack);
			if (p->save_bytes)
				lg_add_mark(m->b, &(struct lg_mark_row){ .ts = m->t[r], .thr = m->thr[r],
									 .value = p->save_bytes,
									 .name = lg_intern(m->b, "side.saved") });
		}
	}
}

static void counter(struct maker *m, const char *name, lg_thr of, int64_t ts, double value)
{
	if (value > 0)
		lg_add_counter(m->b, &(struct lg_counter_row){
			.ts = ts, .value = value,
			.track = lg_track_get(m->b, &(struct lg_track_row){
				.kind = LG_TRACK_COUNTER, .name = lg_intern(m->b, name), .index = -1,
				.prc = of ? lg_thread_process(m->b, of) : 0 }) });
}

/* As record/session_dump.c writes it. */
static void add_fired(struct maker *m, const struct run_plan *p)
{
	lg_prc prc = lg_thread_process(m->b, m->thr[p->fired_rank]);
	char dur[32];
	const char *const rows[][2] = { { "record.trigger", p->fired }, { "record.trigger.why", "step 42 took long" },
					{ "record.trigger.dur_ns", dur }, { "record.trigger.step", "42" } };

	snprintf(dur, sizeof dur, "%lld", (long long)p->fired_ns);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		lg_add_meta(m->b, &(struct lg_meta_row){ .ts = 1000 * MS + p->fired_at_ns, .prc = prc,
							 .key = lg_intern(m->b, rows[i][0]),
							 .value = lg_intern(m->b, rows[i][1]) });
}

struct lg_trace *synthetic_run(const struct run_plan *p)
{
	static const char *const hold[] = { "entry_SYSCALL_64", "ksys_read", "vfs_read",
					    "seq_read_iter", "show_rollup", "mmap_read_lock", NULL };
	static const char *const sample[] = { "entry_SYSCALL_64", "ksys_read", "vfs_read",
					      "seq_read_iter", "show_rollup", "gather_stats",
					      "walk_page_range", "pte_range", NULL };
	static const char *const wait[] = { "entry_SYSCALL_64", "vm_munmap",
					    "rwsem_down_write_slowpath", NULL };
	static const char *const futex[] = { "entry_SYSCALL_64", "do_futex", "futex_wait", NULL };
	static const char *const file[] = { "entry_SYSCALL_64", "__do_sys_flock", "locks_lock_inode_wait",
					    NULL };
	static const char *const sock[] = { "entry_SYSCALL_64", "unix_stream_recvmsg",
					    "unix_stream_read_generic", "schedule_timeout", NULL };
	static const char *const tcp[] = { "entry_SYSCALL_64", "__sys_recvfrom", "tcp_recvmsg", "sk_wait_data",
					   NULL };
	static const char *const sync[] = { "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_fsync",
					    "do_fsync", "ext4_sync_file", "folio_wait_writeback",
					    "folio_wait_bit", NULL };
	static const char *const open[] = { "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_openat",
					    "do_truncate", "ext4_truncate", "submit_bio_wait", NULL };
	static const char *const rd[] = { "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_pread64",
					  "vfs_read", "filemap_read", "folio_wait_bit_common", NULL };
	static const char *const irq[] = { "asm_sysvec_reschedule_ipi", "irqentry_exit_to_user_mode", NULL };
	static const char *const nap[] = { "entry_SYSCALL_64", "common_nsleep", "hrtimer_nanosleep", NULL };
	struct maker m = { .p = p };
	struct lg_trace *t;
	lg_frm hash;

	if (lg_builder_new(&m.b, NULL))
		abort();
	hash = lg_intern_frame(m.b, &(struct lg_frame_row){ .kind = LG_FRAME_USER, .pc = 0x29c4df,
							    .dso = lg_intern(m.b, "/usr/lib/libhash.so.3") });
	m.interrupted_stack = on_top_of(m.b, lg_intern_stack(m.b, 0, hash), irq);
	m.hold_stack = stack_of(m.b, hold);
	m.sample_stack = stack_of(m.b, sample);
	m.wait_stack = stack_of(m.b, wait);
	m.futex_stack = stack_of(m.b, futex);
	m.file_stack = stack_of(m.b, file);
	m.socket_stack = stack_of(m.b, sock);
	m.tcp_stack = stack_of(m.b, tcp);
	m.sync_stack = stack_of(m.b, sync);
	m.read_stack = stack_of(m.b, rd);
	m.open_stack = stack_of(m.b, open);
	m.child_stack = stack_of(m.b, (const char *const[]){ "entry_SYSCALL_64", "kernel_wait4", "do_wait", NULL });
	m.nap_stack = stack_of(m.b, nap);
	m.culprit = lg_thread_get(m.b, CULPRIT_PID, CULPRIT_PID);
	lg_thread_name(m.b, m.culprit, lg_intern(m.b, p->culprit ? p->culprit : "watcher"));
	if (p->by_way) {
		m.relay = lg_thread_get(m.b, RELAY_PID, RELAY_PID);
		lg_thread_name(m.b, m.relay, lg_intern(m.b, "relay"));
	}
	if (p->of_job) {
		struct lg_process_row row = lg_process_read(m.b, lg_thread_process(m.b, m.culprit));

		row.ppid = RANK_PID + (p->only_rank > 0 ? p->only_rank : 0);
		lg_process_write(m.b, lg_thread_process(m.b, m.culprit), &row);
	}
	for (int r = 0; r < p->n_ranks; r++) {
		struct lg_process_row row;

		m.thr[r] = lg_thread_get(m.b, RANK_PID + r, RANK_PID + r);
		m.helper[r] = lg_thread_get(m.b, RANK_PID + r, 5000 + r);
		row = lg_process_read(m.b, lg_thread_process(m.b, m.thr[r]));
		row.rank = p->strangers ? -1 : p->two_launchers ? r % 2 : r;
		if (p->two_launchers)
			row.ppid = 800 + r / 2;
		row.role = LG_ROLE_RANK;
		row.mm = 0xffff888000000000u + (uint64_t)r * 4096;
		lg_process_write(m.b, lg_thread_process(m.b, m.thr[r]), &row);
		for (const char *const *f = p->facts; f && f[0]; f += 2) {
			lg_prc prc = lg_thread_process(m.b, m.thr[r]);

			lg_meta_set(m.b, prc, f[0], f[1]);
			if (p->facts_for_ns)
				lg_add_meta(m.b, &(struct lg_meta_row){
					.ts = 1000 * MS + p->facts_for_ns, .prc = prc,
					.key = lg_intern(m.b, f[0]), .value = lg_intern(m.b, "0") });
		}
		m.t[r] = 1000 * MS;
	}
	m.next_stall = 1000 * MS + p->period_ns;
	for (int k = 0; k < p->n_steps; k++)
		step(&m, k);
	if (p->culprit_passes) {
		struct lg_process_row row = lg_process_read(m.b, lg_thread_process(m.b, m.culprit));

		row.start = 1000 * MS + 1;
		row.end = m.t[0] - 1;
		lg_process_write(m.b, lg_thread_process(m.b, m.culprit), &row);
	}
	if (p->fired)
		add_fired(&m, p);
	if (p->recorded_by)
		lg_meta_set(m.b, 0, "record.cmdline", p->recorded_by);
	if (p->scope)
		lg_meta_set(m.b, 0, "record.scope", p->scope);
	if (p->tier)
		lg_meta_set(m.b, 0, "record.tier", p->tier);
	if (p->world)
		lg_meta_set(m.b, 0, "distributed.world", p->world);
	for (int64_t ts = 2000 * MS; p->disk_busy > 0 && ts < m.t[0] + 1000 * MS; ts += 1000 * MS) {
		counter(&m, "disk.written vda", 0, ts, p->disk_bytes);
		counter(&m, "disk.busy vda", 0, ts, p->disk_busy * 1e9);
		counter(&m, "io.written", m.thr[0], ts, p->own_bytes);
		counter(&m, "io.written", m.culprit, ts, p->other_bytes);
	}
	if (p->stall == STALL_QUOTA && p->throttled_ns >= 0) {
		lg_trk k = lg_track_get(m.b, &(struct lg_track_row){
			.kind = LG_TRACK_COUNTER, .name = lg_intern(m.b, "cgroup.throttled /job"), .index = -1 });

		lg_meta_set(m.b, 0, "cgroup.quota /job", "250000 100000");
		/* An unchanged value is written again only every five seconds. */
		for (int64_t ts = 2000 * MS; ts < m.t[0]; ts += 5000 * MS)
			lg_add_counter(m.b, &(struct lg_counter_row){ ts, k, p->throttled_ns });
	}
	for (int64_t ts = 100 * MS; p->device_util > 0 && ts < m.t[0]; ts += 100 * MS) {
		lg_trk gpu = lg_track_get(m.b, &(struct lg_track_row){
			.kind = LG_TRACK_GPU, .name = lg_intern(m.b, "GPU") });
		lg_trk util = lg_track_get(m.b, &(struct lg_track_row){
			.kind = LG_TRACK_COUNTER, .name = lg_intern(m.b, "gpu.util"), .parent = gpu, .index = -1 });

		lg_add_counter(m.b, &(struct lg_counter_row){ ts, util, p->device_util });
	}
	for (int cpu = 0; p->steal > 0 && cpu < p->n_ranks; cpu++) {
		lg_trk k = lg_track_get(m.b, &(struct lg_track_row){
			.kind = LG_TRACK_COUNTER, .name = lg_intern(m.b, "cpu.steal"), .index = cpu });

		for (int64_t ts = 2000 * MS; ts < m.t[0]; ts += 5000 * MS)
			lg_add_counter(m.b, &(struct lg_counter_row){ ts, k, p->steal });
	}
	if (lg_builder_seal(m.b, &t, NULL))
		abort();
	return t;
}
