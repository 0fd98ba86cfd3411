/* SPDX-License-Identifier: Apache-2.0 */
/* severity.h - how bad a loss is, by its share of the run's wall time (the contract's definitions). */
#ifndef LG_ANALYSE_SEVERITY_H
#define LG_ANALYSE_SEVERITY_H

/* Of a steady loss, or of one in enough episodes: "high", "medium", "low" or "info". NaN is "info". */
static inline const char *lg_severity_of(double share)
{
	return share >= 0.10 ? "high" : share >= 0.03 ? "medium" : share >= 0.01 ? "low" : "info";
}

/* The same of a loss in too few episodes to be graded: at most "low". */
static inline const char *lg_severity_of_few(double share)
{
	return share >= 0.01 ? "low" : "info";
}

#endif /* LG_ANALYSE_SEVERITY_H */
