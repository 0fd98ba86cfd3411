/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_match.h - the same collective on each rank's device.
 *
 * Across rank files a collective is the same one when group and number in the group agree
 * (kineto: the argument "seq"); older traces have no number, then the n-th call of this kind in
 * this group. All ranks leave a collective together, so whoever is in it for the shortest time
 * came last, and that time is what the transfer takes: that needs no common clock.
 */
#ifndef LG_TIMELINE_COMM_MATCH_H
#define LG_TIMELINE_COMM_MATCH_H
#include "timeline/timeline_gpu.h"

/* One rank's side of one. */
struct lg_coll {
	lg_str group;
	int64_t seq;   /* in the group, or n-th of its kind */
	uint32_t run, work;
	int64_t dur;
	bool before;   /* the window: in steps that were left out */
	const char *op; /* "AllReduce"; one address for each */
};

struct lg_colls {
	struct lg_coll *v;
	size_t n, cap, numbered;
};

bool lg_coll_same(const struct lg_coll *a, const struct lg_coll *b);
/* g->colls: all that any rank is in, by collective. Who asks again gets what was found. */
int lg_colls_find(const struct lg_scene *sc, struct lg_gpu *g) LG_MUST_CHECK;

/* The sides of one collective. */
struct lg_coll_sides {
	size_t from, to, best; /* best: the shortest */
	int64_t waited;        /* by the others, in all; 0 = noise */
};

/* The next one of g->colls behind *x (all zero at first) that is matched; those of steps that were left out
 * are not. */
bool lg_coll_next_sides(const struct lg_gpu *g, struct lg_coll_sides *x);

/* Of a device row: its own bytes, else by its arguments; 0 = unknown. */
uint64_t lg_coll_bytes(const struct lg_trace *t, uint32_t row);

#endif /* LG_TIMELINE_COMM_MATCH_H */
