/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.c - was the job's CPU quota used up just then?
 *
 * CFS bandwidth control has no tracepoint: a throttled thread is ready to run, nobody has its CPU, and
 * throttled_usec of its cgroup grows (kernel/sched/fair.c, throttle_cfs_rq()). The recorder writes
 * that growth once a second, and a row only when the value changed (record/counters.c).
 */
#include <stdio.h>

#include "analyse/chains/chains.h"
#include "store/merge.h"
#include "base/upper_bound.h"

#define ROW_COVERS_NS INT64_C(1500000000) /* a second, and a late drain */
#define WRITTEN_AGAIN_NS INT64_C(5000000000)

static const char throttled[] = "cgroup.throttled ", quota[] = "cgroup.quota ";

static bool is_throttle_track(const struct lg_case *c, lg_trk k)
{
	return !strncmp(lg_string(c->t, c->t->track.name[k]), throttled, sizeof throttled - 1);
}

/* The rows that matter, once: most traces have none. */
static bool find_rows(struct lg_case *c)
{
	const struct lg_counter_tab *k = &c->t->counter;
	size_t n = 0;

	if (c->quota_rows)
		return true;
	for (size_t i = 0; i < k->n; i++)
		n += is_throttle_track(c, k->track[i]);
	c->quota_rows = lg_arena_alloc(&c->v->arena, n + 1, sizeof *c->quota_rows);
	if (!c->quota_rows)
		return false;
	for (size_t i = 0; i < k->n; i++)
		if (is_throttle_track(c, k->track[i]))
			c->quota_rows[c->n_quota_rows++] = (uint32_t)i;
	return true;
}

bool lg_quota_used_up(struct lg_case *c, int64_t a, int64_t b)
{
	const struct lg_counter_tab *k = &c->t->counter;
	size_t i = 0, end;

	if (!find_rows(c))
		return false;
	end = c->n_quota_rows;
	LG_BISECT(i, end, mid, k->ts[c->quota_rows[mid]] - ROW_COVERS_NS < b); /* the first one after b */
	while (i-- > 0) {
		uint32_t row = c->quota_rows[i];
		int64_t until = k->ts[row] + WRITTEN_AGAIN_NS; /* it stands as long as no other comes */
		bool last = true;

		if (k->ts[row] + WRITTEN_AGAIN_NS + ROW_COVERS_NS < a)
			break;
		if (!(k->value[row] > 0))
			continue;
		for (size_t next = i + 1; next < c->n_quota_rows && last; next++)
			if (k->track[c->quota_rows[next]] == k->track[row]) {
				until = k->ts[c->quota_rows[next]] - ROW_COVERS_NS;
				last = false;
			}
		if (a < k->ts[row] || a < until)
			return true;
	}
	return false;
}

bool lg_quota_is_told(struct lg_case *c)
{
	return *lg_meta_get(c->t, "record.tier") || (find_rows(c) && c->n_quota_rows);
}

const char *lg_quota_text(struct lg_case *c)
{
	const struct lg_meta_tab *m = &c->t->meta;
	double limit, period = 100000;
	const char *text = NULL, *group = "";

	for (size_t i = 0; i < m->n; i++)
		if (!strncmp(lg_string(c->t, m->key[i]), quota, sizeof quota - 1)) {
			text = lg_string(c->t, m->value[i]);
			group = lg_string(c->t, m->key[i]) + sizeof quota - 1;
		}
	if (!text || sscanf(text, "%lf %lf", &limit, &period) < 1 || !(limit > 0) || !(period > 0))
		return NULL;
	return lg_text(c, "%s: %.4g CPUs", group, limit / period);
}
