/* SPDX-License-Identifier: Apache-2.0 */
/* steal.h - what the hypervisor and interrupts took of the steps' running time. */
#ifndef LG_ANALYSE_HOST_STEAL_H
#define LG_ANALYSE_HOST_STEAL_H
#include "analyse/verdict.h"

/* ns, of the judged steps of all ranks. */
struct lg_cpu_taken {
	double wall, running;      /* of the main threads; the latter as the scheduler saw it */
	struct lg_taken {
		double ns;         /* of running, at least */
		double most;       /* largest share of one CPU in a second */
	} steal, interrupts;
	bool told;                 /* the input has such counters, of one machine */
};

/* v has its steps and parts. 0 or LG_E_NOMEM. */
int lg_cpu_taken(const struct lg_verdict *v, struct lg_cpu_taken *ret) LG_MUST_CHECK;

#endif
