/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - a trace as rows of marks, in the order in which a page shows them: ranks, culprits,
 * devices, CPUs, other processes. The marks of one depth of a lane never overlap and are in order
 * of time.
 */
#ifndef LG_PICTURE_LANES_H
#define LG_PICTURE_LANES_H
#include "picture/accounts.h"

enum lg_row_kind {
	LG_ROW_ACCOUNT,
	LG_ROW_SPANS,
	LG_ROW_LOCKS,
	LG_ROW_STATES,
	LG_ROW_DEVICE,
	LG_ROW_CPU,
	LG_ROW_SAMPLES
};
/* Beside enum lg_state_kind: a time in which a thread did several things; `a` has their shares. */
enum { LG_MARK_MIXED = 4 };

struct lg_mark {
	int64_t ts, dur;
	uint64_t a; /* states: who ended or held it (thread); kernels and calls: correlation; locks:
		     * peer; CPUs: thread; account: by whom; MIXED: shares of 255, running | ready
		     * << 8 | blocked << 16 */
	lg_str name;
	lg_stk stack;
	uint32_t n;   /* how many it stands for */
	uint8_t kind; /* of span, state or part, by the lane's kind */
	uint8_t
	    tone; /* spans: stage; states: reason, HELD where `a` is the holder; account: slot */
	uint8_t depth;
};
enum { LG_TONE_HELD = 128, LG_DEPTHS = 48 };

struct lg_lane {
	char name[96], group[128]; /* as they may be shown */
	enum lg_row_kind kind;
	lg_thr thr;
	bool folded;	   /* not shown before somebody asks */
	uint32_t depth;	   /* deepest + 1 */
	struct lg_mark *v; /* by depth, then time */
	size_t n, cap;
};

struct lg_lanes {
	struct lg_lane *v;
	size_t n, cap, n_marks, left_out; /* left_out: lanes for which there was no room */
	size_t marks_left_out; /* of lanes that are drawn: too deep */
};

int lg_lanes_make(struct lg_lanes *ret, const struct lg_verdict *v, const struct lg_accounts *a,
		  struct lg_error *err) LG_MUST_CHECK;
void lg_lanes_done(struct lg_lanes *l);
/* Does state row i tell of running whose length was seen? Of what began before the trace or
 * outlasts it nobody saw a switch: such rows may be far too long. */
bool lg_ran_for_sure(const struct lg_trace *t, size_t i);
/* Running time of each process row in [first, last), by states or, where there are none, by CPU
 * samples. */
int lg_running_ns(const struct lg_verdict *v, int64_t **ret, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_PICTURE_LANES_H */
