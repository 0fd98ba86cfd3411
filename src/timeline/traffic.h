/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - what moves over the links, and for what. */
#ifndef LG_TIMELINE_TRAFFIC_H
#define LG_TIMELINE_TRAFFIC_H
#include "timeline/timeline_gpu.h"

/* ---- comm_traffic.c ---- */
/* What moves over the links, as far as the advice depends on it. */
enum lg_traffic {
	LG_TRAFFIC_REDUCE, LG_TRAFFIC_SHARDS, LG_TRAFFIC_EXCHANGE, LG_TRAFFIC_PAIRS,
	LG_TRAFFIC_UNTOLD, /* sends and receives, perhaps of one all-to-all */
	LG_TRAFFIC_MAX
};
/* What r's exposed time is spent on: each kind that is a quarter of it, at least the largest. */
struct lg_exposed_kind {
	enum lg_traffic is;
	double share;  /* of the exposed time; 0 = nothing tells */
	char op[32];   /* what its collectives are called */
};
/* ret: room for LG_TRAFFIC_MAX. Returns how many; the largest first. */
size_t lg_exposed_kinds(const struct lg_scene *sc, const struct lg_gpu_run *r, struct lg_exposed_kind *ret);

#endif /* LG_TIMELINE_TRAFFIC_H */
