/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_names.h - plumbing: kernel functions that do not say what a thread was at (kernel_names.def). */
#ifndef LG_STORE_KERNEL_NAMES_H
#define LG_STORE_KERNEL_NAMES_H
#include <stdbool.h>

enum lg_plumbing_where {
	LG_PLUMBING_RECORDED = 1, /* cut off stacks that the recorder takes */
	LG_PLUMBING_IMPORTED = 2, /* and off those of imported tracepoints */
	LG_PLUMBING_WANTED = 4,   /* who wanted the lock whose event has this stack */
	LG_PLUMBING_PLACE = 8,    /* where a thread waited for a lock */
	LG_PLUMBING_CULPRIT = 16, /* what a culprit did */
	LG_PLUMBING_SHOWN = 32,   /* names of slices in timelines */
};

bool lg_is_plumbing(const char *name, enum lg_plumbing_where where);

#endif /* LG_STORE_KERNEL_NAMES_H */
