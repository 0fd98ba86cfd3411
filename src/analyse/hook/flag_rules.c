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

/* One rank, and what is said of a flag of it. */
struct look {
	struct lg_case *c;
	const struct lg_rank *r;
	struct lg_fact_span j;
	int model;   /* the root module with most parameters: others are losses and heads; -1 = none */
	double size; /* its parameters */
	const char *title, *evidence;
	const char *detail; /* where it is not the row's */
	double confidence;  /* the same */
};

/* "ddp.0.static_graph"; NULL = not told. */
static const char *fact(const struct look *k, const char *of, int i, const char *what)
{
	char key[64];

	snprintf(key, sizeof key, "%s.%d.%s", of, i, what);
	return i < 0 ? NULL : lg_index_fact(k->c->idx, k->r->prc, key);
}

static bool is_fact(const char *fact, const char *value)
{
	return fact && !strcmp(fact, value);
}

static void find_model(struct look *k)
{
	k->model = -1;
	for (int i = 0; i < MODELS_MAX; i++) {
		const char *list = fact(k, "model", i, "parameters");
		double all = 0;

		if (list)
			(void)elements(list, "", &all);
		k->model = all > k->size ? i : k->model;
		k->size = fmax(all, k->size);
	}
}

/* Backward operators take their types from forward; under autocast every one of them is dispatched
 * through it again, and those on its fp32 list are cast up (torch.amp: "backward under autocast is not
 * recommended"). */
static bool backward_under_autocast(struct look *k)
{
	double share = lg_fact_share(k->c, k->r->prc, "torch.autocast_backward", k->j.from, k->j.to);

	k->title = LG_SAYS_GPU_AMP_MISUSE_CAST_TWICE;
	k->evidence = lg_text(k->c, LG_SAYS_GPU_AMP_MISUSE_AUTOCAST_ON, share * 100, k->j.n);
	return share > LG_N_GPU_AMP_MISUSE_PASSES; /* one of several passes of a step is enough */
}

/* A framework that keeps float32 copies and scales the loss by itself. */
static bool scales_by_itself(const struct lg_case *c, const struct lg_rank *r)
{
	return lg_index_fact(c->idx, r->prc, "module.deepspeed") ||
	       lg_index_fact(c->idx, r->prc, "module.apex") ||
	       lg_index_fact(c->idx, r->prc, "module.megatron");
}

static bool manual_half(struct look *k)
{
	const char *scaler = lg_index_fact(k->c->idx, k->r->prc, "amp.grad_scaler");
	const char *list = fact(k, "model", k->model, "parameters");
	double all, half;

	/* Without a backward pass it is inference, where half() is right. */
	if (!list || !lg_index_fact(k->c->idx, k->r->prc, "torch.autocast_backward") ||
	    scales_by_itself(k->c, k->r))
		return false;
	half = elements(list, "float16", &all);
	k->title = lg_text(k->c, LG_SAYS_GPU_AMP_MISUSE_HALF_MODEL, 100 * half / all);
	k->evidence = lg_text(k->c, LG_SAYS_GPU_AMP_MISUSE_TYPES, list,
			      scaler ? "disabled" : "never used");
	return !(half < LG_N_GPU_AMP_MISUSE_HALF * all || is_fact(scaler, "1"));
}

static bool ddp(struct look *k)
{
	for (int i = 0; i < MODELS_MAX; i++) {
		const char *cap = fact(k, "ddp", i, "bucket_cap_mb");

		if (is_fact(fact(k, "ddp", i, "find_unused_parameters"), "True") &&
		    !is_fact(fact(k, "ddp", i, "static_graph"), "True")) {
			k->title = LG_SAYS_COMMS_DDP_FLAGS_WALKS;
			k->evidence = LG_SAYS_COMMS_DDP_FLAGS_WORTH;
			return true;
		}
		/* A few megabytes and many buckets of them: each pays the latency of a collective. */
		if (cap && strtol(cap, NULL, 10) < LG_N_COMMS_DDP_FLAGS_BUCKET_MB &&
		    k->size * 4 > (double)LG_N_COMMS_DDP_FLAGS_BUCKET_MB * 10e6) {
			k->title = lg_text(k->c, LG_SAYS_COMMS_DDP_FLAGS_BUCKETS, k->size * 4 / 1e6,
					   cap);
			k->detail = "bucket_cap_mb";
			k->confidence = 0.7;
			return true;
		}
	}
	return false;
}

static bool fsdp(struct look *k)
{
	k->title = LG_SAYS_COMMS_FSDP_FLAGS_TITLE;
	for (int i = 0; i < MODELS_MAX; i++)
		if (is_fact(fact(k, "fsdp", i, "backward_prefetch"), "None"))
			return true;
	return false;
}

static bool conv_autotune_off(struct look *k)
{
	const char *shapes = lg_index_fact(k->c->idx, k->r->prc, "input.shapes");
	const char *convs = fact(k, "model", k->model, "convolutions");

	if (!is_fact(lg_index_fact(k->c->idx, k->r->prc, "cudnn.benchmark"), "0") || !shapes ||
	    strtol(shapes, NULL, 10) > FEW_SHAPES || !convs || strtol(convs, NULL, 10) < 1 ||
	    !is_fact(fact(k, "model", k->model, "device"), "cuda") || k->j.n < MANY_STEPS)
		return false;
	k->title = lg_text(k->c, LG_SAYS_GPU_CONV_AUTOTUNE_OFF, convs);
	k->evidence = lg_text(k->c, LG_SAYS_GPU_CONV_AUTOTUNE_SHAPES, shapes,
			      strcmp(shapes, "1") ? "s" : "", k->j.n);
	return true;
}

static bool on_cuda(const struct look *k)
{
	return is_fact(fact(k, "model", k->model, "device"), "cuda");
}

/* Both are on unless somebody switches them off; cuDNN's came with torch 2.5. */
static bool attention_unfused(struct look *k)
{
	const char *cudnn = lg_index_fact(k->c->idx, k->r->prc, "sdpa.cudnn");

	k->title = LG_SAYS_GPU_MATH_ATTENTION_OFF;
	k->evidence = LG_SAYS_GPU_MATH_ATTENTION_OFF_BY;
	return on_cuda(k) && is_fact(lg_index_fact(k->c->idx, k->r->prc, "sdpa.flash"), "0") &&
	       is_fact(lg_index_fact(k->c->idx, k->r->prc, "sdpa.mem_efficient"), "0") && (!cudnn || is_fact(cudnn, "0"));
}

/* foreach=None, the default, takes many at a time on a device. */
static bool optimizer_one_by_one(struct look *k)
{
	const char *tensors = fact(k, "model", k->model, "tensors");
	long n = tensors ? strtol(tensors, NULL, 10) : 0;

	k->title = lg_text(k->c, LG_SAYS_GPU_UNFUSED_OPTIMIZER_FLAG, n);
	return on_cuda(k) && n >= LG_N_GPU_UNFUSED_OPTIMIZER_TENSORS &&
	       is_fact(lg_index_fact(k->c->idx, k->r->prc, "optimizer.foreach"), "False") &&
	       !is_fact(lg_index_fact(k->c->idx, k->r->prc, "optimizer.fused"), "True");
}

/* The default since torch 1.12. */
static bool tf32_off(struct look *k)
{
	const char *list = fact(k, "model", k->model, "parameters");
	const char *capability = lg_index_fact(k->c->idx, k->r->prc, "device.capability");
	double all = 0, full = list ? elements(list, "float32", &all) : 0;

	k->title = LG_SAYS_GPU_NO_TENSOR_CORE_TF32_OFF;
	k->evidence = lg_text(k->c, LG_SAYS_GPU_NO_TENSOR_CORE_FLAG, capability ?: "");
	return on_cuda(k) && capability && strtod(capability, NULL) >= 8 && full > all / 2 &&
	       is_fact(lg_index_fact(k->c->idx, k->r->prc, "torch.matmul_precision"), "highest") &&
	       !(lg_fact_share(k->c, k->r->prc, "torch.autocast", k->j.from, k->j.to) > 0);
}

static bool cudagraphs_skipped(struct look *k)
{
	const char *n = lg_index_fact(k->c->idx, k->r->prc, "compile.cudagraph_skips");

	k->title = LG_SAYS_GPU_LAUNCH_BOUND_NO_GRAPHS;
	k->evidence = lg_text(k->c, LG_SAYS_GPU_LAUNCH_BOUND_SKIPS, n ?: "0");
	return n && strtol(n, NULL, 10) > 0;
}

static bool pageable_batches(struct look *k)
{
	int64_t copies = 0;

	for (size_t i = 0; i < k->r->n_segs; i++)
		if (k->r->segs[i].stage == LG_STAGE_H2D && k->r->segs[i].ts >= k->j.from &&
		    k->r->segs[i].end <= k->j.to)
			copies += k->r->segs[i].end - k->r->segs[i].ts;
	k->title = lg_text(k->c, LG_SAYS_DATA_PAGEABLE_COPY_FLAG, lg_percent(copies, k->j.to - k->j.from));
	k->evidence = LG_SAYS_DATA_PAGEABLE_COPY_NOT_PINNED;
	return on_cuda(k) && is_fact(lg_index_fact(k->c->idx, k->r->prc, "loader.pin_memory"), "False") &&
	       (double)copies > LG_N_DATA_PAGEABLE_COPY_OF_STEP * (double)(k->j.to - k->j.from);
}

/* torch warns of the same at the loader's construction (torch/utils/data/dataloader.py,
 * _check_worker_number_rationality); ranks of one machine that share its CPUs are not in that. */
static bool workers_oversubscribed(struct look *k)
{
	const char *workers = lg_index_fact(k->c->idx, k->r->prc, "loader.num_workers");
	const char *may = lg_index_fact(k->c->idx, k->r->prc, "cpu.affinity");
	long n = workers ? strtol(workers, NULL, 10) : 0, cpus = may ? strtol(may, NULL, 10) : 0;

	k->title = lg_text(k->c, LG_SAYS_DATA_WORKERS_OVERSUBSCRIBED_TITLE, n, cpus,
			   cpus > 1 ? "s" : "");
	k->evidence = lg_text(k->c, LG_SAYS_DATA_WORKERS_OVERSUBSCRIBED_AFFINITY, n, cpus,
			      cpus > 1 ? "s" : "");
	return cpus >= 1 && n > cpus;
}

static const struct {
	bool (*is_set)(struct look *k); /* and what to say of it */
	enum lg_rule_id rule;
	double confidence;
	const char *detail;
	uint8_t stage;
	bool in_time;    /* its evidence is of the judged steps */
	bool unmeasured; /* it may do no harm: the default, or a good choice */
} flags[] = {
#define FLAG(is_set, rule, confidence, detail, stage, in_time, unmeasured) \
	{ is_set, rule, confidence, detail, LG_STAGE_##stage, in_time, unmeasured }
	FLAG(backward_under_autocast, LG_R_GPU_AMP_MISUSE, 0.95, "backward_under_autocast", BACKWARD, true, false),
	FLAG(manual_half, LG_R_GPU_AMP_MISUSE, 0.85, "manual_half", FORWARD, false, false),
	FLAG(ddp, LG_R_COMMS_DDP_FLAGS, 0.8, "find_unused_parameters", GRAD_SYNC, false, true),
	FLAG(fsdp, LG_R_COMMS_FSDP_FLAGS, 0.8, "backward_prefetch", BACKWARD, false, false),
	FLAG(conv_autotune_off, LG_R_GPU_CONV_AUTOTUNE, 0.7, "off", FORWARD, true, true),
	FLAG(attention_unfused, LG_R_GPU_MATH_ATTENTION, 0.85, "disabled", FORWARD, false, false),
	FLAG(optimizer_one_by_one, LG_R_GPU_UNFUSED_OPTIMIZER, 0.85, "foreach_off", OPTIMIZER, false, false),
	FLAG(tf32_off, LG_R_GPU_NO_TENSOR_CORE, 0.8, "tf32_off", FORWARD, false, true),
	FLAG(cudagraphs_skipped, LG_R_GPU_LAUNCH_BOUND, 0.85, "cudagraphs_skipped", FORWARD, false, true),
	FLAG(pageable_batches, LG_R_DATA_PAGEABLE_COPY, 0.8, "pin_memory", H2D, true, true),
	FLAG(workers_oversubscribed, LG_R_DATA_WORKERS_OVERSUBSCRIBED, 0.9, NULL, BATCH_WAIT, false, false),
};
enum { FLAGS = sizeof flags / sizeof *flags };

static void tell(struct look *k, size_t i, struct lg_finding **told)
{
	struct lg_finding *f = lg_fact_finding(k->c, told, k->r, flags[i].rule,
					       k->detail ? k->confidence : flags[i].confidence);

	if (!f)
		return;
	f->detail = k->detail ?: flags[i].detail;
	f->stage = lg_stage_name(flags[i].stage);
	f->title = k->title;
	if (flags[i].unmeasured)
		lg_cap(f, LG_CAP_UNMEASURED);
	if (k->evidence)
		lg_evidence_add(k->c, f, flags[i].in_time ? k->j.from : INT64_MIN,
				flags[i].in_time ? k->j.to - k->j.from : 0, "%s", k->evidence);
}

int lg_find_flags(struct lg_case *c)
{
	struct lg_finding *told[FLAGS] = { NULL };

	for (size_t n = 0; n < c->n_ranks; n++) {
		struct look k = { .c = c, .r = &c->ranks[n], .j = lg_fact_window(c, &c->ranks[n]) };

		if (!k.j.n)
			continue;
		find_model(&k);
		for (size_t i = 0; i < FLAGS; i++) {
			k.title = k.evidence = k.detail = NULL;
			if (flags[i].is_set(&k))
				tell(&k, i, &told[i]);
		}
	}
	return c->failed;
}
