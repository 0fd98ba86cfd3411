/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_internal.h - the state of one walk, shared by the timeline*.c files only. */
#ifndef LG_REPORT_TIMELINE_INTERNAL_H
#define LG_REPORT_TIMELINE_INTERNAL_H
#include "base/arena.h"
#include "base/map.h"
#include "report/timeline.h"
#include "store/index.h"

enum { TL_ARGS = 40, TL_TEXT = 2048, TL_FRAME = 512, TL_KEY = 128, TL_NUMBER = 24 };

/*
 * How deep slices of a track nest. Perfetto's reader drops what is deeper than 512 (SliceTracker::kMaxDepth),
 * and to it an instant is a slice like others; what is left is room for those.
 */
enum { TL_DEPTH = 500 };

/* One slice before it has a track: spans of a thread, sorted and dealt to tracks. */
struct tl_item {
	int64_t ts, end;
	uint32_t row, overlap;
	uint8_t rank; /* of two with the same interval the lower one encloses */
};

/* A time throughout which slices are open on a track: those that touch are one. */
struct tl_open {
	int64_t ts, end;
};
struct tl_opens {
	uint64_t track;
	size_t first, n;
};

/* A piece of one thread's flame chart, and of its samples. */
struct tl_part {
	struct lg_timeline *c;
	struct lg_tl_track track;  /* without texts */
	uint32_t from, to;         /* positions in the thread's list of samples */
};

/* Threads whose charts are written while the next ones are put together: the other batch. */
struct tl_batch {
	size_t n;                  /* slices of the parts, roughly */
	struct tl_part *part;
	size_t n_part, part_cap;
};

struct lg_timeline {
	const struct lg_trace *t;
	const struct lg_verdict *v;
	struct lg_window w;
	const struct lg_tl_sink *sink;
	void *self;
	const struct lg_index *x; /* the verdict's, or own_x */
	struct lg_index *own_x;
	int64_t *pid, *tid;            /* shown number by process and thread row; 0 = not announced */
	struct lg_map pid_taken, tid_taken;
	struct lg_map mm_owner;        /* mm -> process row */
	uint8_t *lane_known;           /* by thread: bit per lane announced */
	struct tl_item *items;
	size_t n_items, items_cap;
	struct tl_batch batch[2];
	size_t now;                    /* the batch that is being put together */
	size_t batch_size;             /* its n that makes it worth writing */
	uint8_t *frame_known, *stack_known; /* to the sink; a stack's frames all are */
	int64_t period;                /* of sampling, ns */
	uint64_t flow_id, file;        /* file: file_of(), part of every track's id */
	struct tl_open *open;          /* where arrows may end: track by track, by time */
	struct tl_opens *opens;        /* each track's */
	struct lg_map opens_of;        /* a track's id -> its row in opens, plus 1 */
	size_t n_open, open_cap, n_opens, opens_cap;
	struct lg_map launch;          /* of a moment and an id -> flow row, plus 1 */
	/* Texts made once, by row; what does not fit into the budget is made every time. */
	struct lg_arena texts;
	size_t texts_bytes;
	const char **frame_text, **source_text, **stack_text, **thread_text;
	bool own_known;                /* the process of what we say ourselves */
	bool many_hosts;               /* processes of more than one named host */
	int failed;

	/* Scratch of the event being built. */
	struct lg_tl_arg args[TL_ARGS];
	size_t n_args;
	char text[TL_ARGS][TL_TEXT];
};

/* Is [ts, end] in the window? Cuts it to the window. Empty intervals count where they stand. */
bool tl_clip(const struct lg_timeline *c, int64_t *ts, int64_t *end);
/* Announce (once) and fill *ret: the thread's track, or one of its lanes. */
void tl_thread_track(struct lg_timeline *c, lg_thr thr, enum lg_tl_lane lane, uint32_t overlap,
		     struct lg_tl_track *ret);
void tl_process_track(struct lg_timeline *c, lg_prc prc, struct lg_tl_track *ret);

void tl_args_reset(struct lg_timeline *c);
void tl_arg_int(struct lg_timeline *c, const char *key, int64_t v);
void tl_arg_num(struct lg_timeline *c, const char *key, double v);
void tl_arg_str(struct lg_timeline *c, const char *key, const char *s); /* borrowed */
void tl_arg_static(struct lg_timeline *c, const char *key, const char *s); /* a literal */
void tl_arg_pool(struct lg_timeline *c, const char *key, lg_str s); /* a string of the trace */
void tl_arg_source(struct lg_timeline *c, lg_frm f); /* file:line, none when unknown */
void tl_arg_pairs(struct lg_timeline *c, lg_str pairs); /* "key=value", tabs between; keys that are new */
void tl_arg_fmt(struct lg_timeline *c, const char *key, const char *fmt, ...) LG_PRINTF(3, 4);
void tl_arg_thread(struct lg_timeline *c, const char *key, lg_thr thr); /* none for thr 0 */
void tl_arg_stack(struct lg_timeline *c, const char *key, lg_stk stk);  /* none for stk 0 */
/* Function that a lock holder or waiter was in: the innermost frame that is not the lock's own
 * code. "" when there is no stack. */
const char *tl_function(const struct lg_trace *t, lg_stk stk, char *buf, size_t size);

/* Name of a frame; buf is used for what is not kept. */
const char *tl_frame(struct lg_timeline *c, lg_frm f, char *buf, size_t size);
/* Ids of texts (lg_tl_event.name_id, lg_tl_arg.id). */
enum { TL_ID_FRAME = 1, TL_ID_SOURCE, TL_ID_STACK, TL_ID_THREAD, TL_ID_POOL };
static inline uint64_t tl_id(unsigned kind, uint32_t row)
{
	return (uint64_t)kind << 32 | row;
}
static inline uint64_t tl_id_static(const char *s)
{
	return 1ull << 63 | (uint64_t)(uintptr_t)s;
}
void tl_slice(struct lg_timeline *c, const struct lg_tl_track *t, int64_t ts, int64_t end,
	      const char *name, uint64_t name_id, const char *cat, const char *colour);
void tl_instant(struct lg_timeline *c, const struct lg_tl_track *t, int64_t ts, const char *name,
		uint64_t name_id, const char *cat);
/* Name of a track of the trace: its parent's and its own, or its own and its number. */
const char *tl_track_name(const struct lg_timeline *c, lg_trk id, const char *none, char *buf, size_t size);

/* Deal c->items to tracks: overlap 0 nests; what does not goes to flat tracks 1, 2, ... Leaves
 * them sorted by (overlap, ts, end descending, rank, row). */
int tl_deal(struct lg_timeline *c);
int tl_item_add(struct lg_timeline *c, int64_t ts, int64_t end, uint32_t row, uint8_t rank);

/* timeline_spans.c */
void tl_spans(struct lg_timeline *c, lg_thr thr);
void tl_track_spans(struct lg_timeline *c);
/* timeline_arrows.c */
/* Arrows may be bound to this slice. */
void tl_note_open(struct lg_timeline *c, const struct lg_tl_track *t, int64_t ts, int64_t end);
/* All but launches, which are drawn with what was launched. */
void tl_flows(struct lg_timeline *c);
/* The arrow of row `flow` of the table, from its thread onto a track that has been announced. */
void tl_flow_onto(struct lg_timeline *c, const char *name, uint32_t flow, const struct lg_tl_track *to);
/* timeline_states.c */
void tl_states(struct lg_timeline *c, lg_thr thr);
/* timeline_samples.c: samples that stand for time are ticks */
static inline bool tl_is_tick(const struct lg_trace *t, uint32_t row)
{
	return !(t->sample.flags[row] & (LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE));
}
int64_t tl_sample_period(const struct lg_timeline *c);
void tl_samples(struct lg_timeline *c, lg_thr thr); /* timeline_turns.c */
/* Tracepoint samples are moments, not time: instants. *track: filled when it is first wanted. */
void tl_tracepoint(struct lg_timeline *c, lg_thr thr, struct lg_tl_track *track, uint32_t row);
void tl_know_stack(struct lg_timeline *c, lg_stk stk);

struct tl_tick {
	int64_t ts, end;
	uint32_t next; /* position of the thread's next tick, or `to` */
};

/* The tick at position p of a thread's list, which ends at `to`: it stands for the time up to the next one,
 * across a gap of up to 1.5 periods, else for one period. */
static inline struct tl_tick tl_tick_at(const struct lg_timeline *c, uint32_t p, uint32_t to)
{
	const struct lg_sample_tab *s = &c->t->sample;
	struct tl_tick k = { .ts = s->ts[c->x->sample[p]], .next = p + 1 };

	while (k.next < to && !tl_is_tick(c->t, c->x->sample[k.next]))
		k.next++;
	if (__builtin_add_overflow(k.ts, c->period, &k.end))
		k.end = INT64_MAX;
	if (k.next < to && (uint64_t)s->ts[c->x->sample[k.next]] - (uint64_t)k.ts <=
				   (uint64_t)c->period + (uint64_t)c->period / 2)
		k.end = s->ts[c->x->sample[k.next]];
	return k;
}

/* A thread's rows and stacks lie all over their tables. */
static inline void tl_fetch(const struct lg_timeline *c, uint32_t p, uint32_t to)
{
	enum { ROW = 16, STACK = 8 };
	const struct lg_sample_tab *s = &c->t->sample;

	if (to - p <= ROW)
		return;
	__builtin_prefetch(&s->ts[c->x->sample[p + ROW]]);
	__builtin_prefetch(&s->flags[c->x->sample[p + ROW]]);
	__builtin_prefetch(&s->stack[c->x->sample[p + ROW]]);
	__builtin_prefetch(&c->t->stack.parent[s->stack[c->x->sample[p + STACK]]]);
	__builtin_prefetch(&c->t->stack.frame[s->stack[c->x->sample[p + STACK]]]);
	__builtin_prefetch(&c->t->stack.depth[s->stack[c->x->sample[p + STACK]]]);
}

/* timeline_turns.c */
void tl_turns_write(const struct tl_part *p, struct lg_pen *pen);
/* timeline_bulk.c */
/* Slices of a batch: as many as keep two threads busy for a while. */
enum { TL_BATCH = 1 << 16, TL_FIRST_BATCH = 1 << 13 };
/* A part of the batch that is being put together. */
void tl_part_add(struct lg_timeline *c, const struct tl_part *part);
/* Write what there is when it is worth it, or in any case. */
void tl_batch_write(struct lg_timeline *c, bool all);

#endif /* LG_REPORT_TIMELINE_INTERNAL_H */
