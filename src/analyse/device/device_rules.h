/* SPDX-License-Identifier: Apache-2.0 */
/* device_rules.h - what the rules of devices share, and all that each of them looks at. */
#ifndef LG_ANALYSE_DEVICE_DEVICE_RULES_H
#define LG_ANALYSE_DEVICE_DEVICE_RULES_H
#include "analyse/device/finders.h"
#include "timeline/cost.h"

/* What the rules remember of a run. */
enum lg_gpu_with_kernels { LG_GPU_OPTIMIZER, LG_GPU_ZERO_GRAD, LG_GPU_AUTOTUNE, LG_GPU_EXTRAS };
struct lg_gpu_notes {
	struct lg_gpu_extra {   /* gpu_kernels.c: what has a cause of its own costs by its kernels, too */
		size_t kernels; /* of an optimizer a step, where there are too many; all; of candidates */
		int64_t savable, *by_step; /* ns; NULL = not told */
	} extra[LG_GPU_EXTRAS];
	struct lg_gpu_checks {  /* backward_rules.c: autograd's anomaly detection */
		size_t kernels;
		int64_t savable, stacks; /* ns of these; idle while stacks are kept */
	} checks;
	int64_t ddp_search, ddp_copy; /* overlap_rules.c: idle time in DDP's own work */
	struct lg_amp *amp;     /* amp_rules.c: what its operators say, when it was looked at */
	struct lg_ivs *busy; /* batch_wait.c: when the host was at work; NULL = no wait is inferred for it */
};

/* late_rank.c: for whom ranks wait in collectives. */
struct lg_gpu_late {
	struct {
		size_t last;            /* collectives in which it came last */
		int64_t caused, waited; /* ns: of the others, in the mean over these; of its own */
		bool late;              /* it is the one, or one of the few, that the others wait for */
	} *rank;                    /* by run */
	uint32_t run;               /* that caused most */
	bool one, numbered;         /* it is one rank; collectives are matched by number */
	size_t n_late;              /* ranks that are always among the late ones; 0 = in turn */
	size_t matched, with_wait;  /* collectives */
	size_t episodes;            /* steps in which ranks wait */
	int64_t *by_step;           /* ns that they wait, of all; as many as the longest run has steps */
	double in_step;             /* how much of a step, where most of it lies; NAN: no steps */
	struct lg_gpu_proof {
		double part;        /* of a loss: what is beyond chance, by how often it was seen */
		size_t seen;        /* most of it came in so few episodes; 0 = in enough */
	} proof;
	bool hosts;                 /* in turn: it is launches that come late, beyond chance */
	int64_t caused;             /* ns that ranks wait, in the mean over all */
	double ns;                  /* what the others wait for the late ones and no computation hides */
	double more[LG_GPU_BY_MAX]; /* ns that the late ones have of a cause beyond the others */
	double late_by[LG_GPU_BY_MAX]; /* in turn: all that they have of it while they are late */
};

/* Is it one rank that the others wait for: the cause of most of their waiting, and last more often than its
 * turn? caused, all: of the same unit; last: in so many of the collectives in which ranks wait. */
static inline bool lg_is_late_one(double caused, double all, size_t last, size_t with_wait, size_t n_ranks)
{
	return caused * 5 > all * 3 && last * n_ranks * 2 > with_wait * 3;
}

/* What comms.degraded_link told: exposed ns, in the mean over all runs and of the run that loses most, and
 * how many runs are in such collectives. */
struct lg_gpu_slow_link {
	double mean, most;
	size_t runs;
};

/* ---- gpu_finding.c ---- */
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
/* Of these, by which late ranks are later than the others, ns. In turn: one of n at a time. */
double lg_gpu_later_launches(const struct lg_gpu *g, uint32_t mask);
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
/* Add the n longest pieces of cause as evidence, merged by place. Returns the culprit's place, and how many
 * others have a twentieth or more; NULL: none has a name. */
const char *lg_gpu_moments(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask,
			   size_t n, const char *what);
/* Does r's device wait for launches in a few long pauses, mostly? *ret_where: what the host is in for nearly
 * all of the longest; NULL = not told. */
bool lg_gpu_pauses(struct lg_case *c, const struct lg_gpu_run *r, const char **ret_where); /* gpu_rules.c */
/* A finding of estimated cost: `part` of the savable time; NULL below floor. */
struct lg_finding *lg_gpu_costs(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				const struct lg_gpu_run *r, const struct lg_gpu_sums *s, double part,
				double confidence, double floor);
/* The GPU that a counter's track belongs to; 0 = none. */
lg_trk lg_gpu_of_track(const struct lg_trace *t, lg_trk k);

/* ---- gpu_slow.c: how much longer slow steps took, by cause ---- */
/* Are there slow ones, and enough of the others to know what is usual? */
bool lg_gpu_tells_slow(const struct lg_step *step, size_t n);
/* by: n rows of `kinds`; usual[kinds]: the medians of the steps that are not slow; scratch: n. */
void lg_gpu_usual(const struct lg_step *step, size_t n, const int64_t *by, size_t kinds, int64_t *scratch,
		  int64_t *usual);
/* Add to of[kinds] what a slow step has above the usual, scaled down where that is more than the step's own
 * excess, because another kind is shorter. Returns the scale; *ret_more: the sum before it. */
double lg_gpu_add_excess(const struct lg_step *step, const int64_t *by, const int64_t *usual, size_t kinds,
			 double *of, double *ret_more);

/* ---- gpu_kernels.c ---- */
bool lg_kernel_is_fp32(const char *name);

/* ---- attention.c ---- */
/* Tells of torch's math path in r. *ret_mine, freed by the caller: a byte for each of r's work, 1 where it is
 * the path's; NULL where it is not told. */
int lg_find_attention(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		      uint8_t **ret_mine) LG_MUST_CHECK;

/* ---- after_sync.c ---- */
struct lg_after_sync {
	size_t n;               /* stretches of milliseconds between a synchronisation and the next launch */
	int64_t ns, longest, at;
	const char *where;      /* what most of them is spent in; NULL = not told */
	int64_t where_ns;
};
/* Is most of what synchronisations cost r spent in such stretches? */
bool lg_gpu_after_sync(struct lg_case *c, const struct lg_gpu_run *r, struct lg_after_sync *ret);

/* ---- pipeline_stages.c ---- */
/* A rank with more work of its own than the others, which wait for what it sends. */
struct lg_long_stage {
	const struct lg_gpu_run *run;
	size_t replicas;          /* further ranks with as much */
	double own_ms, others_ms; /* a step; the mean of those with less */
};
bool lg_long_stage(const struct lg_gpu *g, struct lg_long_stage *ret);

#endif /* LG_ANALYSE_DEVICE_DEVICE_RULES_H */
