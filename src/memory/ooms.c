/* SPDX-License-Identifier: Apache-2.0 */
/* ooms.c - requests that failed, and what was held then. */
#include "memory/parts.h"

enum { LOOKED_AT = 4 };

static int add_oom(struct lg_memory_work *w, struct lg_memory_device *d, uint32_t row)
{
	const struct lg_span_tab *s = &w->t->span;
	struct lg_memory_oom *o;
	struct lg_memory_held held;
	int rc;

	d->oom = lg_arena_room(w->a, d->oom, d->n_oom, sizeof *d->oom);
	if (!d->oom)
		return LG_E_NOMEM;
	o = &d->oom[d->n_oom++];
	*o = (struct lg_memory_oom){ .ts = s->ts[row],
				     .asked = s->bytes[row],
				     .device_free = s->object[row],
				     .stack = s->stack[row] };
	rc = lg_memory_held_at(w, d, o->ts, &held)
		     ?: lg_memory_pieces_at(w, d, o->ts, o->asked, &o->pieces);
	o->allocated = held.bytes;
	o->activations = held.by_kind[LG_MEMORY_ACTIVATIONS];
	o->temporaries = held.by_kind[LG_MEMORY_TEMPORARIES];
	return rc;
}

int lg_memory_find_ooms(struct lg_memory_work *w, struct lg_memory_device *d)
{
	int rc = 0;

	for (size_t i = 0; i < d->n_rows && !rc; i++) {
		if (lg_memory_row(w, d->rows[i]) != LG_MEM_OOM)
			continue;
		if (d->n_oom_all++ < LOOKED_AT)
			rc = add_oom(w, d, d->rows[i]);
	}
	return rc;
}
