/* SPDX-License-Identifier: Apache-2.0 */
/*
 * determinism_logs.c - two logs of one program: the first step whose printed losses differ.
 *
 * A log prints so many digits; what two of them print the same may differ behind these. Where one
 * prints fewer than the other, those that both print are compared.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/each.h"
#include "base/order.h"
#include "diff/determinism.h"

struct point {
	int64_t step, ts;
	double loss;
};

struct series {
	struct point *v;
	size_t n;
	int decimals;
};

/* So many digits behind the point make up v. */
static int decimals_of(double v)
{
	char text[64];
	int n = 0;

	if (!isfinite(v))
		return 0;
	for (n = 0; n < 12; n++) {
		double back;

		snprintf(text, sizeof text, "%.*f", n, v);
		if (sscanf(text, "%lf", &back) == 1 && back == v)
			break;
	}
	return n;
}

LG_ORDER_BY(by_step, struct point, LG_CMP(x->step, y->step) ?: LG_CMP(x->ts, y->ts))

/* Losses with the number of the step whose line prints them. */
static int read(const struct lg_trace *t, struct lg_arena *a, struct series *ret)
{
	size_t n_steps = 0, at = 0;
	int64_t step = -1;

	*ret = (struct series){ 0 };
	for (size_t i = 0; i < t->mark.n; i++)
		n_steps += !strcmp(lg_string(t, t->mark.name[i]), "log.step");
	ret->v = lg_arena_alloc(a, t->counter.n + 1, sizeof *ret->v);
	if (!ret->v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->counter.n && n_steps; i++) {
		struct point p = { .step = -1, .ts = t->counter.ts[i], .loss = t->counter.value[i] };

		if (strcmp(lg_string(t, t->track.name[t->counter.track[i]]), "log.loss"))
			continue;
		/* Of the same line, and so of the same moment: the last step at or before it. */
		for (; at < t->mark.n && t->mark.ts[at] <= p.ts; at++)
			if (!strcmp(lg_string(t, t->mark.name[at]), "log.step"))
				step = t->mark.value[at];
		p.step = step;
		if (p.step < 0)
			continue;
		ret->decimals = LG_MAX(ret->decimals, decimals_of(p.loss));
		ret->v[ret->n++] = p;
	}
	LG_SORT(ret->v, ret->n, by_step);
	return 0;
}

static bool same(double x, double y, int decimals)
{
	double unit = pow(10, -decimals);

	if (!isfinite(x) || !isfinite(y))
		return isnan(x) ? isnan(y) : x == y;
	return fabs(x - y) < 0.75 * unit; /* equal digits, or one was rounded from more of them */
}

int lg_det_logs(const struct lg_trace *before, const struct lg_trace *after, struct lg_arena *a,
		struct lg_det *ret)
{
	struct series x, y;
	int rc = read(before, a, &x), decimals;

	rc = rc ? rc : read(after, a, &y);
	if (rc || !x.n || !y.n)
		return rc;
	decimals = LG_MIN(x.decimals, y.decimals);
	for (size_t i = 0, k = 0; i < x.n && k < y.n && ret->first.step < 0;) {
		if (x.v[i].step != y.v[k].step) {
			x.v[i].step < y.v[k].step ? i++ : k++;
			continue;
		}
		ret->steps_compared++;
		if (same(x.v[i].loss, y.v[k].loss, decimals)) {
			ret->first.equal_at = x.v[i].step;
		} else {
			ret->first.step = x.v[i].step;
			ret->first.before = x.v[i].loss;
			ret->first.after = y.v[k].loss;
			ret->first.kind = ret->first.tensor = "loss";
			ret->first.decimals = LG_MAX(x.decimals, y.decimals);
		}
		i++;
		k++;
	}
	if (!ret->steps_compared)
		return 0;
	ret->basis = LG_DET_LOGS;
	ret->every = 1;
	ret->equal = ret->first.step < 0;
	ret->notes = lg_arena_room(a, ret->notes, ret->n_notes, sizeof *ret->notes);
	if (ret->notes)
		ret->notes[ret->n_notes++] =
			lg_arena_printf(a,
					"two logs: the losses that both print, to %d digits behind the "
					"point",
					decimals);
	return 0;
}
