/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_side.c - what the main thread does on the side, and how long, where only operators were traced.
 *
 * Nothing works meanwhile that a save or a line of a log could hide behind: all of it is exposed. Of several
 * ranks, the one that has most of it makes the others wait.
 */
#include <math.h>

#include "analyse/device/cpu_rules.h"
#include "base/words.h"

static int time_of(struct lg_case *c, const struct lg_gpu_run *r, enum lg_host_class class,
		   struct lg_cpu_time *ret)
{
	const struct lg_gpu_host *h = lg_gpu_main_host(r);
	int64_t begin = 0, end = INT64_MIN;

	*ret = (struct lg_cpu_time){ .r = r, .row = LG_NO_ROW };
	ret->by_step = lg_arena_alloc(&c->v->arena, r->n_steps + 1, sizeof *ret->by_step);
	if (!ret->by_step)
		return LG_E_NOMEM;
	LG_EACH_WHERE(s->class == class && s->ts >= r->from && s->end <= r->to, s, h->seg, h->n) {
		ret->sum += s->end - s->ts;
		ret->by_step[lg_gpu_step_of(r, s->ts)] += s->end - s->ts;
		/* Calls in calls: one stretch. */
		ret->n += s->ts != end;
		begin = s->ts != end ? s->ts : begin;
		end = s->end;
		if (end - begin > ret->longest) {
			ret->longest = end - begin;
			ret->at = begin;
			ret->row = s->span;
		}
	}
	return 0;
}

/* Of all runs without a device, the one that has most of it; ret->r NULL: none has. */
static int most_of(struct lg_case *c, const struct lg_gpu *g, enum lg_host_class class,
		   struct lg_cpu_time *ret)
{
	double all = 0;
	size_t n = 0;

	*ret = (struct lg_cpu_time){ .r = NULL };
	LG_EACH(r, g->run, g->n) {
		struct lg_cpu_time t;

		if (!lg_cpu_judged(r))
			continue;
		if (time_of(c, r, class, &t))
			return LG_E_NOMEM;
		all += lg_cpu_share(&t);
		n++;
		if (!ret->r || lg_cpu_share(&t) > lg_cpu_share(ret))
			*ret = t;
	}
	ret->others = n > 1 ? (all - lg_cpu_share(ret)) / (double)(n - 1) : (double)NAN;
	return 0;
}

struct lg_finding *lg_cpu_exposed(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				  enum lg_host_class class, double floor, double confidence,
				  struct lg_cpu_time *ret)
{
	struct lg_finding *f;

	if (lg_failed(c, most_of(c, g, class, ret)) || !ret->r || lg_cpu_share(ret) < floor)
		return NULL;
	f = lg_gpu_finding(c, g, rule, lg_ms(ret->sum), lg_cpu_share(ret), confidence, ret->r);
	lg_gpu_cap_steps(c, f, ret->r, ret->by_step);
	return f;
}

const char *lg_cpu_who(struct lg_case *c, const struct lg_gpu_run *r)
{
	int32_t pid = c->t->process.pid[r->prc];

	if (r->rank >= 0)
		return lg_text(c, "rank %d", r->rank);
	return pid >= 0 ? lg_text(c, "process %d", pid) : "one process";
}

const char *lg_cpu_only_on(struct lg_case *c, struct lg_finding *f, const struct lg_cpu_time *t)
{
	if (!(t->others * 4 < lg_cpu_share(t))) /* one run only, too */
		return "";
	f->culprit.rank = t->r->rank;
	return lg_text(c, "; only on %s", lg_cpu_who(c, t->r));
}

static void tell(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule, enum lg_host_class class,
		 const char *what)
{
	struct lg_cpu_place at[3];
	struct lg_cpu_time t;
	struct lg_finding *f = lg_cpu_exposed(c, g, rule, class, lg_rule_floor(rule), 0.85, &t);
	size_t n;

	if (!f)
		return;
	lg_title(c, f, LG_SAYS_SIDE_ON_CPU, what, 100 * f->lost_share, lg_cpu_only_on(c, f, &t));
	lg_evidence_add(c, f, t.at, t.longest, LG_SAYS_ANY_TIMES, t.n, lg_s(t.n), lg_ms(t.sum));
	n = lg_cpu_places(&c->scene, t.r, &(struct lg_cpu_time_of){ class, t.r->from, t.r->to, NULL }, at, 3);
	for (size_t i = 0; i < n && at[i].ns * 10 >= at[0].ns; i++) {
		const char *where = lg_cpu_where(&c->scene, &at[i]);

		if (!i)
			f->culprit.function = where;
		lg_evidence(c, f, "%.1f ms of it at %s", lg_ms(at[i].ns), where);
	}
	if (t.r->has_frames)
		lg_evidence_against(c, f, LG_SAYS_ANY_PYTHON_SLOWER);
}

int lg_find_side_on_cpu(struct lg_case *c, struct lg_gpu *g)
{
	bool any = false;

	for (size_t i = 0; i < g->n; i++)
		any |= g->run[i].has_side;
	if (any && !c->failed) {
		tell(c, g, LG_R_SIDE_CHECKPOINT, LG_HOST_SIDE, "saves synchronously");
		tell(c, g, LG_R_SIDE_LOGGING, LG_HOST_LOG, "writes metrics or messages synchronously");
	}
	return c->failed;
}
