/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_parts.h - what the files that read NCCL's lines share. */
#ifndef LG_IMPORT_NCCLLOG_NCCL_PARTS_H
#define LG_IMPORT_NCCLLOG_NCCL_PARTS_H
#include "import/nccllog/nccl_line.h"

struct lg_nccl_line {
	char host[LG_NCCL_HOST_BYTES];
	int pid, tid, gpu;
	int warn, glued; /* glued: text that may be another line's is before it */
	const char *name, *msg; /* in the text */
};

/* ---- nccl_line.c ---- */
/* The process of that host; NULL without memory. */
struct lg_nccl_process *lg_nccl_process_of(struct lg_nccl_log *l, const char *host, int32_t pid);
/* A fact once for each process. */
void lg_nccl_fact(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *key, const char *value,
		  size_t n);
void lg_nccl_factf(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *key, const char *fmt,
		   ...)
	LG_PRINTF(4, 5);
/* The number behind word; false where there is none. */
int lg_nccl_number(const char *m, const char *word, long *ret);
void lg_nccl_mark(struct lg_nccl_log *l, lg_thr thr, const char *name, int64_t value, const char *text,
		  int64_t ts);

/* ---- nccl_comm.c: how communicators are set up ---- */
/* 1 = the line is about that. */
int lg_nccl_comm(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct lg_nccl_line *line,
		 int64_t ts);
/* Those whose end the log does not have. */
void lg_nccl_comm_finish(struct lg_nccl_log *l);

/* ---- nccl_link.c: connections, adapters, and what happens to them ---- */
int lg_nccl_link(struct lg_nccl_log *l, struct lg_nccl_process *p, const char *m);
void lg_nccl_link_event(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *m, int64_t ts);
void lg_nccl_link_finish(struct lg_nccl_log *l);

/* ---- nccl_tests.c ---- */
int lg_nccl_test(struct lg_nccl_log *l, const char *text, int64_t ts);
/* Text that a line of NCCL's broke off. */
void lg_nccl_test_piece(struct lg_nccl_log *l, const char *text, size_t n);

#endif /* LG_IMPORT_NCCLLOG_NCCL_PARTS_H */
