/* SPDX-License-Identifier: Apache-2.0 */
/* cause_words.h - what is said of the end of a chain: title, moments, as a mere fact (rules/ends.def). */
#ifndef LG_ANALYSE_HOST_CAUSE_WORDS_H
#define LG_ANALYSE_HOST_CAUSE_WORDS_H
#include "analyse/steps/steps.h"
#include "analyse/chains/tally.h"
#include "analyse/host/io.h"

/* f has its culprit and victims; io: of a wait for a disk. Also sets f->detail where the words decide it. */
void lg_cause_title(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		    const struct lg_io_story *io);
/* The longest of its moments, as evidence. */
void lg_cause_moments(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s);
/* "waited for ..., while ... held it": of a loop without steps. */
const char *lg_cause_fact(struct lg_case *c, const struct lg_cause_sum *s);

/* "ranks 0 and 1": who had to wait; by way: it waited for that thread, which was the one that had to. */
const char *lg_ranks_text(struct lg_case *c, const struct lg_finding *f, lg_thr by_way);
/* " every 2.50 s"; "" without a period. */
const char *lg_period_text(struct lg_case *c, const struct lg_rhythm *r);
/* What the side stage was marked as, where most of its time went: torch.save, add_scalar ... */
const char *lg_side_name(struct lg_case *c, const struct lg_cause_sum *s);
/* Nothing told of a quota: that the thread was left out beside an idle CPU is all. */
bool lg_is_guess(const struct lg_cause_sum *s);

#endif /* LG_ANALYSE_HOST_CAUSE_WORDS_H */
