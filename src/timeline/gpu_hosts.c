/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_hosts.c - what each host thread of a process did, as a list of disjoint stretches of time.
 *
 * The rows of all threads, one thread behind the other, are dealt to two lanes, each of which has a core
 * where there are two. The thread that lies in the middle is cut at a moment when nothing of it is open:
 * what comes then is the same as if it were a thread of its own.
 */
#include "timeline/window.h"
#include "base/side_thread.h"
#include "base/upper_bound.h"

enum { NEST_MAX = 512 };
#define ROUNDING_NS 2000ll

/* A copy from pageable memory or a synchronous call waits for the copy and all before it. */
static enum lg_host_class host_class(enum lg_name_class k)
{
	static const uint8_t of[LG_NAME_COMM + 1] = {
		[LG_NAME_LAUNCH] = LG_HOST_LAUNCH, [LG_NAME_GRAPH_LAUNCH] = LG_HOST_LAUNCH,
		[LG_NAME_GRAPH_BUILD] = LG_HOST_LAUNCH, [LG_NAME_RUNTIME] = LG_HOST_LAUNCH,
		[LG_NAME_COPY_CALL] = LG_HOST_LAUNCH, [LG_NAME_SYNC] = LG_HOST_SYNC,
		[LG_NAME_BLOCKING_COPY] = LG_HOST_COPY, [LG_NAME_ALLOC] = LG_HOST_ALLOC,
		[LG_NAME_FREE] = LG_HOST_ALLOC, [LG_NAME_LOADER] = LG_HOST_LOADER,
		[LG_NAME_COMPILE] = LG_HOST_COMPILE, [LG_NAME_SIDE] = LG_HOST_SIDE,
		[LG_NAME_LOG] = LG_HOST_LOG };

	if (k == LG_NAME_FRAME || k == LG_NAME_TORCH_FRAME || k == LG_NAME_MODULE)
		return LG_HOST_NONE; /* the interpreter between operators */
	return of[k] ? of[k] : LG_HOST_OP;
}

enum { FILE_LIBRARY = 1, FILE_USER };

void lg_gpu_classify_names(const struct lg_scene *sc, struct lg_gpu *g)
{
	const struct lg_trace *t = sc->t;

	for (size_t i = 0; i < sc->n_span_names; i++)
		(void)lg_gpu_name(sc, g, sc->span_names[i]);
	for (size_t i = 0; i < t->frame.n; i++) {
		lg_str f = t->frame.file[i];
		const char *file = lg_string(t, f);

		if (!g->file_class[f])
			g->file_class[f] = !*file || lg_is_library_path(file) ? FILE_LIBRARY : FILE_USER;
	}
}

/* Of a Python call: is it the program's, not of torch or the interpreter's own library? */
static bool user_frame(const struct lg_trace *t, const struct lg_gpu *g, uint32_t row)
{
	lg_stk s = t->span.stack[row];

	return s && g->file_class[t->frame.file[t->stack.frame[s]]] == FILE_USER;
}

struct nest {
	int64_t end;
	uint32_t at;             /* its place in the index */
	uint32_t span, op, site; /* what it says about the time in it */
	uint8_t class;
	bool note, backward;     /* backward: op is autograd's */
};

/* An annotation of the program's own: torch's have a number, a class or a namespace in their names. */
static bool users_note(const struct lg_trace *t, const struct lg_span_at *s, enum lg_name_class k)
{
	return (s->kind == LG_SPAN_NOTE || s->kind == LG_SPAN_STAGE) && k == LG_NAME_OTHER &&
	       !strpbrk(lg_string(t, s->name), "#.:");
}

static bool waits(const char *call)
{
	return (strcasestr(call, "wait") || strcasestr(call, "sync")) && !strcasestr(call, "async");
}

/* The class that a span gives itself and what is nested in it. */
static struct nest enter(const struct lg_scene *sc, struct lg_gpu *g, const struct nest *up, uint32_t at,
			 const struct lg_map *copies)
{
	const struct lg_trace *t = sc->t;
	const struct lg_span_at *s = &sc->idx->span_at[at];
	uint32_t row = sc->idx->span[at], copy;
	enum lg_name_class k = lg_gpu_name(sc, g, s->name);
	struct nest n = { .end = lg_row_end(t, s->ts, s->dur), .at = at, .span = row, .op = LG_NO_ROW,
			  .site = LG_NO_ROW, .class = (uint8_t)host_class(k) };

	if (s->stage == LG_STAGE_BATCH_WAIT && s->kind == LG_SPAN_STAGE)
		n.class = LG_HOST_LOADER;
	else if (s->stage == LG_STAGE_SIDE && s->kind == LG_SPAN_STAGE)
		n.class = k == LG_NAME_LOG ? LG_HOST_LOG : LG_HOST_SIDE;
	else if (s->kind == LG_SPAN_COMPILE && k != LG_NAME_COMPILED_REGION)
		n.class = LG_HOST_COMPILE;
	if (s->kind == LG_SPAN_PYTHON && n.class == LG_HOST_OP)
		n.class = LG_HOST_NONE;
	/* Of a device whose calls are not known here. */
	if (s->kind == LG_SPAN_RUNTIME && n.class == LG_HOST_OP)
		n.class = waits(lg_string(t, s->name)) ? LG_HOST_SYNC : LG_HOST_LAUNCH;
	/* A copy whose row was lost, and whose call took far longer than to order it, made the host wait. */
	copy = k == LG_NAME_COPY_CALL ? lg_map_get(copies, row) : LG_COPY_OTHER;
	if (copy == LG_COPY_PAGEABLE || (!copy && s->dur >= LG_COLD_CALL_NS))
		n.class = LG_HOST_COPY;
	if (k == LG_NAME_STEP)
		n.class = LG_HOST_NONE;
	n.note = users_note(t, s, k);
	if (up) {
		n.note |= up->note && s->kind == LG_SPAN_PYTHON;
		n.op = up->op;
		n.backward = up->backward;
		n.site = up->site;
		if (n.end > up->end)
			n.end = up->end; /* by rounding; see nest_in() */
		if (up->class >= LG_HOST_SIDE || n.class <= LG_HOST_LOG) {
			if (up->class > n.class) {
				n.class = up->class;
				n.span = up->span;
			}
		}
	}
	if ((s->kind == LG_SPAN_PYTHON && user_frame(t, g, row)) || k == LG_NAME_MODULE ||
	    (n.site == LG_NO_ROW && k != LG_NAME_STEP &&
	     (s->kind == LG_SPAN_STAGE || s->kind == LG_SPAN_NOTE))) {
		n.site = row;
	} else if (s->kind == LG_SPAN_OP && !lg_is_runtime_name(k) && k != LG_NAME_STEP &&
		   k != LG_NAME_TORCH_FRAME && (n.op == LG_NO_ROW || n.backward)) {
		n.op = row;
		n.backward = k == LG_NAME_BACKWARD;
	}
	return n;
}

/*
 * Open a span. Spans nest but for two cases: times rounded to a microsecond let a child outlive its
 * parent a little (clipped), and an annotation begins inside the Python call of its __enter__, which
 * ends soon: it goes below what ends before it.
 */
static size_t nest_in(const struct lg_scene *sc, struct lg_gpu *g, struct nest *stack, size_t depth,
		      uint32_t at, const struct lg_map *copies)
{
	const struct lg_span_at *s = &sc->idx->span_at[at];
	int64_t end = lg_row_end(sc->t, s->ts, s->dur);
	size_t up = depth;

	if (depth == NEST_MAX)
		return depth;
	while (up && stack[up - 1].end + ROUNDING_NS < end)
		up--;
	memmove(stack + up + 1, stack + up, (depth - up) * sizeof *stack);
	stack[up] = enter(sc, g, up ? &stack[up - 1] : NULL, at, copies);
	for (size_t i = up + 1; i <= depth; i++)
		stack[i] = enter(sc, g, &stack[i - 1], stack[i].at, copies);
	return depth + 1;
}

/* What rows are counted as: a row may be several. */
enum { OPS, OTHER_ROWS, STEPS, LOOPS, BACKWARD, FRAMES, SIDE, COMPILE, COMPILED, LAUNCHES, GRAPHS_LAUNCHED,
       GRAPHS_BUILT, COUNTS };

/* Rows [from, to) of a thread's list in the index, and what came of them. */
struct part {
	lg_thr thr;
	uint32_t from, to;
	size_t count[COUNTS];
	int64_t first, last;             /* of its operators and annotations */
	uint32_t *mark;                  /* see struct lg_gpu_host */
	size_t n_marks, cap_marks;
	struct lg_host_seg *seg;
	size_t n, cap;
};

/* Once over the rows, for all that one look tells. */
static int look(const struct lg_scene *sc, struct lg_gpu *g, struct part *h)
{
	const struct lg_trace *t = sc->t;
	size_t *n = h->count;

	for (uint32_t p = h->from; p < h->to; p++) {
		const struct lg_span_at *s = &sc->idx->span_at[p];
		enum lg_name_class name = lg_gpu_name(sc, g, s->name);
		uint8_t kind = s->kind, stage = s->stage;

		n[OPS] += kind == LG_SPAN_OP;
		n[OTHER_ROWS] += kind == LG_SPAN_STAGE || kind == LG_SPAN_NOTE || kind == LG_SPAN_RUNTIME;
		n[STEPS] += kind == LG_SPAN_STEP || name == LG_NAME_STEP;
		n[LOOPS] += name == LG_NAME_OPTIMIZER || name == LG_NAME_LOADER;
		n[BACKWARD] += name == LG_NAME_BACKWARD || name == LG_NAME_OPTIMIZER ||
			       stage == LG_STAGE_BACKWARD || stage == LG_STAGE_OPTIMIZER;
		n[FRAMES] += kind == LG_SPAN_PYTHON;
		n[SIDE] += name == LG_NAME_SIDE || name == LG_NAME_LOG || stage == LG_STAGE_SIDE;
		n[COMPILE] += name == LG_NAME_COMPILE ||
			      (kind == LG_SPAN_COMPILE && name != LG_NAME_COMPILED_REGION);
		n[COMPILED] += name == LG_NAME_COMPILED_REGION;
		n[GRAPHS_LAUNCHED] += name == LG_NAME_GRAPH_LAUNCH;
		n[GRAPHS_BUILT] += name == LG_NAME_GRAPH_BUILD;
		if (kind == LG_SPAN_OP || kind == LG_SPAN_NOTE || kind == LG_SPAN_STAGE) {
			int64_t end = lg_row_end(t, s->ts, s->dur);

			h->first = LG_MIN(s->ts, h->first);
			h->last = LG_MAX(end, h->last);
		}
		if (lg_scope_wants(kind, name, s->dur)) {
			if (LG_APPEND(h->mark, h->n_marks, h->cap_marks, sc->idx->span[p]))
				return LG_E_NOMEM;
		}
	}
	return 0;
}

static int segments(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_map *copies, struct part *h)
{
	LG_AUTOFREE struct nest *stack = lg_calloc(NEST_MAX, sizeof *stack);
	struct lg_host_seg *seg = NULL;
	size_t n = 0, depth = 0;
	int64_t now = INT64_MIN;
	int rc = stack ? 0 : LG_E_NOMEM;

	/* Each row begins one stretch and ends one, at most: room for all of them (what is not written takes
	 * no memory) is cheaper than a list that is copied as it grows. */
	if (!rc)
		rc = lg_grow(&seg, &h->cap, 2 * (size_t)(h->to - h->from) + 1, sizeof *seg);
	for (uint32_t p = h->from; !rc && p <= h->to; p++) {
		const struct lg_span_at *row = p < h->to ? &sc->idx->span_at[p] : NULL;
		int64_t ts = row ? row->ts : INT64_MAX;
		enum lg_name_class name;

		if (row && (row->kind == LG_SPAN_LOCK_WAIT || row->kind == LG_SPAN_LOCK_HOLD ||
			    row->kind == LG_SPAN_MEMORY || row->dur > LG_GPU_WEEK_NS))
			continue;
		/* Close what ended, then the time up to here belongs to what is still open. */
		for (;;) {
			const struct nest *top = depth ? &stack[depth - 1] : NULL;
			int64_t until = top ? LG_MIN(top->end, ts) : now;

			if (top && until > now) {
				struct lg_host_seg s = { now, until, top->span, top->op, top->site,
							 top->class, top->note };

				if (n && seg[n - 1].end == now && seg[n - 1].class == s.class &&
				    seg[n - 1].span == s.span && seg[n - 1].op == s.op &&
				    seg[n - 1].site == s.site) {
					seg[n - 1].end = until;
				} else {
					rc = LG_APPEND(seg, n, h->cap, s);
					if (rc)
						break;
				}
				now = until;
			}
			if (!top || top->end > ts)
				break;
			depth--;
		}
		if (rc || !row)
			break;
		now = LG_MAX(now, ts);
		depth = nest_in(sc, g, stack, depth, p, copies);
		name = lg_gpu_name(sc, g, row->name);
		h->count[LAUNCHES] += name == LG_NAME_LAUNCH || name == LG_NAME_GRAPH_LAUNCH;
	}
	h->seg = seg;
	h->n = n;
	return rc;
}

bool lg_gpu_does(const struct lg_gpu_run *r, enum lg_host_class class)
{
	for (size_t h = 0; h < r->n_host; h++)
		for (size_t i = 0; i < r->host[h].n; i++)
			if (r->host[h].seg[i].class == class && lg_host_in_window(r, &r->host[h].seg[i]))
				return true;
	return false;
}

/* What is asked next is near what was asked last: from there in steps that double, then by bisection. */
size_t lg_host_after(const struct lg_gpu_host *h, int64_t ts)
{
	size_t lo = *h->near, hi, by = 1;

	if (lo < h->n && h->seg[lo].end <= ts) {
		for (hi = lo + 1; hi < h->n && h->seg[hi].end <= ts; hi += by, by *= 2)
			lo = hi;
		hi = LG_MIN(hi, h->n);
	} else {
		for (hi = lo; lo && h->seg[lo - 1].end > ts; by *= 2) {
			hi = lo - 1;
			lo = hi > by ? hi - by : 0;
		}
	}
	if (lo < hi)
		lo += LG_UPPER_BOUND(&h->seg[lo], hi - lo, end, ts);
	*h->near = lo;
	return lo;
}

const struct lg_host_seg *lg_host_at(const struct lg_gpu_host *h, int64_t ts)
{
	size_t i = lg_host_after(h, ts);

	return i < h->n && h->seg[i].ts <= ts ? &h->seg[i] : NULL;
}

struct lane {
	const struct lg_scene *sc;
	struct lg_gpu *g;
	const struct lg_map *copies;
	struct part *part;
	size_t n;
	int rc;
};

static bool wanted(const struct part *h)
{
	return h->count[OPS] || h->count[OTHER_ROWS] || h->count[STEPS];
}

static void work_off(void *arg)
{
	struct lane *l = arg;

	LG_EACH_WHILE(!l->rc, h, l->part, l->n) {
		const uint32_t *off = l->sc->idx->span_off + h->thr;
		bool whole = h->from == off[0] && h->to == off[1];

		l->rc = look(l->sc, l->g, h);
		/* Of a thread that is cut, the other part may be what is wanted. */
		if (!l->rc && (wanted(h) || !whole))
			l->rc = segments(l->sc, l->g, l->copies, h);
	}
}

/* Where rows [from, to) of a thread may be cut, near `at`: nothing that began before is open; `to`:
 * nowhere. */
static uint32_t cut_near(const struct lg_index *x, uint32_t from, uint32_t to, uint32_t at)
{
	uint32_t first = from, up = at > from ? at : from + 1, down = up;

	for (; up < to || down > from; up++, down--) {
		if (up < to && lg_index_span_reach(x, first, up - 1) <= x->span_at[up].ts)
			return up;
		if (down > from && lg_index_span_reach(x, first, down - 1) <= x->span_at[down].ts)
			return down;
		down += down == from; /* it stays there */
	}
	return to;
}

/* The threads of prc as parts; *ret_second: the first that is the second lane's. At most one part more than
 * there are threads. */
static size_t deal(const struct lg_scene *sc, lg_prc prc, struct part *part, size_t *ret_second)
{
	const struct lg_index *x = sc->idx;
	size_t n = 0, all = 0, before = 0;

	for (lg_thr k = 1; k < sc->t->thread.n; k++)
		all += sc->t->thread.prc[k] == prc ? x->span_off[k + 1] - x->span_off[k] : 0;
	*ret_second = SIZE_MAX;
	for (lg_thr k = 1; k < sc->t->thread.n; k++) {
		uint32_t from = x->span_off[k], to = x->span_off[k + 1], cut = to;

		if (sc->t->thread.prc[k] != prc || from == to)
			continue;
		if (*ret_second == SIZE_MAX && before + (to - from) > all / 2) {
			if (all / 2 > before)
				cut = cut_near(x, from, to, from + (uint32_t)(all / 2 - before));
			/* Uncut, it goes where less of it is too much. */
			*ret_second = cut < to || all / 2 - before > (to - from) / 2 ? n + 1 : n;
		}
		before += to - from;
		part[n++] = (struct part){ .thr = k, .from = from, .to = cut, .first = INT64_MAX,
					   .last = INT64_MIN };
		if (cut < to)
			part[n++] = (struct part){ .thr = k, .from = cut, .to = to, .first = INT64_MAX,
						   .last = INT64_MIN };
	}
	*ret_second = LG_MIN(*ret_second, n);
	return n;
}

/* What b, the rest of a's thread, has becomes a's. */
static int join(struct part *a, const struct part *b)
{
	for (size_t k = 0; k < COUNTS; k++)
		a->count[k] += b->count[k];
	a->first = LG_MIN(b->first, a->first);
	a->last = LG_MAX(b->last, a->last);
	if (b->n_marks && lg_grow(&a->mark, &a->cap_marks, a->n_marks + b->n_marks, sizeof *a->mark))
		return LG_E_NOMEM;
	if (b->n_marks)
		memcpy(a->mark + a->n_marks, b->mark, b->n_marks * sizeof *b->mark);
	a->n_marks += b->n_marks;
	if (b->n && lg_grow(&a->seg, &a->cap, a->n + b->n, sizeof *a->seg))
		return LG_E_NOMEM;
	if (b->n)
		memcpy(a->seg + a->n, b->seg, b->n * sizeof *b->seg);
	a->n += b->n;
	return 0;
}

/* Threads with operators, annotations or runtime calls: those that train, and their helpers. */
static int add_host(const struct lg_scene *sc, struct lg_gpu_run *r, struct part *h)
{
	struct lg_gpu_host *o = &r->host[r->n_host];

	*o = (struct lg_gpu_host){ .thr = h->thr, .n_launches = h->count[LAUNCHES], .first = h->first,
				   .last = h->last };
	o->seg = lg_arena_adopt(sc->arena, h->seg);
	h->seg = NULL;
	o->n = o->seg ? h->n : 0;
	o->mark = lg_arena_adopt(sc->arena, h->mark);
	h->mark = NULL;
	o->n_marks = o->mark ? h->n_marks : 0;
	o->near = lg_arena_alloc(sc->arena, 1, sizeof *o->near);
	r->n_ops += h->count[OPS];
	r->n_host++;
	return sc->arena->failed ? LG_E_NOMEM : 0;
}

int lg_gpu_hosts(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r,
		 const struct lg_launches *l)
{
	enum { WORTH_A_THREAD = 1 << 15 };
	struct lg_map copies = { 0 };
	LG_AUTOFREE struct part *part = lg_calloc(sc->t->thread.n + 1, sizeof *part);
	struct lane lane[2] = { { .sc = sc, .g = g, .copies = &copies, .part = part } };
	size_t n = 0, second = 0, rows = 0, most = 0;
	int64_t first = INT64_MAX;
	int by_marks = 0;
	struct lg_side_thread beside;
	int rc = part ? lg_launches_copies(l, &copies) : LG_E_NOMEM;

	if (!rc) {
		n = deal(sc, r->prc, part, &second);
		r->host = lg_arena_alloc(sc->arena, n + 1, sizeof *r->host);
		rc = r->host ? 0 : LG_E_NOMEM;
	}
	if (!rc) {
		lane[1] = lane[0];
		lane[0].n = second;
		lane[1].part += second;
		lane[1].n = n - second;
		for (size_t i = second; i < n; i++)
			rows += part[i].to - part[i].from;
		lg_side_thread_start(&beside, rows >= WORTH_A_THREAD, work_off, &lane[1]);
		work_off(&lane[0]);
		lg_side_thread_wait(&beside);
		rc = lane[0].rc ? lane[0].rc : lane[1].rc;
	}
	for (size_t i = 0; i < n && !rc; i++) {
		struct part *h = &part[i];
		int marks;

		if (i + 1 < n && part[i + 1].thr == h->thr)
			rc = join(h, &part[++i]);
		r->has_backward |= h->count[BACKWARD] > 0;
		r->has_frames |= h->count[FRAMES] > 0;
		r->has_side |= h->count[SIDE] > 0;
		r->has_compile |= h->count[COMPILE] > 0;
		r->compiled |= h->count[COMPILED] > 0;
		r->n_graph_launches += h->count[GRAPHS_LAUNCHED];
		r->n_graph_built += h->count[GRAPHS_BUILT];
		if (rc || !wanted(h))
			continue;
		/* Main: carries the steps; else the loader or the optimizer (an autograd thread may launch
		 * more than it does); else launches most; else came first. */
		marks = h->count[STEPS] ? 2 : h->count[LOOPS] > 0;
		if (marks > by_marks || (marks == by_marks && h->count[LAUNCHES] > most) ||
		    (!most && !by_marks && !h->count[LAUNCHES] && h->n && h->seg[0].ts < first)) {
			by_marks = marks;
			most = h->count[LAUNCHES];
			first = h->n ? h->seg[0].ts : first;
			r->main = h->thr;
		}
		rc = add_host(sc, r, h);
	}
	lg_map_done(&copies);
	for (size_t i = 0; part && i < n; i++) {
		lg_free(part[i].seg);
		lg_free(part[i].mark);
	}
	return rc;
}
