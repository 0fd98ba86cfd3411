/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile_trace.c - what became of torch.compile, from a profiler's trace (from logs: logs/log_signals.c).
 *
 * "... (dynamo_timed)" spans are compilation itself; what runs compiled: compile_regions.c. What a lost or broken
 * compilation costs cannot be measured without a run that has it: the finding says so and stays at medium.
 */
#include "analyse/device/cpu_rules.h"
#include "base/words.h"

static void in_step(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_COMPILE));
	struct lg_finding *f = lg_gpu_idles(c, g, LG_R_COMPILE_IN_STEP, &l, LG_N_COMPILE_IN_STEP_FLOOR, 0.92);

	if (!f)
		return;
	lg_title(c, f, LG_SAYS_COMPILE_IN_STEP_TITLE, l.share * 100);
	lg_gpu_moments(c, f, l.worst, l.mask, 4, "device idle");
	if (l.worst->n_steps < 3)
		lg_evidence_against(c, f, LG_SAYS_COMPILE_IN_STEP_FIRST_STEPS);
}

/* Training on the CPU: the thread that compiles does nothing else, and nobody else does its work. */
static void in_step_on_cpu(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_cpu_time t;
	struct lg_finding *f = lg_cpu_exposed(c, g, LG_R_COMPILE_IN_STEP, LG_HOST_COMPILE,
					      LG_N_COMPILE_IN_STEP_FLOOR, 0.9, &t);

	if (!f)
		return;
	lg_title(c, f, LG_SAYS_COMPILE_IN_STEP_ON_CPU, lg_cpu_share(&t) * 100);
	lg_evidence_add(c, f, t.at, t.longest, "%.1f ms in all; longest%s%s", lg_ms(t.sum), t.row !=
			LG_NO_ROW ? ": " : "", t.row != LG_NO_ROW ? lg_span_name(c->t, t.row)
			: "");
}

/*
 * Modes and checks that belong into debugging, by functions that only run while they are active: importing a
 * module calls its decorators, set_detect_anomaly(False) is a context, too. Where anomalies are asked for,
 * every operator of forward keeps its stack (torch/csrc/autograd/python_anomaly_mode.cpp).
 */
enum debug_call { DEBUG_FLOPS, DEBUG_ANOMALY, DEBUG_STACKS, DEBUG_CALLS };
static const struct {
	const char *file, *function; /* function: NULL = any */
} debug_calls[] = {
	[DEBUG_FLOPS] = { "torch/utils/flop_counter.py", "__torch_dispatch__" },
	[DEBUG_ANOMALY] = { "torch/autograd/anomaly_mode.py", NULL },
	[DEBUG_STACKS] = { "traceback.py", "format_stack" },
};
enum { DEBUG_MANY = 20 };

/* A bit for each of them, by frame; NULL: no frame has any (or no memory). */
static uint8_t *debug_bits(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	uint8_t *bits = lg_calloc(t->frame.n, 1);
	bool any = false;

	for (size_t f = 0; !lg_failed(c, bits ? 0 : LG_E_NOMEM) && f < t->frame.n; f++)
		for (size_t k = 0; k < DEBUG_CALLS; k++)
			if (strstr(lg_string(t, t->frame.file[f]), debug_calls[k].file) &&
			    (!debug_calls[k].function ||
			     !strcmp(lg_string(t, t->frame.name[f]), debug_calls[k].function))) {
				bits[f] |= (uint8_t)(1u << k);
				any = true;
			}
	if (any)
		return bits;
	lg_free(bits);
	return NULL;
}

static bool left_on_told(const struct lg_case *c, const char *what)
{
	LG_EACH(f, c->v->findings, c->v->n_findings)
		if (f->rule == LG_R_DEBUG_LEFT_ON && f->culprit.function &&
		    !strcmp(f->culprit.function, what))
			return true;
	return false;
}

/* r's main thread called it so often, first at. */
static void tell_debug(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		       const char *what, enum debug_call call, size_t n, int64_t at)
{
	struct lg_finding *f =
		left_on_told(c, what) ? NULL : lg_gpu_unpriced(c, g, LG_R_DEBUG_LEFT_ON, 0.9, r);

	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	lg_title(c, f, LG_SAYS_DEBUG_LEFT_ON_ACTIVE, what, call != DEBUG_FLOPS || r->compiled ? "" :
		 LG_SAYS_DEBUG_LEFT_ON_SKIPS_COMPILE);
	f->culprit.function = what;
	lg_evidence_add(c, f, at, 0, "%zu calls of %s in %s", n, debug_calls[call].function,
			debug_calls[call].file);
	lg_evidence(c, f, LG_SAYS_DEBUG_LEFT_ON_SLOWED);
}

/* Their frames in the main thread; ranks run the same program. */
static void debug_frames(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint8_t *bits = debug_bits(c);
	bool told = false;

	LG_EACH_WHILE(bits && !told, r, g->run, g->n) {
		size_t n[DEBUG_CALLS] = { 0 };
		int64_t at[DEBUG_CALLS] = { 0 };
		struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, r->main, NULL);
		bool flops, anomaly;
		uint32_t row;

		while (r->has_frames && lg_gpu_traced(r) && r->main && lg_gpu_next_row(&rows, &row)) {
			lg_stk s = t->span.kind[row] == LG_SPAN_PYTHON ? t->span.stack[row] : 0;

			for (size_t k = 0; s && k < DEBUG_CALLS; k++)
				if (bits[t->stack.frame[s]] >> k & 1)
					at[k] = n[k]++ ? at[k] : t->span.ts[row];
		}
		flops = n[DEBUG_FLOPS] >= DEBUG_MANY;
		anomaly = n[DEBUG_ANOMALY] && n[DEBUG_STACKS] >= DEBUG_MANY;
		if (flops)
			tell_debug(c, g, r, "FlopCounterMode", DEBUG_FLOPS, n[DEBUG_FLOPS], at[DEBUG_FLOPS]);
		if (anomaly)
			tell_debug(c, g, r, LG_ANOMALY_DETECTION, DEBUG_STACKS, n[DEBUG_STACKS],
				   at[DEBUG_STACKS]);
		told = flops || anomaly;
	}
}

int lg_find_compile_trace(struct lg_case *c, struct lg_gpu *g)
{
	in_step(c, g);
	if (lg_gpu_only(c->t) && !lg_is_told(c, LG_R_COMPILE_IN_STEP) && !c->failed)
		in_step_on_cpu(c, g);
	lg_compile_regions(c, g);
	debug_frames(c, g);
	return c->failed;
}

/*
 * Compiled code that a log tells of and a trace of the steps does not have. torch marks every call of
 * compiled code ("Torch-Compiled Region", "CompiledFunction"), and Inductor's kernels have names of their own. Where a
 * log shows that the compiler worked and a profile of whole steps has none of these, the steps run eagerly: a
 * dispatch mode, a wrapper around the module, another code path.
 */

/* Any row at all, also of a thread or stream that is not judged. */
static bool has_compiled(struct lg_case *c)
{
	LG_AUTOFREE uint8_t *picked = lg_span_pick(&c->scene, LG_LIST_COMPILED);
	bool found = c->failed;

	for (size_t i = 0; picked && i < c->t->span.n && !found; i++)
		found = picked[c->t->span.name[i]];
	return found;
}

int lg_compile_absent(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_mark_tab *m = &c->t->mark;
	const struct lg_gpu_run *r = NULL;
	size_t n = 0, first = 0;
	struct lg_finding *f;

	LG_EACH_MARK(i, c->t, "log.compile_start")
		first = n++ ? first : i;
	if (!n || lg_is_told(c, LG_R_COMPILE_SKIPPED))
		return 0;
	/* One step may be what never was compiled, as an evaluation. */
	LG_EACH_WHILE(!r, x, g->run, g->n)
		if (lg_gpu_traced(x) && x->n_ops && x->n_steps >= LG_N_COMPILE_SKIPPED_STEPS)
			r = x;
	if (!r || has_compiled(c))
		return c->failed;
	f = lg_gpu_unpriced(c, g, LG_R_COMPILE_SKIPPED, 0.8, r);
	lg_title(c, f, LG_SAYS_COMPILE_SKIPPED_RUNS_EAGERLY, r->n_steps);
	lg_evidence_add(c, f, m->ts[first], 0, LG_SAYS_COMPILE_SKIPPED_LOGGED, n, lg_s(n),
			*lg_string(c->t, m->text[first]) ? lg_string(c->t, m->text[first]) :
			"here");
	lg_evidence(c, f, LG_SAYS_COMPILE_SKIPPED_NONE_IN_TRACE, r->n_ops);
	lg_evidence(c, f, LG_SAYS_COMPILE_SKIPPED_UNPRICED);
	lg_evidence_against(c, f, LG_SAYS_COMPILE_SKIPPED_OTHER_CODE);
	return c->failed;
}
