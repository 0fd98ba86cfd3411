/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_rules.h - what the rules share that judge a run without a device. */
#ifndef LG_ANALYSE_DEVICE_CPU_RULES_H
#define LG_ANALYSE_DEVICE_CPU_RULES_H
#include "analyse/device/device_rules.h"
#include "timeline/cpu_time.h"

/* What part of a step a finding is about; LG_CPU_PARTS = of another kind. */
enum lg_cpu_part lg_cpu_part_of(const struct lg_finding *f);
/* What r's main thread spends in stretches of one class: without a device, all of it is exposed. */
struct lg_cpu_time {
	const struct lg_gpu_run *r;
	int64_t sum, longest, at; /* ns; at: where the longest stretch begins */
	int64_t *by_step;
	size_t n;                 /* stretches */
	double others;            /* share of it in the other runs, in the mean; NAN = there are none */
	uint32_t row;             /* in the longest: what gives it its class */
};
/* cpu_side.c: what the run without a device spends that has most of it, as a finding, graded by how often it
 * came; NULL: less than floor of its time. */
struct lg_finding *lg_cpu_exposed(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				  enum lg_host_class class, double floor, double confidence,
				  struct lg_cpu_time *ret);
/* "; only on rank 0", where it is: of t->r's rank f tells. "" else. */
const char *lg_cpu_only_on(struct lg_case *c, struct lg_finding *f, const struct lg_cpu_time *t);
const char *lg_cpu_who(struct lg_case *c, const struct lg_gpu_run *r); /* "rank 0" */
static inline double lg_cpu_share(const struct lg_cpu_time *t)
{
	return t->r ? (double)t->sum / (double)lg_gpu_wall(t->r) : 0;
}

#endif /* LG_ANALYSE_DEVICE_CPU_RULES_H */
