/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_kills.c - processes that the kernel killed because their cgroup had no room left. The group counts
 * them (record/host_memory.h) and does not say whom it was; the signal does, where signals were recorded,
 * else who of the job ended in that time.
 */
#include <math.h>
#include <stdio.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/host_memory.h"
#include "analyse/steps/steps.h"
#include "base/words.h"

enum { LARGEST_TOLD = 3 };
#define AROUND INT64_C(1500000000) /* readings are a second apart */

static const char prefix[] = "cgroup.oom_kills ";

struct kill {
	const char *group;
	int64_t from, to; /* between these readings */
	double n;
	lg_prc who;
	bool by_signal;
	size_t ended; /* of the job in that time */
};

/* The last value of the counter of that name by ts, and later; NAN: none. */
static double value_at(const struct lg_case *c, const char *name, lg_prc prc, int64_t ts)
{
	double v = NAN;

	for (lg_trk k = 1; k < c->t->track.n; k++) {
		if (c->t->track.kind[k] != LG_TRACK_COUNTER || c->t->track.prc[k] != prc ||
		    strcmp(lg_string(c->t, c->t->track.name[k]), name) != 0)
			continue;
		LG_LISTED(row, c->idx->counter, k)
		if (c->t->counter.ts[row] <= ts || isnan(v))
			v = c->t->counter.value[row];
	}
	return v;
}

static void by_signal(struct lg_case *c, struct kill *k)
{
	LG_EACH_MARK(i, c->t, "signal") {
		lg_prc p = c->t->thread.prc[c->t->mark.thr[i]];

		if (c->t->mark.ts[i] < k->from - AROUND || c->t->mark.ts[i] > k->to || !lg_in_job(c, p) ||
		    strncmp(lg_string(c->t, c->t->mark.text[i]), "SIGKILL ", 8) != 0)
			continue;
		k->who = k->who ? k->who : p;
		k->by_signal = true;
	}
}

/* Of those that ended the largest: the kernel takes that one (mm/oom_kill.c, oom_badness). */
static void by_end(struct lg_case *c, struct kill *k)
{
	double most = -1;

	for (lg_prc p = 1; p < c->t->process.n; p++) {
		double held;

		if (c->t->process.end[p] < k->from - AROUND || c->t->process.end[p] > k->to ||
		    !lg_in_job(c, p))
			continue;
		held = value_at(c, "process.anon", p, k->to);
		if (isnan(held))
			continue;
		k->ended++;
		if (held > most) {
			most = held;
			k->who = p;
		}
	}
}

static const char *called(struct lg_case *c, lg_prc p)
{
	if (c->t->process.rank[p] >= 0)
		return lg_text(c, "rank %d (pid %d)", c->t->process.rank[p], c->t->process.pid[p]);
	return lg_text(c, "process %d (%s)", c->t->process.pid[p], lg_string(c->t, c->t->process.comm[p]));
}

static void say_largest(struct lg_case *c, struct lg_finding *f, int64_t ts)
{
	lg_prc told[LARGEST_TOLD] = { 0 };
	char a[LG_BYTES_TEXT];

	for (size_t i = 0; i < LARGEST_TOLD; i++) {
		double most = 0;

		for (lg_trk k = 1; k < c->t->track.n; k++) {
			lg_prc p = c->t->track.prc[k];
			double v;
			bool again = !p || strcmp(lg_string(c->t, c->t->track.name[k]), "process.anon") != 0;

			for (size_t j = 0; j < i; j++)
				again |= told[j] == p;
			v = again ? 0 : value_at(c, "process.anon", p, ts);
			if (v > most) {
				most = v;
				told[i] = p;
			}
		}
		if (!told[i])
			return;
		lg_evidence(c, f, LG_SAYS_MEM_OOM_HELD, called(c, told[i]), lg_bytes_text(most, a));
	}
}

static void say_kill(struct lg_case *c, struct kill *k)
{
	char name[700], a[LG_BYTES_TEXT];
	struct lg_finding *f;
	double limit;

	by_signal(c, k);
	if (!k->by_signal)
		by_end(c, k);
	snprintf(name, sizeof name, "cgroup.memory_limit %s", k->group);
	limit = value_at(c, name, 0, k->to);
	f = lg_finding_about(c, LG_R_MEM_OOM, LG_STAGE_NONE, LG_RELATION_SELF,
			     k->by_signal    ? 0.95
			     : k->ended == 1 ? 0.9
					     : 0.6);
	if (k->who) {
		lg_culprit_identify(c, f, c->idx->main_of[k->who], 0);
		f->culprit.relation = LG_RELATION_SELF;
		f->culprit.pid = c->t->process.pid[k->who];
		f->culprit.rank = c->t->process.rank[k->who];
	}
	f->detail = "cgroup";
	lg_title(c, f, LG_SAYS_MEM_OOM_KILLED,
		 k->who ? called(c, k->who) : "a process that is not of the job", k->group,
		 lg_bytes_text(limit > 0 ? limit : 0, a));
	lg_evidence_add(c, f, k->from, k->to - k->from, LG_SAYS_MEM_OOM_COUNTED, k->group, k->n);
	if (k->by_signal)
		lg_evidence(c, f, LG_SAYS_MEM_OOM_SIGNAL);
	else if (k->ended > 1)
		lg_evidence_against(c, f, LG_SAYS_MEM_OOM_SEVERAL, k->ended);
	say_largest(c, f, k->to);
	if (lg_told(c, LG_R_MEM_LEAK) && lg_told(c, LG_R_MEM_LEAK)->detail)
		lg_evidence(c, f, LG_SAYS_MEM_OOM_GREW);
}

void lg_find_host_kills(struct lg_case *c)
{
	const struct lg_trace *t = c->t;

	for (lg_trk i = 1; i < t->track.n; i++) {
		const char *name = lg_string(t, t->track.name[i]);
		struct kill k = { 0 };
		double was = NAN;

		if (t->track.kind[i] != LG_TRACK_COUNTER || strncmp(name, prefix, sizeof prefix - 1) != 0)
			continue;
		k.group = name + sizeof prefix - 1;
		LG_LISTED(row, c->idx->counter, i) {
			double v = t->counter.value[row];

			if (v > was) {
				k.n += v - was;
				k.from = k.from ? k.from : k.to;
				k.to = t->counter.ts[row];
			} else if (!(k.n > 0)) {
				k.to = t->counter.ts[row]; /* it stands so far */
			}
			was = v;
		}
		if (k.n > 0)
			say_kill(c, &k);
	}
}
