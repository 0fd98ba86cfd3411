/* SPDX-License-Identifier: Apache-2.0 */
/* same_rows.h - is a file a copy of another one of the same run (packed, renamed, in two folders)? */
#ifndef LG_IMPORT_SAME_ROWS_H
#define LG_IMPORT_SAME_ROWS_H
#include <stdbool.h>

#include "store/trace.h"

/* What two traces with the same rows, of the same processes, have in common. */
struct lg_rows_seen {
	size_t n[7];
	int64_t first, last;
	uint64_t hash;
	bool dump; /* of stacks, at no time */
};

struct lg_rows_seen lg_rows_of(const struct lg_trace *t);
/* False, too, where there are too few rows to say so. */
bool lg_same_rows(const struct lg_rows_seen *a, const struct lg_rows_seen *b);

#endif /* LG_IMPORT_SAME_ROWS_H */
