/* SPDX-License-Identifier: Apache-2.0 */
/* Runs whose cause is known by construction: the verdict must say it, and say nothing else. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "advise/advise.h"
#include "analyse/explain.h"
#include "base/alloc.h"
#include "synthetic_run.h"

#define MS 1000000ll

struct outcome {
	struct lg_trace *t;
	struct lg_verdict *v;
};

static struct outcome explain(const struct run_plan *p)
{
	struct outcome o;
	struct lg_error err;

	o.t = synthetic_run(p);
	assert_int_equal(lg_explain(o.t, NULL, &o.v, &err), 0);
	/* Whatever the cause: the parts of every step tile it to the nanosecond. */
	for (size_t i = 0; i < o.v->n_steps; i++) {
		const struct lg_step *s = &o.v->steps[i];
		int64_t at = s->ts;

		for (uint32_t k = 0; k < s->n_parts; k++) {
			const struct lg_part *part = &o.v->parts[s->part_first + k];

			assert_int_equal(part->ts, at);
			assert_true(part->dur > 0);
			at += part->dur;
		}
		assert_int_equal(at, s->ts + s->dur);
	}
	return o;
}

static void done(struct outcome *o)
{
	lg_verdict_free(o->v);
	lg_trace_free(o->t);
}

static const struct lg_finding *find(const struct lg_verdict *v, const char *id)
{
	for (size_t i = 0; i < v->n_findings; i++)
		if (!strcmp(v->findings[i].id, id))
			return &v->findings[i];
	return NULL;
}

static bool has_limit(const struct lg_verdict *v, const char *words)
{
	for (size_t i = 0; i < v->n_limits; i++)
		if (strstr(v->limits[i], words))
			return true;
	return false;
}

static size_t loud(const struct lg_verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_findings; i++)
		n += !strcmp(v->findings[i].severity, "medium") ||
		     !strcmp(v->findings[i].severity, "high");
	return n;
}

static const struct run_plan base = { .n_ranks = 2, .n_steps = 2000, .only_rank = -1,
				      .steady_late_rank = -1, .stall_ns = 80 * MS };

static void a_healthy_run_gets_no_finding(void **state)
{
	struct outcome o = explain(&base);

	(void)state;
	assert_int_equal(loud(o.v), 0);
	assert_int_equal(o.v->n_slow, 0);
	assert_string_equal(o.v->shape, "steady");
	assert_int_equal(o.v->n_judged, 1999);
	done(&o);
}

static void names_the_holder_of_the_lock(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_LOCK;
	p.period_ns = 2500 * MS;
	o = explain(&p);
	f = find(o.v, "host.lock_held");
	assert_non_null(f);
	assert_ptr_equal(f, &o.v->findings[0]);
	assert_int_equal(loud(o.v), 1);
	assert_string_equal(f->culprit.relation, "other_process");
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.function, "gather_stats");
	assert_string_equal(f->culprit.lock, "mmap_lock");
	assert_int_equal(f->n_victims, 2);
	assert_string_equal(o.v->shape, "periodic");
	assert_true(fabs(o.v->period_s - 2.5) < 0.05);
	assert_string_equal(o.v->scope, "rotating");
	/* Each stall is 80 ms, and every nanosecond is counted once though two ranks lost it. */
	assert_true(fabs(f->lost_ms - 80.0 * (double)o.v->n_slow) < 2.0 * (double)o.v->n_slow);
	assert_true(f->excess_share > 0.95);
	assert_true(f->confidence > 0.9);
	done(&o);
}

static void a_lock_of_one_rank_is_rank_local(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.stall = STALL_LOCK;
	p.period_ns = 700 * MS;
	p.only_rank = 1;
	p.explicit_collective = true;
	o = explain(&p);
	assert_non_null(find(o.v, "host.lock_held"));
	assert_string_equal(o.v->scope, "rank_local");
	assert_int_equal(find(o.v, "host.lock_held")->n_victims, 1);
	assert_int_equal(find(o.v, "host.lock_held")->victims[0].rank, 1);
	done(&o);
}

static void stalls_of_all_ranks_at_once_are_global(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.stall = STALL_LOCK;
	p.period_ns = 1100 * MS;
	p.all_ranks = true;
	o = explain(&p);
	assert_string_equal(o.v->scope, "global");
	done(&o);
}

static void follows_a_helper_thread_to_the_holder(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_FUTEX_HELPER_LOCK;
	p.period_ns = 900 * MS;
	o = explain(&p);
	f = find(o.v, "host.lock_held");
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_true(f->excess_share > 0.9);
	done(&o);
}

static void an_owner_without_a_hold_is_less_sure(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_LOCK;
	p.period_ns = 900 * MS;
	p.no_hold_rows = true;
	o = explain(&p);
	f = find(o.v, "host.lock_held");
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_true(f->confidence < 0.95 && f->confidence > 0.5);
	done(&o);
}

static void names_who_kept_the_file_lock(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_FILE_LOCK;
	p.period_ns = 1700 * MS;
	o = explain(&p);
	f = find(o.v, "host.lock_held");
	assert_non_null(f);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.lock, "file lock");
	assert_true(f->excess_share > 0.9);
	assert_true(fabs(o.v->period_s - 1.7) < 0.05);
	done(&o);
}

static bool is_limited(const struct lg_verdict *v, const char *what)
{
	for (size_t i = 0; i < v->n_limits; i++)
		if (strstr(v->limits[i], what))
			return true;
	return false;
}

/* A tool started anew for each look: one cause, by the name of who starts it. */
static void servants_of_one_master_are_one_cause(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_FILE_LOCK;
	p.period_ns = 1700 * MS;
	p.servants = true;
	o = explain(&p);
	f = find(o.v, "host.lock_held");
	assert_non_null(f);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_non_null(strstr(f->title, "processes started by"));
	done(&o);
}

/* The spacing of polls is no repetition of the program's. */
static void polled_states_give_no_steps(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.no_marks = true;
	p.tier = "own";
	o = explain(&p);
	assert_int_equal(o.v->n_judged, 0);
	assert_true(is_limited(o.v, "read from /proc"));
	done(&o);
}

/* Ready to run beside an idle CPU: the quota where its counter grows, unexplained where it stands still. */
static void a_used_up_quota_is_told_from_mere_latency(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct run_plan p = base;
		struct outcome o;
		const struct lg_finding *f;

		p.stall = STALL_QUOTA;
		p.period_ns = 500 * MS;
		p.throttled_ns = i ? 0 : 90e6;
		o = explain(&p);
		f = find(o.v, "host.cpu_throttled");
		assert_int_equal(f != NULL, !i);
		assert_int_equal(loud(o.v), !i);
		if (f) {
			assert_non_null(strstr(f->title, "/job: 2.5 CPUs"));
			assert_true(f->excess_share > 0.9);
		}
		done(&o);
	}
}

/* It computed, or slept, before it answered; what the job's own processes do is the job's business. */
static void names_the_program_that_had_to_answer(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct run_plan p = base;
		struct outcome o;
		const struct lg_finding *f;

		p.stall = STALL_SOCKET;
		p.period_ns = 1300 * MS;
		p.asleep = i == 1;
		p.of_job = i == 2;
		o = explain(&p);
		f = find(o.v, "host.waited_for");
		assert_int_equal(f != NULL, i < 2);
		if (f) {
			assert_int_equal(loud(o.v), 1);
			assert_int_equal(f->culprit.pid, CULPRIT_PID);
			assert_string_equal(f->culprit.lock, "unix_stream_read_generic");
			assert_true(f->excess_share > 0.9);
			assert_int_equal(f->n_victims, 2);
			if (p.asleep)
				assert_string_equal(f->culprit.function, "hrtimer_nanosleep");
		}
		done(&o);
	}
}

static void names_who_had_the_cpu(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_CPU;
	p.period_ns = 1500 * MS;
	p.only_rank = 0;
	o = explain(&p);
	f = find(o.v, "host.cpu_contention");
	assert_non_null(f);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(o.v->scope, "rank_local");
	done(&o);
}

static void a_rank_that_computes_longer_now_and_then_is_the_straggler(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.stall = STALL_RUN;
	p.period_ns = 800 * MS;
	p.only_rank = 1;
	o = explain(&p);
	f = find(o.v, "comms.straggler");
	assert_non_null(f);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.rank, 1);
	assert_string_equal(f->culprit.relation, "rank");
	assert_string_equal(o.v->scope, "rank_local");
	done(&o);
}

static void a_rank_that_is_always_late_is_a_steady_straggler(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.n_ranks = 4;
	p.steady_late_rank = 2;
	p.steady_late_ns = 4 * MS;
	o = explain(&p);
	f = find(o.v, "comms.straggler");
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 2);
	assert_true(isnan(f->excess_share));
	/* 4 ms of ~14 ms steps, less the ranks' jitter. */
	assert_true(f->lost_share > 0.2 && f->lost_share < 0.32);
	assert_string_equal(o.v->shape, "steady");
	done(&o);
}


/* The same loss, in too few steps, and in too little time: told, not graded. */
static void a_steady_loss_needs_steps_and_time(void **state)
{
	static const struct { int n_steps; int64_t late; bool graded; } runs[] = {
		{ 5, 200 * MS, false }, { 12, 4 * MS, false }, { 12, 60 * MS, true }, { 100, 4 * MS, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		struct run_plan p = base;
		struct outcome o;
		const struct lg_finding *f;

		p.n_ranks = 4;
		p.steady_late_rank = 2;
		p.n_steps = runs[i].n_steps;
		p.steady_late_ns = runs[i].late;
		o = explain(&p);
		f = find(o.v, "comms.straggler");
		assert_non_null(f);
		assert_true(f->lost_share > 0.2);
		assert_string_equal(f->severity, runs[i].graded ? "high" : "low");
		assert_int_equal(is_limited(o.v, "too short to tell"), !runs[i].graded);
		done(&o);
	}
}

static void one_rank_alone_is_single(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.n_ranks = 1;
	p.stall = STALL_LOCK;
	p.period_ns = 1300 * MS;
	o = explain(&p);
	assert_non_null(find(o.v, "host.lock_held"));
	assert_string_equal(o.v->scope, "single");
	done(&o);
}

static void steps_without_marks_are_inferred(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.no_marks = true;
	p.stall = STALL_LOCK;
	p.period_ns = 900 * MS;
	o = explain(&p);
	f = find(o.v, "host.lock_held");
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	/* 9.8 ms of work a step, as the plan says. */
	assert_true(o.v->median_ms > 9.5 && o.v->median_ms < 10.2);
	assert_true(o.v->n_limits >= 1);
	done(&o);
}

static void samples_alone_give_a_correlation(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.n_steps = 400;
	p.samples_only = true;
	p.stall = STALL_LOCK;
	p.period_ns = 700 * MS;
	o = explain(&p);
	f = find(o.v, "host.foreign_activity");
	assert_non_null(f);
	assert_int_equal(o.v->n_findings, 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.function, "gather_stats");
	assert_true(f->confidence <= 0.8);
	assert_true(fabs(o.v->period_s - 0.7) < 0.035);
	done(&o);
}

static void samples_of_an_innocent_process_accuse_nobody(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.n_steps = 400;
	p.samples_only = true;
	p.innocent = true;
	p.stall = STALL_LOCK;
	p.period_ns = 700 * MS;
	o = explain(&p);
	assert_int_equal(o.v->n_findings, 0);
	done(&o);
}

static void survives_the_failure_of_any_allocation(void **state)
{
	struct run_plan p = base;
	struct lg_trace *t;
	struct lg_verdict *v;
	struct lg_error err;
	uint64_t n = 0;
	int rc;

	(void)state;
	p.n_steps = 80;
	p.stall = STALL_LOCK;
	p.period_ns = 200 * MS;
	t = synthetic_run(&p);
	do {
		lg_alloc_fail_at(++n);
		rc = lg_explain(t, NULL, &v, &err);
		lg_alloc_fail_at(0);
		assert_true(rc == 0 || rc == LG_E_NOMEM);
		if (!rc)
			lg_verdict_free(v);
	} while (rc);
	assert_true(n > 30);
	lg_trace_free(t);
}

struct facts_case {
	const char *id, *detail; /* NULL: nothing of the kind */
	const char *facts[20];
};

/* Settings that cost time, each with its healthy twin. */
static void facts_of_the_hook_become_findings(void **state)
{
	static const struct facts_case cases[] = {
		{ "gpu.amp_misuse", "backward_under_autocast",
		  { "torch.autocast", "1", "torch.autocast_backward", "1" } },
		{ NULL, NULL, { "torch.autocast", "1", "torch.autocast_backward", "0" } },
		{ "gpu.amp_misuse", "manual_half",
		  { "torch.autocast_backward", "0", "model.0.parameters", "float16=900,float32=10" } },
		{ NULL, NULL, { "torch.autocast_backward", "0", "model.0.parameters", "bfloat16=900" } },
		{ NULL, NULL, { "torch.autocast_backward", "0", "model.0.parameters", "float16=9,float32=1000" } },
		{ NULL, NULL, { "torch.autocast_backward", "0", "model.0.parameters", "float16=900",
				"module.deepspeed", "1" } },
		{ NULL, NULL, { "model.0.parameters", "float16=900" } }, /* no backward pass: inference */
		{ "comms.ddp_flags", "find_unused_parameters",
		  { "ddp.0.find_unused_parameters", "True", "ddp.0.static_graph", "False" } },
		{ NULL, NULL, { "ddp.0.find_unused_parameters", "True", "ddp.0.static_graph", "True" } },
		{ NULL, NULL, { "ddp.0.find_unused_parameters", "False", "ddp.0.bucket_cap_mb", "25",
				"ddp.0.gradient_as_bucket_view", "False", "model.0.parameters", "float32=90000000" } },
		{ "comms.ddp_flags", "bucket_cap_mb",
		  { "ddp.0.bucket_cap_mb", "1", "model.0.parameters", "float32=90000000" } },
		{ NULL, NULL, { "ddp.0.bucket_cap_mb", "1", "model.0.parameters", "float32=90000" } },
		{ "comms.fsdp_flags", "backward_prefetch", { "fsdp.0.backward_prefetch", "None" } },
		{ NULL, NULL, { "fsdp.0.backward_prefetch", "BACKWARD_PRE", "fsdp.0.forward_prefetch", "False" } },
		{ "gpu.conv_autotune", "off",
		  { "cudnn.benchmark", "0", "input.shapes", "1", "model.0.parameters", "float32=1000",
		    "model.0.convolutions", "53", "model.0.device", "cuda" } },
		{ NULL, NULL, { "cudnn.benchmark", "1", "input.shapes", "1", "model.0.parameters", "float32=1000",
				"model.0.convolutions", "53", "model.0.device", "cuda" } },
		{ NULL, NULL, { "cudnn.benchmark", "0", "input.shapes", "40", "model.0.parameters", "float32=1000",
				"model.0.convolutions", "53", "model.0.device", "cuda" } },
		{ NULL, NULL, { "cudnn.benchmark", "0", "input.shapes", "1", "model.0.parameters", "float32=1000",
				"model.0.convolutions", "53", "model.0.device", "cpu" } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct run_plan p = base;
		struct outcome o;
		const struct lg_finding *f;

		p.n_steps = 200;
		p.facts = cases[i].facts;
		o = explain(&p);
		f = cases[i].id ? find(o.v, cases[i].id) : NULL;
		if (cases[i].id && (!f || !f->detail || strcmp(f->detail, cases[i].detail)))
			fail_msg("case %zu: %s is not told", i, cases[i].detail);
		if (cases[i].id) {
			assert_true(isnan(f->lost_ms));
			assert_int_equal(f->n_victims, 2);
		}
		if (o.v->n_findings != (cases[i].id ? 1u : 0u))
			fail_msg("case %zu: %zu findings, the first is %s", i, o.v->n_findings,
				 o.v->findings[0].id);
		done(&o);
	}
}

static void checkpoints_are_counted_in_time_and_bytes(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	double wall;

	(void)state;
	p.n_steps = 500;
	o = explain(&p);
	assert_int_equal(o.v->saves.n, 0);
	done(&o);
	p.save_every = 50;
	p.save_ns = 200 * MS;
	p.save_bytes = 100000000;
	o = explain(&p);
	wall = (double)(o.v->steps[o.v->n_steps - 1].ts - o.v->steps[1].ts) / 1e9;
	/* The last one is behind the last step. */
	assert_in_range(o.v->saves.n, 9, 10);
	assert_true(fabs(o.v->saves.stall_share - (double)o.v->saves.n * 0.2 / wall) < 0.02);
	assert_true(fabs(o.v->saves.bytes - (double)o.v->saves.n * 1e8) < 1e8 + 1);
	assert_true(o.v->saves.bytes_per_s > 4e8 && o.v->saves.bytes_per_s < 6e8); /* 100 MB in 0.2 s */
	assert_true(fabs(o.v->saves.bytes_per_hour / (o.v->saves.bytes * 3600 / wall) - 1) < 0.1);
	assert_non_null(find(o.v, "side.checkpoint"));
	done(&o);
	p.save_bytes = 0; /* into memory, or from a source that does not tell */
	o = explain(&p);
	assert_true(o.v->saves.n > 0 && isnan(o.v->saves.bytes));
	done(&o);
}

static void an_empty_trace_says_that_there_are_no_steps(void **state)
{
	struct lg_builder *b;
	struct lg_trace *t;
	struct lg_verdict *v;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	assert_int_equal(lg_explain(t, NULL, &v, NULL), 0);
	assert_int_equal(v->n_findings, 0);
	assert_true(v->n_limits >= 1);
	lg_verdict_free(v);
	lg_trace_free(t);
}

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
		struct run_plan p = base;
		const struct lg_finding *f;
		struct outcome o;
		bool other;

		p.stall = cases[i].stall;
		p.period_ns = 400 * MS;
		p.only_rank = 0;
		p.own_bytes = cases[i].own;
		p.other_bytes = cases[i].other;
		p.disk_bytes = cases[i].disk;
		p.disk_busy = cases[i].busy;
		o = explain(&p);
		f = find(o.v, "host.io_wait");
		assert_non_null(f);
		assert_string_equal(f->detail, cases[i].detail);
		assert_non_null(strstr(f->title, cases[i].in_title));
		other = !strcmp(cases[i].detail, "other_load");
		assert_int_equal(f->culprit.pid, other ? CULPRIT_PID : RANK_PID);
		assert_string_equal(f->culprit.relation, other ? "other_process" : "self");
		assert_true(other || f->culprit.n_stack >= 6);
		assert_int_equal(loud(o.v), 1);
		assert_int_equal(lg_advise(o.v, (double)NAN, NULL), 0);
		assert_non_null(strstr(f->fix, other ? "io.max" : cases[i].stall == STALL_SYNC ? "checkpoint" : "read ahead"));
		done(&o);
	}
}

static void of_several_jobs_one_is_judged_and_it_says_which(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.stall = STALL_SOCKET;
	p.period_ns = 400 * MS;
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
	/* Four ranks of one job are one job. */
	p.two_launchers = false;
	o = explain(&p);
	assert_int_equal(o.v->n_ranks, 4);
	assert_false(has_limit(o.v, "several jobs"));
	done(&o);
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
		struct run_plan p = base;
		const struct lg_finding *f;
		struct outcome o;

		p.stall = STALL_TCP;
		p.period_ns = 900 * MS;
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
		struct run_plan p = base;
		const struct lg_finding *f;
		struct outcome o;

		p.stall = STALL_SOCKET;
		p.period_ns = 900 * MS;
		p.wait_stack = cases[i].stack;
		o = explain(&p);
		f = find(o.v, "host.waited_for");
		assert_non_null(f);
		assert_non_null(strstr(f->title, cases[i].words));
		if (cases[i].detail)
			assert_string_equal(f->detail, cases[i].detail);
		else
			assert_null(f->detail);
		assert_int_equal(lg_advise(o.v, (double)NAN, NULL), 0);
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
		struct run_plan p = base;
		const struct lg_finding *f;
		struct outcome o;

		p.stall = STALL_GIL;
		p.period_ns = 900 * MS;
		p.only_rank = 1;
		p.helper_runs = cases[i].file;
		p.not_by_helper = cases[i].not_by_helper;
		p.helper_came_late = cases[i].late;
		o = explain(&p);
		f = find(o.v, "python.gil_wait");
		assert_int_equal(f != NULL, cases[i].share > 0);
		assert_int_equal(loud(o.v), cases[i].share > 0);
		if (f) {
			assert_string_equal(f->culprit.relation, "same_process");
			assert_int_equal(f->culprit.pid, RANK_PID + 1);
			assert_int_equal(f->culprit.tid, 5001);
			assert_int_equal(f->n_victims, 1);
			assert_true(fabs(f->excess_share - cases[i].share) < 0.05);
			assert_int_equal(lg_advise(o.v, (double)NAN, NULL), 0);
			assert_non_null(strstr(f->fix, "process of its own"));
		}
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_held_pythons_lock_is_named_only_where_it_ran_python),
		cmocka_unit_test(what_ended_a_wait_is_called_what_it_is),
		cmocka_unit_test(over_the_loopback_the_sender_is_named_and_never_who_was_struck),
		cmocka_unit_test(a_loop_that_never_waits_is_told_what_would_show_its_steps),
		cmocka_unit_test(of_several_jobs_one_is_judged_and_it_says_which),
		cmocka_unit_test(a_wait_for_the_disk_is_for_ones_own_writes_unless_numbers_name_another),
		cmocka_unit_test(a_healthy_run_gets_no_finding),
		cmocka_unit_test(names_the_holder_of_the_lock),
		cmocka_unit_test(a_lock_of_one_rank_is_rank_local),
		cmocka_unit_test(stalls_of_all_ranks_at_once_are_global),
		cmocka_unit_test(follows_a_helper_thread_to_the_holder),
		cmocka_unit_test(an_owner_without_a_hold_is_less_sure),
		cmocka_unit_test(names_who_had_the_cpu),
		cmocka_unit_test(names_who_kept_the_file_lock),
		cmocka_unit_test(names_the_program_that_had_to_answer),
		cmocka_unit_test(a_used_up_quota_is_told_from_mere_latency),
		cmocka_unit_test(servants_of_one_master_are_one_cause),
		cmocka_unit_test(polled_states_give_no_steps),
		cmocka_unit_test(a_rank_that_computes_longer_now_and_then_is_the_straggler),
		cmocka_unit_test(a_rank_that_is_always_late_is_a_steady_straggler),
		cmocka_unit_test(a_steady_loss_needs_steps_and_time),
		cmocka_unit_test(one_rank_alone_is_single),
		cmocka_unit_test(steps_without_marks_are_inferred),
		cmocka_unit_test(samples_alone_give_a_correlation),
		cmocka_unit_test(samples_of_an_innocent_process_accuse_nobody),
		cmocka_unit_test(survives_the_failure_of_any_allocation),
		cmocka_unit_test(facts_of_the_hook_become_findings),
		cmocka_unit_test(checkpoints_are_counted_in_time_and_bytes),
		cmocka_unit_test(an_empty_trace_says_that_there_are_no_steps),
	};

	return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
