/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standing.c - a job in which nothing moves: where its ranks sleep, by their Python frames.
 *
 * A rank stands if its main thread slept to the end of the recording, from its start or from then on where
 * the rank last ran: in one go, or waking now and then at the same line; or if it was stopped. Only where
 * all ranks stand, and no process of the job runs, is anything said: a rank that still runs (a compilation,
 * an evaluation, a save) may come. Those who sleep in a collective, or in the backward pass, wait, and may
 * spin there; whoever sleeps elsewhere is who they wait for. Where nobody does, and more than half sleep at
 * one line, these are taken to wait. How long a healthy pause takes nobody knows: below half a minute it is
 * a fact in the headline, from then on a finding.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/finders.h"
#include "analyse/chains/culprit.h"
#include "analyse/host/standing.h"
#include "analyse/steps/steps.h"
#include "rules/device_names.h"

#define IDLE_SHARE 0.02 /* of one CPU */
#define SEEN_NS 2000000000ll
#define SPIN_SHARE 0.9
#define LONG_NS (LG_N_COMMS_MISSING_RANK_LONG_S * INT64_C(1000000000))
enum { SPINS_MIN = 20 };

static lg_thr main_thread(const struct lg_case *c, lg_prc p)
{
	for (uint32_t k = c->idx->thread_off[p]; k < c->idx->thread_off[p + 1]; k++)
		if (c->t->thread.tid[c->idx->thread[k]] == c->t->process.pid[p])
			return c->idx->thread[k];
	return 0;
}

/* Are both at the same line of the same function, in whatever process? */
static bool same_place(const struct lg_case *c, lg_stk a, lg_stk b)
{
	const struct lg_frame_tab *f = &c->t->frame;
	lg_frm x = c->t->stack.frame[a], y = c->t->stack.frame[b];

	return f->name[x] == f->name[y] && f->file[x] == f->file[y] && f->line[x] == f->line[y];
}

bool lg_stand_alike(const struct lg_case *c, const struct stand *a, const struct stand *b)
{
	return a->waits == b->waits && a->stopped == b->stopped && a->child == b->child &&
	       same_place(c, a->in, b->in) && same_place(c, a->user, b->user);
}

static bool is_python(const struct lg_case *c, lg_stk s)
{
	return c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_PYTHON;
}

static lg_stk innermost(const struct lg_case *c, lg_stk s)
{
	while (s && !is_python(c, s))
		s = c->t->stack.parent[s];
	return s;
}

/*
 * The recorder was told by the kernel of sleeps that began before the recording. One that ends by itself may
 * be the newest of many; if it lasts for long already, it does not matter.
 */
static void asleep_since(const struct lg_case *c, struct stand *s)
{
	int64_t since;

	for (size_t i = 0; i < c->t->mark.n; i++) {
		if (c->t->mark.thr[i] != s->thr || !lg_is_mark(c->t, i, "asleep") || c->t->mark.value[i] <= 0 ||
		    __builtin_sub_overflow(c->t->mark.ts[i], c->t->mark.value[i], &since))
			continue;
		s->from = LG_MIN(s->from, since);
		s->polls = c->t->mark.value[i] < LONG_NS &&
			   !strcmp(lg_string(c->t, c->t->mark.text[i]), "timed");
	}
}

/* When it came to where it is, by its sleeps; one whose Python is not known is taken to be there, too. */
static void look_back(const struct lg_case *c, struct stand *s)
{
	struct lg_rows states = lg_states_in(&c->scene, s->thr, c->t->first, INT64_MAX);
	struct lg_cpu_samples ran = lg_cpu_samples(&c->scene, s->thr, c->t->first, INT64_MAX);
	bool here = false;
	uint32_t row;

	while (lg_next_row(&c->scene, &states)) {
		lg_stk in = innermost(c, c->t->state.stack[states.row]);

		if (c->t->state.kind[states.row] != LG_BLOCKED)
			continue;
		s->polls |= here;
		if (in && !same_place(c, in, s->in)) {
			here = s->polls = false;
		} else if (!here) {
			s->from = LG_MIN(s->from, c->t->state.ts[states.row]);
			here = true;
		}
	}
	while (lg_next_cpu_sample(&c->scene, &ran, &row)) {
		lg_stk in = innermost(c, c->t->sample.stack[row]);

		if (in && !same_place(c, in, s->in))
			s->from = LG_MAX(s->from, c->t->sample.ts[row]);
	}
}

/* Does s lie in the code of the program, or of a library that it calls, and not where a worker of
 * multiprocessing's or a loader's waits to be given something? */
static lg_stk own_code(const struct lg_case *c, lg_stk s)
{
	for (; s; s = c->t->stack.parent[s]) {
		if (!is_python(c, s))
			continue;
		if (!lg_is_library_path(lg_stack_file(c->t, s)))
			return s;
		if (strstr(lg_stack_file(c->t, s), "multiprocessing/") ||
		    strstr(lg_stack_file(c->t, s), "_utils/worker.py"))
			return 0;
	}
	return 0;
}

/* The row in which it is at the end of the recording; LG_NO_ROW = it is not blocked then. */
static uint32_t last_sleep(const struct lg_case *c, lg_thr thr)
{
	struct lg_rows states = lg_states_in(&c->scene, thr, c->t->first, INT64_MAX);
	uint32_t last = LG_NO_ROW;

	while (thr && lg_next_row(&c->scene, &states))
		last = states.row;
	if (last != LG_NO_ROW && (c->t->state.kind[last] != LG_BLOCKED || c->t->state.dur[last] >= 0))
		last = LG_NO_ROW;
	return last;
}

static bool is_alive(const struct lg_case *c, lg_prc p)
{
	return c->t->process.end[p] >= c->t->last;
}

/* A process that it started and that sleeps in the program's own code: it may be waited for. */
static void find_child(struct lg_case *c, struct stand *s)
{
	for (lg_prc p = 1; p < c->t->process.n && !s->child; p++) {
		bool its = is_alive(c, p) && lg_descends(c, p, s->prc);
		uint32_t row = its ? last_sleep(c, main_thread(c, p)) : LG_NO_ROW;
		lg_stk own = row == LG_NO_ROW ? 0 : own_code(c, c->t->state.stack[row]);

		if (own) {
			s->child = p;
			s->child_user = own;
		}
	}
}

static const char *dso_of(const struct lg_case *c, lg_stk s)
{
	return lg_file_name(lg_string(c->t, c->t->frame.dso[c->t->stack.frame[s]]));
}

/* It runs all the time, at one line of Python, in the driver of a device or a library that moves data between
 * ranks: this is how these wait. */
static void find_spin(const struct lg_case *c, struct stand *s)
{
	struct lg_cpu_samples ran = lg_cpu_samples(&c->scene, s->thr, c->t->first, INT64_MAX), again = ran;
	size_t n = 0, spins = 0;
	int64_t from = c->t->last, to = c->t->first;
	uint32_t row;

	while (lg_next_cpu_sample(&c->scene, &ran, &row)) {
		lg_stk in = innermost(c, c->t->sample.stack[row]);

		from = LG_MIN(from, c->t->sample.ts[row]);
		to = LG_MAX(to, c->t->sample.ts[row]);
		n++;
		if (in && s->in && !same_place(c, in, s->in))
			return;
		s->in = in ?: s->in;
	}
	if (n < SPINS_MIN || !s->in)
		return;
	while (lg_next_cpu_sample(&c->scene, &again, &row)) {
		lg_stk leaf = c->t->sample.stack[row];

		spins += leaf && lg_on_list(LG_LIST_SPINS, dso_of(c, leaf));
	}
	if ((double)spins < SPIN_SHARE * (double)n)
		return;
	s->user = own_code(c, s->in) ? own_code(c, s->in) : s->in;
	s->from = from;
	s->waits = s->polls = s->stands = c->t->last - to < SEEN_NS && to - from >= SEEN_NS;
}

static void find_place(struct lg_case *c, struct stand *s)
{
	uint32_t last = last_sleep(c, s->thr);

	if (last == LG_NO_ROW) {
		find_spin(c, s);
		return;
	}
	s->from = c->t->state.ts[last];
	asleep_since(c, s);
	s->stopped = c->t->state.reason[last] == LG_WHY_STOPPED || c->t->state.reason[last] == LG_WHY_TRACED;
	s->in = innermost(c, c->t->state.stack[last]);
	for (lg_stk k = s->in; k; k = c->t->stack.parent[k]) {
		if (!is_python(c, k))
			continue;
		/* DDP reduces in the backward pass, and in its own forward. */
		s->waits |= strstr(lg_stack_file(c->t, k), "torch/distributed/") ||
			    strstr(lg_stack_file(c->t, k), "torch/autograd/") ||
			    strstr(lg_stack_file(c->t, k), "torch/nn/parallel/distributed.py");
		if (!s->user && !lg_is_library_path(lg_stack_file(c->t, k)))
			s->user = k;
	}
	s->user = s->user ?: s->in;
	s->waits &= !s->stopped;
	s->stands = s->in || s->stopped;
	if (s->in && !s->stopped)
		look_back(c, s);
	if (s->in && !s->waits && s->in != s->user)
		find_child(c, s);
}

/* Is p a rank, by its own word or because it was asked for? Not what a rank with a number started, as a
 * loader's worker: it may be taken for one by its rhythm, or by an environment that it has from the rank. */
static bool is_asked_for(struct lg_case *c, lg_prc p)
{
	bool is = c->rank_of_prc[p] || (c->t->process.role[p] == LG_ROLE_RANK && !lg_in_other_job(c, p));

	return is && (c->t->process.rank[p] >= 0 || !lg_has_numbered_parent(c, p));
}

/* Those that wait spin where they are; a compiler's workers are the job's, too. */
static bool runs(struct lg_case *c, const struct stands *all, lg_prc p, int64_t seen)
{
	LG_EACH(s, all->v, all->n)
		if (s->prc == p && s->waits)
			return false;
	return lg_in_job(c, p) &&
	       (double)lg_process_ran(c, p, seen, all->to) > IDLE_SHARE * (double)(all->to - seen);
}

/* All of them stand there since. Who polls was there already when it was first seen, and nobody knows since
 * when: the others tell. */
static void find_begin(const struct lg_case *c, struct stands *all)
{
	bool known = false;

	LG_EACH(s, all->v, all->n)
		known |= s->stands && !s->polls;
	LG_EACH(s, all->v, all->n)
		if (s->stands && !(known && s->polls && s->from <= c->t->first + SEEN_NS / 2))
			all->from = LG_MAX(all->from, s->from);
}

static int find_stands(struct lg_case *c, struct stands *ret)
{
	size_t n_stand = 0;
	int64_t seen;

	*ret = (struct stands){ .v = lg_arena_alloc(&c->v->arena, c->t->process.n, sizeof *ret->v),
				.from = INT64_MIN, .to = c->t->last };
	if (!ret->v)
		return LG_E_NOMEM;
	for (lg_prc p = 1; p < c->t->process.n; p++) {
		struct stand *s = &ret->v[ret->n];

		if (!is_asked_for(c, p))
			continue;
		*s = (struct stand){ .prc = p, .thr = main_thread(c, p), .rank = c->t->process.rank[p],
				     .ended = !is_alive(c, p) };
		if (!s->ended)
			find_place(c, s);
		n_stand += s->stands;
		ret->n_waits += s->waits;
		ret->n++;
	}
	find_begin(c, ret);
	seen = LG_MAX(ret->from, c->t->first);
	ret->whole = ret->n && n_stand == ret->n && ret->to - seen >= SEEN_NS;
	for (lg_prc p = 1; ret->whole && p < c->t->process.n; p++)
		ret->whole = !runs(c, ret, p, seen);
	return 0;
}

/* No frame tells a collective: a device, or code that is not Python, may be waited for. */
static void guess_waits(const struct lg_case *c, struct stands *all)
{
	LG_EACH_WHILE(!all->n_waits, like, all->v, all->n) {
		size_t n = 0;

		LG_EACH(s, all->v, all->n)
			n += lg_stand_alike(c, s, like);
		if (like->stopped || 2 * n <= all->n || n == all->n)
			continue;
		LG_EACH(s, all->v, all->n)
			s->told = lg_stand_alike(c, s, like);
		LG_EACH(s, all->v, all->n) {
			s->waits = s->told;
			s->told = false;
		}
		all->n_waits = n;
		all->guessed = true;
	}
}

static const char **frames_of(struct lg_case *c, lg_stk s, size_t *ret_n)
{
	const char **v = lg_arena_alloc(&c->v->arena, LG_MAX(c->t->stack.depth[s], 1), sizeof *v);
	size_t n = 0;

	for (; v && s; s = c->t->stack.parent[s])
		if (is_python(c, s))
			v[n++] = lg_place_text(c, s);
	*ret_n = n;
	return v;
}

/* The first collective that one of its threads has not come out of, else the last one; LG_NO_ROW. */
static uint32_t last_collective(const struct lg_case *c, lg_prc p)
{
	const struct lg_span_tab *s = &c->t->span;
	uint32_t open = LG_NO_ROW, last = LG_NO_ROW;

	LG_LISTED(thr, c->idx->thread, p) {
		/* Also one that was entered in the last moment and has no length. */
		LG_LISTED(row, c->idx->span, thr) {
			if (s->kind[row] != LG_SPAN_COLLECTIVE || s->seq[row] < 0)
				continue;
			if (s->dur[row] < 0)
				open = open == LG_NO_ROW || s->ts[row] < s->ts[open] ? row : open;
			last = last == LG_NO_ROW || s->ts[row] >= s->ts[last] ? row : last;
		}
	}
	return open != LG_NO_ROW ? open : last;
}

static struct lg_hang_rank rank_of(struct lg_case *c, const struct stand *s, enum lg_hang_state still)
{
	struct lg_hang_rank h = { .rank = s->rank, .pid = c->t->process.pid[s->prc], .seq = -1, .bytes = -1,
				  .state = s->ended ? LG_HANG_FINISHED
					   : s->stands ? still
					   : c->has_states ? LG_HANG_RUNNING : c->v->hang.state };
	uint32_t row = last_collective(c, s->prc);

	if (row != LG_NO_ROW) {
		h.op = lg_span_name(c->t, row);
		h.group = c->t->span.group[row] ? lg_string(c->t, c->t->span.group[row]) : NULL;
		h.seq = c->t->span.seq[row];
		h.bytes = c->t->span.bytes[row] ? (int64_t)c->t->span.bytes[row] : -1;
		h.left = c->t->span.dur[row] >= 0;
	} else if (s->waits && s->in) {
		h.op = lg_stack_name(c->t, s->in);
	}
	if (s->stands)
		h.stack = frames_of(c, s->in, &h.n_stack);
	return h;
}

static int by_rank(const void *a, const void *b)
{
	const struct lg_hang_rank *x = a, *y = b;

	return x->rank != y->rank ? LG_CMP(x->rank, y->rank) : LG_CMP(x->pid, y->pid);
}

/* What `laggard hang` says of each rank. */
static int note_ranks(struct lg_case *c, const struct stands *all)
{
	bool hangs = c->v->hang.state == LG_HANG_HUNG || (all->whole && all->to - all->from >= LONG_NS);
	enum lg_hang_state still = hangs ? LG_HANG_HUNG : LG_HANG_WAITING;
	bool over = all->n > 0, known = false;

	c->v->hang.ranks = lg_arena_alloc(&c->v->arena, all->n + 1, sizeof *c->v->hang.ranks);
	if (!c->v->hang.ranks)
		return LG_E_NOMEM;
	LG_EACH(s, all->v, all->n) {
		c->v->hang.ranks[c->v->hang.n++] = rank_of(c, s, still);
		over &= s->ended;
		known |= c->v->hang.ranks[c->v->hang.n - 1].state != LG_HANG_UNKNOWN;
	}
	qsort(c->v->hang.ranks, c->v->hang.n, sizeof *c->v->hang.ranks, by_rank);
	c->v->hang.since_s = all->whole ? lg_seconds(all->to - all->from) : (double)NAN;
	if (c->v->hang.state != LG_HANG_HUNG)
		c->v->hang.state = over ? LG_HANG_FINISHED : all->whole ? still
				   : known ? LG_HANG_RUNNING : LG_HANG_UNKNOWN;
	return 0;
}

/* Do all who wait do so in one call? Who sends to another, or receives, waits elsewhere than that one. */
static bool agree(const struct lg_case *c, const struct stands *all)
{
	const struct stand *first = NULL;
	bool alike = true;

	LG_EACH(s, all->v, all->n) {
		if (!s->waits)
			continue;
		if (strstr(lg_stack_name(c->t, s->in), "send") || strstr(lg_stack_name(c->t, s->in), "recv"))
			return true;
		alike &= !first || (!strcmp(lg_stack_name(c->t, s->in), lg_stack_name(c->t, first->in)) &&
				    same_place(c, s->user, first->user));
		first = first ?: s;
	}
	return alike;
}

static void say_places(struct lg_case *c, struct lg_finding *f, const struct stands *all)
{
	LG_EACH(s, all->v, all->n) {
		if (s->stands)
			lg_evidence_add(c, f, s->from, all->to - s->from, "%s %s%s%s", lg_thread_text(c, s->thr),
					s->stopped ? "is stopped" : "sleeps", s->in ? " in " : "",
					s->in ? lg_python_stack_text(c, s->in) : "");
		if (s->child)
			lg_evidence_add(c, f, s->from, all->to - s->from,
					LG_SAYS_COMMS_MISSING_RANK_CHILD,
					c->t->process.pid[s->child],
					lg_python_stack_text(c, s->child_user));
	}
}

static void tell(struct lg_case *c, const struct stands *all, const struct lg_world *world, const char *text)
{
	const struct stand *odd = world->odd;
	bool everyone = all->n_waits == all->n, parted = everyone && !world->text && !agree(c, all);
	struct lg_finding *f = lg_finding_or_scrap(c, parted ? LG_R_COMMS_MISMATCH : LG_R_COMMS_MISSING_RANK);

	lg_grade_unpriced(f);
	f->confidence = all->guessed ? 0.6 : !everyone || odd ? 0.9 : 0.7;
	f->stage = lg_stage_name(LG_STAGE_GRAD_SYNC);
	f->culprit.relation = LG_RELATION_RANK;
	lg_title(c, f, "%s, for %.0f s at least", text, lg_seconds(all->to - all->from));
	LG_EACH(s, all->v, all->n) {
		if (!s->waits && all->n_waits + 1 == all->n)
			odd = s;
		if (!s->waits && all->n_waits)
			lg_culprit_rank_add(c, f, s->rank);
	}
	if (odd)
		lg_culprit_identify(c, f, odd->thr, 0);
	if (odd && everyone)
		lg_culprit_rank_add(c, f, odd->rank);
	if (world->absent >= 0)
		lg_culprit_rank_add(c, f, world->absent);
	say_places(c, f, all);
	if (all->guessed)
		lg_evidence_against(c, f, LG_SAYS_COMMS_MISSING_RANK_GUESSED);
	if (everyone && !parted && !world->text)
		lg_evidence_against(c, f, LG_SAYS_COMMS_MISSING_RANK_ALL_WAIT);
}

int lg_find_standing(struct lg_case *c)
{
	struct stands all;
	struct lg_world world;
	bool told = lg_is_told(c, LG_R_COMMS_MISSING_RANK);

	if (told)
		c->v->hang.state = LG_HANG_HUNG;
	if (lg_failed(c, find_stands(c, &all)) || lg_failed(c, note_ranks(c, &all)) || !all.whole || told)
		return c->failed;
	guess_waits(c, &all);
	world = lg_world_of(c, &all);
	c->v->still = lg_text(c, "%s%s%s", world.text ?: "", world.text ? "; " : "",
			      lg_stands_text(c, &all));
	if (all.n_waits && all.n > 1 && all.to - all.from >= LONG_NS)
		tell(c, &all, &world, c->v->still);
	else
		lg_say(c, LG_SAYS_STILL_NOT_LONG, lg_seconds(all.to - all.from),
		       LG_N_COMMS_MISSING_RANK_LONG_S);
	return c->failed;
}
