/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/host/causes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyse/chains/culprit.h"
#include "store/kernel_names.h"

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
	return by_way ? lg_text(c, "%s (by way of %s)", buf, lg_thread_text(c, by_way))
		: lg_arena_strdup(&c->v->arena, buf);
}

const char *lg_period_text(struct lg_case *c, const struct lg_rhythm *r)
{
	if (isnan(r->period_s))
		return "";
	return r->period_s < 0.1 ? lg_text(c, " every %.1f ms", 1e3 * r->period_s)
				 : lg_text(c, " every %.2f s", r->period_s);
}

const char *lg_in_text(struct lg_case *c, const struct lg_finding *f)
{
	return f->culprit.function ? lg_text(c, " in %s", f->culprit.function) : "";
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
	struct lg_finding *f;
	const struct lg_cause_sum *s;
	const char *who, *in; /* the culprit; " in FUNCTION" */
	const char *job;      /* whose step it was */
	const char *ranks;    /* the same, and by way of whom */
	const char *held_up;  /* whose lock it was, or who was stopped: the one on the way, and not the job */
	const char *every;
	const struct lg_io_story *io;
};

static const char *title_io(const struct title *t)
{
	return lg_io_title(t->c, t->f, t->io, t->ranks, t->every);
}

static const char *title_quota(const struct title *t)
{
	const char *quota = lg_quota_text(t->c);

	if (lg_is_guess(t->s))
		return lg_text(t->c, LG_SAYS_HOST_CPU_THROTTLED_PROBABLY, t->ranks, t->every);
	return lg_text(t->c, LG_SAYS_HOST_CPU_THROTTLED_TITLE, t->ranks,
		       quota ? quota : "size unknown", t->every);
}

static const char *title_peer(const struct title *t)
{
	const char *lock = t->f->culprit.lock;

	return lg_text(t->c, "%s waited for %s%s %s (%s)%s", t->ranks, t->who, t->in,
		       lg_peer_words(lock, &t->f->detail), lock ?: "asleep", t->every);
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
		const char *name = lg_stack_name(t, s);

		if (*name && !lg_is_plumbing(name, LG_PLUMBING_PLACE))
			return lg_text(c, " in %s", name);
	}
	return "";
}

static const char *victim_text(struct lg_case *c, lg_thr of)
{
	lg_prc p = c->t->thread.prc[of];
	char pid[LG_PID_TEXT];

	if (c->t->process.rank[p] >= 0)
		return lg_text(c, "rank %d (%s)", c->t->process.rank[p],
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

	return row == LG_NO_ROW || c->t->state.cpu[row] < 0 ? "its CPU"
		: lg_text(c, "CPU %d", c->t->state.cpu[row]);
}

/* What shows that it held the lock. */
static const char *holder_words(struct lg_case *c, const struct lg_piece *p)
{
	if (p->end == LG_END_LOCK && p->hold != UINT32_MAX)
		return lg_text(c, "held for %.1f ms", lg_ms(c->t->span.dur[p->hold]));
	return p->proof == LG_PROOF_OWNER_READER ? "last reader stored in the lock: probable"
	       : p->proof == LG_PROOF_WAKER ? "it ended the wait: probable" : "it held the lock";
}

/* ---- all of them, by end ---- */

static const struct {
	struct {
		const char *text;
		const char *(*by)(const struct title *t);
	} title;
	const char *moment, *fact;
} words[] = {
#define TEXT(text) { text, NULL }
#define BY(function) { NULL, function }
#define X(name, cause, place, part, rule, own_rule, charged, did, pool, side, batch, stepless, title, \
	  moment, fact) \
	[LG_END_##name] = { title, moment, fact },
#include "rules/ends.def"
#undef X
};

/* A word of such a text. */
struct word {
	const char *name, *is;
};

/* The text, each {name} replaced by what it is. */
static const char *fill(struct lg_case *c, const char *text, const struct word *w, size_t n)
{
	const char *filled = "";

	for (const char *open; (open = strchr(text, '{')); text = open + strcspn(open, "}") + 1) {
		size_t k = 0, len = strcspn(open + 1, "}");

		while (k < n && (strlen(w[k].name) != len || strncmp(w[k].name, open + 1, len)))
			k++;
		filled = lg_text(c, "%s%.*s%s", filled, (int)(open - text), text, k < n && w[k].is ? w[k].is : "");
	}
	return lg_text(c, "%s%s", filled, text);
}

#define FILL(c, text, ...) \
	fill((c), (text), (const struct word[]){ __VA_ARGS__ }, \
	     sizeof((const struct word[]){ __VA_ARGS__ }) / sizeof(struct word))

/* What the first of them are called, each name once. */
static const char *member_names(struct lg_case *c, const struct lg_cause_sum *s)
{
	const lg_str *comm = c->t->process.comm;
	const char *text = "";

	for (size_t i = 0; i < LG_COUNT(s->member) && s->member[i]; i++) {
		bool told = false;

		for (size_t k = 0; k < i; k++)
			told |= comm[s->member[k]] == comm[s->member[i]];
		if (!told)
			text = lg_text(c, "%s%s%s", text, i ? ", " : "", lg_string(c->t, comm[s->member[i]]));
	}
	return text;
}

void lg_cause_title(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		    const struct lg_io_story *io)
{
	/* Whose batch or checkpoint it is goes without saying. */
	bool by_way = !c->rank_of_prc[c->t->thread.prc[s->victim]] && s->end != LG_END_LOADER &&
		      s->end != LG_END_SIDE;
	struct title p = { .c = c, .f = f, .s = s, .io = io,
			   .every = lg_period_text(c, &s->rhythm) };

	p.who = f->culprit.comm ? lg_text(c, "%s (pid %d)", f->culprit.comm, f->culprit.pid) : "nobody known";
	p.job = lg_ranks_text(c, f, 0);
	p.ranks = lg_ranks_text(c, f, by_way ? s->victim : 0);
	p.held_up = by_way ? lg_thread_text(c, s->victim) : p.job;
	p.in = lg_in_text(c, f);
	/* The process is the same: it is the thread that tells them apart. */
	if (f->culprit.relation == LG_RELATION_SAME_PROCESS)
		p.who = lg_thread_text(c, s->thr);
	if (s->n_members > 1 && !s->own_job)
		p.who = lg_text(c, LG_SAYS_CHAIN_MEMBERS, s->n_members, p.who, member_names(c, s));
	f->title = words[s->end].title.by ? words[s->end].title.by(&p) : FILL(c, words[s->end].title.text,
		{ "who", p.who }, { "in", p.in }, { "job", p.job }, { "ranks", p.ranks }, { "every", p.every },
		{ "held up", p.held_up }, { "lock", f->culprit.lock }, { "side", lg_side_name(c, s) },
		{ "tid", lg_text(c, "%d", f->culprit.tid) },
		{ "thread", lg_string(c->t, c->t->thread.comm[s->thr]) },
		{ "own", s->own_job ? "the job's own threads pushed each other aside: " : "" },
		{ "stopper", s->thr ? p.who : "a signal or a tracer" },
		{ "kept", f->detail && !strcmp(f->detail, "native_call") ? LG_SAYS_PYTHON_GIL_WAIT_NATIVE : "" },
		{ "waited too", by_way ? lg_text(c, "; %s waited for it", p.job) : "" },
		{ "waited", by_way ? lg_text(c, "%s waited for that one", p.job) : c->v->n_ranks < 2
			    ? "the step waited" : "the step waited, and every rank with it" });
}

static int cmp_longest(const void *a, const void *b)
{
	const struct lg_piece *x = *(const struct lg_piece *const *)a;
	const struct lg_piece *y = *(const struct lg_piece *const *)b;

	return LG_CMP(y->dur, x->dur) ?: LG_CMP(x->ts, y->ts);
}

void lg_cause_moments(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	LG_AUTOFREE const struct lg_piece **v = lg_scratch(c, s->n_pieces, sizeof *v);

	if (!v)
		return;
	memcpy(v, s->pieces, s->n_pieces * sizeof *v);
	qsort(v, s->n_pieces, sizeof *v, cmp_longest);
	for (size_t i = 0; i < s->n_pieces && i < 4; i++) {
		const struct lg_piece *p = v[i];
		const char *by = lg_thread_text(c, p->thr);
		bool runs = p->end == LG_END_PEER && c->t->state.kind[p->row] == LG_RUNNING;

		lg_evidence_add(c, f, p->ts, p->dur, "%s", FILL(c, words[p->end].moment,
			{ "who", victim_text(c, p->of) }, { "ms", lg_text(c, "%.1f", lg_ms(p->dur)) },
			{ "by", by }, { "lock", lg_lock_text(c, p->lock) }, { "place", wait_place(c, p) },
			{ "held", holder_words(c, p) }, { "in", p->lock ? lg_string(c->t, p->lock) : "the kernel" },
			{ "did", runs ? "ran meanwhile" : "slept meanwhile" }, { "cpu", cpu_text(c, p) },
			{ "stopper", p->thr ? lg_text(c, "; %s%s", by, stop_words(p)) : "" },
			{ "tid", lg_text(c, "%d", c->t->thread.tid[p->thr]) }, { "forked", lg_fork_text(c, p) }));
	}
}

const char *lg_cause_fact(struct lg_case *c, const struct lg_cause_sum *s)
{
	const char *name = s->thr ? lg_thread_text(c, s->thr) : "a signal or a tracer";

	if (s->n_members > 1 && s->prc)
		name = lg_text(c, "%zu processes started by %s", s->n_members,
			       lg_thread_text(c, c->idx->main_of[s->prc]));
	return FILL(c, words[s->end].fact, { "name", name }, { "lock", lg_lock_text(c, s->lock) });
}
