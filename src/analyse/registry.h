/* SPDX-License-Identifier: Apache-2.0 */
/* registry.h - every finder of rules, what it needs, and its place in the order. */
#ifndef LG_ANALYSE_REGISTRY_H
#define LG_ANALYSE_REGISTRY_H
#include "analyse/case.h"
#include "timeline/timeline_gpu.h"

/* What a trace must have for a finder to be asked. */
enum lg_needs {
	LG_NEEDS_NOTHING = 0,
	LG_NEEDS_TRACE_ONLY = 1, /* a profiler's trace alone: of a recording, chains of waits say it */
	LG_NEEDS_RUNS = 2,       /* a process that drives a device, or whose operators were traced */
};

/* One of the two functions. 0, or LG_E_NOMEM. */
struct lg_finder {
	int (*of_run)(struct lg_case *c);
	int (*of_device)(struct lg_case *c, struct lg_gpu *g);
	unsigned needs;
	/* Of what it may find, rules that it does not tell where a finder before it has: that one knew more.
	 * Ends with LG_R_NONE. */
	enum lg_rule_id yields[4];
};

/* Chains of waits have told their causes before. */
int lg_ask_finders(struct lg_case *c) LG_MUST_CHECK;

#endif /* LG_ANALYSE_REGISTRY_H */
