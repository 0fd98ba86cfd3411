/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chores.c - what the kernel does in a rank's main thread, or in copies of it, that its program did not ask
 * for, by CPU samples.
 *
 *  - fork(2) copies every page table of the process while the caller waits (kernel/fork.c, dup_mmap();
 *    mm/memory.c, copy_page_range()): of a large process that takes milliseconds per GB, and every page that
 *    is written afterwards is copied, too (do_wp_page()): without a copy before it that is something else.
 *    Threads share theirs: kernel_clone() alone says nothing. What was copied the copy takes down again, at
 *    its exec() or exit (exit_mmap()), and who waits for it waits for that.
 *  - Who asks for memory when there is none looks for some first (mm/vmscan.c, do_try_to_free_pages(); of a
 *    cgroup at its limit try_to_free_mem_cgroup_pages(); mm/compaction.c). Mostly that is computing, not
 *    waiting.
 */
#include "analyse/chains/chains.h"
#include "timeline/bursts.h"
#include "analyse/steps/steps.h"
#include "base/upper_bound.h"
#include "rules/names.h"

#define ONE_CHORE 2.5 /* sampling periods from one sample of it to the next, at most */

enum { ON_WRITE = LG_END_MAX, TAKE_DOWN }; /* kinds of frames: LG_END_FORK, if it has forked; in a copy */

static uint8_t kind_of_frame(const struct lg_trace *t, lg_frm f)
{
	const char *name;

	if (t->frame.kind[f] != LG_FRAME_KERNEL)
		return LG_END_NONE;
	name = lg_string(t, t->frame.name[f]);
	return lg_is_named(name, LG_NAMED_FORK) ? LG_END_FORK
	       : lg_is_named(name, LG_NAMED_RECLAIM) ? LG_END_RECLAIM
	       : lg_is_named(name, LG_NAMED_ON_WRITE) ? (uint8_t)ON_WRITE
	       : lg_is_named(name, LG_NAMED_TAKE_DOWN) ? (uint8_t)TAKE_DOWN : LG_END_NONE;
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
	struct lg_case *c;
	const uint8_t *of_stack;
	size_t cap;
	int64_t period; /* of the rank's main thread; its copies live for a few samples */
	bool forked;    /* it has */
};

/* A sample in which thr does a chore stands for the time around it. */
static void add(struct found *l, lg_thr thr, int64_t ts, enum lg_end_kind kind, enum lg_fork_part part)
{
	struct lg_case *c = l->c;
	int64_t from = ts - l->period / 2, end = from + l->period;
	struct lg_chore *last = c->n_chores ? &c->chores[c->n_chores - 1] : NULL;

	if (last && last->thr != thr)
		last = NULL;
	if (last && last->kind == kind && last->part == part &&
	    (double)(end - last->end) <= ONE_CHORE * (double)l->period) {
		last->end = end;
		return;
	}
	if (last && from < last->end)
		from = last->end;
	(void)lg_failed(c, LG_APPEND(c->chores, c->n_chores, l->cap,
				     (struct lg_chore){ thr, from, end, (uint8_t)kind, part }));
}

static void find_in_main(struct found *l, lg_thr thr)
{
	struct lg_case *c = l->c;

	LG_LISTED_WHILE(l->period > 0 && !c->failed, row, c->idx->sample, thr) {
		uint8_t kind = l->of_stack[c->t->sample.stack[row]];

		if (kind == LG_END_NONE || kind == TAKE_DOWN || (kind == ON_WRITE && !l->forked) ||
		    !lg_shows_activity(&c->scene, row))
			continue;
		l->forked |= kind == LG_END_FORK;
		add(l, thr, c->t->sample.ts[row], kind == ON_WRITE ? LG_END_FORK : (enum lg_end_kind)kind,
		    kind == ON_WRITE ? LG_FORK_ON_WRITE : LG_FORK_COPIED);
	}
}

static bool same_string(const struct lg_case *c, lg_str a, lg_str b)
{
	return a == b || !strcmp(lg_string(c->t, a), lg_string(c->t, b));
}

/* Did p never become another program? One that lived shortly may have no command line. */
static bool is_copy(const struct lg_case *c, lg_prc p, lg_prc of)
{
	const struct lg_process_tab *t = &c->t->process;

	return *lg_string(c->t, t->cmdline[p]) ? same_string(c, t->cmdline[p], t->cmdline[of])
					       : same_string(c, t->comm[p], t->comm[of]);
}

/* Was it in fs/binfmt_elf.c, which gives up what was copied for a program of its own? */
static bool in_exec(const struct lg_case *c, lg_stk s)
{
	while (s && strcmp(lg_string(c->t, c->t->frame.name[c->t->stack.frame[s]]), "load_elf_binary"))
		s = c->t->stack.parent[s];
	return s != 0;
}

/* Of all that p, which a rank started, does. */
static void find_in_child(struct found *l, lg_prc p, bool copy)
{
	const struct lg_sample_tab *s = &l->c->t->sample;

	LG_LISTED(thr, l->c->idx->thread, p)
		LG_LISTED_WHILE(!l->c->failed, row, l->c->idx->sample, thr)
			if (l->of_stack[s->stack[row]] == TAKE_DOWN && lg_shows_activity(&l->c->scene, row) &&
			    (copy || in_exec(l->c, s->stack[row])))
				add(l, thr, s->ts[row], LG_END_FORK, LG_FORK_TAKEN_DOWN);
}

LG_ORDER_BY(by_thread, struct lg_chore, LG_CMP(x->thr, y->thr) ?: LG_CMP(x->from, y->from))

int lg_find_chores(struct lg_case *c)
{
	int rc = 0;
	/* Of samples alone no chain is made. */
	uint8_t *of_stack = c->t->state.n ? kind_of_stacks(c->t, &rc) : NULL;
	struct found l = { .c = c, .of_stack = of_stack };

	for (size_t i = 0; of_stack && i < c->n_ranks; i++) {
		l.forked = false;
		l.period = lg_sampling_period(&c->scene, c->ranks[i].thr);
		find_in_main(&l, c->ranks[i].thr);
		for (lg_prc p = 1; l.forked && p < c->t->process.n; p++)
			if (!c->rank_of_prc[p] && lg_parent_of(c, p) == c->ranks[i].prc)
				find_in_child(&l, p, is_copy(c, p, c->ranks[i].prc));
	}
	lg_free(of_stack);
	LG_SORT(c->chores, c->n_chores, by_thread);
	if (c->chores) {
		c->chores = lg_arena_adopt(&c->v->arena, c->chores);
		rc = c->chores ? rc : LG_E_NOMEM;
	}
	return rc ?: c->failed;
}

const char *lg_fork_text(struct lg_case *c, const struct lg_piece *p)
{
	const struct lg_process_tab *t = &c->t->process;
	const struct lg_chore *f = lg_chore_in(c, p->thr, p->ts, p->ts + p->dur);
	lg_prc parent = c->t->thread.prc[p->thr];
	const char *copy = "";

	if (f && f->part == LG_FORK_ON_WRITE)
		return lg_text(c, LG_SAYS_HOST_SELF_FORK_ON_WRITE, lg_ms(p->dur));
	if (f && f->part == LG_FORK_TAKEN_DOWN)
		return lg_text(c, LG_SAYS_HOST_SELF_FORK_TAKEN_DOWN, t->pid[parent], lg_ms(p->dur));
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
	const struct lg_chore *v = c->chores;
	size_t lo = 0, hi = c->n_chores;

	LG_BISECT(lo, hi, mid, v[mid].thr < thr || (v[mid].thr == thr && v[mid].end <= a));
	return lo < c->n_chores && v[lo].thr == thr && v[lo].from < b ? &v[lo] : NULL;
}
