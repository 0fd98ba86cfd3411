/* SPDX-License-Identifier: Apache-2.0 */
/* loader_story.h - why a batch was late: what the loader did while the step waited for it. */
#ifndef LG_ANALYSE_HOST_LOADER_STORY_H
#define LG_ANALYSE_HOST_LOADER_STORY_H
#include "analyse/chains/tally.h"

/*
 * Detail, function and evidence of a data.loader_wait; to be asked before its title. Details:
 * respawn       most of the time lies right after workers were started (the hook's mark)
 * workers_zero  no workers: the training process does the work itself
 * slow_worker   one worker takes at least twice as long a batch as the others, and most waits are for it
 * io            the loader waited for disk or network
 * transform     it computed, or slept in the dataset's own code
 */
void lg_loader_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s);
/* "the step of rank 0 waited for its next batch: ..."; ranks, every: as in other titles. */
const char *lg_loader_title(struct lg_case *c, const struct lg_finding *f, const char *ranks,
			    const char *every);

#endif /* LG_ANALYSE_HOST_LOADER_STORY_H */
