/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same_rows.c - rows that count twice make a rank wait for its own copy.
 *
 * Some hundred rows of each table, spread over all of it, are compared by their times to the nanosecond: no
 * two ranks do a hundred things at the same one. That copies have different names, are packed, or were
 * written by different tools does not matter.
 */
#include "import/same_rows.h"

#include <string.h>

#include "base/map.h"

enum { ROWS_MIN = 8, LOOKED_AT = 256 };

static uint64_t mix(uint64_t h, int64_t v)
{
	return lg_mix64(h ^ (uint64_t)v);
}

static uint64_t times(uint64_t h, const int64_t *ts, size_t n)
{
	size_t by = n / LOOKED_AT + 1;

	for (size_t i = 0; i < n; i += by)
		h = mix(h, ts[i]);
	return h;
}

struct lg_rows_seen lg_rows_of(const struct lg_trace *t)
{
	struct lg_rows_seen r = { .n = { t->state.n, t->sample.n, t->span.n, t->counter.n, t->process.n,
					 t->thread.n },
				  .first = t->first, .last = t->last };
	size_t by = t->counter.n / LOOKED_AT + 1;

	for (size_t p = 1; p < t->process.n; p++)
		r.hash = mix(mix(r.hash, t->process.pid[p]), t->process.rank[p]);
	r.hash = times(r.hash, t->state.ts, t->state.n);
	r.hash = times(r.hash, t->sample.ts, t->sample.n);
	r.hash = times(times(r.hash, t->span.ts, t->span.n), t->span.dur, t->span.n);
	r.hash = times(r.hash, t->counter.ts, t->counter.n);
	for (size_t i = 0; i < t->counter.n; i += by) {
		int64_t bits;

		memcpy(&bits, &t->counter.value[i], sizeof bits);
		r.hash = mix(r.hash, bits);
	}
	return r;
}

bool lg_same_rows(const struct lg_rows_seen *a, const struct lg_rows_seen *b)
{
	for (size_t i = 0; i < sizeof a->n / sizeof *a->n; i++)
		if (a->n[i] != b->n[i])
			return false;
	return a->n[0] + a->n[1] + a->n[2] + a->n[3] >= ROWS_MIN && a->first == b->first &&
	       a->last == b->last && a->hash == b->hash;
}
