/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idle.h - whether a sample of the task with number 0 found its CPU idle.
 *
 * It is the idle task's, mostly. But interrupts and softirqs come while it is there, and are work; and a
 * thread of a PID namespace that the recorder's does not know has number 0 there, too. Also, where nothing
 * else says it, whether a thread was struck by an interrupt.
 */
#ifndef LG_IMPORT_IDLE_H
#define LG_IMPORT_IDLE_H
#include <stdbool.h>

#include "store/builder.h"

/* What was found out, by stack. */
struct lg_idle {
	uint8_t *of; /* 0 = not asked yet, 1 = work, 2 = idle */
	size_t cap;
};

/* Of a stack whose innermost frame is not known to be a program's. 0: idle, as nothing says otherwise. */
bool lg_idle_stack(struct lg_idle *m, const struct lg_trace *t, lg_stk stk);
/* Was the thread only struck by an interrupt, or by softirqs? LG_CTX_UNKNOWN: no frame of the kernel's. */
enum lg_ctx lg_context_of_stack(const struct lg_trace *t, lg_stk stk);
void lg_idle_done(struct lg_idle *m);

#endif /* LG_IMPORT_IDLE_H */
