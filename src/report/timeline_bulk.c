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

enum { BATCH_PARTS = 1 << 10 };

static void make(void *arg, struct lg_pen *pen)
{
	tl_turns_write(arg, pen);
}

void tl_part_add(struct lg_timeline *c, const struct tl_part *part)
{
	struct tl_batch *b = &c->batch[c->now];

	if (lg_grow(&b->part, &b->part_cap, b->n_part + 1, sizeof *b->part)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	b->part[b->n_part] = *part;
	b->part[b->n_part++].c = c;
}

void tl_batch_write(struct lg_timeline *c, bool all)
{
	struct tl_batch *b = &c->batch[c->now];
	struct lg_out *o = c->sink->out(c->self);

	if (!all && b->n < c->batch_size && b->n_part < BATCH_PARTS)
		return;
	lg_out_settle(o); /* the other batch */
	if (b->n_part && !c->failed) {
		if (c->sink->flush)
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
