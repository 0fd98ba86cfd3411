/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_idle.c - every nanosecond of the window to one cause.
 *
 * While the device works, the kind of work is the cause (compute before collective before copy).
 * While it idles, the next piece of work and the call that launched it say who was late:
 *  - launched so long before the device ran dry that it could have begun by then: the work was queued
 *    (dependency between streams, or rows are missing);
 *  - launched later: what that thread did until then, the main thread where it had nothing open; and from
 *    the call on what a launch takes to reach a device of this trace that has nothing to do.
 *
 * A synchronisation costs more than the idle time inside it: it takes away the lead that the host
 * had. Without it the host would have been earlier by the time it was blocked, so idle time for
 * want of launches that follows is charged to it until that much is used up. The lead is not
 * summed over synchronisations: the launch queue is finite (1024 entries in CUDA).
 */

#include "timeline/cost.h"
#include "timeline/window.h"
#include "base/median.h"
#include "base/upper_bound.h"
#include "rules/rules.h"

#define LAUNCH_LATENCY_NS 200000ll

struct walk {
	const struct lg_scene *sc;
	struct lg_gpu *g;
	struct lg_gpu_run *r;
	int64_t debt;            /* lead lost in the last synchronisation, not yet charged */
	uint8_t debt_cause;
	struct lg_host_seg debt_seg;
	int64_t called;          /* the last piece of work that ended; INT64_MIN = none */
	int64_t latency;         /* from a launch call to the device, where that has nothing else to do */
	size_t unseen;           /* in r->unseen: the first that may end later */
	size_t other;            /* in r->other: the first that may end later */
	struct lg_map to_device; /* span rows: a copy call whose copy went to the device */
	int failed;
};

static void give_seen(struct walk *w, int64_t a, int64_t b, uint8_t cause, const struct lg_host_seg *s,
		      uint32_t span)
{
	struct lg_gpu_run *r = w->r;
	struct lg_gpu_piece p = { .cause = cause, .span = s ? s->span : span,
				  .op = s ? s->op : LG_NO_ROW, .site = s ? s->site : LG_NO_ROW };

	a = LG_MAX(a, r->from);
	b = LG_MIN(b, r->to);
	if (b <= a || w->failed)
		return;
	r->by[cause] += b - a;
	if (cause == LG_GPU_BY_COMPUTE)
		p.span = LG_NO_ROW;
	if (r->n_pieces) {
		struct lg_gpu_piece *q = &r->piece[r->n_pieces - 1];

		if (q->ts + q->dur == a && q->cause == cause && q->span == p.span && q->op == p.op &&
		    q->site == p.site) {
			q->dur += b - a;
			return;
		}
	}
	p.ts = a;
	p.dur = b - a;
	w->failed = LG_APPEND(r->piece, r->n_pieces, r->cap_pieces, p);
}

/* What comes is given in order. */
static void give(struct walk *w, int64_t a, int64_t b, uint8_t cause, const struct lg_host_seg *s,
		 uint32_t span)
{
	const struct lg_gpu_run *r = w->r;

	for (; w->unseen < r->n_unseen && r->unseen[w->unseen].ts < b; w->unseen++) {
		const struct lg_iv *u = &r->unseen[w->unseen];

		if (u->ts > a)
			give_seen(w, a, u->ts, cause, s, span);
		a = LG_MAX(a, u->end);
		if (u->end >= b)
			break;
	}
	if (a < b)
		give_seen(w, a, b, cause, s, span);
}

static const struct lg_gpu_host *host_of(const struct lg_gpu_run *r, lg_thr thr)
{
	LG_EACH(h, r->host, r->n_host)
		if (h->thr == thr)
			return h;
	return NULL;
}

/* What the launching thread, else the main thread, did at ts; *ret_until: how long that holds. */
static const struct lg_host_seg *doing(const struct lg_gpu_host *h, const struct lg_gpu_host *m,
				       int64_t ts, int64_t limit, int64_t *ret_until)
{
	const struct lg_gpu_host *of[2] = { h, m != h ? m : NULL };
	const struct lg_host_seg *found = NULL;

	*ret_until = limit;
	for (size_t k = 0; k < 2; k++) {
		size_t i;

		if (!of[k])
			continue;
		i = lg_host_after(of[k], ts);
		if (i == of[k]->n)
			continue;
		if (of[k]->seg[i].ts > ts) {
			*ret_until = LG_MIN(*ret_until, of[k]->seg[i].ts);
			continue;
		}
		*ret_until = LG_MIN(*ret_until, of[k]->seg[i].end);
		/* An autograd thread that is in no operator waits for the main thread. */
		if (!found || (found->class == LG_HOST_NONE && of[k]->seg[i].class != LG_HOST_NONE))
			found = &of[k]->seg[i];
		if (found->class != LG_HOST_NONE)
			break;
	}
	return found;
}

static bool first_time(const struct walk *w, const struct lg_host_seg *s)
{
	const struct lg_span_tab *t = &w->sc->t->span;

	/* In steady state a long call is a stall of the host, not initialisation. */
	return s && s->class == LG_HOST_LAUNCH && s->span != LG_NO_ROW &&
	       t->dur[s->span] >= LG_COLD_CALL_NS &&
	       (w->r->n_steps < 3 || lg_gpu_asked_in(w->r, t->ts[s->span]) < w->r->n_cold);
}

/* What the host did that was not to launch; 0 = it was late with it. */
static const uint8_t idle_by[] = {
	[LG_HOST_LOG] = LG_GPU_BY_LOG,	     [LG_HOST_SYNC] = LG_GPU_BY_SYNC,
	[LG_HOST_COPY] = LG_GPU_BY_SYNC,     [LG_HOST_ALLOC] = LG_GPU_BY_ALLOC,
	[LG_HOST_SIDE] = LG_GPU_BY_SIDE,     [LG_HOST_COMPILE] = LG_GPU_BY_COMPILE,
	[LG_HOST_LOADER] = LG_GPU_BY_LOADER,
};
_Static_assert(!LG_GPU_BY_COMPUTE, "which is no cause of idle time");

/* [a, b): the host was late with the next launch. */
static void late_host(struct walk *w, const struct lg_gpu_host *h, const struct lg_gpu_host *m, int64_t a,
		      int64_t b)
{
	while (a < b) {
		int64_t until, part;
		const struct lg_host_seg *s = doing(h, m, a, b, &until);
		enum lg_gpu_cause cause;

		if (until <= a)
			until = b;
		cause = s ? idle_by[s->class] : LG_GPU_BY_COMPUTE;
		if (s && s->class == LG_HOST_COPY && lg_map_get(&w->to_device, s->span))
			cause = LG_GPU_BY_PAGEABLE; /* such memory is staged by the host inside the call */
		if (!cause && first_time(w, s))
			cause = LG_GPU_BY_COLD;
		if (!cause) {
			part = until - a < w->debt ? until - a : w->debt;
			give(w, a, a + part, w->debt_cause, &w->debt_seg, LG_NO_ROW);
			w->debt -= part;
			a += part;
			cause = LG_GPU_BY_LAUNCH;
		}
		give(w, a, until, (uint8_t)cause, s, LG_NO_ROW);
		a = until;
	}
}

/* The device runs dry at ts: was a thread blocked on it? */
static void note_debt(struct walk *w, const struct lg_gpu_host *h, int64_t ts)
{
	const struct lg_host_seg *s = h ? lg_host_at(h, ts) : NULL;
	int64_t blocked;

	if (!s || s->span == LG_NO_ROW || (s->class != LG_HOST_SYNC && s->class != LG_HOST_COPY))
		return;
	blocked = ts - w->sc->t->span.ts[s->span];
	if (blocked <= w->debt)
		return;
	w->debt = blocked;
	w->debt_seg = *s;
	w->debt_cause = LG_GPU_BY_SYNC;
	if (lg_map_get(&w->to_device, s->span))
		w->debt_cause = LG_GPU_BY_PAGEABLE;
}

/* [a, b): who launched what comes next is not known; a loader or compiler on the main thread is. */
static void unknown_launch(struct walk *w, const struct lg_gpu_host *m, int64_t a, int64_t b)
{
	while (a < b) {
		int64_t until;
		const struct lg_host_seg *s = doing(m, NULL, a, b, &until);
		uint8_t cause = LG_GPU_BY_UNKNOWN;

		if (until <= a)
			until = b;
		if (s && s->class >= LG_HOST_SIDE)
			cause = idle_by[s->class];
		give(w, a, until, cause, s, LG_NO_ROW);
		a = until;
	}
}

/* All devices of the process idle in [a, b) until `next` starts on this one; NULL: nothing more comes. */
static void idle_all(struct walk *w, int64_t a, int64_t b, const struct lg_gpu_work *next)
{
	const struct lg_trace *t = w->sc->t;
	const struct lg_gpu_host *m = host_of(w->r, w->r->main), *h = m;
	int64_t called = b, returned = b;

	if (next && next->call != LG_NO_ROW) {
		h = host_of(w->r, next->caller);
		called = next->called;
		returned = lg_row_end(t, called, t->span.dur[next->call]);
	}
	note_debt(w, h, a);
	if (m != h)
		note_debt(w, m, a);
	if (next && next->call == LG_NO_ROW) {
		unknown_launch(w, m, a, b);
		return;
	}
	if (called > a) {
		int64_t to = LG_MIN(called, b);

		/* Away for far longer than the lead would have covered: not late for having lost it. Else the
		 * whole stretch is for that and for what the host does in it: it has one name. */
		if (w->debt && to - a >= LG_N_GPU_HOST_SYNC_AWAY)
			w->debt = to - a > 2 * w->debt ? 0 : to - a > w->debt ? to - a : w->debt;
		late_host(w, h, m, a, to);
		a = to;
	} else if (returned <= a && next && called + w->latency <= a) {
		give(w, a, b, LG_GPU_BY_QUEUED, NULL, next->span);
		return;
	}
	if (a < b) {
		/* Inside the call, and from it to the device: the price of one launch. */
		struct lg_host_seg s = { .span = next ? next->call : LG_NO_ROW, .op = LG_NO_ROW,
					 .site = LG_NO_ROW, .class = LG_HOST_LAUNCH };
		const struct lg_host_seg *at = h && next ? lg_host_at(h, called) : NULL;
		int64_t until = b, part;

		if (at)
			s = *at;
		if (first_time(w, &s)) {
			give(w, a, b, LG_GPU_BY_COLD, &s, LG_NO_ROW);
			return;
		}
		if (at && at->class >= LG_HOST_SIDE) {
			late_host(w, h, m, a, b);
			return;
		}
		if (next && next->pageable) {
			give(w, a, b, next->class == LG_GPU_H2D ? LG_GPU_BY_PAGEABLE : LG_GPU_BY_D2H, &s,
			     LG_NO_ROW);
			return;
		}
		/* A launch is on the device within tens of microseconds. Longer: the device, or its
		 * driver, was busy with something that is not in the trace. */
		if (next && returned > a && b - returned > LAUNCH_LATENCY_NS)
			until = returned + LAUNCH_LATENCY_NS;
		else if (next && returned <= a && b > called + w->latency)
			until = called + w->latency;
		part = until - a < w->debt ? until - a : w->debt;
		give(w, a, a + part, w->debt_cause, &w->debt_seg, LG_NO_ROW);
		w->debt -= part;
		give(w, a + part, until, LG_GPU_BY_LAUNCH, &s, LG_NO_ROW);
		if (until < b)
			give(w, until, b, LG_GPU_BY_QUEUED, NULL, next->span);
	}
}

/* ns, at most, of work that was ordered between the last one and the next, and that the profiler lost. */
static int64_t lost_work(const struct walk *w, const struct lg_gpu_work *next)
{
	enum { LONGER = 2 /* times the mean */ };
	const struct lg_gpu_run *r = w->r;
	int64_t called = next && next->call != LG_NO_ROW ? next->called : INT64_MAX;
	size_t lo = lg_upper_bound(r->unrun, r->n_unrun, sizeof *r->unrun, 0, w->called), n;

	for (n = lo; n < r->n_unrun && r->unrun[n] < called; n++)
		;
	return r->n_kernels ? (int64_t)(n - lo) * LONGER * (r->kernel_ns / (int64_t)r->n_kernels) : 0;
}

/* The device idles in [a, b): while another one of the process works, that is what it waits for; and where
 * rows of its own are missing, it may have worked itself. */
static void idle(struct walk *w, int64_t a, int64_t b, const struct lg_gpu_work *next)
{
	const struct lg_gpu_run *r = w->r;
	int64_t lost = r->n_unrun ? lost_work(w, next) : 0;

	if (lost) {
		lost = lost < b - a ? lost : b - a;
		give(w, a, a + lost, LG_GPU_BY_QUEUED, NULL, next ? next->span : LG_NO_ROW);
		a += lost;
	}

	for (; w->other < r->n_other && a < b; w->other++) {
		const struct lg_iv *o = &r->other[w->other];

		if (o->end <= a)
			continue;
		if (o->ts >= b)
			break;
		if (o->ts > a)
			idle_all(w, a, o->ts, next);
		give(w, LG_MAX(o->ts, a), LG_MIN(o->end, b), LG_GPU_BY_OTHER, NULL, o->row);
		a = o->end;
		if (a >= b)
			return; /* and goes on */
	}
	if (a < b)
		idle_all(w, a, b, next);
}

/* Where a piece of work ends. */
struct edge {
	int64_t ts;
	uint32_t work;
};

LG_ORDER_BY(cmp_edge, struct edge, LG_CMP(x->ts, y->ts))

/*
 * From a launch call to its work, where the device was idle when it was called: nine of ten are not
 * longer. Where too few were called then (kernels so short that the device always runs dry between a call
 * and its work), the shortest of what follows on idle time, which is none that waits for another stream.
 */
static int64_t launch_latency(struct walk *walk)
{
	enum { ENOUGH = 8, SHORTEST = 10, MOST = 40000 };
	const struct lg_gpu_run *r = walk->r;
	LG_AUTOFREE int64_t *idle = lg_calloc(r->n_work, sizeof *idle);
	LG_AUTOFREE int64_t *any = lg_calloc(r->n_work, sizeof *any);
	int64_t dry = INT64_MIN, latency = 0;
	size_t n = 0, k = 0;

	if (!idle || !any)
		walk->failed = LG_E_NOMEM;
	LG_EACH_WHILE(!walk->failed, w, r->work, r->n_work) {
		if (w->call != LG_NO_ROW && w->ts > dry && w->class <= LG_GPU_COMM) {
			int64_t took = w->ts - w->called;

			any[k++] = took;
			if (w->called >= dry)
				idle[n++] = took;
		}
		dry = LG_MAX(w->end, dry);
	}
	if (n >= ENOUGH)
		latency = lg_select_i64(idle, n, n - 1 - n / 10);
	else if (k >= ENOUGH)
		latency = lg_select_i64(any, k, k / SHORTEST);
	if (n < ENOUGH && latency > MOST)
		latency = MOST;
	return latency < LAUNCH_LATENCY_NS ? latency : LAUNCH_LATENCY_NS;
}

/* A synchronous copy call waits as a pageable one does, whatever the memory. */
static void mark_blocking_copies(struct walk *w)
{
	LG_EACH(k, w->r->work, w->r->n_work) {
		if (k->call != LG_NO_ROW &&
		    lg_gpu_name(w->sc, w->g, w->sc->t->span.name[k->call]) == LG_NAME_BLOCKING_COPY)
			k->pageable = true;
		if (k->call != LG_NO_ROW && k->class == LG_GPU_H2D && lg_map_set(&w->to_device, k->call, 1))
			w->failed = LG_E_NOMEM;
	}
}

/* [a, b): a copy to the host, and nothing else. A checkpoint's is the checkpoint's. */
static void copy_out(struct walk *w, const struct lg_gpu_host *m, int64_t a, int64_t b, uint32_t copy)
{
	const struct lg_host_seg *s = m ? lg_host_at(m, a) : NULL;
	struct lg_host_seg waits = { .span = copy, .op = LG_NO_ROW, .site = LG_NO_ROW };

	if (s && s->class == LG_HOST_SIDE) {
		give(w, a, b, LG_GPU_BY_SIDE, s, LG_NO_ROW);
		return;
	}
	/* Where the host waits for it, that place is where it is. */
	if (s && (s->class == LG_HOST_COPY || s->class == LG_HOST_SYNC)) {
		waits.op = s->op;
		waits.site = s->site;
	}
	give(w, a, b, LG_GPU_BY_D2H, &waits, LG_NO_ROW);
}

int lg_gpu_account(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
{
	const struct lg_gpu_host *m = host_of(r, r->main);
	LG_AUTOFREE struct edge *e = lg_calloc(r->n_work, sizeof *e);
	struct walk w = { .sc = sc, .g = g, .r = r, .called = INT64_MIN };
	size_t n[4] = { 0 }, pageable = 0;
	uint32_t last[4] = { 0 };
	int64_t now = r->from;

	for (uint32_t i = 0; e && i < r->n_work; i++)
		e[i] = (struct edge){ r->work[i].end, i };
	if (!e || lg_order(e, r->n_work, sizeof *e, cmp_edge))
		return LG_E_NOMEM;
	mark_blocking_copies(&w);
	w.latency = launch_latency(&w);
	/* Most of what is needed at once: a list that grows is copied. */
	if (r->n_work && lg_grow(&r->piece, &r->cap_pieces, 4 * r->n_work, sizeof *r->piece))
		w.failed = LG_E_NOMEM;
	/* Starts are in order already; what ends when something else starts ends after that. */
	for (size_t begun = 0, over = 0; over < r->n_work;) {
		bool start = begun < r->n_work && r->work[begun].ts <= e[over].ts;
		const struct lg_gpu_work *k = &r->work[start ? begun++ : e[over++].work];
		int64_t ts = start ? k->ts : k->end;

		if (ts > now) {
			if (n[LG_GPU_COMPUTE])
				give(&w, now, ts, LG_GPU_BY_COMPUTE, NULL, LG_NO_ROW);
			else if (n[LG_GPU_COMM])
				give(&w, now, ts, LG_GPU_BY_COMM, NULL, last[LG_GPU_COMM]);
			else if (n[LG_GPU_H2D])
				give(&w, now, ts, pageable ? LG_GPU_BY_PAGEABLE : LG_GPU_BY_PINNED, NULL,
				     last[LG_GPU_H2D]);
			else if (n[LG_GPU_D2H])
				copy_out(&w, m, now, ts, last[LG_GPU_D2H]);
			else if (now < r->to)
				idle(&w, now, ts, k);
			now = ts;
		}
		if (start) {
			n[k->class]++;
			pageable += k->class == LG_GPU_H2D && k->pageable;
			last[k->class] = k->span;
		} else {
			n[k->class]--;
			if (k->call != LG_NO_ROW && k->called > w.called)
				w.called = k->called;
			pageable -= k->class == LG_GPU_H2D && k->pageable;
		}
	}
	if (r->n_work && now < r->to)
		idle(&w, now, r->to, NULL);
	lg_map_done(&w.to_device);
	return w.failed;
}

int lg_gpu_keep_account(const struct lg_scene *sc, struct lg_gpu_run *r)
{
	if (!r->n_pieces) {
		lg_free(r->piece);
		r->piece = NULL;
		r->cap_pieces = 0;
	} else if (!lg_arena_adopt(sc->arena, r->piece)) {
		r->piece = NULL;
		r->n_pieces = 0;
		return LG_E_NOMEM;
	}
	return 0;
}
