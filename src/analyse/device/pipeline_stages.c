/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_stages.c - of ranks that send to and receive from each other: has one more work than the rest?
 *
 * In a pipeline the stage with most work sets the pace: the others stand in their receives for what it has
 * more, in every microbatch, on top of the filling and draining at a step's ends (Huang et al., GPipe,
 * section 2.3: (stages - 1) / (microbatches + stages - 1) of the time). What is a rank's own is the time in
 * which it does not stand in a collective alone, whatever it does then: a slow host counts, too.
 */
#include "analyse/device/device_rules.h"

enum { STEPS_MIN = 3 };

/* ms a step. */
static double own_ms(const struct lg_gpu_run *r)
{
	return lg_ms(lg_gpu_wall(r) - r->by[LG_GPU_BY_COMM]) / (double)r->n_steps;
}

bool lg_long_stage(const struct lg_gpu *g, struct lg_long_stage *ret)
{
	double others = 0, waits = 0;
	size_t n = 0;

	*ret = (struct lg_long_stage){ 0 };
	LG_EACH(r, g->run, g->n) {
		if (!lg_gpu_judged(r) || r->n_steps < STEPS_MIN || r->rank < 0)
			return false;
		if (!ret->run || own_ms(r) > ret->own_ms) {
			ret->run = r;
			ret->own_ms = own_ms(r);
		}
	}
	LG_EACH(r, g->run, g->n) {
		waits += lg_ms(r->by[LG_GPU_BY_COMM]) / (double)r->n_steps;
		if (own_ms(r) >= LG_N_COMMS_EXPOSED_SAME * ret->own_ms) {
			ret->replicas += r != ret->run;
		} else {
			others += own_ms(r);
			n++;
		}
	}
	if (!n)
		return false;
	ret->others_ms = others / (double)n;
	return ret->own_ms >= (1 + LG_N_COMMS_EXPOSED_LONGER) * ret->others_ms &&
	       (ret->own_ms - ret->others_ms) * (double)n >= LG_N_COMMS_EXPOSED_MATTERS * waits;
}
