/* SPDX-License-Identifier: Apache-2.0 */
/* standing.h - the ranks of a job in which nothing moves: found by standing.c, told by standing_words.c. */
#ifndef LG_ANALYSE_HOST_STANDING_H
#define LG_ANALYSE_HOST_STANDING_H
#include "analyse/case.h"

struct stand {
	lg_prc prc;
	lg_thr thr;          /* its main thread */
	int32_t rank;        /* -1 = it has no number */
	bool ended;
	bool stands;         /* it is known where; what follows is about that */
	int64_t from;        /* it is there since then, or longer */
	lg_stk in;           /* innermost Python frame; 0 = none, of one that was stopped */
	lg_stk user;         /* innermost one of the program's own; else `in` */
	bool waits;          /* in a collective, or what may hold one */
	bool stopped;        /* by a signal, or a tracer */
	bool polls;          /* it wakes now and then, and goes to sleep again at the same place */
	lg_prc child;        /* its own process that sleeps in code of the program's; 0 = none */
	lg_stk child_user;
	bool told;
};

struct stands {
	struct stand *v; /* one for each rank */
	size_t n, n_waits;
	int64_t from, to; /* all of them stood */
	bool whole;       /* all of them are known to stand, and nobody else of the job runs */
	bool guessed;     /* who waits, by their number */
};

/* Do they sleep at the same place, for the same? */
bool lg_stand_alike(const struct lg_case *c, const struct stand *a, const struct stand *b);

/* "waits_for_nobody (train.py:6)" */
const char *lg_place_text(struct lg_case *c, lg_stk s);
/* "ranks 0, 2 wait in all_reduce at step (train.py:11)", a part for each place, those who wait last. */
const char *lg_stands_text(struct lg_case *c, struct stands *all);
/* "place < caller < ...", a few of them. */
const char *lg_python_stack_text(struct lg_case *c, lg_stk s);

/* What the ranks were told of their job. */
struct lg_world {
	/* Where it does not agree, "ranks 0, 2 were given MASTER_PORT 29500, rank 1 29501: they never meet"; or
	 * which of them are not there. NULL = it does and all are, or it was not seen. */
	const char *text;
	const struct stand *odd; /* the one that differs from all others; NULL = there is none */
	int32_t absent;          /* is not there, and cannot be on another host; -1 = none, or several */
};
struct lg_world lg_world_of(struct lg_case *c, const struct stands *all);

#endif /* LG_ANALYSE_HOST_STANDING_H */
