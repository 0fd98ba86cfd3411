/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chores.c - what the kernel does in a rank's main thread that its program did not ask for, by CPU samples.
 *
 *  - fork(2) copies every page table of the process while the caller waits (kernel/fork.c, dup_mmap();
 *    mm/memory.c, copy_page_range()): of a large process that takes milliseconds per GB, and every page that
 *    is written afterwards is copied, too (do_wp_page()): without a copy before it that is something else.
 *    Threads share theirs: kernel_clone() alone says nothing.
 *  - Who asks for memory when there is none looks for some first (mm/vmscan.c, do_try_to_free_pages(); of a
 *    cgroup at its limit try_to_free_mem_cgroup_pages(); mm/compaction.c). Mostly that is computing, not
 *    waiting.
 */
#include "analyse/chains/chains.h"
#include "analyse/chains/bursts.h"
#include "base/upper_bound.h"
#include "rules/names.h"

#define ONE_CHORE 2.5 /* sampling periods from one sample of it to the next, at most */

enum { ON_WRITE = LG_END_MAX }; /* a kind of frame: LG_END_FORK, if it has forked */

static uint8_t kind_of_frame(const struct lg_trace *t, lg_frm f)
{
	const char *name;

	if (t->frame.kind[f] != LG_FRAME_KERNEL)
		return LG_END_NONE;
	name = lg_string(t, t->frame.name[f]);
	return lg_is_named(name, LG_NAMED_FORK) ? LG_END_FORK
	       : lg_is_named(name, LG_NAMED_RECLAIM) ? LG_END_RECLAIM
	       : lg_is_named(name, LG_NAMED_ON_WRITE) ? (uint8_t)ON_WRITE : LG_END_NONE;
}

bool lg_is_chore(const struct lg_trace *t, lg_stk s)
{
	while (s && kind_of_frame(t, t->stack.frame[s]) == LG_END_NONE)
		s = t->stack.parent[s];
	return s != 0;
}

/* By stack row; NULL = no stack of the trace shows any, or memory is exhausted (*ret_rc). */
static uint8_t *kind_of_stacks(const struct lg_trace *t, int *ret_rc)
{
	uint8_t *of_frame, *of_stack;
	bool any = false;

	*ret_rc = 0;
	of_frame = lg_calloc(t->frame.n, 1);
	for (lg_frm f = 0; of_frame && f < t->frame.n; f++) {
		of_frame[f] = kind_of_frame(t, f);
		any |= of_frame[f] != LG_END_NONE;
	}
	of_stack = any ? lg_calloc(t->stack.n, 1) : NULL;
	for (lg_stk s = 1; of_stack && s < t->stack.n; s++) { /* callers come first */
		uint8_t own = of_frame[t->stack.frame[s]];

		of_stack[s] = own != LG_END_NONE ? own : of_stack[t->stack.parent[s]];
	}
	if (!of_frame || (any && !of_stack))
		*ret_rc = LG_E_NOMEM;
	lg_free(of_frame);
	return of_stack;
}

struct found {
	struct lg_chore *v;
	size_t n, cap;
};

/* Each sample stands for the time around it. */
static int find_in(struct lg_case *c, const uint8_t *of_stack, const struct lg_rank *r, struct found *l)
{
	const struct lg_sample_tab *s = &c->t->sample;
	int64_t period = lg_sampling_period(c, r->thr);
	bool forked = false;

	LG_LISTED_WHILE(period > 0, row, c->idx->sample, r->thr) {
		int64_t from = s->ts[row] - period / 2, end = from + period;
		uint8_t kind = of_stack[s->stack[row]];
		struct lg_chore *last = l->n ? &l->v[l->n - 1] : NULL;
		bool on_write = kind == ON_WRITE;

		if (kind == LG_END_NONE || (on_write && !forked) || !lg_shows_activity(c, row))
			continue;
		forked |= kind == LG_END_FORK;
		kind = on_write ? LG_END_FORK : kind;
		if (last && last->kind == kind && last->on_write == on_write &&
		    (double)(end - last->end) <= ONE_CHORE * (double)period) {
			last->end = end;
			continue;
		}
		if (last && from < last->end)
			from = last->end;
		if (LG_APPEND(l->v, l->n, l->cap, (struct lg_chore){ from, end, kind, on_write }))
			return LG_E_NOMEM;
	}
	return 0;
}

int lg_find_chores(struct lg_case *c)
{
	int rc = 0;
	/* Of samples alone no chain is made. */
	uint8_t *of_stack = c->t->state.n ? kind_of_stacks(c->t, &rc) : NULL;

	if (!of_stack)
		return rc;
	c->chores = lg_arena_alloc(&c->v->arena, c->n_ranks, sizeof *c->chores);
	rc = c->chores ? 0 : LG_E_NOMEM;
	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		struct found l = { 0 };

		rc = find_in(c, of_stack, &c->ranks[i], &l);
		c->chores[i] = (struct lg_chores){ lg_arena_adopt(&c->v->arena, l.v), l.n };
		if (l.n && !c->chores[i].v)
			rc = LG_E_NOMEM;
	}
	lg_free(of_stack);
	return rc;
}

const char *lg_fork_text(struct lg_case *c, const struct lg_piece *p)
{
	const struct lg_process_tab *t = &c->t->process;
	const struct lg_chore *f = lg_chore_in(c, p->thr, p->ts, p->ts + p->dur);
	lg_prc parent = c->t->thread.prc[p->thr];
	const char *copy = "";

	if (f && f->on_write)
		return lg_text(c, LG_SAYS_HOST_SELF_FORK_ON_WRITE, lg_ms(p->dur));
	/* It starts when all is copied. */
	for (lg_prc i = 1; f && i < t->n && !*copy; i++)
		if (t->ppid[i] == t->pid[parent] && t->start[i] > f->from &&
		    t->start[i] < f->end + (f->end - f->from))
			copy = lg_text(c, "; the copy was pid %d (%s)", t->pid[i],
				       lg_string(c->t, t->comm[i]));
	return lg_text(c, LG_SAYS_HOST_SELF_FORK_COPIED, lg_ms(p->dur), copy);
}

const struct lg_chore *lg_chore_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b)
{
	uint32_t r = c->rank_of_thr[thr];
	const struct lg_chores *all;
	size_t i;

	if (!r || !c->chores)
		return NULL;
	all = &c->chores[r - 1];
	i = LG_UPPER_BOUND(all->v, all->n, end, a);
	return i < all->n && all->v[i].from < b ? &all->v[i] : NULL;
}
