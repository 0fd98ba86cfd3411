/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepless.c - a loop whose steps cannot be told, but of which it is proven that it waited, and for whom.
 *
 * A thread that hardly ever waits shows no repetition, so there are no steps and no price. But that another
 * process held the lock that it wanted is a fact all the same: it is told as that, for as long as it lasted.
 */
#include "analyse/host/culprit.h"
#include "analyse/host/tally.h"
#include "analyse/severity.h"
#include "base/alloc.h"

enum { CAUSES_MAX = 16 };
#define TOLD_SHARE 0.01   /* of the time that was seen of the thread */
#define JUDGED_SHARE 0.03 /* so much is medium, had it a price */

/* Did somebody of another program hold what the thread itself waited for, and is that sure? */
static bool is_proven(struct lg_case *c, const struct lg_rank *r, const struct lg_piece *p)
{
	return p->end == LG_END_LOCK && p->of == r->thr && p->thr && p->proof >= LG_PROOF_OWNER &&
	       !lg_in_job(c, c->t->thread.prc[p->thr]);
}

/* The same process held the same lock. */
static bool same_cause(const struct lg_case *c, const struct lg_piece *a, const struct lg_piece *b)
{
	return c->t->thread.prc[a->thr] == c->t->thread.prc[b->thr] && a->lock == b->lock;
}

/* The waits for one cause: those of v, in order of time. */
static int add_up(struct lg_case *c, const struct lg_rank *r, const struct lg_piece **v, size_t n,
		  struct lg_cause_sum *ret)
{
	struct lg_burst *b = lg_calloc(n, sizeof *b);
	const struct lg_piece *longest = v[0];

	if (!b)
		return LG_E_NOMEM;
	*ret = (struct lg_cause_sum){ .end = LG_END_LOCK, .prc = c->t->thread.prc[v[0]->thr],
				      .lock = v[0]->lock, .victim = r->thr, .pieces = v, .n_pieces = n };
	for (size_t i = 0; i < n; i++) {
		b[i] = (struct lg_burst){ v[i]->ts, v[i]->ts + v[i]->dur, v[i]->dur };
		ret->lost += v[i]->dur;
		ret->by_proof[v[i]->proof] += v[i]->dur;
		longest = v[i]->dur > longest->dur ? v[i] : longest;
	}
	ret->thr = longest->thr;
	ret->rhythm = lg_rhythm_of(b, n, 0);
	lg_free(b);
	return 0;
}

/* Not enough to be graded, or nobody said that this is the job: then it is no more than a fact. */
static void tell(struct lg_case *c, const struct lg_rank *r, const struct lg_cause_sum *s, int64_t wall,
		 bool *ret_found)
{
	double share = (double)s->lost / (double)wall;

	if (share < TOLD_SHARE)
		return;
	if (lg_was_named(c, r->prc) && share >= JUDGED_SHARE && lg_gradable(s->rhythm.n_events, wall)) {
		*ret_found = true;
		lg_finding_of_waits(c, r, s, wall);
		return;
	}
	lg_limit(c, lg_arena_printf(&c->v->arena,
				    "%s waited %zu time%s for %s, %.0f ms of %.1f s in all, while %s held it: proven, but "
				    "no steps were seen that it made late", lg_thread_text(c, r->thr), s->n_pieces,
				    s->n_pieces == 1 ? "" : "s", lg_lock_text(c, s->lock), (double)s->lost / 1e6,
				    (double)wall / 1e9, lg_thread_text(c, s->thr)));
}

/* The proven waits of all, one cause after the other. */
static int judge_pieces(struct lg_case *c, const struct lg_rank *r, struct lg_pieces *all, int64_t wall,
			bool *ret_found)
{
	const struct lg_piece **v = lg_calloc(all->n, sizeof *v);
	int rc = v ? 0 : LG_E_NOMEM;
	int told = 0;

	for (size_t i = 0; !rc && i < all->n && told < CAUSES_MAX; i++) {
		struct lg_piece first = all->v[i];
		struct lg_cause_sum s;
		size_t n = 0;

		if (!is_proven(c, r, &first))
			continue;
		for (size_t k = i; k < all->n; k++)
			if (is_proven(c, r, &all->v[k]) && same_cause(c, &first, &all->v[k]))
				v[n++] = &all->v[k];
		rc = add_up(c, r, v, n, &s);
		if (!rc)
			tell(c, r, &s, wall, ret_found);
		for (size_t k = i; k < all->n; k++)
			if (same_cause(c, &first, &all->v[k]))
				all->v[k].end = LG_END_NONE; /* told */
		told++;
	}
	lg_free(v);
	return rc;
}

int lg_judge_stepless(struct lg_case *c, bool *ret_found)
{
	const struct lg_state_tab *t = &c->t->state;
	int rc = 0;

	*ret_found = false;
	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];
		struct lg_pieces all = { 0 };
		int64_t from, to;
		uint32_t last;

		if (!r->n_states || lg_is_polled(c))
			continue;
		last = r->states[r->n_states - 1];
		from = t->ts[r->states[0]];
		to = lg_row_end(c->t, t->ts[last], t->dur[last]);
		lg_follow(c, r->thr, from, to, 0, &all);
		rc = c->failed ? c->failed : judge_pieces(c, r, &all, to - from, ret_found);
		lg_free(all.v);
	}
	return rc ? rc : c->failed;
}
