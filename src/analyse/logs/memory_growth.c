/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_growth.c - memory that grows from one quarter of the input to the next, to its end. No rule says
 * what grows, or when it will be too much: that it grows is told, and keeps a verdict from being an
 * all-clear.
 */
#include "analyse/finders.h"
#include "base/median.h"
#include "rules/device_names.h"

enum { QUARTERS = 4, MIN_OF_EACH = 8 };
#define LONG_NS (30 * INT64_C(1000000000))
#define MIN_GROWTH 0.10  /* over all quarters */
#define GOES_ON 0.25     /* the last quarter's growth, of the largest: what warms up stands at the end */

/* Medians of the quarters of the track's values in the order of time. v: room for them. */
static bool grows(const struct lg_case *c, lg_trk k, double *v, double *ret_first, double *ret_last)
{
	double m[QUARTERS], most = 0;
	size_t n = 0;

	LG_LISTED(row, c->idx->counter, k)
		v[n++] = c->t->counter.value[row];
	if (n < QUARTERS * MIN_OF_EACH)
		return false;
	for (size_t q = 0; q < QUARTERS; q++) {
		size_t from = n * q / QUARTERS, to = n * (q + 1) / QUARTERS;

		m[q] = lg_select_f64(v + from, to - from, (to - from) / 2);
		if (q && m[q] <= m[q - 1])
			return false;
		most = q && m[q] - m[q - 1] > most ? m[q] - m[q - 1] : most;
	}
	*ret_first = m[0];
	*ret_last = m[QUARTERS - 1];
	return m[0] > 0 && m[3] - m[0] >= MIN_GROWTH * m[0] && m[3] - m[2] >= GOES_ON * most;
}

static const char *whose(struct lg_case *c, lg_trk k)
{
	const struct lg_trace *t = c->t;
	lg_trk of = t->track.parent[k] ? t->track.parent[k] : k;

	return t->track.index[of] >= 0 ? lg_text(c, " of device %d", t->track.index[of]) : "";
}

static void say_growth(struct lg_case *c, lg_trk k, double first, double last)
{
	const char *text = lg_arena_printf( &c->v->arena, LG_SAYS_MEMORY_GROWS,
					   lg_string(c->t, c->t->track.name[k]), whose(c, k),
					   first / 1e6, last / 1e6);

	lg_not_judged(c, "memory that grows to the end", text);
}

int lg_say_memory_growth(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE double *v = NULL;
	double first, last;

	/* Within a step memory grows as it should. Empty traces end before they begin. */
	if (t->last < t->first ||
	    (c->v->n_judged < LG_N_ANY_REPEATS && (uint64_t)t->last - (uint64_t)t->first < LONG_NS))
		return 0;
	v = lg_scratch(c, t->counter.n, sizeof *v);
	for (lg_trk k = 1; v && k < t->track.n; k++) {
		if (t->track.kind[k] != LG_TRACK_COUNTER ||
		    !lg_on_list(LG_LIST_MEMORY, lg_string(t, t->track.name[k])) ||
		    !grows(c, k, v, &first, &last))
			continue;
		say_growth(c, k, first, last);
		break; /* one is enough to look */
	}
	return c->failed;
}
