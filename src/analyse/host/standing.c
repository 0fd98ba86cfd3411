/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standing.c - a job in which nothing moves: where its ranks sleep, by their Python frames.
 *
 * A rank stands if its main thread slept, in one go, to the end of the recording, from its start or from then
 * on where the rank last ran, and the threads of its process hardly ran meanwhile. Only where all of them
 * stand is anything said: a rank that still runs (a compilation, an evaluation, a save) may come. Those who
 * sleep in a collective wait; whoever sleeps elsewhere is who they wait for. How long a healthy pause takes
 * nobody knows: below half a minute it is a fact in the headline, from then on a finding.
 */
#include <string.h>

#include "analyse/finders.h"
#include "analyse/chains/culprit.h"
#include "analyse/grade.h"
#include "analyse/steps/steps.h"
#include "analyse/timeline/timeline_gpu.h"
#include "base/median.h"
#include "base/words.h"

#define IDLE_SHARE 0.02 /* of one CPU */
#define SEEN_NS 2000000000ll
#define LONG_NS (LG_N_COMMS_MISSING_RANK_LONG_S * INT64_C(1000000000))
enum { RANGES_MAX = 8, STACK_MAX = 6 };

struct stand {
	const struct lg_rank *r;
	lg_thr thr;
	int64_t from;
	lg_stk in;   /* innermost Python frame */
	lg_stk user; /* innermost one of the program's own; else `in` */
	bool waits;  /* in a collective */
	bool told;
};

struct stands {
	struct stand *v;
	size_t n, n_waits;
	int64_t from, to; /* all of them stood */
};

static lg_thr main_thread(const struct lg_case *c, lg_prc p)
{
	for (uint32_t k = c->idx->thread_off[p]; k < c->idx->thread_off[p + 1]; k++)
		if (c->t->thread.tid[c->idx->thread[k]] == c->t->process.pid[p])
			return c->idx->thread[k];
	return 0;
}

static const char *file_of(const struct lg_case *c, lg_stk s)
{
	return lg_string(c->t, c->t->frame.file[c->t->stack.frame[s]]);
}

static const char *function_of(const struct lg_case *c, lg_stk s)
{
	return lg_string(c->t, c->t->frame.name[c->t->stack.frame[s]]);
}

/* The same line of the same function, in whatever process. */
static bool same(const struct lg_case *c, lg_stk a, lg_stk b)
{
	const struct lg_frame_tab *f = &c->t->frame;
	lg_frm x = c->t->stack.frame[a], y = c->t->stack.frame[b];

	return f->name[x] == f->name[y] && f->file[x] == f->file[y] && f->line[x] == f->line[y];
}

/* "waits_for_nobody (train.py:6)" */
static const char *place(struct lg_case *c, lg_stk s)
{
	const char *file = file_of(c, s), *slash = strrchr(file, '/');

	return lg_text(c, "%s (%s:%u)", function_of(c, s), slash ? slash + 1 : file,
		       c->t->frame.line[c->t->stack.frame[s]]);
}

/* False: it runs, or it is not known where it sleeps. */
static bool stands(const struct lg_case *c, const struct lg_rank *r, struct stand *ret)
{
	lg_thr thr = main_thread(c, r->prc);
	struct lg_rows states = lg_states_in(c, thr, c->t->first, INT64_MAX);
	uint32_t last = LG_NO_ROW;

	*ret = (struct stand){ .r = r, .thr = thr };
	while (thr && lg_next_row(c, &states))
		last = states.row;
	if (last == LG_NO_ROW || c->t->state.kind[last] != LG_BLOCKED || c->t->state.dur[last] >= 0)
		return false;
	ret->from = c->t->state.ts[last];
	for (lg_stk s = c->t->state.stack[last]; s; s = c->t->stack.parent[s]) {
		if (c->t->frame.kind[c->t->stack.frame[s]] != LG_FRAME_PYTHON)
			continue;
		ret->in = ret->in ? ret->in : s;
		ret->waits |= strstr(file_of(c, s), "torch/distributed/") != NULL;
		if (!ret->user && !lg_is_library_path(file_of(c, s)))
			ret->user = s;
	}
	ret->user = ret->user ? ret->user : ret->in;
	return ret->in;
}

/* All ranks, or none. */
static bool find_stands(struct lg_case *c, struct stands *ret)
{
	*ret = (struct stands){ .v = lg_arena_alloc(&c->v->arena, c->n_ranks, sizeof *ret->v),
				.from = INT64_MIN, .to = c->t->last };
	if (!ret->v)
		c->failed = LG_E_NOMEM;
	for (; ret->v && ret->n < c->n_ranks; ret->n++) {
		if (!stands(c, &c->ranks[ret->n], &ret->v[ret->n]))
			return false;
		ret->from = LG_MAX(ret->from, ret->v[ret->n].from);
		ret->n_waits += ret->v[ret->n].waits;
	}
	if (!ret->n || ret->to - ret->from < SEEN_NS)
		return false;
	for (lg_prc p = 1; p < c->t->process.n; p++) /* a compiler's workers are the job's, too */
		if (lg_in_job(c, p) && (double)lg_process_ran(c, p, ret->from, ret->to) >
						IDLE_SHARE * (double)(ret->to - ret->from))
			return false;
	return true;
}

/* "rank 1", "ranks 0, 2-7"; by their pids where no rank is known: those that wait as `like` does, or where it
 * sleeps. */
static const char *who(struct lg_case *c, const struct stands *all, const struct stand *like, size_t *ret_n)
{
	int64_t *v = lg_arena_alloc(&c->v->arena, all->n, sizeof *v);
	bool ranks = true;
	size_t n = 0;

	if (!v)
		return "";
	LG_EACH(s, all->v, all->n)
		ranks &= s->r->rank >= 0;
	LG_EACH(s, all->v, all->n)
		if (s->waits == like->waits && same(c, s->in, like->in) && same(c, s->user, like->user)) {
			v[n++] = ranks ? s->r->rank : c->t->process.pid[s->r->prc];
			s->told = true;
		}
	*ret_n = n;
	qsort(v, n, sizeof *v, lg_cmp_i64);
	return lg_text(c, "%s%s %s", ranks ? "rank" : "pid", lg_s(n), lg_ranges_text(c, v, n, RANGES_MAX, &n));
}

/* "ranks 0, 2 wait in all_reduce at step (train.py:11)", one such part for each place, those who wait last. */
static const char *text_of(struct lg_case *c, struct stands *all)
{
	const char *text = "";

	for (int waits = 0; waits <= 1; waits++)
		LG_EACH(s, all->v, all->n) {
			const char *ranks;
			size_t n = 0;

			if (s->told || s->waits != waits)
				continue;
			ranks = who(c, all, s, &n);
			text = lg_text(c, "%s%s%s %s%s in %s", text, *text ? ", " : "", ranks,
				       waits ? "wait" : "sleep", n == 1 ? "s" : "",
				       s->in == s->user ? place(c, s->in)
							: lg_text(c, "%s at %s", function_of(c, s->in), place(c, s->user)));
		}
	return text;
}

static const char *stack_text(struct lg_case *c, lg_stk s)
{
	const char *text = "";

	for (int n = 0; s && n < STACK_MAX; s = c->t->stack.parent[s])
		if (c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_PYTHON) {
			text = lg_text(c, "%s%s%s", text, n ? " < " : "", place(c, s));
			n++;
		}
	return text;
}

/* Do all who wait do so in one operation? */
static bool agree(const struct lg_case *c, const struct stands *all)
{
	const struct stand *first = NULL;

	LG_EACH(s, all->v, all->n) {
		if (s->waits && first && strcmp(function_of(c, s->in), function_of(c, first->in)))
			return false;
		first = s->waits && !first ? s : first;
	}
	return true;
}

static void tell(struct lg_case *c, const struct stands *all)
{
	bool parted = !agree(c, all);
	struct lg_finding *f = lg_finding_or_scrap(c, parted ? LG_R_COMMS_MISMATCH : LG_R_COMMS_MISSING_RANK);

	lg_grade_unpriced(f);
	f->confidence = !parted && all->n_waits < all->n ? 0.9 : 0.7;
	f->stage = lg_stage_name(LG_STAGE_GRAD_SYNC);
	f->culprit.relation = LG_RELATION_RANK;
	lg_title(c, f, "%s, for %.0f s at least", c->v->still, (double)(all->to - all->from) / 1e9);
	LG_EACH(s, all->v, all->n) {
		if (!s->waits && all->n_waits + 1 == all->n)
			lg_culprit_identify(c, f, s->thr, 0);
		if (!s->waits && all->n_waits)
			lg_culprit_rank_add(c, f, s->r->rank);
		lg_evidence_add(c, f, s->from, all->to - s->from, "%s sleeps in %s", lg_thread_text(c, s->thr),
				stack_text(c, s->in));
	}
	if (all->n_waits == all->n && !parted)
		lg_evidence_against(c, f, "all of them wait for the same: the network, a device, or a rank that is not in "
					  "this recording");
}

int lg_find_standing(struct lg_case *c)
{
	struct stands all;

	if (!c->has_states || lg_told(c, LG_R_COMMS_MISSING_RANK) || lg_told(c, LG_R_COMMS_MISMATCH) ||
	    !find_stands(c, &all))
		return c->failed;
	c->v->still = text_of(c, &all);
	if (all.n_waits && all.n > 1 && all.to - all.from >= LONG_NS)
		tell(c, &all);
	else
		lg_say(c, "the run stands still: nothing in it ran for the last %.1f s of this recording; how long before "
			  "that is not known: record for half a minute to have it judged",
		       (double)(all.to - all.from) / 1e9);
	return c->failed;
}
