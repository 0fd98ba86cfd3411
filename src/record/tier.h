/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h - which sources a recording consists of, decided by trying them. */
#ifndef LG_RECORD_TIER_H
#define LG_RECORD_TIER_H
#include "record/session.h"

/* The source that makes a tier what it is (states), NULL in a build without it. */
const struct lg_source *lg_tier_main(enum lg_tier tier);
/* What the user should know a recording of this tier does not see; "" for bpf. */
const char *lg_tier_limits(enum lg_tier tier);
/*
 * The best tier not better than `first` that probes well. forced: `first` or nothing.
 * why gets one line for each better tier that did not work.
 */
int lg_tier_choose(enum lg_tier first, bool forced, enum lg_tier *ret_tier,
		   void (*why)(void *arg, enum lg_tier tier, const struct lg_probe *p), void *arg,
		   struct lg_error *err) LG_MUST_CHECK;
/* Probe one source; a source that is not in the build says so. */
void lg_probe_source(const struct lg_source *src, const char *name, struct lg_probe *ret);

#endif /* LG_RECORD_TIER_H */
