/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kineto_names.c - what a category and a name mean. A name is looked at once; its meaning is kept
 * under its string id.
 */
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "import/kineto/kineto_import.h"

static const struct {
	const char *name;
	enum kin_cat cat;
} cats[] = {
	{ "cpu_op", KIN_OP },
	{ "Operator", KIN_OP }, /* torch 1.8 .. 1.9; annotations too */
	{ "user_annotation", KIN_NOTE },
	{ "python_function", KIN_PYTHON },
	{ "cuda_runtime", KIN_RUNTIME },
	{ "cuda_driver", KIN_RUNTIME },
	{ "Runtime", KIN_RUNTIME },
	{ "hip_runtime", KIN_RUNTIME },
	{ "xpu_runtime", KIN_RUNTIME },
	{ "xpu_driver", KIN_RUNTIME },
	{ "mtia_runtime", KIN_RUNTIME },
	{ "privateuse1_runtime", KIN_RUNTIME },
	{ "privateuse1_driver", KIN_RUNTIME },
	{ "glow_runtime", KIN_RUNTIME },
	{ "kernel", KIN_KERNEL },
	{ "Kernel", KIN_KERNEL },
	{ "mtia_ccp_events", KIN_KERNEL },
	{ "hpu_op", KIN_KERNEL },
	{ "gpu_memcpy", KIN_MEMCPY },
	{ "Memcpy", KIN_MEMCPY },
	{ "gpu_memset", KIN_MEMSET },
	{ "Memset", KIN_MEMSET },
	{ "cuda_sync", KIN_SYNC },
	{ "gpu_user_annotation", KIN_GPU_NOTE },
	{ "overhead", KIN_OVERHEAD },
	{ "Trace", KIN_TRACE },
	{ "ac2g", KIN_ARROW },
	{ "fwdbwd", KIN_ARROW },
	{ "async", KIN_ARROW },
	{ "async_cpu_to_gpu", KIN_ARROW },
};

enum kin_cat kin_category(struct kineto *k, const struct lg_slice *cat)
{
	enum kin_cat found = KIN_UNKNOWN;
	struct kin_memo *m;

	if (!cat->p)
		return KIN_UNKNOWN;
	for (size_t i = 0; i < KIN_CATS; i++)
		if (cat->n == k->cat_memo[i].n && kin_same(cat->p, k->cat_memo[i].text, cat->n))
			return k->cat_last[i];
	for (size_t i = 0; i < sizeof cats / sizeof *cats; i++)
		if (lg_slice_is(cat, cats[i].name, strlen(cats[i].name))) {
			found = cats[i].cat;
			break;
		}
	if (cat->n && cat->n <= sizeof m->text) {
		m = &k->cat_memo[k->cat_turn % KIN_CATS];
		memcpy(m->text, cat->p, cat->n);
		m->n = (uint8_t)cat->n;
		k->cat_last[k->cat_turn++ % KIN_CATS] = found;
	}
	return found;
}

/* "## forward ##", "Forward Pass" and "forward_pass" are one word. */
static uint8_t stage_word(const struct lg_slice *s)
{
	static const struct {
		const char *word;
		uint8_t stage;
	} words[] = {
		{ "forward", LG_STAGE_FORWARD },	{ "forwardpass", LG_STAGE_FORWARD },
		{ "modelforward", LG_STAGE_FORWARD },	{ "backward", LG_STAGE_BACKWARD },
		{ "backwardpass", LG_STAGE_BACKWARD },	{ "lossbackward", LG_STAGE_BACKWARD },
		{ "optimizer", LG_STAGE_OPTIMIZER },	{ "optimizerstep", LG_STAGE_OPTIMIZER },
		{ "zerograd", LG_STAGE_OPTIMIZER },	{ "dataloading", LG_STAGE_BATCH_WAIT },
		{ "dataload", LG_STAGE_BATCH_WAIT },	{ "dataloader", LG_STAGE_BATCH_WAIT },
		{ "loaddata", LG_STAGE_BATCH_WAIT },	{ "batchwait", LG_STAGE_BATCH_WAIT },
		{ "h2d", LG_STAGE_H2D },		{ "copybatchtogpu", LG_STAGE_H2D },
		{ "gradsync", LG_STAGE_GRAD_SYNC },
	};
	char word[24];
	size_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		char c = s->p[i];

		if (c == '#' || c == ' ' || c == '_' || c == '-' || c == '.')
			continue;
		if (n == sizeof word)
			return 0;
		word[n++] = (char)(c >= 'A' && c <= 'Z' ? c | 32 : c);
	}
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i].word) == n && !memcmp(word, words[i].word, n))
			return words[i].stage;
	return 0;
}

static bool ends(const struct lg_slice *s, const char *tail)
{
	size_t n = strlen(tail);

	return s->n >= n && !memcmp(s->p + s->n - n, tail, n);
}

static struct kin_class of_host(const struct lg_slice *s, enum kin_cat cat)
{
	struct kin_class c = { .kind = cat == KIN_NOTE ? LG_SPAN_NOTE : LG_SPAN_OP };

	if (LG_SLICE_STARTS(s, "ProfilerStep#"))
		return (struct kin_class){ .kind = LG_SPAN_STEP, .flags = KIN_STEP };
	if (LG_SLICE_STARTS(s, "enumerate(DataLoader)#") ||
	    LG_SLICE_STARTS(s, "enumerate(DataPipe)#"))
		return (struct kin_class){ .kind = LG_SPAN_STAGE, .stage = LG_STAGE_BATCH_WAIT };
	if (LG_SLICE_STARTS(s, "Optimizer.step#") || LG_SLICE_STARTS(s, "Optimizer.zero_grad#"))
		return (struct kin_class){ .kind = LG_SPAN_STAGE, .stage = LG_STAGE_OPTIMIZER };
	if (LG_SLICE_IS(s, "DistributedDataParallel.forward") ||
	    LG_SLICE_IS(s, "DataParallel.forward"))
		return (struct kin_class){ .kind = LG_SPAN_STAGE, .stage = LG_STAGE_FORWARD };
	if (LG_SLICE_STARTS(s, "autograd::engine::evaluate_function: "))
		c.stage = LG_STAGE_BACKWARD;
	else if (LG_SLICE_STARTS(s, "nccl:") || LG_SLICE_STARTS(s, "rccl:") ||
		 LG_SLICE_STARTS(s, "xccl:") || LG_SLICE_STARTS(s, "ucc:") ||
		 LG_SLICE_STARTS(s, "hccl:"))
		c = (struct kin_class){ .kind = LG_SPAN_COLLECTIVE, .flags = KIN_ASYNC };
	else if (LG_SLICE_STARTS(s, "gloo:") || LG_SLICE_STARTS(s, "mpi:"))
		c.kind = LG_SPAN_COLLECTIVE;
	else if (LG_SLICE_IS(s, "record_param_comms"))
		c.flags = KIN_COMMS;
	else if (ends(s, "(dynamo_timed)"))
		c.kind = LG_SPAN_COMPILE;
	else if (LG_SLICE_STARTS(s, "aten::conv") || LG_SLICE_STARTS(s, "aten::item") ||
		 LG_SLICE_STARTS(s, "aten::_local_scalar_dense") || LG_SLICE_STARTS(s, "aten::to") ||
		 LG_SLICE_IS(s, "aten::_to_copy") || LG_SLICE_IS(s, "aten::copy_") ||
		 LG_SLICE_STARTS(s, "aten::cudnn_conv") || LG_SLICE_STARTS(s, "aten::miopen_conv"))
		c.flags = KIN_INPUTS;
	else if (s->n <= 40 && (cat == KIN_NOTE || s->p[0] == '#')) {
		c.stage = stage_word(s);
		if (c.stage)
			c.kind = LG_SPAN_STAGE;
	}
	return c;
}

/* ncclKernel_AllReduce..., ncclDevKernel_..., rcclKernel..., "void ncclKernel...": not a word that
 * only contains it. */
static bool nccl_kernel(const struct lg_slice *s)
{
	for (uint32_t i = 0; i + 10 <= s->n; i++) {
		char c = (char)(s->p[i] | 32);

		if ((c == 'n' || c == 'r') && (!strncasecmp(s->p + i + 1, "cclKernel", 9) ||
					       (i + 13 <= s->n &&
						!strncasecmp(s->p + i + 1, "cclDevKernel", 12))))
			return !i || (unsigned char)((s->p[i - 1] | 32) - 'a') > 25;
	}
	return LG_SLICE_STARTS(s, "rccl");
}

static bool has(const struct lg_slice *s, const char *word)
{
	return memmem(s->p, s->n, word, strlen(word));
}

struct kin_class kin_classify(struct kineto *k, lg_str name, const struct lg_slice *s,
			      enum kin_cat cat)
{
	struct kin_class c = { 0 };
	size_t old = k->classes_cap;

	if (name >= old) {
		if (lg_grow(&k->classes, &k->classes_cap, (size_t)name + 1, sizeof c)) {
			k->failed = LG_E_NOMEM;
			return c;
		}
		memset(k->classes + old, 0, (k->classes_cap - old) * sizeof c);
	}
	/* A name may occur in two categories (an annotation and its copy on the GPU). */
	if (k->classes[name].known == cat + 1)
		return k->classes[name];
	switch (cat) {
	case KIN_OP:
	case KIN_NOTE:
		c = of_host(s, cat);
		break;
	case KIN_PYTHON:
		c.kind = LG_SPAN_PYTHON;
		break;
	case KIN_RUNTIME:
		c.kind = has(s, "Synchronize") ? LG_SPAN_WAIT : LG_SPAN_RUNTIME;
		break;
	case KIN_KERNEL:
		c.kind = nccl_kernel(s) ? LG_SPAN_COLLECTIVE : LG_SPAN_KERNEL;
		/* ROCm reports its copies as kernels of these names. */
		if (LG_SLICE_STARTS(s, "Memcpy") || LG_SLICE_STARTS(s, "Memset") ||
		    LG_SLICE_STARTS(s, "CopyHostToDevice") || LG_SLICE_STARTS(s, "CopyDeviceToHost") ||
		    LG_SLICE_STARTS(s, "CopyDeviceToDevice"))
			c.kind = LG_SPAN_COPY;
		break;
	case KIN_MEMCPY:
	case KIN_MEMSET:
		c.kind = LG_SPAN_COPY;
		break;
	case KIN_SYNC:
		c.kind = LG_SPAN_WAIT;
		c.flags = has(s, "Wait Event") ? KIN_ASYNC : 0;
		break;
	case KIN_GPU_NOTE:
		c.kind = LG_SPAN_NOTE;
		break;
	case KIN_OVERHEAD:
		c.kind = LG_SPAN_OVERHEAD;
		break;
	default:
		c.kind = LG_SPAN_OTHER;
	}
	c.known = (uint8_t)(cat + 1);
	k->classes[name] = c;
	return c;
}

/* "dir/file.py(LINE): function", "<built-in method ...>", "nn.Module: Linear_0". */
static lg_frm frame_of(struct kineto *k, const char *p, size_t n)
{
	struct lg_frame_row f = { .kind = LG_FRAME_PYTHON };
	const char *at = memmem(p, n, "): ", 3), *open = at;
	uint32_t line = 0, scale = 1;

	if (at)
		for (open = at; open > p && open[-1] >= '0' && open[-1] <= '9' && at - open < 9;) {
			open--;
			line += scale * (uint32_t)(*open - '0');
			scale *= 10;
		}
	if (at && open < at && open > p && open[-1] == '(') {
		f.file = lg_intern_n(k->b, p, (size_t)(open - 1 - p));
		f.dso = f.file;
		f.line = line;
		f.name = lg_intern_n(k->b, at + 3, n - (size_t)(at + 3 - p));
	} else {
		f.dso = lg_intern(k->b, "[python]");
		f.name = lg_intern_n(k->b, p, n);
	}
	return lg_intern_frame(k->b, &f);
}

lg_stk kin_python_frame(struct kineto *k, lg_str name)
{
	size_t old = k->frames_cap;
	char text[1024];
	struct lg_trace *t = lg_builder_trace(k->b);
	size_t n;

	if (name >= old) {
		if (lg_grow(&k->frames, &k->frames_cap, (size_t)name + 1, sizeof *k->frames)) {
			k->failed = LG_E_NOMEM;
			return 0;
		}
		memset(k->frames + old, 0, (k->frames_cap - old) * sizeof *k->frames);
	}
	if (k->frames[name])
		return k->frames[name];
	/* Out of the pool, which may move while strings are added. */
	n = strnlen(lg_string(t, name), sizeof text);
	memcpy(text, lg_string(t, name), n);
	return k->frames[name] = lg_intern_stack(k->b, 0, frame_of(k, text, n));
}

/* "inner.py(1): f;outer.py(2): g": the outermost is last. */
static lg_stk call_stack(struct kineto *k, const struct lg_slice *s)
{
	enum { DEPTH_MAX = 256 };
	const char *p = s->p, *end = p + s->n;
	lg_stk stk = 0;

	for (int depth = 0; end > p && depth < DEPTH_MAX; depth++) {
		const char *from = memrchr(p, ';', (size_t)(end - p));

		from = from ? from + 1 : p;
		if (end > from)
			stk = lg_intern_stack(k->b, stk, frame_of(k, from, (size_t)(end - from)));
		end = from > p ? from - 1 : p;
	}
	return stk;
}

lg_stk kin_call_stack(struct kineto *k, const struct lg_slice *s)
{
	enum { TEXT_MAX = 1 << 14 };
	struct kin_stack *m;

	if (s->n > TEXT_MAX)
		return call_stack(k, s);
	if (!k->stacks)
		k->stacks = lg_calloc(KIN_STACKS, sizeof *k->stacks);
	if (!k->stacks) {
		k->failed = LG_E_NOMEM;
		return 0;
	}
	m = &k->stacks[XXH3_64bits_withSeed(s->p, s->n, lg_map_secret) % KIN_STACKS];
	if (m->stack && m->n == s->n && !memcmp(m->text, s->p, s->n))
		return m->stack;
	m->stack = 0;
	if (lg_grow(&m->text, &m->cap, s->n, 1)) {
		k->failed = LG_E_NOMEM;
		return 0;
	}
	memcpy(m->text, s->p, s->n);
	m->n = s->n;
	return m->stack = call_stack(k, s);
}
