/* SPDX-License-Identifier: Apache-2.0 */
/* memory_rules.c - what the account of a device's memory (memory/memory.h) is worth saying. */
#include <stdio.h>

#include "analyse/chains/culprit.h"
#include "analyse/finders.h"
#include "base/words.h"
#include "memory/memory.h"

enum { STACKS_TOLD = 5, WHERE_BYTES = 512 };
#define PERCENT(share) (100 * (share))

/* "forward (model.py:12)", the program's own function. */
static const char *where(struct lg_case *c, lg_stk stack, char buf[WHERE_BYTES])
{
	const struct lg_trace *t = c->t;
	lg_stk k = lg_memory_program_frame(t, stack);
	char name[WHERE_BYTES / 2];
	const char *file, *base;

	if (!k)
		return "where no stack was recorded";
	file = lg_string(t, t->frame.file[t->stack.frame[k]]);
	base = strrchr(file, '/');
	lg_frame_text(t, t->stack.frame[k], name, sizeof name);
	if (*file)
		snprintf(buf, WHERE_BYTES, "%s (%s:%u)", name, base ? base + 1 : file,
			 t->frame.line[t->stack.frame[k]]);
	else
		snprintf(buf, WHERE_BYTES, "%s", name);
	return buf;
}

static struct lg_finding *about(struct lg_case *c, const struct lg_memory_device *d,
				enum lg_rule_id rule, lg_stk stack, double strength)
{
	struct lg_finding *f = lg_finding_about(c, rule, LG_STAGE_NONE, LG_RELATION_SELF, strength);
	char buf[WHERE_BYTES];

	f->culprit.rank = d->rank;
	if (stack) {
		f->culprit.function = lg_arena_strdup(&c->v->arena, where(c, stack, buf));
		lg_culprit_set_stack(c, f, lg_memory_program_frame(c->t, stack));
	}
	return f;
}

static void say_stacks(struct lg_case *c, struct lg_finding *f, const char *what,
		       const struct lg_memory_stack *v, size_t n)
{
	char size[LG_BYTES_TEXT], buf[WHERE_BYTES];

	for (size_t i = 0; i < n && i < STACKS_TOLD; i++)
		lg_evidence(c, f, "%s: %s in %llu, asked for by %s", what,
			    lg_bytes_text((double)v[i].bytes, size), (unsigned long long)v[i].count,
			    where(c, v[i].stack, buf));
}

/* ---- a request that failed ---- */

/* Idle memory of all pieces, and what the device had: would they have done together? */
static bool would_fit_joined(const struct lg_memory_oom *o)
{
	return o->pieces.idle + o->device_free >= o->asked;
}

static const char *cause_of(const struct lg_memory_oom *o)
{
	if (o->device_free >= lg_memory_segment_for(o->asked))
		return "limit";
	return would_fit_joined(o) && o->pieces.largest < o->asked ? "fragmentation" : "too_large";
}

/* What would have let it through, and at what price. */
static void say_ways_out(struct lg_case *c, struct lg_finding *f, const struct lg_memory_oom *o)
{
	uint64_t have = o->pieces.idle + o->device_free,
		 missing = o->asked > have ? o->asked - have : 0;
	uint64_t scales = o->activations + o->temporaries + o->asked;
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];

	if (!missing) {
		lg_evidence(c, f,
			    "expandable_segments:True would have let it through: %s lie idle in all, "
			    "and the "
			    "device had %s (price: slower first allocations)",
			    lg_bytes_text((double)o->pieces.idle, a),
			    lg_bytes_text((double)o->device_free, b));
		return;
	}
	lg_evidence(c, f, "%s are missing, all that lies idle and was free put together",
		    lg_bytes_text((double)missing, a));
	if (missing < scales)
		lg_evidence(c, f,
			    "a batch smaller by %.0f %% would have let it through, if what grows with "
			    "it are this "
			    "request, activations and temporaries (price: more steps, or accumulation)",
			    PERCENT((double)missing / (double)scales) + 1);
	if (o->activations > missing)
		lg_evidence(c, f,
			    "activation checkpointing would have: activations hold %s (price: the "
			    "forward is "
			    "computed twice)",
			    lg_bytes_text((double)o->activations, a));
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
	char asked[LG_BYTES_TEXT], a[LG_BYTES_TEXT], b[LG_BYTES_TEXT], buf[WHERE_BYTES];
	size_t steps = steps_after_oom(d);

	if (steps >= LG_N_MEM_OOM_STEPS)
		lg_cap(f, LG_CAP_UNMEASURED);
	f->detail = cause;
	lg_bytes_text((double)o->asked, asked);
	lg_bytes_text((double)o->pieces.idle, a);
	if (!strcmp(cause, "fragmentation"))
		lg_title(c, f,
			 "out of device memory: %s were asked for; the allocator holds %s that are "
			 "unused, but not "
			 "in one piece (the largest: %s)",
			 asked, a, lg_bytes_text((double)o->pieces.largest, b));
	else if (!strcmp(cause, "limit"))
		lg_title(c, f,
			 "out of device memory: %s were asked for, and the device had %s free: "
			 "something else limits "
			 "the process",
			 asked, lg_bytes_text((double)o->device_free, b));
	else
		lg_title(c, f,
			 "out of device memory: %s were asked for, and what is in use leaves no room: "
			 "%s are "
			 "allocated",
			 asked, lg_bytes_text((double)o->allocated, b));
	lg_evidence_add(c, f, o->ts, 0, "%s were asked for by %s; the device had %s free", asked,
			where(c, o->stack, buf), lg_bytes_text((double)o->device_free, b));
	if (d->n_oom_all > 1)
		lg_evidence(c, f, "%zu requests failed; the first is told", d->n_oom_all);
	say_ways_out(c, f, o);
	if (o->pieces.pinned)
		lg_evidence(c, f, "%zu segments of %s are kept by %s that live in them",
			    o->pieces.pinned, lg_bytes_text((double)o->pieces.pinned_bytes, a),
			    lg_bytes_text((double)o->pieces.pinned_live, b));
	say_stacks(c, f, "in segments that little else keeps", o->pieces.pins, o->pieces.n_pins);
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
	lg_title(c, f,
		 "device memory is in pieces: %s of %s reserved (%.0f %%) lie idle in segments that "
		 "are in use, when most is needed",
		 lg_bytes_text((double)p->idle_in_used, a), lg_bytes_text((double)p->reserved, b),
		 PERCENT(share));
	lg_evidence_add(c, f, p->ts, 0,
			"no more was reserved from then on, and the peak of %s allocated had come",
			lg_bytes_text((double)d->peak.bytes, a));
	lg_evidence(c, f, "the largest idle piece is %s", lg_bytes_text((double)p->largest, b));
	if (p->pinned)
		lg_evidence(c, f, "%zu segments of %s are kept by %s that live in them", p->pinned,
			    lg_bytes_text((double)p->pinned_bytes, a),
			    lg_bytes_text((double)p->pinned_live, b));
	say_stacks(c, f, "in segments that little else keeps", p->pins, p->n_pins);
	if (!d->points.told)
		lg_evidence_against(
			c, f,
			"the history tells no steps: what is idle may be needed in a part that it does "
			"not hold");
}

/* ---- what grows ---- */

static void judge_growth(struct lg_case *c, const struct lg_memory_device *d)
{
	const struct lg_memory_leak *k = &d->leak;
	double grown = k->per_step * (double)k->steps, end = (double)d->now.bytes;
	struct lg_finding *f;
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT], buf[WHERE_BYTES];

	if (!k->n || grown < LG_N_MEM_LEAK_GROWTH * end ||
	    k->allocated_per_step < LG_N_MEM_LEAK_OF_ALL * k->per_step)
		return;
	f = about(c, d, LG_R_MEM_LEAK, k->v[0].stack, 0.9);
	if (d->n_oom && steps_after_oom(d) < LG_N_MEM_OOM_STEPS)
		lg_grade_fatal(f);
	if (k->n > 1 && k->graph_per_step > k->per_step / 2)
		f->detail = "graph";
	where(c, k->v[0].stack, buf);
	lg_bytes_text(k->per_step, a);
	if (k->n == 1)
		lg_title(c, f, "device memory grows by %s a step, asked for by %s", a, buf);
	else
		lg_title(c, f,
			 "device memory grows by %s a step, asked for in %zu places, most of all by %s",
			 a, k->n, buf);
	lg_evidence(c, f, "over %zu steps, told %s; all that is allocated grows by %s a step", k->steps,
		    d->points.told, lg_bytes_text(k->allocated_per_step, a));
	for (size_t i = 0; i < k->n && i < STACKS_TOLD; i++)
		lg_evidence(c, f, "%s: %s a step, %s at the end (R2 %.3f)",
			    where(c, k->v[i].stack, buf), lg_bytes_text(k->v[i].per_step, a),
			    lg_bytes_text((double)k->v[i].bytes, b), k->v[i].r2);
	if (k->n > STACKS_TOLD)
		lg_evidence(c, f, "and %zu stacks more", k->n - STACKS_TOLD);
}

/* ---- what goes and comes again ---- */

static void judge_churn(struct lg_case *c, const struct lg_memory_device *d)
{
	const struct lg_memory_churn *k = &d->churn;
	struct lg_finding *f;
	char a[LG_BYTES_TEXT], buf[WHERE_BYTES];

	if (k->episodes < LG_N_MEM_CHURN_EPISODES ||
	    (double)k->again_bytes < LG_N_MEM_CHURN_SHARE * (double)d->peak_reserved)
		return;
	f = about(c, d, LG_R_MEM_CHURN, k->freed_by, 0.9);
	f->detail = k->empty_cache ? "empty_cache" : NULL;
	lg_title(c, f,
		 "segments of device memory are given back and asked for again, %zu times in %.3f s: "
		 "%s in all%s",
		 k->episodes, (double)(d->last - d->first) / 1e9,
		 lg_bytes_text((double)k->again_bytes, a),
		 k->empty_cache ? "; the program calls empty_cache()" : "");
	lg_evidence_add(c, f, k->first, 0,
			"%zu segments were given back, %zu asked for after that; the first of these",
			k->freed, k->again);
	lg_evidence(c, f, "most were given back in %s", where(c, k->freed_by, buf));
	lg_evidence(c, f,
		    "from the event of the allocator before each to it: %.3f ms in all, which they "
		    "took at most",
		    (double)k->took / 1e6);
}

/* Growth cannot be judged where nothing tells steps. */
static void say_unjudged(struct lg_case *c, const struct lg_memory_device *d)
{
	if (d->has_history && !d->leak.steps)
		lg_limit(c, lg_text(c,
				    "whether the memory of device %d grows was not judged: its history "
				    "tells fewer than "
				    "%d steps",
				    d->index, LG_N_MEM_LEAK_STEPS));
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
