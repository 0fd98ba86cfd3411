/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight_rules.c - the rank that the others wait for in a run that hangs, from dumps of the Flight Recorder.
 */
#include <stdio.h>

#include "analyse/flight/flight.h"
#include "base/words.h"
#include "rules/device_names.h"
#include "store/args.h"

enum { TOLD_MAX = 8, HELD_MAX = 64, RANKS_SAID = 16 };

struct lg_finding *lg_flight_finding(struct lg_case *c, enum lg_rule_id rule, double confidence, int32_t rank)
{
	/* What a hang costs is not in the dumps. */
	struct lg_finding *f = lg_finding_about(c, rule, LG_STAGE_GRAD_SYNC, LG_RELATION_RANK, confidence);

	f->culprit.rank = rank;
	return f;
}

/* " at train.py:12 step": where a row was called, the innermost frame that is no library's; or "". */
static const char *place_text(struct lg_case *c, uint32_t row)
{
	const struct lg_trace *t = c->t;
	char buf[256];

	for (lg_stk s = row != LG_NO_ROW ? t->span.stack[row] : 0; s; s = t->stack.parent[s]) {
		lg_frm f = t->stack.frame[s];

		if (lg_is_library_path(lg_string(t, t->frame.file[f])) ||
		    lg_is_library_path(lg_frame_text(t, f, buf, sizeof buf)))
			continue;
		if (*lg_string(t, t->frame.file[f]) && t->frame.line[f])
			return lg_text(c, " at %s:%u %s", lg_string(t, t->frame.file[f]),
				       t->frame.line[f], lg_string(t, t->frame.name[f]));
		return lg_text(c, " at %s", buf);
	}
	return "";
}

static const char *op_of(const struct lg_case *c, const struct lg_flight_side *s)
{
	return s->row != LG_NO_ROW ? lg_span_name(c->t, s->row) : "a collective";
}

const char *lg_flight_inputs(struct lg_case *c, uint32_t row)
{
	size_t n_in, n_type;
	const char *in = lg_span_arg(c->t, row, "in", &n_in), *type = lg_span_arg(c->t, row, "dtype", &n_type);

	return lg_text(c, "inputs %.*s %.*s%s", (int)n_in, in ? in : "", (int)n_type, type ? type : "",
		       place_text(c, row));
}

/* "nccl:all_to_all number 20537 of group 74 (EXPERT ...), inputs [2,8] BFloat16 at train.py:30 step" */
static const char *collective_text(struct lg_case *c, const struct lg_flight_side *s)
{
	const char *ranks = strrchr(s->fact, '[');
	int n_fact = ranks > s->fact ? (int)(ranks - s->fact - 1) : (int)strlen(s->fact);

	if (s->row == LG_NO_ROW)
		return lg_text(c, LG_SAYS_FLIGHT_NOT_IN_RING, (long long)s->oldest, s->name, n_fact, s->fact);
	return lg_text(c, LG_SAYS_FLIGHT_COLLECTIVE, op_of(c, s), (long long)s->oldest, s->name, n_fact,
		       s->fact, lg_flight_inputs(c, s->row));
}

static int64_t since(const struct lg_case *c, const struct lg_flight_side *s)
{
	return s->row != LG_NO_ROW ? c->t->span.ts[s->row] : INT64_MIN;
}

static bool earlier(const struct lg_case *c, const struct lg_flight_side *a, const struct lg_flight_side *b)
{
	int64_t x = since(c, a), y = since(c, b);

	return x != INT64_MIN && (y == INT64_MIN || x < y);
}

/* Ranks that wait in one collective. */
struct held {
	const struct lg_flight_side *s; /* the first of them to come */
	int32_t rank[RANKS_SAID]; /* ascending: some of them */
	size_t n;
};

struct accused {
	lg_prc late;
	struct held held[HELD_MAX];
	size_t n;
};

static void add_held(struct lg_flight_look *l, lg_prc p)
{
	struct accused *a = l->arg;
	const struct lg_trace *t = l->d->c->t;
	struct held *h = NULL;
	int32_t rank = t->process.rank[l->s->prc];
	size_t at;

	if (p != a->late)
		return;
	for (size_t i = 0; i < a->n && !h; i++)
		if (a->held[i].s->group == l->s->group && a->held[i].s->oldest == l->s->oldest)
			h = &a->held[i];
	if (!h && a->n == HELD_MAX)
		return;
	if (!h) {
		h = &a->held[a->n++];
		*h = (struct held){ .s = l->s };
	}
	if (earlier(l->d->c, l->s, h->s))
		h->s = l->s;
	at = h->n < RANKS_SAID ? h->n : RANKS_SAID - 1;
	h->n++;
	if (h->n > RANKS_SAID && rank > h->rank[at])
		return;
	for (; at && h->rank[at - 1] > rank; at--)
		h->rank[at] = h->rank[at - 1];
	h->rank[at] = rank;
}

/* "rank 3", "ranks 3, 4 and 9 more": of n, the first RANKS_SAID of which are known. */
static const char *ranks_text(struct lg_case *c, const int32_t rank[RANKS_SAID], size_t n)
{
	char text[RANKS_SAID * 13 + 1] = "";
	size_t len = 0, said = LG_MIN(n, RANKS_SAID);

	for (size_t i = 0; i < said; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", i ? ", " : "", rank[i]);
	return n > said ? lg_text(c, "ranks %s and %zu more", text, n - said)
			: lg_text(c, "rank%s %s", lg_s(n), text);
}

/* "rank 3 waits", "ranks 3, 4 and 9 more wait" */
static const char *held_text(struct lg_case *c, const struct held *h)
{
	return lg_text(c, "%s wait%s", ranks_text(c, h->rank, h->n), h->n == 1 ? "s" : "");
}

/* The wait that began first: the others are behind it. */
static struct held *first_held(const struct lg_case *c, struct accused *a)
{
	struct held *best = NULL;

	LG_EACH(h, a->held, a->n)
		if (h->n && (!best || earlier(c, h->s, best->s)))
			best = h;
	return best;
}

/* Others wait for `late`, which waits for nobody. */
static void never_entered(struct lg_flight *d, lg_prc late)
{
	struct lg_case *c = d->c;
	LG_AUTOFREE struct accused *a = lg_scratch(c, 1, sizeof *a);
	struct lg_finding *f = NULL;
	struct held *h;

	if (!a)
		return;
	a->late = late;
	LG_EACH(s, d->side, d->n)
		if (lg_flight_waits(d, s))
			(void)lg_flight_look(d, s, add_held, a);
	for (int n = 0; n < 4 && (h = first_held(c, a)); n++, h->n = 0) {
		const struct lg_flight_side *own = lg_flight_side_of(d, late, h->s);
		const char *waits = held_text(c, h);

		if (!f) {
			f = lg_flight_finding(c, LG_R_COMMS_MISSING_RANK, 0.9, c->t->process.rank[late]);
			lg_title(c, f, LG_SAYS_COMMS_MISSING_RANK_NEVER_ENTERED, f->culprit.rank,
				 op_of(c, h->s), waits);
		}
		lg_evidence_add(c, f, since(c, h->s), 0, "%s in %s; rank %d entered %s", waits,
				collective_text(c, h->s), f->culprit.rank, own && own->enqueued >= 0 ?
				lg_text(c, "number %lld last%s", (long long)own->enqueued,
				place_text(c, own->last_row)) : "none");
	}
	if (f && d->empty[late])
		lg_evidence(c, f, "the ring of rank %d is empty", f->culprit.rank);
	if (f)
		lg_evidence_against(c, f, LG_SAYS_COMMS_MISSING_RANK_MAY_MOVE);
}

/* Others have completed what this rank has entered and not completed: its device, or its watchdog, stands.
 * Watchdogs look ten times a second (ProcessGroupNCCL.hpp, kWatchdogThreadSleepMillis): of a run that moves
 * this says nothing. */
static void stands_still(struct lg_flight *d, const struct lg_flight_side *s, int64_t most)
{
	struct lg_case *c = d->c;
	struct lg_finding *f = lg_flight_finding(c, LG_R_COMMS_MISSING_RANK, 0.7, c->t->process.rank[s->prc]);

	lg_title(c, f, LG_SAYS_COMMS_MISSING_RANK_STANDS, f->culprit.rank);
	lg_evidence_add(c, f, since(c, s), 0, LG_SAYS_COMMS_MISSING_RANK_OLDEST, collective_text(c,
			s), (long long)most);
}

/* Members of which there is no dump, where all others wait in what they have entered. */
static void nothing_known(struct lg_flight *d)
{
	struct lg_case *c = d->c;

	LG_EACH(s, d->side, d->n) {
		struct lg_flight_look l;
		struct lg_finding *f;

		if (!lg_flight_waits(d, s))
			continue;
		l = lg_flight_look(d, s, NULL, NULL);
		/* Many absent dumps only say that they were not given. */
		if (!l.absent || l.here < 2 || l.absent * 2 >= l.here || l.most >= s->oldest)
			continue;
		f = lg_flight_finding(c, LG_R_COMMS_MISSING_RANK, 0.6, l.absent == 1 ? l.first_absent : -1);
		f->title = f->culprit.rank >= 0
				   ? lg_text(c, LG_SAYS_COMMS_MISSING_RANK_ALL_BUT_RANK,
					     f->culprit.rank, op_of(c, s)) : lg_text(c,
					     LG_SAYS_COMMS_MISSING_RANK_ALL_BUT, l.absent, op_of(c,
					     s));
		lg_evidence_add(c, f, since(c, s), 0, "%zu ranks have entered %s", l.here, collective_text(c, s));
		lg_evidence_against(c, f, LG_SAYS_COMMS_MISSING_RANK_NO_DUMP);
		return;
	}
}

/* Who waits, in what, and the first of those whom it waits for. */
struct waiter {
	const struct lg_flight_side *s;
	lg_prc for_whom;   /* 0 = nobody */
	uint32_t visited;  /* in the walk along these, from 1 */
};

static void note_first(struct lg_flight_look *l, lg_prc p)
{
	struct waiter *w = l->arg;

	if (!w->for_whom || l->d->c->t->process.rank[p] < l->d->c->t->process.rank[w->for_whom]) {
		w->for_whom = p;
		w->s = l->s;
	}
}

/* Everybody who is waited for waits himself: following any of them ends where the circle closes. */
static void wait_in_circle(struct lg_flight *d)
{
	struct lg_case *c = d->c;
	LG_AUTOFREE struct waiter *w = lg_scratch(c, c->t->process.n, sizeof *w);
	struct lg_finding *f;
	int32_t rank[RANKS_SAID];
	uint32_t n = 0, in = 0;
	lg_prc p = 0, first;

	if (!w)
		return;
	LG_EACH(s, d->side, d->n)
		if (lg_flight_waits(d, s) && d->waits[s->prc]) {
			(void)lg_flight_look(d, s, note_first, &w[s->prc]);
			p = w[s->prc].for_whom ? s->prc : p;
		}
	for (; p && !w[p].visited; p = w[p].for_whom)
		w[p].visited = ++n;
	if (!p)
		return;
	first = p;
	for (lg_prc q = w[p].for_whom; q != p; q = w[q].for_whom)
		if (c->t->process.rank[q] < c->t->process.rank[first])
			first = q;
	p = first;
	f = lg_flight_finding(c, LG_R_COMMS_MISMATCH, 0.8, -1);
	do {
		lg_culprit_rank_add(c, f, c->t->process.rank[p]);
		if (in < RANKS_SAID)
			rank[in] = c->t->process.rank[p];
		in++;
		lg_evidence_add(c, f, since(c, w[p].s), 0, LG_SAYS_COMMS_MISMATCH_WAITS_FOR,
				c->t->process.rank[p], collective_text(c, w[p].s),
				c->t->process.rank[w[p].for_whom]);
		p = w[p].for_whom;
	} while (p != first);
	lg_title(c, f, LG_SAYS_COMMS_MISMATCH_CIRCLE, ranks_text(c, rank, in));
	lg_evidence_against(c, f, LG_SAYS_COMMS_MISSING_RANK_MAY_MOVE);
}

static void note_late(struct lg_flight_look *l, lg_prc p)
{
	uint8_t *late = l->arg;

	late[p] = 1;
}

static int missing_ranks(struct lg_flight *d)
{
	LG_AUTOFREE uint8_t *late = lg_calloc(d->c->t->process.n, 1);
	size_t told = 0;
	bool any = false;

	if (!late)
		return LG_E_NOMEM;
	for (size_t i = 0; i < d->n; i++)
		if (lg_flight_waits(d, &d->side[i])) {
			struct lg_flight_look l = lg_flight_look(d, &d->side[i], note_late, late);

			any |= l.missing + l.nothing > 0;
		}
	for (int32_t r = 0; any && r < LG_FLIGHT_RANKS; r++) {
		lg_prc p = d->of_rank[r];

		if (!p || !late[p] || d->waits[p])
			continue;
		if (told < TOLD_MAX)
			never_entered(d, p);
		told++;
	}
	if (told > TOLD_MAX)
		lg_say(d->c, LG_SAYS_FLIGHT_MORE_MISSING, told, TOLD_MAX);
	LG_EACH_WHILE(told && told < TOLD_MAX, s, d->side, d->n) {
		int64_t most;

		if (!lg_flight_waits(d, s) || d->waits[s->prc] || late[s->prc])
			continue;
		most = lg_flight_look(d, s, NULL, NULL).most;
		if (most < s->oldest)
			continue;
		stands_still(d, s, most);
		late[s->prc] = 1; /* once a rank */
		told++;
	}
	if (!any)
		nothing_known(d);
	else if (!told)
		wait_in_circle(d);
	return d->c->failed;
}

int lg_find_flight(struct lg_case *c)
{
	struct lg_flight d = { .c = c };
	int rc = lg_flight_read(&d);

	if (!rc && d.n_dumped > 1)
		rc = lg_flight_parted(&d);
	if (!rc && d.n_dumped && !lg_is_told(c, LG_R_COMMS_MISSING_RANK))
		rc = missing_ranks(&d);
	if (!rc && d.two_runs)
		lg_limit(c, LG_SAYS_FLIGHT_TWO_RUNS);
	lg_flight_done(&d);
	return rc ? rc : c->failed;
}
