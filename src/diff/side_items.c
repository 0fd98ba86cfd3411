/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_items.c - operators, kernels, copies, collectives, functions and compiled regions of the
 * reference rank's process, per step.
 *
 * Operators nest; each gets its own time only (without the operators it calls), so that they add
 * up. Names are stripped of what differs from run to run: the number of a compiled region
 * ("Torch-Compiled Region: 0/1"), the counter at the end of a triton kernel's name.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "diff/side.h"
#include "store/args.h"
#include "store/index.h"

enum { ITEMS_MAX = 100000, DEPTH_MAX = 256, NAME_MAX_BYTES = 400, SHAPE_MAX_BYTES = 200 };

const char *const lg_item_kind_names[LG_ITEM_MAX] = {
	"op", "kernel", "copy", "collective", "function", "region", "stage", "module"
};

struct acc {
	struct lg_item item;
	double sum, sumsq, cur;
	size_t step; /* of cur; SIZE_MAX = none */
	uint64_t n;
};

struct items {
	struct lg_side *s;
	const struct lg_trace *t;
	const struct lg_side_window *w;
	struct acc *v;
	size_t n, cap;
	struct lg_map by_hash;
	struct lg_map op_of; /* name id -> index + 1, for operators (hot) */
	bool failed;
};

/* Step of these that holds ts; SIZE_MAX when it lies outside or in a step that is not judged. */
static size_t step_of(const struct lg_step *step, size_t n, int64_t ts)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (step[mid].ts <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || ts >= step[lo - 1].ts + step[lo - 1].dur)
		return SIZE_MAX;
	return lo - 1;
}

static size_t step_at(const struct items *c, int64_t ts)
{
	return step_of(c->w->steps, c->w->n, ts);
}

static bool starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* What runs inside torch.compile's output: torch/_dynamo/eval_frame, torch/_functorch (AOT) and
 * torch/_inductor/codegen give these names. */
static bool is_region(const char *name)
{
	return starts(name, "Torch-Compiled Region") || starts(name, "CompiledFunction") ||
	       starts(name, "## Call CompiledFxGraph") || starts(name, "Call CompiledFxGraph") ||
	       starts(name, "AOTDispatcher Runtime Wrapper") || strstr(name, "compiled_autograd");
}

static const char *stable_name(const char *name, char *buf)
{
	size_t n = strnlen(name, NAME_MAX_BYTES - 1);
	char *p;

	memcpy(buf, name, n);
	buf[n] = 0;
	if (starts(buf, "triton_")) {
		while (n && isdigit((unsigned char)buf[n - 1]))
			n--;
		if (n && buf[n - 1] == '_')
			buf[n - 1] = 0;
	} else if (is_region(buf)) {
		p = strpbrk(buf, starts(buf, "##") ? "0123456789" : ":0123456789");
		while (p && p > buf && (p[-1] == ' ' || p[-1] == '#'))
			p--;
		if (p && p > buf)
			*p = 0;
	}
	return buf;
}

static struct acc *item(struct items *c, uint8_t kind, const char *name, const char *shape)
{
	uint64_t h = lg_mix64(kind + 1);

	for (const char *p = name; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3u;
	h = lg_mix64(h);
	for (const char *p = shape; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3u;
	h = lg_mix64(h);
	for (uint32_t at; (at = lg_map_get(&c->by_hash, h)); h++) {
		struct acc *a = &c->v[at - 1];

		if (a->item.kind == kind && !strcmp(a->item.name, name) &&
		    !strcmp(a->item.shape, shape))
			return a;
	}
	if (c->n >= ITEMS_MAX)
		return NULL;
	if (lg_grow(&c->v, &c->cap, c->n + 1, sizeof *c->v) ||
	    lg_map_set(&c->by_hash, h, (uint32_t)c->n + 1)) {
		c->failed = true;
		return NULL;
	}
	c->v[c->n] = (struct acc){ .item = { .kind = kind,
					     .name = lg_arena_strdup(&c->s->arena, name),
					     .shape = lg_arena_strdup(&c->s->arena, shape) },
				   .step = SIZE_MAX };
	return &c->v[c->n++];
}

static void settle(struct acc *a)
{
	a->sum += a->cur;
	a->sumsq += a->cur * a->cur;
	a->cur = 0;
}

static void add(struct acc *a, size_t step, double ms, uint64_t calls)
{
	if (!a || step == SIZE_MAX)
		return;
	if (a->step != step) {
		settle(a);
		a->step = step;
	}
	a->cur += ms;
	a->n += calls;
}

/* Operators: by name and the shapes of their inputs, where the trace has them. */
static struct acc *op_item(struct items *c, uint32_t row)
{
	const struct lg_span_tab *s = &c->t->span;
	uint64_t key = (uint64_t)s->name[row] << 32 | s->args[row];
	uint32_t at = lg_map_get(&c->op_of, key);
	char buf[NAME_MAX_BYTES], shape[SHAPE_MAX_BYTES];
	const char *name, *dims;
	struct acc *a;
	size_t n;

	if (at)
		return &c->v[at - 1];
	name = lg_string(c->t, s->name[row]);
	dims = lg_span_arg(c->t, row, "dims", &n);
	snprintf(shape, sizeof shape, "%.*s", dims ? (int)(n < sizeof shape ? n : sizeof shape - 1) : 0,
		 dims ? dims : "");
	a = item(c, is_region(name) ? LG_ITEM_REGION : LG_ITEM_OP, stable_name(name, buf), shape);
	if (a && lg_map_set(&c->op_of, key, (uint32_t)(a - c->v) + 1))
		c->failed = true;
	return a;
}

struct open_op {
	int64_t ts, end, child;
	uint32_t row;
};

static void close_op(struct items *c, const struct open_op *o)
{
	add(op_item(c, o->row), step_at(c, o->ts), (double)(o->end - o->ts - o->child) / 1e6, 1);
}

static int cmp_open(const void *a, const void *b)
{
	const struct open_op *x = a, *y = b;

	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	return (x->end < y->end) - (x->end > y->end);
}

static void operators_of(struct items *c, const uint32_t *rows, size_t n)
{
	const struct lg_span_tab *s = &c->t->span;
	struct open_op stack[DEPTH_MAX], *v = lg_calloc(n, sizeof *v);
	size_t depth = 0, m = 0;

	if (!v) {
		c->failed = true;
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (s->dur[rows[i]] >= 0 &&
		    (s->kind[rows[i]] == LG_SPAN_OP ||
		     (s->kind[rows[i]] == LG_SPAN_NOTE && is_region(lg_string(c->t, s->name[rows[i]])))))
			v[m++] = (struct open_op){ s->ts[rows[i]], s->ts[rows[i]] + s->dur[rows[i]],
						   0, rows[i] };
	qsort(v, m, sizeof *v, cmp_open);
	for (size_t i = 0; i < m; i++) {
		while (depth && stack[depth - 1].end <= v[i].ts)
			close_op(c, &stack[--depth]);
		/* Times are rounded: what lies mostly behind an operator follows it. */
		while (depth && v[i].end - stack[depth - 1].end > stack[depth - 1].end - v[i].ts) {
			stack[depth - 1].end = v[i].ts;
			close_op(c, &stack[--depth]);
		}
		if (depth) {
			int64_t end = v[i].end < stack[depth - 1].end ? v[i].end
								      : stack[depth - 1].end;

			stack[depth - 1].child += end - v[i].ts;
			v[i].end = end; /* crossing spans cannot both own the time */
		}
		if (depth < DEPTH_MAX)
			stack[depth++] = v[i];
	}
	while (depth)
		close_op(c, &stack[--depth]);
	lg_free(v);
}

/* Spans that are counted and timed as they are. */
static void flat_span(struct items *c, uint32_t row)
{
	const struct lg_span_tab *s = &c->t->span;
	const char *name = lg_string(c->t, s->name[row]), *shape = "";
	/* Rows of streams have no thread. */
	const struct lg_step *steps = c->w->device && !s->thr[row] ? c->w->device : c->w->steps;
	char buf[NAME_MAX_BYTES];
	uint8_t kind;

	switch (s->kind[row]) {
	case LG_SPAN_KERNEL:
		kind = LG_ITEM_KERNEL;
		break;
	case LG_SPAN_COPY:
		kind = LG_ITEM_COPY;
		break;
	case LG_SPAN_COLLECTIVE:
		kind = LG_ITEM_COLLECTIVE;
		break;
	case LG_SPAN_STAGE:
		kind = LG_ITEM_STAGE_CALL;
		name = lg_stage_name(s->stage[row]);
		break;
	default:
		return;
	}
	if (s->dur[row] >= 0)
		add(item(c, kind, stable_name(name, buf), shape), step_of(steps, c->w->n, s->ts[row]),
		    (double)s->dur[row] / 1e6, 1);
}

static void functions(struct items *c, const struct lg_index *x)
{
	const struct lg_sample_tab *s = &c->t->sample;
	const uint32_t no_cpu = LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE;
	struct lg_map item_of = { 0 }; /* stack's leaf frame -> index + 1 */
	double clock = 0, other = 0, scale;

	for (int pass = 0; pass < 2; pass++) {
		/* Samples of an event count nothing in time: they share out the steps' time. */
		scale = clock > 0 ? 1 : other > 0 ? c->s->wall_ms / other : 0;
		for (uint32_t p = x->thread_off[c->w->prc]; p < x->thread_off[c->w->prc + 1]; p++) {
			lg_thr thr = x->thread[p];

			for (uint32_t i = lg_index_sample_from(x, thr, c->w->from);
			     i < x->sample_off[thr + 1]; i++) {
				uint32_t row = x->sample[i], at;
				bool is_clock = strstr(lg_string(c->t, s->event[row]), "clock");
				double weight = (double)s->weight[row] / 1e6;
				lg_frm f;

				if (s->ts[row] >= c->w->to)
					break;
				if ((s->flags[row] & no_cpu) || !s->stack[row])
					continue;
				*(is_clock ? &clock : &other) += pass ? 0 : weight;
				if (!pass || (clock > 0) != is_clock)
					continue;
				f = c->t->stack.frame[s->stack[row]];
				at = lg_map_get(&item_of, f + 1);
				if (!at) {
					char buf[NAME_MAX_BYTES];
					const char *name = lg_string(c->t, c->t->frame.name[f]);
					const char *dso = lg_string(c->t, c->t->frame.dso[f]);
					struct acc *a;

					/* An address says nothing in another run: its file does. */
					a = item(c, LG_ITEM_FUNCTION,
						 stable_name(*name ? name : *dso ? dso : "?", buf), "");
					at = a ? (uint32_t)(a - c->v) + 1 : 0;
					if (at && lg_map_set(&item_of, f + 1, at))
						c->failed = true;
				}
				if (at)
					add(&c->v[at - 1], step_at(c, s->ts[row]), weight * scale, 1);
			}
		}
	}
	lg_map_done(&item_of);
}

static int cmp_item(const void *a, const void *b)
{
	const struct lg_item *x = a, *y = b;
	int d = x->kind - y->kind;

	if (!d)
		d = strcmp(x->name, y->name);
	return d ? d : strcmp(x->shape, y->shape);
}

static int finish(struct items *c)
{
	double n = (double)c->w->n, regions = 0;
	bool spans = false;

	c->s->items = lg_arena_alloc(&c->s->arena, c->n + 1, sizeof *c->s->items);
	if (!c->s->items || c->failed)
		return LG_E_NOMEM;
	for (size_t i = 0; i < c->n; i++) {
		struct acc *a = &c->v[i];
		struct lg_item *o = &c->s->items[c->s->n_items];

		settle(a);
		if (!a->n)
			continue; /* only outside judged steps */
		*o = a->item;
		o->ms = a->sum / n;
		o->var = n > 1 ? fmax(0, (a->sumsq - a->sum * a->sum / n) / (n - 1)) : 0;
		o->count = (double)a->n / n;
		spans |= o->kind == LG_ITEM_OP || o->kind == LG_ITEM_KERNEL || o->kind == LG_ITEM_REGION;
		if (o->kind == LG_ITEM_REGION || (o->kind == LG_ITEM_KERNEL && starts(o->name, "triton_")))
			regions += o->count;
		c->s->n_items++;
	}
	qsort(c->s->items, c->s->n_items, sizeof *c->s->items, cmp_item);
	c->s->compile.regions = spans ? regions : (double)NAN;
	return 0;
}

int lg_side_items(struct lg_side *s, const struct lg_trace *t, const struct lg_index *x,
		  const struct lg_side_window *w)
{
	struct items c = { .s = s, .t = t, .w = w };
	int rc = 0;

	if (w->n) {
		for (uint32_t p = x->thread_off[w->prc]; p < x->thread_off[w->prc + 1]; p++) {
			lg_thr thr = x->thread[p];
			const uint32_t *rows = x->span + x->span_off[thr];
			size_t n = x->span_off[thr + 1] - x->span_off[thr];

			operators_of(&c, rows, n);
			for (size_t i = 0; i < n; i++)
				flat_span(&c, rows[i]);
		}
		/* Rows without a thread: streams, of this process or of none in particular. */
		for (uint32_t p = x->span_off[0]; p < x->span_off[1]; p++) {
			lg_prc prc = t->track.prc[t->span.track[x->span[p]]];

			if (!prc || prc == w->prc)
				flat_span(&c, x->span[p]);
		}
		functions(&c, x);
		rc = finish(&c);
	}
	lg_map_done(&c.by_hash);
	lg_map_done(&c.op_of);
	lg_free(c.v);
	return rc;
}
