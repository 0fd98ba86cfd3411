/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_explain.c - the device's side of the verdict: what kind of trace, its steps, the rules in
 * order, and who bounds the run.
 */
#include <math.h>

#include "analyse/chains/chains.h"
#include "analyse/device/device_rules.h"
#include "analyse/steps/judge.h"
#include "analyse/steps/steps.h"
#include "base/side_thread.h"
#include "base/words.h"

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
	longer = (double)lg_gpu_seen(r, r->step[at], r->step[r->n_steps]) / (double)n[1] -
		 (double)lg_gpu_seen(r, r->step[0], r->step[at]) / (double)n[0];
	if (longer > 0 && computes > 0.5 * longer)
		lg_say(c, LG_SAYS_TRACE_DEVICE_SLOWER, longer / 1e6, computes / 1e6);
}

/* What slow steps took beyond the usual, as a share of all. */
static double excess_of(const struct lg_step *s, size_t n)
{
	double excess = 0, all = 1;

	for (size_t i = 0; i < n; i++) {
		all += (double)s[i].dur;
		excess += s[i].slow ? (double)(s[i].dur - s[i].median) : 0;
	}
	return excess / all;
}

/* Of the run with most steps: the others go the same way. */
static int shape_of(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	struct lg_rhythm rhythm = { .period_s = NAN, .p = 1 };
	struct lg_trend trend;

	lg_judge_shape(v, false, NULL, 0);
	for (size_t i = 0, at = 0; i < g->n; at += g->run[i++].n_steps) {
		const struct lg_step *step = v->steps + at;

		if (g->run[i].n_steps != v->n_judged)
			continue;
		if (lg_trend_of_steps(step, v->n_judged, &trend) ||
		    (v->n_slow && lg_rhythm_of_slow(step, v->n_judged, step->median, &rhythm)))
			return LG_E_NOMEM;
		lg_shape_with_rhythm(v, &rhythm, &trend, excess_of(step, v->n_judged));
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
static void step_ends(const struct lg_gpu_run *r, struct lg_step *step)
{
	int64_t until = r->step[0];

	LG_EACH_WHILE(!r->asked, w, r->work, r->n_work) {
		int64_t at = w->call == LG_NO_ROW ? INT64_MAX : w->called;
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
	double noise = INFINITY, of_requests = INFINITY;
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
							.dur = lg_gpu_step_ns(r, s),
							.number = (int64_t)s, .prc = r->prc,
							.thr = r->main, .rank = r->rank };
		if (!r->n_steps)
			continue;
		keep_numbers(c->t, r, v->steps + first);
		if (lg_gpu_judged(r))
			step_ends(r, v->steps + first);
		rc = lg_judge_steps(v->steps + first, r->n_steps, LG_STEPS_OF_WINDOW, 0, &noise);
		if (rc)
			break;
		if (r->n_steps > v->n_judged && counts_steps(r))
			v->n_judged = r->n_steps;
		if (r->rank >= 0)
			v->ranks[v->n_ranks++] = r->rank;
	}
	for (size_t i = 0; !rc && i < g->n; k += g->run[i++].n_requests)
		rc = add_requests(v, &g->run[i], k, &of_requests);
	if (!rc)
		rc = count_slow(v, g);
	for (size_t s = 0; s < n; s++)
		d[s] = lg_ms(v->steps[s].dur);
	lg_sum_up_steps(v, d, n, fmin(noise, of_requests));
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
			lg_say(c, LG_SAYS_TRACE_ONE_PIECE, who, is, lg_ms(lg_gpu_wall(r)));
		else if (!r->n_steps)
			lg_say(c, LG_SAYS_TRACE_UNMARKED, who, is, lg_ms(lg_gpu_wall(r)));
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
	if (share <= whole)
		return;
	c->v->lost_kernels = share;
	lg_not_judged(c, lg_text(c, LG_SAYS_TRACE_NOT_WHOLE, share * 100), NULL);
}

/* The title of what came in few episodes says so. */
static void say_few(struct lg_case *c)
{
	LG_EACH(f, c->v->findings, c->v->n_findings)
		if (f->seen && f->title)
			lg_title(c, f, f->seen == 1 ? "%s (seen once)" : f->seen == 2 ? "%s (seen twice)" :
				 "%s (seen %zu times)", f->title, f->seen);
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

		host += lg_gpu_later_launches(g, LG_GPU_HOST) / (double)lg_gpu_wall(r);
	}
	unknown = 1 - gpu - data - comms - host - other;
	all = data + comms + host;
	most = fmax(data, fmax(comms, host));
	v->bound_why = lg_arena_printf(&v->arena, LG_SAYS_TRACE_BOUND, kind, gpu * 100, comms * 100,
				       data * 100, host * 100, other < 0.005 ? "" :
				       lg_arena_printf(&v->arena, LG_SAYS_TRACE_BOUND_OTHER, other *
				       100), unknown > 0 ? unknown * 100 : 0);
	v->bound_confidence = unknown > LG_N_BOUND_UNKNOWN ? LG_N_BOUND_SURE_UNTOLD
							    : LG_N_BOUND_SURE - unknown;
	if (unknown > LG_N_BOUND_UNKNOWN)
		v->bound = LG_BOUND_UNKNOWN;
	else if (gpu + other >= LG_N_BOUND_COMPUTE || gpu + other > LG_N_BOUND_TIMES * all)
		v->bound = LG_BOUND_GPU;
	else if (most < LG_N_BOUND_MOST * all)
		v->bound = LG_BOUND_MIXED;
	else
		v->bound = most == host ? LG_BOUND_HOST : most == comms ? LG_BOUND_COMMS : LG_BOUND_DATA;
	return 0;
}

/* One run's account, and what the rules will ask whatever comes of it. */
struct looked {
	struct lg_case *c;
	struct lg_gpu *g;
	struct lg_gpu_run *r;
	bool batch;
	struct lg_ivs busy;
	int rc;
};

static void look_beside(void *arg)
{
	struct looked *b = arg;

	b->batch = lg_batch_may_infer(b->r);
	if (b->batch)
		b->rc = lg_batch_busy(b->c, b->r, &b->busy);
	if (b->r->n_ops)
		lg_amp_walk(b->c, b->r);
}

static void look_at_all(void *arg)
{
	struct looked *b = arg;

	look_beside(b);
	if (!b->rc)
		b->rc = lg_gpu_account(&b->c->scene, b->g, b->r);
}

/* What was looked at becomes the arena's, which threads do not share. */
static int keep(struct looked *b)
{
	struct lg_arena *arena = &b->c->v->arena;
	struct lg_ivs *busy = lg_arena_alloc(arena, 1, sizeof *busy);
	int rc = b->r->n_ops ? lg_amp_end(b->c, b->r) : 0;

	rc = lg_gpu_keep_account(&b->c->scene, b->r) ?: rc;
	if (b->busy.v && !lg_arena_adopt(arena, b->busy.v))
		return LG_E_NOMEM;
	if (!busy)
		return LG_E_NOMEM;
	*busy = b->busy;
	b->r->notes->busy = b->batch && !b->rc ? busy : NULL;
	return rc ? rc : b->rc;
}

/* n = 1: its account, and beside it what else; 2: one run beside the other. */
static int account(struct looked *b, size_t n)
{
	enum { WORTH_A_THREAD = 1 << 15 };
	bool worth = b->c->t->span.n >= WORTH_A_THREAD;
	struct lg_side_thread beside;
	int rc = 0;

	lg_side_thread_start(&beside, worth, n > 1 ? look_at_all : look_beside, b);
	if (n > 1)
		look_at_all(&b[1]);
	else
		rc = lg_gpu_account(&b->c->scene, b->g, b->r);
	lg_side_thread_wait(&beside);
	for (size_t i = 0; i < n; i++)
		rc = keep(&b[i]) ?: rc;
	return rc;
}

/* What nobody is told anything about need not be accounted for. */
static int account_judged(struct lg_case *c, struct lg_gpu *g)
{
	struct looked b[2];
	size_t n = 0;
	int rc = 0;

	LG_EACH_WHILE(!rc, r, g->run, g->n) {
		r->notes = lg_arena_alloc(&c->v->arena, 1, sizeof *r->notes);
		if (!r->notes || (lg_gpu_judged(r) && r->n_ops && lg_amp_begin(c, r)))
			rc = LG_E_NOMEM;
		if (rc || !lg_gpu_judged(r))
			continue;
		b[n++] = (struct looked){ .c = c, .g = g, .r = r };
		if (n == LG_COUNT(b)) {
			rc = account(b, n);
			n = 0;
		}
	}
	return rc || !n ? rc : account(b, n);
}

int lg_prepare_devices(struct lg_case *c, struct lg_gpu *g)
{
	/* Each cause is told apart from what is left of the others. */
	static int (*const then[])(struct lg_case *, struct lg_gpu *) = {
		lg_gpu_refine_checks, lg_gpu_refine, lg_gpu_refine_batch, lg_gpu_refine_amp,
		lg_gpu_refine_overlap, lg_gpu_late };
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
	(void)(lg_failed(c, bound(c, g)) || lg_failed(c, lg_step_devices(c, g)));
	return c->failed;
}
