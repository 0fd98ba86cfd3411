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
#include "analyse/device/device_rules.h"
#include "base/words.h"

/* Idle time for want of launches inside such spans goes to the wrapper: that, too, in which a synchronisation
 * before them left the host without a lead that would hide them. Nothing in them waits for the device. */
static int carve(struct lg_case *c, struct lg_gpu_run *r, enum lg_name_list list, int64_t *ret)
{
	int64_t before = r->by[LG_GPU_BY_WRAPPER];
	int rc = 0;

	for (size_t h = 0; h < r->n_host && !rc; h++) {
		LG_AUTO_IVS a = lg_gpu_spans(&c->scene, r, r->host[h].thr, list);

		rc = lg_gpu_carve(&c->scene, r, &a, LG_GPU_BIT(LG_GPU_BY_LAUNCH) |
				  LG_GPU_BIT(LG_GPU_BY_SYNC) | LG_GPU_BIT(LG_GPU_BY_PAGEABLE),
				  LG_GPU_BY_WRAPPER);
	}
	*ret = r->by[LG_GPU_BY_WRAPPER] - before;
	return rc;
}

int lg_gpu_refine_overlap(struct lg_case *c, struct lg_gpu *g)
{
	LG_EACH_WHERE(lg_gpu_judged(r), r, g->run, g->n)
		if (carve(c, r, LG_LIST_DDP_SEARCH, &r->notes->ddp_search) ||
		    carve(c, r, LG_LIST_DDP_COPY, &r->notes->ddp_copy))
			return c->failed = LG_E_NOMEM;
	return 0;
}

static void ddp_words(struct lg_case *c, struct lg_finding *f, bool copies, double share, bool device)
{
	f->stage = lg_stage_name(copies ? LG_STAGE_GRAD_SYNC : LG_STAGE_FORWARD);
	f->detail = copies ? "gradient_as_bucket_view" : "find_unused_parameters";
	lg_title(c, f, "%s: %s %.0f %% of the %s%s", copies ? LG_SAYS_COMMS_DDP_FLAGS_COPIES :
		 LG_SAYS_COMMS_DDP_FLAGS_SEARCHES, copies || !device ? "it takes" :
		 "the device idles", share * 100, copies && device ? "device's time" : device ?
		 "time" : "step's time", copies || !device ? "" : " for it");
}

static void ddp(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	const struct lg_gpu_sums sums[2] = { lg_gpu_sum_under(&c->scene, r, LG_LIST_DDP_SEARCH),
					     lg_gpu_sum_under(&c->scene, r, LG_LIST_DDP_COPY) };
	const int64_t idle[2] = { r->notes->ddp_search, r->notes->ddp_copy };
	struct lg_finding *f;

	if (lg_is_told(c, LG_R_COMMS_DDP_FLAGS))
		return;
	for (size_t k = 0; k < 2; k++) {
		const struct lg_gpu_sums *s = &sums[k];
		double lost = (double)(idle[k] + s->savable), share = lg_gpu_part(r, lost);

		if (!s->spans || share < LG_N_COMMS_DDP_FLAGS_FLOOR)
			continue;
		f = lg_gpu_finding(c, g, LG_R_COMMS_DDP_FLAGS, lost / 1e6, share, 0.9, r);
		if (!s->n)
			lg_gpu_cap_rare(c, f, r, LG_GPU_BIT(LG_GPU_BY_WRAPPER));
		/* Its time differs from rank to rank: the others wait for it, too. */
		f->device_causes |= idle[k] ? LG_GPU_BIT(LG_GPU_BY_WRAPPER) : 0;
		ddp_words(c, f, k, share, true);
		lg_evidence_add(c, f, s->at ? s->at : INT64_MIN, s->longest,
				LG_SAYS_COMMS_DDP_FLAGS_KERNELS, s->spans, lg_s(s->spans), s->n,
				lg_s(s->n), lg_ms(s->ns), lg_ms(idle[k]));
	}
}

/* Training on the CPU: what the main thread does for DDP, no operator does meanwhile. */
static void ddp_on_cpu(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r)
{
	for (size_t k = 0; k < 2; k++) {
		enum lg_name_list list = k ? LG_LIST_DDP_COPY : LG_LIST_DDP_SEARCH;
		int64_t *by_step = lg_arena_alloc(&c->v->arena, r->n_steps + 1, sizeof *by_step), ns;
		LG_AUTO_IVS a = lg_gpu_spans(&c->scene, r, r->main, list);
		struct lg_iv longest = { 0 };
		struct lg_finding *f;

		if (lg_failed(c, by_step ? c->failed : LG_E_NOMEM))
			return;
		for (size_t i = 0; i < a.n; i++) {
			by_step[lg_gpu_step_of(r, a.v[i].ts)] += a.v[i].end - a.v[i].ts;
			if (a.v[i].end - a.v[i].ts > longest.end - longest.ts)
				longest = a.v[i];
		}
		ns = lg_iv_sum(&a);
		if (!a.n || lg_gpu_part(r, (double)ns) < LG_N_COMMS_DDP_FLAGS_FLOOR)
			continue;
		f = lg_gpu_finding(c, g, LG_R_COMMS_DDP_FLAGS, lg_ms(ns), lg_gpu_part(r, (double)ns),
				   0.9, r);
		lg_gpu_cap_steps(c, f, r, by_step);
		ddp_words(c, f, k, lg_gpu_part(r, (double)ns), false);
		lg_evidence_add(c, f, longest.ts, longest.end - longest.ts, LG_SAYS_ANY_TIMES, a.n,
				lg_s(a.n), lg_ms(ns));
	}
}

struct gathers {
	int64_t forward, backward, prefetched; /* exposed ns */
	size_t n;
	int64_t longest, at;
};

/* Exposed gathers by where they were ordered. */
static int gathers_of(struct lg_case *c, const struct lg_gpu_run *r, struct gathers *ret)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint32_t *call = lg_calloc(t->span.n, sizeof *call);

	*ret = (struct gathers){ 0 };
	if (!call)
		return LG_E_NOMEM;
	LG_EACH(w, r->work, r->n_work)
		if (w->call != LG_NO_ROW)
			call[w->span] = w->call + 1;
	for (size_t h = 0; h < r->n_host; h++) {
		lg_thr thr = r->host[h].thr;
		LG_AUTO_IVS pre = lg_gpu_spans(&c->scene, r, thr, LG_LIST_FSDP_PREFETCH);
		LG_AUTO_IVS forward = lg_gpu_spans(&c->scene, r, thr, LG_LIST_FSDP_FORWARD);
		LG_AUTO_IVS backward = lg_gpu_spans(&c->scene, r, thr, LG_LIST_FSDP_BACKWARD);

		LG_EACH_WHILE(!c->failed, p, r->piece, r->n_pieces) {
			uint32_t row = p->cause == LG_GPU_BY_COMM && p->span != LG_NO_ROW ? call[p->span] : 0;
			int64_t at;

			if (!row || t->span.thr[row - 1] != thr ||
			    !lg_on_list(LG_LIST_GATHERS, lg_span_name(t, p->span)))
				continue;
			at = t->span.ts[row - 1];
			if (lg_iv_within(&pre, at))
				ret->prefetched += p->dur;
			else if (lg_iv_within(&backward, at))
				ret->backward += p->dur;
			else if (lg_iv_within(&forward, at))
				ret->forward += p->dur;
			else
				continue;
			ret->n++;
			lg_keep_longest(&ret->longest, &ret->at, p->dur, p->ts);
		}
	}
	return c->failed;
}

static bool has_name(const struct lg_case *c, enum lg_name_list list)
{
	for (size_t i = 0; i < c->scene.n_span_names; i++)
		if (lg_on_list(list, lg_string(c->t, c->scene.span_names[i])))
			return true;
	return false;
}

/* The gathers' advice; where f has other parts, it is that of the gathers alone. */
static void advise_gathers(struct lg_finding *f, const char *key)
{
	bool shards = f->detail && !strcmp(f->detail, "shards");

	for (size_t i = 0; i < f->n_loss_parts; i++)
		if (f->loss_parts[i].detail && !strcmp(f->loss_parts[i].detail, "shards"))
			f->loss_parts[i].detail = key;
	if (!f->n_loss_parts || shards)
		f->detail = key;
}

/* The last of that rule, or of the other. */
static struct lg_finding *found(const struct lg_case *c, enum lg_rule_id rule, enum lg_rule_id other)
{
	struct lg_finding *f = NULL;

	for (size_t i = 0; i < c->v->n_findings; i++)
		if (c->v->findings[i].rule == rule || c->v->findings[i].rule == other)
			f = &c->v->findings[i];
	return f;
}

/* Refines comms.exposed, which has the time: it is not lost twice. */
static void fsdp(struct lg_case *c, const struct lg_gpu_run *r)
{
	struct lg_finding *f = found(c, LG_R_COMMS_EXPOSED, LG_R_COMMS_SMALL_MESSAGES);
	struct gathers s;

	if (!f || !(f->lost_ms > 0) ||
	    (!has_name(c, LG_LIST_FSDP_FORWARD) && !has_name(c, LG_LIST_FSDP_BACKWARD)) ||
	    gathers_of(c, r, &s))
		return;
	if ((double)(s.forward + s.backward + s.prefetched) < 0.3 * (double)r->by[LG_GPU_BY_COMM])
		return; /* the exposed ones are others */
	advise_gathers(f, s.backward > s.forward && s.backward * 2 > s.prefetched ? "fsdp_backward_prefetch"
			  : s.forward * 2 > s.prefetched ? "fsdp_forward_prefetch" : "fsdp_gathers");
	lg_evidence_add(c, f, s.at, s.longest, LG_SAYS_COMMS_EXPOSED_FSDP_GATHERS, lg_ms(s.forward),
			lg_ms(s.backward), lg_ms(s.prefetched));
}

/* limit_all_gathers makes the host wait: that shows as a synchronisation. */
static void rate_limiter(struct lg_case *c, const struct lg_gpu_run *r)
{
	struct lg_finding *f = found(c, LG_R_GPU_HOST_SYNC, LG_R_GPU_HOST_SYNC);
	int64_t waited = 0;

	for (size_t h = 0; f && h < r->n_host; h++) {
		LG_AUTO_IVS a = lg_gpu_spans(&c->scene, r, r->host[h].thr, LG_LIST_FSDP_LIMITER);

		LG_EACH(p, r->piece, r->n_pieces)
			if ((p->cause == LG_GPU_BY_SYNC) && p->span != LG_NO_ROW &&
			    c->t->span.thr[p->span] == r->host[h].thr &&
			    lg_iv_within(&a, c->t->span.ts[p->span]))
				waited += p->dur;
	}
	if (!f || !waited || waited * 2 < r->by[LG_GPU_BY_SYNC])
		return;
	f->detail = "fsdp_limit_all_gathers";
	lg_evidence(c, f, LG_SAYS_GPU_HOST_SYNC_RATE_LIMITER, lg_ms(waited));
}

int lg_find_overlap(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_gpu_run *worst =
		lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_COMM) | LG_GPU_BIT(LG_GPU_BY_WRAPPER)).worst;

	for (size_t i = 0; lg_gpu_only(c->t) && i < g->n && !c->failed; i++) {
		if (lg_is_told(c, LG_R_COMMS_DDP_FLAGS))
			break;
		if (lg_cpu_judged(&g->run[i]))
			ddp_on_cpu(c, g, &g->run[i]);
	}
	if (!worst)
		return c->failed;
	ddp(c, g, worst);
	fsdp(c, worst);
	rate_limiter(c, lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_SYNC)).worst);
	return c->failed;
}
