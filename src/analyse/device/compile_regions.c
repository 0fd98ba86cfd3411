/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile_regions.c - what runs compiled in a profiler's trace, in which versions, and where it is left.
 *
 * "Torch-Compiled Region: F/C" (torch/_dynamo/eval_frame.py) is frame F in its C-th compilation. Where the
 * graph of a frame breaks, its compiled code calls what it could not take, and then the rest of the function,
 * a frame of its own ("torch_dynamo_resume_in_..." where Python stacks are recorded): a region, or at least a
 * look-up of one, inside another. Modules that are compiled one by one, or two compiled functions, follow
 * each other and are no break. What passes between the last operator before a break and the region behind is
 * Python that compiled code would not need: at least that is lost, with or without a device. The fusion that
 * ends there is not in it.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "analyse/device/device_rules.h"

enum { FRAMES_MAX = 1024, DEPTH_MAX = 64, RESUMES_MAX = 3 };

struct frame {
	long frame, highest, lowest;
	size_t n, back; /* back: runs of a version older than one that had run */
	int64_t first;
};

/* Where regions are left in the middle. */
struct breaks {
	struct lg_ivs gaps;      /* of one thread after another */
	size_t regions, lookups;     /* inside of regions */
	int64_t *by_step, ns;        /* of the gaps */
	int64_t late;                /* while the device idled for want of launches */
	uint32_t outer, inner;       /* rows of the first */
	lg_str resume[RESUMES_MAX];  /* frames that go on behind a break */
	size_t n_resumes;
};

struct regions {
	struct frame *frame;
	size_t n;
	struct breaks b;
};

static const char prefix[] = "Torch-Compiled Region: ";

/* "Torch-Compiled Region: 3/1" -> frame 3, compilation 1. */
static bool parse_region(const char *name, long *ret_frame, long *ret_compile)
{
	char *end;

	if (strncmp(name, prefix, sizeof prefix - 1))
		return false;
	*ret_frame = strtol(name + sizeof prefix - 1, &end, 10);
	if (*end != '/' || !isdigit((unsigned char)end[1]))
		return false;
	*ret_compile = strtol(end + 1, NULL, 10);
	return true;
}

static void count_version(struct regions *g, long frame, long compile, int64_t ts)
{
	struct frame *v = g->frame;
	size_t k = 0;

	while (k < g->n && v[k].frame != frame)
		k++;
	if (k == FRAMES_MAX)
		return;
	if (k == g->n)
		v[g->n++] = (struct frame){ .frame = frame, .highest = compile, .lowest = compile,
					    .first = ts };
	v[k].n++;
	v[k].back += compile < v[k].highest;
	v[k].highest = LG_MAX(v[k].highest, compile);
	v[k].lowest = LG_MIN(v[k].lowest, compile);
}

/* Regions that are open at one moment of a thread; last: when what ran in it ended. */
struct nest {
	struct {
		int64_t end, last;
		uint32_t row;
	} v[DEPTH_MAX];
	size_t n;
};

static void close_until(struct nest *o, int64_t ts)
{
	while (o->n && o->v[o->n - 1].end <= ts) {
		int64_t end = o->v[--o->n].end;

		if (o->n && end > o->v[o->n - 1].last)
			o->v[o->n - 1].last = end;
	}
}

/* Nothing runs in the open region from its last row to `to`. */
static int add_gap(const struct lg_gpu_run *r, struct nest *o, int64_t to, uint32_t row, struct breaks *b)
{
	int64_t from = o->v[o->n - 1].last;
	size_t s = lg_gpu_asked_in(r, from);

	if (to <= from)
		return 0;
	o->v[o->n - 1].last = to;
	b->ns += to - from;
	if (b->by_step && s < r->n_steps)
		b->by_step[s] += to - from;
	return lg_iv_add(&b->gaps, from, to, row);
}

static void keep_resume(struct breaks *b, lg_str name)
{
	for (size_t i = 0; i < b->n_resumes; i++)
		if (b->resume[i] == name)
			return;
	if (b->n_resumes < RESUMES_MAX)
		b->resume[b->n_resumes++] = name;
}

/* A row that regions_of() looks for. */
static int add_row(struct lg_case *c, const struct lg_gpu_run *r, uint32_t row, struct nest *o,
		   struct regions *g)
{
	const struct lg_trace *t = c->t;
	const char *name = lg_span_name(t, row);
	int64_t ts = t->span.ts[row], end = lg_span_end(t, row);
	struct breaks *b = &g->b;
	long frame, compile;
	int rc = 0;

	if (t->span.kind[row] == LG_SPAN_PYTHON) {
		if (o->n && strstr(name, "torch_dynamo_resume_in_"))
			keep_resume(b, t->span.name[row]);
		return 0;
	}
	if (!parse_region(name, &frame, &compile)) {
		b->lookups += o->n > 0;
		return o->n ? add_gap(r, o, end, row, b) : 0;
	}
	count_version(g, frame, compile, ts);
	if (o->n) {
		if (!b->regions++) {
			b->outer = o->v[o->n - 1].row;
			b->inner = row;
		}
		rc = add_gap(r, o, ts, row, b);
	}
	if (o->n < DEPTH_MAX) {
		o->v[o->n].row = row;
		o->v[o->n].last = ts;
		o->v[o->n++].end = end;
	}
	return rc;
}

static int add_thread(struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr, const uint8_t *picked,
		      struct regions *g)
{
	const struct lg_trace *t = c->t;
	struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, thr, NULL);
	struct nest o = { .n = 0 };
	uint32_t row;
	int rc = 0;

	while (!rc && lg_gpu_next_row(&rows, &row)) {
		bool region = picked[t->span.name[row]];
		int64_t end;

		if (!region &&
		    (!o.n || t->span.kind[row] == LG_SPAN_PYTHON || t->span.kind[row] == LG_SPAN_NOTE))
			continue;
		close_until(&o, t->span.ts[row]);
		if (region)
			rc = add_row(c, r, row, &o, g);
		end = lg_span_end(t, row);
		if (!region && o.n && end > o.v[o.n - 1].last)
			o.v[o.n - 1].last = end;
	}
	return rc;
}

/* g->frame has room for FRAMES_MAX. */
static int regions_of(struct lg_case *c, const struct lg_gpu_run *r, struct regions *g)
{
	LG_AUTOFREE uint8_t *picked = lg_span_pick(&c->scene, LG_LIST_REGIONS);
	int rc = c->failed;
	long frame, compile;

	for (size_t i = 0; picked && i < c->scene.n_span_names; i++) {
		const char *name = lg_string(c->t, c->scene.span_names[i]);

		if (!strncmp(name, prefix, sizeof prefix - 1) && !parse_region(name, &frame, &compile))
			picked[c->scene.span_names[i]] = 0;
	}
	g->n = 0;
	g->b = (struct breaks){ .outer = LG_NO_ROW, .inner = LG_NO_ROW };
	if (!rc && picked) {
		g->b.by_step = lg_arena_alloc(&c->v->arena, r->n_steps + 1, sizeof *g->b.by_step);
		rc = g->b.by_step ? 0 : LG_E_NOMEM;
	}
	for (size_t h = 0; picked && !rc && h < r->n_host; h++) {
		g->b.gaps.n = 0;
		rc = add_thread(c, r, r->host[h].thr, picked, g);
		if (!rc && lg_gpu_judged(r))
			g->b.late += lg_gpu_late_within(r, &g->b.gaps);
	}
	lg_free(g->b.gaps.v);
	return rc;
}

static void recompiles(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		       const struct frame *x)
{
	struct lg_finding *f = lg_gpu_unpriced(c, g, LG_R_COMPILE_RECOMPILES, 0.85, r);

	lg_title(c, f, LG_SAYS_COMPILE_RECOMPILES_VERSIONS, x->highest - x->lowest + 1);
	/* Versions that come back were kept: one for each of a few shapes, compiled once. */
	if (x->back && !lg_gpu_does(r, LG_HOST_COMPILE)) {
		lg_cap(f, LG_CAP_EXPLAINED);
		f->confidence = 0.5;
		lg_title(c, f, LG_SAYS_COMPILE_RECOMPILES_IN_TURN, x->highest - x->lowest + 1);
	}
	if (!lg_gpu_does(r, LG_HOST_COMPILE))
		lg_evidence_against(c, f, LG_SAYS_COMPILE_RECOMPILES_COMPILED_BEFORE);
	lg_evidence_add(c, f, x->first, 0, LG_SAYS_COMPILE_RECOMPILES_REGIONS, x->frame, x->lowest,
			x->frame, x->highest);
	lg_evidence(c, f, LG_SAYS_COMPILE_RECOMPILES_WHICH_GUARD);
}

/* Regions inside of regions. With a device its idle time is told by the launches that come late; what part
 * of that is the breaks' own is told here, and not added to it. */
static void nested(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		   const struct breaks *b)
{
	const struct lg_trace *t = c->t;
	double n = (double)LG_MAX(b->regions, b->lookups);
	bool device = lg_gpu_judged(r);
	struct lg_finding *f = device ? lg_gpu_unpriced(c, g, LG_R_COMPILE_GRAPH_BREAKS, 0.9, r)
				      : lg_gpu_finding(c, g, LG_R_COMPILE_GRAPH_BREAKS, lg_ms(b->ns),
						       lg_gpu_part(r, (double)b->ns), 0.9, r);

	if (device)
		lg_cap(f, LG_CAP_UNMEASURED); /* what part of the wait would go is not known */
	else if (r->n_steps >= 2)
		lg_gpu_cap_steps(c, f, r, b->by_step);
	lg_title(c, f, LG_SAYS_COMPILE_GRAPH_BREAKS_IN_THE_MIDDLE, n / lg_gpu_steps(r),
		 lg_gpu_a_step(r));
	if (b->inner != LG_NO_ROW)
		lg_evidence_add(c, f, t->span.ts[b->inner], t->span.dur[b->inner], "inside of %s runs %s",
				lg_span_name(t, b->outer), lg_span_name(t, b->inner));
	if (b->lookups > b->regions)
		lg_evidence(c, f, LG_SAYS_COMPILE_GRAPH_BREAKS_GOES_ON_EAGERLY, b->lookups -
			    b->regions, b->lookups);
	for (size_t i = 0; i < b->n_resumes; i++) {
		const char *name = lg_string(t, b->resume[i]);

		if (!f->culprit.function)
			f->culprit.function = name;
		lg_evidence(c, f, "goes on behind a break: %s", name);
	}
	if (device)
		lg_evidence(c, f, LG_SAYS_COMPILE_GRAPH_BREAKS_PYTHON_IDLE, lg_ms(b->ns),
			    lg_ms(b->late));
	else
		lg_evidence(c, f, LG_SAYS_COMPILE_GRAPH_BREAKS_PYTHON, lg_ms(b->ns));
	if (!b->n_resumes)
		lg_evidence(c, f, LG_SAYS_COMPILE_GRAPH_BREAKS_WHERE);
}

/* Many frames one behind the other are graph breaks only if they leave the device waiting. */
static void many_frames(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			const struct regions *x)
{
	struct lg_finding *f;

	if (x->n < LG_N_COMPILE_GRAPH_BREAKS_FRAMES ||
	    lg_gpu_part(r, (double)r->by[LG_GPU_BY_LAUNCH]) < LG_N_COMPILE_GRAPH_BREAKS_WAIT)
		return;
	f = lg_gpu_unpriced(c, g, LG_R_COMPILE_GRAPH_BREAKS, 0.6, r);
	lg_title(c, f, LG_SAYS_COMPILE_GRAPH_BREAKS_PIECES, x->n);
	lg_cap(f, LG_CAP_UNMEASURED); /* what part of the wait is theirs is not known */
	lg_evidence_add(c, f, x->frame[0].first, 0, LG_SAYS_COMPILE_GRAPH_BREAKS_FIRST_REGION,
			x->frame[0].frame);
}

/* Of the first rank that can be looked at: all run the same program. */
void lg_compile_regions(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = lg_gpu_first_traced(g);
	struct regions x = { 0 };
	size_t many = 0;

	if (!r)
		return;
	x.frame = lg_calloc(FRAMES_MAX, sizeof *x.frame);
	if (!x.frame || regions_of(c, r, &x))
		c->failed = LG_E_NOMEM;
	for (size_t k = 0; !c->failed && k < x.n; k++)
		if (x.frame[k].highest - x.frame[k].lowest >= LG_N_COMPILE_RECOMPILES_VERSIONS - 1)
			many = k + 1;
	if (many)
		recompiles(c, g, r, &x.frame[many - 1]);
	if (!c->failed && (x.b.regions || x.b.lookups) && !lg_is_told(c, LG_R_COMPILE_GRAPH_BREAKS))
		nested(c, g, r, &x.b);
	else if (!c->failed)
		many_frames(c, g, r, &x);
	lg_free(x.frame);
}
