/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope_of_trace.c - what a profiler's trace shows: training, inference, graphs being captured,
 * nothing, or one cold start; and which part of it is steady work that may be judged.
 *
 * Steps, best first: ProfilerStep spans; ends of Optimizer.step; starts of the loader's __next__;
 * an annotation of the main thread that comes back (range_steps.c). Without any, the window is judged
 * as one piece.
 *
 * A window that the profiler's own start or torch's lazy initialisation dominates says nothing
 * about steady state (kineto: schedule(wait, warmup, active) exists for that), so it is named and
 * not diagnosed.
 */
#include "timeline/cost.h"
#include "base/median.h"
#include "base/upper_bound.h"
#include "rules/rules.h"
#include "store/merge.h"

enum { MIN_WORK = 8, MIN_OPS = 20, MIN_REST = 3 };
#define COLD_SHARE 0.25

const char *lg_scope_name(enum lg_trace_shows k)
{
	static const char *const name[] = {
		[LG_SHOWS_NONE] = "not a device trace",
		[LG_SHOWS_TRAINING] = "training",
		[LG_SHOWS_INFERENCE] = "inference or evaluation",
		[LG_SHOWS_CAPTURE] = "graph capture",
		[LG_SHOWS_EMPTY] = "an almost empty window",
		[LG_SHOWS_COLD] = "a cold start",
		[LG_SHOWS_LOST] = "a device whose work is missing from the trace",
		[LG_SHOWS_CPU] = "operators on the CPU, no device",
		[LG_SHOWS_RANGES] = "ranges that the program marks, and nothing else",
	};

	return name[k];
}

struct bounds {
	int64_t *v;
	size_t n, cap;
};

static int push(struct bounds *b, int64_t ts)
{
	return b->n && ts <= b->v[b->n - 1] ? 0 : LG_APPEND(b->v, b->n, b->cap, ts);
}

static bool is_mark(const struct lg_scene *sc, struct lg_gpu *g, uint32_t row)
{
	return sc->t->span.kind[row] == LG_SPAN_STEP ||
	       lg_gpu_name(sc, g, sc->t->span.name[row]) == LG_NAME_STEP;
}

/* The last mark, and how long it has to be: a step that was just opened when the profiler stopped is none.
 * Any other may be short: the host's first ones are, until the queue of its device is full. */
struct last_mark {
	int64_t ts, shortest;
	struct lg_iv profiled; /* marks of another file may tell of more steps than a profiler saw */
};

static bool is_profiled(const struct lg_scene *sc, struct lg_gpu *g, uint32_t row, struct lg_iv profiled)
{
	return is_mark(sc, g, row) && sc->t->span.ts[row] >= profiled.ts &&
	       lg_span_end(sc->t, row) <= profiled.end;
}

static bool is_step(const struct lg_scene *sc, struct lg_gpu *g, uint32_t row, const struct last_mark *last)
{
	return is_profiled(sc, g, row, last->profiled) && sc->t->span.dur[row] > 0 &&
	       (sc->t->span.ts[row] < last->ts || sc->t->span.dur[row] > last->shortest);
}

/* Spans of the main thread of that class (which lg_scope_wants()) as boundaries; outermost only. */
static int from_spans(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r, bool ends,
		      enum lg_name_class class, const struct last_mark *last, struct bounds *b)
{
	const struct lg_trace *t = sc->t;
	const struct lg_gpu_host *m = lg_gpu_main_host(r);
	int64_t covered = INT64_MIN + LG_GPU_ROUNDING_NS;

	b->n = 0;
	for (size_t p = 0; p < m->n_marks; p++) {
		uint32_t row = m->mark[p];
		int64_t end = lg_span_end(t, row);

		if (t->span.ts[row] < covered - LG_GPU_ROUNDING_NS ||
		    (t->span.ts[row] < covered && end <= covered) ||
		    !(class == LG_NAME_STEP ? is_step(sc, g, row, last)
					    : lg_gpu_name(sc, g, t->span.name[row]) == class))
			continue;
		covered = end;
		if (push(b, ends ? end : t->span.ts[row]))
			return LG_E_NOMEM;
	}
	return 0;
}

/* The marks' name without the step's number: the profiler's, or a range that the program marks. */
static const char *marks_name(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r,
			      const struct last_mark *last)
{
	const struct lg_gpu_host *m = lg_gpu_main_host(r);

	for (size_t p = 0; p < m->n_marks; p++) {
		const char *name = lg_span_name(sc->t, m->mark[p]);
		size_t n = strlen(name);

		if (!is_step(sc, g, m->mark[p], last))
			continue;
		while (n && strchr("0123456789#_:[]() ", name[n - 1]))
			n--;
		if (!strncmp(name, "ProfilerStep", 12) || !n)
			break;
		return lg_arena_printf(sc->arena, "the ranges named \"%.*s\"", (int)(n < 60 ? n : 60), name);
	}
	return "ProfilerStep";
}

/* First and last moment of work that the process itself ordered; the profiler's own start and its
 * final synchronisation lie outside. */
static void extent(const struct lg_trace *t, struct lg_gpu_run *r)
{
	int64_t first = INT64_MAX, last = INT64_MIN, op_last = INT64_MIN;

	LG_EACH(w, r->work, r->n_work) {
		first = LG_MIN(first, w->ts);
		last = LG_MAX(last, w->end);
	}
	for (size_t h = 0; h < r->n_host; h++) {
		first = LG_MIN(first, r->host[h].first);
		op_last = LG_MAX(op_last, r->host[h].last);
	}
	if (r->n_work && last < op_last)
		last = op_last;
	if (!r->n_work)
		last = op_last;
	if (first > last)
		first = last = t->first;
	r->from = first;
	r->to = last;
}

/* It has to have a small part of the median length of the marked steps. */
static struct last_mark last_mark(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r)
{
	const struct lg_gpu_host *m = lg_gpu_main_host(r);
	struct last_mark last = { .ts = INT64_MIN };
	int64_t d[1024];
	size_t n = 0;

	if (!lg_profiled_within(sc->t, r->prc, &last.profiled))
		last.profiled = (struct lg_iv){ INT64_MIN, INT64_MAX, LG_NO_ROW };
	for (size_t p = 0; p < m->n_marks; p++) {
		if (!is_profiled(sc, g, m->mark[p], last.profiled))
			continue;
		if (n < 1024)
			d[n++] = sc->t->span.dur[m->mark[p]];
		last.ts = sc->t->span.ts[m->mark[p]];
	}
	last.shortest = lg_median_i64(d, n) / 20;
	return last;
}

/* The mean of n distances, in which a few pauses (an evaluation, a checkpoint) count twice. Reorders v. */
static int64_t usually_apart(int64_t *v, size_t n)
{
	size_t pauses = n < 8 ? 0 : n < 40 ? 1 : n / 20;
	int64_t most = 2 * lg_select_i64(v, n, n - 1 - pauses), sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += LG_MIN(v[i], most);
	return sum / (int64_t)n;
}

/* Ends of optimizers, three and more, become boundaries of steps. */
static int join_optimizers(const struct lg_gpu_run *r, struct bounds *b)
{
	LG_AUTOFREE int64_t *apart = lg_calloc(b->n, sizeof *apart);
	int64_t *v = b->v, typical;
	size_t n = b->n, k = 1;
	int rc;

	if (!apart)
		return LG_E_NOMEM;
	/* Optimizers may be several a step: ends closer than a tenth of what is usual belong together. */
	for (size_t i = 1; i < n; i++)
		apart[i - 1] = v[i] - v[i - 1];
	typical = usually_apart(apart, n - 1) / 10;
	for (size_t i = 1; i < n; i++)
		if (v[i] - v[k - 1] < typical)
			v[k - 1] = v[i];
		else
			v[k++] = v[i];
	b->n = k;
	rc = push(b, v[k - 1]);
	/* The time before the first end is a step, too. */
	if (!rc && r->from < b->v[0]) {
		rc = lg_grow(&b->v, &b->cap, b->n + 1, sizeof *b->v);
		if (!rc) {
			memmove(b->v + 1, b->v, b->n++ * sizeof *b->v);
			b->v[0] = r->from;
		}
	}
	return rc;
}

static int find_bounds(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r, struct bounds *b)
{
	struct last_mark last = last_mark(sc, g, r);
	int64_t *from_ranges;
	size_t n;
	int rc;

	rc = from_spans(sc, g, r, false, LG_NAME_STEP, &last, b);
	if (rc)
		return rc;
	if (b->n) {
		struct bounds e = { 0 };

		r->steps_from = marks_name(sc, g, r, &last);
		r->steps_marked = true;
		rc = from_spans(sc, g, r, true, LG_NAME_STEP, &last, &e);
		if (!rc)
			rc = push(b, e.v[e.n - 1]);
		lg_free(e.v);
		return rc;
	}
	extent(sc->t, r);
	r->steps_from = "Optimizer.step";
	rc = from_spans(sc, g, r, true, LG_NAME_OPTIMIZER, NULL, b);
	if (!rc && b->n >= 3)
		return join_optimizers(r, b);
	r->steps_from = "the loader";
	if (!rc)
		rc = from_spans(sc, g, r, false, LG_NAME_LOADER, NULL, b);
	if (!rc && b->n >= 3)
		return push(b, lg_last_step_end(b->v, b->n, b->v[b->n - 1], r->to));
	r->steps_from = NULL;
	b->n = 0;
	if (rc)
		return rc;
	rc = lg_range_steps(sc, g, r, lg_gpu_main_host(r), &r->steps_from, &from_ranges, &n);
	if (!rc && n) {
		lg_free(b->v);
		*b = (struct bounds){ from_ranges, n, n };
	}
	return rc;
}

/* ends[i]: when the last of the work up to i ends, which is sorted by start. NULL without memory. */
static int64_t *latest_ends(const struct lg_gpu_run *r)
{
	int64_t *ends = lg_calloc(r->n_work, sizeof *ends);

	for (size_t i = 0; ends && i < r->n_work; i++)
		ends[i] = i && ends[i - 1] > r->work[i].end ? ends[i - 1] : r->work[i].end;
	return ends;
}

bool lg_gpu_at_work(const struct lg_gpu_run *r, int64_t a, int64_t b, const int64_t *ends)
{
	int64_t busy = 0, until = a;
	size_t lo = ends ? lg_upper_bound(ends, r->n_work, sizeof *ends, 0, a) : 0;

	for (size_t i = lo; i < r->n_work && r->work[i].ts < b; i++) {
		int64_t s = LG_MAX(r->work[i].ts, until);
		int64_t e = LG_MIN(r->work[i].end, b);

		if (e > s) {
			busy += e - s;
			until = e;
		}
		if (busy * 10 > b - a)
			return true;
	}
	return false;
}

static size_t step_in(const int64_t *step, size_t n, int64_t ts)
{
	return !n || ts < step[0] ? n : lg_upper_bound(step + 1, n, sizeof *step, 0, ts);
}

size_t lg_gpu_step_of(const struct lg_gpu_run *r, int64_t ts)
{
	return step_in(r->step, r->n_steps, ts);
}

size_t lg_gpu_asked_in(const struct lg_gpu_run *r, int64_t ts)
{
	return step_in(r->asked ? r->asked : r->step, r->n_steps, ts);
}

/* Time of calls that only order work, yet took a millisecond and more while the device idled:
 * context creation, module loading, stream creation. by_step: of n_steps; NULL where there are none.
 * -1 without memory. */
static int64_t first_time_calls(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r,
				int64_t *by_step)
{
	const struct lg_trace *t = sc->t;
	LG_AUTOFREE int64_t *ends = latest_ends(r);
	int64_t sum = 0;

	if (!ends)
		return -1;
	for (size_t h = 0; h < r->n_host; h++) {
		int64_t covered = INT64_MIN;

		for (size_t p = 0; p < r->host[h].n_marks; p++) {
			uint32_t row = r->host[h].mark[p];
			int64_t ts = t->span.ts[row], dur = t->span.dur[row];
			enum lg_name_class k = lg_gpu_name(sc, g, t->span.name[row]);
			bool alloc = k == LG_NAME_ALLOC || k == LG_NAME_FREE;
			bool order = k == LG_NAME_LAUNCH || k == LG_NAME_RUNTIME;
			size_t step;

			if ((!alloc && !order) || dur < (alloc ? LG_COLD_ALLOC_NS : LG_COLD_CALL_NS) ||
			    ts < r->from || ts + dur > r->to || ts < covered ||
			    lg_gpu_at_work(r, ts, ts + dur, ends))
				continue;
			covered = ts + dur;
			sum += dur;
			step = by_step ? lg_gpu_asked_in(r, ts) : r->n_steps;
			if (step < r->n_steps)
				by_step[step] += dur;
		}
	}
	return sum;
}

/*
 * Such calls in every step, as many at the end as at the beginning, are a steady loss: initialisation
 * comes first and gets less. v: of n steps.
 */
static bool comes_again(const int64_t *v, size_t n)
{
	int64_t first[512], last[512];
	size_t half = n / 2 < 512 ? n / 2 : 512;

	memcpy(first, v, half * sizeof *v);
	memcpy(last, v + n - half, half * sizeof *v);
	return half && 2 * lg_median_i64(last, half) > lg_median_i64(first, half);
}

/* Does the program count its steps, and has it done many? Then nothing in them is done for the first
 * time. */
static bool is_old(const struct lg_scene *sc, const struct lg_gpu_run *r)
{
	const struct lg_gpu_host *m = r->steps_marked ? lg_gpu_main_host(r) : NULL;
	int64_t first = r->n_steps ? (r->asked ? r->asked : r->step)[0] : 0;

	for (size_t p = 0; m && p < m->n_marks; p++)
		if (sc->t->span.ts[m->mark[p]] == first && sc->t->span.kind[m->mark[p]] == LG_SPAN_STEP)
			return sc->t->span.seq[m->mark[p]] >= LG_N_ANY_OLD;
	return false;
}

static bool is_cold(const struct lg_gpu_run *r, size_t step, int64_t calls)
{
	return (double)calls > COLD_SHARE * (double)lg_gpu_step_ns(r, step);
}

/* Of n steps, those at the beginning that have first-time calls, where hardly one follows; v: by step. */
static size_t cold_lead(const int64_t *v, size_t n)
{
	int64_t first = 0, later = 0;
	size_t lead = 0;

	while (lead < n && v[lead])
		first += v[lead++];
	for (size_t i = lead; i < n; i++)
		later += v[i];
	return lead + MIN_REST <= n && later * 10 < first ? lead : 0;
}

/* The first n steps are left out. */
static void skip_steps(struct lg_gpu_run *r, size_t n)
{
	r->step += n;
	r->asked = r->asked ? r->asked + n : NULL;
	r->n_steps -= n;
	r->from = r->step[0];
}

/*
 * A quarter of the window and more in first-time calls: is it a cold start as a whole? Not if they belong
 * to the steps, or if enough steps have none; those at the beginning that do are left out.
 */
static int judge_cold(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
{
	size_t n = r->n_steps, warm = 0, lead = 0;
	LG_AUTOFREE int64_t *v = lg_calloc(n + 1, sizeof *v);
	int64_t sum = v ? first_time_calls(sc, g, r, n ? v : NULL) : -1;

	if (sum < 0)
		return LG_E_NOMEM;
	if (n >= MIN_REST && !is_old(sc, r) && !comes_again(v, n))
		r->n_cold = cold_lead(v, n);
	if ((double)sum <= COLD_SHARE * (double)lg_gpu_wall(r))
		return 0;
	for (size_t i = 0; i < n; i++) {
		lead += lead == i && is_cold(r, i, v[i]);
		warm += !is_cold(r, i, v[i]);
	}
	if (!is_old(sc, r) && (n < MIN_REST - 1 || (warm < MIN_REST && !comes_again(v, n)))) {
		r->cold += sum;
		r->scope = LG_SHOWS_COLD;
	} else if (lead && warm >= MIN_REST && !comes_again(v, n)) {
		for (size_t i = 0; i < lead; i++)
			r->cold += v[i];
		skip_steps(r, lead);
		r->n_cold = 0;
	}
	return 0;
}

static int count(const struct lg_scene *sc, struct lg_gpu_run *r)
{
	LG_AUTOFREE int64_t *v = lg_calloc(r->n_work, sizeof *v);
	/* Names are looked through, not millions of rows. */
	LG_AUTOFREE uint8_t *training =
		r->has_backward || r->n_ops ? NULL : lg_span_pick(sc, LG_LIST_TRAINING_KERNELS);

	if (!v || sc->arena->failed)
		return LG_E_NOMEM;
	LG_EACH_WHERE(w->end > r->from && w->ts < r->to, w, r->work, r->n_work) {
		r->n_unlaunched += w->call == LG_NO_ROW;
		if (w->class == LG_GPU_COMM) {
			r->n_comm++;
			r->comm_ns += w->end - w->ts;
		} else if (sc->t->span.kind[w->span] == LG_SPAN_KERNEL) {
			v[r->n_kernels++] = w->end - w->ts;
			r->has_backward |= training && training[sc->t->span.name[w->span]];
			r->kernel_ns += w->end - w->ts;
		}
	}
	r->median_kernel = r->n_kernels ? lg_select_i64(v, r->n_kernels, r->n_kernels / 2) : 0;
	return 0;
}

/* Leading steps that are set-up; the window shrinks to the rest. Sets r->cold. */
static void drop_cold_steps(struct lg_gpu_run *r)
{
	int64_t d[512], whole = lg_gpu_wall(r), rest;
	size_t n = r->n_steps, k = 0, m;

	if (n < MIN_REST + 1)
		return;
	m = n - 1 < 512 ? n - 1 : 512;
	for (size_t i = 0; i < m; i++)
		d[i] = lg_gpu_step_ns(r, n - m + i);
	rest = lg_median_i64(d, m);
	while (k + MIN_REST < n && lg_gpu_step_ns(r, k) > 2 * rest)
		k++;
	if (!k)
		return;
	r->cold = lg_gpu_seen(r, r->step[0], r->step[k]) - (int64_t)k * rest;
	if ((double)r->cold < COLD_SHARE * (double)whole) {
		if (r->cold < 3 * rest) {
			r->cold = 0; /* a slow first step, no more: judged with the others */
			return;
		}
		r->cold = 0; /* left out, but not what the window is about */
	}
	skip_steps(r, k);
}

/*
 * Of a file that is cut: nothing begins after that; INT64_MAX: it is whole. What was open then may have gone
 * on in rows that are gone.
 */
static int64_t cut_at(const struct lg_scene *sc, const struct lg_gpu_run *r)
{
	int64_t last = INT64_MIN;

	if (!lg_profiled_cut(sc->t, r->prc))
		return INT64_MAX;
	if (r->n_work)
		last = r->work[r->n_work - 1].ts;
	LG_EACH_WHERE(h->n, h, r->host, r->n_host)
		last = LG_MAX(h->seg[h->n - 1].ts, last);
	return last;
}

/* The step in which a file is cut looks as if the host or the device had waited. */
static void drop_cut_steps(const struct lg_scene *sc, struct lg_gpu_run *r)
{
	int64_t at = cut_at(sc, r);

	while (r->n_steps > 1 && r->step[r->n_steps] > at)
		r->to = r->step[--r->n_steps];
	if (!r->n_steps)
		r->to = LG_MAX(LG_MIN(r->to, at), r->from);
}

/* More launches than that without their kernel: the step's device time is not in the trace. */
#define UNRUN_SHARE 0.1

static bool lacks_kernels(size_t unrun, size_t launched)
{
	return unrun >= 3 && (double)unrun > UNRUN_SHARE * (double)launched;
}

/* The device may be behind: what it did until it came to the first step that is kept is not in the trace. */
static int64_t first_kept(const struct lg_trace *t, const struct lg_gpu_run *r, int64_t from)
{
	enum { BEHIND_NS = 200000 };

	LG_EACH(w, r->work, r->n_work) {
		int64_t called = w->call != LG_NO_ROW ? w->called : INT64_MIN;

		if (called >= from && t->span.kind[w->span] == LG_SPAN_KERNEL)
			return w->ts - called > BEHIND_NS ? w->ts : from;
	}
	return from;
}

/* of: by step, two numbers each, of which the first is counted. */
static void count_in_steps(const struct lg_gpu_run *r, const int64_t *ts, size_t n, size_t *of)
{
	for (size_t i = 0; i < n; i++) {
		size_t step = lg_gpu_step_of(r, ts[i]);

		if (step < r->n_steps)
			of[2 * step]++;
	}
}

/*
 * The profiler's buffers may miss the kernels of the first launches (pytorch #192021, kineto #996), or of
 * the last. Such steps look as if the device had waited: they are left out where that leaves some.
 */
static int drop_unrun_steps(const struct lg_trace *t, struct lg_gpu_run *r)
{
	size_t n = r->n_steps, head = 0, tail = 0, unrun = 0, launched = 0;
	LG_AUTOFREE size_t *of = n && r->n_unrun ? lg_calloc(2 * n, sizeof *of) : NULL;

	if (!r->n_unrun)
		return 0;
	if (n && !of)
		return LG_E_NOMEM;
	if (n) {
		count_in_steps(r, r->launched, r->n_launched, of);
		count_in_steps(r, r->unrun, r->n_unrun, of + 1);
	}
	while (head < n && lacks_kernels(of[2 * head + 1], of[2 * head]))
		head++;
	while (head + tail < n && lacks_kernels(of[2 * (n - tail) - 1], of[2 * (n - tail) - 2]))
		tail++;
	if (head + tail + MIN_REST > n)
		head = tail = 0;
	for (size_t i = head; i < n - tail; i++) {
		launched += of[2 * i];
		unrun += of[2 * i + 1];
	}
	if (!n) {
		launched = r->n_launched;
		unrun = r->n_unrun;
	}
	r->unrun_share = launched ? (double)unrun / (double)launched : 0;
	r->cut_head = head;
	r->cut_tail = tail;
	if (head || tail) {
		r->step += head;
		r->n_steps -= head + tail;
		r->to = r->step[r->n_steps];
		r->from = first_kept(t, r, r->step[0]);
		for (; r->from >= r->step[1] && r->n_steps > MIN_REST; r->cut_head++, r->n_steps--)
			r->step++;
		if (r->from >= r->step[1])
			r->from = r->step[0];
	}
	return 0;
}

/* Is the device's work missing, so that nothing tells whether it idled? Of graphs that are captured launches
 * never run. A file that is cut may end before the calls, too. */
static bool lost_its_device(const struct lg_scene *sc, const struct lg_gpu_run *r)
{
	size_t launches = 0, left_out = r->cut_head + r->cut_tail;

	if (r->n_graph_built)
		return false;
	if (r->n_work)
		return r->unrun_share > LG_N_ANY_LOST || left_out > r->n_steps;
	for (size_t h = 0; h < r->n_host; h++)
		launches += r->host[h].n_launches;
	return launches >= MIN_WORK || (lg_has_diag(sc->t, LG_DIAG_FILE_TRUNCATED) &&
					lg_index_fact(sc->idx, r->prc, "gpu.0.name"));
}

int lg_scope_of_trace(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
{
	struct bounds b = { 0 };
	int rc = r->main ? find_bounds(sc, g, r, &b) : 0;

	if (!r->main)
		extent(sc->t, r);
	if (!rc && b.n >= 2) {
		r->step = lg_arena_alloc(sc->arena, b.n, sizeof *r->step);
		if (r->step) {
			memcpy(r->step, b.v, b.n * sizeof *r->step);
			r->n_steps = b.n - 1;
			r->from = r->step[0];
			r->to = r->step[r->n_steps];
		} else {
			rc = LG_E_NOMEM;
		}
	}
	lg_free(b.v);
	if (rc)
		return rc;
	drop_cut_steps(sc, r);
	rc = drop_unrun_steps(sc->t, r);
	if (!rc)
		rc = lg_steps_of_device(sc, r);
	if (rc)
		return rc;
	r->whole = lg_gpu_wall(r);
	if (r->n_work)
		drop_cold_steps(r);
	rc = count(sc, r);
	if (rc)
		return rc;
	if (!r->n_steps && r->main && !r->has_backward && lg_request_pool(sc, g, r))
		return LG_E_NOMEM;
	r->scope = r->has_backward ? LG_SHOWS_TRAINING : LG_SHOWS_INFERENCE;
	if (lg_only_ranges(sc->t)) {
		r->scope = LG_SHOWS_RANGES;
	} else if (lost_its_device(sc, r)) {
		r->scope = LG_SHOWS_LOST;
	} else if (!r->n_work) {
		r->scope = r->n_ops >= MIN_OPS ? LG_SHOWS_CPU : LG_SHOWS_EMPTY;
	} else if (r->n_graph_built && r->n_graph_built >= r->n_graph_launches) {
		r->scope = LG_SHOWS_CAPTURE;
	} else if (r->n_kernels + r->n_comm < MIN_WORK) {
		r->scope = LG_SHOWS_EMPTY;
	} else {
		return judge_cold(sc, g, r);
	}
	return 0;
}
