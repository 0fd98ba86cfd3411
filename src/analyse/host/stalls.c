/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stalls.c - a thread stood still, and nobody can be named for it: what is known of that.
 *
 * Not a finding: waiting for data, for other ranks or for a timer looks the same. But whoever reads the
 * verdict has to learn that there were stalls, how long, and what the thread's CPU did meanwhile.
 */
#include <math.h>

#include "analyse/chains/chains.h"
#include "analyse/steps/steps.h"
#include "analyse/host/foreign.h"
#include "analyse/chains/culprit.h"
#include "store/merge.h"
#include "base/words.h"

enum { OTHERS = 2 }; /* who had its CPU, by name */

/* Its long stalls: at least half as long as the one that a moment of standing still lies in. (Those of each
 * step are many and short: they must not hide the few that make it late.) */
static int find_long(const struct lg_stretches *gaps, struct lg_stretches *out, int64_t *ret_least)
{
	int rc = 0;

	*ret_least = (int64_t)(lg_stretches_typical(gaps) / 2);
	LG_EACH_WHILE(!rc, x, gaps->v, gaps->n)
		if (x->end - x->ts >= *ret_least)
			rc = lg_stretch_add(out, x->ts, x->end);
	return rc;
}

/* What its CPU did, by samples: idle, or somebody's. */
static const char *cpu_text(struct lg_case *c, const struct lg_rank *r, const struct lg_stretches *stalls,
			    int64_t period, int64_t all, double *ret_idle)
{
	const struct lg_sample_tab *s = &c->t->sample;
	LG_AUTOFREE size_t *n = lg_scratch(c, c->t->process.n, sizeof *n);
	size_t busy = 0;
	const char *text;

	if (!n)
		return "";
	if (!strcmp(lg_meta_get(c->t, "record.scope"), "processes"))
		return "what its CPU did meanwhile is not in a recording of single programs; perf record -a has it";
	for (size_t i = 0; i < stalls->n; i++) {
		int32_t cpu = lg_cpu_before(&c->scene, r->thr, stalls->v[i].ts);
		int64_t end = stalls->v[i].end;

		for (size_t k = lg_first_sample(s, stalls->v[i].ts); k < s->n && s->ts[k] < end; k++)
			if (s->cpu[k] == cpu && !(s->flags[k] & LG_SAMPLE_IDLE) &&
			    lg_shows_activity(&c->scene, k)) {
				n[c->t->thread.prc[s->thr[k]]]++;
				busy++;
			}
	}
	*ret_idle = fmax(0, 1 - (double)busy * (double)period / (double)all);
	text = lg_text(c, LG_SAYS_STALLS_CPU_IDLE, 100 * *ret_idle);
	if ((double)n[r->prc] * (double)period >= LG_N_HOST_FOREIGN_ACTIVITY_STALLS * (double)all)
		text = lg_text(c, LG_SAYS_STALLS_OWN_THREADS, text,
			       100 * fmin(1, (double)n[r->prc] * (double)period / (double)all));
	n[r->prc] = 0;
	n[0] = 0; /* of nobody known */
	for (int k = 0; k < OTHERS; k++) {
		lg_prc most = 0;
		double share;

		for (lg_prc p = 1; p < c->t->process.n; p++)
			most = n[p] > n[most] ? p : most;
		share = (double)n[most] * (double)period / (double)all;
		if (share < LG_N_HOST_FOREIGN_ACTIVITY_STALLS)
			break;
		text = lg_text(c, "%s, %s had it for %.0f %%", text,
			       lg_thread_text(c, c->idx->main_of[most]), 100 * fmin(1, share));
		n[most] = 0;
	}
	return text;
}

/* What it did, by its states. NULL = they do not tell. */
static const char *state_text(struct lg_case *c, const struct lg_rank *r, const struct lg_stretches *stalls,
			      int64_t all)
{
	int64_t blocked = 0, ready = 0, longest = 0;
	lg_str where = 0;

	for (size_t i = 0; i < stalls->n; i++) {
		struct lg_rows states = lg_states_in(&c->scene, r->thr, stalls->v[i].ts, stalls->v[i].end);

		while (lg_next_row(&c->scene, &states)) {
			uint8_t kind = c->t->state.kind[states.row];
			int64_t dur = states.to - states.from;

			blocked += kind == LG_BLOCKED ? dur : 0;
			ready += kind == LG_RUNNABLE ? dur : 0;
			if (kind == LG_BLOCKED && dur > longest) {
				longest = dur;
				where = lg_wait_name_of(c, states.row);
			}
		}
	}
	if (blocked + ready <= 0)
		return NULL;
	return lg_text(c, LG_SAYS_STALLS_STATES, lg_percent(blocked, all),
		       where ? " (the longest time in " : "", where ? lg_string(c->t, where) : "",
		       where ? ")" : "", lg_percent(ready, all));
}

static const char *every_text(struct lg_case *c, const struct lg_stretches *stalls, double *ret_period_s)
{
	LG_AUTOFREE struct lg_burst *b = lg_scratch(c, stalls->n, sizeof *b);
	struct lg_rhythm rhythm;

	if (!b)
		return "";
	for (size_t i = 0; i < stalls->n; i++)
		b[i] = (struct lg_burst){ stalls->v[i].ts, stalls->v[i].end,
					  stalls->v[i].end - stalls->v[i].ts };
	rhythm = lg_rhythm_of(b, stalls->n, 0);
	*ret_period_s = rhythm.period_s;
	return isnan(rhythm.period_s) ? "" : lg_text(c, LG_SAYS_STALLS_EVERY, rhythm.period_s,
						     rhythm.at_most ? "<=" : "=", rhythm.p);
}

/* Where nobody has the CPU in stalls that come as often as the kernel refills quotas (sched_cfs_period_us and
 * cpu.max, 100 ms unless told otherwise), a used-up one is likely. */
static const char *quota_text(double idle, double period_s)
{
	bool likely = idle >= LG_MOSTLY_IDLE && period_s >= 0.095 && period_s <= 0.105;

	return likely ? "; a used-up CPU quota of its cgroup looks like that, as quotas are refilled every 0.1 s by "
			"default: see whether nr_throttled in the cgroup's cpu.stat grows" : "";
}

int lg_say_stalls(struct lg_case *c, const struct lg_rank *r, const struct lg_stretches *gaps,
		  struct lg_stretch life, int64_t period, double *ret_idle)
{
	struct lg_stretches stalls = { 0 };
	const char *by_states, *every, *meanwhile;
	double period_s = NAN;
	char at_least[LG_MS_TEXT];
	int64_t least, all;
	int rc = find_long(gaps, &stalls, &least);

	*ret_idle = NAN;
	all = lg_stretches_time(&stalls);
	if (!rc && (double)all >= LG_N_HOST_FOREIGN_ACTIVITY_STALLS * (double)(life.end - life.ts)) {
		by_states = c->has_states ? state_text(c, r, &stalls, all) : NULL;
		every = every_text(c, &stalls, &period_s);
		meanwhile = by_states ?: cpu_text(c, r, &stalls, period, all, ret_idle);
		lg_say(c, LG_SAYS_STALLS_NO_CAUSE, lg_thread_text(c, r->thr), stalls.n,
		       lg_s(stalls.n), lg_ms_text(lg_ms(least), at_least), lg_seconds(all),
		       lg_seconds(life.end - life.ts), every, meanwhile,
		       quota_text(*ret_idle, period_s),
		       by_states ? LG_SAYS_STALLS_MARKED : LG_SAYS_STALLS_RECORD);
	}
	lg_free(stalls.v);
	return rc ?: c->failed;
}
