/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/flight/flight.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "store/args.h"

static const char group_key[] = "flight.group.", last_key[] = "flight.last.";

LG_ORDER_BY(cmp_side, struct lg_flight_side, LG_CMP(x->prc, y->prc) ?: strcmp(x->name, y->name))

/* The side of process p of the group that is called so; NULL. */
static struct lg_flight_side *side_called(const struct lg_flight *d, lg_prc p, const char *name)
{
	struct lg_flight_side key = { .prc = p, .name = name };

	return d->n ? bsearch(&key, d->side, d->n, sizeof key, cmp_side) : NULL;
}

struct lg_flight_side *lg_flight_side_of(const struct lg_flight *d, lg_prc p,
					 const struct lg_flight_side *like)
{
	struct lg_flight_side *s = side_called(d, p, like->name);

	return s && s->group == like->group ? s : NULL;
}

static bool is_key(const char *key, const char *prefix, size_t n)
{
	return !strncmp(key, prefix, n);
}

/* Which processes are dumps, and their groups. */
static int read_groups(struct lg_flight *d)
{
	const struct lg_trace *t = d->c->t;
	struct lg_map groups = { 0 };
	int rc = 0;

	for (size_t i = 0; i < t->meta.n && !rc; i++) {
		const char *key = lg_string(t, t->meta.key[i]);
		lg_prc p = t->meta.prc[i];
		int32_t rank = t->process.rank[p];

		if (!p || !is_key(key, "flight.", 7) || rank < 0 || rank >= LG_FLIGHT_RANKS)
			continue;
		d->n_dumped += !d->dumped[p];
		d->dumped[p] = 1;
		d->of_rank[rank] = p;
		if (!strcmp(key, "flight.entries"))
			d->empty[p] = 1;
		if (!is_key(key, group_key, sizeof group_key - 1))
			continue;
		rc = LG_APPEND(d->side, d->n, d->cap,
			       (struct lg_flight_side){
				.name = key + sizeof group_key - 1, .fact = lg_string(t, t->meta.value[i]),
				.prc = p, .enqueued = -1, .completed = -1,
				.oldest = -1, .row = LG_NO_ROW, .last_row = LG_NO_ROW });
		/* One group: the same name (one string has one id) with the same ranks. */
		if (!rc) {
			uint64_t id = ((uint64_t)t->meta.key[i] << 32 | t->meta.value[i]) + 1;
			uint32_t *group = &d->side[d->n - 1].group;

			*group = lg_map_get(&groups, id);
			if (!*group) {
				*group = (uint32_t)++d->n_groups;
				rc = lg_map_set(&groups, id, *group);
			}
		}
	}
	lg_map_done(&groups);
	return rc ? rc : lg_order(d->side, d->n, sizeof *d->side, cmp_side);
}

/* Of two dumps of one rank (they are one process) the later one's count. */
static void read_numbers(struct lg_flight *d)
{
	const struct lg_trace *t = d->c->t;

	for (size_t i = 0; i < t->meta.n; i++) {
		const char *key = lg_string(t, t->meta.key[i]);
		lg_prc p = t->meta.prc[i];
		struct lg_flight_side *s;
		long long enqueued, started, completed;

		if (!p || !d->dumped[p] || !is_key(key, last_key, sizeof last_key - 1))
			continue;
		s = side_called(d, p, key + sizeof last_key - 1);
		if (s && sscanf(lg_string(t, t->meta.value[i]), "%lld %lld %lld", &enqueued, &started,
				&completed) == 3) {
			s->enqueued = LG_MAX(s->enqueued, enqueued);
			s->completed = LG_MAX(s->completed, completed);
			s->status = true;
			s->counted = s->completed >= 0;
		}
	}
}

/* Numbers of send and receive, and of what is coalesced with them, differ between ranks as they like. */
static bool pairwise(const struct lg_trace *t, size_t row)
{
	const char *name = lg_span_name(t, row);
	size_t n;

	return lg_span_arg(t, row, "p2p", &n) || strstr(name, ":send") || strstr(name, ":recv") ||
	       strstr(name, "coalesced");
}

/* The last that was called, and, where no watchdog counts them, the last that completed. */
static void note(struct lg_flight_side *s, const struct lg_trace *t, uint32_t row)
{
	int64_t seq = t->span.seq[row];

	if (!s->status && seq > s->enqueued)
		s->enqueued = seq;
	if (s->last_row == LG_NO_ROW || seq > t->span.seq[s->last_row])
		s->last_row = row;
	if (t->span.dur[row] >= 0 && !s->counted && seq > s->completed)
		s->completed = seq;
}

/* The oldest that has not completed. A group's collectives complete in their order: one before the last that
 * did is of an earlier dump of this rank. */
static void note_waiting(struct lg_flight_side *s, const struct lg_trace *t, uint32_t row)
{
	int64_t seq = t->span.seq[row];

	if (t->span.dur[row] < 0 && seq > s->completed && (s->row == LG_NO_ROW || seq < s->oldest)) {
		s->oldest = seq;
		s->row = row;
	}
}

LG_ORDER_BY(cmp_entry, struct lg_flight_entry,
	    LG_CMP(x->group, y->group) ?: LG_CMP(x->seq, y->seq) ?: LG_CMP(x->prc, y->prc) ?:
	    LG_CMP(x->row, y->row))

/*
 * In the order of their numbers, each once: two dumps of one rank have much in common. Dumps of two runs do
 * not belong together: in each, later numbers are of later times.
 */
static int order_entries(struct lg_flight *d)
{
	const struct lg_trace *t = d->c->t;
	struct lg_flight_entry *v = d->entry;
	LG_AUTOFREE int64_t *latest = lg_calloc(d->n + 1, sizeof *latest);
	size_t to = 0;

	if (!latest || lg_order(v, d->n_entries, sizeof *v, cmp_entry))
		return LG_E_NOMEM;
	for (size_t i = 0; i < d->n_entries; i++) {
		int64_t ts = t->span.ts[v[i].row], *last = &latest[v[i].side];
		bool same = to && v[to - 1].side == v[i].side && v[to - 1].seq == v[i].seq &&
			    t->span.ts[v[to - 1].row] == ts;

		if (*last && ts < *last - LG_FLIGHT_RUNS_APART)
			d->unlike[v[i].group] = d->two_runs = 1;
		*last = !*last || ts > *last ? ts : *last;
		if (!same)
			v[to++] = v[i];
	}
	d->n_entries = to;
	return 0;
}

static int read_entries(struct lg_flight *d)
{
	const struct lg_trace *t = d->c->t;
	struct lg_flight_side *s = NULL;
	lg_str of = 0;

	for (size_t i = 0; i < t->span.n; i++) {
		lg_prc p = t->span.thr[i] ? t->thread.prc[t->span.thr[i]] : 0;

		if (t->span.kind[i] != LG_SPAN_COLLECTIVE || !p || !d->dumped[p] || t->span.seq[i] < 0 ||
		    !t->span.group[i])
			continue;
		if (!s || s->prc != p || of != t->span.group[i])
			s = side_called(d, p, lg_string(t, t->span.group[i]));
		of = t->span.group[i];
		if (!s)
			continue;
		if (pairwise(t, i)) {
			d->unlike[s->group] = 1;
			continue;
		}
		if (LG_APPEND(d->entry, d->n_entries, d->cap_entries,
			      (struct lg_flight_entry){ .group = s->group, .row = (uint32_t)i, .prc = p,
							.seq = t->span.seq[i],
							.side = (uint32_t)(s - d->side) }))
			return LG_E_NOMEM;
		note(s, t, (uint32_t)i);
	}
	for (size_t i = 0; i < d->n_entries; i++)
		note_waiting(&d->side[d->entry[i].side], t, d->entry[i].row);
	return order_entries(d);
}

static void look_at(struct lg_flight_look *l, int64_t rank)
{
	lg_prc p = rank >= 0 && rank < LG_FLIGHT_RANKS ? l->d->of_rank[rank] : 0;
	const struct lg_flight_side *o = p ? lg_flight_side_of(l->d, p, l->s) : NULL;
	bool known = o && (o->status || o->enqueued >= 0);

	/* A dump that does not know the group is as good as none, but for an empty one: that has entered
	 * nothing. */
	if (!known && !(p && l->d->empty[p])) {
		if (!l->absent++)
			l->first_absent = rank < LG_FLIGHT_RANKS ? (int32_t)rank : -1;
		return;
	}
	l->here++;
	if (o && o->completed > l->most)
		l->most = o->completed;
	if (p == l->s->prc || (known && o->enqueued >= l->s->oldest))
		return;
	l->missing += known;
	l->nothing += !known;
	if (l->each)
		l->each(l, p);
}

struct lg_flight_look lg_flight_look(const struct lg_flight *d, const struct lg_flight_side *s,
				     void (*each)(struct lg_flight_look *l, lg_prc p), void *arg)
{
	struct lg_flight_look l = { .d = d, .s = s, .each = each, .arg = arg, .most = -1,
				    .first_absent = -1 };
	const char *p = strrchr(s->fact, '['); /* "DESCRIPTION [0, 2]" */
	char *end;

	while (p && *p) {
		if (*p < '0' || *p > '9') {
			p++;
			continue;
		}
		look_at(&l, strtoll(p, &end, 10));
		p = end;
	}
	return l;
}

static void settle(struct lg_flight *d)
{
	const struct lg_trace *t = d->c->t;

	LG_EACH(s, d->side, d->n) {
		if (s->status && s->completed >= 0)
			s->oldest = s->enqueued > s->completed ? s->completed + 1 : -1;
		if (s->row != LG_NO_ROW && t->span.seq[s->row] != s->oldest)
			s->row = LG_NO_ROW; /* the ring has lost it */
	}
	/* A collective that completed here was entered by all, else these are no numbers of one moment. */
	for (size_t i = 0; i < d->n; i++) {
		struct lg_flight_side probe = d->side[i];

		probe.oldest = probe.completed;
		if (!d->unlike[probe.group] && probe.completed >= 0 &&
		    lg_flight_look(d, &probe, NULL, NULL).missing)
			d->unlike[probe.group] = 1;
	}
	for (size_t i = 0; i < d->n; i++) {
		struct lg_flight_look l;

		if (!lg_flight_waits(d, &d->side[i]))
			continue;
		l = lg_flight_look(d, &d->side[i], NULL, NULL);
		d->waits[d->side[i].prc] |= l.missing + l.nothing > 0;
	}
}

bool lg_flight_any(const struct lg_trace *t)
{
	for (size_t i = 0; i < t->meta.n; i++)
		if (t->meta.prc[i] && is_key(lg_string(t, t->meta.key[i]), "flight.", 7))
			return true;
	return false;
}

int lg_flight_read(struct lg_flight *d)
{
	const struct lg_trace *t = d->c->t;
	int rc;

	if (!lg_flight_any(t))
		return 0;
	d->of_rank = lg_calloc(LG_FLIGHT_RANKS, sizeof *d->of_rank);
	d->dumped = lg_calloc(t->process.n, 1);
	d->empty = lg_calloc(t->process.n, 1);
	d->waits = lg_calloc(t->process.n, 1);
	rc = d->of_rank && d->dumped && d->empty && d->waits ? read_groups(d) : LG_E_NOMEM;
	if (rc)
		return rc;
	d->unlike = lg_calloc(d->n_groups + 1, 1);
	if (!d->unlike)
		return LG_E_NOMEM;
	read_numbers(d);
	rc = read_entries(d);
	if (!rc)
		settle(d);
	return rc;
}

void lg_flight_done(struct lg_flight *d)
{
	lg_free(d->side);
	lg_free(d->entry);
	lg_free(d->of_rank);
	lg_free(d->dumped);
	lg_free(d->empty);
	lg_free(d->waits);
	lg_free(d->unlike);
}
