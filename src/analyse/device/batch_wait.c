/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch_wait.c - the wait for a batch where the loader leaves no event.
 *
 * torch's DataLoader marks its __next__; Ray Data, Hugging Face iterable datasets, WebDataset, DALI and
 * generators of one's own do not. What is left of them in a trace is a hole: from the start of the step
 * to the first work that the host orders, no thread orders anything. That is inferred, and said to be:
 * other Python of the program may stand there.
 *
 * A hole is taken for a batch wait only if
 *  - no loader is in the window (then it is known where the batches come from),
 *  - it lies at the start of a step whose boundary is one of the program's (ProfilerStep, the end of the
 *    optimizer), takes a millisecond, and is three times as long as any other hole of that step: a host
 *    that is slow everywhere has holes everywhere. What lies mostly before the boundary is the end of the
 *    step before (a save, a callback): a loop that marks its steps does so before it asks for a batch;
 * and it costs only what the device idles in it for want of launches. Most steps must have one; or
 * three and more, each as long as a step (a loader that delivers in bursts): one alone may be anything.
 */
#include "analyse/device/cpu_rules.h"
#include "base/median.h"
#include "base/upper_bound.h"

#define HOLE_NS 1000000ll

enum { MIN_STEPS = 3, MIN_HOLES = 3 };

/*
 * When the host was at the step's work: calls of the runtime, operators that order work, annotations. An
 * operator on tensors that orders nothing (stacking samples into a batch) is part of getting the batch.
 */
int lg_batch_busy(const struct lg_case *c, const struct lg_gpu_run *r, struct lg_ivs *ret)
{
	int rc = 0;

	*ret = (struct lg_ivs){ 0 };
	LG_EACH(o, r->host, r->n_host) {
		size_t own = ret->n; /* this thread's begin here */

		LG_EACH_RUN(i, j, 0, o->n, o->seg[j].op == o->seg[i].op) {
			bool orders = !r->n_work || o->seg[i].op == LG_NO_ROW ||
				      strncmp(lg_span_name(c->t, o->seg[i].op), "aten::", 6);

			LG_EACH(s, &o->seg[i], j - i)
				orders |= s->class >= LG_HOST_LAUNCH;
			LG_EACH_WHILE(orders && !rc, s, &o->seg[i], j - i)
				if (s->class != LG_HOST_NONE && lg_host_in_window(r, s))
					rc = lg_iv_put(ret, own, s->ts, s->end);
		}
	}
	rc = rc ? rc : lg_iv_join(ret);
	if (rc) {
		lg_free(ret->v);
		*ret = (struct lg_ivs){ 0 };
	}
	return rc;
}

/* The hole around ts: from the end of what came before it, at most from `since`, to what comes next. */
static struct lg_iv hole_at(const struct lg_ivs *a, int64_t ts, int64_t since, int64_t until)
{
	struct lg_iv hole = { since, until, LG_NO_ROW };
	size_t k = LG_UPPER_BOUND(a->v, a->n, end, ts);

	if (k && a->v[k - 1].end > since)
		hole.ts = a->v[k - 1].end;
	if (k < a->n && a->v[k].ts < until)
		hole.end = a->v[k].ts;
	return hole; /* end <= ts: something was going on */
}

/* In [from, to], from the first stretch on that ends in it. *at: one that is not behind that one. */
static int64_t longest_hole(const struct lg_ivs *a, int64_t from, int64_t to, size_t *at)
{
	int64_t longest = 0;

	while (*at < a->n && a->v[*at].end < from)
		++*at;
	for (size_t i = *at + 1; i < a->n && a->v[i].ts <= to; i++)
		longest = LG_MAX(longest, a->v[i].ts - a->v[i - 1].end);
	return longest;
}

/* Holes at the starts of r's steps that look like waits for a batch. */
static int find_holes(const struct lg_case *c, const struct lg_gpu_run *r, struct lg_ivs *ret)
{
	LG_AUTO_IVS own = { 0 };
	int rc = r->notes->busy ? 0 : lg_batch_busy(c, r, &own);
	const struct lg_ivs *a = r->notes->busy ? r->notes->busy : &own;

	*ret = (struct lg_ivs){ 0 };
	for (size_t k = 0, at = 0; !rc && k < r->n_steps; k++) {
		int64_t start = r->step[k], end = r->step[k + 1];
		struct lg_iv hole = hole_at(a, start, k ? r->step[k - 1] : start, end);

		if (hole.end - hole.ts < HOLE_NS || hole.end - start <= start - hole.ts || hole.end >= end ||
		    hole.end - hole.ts < 3 * longest_hole(a, hole.end, end, &at))
			continue;
		rc = lg_iv_add(ret, hole.ts, hole.end, LG_NO_ROW);
	}
	return rc;
}

/* Are there enough of them to be a habit? */
static bool is_habit(const struct lg_gpu_run *r, const struct lg_ivs *holes)
{
	LG_AUTOFREE int64_t *v = NULL;
	int64_t hole, step;

	if (holes->n * 2 > r->n_steps)
		return true;
	v = holes->n < MIN_HOLES ? NULL : lg_calloc(r->n_steps + holes->n, sizeof *v);
	if (!v)
		return false;
	for (size_t i = 0; i < holes->n; i++)
		v[i] = holes->v[i].end - holes->v[i].ts;
	hole = lg_median_i64(v, holes->n);
	for (size_t i = 0; i < r->n_steps; i++)
		v[i] = lg_gpu_step_ns(r, i);
	step = lg_median_i64(v, r->n_steps);
	return hole >= step;
}

bool lg_batch_may_infer(const struct lg_gpu_run *r)
{
	/* A host that is steps ahead has no batch to wait for. */
	return r->main && !r->asked && r->n_steps >= MIN_STEPS && r->steps_from &&
	       (r->steps_marked || !strcmp(r->steps_from, "Optimizer.step")) &&
	       !lg_gpu_does(r, LG_HOST_LOADER);
}

int lg_gpu_refine_batch(struct lg_case *c, struct lg_gpu *g)
{
	LG_EACH(r, g->run, g->n) {
		LG_AUTO_IVS holes = { 0 };
		double floor = LG_N_DATA_LOADER_WAIT_INFERRED * (double)lg_gpu_wall(r);

		if (!r->notes->busy)
			continue;
		if (lg_failed(c, find_holes(c, r, &holes)))
			break;
		if (is_habit(r, &holes) && (double)lg_gpu_late_within(r, &holes) >= floor)
			(void)lg_failed(c, lg_gpu_carve(&c->scene, r, &holes, LG_GPU_BIT(LG_GPU_BY_LAUNCH),
						   LG_GPU_BY_BATCH));
	}
	return c->failed;
}

/* Is Python in an iterator's __next__ for most of these moments? Stacks tell what a hole cannot. */
static bool in_next(struct lg_case *c, const struct lg_gpu_run *r, const struct lg_ivs *a)
{
	const struct lg_trace *t = c->t;
	int64_t inside = 0, until = INT64_MIN; /* one may call another: up to there it is counted */
	size_t at = 0;
	LG_AUTOFREE uint8_t *picked = r->has_frames ? lg_span_pick(&c->scene, LG_LIST_NEXT) : NULL;

	LG_LISTED_WHILE(picked, row, c->idx->span, r->main) {
		const struct lg_span_at *s = &c->idx->span_at[row_at];
		int64_t from = LG_MAX(s->ts, until), end = lg_span_end(t, row);

		if (s->kind != LG_SPAN_PYTHON || !picked[s->name] || end <= from)
			continue;
		until = end;
		inside += lg_iv_shared(a, &at, from, end);
	}
	return inside * 2 > lg_iv_sum(a);
}

/* alone: it is r's and no other rank's. */
static void tell(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
		 const struct lg_ivs *a, const char *what, bool alone)
{
	bool known = in_next(c, r, a);
	size_t longest = 0;

	f->detail = "inferred";
	f->confidence *= known ? 0.85 : 0.65;
	lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_AT_STEP_START, alone ? lg_text(c, "on %s alone %s", lg_cpu_who(c, r),
		 what) : what, 100 * (alone && r->n_pieces ? lg_gpu_part(r, (double)r->by[LG_GPU_BY_BATCH]) :
				      f->lost_share));
	for (size_t i = 1; i < a->n; i++)
		if (a->v[i].end - a->v[i].ts > a->v[longest].end - a->v[longest].ts)
			longest = i;
	if (a->n)
		lg_evidence_add(c, f, a->v[longest].ts, a->v[longest].end - a->v[longest].ts,
				LG_SAYS_DATA_LOADER_WAIT_HOLES, a->n, r->n_steps);
	if (known)
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_IN_NEXT);
	else
		lg_evidence_against(c, f, LG_SAYS_DATA_LOADER_WAIT_OTHER_PYTHON);
	if (f != &c->scrap) /* the loader's own wait was told */
		lg_say(c, LG_SAYS_DATA_LOADER_WAIT_IS_INFERRED);
}

/* Training on the CPU: the hole is exposed as it is. Does r wait so? */
static bool waits_on_cpu(struct lg_case *c, const struct lg_gpu_run *r, struct lg_ivs *ret)
{
	*ret = (struct lg_ivs){ 0 };
	return r->scope == LG_SHOWS_CPU && lg_batch_may_infer(r) && !lg_failed(c, find_holes(c, r, ret)) &&
	       is_habit(r, ret) &&
	       (double)lg_iv_sum(ret) >= LG_N_DATA_LOADER_WAIT_INFERRED_CPU * (double)lg_gpu_wall(r);
}

static bool alone_on_cpu(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *which)
{
	LG_EACH_WHERE(r != which, r, g->run, g->n) {
		LG_AUTO_IVS holes = { 0 };

		if (waits_on_cpu(c, r, &holes))
			return false;
	}
	return g->n > 1;
}

static bool alone_on_device(const struct lg_gpu *g, const struct lg_gpu_run *which)
{
	int64_t others = 0;

	LG_EACH_WHERE(r != which, r, g->run, g->n)
		others += r->by[LG_GPU_BY_BATCH];
	/* Of the rank that all wait for, what is told of lateness names it. */
	return g->n > 1 && which != g->critical && others * 10 < which->by[LG_GPU_BY_BATCH];
}

static void on_cpu(struct lg_case *c, const struct lg_gpu *g)
{
	LG_EACH(r, g->run, g->n) {
		LG_AUTO_IVS holes = { 0 };
		struct lg_finding *f;
		double sum;

		if (!waits_on_cpu(c, r, &holes))
			continue;
		sum = (double)lg_iv_sum(&holes);
		f = lg_gpu_finding(c, g, LG_R_DATA_LOADER_WAIT, sum / 1e6, lg_gpu_part(r, sum), 0.9, r);
		if (holes.n < LG_N_ANY_REPEATS && holes.n < r->n_steps)
			lg_grade_part(f, lg_proven(holes.n), holes.n);
		tell(c, f, r, &holes, "nothing runs for", alone_on_cpu(c, g, r));
		return;
	}
}

int lg_find_batch_wait(struct lg_case *c, struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_BATCH));
	LG_AUTO_IVS holes = { 0 };
	struct lg_finding *f;

	if (lg_gpu_only(c->t))
		on_cpu(c, g);
	if (c->failed || !l.worst || l.share < LG_N_DATA_LOADER_WAIT_INFERRED ||
	    lg_failed(c, find_holes(c, l.worst, &holes)))
		return c->failed;
	f = lg_gpu_idles(c, g, LG_R_DATA_LOADER_WAIT, &l, 0, 0.9);
	tell(c, f, l.worst, &holes, "the device idles", alone_on_device(g, l.worst));
	lg_gpu_moments(c, f, l.worst, l.mask, 3, "device idle");
	return c->failed;
}
