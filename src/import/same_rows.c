/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same_rows.c - rows that count twice make a rank wait for its own copy.
 *
 * Some hundred rows of each table, spread over all of it, are compared by their times to the nanosecond: no
 * two ranks do a hundred things at the same one. That copies have different names, are packed, or were
 * written by different tools does not matter. Dumps of stacks have few rows and no times: of these all that
 * they say is compared. Nor do equal times prove anything where the reader made them up, as for lines of a
 * log without any: then names and settings are compared too. Errors and warnings are marks, and a file may
 * have one more than its like: all marks are compared, with their words.
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

static uint64_t words(uint64_t h, const char *text)
{
	h = mix(h, 0);
	for (; *text; text++)
		h = mix(h, *text);
	return h;
}

static uint64_t text(uint64_t h, const struct lg_trace *t, lg_str s)
{
	return words(h, lg_string(t, s));
}

/* What it says besides its rows' times: errors and warnings are marks. */
static uint64_t said(uint64_t h, const struct lg_trace *t)
{
	for (size_t i = 0; i < t->mark.n; i++)
		h = text(text(mix(mix(h, t->mark.ts[i]), t->mark.value[i]), t, t->mark.name[i]), t,
			 t->mark.text[i]);
	/* Which names were found goes by where the file lies. */
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] != LG_DIAG_UNRESOLVED && t->diag.id[i] != LG_DIAG_TRUSTED &&
		    t->diag.id[i] != LG_DIAG_NAMES_LOST)
			h = mix(mix(h, t->diag.id[i]), (int64_t)t->diag.count[i]);
	if (!lg_has_diag(t, LG_DIAG_NO_TIMES))
		return h;
	for (size_t i = 0; i < t->span.n; i++)
		h = text(h, t, t->span.name[i]);
	for (size_t i = 1; i < t->track.n; i++)
		h = text(h, t, t->track.name[i]);
	for (size_t i = 0; i < t->meta.n; i++)
		h = text(text(h, t, t->meta.key[i]), t, t->meta.value[i]);
	return h;
}

/* Of what a thread stood in: what tools print of it. */
static uint64_t stack(uint64_t h, const struct lg_trace *t, lg_stk s)
{
	char frame[512];

	for (; s; s = t->stack.parent[s])
		h = words(h, lg_frame_text(t, t->stack.frame[s], frame, sizeof frame));
	return h;
}

/* Is it nothing but what threads stood in at one moment that is not told? */
static bool is_dump(const struct lg_trace *t)
{
	size_t n = t->sample.n;

	for (size_t i = 0; i < n; i++)
		if (strcmp(lg_string(t, t->sample.event[i]), "py-spy dump") != 0)
			return false;
	return n && !t->state.n && !t->span.n && !t->counter.n;
}

struct lg_rows_seen lg_rows_of(const struct lg_trace *t)
{
	struct lg_rows_seen r = { .n = { t->state.n, t->sample.n, t->span.n, t->counter.n, t->process.n,
					 t->thread.n, t->mark.n },
				  .first = t->first, .last = t->last };
	/* What differs in a single step is told by its own reading alone, where times tell nothing. */
	size_t by = lg_has_diag(t, LG_DIAG_NO_TIMES) ? 1 : t->counter.n / LOOKED_AT + 1;

	for (size_t p = 1; p < t->process.n; p++)
		r.hash = mix(mix(r.hash, t->process.pid[p]), t->process.rank[p]);
	r.dump = is_dump(t);
	for (size_t i = 0; r.dump && i < t->sample.n; i++)
		r.hash = stack(mix(r.hash, t->thread.tid[t->sample.thr[i]]), t, t->sample.stack[i]);
	r.hash = times(r.hash, t->state.ts, t->state.n);
	r.hash = times(r.hash, t->sample.ts, t->sample.n);
	r.hash = times(times(r.hash, t->span.ts, t->span.n), t->span.dur, t->span.n);
	r.hash = times(r.hash, t->counter.ts, t->counter.n);
	for (size_t i = 0; i < t->counter.n; i += by) {
		int64_t bits;

		memcpy(&bits, &t->counter.value[i], sizeof bits);
		r.hash = mix(r.hash, bits);
	}
	r.hash = said(r.hash, t);
	return r;
}

bool lg_same_rows(const struct lg_rows_seen *a, const struct lg_rows_seen *b)
{
	for (size_t i = 0; i < sizeof a->n / sizeof *a->n; i++)
		if (a->n[i] != b->n[i])
			return false;
	return (a->dump || a->n[0] + a->n[1] + a->n[2] + a->n[3] >= ROWS_MIN) && a->dump == b->dump &&
	       a->first == b->first && a->last == b->last && a->hash == b->hash;
}
