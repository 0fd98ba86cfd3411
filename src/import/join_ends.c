/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_ends.c - two files' clocks compared by what happened in both, without any number in common.
 *
 * An all-reduce ends on all ranks within microseconds, so the ends of two ranks' collectives lie apart
 * by the difference of their clocks, all by the same, and jitter makes the time from one to the next
 * irregular. One list is moved along the other; where it belongs, the pairs agree far better
 * than anywhere else. Where several places do as well (steps as regular as a clock), nothing is said.
 *
 * In the same way the optimizer's steps, with their begin and end, tell where a profiler's trace
 * without a clock lies in a recording of the same process.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"
#include "import/join.h"

enum {
	ENDS_MIN = 16, ENDS_MAX = 4096, /* collectives looked at, a file */
	PLACES = 8, WINDOW = 64,        /* stretches that are looked for, and their length */
	AGREE_NS = 1000000,             /* their places may differ by it */
	CLEARER = 4,                    /* the best place's deviation, times less than any other's */
	NAMES_DIFFER = 10               /* one in so many may, at the right place */
};

struct end {
	int64_t ts;
	uint64_t name;
};

struct ends {
	struct end *e;
	size_t n;
};

static int by_time(const void *a, const void *b)
{
	const struct end *x = a, *y = b;

	return x->ts != y->ts ? (x->ts > y->ts) - (x->ts < y->ts) : (x->name > y->name) - (x->name < y->name);
}

enum what { COLLECTIVES, OPTIMIZER };

static bool wanted(const struct lg_trace *t, size_t i, enum what what)
{
	const struct lg_span_tab *s = &t->span;

	if (s->dur[i] <= 0)
		return false;
	/* A call that only enqueues ends when it likes. */
	if (what == COLLECTIVES)
		return s->kind[i] == LG_SPAN_COLLECTIVE && (s->track[i] || !(s->flags[i] & LG_SPAN_ASYNC));
	/* Not everybody marks zero_grad(). */
	return s->kind[i] == LG_SPAN_STAGE && s->stage[i] == LG_STAGE_OPTIMIZER && !s->track[i] &&
	       !strstr(lg_string(t, s->name[i]), "zero");
}

static size_t row_of(const struct lg_trace *t, size_t i)
{
	return t->span.track[i] ? t->span.track[i] : t->track.n + t->span.thr[i];
}

static uint64_t name_of(const struct lg_trace *t, size_t i)
{
	const char *name = lg_string(t, t->span.name[i]);
	uint64_t h = 0;

	while (*name)
		h = lg_mix64(h ^ (unsigned char)*name++);
	return h;
}

/* Of the stream (or, without streams, the thread) that has most of them. */
static int collect(const struct lg_trace *t, enum what what, struct ends *ret)
{
	uint32_t *count = lg_calloc(t->track.n + t->thread.n + 1, sizeof *count), best = 0;
	size_t at = 0;

	if (!count)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->span.n; i++)
		if (wanted(t, i, what))
			count[row_of(t, i)]++;
	for (size_t k = 1; k < t->track.n + t->thread.n; k++)
		if (count[k] > best && (k < t->track.n || at >= t->track.n || !best)) {
			best = count[k];
			at = k;
		}
	lg_free(count);
	ret->e = lg_calloc(2 * (size_t)best, sizeof *ret->e);
	if (!ret->e)
		return LG_E_NOMEM;
	for (size_t i = 0; best && i < t->span.n; i++) {
		if (!wanted(t, i, what) || row_of(t, i) != at)
			continue;
		if (what == OPTIMIZER)
			ret->e[ret->n++] = (struct end){ t->span.ts[i], 1 };
		ret->e[ret->n++] = (struct end){ t->span.ts[i] + t->span.dur[i],
						 what == OPTIMIZER ? 2 : name_of(t, i) };
	}
	if (ret->n)
		qsort(ret->e, ret->n, sizeof *ret->e, by_time);
	if (ret->n > ENDS_MAX)
		ret->n = ENDS_MAX;
	return 0;
}

static int64_t apart(int64_t a, int64_t b)
{
	return a > b ? (int64_t)((uint64_t)a - (uint64_t)b) : (int64_t)((uint64_t)b - (uint64_t)a);
}

/*
 * The n ends from b's j on beside those from a's i on: how far are the pairs apart, next to their
 * median? Far away from each other they must agree as well, which is why the times between neighbours
 * are not looked at: those of small collectives in a row are all alike. INT64_MAX = other names.
 */
static int64_t deviation(const struct ends *a, size_t i, const struct ends *b, size_t j, size_t n,
			 int64_t *ret_offset)
{
	int64_t d[WINDOW];
	size_t differ = 0;

	for (size_t k = 0; k < n; k++) {
		d[k] = (int64_t)((uint64_t)a->e[i + k].ts - (uint64_t)b->e[j + k].ts);
		differ += a->e[i + k].name != b->e[j + k].name;
	}
	if (differ * NAMES_DIFFER > n)
		return INT64_MAX;
	*ret_offset = lg_median_i64(d, n);
	for (size_t k = 0; k < n; k++)
		d[k] = apart(d[k], *ret_offset);
	return lg_median_i64(d, n);
}

/* Where in a do the n ends from b's j on belong? False where no place is clearly the best. */
static bool place(const struct ends *a, const struct ends *b, size_t j, size_t n, int64_t *ret)
{
	int64_t best = INT64_MAX, second = INT64_MAX, offset = 0;

	for (size_t i = 0; i + n <= a->n; i++) {
		int64_t d = deviation(a, i, b, j, n, &offset);

		if (d < best) {
			second = best;
			best = d;
			*ret = offset;
		} else if (d < second) {
			second = d;
		}
	}
	return best < INT64_MAX && second / CLEARER > best;
}

/* Pairs at this offset: ends of both that are closer to each other than to any other of theirs. */
static int refine(const struct ends *a, const struct ends *b, struct lg_join *ret)
{
	int64_t *d = lg_calloc(b->n, sizeof *d);
	size_t n = 0, i = 0;

	if (!d)
		return LG_E_NOMEM;
	for (size_t k = 0; k < b->n; k++) {
		int64_t at = (int64_t)((uint64_t)b->e[k].ts + (uint64_t)ret->offset), from;

		while (i + 1 < a->n && apart(a->e[i + 1].ts, at) <= apart(a->e[i].ts, at))
			i++;
		from = apart(a->e[i].ts, at);
		if ((k && apart(b->e[k].ts, b->e[k - 1].ts) < 2 * from) ||
		    (k + 1 < b->n && apart(b->e[k].ts, b->e[k + 1].ts) < 2 * from) || from > ret->error)
			continue;
		d[n++] = (int64_t)((uint64_t)a->e[i].ts - (uint64_t)b->e[k].ts);
	}
	if (n >= ENDS_MIN) {
		ret->offset = lg_median_i64(d, n);
		for (size_t k = 0; k < n; k++)
			d[k] = apart(d[k], ret->offset);
		ret->error = lg_select_i64(d, n, (n * 9 - 1) / 10) + 1;
		ret->matches = n;
		ret->sure = 1;
	}
	lg_free(d);
	return n >= ENDS_MIN;
}

/* Several stretches of b are looked for, as a profiler may lack some events; most must agree. */
static int search(const struct ends *a, const struct ends *b, struct lg_join *ret)
{
	size_t least = a->n < b->n ? a->n : b->n, n = least / 2 < WINDOW ? least / 2 : WINDOW;
	size_t found = 0, most = 0;
	int64_t offset[PLACES];

	if (least < ENDS_MIN)
		return 0;
	for (size_t k = 0; k < PLACES; k++)
		found += place(a, b, (b->n - n) * k / (PLACES - 1), n, &offset[found]);
	for (size_t i = 0; i < found; i++) {
		size_t agree = 0;

		for (size_t k = 0; k < found; k++)
			agree += apart(offset[i], offset[k]) <= AGREE_NS;
		if (agree > most) {
			most = agree;
			ret->offset = offset[i];
		}
	}
	if (most < 2 || 2 * most <= found)
		return 0;
	ret->error = AGREE_NS;
	return refine(a, b, ret);
}

static int by(const struct lg_trace *ref, const struct lg_trace *t, enum what what, struct lg_join *ret)
{
	struct ends a = { 0 }, b = { 0 };
	int rc = collect(ref, what, &a);

	if (!rc)
		rc = collect(t, what, &b);
	if (!rc)
		rc = search(&a, &b, ret);
	lg_free(a.e);
	lg_free(b.e);
	return rc;
}

int lg_join_by_ends(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret)
{
	ret->how = "collectives";
	return by(ref, t, COLLECTIVES, ret);
}

int lg_join_by_optimizer(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret)
{
	ret->how = "steps";
	return by(ref, t, OPTIMIZER, ret);
}
