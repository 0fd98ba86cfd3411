/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_gpu.c - collect what each process's device did and what its host threads did.
 *
 * Of several devices of one process the busiest is judged: a union over devices would hide that
 * one of them idles.
 */
#include "analyse/timeline_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/aside.h"

enum { NEST_MAX = 512 };
/* A row longer than a week is CUPTI's overflow, not work (HolisticTraceAnalysis drops them, too). */
#define WEEK_NS (7 * 86400ll * 1000000000)
#define ROUNDING_NS 2000ll

bool lg_gpu_only(const struct lg_trace *t)
{
	if (t->state.n || t->sample.n)
		return false;
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.kind[i] == LG_SPAN_OP || t->span.kind[i] == LG_SPAN_KERNEL ||
		    t->span.kind[i] == LG_SPAN_COPY)
			return true;
	return false;
}

/* The device a stream belongs to: the outermost track of its branch that is a device. */
static lg_trk device_of(const struct lg_trace *t, lg_trk k)
{
	lg_trk d = k;

	for (int i = 0; k && i < 8; i++, k = t->track.parent[k])
		if (t->track.kind[k] == LG_TRACK_GPU)
			d = k;
	return d;
}

static bool on_device(const struct lg_trace *t, size_t row)
{
	lg_trk k = t->span.track[row];
	uint8_t kind = t->span.kind[row];

	if (!k || t->span.thr[row] || t->span.dur[row] < 0 || t->span.dur[row] > WEEK_NS)
		return false;
	if (t->track.kind[k] != LG_TRACK_STREAM && t->track.kind[k] != LG_TRACK_GPU)
		return false;
	return kind == LG_SPAN_KERNEL || kind == LG_SPAN_COPY || kind == LG_SPAN_COLLECTIVE ||
	       kind == LG_SPAN_MEMORY;
}

static void classify(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_work *w)
{
	const char *name = lg_string(c->t, c->t->span.name[w->span]);

	w->class = LG_GPU_COMPUTE;
	if (c->t->span.kind[w->span] == LG_SPAN_COLLECTIVE ||
	    lg_gpu_name(c, g, c->t->span.name[w->span]) == LG_NAME_COMM) {
		w->class = LG_GPU_COMM;
		return;
	}
	if (strncasecmp(name, "Memcpy", 6) && c->t->span.kind[w->span] != LG_SPAN_COPY)
		return;
	/* CUPTI: "Memcpy HtoD (Pageable -> Device)"; ROCm: "Memcpy HtoD (Host -> Device)" or
	 * CopyHostToDevice, which do not say whether the memory was pinned. */
	if (strstr(name, "HtoD") || strstr(name, "HostToDevice"))
		w->class = LG_GPU_H2D;
	else if (strstr(name, "DtoH") || strstr(name, "DeviceToHost"))
		w->class = LG_GPU_D2H;
	w->pageable = strstr(name, "Pageable") != NULL;
}

/* A copy from pageable memory or a synchronous call waits for the copy and all before it. */
static enum lg_host_class host_class(enum lg_name_class k)
{
	switch (k) {
	case LG_NAME_LAUNCH:
	case LG_NAME_GRAPH_LAUNCH:
	case LG_NAME_GRAPH_BUILD:
	case LG_NAME_RUNTIME:
	case LG_NAME_COPY_CALL:
		return LG_HOST_LAUNCH;
	case LG_NAME_SYNC:
		return LG_HOST_SYNC;
	case LG_NAME_BLOCKING_COPY:
		return LG_HOST_COPY;
	case LG_NAME_ALLOC:
	case LG_NAME_FREE:
		return LG_HOST_ALLOC;
	case LG_NAME_LOADER:
		return LG_HOST_LOADER;
	case LG_NAME_COMPILE:
		return LG_HOST_COMPILE;
	case LG_NAME_SIDE:
		return LG_HOST_SIDE;
	case LG_NAME_FRAME:
	case LG_NAME_TORCH_FRAME:
	case LG_NAME_MODULE:
		return LG_HOST_NONE; /* the interpreter between operators */
	default:
		return LG_HOST_OP;
	}
}

/* A Python call of the program, not of torch or the interpreter's own library. */
static bool user_frame(const struct lg_trace *t, struct lg_gpu *g, uint32_t row)
{
	enum { LIBRARY = 1, USER };
	lg_stk s = t->span.stack[row];
	lg_str f;

	if (t->span.kind[row] != LG_SPAN_PYTHON || !s)
		return false;
	f = t->frame.file[t->stack.frame[s]];
	if (!g->file_class[f]) {
		const char *file = lg_string(t, f);

		g->file_class[f] = !*file || lg_is_library_path(file) ? LIBRARY : USER;
	}
	return g->file_class[f] == USER;
}

struct nest {
	int64_t end;
	uint32_t row;            /* itself */
	uint32_t span, op, site; /* what it says about the time in it */
	uint8_t class;
};

/* The class that a span gives itself and what is nested in it. */
static struct nest enter(struct lg_case *c, struct lg_gpu *g, const struct nest *up, uint32_t row,
			 const uint8_t *copies)
{
	const struct lg_trace *t = c->t;
	enum lg_name_class k = lg_gpu_name(c, g, t->span.name[row]);
	struct nest n = { .end = lg_row_end(t, t->span.ts[row], t->span.dur[row]),
			  .row = row, .span = row, .op = LG_NO_ROW, .site = LG_NO_ROW,
			  .class = (uint8_t)host_class(k) };

	if (t->span.stage[row] == LG_STAGE_BATCH_WAIT && t->span.kind[row] == LG_SPAN_STAGE)
		n.class = LG_HOST_LOADER;
	else if (t->span.stage[row] == LG_STAGE_SIDE && t->span.kind[row] == LG_SPAN_STAGE)
		n.class = LG_HOST_SIDE;
	else if (t->span.kind[row] == LG_SPAN_COMPILE && k != LG_NAME_COMPILED_REGION)
		n.class = LG_HOST_COMPILE;
	if (t->span.kind[row] == LG_SPAN_PYTHON && n.class == LG_HOST_OP)
		n.class = LG_HOST_NONE;
	if (copies[row] && k == LG_NAME_COPY_CALL)
		n.class = LG_HOST_COPY;
	if (k == LG_NAME_STEP)
		n.class = LG_HOST_NONE;
	if (up) {
		n.op = up->op;
		n.site = up->site;
		if (n.end > up->end)
			n.end = up->end; /* by rounding; see nest_in() */
		if (up->class >= LG_HOST_SIDE || n.class <= LG_HOST_OP) {
			if (up->class > n.class) {
				n.class = up->class;
				n.span = up->span;
			}
		}
	}
	if (user_frame(t, g, row) || k == LG_NAME_MODULE ||
	    (n.site == LG_NO_ROW &&
	     (t->span.kind[row] == LG_SPAN_STAGE || t->span.kind[row] == LG_SPAN_NOTE)))
		n.site = row;
	else if (t->span.kind[row] == LG_SPAN_OP && !lg_is_runtime_name(k) && k != LG_NAME_STEP &&
		 k != LG_NAME_TORCH_FRAME &&
		 (n.op == LG_NO_ROW || lg_gpu_name(c, g, t->span.name[n.op]) == LG_NAME_BACKWARD))
		n.op = row;
	return n;
}

/*
 * Open a span. Spans nest but for two cases: times rounded to a microsecond let a child outlive its
 * parent a little (clipped), and an annotation begins inside the Python call of its __enter__, which
 * ends soon: it goes below what ends before it.
 */
static size_t nest_in(struct lg_case *c, struct lg_gpu *g, struct nest *stack, size_t depth,
		      uint32_t row, const uint8_t *copies)
{
	int64_t end = lg_row_end(c->t, c->t->span.ts[row], c->t->span.dur[row]);
	size_t at = depth;

	if (depth == NEST_MAX)
		return depth;
	while (at && stack[at - 1].end + ROUNDING_NS < end)
		at--;
	memmove(stack + at + 1, stack + at, (depth - at) * sizeof *stack);
	stack[at] = enter(c, g, at ? &stack[at - 1] : NULL, row, copies);
	for (size_t i = at + 1; i <= depth; i++)
		stack[i] = enter(c, g, &stack[i - 1], stack[i].row, copies);
	return depth + 1;
}

static int host_segments(struct lg_case *c, struct lg_gpu *g, lg_thr thr, const uint8_t *copies,
			 struct lg_gpu_host *ret)
{
	const struct lg_trace *t = c->t;
	uint32_t from = c->idx->span_off[thr], to = c->idx->span_off[thr + 1];
	struct nest *stack = lg_calloc(NEST_MAX, sizeof *stack);
	struct lg_host_seg *seg = NULL;
	size_t n = 0, cap = 0, depth = 0;
	int64_t now = INT64_MIN;
	int rc = stack ? 0 : LG_E_NOMEM;

	/* Each row begins one stretch and ends one, at most: room for all of them (what is not written takes
	 * no memory) is cheaper than a list that is copied as it grows. */
	if (!rc)
		rc = lg_grow(&seg, &cap, 2 * (size_t)(to - from) + 1, sizeof *seg);
	for (uint32_t p = from; !rc && p <= to; p++) {
		uint32_t row = p < to ? c->idx->span[p] : 0;
		int64_t ts = p < to ? t->span.ts[row] : INT64_MAX;

		if (p < to && (t->span.kind[row] == LG_SPAN_LOCK_WAIT ||
			       t->span.kind[row] == LG_SPAN_LOCK_HOLD ||
			       t->span.kind[row] == LG_SPAN_MEMORY || t->span.dur[row] > WEEK_NS))
			continue;
		/* Close what ended, then the time up to here belongs to what is still open. */
		for (;;) {
			const struct nest *top = depth ? &stack[depth - 1] : NULL;
			int64_t until = top ? top->end < ts ? top->end : ts : now;

			if (top && until > now) {
				struct lg_host_seg s = { now, until, top->span, top->op, top->site,
							 top->class };

				if (n && seg[n - 1].end == now && seg[n - 1].class == s.class &&
				    seg[n - 1].span == s.span && seg[n - 1].op == s.op &&
				    seg[n - 1].site == s.site) {
					seg[n - 1].end = until;
				} else {
					rc = lg_grow(&seg, &cap, n + 1, sizeof *seg);
					if (rc)
						break;
					seg[n++] = s;
				}
				now = until;
			}
			if (!top || top->end > ts)
				break;
			depth--;
		}
		if (rc || p == to)
			break;
		if (now < ts)
			now = ts;
		depth = nest_in(c, g, stack, depth, row, copies);
		ret->n_launches += lg_gpu_name(c, g, t->span.name[row]) == LG_NAME_LAUNCH ||
				   lg_gpu_name(c, g, t->span.name[row]) == LG_NAME_GRAPH_LAUNCH;
	}
	lg_free(stack);
	ret->thr = thr;
	if (rc) {
		lg_free(seg);
		return rc;
	}
	ret->seg = lg_arena_adopt(&c->v->arena, seg);
	ret->n = ret->seg ? n : 0;
	ret->near = lg_arena_alloc(&c->v->arena, 1, sizeof *ret->near);
	return (n && !ret->seg) || !ret->near ? LG_E_NOMEM : 0;
}

/* What is asked next is near what was asked last: from there in steps that double, then by bisection. */
size_t lg_host_after(const struct lg_gpu_host *h, int64_t ts)
{
	size_t lo = *h->near, hi, by = 1;

	if (lo < h->n && h->seg[lo].end <= ts) {
		for (hi = lo + 1; hi < h->n && h->seg[hi].end <= ts; hi += by, by *= 2)
			lo = hi;
		hi = hi < h->n ? hi : h->n;
	} else {
		for (hi = lo; lo && h->seg[lo - 1].end > ts; by *= 2) {
			hi = lo - 1;
			lo = hi > by ? hi - by : 0;
		}
	}
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (h->seg[mid].end <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	*h->near = lo;
	return lo;
}

const struct lg_host_seg *lg_host_at(const struct lg_gpu_host *h, int64_t ts)
{
	size_t i = lg_host_after(h, ts);

	return i < h->n && h->seg[i].ts <= ts ? &h->seg[i] : NULL;
}

/* Threads with operators, annotations or runtime calls: those that train, and their helpers. */
static int collect_hosts(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r,
			 const struct lg_launches *l)
{
	const struct lg_trace *t = c->t;
	uint8_t *copies = lg_calloc(t->span.n, 1);
	size_t n = 0, most = 0;
	int64_t first = INT64_MAX;
	bool by_step = false;
	int rc = copies ? 0 : LG_E_NOMEM;

	for (lg_thr k = 1; k < t->thread.n; k++)
		n += t->thread.prc[k] == r->prc && c->idx->span_off[k] < c->idx->span_off[k + 1];
	r->host = lg_arena_alloc(&c->v->arena, n + 1, sizeof *r->host);
	if (!r->host)
		rc = LG_E_NOMEM;
	if (!rc)
		rc = lg_launches_copies(l, copies);
	for (lg_thr k = 1; !rc && k < t->thread.n; k++) {
		struct lg_gpu_host *h = &r->host[r->n_host];
		size_t ops = 0, rows = 0;
		bool step = false;

		if (t->thread.prc[k] != r->prc || c->idx->span_off[k] == c->idx->span_off[k + 1])
			continue;
		for (uint32_t p = c->idx->span_off[k]; p < c->idx->span_off[k + 1]; p++) {
			uint32_t row = c->idx->span[p];
			enum lg_name_class name = lg_gpu_name(c, g, t->span.name[row]);

			ops += t->span.kind[row] == LG_SPAN_OP;
			rows += t->span.kind[row] == LG_SPAN_STAGE ||
				t->span.kind[row] == LG_SPAN_NOTE ||
				t->span.kind[row] == LG_SPAN_RUNTIME;
			step |= t->span.kind[row] == LG_SPAN_STEP || name == LG_NAME_STEP;
			r->has_backward |= name == LG_NAME_BACKWARD || name == LG_NAME_OPTIMIZER ||
					   t->span.stage[row] == LG_STAGE_BACKWARD ||
					   t->span.stage[row] == LG_STAGE_OPTIMIZER;
			r->has_frames |= t->span.kind[row] == LG_SPAN_PYTHON;
			r->compiled |= name == LG_NAME_COMPILED_REGION;
			r->n_graph_launches += name == LG_NAME_GRAPH_LAUNCH;
			r->n_graph_built += name == LG_NAME_GRAPH_BUILD;
		}
		if (!ops && !rows && !step)
			continue;
		memset(h, 0, sizeof *h);
		rc = host_segments(c, g, k, copies, h);
		/* Main: carries the steps; else launches most; else came first. */
		if (step > by_step || (step == by_step && h->n_launches > most) ||
		    (!most && !by_step && !h->n_launches && h->n && h->seg[0].ts < first)) {
			by_step |= step;
			most = h->n_launches;
			first = h->n ? h->seg[0].ts : first;
			r->main = k;
		}
		r->n_ops += ops;
		r->n_host++;
	}
	lg_free(copies);
	return rc;
}

static const char *meta_of(const struct lg_case *c, lg_prc prc, const char *key)
{
	const struct lg_meta_tab *m = &c->t->meta;
	const char *v = NULL;

	for (size_t i = 0; i < m->n; i++)
		if ((m->prc[i] == prc || !m->prc[i]) && !strcmp(lg_string(c->t, m->key[i]), key))
			v = lg_string(c->t, m->value[i]);
	return v;
}

static void device_facts(struct lg_case *c, struct lg_gpu_run *r, lg_trk device)
{
	int index = device && c->t->track.index[device] > 0 ? c->t->track.index[device] : 0;
	const char *v;

	v = meta_of(c, r->prc, lg_arena_printf(&c->v->arena, "gpu.%d.name", index));
	r->device = v && *v ? v : NULL;
	v = meta_of(c, r->prc, lg_arena_printf(&c->v->arena, "gpu.%d.compute", index));
	r->cc_major = v ? (int)strtol(v, NULL, 10) : 0; /* "9.0" */
	r->amd = meta_of(c, r->prc, "hip.runtime") != NULL ||
		 (r->device && strstr(r->device, "AMD"));
}

/* Rows of device work by the process that owns them: row[off[prc] .. off[prc + 1]), by start. */
struct owned {
	uint32_t *off, *row;
};

static int sort_by_owner(const struct lg_trace *t, const lg_prc *owner, struct owned *ret)
{
	uint32_t *off = lg_calloc(t->process.n + 2, sizeof *off), *row;

	ret->off = off;
	if (!off)
		return LG_E_NOMEM;
	/* off[prc + 1] is the fill mark of prc and ends up as its end. */
	for (size_t i = 0; i < t->span.n; i++)
		if (on_device(t, i))
			off[owner[t->span.track[i]] + 2]++;
	for (size_t i = 1; i < t->process.n + 2; i++)
		off[i] += off[i - 1];
	ret->row = row = lg_calloc(off[t->process.n + 1], sizeof *row);
	if (!row)
		return LG_E_NOMEM;
	for (uint32_t i = 0; i < t->span.n; i++)
		if (on_device(t, i))
			row[off[owner[t->span.track[i]] + 1]++] = i;
	return 0;
}

/* Work of prc's busiest device, by start. */
static int collect_work(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r,
			const struct owned *owned)
{
	const struct lg_trace *t = c->t;
	const uint32_t *row = owned->row + owned->off[r->prc];
	size_t n_rows = owned->off[r->prc + 1] - owned->off[r->prc], n = 0;
	int64_t *busy;
	lg_trk device = 0;

	if (!n_rows)
		return 0;
	busy = lg_calloc(t->track.n, sizeof *busy);
	if (!busy)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n_rows; i++)
		busy[g->device[t->span.track[row[i]]]] += t->span.dur[row[i]] + 1;
	for (lg_trk k = 1; k < t->track.n; k++)
		if (busy[k] > busy[device])
			device = k;
	lg_free(busy);
	if (!device)
		return 0;
	for (size_t i = 0; i < n_rows; i++)
		n += g->device[t->span.track[row[i]]] == device;
	r->work = lg_arena_alloc(&c->v->arena, n + 1, sizeof *r->work);
	if (!r->work)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n_rows; i++) {
		struct lg_gpu_work *w = &r->work[r->n_work];
		uint32_t k = row[i];

		if (g->device[t->span.track[k]] != device)
			continue;
		*w = (struct lg_gpu_work){ .ts = t->span.ts[k], .end = t->span.ts[k] + t->span.dur[k],
					   .span = k, .call = LG_NO_ROW,
					   .stream = t->span.track[k] };
		classify(c, g, w);
		r->n_work++;
	}
	device_facts(c, r, device);
	return 0;
}

/* Processes that own a device track, or ran operators. */
static int find_runs(struct lg_case *c, struct lg_gpu *g, lg_prc *owner)
{
	const struct lg_trace *t = c->t;
	uint8_t *has = lg_calloc(t->process.n, 1);
	lg_prc only = 0;
	size_t n = 0;

	if (!has)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.thr[i] && t->span.kind[i] == LG_SPAN_OP)
			has[t->thread.prc[t->span.thr[i]]] = 1;
	for (lg_prc p = 1; p < t->process.n; p++)
		if (has[p]) {
			only = n ? 0 : p;
			n++;
		}
	for (lg_trk k = 1; k < t->track.n; k++) {
		lg_trk up = k;

		for (int i = 0; up && !owner[k] && i < 8; i++, up = t->track.parent[up])
			owner[k] = t->track.prc[up] ? t->track.prc[up]
				   : t->track.thr[up] ? t->thread.prc[t->track.thr[up]] : 0;
		if (!owner[k])
			owner[k] = only; /* one process with operators: the device is its own */
	}
	for (size_t i = 0; i < t->span.n; i++)
		if (on_device(t, i) && owner[t->span.track[i]])
			has[owner[t->span.track[i]]] = 1;
	g->run = lg_arena_alloc(&c->v->arena, t->process.n + 1, sizeof *g->run);
	for (lg_prc p = 1; g->run && p < t->process.n; p++)
		if (has[p])
			g->run[g->n++] = (struct lg_gpu_run){ .prc = p, .rank = t->process.rank[p] };
	lg_free(has);
	return g->run ? 0 : LG_E_NOMEM;
}

static int cmp_run(const void *a, const void *b)
{
	const struct lg_gpu_run *x = a, *y = b;

	if (x->rank != y->rank)
		return (x->rank > y->rank) - (x->rank < y->rank);
	return (x->prc > y->prc) - (x->prc < y->prc);
}

static int collect_launches_and_hosts(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r)
{
	struct lg_launches *l;
	int rc = lg_launches_start(c, g, r, &l), also;

	if (rc)
		return rc;
	rc = collect_hosts(c, g, r, l);
	also = lg_launches_finish(l);
	return rc ? rc : also;
}

/* What the rules will ask whatever comes of the account. */
struct beside {
	struct lg_case *c;
	struct lg_gpu_run *r;
	bool amp, batch;
	struct lg_gpu_ivs busy;
	int rc;
};

static void look_beside(void *arg)
{
	struct beside *b = arg;

	b->batch = lg_gpu_judged(b->r) && lg_batch_may_infer(b->r);
	if (b->batch)
		b->rc = lg_batch_busy(b->c, b->r, &b->busy);
	if (b->amp)
		lg_amp_walk(b->c, b->r);
}

static int account(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r)
{
	enum { WORTH_A_THREAD = 1 << 15 };
	struct beside b = { .c = c, .r = r, .amp = lg_gpu_judged(r) && r->n_ops };
	struct lg_gpu_ivs *busy = lg_arena_alloc(&c->v->arena, 1, sizeof *busy);
	struct lg_aside aside;
	int rc = busy ? 0 : LG_E_NOMEM;

	if (!rc && b.amp)
		rc = lg_amp_begin(c, r);
	if (rc)
		return rc;
	lg_aside_start(&aside, c->t->span.n >= WORTH_A_THREAD, look_beside, &b);
	rc = lg_gpu_account(c, g, r);
	lg_aside_wait(&aside);
	if (b.amp && lg_amp_end(c, r) && !rc)
		rc = LG_E_NOMEM;
	if (b.busy.v && !lg_arena_adopt(&c->v->arena, b.busy.v))
		return LG_E_NOMEM;
	if (lg_gpu_judged(r)) {
		r->batch = b.batch;
		r->batch_known = true;
	}
	if (b.batch && !b.rc) {
		*busy = b.busy;
		r->busy = busy;
	}
	return rc ? rc : b.rc;
}

int lg_gpu_new(struct lg_case *c, struct lg_gpu *ret, struct lg_error *err)
{
	lg_prc *owner = lg_calloc(c->t->track.n + 1, sizeof *owner);
	struct owned owned = { 0 };
	int rc = 0;

	*ret = (struct lg_gpu){ 0 };
	ret->device = lg_arena_alloc(&c->v->arena, c->t->track.n + 1, sizeof *ret->device);
	ret->name_class = lg_arena_alloc(&c->v->arena, c->t->n_str + 1, 1);
	ret->file_class = lg_arena_alloc(&c->v->arena, c->t->n_str + 1, 1);
	if (!owner || !ret->device || !ret->name_class || !ret->file_class)
		rc = LG_E_NOMEM;
	for (lg_trk k = 1; !rc && k < c->t->track.n; k++)
		ret->device[k] = device_of(c->t, k);
	if (!rc)
		rc = find_runs(c, ret, owner);
	if (!rc && ret->n)
		qsort(ret->run, ret->n, sizeof *ret->run, cmp_run);
	if (!rc)
		rc = sort_by_owner(c->t, owner, &owned);
	if (!rc)
		rc = lg_span_names(c);
	for (size_t i = 0; !rc && i < ret->n; i++) {
		struct lg_gpu_run *r = &ret->run[i];

		rc = collect_work(c, ret, r, &owned);
		if (!rc)
			rc = collect_launches_and_hosts(c, ret, r);
		if (!rc)
			rc = lg_scope_of_trace(c, ret, r);
		if (!rc)
			rc = account(c, ret, r);
	}
	lg_free(owner);
	lg_free(owned.off);
	lg_free(owned.row);
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}
