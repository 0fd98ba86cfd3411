/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap_rules.c - what DDP and FSDP do that they need not do, or do too late, from the names that they
 * leave in a profiler's trace.
 *
 * DDP (torch/csrc/distributed/c10d/reducer.cpp): search_unused_parameters walks the graph before every
 * backward pass (find_unused_parameters=True); copy_bucket_to_grad copies every gradient out of its
 * bucket (gradient_as_bucket_view=False). Both are told by the device's time they cost here; without a
 * device, by the main thread's.
 *
 * FSDP (torch/distributed/fsdp/_runtime_utils.py): gathers of a prefetch are ordered inside
 * ..._prefetch annotations, others when their layer is reached; rate_limiter is the wait of
 * limit_all_gathers. A gather is late only if the device computes nothing meanwhile.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "analyse/timeline/cost.h"
#include "analyse/timeline/window.h"
#include "base/alloc.h"
#include "base/words.h"

#define BIT(cause) (1u << (cause))

static bool is_search(const char *s)
{
	return !strcmp(s, "torch.distributed.ddp.reducer::search_unused_parameters");
}

static bool is_copy_back(const char *s)
{
	return !strcmp(s, "torch.distributed.ddp.reducer::copy_bucket_to_grad");
}

static bool is_prefetch(const char *s)
{
	return !strncmp(s, "FullyShardedDataParallel._", 26) && strstr(s, "_prefetch");
}

static bool is_forward_hook(const char *s)
{
	return !strcmp(s, "FullyShardedDataParallel._pre_forward") ||
	       !strcmp(s, "FullyShardedDataParallel.forward") || !strncmp(s, "FSDP::pre_forward", 17);
}

static bool is_backward_hook(const char *s)
{
	return !strncmp(s, "FullyShardedDataParallel._pre_backward_hook", 43) ||
	       !strncmp(s, "FSDP::pre_backward", 18);
}

static bool is_rate_limiter(const char *s)
{
	return !strcmp(s, "FullyShardedDataParallel.rate_limiter");
}

/* Outermost spans of thr that pick() accepts. */
static int spans_of(const struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr,
		    bool (*pick)(const char *), struct lg_gpu_ivs *ret)
{
	const struct lg_trace *t = c->t;

	uint8_t *picked;
	int rc = lg_span_pick(c, pick, &picked);

	*ret = (struct lg_gpu_ivs){ 0 };
	for (uint32_t p = c->idx->span_off[thr]; picked && !rc && p < c->idx->span_off[thr + 1]; p++) {
		uint32_t row = c->idx->span[p];

		if (picked[t->span.name[row]] && t->span.ts[row] >= lg_gpu_asked_from(r) &&
		    t->span.ts[row] < r->to)
			rc = lg_gpu_iv_add(ret, t->span.ts[row],
					   lg_row_end(t, t->span.ts[row], t->span.dur[row]), row);
	}
	lg_free(picked);
	if (rc) {
		lg_free(ret->v);
		*ret = (struct lg_gpu_ivs){ 0 };
	}
	return rc;
}

/* Idle time for want of launches inside such spans goes to the wrapper. */
static int carve(struct lg_case *c, struct lg_gpu_run *r, bool (*pick)(const char *), int64_t *ret)
{
	int64_t before = r->by[LG_GPU_BY_WRAPPER];
	int rc = 0;

	for (size_t h = 0; h < r->n_host && !rc; h++) {
		struct lg_gpu_ivs a;

		rc = spans_of(c, r, r->host[h].thr, pick, &a);
		if (!rc && a.n)
			rc = lg_gpu_carve(c, r, &a, LG_GPU_BY_WRAPPER);
		lg_free(a.v);
	}
	*ret = r->by[LG_GPU_BY_WRAPPER] - before;
	return rc;
}

int lg_gpu_refine_overlap(struct lg_case *c, struct lg_gpu *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct lg_gpu_run *r = &g->run[i];

		if (!lg_gpu_judged(r))
			continue;
		if (carve(c, r, is_search, &r->ddp_search) || carve(c, r, is_copy_back, &r->ddp_copy))
			return c->failed = LG_E_NOMEM;
	}
	return 0;
}

static void ddp_words(struct lg_case *c, struct lg_finding *f, bool copies, double share, bool device)
{
	f->stage = lg_stage_name(copies ? LG_STAGE_GRAD_SYNC : LG_STAGE_FORWARD);
	f->detail = copies ? "gradient_as_bucket_view" : "find_unused_parameters";
	f->title = lg_arena_printf(&c->v->arena, "%s: %s %.0f %% of the %s%s", copies
				   ? "DDP copies every gradient out of its bucket after the reduction"
				   : "DDP looks for unused parameters before every backward pass",
				   copies || !device ? "it takes" : "the device idles", share * 100,
				   copies && device ? "device's time" : device ? "time" : "step's time",
				   copies || !device ? "" : " for it");
}

static void ddp(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	struct lg_gpu_sums search, copy;
	int64_t lost[2];
	struct lg_finding *f;

	if (lg_told(c, LG_R_COMMS_DDP_FLAGS))
		return;
	if (lg_gpu_sum_under(c, r, is_search, &search) || lg_gpu_sum_under(c, r, is_copy_back, &copy)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	lost[0] = r->ddp_search + search.savable;
	lost[1] = r->ddp_copy + copy.savable;
	for (size_t k = 0; k < 2; k++) {
		const struct lg_gpu_sums *s = k ? &copy : &search;
		double share = (double)lost[k] / (double)(r->to - r->from);

		if (!s->spans || share < LG_N_COMMS_DDP_FLAGS_FLOOR)
			continue;
		f = lg_gpu_finding(c, g, LG_R_COMMS_DDP_FLAGS, (double)lost[k] / 1e6, share, 0.9, r);
		if (!f)
			return;
		if (!s->n)
			lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_WRAPPER));
		ddp_words(c, f, k, share, true);
		lg_evidence_add(c, f, s->at ? s->at : INT64_MIN, s->longest, "%zu time%s, %zu kernel%s of %.1f ms; %.1f ms "
				"idle for want of launches meanwhile", s->spans, lg_s(s->spans), s->n, lg_s(s->n), (double)s->ns / 1e6,
				(double)(k ? r->ddp_copy : r->ddp_search) / 1e6);
	}
}

/* What thr does in such spans within r's window: ns, in all and by step. */
static int64_t host_time(struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr,
			 bool (*pick)(const char *), int64_t *by_step, struct lg_gpu_iv *ret_longest,
			 size_t *ret_n)
{
	struct lg_gpu_ivs a;
	int64_t sum = 0;

	*ret_longest = (struct lg_gpu_iv){ 0 };
	if (spans_of(c, r, thr, pick, &a)) {
		c->failed = LG_E_NOMEM;
		return 0;
	}
	for (size_t i = 0; i < a.n; i++) {
		size_t s = lg_gpu_step_of(r, a.v[i].ts);

		sum += a.v[i].end - a.v[i].ts;
		if (s < r->n_steps)
			by_step[s] += a.v[i].end - a.v[i].ts;
		if (a.v[i].end - a.v[i].ts > ret_longest->end - ret_longest->ts)
			*ret_longest = a.v[i];
	}
	*ret_n = a.n;
	lg_free(a.v);
	return sum;
}

/* Training on the CPU: what the main thread does for DDP, no operator does meanwhile. */
static void ddp_on_cpu(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	for (size_t k = 0; k < 2 && !c->failed; k++) {
		int64_t *by_step = lg_arena_alloc(&c->v->arena, r->n_steps + 1, sizeof *by_step), ns;
		struct lg_gpu_iv longest;
		struct lg_finding *f;
		size_t n = 0;
		double share;

		if (!by_step) {
			c->failed = LG_E_NOMEM;
			return;
		}
		ns = host_time(c, r, r->main, k ? is_copy_back : is_search, by_step, &longest, &n);
		share = (double)ns / (double)(r->to - r->from);
		if (!n || share < LG_N_COMMS_DDP_FLAGS_FLOOR)
			continue;
		f = lg_gpu_finding(c, g, LG_R_COMMS_DDP_FLAGS, (double)ns / 1e6, share, 0.9, r);
		if (!f)
			continue;
		lg_gpu_cap_steps(c, f, r, by_step);
		ddp_words(c, f, k, share, false);
		lg_evidence_add(c, f, longest.ts, longest.end - longest.ts, "%zu time%s, %.1f ms in all; longest", n,
				lg_s(n), (double)ns / 1e6);
	}
}

struct gathers {
	int64_t forward, backward, prefetched; /* exposed ns */
	size_t n;
	int64_t longest, at;
};

static bool is_gather(const char *s)
{
	return strcasestr(s, "AllGather") || strcasestr(s, "all_gather");
}

/* Exposed gathers by where they were ordered. */
static int gathers_of(struct lg_case *c, const struct lg_gpu_run *r, struct gathers *ret)
{
	const struct lg_trace *t = c->t;
	uint32_t *call = lg_calloc(t->span.n, sizeof *call);

	*ret = (struct gathers){ 0 };
	if (!call)
		return LG_E_NOMEM;
	for (size_t i = 0; i < r->n_work; i++)
		if (r->work[i].call != LG_NO_ROW)
			call[r->work[i].span] = r->work[i].call + 1;
	for (size_t h = 0; h < r->n_host; h++) {
		lg_thr thr = r->host[h].thr;
		struct lg_gpu_ivs pre = { 0 }, forward = { 0 }, backward = { 0 };

		if (spans_of(c, r, thr, is_prefetch, &pre) ||
		    spans_of(c, r, thr, is_forward_hook, &forward) ||
		    spans_of(c, r, thr, is_backward_hook, &backward))
			c->failed = LG_E_NOMEM;
		for (size_t i = 0; i < r->n_pieces && !c->failed; i++) {
			const struct lg_gpu_piece *p = &r->piece[i];
			uint32_t row = p->cause == LG_GPU_BY_COMM && p->span != LG_NO_ROW ? call[p->span] : 0;
			int64_t at;

			if (!row || t->span.thr[row - 1] != thr ||
			    !is_gather(lg_string(t, t->span.name[p->span])))
				continue;
			at = t->span.ts[row - 1];
			if (lg_gpu_within(&pre, at))
				ret->prefetched += p->dur;
			else if (lg_gpu_within(&backward, at))
				ret->backward += p->dur;
			else if (lg_gpu_within(&forward, at))
				ret->forward += p->dur;
			else
				continue;
			ret->n++;
			if (p->dur > ret->longest) {
				ret->longest = p->dur;
				ret->at = p->ts;
			}
		}
		lg_free(pre.v);
		lg_free(forward.v);
		lg_free(backward.v);
	}
	lg_free(call);
	return c->failed;
}

static bool has_name(const struct lg_case *c, bool (*pick)(const char *))
{
	for (size_t i = 0; i < c->n_span_names; i++)
		if (pick(lg_string(c->t, c->span_names[i])))
			return true;
	return false;
}

/* Of the gathers alone, where f has other parts. */
static void gathers_advice(struct lg_finding *f, const char *detail, const char *fix)
{
	const char *tradeoff = "Prefetch holds two layers' parameters; larger units and hybrid sharding take more memory.";

	for (size_t i = 0; i < f->n_loss_parts; i++)
		if (f->loss_parts[i].detail && !strcmp(f->loss_parts[i].detail, "shards")) {
			f->loss_parts[i].fix = fix;
			f->loss_parts[i].tradeoff = tradeoff;
		}
	if (f->n_loss_parts && (!f->detail || strcmp(f->detail, "shards")))
		return;
	f->detail = detail;
	if (f->n_loss_parts)
		return;
	f->fix = fix;
	f->tradeoff = tradeoff;
}

/* Refines comms.exposed, which has the time: it is not lost twice. */
static void fsdp(struct lg_case *c, const struct lg_gpu_run *r)
{
	struct lg_finding *f = NULL;
	struct gathers s;
	double of;

	for (size_t i = 0; i < c->v->n_findings; i++)
		if (c->v->findings[i].rule == LG_R_COMMS_EXPOSED ||
		    c->v->findings[i].rule == LG_R_COMMS_SMALL_MESSAGES)
			f = &c->v->findings[i];
	if (!f || !(f->lost_ms > 0) ||
	    (!has_name(c, is_forward_hook) && !has_name(c, is_backward_hook)) || gathers_of(c, r, &s))
		return;
	of = (double)r->by[LG_GPU_BY_COMM];
	if ((double)(s.forward + s.backward + s.prefetched) < 0.3 * of)
		return; /* the exposed ones are others */
	if (s.backward > s.forward && s.backward * 2 > s.prefetched)
		gathers_advice(f, "fsdp_backward_prefetch",
			       "FullyShardedDataParallel(..., backward_prefetch=BackwardPrefetch.BACKWARD_PRE); with "
			       "fully_shard: module.set_modules_to_backward_prefetch([...]).");
	else if (s.forward * 2 > s.prefetched)
		gathers_advice(f, "fsdp_forward_prefetch",
			       "FullyShardedDataParallel(..., forward_prefetch=True) where the order of layers is fixed; "
			       "with fully_shard: module.set_modules_to_forward_prefetch([...]); or wrap larger units, "
			       "so that each gather has more compute to hide under.");
	else
		gathers_advice(f, "fsdp_gathers",
			       "Gathers are prefetched and still too slow: larger units, sharding within a machine only "
			       "(ShardingStrategy.HYBRID_SHARD), bf16 parameters (MixedPrecision), a larger batch.");
	lg_evidence_add(c, f, s.at, s.longest, "FSDP's gathers alone on the device: %.1f ms ordered when forward "
			"reached the layer, %.1f ms when backward did, %.1f ms by prefetch",
			(double)s.forward / 1e6, (double)s.backward / 1e6, (double)s.prefetched / 1e6);
}

/* limit_all_gathers makes the host wait: that shows as a synchronisation. */
static void rate_limiter(struct lg_case *c, const struct lg_gpu_run *r)
{
	struct lg_finding *f = NULL;
	int64_t waited = 0;

	for (size_t i = 0; i < c->v->n_findings; i++)
		if (c->v->findings[i].rule == LG_R_GPU_HOST_SYNC)
			f = &c->v->findings[i];
	for (size_t h = 0; f && h < r->n_host; h++) {
		struct lg_gpu_ivs a;

		if (spans_of(c, r, r->host[h].thr, is_rate_limiter, &a)) {
			c->failed = LG_E_NOMEM;
			return;
		}
		for (size_t i = 0; i < r->n_pieces; i++)
			if ((r->piece[i].cause == LG_GPU_BY_SYNC) && r->piece[i].span != LG_NO_ROW &&
			    c->t->span.thr[r->piece[i].span] == r->host[h].thr &&
			    lg_gpu_within(&a, c->t->span.ts[r->piece[i].span]))
				waited += r->piece[i].dur;
		lg_free(a.v);
	}
	if (!f || !waited || waited * 2 < r->by[LG_GPU_BY_SYNC])
		return;
	f->detail = "fsdp_limit_all_gathers";
	lg_evidence_add(c, f, INT64_MIN, 0, "%.1f ms of it in FSDP's rate limiter", (double)waited / 1e6);
}

int lg_find_overlap(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_gpu_run *worst = NULL;
	double share;

	for (size_t i = 0; lg_gpu_only(c->t) && i < g->n && !lg_told(c, LG_R_COMMS_DDP_FLAGS) && !c->failed;
	     i++)
		if (g->run[i].scope == LG_SHOWS_CPU && g->run[i].main && g->run[i].n_steps >= 3)
			ddp_on_cpu(c, g, &g->run[i]);
	(void)lg_gpu_lost(g, BIT(LG_GPU_BY_COMM) | BIT(LG_GPU_BY_WRAPPER), &share, &worst);
	if (!worst)
		return 0;
	ddp(c, g, worst);
	fsdp(c, worst);
	(void)lg_gpu_lost(g, BIT(LG_GPU_BY_SYNC), &share, &worst);
	rate_limiter(c, worst);
	return c->failed;
}
