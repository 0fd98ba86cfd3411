/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_explain.c - the device's side of the verdict: what kind of trace, its steps, the rules in
 * order, and who bounds the run. Also what the rules share.
 */
#include <math.h>

#include "analyse/chains/chains.h"
#include "analyse/device/device_rules.h"
#include "analyse/steps/judge.h"
#include "analyse/steps/steps.h"
#include "base/map.h"
#include "base/side_thread.h"
#include "base/words.h"

/* Of what lost() counts of each run: launches by which late ranks are later than the others. In turn: one of
 * n at a time. */
static double later_launches(const struct lg_gpu *g, uint32_t mask)
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
		lost -= later_launches(g, mask);
		n++;
		sum += lost;
		wall += (double)(r->to - r->from);
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

/* The title of what came in few episodes says so. */
static void say_few(struct lg_case *c)
{
	LG_EACH(f, c->v->findings, c->v->n_findings)
		if (f->seen && f->title)
			lg_title(c, f, f->seen == 1 ? "%s (seen once)" : f->seen == 2 ? "%s (seen twice)" :
				 "%s (seen %zu times)", f->title, f->seen);
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

void lg_gpu_moments(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask,
		    size_t n, const char *what)
{
	enum { WORTH_A_THREAD = 1 << 16 };
	const struct lg_trace *t = c->t;
	struct lane first = { .t = t, .r = r, .mask = mask, .to = r->n_pieces }, second = first;
	struct places *l = &first.places;
	struct lg_side_thread beside;
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
	lg_free(l->v);
	lg_map_done(&l->by_key);
	lg_free(second.places.v);
	lg_map_done(&second.places.by_key);
}

/* ---- the run as a whole ---- */

/* Are its steps counted, not only listed? */
static bool counts_steps(const struct lg_gpu_run *r)
{
	return lg_gpu_judged(r) || r->scope == LG_SHOWS_CPU || r->scope == LG_SHOWS_RANGES;
}

static bool counts_requests(const struct lg_gpu_run *r)
{
	return r->scope != LG_SHOWS_EMPTY && r->scope != LG_SHOWS_CAPTURE;
}

/* A step is slow that is slow on any rank: a wait for one of them makes all of them late. */
static int count_slow(struct lg_verdict *v, const struct lg_gpu *g)
{
	LG_AUTOFREE bool *slow = lg_calloc(v->n_judged, sizeof *slow);
	size_t at = 0;

	if (!slow && v->n_judged)
		return LG_E_NOMEM;
	for (size_t i = 0; i < g->n; at += g->run[i++].n_steps)
		for (size_t s = 0; counts_steps(&g->run[i]) && s < g->run[i].n_steps; s++)
			slow[s] |= v->steps[at + s].slow;
	for (size_t i = 0; i < g->n; at += g->run[i++].n_requests)
		for (size_t s = 0; counts_requests(&g->run[i]) && s < g->run[i].n_requests; s++)
			slow[s] |= v->steps[at + s].slow;
	for (size_t s = 0; s < v->n_judged; s++)
		v->n_slow += slow[s];
	return 0;
}

/* Requests of a pool are listed behind the steps of all runs: they overlap, nothing divides time by them. */
static int add_requests(struct lg_verdict *v, const struct lg_gpu_run *r, size_t k, double *noise)
{
	for (size_t i = 0; i < r->n_requests; i++)
		v->steps[k + i] = (struct lg_step){ .ts = r->request[i].ts,
						    .dur = r->request[i].end - r->request[i].ts,
						    .number = (int64_t)i, .prc = r->prc,
						    .thr = r->request[i].thr, .rank = r->rank };
	if (r->n_requests > v->n_judged && counts_requests(r))
		v->n_judged = r->n_requests;
	return lg_judge_steps(v->steps + k, r->n_requests, LG_STEPS_OF_WINDOW, 0, noise);
}

/* Is it the device that takes longer for a step from `when` on? Then it is its clock, or more work. */
static void say_device_slower(struct lg_case *c, const struct lg_gpu_run *r, int64_t when)
{
	size_t at = lg_gpu_step_of(r, when), n[2] = { at, r->n_steps - at };
	double ns[2] = { 0 }, computes, longer;

	if (!lg_gpu_judged(r) || !n[0] || !n[1] || at >= r->n_steps)
		return;
	LG_EACH(p, r->piece, r->n_pieces)
		if (p->cause == LG_GPU_BY_COMPUTE)
			ns[p->ts >= when] += (double)p->dur;
	computes = ns[1] / (double)n[1] - ns[0] / (double)n[0];
	longer = (double)(r->step[r->n_steps] - r->step[at]) / (double)n[1] -
		 (double)(r->step[at] - r->step[0]) / (double)n[0];
	if (longer > 0 && computes > 0.5 * longer)
		lg_say(c, LG_SAYS_TRACE_DEVICE_SLOWER, longer / 1e6, computes / 1e6);
}

/* Of the run with most steps: the others go the same way. */
static int shape_of(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	struct lg_trend trend;

	lg_judge_shape(v, false, NULL, v->n_slow > 0);
	for (size_t i = 0, at = 0; i < g->n; at += g->run[i++].n_steps) {
		if (g->run[i].n_steps != v->n_judged)
			continue;
		if (lg_trend_of(v->steps + at, v->n_judged, &trend))
			return LG_E_NOMEM;
		lg_judge_shape(v, false, &trend, v->n_slow > 0);
		if (trend.shape)
			v->slope = trend.slope;
		if (trend.shape == LG_SHAPE_SHIFT) {
			v->shift_s = trend.shift_s;
			say_device_slower(c, &g->run[i], g->run[i].step[0] + (int64_t)(trend.shift_s * 1e9));
		}
		break;
	}
	return 0;
}

/* As the program counts them, where its marks say so: ProfilerStep#550 is step 550 of the run. */
static void keep_numbers(const struct lg_trace *t, const struct lg_gpu_run *r, struct lg_step *step)
{
	const struct lg_gpu_host *h = r->steps_marked && r->main ? lg_gpu_main_host(r) : NULL;
	const int64_t *begin = r->asked ? r->asked : r->step;
	size_t m = 0;

	for (size_t s = 0; h && s < r->n_steps; s++) {
		while (m < h->n_marks && t->span.ts[h->mark[m]] < begin[s])
			m++;
		for (size_t k = m; k < h->n_marks && t->span.ts[h->mark[k]] == begin[s]; k++)
			if (t->span.kind[h->mark[k]] == LG_SPAN_STEP && t->span.seq[h->mark[k]] >= 0)
				step[s].number = t->span.seq[h->mark[k]];
	}
}

/* When r's steps were done, and from when on all before them was. */
static void step_ends(const struct lg_trace *t, const struct lg_gpu_run *r, struct lg_step *step)
{
	int64_t until = r->step[0];

	LG_EACH_WHILE(!r->asked, w, r->work, r->n_work) {
		int64_t at = w->call == LG_NO_ROW ? INT64_MAX : t->span.ts[w->call];
		size_t s = lg_gpu_step_of(r, at);

		if (at < r->step[0] && w->end > until)
			until = w->end;
		else if (s < r->n_steps && w->end > step[s].done)
			step[s].done = w->end;
	}
	for (size_t s = 0; s < r->n_steps; s++) {
		step[s].ready = LG_MAX(until, step[s].ts);
		step[s].done = LG_MAX(step[s].done, step[s].ts + step[s].dur);
		step[s].done = LG_MAX(step[s].done, step[s].ready);
		until = step[s].done;
	}
}

/* Steps of a pure profiler trace, where the host's marks gave none. */
static int steps_of(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	size_t n = 0, k = 0;
	LG_AUTOFREE double *d = NULL;
	double noise = 0;
	int rc = 0;

	v->scope = g->n == 1 ? LG_SCOPE_SINGLE : LG_SCOPE_NONE;
	for (size_t i = 0; i < g->n; i++)
		n += g->run[i].n_steps + g->run[i].n_requests;
	if (!n) {
		v->shape = v->n_judged < 3 ? LG_SHAPE_NONE : v->n_slow ? LG_SHAPE_BURSTY : LG_SHAPE_STEADY;
		return 0;
	}
	v->steps = lg_arena_alloc(&v->arena, n, sizeof *v->steps);
	v->ranks = lg_arena_alloc(&v->arena, g->n, sizeof *v->ranks);
	d = lg_calloc(n, sizeof *d);
	if (!v->steps || !v->ranks || !d)
		return LG_E_NOMEM;
	v->n_steps = n;
	v->n_ranks = v->n_judged = v->n_slow = 0;
	LG_EACH(r, g->run, g->n) {
		size_t first = k;

		for (size_t s = 0; s < r->n_steps; s++, k++)
			v->steps[k] = (struct lg_step){ .ts = r->step[s],
							.dur = r->step[s + 1] - r->step[s],
							.number = (int64_t)s, .prc = r->prc,
							.thr = r->main, .rank = r->rank };
		if (!r->n_steps)
			continue;
		keep_numbers(c->t, r, v->steps + first);
		if (lg_gpu_judged(r))
			step_ends(c->t, r, v->steps + first);
		rc = lg_judge_steps(v->steps + first, r->n_steps, LG_STEPS_OF_WINDOW, 0, &noise);
		if (rc)
			break;
		if (r->n_steps > v->n_judged && counts_steps(r))
			v->n_judged = r->n_steps;
		if (r->rank >= 0)
			v->ranks[v->n_ranks++] = r->rank;
	}
	for (size_t i = 0; !rc && i < g->n; k += g->run[i++].n_requests)
		rc = add_requests(v, &g->run[i], k, &noise);
	if (!rc)
		rc = count_slow(v, g);
	for (size_t s = 0; s < n; s++)
		d[s] = lg_ms(v->steps[s].dur);
	lg_sum_up_steps(v, d, n, noise);
	if (rc)
		return rc;
	if (v->n_judged >= 3 && shape_of(c, g))
		return LG_E_NOMEM;
	return lg_account_stages(c);
}

static const char *who_is(struct lg_case *c, const struct lg_gpu_run *r)
{
	return r->rank >= 0 ? lg_text(c, "rank %d: ", r->rank) : "";
}

static size_t launches_of(const struct lg_gpu_run *r)
{
	size_t n = 0;

	for (size_t h = 0; !r->n_launched && h < r->n_host; h++)
		n += r->host[h].n_launches;
	return r->n_launched ? r->n_launched : n;
}

static void say_scope(struct lg_case *c, const struct lg_gpu_run *r)
{
	const char *who = who_is(c, r), *is = lg_scope_name(r->scope);

	if (r->n_requests)
		lg_say(c, LG_SAYS_TRACE_REQUESTS, who, r->n_requests, r->requests_from,
		       r->n_request_threads, r->requests_at_once);
	switch (r->scope) {
	case LG_SHOWS_CAPTURE:
		lg_say(c, LG_SAYS_TRACE_CAPTURE, who, r->n_graph_built, r->n_graph_launches);
		break;
	case LG_SHOWS_EMPTY:
		lg_say(c, LG_SAYS_TRACE_EMPTY, who, r->n_work, r->n_ops);
		break;
	case LG_SHOWS_COLD:
		lg_say(c, LG_SAYS_TRACE_COLD, who);
		break;
	case LG_SHOWS_LOST:
		lg_say(c, LG_SAYS_TRACE_LOST, who, r->n_work ? lg_text(c, "%zu kernels are missing "
		       "from the trace", r->n_unrun) : "no row of the device is in the trace",
		       launches_of(r), c->v->cut ? LG_SAYS_TRACE_CUT : LG_SAYS_TRACE_PROFILE_AGAIN);
		break;
	case LG_SHOWS_CPU:
		lg_say(c, LG_SAYS_TRACE_CPU, who);
		break;
	case LG_SHOWS_RANGES:
		if (r->n_steps)
			lg_say(c, LG_SAYS_TRACE_RANGES, who, r->steps_from);
		else if (!r->n_requests)
			lg_say(c, LG_SAYS_TRACE_NO_STEPS, who);
		break;
	case LG_SHOWS_TRAINING:
	case LG_SHOWS_INFERENCE:
		if (!r->n_steps && r->n_requests)
			lg_say(c, LG_SAYS_TRACE_ONE_PIECE, who, is, lg_ms(r->to - r->from));
		else if (!r->n_steps)
			lg_say(c, LG_SAYS_TRACE_UNMARKED, who, is, lg_ms(r->to - r->from));
		else if (r->scope == LG_SHOWS_INFERENCE || !r->steps_marked)
			lg_say(c, "%s%s, steps told from %s", who, is, r->steps_from);
		break;
	default:
		break;
	}
}

/* Launches whose kernels the profiler missed. */
static void say_unrun(struct lg_case *c, const struct lg_gpu_run *r)
{
	const char *who = who_is(c, r);

	if (r->cut_head || r->cut_tail)
		lg_say(c, LG_SAYS_TRACE_UNRUN_STEPS, who, r->n_unrun, r->n_launched, r->cut_head,
		       lg_s(r->cut_head), r->cut_tail);
	if (r->unrun_share > 0.05)
		lg_say(c, LG_SAYS_TRACE_UNRUN, who, r->unrun_share * 100, r->cut_head || r->cut_tail
		       ? "that are left " : "");
}

/*
 * A trace that is not whole clears nobody: what its device did where rows are missing is not judged. A launch
 * or two may miss their kernel where a whole window ends; those of a graph's capture never run.
 */
static void say_not_whole(struct lg_case *c, const struct lg_gpu *g)
{
	const double whole = 0.01; /* less can hide nothing that would be at medium */
	double share = 0;

	LG_EACH(r, g->run, g->n) {
		double lost = r->n_launched ? (double)r->n_unrun / (double)r->n_launched : 0;

		if (lg_gpu_judged(r) && !r->n_graph_built && lost > share)
			share = lost;
	}
	if (share > whole)
		lg_not_judged(c, lg_text(c, LG_SAYS_TRACE_NOT_WHOLE, share * 100), NULL);
}

static void say_doubts(struct lg_case *c, const struct lg_gpu *g)
{
	double queued = lg_gpu_share(g, LG_GPU_BIT(LG_GPU_BY_QUEUED));
	double unknown = lg_gpu_share(g, LG_GPU_BIT(LG_GPU_BY_UNKNOWN));

	LG_EACH(r, g->run, g->n)
		if (lg_gpu_judged(r))
			say_unrun(c, r);
	say_not_whole(c, g);
	if (queued > 0.15)
		lg_say(c, LG_SAYS_TRACE_QUEUED, queued * 100);
	if (unknown > 0.15)
		lg_say(c, LG_SAYS_TRACE_NO_LAUNCH, unknown * 100);
}

/* Nothing is judged of a device: what else tells of the run? */
static int bound_without(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;

	if (!lg_gpu_only(c->t))
		return 0;
	v->bound = LG_BOUND_UNKNOWN;
	v->bound_confidence = 0;
	for (size_t i = 0; i < g->n; i++)
		if (g->run[i].scope == LG_SHOWS_LOST)
			v->unjudged = v->cut ? "The file is cut before the work of its device"
					     : "The device's work is missing from the trace";
	v->bound_why = g->n ? lg_arena_printf(&v->arena, "not judged: %s", lg_scope_name(g->run[0].scope))
			    : "no device work in this trace";
	return lg_failed(c, lg_bound_on_cpu(c, g)) ? c->failed : lg_range_times(c, g);
}

/* Who bounds the run, from the shares of the judged windows. */
static int bound(struct lg_case *c, const struct lg_gpu *g)
{
	double gpu = lg_gpu_share(g, LG_GPU_BIT(LG_GPU_BY_COMPUTE)), data = lg_gpu_share(g, LG_GPU_DATA);
	double comms = lg_gpu_share(g, LG_GPU_BIT(LG_GPU_BY_COMM)), host = lg_gpu_share(g, LG_GPU_HOST);
	double other = lg_gpu_share(g, LG_GPU_BIT(LG_GPU_BY_OTHER)), unknown, most, all;
	struct lg_verdict *v = c->v;
	size_t judged = 0, inferring = 0;
	const char *kind = NULL;

	LG_EACH(r, g->run, g->n)
		if (lg_gpu_judged(r)) {
			judged++;
			inferring += r->scope == LG_SHOWS_INFERENCE;
			kind = lg_scope_name(r->scope);
		}
	v->inference = judged && inferring == judged;
	if (!judged)
		return bound_without(c, g);
	if (g->late) {
		const struct lg_gpu_run *r = &g->run[g->late->run];

		host += later_launches(g, LG_GPU_HOST) / (double)(r->to - r->from);
	}
	unknown = 1 - gpu - data - comms - host - other;
	all = data + comms + host;
	most = fmax(data, fmax(comms, host));
	v->bound_why = lg_arena_printf(&v->arena, LG_SAYS_TRACE_BOUND, kind, gpu * 100, comms * 100,
				       data * 100, host * 100, other < 0.005 ? "" :
				       lg_arena_printf(&v->arena, LG_SAYS_TRACE_BOUND_OTHER, other *
				       100), unknown > 0 ? unknown * 100 : 0);
	v->bound_confidence = unknown > 0.5 ? 0.2 : 0.95 - unknown;
	if (unknown > 0.5)
		v->bound = LG_BOUND_UNKNOWN;
	else if (gpu + other >= 0.75 || gpu + other > 3 * all) /* one of them computes */
		v->bound = LG_BOUND_GPU;
	else if (most < 0.6 * all)
		v->bound = LG_BOUND_MIXED;
	else
		v->bound = most == host ? LG_BOUND_HOST : most == comms ? LG_BOUND_COMMS : LG_BOUND_DATA;
	return 0;
}

/* What the rules will ask whatever comes of the account. */
struct beside {
	struct lg_case *c;
	struct lg_gpu_run *r;
	bool batch;
	struct lg_ivs busy;
	int rc;
};

static void look_beside(void *arg)
{
	struct beside *b = arg;

	b->batch = lg_batch_may_infer(b->r);
	if (b->batch)
		b->rc = lg_batch_busy(b->c, b->r, &b->busy);
	if (b->r->n_ops)
		lg_amp_walk(b->c, b->r);
}

static int account(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r)
{
	enum { WORTH_A_THREAD = 1 << 15 };
	struct beside b = { .c = c, .r = r };
	struct lg_ivs *busy = lg_arena_alloc(&c->v->arena, 1, sizeof *busy);
	struct lg_side_thread beside;
	int rc = busy ? 0 : LG_E_NOMEM;

	if (!rc && r->n_ops)
		rc = lg_amp_begin(c, r);
	if (rc)
		return rc;
	lg_side_thread_start(&beside, c->t->span.n >= WORTH_A_THREAD, look_beside, &b);
	rc = lg_gpu_account(&c->scene, g, r);
	lg_side_thread_wait(&beside);
	if (r->n_ops && lg_amp_end(c, r) && !rc)
		rc = LG_E_NOMEM;
	if (b.busy.v && !lg_arena_adopt(&c->v->arena, b.busy.v))
		return LG_E_NOMEM;
	*busy = b.busy;
	r->notes->busy = b.batch && !b.rc ? busy : NULL;
	return rc ? rc : b.rc;
}

/* What nobody is told anything about need not be accounted for. */
static int account_judged(struct lg_case *c, struct lg_gpu *g)
{
	int rc = 0;

	LG_EACH_WHILE(!rc, r, g->run, g->n) {
		r->notes = lg_arena_alloc(&c->v->arena, 1, sizeof *r->notes);
		rc = !r->notes ? LG_E_NOMEM : lg_gpu_judged(r) ? account(c, g, r) : 0;
	}
	return rc;
}

int lg_prepare_devices(struct lg_case *c, struct lg_gpu *g)
{
	/* Each cause is told apart from what is left of the others. */
	static int (*const then[])(struct lg_case *, struct lg_gpu *) = {
		lg_gpu_refine, lg_gpu_refine_batch, lg_gpu_refine_amp, lg_gpu_refine_overlap, lg_gpu_late };
	bool only = lg_gpu_only(c->t);
	int rc = lg_gpu_new(&c->scene, g, NULL);

	if (!rc)
		rc = account_judged(c, g);
	if (!rc && only && g->n)
		rc = steps_of(c, g);
	LG_EACH_WHILE(!rc, r, g->run, g->n)
		if (only || r->n_work)
			say_scope(c, r);
	for (size_t i = 0; !rc && i < LG_COUNT(then); i++)
		rc = then[i](c, g);
	return rc;
}

int lg_conclude_devices(struct lg_case *c, struct lg_gpu *g)
{
	say_doubts(c, g);
	say_few(c);
	(void)lg_failed(c, bound(c, g));
	return c->failed;
}
