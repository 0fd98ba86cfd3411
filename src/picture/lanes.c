/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/lanes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "base/printable.h"
#include "picture/sum.h"
#include "store/index.h"

enum { MOST_MARKS = 6000000, THREADS_EACH = 8, OTHERS = 12, PROCESSES = 16, MOST_LANES = 400 };

struct work {
	struct lg_lanes *l;
	const struct lg_verdict *v;
	const struct lg_accounts *a;
	const struct lg_trace *t;
	const struct lg_index *x;
	uint8_t *done; /* by thread row: it has its lanes */
	char group[128];
	bool folded;
	int rc;
};

LG_ORDER_BY(by_time, struct lg_mark, LG_CMP(x->ts, y->ts) ?: LG_CMP(y->dur, x->dur))
LG_ORDER_BY(by_depth, struct lg_mark, LG_CMP(x->depth, y->depth) ?: LG_CMP(x->ts, y->ts))

static void shown(char *to, size_t size, const char *fmt, ...) LG_PRINTF(3, 4);
static void shown(char *to, size_t size, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_show(to, size, text, false);
}

static struct lg_lane *lane_new(struct work *w, enum lg_row_kind kind, lg_thr thr, const char *name)
{
	struct lg_lane lane = { .kind = kind, .thr = thr, .folded = w->folded };

	if (w->rc)
		return NULL;
	if (w->l->n_marks >= MOST_MARKS || w->l->n >= MOST_LANES) {
		w->l->left_out++;
		return NULL;
	}
	memcpy(lane.group, w->group, sizeof lane.group);
	lg_show(lane.name, sizeof lane.name, name, false);
	w->rc = LG_APPEND(w->l->v, w->l->n, w->l->cap, lane);
	return w->rc ? NULL : &w->l->v[w->l->n - 1];
}

static void add(struct work *w, struct lg_lane *lane, struct lg_mark m)
{
	if (w->rc || m.dur < 0)
		return;
	m.n = 1;
	w->rc = LG_APPEND(lane->v, lane->n, lane->cap, m);
}

/* Deals marks to depths, the enclosing one above; what finds no depth is dropped, and counted. An empty
 * lane is none. */
static void lane_end(struct work *w, struct lg_lane *lane)
{
	int64_t end[LG_DEPTHS];
	size_t n = 0;
	uint32_t deepest = 0;

	if (!lane)
		return;
	if (!lane->n) {
		lg_free(lane->v);
		w->l->n--;
		return;
	}
	for (size_t d = 0; d < LG_DEPTHS; d++)
		end[d] = INT64_MIN;
	if (!w->rc)
		w->rc = lg_order(lane->v, lane->n, sizeof *lane->v, by_time);
	for (size_t i = 0; i < lane->n; i++) {
		struct lg_mark m = lane->v[i];
		uint32_t d = 0;

		while (d < LG_DEPTHS && end[d] > m.ts)
			d++;
		if (d == LG_DEPTHS) {
			w->l->marks_left_out++;
			continue;
		}
		end[d] = m.ts + m.dur;
		m.depth = (uint8_t)d;
		deepest = LG_MAX(deepest, d);
		lane->v[n++] = m;
	}
	lane->n = n;
	lane->depth = deepest + 1;
	if (!w->rc)
		w->rc = lg_order(lane->v, lane->n, sizeof *lane->v, by_depth);
	w->l->n_marks += n;
}

static bool is_lock(const struct lg_trace *t, uint32_t row)
{
	return t->span.kind[row] == LG_SPAN_LOCK_WAIT || t->span.kind[row] == LG_SPAN_LOCK_HOLD;
}

static struct lg_mark span_mark(const struct lg_trace *t, uint32_t row)
{
	uint8_t kind = t->span.kind[row];
	bool device = kind == LG_SPAN_KERNEL || kind == LG_SPAN_COPY || kind == LG_SPAN_RUNTIME;

	return (struct lg_mark){ .ts = t->span.ts[row],
				 .dur = lg_span_end(t, row) - t->span.ts[row],
				 .kind = kind,
				 .tone = t->span.stage[row],
				 .name = t->span.name[row],
				 .stack = t->span.stack[row],
				 .a = !device		     ? t->span.peer[row]
				      : t->span.seq[row] > 0 ? (uint64_t)t->span.seq[row]
							     : 0 };
}

static void spans(struct work *w, lg_thr thr, const char *who, bool locks)
{
	char name[96];
	struct lg_lane *lane;

	shown(name, sizeof name, "%s%s", who, locks ? " locks" : "");
	lane = lane_new(w, locks ? LG_ROW_LOCKS : LG_ROW_SPANS, thr, name);
	for (uint32_t p = w->x->span_off[thr]; lane && p < w->x->span_off[thr + 1]; p++)
		if (is_lock(w->t, w->x->span[p]) == locks)
			add(w, lane, span_mark(w->t, w->x->span[p]));
	lane_end(w, lane);
}

static void states(struct work *w, lg_thr thr, const char *who)
{
	const struct lg_trace *t = w->t;
	char name[96];
	struct lg_lane *lane;

	shown(name, sizeof name, "%s states", who);
	lane = lane_new(w, LG_ROW_STATES, thr, name);
	for (uint32_t p = w->x->state_off[thr]; lane && p < w->x->state_off[thr + 1]; p++) {
		uint32_t row = w->x->state[p];
		lg_stk stack = t->state.stack[row];
		struct lg_mark m = { .ts = t->state.ts[row],
				     .kind = t->state.kind[row],
				     .tone = t->state.reason[row] & 127,
				     .dur = lg_row_end(t, t->state.ts[row], t->state.dur[row]) -
					    t->state.ts[row],
				     .name = stack ? t->frame.name[t->stack.frame[stack]] : 0,
				     .stack = stack,
				     .a = t->state.blocker[row] };

		if (m.a)
			m.tone |= LG_TONE_HELD;
		else
			m.a = t->state.waker[row];
		if (t->state.flags[row] & LG_STATE_SUMMED && m.dur > 0) {
			uint64_t run = lg_share_255(t->state.run[row], m.dur);

			m.kind = LG_MARK_MIXED;
			m.a = run | (uint64_t)(255 - run) << 16;
		}
		if (m.kind)
			add(w, lane, m);
	}
	lane_end(w, lane);
}

static uint8_t slot_of(const struct lg_accounts *a, const struct lg_part *p)
{
	if (p->cause && p->kind != LG_PART_RUNNING)
		for (size_t k = 0; k < a->n_slots; k++)
			if (a->slot[k].cause == p->cause)
				return (uint8_t)k;
	return p->kind < 4 ? p->kind : LG_PART_UNEXPLAINED;
}

static void account(struct work *w, lg_thr thr)
{
	struct lg_lane *lane = lane_new(w, LG_ROW_ACCOUNT, thr, "account");

	for (size_t i = 0; lane && i < w->v->n_steps; i++) {
		const struct lg_step *s = &w->v->steps[i];

		for (uint32_t k = 0;
		     s->thr == thr && k < s->n_parts && s->part_first + k < w->v->n_parts; k++) {
			const struct lg_part *p = &w->v->parts[s->part_first + k];
			uint32_t row = p->state;

			add(w, lane,
			    (struct lg_mark){ .ts = p->ts,
					      .dur = p->dur,
					      .kind = p->kind,
					      .a = p->by,
					      .tone = slot_of(w->a, p),
					      .stack = row < w->t->state.n ? w->t->state.stack[row]
									   : 0 });
		}
	}
	lane_end(w, lane);
}

/* The stack of a sample, outermost first. */
static size_t frames_of(const struct lg_trace *t, lg_stk s, lg_frm *to)
{
	size_t n = 0;

	while (s && t->stack.depth[s] > LG_DEPTHS)
		s = t->stack.parent[s];
	for (lg_stk p = s; p && n < LG_DEPTHS; p = t->stack.parent[p])
		n++;
	for (size_t i = n; i-- > 0; s = t->stack.parent[s])
		to[i] = t->stack.frame[s];
	return n;
}

struct chart {
	lg_frm frame[LG_DEPTHS];
	int64_t since[LG_DEPTHS];
	size_t n;
	int64_t end; /* of the last sample */
};

/* Frames from depth `from` on end. Outermost first: of equal times the first one is above. */
static void chart_end(struct work *w, struct lg_lane *lane, struct chart *c, size_t from)
{
	const struct lg_trace *t = w->t;

	for (size_t d = from; d < c->n; d++) {
		lg_frm f = c->frame[d];

		add(w, lane,
		    (struct lg_mark){ .ts = c->since[d],
				      .dur = c->end - c->since[d],
				      .kind = t->frame.kind[f] & 127,
				      .name = t->frame.name[f] ? t->frame.name[f]
							       : t->frame.dso[f] });
	}
	c->n = LG_MIN(c->n, from);
}

/* CPU samples as a chart: what neighbours share is one mark. A sample stands for no longer than two
 * of its kind. */
static void samples(struct work *w, lg_thr thr, const char *who)
{
	const struct lg_trace *t = w->t;
	struct chart c = { .end = INT64_MIN };
	char name[96];
	struct lg_lane *lane;

	if (w->x->sample_off[thr] == w->x->sample_off[thr + 1])
		return;
	shown(name, sizeof name, "%s samples", who);
	lane = lane_new(w, LG_ROW_SAMPLES, thr, name);
	for (uint32_t p = w->x->sample_off[thr]; lane && p < w->x->sample_off[thr + 1]; p++) {
		uint32_t row = w->x->sample[p];
		int64_t ts = t->sample.ts[row],
			last = (int64_t)LG_MIN(t->sample.weight[row], UINT64_C(20000000));
		lg_frm frame[LG_DEPTHS];
		size_t n = frames_of(t, t->sample.stack[row], frame), same = 0;

		if (t->sample.flags[row] & (LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE))
			continue;
		last = LG_MAX(last, 10000);
		if (c.end != INT64_MIN && ts <= c.end + last) {
			c.end = ts;
			while (same < n && same < c.n && frame[same] == c.frame[same])
				same++;
		}
		chart_end(w, lane, &c, same);
		for (size_t d = same; d < n; d++) {
			c.frame[d] = frame[d];
			c.since[d] = ts;
		}
		c.n = n;
		c.end = ts + last;
	}
	if (lane)
		chart_end(w, lane, &c, 0);
	lane_end(w, lane);
}

static size_t rows_of(const struct lg_index *x, lg_thr thr)
{
	return x->state_off[thr + 1] - x->state_off[thr] +
	       (x->span_off[thr + 1] - x->span_off[thr]) +
	       (x->sample_off[thr + 1] - x->sample_off[thr]);
}

static void thread(struct work *w, lg_thr thr, bool main)
{
	char who[80];

	if (!thr || w->done[thr] || !rows_of(w->x, thr))
		return;
	w->done[thr] = 1;
	if (main)
		snprintf(who, sizeof who, "main");
	else
		shown(who, sizeof who, "%.40s %d", lg_string(w->t, w->t->thread.comm[thr]),
		      w->t->thread.tid[thr]);
	if (main)
		account(w, thr);
	spans(w, thr, who, false);
	spans(w, thr, who, true);
	states(w, thr, who);
	/* Charts are tall: beside states only the main thread has one. */
	if (main || w->x->state_off[thr] == w->x->state_off[thr + 1])
		samples(w, thr, who);
}

struct busy {
	uint32_t row;
	int64_t n;
};
LG_ORDER_BY(busier, struct busy, LG_CMP(y->n, x->n) ?: LG_CMP(x->row, y->row))

/* The main thread, or the one given, and those others of its process that did most. */
static void process(struct work *w, lg_prc prc, lg_thr main, size_t threads, const char *as)
{
	const struct lg_index *x = w->x;
	size_t n = x->thread_off[prc + 1] - x->thread_off[prc];
	struct busy *b LG_AUTOFREE = lg_calloc(n + 1, sizeof *b);
	bool folded = w->folded;
	char pid[LG_PID_TEXT];

	if (!b) {
		w->rc = LG_E_NOMEM;
		return;
	}
	shown(w->group, sizeof w->group, "%s%s%.60s (%s)", as, *as ? ": " : "",
	      lg_string(w->t, w->t->process.comm[prc]), lg_pid_text(w->t->process.pid[prc], pid));
	for (size_t i = 0; i < n; i++) {
		b[i].row = x->thread[x->thread_off[prc] + i];
		b[i].n = (int64_t)rows_of(x, b[i].row);
	}
	LG_SORT(b, n, busier);
	thread(w, main ? main : x->main_of[prc], true);
	for (size_t i = 0; i < n && i < threads; i++) {
		w->folded = folded || (main && i > 1);
		thread(w, b[i].row, false);
	}
	w->folded = folded;
}

static void ranks(struct work *w)
{
	lg_thr last = 0;
	char as[32];

	for (size_t i = 0; i < w->v->n_steps; i++) {
		const struct lg_step *s = &w->v->steps[i];

		if (s->thr == last || !s->thr)
			continue;
		last = s->thr;
		snprintf(as, sizeof as, s->rank >= 0 ? "rank %d" : "job", s->rank);
		process(w, s->prc, s->thr, THREADS_EACH, as);
	}
}

static void culprits(struct work *w)
{
	for (size_t i = 0; i < w->v->n_findings; i++) {
		const struct lg_finding *f = &w->v->findings[i];

		for (lg_prc p = 1;
		     f->culprit.pid >= 0 && f->severity > LG_SEVERITY_INFO && p < w->t->process.n;
		     p++)
			if (w->t->process.pid[p] == f->culprit.pid && !w->done[w->x->main_of[p]])
				process(w, p, 0, 4, "culprit");
	}
}

static void devices(struct work *w)
{
	const struct lg_trace *t = w->t;
	uint32_t *off, *row;
	const struct lg_track_tab *k = &t->track;
	lg_trk *of = NULL;
	size_t n = w->x->span_off[1] - w->x->span_off[0];

	of = lg_calloc(n + 1, sizeof *of);
	if (!of) {
		w->rc = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++)
		of[i] = t->span.track[w->x->span[i]];
	if (lg_index_lists(of, n, k->n ? k->n : 1, &off, &row)) {
		w->rc = LG_E_NOMEM;
		lg_free(of);
		return;
	}
	for (lg_trk i = 1; i < k->n && !w->rc; i++) {
		struct lg_lane *lane;
		char name[96], pid[LG_PID_TEXT];

		if (off[i] == off[i + 1])
			continue;
		shown(w->group, sizeof w->group, "device%s%s", k->prc[i] ? " of " : "",
		      k->prc[i] ? lg_pid_text(t->process.pid[k->prc[i]], pid) : "");
		shown(name, sizeof name, "%.80s", lg_string(t, k->name[i]));
		lane = lane_new(w, LG_ROW_DEVICE, 0, name);
		for (uint32_t p = off[i]; lane && p < off[i + 1]; p++)
			add(w, lane, span_mark(t, w->x->span[row[p]]));
		lane_end(w, lane);
	}
	lg_free(of);
	lg_free(off);
	lg_free(row);
}

static void cpus(struct work *w)
{
	const struct lg_index *x = w->x;
	const struct lg_trace *t = w->t;

	for (uint32_t c = 0; c < x->n_cpu * x->n_host && !w->rc; c++) {
		struct lg_lane *lane;
		char name[32];

		if (x->cpu_off[c] == x->cpu_off[c + 1])
			continue;
		shown(w->group, sizeof w->group, x->n_host > 1 ? "CPUs of host %u" : "CPUs",
		      c / x->n_cpu);
		snprintf(name, sizeof name, "CPU %u", c % x->n_cpu);
		lane = lane_new(w, LG_ROW_CPU, 0, name);
		for (uint32_t p = x->cpu_off[c]; lane && p < x->cpu_off[c + 1]; p++) {
			uint32_t row = x->cpu[p];
			lg_thr thr = t->state.thr[row];

			if (lg_ran_for_sure(t, row))
				add(w, lane,
				    (struct lg_mark){
					.ts = t->state.ts[row],
					.kind = LG_RUNNING,
					.a = thr,
					.name = t->thread.comm[thr],
					.dur = lg_row_end(t, t->state.ts[row], t->state.dur[row]) -
					       t->state.ts[row] });
		}
		lane_end(w, lane);
	}
}

bool lg_ran_for_sure(const struct lg_trace *t, size_t i)
{
	if (t->thread.flags[t->state.thr[i]] & LG_THREAD_IDLE)
		return false;
	return t->state.flags[i] & LG_STATE_SUMMED ||
	       (t->state.kind[i] == LG_RUNNING && !(t->state.flags[i] & LG_STATE_EDGE));
}

int lg_running_ns(const struct lg_verdict *v, int64_t **ret, struct lg_error *err)
{
	const struct lg_trace *t = v->trace;
	int64_t *ns = lg_calloc(t->process.n + 1, sizeof *ns), sum = 0;

	if (!ns)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	for (size_t i = 0; i < t->state.n; i++) {
		lg_thr thr = t->state.thr[i];
		lg_prc prc;
		bool summed = t->state.flags[i] & LG_STATE_SUMMED;
		int64_t dur = lg_row_end(t, t->state.ts[i], t->state.dur[i]) - t->state.ts[i];

		if (!lg_ran_for_sure(t, i))
			continue;
		prc = t->thread.prc[thr];
		ns[prc] = lg_sum_ns(ns[prc], summed ? t->state.run[i] : dur);
		sum = lg_sum_ns(sum, dur);
	}
	for (size_t i = 0; !sum && i < t->sample.n; i++)
		if (!(t->sample.flags[i] & (LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE)))
			ns[t->thread.prc[t->sample.thr[i]]] +=
				(int64_t)(t->sample.weight[i] & INT32_MAX);
	*ret = ns;
	return 0;
}

/* Without steps: the processes of which most is told. Otherwise those that ran most. */
static void others(struct work *w, bool stepless)
{
	size_t n = w->t->process.n;
	struct busy *b LG_AUTOFREE = lg_calloc(n + 1, sizeof *b);
	int64_t *ran LG_AUTOFREE = NULL;

	if (!b || lg_running_ns(w->v, &ran, NULL)) {
		w->rc = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		b[i].row = (uint32_t)i;
		b[i].n = ran[i];
		for (uint32_t p = w->x->thread_off[i]; stepless && p < w->x->thread_off[i + 1]; p++)
			b[i].n = lg_sum_ns(b[i].n, (int64_t)rows_of(w->x, w->x->thread[p]) * 1000);
	}
	LG_SORT(b, n, busier);
	for (size_t i = 0; i < n && i < (stepless ? PROCESSES : OTHERS) && b[i].n > 0; i++) {
		w->folded = !stepless || i > 3;
		if (b[i].row)
			process(w, b[i].row, 0, stepless ? THREADS_EACH : 2, "");
	}
}

int lg_lanes_make(struct lg_lanes *ret, const struct lg_verdict *v, const struct lg_accounts *a,
		  struct lg_error *err)
{
	struct lg_lanes l = { 0 };
	struct work w = { .l = &l, .v = v, .a = a, .t = v->trace, .x = v->index };

	*ret = l;
	if (!v->trace || !v->index)
		return 0;
	w.done = lg_calloc(v->trace->thread.n + 1, 1);
	if (!w.done)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	ranks(&w);
	culprits(&w);
	devices(&w);
	cpus(&w);
	others(&w, !v->n_steps);
	lg_free(w.done);
	if (w.rc) {
		lg_lanes_done(&l);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = l;
	return 0;
}

void lg_lanes_done(struct lg_lanes *l)
{
	for (size_t i = 0; i < l->n; i++)
		lg_free(l->v[i].v);
	lg_free(l->v);
	*l = (struct lg_lanes){ 0 };
}
