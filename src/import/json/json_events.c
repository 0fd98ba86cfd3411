/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_events.c - the walk over a trace's text.
 *
 * The members of an event are picked out as they come; the arguments are only measured, a handful of
 * instructions for 64 bytes (lg_json_object()). Damage that swallows several events (a lost brace or
 * quote) is told by an inner '{' where none can be, or by an event that does not end; only then is
 * the text checked by the letter to find the place.
 */
#include "import/json/json_events.h"

#include <stdio.h>

#include "import/json/json_ahead.h"

enum { START, TOP, EVENTS, SKIP, RESYNC, TAIL, DONE };

int lg_events_open(struct lg_events *r, const char *path, struct lg_error *err)
{
	struct lg_json_source *src;
	int rc = lg_json_source_open(&src, path, err);

	if (!rc)
		lg_events_start(r, src, path);
	return rc;
}

void lg_events_start(struct lg_events *r, struct lg_json_source *src, const char *path)
{
	*r = (struct lg_events){ .src = src,
				 .path = path,
				 .truncated = LG_NO_OFFSET,
				 .first_damaged = LG_NO_OFFSET };
}

void lg_events_close(struct lg_events *r)
{
	lg_ahead_stop(r->ahead);
	r->ahead = NULL;
	lg_json_source_close(r->src);
	r->src = NULL;
}

/* More text behind what is kept from r->p on. 1, 0 at the end, or an error. */
static int more(struct lg_events *r, struct lg_error *err)
{
	int rc;

	if (r->eof)
		return 0;
	if (r->ahead && lg_ahead_before_more(r->ahead, r->p))
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "%s is not read any further", r->path);
	rc = lg_json_source_more(r->src, r->p, &r->p, &r->end, err);
	if (!rc)
		r->eof = true;
	return rc;
}

/* Skip spaces and commas; the next byte is at r->p. 1, 0 at the end, or an error. */
static int next_byte(struct lg_events *r, struct lg_error *err)
{
	for (;;) {
		int rc;

		while (r->p < r->end && (lg_json_space(*r->p) || *r->p == ','))
			r->p++;
		if (r->p < r->end)
			return 1;
		rc = more(r, err);
		if (rc <= 0)
			return rc;
	}
}

/* The text is wrong at `at`: go on behind it. */
static void damaged(struct lg_events *r, const char *at)
{
	uint64_t offset = lg_json_source_offset(r->src, at);

	if (!r->n_damaged++)
		r->first_damaged = offset;
	r->p = at;
	r->before = 0;
	r->state = RESYNC;
}

static bool event_key(const struct lg_slice *k)
{
	return LG_SLICE_IS(k, "ph") || LG_SLICE_IS(k, "name") || LG_SLICE_IS(k, "cat") ||
	       LG_SLICE_IS(k, "pid") || LG_SLICE_IS(k, "tid") || LG_SLICE_IS(k, "ts");
}

/* The last byte of [from, p) that is no space, else before. */
static char last_byte(const char *from, const char *p, char before)
{
	while (p > from && lg_json_space(p[-1]))
		p--;
	return p > from ? p[-1] : before;
}

/* Does an event start at p ('{')? 1, 0, or -1 when the text ends before that can be told. */
static int event_start(const char *p, const char *end)
{
	enum { LOOK = 64 };
	struct lg_slice key = { .esc = 0 };
	const char *q;

	if (end - p < LOOK)
		return -1;
	end = p + LOOK;
	q = lg_json_skip(p + 1, end);
	if (q >= end || *q != '"')
		return 0;
	key.p = q + 1;
	q = lg_json_string_end(q + 1, end, &key.esc);
	if (!q)
		return 0;
	key.n = (uint32_t)(q - key.p);
	q = lg_json_skip(q + 1, end);
	return q < end && *q == ':' && event_key(&key);
}

static int resync(struct lg_events *r, struct lg_error *err)
{
	for (;;) {
		const char *from = r->p, *p = from;
		int rc, found = 0;

		while (p < r->end && (p = memchr(p, '{', (size_t)(r->end - p)))) {
			/* Members that are objects ("args": {"name": ...) follow a colon. */
			found = last_byte(from, p, r->before) == ':' ? 0 : event_start(p, r->end);
			if (found)
				break;
			p++;
		}
		if (!p)
			p = r->end;
		r->skipped += (uint64_t)(p - from);
		r->before = last_byte(from, p, r->before);
		r->p = p;
		if (found > 0) {
			r->state = EVENTS;
			r->seen_array = true;
			return 0;
		}
		rc = more(r, err);
		if (rc < 0)
			return rc;
		if (!rc) {
			r->skipped += (uint64_t)(r->end - r->p);
			r->state = DONE;
			return 0;
		}
	}
}

/* A value, strings and numbers without a call: nearly all of them are. */
static inline const char *value(const char *p, const char *end, struct lg_slice *s)
{
	const char *q;

	if (*p == '"') {
		s->kind = '"';
		s->esc = 0;
		s->p = p + 1;
		q = lg_json_string_end(p + 1, end, &s->esc);
		if (!q)
			return NULL;
		s->n = (uint32_t)(q - s->p);
		return q + 1;
	}
	if (*p == '[') {
		q = lg_json_value(p, end, s);
		/* Braces in arrays are for the slow way. */
		return q && !memchr(p, '{', (size_t)(q - p)) && !memchr(p, '}', (size_t)(q - p)) ? q
											      : NULL;
	}
	s->kind = (uint8_t)*p;
	s->esc = 0;
	s->p = p;
	q = lg_json_atom(p, end);
	s->n = q ? (uint32_t)(q - p) : 0;
	return q;
}

/* Members of an event that are looked at. */
enum {
	M_BEGIN, M_OTHER, M_PH, M_TS, M_ID, M_BP, M_SF, M_PID, M_TID, M_DUR, M_CAT, M_NAME, M_ARGS,
	M_SCOPE, M_END
};
_Static_assert((int)M_END == (int)LG_EVENT_MEMBERS, "one shape for each member");

static uint8_t member_of(const char *k, size_t n)
{
	switch (n) {
	case 2:
		return k[0] == 't' && k[1] == 's'   ? M_TS
		       : k[0] == 'i' && k[1] == 'd' ? M_ID
		       : k[0] == 'b' && k[1] == 'p' ? M_BP
		       : k[0] == 's' && k[1] == 'f' ? M_SF
		       : k[0] == 'p' && k[1] == 'h' ? M_PH
						    : M_OTHER;
	case 3:
		return !memcmp(k, "pid", 3)   ? M_PID
		       : !memcmp(k, "tid", 3) ? M_TID
		       : !memcmp(k, "dur", 3) ? M_DUR
		       : !memcmp(k, "cat", 3) ? M_CAT
		       : !memcmp(k, "id2", 3) ? M_ID
					      : M_OTHER;
	case 4:
		return !memcmp(k, "name", 4) ? M_NAME : !memcmp(k, "args", 4) ? M_ARGS : M_OTHER;
	case 5:
		return !memcmp(k, "scope", 5) ? M_SCOPE : M_OTHER;
	default:
		return M_OTHER;
	}
}

/* Where it goes; other: what is looked at no further. */
static inline struct lg_slice *slice_of(struct lg_event *e, uint8_t member, struct lg_slice *other)
{
	static const uint8_t at[] = {
		[M_TS] = offsetof(struct lg_event, ts),	    [M_ID] = offsetof(struct lg_event, id),
		[M_BP] = offsetof(struct lg_event, bp),	    [M_SF] = offsetof(struct lg_event, sf),
		[M_PID] = offsetof(struct lg_event, pid),   [M_TID] = offsetof(struct lg_event, tid),
		[M_DUR] = offsetof(struct lg_event, dur),   [M_CAT] = offsetof(struct lg_event, cat),
		[M_NAME] = offsetof(struct lg_event, name), [M_ARGS] = offsetof(struct lg_event, args),
		[M_SCOPE] = offsetof(struct lg_event, scope),
	};

	return member <= M_PH ? other : (struct lg_slice *)(void *)((char *)e + at[member]);
}

/* The key at p, a quote, and its colon: where its value begins; NULL: see members(). */
static const char *key_at(const char *p, const char *end, uint8_t *ret_member)
{
	const char *key = p + 1, *q;
	uint8_t esc = 0;

	q = lg_json_string_end(key, end, &esc);
	if (!q)
		return NULL;
	*ret_member = member_of(key, (size_t)(q - key));
	p = lg_json_skip(q + 1, end);
	if (p >= end || *p != ':')
		return NULL;
	p = lg_json_skip(p + 1, end);
	return p < end ? p : NULL;
}

/*
 * The members of the event at p; *ret is behind its closing brace. false: it is not complete before
 * end, or something is odd about it. What this accepts, the slow way in event() accepts with the same
 * members: where a window ends does not change what is read.
 */
static bool members(struct lg_events *r, struct lg_event *e, const char **ret)
{
	const char *p = r->p + 1, *end = r->end, *q;
	struct lg_slice other, *s;
	uint8_t m = M_BEGIN;

	memset(e, 0, sizeof *e);
	for (;;) {
		struct lg_shape *shape = &r->shape[m];
		const struct lg_shape_text *seen = lg_shape_find(shape, p);

		if (seen) {
			m = seen->what;
			p += seen->n;
			if (m == M_END) {
				*ret = p;
				return true;
			}
			s = slice_of(e, m, &other);
			if (seen->quote) {
				s->kind = '"';
				s->esc = 0;
				s->p = p;
				q = lg_json_string_end(p, end, &s->esc);
				if (!q)
					return false;
				s->n = (uint32_t)(q - p);
				p = q + 1;
				if (m == M_PH && s->n)
					e->ph = *s->p;
				continue;
			}
		} else {
			const char *from = p;

			/* Behind end are zeros. */
			p = lg_json_skip(p, end);
			if (*p == ',')
				p = lg_json_skip(p + 1, end);
			if (*p == '}' && p < end) {
				lg_shape_keep(shape, from, p + 1, M_END);
				*ret = p + 1;
				return true;
			}
			if (*p != '"')
				return false;
			p = key_at(p, end, &m);
			if (!p)
				return false;
			lg_shape_keep(shape, from, p + (*p == '"'), m);
			s = slice_of(e, m, &other);
		}
		if (*p == '{') {
			/* Not lg_json_value(): what is odd is looked at by the caller. */
			*s = (struct lg_slice){ .p = p, .kind = '{' };
			if (lg_json_object(p, end, &q) != LG_JSON_OK)
				return false;
			s->n = (uint32_t)(q - p);
			p = q;
			continue;
		}
		p = value(p, end, s);
		if (!p)
			return false;
		if (m == M_PH && s->kind == '"' && s->n)
			e->ph = *s->p;
	}
}

/* As members(), for an event that is known to be complete and checked by the letter. */
static bool checked_members(const char *p, const char *end, struct lg_event *e)
{
	struct lg_slice key, v;

	memset(e, 0, sizeof *e);
	for (p++; lg_json_member(&p, end, &key, &v);) {
		struct lg_slice other;
		uint8_t m = member_of(key.p, key.n);

		*slice_of(e, m, &other) = v;
		if (m == M_PH && v.kind == '"' && v.n)
			e->ph = *v.p;
	}
	p = lg_json_skip(p, end);
	if (p < end && *p == ',')
		p = lg_json_skip(p + 1, end);
	return p + 1 == end;
}

/* r->p is at '{'. 1 = e is an event, 0 = look again, or an error. */
static int event(struct lg_events *r, struct lg_event *e, struct lg_error *err)
{
	const char *end, *at;
	enum lg_json_found f;
	int rc;

	if (members(r, e, &end)) {
		r->p = end;
		r->n_events++;
		return 1;
	}
	for (;;) {
		f = lg_json_object(r->p, r->end, &end);
		if (f == LG_JSON_ODD)
			f = lg_json_check(r->p, r->end, &end);
		if (f != LG_JSON_END)
			break;
		rc = more(r, err);
		if (rc == 1)
			continue;
		if (rc < 0 && rc != LG_E_LIMIT)
			return rc;
		f = lg_json_check(r->p, r->end, &end);
		if (f == LG_JSON_ODD)
			break;
		if (rc == LG_E_LIMIT) {
			damaged(r, r->end);
			return 0;
		}
		r->truncated = lg_json_source_offset(r->src, r->p);
		r->state = DONE;
		return 0;
	}
	if (f == LG_JSON_ODD) {
		damaged(r, end > r->p ? end : r->p + 1);
		return 0;
	}
	if (!checked_members(r->p, end, e)) {
		f = lg_json_check(r->p, end, &at);
		damaged(r, f == LG_JSON_ODD && at > r->p ? at : end);
		return 0;
	}
	r->p = end;
	r->n_events++;
	return 1;
}

/* A top-level value that is larger than what is kept: on to its end, across blocks. */
static int skip_value(struct lg_events *r, struct lg_error *err)
{
	for (;;) {
		const char *p = r->p;
		int rc;

		for (; p < r->end; p++) {
			if (r->in_escape)
				r->in_escape = false;
			else if (*p == '\\')
				r->in_escape = r->in_string;
			else if (*p == '"')
				r->in_string = !r->in_string;
			else if (r->in_string)
				continue;
			else if (*p == '{' || *p == '[')
				r->depth++;
			else if ((*p == '}' || *p == ']') && r->depth && !--r->depth) {
				r->p = p + 1;
				r->state = TOP;
				return 0;
			}
		}
		r->p = r->end;
		rc = more(r, err);
		if (rc <= 0) {
			r->state = DONE;
			r->truncated = lg_json_source_offset(r->src, r->end);
			return rc;
		}
	}
}

/* One member of the top-level object. 1 = e is a field, 0 = look again, or an error. */
static int field(struct lg_events *r, struct lg_event *e, struct lg_error *err)
{
	for (;;) {
		struct lg_slice key = { .kind = '"' }, v = { 0 };
		const char *p = r->p, *q;
		int rc;

		if (*p == '}') {
			r->p++;
			r->state = TAIL;
			return 0;
		}
		if (*p != '"') {
			damaged(r, p);
			return 0;
		}
		key.p = p + 1;
		q = lg_json_string_end(p + 1, r->end, &key.esc);
		if (!q)
			goto need;
		key.n = (uint32_t)(q - key.p);
		p = lg_json_skip(q + 1, r->end);
		if (p >= r->end)
			goto need;
		if (*p != ':') {
			damaged(r, p);
			return 0;
		}
		p = lg_json_skip(p + 1, r->end);
		if (p >= r->end)
			goto need;
		if (*p == '[' && LG_SLICE_IS(&key, "traceEvents")) {
			r->p = p + 1;
			r->state = EVENTS;
			r->seen_array = true;
			return 0;
		}
		q = lg_json_value(p, r->end, &v);
		/* A number at the window's end may go on behind it. */
		if (q && (q < r->end || r->eof || v.kind == '"' || v.kind == '{' || v.kind == '[')) {
			memset(e, 0, sizeof *e);
			e->name = key;
			e->args = v;
			r->p = q;
			return 1;
		}
		if (!q && *p != '"' && *p != '{' && *p != '[') {
			damaged(r, p);
			return 0;
		}
need:
		rc = more(r, err);
		if (rc == 1)
			continue;
		if (rc == LG_E_LIMIT) {
			r->depth = 0;
			r->in_string = r->in_escape = false;
			r->state = SKIP;
			/* From the value's bracket on. */
			r->p = lg_json_skip(r->p, r->end);
			return 0;
		}
		if (rc < 0)
			return rc;
		/* The end, inside a value: cut off here, unless a lost quote or brace before made
		 * it seem so. */
		{
			const char *at;
			uint8_t esc = 0;

			q = lg_json_string_end(r->p + 1, r->end, &esc);
			p = q ? lg_json_skip(q + 1, r->end) : r->end;
			p = p < r->end && *p == ':' ? lg_json_skip(p + 1, r->end) : r->end;
			if (p < r->end && lg_json_check(p, r->end, &at) == LG_JSON_ODD) {
				damaged(r, at);
				return 0;
			}
		}
		r->truncated = lg_json_source_offset(r->src, r->p);
		r->state = DONE;
		return 0;
	}
}

static int start(struct lg_events *r, struct lg_error *err)
{
	int rc = next_byte(r, err);

	if (rc < 0)
		return rc;
	while (rc == 1 && *r->p == '\xef' && r->end - r->p < 3) /* a byte order mark, in pieces */
		rc = more(r, err);
	if (rc < 0)
		return rc;
	rc = r->p < r->end;
	if (rc && r->end - r->p >= 3 && !memcmp(r->p, "\xef\xbb\xbf", 3)) {
		r->p += 3;
		rc = next_byte(r, err);
		if (rc < 0)
			return rc;
	}
	if (!rc)
		return lg_fail(err, LG_E_FORMAT, 0, "%s is empty", r->path);
	r->bare = r->seen_array = *r->p == '[';
	if (*r->p != '[' && *r->p != '{')
		return lg_fail(err, LG_E_FORMAT, 0, "%s is not JSON", r->path);
	r->p++;
	r->state = r->bare ? EVENTS : TOP;
	return 0;
}

int lg_events_take(struct lg_events *r, const struct lg_event **ret, struct lg_error *err)
{
	struct lg_event *e = &r->now;
	int rc;

	/* Not before somebody asks: until then the source may be looked at. Without it (a text in memory,
	 * no thread) the same is done in turn. */
	if (!r->begun) {
		r->begun = true;
		lg_ahead_start(r);
	}
	rc = r->ahead ? lg_ahead_next(r->ahead, &e, err) : lg_events_scan(r, e, err);
	/* Where this side is behind, the scanner has done it. */
	if (rc == LG_ITEM_EVENT && !e->timed)
		lg_event_times(e);
	*ret = e;
	return rc;
}

int lg_events_next(struct lg_events *r, struct lg_event *e, struct lg_error *err)
{
	const struct lg_event *now;
	int rc = lg_events_take(r, &now, err);

	if (rc > 0)
		*e = *now;
	return rc;
}

static bool is_arrow(char ph)
{
	return ph == 's' || ph == 't' || ph == 'f';
}

int lg_events_scan(struct lg_events *r, struct lg_event *e, struct lg_error *err)
{
	for (;;) {
		int rc = 0;

		switch (r->state) {
		case START:
			rc = start(r, err);
			break;
		case SKIP:
			rc = skip_value(r, err);
			break;
		case RESYNC:
			rc = resync(r, err);
			break;
		case TAIL:
			/* Nothing may follow. If something does, that was not the end. */
			rc = next_byte(r, err);
			if (rc > 0 && *r->p)
				damaged(r, r->p);
			else
				r->state = DONE;
			break;
		case DONE:
			return LG_ITEM_END;
		default:
			rc = next_byte(r, err);
			if (rc < 0)
				return rc;
			if (!rc) {
				/* The closing bracket of a bare array may be left out. */
				if (!r->bare)
					r->truncated = lg_json_source_offset(r->src, r->end);
				r->state = DONE;
				break;
			}
			if (r->state == TOP) {
				rc = field(r, e, err);
				if (rc == 1)
					return LG_ITEM_FIELD;
			} else if (*r->p == '{') {
				rc = event(r, e, err);
				if (rc == 1 && !(r->no_arrows && is_arrow(e->ph)))
					return LG_ITEM_EVENT;
			} else if (*r->p == ']') {
				r->p++;
				r->state = r->bare ? TAIL : TOP;
				rc = 0;
			} else {
				damaged(r, r->p);
				rc = 0;
			}
		}
		if (rc < 0)
			return rc;
	}
}

void lg_events_diag(const struct lg_events *r, struct lg_builder *b, int64_t ts)
{
	const char *fault = lg_json_source_fault(r->src);

	if (r->n_damaged)
		lg_add_diag_now(b, LG_DIAG_FILE_DAMAGED, ts, r->n_damaged,
				"%s: the JSON is damaged at byte %llu%s; %llu bytes were skipped",
				r->path, (unsigned long long)r->first_damaged,
				r->n_damaged > 1 ? " and elsewhere" : "",
				(unsigned long long)r->skipped);
	if (*fault)
		lg_add_diag_now(b, LG_DIAG_FILE_DAMAGED, ts, 1, "%s: %s, at byte %llu of the text",
				r->path, fault,
				(unsigned long long)lg_json_source_offset(r->src, r->end));
	if (r->truncated != LG_NO_OFFSET)
		lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, ts, 1, "%s: the JSON ends at byte %llu",
				r->path, (unsigned long long)r->truncated);
}

int lg_events_none(const struct lg_events *r, struct lg_error *err)
{
	const char *fault = lg_json_source_fault(r->src);

	if (*fault)
		return lg_fail(err, LG_E_FORMAT, lg_json_source_offset(r->src, r->end),
			       "%s: %s, before the first event; copy or make it again", r->path, fault);
	if (r->truncated != LG_NO_OFFSET)
		return lg_fail(err, LG_E_FORMAT, r->truncated,
			       r->seen_array ? "%s: a trace without events: the JSON ends before the first; copy or make "
					       "it again"
					     : "%s: the JSON ends before its traceEvents; copy or make it again",
			       r->path);
	return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET,
		       r->seen_array ? "%s: a trace without events"
				     : "%s: JSON, but no trace: it has no traceEvents", r->path);
}
