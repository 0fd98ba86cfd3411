/* SPDX-License-Identifier: Apache-2.0 */
/* prints.c - see prints.h. */
#include "analyse/hook/prints.h"

#include <stdlib.h>
#include <string.h>

#include "base/each.h"
#include "base/order.h"

static const char *const marks[] = {
	[LG_PRINT_RNG] = "det.rng",   [LG_PRINT_INPUT] = "det.input", [LG_PRINT_LOSS] = "det.loss",
	[LG_PRINT_GRAD] = "det.grad", [LG_PRINT_PARAM] = "det.param", [LG_PRINT_OUTSIDE] = "det.outside",
	[LG_PRINT_OP] = "det.op",
};

const char *lg_print_kind_text(uint8_t kind)
{
	static const char *const words[] = {
		[LG_PRINT_RNG] = "rng",   [LG_PRINT_INPUT] = "input", [LG_PRINT_LOSS] = "loss",
		[LG_PRINT_GRAD] = "grad", [LG_PRINT_PARAM] = "param", [LG_PRINT_OUTSIDE] = "param",
	};

	return kind < LG_COUNT(words) ? words[kind] : NULL;
}

const char *lg_print_fact(const struct lg_trace *t, lg_prc prc, const char *key)
{
	const char *value = NULL;

	for (size_t i = 0; i < t->meta.n; i++)
		if (t->meta.prc[i] == prc && !strcmp(lg_string(t, t->meta.key[i]), key))
			value = lg_string(t, t->meta.value[i]);
	return value;
}

/* LG_PRINT_KINDS: another mark. *ret_step: it says of which step the following are. */
static uint8_t kind_of(const char *name, bool *ret_step, bool *ret_number)
{
	*ret_step = *ret_number = false;
	if (strncmp(name, "det.", 4))
		return LG_PRINT_KINDS;
	*ret_step = !strcmp(name, "det.step");
	for (uint8_t k = 0; k < LG_PRINT_KINDS; k++)
		if (!strcmp(name, marks[k])) {
			*ret_number = k == LG_PRINT_LOSS;
			return k;
		}
	return strcmp(name, "det.tensor_loss") ? LG_PRINT_KINDS : LG_PRINT_LOSS;
}

LG_ORDER_BY(by_rank, struct lg_prints, LG_CMP(x->rank, y->rank) ?: LG_CMP(x->prc, y->prc))

/* A list for each process that has fingerprints; *of: process row to its number + 1. */
static int list(const struct lg_trace *t, struct lg_arena *a, uint32_t *of, struct lg_prints **ret,
		size_t *ret_n)
{
	struct lg_prints *p = NULL;
	bool step, number;
	size_t n = 0;

	for (size_t i = 0; i < t->mark.n; i++) {
		lg_prc prc = t->thread.prc[t->mark.thr[i]];

		if (kind_of(lg_string(t, t->mark.name[i]), &step, &number) == LG_PRINT_KINDS)
			continue;
		if (!of[prc]) {
			const char *every;

			p = lg_arena_room(a, p, n, sizeof *p);
			if (!p)
				return LG_E_NOMEM;
			every = lg_print_fact(t, prc, "det.every");
			p[n] = (struct lg_prints){ .t = t,
						   .prc = prc,
						   .rank = t->process.rank[prc],
						   .every = every ? strtol(every, NULL, 10) : 1 };
			p[n].every = LG_MAX(p[n].every, 1);
			of[prc] = (uint32_t)++n;
		}
		p[of[prc] - 1].n++;
	}
	LG_EACH(one, p, n) {
		one->v = lg_arena_alloc(a, one->n, sizeof *one->v);
		if (!one->v)
			return LG_E_NOMEM;
		one->n = 0;
	}
	*ret = p;
	*ret_n = n;
	return 0;
}

/* What is being read of one process. */
struct reading {
	int64_t step;
	size_t from; /* its first fingerprint */
	bool open;
};

/* A step whose fingerprints are not all there is none: some were lost, or it was cut. */
static void end_step(struct lg_prints *p, struct reading *r, int64_t count)
{
	if (!r->open || (int64_t)(p->n - r->from) != count)
		p->n = r->from;
	r->from = p->n;
	r->open = false;
}

static void put(struct lg_prints *p, struct reading *r, const struct lg_print *v)
{
	if (!r->open)
		return;
	p->v[p->n] = *v;
	p->v[p->n++].step = r->step;
}

int lg_prints_of(const struct lg_trace *t, struct lg_arena *a, struct lg_prints **ret, size_t *ret_n)
{
	uint32_t *of = lg_arena_alloc(a, t->process.n + 1, sizeof *of);
	struct reading *at = lg_arena_alloc(a, t->process.n + 1, sizeof *at);
	bool step, number;
	int rc;

	*ret = NULL;
	*ret_n = 0;
	if (!of || !at)
		return LG_E_NOMEM;
	rc = list(t, a, of, ret, ret_n);
	if (rc || !*ret_n)
		return rc;
	for (size_t i = 0; i < t->mark.n; i++) {
		lg_prc prc = t->thread.prc[t->mark.thr[i]];
		const char *name = lg_string(t, t->mark.name[i]);
		uint8_t kind = of[prc] ? kind_of(name, &step, &number) : LG_PRINT_KINDS;
		struct lg_prints *p = of[prc] ? &(*ret)[of[prc] - 1] : NULL;

		if (!p)
			continue;
		if (kind != LG_PRINT_KINDS) {
			put(p, &at[prc],
			    &(struct lg_print){ .value = t->mark.value[i],
						.name = t->mark.text[i],
						.kind = kind,
						.number = number });
		} else if (step) {
			end_step(p, &at[prc], -1);
			at[prc] = (struct reading){ .step = t->mark.value[i], .from = p->n, .open = true };
		} else if (!strcmp(name, "det.end")) {
			end_step(p, &at[prc], t->mark.value[i]);
		}
	}
	for (size_t prc = 0; prc < t->process.n; prc++)
		if (of[prc])
			end_step(&(*ret)[of[prc] - 1], &at[prc], -1);
	LG_SORT(*ret, *ret_n, by_rank);
	return 0;
}

size_t lg_print_step_end(const struct lg_prints *p, size_t i)
{
	size_t end = i;

	while (end < p->n && p->v[end].step == p->v[i].step)
		end++;
	return end;
}
