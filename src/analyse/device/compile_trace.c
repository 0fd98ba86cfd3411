/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile_trace.c - what became of torch.compile, from a profiler's trace and from logs.
 *
 * Trace: "... (dynamo_timed)" spans are compilation itself; what runs compiled: compile_regions.c. Logs: the
 * marks of the log importers (log.graph_break, log.recompile ...), one a message, its text "what, file:line".
 * What a lost or broken compilation costs cannot be measured without a run that has it: the
 * finding says so and stays at medium.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "analyse/timeline/cost.h"
#include "analyse/timeline/window.h"
#include "analyse/chains/tally.h"
#include "base/alloc.h"

#define BIT(cause) (1u << (cause))

static void in_step(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_COMPILE), &share, &r);
	struct lg_finding *f;

	if (!r || share < LG_N_COMPILE_IN_STEP_FLOOR)
		return;
	f = lg_gpu_finding(c, g, LG_R_COMPILE_IN_STEP, lost, share, 0.92, r);
	if (!f)
		return;
	lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_COMPILE));
	f->title = lg_arena_printf(&c->v->arena, "torch.compile works inside the profiled steps: the device idles "
				   "%.0f %% of the time for it", share * 100);
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_COMPILE), 4, "device idle");
	if (r->n_steps < 3)
		lg_evidence_against(c, f, "in the first steps this is normal; it must not be there later");
}

/* Training on the CPU: the thread that compiles does nothing else, and nobody else does its work. */
static void in_step_on_cpu(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	int64_t *by_step = lg_arena_alloc(&c->v->arena, r->n_steps + 1, sizeof *by_step), sum = 0;
	const struct lg_host_seg *longest = NULL;
	struct lg_finding *f;
	double share;

	if (!by_step) {
		c->failed = LG_E_NOMEM;
		return;
	}
	for (size_t h = 0; h < r->n_host; h++)
		for (size_t i = 0; r->host[h].thr == r->main && i < r->host[h].n; i++) {
			const struct lg_host_seg *s = &r->host[h].seg[i];

			if (s->class != LG_HOST_COMPILE || s->ts < r->from || s->end > r->to)
				continue;
			sum += s->end - s->ts;
			by_step[lg_gpu_step_of(r, s->ts)] += s->end - s->ts;
			longest = !longest || s->end - s->ts > longest->end - longest->ts ? s : longest;
		}
	share = (double)sum / (double)(r->to - r->from);
	if (!longest || share < LG_N_COMPILE_IN_STEP_FLOOR)
		return;
	f = lg_gpu_finding(c, g, LG_R_COMPILE_IN_STEP, (double)sum / 1e6, share, 0.9, r);
	if (!f)
		return;
	lg_gpu_cap_steps(c, f, r, by_step);
	f->title = lg_arena_printf(&c->v->arena, "torch.compile works inside the profiled steps: %.0f %% of their time",
				   share * 100);
	lg_evidence_add(c, f, longest->ts, longest->end - longest->ts, "%.1f ms in all; longest%s%s", (double)sum / 1e6,
			longest->span != LG_NO_ROW ? ": " : "",
			longest->span != LG_NO_ROW ? lg_string(c->t, c->t->span.name[longest->span]) : "");
}

static struct lg_finding *unmeasured(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				     double confidence, const struct lg_gpu_run *r)
{
	struct lg_finding *f = lg_gpu_finding(c, g, rule, (double)NAN, (double)NAN, confidence, r);

	if (f)
		f->stage = lg_stage_name(LG_STAGE_FORWARD);
	return f;
}

static bool is_launch(const char *name)
{
	return strstr(name, "Launch") != NULL;
}

/*
 * CUDA_LAUNCH_BLOCKING=1: every launch call returns only after its kernel has ended. By chance that
 * happens only to kernels shorter than the call itself, so only longer ones are looked at.
 */
static void launch_blocking(struct lg_case *c, const struct lg_gpu *g)
{
	uint8_t *picked;

	if (lg_span_pick(c, is_launch, &picked))
		c->failed = LG_E_NOMEM;
	for (size_t i = 0; picked && i < g->n; i++) {
		const struct lg_gpu_run *r = &g->run[i];
		size_t n = 0, blocked = 0;
		struct lg_finding *f;

		if (!lg_gpu_judged(r))
			continue;
		for (size_t k = 0; k < r->n_work; k++) {
			const struct lg_gpu_work *w = &r->work[k];

			if (w->class != LG_GPU_COMPUTE || w->call == LG_NO_ROW || w->end - w->ts < 20000 ||
			    !picked[c->t->span.name[w->call]])
				continue;
			n++;
			blocked += lg_row_end(c->t, c->t->span.ts[w->call],
					      c->t->span.dur[w->call]) >= w->end;
		}
		if (n < 20 || blocked * 20 < n * 19)
			continue;
		f = unmeasured(c, g, LG_R_DEBUG_LEFT_ON, 0.9, r);
		if (!f)
			break;
		f->title = "every kernel launch waits for its kernel: CUDA_LAUNCH_BLOCKING=1 (or "
			   "HIP_LAUNCH_BLOCKING, AMD_SERIALIZE_KERNEL) is left on";
		f->culprit.function = "CUDA_LAUNCH_BLOCKING";
		lg_evidence_add(c, f, r->from, r->to - r->from, "%zu of %zu launches of kernels over 20 us "
				"return after the kernel's end", blocked, n);
		break;
	}
	lg_free(picked);
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
	uint8_t *bits = NULL;

	for (size_t f = 0; f < t->frame.n; f++)
		for (size_t k = 0; k < DEBUG_CALLS; k++) {
			if (!strstr(lg_string(t, t->frame.file[f]), debug_calls[k].file) ||
			    (debug_calls[k].function &&
			     strcmp(lg_string(t, t->frame.name[f]), debug_calls[k].function)))
				continue;
			if (!bits)
				bits = lg_calloc(t->frame.n, 1);
			if (!bits) {
				c->failed = LG_E_NOMEM;
				return NULL;
			}
			bits[f] |= (uint8_t)(1u << k);
		}
	return bits;
}

static bool left_on_told(const struct lg_case *c, const char *what)
{
	for (size_t i = 0; i < c->v->n_findings; i++) {
		const struct lg_finding *f = &c->v->findings[i];

		if (f->rule == LG_R_DEBUG_LEFT_ON && f->culprit.function &&
		    !strcmp(f->culprit.function, what))
			return true;
	}
	return false;
}

/* r's main thread called it so often, first at. */
static void tell_debug(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		       const char *what, enum debug_call call, size_t n, int64_t at)
{
	struct lg_finding *f = left_on_told(c, what) ? NULL : unmeasured(c, g, LG_R_DEBUG_LEFT_ON, 0.9, r);

	if (!f)
		return;
	f->title = lg_arena_printf(&c->v->arena, "%s is active in the profiled steps%s", what,
				   call != DEBUG_FLOPS || r->compiled
					   ? "" : ", and no compiled region runs: torch.compile is "
						  "skipped under such a mode");
	f->culprit.function = what;
	lg_evidence_add(c, f, at, 0, "%zu calls of %s in %s", n, debug_calls[call].function,
			debug_calls[call].file);
	lg_evidence_add(c, f, INT64_MIN, 0, "the trace was slowed by its stacks, so the loss is not measured: "
			"run 50 steps without it and compare (laggard diff)");
}

/* Their frames in the main thread; ranks run the same program. */
static void debug_frames(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_trace *t = c->t;
	uint8_t *bits = debug_bits(c);
	bool told = false;

	for (size_t i = 0; bits && i < g->n && !told; i++) {
		const struct lg_gpu_run *r = &g->run[i];
		size_t n[DEBUG_CALLS] = { 0 };
		int64_t at[DEBUG_CALLS] = { 0 };
		bool flops, anomaly;

		if (!r->has_frames || (!lg_gpu_judged(r) && r->scope != LG_SHOWS_CPU) || !r->main)
			continue;
		for (uint32_t p = c->idx->span_off[r->main]; p < c->idx->span_off[r->main + 1]; p++) {
			uint32_t row = c->idx->span[p];
			lg_stk s = t->span.stack[row];

			if (t->span.kind[row] != LG_SPAN_PYTHON || !s ||
			    t->span.ts[row] < lg_gpu_asked_from(r) || t->span.ts[row] >= r->to)
				continue;
			for (size_t k = 0; k < DEBUG_CALLS; k++)
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
	lg_free(bits);
}

/* ---- logs ---- */

/*
 * Who tells of it: torch's warning about a call ("from `Tensor.item()` (/app/train.py:6)"), the job's log of that
 * artifact, or TORCH_TRACE, which names the compilation ("f (/app/train.py:6) [0/1]: ..."). All may tell the same.
 */
enum teller { BY_WARNING, BY_LOG, BY_TRACE, TELLERS };

static enum teller told_by(const char *text)
{
	const char *p = *text == '[' ? text : strstr(text, " [");
	int used = 0;

	if (!strncmp(text, "from `", 6))
		return BY_WARNING;
	return p && (sscanf(p, " [%*d/%*d]:%n", &used), used > 0) ? BY_TRACE : BY_LOG;
}

/* The finding; NULL = nothing to tell. A job's log and its TORCH_TRACE tell the same: it counts once. */
static struct lg_finding *from_log(struct lg_case *c, const char *name, enum lg_rule_id rule, size_t at_least,
				   const char *title)
{
	const struct lg_mark_tab *m = &c->t->mark;
	struct lg_finding *f;
	lg_str said[4];
	size_t by[TELLERS] = { 0 }, n, kinds = 0;
	enum teller most = BY_WARNING;

	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(lg_string(c->t, m->name[i]), name))
			by[told_by(lg_string(c->t, m->text[i]))]++;
	for (enum teller i = BY_LOG; i < TELLERS; i++)
		most = by[i] > by[most] || (by[i] && most == BY_WARNING) ? i : most;
	n = by[most];
	if (n < at_least || !n)
		return NULL;
	if (lg_told(c, rule))
		return NULL; /* by the hook, or the trace, which know more than a log line */
	f = lg_finding_add(c, rule);
	if (!f)
		return NULL;
	lg_grade_unpriced(f);
	f->confidence = 0.95;
	f->culprit.relation = LG_RELATION_SELF;
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	f->title = lg_arena_printf(&c->v->arena, "%s (%zu time%s in the log)", title, n, n == 1 ? "" : "s");
	for (size_t i = 0; i < m->n && kinds < 4; i++) {
		bool seen = false;

		if (strcmp(lg_string(c->t, m->name[i]), name) ||
		    told_by(lg_string(c->t, m->text[i])) != most)
			continue;
		for (size_t k = 0; k < kinds; k++)
			seen |= said[k] == m->text[i];
		if (seen)
			continue;
		said[kinds++] = m->text[i];
		lg_evidence_add(c, f, m->ts[i], 0, "%s", lg_string(c->t, m->text[i]));
		if (!f->culprit.function && *lg_string(c->t, m->text[i]))
			f->culprit.function = lg_string(c->t, m->text[i]);
	}
	lg_evidence_add(c, f, INT64_MIN, 0, "a log does not tell what it costs: compare the step time with "
			"and without (laggard diff)");
	return f;
}

/* A debugging aid that spoke up in the log. */
static void debug_from_log(struct lg_case *c)
{
	struct lg_finding *f = from_log(c, "log.anomaly", LG_R_DEBUG_LEFT_ON, 1,
					"autograd anomaly detection is on: every backward operator is checked for NaN");

	if (f) {
		f->detail = "anomaly";
		f->culprit.function = LG_ANOMALY_DETECTION;
		f->stage = lg_stage_name(LG_STAGE_BACKWARD);
	}
	f = from_log(c, "log.profiled", LG_R_DEBUG_LEFT_ON, LG_N_DEBUG_LEFT_ON_TRACES,
		     "torch.profiler takes trace after trace");
	if (f) {
		lg_cap(f, LG_CAP_UNMEASURED);
		f->detail = "profiler";
		f->culprit.function = "torch.profiler.profile";
	}
}

/* With fullgraph=True torch raises an error where it would go on eagerly. */
static void recompile_limit(struct lg_case *c)
{
	static const char fails[] = "a function hit the recompile limit and must not run eagerly (fullgraph=True): "
				    "torch raises an error";
	const struct lg_mark_tab *m = &c->t->mark;
	struct lg_finding *f;
	size_t error = 0;

	while (error < m->n && strcmp(lg_string(c->t, m->name[error]), "log.recompile_limit_error"))
		error++;
	f = from_log(c, "log.recompile_limit", LG_R_COMPILE_RECOMPILE_LIMIT, 1,
		     error < m->n ? fails : "a function hit the recompile limit: from then on it runs eagerly");
	if (error == m->n)
		return;
	if (f)
		lg_evidence_add(c, f, m->ts[error], 0, "%s", lg_string(c->t, m->text[error]));
	else
		from_log(c, "log.recompile_limit_error", LG_R_COMPILE_RECOMPILE_LIMIT, 1, fails);
}

static void ddp_warned(struct lg_case *c, const char *mark, const char *title)
{
	struct lg_finding *f = from_log(c, mark, LG_R_COMMS_DDP_FLAGS, 1, title);

	if (f)
		lg_cap(f, LG_CAP_UNMEASURED);
}

int lg_find_compile_trace(struct lg_case *c, struct lg_gpu *g)
{
	struct lg_finding *failed;

	in_step(c, g);
	for (size_t i = 0; lg_gpu_only(c->t) && i < g->n && !lg_told(c, LG_R_COMPILE_IN_STEP) && !c->failed;
	     i++)
		if (g->run[i].scope == LG_SHOWS_CPU && g->run[i].main && g->run[i].n_steps >= 3)
			in_step_on_cpu(c, g, &g->run[i]);
	lg_compile_regions(c, g);
	launch_blocking(c, g);
	debug_frames(c, g);
	from_log(c, "log.compile_skipped", LG_R_COMPILE_SKIPPED, 1,
		 "torch.compile skipped code that was to be compiled: it runs eagerly");
	from_log(c, "log.compile_none", LG_R_COMPILE_SKIPPED, 1,
		 "torch.compile found no frame that it could compile");
	failed = from_log(c, "log.compile_failed", LG_R_COMPILE_SKIPPED, 1,
			  "compilation failed: that code runs eagerly, or not at all");
	if (failed)
		failed->detail = "failed"; /* no mode is to blame: other advice */
	lg_compile_absent(c, g); /* where no line says why */
	recompile_limit(c);
	from_log(c, "log.recompile", LG_R_COMPILE_RECOMPILES, LG_N_COMPILE_RECOMPILES_TIMES,
		 "compiled code is compiled again because a guard fails");
	from_log(c, "log.graph_break", LG_R_COMPILE_GRAPH_BREAKS, 1,
		 "the compiled graph breaks in user code");
	from_log(c, "log.tf32_off", LG_R_GPU_NO_TENSOR_CORE, 1,
		 "torch says that TF32 tensor cores are there and not enabled");
	ddp_warned(c, "log.ddp_find_unused", "DDP looks for unused parameters every step and finds none");
	ddp_warned(c, "log.ddp_grad_strides", "DDP copies gradients whose strides differ from its buckets'");
	from_log(c, "log.loader_workers", LG_R_DATA_WORKERS_OVERSUBSCRIBED, 1,
		 "the loader has more workers than this process has CPUs");
	debug_from_log(c);
	return c->failed;
}
