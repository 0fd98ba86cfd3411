/* SPDX-License-Identifier: Apache-2.0 */
/*
 * likely_job.c - nobody said which process trains: what shows that one of the busiest does?
 *
 * A web server under load, a database, a build: they are busy, have a rhythm, and others hold them up. That
 * is true and nobody's training is late by it. What shows a rank of a job is either
 *  - code of a framework, of an accelerator's driver or of a library of collectives in its stacks; or
 *  - an equal process that moves in step with it, because one waits for the other: each ends most waits of
 *    the other, or their steps begin at one distance from each other without a timer that makes it so. Of
 *    samples alone: both compute most of the time, and stand still together.
 */
#include <math.h>

#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"
#include "timeline/bursts.h"
#include "analyse/chains/culprit.h"
#include "rules/names.h"

enum { SAMPLES_MAX = 4096, HITS = 2, STEPS_LEAST = 12, WAITS_LEAST = 12 };
#define IN_STEP 0.8        /* length of the mean of the distances, as directions: 1 = all are the same */
#define STILL_TOGETHER 0.6 /* correlation of standing still */

static bool is_framework(const struct lg_trace *t, lg_frm f)
{
	const char *dso = lg_file_name(lg_string(t, t->frame.dso[f]));

	return t->frame.kind[f] != LG_FRAME_KERNEL &&
	       (lg_is_named(dso, LG_NAMED_LIBRARY) ||
		lg_is_named(lg_string(t, t->frame.name[f]), LG_NAMED_FRAMEWORK));
}

/* known: by frame, 0 = not looked at, 1 = no, 2 = yes. */
static bool is_in_framework(const struct lg_trace *t, lg_stk s, uint8_t *known)
{
	for (; s; s = t->stack.parent[s]) {
		uint8_t *k = &known[t->stack.frame[s]];

		if (!*k)
			*k = is_framework(t, t->stack.frame[s]) ? 2 : 1;
		if (*k == 2)
			return true;
	}
	return false;
}

static bool runs_framework(const struct lg_case *c, lg_prc p, uint8_t *known)
{
	const struct lg_index *x = c->idx;
	const struct lg_trace *t = c->t;
	size_t seen = 0, hits = 0;

	LG_LISTED(thr, x->thread, p) {
		for (uint32_t i = x->sample_off[thr]; i < x->sample_off[thr + 1]; i++) {
			hits += is_in_framework(t, t->sample.stack[x->sample[i]], known);
			if (hits >= HITS || ++seen == SAMPLES_MAX)
				return hits >= HITS;
		}
	}
	return false;
}

/* Of a's waits: all, those that b ended, and those that a timer of its own did. */
static void count_waits(struct lg_case *c, const struct lg_rank *a, lg_prc b, size_t *all, size_t *by_b,
			size_t *by_timer)
{
	const struct lg_state_tab *s = &c->t->state;

	*all = *by_b = *by_timer = 0;
	LG_EACH_ROW(row, a->states, a->n_states) {
		lg_thr waker;

		if (s->kind[row] != LG_BLOCKED || s->dur[row] <= 0)
			continue;
		waker = lg_waker_of(c, row);
		(*all)++;
		*by_b += waker && c->t->thread.prc[waker] == b;
		*by_timer += lg_wait_class_of(c, row) == LG_WAIT_SLEEP || s->waker_ctx[row] == LG_CTX_HARDIRQ;
	}
}

/* Do a's steps begin at one distance from b's? */
static bool steps_agree(const struct lg_step *steps, const struct lg_rank *a, const struct lg_rank *b)
{
	const struct lg_step *x = &steps[a->step_first], *y = &steps[b->step_first];
	double cosines = 0, sines = 0;
	size_t n = 0;

	if (a->n_steps < STEPS_LEAST || b->n_steps < STEPS_LEAST)
		return false;
	for (size_t i = 0, k = 0; i < a->n_steps; i++) {
		double turns;

		while (k + 1 < b->n_steps && y[k + 1].ts <= x[i].ts)
			k++;
		if (y[k].ts > x[i].ts || y[k].median <= 0)
			continue;
		turns = (double)(x[i].ts - y[k].ts) / (double)y[k].median;
		cosines += cos(2 * M_PI * turns);
		sines += sin(2 * M_PI * turns);
		n++;
	}
	return n * 10 >= a->n_steps * 9 && a->n_steps * 10 >= b->n_steps * 9 &&
	       sqrt(cosines * cosines + sines * sines) >= IN_STEP * (double)n;
}

static bool in_step_by_states(struct lg_case *c, const struct lg_step *steps, const struct lg_rank *a,
			      const struct lg_rank *b)
{
	size_t waits_a, waits_b, by_a, by_b, timer_a, timer_b;

	count_waits(c, a, b->prc, &waits_a, &by_b, &timer_a);
	count_waits(c, b, a->prc, &waits_b, &by_a, &timer_b);
	if (waits_a < WAITS_LEAST || waits_b < WAITS_LEAST)
		return false;
	if (by_b * 2 >= waits_a && by_a * 2 >= waits_b)
		return true;
	return timer_a * 2 < waits_a && timer_b * 2 < waits_b && steps_agree(steps, a, b) &&
	       steps_agree(steps, b, a);
}

/* The middle of the recording, as far as so many samples of the thread reach: more tell no more. */
static struct lg_stretch middle(const struct lg_case *c, lg_thr thr)
{
	enum { ENOUGH = 1 << 16 };
	const uint32_t *row = c->idx->sample + c->idx->sample_off[thr];
	size_t n = c->idx->sample_off[thr + 1] - c->idx->sample_off[thr], from = (n - ENOUGH) / 2;

	if (n <= ENOUGH)
		return (struct lg_stretch){ .ts = c->t->first, .end = c->t->last };
	return (struct lg_stretch){ .ts = c->t->sample.ts[row[from]],
				    .end = c->t->sample.ts[row[from + ENOUGH]] };
}

static bool in_step_by_samples(struct lg_case *c, const struct lg_rank *a, const struct lg_rank *b)
{
	struct lg_stretch life = middle(c, a->thr);
	int64_t wall = life.end - life.ts, period_a = lg_sampling_period(&c->scene, a->thr);
	int64_t period_b = lg_sampling_period(&c->scene, b->thr), together = 0;
	struct lg_stretches x = { 0 }, y = { 0 };
	double sx, sy, both;

	if (wall <= 0 || period_a <= 0 || period_b <= 0)
		return false;
	if (lg_find_gaps(&c->scene, a->thr, period_a, life, &x) ||
	    lg_find_gaps(&c->scene, b->thr, period_b, life, &y))
		c->failed = LG_E_NOMEM;
	sx = (double)lg_stretches_time(&x) / (double)wall;
	sy = (double)lg_stretches_time(&y) / (double)wall;
	for (size_t i = 0; i < x.n; i++)
		together += lg_covered(&y, x.v[i].ts, x.v[i].end);
	both = (double)together / (double)wall;
	lg_stretches_done(&x);
	lg_stretches_done(&y);
	return sx > 0 && sy > 0 && sx <= 0.5 && sy <= 0.5 &&
	       both - sx * sy >= STILL_TOGETHER * sqrt(sx * (1 - sx) * sy * (1 - sy));
}

static bool in_step(struct lg_case *c, const struct lg_step *steps, const struct lg_rank *a,
		    const struct lg_rank *b)
{
	const struct lg_process_tab *p = &c->t->process;

	return p->comm[a->prc] && p->comm[a->prc] == p->comm[b->prc] &&
	       p->host[a->prc] == p->host[b->prc] &&
	       (c->has_states ? in_step_by_states(c, steps, a, b) : in_step_by_samples(c, a, b));
}

/* Where some of the busiest are a job, the others are strangers that are as busy. */
static bool drop_unlikely(struct lg_case *c)
{
	size_t n = 0, all = c->n_ranks;

	for (size_t i = 0; i < all; i++)
		n += c->likely_job[c->ranks[i].prc];
	if (!n || n == all)
		return false;
	LG_KEEP(r, c->ranks, c->n_ranks, c->likely_job[r->prc]);
	return true;
}

int lg_find_likely_jobs(struct lg_case *c, const struct lg_step *steps, bool *ret_dropped)
{
	LG_AUTOFREE uint8_t *known = lg_calloc(c->t->frame.n, 1);

	c->likely_job = lg_arena_alloc(&c->v->arena, c->t->process.n, 1);
	if (!known || !c->likely_job)
		return LG_E_NOMEM;
	LG_EACH(r, c->ranks, c->n_ranks) {
		c->likely_job[r->prc] = !r->inferred || r->rank >= 0 || lg_was_named(c, r->prc) ||
					runs_framework(c, r->prc, known);
	}
	/* Those with marks are all of a job already, and may be tens of thousands; inferred ones are few. */
	for (size_t i = 0; i < c->n_ranks && c->ranks[0].inferred; i++)
		for (size_t k = 0; k < i; k++) {
			lg_prc a = c->ranks[i].prc, b = c->ranks[k].prc;

			if (!(c->likely_job[a] && c->likely_job[b]) &&
			    in_step(c, steps, &c->ranks[i], &c->ranks[k]))
				c->likely_job[a] = c->likely_job[b] = 1;
		}
	*ret_dropped = !lg_is_polled(c) && drop_unlikely(c);
	return c->failed;
}

bool lg_is_likely_job(const struct lg_case *c, lg_prc p)
{
	return !c->likely_job || c->likely_job[p];
}

bool lg_are_of_one_job(const struct lg_case *c, lg_prc a, lg_prc b)
{
	const struct lg_process_tab *p = &c->t->process;

	return c->likely_job && c->likely_job[a] && c->likely_job[b] && p->comm[a] &&
	       p->comm[a] == p->comm[b] && p->host[a] == p->host[b];
}

void lg_doubt_job(struct lg_case *c, struct lg_finding *f, lg_prc p)
{
	f->doubted = true;
	lg_cap(f, LG_CAP_GUESS);
	lg_evidence_against(c, f, LG_SAYS_STEPS_NOT_A_JOB, lg_thread_text(c, c->idx->main_of[p]));
}
