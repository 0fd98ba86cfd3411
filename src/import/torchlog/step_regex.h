/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_regex.h - what a step's line looks like in the log of this job, as the user says it
 * (--step-regex), once for the whole program: set before the first file is opened.
 *
 * A POSIX extended regular expression. Group 1 is the number of the step. Group 2, where there is one,
 * is how long the step took: milliseconds, or seconds where "s" or "sec" follows the group.
 */
#ifndef LG_IMPORT_TORCHLOG_STEP_REGEX_H
#define LG_IMPORT_TORCHLOG_STEP_REGEX_H
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* LG_E_USAGE with one line for an expression that cannot be used. NULL: none any more. */
int lg_step_regex_set(const char *re, struct lg_error *err) LG_MUST_CHECK;
bool lg_step_regex_given(void);
/* Is this the line of a step? *ret_ms: NaN where it does not tell. */
bool lg_step_regex_match(const char *line, int64_t *ret_step, double *ret_ms);

#endif /* LG_IMPORT_TORCHLOG_STEP_REGEX_H */
