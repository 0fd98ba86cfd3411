/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_sched.h - sched_switch, sched_waking and sched_wakeup as perf script prints them, to thread states.
 *
 * The states are made by store/sched_feed.h, as those of perf.data are. The text tells less: whether a waker
 * was struck by an interrupt only its stack shows, and a recording of single programs (perf record -p) shows
 * by lines without a CPU beside these only.
 */
#ifndef LG_IMPORT_PERFSCRIPT_SCRIPT_SCHED_H
#define LG_IMPORT_PERFSCRIPT_SCRIPT_SCHED_H
#include "import/perfscript/script_line.h"
#include "import/plumbing.h"
#include "store/sched_feed.h"

enum lg_ps_sched_kind {
	LG_PS_NO_SCHED, LG_PS_SWITCH, LG_PS_WAKING, LG_PS_WAKEUP, LG_PS_WAKEUP_NEW, LG_PS_MOVE
};

struct lg_ps_sched_line {
	enum lg_ps_sched_kind kind;
	bool understood;             /* all of its fields */
	struct lg_ps_view comm;      /* of next_tid; of tid */
	lg_str comm_kept;            /* the same, of who keeps this longer than its line */
	int32_t prev_tid, next_tid;  /* LG_PS_SWITCH */
	uint64_t prev_state;
	int32_t tid, target_cpu;     /* the others; target_cpu -1 = not printed */
	int32_t from_cpu;            /* LG_PS_MOVE: to target_cpu */
};

/* Of an event line. kind LG_PS_NO_SCHED: of another event. */
void lg_ps_sched_parse(struct lg_ps_sched_line *ret, const struct lg_ps_line *l);

struct lg_ps_sched {
	struct lg_sched_feed *feed;  /* NULL until the first */
	struct lg_plumbing plumbing;
	bool has_waking, cpu_untold; /* sched_waking came; a line of another event had a time but no CPU */
	uint64_t switches, odd, odd_at, subsampled;
	int64_t *last;               /* by CPU: its last line; INT64_MIN = none */
	size_t n_cpu, cpu_cap;
};

/* An event line and its whole stack. line_no: for the notes. */
void lg_ps_sched_event(struct lg_ps_sched *s, struct lg_builder *b, const struct lg_ps_line *l,
		       const struct lg_ps_sched_line *e, lg_stk stk, uint64_t line_no);
/* Any line with a time and a CPU. */
void lg_ps_sched_seen(struct lg_ps_sched *s, int64_t ts, int32_t cpu);
/* Events of cpu (-1 = all) were lost before ts. */
void lg_ps_sched_lost(struct lg_ps_sched *s, int64_t ts, int32_t cpu);
/* The states, or why there are none. */
int lg_ps_sched_finish(struct lg_ps_sched *s, struct lg_builder *b, int64_t last,
		       struct lg_error *err) LG_MUST_CHECK;
void lg_ps_sched_done(struct lg_ps_sched *s);

#endif /* LG_IMPORT_PERFSCRIPT_SCRIPT_SCHED_H */
