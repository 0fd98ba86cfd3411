/* SPDX-License-Identifier: Apache-2.0 */
/* trigger.h - what record --trigger is given: an expression that says when the ring is to be written. */
#ifndef LG_RECORD_TRIGGER_H
#define LG_RECORD_TRIGGER_H
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum lg_trigger_kind {
	LG_TRIGGER_USUAL, /* step > 3x: longer than so many of its loop's usual steps */
	LG_TRIGGER_STEP,  /* step > 200ms */
	LG_TRIGGER_HANG,  /* hang > 60s: a training process has marked nothing for so long */
	LG_TRIGGER_RSS,   /* rss > 90%: of what the job's cgroup, or the machine, has */
	LG_TRIGGER_ASKED, /* by a signal; no expression means it */
};

enum { LG_TRIGGERS_MAX = 8, LG_TRIGGER_TEXT = 32 };

struct lg_trigger {
	enum lg_trigger_kind kind;
	double times;  /* USUAL */
	int64_t ns;    /* STEP, HANG */
	double share;  /* RSS, 0 to 1 */
	char text[LG_TRIGGER_TEXT]; /* in one spelling, "step > 3x", for the dump to say */
};

/* LG_E_USAGE with a line that says what is accepted. Nothing is guessed: "step > 3" has no unit. */
int lg_trigger_parse(const char *text, struct lg_trigger *ret, struct lg_error *err) LG_MUST_CHECK;
/* Does it need the marks of the job's processes? */
bool lg_trigger_wants_marks(const struct lg_trigger *t);

#endif /* LG_RECORD_TRIGGER_H */
