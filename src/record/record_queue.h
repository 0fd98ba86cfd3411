/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_queue.h - records of all sources between the rings and their feed: puts them in order.
 *
 * push copies; a round hands out everything older than a cutoff in time order (equal times in
 * push order) and keeps the rest. Memory is bounded: over the bound records are dropped and
 * counted, never silently. Not thread-safe.
 */
#ifndef LG_RECORD_RECORD_QUEUE_H
#define LG_RECORD_RECORD_QUEUE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define LG_QUEUE_SOURCES 16

struct lg_queue;

/* What was dropped since the last call, for one source. */
struct lg_queue_loss {
	uint64_t full, late;   /* records: over the bound; older than what was already handed out */
	int64_t first, last;   /* their times; first > last when there are none */
};

int lg_queue_new(struct lg_queue **ret, size_t max_bytes, struct lg_error *err) LG_MUST_CHECK;
void lg_queue_free(struct lg_queue *q);
/* src < LG_QUEUE_SOURCES. late_ok: hand out even when newer ones were handed out already. */
void lg_queue_push(struct lg_queue *q, unsigned src, bool late_ok, int64_t ts, const void *rec,
		   size_t n);
/* Hand out records with ts < cutoff. The record is 8-byte aligned and lives for the call. */
void lg_queue_round(struct lg_queue *q, int64_t cutoff,
		    void (*feed)(void *arg, unsigned src, int64_t ts, const void *rec, size_t n),
		    void *arg);
size_t lg_queue_bytes(const struct lg_queue *q);
/* Return and forget the losses of src. */
struct lg_queue_loss lg_queue_losses(struct lg_queue *q, unsigned src);

#endif /* LG_RECORD_RECORD_QUEUE_H */
