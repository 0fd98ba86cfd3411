/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h - who was busy while a thread stood still: found by foreign.c, told by foreign_words.c. */
#ifndef LG_ANALYSE_HOST_FOREIGN_H
#define LG_ANALYSE_HOST_FOREIGN_H
#include "analyse/case.h"
#include "timeline/bursts.h"

enum { LG_RUNS = 20000, LG_FIRST_RUNS = 256, LG_BEATS = 8 };
enum { LG_FEW_RUNS_OFF = 8, LG_RUNS_OFF = 6 /* standard deviations: is_out_of_reach() */ };

/* One that may have been stalled. */
struct lg_victim {
	const struct lg_rank *rank;
	int64_t period; /* of its samples */
	struct lg_stretch life;
	struct lg_stretches gaps;
	double usual;   /* share of its life that it stands still */
};

struct lg_odds {
	double p;               /* an upper bound where no placement did as well */
	size_t placed, as_good; /* placements that were made; how many of them did as well */
};

/* The later half of a beat, on one CPU: does a rank take turns there? The bursts of a beat all ask. */
struct lg_beat {
	int64_t from, to;
	int32_t cpu;
	bool turns;
};

/* Who would be named, did it go on like that. */
struct lg_hint {
	lg_prc prc; /* 0 = nobody */
	double p;   /* of it alone */
	size_t hits, rivals; /* how often; how many candidates there are */
};

struct lg_candidate {
	lg_prc prc;
	struct lg_hint hint;     /* of whoever is the best of all */
	struct lg_odds odds;     /* p: of all candidates in the end */
	struct lg_odds maybe;    /* of it alone, where it coincides at all; placed 0 = it does not */
	double usual;
	double limit;         /* p above it tells nothing */
	bool clouded;         /* it coincides, but whoever waits for a CPU would too */
	int64_t covered;
	size_t n_long, hits;  /* occasions */
	size_t n_judged;      /* bursts that can tell */
	struct lg_stretches all;    /* its long bursts */
	struct lg_stretches bursts; /* those that can tell; in the end those in which it stood still */
	struct lg_rival {              /* who explains it next best; prc 0 = nobody */
		lg_prc prc;
		double p;
		bool at_most; /* p */
		int64_t covered;
	} rival;
	struct lg_beat beat[LG_BEATS]; /* the last ones looked at, by CPU */
};

/* The finding: bursts of the candidate coincide with stalls of r. */
void lg_tell_foreign(struct lg_case *c, const struct lg_rank *r, const struct lg_candidate *k);
/* A limit: r had no CPU free meanwhile, and who has one proves nothing. */
void lg_tell_cpu_taken(struct lg_case *c, const struct lg_rank *r);
/* A limit: who would be named, and how long to record. */
void lg_tell_how_long(struct lg_case *c, const struct lg_victim *v, const struct lg_hint *h);

/* ---- ready.c, stalls.c ---- */
/* c->always_ready: threads that want a CPU all the time, and so have what the others leave (ready.c). */
int lg_find_always_ready(struct lg_case *c, int64_t period) LG_MUST_CHECK;
/* A limit: the longer stalls of r, for which nobody was named (stalls.c). *ret_idle: the share of them in
 * which nobody had its CPU, by samples; NAN = not told. */
int lg_say_stalls(struct lg_case *c, const struct lg_rank *r, const struct lg_stretches *gaps,
		  struct lg_stretch life, int64_t period, double *ret_idle) LG_MUST_CHECK;
#define LG_MOSTLY_IDLE 0.5 /* of that share: then it did not wait for want of a CPU */

#endif /* LG_ANALYSE_HOST_FOREIGN_H */
