/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded_regex.h - which extended regular expressions of a user may be matched against text that others
 * wrote.
 *
 * What a match costs is bounded then: expressions with back references (the one construct for which a
 * matcher has to try all possibilities) and with repetitions that multiply to a huge automaton are refused.
 */
#ifndef LG_BASE_BOUNDED_REGEX_H
#define LG_BASE_BOUNDED_REGEX_H
#include "base/error.h"

/* 0, or LG_E_USAGE with one line. Whether re is an expression at all is regcomp()'s to say. */
int lg_regex_bounded(const char *re, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_BASE_BOUNDED_REGEX_H */
