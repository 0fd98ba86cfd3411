/* SPDX-License-Identifier: Apache-2.0 */
/*
 * still.c - a run that does not go on: its steps ended long before the recording did, or there were none,
 * and its process hardly ran meanwhile. Why it stands is for the rules to say; that it stands is no healthy
 * run.
 */
#include "analyse/chains/culprit.h"
#include "analyse/finders.h"
#include "analyse/steps/steps.h"
#include "base/words.h"

#define LONG_NS (LG_N_COMMS_MISSING_RANK_LONG_S * INT64_C(1000000000))

int64_t lg_process_ran(const struct lg_case *c, lg_prc p, int64_t from, int64_t to)
{
	int64_t ran = 0;

	LG_LISTED(thr, c->idx->thread, p) {
		struct lg_rows states = lg_states_in(&c->scene, thr, from, to);

		while (lg_next_row(&c->scene, &states))
			ran += c->t->state.kind[states.row] == LG_RUNNING ? states.to - states.from : 0;
	}
	return ran;
}

int64_t lg_seen_until(const struct lg_case *c, const struct lg_rank *r)
{
	uint32_t last = r->states[r->n_states - 1];

	return lg_row_end(c->t, c->t->state.ts[last], c->t->state.dur[last]);
}

static void judge_rank(struct lg_case *c, const struct lg_rank *r)
{
	const struct lg_step *s = &c->v->steps[r->step_first];
	int64_t from, to, longest = 0;
	char gone[LG_MS_TEXT];
	double share;

	if (!r->n_states || (!r->n_steps && r->inferred && !lg_was_named(c, r->prc)))
		return;
	from = r->n_steps ? s[r->n_steps - 1].ts + s[r->n_steps - 1].dur : c->t->state.ts[r->states[0]];
	to = lg_seen_until(c, r);
	for (size_t i = 0; i < r->n_steps; i++)
		longest = LG_MAX(s[i].dur, longest);
	if (to - from < LONG_NS || to - from < LG_N_COMMS_MISSING_RANK_LONGER * longest)
		return;
	share = (double)lg_process_ran(c, r->prc, from, to) / (double)(to - from);
	if (share > LG_N_ANY_STILL_RAN)
		return;
	c->v->still = lg_text(c, LG_SAYS_STILL_RANK, lg_thread_text(c, r->thr),
			      r->n_steps ? "began no step" : "did next to nothing",
			      lg_ms_text(lg_ms(to - from), gone), 100 * share);
	lg_say(c, LG_SAYS_STILL_LIMIT, c->v->still);
}

/* ---- logs whose lines have times, and profilers' steps ---- */

/* The lines about steps of one process, or its steps. */
struct printed {
	int64_t first, last, longest; /* ns: when, and between two of them */
	int64_t number;               /* the last step's */
	size_t n, end;                /* end: row of its log's last line + 1; 0 = that is a step's */
	bool spans;                   /* steps, on one clock: they need not be of two hosts' logs */
};

static void read_step(struct printed *p, int64_t ts, int64_t number)
{
	p->first = p->n++ ? p->first : ts;
	p->longest = p->n > 1 ? LG_MAX(p->longest, ts - p->last) : 0;
	p->last = ts;
	p->number = number;
}

static void read_printed(struct lg_case *c, struct printed *of)
{
	const struct lg_mark_tab *m = &c->t->mark;

	for (size_t i = 0; i < m->n; i++) {
		struct printed *p = &of[c->t->thread.prc[m->thr[i]]];

		if (lg_is_mark(c->t, i, "log.last_line")) {
			p->end = i + 1;
		} else if (lg_is_mark(c->t, i, "log.step")) {
			read_step(p, m->ts[i], m->value[i]);
		}
	}
	for (size_t i = 0; i < c->t->span.n; i++) {
		struct printed *p = &of[c->t->thread.prc[c->t->span.thr[i]]];

		if (c->t->span.kind[i] == LG_SPAN_STEP && c->t->span.seq[i] >= 0 && (p->spans || !p->n)) {
			p->spans = true;
			read_step(p, c->t->span.ts[i], c->t->span.seq[i]);
		}
	}
}

/* Too few to know what is usual, or numbered for want of times. */
static bool has_pace(const struct printed *p)
{
	return p->n >= LG_N_ANY_STILL_STEPS && p->last - p->first >= (int64_t)p->n * 1000000;
}

static bool is_long(int64_t gap, int64_t longest)
{
	return gap / LG_N_COMMS_MISSING_RANK_LONGER >= longest;
}

/* Ranks whose logs or traces end, or go on without steps, while others' go on with them. */
static void say_behind(struct lg_case *c, const struct printed *of, const struct printed *most)
{
	char gone[LG_MS_TEXT];

	for (lg_prc p = 1; p < c->t->process.n; p++) {
		const struct printed *o = &of[p];
		int64_t gap = most->last - o->last;

		if (c->t->process.rank[p] < 0 || !has_pace(o) || o->spans != most->spans ||
		    (!o->spans && gap < LG_N_ANY_STILL_CLOCKS_S * INT64_C(1000000000)) ||
		    !is_long(gap, o->longest) ||
		    (double)gap < LG_N_ANY_HIGH * (double)(most->last - o->first))
			continue;
		/* Not as many steps as others have, elsewhere in the run. */
		if (!o->spans || llabs(o->first - most->first) <= gap / 2)
			lg_not_judged(c, lg_text(c, LG_SAYS_STILL_RANK_BEHIND, c->t->process.rank[p],
						 lg_ms_text(lg_ms(gap), gone), (long long)o->number), "");
	}
}

/* A job that has failed stands for a reason that is told. */
static bool is_over(const struct lg_case *c)
{
	return lg_is_told(c, LG_R_JOB_FAILED);
}

static void judge_logs(struct lg_case *c)
{
	LG_AUTOFREE struct printed *of = lg_scratch(c, c->t->process.n, sizeof *of);
	const struct printed *all[2] = { 0 }, *most; /* who went on for longest: of logs, of spans */
	int64_t last = INT64_MIN, gap;
	char gone[LG_MS_TEXT];
	size_t row;

	if (!of)
		return;
	read_printed(c, of);
	for (lg_prc p = 0; p < c->t->process.n; p++) {
		if (!has_pace(&of[p]))
			continue;
		last = LG_MAX(last, of[p].last);
		most = all[of[p].spans];
		all[of[p].spans] = !most || of[p].last > most->last ? &of[p] : most;
	}
	for (size_t i = 0; i < 2; i++)
		if (all[i])
			say_behind(c, of, all[i]);
	most = all[0];
	if (!most)
		return;
	/* What else tells of steps goes on where the log may not. */
	for (size_t i = 0; i < c->v->n_steps; i++)
		last = LG_MAX(last, c->v->steps[i].ts + c->v->steps[i].dur);
	row = most->end - 1;
	gap = most->end ? c->t->mark.ts[row] - last : 0;
	if (gap < LONG_NS || !is_long(gap, most->longest) || is_over(c))
		return;
	lg_ms_text(lg_ms(gap), gone);
	if (c->t->mark.value[row]) {
		lg_not_judged(c, lg_text(c, LG_SAYS_STILL_LOG_ASIDE, gone, (long long)most->number),
			      lg_string(c->t, c->t->mark.text[row]));
		return;
	}
	c->v->still = lg_text(c, LG_SAYS_STILL_LOG, gone, (long long)most->number,
			      lg_string(c->t, c->t->mark.text[row]));
	lg_say(c, LG_SAYS_STILL_LIMIT, c->v->still);
}

int lg_say_still(struct lg_case *c)
{
	for (size_t i = 0; i < c->n_ranks && c->has_states && !lg_is_polled(c) && !c->v->still; i++)
		judge_rank(c, &c->ranks[i]);
	if (!c->v->still)
		judge_logs(c);
	return c->failed;
}
