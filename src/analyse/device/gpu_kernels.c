/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_kernels.c - kernels that need not run, or could run faster: tensor cores, layout,
 * autotuning, filling gradients, an optimizer of many small kernels.
 *
 * A faster kernel helps only where the next piece of work was already queued, or where the host
 * waits for the device: that part of its time is what it can save ("savable"). On a device that
 * waits for the host, kernel time is free; but where kernels need not be launched at all, the host's
 * time for them goes, too, and with it idle time and kernel alike.
 */
#include <stdlib.h>

#include "analyse/device/device_rules.h"
#include "rules/device_names.h"
#include "store/args.h"

enum kernel_kind { K_OTHER, K_FP32, K_TENSOR, K_LAYOUT };

static const struct lg_name_row kernel_rows[] = {
#define KERNEL(how, text, kind) { LG_MATCH_##how, text, K_##kind },
#include "rules/device_names.def"
};

bool lg_kernel_is_fp32(const char *name)
{
	return lg_name_means(kernel_rows, LG_COUNT(kernel_rows), name) == K_FP32;
}

/*
 * Volta and Turing: no switch makes tensor cores of these take fp32. What float16 gains there depends on the
 * model, and it needs a scaled loss: that is said, and not priced.
 */
static struct lg_finding *fp32_finding(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
				       const struct lg_gpu_sums *fp32, double confidence)
{
	struct lg_finding *f = lg_gpu_unpriced(c, g, LG_R_GPU_NO_TENSOR_CORE, confidence, r);

	lg_cap(f, LG_CAP_UNMEASURED);
	lg_evidence(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_WAITED_FOR, lg_ms(fp32->savable));
	return f;
}

static const char *device_of(const struct lg_gpu_run *r)
{
	return r->device ? r->device : "a device";
}

static void half_only(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		      const struct lg_gpu_sums *fp32)
{
	struct lg_finding *f;

	if (lg_gpu_part(r, (double)fp32->savable) < LG_N_GPU_NO_TENSOR_CORE_HALF_ONLY ||
	    (r->device && lg_on_list(LG_LIST_NO_TENSOR_CORES, r->device)))
		return;
	f = fp32_finding(c, g, r, fp32, 0.6);
	f->detail = "half_only";
	lg_title(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_HALF_ONLY, fp32->n, lg_ms(fp32->ns),
		 device_of(r));
	lg_evidence_against(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_UNPRICED);
}

/* What nothing waits for today is next when the larger cause is gone. */
static void hidden_fp32(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			const struct lg_gpu_sums *fp32)
{
	struct lg_finding *f = lg_gpu_part(r, (double)fp32->ns) < LG_N_GPU_NO_TENSOR_CORE_BESIDE
				       ? NULL : fp32_finding(c, g, r, fp32, 0.8);

	if (f)
		lg_title(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_HIDDEN, fp32->n, lg_ms(fp32->ns),
			 device_of(r));
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
	lg_title(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_TITLE, fp32->n, device_of(r), lg_ms(fp32->ns));
	lg_evidence(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_ON_THEM, tensor->n, lg_ms(tensor->ns));
	lg_evidence_against(c, f, LG_SAYS_GPU_NO_TENSOR_CORE_ESTIMATE);
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
	double gpu = lg_gpu_part(r, (double)r->by[LG_GPU_BY_COMPUTE]);
	long sms = 0;
	LG_AUTOFREE uint8_t *of_args = NULL; /* by string: the same few grids come again and again */
	struct lg_finding *f;

	for (size_t i = 0; i < t->meta.n; i++)
		if (!strcmp(lg_string(t, t->meta.key[i]), "gpu.0.sms"))
			sms = strtol(lg_string(t, t->meta.value[i]), NULL, 10);
	if (sms < 8 || gpu < LG_N_GPU_SMALL_BATCH_BUSY)
		return;
	of_args = lg_calloc(t->n_str, sizeof *of_args);
	if (lg_failed(c, of_args ? 0 : LG_E_NOMEM))
		return;
	LG_EACH(w, r->work, r->n_work) {
		lg_str args = t->span.args[w->span];

		if (w->class != LG_GPU_COMPUTE || !lg_gpu_in_window(r, w))
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
	if (n < LG_N_GPU_SMALL_BATCH_KERNELS ||
	    (double)small < LG_N_GPU_SMALL_BATCH_KERNEL_TIME * (double)known)
		return;
	f = lg_gpu_unpriced(c, g, LG_R_GPU_SMALL_BATCH, 0.7, r);
	/* Requests make the batches of a server, and it may have to answer each at once. */
	if (r->scope == LG_SHOWS_INFERENCE)
		lg_cap(f, LG_CAP_ORDINARY);
	lg_title(c, f, LG_SAYS_GPU_SMALL_BATCH_TITLE, 100 * (double)small / (double)known, sms);
	lg_evidence(c, f, LG_SAYS_GPU_SMALL_BATCH_BLOCKS, n, sms / 2, lg_ms(small));
}

/* Idle time for want of launches while the thread was in a picked span goes to its own cause, so that
 * it is not counted twice. */
static void move_idle(struct lg_case *c, struct lg_gpu_run *r, enum lg_name_list list, uint8_t into)
{
	LG_AUTOFREE uint8_t *picked = lg_span_pick(&c->scene, list);

	LG_EACH_WHILE(picked, p, r->piece, r->n_pieces) {
		uint32_t rows[3] = { p->site, p->op, p->span };
		bool inside = false;

		for (size_t k = 0; p->cause == LG_GPU_BY_LAUNCH && k < 3; k++)
			inside |= rows[k] != LG_NO_ROW && picked[c->t->span.name[rows[k]]];
		if (inside)
			lg_gpu_charge(r, p, into);
	}
}

/* Of one thread: convolutions that wait for events, and each up to its last such wait. */
static void tuned_of(struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr, const uint8_t *conv,
		     const uint8_t *wait, struct lg_ivs *ret_op, struct lg_ivs *ret_test)
{
	const struct lg_trace *t = c->t;
	int64_t from = INT64_MIN, to = INT64_MIN;
	uint32_t op = LG_NO_ROW;

	LG_LISTED_WHILE(!c->failed, row, c->idx->span, thr) {
		const struct lg_span_at *s = &c->idx->span_at[row_at];
		int64_t ts = s->ts, end = lg_row_end(t, ts, s->dur);

		if (end > to && end > r->from && ts < r->to && conv[s->name]) {
			from = ts;
			to = end;
			op = row;
		} else if (ts < to && wait[s->name]) {
			/* again: nothing is left of it */
			if (lg_iv_add(ret_op, from, to, op) ||
			    lg_iv_add(ret_test, from, LG_MIN(end, to), op))
				c->failed = LG_E_NOMEM;
		}
	}
}

/* The allocator is emptied behind the measurement, in the same operator: that belongs to it, too. */
static void move_tuned(const struct lg_case *c, struct lg_gpu_run *r, lg_thr thr, const struct lg_ivs *op)
{
	const struct lg_trace *t = c->t;

	LG_EACH_WHILE(op->n, p, r->piece, r->n_pieces) {
		uint32_t row = p->span != LG_NO_ROW ? p->span : p->op;

		if ((p->cause != LG_GPU_BY_SYNC && p->cause != LG_GPU_BY_LAUNCH &&
		     p->cause != LG_GPU_BY_ALLOC) ||
		    row == LG_NO_ROW || t->span.thr[row] != thr || !lg_iv_within(op, t->span.ts[row]))
			continue;
		lg_gpu_charge(r, p, LG_GPU_BY_AUTOTUNE);
	}
}

/*
 * cuDNN and MIOpen measure candidate algorithms with events: an event synchronisation inside a
 * convolution is autotuning. It costs the device's idle time, and what the candidates compute, which
 * no one needs: with many candidates and large shapes the device is never idle meanwhile.
 */
static void move_autotune(struct lg_case *c, struct lg_gpu_run *r)
{
	struct lg_gpu_sums s = { .row = LG_NO_ROW };
	LG_AUTOFREE uint8_t *conv = lg_span_pick(&c->scene, LG_LIST_CONVOLUTIONS);
	LG_AUTOFREE uint8_t *wait = conv ? lg_span_pick(&c->scene, LG_LIST_EVENT_WAITS) : NULL;

	LG_EACH_WHILE(wait, h, r->host, r->n_host) {
		LG_AUTO_IVS op = { 0 }, test = { 0 };

		tuned_of(c, r, h->thr, conv, wait, &op, &test);
		move_tuned(c, r, h->thr, &op);
		lg_gpu_sum_within(&c->scene, r, h->thr, &test, &s);
	}
	r->notes->extra[LG_GPU_AUTOTUNE] = (struct lg_gpu_extra){ s.n, s.savable, s.by_step };
	for (size_t k = 0; s.by_step && k < r->n_pieces; k++)
		if (r->piece[k].cause == LG_GPU_BY_AUTOTUNE)
			s.by_step[lg_gpu_step_of(r, r->piece[k].ts)] += r->piece[k].dur;
}

/*
 * Kernels of the optimizer that handle one parameter each. A foreach or fused optimizer of a large model
 * takes hundreds, too (torch/.../MultiTensorApply.cuh: 320 blocks of 65536 elements a launch), but they
 * are as large as kernels get; so are those that inductor or Triton made.
 */
static struct lg_gpu_sums sum_single_tensor(struct lg_case *c, const struct lg_gpu_run *r)
{
	struct lg_gpu_sums s = { .row = LG_NO_ROW };

	LG_EACH(h, r->host, r->n_host) {
		LG_AUTO_IVS a = lg_gpu_spans(&c->scene, r, h->thr, LG_LIST_OPTIMIZER_STEPS);

		for (size_t i = 0; a.n && i < r->n_work; i++) {
			const struct lg_gpu_work *w = &r->work[i];
			const char *name = lg_span_name(c->t, w->span);

			if (lg_gpu_called_within(w, h->thr, &a) && lg_gpu_in_window(r, w) &&
			    !lg_on_list(LG_LIST_MANY_TENSORS, name))
				lg_gpu_sum_in(&c->scene, r, i, &s);
		}
	}
	return s;
}

static void refine(struct lg_case *c, struct lg_gpu_run *r)
{
	enum { MANY = 200 };
	struct lg_gpu_sums s = sum_single_tensor(c, r);
	size_t steps = r->n_steps ? r->n_steps : 1;

	move_autotune(c, r);
	if (s.n / steps >= MANY) {
		r->notes->extra[LG_GPU_OPTIMIZER] = (struct lg_gpu_extra){ s.n / steps, s.ns, NULL };
		move_idle(c, r, LG_LIST_OPTIMIZER_STEPS, LG_GPU_BY_OPTIMIZER);
	}
	s = lg_gpu_sum_under(&c->scene, r, LG_LIST_ZERO_GRAD);
	if (s.n) {
		r->notes->extra[LG_GPU_ZERO_GRAD] = (struct lg_gpu_extra){ s.n, s.savable, NULL };
		move_idle(c, r, LG_LIST_ZERO_GRAD, LG_GPU_BY_ZERO);
	}
}

int lg_gpu_refine(struct lg_case *c, struct lg_gpu *g)
{
	LG_EACH_WHILE(!c->failed, r, g->run, g->n)
		if (lg_gpu_judged(r))
			refine(c, r);
	return c->failed;
}

static const struct {
	enum lg_rule_id rule;
	enum lg_gpu_cause cause;
	size_t n_moments;
	const char *moment;
} extras[LG_GPU_EXTRAS] = {
	[LG_GPU_OPTIMIZER] = { LG_R_GPU_UNFUSED_OPTIMIZER, LG_GPU_BY_OPTIMIZER, 3, "no kernel queued for" },
	[LG_GPU_ZERO_GRAD] = { LG_R_GPU_ZERO_GRAD_FILL, LG_GPU_BY_ZERO, 2, "no kernel queued for" },
	[LG_GPU_AUTOTUNE] = { LG_R_GPU_CONV_AUTOTUNE, LG_GPU_BY_AUTOTUNE, 3, "autotuning" },
};

/* Idle time that was moved to a cause of its own, and what its kernels cost besides. */
static void with_kernels(struct lg_case *c, const struct lg_gpu *g, enum lg_gpu_with_kernels k)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(extras[k].cause));
	const struct lg_gpu_extra *x = l.worst ? &l.worst->notes->extra[k] : NULL;
	bool tuned = k == LG_GPU_AUTOTUNE;
	struct lg_finding *f;

	if (!x || (!tuned && !x->kernels))
		return;
	l.ms += lg_ms(x->savable);
	l.share += lg_gpu_part(l.worst, (double)x->savable);
	if (l.share < lg_rule_floor(extras[k].rule))
		return;
	f = lg_gpu_finding(c, g, extras[k].rule, l.ms, l.share,
			   !tuned ? 0.9 : l.worst->n_steps < 3 ? 0.6 : 0.85, l.worst);
	if (x->by_step)
		lg_gpu_cap_steps(c, f, l.worst, x->by_step);
	else if (!x->savable || tuned)
		lg_gpu_cap_rare(c, f, l.worst, l.mask);
	if (k == LG_GPU_OPTIMIZER) {
		lg_title(c, f, LG_SAYS_GPU_UNFUSED_OPTIMIZER_TITLE, x->kernels);
		lg_evidence(c, f, LG_SAYS_GPU_UNFUSED_OPTIMIZER_SHARE, l.share * 100);
	} else if (k == LG_GPU_ZERO_GRAD) {
		lg_title(c, f, LG_SAYS_GPU_ZERO_GRAD_FILL_TITLE, x->kernels);
	} else {
		lg_title(c, f, LG_SAYS_GPU_CONV_AUTOTUNE_TITLE, l.share * 100);
		if (x->kernels)
			lg_evidence(c, f, LG_SAYS_GPU_CONV_AUTOTUNE_CANDIDATES, x->kernels,
				    lg_ms(x->savable));
	}
	lg_gpu_moments(c, f, l.worst, l.mask, extras[k].n_moments, extras[k].moment);
}

/*
 * cudnn.benchmark is an argument of aten::cudnn_convolution (input, weight, padding, stride, dilation,
 * groups, benchmark, ...; record_shapes=True keeps it). Off with shapes that come back in every step: the
 * fastest algorithm was never looked for. What it would save is not in the trace.
 */
struct shapes {
	struct {
		lg_str args;
		size_t n, steps, last;
	} v[512]; /* shapes, types and the other arguments are one string */
	size_t n, convs;
};

/* False: it is on, or not known. */
static bool look_at_convs(const struct lg_case *c, const struct lg_gpu_run *r, struct shapes *x)
{
	enum { SHAPES = sizeof x->v / sizeof *x->v, BENCHMARK = 6 };
	const struct lg_trace *t = c->t;
	lg_str conv = 0;
	uint32_t row;

	for (size_t i = 0; i < c->scene.n_span_names; i++)
		if (lg_on_list(LG_LIST_CUDNN, lg_string(t, c->scene.span_names[i])))
			conv = c->scene.span_names[i];
	for (size_t h = 0; conv && h < r->n_host; h++) {
		struct lg_gpu_rows w = lg_gpu_rows(&c->scene, r, r->host[h].thr, NULL);

		while (lg_gpu_next_row(&w, &row)) {
			size_t len, k = 0, step;
			const char *list, *off;

			if (lg_gpu_this_row(&w)->name != conv)
				continue;
			list = lg_span_arg(t, row, "inputs", &len);
			off = lg_arg_listed(list, len, BENCHMARK, &len);
			if (!off || len != strlen("False") || strncmp(off, "False", len))
				return false;
			x->convs++;
			while (k < x->n && x->v[k].args != t->span.args[row])
				k++;
			if (k == x->n && x->n < SHAPES)
				x->v[x->n++].args = t->span.args[row];
			if (k == x->n)
				continue;
			step = 1 + lg_gpu_asked_in(r, t->span.ts[row]);
			x->v[k].n++;
			x->v[k].steps += x->v[k].last != step;
			x->v[k].last = step;
		}
	}
	return true;
}

static void autotune_off(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	LG_AUTOFREE struct shapes *x = lg_calloc(1, sizeof *x);
	size_t again = 0, steps = r->n_steps;
	struct lg_gpu_sums s;
	struct lg_finding *f;

	if (steps < LG_N_GPU_CONV_AUTOTUNE_OFF_STEPS || lg_is_told(c, LG_R_GPU_CONV_AUTOTUNE) ||
	    lg_failed(c, x ? 0 : LG_E_NOMEM) || !look_at_convs(c, r, x))
		return;
	/* In nearly every step; the last batch of an epoch is smaller. */
	for (size_t k = 0; k < x->n; k++)
		if ((double)x->v[k].steps >= LG_N_GPU_CONV_AUTOTUNE_SAME * (double)(steps - 1))
			again += x->v[k].n;
	/* Convolutions that matter, nearly all of them on shapes that every step has. */
	if (x->convs < LG_N_GPU_CONV_AUTOTUNE_A_STEP * steps ||
	    (double)again < LG_N_GPU_CONV_AUTOTUNE_SAME * (double)x->convs)
		return;
	s = lg_gpu_sum_under(&c->scene, r, LG_LIST_CONVOLUTIONS);
	if (lg_gpu_part(r, (double)s.ns) < LG_N_GPU_CONV_AUTOTUNE_OFF)
		return;
	f = lg_gpu_unpriced(c, g, LG_R_GPU_CONV_AUTOTUNE, 0.7, r);
	f->detail = "off";
	lg_cap(f, LG_CAP_UNMEASURED); /* the default, and the choice without measuring is often a good one */
	lg_title(c, f, LG_SAYS_GPU_CONV_AUTOTUNE_IS_OFF, x->convs / steps);
	lg_evidence(c, f, LG_SAYS_GPU_CONV_AUTOTUNE_SAME_SHAPES, lg_ms(s.ns), again, x->convs);
}

int lg_find_gpu_kernels(struct lg_case *c, struct lg_gpu *g)
{
	/* Ranks run the same kernels: the one that computes most speaks for all. */
	const struct lg_gpu_run *r = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_COMPUTE)).worst;
	LG_AUTOFREE uint8_t *kind = lg_calloc(c->t->n_str + 1, 1);
	LG_AUTOFREE uint8_t *attention = NULL;
	struct lg_gpu_sums by[4] = { { 0 } }, *layout = &by[K_LAYOUT];
	struct lg_finding *f;

	if (!kind)
		return c->failed = LG_E_NOMEM;
	for (enum lg_gpu_with_kernels k = 0; k < LG_GPU_EXTRAS; k++)
		with_kernels(c, g, k);
	if (r && lg_find_attention(c, g, r, &attention))
		return c->failed;
	for (size_t i = 0; r && i < r->n_work; i++) {
		lg_str name = c->t->span.name[r->work[i].span];

		/* What attention need not run need not run faster: its price is told. */
		if (r->work[i].class != LG_GPU_COMPUTE || !lg_gpu_in_window(r, &r->work[i]) ||
		    (attention && attention[i]))
			continue;
		if (!kind[name])
			kind[name] = (uint8_t)(lg_name_means(kernel_rows,
							     LG_COUNT(kernel_rows),
							     lg_string(c->t, name)) +
					       1);
		if (kind[name] > 1)
			lg_gpu_sum_in(&c->scene, r, i, &by[kind[name] - 1]);
	}
	if (!r)
		return c->failed;
	tensor_cores(c, g, r, &by[K_FP32], &by[K_TENSOR]);
	f = layout->n ? lg_gpu_costs(c, g, LG_R_GPU_LAYOUT, r, layout, 1, 0.9, LG_N_GPU_LAYOUT_FLOOR) : NULL;
	if (f) {
		lg_title(c, f, LG_SAYS_GPU_LAYOUT_TITLE, layout->n, lg_ms(layout->ns));
		/* Once on the way in and once on the way out is what channels_last itself takes. */
		if (r->n_steps && layout->n <= 2 * r->n_steps) {
			lg_cap(f, LG_CAP_ORDINARY);
			lg_evidence_against(c, f, LG_SAYS_GPU_LAYOUT_IN_AND_OUT);
		}
	}
	small_batch(c, g, r);
	autotune_off(c, g, r);
	return c->failed;
}
