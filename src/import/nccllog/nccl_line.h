/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_line.h - one line of NCCL_DEBUG output: "host:pid:tid [gpu] NCCL INFO ...", also when it is glued
 * behind other text. Used for pure NCCL logs and for job logs that hold such lines.
 */
#ifndef LG_IMPORT_NCCLLOG_NCCL_LINE_H
#define LG_IMPORT_NCCLLOG_NCCL_LINE_H
#include "base/map.h"
#include "store/builder.h"

enum lg_nccl_transport { LG_NCCL_P2P, LG_NCCL_SHM, LG_NCCL_NET, LG_NCCL_OTHER, LG_NCCL_TRANSPORTS };

struct lg_nccl_process {
	lg_prc prc;
	int32_t pid, rank, world; /* rank -2 = several in one process */
	uint64_t lines, warnings, collectives, via[LG_NCCL_TRANSPORTS];
	int gdr_on, gdr_off;
};

struct lg_nccl_log {
	struct lg_builder *b;
	struct lg_map by_pid;
	struct lg_map seen; /* facts that were told already: many threads repeat them */
	struct lg_nccl_process *p;
	size_t n, cap;
	uint64_t lines, results;
	lg_str host;
};

/* 1 = the text holds a line of NCCL's (or a result of nccl-tests). ts: for its marks. */
int lg_nccl_take(struct lg_nccl_log *l, const char *text, int64_t ts);
/* Add what was counted. */
void lg_nccl_finish(struct lg_nccl_log *l);
void lg_nccl_done(struct lg_nccl_log *l);

#endif /* LG_IMPORT_NCCLLOG_NCCL_LINE_H */
