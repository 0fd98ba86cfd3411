/* SPDX-License-Identifier: Apache-2.0 */
/* Runs whose cause is known by construction: the verdict must say it, and say nothing else. */
#include "analyse/grade.h"
#include "run_outcome.h"

static void a_healthy_run_gets_no_finding(void **state)
{
	struct outcome o = explain(&base);

	(void)state;
	assert_int_equal(loud(o.v), 0);
	assert_int_equal(o.v->n_slow, 0);
	assert_int_equal(o.v->shape, LG_SHAPE_STEADY);
	assert_int_equal(o.v->n_judged, 1999);
	done(&o);
}

static void names_the_holder_of_the_lock(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 2500);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	f = told(&p, "host.lock_held", &o);
	assert_ptr_equal(f, &o.v->findings[0]);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.relation, LG_RELATION_OTHER_PROCESS);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.function, "gather_stats");
	assert_string_equal(f->culprit.lock, "mmap_lock");
	assert_int_equal(f->n_victims, 2);
	assert_int_equal(o.v->shape, LG_SHAPE_PERIODIC);
	assert_true(fabs(o.v->period_s - 2.5) < 0.05);
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	/* Each stall is 80 ms, and every nanosecond is counted once though two ranks lost it. */
	assert_true(fabs(f->lost_ms - 80.0 * (double)o.v->n_slow) < 2.0 * (double)o.v->n_slow);
	assert_true(f->excess_share > 0.95);
	assert_true(f->confidence > 0.9);
	done(&o);
}

static void a_lock_of_one_rank_is_rank_local(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 700);
	struct outcome o;

	(void)state;
	p.only_rank = 1;
	p.explicit_collective = true;
	o = explain(&p);
	assert_non_null(find(o.v, "host.lock_held"));
	assert_int_equal(o.v->scope, LG_SCOPE_RANK_LOCAL);
	assert_int_equal(find(o.v, "host.lock_held")->n_victims, 1);
	assert_int_equal(find(o.v, "host.lock_held")->victims[0].rank, 1);
	done(&o);
}

static void stalls_of_all_ranks_at_once_are_global(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 1100);
	struct outcome o;

	(void)state;
	p.all_ranks = true;
	o = explain(&p);
	assert_int_equal(o.v->scope, LG_SCOPE_GLOBAL);
	done(&o);
}

static void follows_a_helper_thread_to_the_holder(void **state)
{
	struct run_plan p = stalls(STALL_FUTEX_HELPER_LOCK, 900);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	f = told(&p, "host.lock_held", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_true(f->excess_share > 0.9);
	done(&o);
}

static void an_owner_without_a_hold_is_less_sure(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 900);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.no_hold_rows = true;
	f = told(&p, "host.lock_held", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_true(f->confidence < 0.95 && f->confidence > 0.5);
	done(&o);
}

static void names_who_kept_the_file_lock(void **state)
{
	struct run_plan p = stalls(STALL_FILE_LOCK, 1700);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	f = told(&p, "host.lock_held", &o);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.lock, "file lock");
	assert_true(f->excess_share > 0.9);
	assert_true(fabs(o.v->period_s - 1.7) < 0.05);
	done(&o);
}

/* A tool started anew for each look: one cause, by the name of who starts it. */
/* All ranks wait for it at once: what each waits for the one before it, that one waited for the holder. */
static void a_file_lock_that_is_handed_on_leads_to_its_first_holder(void **state)
{
	struct run_plan p = stalls(STALL_FILE_LOCK, 1700);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.n_ranks = 4;
	p.all_ranks = true;
	f = told(&p, "host.lock_held", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.lock, "file lock");
	for (size_t i = 0; i < o.v->n_findings; i++)
		assert_true(&o.v->findings[i] == f || strcmp(o.v->findings[i].id, "host.lock_held"));
	done(&o);
}

static void servants_of_one_master_are_one_cause(void **state)
{
	struct run_plan p = stalls(STALL_FILE_LOCK, 1700);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.servants = true;
	f = told(&p, "host.lock_held", &o);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_non_null(strstr(f->title, "processes started by"));
	done(&o);
}

static void ranks_that_are_not_in_the_input_are_a_limit(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.world = "16";
	o = explain(&p);
	assert_true(has_limit(o.v, "2 of the job's 16 ranks are in this input"));
	done(&o);
	p.world = "2";
	o = explain(&p);
	assert_false(has_limit(o.v, "of the job's"));
	done(&o);
	p.world = "99999999999999999999";
	o = explain(&p);
	assert_false(has_limit(o.v, "of the job's"));
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
	assert_true(has_limit(o.v, "looked at in /proc every 20 ms"));
	done(&o);
}

/* Ready to run beside an idle CPU: the quota where its counter grows, unexplained where it stands still. */
static void a_used_up_quota_is_told_from_mere_latency(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct run_plan p = stalls(STALL_QUOTA, 500);
		struct outcome o;
		const struct lg_finding *f;

		p.throttled_ns = i > 1 ? -1 : i ? 0 : 90e6;
		p.tier = i == 1 ? "bpf" : NULL;
		if (i == 3) /* no longer than it takes to be moved to an idle CPU */
			p.stall_ns = 4 * MS;
		o = explain(&p);
		f = find(o.v, "host.cpu_throttled");
		assert_int_equal(f != NULL, i == 0 || i == 2);
		assert_int_equal(loud(o.v), !i);
		if (f && i) { /* as of perf, which tells of no quota */
			assert_int_equal(f->severity, LG_SEVERITY_LOW);
			assert_non_null(strstr(f->title, "probably"));
			assert_non_null(strstr(f->against[0].text, "nr_throttled"));
		} else if (f) {
			assert_non_null(strstr(f->title, "/job: 2.5 CPUs"));
			assert_true(f->excess_share > 0.9);
		}
		done(&o);
	}
}

/* A host that spins while its device works looks busy; what holds it up costs no more than the device
 * idles. */
static void a_device_that_always_works_bounds_what_its_host_can_lose(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct run_plan p = stalls(STALL_CPU, 500);
		struct outcome o;
		const struct lg_finding *f;

		bool said = false;

		p.n_ranks = 1;
		p.only_rank = 0;
		p.device_util = i == 2 ? 99 : 60 * i;
		o = explain(&p);
		f = find(o.v, "host.cpu_contention");
		assert_non_null(f);
		assert_int_equal(o.v->bound == LG_BOUND_GPU, i == 2);
		if (i < 2) {
			assert_true(f->lost_share > 0.03 && f->severity >= LG_SEVERITY_MEDIUM);
		} else {
			assert_true(f->lost_share <= 0.0201 && f->severity <= LG_SEVERITY_LOW);
			for (size_t k = 0; k < f->n_against; k++)
				said |= !!strstr(f->against[k].text, "the device had work 99");
			assert_true(said);
		}
		done(&o);
	}
}

/* It computed, or slept, before it answered; what the job's own processes do is the job's business. */
static void names_the_program_that_had_to_answer(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct run_plan p = stalls(STALL_SOCKET, 1300);
		struct outcome o;
		const struct lg_finding *f;

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

/* At which share of the run a loss is how bad, to the last digit. */
static void severities_are_those_of_the_contract(void **state)
{
	static const struct {
		double share;
		enum lg_severity severity;
	} want[] = {
		{ 1, LG_SEVERITY_HIGH }, { 0.10, LG_SEVERITY_HIGH }, { 0.0999, LG_SEVERITY_MEDIUM },
		{ 0.03, LG_SEVERITY_MEDIUM }, { 0.0299, LG_SEVERITY_LOW }, { 0.01, LG_SEVERITY_LOW },
		{ 0.0099, LG_SEVERITY_INFO }, { 0, LG_SEVERITY_INFO }, { (double)NAN, LG_SEVERITY_INFO },
	};

	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		assert_int_equal(lg_severity_of(want[i].share), want[i].severity);
	assert_true(lg_gradable(5, 333000000) && lg_gradable(500, INT64_MAX));
	assert_false(lg_gradable(4, 333000000));
	assert_false(lg_gradable(5, 332999999));
}

/* What the recording itself costs is told as that, among the limits: a CPU that it had, a lock that it held
 * (it reads the maps of whom it attaches to), an answer that it was slow to give. */
static void the_recorder_is_not_accused(void **state)
{
	static const enum stall ways[] = { STALL_CPU, STALL_LOCK, STALL_SOCKET };

	(void)state;
	for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
		struct run_plan p = stalls(ways[k], 1500);
		struct lg_trace *t;
		struct outcome o;

		p.only_rank = 0;
		t = synthetic_run(&p);
		for (size_t i = 1; i < t->process.n; i++)
			if (t->process.pid[i] == CULPRIT_PID)
				t->process.role[i] = LG_ROLE_RECORDER;
		o = judge(t);
		for (size_t i = 0; i < o.v->n_findings; i++)
			assert_int_not_equal(o.v->findings[i].culprit.pid, CULPRIT_PID);
		assert_true(has_limit(o.v, "recording itself cost"));
		done(&o);
	}
}

/* Another tool's file says by which command it was recorded: that process is no culprit, one of the same name
 * that comes and goes is. */
static void the_tool_that_made_the_file_is_not_accused(void **state)
{
	(void)state;
	for (int passing = 0; passing < 2; passing++) {
		struct run_plan p = stalls(STALL_LOCK, 1500);
		bool accused = false;
		struct outcome o;

		p.only_rank = 0;
		p.recorded_by = "/opt/tools/watcher record -a -g";
		p.culprit_passes = passing;
		o = judge(synthetic_run(&p));
		for (size_t i = 0; i < o.v->n_findings; i++)
			accused |= o.v->findings[i].culprit.pid == CULPRIT_PID;
		assert_int_equal(accused, passing);
		assert_int_equal(has_limit(o.v, "recording itself cost"), !passing);
		done(&o);
	}
}

static void names_who_had_the_cpu(void **state)
{
	struct run_plan p = stalls(STALL_CPU, 1500);
	struct outcome o;
	const struct lg_finding *f;
	int seen = 0;

	(void)state;
	p.only_rank = 0;
	f = told(&p, "host.cpu_contention", &o);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.function, "libhash.so.3");
	assert_int_equal(o.v->scope, LG_SCOPE_RANK_LOCAL);
	done(&o);
	/* Which CPU it was ready for shows where it runs next; who ran there knows its number. */
	p.cpu_untold = true;
	f = told(&p, "host.cpu_contention", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	for (size_t i = 0; i < f->n_evidence; i++) {
		assert_null(strstr(f->evidence[i].text, "CPU -1"));
		seen += strstr(f->evidence[i].text, "had CPU 0") != NULL;
	}
	assert_true(seen);
	done(&o);
	p.cpu_untold = false;
	/* Where a tracepoint was hit is not what a thread is at. */
	p.sample_flags = LG_SAMPLE_TRACEPOINT;
	f = told(&p, "host.cpu_contention", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_null(f->culprit.function);
	for (size_t i = 0; i < f->n_evidence; i++)
		assert_null(strstr(f->evidence[i].text, "CPU samples"));
	done(&o);
}

static bool says_against(const struct lg_finding *f, const char *text)
{
	for (size_t i = 0; i < f->n_against; i++)
		if (strstr(f->against[i].text, text))
			return true;
	return false;
}

/* That ranks had to share a CPU is their own doing, unless others had the rest: nobody saw those. */
static void what_ranks_take_from_each_other_is_less_sure_where_nobody_else_was_seen(void **state)
{
	(void)state;
	for (int alone = 0; alone < 3; alone++) {
		struct run_plan p = stalls(STALL_CPU, 800);
		const struct lg_finding *f;
		struct lg_trace *t;
		struct outcome o;

		p.scope = alone == 1 ? "processes" : NULL;
		p.n_ranks = 2;
		p.crowded = alone == 2;
		t = synthetic_run(&p);
		for (lg_prc i = 1; i < t->process.n; i++)
			if (t->process.pid[i] == CULPRIT_PID)
				t->process.role[i] = LG_ROLE_LOADER;
		o = judge(t);
		f = find(o.v, "host.oversubscribed");
		assert_non_null(f);
		assert_int_equal(f->severity == LG_SEVERITY_LOW, alone != 0);
		assert_int_equal(says_against(f, "nothing but these processes"), alone == 1);
		assert_int_equal(says_against(f, "strangers had the other CPUs"), alone == 2);
		done(&o);
	}
}

static void a_rank_that_computes_longer_now_and_then_is_the_straggler(void **state)
{
	struct run_plan p = stalls(STALL_RUN, 800);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.only_rank = 1;
	f = told(&p, "comms.straggler", &o);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.rank, 1);
	assert_int_equal(f->culprit.relation, LG_RELATION_RANK);
	assert_int_equal(o.v->scope, LG_SCOPE_RANK_LOCAL);
	assert_non_null(strstr(f->title, "was running its own work"));
	done(&o);
}

/* One rank is late by its own work, then the other: both are named, and what both cost. */
static void ranks_that_are_late_in_turn_are_named_together(void **state)
{
	struct run_plan p = stalls(STALL_RUN, 800);
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	f = told(&p, "comms.straggler", &o);
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	assert_int_equal(loud(o.v), 1);
	assert_string_equal(f->detail, "rotating");
	assert_int_equal(f->n_victims, 2);
	assert_non_null(strstr(f->title, "ranks 0 and 1 arrive last in the collective in turn"));
	assert_true(f->excess_share > 0.9);
	done(&o);
	/* All at once nobody waits for anybody. */
	p.all_ranks = true;
	o = explain(&p);
	assert_null(find(o.v, "comms.straggler"));
	assert_int_equal(o.v->scope, LG_SCOPE_GLOBAL);
	assert_true(has_limit(o.v, "is the job's own doing"));
	done(&o);
}

/* It computes in every step, and stands still in the slow ones only, for what its child does not answer. */
static void a_rank_that_waits_for_what_it_started_says_so(void **state)
{
	struct run_plan p = stalls(STALL_SOCKET, 800);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.only_rank = 0;
	p.of_job = true;
	f = told(&p, "comms.straggler", &o);
	assert_non_null(strstr(f->title, "was running its own work")); /* who it waits for was */
	done(&o);
	p.asleep = true;
	f = told(&p, "comms.straggler", &o);
	assert_int_equal(f->culprit.rank, 0);
	assert_non_null(strstr(f->title, "it waited for watcher (pid 4711), which it started and which slept"));
	assert_null(f->culprit.function);
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
	f = told(&p, "comms.straggler", &o);
	assert_int_equal(f->culprit.rank, 2);
	assert_true(isnan(f->excess_share));
	/* 4 ms of ~14 ms steps, less the ranks' jitter. */
	assert_true(f->lost_share > 0.2 && f->lost_share < 0.32);
	assert_int_equal(o.v->shape, LG_SHAPE_STEADY);
	done(&o);
}

/* Each of two ranks is 3 ms late in every fourth step: the one that is late by a little in all the others as
 * well costs that little, and not its share of what comes to both. */
static void noise_that_ranks_share_is_nobody_s_lateness(void **state)
{
	struct run_plan p = base;
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.n_ranks = 2;
	p.n_steps = 400;
	p.explicit_collective = true;
	p.in_turn_ns = 3 * MS;
	p.steady_late_rank = 1;
	p.steady_late_ns = MS / 2;
	o = explain(&p);
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
	p.steady_late_ns = 3 * MS / 2;
	f = told(&p, "comms.straggler", &o);
	assert_int_equal(f->culprit.rank, 1);
	/* 1.5 ms of steps of 12 ms. */
	assert_true(f->lost_share > 0.11 && f->lost_share < 0.14);
	done(&o);
}

/* Who lost the CPU early in the step is at its own work when the others wait, as they were before: that is
 * not why it is late. */
static void a_rank_that_something_made_late_is_no_straggler(void **state)
{
	struct run_plan p = stalls(STALL_CPU, 12);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.n_steps = 400;
	p.stall_ns = 3 * MS;
	p.only_rank = 1;
	p.explicit_collective = true;
	f = told(&p, "host.cpu_contention", &o);
	assert_true(f->lost_share > 0.15);
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
	/* As long by its own work: that one is. */
	p.stall = STALL_RUN;
	f = told(&p, "comms.straggler", &o);
	assert_int_equal(f->culprit.rank, 1);
	assert_true(f->lost_share > 0.15);
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
		f = told(&p, "comms.straggler", &o);
		assert_true(f->lost_share > 0.2);
		assert_int_equal(f->severity, runs[i].graded ? LG_SEVERITY_HIGH : LG_SEVERITY_LOW);
		assert_int_equal(has_limit(o.v, "too short to tell"), !runs[i].graded);
		done(&o);
	}
}

static void one_rank_alone_is_single(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 1300);
	struct outcome o;

	(void)state;
	p.n_ranks = 1;
	o = explain(&p);
	assert_non_null(find(o.v, "host.lock_held"));
	assert_int_equal(o.v->scope, LG_SCOPE_SINGLE);
	done(&o);
}

static void steps_without_marks_are_inferred(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 900);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.no_marks = true;
	f = told(&p, "host.lock_held", &o);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	/* 9.8 ms of work a step, as the plan says. */
	assert_true(o.v->median_ms > 9.5 && o.v->median_ms < 10.2);
	assert_true(o.v->n_limits >= 1);
	done(&o);
}

static void samples_alone_give_a_correlation(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 700);
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	p.n_steps = 400;
	p.samples_only = true;
	f = told(&p, "host.foreign_activity", &o);
	assert_int_equal(o.v->n_findings, 1);
	assert_int_equal(f->culprit.pid, CULPRIT_PID);
	assert_string_equal(f->culprit.function, "gather_stats");
	assert_true(f->confidence <= 0.8);
	assert_true(fabs(o.v->period_s - 0.7) < 0.035);
	done(&o);
}

static void samples_of_an_innocent_process_accuse_nobody(void **state)
{
	struct run_plan p = stalls(STALL_LOCK, 700);
	struct outcome o;

	(void)state;
	p.n_steps = 400;
	p.samples_only = true;
	p.innocent = true;
	o = explain(&p);
	assert_int_equal(o.v->n_findings, 0);
	done(&o);
}

/* What the hypervisor takes looks like running: it is said how much that may be. */
static void stolen_time_is_told_and_never_loud(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.n_steps = 2000;
	p.steal = 0.20;
	o = explain(&p);
	assert_true(has_limit(o.v, "the hypervisor took 20.0 % of the CPU time"));
	assert_int_equal(o.v->n_findings, 1);
	assert_string_equal(o.v->findings[0].id, "host.steal");
	assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_LOW);
	assert_true(isnan(o.v->findings[0].lost_ms));
	done(&o);
	p.steal = 0.02;
	o = explain(&p);
	assert_true(has_limit(o.v, "the hypervisor took 2.0 % of the CPU time"));
	assert_int_equal(o.v->n_findings, 0);
	done(&o);
	p.steal = 0.005;
	o = explain(&p);
	assert_false(has_limit(o.v, "hypervisor"));
	done(&o);
}

/* A rank that it stopped came late, too. */
static void a_late_rank_may_be_a_stopped_one(void **state)
{
	struct run_plan p = base;
	struct outcome o;

	(void)state;
	p.n_ranks = 4;
	p.steady_late_rank = 2;
	p.steady_late_ns = 4 * MS;
	o = explain(&p);
	assert_true(is_loud(find(o.v, "comms.straggler")));
	assert_int_equal(find(o.v, "comms.straggler")->n_against, 0);
	done(&o);
	p.steal = 0.01; /* too little for that */
	o = explain(&p);
	assert_true(is_loud(find(o.v, "comms.straggler")));
	done(&o);
	p.steal = 0.5;
	o = explain(&p);
	assert_int_equal(find(o.v, "comms.straggler")->severity, LG_SEVERITY_LOW);
	assert_non_null(strstr(find(o.v, "comms.straggler")->against[0].text, "the hypervisor took at least"));
	done(&o);
}

static void survives_the_failure_of_any_allocation(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct run_plan p = stalls(STALL_LOCK, 200);

		p.n_steps = 80;
		p.no_marks = i == 1;
		p.samples_only = i == 2;
		survives_without_memory(&p);
	}
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
		{ "gpu.math_attention", "disabled",
		  { "sdpa.flash", "0", "sdpa.mem_efficient", "0", "sdpa.cudnn", "0", "model.0.parameters", "float32=10",
		    "model.0.device", "cuda" } },
		{ NULL, NULL, { "sdpa.flash", "0", "sdpa.mem_efficient", "1", "model.0.parameters", "float32=10",
				"model.0.device", "cuda" } },
		{ "gpu.unfused_optimizer", "foreach_off",
		  { "optimizer.foreach", "False", "optimizer.fused", "None", "model.0.parameters", "float32=10",
		    "model.0.tensors", "148", "model.0.device", "cuda" } },
		{ NULL, NULL, { "optimizer.foreach", "None", "optimizer.fused", "None", "model.0.parameters", "float32=10",
				"model.0.tensors", "148", "model.0.device", "cuda" } },
		{ NULL, NULL, { "optimizer.foreach", "False", "optimizer.fused", "True", "model.0.parameters", "float32=10",
				"model.0.tensors", "148", "model.0.device", "cuda" } },
		{ NULL, NULL, { "optimizer.foreach", "False", "model.0.parameters", "float32=10", "model.0.tensors", "8",
				"model.0.device", "cuda" } },
		{ "gpu.no_tensor_core", "tf32_off",
		  { "torch.matmul_precision", "highest", "device.capability", "9.0", "torch.autocast", "0",
		    "model.0.parameters", "float32=10", "model.0.device", "cuda" } },
		{ NULL, NULL, { "torch.matmul_precision", "high", "device.capability", "9.0", "torch.autocast", "0",
				"model.0.parameters", "float32=10", "model.0.device", "cuda" } },
		{ NULL, NULL, { "torch.matmul_precision", "highest", "device.capability", "9.0", "torch.autocast", "1",
				"model.0.parameters", "float32=10", "model.0.device", "cuda" } },
		{ NULL, NULL, { "torch.matmul_precision", "highest", "device.capability", "7.5", "torch.autocast", "0",
				"model.0.parameters", "float32=10", "model.0.device", "cuda" } },
		{ NULL, NULL, { "torch.matmul_precision", "highest", "device.capability", "9.0", "torch.autocast", "0",
				"model.0.parameters", "bfloat16=10", "model.0.device", "cuda" } },
		{ "gpu.launch_bound", "cudagraphs_skipped", { "compile.cudagraph_skips", "3" } },
		{ NULL, NULL, { "loader.pin_memory", "False", "model.0.parameters", "float32=10",
				"model.0.device", "cuda" } }, /* nothing is copied in the steps */
		{ "debug.left_on", NULL, { "debug.anomaly", "1" } },
		{ "debug.left_on", NULL, { "debug.trace_function", "1" } },
		{ NULL, NULL, { "debug.anomaly", "0", "debug.profiler", "0", "debug.trace_function", "0" } },
		{ "data.workers_oversubscribed", NULL, { "loader.num_workers", "9", "cpu.affinity", "8" } },
		{ NULL, NULL, { "loader.num_workers", "8", "cpu.affinity", "8" } },
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
		if (cases[i].id && (!f || !f->detail != !cases[i].detail ||
				    (f->detail && strcmp(f->detail, cases[i].detail) != 0)))
			fail_msg("case %zu: %s %s is not told", i, cases[i].id,
				 cases[i].detail ? cases[i].detail : "");
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

/* Opening the file and syncing it are the save's; the same waits with no save beside them are not. */
static void a_save_is_one_finding_with_its_parts(void **state)
{
	struct run_plan p = base;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.save_every = 40;
	p.save_ns = 20 * MS;
	p.open_ns = 8 * MS;
	p.sync_ns = 60 * MS; /* longer than near: its own writes all the same */
	f = told(&p, "side.checkpoint", &o);
	assert_int_equal(loud(o.v), 1);
	assert_null(find(o.v, "host.io_wait"));
	assert_true(fabs(f->lost_ms - 50 * 88) < 0.03 * 50 * 88);
	assert_true(f->excess_share > 0.95);
	assert_string_equal(f->stage, "side");
	assert_int_equal(f->culprit.pid, RANK_PID);
	assert_true(says_for(f, "ms in torch.save itself") && says_for(f, "ms for the disk in openat") &&
		    says_for(f, "ms for the disk in fsync"));
	done(&o);
	p.save_unmarked = true;
	f = told(&p, "host.io_wait", &o);
	assert_null(find(o.v, "side.checkpoint"));
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

static void a_window_of_warm_up_says_so(void **state)
{
	struct run_plan p = { .n_ranks = 1, .n_steps = 60, .only_rank = -1, .steady_late_rank = -1,
			      .warm_steps = 3, .warm_ns = 400 * MS };
	const struct lg_finding *f;
	struct outcome o = explain(&p);

	(void)state;
	f = find(o.v, "warmup.dominates");
	assert_non_null(f);
	assert_true(f->severity == LG_SEVERITY_INFO && isnan(f->lost_ms));
	assert_non_null(strstr(f->title, "in the first 2 of 59 steps"));
	done(&o);
	p.warm_ns = 20 * MS; /* a tenth */
	o = explain(&p);
	assert_null(find(o.v, "warmup.dominates"));
	done(&o);
}

static void what_dynamo_counts_is_told(void **state)
{
	struct run_plan p = { .n_ranks = 2, .n_steps = 100, .only_rank = -1, .steady_late_rank = -1,
			      .recompiles = 6, .recompiles_from = 40 };
	const struct lg_finding *f;
	struct outcome o = explain(&p);

	(void)state;
	f = find(o.v, "compile.recompiles");
	assert_non_null(f);
	assert_true(isnan(f->lost_ms) && f->severity == LG_SEVERITY_MEDIUM && f->n_victims == 2);
	assert_non_null(strstr(f->title, "again 6 times"));
	assert_string_equal(f->culprit.function, "forward /app/net.py:7: size mismatch at index 0");
	assert_null(find(o.v, "compile.graph_breaks"));
	done(&o);
	p.recompiles = 2; /* as for the first evaluation, and the first step behind it */
	p.graph_breaks = 1;
	o = explain(&p);
	assert_null(find(o.v, "compile.recompiles"));
	f = find(o.v, "compile.graph_breaks");
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	assert_non_null(strstr(f->culprit.function, "net.py:9"));
	done(&o);
}

/* Called what it is, and diagnosed like training. */
static void inference_is_named(void **state)
{
	struct run_plan p = { .n_ranks = 1, .n_steps = 200, .only_rank = -1, .steady_late_rank = -1 };
	struct outcome o = explain(&p);

	(void)state;
	assert_true(!strncmp(o.v->bound_why, "critical path", 13));
	done(&o);
	p.inference = true;
	o = explain(&p);
	assert_true(o.v->n_judged > 100);
	assert_true(!strncmp(o.v->bound_why, "inference or evaluation; critical path", 38));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_lock_that_is_handed_on_leads_to_its_first_holder),
		cmocka_unit_test(a_healthy_run_gets_no_finding),
		cmocka_unit_test(names_the_holder_of_the_lock),
		cmocka_unit_test(a_lock_of_one_rank_is_rank_local),
		cmocka_unit_test(stalls_of_all_ranks_at_once_are_global),
		cmocka_unit_test(follows_a_helper_thread_to_the_holder),
		cmocka_unit_test(an_owner_without_a_hold_is_less_sure),
		cmocka_unit_test(severities_are_those_of_the_contract),
		cmocka_unit_test(the_recorder_is_not_accused),
		cmocka_unit_test(the_tool_that_made_the_file_is_not_accused),
		cmocka_unit_test(names_who_had_the_cpu),
		cmocka_unit_test(what_ranks_take_from_each_other_is_less_sure_where_nobody_else_was_seen),
		cmocka_unit_test(names_who_kept_the_file_lock),
		cmocka_unit_test(names_the_program_that_had_to_answer),
		cmocka_unit_test(stolen_time_is_told_and_never_loud),
		cmocka_unit_test(a_late_rank_may_be_a_stopped_one),
		cmocka_unit_test(a_used_up_quota_is_told_from_mere_latency),
		cmocka_unit_test(a_device_that_always_works_bounds_what_its_host_can_lose),
		cmocka_unit_test(servants_of_one_master_are_one_cause),
		cmocka_unit_test(polled_states_give_no_steps),
		cmocka_unit_test(ranks_that_are_not_in_the_input_are_a_limit),
		cmocka_unit_test(a_rank_that_computes_longer_now_and_then_is_the_straggler),
		cmocka_unit_test(ranks_that_are_late_in_turn_are_named_together),
		cmocka_unit_test(a_rank_that_waits_for_what_it_started_says_so),
		cmocka_unit_test(a_rank_that_is_always_late_is_a_steady_straggler),
		cmocka_unit_test(noise_that_ranks_share_is_nobody_s_lateness),
		cmocka_unit_test(a_rank_that_something_made_late_is_no_straggler),
		cmocka_unit_test(a_steady_loss_needs_steps_and_time),
		cmocka_unit_test(one_rank_alone_is_single),
		cmocka_unit_test(steps_without_marks_are_inferred),
		cmocka_unit_test(samples_alone_give_a_correlation),
		cmocka_unit_test(samples_of_an_innocent_process_accuse_nobody),
		cmocka_unit_test(survives_the_failure_of_any_allocation),
		cmocka_unit_test(facts_of_the_hook_become_findings),
		cmocka_unit_test(checkpoints_are_counted_in_time_and_bytes),
		cmocka_unit_test(a_save_is_one_finding_with_its_parts),
		cmocka_unit_test(an_empty_trace_says_that_there_are_no_steps),
		cmocka_unit_test(inference_is_named),
		cmocka_unit_test(what_dynamo_counts_is_told),
		cmocka_unit_test(a_window_of_warm_up_says_so),
	};

	return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
