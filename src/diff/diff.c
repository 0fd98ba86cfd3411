/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - two sides to one verdict: who is compared, then changes.c and causes.c. */
#include "diff/diff.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

void lg_diff_free(struct lg_diff *d)
{
	if (!d)
		return;
	lg_arena_done(&d->v.arena);
	lg_free(d);
}

static void limits(struct lg_diff *d)
{
	static const char *const names[] = { "before", "after" };
	const struct lg_side *side[] = { d->before, d->after };
	struct lg_verdict *v = &d->v;

	v->limits = lg_arena_alloc(&v->arena, side[0]->n_limits + side[1]->n_limits + 1, sizeof *v->limits);
	v->n_limits = 0;
	for (int i = 0; v->limits && i < 2; i++)
		for (size_t k = 0; k < side[i]->n_limits; k++)
			v->limits[v->n_limits++] = lg_arena_printf(&v->arena, "%s: %s", names[i],
								   side[i]->limits[k]);
	if (v->limits && !d->after->n_findings && d->after->stored)
		v->limits[v->n_limits++] = "AFTER is a stored baseline: its causes are known by id only";
}

static void inputs(struct lg_diff *d)
{
	const struct lg_side *side[] = { d->before, d->after };
	struct lg_verdict *v = &d->v;

	v->inputs = lg_arena_alloc(&v->arena, side[0]->n_inputs + side[1]->n_inputs + 1, sizeof *v->inputs);
	v->n_inputs = 0;
	for (int i = 0; v->inputs && i < 2; i++)
		for (size_t k = 0; k < side[i]->n_inputs; k++)
			v->inputs[v->n_inputs++] = side[i]->inputs[k];
}

int lg_diff_new(const struct lg_side *before, const struct lg_side *after,
		const struct lg_verdict *after_v, double fail_over, struct lg_diff **ret,
		struct lg_error *err)
{
	struct lg_diff *d = lg_calloc(1, sizeof *d);
	int rc;

	if (!d)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* The steps, stages and bound of AFTER are this verdict's own, as in schema 1. */
	if (after_v)
		d->v = *after_v;
	else
		d->v.bound_confidence = d->v.unexplained_share = d->v.period_s = d->v.period_p =
			d->v.shift_s = d->v.slope = d->v.slow_threshold_ms = d->v.min_ms =
			d->v.max_ms = (double)NAN;
	d->v.arena = (struct lg_arena){ 0 };
	d->before = before;
	d->after = after;
	d->gate.limit = fail_over;
	rc = lg_diff_changes(d);
	if (!rc && !after_v) {
		d->v.n_judged = after->s.n;
		d->v.median_ms = d->median_ms[1];
		d->v.p99_ms = d->p99_ms[1];
	}
	if (!rc)
		rc = lg_diff_causes(d, after_v);
	limits(d);
	inputs(d);
	if (rc || d->v.arena.failed) {
		lg_diff_free(d);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = d;
	return 0;
}
