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

#define IDLE_SHARE 0.02 /* of one CPU, by all of its threads */
#define LONG_NS (LG_N_COMMS_MISSING_RANK_LONG_S * INT64_C(1000000000))

int64_t lg_process_ran(const struct lg_case *c, lg_prc p, int64_t from, int64_t to)
{
	int64_t ran = 0;

	LG_LISTED(thr, c->idx->thread, p) {
		struct lg_rows states = lg_states_in(c, thr, from, to);

		while (lg_next_row(c, &states))
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
	if (share > IDLE_SHARE)
		return;
	c->v->still = lg_text(c, LG_SAYS_STILL_RANK, lg_thread_text(c, r->thr),
			      r->n_steps ? "began no step" : "did next to nothing",
			      lg_ms_text(lg_ms(to - from), gone), 100 * share);
	lg_say(c, LG_SAYS_STILL_LIMIT, c->v->still);
}

int lg_say_still(struct lg_case *c)
{
	for (size_t i = 0; i < c->n_ranks && c->has_states && !lg_is_polled(c) && !c->v->still; i++)
		judge_rank(c, &c->ranks[i]);
	return c->failed;
}
