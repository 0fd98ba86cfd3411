/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_kernels.c - kernels that need not run, or could run faster: tensor cores, layout, attention,
 * autotuning, filling gradients, an optimizer of many small kernels.
 *
 * A faster kernel helps only where the next piece of work was already queued, or where the host
 * waits for the device: that part of its time is what it can save ("savable"). On a device that
 * waits for the host, kernel time is free.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "analyse/timeline/cost.h"
#include "analyse/timeline/window.h"
#include "base/alloc.h"
#include "store/args.h"

#define BIT(cause) (1u << (cause))

enum kernel_kind { K_OTHER, K_FP32, K_TENSOR, K_LAYOUT };

/*
 * GEMM and convolution names of cuBLAS, cuDNN and CUTLASS. fp32 without tensor cores: sgemm, ffma,
 * scudnn, "f32f32_f32f32_f32". With: the MMA shapes (s1688, s16816, h884, ...), tensorop, wgmma,
 * and a narrower type in the name.
 */
static enum kernel_kind kernel_kind(const char *s)
{
	static const char *const tensor[] = { "s1688", "s16816", "h1688", "h16816", "h884", "s884", "i8816",
					      "i16832", "tensorop", "wgmma", "hmma", "wmma", "tf32", "bf16",
					      "f16", "fp16", "half", "e4m3", "e5m2", "_MI16x16", "_MI32x32",
					      "nvjet", "fp8", NULL };
	static const char *const fp32[] = { "sgemm", "ffma", "scudnn", "f32f32_f32f32_f32",
					    "simt_sgemm", "dgrad_engine<float", "wgrad_alg0_engine<float",
					    NULL };

	if (strstr(s, "nchwToNhwc") || strstr(s, "nhwcToNchw") || strstr(s, "nchwTonhwc") ||
	    strstr(s, "nhwcTonchw"))
		return K_LAYOUT;
	for (size_t i = 0; tensor[i]; i++)
		if (strcasestr(s, tensor[i]))
			return K_TENSOR;
	for (size_t i = 0; fp32[i]; i++)
		if (strcasestr(s, fp32[i]))
			return K_FP32;
	return K_OTHER;
}

/* The small chips of Turing (TU116, TU117) have none. */
static bool lacks_tensor_cores(const char *device)
{
	static const char *const small[] = { "GTX 16", "MX450", "MX550", "T400", "T500", "T550", "T600", "T1000",
					     "T1200" };

	for (size_t i = 0; device && i < sizeof small / sizeof *small; i++)
		if (strstr(device, small[i]))
			return true;
	return false;
}

/*
 * Volta and Turing: no switch makes tensor cores of these take fp32. What float16 gains there depends on the
 * model, and it needs a scaled loss: that is said, and not priced.
 */
static void half_only(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		      const struct lg_gpu_sums *fp32)
{
	struct lg_finding *f;

	if ((double)fp32->savable < LG_N_GPU_NO_TENSOR_CORE_HALF_ONLY * (double)(r->to - r->from) ||
	    lacks_tensor_cores(r->device))
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_NO_TENSOR_CORE, (double)NAN, (double)NAN, 0.6, r);
	if (!f)
		return;
	f->detail = "half_only";
	lg_cap(f, LG_CAP_UNMEASURED);
	f->title = lg_arena_printf(&c->v->arena, "%zu matrix and convolution kernels (%.1f ms) run in fp32 on %s, whose "
				   "tensor cores take float16", fp32->n, (double)fp32->ns / 1e6,
				   r->device ? r->device : "a device");
	lg_evidence_add(c, f, INT64_MIN, 0, "%.1f ms of them with work waiting behind them",
			(double)fp32->savable / 1e6);
	lg_evidence_against(c, f, "not priced: what float16 gains depends on the model, and it changes the numbers");
}

/* What nothing waits for today is next when the larger cause is gone. */
static void hidden_fp32(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			const struct lg_gpu_sums *fp32)
{
	struct lg_finding *f;

	if ((double)fp32->ns < LG_N_GPU_NO_TENSOR_CORE_BESIDE * (double)(r->to - r->from))
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_NO_TENSOR_CORE, (double)NAN, (double)NAN, 0.8, r);
	if (!f)
		return;
	lg_cap(f, LG_CAP_UNMEASURED);
	f->title = lg_arena_printf(&c->v->arena, "%zu matrix and convolution kernels (%.1f ms) run in plain fp32 on %s, "
				   "which has tensor cores: little waits for them now, more will once the larger "
				   "cause is gone", fp32->n, (double)fp32->ns / 1e6, r->device ? r->device : "a device");
	lg_evidence_add(c, f, INT64_MIN, 0, "%.1f ms of them with work waiting behind them",
			(double)fp32->savable / 1e6);
}

static void tensor_cores(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			 const struct lg_gpu_sums *fp32, const struct lg_gpu_sums *tensor)
{
	struct lg_finding *f;

	if (r->cc_major < 7 || r->amd || fp32->ns < tensor->ns)
		return;
	if (r->cc_major == 7) { /* TF32 came with Ampere */
		half_only(c, g, r, fp32);
		return;
	}
	f = lg_gpu_costs(c, g, LG_R_GPU_NO_TENSOR_CORE, r, fp32, 0.5, 0.85,
			 LG_N_GPU_NO_TENSOR_CORE_FLOOR);
	if (!f) {
		hidden_fp32(c, g, r, fp32);
		return;
	}
	f->title = lg_arena_printf(&c->v->arena,
				   "%zu matrix and convolution kernels run in plain fp32 on %s, which has "
				   "tensor cores: TF32 or autocast would at least halve their %.1f ms", fp32->n,
				   r->device ? r->device : "a device", (double)fp32->ns / 1e6);
	lg_evidence_add(c, f, INT64_MIN, 0, "matrix kernels on tensor cores: %zu, %.1f ms", tensor->n,
			(double)tensor->ns / 1e6);
	lg_evidence_against(c, f, "the gain is an estimate (half of the time that other work waited for): "
			     "small matrices gain less, large ones more");
}

static bool is_math_attention(const char *s)
{
	return !strcmp(s, "aten::_scaled_dot_product_attention_math");
}

static bool is_zero_grad(const char *s)
{
	return !strncmp(s, "Optimizer.zero_grad#", 20);
}

static bool is_optimizer_step(const char *s)
{
	return !strncmp(s, "Optimizer.step#", 15);
}

static void attention(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	struct lg_gpu_sums s;
	struct lg_finding *f;

	if (lg_gpu_sum_under(c, r, is_math_attention, &s)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	f = s.n ? lg_gpu_costs(c, g, LG_R_GPU_MATH_ATTENTION, r, &s, 0.5, 0.8,
			       LG_N_GPU_MATH_ATTENTION_FLOOR) : NULL;
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	f->title = lg_arena_printf(&c->v->arena, "attention falls back to the math path: %zu calls, %zu kernels, "
				   "instead of one fused kernel each", s.spans, s.n);
	lg_evidence_against(c, f, "the gain is an estimate (half); its backward pass is not counted");
}

enum { GRID_NEW, GRID_UNKNOWN, GRID_SMALL, GRID_LARGE };

static uint8_t grid_of(const char *args, long sms)
{
	size_t len;
	const char *grid = lg_arg(args, "grid", &len);
	double blocks = 1;

	for (size_t k = 0; grid && k < len; k += strcspn(grid + k, ",") + 1)
		blocks *= strtod(grid + k + (grid[k] == '['), NULL);
	return !grid ? GRID_UNKNOWN : blocks > 0 && blocks < (double)sms / 2 ? GRID_SMALL : GRID_LARGE;
}

/*
 * Kernels too small for the device: fewer blocks than half of its multiprocessors. A kernel of a
 * millisecond and more on a few blocks is no small piece of work but one that goes step by step (a
 * persistent recurrent network, a scan): a larger batch need not fill it.
 */
static void small_batch(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	const struct lg_trace *t = c->t;
	int64_t small = 0, known = 0;
	size_t n = 0;
	double gpu = (double)r->by[LG_GPU_BY_COMPUTE] / (double)(r->to - r->from);
	long sms = 0;
	uint8_t *of_args; /* by string: the same few grids come again and again */
	struct lg_finding *f;

	for (size_t i = 0; i < t->meta.n; i++)
		if (!strcmp(lg_string(t, t->meta.key[i]), "gpu.0.sms"))
			sms = strtol(lg_string(t, t->meta.value[i]), NULL, 10);
	if (sms < 8 || gpu < LG_N_GPU_SMALL_BATCH_BUSY)
		return;
	of_args = lg_calloc(t->n_str, sizeof *of_args);
	if (!of_args) {
		c->failed = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		lg_str args = t->span.args[w->span];

		if (w->class != LG_GPU_COMPUTE || w->ts < r->from || w->end > r->to)
			continue;
		if (!of_args[args])
			of_args[args] = grid_of(lg_string(t, args), sms);
		if (of_args[args] == GRID_UNKNOWN)
			continue;
		known += w->end - w->ts;
		if (w->end - w->ts < LG_N_GPU_SMALL_BATCH_STEPWISE && of_args[args] == GRID_SMALL) {
			small += w->end - w->ts;
			n++;
		}
	}
	lg_free(of_args);
	if (n < LG_N_GPU_SMALL_BATCH_KERNELS ||
	    (double)small < LG_N_GPU_SMALL_BATCH_KERNEL_TIME * (double)known)
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_SMALL_BATCH, (double)NAN, (double)NAN, 0.7, r);
	if (!f)
		return;
	/* Requests make the batches of a server, and it may have to answer each at once. */
	if (r->scope == LG_SHOWS_INFERENCE)
		lg_cap(f, LG_CAP_ORDINARY);
	f->title = lg_arena_printf(&c->v->arena, "%.0f %% of the kernel time runs on less than half of the "
				   "device's %ld multiprocessors: the work at a time is too small",
				   100 * (double)small / (double)known, sms);
	lg_evidence_add(c, f, INT64_MIN, 0, "%zu kernels with fewer than %ld blocks, %.1f ms; double the batch "
			"and see whether the step takes less than twice as long", n, sms / 2,
			(double)small / 1e6);
}

/* Idle time for want of launches while the thread was in a picked span goes to its own cause, so that
 * it is not counted twice. */
static void move_idle(struct lg_case *c, struct lg_gpu_run *r, bool (*pick)(const char *name),
		      uint8_t into)
{
	const struct lg_trace *t = c->t;
	uint8_t *picked;

	if (lg_span_pick(c, pick, &picked))
		c->failed = LG_E_NOMEM;
	if (!picked)
		return;
	for (size_t i = 0; i < r->n_pieces; i++) {
		struct lg_gpu_piece *p = &r->piece[i];
		uint32_t rows[3] = { p->site, p->op, p->span };

		if (p->cause != LG_GPU_BY_LAUNCH)
			continue;
		for (size_t k = 0; k < 3; k++)
			if (rows[k] != LG_NO_ROW && picked[t->span.name[rows[k]]]) {
				r->by[p->cause] -= p->dur;
				p->cause = into;
				r->by[into] += p->dur;
				break;
			}
	}
	lg_free(picked);
}

static bool is_conv_op(const char *s)
{
	return strstr(s, "conv") != NULL && !strncmp(s, "aten::", 6);
}

static bool is_event_wait(const char *s)
{
	return strstr(s, "EventSynchronize") != NULL;
}

/* Of one thread: convolutions that wait for events, and each up to its last such wait. */
struct tuned {
	struct lg_gpu_ivs op, test;
};

static int tuned_of(const struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr, const uint8_t *conv,
		    const uint8_t *wait, struct tuned *ret)
{
	const struct lg_trace *t = c->t;
	int64_t from = INT64_MIN, to = INT64_MIN;
	uint32_t op = LG_NO_ROW;
	int rc = 0;

	for (uint32_t k = c->idx->span_off[thr]; !rc && k < c->idx->span_off[thr + 1]; k++) {
		uint32_t row = c->idx->span[k];
		int64_t ts = t->span.ts[row], end = lg_row_end(t, ts, t->span.dur[row]);

		if (end > to && end > r->from && ts < r->to && conv[t->span.name[row]]) {
			from = ts;
			to = end;
			op = row;
		} else if (ts < to && wait[t->span.name[row]]) {
			rc = lg_gpu_iv_add(&ret->op, from, to, op); /* again: nothing is left of it */
			if (!rc)
				rc = lg_gpu_iv_add(&ret->test, from, end < to ? end : to, op);
		}
	}
	return rc;
}

/* The allocator is emptied behind the measurement, in the same operator: that belongs to it, too. */
static void move_tuned(const struct lg_case *c, struct lg_gpu_run *r, lg_thr thr, const struct lg_gpu_ivs *op)
{
	const struct lg_trace *t = c->t;

	for (size_t k = 0; op->n && k < r->n_pieces; k++) {
		struct lg_gpu_piece *p = &r->piece[k];
		uint32_t row = p->span != LG_NO_ROW ? p->span : p->op;

		if ((p->cause != LG_GPU_BY_SYNC && p->cause != LG_GPU_BY_LAUNCH &&
		     p->cause != LG_GPU_BY_ALLOC) ||
		    row == LG_NO_ROW || t->span.thr[row] != thr || !lg_gpu_within(op, t->span.ts[row]))
			continue;
		r->by[p->cause] -= p->dur;
		p->cause = LG_GPU_BY_AUTOTUNE;
		r->by[LG_GPU_BY_AUTOTUNE] += p->dur;
	}
}

/*
 * cuDNN and MIOpen measure candidate algorithms with events: an event synchronisation inside a
 * convolution is autotuning. It costs the device's idle time, and what the candidates compute, which
 * no one needs: with many candidates and large shapes the device is never idle meanwhile.
 */
static int move_autotune(struct lg_case *c, struct lg_gpu_run *r)
{
	struct lg_gpu_sums s = { .row = LG_NO_ROW };
	uint8_t *conv, *wait = NULL;
	int rc = lg_span_pick(c, is_conv_op, &conv);

	if (!rc && conv)
		rc = lg_span_pick(c, is_event_wait, &wait);
	for (size_t h = 0; !rc && conv && wait && h < r->n_host; h++) {
		struct tuned a = { 0 };

		rc = tuned_of(c, r, r->host[h].thr, conv, wait, &a);
		if (!rc) {
			move_tuned(c, r, r->host[h].thr, &a.op);
			lg_gpu_sum_within(c, r, r->host[h].thr, &a.test, &s);
		}
		lg_free(a.op.v);
		lg_free(a.test.v);
	}
	r->autotune_kernels = s.n;
	r->autotune_savable = s.savable;
	r->autotune_by_step = s.by_step;
	for (size_t k = 0; s.by_step && k < r->n_pieces; k++)
		if (r->piece[k].cause == LG_GPU_BY_AUTOTUNE)
			s.by_step[lg_gpu_step_of(r, r->piece[k].ts)] += r->piece[k].dur;
	lg_free(conv);
	lg_free(wait);
	return rc;
}

/*
 * Kernels of the optimizer that handle one parameter each. A foreach or fused optimizer of a large model
 * takes hundreds, too (torch/.../MultiTensorApply.cuh: 320 blocks of 65536 elements a launch), but they
 * are as large as kernels get; so are those that inductor or Triton made.
 */
static int sum_single_tensor(struct lg_case *c, const struct lg_gpu_run *r, struct lg_gpu_sums *ret)
{
	const struct lg_trace *t = c->t;
	struct lg_gpu_ivs a = { 0 };
	uint8_t *picked;
	int rc = lg_span_pick(c, is_optimizer_step, &picked);

	*ret = (struct lg_gpu_sums){ .row = LG_NO_ROW };
	for (size_t h = 0; picked && !rc && h < r->n_host; h++) {
		lg_thr thr = r->host[h].thr;

		a.n = 0;
		for (uint32_t p = c->idx->span_off[thr]; !rc && p < c->idx->span_off[thr + 1]; p++) {
			uint32_t row = c->idx->span[p];
			int64_t ts = t->span.ts[row];

			if (picked[t->span.name[row]] && ts >= lg_gpu_asked_from(r) && ts < r->to)
				rc = lg_gpu_iv_add(&a, ts, lg_row_end(t, ts, t->span.dur[row]), row);
		}
		for (size_t i = 0; a.n && !rc && i < r->n_work; i++) {
			const char *name = lg_string(t, t->span.name[r->work[i].span]);
			uint32_t call = r->work[i].call;

			if (call != LG_NO_ROW && t->span.thr[call] == thr &&
			    lg_gpu_within(&a, t->span.ts[call]) && !strstr(name, "multi_tensor") &&
			    strncmp(name, "triton_", 7))
				lg_gpu_sum_in(c, r, i, ret);
		}
	}
	lg_free(picked);
	lg_free(a.v);
	return rc;
}

void lg_gpu_refine(struct lg_case *c, struct lg_gpu *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct lg_gpu_run *r = &g->run[i];
		struct lg_gpu_sums s;
		size_t steps = r->n_steps ? r->n_steps : 1;

		if (!lg_gpu_judged(r))
			continue;
		if (move_autotune(c, r)) {
			c->failed = LG_E_NOMEM;
			return;
		}
		if (sum_single_tensor(c, r, &s)) {
			c->failed = LG_E_NOMEM;
			return;
		}
		if (s.n / steps >= 200) {
			r->optimizer_kernels = s.n / steps;
			r->optimizer_savable = s.savable;
			move_idle(c, r, is_optimizer_step, LG_GPU_BY_OPTIMIZER);
		}
		if (lg_gpu_sum_under(c, r, is_zero_grad, &s)) {
			c->failed = LG_E_NOMEM;
			return;
		}
		if (s.n) {
			r->zero_kernels = s.n;
			r->zero_savable = s.savable;
			move_idle(c, r, is_zero_grad, LG_GPU_BY_ZERO);
		}
	}
}

static void optimizer(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_OPTIMIZER), &share, &r);
	struct lg_finding *f;

	if (r && r->optimizer_kernels) {
		lost += (double)r->optimizer_savable / 1e6;
		share += (double)r->optimizer_savable / (double)(r->to - r->from);
	}
	if (!r || !r->optimizer_kernels || share < LG_N_GPU_UNFUSED_OPTIMIZER_FLOOR)
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_UNFUSED_OPTIMIZER, lost, share, 0.9, r);
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_OPTIMIZER);
	if (!r->optimizer_savable)
		lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_OPTIMIZER));
	f->title = lg_arena_printf(&c->v->arena, "the optimizer launches %zu kernels a step, one parameter at a "
				   "time", r->optimizer_kernels);
	lg_evidence_add(c, f, INT64_MIN, 0, "idle for want of its launches and in its kernels: %.0f %% of the "
			"device's time", share * 100);
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_OPTIMIZER), 3, "no kernel queued for");
}

static void zero_grad(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_ZERO), &share, &r);
	struct lg_finding *f;

	if (r && r->zero_kernels) {
		lost += (double)r->zero_savable / 1e6;
		share += (double)r->zero_savable / (double)(r->to - r->from);
	}
	if (!r || !r->zero_kernels || share < LG_N_GPU_ZERO_GRAD_FILL_FLOOR)
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_ZERO_GRAD_FILL, lost, share, 0.9, r);
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_OPTIMIZER);
	if (!r->zero_savable)
		lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_ZERO));
	f->title = lg_arena_printf(&c->v->arena, "zero_grad() fills gradients with zeros (%zu kernels) "
				   "instead of dropping them", r->zero_kernels);
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_ZERO), 2, "no kernel queued for");
}

static void autotune(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_AUTOTUNE), &share, &r);
	struct lg_finding *f;

	if (r) {
		lost += (double)r->autotune_savable / 1e6;
		share += (double)r->autotune_savable / (double)(r->to - r->from);
	}
	if (!r || share < LG_N_GPU_CONV_AUTOTUNE_FLOOR)
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_CONV_AUTOTUNE, lost, share, r->n_steps < 3 ? 0.6 : 0.85, r);
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	if (r->autotune_by_step)
		lg_gpu_cap_steps(c, f, r, r->autotune_by_step);
	else
		lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_AUTOTUNE));
	f->title = lg_arena_printf(&c->v->arena, "convolution algorithms are measured inside steps (%.0f %% of the "
				   "device's time): shapes change under cudnn.benchmark, or it is the first "
				   "time", share * 100);
	if (r->autotune_kernels)
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu kernels of candidates, %.1f ms of them with work waiting behind "
				"them", r->autotune_kernels, (double)r->autotune_savable / 1e6);
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_AUTOTUNE), 3, "autotuning");
}

/* Value k of a list of arguments, ["", "[1, 1]", "False"]: does it begin with word? */
static bool input_is(const char *list, size_t n, size_t k, const char *word)
{
	const char *end = list + n;

	for (size_t i = 0; list < end; i++) {
		const char *open = memchr(list, '"', (size_t)(end - list)), *close;

		if (!open)
			return false;
		close = memchr(open + 1, '"', (size_t)(end - open - 1));
		if (!close)
			return false;
		if (i == k)
			return (size_t)(close - open - 1) == strlen(word) &&
			       !strncmp(open + 1, word, strlen(word));
		list = close + 1;
	}
	return false;
}

/*
 * cudnn.benchmark is an argument of aten::cudnn_convolution (input, weight, padding, stride, dilation,
 * groups, benchmark, ...; record_shapes=True keeps it). Off with shapes that come back in every step: the
 * fastest algorithm was never looked for. What it would save is not in the trace.
 */
static void autotune_off(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	enum { SHAPES = 512, BENCHMARK = 6 };
	const struct lg_trace *t = c->t;
	struct { lg_str args; size_t n, steps, last; } *seen = NULL;
	size_t n = 0, convs = 0, again = 0, steps = r->n_steps;
	lg_str conv = 0;
	struct lg_gpu_sums s;
	struct lg_finding *f;

	if (steps < 3 || lg_told(c, LG_R_GPU_CONV_AUTOTUNE))
		return;
	seen = lg_calloc(SHAPES, sizeof *seen);
	if (!seen) {
		c->failed = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < c->n_span_names; i++)
		if (!strcmp(lg_string(t, c->span_names[i]), "aten::cudnn_convolution"))
			conv = c->span_names[i];
	for (size_t h = 0; conv && h < r->n_host; h++) {
		lg_thr thr = r->host[h].thr;

		for (uint32_t p = c->idx->span_off[thr]; p < c->idx->span_off[thr + 1]; p++) {
			uint32_t row = c->idx->span[p];
			size_t len, k = 0;
			const char *in;
			size_t step;

			if (t->span.name[row] != conv || t->span.ts[row] < lg_gpu_asked_from(r) ||
			    t->span.ts[row] >= r->to)
				continue;
			in = lg_span_arg(t, row, "inputs", &len);
			if (!in || !input_is(in, len, BENCHMARK, "False")) {
				lg_free(seen);
				return; /* on, or not known */
			}
			convs++;
			/* Shapes, types and the other arguments are one string. */
			while (k < n && seen[k].args != t->span.args[row])
				k++;
			if (k == n && n < SHAPES)
				seen[n++].args = t->span.args[row];
			if (k == n)
				continue;
			step = 1 + lg_gpu_asked_in(r, t->span.ts[row]);
			seen[k].n++;
			seen[k].steps += seen[k].last != step;
			seen[k].last = step;
		}
	}
	/* In nearly every step; the last batch of an epoch is smaller. */
	for (size_t k = 0; k < n; k++)
		again += 10 * seen[k].steps >= 9 * (steps - 1) ? seen[k].n : 0;
	lg_free(seen);
	/* Convolutions that matter, nearly all of them on shapes that every step has. */
	if (convs < 2 * steps || again * 10 < convs * 9)
		return;
	if (lg_gpu_sum_under(c, r, is_conv_op, &s)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	if ((double)s.ns < LG_N_GPU_CONV_AUTOTUNE_OFF * (double)(r->to - r->from))
		return;
	f = lg_gpu_finding(c, g, LG_R_GPU_CONV_AUTOTUNE, (double)NAN, (double)NAN, 0.7, r);
	if (!f)
		return;
	f->detail = "off";
	lg_cap(f, LG_CAP_UNMEASURED); /* the default, and the choice without measuring is often a good one */
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	f->title = lg_arena_printf(&c->v->arena, "%zu convolutions a step on shapes that never change, and cudnn.benchmark "
				   "is off: the fastest algorithm was never looked for", convs / steps);
	lg_evidence_add(c, f, INT64_MIN, 0, "%.1f ms of the window in convolutions; %zu of %zu calls on shapes of every "
			"step, all with benchmark=False", (double)s.ns / 1e6, again, convs);
}

int lg_find_gpu_kernels(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	uint8_t *kind = lg_calloc(c->t->n_str + 1, 1);
	struct lg_gpu_sums by[4] = { { 0 } };
	struct lg_finding *f;
	double share;

	if (!kind)
		return c->failed = LG_E_NOMEM;
	optimizer(c, g);
	zero_grad(c, g);
	autotune(c, g);
	/* Ranks run the same kernels: the one that computes most speaks for all. */
	(void)lg_gpu_lost(g, BIT(LG_GPU_BY_COMPUTE), &share, &r);
	for (size_t i = 0; r && i < r->n_work; i++) {
		lg_str name = c->t->span.name[r->work[i].span];

		if (r->work[i].class != LG_GPU_COMPUTE || r->work[i].ts < r->from || r->work[i].end > r->to)
			continue;
		if (!kind[name])
			kind[name] = (uint8_t)(kernel_kind(lg_string(c->t, name)) + 1);
		if (kind[name] > 1)
			lg_gpu_sum_in(c, r, i, &by[kind[name] - 1]);
	}
	lg_free(kind);
	if (!r)
		return c->failed;
	tensor_cores(c, g, r, &by[K_FP32], &by[K_TENSOR]);
	f = by[K_LAYOUT].n ? lg_gpu_costs(c, g, LG_R_GPU_LAYOUT, r, &by[K_LAYOUT], 1, 0.9,
					  LG_N_GPU_LAYOUT_FLOOR) : NULL;
	if (f) {
		f->title = lg_arena_printf(&c->v->arena, "tensors are turned between NCHW and NHWC around "
					   "convolutions: %zu kernels, %.1f ms", by[K_LAYOUT].n,
					   (double)by[K_LAYOUT].ns / 1e6);
		/* Once on the way in and once on the way out is what channels_last itself takes. */
		if (r->n_steps && by[K_LAYOUT].n <= 2 * r->n_steps) {
			lg_cap(f, LG_CAP_ORDINARY);
			lg_evidence_against(c, f, "two a step at most: the model's input and output, once each");
		}
	}
	attention(c, g, r);
	small_batch(c, g, r);
	autotune_off(c, g, r);
	return c->failed;
}
