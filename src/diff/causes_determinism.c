/* SPDX-License-Identifier: Apache-2.0 */
/*
 * causes_determinism.c - two runs that do not compute the same, for `diff`: by fingerprints, or by the
 * losses of two logs.
 *
 * Losses that differ from the first step on are those of two programs, or of two seeds: worth a line.
 * What was equal before it parted has become another program.
 */
#include <string.h>

#include "analyse/grade.h"
#include "diff/causes.h"
#include "diff/determinism.h"

enum { LINES_MAX = 8 };

int lg_causes_determinism(struct lg_causes *c)
{
	const struct lg_side *before = c->d->before, *after = c->d->after;
	struct lg_finding *f;
	struct lg_det d;
	int rc;

	if (!before->trace || !after->trace)
		return 0;
	rc = lg_det_compare(before->trace, after->trace, &c->d->v.arena, &d);
	if (rc || !d.basis || d.first.step < 0)
		return rc;
	f = lg_cause_add(c, LG_R_DET_DIVERGED);
	if (!f)
		return 0;
	lg_det_tell(&d, &c->d->v.arena, f, LINES_MAX);
	if (d.basis == LG_DET_LOGS && d.first.equal_at < 0)
		lg_cap(f, LG_CAP_UNEQUAL);
	c->d->parts = f->title;
	return 0;
}
