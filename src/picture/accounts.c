/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/accounts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "base/order.h"
#include "base/printable.h"
#include "store/index.h"

enum { N_KINDS = 4 };

static uint8_t kind_of(const struct lg_part *p)
{
	return p->kind < N_KINDS ? p->kind : LG_PART_UNEXPLAINED;
}

/* Only those time can belong to: a verdict of a test may hold more parts than steps name. */
static const struct lg_part *parts_of(const struct lg_verdict *v, const struct lg_step *s,
				      size_t *ret_n)
{
	size_t first = s->part_first < v->n_parts ? s->part_first : v->n_parts;

	*ret_n = LG_MIN((size_t)s->n_parts, v->n_parts - first);
	return v->parts + first;
}

static void cause_name(char *to, size_t size, const struct lg_verdict *v, uint32_t i)
{
	static const char *const how[] = { "",	       "lock",	     "CPU taken by", "waited for",
					   "disk, by", "stopped by", "waited for" };
	const struct lg_cause *c = &v->causes[i];
	const struct lg_trace *t = v->trace;
	lg_prc prc = c->prc ? c->prc : t && c->thr ? t->thread.prc[c->thr] : 0;
	char text[2 * LG_ACCOUNT_NAME], who[96] = "", pid[LG_PID_TEXT];
	const char *comm = t ? lg_string(t, c->thr && t->thread.comm[c->thr]
						? t->thread.comm[c->thr]
						: t->process.comm[prc])
			     : "";

	if (t && prc)
		snprintf(who, sizeof who, "%.60s%s%s", comm, *comm ? ", " : "",
			 lg_pid_text(t->process.pid[prc], pid));
	else
		snprintf(who, sizeof who, "somebody unknown");
	if (c->kind == LG_CAUSE_LOCK)
		snprintf(text, sizeof text, "%.60s held by %s",
			 t && c->lock ? lg_string(t, c->lock) : "a lock", who);
	else
		snprintf(text, sizeof text, "%s %s",
			 how[c->kind < LG_COUNT(how) ? c->kind : LG_CAUSE_OTHER], who);
	lg_show(to, size, text, false);
}

struct weight {
	uint32_t cause;
	int64_t ns;
};
LG_ORDER_BY(heavier, struct weight, LG_CMP(y->ns, x->ns) ?: LG_CMP(x->cause, y->cause))

/* The causes that slow steps lost most to (all steps, where none is slow) get slots of their own.
 */
static int choose_slots(struct lg_accounts *a, const struct lg_verdict *v, uint8_t *slot_of)
{
	static const char *const rest[] = { "running", "ready, no CPU", "blocked, otherwise",
					    "unexplained" };
	struct weight *w LG_AUTOFREE = lg_calloc(v->n_causes + 1, sizeof *w);
	struct lg_account_slot *s;
	size_t n = 0;

	if (!w)
		return LG_E_NOMEM;
	for (size_t i = 0; i < v->n_causes; i++)
		w[i].cause = (uint32_t)i;
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_part *p = parts_of(v, &v->steps[i], &n);

		if (a->n_slow ? !v->steps[i].slow : v->steps[i].warmup)
			continue;
		for (size_t k = 0; k < n; k++)
			if (p[k].cause && p[k].cause < v->n_causes &&
			    kind_of(&p[k]) != LG_PART_RUNNING)
				w[p[k].cause].ns += p[k].dur;
	}
	LG_SORT(w, v->n_causes, heavier);
	for (int k = 0; k < N_KINDS; k++) {
		s = &a->slot[a->n_slots++];
		s->kind = (uint8_t)k;
		snprintf(s->name, sizeof s->name, "%s", rest[k]);
	}
	for (size_t i = 0; i < v->n_causes && w[i].ns > 0 && a->n_slots < LG_ACCOUNT_SLOTS; i++) {
		s = &a->slot[a->n_slots];
		s->kind = LG_PART_BLOCKED;
		s->cause = w[i].cause;
		cause_name(s->name, sizeof s->name, v, s->cause);
		slot_of[s->cause] = (uint8_t)a->n_slots++;
	}
	return 0;
}

/* ns of [a, b) that thr was in collectives, each counted once. */
static int64_t in_collectives(const struct lg_verdict *v, lg_thr thr, int64_t a, int64_t b)
{
	const struct lg_index *x = v->index;
	const struct lg_trace *t = v->trace;
	int64_t sum = 0, to = a;

	if (!x || !t || thr >= x->n_thr)
		return 0;
	for (uint32_t p = lg_index_span_from(x, thr, a); p < x->span_off[thr + 1]; p++) {
		uint32_t row = x->span[p];
		int64_t from = t->span.ts[row], end = lg_span_end(t, row);

		if (from >= b)
			break;
		if (t->span.kind[row] != LG_SPAN_COLLECTIVE && t->span.kind[row] != LG_SPAN_WAIT)
			continue;
		from = LG_MAX(from, to);
		end = LG_MIN(end, b);
		if (end > from) {
			sum += end - from;
			to = end;
		}
	}
	return sum;
}

static void add_step(struct lg_accounts *a, const struct lg_verdict *v, size_t i,
		     const uint8_t *slot_of)
{
	const struct lg_step *s = &v->steps[i];
	int64_t *ns = a->ns + i * a->n_slots, *stage = a->stage_ns + i * LG_STAGE_MAX,
		left = s->dur;
	size_t n;
	const struct lg_part *p = parts_of(v, s, &n);

	for (size_t k = 0; k < n; k++) {
		unsigned st = p[k].stage && p[k].stage < LG_STAGE_MAX ? p[k].stage : LG_STAGE_OTHER;
		uint8_t slot = p[k].cause < v->n_causes ? slot_of[p[k].cause] : 0;

		ns[slot && kind_of(&p[k]) != LG_PART_RUNNING ? slot : kind_of(&p[k])] += p[k].dur;
		stage[st] += p[k].dur;
		left -= p[k].dur;
	}
	ns[LG_PART_UNEXPLAINED] += left;
	stage[LG_STAGE_OTHER] += left;
	a->own_ns[i] = s->dur - in_collectives(v, s->thr, s->ts, s->ts + s->dur);
	if (s->warmup)
		return;
	*(s->slow ? &a->slow_ns : &a->typical_ns) += s->dur;
	for (size_t k = 0; k < a->n_slots; k++)
		*(s->slow ? &a->slot[k].slow_ns : &a->slot[k].typical_ns) += ns[k];
}

/* Steps are sorted by rank, then time. */
static int lateness(struct lg_accounts *a, const struct lg_verdict *v)
{
	int64_t *own LG_AUTOFREE = lg_calloc(v->n_steps + 1, sizeof *own);
	size_t end;

	if (!own)
		return LG_E_NOMEM;
	for (size_t i = 0; i < v->n_steps; i = end) {
		int64_t median;
		size_t n = 0;

		for (end = i; end < v->n_steps && v->steps[end].rank == v->steps[i].rank &&
			      v->steps[end].prc == v->steps[i].prc;
		     end++)
			if (!v->steps[end].warmup)
				own[n++] = a->own_ns[end];
		median = lg_median_i64(own, n);
		for (size_t k = i; k < end; k++)
			a->late_ns[k] = v->steps[k].warmup ? 0 : a->own_ns[k] - median;
	}
	return 0;
}

int lg_accounts_make(struct lg_accounts *ret, const struct lg_verdict *v, struct lg_error *err)
{
	struct lg_accounts a = { 0 };
	uint8_t *slot_of LG_AUTOFREE = lg_calloc(v->n_causes + 1, 1);
	int rc = slot_of ? 0 : LG_E_NOMEM;

	for (size_t i = 0; i < v->n_steps; i++)
		if (!v->steps[i].warmup)
			*(v->steps[i].slow ? &a.n_slow : &a.n_typical) += 1;
	if (!rc)
		rc = choose_slots(&a, v, slot_of);
	if (!rc) {
		a.ns = lg_calloc(v->n_steps * a.n_slots + 1, sizeof *a.ns);
		a.stage_ns = lg_calloc(v->n_steps * LG_STAGE_MAX + 1, sizeof *a.stage_ns);
		a.own_ns = lg_calloc(v->n_steps + 1, sizeof *a.own_ns);
		a.late_ns = lg_calloc(v->n_steps + 1, sizeof *a.late_ns);
		rc = a.ns && a.stage_ns && a.own_ns && a.late_ns ? 0 : LG_E_NOMEM;
	}
	for (size_t i = 0; i < v->n_steps && !rc; i++)
		add_step(&a, v, i, slot_of);
	if (!rc)
		rc = lateness(&a, v);
	if (rc) {
		lg_accounts_done(&a);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = a;
	return 0;
}

void lg_accounts_done(struct lg_accounts *a)
{
	lg_free(a->ns);
	lg_free(a->stage_ns);
	lg_free(a->own_ns);
	lg_free(a->late_ns);
}
