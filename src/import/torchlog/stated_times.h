/* SPDX-License-Identifier: Apache-2.0 */
/* stated_times.h - how long a step took, and waited for its data, as its line says it. */
#ifndef LG_IMPORT_TORCHLOG_STATED_TIMES_H
#define LG_IMPORT_TORCHLOG_STATED_TIMES_H
#include <stdbool.h>

/* All in ms; NaN = not told. */
struct lg_stated_times {
	double ms, data_ms;     /* of this step; data_ms <= ms */
	double mean, data_mean; /* of the steps so far, with data_ms only */
	bool maybe_total;       /* "time 12.3s" may be what all steps took */
};
void lg_stated_times_of(const char *line, struct lg_stated_times *ret);

#endif /* LG_IMPORT_TORCHLOG_STATED_TIMES_H */
