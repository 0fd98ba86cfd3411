/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - a sealed trace -> an account of the memory of its devices: how much was held and when, by
 * whom, in what pieces the rest is, what comes and goes, and what only grows.
 *
 * Rows: import/memsnap/memsnap.h says which. Nothing is judged here: analyse/ does that.
 */
#ifndef LG_MEMORY_MEMORY_H
#define LG_MEMORY_MEMORY_H
#include <stdbool.h>

#include "base/arena.h"
#include "store/trace.h"

/* What memory is for, told by the stacks in which it was asked for and given back (kinds.c). */
enum lg_memory_kind {
	LG_MEMORY_PARAMETERS, LG_MEMORY_GRADIENTS, LG_MEMORY_OPTIMIZER, LG_MEMORY_ACTIVATIONS,
	LG_MEMORY_TEMPORARIES, LG_MEMORY_OTHER, LG_MEMORY_UNKNOWN, LG_MEMORY_KINDS
};
const char *lg_memory_kind_name(enum lg_memory_kind k); /* "optimizer_state" ... */
const char *lg_memory_kind_told(enum lg_memory_kind k); /* how it was told, half a sentence */

struct lg_memory_stack {
	lg_stk stack; /* 0 = none was recorded */
	uint64_t bytes, count;
};

/* What is held at one moment; the parts of both lists sum to bytes. */
struct lg_memory_held {
	int64_t ts;
	uint64_t bytes;
	struct lg_memory_stack *by_stack; /* the largest first */
	size_t n_stacks;
	uint64_t by_kind[LG_MEMORY_KINDS];
};

/*
 * How the segments are cut at one moment: by the lives of allocations and the coming and going of segments,
 * so that it can be told of any moment of the history.
 */
#define LG_MEMORY_PAGE (UINT64_C(20) << 20) /* kLargeBuffer of c10/cuda/CUDACachingAllocator.cpp */

struct lg_memory_pieces {
	int64_t ts;
	uint64_t reserved, idle;    /* idle: in no allocation */
	uint64_t idle_in_used;      /* of that in segments that hold one: it cannot be given back */
	uint64_t largest;           /* of the idle ones */
	uint64_t idle_pages;        /* in whole ones of LG_MEMORY_PAGE: expandable segments can move these */
	/* Segments of which less than a twentieth lives, and so cannot be given back. */
	size_t pinned;
	uint64_t pinned_bytes, pinned_live;
	struct lg_memory_stack *pins; /* what lives there, by the stack that asked for it */
	size_t n_pins;
};

/* Moments between steps. */
struct lg_memory_points {
	int64_t *ts;
	size_t n;
	const char *told; /* how they were told, half a sentence; NULL: there are none */
};

/* What grows from step to step, by stack. */
struct lg_memory_leak {
	size_t steps;               /* that were looked at, the first ones left out; 0 = too few */
	double per_step;            /* bytes, all stacks together that grow */
	double allocated_per_step;  /* of all that is allocated */
	struct lg_memory_growing {
		lg_stk stack;
		double per_step, r2;
		uint64_t bytes;     /* at the end */
	} *v;
	size_t n;                   /* the fastest first */
	double graph_per_step;      /* of that: what forward code asked for, and autograd keeps */
};

/* Segments that are given back and asked for again. */
struct lg_memory_churn {
	size_t freed, again;  /* segments given back; asked for after that, up to what was given back */
	uint64_t again_bytes;
	size_t episodes;      /* how often: each begins with a segment that is given back */
	int64_t took;         /* at most: from the event before each of them to it */
	lg_stk freed_by;      /* of most of them; 0 = not told */
	bool empty_cache;     /* the program asked for it */
	int64_t first;
};

struct lg_memory_oom {
	int64_t ts;
	uint64_t asked, device_free, allocated; /* device_free 0: none, or not told */
	uint64_t activations, temporaries;      /* of what is allocated */
	struct lg_memory_pieces pieces;
	lg_stk stack;
};

struct lg_memory_device {
	lg_trk track; /* of its allocator */
	int32_t index, rank;
	uint32_t *rows; /* spans of it, by time */
	size_t n_rows;
	bool has_history, has_blocks;
	int64_t first, last;
	/* At the snapshot; sizes as the allocator rounds them. */
	uint64_t reserved, allocated, active, requested, free, largest_free;
	size_t segments;
	struct lg_memory_held now;
	/* Over the history; sizes as requested. */
	struct lg_memory_held peak;
	uint64_t peak_reserved;
	int64_t peak_reserved_ts; /* when it was reached first */
	struct lg_memory_pieces pieces; /* at the end */
	/* When most was needed: at the peak, or when most was reserved, whichever came later. */
	struct lg_memory_pieces at_most;
	struct lg_memory_points points;
	struct lg_memory_leak leak;
	struct lg_memory_churn churn;
	struct lg_memory_oom *oom; /* the first ones */
	size_t n_oom, n_oom_all;
};

/* Memory that was only watched: a counter of bytes that no allocator's history stands behind. */
struct lg_memory_series {
	lg_trk track;
	size_t n;
	int64_t first, last, peak_ts, least_ts;
	double first_bytes, last_bytes, peak_bytes, least_bytes;
};

struct lg_memory {
	struct lg_memory_device *device;
	size_t n_devices;
	struct lg_memory_series *series;
	size_t n_series;
};

/* The innermost function of a stack that is the program's own, not a framework's; where none is, Python's
 * innermost, else the innermost. */
lg_stk lg_memory_program_frame(const struct lg_trace *t, lg_stk stack);
/* "forward (model.py:12)": of a frame; writes into buf, returns it. */
const char *lg_memory_frame_text(const struct lg_trace *t, lg_frm f, bool whole_path, char *buf, size_t size);
/* What the allocator asks the device for where no segment has room for so many bytes. */
uint64_t lg_memory_segment_for(uint64_t bytes);
/* Is it a framework's own function? */
bool lg_memory_is_library(const struct lg_trace *t, lg_frm f);

/* All of it lies in the arena. NULL in *ret: the trace tells nothing of memory. */
int lg_memory_account(const struct lg_trace *t, struct lg_arena *a, const struct lg_memory **ret)
	LG_MUST_CHECK;

#endif /* LG_MEMORY_MEMORY_H */
