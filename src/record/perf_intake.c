/* SPDX-License-Identifier: Apache-2.0 */
#include "record/perf_intake.h"

#define RESCAN_NS 1000000000

static void take(void *arg, int cpu, const struct perf_event_header *h)
{
	struct lg_perf_intake *in = arg;
	struct lg_perf_head head;

	if (!lg_perf_head(in->set, h, h->size, &head)) {
		in->not_understood++;
		return;
	}
	if (h->type == PERF_RECORD_LOST || h->type == PERF_RECORD_LOST_SAMPLES) {
		struct lg_perf_hole hole = lg_perf_lost_hole(&in->lost, cpu, h, &head);

		lg_session_push(in->s, in->index, hole.from, &hole, sizeof hole);
		return;
	}
	lg_perf_lost_seen(&in->lost, cpu, head.ts);
	lg_session_push(in->s, in->index, head.ts, h, h->size);
}

int lg_perf_intake_drain(struct lg_perf_intake *in, struct lg_error *err)
{
	return lg_perf_set_drain(in->set, take, in, err);
}

void lg_perf_intake_rescan(struct lg_perf_intake *in, int64_t now)
{
	struct lg_error why;

	if (now - in->rescanned <= RESCAN_NS)
		return;
	in->rescanned = now;
	if (lg_perf_set_rescan(in->set, &why))
		lg_add_diag_now(in->b, LG_DIAG_PARTIAL, now, 1, "%s", why.message);
}
