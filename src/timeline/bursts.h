/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bursts.h - by CPU samples: when a thread stood still, and when a process was busy.
 *
 * A thread that computes shows a sample every period. Lists are in order of time, their stretches disjoint.
 */
#ifndef LG_TIMELINE_BURSTS_H
#define LG_TIMELINE_BURSTS_H
#include "timeline/rows.h"
#include "base/upper_bound.h"

struct lg_stretch {
	int64_t ts, end;
	/* Of bursts: */
	int64_t still;  /* for how long of it the thread stood still; the caller's */
	int32_t cpu;    /* where it began */
	bool with_last; /* the same occasion as the one before it */
	bool beat;      /* the first of a piece of work */
};

struct lg_stretches {
	struct lg_stretch *v;
	size_t n, cap;
	/* By lg_stretches_index(), for lists that do not change any more: of equal pieces of time from `from`
	 * on, the first stretch that ends later than the piece begins. */
	uint32_t *at;
	size_t n_at;
	int64_t from;
	int shift; /* a piece is 1 << shift ns */
};

int lg_stretch_add(struct lg_stretches *l, int64_t ts, int64_t end) LG_MUST_CHECK;
int lg_stretches_index(struct lg_stretches *l) LG_MUST_CHECK;
void lg_stretches_done(struct lg_stretches *l);
/* Time of all of them. */
int64_t lg_stretches_time(const struct lg_stretches *l);
/* Of a moment in one of them: how long that one is, in the mean; ns. */
double lg_stretches_typical(const struct lg_stretches *l);
/* Time of [a, b) inside the stretches. (Here, because it is asked some million times.) */
static inline int64_t lg_covered(const struct lg_stretches *l, int64_t a, int64_t b)
{
	size_t lo = l->at ? 0 : LG_UPPER_BOUND(l->v, l->n, end, a);
	int64_t sum = 0;

	if (l->at && a > l->from) {
		size_t k = (size_t)((uint64_t)(a - l->from) >> l->shift);

		for (lo = k < l->n_at ? l->at[k] : l->n; lo < l->n && l->v[lo].end <= a;)
			lo++;
	}
	for (; lo < l->n && l->v[lo].ts < b; lo++) {
		int64_t from = l->v[lo].ts > a ? l->v[lo].ts : a;
		int64_t to = l->v[lo].end < b ? l->v[lo].end : b;

		sum += to - from;
	}
	return sum;
}

/* When the process was there, as far as this recording tells. */
struct lg_stretch lg_sampled_life(const struct lg_scene *sc, lg_prc prc);
/* Sampling period: the median spacing of the samples of one busy thread. 0 = too few. */
int64_t lg_sampling_period(const struct lg_scene *sc, lg_thr thr);
/* When the thread stood still: no sample for more than three periods. */
int lg_find_gaps(const struct lg_scene *sc, lg_thr thr, int64_t period, struct lg_stretch life,
		 struct lg_stretches *gaps) LG_MUST_CHECK;

/* When a process was seen, by samples of its threads, in order, but for those that leave_out
 * (by thread row; NULL = none) has. Free v with lg_free(). */
struct lg_seen {
	struct lg_moment {
		int64_t ts;
		int32_t cpu;
	} *v;
	size_t n;
};

int lg_find_seen(const struct lg_scene *sc, lg_prc prc, const uint8_t *leave_out, struct lg_seen *ret)
	LG_MUST_CHECK;
/* Bursts of a process within the victim's life: where it was seen no more than five periods apart. */
int lg_find_bursts(const struct lg_seen *seen, int64_t period, struct lg_stretch life,
		   struct lg_stretches *out) LG_MUST_CHECK;
/* The first row, of whatever thread, at or after ts; s->n = none. */
size_t lg_first_sample(const struct lg_sample_tab *s, int64_t ts);
/* The CPU that thr ran on when it was seen last before ts; -1 = not seen. */
int32_t lg_cpu_before(const struct lg_scene *sc, lg_thr thr, int64_t ts);
/* Keep those that are long enough to be judged; the time that they take. */
int64_t lg_keep_long(struct lg_stretches *b, int64_t period);
/* Bursts with less between them than the longer one lasts are one occasion. Their number. */
size_t lg_join_occasions(struct lg_stretches *b, int64_t period);
/* Where a process shares a CPU, one piece of its work is many bursts: those no farther apart than its longest
 * one lasts are one beat. */
void lg_mark_beats(struct lg_stretches *all);

#endif /* LG_TIMELINE_BURSTS_H */
