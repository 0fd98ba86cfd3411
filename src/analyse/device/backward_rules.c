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
 * a NaN, by aten::isnan behind the node's row; nodes that gather gradients have no output.
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
};

/* What one run's backward pass holds. */
struct look {
	size_t nodes, checked;   /* that are no gathering of gradients; asked for NaN */
	size_t regions, forward, modules;
	int64_t checked_at;
	uint32_t row;
	struct lg_gpu_sums again; /* work launched by forward code */
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
	if (!rc)
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

static void anomaly(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		    const struct look *l)
{
	struct lg_finding *f;

	/* Checks of one's own are on some tensors; these are on all. */
	if (l->checked < LG_N_DEBUG_LEFT_ON_CHECKED || 5 * l->checked < 4 * l->nodes)
		return;
	f = lg_gpu_unpriced(c, g, LG_R_DEBUG_LEFT_ON, 0.9, r);
	f->stage = lg_stage_name(LG_STAGE_BACKWARD);
	f->title = LG_SAYS_DEBUG_LEFT_ON_ANOMALY;
	f->culprit.function = LG_ANOMALY_DETECTION;
	lg_evidence_add(c, f, l->checked_at, 0, LG_SAYS_DEBUG_LEFT_ON_CHECKED_NODES, l->checked,
			l->nodes);
	lg_evidence(c, f, LG_SAYS_DEBUG_LEFT_ON_UNPRICED);
}

int lg_find_backward(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint8_t *kind = lg_calloc(t->n_str + 1, 1);
	struct look l = { .row = LG_NO_ROW, .again = { .row = LG_NO_ROW } };
	const struct lg_gpu_run *r = lg_gpu_first_traced(g);
	bool nodes = false;

	if (!kind)
		return c->failed = LG_E_NOMEM;
	for (size_t i = 0; i < c->scene.n_span_names; i++) {
		kind[c->scene.span_names[i]] = (uint8_t)kind_of(lg_string(t, c->scene.span_names[i]));
		nodes |= kind[c->scene.span_names[i]] == ROW_NODE;
	}
	for (size_t h = 0; r && nodes && h < r->n_host && !c->failed; h++)
		(void)lg_failed(c, look_at(c, r, kind, r->host[h].thr, &l));
	if (r && !c->failed)
		recompute(c, g, r, &l);
	if (r && !c->failed)
		anomaly(c, g, r, &l);
	return c->failed;
}
