/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - the data model: tables, enums and the sealed trace that every analysis reads.
 *
 * A trace is built once (builder.h or lag_read.h), sealed, and then only read. Time tables are
 * sorted by ts; dictionary tables are indexed by row number, row 0 meaning "none". After
 * sealing every id is in range, so readers index without checks. Columns: schema.def.
 */
#ifndef LG_STORE_TRACE_H
#define LG_STORE_TRACE_H
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "store/diag.def"
#include "store/schema.def"

typedef uint32_t lg_str, lg_stk, lg_frm, lg_thr, lg_prc, lg_trk;

enum lg_col_type {
	LG_COL_I64, LG_COL_U64, LG_COL_F64, LG_COL_I32, LG_COL_U32, LG_COL_U8,
	LG_COL_STR, LG_COL_STK, LG_COL_FRM, LG_COL_THR, LG_COL_PRC, LG_COL_TRK
};

#define LG_CTYPE_I64 int64_t
#define LG_CTYPE_U64 uint64_t
#define LG_CTYPE_F64 double
#define LG_CTYPE_I32 int32_t
#define LG_CTYPE_U32 uint32_t
#define LG_CTYPE_U8 uint8_t
#define LG_CTYPE_STR lg_str
#define LG_CTYPE_STK lg_stk
#define LG_CTYPE_FRM lg_frm
#define LG_CTYPE_THR lg_thr
#define LG_CTYPE_PRC lg_prc
#define LG_CTYPE_TRK lg_trk

enum lg_table_id {
#define T(name, id, kind) LG_TABLE_##name = id,
	LG_TABLES(T)
#undef T
	LG_TABLE_MAX = 15
};

/* struct lg_<table>_row: one row, for appending and for tests. */
#define C(type, name, unit, doc) LG_CTYPE_##type name;
#define T(name, id, kind) struct lg_##name##_row { LG_COLS_##name(C) };
LG_TABLES(T)
#undef T
#undef C

/* struct lg_<table>_tab: the columns. `col` aliases the typed pointers in schema order. */
#define LG_COUNT_COL(type, name, unit, doc) +1
#define C(type, name, unit, doc) LG_CTYPE_##type *name;
#define T(tname, id, kind)                                                                         \
	struct lg_##tname##_tab {                                                                  \
		size_t n, cap;                                                                     \
		union {                                                                            \
			void *col[0 LG_COLS_##tname(LG_COUNT_COL)];                                \
			struct { LG_COLS_##tname(C) };                                             \
		};                                                                                 \
	};
LG_TABLES(T)
#undef T
#undef C

/* Any table seen generically: same layout as every struct lg_<table>_tab. */
struct lg_tab {
	size_t n, cap;
	void *col[];
};

struct lg_col_desc {
	const char *name, *unit, *doc;
	uint8_t type, size; /* enum lg_col_type, bytes */
	uint16_t row_offset; /* in struct lg_<table>_row */
};

struct lg_table_desc {
	const char *name;
	uint32_t id;
	uint8_t is_dict;
	uint8_t n_cols;
	uint32_t row_bytes;
	uint32_t trace_offset; /* of its lg_<table>_tab in struct lg_trace */
	const struct lg_col_desc *cols;
};

/* All tables in schema order; *ret_n their number. */
const struct lg_table_desc *lg_schema(size_t *ret_n);
/* By id; NULL when unknown. */
const struct lg_table_desc *lg_schema_table(uint32_t id);

enum lg_role { LG_ROLE_OTHER, LG_ROLE_RANK, LG_ROLE_JOB, LG_ROLE_LOADER, LG_ROLE_KERNEL, LG_ROLE_RECORDER };
enum { LG_THREAD_MAIN = 1, LG_THREAD_KERNEL = 2, LG_THREAD_IDLE = 4 };
enum lg_track_kind { LG_TRACK_OTHER, LG_TRACK_CPU, LG_TRACK_COUNTER, LG_TRACK_GPU, LG_TRACK_STREAM,
		     LG_TRACK_MEMORY /* a device's allocator: lives of allocations, which overlap */ };
enum lg_frame_kind { LG_FRAME_USER, LG_FRAME_KERNEL, LG_FRAME_PYTHON, LG_FRAME_INLINED };
enum lg_state_kind { LG_STATE_NONE, LG_RUNNING, LG_RUNNABLE, LG_BLOCKED };
enum lg_state_reason {
	LG_WHY_NONE,
	LG_WHY_PREEMPTED,  /* runnable: lost the CPU while able to run */
	LG_WHY_WOKEN,      /* runnable: woken, not yet on a CPU */
	LG_WHY_NEW,        /* runnable: just created */
	LG_WHY_SLEEP,      /* blocked: TASK_INTERRUPTIBLE */
	LG_WHY_DISK,       /* blocked: TASK_UNINTERRUPTIBLE */
	LG_WHY_IOWAIT,     /* blocked: uninterruptible, in_iowait set */
	LG_WHY_STOPPED,    /* blocked: job control */
	LG_WHY_TRACED,     /* blocked: by a tracer */
	LG_WHY_DEAD,       /* exited, not reaped */
	LG_WHY_PARKED,
	LG_WHY_IDLE        /* TASK_IDLE kernel threads */
};
enum lg_ctx { LG_CTX_UNKNOWN, LG_CTX_TASK, LG_CTX_SOFTIRQ, LG_CTX_HARDIRQ, LG_CTX_NMI };
enum {
	LG_STATE_SUMMED = 1,   /* stands for many slices below the recording threshold */
	LG_STATE_EDGE = 2,     /* start or end lies outside the trace */
	LG_STATE_NOHOLDER = 4,
	/* blocked, by the address that it slept on: it waited for its interpreter's lock (the GIL), which
	 * `blocker` had when that began; it had the lock itself */
	LG_STATE_GIL_WAIT = 8,
	LG_STATE_GIL_HELD = 16
};
enum {
	LG_SAMPLE_KERNEL = 1,
	LG_SAMPLE_IDLE = 2,
	LG_SAMPLE_TRACEPOINT = 4,
	LG_SAMPLE_OFFCPU = 8,
	LG_SAMPLE_GIL = 16,    /* it had its interpreter's lock (the GIL) then */
	LG_SAMPLE_NO_GIL = 32, /* it runs Python, and did not have it */
	/* not taken by a clock or a counter of the CPU */
	LG_SAMPLE_NO_CPU = LG_SAMPLE_TRACEPOINT | LG_SAMPLE_OFFCPU
};
enum lg_span_kind {
	LG_SPAN_OTHER,
	LG_SPAN_STEP,       /* marked by hand or by ProfilerStep */
	LG_SPAN_STAGE,
	LG_SPAN_OP,
	LG_SPAN_KERNEL,     /* GPU */
	LG_SPAN_COPY,
	LG_SPAN_COLLECTIVE,
	LG_SPAN_LOCK_WAIT,  /* kernel lock: contention_begin .. contention_end */
	LG_SPAN_LOCK_HOLD,
	LG_SPAN_IO,
	LG_SPAN_IRQ,
	LG_SPAN_GC,
	LG_SPAN_SYSCALL,
	LG_SPAN_FAULT,
	LG_SPAN_MEMORY,
	LG_SPAN_COMPILE,
	LG_SPAN_WAIT,       /* user space: Work.wait(), synchronize() */
	LG_SPAN_PYTHON,     /* a Python function's call */
	LG_SPAN_RUNTIME,    /* call of the GPU's runtime or driver library */
	LG_SPAN_NOTE,       /* an annotation that is none of the above */
	LG_SPAN_OVERHEAD    /* the measuring tool's own cost */
};
enum lg_stage {
	LG_STAGE_NONE, LG_STAGE_BATCH_WAIT, LG_STAGE_H2D, LG_STAGE_FORWARD, LG_STAGE_BACKWARD,
	LG_STAGE_GRAD_SYNC, LG_STAGE_OPTIMIZER, LG_STAGE_SIDE, LG_STAGE_OTHER, LG_STAGE_MAX
};
enum {
	LG_SPAN_READ = 1,     /* lock rows: taken or wanted for reading */
	LG_SPAN_WRITE = 2,
	LG_SPAN_SPIN = 4,
	LG_SPAN_MUTEX = 8,
	LG_SPAN_PERCPU = 16,
	LG_SPAN_RT = 32,
	LG_SPAN_FOREIGN = 64, /* hold: of a lock in another process's mm */
	LG_SPAN_MMAP_LOCK = 128, /* object is an mm_struct, not a lock address */
	LG_SPAN_ASYNC = 256,  /* collective: async_op */
	LG_SPAN_HAND = 512,   /* marked by the program's author */
	LG_SPAN_IMPLICIT = 1024, /* collective: seen from outside (DDP's reducer) */
	LG_SPAN_OWNER_READER = 2048 /* wait: the rwsem said its (last) owner was a reader */
};
enum lg_flow_kind { LG_FLOW_OTHER, LG_FLOW_WAKE, LG_FLOW_LOCK, LG_FLOW_LAUNCH, LG_FLOW_COLLECTIVE };

enum lg_diag_id {
#define D(name, id, severity, sentence) LG_DIAG_##name = id,
	LG_DIAGS(D)
#undef D
};
enum lg_diag_severity { LG_DIAG_INFO, LG_DIAG_LOSS, LG_DIAG_ERROR };
const char *lg_diag_sentence(uint32_t id); /* "unknown" sentence for unknown ids */
enum lg_diag_severity lg_diag_severity(uint32_t id);
/*
 * Counts of what is missing come from files and from rings that others write. More than LG_COUNT_MAX,
 * a million a second for thirty years, is none: it stays at that, on the way in and in sums, and is told
 * in words.
 */
#define LG_COUNT_MAX UINT64_C(1000000000000000)
static inline uint64_t lg_count_sum(uint64_t a, uint64_t b)
{
	return a >= LG_COUNT_MAX || b >= LG_COUNT_MAX - a ? LG_COUNT_MAX : a + b;
}
/* "17" or "an implausible number", in buf. */
const char *lg_count_text(uint64_t count, char *buf, size_t size);
const char *lg_stage_name(uint32_t stage); /* as in schema 1: "batch_wait" ... "other" */

struct lg_trace {
#define T(name, id, kind) struct lg_##name##_tab name;
	LG_TABLES(T)
#undef T
	/* String pool: string i is str_bytes[str_off[i] .. str_off[i+1]-1), NUL-terminated. */
	char *str_bytes;
	uint64_t *str_off;
	size_t n_str;
	int64_t first, last; /* ns: extent of all time tables; first > last when empty */
	int mutable_;        /* internal: 1 until sealed */
};

/* NUL-terminated, borrowed from the trace; "" for 0. */
static inline const char *lg_string(const struct lg_trace *t, lg_str s)
{
	return t->str_bytes + t->str_off[s];
}
static inline struct lg_tab *lg_trace_table(struct lg_trace *t, const struct lg_table_desc *d)
{
	return (struct lg_tab *)(void *)((char *)t + d->trace_offset);
}
static inline const struct lg_tab *lg_trace_table_const(const struct lg_trace *t,
							const struct lg_table_desc *d)
{
	return (const struct lg_tab *)(const void *)((const char *)t + d->trace_offset);
}
/* The last part of a path. */
static inline const char *lg_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}
/* Function and file of the innermost frame of a stack. */
static inline const char *lg_stack_name(const struct lg_trace *t, lg_stk s)
{
	return lg_string(t, t->frame.name[t->stack.frame[s]]);
}
static inline const char *lg_stack_file(const struct lg_trace *t, lg_stk s)
{
	return lg_string(t, t->frame.file[t->stack.frame[s]]);
}
/* Does CPython's own code lie in a file of this name: python3.11, libpython3.11.so.1.0? */
bool lg_is_python_file(const char *path);
/* Name of a frame for people: function, or dso+0xoffset. Writes into buf, returns it. */
const char *lg_frame_text(const struct lg_trace *t, lg_frm f, char *buf, size_t size);
/* "pid 12"; "pid unknown" where the source has none (negative). Writes into buf, returns it. */
enum { LG_PID_TEXT = 24 };
const char *lg_pid_text(int32_t pid, char buf[LG_PID_TEXT]);
/* End of a row whose dur may be -1 (cut off): then the trace's end. */
static inline int64_t lg_row_end(const struct lg_trace *t, int64_t ts, int64_t dur)
{
	return dur < 0 ? t->last : ts + dur;
}
static inline int64_t lg_span_end(const struct lg_trace *t, uint32_t row)
{
	return lg_row_end(t, t->span.ts[row], t->span.dur[row]);
}
static inline const char *lg_span_name(const struct lg_trace *t, size_t row)
{
	return lg_string(t, t->span.name[row]);
}
/* Does an importer say so of this input? */
static inline bool lg_has_diag(const struct lg_trace *t, uint32_t id)
{
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == id)
			return true;
	return false;
}

void lg_trace_free(struct lg_trace *t);

#endif /* LG_STORE_TRACE_H */
