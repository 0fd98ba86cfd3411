/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_ends.c - when a step was done, on the host and on its device.
 *
 * The device may be steps behind the host, and at the beginning of a profiler's window it is not yet: the
 * host's steps are then as short as their launches until the queue is full. Work belongs to the step that
 * orders it.
 */
#include "analyse/device/timeline_gpu.h"

void lg_step_ends(const struct lg_trace *t, const struct lg_gpu_run *r, struct lg_step *step)
{
	int64_t until = r->step[0];

	for (size_t i = 0; i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		int64_t at = w->call == LG_NO_ROW ? INT64_MAX : t->span.ts[w->call];
		size_t s = lg_gpu_step_of(r, at);

		if (at < r->step[0] && w->end > until)
			until = w->end;
		else if (s < r->n_steps && w->end > step[s].done)
			step[s].done = w->end;
	}
	for (size_t s = 0; s < r->n_steps; s++) {
		step[s].ready = until > step[s].ts ? until : step[s].ts;
		if (step[s].done < step[s].ts + step[s].dur)
			step[s].done = step[s].ts + step[s].dur;
		if (step[s].done < step[s].ready)
			step[s].done = step[s].ready;
		until = step[s].done;
	}
}
