/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_ends.c - when a step was done, on the host and on its device.
 *
 * The device may be steps behind the host, and at the beginning of a profiler's window it is not yet: the
 * host's steps are then as short as their launches until the queue is full. Work belongs to the step that
 * orders it.
 */
#include "analyse/timeline/window.h"

/* A device that is behind by less is only finishing the last step. */
#define BEHIND_SHARE 0.1
#define BEHIND_NS 200000ll
/* More launches than that without their kernel: where the steps' work ends is not known. */
#define UNRUN_SHARE 0.1

/* The steps' own work: where the stream of its kernels begins with it, and in done[] when the last that a
 * step ordered ends. */
struct own {
	const struct lg_gpu_work *first;
	int64_t *done;
	size_t n;
};

static size_t ordered_in(const struct lg_trace *t, const struct lg_gpu_run *r, const struct lg_gpu_work *w)
{
	return w->call == LG_NO_ROW ? r->n_steps : lg_gpu_step_of(r, t->span.ts[w->call]);
}

static void find_own(const struct lg_trace *t, const struct lg_gpu_run *r, struct own *o)
{
	for (size_t i = 0; i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		size_t s = ordered_in(t, r, w);

		if (s >= r->n_steps)
			continue;
		o->n++;
		if (!o->first && w->class <= LG_GPU_COMM)
			o->first = w;
		if (w->end > o->done[s])
			o->done[s] = w->end;
	}
	/* A copy on a stream of its own does not wait for the kernels before it, one on theirs does. */
	for (const struct lg_gpu_work *w = r->work; o->first && w < o->first; w++)
		if (w->stream == o->first->stream && ordered_in(t, r, w) < r->n_steps)
			o->first = w;
}

/*
 * A window in which the device is as far behind at the end as at the beginning, and still does what was
 * ordered before, shows the loop as it is. One that begins with an empty queue, or lacks what came before,
 * shows of the device only what it did while the host ran ahead: a step then lasts until the device has
 * done it.
 */
int lg_steps_of_device(struct lg_case *c, struct lg_gpu_run *r)
{
	size_t n = r->n_steps;
	struct own o = { 0 };
	int64_t *b, from = n ? r->step[0] : 0;

	if (!n || !r->n_work || r->cut_head || r->unrun_share > UNRUN_SHARE)
		return 0;
	b = lg_arena_alloc(&c->v->arena, n + 1, sizeof *b);
	o.done = lg_arena_alloc(&c->v->arena, n, sizeof *o.done);
	if (!b || !o.done)
		return LG_E_NOMEM;
	for (size_t s = 0; s < n; s++)
		o.done[s] = INT64_MIN;
	find_own(c->t, r, &o);
	if (2 * o.n < r->n_work)
		return 0; /* whose most of it is, is not known */
	b[n] = r->step[n];
	for (size_t s = 0; s < n; s++)
		b[n] = o.done[s] > b[n] ? o.done[s] : b[n];
	if ((double)(b[n] - r->step[n]) <= BEHIND_SHARE * (double)(r->step[n] - r->step[0]))
		return 0;
	if (o.first && o.first->ts - lg_span_end(c->t, o.first->call) > BEHIND_NS) {
		if (lg_gpu_at_work(r, r->step[0], o.first->ts, NULL))
			return 0;
		from = o.first->ts;
	}
	b[0] = from;
	for (size_t s = 0; s < n; s++) {
		b[s + 1] = o.done[s] > r->step[s + 1] ? o.done[s] : r->step[s + 1];
		if (b[s + 1] <= b[s])
			b[s + 1] = b[s] + 1;
	}
	r->asked = r->step;
	r->step = b;
	r->from = b[0];
	r->to = b[n];
	return 0;
}

void lg_step_ends(const struct lg_trace *t, const struct lg_gpu_run *r, struct lg_step *step)
{
	int64_t until = r->step[0];

	for (size_t i = 0; !r->asked && i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		int64_t at = w->call == LG_NO_ROW ? INT64_MAX : t->span.ts[w->call];
		size_t s = lg_gpu_step_of(r, at);

		if (at < r->step[0] && w->end > until)
			until = w->end;
		else if (s < r->n_steps && w->end > step[s].done)
			step[s].done = w->end;
	}
	for (size_t s = 0; s < r->n_steps; s++) {
		step[s].ready = until > step[s].ts ? until : step[s].ts;
		if (step[s].done < step[s].ts + step[s].dur)
			step[s].done = step[s].ts + step[s].dur;
		if (step[s].done < step[s].ready)
			step[s].done = step[s].ready;
		until = step[s].done;
	}
}
