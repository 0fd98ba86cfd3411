/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_order.h - puts records into time order with bounded memory.
 *
 * perf writes the buffers of all CPUs in turn and ends each turn with FINISHED_ROUND: a record
 * of round N is never older than the newest one of round N-2 (tools/perf/util/session.c,
 * process_finished_round), so at the end of a round everything up to the newest time of the
 * round before is final. Files without rounds, or with rounds of absurd size, are ordered within
 * a window of bytes instead.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_ORDER_H
#define LG_IMPORT_PERFDATA_PERF_ORDER_H
#include "import/perfdata/perf_stream.h"

/* What a sample is known by, found when its bytes had just been read: by the time that its turn has come
 * they are far from the CPU. */
struct lg_pd_look {
	uint64_t tag, period;  /* tag, place: its chain by the memo */
	uint32_t place;
	int32_t pid, tid, cpu;
	uint32_t plain;        /* its event + 1, where a sample is nothing but fixed fields and a chain;
				* 0 = it is not, or damaged, or no sample */
	uint32_t events;       /* how many were known */
	uint16_t chain_at, n;  /* bytes from the record on, addresses; n = 0: no chain */
	uint16_t misc;
	uint8_t begins;        /* the chain's first code, by the memo */
	bool sample;           /* all else is 0 where it is false */
};

struct lg_pd_entry {
	uint64_t ts;
	const uint8_t *rec;
	struct lg_pd_block *block;
	uint64_t offset;
	struct lg_pd_look look;
};

struct lg_pd_order {
	struct lg_pd_pool *pool;
	struct lg_pd_entry *entry;
	size_t n, cap;
	struct lg_pd_run *run;   /* while handing out: perf_order.c */
	struct lg_pd_head *heap;
	size_t n_run, run_cap, n_heap, heap_cap;
	size_t bytes;            /* of the records that wait */
	size_t window;           /* most bytes that wait without a round's end */
	uint64_t newest, final;  /* of all so far; up to which the next round's end delivers */
	uint64_t delivered;      /* newest time handed out */
	uint64_t late;           /* records that came after younger ones had been handed out */
	int (*deliver)(void *self, const struct lg_pd_entry *e);
	void *self;
};

/* Slow path of lg_pd_order_room(). */
struct lg_pd_entry *lg_pd_order_grow(struct lg_pd_order *o);
/* Where the next record's entry is to be written, so that it need not be copied; it is nobody's until
 * lg_pd_order_add(). NULL when memory is exhausted. */
static inline struct lg_pd_entry *lg_pd_order_room(struct lg_pd_order *o)
{
	return __builtin_expect(o->n < o->cap, 1) ? &o->entry[o->n] : lg_pd_order_grow(o);
}
/* What was written there; takes a hold on its block. size: of the record. */
int lg_pd_order_add(struct lg_pd_order *o, uint16_t size) LG_MUST_CHECK;
/* The record that was added last; NULL when none waits. */
static inline const struct lg_pd_entry *lg_pd_order_last(const struct lg_pd_order *o)
{
	return o->n ? &o->entry[o->n - 1] : NULL;
}
/* It is not to be handed out. */
void lg_pd_order_take_back(struct lg_pd_order *o, uint16_t size);
int lg_pd_order_round(struct lg_pd_order *o) LG_MUST_CHECK;
/* Nothing older than limit comes any more. */
int lg_pd_order_until(struct lg_pd_order *o, uint64_t limit) LG_MUST_CHECK;
/* Everything that still waits. */
int lg_pd_order_flush(struct lg_pd_order *o) LG_MUST_CHECK;
void lg_pd_order_done(struct lg_pd_order *o);

#endif /* LG_IMPORT_PERFDATA_PERF_ORDER_H */
