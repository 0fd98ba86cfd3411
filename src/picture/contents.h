/* SPDX-License-Identifier: Apache-2.0 */
/* contents.h - what a trace holds, whatever was concluded from it: its largest names of each kind.
 */
#ifndef LG_PICTURE_CONTENTS_H
#define LG_PICTURE_CONTENTS_H
#include "analyse/verdict.h"

enum lg_content {
	LG_CONTENT_PROCESS,
	LG_CONTENT_FUNCTION,
	LG_CONTENT_KERNEL,
	LG_CONTENT_COPY,
	LG_CONTENT_COLLECTIVE,
	LG_CONTENT_OP,
	LG_CONTENT_EVENT, /* marks: errors and warnings in logs, epochs; by count, without time */
	LG_CONTENT_MAX
};
enum { LG_CONTENT_TOP = 10, LG_CONTENT_DEVICES = 16, LG_CONTENT_COUNTERS = 24, LG_CONTENT_RANKS = 64 };

struct lg_content_row {
	uint32_t id; /* of a process, a frame or a string */
	int64_t ns;
	uint64_t count; /* spans, samples, marks; 0 for processes */
	uint64_t bytes; /* copies, collectives: of those that tell, */
	int64_t moving; /* which took so many ns */
};

struct lg_contents {
	struct {
		struct lg_content_row top[LG_CONTENT_TOP];
		size_t n;     /* in top */
		size_t names; /* in all */
		int64_t ns;   /* of all */
	} of[LG_CONTENT_MAX];
	/* Of a device and its streams: when anything ran there. */
	struct lg_content_device {
		lg_trk track;
		int64_t busy;
	} device[LG_CONTENT_DEVICES];
	size_t n_devices;
	/* Counters, the first ones by track. */
	struct lg_content_counter {
		lg_trk track;
		size_t n;
		double least, most, sum;
	} counter[LG_CONTENT_COUNTERS];
	size_t n_counters, counters_left;
	int32_t rank[LG_CONTENT_RANKS]; /* distinct, the first ones */
	size_t n_ranks;
	size_t pending;        /* collectives that had not ended */
	uint32_t pending_span; /* one of them, the first */
};

/* Times of spans that enclose each other count in each. */
int lg_contents_make(struct lg_contents *ret, const struct lg_verdict *v,
		     struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_PICTURE_CONTENTS_H */
