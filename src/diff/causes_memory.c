/* SPDX-License-Identifier: Apache-2.0 */
/* causes_memory.c - a change that saves memory and costs time: checkpointing, sharding, accumulation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff/causes.h"

static double count_of(const struct lg_side *s, uint8_t kind, const char *part)
{
	double n = 0;

	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i].kind == kind && strstr(s->items[i].name, part))
			n += s->items[i].count;
	return n;
}

/* aten::native_layer_norm and the n bytes "NativeLayerNorm"? */
static bool same_operator(const char *forward, const char *backward, size_t n)
{
	size_t m = 0;

	if (strncmp(forward, "aten::", 6))
		return false;
	for (forward += 6; *forward; forward++) {
		if (*forward == '_')
			continue;
		if (m == n || (*forward | 32) != (backward[m] | 32))
			return false;
		m++;
	}
	return m == n;
}

static double calls_of(const struct lg_side *s, const char *backward, size_t n, double *ret_forward)
{
	double calls = 0;

	*ret_forward = 0;
	for (size_t i = 0; i < s->n_items; i++) {
		const struct lg_item *o = &s->items[i];

		if (o->kind != LG_ITEM_OP)
			continue;
		if (!strncmp(o->name, backward, n) && !strcmp(o->name + n, "Backward0"))
			calls += o->count;
		else if (same_operator(o->name, backward, n))
			*ret_forward += o->count;
	}
	return calls;
}

/*
 * "AddmmBackward0" is the backward of aten::addmm: with recomputation there are twice as many forward
 * operators for one of their backward. Operators call each other, and more often the larger the inputs are:
 * so each name is compared with itself, and none counts for more than that.
 */
static double more_forwards(const struct lg_side *b, const struct lg_side *a)
{
	double sum = 0, weight = 0;

	for (size_t i = 0; i < a->n_items; i++) {
		const struct lg_item *o = &a->items[i];
		const char *end = strstr(o->name, "Backward0");
		size_t n = end ? (size_t)(end - o->name) : 0;
		double fb, fa, cb, ca;

		/* "autograd::engine::evaluate_function: AddmmBackward0" encloses the operator itself. Rows of
		 * one name and several shapes stand together. */
		if (o->kind != LG_ITEM_OP || !n || end[9] || strchr(o->name, ':') ||
		    (i && !strcmp(a->items[i - 1].name, o->name)))
			continue;
		cb = calls_of(b, o->name, n, &fb);
		ca = calls_of(a, o->name, n, &fa);
		if (!(cb > 0) || !(fb > 0))
			continue;
		sum += ca * fmin(2, fa / ca / (fb / cb));
		weight += ca;
	}
	return weight > 0 ? sum / weight : (double)NAN;
}

static void memory_change(struct lg_causes *c, const char *detail, const char *title, uint32_t set,
			  const char *proof)
{
	double lo, ms = lg_cause_drain(c, set, &lo);
	struct lg_finding *f;

	if (ms < LG_N_REGRESS_MEMORY_SAVING_FLOOR * c->d->mean_ms[1])
		return; /* bought for nothing measurable: no news */
	f = lg_cause_add(c, LG_R_REGRESS_MEMORY_SAVING);
	if (!f)
		return;
	f->detail = detail;
	f->confidence = 0.85;
	f->title = lg_arena_printf(&c->d->v.arena, "%s: %.2f ms per step", title, ms);
	lg_cause_price(c, f, ms, lo);
	lg_cause_say(c, f, "%s", proof);
	lg_cause_top_items(c, f, "op");
	lg_cause_top_items(c, f, "kernel");
	lg_cause_share(c, f->title, f->id, ms);
}

void lg_causes_memory(struct lg_causes *c)
{
	const struct lg_side *b = c->d->before, *a = c->d->after;
	double x = count_of(b, LG_ITEM_OP, "Checkpoint"), y = count_of(a, LG_ITEM_OP, "Checkpoint");
	double more = more_forwards(b, a);
	double gb = count_of(b, LG_ITEM_COLLECTIVE, "gather") + count_of(b, LG_ITEM_COLLECTIVE, "scatter");
	double ga = count_of(a, LG_ITEM_COLLECTIVE, "gather") + count_of(a, LG_ITEM_COLLECTIVE, "scatter");
	double sb = count_of(b, LG_ITEM_STAGE_CALL, "backward"), sa = count_of(a, LG_ITEM_STAGE_CALL, "backward");
	struct lg_arena *ar = &c->d->v.arena;
	uint32_t compute = lg_cause_compute_stages(c, false);

	if (b->n_items && ((y > 0 && x <= 0) || more > 1.25))
		memory_change(c, "checkpointing", "activation checkpointing runs forward operators again in the "
			      "backward pass", compute,
			      y > 0 && x <= 0 ? lg_arena_printf(ar, "checkpointed functions per step: 0 before, %.1f after", y)
			      : lg_arena_printf(ar, "forward operators for one of their backward: %.2f times as many "
						"as before", more));
	if (b->n_items && ga >= 1 && ga > 2 * gb)
		memory_change(c, "sharding", "parameters are sharded now and gathered in every step",
			      1u << LG_STAGE_GRAD_SYNC | 1u << LG_STAGE_FORWARD | 1u << LG_STAGE_BACKWARD,
			      lg_arena_printf(ar, "gathers and scatters per step: %.1f before, %.1f after", gb, ga));
	if (sb > 0 && sa > 1.5 * sb)
		memory_change(c, "accumulation", "gradients are accumulated over more backward passes a step",
			      compute, lg_arena_printf(ar, "backward passes per step: %.1f before, %.1f after", sb, sa));
}
