/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_bulk.c - flame charts in parts that are written in parallel.
 *
 * Putting slices together needs the samples of a thread in order; writing them needs only the slices.
 * So the walk puts one batch of threads together while the parts of the batch before are written,
 * by the output's own thread, and by this one where that does not keep up (lg_out_later()).
 *
 * I1  The parts of a batch are not changed from the first lg_out_later() to lg_out_settle().
 * I2  What a part finds open is what the one before leaves open: both ask opens().
 */
#include "base/alloc.h"
#include "report/timeline_internal.h"

enum { BATCH_PARTS = 1 << 10, AT_ONCE = 256, DEPTH_MAX = 512 };

/*
 * The slices that are open in front of a part's first flame. Those that end by the start of the
 * flame before it were closed in front of that one.
 */
static size_t opens(const struct tl_part *p, int64_t *end)
{
	const struct tl_batch *b = p->batch;
	size_t n = 0;

	for (size_t i = 0; i < p->n_open && n < DEPTH_MAX; i++) {
		size_t f = b->open[p->open + i];
		struct lg_tl_slice s = b->flames[f];

		if (tl_clip(p->c, &s.ts, &s.end) && (f + 1 == p->from || s.end > b->flames[p->from - 1].ts))
			end[n++] = s.end;
	}
	return n;
}

static void write_samples(const struct tl_part *p, struct lg_pen *pen)
{
	const struct lg_timeline *c = p->c;
	const struct lg_sample_tab *s = &c->t->sample;
	uint32_t rows[AT_ONCE];
	size_t n = 0;

	for (uint32_t i = p->sample; i < p->samples; i++) {
		uint32_t row = c->x->sample[i];

		if (!tl_is_tick(c->t, row) || s->ts[row] < c->w.from || s->ts[row] >= c->w.to)
			continue;
		rows[n++] = row;
		if (n == AT_ONCE) {
			c->sink->samples(c->self, pen, p->track.thr, rows, n);
			n = 0;
		}
	}
	if (n)
		c->sink->samples(c->self, pen, p->track.thr, rows, n);
}

static void make(void *arg, struct lg_pen *pen)
{
	const struct tl_part *p = arg;
	const struct lg_timeline *c = p->c;
	struct lg_tl_slice slice[AT_ONCE];
	int64_t end[DEPTH_MAX + 1], next[DEPTH_MAX + 1];
	struct lg_tl_open open = { .end = end, .n = opens(p, end) };
	size_t n = 0;

	if (c->sink->start && (p->from < p->to || open.n))
		c->sink->start(c->self, pen, &p->track);
	if (c->sink->samples)
		write_samples(p, pen);
	for (size_t i = p->from; i < p->to; i++) {
		slice[n] = p->batch->flames[i];
		if (!tl_clip(c, &slice[n].ts, &slice[n].end))
			continue;
		if (++n == AT_ONCE) {
			c->sink->slices(c->self, pen, &p->track, slice, n, &open);
			n = 0;
		}
	}
	c->sink->slices(c->self, pen, &p->track, slice, n, &open);
	c->sink->close(c->self, pen, &p->track, &open, p->more ? opens(p + 1, next) : 0);
}

void tl_part_end(struct lg_timeline *c, uint32_t sample, const size_t *open, size_t n_open)
{
	struct tl_batch *b = &c->batch[c->now];
	struct tl_part *last;

	if (lg_grow(&b->part, &b->part_cap, b->n_part + 1, sizeof *b->part) ||
	    lg_grow(&b->open, &b->open_cap, b->n_open + n_open, sizeof *b->open)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	last = b->n_part ? &b->part[b->n_part - 1] : NULL;
	if (last && last->to == SIZE_MAX) {
		last->to = b->n;
		last->samples = sample;
		last->more = true;
	}
	b->part[b->n_part++] = (struct tl_part){ .c = c, .batch = b, .from = b->n, .to = SIZE_MAX,
						 .open = b->n_open, .n_open = n_open, .sample = sample };
	for (size_t i = 0; i < n_open; i++)
		b->open[b->n_open++] = (uint32_t)open[i];
}

void tl_parts_end(struct lg_timeline *c, size_t first_part, const struct lg_tl_track *track,
		  uint32_t samples)
{
	struct tl_batch *b = &c->batch[c->now];

	for (size_t i = first_part; i < b->n_part; i++)
		b->part[i].track = *track;
	b->part[b->n_part - 1].to = b->n;
	b->part[b->n_part - 1].samples = samples;
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
	b->n = b->n_part = b->n_open = 0;
}
