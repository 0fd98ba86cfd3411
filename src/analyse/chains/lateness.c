/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lateness.c - what made the last rank of a collective late by its own doing.
 *
 * What it did while the others already waited is not it: whoever lost 20 ms at the beginning of a step is
 * seen at its end, doing what the others have done before. So the whole way since the ranks were last
 * together is compared with that of the rank that came before it: a rank is late by what it does longer.
 */
#include "analyse/chains/chains.h"
#include "analyse/chains/tally.h"

struct lg_own_time lg_own_time_in(struct lg_case *c, const struct lg_rank *r, int64_t a, int64_t b,
				  struct lg_pieces *scratch)
{
	struct lg_own_time own = { 0 };

	scratch->n = 0;
	lg_follow(c, r->thr, a, b, 0, scratch);
	for (size_t i = 0; i < scratch->n; i++) {
		const struct lg_piece *p = &scratch->v[i];

		if (!lg_is_own_doing(p->end) || c->t->thread.prc[p->of] != r->prc)
			continue;
		if (p->end == LG_END_SLEEP)
			own.slept += p->dur;
		else
			own.ran += p->dur;
	}
	return own;
}

/* When the ranks were together before r came to this one; INT64_MIN: not known. */
static int64_t together_before(const struct lg_rank *r, int64_t came)
{
	const struct lg_arrival *a = lg_arrival_at(r, came);

	/* The work on an asynchronous one overlaps with what follows: nobody was let go there. */
	return a && a > r->arrivals && a[-1].end > a[-1].ts && a[-1].end <= came ? a[-1].end : INT64_MIN;
}

struct lg_own_time lg_late_by(struct lg_case *c, const struct lg_arrival *a, struct lg_pieces *scratch)
{
	const struct lg_rank *late = &c->ranks[a->late_rank], *second = &c->ranks[a->second_rank];
	int64_t from = together_before(late, a->late_ts), before = together_before(second, a->second_ts);
	struct lg_own_time own, other, seen = lg_own_time_in(c, late, a->second_ts, a->late_ts, scratch);
	int64_t most = seen.ran + seen.slept;

	if (from == INT64_MIN || before == INT64_MIN)
		return seen;
	own = lg_own_time_in(c, late, from, a->late_ts, scratch);
	other = lg_own_time_in(c, second, before, a->second_ts, scratch);
	own.ran -= other.ran;
	own.slept -= other.slept;
	/* No more than the others saw of it: the rest was made up for elsewhere. */
	if (own.ran + own.slept > most) {
		if (own.ran >= most || own.slept <= 0) {
			own = (struct lg_own_time){ .ran = most };
		} else if (own.slept >= most || own.ran <= 0) {
			own = (struct lg_own_time){ .slept = most };
		} else {
			own.slept = most - own.ran;
		}
	}
	return own;
}
