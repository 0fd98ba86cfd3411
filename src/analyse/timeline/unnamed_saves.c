/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unnamed_saves.c - checkpoints in a trace without Python stacks: nothing there is called a save.
 *
 * What a save leaves is that the main thread fetches tensor after tensor from the device, megabytes of
 * them, and orders nothing else meanwhile (torch.save takes each storage to the host and writes it); then it
 * writes the rest. Metrics are a few bytes each. Tensors that come back after the host has worked on them (an
 * optimizer on the CPU) are offloaded, not saved. The whole stretch, up to what the host does next, becomes
 * LG_HOST_SIDE.
 */
#include <string.h>

#include "analyse/timeline/window.h"

/* Copies to the host that belong together, by number of r->work. */
struct fetch {
	size_t first, last, n;
	size_t others;  /* kernels ordered since the last one: what makes a tensor contiguous */
	int64_t bytes;
	int64_t called; /* when the last one was ordered */
};

static bool is_fetched(const struct lg_trace *t, const struct lg_gpu_run *r, const struct lg_gpu_work *w)
{
	const struct lg_host_seg *s;

	if (w->class != LG_GPU_D2H || w->call == LG_NO_ROW || t->span.thr[w->call] != r->main)
		return false;
	s = lg_host_at(lg_gpu_main_host(r), t->span.ts[w->call]);
	return s && s->class < LG_HOST_SIDE;
}

/* When the host does something else after work i, which it called for. */
static int64_t next_doing(const struct lg_trace *t, const struct lg_gpu_run *r, size_t i, int64_t from)
{
	const struct lg_gpu_host *h = lg_gpu_main_host(r);
	int64_t called = t->span.ts[r->work[i].call], until = r->to;
	const struct lg_host_seg *s = lg_host_at(h, called);
	uint32_t op = s ? s->op : LG_NO_ROW;

	for (size_t k = i + 1; k < r->n_work; k++)
		if (r->work[k].call != LG_NO_ROW && t->span.ts[r->work[k].call] > called) {
			until = t->span.ts[r->work[k].call];
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

/* Bytes that go to the device between f and the next kernel, all by the host's calls. */
static int64_t comes_back(const struct lg_trace *t, const struct lg_gpu_run *r, const struct fetch *f)
{
	int64_t sum = 0, until = INT64_MAX;
	size_t next = f->last + 1;

	for (; next < r->n_work && until == INT64_MAX; next++)
		if (r->work[next].call != LG_NO_ROW && r->work[next].class <= LG_GPU_COMM &&
		    t->span.ts[r->work[next].call] > f->called)
			until = t->span.ts[r->work[next].call];
	for (size_t i = f->last + 1; i < next; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		int64_t called = w->call != LG_NO_ROW ? t->span.ts[w->call] : INT64_MIN;

		if (w->class == LG_GPU_H2D && called > f->called && called < until)
			sum += (int64_t)t->span.bytes[w->span];
	}
	return sum;
}

/* What the main thread does in [from, to) becomes one stretch of a save; several stretches lie in there. */
static void rewrite(struct lg_gpu_host *h, int64_t from, int64_t to, struct lg_host_seg save)
{
	size_t a = lg_host_after(h, from), b;

	if (a < h->n && h->seg[a].ts < from)
		h->seg[a++].end = from;
	for (b = a; b < h->n && h->seg[b].end <= to; b++)
		;
	if (b == a) /* there would have to be room */
		return;
	if (b < h->n && h->seg[b].ts < to)
		h->seg[b].ts = to;
	save.ts = from;
	save.end = to;
	save.class = LG_HOST_SIDE;
	save.note = false;
	h->seg[a] = save;
	memmove(h->seg + a + 1, h->seg + b, (h->n - b) * sizeof *h->seg);
	h->n -= b - a - 1;
	*h->near = 0;
}

/* f is complete. */
static void judge(const struct lg_trace *t, struct lg_gpu_run *r, const struct fetch *f)
{
	struct lg_gpu_host *h = &r->host[lg_gpu_main_host(r) - r->host];
	const struct lg_host_seg *s;
	int64_t from, to;

	if (f->n < LG_N_SIDE_CHECKPOINT_COPIES || f->bytes < LG_N_SIDE_CHECKPOINT_MEGABYTES * 1000000ll ||
	    2 * comes_back(t, r, f) > f->bytes)
		return;
	from = t->span.ts[r->work[f->first].call];
	to = next_doing(t, r, f->last, from);
	s = lg_host_at(h, from);
	if (!s || to <= from)
		return;
	rewrite(h, from, to, *s);
	r->n_saves++;
	r->save_copies += f->n;
	r->save_bytes += f->bytes;
}

void lg_gpu_unnamed_saves(const struct lg_trace *t, struct lg_gpu_run *r)
{
	enum { ONE_TENSORS = 2 };
	struct fetch f = { 0 };

	for (size_t i = 0; r->main && i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		int64_t called = w->call != LG_NO_ROW ? t->span.ts[w->call] : w->ts;

		if (is_fetched(t, r, w)) {
			if (!f.n)
				f.first = i;
			f.last = i;
			f.n++;
			f.others = 0;
			f.bytes += (int64_t)t->span.bytes[w->span];
			f.called = called;
		} else if (f.n && called > f.called && w->class <= LG_GPU_COMM && ++f.others > ONE_TENSORS) {
			judge(t, r, &f);
			f = (struct fetch){ 0 };
		}
	}
	if (f.n)
		judge(t, r, &f);
}
