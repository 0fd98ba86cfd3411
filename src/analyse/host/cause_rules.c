/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause_rules.c - of the causes that chains/tally.c added up keep what is worth a sentence.
 *
 * A cause is (kind of end, culprit process, lock). Its lost time is its share of the critical
 * path, so each nanosecond of the run is given once. What slow steps lost beyond that, by running
 * longer than usual, belongs to the rank that ran (comms.straggler or its own business).
 */
#include <math.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/causes.h"
#include "base/words.h"
#include "rules/device_names.h"

/* How often it was seen: in separate episodes, or, where it is always there, in so many steps. */
static size_t repeats_of(const struct lg_cause_sum *s)
{
	return s->steady && s->n_steps_hit > s->rhythm.n_events ? s->n_steps_hit : s->rhythm.n_events;
}

static double confidence_of(const struct lg_case *c, const struct lg_tally *y, const struct lg_cause_sum *s)
{
	static const double by_proof[] = { [LG_PROOF_NONE] = 0.3,   [LG_PROOF_WAKER] = 0.55,
					   [LG_PROOF_OWNER_READER] = 0.65, [LG_PROOF_OWNER] = 0.9,
					   [LG_PROOF_HOLD] = 0.98, [LG_PROOF_SCHED] = 0.96 };
	double sum = 0, total = 0;

	for (size_t i = 0; i < LG_COUNT(by_proof); i++) {
		sum += by_proof[i] * (double)s->by_proof[i];
		total += (double)s->by_proof[i];
	}
	sum = total > 0 ? sum / total : 0.3;
	if (repeats_of(s) < (s->steady ? LG_N_ANY_REPEATS : LG_N_CHAIN_TIMES) || y->wall < LG_N_ANY_GRADED)
		sum *= 0.8;
	/* A hole in the evidence may hide another cause as well as more of this one. */
	return sum * (1 - 0.5 * lg_loss_share(c));
}

static void add_victim(struct lg_case *c, struct lg_finding *f, const struct lg_rank *r)
{
	lg_victim_add(c, f, c->n_ranks, r->rank, r->prc, r->thr);
}

static void add_victims(struct lg_case *c, struct lg_finding *f, const uint8_t *of_rank)
{
	for (size_t i = 0; i < c->n_ranks; i++)
		if (of_rank[i])
			add_victim(c, f, &c->ranks[i]);
}

/* How sure a comparison of two runs can be of the sum is in how its parts come. */
static void keep_moments(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	f->moments = lg_arena_alloc(&c->v->arena, s->n_pieces, sizeof *f->moments);
	for (size_t i = 0; f->moments && i < s->n_pieces; i++)
		f->moments[f->n_moments++] = (struct lg_time_lost){ s->pieces[i]->ts, s->pieces[i]->dur };
}

/* Writers of metrics are logging; what saves state is a checkpoint. */
static bool is_logging(const char *name)
{
	return !lg_on_list(LG_LIST_SIDE_SAVES, name) && lg_on_list(LG_LIST_SIDE_LOGS, name);
}

static void doubt_quota(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	if (lg_is_guess(s)) {
		lg_cap(f, LG_CAP_GUESS);
		lg_evidence_against(c, f, LG_SAYS_HOST_CPU_THROTTLED_UNSEEN);
	} else if (s->end == LG_END_CPU && s->left_out * 4 >= s->lost) {
		lg_cap(f, LG_CAP_GUESS);
		f->confidence *= 0.5;
		lg_evidence_against(c, f, LG_SAYS_HOST_CPU_THROTTLED_BOTH, lg_ms(s->left_out));
	}
}

/* Was one of those that it held up a job's? Else it is no more than low. */
static void doubt_job(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s, uint32_t ref)
{
	for (size_t i = 0; i < c->n_ranks; i++)
		if (s->of_rank[i] && lg_is_likely_job(c, c->ranks[i].prc))
			return;
	lg_doubt_job(c, f, c->ranks[ref].prc);
}

/* What the culprit did meanwhile, by the way that suits such an end. Returns how many samples agree. */
static size_t what_it_did(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
			  struct lg_io_story *io)
{
	enum lg_end_did did = lg_end(s->end)->did;
	size_t samples = 0;

	if (did == LG_DID_HOLD && s->pieces[0]->row == UINT32_MAX)
		did = LG_DID_TIME; /* the wait has no row of its own, and so no hold */
	if (s->end == LG_END_STOP && !s->thr)
		did = LG_DID_NOTHING;
	switch (did) {
	case LG_DID_HOLD:
		lg_culprit_of_hold(c, f, s->pieces, s->n_pieces, &samples);
		break;
	case LG_DID_TIME:
		lg_culprit_of_time(c, f, s->pieces, s->n_pieces, &samples);
		break;
	case LG_DID_SAMPLES:
		lg_culprit_of_samples(c, f, s->pieces, s->n_pieces, &samples);
		break;
	case LG_DID_DISK:
		lg_io_tell(c, f, s, io);
		break;
	case LG_DID_GIL:
		return lg_gil_tell(c, f, s);
	case LG_DID_LOADER:
		lg_loader_tell(c, f, s);
		break;
	case LG_DID_NOTHING:
		break;
	}
	return samples;
}

/* What a cause took of the run's time, of the excess of its slow steps, and of the time beyond the usual. */
struct shares {
	double all, excess, beyond;
};

/* Is it worth a sentence, and under which rule? LG_R_NONE: no. */
static enum lg_rule_id rule_of(struct lg_case *c, const struct lg_cause_sum *s, const struct shares *of)
{
	const struct lg_end *end = lg_end(s->end);
	bool often = s->rhythm.n_events >= LG_N_CHAIN_TIMES;
	enum lg_rule_id rule = s->own_job ? end->own_rule : end->rule;
	bool slow = of->excess >= LG_N_CHAIN_SLOW && often &&
		    (s->end != LG_END_LOADER || of->beyond >= LG_N_DATA_LOADER_WAIT_BURSTS);

	if (s->end == LG_END_SIDE && is_logging(lg_side_name(c, s)))
		rule = LG_R_SIDE_LOGGING;
	if (!rule || (of->all < lg_rule_floor(rule) && !slow &&
		      !(s->end == LG_END_LOCK && of->all >= LG_N_HOST_LOCK_HELD_PROVEN && often)))
		return LG_R_NONE;
	return rule;
}

/* What a save was made of: the call that has the name, waits for the disk by system call, and the rest. */
static void say_save(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	enum { CALLS = 4 };
	struct { const char *name; int64_t ns; } v[CALLS] = { 0 };
	const char *waits = "", *call;
	int64_t inside = 0, beside = 0;
	size_t n = 0;

	LG_EACH_PIECE(p, s) {
		uint32_t r = c->rank_of_prc[c->t->thread.prc[p->of]];
		size_t k = 0;

		if (!r || !lg_save_beside(c, &c->ranks[r - 1], p->ts)) {
			inside += p->dur;
			continue;
		}
		(void)lg_io_kind_of(c, p->row, &call);
		while (call && k < n && strcmp(v[k].name, call))
			k++;
		if (!call || k == CALLS) {
			beside += p->dur;
			continue;
		}
		v[k].name = call;
		v[k].ns += p->dur;
		n += k == n;
	}
	for (size_t k = 0; k < n; k++)
		waits = lg_text(c, "%s, %.0f ms for the disk in %s", waits, lg_ms(v[k].ns),
				v[k].name);
	if (n || beside)
		lg_evidence(c, f, LG_SAYS_SIDE_CHECKPOINT_PARTS, lg_ms(inside), lg_side_name(c, s),
			    waits, lg_ms(beside));
}

/* A fork is paid for once more by each page that is written to afterwards, and when the copy ends. */
static void say_parts_of_fork(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	int64_t part[LG_FORK_TAKEN_DOWN + 1] = { 0 };

	LG_EACH_PIECE(p, s) {
		const struct lg_chore *chore = lg_chore_in(c, p->thr, p->ts, p->ts + p->dur);

		part[chore ? chore->part : LG_FORK_COPIED] += p->dur;
	}
	if (part[LG_FORK_ON_WRITE])
		lg_evidence(c, f, LG_SAYS_HOST_SELF_FORK_LATER, lg_ms(s->lost - part[LG_FORK_ON_WRITE]),
			    lg_ms(part[LG_FORK_ON_WRITE]));
	if (part[LG_FORK_TAKEN_DOWN])
		lg_evidence(c, f, LG_SAYS_HOST_SELF_FORK_DOWN, lg_ms(part[LG_FORK_TAKEN_DOWN]));
}

/* How often, and how much of what is slow ends here. */
static void say_how_often(struct lg_case *c, struct lg_finding *f, const struct lg_tally *y,
			  const struct lg_cause_sum *s, size_t samples)
{
	f->period_s = isnan(s->rhythm.period_s) ? 0 : s->rhythm.period_s;
	if (f->period_s > 0)
		lg_evidence(c, f, LG_SAYS_CHAIN_PERIOD, s->rhythm.n_events, s->rhythm.period_s,
			    s->rhythm.at_most ? "<=" : "=", s->rhythm.p);
	else if (s->steady)
		lg_evidence(c, f, "%zu wait%s in %zu step%s", s->n_pieces, lg_s(s->n_pieces), s->n_steps_hit,
			    lg_s(s->n_steps_hit));
	else
		lg_evidence(c, f, LG_SAYS_CHAIN_SEPARATE, s->rhythm.n_events,
			    lg_s(s->rhythm.n_events), s->n_pieces, lg_s(s->n_pieces),
			    s->n_steps_hit, lg_s(s->n_steps_hit));
	if (!isnan(f->excess_share))
		lg_evidence(c, f, LG_SAYS_CHAIN_EXCESS, f->excess_share * 100, y->n_slow,
			    lg_s(y->n_slow));
	if (samples && f->culprit.function)
		lg_evidence(c, f, LG_SAYS_CHAIN_SAMPLES, samples, lg_s(samples));
}

static void say_against(struct lg_case *c, struct lg_finding *f, const struct lg_tally *y,
			const struct lg_cause_sum *s, double excess)
{
	if (s->end == LG_END_LOCK && s->other_holds > s->n_pieces)
		lg_evidence_against(c, f, LG_SAYS_HOST_LOCK_HELD_HARMLESS,
				    s->other_holds - s->n_pieces);
	if (!isnan(f->excess_share) && excess < 0.5)
		lg_evidence_against(c, f, LG_SAYS_CHAIN_OTHER_CAUSES, (1 - excess) * 100);
	if (f->rule == LG_R_HOST_OVERSUBSCRIBED)
		lg_doubt_oversubscribed(c, f, s);
	doubt_quota(c, f, s);
	doubt_job(c, f, s, y->ref);
	if (lg_loss_share(c) > 0)
		lg_evidence_against(c, f, LG_SAYS_CHAIN_EVENTS_LOST, lg_loss_share(c) * 100);
}

/*
 * What the job's own threads take from each other is mostly work that has to be done anyway (a
 * collective's helper thread runs while its waiter waits): with more CPUs only a part would
 * go away, so a third counts as lost.
 */
static void count_a_part(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	lg_evidence(c, f, LG_SAYS_HOST_OVERSUBSCRIBED_A_THIRD, lg_ms(s->lost));
	f->lost_ms /= LG_N_HOST_OVERSUBSCRIBED_PART;
	f->lost_share /= LG_N_HOST_OVERSUBSCRIBED_PART;
}

/* Whoever held it up, and what he was at. Returns how many samples agree. */
static size_t who_held_up(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
			  struct lg_io_story *io)
{
	lg_thr master = s->n_members > 1 && s->prc && !s->own_job ? c->idx->main_of[s->prc] : 0;

	lg_culprit_identify(c, f, master ?: s->thr, s->victim);
	if (s->lock)
		f->culprit.lock = lg_lock_text(c, s->lock);
	return what_it_did(c, f, s, io);
}

/* Side work that the hook itself did for record --profiler: most of it. */
static bool is_profilers(struct lg_case *c, const struct lg_cause_sum *s)
{
	return s->end == LG_END_SIDE && lg_on_list(LG_LIST_SIDE_PROFILER, lg_side_name(c, s));
}

static void finding_of(struct lg_case *c, const struct lg_tally *y, struct lg_cause_sum *s)
{
	const struct shares of = { .all = (double)s->lost / (double)y->wall,
				   .excess = y->excess > 0 ? (double)s->slow_lost / (double)y->excess : 0,
				   .beyond = (double)s->slow_lost / (double)y->wall };
	/* What is there all the time may still be what makes slow steps slow: then both are said. */
	bool steady = s->steady && of.excess < LG_N_CHAIN_SLOW;
	enum lg_rule_id rule = rule_of(c, s, &of);
	/* Named for what it is to slow steps only: that is its price. */
	bool in_slow = rule == LG_R_DATA_LOADER_WAIT && of.all < lg_rule_floor(rule);
	double share = in_slow ? of.beyond : of.all;
	bool price = rule && ((s->prc && lg_is_recorder(c, s->prc)) || is_profilers(c, s));
	struct lg_finding *f = rule && !price ? lg_finding_add(c, rule) : NULL;
	struct lg_io_story io = { 0 };
	size_t samples;

	if (price)
		lg_say(c, LG_SAYS_CHAIN_RECORDER, lg_ms(s->lost), lg_seconds(y->wall), 100 * share,
		       lg_cause_fact(c, s));
	if (!f)
		return;
	add_victims(c, f, s->of_rank);
	if (!f->n_victims) { /* another program was held up, and the reference rank with it */
		s->of_rank[y->ref] = 1;
		add_victims(c, f, s->of_rank);
	}
	samples = who_held_up(c, f, s, &io);
	f->lost_ms = lg_ms(in_slow ? s->slow_lost : s->lost);
	f->lost_share = share;
	f->excess_share = steady ? (double)NAN : fmin(1, of.excess);
	if (rule == LG_R_HOST_OVERSUBSCRIBED)
		count_a_part(c, f, s);
	lg_grade(f, repeats_of(s), y->wall);
	f->confidence = confidence_of(c, y, s);
	if (io.other)
		f->confidence *= 0.9; /* that he waits is seen; for whose bytes follows from their sums */
	f->stage = lg_stage_name(s->stage);
	lg_cause_title(c, f, s, &io);
	say_how_often(c, f, y, s, samples);
	if (rule == LG_R_SIDE_CHECKPOINT)
		say_save(c, f, s);
	if (s->end == LG_END_FORK)
		say_parts_of_fork(c, f, s);
	lg_cause_moments(c, f, s);
	keep_moments(c, f, s);
	say_against(c, f, y, s, of.excess);
}

bool lg_finding_of_waits(struct lg_case *c, const struct lg_rank *r, const struct lg_cause_sum *s,
			 int64_t wall)
{
	const struct lg_tally y = { .wall = wall };
	struct lg_finding *f = lg_finding_add(c, lg_end(s->end)->rule);
	double share = (double)s->lost / (double)wall;
	size_t samples;

	if (!f)
		return false;
	samples = who_held_up(c, f, s, &(struct lg_io_story){ 0 });
	add_victim(c, f, r);
	lg_grade_unpriced(f);
	f->confidence = confidence_of(c, &y, s);
	f->stage = lg_stage_name(LG_STAGE_OTHER);
	lg_evidence(c, f, LG_SAYS_CHAIN_TIMES_MS, s->rhythm.n_events, lg_ms(s->lost),
		    lg_seconds(wall), 100 * share);
	if (s->end == LG_END_LOCK) {
		lg_title(c, f, LG_SAYS_HOST_LOCK_HELD_STEPLESS,
			 f->culprit.comm ?: "?", f->culprit.pid, f->culprit.lock,
			 lg_ranks_text(c, f, 0), lg_in_text(c, f), lg_period_text(c, &s->rhythm));
		lg_evidence_against(c, f, LG_SAYS_HOST_LOCK_HELD_UNPRICED);
	} else {
		lg_cause_title(c, f, s, NULL);
		f->lost_ms = lg_ms(s->lost);
		f->lost_share = share;
		lg_grade(f, s->rhythm.n_events, wall);
		if (samples && f->culprit.function)
			lg_evidence(c, f, LG_SAYS_CHAIN_SAMPLES, samples, lg_s(samples));
		lg_evidence_against(c, f, LG_SAYS_CHAIN_STEPLESS_PRICE);
		doubt_quota(c, f, s);
	}
	lg_cause_moments(c, f, s);
	keep_moments(c, f, s);
	return true;
}

void lg_finding_of_waits_too(struct lg_finding *f, struct lg_case *c, const struct lg_rank *r,
			     const struct lg_cause_sum *s, int64_t wall)
{
	double share = (double)s->lost / (double)wall;

	add_victim(c, f, r);
	lg_evidence(c, f, LG_SAYS_CHAIN_ANOTHER, lg_thread_text(c, r->thr), s->rhythm.n_events,
		    lg_ms(s->lost), lg_seconds(wall), 100 * share);
	if (!(share > f->lost_share)) /* of locks nothing is lost that is known */
		return;
	f->lost_ms = lg_ms(s->lost);
	f->lost_share = share;
	if (!lg_is_guess(s) && s->left_out * 4 < s->lost)
		lg_grade_more(f, s->rhythm.n_events, wall);
}

static const char *slept_text(struct lg_case *c, const struct lg_rank *r, const struct lg_straggler *g)
{
	lg_prc prc = g->sleeper ? c->t->thread.prc[g->sleeper] : r->prc;

	if (prc == r->prc)
		return "slept of its own will";
	return lg_text(c, LG_SAYS_COMMS_STRAGGLER_SLEEPER, lg_thread_text(c, g->sleeper));
}

/* Who was late, for its part, where several were. */
static void tell_each(struct lg_case *c, struct lg_finding *f, const struct lg_straggler *g, const char *how)
{
	for (uint32_t i = 0; i < c->n_ranks; i++)
		if (g->of_rank[i].lost) {
			lg_culprit_rank_add(c, f, c->ranks[i].rank);
			lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_EACH, c->ranks[i].rank,
				    lg_ms(g->of_rank[i].lost), g->of_rank[i].n_events,
				    g->of_rank[i].n_events == 1 ? "" : "s", how,
				    g->of_rank[i].n_last, g->n_matched);
		}
}

static const char *late_title(struct lg_case *c, const struct lg_finding *f,
			      const struct lg_straggler *g)
{
	const struct lg_rank *r = &c->ranks[g->rank];
	struct lg_finding late = { 0 };
	const char *did = g->slept ? slept_text(c, r, g) : "was running its own work";
	char pid[LG_PID_TEXT];

	if (g->n_late < 2)
		return lg_text(c, LG_SAYS_COMMS_STRAGGLER_TITLE, r->rank,
			       lg_pid_text(f->culprit.pid, pid), g->steady ? " in most steps" : "",
			       did);
	for (size_t i = 0; i < c->n_ranks; i++)
		if (g->of_rank[i].lost)
			add_victim(c, &late, &c->ranks[i]);
	return lg_text(c, LG_SAYS_COMMS_STRAGGLER_TITLE_IN_TURN, lg_ranks_text(c, &late, 0), did);
}

static void straggler(struct lg_case *c, const struct lg_tally *y)
{
	const struct lg_straggler *g = &y->straggler;
	double share = (double)g->lost / (double)y->wall;
	/* Collectives of the warm-up are counted, too, in n_last. */
	size_t steps = g->n_last < c->v->n_judged ? g->n_last : c->v->n_judged;
	struct lg_finding *f;
	uint8_t *others;

	/* Without matched collectives nobody has been seen to arrive. */
	if (g->rank == UINT32_MAX || share < LG_N_COMMS_STRAGGLER_FLOOR || !g->n_matched)
		return;
	f = lg_finding_add(c, LG_R_COMMS_STRAGGLER);
	others = lg_arena_alloc(&c->v->arena, c->n_ranks, 1);
	if (!f || !others)
		return;
	for (size_t i = 0; i < c->n_ranks; i++)
		others[i] = g->n_late > 1 || i != g->rank;
	lg_culprit_identify(c, f, c->ranks[g->rank].thr, 0);
	f->culprit.relation = LG_RELATION_RANK;
	add_victims(c, f, others);
	if (!g->slept) /* what it computes besides has made nobody wait */
		lg_culprit_of_samples(c, f, g->pieces, g->n_pieces, &(size_t){ 0 });
	f->lost_ms = lg_ms(g->lost);
	f->lost_share = share;
	f->excess_share = g->steady || y->excess <= 0 ? (double)NAN : fmin(1, (double)g->slow_lost /
								      (double)y->excess);
	lg_grade(f, g->steady ? steps : g->n_events, y->wall);
	f->confidence = (g->steady ? 0.9 : 0.85) * (1 - 0.5 * lg_loss_share(c));
	f->stage = lg_stage_name(LG_STAGE_GRAD_SYNC);
	f->detail = g->n_late > 1 ? "rotating" : NULL;
	f->title = late_title(c, f, g);
	if (g->n_late > 1) {
		tell_each(c, f, g, g->slept ? "stood still" : "ran");
		return;
	}
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_LAST_OF, g->n_last, g->n_matched,
		    lg_ms(g->median_late));
	if (!g->steady)
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_SLOW_STEPS, g->n_events,
			    g->slept ? "stood still" : "ran");
}

int lg_find_causes(struct lg_case *c, const struct lg_tally *y)
{
	for (size_t i = 0; i < y->n_causes && !c->failed; i++)
		finding_of(c, y, &y->causes[i]);
	straggler(c, y);
	return c->failed;
}
