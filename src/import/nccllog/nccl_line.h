/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_line.h - one line of NCCL_DEBUG output: "host:pid:tid [gpu] NCCL INFO ...", also when it is glued
 * behind other text. Used for pure NCCL logs and for job logs that hold such lines.
 *
 * A process is a pid of a host: two hosts of one log may have the same pid.
 */
#ifndef LG_IMPORT_NCCLLOG_NCCL_LINE_H
#define LG_IMPORT_NCCLLOG_NCCL_LINE_H
#include "base/map.h"
#include "store/builder.h"

enum lg_nccl_transport { LG_NCCL_P2P, LG_NCCL_SHM, LG_NCCL_NET, LG_NCCL_OTHER, LG_NCCL_TRANSPORTS };
enum { LG_NCCL_HOST_BYTES = 65, LG_NCCL_ROW_BYTES = 256 };

struct lg_nccl_process {
	lg_prc prc;
	lg_thr thr;
	lg_str host, net;         /* net: the last one that it said it uses */
	int32_t pid, rank, world; /* rank -2 = several in one process */
	uint32_t same_pid;        /* index + 1 of another process with this pid, of another host; 0 = none */
	uint64_t lines, warnings, collectives, via[LG_NCCL_TRANSPORTS];
	int gdr_on, gdr_off, notes;
	int32_t nodes;            /* hosts of its largest communicator; 0 = not told */
	uint32_t life, comms;     /* of a pid that came back; communicators of this life */
};

struct lg_nccl_pending;
struct lg_nccl_link;

struct lg_nccl_log {
	struct lg_builder *b;
	struct lg_map by_name; /* host and pid -> index + 1 */
	struct lg_map by_pid;  /* pid -> index + 1 of the newest with it */
	struct lg_map seen;    /* facts that were told already: many threads repeat them */
	struct lg_nccl_process *p;
	size_t n, cap;
	uint64_t lines, results, torn, left_out;
	lg_str host;
	/* nccl_comm.c: communicators being set up, by process and thread; those that live; how often */
	struct lg_map by_thread, alive, times;
	struct lg_nccl_pending *pending;
	size_t n_pending, cap_pending;
	/* nccl_link.c: kinds of connection by process and pair of devices */
	struct lg_map by_link;
	struct lg_nccl_link *link;
	size_t n_link, cap_link;
	/* nccl_tests.c: the test whose results follow */
	struct {
		char name[40], piece[LG_NCCL_ROW_BYTES]; /* piece: the beginning of a row */
		uint64_t where; /* hosts and devices; 0 = not told */
		uint32_t ranks, process; /* process: index + 1 of rank 0's */
	} test;
};

/* 1 = the text holds a line of NCCL's (or a result of nccl-tests). ts: for its marks. */
int lg_nccl_take(struct lg_nccl_log *l, const char *text, int64_t ts);
/* Add what was counted. */
void lg_nccl_finish(struct lg_nccl_log *l);
void lg_nccl_done(struct lg_nccl_log *l);

#endif /* LG_IMPORT_NCCLLOG_NCCL_LINE_H */
