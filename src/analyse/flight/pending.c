/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pending.c - what dumps of the Flight Recorder leave open: which ranks have collectives that did not
 * complete, and of which there is nothing. A fact for whoever looks into a hang, no verdict: a healthy run
 * that is dumped has collectives under way, too.
 */
#include "analyse/finders.h"
#include "analyse/flight/flight.h"
#include "base/words.h"

enum { RANGES_MAX = 12 };
enum { DUMPED = 1, EMPTY = 2, PENDING = 4 }; /* of a rank */

/* "rank 3" or "ranks 0-8, 10, 12-15": those whose bits under mask are want. NULL = none. */
static const char *ranks_text(struct lg_case *c, const uint8_t *is, int32_t world, uint8_t mask, uint8_t want)
{
	LG_AUTOFREE int64_t *v = lg_scratch(c, (size_t)world, sizeof *v);
	const char *text;
	size_t n = 0;

	for (int32_t r = 0; v && r < world; r++)
		if ((is[r] & mask) == want)
			v[n++] = r;
	text = lg_ranges_text(c, v, n, RANGES_MAX, &n);
	return n ? lg_text(c, "rank%s %s", lg_s(n), text) : NULL;
}

int lg_say_pending(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint8_t *is = lg_flight_any(t) ? lg_scratch(c, LG_FLIGHT_RANKS, sizeof *is) : NULL;
	const char *waits, *empty, *absent;
	bool judged;
	int32_t world = 0;
	size_t pending = 0;

	if (!is)
		return c->failed;
	for (size_t i = 0; i < t->meta.n; i++) {
		const char *key = lg_string(t, t->meta.key[i]);
		lg_prc p = t->meta.prc[i];
		int32_t rank = t->process.rank[p];

		if (!p || strncmp(key, "flight.", 7) || rank < 0 || rank >= LG_FLIGHT_RANKS)
			continue;
		is[rank] |= DUMPED;
		if (!strcmp(key, "flight.entries"))
			is[rank] |= EMPTY;
		world = LG_MAX(t->process.world[p], world);
		world = rank >= world ? rank + 1 : world;
	}
	world = LG_MIN(world, LG_FLIGHT_RANKS);
	LG_EACH_MARK(i, t, "flight.pending") {
		int32_t rank = lg_rank_of_mark(t, i);

		pending += world > 0;
		if (rank >= 0 && rank < world)
			is[rank] |= PENDING;
	}
	waits = ranks_text(c, is, world, PENDING, PENDING);
	empty = ranks_text(c, is, world, EMPTY, EMPTY);
	absent = ranks_text(c, is, world, DUMPED, 0);
	judged = lg_is_told(c, LG_R_COMMS_MISSING_RANK);
	if (pending || empty)
		lg_say(c, LG_SAYS_FLIGHT_PENDING, pending, lg_s(pending), lg_with(c, " on ", waits),
		       lg_with(c, "; nothing is in the dump of ", empty),
		       lg_with(c, "; there is no dump of ", absent),
		       judged ? "" : LG_SAYS_FLIGHT_DOES_NOT_FOLLOW,
		       !judged && (empty || absent) ? LG_SAYS_FLIGHT_BEGIN_WITH : "");
	return c->failed;
}
