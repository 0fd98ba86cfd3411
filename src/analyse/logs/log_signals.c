/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_signals.c - what single lines of a log are signs of (rules/signals.def): findings of the rules that
 * they belong to, that a job ended by a failure, and what nobody judges.
 *
 * One mark is a message, its text "what, file:line". What it costs no log tells.
 */
#include <stdio.h>

#include "analyse/finders.h"
#include "analyse/steps/log_steps.h"
#include "base/map.h"
#include "base/words.h"

/*
 * Who tells of it: torch's warning about a call ("from `Tensor.item()` (/app/train.py:6)"), the job's log of that
 * artifact, or TORCH_TRACE, which names the compilation ("f (/app/train.py:6) [0/1]: ..."). All may tell the same:
 * it counts once.
 */
enum teller { BY_WARNING, BY_LOG, BY_TRACE, TELLERS };
enum price { PRICE_UNKNOWN, PRICE_FLAG };
enum { EXAMPLES = 4 };

static const struct signal {
	const char *mark, *detail, *function;
	const char *title; /* of a finding, or what nobody judges; NULL: judged elsewhere */
	enum lg_rule_id rule; /* LG_R_NONE: not found here */
	size_t at_least;
	enum price price;
	uint8_t stage;
	bool counted; /* a line's number says how often it was so far */
} signals[] = {
#define FOUND(mark, rule, at_least, price, stage, detail, function, title)                          \
	{ mark, detail, function, title, LG_R_##rule, at_least, PRICE_##price, LG_STAGE_##stage, false },
#define COUNTED(mark, rule, at_least, price, stage, detail, function, title)                        \
	{ mark, detail, function, title, LG_R_##rule, at_least, PRICE_##price, LG_STAGE_##stage, true },
#define NOTED(mark, at_least, what) { mark, NULL, NULL, what, LG_R_NONE, at_least, PRICE_UNKNOWN, 0, false },
#define READ(name) { .mark = name },
#define FAILED(name, detail, title) READ(name)
#include "rules/signals.def"
};
enum { SIGNALS = sizeof signals / sizeof *signals };

/* The marks of one kind. */
struct heard {
	size_t n, by[TELLERS];
	size_t first; /* row */
	int64_t counted; /* the largest number that a line gives; its own count, where COUNTED says so */
	uint32_t row[TELLERS][EXAMPLES]; /* some of them, no text twice */
	size_t n_rows[TELLERS];
};

static enum teller told_by(const char *text)
{
	const char *p = *text == '[' ? text : strstr(text, " [");
	int used = 0;

	if (!strncmp(text, "from `", 6))
		return BY_WARNING;
	return p && (sscanf(p, " [%*d/%*d]:%n", &used), used > 0) ? BY_TRACE : BY_LOG;
}

static void hear(const struct lg_mark_tab *m, const char *text, size_t i, struct heard *h)
{
	enum teller who = told_by(text);
	size_t n = h->n_rows[who];

	h->first = h->n++ ? h->first : i;
	h->by[who]++;
	h->counted = LG_MAX(h->counted, m->value[i]);
	for (size_t k = 0; k < n; k++)
		if (m->text[h->row[who][k]] == m->text[i])
			return;
	if (n < EXAMPLES)
		h->row[who][h->n_rows[who]++] = (uint32_t)i;
}

static size_t signal_of(const char *mark)
{
	size_t i = 0;

	while (i < SIGNALS && strcmp(signals[i].mark, mark))
		i++;
	return i;
}

static bool is_of_log(const char *mark)
{
	return !strncmp(mark, "log.", 4);
}

/* heard: of SIGNALS, by row of signals.def, and of one more for the marks of logs that are not in it. */
static int hear_all(const struct lg_case *c, struct heard *heard)
{
	const struct lg_mark_tab *m = &c->t->mark;
	struct lg_map known = { 0 }; /* name -> its signal + 1 */
	int rc = 0;

	for (size_t i = 0; i < m->n && !rc; i++) {
		uint32_t at = lg_map_get(&known, (uint64_t)m->name[i] + 1);

		if (!at) {
			const char *name = lg_string(c->t, m->name[i]);
			size_t s = signal_of(name);

			at = s < SIGNALS || is_of_log(name) ? (uint32_t)s + 1 : UINT32_MAX;
			rc = lg_map_set(&known, (uint64_t)m->name[i] + 1, at);
		}
		if (at != UINT32_MAX)
			hear(m, lg_string(c->t, m->text[i]), i, &heard[at - 1]);
	}
	lg_map_done(&known);
	return rc;
}

/* The finding; NULL = too few, or told already by the hook or the trace, which know more than a line. */
static struct lg_finding *tell(struct lg_case *c, const struct signal *s, const struct heard *h,
			       const char *title)
{
	const struct lg_mark_tab *m = &c->t->mark;
	enum teller most = BY_WARNING;
	struct lg_finding *f;
	size_t n;

	for (enum teller i = BY_LOG; i < TELLERS; i++)
		most = h->by[i] > h->by[most] || (h->by[i] && most == BY_WARNING) ? i : most;
	n = h->by[most];
	if (!n || n < s->at_least || lg_is_told(c, s->rule))
		return NULL;
	f = lg_finding_about(c, s->rule, s->stage, LG_RELATION_SELF, 0.95);
	if (s->price == PRICE_FLAG)
		lg_cap(f, LG_CAP_UNMEASURED);
	f->detail = s->detail;
	if (s->counted && h->counted > 1)
		lg_title(c, f, LG_SAYS_LOG_COUNTED, title, (size_t)h->counted);
	else
		lg_title(c, f, LG_SAYS_LOG_LINES, title, n, lg_s(n));
	for (size_t k = 0; k < h->n_rows[most]; k++) {
		const char *text = lg_string(c->t, m->text[h->row[most][k]]);

		lg_evidence_add(c, f, m->ts[h->row[most][k]], 0, "%s", text);
		if (!f->culprit.function && *text)
			f->culprit.function = text;
	}
	if (s->function)
		f->culprit.function = s->function;
	lg_evidence(c, f, LG_SAYS_LOG_UNPRICED);
	return f;
}

/* With fullgraph=True torch raises an error where it would go on eagerly. */
static void recompile_limit(struct lg_case *c, const struct heard *heard)
{
	static const char fails[] = "a function hit the recompile limit and must not run eagerly (fullgraph=True): "
				    "torch raises an error";
	static const struct signal limit = { .mark = "log.recompile_limit", .rule = LG_R_COMPILE_RECOMPILE_LIMIT,
					     .stage = LG_STAGE_FORWARD };
	const struct heard *hit = &heard[signal_of(limit.mark)], *raised = &heard[signal_of("log.recompile_limit_error")];
	const struct lg_mark_tab *m = &c->t->mark;
	struct lg_finding *f = tell(c, &limit, hit, raised->n ? fails : "a function hit the recompile limit: from then on "
									"it runs eagerly");

	if (f && raised->n)
		lg_evidence_add(c, f, m->ts[raised->first], 0, "%s", lg_string(c->t, m->text[raised->first]));
	else if (!f && raised->n)
		tell(c, &limit, raised, fails);
}

static void not_judged(struct lg_case *c, const struct heard *h, const char *what)
{
	lg_not_judged(c, lg_text(c, "%s (%zu line%s)", what, h->n, lg_s(h->n)),
		      lg_string(c->t, c->t->mark.text[h->first]));
}

int lg_find_log_signals(struct lg_case *c)
{
	LG_AUTOFREE struct heard *heard = lg_calloc(SIGNALS + 1, sizeof *heard);

	if (!heard || hear_all(c, heard))
		return c->failed = LG_E_NOMEM;
	for (size_t i = 0; i < SIGNALS; i++)
		if (signals[i].rule)
			tell(c, &signals[i], &heard[i], signals[i].title);
		else if (signals[i].title && heard[i].n >= signals[i].at_least)
			not_judged(c, &heard[i], signals[i].title);
	recompile_limit(c, heard);
	if (heard[SIGNALS].n)
		not_judged(c, &heard[SIGNALS], lg_string(c->t, c->t->mark.name[heard[SIGNALS].first]));
	return c->failed;
}

/* ---- a job that failed ---- */

/* The surest sign first: others are what follows when a process is gone. */
static const struct {
	const char *mark, *detail, *title;
} failures[] = {
#define FAILED(mark, detail, title) { mark, detail, title },
#include "rules/signals.def"
};
enum { FAILURES = sizeof failures / sizeof *failures };

/* Rows of marks; an exception counts where its process, and then the job, printed no more of its work. */
struct ends {
	size_t n[FAILURES], first[FAILURES], last;
};

/* Steps go on up to here: what was raised before was caught, or the job began anew. 0 = too few are there. */
static int64_t goes_on_until(const struct lg_trace *t)
{
	size_t steps = 0;

	for (size_t i = t->mark.n; i-- > 0;)
		if (lg_is_mark(t, i, "log.step") && ++steps == LG_N_JOB_FAILED_STEPS)
			return t->mark.ts[i];
	return INT64_MIN;
}

static bool counts(const struct lg_trace *t, size_t i, int64_t until)
{
	return !lg_is_mark(t, i, "log.traceback") || (!t->mark.value[i] && t->mark.ts[i] >= until);
}

/* torchrun tells of a worker twice, and names its rank the second time. */
static int worth(const struct lg_trace *t, size_t i)
{
	return lg_is_mark(t, i, "log.worker_failed") && lg_rank_of_mark(t, i) >= 0;
}

static struct ends ends_of(const struct lg_trace *t, int64_t until)
{
	struct ends e = { 0 };

	for (size_t i = 0; i < t->mark.n; i++)
		for (size_t s = 0; s < FAILURES; s++)
			if (lg_is_mark(t, i, failures[s].mark) && counts(t, i, until)) {
				e.first[s] = !e.n[s]++ || worth(t, i) > worth(t, e.first[s]) ? i : e.first[s];
				e.last = i;
			}
	return e;
}

/* The last exception of a rank: those before it led there. */
static size_t last_exception(const struct lg_trace *t, int32_t rank, size_t otherwise, int64_t until)
{
	LG_EACH_MARK(i, t, "log.traceback")
		if (lg_rank_of_mark(t, i) == rank && counts(t, i, until))
			otherwise = i;
	return otherwise;
}

/* Which kind says most: a process that Python ended with an error has said why. */
static size_t best(const struct lg_trace *t, struct ends *e, int64_t until)
{
	size_t k = 0, raised = 0;
	int32_t rank;

	while (k < FAILURES && !e->n[k])
		k++;
	while (strcmp(failures[raised].mark, "log.traceback"))
		raised++;
	if (k < FAILURES && !strcmp(failures[k].mark, "log.worker_failed") && t->mark.value[e->first[k]] > 0 &&
	    e->n[raised]) {
		rank = lg_rank_of_mark(t, e->first[k]);
		if (rank >= 0)
			e->first[raised] = last_exception(t, rank, e->first[raised], until);
		k = raised;
	}
	if (k == raised)
		e->first[k] = last_exception(t, lg_rank_of_mark(t, e->first[k]), e->first[k], until);
	return k;
}

/* Where other ranks were when their peer was gone. */
static void say_others(struct lg_case *c, struct lg_finding *f)
{
	enum { TOLD = 4 };
	int32_t told[TOLD];
	size_t n = 0;

	LG_EACH_MARK(i, c->t, "log.peer_lost") {
		const char *text = lg_string(c->t, c->t->mark.text[i]), *place = strrchr(text, '(');
		int32_t rank = lg_rank_of_mark(c->t, i);
		bool again = rank < 0 || rank == f->culprit.rank || n == TOLD;

		for (size_t k = 0; k < n; k++)
			again |= told[k] == rank;
		if (again || !place || !strchr(place, ':') || place[strlen(place) - 1] != ')')
			continue;
		told[n++] = rank;
		lg_evidence_add(c, f, c->t->mark.ts[i], 0, LG_SAYS_JOB_FAILED_OTHER, rank,
				(int)strlen(place) - 2, place + 1);
	}
}

/* What was raised and caught, or was it: who prints on may do so without what failed. */
static void say_caught(struct lg_case *c, int64_t until)
{
	struct heard h = { 0 };

	LG_EACH_MARK(i, c->t, "log.traceback")
		if (!counts(c->t, i, until))
			hear(&c->t->mark, lg_string(c->t, c->t->mark.text[i]), i, &h);
	if (h.n)
		not_judged(c, &h, LG_SAYS_LOG_CAUGHT);
}

int lg_find_failure(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	int64_t until = goes_on_until(t);
	struct ends e = ends_of(t, until);
	size_t k = best(t, &e, until), steps;
	struct lg_finding *f;

	if (lg_told(c, LG_R_MEM_OOM))
		say_others(c, lg_told(c, LG_R_MEM_OOM));
	if (k == FAILURES)
		say_caught(c, until);
	if (k == FAILURES || lg_is_told(c, LG_R_JOB_FAILED))
		return 0;
	f = lg_finding_about(c, LG_R_JOB_FAILED, LG_STAGE_NONE, LG_RELATION_RANK, 0.9);
	f->detail = failures[k].detail;
	f->culprit.rank = lg_rank_of_mark(t, e.first[k]);
	f->title = f->culprit.rank >= 0 ? lg_text(c, "%s (rank %d)", failures[k].title,
						  f->culprit.rank) : failures[k].title;
	f->title = lg_text(c, "%s: %.200s", f->title, lg_string(t, t->mark.text[e.first[k]]));
	for (size_t j = 0; j < FAILURES; j++) {
		size_t s = j ? j - (j <= k) : k; /* the one that is told first */

		if (e.n[s])
			lg_evidence_add(c, f, t->mark.ts[e.first[s]], 0, "%s%s",
					lg_string(t, t->mark.text[e.first[s]]),
					e.n[s] > 1 ? lg_text(c, " (one of %zu such lines)", e.n[s]) : "");
	}
	say_others(c, f);
	steps = lg_step_lines_after(t, e.last, false);
	if (steps >= LG_N_JOB_FAILED_STEPS) {
		lg_cap(f, LG_CAP_UNMEASURED);
		lg_evidence_against(c, f, LG_SAYS_LOG_STARTED_ANEW, steps);
	}
	return c->failed;
}
