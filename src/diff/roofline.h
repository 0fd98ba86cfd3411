/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roofline.h - windows of one run, in turn with and without a part of it (hook/laggard/_roofline.py): what
 * that part costs.
 *
 * A round has a window of each kind; the times of a step in two windows of one round are compared, so that
 * what the machine does meanwhile is in both. share = 1 - (time without) / (time with), both summed over the
 * rounds: of the throughput, not of a typical step. Its interval is the ratio estimator's (Cochran, Sampling
 * Techniques, 6.4) with Student's t.
 */
#ifndef LG_DIFF_ROOFLINE_H
#define LG_DIFF_ROOFLINE_H
#include <stdbool.h>

#include "store/trace.h"

enum { LG_ROOFLINE_ROUNDS_MIN = 3 };

struct lg_roofline_part {
	const char *kind;     /* "cached" "quiet" "without:PATH", of the trace */
	double with, without; /* steps a second */
	double share, lo, hi; /* of the time with it; 95 % */
	size_t rounds;        /* that were compared; below the least above nothing else is known */
};

struct lg_roofline {
	const struct lg_trace *t; /* borrowed */
	struct lg_roofline_part *parts;
	size_t n_parts;
	size_t steps, counted; /* marked; in windows */
	size_t skipped;        /* steps that are no plain ones: with an evaluation */
	size_t processes;      /* that had windows */
	const char *loader, *kept, *kept_on; /* as the hook says; NULL */
	const char *off;       /* why it stopped marking; NULL */
	/* What was asked for and could not be: the part ("collectives", "without:PATH") and why. */
	struct lg_roofline_refused {
		const char *part, *why;
	} refused[16];
	size_t n_refused;
};

int lg_roofline_new(const struct lg_trace *t, struct lg_roofline **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_roofline_free(struct lg_roofline *r);

#endif /* LG_DIFF_ROOFLINE_H */
