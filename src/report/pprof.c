/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pprof.c - profile.proto of github.com/google/pprof, to be compressed by the writer.
 *
 * Values of a sample: how many samples it stands for, then one for each event of the trace
 * (cpu/nanoseconds for clocks, <event>/count for others; none for what counts samples itself).
 * Labels say whose it is.
 *
 * A frame becomes a location. User addresses are offsets in their file, so a mapping is the file
 * laid out at address 0; that is what lets pprof symbolise the locations that have no function
 * here. Messages of different fields may come in any order, so all is written as it is made and
 * only the string table is kept to the end.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "report/convert.h"
#include "report/profile.h"
#include "report/protobuf.h"

enum { /* Profile */
	P_SAMPLE_TYPE = 1, P_SAMPLE, P_MAPPING, P_LOCATION, P_FUNCTION, P_STRING, P_TIME = 9,
	P_DURATION, P_PERIOD_TYPE, P_PERIOD, P_COMMENT, P_DEFAULT_TYPE
};
enum { VT_TYPE = 1, VT_UNIT };
enum { S_LOCATION = 1, S_VALUE, S_LABEL };
enum { LB_KEY = 1, LB_STR, LB_NUM };
enum { M_ID = 1, M_START, M_LIMIT, M_OFFSET, M_FILE, M_BUILD_ID, M_FUNCTIONS, M_FILENAMES, M_LINES };
enum { L_ID = 1, L_MAPPING, L_ADDRESS, L_LINE };
enum { LN_FUNCTION = 1, LN_LINE };
enum { F_ID = 1, F_NAME, F_SYSTEM_NAME, F_FILE };
enum { DEPTH_MAX = 1024, FLUSH_BYTES = 1 << 16 };

struct mapping {
	lg_str dso, build_id;
	uint64_t first, last;
	bool kernel, named, has_files;
};

struct writer {
	const struct lg_trace *t;
	struct lg_out *o;
	struct lg_profile p;
	struct lg_pb pb;
	struct lg_map string_at;    /* hash of text -> index + 1 */
	const char **string;
	size_t n_string, string_cap;
	struct mapping *mapping;
	size_t n_mapping, mapping_cap;
	struct lg_map mapping_at;   /* dso, build id -> index + 1 */
	uint32_t *location_of;      /* frame -> mapping index + 1; 0 = frame not used */
	struct lg_map function_at;  /* name, file -> function id */
	uint32_t n_function;
	int failed;
};

static void flush(struct writer *w, size_t least)
{
	if (w->pb.failed)
		w->failed = LG_E_NOMEM;
	if (w->pb.n < least)
		return;
	lg_out_write(w->o, w->pb.p, w->pb.n);
	lg_pb_reset(&w->pb);
}

/* Index in the string table; text must outlive the writer. */
static uint64_t string(struct writer *w, const char *text)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	uint32_t at;

	for (const char *c = text; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 1099511628211u;
	for (;; hash++) {
		at = lg_map_get(&w->string_at, hash);
		if (!at)
			break;
		if (!strcmp(w->string[at - 1], text))
			return at - 1;
	}
	if (lg_grow(&w->string, &w->string_cap, w->n_string + 1, sizeof *w->string) ||
	    lg_map_set(&w->string_at, hash, (uint32_t)w->n_string + 1)) {
		w->failed = LG_E_NOMEM;
		return 0;
	}
	w->string[w->n_string] = text;
	return w->n_string++;
}

static void value_type(struct writer *w, uint32_t field, const char *type, const char *unit)
{
	size_t at = lg_pb_open(&w->pb, field);

	lg_pb_varint(&w->pb, VT_TYPE, string(w, type));
	lg_pb_varint(&w->pb, VT_UNIT, string(w, unit));
	lg_pb_close(&w->pb, at);
}

static void types(struct writer *w)
{
	value_type(w, P_SAMPLE_TYPE, "samples", "count");
	for (size_t i = 0; i < w->p.n_event; i++) {
		const char *name = lg_string(w->t, w->p.event[i].name);
		/* pprof names columns by type: a second clock keeps its own name. */
		bool first_clock = w->p.event[i].is_time;

		if (w->p.event[i].is_count)
			continue;
		for (size_t k = 0; k < i; k++)
			first_clock &= !w->p.event[k].is_time;
		value_type(w, P_SAMPLE_TYPE, first_clock ? "cpu" : *name ? name : "events",
			   w->p.event[i].is_time ? "nanoseconds" : "count");
		if (first_clock)
			lg_pb_varint(&w->pb, P_DEFAULT_TYPE, string(w, "cpu"));
	}
}

/* The location of a frame is its number; mappings get known on the way. */
static void use_frame(struct writer *w, lg_frm f)
{
	const struct lg_frame_tab *fr = &w->t->frame;
	uint64_t key = (uint64_t)fr->dso[f] << 32 | fr->build_id[f];
	struct mapping *m;
	uint32_t at;

	if (w->location_of[f])
		return;
	at = lg_map_get(&w->mapping_at, key);
	if (!at) {
		if (lg_grow(&w->mapping, &w->mapping_cap, w->n_mapping + 1, sizeof *w->mapping) ||
		    lg_map_set(&w->mapping_at, key, (uint32_t)w->n_mapping + 1)) {
			w->failed = LG_E_NOMEM;
			return;
		}
		w->mapping[w->n_mapping++] = (struct mapping){
			.dso = fr->dso[f], .build_id = fr->build_id[f], .first = UINT64_MAX,
			.kernel = fr->kind[f] == LG_FRAME_KERNEL, .named = true
		};
		at = (uint32_t)w->n_mapping;
	}
	m = &w->mapping[at - 1];
	m->first = fr->pc[f] < m->first ? fr->pc[f] : m->first;
	m->last = fr->pc[f] > m->last ? fr->pc[f] : m->last;
	m->named &= fr->name[f] != 0;
	m->has_files |= fr->file[f] != 0;
	w->location_of[f] = at;
}

static void label(struct writer *w, const char *key, const char *text, int64_t num)
{
	size_t at = lg_pb_open(&w->pb, S_LABEL);

	lg_pb_varint(&w->pb, LB_KEY, string(w, key));
	if (text)
		lg_pb_varint(&w->pb, LB_STR, string(w, text));
	else
		lg_pb_varint(&w->pb, LB_NUM, (uint64_t)num);
	lg_pb_close(&w->pb, at);
}

static void sample(struct writer *w, const struct lg_profile_row *r, uint8_t *scratch)
{
	const struct lg_trace *t = w->t;
	lg_prc prc = t->thread.prc[r->thr];
	size_t at = lg_pb_open(&w->pb, P_SAMPLE), n = 0, depth = 0;

	for (lg_stk k = r->stack; k && depth < DEPTH_MAX; k = t->stack.parent[k], depth++) {
		use_frame(w, t->stack.frame[k]); /* innermost first, as pprof wants it */
		n += lg_pb_put_varint(scratch + n, t->stack.frame[k]);
	}
	lg_pb_bytes(&w->pb, S_LOCATION, scratch, n);
	n = lg_pb_put_varint(scratch, r->count);
	for (size_t e = 0; e < w->p.n_event && n < 10 * DEPTH_MAX - 10; e++)
		if (!w->p.event[e].is_count)
			n += lg_pb_put_varint(scratch + n, e == r->event ? r->weight : 0);
	lg_pb_bytes(&w->pb, S_VALUE, scratch, n);
	label(w, "process", lg_string(t, t->process.comm[prc]), 0);
	label(w, "thread", lg_string(t, t->thread.comm[r->thr]), 0);
	label(w, "pid", NULL, t->process.pid[prc]);
	label(w, "tid", NULL, t->thread.tid[r->thr]);
	lg_pb_close(&w->pb, at);
	flush(w, FLUSH_BYTES);
}

static uint32_t function(struct writer *w, lg_frm f)
{
	const struct lg_frame_tab *fr = &w->t->frame;
	uint64_t key = (uint64_t)fr->name[f] << 32 | fr->file[f], name;
	uint32_t id = lg_map_get(&w->function_at, key);
	size_t at;

	if (id)
		return id;
	id = ++w->n_function;
	if (lg_map_set(&w->function_at, key, id))
		w->failed = LG_E_NOMEM;
	name = string(w, lg_string(w->t, fr->name[f]));
	at = lg_pb_open(&w->pb, P_FUNCTION);
	lg_pb_varint(&w->pb, F_ID, id);
	lg_pb_varint(&w->pb, F_NAME, name);
	lg_pb_varint(&w->pb, F_SYSTEM_NAME, name);
	if (fr->file[f])
		lg_pb_varint(&w->pb, F_FILE, string(w, lg_string(w->t, fr->file[f])));
	lg_pb_close(&w->pb, at);
	return id;
}

static void locations(struct writer *w)
{
	const struct lg_frame_tab *fr = &w->t->frame;

	for (size_t f = 1; f < fr->n; f++) {
		uint32_t id;
		size_t at, line;

		if (!w->location_of[f])
			continue;
		id = fr->name[f] ? function(w, (lg_frm)f) : 0;
		at = lg_pb_open(&w->pb, P_LOCATION);
		lg_pb_varint(&w->pb, L_ID, f);
		lg_pb_varint(&w->pb, L_MAPPING, w->location_of[f]);
		lg_pb_varint(&w->pb, L_ADDRESS, fr->pc[f]);
		if (id) {
			line = lg_pb_open(&w->pb, L_LINE);
			lg_pb_varint(&w->pb, LN_FUNCTION, id);
			if (fr->line[f])
				lg_pb_varint(&w->pb, LN_LINE, fr->line[f]);
			lg_pb_close(&w->pb, line);
		}
		lg_pb_close(&w->pb, at);
		flush(w, FLUSH_BYTES);
	}
}

static void mappings(struct writer *w)
{
	for (size_t i = 0; i < w->n_mapping; i++) {
		const struct mapping *m = &w->mapping[i];
		const char *dso = lg_string(w->t, m->dso);
		uint64_t limit = m->last > UINT64_MAX - 4096 ? UINT64_MAX : (m->last | 4095) + 1;
		size_t at = lg_pb_open(&w->pb, P_MAPPING);

		lg_pb_varint(&w->pb, M_ID, i + 1);
		lg_pb_varint(&w->pb, M_START, m->kernel ? m->first & ~(uint64_t)4095 : 0);
		lg_pb_varint(&w->pb, M_LIMIT, limit);
		lg_pb_varint(&w->pb, M_FILE, string(w, *dso ? dso : "[unknown]"));
		if (m->build_id)
			lg_pb_varint(&w->pb, M_BUILD_ID, string(w, lg_string(w->t, m->build_id)));
		/* Where a name is missing pprof may look for itself. */
		lg_pb_varint(&w->pb, M_FUNCTIONS, m->named);
		lg_pb_varint(&w->pb, M_FILENAMES, m->has_files);
		lg_pb_varint(&w->pb, M_LINES, m->has_files);
		lg_pb_close(&w->pb, at);
	}
}

/* Wall time of the first sample, from the last pair of readings of the two clocks. */
static int64_t wall_time(const struct lg_trace *t, int64_t ts)
{
	int64_t wall = 0;

	for (size_t i = 0; i < t->clock.n; i++)
		if (!t->clock.clock[i] /* CLOCK_REALTIME */ &&
		    (__builtin_sub_overflow(ts, t->clock.ts[i], &wall) ||
		     __builtin_add_overflow(wall, t->clock.value[i], &wall)))
			wall = 0;
	return wall;
}

static void profile(struct writer *w, uint8_t *scratch)
{
	int64_t wall = 0, span = 0;

	(void)string(w, ""); /* number 0 must be it */
	types(w);
	for (size_t i = 0; i < w->p.n && !w->failed; i++)
		sample(w, &w->p.row[i], scratch);
	locations(w);
	mappings(w);
	if (w->p.first <= w->p.last) {
		wall = wall_time(w->t, w->p.first);
		if (__builtin_sub_overflow(w->p.last, w->p.first, &span))
			span = 0;
	}
	if (wall > 0)
		lg_pb_varint(&w->pb, P_TIME, (uint64_t)wall);
	lg_pb_varint(&w->pb, P_DURATION, (uint64_t)span);
	lg_pb_varint(&w->pb, P_COMMENT, string(w, "laggard " LG_VERSION));
	for (size_t i = 0; i < w->n_string; i++) {
		lg_pb_string(&w->pb, P_STRING, w->string[i]);
		flush(w, FLUSH_BYTES);
	}
	flush(w, 0);
}

int lg_pprof_write(const struct lg_trace *t, const struct lg_window *win, struct lg_out *o,
		   struct lg_error *err)
{
	struct writer w = { .t = t, .o = o };
	uint8_t *scratch;
	int rc = lg_profile_make(&w.p, t, win, err);

	if (rc)
		return rc;
	scratch = lg_calloc(DEPTH_MAX, 10); /* a varint has at most 10 bytes */
	w.location_of = lg_calloc(t->frame.n, sizeof *w.location_of);
	if (scratch && w.location_of)
		profile(&w, scratch);
	else
		w.failed = LG_E_NOMEM;
	lg_free(scratch);
	lg_free(w.location_of);
	lg_free(w.string);
	lg_free(w.mapping);
	lg_map_done(&w.string_at);
	lg_map_done(&w.mapping_at);
	lg_map_done(&w.function_at);
	lg_pb_done(&w.pb);
	lg_profile_done(&w.p);
	return w.failed ? lg_fail(err, w.failed, LG_NO_OFFSET, "out of memory") : 0;
}
