/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfetto.c - Perfetto trace (a stream of TracePackets), on one packet sequence.
 *
 * Field numbers: protos/perfetto/trace/ of Perfetto v58 (trace_packet, track_event/, profiling/,
 * interned_data/, clock_snapshot). Choices (doc/decisions/0010-timeline-formats.md):
 *  - thread states are slices on a child track "state": every viewer draws them; and generic kernel events
 *    besides, of which Perfetto fills its tables sched and thread_state, and draws CPUs and states;
 *  - CPU samples are the same flame chart as in Chrome JSON, and StackSample packets besides:
 *    v58 and later make flame graphs of a selection from these, older ones skip the field;
 *  - flows are LegacyEvents of phase s and f, which tie the slices that are open at their moments, as
 *    in Chrome JSON, and draw nothing themselves; where none is open, they hang on an instant;
 *  - times stay on the trace's clock: CLOCK_MONOTONIC is the sequence's default, and clock
 *    snapshots tie it to BOOTTIME and REALTIME.
 *
 * The packets of one track are in order, but tracks follow each other: Perfetto sorts by time
 * and keeps file order for equal times, so an END written before a BEGIN of the same moment
 * stays before it.
 */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/map.h"
#include "report/convert.h"
#include "report/protobuf.h"

enum { /* Trace, TracePacket */
	TRACE_PACKET = 1, PKT_CLOCK_SNAPSHOT = 6, PKT_TIMESTAMP = 8, PKT_SEQUENCE_ID = 10,
	PKT_TRACK_EVENT = 11, PKT_INTERNED = 12, PKT_FLAGS = 13, PKT_CLOCK_ID = 58,
	PKT_DEFAULTS = 59, PKT_TRACK_DESCRIPTOR = 60, PKT_FIRST = 87,
	PKT_TASK_STATE = 117, PKT_STACK_SAMPLE = 135
};
enum { /* TrackEvent */
	EVENT_LEGACY = 6, EVENT_TYPE = 9, EVENT_TRACK = 11, EVENT_FLOWS = 47, EVENT_FLOWS_ENDING = 48
};
enum { FLAG_CLEARED = 1, FLAG_NEEDS_STATE = 2, SEQUENCE = 1 };
enum { CLOCK_ID_REALTIME = 1, CLOCK_ID_MONOTONIC = 3, CLOCK_ID_BOOTTIME = 6 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum { IN_CATEGORY = 1, IN_NAME = 2, IN_ARG_NAME = 3, IN_FUNCTION = 5, IN_FRAME = 6,
       IN_CALLSTACK = 7, IN_MAPPING_PATH = 17, IN_SOURCE_PATH = 18, IN_MAPPING = 19,
       IN_ARG_STRING = 29, IN_TASK = 48 };
enum { N_INTERNED = 32, RECENT_BITS = 12 };

/* Where it ends. */
struct arrow {
	uint64_t id, track;
	int64_t ts;
};

struct perfetto {
	const struct lg_trace *t;
	struct lg_out *o;
	struct lg_pb pkt, data; /* the packet, and the interned data that goes in front of it */
	struct lg_pb ahead;     /* interned data of what comes in bulk, not written yet */
	struct lg_arena arena;
	struct lg_map by_id[N_INTERNED]; /* text id (timeline.h) -> entry */
	struct { uint64_t id; uint32_t field, iid; } recent[1 << RECENT_BITS]; /* in front of it */
	struct lg_map index[N_INTERNED]; /* hash of a string -> entry, by interned field */
	const char **strings;            /* entry -> text, to tell hash collisions */
	size_t n_strings, strings_cap;
	uint8_t *frame_known, *stack_known, *task_known, *dso_known, *file_known;
	int64_t *ends; /* of the track's open slices */
	size_t depth, ends_cap;
	/* Packets of slices of the flame chart from behind their time on, by row of the frame table;
	 * n = 0: not known. What they refer to is interned. */
	struct { const uint8_t *p; size_t n; } *tail;
	/* Arrows that begin at one moment of a track, and are not written yet. */
	const char *arrows_name;
	uint64_t arrows_track;
	int64_t arrows_ts;
	struct arrow *arrows;
	size_t n_arrows, arrows_cap;
	lg_thr task; /* whose states are written */
	int32_t task_cpu; /* that it is on; -1 = none */
	bool task_dead;
	uint64_t shift; /* added to every time: packets cannot hold negative ones */
	bool failed;
};

static void nomem(struct perfetto *p)
{
	p->failed = true;
}

static uint64_t text_hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3u;
	return h;
}

/* The iid of s in one of InternedData's indices; a new one goes into p->data first. The number
 * is unique over all indices, which is more than is asked for. */
static uint64_t intern(struct perfetto *p, unsigned field, const char *s)
{
	uint64_t h = text_hash(s);
	uint32_t i;
	size_t msg;

	while ((i = lg_map_get(&p->index[field], h))) {
		if (!strcmp(p->strings[i - 1], s))
			return i;
		h = lg_mix64(h);
	}
	if (lg_grow(&p->strings, &p->strings_cap, p->n_strings + 1, sizeof *p->strings) ||
	    p->n_strings >= UINT32_MAX - 1 ||
	    !(p->strings[p->n_strings] = lg_arena_strdup(&p->arena, s)) || p->arena.failed ||
	    lg_map_set(&p->index[field], h, (uint32_t)p->n_strings + 1)) {
		nomem(p);
		return 1;
	}
	i = (uint32_t)++p->n_strings;
	msg = lg_pb_open(&p->data, field);
	lg_pb_varint(&p->data, 1, i);
	lg_pb_string(&p->data, 2, s); /* EventName.name, InternedString.str: both field 2 */
	lg_pb_close(&p->data, msg);
	return i;
}

/* As intern(), by the text's id where it has one: the text is looked at once. */
static uint64_t intern_id(struct perfetto *p, unsigned field, const char *s, uint64_t id)
{
	size_t slot = (size_t)(((id ^ field) * 0x9e3779b97f4a7c15u) >> (64 - RECENT_BITS));
	uint32_t iid;

	if (!id)
		return intern(p, field, s);
	if (p->recent[slot].id == id && p->recent[slot].field == field)
		return p->recent[slot].iid;
	iid = lg_map_get(&p->by_id[field], id);
	if (!iid) {
		iid = (uint32_t)intern(p, field, s);
		if (lg_map_set(&p->by_id[field], id, iid))
			nomem(p);
	}
	p->recent[slot].id = id;
	p->recent[slot].field = field;
	p->recent[slot].iid = iid;
	return iid;
}

/* A literal: the same address is the same text. */
static uint64_t intern_static(struct perfetto *p, unsigned field, const char *s)
{
	return intern_id(p, field, s, 1ull << 63 | (uint64_t)(uintptr_t)s);
}

static void begin(struct perfetto *p)
{
	lg_pb_reset(&p->pkt);
	lg_pb_reset(&p->data);
}

static uint64_t stamp(const struct perfetto *p, int64_t ts)
{
	return (uint64_t)ts + p->shift;
}

static void packet_end(struct lg_pb *b, unsigned flags)
{
	lg_pb_varint(b, PKT_SEQUENCE_ID, SEQUENCE);
	lg_pb_varint(b, PKT_FLAGS, flags);
}

static void lead(struct perfetto *p);

/* Everything but the flags is in p->pkt. */
static void finish(struct perfetto *p, unsigned flags)
{
	uint8_t len[16];
	size_t n;

	/* This packet may refer to what only those in bulk needed so far. */
	if (p->ahead.n)
		lead(p);
	packet_end(&p->pkt, flags);
	if (p->data.n)
		lg_pb_bytes(&p->pkt, PKT_INTERNED, p->data.p, p->data.n);
	if (p->pkt.failed || p->data.failed) {
		nomem(p);
		return;
	}
	len[0] = TRACE_PACKET << 3 | 2;
	n = 1 + lg_pb_put_varint(len + 1, p->pkt.n);
	lg_out_write(p->o, len, n);
	lg_out_write(p->o, p->pkt.p, p->pkt.n);
}

/* What p->data holds comes in a packet of its own, before the next. */
static void keep_ahead(struct perfetto *p)
{
	enum { AHEAD_MAX = 64 << 10 };
	size_t n = p->data.n;

	if (p->data.failed || (p->ahead.cap - p->ahead.n < n && !lg_pb_grow(&p->ahead, n))) {
		nomem(p);
		return;
	}
	if (n)
		memcpy(p->ahead.p + p->ahead.n, p->data.p, n);
	p->ahead.n += n;
	p->data.n = 0;
	if (p->ahead.n > AHEAD_MAX)
		lead(p);
}

static void lead(struct perfetto *p)
{
	struct lg_pb pkt = p->pkt, data = p->data;

	if (!p->ahead.n)
		return;
	p->data = p->ahead;
	p->ahead = p->pkt = (struct lg_pb){ 0 };
	finish(p, FLAG_NEEDS_STATE);
	lg_pb_done(&p->pkt);
	p->ahead = p->data;
	p->ahead.n = 0;
	p->pkt = pkt;
	p->data = data;
}

static void clock_reading(struct lg_pb *b, unsigned id, uint64_t ns)
{
	size_t msg = lg_pb_open(b, 1);

	lg_pb_varint(b, 1, id);
	lg_pb_varint(b, 2, ns);
	lg_pb_close(b, msg);
}

/*
 * What packets that do not say otherwise have, up to the next such message: it takes the place of this
 * one. track: of events; 0 = they all say theirs.
 */
static void defaults(struct lg_pb *b, uint64_t track)
{
	size_t def = lg_pb_open(b, PKT_DEFAULTS), s, d;

	lg_pb_varint(b, PKT_CLOCK_ID, CLOCK_ID_MONOTONIC);
	if (track) {
		s = lg_pb_open(b, PKT_TRACK_EVENT); /* track_event_defaults */
		lg_pb_varint(b, EVENT_TRACK, track);
		lg_pb_close(b, s);
	}
	s = lg_pb_open(b, 100); /* stack_sample_defaults */
	lg_pb_string(b, 1, "laggard");
	d = lg_pb_open(b, 2); /* primary_descriptor */
	lg_pb_string(b, 2, "cpu samples");
	lg_pb_varint(b, 3, 9); /* UNIT_COUNT */
	lg_pb_close(b, d);
	lg_pb_close(b, s);
	lg_pb_close(b, def);
}

static void snapshot(struct perfetto *p, uint64_t mono, uint64_t boot, uint64_t real, bool first)
{
	size_t msg;

	begin(p);
	msg = lg_pb_open(&p->pkt, PKT_CLOCK_SNAPSHOT);
	clock_reading(&p->pkt, CLOCK_ID_MONOTONIC, mono);
	clock_reading(&p->pkt, CLOCK_ID_BOOTTIME, boot);
	if (real)
		clock_reading(&p->pkt, CLOCK_ID_REALTIME, real);
	/* primary_trace_clock: what the user reads off is what the verdict prints. */
	lg_pb_varint(&p->pkt, 2, CLOCK_ID_MONOTONIC);
	lg_pb_close(&p->pkt, msg);
	if (first) {
		defaults(&p->pkt, 0);
		lg_pb_varint(&p->pkt, PKT_FIRST, 1);
	}
	finish(p, first ? FLAG_CLEARED : FLAG_NEEDS_STATE);
}

/* Readings of the other clocks nearest to the first and the last row. */
static void clocks(struct perfetto *p)
{
	const struct lg_clock_tab *c = &p->t->clock;
	int64_t start = p->t->first <= p->t->last ? p->t->first : 0;
	size_t last_boot = SIZE_MAX, last_real = SIZE_MAX;
	uint64_t at;
	uint64_t boot = 0, real = 0; /* differences; wrapping keeps a damaged reading harmless */

	for (size_t i = c->n; i-- > 0;) {
		if (c->clock[i] == CLOCK_BOOTTIME) {
			boot = (uint64_t)c->value[i] - (uint64_t)c->ts[i];
			last_boot = last_boot == SIZE_MAX ? i : last_boot;
		} else if (c->clock[i] == CLOCK_REALTIME) {
			real = (uint64_t)c->value[i] - (uint64_t)c->ts[i];
			last_real = last_real == SIZE_MAX ? i : last_real;
		}
	}
	/* Without a reading BOOTTIME runs with MONOTONIC: they differ by suspended time only. */
	at = stamp(p, start);
	snapshot(p, at, at + boot, last_real == SIZE_MAX ? 0 : (uint64_t)start + real, true);
	if (last_real == SIZE_MAX || c->ts[last_real] <= start)
		return;
	if (last_boot != SIZE_MAX)
		boot = (uint64_t)c->value[last_boot] - (uint64_t)c->ts[last_boot];
	at = stamp(p, c->ts[last_real]);
	snapshot(p, at, at + boot, (uint64_t)c->value[last_real], false);
}

static void track(void *self, const struct lg_tl_track *t)
{
	struct perfetto *p = self;
	size_t msg, d;

	begin(p);
	msg = lg_pb_open(&p->pkt, PKT_TRACK_DESCRIPTOR);
	lg_pb_varint(&p->pkt, 1, t->id);
	if (t->parent)
		lg_pb_varint(&p->pkt, 5, t->parent);
	switch (t->kind) {
	case LG_TL_PROCESS:
		d = lg_pb_open(&p->pkt, 3);
		lg_pb_varint(&p->pkt, 1, (uint64_t)t->pid);
		if (t->prc && p->t->process.cmdline[t->prc])
			lg_pb_string(&p->pkt, 2, lg_string(p->t, p->t->process.cmdline[t->prc]));
		lg_pb_string(&p->pkt, 6, t->name);
		lg_pb_varint(&p->pkt, 3, (uint64_t)(int64_t)t->order);
		lg_pb_close(&p->pkt, d);
		lg_pb_varint(&p->pkt, 11, 3); /* child_ordering: EXPLICIT */
		break;
	case LG_TL_THREAD:
		d = lg_pb_open(&p->pkt, 4);
		lg_pb_varint(&p->pkt, 1, (uint64_t)t->pid);
		lg_pb_varint(&p->pkt, 2, (uint64_t)t->tid);
		lg_pb_string(&p->pkt, 5, t->name);
		lg_pb_varint(&p->pkt, 3, (uint64_t)(int64_t)t->order);
		lg_pb_close(&p->pkt, d);
		lg_pb_varint(&p->pkt, 11, 3);
		lg_pb_varint(&p->pkt, 12, (uint64_t)(int64_t)t->order);
		break;
	case LG_TL_LANE:
		lg_pb_string(&p->pkt, 2, t->name);
		lg_pb_varint(&p->pkt, 12, (uint64_t)(int64_t)t->order); /* sibling_order_rank */
		lg_pb_varint(&p->pkt, 15, 2); /* sibling_merge_behavior: NONE */
		break;
	case LG_TL_COUNTER:
		lg_pb_string(&p->pkt, 2, t->name);
		d = lg_pb_open(&p->pkt, 8);
		if (*t->unit)
			lg_pb_string(&p->pkt, 6, t->unit);
		lg_pb_close(&p->pkt, d);
		break;
	}
	lg_pb_close(&p->pkt, msg);
	finish(p, FLAG_NEEDS_STATE);
}

static void annotate(struct perfetto *p, const struct lg_tl_arg *a)
{
	size_t msg = lg_pb_open(&p->pkt, 4);

	lg_pb_varint(&p->pkt, 1, a->read ? intern(p, IN_ARG_NAME, a->key) :
					   intern_static(p, IN_ARG_NAME, a->key));
	if (a->type == LG_ARG_INT)
		lg_pb_varint(&p->pkt, 4, (uint64_t)a->i);
	else if (a->type == LG_ARG_NUM)
		lg_pb_double(&p->pkt, 5, a->f);
	else
		lg_pb_varint(&p->pkt, 17, intern_id(p, IN_ARG_STRING, a->s, a->id));
	lg_pb_close(&p->pkt, msg);
}

static size_t event(struct perfetto *p, unsigned type, uint64_t uuid, int64_t ts)
{
	size_t msg;

	begin(p);
	lg_pb_varint(&p->pkt, PKT_TIMESTAMP, stamp(p, ts));
	msg = lg_pb_open(&p->pkt, PKT_TRACK_EVENT);
	lg_pb_varint(&p->pkt, EVENT_TYPE, type);
	lg_pb_varint(&p->pkt, EVENT_TRACK, uuid);
	return msg;
}

static void event_end(struct perfetto *p, size_t msg)
{
	lg_pb_close(&p->pkt, msg);
	finish(p, FLAG_NEEDS_STATE);
}

static void name_cat(struct perfetto *p, const char *name, uint64_t name_id, const char *cat)
{
	lg_pb_varint(&p->pkt, 10, intern_id(p, IN_NAME, name, name_id));
	lg_pb_varint(&p->pkt, 3, intern_static(p, IN_CATEGORY, cat));
}

/* All of an event but its place and time. */
static void describe(struct perfetto *p, const struct lg_tl_event *e)
{
	name_cat(p, e->name, e->name_id, e->cat);
	for (size_t i = 0; i < e->n_args; i++)
		annotate(p, &e->args[i]);
}

/* The slices of a part do not say their track: it is the default from here on. */
static void start(const void *self, struct lg_pen *pen, const struct lg_tl_track *t)
{
	struct lg_pb pkt = { 0 };
	uint8_t *at;

	(void)self;
	defaults(&pkt, t->id);
	packet_end(&pkt, FLAG_NEEDS_STATE);
	at = pkt.failed ? NULL : lg_pen_room(pen, pkt.n + 16);
	if (at) {
		*at++ = TRACE_PACKET << 3 | 2;
		at = mempcpy(lg_pb_raw(at, pkt.n), pkt.p, pkt.n);
		pen->n = (size_t)(at - pen->p);
	}
	pen->failed |= pkt.failed;
	lg_pb_done(&pkt);
}

/* As event() and finish() of an END. */
static inline uint8_t *end_packet(uint8_t *at, const struct lg_pb_number *ts)
{
	static const uint8_t end[] = { PKT_TRACK_EVENT << 3 | 2, 2, EVENT_TYPE << 3, TYPE_END,
				       PKT_SEQUENCE_ID << 3, SEQUENCE, PKT_FLAGS << 3, FLAG_NEEDS_STATE };
	uint8_t *len = at + 1; /* below 128 */

	at[0] = TRACE_PACKET << 3 | 2;
	at[2] = PKT_TIMESTAMP << 3;
	at = mempcpy(lg_pb_put_number(at + 3, ts), end, sizeof end);
	*len = (uint8_t)(at - len - 1);
	return at;
}

/* Nothing that is written here is read again at once: a load of what several stores wrote waits for them. */
static void turn(const void *self, struct lg_pen *pen, const struct lg_tl_track *t,
		 const struct lg_tl_turn *turn)
{
	enum { STAMPED = 32 }; /* a packet up to its time, or a whole END */
	const struct perfetto *p = self;
	const struct lg_pb_number ended = lg_pb_number(stamp(p, turn->end));
	const struct lg_pb_number began = lg_pb_number(stamp(p, turn->ts));
	size_t room = (turn->n_ended + turn->n) * STAMPED + LG_PEN_SLACK;
	uint8_t *at;

	(void)t; /* the default (start()) */
	for (size_t i = 0; i < turn->n; i++)
		room += p->tail[turn->frame[i]].n;
	at = lg_pen_room(pen, room);
	if (!at)
		return;
	for (size_t i = 0; i < turn->n_ended; i++)
		at = end_packet(at, &ended);
	for (size_t i = 0; i < turn->n; i++) {
		size_t n_tail = p->tail[turn->frame[i]].n;

		*at++ = TRACE_PACKET << 3 | 2;
		at = lg_pb_raw(at, 1 + began.n + n_tail);
		*at++ = PKT_TIMESTAMP << 3;
		at = lg_pb_put_number(at, &began);
		at = lg_pen_put(at, p->tail[turn->frame[i]].p, n_tail);
	}
	pen->n = (size_t)(at - pen->p);
}

/* Close the open slices that end at or before ts. */
static void close_until(struct perfetto *p, const struct lg_tl_track *t, int64_t ts)
{
	while (p->depth && p->ends[p->depth - 1] <= ts)
		event_end(p, event(p, TYPE_END, t->id, p->ends[--p->depth]));
}

static void know(void *self, const struct lg_tl_event *e)
{
	struct perfetto *p = self;
	uint8_t *copy;
	size_t msg;

	begin(p);
	msg = lg_pb_open(&p->pkt, PKT_TRACK_EVENT);
	lg_pb_varint(&p->pkt, EVENT_TYPE, TYPE_BEGIN);
	describe(p, e);
	lg_pb_close(&p->pkt, msg);
	packet_end(&p->pkt, FLAG_NEEDS_STATE);
	keep_ahead(p);
	if (p->pkt.failed || p->failed) {
		nomem(p);
		return;
	}
	copy = lg_arena_alloc(&p->arena, p->pkt.n + LG_PEN_SLACK, 1);
	if (!copy) {
		nomem(p);
		return;
	}
	memcpy(copy, p->pkt.p, p->pkt.n);
	p->tail[e->frame].p = copy;
	p->tail[e->frame].n = p->pkt.n;
}

static struct lg_out *out(void *self)
{
	struct perfetto *p = self;

	return p->o;
}

static void flush(void *self)
{
	lead(self);
}

/* GenericKernelTaskStateEvent: in this state from ts on. cpu: where it runs, or where it ran. */
static void task_state(struct perfetto *p, const struct lg_tl_track *t, unsigned state, int32_t cpu,
		       int64_t ts)
{
	size_t msg;

	begin(p);
	lg_pb_varint(&p->pkt, PKT_TIMESTAMP, stamp(p, ts));
	msg = lg_pb_open(&p->pkt, PKT_TASK_STATE);
	lg_pb_varint(&p->pkt, 1, cpu > 0 ? (uint64_t)cpu : 0);
	lg_pb_varint(&p->pkt, 3, (uint64_t)t->tid);
	lg_pb_varint(&p->pkt, 4, state);
	lg_pb_close(&p->pkt, msg);
	finish(p, FLAG_NEEDS_STATE);
}

/* Perfetto has no state for many short slices in one row: they are sleep there, which is most of them. */
static void state(void *self, const struct lg_tl_track *t, uint32_t row, int64_t ts)
{
	enum { RUNNABLE = 2, RUNNING = 3, SLEEP = 4, UNINTERRUPTIBLE = 5, STOPPED = 6, DEAD = 7 };
	static const uint8_t states[] = {
		[LG_WHY_DISK] = UNINTERRUPTIBLE, [LG_WHY_IOWAIT] = UNINTERRUPTIBLE,
		[LG_WHY_STOPPED] = STOPPED, [LG_WHY_TRACED] = STOPPED,
		[LG_WHY_DEAD] = DEAD,
	};
	struct perfetto *p = self;
	const struct lg_state_tab *s = &p->t->state;
	bool runs = s->kind[row] == LG_RUNNING && !(s->flags[row] & LG_STATE_SUMMED) && s->cpu[row] >= 0;
	unsigned is = SLEEP;

	if (p->task != t->thr) {
		p->task = t->thr;
		p->task_cpu = -1;
		p->task_dead = false;
	}
	/* Its reader takes nothing behind an end, nor a second start on the same CPU. */
	if (t->overlap || p->task_dead || (runs && p->task_cpu == s->cpu[row]))
		return;
	if (runs)
		is = RUNNING;
	else if (s->kind[row] == LG_RUNNABLE)
		is = RUNNABLE;
	else if (s->kind[row] == LG_BLOCKED && s->reason[row] < sizeof states && states[s->reason[row]])
		is = states[s->reason[row]];
	if (runs && p->task_cpu >= 0) /* it moved */
		task_state(p, t, RUNNABLE, p->task_cpu, ts);
	task_state(p, t, is, runs ? s->cpu[row] : p->task_cpu, ts);
	p->task_cpu = runs ? s->cpu[row] : -1;
	p->task_dead = is == DEAD;
}

static void slice(void *self, const struct lg_tl_event *e)
{
	struct perfetto *p = self;
	size_t msg;

	close_until(p, e->track, e->ts);
	if (lg_grow(&p->ends, &p->ends_cap, p->depth + 1, sizeof *p->ends)) {
		nomem(p);
		return;
	}
	p->ends[p->depth++] = e->end;
	msg = event(p, TYPE_BEGIN, e->track->id, e->ts);
	describe(p, e);
	event_end(p, msg);
}

static void track_end(void *self, const struct lg_tl_track *t)
{
	close_until(self, t, INT64_MAX);
}

static void instant(void *self, const struct lg_tl_event *e)
{
	struct perfetto *p = self;
	size_t msg = event(p, TYPE_INSTANT, e->track->id, e->ts);

	describe(p, e);
	event_end(p, msg);
}

static void counter(void *self, const struct lg_tl_track *t, int64_t ts, double value)
{
	struct perfetto *p = self;
	size_t msg = event(p, TYPE_COUNTER, t->id, ts);

	lg_pb_double(&p->pkt, 44, value);
	event_end(p, msg);
}

/* An instant at the moment of an arrow's end, or of several. */
static size_t arrow_end(struct perfetto *p, uint64_t track, int64_t ts)
{
	size_t msg = event(p, TYPE_INSTANT, track, ts);

	lg_pb_varint(&p->pkt, 10, intern_static(p, IN_NAME, p->arrows_name));
	lg_pb_varint(&p->pkt, 3, intern_static(p, IN_CATEGORY, "flow"));
	return msg;
}

/*
 * Perfetto's reader numbers the arrows of LegacyEvents itself, in 32 bits from 0 on, and takes these numbers
 * and ids of other arrows for the same ones (FlowTracker::GetFlowIdForV1Event()).
 */
#define FLOWS_AT (UINT64_C(1) << 32)

/*
 * To Perfetto's reader instants of one moment lie within each other, and a graph may launch more than it
 * takes (TL_DEPTH in timeline_internal.h): arrows that come of one moment in a row begin at one instant. It
 * is written before their ends, which may have the same time.
 */
static void flush_arrows(struct perfetto *p)
{
	size_t msg;

	if (!p->n_arrows)
		return;
	msg = arrow_end(p, p->arrows_track, p->arrows_ts);
	for (size_t i = 0; i < p->n_arrows; i++)
		lg_pb_fixed64(&p->pkt, EVENT_FLOWS, FLOWS_AT + p->arrows[i].id); /* global to the trace */
	event_end(p, msg);
	for (size_t i = 0; i < p->n_arrows; i++) {
		msg = arrow_end(p, p->arrows[i].track, p->arrows[i].ts);
		lg_pb_fixed64(&p->pkt, EVENT_FLOWS_ENDING, FLOWS_AT + p->arrows[i].id);
		event_end(p, msg);
	}
	p->n_arrows = 0;
}

/* One end of an arrow between open slices. */
static void tied_end(struct perfetto *p, const struct lg_tl_flow *f, bool end)
{
	enum { PHASE = 2, UNSCOPED_ID = 6, BIND_TO_ENCLOSING = 12 }; /* LegacyEvent */
	size_t msg, legacy;

	begin(p);
	lg_pb_varint(&p->pkt, PKT_TIMESTAMP, stamp(p, end ? f->ts_to : f->ts));
	msg = lg_pb_open(&p->pkt, PKT_TRACK_EVENT);
	lg_pb_varint(&p->pkt, EVENT_TRACK, end ? f->to->id : f->from->id);
	lg_pb_varint(&p->pkt, 10, intern_static(p, IN_NAME, f->name));
	lg_pb_varint(&p->pkt, 3, intern_static(p, IN_CATEGORY, "flow"));
	legacy = lg_pb_open(&p->pkt, EVENT_LEGACY);
	lg_pb_varint(&p->pkt, PHASE, end ? 'f' : 's');
	lg_pb_varint(&p->pkt, UNSCOPED_ID, f->id);
	if (end)
		lg_pb_varint(&p->pkt, BIND_TO_ENCLOSING, 1);
	lg_pb_close(&p->pkt, legacy);
	event_end(p, msg);
}

static void flow(void *self, const struct lg_tl_flow *f)
{
	struct perfetto *p = self;

	if (f->bound) {
		tied_end(p, f, false);
		tied_end(p, f, true);
		return;
	}
	if (f->from->id != p->arrows_track || f->ts != p->arrows_ts || f->name != p->arrows_name)
		flush_arrows(p);
	if (lg_grow(&p->arrows, &p->arrows_cap, p->n_arrows + 1, sizeof *p->arrows)) {
		nomem(p);
		return;
	}
	p->arrows[p->n_arrows++] = (struct arrow){ .id = f->id, .track = f->to->id, .ts = f->ts_to };
	p->arrows_track = f->from->id;
	p->arrows_ts = f->ts;
	p->arrows_name = f->name;
}

/* ---- StackSample ---- */

/* A string of the trace's pool as an InternedString with its pool number as iid. */
static void pool_string(struct perfetto *p, unsigned field, uint8_t *known, lg_str s)
{
	size_t msg;

	if (!s || known[s])
		return;
	known[s] = 1;
	msg = lg_pb_open(&p->data, field);
	lg_pb_varint(&p->data, 1, s);
	lg_pb_string(&p->data, 2, lg_string(p->t, s));
	lg_pb_close(&p->data, msg);
}

static void intern_frame(struct perfetto *p, lg_frm f)
{
	const struct lg_frame_tab *fr = &p->t->frame;
	lg_str dso = fr->dso[f];
	char name[512];
	size_t msg;

	if (p->frame_known[f])
		return;
	p->frame_known[f] = 1;
	if (dso && !p->dso_known[dso]) {
		pool_string(p, IN_MAPPING_PATH, p->dso_known, dso);
		msg = lg_pb_open(&p->data, IN_MAPPING);
		lg_pb_varint(&p->data, 1, dso);
		lg_pb_varint(&p->data, 7, dso);
		lg_pb_close(&p->data, msg);
	}
	pool_string(p, IN_SOURCE_PATH, p->file_known, fr->file[f]);
	msg = lg_pb_open(&p->data, IN_FUNCTION);
	lg_pb_varint(&p->data, 1, f);
	lg_pb_string(&p->data, 2, lg_frame_text(p->t, f, name, sizeof name));
	lg_pb_close(&p->data, msg);

	msg = lg_pb_open(&p->data, IN_FRAME);
	lg_pb_varint(&p->data, 1, f);
	lg_pb_varint(&p->data, 2, f);
	if (dso) {
		lg_pb_varint(&p->data, 3, dso);
		lg_pb_varint(&p->data, 4, fr->pc[f]);
	}
	if (fr->file[f]) {
		lg_pb_varint(&p->data, 5, fr->file[f]);
		lg_pb_varint(&p->data, 6, fr->line[f]);
	}
	/* Kind: NATIVE, KERNEL, INTERPRETED. */
	lg_pb_varint(&p->data, 7, fr->kind[f] == LG_FRAME_KERNEL ? 2 :
				  fr->kind[f] == LG_FRAME_PYTHON ? 3 : 1);
	lg_pb_close(&p->data, msg);
}

static void intern_stack(struct perfetto *p, lg_stk stk)
{
	enum { DEPTH_MAX = 1024 };
	const struct lg_stack_tab *st = &p->t->stack;
	lg_frm frames[DEPTH_MAX];
	size_t n = 0, msg;

	if (p->stack_known[stk])
		return;
	p->stack_known[stk] = 1;
	for (lg_stk s = stk; s && n < DEPTH_MAX; s = st->parent[s]) {
		frames[n++] = st->frame[s];
		intern_frame(p, st->frame[s]);
	}
	msg = lg_pb_open(&p->data, IN_CALLSTACK);
	lg_pb_varint(&p->data, 1, stk);
	while (n) /* outermost first */
		lg_pb_varint(&p->data, 2, frames[--n]);
	lg_pb_close(&p->data, msg);
}

static uint8_t *put(uint8_t *at, uint32_t field, uint64_t v)
{
	return lg_pb_raw(lg_pb_raw(at, (uint64_t)field << 3), v);
}

/* What StackSamples of a thread begin with that were taken on one CPU in one mode. */
struct sample_head {
	int32_t cpu;
	size_t n; /* 0 = not made yet */
	uint8_t bytes[48 + LG_PEN_SLACK];
};

static void make_head(struct sample_head *h, lg_thr thr, int32_t cpu, bool kernel)
{
	enum { CONTEXT_CPU = 2, CONTEXT_MODE = 3 }; /* 1 is its iid, for those that are interned */
	enum { MODE_USER = 1, MODE_KERNEL = 2 };
	uint8_t *at = put(h->bytes, 2, thr), *ctx; /* task_context_iid */

	*at++ = 3 << 3 | 2; /* execution_context */
	ctx = ++at;
	if (cpu >= 0)
		at = put(at, CONTEXT_CPU, (uint64_t)cpu);
	at = put(at, CONTEXT_MODE, kernel ? MODE_KERNEL : MODE_USER);
	ctx[-1] = (uint8_t)(at - ctx);
	h->cpu = cpu;
	h->n = (size_t)(at - h->bytes);
}

/* Each length in a StackSample is below 128, one byte. */
static void samples(const void *self, struct lg_pen *pen, lg_thr thr, const uint32_t *rows, size_t n)
{
	enum { SAMPLE_MAX = 128 };
	static const uint8_t tail[] = { 11 << 3, 1 /* primary_weight */, PKT_SEQUENCE_ID << 3, SEQUENCE,
					PKT_FLAGS << 3, FLAG_NEEDS_STATE };
	const struct perfetto *p = self;
	const struct lg_sample_tab *s = &p->t->sample;
	struct sample_head head[2] = { { .n = 0 }, { .n = 0 } };
	uint8_t *at = lg_pen_room(pen, n * SAMPLE_MAX);

	if (!at)
		return;
	for (size_t i = 0; i < n; i++) {
		uint32_t row = rows[i];
		bool kernel = s->flags[row] & LG_SAMPLE_KERNEL;
		struct sample_head *h = &head[kernel];
		uint8_t *pkt, *msg;

		if (!h->n || h->cpu != s->cpu[row])
			make_head(h, thr, s->cpu[row], kernel);
		*at++ = TRACE_PACKET << 3 | 2;
		pkt = ++at;
		*at++ = PKT_TIMESTAMP << 3;
		at = lg_pb_long(at, stamp(p, s->ts[row]));
		at = lg_pb_raw(at, PKT_STACK_SAMPLE << 3 | 2);
		msg = ++at;
		at = lg_pen_put(at, h->bytes, h->n);
		if (s->stack[row])
			at = put(at, 6, s->stack[row]); /* callstack_iid */
		msg[-1] = (uint8_t)(at + 2 - msg);
		at = mempcpy(at, tail, sizeof tail);
		pkt[-1] = (uint8_t)(at - pkt);
	}
	pen->n = (size_t)(at - pen->p);
}

/* What a sample refers to. */
static void know_sample(void *self, const struct lg_tl_track *thread, size_t row)
{
	struct perfetto *p = self;
	lg_stk stk = p->t->sample.stack[row];
	size_t d;

	if (p->task_known[thread->thr] && (!stk || p->stack_known[stk]))
		return;
	begin(p);
	if (stk)
		intern_stack(p, stk);
	if (!p->task_known[thread->thr]) {
		p->task_known[thread->thr] = 1;
		d = lg_pb_open(&p->data, IN_TASK);
		lg_pb_varint(&p->data, 1, thread->thr);
		lg_pb_varint(&p->data, 2, (uint64_t)thread->pid);
		lg_pb_varint(&p->data, 3, (uint64_t)thread->tid);
		lg_pb_close(&p->data, d);
	}
	keep_ahead(p);
}

int lg_perfetto_write(const struct lg_trace *t, const struct lg_verdict *v,
		      const struct lg_window *w, struct lg_out *o, struct lg_error *err)
{
	static const struct lg_tl_sink sink = { .track = track, .slice = slice, .track_end = track_end,
						.state = state, .instant = instant,
						.counter = counter, .flow = flow,
						.out = out, .know = know, .flush = flush,
						.start = start, .turn = turn,
						.know_sample = know_sample, .samples = samples };
	struct perfetto *p = lg_calloc(1, sizeof *p);
	int rc = 0;

	if (!p)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p->t = t;
	p->o = o;
	p->shift = t->first <= t->last && t->first < 0 ? 0 - (uint64_t)t->first : 0;
	p->frame_known = lg_calloc(t->frame.n + 1, 1);
	p->stack_known = lg_calloc(t->stack.n + 1, 1);
	p->task_known = lg_calloc(t->thread.n + 1, 1);
	p->dso_known = lg_calloc(t->n_str + 1, 1);
	p->file_known = lg_calloc(t->n_str + 1, 1);
	p->tail = lg_calloc(t->frame.n + 1, sizeof *p->tail);
	if (!p->frame_known || !p->stack_known || !p->task_known || !p->dso_known || !p->file_known ||
	    !p->tail) {
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	} else {
		clocks(p);
		rc = lg_timeline(t, v, w, &sink, p, err);
		flush_arrows(p);
		if (!rc && p->failed)
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	for (unsigned i = 0; i < N_INTERNED; i++) {
		lg_map_done(&p->index[i]);
		lg_map_done(&p->by_id[i]);
	}
	lg_arena_done(&p->arena);
	lg_pb_done(&p->pkt);
	lg_pb_done(&p->data);
	lg_pb_done(&p->ahead);
	lg_free(p->strings);
	lg_free(p->ends);
	lg_free(p->arrows);
	lg_free(p->tail);
	lg_free(p->frame_known);
	lg_free(p->stack_known);
	lg_free(p->task_known);
	lg_free(p->dso_known);
	lg_free(p->file_known);
	lg_free(p);
	return rc;
}
