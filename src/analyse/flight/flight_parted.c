/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight_parted.c - ranks that entered different collectives under one number of a group, from dumps of the
 * Flight Recorder. What has to agree: torch's own analyser, tools/flight_recorder/components/types.py.
 */
#include "analyse/flight/flight.h"
#include "store/args.h"

enum { TOLD_MAX = 3, SIDES_MAX = 6 };

/* Operations to which every rank brings as many elements. Not all_to_all, scatter, gather. */
static bool equal_sizes(const char *name)
{
	static const char *const ops[] = { "all_reduce", "_all_gather_base", "all_gather", "_reduce_scatter_base",
					   "reduce_scatter", "broadcast", "reduce" };
	const char *op = strchr(name, ':');

	for (size_t i = 0; op && i < LG_COUNT(ops); i++)
		if (!strcmp(op + 1, ops[i]))
			return true;
	return false;
}

/* What two ranks' sides of one collective do not agree in; NULL = they may be that. */
static const char *unlike(const struct lg_trace *t, uint32_t a, uint32_t b)
{
	size_t n, k;
	const char *x = lg_span_arg(t, a, "dtype", &n), *y = lg_span_arg(t, b, "dtype", &k);

	if (t->span.name[a] != t->span.name[b])
		return "operation";
	if (x && y && n && k && (n != k || memcmp(x, y, n)))
		return "dtype";
	return !equal_sizes(lg_span_name(t, a)) || !t->span.bytes[a] || !t->span.bytes[b] ||
	       t->span.bytes[a] == t->span.bytes[b] ? NULL : "size";
}

static bool alike(const struct lg_trace *t, uint32_t a, uint32_t b)
{
	return !unlike(t, a, b);
}

/* By majority: a first rank that is wrong would make all others so. Returns one of the most, *ret_n of
 * them. */
static size_t majority(const struct lg_trace *t, const struct lg_flight_entry *v, size_t from, size_t to,
		       size_t *ret_n)
{
	enum { TRIES = 64 }; /* of thousands of ranks some are enough */
	size_t best = from;

	*ret_n = 0;
	for (size_t i = from; i < to && i < from + TRIES; i++) {
		size_t n = 0;

		for (size_t k = from; k < to; k++)
			n += alike(t, v[i].row, v[k].row);
		if (n > *ret_n) {
			*ret_n = n;
			best = i;
		}
	}
	return best;
}

/* v[from..to): one number of one group, each rank once. */
static void tell(struct lg_flight *d, size_t from, size_t to)
{
	const struct lg_flight_entry *v = d->entry;
	struct lg_case *c = d->c;
	const struct lg_trace *t = c->t;
	size_t most, best = majority(t, v, from, to, &most), odd = to, n_sides = 0;
	const char *name = lg_string(t, t->span.group[v[from].row]);
	long long number = v[from].seq;
	const char *op = lg_span_name(t, v[best].row);
	struct lg_finding *f;

	for (size_t i = from; i < to && odd == to; i++)
		if (!alike(t, v[best].row, v[i].row))
			odd = i;
	if (odd == to)
		return;
	f = lg_flight_finding(c, LG_R_COMMS_MISMATCH, 0.95,
			      most + 1 == to - from && most > 1 ? t->process.rank[v[odd].prc] : -1);
	for (size_t i = from; i < to && f->culprit.rank < 0 && most * 2 > to - from; i++)
		if (!alike(t, v[best].row, v[i].row))
			lg_culprit_rank_add(c, f, t->process.rank[v[i].prc]);
	f->detail = unlike(t, v[best].row, v[odd].row);
	if (strcmp(f->detail, "operation") && f->culprit.rank >= 0)
		lg_title(c, f, LG_SAYS_COMMS_MISMATCH_RANK_BRINGS, f->culprit.rank, f->detail, op,
			 number, name);
	else if (strcmp(f->detail, "operation"))
		lg_title(c, f, LG_SAYS_COMMS_MISMATCH_BRING, f->detail, op, number, name);
	else if (f->culprit.rank >= 0)
		lg_title(c, f, LG_SAYS_COMMS_MISMATCH_RANK_ENTERS, f->culprit.rank, number, name);
	else
		lg_title(c, f, LG_SAYS_COMMS_MISMATCH_ENTER, number, name);
	for (size_t i = from; i < to; i++) {
		const char *more = i == best && most > 1 ? lg_text(c, " and %zu more", most - 1) : "";

		if (i != best && alike(t, v[best].row, v[i].row))
			continue; /* one for all of them */
		if (++n_sides > SIDES_MAX)
			continue;
		lg_evidence_add(c, f, t->span.ts[v[i].row], 0, "rank %d%s: %s, %s",
				t->process.rank[v[i].prc], more, lg_span_name(t, v[i].row),
				lg_flight_inputs(c, v[i].row));
	}
	if (n_sides > SIDES_MAX)
		lg_evidence(c, f, LG_SAYS_COMMS_MISMATCH_MORE_RANKS, n_sides - SIDES_MAX);
}

int lg_flight_parted(struct lg_flight *d)
{
	struct lg_flight_entry *v = d->entry;
	size_t n = d->n_entries, n_told = 0;
	uint32_t told = 0;

	LG_EACH_RUN(i, j, 0, n, v[j].group == v[i].group && v[j].seq == v[i].seq) {
		bool once = true, same = true;

		for (size_t k = i + 1; k < j; k++) {
			once &= v[k].prc != v[k - 1].prc;
			same &= alike(d->c->t, v[i].row, v[k].row);
		}
		/* Several of one number and rank are coalesced, or of two lives of the group. Behind the
		 * first number that differs all others do. */
		if (!once || same || d->unlike[v[i].group] || told == v[i].group)
			continue;
		if (n_told < TOLD_MAX)
			tell(d, i, j);
		told = v[i].group;
		n_told++;
	}
	if (n_told > TOLD_MAX)
		lg_say(d->c, LG_SAYS_COMMS_MISMATCH_MORE_GROUPS, n_told - TOLD_MAX);
	return d->c->failed;
}
