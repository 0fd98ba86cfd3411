/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_bulk.c - flame charts in parts that are written in parallel.
 *
 * The walk puts one batch of threads together while the parts of the batch before are written, by the
 * output's own thread, and by this one where that does not keep up (lg_out_later()).
 *
 * I1  The parts of a batch are not changed from the first lg_out_later() to lg_out_settle().
 */
#include "base/alloc.h"
#include "report/timeline_internal.h"

enum { BATCH_PARTS = 1 << 10, AT_ONCE = 256 };

static void write_slices(const struct tl_part *p, struct lg_pen *pen)
{
	const struct lg_timeline *c = p->c;
	const struct lg_tl_slice *flames = p->batch->flames;
	struct lg_tl_slice slice[AT_ONCE];
	size_t n = 0;

	for (size_t i = p->from; i < p->to; i++) {
		slice[n] = flames[i];
		if (!tl_clip(c, &slice[n].ts, &slice[n].end))
			continue;
		if (++n == AT_ONCE) {
			c->sink->slices(c->self, pen, &p->track, slice, n);
			n = 0;
		}
	}
	c->sink->slices(c->self, pen, &p->track, slice, n);
}

static void make(void *arg, struct lg_pen *pen)
{
	const struct tl_part *p = arg;

	if (p->c->sink->turn)
		tl_turns_write(p, pen);
	else
		write_slices(p, pen);
}

void tl_part_add(struct lg_timeline *c, const struct tl_part *part)
{
	struct tl_batch *b = &c->batch[c->now];

	if (lg_grow(&b->part, &b->part_cap, b->n_part + 1, sizeof *b->part)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	b->part[b->n_part] = *part;
	b->part[b->n_part].c = c;
	b->part[b->n_part++].batch = b;
}

void tl_batch_write(struct lg_timeline *c, bool all)
{
	struct tl_batch *b = &c->batch[c->now];
	struct lg_out *o = c->sink->out ? c->sink->out(c->self) : NULL;

	if (!o || (!all && b->n < c->batch_size && b->n_part < BATCH_PARTS))
		return;
	lg_out_settle(o); /* the other batch */
	if (b->n_part && !c->failed) {
		c->sink->flush(c->self);
		for (size_t i = 0; i < b->n_part; i++)
			lg_out_later(o, make, &b->part[i]);
	}
	if (all)
		lg_out_settle(o);
	c->now ^= 1;
	if (c->batch_size < TL_BATCH)
		c->batch_size *= 2; /* the first ones are small: the other thread waits for them */
	b = &c->batch[c->now];
	b->n = b->n_part = 0;
}
