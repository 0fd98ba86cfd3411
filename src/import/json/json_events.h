/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_events.h - the events and top-level fields of a Chrome trace, one at a time.
 *
 * Both forms ({"traceEvents": [...], ...} and a bare array), cut off or damaged: after damage reading
 * goes on at the next thing that looks like an event. Slices are valid until the next call.
 */
#ifndef LG_IMPORT_JSON_EVENTS_H
#define LG_IMPORT_JSON_EVENTS_H
#include "import/json/json_shape.h"
#include "import/json/json_source.h"
#include "store/builder.h"

struct lg_event {
	char ph;               /* 0 = none */
	uint8_t item;          /* what lg_events_next() returns with it, on its way between threads */
	bool timed;            /* ts and dur were looked at, */
	bool ts_read, dur_read; /* and are numbers: */
	int64_t ts_ns, dur_ns;  /* microseconds in the text */
	struct lg_slice cat, name, pid, tid, ts, dur, id, bp, scope, sf, args;
};

/* Read the numbers of ts and dur. */
static inline void lg_event_times(struct lg_event *e)
{
	e->timed = true;
	e->ts_read = lg_json_decimal(&e->ts, 3, &e->ts_ns);
	e->dur_read = e->dur.p && lg_json_decimal(&e->dur, 3, &e->dur_ns);
}

enum { LG_ITEM_END, LG_ITEM_EVENT, LG_ITEM_FIELD /* name = key, args = value */ };

struct lg_ahead;

enum { LG_EVENT_MEMBERS = 14 };

struct lg_events {
	struct lg_json_source *src;
	const char *p, *end;
	const char *path;      /* for messages */
	uint8_t state;
	bool bare, seen_array; /* array form; there was an array of events */
	bool eof, begun;
	uint64_t n_events, n_damaged, skipped, first_damaged, truncated; /* byte offsets */
	/* of a value too large to keep, which is skipped */
	size_t depth;
	bool in_string, in_escape;
	struct lg_ahead *ahead; /* scans in a thread of its own; NULL = in turn */
	struct lg_shape shape[LG_EVENT_MEMBERS];
	char before;           /* looking for an event: the last byte before p that is no space */
	bool no_arrows;        /* events of phase s, t, f are counted and not handed on */
	struct lg_event now;   /* without `ahead`: the last one */
};

int lg_events_open(struct lg_events *r, const char *path, struct lg_error *err) LG_MUST_CHECK;
/* Takes src over. */
void lg_events_start(struct lg_events *r, struct lg_json_source *src, const char *path);
/* LG_ITEM_* or an error. *ret is good until the next call. */
int lg_events_take(struct lg_events *r, const struct lg_event **ret, struct lg_error *err);
/* The same as a copy (its slices are good until the next call). */
int lg_events_next(struct lg_events *r, struct lg_event *e, struct lg_error *err);
/* The same in this thread (json_ahead.c). */
int lg_events_scan(struct lg_events *r, struct lg_event *e, struct lg_error *err);
/* Diag rows for what was cut off or damaged; ts: of the last event. */
void lg_events_diag(const struct lg_events *r, struct lg_builder *b, int64_t ts);
/* For a text without an event: LG_E_FORMAT and why there is none. */
int lg_events_none(const struct lg_events *r, struct lg_error *err);
void lg_events_close(struct lg_events *r);

#endif /* LG_IMPORT_JSON_EVENTS_H */
