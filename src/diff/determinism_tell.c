/* SPDX-License-Identifier: Apache-2.0 */
/* determinism_tell.c - what differs between two runs, as a finding. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyse/grade.h"
#include "base/each.h"
#include "diff/determinism.h"
#include "rules/says.h"

static const char *joined(struct lg_arena *a, const char *const *v, size_t n)
{
	const char *text = "";

	for (size_t i = 0; i < n; i++)
		text = lg_arena_printf(a, "%s%s%s", text, i ? ", " : "", v[i]);
	return text;
}

static void say(struct lg_finding *f, size_t room, const char *text)
{
	if (f->n_evidence < room)
		f->evidence[f->n_evidence++] = (struct lg_evidence){ .text = text, .ts = INT64_MIN };
	else
		f->evidence_left_out++;
}

static const char *noun(const char *kind)
{
	return !strcmp(kind, "grad")    ? "the gradient of"
	       : !strcmp(kind, "param") ? "the parameter"
	       : !strcmp(kind, "input") ? "the input"
					: "the";
}

static const char *title(const struct lg_det *d, struct lg_arena *a)
{
	long long step = (long long)d->first.step;
	const char *rank = d->first.rank >= 0 ? lg_arena_printf(a, ", on rank %d", d->first.rank) : "";

	if (d->basis == LG_DET_LOGS)
		return lg_arena_printf(a, LG_SAYS_DET_DIVERGED_LOG, step, d->first.decimals,
				       d->first.before, d->first.decimals, d->first.after);
	if (d->first.between_ranks)
		return d->first.rank >= 0
			       ? lg_arena_printf(a, LG_SAYS_DET_DIVERGED_RANKS, step, d->first.tensor,
						 d->first.rank, "the others")
			       : lg_arena_printf(a, LG_SAYS_DET_DIVERGED_TWO_RANKS, step, d->first.tensor);
	if (!strcmp(d->first.kind, "rng"))
		return lg_arena_printf(a, LG_SAYS_DET_DIVERGED_RNG, step, d->first.tensor,
				       noun(d->first.then_kind), d->first.then_tensor);
	return lg_arena_printf(a, LG_SAYS_DET_DIVERGED_TENSOR, step, noun(d->first.kind), d->first.tensor,
			       rank);
}

/* What was equal up to there, and so is not the cause. */
static const char *excluded(const struct lg_det *d, struct lg_arena *a)
{
	const char *kind = d->first.kind;

	if (d->every > 1)
		return lg_arena_printf(a,
				       "each %lldth step was looked at: what comes first lies between step "
				       "%lld and this one; "
				       "every step tells it (--every 1)",
				       (long long)d->every, (long long)d->first.equal_at);
	if (d->first.outside)
		return "it changed outside of the optimizer's step: between it and the next forward pass";
	if (!strcmp(kind, "input"))
		return "generators of this process and parameters were equal up to there: the batch was "
		       "made otherwise (a "
		       "generator of the data set or of a loader's worker, the order of files, time)";
	if (!strcmp(kind, "loss"))
		return "inputs, generators and parameters were equal up to there: an operator of the "
		       "forward pass computed "
		       "otherwise";
	if (!strcmp(kind, "grad"))
		return "inputs, generators, parameters and the loss were equal up to there: an operator of "
		       "the backward pass, "
		       "or a reduction between ranks, computed otherwise";
	if (!strcmp(kind, "param"))
		return "gradients were equal up to there: the optimizer computed otherwise, or the "
		       "parameter began as another";
	return NULL;
}

void lg_det_tell(const struct lg_det *d, struct lg_arena *a, struct lg_finding *f, size_t room)
{
	const char *why = d->basis == LG_DET_LOGS || d->first.between_ranks ? NULL : excluded(d, a);

	lg_grade_unpriced(f);
	f->confidence = d->basis == LG_DET_LOGS ? 0.8 : 0.95;
	f->detail = d->basis == LG_DET_LOGS ? "log" : d->first.between_ranks ? "ranks" : d->first.kind;
	f->culprit.relation = d->first.rank >= 0 ? LG_RELATION_RANK : LG_RELATION_SELF;
	f->culprit.rank = d->first.rank;
	f->title = title(d, a);
	if (why)
		say(f, room, why);
	if (d->first.between_ranks && d->first.outside)
		say(f, room,
		    "it changed outside of the optimizer's step: between it and the next forward pass");
	if (d->basis == LG_DET_PRINTS && isfinite(d->first.before) && isfinite(d->first.after))
		say(f, room,
		    lg_arena_printf(a, "loss %.17g in one run, %.17g in the other", d->first.before,
				    d->first.after));
	if (d->first.equal_at >= 0)
		say(f, room,
		    lg_arena_printf(a, "all that was compared is equal up to step %lld",
				    (long long)d->first.equal_at));
	for (size_t i = 0; i < d->n_facts; i++)
		say(f, room,
		    lg_arena_printf(a, "%s: %s in one run, %s in the other", d->facts[i].key,
				    d->facts[i].before ? d->facts[i].before : "not told",
				    d->facts[i].after ? d->facts[i].after : "not told"));
	if (d->n_operators)
		say(f, room,
		    lg_arena_printf(a, "operators that ran and are known not to be deterministic: %s",
				    joined(a, d->operators, d->n_operators)));
	if (d->n_flags_off)
		say(f, room, lg_arena_printf(a, "not set: %s", joined(a, d->flags_off, d->n_flags_off)));
}
