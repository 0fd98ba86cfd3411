/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause_rules.c - add up the critical path by the end of its chains and keep what is worth a
 * sentence.
 *
 * A cause is (kind of end, culprit process, lock). Its lost time is its share of the critical
 * path, so each nanosecond of the run is given once. What slow steps lost beyond that, by running
 * longer than usual, belongs to the rank that ran (comms.straggler or its own business).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/io.h"
#include "analyse/host/loader_story.h"
#include "analyse/chains/tally.h"
#include "analyse/severity.h"
#include "base/alloc.h"
#include "store/merge.h"

struct lg_finding lg_finding_blank(const char *id)
{
	struct lg_finding f = { .id = id, .severity = "info", .lost_ms = NAN, .lost_share = NAN,
				.excess_share = NAN, .cost_per_hour = NAN, .title = "" };

	f.culprit.pid = f.culprit.tid = f.culprit.rank = -1;
	return f;
}

struct lg_finding *lg_finding_add(struct lg_case *c, const char *id)
{
	struct lg_verdict *v = c->v;
	struct lg_finding *f;

	if (v->n_findings == LG_FINDINGS_MAX)
		return NULL;
	f = &v->findings[v->n_findings++];
	*f = lg_finding_blank(id);
	f->evidence = lg_arena_alloc(&v->arena, LG_EVIDENCE_MAX, sizeof *f->evidence);
	f->against = lg_arena_alloc(&v->arena, LG_EVIDENCE_MAX, sizeof *f->against);
	if (!f->evidence || !f->against) {
		v->n_findings--;
		c->failed = LG_E_NOMEM;
		return NULL;
	}
	return f;
}

static void say(struct lg_case *c, struct lg_evidence *list, size_t *n, int64_t ts, int64_t dur,
		const char *text)
{
	if (*n < LG_EVIDENCE_MAX)
		list[(*n)++] = (struct lg_evidence){
			.text = lg_arena_strdup(&c->v->arena, text), .ts = ts, .dur = dur };
}

void lg_evidence_add(struct lg_case *c, struct lg_finding *f, int64_t ts, int64_t dur,
		     const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	say(c, f->evidence, &f->n_evidence, ts, dur, text);
}

void lg_evidence_against(struct lg_case *c, struct lg_finding *f, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	say(c, f->against, &f->n_against, INT64_MIN, 0, text);
}

static const char *severity_of(double share, size_t repeats, int64_t wall)
{
	return lg_gradable(repeats, wall) ? lg_severity_of(share) : lg_severity_of_few(share);
}

/* How often it was seen: in separate episodes, or, where it is always there, in so many steps. */
static size_t repeats_of(const struct lg_cause_sum *s)
{
	return s->steady && s->n_steps_hit > s->rhythm.n_events ? s->n_steps_hit : s->rhythm.n_events;
}

static double confidence_of(const struct lg_case *c, const struct lg_tally *y, const struct lg_cause_sum *s)
{
	static const double by_proof[] = { [LG_PROOF_NONE] = 0.3,   [LG_PROOF_WAKER] = 0.55,
					   [LG_PROOF_OWNER_READER] = 0.65, [LG_PROOF_OWNER] = 0.9,
					   [LG_PROOF_HOLD] = 0.98, [LG_PROOF_SCHED] = 0.96 };
	double sum = 0, total = 0;

	for (size_t i = 0; i < sizeof by_proof / sizeof *by_proof; i++) {
		sum += by_proof[i] * (double)s->by_proof[i];
		total += (double)s->by_proof[i];
	}
	sum = total > 0 ? sum / total : 0.3;
	if (repeats_of(s) < (s->steady ? LG_REPEATS_MIN : 3) || y->wall < LG_GRADED_NS)
		sum *= 0.8;
	/* A hole in the evidence may hide another cause as well as more of this one. */
	return sum * (1 - 0.5 * lg_loss_share(c));
}

static void add_victim(const struct lg_case *c, struct lg_finding *f, const struct lg_rank *r)
{
	f->victims[f->n_victims].rank = r->rank;
	f->victims[f->n_victims].pid = c->t->process.pid[r->prc];
	f->victims[f->n_victims++].tid = c->t->thread.tid[r->thr];
}

static void add_victims(struct lg_case *c, struct lg_finding *f, const uint8_t *of_rank)
{
	f->victims = lg_arena_alloc(&c->v->arena, c->n_ranks, sizeof *f->victims);
	if (!f->victims)
		return;
	for (size_t i = 0; i < c->n_ranks; i++)
		if (of_rank[i])
			add_victim(c, f, &c->ranks[i]);
}

/* Who had to wait; by way: it waited for that thread, which was the one that had to. */
static const char *ranks_text(struct lg_case *c, const struct lg_finding *f, lg_thr by_way)
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

static const char *period_text(struct lg_case *c, const struct lg_rhythm *r)
{
	if (isnan(r->period_s))
		return "";
	return r->period_s < 0.1 ? lg_arena_printf(&c->v->arena, " every %.1f ms", 1e3 * r->period_s)
				 : lg_arena_printf(&c->v->arena, " every %.2f s", r->period_s);
}

/* Where the victim was when it was hit: the innermost named frames that are not lock plumbing. */
static const char *wait_place(struct lg_case *c, const struct lg_piece *p)
{
	const struct lg_trace *t = c->t;
	lg_stk s = p->row != UINT32_MAX && p->end == LG_END_LOCK ? t->span.stack[p->row] : 0;

	for (; s; s = t->stack.parent[s]) {
		const char *name = lg_string(t, t->frame.name[t->stack.frame[s]]);

		if (*name && strncmp(name, "rwsem_", 6) && strncmp(name, "down_", 5) &&
		    strncmp(name, "__down_", 7) && strncmp(name, "mmap_", 5) &&
		    strncmp(name, "__mutex", 7) && strncmp(name, "mutex_", 6) &&
		    strncmp(name, "schedule", 8) && strncmp(name, "__schedule", 10) &&
		    strncmp(name, "bpf_", 4) && strncmp(name, "__traceiter", 11) &&
		    strncmp(name, "trace_", 6) && strncmp(name, "__bpf", 5))
			return lg_arena_printf(&c->v->arena, " in %s", name);
	}
	return "";
}

static int cmp_longest(const void *a, const void *b)
{
	const struct lg_piece *x = *(const struct lg_piece *const *)a;
	const struct lg_piece *y = *(const struct lg_piece *const *)b;

	if (x->dur != y->dur)
		return (x->dur < y->dur) - (x->dur > y->dur);
	return (x->ts > y->ts) - (x->ts < y->ts);
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

static void moments(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	const struct lg_piece **v = lg_calloc(s->n_pieces, sizeof *v);

	if (!v) {
		c->failed = LG_E_NOMEM;
		return;
	}
	memcpy(v, s->pieces, s->n_pieces * sizeof *v);
	qsort(v, s->n_pieces, sizeof *v, cmp_longest);
	for (size_t i = 0; i < s->n_pieces && i < 4; i++) {
		const struct lg_piece *p = v[i];
		const char *who = victim_text(c, p->of), *by = lg_thread_text(c, p->thr);
		double ms = (double)p->dur / 1e6;

		switch (p->end) {
		case LG_END_LOCK: {
			const char *how = "it held the lock";

			if (p->hold != UINT32_MAX) {
				int64_t h = c->t->span.dur[p->hold];

				how = lg_arena_printf(&c->v->arena, "held for %.1f ms", (double)h / 1e6);
			} else if (p->proof == LG_PROOF_OWNER_READER) {
				how = "last reader stored in the lock: probable";
			} else if (p->proof == LG_PROOF_WAKER) {
				how = "it ended the wait: probable";
			}
			lg_evidence_add(c, f, p->ts, p->dur, "%s waited %.1f ms for %s%s; holder %s, %s",
					who, ms, lg_lock_text(c, p->lock), wait_place(c, p), by, how);
			break;
		}
		case LG_END_PEER:
			lg_evidence_add(c, f, p->ts, p->dur, "%s waited %.1f ms in %s; %s, which %s, ended the wait",
					who, ms, p->lock ? lg_string(c->t, p->lock) : "the kernel", by,
					c->t->state.kind[p->row] == LG_RUNNING ? "ran meanwhile" : "slept meanwhile");
			break;
		case LG_END_CPU:
			lg_evidence_add(c, f, p->ts, p->dur, "%s was ready to run for %.1f ms while %s had %s",
					who, ms, by, cpu_text(c, p));
			break;
		case LG_END_STOP:
			lg_evidence_add(c, f, p->ts, p->dur, "%s was stopped for %.1f ms%s%s%s", who, ms,
					p->thr ? "; " : "", p->thr ? by : "", stop_words(p));
			break;
		case LG_END_GIL:
			lg_evidence_add(c, f, p->ts, p->dur,
					"%s waited 5 ms at a time for Python's lock, and thread %d ran Python for "
					"%.1f ms of that and ended the wait", who, c->t->thread.tid[p->thr], ms);
			break;
		case LG_END_GC:
			lg_evidence_add(c, f, p->ts, p->dur, "%s collected garbage for %.1f ms", who, ms);
			break;
		case LG_END_FORK:
			lg_evidence_add(c, f, p->ts, p->dur, "%s copied its page tables for %.1f ms%s", who, ms,
					lg_forked_text(c, p));
			break;
		default:
			lg_evidence_add(c, f, p->ts, p->dur, "%s lost %.1f ms here", who, ms);
		}
	}
	lg_free(v);
}

/* How sure a comparison of two runs can be of the sum is in how its parts come. */
static void keep_moments(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	f->moments = lg_arena_alloc(&c->v->arena, s->n_pieces, sizeof *f->moments);
	if (!f->moments) {
		c->failed = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < s->n_pieces; i++)
		f->moments[f->n_moments++] = (struct lg_time_lost){ s->pieces[i]->ts, s->pieces[i]->dur };
}

static const char oversubscribed[] = "host.oversubscribed";

static const char *const ids[LG_END_MAX] = {
	[LG_END_LOCK] = "host.lock_held",	 [LG_END_CPU] = "host.cpu_contention",
	[LG_END_IO] = "host.io_wait",		 [LG_END_STOP] = "host.stopped",
	[LG_END_RECLAIM] = "host.memory_pressure", [LG_END_GC] = "python.gc_pause",
	[LG_END_FORK] = "host.self_fork",
	[LG_END_SIDE] = "side.checkpoint",	 [LG_END_LOADER] = "data.loader_wait",
	[LG_END_GIL] = "python.gil_wait",	 [LG_END_PEER] = "host.waited_for",
	[LG_END_QUOTA] = "host.cpu_throttled",
};

/* What the side stage was marked as, where most of its time went: torch.save, add_scalar ... */
static const char *side_name(struct lg_case *c, const struct lg_cause_sum *s)
{
	const struct lg_piece *longest = lg_longest_piece(s);

	for (size_t i = 0; i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];

		if (r->prc != c->t->thread.prc[longest->of])
			continue;
		for (size_t k = 0; k < r->n_segs; k++)
			if (r->segs[k].ts <= longest->ts && longest->ts < r->segs[k].end &&
			    c->t->span.name[r->segs[k].span])
				return lg_string(c->t, c->t->span.name[r->segs[k].span]);
	}
	return "side";
}

/* Writers of metrics are logging; what saves state is a checkpoint. The names are API of torch and
 * of the hook, not of the user's program. */
static bool is_logging(const char *name)
{
	return !strstr(name, "save") && (strstr(name, "add_") || strstr(name, "log") ||
					 strstr(name, "flush") || strstr(name, "Writer"));
}

/* Nothing told of a quota: that the thread was left out beside an idle CPU is all. */
static bool is_guess(const struct lg_cause_sum *s)
{
	return s->end == LG_END_QUOTA && s->by_proof[LG_PROOF_NONE] * 2 > s->lost;
}

static void doubt_quota(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	if (is_guess(s)) {
		f->severity = lg_severity_of_few(f->lost_share);
		lg_evidence_against(c, f, "no quota was seen, only that it was ready while its CPU was idle: that "
				    "nr_throttled in the cgroup's cpu.stat grows would prove it");
	} else if (s->end == LG_END_CPU && s->left_out * 4 >= s->lost) {
		f->severity = lg_severity_of_few(f->lost_share);
		f->confidence *= 0.5;
		lg_evidence_against(c, f, "it was ready beside an idle CPU as well, for %.0f ms: a used-up CPU quota "
				    "(nr_throttled in the cgroup's cpu.stat grows) would explain both",
				    (double)s->left_out / 1e6);
	}
}

static void title_of(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		     const struct lg_io_story *io)
{
	struct lg_arena *a = &c->v->arena;
	const char *who = f->culprit.comm ? lg_arena_printf(a, "%s (pid %d)", f->culprit.comm,
							    f->culprit.pid) : "nobody known";
	/* Whose batch or checkpoint it is goes without saying. */
	bool by_way = !c->rank_of_prc[c->t->thread.prc[s->victim]] && s->end != LG_END_LOADER &&
		      s->end != LG_END_SIDE;
	const char *job = ranks_text(c, f, 0), *ranks = ranks_text(c, f, by_way ? s->victim : 0);
	/* Whose lock it was, or who was stopped: the one on the way, and not the job. */
	const char *held_up = by_way ? lg_thread_text(c, s->victim) : job;
	const char *every = period_text(c, &s->rhythm);
	const char *in = f->culprit.function
				 ? lg_arena_printf(a, " in %s", f->culprit.function) : "";

	/* The process is the same: it is the thread that tells them apart. */
	if (f->culprit.relation && !strcmp(f->culprit.relation, "same_process"))
		who = lg_thread_text(c, s->thr);
	if (s->n_members > 1 && !s->own_job)
		who = lg_arena_printf(a, "%zu processes started by %s (%s%s%s%s%s)", s->n_members, who,
				      lg_string(c->t, c->t->process.comm[s->member[0]]),
				      s->member[1] ? ", " : "",
				      lg_string(c->t, c->t->process.comm[s->member[1]]),
				      s->member[2] ? ", " : "",
				      lg_string(c->t, c->t->process.comm[s->member[2]]));
	switch (s->end) {
	case LG_END_PEER:
		f->title = lg_arena_printf(a, "%s waited for %s%s %s (%s)%s", ranks, who, in,
					   lg_peer_words(f->culprit.lock, &f->detail),
					   f->culprit.lock ? f->culprit.lock : "asleep", every);
		break;
	case LG_END_LOCK:
		f->title = lg_arena_printf(a, "%s held the %s of %s%s%s; %s", who, f->culprit.lock, held_up, in,
					   every, by_way ? lg_arena_printf(a, "%s waited for that one", job)
						  : c->v->n_ranks < 2
							  ? "the step waited"
							  : "the step waited, and every rank with it");
		break;
	case LG_END_CPU:
		if (s->own_job) {
			f->title = lg_arena_printf(a, "the job's own threads pushed each other aside: %s had "
						      "to wait for a CPU that %s had%s%s", ranks, who, in,
						   every);
			break;
		}
		f->title = lg_arena_printf(a, "%s had to wait for a CPU that %s had%s%s", ranks, who,
					   in, every);
		break;
	case LG_END_IO:
		f->title = lg_io_title(c, f, io, ranks, every);
		break;
	case LG_END_STOP:
		f->title = lg_arena_printf(a, "%s stopped by %s%s%s%s%s", held_up,
					   s->thr ? who : "a signal or a tracer", every, by_way ? "; " : "",
					   by_way ? job : "", by_way ? " waited for it" : "");
		break;
	case LG_END_QUOTA: {
		const char *quota = lg_quota_text(c);

		f->title = is_guess(s) ? lg_arena_printf(a, "%s had to wait beside idle CPUs%s: its cgroup's CPU quota was "
							    "used up, probably", ranks, every)
				       : lg_arena_printf(a, "%s had used up the CPU quota of the cgroup (%s) and had to "
							    "wait beside idle CPUs%s", ranks,
							 quota ? quota : "size unknown", every);
		break;
	}
	case LG_END_RECLAIM:
		f->title = lg_arena_printf(a, "%s reclaimed memory inside the step%s", ranks, every);
		break;
	case LG_END_GC:
		f->title = lg_arena_printf(a, "Python's garbage collector ran inside the step of %s%s",
					   ranks, every);
		break;
	case LG_END_FORK:
		f->title = lg_arena_printf(a, "%s forked inside the step and copied the page tables of its whole "
					      "memory%s", ranks, every);
		break;
	case LG_END_GIL:
		f->title = lg_arena_printf(a, "%s waited for Python's lock (the GIL), which thread %d (%s) of the same "
					      "process held%s%s", ranks, f->culprit.tid,
					   lg_string(c->t, c->t->thread.comm[s->thr]), in, every);
		break;
	case LG_END_SIDE:
		f->title = lg_arena_printf(a, "%s did side work inside the loop (%s) while the step waited%s",
					   ranks, side_name(c, s), every);
		break;
	default:
		f->title = lg_loader_title(c, f, ranks, every);
	}
}

/* Whole-run share below which an ordinary cost is not worth a sentence. */
static double floor_of(uint8_t end)
{
	return end == LG_END_LOADER ? 0.10 : 0.01;
}

/* Was one of those that it held up a job's? Else it is no more than low. */
static void doubt_job(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s, uint32_t ref)
{
	for (size_t i = 0; i < c->n_ranks; i++)
		if (s->of_rank[i] && lg_is_likely_job(c, c->ranks[i].prc))
			return;
	lg_doubt_job(c, f, c->ranks[ref].prc);
}

static void finding_of(struct lg_case *c, const struct lg_tally *y, struct lg_cause_sum *s)
{
	double share = (double)s->lost / (double)y->wall;
	double excess = y->excess > 0 ? (double)s->slow_lost / (double)y->excess : 0;
	/* What is there all the time may still be what makes slow steps slow: then both are said. */
	bool steady = s->steady && excess < 0.10;
	struct lg_finding *f;
	const char *id = ids[s->end];
	struct lg_io_story io = { 0 };
	size_t samples = 0;

	if (!id || (share < floor_of(s->end) && !(excess >= 0.10 && s->rhythm.n_events >= 3) &&
		    !(s->end == LG_END_LOCK && share >= 0.002 && s->rhythm.n_events >= 3)))
		return;
	if (s->end == LG_END_CPU && c->t->process.role[s->prc] == LG_ROLE_RECORDER)
		return; /* our own cost is reported as such, in limits */
	if (s->end == LG_END_CPU && s->own_job)
		id = oversubscribed;
	if (s->end == LG_END_SIDE && is_logging(side_name(c, s)))
		id = "side.logging";
	f = lg_finding_add(c, id);
	if (!f)
		return;
	lg_culprit_identify(c, f, s->n_members > 1 && s->prc && !s->own_job && c->idx->main_of[s->prc]
					  ? c->idx->main_of[s->prc] : s->thr, s->victim);
	add_victims(c, f, s->of_rank);
	if (!f->n_victims) { /* another program was held up, and the reference rank with it */
		s->of_rank[y->ref] = 1;
		add_victims(c, f, s->of_rank);
	}
	if (s->lock)
		f->culprit.lock = lg_lock_text(c, s->lock);
	if (s->end == LG_END_PEER || (s->end == LG_END_STOP && s->thr) ||
	    (s->end == LG_END_LOCK && s->pieces[0]->row == UINT32_MAX))
		lg_culprit_of_time(c, f, s->pieces, s->n_pieces, &samples);
	else if (s->end == LG_END_LOCK)
		lg_culprit_of_hold(c, f, s->pieces, s->n_pieces, &samples);
	else if (s->end == LG_END_CPU || s->end == LG_END_GIL || s->end == LG_END_FORK)
		lg_culprit_of_samples(c, f, s->pieces, s->n_pieces, &samples);
	else if (s->end == LG_END_IO)
		lg_io_tell(c, f, s, &io);
	else if (s->end == LG_END_LOADER)
		lg_loader_tell(c, f, s);
	f->lost_ms = (double)s->lost / 1e6;
	f->lost_share = share;
	f->excess_share = steady ? (double)NAN : excess > 1 ? 1 : excess;
	/*
	 * What the job's own threads take from each other is mostly work that has to be done anyway (a
	 * collective's helper thread runs while its waiter waits): with more CPUs only a part would
	 * go away, so a third counts as lost.
	 */
	if (id == oversubscribed) {
		lg_evidence_add(c, f, INT64_MIN, 0, "%.0f ms of waits in all; a third counts as lost, the "
				"rest is work that has to be done anyway", (double)s->lost / 1e6);
		f->lost_ms /= 3;
		f->lost_share = share /= 3;
	}
	f->severity = severity_of(share, repeats_of(s), y->wall);
	f->confidence = confidence_of(c, y, s);
	if (io.other)
		f->confidence *= 0.9; /* that he waits is seen; for whose bytes follows from their sums */
	f->stage = lg_stage_name(s->stage);
	title_of(c, f, s, &io);
	if (!isnan(s->rhythm.period_s))
		lg_evidence_add(c, f, INT64_MIN, 0,
				"%zu times, %.3f s apart; chance would do as well with p = %.4f",
				s->rhythm.n_events, s->rhythm.period_s, s->rhythm.p);
	else if (s->steady)
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu waits in %zu steps", s->n_pieces,
				s->n_steps_hit);
	else
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu separate time%s, %zu waits, in %zu steps",
				s->rhythm.n_events, s->rhythm.n_events == 1 ? "" : "s", s->n_pieces, s->n_steps_hit);
	if (!steady)
		lg_evidence_add(c, f, INT64_MIN, 0, "%.0f %% of the excess of %zu slow steps ends here",
				f->excess_share * 100, y->n_slow);
	if (samples && f->culprit.function)
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu CPU samples of the culprit in those moments",
				samples);
	moments(c, f, s);
	keep_moments(c, f, s);
	if (s->end == LG_END_LOCK && s->other_holds > s->n_pieces)
		lg_evidence_against(c, f, "it held the lock %zu more times without making a step slow",
			s->other_holds - s->n_pieces);
	if (!steady && excess < 0.5)
		lg_evidence_against(c, f, "%.0f %% of the excess of slow steps has other causes",
			(1 - excess) * 100);
	if (id == oversubscribed)
		lg_doubt_oversubscribed(c, f, s);
	doubt_quota(c, f, s);
	doubt_job(c, f, s, y->ref);
	if (lg_loss_share(c) > 0)
		lg_evidence_against(c, f, "%.1f %% of the events were lost: more may be hidden there",
			lg_loss_share(c) * 100);
}

/* Whoever held up a loop without steps, and what he was at. Returns how many samples agree. */
static size_t who_held_up(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	size_t samples = 0;
	lg_thr master = s->n_members > 1 && s->prc ? c->idx->main_of[s->prc] : 0;

	lg_culprit_identify(c, f, master ? master : s->thr, s->victim);
	if (s->lock)
		f->culprit.lock = lg_lock_text(c, s->lock);
	if (s->end == LG_END_CPU)
		lg_culprit_of_samples(c, f, s->pieces, s->n_pieces, &samples);
	else if (s->end == LG_END_STOP ? s->thr != 0 : s->pieces[0]->row == UINT32_MAX)
		lg_culprit_of_time(c, f, s->pieces, s->n_pieces, &samples);
	else if (s->end == LG_END_LOCK)
		lg_culprit_of_hold(c, f, s->pieces, s->n_pieces, &samples);
	return samples;
}

bool lg_finding_of_waits(struct lg_case *c, const struct lg_rank *r, const struct lg_cause_sum *s,
			 int64_t wall)
{
	const struct lg_tally y = { .wall = wall };
	uint8_t *hit = lg_arena_alloc(&c->v->arena, c->n_ranks, 1);
	struct lg_finding *f = hit ? lg_finding_add(c, ids[s->end]) : NULL;
	double share = (double)s->lost / (double)wall;
	size_t samples;

	if (!f)
		return false;
	hit[r - c->ranks] = 1;
	samples = who_held_up(c, f, s);
	add_victims(c, f, hit);
	f->severity = "medium"; /* as of all whose price is not known */
	f->confidence = confidence_of(c, &y, s);
	f->stage = lg_stage_name(LG_STAGE_OTHER);
	lg_evidence_add(c, f, INT64_MIN, 0, "%zu separate times, %.0f ms of %.1f s (%.1f %%)", s->rhythm.n_events,
			(double)s->lost / 1e6, (double)wall / 1e9, 100 * share);
	if (s->end == LG_END_LOCK) {
		f->title = lg_arena_printf(&c->v->arena, "%s (pid %d) held the %s of %s%s%s%s; it waited",
					   f->culprit.comm ? f->culprit.comm : "?", f->culprit.pid, f->culprit.lock,
					   ranks_text(c, f, 0), f->culprit.function ? " in " : "",
					   f->culprit.function ? f->culprit.function : "",
					   period_text(c, &s->rhythm));
		lg_evidence_against(c, f, "no steps were seen, so what they lose by it is not known: marks would "
				    "measure it (laggard record -- COMMAND, or laggard.step() at the end of each)");
	} else {
		title_of(c, f, s, NULL);
		f->lost_ms = (double)s->lost / 1e6;
		f->lost_share = share;
		f->severity = severity_of(share, s->rhythm.n_events, wall);
		if (samples && f->culprit.function)
			lg_evidence_add(c, f, INT64_MIN, 0, "%zu CPU samples of the culprit in those moments",
					samples);
		lg_evidence_against(c, f, "no steps were seen: the price is the time that the thread stood still, "
				    "of all that was seen of it");
		doubt_quota(c, f, s);
	}
	moments(c, f, s);
	keep_moments(c, f, s);
	return true;
}

void lg_finding_of_waits_too(struct lg_finding *f, struct lg_case *c, const struct lg_rank *r,
			     const struct lg_cause_sum *s, int64_t wall)
{
	double share = (double)s->lost / (double)wall;
	const char *severity;

	if (f->victims && f->n_victims < c->n_ranks)
		add_victim(c, f, r);
	lg_evidence_add(c, f, INT64_MIN, 0, "%s as well: %zu separate times, %.0f ms of %.1f s (%.1f %%)",
			lg_thread_text(c, r->thr), s->rhythm.n_events, (double)s->lost / 1e6,
			(double)wall / 1e9, 100 * share);
	if (!(share > f->lost_share)) /* of locks nothing is lost that is known */
		return;
	f->lost_ms = (double)s->lost / 1e6;
	f->lost_share = share;
	severity = severity_of(share, s->rhythm.n_events, wall);
	if (lg_severity_level(f->severity) < lg_severity_level(severity) && !is_guess(s) &&
	    s->left_out * 4 < s->lost)
		f->severity = severity;
}

/* More than it ran, as far as it came late by it. */
static bool has_slept(const struct lg_straggler *g)
{
	int64_t asleep = 0;

	if (!g->steady)
		return g->slow_slept * 2 > g->slow_lost;
	for (size_t i = 0; i < g->n_pieces; i++)
		asleep += g->pieces[i]->end == LG_END_SLEEP ? g->pieces[i]->dur : -g->pieces[i]->dur;
	return asleep > 0;
}

static const char *slept_text(struct lg_case *c, const struct lg_rank *r, const struct lg_straggler *g)
{
	lg_prc prc = g->sleeper ? c->t->thread.prc[g->sleeper] : r->prc;

	if (prc == r->prc)
		return "slept of its own will";
	return lg_arena_printf(&c->v->arena, "waited for %s, which it started and which slept",
			       lg_thread_text(c, g->sleeper));
}

static void straggler(struct lg_case *c, const struct lg_tally *y)
{
	const struct lg_straggler *g = &y->straggler;
	double share = (double)g->lost / (double)y->wall;
	/* Collectives of the warm-up are counted, too, in n_last. */
	size_t steps = g->n_last < c->v->n_judged ? g->n_last : c->v->n_judged;
	const struct lg_rank *r;
	struct lg_finding *f;
	uint8_t *others;
	char pid[LG_PID_TEXT];
	bool slept;

	/* Without matched collectives nobody has been seen to arrive. */
	if (g->rank == UINT32_MAX || share < 0.01 || !g->n_matched)
		return;
	slept = has_slept(g);
	f = lg_finding_add(c, "comms.straggler");
	others = lg_arena_alloc(&c->v->arena, c->n_ranks, 1);
	if (!f || !others)
		return;
	r = &c->ranks[g->rank];
	for (size_t i = 0; i < c->n_ranks; i++)
		others[i] = i != g->rank;
	lg_culprit_identify(c, f, r->thr, 0);
	f->culprit.relation = "rank";
	add_victims(c, f, others);
	if (!slept) /* what it computes besides has made nobody wait */
		lg_culprit_of_samples(c, f, g->pieces, g->n_pieces, &(size_t){ 0 });
	f->lost_ms = (double)g->lost / 1e6;
	f->lost_share = share;
	f->excess_share = g->steady || y->excess <= 0 ? (double)NAN : fmin(1, (double)g->slow_lost /
								      (double)y->excess);
	f->severity = severity_of(share, g->steady ? steps : g->n_events, y->wall);
	f->confidence = (g->steady ? 0.9 : 0.85) * (1 - 0.5 * lg_loss_share(c));
	f->stage = lg_stage_name(LG_STAGE_GRAD_SYNC);
	f->title = lg_arena_printf(&c->v->arena,
				   "rank %d (%s) arrives last in the collective%s: it %s while the others "
				   "waited", r->rank, lg_pid_text(f->culprit.pid, pid),
				   g->steady ? " in most steps" : "",
				   slept ? slept_text(c, r, g) : "was running its own work");
	lg_evidence_add(c, f, INT64_MIN, 0, "last in %zu of %zu matched collectives, by %.1f ms in the "
			"median", g->n_last, g->n_matched, (double)g->median_late / 1e6);
	if (!g->steady)
		lg_evidence_add(c, f, INT64_MIN, 0, "%zu slow steps in which it %s longer than usual",
				g->n_events, slept ? "stood still" : "ran");
}

static int cmp_finding(const void *a, const void *b)
{
	const struct lg_finding *x = a, *y = b;

	if (isnan(x->lost_ms) != isnan(y->lost_ms))
		return isnan(x->lost_ms) ? 1 : -1;
	if (!isnan(x->lost_ms) && x->lost_ms != y->lost_ms)
		return x->lost_ms < y->lost_ms ? 1 : -1;
	if (strcmp(x->id, y->id))
		return strcmp(x->id, y->id);
	if (x->confidence != y->confidence)
		return x->confidence < y->confidence ? 1 : -1;
	return (x->culprit.rank > y->culprit.rank) - (x->culprit.rank < y->culprit.rank);
}

void lg_findings_rank(struct lg_verdict *v)
{
	qsort(v->findings, v->n_findings, sizeof *v->findings, cmp_finding);
}

int lg_find_causes(struct lg_case *c, const struct lg_tally *y, struct lg_error *err)
{
	for (size_t i = 0; i < y->n_causes && !c->failed; i++)
		finding_of(c, y, &y->causes[i]);
	straggler(c, y);
	return c->failed ? lg_fail(err, c->failed, LG_NO_OFFSET, "out of memory") : 0;
}
