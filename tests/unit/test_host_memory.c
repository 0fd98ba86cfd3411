/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of processes that grows from step to step, who was killed for it, and what allocators count; each
 * beside what looks alike and is healthy. */
#include "outcome.h"
#include "record/host_memory.h"
#include "store/builder.h"

#define MIB 1048576.0
#define SECOND INT64_C(1000000000)
enum { STEPS_A_SECOND = 50, SECONDS = 30, RANK_PID = 900, WORKER_PID = 910 };

struct made {
	struct lg_builder *b;
	lg_prc rank, worker;
	lg_thr thr, of_worker;
	struct lg_trace *t;
};

static lg_prc process(struct made *m, int32_t pid, int32_t ppid, int32_t rank)
{
	return lg_process_add(m->b,
			      &(struct lg_process_row){ .start = INT64_MIN,
							.end = INT64_MAX,
							.pid = pid,
							.ppid = ppid,
							.rank = rank,
							.local_rank = -1,
							.role = rank >= 0 ? LG_ROLE_RANK : LG_ROLE_LOADER,
							.comm = lg_intern(m->b, "python3") });
}

/* A rank that makes 50 steps a second, and a loader worker of its. */
static struct made begin(void)
{
	struct made m = { 0 };

	assert_int_equal(lg_builder_new(&m.b, NULL), 0);
	m.rank = process(&m, RANK_PID, 1, 0);
	m.worker = process(&m, WORKER_PID, RANK_PID, -1);
	m.thr = lg_thread_add(m.b, &(struct lg_thread_row){ .start = INT64_MIN,
							    .end = INT64_MAX,
							    .tid = RANK_PID,
							    .prc = m.rank,
							    .flags = LG_THREAD_MAIN });
	m.of_worker = lg_thread_add(m.b, &(struct lg_thread_row){ .start = INT64_MIN,
								  .end = INT64_MAX,
								  .tid = WORKER_PID,
								  .prc = m.worker,
								  .flags = LG_THREAD_MAIN });
	for (int64_t i = 0; i < STEPS_A_SECOND * SECONDS; i++) {
		int64_t ts = SECOND + i * SECOND / STEPS_A_SECOND;

		lg_add_span(m.b, &(struct lg_span_row){ .ts = ts,
							.dur = SECOND / STEPS_A_SECOND,
							.thr = m.thr,
							.kind = LG_SPAN_STEP,
							.seq = i + 1 });
		lg_add_span(m.b, &(struct lg_span_row){ .ts = ts,
							.dur = SECOND / STEPS_A_SECOND / 2,
							.thr = m.thr,
							.kind = LG_SPAN_STAGE,
							.stage = LG_STAGE_FORWARD,
							.name = lg_intern(m.b, "Net") });
	}
	return m;
}

static void count(struct made *m, lg_prc prc, lg_trk parent, const char *name, int64_t ts, double value)
{
	lg_trk k = lg_track_get(m->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
							      .prc = prc,
							      .parent = parent,
							      .name = lg_intern(m->b, name),
							      .index = -1 });

	lg_add_counter(m->b, &(struct lg_counter_row){ ts, k, value });
}

/* Each second what of(second) says, MiB. */
static void watch(struct made *m, lg_prc prc, const char *name, double (*of)(int s))
{
	for (int s = 0; s <= SECONDS; s++)
		count(m, prc, 0, name, SECOND + s * SECOND, of(s) * MIB);
}

static double leaks(int s) { return 300 + 2.0 * STEPS_A_SECOND * s; } /* 2 MiB a step */
static double stands(int s) { return 300 + (s % 2) * 3; }
static double fills_up(int s) { return 300 + 1000 * (1 - exp(-s / 4.0)); }
static double saws(int s) { return 300 + 100 * (s % 6); }
static double jumps(int s) { return s < 15 ? 300 : 900; }
static double creeps(int s) { return 300 + 0.3 * s; } /* 9 MiB in all */

static struct outcome judge_made(struct made *m)
{
	assert_int_equal(lg_builder_seal(m->b, &m->t, NULL), 0);
	return judge(m->t);
}

static const struct lg_finding *leak_of(const struct outcome *o, size_t *ret_n)
{
	const struct lg_finding *f = NULL;

	*ret_n = 0;
	for (size_t i = 0; i < o->v->n_findings; i++)
		if (!strcmp(o->v->findings[i].id, "mem.leak")) {
			f = &o->v->findings[i];
			(*ret_n)++;
		}
	return f;
}

static void a_rank_that_grows_is_told_by_step(void **state)
{
	struct made m = begin();
	const struct lg_finding *f;
	struct outcome o;
	size_t n;

	(void)state;
	watch(&m, m.rank, "process.anon", leaks);
	watch(&m, m.worker, "process.anon", stands);
	o = judge_made(&m);
	f = leak_of(&o, &n);
	assert_int_equal(n, 1);
	assert_string_equal(f->detail, "host");
	assert_int_equal(f->culprit.pid, RANK_PID);
	assert_int_equal(f->culprit.rank, 0);
	assert_non_null(strstr(f->title, "rank 0 grows by 2.00 MiB a step"));
	assert_int_equal(f->n_against, 1); /* which line is not known */
	done(&o);
}

static void what_fills_saws_jumps_or_creeps_is_no_leak(void **state)
{
	static double (*const of[])(int s) = { stands, fills_up, saws, jumps, creeps };

	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct made m = begin();
		struct outcome o;
		size_t n;

		watch(&m, m.rank, "process.anon", of[i]);
		o = judge_made(&m);
		leak_of(&o, &n);
		if (n)
			fail_msg("case %zu is told as a leak", i);
		done(&o);
	}
}

static void a_worker_that_copies_what_it_shares(void **state)
{
	(void)state;
	for (int healthy = 0; healthy < 2; healthy++) {
		struct made m = begin();
		const struct lg_finding *f;
		struct outcome o;
		size_t n;

		watch(&m, m.rank, "process.anon", stands);
		watch(&m, m.worker, "process.anon", stands);
		watch(&m, m.worker, "process.private", healthy ? fills_up : leaks);
		o = judge_made(&m);
		f = leak_of(&o, &n);
		assert_int_equal(n, !healthy);
		if (f) {
			assert_string_equal(f->detail, "copy_on_write");
			assert_int_equal(f->culprit.pid, WORKER_PID);
			assert_non_null(strstr(f->title, "1 loader worker of rank 0"));
		}
		done(&o);
	}
}

/* All of it grows: what it has of its own is part of that, and told once. */
static void a_worker_that_grows_is_no_copy_on_write(void **state)
{
	struct made m = begin();
	struct outcome o;
	size_t n;

	(void)state;
	watch(&m, m.worker, "process.anon", leaks);
	watch(&m, m.worker, "process.private", leaks);
	o = judge_made(&m);
	assert_string_equal(leak_of(&o, &n)->detail, "workers");
	assert_int_equal(n, 1);
	done(&o);
}

static lg_stk frame(struct made *m, const char *function, const char *file, uint32_t number, lg_stk below)
{
	return lg_intern_stack(
		m->b, below,
		lg_intern_frame(m->b, &(struct lg_frame_row){ .kind = LG_FRAME_PYTHON,
							      .line = number,
							      .name = lg_intern(m->b, function),
							      .file = lg_intern(m->b, file),
							      .dso = lg_intern(m->b, "[python]") }));
}

static lg_stk line(struct made *m, const char *function, uint32_t number, lg_stk below)
{
	return frame(m, function, "/job/train.py", number, below);
}

static void faults(struct made *m, lg_thr thr, lg_stk stack, double mib_a_second)
{
	for (int64_t i = 0; i < SECONDS; i++)
		lg_add_sample(m->b, &(struct lg_sample_row){ .ts = SECOND + i * SECOND + 5,
							     .thr = thr,
							     .stack = stack,
							     .weight = (uint64_t)(mib_a_second * 256),
							     .cpu = 0,
							     .event = lg_intern(m->b, "page-faults"),
							     .flags = LG_SAMPLE_TRACEPOINT });
}

static void look(struct made *m, const char *what, double mib_a_step)
{
	for (int64_t i = 0; i < SECONDS; i += 3)
		lg_add_mark(m->b, &(struct lg_mark_row){ .ts = SECOND + i * SECOND + 7,
							 .thr = m->thr,
							 .name = lg_intern(m->b, "memory.container"),
							 .text = lg_intern(m->b, what),
							 .value = (int64_t)(mib_a_step * MIB) });
}

/* What keeps it is named where it makes up for most of the growth; who touched it first is not. */
static void the_container_is_named_that_grows_by_as_much(void **state)
{
	static const struct {
		const char *what, *detail, *function;
		double mib;
	} cases[] = {
		{ "list kept of __main__", "host", "list kept of __main__", 2 },
		{ "list kept of __main__, whose items keep their graphs", "host_graph",
		  "list kept of __main__", 2 },
		{ "list losses of __main__", "host", NULL, 0.01 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct made m = begin();
		const struct lg_finding *f;
		struct outcome o;
		size_t n;

		watch(&m, m.rank, "process.anon", leaks);
		faults(&m, m.thr, line(&m, "augment", 12, 0), 100);
		look(&m, cases[i].what, cases[i].mib);
		look(&m, "dict seen of __main__", 0.001);
		o = judge_made(&m);
		f = leak_of(&o, &n);
		assert_int_equal(n, 1);
		assert_string_equal(f->detail, cases[i].detail);
		assert_int_equal(f->culprit.function != NULL, cases[i].function != NULL);
		if (cases[i].function) {
			assert_string_equal(f->culprit.function, cases[i].function);
			assert_non_null(strstr(f->title, ", kept in list kept of __main__"));
		}
		assert_int_equal(f->n_against, !cases[i].function);
		done(&o);
	}
}

/* Of copies who writes to the pages is named, if most of what was touched must be that. */
static void the_line_is_named_that_makes_the_copies(void **state)
{
	(void)state;
	for (int much_goes = 0; much_goes < 2; much_goes++) {
		struct made m = begin();
		const struct lg_finding *f;
		struct outcome o;
		size_t n;

		watch(&m, m.worker, "process.anon", stands);
		watch(&m, m.worker, "process.private", leaks);
		faults(&m, m.of_worker, line(&m, "__getitem__", 44, 0), 100);
		faults(&m, m.of_worker, line(&m, "augment", 12, 0), much_goes ? 900 : 10);
		o = judge_made(&m);
		f = leak_of(&o, &n);
		assert_int_equal(n, 1);
		assert_int_equal(strstr(f->title, ", in __getitem__ (train.py:44)") != NULL, !much_goes);
		done(&o);
	}
}

/* ---- killed for want of memory ---- */

static void group(struct made *m, bool kills)
{
	for (int s = 0; s <= SECONDS; s++) {
		count(m, 0, 0, "cgroup.oom_kills /job", SECOND + s * SECOND, kills && s > 20 ? 1 : 0);
		count(m, 0, 0, "cgroup.memory_limit /job", SECOND + s * SECOND, 512 * MIB);
	}
}

static void ended(struct made *m, lg_prc prc, int64_t ts)
{
	struct lg_process_row r = lg_process_read(m->b, prc);

	r.end = ts;
	lg_process_write(m->b, prc, &r);
}

static void who_the_kernel_killed(void **state)
{
	(void)state;
	for (int draw = 0; draw < 4; draw++) { /* nobody; who ended; by the signal; somebody else */
		struct made m = begin();
		const struct lg_finding *f;
		struct outcome o;

		group(&m, draw > 0);
		watch(&m, m.rank, "process.anon", leaks);
		if (draw == 1 || draw == 2)
			ended(&m, m.rank, SECOND + 20 * SECOND + SECOND / 2);
		if (draw == 2)
			lg_add_mark(m.b, &(struct lg_mark_row){
						 .ts = SECOND + 20 * SECOND + SECOND / 2,
						 .thr = m.thr,
						 .name = lg_intern(m.b, "signal"),
						 .text = lg_intern(
							 m.b, "SIGKILL from pid 900 tid 900 (python3)") });
		o = judge_made(&m);
		f = find(o.v, "mem.oom");
		assert_int_equal(f != NULL, draw > 0);
		if (f) {
			assert_string_equal(f->detail, "cgroup");
			assert_int_equal(f->culprit.pid, draw == 3 ? -1 : RANK_PID);
			assert_int_equal(strstr(f->title, "rank 0 (pid 900)") != NULL, draw < 3);
			assert_non_null(strstr(f->title, "512.00 MiB"));
		}
		done(&o);
	}
}

/* ---- what an allocator counts ---- */

struct counted {
	double allocated, reserved, inactive, retries, ooms;
	const char *id; /* NULL: nothing */
};

static void counts_of_the_allocator(void **state)
{
	static const struct counted cases[] = {
		{ 3000, 4000, 100, 0, 0, NULL },
		{ 2000, 4000, 1500, 0, 0, "mem.fragmentation" },
		{ 3900, 4000, 1500, 0, 0, NULL }, /* it was of use at the peak */
		{ 20, 100, 60, 0, 0, NULL },	  /* of a small model */
		{ 3000, 4000, 100, 7, 0, "gpu.allocator_sync" },
		{ 3000, 4000, 100, 0, 2, "mem.oom" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct made m = begin();
		lg_trk gpu = lg_track_get(m.b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
								       .prc = m.rank,
								       .name = lg_intern(m.b, "GPU 0") });
		struct outcome o;
		size_t n = 0;

		for (int s = 0; s < SECONDS; s++) {
			int64_t ts = SECOND + s * SECOND;

			count(&m, m.rank, gpu, "memory allocated peak", ts, cases[i].allocated * MIB);
			count(&m, m.rank, gpu, "memory reserved peak", ts, cases[i].reserved * MIB);
			count(&m, m.rank, gpu, "memory inactive", ts, cases[i].inactive * MIB);
			count(&m, m.rank, gpu, "memory retries", ts, s > 10 ? cases[i].retries : 0);
			count(&m, m.rank, gpu, "memory ooms", ts, s > 10 ? cases[i].ooms : 0);
		}
		o = judge_made(&m);
		for (size_t k = 0; k < o.v->n_findings; k++)
			n += !strncmp(o.v->findings[k].id, "mem.", 4) ||
			     !strcmp(o.v->findings[k].id, "gpu.allocator_sync");
		if (n != (cases[i].id ? 1u : 0u) || (cases[i].id && !find(o.v, cases[i].id)))
			fail_msg("case %zu: %zu findings, not %s", i, n, cases[i].id ? cases[i].id : "none");
		done(&o);
	}
}

static void what_a_status_tells(void **state)
{
	static const char text[] =
		"Name:\tpython3\nVmPeak:\t 9000 kB\nVmRSS:\t  700 kB\nRssAnon:\t 400 kB\nRssFile:\t 200 kB\n"
		"RssShmem:\t 100 kB\nVmSwap:\t  50 kB\n";
	struct lg_process_memory p = { 0 };

	(void)state;
	assert_true(lg_host_memory_parse(text, &p));
	assert_int_equal(p.rss, 700 * 1024);
	assert_int_equal(p.anon, 550 * 1024);
	assert_false(lg_host_memory_parse("Name:\tkworker/0:1\nThreads:\t1\n", &p));
	assert_false(lg_host_memory_parse("\nVmRSS:\t 99999999999999999999 kB\nRssAnon:\t 1 kB\n", &p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_grows_is_told_by_step),
		cmocka_unit_test(what_fills_saws_jumps_or_creeps_is_no_leak),
		cmocka_unit_test(a_worker_that_copies_what_it_shares),
		cmocka_unit_test(a_worker_that_grows_is_no_copy_on_write),
		cmocka_unit_test(the_container_is_named_that_grows_by_as_much),
		cmocka_unit_test(the_line_is_named_that_makes_the_copies),
		cmocka_unit_test(who_the_kernel_killed),
		cmocka_unit_test(counts_of_the_allocator),
		cmocka_unit_test(what_a_status_tells),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
