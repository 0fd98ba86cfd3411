/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - CPU samples alone: during whose bursts does the job stand still?
 *
 * A thread that computes shows a sample every period; while it is stalled it shows none. Samples
 * cannot say by what. But if the training thread stands still during another process's bursts of
 * activity far more than at other times, that process is named, as a correlation.
 *
 * Test: the candidate's bursts keep their lengths and are thrown anywhere in the victim's life, LG_RUNS
 * times (Monte Carlo); p is the share of throws in which the thread stood still for as long,
 * multiplied by the number of candidates (Bonferroni). How often it stands still of its own
 * accord (waiting for other ranks, pushed off a busy CPU) is in the throws, so it needs no
 * threshold.
 *
 * What would make chance look small, and is kept out:
 *  - bursts close to each other (of several threads, or broken in two) are one occasion: they are thrown
 *    together and count once;
 *  - a process that is not there (yet, or any more) does not stand still; one that was there for less than
 *    half of the recording is no training that repeats;
 *  - who waits for what it started itself (a shell, a build) is not stalled by a stranger;
 *  - a burst during which a third party has the CPU that the thread had run on says nothing: the thread
 *    may just wait for a CPU; and a burst on a CPU on which a rank runs in turns with it slows that rank,
 *    and those that wait for it, but stalls nobody (contention for a CPU, not a lock);
 *  - one of many that push the thread off its CPU in turns is not the one: where the candidate mostly had
 *    that very CPU, it must account for most of the stalls of that length.
 */
#include <math.h>

#include "analyse/finders.h"
#include "analyse/steps/steps.h"
#include "analyse/host/foreign.h"
#include "analyse/chains/tally.h"
#include "base/side_thread.h"
#include "base/map.h"

enum { FEW_RUNS = 32, MANY_GROUPS = 16, ENOUGH = 40, SOME = 10 };
enum { CANDIDATES_MAX = 512 };
enum { WORTH_A_THREAD = 1 << 17 /* samples */ };
enum { QUIETER = 2 /* so many times fewer samples has who may be a stranger to another of the busiest */ };
#define TURN_NS 20000000ll /* two ticks of the slowest clock (HZ=100): longer than a turn of the scheduler */

/*
 * After so many placements of which none did as well: could any of the others? Each group of bursts falls
 * where it does independently of the others, so their sum is nearly normal. Six deviations above its mean
 * leave one chance in a thousand million; of few placements the deviation itself is known to an eighth
 * only, and eight of those are asked for. The placements that are left are not made.
 */
static bool is_out_of_reach(double covered, const double *sum, size_t runs, size_t groups)
{
	double mean = 0, spread = 0, n = (double)runs;

	for (size_t i = 0; i < runs; i++)
		mean += sum[i] / n;
	for (size_t i = 0; i < runs; i++)
		spread += (sum[i] - mean) * (sum[i] - mean) / n;
	return groups >= MANY_GROUPS &&
	       covered - mean > (runs < LG_FIRST_RUNS ? LG_FEW_RUNS_OFF : LG_RUNS_OFF) * sqrt(spread);
}

/* The chance that the bursts, placed anywhere, cover as much. 1: it is not below limit, as far as can be
 * told; whether_only: it is told no better than which side of the limit it is on. */
static struct lg_odds chance(const struct lg_victim *v, const struct lg_stretches *bursts, int64_t covered,
			  double limit, bool whether_only)
{
	struct lg_stretch life = v->life;
	uint64_t seed = 0x6c61676761726432;
	double first[LG_FIRST_RUNS];
	size_t as_good = 0, groups = 0, run = 0;

	for (; run < LG_RUNS; run++) {
		int64_t sum = 0;

		if ((run == FEW_RUNS || run == LG_FIRST_RUNS) && !as_good &&
		    is_out_of_reach((double)covered, first, run, groups))
			break;
		/* None of ten times as many as would show one at the limit. */
		if (whether_only && !as_good && (double)run * limit >= 10)
			break;
		for (size_t i = 0, next; i < bursts->n; i = next) {
			int64_t from = bursts->v[i].ts, room, at;

			for (next = i + 1; next < bursts->n && bursts->v[next].with_last; next++)
				;
			room = life.end - life.ts - (bursts->v[next - 1].end - from);
			seed = lg_mix64(seed + i);
			at = life.ts - from +
			     (int64_t)((double)(seed >> 11) * 0x1p-53 * (double)(room > 0 ? room : 0));
			for (size_t k = i; k < next; k++)
				sum += lg_covered(&v->gaps, bursts->v[k].ts + at, bursts->v[k].end + at);
			groups += !run;
		}
		if (run < LG_FIRST_RUNS)
			first[run] = (double)sum;
		as_good += sum >= covered;
		/* It will not come below the limit: it is there after many, or far above after few. */
		if ((as_good >= ENOUGH && (double)as_good >= limit * (double)(run + 1)) ||
		    (as_good >= SOME && (double)as_good >= 4 * limit * (double)(run + 1)))
			return (struct lg_odds){ 1, run + 1, as_good };
	}
	return (struct lg_odds){ (double)(as_good + 1) / (LG_RUNS + 1), run, as_good };
}

static void done(struct lg_candidate *k)
{
	lg_free(k->all.v);
	lg_free(k->bursts.v);
}

static size_t n_samples(const struct lg_case *c, const struct lg_rank *r)
{
	return c->idx->sample_off[r->thr + 1] - c->idx->sample_off[r->thr];
}

/* Neither was said to be the job, they run different programs, and p is the quieter one by far. */
static bool may_be_stranger(const struct lg_case *c, const struct lg_rank *victim, lg_prc p)
{
	const struct lg_rank *r = &c->ranks[c->rank_of_prc[p] - 1];

	return r != victim && r->inferred && r->rank < 0 && victim->rank < 0 && !lg_was_named(c, p) &&
	       !lg_was_named(c, victim->prc) && c->t->process.comm[p] != c->t->process.comm[victim->prc] &&
	       n_samples(c, r) * QUIETER <= n_samples(c, victim);
}

/* A job's own processes are no strangers to each other: they stall together. */
static bool is_job(const struct lg_case *c, const struct lg_rank *victim, lg_prc p)
{
	return lg_is_worker(c, p) || (c->rank_of_prc[p] && !may_be_stranger(c, victim, p));
}

/* Of the stalls that are about as long as those in the bursts: how much of their time the bursts cover. */
static double own_share(const struct lg_stretches *gaps, const struct lg_stretches *bursts)
{
	double all = 0, own = 0, typical = lg_stretches_typical(bursts);

	LG_EACH(x, gaps->v, gaps->n) {
		if ((double)(x->end - x->ts) < typical / 2)
			continue;
		all += (double)(x->end - x->ts);
		own += (double)lg_covered(bursts, x->ts, x->end);
	}
	return all > 0 ? own / all : 0;
}

/* Does a rank run on this burst's CPU, in turns with it, in the later half of the beat? (At its begin a
 * rank may still be on its way to where it waits for the others.) */
static bool takes_turns(const struct lg_case *c, struct lg_candidate *k, const struct lg_stretch *b,
			int64_t period)
{
	const struct lg_sample_tab *s = &c->t->sample;
	struct lg_beat *beat = &k->beat[(uint32_t)b->cpu % LG_BEATS];
	int64_t from = b->ts, to = b->end;
	size_t n = 0, i = 0;

	while (i < k->all.n && k->all.v[i].ts < b->ts)
		i++;
	for (size_t first = i; first < k->all.n && !k->all.v[first].beat && first; first--)
		from = k->all.v[first - 1].ts;
	for (size_t last = i + 1; last < k->all.n && !k->all.v[last].beat; last++)
		to = k->all.v[last].end;
	from += (to - from) / 2;
	if (beat->from == from && beat->to == to && beat->cpu == b->cpu)
		return beat->turns;
	for (size_t r = 0; r < c->n_ranks; r++) {
		lg_thr thr = c->ranks[r].thr;
		uint32_t p = lg_index_sample_from(c->idx, thr, from);

		if (c->ranks[r].prc == k->prc)
			continue;
		for (; p < c->idx->sample_off[thr + 1]; p++) {
			uint32_t row = c->idx->sample[p];

			if (s->ts[row] >= to)
				break;
			n += s->cpu[row] == b->cpu && lg_shows_activity(&c->scene, row);
		}
	}
	*beat = (struct lg_beat){ from, to, b->cpu,
				  (double)n * (double)period >=
				  LG_N_HOST_FOREIGN_ACTIVITY_TURNS * (double)(to - from) };
	return beat->turns;
}

/* Had anybody but the thread itself and the candidate its CPU for a good part of the burst? Who is always
 * ready has it whenever it is free; ready: is that counted, too? */
static bool cpu_was_taken(const struct lg_case *c, lg_prc candidate, lg_thr victim,
			  const struct lg_stretch *b, int64_t period, bool ready)
{
	const struct lg_sample_tab *s = &c->t->sample;
	int32_t cpu = lg_cpu_before(&c->scene, victim, b->ts);
	size_t n = 0;

	for (size_t i = lg_first_sample(s, b->ts); cpu >= 0 && i < s->n && s->ts[i] < b->end; i++)
		n += s->cpu[i] == cpu && s->thr[i] != victim &&
		     c->t->thread.prc[s->thr[i]] != candidate && (ready || !c->always_ready[s->thr[i]]) &&
		     !(s->flags[i] & LG_SAMPLE_IDLE) && lg_shows_activity(&c->scene, i);
	return (double)n * (double)period >= LG_N_HOST_FOREIGN_ACTIVITY_TAKEN * (double)(b->end - b->ts);
}

/*
 * May the thread, or a rank that it waits for, have stood still just for want of a CPU? While somebody who is
 * always ready has its CPU, nothing shows whether it waits or its turn is over. long_still: for longer than
 * turns are it did not run; then it waits, for this or for that.
 */
static bool tells_nothing(const struct lg_case *c, struct lg_candidate *k, lg_thr victim,
			  const struct lg_stretch *b, int64_t period, bool long_still)
{
	return cpu_was_taken(c, k->prc, victim, b, period, false) || takes_turns(c, k, b, period) ||
	       (!long_still && cpu_was_taken(c, k->prc, victim, b, period, true));
}

/* Keep the bursts that can tell something; their number. */
static size_t keep_telling(const struct lg_case *c, const struct lg_victim *v, struct lg_candidate *k)
{
	struct lg_stretch *b = k->bursts.v;
	size_t n = 0;

	for (size_t i = 0, next; i < k->bursts.n; i = next) {
		int64_t len;
		bool long_still;

		for (next = i + 1; next < k->bursts.n && b[next].with_last; next++)
			;
		len = b[next - 1].end - b[i].ts;
		long_still = len >= TURN_NS && (double)lg_covered(&v->gaps, b[i].ts, b[next - 1].end) >=
						       LG_N_HOST_FOREIGN_ACTIVITY_STILL * (double)len;
		for (; i < next; i++)
			if (!tells_nothing(c, k, v->rank->thr, &b[i], v->period, long_still))
				b[n++] = b[i];
	}
	return n;
}

static int copy_of(const struct lg_stretches *a, struct lg_stretches *ret)
{
	*ret = (struct lg_stretches){ .v = lg_calloc(a->n, sizeof *a->v), .n = a->n, .cap = a->n };
	if (ret->v && a->n)
		memcpy(ret->v, a->v, a->n * sizeof *a->v);
	return ret->v ? 0 : LG_E_NOMEM;
}

/* Its long bursts: for its rhythm, and to be judged. */
static int find_candidate(struct lg_candidate *k, const struct lg_seen *seen, int64_t period,
			  struct lg_stretch life, int64_t *ret_busy)
{
	int rc = lg_find_bursts(seen, period, life, &k->all);

	*ret_busy = rc ? 0 : lg_keep_long(&k->all, period);
	lg_mark_beats(&k->all);
	return !rc && k->all.n ? copy_of(&k->all, &k->bursts) : rc;
}

/* How well do the bursts and the thread's standing still agree, in k->hits bursts? False: not even at first
 * sight, whether they are enough or not. */
static bool agrees(struct lg_candidate *k, const struct lg_stretches *gaps, int64_t period,
		   int64_t *ret_still)
{
	int64_t busy = 0, still = 0;
	size_t hits = 0;

	LG_EACH(b, k->bursts.v, k->bursts.n) {
		b->still = lg_covered(gaps, b->ts, b->end);
		busy += b->end - b->ts;
		still += b->still;
		hits += (double)b->still >= LG_N_HOST_FOREIGN_ACTIVITY_STILL * (double)(b->end - b->ts);
	}
	k->n_long = lg_join_occasions(&k->bursts, period);
	*ret_still = still;
	k->hits = hits;
	return hits && hits * 5 >= k->bursts.n * 3 &&
	       (double)still >= (k->usual + LG_N_HOST_FOREIGN_ACTIVITY_MORE) * (double)busy;
}

static bool is_repeated(const struct lg_candidate *k)
{
	return k->hits >= LG_N_HOST_FOREIGN_ACTIVITY_HITS && k->n_long >= LG_N_HOST_FOREIGN_ACTIVITY_HITS;
}

/* Keep the bursts during which the thread stood still. True: the candidate mostly had its CPU then, and has
 * no more to do with such stalls than others. */
static bool keep_hits(const struct lg_case *c, const struct lg_victim *v, struct lg_candidate *k)
{
	size_t n = 0, n_same_cpu = 0;

	for (size_t i = 0; i < k->bursts.n; i++) {
		struct lg_stretch b = k->bursts.v[i];

		if ((double)b.still < LG_N_HOST_FOREIGN_ACTIVITY_STILL * (double)(b.end - b.ts))
			continue;
		k->covered += b.still;
		k->bursts.v[n++] = b;
		n_same_cpu += b.cpu == lg_cpu_before(&c->scene, v->rank->thr, b.ts);
	}
	k->bursts.n = n;
	k->hits = lg_join_occasions(&k->bursts, v->period);
	/* One of those that may be the job must account for them in any case: rank and rank, or a server and
	 * its client, wait for each other all the time. */
	return (n_same_cpu * 2 >= n || c->rank_of_prc[k->prc]) &&
	       own_share(&v->gaps, &k->bursts) < LG_N_HOST_FOREIGN_ACTIVITY_OWN;
}

static int judge_candidate(const struct lg_case *c, const struct lg_victim *v, const struct lg_seen *seen,
			   struct lg_candidate *k)
{
	const struct lg_stretches *gaps = &v->gaps;
	struct lg_stretch life = v->life;
	int64_t period = v->period, all_busy, still;
	struct lg_stretches all; /* with those that tell nothing; then without */
	size_t n, n_all;
	int rc = find_candidate(k, seen, period, life, &all_busy);

	k->odds.p = 1;
	/* Always busy: it coincides with everything and explains nothing. */
	if (rc || 5 * (double)all_busy > 3 * (double)(life.end - life.ts) || !agrees(k, gaps, period, &still))
		return rc;
	if (!is_repeated(k)) {
		k->maybe = chance(v, &k->bursts, still, LG_N_HOST_FOREIGN_ACTIVITY_MAYBE, true);
		return 0;
	}
	if (copy_of(&k->bursts, &all))
		return LG_E_NOMEM;
	n_all = all.n;
	n = keep_telling(c, v, k);
	if (n < all.n && !k->clouded)
		k->clouded = chance(v, &all, still, LG_N_HOST_FOREIGN_ACTIVITY_P, true).p <
			     LG_N_HOST_FOREIGN_ACTIVITY_P;
	k->bursts.n = k->n_judged = all.n = n;
	/*
	 * A few that are left of many are a choice, not a sample: two of 23 happened to lie in stalls, and no
	 * random placement of two does as well.
	 */
	if (2 * n >= n_all && agrees(k, gaps, period, &still) && is_repeated(k)) {
		bool only_cpu;

		memcpy(all.v, k->bursts.v, n * sizeof *all.v);
		only_cpu = keep_hits(c, v, k);
		if (k->hits >= LG_N_HOST_FOREIGN_ACTIVITY_HITS && !only_cpu)
			k->odds = k->maybe = chance(v, &all, still, k->limit, false);
		else if (k->hits >= LG_N_HOST_FOREIGN_ACTIVITY_HITS && !k->clouded)
			k->clouded = chance(v, &all, still, LG_N_HOST_FOREIGN_ACTIVITY_P, true).p <
			     LG_N_HOST_FOREIGN_ACTIVITY_P;
	}
	lg_free(all.v);
	return 0;
}

static bool better(const struct lg_candidate *k, const struct lg_candidate *than)
{
	return k->odds.p < than->odds.p || (k->odds.p <= than->odds.p && k->covered > than->covered);
}

static void add_rival(struct lg_candidate *k, struct lg_rival r)
{
	if (r.prc && (!k->rival.prc || r.p < k->rival.p ||
		      (r.p <= k->rival.p && r.covered > k->rival.covered)))
		k->rival = r;
}

static struct lg_rival as_rival(const struct lg_candidate *k)
{
	return (struct lg_rival){ k->prc, k->odds.p, !k->odds.as_good, k->covered };
}

/* Every second process: who of them explains best why each victim stood still? */
struct field {
	struct lg_case *c;
	const struct lg_victim *victim;
	size_t n_victims;
	struct contest {
		size_t n; /* candidates */
		struct lg_candidate best;
		struct lg_hint hint;
	} *contest; /* by victim */
	lg_prc first;
	int rc;
};

/* It may come again. */
static bool is_there(const struct lg_case *c, const struct lg_victim *v, lg_prc p)
{
	return c->t->process.start[p] <= v->life.ts && c->t->process.end[p] >= v->life.end;
}

static int enter(struct lg_case *c, const struct lg_victim *v, lg_prc p, const struct lg_seen *seen,
		 struct contest *t)
{
	/* Clouded is what one of them found: the others need not ask. */
	int rc;
	struct lg_candidate k = { .prc = p, .usual = v->usual, .clouded = t->best.clouded };

	/* In the end it is multiplied by the number of all of them: there are so many already. */
	k.limit = LG_N_HOST_FOREIGN_ACTIVITY_P / (double)(t->n + 1);
	rc = judge_candidate(c, v, seen, &k);
	t->n += k.all.n >= LG_N_HOST_FOREIGN_ACTIVITY_HITS;
	t->best.clouded = k.clouded;
	if (!rc && k.maybe.placed && is_there(c, v, p)) {
		struct lg_hint h = { .prc = p, .hits = k.hits,
				  .p = (double)(k.maybe.as_good + 1) / (double)(k.maybe.placed + 1) };

		if (h.p < LG_N_HOST_FOREIGN_ACTIVITY_MAYBE && (!t->hint.prc || h.p < t->hint.p))
			t->hint = h;
	}
	if (!rc && better(&k, &t->best)) {
		add_rival(&k, t->best.rival);
		add_rival(&k, as_rival(&t->best));
		done(&t->best);
		t->best = k;
	} else {
		if (!rc)
			add_rival(&t->best, as_rival(&k));
		done(&k);
	}
	return rc;
}

static void judge_field(void *arg)
{
	struct field *f = arg;
	struct lg_case *c = f->c;

	for (size_t i = 0; i < f->n_victims; i++)
		f->contest[i].best.odds.p = 1;
	for (lg_prc p = f->first; !f->rc && p < c->t->process.n; p += 2) {
		struct lg_seen seen;

		if (lg_is_worker(c, p) || c->t->process.pid[p] <= 0 || lg_is_recorder(c, p))
			continue;
		f->rc = lg_find_seen(&c->scene, p, c->always_ready, &seen);
		for (size_t i = 0; !f->rc && i < f->n_victims; i++)
			if (f->contest[i].n < CANDIDATES_MAX / 2 && !is_job(c, f->victim[i].rank, p) &&
			    !lg_descends(c, p, f->victim[i].rank->prc))
				f->rc = enter(c, &f->victim[i], p, &seen, &f->contest[i]);
		lg_free(seen.v);
	}
}

/* The two halves' contests of one victim are one: the best of both. */
static struct lg_candidate winner(const struct contest *a, const struct contest *b)
{
	bool second = better(&b->best, &a->best);
	struct lg_candidate best = second ? b->best : a->best, other = second ? a->best : b->best;

	best.clouded |= other.clouded;
	best.hint = b->hint.prc && (!a->hint.prc || b->hint.p < a->hint.p) ? b->hint : a->hint;
	best.hint.rivals = a->n + b->n;
	add_rival(&best, other.rival);
	add_rival(&best, as_rival(&other));
	best.odds.p *= (double)(a->n + b->n);
	best.rival.p *= (double)(a->n + b->n);
	done(&other);
	return best;
}

/* False: there are too few samples of it. */
static bool see_victim(struct lg_case *c, const struct lg_rank *r, struct lg_victim *v)
{
	*v = (struct lg_victim){ .rank = r, .life = lg_sampled_life(&c->scene, r->prc),
			      .period = lg_sampling_period(&c->scene, r->thr) };
	return v->period > 0 && v->life.end > v->life.ts;
}

static int find_stalls(const struct lg_case *c, struct lg_victim *v)
{
	int rc = lg_find_gaps(&c->scene, v->rank->thr, v->period, v->life, &v->gaps)
			      ?: lg_stretches_index(&v->gaps);

	v->usual = (double)lg_stretches_time(&v->gaps) / (double)(v->life.end - v->life.ts);
	return rc;
}

LG_ORDER_BY(cmp_stretch, struct lg_stretch, LG_CMP(x->ts, y->ts))

/* What stalls one rank stalls those that wait for it: bursts that can tell nothing of the victim (they had
 * its CPU) may tell it of another rank. */
static int add_other_ranks(struct lg_case *c, const struct lg_rank *victim, struct lg_candidate *best)
{
	struct lg_seen seen;
	int rc = 0;

	if (lg_find_seen(&c->scene, best->prc, c->always_ready, &seen))
		return LG_E_NOMEM;
	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		struct lg_victim v = { 0 };
		struct lg_candidate k = { .prc = best->prc, .limit = LG_N_HOST_FOREIGN_ACTIVITY_P };

		if (&c->ranks[i] == victim || c->ranks[i].prc == best->prc ||
		    !see_victim(c, &c->ranks[i], &v))
			continue;
		rc = find_stalls(c, &v);
		k.usual = v.usual;
		rc = rc ?: judge_candidate(c, &v, &seen, &k);
		LG_EACH_WHILE(!rc && k.odds.p < LG_N_HOST_FOREIGN_ACTIVITY_P, b, k.bursts.v, k.bursts.n) {
			bool known = false;

			for (size_t m = 0; m < best->bursts.n; m++)
				known |= best->bursts.v[m].ts < b->end && b->ts < best->bursts.v[m].end;
			if (known)
				continue;
			rc = lg_stretch_add(&best->bursts, b->ts, b->end);
			best->covered += b->still;
		}
		lg_stretches_done(&v.gaps);
		done(&k);
	}
	lg_free(seen.v);
	LG_SORT(best->bursts.v, best->bursts.n, cmp_stretch);
	best->hits = lg_join_occasions(&best->bursts, lg_sampling_period(&c->scene, victim->thr));
	best->n_long = LG_MAX(best->hits, best->n_long);
	return rc;
}

/* Every process against every victim, on two cores. ret: the best for each of them, also with an error. */
static int judge_all(struct lg_case *c, const struct lg_victim *v, size_t n, struct lg_candidate *ret)
{
	struct field half[2];
	struct lg_side_thread beside;
	int rc;

	for (lg_prc i = 0; i < 2; i++)
		half[i] = (struct field){ .c = c, .victim = v, .n_victims = n, .first = 1 + i,
					  .contest = lg_calloc(n, sizeof *half[i].contest) };
	rc = half[0].contest && half[1].contest ? 0 : LG_E_NOMEM;
	for (size_t i = 0; i < n; i++) /* from here on these are only looked at */
		(void)(lg_parent_of(c, v[i].rank->prc) || lg_in_job(c, v[i].rank->prc));
	if (!rc) {
		lg_side_thread_start(&beside, c->t->sample.n > WORTH_A_THREAD, judge_field, &half[1]);
		judge_field(&half[0]);
		lg_side_thread_wait(&beside);
		rc = half[0].rc ? half[0].rc : half[1].rc;
		for (size_t i = 0; i < n; i++)
			ret[i] = winner(&half[0].contest[i], &half[1].contest[i]);
	}
	lg_free(half[0].contest);
	lg_free(half[1].contest);
	return rc;
}

struct ready_search {
	struct lg_case *c;
	int64_t period;
	int rc;
};

static void find_ready(void *arg)
{
	struct ready_search *s = arg;

	s->rc = lg_find_always_ready(s->c, s->period);
}

/* Those that may have been stalled: they were there for at least half of the recording. */
static int find_victims(struct lg_case *c, struct lg_victim *v, size_t *ret_n)
{
	struct ready_search ready = { .c = c, .period = INT64_MAX };
	struct lg_side_thread beside;
	size_t n = 0;
	int rc = 0;

	for (size_t i = 0; i < c->n_ranks; i++)
		if (see_victim(c, &c->ranks[i], &v[n]) &&
		    v[n].life.end - v[n].life.ts >= (c->t->last - c->t->first) / 2) {
			ready.period = v[n].period < ready.period ? v[n].period : ready.period;
			n++;
		}
	*ret_n = n;
	if (!n)
		return 0;
	/* Of what is changed it has the case's list and the arena to itself. */
	lg_side_thread_start(&beside, c->t->sample.n > WORTH_A_THREAD, find_ready, &ready);
	for (size_t i = 0; !rc && i < n; i++)
		rc = find_stalls(c, &v[i]);
	lg_side_thread_wait(&beside);
	return rc ?: ready.rc;
}

/* Of whom to tell that nobody was found: not who mostly sleeps; who stood still for long, not who has what
 * the others leave; rather one whose CPU was taken; the busiest. */
static double worth_telling(const struct lg_case *c, const struct lg_victim *v, const struct lg_candidate *k,
			    size_t busiest)
{
	lg_thr thr = v->rank->thr;
	double busy = (double)n_samples(c, v->rank);

	return (busy * QUIETER < (double)busiest ? -16 : 0) +
	       (v->usual >= LG_N_HOST_FOREIGN_ACTIVITY_STALLS ? 8 : 0) +
	       (c->always_ready[thr] ? 0 : 4) + (k->clouded ? 2 : 0) + busy / (double)c->t->sample.n;
}

static int tell_nobody(struct lg_case *c, const struct lg_victim *v, const struct lg_candidate *k, size_t n)
{
	size_t at = 0, busiest = 0;
	double idle;
	int rc;

	for (size_t i = 0; i < n; i++)
		busiest = n_samples(c, v[i].rank) > busiest ? n_samples(c, v[i].rank) : busiest;
	for (size_t i = 1; i < n; i++)
		if (worth_telling(c, &v[i], &k[i], busiest) > worth_telling(c, &v[at], &k[at], busiest))
			at = i;
	lg_say_candidates(c, v[at].rank->thr, "the busiest of those that stood still");
	rc = lg_say_stalls(c, v[at].rank, &v[at].gaps, v[at].life, v[at].period, &idle);
	if (k[at].hint.prc)
		lg_tell_how_long(c, &v[at], &k[at].hint);
	if (k[at].clouded && !(idle >= LG_MOSTLY_IDLE))
		lg_tell_cpu_taken(c, v[at].rank);
	return rc;
}

/* The victim whose stalls are explained for the longest time; one that only has what the others leave is the
 * last to be pitied. SIZE_MAX = none. */
static size_t best_of(const struct lg_case *c, const struct lg_victim *v, const struct lg_candidate *k,
		      size_t n)
{
	size_t best = SIZE_MAX;
	bool best_ready = false;

	for (size_t i = 0; i < n; i++) {
		bool ready = c->always_ready[v[i].rank->thr];

		if (!k[i].prc || k[i].odds.p >= LG_N_HOST_FOREIGN_ACTIVITY_P)
			continue;
		if (best == SIZE_MAX || (best_ready && !ready) ||
		    (ready == best_ready && k[i].covered > k[best].covered)) {
			best = i;
			best_ready = ready;
		}
	}
	return best;
}

int lg_find_foreign(struct lg_case *c)
{
	LG_AUTOFREE struct lg_victim *v = lg_calloc(c->n_ranks, sizeof *v);
	LG_AUTOFREE struct lg_candidate *k = lg_calloc(c->n_ranks, sizeof *k);
	size_t n = 0, best = SIZE_MAX;
	int rc = v && k ? find_victims(c, v, &n) : LG_E_NOMEM;

	if (!rc && n)
		rc = judge_all(c, v, n, k);
	if (!rc)
		best = best_of(c, v, k, n);
	if (best != SIZE_MAX) {
		rc = add_other_ranks(c, v[best].rank, &k[best]);
		if (!rc)
			lg_tell_foreign(c, v[best].rank, &k[best]);
	} else if (!rc && n) {
		rc = tell_nobody(c, v, k, n);
	}
	for (size_t i = 0; i < n; i++) {
		lg_stretches_done(&v[i].gaps);
		done(&k[i]);
	}
	return rc ?: c->failed;
}
