/* SPDX-License-Identifier: Apache-2.0 */
/* comm_match.c - see comm_match.h. */
#include "timeline/comm_match.h"

#include <stdlib.h>
#include <string.h>

#include "timeline/window.h"
#include "store/args.h"

#define NOISE_NS 100000

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" -> "AllReduce". */
static const char *op_of(const char *name)
{
	static const char *const ops[] = { "AllReduce", "ReduceScatter", "AllGather", "Broadcast",
					   "SendRecv", "AllToAll", "Reduce", "all_reduce" };

	for (size_t i = 0; i < LG_COUNT(ops); i++)
		if (strcasestr(name, ops[i]))
			return ops[i];
	return "collective";
}

LG_ORDER_BY(cmp_coll, struct lg_coll, LG_CMP(x->group, y->group) ?: strcmp(x->op, y->op) ?:
	    LG_CMP(x->seq, y->seq) ?: LG_CMP(x->run, y->run))

bool lg_coll_same(const struct lg_coll *a, const struct lg_coll *b)
{
	return a->group == b->group && a->seq == b->seq && a->op == b->op;
}

/* How many of one kind a run had, for those without a number. */
struct key_count {
	lg_str group;
	const char *op; /* see op_of() */
	int64_t n;
};

struct counts {
	struct key_count *v;
	size_t n, cap;
};

/* The number of x among those of its kind; -1 without memory. */
static int64_t nth(struct counts *k, const struct lg_coll *x)
{
	size_t i = 0;

	while (i < k->n && !(k->v[i].group == x->group && k->v[i].op == x->op))
		i++;
	if (i == k->n && LG_APPEND(k->v, k->n, k->cap, (struct key_count){ .group = x->group, .op = x->op }))
		return -1;
	return k->v[i].n++;
}

static int collect_run(const struct lg_trace *t, const struct lg_gpu_run *r, uint32_t run, struct counts *k,
		       struct lg_colls *ret)
{
	for (uint32_t j = 0; j < r->n_work; j++) {
		const struct lg_gpu_work *w = &r->work[j];
		struct lg_coll x = { .group = t->span.group[w->span],
				  .run = run,
				  .work = j,
				  .dur = w->end - w->ts,
				  .before = lg_gpu_ordered_at(w) < lg_gpu_asked_from(r) };
		const char *seq;
		size_t len;

		/* A pipeline's ranks wait for each other's results; that is no lateness. */
		if (w->class != LG_GPU_COMM || lg_span_p2p(t, w->span))
			continue;
		x.op = op_of(lg_span_name(t, w->span));
		seq = lg_span_arg(t, w->span, "seq", &len);
		x.seq = seq ? strtoll(seq, NULL, 10) : nth(k, &x);
		if ((!seq && x.seq < 0) || LG_APPEND(ret->v, ret->n, ret->cap, x))
			return LG_E_NOMEM;
		ret->numbered += seq != NULL;
	}
	return 0;
}

int lg_colls_find(const struct lg_scene *sc, struct lg_gpu *g)
{
	struct lg_colls *all;
	struct counts k = { 0 };
	int rc = 0;

	if (g->colls)
		return 0;
	all = lg_arena_alloc(sc->arena, 1, sizeof *all);
	if (!all)
		return LG_E_NOMEM;
	for (uint32_t i = 0; i < g->n && !rc; i++) {
		k.n = 0;
		rc = collect_run(sc->t, &g->run[i], i, &k, all);
	}
	lg_free(k.v);
	if (all->v && !lg_arena_adopt(sc->arena, all->v))
		return LG_E_NOMEM;
	LG_SORT(all->v, all->n, cmp_coll);
	g->colls = all;
	return rc;
}

bool lg_coll_next_sides(const struct lg_gpu *g, struct lg_coll_sides *x)
{
	const struct lg_colls *all = g->colls;
	const struct lg_coll *v = all->v;

	while (x->to < all->n) {
		bool before = false;
		size_t n;

		x->from = x->best = x->to;
		for (; x->to < all->n && lg_coll_same(&v[x->to], &v[x->from]); x->to++) {
			before |= v[x->to].before;
			x->best = v[x->to].dur < v[x->best].dur ? x->to : x->best;
		}
		n = x->to - x->from;
		if (before || n < 2 || n > g->n) /* nobody else's, or several with one number */
			continue;
		x->waited = 0;
		for (size_t k = x->from; k < x->to; k++)
			x->waited += v[k].dur - v[x->best].dur;
		/* A mean wait below a tenth of a millisecond is noise of the clocks. */
		if (x->waited < NOISE_NS * (int64_t)(n - 1))
			x->waited = 0;
		return true;
	}
	return false;
}

uint64_t lg_coll_bytes(const struct lg_trace *t, uint32_t row)
{
	size_t n, k;
	const char *in = lg_span_arg(t, row, "in", &n), *type = lg_span_arg(t, row, "dtype", &k);
	uint64_t elems = in ? strtoull(in, NULL, 10) : 0, size = 4;

	if (t->span.bytes[row])
		return t->span.bytes[row];
	if (type && (strstr(type, "BFloat16") == type || strstr(type, "Half") == type ||
		     strstr(type, "Short") == type))
		size = 2;
	else if (type && (strstr(type, "Byte") == type || strstr(type, "Char") == type ||
			  strstr(type, "Bool") == type || strstr(type, "Float8") == type))
		size = 1;
	else if (type && (strstr(type, "Double") == type || strstr(type, "Long") == type))
		size = 8;
	return elems * size;
}
