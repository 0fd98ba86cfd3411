/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.h - where a second file's times lie on the first one's clock.
 *
 * The ways, best first; each is stated in meta ("join.<file>.how", ".offset_ns", ".error_ns"):
 *   boot         one boot of one machine: no offset
 *   clocks       both know CLOCK_REALTIME
 *   collectives  (group, sequence number) that both have end together; without numbers, the
 *                distances between their ends agree in one place only. Also where both know
 *                CLOCK_REALTIME, but the clocks of two hosts prove to differ
 *   steps        the optimizer's steps, whose times agree in one place only; or step numbers that both
 *                have begin together
 *   zone         local times: the zone in which the files overlap
 *   local        both have local times: taken as of one zone
 *   start        lengths only, or no times: put at the start of the first file
 *   none         nothing relates them: taken as they are
 */
#ifndef LG_IMPORT_JOIN_H
#define LG_IMPORT_JOIN_H
#include "store/trace.h"

struct lg_join {
	int64_t offset, error; /* ns to add to t's times, and the bound of its error: with matches, of nine in
				* ten of them (a profiler's clock wanders) */
	const char *how;
	int sure;              /* 0: a diag row belongs beside it */
	size_t matches;        /* collectives or steps that agree */
	int other_pace;        /* 1: by numbers of steps, which do not last as long in both: of one run? */
	int64_t apart;         /* ns between the two, however their times may be off; 0 = they overlap, or
				* nobody knows. < 0: t is before ref */
};

/* How good a file's clock is as the reference: 0 is best. */
int lg_join_rank(const struct lg_trace *t);
/* ref and t are sealed. Fails only for want of memory. */
int lg_join_find(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret,
		 struct lg_error *err) LG_MUST_CHECK;
/* ---- join_ends.c ---- */
/* 1 = found, 0, or LG_E_NOMEM. */
int lg_join_by_ends(const struct lg_trace *ref, const struct lg_trace *t, struct lg_join *ret) LG_MUST_CHECK;
int lg_join_by_optimizer(const struct lg_trace *ref, const struct lg_trace *t,
			 struct lg_join *ret) LG_MUST_CHECK;

#endif /* LG_IMPORT_JOIN_H */
