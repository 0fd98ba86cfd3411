/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names and order of rows give away in a profiler's trace: saves, logging,
 * recomputation, anomaly detection, the calls of other devices. Each with its twin.
 */
#include "gpu_outcome.h"

static struct gpu_plan with(const char *side, bool note)
{
	struct gpu_plan p = gpu_healthy;

	p.launch_ns = 40 * US; /* not far ahead of the device */
	p.side = side;
	p.side_note = note;
	p.side_ns = 12 * MS;
	return p;
}

static void calls_that_write_metrics_are_logging(void **state)
{
	static const char *const call[] = { "torch/utils/tensorboard/writer.py(351): add_scalar",
					    "wandb/sdk/wandb_run.py(1700): log", "<built-in function print>",
					    "/usr/lib/python3.11/logging/__init__.py(1477): info" };
	struct gpu_plan p;
	struct outcome o;

	(void)state;
	for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
		p = with(call[i], false);
		o = first(&p, "side.logging");
		assert_string_equal(o.v->findings[0].stage, "side");
		assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
		assert_non_null(strstr(o.v->findings[0].evidence[0].text, call[i]));
		done(&o);
	}
	/* The same time anywhere else is the host's. */
	p = with("train.py(12): log_softmax", false);
	o = first(&p, "gpu.launch_bound");
	assert_null(find(o.v, "side.logging"));
	done(&o);
	/* Under the device's work it costs nothing. */
	p = with(call[0], false);
	p.launch_ns = gpu_healthy.launch_ns;
	p.side_ns = 2 * MS;
	quiet(&p);
}

static void calls_that_save_are_checkpoints(void **state)
{
	static const struct { const char *name; bool note; } call[] = {
		{ "torch/serialization.py(629): save", false },
		{ "torch/distributed/checkpoint/state_dict_saver.py(140): save", false },
		{ "deepspeed/runtime/engine.py(3000): save_checkpoint", false },
		{ "save_checkpoint", true },
	};
	const struct lg_finding *f;
	struct gpu_plan p;
	struct outcome o;

	(void)state;
	for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
		p = with(call[i].name, call[i].note);
		p.side_copy_ns = 5 * MS;
		o = first(&p, "side.checkpoint");
		f = find(o.v, "gpu.host_sync"); /* its copies are its own */
		assert_true(!f || !is_loud(f));
		assert_true(o.v->findings[0].lost_ms > 10 * (12 + 5) * 0.9);
		done(&o);
	}
	/* Activations' checkpoints are none. */
	p = with("checkpoint", true);
	o = explain(&p);
	assert_null(find(o.v, "side.checkpoint"));
	done(&o);
	/* One save in the window is not graded. */
	p = with(call[0].name, false);
	p.only_every = 7;
	p.side_ns = 100 * MS;
	o = explain(&p);
	assert_int_equal(find(o.v, "side.checkpoint")->severity, LG_SEVERITY_LOW);
	done(&o);
}

static void other_devices_calls_are_launches_and_waits(void **state)
{
	static const char *const calls[][2] = {
		{ "urEnqueueKernelLaunch", "urEventWait" },
		{ "zeCommandListAppendLaunchKernel", "zeEventHostSynchronize" },
		{ "runFunctionAsync", "waitForStream" }, /* only correlation and plain words tell */
	};
	struct gpu_plan p;
	struct outcome o;

	(void)state;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		p = gpu_healthy;
		p.launch_call = calls[i][0];
		p.sync_call = calls[i][1];
		quiet(&p);
		p.kernel_ns = 3 * US;
		o = first(&p, "gpu.launch_bound");
		for (size_t k = 0; k < o.v->n_limits; k++)
			assert_null(strstr(o.v->limits[k], "is not in the trace"));
		done(&o);
		p = gpu_healthy;
		p.launch_call = calls[i][0];
		p.sync_call = calls[i][1];
		p.launch_ns = 40 * US;
		p.sync_every = 5;
		o = first(&p, "gpu.host_sync");
		done(&o);
	}
}

static void forward_code_in_the_backward_pass_is_recomputation(void **state)
{
	static const char *const in[] = { NULL, "nn.Module: Block_0", "torch/utils/checkpoint.py(1100): recompute_fn" };
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.nodes = true;
	p.reserved = 0.3;
	p.n_steps = 60; /* the window ends with the host, the device is behind */
	quiet(&p);
	for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
		p.again = 5;
		p.again_in = in[i];
		p.again_op = in[i] ? "aten::bmm" : NULL; /* then it is not the operators that tell */
		o = first(&p, "gpu.recompute");
		f = &o.v->findings[0];
		/* 10 nodes of 10 kernels of 50 us in each of 60 steps: no estimate. */
		assert_true(fabs(f->lost_ms - 300) < 30);
		assert_string_equal(f->stage, "backward");
		done(&o);
	}
	/* What memory forces is not told; nor where memory is not known. */
	p.reserved = 0.9;
	quiet(&p);
	p.reserved = 0;
	quiet(&p);
	/* As many products are the derivative's own; a forward operator alone is somebody's formula. */
	p.reserved = 0.3;
	p.again_in = NULL;
	p.again_op = "aten::bmm";
	quiet(&p);
}

static void a_search_for_nan_in_all_nodes_is_anomaly_detection(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.nodes = true;
	quiet(&p);
	p.search_nan = true;
	o = explain(&p);
	f = find(o.v, "debug.left_on");
	assert_non_null(f);
	assert_non_null(strstr(f->title, "anomaly"));
	done(&o);
	p.no_device = true; /* training on the CPU */
	p.no_launches = true;
	o = explain(&p);
	f = find(o.v, "debug.left_on");
	assert_non_null(f);
	assert_true(isnan(f->lost_ms) && f->severity == LG_SEVERITY_MEDIUM);
	done(&o);
	/* The loop's own checks, in forward. */
	p = gpu_healthy;
	p.nodes = true;
	p.op = "aten::isnan";
	o = explain(&p);
	assert_null(find(o.v, "debug.left_on"));
	done(&o);
}

/* Against the same steps without it; what it causes is told by no other rule. */
static void anomaly_detection_costs_its_checks_and_stacks(void **state)
{
	static const struct {
		int64_t kernel_ns, launch_ns, stack_ns;
	} rows[] = { { 50 * US, 8 * US, 0 }, { 50 * US, 8 * US, 100 * US }, { 500 * US, 8 * US, 100 * US },
		     { 10 * US, 12 * US, 60 * US } };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct gpu_plan p = gpu_healthy;
		const struct lg_finding *f;
		struct outcome o;
		double without, lost;

		p.nodes = true;
		p.kernel_ns = rows[i].kernel_ns;
		p.launch_ns = rows[i].launch_ns;
		o = explain(&p);
		without = o.v->median_ms;
		assert_null(find(o.v, "debug.left_on"));
		done(&o);
		p.search_nan = true;
		p.stack_ns = rows[i].stack_ns;
		o = explain(&p);
		f = find(o.v, "debug.left_on");
		assert_true(f == o.v->findings);
		lost = (double)o.v->n_judged * (o.v->median_ms - without);
		if (!(fabs(f->lost_ms - lost) < 0.15 * lost))
			fail_msg("%zu: lost %g ms, told %g", i, lost, f->lost_ms);
		assert_null(find(o.v, "gpu.host_sync"));
		done(&o);
	}
}

/* Told of lost time is ns a step. */
static void attention_loses(const struct gpu_plan *p, double ns)
{
	struct outcome o = explain(p);
	const struct lg_finding *f = find(o.v, "gpu.math_attention");
	double ms = ns * (double)o.v->n_judged / 1e6;

	assert_non_null(f);
	if (fabs(f->lost_ms - ms) > 0.05 * ms)
		fail_msg("lost %g ms, told %g", ms, f->lost_ms);
	/* They need not be faster: they need not be. */
	assert_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
}

static void attention_costs_what_a_fused_kernel_does_not_take(void **state)
{
	static const char shapes[] = "dims=[[1,16,1024,64],[1,16,1024,64],[1,16,1024,64],[],[]]";
	const struct gpu_attention some = { .calls = 4, .product = "ampere_bf16_s16816gemm_bf16_128x64_nn",
					    .product_ns = 100 * US, .rest_ns = 300 * US };
	const struct gpu_attention cast = { .calls = 8, .product = "ampere_sgemm_128x64_nn",
					    .product_ns = 300 * US, .rest_ns = 300 * US };
	struct gpu_plan p = gpu_healthy;

	(void)state;
	p.kernel = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";
	/* Both passes, but for the products. */
	p.attention = some;
	attention_loses(&p, 4.0 * 2 * 300 * US);
	p.attention.unnumbered = true; /* what of backward is its own is not known */
	attention_loses(&p, 4.0 * 300 * US);
	/* Products in fp32 beside others on tensor cores: a fused kernel has these. */
	p.attention = cast;
	attention_loses(&p, 8.0 * (2 * 300 + 6 * 300 * 3 / 4) * US);
	/* 4.3 billion operations, and 2.5 times as many; the others' 2.1 billion take 50 us. */
	p.attention.dims = shapes;
	p.attention.other_dims = "dims=[[1024,1024],[1024,1024]]";
	attention_loses(&p, 8.0 * (2 * 300 + 6 * 300 - 15032.0 / (0.6 * 42.95)) * US);
	/* Scores of 8 positions are next to nothing beside queries and keys: a fused kernel is no faster. */
	p.attention = some;
	p.attention.dims = "dims=[[64,16,8,256],[64,16,8,256],[64,16,8,256],[],[]]";
	p.attention.other_dims = "dims=[[1024,1024],[1024,1024]]";
	p.attention.rest_ns = 2 * US;
	quiet(&p);
	p.attention.dims = p.attention.other_dims = NULL;
	quiet(&p);
	/* Shapes that nobody can multiply. */
	p.attention = some;
	p.attention.dims = "dims=[[1,16,0,64],[[9],1,2,3,4,5,6,7,8,9,10],";
	attention_loses(&p, 4.0 * 2 * 300 * US);
}

/* Python calls that only an active mode makes; an import, and a context that asks for nothing, do not. */
static void modes_are_told_by_calls_that_only_they_make(void **state)
{
	static const char flops[] = "torch/utils/flop_counter.py";
	static const char anomaly[] = "torch/autograd/anomaly_mode.py";
	static const struct {
		struct gpu_python of[2];
		const char *told;
	} rows[] = {
		{ { { flops, "__torch_dispatch__" } }, "FlopCounterMode" },
		{ { { anomaly, "__enter__" }, { "torch/fx/traceback.py", "format_stack" } }, "anomaly" },
		{ { { flops, "register_flop_formula" }, { flops, "register_fun" } }, NULL },
		{ { { anomaly, "__enter__" }, { anomaly, "__exit__" } }, NULL },
		{ { { "traceback.py", "format_stack" } }, NULL }, /* of a program that logs */
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct gpu_plan p = gpu_healthy;
		const struct lg_finding *f;
		struct outcome o;

		memcpy(p.python, rows[i].of, sizeof p.python);
		p.python_calls = 4;
		o = explain(&p);
		f = find(o.v, "debug.left_on");
		assert_int_equal(f != NULL, rows[i].told != NULL);
		if (f) {
			assert_non_null(strstr(f->title, rows[i].told));
			/* A dispatch mode keeps the compiler out; this does not. */
			assert_int_equal(strstr(f->title, "torch.compile") != NULL, i == 0);
		}
		done(&o);
	}
}

static bool has_evidence(const struct lg_finding *f, const char *what)
{
	bool said = false;

	for (size_t i = 0; i < f->n_evidence; i++)
		said |= strstr(f->evidence[i].text, what) != NULL;
	return said;
}

static void the_compiler_works_in_steps_on_cpus_too(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.no_device = p.no_launches = true;
	p.n_steps = 20;
	p.compile_ns = 2 * MS;
	o = first(&p, "compile.in_step");
	assert_true(fabs(o.v->findings[0].lost_ms - 20 * 2) < 3);
	assert_true(has_evidence(&o.v->findings[0], "dynamo_timed"));
	p.no_gpu = true;
	done(&o);
	o = explain(&p);
	assert_non_null(strstr(o.v->bound_why, "% compiling them), 0 % waiting"));
	done(&o);
	p.compile_ns = 10 * US;
	o = explain(&p);
	assert_null(find(o.v, "compile.in_step"));
	done(&o);
	p.compile_ns = 10 * MS;
	p.only_every = 10; /* in two steps: little of it is proven to be a habit */
	o = explain(&p);
	assert_non_null(find(o.v, "compile.in_step"));
	assert_false(is_loud(find(o.v, "compile.in_step")));
	done(&o);
}

/* Compiled regions, ranks that differ, kinds of collectives, DDP's search: none of them needs luck. */
static void no_memory_is_an_error(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct gpu_plan p = gpu_healthy;
		struct outcome o;

		p.n_kernels = 20;
		p.n_steps = 8;
		if (i < 2) {
			p.regions = 3;
			p.breaks = 2;
			p.break_ns = 60 * US;
			p.unused_ns = MS;
			p.no_device = p.no_launches = i == 1;
		} else {
			p.n_ranks = i;
			p.n_comm = 2;
			p.comm_ns = MS;
			p.coll = "allreduce";
			p.coll_other = i == 3 ? "all_to_allv" : NULL;
			p.grid = 7;
			p.late_rank = 1;
			p.late_compute = true;
			p.late_ns = MS;
		}
		o = explain(&p);
		judged_without_memory(&o);
		done(&o);
	}
	(void)state;
}

/* A region inside a region is what follows a break; regions one behind the other are compiled modules. */
static void graph_breaks_show_without_a_device(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.no_device = p.no_launches = true;
	p.n_kernels = 20;
	p.n_steps = 20;
	p.regions = 6;
	o = explain(&p);
	assert_null(find(o.v, "compile.graph_breaks"));
	done(&o);
	p.breaks = 2;
	p.break_ns = 60 * US;
	o = first(&p, "compile.graph_breaks");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "12.0 times a step"));
	assert_true(fabs(f->lost_ms - 20 * 12 * 0.063) < 1); /* with the launch's own Python */
	assert_true(has_evidence(f, "inside of Torch-Compiled Region: 0/0 runs Torch-Compiled Region: 1/0"));
	assert_true(has_evidence(f, "TORCH_LOGS=graph_breaks"));
	done(&o);
	p.resumes = true;
	o = first(&p, "compile.graph_breaks");
	assert_non_null(strstr(o.v->findings[0].culprit.function, "model.py(13): torch_dynamo_resume_in_forward"));
	assert_true(!has_evidence(&o.v->findings[0], "TORCH_LOGS"));
	done(&o);
	p.resumes_eagerly = true;
	p.breaks = 1;
	o = first(&p, "compile.graph_breaks");
	assert_non_null(strstr(o.v->findings[0].title, "6.0 times a step"));
	assert_true(has_evidence(&o.v->findings[0], "120 of 120 times what follows the break is not compiled"));
	done(&o);
	/* With a device the wait is told by its launches; behind a full queue it costs nothing. */
	p = gpu_healthy;
	p.regions = 6;
	p.breaks = 2;
	p.break_ns = 60 * US;
	o = explain(&p);
	f = find(o.v, "compile.graph_breaks");
	assert_non_null(f);
	assert_true(isnan(f->lost_ms) && f->severity == LG_SEVERITY_LOW);
	assert_true(has_evidence(f, "with an idle device"));
	done(&o);
}

/* The loss is read in every step and costs nothing, until something comes between it and the next launch. */
static void work_behind_a_synchronisation_is_told(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.sync_every = p.n_kernels;
	p.inference = true; /* all on one thread */
	p.loader_ns = 100 * US; /* no batch is waited for */
	quiet(&p);
	p.hole_ns = 6 * MS;
	o = first(&p, "gpu.host_sync");
	assert_string_equal(o.v->findings[0].detail, "work_after_sync");
	assert_non_null(strstr(o.v->findings[0].title, "away for 6."));
	done(&o);
	p.hole_ns = 0;
	p.side = "token_metrics";
	p.side_note = true;
	p.side_ns = 6 * MS;
	o = first(&p, "gpu.host_sync");
	assert_non_null(strstr(o.v->findings[0].title, "then is 6.0 ms in token_metrics"));
	assert_string_equal(o.v->findings[0].culprit.function, "token_metrics");
	done(&o);
	/* Longer than the lead that the synchronisation takes: the rest is no cause of its own. */
	p.side_ns = 12 * MS;
	o = first(&p, "gpu.host_sync");
	assert_true(fabs(o.v->findings[0].lost_ms - p.n_steps * 12) < 15);
	assert_null(find(o.v, "gpu.launch_bound"));
	done(&o);
	/* Far longer than the lead that the synchronisation takes: it is not for that. */
	p.side_ns = 60 * MS;
	o = first(&p, "gpu.launch_bound");
	assert_string_equal(o.v->findings[0].detail, "pauses");
	assert_non_null(strstr(o.v->findings[0].title, "the longest in token_metrics"));
	assert_string_equal(o.v->findings[0].culprit.function, "token_metrics");
	assert_null(find(o.v, "gpu.host_sync"));
	done(&o);
	/* Short work is what a synchronisation costs as a rule. */
	p = gpu_healthy;
	p.kernel_ns = 25 * US;
	p.sync_every = 4;
	o = first(&p, "gpu.host_sync");
	assert_null(o.v->findings[0].detail);
	done(&o);
}

/* A busy device need not compute. */
static void copies_inside_the_device_are_no_kernels(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	o = first(&p, "gpu.bound");
	assert_null(o.v->findings[0].detail);
	done(&o);
	p.copy = COPY_INSIDE;
	p.copy_ns = 3 * MS;
	quiet(&p);
	o = first(&p, "gpu.bound");
	assert_string_equal(o.v->findings[0].detail, "copies");
	assert_non_null(strstr(o.v->findings[0].title, "23 % with copies inside its own memory"));
	done(&o);
}

/* An optimizer that works on the host: no batch could be fetched ahead, and no .item() is to blame. */
static void copies_of_an_optimizer_are_no_batches(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.copy = COPY_PINNED_SAME;
	p.copy_ns = 3 * MS;
	o = first(&p, "data.serial_copy");
	assert_null(o.v->findings[0].detail);
	done(&o);
	p.copy_in_optimizer = true;
	o = first(&p, "data.serial_copy");
	assert_string_equal(o.v->findings[0].detail, "optimizer");
	assert_non_null(strstr(o.v->findings[0].title, "the optimizer's step orders them"));
	done(&o);
	p = with("gather_gradients", true);
	p.side_ns = 10 * US;
	p.side_copy_ns = 5 * MS;
	o = first(&p, "gpu.host_sync");
	assert_string_equal(o.v->findings[0].detail, "copies_to_host");
	assert_non_null(strstr(o.v->findings[0].title, "copies from the device to the host run alone for 3"));
	done(&o);
}

/* These have no TF32: float16 is worth a word where the device is busy with fp32, and has no price. */
static void fp32_matrices_on_volta_and_turing(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.device = "Tesla V100-SXM2-16GB";
	p.compute = "7.0";
	p.kernel = "volta_sgemm_128x64_tn";
	o = explain(&p);
	f = find(o.v, "gpu.no_tensor_core");
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	assert_string_equal(f->detail, "half_only");
	assert_true(isnan(f->lost_ms));
	assert_non_null(strstr(f->fix, "GradScaler"));
	assert_null(strstr(f->fix, "TF32 ="));
	done(&o);
	/* A device that waits for the host gains nothing from faster kernels. */
	p.kernel_ns = 3 * US;
	o = first(&p, "gpu.launch_bound");
	assert_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
	p.kernel_ns = gpu_healthy.kernel_ns;
	p.kernel = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn";
	o = explain(&p);
	assert_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
	/* Turing, but the small chip has no tensor cores. */
	p.kernel = "turing_sgemm_128x64_tn";
	p.compute = "7.5";
	p.device = "NVIDIA GeForce GTX 1660 SUPER";
	o = explain(&p);
	assert_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
	p.device = "Tesla T4";
	o = explain(&p);
	assert_non_null(find(o.v, "gpu.no_tensor_core"));
	done(&o);
}

/* A host that waits for a copy to its memory, in a range of the program: that range is where the time goes,
 * whether or not the device's row of the copy is there. */
static void a_copy_to_the_host_leads_with_the_range_it_is_in(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.side = "grad_all_reduce";
	p.side_note = true;
	p.side_copy_ns = 14 * MS;
	p.n_comm = 1;
	p.comm_ns = MS;
	for (int lost = 0; lost < 2; lost++) {
		p.side_copy_lost = lost;
		o = first(&p, "gpu.host_sync");
		assert_int_equal(o.v->findings[0].severity, LG_SEVERITY_HIGH);
		assert_non_null(strstr(o.v->findings[0].title, "grad_all_reduce"));
		assert_true(o.v->findings[0].lost_ms > 9 * 14 && o.v->findings[0].lost_ms < 11 * 14.1);
		assert_null(strstr(o.v->findings[0].title, "nccl"));
		assert_int_equal(o.v->bound, LG_BOUND_HOST);
		done(&o);
	}
	p.side_copy_ns = 20 * US; /* one that costs nothing */
	p.side_copy_lost = false;
	o = explain(&p);
	assert_null(find(o.v, "gpu.host_sync"));
	done(&o);
}

/* The same launches take longer in some steps: no compiler helps a host that somebody else has. */
static void a_host_that_is_slower_at_times_needs_no_compiler(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_steps = 24;
	p.launch_ns = 80 * US;
	o = first(&p, "gpu.launch_bound");
	assert_string_not_equal(o.v->findings[0].detail, "host_slower");
	done(&o);
	p.slow_launches = 40;
	o = first(&p, "gpu.launch_bound");
	assert_string_not_equal(o.v->findings[0].detail, "host_slower");
	done(&o);
	p.slow_launches = 60;
	o = first(&p, "gpu.launch_bound");
	assert_string_equal(o.v->findings[0].detail, "host_slower");
	assert_non_null(strstr(o.v->findings[0].title, "64 us from one launch to the next and 40 us in other steps"));
	assert_null(strstr(o.v->findings[0].fix, "torch.compile"));
	done(&o);
	p.n_kernels = 15; /* fewer launches than tell a pace */
	o = explain(&p);
	assert_true(!find(o.v, "gpu.launch_bound") || !find(o.v, "gpu.launch_bound")->detail ||
		    strcmp(find(o.v, "gpu.launch_bound")->detail, "host_slower"));
	done(&o);
}

/* Activations that the step has put on the host itself are no batches, either. */
static void what_a_step_has_put_on_the_host_is_no_batch(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.copy = COPY_PINNED_SAME;
	p.copy_ns = 500 * US;
	p.copies = 5;
	o = first(&p, "data.serial_copy");
	assert_null(o.v->findings[0].detail);
	done(&o);
	p.copies_back = true;
	o = first(&p, "data.serial_copy");
	assert_string_equal(o.v->findings[0].detail, "offloaded");
	assert_non_null(strstr(o.v->findings[0].title, "5 copies a step, 0.04 GB at 16.0 GB/s"));
	assert_non_null(strstr(o.v->findings[0].fix, "checkpoint"));
	done(&o);
	p.n_steps = 4; /* too few to tell */
	p.copies = 3;
	o = explain(&p);
	assert_true(!find(o.v, "data.serial_copy") || !find(o.v, "data.serial_copy")->detail);
	done(&o);
}

/* Without Python's stacks nothing is called a save: that all the state leaves the device is what tells it. */
static void a_save_that_nothing_names_is_known_by_what_it_fetches(void **state)
{
	struct gpu_plan p = gpu_healthy;
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.n_steps = 30;
	p.only_every = 5;
	p.fetch = (struct gpu_fetch){ .n = 60, .bytes = 2000000, .write_ns = 300 * US, .after_ns = 40 * MS };
	o = first(&p, "side.checkpoint");
	f = &o.v->findings[0];
	assert_int_equal(f->severity, LG_SEVERITY_HIGH);
	assert_non_null(strstr(f->title, "fetches 60 tensors (120.0 MB)"));
	/* Six times: copies, writes, and what is written behind them. */
	assert_true(f->lost_ms > 6 * (60 * 0.35 + 40) && f->lost_ms < 6 * (60 * 0.37 + 42));
	assert_true(f->strength < 0.8 && f->n_against);
	assert_null(find(o.v, "gpu.host_sync"));
	assert_null(find(o.v, "gpu.launch_bound"));
	done(&o);
	p.fetch.kernels = 1; /* each made contiguous first */
	o = first(&p, "side.checkpoint");
	done(&o);
	/* Among kernels they are what the step asks for; few, or small, they are its metrics. */
	p.fetch.kernels = 0;
	p.copy = COPY_PINNED_SAME; /* the next batch is no tensor that comes back, however large */
	p.copy_bytes = 200000000;
	p.copy_ns = US;
	o = first(&p, "side.checkpoint");
	done(&o);
	p.copy = 0;
	p.fetch.kernels = 5;
	o = first(&p, "gpu.host_sync");
	assert_null(find(o.v, "side.checkpoint"));
	done(&o);
	p.fetch.kernels = 0;
	p.fetch.bytes = 4;
	o = explain(&p);
	assert_null(find(o.v, "side.checkpoint"));
	done(&o);
	p.fetch.bytes = 2000000;
	p.fetch.n = 15;
	o = explain(&p);
	assert_null(find(o.v, "side.checkpoint"));
	done(&o);
	/* An optimizer on the host takes the gradients and gives the weights back. */
	p.fetch.n = 60;
	p.fetch.back = true;
	o = explain(&p);
	assert_null(find(o.v, "side.checkpoint"));
	assert_true(loud(o.v) > 0);
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_to_the_host_leads_with_the_range_it_is_in),
		cmocka_unit_test(a_host_that_is_slower_at_times_needs_no_compiler),
		cmocka_unit_test(what_a_step_has_put_on_the_host_is_no_batch),
		cmocka_unit_test(a_save_that_nothing_names_is_known_by_what_it_fetches),
		cmocka_unit_test(calls_that_write_metrics_are_logging),
		cmocka_unit_test(calls_that_save_are_checkpoints),
		cmocka_unit_test(forward_code_in_the_backward_pass_is_recomputation),
		cmocka_unit_test(a_search_for_nan_in_all_nodes_is_anomaly_detection),
		cmocka_unit_test(anomaly_detection_costs_its_checks_and_stacks),
		cmocka_unit_test(attention_costs_what_a_fused_kernel_does_not_take),
		cmocka_unit_test(modes_are_told_by_calls_that_only_they_make),
		cmocka_unit_test(other_devices_calls_are_launches_and_waits),
		cmocka_unit_test(the_compiler_works_in_steps_on_cpus_too),
		cmocka_unit_test(no_memory_is_an_error),
		cmocka_unit_test(graph_breaks_show_without_a_device),
		cmocka_unit_test(fp32_matrices_on_volta_and_turing),
		cmocka_unit_test(work_behind_a_synchronisation_is_told),
		cmocka_unit_test(copies_of_an_optimizer_are_no_batches),
		cmocka_unit_test(copies_inside_the_device_are_no_kernels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
