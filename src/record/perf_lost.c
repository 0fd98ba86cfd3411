/* SPDX-License-Identifier: Apache-2.0 */
#include "record/perf_lost.h"

#include <string.h>

#include "base/alloc.h"

void lg_perf_lost_seen(struct lg_perf_lost *l, int cpu, int64_t ts)
{
	if ((size_t)cpu >= l->n) {
		size_t old = l->n;

		/* Without memory the hole seems to begin where it ends: its count still shows. */
		if (cpu < 0 || lg_grow(&l->last, &l->n, (size_t)cpu + 1, sizeof *l->last))
			return;
		for (size_t i = old; i < l->n; i++)
			l->last[i] = INT64_MIN;
	}
	l->last[cpu] = ts;
}

struct lg_perf_hole lg_perf_lost_hole(struct lg_perf_lost *l, int cpu,
				      const struct perf_event_header *h,
				      const struct lg_perf_head *head)
{
	struct lg_perf_hole hole = { .header = { .type = LG_PERF_HOLE, .size = sizeof hole },
				     .from = head->ts,
				     .to = head->ts,
				     .cpu = cpu,
				     .event = head->event };
	size_t at = h->type == PERF_RECORD_LOST ? 8 : 0; /* LOST: id, lost; LOST_SAMPLES: lost */

	if (head->n_body >= at + 8)
		memcpy(&hole.count, head->body + at, 8);
	if (cpu >= 0 && (size_t)cpu < l->n && l->last[cpu] != INT64_MIN && l->last[cpu] < head->ts)
		hole.from = l->last[cpu];
	lg_perf_lost_seen(l, cpu, head->ts);
	return hole;
}

void lg_perf_lost_done(struct lg_perf_lost *l)
{
	lg_free(l->last);
	*l = (struct lg_perf_lost){ 0 };
}
