/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_saves.c - checkpoints that a job's log tells of, and the step times that it states.
 *
 * A step whose line follows that of a save holds the save, whether or not lines have times. That the slow
 * steps are those that hold one is tested against chance: of n steps with k slow ones, how often would s
 * steps drawn blindly hit as many of them (the hypergeometric distribution's tail).
 */
#include <math.h>

#include "analyse/finders.h"
#include "analyse/steps/judge.h"
#include "analyse/steps/log_steps.h"
#include "base/chance.h"
#include "base/words.h"

enum { MIN_STEPS = 8 };

struct stated {
	int64_t ts;
	double ms;
	bool holds; /* a save's line lies between this one and the one before */
};

struct steps {
	struct stated *v;
	size_t n, next; /* next: of which the lines before it are still being read */
	bool save;      /* one was told since the line before */
};

/* What the slow ones and those that hold a save have in common. */
struct joined {
	size_t n, slow, saves, hits;
	double median, excess, lost, all;
	int64_t at, dur; /* the longest one that holds a save */
};

static void pass(struct steps *s)
{
	s->v[s->next++].holds = s->save;
	s->save = false;
}

/* Marks lie in the order of the log's lines, also where a clock of whole seconds gives several one time. */
static void place_saves(const struct lg_trace *t, lg_prc prc, lg_str save, lg_str step, struct steps *s)
{
	for (size_t i = 0; i < t->mark.n; i++) {
		bool is_save = t->mark.name[i] == save;

		if (!is_save && (t->mark.name[i] != step || t->thread.prc[t->mark.thr[i]] != prc))
			continue;
		while (s->next < s->n && s->v[s->next].ts < t->mark.ts[i])
			pass(s);
		s->save |= is_save;
		if (is_save || t->mark.value[i] < 0)
			continue;
		if (s->next < s->n && s->v[s->next].ts == t->mark.ts[i])
			pass(s);
	}
	while (s->next < s->n)
		pass(s);
}

static int join(const struct steps *s, struct joined *j)
{
	LG_AUTOFREE double *ms = lg_calloc(s->n, sizeof *ms);
	double limit;
	size_t warm = 0;

	if (!ms)
		return LG_E_NOMEM;
	for (size_t i = 0; i < s->n; i++)
		ms[i] = s->v[i].ms;
	limit = lg_slow_of(ms, s->n, &j->median);
	while (warm < s->n / 5 && s->v[warm].ms > limit)
		warm++;
	for (size_t i = warm; i < s->n; i++) {
		const struct stated *v = &s->v[i];
		bool slow = v->ms > limit, longest = v->ms * 1e6 > (double)j->dur && v->ms < 1e12;

		j->n++;
		j->all += v->ms;
		j->slow += slow;
		j->saves += v->holds;
		j->hits += slow && v->holds;
		j->excess += slow ? v->ms - j->median : 0;
		j->lost += slow && v->holds ? v->ms - j->median : 0;
		if (slow && v->holds && longest) {
			j->at = v->ts;
			j->dur = (int64_t)(v->ms * 1e6);
		}
	}
	return 0;
}

static void tell(struct lg_case *c, const struct joined *j, double per_line, double p, const char *line)
{
	struct lg_verdict *v = c->v;
	struct lg_finding *f =
		lg_finding_about(c, LG_R_SIDE_CHECKPOINT, LG_STAGE_SIDE, LG_RELATION_SELF, 0.85);
	char text[LG_MS_TEXT];

	f->lost_ms = j->lost * per_line;
	f->lost_share = j->lost / j->all;
	f->excess_share = j->lost / j->excess;
	lg_grade_steady(f);
	lg_grade_part(f, lg_proven(j->hits), 0);
	lg_title(c, f, LG_SAYS_SIDE_CHECKPOINT_LOG_TITLE, j->hits, j->slow,
		 lg_ms_text(j->lost * per_line / (double)j->hits, text));
	lg_evidence_add(c, f, j->at, j->dur, LG_SAYS_SIDE_CHECKPOINT_LOG_LONGEST,
			lg_ms_text(j->median, text));
	lg_evidence(c, f, LG_SAYS_SIDE_CHECKPOINT_LOG_CHANCE, j->saves, j->n, j->hits,
		    j->n - j->saves, j->slow - j->hits, p);
	lg_evidence(c, f, "%s", line);
	lg_evidence_against(c, f, LG_SAYS_SIDE_CHECKPOINT_LOG_ORDER);
	lg_explains_excess(v, f);
}

static int judge(struct lg_case *c, const struct lg_stated *of, lg_str save, const char *line)
{
	const struct lg_trace *t = c->t;
	lg_str step = 0;
	struct steps s = { .v = lg_arena_alloc(&c->v->arena, of->n, sizeof *s.v) };
	struct joined j = { 0 };
	double p;

	if (!s.v)
		return LG_E_NOMEM;
	for (size_t i = 0; !step && i < t->mark.n; i++)
		if (lg_is_mark(t, i, "log.step"))
			step = t->mark.name[i];
	LG_LISTED(i, c->idx->counter, of->track)
		s.v[s.n++] = (struct stated){ .ts = t->counter.ts[i], .ms = t->counter.value[i] };
	place_saves(t, t->track.prc[of->track], save, step, &s);
	if (join(&s, &j))
		return LG_E_NOMEM;
	p = lg_hypergeometric_tail(j.n, j.slow, j.saves, j.hits);
	/* Saves at every third of the slow steps follow another thing's beat. */
	if (j.hits >= LG_N_SIDE_CHECKPOINT_HITS && p < LG_N_SIDE_CHECKPOINT_P &&
	    (double)j.hits >= LG_N_SIDE_CHECKPOINT_OF_SAVES * (double)j.saves &&
	    (double)j.hits >= LG_N_SIDE_CHECKPOINT_OF_SLOW * (double)j.slow)
		tell(c, &j, lg_steps_per_line(t, t->track.prc[of->track]), p, line);
	return 0;
}

int lg_join_saves(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	struct lg_stated of;
	size_t i = 0;

	if (!lg_is_log_alone(c))
		return 0;
	while (i < t->mark.n && !lg_is_mark(t, i, "log.checkpoint"))
		i++;
	if (i == t->mark.n)
		return 0;
	of = lg_stated_steps(c->idx, MIN_STEPS);
	if (of.track && of.kind != LG_STATED_OTHER_WORK && judge(c, &of, t->mark.name[i],
							     lg_string(t, t->mark.text[i])))
		c->failed = LG_E_NOMEM;
	return c->failed;
}
