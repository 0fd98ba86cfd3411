/* SPDX-License-Identifier: Apache-2.0 */
/* Waits whose cause is known by construction: who is behind them is named, and nobody where nobody is. */
#include "report/report.h"
#include "run_outcome.h"

static void a_wait_for_the_disk_is_for_ones_own_writes_unless_numbers_name_another(void **state)
{
	static const struct {
		enum stall stall;
		double own, other, disk, busy;
		const char *detail, *in_title;
	} cases[] = {
		{ STALL_SYNC, 0, 0, 0, 0, "own_sync", "its own writes to reach the disk (fsync)" },
		{ STALL_READ, 0, 0, 0, 0, "own_read", "what it read (pread64)" },
		{ STALL_SYNC, 200e6, 0, 200e6, 0.3, "own_sync", "(fsync, disk vda)" },
		{ STALL_SYNC, 10e6, 900e6, 900e6, 0.95, "other_load", "the disk vda, which watcher (pid 4711) kept busy" },
		{ STALL_READ, 10e6, 900e6, 900e6, 0.95, "other_load", "watcher" },
		/* it wrote into the page cache, and nothing of that came to the disk */
		{ STALL_SYNC, 200e6, 900e6, 200e6, 0.9, "own_sync", "fsync" },
		/* the disk had next to nothing to do */
		{ STALL_SYNC, 1e6, 60e6, 60e6, 0.05, "own_sync", "fsync" },
		/* as much as the job itself */
		{ STALL_SYNC, 200e6, 200e6, 400e6, 0.9, "own_sync", "fsync" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct run_plan p = stalls(cases[i].stall, 400);
		const struct lg_finding *f;
		struct outcome o;
		bool other;

		p.only_rank = 0;
		p.own_bytes = cases[i].own;
		p.other_bytes = cases[i].other;
		p.disk_bytes = cases[i].disk;
		p.disk_busy = cases[i].busy;
		f = told(&p, "host.io_wait", &o);
		assert_string_equal(f->detail, cases[i].detail);
		assert_non_null(strstr(f->title, cases[i].in_title));
		other = !strcmp(cases[i].detail, "other_load");
		assert_int_equal(f->culprit.pid, other ? CULPRIT_PID : RANK_PID);
		assert_int_equal(f->culprit.relation, other ? LG_RELATION_OTHER_PROCESS : LG_RELATION_SELF);
		assert_true(other || f->culprit.n_stack >= 6);
		assert_int_equal(loud(o.v), 1);
		assert_non_null(strstr(f->fix, other ? "io.max" : cases[i].stall == STALL_SYNC ? "checkpoint" : "read ahead"));
		done(&o);
	}
}

static void of_several_jobs_one_is_judged_and_it_says_which(void **state)
{
	struct run_plan p = stalls(STALL_SOCKET, 400);
	struct outcome o;

	(void)state;
	p.only_rank = 1;
	p.strangers = true;
	o = explain(&p);
	assert_non_null(find(o.v, "host.waited_for"));
	assert_int_equal(find(o.v, "host.waited_for")->victims[0].pid, RANK_PID + 1);
	assert_int_equal(o.v->n_steps, p.n_steps - 1);
	assert_true(has_limit(o.v, "is judged (pid 901), not pid 900"));
	done(&o);
	p.strangers = false;
	p.two_launchers = true;
	p.n_ranks = 4;
	p.only_rank = 2;
	o = explain(&p);
	assert_int_equal(o.v->n_ranks, 2);
	assert_true(has_limit(o.v, "(pids 900, 901), not pids 902, 903"));
	done(&o);
	/* A profiler's trace may not say the pid that the host knows. */
	for (int unknown = 900; unknown <= 902; unknown += 2) {
		struct lg_trace *t = synthetic_run(&p);
		struct lg_verdict *v;
		bool said = false;

		for (size_t i = 1; i < t->process.n; i++)
			if (t->process.pid[i] == unknown)
				t->process.pid[i] = -1;
		assert_int_equal(lg_explain(t, NULL, &v, NULL), 0);
		for (size_t i = 0; i < v->n_limits; i++) {
			assert_null(strstr(v->limits[i], "-1"));
			said |= strstr(v->limits[i], unknown == 900
					? "(pid 901, rank 0, whose pid is unknown), not pids 902, 903"
					: "(pids 900, 901), not pid 903, rank 0, whose pid is unknown") != NULL;
		}
		assert_true(said);
		lg_verdict_free(v);
		lg_trace_free(t);
	}
	/* Four ranks of one job are one job. */
	p.two_launchers = false;
	o = explain(&p);
	assert_int_equal(o.v->n_ranks, 4);
	assert_false(has_limit(o.v, "several jobs"));
	done(&o);
}

/* Steps are inferred of several processes, and nobody said which is meant. */
static void those_that_may_be_meant_are_listed(void **state)
{
	(void)state;
	for (int strangers = 0; strangers < 2; strangers++) {
		struct run_plan p = stalls(STALL_LOCK, 400);
		struct lg_trace *t;
		struct outcome o;

		p.only_rank = 1;
		p.no_marks = true;
		p.strangers = strangers;
		t = synthetic_run(&p);
		for (lg_prc k = 1; strangers && k < t->process.n; k++)
			t->process.role[k] = LG_ROLE_OTHER;
		o = judge(t);
		assert_int_equal(has_limit(o.v, "nobody said which process trains; the busiest are") &&
				 has_limit(o.v, "the one whose slow steps lose the most"), strangers);
		done(&o);
	}
}

/* A thread of the process itself computes while the step waits for it: nobody else's doing, and whose it is
 * is said. */
static void the_thread_that_the_step_waited_for_is_named(void **state)
{
	(void)state;
	for (int computes = 0; computes < 2; computes++) {
		struct run_plan p = stalls(computes ? STALL_FUTEX_HELPER_LOCK : STALL_SOCKET, 400);
		struct lg_trace *t;
		struct outcome o;
		char buf[512];

		p.only_rank = 1;
		p.no_marks = true;
		p.strangers = true;
		p.stalls_for_ns = 5000 * MS; /* or they are the rhythm */
		p.helper_computes = computes;
		t = synthetic_run(&p);
		for (lg_prc k = 1; k < t->process.n; k++)
			t->process.role[k] = LG_ROLE_OTHER;
		o = judge(t);
		assert_true(has_limit(o.v, "the busiest are"));
		assert_int_equal(has_limit(o.v, "is the job's own doing"), computes);
		assert_int_equal(has_limit(o.v, "most of it for what  (pid 901, thread "), computes);
		assert_int_equal(o.v->own_share > 0.9, computes);
		assert_int_equal(o.v->n_findings > 0, !computes);
		assert_int_equal(loud(o.v), 0); /* nothing shows that this is a job */
		assert_int_equal(!strncmp(lg_headline(o.v, buf, sizeof buf), "Mostly the job's own doing: ", 28),
				 computes);
		done(&o);
	}
}

static void a_loop_that_never_waits_is_told_what_would_show_its_steps(void **state)
{
	struct lg_explain_options opt = { .victim_pid = 0 };
	struct lg_builder *b;
	struct lg_verdict *v;
	struct lg_trace *t;
	struct lg_process_row row;
	lg_thr thr;

	(void)state;
	for (int named = 0; named < 2; named++) {
		assert_int_equal(lg_builder_new(&b, NULL), 0);
		thr = lg_thread_get(b, 900, 900);
		row = lg_process_read(b, lg_thread_process(b, thr));
		row.role = named ? LG_ROLE_JOB : LG_ROLE_OTHER;
		lg_process_write(b, lg_thread_process(b, thr), &row);
		lg_add_state(b, &(struct lg_state_row){ .ts = 0, .dur = 5000 * MS, .thr = thr,
							.kind = LG_RUNNING });
		assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
		assert_int_equal(lg_explain(t, &opt, &v, NULL), 0);
		assert_int_equal(v->n_findings, 0);
		assert_true(has_limit(v, "no repeating steps"));
		assert_int_equal(has_limit(v, "ran for 100 % of 5.0 s"), named);
		assert_int_equal(has_limit(v, "waited 0 times: a loop that hardly ever waits"), named);
		assert_int_equal(has_limit(v, "laggard.step()"), named);
		lg_verdict_free(v);
		lg_trace_free(t);
	}
}

enum { LOOP = 900, HOLDER = 4711 };

/* A loop of eight seconds that waits n times for its mmap_lock, in no rhythm. held: the holds are seen. */
static struct lg_trace *waits_now_and_then(int n, int64_t ms, bool named, bool held, bool own)
{
	static const int at[] = { 300, 1100, 1500, 2900, 3300, 4900, 6700, 7300 };
	struct lg_builder *b;
	struct lg_trace *t;
	struct lg_process_row row;
	lg_thr thr, holder;
	int64_t from = 0;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	thr = lg_thread_get(b, LOOP, LOOP);
	holder = lg_thread_get(b, own ? LOOP : HOLDER, HOLDER);
	row = lg_process_read(b, lg_thread_process(b, thr));
	row.role = named ? LG_ROLE_JOB : LG_ROLE_OTHER;
	lg_process_write(b, lg_thread_process(b, thr), &row);
	for (int i = 0; i < n; i++) {
		int64_t ts = at[i] * MS, dur = ms * MS;

		lg_add_state(b, &(struct lg_state_row){ .ts = from, .dur = ts - from, .thr = thr,
							.kind = LG_RUNNING });
		lg_add_state(b, &(struct lg_state_row){ .ts = ts, .dur = dur, .thr = thr, .cpu = -1,
							.kind = LG_BLOCKED, .reason = LG_WHY_DISK,
							.waker = holder, .waker_ctx = LG_CTX_TASK });
		lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = thr,
						      .kind = LG_SPAN_LOCK_WAIT, .object = 4096,
						      .flags = LG_SPAN_MMAP_LOCK | LG_SPAN_WRITE,
						      .name = lg_intern(b, "mmap_lock") });
		if (held)
			lg_add_span(b, &(struct lg_span_row){ .ts = ts - MS, .dur = dur + MS, .thr = holder,
							      .kind = LG_SPAN_LOCK_HOLD, .object = 4096,
							      .flags = LG_SPAN_MMAP_LOCK | LG_SPAN_READ,
							      .name = lg_intern(b, "mmap_lock") });
		from = ts + dur;
	}
	lg_add_state(b, &(struct lg_state_row){ .ts = from, .dur = 8000 * MS - from, .thr = thr,
						.kind = LG_RUNNING });
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

/* Whose steps cannot be told may still have been held up, provably: by whom, and that it has no price. */
static void what_a_loop_without_steps_waited_for_is_told_where_it_is_proven(void **state)
{
	static const struct {
		int n;
		int64_t ms;
		bool named, held, own, finding, told;
	} cases[] = {
		{ 8, 40, true, true, false, true, false },
		{ 8, 40, false, true, false, false, true }, /* nobody said that it trains */
		{ 4, 80, true, true, false, false, true },  /* too few to be graded */
		{ 8, 15, true, true, false, false, true },  /* too little for a medium */
		{ 8, 2, true, true, false, false, false },
		{ 8, 40, true, false, false, false, false }, /* who ended the wait is probable, not proven */
		{ 8, 40, true, true, true, false, false },   /* a thread of its own: no stranger */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct outcome o = judge(waits_now_and_then(cases[i].n, cases[i].ms, cases[i].named,
							    cases[i].held, cases[i].own));
		const struct lg_finding *f = find(o.v, "host.lock_held");

		assert_true(has_limit(o.v, "no repeating steps"));
		assert_int_equal(f != NULL, cases[i].finding);
		assert_int_equal(has_limit(o.v, "for mmap_lock") && has_limit(o.v, "(pid 4711) held it"),
				 cases[i].told);
		if (f) {
			assert_int_equal(f->culprit.pid, HOLDER);
			assert_int_equal(f->victims[0].pid, LOOP);
			assert_true(isnan(f->lost_ms) && isnan(f->lost_share));
			assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
			assert_true(f->confidence > 0.9);
			assert_non_null(strstr(f->evidence[0].text, "8 separate times, 320 ms of 8.0 s (4.0 %)"));
			assert_non_null(strstr(f->against[0].text, "marks would measure it"));
			assert_int_equal(o.v->n_steps, 0);
		}
		if (!i)
			judged_without_memory(&o);
		done(&o);
	}
}

/* The stacks, but for their middle, as Linux 6.18 gives them. */
static void over_the_loopback_the_sender_is_named_and_never_who_was_struck(void **state)
{
#define SENDS "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_sendto", "tcp_sendmsg", "tcp_write_xmit", \
	      "__dev_queue_xmit"
#define RECEIVES "handle_softirqs", "net_rx_action", "__napi_poll"
	static const char *const sender[] = { SENDS, "__local_bh_enable_ip", "do_softirq.part.0", RECEIVES,
					      "process_backlog", "tcp_rcv_established", NULL };
	/* a packet of a real device, received in the same place */
	static const char *const other_device[] = { SENDS, "__local_bh_enable_ip", "do_softirq.part.0", RECEIVES,
						    "virtnet_poll", "tcp_rcv_established", NULL };
	static const char *const struck[] = { SENDS, "asm_common_interrupt", "common_interrupt", "irq_exit_rcu",
					      "__irq_exit_rcu", RECEIVES, "process_backlog",
					      "tcp_rcv_established", NULL };
	static const char *const struck_in_python[] = { "_PyEval_EvalFrameDefault", "asm_sysvec_apic_timer_interrupt",
							"sysvec_apic_timer_interrupt", "__irq_exit_rcu", RECEIVES,
							"process_backlog", NULL };
	static const char *const worker[] = { "ret_from_fork", "kthread", "smpboot_thread_fn", "run_ksoftirqd",
					      RECEIVES, "process_backlog", NULL };
	/* soft interrupts enabled by something else than sending */
	static const char *const elsewhere[] = { "entry_SYSCALL_64_after_hwframe", "do_syscall_64",
						 "__x64_sys_futex", "__local_bh_enable_ip", "do_softirq.part.0",
						 RECEIVES, "process_backlog", "tcp_rcv_established", NULL };
	static const char *const *const stacks[] = { sender, other_device, struck, struck_in_python, worker,
						     elsewhere };

	(void)state;
	for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
		struct run_plan p = stalls(STALL_TCP, 900);
		const struct lg_finding *f;
		struct outcome o;

		p.waker_stack = stacks[i];
		o = explain(&p);
		f = find(o.v, "host.waited_for");
		assert_int_equal(f != NULL, i == 0);
		if (f) {
			assert_int_equal(f->culprit.pid, CULPRIT_PID);
			assert_string_equal(f->culprit.lock, "sk_wait_data");
		} else {
			assert_int_equal(loud(o.v), 0);
			assert_true(has_limit(o.v, "waited for the network"));
		}
		done(&o);
	}
}

/* A heartbeat wakes who waits until a time of its own; an answer in pieces is waited for to its end. */
static void who_wakes_a_thread_before_its_time_did_not_keep_it(void **state)
{
	(void)state;
	for (int own_timer = 0; own_timer < 2; own_timer++) {
		struct run_plan p = stalls(STALL_SOCKET, 900);
		struct outcome o;

		p.n_waits = 8;
		p.own_timer = own_timer;
		p.asleep = true;
		o = explain(&p);
		assert_int_equal(find(o.v, "host.waited_for") != NULL, !own_timer);
		/* The rank itself is late then. */
		for (size_t i = 0; own_timer && i < o.v->n_findings; i++)
			assert_int_not_equal(o.v->findings[i].culprit.pid, CULPRIT_PID);
		done(&o);
	}
}

static void who_waited_by_way_of_another_is_named_with_it(void **state)
{
	struct run_plan p = stalls(STALL_SOCKET, 900);
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.by_way = true;
	f = told(&p, "host.waited_for", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_true(f->n_victims == 1 && f->victims[0].pid >= RANK_PID && f->victims[0].pid < RANK_PID + 16);
	assert_non_null(strstr(f->title, " (by way of relay (pid 5100)) waited for watcher"));
	done(&o);
}

/* Whoever let it go on stopped it; only a tracer lets go what it traces. A timer tells of nobody. */
static void who_let_a_stopped_thread_go_on_is_named(void **state)
{
	static const struct {
		const char *stack[5];
		double confidence;
		bool by_way, by_timer;
		const char *title;
	} cases[] = {
		{ { "entry_SYSCALL_64", "get_signal", "ptrace_stop" }, 0.9, false, false, " stopped by watcher (pid 4711)" },
		{ { "entry_SYSCALL_64", "get_signal", "do_signal_stop" }, 0.55, false, false, " stopped by watcher (pid 4711)" },
		{ { "entry_SYSCALL_64", "get_signal", "ptrace_stop" }, 0.9, true, false, "relay (pid 5100) stopped by watcher" },
		{ { "entry_SYSCALL_64", "get_signal", "do_signal_stop" }, 0.96, false, true, " stopped by a signal or a tracer" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct run_plan p = stalls(STALL_SOCKET, 900);
		const struct lg_finding *f;
		struct outcome o;

		p.by_way = cases[i].by_way;
		p.relay_stack = cases[i].by_way ? cases[i].stack : NULL;
		p.wait_stack = cases[i].by_way ? NULL : cases[i].stack;
		p.own_timer = cases[i].by_timer;
		f = told(&p, "host.stopped", &o);
		assert_int_equal(f->culprit.pid, cases[i].by_timer ? -1 : CULPRIT_PID);
		assert_non_null(strstr(f->title, cases[i].title));
		assert_true(!cases[i].by_way || strstr(f->title, "; rank"));
		assert_float_equal(f->strength, cases[i].confidence, 0.01);
		done(&o);
	}
}

static void what_ended_a_wait_is_called_what_it_is(void **state)
{
	static const struct {
		const char *stack[5], *words, *detail, *fix;
	} cases[] = {
		{ { "entry_SYSCALL_64", "do_futex", "futex_wait", "futex_wait_queue" },
		  "to release the lock or semaphore that they share (futex_wait_queue)", "shared_lock",
		  "hold it for less time" },
		{ { "entry_SYSCALL_64", "__do_semtimedop" }, "to post the semaphore (__do_semtimedop)", "shared_lock",
		  "hold it for less time" },
		{ { "entry_SYSCALL_64", "ksys_msgrcv", "do_msgrcv" }, "to send a message (do_msgrcv)", "pipe",
		  "other end" },
		{ { "entry_SYSCALL_64", "vfs_read", "pipe_read" }, "to write into the pipe (pipe_read)", "pipe",
		  "other end" },
		{ { "entry_SYSCALL_64", "do_epoll_wait", "ep_poll" }, "to signal it (ep_poll)", NULL, "request" },
		{ { "entry_SYSCALL_64", "tcp_recvmsg", "sk_wait_data" }, "to answer (sk_wait_data)", "answer",
		  "request" },
		{ { "entry_SYSCALL_64", "some_driver_ioctl", "some_driver_wait" }, "to go on (some_driver_wait)",
		  NULL, "request" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct run_plan p = stalls(STALL_SOCKET, 900);
		const struct lg_finding *f;
		struct outcome o;

		p.wait_stack = cases[i].stack;
		f = told(&p, "host.waited_for", &o);
		assert_non_null(strstr(f->title, cases[i].words));
		if (cases[i].detail)
			assert_string_equal(f->detail, cases[i].detail);
		else
			assert_null(f->detail);
		assert_non_null(strstr(f->fix, cases[i].fix));
		done(&o);
	}
}

static void who_held_pythons_lock_is_named_only_where_it_ran_python(void **state)
{
	static const struct {
		const char *file;
		bool not_by_helper, late;
		double share; /* of the excess that it explains; 0 = no finding */
	} cases[] = {
		{ "/usr/bin/python3.11", false, false, 1 },
		{ "/opt/conda/lib/libpython3.12.so.1.0", false, false, 1 },
		/* a poll of something that the other thread works on without the lock */
		{ "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", false, false, 0 },
		/* nobody let it go */
		{ "/usr/bin/python3.11", true, false, 0 },
		/* somebody else had it before */
		{ "/usr/bin/python3.11", false, true, 0.5 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct run_plan p = stalls(STALL_GIL, 900);
		const struct lg_finding *f;
		struct outcome o;

		p.only_rank = 1;
		p.helper_runs = cases[i].file;
		p.not_by_helper = cases[i].not_by_helper;
		p.helper_came_late = cases[i].late;
		o = explain(&p);
		f = find(o.v, "python.gil_wait");
		assert_int_equal(f != NULL, cases[i].share > 0);
		assert_int_equal(loud(o.v), cases[i].share > 0);
		if (f) {
			assert_int_equal(f->culprit.relation, LG_RELATION_SAME_PROCESS);
			assert_int_equal(f->culprit.pid, RANK_PID + 1);
			assert_int_equal(f->culprit.tid, 5001);
			assert_int_equal(f->n_victims, 1);
			assert_true(fabs(f->excess_share - cases[i].share) < 0.05);
			assert_non_null(strstr(f->fix, "process of its own"));
		}
		done(&o);
	}
}

static void a_native_call_that_keeps_pythons_lock_is_told_from_python_code(void **state)
{
	static const struct {
		int gil;
		const char *file, *detail; /* detail NULL = no finding */
		bool not_by_helper;
		enum lg_gil_did did;
	} cases[] = {
		{ GIL_KEPT, "/opt/x/libkeeper.so", "native_call", false, LG_GIL_NATIVE },
		/* the C library may be at work for anybody: that the lock was kept tells for whom */
		{ GIL_KEPT, "/usr/lib/libc.so.6", "native_call", true, LG_GIL_LIBRARY },
		{ GIL_KEPT, "/usr/bin/python3.11", "native_call", false, LG_GIL_PYTHON }, /* a builtin */
		{ GIL_SLEPT, "/opt/x/libkeeper.so", "native_call", false, LG_GIL_ASLEEP },
		{ GIL_GIVEN, "/usr/bin/python3.11", "python", false, LG_GIL_PYTHON },
		{ GIL_NOBODYS, "/usr/bin/python3.11", NULL, true, LG_GIL_PYTHON },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool native = cases[i].detail && !strcmp(cases[i].detail, "native_call");
		struct run_plan p = stalls(STALL_GIL, 900);
		const struct lg_finding *f;
		struct outcome o;
		bool seen = false;

		p.only_rank = 1;
		p.gil = cases[i].gil;
		p.helper_runs = cases[i].file;
		p.not_by_helper = cases[i].not_by_helper;
		o = explain(&p);
		f = find(o.v, "python.gil_wait");
		assert_int_equal(f != NULL, cases[i].detail != NULL);
		if (f) {
			assert_string_equal(f->detail, cases[i].detail);
			assert_int_equal(f->culprit.tid, 5001);
			assert_true(f->excess_share > 0.9);
			assert_int_equal(strstr(f->title, "native call that does not give it up") != NULL, native);
			assert_int_equal(strstr(f->fix, "Py_BEGIN_ALLOW_THREADS") != NULL, native);
		}
		for (size_t k = 0; k < o.v->n_gil; k++) {
			const struct lg_gil_row *r = &o.v->gil[k];

			seen |= r->did == cases[i].did;
			if (r->did == LG_GIL_WAITED) {
				assert_int_equal(r->error, 0);
				assert_true(native ? r->refused * 10 > r->ns * 8 :
					    cases[i].detail ? r->refused * 10 < r->ns : true);
				assert_true(native ? r->longest * (int64_t)r->times >= r->ns :
					    r->longest <= r->ns);
			}
		}
		assert_true(seen);
		done(&o);
	}
}

/* Where waits lead nowhere Python's lock is guessed at only if nobody recorded it. */
static void pythons_lock_is_guessed_at_only_where_it_was_not_recorded(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct run_plan p = stalls(STALL_GIL, 300);
		struct outcome o;

		p.helper_runs = "/usr/bin/python3.11";
		p.not_by_helper = true;
		p.gil = i ? GIL_NOBODYS : GIL_UNTOLD;
		o = explain(&p);
		assert_true(has_limit(o.v, "of the critical path is unexplained"));
		assert_int_equal(has_limit(o.v, "wait for the GIL"), !i);
		assert_int_equal(has_limit(o.v, "py-spy"), !i);
		done(&o);
	}
}

static void survives_the_failure_of_any_allocation(void **state)
{
	static const enum stall kinds[] = { STALL_SYNC, STALL_GIL, STALL_GIL };

	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct run_plan p = stalls(kinds[i], 100);

		p.n_steps = 60;
		p.helper_runs = "/usr/bin/python3.11";
		p.gil = i == 2 ? GIL_KEPT : GIL_UNTOLD;
		p.two_launchers = i == 0;
		p.n_ranks = i == 0 ? 4 : 2;
		p.own_bytes = p.disk_bytes = 50e6;
		p.disk_busy = 0.5;
		survives_without_memory(&p);
	}
}

/*
 * perf sched record: no stacks, and the waker of a timer's wake-up is whoever the timer struck. A program
 * that computes all the time is as busy as the one that has steps.
 */
static struct outcome loop_with_chance_wakers(int slow_every)
{
	struct outcome o = { 0 };
	struct lg_builder *b;
	struct lg_trace *t;
	lg_thr thr, other, hog;
	int64_t ts = 0;
	uint32_t seed = 7;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	thr = lg_thread_get(b, 900, 900);
	other = lg_thread_get(b, 901, 901);
	hog = lg_thread_get(b, 902, 902);
	for (int i = 0; i < 400; i++) {
		int64_t run = slow_every && i % slow_every == 50 ? 200 * MS : 13 * MS;
		bool struck = (seed = seed * 1103515245 + 12345) >> 16 & 3;

		lg_add_state(b, &(struct lg_state_row){ .ts = ts, .dur = run, .thr = thr,
							.kind = LG_RUNNING });
		lg_add_state(b, &(struct lg_state_row){ .ts = ts + run, .dur = MS, .thr = thr, .cpu = -1,
							.kind = LG_BLOCKED, .reason = LG_WHY_SLEEP,
							.waker = struck ? 0 : other });
		ts += run + MS;
	}
	lg_add_state(b, &(struct lg_state_row){ .ts = 0, .dur = ts, .thr = hog, .kind = LG_RUNNING });
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	o.t = t;
	assert_int_equal(lg_explain(t, &(struct lg_explain_options){ 0 }, &o.v, NULL), 0);
	return o;
}

static void whom_a_timer_struck_does_not_part_the_steps(void **state)
{
	struct outcome o = loop_with_chance_wakers(0);

	(void)state;
	assert_in_range(o.v->n_steps, 395, 400);
	assert_int_equal(o.v->n_slow, 0);
	assert_int_equal(o.v->scope, LG_SCOPE_SINGLE);
	done(&o);
	o = loop_with_chance_wakers(100);
	assert_int_equal(o.v->n_slow, 4);
	/* The hog repeats nothing: it is no second rank that hides whose doing it is. */
	assert_true(has_limit(o.v, "is the job's own doing"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_for_the_disk_is_for_ones_own_writes_unless_numbers_name_another),
		cmocka_unit_test(of_several_jobs_one_is_judged_and_it_says_which),
		cmocka_unit_test(those_that_may_be_meant_are_listed),
		cmocka_unit_test(whom_a_timer_struck_does_not_part_the_steps),
		cmocka_unit_test(what_a_loop_without_steps_waited_for_is_told_where_it_is_proven),
		cmocka_unit_test(the_thread_that_the_step_waited_for_is_named),
		cmocka_unit_test(a_loop_that_never_waits_is_told_what_would_show_its_steps),
		cmocka_unit_test(over_the_loopback_the_sender_is_named_and_never_who_was_struck),
		cmocka_unit_test(who_wakes_a_thread_before_its_time_did_not_keep_it),
		cmocka_unit_test(who_waited_by_way_of_another_is_named_with_it),
		cmocka_unit_test(who_let_a_stopped_thread_go_on_is_named),
		cmocka_unit_test(what_ended_a_wait_is_called_what_it_is),
		cmocka_unit_test(who_held_pythons_lock_is_named_only_where_it_ran_python),
		cmocka_unit_test(a_native_call_that_keeps_pythons_lock_is_told_from_python_code),
		cmocka_unit_test(pythons_lock_is_guessed_at_only_where_it_was_not_recorded),
		cmocka_unit_test(survives_the_failure_of_any_allocation),
	};

	return cmocka_run_group_tests_name("waits", tests, NULL, NULL);
}
