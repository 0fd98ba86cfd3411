/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsys.h - the SQLite export of Nsight Systems (nsys export -t sqlite), all schema generations.
 *
 * Rows follow the conventions of kineto/kineto.h, so that analyses cannot tell the two apart:
 *   GPU track "GPU N" > stream track "stream S" (owner in prc); on it KERNEL (COLLECTIVE for NCCL and
 *   RCCL kernels), COPY (names as Kineto's: "Memcpy HtoD (Pageable -> Device)", "Memset (Device)"),
 *   WAIT (synchronisation records; LG_SPAN_ASYNC for stream-wait-event), seq = correlation, peer = the
 *   launching thread, a LG_FLOW_LAUNCH flow each; args grid= block= regs= smem= graph=.
 *   Thread spans: RUNTIME and WAIT (CUDA API, seq = correlation), NVTX ranges as STEP ("step 7",
 *   "ProfilerStep#7", "iteration 7"), STAGE, OP ("aten::mm"), COLLECTIVE ("ncclAllReduce"), else NOTE;
 *   SYSCALL for traced operating system calls (OSRT_API).
 *   States RUNNING from SCHED_EVENTS (why a thread did not run is not in the file), samples from
 *   COMPOSITE_EVENTS, counters from GPU_METRICS, marks "nsys.diagnostic" and "nvtx.mark".
 * Times: the session's start (UTC) where the file has it, else relative.
 */
#ifndef LG_IMPORT_NSYS_NSYS_H
#define LG_IMPORT_NSYS_NSYS_H
#include <sqlite3.h>

#include "base/map.h"
#include "import/import.h"

extern const struct lg_importer lg_import_nsys;

enum { LG_NSYS_COLS = 24 };

/* A table of the export being read; columns that this generation lacks read as null. */
struct lg_nsys_cursor {
	sqlite3_stmt *stmt;
	int col[LG_NSYS_COLS]; /* of the names asked for; -1 = not there */
};

/* A CUDA API call that GPU rows may name. */
struct lg_nsys_call {
	lg_thr thr;
	int64_t ts;
};

struct lg_nsys {
	sqlite3 *db;
	struct lg_builder *b;
	int64_t base;          /* added to every time */
	struct lg_map string;  /* StringIds.id + 1 -> lg_str */
	struct lg_map thread;  /* hash of globalTid -> lg_thr */
	struct lg_map call_of; /* (pid, correlation) -> index + 1 in call; pid 0 = any */
	struct lg_nsys_call *call;
	size_t n_call, cap_call;
	uint64_t rows, odd, orphans, gpu_rows;
	int64_t first, last;
	int damaged; /* a table could not be read to its end */
	uint64_t bytes, steps, text; /* the database's; of SQLite's machine, / 1000; of text handed out */
};

/* 1 = open; 0 = the export has no such table. cols: names, at most LG_NSYS_COLS. order may be NULL. */
int lg_nsys_open(struct lg_nsys *n, struct lg_nsys_cursor *c, const char *table,
		 const char *const *cols, size_t n_cols, const char *order);
/* 1 = a row, 0 = the end; then the cursor is closed. */
int lg_nsys_next(struct lg_nsys *n, struct lg_nsys_cursor *c);
int64_t lg_nsys_int(const struct lg_nsys_cursor *c, int col, int64_t otherwise);
double lg_nsys_real(const struct lg_nsys_cursor *c, int col);
const char *lg_nsys_text(struct lg_nsys *n, const struct lg_nsys_cursor *c, int col); /* "" for null */
lg_str lg_nsys_string(struct lg_nsys *n, int64_t id);
int lg_nsys_is_null(const struct lg_nsys_cursor *c, int col);
lg_thr lg_nsys_thread(struct lg_nsys *n, int64_t global_tid);
lg_prc lg_nsys_process(struct lg_nsys *n, int64_t global_pid);
/* Start and end onto the trace's clock; 0 when they make no sense (the row is counted as odd). */
int lg_nsys_times(struct lg_nsys *n, int64_t start, int64_t end, int64_t *ret_ts, int64_t *ret_dur);

void lg_nsys_read_gpu(struct lg_nsys *n);  /* nsys_gpu.c */
void lg_nsys_read_host(struct lg_nsys *n); /* nsys_host.c */

#endif /* LG_IMPORT_NSYS_NSYS_H */
