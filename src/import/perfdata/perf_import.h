/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_import.h - one import of a perf.data file: what its parts share.
 *
 *   bytes -> perf_stream -> records -> perf_order -> in time order -> perf_records -> rows
 *             (perf_file:     (time only)      perf_handover         \-> perf_events -> sched_feed
 *              zstd inside)
 *
 * Up to perf_handover one thread works, beyond it another: what the second uses is marked [2], and
 * belongs to the first only after lg_pd_handover_wait().
 */
#ifndef LG_IMPORT_PERFDATA_PERF_IMPORT_H
#define LG_IMPORT_PERFDATA_PERF_IMPORT_H
#include "import/idle.h"
#include "import/perfdata/perf_chains.h"
#include "import/perfdata/perf_folder.h"
#include "import/perfdata/perf_handover.h"
#include "import/perfdata/perf_kcore.h"

struct lg_pd_events;

struct lg_pd_cpu {
	int64_t last;      /* time of its latest record; INT64_MIN = none yet */
	int64_t throttled; /* since when; INT64_MIN = it is not */
};

struct lg_pd {
	/* [2] */
	struct lg_builder *b;
	struct lg_pd_header h;    /* the first one waits before it changes it */
	struct lg_pd_code code;
	struct lg_pd_kcore kcore; /* --kcore: beside the file */
	struct lg_pd_tasks tasks;
	struct lg_pd_events *events;
	struct lg_pd_cpu *cpu;
	size_t n_cpu, cpu_cap;
	bool timeless_file;       /* no event has a time: samples are numbered, 1 us apart */
	bool sees_turns;          /* only samples tell that a thread came back to a CPU */
	int64_t turn_grain;       /* ns: it was back for no longer than this; INT64_MAX = not known */
	int64_t last_ts;          /* of what was handed out last */
	int64_t first_ts;
	struct lg_idle idle;
	struct lg_pd_sample plain; /* of fixed fields and a chain: all else of it stays 0 */
	uint64_t timeless;        /* samples without time */
	uint64_t short_records, short_at, n_throttles;
	uint64_t lost, lost_by_event; /* what the buffers had no room for, by when and by whose it was */

	uint8_t apart[64];        /* a cache line: both write at every record */

	struct lg_pd_attrs timing; /* h.attrs for the first thread: borrowed */
	struct lg_pd_seen_chains *memo;  /* NULL until the first chain */
	struct lg_pd_handover *handover;
	struct lg_pd_pool pool;
	struct lg_pd_file *file;  /* [n_files], one but for folders */
	size_t n_files;
	struct lg_pd_file *f;     /* the one being read */
	struct lg_pd_members members;
	struct lg_error *err;     /* of the caller, for what is called back */
	struct lg_pd_order order;
	bool sampled, counted;    /* there are samples; counts of perf stat */
	uint64_t aux_bytes;       /* of a processor's trace */
	uint32_t aux_kind;        /* enum auxtrace_type of tools/perf/util/auxtrace.h; 0 = not told */
	bool aux;                 /* one was taken */
	uint8_t *split;           /* of simpleperf: parts of one record, until the last one has come */
	size_t n_split, split_cap;
	bool settled;             /* events have names: samples may be handed out */
	/* counts for the closing notes */
	uint64_t records, unknown_type, unknown_at, deferred;
	uint64_t twins, broken_unwinds; /* of simpleperf: simple_chain(), simple_unwinding() */
	uint32_t unknown_kind;
	const char *unknown_in;   /* lg_pd_file.name */
};

/* perfdata.c: the next record of p->f, and those that are compressed in it. 1, 0 at its end, LG_E_*. */
int lg_pd_step(struct lg_pd *p, struct lg_error *err) LG_MUST_CHECK;

/* The time by which it is put in order. */
static inline uint64_t lg_pd_time_of(struct lg_pd_attrs *attrs, const struct lg_pd_record *r)
{
	const struct lg_pd_attr *a = lg_pd_attr_of(attrs, r->p, r->size, r->type == PD_SAMPLE);

	if (!a)
		return LG_PD_NO_TIME;
	if (r->type == PD_SAMPLE)
		return lg_pd_sample_time(a, r->p, r->size, attrs->swap);
	if ((r->type == PD_FORK || r->type == PD_EXIT) && r->size >= 32)
		return pd_u64(r->p + 24, attrs->swap);
	if (a->at.back_time > 0 && r->size >= PD_RECORD_HEADER + a->at.trailer)
		return pd_u64(r->p + r->size - a->at.back_time, attrs->swap);
	return LG_PD_NO_TIME;
}

/* perf_records.c: one record, in order. */
int lg_pd_record_in_order(struct lg_pd *p, const struct lg_pd_handed *r);
/* At the end: say which threads are the kernel's. */
void lg_pd_kernel_threads(struct lg_pd *p);
/* At the end: who was recorded by its number is what the user asks about. */
void lg_pd_named_job(struct lg_pd *p);

/* perf_events.c: tracepoints and context switches. */
int lg_pd_events_new(struct lg_pd *p, struct lg_error *err) LG_MUST_CHECK;
void lg_pd_events_free(struct lg_pd_events *e);
/* Are a's samples hits of sched_switch? */
bool lg_pd_is_switch(const struct lg_pd *p, const struct lg_pd_attr *a);
void lg_pd_events_sample(struct lg_pd *p, struct lg_pd_attr *a, const struct lg_pd_sample *s,
			 int64_t ts, struct lg_pd_task *task, lg_stk stk);
/* PERF_RECORD_SWITCH and _CPU_WIDE: task was switched out of or onto cpu; -1 = not told. */
void lg_pd_events_switch(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, int32_t cpu, bool out,
			 bool preempted);
void lg_pd_events_fork(struct lg_pd *p, int64_t ts, int32_t pid, int32_t tid);
void lg_pd_events_exit(struct lg_pd *p, int64_t ts, int32_t tid);
/* Events of cpu (-1 = all) were lost between the last one and ts. */
void lg_pd_events_gap(struct lg_pd *p, int64_t from, int64_t to, int32_t cpu);
int lg_pd_events_finish(struct lg_pd *p, struct lg_error *err) LG_MUST_CHECK;

/* perf_turns.c: what threads did, by what each tells of itself: switch records, and sched_switch of a
 * recording of tasks. */
void lg_pd_turns_switch(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, int32_t cpu, bool out,
			bool preempted);
/* sched_switch: task leaves cpu, and why. */
void lg_pd_turns_leave(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, lg_stk stk, int32_t cpu,
		       enum lg_state_reason why);
void lg_pd_turns_woke(struct lg_pd *p, int64_t ts, int32_t tid, lg_thr waker, enum lg_ctx ctx, lg_stk stk);
/* A sample of it: it has a CPU. */
void lg_pd_turns_seen(struct lg_pd *p, int64_t ts, struct lg_pd_task *task, int32_t cpu);
void lg_pd_turns_exit(struct lg_pd *p, int64_t ts, int32_t tid);
/* Switches may be among what cpu (-1 = all) lost from `from` on: nobody's state is known any more. */
void lg_pd_turns_gap(struct lg_pd *p, int64_t from, int32_t cpu);
void lg_pd_turns_finish(struct lg_pd *p);

#endif /* LG_IMPORT_PERFDATA_PERF_IMPORT_H */
