/* SPDX-License-Identifier: Apache-2.0 */
/*
 * determinism_facts.c - the setting of two runs: what was not switched on that makes operators
 * deterministic, what differs between the runs, and which operators ran that need it.
 */
#include <ctype.h>
#include <string.h>

#include "base/each.h"
#include "base/order.h"
#include "diff/determinism.h"

enum { FACTS_MAX = 16, LOOKS_MAX = 512 };

static const char *fact(const struct lg_prints *p, const char *key)
{
	return lg_print_fact(p->t, p->prc, key);
}

static bool is(const char *fact, const char *value)
{
	return fact && !strcmp(fact, value);
}

static void add(struct lg_arena *a, const char ***v, size_t *n, const char *text)
{
	for (size_t i = 0; i < *n; i++)
		if (!strcmp((*v)[i], text))
			return;
	*v = lg_arena_room(a, *v, *n, sizeof **v);
	if (*v)
		(*v)[(*n)++] = text;
}

static bool on_device(const struct lg_prints *p)
{
	return is(fact(p, "det.cuda"), "1");
}

/* A generator's first look: what a program that seeds it before its first step would have equal. */
static bool torch_seeded(const struct lg_prints *before, const struct lg_prints *after)
{
	const char *a = fact(before, "det.seed"), *b = fact(after, "det.seed");

	return !a || !b || !strcmp(a, b);
}

static void flags(const struct lg_prints *before, const struct lg_prints *after, struct lg_arena *a,
		  struct lg_det *ret)
{
	const char ***v = &ret->flags_off;
	size_t *n = &ret->n_flags_off;

	if (!torch_seeded(before, after))
		add(a, v, n, "torch.manual_seed");
	if (is(fact(after, "det.deterministic_algorithms"), "0"))
		add(a, v, n, "use_deterministic_algorithms");
	if (on_device(after)) {
		if (is(fact(after, "det.cudnn.deterministic"), "0"))
			add(a, v, n, "cudnn.deterministic");
		if (is(fact(after, "det.cudnn.benchmark"), "1"))
			add(a, v, n, "cudnn.benchmark=False");
		if (!fact(after, "env.CUBLAS_WORKSPACE_CONFIG"))
			add(a, v, n, "CUBLAS_WORKSPACE_CONFIG");
	}
	if (!fact(after, "env.PYTHONHASHSEED"))
		add(a, v, n, "PYTHONHASHSEED");
	if (fact(after, "det.loader.workers") && !is(fact(after, "det.loader.workers"), "0")) {
		if (is(fact(after, "det.loader.generator"), "0"))
			add(a, v, n, "DataLoader(generator)");
		if (is(fact(after, "det.loader.worker_init_fn"), "0"))
			add(a, v, n, "DataLoader(worker_init_fn)");
	}
}

/* May it change what is computed? Not: who ran it, and when. */
static bool matters(const char *key)
{
	static const char *const of[] = { "torch.",        "python.version", "cpu.",
					  "cudnn.",        "det.",           "loader.",
					  "distributed.",  "ddp.",           "fsdp.",
					  "amp.",          "compile.",       "optimizer.",
					  "model.",        "env.OMP_",       "env.MKL_",
					  "env.OPENBLAS_", "env.TORCH_",     "env.TORCHINDUCTOR_",
					  "env.NCCL_",     "env.CUBLAS_",    "env.PYTHONHASHSEED",
					  "env.CUDA_",     "env.WORLD_SIZE" };

	if (!strcmp(key, "det.seed") || !strcmp(key, "det.every") || !strncmp(key, "compile.requested", 17))
		return false;
	for (size_t i = 0; i < LG_COUNT(of); i++)
		if (!strncmp(key, of[i], strlen(of[i])))
			return true;
	return false;
}

static void differ(const struct lg_prints *x, const struct lg_prints *y, bool swapped, struct lg_arena *a,
		   struct lg_det *ret)
{
	const struct lg_meta_tab *m = &x->t->meta;
	size_t looks = 0;

	for (size_t i = 0; i < m->n && ret->n_facts < FACTS_MAX; i++) {
		const char *key = lg_string(x->t, m->key[i]), *here, *there;
		bool told = false;

		if (m->prc[i] != x->prc || !matters(key))
			continue;
		if (looks++ == LOOKS_MAX)
			return;
		here = fact(x, key);
		there = fact(y, key);
		/* What only the second run tells is seen when the sides are swapped. */
		if ((there && (swapped || !strcmp(here, there))))
			continue;
		LG_EACH(f, ret->facts, ret->n_facts)
			told |= !strcmp(f->key, key);
		if (told)
			continue;
		ret->facts = lg_arena_room(a, ret->facts, ret->n_facts, sizeof *ret->facts);
		if (!ret->facts)
			return;
		ret->facts[ret->n_facts++] =
			(struct lg_fact_change){ key, swapped ? there : here, swapped ? here : there };
	}
}

/* Of "IndexPutBackward0": what the table says of it. */
static const char *known(const char *node, bool device)
{
	enum { ANY, CUDA };
	static const struct {
		const char *node;
		int on;
		const char *what;
	} ops[] = {
#define OP(node, on, what) { node, on, what },
#include "rules/nondeterministic.def"
	};
	size_t n = strlen(node);

	/* Built-in nodes are numbered; a program's own torch.autograd.Function is not. */
	while (n && isdigit((unsigned char)node[n - 1]))
		n--;
	if (!node[n])
		return NULL;
	LG_EACH(o, ops, LG_COUNT(ops))
		if (strlen(o->node) == n && !strncmp(o->node, node, n) && (device || o->on == ANY))
			return o->what;
	return NULL;
}

/* What torch itself warned of, where it was asked for deterministic operators. */
static void warned(const struct lg_prints *p, struct lg_arena *a, struct lg_det *ret)
{
	const struct lg_trace *t = p->t;

	for (size_t i = 0; i < t->mark.n; i++)
		if (t->thread.prc[t->mark.thr[i]] == p->prc &&
		    !strcmp(lg_string(t, t->mark.name[i]), "det.warned"))
			add(a, &ret->operators, &ret->n_operators, lg_string(t, t->mark.text[i]));
}

static void operators(const struct lg_prints *p, struct lg_arena *a, struct lg_det *ret)
{
	for (size_t i = 0; i < p->n; i++) {
		const char *what = p->v[i].kind == LG_PRINT_OP
					   ? known(lg_string(p->t, p->v[i].name), on_device(p))
					   : NULL;

		if (what)
			add(a, &ret->operators, &ret->n_operators, what);
	}
}

int lg_det_facts(const struct lg_prints *before, const struct lg_prints *after, struct lg_arena *a,
		 struct lg_det *ret)
{
	flags(before, after, a, ret);
	differ(before, after, false, a, ret);
	differ(after, before, true, a, ret);
	operators(after, a, ret);
	warned(after, a, ret);
	return a->failed ? LG_E_NOMEM : 0;
}
