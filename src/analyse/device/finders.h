/* SPDX-License-Identifier: Apache-2.0 */
/* finders.h - who is asked of devices, in the order of registry.c, and what is found out before. */
#ifndef LG_ANALYSE_DEVICE_FINDERS_H
#define LG_ANALYSE_DEVICE_FINDERS_H
#include "analyse/case.h"
#include "timeline/cost.h"

/* ---- late_rank.c ---- */
/* g->late and g->critical; after all causes are told apart, before the rules. */
int lg_gpu_late(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
/* comms.straggler, for what no other rule told of the late rank; after all of them. */
int lg_find_late(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;

/* What the late rank, or the few, computes longer than the others: the same kernels, or more of them? f tells
 * that it does. */
int lg_late_kernels(struct lg_case *c, const struct lg_gpu *g,
		    struct lg_finding *f) LG_MUST_CHECK; /* late_kernels.c */
/* Its device waits for its host: f's title says what that host does, and whose it is. */
void lg_late_host(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *late,
		  struct lg_finding *f, const char *whose); /* late_host.c */
/* The same of ranks without a device; after lg_find_data(). */
int lg_find_late_on_cpu(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* cpu_late.c */

/* ---- rules: each looks at all runs and adds its findings ---- */
int lg_find_gpu(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;         /* gpu_rules.c */
/* Take optimizer, zero_grad and autotuning out of the other causes; before all rules. */
int lg_gpu_refine(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;       /* gpu_kernels.c */
int lg_find_gpu_kernels(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* gpu_kernels.c */
int lg_gpu_refine_checks(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* backward_rules.c */
int lg_find_backward(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;    /* backward_rules.c */
int lg_find_data(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;        /* data_rules.c */
/* Before lg_find_comms() and lg_find_late(), which do not tell it again. */
int lg_find_slow_links(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;  /* slow_links.c */
int lg_find_comms(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;       /* comms_rules.c */

int lg_find_compile_trace(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* compile_trace.c */
int lg_find_gpu_counters(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* gpu_counters.c */

/* Runs, their steps, and where all their time went, each cause told apart: before the rules. */
int lg_prepare_devices(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;  /* gpu_explain.c */
/* device of the steps that lie in their run's window; causes are final. */
int lg_step_devices(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* step_devices.c */
/* What bounds the run, and what is in doubt; after the rules. */
int lg_conclude_devices(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
/*
 * What does not depend on where the time went can be looked at while that is found out, in another thread:
 * begin() and end() belong to the caller's thread, walk() to either.
 */
int lg_amp_begin(struct lg_case *c, struct lg_gpu_run *r) LG_MUST_CHECK;      /* amp_rules.c */
void lg_amp_walk(struct lg_case *c, struct lg_gpu_run *r);
int lg_amp_end(struct lg_case *c, struct lg_gpu_run *r) LG_MUST_CHECK;
/* May a wait for batches be inferred? Then r->notes->busy will be asked for. */
bool lg_batch_may_infer(const struct lg_gpu_run *r);                          /* batch_wait.c */
int lg_batch_busy(const struct lg_case *c, const struct lg_gpu_run *r, struct lg_ivs *ret) LG_MUST_CHECK;

/* v->bound_why, and where slow steps took longer, of runs that have nothing but ranges. */
int lg_range_times(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* range_times.c */
int lg_compile_absent(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;     /* compile_trace.c */
void lg_compile_regions(struct lg_case *c, const struct lg_gpu *g);           /* compile_regions.c */
/* v->bound where nothing but operators on the CPU was traced. */
int lg_bound_on_cpu(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* cpu_bound.c */
/* side.checkpoint and side.logging where there is no device; after lg_find_data(). */
int lg_find_side_on_cpu(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
/* The excess of slow steps that have no device: a limit says where it lies. */
int lg_cpu_slow_steps(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* cpu_slow.c */

/* ---- questions of their own; the refine ones come before all rules ---- */
int lg_gpu_refine_batch(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;   /* batch_wait.c */
int lg_find_batch_wait(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
int lg_gpu_refine_amp(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;     /* amp_rules.c */
int lg_find_amp(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
int lg_gpu_refine_overlap(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* overlap_rules.c */
int lg_find_overlap(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;

/* Steps that ended long before the trace did; after the rules. */
int lg_say_device_still(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;   /* device_still.c */

/* ---- gpu_slow.c ---- */
/* The excess of a profiler's slow steps, by the findings that it belongs to; after all rules. */
int lg_gpu_slow_steps(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;

/* Told by two rules, once. */
#define LG_ANOMALY_DETECTION "autograd anomaly detection"

#endif /* LG_ANALYSE_DEVICE_FINDERS_H */
