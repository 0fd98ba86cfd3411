/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - see join.h.
 *
 * Numbers are compared, not positions: the n-th step of one file may be any step of the other. An
 * estimate is the median of all common numbers' distances; its error is the distance below which nine
 * tenths of them lie, and at least three must agree.
 */
#include "import/join.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/source/stamp.h"
#include "store/args.h"
#include "store/merge.h"

#define SECOND INT64_C(1000000000)
#define QUARTER (INT64_C(900) * SECOND)

enum { MATCHES_MIN = 3, ZONE_FIRST = -12 * 4, ZONE_LAST = 14 * 4 };

/* Something that both files may have, and when. */
struct event {
	uint64_t key;
	int64_t ts;
};

struct events {
	struct event *e;
	size_t n, cap;
	int nomem;
};

static enum lg_time_base base_of(const struct lg_trace *t)
{
	const char *name = lg_meta_get(t, "import.clock");

	for (int i = LG_TIME_LOCAL; i <= LG_TIME_NONE; i++)
		if (!strcmp(name, lg_time_base_name((enum lg_time_base)i)))
			return (enum lg_time_base)i;
	return LG_TIME_REALTIME; /* or a clock of its own, for lg_merge_offset() */
}

int lg_join_rank(const struct lg_trace *t)
{
	int own = 0; /* a recording has a clock of its own; other files count from 1970 */

	for (size_t i = 0; i < t->clock.n; i++)
		own |= t->clock.clock[i] == CLOCK_REALTIME && t->clock.ts[i] != t->clock.value[i];
	/* An empty file has no extent to put another one in. */
	return 2 * (int)base_of(t) + !own + (t->first > t->last ? 16 : 0);
}

static void add(struct events *v, uint64_t key, int64_t ts)
{
	if (lg_grow(&v->e, &v->cap, v->n + 1, sizeof *v->e)) {
		v->nomem = 1;
		return;
	}
	v->e[v->n++] = (struct event){ .key = key, .ts = ts };
}

static uint64_t hash(const char *s, size_t n)
{
	uint64_t h = n;

	for (size_t i = 0; i < n; i++)
		h = lg_mix64(h ^ (unsigned char)s[i]);
	return h;
}

/* Ends of collectives. Calls that only enqueue end when they like. */
static void collectives(const struct lg_trace *t, struct events *v)
{
	for (size_t i = 0; i < t->span.n; i++) {
		const char *group = lg_string(t, t->span.group[i]), *arg;
		int64_t seq = t->span.seq[i];
		size_t n;

		if (t->span.kind[i] != LG_SPAN_COLLECTIVE || t->span.dur[i] <= 0 || lg_span_p2p(t, i))
			continue;
		if (t->span.track[i]) { /* a GPU row's seq is its correlation */
			arg = lg_span_arg(t, i, "seq", &n);
			seq = arg ? strtoll(arg, NULL, 10) : -1;
		} else if (t->span.flags[i] & LG_SPAN_ASYNC) {
			continue;
		}
		if (seq >= 0 && *group)
			add(v, hash(group, strlen(group)) ^ lg_mix64((uint64_t)seq),
			    t->span.ts[i] + t->span.dur[i]);
	}
}

/* Starts of numbered steps; for logs without spans, the lines that tell of a step (its end). */
static void steps(const struct lg_trace *t, int ends, struct events *v)
{
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.kind[i] == LG_SPAN_STEP && t->span.seq[i] >= 0 && t->span.dur[i] >= 0)
			add(v, (uint64_t)t->span.seq[i], t->span.ts[i] + (ends ? t->span.dur[i] : 0));
}

static void step_lines(const struct lg_trace *t, struct events *v)
{
	for (size_t i = 0; i < t->mark.n; i++)
		if (t->mark.value[i] >= 0 && !strcmp(lg_string(t, t->mark.name[i]), "log.step"))
			add(v, (uint64_t)t->mark.value[i], t->mark.ts[i]);
}

static int by_key(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->ts > y->ts) - (x->ts < y->ts);
}

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Sort, and leave one event a number: the first of its group (ranks of one file agree on it). */
static void unique(struct events *v)
{
	size_t to = 0;

	if (v->n)
		qsort(v->e, v->n, sizeof *v->e, by_key);
	for (size_t i = 0; i < v->n; i++)
		if (!i || v->e[i].key != v->e[i - 1].key)
			v->e[to++] = v->e[i];
	v->n = to;
}

/* Do the same steps take so much longer in one file that no clock of whole seconds makes it so? */
static int paces_differ(int64_t a, int64_t b)
{
	int64_t less = a < b ? a : b, more = a < b ? b : a;

	return more - less > SECOND + SECOND / 10 && more - less > less / 3;
}

/* 1 = at least MATCHES_MIN numbers are common: *ret_offset is the median of ref - t. */
static int agree(struct events *ref, struct events *t, struct lg_join *ret)
{
	int64_t *d, *off;
	struct event first[2] = { { 0 } }, last[2] = { { 0 } };
	size_t n = 0, i = 0, k = 0;
	int64_t median;

	unique(ref);
	unique(t);
	d = lg_calloc(2 * (t->n + 1), sizeof *d);
	if (!d || ref->nomem || t->nomem) {
		lg_free(d);
		return LG_E_NOMEM;
	}
	while (i < ref->n && k < t->n) {
		if (ref->e[i].key < t->e[k].key) {
			i++;
		} else if (ref->e[i].key > t->e[k].key) {
			k++;
		} else {
			last[0] = ref->e[i];
			last[1] = t->e[k];
			if (!n)
				memcpy(first, last, sizeof first);
			d[n++] = (int64_t)((uint64_t)ref->e[i++].ts - (uint64_t)t->e[k++].ts);
		}
	}
	if (n < MATCHES_MIN) {
		lg_free(d);
		return 0;
	}
	off = d + n;
	qsort(d, n, sizeof *d, by_size);
	median = d[n / 2];
	for (i = 0; i < n; i++)
		off[i] = d[i] > median ? (int64_t)((uint64_t)d[i] - (uint64_t)median)
				       : (int64_t)((uint64_t)median - (uint64_t)d[i]);
	qsort(off, n, sizeof *off, by_size);
	ret->offset = median;
	ret->error = off[(n * 9 - 1) / 10] + 1;
	ret->matches = n;
	ret->other_pace = paces_differ(last[0].ts - first[0].ts, last[1].ts - first[1].ts);
	lg_free(d);
	return 1;
}

static int by_collectives(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret)
{
	struct events a = { 0 }, b = { 0 };
	int rc;

	collectives(ref, &a);
	collectives(t, &b);
	rc = agree(&a, &b, ret);
	ret->how = "collectives";
	ret->other_pace = 0;
	lg_free(a.e);
	lg_free(b.e);
	return rc ? rc : lg_join_by_ends(ref, t, ret);
}

/* By collectives, then by steps. 1 = found, 0, or LG_E_NOMEM. */
static int by_events(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret)
{
	struct events a = { 0 }, b = { 0 };
	int rc = by_collectives(ref, t, ret);

	if (!rc)
		rc = lg_join_by_optimizer(ref, t, ret);
	for (int ends = 0; ends < 2 && !rc; ends++) {
		a.n = b.n = 0;
		steps(ref, ends, &a);
		if (ends)
			step_lines(t, &b);
		else
			steps(t, ends, &b);
		rc = agree(&a, &b, ret);
		ret->how = "steps";
	}
	lg_free(a.e);
	lg_free(b.e);
	return rc;
}

/* ref's clock minus UTC; 0 where ref does not know it. */
static int wall(const struct lg_trace *ref, int64_t *ret)
{
	int64_t best = INT64_MAX;

	for (size_t i = 0; i < ref->clock.n; i++)
		if (ref->clock.clock[i] == CLOCK_REALTIME && ref->clock.error[i] < best) {
			best = ref->clock.error[i];
			*ret = (int64_t)((uint64_t)ref->clock.ts[i] - (uint64_t)ref->clock.value[i]);
		}
	return best != INT64_MAX;
}

static int64_t overlap(const struct lg_trace *ref, const struct lg_trace *t, int64_t offset)
{
	int64_t a = t->first + offset, z = t->last + offset;

	a = a > ref->first ? a : ref->first;
	z = z < ref->last ? z : ref->last;
	return z - a; /* < 0: how far they are apart */
}

/*
 * Local time on a clock that knows UTC: of all zones the one in which the files overlap most; whole hours
 * before halves and quarters, which few zones have. Several that do as well make it a guess.
 */
static int by_zone(const struct lg_trace *ref, const struct lg_trace *t, const struct lg_join *events,
		   struct lg_join *ret)
{
	int64_t best = INT64_MIN, utc;
	int equal = 0;

	if (!wall(ref, &utc))
		return 0;
	if (events->matches) {
		/* Steps say where it is; the zone must agree, or the numbers count something else. */
		int64_t zone = events->offset - utc;
		int64_t q = (zone + (zone < 0 ? -QUARTER : QUARTER) / 2) / QUARTER;

		if (llabs(zone - q * QUARTER) < 60 * SECOND && q >= -ZONE_LAST && q <= -ZONE_FIRST) {
			*ret = *events;
			ret->sure = 1;
			return 1;
		}
	}
	*ret = (struct lg_join){ .how = "zone", .error = SECOND };
	for (int pass = 0; pass < 3; pass++) { /* hours, halves, quarters */
		static const int step[] = { 4, 2, 1 };

		for (int q = ZONE_FIRST; q <= ZONE_LAST; q++) {
			int64_t offset = utc - q * QUARTER, o = overlap(ref, t, offset);

			if (q % step[pass] || (pass && q % step[pass - 1] == 0))
				continue;
			/* a rarer zone must fit clearly better */
			if (best == INT64_MIN || o > best + (pass ? 60 * SECOND : 0)) {
				best = o;
				ret->offset = offset;
				equal = 1;
			} else if (!pass && o > best - SECOND) {
				equal++;
			}
		}
		if (best >= 0)
			break;
	}
	ret->sure = best >= 0 && equal == 1;
	if (!ret->sure)
		ret->error = best < 0 ? -best : (int64_t)equal * 3600 * SECOND;
	return 1;
}

/*
 * Two hosts' wall clocks are as good as their time service, and some hosts have none: where the
 * collectives of two ranks agree on another difference, far more closely than by that difference,
 * they are right; where they agree with the clocks, theirs is the smaller error. Recordings are left
 * out: their clocks are measured, and their marks are those of calls.
 */
static int doubt_clocks(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *j)
{
	struct lg_join c = { 0 };
	uint64_t apart;
	int rc;

	if (*lg_meta_get(ref, "record.boot_id") || *lg_meta_get(t, "record.boot_id"))
		return 0;
	rc = by_collectives(ref, t, &c);
	if (rc <= 0)
		return rc;
	apart = c.offset > j->offset ? (uint64_t)c.offset - (uint64_t)j->offset
				     : (uint64_t)j->offset - (uint64_t)c.offset;
	/* Closer than the clocks and in accord with them: the better measure of the same. */
	if ((apart <= (uint64_t)j->error && c.error < j->error) ||
	    (apart / 4 > (uint64_t)c.error && apart > (uint64_t)j->error)) {
		*j = c;
		j->sure = 1;
	}
	return 0;
}

/*
 * Two files of one run overlap, or nearly so. Where both are dated and do not, that is known, also of local
 * times: no zone is further from UTC than 14 hours, so two are no more than 28 apart.
 */
static int64_t apart(const struct lg_trace *ref, const struct lg_trace *t, const struct lg_join *j)
{
	static const char *const dated[] = { "clocks", "zone", "local" };
	bool known = false;
	double before, after, gap; /* any times: their differences may be more than 63 bits */

	for (size_t i = 0; i < sizeof dated / sizeof *dated; i++)
		known |= !strcmp(j->how, dated[i]);
	/* A year that is that of the file's last change may be any. */
	if (!known || *lg_meta_get(ref, "import.year") || *lg_meta_get(t, "import.year"))
		return 0;
	before = (double)ref->first - ((double)t->last + (double)j->offset);
	after = (double)t->first + (double)j->offset - (double)ref->last;
	gap = fmin(fmax(before, after), 9e18);
	if (gap <= (double)SECOND || (j->sure && gap <= (double)j->error))
		return 0;
	return (int64_t)(before > after ? -gap : gap);
}

static int find(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret,
		struct lg_error *err)
{
	enum lg_time_base a = base_of(ref), b = base_of(t);
	const char *boot = lg_meta_get(t, "record.boot_id");
	struct lg_join j = { .how = "none" }, events = { 0 };
	int found;

	if (t->first > t->last || ref->first > ref->last) { /* nothing to place */
		j.sure = 1;
		*ret = j;
		return 0;
	}
	if (a == LG_TIME_REALTIME && b == LG_TIME_REALTIME && !lg_merge_offset(ref, t, &j.offset, &j.error)) {
		j.how = *boot && !strcmp(boot, lg_meta_get(ref, "record.boot_id")) ? "boot" : "clocks";
		j.sure = 1;
		if (doubt_clocks(ref, t, &j))
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		*ret = j;
		return 0;
	}
	found = b == LG_TIME_NONE ? 0 : by_events(ref, t, &events);
	if (found < 0)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (!found)
		events.matches = 0;
	if (a == LG_TIME_LOCAL && b == LG_TIME_LOCAL)
		j = (struct lg_join){ .how = "local", .error = SECOND, .sure = 1 };
	else if (b == LG_TIME_LOCAL && by_zone(ref, t, &events, &j))
		;
	else if (found)
		j = (struct lg_join){ .how = events.how, .offset = events.offset, .error = events.error,
				      .matches = events.matches, .other_pace = events.other_pace,
				      .sure = 1 };
	else if (b == LG_TIME_NONE || b == LG_TIME_RELATIVE || a >= LG_TIME_RELATIVE)
		j = (struct lg_join){ .how = "start", .offset = ref->first - t->first,
				      .error = ref->last - ref->first };
	*ret = j;
	return 0;
}

int lg_join_find(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret,
		 struct lg_error *err)
{
	int rc = find(ref, t, ret, err);

	if (!rc && t->first <= t->last && ref->first <= ref->last)
		ret->apart = apart(ref, t, ret);
	return rc;
}
