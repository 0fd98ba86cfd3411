/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of a profiler's traces. Such a trace marks few stages of the main thread, and what a device takes
 * shows wherever the host next waits for it: a cause that is new must be told all the same, with its loss.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "diff_pair.h"
#include "synthetic_gpu.h"

#define US 1000ll
#define MS 1000000ll

static struct pair compare(const struct gpu_plan *before, const struct gpu_plan *after)
{
	return compare_traces(synthetic_gpu(before), synthetic_gpu(after), 0.05);
}

static void checked(struct pair *p)
{
	check_sum(p);
	done(p);
}

/* The host waits for the device once a step, so that its steps are as long as the device's. */
static struct gpu_plan loop(void)
{
	struct gpu_plan p = gpu_healthy;

	p.n_steps = 30;
	p.sync_every = p.n_kernels;
	return p;
}

/* It is the only loud one, high, and takes so many ms of each step. */
static void check_only(const struct gpu_plan *before, const struct gpu_plan *after, const char *id, double ms)
{
	struct pair p = compare(before, after);
	const struct lg_finding *f = p.d->v.findings;

	assert_true(p.d->v.n_findings > 0);
	assert_string_equal(f->id, id);
	assert_int_equal(f->severity, LG_SEVERITY_HIGH);
	assert_true(fabs(f->lost_ms / (double)p.s[1]->s.n - ms) < 0.1 * ms);
	assert_int_equal(loud(&p), 1);
	assert_string_equal(p.d->gate.verdict, "fail");
	checked(&p);
	p = compare(after, after);
	assert_int_equal(p.d->v.n_findings, 0);
	checked(&p);
	p = compare(after, before);
	assert_int_equal(loud(&p), 0);
	checked(&p);
}

static void collectives_that_got_longer_are_exposed(void **state)
{
	struct gpu_plan before = loop(), after;

	(void)state;
	before.n_comm = 1;
	before.comm_ns = 100 * US;
	after = before;
	after.comm_ns = 3100 * US;
	check_only(&before, &after, "comms.exposed", 3);
}

static void pageable_copies_are_told(void **state)
{
	struct gpu_plan before = loop(), after;

	(void)state;
	before.copy = COPY_PINNED_SIDE;
	before.copy_ns = 2000 * US;
	after = before;
	after.copy = COPY_PAGEABLE;
	check_only(&before, &after, "data.pageable_copy", 2);
}

/* The loader's own stage is marked; its wait is not taken for another cause's. */
static void two_new_causes_have_their_own(void **state)
{
	struct gpu_plan before = loop(), after;
	double loader = NAN, comm = NAN;
	struct pair p;

	(void)state;
	before.loader_ns = 20 * US;
	before.ddp_buckets = 1; /* before the host waits, so that no loader hides it */
	before.comm_ns = 50 * US;
	after = before;
	after.comm_ns = 4050 * US;
	after.loader_ns = 3000 * US;
	p = compare(&before, &after);
	for (size_t i = 0; i < p.d->v.n_findings; i++) {
		const struct lg_finding *f = &p.d->v.findings[i];
		double ms = f->lost_ms / (double)p.s[1]->s.n;

		if (!strcmp(f->id, "data.loader_wait"))
			loader = ms;
		else if (!strcmp(f->id, "comms.exposed"))
			comm = ms;
	}
	assert_true(fabs(loader - 3) < 0.2 && fabs(comm - 4) < 0.2);
	assert_int_equal(loud(&p), 2);
	checked(&p);
}

/* A debugging aid explains what operators take longer, and not the wait for batches beside it. */
static void a_debugging_aid_leaves_the_loader_its_wait(void **state)
{
	struct gpu_plan before = loop(), after;
	const struct lg_finding *loader, *aid;
	struct pair p;

	(void)state;
	before.no_device = before.no_gpu = before.no_launches = before.nodes = true;
	before.loader_ns = 20 * US;
	after = before;
	after.search_nan = true;
	p = compare(&before, &after);
	assert_null(find(&p, "data.loader_wait"));
	assert_non_null(find(&p, "debug.left_on"));
	checked(&p);
	after.loader_ns = 9000 * US;
	p = compare(&before, &after);
	loader = find(&p, "data.loader_wait");
	aid = find(&p, "debug.left_on");
	assert_non_null(loader);
	assert_true(fabs(loader->lost_ms / (double)p.s[1]->s.n - 9) < 0.3);
	assert_true(aid && (isnan(aid->lost_ms) || aid->lost_ms < loader->lost_ms));
	checked(&p);
}

/* The number in the sentence is the one that is sure, and its interval stands beside it. */
static void the_sentence_tells_what_is_sure(void **state)
{
	struct lg_finding new = { .title = "regions are gone", .severity = LG_SEVERITY_MEDIUM, .lost_ms = NAN };
	struct lg_change gains[] = { { .kind = "stage", .name = "forward", .delta = -3, .sure = true },
				     { .kind = "stage", .name = "batch_wait", .delta = -44, .sure = true },
				     { .kind = "stage", .name = "other", .delta = -90 } };
	struct lg_diff d = { .mean_ms = { 40, 41 }, .median_ms = { 40, 44 }, .mean = { 1.02, 0.9, 1.2 },
			     .median = { 1.1, 1.05, 1.15 } };

	(void)state;
	lg_diff_headline(&d);
	assert_string_equal(d.headline, "10.0 % slower in the median: mean step 40.000 ms before, 41.000 ms after "
			    "(95 %: -10.0 to +20.0 %); median 40.000 and 44.000 (95 %: +5.0 to +15.0 %).");
	/* One pause makes the mean unsure; what got better comes first, what is worse behind it. */
	d.mean = (struct lg_ratio){ 1.01, 0.9, 1.2 };
	d.median = (struct lg_ratio){ 0.9, 0.85, 0.95 };
	d.stages = gains;
	d.n_stages = 3;
	d.v.findings = &new;
	d.v.n_findings = 1;
	lg_diff_headline(&d);
	assert_non_null(strstr(d.headline, "10.0 % faster in the median"));
	assert_non_null(strstr(d.headline, "(95 %: -15.0 to -5.0 %). Most of it: stage batch_wait -44.000 ms a step. What is "
			       "worse: regions are gone."));
	d.stages = NULL;
	d.n_stages = d.v.n_findings = 0;
	d.mean = (struct lg_ratio){ 1.1, 1.02, 1.2 };
	lg_diff_headline(&d);
	assert_non_null(strstr(d.headline, "10.0 % slower: mean step"));
	d.mean = d.median = (struct lg_ratio){ 1.01, 0.9, 1.1 };
	d.v.findings = &new;
	d.v.n_findings = 1;
	lg_diff_headline(&d);
	assert_non_null(strstr(d.headline, "No change beyond the noise"));
	assert_non_null(strstr(d.headline, "What is new: regions are gone"));
	new.lost_ms = 3;
	lg_diff_headline(&d);
	assert_non_null(strstr(d.headline, "Most of it: regions are gone"));
	lg_arena_done(&d.v.arena);
}

static void a_kernel_is_called_by_what_tells_it_from_others(void **state)
{
	static const char *const rows[][2] = {
		{ "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> "
		  ">(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
		  "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul> >" },
		{ "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, false>(float*, "
		  "float const*, int)", "softmax_warp_forward<float, float, float, 9, false>" },
		{ "ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn" },
		{ "triton_poi_fused_add_0", "triton_poi_fused_add_0" },
	};
	char buf[LG_KERNEL_TEXT], cut[16];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(lg_short_kernel(rows[i][0], buf, sizeof buf), rows[i][1]);
	assert_string_equal(lg_short_kernel(rows[3][0], cut, sizeof cut), "triton_poi_f...");
}

/* 4 % more of everything, though both have a cause that did not change. */
static void what_did_not_change_explains_nothing(void **state)
{
	struct gpu_plan before = loop(), after;
	struct pair p;

	(void)state;
	before.n_comm = 1;
	before.comm_ns = 3000 * US;
	after = before;
	after.kernel_ns += 2 * US;
	p = compare(&before, &after);
	for (size_t i = 0; i < p.d->v.n_findings; i++)
		assert_true(strcmp(p.d->v.findings[i].id, "comms.exposed"));
	assert_int_equal(loud(&p), 0);
	checked(&p);
}

/* The shapes of its operators tell a larger batch: that its kernels take longer is no regression. */
static void a_larger_batch_is_other_work(void **state)
{
	struct gpu_plan before = loop(), after;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	before.convs = 8;
	after = before;
	after.kernel_ns *= 2;
	after.conv_batch = 64;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_unfair, 1);
	assert_non_null(strstr(p.d->unfair[0], "batch size"));
	assert_non_null(strstr(p.d->unfair[0], "32 before, 64 after"));
	assert_true(p.d->work.batch && fabs(p.d->work.times - 2) < 1e-9);
	assert_true(fabs(p.d->samples.value - 2 / p.d->mean.value) < 1e-9);
	assert_string_equal(p.d->gate.verdict, "pass");
	assert_int_equal(loud(&p), 1);
	assert_string_equal(p.d->v.findings[0].id, "regress.workload");
	checked(&p);
	/* Twice the samples are no reason for three times the time. */
	after.kernel_ns = 3 * before.kernel_ns;
	p = compare(&before, &after);
	f = p.d->v.findings;
	assert_string_equal(f->id, "regress.op");
	assert_true(fabs(f->lost_ms / (double)p.s[1]->s.n - 200 * 0.05) < 1);
	assert_string_equal(p.d->gate.verdict, "fail");
	checked(&p);
	/* The same batch: it is a slower kernel. */
	after.conv_batch = 0;
	after.kernel_ns = 2 * before.kernel_ns;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_unfair, 0);
	assert_string_equal(p.d->v.findings[0].id, "regress.op");
	assert_int_equal(p.d->v.findings[0].severity, LG_SEVERITY_HIGH);
	assert_string_equal(p.d->gate.verdict, "fail");
	checked(&p);
}

/* Samples of any length: no shape of one run is in the other, and there is no ratio between them. */
static void shapes_that_always_change_are_no_other_work(void **state)
{
	struct gpu_plan before = loop(), after;
	struct pair p;

	(void)state;
	before.convs = 8;
	before.conv_shapes_change = true;
	after = before;
	after.n_steps = 37;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_unfair, 0);
	assert_int_equal(p.d->v.n_findings, 0);
	checked(&p);
	/* Nor does another shape make an operator a new one. */
	before.conv_shapes_change = false;
	p = compare(&before, &after);
	assert_int_equal(p.d->n_unfair, 0);
	assert_int_equal(loud(&p), 0);
	checked(&p);
}

/* The host is never waited for: it is steps ahead at the end, and at the beginning it is not. */
static struct gpu_plan free_loop(void)
{
	struct gpu_plan p = gpu_healthy;

	p.n_steps = 12;
	return p;
}

static void a_slower_kernel_shows_behind_a_host_that_runs_ahead(void **state)
{
	struct gpu_plan before = free_loop(), after = before;
	double more = (double)before.kernel_ns * before.n_kernels * 0.3 / 1e6;
	struct pair p;

	(void)state;
	after.kernel_ns = before.kernel_ns * 13 / 10;
	check_only(&before, &after, "regress.op", more);
	/* More steps of the same are no other speed. */
	after = before;
	after.n_steps = 20;
	p = compare(&before, &after);
	assert_true(fabs(p.d->mean_ms[1] / p.d->mean_ms[0] - 1) < 0.01);
	assert_int_equal(p.d->v.n_findings, 0);
	checked(&p);
}

/* Another library chooses another kernel: that the old one is gone belongs to it. One that is only new has
 * none. */
static void a_new_kernel_is_told_with_the_one_that_is_gone(void **state)
{
	struct gpu_plan before = loop(), after = before;
	struct pair p;

	(void)state;
	before.kernel = "ampere_bf16_s16816gemm_a";
	after.kernel = "ampere_bf16_s16816gemm_b";
	after.kernel_ns = before.kernel_ns * 13 / 10;
	p = compare(&before, &after);
	assert_string_equal(p.d->v.findings[0].id, "regress.op");
	assert_non_null(strstr(p.d->v.findings[0].title, "gemm_b is new: 13."));
	assert_non_null(strstr(p.d->v.findings[0].title, "gemm_a, called as often before, took 10."));
	checked(&p);
	after = before;
	after.heavy_every = 1;
	after.heavy_ns = 3000 * US;
	p = compare(&before, &after);
	assert_string_equal(p.d->v.findings[0].id, "regress.op");
	assert_non_null(strstr(p.d->v.findings[0].title, "heavy is new: 3."));
	assert_null(strstr(p.d->v.findings[0].title, "is gone"));
	checked(&p);
}

/* The loss is read at the end of each step: that takes longer by all that two kernels do, and is no cause. */
static void what_waits_for_slower_kernels_is_no_cause(void **state)
{
	struct gpu_plan before = loop(), after;
	struct pair p;

	(void)state;
	before.sync_every = before.n_kernels;
	before.heavy_every = 1;
	before.heavy_ns = 1000 * US;
	after = before;
	after.heavy_ns = 3000 * US;
	after.kernel_ns = before.kernel_ns * 12 / 10;
	p = compare(&before, &after);
	assert_true(p.d->v.n_findings >= 2);
	for (size_t i = 0; i < p.d->v.n_findings; i++)
		if (!strcmp(p.d->v.findings[i].id, "regress.op"))
			assert_string_equal(p.d->v.findings[i].detail, "kernel");
	assert_string_equal(p.d->v.findings[0].id, "regress.op");
	checked(&p);
	p = compare(&before, &before);
	assert_int_equal(loud(&p), 0);
	checked(&p);
}

/* What the queue hides of a loader is no time of the step. */
static void a_stage_that_the_queue_hides_costs_nothing(void **state)
{
	struct gpu_plan before = free_loop(), after = before;
	int64_t step = before.kernel_ns * before.n_kernels;
	struct pair p;

	(void)state;
	before.loader_ns = step / 20;
	after.loader_ns = step / 2;
	p = compare(&before, &after);
	assert_int_equal(loud(&p), 0);
	assert_true(fabs(p.d->mean_ms[1] / p.d->mean_ms[0] - 1) < 0.05);
	checked(&p);
	after.loader_ns = step * 3 / 2;
	p = compare(&before, &after);
	assert_non_null(find(&p, "data.loader_wait"));
	assert_null(find(&p, "regress.stage"));
	assert_string_equal(p.d->gate.verdict, "fail");
	checked(&p);
}

/* Steps differ by much: every seventh has other work. */
static struct gpu_plan uneven_loop(void)
{
	struct gpu_plan p = loop();

	p.heavy_every = 7;
	p.heavy_ns = 20000 * US;
	return p;
}

/*
 * What the device waits for is measured for itself: how much other work differs from step to step is no doubt
 * of it, in whatever stage it lies (here: in none that is marked).
 */
static void a_wait_is_judged_by_its_own_measure(void **state)
{
	struct gpu_plan before = uneven_loop(), after = before;
	const char *const id[] = { "data.loader_wait", "comms.exposed" };
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	for (int i = 0; i < 2; i++) {
		after = before;
		if (i) {
			after.ddp_buckets = 1;
			after.comm_ns = 1300 * US;
		} else {
			after.hole_ns = 1300 * US;
		}
		p = compare(&before, &after);
		f = find(&p, id[i]);
		assert_non_null(f);
		assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
		assert_int_equal(loud(&p), 1);
		assert_true(p.d->mean.lo < 1); /* the whole step would not prove it */
		checked(&p);
		p = compare(&after, &after);
		assert_int_equal(p.d->v.n_findings, 0);
		checked(&p);
	}
}

/* As much, but in few steps, by whose number the next run may differ. */
static void a_wait_in_few_steps_is_not_sure(void **state)
{
	struct gpu_plan before = uneven_loop(), after = before;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	before.loader_ns = 20 * US;
	after.loader_ns = 8000 * US;
	after.loader_every = 8;
	p = compare(&before, &after);
	f = find(&p, "data.loader_wait");
	assert_non_null(f);
	assert_true(f->lost_share > 0.05);
	assert_int_equal(loud(&p), 0);
	checked(&p);
}

/* Of few steps the bootstrap often draws none that has any of it. What came three times, and is a third of
 * the run, was no accident whatever it draws. */
static void a_long_wait_in_few_of_few_steps_is_told(void **state)
{
	struct gpu_plan before = free_loop(), after;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	before.sync_every = before.n_kernels;
	after = before;
	after.loader_ns = before.kernel_ns * before.n_kernels * 3;
	after.loader_every = 4;
	p = compare(&before, &after);
	f = find(&p, "data.loader_wait");
	assert_non_null(f);
	assert_true(p.d->mean.lo < 1);
	assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
	checked(&p);
}

/*
 * A host that reads no number before the end does as much of its work in one stage as in another: where it
 * waits says nothing of how long its steps are, and no doubt of that is one of them.
 */
static double share_of(const struct pair *p, const char *what)
{
	for (size_t i = 0; i < p->d->n_shares; i++)
		if (strstr(p->d->shares[i].what, what))
			return p->d->shares[i].ms;
	return 0;
}

/* Steps are shorter by a loader, and would be more so but for the kernels. */
static void what_got_worse_is_told_behind_what_got_better(void **state)
{
	struct gpu_plan before = loop(), after, healthy;
	double more = (double)before.kernel_ns * before.n_kernels * 0.8 / 1e6;
	struct pair p;

	(void)state;
	before.loader_ns = (int64_t)(4e6 * more);
	healthy = after = before;
	healthy.loader_ns = after.loader_ns = 20 * US;
	after.kernel_ns = before.kernel_ns * 18 / 10;
	p = compare(&before, &after);
	assert_non_null(strstr(p.d->headline, "% faster: mean step"));
	assert_non_null(strstr(p.d->headline, "What got worse: kernel"));
	assert_true(fabs(share_of(&p, "kernel") - more) < 0.1 * more);
	assert_true(fabs(share_of(&p, "batch_wait") + 4 * more) < 0.2 * more);
	checked(&p);
	p = compare(&before, &healthy);
	assert_non_null(strstr(p.d->headline, "% faster: mean step"));
	assert_null(strstr(p.d->headline, "What got worse"));
	assert_true(share_of(&p, "kernel") == 0);
	checked(&p);
}

/* A pause of seconds in one step is most of its run's mean, and the kernels take a tenth more. */
static void one_pause_hides_no_shift_of_the_median(void **state)
{
	struct gpu_plan before = loop(), after = before, healthy;
	double more = (double)before.kernel_ns * before.n_kernels * 0.12 / 1e6;
	struct pair p;

	(void)state;
	before.loader_ns = after.loader_ns = before.kernel_ns * before.n_kernels / 20;
	healthy = after;
	after.kernel_ns = before.kernel_ns * 112 / 100;
	before.pause_ns = 3000 * MS;
	before.only_every = before.n_steps;
	p = compare(&before, &after);
	assert_non_null(strstr(p.d->headline, "% slower in the median"));
	assert_non_null(strstr(p.d->headline, "(a few steps make most of a mean: how it changed"));
	assert_true(p.d->mean.hi < 50);
	assert_true(fabs(share_of(&p, "kernel") - more) < 0.1 * more);
	assert_null(find(&p, "data.loader_wait")); /* the stage is as long as it was */
	checked(&p);
	p = compare(&before, &healthy);
	assert_non_null(strstr(p.d->headline, "No change beyond the noise"));
	assert_true(share_of(&p, "kernel") == 0);
	assert_null(find(&p, "data.loader_wait"));
	checked(&p);
	/* It comes in the other run: it is a finding there; kernels are still what made most steps longer. */
	healthy.pause_ns = before.pause_ns;
	healthy.only_every = before.only_every;
	before.pause_ns = 0;
	before.only_every = 0;
	healthy.kernel_ns = after.kernel_ns;
	p = compare(&before, &healthy);
	assert_non_null(strstr(p.d->headline, "% slower in the median"));
	assert_non_null(strstr(p.d->headline, "Most of it: new: the device waits")); /* loud: it comes first */
	assert_true(fabs(share_of(&p, "kernel") - more) < 0.1 * more && !p.d->shares[0].rare);
	checked(&p);
	p = compare(&healthy, &before);
	assert_non_null(strstr(p.d->headline, "% faster in the median"));
	assert_true(fabs(share_of(&p, "kernel") + more) < 0.1 * more && !p.d->shares[0].rare);
	checked(&p);
}

static void where_the_host_waits_is_no_doubt_of_what_the_device_does(void **state)
{
	struct gpu_plan before = free_loop(), after;
	struct pair p;

	(void)state;
	before.n_steps = 16;
	before.kernel_ns *= 4;
	before.loader_ns = before.kernel_ns * before.n_kernels / 3;
	before.sync_at_end = true;
	after = before;
	after.kernel_ns = before.kernel_ns * 14 / 10;
	p = compare(&before, &after);
	assert_string_equal(p.d->v.findings[0].id, "regress.op");
	assert_int_equal(p.d->v.findings[0].severity, LG_SEVERITY_HIGH);
	assert_null(find(&p, "regress.step"));
	checked(&p);
	p = compare(&before, &before);
	assert_int_equal(p.d->v.n_findings, 0);
	checked(&p);
}

/* Batches differ by so much that two runs of eight steps prove nothing; for whom ranks wait does not. */
static void a_late_rank_is_judged_by_the_waits(void **state)
{
	struct gpu_plan before = gpu_healthy, after;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	before.n_ranks = 4;
	before.n_steps = 10;
	before.n_comm = 4;
	before.comm_ns = 100 * US;
	before.heavy_every = 4;
	before.heavy_ns = before.kernel_ns * before.n_kernels * 2;
	before.late_rank = -1;
	after = before;
	after.late_rank = 2;
	after.late_ns = before.kernel_ns * before.n_kernels / 4;
	p = compare(&before, &after);
	f = find(&p, "comms.straggler");
	assert_non_null(f);
	assert_true(p.d->mean.lo < 1);
	assert_true(f->severity >= LG_SEVERITY_MEDIUM);
	checked(&p);
	p = compare(&after, &after);
	assert_int_equal(p.d->v.n_findings, 0);
	checked(&p);
	p = compare(&before, &before);
	assert_int_equal(p.d->v.n_findings, 0);
	checked(&p);
}

/* The steps are no longer, for there is less other work in them: what ranks wait for the late one is lost. */
static void a_late_rank_is_told_where_other_work_got_less(void **state)
{
	struct gpu_plan before = gpu_healthy, after;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	before.n_ranks = 4;
	before.n_steps = 10;
	before.n_comm = 4;
	before.comm_ns = 100 * US;
	before.heavy_every = 4;
	before.heavy_ns = before.kernel_ns * before.n_kernels * 2;
	before.late_rank = -1;
	after = before;
	after.late_rank = 2;
	after.late_ns = before.kernel_ns * before.n_kernels / 4;
	after.heavy_ns = before.heavy_ns / 3;
	p = compare(&before, &after);
	assert_true(p.d->delta_ms < 0 && p.d->mean.hi > 1);
	f = find(&p, "comms.straggler");
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	checked(&p);
	/* So sure of a gain, there is no loss to tell. */
	before.heavy_every = after.heavy_every = 1;
	p = compare(&before, &after);
	assert_true(p.d->mean.hi < 1);
	assert_null(find(&p, "comms.straggler"));
	checked(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(collectives_that_got_longer_are_exposed),
		cmocka_unit_test(pageable_copies_are_told),
		cmocka_unit_test(two_new_causes_have_their_own),
		cmocka_unit_test(a_debugging_aid_leaves_the_loader_its_wait),
		cmocka_unit_test(a_kernel_is_called_by_what_tells_it_from_others),
		cmocka_unit_test(the_sentence_tells_what_is_sure),
		cmocka_unit_test(what_did_not_change_explains_nothing),
		cmocka_unit_test(a_larger_batch_is_other_work),
		cmocka_unit_test(shapes_that_always_change_are_no_other_work),
		cmocka_unit_test(a_slower_kernel_shows_behind_a_host_that_runs_ahead),
		cmocka_unit_test(a_new_kernel_is_told_with_the_one_that_is_gone),
		cmocka_unit_test(what_waits_for_slower_kernels_is_no_cause),
		cmocka_unit_test(a_stage_that_the_queue_hides_costs_nothing),
		cmocka_unit_test(a_wait_is_judged_by_its_own_measure),
		cmocka_unit_test(a_wait_in_few_steps_is_not_sure),
		cmocka_unit_test(a_long_wait_in_few_of_few_steps_is_told),
		cmocka_unit_test(what_got_worse_is_told_behind_what_got_better),
		cmocka_unit_test(one_pause_hides_no_shift_of_the_median),
		cmocka_unit_test(where_the_host_waits_is_no_doubt_of_what_the_device_does),
		cmocka_unit_test(a_late_rank_is_judged_by_the_waits),
		cmocka_unit_test(a_late_rank_is_told_where_other_work_got_less),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
