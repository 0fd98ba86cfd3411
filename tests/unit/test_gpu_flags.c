/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops whose trouble is a setting: mixed precision, DDP, FSDP, cuDNN, a loader that leaves no event. Each
 * with twins that look alike and are healthy.
 */
#include <stdio.h>

#include "gpu_outcome.h"

static void a_loader_without_events_is_inferred(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	/* A step's kernels take 10 ms and its launches 1.6, so of 20 ms all but 8.4 are exposed. */
	p.hole_ns = 20 * MS;
	o = first(&p, "data.loader_wait");
	assert_string_equal(o.v->findings[0].detail, "inferred");
	assert_true(strstr(o.v->findings[0].title, "inferred") != NULL);
	assert_true(o.v->findings[0].confidence < 0.7);
	assert_true(o.v->findings[0].lost_ms < 13 * 10 && o.v->findings[0].lost_ms > 9 * 9);
	assert_int_equal(o.v->bound, LG_BOUND_DATA);
	assert_null(find(o.v, "gpu.launch_bound"));
	assert_true(o.v->n_limits > 0);
	done(&o);
	p.hole_op_ns = 5 * MS; /* samples are stacked into a batch: part of it */
	o = first(&p, "data.loader_wait");
	assert_true(o.v->findings[0].lost_ms > 14 * 9);
	done(&o);
	p.hole_op_ns = 0;
	p.no_device = p.no_launches = true; /* on the CPU all of it is exposed */
	o = explain(&p);
	assert_non_null(find(o.v, "data.loader_wait"));
	assert_string_equal(find(o.v, "data.loader_wait")->detail, "inferred");
	done(&o);
}

/* Of several ranks one waits: it has a name. */
static void the_rank_that_alone_waits_for_a_batch_is_named(void **state)
{
	struct gpu_plan p = gpu_healthy;

	(void)state;
	p.n_ranks = 3;
	p.hole_ns = 20 * MS;
	for (int cpu = 0; cpu < 2; cpu++) {
		p.no_device = p.no_launches = cpu;
		for (int once = 0; once < 2; once++) {
			struct outcome o;
			const struct lg_finding *f;

			p.hole_once = once;
			o = explain(&p);
			f = find(o.v, "data.loader_wait");
			assert_non_null(f);
			assert_string_equal(f->detail, "inferred");
			assert_int_equal(strstr(f->title, "on rank 2 alone ") != NULL, once);
			assert_int_equal(strstr(f->title, "rank") != NULL, once);
			done(&o);
		}
	}
}

static void holes_that_are_no_batch_wait(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.hole_ns = 6 * MS; /* hidden: the device still works on the step before */
	quiet(&p);
	p.hole_ns = 20 * MS; /* a loader that marks itself is in the window: known, not inferred */
	p.loader_ns = MS;
	o = explain(&p);
	for (size_t i = 0; i < o.v->n_findings; i++)
		assert_true(!o.v->findings[i].detail || strcmp(o.v->findings[i].detail, "inferred"));
	done(&o);
	/* A host that is slow everywhere is not waiting for data at the start of the step. */
	p = gpu_healthy;
	p.n_kernels = 20;
	p.python_ns = 2 * MS;
	p.hole_ns = 2 * MS;
	o = first(&p, "gpu.launch_bound");
	assert_null(find(o.v, "data.loader_wait"));
	done(&o);
}

/* Stacks tell that a hole is the wait for a batch: iterators inside iterators count once. */
static void nested_iterators_do_not_make_up_most_of_a_hole(void **state)
{
	struct gpu_plan p = gpu_healthy;

	(void)state;
	p.hole_ns = 20 * MS;
	p.frames = true;
	for (int most = 0; most < 2; most++) {
		struct outcome o;
		bool said = false;

		p.next_ns = most ? 16 * MS : 7 * MS;
		o = first(&p, "data.loader_wait");
		for (size_t i = 0; i < o.v->findings[0].n_evidence; i++)
			said |= strstr(o.v->findings[0].evidence[i].text, "__next__ for most of it") != NULL;
		assert_int_equal(said, most);
		done(&o);
	}
}

static void mixed_precision_by_hand(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.casts = CAST_BY_HAND;
	p.scaler = true;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.amp_misuse"));
	assert_string_equal(find(o.v, "gpu.amp_misuse")->detail, "manual_casts");
	/* 100 casts of 10 us among 200 kernels of 50 us. */
	assert_true(fabs(find(o.v, "gpu.amp_misuse")->lost_share - 1.0 / 11) < 0.03);
	assert_true(is_loud(find(o.v, "gpu.amp_misuse")));
	done(&o);
	p.kernel_ns = 3 * US; /* on a device that waits for launches the casts cost their launches */
	o = explain(&p);
	assert_true(find(o.v, "gpu.amp_misuse")->lost_share > 0.2);
	assert_non_null(find(o.v, "gpu.launch_bound"));
	assert_true(find(o.v, "gpu.amp_misuse")->lost_share + find(o.v, "gpu.launch_bound")->lost_share < 1);
	done(&o);
	p.kernel_ns = 50 * US;
	p.untyped = true; /* what the copies convert is not known */
	o = explain(&p);
	assert_null(find(o.v, "gpu.amp_misuse"));
	done(&o);
	p.untyped = false;
	p.casts = CAST_AUTOCAST;
	o = explain(&p);
	assert_null(find(o.v, "gpu.amp_misuse"));
	done(&o);
	p.casts = CAST_NORM; /* float32 around a norm is no autocast by hand */
	o = explain(&p);
	assert_null(find(o.v, "gpu.amp_misuse"));
	done(&o);
}

static void backward_under_autocast_and_unscaled_float16(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.casts = CAST_AUTOCAST;
	p.scaler = true;
	p.back_pairs = true;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.amp_misuse"));
	assert_string_equal(find(o.v, "gpu.amp_misuse")->detail, "backward_under_autocast");
	done(&o);
	p.back_pairs = false;
	p.recompute_pairs = true; /* checkpointing runs forward again, under autocast as it should */
	o = explain(&p);
	assert_null(find(o.v, "gpu.amp_misuse"));
	done(&o);
	p = gpu_healthy;
	p.casts = CAST_HALF_MODEL;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.amp_misuse"));
	assert_string_equal(find(o.v, "gpu.amp_misuse")->detail, "no_loss_scaling");
	assert_int_equal(find(o.v, "gpu.amp_misuse")->severity, LG_SEVERITY_LOW);
	done(&o);
	p.scaler = true;
	o = explain(&p);
	assert_null(find(o.v, "gpu.amp_misuse"));
	done(&o);
	p.scaler = false;
	p.inference = true; /* half() is right there */
	o = explain(&p);
	assert_null(find(o.v, "gpu.amp_misuse"));
	done(&o);
}

/* The largest is named, and of several it is not said to be all. */
static void places_where_the_host_waits_are_counted(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.kernel_ns = 25 * US;
	p.sync_every = 4;
	o = first(&p, "gpu.host_sync");
	assert_non_null(strstr(o.v->findings[0].title, "in aten::item: "));
	done(&o);
	p.sync_other = "aten::nonzero";
	o = first(&p, "gpu.host_sync");
	assert_non_null(strstr(o.v->findings[0].title, "in aten::item ("));
	assert_non_null(strstr(o.v->findings[0].title, " % of it) and 1 other place: "));
	done(&o);
}

static void what_ddp_need_not_do(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.unused_ns = 15 * MS;
	o = first(&p, "comms.ddp_flags");
	assert_string_equal(o.v->findings[0].detail, "find_unused_parameters");
	done(&o);
	/* Where the host reads numbers in each step it has no lead that would hide it. */
	p.unused_ns = 7 * MS;
	p.sync_every = p.n_kernels / 2;
	o = first(&p, "comms.ddp_flags");
	assert_true(fabs(o.v->findings[0].lost_ms - 10 * 7) < 10);
	assert_true(!find(o.v, "gpu.host_sync") || find(o.v, "gpu.host_sync")->lost_ms < 10);
	done(&o);
	p.sync_every = 0;
	p.unused_ns = 2 * MS; /* hidden under the step before */
	quiet(&p);
	p.unused_ns = 0;
	p.ddp_buckets = 80;
	p.comm_ns = 40 * US;
	o = first(&p, "comms.small_messages");
	assert_string_equal(o.v->findings[0].detail, "ddp_buckets");
	assert_true(strstr(o.v->findings[0].fix, "bucket_cap_mb") != NULL);
	done(&o);
	p.ddp_buckets = 0;
	p.copy_back = 60;
	o = first(&p, "comms.ddp_flags");
	assert_string_equal(o.v->findings[0].detail, "gradient_as_bucket_view");
	assert_true(strstr(o.v->findings[0].fix, "gradient_as_bucket_view=True") != NULL);
	done(&o);
	p.copy_back = 2;
	quiet(&p);
}

/* Without a device the search holds the main thread up: all of it is exposed. */
static void unused_parameters_are_looked_for_on_cpus_too(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.no_device = p.no_launches = true;
	p.n_steps = 20;
	p.unused_ns = 400 * US;
	o = first(&p, "comms.ddp_flags");
	f = &o.v->findings[0];
	assert_string_equal(f->detail, "find_unused_parameters");
	assert_true(fabs(f->lost_ms - 20 * 0.4) < 0.5);
	assert_non_null(strstr(f->title, "of the step's time"));
	assert_true(strstr(f->fix, "find_unused_parameters=False") != NULL);
	done(&o);
	p.unused_ns = 5 * US;
	o = explain(&p);
	assert_null(find(o.v, "comms.ddp_flags"));
	done(&o);
}

static void gathers_that_nobody_prefetched(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_comm = 4;
	p.comm_ns = MS;
	p.comm_kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
	p.comm_hook = "FullyShardedDataParallel._pre_forward";
	o = first(&p, "comms.exposed");
	assert_string_equal(o.v->findings[0].detail, "fsdp_forward_prefetch");
	done(&o);
	p.comm_hook = "FullyShardedDataParallel._pre_backward_hook";
	o = first(&p, "comms.exposed");
	assert_string_equal(o.v->findings[0].detail, "fsdp_backward_prefetch");
	done(&o);
	p.comm_hook = "FullyShardedDataParallel._pre_backward_prefetch";
	o = first(&p, "comms.exposed");
	assert_string_equal(o.v->findings[0].detail, "shards");
	done(&o);
	p.comm_hook = "FullyShardedDataParallel._pre_forward";
	p.comm_overlaps = true;
	quiet(&p);
}

/* However long it is recorded: such a share is the work's own. */
static void the_last_bucket_is_ordinary(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_comm = 10;
	p.comm_ns = MS;
	p.comm_tail_ns = 600 * US;
	p.comm_overlaps = true;
	o = explain(&p);
	assert_int_equal(find(o.v, "comms.exposed")->severity, LG_SEVERITY_LOW);
	assert_true(find(o.v, "comms.exposed")->ordinary);
	done(&o);
}

/* What is exposed decides the advice: who waits for a stage of a pipeline has no buckets to set. */
static void advice_by_what_moves(void **state)
{
	static const char pairs[] = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
	static const struct {
		const char *kernel, *coll, *around, *detail, *says;
		bool inference;
	} table[] = {
		{ NULL, NULL, NULL, NULL, "bucket_cap_mb", false },
		{ pairs, NULL, NULL, "point_to_point", "all-to-all", false },
		{ pairs, "send", NULL, "send_recv", "microbatches", false },
		{ pairs, "all_to_allv", NULL, "all_to_all", "experts", false },
		/* Older traces: the ranges around the launch. */
		{ pairs, NULL, "nccl:send 0->1", "send_recv", "microbatches", false },
		{ pairs, NULL, "nccl:all_to_all", "all_to_all", "experts", false },
		{ pairs, NULL, "nccl:_reduce_scatter_base", "shards", "prefetch", false },
		{ pairs, NULL, "nccl:all_reduce", NULL, "bucket_cap_mb", false },
		{ pairs, "coalesced", "nccl:coalesced", "point_to_point", "all-to-all", false },
		{ pairs, NULL, "somebody's all_to_all", "point_to_point", "all-to-all", false },
		{ "ncclKernel_ReduceScatter_TREE_LL_Sum_float(ncclDevComm*)", NULL, NULL, "shards", "prefetch",
		  false },
		{ NULL, "allreduce", NULL, "tensor_parallel", "replica", true },
	};
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_comm = 4;
	p.comm_ns = MS;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		p.comm_kernel = table[i].kernel;
		p.coll = table[i].coll;
		p.comm_hook = table[i].around;
		p.inference = table[i].inference;
		o = first(&p, "comms.exposed");
		if (table[i].detail)
			assert_string_equal(o.v->findings[0].detail, table[i].detail);
		else
			assert_null(o.v->findings[0].detail);
		assert_non_null(strstr(o.v->findings[0].fix, table[i].says));
		assert_true(!table[i].detail || !strstr(o.v->findings[0].fix, "bucket_cap_mb"));
		done(&o);
	}
	p.comm_kernel = pairs;
	p.comm_hook = "nccl:all_to_all";
	p.comm_overlaps = true;
	quiet(&p);
}

/* Half of it are gradients, half rows for experts: each has its own advice. The twin has one kind. */
static void advice_for_each_kind_that_matters(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.n_comm = 4;
	p.comm_ns = MS;
	p.coll = "allreduce";
	p.coll_other = "all_to_allv";
	o = first(&p, "comms.exposed");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "AllReduce (50 %), AllToAll (50 %)"));
	assert_non_null(strstr(f->fix, "AllReduce (50 %): DDP"));
	assert_non_null(strstr(f->fix, "AllToAll (50 %): Rows travel"));
	assert_non_null(strstr(f->tradeoff, "AllReduce (50 %): ") && strstr(f->tradeoff, "AllToAll (50 %): "));
	done(&o);
	p.coll_other = "_allgather_base";
	p.comm_kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
	p.comm_hook = "FullyShardedDataParallel._pre_forward";
	o = first(&p, "comms.exposed");
	f = &o.v->findings[0];
	assert_null(f->detail);
	assert_non_null(strstr(f->fix, "AllReduce (50 %): DDP"));
	assert_non_null(strstr(f->fix, "AllGather (50 %): FullyShardedDataParallel(..., forward_prefetch=True)"));
	done(&o);
	p.comm_hook = NULL;
	p.inference = true; /* one advice for both */
	o = first(&p, "comms.exposed");
	f = &o.v->findings[0];
	assert_true(strstr(f->title, "AllReduce (50 %)") && strstr(f->title, "AllGather (50 %)"));
	assert_string_equal(f->detail, "tensor_parallel");
	assert_null(strstr(f->fix, "AllReduce ("));
	done(&o);
	p.inference = false;
	p.coll_other = "allreduce";
	o = first(&p, "comms.exposed");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "most of it in AllReduce"));
	assert_true(!strncmp(f->fix, "DDP", 3));
	done(&o);
}

/* The first collective began in a step that is left out: what is alone is part of what there is. */
static void no_share_over_the_whole(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;
	const char *at;
	int percent = 0;

	(void)state;
	p.inference = true;
	p.n_steps = 20;
	p.n_kernels = p.sync_every = 20;
	p.n_comm = 1;
	p.comm_ns = 40 * MS;
	p.launch_ns = 20 * US;
	p.loader_ns = 200 * MS;
	p.loader_every = p.n_steps; /* the first one is left out, */
	p.late_rank = 1;
	p.late_once = 1; /* and its collective is longer than the others */
	p.late_ns = 30 * MS;
	o = first(&p, "comms.exposed");
	at = strstr(o.v->findings[0].evidence[0].text, " ms in all, ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, " ms in all, %d", &percent), 1);
	assert_in_range(percent, 90, 100);
	done(&o);
}

static void convolutions_never_tuned(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.convs = 100;
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.conv_autotune"));
	assert_string_equal(find(o.v, "gpu.conv_autotune")->detail, "off");
	assert_int_equal(find(o.v, "gpu.conv_autotune")->severity, LG_SEVERITY_LOW);
	done(&o);
	p.conv_benchmark = true;
	o = explain(&p);
	assert_null(find(o.v, "gpu.conv_autotune"));
	done(&o);
	p.conv_benchmark = false;
	p.conv_shapes_change = true; /* then off is right */
	o = explain(&p);
	assert_null(find(o.v, "gpu.conv_autotune"));
	done(&o);
	p.conv_shapes_change = false;
	p.conv_shape_a_step = true; /* one for all of a step, another one in the next */
	o = explain(&p);
	assert_null(find(o.v, "gpu.conv_autotune"));
	done(&o);
	p.conv_shape_a_step = false;
	p.convs = 10; /* a small part of the step */
	o = explain(&p);
	assert_null(find(o.v, "gpu.conv_autotune"));
	done(&o);
}

/* Runs that look like trouble to a rule that only counts. */
static void healthy_twins_stay_silent(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	/* A foreach optimizer of a large model: hundreds of kernels, each as large as they get. */
	p.optimizer_kernels = 400;
	p.optimizer_foreach = true;
	quiet(&p);
	/* channels_last turns the input once. */
	p = gpu_healthy;
	p.n_kernels = 20;
	p.n_layout = 1;
	quiet(&p);
	/* A persistent recurrent network: few blocks for a long time. */
	p = gpu_healthy;
	p.grid = 20;
	p.n_kernels = 20;
	p.kernel_ns = 5 * MS;
	quiet(&p);
	/* A server answers one request at a time. */
	p = gpu_healthy;
	p.grid = 20;
	p.inference = true;
	quiet(&p);
	p.inference = false;
	o = explain(&p);
	assert_true(is_loud(find(o.v, "gpu.small_batch")));
	done(&o);
	/* Gradients are reduced under the backward pass, the last bucket behind it. */
	p = gpu_healthy;
	p.n_comm = 10;
	p.comm_ns = MS;
	p.comm_overlaps = true;
	p.comm_tail_ns = 600 * US;
	o = explain(&p);
	assert_non_null(find(o.v, "comms.exposed"));
	assert_false(is_loud(find(o.v, "comms.exposed")));
	done(&o);
	/* Stacks slow the host: a device that is well fed without them looks somewhat starved. */
	p = gpu_healthy;
	p.n_kernels = 30;
	p.kernel_ns = 60 * US;
	p.launch_ns = 62 * US;
	o = explain(&p);
	assert_true(is_loud(find(o.v, "gpu.launch_bound")));
	done(&o);
	p.frames = true;
	o = explain(&p);
	assert_true(find(o.v, "gpu.launch_bound") != NULL && !is_loud(find(o.v, "gpu.launch_bound")));
	done(&o);
	/* float32 where it belongs: a head beside bf16 matrices; see also mixed_precision_by_hand(). */
	p = gpu_healthy;
	p.casts = CAST_NORM;
	p.scaler = true;
	quiet(&p);
}

/* Volta was the first that has any. */
static void a_card_without_tensor_cores_is_not_blamed_for_that(void **state)
{
	static const struct {
		const char *device, *compute;
		bool told;
	} cards[] = {
		{ "Tesla P100-PCIE-16GB", "6.0", false }, { "NVIDIA GeForce GTX 1080 Ti", "6.1", false },
		{ "Tesla V100-SXM2-16GB", "7.0", true }, { "NVIDIA A100-SXM4-40GB", "8.0", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
		struct gpu_plan p = gpu_healthy;
		struct outcome o;

		p.kernel = "ampere_sgemm_128x64_tn";
		p.device = cards[i].device;
		p.compute = cards[i].compute;
		o = explain(&p);
		assert_int_equal(find(o.v, "gpu.no_tensor_core") != NULL, cards[i].told);
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_card_without_tensor_cores_is_not_blamed_for_that),
		cmocka_unit_test(a_loader_without_events_is_inferred),
		cmocka_unit_test(the_rank_that_alone_waits_for_a_batch_is_named),
		cmocka_unit_test(holes_that_are_no_batch_wait),
		cmocka_unit_test(nested_iterators_do_not_make_up_most_of_a_hole),
		cmocka_unit_test(mixed_precision_by_hand),
		cmocka_unit_test(backward_under_autocast_and_unscaled_float16),
		cmocka_unit_test(places_where_the_host_waits_are_counted),
		cmocka_unit_test(what_ddp_need_not_do),
		cmocka_unit_test(unused_parameters_are_looked_for_on_cpus_too),
		cmocka_unit_test(gathers_that_nobody_prefetched),
		cmocka_unit_test(the_last_bucket_is_ordinary),
		cmocka_unit_test(convolutions_never_tuned),
		cmocka_unit_test(advice_by_what_moves),
		cmocka_unit_test(advice_for_each_kind_that_matters),
		cmocka_unit_test(no_share_over_the_whole),
		cmocka_unit_test(healthy_twins_stay_silent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
