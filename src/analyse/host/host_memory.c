/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_memory.c - memory of the host that grows from step to step, by process (record/host_memory.h).
 *
 * A line through the readings of a process, against how many steps its rank had made by then, is its slope.
 * What keeps the memory is known under record --memory, where the process looks which of its containers grow,
 * and by how many bytes a step: one that makes up for most of the slope is named. Who touched memory first
 * (page faults, the same option) need not be who keeps it, since malloc gives out again what was given back,
 * and is told as such; but where a worker's pages become copies, that is the line which writes to them.
 * Otherwise the process is all there is.
 */
#include <math.h>
#include <stdio.h>

#include "analyse/chains/culprit.h"
#include "analyse/finders.h"
#include "analyse/host/host_memory.h"
#include "analyse/steps/steps.h"
#include "base/words.h"

enum { LINES_TOLD = 3, LINES = 256, CONTAINERS = 64, LOOKS = 2, PAGE = 4096, WHERE_BYTES = 512 };

/* One process's counter of bytes. */
struct growing {
	lg_prc prc;
	double slope, r2;   /* bytes a step; r2: of the changes that the line explains */
	double first, last; /* bytes */
	double steps;	    /* between the first reading that counts and the last */
	size_t readings;
	int64_t from, to;
};

/* Whose steps count; r NULL: nobody's, and seconds do. */
struct clock {
	const struct lg_rank *r;
	int64_t from, to;
};

/* Those of r that the verdict has: of a device's trace it may have others. */
static size_t steps_of(const struct lg_case *c, const struct lg_rank *r)
{
	size_t left = r->step_first < c->v->n_steps ? c->v->n_steps - r->step_first : 0;

	return LG_MIN(r->n_steps, left);
}

static struct clock clock_of(const struct lg_case *c, const struct lg_rank *r)
{
	struct clock k = { .r = r, .from = c->t->first, .to = c->t->last };
	bool any = false;

	for (size_t i = 0; r && i < steps_of(c, r); i++) {
		const struct lg_step *s = &c->v->steps[r->step_first + i];

		if (s->warmup)
			continue;
		if (!any)
			k.from = s->ts;
		any = true;
		k.to = s->ts + s->dur;
	}
	if ((r && !any) || k.to < k.from) /* an empty trace ends before it begins */
		k.to = k.from;
	k.from += (int64_t)(LG_N_MEM_LEAK_WARM_UP * (double)(k.to - k.from));
	return k;
}

/* Steps made by ts, with the part of the one that is under way. */
static double steps_at(const struct lg_case *c, const struct clock *k, int64_t ts)
{
	const struct lg_step *s;
	size_t lo = 0, hi;

	if (!k->r)
		return lg_seconds(ts - k->from);
	s = &c->v->steps[k->r->step_first];
	hi = steps_of(c, k->r);
	while (lo < hi) { /* how many began before ts */
		size_t mid = lo + (hi - lo) / 2;

		if (s[mid].ts <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return 0;
	return (double)(lo - 1) +
	       (s[lo - 1].dur > 0 ? fmin(1, (double)(ts - s[lo - 1].ts) / (double)s[lo - 1].dur) : 1);
}

static double fit(const double *x, const double *y, size_t n, double *ret_r2)
{
	double mx = 0, my = 0, xx = 0, xy = 0, yy = 0;

	for (size_t i = 0; i < n; i++) {
		mx += x[i] / (double)n;
		my += y[i] / (double)n;
	}
	for (size_t i = 0; i < n; i++) {
		xx += (x[i] - mx) * (x[i] - mx);
		xy += (x[i] - mx) * (y[i] - my);
		yy += (y[i] - my) * (y[i] - my);
	}
	*ret_r2 = xx > 0 && yy > 0 ? xy * xy / (xx * yy) : 0;
	return xx > 0 ? xy / xx : 0;
}

/* The line through a counter's readings; false: there are too few. Whether it grows, is_leak() says. */
static bool line_of(struct lg_case *c, const struct clock *k, lg_trk track, double *x, double *y,
		    struct growing *ret)
{
	const struct lg_counter_tab *t = &c->t->counter;
	size_t n = 0;

	*ret = (struct growing){ .prc = c->t->track.prc[track] };
	LG_LISTED(row, c->idx->counter, track) {
		if (t->ts[row] < k->from || t->ts[row] > k->to || !isfinite(t->value[row]))
			continue;
		x[n] = steps_at(c, k, t->ts[row]);
		y[n] = t->value[row];
		if (!n++)
			ret->from = t->ts[row];
		ret->to = t->ts[row];
	}
	if (n < LG_N_MEM_LEAK_READINGS ||
	    (!k->r && ret->to - ret->from < LG_N_MEM_LEAK_STEPLESS_S * INT64_C(1000000000)))
		return false;
	ret->slope = fit(x, y, n, &ret->r2);
	ret->first = y[0];
	ret->last = y[n - 1];
	ret->steps = x[n - 1] - x[0];
	ret->readings = n;
	return true;
}

/* Does it grow by much, all the time and to the end? x and y are its readings. */
static bool is_leak(const struct growing *g, const double *x, const double *y)
{
	double grown = g->slope * g->steps, r2;
	size_t half = g->readings / 2;
	double early = fit(x, y, half, &r2), late = fit(x + half, y + half, g->readings - half, &r2);

	return g->slope > 0 && g->r2 >= LG_N_MEM_LEAK_FIT && g->steps >= LG_N_MEM_LEAK_STEPS &&
	       grown >= (double)LG_N_MEM_LEAK_HOST_MIB * 1048576 &&
	       grown >= LG_N_MEM_LEAK_HOST_GROWTH * g->last && early > 0 &&
	       late >= LG_N_MEM_LEAK_HALF * early;
}

/* ---- which line touched the memory first ---- */

/* "remember (metrics.py:44)" */
static const char *line_text(struct lg_case *c, lg_frm f)
{
	char name[WHERE_BYTES];
	const char *file = lg_string(c->t, c->t->frame.file[f]), *base = strrchr(file, '/');

	lg_frame_text(c->t, f, name, sizeof name);
	return *file ? lg_text(c, "%s (%s:%u)", name, base ? base + 1 : file, c->t->frame.line[f])
		     : lg_text(c, "%s", name);
}

struct touched {
	double all;
	double *of;    /* by frame */
	lg_stk *stack; /* one of each */
	lg_frm line[LINES];
	size_t n_lines;
};

/* One frame for all that are of one line: a code object that was made anew has another. */
static lg_frm same_line(const struct lg_trace *t, struct touched *k, lg_frm f)
{
	size_t i = 0;

	while (i < k->n_lines && (t->frame.name[k->line[i]] != t->frame.name[f] ||
				  t->frame.file[k->line[i]] != t->frame.file[f] ||
				  t->frame.line[k->line[i]] != t->frame.line[f]))
		i++;
	if (i == k->n_lines && i < LINES)
		k->line[k->n_lines++] = f;
	return i < LINES ? k->line[i] : f;
}

static void add_faults(struct lg_case *c, const struct growing *g, struct touched *ret)
{
	const struct lg_sample_tab *s = &c->t->sample;

	for (size_t i = 0; i < s->n; i++) {
		lg_stk k;
		double bytes = (double)s->weight[i] * PAGE;

		if (s->ts[i] < g->from || s->ts[i] >= g->to || c->t->thread.prc[s->thr[i]] != g->prc ||
		    strcmp(lg_string(c->t, s->event[i]), "page-faults") != 0)
			continue;
		ret->all += bytes;
		k = s->stack[i] ? lg_memory_program_frame(c->t, s->stack[i]) : 0;
		if (!k)
			continue;
		ret->of[same_line(c->t, ret, c->t->stack.frame[k])] += bytes;
		ret->stack[same_line(c->t, ret, c->t->stack.frame[k])] = k;
	}
}

static lg_frm most_touched(const struct lg_trace *t, const struct touched *f, const lg_frm *but, size_t n)
{
	lg_frm most = 0;

	for (lg_frm k = 1; k < t->frame.n; k++) {
		bool told = false;

		for (size_t i = 0; i < n; i++)
			told |= but[i] == k;
		if (!told && f->of[k] > f->of[most])
			most = k;
	}
	return most;
}

/* The lines that touched most. copies: they are what grows, so the first is named if it must be most of it.
 */
static void tell_lines(struct lg_case *c, struct lg_finding *f, const struct growing *g, bool copies)
{
	LG_AUTOFREE double *of = lg_scratch(c, c->t->frame.n + 1, sizeof *of);
	LG_AUTOFREE lg_stk *stack = lg_scratch(c, c->t->frame.n + 1, sizeof *stack);
	struct touched k = { .of = of, .stack = stack };
	double grown = g->slope * g->steps, went;
	lg_frm told[LINES_TOLD] = { 0 };
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];

	if (!of || !stack)
		return;
	add_faults(c, g, &k);
	if (!(k.all > 0)) {
		if (!f->culprit.function)
			lg_evidence_against(c, f, LG_SAYS_MEM_LEAK_NO_LINES);
		return;
	}
	lg_evidence(c, f, LG_SAYS_MEM_LEAK_TOUCHED, lg_bytes_text(k.all, a), lg_bytes_text(grown, b));
	for (size_t i = 0; i < LINES_TOLD; i++) {
		told[i] = most_touched(c->t, &k, told, i);
		if (!told[i] || k.of[told[i]] < LG_N_MEM_LEAK_LINE * k.all)
			break;
		lg_evidence(c, f, LG_SAYS_MEM_LEAK_LINE, lg_percent(k.of[told[i]], k.all),
			    line_text(c, told[i]));
	}
	went = fmax(0, k.all - grown);
	if (!copies && !f->culprit.function)
		lg_evidence_against(c, f, LG_SAYS_MEM_LEAK_NO_PROOF);
	if (!copies || !told[0] || k.of[told[0]] - went < grown / 2)
		return;
	lg_culprit_set_stack(c, f, k.stack[told[0]]);
	f->culprit.function = line_text(c, told[0]);
	f->title = lg_text(c, LG_SAYS_MEM_LEAK_WHERE, f->title, f->culprit.function);
}

/* ---- which container keeps it ---- */

static const char graph[] = ", whose items keep their graphs"; /* hook/laggard/_memory.py */

struct kept {
	lg_str what;
	double sum;
	size_t n;
};

/* By name, what each look told; *ret: how many names. */
static size_t add_looks(const struct lg_case *c, const struct growing *g, struct kept v[CONTAINERS])
{
	size_t n = 0;

	LG_EACH_MARK_OF(i, c->t, g->prc, "memory.container") {
		size_t k = 0;

		while (k < n && v[k].what != c->t->mark.text[i])
			k++;
		if (k == CONTAINERS)
			continue;
		n = k == n ? n + 1 : n;
		v[k].what = c->t->mark.text[i];
		v[k].sum += (double)c->t->mark.value[i];
		v[k].n++;
	}
	return n;
}

static void name_container(struct lg_case *c, struct lg_finding *f, const struct growing *g)
{
	struct kept v[CONTAINERS] = { 0 }, *most = v;
	size_t n = add_looks(c, g, v);
	const char *what, *end;
	char a[LG_BYTES_TEXT];

	for (size_t i = 0; i < n; i++)
		most = v[i].sum / (double)v[i].n > most->sum / (double)most->n ? &v[i] : most;
	if (!n)
		return;
	what = lg_string(c->t, most->what);
	lg_evidence(c, f, LG_SAYS_MEM_LEAK_GROWS, what, lg_bytes_text(most->sum / (double)most->n, a),
		    most->n, lg_s(most->n));
	if (most->n < LOOKS || most->sum / (double)most->n < LG_N_MEM_LEAK_KEPT * g->slope)
		return;
	end = strstr(what, graph);
	if (end)
		f->detail = "host_graph";
	f->culprit.function = lg_text(c, "%.*s", (int)(end ? (size_t)(end - what) : strlen(what)), what);
	f->title = lg_text(c, end ? LG_SAYS_MEM_LEAK_KEPT_GRAPH : LG_SAYS_MEM_LEAK_KEPT_IN, f->title,
			   f->culprit.function);
}

/* ---- findings ---- */

static double last_of(const struct lg_case *c, const char *name)
{
	double v = NAN;

	for (lg_trk k = 1; k < c->t->track.n; k++)
		if (c->t->track.kind[k] == LG_TRACK_COUNTER &&
		    !strcmp(lg_string(c->t, c->t->track.name[k]), name))
			LG_LISTED(row, c->idx->counter, k)
	v = c->t->counter.value[row];
	return v;
}

static struct lg_finding *leak(struct lg_case *c, const struct clock *k, const struct growing *g,
			       const char *detail)
{
	struct lg_finding *f = lg_finding_about(c, LG_R_MEM_LEAK, LG_STAGE_NONE, LG_RELATION_SELF, 0.9);

	lg_culprit_identify(c, f, c->idx->main_of[g->prc], 0);
	f->culprit.relation = LG_RELATION_SELF;
	f->culprit.pid = c->t->process.pid[g->prc];
	f->culprit.rank = k->r ? k->r->rank : c->t->process.rank[g->prc];
	f->detail = detail;
	return f;
}

static void say_growth(struct lg_case *c, struct lg_finding *f, const struct clock *k,
		       const struct growing *g, double all_slopes)
{
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT];
	double left = last_of(c, "mem.available");

	lg_evidence_add(c, f, g->from, g->to - g->from, LG_SAYS_MEM_LEAK_HOST_LINE,
			lg_bytes_text(g->first, a), lg_bytes_text(g->last, b), g->steps,
			k->r ? "steps" : "seconds", g->readings, g->r2);
	if (left > 0)
		lg_evidence(c, f, LG_SAYS_MEM_LEAK_LEFT, lg_bytes_text(left, a), left / all_slopes,
			    k->r ? "steps" : "seconds");
}

static const char *who_of(struct lg_case *c, lg_prc p)
{
	if (c->t->process.rank[p] >= 0)
		return lg_text(c, "rank %d", c->t->process.rank[p]);
	return lg_text(c, "process %d (%s)", c->t->process.pid[p], lg_string(c->t, c->t->process.comm[p]));
}

/* The rank that started p, itself or by others; NULL. */
static const struct lg_rank *rank_above(struct lg_case *c, lg_prc p)
{
	enum { GENERATIONS = 64 };
	uint32_t r = lg_rank_above(c, p, GENERATIONS);

	return r == UINT32_MAX ? NULL : &c->ranks[r];
}

/* Ranks that leak do so together, as a rule: one finding, about the fastest. */
static void say_own(struct lg_case *c, const struct growing *v, size_t n)
{
	const struct growing *most = v;
	struct lg_finding *f;
	struct clock k;
	char a[LG_BYTES_TEXT];
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		sum += v[i].slope;
		most = v[i].slope > most->slope ? &v[i] : most;
	}
	k = clock_of(c, rank_above(c, most->prc));
	f = leak(c, &k, most, "host");
	for (size_t i = 0; i < n && n > 1; i++)
		lg_culprit_rank_add(c, f, c->t->process.rank[v[i].prc]);
	for (size_t i = 0; i < n; i++)
		lg_victim_add(c, f, n, c->t->process.rank[v[i].prc], v[i].prc, c->idx->main_of[v[i].prc]);
	if (n > 1)
		lg_title(c, f, LG_SAYS_MEM_LEAK_HOST_ALL, n, lg_bytes_text(most->slope, a),
			 who_of(c, most->prc));
	else
		lg_title(c, f, LG_SAYS_MEM_LEAK_HOST, who_of(c, most->prc), lg_bytes_text(most->slope, a),
			 k.r ? "step" : "second");
	say_growth(c, f, &k, most, sum);
	name_container(c, f, most);
	tell_lines(c, f, most, false);
}

/* Processes below a rank, all that grow together. */
static void say_workers(struct lg_case *c, const struct clock *k, const struct growing *v, size_t n,
			bool copies)
{
	const struct growing *most = v;
	struct lg_finding *f;
	double sum = 0;
	char a[LG_BYTES_TEXT];

	for (size_t i = 0; i < n; i++) {
		sum += v[i].slope;
		most = v[i].slope > most->slope ? &v[i] : most;
	}
	f = leak(c, k, most, copies ? "copy_on_write" : "workers");
	if (copies)
		lg_title(c, f, LG_SAYS_MEM_LEAK_COPIES, n, lg_s(n), who_of(c, k->r->prc),
			 lg_bytes_text(sum, a));
	else
		lg_title(c, f, LG_SAYS_MEM_LEAK_WORKERS, n, n == 1 ? "" : "es", who_of(c, k->r->prc),
			 lg_bytes_text(sum, a));
	if (copies)
		lg_evidence(c, f, LG_SAYS_MEM_LEAK_PRIVATE);
	say_growth(c, f, k, most, sum);
	tell_lines(c, f, most, copies);
}

enum series { NOT_OURS, ANON, PRIVATE };

static enum series series_of(const struct lg_trace *t, lg_trk k)
{
	const char *name = lg_string(t, t->track.name[k]);

	if (t->track.kind[k] != LG_TRACK_COUNTER || !t->track.prc[k])
		return NOT_OURS;
	return !strcmp(name, "process.anon") ? ANON : !strcmp(name, "process.private") ? PRIVATE : NOT_OURS;
}

/* A track of one of them, and whose steps count for its process. */
struct ours {
	lg_trk track;
	enum series series;
	const struct lg_rank *of;
};

/* Rooms of one size each, for as many readings, or tracks, as there are. */
struct room {
	double *x, *y, *anon; /* anon: by process, its slope; */
	struct growing *v, *own;
	size_t n_own;
	struct ours *ours;    /* by track */
	size_t n_ours;
};

/* What of kind `want` grows below rank r, itself left out; *ret_n of them. */
static void below_rank(struct lg_case *c, const struct clock *k, enum series want, struct room *m,
		       size_t *ret_n)
{
	struct growing g;

	*ret_n = 0;
	LG_EACH(i, m->ours, m->n_ours) {
		lg_prc p = c->t->track.prc[i->track];

		if (i->series != want || c->rank_of_prc[p] || i->of != k->r ||
		    !line_of(c, k, i->track, m->x, m->y, &g))
			continue;
		if (want == ANON)
			m->anon[p] = g.slope;
		/* What it has of its own grows, and all that it has does not: it copies what it shared. */
		if (is_leak(&g, m->x, m->y) && (want == ANON || m->anon[p] < g.slope / 2))
			m->v[(*ret_n)++] = g;
	}
}

static void of_rank(struct lg_case *c, const struct lg_rank *r, struct room *m)
{
	struct clock k = clock_of(c, r);
	struct growing g;
	size_t n;

	LG_EACH(i, m->ours, m->n_ours)
		if (m->n_own < m->n_ours && i->series == ANON && c->t->track.prc[i->track] == r->prc &&
		    line_of(c, &k, i->track, m->x, m->y, &g) && is_leak(&g, m->x, m->y))
			m->own[m->n_own++] = g;
	below_rank(c, &k, ANON, m, &n);
	if (n)
		say_workers(c, &k, m->v, n, false);
	below_rank(c, &k, PRIVATE, m, &n);
	if (n)
		say_workers(c, &k, m->v, n, true);
}

/* All tracks are asked once, not once for each rank. */
static int find_ours(struct lg_case *c, struct ours **ret, size_t *ret_n)
{
	size_t cap = 0;

	for (lg_trk i = 1; i < c->t->track.n; i++) {
		struct ours o = { .track = i, .series = series_of(c->t, i) };

		if (o.series == NOT_OURS)
			continue;
		o.of = rank_above(c, c->t->track.prc[i]);
		if (lg_failed(c, LG_APPEND(*ret, *ret_n, cap, o)))
			break;
	}
	return c->failed;
}

static int look_for_leaks(struct lg_case *c, struct ours *ours, size_t n)
{
	LG_AUTOFREE double *x = lg_scratch(c, c->t->counter.n + 1, sizeof *x);
	LG_AUTOFREE double *y = lg_scratch(c, c->t->counter.n + 1, sizeof *y);
	LG_AUTOFREE double *anon = lg_scratch(c, c->t->process.n + 1, sizeof *anon);
	LG_AUTOFREE struct growing *v = lg_scratch(c, n + 1, sizeof *v);
	LG_AUTOFREE struct growing *own = lg_scratch(c, n + 1, sizeof *own);
	struct room m = { .x = x, .y = y, .anon = anon, .v = v, .own = own, .ours = ours, .n_ours = n };
	struct clock none = clock_of(c, NULL);

	if (!x || !y || !anon || !v || !own)
		return c->failed;
	for (size_t i = 0; i < c->n_ranks; i++)
		of_rank(c, &c->ranks[i], &m);
	LG_EACH_WHILE(!c->n_ranks, i, ours, n)
		if (i->series == ANON && line_of(c, &none, i->track, x, y, &own[m.n_own]) &&
		    is_leak(&own[m.n_own], x, y))
			m.n_own++;
	if (m.n_own)
		say_own(c, own, m.n_own);
	return c->failed;
}

int lg_find_host_memory(struct lg_case *c)
{
	LG_AUTOFREE struct ours *ours = NULL;
	size_t n = 0;

	if (find_ours(c, &ours, &n) || (n && look_for_leaks(c, ours, n)))
		return c->failed;
	lg_find_host_kills(c);
	return c->failed;
}
