/* SPDX-License-Identifier: Apache-2.0 */
/* severity.h - how bad a loss is, by its share of the run's wall time (contract.md#severity). */
#ifndef LG_ANALYSE_SEVERITY_H
#define LG_ANALYSE_SEVERITY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * What a loss must rest on to be graded. Repetitions: separate episodes of it (contract.md#severity), or, of
 * one that is always there, steps that it hit: four of four would come about by chance once in sixteen.
 * Time: the kernel's own grain is a tick, 10 ms at the coarsest (HZ=100), and one such slice more or less
 * must not make a "medium" (3 %) of nothing.
 */
enum { LG_REPEATS_MIN = 5 };
#define LG_GRADED_NS 333000000ll

static inline bool lg_gradable(size_t repeats, int64_t wall_ns)
{
	return repeats >= LG_REPEATS_MIN && wall_ns >= LG_GRADED_NS;
}

/* Of a steady loss, or of one in enough episodes: "high", "medium", "low" or "info". NaN is "info". */
static inline const char *lg_severity_of(double share)
{
	return share >= 0.10 ? "high" : share >= 0.03 ? "medium" : share >= 0.01 ? "low" : "info";
}

/* 0 = info ... 3 = high */
static inline int lg_severity_level(const char *severity)
{
	return !strcmp(severity, "high") ? 3 : !strcmp(severity, "medium") ? 2 : !strcmp(severity, "low");
}

/* The same of a loss that cannot be graded: at most "low". */
static inline const char *lg_severity_of_few(double share)
{
	return share >= 0.01 ? "low" : "info";
}

#endif /* LG_ANALYSE_SEVERITY_H */
