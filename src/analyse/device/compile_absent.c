/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile_absent.c - compiled code that a log tells of and a trace of the steps does not have.
 *
 * torch marks every call of compiled code ("Torch-Compiled Region", "CompiledFunction"), and Inductor's
 * kernels have names of their own. Where a log shows that the compiler worked and a profile of whole steps
 * has none of these, the steps run eagerly: a dispatch mode, a wrapper around the module, another code path.
 */
#include "analyse/device/device_rules.h"
#include "base/words.h"

/* Any row at all, also of a thread or stream that is not judged. */
static bool has_compiled(struct lg_case *c)
{
	LG_AUTOFREE uint8_t *picked = NULL;
	bool found = lg_failed(c, lg_span_pick(c, LG_LIST_COMPILED, &picked));

	for (size_t i = 0; picked && i < c->t->span.n && !found; i++)
		found = picked[c->t->span.name[i]];
	return found;
}

int lg_compile_absent(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_mark_tab *m = &c->t->mark;
	const struct lg_gpu_run *r = NULL;
	size_t n = 0, first = 0;
	struct lg_finding *f;

	LG_EACH_MARK(i, c->t, "log.compile_start")
		first = n++ ? first : i;
	if (!n || lg_told(c, LG_R_COMPILE_SKIPPED))
		return 0;
	LG_EACH(x, g->run, g->n) {
		/* One step may be what never was compiled, as an evaluation. */
		if (!r && lg_gpu_traced(x) && x->n_ops && x->n_steps >= LG_N_COMPILE_SKIPPED_STEPS)
			r = x;
	}
	if (!r || has_compiled(c))
		return c->failed;
	f = lg_gpu_unpriced(c, g, LG_R_COMPILE_SKIPPED, 0.8, r);
	lg_title(c, f, LG_SAYS_COMPILE_SKIPPED_RUNS_EAGERLY, r->n_steps);
	lg_evidence_add(c, f, m->ts[first], 0, LG_SAYS_COMPILE_SKIPPED_LOGGED, n, lg_s(n),
			*lg_string(c->t, m->text[first]) ? lg_string(c->t, m->text[first]) :
			"here");
	lg_evidence(c, f, LG_SAYS_COMPILE_SKIPPED_NONE_IN_TRACE, r->n_ops);
	lg_evidence(c, f, LG_SAYS_COMPILE_SKIPPED_UNPRICED);
	lg_evidence_against(c, f, LG_SAYS_COMPILE_SKIPPED_OTHER_CODE);
	return c->failed;
}
