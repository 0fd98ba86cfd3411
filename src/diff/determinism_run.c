/* SPDX-License-Identifier: Apache-2.0 */
/* determinism_run.c - two runs and what differs between them, as a verdict. */
#include <math.h>
#include <string.h>

#include "analyse/grade.h"
#include "base/alloc.h"
#include "diff/determinism.h"

enum { EVIDENCE_MAX = 12 };

void lg_det_run_free(struct lg_det_run *r)
{
	if (!r)
		return;
	lg_arena_done(&r->v.arena);
	lg_free(r);
}

static void limit(struct lg_verdict *v, const char *text)
{
	v->limits = lg_arena_room(&v->arena, v->limits, v->n_limits, sizeof *v->limits);
	if (v->limits)
		v->limits[v->n_limits++] = text;
}

/* What of fingerprints was lost: all else that a recording may lack matters nothing here. */
static void lost(struct lg_verdict *v, const struct lg_trace *t, const char *run)
{
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_MARKS_LOST || t->diag.id[i] == LG_DIAG_MARKS_OFF)
			limit(v,
			      lg_arena_printf(&v->arena, "%s: %s: %s", run, lg_diag_sentence(t->diag.id[i]),
					      lg_string(t, t->diag.text[i])));
}

static void inputs(struct lg_verdict *v, const struct lg_verdict *const *of, size_t n)
{
	v->inputs = NULL;
	v->n_inputs = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < of[i]->n_inputs; k++) {
			v->inputs = lg_arena_room(&v->arena, v->inputs, v->n_inputs, sizeof *v->inputs);
			if (!v->inputs)
				return;
			v->inputs[v->n_inputs++] = of[i]->inputs[k];
		}
}

static int with_flags(const struct lg_verdict *const *v, struct lg_det_run *r)
{
	struct lg_arena *a = &r->v.arena;
	struct lg_det d;
	double more;
	int rc = lg_det_compare(v[2]->trace, v[3]->trace, a, &d);

	if (rc)
		return rc;
	r->flags.tried = true;
	r->flags.equal = d.equal;
	r->flags.without_ms = fmin(v[0]->median_ms, v[1]->median_ms);
	r->flags.with_ms = fmin(v[2]->median_ms, v[3]->median_ms);
	more = 100 * (r->flags.with_ms / r->flags.without_ms - 1);
	r->flags.says = lg_arena_printf(
		a, "With deterministic operators two more runs %s%s.",
		d.equal ? "were equal" : "differ as well",
		isfinite(more) ? lg_arena_printf(a,
						 "; their median step took %.3f ms, without %.3f ms "
						 "(%+.1f %%)",
						 r->flags.with_ms, r->flags.without_ms, more)
			       : "");
	/* torch names what has no deterministic implementation. */
	for (size_t i = 0; i < d.n_operators; i++) {
		bool told = false;

		for (size_t k = 0; k < r->d.n_operators; k++)
			told |= !strcmp(r->d.operators[k], d.operators[i]);
		if (told)
			continue;
		r->d.operators = lg_arena_room(a, r->d.operators, r->d.n_operators, sizeof *r->d.operators);
		if (!r->d.operators)
			return LG_E_NOMEM;
		r->d.operators[r->d.n_operators++] = d.operators[i];
	}
	return 0;
}

int lg_det_run_new(const struct lg_verdict *const *v, size_t n, struct lg_det_run **ret,
		   struct lg_error *err)
{
	struct lg_det_run *r = lg_calloc(1, sizeof *r);
	struct lg_finding *f;
	int rc;

	if (!r)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	r->v = *v[1];
	r->v.arena = (struct lg_arena){ 0 };
	r->v.findings = NULL;
	r->v.n_findings = r->v.n_limits = r->v.n_not_judged = 0;
	r->v.limits = NULL;
	r->v.not_judged = NULL;
	inputs(&r->v, v, 2);
	rc = lg_det_compare(v[0]->trace, v[1]->trace, &r->v.arena, &r->d);
	rc = rc || n < 4 ? rc : with_flags(v, r);
	for (size_t i = 0; i < r->d.n_notes; i++)
		limit(&r->v, r->d.notes[i]);
	lost(&r->v, v[0]->trace, "the first run");
	lost(&r->v, v[1]->trace, "the second run");
	if (!rc && r->d.first.step >= 0) {
		f = lg_arena_alloc(&r->v.arena, 1, sizeof *f);
		if (f) {
			*f = lg_finding_blank(LG_R_DET_DIVERGED);
			f->evidence = lg_arena_alloc(&r->v.arena, EVIDENCE_MAX, sizeof *f->evidence);
			lg_det_tell(&r->d, &r->v.arena, f, f->evidence ? EVIDENCE_MAX : 0);
			r->v.findings = f;
			r->v.n_findings = 1;
			lg_findings_calibrate(&r->v);
		}
	}
	if (rc || r->v.arena.failed) {
		lg_det_run_free(r);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = r;
	return 0;
}
