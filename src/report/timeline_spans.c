/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_spans.c - steps, stages, operators, collectives, lock waits and holds, GPU streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/timeline_internal.h"

static enum lg_tl_lane lane_of(uint8_t kind)
{
	switch (kind) {
	case LG_SPAN_COLLECTIVE:
		return LG_LANE_COLLECTIVE;
	case LG_SPAN_LOCK_WAIT:
		return LG_LANE_LOCK_WAIT;
	case LG_SPAN_LOCK_HOLD:
		return LG_LANE_LOCK_HOLD;
	default:
		return LG_LANE_MAIN;
	}
}

/* Of two spans with the same interval, which encloses: step, stage, operator, the rest. */
static uint8_t rank_of(uint8_t kind)
{
	return kind == LG_SPAN_STEP ? 0 : kind == LG_SPAN_STAGE ? 1 : kind == LG_SPAN_OP ? 2 : 3;
}

static const char *const cats[] = {
	[LG_SPAN_OTHER] = "span", [LG_SPAN_STEP] = "step", [LG_SPAN_STAGE] = "stage",
	[LG_SPAN_OP] = "op", [LG_SPAN_KERNEL] = "gpu", [LG_SPAN_COPY] = "copy",
	[LG_SPAN_COLLECTIVE] = "collective", [LG_SPAN_LOCK_WAIT] = "lock_wait",
	[LG_SPAN_LOCK_HOLD] = "lock_hold", [LG_SPAN_IO] = "io", [LG_SPAN_IRQ] = "irq",
	[LG_SPAN_GC] = "gc", [LG_SPAN_SYSCALL] = "syscall", [LG_SPAN_FAULT] = "fault",
	[LG_SPAN_MEMORY] = "memory", [LG_SPAN_COMPILE] = "compile", [LG_SPAN_WAIT] = "wait",
	[LG_SPAN_PYTHON] = "python", [LG_SPAN_RUNTIME] = "runtime", [LG_SPAN_NOTE] = "note",
	[LG_SPAN_OVERHEAD] = "overhead",
};

static const char *cat_of(uint8_t kind)
{
	return kind < sizeof cats / sizeof *cats ? cats[kind] : "span";
}

static const char *mode(uint32_t flags)
{
	return flags & LG_SPAN_WRITE ? "write" : flags & LG_SPAN_READ ? "read" : NULL;
}

/* Whose memory a lock row is about: its peer (holds), or the process that has this mm. */
static lg_prc owner_of(const struct lg_timeline *c, uint32_t row)
{
	const struct lg_span_tab *s = &c->t->span;

	if (s->kind[row] == LG_SPAN_LOCK_HOLD && s->peer[row])
		return c->t->thread.prc[s->peer[row]];
	return s->flags[row] & LG_SPAN_MMAP_LOCK ? lg_map_get(&c->mm_owner, s->object[row]) : 0;
}

static const char *lock_name(struct lg_timeline *c, uint32_t row, char *buf, size_t size)
{
	const struct lg_span_tab *s = &c->t->span;
	const char *lock = s->name[row] ? lg_string(c->t, s->name[row]) :
			   s->flags[row] & LG_SPAN_MMAP_LOCK ? "mmap_lock" : "lock";
	lg_prc owner = owner_of(c, row);
	bool hold = s->kind[row] == LG_SPAN_LOCK_HOLD;
	char function[256], whose[128] = "";

	if (owner)
		snprintf(whose, sizeof whose, " of pid %d %.64s", c->t->process.pid[owner],
			 lg_string(c->t, c->t->process.comm[owner]));
	if (hold) {
		tl_function(c->t, s->stack[row], function, sizeof function);
		snprintf(buf, size, "holds %.128s%s%s%s%s", lock, whose, *function ? " (" : "", function,
			 *function ? ")" : "");
	} else {
		snprintf(buf, size, "waits for %.128s%s", lock, whose);
	}
	return buf;
}

static void lock_args(struct lg_timeline *c, uint32_t row)
{
	const struct lg_span_tab *s = &c->t->span;
	bool hold = s->kind[row] == LG_SPAN_LOCK_HOLD;
	lg_prc owner = owner_of(c, row);
	char function[256];

	if (s->name[row])
		tl_arg_pool(c, "lock", s->name[row]);
	if (mode(s->flags[row]))
		tl_arg_static(c, "mode", mode(s->flags[row]));
	if (owner)
		tl_arg_fmt(c, "mm_of", "pid %d %s", c->t->process.pid[owner],
			   lg_string(c->t, c->t->process.comm[owner]));
	if (s->object[row])
		tl_arg_fmt(c, "object", "0x%llx", (unsigned long long)s->object[row]);
	if (hold) {
		tl_arg_stack(c, "stack", s->stack[row]);
		return;
	}
	if (s->peer[row]) {
		tl_arg_thread(c, "holder", s->peer[row]);
		tl_function(c->t, s->peer_stack[row], function, sizeof function);
		if (*function)
			tl_arg_fmt(c, "holder_function", "%s", function);
		/* kernel/locking/rwsem.c: a reader-owned semaphore remembers only its last reader. */
		if (s->flags[row] & LG_SPAN_OWNER_READER)
			tl_arg_static(c, "holder_certainty", "probable: last reader seen");
	}
	tl_arg_stack(c, "stack", s->stack[row]);
	tl_arg_stack(c, "holder_stack", s->peer_stack[row]);
}

static void emit(struct lg_timeline *c, const struct lg_tl_track *track, const struct tl_item *it)
{
	const struct lg_span_tab *s = &c->t->span;
	uint32_t row = it->row;
	const char *name = s->name[row] ? lg_string(c->t, s->name[row]) : NULL;
	uint64_t name_id = s->name[row] ? tl_id(TL_ID_POOL, s->name[row]) : 0;
	char buf[512];

	tl_args_reset(c);
	if (s->kind[row] == LG_SPAN_LOCK_WAIT || s->kind[row] == LG_SPAN_LOCK_HOLD) {
		name = lock_name(c, row, buf, sizeof buf);
		name_id = 0;
		lock_args(c, row);
	} else {
		if (s->kind[row] == LG_SPAN_STEP)
			tl_arg_int(c, "step", s->seq[row]);
		else if (s->kind[row] == LG_SPAN_COLLECTIVE)
			tl_arg_int(c, "seq", s->seq[row]);
		if (s->group[row])
			tl_arg_pool(c, "group", s->group[row]);
		if (s->bytes[row])
			tl_arg_int(c, "bytes", (int64_t)(s->bytes[row] > INT64_MAX ? INT64_MAX :
							 s->bytes[row]));
		if (s->stage[row] && s->kind[row] != LG_SPAN_STAGE)
			tl_arg_static(c, "stage", lg_stage_name(s->stage[row]));
		if (s->flags[row] & LG_SPAN_ASYNC)
			tl_arg_static(c, "async", "yes");
		if (s->flags[row] & LG_SPAN_HAND)
			tl_arg_static(c, "marked", "by hand");
		tl_arg_thread(c, "peer", s->peer[row]);
		tl_arg_stack(c, "stack", s->stack[row]);
		if (s->kind[row] == LG_SPAN_STEP && (!name || s->seq[row] >= 0)) {
			/* As torch.profiler names them: "ProfilerStep#7". */
			snprintf(buf, sizeof buf, name ? "%.400s#%lld" : "%.0sstep %lld", name ? name : "",
				 (long long)s->seq[row]);
			name = buf;
			name_id = 0;
		} else if (!name) {
			name = s->stage[row] ? lg_stage_name(s->stage[row]) : cat_of(s->kind[row]);
		}
	}
	if (s->dur[row] < 0)
		tl_arg_static(c, "cut_off", "by the end of the trace");
	tl_arg_pairs(c, s->args[row]);
	tl_slice(c, track, it->ts, it->end, name, name_id, cat_of(s->kind[row]),
		 s->kind[row] == LG_SPAN_LOCK_WAIT ? "bad" : NULL);
}

static void emit_lane(struct lg_timeline *c, lg_thr thr, enum lg_tl_lane lane)
{
	struct lg_tl_track track = { 0 };

	if (!c->n_items || tl_deal(c))
		return;
	for (size_t i = 0; i < c->n_items && !c->failed; i++) {
		if (!i || c->items[i].overlap != track.overlap) {
			if (i)
				c->sink->track_end(c->self, &track);
			tl_thread_track(c, thr, lane, c->items[i].overlap, &track);
		}
		emit(c, &track, &c->items[i]);
	}
	c->sink->track_end(c->self, &track);
}

void tl_spans(struct lg_timeline *c, lg_thr thr)
{
	static const enum lg_tl_lane lanes[] = { LG_LANE_MAIN, LG_LANE_COLLECTIVE, LG_LANE_LOCK_WAIT,
						 LG_LANE_LOCK_HOLD };
	const struct lg_span_tab *s = &c->t->span;
	uint32_t from = c->x->span_off[thr], to = c->x->span_off[thr + 1];

	if (from == to)
		return;
	for (size_t l = 0; l < sizeof lanes / sizeof *lanes && !c->failed; l++) {
		c->n_items = 0;
		for (uint32_t p = from; p < to; p++) {
			uint32_t row = c->x->span[p];

			if (s->track[row] || lane_of(s->kind[row]) != lanes[l])
				continue;
			if (tl_item_add(c, s->ts[row], lg_row_end(c->t, s->ts[row], s->dur[row]), row,
					rank_of(s->kind[row])))
				return;
		}
		emit_lane(c, thr, lanes[l]);
	}
}

struct on_track {
	lg_trk track;
	uint32_t row;
};

static int by_track(const void *pa, const void *pb)
{
	const struct on_track *a = pa, *b = pb;

	if (a->track != b->track)
		return a->track < b->track ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

static uint64_t launch_key(int64_t ts, uint64_t id)
{
	return lg_mix64((uint64_t)ts ^ lg_mix64(id));
}

/* The flow table says of what was launched onto a stream only when and by what id. */
static void launches(struct lg_timeline *c)
{
	const struct lg_flow_tab *f = &c->t->flow;

	for (size_t i = 0; i < f->n && !c->failed; i++)
		if (f->kind[i] == LG_FLOW_LAUNCH && !f->thr_to[i] &&
		    lg_map_set(&c->launch, launch_key(f->ts_to[i], f->id[i]), (uint32_t)i + 1))
			c->failed = LG_E_NOMEM;
}

/* From the call that launched a span of a stream. */
static void launch(struct lg_timeline *c, const struct lg_tl_track *track, uint32_t row)
{
	const struct lg_span_tab *s = &c->t->span;
	const struct lg_flow_tab *f = &c->t->flow;
	uint64_t id = (uint64_t)s->seq[row];
	uint32_t at = lg_map_get(&c->launch, launch_key(s->ts[row], id));

	if (at-- && f->ts_to[at] == s->ts[row] && f->id[at] == id &&
	    (!s->peer[row] || f->thr[at] == s->peer[row]))
		tl_flow_onto(c, "launch", at, track);
}

static void one_track(struct lg_timeline *c, lg_trk id)
{
	const struct lg_track_tab *tr = &c->t->track;
	struct lg_tl_track process, track = { 0 };

	if (!c->n_items || tl_deal(c))
		return;
	tl_process_track(c, tr->prc[id] ? tr->prc[id] : c->t->thread.prc[tr->thr[id]], &process);
	for (size_t i = 0; i < c->n_items && !c->failed; i++) {
		char name[TL_FRAME + 16];

		if (i && c->items[i].overlap == track.overlap) {
			emit(c, &track, &c->items[i]);
			launch(c, &track, c->items[i].row);
			continue;
		}
		if (i)
			c->sink->track_end(c->self, &track);
		tl_track_name(c, id, "track", name, TL_FRAME);
		if (c->items[i].overlap)
			snprintf(name + strlen(name), 16, " (%u)", c->items[i].overlap + 1);
		track = (struct lg_tl_track){
			/* The same mix as thread lanes, in a space of its own. */
			.id = lg_mix64(7ull << 60 | (uint64_t)(c->items[i].overlap & 0xffffff) << 32 |
				       id) | 1ull << 63,
			.parent = process.id, .kind = LG_TL_LANE, .pid = process.pid, .tid = process.pid,
			.lane = LG_LANE_MAIN, .overlap = c->items[i].overlap, .name = name,
			.order = (int32_t)(id & 0xffffff) };
		c->sink->track(c->self, &track);
		track.name = NULL;
		emit(c, &track, &c->items[i]);
		launch(c, &track, c->items[i].row);
	}
	c->sink->track_end(c->self, &track);
}

void tl_track_spans(struct lg_timeline *c)
{
	const struct lg_span_tab *s = &c->t->span;
	struct on_track *rows = NULL;
	size_t n = 0, cap = 0;

	launches(c);
	for (size_t i = 0; i < s->n; i++) {
		/* A span without thread and track has no place but the machine's. */
		if (!s->track[i] && s->thr[i])
			continue;
		/* Lives of allocations overlap by the thousand: the device's counters draw them. */
		if (c->t->track.kind[s->track[i]] == LG_TRACK_MEMORY && s->kind[i] == LG_SPAN_MEMORY)
			continue;
		if (lg_grow(&rows, &cap, n + 1, sizeof *rows)) {
			c->failed = LG_E_NOMEM;
			break;
		}
		rows[n++] = (struct on_track){ s->track[i], (uint32_t)i };
	}
	if (n > 1)
		qsort(rows, n, sizeof *rows, by_track);
	for (size_t i = 0; i < n && !c->failed;) {
		lg_trk id = rows[i].track;

		c->n_items = 0;
		for (; i < n && rows[i].track == id; i++) {
			uint32_t row = rows[i].row;

			if (tl_item_add(c, s->ts[row], lg_row_end(c->t, s->ts[row], s->dur[row]), row,
					rank_of(s->kind[row])))
				break;
		}
		if (!c->failed)
			one_track(c, id);
	}
	lg_free(rows);
}
