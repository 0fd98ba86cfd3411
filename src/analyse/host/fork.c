/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - when a rank's main thread copied its own address space, by its CPU samples.
 *
 * fork(2) copies every page table of the process while the caller waits (kernel/fork.c, dup_mmap();
 * mm/memory.c, copy_page_range()): of a large process that takes milliseconds per GB, and every page that is
 * written afterwards is copied, too. Threads share theirs: kernel_clone() alone says nothing.
 */
#include <string.h>

#include "analyse/case.h"
#include "analyse/host/bursts.h"
#include "base/alloc.h"
#include "base/prefix.h"

#define ONE_COPY 2.5 /* sampling periods from one sample of it to the next, at most */

static bool copies(const struct lg_trace *t, lg_frm f)
{
	static const char *const functions[] = { "dup_mm", "copy_page_range", "copy_p4d_range", "copy_pud_range",
						 "copy_pmd_range", "copy_pte_range", NULL };

	return t->frame.kind[f] == LG_FRAME_KERNEL && lg_begins_with_any(lg_string(t, t->frame.name[f]), functions);
}

/* By stack row; NULL = no stack of the trace shows any, or memory is exhausted (*ret_rc). */
static uint8_t *stacks_of_copies(const struct lg_trace *t, int *ret_rc)
{
	uint8_t *of_frame, *of_stack;
	bool any = false;

	*ret_rc = 0;
	for (lg_frm f = 0; f < t->frame.n && !any; f++)
		any = copies(t, f);
	if (!any)
		return NULL;
	of_frame = lg_calloc(t->frame.n, 1);
	of_stack = lg_calloc(t->stack.n, 1);
	for (lg_frm f = 0; of_frame && f < t->frame.n; f++)
		of_frame[f] = copies(t, f);
	for (lg_stk s = 1; of_frame && of_stack && s < t->stack.n; s++) /* callers come first */
		of_stack[s] = of_stack[t->stack.parent[s]] || of_frame[t->stack.frame[s]];
	if (!of_frame || !of_stack) {
		lg_free(of_stack);
		of_stack = NULL;
		*ret_rc = LG_E_NOMEM;
	}
	lg_free(of_frame);
	return of_stack;
}

/* Each sample stands for the time around it. */
static int find_in(struct lg_case *c, const uint8_t *of_stack, const struct lg_rank *r, struct lg_stretches *l)
{
	const struct lg_sample_tab *s = &c->t->sample;
	int64_t period = lg_sampling_period(c, r->thr);
	size_t first = l->n;

	for (uint32_t i = c->idx->sample_off[r->thr]; period > 0 && i < c->idx->sample_off[r->thr + 1]; i++) {
		uint32_t row = c->idx->sample[i];
		int64_t from = s->ts[row] - period / 2, end = from + period;

		if (!of_stack[s->stack[row]] || !lg_shows_activity(c, row))
			continue;
		if (l->n > first && (double)(end - l->v[l->n - 1].end) <= ONE_COPY * (double)period)
			l->v[l->n - 1].end = end;
		else if (lg_stretch_add(l, from, end))
			return LG_E_NOMEM;
	}
	return 0;
}

int lg_find_forks(struct lg_case *c)
{
	int rc;
	uint8_t *of_stack = stacks_of_copies(c->t, &rc);

	if (!of_stack)
		return rc;
	c->forks = lg_arena_alloc(&c->v->arena, c->n_ranks, sizeof *c->forks);
	rc = c->forks ? 0 : LG_E_NOMEM;
	for (size_t i = 0; !rc && i < c->n_ranks; i++) {
		struct lg_stretches l = { 0 };

		rc = find_in(c, of_stack, &c->ranks[i], &l);
		c->forks[i] = (struct lg_forks){ lg_arena_alloc(&c->v->arena, l.n, sizeof *l.v), l.n };
		if (!rc && l.n && !c->forks[i].v)
			rc = LG_E_NOMEM;
		for (size_t k = 0; !rc && k < l.n; k++)
			c->forks[i].v[k] = (struct lg_fork){ l.v[k].ts, l.v[k].end };
		lg_stretches_done(&l);
	}
	lg_free(of_stack);
	return rc;
}

const char *lg_forked_text(struct lg_case *c, const struct lg_piece *p)
{
	const struct lg_process_tab *t = &c->t->process;
	const struct lg_fork *f = lg_fork_in(c, p->thr, p->ts, p->ts + p->dur);
	lg_prc parent = c->t->thread.prc[p->thr];

	/* It starts when all is copied. */
	for (lg_prc i = 1; f && i < t->n; i++)
		if (t->ppid[i] == t->pid[parent] && t->start[i] > f->from &&
		    t->start[i] < f->end + (f->end - f->from))
			return lg_arena_printf(&c->v->arena, "; the copy was pid %d (%s)", t->pid[i],
					       lg_string(c->t, t->comm[i]));
	return "";
}

const struct lg_fork *lg_fork_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b)
{
	uint32_t r = c->rank_of_thr[thr];
	const struct lg_forks *all;
	size_t lo = 0, hi;

	if (!r || !c->forks)
		return NULL;
	all = &c->forks[r - 1];
	hi = all->n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (all->v[mid].end <= a)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < all->n && all->v[lo].from < b ? &all->v[lo] : NULL;
}
