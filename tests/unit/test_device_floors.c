/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_floors.c - from which share of the time on each cause on a device is told (floor.h). */
#include "floor.h"
#include "gpu_outcome.h"

static void loader(struct gpu_plan *p, int64_t x)
{
	p->loader_single = true;
	p->loader_ns = x;
}

static void pageable(struct gpu_plan *p, int64_t x)
{
	p->copy = COPY_PAGEABLE;
	p->copy_ns = x;
}

static void pinned(struct gpu_plan *p, int64_t x)
{
	p->copy = COPY_PINNED_SAME;
	p->copy_ns = x;
}

static void allocator(struct gpu_plan *p, int64_t x)
{
	p->n_alloc = 1;
	p->alloc_ns = x;
}

/* Beside 200 kernels x more, each of which has memory of its own. */
static void uncached(struct gpu_plan *p, int64_t x)
{
	p->n_alloc = (int)x;
	p->alloc_ns = 100 * US;
}

static double of_them_and_200(int64_t x)
{
	return (double)x / (double)(200 + x);
}

/* 8 MB each, ten a step: so many steps. */
static void streamed(struct gpu_plan *p, int64_t x)
{
	p->copy = COPY_PINNED_SAME;
	p->copy_ns = 320 * US;
	p->copies = 10;
	p->n_steps = (int)x;
}

static double ten_each(int64_t x)
{
	return 10 * (double)x;
}

static void streamed_in_pieces(struct gpu_plan *p, int64_t x)
{
	streamed(p, 24);
	p->copy_bytes = (uint64_t)x;
}

static double in_mb(int64_t x)
{
	return (double)x / 1e6;
}

static void exposed(struct gpu_plan *p, int64_t x)
{
	p->n_comm = 4;
	p->comm_ns = x;
}

static void small_messages(struct gpu_plan *p, int64_t x)
{
	p->n_comm = 100;
	p->comm_ns = x;
}

static void launches(struct gpu_plan *p, int64_t x)
{
	p->launch_ns = x;
}

static void optimizer(struct gpu_plan *p, int64_t x)
{
	p->optimizer_kernels = (int)x;
}

static void zeros(struct gpu_plan *p, int64_t x)
{
	p->zero_kernels = (int)x;
}

static void compiler(struct gpu_plan *p, int64_t x)
{
	p->compile_ns = x;
}

static void layout(struct gpu_plan *p, int64_t x)
{
	p->n_layout = (int)x;
}

static void saves(struct gpu_plan *p, int64_t x)
{
	p->side = "torch/serialization.py(629): save";
	p->side_ns = x;
}

static void unused(struct gpu_plan *p, int64_t x)
{
	p->unused_ns = x;
}

/* ---- what is told of the device's own work ---- */

static void idle(struct gpu_plan *p, int64_t x)
{
	p->pause_ns = x;
}

static double busy_beside(int64_t x)
{
	return 10e6 / (10e6 + (double)x);
}

static double beside_10_ms(int64_t x)
{
	return (double)x / (10e6 + (double)x);
}

static void copies_inside(struct gpu_plan *p, int64_t x)
{
	p->copy = COPY_INSIDE;
	p->copy_ns = x;
}

/* Twenty times a step the host waits for the device, and has lost its lead. */
static void lost_lead(struct gpu_plan *p, int64_t x)
{
	p->sync_every = 10;
	p->launch_ns = x;
}

static void in_turn(struct gpu_plan *p, int64_t x)
{
	p->other_ns = x;
}

static void fp32(struct gpu_plan *p, int64_t x)
{
	p->extra = (struct gpu_extra){ .kernel = "ampere_sgemm_128x64_tn", .op = "aten::mm", .n = 10, .ns = x };
}

/* Behind a host that needs 60 us for each nothing waits for them. */
static void fp32_unawaited(struct gpu_plan *p, int64_t x)
{
	p->kernel = "ampere_sgemm_128x64_tn";
	p->kernel_ns = x;
	p->launch_ns = 60 * US;
}

static double of_a_60_us_launch(int64_t x)
{
	return (double)x / 60e3;
}

/* Volta's tensor cores take float16 alone. */
static void fp32_of_volta(struct gpu_plan *p, int64_t x)
{
	fp32(p, x);
	p->device = "Tesla V100-SXM2-16GB";
	p->compute = "7.0";
}

static double ten_beside_10_ms(int64_t x)
{
	return beside_10_ms(10 * x);
}

static void attention(struct gpu_plan *p, int64_t x)
{
	p->extra = (struct gpu_extra){ .kernel = "void softmax", .n = 10, .ns = x,
				       .op = "aten::_scaled_dot_product_attention_math" };
}

static void checkpoints(struct gpu_plan *p, int64_t x)
{
	p->extra = (struct gpu_extra){ .kernel = "void forward", .n = 10, .ns = x, .op = "CheckpointFunctionBackward" };
	p->reserved = 0.5;
}

static void memory_left(struct gpu_plan *p, int64_t x)
{
	p->checkpointing = true;
	p->reserved = (double)x / 1000;
}

/* A single one, in steps that are shorter and shorter. */
static void autotuning(struct gpu_plan *p, int64_t x)
{
	p->autotune = 1;
	p->kernel_ns = x;
}

static void untuned(struct gpu_plan *p, int64_t x)
{
	p->convs = (int)x;
}

static double of_50_us(int64_t x)
{
	return beside_10_ms(50 * US * x);
}

static void optimizer_of_300(struct gpu_plan *p, int64_t x)
{
	p->optimizer_kernels = 300;
	p->kernel_ns = x;
}

/* Kernels of 20 blocks, on 108 multiprocessors. */
static void small_beside_large(struct gpu_plan *p, int64_t x)
{
	p->grid = 800;
	p->extra = (struct gpu_extra){ .kernel = "void small", .op = "aten::mm", .n = 100, .grid = 20, .ns = x };
}

static double hundred_beside_10_ms(int64_t x)
{
	return beside_10_ms(100 * x);
}

static void short_ones(struct gpu_plan *p, int64_t x)
{
	p->grid = 20;
	p->n_kernels = 40;
	p->kernel_ns = x;
}

static double in_ms(int64_t x)
{
	return (double)x / 1e6;
}

static void small_and_idle(struct gpu_plan *p, int64_t x)
{
	p->grid = 20;
	p->pause_ns = x;
}

/* One a step, and steps of 0.9 ms. */
static void few_small(struct gpu_plan *p, int64_t x)
{
	p->grid = 20;
	p->inference = true;
	p->n_kernels = 1;
	p->kernel_ns = 900 * US;
	p->n_steps = (int)x;
}

/* ---- loaders that leave no event, and devices that nobody traced ---- */

/* Steps so long that what is little of them is a hole all the same. */
static void hole(struct gpu_plan *p, int64_t x)
{
	p->kernel_ns = 500 * US;
	p->sync_every = p->n_kernels;
	p->hole_ns = x;
}

static void on_cpu(struct gpu_plan *p)
{
	p->kernel_ns = US;
	p->no_device = p->no_gpu = p->no_launches = true;
}

static void hole_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	p->launch_ns = 80 * US;
	p->hole_ns = x;
}

static void loader_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	loader(p, x);
}

static void unused_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	unused(p, x);
}

static void compiler_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	compiler(p, x);
}

static void saves_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	saves(p, x);
}

static void logs(struct gpu_plan *p, int64_t x)
{
	p->side = "logging/__init__.py(1510): info";
	p->side_ns = x;
}

static void logs_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	logs(p, x);
}

/* ---- launches ---- */

/* Stacks slow the host: little of it is no trouble of the program's. */
static void launches_with_stacks(struct gpu_plan *p, int64_t x)
{
	p->frames = true;
	p->launch_ns = x;
}

static void pauses(struct gpu_plan *p, int64_t x)
{
	p->pause_ns = x;
}

/* Behind a host that takes 85 us to launch 50, work of which there is no trace: ten times a step of 17 ms. */
static void unseen_work(struct gpu_plan *p, int64_t x)
{
	p->launch_ns = 85 * US;
	p->unseen_ns = x;
}

/* Without what a launch may take by itself. */
static double ten_of_17_ms(int64_t x)
{
	return 10 * ((double)x - 245e3) / 17e6;
}

/* A tail behind ten that are hidden. */
static void tail(struct gpu_plan *p, int64_t x)
{
	p->n_comm = 10;
	p->comm_ns = MS;
	p->comm_overlaps = true;
	p->comm_tail_ns = x;
}

/* 600 us are not hidden; of x others nothing is to be seen. */
static void hidden(struct gpu_plan *p, int64_t x)
{
	p->n_comm = 10;
	p->comm_ns = x;
	p->comm_overlaps = true;
	p->comm_tail_ns = 600 * US;
}

static double part_of_tail(int64_t x)
{
	return 600e3 / (600e3 + 10 * (double)x);
}

/* Four milliseconds a step in one piece; what launches take beside them is in two hundred. */
static void pauses_and_launches(struct gpu_plan *p, int64_t x)
{
	p->pause_ns = 4 * MS;
	p->launch_ns = x;
}

static double part_of_pauses(int64_t x)
{
	return 4e6 / (4e6 + 200 * ((double)x - 50e3));
}

/* ---- what is compiled, and cast ---- */

static void separate_regions(struct gpu_plan *p, int64_t x)
{
	p->launch_ns = 80 * US;
	p->regions = (int)x;
}

static void regions_and_launches(struct gpu_plan *p, int64_t x)
{
	p->launch_ns = x;
	p->regions = 12;
}

static double of_a_launch(int64_t x)
{
	return ((double)x - 50e3) / (double)x;
}

/* A new version in each step. */
static void versions(struct gpu_plan *p, int64_t x)
{
	p->region_versions = 1;
	p->regions_once = true;
	p->n_steps = (int)x;
}

/* Half of the operators are of the forward pass, with a cast before each. */
static void casts(struct gpu_plan *p, int64_t x)
{
	p->n_kernels = 2 * (int)x;
	p->kernel_ns = 100 * US;
	p->sync_every = p->n_kernels;
	p->casts = CAST_BY_HAND;
	p->scaler = true;
}

/* One node of autograd a step, and each is searched for NaN. */
static void searched(struct gpu_plan *p, int64_t x)
{
	p->nodes = p->search_nan = true;
	p->n_kernels = 2;
	p->kernel_ns = MS;
	p->n_steps = (int)x;
}

static void compiled_by_the_log(struct gpu_plan *p, int64_t x)
{
	p->compile_logged = true;
	p->n_steps = (int)x;
}

/* ---- ranks ---- */

/* Steps of eight milliseconds on the CPU, in which a rank comes so late. */
static void late_on_cpu(struct gpu_plan *p, int64_t x)
{
	on_cpu(p);
	p->launch_ns = 40 * US;
	p->n_ranks = 4;
	p->gloo_ns = 200 * US;
	p->late_rank = 2;
	p->late_ns = x;
}

static void few_collectives(struct gpu_plan *p, int64_t x)
{
	late_on_cpu(p, 4 * MS);
	p->n_steps = (int)x;
}

static void late_in_turn(struct gpu_plan *p, int64_t x)
{
	p->n_ranks = 4;
	p->n_comm = 2;
	p->comm_ns = 100 * US;
	p->late_rank = -2;
	p->late_ns = x;
}

/* Eight ranks, reductions of 2 ms among each four of them; x: so much longer in one of the groups. */
static void slow_group(struct gpu_plan *p, int64_t x)
{
	p->n_ranks = 8;
	p->n_steps = 20;
	p->n_comm = 2;
	p->comm_ns = 2 * MS;
	p->coll = "all_reduce";
	p->coll_bytes = 100000000;
	p->groups = 2;
	p->link_group = 1;
	p->link_ns = x;
}

static double of_two_ms(int64_t x)
{
	return (double)x / (2 * MS);
}

/* All of them from the middle on. */
static void slow_since(struct gpu_plan *p, int64_t x)
{
	slow_group(p, x);
	p->link_group = -1;
	p->link_from = 10;
}

/* One collective a step, in so many steps after the change. */
static void slow_at_the_end(struct gpu_plan *p, int64_t x)
{
	slow_since(p, 4 * MS);
	p->n_comm = 1;
	p->link_from = 20 - (int)x;
}

/* A smaller part of steps of 14 ms. */
static void slow_short_ones(struct gpu_plan *p, int64_t x)
{
	slow_group(p, x);
	p->n_comm = 1;
	p->comm_ns = 200 * US;
}

static const struct floor floors[] = {
	{ "comms.degraded_link", 0.5, 0.51, { slow_group }, 100 * US, .told = 4 * MS, .truth = of_two_ms, .others = true },
	{ "comms.degraded_link", 0.3, 0.31, { slow_since }, 100 * US, .told = 4 * MS, .truth = of_two_ms, .others = true },
	{ "comms.degraded_link", 5, 5, { slow_at_the_end }, 1, .told = 8, .truth = as_it_is, .others = true },
	{ "comms.degraded_link", 0.03, 0.031, { slow_short_ones }, 10 * US, .told = 4 * MS, .others = true },
	{ "data.loader_wait", 0.01, 0.02, { loader }, MS, .told = 12 * MS },
	{ "data.loader_wait", 0.03, 0.031, { hole }, 1100 * US, .told = 12 * MS, .says = "inferred" },
	{ "data.loader_wait", 0.10, 0.105, { hole_on_cpu }, 1100 * US, .told = 5 * MS, .says = "inferred" },
	{ "data.loader_wait", 0.01, 0.011, { loader_on_cpu }, 5 * US, .told = MS },
	{ "data.loader_wait", 0.10, 0.105, { loader_on_cpu }, 5 * US, .told = MS, .loudly = true },
	{ "data.pageable_copy", 0.03, 0.031, { pageable }, 20 * US, .told = 3 * MS },
	{ "data.serial_copy", 0.03, 0.031, { pinned }, 20 * US, .told = 3 * MS },
	{ "data.serial_copy", 100, 100, { streamed }, 6, .told = 24, .truth = ten_each, .says = "weights", .others = true },
	{ "data.serial_copy", 1, 1.006, { streamed_in_pieces }, 1000, .told = 8000000, .truth = in_mb, .says = "weights",
	  .others = true },
	{ "gpu.allocator_sync", 0.01, 0.011, { allocator }, US, .told = 3 * MS },
	{ "gpu.allocator_sync", 0.24, 0.254, { uncached }, 5, .told = 150, .truth = of_them_and_200, .says = "uncached",
	  .others = true },
	{ "gpu.bound", 0.74, 0.76, { idle }, 20 * MS, .told = US, .truth = busy_beside, .others = true },
	{ "gpu.bound", 0.89, 0.91, { idle }, 20 * MS, .told = US, .truth = busy_beside, .says = "densely", .others = true },
	{ "gpu.bound", 0.049, 0.052, { copies_inside }, 10 * US, .told = 2 * MS, .truth = beside_10_ms, .says = "copies" },
	{ "gpu.host_sync", 0.03, 0.031, { lost_lead }, 8 * US, .told = 40 * US },
	{ "gpu.devices_in_turn", 0.10, 0.101, { in_turn }, 10 * US, .told = 9 * MS },
	{ "gpu.no_tensor_core", 0.01, 0.0102, { fp32 }, 2 * US, .told = MS },
	{ "gpu.no_tensor_core", 0.099, 0.102, { fp32_of_volta }, 2 * US, .told = MS, .truth = ten_beside_10_ms },
	{ "gpu.no_tensor_core", 0.048, 0.052, { fp32_unawaited }, US, .told = 10 * US, .truth = of_a_60_us_launch,
	  .others = true },
	{ "gpu.math_attention", 0.01, 0.0102, { attention }, 2 * US, .told = MS },
	{ "gpu.recompute", 0.01, 0.0102, { checkpoints }, 2 * US, .told = MS },
	{ "gpu.recompute", 0.795, 0.801, { memory_left }, 950, .told = 300, .truth = per_mille },
	{ "gpu.conv_autotune", 0.01, 0.0105, { autotuning }, 500 * US, .told = 5 * US },
	{ "gpu.conv_autotune", 0.196, 0.204, { untuned }, 10, .told = 100, .truth = of_50_us, .says = "off" },
	{ "gpu.small_batch", 0.59, 0.61, { small_beside_large }, 10 * US, .told = 900 * US, .truth = hundred_beside_10_ms },
	{ "gpu.small_batch", 0.98, 1.01, { short_ones }, 3 * MS, .told = 100 * US, .truth = in_ms },
	{ "gpu.small_batch", 0.49, 0.51, { small_and_idle }, 30 * MS, .told = US, .truth = busy_beside, .others = true },
	{ "gpu.small_batch", 20, 20, { few_small }, 5, .told = 60, .truth = as_it_is },
	{ "comms.exposed", 0.03, 0.031, { exposed }, 10 * US, .told = MS },
	{ "comms.exposed", 0.08, 0.081, { tail }, 10 * US, .told = 5 * MS, .loudly = true },
	{ "comms.exposed", 0.24, 0.26, { hidden }, MS, .told = 50 * US, .truth = part_of_tail, .loudly = true },
	{ "comms.small_messages", 0.03, 0.031, { small_messages }, 500, .told = 40 * US },
	{ "gpu.launch_bound", 0.10, 0.11, { launches }, 8 * US, .told = 120 * US },
	{ "gpu.launch_bound", 0.20, 0.21, { launches_with_stacks }, 8 * US, .told = 120 * US, .loudly = true },
	{ "gpu.launch_bound", 1.9, 2.1, { pauses }, 1200 * US, .told = 5 * MS, .truth = in_ms, .says = "pauses", .others = true },
	{ "gpu.launch_bound", 0.80, 0.85, { pauses_and_launches }, 200 * US, .told = 48 * US, .truth = part_of_pauses,
	  .says = "pauses", .others = true },
	{ "gpu.launch_bound", 0.145, 0.155, { unseen_work }, 600 * US, .told = 50 * US, .truth = ten_of_17_ms },
	{ "compile.graph_breaks", 8, 8, { separate_regions }, 2, .told = 30, .truth = as_it_is, .others = true },
	{ "compile.graph_breaks", 0.07, 0.11, { regions_and_launches }, 40 * US, .told = 200 * US,
	  .truth = of_a_launch },
	{ "compile.recompiles", 4, 4, { versions }, 3, .told = 12, .truth = as_it_is },
	{ "gpu.amp_misuse", 4, 4, { casts }, 1, .told = 12, .truth = as_it_is },
	{ "debug.left_on", 20, 20, { searched }, 4, .told = 60, .truth = as_it_is, .others = true },
	{ "compile.skipped", 3, 3, { compiled_by_the_log }, 2, .told = 12, .truth = as_it_is },
	{ "comms.straggler", 0.03, 0.0305, { late_on_cpu }, 10 * US, .told = 2 * MS },
	{ "comms.straggler", 5, 5, { few_collectives }, 3, .told = 12, .truth = as_it_is },
	/* 0.05 of a step in the mean over four ranks, of which three wait and all lose. */
	{ "comms.straggler", 0.06, 0.073, { late_in_turn }, 50 * US, .told = 4 * MS, .loudly = true },
	{ "gpu.unfused_optimizer", 0.02, 0.06, { optimizer }, 1, .told = 400 },
	{ "gpu.unfused_optimizer", 0.02, 0.021, { optimizer_of_300 }, MS, .told = 20 * US },
	{ "gpu.zero_grad_fill", 0.01, 0.011, { zeros }, 1, .told = 400 },
	{ "compile.in_step", 0.01, 0.011, { compiler }, 10 * US, .told = 30 * MS },
	{ "compile.in_step", 0.01, 0.011, { compiler_on_cpu }, 5 * US, .told = 3 * MS },
	{ "gpu.layout", 0.01, 0.02, { layout }, 1, .told = 100 },
	{ "side.checkpoint", 0.01, 0.02, { saves }, 100 * US, .told = 30 * MS },
	{ "side.checkpoint", 0.01, 0.011, { saves_on_cpu }, 5 * US, .told = 3 * MS },
	{ "side.logging", 0.01, 0.02, { logs }, 100 * US, .told = 30 * MS },
	{ "side.logging", 0.01, 0.011, { logs_on_cpu }, 5 * US, .told = 3 * MS },
	{ "comms.ddp_flags", 0.01, 0.011, { unused }, 10 * US, .told = 3 * MS },
	{ "comms.ddp_flags", 0.01, 0.011, { unused_on_cpu }, US, .told = MS },
};

static struct outcome at(const struct floor *f, int64_t x)
{
	struct gpu_plan p = gpu_healthy;

	p.n_steps = 12;
	f->turn(&p, x);
	return explain(&p);
}

static void told_from_its_threshold_on(void **state)
{
	(void)state;
	floors_judge(floors, sizeof floors / sizeof *floors, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_from_its_threshold_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
