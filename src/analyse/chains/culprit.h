/* SPDX-License-Identifier: Apache-2.0 */
/* culprit.h - name the end of a chain: process, function, stack, relation to the victim. */
#ifndef LG_ANALYSE_CHAINS_CULPRIT_H
#define LG_ANALYSE_CHAINS_CULPRIT_H
#include "analyse/case.h"

/* Fill f->culprit's identity (relation, pid, tid, comm, cmdline, container, rank) from thr, as seen
 * by victim (0 = nobody in particular). */
void lg_culprit_identify(struct lg_case *c, struct lg_finding *f, lg_thr thr, lg_thr victim);

/*
 * What a lock holder did while it held the lock: pieces are those of one culprit.
 *
 * The stack taken when the lock was acquired ends in the function that took it. CPU samples inside
 * the holds go deeper: if most of them pass through one callee of that function, that callee is
 * the work done under the lock and is named; lock and page-walk plumbing is never named.
 * Sets function and stack; *ret_samples is the number of samples that agree.
 */
void lg_culprit_of_hold(struct lg_case *c, struct lg_finding *f, const struct lg_piece *const *p,
			size_t n, size_t *ret_samples);

/* What thr did in the pieces, by CPU samples: most frequent function and its stack. */
void lg_culprit_of_samples(struct lg_case *c, struct lg_finding *f, const struct lg_piece *const *p,
			   size_t n, size_t *ret_samples);

/* What thr did in the pieces: where it slept, if it did so most of the time, else by CPU samples. */
void lg_culprit_of_time(struct lg_case *c, struct lg_finding *f, const struct lg_piece *const *p, size_t n,
			size_t *ret_samples);

/* The innermost function, outside plumbing, that at least four in five samples of the culprit in the
 * pieces pass through: what a burst has in common. */
void lg_culprit_shared_function(struct lg_case *c, struct lg_finding *f,
				const struct lg_piece *const *p, size_t n, size_t *ret_samples);

/* f->culprit.stack, innermost first. */
void lg_culprit_set_stack(struct lg_case *c, struct lg_finding *f, lg_stk stack);

/* "python3 (pid 4711)" in the arena. */
const char *lg_thread_text(struct lg_case *c, lg_thr thr);

#endif /* LG_ANALYSE_CHAINS_CULPRIT_H */
