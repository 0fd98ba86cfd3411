/* SPDX-License-Identifier: Apache-2.0 */
/* kineto_args.c - the arguments that analyses need, as "key=value" text; the rest is passed over. */
#include "base/alloc.h"
#include "import/kineto/kineto_import.h"

/* The longest value kept: Module Hierarchy and shapes of big tensor lists are cut. */
enum { VALUE_MAX = 2048 };

static void put(struct kineto *k, const char *key, const struct lg_slice *v, bool bare)
{
	size_t n = strlen(key), len = v->n < VALUE_MAX ? v->n : VALUE_MAX;
	struct lg_slice cut = { .p = v->p, .n = (uint32_t)len };
	char *o;

	if (!v->n || (v->kind == 'n' && LG_SLICE_IS(v, "null")) ||
	    (v->n == 2 && v->kind == '[')) /* [] */
		return;
	if (lg_grow(&k->buf, &k->buf_cap, k->buf_n + n + len + 2, 1)) {
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
	k->buf_n = (size_t)(o - k->buf);
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

#define IS(literal) LG_SLICE_IS(&key, literal)

/* Keys of collectives, on record_param_comms and on NCCL kernels. */
static void comms(struct kineto *k, const struct lg_slice *pk, const struct lg_slice *v,
		  struct kin_args *a)
{
	const struct lg_slice key = *pk;

	if (IS("Collective name")) {
		put(k, "coll=", v, false);
	} else if (IS("dtype")) {
		put(k, "dtype=", v, false);
		a->elem_bytes = dtype_bytes(v);
	} else if (IS("In msg nelems")) {
		put(k, "in=", v, false);
		a->has_in = lg_json_fixed(v, 0, &a->nelems_in);
	} else if (IS("Out msg nelems")) {
		put(k, "out=", v, false);
		a->has_out = lg_json_fixed(v, 0, &a->nelems_out);
	} else if (IS("Group size")) {
		put(k, "size=", v, false);
	} else if (IS("Process Group Name")) {
		put(k, "pg=", v, false);
		a->group = kin_text(k, v);
	} else if (IS("Process Group Description")) {
		put(k, "pgdesc=", v, false);
	} else if (IS("Process Group Ranks")) {
		put(k, "ranks=", v, false);
	} else if (IS("Seq")) {
		put(k, "seq=", v, false);
		a->has_seq = lg_json_fixed(v, 0, &a->seq);
	} else if (IS("Src Rank")) {
		put(k, "src=", v, false);
	} else if (IS("Dst Rank")) {
		put(k, "dst=", v, false);
	} else if (IS("In split size")) {
		put(k, "insplit=", v, false);
	} else if (IS("Out split size")) {
		put(k, "outsplit=", v, false);
	}
}

static void of_gpu(struct kineto *k, const struct lg_slice *pk, const struct lg_slice *v,
		   struct kin_args *a)
{
	const struct lg_slice key = *pk;

	switch (key.n) {
	case 4:
		if (IS("grid"))
			put(k, "grid=", v, true);
		break;
	case 5:
		if (IS("block"))
			put(k, "block=", v, true);
		else if (IS("bytes"))
			a->has_bytes = lg_json_fixed(v, 0, &a->bytes);
		break;
	case 6:
		if (IS("stream"))
			a->has_stream = lg_json_fixed(v, 0, &a->stream);
		break;
	case 8:
		if (IS("graph id") && !LG_SLICE_IS(v, "0"))
			put(k, "graph=", v, false);
		else if (IS("priority") && !LG_SLICE_IS(v, "0"))
			put(k, "prio=", v, false);
		break;
	case 11:
		if (IS("correlation"))
			a->has_correlation = lg_json_fixed(v, 0, &a->correlation);
		break;
	case 13:
		if (IS("shared memory"))
			put(k, "smem=", v, false);
		break;
	case 14:
		if (IS("wait_on_stream"))
			put(k, "wait_stream=", v, false);
		break;
	case 20:
		if (IS("registers per thread"))
			put(k, "regs=", v, false);
		break;
	case 25:
		if (IS("est. achieved occupancy %"))
			put(k, "occ=", v, false);
		break;
	case 36:
		if (IS("wait_on_cuda_event_record_corr_id"))
			put(k, "wait_corr=", v, false);
		break;
	default:
		break;
	}
}

static void of_host(struct kineto *k, const struct lg_slice *pk, const struct lg_slice *v,
		    struct kin_class c, struct kin_args *a)
{
	const struct lg_slice key = *pk;

	switch (key.n) {
	case 10:
		if (IS("Input Dims"))
			put(k, "dims=", v, false);
		else if (IS("Input type"))
			put(k, "types=", v, false);
		else if (IS("Call stack") && v->n)
			a->stack = kin_call_stack(k, v);
		break;
	case 11:
		if (IS("Input Types"))
			put(k, "types=", v, false);
		break;
	case 13:
		if (IS("Fwd thread id") && !LG_SLICE_IS(v, "0"))
			put(k, "fwd=", v, false);
		break;
	case 15:
		if (IS("Concrete Inputs") && c.flags & KIN_INPUTS)
			put(k, "inputs=", v, false);
		else if (IS("Sequence number"))
			a->has_sequence = lg_json_fixed(v, 0, &a->sequence);
		break;
	case 16:
		if (IS("Module Hierarchy"))
			put(k, "module=", v, false);
		break;
	default:
		break;
	}
}

lg_str kin_args(struct kineto *k, const struct lg_event *e, enum kin_cat cat, struct kin_class c,
		struct kin_args *a)
{
	struct lg_slice key, v;
	const char *p, *end;
	bool gpu = cat == KIN_KERNEL || cat == KIN_MEMCPY || cat == KIN_MEMSET || cat == KIN_SYNC;

	k->buf_n = 0;
	if (e->args.kind != '{')
		return 0;
	p = e->args.p + 1;
	end = e->args.p + e->args.n;
	while (lg_json_member(&p, end, &key, &v)) {
		if (cat == KIN_RUNTIME) {
			if (IS("correlation")) {
				a->has_correlation = lg_json_fixed(&v, 0, &a->correlation);
				break;
			}
			continue;
		}
		if (gpu)
			of_gpu(k, &key, &v, a);
		else
			of_host(k, &key, &v, c, a);
		if (c.flags & KIN_COMMS || (gpu && c.kind == LG_SPAN_COLLECTIVE))
			comms(k, &key, &v, a);
	}
	if (!a->has_bytes && a->elem_bytes && (a->has_in || a->has_out)) {
		int64_t n = a->nelems_in > a->nelems_out ? a->nelems_in : a->nelems_out;

		if (n >= 0 && n < INT64_MAX / 16) {
			a->bytes = n * a->elem_bytes;
			a->has_bytes = true;
		}
	}
	return k->buf_n ? lg_intern_n(k->b, k->buf, k->buf_n) : 0;
}
