/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standing.c - a job in which nothing moves: where its ranks sleep, by their Python frames.
 *
 * A rank stands if its main thread slept, in one go, to the end of the recording, from its start or from then
 * on where the rank last ran, and the threads of its process hardly ran meanwhile. Only where all of them
 * stand is anything said: a rank that still runs (a compilation, an evaluation, a save) may come. Those who
 * sleep in a collective, or in the backward pass, wait; whoever sleeps elsewhere is who they wait for. Where
 * nobody does, and more than half sleep at one line, these are taken to wait. How long a healthy pause takes
 * nobody knows: below half a minute it is a fact in the headline, from then on a finding.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/finders.h"
#include "analyse/chains/culprit.h"
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
	int64_t from; /* it slept since then, or longer */
	lg_stk in;   /* innermost Python frame */
	lg_stk user; /* innermost one of the program's own; else `in` */
	bool waits;  /* in a collective, or what may hold one */
	bool told;
};

struct stands {
	struct stand *v;
	size_t n, n_waits;
	int64_t from, to; /* all of them stood */
	bool whole;       /* nobody runs */
	bool guessed;     /* who waits, by their number */
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

/* The recorder was told by the kernel of sleeps that began before the recording. */
static int64_t asleep_since(const struct lg_case *c, lg_thr thr, int64_t seen)
{
	int64_t since;

	for (size_t i = 0; i < c->t->mark.n; i++)
		if (c->t->mark.thr[i] == thr && lg_is_mark(c->t, i, "asleep") && c->t->mark.value[i] > 0 &&
		    !__builtin_sub_overflow(c->t->mark.ts[i], c->t->mark.value[i], &since))
			seen = LG_MIN(seen, since);
	return seen;
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
	ret->from = asleep_since(c, thr, c->t->state.ts[last]);
	for (lg_stk s = c->t->state.stack[last]; s; s = c->t->stack.parent[s]) {
		if (c->t->frame.kind[c->t->stack.frame[s]] != LG_FRAME_PYTHON)
			continue;
		ret->in = ret->in ? ret->in : s;
		/* DDP reduces in the backward pass, and in its own forward. */
		ret->waits |= strstr(file_of(c, s), "torch/distributed/") || strstr(file_of(c, s), "torch/autograd/") ||
			      strstr(file_of(c, s), "torch/nn/parallel/distributed.py");
		if (!ret->user && !lg_is_library_path(file_of(c, s)))
			ret->user = s;
	}
	ret->user = ret->user ? ret->user : ret->in;
	return ret->in;
}

/* Those that stand, and whether that is all there is. */
static int find_stands(struct lg_case *c, struct stands *ret)
{
	int64_t seen;

	*ret = (struct stands){ .v = lg_arena_alloc(&c->v->arena, c->n_ranks + 1, sizeof *ret->v),
				.from = INT64_MIN, .to = c->t->last };
	if (!ret->v)
		return LG_E_NOMEM;
	LG_EACH(r, c->ranks, c->n_ranks) {
		struct stand *s = &ret->v[ret->n];

		if (!stands(c, r, s))
			continue;
		ret->n++;
		ret->from = LG_MAX(ret->from, s->from);
		ret->n_waits += s->waits;
	}
	seen = LG_MAX(ret->from, c->t->first);
	ret->whole = ret->n && ret->n == c->n_ranks && ret->to - seen >= SEEN_NS;
	/* A compiler's workers are the job's, too. */
	for (lg_prc p = 1; ret->whole && p < c->t->process.n; p++)
		ret->whole = !lg_in_job(c, p) || (double)lg_process_ran(c, p, seen, ret->to) <=
							 IDLE_SHARE * (double)(ret->to - seen);
	return 0;
}

/* No frame tells a collective: a device, or code that is not Python, may be waited for. */
static void guess_waits(const struct lg_case *c, struct stands *all)
{
	LG_EACH_WHILE(!all->n_waits, like, all->v, all->n) {
		size_t n = 0;

		LG_EACH(s, all->v, all->n)
			n += same(c, s->in, like->in) && same(c, s->user, like->user);
		if (2 * n <= all->n || n == all->n)
			continue;
		LG_EACH(s, all->v, all->n)
			s->waits = same(c, s->in, like->in) && same(c, s->user, like->user);
		all->n_waits = n;
		all->guessed = true;
	}
}

static const char **frames_of(struct lg_case *c, lg_stk s, size_t *ret_n)
{
	const char **v = lg_arena_alloc(&c->v->arena, LG_MAX(c->t->stack.depth[s], 1), sizeof *v);
	size_t n = 0;

	for (; v && s; s = c->t->stack.parent[s])
		if (c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_PYTHON)
			v[n++] = place(c, s);
	*ret_n = n;
	return v;
}

/* What `laggard hang` says of each rank. */
static int note_ranks(struct lg_case *c, const struct stands *all)
{
	enum lg_hang_state still =
		all->whole && all->to - all->from >= LONG_NS ? LG_HANG_HUNG : LG_HANG_WAITING;
	bool over = c->n_ranks > 0;

	c->v->hang.ranks = lg_arena_alloc(&c->v->arena, c->n_ranks + 1, sizeof *c->v->hang.ranks);
	if (!c->v->hang.ranks)
		return LG_E_NOMEM;
	LG_EACH(r, c->ranks, c->n_ranks) {
		struct lg_hang_rank *h = &c->v->hang.ranks[c->v->hang.n++];
		bool ended = c->t->process.end[r->prc] < c->t->last;

		*h = (struct lg_hang_rank){ .rank = r->rank, .pid = c->t->process.pid[r->prc],
					    .state = ended ? LG_HANG_FINISHED : LG_HANG_RUNNING };
		over &= ended;
		LG_EACH(s, all->v, all->n)
			if (s->r == r && !ended) {
				h->state = still;
				h->op = s->waits ? function_of(c, s->in) : NULL;
				h->stack = frames_of(c, s->in, &h->n_stack);
			}
	}
	c->v->hang.since_s = all->whole ? (double)(all->to - all->from) / 1e9 : (double)NAN;
	c->v->hang.state = over ? LG_HANG_FINISHED
			   : all->whole ? still
			   : c->n_ranks ? LG_HANG_RUNNING : LG_HANG_UNKNOWN;
	return 0;
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
	f->confidence = all->guessed ? 0.6 : !parted && all->n_waits < all->n ? 0.9 : 0.7;
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
	if (all->guessed)
		lg_evidence_against(c, f, "that most ranks sleep at one line is all that says that they wait");
	if (all->n_waits == all->n && !parted)
		lg_evidence_against(c, f, "all of them wait for the same: the network, a device, or a rank that is not in "
					  "this recording");
}

int lg_find_standing(struct lg_case *c)
{
	struct stands all;

	if (lg_told(c, LG_R_COMMS_MISSING_RANK) || lg_told(c, LG_R_COMMS_MISMATCH)) {
		c->v->hang.state = LG_HANG_HUNG;
		return 0;
	}
	if (!c->has_states)
		return 0;
	if (lg_failed(c, find_stands(c, &all)) || lg_failed(c, note_ranks(c, &all)) || !all.whole)
		return c->failed;
	guess_waits(c, &all);
	c->v->still = text_of(c, &all);
	if (all.n_waits && all.n > 1 && all.to - all.from >= LONG_NS)
		tell(c, &all);
	else
		lg_say(c, "the run stands still: nothing in it ran for the last %.1f s; a pause may be as long, from %d s "
			  "on it is judged", (double)(all.to - all.from) / 1e9, LG_N_COMMS_MISSING_RANK_LONG_S);
	return c->failed;
}
