/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backward_rules.c - what the backward pass does beside its own work, from the operators inside the rows
 * of autograd's nodes ("autograd::engine::evaluate_function: XBackward0").
 *
 * Recomputation. A node whose saved tensors were dropped runs the forward code again when it unpacks them
 * (torch/utils/checkpoint.py, use_reentrant=False), which leaves no name of its own; the reentrant kind
 * does so in CheckpointFunctionBackward. Formulas of derivatives (tools/autograd/derivatives.yaml) call
 * matrix products, sums and ..._backward: operators that only forward code calls, and modules, inside a
 * node are forward code; Python stacks name it. From the first to the last of them, all is recomputed.
 *
 * Anomaly detection (torch/csrc/autograd/engine.cpp): every output of every node is asked whether it holds
 * a NaN, by aten::isnan behind the node's row; nodes that gather gradients have no output. The host waits for
 * each answer. And every operator of forward keeps its Python stack for its node (python_anomaly_mode.cpp):
 * 50 us and more in which an operator calls nothing, where a few are usual. Without it the device would not
 * compute the answers, and not idle for what the host does meanwhile: that is its price, no other rule's.
 */
#include <stdlib.h>

#include "analyse/device/device_rules.h"
#include "rules/device_names.h"

enum { DEPTH_MAX = 64 };
enum row_kind { ROW_OTHER, ROW_NODE, ROW_GATHER, ROW_FORWARD, ROW_MODULE, ROW_NAN };

static const struct lg_name_row backward_rows[] = {
#define BACKWARD(how, text, means) { LG_MATCH_##how, text, ROW_##means },
#include "rules/device_names.def"
};

static enum row_kind kind_of(const char *s)
{
	/* With Python stacks: what unpacks a dropped tensor. */
	if (strstr(s, "torch/utils/checkpoint.py(") && (strstr(s, "): recompute_fn") || strstr(s, "unpack_hook")))
		return ROW_MODULE;
	if (!strncmp(s, "autograd::engine::evaluate_function: ", 37) && strstr(s, "AccumulateGrad"))
		return ROW_GATHER;
	return (enum row_kind)lg_name_means(backward_rows, LG_COUNT(backward_rows), s);
}

/* A node that is open, and the forward code in it so far. */
struct node {
	int64_t end, from, to;
	size_t forward;  /* operators */
	uint32_t row;    /* the first of them */
	bool gathers, checked;
	int64_t check;   /* when it was asked for NaN first */
};

/* What one run's backward pass holds. */
struct look {
	size_t nodes, checked;   /* that are no gathering of gradients; asked for NaN */
	size_t regions, forward, modules;
	int64_t checked_at;
	uint32_t row;
	struct lg_gpu_sums again; /* work launched by forward code */
	struct lg_ivs *checks;   /* when nodes are asked for NaN, where that is wanted */
};

static int close_region(struct look *l, struct node *n, struct lg_ivs *a)
{
	int rc = 0;

	if (n->to > n->from) {
		rc = lg_iv_add(a, n->from, n->to, n->row);
		l->regions++;
		l->forward += n->forward;
		if (l->row == LG_NO_ROW)
			l->row = n->row;
	}
	n->from = n->to = INT64_MIN;
	n->forward = 0;
	return rc;
}

static int close_node(struct look *l, struct node *n, struct lg_ivs *a)
{
	l->nodes += !n->gathers;
	l->checked += !n->gathers && n->checked;
	if (l->checks && n->checked && lg_iv_add(l->checks, n->check, n->end, n->row))
		return LG_E_NOMEM;
	return close_region(l, n, a);
}

/* Forward code in n. */
static void add_forward(const struct lg_trace *t, const uint8_t *kind, struct look *l, struct node *n,
			uint32_t row)
{
	int64_t ts = t->span.ts[row], end = lg_span_end(t, row);

	if (ts < n->to)
		return; /* within one that is counted */
	if (n->from == INT64_MIN) {
		n->from = ts;
		n->row = row;
	}
	n->to = LG_MIN(end, n->end);
	n->forward++;
	l->modules += kind[t->span.name[row]] == ROW_MODULE;
}

static int look_at(struct lg_case *c, const struct lg_gpu_run *r, const uint8_t *kind, lg_thr thr,
		   struct look *l)
{
	const struct lg_trace *t = c->t;
	struct node up[DEPTH_MAX];
	LG_AUTO_IVS a = { 0 };
	struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, thr, kind);
	size_t depth = 0;
	uint32_t row, lone = LG_NO_ROW; /* forward code in no node: one of equal time may follow */
	int rc = 0;

	while (!rc && lg_gpu_next_row(&rows, &row)) {
		int64_t ts = t->span.ts[row], end = lg_span_end(t, row);
		struct node *top;

		/* By rounding, the next one may begin before the last one's end. */
		while (!rc && depth &&
		       (up[depth - 1].end <= ts ||
			(up[depth - 1].end < end && up[depth - 1].end <= ts + LG_GPU_ROUNDING_NS)))
			rc = close_node(l, &up[--depth], &a);
		top = depth ? &up[depth - 1] : NULL;
		switch ((enum row_kind)kind[t->span.name[row]]) {
		case ROW_NODE:
		case ROW_GATHER:
			/* A reentrant checkpoint's node holds nodes: what it does again is before them. */
			if (!rc && top)
				rc = close_region(l, top, &a);
			if (depth < DEPTH_MAX)
				up[depth++] = (struct node){
					.end = end, .from = INT64_MIN, .to = INT64_MIN,
					.gathers = kind[t->span.name[row]] == ROW_GATHER };
			if (lone != LG_NO_ROW && t->span.ts[lone] == ts &&
			    t->span.dur[lone] < t->span.dur[row] && depth == 1)
				add_forward(t, kind, l, &up[0], lone);
			break;
		case ROW_NAN:
			if (top && !top->checked && !l->checked_at)
				l->checked_at = ts;
			if (top && !top->checked)
				top->check = ts;
			if (top)
				top->checked = true;
			break;
		case ROW_FORWARD:
		case ROW_MODULE:
			if (top)
				add_forward(t, kind, l, top, row);
			else
				lone = row;
			break;
		default:
			break;
		}
	}
	while (!rc && depth)
		rc = close_node(l, &up[--depth], &a);
	if (!rc && !l->checks)
		lg_gpu_sum_within(&c->scene, r, thr, &a, &l->again);
	return rc;
}

static void recompute(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		      const struct look *l)
{
	const struct lg_trace *t = c->t;
	/* One such operator alone may be how somebody wrote a derivative. */
	bool seen = l->again.n && (l->modules || l->forward >= 2 * l->regions);
	struct lg_gpu_sums s = l->again;
	double peak = 0, total = 0, part = 1;
	struct lg_finding *f;

	if (r->scope != LG_SHOWS_TRAINING)
		return;
	if (!seen) {
		s = lg_gpu_sum_under(&c->scene, r, LG_LIST_CHECKPOINT_NODES);
		/* Of forward again plus backward (twice forward), a third is the recomputation. */
		part = 1.0 / 3;
	}
	if (!s.n)
		return;
	for (size_t i = 0; i < t->counter.n; i++)
		if (!strcmp(lg_string(t, t->track.name[t->counter.track[i]]), "memory reserved") &&
		    t->counter.value[i] > peak)
			peak = t->counter.value[i];
	for (size_t i = 0; i < t->meta.n; i++)
		if (!strcmp(lg_string(t, t->meta.key[i]), "gpu.0.memory"))
			total = strtod(lg_string(t, t->meta.value[i]), NULL);
	if (!(peak > 0) || !(total > 0)) {
		lg_say(c, LG_SAYS_GPU_RECOMPUTE_MEMORY_UNKNOWN);
		return;
	}
	if (peak >= LG_N_GPU_RECOMPUTE_PEAK * total)
		return;
	f = lg_gpu_costs(c, g, LG_R_GPU_RECOMPUTE, r, &s, part, seen ? 0.85 : 0.75,
			 LG_N_GPU_RECOMPUTE_FLOOR);
	if (!f)
		return;
	lg_title(c, f, LG_SAYS_GPU_RECOMPUTE_TITLE, 100 * peak / total);
	lg_evidence(c, f, "peak reserved %.1f GB of %.1f GB", peak / 1e9, total / 1e9);
	if (seen)
		lg_evidence_add(c, f, l->row != LG_NO_ROW ? t->span.ts[l->row] : INT64_MIN, 0,
				LG_SAYS_GPU_RECOMPUTE_NODES, l->regions, l->row != LG_NO_ROW ?
				lg_span_name(t, l->row) : "");
}

/* Checks of one's own are on some tensors; these are on all. */
static bool is_anomaly_mode(const struct look *l)
{
	return l->checked >= LG_N_DEBUG_LEFT_ON_CHECKED && 5 * l->checked >= 4 * l->nodes;
}

/* Stretches inside r's operators of forward, on its main thread, in which they call nothing for long. */
static int kept_stacks(const struct lg_case *c, const struct lg_gpu_run *r, struct lg_ivs *a)
{
	enum { LONG_NS = 40000 };
	const struct lg_trace *t = c->t;
	struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, r->main, NULL);
	struct {
		int64_t end;
		bool op;
	} up[DEPTH_MAX];
	int64_t at = INT64_MIN, ts = 0; /* nothing began or ended since */
	size_t depth = 0;
	bool more = true;
	uint32_t row;
	int rc = 0;

	while (!rc && more) {
		more = lg_gpu_next_row(&rows, &row);
		ts = more ? t->span.ts[row] : INT64_MAX;
		for (; !rc && depth && up[depth - 1].end <= ts; depth--) {
			if (up[depth - 1].op && up[depth - 1].end - at >= LONG_NS)
				rc = lg_iv_add(a, at, up[depth - 1].end, LG_NO_ROW);
			at = LG_MAX(at, up[depth - 1].end);
		}
		if (!rc && more && depth && up[depth - 1].op && ts - at >= LONG_NS)
			rc = lg_iv_add(a, at, ts, LG_NO_ROW);
		at = ts;
		if (more && depth < DEPTH_MAX) {
			up[depth].op = t->span.kind[row] == LG_SPAN_OP;
			up[depth++].end = lg_span_end(t, row);
		}
	}
	return rc;
}

/* What thr waits for in its checks, and the kernels of these; what it waits for while it keeps stacks. */
static int charge_checks(struct lg_case *c, struct lg_gpu_run *r, lg_thr thr, const struct lg_ivs *checks)
{
	const struct lg_trace *t = c->t;
	struct lg_gpu_sums s = { .row = LG_NO_ROW };
	LG_AUTO_IVS stacks = { 0 };
	int64_t before = r->by[LG_GPU_BY_CHECK];
	const uint32_t of = LG_GPU_BIT(LG_GPU_BY_LAUNCH);
	int rc = kept_stacks(c, r, &stacks) ?: lg_gpu_carve(&c->scene, r, &stacks, of, LG_GPU_BY_CHECK);

	r->notes->checks.stacks += r->by[LG_GPU_BY_CHECK] - before;
	rc = rc ?: lg_gpu_carve(&c->scene, r, checks, of, LG_GPU_BY_CHECK);
	for (size_t i = 0; !rc && i < r->n_pieces; i++) {
		struct lg_gpu_piece *p = &r->piece[i];
		bool waits = p->cause == LG_GPU_BY_SYNC && p->span != LG_NO_ROW &&
			     t->span.thr[p->span] == thr && lg_iv_within(checks, t->span.ts[p->span]);

		if (waits || (p->cause == LG_GPU_BY_D2H && lg_iv_within(checks, p->ts)))
			lg_gpu_charge(r, p, LG_GPU_BY_CHECK);
	}
	for (size_t i = 0; !rc && i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_COMPUTE && lg_gpu_called_within(&r->work[i], thr, checks))
			lg_gpu_sum_in(&c->scene, r, i, &s);
	r->notes->checks.kernels += s.n;
	r->notes->checks.savable += s.savable;
	return rc;
}

/* By string: enum row_kind. NULL: no row is a node of autograd's, or, where nan is wanted, asks for NaN; or
 * no memory. */
static uint8_t *kinds(struct lg_case *c, bool nan)
{
	uint8_t *kind = lg_calloc(c->t->n_str + 1, 1);
	bool nodes = false, asks = false;

	for (size_t i = 0; !lg_failed(c, kind ? 0 : LG_E_NOMEM) && i < c->scene.n_span_names; i++) {
		lg_str name = c->scene.span_names[i];

		kind[name] = (uint8_t)kind_of(lg_string(c->t, name));
		nodes |= kind[name] == ROW_NODE;
		asks |= kind[name] == ROW_NAN;
	}
	if (kind && nodes && (asks || !nan))
		return kind;
	lg_free(kind);
	return NULL;
}

int lg_gpu_refine_checks(struct lg_case *c, struct lg_gpu *g)
{
	LG_AUTOFREE uint8_t *kind = kinds(c, true);

	LG_EACH_WHILE(kind && !c->failed, r, g->run, g->n)
		for (size_t h = 0; lg_gpu_judged(r) && r->main && h < r->n_host && !c->failed; h++) {
			LG_AUTO_IVS checks = { 0 };
			struct look l = { .row = LG_NO_ROW, .checks = &checks };

			if (!lg_failed(c, look_at(c, r, kind, r->host[h].thr, &l)) && is_anomaly_mode(&l))
				(void)lg_failed(c, charge_checks(c, r, r->host[h].thr, &checks));
		}
	return c->failed;
}

/* NULL: what the device does is not in the trace. */
static struct lg_finding *priced_checks(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_CHECK));
	const struct lg_gpu_run *r = l.worst;
	struct lg_finding *f;
	double kernels;

	if (!r || !r->notes->checks.kernels)
		return NULL;
	kernels = (double)r->notes->checks.savable;
	f = lg_gpu_finding(c, g, LG_R_DEBUG_LEFT_ON, l.ms + kernels / 1e6,
			   l.share + lg_gpu_part(r, kernels), 0.9, r);
	lg_gpu_cap_rare(c, f, r, l.mask);
	lg_grade_worth_a_line(f);
	lg_evidence(c, f, LG_SAYS_DEBUG_LEFT_ON_CHECKS, r->notes->checks.kernels, kernels / 1e6, l.ms,
		    lg_ms(r->notes->checks.stacks));
	return f;
}

static void anomaly(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		    const struct look *l)
{
	struct lg_finding *priced, *f;

	if (!is_anomaly_mode(l))
		return;
	priced = priced_checks(c, g);
	f = priced ?: lg_gpu_unpriced(c, g, LG_R_DEBUG_LEFT_ON, 0.9, r);
	f->stage = lg_stage_name(LG_STAGE_BACKWARD);
	f->title = LG_SAYS_DEBUG_LEFT_ON_ANOMALY;
	f->culprit.function = LG_ANOMALY_DETECTION;
	lg_evidence_add(c, f, l->checked_at, 0, LG_SAYS_DEBUG_LEFT_ON_CHECKED_NODES, l->checked,
			l->nodes);
	if (!priced)
		lg_evidence(c, f, LG_SAYS_DEBUG_LEFT_ON_UNPRICED);
}

int lg_find_backward(struct lg_case *c, struct lg_gpu *g)
{
	LG_AUTOFREE uint8_t *kind = kinds(c, false);
	struct look l = { .row = LG_NO_ROW, .again = { .row = LG_NO_ROW } };
	const struct lg_gpu_run *r = lg_gpu_first_traced(g);

	for (size_t h = 0; r && kind && h < r->n_host && !c->failed; h++)
		(void)lg_failed(c, look_at(c, r, kind, r->host[h].thr, &l));
	if (r && !c->failed)
		recompute(c, g, r, &l);
	if (r && !c->failed)
		anomaly(c, g, r, &l);
	return c->failed;
}
