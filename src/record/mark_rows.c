/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark_rows.c - pair beginnings with ends and write rows.
 *
 * An END names the index of its BEGIN. On one thread spans nest; when an END names an outer span,
 * the inner ones lost their own end and are closed with it, so rows always nest. A STEP mark closes
 * the step that the previous one opened; the first step opens with the first stage.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/order.h"
#include "record/marks.h"

#define MAX_DEPTH 64
#define MAX_THREADS 1024 /* of one process that mark; more are counted as lost */
/* Of one ring: its writer has room for 64 KiB of names, kept once each. */
enum { NAMES_MAX = 16384, NAME_BYTES_MAX = 1 << 20, NAME_MAX_BYTES = 4096 };

struct open_span {
	uint64_t token;
	int64_t ts, inner; /* inner: stages within it */
	struct lg_mark_slot slot;
};

struct thread {
	int32_t ns_tid;
	lg_thr thr;
	unsigned depth;
	struct open_span *open; /* MAX_DEPTH of them, made at the first span */
};

struct lg_mark_rows {
	struct lg_builder *b;
	const struct lg_mark_ring *ring;
	int32_t pid;
	lg_prc prc;
	lg_mark_tid_fn *tid_of;
	void *tid_arg;
	lg_mark_saw_fn *saw; /* NULL = nobody watches */
	void *saw_arg;
	struct lg_mark_times times; /* of the step under way */
	struct lg_map thread_of, string_of; /* tid -> thread + 1; name id -> lg_str */
	struct thread *thread;
	size_t n_threads, cap_threads;
	int64_t step_ts;   /* INT64_MIN = none open */
	lg_thr step_thr;
	enum opened { BY_STAGE, BY_END, BY_START, BY_HAND } step_by;
	int64_t step_seq;
	bool joined;       /* in the middle of a step: only a mark opens one */
	bool hand;         /* the program marks its own steps: others count no more */
	size_t charged;    /* bytes of open spans, to account (store/budget.h) */
	uint32_t account;
	size_t n_names, name_bytes;
	uint64_t nameless; /* names beyond that */
	int64_t nameless_at;
	uint64_t dropped;  /* slots we had no room for */
	int64_t dropped_at;
};

_Static_assert((int)LAG_STAGE_BATCH_WAIT == (int)LG_STAGE_BATCH_WAIT &&
	       (int)LAG_STAGE_OTHER == (int)LG_STAGE_OTHER, "stages of mark.h");
_Static_assert((int)LAG_MARK_K_STAGE == (int)LG_SPAN_STAGE &&
	       (int)LAG_MARK_K_COPY == (int)LG_SPAN_COPY &&
	       (int)LAG_MARK_K_COLLECTIVE == (int)LG_SPAN_COLLECTIVE &&
	       (int)LAG_MARK_K_GC == (int)LG_SPAN_GC &&
	       (int)LAG_MARK_K_WAIT == (int)LG_SPAN_WAIT, "span kinds of mark.h");

int lg_mark_rows_new(struct lg_mark_rows **ret, struct lg_builder *b, int32_t pid,
		     const struct lg_mark_ring *ring, struct lg_error *err)
{
	struct lg_mark_rows *m = lg_calloc(1, sizeof *m);

	if (!m)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	m->b = b;
	m->ring = ring;
	m->pid = pid;
	m->prc = lg_process_get(b, pid);
	m->step_ts = INT64_MIN;
	*ret = m;
	return 0;
}

void lg_mark_rows_free(struct lg_mark_rows *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_threads; i++)
		lg_free(m->thread[i].open);
	lg_free(m->thread);
	lg_map_done(&m->thread_of);
	lg_map_done(&m->string_of);
	lg_free(m);
}

lg_prc lg_mark_rows_process(const struct lg_mark_rows *m)
{
	return m->prc;
}

void lg_mark_rows_set_tids(struct lg_mark_rows *m, lg_mark_tid_fn *f, void *arg)
{
	m->tid_of = f;
	m->tid_arg = arg;
}

void lg_mark_rows_joined(struct lg_mark_rows *m)
{
	m->joined = true;
}

void lg_mark_rows_watch(struct lg_mark_rows *m, lg_mark_saw_fn *f, void *arg)
{
	m->saw = f;
	m->saw_arg = arg;
}

const struct lg_mark_times *lg_mark_rows_times(const struct lg_mark_rows *m)
{
	return &m->times;
}

/* A span of the steps' thread has ended: what the step spent in it, and of the stage around it. */
static void add_time(struct lg_mark_rows *m, struct thread *t, const struct lg_mark_slot *s, int64_t dur,
		     int64_t inner)
{
	uint8_t kind = (uint8_t)(s->what >> 40), stage = (uint8_t)(s->what >> 48);
	unsigned bits = (unsigned)(s->what >> 56);
	bool shared = kind == LAG_MARK_K_COLLECTIVE || kind == LAG_MARK_K_WAIT;

	if (!m->saw || bits & LAG_MARK_ASYNC || t->thr != m->step_thr || dur <= 0)
		return;
	for (unsigned i = 0; shared && i < t->depth; i++) {
		uint8_t around = (uint8_t)(t->open[i].slot.what >> 40);

		shared = around != LAG_MARK_K_COLLECTIVE && around != LAG_MARK_K_WAIT;
	}
	if (shared)
		m->times.wait += dur;
	if (bits & LAG_MARK_IMPLICIT || stage >= LG_STAGE_MAX || stage == LG_STAGE_NONE)
		return;
	m->times.stage[stage] += LG_MAX(dur - inner, 0);
	for (unsigned i = t->depth; i--;) {
		if ((unsigned)(t->open[i].slot.what >> 56) & LAG_MARK_IMPLICIT)
			continue; /* it lies over a stage and is none */
		t->open[i].inner += dur;
		break;
	}
}

static void tell(struct lg_mark_rows *m, enum lg_mark_saw what, int64_t number, int64_t ts, int64_t dur)
{
	if (m->saw)
		m->saw(m->saw_arg, what, number, ts, dur);
}

/* Only the steps' own thread: what another one saves meanwhile takes nothing out of the step. */
static void tell_side(struct lg_mark_rows *m, enum lg_mark_saw what, lg_thr thr, const struct lg_mark_slot *s,
		      int64_t ts)
{
	if ((uint8_t)(s->what >> 40) == LAG_MARK_K_STAGE && (uint8_t)(s->what >> 48) == LAG_STAGE_SIDE &&
	    !(s->what >> 56 & LAG_MARK_ASYNC) && m->step_ts != INT64_MIN && thr == m->step_thr)
		tell(m, what, 0, ts, 0);
}

static void drop(struct lg_mark_rows *m, int64_t ts)
{
	if (!m->dropped++)
		m->dropped_at = ts;
}

/* Names are kept: a ring says the same few hundred over and over. */
static lg_str string_of(struct lg_mark_rows *m, uint32_t id)
{
	char buf[NAME_MAX_BYTES];
	lg_str s = lg_map_get(&m->string_of, id);
	size_t n;

	if (s || !id)
		return s;
	if (m->n_names >= NAMES_MAX || m->name_bytes >= NAME_BYTES_MAX) {
		m->nameless++;
		return 0;
	}
	n = lg_mark_ring_name(m->ring, id, buf, sizeof buf);
	s = lg_intern_n(m->b, buf, n);
	m->n_names++;
	m->name_bytes += n;
	if (s && lg_map_set(&m->string_of, id, s))
		return s; /* not cached: slower, not wrong */
	return s;
}

static struct thread *thread_of(struct lg_mark_rows *m, int32_t ns_tid)
{
	uint32_t i = lg_map_get(&m->thread_of, (uint32_t)ns_tid);
	struct thread *t;
	int32_t tid = ns_tid;

	if (i)
		return &m->thread[i - 1];
	if (m->n_threads >= MAX_THREADS || ns_tid <= 0 ||
	    lg_grow(&m->thread, &m->cap_threads, m->n_threads + 1, sizeof *m->thread) ||
	    lg_map_set(&m->thread_of, (uint32_t)ns_tid, (uint32_t)m->n_threads + 1))
		return NULL;
	if (m->tid_of)
		tid = m->tid_of(m->tid_arg, m->pid, ns_tid);
	t = &m->thread[m->n_threads++];
	*t = (struct thread){ .ns_tid = ns_tid, .thr = lg_thread_get(m->b, m->pid, tid) };
	return t;
}

static uint32_t flags_of(uint64_t what)
{
	unsigned bits = (unsigned)(what >> 56);

	return (bits & LAG_MARK_ASYNC ? (uint32_t)LG_SPAN_ASYNC : 0) |
	       (bits & LAG_MARK_HAND ? (uint32_t)LG_SPAN_HAND : 0) |
	       (bits & LAG_MARK_IMPLICIT ? (uint32_t)LG_SPAN_IMPLICIT : 0);
}

static void add_span(struct lg_mark_rows *m, lg_thr thr, const struct lg_mark_slot *s, int64_t dur)
{
	uint8_t kind = (uint8_t)(s->what >> 40), stage = (uint8_t)(s->what >> 48);
	struct lg_span_row r = { .ts = s->ts, .dur = dur, .thr = thr,
				 .flags = flags_of(s->what), .bytes = s->bytes, .seq = s->seq };

	switch (kind) {
	case LAG_MARK_K_STAGE: case LAG_MARK_K_COPY: case LAG_MARK_K_COLLECTIVE:
	case LAG_MARK_K_GC: case LAG_MARK_K_WAIT:
		r.kind = kind;
		break;
	default:
		r.kind = LG_SPAN_OTHER; /* steps and locks are not the program's to claim */
	}
	r.stage = stage < LG_STAGE_MAX ? stage : (uint8_t)LG_STAGE_OTHER;
	r.name = string_of(m, (uint32_t)s->names);
	if (kind == LAG_MARK_K_COLLECTIVE || kind == LAG_MARK_K_WAIT)
		r.group = string_of(m, (uint32_t)(s->names >> 32));
	/* The copy with its bytes, and the time it takes out of the step. */
	if (kind == LAG_MARK_K_COPY && stage == LAG_STAGE_H2D) {
		lg_add_span(m->b, &r);
		r.kind = LG_SPAN_STAGE;
		r.bytes = 0;
	}
	lg_add_span(m->b, &r);
}

/*
 * Marks that are readings of memory (hook/laggard/_memory.py): counters, those of a device below its track.
 * The text is the number of the device.
 */
static bool add_reading(struct lg_mark_rows *m, const struct lg_mark_slot *s)
{
	static const struct {
		const char *name, *unit;
		bool of_device;
	} readings[] = {
		{ "process.private", "bytes", false },
		{ "memory allocated", "bytes", true },
		{ "memory allocated peak", "bytes", true },
		{ "memory reserved", "bytes", true },
		{ "memory reserved peak", "bytes", true },
		{ "memory inactive", "bytes", true },
		{ "memory inactive peak", "bytes", true },
		{ "memory retries", "count", true },
		{ "memory ooms", "count", true },
	};
	const struct lg_trace *t = lg_builder_trace(m->b);
	lg_str name = string_of(m, (uint32_t)s->names);
	const char *text = lg_string(t, string_of(m, (uint32_t)(s->names >> 32)));
	struct lg_track_row track = { .kind = LG_TRACK_COUNTER, .name = name, .prc = m->prc, .index = -1 };
	size_t i = 0;

	while (i < LG_COUNT(readings) && strcmp(lg_string(t, name), readings[i].name) != 0)
		i++;
	if (i == LG_COUNT(readings) ||
	    (readings[i].of_device && (*text < '0' || *text > '9' || strlen(text) > 2)))
		return false;
	track.unit = lg_intern(m->b, readings[i].unit);
	if (readings[i].of_device) {
		char gpu[16];

		track.index = (int32_t)strtol(text, NULL, 10);
		snprintf(gpu, sizeof gpu, "GPU %d", (int)track.index);
		track.parent = lg_track_get(m->b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .prc = m->prc,
									  .name = lg_intern(m->b, gpu),
									  .index = track.index });
	}
	lg_add_counter(m->b, &(struct lg_counter_row){ s->ts, lg_track_get(m->b, &track), (double)s->seq });
	return true;
}

static void begin(struct lg_mark_rows *m, struct thread *t, const struct lg_mark_slot *s)
{
	if (!t->open && lg_builder_charge(m->b, m->pid, MAX_DEPTH * sizeof *t->open, &m->account)) {
		t->open = lg_calloc(MAX_DEPTH, sizeof *t->open);
		m->charged += MAX_DEPTH * sizeof *t->open;
	}
	if (!t->open || t->depth == MAX_DEPTH) {
		drop(m, s->ts);
		return;
	}
	if (t->depth && s->ts < t->open[t->depth - 1].ts)
		return; /* a clock that runs backwards is no clock */
	t->open[t->depth++] = (struct open_span){ s->head, s->ts, 0, *s };
	if (m->step_ts == INT64_MIN && !m->joined && (uint8_t)(s->what >> 40) == LAG_MARK_K_STAGE) {
		m->step_ts = s->ts;
		m->step_thr = t->thr;
		m->step_by = BY_STAGE;
	}
	tell_side(m, LG_MARK_SAW_SIDE, t->thr, s, s->ts);
}

static void finish(struct lg_mark_rows *m, struct thread *t, const struct lg_mark_slot *s)
{
	unsigned at = t->depth;

	while (at && t->open[at - 1].token != s->token)
		at--;
	if (!at || s->ts < t->open[t->depth - 1].ts)
		return; /* its beginning was lost, or lies before the ring */
	while (t->depth >= at) {
		const struct open_span *o = &t->open[--t->depth];

		add_span(m, t->thr, &o->slot, s->ts - o->ts);
		add_time(m, t, &o->slot, s->ts - o->ts, o->inner);
		tell_side(m, LG_MARK_SAW_SIDE_END, t->thr, &o->slot, s->ts);
		if (!t->depth)
			break;
	}
}

static void step(struct lg_mark_rows *m, struct thread *t, const struct lg_mark_slot *s)
{
	unsigned bits = (unsigned)(s->what >> 56);
	enum opened by = bits & LAG_MARK_HAND ? BY_HAND : bits & LAG_MARK_START ? BY_START : BY_END;

	if (by == BY_HAND)
		m->hand = true;
	else if (m->hand)
		return;
	/* A mark closes the step that one of its own kind opened; the end of a step closes also the
	 * first one, which began with the first stage. What lies between two kinds (before the first
	 * forward of an inference loop, before the first mark by hand) is no step. */
	if (m->step_ts != INT64_MIN && s->ts > m->step_ts && m->step_thr == t->thr &&
	    (m->step_by == by || (m->step_by == BY_STAGE && by != BY_START))) {
		int64_t number = by == BY_START ? m->step_seq : s->seq;

		lg_add_span(m->b, &(struct lg_span_row){
					  .ts = m->step_ts, .dur = s->ts - m->step_ts,
					  .thr = t->thr, .kind = LG_SPAN_STEP,
					  .seq = number, .flags = flags_of(s->what) });
		tell(m, LG_MARK_SAW_STEP, number, m->step_ts, s->ts - m->step_ts);
	}
	m->times = (struct lg_mark_times){ 0 };
	m->step_ts = s->ts;
	m->step_thr = t->thr;
	m->step_by = by;
	m->step_seq = s->seq;
}

void lg_mark_rows_add(struct lg_mark_rows *m, const struct lg_mark_slot *s)
{
	struct thread *t;
	int64_t dur;

	lg_builder_for(m->b, m->pid);
	if (!m->nameless)
		m->nameless_at = s->ts;
	t = thread_of(m, (int32_t)(uint32_t)s->what);
	if (!t || s->ts < 0) {
		drop(m, s->ts);
		return;
	}
	tell(m, LG_MARK_SAW_ANY, 0, s->ts, 0);
	switch ((uint8_t)(s->what >> 32)) {
	case LAG_MARK_BEGIN:
		begin(m, t, s);
		break;
	case LAG_MARK_END:
		finish(m, t, s);
		break;
	case LAG_MARK_SPAN:
		dur = s->token <= INT64_MAX && (int64_t)s->token <= INT64_MAX - s->ts
			      ? (int64_t)s->token : 0;
		tell_side(m, LG_MARK_SAW_SIDE, t->thr, s, s->ts);
		add_span(m, t->thr, s, dur);
		add_time(m, t, s, dur, 0);
		tell_side(m, LG_MARK_SAW_SIDE_END, t->thr, s, s->ts + dur);
		break;
	case LAG_MARK_MARK:
		if (add_reading(m, s))
			break;
		lg_add_mark(m->b, &(struct lg_mark_row){
					  .ts = s->ts, .thr = t->thr, .value = s->seq,
					  .name = string_of(m, (uint32_t)s->names),
					  .text = string_of(m, (uint32_t)(s->names >> 32)) });
		break;
	case LAG_MARK_META:
		lg_add_meta(m->b, &(struct lg_meta_row){
					  .ts = s->ts, .prc = m->prc,
					  .key = string_of(m, (uint32_t)s->names),
					  .value = string_of(m, (uint32_t)(s->names >> 32)) });
		break;
	case LAG_MARK_STEP:
		step(m, t, s);
		break;
	case LAG_MARK_OFF: {
		char why[512];
		size_t n = lg_mark_ring_name(m->ring, (uint32_t)(s->names >> 32), why,
					     sizeof why - 1);

		why[n] = 0;
		lg_add_diag_now(m->b, LG_DIAG_MARKS_OFF, s->ts, 1, "pid %d: %s", m->pid, why);
		break;
	}
	default:
		lg_add_diag_now(m->b, LG_DIAG_NOT_UNDERSTOOD, s->ts, 1, "mark of kind %u of pid %d",
				(unsigned)(uint8_t)(s->what >> 32), m->pid);
	}
}

void lg_mark_rows_lost(struct lg_mark_rows *m, int64_t ts, uint64_t count)
{
	lg_add_diag_now(m->b, LG_DIAG_MARKS_LOST, ts, count, "pid %d", m->pid);
	for (size_t i = 0; i < m->n_threads; i++)
		m->thread[i].depth = 0;
	m->step_ts = INT64_MIN; /* a step with a hole in it has no known length */
	m->times = (struct lg_mark_times){ 0 };
	tell(m, LG_MARK_SAW_LOSS, 0, ts, 0);
}

void lg_mark_rows_end(struct lg_mark_rows *m, int64_t end, bool clean)
{
	for (size_t i = 0; i < m->n_threads; i++) {
		struct thread *t = &m->thread[i];

		for (; t->depth; t->depth--) {
			const struct open_span *o = &t->open[t->depth - 1];

			if (end == INT64_MAX)
				add_span(m, t->thr, &o->slot, -1);
			else if (!clean && end >= o->ts)
				add_span(m, t->thr, &o->slot, end - o->ts);
		}
	}
	/* A process stopped in a step (a hang) shows that step; one that is gone shows none. */
	if (m->step_ts != INT64_MIN && end == INT64_MAX && !clean)
		lg_add_span(m->b, &(struct lg_span_row){ .ts = m->step_ts, .dur = -1,
							 .thr = m->step_thr, .kind = LG_SPAN_STEP,
							 .seq = m->step_seq + (m->step_by != BY_START),
							 .flags = m->step_by == BY_HAND ? LG_SPAN_HAND : 0 });
	m->step_ts = INT64_MIN;
	if (m->dropped)
		lg_add_diag_now(m->b, LG_DIAG_MARKS_LOST, m->dropped_at, m->dropped,
				"pid %d: too many threads or too deeply nested", m->pid);
	m->dropped = 0;
	if (m->nameless)
		lg_add_diag_now(m->b, LG_DIAG_OVER_BUDGET, m->nameless_at, m->nameless,
				"marks of pid %d with more names than are kept of one process", m->pid);
	m->nameless = 0;
	lg_builder_give_back(m->b, m->account, m->charged);
	m->charged = 0;
}
