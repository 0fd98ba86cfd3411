/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepless.c - a loop whose steps cannot be told, but of which it is proven that it was held up, and by whom.
 *
 * A thread that hardly ever waits shows no repetition, so there are no steps. But that another process held
 * the lock that it wanted, that it was stopped, or that another had the CPU that it was ready for is a fact
 * all the same. For how long it stood still is its price, of the time that was seen; what a wait for a lock
 * costs is not known, as it may have had to wait anyway.
 */
#include "analyse/chains/culprit.h"
#include "analyse/host/causes.h"
#include "base/map.h"

enum { CAUSES_MAX = 16, LIMITS_OF_OTHERS = 2 /* of each that nobody named */ };
#define ONE_TURN_NS 20000000ll /* turns on a CPU no farther apart are one time: two ticks of HZ=100 */

/* Did somebody of another program hold up the thread itself, and is that sure? */
static bool is_proven(struct lg_case *c, const struct lg_rank *r, const struct lg_piece *p)
{
	if (p->of != r->thr || (p->thr && (lg_in_job(c, c->t->thread.prc[p->thr]) ||
					   lg_is_recorder(c, c->t->thread.prc[p->thr]))))
		return false;
	switch (lg_end(p->end)->stepless) {
	case LG_STEPLESS_OWNER:
		return p->thr && p->proof >= LG_PROOF_OWNER;
	case LG_STEPLESS_RUNNER:
		return p->thr != 0;
	case LG_STEPLESS_SURE: /* that it was held up is sure; by whom and why need not be */
		return true;
	default:
		return false;
	}
}

static bool is_passing(const struct lg_case *c, lg_prc p)
{
	return c->t->process.start[p] > c->t->first && c->t->process.end[p] < c->t->last;
}

/* Who sends a signal, or takes a CPU, may be another one each time: then whoever starts them and stays. */
static lg_prc who(struct lg_case *c, const struct lg_piece *p)
{
	enum { ANCESTORS_MAX = 16 };
	lg_prc self = c->t->thread.prc[p->thr], q = self;

	if (p->end == LG_END_LOCK)
		return self;
	for (int i = 0; i < ANCESTORS_MAX && q && is_passing(c, q); i++)
		q = lg_parent_of(c, q);
	if (p->end == LG_END_STOP && q != self)
		return 0;
	return q && c->t->process.pid[q] > 2 && c->t->process.role[q] == LG_ROLE_OTHER ? q : self;
}

/* What waits have in common: who, how, and which lock. */
static uint64_t cause_key(struct lg_case *c, const struct lg_piece *p)
{
	return lg_mix64((uint64_t)who(c, p) << 32 | p->lock) ^ lg_mix64(p->end);
}

/* How many processes the waits are of, and the names of three. */
static int count_members(struct lg_case *c, struct lg_cause_sum *s)
{
	LG_AUTOFREE uint8_t *seen = lg_calloc(c->t->process.n, 1);

	if (!seen)
		return LG_E_NOMEM;
	LG_EACH_PIECE(piece, s) {
		lg_prc p = c->t->thread.prc[piece->thr];

		if (!seen[p] && s->n_members < 3)
			s->member[s->n_members] = p;
		s->n_members += !seen[p];
		seen[p] = 1;
	}
	return 0;
}

/* The waits for one cause: those of v, in order of time. */
static int add_up(struct lg_case *c, const struct lg_rank *r, const struct lg_piece **v, size_t n,
		  struct lg_cause_sum *ret)
{
	LG_AUTOFREE struct lg_burst *b = lg_calloc(n, sizeof *b);
	const struct lg_piece *longest = v[0];

	if (!b)
		return LG_E_NOMEM;
	*ret = (struct lg_cause_sum){ .end = v[0]->end, .prc = who(c, v[0]), .lock = v[0]->lock,
				      .victim = r->thr, .pieces = v, .n_pieces = n };
	for (size_t i = 0; i < n; i++) {
		b[i] = (struct lg_burst){ v[i]->ts, v[i]->ts + v[i]->dur, v[i]->dur };
		ret->lost += v[i]->dur;
		ret->by_proof[v[i]->proof] += v[i]->dur;
		longest = v[i]->dur > longest->dur ? v[i] : longest;
	}
	ret->thr = longest->thr;
	ret->rhythm = lg_rhythm_of(b, n, v[0]->end == LG_END_CPU ? ONE_TURN_NS : 0);
	return count_members(c, ret);
}

/* Ranks that the same one held up have one finding. */
struct told {
	struct lg_map of_key; /* cause -> index of the finding + 1 */
	bool found;
};

/* Not enough to be graded, or nobody said that this is the job: then it is no more than a fact. */
static void tell(struct lg_case *c, const struct lg_rank *r, const struct lg_cause_sum *s, int64_t wall,
		 bool likely, struct told *told)
{
	double share = (double)s->lost / (double)wall;
	uint64_t key = cause_key(c, s->pieces[0]);
	uint32_t before = lg_map_get(&told->of_key, key);

	if (share < LG_N_ANY_LOW)
		return;
	if (likely && share >= LG_N_CHAIN_STEPLESS && lg_gradable(s->rhythm.n_events, wall)) {
		told->found = true;
		if (before)
			lg_finding_of_waits_too(&c->v->findings[before - 1], c, r, s, wall);
		else if (lg_finding_of_waits(c, r, s, wall) &&
			 lg_map_set(&told->of_key, key, (uint32_t)c->v->n_findings))
			c->failed = LG_E_NOMEM;
		return;
	}
	lg_say(c, LG_SAYS_CHAIN_PROVEN, lg_thread_text(c, r->thr), lg_cause_fact(c, s), s->n_pieces,
	       s->n_pieces == 1 ? "" : "s", lg_ms(s->lost), lg_seconds(wall));
}

struct cause {
	uint64_t key;
	int64_t lost;
};

struct causes {
	struct cause *v;
	size_t n, cap;
	struct lg_map at; /* key -> index + 1 */
};

LG_ORDER_BY(cmp_cause, struct cause, LG_CMP(y->lost, x->lost) ?: LG_CMP(x->key, y->key))

/* The causes of all proven waits, the one that took most first. */
static int find_causes(struct lg_case *c, const struct lg_rank *r, const struct lg_pieces *all,
		       struct causes *ret)
{
	LG_EACH(p, all->v, all->n) {
		uint64_t key = cause_key(c, p);
		uint32_t k;

		if (!is_proven(c, r, p))
			continue;
		k = LG_MAP_APPEND(&ret->at, key, ret->v, ret->n, ret->cap, (struct cause){ .key = key });
		if (!k)
			return LG_E_NOMEM;
		ret->v[k - 1].lost += p->dur;
	}
	LG_SORT(ret->v, ret->n, cmp_cause);
	return 0;
}

/* left_out: of all ranks, which share their cgroups as a rule. */
static int judge_pieces(struct lg_case *c, const struct lg_rank *r, const struct lg_pieces *all, int64_t wall,
			int64_t left_out, struct told *told)
{
	LG_AUTOFREE const struct lg_piece **v = lg_calloc(all->n, sizeof *v);
	bool likely = lg_is_likely_job(c, r->prc);
	size_t most = likely ? CAUSES_MAX : LIMITS_OF_OTHERS, more = 0;
	struct causes causes = { 0 };
	int rc = v ? find_causes(c, r, all, &causes) : LG_E_NOMEM;

	for (size_t k = most; !rc && k < causes.n; k++)
		more += (double)causes.v[k].lost >= LG_N_ANY_LOW * (double)wall;
	for (size_t k = 0; !rc && k < causes.n && k < most; k++) {
		struct lg_cause_sum s;
		size_t n = 0;

		for (size_t i = 0; i < all->n; i++)
			if (is_proven(c, r, &all->v[i]) && cause_key(c, &all->v[i]) == causes.v[k].key)
				v[n++] = &all->v[i];
		rc = add_up(c, r, v, n, &s);
		s.left_out = left_out;
		if (!rc)
			tell(c, r, &s, wall, likely, told);
	}
	if (!rc && more)
		lg_say(c, LG_SAYS_CHAIN_MORE, lg_thread_text(c, r->thr), more);
	lg_free(causes.v);
	lg_map_done(&causes.at);
	return rc;
}

/* What the rank's main thread waited for, all the time that it was seen. */
static int64_t follow(struct lg_case *c, const struct lg_rank *r, struct lg_pieces *out)
{
	int64_t from, to;

	if (!r->n_states || lg_is_polled(c))
		return 0;
	from = c->t->state.ts[r->states[0]];
	to = lg_seen_until(c, r);
	lg_follow(c, r->thr, from, to, 0, out);
	return to - from;
}

int lg_judge_stepless(struct lg_case *c, bool *ret_found)
{
	LG_AUTOFREE struct lg_pieces *of = lg_calloc(c->n_ranks, sizeof *of);
	LG_AUTOFREE int64_t *wall = lg_calloc(c->n_ranks, sizeof *wall);
	int64_t left_out = 0;
	struct told told = { 0 };
	int rc = of && wall ? 0 : LG_E_NOMEM;

	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		wall[i] = follow(c, &c->ranks[i], &of[i]);
		for (size_t k = 0; k < of[i].n; k++)
			left_out += of[i].v[k].end == LG_END_QUOTA ? of[i].v[k].dur : 0;
		rc = c->failed;
	}
	for (size_t i = 0; !rc && i < c->n_ranks; i++)
		rc = of[i].n ? judge_pieces(c, &c->ranks[i], &of[i], wall[i], left_out, &told) : 0;
	for (size_t i = 0; of && i < c->n_ranks; i++)
		lg_free(of[i].v);
	*ret_found = told.found;
	lg_map_done(&told.of_key);
	return rc ?: c->failed;
}
