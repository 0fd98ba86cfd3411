/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unnamed_saves.c - checkpoints in a trace without Python stacks: nothing there is called a save.
 *
 * What a save leaves is that the main thread fetches tensor after tensor from the device, megabytes of
 * them, and orders nothing else meanwhile (torch.save takes each storage to the host and writes it); then it
 * writes the rest. Metrics are a few bytes each. Tensors that come back after the host has worked on them
 * (an optimizer on the CPU) are offloaded, not saved; the next batch comes, too, and comes in the other steps
 * as well. The whole stretch, up to what the host does next, becomes LG_HOST_SIDE.
 */
#include "timeline/window.h"
#include "base/median.h"
#include "rules/rules.h"

/* Rows in which what comes next is looked for: most often it is the next one. */
enum { LOOK_AHEAD = 4096 };

/* Copies to the host that belong together, by number of r->work. */
struct fetch {
	size_t first, last, n;
	size_t others;  /* kernels ordered since the last one: what makes a tensor contiguous */
	int64_t bytes;
	int64_t called; /* when the last one was ordered */
};

static bool is_fetched(const struct lg_gpu_run *r, const struct lg_gpu_work *w)
{
	const struct lg_host_seg *s;

	if (w->class != LG_GPU_D2H || w->call == LG_NO_ROW || w->caller != r->main)
		return false;
	s = lg_host_at(lg_gpu_main_host(r), w->called);
	return s && s->class < LG_HOST_SIDE;
}

/* When the host does something else after work i, which it called for. */
static int64_t next_doing(const struct lg_trace *t, const struct lg_gpu_run *r, size_t i, int64_t from)
{
	const struct lg_gpu_host *h = lg_gpu_main_host(r);
	int64_t called = r->work[i].called, until = r->to;
	const struct lg_host_seg *s = lg_host_at(h, called);
	uint32_t op = s ? s->op : LG_NO_ROW;

	for (size_t k = i + 1; k < r->n_work && k - i < LOOK_AHEAD; k++)
		if (r->work[k].call != LG_NO_ROW && r->work[k].called > called) {
			until = r->work[k].called;
			break;
		}
	for (size_t k = lg_host_after(h, called); k < h->n && h->seg[k].ts < until; k++) {
		const struct lg_host_seg *x = &h->seg[k];
		bool goes_on = x->class == LG_HOST_NONE || (x->note && t->span.ts[x->span] <= from) ||
			       (op != LG_NO_ROW && x->op == op) || x->class == LG_HOST_SYNC ||
			       x->span == r->work[i].call;

		if (!goes_on)
			return x->ts;
	}
	return until;
}

/* Bytes that go to the device in a step in which nothing is fetched, in the median: its batch. 0: there is no
 * such step. */
static int comes_anyway(const struct lg_trace *t, const struct lg_gpu_run *r, const struct fetch *fetch,
			size_t n, int64_t *ret)
{
	LG_AUTOFREE int64_t *bytes = lg_calloc(r->n_steps + 1, sizeof *bytes);
	size_t usual = 0;

	if (!bytes)
		return LG_E_NOMEM;
	LG_EACH(w, r->work, r->n_work)
		if (w->class == LG_GPU_H2D && w->call != LG_NO_ROW)
			bytes[lg_gpu_asked_in(r, w->called)] += (int64_t)t->span.bytes[w->span];
	LG_EACH(f, fetch, n)
		for (size_t k = lg_gpu_asked_in(r, r->work[f->first].called);
		     k <= LG_MIN(lg_gpu_asked_in(r, f->called), r->n_steps); k++)
			bytes[k] = -1;
	LG_EACH(b, bytes, r->n_steps)
		if (*b >= 0)
			bytes[usual++] = *b;
	*ret = lg_median_i64(bytes, usual);
	return 0;
}

/* Bytes that go to the device between f and the next kernel, all by the host's calls. */
static int64_t comes_back(const struct lg_trace *t, const struct lg_gpu_run *r, const struct fetch *f)
{
	int64_t sum = 0, until = INT64_MAX;
	size_t next = f->last + 1;

	for (; next < r->n_work && next - f->last < LOOK_AHEAD && until == INT64_MAX; next++)
		if (r->work[next].call != LG_NO_ROW && r->work[next].class <= LG_GPU_COMM &&
		    r->work[next].called > f->called)
			until = r->work[next].called;
	for (size_t i = f->last + 1; i < next; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		int64_t called = w->call != LG_NO_ROW ? w->called : INT64_MIN;

		if (w->class == LG_GPU_H2D && called > f->called && called < until)
			sum += (int64_t)t->span.bytes[w->span];
	}
	return sum;
}

/* Stretches of the main thread, by time, disjoint. */
struct saves {
	struct lg_host_seg *v;
	size_t n, cap;
};

/* What the main thread does in them becomes one stretch of a save each. */
static int rewrite(struct lg_arena *arena, struct lg_gpu_host *h, const struct saves *saves)
{
	struct lg_host_seg *v = lg_arena_alloc(arena, h->n + 3 * saves->n + 1, sizeof *v);
	size_t n = 0, k = 0, told = 0;

	if (!v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < h->n; i++) {
		struct lg_host_seg x = h->seg[i];

		for (; k < saves->n && x.end > saves->v[k].ts; k++) {
			const struct lg_host_seg *save = &saves->v[k];

			if (x.ts < save->ts) {
				v[n] = x;
				v[n++].end = save->ts;
			}
			if (told == k) {
				v[n++] = *save;
				told++;
			}
			x.ts = LG_MAX(x.ts, save->end);
			if (x.end <= save->end)
				break; /* the next one may lie in it, too */
		}
		if (x.end > x.ts)
			v[n++] = x;
	}
	h->seg = v;
	h->n = n;
	*h->near = 0;
	return 0;
}

/* `anyway`: bytes that go to the device in the other steps. */
static int judge(const struct lg_trace *t, struct lg_gpu_run *r, const struct fetch *f, int64_t anyway,
		 struct saves *saves)
{
	struct lg_host_seg *last = saves->n ? &saves->v[saves->n - 1] : NULL, save;
	int64_t from = r->work[f->first].called, to;
	const struct lg_host_seg *s = lg_host_at(lg_gpu_main_host(r), from);

	if (2 * (comes_back(t, r, f) - anyway) > f->bytes || !s || (last && from < last->end))
		return 0;
	to = next_doing(t, r, f->last, from);
	if (to <= from)
		return 0;
	save = *s;
	save.ts = from;
	save.end = to;
	save.class = LG_HOST_SIDE;
	save.note = false;
	if (LG_APPEND(saves->v, saves->n, saves->cap, save))
		return LG_E_NOMEM;
	r->n_saves++;
	r->save_copies += f->n;
	r->save_bytes += f->bytes;
	return 0;
}

/* Runs of copies to the host that are many and large. */
struct fetches {
	struct fetch *v;
	size_t n, cap;
};

static int complete(struct fetches *all, struct fetch *f)
{
	bool large = f->n >= LG_N_SIDE_CHECKPOINT_COPIES &&
		     f->bytes >= LG_N_SIDE_CHECKPOINT_MEGABYTES * 1000000ll;
	struct fetch whole = *f;

	*f = (struct fetch){ 0 };
	return large ? LG_APPEND(all->v, all->n, all->cap, whole) : 0;
}

static int find(const struct lg_trace *t, const struct lg_gpu_run *r, struct fetches *all)
{
	enum { ONE_TENSORS = 2 };
	struct fetch f = { 0 };
	int rc = 0;

	for (size_t i = 0; !rc && r->main && i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		int64_t called = w->call != LG_NO_ROW ? w->called : w->ts;

		if (is_fetched(r, w)) {
			if (!f.n)
				f.first = i;
			f.last = i;
			f.n++;
			f.others = 0;
			f.bytes += (int64_t)t->span.bytes[w->span];
			f.called = called;
		} else if (f.n && called > f.called && w->class <= LG_GPU_COMM && ++f.others > ONE_TENSORS) {
			rc = complete(all, &f);
		}
	}
	return rc ? rc : complete(all, &f);
}

int lg_gpu_unnamed_saves(const struct lg_scene *sc, struct lg_gpu_run *r)
{
	struct fetches all = { 0 };
	struct saves saves = { 0 };
	int64_t anyway = 0;
	int rc = find(sc->t, r, &all);

	if (!rc && all.n)
		rc = comes_anyway(sc->t, r, all.v, all.n, &anyway);
	LG_EACH_WHILE(!rc, f, all.v, all.n)
		rc = judge(sc->t, r, f, anyway, &saves);
	if (saves.n && !rc)
		rc = rewrite(sc->arena, &r->host[lg_gpu_main_host(r) - r->host], &saves);
	lg_free(all.v);
	lg_free(saves.v);
	return rc;
}
