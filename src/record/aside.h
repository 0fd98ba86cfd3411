/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aside.h - work that takes long, in a forked copy of the process that goes on meanwhile: what the copy
 * changes in memory is its own. Files, sockets, shared mappings and kernel objects are not: keep off them.
 */
#ifndef LG_RECORD_ASIDE_H
#define LG_RECORD_ASIDE_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct lg_aside {
	pid_t pid; /* 0 = nothing is under way */
	int from;
};

/* work(arg, err) in a copy, at a low priority. LG_E_IO: there can be none. Not while another is under way. */
int lg_aside_start(struct lg_aside *a, int (*work)(void *arg, struct lg_error *err), void *arg,
		   struct lg_error *err) LG_MUST_CHECK;
/* Has it ended? wait: until then. *ret_rc and err: of work(). */
bool lg_aside_ended(struct lg_aside *a, bool wait, int *ret_rc, struct lg_error *err);

#endif /* LG_RECORD_ASIDE_H */
