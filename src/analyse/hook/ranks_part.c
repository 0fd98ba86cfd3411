/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks_part.c - parameters that part between the ranks of a DistributedDataParallel job.
 *
 * DDP makes them equal when it wraps the model, and reduces the gradients; that they stay equal is
 * left to the program. So only names are compared that were equal once, at the end of a step or before
 * the first: a pipeline's ranks may have other tensors of one name, and differ from the beginning.
 */
#include <string.h>

#include "analyse/finders.h"
#include "analyse/hook/prints.h"
#include "base/map.h"

/* What a parameter is at the end of a step of a rank, or before the first. */
struct last {
	int64_t value;
	bool known, outside;
};

/* Of a real job: a thousand ranks, ten thousand names. Beyond that, and beyond so many
 * comparisons, nothing is said. */
enum { CELLS_MAX = 1 << 24 };
#define LOOKS_MAX INT64_C(2000000000)

struct look {
	const struct lg_prints *p;
	size_t n, n_names;
	struct last *last; /* [n][n_names] */
	bool *once;        /* [n_names]: equal on all ranks, once */
	lg_str *name;      /* [n_names] of the trace */
	size_t *at;        /* [n]: the next fingerprint of each */
};

static bool is_param(const struct lg_print *v)
{
	return v->kind == LG_PRINT_PARAM || v->kind == LG_PRINT_OUTSIDE;
}

/* Parameters of the first rank, each name once; *index: name to its number + 1. */
static int names(struct look *k, struct lg_arena *a, struct lg_map *index)
{
	const struct lg_prints *p = &k->p[0];

	for (size_t i = 0; i < p->n; i++) {
		if (!is_param(&p->v[i]) || lg_map_get(index, p->v[i].name))
			continue;
		k->name = lg_arena_room(a, k->name, k->n_names, sizeof *k->name);
		if (!k->name)
			return LG_E_NOMEM;
		k->name[k->n_names++] = p->v[i].name;
		if (lg_map_set(index, p->v[i].name, (uint32_t)k->n_names))
			return LG_E_NOMEM;
	}
	if (k->n_names > CELLS_MAX / k->n)
		k->n_names = 0;
	k->last = lg_arena_alloc(a, k->n * k->n_names + 1, sizeof *k->last);
	k->once = lg_arena_alloc(a, k->n_names + 1, sizeof *k->once);
	k->at = lg_arena_alloc(a, k->n, sizeof *k->at);
	return k->last && k->once && k->at ? 0 : LG_E_NOMEM;
}

/* Take what rank r has of a step. */
static void take(struct look *k, size_t r, int64_t step, const struct lg_map *index)
{
	const struct lg_prints *p = &k->p[r];

	for (size_t i = 0; i < k->n_names; i++)
		k->last[r * k->n_names + i].outside = false;
	while (k->at[r] < p->n && p->v[k->at[r]].step < step)
		k->at[r]++;
	for (; k->at[r] < p->n && p->v[k->at[r]].step == step; k->at[r]++) {
		const struct lg_print *v = &p->v[k->at[r]];
		uint32_t i = is_param(v) ? lg_map_get(index, v->name) : 0;

		if (i && i <= k->n_names) {
			struct last *l = &k->last[r * k->n_names + i - 1];

			l->outside |= v->kind == LG_PRINT_OUTSIDE;
			l->value = v->value;
			l->known = true;
		}
	}
}

/* Who has another value than most, or changed it alone; -1 = not to be told. */
static int32_t who(const struct look *k, size_t i)
{
	size_t odd = 0, odd_at = 0, outside = 0, outside_at = 0;

	for (size_t r = 0; r < k->n; r++) {
		const struct last *l = &k->last[r * k->n_names + i];
		size_t same = 0;

		for (size_t q = 0; q < k->n; q++)
			same += k->last[q * k->n_names + i].value == l->value;
		if (2 * same <= k->n && ++odd)
			odd_at = r;
		if (l->outside && ++outside)
			outside_at = r;
	}
	return outside == 1 ? k->p[outside_at].rank : odd == 1 ? k->p[odd_at].rank : -1;
}

static bool part_at(struct look *k, int64_t step, struct lg_ranks_part *ret)
{
	size_t found = SIZE_MAX;

	for (size_t i = 0; i < k->n_names; i++) {
		bool all = true, equal = true;

		for (size_t r = 0; r < k->n; r++) {
			const struct last *l = &k->last[r * k->n_names + i];

			all &= l->known;
			equal &= l->value == k->last[i].value;
		}
		if (all && !equal && k->once[i] && found == SIZE_MAX)
			found = i;
		k->once[i] |= all && equal;
	}
	if (found == SIZE_MAX) {
		ret->equal_at = step;
		return false;
	}
	ret->found = true;
	ret->step = step;
	ret->tensor = k->name[found];
	ret->rank = who(k, found);
	for (size_t r = 0; r < k->n; r++)
		ret->outside |= k->last[r * k->n_names + found].outside;
	ret->ranks[0] = k->p[0].rank;
	for (size_t r = 1; r < k->n; r++)
		if (k->last[r * k->n_names + found].value != k->last[found].value) {
			ret->ranks[1] = k->p[r].rank;
			break;
		}
	return true;
}

/* Before the first step, after DDP has made them equal: nothing has parted there. */
static void before(struct look *k, const struct lg_map *index)
{
	struct lg_ranks_part none;

	for (size_t r = 0; r < k->n; r++) {
		const struct lg_prints *p = &k->p[r];

		for (size_t i = 0;
		     i < p->n && p->v[i].step == p->v[0].step && p->v[i].kind != LG_PRINT_LOSS; i++) {
			uint32_t at = is_param(&p->v[i]) ? lg_map_get(index, p->v[i].name) : 0;

			if (at && at <= k->n_names)
				k->last[r * k->n_names + at - 1] =
					(struct last){ .value = p->v[i].value, .known = true };
		}
	}
	(void)part_at(k, 0, &none);
}

int lg_ranks_part(const struct lg_prints *p, size_t n, struct lg_arena *a, struct lg_ranks_part *ret)
{
	struct look k = { .p = p };
	struct lg_map index = { 0 };
	int64_t looks = 0;
	int rc;

	*ret = (struct lg_ranks_part){ .rank = -1, .equal_at = -1 };
	for (size_t r = 0; r < n; r++)
		k.n += p[r].rank >= 0 && lg_print_fact(p[r].t, p[r].prc, "ddp.0.broadcast_buffers") != NULL;
	if (k.n < 2 || k.n < n)
		return 0;
	ret->n_ranks = n;
	rc = names(&k, a, &index);
	if (!rc)
		before(&k, &index);
	for (size_t i = 0; !rc && !ret->found && i < p[0].n; i = lg_print_step_end(&p[0], i)) {
		bool all = true;

		for (size_t r = 0; r < n; r++) {
			take(&k, r, p[0].v[i].step, &index);
			all &= k.at[r] > 0 && p[r].v[k.at[r] - 1].step == p[0].v[i].step;
		}
		looks += (int64_t)(n * k.n_names);
		if (looks > LOOKS_MAX || (all && part_at(&k, p[0].v[i].step, ret)))
			break;
	}
	lg_map_done(&index);
	return rc;
}

int lg_find_ranks_part(struct lg_case *c)
{
	struct lg_prints *p;
	struct lg_ranks_part part;
	struct lg_finding *f;
	size_t n;
	int rc = lg_prints_of(c->t, &c->v->arena, &p, &n);

	rc = rc ? rc : lg_ranks_part(p, n, &c->v->arena, &part);
	if (rc || !part.found)
		return rc;
	f = lg_finding_about(c, LG_R_DET_DIVERGED, LG_STAGE_OPTIMIZER, LG_RELATION_RANK, 0.9);
	f->detail = "ranks";
	f->culprit.rank = part.rank;
	if (part.rank < 0) {
		lg_culprit_rank_add(c, f, part.ranks[0]);
		lg_culprit_rank_add(c, f, part.ranks[1]);
	}
	f->title = part.rank >= 0 ? lg_text(c, LG_SAYS_DET_DIVERGED_RANKS, (long long)part.step,
					    lg_string(c->t, part.tensor), part.rank, "the others")
				  : lg_text(c, LG_SAYS_DET_DIVERGED_TWO_RANKS, (long long)part.step,
					    lg_string(c->t, part.tensor));
	if (part.outside)
		lg_evidence(
			c, f,
			"it changed outside of the optimizer's step: between it and the next forward pass");
	if (part.equal_at >= 0)
		lg_evidence(c, f, "equal on %zu ranks up to step %lld", part.n_ranks,
			    (long long)part.equal_at);
	return rc;
}
