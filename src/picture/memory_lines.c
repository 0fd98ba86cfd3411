/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/memory_lines.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/order.h"

#define BYTES_MAX 1e18

/* Bytes that are held, not moved. */
static bool is_held(const struct lg_trace *t, lg_trk k)
{
	const char *name = lg_string(t, t->track.name[k]);

	return t->track.kind[k] == LG_TRACK_COUNTER && !strcmp(lg_string(t, t->track.unit[k]), "bytes") &&
	       strncmp(name, "disk.", 5) && strncmp(name, "io.", 3);
}

LG_ORDER_BY(by_most, struct lg_memory_line, LG_CMP(y->most, x->most) ?: LG_CMP(x->track, y->track))

/* What was read last holds until the next reading. */
static void carry_on(struct lg_memory_line *l)
{
	double last = NAN;

	for (size_t i = 0; i < LG_MEMORY_COLUMNS; i++) {
		if (isnan(l->v[i]))
			l->v[i] = last;
		else
			last = l->v[i];
	}
}

int lg_memory_lines_make(struct lg_memory_lines *ret, const struct lg_trace *t)
{
	LG_AUTOFREE uint32_t *line_of = lg_calloc(t->track.n + 1, sizeof *line_of);
	double span = (double)t->last - (double)t->first + 1;
	struct lg_memory_lines l = { 0 };

	*ret = l;
	if (!line_of)
		return LG_E_NOMEM;
	for (lg_trk k = 1; k < t->track.n; k++)
		if (is_held(t, k))
			line_of[k] = (uint32_t)++l.n;
	/* A hostile file may have very many: the first ones. */
	l.left_out = l.n > 4096 ? l.n - 4096 : 0;
	l.n -= l.left_out;
	l.v = lg_calloc(l.n, sizeof *l.v);
	if (!l.v)
		return LG_E_NOMEM;
	LG_EACH(x, l.v, l.n)
		for (size_t i = 0; i < LG_MEMORY_COLUMNS; i++)
			x->v[i] = NAN;
	for (size_t i = 0; i < t->counter.n; i++) {
		uint32_t k = line_of[t->counter.track[i]];
		double v = t->counter.value[i], at = ((double)t->counter.ts[i] - (double)t->first) / span;
		struct lg_memory_line *x;
		size_t c;

		if (!k || k > l.n || !(v >= 0 && v < BYTES_MAX) || !(at >= 0 && at < 1))
			continue;
		x = &l.v[k - 1];
		c = (size_t)(at * LG_MEMORY_COLUMNS);
		x->track = t->counter.track[i];
		x->n++;
		x->most = fmax(x->most, v);
		x->v[c] = isnan(x->v[c]) ? v : fmax(x->v[c], v);
	}
	LG_KEEP(x, l.v, l.n, x->n && x->most > 0);
	LG_SORT(l.v, l.n, by_most);
	if (l.n > LG_MEMORY_LINES) {
		l.left_out += l.n - LG_MEMORY_LINES;
		l.n = LG_MEMORY_LINES;
	}
	LG_EACH(x, l.v, l.n)
		carry_on(x);
	*ret = l;
	return 0;
}

void lg_memory_lines_done(struct lg_memory_lines *l)
{
	lg_free(l->v);
	*l = (struct lg_memory_lines){ 0 };
}
