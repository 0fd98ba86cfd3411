/* SPDX-License-Identifier: Apache-2.0 */
/*
 * after_sync.c - what the host does between the end of a synchronisation and its next launch.
 *
 * Idle time behind a synchronisation is charged to it, because without it the host would be ahead. Where the
 * host then works for milliseconds before it launches again, that work is the other half of the cause, and
 * often what changed: many loops read their loss in every step and lose nothing by it.
 */
#include "analyse/device/device_rules.h"

#define WORK_NS 2000000ll /* no launch takes that long */
#define MOST 0.5

/* What the host does in idle stretches: names of the outermost operator and of the user's code around it. */
struct doing {
	lg_str op, site;
	uint32_t op_row, site_row;
	int64_t ns;
};

struct tally {
	struct doing v[32];
	size_t n;
};

static void count(struct tally *y, const struct lg_trace *t, const struct lg_host_seg *s, int64_t ns)
{
	struct doing x = { .op_row = s->op, .site_row = s->site, .ns = ns };
	size_t i = 0;

	/* The innermost range says most; a call of a library is better than nothing; a step's mark is not. */
	if (s->span != LG_NO_ROW && (t->span.kind[s->span] == LG_SPAN_NOTE ||
				     (t->span.kind[s->span] == LG_SPAN_PYTHON && s->site == LG_NO_ROW)))
		x.site_row = s->span;
	if (x.site_row != LG_NO_ROW && t->span.kind[x.site_row] == LG_SPAN_STEP)
		x.site_row = LG_NO_ROW;
	x.op = x.op_row != LG_NO_ROW ? t->span.name[x.op_row] : 0;
	x.site = x.site_row != LG_NO_ROW ? t->span.name[x.site_row] : 0;
	while (i < y->n && !(y->v[i].op == x.op && y->v[i].site == x.site))
		i++;
	if (i < y->n)
		y->v[i].ns += ns;
	else if (i < sizeof y->v / sizeof *y->v)
		y->v[y->n++] = x;
}

/* What thread m does in [from, to), without the call that waited. */
static void look(struct tally *y, const struct lg_trace *t, const struct lg_gpu_host *m, int64_t from,
		 int64_t to)
{
	for (size_t i = lg_host_after(m, from); i < m->n && m->seg[i].ts < to; i++) {
		const struct lg_host_seg *s = &m->seg[i];
		int64_t a = LG_MAX(s->ts, from), b = LG_MIN(s->end, to);

		if (b > a && s->class != LG_HOST_SYNC && s->class != LG_HOST_COPY)
			count(y, t, s, b - a);
	}
}

/* The end of the stretch without launches that begins with piece i; *charged: to synchronisation. */
static size_t stretch(const struct lg_gpu_run *r, size_t i, int64_t *charged)
{
	int64_t end = r->piece[i].ts;

	*charged = 0;
	for (; i < r->n_pieces && r->piece[i].ts == end; i++) {
		if (r->piece[i].cause != LG_GPU_BY_SYNC && r->piece[i].cause != LG_GPU_BY_LAUNCH)
			break;
		end += r->piece[i].dur;
		*charged += r->piece[i].cause == LG_GPU_BY_SYNC ? r->piece[i].dur : 0;
	}
	return i;
}

bool lg_gpu_after_sync(struct lg_case *c, const struct lg_gpu_run *r, struct lg_after_sync *ret)
{
	const struct lg_gpu_host *m = r->main ? lg_gpu_main_host(r) : NULL;
	struct tally y = { .n = 0 };
	int64_t charged, in_long = 0, works = 0;
	const struct doing *most = NULL;

	*ret = (struct lg_after_sync){ .n = 0 };
	for (size_t i = 0, next; m && i < r->n_pieces; i = next) {
		int64_t ns;

		next = i + 1;
		if (r->piece[i].cause != LG_GPU_BY_SYNC)
			continue;
		next = stretch(r, i, &charged);
		ns = r->piece[next - 1].ts + r->piece[next - 1].dur - r->piece[i].ts;
		if (ns < WORK_NS)
			continue;
		in_long += charged;
		ret->n++;
		ret->ns += ns;
		lg_keep_longest(&ret->longest, &ret->at, ns, r->piece[i].ts);
		look(&y, c->t, m, r->piece[i].ts, r->piece[i].ts + ns);
	}
	LG_EACH(x, y.v, y.n) {
		works += x->ns;
		if (!most || x->ns > most->ns)
			most = x;
	}
	/* Or the host waits for something else meanwhile: another device, say. */
	if (!ret->n || (double)in_long < MOST * (double)r->by[LG_GPU_BY_SYNC] ||
	    (double)works < MOST * (double)ret->ns)
		return false;
	if (most && (double)most->ns >= MOST * (double)ret->ns && (most->op || most->site)) {
		ret->where = lg_gpu_place(&c->scene, most->op_row, most->site_row);
		ret->where_ns = most->ns;
	}
	return true;
}
