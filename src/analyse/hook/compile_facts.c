/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile_facts.c - compiled regions that are gone, compiled again or broken, and debugging aids that were
 * left on.
 *
 * These are facts that the hook sampled at the start of forward passes; one recording cannot
 * measure what they cost (there is no run without them beside it), so lost_ms stays null and the
 * finding says what would measure it.
 *
 * torch.compile does not run compiled code while a TorchDispatchMode that it does not know is on
 * the mode stack (torch/_dynamo/convert_frame.py: "skipping: non-infra torch dispatch mode
 * present"); it warns at best.
 */
#include "analyse/finders.h"
#include "analyse/hook/facts.h"
#include "base/words.h"

/* The marks that tell of what is asked here, in time order: those of steps are many, as ranks can be. */
struct facts {
	uint32_t *mark;
	size_t n, cap;
};

/* What one process told about a name since some time: number of samples, value and text of the last. */
struct told {
	size_t n;
	int64_t ts, value;
	lg_str text;
	int64_t grew;   /* since then */
	size_t n_grew;  /* in so many of the samples */
};

static bool is_fact(const char *name)
{
	return !strcmp(name, "compile.requested") || !strcmp(name, "dispatch_mode") ||
	       !strncmp(name, "dynamo.", strlen("dynamo."));
}

static struct facts facts_of(struct lg_case *c)
{
	struct facts all = { 0 };

	for (size_t i = 0; i < c->t->mark.n && !c->failed; i++)
		if (is_fact(lg_string(c->t, c->t->mark.name[i])))
			(void)lg_failed(c, LG_APPEND(all.mark, all.n, all.cap, (uint32_t)i));
	return all;
}

static struct told marks_of(const struct lg_case *c, const struct facts *all, lg_prc prc, const char *name,
			    int64_t since)
{
	const struct lg_mark_tab *m = &c->t->mark;
	int64_t before = 0, last = 0;
	struct told r = { 0 };

	LG_EACH_ROW(i, all->mark, all->n) {
		if (c->t->thread.prc[m->thr[i]] != prc || !lg_is_mark(c->t, i, name))
			continue;
		if (m->ts[i] >= since) {
			r.n_grew += m->value[i] > last;
			r.n++;
			r.ts = m->ts[i];
			r.value = m->value[i];
			r.text = m->text[i];
		}
		last = m->value[i];
		before = m->ts[i] < since ? last : before;
	}
	r.grew = last - before;
	return r;
}

/* "module.Class file:line" -> the class. */
static const char *mode_name(struct lg_case *c, const char *text)
{
	const char *space = strchr(text, ' ');

	return space ? lg_text(c, "%.*s", (int)(space - text), text) : text;
}

static void compile_skipped(struct lg_case *c, const struct facts *all, const struct lg_rank *r,
			    const struct lg_fact_span *j, struct lg_finding **f)
{
	struct told asked = marks_of(c, all, r->prc, "compile.requested", INT64_MIN);
	struct told mode = marks_of(c, all, r->prc, "dispatch_mode", j->from);
	struct told ok = marks_of(c, all, r->prc, "dynamo.frames.ok", INT64_MIN);
	const char *backend = lg_index_fact(c->idx, r->prc, "compile.requested");
	const char *text = lg_string(c->t, mode.text), *name = mode_name(c, text);
	/* The hook reads the counters at every fifth forward that it samples: enough must have passed
	 * for "nothing was compiled" to mean something. */
	bool nothing = !ok.n || !ok.value;
	struct lg_finding *x;

	if ((!asked.n && !backend) || (!mode.n && !(nothing && j->n >= 20)))
		return;
	x = lg_fact_finding(c, f, r, LG_R_COMPILE_SKIPPED, mode.n && nothing ? 0.97 : mode.n ? 0.9 : 0.7);
	if (!x)
		return;
	x->title = LG_SAYS_COMPILE_SKIPPED_NO_FRAME;
	if (mode.n) {
		lg_title(c, x, LG_SAYS_COMPILE_SKIPPED_MODE, name);
		x->culprit.function = name;
		lg_evidence_add(c, x, mode.ts, 0, LG_SAYS_COMPILE_SKIPPED_MODE_SEEN, mode.n, text);
	}
	if (backend)
		lg_evidence(c, x, LG_SAYS_COMPILE_SKIPPED_ASKED, backend);
	lg_evidence_add(c, x, ok.n ? ok.ts : INT64_MIN, 0, LG_SAYS_COMPILE_SKIPPED_FRAMES,
			(long long)ok.value, j->n);
	lg_evidence(c, x, LG_SAYS_COMPILE_SKIPPED_NOT_MEASURED);
}

static void debug_left_on(struct lg_case *c, const struct facts *all, const struct lg_rank *r,
			  const struct lg_fact_span *j, bool compile_told, struct lg_finding **f)
{
	struct told mode = marks_of(c, all, r->prc, "dispatch_mode", j->from);
	const char *detail = lg_index_fact(c->idx, r->prc, "env.TORCH_DISTRIBUTED_DEBUG");
	const char *blocking = lg_index_fact(c->idx, r->prc, "env.CUDA_LAUNCH_BLOCKING");
	const char *what[6], *list = "";
	struct lg_finding *x;
	size_t n = 0;

	if (lg_fact_share(c, r->prc, "debug.anomaly", j->from, j->to) > LG_N_DEBUG_LEFT_ON_ACTIVE)
		what[n++] = "autograd anomaly detection";
	if (lg_fact_share(c, r->prc, "debug.profiler", j->from, j->to) > LG_N_DEBUG_LEFT_ON_ACTIVE)
		what[n++] = "the autograd profiler";
	if (lg_fact_share(c, r->prc, "debug.trace_function", j->from, j->to) > LG_N_DEBUG_LEFT_ON_ACTIVE)
		what[n++] = "a trace function of the interpreter (sys.settrace: a debugger, coverage)";
	/* A mode that already explains the lost compilation is not told twice. */
	if (mode.n >= LG_N_DEBUG_LEFT_ON_SAMPLES && !compile_told)
		what[n++] = lg_text(c, "the dispatch mode %s", mode_name(c, lg_string(c->t, mode.text)));
	if (detail && !strcmp(detail, "DETAIL"))
		what[n++] = "TORCH_DISTRIBUTED_DEBUG=DETAIL";
	if (blocking && !strcmp(blocking, "1"))
		what[n++] = "CUDA_LAUNCH_BLOCKING=1";
	x = n ? lg_fact_finding(c, f, r, LG_R_DEBUG_LEFT_ON, 0.95) : NULL;
	if (!x)
		return;
	for (size_t i = 0; i < n; i++)
		list = lg_text(c, "%s%s%s", list, i ? ", " : "", what[i]);
	lg_title(c, x, "left on during training: %s", list);
	x->culprit.function = what[0];
	if (mode.n)
		lg_evidence_add(c, x, mode.ts, 0, LG_SAYS_DEBUG_LEFT_ON_MODE, mode.n,
				lg_string(c->t, mode.text));
	lg_evidence_add(c, x, j->from, j->to - j->from, LG_SAYS_DEBUG_LEFT_ON_STEPS, j->n);
}

/* The last word on each text of such marks since then: "forward net.py:7: size mismatch at index 0". */
static void reasons(struct lg_case *c, struct lg_finding *f, lg_prc prc, const char *name, int64_t since)
{
	enum { TOLD = 4 };
	const struct lg_mark_tab *m = &c->t->mark;
	size_t told = 0;

	for (size_t i = m->n; i-- > 0 && told < TOLD;) { /* the last count is the whole one */
		const char *text = lg_string(c->t, m->text[i]);
		bool again = false;

		if (m->ts[i] < since || c->t->thread.prc[m->thr[i]] != prc || !*text ||
		    !lg_is_mark(c->t, i, name))
			continue;
		for (size_t k = i + 1; k < m->n && !again; k++)
			again = m->text[k] == m->text[i] && m->name[k] == m->name[i] &&
				m->thr[k] == m->thr[i];
		if (again)
			continue;
		if (!told++)
			f->culprit.function = text;
		lg_evidence_add(c, f, m->ts[i], 0, "%s (%lld time%s)", text, (long long)m->value[i],
				lg_s((uint64_t)m->value[i]));
	}
}

/* Compiled again while steps were judged; or in pieces, which is told once, when it is compiled. */
static void compiled_badly(struct lg_case *c, const struct facts *all, const struct lg_rank *r,
			   const struct lg_fact_span *j, bool again, struct lg_finding **f)
{
	const char *count = again ? "dynamo.recompiles" : "dynamo.graph_breaks";
	struct lg_finding *x;
	struct told grew = marks_of(c, all, r->prc, count, again ? j->from : INT64_MIN);
	int64_t n = grew.grew;

	/* All frames once, as for the first evaluation, is no habit. */
	if (n < 1 || (again && grew.n_grew < LG_N_COMPILE_RECOMPILES_TIMES))
		return;
	x = lg_fact_finding(c, f, r, again ? LG_R_COMPILE_RECOMPILES : LG_R_COMPILE_GRAPH_BREAKS, 0.9);
	if (!x)
		return;
	if (!again)
		lg_cap(x, LG_CAP_UNMEASURED); /* one in code that is not of the step does no harm */
	x->title = again ? lg_text(c, LG_SAYS_COMPILE_RECOMPILES_TITLE, (long long)n,
				   lg_s((uint64_t)n), j->n)
		: lg_text(c, LG_SAYS_COMPILE_GRAPH_BREAKS_TITLE, (long long)n, lg_s((uint64_t)n));
	reasons(c, x, r->prc, again ? "dynamo.recompile" : "dynamo.graph_break", again ? j->from : INT64_MIN);
	lg_evidence(c, x, LG_SAYS_COMPILE_RECOMPILES_UNPRICED);
}

int lg_find_compile(struct lg_case *c)
{
	struct lg_finding *skipped = NULL, *debug = NULL, *again = NULL, *broken = NULL;
	struct facts all = facts_of(c);

	LG_EACH(r, c->ranks, c->n_ranks) {
		struct lg_fact_span j = lg_fact_window(c, r);

		if (!j.n)
			continue;
		compile_skipped(c, &all, r, &j, &skipped);
		debug_left_on(c, &all, r, &j, skipped != NULL, &debug);
		compiled_badly(c, &all, r, &j, true, &again);
		compiled_badly(c, &all, r, &j, false, &broken);
	}
	lg_free(all.mark);
	return c->failed;
}
