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
	LG_CONTENT_MAX
};
enum { LG_CONTENT_TOP = 10 };

struct lg_content_row {
	uint32_t id; /* of a process, a frame or a string */
	int64_t ns;
	uint64_t count; /* spans, samples; 0 for processes */
};

struct lg_contents {
	struct {
		struct lg_content_row top[LG_CONTENT_TOP];
		size_t n;     /* in top */
		size_t names; /* in all */
		int64_t ns;   /* of all */
	} of[LG_CONTENT_MAX];
};

/* Times of spans that enclose each other count in each. */
int lg_contents_make(struct lg_contents *ret, const struct lg_verdict *v,
		     struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_PICTURE_CONTENTS_H */
