/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds.c - what memory is for. The allocator does not know: the stacks do, in which it was asked for
 * and given back, by the functions of torch that are in them.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "memory/parts.h"

static const struct {
	const char *name, *told;
} kind_words[LG_MEMORY_KINDS] = {
	[LG_MEMORY_PARAMETERS] = { "parameters",
				   "asked for while modules were built, moved or loaded" },
	[LG_MEMORY_GRADIENTS] = { "gradients", "asked for in the backward pass, and outlived it" },
	[LG_MEMORY_OPTIMIZER] = { "optimizer_state",
				  "asked for in an optimizer, and outlived its step" },
	[LG_MEMORY_ACTIVATIONS] = { "activations", "asked for in forward code, and given back in the "
						   "backward pass or kept" },
	[LG_MEMORY_TEMPORARIES] = { "temporaries", "given back in the pass in which it was asked for" },
	[LG_MEMORY_OTHER] = { "other", "asked for in none of these" },
	[LG_MEMORY_UNKNOWN] = { "unknown", "asked for before the history begins, or without a stack" },
};

const char *lg_memory_kind_name(enum lg_memory_kind k)
{
	return kind_words[k].name;
}

const char *lg_memory_kind_told(enum lg_memory_kind k)
{
	return kind_words[k].told;
}

/* Functions of torch; file "" = any, as C++ has none. Parts of names match. */
static const struct {
	const char *file, *function;
	uint8_t at;
} places[] = {
	{ "torch/optim/", "step", LG_AT_OPTIMIZER },
	{ "torch/optim/", "_init_group", LG_AT_OPTIMIZER },
	{ "torch/optim/optimizer.py", "profile_hook_step", LG_AT_OPTIMIZER },
	{ "torch/autograd/__init__.py", "backward", LG_AT_BACKWARD },
	{ "torch/autograd/__init__.py", "grad", LG_AT_BACKWARD },
	{ "torch/autograd/graph.py", "_engine_run_backward", LG_AT_BACKWARD },
	{ "torch/_tensor.py", "backward", LG_AT_BACKWARD },
	{ "", "autograd::Engine::", LG_AT_BACKWARD },
	{ "", "autograd::python::PythonEngine::", LG_AT_BACKWARD },
	{ "torch/nn/modules/module.py", "_call_impl", LG_AT_MODULE },
	{ "torch/nn/modules/module.py", "_slow_forward", LG_AT_MODULE },
	{ "torch/nn/modules/module.py", "_apply", LG_AT_PLACE },
	{ "torch/nn/modules/module.py", "_load_from_state_dict", LG_AT_PLACE },
	{ "torch/nn/modules/", "__init__", LG_AT_PLACE },
	{ "torch/nn/modules/", "reset_parameters", LG_AT_PLACE },
	{ "torch/nn/init.py", "", LG_AT_PLACE },
	{ "torch/cuda/memory.py", "empty_cache", LG_AT_EMPTY_CACHE },
	{ "torch/xpu/memory.py", "empty_cache", LG_AT_EMPTY_CACHE },
	{ "", "CUDACachingAllocator_emptyCache", LG_AT_EMPTY_CACHE },
	{ "", "THCPModule_emptyCache", LG_AT_EMPTY_CACHE },
};

static uint8_t place_of_frame(const struct lg_trace *t, lg_frm f)
{
	const char *file = lg_string(t, t->frame.file[f]), *name = lg_string(t, t->frame.name[f]);
	bool python = t->frame.kind[f] == LG_FRAME_PYTHON;
	uint8_t at = 0;

	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (python ? *places[i].file && strstr(file, places[i].file) &&
				     (!*places[i].function || !strcmp(name, places[i].function))
			   : !*places[i].file && strstr(name, places[i].function))
			at |= places[i].at;
	return at;
}

bool lg_memory_is_library(const struct lg_trace *t, lg_frm f)
{
	return t->frame.kind[f] != LG_FRAME_PYTHON || strstr(lg_string(t, t->frame.file[f]), "/torch/");
}

lg_stk lg_memory_program_frame(const struct lg_trace *t, lg_stk stack)
{
	lg_stk python = 0;

	for (lg_stk k = stack; k; k = t->stack.parent[k]) {
		lg_frm f = t->stack.frame[k];

		if (!lg_memory_is_library(t, f))
			return k;
		if (!python && t->frame.kind[f] == LG_FRAME_PYTHON)
			python = k;
	}
	return python ? python : stack;
}

const char *lg_memory_frame_text(const struct lg_trace *t, lg_frm f, bool whole_path, char *buf, size_t size)
{
	char name[256];
	const char *file = lg_string(t, t->frame.file[f]);

	lg_frame_text(t, f, name, sizeof name);
	if (*file)
		snprintf(buf, size, "%s (%s:%u)", name, whole_path ? file : lg_file_name(file),
			 t->frame.line[f]);
	else
		snprintf(buf, size, "%s", name);
	return buf;
}

/* Where C++ frames are recorded, autograd's thread has a stack, and none means that none was taken. */
static void what_has_stacks(struct lg_memory_work *w)
{
	const struct lg_span_tab *s = &w->t->span;

	for (lg_frm f = 1; f < w->t->frame.n; f++)
		if (w->t->frame.kind[f] != LG_FRAME_PYTHON)
			return;
	for (uint32_t row = 0; row < s->n && !(w->allocs_have_stacks && w->frees_have_stacks); row++) {
		if (lg_memory_row(w, row) != LG_MEM_ALLOC)
			continue;
		w->allocs_have_stacks |= s->stack[row] != 0;
		w->frees_have_stacks |= s->peer_stack[row] != 0;
	}
}

static int optimizer_times(struct lg_memory_work *w)
{
	static const char prefix[] = "Optimizer.step#";
	const struct lg_span_tab *s = &w->t->span;

	for (uint32_t row = 0; row < s->n; row++) {
		int64_t end = lg_span_end(w->t, row);
		int64_t *v = w->optimizer;

		if (s->kind[row] != LG_SPAN_NOTE ||
		    strncmp(lg_string(w->t, s->name[row]), prefix, sizeof prefix - 1) ||
		    (w->n_optimizer && s->ts[row] < v[w->n_optimizer - 1]))
			continue;
		for (int edge = 0; edge < 2; edge++) {
			w->optimizer = lg_arena_room(w->a, w->optimizer, w->n_optimizer, sizeof *v);
			if (!w->optimizer)
				return LG_E_NOMEM;
			w->optimizer[w->n_optimizer++] = edge ? end : s->ts[row];
		}
	}
	return 0;
}

static bool in_optimizer(const struct lg_memory_work *w, int64_t ts)
{
	size_t lo = 0, hi = w->n_optimizer;

	while (lo < hi) { /* how many edges are at ts or before */
		size_t mid = lo + (hi - lo) / 2;

		if (w->optimizer[mid] <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo % 2;
}

int lg_memory_places(struct lg_memory_work *w)
{
	const struct lg_trace *t = w->t;
	LG_AUTOFREE uint8_t *of_frame = lg_calloc(t->frame.n + 1, 1);

	w->at = lg_arena_alloc(w->a, t->stack.n + 1, 1);
	if (!of_frame || !w->at)
		return LG_E_NOMEM;
	for (lg_frm f = 1; f < t->frame.n; f++)
		of_frame[f] = place_of_frame(t, f);
	for (lg_stk k = 1; k < t->stack.n; k++) /* callers come first */
		w->at[k] = w->at[t->stack.parent[k]] | of_frame[t->stack.frame[k]];
	what_has_stacks(w);
	return optimizer_times(w);
}

/*
 * The thread of autograd runs no Python: where only Python's frames are recorded, what it asks for and
 * gives back has no stack, while all else has one.
 */
static unsigned place(const struct lg_memory_work *w, lg_stk stack, int64_t ts, bool others_have)
{
	if (in_optimizer(w, ts))
		return LG_AT_OPTIMIZER;
	return stack ? w->at[stack] : others_have ? LG_AT_BACKWARD : 0;
}

enum lg_memory_kind lg_memory_kind(const struct lg_memory_work *w, uint32_t row)
{
	const struct lg_span_tab *s = &w->t->span;
	bool alive = s->dur[row] < 0;
	bool knows_freed = alive || s->peer_stack[row] || w->frees_have_stacks || w->n_optimizer;
	unsigned from, to;

	if (!s->stack[row] &&
	    (s->args[row] || (!w->allocs_have_stacks && !in_optimizer(w, s->ts[row]))))
		return LG_MEMORY_UNKNOWN;
	from = place(w, s->stack[row], s->ts[row], w->allocs_have_stacks);
	to = alive ? 0 : place(w, s->peer_stack[row], s->ts[row] + s->dur[row], w->frees_have_stacks);
	if (from & LG_AT_OPTIMIZER)
		return alive || (knows_freed && !(to & LG_AT_OPTIMIZER)) ? LG_MEMORY_OPTIMIZER
									 : LG_MEMORY_TEMPORARIES;
	if (from & LG_AT_BACKWARD)
		return alive || (knows_freed && !(to & LG_AT_BACKWARD)) ? LG_MEMORY_GRADIENTS
									: LG_MEMORY_TEMPORARIES;
	if (from & LG_AT_PLACE)
		return LG_MEMORY_PARAMETERS;
	if (from & LG_AT_MODULE)
		return alive || to & LG_AT_BACKWARD ? LG_MEMORY_ACTIVATIONS : LG_MEMORY_TEMPORARIES;
	return to & LG_AT_BACKWARD ? LG_MEMORY_ACTIVATIONS : LG_MEMORY_OTHER;
}
