/* SPDX-License-Identifier: Apache-2.0 */
/* tally.c - see tally.h. Times in ns; every sum is over the critical path unless it says so. */
#include "analyse/chains/tally.h"

#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"
#include <math.h>
#include <stdlib.h>

#include "base/map.h"

/* UINT32_MAX: none. */
static uint32_t rank_index_of(const struct lg_case *c, lg_thr thr)
{
	return c->rank_of_prc[c->t->thread.prc[thr]] - 1;
}

static bool of_job(const struct lg_case *c, lg_prc p, lg_thr victim)
{
	lg_prc of = c->t->thread.prc[victim];

	return !lg_in_other_job(c, p) && (p == of || lg_is_worker(c, p) || lg_are_of_one_job(c, p, of));
}

/* ---- causes ---- */

/*
 * A build or a cron job takes the CPU with hundreds of short processes, none of them worth a
 * sentence. Processes that took little each are added up under their nearest ancestor that lived
 * for at least half of the run.
 */
enum { SMALL_SHARE = 50, MAX_ANCESTORS = 16 };

static lg_prc patron_of(struct lg_case *c, const struct lg_tally *y, lg_prc p)
{
	const struct lg_process_tab *t = &c->t->process;
	int64_t from = y->path[0].ts, to = from + y->wall;
	lg_prc q = p;

	for (int i = 0; i < MAX_ANCESTORS && q && t->ppid[q] > 2; i++) {
		q = lg_parent_of(c, q);
		if (q && LG_MIN(t->end[q], to) - LG_MAX(t->start[q], from) >= y->wall / 2)
			return t->role[q] == LG_ROLE_OTHER ? q : p;
	}
	return p;
}

static bool is_short_lived(const struct lg_case *c, const struct lg_tally *y, lg_prc p)
{
	const struct lg_process_tab *t = &c->t->process;

	return t->start[p] > y->path[0].ts && t->end[p] < y->path[0].ts + y->wall &&
	       t->end[p] - t->start[p] < y->wall / 4;
}

static int find_patrons(struct lg_case *c, const struct lg_tally *y, lg_prc *patron)
{
	LG_AUTOFREE int64_t *took = lg_calloc(c->t->process.n, sizeof *took);

	if (!took)
		return LG_E_NOMEM;
	for (size_t i = 0; i < y->n_path; i++)
		if (lg_end(y->path[i].end)->charged == LG_CHARGED_PATRON ||
		    lg_end(y->path[i].end)->charged == LG_CHARGED_MASTER)
			took[c->t->thread.prc[y->path[i].thr]] += y->path[i].dur;
	for (lg_prc p = 0; p < c->t->process.n; p++) {
		patron[p] = p;
		if (took[p] && (took[p] * SMALL_SHARE < y->wall || is_short_lived(c, y, p)) &&
		    !of_job(c, p, 0) && c->t->process.role[p] == LG_ROLE_OTHER)
			patron[p] = patron_of(c, y, p);
	}
	return c->failed;
}

struct building {
	struct lg_cause_sum *v;
	size_t n, cap;
	struct lg_map by_key;
	uint32_t *of_piece; /* path index -> cause index + 1 */
	lg_prc *patron;     /* by process: whose cause it is added to */
};

static int sort_into_causes(struct lg_case *c, const struct lg_tally *y, struct building *b)
{
	size_t slow_at = 0;

	LG_EACH(p, y->path, y->n_path) {
		lg_prc prc = c->t->thread.prc[p->thr];
		struct lg_cause_sum *s;
		enum lg_end_charged to = lg_end(p->end)->charged;
		uint8_t io = LG_IO_UNKNOWN;
		const char *call;
		uint64_t key;
		uint32_t at, r;

		if (!lg_is_cause(p->end))
			continue;
		if (p->end == LG_END_IO)
			io = (uint8_t)lg_io_kind_of(c, p->row, &call);
		if (to == LG_CHARGED_PATRON || (to == LG_CHARGED_MASTER && is_short_lived(c, y, prc)))
			prc = b->patron[prc];
		/* The job's own threads push each other aside: one cause, not one a pair of ranks. */
		if (p->end == LG_END_CPU && of_job(c, prc, p->of))
			prc = 0;
		/* What the job does to itself in its own code is one cause for all ranks. */
		if (to == LG_CHARGED_JOB)
			prc = 0;
		key = lg_mix64((uint64_t)prc << 32 | p->lock) ^ lg_mix64(p->end | io << 8);
		at = LG_MAP_APPEND(&b->by_key, key, b->v, b->n, b->cap, (struct lg_cause_sum){
			.end = p->end, .prc = prc, .thr = p->thr, .victim = p->of, .lock = p->lock,
			.of_rank = lg_arena_alloc(&c->v->arena, c->n_ranks, 1),
			.own_job = of_job(c, c->t->thread.prc[p->thr], p->of) });
		if (!at || c->v->arena.failed)
			return LG_E_NOMEM;
		s = &b->v[at - 1];
		b->of_piece[p - y->path] = at;
		s->lost += p->dur;
		s->slow_lost += lg_iv_shared(&y->slow, &slow_at, p->ts, p->ts + p->dur);
		s->by_proof[p->proof] += p->dur;
		s->n_pieces++;
		r = rank_index_of(c, p->of);
		if (r != UINT32_MAX)
			s->of_rank[r] = 1;
	}
	return 0;
}

/* Of the pieces that are that long, those closer together than a step are one. */
static struct lg_rhythm events_of(struct lg_case *c, const struct lg_cause_sum *s, int64_t least,
				  int64_t step_ns, struct lg_burst *b)
{
	size_t n = 0;

	LG_EACH_PIECE(p, s) {
		if (p->dur < least)
			continue;
		b[n] = (struct lg_burst){ p->ts, p->ts + p->dur, p->dur };
		/* What was held when the first of them came was taken before that. */
		if (p->hold != UINT32_MAX && (!n || p->ts - b[n - 1].end > step_ns))
			b[n].ts = c->t->span.ts[p->hold];
		n++;
	}
	return lg_rhythm_of(b, n, step_ns);
}

/* Separate occurrences. Where some of it is in every step all are one: then those that stand out. */
static int find_events(struct lg_case *c, struct lg_cause_sum *s, int64_t step_ns)
{
	enum { STANDS_OUT = 20 };
	LG_AUTOFREE struct lg_burst *b = lg_calloc(s->n_pieces, sizeof *b);

	if (!b)
		return LG_E_NOMEM;
	s->rhythm = events_of(c, s, 0, step_ns, b);
	if (s->rhythm.n_events < LG_N_CHAIN_TIMES)
		s->rhythm = events_of(c, s, lg_longest_piece(s)->dur / STANDS_OUT, step_ns, b);
	return 0;
}

/* Culprit thread, victim thread and stage with most of the time. */
static int find_majorities(struct lg_case *c, struct lg_cause_sum *s)
{
	struct lg_map thr_ns = { 0 }, of_ns = { 0 };
	uint32_t best_thr = 0, best_of = 0;
	int64_t stage_ns[LG_STAGE_MAX] = { 0 };
	int rc = 0;

	LG_EACH_PIECE_WHILE(!rc, p, s) {
		uint32_t us = (uint32_t)(p->dur / 1000 + 1), r = rank_index_of(c, p->of);
		uint32_t a = lg_map_get(&thr_ns, p->thr) + us, b = lg_map_get(&of_ns, p->of) + us;

		rc = lg_map_set(&thr_ns, p->thr, a) ?: lg_map_set(&of_ns, p->of, b);
		if (a > best_thr) {
			best_thr = a;
			s->thr = p->thr;
		}
		if (b > best_of) {
			best_of = b;
			s->victim = p->of;
		}
		if (r != UINT32_MAX)
			stage_ns[p->end == LG_END_SIDE ? LG_STAGE_SIDE
						       : lg_stage_at(&c->ranks[r], p->ts)] += p->dur;
	}
	for (uint8_t k = 0; k < LG_STAGE_MAX; k++)
		if (stage_ns[k] > stage_ns[s->stage])
			s->stage = k;
	lg_map_done(&thr_ns);
	lg_map_done(&of_ns);
	return rc;
}

static void count_idle_holds(struct lg_case *c, struct lg_cause_sum *s)
{
	const struct lg_span_tab *sp = &c->t->span;
	size_t total = 0, used = 0;
	uint32_t last = UINT32_MAX;

	for (size_t i = 0; i < sp->n; i++)
		total += sp->kind[i] == LG_SPAN_LOCK_HOLD && sp->dur[i] >= 1000000 &&
			 sp->name[i] == s->lock && c->t->thread.prc[sp->thr[i]] == s->prc;
	for (size_t i = 0; i < s->n_pieces; i++) {
		uint32_t h = s->pieces[i]->hold;

		if (h != UINT32_MAX && h != last && sp->dur[h] >= 1000000)
			used++;
		last = h;
	}
	s->other_holds = total > used ? total - used : 0;
}

LG_ORDER_BY(cmp_lost, struct lg_cause_sum, LG_CMP(y->lost, x->lost) ?: LG_CMP(x->end, y->end))

/* Steps it took at least a fiftieth of, and the processes that make up the sum. */
static int count_hits(struct lg_case *c, const struct lg_tally *y, struct lg_cause_sum *s,
		      int64_t step_ns)
{
	const struct lg_rank *r = &c->ranks[y->ref];
	const struct lg_step *st = &c->v->steps[r->step_first];
	LG_AUTOFREE int64_t *took = lg_calloc(c->t->process.n, sizeof *took);
	int64_t in_step = 0;
	size_t k = 0;

	if (!took)
		return LG_E_NOMEM;
	LG_EACH_PIECE(p, s) {
		lg_prc q = c->t->thread.prc[p->thr];

		s->n_members += !took[q];
		took[q] += p->dur;
		while (k < r->n_steps && st[k].ts + st[k].dur <= p->ts) {
			s->n_steps_hit += in_step * 50 >= step_ns;
			in_step = 0;
			k++;
		}
		in_step += p->dur;
	}
	s->n_steps_hit += in_step * 50 >= step_ns;
	for (int m = 0; m < 3; m++) {
		lg_prc best = 0;

		for (lg_prc q = 1; q < c->t->process.n; q++)
			best = took[q] > took[best] ? q : best;
		s->member[m] = took[best] ? best : 0;
		took[best] = 0;
	}
	s->steady = s->slow_lost * 2 < s->lost || s->n_steps_hit * 5 >= r->n_steps;
	return 0;
}

/* What it takes of every step makes none of them slow. */
static void leave_usual_out(struct lg_cause_sum *s, int64_t wall, int64_t slow)
{
	double usual = wall > slow ? (double)(s->lost - s->slow_lost) / (double)(wall - slow) : 0;

	s->slow_lost -= (int64_t)fmin((double)s->slow_lost, usual * (double)slow);
}

static int64_t median_step(const struct lg_case *c, uint32_t ref)
{
	const struct lg_rank *r = &c->ranks[ref];

	return c->v->steps[r->step_first + r->n_steps / 2].median;
}

static int find_causes(struct lg_case *c, struct lg_tally *y)
{
	struct building b = { 0 };
	int64_t step_ns = median_step(c, y->ref), left_out = 0;
	int rc;

	b.of_piece = lg_calloc(y->n_path, sizeof *b.of_piece);
	b.patron = lg_calloc(c->t->process.n, sizeof *b.patron);
	rc = b.of_piece && b.patron ? find_patrons(c, y, b.patron) ?: sort_into_causes(c, y, &b) : LG_E_NOMEM;
	for (size_t i = 0; !rc && i < b.n; i++) {
		b.v[i].pieces = lg_arena_alloc(&c->v->arena, b.v[i].n_pieces, sizeof *b.v[i].pieces);
		b.v[i].n_pieces = 0;
		rc = b.v[i].pieces ? 0 : LG_E_NOMEM;
	}
	for (size_t i = 0; i < y->n_path; i++)
		left_out += y->path[i].end == LG_END_QUOTA ? y->path[i].dur : 0;
	for (size_t i = 0; !rc && i < y->n_path; i++)
		if (b.of_piece[i]) {
			struct lg_cause_sum *s = &b.v[b.of_piece[i] - 1];

			s->pieces[s->n_pieces++] = &y->path[i];
		}
	for (size_t i = 0; !rc && i < b.n; i++) {
		leave_usual_out(&b.v[i], y->wall, lg_iv_sum(&y->slow));
		b.v[i].left_out = left_out;
		rc = find_events(c, &b.v[i], step_ns) ?: find_majorities(c, &b.v[i]) ?:
		     count_hits(c, y, &b.v[i], step_ns);
		if (b.v[i].end == LG_END_LOCK)
			count_idle_holds(c, &b.v[i]);
	}
	if (!rc && b.n) {
		qsort(b.v, b.n, sizeof *b.v, cmp_lost);
		y->n_causes = b.n;
	}
	y->causes = lg_arena_adopt(&c->v->arena, b.v);
	if (b.v && !y->causes)
		rc = LG_E_NOMEM;
	lg_free(b.of_piece);
	lg_free(b.patron);
	lg_map_done(&b.by_key);
	return rc;
}

static int find_slow(struct lg_case *c, const struct lg_rank *r, struct lg_tally *y)
{
	int rc = 0;

	LG_EACH_WHILE(!rc, s, &c->v->steps[r->step_first], r->n_steps) {
		y->n_slow += s->slow;
		rc = s->slow ? lg_iv_add(&y->slow, s->ts, s->ts + s->dur, LG_NO_ROW) : 0;
	}
	y->slow.v = lg_arena_adopt(&c->v->arena, y->slow.v);
	return rc ?: c->v->arena.failed ? LG_E_NOMEM : 0;
}

int lg_tally(struct lg_case *c, uint32_t ref, const struct lg_pieces *path, struct lg_tally *y)
{
	const struct lg_rank *r = &c->ranks[ref];
	int rc;

	*y = (struct lg_tally){ .path = path->v, .n_path = path->n, .ref = ref };
	for (size_t i = 0; i < path->n; i++) {
		y->wall += path->v[i].dur;
		y->by_end[path->v[i].end] += path->v[i].dur;
		if (path->v[i].end == LG_END_UNKNOWN)
			y->unknown += path->v[i].dur;
	}
	y->excess = lg_excess_of(r, c->v->steps);
	rc = find_slow(c, r, y) ?: find_causes(c, y) ?: lg_find_late_ranks(c, y);
	if (rc)
		return rc;
	y->explained = y->straggler.slow_lost;
	for (size_t i = 0; i < y->n_causes; i++)
		y->explained += y->causes[i].slow_lost;
	y->explained = LG_MIN(y->explained, y->excess);
	return c->failed;
}

const struct lg_piece *lg_longest_piece(const struct lg_cause_sum *s)
{
	const struct lg_piece *longest = s->pieces[0];

	for (size_t i = 1; i < s->n_pieces; i++)
		if (s->pieces[i]->dur > longest->dur)
			longest = s->pieces[i];
	return longest;
}

double lg_loss_share(const struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	double lost = 0, rows = (double)(t->state.n + t->sample.n + t->span.n);

	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_LOST_EVENTS || t->diag.id[i] == LG_DIAG_LOST_SAMPLES ||
		    t->diag.id[i] == LG_DIAG_MARKS_LOST || t->diag.id[i] == LG_DIAG_OUT_OF_ORDER)
			lost += (double)t->diag.count[i];
	return lost > 0 ? lost / (lost + rows) : 0;
}
