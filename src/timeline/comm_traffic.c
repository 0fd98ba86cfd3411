/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_traffic.c - what a collective's kernel moves, and why: the kernel's name alone may not tell.
 *
 * all_to_all is a group of sends and receives (torch/csrc/cuda/nccl.cpp, all2all_single_equal_split), and
 * both run as one SendRecv kernel; some builds of NCCL have one name for all kernels. Told by, best first:
 * the kernel's own "Collective name"; what the host was in when it launched it (c10d::alltoall_base_,
 * record_param_comms, nccl:all_to_all); the kernel's name.
 */
#include <stdio.h>
#include <stdlib.h>

#include "timeline/cost.h"
#include "timeline/traffic.h"
#include "store/args.h"
#include "base/upper_bound.h"

/* In this order: parts of other names come behind them. */
static const struct {
	const char *part, *says;
	enum lg_traffic is;
} moves[] = {
	{ "alltoall", "AllToAll", LG_TRAFFIC_EXCHANGE },
	{ "allgather", "AllGather", LG_TRAFFIC_SHARDS },
	{ "reducescatter", "ReduceScatter", LG_TRAFFIC_SHARDS },
	{ "allreduce", "AllReduce", LG_TRAFFIC_REDUCE },
	{ "broadcast", "Broadcast", LG_TRAFFIC_REDUCE },
	{ "sendrecv", "SendRecv", LG_TRAFFIC_UNTOLD },
	{ "send", "Send", LG_TRAFFIC_PAIRS },
	{ "recv", "Recv", LG_TRAFFIC_PAIRS },
	{ "reduce", "Reduce", LG_TRAFFIC_REDUCE },
};
enum { MOVES = LG_COUNT(moves) };

/* Which of moves[] a name tells, however it is written; MOVES = none. */
static size_t told_by(const char *name, size_t len)
{
	char plain[128];
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < sizeof plain; i++)
		if (name[i] != '_')
			plain[n++] = name[i];
	plain[n] = 0;
	for (size_t i = 0; i < MOVES; i++)
		if (strcasestr(plain, moves[i].part))
			return i;
	return MOVES;
}

/* A row's own "Collective name". */
static size_t told_by_argument(const struct lg_trace *t, uint32_t row)
{
	size_t n;
	const char *coll = lg_span_arg(t, row, "coll", &n);

	return coll ? told_by(coll, n) : MOVES;
}

static size_t told_by_row_name(const struct lg_trace *t, uint32_t row)
{
	const char *name = lg_span_name(t, row);

	return told_by(name, strlen(name));
}

/* What the innermost range around a launching call tells. */
static size_t told_by_host(const struct lg_scene *sc, const uint8_t *ranges, uint32_t call)
{
	enum { ROWS_BACK = 256 }; /* such ranges end soon after they launch */
	const struct lg_trace *t = sc->t;
	lg_thr thr = t->span.thr[call];
	int64_t ts = t->span.ts[call];
	size_t first = sc->idx->span_off[thr], lo = first, hi = sc->idx->span_off[thr + 1];

	LG_BISECT(lo, hi, mid, t->span.ts[sc->idx->span[mid]] <= ts);
	for (size_t n = 0; lo-- > first && n < ROWS_BACK; n++) {
		uint32_t row = sc->idx->span[lo];
		size_t k;

		if (!ranges[t->span.name[row]] || lg_row_end(t, t->span.ts[row], t->span.dur[row]) <= ts)
			continue;
		k = told_by_argument(t, row);
		k = k < MOVES ? k : told_by_row_name(t, row);
		if (k < MOVES)
			return k;
	}
	return MOVES;
}

/* Of the device row that `call` launched; ranges may be NULL: there are none. */
static size_t move_of(const struct lg_scene *sc, const uint8_t *ranges, uint32_t row, uint32_t call)
{
	size_t k = told_by_argument(sc->t, row);

	if (k == MOVES && ranges && call != LG_NO_ROW)
		k = told_by_host(sc, ranges, call);
	return k < MOVES ? k : told_by_row_name(sc->t, row);
}

/* The exposed time by what moves; by[MOVES]: nothing tells. */
static void sum_exposed(const struct lg_scene *sc, const struct lg_gpu_run *r, int64_t *by)
{
	LG_AUTOFREE uint8_t *ranges = lg_span_pick(sc, LG_LIST_COMM_RANGES);
	LG_AUTOFREE uint8_t *is = lg_calloc(sc->t->span.n + 1, 1); /* by row: 1 + which of moves[] */

	if (lg_scene_failed(sc, is ? 0 : LG_E_NOMEM))
		return;
	LG_EACH(w, r->work, r->n_work)
		if (w->class == LG_GPU_COMM)
			is[w->span] = (uint8_t)(1 + move_of(sc, ranges, w->span, w->call));
	LG_EACH(p, r->piece, r->n_pieces)
		if (p->cause == LG_GPU_BY_COMM && p->span != LG_NO_ROW)
			by[is[p->span] ? is[p->span] - 1 : MOVES] += p->dur;
}

/* The ones that make up most of a kind, by name: one, or two where the second is a quarter of it. */
static void name_kind(const int64_t *by, struct lg_exposed_kind *k, int64_t of)
{
	size_t best = MOVES, next = MOVES;

	for (size_t i = 0; i < MOVES; i++) {
		if (moves[i].is != k->is || !by[i])
			continue;
		if (best == MOVES || by[i] > by[best]) {
			next = best;
			best = i;
		} else if (next == MOVES || by[i] > by[next]) {
			next = i;
		}
	}
	if (best == MOVES)
		return;
	if (next == MOVES || by[next] * 4 < of)
		snprintf(k->op, sizeof k->op, "%s", moves[best].says);
	else
		snprintf(k->op, sizeof k->op, "%s and %s", moves[best].says, moves[next].says);
}

LG_ORDER_BY(cmp_share, struct lg_exposed_kind,
	    LG_CMP(y->share, x->share) ?: (int)x->is - (int)y->is)

size_t lg_exposed_kinds(const struct lg_scene *sc, const struct lg_gpu_run *r, struct lg_exposed_kind *ret)
{
	int64_t by[MOVES + 1] = { 0 }, kind[LG_TRAFFIC_MAX] = { 0 }, all;
	size_t n = 0;

	sum_exposed(sc, r, by);
	all = by[MOVES];
	for (size_t i = 0; i < MOVES; i++) {
		kind[moves[i].is] += by[i];
		all += by[i];
	}
	for (size_t i = 0; i < LG_TRAFFIC_MAX; i++) {
		ret[i] = (struct lg_exposed_kind){ .is = (enum lg_traffic)i };
		ret[i].share = all > 0 ? (double)kind[i] / (double)all : 0;
		name_kind(by, &ret[i], kind[i]);
	}
	qsort(ret, LG_TRAFFIC_MAX, sizeof *ret, cmp_share);
	while (n < LG_TRAFFIC_MAX && ret[n].share >= 0.25)
		n++;
	return n ? n : 1;
}
