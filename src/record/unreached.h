/* SPDX-License-Identifier: Apache-2.0 */
/* unreached.h - a Python program of the job that the hook did not reach: which one, and why. */
#ifndef LG_RECORD_UNREACHED_H
#define LG_RECORD_UNREACHED_H
#include <stdbool.h>
#include <stddef.h>

#include "store/trace.h"

/* cmdline: the arguments, joined by spaces. */
bool lg_is_python(const char *cmdline);
/* The option of a Python command line that keeps the hook out: 'I', 'E' or 'S'; 0 = none of them. */
char lg_python_isolated(const char *cmdline);
/*
 * One line about a process of the job that is Python and cannot have been reached, for a recording without
 * any marks. reached: some Python was. False: there is nothing to say.
 */
bool lg_unreached_python(const struct lg_trace *t, bool reached, char *line, size_t size);

#endif /* LG_RECORD_UNREACHED_H */
