/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_spans.c - a profiler's module rows.
 *
 * "nn.Module: Linear_0" is the call of one module; the number counts modules of a class as they come, so it
 * is the same in every run of one program. Operators of the backward pass carry the sequence number of the
 * operator that made their node (torch/csrc/autograd/profiler): the module that was open at that one has
 * their time. Of several operators with one number the last made the node: others only saw the number that
 * was next.
 *
 * What a device computes is of the module from which it was launched, and of that one's step.
 */
#include <stdlib.h>

#include "analyse/case.h"
#include "modules/modules.h"
#include "base/map.h"
#include "store/args.h"

enum { DEPTH_MAX = 256 };

static const char prefix[] = "nn.Module: ";

struct row {
	lg_thr thr;
	int64_t ts, end;
	uint32_t row;
	uint8_t what;
};
enum { MODULE, OPERATOR, REGION, GRADIENT, LAUNCH }; /* LAUNCH: row is one of the flows */

struct open {
	int64_t end;
	uint32_t node;
	size_t cell;
};

struct spans {
	struct lg_module_sums *s;
	struct row *v;
	size_t n, cap;
	struct lg_map node_of;  /* node << 32 | name -> node */
	struct lg_map maker;    /* sequence number -> node */
	struct lg_map work;     /* correlation and begin -> row of a kernel or a copy, + 1 */
	const struct lg_step *step;
	size_t n_steps;
	struct open open[DEPTH_MAX];
	size_t depth;
};

static int by_time(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->thr != y->thr)
		return x->thr < y->thr ? -1 : 1;
	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	return x->end != y->end ? (x->end < y->end) - (x->end > y->end)
				: (x->row > y->row) - (x->row < y->row);
}

/* The step that ts is in; SIZE_MAX = none that is judged. */
static size_t cell_of(const struct spans *k, int64_t ts)
{
	size_t lo = 0, hi = k->n_steps;

	if (!k->n_steps)
		return 0;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (k->step[mid].ts <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || k->step[lo - 1].warmup || ts >= k->step[lo - 1].ts + k->step[lo - 1].dur)
		return SIZE_MAX;
	return LG_MIN(lo - 1, k->s->n_cells - 1);
}

static int what_is(const struct lg_trace *t, size_t row)
{
	const char *name = lg_string(t, t->span.name[row]);
	size_t n;

	if (t->span.kind[row] == LG_SPAN_PYTHON)
		return strncmp(name, prefix, sizeof prefix - 1) ? -1 : MODULE;
	if (t->span.kind[row] != LG_SPAN_OP && t->span.kind[row] != LG_SPAN_NOTE)
		return -1;
	if (!strncmp(name, "Torch-Compiled Region", 21) || !strncmp(name, "CompiledFunction", 16))
		return t->span.kind[row] == LG_SPAN_OP && lg_span_arg(t, row, "fwd", &n) ? GRADIENT : REGION;
	if (t->span.kind[row] != LG_SPAN_OP || t->span.seq[row] < 0)
		return -1;
	return lg_span_arg(t, row, "fwd", &n) ? GRADIENT : OPERATOR;
}

/* Numbers of launches repeat: one begins at one moment only. */
static uint64_t work_key(uint64_t id, int64_t ts)
{
	return lg_mix64(id) ^ (uint64_t)ts;
}

static int launches(struct spans *k)
{
	const struct lg_trace *t = k->s->t;

	for (uint32_t i = 0; i < t->span.n; i++)
		if (t->span.track[i] && t->span.seq[i] > 0 && t->span.dur[i] >= 0 &&
		    (t->span.kind[i] == LG_SPAN_KERNEL || t->span.kind[i] == LG_SPAN_COPY ||
		     t->span.kind[i] == LG_SPAN_COLLECTIVE) &&
		    lg_map_set(&k->work, work_key((uint64_t)t->span.seq[i], t->span.ts[i]), i + 1))
			return LG_E_NOMEM;
	for (uint32_t i = 0; i < t->flow.n; i++)
		if (t->flow.kind[i] == LG_FLOW_LAUNCH && t->flow.thr[i] &&
		    t->thread.prc[t->flow.thr[i]] == k->s->prc &&
		    lg_map_get(&k->work, work_key(t->flow.id[i], t->flow.ts_to[i])) &&
		    LG_APPEND(k->v, k->n, k->cap,
			      (struct row){ t->flow.thr[i], t->flow.ts[i], t->flow.ts[i], i, LAUNCH }))
			return LG_E_NOMEM;
	return 0;
}

static int gather(struct spans *k)
{
	const struct lg_trace *t = k->s->t;

	if (launches(k))
		return LG_E_NOMEM;
	k->s->has_device = k->n > 0;
	for (size_t i = 0; i < t->span.n; i++) {
		lg_thr thr = t->span.thr[i];
		int64_t ts = t->span.ts[i], dur = t->span.dur[i];
		int what = -1;

		if (thr && t->thread.prc[thr] == k->s->prc && dur >= 0 && ts <= INT64_MAX - dur)
			what = what_is(t, i);
		if (what >= 0 && LG_APPEND(k->v, k->n, k->cap,
					   (struct row){ thr, ts, ts + dur, (uint32_t)i, (uint8_t)what }))
			return LG_E_NOMEM;
	}
	qsort(k->v, k->n, sizeof *k->v, by_time);
	return 0;
}

static int node(struct spans *k, uint32_t up, lg_str name, uint32_t *ret)
{
	uint64_t key = (uint64_t)up << 32 | name;
	const char *text = lg_string(k->s->t, name) + sizeof prefix - 1;

	*ret = lg_map_get(&k->node_of, key);
	if (*ret)
		return 0;
	if (k->s->n == LG_MODULES_MAX) {
		*ret = up; /* its time is its caller's */
		k->s->left_out++;
		return 0;
	}
	if (up)
		text = lg_arena_printf(k->s->arena, "%s.%s", k->s->v[up - 1].path, text);
	if (!lg_module_add(k->s, text, up))
		return LG_E_NOMEM;
	*ret = (uint32_t)k->s->n;
	return lg_map_set(&k->node_of, key, *ret);
}

static void add(struct spans *k, uint32_t node, size_t cell, int64_t ns, bool backward)
{
	struct lg_module_sum *m = &k->s->v[node - 1];

	if (cell == SIZE_MAX)
		return;
	*(backward ? &m->backward : &m->forward) += (double)ns / 1e6;
	if (!k->s->has_device)
		m->cell[cell] += (double)ns / 1e6;
}

/* Once: what checkpointing makes again is launched by a module within the backward pass. */
static void add_work(struct spans *k, uint32_t node, const struct row *r)
{
	const struct lg_trace *t = k->s->t;
	uint64_t key = work_key(t->flow.id[r->row], t->flow.ts_to[r->row]);
	uint32_t row = lg_map_get(&k->work, key);
	size_t cell = cell_of(k, r->ts);

	if (!row || cell == SIZE_MAX)
		return;
	k->s->v[node - 1].device += (double)t->span.dur[row - 1] / 1e6;
	k->s->v[node - 1].cell[cell] += (double)t->span.dur[row - 1] / 1e6;
	lg_map_remove(&k->work, key);
}

static void close_until(struct spans *k, int64_t ts)
{
	while (k->depth && k->open[k->depth - 1].end <= ts)
		k->depth--;
}

static int module(struct spans *k, const struct row *r)
{
	struct open *up = k->depth ? &k->open[k->depth - 1] : NULL;
	size_t cell = cell_of(k, r->ts);
	int64_t end = up ? LG_MIN(r->end, up->end) : r->end; /* times are rounded */
	uint32_t at;

	if (k->depth == DEPTH_MAX)
		return 0;
	if (node(k, up ? up->node : 0, k->s->t->span.name[r->row], &at))
		return LG_E_NOMEM;
	if (!at)
		return 0;
	add(k, at, cell, end - r->ts, false);
	if (up)
		add(k, up->node, up->cell, -(end - r->ts), false);
	k->s->v[at - 1].calls += cell != SIZE_MAX;
	k->open[k->depth++] = (struct open){ end, at, cell };
	return 0;
}

/* Modules, and which of them each node of the graph is from. */
static int forward(struct spans *k)
{
	lg_thr thr = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < k->n; i++) {
		const struct row *r = &k->v[i];

		if (r->thr != thr)
			k->depth = 0;
		thr = r->thr;
		close_until(k, r->ts);
		if (r->what == MODULE) {
			rc = module(k, r);
		} else if (k->depth && r->what == REGION) {
			k->s->v[k->open[k->depth - 1].node - 1].compiled = LG_MODULE_COMPILED;
		} else if (k->depth && r->what == LAUNCH) {
			add_work(k, k->open[k->depth - 1].node, r);
		} else if (k->depth && r->what == OPERATOR) {
			rc = lg_map_set(&k->maker, (uint64_t)k->s->t->span.seq[r->row] + 1,
					k->open[k->depth - 1].node);
		}
	}
	return rc;
}

/* The outermost rows of the backward pass: what they call is in them. */
static void backward(struct spans *k)
{
	int64_t until = INT64_MIN;
	uint32_t from = 0;
	lg_thr thr = 0;

	for (size_t i = 0; i < k->n; i++) {
		const struct row *r = &k->v[i];
		int64_t seq;

		if (r->thr != thr)
			until = INT64_MIN;
		thr = r->thr;
		if (r->what == LAUNCH && r->ts < until)
			add_work(k, from, r);
		if (r->what != GRADIENT || r->ts < until)
			continue;
		seq = k->s->t->span.seq[r->row];
		if (seq < 0)
			continue;
		from = lg_map_get(&k->maker, (uint64_t)seq + 1);
		if (!from)
			continue;
		add(k, from, cell_of(k, r->ts), r->end - r->ts, true);
		until = r->end;
	}
}

/* Whose: the process of the first rank that has steps, else of the first module. */
static bool choose(struct spans *k, const struct lg_verdict *v)
{
	const struct lg_trace *t = k->s->t;

	k->s->prc = 0;
	for (size_t i = 0; i < t->span.n && !k->s->prc; i++)
		if (t->span.kind[i] == LG_SPAN_PYTHON && t->span.thr[i] && what_is(t, i) == MODULE)
			k->s->prc = t->thread.prc[t->span.thr[i]];
	if (!k->s->prc)
		return false;
	if (v->n_steps) {
		k->step = v->steps;
		k->s->prc = v->steps->prc;
		k->s->rank = v->steps->rank;
		while (k->n_steps < v->n_steps && v->steps[k->n_steps].prc == k->s->prc)
			k->n_steps++;
	}
	k->s->n_cells = LG_MIN(LG_MAX(k->n_steps, (size_t)1), (size_t)LG_MODULE_CELLS);
	for (size_t i = 0; i < k->n_steps; i++)
		k->s->steps += !k->step[i].warmup;
	k->s->steps = k->n_steps ? k->s->steps : 1;
	return k->s->steps > 0;
}

int lg_modules_of_spans(struct lg_module_sums *s, const struct lg_verdict *v)
{
	LG_AUTOFREE struct spans *k = lg_calloc(1, sizeof *k);
	int rc = 0;

	if (!k)
		return LG_E_NOMEM;
	k->s = s;
	if (choose(k, v)) {
		rc = gather(k);
		rc = rc ? rc : forward(k);
		if (!rc)
			backward(k);
	}
	lg_map_done(&k->node_of);
	lg_map_done(&k->maker);
	lg_map_done(&k->work);
	lg_free(k->v);
	return rc;
}
