/* SPDX-License-Identifier: Apache-2.0 */
/* memory_rules.c - what the account of a device's memory (memory/memory.h) is worth saying. */

#include "analyse/chains/culprit.h"
#include "analyse/finders.h"
#include "base/words.h"
#include "memory/memory.h"

enum { STACKS_TOLD = 5 };

/* "forward (model.py:12)", the program's own function. */
static const char *where(struct lg_case *c, lg_stk stack)
{
	lg_stk k = lg_memory_program_frame(c->t, stack);
	char buf[512];

	return !k ? "where no stack was recorded"
		  : lg_arena_strdup(&c->v->arena, lg_memory_frame_text(c->t, c->t->stack.frame[k], false, buf,
								      sizeof buf));
}

static struct lg_finding *about(struct lg_case *c, const struct lg_memory_device *d,
				enum lg_rule_id rule, lg_stk stack, double strength)
{
	struct lg_finding *f = lg_finding_about(c, rule, LG_STAGE_NONE, LG_RELATION_SELF, strength);

	f->culprit.rank = d->rank;
	if (stack) {
		f->culprit.function = where(c, stack);
		lg_culprit_set_stack(c, f, lg_memory_program_frame(c->t, stack));
	}
	return f;
}

/* What keeps segments that are nearly empty. */
static void say_pinned(struct lg_case *c, struct lg_finding *f, const struct lg_memory_pieces *p)
{
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];

	if (p->pinned)
		lg_evidence(c, f, LG_SAYS_MEM_FRAGMENTATION_PINNED, p->pinned,
			    lg_bytes_text((double)p->pinned_bytes, a),
			    lg_bytes_text((double)p->pinned_live, b));
	for (size_t i = 0; i < p->n_pins && i < STACKS_TOLD; i++)
		lg_evidence(c, f, LG_SAYS_MEM_FRAGMENTATION_PIN, lg_bytes_text((double)p->pins[i].bytes, a),
			    (unsigned long long)p->pins[i].count, where(c, p->pins[i].stack));
}

/* ---- a request that failed ---- */

/* Idle memory of all pieces, and what the device had: would they have done together? */
static bool would_fit_joined(const struct lg_memory_oom *o)
{
	return o->pieces.idle + o->device_free >= o->asked;
}

static const char *cause_of(const struct lg_memory_oom *o)
{
	/* Under a limit of the process there may be enough as well, but for the pieces. */
	if (o->device_free >= lg_memory_segment_for(o->asked))
		return o->pieces.idle >= o->asked && o->pieces.largest < o->asked ? "fragmentation" : "limit";
	return would_fit_joined(o) && o->pieces.largest < o->asked ? "fragmentation" : "too_large";
}

/* What would have let it through, and at what price. */
static void say_ways_out(struct lg_case *c, struct lg_finding *f, const struct lg_memory_oom *o)
{
	uint64_t have = o->pieces.idle + o->device_free,
		 missing = o->asked > have ? o->asked - have : 0;
	uint64_t scales = o->activations + o->temporaries + o->asked;
	uint64_t pages = o->pieces.idle_pages;
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];

	if (o->device_free < o->asked && strcmp(f->detail, "limit") != 0)
		pages += o->device_free;
	if (!missing && pages < o->asked) {
		lg_evidence(c, f, LG_SAYS_MEM_OOM_NOT_EXPANDABLE,
			    lg_bytes_text((double)o->pieces.idle_pages, a));
		return;
	}
	if (!missing) {
		lg_evidence(c, f, LG_SAYS_MEM_OOM_EXPANDABLE, lg_bytes_text((double)o->pieces.idle, a),
			    lg_bytes_text((double)o->device_free, b));
		return;
	}
	lg_evidence(c, f, LG_SAYS_MEM_OOM_MISSING, lg_bytes_text((double)missing, a));
	if (missing < scales)
		lg_evidence(c, f, LG_SAYS_MEM_OOM_SMALLER_BATCH,
			    100 * ((double)missing / (double)scales) + 1);
	if (o->activations > missing)
		lg_evidence(c, f, LG_SAYS_MEM_OOM_CHECKPOINTING, lg_bytes_text((double)o->activations, a));
}

/* Steps that follow the first request that failed: then it was caught. */
static size_t steps_after_oom(const struct lg_memory_device *d)
{
	size_t steps = 0;

	for (size_t i = 0; i < d->points.n; i++)
		steps += d->points.ts[i] > d->oom[0].ts;
	return steps;
}

static void say_oom(struct lg_case *c, const struct lg_memory_device *d)
{
	const struct lg_memory_oom *o = &d->oom[0];
	const char *cause = cause_of(o);
	struct lg_finding *f = about(c, d, LG_R_MEM_OOM, o->stack, 0.95);
	char bytes[LG_BYTES_TEXT], a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];
	const char *asked = lg_text(c, LG_SAYS_MEM_OOM_ASKED, lg_bytes_text((double)o->asked, bytes));
	size_t steps = steps_after_oom(d);

	if (steps >= LG_N_MEM_OOM_STEPS)
		lg_cap(f, LG_CAP_UNMEASURED);
	f->detail = cause;
	if (!strcmp(cause, "fragmentation")) {
		lg_title(c, f, LG_SAYS_MEM_OOM_IN_PIECES, asked, lg_bytes_text((double)o->pieces.idle, a));
		lg_title(c, f, "%s (the largest: %s)", f->title, lg_bytes_text((double)o->pieces.largest, b));
	} else if (!strcmp(cause, "limit")) {
		lg_title(c, f, LG_SAYS_MEM_OOM_LIMITED, asked, lg_bytes_text((double)o->device_free, b));
	} else {
		lg_title(c, f, "%s%s: %s are allocated", asked, LG_SAYS_MEM_OOM_NO_ROOM,
			 lg_bytes_text((double)o->allocated, b));
	}
	lg_evidence_add(c, f, o->ts, 0, LG_SAYS_MEM_OOM_ASKED_BY, bytes, where(c, o->stack),
			lg_bytes_text((double)o->device_free, b));
	if (d->n_oom_all > 1)
		lg_evidence(c, f, "%zu requests failed; the first is told", d->n_oom_all);
	say_ways_out(c, f, o);
	say_pinned(c, f, &o->pieces);
	if (steps >= LG_N_MEM_OOM_STEPS)
		lg_evidence_against(c, f, "%zu steps follow: it was caught", steps);
}

/* ---- what lies idle when most is needed ---- */

static void judge_pieces(struct lg_case *c, const struct lg_memory_device *d)
{
	const struct lg_memory_pieces *p = &d->at_most;
	double share = p->reserved ? (double)p->idle_in_used / (double)p->reserved : 0;
	struct lg_finding *f;
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];

	if (!d->has_history || d->n_oom_all || share < LG_N_MEM_FRAGMENTATION_IDLE ||
	    p->idle_in_used < (uint64_t)LG_N_MEM_FRAGMENTATION_MIB << 20)
		return;
	f = about(c, d, LG_R_MEM_FRAGMENTATION, p->n_pins ? p->pins[0].stack : 0, 0.9);
	lg_title(c, f, LG_SAYS_MEM_FRAGMENTATION_TITLE, lg_bytes_text((double)p->idle_in_used, a),
		 lg_bytes_text((double)p->reserved, b), 100 * share);
	lg_evidence_add(c, f, p->ts, 0, LG_SAYS_MEM_FRAGMENTATION_WHEN,
			lg_bytes_text((double)d->peak.bytes, a));
	lg_evidence(c, f, "the largest idle piece is %s", lg_bytes_text((double)p->largest, b));
	say_pinned(c, f, p);
	if (!d->points.told)
		lg_evidence_against(c, f, LG_SAYS_MEM_FRAGMENTATION_NO_STEPS);
}

/* ---- what grows ---- */

static void judge_growth(struct lg_case *c, const struct lg_memory_device *d)
{
	const struct lg_memory_leak *k = &d->leak;
	double grown = k->per_step * (double)k->steps, end = (double)d->now.bytes;
	struct lg_finding *f;
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];
	const char *most;

	if (!k->n || grown < LG_N_MEM_LEAK_GROWTH * end ||
	    k->allocated_per_step < LG_N_MEM_LEAK_OF_ALL * k->per_step)
		return;
	f = about(c, d, LG_R_MEM_LEAK, k->v[0].stack, 0.9);
	if (d->n_oom && steps_after_oom(d) < LG_N_MEM_OOM_STEPS)
		lg_grade_fatal(f);
	if (k->n > 1 && k->graph_per_step > k->per_step / 2)
		f->detail = "graph";
	most = where(c, k->v[0].stack);
	lg_bytes_text(k->per_step, a);
	if (k->n == 1)
		lg_title(c, f, LG_SAYS_MEM_LEAK_TITLE, a, most);
	else
		lg_title(c, f, LG_SAYS_MEM_LEAK_TITLE_PLACES, a, k->n, most);
	lg_evidence(c, f, LG_SAYS_MEM_LEAK_OVER, k->steps, d->points.told,
		    lg_bytes_text(k->allocated_per_step, a));
	for (size_t i = 0; i < k->n && i < STACKS_TOLD; i++)
		lg_evidence(c, f, "%s: %s a step, %s at the end (R2 %.3f)",
			    where(c, k->v[i].stack), lg_bytes_text(k->v[i].per_step, a),
			    lg_bytes_text((double)k->v[i].bytes, b), k->v[i].r2);
	if (k->n > STACKS_TOLD)
		lg_evidence(c, f, "and %zu stacks more", k->n - STACKS_TOLD);
}

/* ---- what goes and comes again ---- */

static void judge_churn(struct lg_case *c, const struct lg_memory_device *d)
{
	const struct lg_memory_churn *k = &d->churn;
	struct lg_finding *f;
	char a[LG_BYTES_TEXT];

	if (k->episodes < LG_N_MEM_CHURN_EPISODES ||
	    (double)k->again_bytes < LG_N_MEM_CHURN_SHARE * (double)d->peak_reserved)
		return;
	f = about(c, d, LG_R_MEM_CHURN, k->freed_by, 0.9);
	f->detail = k->empty_cache ? "empty_cache" : NULL;
	lg_title(c, f, LG_SAYS_MEM_CHURN_TITLE, k->episodes, lg_seconds(d->last - d->first),
		 lg_bytes_text((double)k->again_bytes, a),
		 k->empty_cache ? "; the program calls empty_cache()" : "");
	lg_evidence_add(c, f, k->first, 0, LG_SAYS_MEM_CHURN_FIRST, k->freed, k->again);
	lg_evidence(c, f, "most were given back in %s", where(c, k->freed_by));
	lg_evidence(c, f, LG_SAYS_MEM_CHURN_TOOK, lg_ms(k->took));
}

/* Growth cannot be judged where nothing tells steps. */
static void say_unjudged(struct lg_case *c, const struct lg_memory_device *d)
{
	if (d->has_history && !d->leak.steps)
		lg_say(c, LG_SAYS_MEM_LEAK_UNJUDGED, d->index, LG_N_MEM_LEAK_STEPS);
}

int lg_find_memory(struct lg_case *c)
{
	int rc = lg_memory_account(c->t, &c->v->arena, &c->v->memory);

	for (size_t i = 0; !rc && c->v->memory && i < c->v->memory->n_devices; i++) {
		const struct lg_memory_device *d = &c->v->memory->device[i];

		if (d->n_oom)
			say_oom(c, d);
		judge_pieces(c, d);
		judge_growth(c, d);
		say_unjudged(c, d);
		judge_churn(c, d);
	}
	return rc ? rc : c->failed;
}
