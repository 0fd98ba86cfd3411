/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops on a device whose cause is known by construction: it must be the first finding, and the
 * healthy twin (the same loop without the cause, or with the cause hidden under compute) must have
 * nothing at medium or above.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timeline/window.h"
#include "base/map.h"
#include "gpu_outcome.h"

/* Every nanosecond of the window has exactly one cause. t is freed. */
static void trace_tiles(struct lg_trace *t, size_t n_runs)
{
	struct lg_index *idx;
	struct lg_arena arena = { 0 };
	struct lg_scene scene = { .t = t, .arena = &arena };
	struct lg_gpu g;
	struct lg_error err;

	assert_non_null(t);
	assert_int_equal(lg_index_new(&idx, t, &err), 0);
	scene.idx = idx;
	assert_int_equal(lg_gpu_new(&scene, &g, &err), 0);
	assert_int_equal(g.n, n_runs);
	for (size_t i = 0; i < g.n; i++) {
		struct lg_gpu_run *r = &g.run[i];
		int64_t at = r->from, sum = 0;

		assert_int_equal(lg_gpu_account(&scene, &g, r) ?: lg_gpu_keep_account(&scene, r), 0);
		for (size_t k = 0; k < r->n_pieces; k++) {
			assert_int_equal(r->piece[k].ts, at);
			assert_true(r->piece[k].dur > 0);
			at += r->piece[k].dur;
		}
		for (size_t k = 0; k < LG_GPU_BY_MAX; k++)
			sum += r->by[k];
		if (r->n_work) {
			assert_int_equal(at, r->to);
			assert_int_equal(sum, r->to - r->from);
		}
	}
	lg_index_free(idx);
	lg_arena_done(&arena);
	lg_trace_free(t);
}

static void tiles(const struct gpu_plan *p)
{
	trace_tiles(synthetic_gpu(p), (size_t)p->n_ranks);
}

static uint64_t rnd(uint64_t *seed)
{
	*seed += 0x9e3779b97f4a7c15u;
	return lg_mix64(*seed);
}

/* Rows of a profiler in any disorder: spans that cross, end before they begin to matter, share
 * correlations, have no end; streams whose parents are anything. */
static struct lg_trace *disorder(uint64_t seed)
{
	static const char *const names[] = {
		"cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "hipMemcpyWithStream",
		"cudaMalloc", "cudaGraphLaunch", "aten::linear", "aten::item", "ProfilerStep#1",
		"Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "f (dynamo_timed)",
		"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Torch-Compiled Region: 0/3",
		"autograd::engine::evaluate_function: X", "aten::cudnn_convolution", "nn.Module: Linear_0",
		"Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)", "sgemm",
		"ncclKernel_AllReduce_RING", "nchwToNhwcKernel", "aten::_scaled_dot_product_attention_math", "",
		"aten::to", "aten::_to_copy", "aten::copy_", "aten::mm", "MmBackward0", "aten::mul",
		"torch.distributed.ddp.reducer::copy_bucket_to_grad", "FullyShardedDataParallel._pre_forward",
		"torch.distributed.ddp.reducer::search_unused_parameters", "ncclDevKernel_AllGather_RING",
		"FullyShardedDataParallel.rate_limiter", "multi_tensor_apply_kernel", "float16_copy_kernel",
		"autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "aten::isnan", "aten::bmm",
		"torch/serialization.py(629): save", "logging/__init__.py(1477): info", "Memcpy M2D",
		"urEnqueueKernelLaunch", "urEventWait", "aten::gelu",
	};
	enum { N_NAMES = sizeof names / sizeof *names };
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;
	struct lg_error err;
	lg_trk k[4];
	lg_thr thr[3];
	size_t n = 20 + rnd(&seed) % 400;
	int64_t width = (int64_t)1 << (10 + rnd(&seed) % 30);

	assert_int_equal(lg_builder_new(&b, &err), 0);
	for (int i = 0; i < 3; i++)
		thr[i] = lg_thread_get(b, 50 + i / 2, 50 + i);
	k[0] = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
						       .prc = rnd(&seed) % 2 ? lg_process_get(b, 50) : 0 });
	for (int i = 1; i < 4; i++)
		k[i] = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_STREAM, .index = i,
							       .parent = i < 3 ? k[i - 1] : 0 });
	for (size_t i = 0; i < n; i++) {
		bool gpu = rnd(&seed) % 3 == 0;
		int64_t ts = (int64_t)(rnd(&seed) % (uint64_t)width);
		int64_t dur = (int64_t)(rnd(&seed) % ((uint64_t)width / (1 + rnd(&seed) % 200) + 1));
		static const uint8_t kinds[] = { LG_SPAN_OP, LG_SPAN_RUNTIME, LG_SPAN_STEP, LG_SPAN_STAGE,
						 LG_SPAN_NOTE, LG_SPAN_PYTHON, LG_SPAN_WAIT,
						 LG_SPAN_COMPILE };
		static const uint8_t device[] = { LG_SPAN_KERNEL, LG_SPAN_COPY, LG_SPAN_COLLECTIVE,
						  LG_SPAN_WAIT };

		lg_add_span(b, &(struct lg_span_row){
			.ts = ts, .dur = rnd(&seed) % 20 ? dur : (int64_t)(rnd(&seed) % 2) - 1,
			.thr = gpu ? 0 : thr[rnd(&seed) % 3], .track = gpu ? k[rnd(&seed) % 4] : 0,
			.kind = gpu ? device[rnd(&seed) % 4] : kinds[rnd(&seed) % 8],
			.stage = (uint8_t)(rnd(&seed) % LG_STAGE_MAX), .seq = (int64_t)(rnd(&seed) % 60) - 1,
			.name = lg_intern(b, names[rnd(&seed) % N_NAMES]),
			.args = lg_intern(b, rnd(&seed) % 4 ? "" : rnd(&seed) % 2
					       ? "grid=,,[3\tseq=x\tin=\tdtype=\ttypes=[\"\tinputs=[\"\",\"False"
					       : "types=[\"c10::Half\",\"float\"]\tinputs=[\"\",\"\",\"\",\"\",\"\","
						 "\"\",\"False\"]") });
	}
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	return t;
}

static void any_disorder_is_survived(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct lg_trace *t = disorder(seed);
		struct lg_index *idx;
		struct lg_arena arena = { 0 };
		struct lg_scene scene = { .t = t, .arena = &arena };
		struct lg_gpu g;
		struct lg_error err;
		struct outcome o;

		assert_int_equal(lg_index_new(&idx, t, &err), 0);
		scene.idx = idx;
		assert_int_equal(lg_gpu_new(&scene, &g, &err), 0);
		for (size_t i = 0; i < g.n; i++) {
			int64_t at = g.run[i].from;

			if (lg_gpu_judged(&g.run[i]))
				assert_int_equal(lg_gpu_account(&scene, &g, &g.run[i]) ?:
						 lg_gpu_keep_account(&scene, &g.run[i]), 0);
			for (size_t k = 0; k < g.run[i].n_pieces; k++) {
				assert_int_equal(g.run[i].piece[k].ts, at);
				at += g.run[i].piece[k].dur;
			}
			if (g.run[i].n_pieces)
				assert_int_equal(at, g.run[i].to);
		}
		lg_index_free(idx);
		lg_arena_done(&arena);
		o = judge(t);
		done(&o);
	}
}

/* A thread's rows are cut in two for two cores: nothing of it shows. Groups of an operator with a launch in
 * it; every `every`-th group is inside one long operator, where no cut may be. */
static void groups(size_t n, size_t every, size_t others)
{
	enum { GROUP = 100 * US };
	struct lg_index *idx;
	struct lg_arena arena = { 0 };
	struct lg_scene scene = { .arena = &arena };
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;
	struct lg_gpu g;
	struct lg_error err;
	lg_thr thr, other;
	const struct lg_gpu_host *h;
	size_t k = 0, none = 0;

	assert_int_equal(lg_builder_new(&b, &err), 0);
	thr = lg_thread_get(b, 50, 50);
	other = lg_thread_get(b, 50, 51);
	for (size_t i = 0; i < n + others; i++) {
		struct lg_span_row r = { .ts = (int64_t)i * GROUP, .dur = 90 * US, .kind = LG_SPAN_OP,
					 .thr = i < n ? thr : other, .name = lg_intern(b, "aten::mm") };

		lg_add_span(b, &r);
		r.ts += 20 * US;
		r.dur = 30 * US;
		r.kind = LG_SPAN_RUNTIME;
		r.name = lg_intern(b, "cudaLaunchKernel");
		lg_add_span(b, &r);
		if (!every || i % every || i >= n)
			continue;
		r.ts = (int64_t)i * GROUP;
		r.dur = (int64_t)every * GROUP;
		r.kind = LG_SPAN_STEP;
		r.name = lg_intern(b, "ProfilerStep#1");
		lg_add_span(b, &r);
	}
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	assert_int_equal(lg_index_new(&idx, t, &err), 0);
	scene.t = t;
	scene.idx = idx;
	assert_int_equal(lg_gpu_new(&scene, &g, &err), 0);
	assert_int_equal(g.n, 1);
	assert_int_equal(g.run[0].n_host, others ? 2 : 1);
	assert_int_equal(g.run[0].n_ops, n + others);
	h = &g.run[0].host[0];
	assert_int_equal(h->n_launches, n);
	assert_int_equal(h->n_marks, every ? (n + every - 1) / every : 0);
	for (size_t i = 1; i < h->n_marks; i++)
		assert_int_equal(t->span.ts[h->mark[i]], (int64_t)(i * every) * GROUP);
	for (size_t i = 0; i < h->n; i++) {
		const struct lg_host_seg *s = &h->seg[i];

		if (s->class == LG_HOST_NONE) {
			assert_int_equal(s->ts, (int64_t)none * GROUP + 90 * US);
			none++; /* the rest of the step behind each group */
			continue;
		}
		assert_int_equal(s->ts, (int64_t)(k / 3) * GROUP + (k % 3 ? k % 3 == 1 ? 20 : 50 : 0) * US);
		assert_int_equal(s->end - s->ts, (k % 3 ? k % 3 == 1 ? 30 : 40 : 20) * US);
		assert_int_equal(s->class, k % 3 == 1 ? LG_HOST_LAUNCH : LG_HOST_OP);
		k++;
	}
	assert_int_equal(k, 3 * n);
	assert_int_equal(none, every ? n : 0);
	if (others) {
		assert_int_equal(g.run[0].host[1].n, 3 * others);
		assert_int_equal(g.run[0].host[1].n_launches, others);
	}
	lg_index_free(idx);
	lg_arena_done(&arena);
	lg_trace_free(t);
}

static void a_cut_thread_is_as_if_whole(void **state)
{
	(void)state;
	groups(1, 0, 0);
	groups(2, 0, 0);
	groups(1000, 0, 0);
	groups(1000, 7, 0);
	groups(1000, 1000, 0); /* nowhere to cut */
	groups(1000, 10, 5);
	groups(10, 3, 1000);
	groups(40000, 9, 0); /* worth a thread */
	groups(20000, 0, 30000);
}

static void a_dense_device_is_healthy(void **state)
{
	struct outcome o = first(&gpu_healthy, "gpu.bound");

	(void)state;
	quiet(&gpu_healthy);
	assert_int_equal(o.v->bound, LG_BOUND_GPU);
	assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_INFO);
	done(&o);
}

static void causes_tile_the_window(void **state)
{
	struct gpu_plan p = gpu_healthy;

	(void)state;
	tiles(&p);
	p.loader_ns = 9 * MS;
	p.sync_every = 7;
	p.copy = COPY_PAGEABLE;
	p.copy_ns = 2 * MS;
	p.n_comm = 5;
	p.comm_ns = MS;
	p.comm_overlaps = true;
	p.n_alloc = 2;
	p.alloc_ns = MS;
	p.autotune = 3;
	p.compile_ns = MS;
	tiles(&p);
	p.drop_rows = 3;
	p.n_ranks = 3;
	tiles(&p);
	p.no_launches = true;
	tiles(&p);
	p.no_device = true;
	tiles(&p);
}

static void a_loader_without_workers_is_named(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.loader_ns = 20 * MS; /* the kernels of a step take 10 ms, the launches 1.6 */
	p.loader_single = true;
	o = first(&p, "data.loader_wait");
	assert_int_equal(o.v->bound, LG_BOUND_DATA);
	assert_string_equal(o.v->findings[0].detail, "workers_zero");
	assert_string_equal(o.v->findings[0].stage, "batch_wait");
	/* Exposed: what is not hidden under the 10 ms of kernels, not the 20 ms of the call. */
	assert_true(o.v->findings[0].lost_ms < 13 * 10);
	assert_true(o.v->findings[0].lost_ms > 9 * 9);
	done(&o);
}

static void a_loader_hidden_under_compute_costs_nothing(void **state)
{
	struct gpu_plan p = gpu_healthy;

	(void)state;
	p.loader_ns = 6 * MS;
	p.loader_single = true;
	quiet(&p);
}

static void a_loader_in_bursts_and_one_that_starts_anew(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_steps = 40;
	p.loader_ns = 100 * MS;
	p.loader_every = 5;
	o = first(&p, "data.loader_wait");
	assert_string_equal(o.v->findings[0].detail, "burst");
	assert_non_null(strstr(o.v->findings[0].fix, "No depth helps when the average rate is too low"));
	done(&o);
	p.n_steps = 19; /* the first wait is warm-up; one is left, at the next epoch */
	p.loader_every = 10;
	o = explain(&p);
	assert_non_null(find(o.v, "data.loader_wait"));
	assert_string_equal(find(o.v, "data.loader_wait")->detail, "respawn");
	/* That is not seen, but likely. */
	assert_non_null(strstr(find(o.v, "data.loader_wait")->title, "as where workers"));
	done(&o);
}

static void short_kernels_are_launch_bound(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel_ns = 3 * US;
	o = first(&p, "gpu.launch_bound");
	assert_int_equal(o.v->bound, LG_BOUND_HOST);
	assert_string_equal(o.v->findings[0].detail, "not_compiled");
	assert_true(fabs(o.v->findings[0].lost_share - 5.0 / 8) < 0.06);
	done(&o);
	p.inference = true; /* diagnosed alike, and called what it is */
	o = first(&p, "gpu.launch_bound");
	assert_true(strstr(o.v->bound_why, "inference") != NULL);
	assert_true(o.v->inference);
	done(&o);
}

static void synchronisation_is_charged_with_the_lead_it_costs(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel_ns = 25 * US;
	quiet(&p);
	p.sync_every = 4;
	o = first(&p, "gpu.host_sync");
	assert_true(strstr(o.v->findings[0].culprit.function, "aten::item") != NULL);
	assert_null(find(o.v, "gpu.launch_bound"));
	done(&o);
	/* One synchronisation at the end of a step of a busy device is no finding. */
	p.kernel_ns = 50 * US;
	p.sync_every = p.n_kernels;
	quiet(&p);
}

static void copies_that_wait_and_copies_that_run_alone(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.copy_ns = 3 * MS;
	p.copy = COPY_PAGEABLE;
	o = first(&p, "data.pageable_copy");
	assert_string_equal(o.v->findings[0].stage, "h2d");
	done(&o);
	p.copy = COPY_PINNED_SAME;
	o = first(&p, "data.serial_copy");
	assert_true(strstr(o.v->findings[0].title, "compute stream") != NULL);
	done(&o);
	p.copy = COPY_PINNED_SIDE;
	quiet(&p);
}

static void the_allocator_in_steps(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_alloc = 3;
	p.alloc_ns = MS;
	o = first(&p, "gpu.allocator_sync");
	done(&o);
}

static void collectives_exposed_small_or_hidden(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_comm = 4;
	p.comm_ns = MS;
	o = first(&p, "comms.exposed");
	assert_true(fabs(o.v->findings[0].lost_share - 4.0 / 14) < 0.05);
	done(&o);
	p.n_comm = 100;
	p.comm_ns = 40 * US;
	o = first(&p, "comms.small_messages");
	done(&o);
	p.n_comm = 4;
	p.comm_ns = MS;
	p.comm_overlaps = true;
	quiet(&p);
}

static void fp32_matrices_on_a_card_with_tensor_cores(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel = "ampere_sgemm_128x64_tn";
	o = first(&p, "gpu.no_tensor_core");
	done(&o);
	p.kernel = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";
	quiet(&p);
	/* A device that waits for the host gains nothing from faster kernels. */
	p.kernel = "ampere_sgemm_128x64_tn";
	p.kernel_ns = 3 * US;
	o = first(&p, "gpu.launch_bound");
	done(&o);
}

static void layout_attention_and_recomputation(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_layout = 30;
	o = first(&p, "gpu.layout");
	done(&o);
	p = gpu_healthy;
	p.op = "aten::_scaled_dot_product_attention_math";
	o = first(&p, "gpu.math_attention");
	done(&o);
	p.op = "aten::_scaled_dot_product_flash_attention";
	quiet(&p);
	p = gpu_healthy;
	p.checkpointing = true;
	p.reserved = 0.4;
	o = first(&p, "gpu.recompute");
	done(&o);
	p.reserved = 0.95; /* memory forces it */
	quiet(&p);
	p.reserved = 0;    /* not known */
	quiet(&p);
}

/* Of all steps; 0 when nothing is known of it. */
static double stage_ms(const struct lg_verdict *v, const char *stage)
{
	for (size_t i = 0; i < v->n_stages; i++)
		if (!strcmp(v->stages[i].stage, stage))
			return v->stages[i].median_ms * (double)v->n_steps;
	return 0;
}

static void optimizers_and_gradients_of_many_kernels(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;
	double takes;

	(void)state;
	p.n_kernels = 100;
	p.optimizer_kernels = 1000;
	o = first(&p, "gpu.unfused_optimizer");
	assert_string_equal(o.v->findings[0].stage, "optimizer");
	done(&o);
	/* A device that waits for each launch: all of the optimizer's time goes with the launches. */
	p.kernel_ns = 3 * US;
	o = first(&p, "gpu.unfused_optimizer");
	takes = stage_ms(o.v, "optimizer");
	assert_true(takes > 0 && fabs(o.v->findings[0].lost_ms - takes) < 0.1 * takes);
	done(&o);
	p.kernel_ns = gpu_healthy.kernel_ns;
	p.optimizer_kernels = 30;
	quiet(&p);
	p.zero_kernels = 400;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.zero_grad_fill"));
	assert_true(is_loud(find(o.v, "gpu.zero_grad_fill")));
	done(&o);
}

static void autotuning_and_compilation_inside_steps(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.autotune = 10;
	o = first(&p, "gpu.conv_autotune");
	done(&o);
	/* Five candidates of 0.4 ms in each of ten convolutions, beside 10 ms of kernels: 20 ms for nothing,
	 * in which the device is busy, and cudaFree behind them is no allocator of its own. */
	p.autotune_ns = 400 * US;
	o = first(&p, "gpu.conv_autotune");
	assert_true(o.v->findings[0].lost_share > 0.6 && o.v->findings[0].lost_share < 0.75);
	assert_null(find(o.v, "gpu.allocator_sync"));
	done(&o);
	p.autotune_once = true; /* one shape that is new */
	quiet(&p);
	p = gpu_healthy;
	p.compile_ns = 5 * MS;
	o = first(&p, "compile.in_step");
	done(&o);
	p = gpu_healthy;
	p.n_steps = 12;
	p.region_versions = 6;
	p.regions_once = true;
	o = explain(&p);
	assert_non_null(find(o.v, "compile.recompiles"));
	assert_true(is_loud(find(o.v, "compile.recompiles")));
	assert_true(isnan(find(o.v, "compile.recompiles")->lost_ms));
	done(&o);
	p.regions_once = false; /* six versions in turn: compiled once for each of six shapes */
	quiet(&p);
	p.region_versions = 1;
	quiet(&p);
}

static void launches_that_wait_for_their_kernels(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;
	double without, lost;

	(void)state;
	o = explain(&p);
	without = o.v->median_ms;
	done(&o);
	p.blocking = true;
	o = explain(&p);
	assert_string_equal(o.v->findings[0].id, "debug.left_on");
	lost = (double)o.v->n_judged * (o.v->median_ms - without);
	if (fabs(o.v->findings[0].lost_ms - lost) > 0.15 * lost)
		fail_msg("lost %g ms, told %g", lost, o.v->findings[0].lost_ms);
	done(&o);
}

static void work_too_small_for_the_device(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.grid = 20;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.small_batch"));
	done(&o);
	p.grid = 800;
	quiet(&p);
}

static void windows_that_say_nothing_are_not_diagnosed(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel_ns = 3 * US; /* would be launch bound */
	p.capture = true;
	o = explain(&p);
	assert_int_equal(o.v->n_findings, 0);
	assert_true(strstr(o.v->limits[0], "captured") != NULL);
	assert_int_equal(o.v->n_judged, 0);
	assert_true(o.v->n_steps > 0);
	done(&o);
	p.capture = false;
	p.n_steps = 1;
	p.n_kernels = 2;
	o = explain(&p);
	assert_int_equal(o.v->n_findings, 0);
	assert_true(strstr(o.v->limits[0], "empty") != NULL);
	done(&o);
	p = gpu_healthy;
	p.n_steps = 1;
	p.cold_ns = 500 * MS;
	o = first(&p, "warmup.dominates");
	assert_int_equal(o.v->n_findings, 1);
	done(&o);
	/* Steady work after a cold start is judged, the start is told. */
	p = gpu_healthy;
	p.cold_ns = 500 * MS;
	o = first(&p, "warmup.dominates");
	assert_non_null(find(o.v, "gpu.bound"));
	done(&o);
}

static void a_cpu_trace_gets_no_device_finding(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.no_device = p.no_launches = true;
	o = explain(&p);
	for (size_t i = 0; i < o.v->n_findings; i++)
		assert_int_not_equal(strncmp(o.v->findings[i].id, "gpu.", 4), 0);
	assert_true(strstr(o.v->limits[0], "no device activity") != NULL);
	done(&o);
	p.loader_ns = 10 * MS;
	p.loader_single = true;
	o = first(&p, "data.loader_wait");
	done(&o);
	p.loader_ns = 300 * US; /* 6 %: may be what it takes to take a batch */
	p.no_gpu = true;
	o = explain(&p);
	assert_int_equal(find(o.v, "data.loader_wait")->severity, LG_SEVERITY_LOW);
	assert_true(!strncmp(o.v->bound_why, "training, operators on the CPU", 30));
	assert_false(o.v->inference);
	done(&o);
	p.inference = true;
	o = explain(&p);
	assert_true(!strncmp(o.v->bound_why, "inference or evaluation, operators on the CPU", 45));
	assert_true(o.v->inference);
	done(&o);
}

static void missing_rows_make_it_abstain(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.drop_rows = 3;
	o = explain(&p);
	assert_null(find(o.v, "gpu.launch_bound"));
	assert_null(find(o.v, "gpu.host_sync"));
	done(&o);
	p = gpu_healthy;
	p.kernel_ns = 3 * US;
	p.no_launches = true;
	o = explain(&p);
	assert_null(find(o.v, "gpu.launch_bound"));
	assert_int_equal(o.v->bound, LG_BOUND_UNKNOWN);
	done(&o);
}

/* ---- logs and counters ---- */

static lg_thr rank_thread(struct lg_builder *b, int rank, int world)
{
	lg_prc p = lg_process_get(b, 700 + rank);
	struct lg_process_row row = lg_process_read(b, p);

	row.rank = rank;
	row.world = world;
	lg_process_write(b, p, &row);
	return lg_thread_get(b, 700 + rank, 700 + rank);
}

static void say(struct lg_builder *b, lg_thr thr, const char *name, int64_t value, const char *text)
{
	lg_add_mark(b, &(struct lg_mark_row){ .ts = 5 * MS + value, .thr = thr, .value = value,
					      .name = lg_intern(b, name), .text = lg_intern(b, text) });
}

static struct outcome sealed(struct lg_builder *b)
{
	struct lg_trace *t = NULL;
	struct lg_error err;

	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	return judge(t);
}

static struct lg_builder *fresh(void)
{
	struct lg_builder *b = NULL;
	struct lg_error err;

	assert_int_equal(lg_builder_new(&b, &err), 0);
	return b;
}

static void logs_of_the_compiler(void **state)
{
	static const struct { const char *mark, *id; int n; } rows[] = {
		{ "log.compile_skipped", "compile.skipped", 1 },
		{ "log.compile_failed", "compile.skipped", 1 },
		{ "log.graph_break", "compile.graph_breaks", 2 },
		{ "log.recompile", "compile.recompiles", 5 },
		{ "log.recompile_limit", "compile.recompile_limit", 1 },
		{ "log.tf32_off", "gpu.no_tensor_core", 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_builder *b = fresh();
		lg_thr thr = rank_thread(b, 0, 1);
		struct outcome o;

		for (int k = 0; k < rows[i].n; k++)
			say(b, thr, rows[i].mark, k, "f (train.py:8): x size changed");
		o = sealed(b);
		assert_true(o.v->n_findings == 1);
		assert_string_equal(o.v->findings[0].id, rows[i].id);
		assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_MEDIUM);
		assert_true(strstr(o.v->findings[0].culprit.function, "train.py:8") != NULL);
		done(&o);
	}
	/* Two recompilations are how dynamic shapes are learnt. */
	struct lg_builder *b = fresh();
	lg_thr thr = rank_thread(b, 0, 1);
	struct outcome o;

	say(b, thr, "log.recompile", 0, "f (train.py:8)");
	say(b, thr, "log.recompile", 1, "f (train.py:8)");
	o = sealed(b);
	assert_int_equal(o.v->n_findings, 0);
	done(&o);
}

static void watchdogs_tell_a_mismatch_from_a_missing_rank(void **state)
{
	static const char a[] = "WorkNCCL(SeqNum=78, OpType=ALLREDUCE, NumelIn=80, NumelOut=80)";
	static const char bb[] = "WorkNCCL(SeqNum=78, OpType=BROADCAST, NumelIn=80, NumelOut=80)";
	struct lg_builder *b = fresh();
	struct outcome o;

	(void)state;
	say(b, rank_thread(b, 0, 2), "log.watchdog_timeout", 78, a);
	say(b, rank_thread(b, 1, 2), "log.watchdog_timeout", 78, bb);
	o = sealed(b);
	assert_int_equal(o.v->n_findings, 1);
	assert_string_equal(o.v->findings[0].id, "comms.mismatch");
	done(&o);
	b = fresh();
	say(b, rank_thread(b, 0, 3), "log.watchdog_timeout", 78, a);
	say(b, rank_thread(b, 2, 3), "log.watchdog_timeout", 78, a);
	o = sealed(b);
	assert_int_equal(o.v->n_findings, 1);
	assert_string_equal(o.v->findings[0].id, "comms.missing_rank");
	assert_int_equal(o.v->findings[0].culprit.rank, 1);
	done(&o);
	/* The world's size is not in the log: the one silent rank among those that complain. */
	b = fresh();
	for (int rank = 0; rank < 8; rank++)
		if (rank != 5)
			say(b, rank_thread(b, rank, 0), "log.watchdog_timeout", 78, a);
	o = sealed(b);
	assert_string_equal(o.v->findings[0].id, "comms.missing_rank");
	assert_int_equal(o.v->findings[0].culprit.rank, 5);
	done(&o);
	/* All of the world wait in one: nobody is missing. */
	b = fresh();
	for (int rank = 0; rank < 3; rank++)
		say(b, rank_thread(b, rank, 3), "log.watchdog_timeout", 78, a);
	o = sealed(b);
	assert_int_equal(o.v->findings[0].culprit.rank, -1);
	assert_string_equal(o.v->findings[0].detail, "hang");
	assert_non_null(strstr(o.v->findings[0].title, "all 3 ranks of the job wait in the same collective"));
	assert_null(strstr(o.v->findings[0].title, "missing"));
	done(&o);
	/* Ranks 0 and 2 may be all of their group; and two silent ones are no accusation. */
	b = fresh();
	say(b, rank_thread(b, 0, 0), "log.watchdog_timeout", 78, a);
	say(b, rank_thread(b, 2, 0), "log.watchdog_timeout", 78, a);
	o = sealed(b);
	assert_int_equal(o.v->findings[0].culprit.rank, -1);
	done(&o);
	b = fresh();
	for (int rank = 0; rank < 8; rank++)
		if (rank != 5 && rank != 2)
			say(b, rank_thread(b, rank, 0), "log.watchdog_timeout", 78, a);
	o = sealed(b);
	assert_int_equal(o.v->findings[0].culprit.rank, -1);
	done(&o);
}

/* Layers that come from the host one by one are no batches, in whatever memory they lie. */
static void weights_that_are_streamed_are_no_batches(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.copy = COPY_PINNED_SAME;
	p.copy_ns = 320 * US; /* 8 MB each: 25 GB/s */
	p.copies = 24;
	for (int k = 0; k < 2; k++) {
		o = first(&p, k ? "data.pageable_copy" : "data.serial_copy");
		assert_string_equal(o.v->findings[0].detail, "weights");
		assert_non_null(strstr(o.v->findings[0].title, "24 copies a step, 0.19 GB at 25.0 GB/s"));
		assert_non_null(strstr(o.v->findings[0].fix, "does not fit"));
		done(&o);
		p.copy = COPY_PAGEABLE;
	}
	p.copy = COPY_PINNED_SAME;
	p.copies = 2; /* inputs and labels */
	p.copy_ns = 4 * MS;
	o = first(&p, "data.serial_copy");
	assert_null(o.v->findings[0].detail);
	done(&o);
}

/* With its cache off the allocator asks the driver for each tensor: fragmentation does not. */
static void an_allocator_without_its_cache_is_not_fragmented(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_alloc = 100;
	p.alloc_ns = 100 * US;
	o = first(&p, "gpu.allocator_sync");
	assert_string_equal(o.v->findings[0].detail, "uncached");
	assert_non_null(strstr(o.v->findings[0].fix, "PYTORCH_NO_CUDA_MEMORY_CACHING"));
	assert_non_null(strstr(o.v->findings[0].fix, "no fragmentation"));
	done(&o);
	p.alloc_call = "cudaHostAlloc"; /* memory of the host: no allocator of the device's */
	o = first(&p, "gpu.allocator_sync");
	assert_string_equal(o.v->findings[0].detail, "pinned");
	assert_non_null(strstr(o.v->findings[0].title, "pinned memory of the host is taken"));
	assert_null(strstr(o.v->findings[0].fix, "expandable_segments"));
	done(&o);
	p.alloc_call = NULL;
	p.n_alloc = 10;
	p.alloc_ns = MS;
	o = first(&p, "gpu.allocator_sync");
	assert_null(o.v->findings[0].detail);
	assert_non_null(strstr(o.v->findings[0].fix, "expandable_segments:True"));
	done(&o);
}

/* Behind a host that is slow nothing waits for them; they are named all the same. */
static void fp32_is_named_beside_the_larger_cause(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel = "ampere_sgemm_128x64_tn";
	p.kernel_ns = 10 * US;
	p.launch_ns = 60 * US;
	o = first(&p, "gpu.launch_bound");
	assert_non_null(find(o.v, "gpu.no_tensor_core"));
	assert_int_equal(find(o.v, "gpu.no_tensor_core")->severity, LG_SEVERITY_LOW);
	assert_true(isnan(find(o.v, "gpu.no_tensor_core")->lost_ms));
	assert_non_null(strstr(find(o.v, "gpu.no_tensor_core")->title, "once the larger cause is gone"));
	done(&o);
	p.kernel_ns = 2 * US; /* 3 % of the time */
	o = first(&p, "gpu.launch_bound");
	assert_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
	p.kernel_ns = 10 * US;
	p.kernel = NULL;
	o = first(&p, "gpu.launch_bound");
	assert_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
}

/* It makes the host wait so that less memory is taken: nothing overlaps by it. */
static void limiting_gathers_is_no_way_to_overlap(void **state)
{
	const struct lg_rule *r = lg_rule_find("comms.exposed");

	(void)state;
	assert_non_null(r);
	assert_null(strstr(r->advice.fix, "limit_all_gathers"));
}

static void names_are_what_they_are(void **state)
{
	static const struct { const char *name; enum lg_name_class k; } rows[] = {
		{ "cudaLaunchKernel", LG_NAME_LAUNCH }, { "cudaLaunchKernelExC_v11060", LG_NAME_LAUNCH },
		{ "cuLaunchKernelEx", LG_NAME_LAUNCH }, { "hipExtModuleLaunchKernel", LG_NAME_LAUNCH },
		{ "hipGraphLaunch", LG_NAME_GRAPH_LAUNCH }, { "cudaGraphInstantiate", LG_NAME_GRAPH_BUILD },
		{ "cudaStreamSynchronize_v3020", LG_NAME_SYNC }, { "cudaMemcpyAsync", LG_NAME_COPY_CALL },
		{ "hipMemcpyWithStream", LG_NAME_BLOCKING_COPY }, { "cudaMemcpy", LG_NAME_BLOCKING_COPY },
		{ "cudaMalloc", LG_NAME_ALLOC }, { "cudaMallocAsync", LG_NAME_RUNTIME },
		{ "hipFree", LG_NAME_FREE }, { "cudaEventRecord", LG_NAME_RUNTIME },
		{ "cutlass::Kernel2<cutlass_80_tensorop>", LG_NAME_OTHER },
		{ "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", LG_NAME_COMM },
		{ "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", LG_NAME_COMM },
		{ "rcclGenericKernel", LG_NAME_COMM },
		{ "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", LG_NAME_LOADER },
		{ "Torch-Compiled Region: 0/1", LG_NAME_COMPILED_REGION },
		{ "_compile.compile_inner (dynamo_timed)", LG_NAME_COMPILE },
		{ "torch/_dynamo/convert_frame.py(520): _compile", LG_NAME_COMPILE },
		{ "torch/_dynamo/eval_frame.py(406): _fn", LG_NAME_TORCH_FRAME },
		{ "aten::cudnn_convolution", LG_NAME_OTHER }, { "cumsum", LG_NAME_OTHER },
		{ "ProfilerStep#3", LG_NAME_STEP }, { "", LG_NAME_OTHER },
		{ "urEnqueueKernelLaunch", LG_NAME_LAUNCH }, { "urEventWait", LG_NAME_SYNC },
		{ "urEnqueueUSMMemcpy", LG_NAME_COPY_CALL }, { "urQueueFinish", LG_NAME_SYNC },
		{ "urEnqueueEventsWait", LG_NAME_RUNTIME }, { "urUSMDeviceAlloc", LG_NAME_ALLOC },
		{ "zeCommandListAppendLaunchKernel", LG_NAME_LAUNCH }, { "zeMemFree", LG_NAME_FREE },
		{ "zeCommandListAppendMemoryCopy", LG_NAME_COPY_CALL }, { "piQueueFinish", LG_NAME_SYNC },
		{ "zeEventHostSynchronize", LG_NAME_SYNC }, { "zeCommandQueueSynchronize", LG_NAME_SYNC },
		{ "zebra", LG_NAME_OTHER }, { "urgent", LG_NAME_OTHER }, { "pixelShuffle", LG_NAME_OTHER },
		{ "torch/serialization.py(629): save", LG_NAME_SIDE },
		{ "/venv/torch/distributed/checkpoint/state_dict_saver.py(140): save", LG_NAME_SIDE },
		{ "deepspeed/runtime/engine.py(3000): save_checkpoint", LG_NAME_SIDE },
		{ "save_checkpoint", LG_NAME_SIDE }, { "checkpoint", LG_NAME_OTHER },
		{ "torch/utils/checkpoint.py(481): checkpoint", LG_NAME_TORCH_FRAME },
		{ "torch/utils/tensorboard/writer.py(351): add_scalar", LG_NAME_LOG },
		{ "/usr/lib/python3.11/logging/__init__.py(1477): info", LG_NAME_LOG },
		{ "wandb/sdk/wandb_run.py(1700): log", LG_NAME_LOG },
		{ "<built-in function print>", LG_NAME_LOG },
		{ "mlflow/utils/autologging_utils/safety.py(500): safe_patch_function", LG_NAME_FRAME },
		{ "train.py(3): log_softmax", LG_NAME_FRAME }, { "aten::log", LG_NAME_OTHER },
		{ "train.py(9): print_summary", LG_NAME_FRAME },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (lg_name_class_of(rows[i].name) != rows[i].k)
			fail_msg("%s is %d", rows[i].name, (int)lg_name_class_of(rows[i].name));
	assert_true(lg_is_library_path("/usr/lib/python3/dist-packages/torch/nn/modules/module.py"));
	assert_false(lg_is_library_path("/home/me/train.py"));
}

/* Ranges of NVTX mark steps as well as the profiler does, but are not called by its name. */
static void ranges_that_mark_steps_are_named(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.inference = true;
	o = explain(&p);
	assert_true(has_limit(o.v, "steps told from ProfilerStep"));
	done(&o);
	p.step_marks = "train step ";
	o = explain(&p);
	assert_true(has_limit(o.v, "steps told from the ranges named \"train step\""));
	assert_int_equal(o.v->n_judged, p.n_steps);
	done(&o);
	p.inference = false; /* marked is marked */
	o = explain(&p);
	assert_false(has_limit(o.v, "steps told from"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_that_mark_steps_are_named),
		cmocka_unit_test(a_dense_device_is_healthy),
		cmocka_unit_test(causes_tile_the_window),
		cmocka_unit_test(a_cut_thread_is_as_if_whole),
		cmocka_unit_test(any_disorder_is_survived),
		cmocka_unit_test(a_loader_without_workers_is_named),
		cmocka_unit_test(a_loader_hidden_under_compute_costs_nothing),
		cmocka_unit_test(a_loader_in_bursts_and_one_that_starts_anew),
		cmocka_unit_test(short_kernels_are_launch_bound),
		cmocka_unit_test(synchronisation_is_charged_with_the_lead_it_costs),
		cmocka_unit_test(copies_that_wait_and_copies_that_run_alone),
		cmocka_unit_test(the_allocator_in_steps),
		cmocka_unit_test(collectives_exposed_small_or_hidden),
		cmocka_unit_test(fp32_matrices_on_a_card_with_tensor_cores),
		cmocka_unit_test(layout_attention_and_recomputation),
		cmocka_unit_test(optimizers_and_gradients_of_many_kernels),
		cmocka_unit_test(autotuning_and_compilation_inside_steps),
		cmocka_unit_test(launches_that_wait_for_their_kernels),
		cmocka_unit_test(work_too_small_for_the_device),
		cmocka_unit_test(windows_that_say_nothing_are_not_diagnosed),
		cmocka_unit_test(a_cpu_trace_gets_no_device_finding),
		cmocka_unit_test(missing_rows_make_it_abstain),
		cmocka_unit_test(logs_of_the_compiler),
		cmocka_unit_test(watchdogs_tell_a_mismatch_from_a_missing_rank),
		cmocka_unit_test(weights_that_are_streamed_are_no_batches),
		cmocka_unit_test(an_allocator_without_its_cache_is_not_fragmented),
		cmocka_unit_test(fp32_is_named_beside_the_larger_cause),
		cmocka_unit_test(limiting_gathers_is_no_way_to_overlap),
		cmocka_unit_test(names_are_what_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
