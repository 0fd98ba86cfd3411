/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plumbing.h - the innermost frames of a tracepoint's stack are the tracing itself: what the thread was at
 * begins behind them.
 */
#ifndef LG_IMPORT_PLUMBING_H
#define LG_IMPORT_PLUMBING_H
#include <stdbool.h>

#include "store/builder.h"

struct lg_plumbing {
	uint8_t *of; /* by frame: 0 = not looked at, 1 = no, 2 = yes */
	size_t cap;
};

lg_stk lg_without_plumbing(struct lg_plumbing *m, const struct lg_trace *t, lg_stk stk);
void lg_plumbing_done(struct lg_plumbing *m);

#endif /* LG_IMPORT_PLUMBING_H */
