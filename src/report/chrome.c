/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chrome.c - Trace Event Format JSON ("Trace Event Format", the catapult project's document).
 *
 * Slices that nest are pairs of "B" and "E", written as they open and close; those dealt to an overlap track
 * are async events ("b"/"e") with an id of their own, because viewers drop what overlaps without nesting.
 * A lane of a thread is a tid of its own, above every real one, named and sorted after it.
 *
 * Why not complete events ("X"): readers add ts and dur as floating microseconds, and then what ends together
 * does not. What speedscope 1.25.0 (src/import/trace-event.ts) asks for besides:
 *  - an E has its B's name, or it is not taken;
 *  - of a B and an E of one moment it takes the E first, unless both have the same name and arguments, as
 *    then it believes in a slice of length 0. E's have no arguments (chrome://tracing warns of those that
 *    both have), so where a B has none either, and the name of an E, that E is given empty ones;
 *  - so a slice of length 0 is an instant, which Perfetto draws as one.
 * It warns on its console of each E without the arguments that its B has, and takes it. With them it would
 * take slices that are alike and touch for one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/map.h"
#include "report/convert.h"

/* Above the tids of later lives in timeline.c; thread rows stay below 2^25. */
enum { TID_LANES = 1 << 28, TID_STREAMS = 1 << 29, LANES = 8 };

/* Room for everything of an event but its strings. */
enum { EVENT_BYTES = 512 };

/* A slice whose E is not written yet. */
struct open {
	int64_t end;
	size_t name; /* where it is among the names */
};

struct chrome {
	const struct lg_trace *t;
	struct lg_out *o;
	int64_t start;
	uint64_t n_async, n_unbound; /* arrows that are left out */
	bool any;
	/* "pid":1,"tid":2 of the track drawn last: events come track by track. */
	uint64_t place_of;
	char place[64];
	size_t place_n;
	/* The track's open slices, outermost first, and their names, one behind the other. */
	struct open *open;
	char *names;
	size_t n_open, open_cap, n_names, names_cap;
	/* B's of the flame chart from their name on, by row of the frame table: millions of slices are of a
	 * few thousand functions. Their E's have n_name of it. */
	struct lg_out *kept; /* where the next one is written */
	struct lg_arena texts;
	struct { const char *p; size_t n, n_name; bool has_args; } *tail;
	bool failed;
};

/* Append a literal. */
#define PUT(at, literal) (memcpy((at), (literal), sizeof(literal) - 1), (at) + sizeof(literal) - 1)

/* The tid of an event; overlap tracks share their lane's. */
static int64_t tid_of(const struct lg_tl_track *t)
{
	if (t->kind == LG_TL_LANE && t->thr && t->lane != LG_LANE_MAIN)
		return TID_LANES + (int64_t)t->thr * LANES + t->lane;
	/* A GPU stream, the losses: numbered by their order in the process. */
	if (t->kind == LG_TL_LANE && !t->thr)
		return TID_STREAMS + t->order;
	return t->tid;
}

static char *put_us(char *at, uint64_t ns)
{
	unsigned frac = (unsigned)(ns % 1000);

	at = lg_put_u64(at, ns / 1000);
	*at++ = '.';
	*at++ = (char)('0' + frac / 100);
	*at++ = (char)('0' + frac / 10 % 10);
	*at++ = (char)('0' + frac % 10);
	return at;
}

static char *put_i64(char *at, int64_t v)
{
	if (v < 0)
		*at++ = '-';
	return lg_put_u64(at, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static void put_str(struct lg_out *o, const char *s)
{
	lg_out_json_string(o, s, strlen(s));
}

static void put_num(struct lg_out *o, double v)
{
	char b[32];

	if (!isfinite(v)) {
		lg_out_puts(o, "null");
		return;
	}
	snprintf(b, sizeof b, "%.15g", v);
	if (strtod(b, NULL) < v || strtod(b, NULL) > v)
		snprintf(b, sizeof b, "%.17g", v);
	lg_out_puts(o, b);
}

/* "pid":1,"tid":2 */
static char *place(struct chrome *c, char *at, const struct lg_tl_track *t)
{
	if (t->id != c->place_of) {
		char *end = c->place;

		end = PUT(end, "\"pid\":");
		end = put_i64(end, t->pid);
		end = PUT(end, ",\"tid\":");
		end = put_i64(end, tid_of(t));
		c->place_n = (size_t)(end - c->place);
		c->place_of = t->id;
	}
	memcpy(at, c->place, c->place_n);
	return at + c->place_n;
}

/*
 * ,\n{"ph":"X","pid":1,"tid":2,"ts":3.000
 * Returns where to go on in the writer's own buffer (EVENT_BYTES and more at most, then
 * lg_out_commit), or NULL when the writer has failed. Nothing drawn lies before the trace's first row, so the
 * difference is never negative; it may need the 64th bit when an input is damaged.
 */
static char *begin(struct chrome *c, char ph, const struct lg_tl_track *t, int64_t ts, size_t more)
{
	char *at = lg_out_reserve(c->o, EVENT_BYTES + more);

	if (!at)
		return NULL;
	if (c->any)
		*at++ = ',';
	c->any = true;
	at = PUT(at, "\n{\"ph\":\"");
	*at++ = ph;
	at = PUT(at, "\",");
	at = place(c, at, t);
	at = PUT(at, ",\"ts\":");
	return put_us(at, (uint64_t)ts - (uint64_t)c->start);
}

/* ,\n{"ph":"M","pid":1,"tid":2 */
static void head(struct chrome *c, const char *ph, int64_t pid, int64_t tid)
{
	lg_out_puts(c->o, c->any ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
	c->any = true;
	lg_out_puts(c->o, ph);
	lg_out_puts(c->o, "\",\"pid\":");
	lg_out_i64(c->o, pid);
	lg_out_puts(c->o, ",\"tid\":");
	lg_out_i64(c->o, tid);
}

/* Append what we wrote ourselves: short, and nothing in it needs escaping. */
static char *put_own(char *at, const char *literal)
{
	return mempcpy(at, literal, strlen(literal));
}

static void put_args(struct chrome *c, const struct lg_tl_event *e)
{
	char *at;

	for (size_t i = 0; i < e->n_args; i++) {
		const struct lg_tl_arg *a = &e->args[i];

		at = lg_out_reserve(c->o, EVENT_BYTES);
		if (!at)
			return;
		at = i ? PUT(at, ",") : PUT(at, ",\"args\":{");
		if (a->read) {
			lg_out_commit(c->o, at);
			put_str(c->o, a->key);
			at = lg_out_reserve(c->o, EVENT_BYTES);
			if (!at)
				return;
		} else {
			*at++ = '"';
			at = put_own(at, a->key);
			*at++ = '"';
		}
		*at++ = ':';
		if (a->type == LG_ARG_INT)
			at = put_i64(at, a->i);
		lg_out_commit(c->o, at);
		if (a->type == LG_ARG_NUM)
			put_num(c->o, a->f);
		else if (a->type == LG_ARG_STR)
			put_str(c->o, a->s);
	}
	lg_out_write(c->o, e->n_args ? "}}" : "}", e->n_args ? 2 : 1); /* the event's own as well */
}

static void put_name(struct lg_out *o, const char *name)
{
	lg_out_write(o, ",\"name\":", 8);
	put_str(o, name);
}

static void name_cat(struct chrome *c, const char *name, const char *cat, const char *colour)
{
	char *at;

	put_name(c->o, name);
	at = lg_out_reserve(c->o, EVENT_BYTES);
	if (!at)
		return;
	at = PUT(at, ",\"cat\":\"");
	at = put_own(at, cat);
	if (colour) {
		at = PUT(at, "\",\"cname\":\"");
		at = put_own(at, colour);
	}
	*at++ = '"';
	lg_out_commit(c->o, at);
}

static void meta(struct chrome *c, const char *what, int64_t pid, int64_t tid, const char *name,
		 int64_t order)
{
	head(c, "M", pid, tid);
	lg_out_puts(c->o, ",\"name\":");
	put_str(c->o, what);
	lg_out_puts(c->o, name ? ",\"args\":{\"name\":" : ",\"args\":{\"sort_index\":");
	if (name)
		put_str(c->o, name);
	else
		lg_out_i64(c->o, order);
	lg_out_puts(c->o, "}}");
}

/* What a process was started as: viewers show labels beside its name. */
static void labels(struct chrome *c, const struct lg_tl_track *t)
{
	if (!t->prc || !c->t->process.cmdline[t->prc])
		return;
	head(c, "M", t->pid, t->pid);
	lg_out_puts(c->o, ",\"name\":\"process_labels\",\"args\":{\"labels\":");
	put_str(c->o, lg_string(c->t, c->t->process.cmdline[t->prc]));
	lg_out_puts(c->o, "}}");
}

static void track(void *self, const struct lg_tl_track *t)
{
	struct chrome *c = self;
	int64_t tid = tid_of(t);
	char name[600];

	switch (t->kind) {
	case LG_TL_PROCESS:
		meta(c, "process_name", t->pid, t->pid, t->name, 0);
		meta(c, "process_sort_index", t->pid, t->pid, NULL, t->order);
		labels(c, t);
		break;
	case LG_TL_THREAD:
		meta(c, "thread_name", t->pid, tid, t->name, 0);
		meta(c, "thread_sort_index", t->pid, tid, NULL, (int64_t)t->order * LANES);
		break;
	case LG_TL_LANE:
		if (t->overlap || (t->thr && t->lane == LG_LANE_MAIN))
			break; /* async events: drawn by category, under the lane's tid */
		if (t->thr)
			snprintf(name, sizeof name, "%lld %s", (long long)t->tid, t->name);
		else
			snprintf(name, sizeof name, "%s", t->name);
		meta(c, "thread_name", t->pid, tid, name, 0);
		/* Just below its thread. */
		meta(c, "thread_sort_index", t->pid, tid, NULL,
		     t->thr ? (int64_t)t->thread_order * LANES + t->lane : t->order);
		break;
	case LG_TL_COUNTER:
		break;
	}
}

/* Keep a slice from its name on, with all that belongs to it. */
static void know(void *self, const struct lg_tl_event *e)
{
	struct chrome *c = self;
	struct lg_out *o = c->o;
	size_t n, n_name;
	char *copy;

	lg_out_clear(c->kept);
	put_name(c->kept, e->name);
	n_name = (size_t)lg_out_bytes(c->kept);
	lg_out_clear(c->kept);
	c->o = c->kept;
	name_cat(c, e->name, e->cat, e->colour);
	put_args(c, e);
	c->o = o;
	n = (size_t)lg_out_bytes(c->kept);
	/* A writer without memory counts what it did not write. */
	copy = lg_out_failed(c->kept) ? NULL : lg_arena_alloc(&c->texts, n + LG_PEN_SLACK, 1);
	if (!copy) {
		c->failed = true;
		return;
	}
	memcpy(copy, lg_out_view(c->kept), n);
	c->tail[e->frame].p = copy;
	c->tail[e->frame].n = n;
	c->tail[e->frame].n_name = n_name;
	c->tail[e->frame].has_args = e->n_args;
}

static struct lg_out *out(void *self)
{
	struct chrome *c = self;

	return c->o;
}

/* Would speedscope take the E of one frame and the B of the other for a slice of length 0? */
static bool seem_one(const struct chrome *c, lg_frm ended, lg_frm begun)
{
	return !c->tail[begun].has_args && c->tail[begun].n_name == c->tail[ended].n_name &&
	       !memcmp(c->tail[begun].p, c->tail[ended].p, c->tail[begun].n_name);
}

static void turn(const void *self, struct lg_pen *pen, const struct lg_tl_track *t,
		 const struct lg_tl_turn *turn)
{
	enum { HEAD = 128, REST = 16 };
	const struct chrome *c = self;
	bool at_once = turn->n && turn->end == turn->ts;
	size_t room = (turn->n_ended + turn->n) * (HEAD + REST) + LG_PEN_SLACK, n_place, n_head;
	char head[HEAD + LG_PEN_SLACK], *end = head, *ph;
	unsigned char *at;

	for (size_t i = 0; i < turn->n_ended; i++)
		room += c->tail[turn->ended[i]].n_name;
	for (size_t i = 0; i < turn->n; i++)
		room += c->tail[turn->frame[i]].n;
	at = lg_pen_room(pen, room);
	if (!at)
		return;
	ph = PUT(end, ",\n{\"ph\":\"");
	end = PUT(ph, "E\",\"pid\":");
	end = put_i64(end, t->pid);
	end = PUT(end, ",\"tid\":");
	end = put_i64(end, tid_of(t));
	end = PUT(end, ",\"ts\":");
	n_place = (size_t)(end - head);
	n_head = (size_t)(put_us(end, (uint64_t)turn->end - (uint64_t)c->start) - head);
	for (size_t i = turn->n_ended; i-- > 0;) {
		lg_frm frame = turn->ended[i];

		at = lg_pen_put(at, head, n_head);
		at = lg_pen_put(at, c->tail[frame].p, c->tail[frame].n_name);
		if (at_once && seem_one(c, frame, turn->frame[0]))
			at = PUT(at, ",\"args\":{}");
		*at++ = '}';
	}
	*ph = 'B';
	if (!at_once)
		n_head = (size_t)(put_us(head + n_place, (uint64_t)turn->ts - (uint64_t)c->start) - head);
	for (size_t i = 0; i < turn->n; i++) {
		at = lg_pen_put(at, head, n_head);
		at = lg_pen_put(at, c->tail[turn->frame[i]].p, c->tail[turn->frame[i]].n);
	}
	pen->n = (size_t)(at - pen->p);
}

/* Write the E's of the slices that end at or before ts, when next (or nothing) begins. */
static void close_until(struct chrome *c, const struct lg_tl_track *t, int64_t ts,
			const struct lg_tl_event *next)
{
	while (c->n_open && c->open[c->n_open - 1].end <= ts) {
		const struct open *open = &c->open[--c->n_open];
		const char *name = c->names + open->name;
		char *at = begin(c, 'E', t, open->end, 0);

		c->n_names = open->name;
		if (!at)
			return;
		lg_out_commit(c->o, at);
		put_name(c->o, name);
		if (next && !next->n_args && next->ts == open->end && !strcmp(next->name, name))
			lg_out_puts(c->o, ",\"args\":{}");
		lg_out_write(c->o, "}", 1);
	}
}

/* Its E comes later. */
static void keep_open(struct chrome *c, const struct lg_tl_event *e)
{
	size_t n = strlen(e->name) + 1;

	if (lg_grow(&c->open, &c->open_cap, c->n_open + 1, sizeof *c->open) ||
	    lg_grow(&c->names, &c->names_cap, c->n_names + n, 1)) {
		c->failed = true;
		return;
	}
	memcpy(c->names + c->n_names, e->name, n);
	c->open[c->n_open++] = (struct open){ .end = e->end, .name = c->n_names };
	c->n_names += n;
}

/* One that may overlap others of its track. */
static void async(struct chrome *c, const struct lg_tl_event *e)
{
	c->n_async++;
	for (int end = 0; end < 2; end++) {
		char *at = begin(c, end ? 'e' : 'b', e->track, end ? e->end : e->ts, 0);

		if (!at)
			return;
		/* Of this process alone: files that are joined keep theirs apart. */
		at = PUT(at, ",\"id2\":{\"local\":\"a");
		at = lg_put_u64(at, c->n_async);
		lg_out_commit(c->o, PUT(at, "\"}"));
		name_cat(c, e->name, e->cat, NULL);
		if (!end)
			put_args(c, e);
		else
			lg_out_write(c->o, "}", 1);
	}
}

static void instant(void *self, const struct lg_tl_event *e);

static void slice(void *self, const struct lg_tl_event *e)
{
	struct chrome *c = self;
	char *at;

	if (e->track->overlap) {
		async(c, e);
		return;
	}
	close_until(c, e->track, e->ts, e);
	if (e->ts == e->end) {
		instant(c, e);
		return;
	}
	keep_open(c, e);
	at = begin(c, 'B', e->track, e->ts, 0);
	if (!at)
		return;
	lg_out_commit(c->o, at);
	name_cat(c, e->name, e->cat, e->colour);
	put_args(c, e);
}

static void track_end(void *self, const struct lg_tl_track *t)
{
	close_until(self, t, INT64_MAX, NULL);
}

static void instant(void *self, const struct lg_tl_event *e)
{
	struct chrome *c = self;
	char *at = begin(c, 'i', e->track, e->ts, 0);

	if (!at)
		return;
	lg_out_commit(c->o, PUT(at, ",\"s\":\"t\""));
	name_cat(c, e->name, e->cat, NULL);
	put_args(c, e);
}

static void counter(void *self, const struct lg_tl_track *t, int64_t ts, double value)
{
	struct chrome *c = self;
	char *at = begin(c, 'C', t, ts, 0); /* the tid of a counter is its process's */

	if (!at)
		return;
	lg_out_commit(c->o, at);
	lg_out_puts(c->o, ",\"name\":");
	put_str(c->o, t->name);
	/* Two counters of one name in one process would be one curve. */
	lg_out_printf(c->o, ",\"id\":\"%llx\",\"args\":{", (unsigned long long)t->id);
	put_str(c->o, *t->unit ? t->unit : "value");
	lg_out_write(c->o, ":", 1);
	put_num(c->o, value);
	lg_out_puts(c->o, "}}");
}

static void flow(void *self, const struct lg_tl_flow *f)
{
	struct chrome *c = self;

	/* An arrow ends at the slice that is open on a tid; async events and instants are none of it. */
	if (!f->bound) {
		c->n_unbound++;
		return;
	}
	for (int end = 0; end < 2; end++) {
		char *at = begin(c, end ? 'f' : 's', end ? f->to : f->from, end ? f->ts_to : f->ts, 0);

		if (!at)
			return;
		at = PUT(at, ",\"id\":");
		at = lg_put_u64(at, f->id);
		if (end) /* bind to the slice around it, not to the next one */
			at = PUT(at, ",\"bp\":\"e\"");
		lg_out_commit(c->o, at);
		name_cat(c, f->name, "flow", NULL);
		lg_out_write(c->o, "}", 1);
	}
}

/* The machine's facts. Strict readers refuse a repeated key: the last value of each counts. */
static int facts(const struct lg_trace *t, struct lg_out *o, struct lg_error *err)
{
	const struct lg_meta_tab *m = &t->meta;
	struct lg_map last = { 0 };
	char key[1024];
	int rc = 0;

	for (size_t i = 0; i < m->n && !rc; i++)
		if (!m->prc[i] && m->key[i])
			rc = lg_map_set(&last, m->key[i], (uint32_t)i + 1);
	for (size_t i = 0; i < m->n && !rc; i++) {
		if (m->prc[i] || !m->key[i] || lg_map_get(&last, m->key[i]) != i + 1)
			continue;
		snprintf(key, sizeof key, "meta.%s", lg_string(t, m->key[i]));
		lg_out_write(o, ",", 1);
		put_str(o, key);
		lg_out_write(o, ":", 1);
		put_str(o, lg_string(t, m->value[i]));
	}
	lg_map_done(&last);
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}

int lg_chrome_write(const struct lg_trace *t, const struct lg_verdict *v, const struct lg_window *w,
		    struct lg_out *o, struct lg_error *err)
{
	static const struct lg_tl_sink sink = { .track = track, .slice = slice, .track_end = track_end,
						.out = out, .know = know, .turn = turn,
						.instant = instant, .counter = counter, .flow = flow };
	struct chrome c = { .t = t, .o = o, .start = t->first <= t->last ? t->first : 0 };
	int rc = lg_out_memory(&c.kept, err);

	if (rc)
		return rc;
	c.tail = lg_calloc(t->frame.n, sizeof *c.tail);
	if (!c.tail) {
		lg_out_abort(c.kept);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	lg_out_puts(o, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"laggard\":\"" LG_VERSION "\"");
	lg_out_printf(o, ",\"clock\":\"CLOCK_MONOTONIC\",\"start_ns\":\"%lld\"", (long long)c.start);
	rc = facts(t, o, err);
	lg_out_puts(o, "},\"traceEvents\":[");
	if (!rc)
		rc = lg_timeline(t, v, w, &sink, &c, err);
	if (!rc && c.failed)
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	lg_out_printf(o, "\n],\"arrows_left_out\":%llu}\n", (unsigned long long)c.n_unbound);
	lg_out_abort(c.kept);
	lg_arena_done(&c.texts);
	lg_free(c.tail);
	lg_free(c.open);
	lg_free(c.names);
	return rc;
}
