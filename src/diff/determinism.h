/* SPDX-License-Identifier: Apache-2.0 */
/*
 * determinism.h - do two runs of one program compute the same? By fingerprints of what each step was
 * made of (analyse/hook/prints.h), or, of two logs, by the losses that they print.
 */
#ifndef LG_DIFF_DETERMINISM_H
#define LG_DIFF_DETERMINISM_H
#include "analyse/hook/prints.h"
#include "diff/diff.h"

enum lg_det_basis { LG_DET_NOTHING, LG_DET_PRINTS, LG_DET_LOGS };

/* All strings: of the traces, of the arena, or literals. */
struct lg_det {
	enum lg_det_basis basis;
	bool equal;             /* false also where nothing was compared */
	size_t steps_compared;  /* steps that both runs have */
	int64_t every;
	struct {
		int64_t step;       /* -1 = nothing differs */
		int64_t equal_at;   /* the last step before in which all was equal; -1 = none */
		const char *kind;   /* "input" "rng" "loss" "grad" "param" */
		const char *tensor; /* of rng: the generator */
		int32_t rank;       /* -1 = each, or there is none */
		bool outside;       /* a parameter that changed outside of the optimizer's step */
		bool between_ranks; /* of one run: another rank's is another */
		const char *then_kind, *then_tensor; /* rng: the first tensor that differs */
		double before, after; /* of a loss; NAN = not told */
		int decimals;       /* of a log's */
	} first;
	const char **flags_off, **operators, **notes;
	size_t n_flags_off, n_operators, n_notes;
	struct lg_fact_change *facts; /* that differ, and may matter */
	size_t n_facts;
};

/* In a. LG_E_NOMEM. */
int lg_det_compare(const struct lg_trace *before, const struct lg_trace *after, struct lg_arena *a,
		   struct lg_det *ret) LG_MUST_CHECK;
/* A finding of what differs into *f, which is blank and has room for `room` lines of evidence. */
void lg_det_tell(const struct lg_det *d, struct lg_arena *a, struct lg_finding *f, size_t room);

/* determinism_run.c: runs as one verdict of schema 1: its inputs and steps are the runs', its only
 * finding is this. */
struct lg_det_run {
	struct lg_verdict v;
	struct lg_det d;
	struct {
		bool tried, equal;         /* two more runs with deterministic operators */
		double with_ms, without_ms; /* median steps */
		const char *says;
	} flags;
};
/* v: verdicts of two runs, or of four, of which the last two had the flags. They must outlive it. */
int lg_det_run_new(const struct lg_verdict *const *v, size_t n, struct lg_det_run **ret, struct lg_error *err)
	LG_MUST_CHECK;
void lg_det_run_free(struct lg_det_run *r);

/* ---- determinism_facts.c: what was switched off, what differs of the setting, which operators ran ---- */
int lg_det_facts(const struct lg_prints *before, const struct lg_prints *after, struct lg_arena *a,
		 struct lg_det *ret) LG_MUST_CHECK;
/* ---- determinism_logs.c ---- */
int lg_det_logs(const struct lg_trace *before, const struct lg_trace *after, struct lg_arena *a,
		struct lg_det *ret) LG_MUST_CHECK;

#endif /* LG_DIFF_DETERMINISM_H */
