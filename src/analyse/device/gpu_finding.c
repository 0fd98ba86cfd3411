/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_finding.c - what the rules of devices share: time lost by cause, findings of it, how much of it is
 * beyond chance, and where in the program it lies.
 */
#include <math.h>

#include "analyse/device/device_rules.h"
#include "base/map.h"
#include "base/side_thread.h"
#include "base/words.h"

double lg_gpu_later_launches(const struct lg_gpu *g, uint32_t mask)
{
	bool asked = (g->critical || (g->late && g->late->hosts)) && mask >> LG_GPU_BY_LAUNCH & 1;

	return !asked || g->late->more[LG_GPU_BY_LAUNCH] <= 0 ? 0
	       : g->late->more[LG_GPU_BY_LAUNCH] / (g->critical ? 1 : (double)g->n) *
		 (double)LG_MAX(g->late->n_late, 1);
}

struct lg_gpu_loss lg_gpu_lost(const struct lg_gpu *g, uint32_t mask)
{
	struct lg_gpu_loss l = { .mask = mask };
	double sum = 0, wall = 0, most = -1;
	size_t n = 0;

	LG_EACH(r, g->run, g->n) {
		double lost = 0;

		if (!lg_gpu_judged(r) || r->to <= r->from || (g->critical && r != g->critical))
			continue;
		for (uint32_t k = 0; k < LG_GPU_BY_MAX; k++)
			if (mask >> k & 1)
				lost += (double)r->by[k];
		lost -= lg_gpu_later_launches(g, mask);
		n++;
		sum += lost;
		wall += (double)lg_gpu_wall(r);
		if (lg_gpu_part(r, lost) > most) {
			most = lg_gpu_part(r, lost);
			l.worst = r;
		}
	}
	l.share = wall > 0 ? sum / wall : 0;
	l.ms = n ? sum / (double)n / 1e6 : 0;
	return l;
}

/* In which part of the step a rule's loss lies. */
static const uint8_t stage_of[LG_R_MAX] = {
#define STAGE(rule, stage) [LG_R_##rule] = LG_STAGE_##stage,
#include "rules/rules.def"
};

/* Is r of those that the finding's worst is one of? */
static bool is_alike(const struct lg_gpu_run *r, const struct lg_gpu_run *worst)
{
	if (worst && worst->scope == LG_SHOWS_CPU)
		return r->scope == LG_SHOWS_CPU && r->main && r->n_steps;
	return lg_gpu_judged(r);
}

struct lg_finding *lg_gpu_finding(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				  double lost_ms, double share, double confidence,
				  const struct lg_gpu_run *worst)
{
	struct lg_finding *f = lg_finding_or_scrap(c, rule);
	size_t judged = 0;

	f->lost_ms = lost_ms;
	f->lost_share = share;
	lg_grade_steady(f);
	f->stage = lg_stage_name(stage_of[rule] ? stage_of[rule] : LG_STAGE_OTHER);
	f->culprit.relation = LG_RELATION_SELF;
	/* One step may be an unusual one; rows that are missing may hide another cause. */
	if (worst && worst->n_steps < 3)
		confidence *= 0.85;
	if (worst && worst->n_work)
		confidence *= 1 - 0.5 * (double)worst->n_unlaunched / (double)worst->n_work;
	f->confidence = confidence;
	f->victims = lg_arena_alloc(&c->v->arena, g->n + 1, sizeof *f->victims);
	LG_EACH_WHILE(f->victims, r, g->run, g->n) {
		if (!is_alike(r, worst))
			continue;
		judged++;
		f->victims[f->n_victims++] = (typeof(*f->victims)){
			.rank = r->rank, .pid = c->t->process.pid[r->prc],
			.tid = r->main ? c->t->thread.tid[r->main] : -1 };
	}
	if (worst) {
		f->culprit.pid = c->t->process.pid[worst->prc];
		f->culprit.rank = judged > 1 ? worst->rank : -1;
	}
	return f;
}

struct lg_finding *lg_gpu_unpriced(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				   double confidence, const struct lg_gpu_run *worst)
{
	return lg_gpu_finding(c, g, rule, (double)NAN, (double)NAN, confidence, worst);
}

struct lg_finding *lg_gpu_idles(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				const struct lg_gpu_loss *l, double floor, double confidence)
{
	struct lg_finding *f = !l->worst || l->share < floor ? NULL
			       : lg_gpu_finding(c, g, rule, l->ms, l->share, confidence, l->worst);

	if (f)
		lg_gpu_cap_rare(c, f, l->worst, l->mask);
	return f;
}

/* Which piece, and of which step, comes next. */
struct episodes {
	size_t piece, step;
};

/* Where there are no steps: is p no more of the episode that first began and that reaches to end? */
static bool is_apart(const struct lg_gpu_piece *first, int64_t end, const struct lg_gpu_piece *p)
{
	/* Whatever the host ran meanwhile, one pause is one. */
	if (p->span == LG_NO_ROW || (first->cause == LG_GPU_BY_LAUNCH && p->cause == LG_GPU_BY_LAUNCH))
		return p->ts != end;
	return p->span != first->span;
}

/*
 * The time of the next episode of what is in mask: all of one step, or, where there are no steps to tell
 * apart, of one call (or stretch). 0: there is no more. *ret_ts: where it begins.
 */
static int64_t next_episode(const struct lg_gpu_run *r, uint32_t mask, struct episodes *e, int64_t *ret_ts)
{
	bool steps = r->n_steps >= 2;
	const struct lg_gpu_piece *first = NULL;
	int64_t sum = 0, end = 0;

	for (; e->piece < r->n_pieces; e->piece++) {
		const struct lg_gpu_piece *p = &r->piece[e->piece];

		if (!(mask >> p->cause & 1))
			continue;
		if (!first) {
			first = p;
			*ret_ts = p->ts;
			while (steps && e->step + 1 < r->n_steps && r->step[e->step + 1] <= p->ts)
				e->step++;
		} else if (steps ? e->step + 1 < r->n_steps && p->ts >= r->step[e->step + 1]
				 : is_apart(first, end, p)) {
			break;
		}
		sum += p->dur;
		end = p->ts + p->dur;
	}
	return sum;
}

size_t lg_gpu_enough(const struct lg_gpu_run *r)
{
	return r->n_steps < 2 || r->n_steps > LG_N_ANY_REPEATS ? LG_N_ANY_REPEATS
	       : r->n_steps < 4 ? r->n_steps : r->n_steps - 1;
}

/* The longest episodes, the longest first. */
struct longest {
	int64_t v[LG_N_ANY_REPEATS];
};

static void add_episode(struct longest *l, int64_t one)
{
	for (size_t k = 0; k < LG_N_ANY_REPEATS; k++)
		if (one > l->v[k]) {
			int64_t less = l->v[k];

			l->v[k] = one;
			one = less;
		}
}

/* A loss is made of layers: what the k-th longest episode has above the next one came k times. Each counts as
 * far as that many prove it. Few episodes are most of it that have four fifths, and behind which none comes
 * that is half as long. */
static struct lg_gpu_proof proof_of(const struct lg_gpu_run *r, const struct longest *l, int64_t all)
{
	size_t enough = lg_gpu_enough(r);
	struct lg_gpu_proof p = { .seen = 0 };
	double proven = (double)all;
	int64_t top = 0;

	for (size_t k = 1; k < enough; k++) {
		double layer = (double)(l->v[k - 1] - l->v[k]) * (double)k;

		proven -= layer * (1 - lg_proven(k));
		top += l->v[k - 1];
		if (!p.seen && 5 * top >= 4 * all && 2 * l->v[k] < l->v[k - 1])
			p.seen = k;
	}
	p.part = all > 0 ? proven / (double)all : 0;
	return p;
}

struct lg_gpu_proof lg_gpu_proof_of(const struct lg_gpu_run *r, const int64_t *by_step, size_t n)
{
	struct longest l = { { 0 } };
	int64_t all = 0;

	for (size_t i = 0; i < n; i++) {
		add_episode(&l, by_step[i]);
		all += by_step[i];
	}
	return proof_of(r, &l, all);
}

/* Room for a moment of each step, so that runs can be compared by them. NULL: no steps to tell apart. */
static struct lg_time_lost *room_for_moments(struct lg_case *c, struct lg_finding *f,
					      const struct lg_gpu_run *r)
{
	f->moments = r->n_steps >= 2 ? lg_arena_alloc(&c->v->arena, r->n_steps, sizeof *f->moments) : NULL;
	f->n_moments = 0;
	if (r->n_steps >= 2 && !f->moments)
		c->failed = LG_E_NOMEM;
	return f->moments;
}

void lg_gpu_cap_rare(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask)
{
	struct lg_time_lost *kept = room_for_moments(c, f, r);
	struct longest l = { { 0 } };
	struct lg_gpu_proof proof;
	int64_t one, ts, all = 0;

	for (struct episodes e = { 0 }; (one = next_episode(r, mask, &e, &ts)); all += one) {
		add_episode(&l, one);
		if (kept && f->n_moments < r->n_steps)
			kept[f->n_moments++] = (struct lg_time_lost){ ts, one };
	}
	proof = proof_of(r, &l, all);
	lg_grade_part(f, proof.part, proof.seen);
}

void lg_gpu_keep_steps(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
		       const int64_t *by_step)
{
	struct lg_time_lost *kept = room_for_moments(c, f, r);

	for (size_t i = 0; kept && i < r->n_steps; i++)
		if (by_step[i] > 0)
			kept[f->n_moments++] = (struct lg_time_lost){ r->step[i], by_step[i] };
}

void lg_gpu_cap_steps(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
		      const int64_t *by_step)
{
	struct lg_gpu_proof proof = lg_gpu_proof_of(r, by_step, r->n_steps);

	lg_gpu_keep_steps(c, f, r, by_step);
	lg_grade_part(f, proof.part, proof.seen);
}

struct lg_finding *lg_gpu_costs(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				const struct lg_gpu_run *r, const struct lg_gpu_sums *s, double part,
				double confidence, double floor)
{
	double lost = (double)s->savable * part, share = lg_gpu_part(r, lost);
	struct lg_finding *f =
		share < floor ? NULL : lg_gpu_finding(c, g, rule, lost / 1e6, share, confidence, r);

	if (!f)
		return NULL;
	if (s->by_step)
		lg_gpu_cap_steps(c, f, r, s->by_step);
	else if (s->n < LG_N_ANY_REPEATS)
		lg_grade_part(f, lg_proven(s->n), s->n);
	if (s->longest)
		lg_evidence_add(c, f, s->at, s->longest, "longest: %s",
				s->row != LG_NO_ROW ? lg_span_name(c->t, s->row) : "");
	lg_evidence(c, f, LG_SAYS_ANY_KERNELS, s->n, lg_ms(s->ns), lg_ms(s->savable));
	return f;
}

/* A place in the program, with the idle time charged to it. */
struct place {
	lg_str op, site, call; /* names: the key */
	uint32_t op_row, site_row;
	int64_t ns, longest, at;
	size_t n;
};

LG_ORDER_BY(cmp_place, struct place, LG_CMP(y->ns, x->ns) ?: LG_CMP(x->at, y->at))

/* The call or device row that is charged says more than the operator around it; an operator, a Python frame
 * or a step does not. */
static lg_str call_name(const struct lg_trace *t, uint32_t row)
{
	uint8_t kind = row == LG_NO_ROW ? (uint8_t)LG_SPAN_OP : t->span.kind[row];

	return kind == LG_SPAN_OP || kind == LG_SPAN_PYTHON || kind == LG_SPAN_NOTE || kind == LG_SPAN_STEP
		       ? 0 : t->span.name[row];
}

struct places {
	struct place *v;
	size_t n, cap;
	struct lg_map by_key; /* hash of the names -> place + 1 */
	uint32_t recent[256]; /* by a few bits of the names: place + 1; most places come again soon */
};

static bool same_place(const struct place *a, const struct place *b)
{
	return a->op == b->op && a->site == b->site && a->call == b->call;
}

/* The place with x's names; where there is none yet, one with nothing charged. NULL without memory. */
static struct place *place_like(struct places *l, const struct place *x)
{
	uint32_t *recent = &l->recent[(x->op + 7 * x->site + 31 * x->call) % 256], at = *recent;
	uint64_t h;

	if (at && same_place(&l->v[at - 1], x))
		return &l->v[at - 1];
	h = lg_mix64(lg_mix64((uint64_t)x->op << 32 | x->site) + x->call);
	/* Different names with one hash: the next one, as in the builder. */
	for (; (at = lg_map_get(&l->by_key, h)); h++)
		if (same_place(&l->v[at - 1], x))
			return &l->v[(*recent = at) - 1];
	if (lg_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v) ||
	    lg_map_set(&l->by_key, h, (uint32_t)l->n + 1))
		return NULL;
	l->v[l->n] = *x;
	l->v[l->n].ns = l->v[l->n].longest = 0;
	l->v[l->n].n = 0;
	return &l->v[l->n++];
}

/* The place with x's names is charged with x, which is later than what it was charged with before: of equal
 * lengths the first one's moment stays. */
static int charge(struct places *l, const struct place *x)
{
	struct place *v = place_like(l, x);

	if (!v)
		return LG_E_NOMEM;
	v->ns += x->ns;
	v->n += x->n;
	lg_keep_longest(&v->longest, &v->at, x->longest, x->at);
	return 0;
}

/* Pieces [from, to) of those with a cause in mask, by place; in order of first use. */
struct lane {
	const struct lg_trace *t;
	const struct lg_gpu_run *r;
	uint32_t mask;
	size_t from, to;
	struct places places;
	int rc;
};

static void sum_places(void *arg)
{
	struct lane *l = arg;
	const struct lg_trace *t = l->t;

	for (size_t i = l->from; i < l->to && !l->rc; i++) {
		const struct lg_gpu_piece *p = &l->r->piece[i];
		struct place x = { .op_row = p->op, .site_row = p->site, .n = 1, .ns = p->dur,
				   .longest = p->dur, .at = p->ts };

		if (!(l->mask >> p->cause & 1))
			continue;
		x.op = p->op != LG_NO_ROW ? t->span.name[p->op] : 0;
		/* A save or a print by library code alone: that call is where it is. */
		if (p->site == LG_NO_ROW && (p->cause == LG_GPU_BY_SIDE || p->cause == LG_GPU_BY_LOG))
			x.site_row = p->span;
		x.site = x.site_row != LG_NO_ROW ? t->span.name[x.site_row] : 0;
		x.call = call_name(t, p->span);
		l->rc = charge(&l->places, &x);
	}
}

static const char *named(struct lg_case *c, const struct place *p)
{
	return lg_gpu_place(&c->scene, p->op_row, p->site_row) ?: p->call ? lg_string(c->t, p->call) : NULL;
}

/* The first place, and how many more there are where it has not all of the time. */
static const char *places_in_words(struct lg_case *c, const struct place *v, size_t n, const char *first)
{
	enum { LOOKED_AT = 64, ONE_IN = 20 };
	const char *other[ONE_IN];
	int64_t all = 0, mine = 0;
	size_t n_other = 0, k;

	for (size_t j = 0; j < n; j++)
		all += v[j].ns;
	for (size_t j = 0; first && j < n && j < LOOKED_AT; j++) {
		const char *name = named(c, &v[j]);

		if (!name)
			continue;
		if (!strcmp(name, first)) {
			mine += v[j].ns;
			continue;
		}
		for (k = 0; k < n_other && strcmp(other[k], name) != 0; k++)
			;
		if (k == n_other && n_other < ONE_IN && v[j].ns * ONE_IN >= all)
			other[n_other++] = name;
	}
	return !n_other ? first : lg_text(c, "%s (%.0f %% of it) and %zu other place%s", first,
					  100 * (double)mine / (double)all, n_other, lg_s(n_other));
}

const char *lg_gpu_moments(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask,
			   size_t n, const char *what)
{
	enum { WORTH_A_THREAD = 1 << 16 };
	const struct lg_trace *t = c->t;
	struct lane first = { .t = t, .r = r, .mask = mask, .to = r->n_pieces }, second = first;
	struct places *l = &first.places;
	struct lg_side_thread beside;
	const char *places;
	struct place *v;

	f->device_causes |= mask;
	first.to = second.from = r->n_pieces / 2;
	lg_side_thread_start(&beside, r->n_pieces >= WORTH_A_THREAD, sum_places, &second);
	sum_places(&first);
	lg_side_thread_wait(&beside);
	for (size_t i = 0; i < second.places.n && !first.rc; i++)
		first.rc = charge(l, &second.places.v[i]);
	if (first.rc || second.rc)
		c->failed = LG_E_NOMEM;
	v = l->v;
	LG_SORT(v, l->n, cmp_place);
	for (size_t j = 0; j < l->n && j < n && !c->failed; j++) {
		const char *where = lg_gpu_place(&c->scene, v[j].op_row, v[j].site_row);
		const char *call = v[j].call ? lg_string(t, v[j].call) : NULL;

		if (where && call && strstr(where, call))
			call = NULL;
		if (!where && !call)
			where = "between operators, in code that the trace does not show";
		else if (!f->culprit.function && 4 * v[j].ns >= v[0].ns)
			f->culprit.function = where ? where : call;
		lg_evidence_add(c, f, v[j].at, v[j].longest, "%s %.1f ms %s%s%s%s%s", what, (double)v[j].ns
				/ 1e6, v[j].n == 1 ? "once" : lg_text(c, "in %zu times",
				v[j].n), where ? ": " : "", where ? where : "", call ? where ? ", in " :
				": in " : "", call ? call : "");
	}
	places = places_in_words(c, v, c->failed ? 0 : l->n, f->culprit.function);
	lg_free(l->v);
	lg_map_done(&l->by_key);
	lg_free(second.places.v);
	lg_map_done(&second.places.by_key);
	return places;
}
