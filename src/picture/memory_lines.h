/* SPDX-License-Identifier: Apache-2.0 */
/* memory_lines.h - bytes over time: what allocators, devices, processes and the machine held. */
#ifndef LG_PICTURE_MEMORY_LINES_H
#define LG_PICTURE_MEMORY_LINES_H
#include "store/trace.h"

enum { LG_MEMORY_COLUMNS = 480, LG_MEMORY_LINES = 12 };

struct lg_memory_line {
	lg_trk track;
	size_t n;                     /* readings */
	double most;                  /* of all readings */
	double v[LG_MEMORY_COLUMNS];  /* the most in each part of the trace; NAN = nothing was read so far */
};

struct lg_memory_lines {
	struct lg_memory_line *v; /* the largest first */
	size_t n, left_out;
};

int lg_memory_lines_make(struct lg_memory_lines *ret, const struct lg_trace *t) LG_MUST_CHECK;
void lg_memory_lines_done(struct lg_memory_lines *l);

#endif /* LG_PICTURE_MEMORY_LINES_H */
