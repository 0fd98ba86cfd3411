/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redact.h - a trace without what tells of its owner: for recordings that are shared.
 *
 * What goes: arguments of command lines but for the program and its script, folders of files that no
 * distribution installs, values of environment variables but for numbers and lists of them, names of hosts
 * and containers (numbered instead, so that equal ones stay equal), the machine's boot id. What stays: names
 * of programs, threads, functions, modules and files' last parts, times and numbers: all that a verdict is
 * made of.
 * Strings that no row uses any more are gone, too.
 */
#ifndef LG_STORE_REDACT_H
#define LG_STORE_REDACT_H
#include "store/trace.h"

/* Changes a sealed trace in place; ids of strings are new afterwards. After a failure it must not be used. */
int lg_redact(struct lg_trace *t, struct lg_error *err) LG_MUST_CHECK;
/* The same of a whole .lag file, which is replaced when the new one is whole. */
int lg_redact_file(const char *path, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_STORE_REDACT_H */
