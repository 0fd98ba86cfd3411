/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.h - where forward and backward spend their time, by module of the model, as a tree.
 *
 * Of the reference rank's process, the lowest rank that tells of modules. Two sources:
 *   - the hook's sums (`record --modules`, hook/laggard/_modules.py), by path: "Net.layers.3.attn";
 *   - a profiler's "nn.Module: NAME_k" rows (torch.profiler with_stack=True), which nest: the path is made
 * of the names of those around, and time in the backward pass comes by operators' sequence numbers. Times
 * are the host's, ms in a step; a profiler's trace of a device has besides what the device computed for
 * each, by who launched it.
 */
#ifndef LG_MODULES_MODULES_H
#define LG_MODULES_MODULES_H
#include "analyse/verdict.h"
#include "base/arena.h"

enum lg_module_compiled {
	LG_MODULE_EAGER,
	LG_MODULE_COMPILED,
	LG_MODULE_PARTS /* asked for, but what it is made of is called one by one */
};

struct lg_module {
	const char *path;
	uint32_t up;      /* index + 1; 0 = nothing calls it */
	unsigned depth;
	double forward, backward;         /* with what it calls */
	double own_forward, own_backward; /* without */
	double device, own_device;        /* the same of its kernels and copies; 0 without a device */
	double share;	  /* of the steps' time, with what it calls, on the device if there is one; NAN = no
			     steps */
	double calls;     /* in a step */
	double var;       /* of that mean time, with what it calls; NAN = too little is told */
	uint8_t compiled; /* enum lg_module_compiled */
};

struct lg_modules {
	struct lg_arena arena;
	struct lg_module *v; /* a module before those that it is made of, the longest of them first */
	size_t n;
	int32_t rank;     /* -1 = unknown */
	double steps;     /* that were summed up */
	size_t left_out;  /* modules that are not told one by one */
	bool has_device;
};

/* *ret has none where the trace tells of none. It borrows strings of v's trace. */
int lg_modules_new(const struct lg_verdict *v, struct lg_modules **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_modules_free(struct lg_modules *m);

/* ---- parts of lg_modules_new() ---- */

enum { LG_MODULES_MAX = 8192, LG_MODULE_CELLS = 1024 };

/* A module while it is gathered: own ms by cell (a step, or the steps between two sums). */
struct lg_module_sum {
	const char *path;
	uint32_t up;
	double forward, backward, device, calls;
	uint8_t compiled;
	double *cell;     /* [n_cells] */
};

struct lg_module_sums {
	const struct lg_trace *t;
	struct lg_arena *arena;
	struct lg_module_sum *v;
	size_t n, cap;
	size_t n_cells;
	double steps;
	lg_prc prc;
	int32_t rank;
	size_t left_out;
	bool has_device;  /* cells are of the device */
};

/* Each fills s where its source tells of modules, and leaves s->n 0 elsewhere. */
int lg_modules_of_marks(struct lg_module_sums *s) LG_MUST_CHECK;
int lg_modules_of_spans(struct lg_module_sums *s, const struct lg_verdict *v) LG_MUST_CHECK;
/* A new one at the end; NULL: no memory, or too many. */
struct lg_module_sum *lg_module_add(struct lg_module_sums *s, const char *path, uint32_t up);

#endif /* LG_MODULES_MODULES_H */
