/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - a trace as drawable events: the one walk that every timeline format shares, so
 * that Chrome JSON and Perfetto hold the same events by construction.
 *
 * Order of the calls: a track before its events, a parent track before its children; the slices
 * of one track in one go, by ts, the enclosing one before the enclosed, properly nested, then
 * track_end(). Instants, counters and flows come in any order of tracks.
 * Memory beside the trace: the row index, one thread's spans at a time, and two batches of the flame chart
 * (timeline_bulk.c).
 */
#ifndef LG_REPORT_TIMELINE_H
#define LG_REPORT_TIMELINE_H
#include <stdbool.h>

#include "analyse/verdict.h"
#include "base/out.h"

enum lg_tl_kind { LG_TL_PROCESS, LG_TL_THREAD, LG_TL_LANE, LG_TL_COUNTER };
/* Lanes of a thread; the thread's own track holds steps, stages and operators. */
enum lg_tl_lane {
	LG_LANE_MAIN, LG_LANE_VERDICT, LG_LANE_COLLECTIVE, LG_LANE_STATE, LG_LANE_LOCK_WAIT,
	LG_LANE_LOCK_HOLD, LG_LANE_SAMPLE, LG_LANE_MAX
};

struct lg_tl_track {
	uint64_t id;     /* stable, unique, not 0 */
	uint64_t parent; /* id of the enclosing track; 0 = none */
	enum lg_tl_kind kind;
	enum lg_tl_lane lane;
	uint32_t overlap; /* 0 = the lane itself; n = n-th track of slices that do not nest in it */
	/*
	 * Ids to show. The first life of a pid or tid keeps its number; a later life, and the same
	 * number on another host, get one above every possible pid (PID_MAX_LIMIT is 2^22), since
	 * viewers merge equal numbers. Lanes carry their thread's.
	 */
	int64_t pid, tid;
	const char *name, *unit;
	int32_t order; /* among the children of its parent */
	int32_t thread_order; /* thread tracks and lanes: the thread's order in its process */
	lg_prc prc;    /* process tracks */
	lg_thr thr;    /* thread tracks and lanes */
};

/*
 * Texts repeat: millions of events carry the names of a few thousand functions. An id that is
 * not 0 stands for the text throughout one walk (equal ids, equal texts), so a sink need not look
 * at the text again. Keys (but those of the trace), categories and colours are static: the address will do.
 */
struct lg_tl_arg {
	const char *key;
	bool read; /* key is of the trace: any text, of this event alone */
	enum { LG_ARG_INT, LG_ARG_NUM, LG_ARG_STR } type;
	int64_t i;
	double f;
	const char *s;
	uint64_t id; /* of s */
};

struct lg_tl_event {
	const struct lg_tl_track *track;
	int64_t ts, end; /* end - ts may need 64 bits unsigned; instants: end == ts */
	const char *name, *cat;
	uint64_t name_id;
	const char *colour; /* Chrome's reserved colour name, or NULL */
	const struct lg_tl_arg *args;
	size_t n_args;
	/* Not 0: all but track and times follows from this row of the frame table. */
	lg_frm frame;
};

struct lg_tl_flow {
	uint64_t id;
	const char *name;
	const struct lg_tl_track *from, *to;
	int64_t ts, ts_to;
	bool bound; /* a slice is open at either end, and it does not go back in time */
};

/* In a flame chart: first the n_ended innermost slices end, at `end`, then n frames begin, at ts, which is no
 * sooner. Both outermost first. */
struct lg_tl_turn {
	int64_t end, ts;
	const lg_frm *ended, *frame;
	size_t n_ended, n;
};

struct lg_tl_sink {
	void (*track)(void *self, const struct lg_tl_track *t);
	void (*slice)(void *self, const struct lg_tl_event *e);
	void (*track_end)(void *self, const struct lg_tl_track *t);
	/* A row of the state table, which slice() gets as well; those of a thread in order. May be NULL. */
	void (*state)(void *self, const struct lg_tl_track *t, uint32_t row, int64_t ts);
	void (*instant)(void *self, const struct lg_tl_event *e);
	void (*counter)(void *self, const struct lg_tl_track *t, int64_t ts, double value);
	void (*flow)(void *self, const struct lg_tl_flow *f);
	/*
	 * The flame chart in bulk: its parts are written in any order, in several threads, and take their
	 * places in out(). No slice of it has length 0.
	 *
	 * know() is called in order, before any part with e->frame: as slice(), of an event without times.
	 * Any of these may be NULL: flush(): parts that need what was made known come next; start() is in
	 * front of a part's first turn(); know_sample() and samples() are for a sink that wants the raw CPU
	 * samples (rows of the sample table) besides.
	 */
	struct lg_out *(*out)(void *self);
	void (*know)(void *self, const struct lg_tl_event *e);
	void (*flush)(void *self);
	void (*start)(const void *self, struct lg_pen *pen, const struct lg_tl_track *t);
	void (*turn)(const void *self, struct lg_pen *pen, const struct lg_tl_track *t,
		     const struct lg_tl_turn *turn);
	void (*know_sample)(void *self, const struct lg_tl_track *thread, size_t row);
	void (*samples)(const void *self, struct lg_pen *pen, lg_thr thr, const uint32_t *rows,
			size_t n);
};

struct lg_window {
	int64_t from, to; /* ns on the trace's clock, half-open; whole trace: INT64_MIN, INT64_MAX */
};

/* verdict may be NULL. */
int lg_timeline(const struct lg_trace *t, const struct lg_verdict *v, const struct lg_window *w,
		const struct lg_tl_sink *sink, void *self, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_REPORT_TIMELINE_H */
