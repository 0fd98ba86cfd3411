/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.c - marks of windows and steps to what a part costs. */
#include "diff/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "diff/diff.h"

enum { KINDS_MAX = 64 };

struct window {
	lg_thr thr;
	lg_str kind;
	int64_t round, from, to;
	int64_t sum;  /* ns of its steps without what they save */
	size_t steps;
};

struct skip {
	lg_thr thr;
	int64_t ts;
};

/* The step that a thread is in. */
struct inside {
	int64_t end;
	struct window *w; /* NULL: of none */
};

struct work {
	const struct lg_trace *t;
	struct window *w;
	size_t n, cap;
	struct skip *skip;
	size_t n_skip, cap_skip;
	struct inside *in; /* by thread */
};

static int by_thread_and_time(const void *a, const void *b)
{
	const struct window *x = a, *y = b;

	if (x->thr != y->thr)
		return x->thr < y->thr ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

static int skips_by_thread(const void *a, const void *b)
{
	const struct skip *x = a, *y = b;

	if (x->thr != y->thr)
		return x->thr < y->thr ? -1 : 1;
	return x->ts < y->ts ? -1 : x->ts > y->ts;
}

static int by_round(const void *a, const void *b)
{
	const struct window *x = a, *y = b;

	return x->round < y->round ? -1 : x->round > y->round;
}

/* A window ends where its thread says so; one that never does counts nothing. */
static int collect(struct work *k)
{
	const struct lg_trace *t = k->t;
	LG_AUTOFREE size_t *open = lg_calloc(t->thread.n, sizeof *open); /* + 1 */

	if (!open)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->mark.n; i++) {
		const char *name = lg_string(t, t->mark.name[i]);
		lg_thr thr = t->mark.thr[i];

		if (strncmp(name, "roofline.", 9))
			continue;
		if (!strcmp(name, "roofline.window")) {
			if (lg_grow(&k->w, &k->cap, k->n + 1, sizeof *k->w))
				return LG_E_NOMEM;
			k->w[k->n] = (struct window){ .thr = thr,
						      .kind = t->mark.text[i],
						      .round = t->mark.value[i],
						      .from = t->mark.ts[i],
						      .to = INT64_MIN };
			open[thr] = ++k->n;
		} else if (!strcmp(name, "roofline.end") && open[thr]) {
			k->w[open[thr] - 1].to = t->mark.ts[i];
			open[thr] = 0;
		} else if (!strcmp(name, "roofline.skip")) {
			if (lg_grow(&k->skip, &k->cap_skip, k->n_skip + 1, sizeof *k->skip))
				return LG_E_NOMEM;
			k->skip[k->n_skip++] = (struct skip){ thr, t->mark.ts[i] };
		}
	}
	if (k->n)
		qsort(k->w, k->n, sizeof *k->w, by_thread_and_time);
	if (k->n_skip)
		qsort(k->skip, k->n_skip, sizeof *k->skip, skips_by_thread);
	return 0;
}

/* The window of thr that ts lies in. */
static struct window *window_at(const struct work *k, lg_thr thr, int64_t ts)
{
	size_t lo = 0, hi = k->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (k->w[mid].thr < thr || (k->w[mid].thr == thr && k->w[mid].from <= ts))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && k->w[lo - 1].thr == thr && ts < k->w[lo - 1].to ? &k->w[lo - 1] : NULL;
}

static bool is_skipped(const struct work *k, lg_thr thr, int64_t from, int64_t to)
{
	size_t lo = 0, hi = k->n_skip;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (k->skip[mid].thr < thr || (k->skip[mid].thr == thr && k->skip[mid].ts < from))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < k->n_skip && k->skip[lo].thr == thr && k->skip[lo].ts < to;
}

/* Steps into their windows. A window's marks follow those of its first and last step: the middle of a step
 * tells. */
static void fill(struct work *k, struct lg_roofline *r)
{
	const struct lg_trace *t = k->t;

	for (size_t i = 0; i < t->span.n; i++) {
		lg_thr thr = t->span.thr[i];
		int64_t ts = t->span.ts[i], dur = t->span.dur[i];
		struct inside *in = &k->in[thr];

		if (!thr || dur < 0 || ts > INT64_MAX - dur)
			continue;
		if (t->span.kind[i] == LG_SPAN_STEP) {
			*in = (struct inside){ ts + dur, window_at(k, thr, ts + dur / 2) };
			r->steps++;
			if (in->w && is_skipped(k, thr, ts, ts + dur)) {
				in->w = NULL;
				r->skipped++;
			}
			if (!in->w)
				continue;
			in->w->sum += dur;
			in->w->steps++;
			r->counted++;
		} else if (t->span.kind[i] == LG_SPAN_STAGE && t->span.stage[i] == LG_STAGE_SIDE && in->w &&
			   ts + dur <= in->end && !(t->span.flags[i] & LG_SPAN_ASYNC)) {
			in->w->sum -= dur;
		}
	}
}

/* Mean time of a step in the windows of one kind and round, over all processes: from *at on, which goes on
 * to the next round. NAN: none has enough steps of it. */
static double mean_of_round(const struct work *k, size_t from, size_t to, lg_str kind, size_t enough)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = from; i < to; i++) {
		if (k->w[i].kind != kind || k->w[i].steps < enough || k->w[i].sum <= 0)
			continue;
		sum += (double)k->w[i].sum / (double)k->w[i].steps;
		n++;
	}
	return n ? sum / (double)n : (double)NAN;
}

static void estimate(struct lg_roofline_part *p, const double *with, const double *without)
{
	double a = 0, b = 0, var = 0, ratio, n = (double)p->rounds, half;

	for (size_t i = 0; i < p->rounds; i++) {
		a += with[i];
		b += without[i];
	}
	ratio = b / a;
	for (size_t i = 0; i < p->rounds; i++)
		var += (without[i] - ratio * with[i]) * (without[i] - ratio * with[i]);
	half = lg_student95(n - 1) * sqrt(var / (n * (n - 1))) / (a / n);
	p->with = 1e9 * n / a;
	p->without = 1e9 * n / b;
	p->share = 1 - ratio;
	p->lo = p->share - half;
	p->hi = p->share + half;
}

/* Windows are in order of rounds. */
static int compare(const struct work *k, lg_str base, lg_str kind, size_t enough, struct lg_roofline_part *p)
{
	LG_AUTOFREE double *with = lg_calloc(k->n + 1, sizeof *with),
			   *without = lg_calloc(k->n + 1, sizeof *without);

	if (!with || !without)
		return LG_E_NOMEM;
	*p = (struct lg_roofline_part){ lg_string(k->t, kind), NAN, NAN, NAN, NAN, NAN, 0 };
	for (size_t i = 0, end; i < k->n; i = end) {
		for (end = i; end < k->n && k->w[end].round == k->w[i].round; end++)
			;
		with[p->rounds] = mean_of_round(k, i, end, base, enough);
		without[p->rounds] = mean_of_round(k, i, end, kind, enough);
		p->rounds += isfinite(with[p->rounds]) && isfinite(without[p->rounds]);
	}
	if (p->rounds >= LG_ROOFLINE_ROUNDS_MIN)
		estimate(p, with, without);
	return 0;
}

static void refuse(struct lg_roofline *r, const char *part, const char *why)
{
	for (size_t i = 0; i < r->n_refused; i++)
		if (!strcmp(r->refused[i].part, part))
			return; /* each rank says so */
	if (r->n_refused < sizeof r->refused / sizeof *r->refused)
		r->refused[r->n_refused++] = (struct lg_roofline_refused){ part, why };
}

static void facts(struct lg_roofline *r)
{
	static const char cannot[] = "roofline.cannot.";
	const struct lg_trace *t = r->t;

	for (size_t i = 0; i < t->meta.n; i++) {
		const char *key = lg_string(t, t->meta.key[i]), *value = lg_string(t, t->meta.value[i]);

		if (!strcmp(key, "roofline.loader"))
			r->loader = r->loader ? r->loader : value;
		else if (!strcmp(key, "roofline.kept"))
			r->kept = value;
		else if (!strcmp(key, "roofline.kept_on"))
			r->kept_on = value;
		else if (!strncmp(key, cannot, sizeof cannot - 1))
			refuse(r, key + sizeof cannot - 1, value);
	}
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_MARKS_OFF)
			r->off = lg_string(t, t->diag.text[i]);
}

static int parts(struct work *k, struct lg_roofline *r)
{
	lg_str kinds[KINDS_MAX], real = 0, base = 0;
	size_t n = 0, most = 0;
	lg_thr last = 0;

	LG_EACH(w, k->w, k->n) {
		const char *name = lg_string(k->t, w->kind);
		size_t i = 0;

		r->processes += w->thr != last;
		last = w->thr;
		most = w->steps > most ? w->steps : most;
		while (i < n && kinds[i] != w->kind)
			i++;
		if (i == n && n < KINDS_MAX)
			kinds[n++] = w->kind;
		real = !strcmp(name, "real") ? w->kind : real;
		base = !strcmp(name, "cached") ? w->kind : base;
	}
	base = base ? base : real;
	if (k->n)
		qsort(k->w, k->n, sizeof *k->w, by_round);
	r->parts = lg_calloc(n + 1, sizeof *r->parts);
	if (!r->parts)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++)
		if (kinds[i] != real && compare(k, kinds[i] == base ? real : base, kinds[i], most / 2 + 1,
						&r->parts[r->n_parts++]))
			return LG_E_NOMEM;
	return 0;
}

int lg_roofline_new(const struct lg_trace *t, struct lg_roofline **ret, struct lg_error *err)
{
	struct lg_roofline *r = lg_calloc(1, sizeof *r);
	struct work k = { .t = t };
	int rc = r ? 0 : LG_E_NOMEM;

	if (r) {
		r->t = t;
		facts(r);
		k.in = lg_calloc(t->thread.n, sizeof *k.in);
		rc = k.in ? collect(&k) : LG_E_NOMEM;
	}
	if (!rc) {
		fill(&k, r);
		rc = parts(&k, r);
	}
	lg_free(k.w);
	lg_free(k.skip);
	lg_free(k.in);
	if (rc) {
		lg_roofline_free(r);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = r;
	return 0;
}

void lg_roofline_free(struct lg_roofline *r)
{
	if (!r)
		return;
	lg_free(r->parts);
	lg_free(r);
}
