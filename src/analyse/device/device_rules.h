/* SPDX-License-Identifier: Apache-2.0 */
/* device_rules.h - what the rules of devices share, and all that each of them looks at. */
#ifndef LG_ANALYSE_DEVICE_DEVICE_RULES_H
#define LG_ANALYSE_DEVICE_DEVICE_RULES_H
#include "analyse/device/finders.h"
#include "analyse/timeline/cost.h"

/* ---- gpu_explain.c ---- */
struct lg_gpu_loss {
	uint32_t mask; /* causes, LG_GPU_BIT() */
	double ms, share;
	const struct lg_gpu_run *worst; /* that lost most; NULL = none is judged */
};
/* Sum over judged runs of their causes in mask, each divided by the number of runs: wall time of the run,
 * each nanosecond once. Where all wait for one rank (g->critical) its account is the run's, but for the
 * launches by which it is later than the others: these are comms.straggler's. So are those of ranks that are
 * late in turn. */
struct lg_gpu_loss lg_gpu_lost(const struct lg_gpu *g, uint32_t mask);
static inline double lg_gpu_share(const struct lg_gpu *g, uint32_t mask)
{
	return lg_gpu_lost(g, mask).share;
}
/* A finding with lost time, share and severity; confidence as given, lowered for a short window. */
struct lg_finding *lg_gpu_finding(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				  double lost_ms, double share, double confidence,
				  const struct lg_gpu_run *worst);
/* The same of what the trace shows, and not what it costs. */
struct lg_finding *lg_gpu_unpriced(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				   double confidence, const struct lg_gpu_run *worst);
/* The same of l, graded by how often it came; NULL below floor. */
struct lg_finding *lg_gpu_idles(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				const struct lg_gpu_loss *l, double floor, double confidence);
/* So many episodes carry a grade: five, or one in (nearly) every step of fewer. */
size_t lg_gpu_enough(const struct lg_gpu_run *r);
/* Of by_step, of n steps. */
struct lg_gpu_proof lg_gpu_proof_of(const struct lg_gpu_run *r, const int64_t *by_step, size_t n);
/* Graded by the part of it that its episodes prove. When they were is kept in f->moments. */
void lg_gpu_cap_rare(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask);
/* The same of what is told by step; r has two and more. */
void lg_gpu_cap_steps(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
		      const int64_t *by_step);
/* When it was, by step, in f->moments; no more. */
void lg_gpu_keep_steps(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
		       const int64_t *by_step);
/* Is r's host slower in some steps than in others that launch as much? us from a launch to the next. */
bool lg_host_varies(struct lg_case *c, const struct lg_gpu_run *r, double *ret_fast_us,
		    double *ret_slow_us); /* late_host.c */
/* Add the n longest pieces of cause as evidence, merged by place. */
void lg_gpu_moments(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask,
		    size_t n, const char *what);
/* Does r's device wait for launches in a few long pauses, mostly? *ret_where: what the host is in for nearly
 * all of the longest; NULL = not told. */
bool lg_gpu_pauses(struct lg_case *c, const struct lg_gpu_run *r, const char **ret_where); /* gpu_rules.c */
/* "train.py:42 step" or a module or an operator: where in the user's code. NULL = not in the trace. */
const char *lg_gpu_place(struct lg_case *c, uint32_t op, uint32_t site);
/* The GPU that a counter's track belongs to; 0 = none. */
lg_trk lg_gpu_of_track(const struct lg_trace *t, lg_trk k);

#endif /* LG_ANALYSE_DEVICE_DEVICE_RULES_H */
