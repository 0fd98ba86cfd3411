/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chrome_pairs.c - begins meet their ends.
 *
 * Events of one thread may stand in any order in the file; they are sorted by time, those of one
 * moment stay as they were. An end closes the innermost open begin of its name; without a name the
 * innermost. Tracers that end spans in the wrong order thus still give each its own length.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "import/chromejson/chrome_import.h"

static int by_key_time(const void *pa, const void *pb)
{
	const struct chrome_half *a = pa, *b = pb;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	if (a->ts != b->ts)
		return a->ts < b->ts ? -1 : 1;
	return (a->order > b->order) - (a->order < b->order);
}

static void add_span(struct chrome *c, const struct chrome_half *h, int64_t dur)
{
	lg_add_span(c->k.b, &(struct lg_span_row){ .ts = h->ts,
						   .dur = dur,
						   .thr = h->track ? 0 : h->thr,
						   .track = h->track,
						   .kind = LG_SPAN_OTHER,
						   .name = h->name,
						   .args = h->args });
}

/* Open begins of the key at hand: indices into halves. */
struct open {
	size_t *at;
	size_t n, cap;
};

/* An end may stand before the begin of the same moment: a span without length. */
static int began_now(struct chrome *c, const struct chrome_half *e)
{
	enum { LOOK_MAX = 64 };
	struct chrome_half *h = c->halves + (e - c->halves) + 1;
	const struct chrome_half *last = c->halves + c->n_halves;

	for (int i = 0; i < LOOK_MAX && h < last && h->key == e->key && h->ts == e->ts; i++, h++)
		if (h->name == e->name && (h->ph == 'B' || h->ph == 'b' || h->ph == 'S')) {
			add_span(c, h, 0);
			h->ph = 0;
			return 1;
		}
	return 0;
}

static int ended(struct chrome *c, struct open *o, const struct chrome_half *e)
{
	enum { LOOK_MAX = 4096 }; /* hostile: many open begins, ends of other names */
	size_t i = o->n, seen = 0;

	while (i-- && seen++ < LOOK_MAX) {
		const struct chrome_half *b = &c->halves[o->at[i]];

		if (e->name && b->name != e->name)
			continue;
		add_span(c, b, e->ts - b->ts);
		memmove(&o->at[i], &o->at[i + 1], (o->n - i - 1) * sizeof *o->at);
		o->n--;
		return 0;
	}
	c->n_unmatched += !began_now(c, e);
	return 0;
}

static int one(struct chrome *c, struct open *o, size_t i)
{
	struct chrome_half *h = &c->halves[i];

	switch (h->ph) {
	case 0: /* paired with an end before it */
		return 0;
	case 'B':
	case 'b':
	case 'S':
		if (lg_grow(&o->at, &o->cap, o->n + 1, sizeof *o->at))
			return LG_E_NOMEM;
		o->at[o->n++] = i;
		return 0;
	case 'E':
	case 'e':
	case 'F':
		return ended(c, o, h);
	case 's':
		o->n = 0;
		if (lg_grow(&o->at, &o->cap, 1, sizeof *o->at))
			return LG_E_NOMEM;
		o->at[o->n++] = i;
		return 0;
	default: /* t, f: an arrow from the piece before */
		if (!o->n) {
			c->n_unmatched++;
			return 0;
		}
		lg_add_flow(c->k.b, &(struct lg_flow_row){ .ts = c->halves[o->at[0]].ts,
							   .ts_to = h->ts,
							   .thr = c->halves[o->at[0]].thr,
							   .thr_to = h->thr,
							   .kind = LG_FLOW_OTHER,
							   .id = h->key });
		if (h->ph == 't')
			o->at[0] = i;
		else
			o->n = 0;
		return 0;
	}
}

int chrome_pair(struct chrome *c)
{
	struct open o = { 0 };
	int rc = 0;

	if (c->n_halves)
		qsort(c->halves, c->n_halves, sizeof *c->halves, by_key_time);
	for (size_t i = 0; i < c->n_halves && !rc; i++) {
		rc = one(c, &o, i);
		if (i + 1 < c->n_halves && c->halves[i + 1].key == c->halves[i].key)
			continue;
		for (size_t j = 0; j < o.n; j++) {
			const struct chrome_half *h = &c->halves[o.at[j]];

			if (h->ph == 's')
				continue; /* an arrow to nowhere */
			add_span(c, h, -1);
			c->n_open++;
		}
		o.n = 0;
	}
	lg_free(o.at);
	return rc;
}
