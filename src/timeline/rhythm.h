/* SPDX-License-Identifier: Apache-2.0 */
/* rhythm.h - does something come back, does a series of durations drift, or change its level? */
#ifndef LG_TIMELINE_RHYTHM_H
#define LG_TIMELINE_RHYTHM_H
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rules/rules.h"

struct lg_burst {
	int64_t ts, end; /* ns */
	int64_t weight;  /* of any unit: those with under a twentieth of the heaviest are noise */
};
struct lg_rhythm {
	double period_s, p; /* period NAN when chance explains the spacing */
	bool at_most;       /* p is no more than that: no draw did as well */
	size_t n_events;    /* bursts apart from each other: at the scale of the period, else by gap_ns */
};
/*
 * Are n bursts (sorted by ts; the array is used up) periodic, start to start? Test against chance by Monte
 * Carlo. Those at most gap_ns apart are one; so, where that shows a rhythm, are those of four times as much,
 * and so on: what comes every 3 s may come in pieces.
 */
struct lg_rhythm lg_rhythm_of(struct lg_burst *b, size_t n, int64_t gap_ns);
struct lg_trend {
	enum lg_shape shape; /* LG_SHAPE_DRIFT, _SHIFT or _NONE */
	double shift_s;     /* since the first step, by lg_trend_of_steps() alone */
	size_t at;          /* with a shift: the first step of the new level */
	double before_ms, after_ms, slope; /* slope: fraction of the median per run */
	double slower;                     /* with a shape: the end against the beginning, as a share */
};
/* Of n durations, ms. */
int lg_trend_of(const double *ms, size_t n, struct lg_trend *ret) LG_MUST_CHECK;

#endif /* LG_TIMELINE_RHYTHM_H */
