/* SPDX-License-Identifier: Apache-2.0 */
/* causes.h - what is said of the causes that chains of waits end in. */
#ifndef LG_ANALYSE_HOST_CAUSES_H
#define LG_ANALYSE_HOST_CAUSES_H
#include "analyse/chains/chains.h"
#include "analyse/chains/tally.h"

/* ---- io.c: waits for a disk: the waiter's own request, and who else loads the disk ---- */
struct lg_io_story {
	enum lg_io_kind kind;
	const char *call;  /* system call; NULL = unknown */
	const char *disk;  /* NULL = not known which */
	lg_thr other;      /* who kept the disk busy; 0 = nobody that the numbers name */
	bool by_job;       /* the one who waits for the disk is of the job */
};

/* Culprit, detail and evidence of a host.io_wait. */
void lg_io_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		struct lg_io_story *ret);
const char *lg_io_title(struct lg_case *c, const struct lg_finding *f, const struct lg_io_story *st,
			const char *ranks, const char *every);

/* ---- loader_story.c: why a batch was late: what the loader did while the step waited for it ---- */
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

/* ---- gil_story.c ---- */
/*
 * Culprit, detail and evidence of a python.gil_wait; returns how many samples agree. Details, where the
 * recording tells of each wait for the lock; none elsewhere:
 * native_call  asked to give the lock up, the culprit kept it most of the time: only native code can
 * python       it gave it up when it was asked
 */
size_t lg_gil_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s);

/* ---- cause_words.c: title, moments, as a mere fact (rules/ends.def) ---- */
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
/* " in FUNCTION", of the culprit; "" where it is not known. */
const char *lg_in_text(struct lg_case *c, const struct lg_finding *f);
/* What the side stage was marked as, where most of its time went: torch.save, add_scalar ... */
const char *lg_side_name(struct lg_case *c, const struct lg_cause_sum *s);
/* Nothing told of a quota: that the thread was left out beside an idle CPU is all. */
bool lg_is_guess(const struct lg_cause_sum *s);

#endif /* LG_ANALYSE_HOST_CAUSES_H */
