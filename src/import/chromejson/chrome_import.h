/* SPDX-License-Identifier: Apache-2.0 */
/* chrome_import.h - state of one import, shared by the files of this folder. */
#ifndef LG_IMPORT_CHROME_IMPORT_H
#define LG_IMPORT_CHROME_IMPORT_H
#include "import/kineto/kineto_import.h"

/* One half of something: a begin, an end, a piece of an arrow. Paired when all are there. */
struct chrome_half {
	uint64_t key;  /* thread, or what the ids hash to */
	int64_t ts;
	uint32_t order; /* in the file */
	lg_thr thr;
	lg_str name, args;
	lg_trk track;
	char ph;
};

struct chrome {
	struct kineto k;
	struct chrome_half *halves;
	size_t n_halves, cap;
	char *samples, *frames; /* text of the fields "samples" and "stackFrames" */
	uint32_t n_samples, n_frames;
	uint64_t n_metadata;
	uint64_t n_odd;         /* of phases that make no rows */
	uint64_t n_open, n_unmatched;
};

/* chrome_pairs.c: spans and flows out of the halves. */
int chrome_pair(struct chrome *c);
/* chrome_samples.c: rows of the sample table. */
void chrome_samples(struct chrome *c);

#endif /* LG_IMPORT_CHROME_IMPORT_H */
