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

/* A segment that a few live bytes keep from being given back. */
struct lg_memory_pinned {
	size_t segments;
	uint64_t bytes, live;             /* of these segments; live in them */
	struct lg_memory_stack *by_stack; /* of what lives there */
	size_t n_stacks;
};

/* What grows from step to step, by stack. */
struct lg_memory_leak {
	size_t points;        /* moments at which it was looked at; 0 = too few to tell */
	bool by_step;         /* they are ends of steps; else equal parts of the history */
	int64_t from, to;
	double per_point;     /* bytes, all stacks together that grow */
	double allocated_per_point; /* of all that is allocated */
	struct lg_memory_growing { lg_stk stack; double per_point, r2; uint64_t bytes, count; } *v;
	size_t n;             /* the fastest first */
	uint64_t graph_bytes; /* of what grows: what forward code asked for, under autograd */
};

/* Segments that are given back and asked for again. */
struct lg_memory_churn {
	size_t freed, again;      /* segments given back, and asked for after one was */
	uint64_t freed_bytes, again_bytes; /* again: of what was given back before */
	size_t points;            /* in so many steps, or equal parts of the history, both came */
	size_t of;                /* of so many */
	bool by_step;
	lg_stk freed_by, asked_by; /* where most of it came from; 0 = not told */
	bool empty_cache;         /* the program asked for it */
	int64_t first;
};

struct lg_memory_oom {
	int64_t ts;
	uint64_t asked, device_free; /* device_free 0: none, or not told */
	uint64_t idle, largest_idle; /* held unused then, as far as it is told; and its largest piece */
	uint64_t allocated;
	bool exact;                  /* idle is of that moment: nothing happened since */
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
	uint64_t reserved, allocated, active, requested, free, largest_free, free_in_used;
	size_t segments;
	struct lg_memory_held now;
	/* Over the history; sizes as requested. */
	struct lg_memory_held peak;
	uint64_t peak_reserved;
	struct lg_memory_pinned pinned;
	struct lg_memory_leak leak;
	struct lg_memory_churn churn;
	struct lg_memory_oom *oom;
	size_t n_oom;
};

/* Memory of something else that was only watched: a counter of bytes. */
struct lg_memory_series {
	lg_trk track;
	size_t n;
	int64_t first, last, peak_ts;
	double first_bytes, last_bytes, peak_bytes;
};

struct lg_memory {
	struct lg_memory_device *device;
	size_t n_devices;
	struct lg_memory_series *series;
	size_t n_series;
};

/* All of it lies in the arena. NULL in *ret: the trace tells nothing of memory. */
int lg_memory_account(const struct lg_trace *t, struct lg_arena *a, const struct lg_memory **ret)
	LG_MUST_CHECK;

#endif /* LG_MEMORY_MEMORY_H */
