/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequences.c - ranks of a recording that call different collectives under one number, or of which one never
 * calls what another waits in.
 *
 * The hook counts the calls on a group in program order: ranks that run the same program agree on the number.
 * Send and receive have groups of their own (hook/laggard/_dist.py). Whoever waits has to have waited for
 * half a minute, and ten times as long as ever before: what is under way when a recording ends is no hang.
 */
#include <stdlib.h>

#include "analyse/flight/flight.h"
#include "base/map.h"

struct sequences {
	struct lg_case *c;
	struct lg_map members; /* process and group -> text + 1 */
};

static bool same_number(const struct lg_trace *t, uint32_t a, uint32_t b)
{
	return t->span.group[a] == t->span.group[b] && t->span.seq[a] == t->span.seq[b];
}

static bool is_call(const struct lg_trace *t, uint32_t row)
{
	const char *group = lg_string(t, t->span.group[row]);

	return t->span.kind[row] == LG_SPAN_COLLECTIVE && t->span.group[row] && t->span.seq[row] >= 0 &&
	       !strstr(group, ":p2p:") && strcmp(group, "pg:?");
}

/* The ranks of its group, as its process tells them; 0 = it does not. */
static lg_str members(struct sequences *s, lg_prc p, lg_str group)
{
	const struct lg_trace *t = s->c->t;
	const char *name = lg_string(t, group);
	uint64_t id = (uint64_t)p << 32 | group;
	uint32_t known = lg_map_get(&s->members, id);
	size_t n = strlen(name);
	lg_str found = 0;

	if (known)
		return known - 1;
	for (size_t i = 0; i < t->meta.n && !found; i++) {
		const char *key = lg_string(t, t->meta.key[i]);

		if (t->meta.prc[i] == p && !strncmp(key, "group.", 6) && !strncmp(key + 6, name, n) &&
		    !strcmp(key + 6 + n, ".ranks"))
			found = t->meta.value[i];
	}
	(void)lg_failed(s->c, lg_map_set(&s->members, id, found + 1));
	return found;
}

static lg_str members_of(struct sequences *s, uint32_t row)
{
	const struct lg_trace *t = s->c->t;

	return members(s, t->thread.prc[t->span.thr[row]], t->span.group[row]);
}

/* Groups that were split off have the same name on other ranks. */
static bool one_group(struct sequences *s, uint32_t a, uint32_t b)
{
	lg_str x = members_of(s, a), y = members_of(s, b);

	return s->c->t->span.group[a] == s->c->t->span.group[b] && (!x || !y || x == y);
}

static uint64_t key_of(struct sequences *s, uint32_t row)
{
	const struct lg_trace *t = s->c->t;
	uint64_t group = (uint64_t)members_of(s, row) << 32 | t->span.group[row];

	return lg_mix64(lg_mix64(group) ^ (uint64_t)t->span.seq[row]) | 1;
}

/* Operations that take as many bytes on every rank. */
static bool alike(const struct lg_trace *t, uint32_t a, uint32_t b)
{
	static const char *const equal[] = { "all_reduce", "broadcast", "reduce" };
	const char *op = lg_span_name(t, a);

	if (t->span.name[a] != t->span.name[b])
		return false;
	for (size_t i = 0; i < LG_COUNT(equal); i++)
		if (!strcmp(op, equal[i]) && t->span.bytes[a] && t->span.bytes[b])
			return t->span.bytes[a] == t->span.bytes[b];
	return true;
}

/* r's side of what row is; LG_NO_ROW. */
static uint32_t side_of(struct sequences *s, const struct lg_rank *r, uint32_t row)
{
	const struct lg_trace *t = s->c->t;

	for (size_t k = 0; k < r->n_spans; k++)
		if (is_call(t, r->spans[k]) && same_number(t, r->spans[k], row) &&
		    one_group(s, r->spans[k], row))
			return r->spans[k];
	return LG_NO_ROW;
}

static void tell_parted(struct sequences *s, uint32_t row)
{
	struct lg_case *c = s->c;
	const struct lg_trace *t = c->t;
	const char *group = lg_string(t, t->span.group[row]);
	LG_AUTOFREE uint32_t *side = lg_scratch(c, c->n_ranks, sizeof *side);
	uint32_t best = row, odd = LG_NO_ROW;
	size_t most = 0, all = 0;
	struct lg_finding *f;
	int32_t rank;

	if (!side)
		return;
	for (size_t i = 0; i < c->n_ranks; i++) {
		side[i] = side_of(s, &c->ranks[i], row);
		all += side[i] != LG_NO_ROW;
	}
	for (size_t i = 0; i < c->n_ranks; i++) {
		size_t n = 0;

		for (size_t k = 0; side[i] != LG_NO_ROW && k < c->n_ranks; k++)
			n += side[k] != LG_NO_ROW && alike(t, side[i], side[k]);
		if (n > most) {
			most = n;
			best = side[i];
		}
	}
	for (size_t i = 0; i < c->n_ranks; i++)
		if (side[i] != LG_NO_ROW && !alike(t, best, side[i]))
			odd = side[i];
	/* One against the others is the one to look at. */
	rank = odd != LG_NO_ROW && most > 1 && most + 1 == all
		       ? t->process.rank[t->thread.prc[t->span.thr[odd]]] : -1;
	f = odd != LG_NO_ROW ? lg_flight_finding(c, LG_R_COMMS_MISMATCH, 0.9, rank) : NULL;
	if (f) {
		lg_title(c, f, LG_SAYS_COMMS_MISMATCH_CALL, (long long)t->span.seq[row], group);
		for (size_t i = 0; i < c->n_ranks; i++) {
			if (side[i] == LG_NO_ROW)
				continue;
			if (rank < 0 && most * 2 > all && !alike(t, best, side[i]))
				lg_culprit_rank_add(c, f, c->ranks[i].rank);
			lg_evidence_add(c, f, t->span.ts[side[i]], 0, "rank %d calls %s of %llu bytes",
					c->ranks[i].rank, lg_span_name(t, side[i]),
					(unsigned long long)t->span.bytes[side[i]]);
		}
	}
}

/* The first number under which two ranks differ; LG_NO_ROW. */
static int first_parted(struct sequences *s, uint32_t *ret)
{
	struct lg_case *c = s->c;
	const struct lg_trace *t = c->t;
	struct lg_map seen = { 0 };
	int rc = 0;

	*ret = LG_NO_ROW;
	for (size_t i = 0; i < c->n_ranks && !rc; i++)
		for (size_t k = 0; k < c->ranks[i].n_spans && !rc; k++) {
			uint32_t row = c->ranks[i].spans[k], other;

			if (!is_call(t, row))
				continue;
			other = lg_map_get(&seen, key_of(s, row));
			if (!other) {
				rc = lg_map_set(&seen, key_of(s, row), row + 1);
				continue;
			}
			other--;
			if (!same_number(t, row, other) || alike(t, row, other) || !one_group(s, row, other))
				continue;
			if (*ret == LG_NO_ROW || t->span.ts[row] < t->span.ts[*ret])
				*ret = row;
			break; /* behind it all differ */
		}
	lg_map_done(&seen);
	return rc;
}

/* ---- who never came ---- */

/* How long rank r waited in row, when that is a hang's length; else 0. usual: its longest wait before. */
static int64_t long_wait(const struct lg_trace *t, uint32_t row, int64_t usual)
{
	int64_t dur = t->span.dur[row] >= 0 ? t->span.dur[row] : t->last - t->span.ts[row];
	int64_t least = LG_N_COMMS_MISSING_RANK_LONG_S * INT64_C(1000000000);

	return dur >= least && dur / LG_N_COMMS_MISSING_RANK_LONGER >= usual ? dur : 0;
}

static bool is_among(const char *ranks, int32_t rank)
{
	while (*ranks) {
		char *end;

		if (strtoll(ranks, &end, 10) == rank && end != ranks)
			return true;
		ranks = end + strcspn(end, ",");
		ranks += *ranks == ',';
	}
	return false;
}

/* Does rank r belong to the group of another's row, and has called neither that number nor a later one? */
static bool never_called(struct sequences *s, const struct lg_rank *r, uint32_t row)
{
	const struct lg_trace *t = s->c->t;
	const char *of = lg_string(t, members_of(s, row));
	bool member = is_among(of, r->rank);

	if (*of && !member)
		return false;
	LG_EACH_ROW(own, r->spans, r->n_spans) {
		if (!is_call(t, own) || !one_group(s, own, row))
			continue;
		if (t->span.seq[own] >= t->span.seq[row])
			return false;
		member = true;
	}
	return member;
}

/* The first row in which r waits as in a hang, and for how long; LG_NO_ROW. */
static uint32_t hangs_in(const struct lg_trace *t, const struct lg_rank *r, int64_t *ret_ns)
{
	int64_t usual = 0;

	LG_EACH_ROW(row, r->spans, r->n_spans) {
		bool waits = t->span.kind[row] == LG_SPAN_WAIT && t->span.group[row] && t->span.seq[row] >= 0;

		if (!waits && !is_call(t, row))
			continue;
		*ret_ns = long_wait(t, row, usual);
		if (*ret_ns)
			return row;
		usual = LG_MAX(t->span.dur[row], usual);
	}
	return LG_NO_ROW;
}

/* What was called: the wait for an asynchronous collective is a row of its own. */
static const char *op_of(struct sequences *s, const struct lg_rank *r, uint32_t row)
{
	const struct lg_trace *t = s->c->t;
	uint32_t call = side_of(s, r, row);

	return lg_span_name(t, call != LG_NO_ROW ? call : row);
}

/* Rank r, who waits for nobody; in, ns: what the others wait in, and for how long. */
static void tell_missing(struct sequences *s, const struct lg_rank *r, const uint32_t *in, const int64_t *ns)
{
	struct lg_case *c = s->c;
	const struct lg_trace *t = c->t;
	struct lg_finding *f = NULL;

	for (size_t k = 0; k < c->n_ranks; k++) {
		const struct lg_rank *w = &c->ranks[k];
		const char *op;

		if (in[k] == LG_NO_ROW || !never_called(s, r, in[k]))
			continue;
		op = op_of(s, w, in[k]);
		if (!f) {
			f = lg_flight_finding(c, LG_R_COMMS_MISSING_RANK, 0.85, r->rank);
			f->culprit.pid = t->process.pid[r->prc];
			lg_title(c, f, LG_SAYS_COMMS_MISSING_RANK_NEVER_CALLED, r->rank, op,
				 w->rank, (double)ns[k] / 1e9);
		}
		lg_evidence_add(c, f, t->span.ts[in[k]], ns[k], LG_SAYS_COMMS_MISSING_RANK_WAITS_IN,
				w->rank, op, (long long)t->span.seq[in[k]], lg_string(t,
				t->span.group[in[k]]));
	}
}

static int missing(struct sequences *s)
{
	struct lg_case *c = s->c;
	LG_AUTOFREE uint32_t *in = lg_calloc(c->n_ranks, sizeof *in);
	LG_AUTOFREE int64_t *ns = lg_calloc(c->n_ranks, sizeof *ns);

	if (!in || !ns)
		c->failed = LG_E_NOMEM;
	for (size_t i = 0; !c->failed && i < c->n_ranks; i++)
		in[i] = hangs_in(c->t, &c->ranks[i], &ns[i]);
	for (size_t i = 0; !c->failed && i < c->n_ranks; i++)
		if (in[i] == LG_NO_ROW)
			tell_missing(s, &c->ranks[i], in, ns);
	return c->failed;
}

int lg_find_sequences(struct lg_case *c)
{
	struct sequences s = { .c = c };
	uint32_t row;
	int rc;

	/* Ranks of one job have numbers of their own; equal ones follow each other. */
	for (size_t i = 0; i < c->n_ranks; i++)
		if (c->ranks[i].rank < 0 || (i && c->ranks[i].rank == c->ranks[i - 1].rank))
			return 0;
	if (c->n_ranks < 2)
		return 0;
	rc = first_parted(&s, &row);
	if (!rc && row != LG_NO_ROW)
		tell_parted(&s, row);
	else if (!rc)
		rc = missing(&s);
	lg_map_done(&s.members);
	return rc ? rc : c->failed;
}
