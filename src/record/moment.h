/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moment.h - when is the ring to be written? From the step marks of the job's processes, as they come.
 *
 * A step is compared with its own loop's usual ones: the last 64 that were not long, at least 16 of them,
 * and never the first 10. Time in the stage "side" (a checkpoint, a log) is no part of it. Long steps that
 * come at a fixed number of steps for the fourth time are the loop's own (an evaluation, a save that nobody
 * marked), and are compared with each other. 16 long ones in a row are the new usual.
 *
 * One event is one moment: all ranks that are late together, and the steps that follow while they stay long.
 * After a moment there is a pause of 20 usual steps, at least 10 s, at most what the ring holds.
 *
 * Knows nothing of files and clocks: times are given, CLOCK_MONOTONIC ns. id: a small number that the caller
 * chose for a process. One thread.
 */
#ifndef LG_RECORD_MOMENT_H
#define LG_RECORD_MOMENT_H
#include <stddef.h>

#include "record/trigger.h"

struct lg_moment {
	enum lg_trigger_kind kind;
	const char *what;    /* the expression; its owner is the trigger */
	int64_t ts, dur;     /* of what fired it */
	int64_t need_ns;     /* of what was before it, the file is to hold so much; INT64_MAX = all */
	int32_t pid, rank;   /* -1 = none */
	int64_t step;        /* -1 = none */
	char why[256];       /* one sentence, without its full stop */
};

struct lg_moments;

/* t: borrowed. ring_ns: what the ring holds. */
int lg_moments_new(struct lg_moments **ret, const struct lg_trigger *t, size_t n, int64_t ring_ns,
		   struct lg_error *err) LG_MUST_CHECK;
void lg_moments_free(struct lg_moments *m);

/* Who id is; what it marked before stays with it. */
void lg_moments_who(struct lg_moments *m, uint32_t id, int32_t pid, int32_t rank);
/* Any mark. Each of the following is one, too. */
void lg_moments_mark(struct lg_moments *m, uint32_t id, int64_t ts);
/* A step has ended. */
void lg_moments_step(struct lg_moments *m, uint32_t id, int64_t number, int64_t ts, int64_t dur);
/* The thread of the steps begins or ends a stage "side". */
void lg_moments_side(struct lg_moments *m, uint32_t id, int64_t ts, bool begins);
/* Marks were lost: how long the step under way takes is not known. */
void lg_moments_lost(struct lg_moments *m, uint32_t id, int64_t ts);
/* The process has ended; id may be used for another. */
void lg_moments_gone(struct lg_moments *m, uint32_t id);
/* share: of the memory that of_what names, for the triggers on rss. */
void lg_moments_memory(struct lg_moments *m, int64_t now, double share, const char *of_what);

/* Steps seen so far, of all processes. */
uint64_t lg_moments_steps(const struct lg_moments *m);
/* Is something to be written now? A second after what fired it, so that what followed is in it. */
bool lg_moments_due(struct lg_moments *m, int64_t now, struct lg_moment *ret);

#endif /* LG_RECORD_MOMENT_H */
