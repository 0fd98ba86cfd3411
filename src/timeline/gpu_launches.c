/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_launches.c - which call launched which piece of work.
 *
 * To put some hundred thousand calls in order takes about as long as to read what the host did, which
 * needs only the calls of a few copies: both are done at once.
 */
#include <stdlib.h>

#include "timeline/window.h"
#include "base/median.h"
#include "base/side_thread.h"
#include "base/map.h"
#include "base/upper_bound.h"

#define LAUNCH_WITHIN_NS 60000000000ll
#define LAUNCH_SKEW_NS 20000ll

struct call {
	int64_t corr, ts;
	uint32_t row;
	uint32_t nth : 31; /* of all that are listed */
	bool kernel : 1;   /* launches one */
};

LG_ORDER_BY(cmp_call, struct call, LG_CMP(x->corr, y->corr) ?: LG_CMP(x->ts, y->ts))

/*
 * Calls by correlation number: bucket k holds v[first[k] .. first[k + 1]), by number and time. The
 * numbers count up, so that buckets are as good as sorted.
 */
struct calls {
	uint32_t *first;
	struct call *v;
	size_t n, mask;
};

/* Nearest call with this correlation that began before the work did; NULL = none. Numbers come again in long
 * traces; one that is there once is the work's however far a device is behind. */
static const struct call *call_of(const struct calls *calls, int64_t corr, int64_t ts)
{
	const struct call *v = calls->v;
	size_t at = (size_t)corr & calls->mask, from = calls->first[at], end = calls->first[at + 1];
	size_t lo = from, hi = end;
	bool again;

	LG_BISECT(lo, hi, k, v[k].corr < corr || (v[k].corr == corr && v[k].ts <= ts + LAUNCH_SKEW_NS));
	if (lo == from || v[lo - 1].corr != corr)
		return NULL;
	again = (lo - 1 > from && v[lo - 2].corr == corr) || (lo < end && v[lo].corr == corr);
	if (again && ts - v[lo - 1].ts > LAUNCH_WITHIN_NS)
		return NULL;
	return &v[lo - 1];
}

/* The calls of prc's threads, thread by thread. */
static int list_calls(const struct lg_scene *sc, struct lg_gpu *g, lg_prc prc, struct calls *ret)
{
	const struct lg_trace *t = sc->t;
	size_t cap = 0;

	LG_LISTED(k, sc->idx->thread, prc) {
		LG_LISTED(row, sc->idx->span, k) {
			const struct lg_span_at *s = &sc->idx->span_at[row_at];
			enum lg_name_class name = lg_gpu_name(sc, g, s->name);
			bool calls = lg_is_runtime_name(name) || s->kind == LG_SPAN_RUNTIME;
			struct call c = { .row = row, .ts = s->ts, .nth = (uint32_t)ret->n & INT32_MAX,
					  .kernel = name == LG_NAME_LAUNCH };

			if (row_at + LG_ROWS_AHEAD < sc->idx->span_off[k + 1])
				__builtin_prefetch(&t->span.seq[sc->idx->span[row_at + LG_ROWS_AHEAD]]);
			/* Of a device whose calls are not known here, too. */
			if (s->kind == LG_SPAN_STEP || !calls || t->span.seq[row] <= 0)
				continue;
			c.corr = t->span.seq[row];
			if (LG_APPEND(ret->v, ret->n, cap, c))
				return LG_E_NOMEM;
		}
	}
	return 0;
}

/* The calls of `from` into *ret. */
static int sort_calls(const struct calls *from, struct calls *ret)
{
	size_t size = 64;

	while (size < from->n)
		size *= 2;
	ret->n = from->n;
	ret->mask = size - 1;
	ret->first = lg_calloc(size + 2, sizeof *ret->first);
	ret->v = lg_calloc(from->n, sizeof *ret->v);
	if (!ret->first || !ret->v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < from->n; i++)
		ret->first[((size_t)from->v[i].corr & ret->mask) + 2]++;
	for (size_t i = 2; i < size + 2; i++)
		ret->first[i] += ret->first[i - 1];
	for (size_t i = 0; i < from->n; i++)
		ret->v[ret->first[((size_t)from->v[i].corr & ret->mask) + 1]++] = from->v[i];
	for (size_t k = 0; k < size; k++) {
		uint32_t at = ret->first[k], n = ret->first[k + 1] - at;

		if (n > 1 && lg_order(ret->v + at, n, sizeof *ret->v, cmp_call))
			return LG_E_NOMEM;
	}
	return 0;
}

struct lg_launches {
	struct lg_side_thread beside;
	struct lg_arena *arena;
	const struct lg_trace *t;
	struct lg_gpu_run *r;
	struct calls listed; /* as they come; the thread reads them */
	struct calls calls;  /* in order */
	int64_t *unrun, *launched;
	int rc;              /* of the thread */
};

static void calls_done(struct calls *c)
{
	lg_free(c->v);
	lg_free(c->first);
	*c = (struct calls){ 0 };
}

static const struct call *call_for(const struct lg_trace *t, const struct calls *calls,
				   const struct lg_gpu_work *w)
{
	int64_t corr = calls->n ? t->span.seq[w->span] : 0;

	return corr > 0 ? call_of(calls, corr, w->ts) : NULL;
}

/*
 * The launches of kernels that have none in the trace. Not where some are on another device, which is not
 * looked at. Graphs are no such launches: while one is captured, its kernels do not run.
 */
static int list_unrun(struct lg_launches *l, uint8_t *ran)
{
	enum { FEW = 3 };
	struct lg_gpu_run *r = l->r;
	size_t kernels = 0, unrun = 0;

	for (size_t i = 0; i < l->listed.n; i++) {
		const struct call *v = &l->listed.v[i];

		/* A call of the runtime and that of the driver in it have one number, one piece of work. */
		if (i + 1 < l->listed.n && v[1].corr == v->corr && ran[i + 1])
			ran[i] = 1;
		kernels += v->kernel;
		unrun += v->kernel && !ran[i];
	}
	/* None of them: calls and work do not have the same numbers. */
	if (unrun >= FEW && unrun < kernels) {
		l->unrun = lg_calloc(unrun, sizeof *l->unrun);
		l->launched = lg_calloc(kernels, sizeof *l->launched);
		if (!l->unrun || !l->launched)
			return LG_E_NOMEM;
		LG_EACH_WHERE(v->kernel, v, l->listed.v, l->listed.n) {
			l->launched[r->n_launched++] = v->ts;
			if (!ran[v->nth])
				l->unrun[r->n_unrun++] = v->ts;
		}
		/* Threads come one after the other. */
		qsort(l->unrun, r->n_unrun, sizeof *l->unrun, lg_cmp_i64);
	}
	return 0;
}

static void match(void *arg)
{
	struct lg_launches *l = arg;
	/* By place in the list: a call whose work is there. */
	LG_AUTOFREE uint8_t *ran = lg_calloc(l->listed.n, 1);

	l->rc = ran ? 0 : LG_E_NOMEM;
	if (!l->rc && l->listed.n)
		l->rc = sort_calls(&l->listed, &l->calls);
	LG_EACH_WHILE(!l->rc, w, l->r->work, l->r->n_work) {
		const struct call *v;

		if (w + LG_ROWS_AHEAD < l->r->work + l->r->n_work)
			__builtin_prefetch(&l->t->span.seq[w[LG_ROWS_AHEAD].span]);
		v = call_for(l->t, &l->calls, w);
		if (!v)
			continue;
		w->call = v->row;
		w->called = v->ts;
		w->caller = l->t->span.thr[v->row];
		ran[v->nth] = 1;
	}
	if (!l->rc && l->listed.n && !l->r->n_elsewhere)
		l->rc = list_unrun(l, ran);
}

int lg_launches_start(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r,
		      struct lg_launches **ret)
{
	enum { WORTH_A_THREAD = 1 << 15 };
	struct lg_launches *l = lg_calloc(1, sizeof *l);
	int rc = l ? 0 : LG_E_NOMEM;

	if (!rc && r->n_work)
		rc = list_calls(sc, g, r->prc, &l->listed);
	if (rc) {
		if (l)
			calls_done(&l->listed);
		lg_free(l);
		return rc;
	}
	l->arena = sc->arena;
	l->t = sc->t;
	l->r = r;
	lg_side_thread_start(&l->beside, l->listed.n >= WORTH_A_THREAD, match, l);
	*ret = l;
	return 0;
}

static bool is_copy(const struct lg_trace *t, const struct lg_gpu_work *w)
{
	return w->class == LG_GPU_H2D || w->class == LG_GPU_D2H || t->span.kind[w->span] == LG_SPAN_COPY;
}

/* Of all calls those with a number that such work has, in the same order: among them the same is found. */
int lg_launches_copies(const struct lg_launches *l, struct lg_map *copies)
{
	const struct lg_gpu_run *r = l->r;
	struct calls some = { 0 }, calls = { 0 };
	struct lg_map wanted = { 0 };
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < r->n_work && !rc; i++)
		if (is_copy(l->t, &r->work[i]) && l->t->span.seq[r->work[i].span] > 0)
			rc = lg_map_set(&wanted, (uint64_t)l->t->span.seq[r->work[i].span], 1);
	for (size_t i = 0; wanted.n && i < l->listed.n && !rc; i++) {
		if (!lg_map_get(&wanted, (uint64_t)l->listed.v[i].corr))
			continue;
		rc = LG_APPEND(some.v, some.n, cap, l->listed.v[i]);
	}
	if (some.n && !rc)
		rc = sort_calls(&some, &calls);
	LG_EACH_WHILE(calls.n && !rc, w, r->work, r->n_work) {
		const struct call *call = is_copy(l->t, w) ? call_for(l->t, &calls, w) : NULL;

		if (call)
			rc = lg_map_set(copies, call->row, w->pageable ? LG_COPY_PAGEABLE : LG_COPY_OTHER);
	}
	calls_done(&some);
	calls_done(&calls);
	lg_map_done(&wanted);
	return rc;
}

int lg_launches_finish(struct lg_launches *l)
{
	int rc;

	lg_side_thread_wait(&l->beside);
	rc = l->rc;
	if (l->unrun)
		l->r->unrun = lg_arena_adopt(l->arena, l->unrun);
	if (l->launched)
		l->r->launched = lg_arena_adopt(l->arena, l->launched);
	if (!l->r->unrun || !l->r->launched)
		l->r->n_unrun = l->r->n_launched = 0;
	if (!rc && l->arena->failed)
		rc = LG_E_NOMEM;
	calls_done(&l->listed);
	calls_done(&l->calls);
	lg_free(l);
	return rc;
}
