/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_intake.h - from a set of perf rings to the session's queue: what every source that reads
 * perf rings does, whatever its events mean.
 *
 * Records cross the queue as the kernel wrote them. A LOST record is put where the hole begins
 * (the ring's previous record), not where it ends, because in between records of other CPUs are
 * fed that would be believed.
 */
#ifndef LG_RECORD_PERF_INTAKE_H
#define LG_RECORD_PERF_INTAKE_H
#include "record/perf_lost.h"
#include "record/perf_ring.h"
#include "record/session.h"

struct lg_perf_intake {
	struct lg_session *s;
	struct lg_builder *b;
	struct lg_perf_set *set;
	unsigned index;          /* the source's, for lg_session_push() */
	struct lg_perf_lost lost;
	int64_t rescanned;       /* ns: when CPUs were last looked for */
	uint64_t not_understood; /* records */
};

/* Queue what the rings hold; the source's `drain`. */
int lg_perf_intake_drain(struct lg_perf_intake *in, struct lg_error *err) LG_MUST_CHECK;
/* Look for CPUs that came or went, once a second; a failure is a PARTIAL diag row. */
void lg_perf_intake_rescan(struct lg_perf_intake *in, int64_t now);

#endif /* LG_RECORD_PERF_INTAKE_H */
