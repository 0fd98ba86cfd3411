/* SPDX-License-Identifier: Apache-2.0 */
/* chrome_samples.c - "samples" and "stackFrames" of the object form: V8's and Hermes' profiles. */
#include <stdlib.h>

#include "base/alloc.h"
#include "import/chromejson/chrome_import.h"

enum { DEPTH_MAX = 512 };

struct frame {
	lg_frm frame;
	uint32_t parent; /* index + 1 into frames; 0 = outermost */
	lg_str parent_id;
	lg_stk stack;    /* once it is built */
};

struct frames {
	struct frame *list;
	size_t n, cap;
	struct lg_map by_id; /* lg_str of the id -> index + 1 */
};

static lg_str field(struct chrome *c, const struct lg_slice *obj, const char *want)
{
	struct lg_slice key, v;
	const char *p = obj->p + 1, *end = obj->p + obj->n;

	c->k.buf_n = 0;
	while (lg_json_member(&p, end, &key, &v))
		if (lg_slice_is(&key, want, strlen(want)))
			return kin_text(&c->k, &v);
	return 0;
}

static int read_frames(struct chrome *c, struct frames *f)
{
	struct lg_slice id, v;
	const char *p = c->frames + 1, *end = c->frames + c->n_frames;
	lg_str dso = lg_intern(c->k.b, "[trace]");

	while (lg_json_member(&p, end, &id, &v)) {
		struct lg_frame_row row = { .dso = dso, .kind = LG_FRAME_USER };

		if (v.kind != '{')
			continue;
		row.name = field(c, &v, "name");
		if (lg_grow(&f->list, &f->cap, f->n + 1, sizeof *f->list))
			return LG_E_NOMEM;
		f->list[f->n++] = (struct frame){ .frame = lg_intern_frame(c->k.b, &row),
						  .parent_id = field(c, &v, "parent") };
		if (lg_map_set(&f->by_id, kin_text(&c->k, &id), (uint32_t)f->n))
			return LG_E_NOMEM;
	}
	for (size_t i = 0; i < f->n; i++)
		f->list[i].parent = f->list[i].parent_id
					    ? lg_map_get(&f->by_id, f->list[i].parent_id)
					    : 0;
	return 0;
}

/* Frames name their callers; a loop of them ends at DEPTH_MAX. */
static lg_stk stack_of(struct chrome *c, struct frames *f, uint32_t at)
{
	uint32_t chain[DEPTH_MAX];
	lg_stk stk = 0;
	int n = 0;

	for (; at && n < DEPTH_MAX; at = f->list[at - 1].parent) {
		if (f->list[at - 1].stack) {
			stk = f->list[at - 1].stack;
			break;
		}
		chain[n++] = at;
	}
	while (n--) {
		struct frame *fr = &f->list[chain[n] - 1];

		stk = lg_intern_stack(c->k.b, stk, fr->frame);
		fr->stack = stk;
	}
	return stk;
}

static void sample(struct chrome *c, struct frames *f, const struct lg_slice *obj)
{
	struct lg_event e = { 0 };
	struct lg_sample_row r = { .cpu = -1, .weight = 1 };
	struct lg_slice key, v;
	const char *p = obj->p + 1, *end = obj->p + obj->n;
	struct kin_key *t;
	int64_t dur, weight;

	while (lg_json_member(&p, end, &key, &v)) {
		if (LG_SLICE_IS(&key, "pid"))
			e.pid = v;
		else if (LG_SLICE_IS(&key, "tid"))
			e.tid = v;
		else if (LG_SLICE_IS(&key, "ts"))
			e.ts = v;
		else if (LG_SLICE_IS(&key, "sf"))
			e.sf = v;
		else if (LG_SLICE_IS(&key, "name"))
			e.name = v;
		else if (LG_SLICE_IS(&key, "weight") && lg_json_fixed(&v, 0, &weight) && weight > 0)
			r.weight = (uint64_t)weight;
	}
	lg_event_times(&e);
	if (!kin_times(&c->k, &e, &r.ts, &dur))
		return;
	c->k.buf_n = 0;
	t = kin_thread(&c->k, &e, KIN_UNKNOWN);
	r.thr = t ? t->id : 0;
	r.event = kin_text(&c->k, &e.name);
	if (e.sf.p)
		r.stack = stack_of(c, f, lg_map_get(&f->by_id, kin_text(&c->k, &e.sf)));
	lg_add_sample(c->k.b, &r);
}

void chrome_samples(struct chrome *c)
{
	struct frames f = { 0 };
	struct lg_slice v;
	const char *p, *end;

	if (!c->samples)
		return;
	if (c->frames && read_frames(c, &f))
		c->k.failed = LG_E_NOMEM;
	p = c->samples + 1;
	end = c->samples + c->n_samples;
	while (!c->k.failed && lg_json_element(&p, end, &v))
		if (v.kind == '{')
			sample(c, &f, &v);
	lg_map_done(&f.by_id);
	lg_free(f.list);
}
