/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range_times.c - where steps spend their time, by the ranges that the program marks: all that a trace
 * without operators, device, scheduler states and samples can tell.
 */
#include <stdio.h>

#include "analyse/device/device_rules.h"
#include "base/words.h"

enum { NAMES_MAX = 32, TOLD = 4 };

/* Of one run: time by name and step; [NAMES_MAX] is what is in no range, or in a name too many. */
struct times {
	lg_str name[NAMES_MAX];
	size_t n;
	int64_t (*by)[NAMES_MAX + 1];
};

/* Add [from, to), of the k-th name, to the steps that it lies in. */
static void add(const struct lg_gpu_run *r, struct times *s, size_t k, int64_t from, int64_t to)
{
	from = LG_MAX(from, r->from);
	to = LG_MIN(to, r->to);
	for (size_t i = lg_gpu_step_of(r, from); from < to && i < r->n_steps; i++) {
		int64_t end = LG_MIN(to, r->step[i + 1]);

		s->by[i][k] += end - from;
		s->by[i][NAMES_MAX] -= end - from;
		from = end;
	}
}

static int collect(const struct lg_trace *t, const struct lg_gpu_run *r, struct times *s)
{
	struct lg_range_walk w = lg_range_walk(lg_gpu_main_host(r));
	int64_t until = INT64_MIN;
	uint32_t row;

	s->by = lg_calloc(r->n_steps, sizeof *s->by);
	if (!s->by)
		return LG_E_NOMEM;
	for (size_t i = 0; i < r->n_steps; i++)
		s->by[i][NAMES_MAX] = lg_gpu_step_ns(r, i);
	while (lg_range_next(t, &w, &row)) {
		int64_t ts = LG_MAX(t->span.ts[row], until);
		size_t k = 0;

		until = w.covered;
		while (k < s->n && s->name[k] != t->span.name[row])
			k++;
		if (k == NAMES_MAX)
			continue;
		if (k == s->n)
			s->name[s->n++] = t->span.name[row];
		add(r, s, k, ts, until);
	}
	return 0;
}

/* "51 % in find_centers, 13 % in reader and 2 % in none", of v[0..NAMES_MAX], the largest first. */
static const char *shares(struct lg_case *c, const struct times *s, const int64_t *v, int64_t all)
{
	char text[512] = "";
	bool used[NAMES_MAX] = { false };
	int64_t rest = all;
	size_t len = 0;

	for (size_t i = 0; i < TOLD; i++) {
		size_t best = NAMES_MAX;

		for (size_t k = 0; k < s->n; k++)
			if (!used[k] && v[k] * 100 >= all && (best == NAMES_MAX || v[k] > v[best]))
				best = k;
		if (best == NAMES_MAX)
			break;
		used[best] = true;
		rest -= v[best];
		len += (size_t)snprintf(text + len, sizeof text - len, "%.0f %% in %.80s, ",
					100 * (double)v[best] / (double)all,
					lg_string(c->t, s->name[best]));
	}
	return lg_text(c, "%s%.0f %% in %s", text, 100 * (double)(rest > 0 ? rest : 0) / (double)all, len ?
		       "others or none" : "ranges that are each less than 1 %, or none");
}

/* In which ranges slow steps took longer than those that are not slow. */
static int say_slow(struct lg_case *c, const struct lg_gpu_run *r, const struct lg_step *step,
		    const struct times *s)
{
	int64_t more[NAMES_MAX + 1] = { 0 }, usual[NAMES_MAX + 1], all = 0;
	LG_AUTOFREE int64_t *normal = lg_calloc(r->n_steps, sizeof *normal);
	size_t n_slow = 0;

	if (!normal)
		return LG_E_NOMEM;
	lg_gpu_usual(step, r->n_steps, s->by[0], NAMES_MAX + 1, normal, usual);
	for (size_t i = 0; i < r->n_steps; n_slow += step[i++].slow)
		for (size_t k = 0; step[i].slow && k <= NAMES_MAX; k++)
			if (s->by[i][k] > usual[k]) {
				more[k] += s->by[i][k] - usual[k];
				all += s->by[i][k] - usual[k];
			}
	if (n_slow && all > 0)
		lg_say(c, LG_SAYS_TRACE_SLOW_IN_RANGES, n_slow, lg_s(n_slow), lg_ms(all), shares(c,
		       s, more, all));
	return 0;
}

int lg_range_times(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	size_t at = 0;

	for (size_t i = 0; i < g->n; at += g->run[i++].n_steps) {
		const struct lg_gpu_run *r = &g->run[i];
		int64_t sum[NAMES_MAX + 1] = { 0 };
		struct times s = { .n = 0 };
		int rc;

		if (r->scope != LG_SHOWS_RANGES || !r->n_steps)
			continue;
		rc = collect(c->t, r, &s);
		for (size_t k = 0; !rc && k < r->n_steps; k++)
			for (size_t n = 0; n <= NAMES_MAX; n++)
				sum[n] += s.by[k][n];
		if (!rc && !at)
			v->bound_why = lg_arena_printf(&v->arena, LG_SAYS_TRACE_BOUND_RANGES,
						       shares(c, &s, sum, r->to - r->from));
		if (!rc)
			rc = say_slow(c, r, v->steps + at, &s);
		lg_free(s.by);
		if (rc)
			return rc;
	}
	return 0;
}
