/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fired.c - what fired the trigger that wrote this file, and who was it.
 *
 * A finding is told for its share of the whole file, and what fired may be little of it. So the moment
 * itself is added up from the critical path, by cause and by kind of end: the largest part is what it was.
 * Where a finding covers most of the moment, its title says the same better.
 */
#include "analyse/finders.h"

#include <inttypes.h>
#include <stdlib.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/causes.h"
#include "base/words.h"

enum { FIRED_MAX = 8, MOST = 2 /* a half of it */, DECIMAL = 10 };

static int64_t number(const char *text, int64_t otherwise)
{
	char *end;
	long long v = strtoll(text, &end, DECIMAL);

	return end == text || *end ? otherwise : v;
}

/* The last of the file's rows with that key that speak of the same moment. */
static const char *row_of(const struct lg_trace *t, size_t with, const char *key)
{
	const char *found = "";

	for (size_t i = 0; i < t->meta.n; i++)
		if (t->meta.ts[i] == t->meta.ts[with] && t->meta.prc[i] == t->meta.prc[with] &&
		    !strcmp(lg_string(t, t->meta.key[i]), key))
			found = lg_string(t, t->meta.value[i]);
	return found;
}

int lg_note_fired(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	struct lg_verdict *v = c->v;

	for (size_t i = 0; i < t->meta.n && v->n_fired < FIRED_MAX; i++) {
		lg_prc prc = t->meta.prc[i];
		struct lg_fired *f;

		if (t->meta.ts[i] == INT64_MIN || strcmp(lg_string(t, t->meta.key[i]), "record.trigger") != 0)
			continue;
		if (!v->fired)
			v->fired = lg_arena_alloc(&v->arena, FIRED_MAX, sizeof *v->fired);
		if (!v->fired)
			return LG_E_NOMEM;
		f = &v->fired[v->n_fired++];
		*f = (struct lg_fired){ .what = lg_string(t, t->meta.value[i]),
					.why = row_of(t, i, "record.trigger.why"), .ts = t->meta.ts[i],
					.dur = LG_MAX(0, number(row_of(t, i, "record.trigger.dur_ns"), 0)),
					.step = number(row_of(t, i, "record.trigger.step"), -1),
					.pid = prc && prc < t->process.n ? t->process.pid[prc] : -1,
					.rank = prc && prc < t->process.n ? t->process.rank[prc] : -1,
					.finding = SIZE_MAX };
		if (__builtin_add_overflow(f->ts, f->dur, &(int64_t){ 0 }))
			f->dur = 0;
	}
	return 0;
}

static int64_t common(const struct lg_fired *f, int64_t ts, int64_t dur)
{
	int64_t end;

	if (__builtin_add_overflow(ts, dur, &end))
		return 0;
	return LG_MAX(0, LG_MIN(end, f->ts + f->dur) - LG_MAX(ts, f->ts));
}

/* "880 ms of 900 ms: " */
static const char *part(struct lg_case *c, int64_t ns, int64_t of)
{
	char some[LG_MS_TEXT], all[LG_MS_TEXT];

	return lg_text(c, "%s of %s", lg_ms_text(lg_ms(ns), some), lg_ms_text(lg_ms(of), all));
}

/* Nobody else's doing, or nobody knows. thr: of whoever did most of it. */
static const char *no_cause(struct lg_case *c, enum lg_end_kind end, lg_thr thr, const char *much)
{
	const char *who = thr ? lg_thread_text(c, thr) : "the job";

	switch (lg_end(end)->place) {
	case LG_PLACE_RUN:
		return lg_text(c, LG_SAYS_FIRED_COMPUTED, much, who);
	case LG_PLACE_ASLEEP:
		return lg_text(c, LG_SAYS_FIRED_SLEPT, much, who);
	case LG_PLACE_COMMS:
		return lg_text(c, LG_SAYS_FIRED_NETWORK, much);
	default:
		return lg_text(c, LG_SAYS_FIRED_NOTHING, much);
	}
}

static void judge_one(struct lg_case *c, const struct lg_tally *y, struct lg_fired *f)
{
	int64_t by_end[LG_END_MAX] = { 0 }, most = 0, seen = 0, longest[LG_END_MAX] = { 0 };
	lg_thr who[LG_END_MAX] = { 0 };
	const struct lg_cause_sum *cause = NULL;
	int end = LG_END_UNKNOWN;

	LG_EACH(p, y->path, y->n_path) {
		int64_t ns = common(f, p->ts, p->dur);

		by_end[p->end] += ns;
		seen += ns;
		if (ns > longest[p->end]) {
			longest[p->end] = ns;
			who[p->end] = p->thr ?: p->of;
		}
	}
	LG_EACH(s, y->causes, y->n_causes) {
		int64_t ns = 0;

		LG_EACH_PIECE(p, s)
			ns += common(f, p->ts, p->dur);
		if (ns > most) {
			most = ns;
			cause = s;
		}
	}
	if (seen < f->dur / MOST)
		return; /* it is not on the way of any step: a run that stands, which others judge */
	by_end[LG_END_UNKNOWN] += f->dur - LG_MIN(seen, f->dur);
	for (int i = 0; i < LG_END_MAX; i++) {
		if (lg_is_cause((enum lg_end_kind)i) || by_end[i] <= most)
			continue;
		most = by_end[i];
		cause = NULL;
		end = i;
	}
	f->answer = cause ? lg_text(c, "%s: %s", part(c, most, f->dur), lg_cause_fact(c, cause))
			  : no_cause(c, (enum lg_end_kind)end, who[end], part(c, most, f->dur));
}

void lg_judge_fired(struct lg_case *c, const struct lg_tally *y)
{
	LG_EACH(f, c->v->fired, c->v->n_fired)
		if (f->dur)
			judge_one(c, y, f);
}

/* How much of it the finding says that it is about. */
static int64_t about(const struct lg_finding *d, const struct lg_fired *f)
{
	int64_t kept = 0, told = 0;

	LG_EACH(m, d->moments, d->n_moments)
		kept += common(f, m->ts, m->dur);
	LG_EACH(e, d->evidence, d->n_evidence)
		if (e->ts != INT64_MIN)
			told = LG_MAX(told, common(f, e->ts, e->dur));
	return LG_MIN(LG_MAX(kept, told), f->dur);
}

void lg_fired_findings(struct lg_case *c)
{
	struct lg_verdict *v = c->v;

	LG_EACH(f, v->fired, v->n_fired) {
		int64_t most = 0;

		for (size_t i = 0; i < v->n_findings; i++) {
			int64_t ns = about(&v->findings[i], f);

			if (ns > most && ns * MOST >= f->dur) {
				most = ns;
				f->finding = i;
			}
		}
		if (f->finding != SIZE_MAX)
			f->answer = lg_text(c, "%s: %s", part(c, most, f->dur), v->findings[f->finding].title);
		else if (!f->answer && f->dur)
			f->answer = v->still;
	}
}
