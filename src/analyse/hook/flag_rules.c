/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flag_rules.c - mixed precision used against its rules, and flags of DDP, FSDP and cuDNN that cost time,
 * from what the hook saw of the living program: parameters' types, autocast at forward and backward,
 * GradScaler, the wrappers' own attributes.
 *
 * Only settings that somebody chose are told: a default (gradient_as_bucket_view=False, no forward
 * prefetch) is how most healthy jobs run, and from a profiler's trace its cost can be measured
 * (overlap_rules.c).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/finders.h"
#include "analyse/hook/facts.h"

enum { MANY_STEPS = 20, FEW_SHAPES = 2, MODELS_MAX = 8 };

/* "bfloat16=12,float32=400": elements of that type; *ret_all of all. */
static double elements(const char *list, const char *type, double *ret_all)
{
	double of = 0;
	size_t n = strlen(type);

	*ret_all = 0;
	while (*list) {
		const char *equal = strchr(list, '=');
		double v = equal ? strtod(equal + 1, NULL) : 0;

		if (!equal)
			break;
		*ret_all += v;
		if ((size_t)(equal - list) == n && !strncmp(list, type, n))
			of += v;
		list = strchrnul(equal, ',');
		list += *list == ',';
	}
	return of;
}

/* The root module with most parameters: the others are losses and heads. NULL = none was told. */
static const char *model_fact(const struct lg_case *c, const struct lg_rank *r, const char *what,
			      double *ret_size)
{
	char key[64];
	double most = 0, all;
	int best = -1;

	for (int i = 0; i < MODELS_MAX; i++) {
		const char *list;

		snprintf(key, sizeof key, "model.%d.parameters", i);
		list = lg_fact_of(c, r->prc, key);
		if (!list)
			continue;
		(void)elements(list, "", &all);
		if (all > most) {
			most = all;
			best = i;
		}
	}
	*ret_size = most;
	if (best < 0)
		return NULL;
	snprintf(key, sizeof key, "model.%d.%s", best, what);
	return lg_fact_of(c, r->prc, key);
}

/* Backward operators take their types from forward; under autocast every one of them is dispatched
 * through it again, and those on its fp32 list are cast up (torch.amp: "backward under autocast is not
 * recommended"). */
static void backward_under_autocast(struct lg_case *c, const struct lg_rank *r, const struct lg_fact_span *j,
				    struct lg_finding **f)
{
	double share = lg_fact_share(c, r->prc, "torch.autocast_backward", j->from, j->to);
	struct lg_finding *x;

	if (share <= LG_N_GPU_AMP_MISUSE_PASSES) /* one of several passes of a step is enough */
		return;
	x = lg_fact_finding(c, f, r, LG_R_GPU_AMP_MISUSE, 0.95);
	if (!x)
		return;
	x->detail = "backward_under_autocast";
	x->stage = lg_stage_name(LG_STAGE_BACKWARD);
	x->title = "backward() runs inside the autocast region: its operators are cast a second time";
	lg_evidence_add(c, x, j->from, j->to - j->from, "autocast was on at the start of backward() in %.0f %% of "
			"the time of %zu judged steps", share * 100, j->n);
}

/* A framework that keeps float32 copies and scales the loss by itself. */
static bool scales_by_itself(const struct lg_case *c, const struct lg_rank *r)
{
	return lg_fact_of(c, r->prc, "module.deepspeed") || lg_fact_of(c, r->prc, "module.apex") ||
	       lg_fact_of(c, r->prc, "module.megatron");
}

static void manual_half(struct lg_case *c, const struct lg_rank *r, struct lg_finding **f)
{
	const char *scaler = lg_fact_of(c, r->prc, "amp.grad_scaler");
	double all, half, size;
	const char *list = model_fact(c, r, "parameters", &size);
	struct lg_finding *x;

	/* Without a backward pass it is inference, where half() is right. */
	if (!list || !lg_fact_of(c, r->prc, "torch.autocast_backward") || scales_by_itself(c, r))
		return;
	half = elements(list, "float16", &all);
	if (half < LG_N_GPU_AMP_MISUSE_HALF * all || (scaler && !strcmp(scaler, "1")))
		return;
	x = lg_fact_finding(c, f, r, LG_R_GPU_AMP_MISUSE, 0.85);
	if (!x)
		return;
	x->detail = "manual_half";
	x->title = lg_arena_printf(&c->v->arena, "%.0f %% of the trained parameters are float16 themselves "
				   "(model.half()), and nothing scales the loss: small gradients become zero, and "
				   "updates are rounded away", 100 * half / all);
	lg_evidence_add(c, x, INT64_MIN, 0, "parameters that require gradients, by type: %s; GradScaler %s", list,
			scaler ? "disabled" : "never used");
}

static void ddp(struct lg_case *c, const struct lg_rank *r, struct lg_finding **f)
{
	double size;
	struct lg_finding *x;

	(void)model_fact(c, r, "parameters", &size);
	for (int i = 0; i < MODELS_MAX; i++) {
		char key[64];
		const char *unused, *fixed, *cap;

		snprintf(key, sizeof key, "ddp.%d.find_unused_parameters", i);
		unused = lg_fact_of(c, r->prc, key);
		snprintf(key, sizeof key, "ddp.%d.static_graph", i);
		fixed = lg_fact_of(c, r->prc, key);
		snprintf(key, sizeof key, "ddp.%d.bucket_cap_mb", i);
		cap = lg_fact_of(c, r->prc, key);
		if (unused && !strcmp(unused, "True") && !(fixed && !strcmp(fixed, "True"))) {
			x = lg_fact_finding(c, f, r, LG_R_COMMS_DDP_FLAGS, 0.8);
			if (!x)
				return;
			x->detail = "find_unused_parameters";
			x->title = "DDP walks the whole graph before every backward pass "
				   "(find_unused_parameters=True)";
			lg_cap(x, LG_CAP_UNMEASURED);
			x->stage = lg_stage_name(LG_STAGE_GRAD_SYNC);
			lg_evidence_add(c, x, INT64_MIN, 0, "it is worth its price only if some parameters get no "
					"gradient in some steps");
			return;
		}
		/* A few megabytes and many buckets of them: each pays the latency of a collective. */
		if (cap && strtol(cap, NULL, 10) < LG_N_COMMS_DDP_FLAGS_BUCKET_MB &&
		    size * 4 > (double)LG_N_COMMS_DDP_FLAGS_BUCKET_MB * 10e6) {
			x = lg_fact_finding(c, f, r, LG_R_COMMS_DDP_FLAGS, 0.7);
			if (!x)
				return;
			x->detail = "bucket_cap_mb";
			x->title = lg_arena_printf(&c->v->arena, "DDP reduces %.0f MB of gradients in buckets of "
						   "%s MB: many small collectives", size * 4 / 1e6, cap);
			lg_cap(x, LG_CAP_UNMEASURED);
			x->stage = lg_stage_name(LG_STAGE_GRAD_SYNC);
			return;
		}
	}
}

static void fsdp(struct lg_case *c, const struct lg_rank *r, struct lg_finding **f)
{
	for (int i = 0; i < MODELS_MAX; i++) {
		char key[64];
		const char *prefetch;
		struct lg_finding *x;

		snprintf(key, sizeof key, "fsdp.%d.backward_prefetch", i);
		prefetch = lg_fact_of(c, r->prc, key);
		if (!prefetch || strcmp(prefetch, "None"))
			continue;
		x = lg_fact_finding(c, f, r, LG_R_COMMS_FSDP_FLAGS, 0.8);
		if (!x)
			return;
		x->detail = "backward_prefetch";
		x->stage = lg_stage_name(LG_STAGE_BACKWARD);
		x->title = "FSDP gathers each layer's parameters in the backward pass only when they are needed "
			   "(backward_prefetch=None)";
		return;
	}
}

static void conv_autotune_off(struct lg_case *c, const struct lg_rank *r, const struct lg_fact_span *j,
			      struct lg_finding **f)
{
	const char *on = lg_fact_of(c, r->prc, "cudnn.benchmark"), *shapes = lg_fact_of(c, r->prc, "input.shapes");
	double size;
	const char *convs = model_fact(c, r, "convolutions", &size), *device = model_fact(c, r, "device", &size);
	struct lg_finding *x;

	if (!on || strcmp(on, "0") || !shapes || strtol(shapes, NULL, 10) > FEW_SHAPES || !convs ||
	    strtol(convs, NULL, 10) < 1 || !device || strcmp(device, "cuda") || j->n < MANY_STEPS)
		return;
	x = lg_fact_finding(c, f, r, LG_R_GPU_CONV_AUTOTUNE, 0.7);
	if (!x)
		return;
	x->detail = "off";
	lg_cap(x, LG_CAP_UNMEASURED); /* the default, and the choice without measuring is often a good one */
	x->title = lg_arena_printf(&c->v->arena, "%s convolutions on inputs of one shape, and cudnn.benchmark is off: "
				   "the fastest algorithm was never looked for", convs);
	lg_evidence_add(c, x, j->from, j->to - j->from, "%s shape%s of the model's inputs in %zu judged steps", shapes,
			strcmp(shapes, "1") ? "s" : "", j->n);
}

/* torch warns of the same at the loader's construction (torch/utils/data/dataloader.py,
 * _check_worker_number_rationality); ranks of one machine that share its CPUs are not in that. */
static void workers_oversubscribed(struct lg_case *c, const struct lg_rank *r, struct lg_finding **f)
{
	const char *workers = lg_fact_of(c, r->prc, "loader.num_workers");
	const char *may = lg_fact_of(c, r->prc, "cpu.affinity");
	long n = workers ? strtol(workers, NULL, 10) : 0, cpus = may ? strtol(may, NULL, 10) : 0;
	struct lg_finding *x;

	if (cpus < 1 || n <= cpus)
		return;
	x = lg_fact_finding(c, f, r, LG_R_DATA_WORKERS_OVERSUBSCRIBED, 0.9);
	if (!x)
		return;
	x->stage = lg_stage_name(LG_STAGE_BATCH_WAIT);
	x->title = lg_arena_printf(&c->v->arena, "the loader has %ld workers, and its process may use %ld CPU%s", n, cpus,
				   cpus > 1 ? "s" : "");
	lg_evidence_add(c, x, INT64_MIN, 0, "num_workers=%ld; the process's affinity has %ld CPU%s", n, cpus,
			cpus > 1 ? "s" : "");
}

int lg_find_flags(struct lg_case *c)
{
	struct lg_finding *under = NULL, *half = NULL, *d = NULL, *s = NULL, *conv = NULL, *workers = NULL;

	for (size_t i = 0; i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];
		struct lg_fact_span j = lg_fact_window(c, r);

		if (!j.n)
			continue;
		backward_under_autocast(c, r, &j, &under);
		manual_half(c, r, &half);
		ddp(c, r, &d);
		fsdp(c, r, &s);
		conv_autotune_off(c, r, &j, &conv);
		workers_oversubscribed(c, r, &workers);
	}
	return c->failed;
}
