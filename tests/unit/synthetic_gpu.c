/* SPDX-License-Identifier: Apache-2.0 */
#include "base/order.h"
#include "synthetic_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US 1000ll
#define MS 1000000ll
enum { QUEUE = 1024, STREAMS = 32, PID = 4000 };

/* 200 kernels of 50 us; the host needs 8 us for each, so it runs ahead. */
const struct gpu_plan gpu_healthy = { .n_ranks = 1, .n_steps = 10, .n_kernels = 200, .kernel_ns = 50 * US,
				      .launch_ns = 8 * US, .late_rank = -1 };

struct sim {
	struct lg_builder *b;
	const struct gpu_plan *p;
	lg_thr main, autograd, gloo;
	lg_thr on;               /* who launches */
	lg_trk gpu, stream[STREAMS], other;
	int grid;
	int64_t now;             /* the host */
	int64_t free[STREAMS];   /* when a stream has done all */
	int64_t done[QUEUE];     /* ends of the last launches */
	int n_done;
	int64_t corr;
	int rank;
	int n_rows, step, n_coll;
	const char *types;       /* arguments of the next operators */
	int64_t seq;             /* of the next operator of attention */
};

static void span(struct sim *s, int64_t ts, int64_t dur, int kind, int stage, const char *name, int64_t seq)
{
	if (s->step < s->p->unseen_steps)
		return;
	lg_add_span(s->b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = s->on, .kind = (uint8_t)kind,
						 .stage = (uint8_t)stage, .seq = seq,
						 .name = lg_intern(s->b, name),
						 .args = lg_intern(s->b, kind == LG_SPAN_OP && s->types &&
									 !s->p->untyped ? s->types : "") });
}

static void call(struct sim *s, const char *name, int64_t ns)
{
	if (s->p->launch_call && !strcmp(name, "cudaLaunchKernel"))
		name = s->p->launch_call;
	if (s->p->sync_call && !strcmp(name, "cudaStreamSynchronize"))
		name = s->p->sync_call;
	span(s, s->now, ns, strstr(name, "ynchronize") ? LG_SPAN_WAIT : LG_SPAN_RUNTIME, 0, name, s->corr);
	s->now += ns;
}

static const char *coll_name(const struct sim *s)
{
	return s->p->coll_other && s->n_coll % 2 ? s->p->coll_other : s->p->coll;
}

static int group_of(const struct sim *s)
{
	return s->p->groups ? s->rank / (s->p->n_ranks / s->p->groups) : 0;
}

static int64_t device(struct sim *s, int stream, int64_t at, int64_t ns, int kind, const char *name,
		      uint64_t bytes)
{
	int64_t start = s->free[stream] > at ? s->free[stream] : at;
	char args[96] = "", group[16] = "";

	s->free[stream] = start + ns;
	s->n_rows++;
	if (s->p->no_device || s->step < s->p->unseen_steps ||
	    (s->p->drop_rows && s->n_rows % s->p->drop_rows))
		return start;
	if (kind == LG_SPAN_KERNEL && (s->step < s->p->lost_steps ||
				       (s->p->lost_from && s->step >= s->p->lost_from &&
					(!s->p->lost_until || s->step < s->p->lost_until)) ||
				       (s->p->lost_every && s->n_rows % s->p->lost_every == 0)))
		return start;
	if (s->grid)
		snprintf(args, sizeof args, "grid=%d,1,1", s->grid);
	if (s->p->coll && !strncmp(name, "nccl", 4))
		snprintf(args, sizeof args, s->p->groups ? "coll=%s\tseq=%d\tsize=%d" : "coll=%s\tseq=%d",
			 coll_name(s), s->n_coll++, s->p->groups ? s->p->n_ranks / s->p->groups : 0);
	if (s->p->groups && !strncmp(name, "nccl", 4)) {
		snprintf(group, sizeof group, "pg%d", group_of(s));
		bytes = s->p->coll_bytes;
	}
	lg_add_span(s->b, &(struct lg_span_row){ .ts = start, .dur = ns, .track = s->stream[stream],
						 .kind = (uint8_t)kind, .seq = s->corr, .bytes = bytes,
						 .name = lg_intern(s->b, name),
						 .group = lg_intern(s->b, group),
						 .args = lg_intern(s->b, args) });
	return start;
}

/* One launch from the host; the queue is finite, so the host waits for kernel i - 1024. */
static void launch(struct sim *s, int stream, const char *name, int64_t ns, const char *op)
{
	int64_t begin = s->now += s->p->python_ns, start;
	bool late = s->rank == s->p->late_rank;
	int64_t full = 0; /* so long the call waits for room */
	int64_t cost = late && s->p->late_launch_ns ? s->p->late_launch_ns : s->p->launch_ns;

	if (op && s->on == s->main)
		s->now += s->p->stack_ns;

	if (s->step % 3 == 2)
		cost = cost * (100 + s->p->slow_launches) / 100;
	s->corr++;
	s->now += cost / 2; /* Python, dispatcher */
	if (s->n_done >= QUEUE && s->done[s->n_done % QUEUE] > s->now)
		full = s->done[s->n_done % QUEUE] - s->now;
	if (s->p->cold_ns && s->corr == 1) {
		if (!s->p->no_launches)
			call(s, "cudaLaunchKernel", s->p->cold_ns);
		start = device(s, stream, s->now, ns, LG_SPAN_KERNEL, name, 0);
	} else {
		int64_t at = s->now + full, latency = s->p->latency_ns ? s->p->latency_ns : 4 * US;

		if (s->p->unseen_ns && (late || !s->p->late_unseen) && s->corr % 20 == 0)
			s->free[stream] = (s->free[stream] > at ? s->free[stream] : at) + s->p->unseen_ns;
		/* The driver hands a kernel over as the last thing that a call does. */
		start = device(s, stream, at + LG_MAX(latency, cost - cost / 2 - 2 * US), ns, LG_SPAN_KERNEL,
			       name, 0);
		cost = full + (s->p->blocking ? start + ns + 3 * US - at : cost - cost / 2);
		if (s->p->no_launches)
			s->now += cost;
		else
			call(s, "cudaLaunchKernel", cost);
	}
	s->done[s->n_done++ % QUEUE] = start + ns;
	if (op)
		span(s, begin, s->now - begin, LG_SPAN_OP, 0, op, -1);
}

static void drain(struct sim *s, const char *name)
{
	int64_t until = s->now;

	for (int i = 0; i < STREAMS; i++)
		until = s->free[i] > until ? s->free[i] : until;
	s->corr++;
	call(s, name, until - s->now + 3 * US);
}

static void copy_in(struct sim *s)
{
	const struct gpu_plan *p = s->p;
	uint64_t bytes = p->copy_bytes ? p->copy_bytes : 8000000;
	int64_t start;

	s->corr++;
	if (p->copy == COPY_PAGEABLE) {
		int64_t at = s->now;

		start = device(s, STREAM_COMPUTE, at + 5 * US, p->copy_ns, LG_SPAN_COPY,
			       "Memcpy HtoD (Pageable -> Device)", bytes);
		call(s, "cudaMemcpyAsync", start + p->copy_ns - at + 3 * US);
	} else {
		(void)device(s, p->copy == COPY_PINNED_SIDE ? STREAM_COPY : STREAM_COMPUTE, s->now + 5 * US,
			     p->copy_ns, LG_SPAN_COPY, p->copy == COPY_INSIDE
			     ? "Memcpy DtoD (Device -> Device)" : "Memcpy HtoD (Pinned -> Device)", bytes);
		call(s, "cudaMemcpyAsync", 6 * US);
	}
}

static void collective(struct sim *s, int64_t ns)
{
	int stream = s->p->comm_overlaps ? STREAM_COMM : STREAM_COMPUTE;

	int64_t begin = s->now;

	if (s->step >= s->p->link_from && (s->p->link_group < 0 || s->p->link_group == group_of(s)))
		ns += s->p->link_ns;
	launch(s, stream,
	       s->p->comm_kernel ? s->p->comm_kernel
				 : "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", ns,
	       s->p->comm_kernel ? "record_param_comms" : "c10d::allreduce_");
	if (s->p->comm_hook)
		span(s, begin - 1, s->now - begin + 2, LG_SPAN_NOTE, 0, s->p->comm_hook, -1);
}

#define HALF "types=[\"c10::Half\",\"c10::Half\"]"

/* aten::to > aten::_to_copy > aten::copy_ > the launch */
static void cast(struct sim *s)
{
	int64_t begin = s->now, end;
	const char *types = s->types;

	s->now += 300;
	launch(s, STREAM_COMPUTE, "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>", 10 * US, NULL);
	end = s->now + 300;
	s->types = "types=[\"c10::Half\",\"float\",\"\"]";
	span(s, begin + 200, end - begin - 400, LG_SPAN_OP, 0, "aten::copy_", -1);
	s->types = NULL;
	span(s, begin + 100, end - begin - 200, LG_SPAN_OP, 0, "aten::_to_copy", -1);
	span(s, begin, end - begin, LG_SPAN_OP, 0, "aten::to", -1);
	s->now = end;
	s->types = types;
}

/* A matrix operator of forward, or of backward, as plan.casts has it. */
static void matrix(struct sim *s, const char *kernel, bool back)
{
	const struct gpu_plan *p = s->p;
	int64_t begin = s->now;
	bool pair = back ? p->back_pairs || p->recompute_pairs : p->casts == CAST_AUTOCAST;
	const char *name = !back || p->recompute_pairs ? "aten::linear" : "aten::mm";

	if (!back && (p->casts == CAST_BY_HAND || p->casts == CAST_NORM))
		cast(s);
	if (!back && p->casts == CAST_NORM)
		launch(s, STREAM_COMPUTE, "void mul", 10 * US, "aten::mul");
	s->types = HALF;
	if (pair) {
		int64_t outer = s->now;

		s->now += 200;
		cast(s);
		launch(s, STREAM_COMPUTE, kernel, p->kernel_ns, name);
		s->now += 200;
		span(s, outer, s->now - outer, LG_SPAN_OP, 0, name, -1);
	} else {
		launch(s, STREAM_COMPUTE, kernel, p->kernel_ns, name);
	}
	s->types = NULL;
	if (back) {
		s->now += 200;
		span(s, begin - 100, s->now - begin + 100, LG_SPAN_OP, 0, "MmBackward0", -1);
	}
}

/* evaluate_function > MmBackward0 > what it needs again, aten::mm; behind it, what asks for NaN */
static void node(struct sim *s, const char *kernel, int k)
{
	const struct gpu_plan *p = s->p;
	int64_t begin = s->now, end;

	s->now += 200;
	for (int i = 0; k % 10 == 0 && i < p->again; i++) {
		int64_t at = s->now;

		launch(s, STREAM_COMPUTE, kernel, p->kernel_ns, p->again_op ? p->again_op : "aten::linear");
		launch(s, STREAM_COMPUTE, kernel, p->kernel_ns, p->again_op ? p->again_op : "aten::gelu");
		if (p->again_in)
			span(s, at - 1, s->now - at + 2, LG_SPAN_PYTHON, 0, p->again_in, -1);
	}
	launch(s, STREAM_COMPUTE, kernel, p->kernel_ns, "aten::mm");
	end = s->now;
	if (p->search_nan) {
		int64_t at;

		launch(s, STREAM_COMPUTE, "void isnan", 3 * US, "aten::isnan");
		launch(s, STREAM_COMPUTE, "void any", 3 * US, "aten::any");
		at = s->now;
		drain(s, "cudaStreamSynchronize");
		span(s, at, s->now - at, LG_SPAN_OP, 0, "aten::item", -1);
	}
	span(s, begin + 100, end - begin - 100, LG_SPAN_OP, 0, "MmBackward0", -1);
	span(s, begin, s->now - begin, LG_SPAN_OP, 0, "autograd::engine::evaluate_function: MmBackward0", -1);
}

enum { ATTENTION_NODES = 3 }; /* of a call */

static int64_t number(const struct sim *s, int64_t n)
{
	return s->p->attention.unnumbered ? -1 : n;
}

/* product, softmax, product inside the call; behind it an operator with the next number */
static void attention_forward(struct sim *s, const struct gpu_attention *a)
{
	for (int i = 0; i < a->calls; i++) {
		int64_t begin = s->now;

		s->now += 200;
		launch(s, STREAM_COMPUTE, a->product, a->product_ns, "aten::bmm");
		launch(s, STREAM_COMPUTE, "void softmax", a->rest_ns, "aten::_softmax");
		launch(s, STREAM_COMPUTE, a->product, a->product_ns, "aten::bmm");
		s->now += 200;
		s->types = a->dims;
		span(s, begin, s->now - begin, LG_SPAN_OP, 0, "aten::_scaled_dot_product_attention_math",
		     number(s, s->seq));
		s->types = NULL;
		s->seq += ATTENTION_NODES;
		span(s, s->now, 200, LG_SPAN_OP, 0, "aten::transpose", number(s, s->seq++));
		s->now += 300;
	}
}

static void attention_backward(struct sim *s, const struct gpu_attention *a)
{
	static const char *const nodes[ATTENTION_NODES] = { "autograd::engine::evaluate_function: BmmBackward0",
		"autograd::engine::evaluate_function: SoftmaxBackward0",
		"autograd::engine::evaluate_function: BmmBackward0" };

	for (int64_t of = s->seq; of > s->seq - a->calls * (ATTENTION_NODES + 1); of -= ATTENTION_NODES + 1)
		for (int k = 0; k < ATTENTION_NODES; k++) {
			int64_t begin = s->now;

			s->now += 200;
			if (k == 1)
				launch(s, STREAM_COMPUTE, "void softmax", a->rest_ns, "aten::_softmax_backward_data");
			for (int i = 0; k != 1 && i < 2; i++)
				launch(s, STREAM_COMPUTE, a->product, a->product_ns, "aten::bmm");
			span(s, begin, s->now - begin, LG_SPAN_OP, 0, nodes[k], number(s, of - 2 - k));
		}
}

static bool is_one_of_few(const struct sim *s)
{
	return s->rank >= s->p->late_rank && s->rank < s->p->late_rank + s->p->late_ranks;
}

/* Of a step's k-th kernel. */
static int64_t kernel_ns(const struct sim *s, int step, int k)
{
	const struct gpu_plan *p = s->p;
	int64_t ns = p->slower_from && step >= p->slower_from ? p->kernel_ns * 17 / 10 : p->kernel_ns;
	bool late = s->rank == p->late_rank || is_one_of_few(s);
	bool slower = late && !(p->late_slower_every && k % p->late_slower_every);

	return slower ? ns * (100 + p->late_slower) / 100 : ns;
}

static void body(struct sim *s, int step)
{
	const struct gpu_plan *p = s->p;
	bool now = !p->kernel_at_times || step % p->only_every == p->only_every - 1;
	const char *name = p->kernel && now ? p->kernel : "void at::native::vectorized_elementwise_kernel<4>";
	int64_t begin = s->now;
	char region[64];

	for (int k = 0; k < p->n_kernels; k++) {
		if (!p->inference && k == (p->autograd_heavy ? p->n_kernels / 4 : p->n_kernels / 2)) {
			s->on = s->autograd;
			begin = s->now;
			if (p->attention.calls) {
				attention_backward(s, &p->attention);
				begin = s->now;
			}
		}
		s->types = s->on == s->autograd ? p->attention.other_dims : NULL;
		if (p->casts)
			matrix(s, name, !p->inference && k >= p->n_kernels / 2);
		else if (p->nodes && s->on == s->autograd)
			node(s, name, k);
		else
			launch(s, STREAM_COMPUTE,
			       p->late_slower_every && k % p->late_slower_every ? "void others" : name, kernel_ns(s, step, k),
			       p->op ? p->op : s->on == s->autograd ? "aten::mm" : "aten::linear");
		s->types = NULL;
		if (p->sync_every && k % p->sync_every == p->sync_every - 1) {
			int64_t at = s->now;

			s->now += US;
			drain(s, "cudaStreamSynchronize");
			span(s, at, s->now - at, LG_SPAN_OP, 0,
			     p->sync_other && k / p->sync_every % 3 == 2 ? p->sync_other : "aten::item", -1);
		}
		if (p->comm_overlaps && k < p->n_comm)
			collective(s, p->comm_ns);
		if (p->ddp_buckets && k >= p->n_kernels / 2 && k < p->n_kernels / 2 + p->ddp_buckets)
			collective(s, p->comm_ns);
	}
	if (!p->inference && p->nodes)
		s->on = s->main;
	else if (!p->inference) {
		span(s, begin, s->now - begin, LG_SPAN_OP, LG_STAGE_BACKWARD,
		     p->checkpointing ? "CheckpointFunctionBackward"
				      : "autograd::engine::evaluate_function: AddmmBackward0", -1);
		s->on = s->main;
	}
	if (p->region_versions) {
		snprintf(region, sizeof region, "Torch-Compiled Region: 0/%d",
			 p->regions_once ? step : step % p->region_versions);
		span(s, s->now, 1, LG_SPAN_OP, 0, region, -1);
	}
}

static void under(struct sim *s, const char *name, int n, const char *kernel)
{
	int64_t begin = s->now;

	for (int i = 0; i < n; i++)
		launch(s, STREAM_COMPUTE, kernel, s->p->optimizer_foreach ? 40 * US : 3 * US, "aten::add_");
	span(s, begin, s->now - begin, LG_SPAN_STAGE, LG_STAGE_OPTIMIZER, name, -1);
}

static void python(struct sim *s, const struct gpu_python *f)
{
	struct lg_frame_row frame = { .kind = LG_FRAME_PYTHON, .line = 7, .name = lg_intern(s->b, f->name),
				      .file = lg_intern(s->b, f->file) };
	lg_stk stack = lg_intern_stack(s->b, 0, lg_intern_frame(s->b, &frame));

	for (int i = 0; i < s->p->python_calls; i++) {
		lg_add_span(s->b, &(struct lg_span_row){ .ts = s->now, .dur = 100, .thr = s->main, .seq = -1,
							 .kind = LG_SPAN_PYTHON, .name = frame.name,
							 .stack = stack });
		s->now += 200;
	}
}

/* The device has run dry, and so much more. */
static void be_late(struct sim *s, int64_t ns)
{
	int64_t begin = s->now;

	if (s->p->late_slower || s->p->late_launch_ns || s->p->late_unseen)
		return;
	if (s->p->late_compute) {
		launch(s, STREAM_COMPUTE, "void longer", ns, "aten::mm");
		return;
	}
	s->now = s->free[STREAM_COMPUTE] > begin ? s->free[STREAM_COMPUTE] : begin;
	s->now += ns;
	if (s->p->late_loader)
		span(s, begin, s->now - begin, LG_SPAN_STAGE, LG_STAGE_BATCH_WAIT,
		     "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", -1);
}

/* A compiled region that is left and entered again so often: the rest of its function runs inside of it. */
static void region(struct sim *s, int frame, int breaks)
{
	int64_t begin = s->now;
	char name[64];

	snprintf(name, sizeof name, "Torch-Compiled Region: %d/0", frame);
	s->now += US;
	launch(s, STREAM_COMPUTE, "triton_poi_fused_add_0", s->p->kernel_ns, "CompiledFunction");
	if (breaks) {
		int64_t at;

		s->now += s->p->break_ns;
		at = s->now;
		span(s, s->now, US, LG_SPAN_OP, 0, "TorchDynamo Cache Lookup", -1);
		s->now += 2 * US;
		if (s->p->resumes_eagerly)
			launch(s, STREAM_COMPUTE, "void add", s->p->kernel_ns, "aten::add");
		else
			region(s, frame + 1, breaks - 1);
		if (s->p->resumes)
			span(s, at + US, s->now - at, LG_SPAN_PYTHON, 0,
			     "model.py(13): torch_dynamo_resume_in_forward_at_12", -1);
	}
	s->now += 2 * US;
	span(s, begin, s->now - begin, LG_SPAN_OP, 0, name, -1);
}

static void extra(struct sim *s, const struct gpu_extra *x)
{
	s->grid = x->grid;
	for (int i = 0; i < x->n; i++)
		launch(s, STREAM_COMPUTE, x->kernel, x->ns, x->op);
	s->grid = s->p->grid;
}

/* All of this device is done, then the other one works, and the host waits for it. */
static void on_the_other_device(struct sim *s)
{
	drain(s, "cudaStreamSynchronize");
	s->corr++;
	lg_add_span(s->b, &(struct lg_span_row){ .ts = s->now + 4 * US, .dur = s->p->other_ns,
						 .track = s->other, .kind = LG_SPAN_KERNEL, .seq = s->corr,
						 .name = lg_intern(s->b, "void there") });
	call(s, "cudaLaunchKernel", 8 * US);
	s->corr++;
	call(s, "cudaStreamSynchronize", s->p->other_ns);
}

static void copy_pageable(struct sim *s, const char *name, uint64_t bytes)
{
	int64_t at = s->now, start;

	s->corr++;
	start = device(s, STREAM_COMPUTE, at + 5 * US, 50 * US, LG_SPAN_COPY, name, bytes);
	call(s, "cudaMemcpyAsync", start + 50 * US - at + 3 * US);
	span(s, at - US, s->now - at + 2 * US, LG_SPAN_OP, 0, "aten::copy_", -1);
	s->now += 2 * US;
}

static void fetch(struct sim *s, const struct gpu_fetch *f)
{
	for (int i = 0; i < f->n; i++) {
		for (int k = 0; k < f->kernels; k++)
			launch(s, STREAM_COMPUTE, "void contiguous", 5 * US, "aten::contiguous");
		copy_pageable(s, "Memcpy DtoH (Device -> Pageable)", f->bytes);
		s->now += f->write_ns;
	}
	s->now += f->after_ns;
	for (int i = 0; f->back && i < f->n; i++)
		copy_pageable(s, "Memcpy HtoD (Pageable -> Device)", f->bytes);
}

static void on_the_cpu(struct sim *s, int64_t ns)
{
	lg_add_span(s->b, &(struct lg_span_row){ .ts = s->now, .dur = ns, .thr = s->gloo, .seq = -1,
						 .kind = LG_SPAN_COLLECTIVE,
						 .name = lg_intern(s->b, "gloo:all_reduce") });
	s->now += ns;
}

static void step(struct sim *s, int k)
{
	const struct gpu_plan *p = s->p;
	int64_t begin = s->now, at;
	bool now = !p->only_every || k % p->only_every == p->only_every - 1;
	bool anybody = p->late_rank != -1 && (!p->late_once || k == p->late_once - 1);
	bool late = anybody && (p->late_rank == s->rank || (p->late_rank == -2 && k % p->n_ranks == s->rank));
	int64_t late_ns = p->late_ns;

	if (p->late_first && k >= p->late_first) {
		late = !s->rank;
		late_ns /= 10;
	}
	if (is_one_of_few(s)) {
		late = k % p->late_ranks == s->rank - p->late_rank;
		late_ns = late ? late_ns : 100 * US;
	}
	if (p->late_every && k % p->late_every != p->late_every - 1) {
		late = k % p->n_ranks == s->rank;
		late_ns = p->late_jitter_ns;
	}
	if (p->warm_ns && !k) {
		anybody = true;
		late = !s->rank;
		late_ns = p->warm_ns;
	}

	s->step = k;
	if (late && p->late_loader)
		be_late(s, late_ns);
	if (p->loader_ns && (!p->loader_every || k % p->loader_every == 0)) {
		span(s, s->now, p->loader_ns, LG_SPAN_STAGE, LG_STAGE_BATCH_WAIT,
		     p->loader_single ? "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
				      : "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", -1);
		s->now += p->loader_ns;
	}
	if (p->heavy_every && k % p->heavy_every == p->heavy_every - 1)
		launch(s, STREAM_COMPUTE, "heavy", p->heavy_ns, "aten::mm");
	for (int i = 0; i < 2 && p->python[i].file; i++)
		python(s, &p->python[i]);
	if (p->next_ns) {
		span(s, s->now + 10 * US, p->next_ns, LG_SPAN_PYTHON, 0, "data.py(5): __next__", -1);
		span(s, s->now + 11 * US, p->next_ns - 2 * US, LG_SPAN_PYTHON, 0, "<built-in function next>", -1);
	}
	s->now += !p->hole_once || s->rank == p->n_ranks - 1 ? p->hole_ns : 0;
	if (p->hole_op_ns) {
		span(s, s->now, p->hole_op_ns, LG_SPAN_OP, 0, "aten::stack", -1);
		s->now += p->hole_op_ns;
	}
	for (int i = 0; p->copies_back && i < p->copies; i++) {
		s->corr++;
		(void)device(s, STREAM_COPY, s->now + 5 * US, p->copy_ns, LG_SPAN_COPY,
			     "Memcpy DtoH (Device -> Pinned)", 8000000);
		call(s, "cudaMemcpyAsync", 6 * US);
	}
	for (int i = 0; p->copy && i < (p->copies ? p->copies : 1); i++)
		copy_in(s);
	if (p->copy_in_optimizer)
		span(s, s->now - 10 * US, 11 * US, LG_SPAN_STAGE, LG_STAGE_OPTIMIZER, "Optimizer.step#CPUAdam.step", -1);
	if (p->unused_ns) {
		span(s, s->now, p->unused_ns, LG_SPAN_OP, 0,
		     "torch.distributed.ddp.reducer::search_unused_parameters", -1);
		s->now += p->unused_ns;
	}
	for (int i = 0; i < p->convs; i++) {
		char args[160];

		snprintf(args, sizeof args, "dims=[[%d,64,56,56],[64,64,3,3]]\tinputs=[\"\", \"\", \"[1, 1]\", "
			 "\"[1, 1]\", \"[1, 1]\", \"1\", \"%s\", \"False\", \"True\"]",
			 p->conv_shapes_change ? 32 + 7 * k + i
			 : p->conv_shape_a_step ? 32 + k : p->conv_batch ? p->conv_batch : 32,
			 p->conv_benchmark ? "True" : "False");
		s->types = args;
		launch(s, STREAM_COMPUTE, "sm80_xmma_fprop_implicit_gemm_bf16", 50 * US, "aten::cudnn_convolution");
		s->types = NULL;
	}
	if (p->zero_kernels)
		under(s, "Optimizer.zero_grad#SGD.zero_grad", p->zero_kernels,
		      "void at::native::vectorized_elementwise_kernel<4, FillFunctor>");
	if (p->compile_ns && now) {
		drain(s, "cudaStreamSynchronize");
		span(s, s->now, p->compile_ns, LG_SPAN_COMPILE, 0, "_compile.compile_inner (dynamo_timed)", -1);
		s->now += p->compile_ns;
	}
	for (int i = 0; now && i < p->n_alloc; i++) {
		drain(s, "cudaStreamSynchronize");
		call(s, p->alloc_call ? p->alloc_call : "cudaMalloc", p->alloc_ns);
		launch(s, STREAM_COMPUTE, "void fill", 10 * US, "aten::empty");
	}
	for (int i = 0; i < p->autotune && (!p->autotune_once || k == 3); i++) {
		at = s->now;
		for (int n = 0; p->autotune_ns && n < 5; n++)
			launch(s, STREAM_COMPUTE, "void cudnn::candidate", p->autotune_ns, NULL);
		launch(s, STREAM_COMPUTE, "void cudnn::candidate", 40 * US, NULL);
		drain(s, "cudaEventSynchronize");
		call(s, "cudaEventSynchronize", 150 * US);
		if (p->autotune_ns)
			call(s, "cudaFree", 300 * US);
		launch(s, STREAM_COMPUTE, "void cudnn::candidate", 40 * US, NULL);
		span(s, at, s->now - at, LG_SPAN_OP, 0, "aten::cudnn_convolution", -1);
	}
	if (p->capture) {
		s->corr++;
		call(s, "cudaGraphInstantiate", 300 * US);
	}
	for (int i = 0; i < p->n_layout; i++)
		launch(s, STREAM_COMPUTE, "void cudnn::ops::nchwToNhwcKernel<float, float>", 50 * US,
		       "aten::conv2d");
	for (int i = 0; i < p->regions; i++) {
		span(s, s->now, US, LG_SPAN_OP, 0, "TorchDynamo Cache Lookup", -1);
		s->now += 2 * US;
		region(s, 10 * i, p->breaks);
	}
	extra(s, &p->extra);
	attention_forward(s, &p->attention);
	body(s, k);
	if (p->side && now) {
		int64_t start = s->now;

		if (p->side_copy_ns) {
			s->corr++;
			at = s->now + 5 * US;
			at = s->free[STREAM_COMPUTE] > at ? s->free[STREAM_COMPUTE] : at;
			if (p->side_copy_lost)
				s->free[STREAM_COMPUTE] = at + p->side_copy_ns;
			else
				device(s, STREAM_COMPUTE, at, p->side_copy_ns, LG_SPAN_COPY,
				       "Memcpy DtoH (Device -> Pageable)", 8000000);
			call(s, "cudaMemcpyAsync", at + p->side_copy_ns - s->now + 3 * US);
		}
		s->now += p->side_ns;
		span(s, start, s->now - start, p->side_note ? LG_SPAN_NOTE : LG_SPAN_PYTHON, 0, p->side, -1);
	}
	if (now)
		fetch(s, &p->fetch);
	if (p->pause_ns && now) {
		for (int i = 0; i < STREAMS; i++)
			s->now = s->free[i] > s->now ? s->free[i] : s->now;
		s->now += p->pause_ns;
	}
	if (late && !p->late_loader)
		be_late(s, late_ns);
	if (p->gloo_ns)
		on_the_cpu(s, p->gloo_ns + (late || !anybody ? 0 : late_ns));
	/* All leave together when the last has come: who is late is in it for a shorter time. */
	if (!p->comm_overlaps)
		for (int i = 0; i < p->n_comm; i++)
			collective(s, p->comm_ns + (i || late || !anybody ? 0 : late_ns));
	if (p->warm_ns && !k)
		drain(s, "cudaDeviceSynchronize");
	if (p->comm_tail_ns)
		launch(s, STREAM_COMPUTE, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", p->comm_tail_ns, "c10d::allreduce_");
	if (p->copy_back) {
		at = s->now;
		for (int i = 0; i < p->copy_back; i++)
			launch(s, STREAM_COMPUTE, "void copy", 10 * US, "aten::copy_");
		span(s, at - 1, s->now - at + 2, LG_SPAN_OP, 0, "torch.distributed.ddp.reducer::copy_bucket_to_grad",
		     -1);
	}
	if (p->scaler)
		launch(s, STREAM_COMPUTE, "void unscale", 3 * US, "aten::_amp_foreach_non_finite_check_and_unscale_");
	if (!p->inference)
		under(s, "Optimizer.step#AdamW.step", p->optimizer_kernels ? p->optimizer_kernels : 4,
		      p->optimizer_kernels && !p->optimizer_foreach
			      ? "void at::native::vectorized_elementwise_kernel<4, Addcdiv>"
			      : "void at::native::multi_tensor_apply_kernel");
	for (int i = 0; i < p->optimizers; i++)
		under(s, "Optimizer.step#AdamW.step", 4, "void at::native::multi_tensor_apply_kernel");
	if (p->other_ns)
		on_the_other_device(s);
	if (p->frames)
		span(s, begin, s->now - begin, LG_SPAN_PYTHON, 0, "train.py(7): step", -1);
	if (p->sync_at_end && k == p->n_steps - 1)
		drain(s, "cudaDeviceSynchronize");
	if (!p->no_step_marks) {
		char name[32];

		snprintf(name, sizeof name, "%s%d", p->step_marks ? p->step_marks : "ProfilerStep#",
			 p->first_step + k);
		span(s, begin, s->now - begin + p->overlap_ns, LG_SPAN_STEP, 0, name, p->first_step + k);
		if (p->ddp_buckets)
			span(s, begin + 1, 10, LG_SPAN_STAGE, LG_STAGE_FORWARD, "DistributedDataParallel.forward", -1);
	}
}

static void facts(struct sim *s, lg_prc prc)
{
	if (s->p->no_gpu)
		return;
	lg_meta_set(s->b, prc, "gpu.0.name", s->p->device ? s->p->device : "NVIDIA A100-SXM4-80GB");
	lg_meta_set(s->b, prc, "gpu.0.compute", s->p->compute ? s->p->compute : "8.0");
	lg_meta_set(s->b, prc, "gpu.0.sms", "108");
	lg_meta_set(s->b, prc, "gpu.0.memory", "80000000000");
	if (s->p->reserved > 0) {
		lg_trk k = lg_track_get(s->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER, .prc = prc,
								      .parent = s->gpu, .index = -1,
								      .name = lg_intern(s->b, "memory reserved"),
								      .unit = lg_intern(s->b, "bytes") });

		lg_add_counter(s->b, &(struct lg_counter_row){ .ts = s->now, .track = k,
							       .value = s->p->reserved * 8e10 });
	}
}

void synthetic_gpu_into(struct lg_builder *b, const struct gpu_plan *p)
{
	struct sim *s = calloc(1, sizeof *s);

	for (int rank = 0; s && rank < p->n_ranks; rank++) {
		lg_prc prc = lg_process_get(b, PID + rank);
		struct lg_process_row row = lg_process_read(b, prc);

		memset(s, 0, sizeof *s);
		row.rank = p->n_ranks > 1 ? rank : -1;
		row.world = p->n_ranks;
		lg_process_write(b, prc, &row);
		s->b = b;
		s->p = p;
		s->rank = rank;
		s->grid = p->grid;
		s->now = 1000 * MS;
		s->on = s->main = lg_thread_get(b, PID + rank, PID + rank);
		s->autograd = lg_thread_get(b, PID + rank, PID + 1000 + rank);
		s->gpu = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .prc = prc, .index = 0,
								 .name = lg_intern(b, "GPU 0") });
		for (int i = 0; i < STREAMS; i++)
			s->stream[i] = lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_STREAM,
									       .prc = prc, .index = i,
									       .parent = s->gpu,
									       .name = lg_intern(b, "stream") });
		if (p->other_ns) {
			struct lg_track_row of = { .kind = LG_TRACK_GPU, .prc = prc, .index = 1,
						   .name = lg_intern(b, "GPU 1") };

			of.parent = lg_track_get(b, &of);
			of.kind = LG_TRACK_STREAM;
			of.index = STREAM_COMPUTE;
			of.name = lg_intern(b, "stream");
			s->other = lg_track_get(b, &of);
		}
		if (p->gloo_ns)
			s->gloo = lg_thread_get(b, PID + rank, PID + 2000 + rank);
		if (p->compile_logged)
			lg_add_mark(b, &(struct lg_mark_row){ .ts = s->now, .thr = s->main,
							      .name = lg_intern(b, "log.compile_start") });
		facts(s, prc);
		for (int k = 0; k < p->n_steps; k++)
			step(s, k);
	}
	free(s);
}

struct lg_trace *synthetic_gpu(const struct gpu_plan *p)
{
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;
	struct lg_error err;

	if (lg_builder_new(&b, &err))
		return NULL;
	synthetic_gpu_into(b, p);
	return lg_builder_seal(b, &t, &err) ? NULL : t;
}
