/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snap_rows.c - see snap_rows.h, and memsnap.h for the rows.
 *
 * The history is the last part of what happened; how much was held when it begins is told by what is
 * held at its end, less what came and plus what went.
 */
#include "import/memsnap/snap_rows.h"

#include <stdio.h>

#include "base/alloc.h"

enum { DEVICES_MAX = 64 };

/* An allocation whose end has not been seen. */
struct open {
	int64_t ts, stream;
	uint64_t addr, size;
	lg_stk stack;
};

struct delta {
	int64_t ts, bytes;
};

struct deltas {
	struct delta *v;
	size_t n, cap;
	int64_t sum;
};

struct lg_snap_device {
	lg_trk gpu, allocator;
	int64_t first, last;
	struct lg_map at; /* address -> open + 1 */
	struct open *open;
	size_t n_open, cap_open;
	struct deltas allocated, reserved;
	struct lg_snap_block *block;
	size_t n_block, cap_block;
	struct lg_snap_segment *segment;
	size_t n_segment, cap_segment;
};

static struct lg_snap_device *device_of(struct lg_snap_rows *r, int64_t number)
{
	struct lg_snap_device *d;
	char name[16];

	if (number < 0 || number >= DEVICES_MAX) {
		r->odd++;
		return NULL;
	}
	if (r->device[number])
		return r->device[number];
	d = lg_calloc(1, sizeof *d);
	if (!d) {
		lg_builder_fail(r->b);
		return NULL;
	}
	snprintf(name, sizeof name, "GPU %d", (int)number);
	d->first = INT64_MAX;
	d->last = INT64_MIN;
	d->gpu = lg_track_get(r->b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
							    .name = lg_intern(r->b, name),
							    .prc = r->prc,
							    .index = (int32_t)number });
	d->allocator = lg_track_get(r->b, &(struct lg_track_row){ .kind = LG_TRACK_MEMORY,
								  .name = lg_intern(r->b, "allocator"),
								  .prc = r->prc,
								  .parent = d->gpu,
								  .index = (int32_t)number });
	r->device[number] = d;
	return d;
}

void lg_snap_begin(struct lg_snap_rows *r, struct lg_builder *b, lg_prc prc)
{
	*r = (struct lg_snap_rows){
		.b = b, .prc = prc, .first = INT64_MAX, .last = INT64_MIN, .timed = true
	};
	r->s_alloc = lg_intern(b, "alloc");
	r->s_before = lg_intern(b, "before");
}

static void change(struct lg_snap_rows *r, struct deltas *k, int64_t ts, int64_t bytes)
{
	if (LG_APPEND(k->v, k->n, k->cap, (struct delta){ ts, bytes }))
		lg_builder_fail(r->b);
	else
		k->sum = (int64_t)((uint64_t)k->sum + (uint64_t)bytes);
}

static void add_alloc(struct lg_snap_rows *r, const struct lg_snap_device *d, const struct open *o,
		      int64_t dur, lg_stk freed, bool before)
{
	lg_add_span(r->b, &(struct lg_span_row){ .ts = o->ts,
						 .dur = dur,
						 .track = d->allocator,
						 .kind = LG_SPAN_MEMORY,
						 .name = r->s_alloc,
						 .seq = o->stream,
						 .bytes = o->size,
						 .object = o->addr,
						 .stack = o->stack,
						 .peer_stack = freed,
						 .args = before ? r->s_before : 0 });
}

/* The open allocation at an address, taken out; false: there is none. */
static bool take_open(struct lg_snap_device *d, uint64_t addr, struct open *ret, struct lg_snap_rows *r)
{
	uint32_t at = lg_map_get(&d->at, addr);

	if (!at)
		return false;
	*ret = d->open[at - 1];
	lg_map_remove(&d->at, addr);
	if (at != d->n_open) {
		d->open[at - 1] = d->open[d->n_open - 1];
		if (lg_map_set(&d->at, d->open[at - 1].addr, at))
			lg_builder_fail(r->b);
	}
	d->n_open--;
	return true;
}

static void close_open(struct lg_snap_rows *r, struct lg_snap_device *d, const struct lg_snap_event *e,
		       int64_t ts)
{
	struct open o;

	if (take_open(d, e->addr, &o, r)) {
		add_alloc(r, d, &o, ts - o.ts, e->stack, false);
	} else if (e->action == LG_SNAP_FREE_REQUESTED) {
		o = (struct open){
			.ts = d->first - 1, .addr = e->addr, .size = e->size, .stream = e->stream
		};
		add_alloc(r, d, &o, ts - o.ts, e->stack, true);
	} else {
		return; /* requested before: it is not allocated any more */
	}
	change(r, &d->allocated, ts, -(int64_t)o.size);
}

static void open_new(struct lg_snap_rows *r, struct lg_snap_device *d, const struct lg_snap_event *e,
		     int64_t ts)
{
	struct open o = { .ts = ts,
			  .stream = e->stream,
			  .addr = e->addr,
			  .size = e->size,
			  .stack = e->stack },
		    old;

	if (take_open(d, e->addr, &old, r)) { /* its end is not in the file */
		add_alloc(r, d, &old, ts - old.ts, 0, false);
		change(r, &d->allocated, ts, -(int64_t)old.size);
	}
	if (LG_APPEND(d->open, d->n_open, d->cap_open, o) ||
	    lg_map_set(&d->at, e->addr, (uint32_t)d->n_open))
		lg_builder_fail(r->b);
	change(r, &d->allocated, ts, (int64_t)e->size);
}

static void add_event(struct lg_snap_rows *r, struct lg_snap_device *d, const struct lg_snap_event *e,
		      int64_t ts)
{
	static const char *const name[] = {
		[LG_SNAP_SEGMENT_ALLOC] = "segment_alloc", [LG_SNAP_SEGMENT_FREE] = "segment_free",
		[LG_SNAP_SEGMENT_MAP] = "segment_map",	   [LG_SNAP_SEGMENT_UNMAP] = "segment_unmap",
		[LG_SNAP_SNAPSHOT] = "snapshot",	   [LG_SNAP_OOM] = "oom",
	};

	lg_add_span(r->b, &(struct lg_span_row){ .ts = ts,
						 .track = d->allocator,
						 .kind = LG_SPAN_MEMORY,
						 .name = lg_intern(r->b, name[e->action]),
						 .seq = e->stream,
						 .bytes = e->size,
						 .object = e->addr,
						 .stack = e->stack });
}

void lg_snap_event(struct lg_snap_rows *r, int64_t device, const struct lg_snap_event *e)
{
	struct lg_snap_device *d = device_of(r, device);
	int64_t ts = e->ts;

	if (!d || e->size > INT64_MAX / 2)
		return;
	if (ts == INT64_MIN) {
		r->timed = false;
		ts = d->last == INT64_MIN ? 1000 : d->last + 1000;
	}
	ts = d->last != INT64_MIN && ts <= d->last ? d->last + 1 : ts;
	d->first = d->first == INT64_MAX ? ts : d->first;
	d->last = ts;
	switch (e->action) {
	case LG_SNAP_ALLOC:
		open_new(r, d, e, ts);
		break;
	case LG_SNAP_FREE_REQUESTED:
	case LG_SNAP_FREE_COMPLETED:
		close_open(r, d, e, ts);
		break;
	case LG_SNAP_SEGMENT_ALLOC:
	case LG_SNAP_SEGMENT_MAP:
	case LG_SNAP_SEGMENT_FREE:
	case LG_SNAP_SEGMENT_UNMAP:
		change(r, &d->reserved, ts,
		       e->action == LG_SNAP_SEGMENT_ALLOC || e->action == LG_SNAP_SEGMENT_MAP
			       ? (int64_t)e->size
			       : -(int64_t)e->size);
		add_event(r, d, e, ts);
		break;
	case LG_SNAP_SNAPSHOT:
	case LG_SNAP_OOM:
		add_event(r, d, e, ts);
		break;
	case LG_SNAP_NONE:
		break;
	}
}

void lg_snap_segment(struct lg_snap_rows *r, int64_t device, const struct lg_snap_segment *s)
{
	struct lg_snap_device *d = device_of(r, device);

	if (d && LG_APPEND(d->segment, d->n_segment, d->cap_segment, *s))
		lg_builder_fail(r->b);
}

void lg_snap_block(struct lg_snap_rows *r, int64_t device, const struct lg_snap_block *k)
{
	struct lg_snap_device *d = device_of(r, device);

	if (d && LG_APPEND(d->block, d->n_block, d->cap_block, *k))
		lg_builder_fail(r->b);
}

/* What was held when the history begins, and after each change. */
static void add_counter(struct lg_snap_rows *r, const struct lg_snap_device *d, int32_t index,
			const char *name, const struct deltas *k, int64_t at_end)
{
	lg_trk track = lg_track_get(r->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
								  .name = lg_intern(r->b, name),
								  .unit = lg_intern(r->b, "bytes"),
								  .prc = r->prc,
								  .parent = d->gpu,
								  .index = index });
	int64_t v = (int64_t)((uint64_t)at_end - (uint64_t)k->sum);

	lg_add_counter(r->b,
		       &(struct lg_counter_row){ .ts = d->first <= d->last ? d->first - 1 : r->last,
						 .track = track,
						 .value = (double)v });
	for (size_t i = 0; i < k->n; i++) {
		v = (int64_t)((uint64_t)v + (uint64_t)k->v[i].bytes);
		lg_add_counter(r->b, &(struct lg_counter_row){
					     .ts = k->v[i].ts, .track = track, .value = (double)v });
	}
}

static void add_blocks(struct lg_snap_rows *r, const struct lg_snap_device *d, uint64_t *ret_allocated)
{
	static const char *const name[] = { "block.inactive", "block.active_allocated",
					    "block.active_pending_free" };
	int64_t first = d->first <= d->last ? d->first - 1 : r->last;

	for (size_t i = 0; i < d->n_block; i++) {
		const struct lg_snap_block *k = &d->block[i];
		struct open o = { .ts = first,
				  .addr = k->addr,
				  .size = k->requested,
				  .stream = k->stream,
				  .stack = k->stack };
		uint32_t at = lg_map_get(&d->at, k->addr);

		lg_add_span(r->b, &(struct lg_span_row){ .ts = r->last,
							 .track = d->allocator,
							 .kind = LG_SPAN_MEMORY,
							 .name = lg_intern(r->b, name[k->state]),
							 .seq = (int64_t)k->requested,
							 .bytes = k->size,
							 .object = k->addr,
							 .stack = k->stack });
		if (k->state != LG_SNAP_ALLOCATED)
			continue;
		*ret_allocated += at ? d->open[at - 1].size : k->requested;
		if (!at)
			add_alloc(r, d, &o, -1, 0, true);
	}
}

static void end_device(struct lg_snap_rows *r, const struct lg_snap_device *d, int32_t index)
{
	uint64_t allocated = 0, reserved = 0;

	for (size_t i = 0; i < d->n_open; i++)
		add_alloc(r, d, &d->open[i], -1, 0, false);
	for (size_t i = 0; i < d->n_segment; i++) {
		const struct lg_snap_segment *s = &d->segment[i];

		reserved += s->size;
		lg_add_span(r->b, &(struct lg_span_row){ .ts = r->last,
							 .track = d->allocator,
							 .kind = LG_SPAN_MEMORY,
							 .name = lg_intern(r->b, "segment"),
							 .seq = s->stream,
							 .bytes = s->size,
							 .object = s->addr,
							 .stack = s->stack,
							 .group = s->pool,
							 .args = s->type });
	}
	add_blocks(r, d, &allocated);
	add_counter(r, d, index, "memory allocated", &d->allocated, (int64_t)allocated);
	add_counter(r, d, index, "memory reserved", &d->reserved, (int64_t)reserved);
}

void lg_snap_end(struct lg_snap_rows *r)
{
	for (size_t i = 0; i < DEVICES_MAX; i++) {
		const struct lg_snap_device *d = r->device[i];

		if (!d || d->first > d->last)
			continue;
		r->first = d->first < r->first ? d->first : r->first;
		r->last = d->last > r->last ? d->last : r->last;
	}
	if (r->first > r->last)
		r->first = r->last = 0;
	for (size_t i = 0; i < DEVICES_MAX; i++)
		if (r->device[i])
			end_device(r, r->device[i], (int32_t)i);
}

void lg_snap_done(struct lg_snap_rows *r)
{
	for (size_t i = 0; i < DEVICES_MAX; i++) {
		struct lg_snap_device *d = r->device[i];

		if (!d)
			continue;
		lg_map_done(&d->at);
		lg_free(d->open);
		lg_free(d->allocated.v);
		lg_free(d->reserved.v);
		lg_free(d->block);
		lg_free(d->segment);
		lg_free(d);
	}
}
