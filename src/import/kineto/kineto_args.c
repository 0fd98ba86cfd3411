/* SPDX-License-Identifier: Apache-2.0 */
/* kineto_args.c - the arguments that analyses need, as "key=value" text; the rest is for drawings. */
#include "base/alloc.h"
#include "import/import.h"
#include "import/kineto/kineto_import.h"

/* The longest value kept: Module Hierarchy and shapes of big tensor lists are cut. */
enum { VALUE_MAX = 2048, KEY_MAX = 64 };

#define MORE " ..." /* of what is cut */

/* v, or as many of its first bytes as `most` holds that are whole characters and whole escapes. */
static struct lg_slice cut_to(const struct lg_slice *v, size_t most)
{
	struct lg_slice cut = *v;
	size_t n = 0;

	if (v->n <= most)
		return cut;
	for (size_t i = 0; i <= most;) {
		n = i;
		i += v->esc && v->p[i] == '\\' ? v->p[i + 1] == 'u' ? 6 : 2 : 1;
		while (i < v->n && ((unsigned char)v->p[i] & 0xc0) == 0x80)
			i++;
	}
	cut.n = (uint32_t)n;
	return cut;
}

static void put(struct kineto *k, const char *key, const struct lg_slice *v, bool bare)
{
	struct lg_slice cut = cut_to(v, VALUE_MAX);
	size_t n = strlen(key), len = cut.n;
	char *o;

	if (!v->n || (v->kind == 'n' && LG_SLICE_IS(v, "null")) ||
	    (v->n == 2 && v->kind == '[')) /* [] */
		return;
	if (lg_grow(&k->buf, &k->buf_cap, k->buf_n + n + len + 2 + sizeof MORE, 1)) {
		k->failed = LG_E_NOMEM;
		return;
	}
	o = k->buf + k->buf_n;
	if (k->buf_n)
		*o++ = '\t';
	memcpy(o, key, n);
	o += n;
	if (bare) { /* grid=4,1,1 */
		for (size_t i = 0; i < len; i++)
			if (v->p[i] != '[' && v->p[i] != ']' && v->p[i] != ' ')
				*o++ = v->p[i];
	} else if (v->esc) {
		o += lg_json_decode(&cut, o);
	} else {
		memcpy(o, v->p, len);
		o += len;
	}
	if (len < v->n && !bare)
		o = stpcpy(o, MORE);
	k->buf_n = (size_t)(o - k->buf);
}

bool lg_import_keeps_all;

/* As put(), under the name that the file gives it; what would part pairs becomes a space. */
static void put_own(struct kineto *k, const struct lg_slice *key, const struct lg_slice *v)
{
	struct lg_slice cut = cut_to(key, KEY_MAX);
	char name[KEY_MAX + 2];
	size_t from = k->buf_n, n = cut.n;

	if (!n)
		return;
	n = lg_json_decode(&cut, name);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == '=')
			name[i] = '_';
	memcpy(name + n, "=", 2);
	put(k, name, v, false);
	for (size_t i = from ? from + 1 : 0; i < k->buf_n; i++)
		if ((unsigned char)k->buf[i] < 0x20)
			k->buf[i] = ' ';
}

static uint32_t dtype_bytes(const struct lg_slice *s)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = {
		{ "Float", 4 },	  { "BFloat16", 2 }, { "Half", 2 },  { "Double", 8 },
		{ "Long", 8 },	  { "Int", 4 },	     { "Short", 2 }, { "Byte", 1 },
		{ "Char", 1 },	  { "Bool", 1 },     { "ComplexFloat", 8 },
		{ "ComplexDouble", 16 }, { "Float8_e4m3fn", 1 }, { "Float8_e5m2", 1 },
	};

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (lg_slice_is(s, types[i].name, strlen(types[i].name)))
			return types[i].bytes;
	return 0;
}

/* Who is asked for an argument. */
enum {
	OF_GPU = 1,
	OF_HOST = 2,
	OF_COMMS = 4, /* collectives: record_param_comms and NCCL kernels */
	OF_MEMORY = 8 /* the allocator's reports */
};

/* As the profiler spells it, on what it is looked at, and the key it gets here (NULL: not kept as text). */
#define ARGS(X)                                                                                             \
	X(GRID, "grid", OF_GPU, "grid=")                                                                    \
	X(BLOCK, "block", OF_GPU, "block=")                                                                 \
	X(BYTES, "bytes", OF_GPU, NULL)                                                                     \
	X(STREAM, "stream", OF_GPU, NULL)                                                                   \
	X(GRAPH, "graph id", OF_GPU, "graph=")                                                              \
	X(PRIORITY, "priority", OF_GPU, "prio=")                                                            \
	X(CORRELATION, "correlation", OF_GPU, NULL)                                                         \
	X(SHARED, "shared memory", OF_GPU, "smem=")                                                         \
	X(WAIT_STREAM, "wait_on_stream", OF_GPU, "wait_stream=")                                            \
	X(REGISTERS, "registers per thread", OF_GPU, "regs=")                                               \
	X(OCCUPANCY, "est. achieved occupancy %", OF_GPU, "occ=")                                           \
	X(WAIT_CALL, "wait_on_cuda_event_record_corr_id", OF_GPU, "wait_corr=")                             \
	X(DIMS, "Input Dims", OF_HOST, "dims=")                                                             \
	X(TYPE, "Input type", OF_HOST, "types=")                                                            \
	X(TYPES, "Input Types", OF_HOST, "types=")                                                          \
	X(CALL_STACK, "Call stack", OF_HOST, NULL)                                                          \
	X(FORWARD, "Fwd thread id", OF_HOST, "fwd=")                                                        \
	X(INPUTS, "Concrete Inputs", OF_HOST, "inputs=")                                                    \
	X(SEQUENCE, "Sequence number", OF_HOST, NULL)                                                       \
	X(MODULE, "Module Hierarchy", OF_HOST, "module=")                                                   \
	X(COLL, "Collective name", OF_COMMS, "coll=")                                                       \
	X(DTYPE, "dtype", OF_COMMS, "dtype=")                                                               \
	X(NELEMS_IN, "In msg nelems", OF_COMMS, "in=")                                                      \
	X(NELEMS_OUT, "Out msg nelems", OF_COMMS, "out=")                                                   \
	X(SIZE, "Group size", OF_COMMS, "size=")                                                            \
	X(GROUP, "Process Group Name", OF_COMMS, "pg=")                                                     \
	X(GROUP_IS, "Process Group Description", OF_COMMS, "pgdesc=")                                       \
	X(RANKS, "Process Group Ranks", OF_COMMS, "ranks=")                                                 \
	X(SEQ, "Seq", OF_COMMS, "seq=")                                                                     \
	X(SRC, "Src Rank", OF_COMMS, "src=")                                                                \
	X(DST, "Dst Rank", OF_COMMS, "dst=")                                                                \
	X(SPLIT_IN, "In split size", OF_COMMS, "insplit=")                                                  \
	X(SPLIT_OUT, "Out split size", OF_COMMS, "outsplit=")                                               \
	X(CHANGE, "Bytes", OF_MEMORY, NULL)                                                                 \
	X(ALLOCATED, "Total Allocated", OF_MEMORY, NULL)                                                    \
	X(RESERVED, "Total Reserved", OF_MEMORY, NULL)                                                      \
	X(DEVICE, "Device Id", OF_MEMORY, NULL)                                                             \
	X(DEVICE_TYPE, "Device Type", OF_MEMORY, NULL)

#define X(id, json, of, key) ARG_##id,
enum {
	ARG_BEGIN, ARG_BEGIN_MEMORY, ARG_END,
	ARGS(X)
	ARG_OTHER /* and those behind it: what follows differs with the key */
};
#undef X
_Static_assert((int)ARG_OTHER < (int)KIN_ARGS, "one shape for each argument");

static const struct arg {
	const char *json;
	const char *key;
	uint8_t n, of;
} args[KIN_ARGS] = {
#define X(id, json, of, key) [ARG_##id] = { json, key, sizeof(json) - 1, of },
	ARGS(X)
#undef X
};

static uint8_t arg_of(const struct lg_slice *key)
{
	unsigned spread = key->n;

	for (size_t i = ARG_END + 1; i < ARG_OTHER; i++)
		if (key->n == args[i].n && !memcmp(key->p, args[i].json, key->n))
			return (uint8_t)i;
	if (key->n)
		spread += 5u * (unsigned char)key->p[0] + 3u * (unsigned char)key->p[key->n / 2];
	return (uint8_t)(ARG_OTHER + spread % (KIN_ARGS - ARG_OTHER));
}

/* As lg_json_member(), but which argument it is in place of the key: *what, of the last one before. */
static inline __attribute__((always_inline)) bool next_arg(struct kineto *k, const char **pp, const char *end,
								 uint8_t *what, struct lg_slice *v)
{
	struct lg_shape *shape = &k->shape[*what];
	const struct lg_shape_text *seen;
	const char *p = *pp, *q;
	struct lg_slice key;

	seen = lg_shape_find(shape, p);
	if (!seen) {
		const char *from = p;

		if (!lg_json_member(pp, end, &key, v)) {
			p = lg_json_skip(p, end);
			if (p < end && *p == '}')
				lg_shape_keep(shape, from, p + 1, ARG_END);
			return false;
		}
		*what = arg_of(&key);
		lg_shape_keep(shape, from, v->p, *what);
		return true;
	}
	if (seen->what == ARG_END)
		return false;
	p += seen->n;
	*what = seen->what;
	v->p = p;
	v->esc = 0;
	if (seen->quote) {
		v->kind = '"';
		q = lg_json_string_end(p, end, &v->esc);
		if (!q)
			return false;
		*pp = q + 1;
	} else if (*p == '[' || *p == '{' || *p == '"') {
		*pp = lg_json_value(p, end, v);
		return *pp != NULL;
	} else {
		v->kind = (uint8_t)*p;
		*pp = q = lg_json_atom(p, end);
		if (!q)
			return false;
	}
	v->n = (uint32_t)(q - p);
	return true;
}

static void take(struct kineto *k, uint8_t what, const struct lg_slice *v, struct kin_class c,
		 struct kin_args *a)
{
	switch (what) {
	case ARG_CORRELATION:
		a->has_correlation = lg_json_decimal(v, 0, &a->correlation);
		return;
	case ARG_BYTES:
		a->has_bytes = lg_json_decimal(v, 0, &a->bytes);
		return;
	case ARG_STREAM:
		a->has_stream = lg_json_decimal(v, 0, &a->stream);
		return;
	case ARG_SEQUENCE:
		a->has_sequence = lg_json_decimal(v, 0, &a->sequence);
		return;
	case ARG_CALL_STACK:
		if (v->n)
			a->stack = kin_call_stack(k, v);
		return;
	case ARG_GRAPH:
	case ARG_PRIORITY:
	case ARG_FORWARD:
		if (LG_SLICE_IS(v, "0"))
			return;
		break;
	case ARG_INPUTS:
		if (!(c.flags & KIN_INPUTS))
			return;
		break;
	case ARG_DTYPE:
		a->elem_bytes = dtype_bytes(v);
		break;
	case ARG_NELEMS_IN:
		a->has_in = lg_json_decimal(v, 0, &a->nelems_in);
		break;
	case ARG_NELEMS_OUT:
		a->has_out = lg_json_decimal(v, 0, &a->nelems_out);
		break;
	case ARG_GROUP:
		put(k, args[what].key, v, false);
		a->group = kin_text(k, v);
		return;
	case ARG_SEQ:
		a->has_seq = lg_json_decimal(v, 0, &a->seq);
		break;
	default:
		break;
	}
	put(k, args[what].key, v, what == ARG_GRID || what == ARG_BLOCK);
}

/* What take() was not asked for, or did not keep. */
static void rest(struct kineto *k, const struct lg_event *e, enum kin_cat cat, struct kin_class c, uint8_t of)
{
	const char *p = e->args.p + 1, *end = e->args.p + e->args.n;
	struct lg_slice key, v;

	while (lg_json_member(&p, end, &key, &v)) {
		uint8_t what = arg_of(&key);
		bool looked_at = what < ARG_OTHER && args[what].of & of && cat != KIN_RUNTIME;

		if (looked_at && (args[what].key ? what != ARG_INPUTS || c.flags & KIN_INPUTS :
						   what == ARG_CALL_STACK || what == ARG_BYTES))
			continue;
		put_own(k, &key, &v);
	}
}

void kin_all_args(struct kineto *k, const struct lg_event *e)
{
	const char *p, *end;
	struct lg_slice key, v;

	if (!lg_import_keeps_all || e->args.kind != '{')
		return;
	p = e->args.p + 1;
	end = e->args.p + e->args.n;
	while (lg_json_member(&p, end, &key, &v))
		put_own(k, &key, &v);
}

lg_str kin_args(struct kineto *k, const struct lg_event *e, enum kin_cat cat, struct kin_class c,
		struct kin_args *a)
{
	struct lg_slice v;
	const char *p, *end;
	bool gpu = cat == KIN_KERNEL || cat == KIN_MEMCPY || cat == KIN_MEMSET || cat == KIN_SYNC;
	uint8_t of = gpu ? OF_GPU : OF_HOST, what = ARG_BEGIN;

	k->buf_n = 0;
	if (e->args.kind != '{')
		return 0;
	if (c.flags & KIN_COMMS || (gpu && c.kind == LG_SPAN_COLLECTIVE))
		of |= OF_COMMS;
	p = e->args.p + 1;
	end = e->args.p + e->args.n;
	while (next_arg(k, &p, end, &what, &v)) {
		if (cat == KIN_RUNTIME) {
			if (what == ARG_CORRELATION) {
				take(k, what, &v, c, a);
				break;
			}
			continue;
		}
		if (args[what].of & of)
			take(k, what, &v, c, a);
	}
	if (lg_import_keeps_all)
		rest(k, e, cat, c, of);
	if (!a->has_bytes && a->elem_bytes && (a->has_in || a->has_out)) {
		int64_t n = a->nelems_in > a->nelems_out ? a->nelems_in : a->nelems_out;

		if (n >= 0 && n < INT64_MAX / 16) {
			a->bytes = n * a->elem_bytes;
			a->has_bytes = true;
		}
	}
	return k->buf_n ? kin_text(k, &(struct lg_slice){ .p = k->buf, .n = (uint32_t)k->buf_n }) : 0;
}

void kin_memory_args(struct kineto *k, const struct lg_event *e, struct kin_memory *ret)
{
	const char *p = e->args.p + 1, *end = e->args.p + e->args.n;
	uint8_t what = ARG_BEGIN_MEMORY;
	struct lg_slice v;

	*ret = (struct kin_memory){ .allocated = -1, .reserved = -1, .device = -1 };
	while (next_arg(k, &p, end, &what, &v)) {
		if (what == ARG_CHANGE)
			(void)lg_json_whole(&v, &ret->change);
		else if (what == ARG_ALLOCATED)
			(void)lg_json_whole(&v, &ret->allocated);
		else if (what == ARG_RESERVED)
			(void)lg_json_whole(&v, &ret->reserved);
		else if (what == ARG_DEVICE)
			(void)lg_json_decimal(&v, 0, &ret->device);
		else if (what == ARG_DEVICE_TYPE)
			(void)lg_json_decimal(&v, 0, &ret->type);
	}
}
