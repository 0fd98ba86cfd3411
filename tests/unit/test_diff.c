/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of runs whose difference is known by construction: diff must say it, and nothing else. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"
#include "base/out.h"
#include "diff_pair.h"
#include "store/builder.h"
#include "synthetic_run.h"

#define MS 1000000ll

/* ---- a run with operators, made to order ---- */

struct plan {
	int steps;
	double slower;        /* factor on the forward pass */
	int regions;          /* compiled regions per step */
	int recompute;        /* forward operators run again in the backward pass */
	double new_op_ms;     /* a new operator in the forward pass */
	const char *torch, *batch;
	bool noisy;
	int gathers;
	bool mode;
	const char *const *facts; /* key, value ... NULL */
	int selects;          /* calls of an operator within another one, for one of its backward */
};

static const struct plan plain = { .steps = 200, .slower = 1, .regions = 3, .torch = "2.6.0", .batch = "32" };

static void op(struct lg_builder *b, lg_thr thr, int64_t ts, int64_t dur, const char *name)
{
	lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = thr, .kind = LG_SPAN_OP, .seq = -1,
					      .name = lg_intern(b, name) });
}

static void stage(struct lg_builder *b, lg_thr thr, int64_t ts, int64_t dur, int what)
{
	lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = thr, .kind = LG_SPAN_STAGE,
					      .stage = (uint8_t)what, .seq = -1 });
}

static int64_t one_step(struct lg_builder *b, lg_thr thr, const struct plan *p, int64_t ts, int k)
{
	/* +-8 %, the same for every run made to order: noise, not a difference. */
	uint64_t drawn = lg_mix64((uint64_t)k + (uint64_t)p->steps) % 1000;
	double noise = p->noisy ? 1 + ((double)drawn - 500) / 6000 : 1;
	int64_t unit = (int64_t)((double)MS * noise), from = ts, forward = ts;
	char name[64];

	for (int i = 0; i < 3; i++) {
		int64_t d = (int64_t)((double)unit * p->slower);

		if (i < p->regions) {
			snprintf(name, sizeof name, "Torch-Compiled Region: %d/%d", i, k % 3);
			op(b, thr, ts, d, name);
		}
		op(b, thr, ts, d - 1000, "aten::addmm");
		ts += d;
	}
	if (p->new_op_ms > 0) {
		op(b, thr, ts, (int64_t)(p->new_op_ms * 1e6), "aten::new_thing");
		ts += (int64_t)(p->new_op_ms * 1e6);
	}
	for (int i = 0; i < p->gathers; i++) {
		lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = MS, .thr = thr,
						      .kind = LG_SPAN_COLLECTIVE, .seq = k * p->gathers + i,
						      .name = lg_intern(b, "all_gather"),
						      .group = lg_intern(b, "dp") });
		ts += MS;
	}
	for (int i = 0; i < p->selects; i++)
		op(b, thr, ts + 1000 * i, 1000, "aten::select");
	if (p->selects) {
		op(b, thr, ts + 1000 * p->selects, 1000, "SelectBackward0");
		ts += 1000 * (p->selects + 1);
	}
	stage(b, thr, forward, ts - forward, LG_STAGE_FORWARD);
	from = ts;
	for (int i = 0; i < 3; i++) {
		if (p->recompute) {
			op(b, thr, ts, unit, "aten::addmm");
			ts += unit;
		}
		op(b, thr, ts, unit, "AddmmBackward0");
		ts += unit;
	}
	stage(b, thr, from, ts - from, LG_STAGE_BACKWARD);
	stage(b, thr, ts, unit / 2, LG_STAGE_OPTIMIZER);
	if (p->mode && k % 20 == 0) {
		lg_add_mark(b, &(struct lg_mark_row){ .ts = forward, .thr = thr,
						      .name = lg_intern(b, "dispatch_mode"),
						      .text = lg_intern(b, "torch.utils.x.FlopMode x.py:7") });
		lg_add_mark(b, &(struct lg_mark_row){ .ts = forward, .thr = thr, .name = lg_intern(b, "compile.requested") });
	}
	return ts + unit / 2;
}

static struct lg_trace *made(const struct plan *p)
{
	struct lg_builder *b;
	struct lg_process_row row;
	struct lg_trace *t;
	lg_thr thr;
	int64_t ts = 1000 * MS;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	thr = lg_thread_get(b, 900, 900);
	row = lg_process_read(b, lg_thread_process(b, thr));
	row.rank = 0;
	row.role = LG_ROLE_RANK;
	lg_process_write(b, lg_thread_process(b, thr), &row);
	lg_meta_set(b, lg_thread_process(b, thr), "torch.version", p->torch);
	lg_meta_set(b, lg_thread_process(b, thr), "loader.batch_size", p->batch);
	lg_meta_set(b, lg_thread_process(b, thr), "env.MASTER_PORT", p->steps % 2 ? "1" : "2");
	for (const char *const *f = p->facts; f && *f; f += 2)
		lg_meta_set(b, lg_thread_process(b, thr), f[0], f[1]);
	for (int k = 0; k < p->steps; k++)
		ts = one_step(b, thr, p, ts, k);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

/* ---- comparing ---- */

static struct pair compare(const struct plan *before, const struct plan *after)
{
	return compare_traces(made(before), made(after), 0.05);
}

static void the_same_run_twice_has_no_finding(void **state)
{
	struct plan noisy = plain, other = plain;
	struct pair p = compare(&plain, &plain);

	(void)state;
	assert_int_equal(p.d->v.n_findings, 0);
	assert_string_equal(p.d->gate.verdict, "pass");
	check_sum(&p);
	done(&p);
	noisy.noisy = other.noisy = true;
	other.steps = 240; /* another draw of the noise */
	p = compare(&noisy, &other);
	assert_int_equal(loud(&p), 0);
	assert_string_equal(p.d->gate.verdict, "pass");
	assert_true(p.d->mean.lo < 1.01 && p.d->mean.hi > 0.99);
	done(&p);
}

static void lost_regions_are_a_lost_compilation(void **state)
{
	struct plan after = plain;
	struct pair p;

	(void)state;
	after.regions = 0;
	after.slower = 1.5;
	p = compare(&plain, &after);
	assert_non_null(find(&p, "compile.skipped"));
	assert_int_equal(loud(&p), 1);
	assert_int_equal(p.d->v.findings[0].severity, LG_SEVERITY_HIGH);
	/* 1.5 ms of a step that took 6.5 */
	assert_true(fabs(p.d->v.findings[0].lost_ms / (double)p.s[1]->s.n - 1.5) < 0.05);
	assert_string_equal(p.d->gate.verdict, "fail");
	check_sum(&p);
	done(&p);
	/* The other way round nothing is wrong. */
	p = compare(&after, &plain);
	assert_int_equal(loud(&p), 0);
	assert_string_equal(p.d->gate.verdict, "pass");
	check_sum(&p);
	done(&p);
}

/* The operators of an eager module are other ones than those of its compiled regions: where the cost of that
 * is lost in noise, one of them is no cause beside it. */
static void operators_of_lost_regions_are_no_causes_of_their_own(void **state)
{
	struct plan before = plain, after = plain;
	struct pair p;

	(void)state;
	before.noisy = after.noisy = true;
	before.steps = 9;
	after.steps = 10;
	after.new_op_ms = 0.3;
	p = compare(&before, &after);
	assert_non_null(find(&p, "regress.op"));
	done(&p);
	after.regions = 0;
	p = compare(&before, &after);
	assert_non_null(find(&p, "compile.skipped"));
	assert_null(find(&p, "regress.op"));
	check_sum(&p);
	done(&p);
}

static void lost_regions_that_cost_nothing_are_low(void **state)
{
	struct plan after = plain;
	struct pair p;

	(void)state;
	after.regions = 0;
	p = compare(&plain, &after);
	assert_non_null(find(&p, "compile.skipped"));
	assert_int_equal(loud(&p), 0);
	done(&p);
}

static bool says(const struct lg_finding *f, const char *what)
{
	bool said = false;

	for (size_t i = 0; i < f->n_evidence; i++)
		said |= strstr(f->evidence[i].text, what) != NULL;
	return said;
}

static void what_is_not_priced_says_why(void **state)
{
	struct plan before = plain, after = plain;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	before.noisy = after.noisy = true;
	before.steps = 9;
	after.steps = 10;
	after.regions = 0;
	p = compare(&before, &after);
	f = find(&p, "compile.skipped");
	assert_non_null(f);
	assert_true(isnan(f->lost_ms) && f->severity == LG_SEVERITY_MEDIUM);
	assert_true(says(f, "not priced, because these two runs vary too much") && says(f, "(95 %: -"));
	done(&p);
	before.noisy = after.noisy = false;
	after.steps = 2;
	p = compare(&before, &after);
	f = find(&p, "compile.skipped");
	assert_non_null(f);
	assert_true(isnan(f->lost_ms) && says(f, "not priced, because"));
	done(&p);
	after.steps = 10;
	p = compare(&before, &after);
	f = find(&p, "compile.skipped");
	assert_true(!isnan(f->lost_ms) && !says(f, "not priced"));
	done(&p);
}

/* ---- from where on (diff_pair.h) ---- */

static struct pair new_op_of_us(int64_t x)
{
	struct plan after = plain;

	after.new_op_ms = (double)x / 1000;
	return compare(&plain, &after);
}

static bool op_is_told(const struct pair *p)
{
	return find(p, "regress.op") != NULL;
}

static struct pair later_by_us(int64_t x)
{
	struct run_plan before = { .n_ranks = 1, .n_steps = 400, .only_rank = -1, .steady_late_rank = -1 };
	struct run_plan after = before;

	after.steady_late_rank = 0;
	after.steady_late_ns = x * 1000;
	return compare_traces(synthetic_run(&before), synthetic_run(&after), 0.05);
}

static bool stage_is_told(const struct pair *p)
{
	return find(p, "regress.stage") != NULL;
}

/* Forward, three of 6.5 ms, takes so many hundred thousandths longer, and another version is in use. */
static struct pair slower_version(int64_t x)
{
	struct plan before = plain, after;

	before.noisy = false;
	after = before;
	after.torch = "2.7.0";
	after.slower = 1 + (double)x / 1e5;
	return compare(&before, &after);
}

static bool version_is_loud(const struct pair *p)
{
	return find(p, "regress.version") && find(p, "regress.version")->severity == LG_SEVERITY_MEDIUM;
}

static void told_from_their_thresholds_on(void **state)
{
	double op = (double)told_from(new_op_of_us, op_is_told, 10, 1500) / 1000;
	double stage = (double)told_from(later_by_us, stage_is_told, 10, 1500) / 1000;
	double slower = 3 * (double)told_from(slower_version, version_is_loud, 100, 50000) / 1e5;

	(void)state;
	op /= op + 6.5;
	stage /= stage + 9.84;
	slower /= slower + 6.5;
	/* Two runs of one program differ by 2.5 %: so much of it needs no explanation. */
	slower -= 0.025;
	if (op < 0.03 || op > 0.032 || stage < 0.01 || stage > 0.011 || slower < 0.029 || slower > 0.032)
		fail_msg("told from %.4f, %.4f, %.4f on", op, stage, slower);
}

static void a_new_operator_is_named(void **state)
{
	struct plan after = plain;
	struct pair p;

	(void)state;
	after.new_op_ms = 0.8;
	p = compare(&plain, &after);
	assert_string_equal(p.d->v.findings[0].id, "regress.op");
	assert_string_equal(p.d->v.findings[0].culprit.function, "aten::new_thing");
	assert_true(fabs(p.d->v.findings[0].lost_share - 0.8 / 7.3) < 0.01);
	assert_int_equal(loud(&p), 1);
	check_sum(&p);
	done(&p);
}

static void a_slower_stage_without_a_culprit_is_regress_stage(void **state)
{
	struct run_plan before = { .n_ranks = 1, .n_steps = 400, .only_rank = -1, .steady_late_rank = -1 };
	struct run_plan after = before;
	struct pair p;

	(void)state;
	after.steady_late_rank = 0;
	after.steady_late_ns = 2 * MS;
	p = compare_traces(synthetic_run(&before), synthetic_run(&after), 0.05);
	assert_string_equal(p.d->v.findings[0].id, "regress.stage");
	assert_string_equal(p.d->v.findings[0].stage, "backward");
	assert_true(fabs(p.d->v.findings[0].lost_ms / (double)p.s[1]->s.n - 2) < 0.1);
	assert_int_equal(loud(&p), 1);
	assert_string_equal(p.d->gate.verdict, "fail");
	check_sum(&p);
	done(&p);
}

/* Whichever rank's steps are compared: its own work or its wait, both lie in backward. */
static void a_rank_that_got_late_is_named(void **state)
{
	struct run_plan before = { .n_ranks = 2, .n_steps = 400, .only_rank = -1, .steady_late_rank = -1 };

	(void)state;
	for (int late = 0; late < 2; late++) {
		struct run_plan after = before;
		struct pair p;

		after.steady_late_rank = late;
		after.steady_late_ns = 2 * MS;
		p = compare_traces(synthetic_run(&before), synthetic_run(&after), 0.05);
		assert_int_equal(p.s[1]->ref_rank, 0);
		assert_string_equal(p.d->v.findings[0].id, "comms.straggler");
		assert_int_equal(p.d->v.findings[0].culprit.rank, late);
		assert_true(fabs(p.d->v.findings[0].lost_ms / (double)p.s[1]->s.n - 2) < 0.1);
		assert_int_equal(loud(&p), 1);
		assert_string_equal(p.d->gate.verdict, "fail");
		check_sum(&p);
		done(&p);
	}
}

static void recomputation_is_checkpointing(void **state)
{
	struct plan after = plain;
	struct pair p;

	(void)state;
	after.recompute = 1;
	p = compare(&plain, &after);
	assert_string_equal(p.d->v.findings[0].id, "regress.memory_saving");
	assert_string_equal(p.d->v.findings[0].detail, "checkpointing");
	assert_int_equal(loud(&p), 1);
	check_sum(&p);
	done(&p);
}

static void gathers_in_every_step_are_sharding(void **state)
{
	struct plan after = plain;
	struct pair p;

	(void)state;
	after.gathers = 2;
	p = compare(&plain, &after);
	assert_string_equal(p.d->v.findings[0].id, "regress.memory_saving");
	assert_string_equal(p.d->v.findings[0].detail, "sharding");
	assert_int_equal(loud(&p), 1);
	check_sum(&p);
	done(&p);
}

static void a_version_is_loud_only_when_something_is_unexplained(void **state)
{
	struct plan after = plain;
	struct pair p;

	(void)state;
	after.torch = "2.7.0";
	p = compare(&plain, &after);
	assert_int_equal(find(&p, "regress.version")->severity, LG_SEVERITY_INFO);
	assert_int_equal(p.d->n_facts, 1); /* ports and the like are no news */
	done(&p);
	after.slower = 1.3;
	p = compare(&plain, &after);
	assert_int_equal(find(&p, "regress.version")->severity, LG_SEVERITY_MEDIUM);
	assert_true(isnan(find(&p, "regress.version")->lost_ms));
	assert_string_equal(p.d->v.findings[p.d->v.n_findings - 1].id, "regress.version");
	done(&p);
}

static void a_probe_before_the_training_is_no_other_flag(void **state)
{
	static const char *const probed[] = { "model.0.device", "cpu", "model.1.device", "cuda",
					      "input.shapes", "3", NULL };
	static const char *const alone[] = { "model.0.device", "cuda", "input.shapes", "1", NULL };
	static const char *const probed_alike[] = { "model.0.device", "cuda", "model.1.device", "cuda",
						    "input.shapes", "3", NULL };
	static const char *const moved[] = { "model.0.device", "cpu", "input.shapes", "3", NULL };
	struct plan before = plain, after = plain;
	struct pair p;

	(void)state;
	before.facts = probed_alike;
	after.facts = alone;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_facts, 0);
	done(&p);
	before.facts = probed;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_facts, 1); /* one of another device is gone */
	done(&p);
	after.facts = moved;
	before.facts = alone;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_facts, 2); /* its device, and more shapes */
	done(&p);
}

static void a_new_finding_without_a_price_is_told(void **state)
{
	static const char *const half[] = { "model.0.parameters", "float16=1000", "torch.autocast_backward", "0", NULL };
	struct plan before = plain, after = plain;
	struct pair p;

	(void)state;
	after.facts = half;
	after.slower = 1.5;
	p = compare(&before, &after);
	assert_int_equal(find(&p, "gpu.amp_misuse")->severity, LG_SEVERITY_MEDIUM);
	assert_true(isnan(find(&p, "gpu.amp_misuse")->lost_ms));
	assert_memory_equal(find(&p, "gpu.amp_misuse")->title, "new: ", 5);
	check_sum(&p);
	done(&p);
	/* Steps are no longer than they were. */
	after.slower = 1;
	p = compare(&before, &after);
	assert_int_equal(find(&p, "gpu.amp_misuse")->severity, LG_SEVERITY_LOW);
	done(&p);
	/* It was there before. */
	before.facts = half;
	after.slower = 1.5;
	p = compare(&before, &after);
	assert_null(find(&p, "gpu.amp_misuse"));
	done(&p);
}

static void another_batch_size_is_unfair_and_judged_by_samples(void **state)
{
	struct plan before = plain, after = plain;
	struct pair p;

	(void)state;
	before.selects = 20; /* aten::bmm on a CPU selects sample by sample: that is no recomputation */
	after.selects = 40;
	after.batch = "64";
	after.slower = 1.5; /* 8 ms instead of 6.5 for twice the samples */
	p = compare(&before, &after);
	assert_int_equal(p.d->n_unfair, 1);
	assert_non_null(strstr(p.d->unfair[0], "batch size: 32 before, 64 after"));
	assert_true(p.d->mean.lo > 1.2);
	assert_true(fabs(p.d->samples.value - 2 * 6.5 / 8) < 0.02);
	assert_string_equal(p.d->gate.verdict, "pass");
	assert_int_equal(loud(&p), 1);
	assert_string_equal(p.d->v.findings[0].id, "regress.workload");
	check_sum(&p);
	done(&p);
}

static void a_new_lock_holder_is_named_with_its_period(void **state)
{
	struct run_plan before = { .n_ranks = 2, .n_steps = 800, .only_rank = -1, .steady_late_rank = -1,
				   .stall_ns = 80 * MS };
	struct run_plan after = before;
	struct pair p;

	(void)state;
	after.stall = STALL_LOCK;
	after.period_ns = 700 * MS;
	p = compare_traces(synthetic_run(&before), synthetic_run(&after), 0.05);
	assert_string_equal(p.d->v.findings[0].id, "host.lock_held");
	assert_int_equal(p.d->v.findings[0].culprit.pid, CULPRIT_PID);
	assert_int_equal(loud(&p), 1);
	assert_int_equal(p.d->n_holders, 1);
	assert_true(fabs(p.d->holders[0].period_after - 0.7) < 0.02);
	check_sum(&p);
	done(&p);
	/* In both runs alike: no news. */
	p = compare_traces(synthetic_run(&after), synthetic_run(&after), 0.05);
	assert_int_equal(loud(&p), 0);
	done(&p);
}

static char *saved(const struct lg_side *s, size_t *n)
{
	struct lg_out *o;
	char *bytes;

	assert_int_equal(lg_out_memory(&o, NULL), 0);
	lg_baseline_write(s, o);
	bytes = lg_out_take(o, n);
	lg_out_abort(o);
	assert_non_null(bytes);
	return bytes;
}

static void one_burst_of_stalls_is_less_sure_than_a_rhythm_of_them(void **state)
{
	struct run_plan before = { .n_ranks = 2, .n_steps = 800, .only_rank = -1, .steady_late_rank = -1,
				   .stall_ns = 80 * MS };
	struct run_plan rhythm = before, burst;
	const struct lg_finding *f;
	struct lg_side *back;
	struct lg_error err;
	struct pair p;
	double lost;
	char *bytes;
	size_t n;

	(void)state;
	rhythm.stall = STALL_LOCK;
	rhythm.period_ns = 1000 * MS;
	p = compare_traces(synthetic_run(&before), synthetic_run(&rhythm), 0.05);
	f = find(&p, "host.lock_held");
	assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
	lost = f->lost_ms;
	done(&p);
	/* As much of it, in a tenth of the run: it may not come again. */
	burst = rhythm;
	burst.period_ns = 100 * MS;
	burst.stalls_for_ns = (int64_t)(lost / 80 + 2) * 100 * MS;
	p = compare_traces(synthetic_run(&before), synthetic_run(&burst), 0.05);
	f = find(&p, "host.lock_held");
	assert_true(fabs(f->lost_ms - lost) < 0.2 * lost);
	assert_int_equal(f->severity, LG_SEVERITY_INFO);
	assert_true(p.s[1]->findings[0].half > 0.8 * p.s[1]->findings[0].ms);
	bytes = saved(p.s[1], &n);
	assert_int_equal(lg_baseline_read(bytes, n, "x", &back, &err), 0);
	assert_true(fabs(back->findings[0].half - p.s[1]->findings[0].half) < 1e-4);
	lg_side_free(back);
	lg_free(bytes);
	done(&p);
}

static void what_the_hypervisor_took_is_told_and_never_loud(void **state)
{
	struct run_plan before = { .n_ranks = 2, .n_steps = 800, .only_rank = -1, .steady_late_rank = -1 };
	struct run_plan after = before;
	struct lg_side *back;
	struct lg_error err;
	struct pair p;
	char *bytes;
	size_t n;

	(void)state;
	before.steal = 0.01;
	after.steal = 0.3;
	p = compare_traces(synthetic_run(&before), synthetic_run(&after), 0.05);
	assert_non_null(find(&p, "host.steal"));
	assert_int_equal(loud(&p), 0);
	/* The same work took as long: there is nothing to explain, but less can be trusted. */
	assert_true(find(&p, "host.steal")->lost_ms == 0);
	assert_true(p.d->load > 0.3);
	check_sum(&p);
	bytes = saved(p.s[1], &n);
	assert_int_equal(lg_baseline_read(bytes, n, "x", &back, &err), 0);
	assert_true(fabs(back->stolen_ms - p.s[1]->stolen_ms) < 1e-4 && back->stolen_ms > 0);
	lg_side_free(back);
	lg_free(bytes);
	done(&p);
	p = compare_traces(synthetic_run(&after), synthetic_run(&before), 0.05);
	assert_null(find(&p, "host.steal"));
	done(&p);
}

static void a_baseline_stands_for_its_run(void **state)
{
	struct plan after = plain;
	struct lg_side *back;
	struct lg_error err;
	struct lg_diff *d;
	struct pair p;
	size_t n;
	char *bytes;

	(void)state;
	after.regions = 0;
	after.slower = 1.5;
	p = compare(&plain, &after);
	bytes = saved(p.s[0], &n);
	assert_int_equal(lg_baseline_read(bytes, n, "x", &back, &err), 0);
	assert_int_equal(lg_diff_new(back, p.s[1], p.v[1], 0.05, &d, &err), 0);
	assert_int_equal(d->v.n_findings, p.d->v.n_findings);
	assert_string_equal(d->v.findings[0].id, "compile.skipped");
	assert_true(fabs(d->v.findings[0].lost_ms - p.d->v.findings[0].lost_ms) < 0.1);
	assert_string_equal(d->gate.verdict, "fail");
	lg_diff_free(d);
	/* Both sides stored. */
	assert_int_equal(lg_diff_new(back, back, NULL, (double)NAN, &d, &err), 0);
	assert_int_equal(d->v.n_findings, 0);
	assert_null(d->gate.verdict);
	lg_diff_free(d);
	lg_side_free(back);
	lg_free(bytes);
	done(&p);
}

static void a_damaged_baseline_is_refused_at_every_byte(void **state)
{
	struct plan small = plain;
	struct lg_side *back;
	struct lg_error err;
	struct pair p;
	char *bytes;
	size_t n;

	(void)state;
	small.steps = 12;
	p = compare(&small, &small);
	bytes = saved(p.s[0], &n);
	for (size_t i = 0; i < n; i++)
		assert_true(lg_baseline_read(bytes, i, "x", &back, &err) < 0);
	for (size_t i = 0; i < n; i++) {
		char was = bytes[i];

		bytes[i] = (char)(was ^ 1);
		if (lg_baseline_read(bytes, n, "x", &back, &err) == 0)
			fail_msg("a changed byte %zu was not noticed", i);
		bytes[i] = was;
	}
	lg_free(bytes);
	done(&p);
}

static void runs_that_differ_by_themselves_widen_the_interval(void **state)
{
	struct plan after = plain;
	struct lg_error err;
	struct lg_diff *d;
	struct pair p;

	(void)state;
	after.slower = 1.2; /* 9 % of the step */
	p = compare(&plain, &after);
	assert_string_equal(p.d->gate.verdict, "fail");
	for (int i = 0; i < 5; i++) {
		p.s[0]->run_mean[i] = 6.5 + 0.5 * (i - 2);
		p.s[0]->run_median[i] = 6.5 + 0.5 * (i - 2);
	}
	p.s[0]->n_runs = 5;
	assert_int_equal(lg_diff_new(p.s[0], p.s[1], p.v[1], 0.05, &d, &err), 0);
	assert_string_equal(d->gate.verdict, "pass");
	assert_true(d->mean.lo < 1 && d->mean.hi > 1.2);
	lg_diff_free(d);
	done(&p);
}

static void a_run_that_drifts_is_not_sure_of_its_mean(void **state)
{
	enum { N = 200 };
	static double x[2][N];
	struct lg_bootstrap r;

	(void)state;
	for (int i = 0; i < N; i++) {
		double u = (double)(lg_mix64((uint64_t)i) % 1000) / 1000;

		x[0][i] = 10 + u;
		/* 10 % more in the mean, 20 % at the end: where will it stop? */
		x[1][i] = 10 + u + 2.0 * i / (double)N;
	}
	assert_true(lg_bootstrap(x[0], N, x[1], N, &r));
	assert_true(r.mean.value > 1.08 && r.mean.lo < 1.01 && r.delta_lo < 0.1);
	/* The same difference all the time is one. */
	for (int i = 0; i < N; i++)
		x[1][i] = x[0][i] + 1;
	assert_true(lg_bootstrap(x[0], N, x[1], N, &r));
	assert_true(r.mean.lo > 1.07 && r.delta_lo > 0.8);
	/* Three steps that differ by themselves say little, two nothing. */
	assert_true(lg_bootstrap((double[]){ 10, 11, 12 }, 3, (double[]){ 11.5, 12, 13.5 }, 3, &r));
	assert_true(r.mean.lo < 1 && r.mean.hi > 1.2);
	assert_true(lg_bootstrap(x[0], N, (double[]){ 20, 21 }, 2, &r));
	assert_true(r.mean.value > 1.8 && isnan(r.mean.lo) && isnan(r.delta_lo) && isnan(r.med_hi));
}

static void what_two_runs_may_differ_by_is_not_loud(void **state)
{
	struct plan after = plain;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	/* 7 % of the step, by no known cause. */
	after.slower = 1.16;
	p = compare(&plain, &after);
	f = find(&p, "regress.stage");
	if (!f)
		f = find(&p, "regress.op");
	assert_non_null(f);
	/* 0.48 ms of a stage that took 3: 0.165 may be noise, 4.5 % are left. */
	assert_int_equal(loud(&p), 1);
	assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
	done(&p);
	after.slower = 1.08; /* 3.7 % */
	p = compare(&plain, &after);
	assert_int_equal(loud(&p), 0);
	assert_true(find(&p, "regress.stage") || find(&p, "regress.op"));
	/* With a baseline whose runs agree better than that it is. */
	for (int i = 0; i < 6; i++)
		p.s[0]->run_mean[i] = p.s[0]->run_median[i] = 6.5 + 0.002 * (i % 3);
	p.s[0]->n_runs = 6;
	lg_diff_free(p.d);
	assert_int_equal(lg_diff_new(p.s[0], p.s[1], p.v[1], 0.05, &p.d, NULL), 0);
	assert_int_equal(loud(&p), 1);
	/* The more of the CPUs others use, the less is sure. */
	p.s[0]->n_runs = 0;
	p.s[0]->processes = lg_arena_alloc(&p.s[0]->arena, 1, sizeof *p.s[0]->processes);
	p.s[1]->processes = lg_arena_alloc(&p.s[1]->arena, 1, sizeof *p.s[1]->processes);
	p.s[0]->n_processes = p.s[1]->n_processes = 1;
	p.s[0]->processes[0] = (struct lg_side_process){ .key = "other", .comm = "", .cmdline = "", .pid = 5,
							 .cpu = 0.1 };
	p.s[1]->processes[0] = p.s[0]->processes[0];
	p.s[1]->processes[0].cpu = 0.9;
	lg_diff_free(p.d);
	assert_int_equal(lg_diff_new(p.s[0], p.s[1], p.v[1], 0.05, &p.d, NULL), 0);
	assert_true(fabs(p.d->load - 0.32) < 0.001 && p.d->between > 0.37);
	assert_int_equal(loud(&p), 0);
	done(&p);
}

static void too_few_steps_are_not_judged(void **state)
{
	struct run_plan few = { .n_ranks = 1, .n_steps = 3, .only_rank = -1, .steady_late_rank = -1 };
	struct run_plan many = few;
	struct pair p;

	(void)state;
	many.n_steps = 100;
	p = compare_traces(synthetic_run(&many), synthetic_run(&few), 0.05);
	assert_string_equal(p.d->gate.verdict, "unknown");
	assert_int_equal(loud(&p), 0);
	done(&p);
}

static void quantiles_are_those_of_numpy(void **state)
{
	/* numpy.quantile(v, q) */
	static const struct { double q, is; } want[] = { { 0, 1 }, { 0.25, 2.5 }, { 0.5, 5 }, { 0.75, 7 },
							 { 0.99, 39.02 }, { 1, 41 } };
	const double v[] = { 9, 1, 41, 3, 7, 2, 5, 3, 2, 6, 8.5, 4 }, even[] = { 4, 1 };
	double sorted[] = { 1, 2, 3, 5, 6, 8, 41 };

	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		double mixed[] = { 8, 41, 3, 1, 6, 2, 5 };

		assert_true(fabs(lg_quantile_f64(sorted, 7, want[i].q) - want[i].is) < 1e-9);
		assert_true(fabs(lg_quantile_of(mixed, 7, want[i].q) - want[i].is) < 1e-9);
	}
	for (double q = 0; q <= 1; q += 0.01) {
		double a[12], b[12];

		memcpy(a, v, sizeof v);
		memcpy(b, v, sizeof v);
		qsort(b, 12, sizeof *b, lg_cmp_f64);
		assert_true(fabs(lg_quantile_of(a, 12, q) - lg_quantile_f64(b, 12, q)) < 1e-9);
	}
	assert_true(lg_quantile_of((double[]){ even[0], even[1] }, 2, 0.5) == 2.5);
	assert_true(isnan(lg_quantile_f64(sorted, 0, 0.5)) && isnan(lg_quantile_of(sorted, 0, 0.5)));
}

static void the_interval_holds_the_truth_as_often_as_it_says(void **state)
{
	/* Two series of correlated noise with a known ratio: 95 % intervals must hold it in about 95
	 * of 100 cases (block bootstrap of 20 blocks is a little short: 88 is the limit here). */
	enum { N = 400 };
	static double x[2][N];
	uint64_t rng = 7;
	int held = 0;

	(void)state;
	for (int run = 0; run < 100; run++) {
		struct lg_bootstrap r;

		for (int s = 0; s < 2; s++) {
			double drift = 0;

			for (int i = 0; i < N; i++) {
				double u = (double)(lg_mix64(rng++) % 2000) / 1000 - 1;

				drift = 0.7 * drift + u;
				x[s][i] = (s ? 11 : 10) + drift;
			}
		}
		assert_true(lg_bootstrap(x[0], N, x[1], N, &r));
		held += r.mean.lo <= 1.1 && 1.1 <= r.mean.hi;
		assert_true(r.mean.lo <= r.mean.value && r.mean.value <= r.mean.hi);
	}
	assert_in_range(held, 88, 100);
}

static void no_memory_is_an_error_and_leaks_nothing(void **state)
{
	struct plan small = plain;
	struct pair p;
	struct lg_side *s = NULL;
	struct lg_diff *d = NULL;
	struct lg_error err;
	uint64_t n, made;
	char *bytes;
	size_t len;

	(void)state;
	small.steps = 12;
	p = compare(&small, &small);
	bytes = saved(p.s[0], &len);
	for (int what = 0; what < 3; what++) {
		int rc;

		n = 0;
		do {
			lg_alloc_fail_at(++n);
			rc = what == 0 ? lg_side_new(p.v[0], &s, &err)
			   : what == 1 ? lg_diff_new(p.s[0], p.s[1], p.v[1], 0.05, &d, &err)
				       : lg_baseline_read(bytes, len, "x", &s, &err);
			made = lg_alloc_count();
			lg_alloc_fail_at(0);
			assert_true(made < n ? !rc : rc == LG_E_NOMEM || rc == LG_E_LIMIT);
		} while (rc);
		if (what == 1)
			lg_diff_free(d);
		else
			lg_side_free(s);
	}
	lg_free(bytes);
	done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_run_twice_has_no_finding),
		cmocka_unit_test(lost_regions_are_a_lost_compilation),
		cmocka_unit_test(operators_of_lost_regions_are_no_causes_of_their_own),
		cmocka_unit_test(lost_regions_that_cost_nothing_are_low),
		cmocka_unit_test(what_is_not_priced_says_why),
		cmocka_unit_test(told_from_their_thresholds_on),
		cmocka_unit_test(a_new_operator_is_named),
		cmocka_unit_test(a_slower_stage_without_a_culprit_is_regress_stage),
		cmocka_unit_test(a_rank_that_got_late_is_named),
		cmocka_unit_test(recomputation_is_checkpointing),
		cmocka_unit_test(gathers_in_every_step_are_sharding),
		cmocka_unit_test(a_version_is_loud_only_when_something_is_unexplained),
		cmocka_unit_test(a_probe_before_the_training_is_no_other_flag),
		cmocka_unit_test(a_new_finding_without_a_price_is_told),
		cmocka_unit_test(another_batch_size_is_unfair_and_judged_by_samples),
		cmocka_unit_test(a_new_lock_holder_is_named_with_its_period),
		cmocka_unit_test(one_burst_of_stalls_is_less_sure_than_a_rhythm_of_them),
		cmocka_unit_test(what_the_hypervisor_took_is_told_and_never_loud),
		cmocka_unit_test(a_baseline_stands_for_its_run),
		cmocka_unit_test(a_damaged_baseline_is_refused_at_every_byte),
		cmocka_unit_test(runs_that_differ_by_themselves_widen_the_interval),
		cmocka_unit_test(a_run_that_drifts_is_not_sure_of_its_mean),
		cmocka_unit_test(what_two_runs_may_differ_by_is_not_loud),
		cmocka_unit_test(too_few_steps_are_not_judged),
		cmocka_unit_test(quantiles_are_those_of_numpy),
		cmocka_unit_test(the_interval_holds_the_truth_as_often_as_it_says),
		cmocka_unit_test(no_memory_is_an_error_and_leaks_nothing),
	};

	return cmocka_run_group_tests_name("diff", tests, NULL, NULL);
}
