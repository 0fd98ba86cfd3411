/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_ends.c - when a step was done, on the host and on its device.
 *
 * The device may be steps behind the host, and at the beginning of a profiler's window it is not yet: the
 * host's steps are then as short as their launches until the queue is full. Work belongs to the step that
 * orders it.
 */
#include "timeline/window.h"

/* A device that is behind by less is only finishing the last step. */
#define BEHIND_SHARE 0.1
#define BEHIND_NS 200000ll
/* In steps: a host that waits in each for the device to do the one before has steps as long as its. */
#define FAR_BEHIND 2
/* More of a step's launches than that, its last ones, without their kernel: when it was done is not known. */
#define UNRUN_SHARE 0.1

/* The steps' own work: where the stream of its kernels begins with it, and in done[] when the last that a
 * step ordered ends. */
struct own {
	const struct lg_gpu_work *first;
	int64_t *done;
	size_t n;
};

static size_t ordered_in(const struct lg_gpu_run *r, const struct lg_gpu_work *w)
{
	return w->call == LG_NO_ROW ? r->n_steps : lg_gpu_step_of(r, w->called);
}

static void find_own(const struct lg_gpu_run *r, struct own *o)
{
	LG_EACH(w, r->work, r->n_work) {
		size_t s = ordered_in(r, w);

		if (s >= r->n_steps)
			continue;
		o->n++;
		if (!o->first && w->class <= LG_GPU_COMM)
			o->first = w;
		o->done[s] = LG_MAX(o->done[s], w->end);
	}
	/* A copy on a stream of its own does not wait for the kernels before it, one on theirs does. */
	for (const struct lg_gpu_work *w = r->work; o->first && w < o->first; w++)
		if (w->stream == o->first->stream && ordered_in(r, w) < r->n_steps)
			o->first = w;
}

/*
 * The steps whose last kernels are missing from the trace: what is left of them ends early, or with the host,
 * which may be far ahead. Their done[] becomes INT64_MAX. Returns how many, or a negative error.
 */
static int forget_unrun(const struct lg_trace *t, const struct lg_gpu_run *r, int64_t *done)
{
	size_t n = r->n_steps;
	LG_AUTOFREE size_t *launched = lg_calloc(n, sizeof *launched), *last = lg_calloc(n, sizeof *last);
	LG_AUTOFREE int64_t *ran = lg_calloc(n, sizeof *ran);
	int k = launched && last && ran ? 0 : LG_E_NOMEM;

	for (size_t s = 0; !k && s < n; s++)
		ran[s] = INT64_MIN;
	LG_EACH_WHILE(!k, w, r->work, r->n_work) {
		size_t s = ordered_in(r, w);

		if (s < n && t->span.kind[w->span] == LG_SPAN_KERNEL && w->called > ran[s])
			ran[s] = w->called;
	}
	for (size_t i = 0; !k && i < r->n_launched; i++) {
		size_t s = lg_gpu_step_of(r, r->launched[i]);

		if (s < n) {
			launched[s]++;
			last[s] += r->launched[i] > ran[s];
		}
	}
	for (size_t s = 0; k >= 0 && s < n; s++)
		if (last[s] >= 3 && (double)last[s] > UNRUN_SHARE * (double)launched[s]) {
			done[s] = INT64_MAX;
			k++;
		}
	return k;
}

/* b[] is when each step was done; where that is not in the trace, the steps of the hole share it evenly. */
static void spread_over_holes(const int64_t *done, int64_t *b, size_t n)
{
	for (size_t s = 0, to; s < n; s = to + 1) {
		for (to = s; to + 1 < n && done[to] == INT64_MAX; to++)
			;
		for (size_t i = s; i < to; i++)
			b[i + 1] = b[s] + (b[to + 1] - b[s]) / (int64_t)(to + 1 - s) * (int64_t)(i + 1 - s);
	}
}

/*
 * A window in which the device is as far behind at the end as at the beginning, and still does what was
 * ordered before, shows the loop as it is. One that begins with an empty queue, or lacks what came before,
 * shows of the device only what it did while the host ran ahead: a step then lasts until the device has
 * done it. At the end the host may have waited for it after all (a loss that is read, the
 * profiler's stop): then it is told by where the device was furthest behind.
 */
int lg_steps_of_device(const struct lg_scene *sc, struct lg_gpu_run *r)
{
	size_t n = r->n_steps;
	struct own o = { 0 };
	int64_t *b, from = n ? r->step[0] : 0, behind = 0;
	int unknown;

	if (!n || !r->n_work || r->cut_head)
		return 0;
	b = lg_arena_alloc(sc->arena, n + 1, sizeof *b);
	o.done = lg_arena_alloc(sc->arena, n, sizeof *o.done);
	if (!b || !o.done)
		return LG_E_NOMEM;
	for (size_t s = 0; s < n; s++)
		o.done[s] = INT64_MIN;
	find_own(r, &o);
	if (2 * o.n < r->n_work)
		return 0; /* whose most of it is, is not known */
	b[n] = r->step[n];
	for (size_t s = 0; s < n; s++)
		b[n] = LG_MAX(o.done[s], b[n]);
	for (size_t s = 0; s < n; s++)
		behind = o.done[s] > r->step[s + 1] + behind ? o.done[s] - r->step[s + 1] : behind;
	unknown = r->n_unrun ? forget_unrun(sc->t, r, o.done) : 0;
	if (unknown < 0)
		return unknown;
	if (2 * (size_t)unknown > n)
		return 0;
	if (behind <= FAR_BEHIND * (lg_gpu_seen(r, r->step[0], r->step[n]) / (int64_t)n))
		behind = b[n] - r->step[n];
	if ((double)behind <= BEHIND_SHARE * (double)lg_gpu_seen(r, r->step[0], r->step[n]))
		return 0;
	if (o.first && o.first->ts - lg_span_end(sc->t, o.first->call) > BEHIND_NS) {
		if (lg_gpu_at_work(r, r->step[0], o.first->ts, NULL)) {
			r->behind = true;
			return 0;
		}
		from = o.first->ts;
	}
	b[0] = from;
	for (size_t s = 0; s < n; s++) {
		int64_t end = o.done[s] != INT64_MAX ? o.done[s] : s + 1 < n ? b[s] : b[n];

		b[s + 1] = LG_MAX(end, r->step[s + 1]);
		if (b[s + 1] <= b[s])
			b[s + 1] = b[s] + 1;
	}
	spread_over_holes(o.done, b, n);
	r->asked = r->step;
	r->step = b;
	r->from = b[0];
	r->to = b[n];
	return 0;
}
