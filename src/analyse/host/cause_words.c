/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/host/cause_words.h"

#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/loader_story.h"
#include "base/alloc.h"
#include "base/order.h"
#include "store/kernel_names.h"
#include "store/merge.h"

const char *lg_ranks_text(struct lg_case *c, const struct lg_finding *f, lg_thr by_way)
{
	char buf[8 * (LG_PID_TEXT + 8)] = "", pid[LG_PID_TEXT];
	bool numbered = true;
	size_t n = 0;

	for (size_t i = 0; i < f->n_victims; i++)
		numbered &= f->victims[i].rank >= 0;
	if (f->n_victims && numbered)
		n = (size_t)snprintf(buf, sizeof buf, f->n_victims > 1 ? "ranks " : "rank ");
	for (size_t i = 0; i < f->n_victims; i++) {
		const char *comma = !i ? "" : i + 1 == f->n_victims ? " and " : ", ";

		if (i == 6) {
			snprintf(buf + n, sizeof buf - n, " and %zu more", f->n_victims - i);
			break;
		}
		n += numbered ? (size_t)snprintf(buf + n, sizeof buf - n, "%s%d", comma, f->victims[i].rank)
			      : (size_t)snprintf(buf + n, sizeof buf - n, "%s%s", comma,
						 lg_pid_text(f->victims[i].pid, pid));
	}
	return by_way ? lg_arena_printf(&c->v->arena, "%s (by way of %s)", buf, lg_thread_text(c, by_way))
		      : lg_arena_strdup(&c->v->arena, buf);
}

const char *lg_period_text(struct lg_case *c, const struct lg_rhythm *r)
{
	if (isnan(r->period_s))
		return "";
	return r->period_s < 0.1 ? lg_arena_printf(&c->v->arena, " every %.1f ms", 1e3 * r->period_s)
				 : lg_arena_printf(&c->v->arena, " every %.2f s", r->period_s);
}

const char *lg_side_name(struct lg_case *c, const struct lg_cause_sum *s)
{
	const struct lg_piece *longest = lg_longest_piece(s);
	uint32_t r = c->rank_of_prc[c->t->thread.prc[longest->of]];
	const struct lg_stage_seg *seg = r ? lg_save_beside(c, &c->ranks[r - 1], longest->ts) : NULL;

	for (size_t k = 0; r && !seg && k < c->ranks[r - 1].n_segs; k++)
		if (c->ranks[r - 1].segs[k].ts <= longest->ts && longest->ts < c->ranks[r - 1].segs[k].end)
			seg = &c->ranks[r - 1].segs[k];
	return seg && c->t->span.name[seg->span] ? lg_string(c->t, c->t->span.name[seg->span]) : "side";
}

bool lg_is_guess(const struct lg_cause_sum *s)
{
	return s->end == LG_END_QUOTA && s->by_proof[LG_PROOF_NONE] * 2 > s->lost;
}

/* ---- titles ---- */

/* What a title is made of. */
struct title {
	struct lg_case *c;
	struct lg_arena *a;
	struct lg_finding *f;
	const struct lg_cause_sum *s;
	const char *who, *in; /* the culprit; " in FUNCTION" */
	const char *job;      /* whose step it was */
	const char *ranks;    /* the same, and by way of whom */
	const char *held_up;  /* whose lock it was, or who was stopped: the one on the way, and not the job */
	const char *every;
	bool by_way;
	const struct lg_io_story *io;
};

static const char *title_lock(const struct title *t)
{
	return lg_arena_printf(t->a, "%s held the %s of %s%s%s; %s", t->who, t->f->culprit.lock, t->held_up, t->in, t->every,
			       t->by_way ? lg_arena_printf(t->a, "%s waited for that one", t->job)
			       : t->c->v->n_ranks < 2 ? "the step waited" : "the step waited, and every rank with it");
}

static const char *title_cpu(const struct title *t)
{
	return lg_arena_printf(t->a, "%s%s had to wait for a CPU that %s had%s%s",
			       t->s->own_job ? "the job's own threads pushed each other aside: " : "", t->ranks, t->who,
			       t->in, t->every);
}

static const char *title_io(const struct title *t)
{
	return lg_io_title(t->c, t->f, t->io, t->ranks, t->every);
}

static const char *title_stop(const struct title *t)
{
	return lg_arena_printf(t->a, "%s stopped by %s%s%s%s%s", t->held_up,
			       t->s->thr ? t->who : "a signal or a tracer", t->every, t->by_way ? "; " : "",
			       t->by_way ? t->job : "", t->by_way ? " waited for it" : "");
}

static const char *title_reclaim(const struct title *t)
{
	return lg_arena_printf(t->a, "%s reclaimed memory inside the step%s", t->ranks, t->every);
}

static const char *title_gc(const struct title *t)
{
	return lg_arena_printf(t->a, "Python's garbage collector ran inside the step of %s%s", t->ranks, t->every);
}

static const char *title_fork(const struct title *t)
{
	return lg_arena_printf(t->a, "%s forked inside the step and copied the page tables of its whole memory%s",
			       t->ranks, t->every);
}

static const char *title_side(const struct title *t)
{
	return lg_arena_printf(t->a, "%s did side work inside the loop (%s) while the step waited%s", t->ranks,
			       lg_side_name(t->c, t->s), t->every);
}

static const char *title_quota(const struct title *t)
{
	const char *quota = lg_quota_text(t->c);

	if (lg_is_guess(t->s))
		return lg_arena_printf(t->a, "%s had to wait beside idle CPUs%s: its cgroup's CPU quota was used up, "
				       "probably", t->ranks, t->every);
	return lg_arena_printf(t->a, "%s had used up the CPU quota of the cgroup (%s) and had to wait beside idle CPUs%s",
			       t->ranks, quota ? quota : "size unknown", t->every);
}

static const char *title_peer(const struct title *t)
{
	const char *lock = t->f->culprit.lock;

	return lg_arena_printf(t->a, "%s waited for %s%s %s (%s)%s", t->ranks, t->who, t->in,
			       lg_peer_words(lock, &t->f->detail), lock ? lock : "asleep", t->every);
}

static const char *title_gil(const struct title *t)
{
	return lg_arena_printf(t->a, "%s waited for Python's lock (the GIL), which thread %d (%s) of the same process "
			       "held%s%s", t->ranks, t->f->culprit.tid,
			       lg_string(t->c->t, t->c->t->thread.comm[t->s->thr]), t->in, t->every);
}

static const char *title_loader(const struct title *t)
{
	return lg_loader_title(t->c, t->f, t->ranks, t->every);
}

/* ---- moments ---- */

/* Where the victim was when it was hit: the innermost named frames that are not lock plumbing. */
static const char *wait_place(struct lg_case *c, const struct lg_piece *p)
{
	const struct lg_trace *t = c->t;
	lg_stk s = p->row != UINT32_MAX && p->end == LG_END_LOCK ? t->span.stack[p->row] : 0;

	for (; s; s = t->stack.parent[s]) {
		const char *name = lg_string(t, t->frame.name[t->stack.frame[s]]);

		if (*name && !lg_is_plumbing(name, LG_PLUMBING_PLACE))
			return lg_arena_printf(&c->v->arena, " in %s", name);
	}
	return "";
}

static const char *victim_text(struct lg_case *c, lg_thr of)
{
	lg_prc p = c->t->thread.prc[of];
	char pid[LG_PID_TEXT];

	if (c->t->process.rank[p] >= 0)
		return lg_arena_printf(&c->v->arena, "rank %d (%s)", c->t->process.rank[p],
				       lg_pid_text(c->t->process.pid[p], pid));
	return lg_thread_text(c, of);
}

/* What shows that it was p->thr who stopped it. */
static const char *stop_words(const struct lg_piece *p)
{
	return !p->thr			       ? ""
	       : p->proof == LG_PROOF_SCHED    ? " had sent the signal"
	       : p->proof == LG_PROOF_OWNER    ? " traced it, and let it go on"
					       : " let it go on: probable";
}

/* The CPU on which the culprit ran: for which one the other was queued, its own row need not tell (a new
 * thread is put somewhere when it is woken first). */
static const char *cpu_text(struct lg_case *c, const struct lg_piece *p)
{
	uint32_t row = lg_index_state_at(c->idx, p->thr, p->ts);

	return row == LG_NO_ROW || c->t->state.cpu[row] < 0
		       ? "its CPU" : lg_arena_printf(&c->v->arena, "CPU %d", c->t->state.cpu[row]);
}

/* One of its waits. */
struct moment {
	struct lg_case *c;
	struct lg_finding *f;
	const struct lg_piece *p;
	const char *who, *by; /* waited; ended it */
	double ms;
};

static void moment_lock(const struct moment *m)
{
	const struct lg_piece *p = m->p;
	const char *how = p->proof == LG_PROOF_OWNER_READER ? "last reader stored in the lock: probable"
			  : p->proof == LG_PROOF_WAKER ? "it ended the wait: probable" : "it held the lock";

	if (p->hold != UINT32_MAX)
		how = lg_arena_printf(&m->c->v->arena, "held for %.1f ms", (double)m->c->t->span.dur[p->hold] / 1e6);
	lg_evidence_add(m->c, m->f, p->ts, p->dur, "%s waited %.1f ms for %s%s; holder %s, %s", m->who, m->ms,
			lg_lock_text(m->c, p->lock), wait_place(m->c, p), m->by, how);
}

static void moment_peer(const struct moment *m)
{
	const struct lg_trace *t = m->c->t;

	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s waited %.1f ms in %s; %s, which %s, ended the wait", m->who,
			m->ms, m->p->lock ? lg_string(t, m->p->lock) : "the kernel", m->by,
			t->state.kind[m->p->row] == LG_RUNNING ? "ran meanwhile" : "slept meanwhile");
}

static void moment_cpu(const struct moment *m)
{
	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s was ready to run for %.1f ms while %s had %s", m->who, m->ms,
			m->by, cpu_text(m->c, m->p));
}

static void moment_stop(const struct moment *m)
{
	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s was stopped for %.1f ms%s%s%s", m->who, m->ms,
			m->p->thr ? "; " : "", m->p->thr ? m->by : "", stop_words(m->p));
}

static void moment_gil(const struct moment *m)
{
	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s waited 5 ms at a time for Python's lock, and thread %d ran "
			"Python for %.1f ms of that and ended the wait", m->who, m->c->t->thread.tid[m->p->thr], m->ms);
}

static void moment_gc(const struct moment *m)
{
	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s collected garbage for %.1f ms", m->who, m->ms);
}

static void moment_fork(const struct moment *m)
{
	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s %s", m->who, lg_fork_text(m->c, m->p));
}

static void moment_other(const struct moment *m)
{
	lg_evidence_add(m->c, m->f, m->p->ts, m->p->dur, "%s lost %.1f ms here", m->who, m->ms);
}

/* ---- facts; name: who is behind it ---- */

static const char *fact_lock(struct lg_case *c, const struct lg_cause_sum *s, const char *name)
{
	return lg_arena_printf(&c->v->arena, "waited for %s, while %s held it", lg_lock_text(c, s->lock), name);
}

static const char *fact_cpu(struct lg_case *c, const struct lg_cause_sum *s, const char *name)
{
	(void)s;
	return lg_arena_printf(&c->v->arena, "was ready for a CPU that %s had", name);
}

static const char *fact_quota(struct lg_case *c, const struct lg_cause_sum *s, const char *name)
{
	(void)c, (void)s, (void)name;
	return "was ready beside an idle CPU, as with a used-up CPU quota (nr_throttled in the cgroup's cpu.stat grows)";
}

static const char *fact_stop(struct lg_case *c, const struct lg_cause_sum *s, const char *name)
{
	(void)s;
	return lg_arena_printf(&c->v->arena, "was stopped by %s", name);
}

/* ---- all of them, by end ---- */

static const struct {
	const char *(*title)(const struct title *t);
	void (*moment)(const struct moment *m);
	const char *(*fact)(struct lg_case *c, const struct lg_cause_sum *s, const char *name);
} words[] = {
#define X(name, cause, place, part, rule, own_rule, charged, did, pool, side, batch, stepless, title, \
	  moment, fact) \
	[LG_END_##name] = { title, moment, fact },
#include "analyse/chains/ends.def"
#undef X
};

void lg_cause_title(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		    const struct lg_io_story *io)
{
	struct lg_arena *a = &c->v->arena;
	/* Whose batch or checkpoint it is goes without saying. */
	bool by_way = !c->rank_of_prc[c->t->thread.prc[s->victim]] && s->end != LG_END_LOADER &&
		      s->end != LG_END_SIDE;
	struct title p = { .c = c, .a = a, .f = f, .s = s, .by_way = by_way, .io = io,
			   .every = lg_period_text(c, &s->rhythm) };

	p.who = f->culprit.comm ? lg_arena_printf(a, "%s (pid %d)", f->culprit.comm, f->culprit.pid) : "nobody known";
	p.job = lg_ranks_text(c, f, 0);
	p.ranks = lg_ranks_text(c, f, by_way ? s->victim : 0);
	p.held_up = by_way ? lg_thread_text(c, s->victim) : p.job;
	p.in = f->culprit.function ? lg_arena_printf(a, " in %s", f->culprit.function) : "";
	/* The process is the same: it is the thread that tells them apart. */
	if (f->culprit.relation == LG_RELATION_SAME_PROCESS)
		p.who = lg_thread_text(c, s->thr);
	if (s->n_members > 1 && !s->own_job)
		p.who = lg_arena_printf(a, "%zu processes started by %s (%s%s%s%s%s)", s->n_members, p.who,
					lg_string(c->t, c->t->process.comm[s->member[0]]), s->member[1] ? ", " : "",
					lg_string(c->t, c->t->process.comm[s->member[1]]), s->member[2] ? ", " : "",
					lg_string(c->t, c->t->process.comm[s->member[2]]));
	f->title = words[s->end].title(&p);
}

static int cmp_longest(const void *a, const void *b)
{
	const struct lg_piece *x = *(const struct lg_piece *const *)a;
	const struct lg_piece *y = *(const struct lg_piece *const *)b;

	return LG_CMP(y->dur, x->dur) ?: LG_CMP(x->ts, y->ts);
}

void lg_cause_moments(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	LG_AUTOFREE const struct lg_piece **v = lg_calloc(s->n_pieces, sizeof *v);

	if (!v) {
		c->failed = LG_E_NOMEM;
		return;
	}
	memcpy(v, s->pieces, s->n_pieces * sizeof *v);
	qsort(v, s->n_pieces, sizeof *v, cmp_longest);
	for (size_t i = 0; i < s->n_pieces && i < 4; i++)
		words[v[i]->end].moment(&(struct moment){
			.c = c, .f = f, .p = v[i], .who = victim_text(c, v[i]->of),
			.by = lg_thread_text(c, v[i]->thr), .ms = (double)v[i]->dur / 1e6 });
}

const char *lg_cause_fact(struct lg_case *c, const struct lg_cause_sum *s)
{
	const char *name = s->thr ? lg_thread_text(c, s->thr) : "a signal or a tracer";

	if (s->n_members > 1 && s->prc)
		name = lg_arena_printf(&c->v->arena, "%zu processes started by %s", s->n_members,
				       lg_thread_text(c, c->idx->main_of[s->prc]));
	return words[s->end].fact ? words[s->end].fact(c, s, name) : lg_arena_printf(&c->v->arena, "waited for %s", name);
}
