/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - what changed between two runs, and how much of the change each difference explains.
 *
 * Pure: same sides, same result (the bootstrap's generator has a fixed seed). The result is a
 * verdict of schema 1 (its findings are the differences that cost time, ranked by loss) plus the
 * tables of the `diff` object. It borrows both sides and the verdict of AFTER.
 */
#ifndef LG_DIFF_DIFF_H
#define LG_DIFF_DIFF_H
#include "diff/side.h"

/* after / before, with the interval that holds 95 % of the bootstrap's replicates. NAN = unknown. */
struct lg_ratio {
	double value, lo, hi;
};
/* False: the ends lie so far apart that a few steps are most of a mean, and they tell nothing. */
bool lg_ratio_is_told(const struct lg_ratio *r);

/* One difference: of a stage, an item, a holder ... ms per step, NAN where one side has none. */
struct lg_change {
	const char *kind;     /* stage op kernel copy collective function region */
	const char *name, *shape;
	double before, after, delta; /* ms per step */
	double lo, hi;        /* 95 % interval of delta */
	double count_before, count_after;
	bool sure;            /* more than the noise */
	bool was_compiled, is_compiled; /* a module's code */
};

struct lg_fact_change {
	const char *key, *before, *after; /* NULL = not told there */
};

struct lg_process_change {
	const struct lg_side_process *p;
	bool gone;
};

struct lg_holder_change {
	const char *comm, *lock, *key;
	int32_t pid;
	double ms_before, ms_after; /* held per step; 0 = not there */
	double period_before, period_after;
};

/* A device's reading: medians, of reasons to run slower the share of readings. */
struct lg_gauge_change {
	int32_t gpu;
	uint32_t host;        /* machine: 0, 1 ... */
	const char *metric, *unit;
	double before, after, delta;
	double lo, hi;        /* 95 % interval of delta */
	size_t n_before, n_after;
	bool sure;            /* more than the noise, and than a sensor's rounding */
};

/* The ranked list: what explains the change of the mean step. */
struct lg_share {
	const char *what, *id; /* id: of its finding, NULL = none */
	double ms, share;      /* per step; of the whole change, NAN where that is noise */
	bool rare;             /* a few steps make it: the others are as long without it */
};

/* How many times the work of a step before is in a step of one rank after. */
struct lg_work {
	double times;          /* NAN = not told */
	uint64_t from, to;     /* the dimension of the inputs that tells it; 0 = the batch size is a fact */
	bool batch;            /* the batch's, not another dimension of the inputs */
};

struct lg_diff {
	struct lg_verdict v;   /* findings: the differences. trace: AFTER's. Own arena */
	const struct lg_side *before, *after;
	struct lg_ratio mean, median, samples; /* step time; samples: throughput in samples, NAN */
	double mean_ms[2], median_ms[2], p99_ms[2];
	double delta_ms;       /* of the mean step */
	double noise;          /* between runs of the baseline: sd of log(mean); NAN = one run */
	double between;        /* 95 %: by which part two runs of one program may differ (noise.c) */
	double load;           /* of it, what other processes' new use of the CPUs may do */
	double steadiness;     /* >= 1: the steps' interval over that of independent steps */
	struct lg_work work;
	const char **unfair;   /* why the two may not be comparable */
	size_t n_unfair;
	bool other_tool;       /* the inputs are of two kinds: each shows what the other cannot */
	struct lg_change *stages, *items;
	size_t n_stages, n_items;
	struct lg_fact_change *facts;
	size_t n_facts;
	struct lg_process_change *processes;
	size_t n_processes;
	struct lg_holder_change *holders;
	size_t n_holders;
	struct lg_gauge_change *gauges;
	size_t n_gauges;
	struct lg_share *shares;
	size_t n_shares;
	const char *headline;
	const char *parts;     /* what they compute, too: a sentence without its end; NULL */
	struct {
		double limit;      /* NAN = not asked */
		const char *verdict; /* "pass" "fail" "unknown" */
		const char *why;
	} gate;
};

/* after_v: verdict of AFTER, NULL when AFTER is a baseline. fail_over: fraction, NAN = not asked. */
int lg_diff_new(const struct lg_side *before, const struct lg_side *after,
		const struct lg_verdict *after_v, double fail_over, struct lg_diff **ret,
		struct lg_error *err) LG_MUST_CHECK;
void lg_diff_free(struct lg_diff *d);

/* ---- changes.c: tables of what differs, without judgement ---- */
int lg_diff_changes(struct lg_diff *d) LG_MUST_CHECK;
/* Told as other work already, not as a version or a flag? */
bool lg_diff_is_workload(const struct lg_fact_change *f);
/* Does the change of a module, x of d->items, lie in one that it is made of? */
bool lg_diff_is_within(const struct lg_diff *d, const struct lg_change *x);
/* ---- work.c ---- */
/* By the operators' input shapes; d->items are known. */
int lg_diff_work_of_shapes(struct lg_diff *d, struct lg_work *ret) LG_MUST_CHECK;
/* ---- gauges.c ---- */
int lg_diff_gauges(struct lg_diff *d) LG_MUST_CHECK;
/* "GPU 3", "GPU 3 of machine 2" */
const char *lg_gauge_device(const struct lg_gauge_change *g, char *buf, size_t size);
/* ---- noise.c: by how much two runs of one program differ ---- */
void lg_diff_noise(struct lg_diff *d);
/* ---- causes.c: findings, ranked; shares of the change ---- */
int lg_diff_causes(struct lg_diff *d, const struct lg_verdict *after_v) LG_MUST_CHECK;
/* ---- short_kernel.c ---- */
enum { LG_KERNEL_TEXT = 96 };
/* "void at::native::f<4, at::native::G<float> >(int)" as "f<4, G<float> >", cut to size; buf, or name itself. */
const char *lg_short_kernel(const char *name, char *buf, size_t size);
/* As a person reads it: x->name, of a kernel short. */
const char *lg_change_name(const struct lg_change *x, char *buf, size_t size);

/* ---- headline.c ---- */
void lg_diff_headline(struct lg_diff *d);
void lg_diff_gate(struct lg_diff *d);

/* ---- bootstrap.c ---- */
struct lg_bootstrap {
	struct lg_ratio mean, median;
	double delta_lo, delta_hi; /* 95 % interval of mean(after) - mean(before) */
	double med_lo, med_hi;     /* of the difference of medians */
	double med_delta;
};
/*
 * Circular block bootstrap of two independent series, widened by their drift; intervals are NAN for
 * fewer than three steps on a side. False when out of memory.
 */
bool lg_bootstrap(const double *before, size_t n_before, const double *after, size_t n_after,
		  struct lg_bootstrap *ret);
/*
 * Lower end of the 95 % interval of the mean of one series, from blocks alone: what a cause took is none of
 * the machine's drift. NAN for fewer than three values. False when out of memory.
 */
bool lg_bootstrap_lower(const double *v, size_t n, double *ret) LG_MUST_CHECK;
/* So many steps in a row may belong together. */
size_t lg_bootstrap_block(size_t n);
double lg_student95(double df);
double lg_mean_of(const double *v, size_t n);       /* NAN for n 0 */
/* q in [0, 1]; v is reordered. NAN for n 0. */
double lg_quantile_of(double *v, size_t n, double q);

#endif /* LG_DIFF_DIFF_H */
