/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.h - one run in the numbers that two runs are compared by: per-step series and sums.
 *
 * Made from a sealed trace and its verdict (side.c), or read back from a stored baseline
 * (baseline.c). Times are ms, per judged step of the reference rank: the lowest rank that has
 * steps. Every string lives in the side's arena or in the verdict's trace, which must outlive it.
 */
#ifndef LG_DIFF_SIDE_H
#define LG_DIFF_SIDE_H
#include <stdbool.h>

#include "analyse/verdict.h"
#include "base/arena.h"

/* A step's time by stage without what a host cause (lock, CPU, device, stop) took from it. */
struct lg_series {
	double *step;                 /* [n]: length of each judged step, in time order */
	double *clean[LG_STAGE_MAX];  /* [n]: own time by stage; [0] = the sum over stages */
	size_t n;
};

enum lg_item_kind { LG_ITEM_OP, LG_ITEM_KERNEL, LG_ITEM_COPY, LG_ITEM_COLLECTIVE, LG_ITEM_FUNCTION,
		    LG_ITEM_REGION, LG_ITEM_STAGE_CALL, LG_ITEM_MODULE, LG_ITEM_MAX };
extern const char *const lg_item_kind_names[LG_ITEM_MAX]; /* as in the JSON: "op" ... */

/* What is matched by name (and shape): an operator, a kernel, a function's samples. */
struct lg_item {
	uint8_t kind;
	const char *name, *shape; /* shape "" = not told */
	double ms;                /* own time per step (operators: without those they call; modules: with) */
	double var;               /* of the per-step time */
	double count;             /* calls per step */
	bool compiled;            /* a module whose code is; not part of a baseline */
};

struct lg_side_fact {
	const char *key, *value;
};

struct lg_side_process {
	const char *key;          /* command line without its numbers: the same in another run */
	const char *comm, *cmdline;
	int32_t pid;
	double cpu;               /* CPUs used while steps were judged */
	bool own;                 /* belongs to the job */
};

struct lg_side_holder {
	const char *key, *comm, *lock;
	int32_t pid;
	double n, ms, period_s;   /* holds, their sum, rhythm (NAN = none) */
};

/* What was read of one GPU now and then (nvidia-smi, NVML): not per step. */
struct lg_side_gauge {
	int32_t gpu;
	uint32_t host;            /* several machines have a GPU of this number: 0, 1 ... */
	const char *metric, *unit; /* "gpu.util" */
	double *v;                /* [n], in time order */
	size_t n;
};

/* A finding of this run's own verdict. */
struct lg_side_finding {
	const char *id, *key, *severity;
	double ms;                /* lost per step; NAN = not measured */
	double half;              /* of the 95 % interval of ms; NAN = not told */
	uint32_t row;             /* in the verdict's findings; UINT32_MAX = from a baseline */
};

struct lg_side_compile {
	bool asked;               /* torch.compile was called */
	double frames;            /* compiled frames; NAN = not told */
	double regions;           /* compiled regions per step; NAN = spans do not show them */
	const char *mode;         /* dispatch mode active in forward; "" = none */
};

enum { LG_SIDE_RUNS_MAX = 20 };

struct lg_side {
	struct lg_arena arena;
	const struct lg_trace *trace; /* NULL: a stored baseline */
	struct lg_input *inputs;
	size_t n_inputs;
	struct lg_series s;
	double wall_ms;           /* from the first judged step to the last one's end */
	double stolen_ms;         /* of a step, by the hypervisor and interrupts, at least; NAN = not told */
	bool has_states;
	bool has_device;          /* steps are as long as their device works on them */
	size_t n_ranks;
	int32_t ref_pid, ref_rank;
	struct lg_item *items;    /* sorted by (kind, name, shape) */
	size_t n_items;
	struct lg_side_fact *facts; /* sorted by key */
	size_t n_facts;
	struct lg_side_process *processes; /* sorted by key */
	size_t n_processes;
	struct lg_side_holder *holders; /* sorted by key, lock */
	size_t n_holders;
	struct lg_side_gauge *gauges; /* sorted by (gpu, host, metric); not part of a baseline */
	size_t n_gauges;
	struct lg_side_finding *findings;
	size_t n_findings;
	struct lg_side_compile compile;
	/* Earlier runs of the same baseline: their mean and median step, and what tells them apart. */
	uint64_t run_id[LG_SIDE_RUNS_MAX]; /* 0 = not known */
	double run_mean[LG_SIDE_RUNS_MAX], run_median[LG_SIDE_RUNS_MAX];
	size_t n_runs;
	bool stored;              /* read from a baseline */
	const char *const *limits; /* of its own verdict */
	size_t n_limits;
};

int lg_side_new(const struct lg_verdict *v, struct lg_side **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_side_free(struct lg_side *s);
/* NULL when unknown. */
const char *lg_side_fact(const struct lg_side *s, const char *key);
double lg_side_mean(const struct lg_side *s);   /* NAN without steps */
double lg_side_median(const struct lg_side *s);

/* ---- side_items.c, side_modules.c, side_host.c, side_gauges.c: parts of lg_side_new() ---- */
struct lg_index;
struct lg_side_window {
	const struct lg_step *steps; /* of the reference rank, judged, in time order */
	const struct lg_step *device; /* the same from ready to done; NULL = no device is known */
	size_t n;
	lg_prc prc;
	lg_thr thr;
	int64_t from, to;
};
int lg_side_items(struct lg_side *s, const struct lg_trace *t, const struct lg_index *x,
		  const struct lg_side_window *w) LG_MUST_CHECK;
/* Modules of the model among the items; those are in order before and after. */
int lg_side_modules(struct lg_side *s, const struct lg_verdict *v,
		    const struct lg_side_window *w) LG_MUST_CHECK;
int lg_side_host(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
	LG_MUST_CHECK;
int lg_side_gauges(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
	LG_MUST_CHECK;
int lg_side_cmp_gauge(const struct lg_side_gauge *x, const struct lg_side_gauge *y);
/* A command without what differs from start to start: digits become '#'. In the arena. */
const char *lg_side_key(struct lg_arena *a, const char *cmdline, const char *comm);

/* ---- baseline.c: the side as text, one fact a line (laggard-diff(1)) ---- */
struct lg_out;
/* Of the lengths of its steps, as far as a baseline keeps them: equal for a run and what was stored of it. */
uint64_t lg_side_run_id(const struct lg_side *s);
void lg_baseline_write(const struct lg_side *s, struct lg_out *o);
/* Is this the start of a baseline file? */
bool lg_baseline_sniff(const void *head, size_t n);
/* text need not be terminated. Damage is an error with its line. */
int lg_baseline_read(const char *text, size_t n, const char *path, struct lg_side **ret,
		     struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_DIFF_SIDE_H */
