/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_ring.h - perf events on every CPU, one memory-mapped ring a CPU.
 *
 * All events of a set share their CPU's ring and carry PERF_SAMPLE_IDENTIFIER, TID, TIME and
 * CPU, also in records that are not samples (sample_id_all), on CLOCK_MONOTONIC: so every
 * record can be put on the timeline whatever it is. CPUs that come online later get their
 * events at the next drain; those that go are drained once more. One thread.
 */
#ifndef LG_RECORD_PERF_RING_H
#define LG_RECORD_PERF_RING_H
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct lg_perf_set;

/* What every record of a set begins (samples) or ends (all others) with. */
struct lg_perf_head {
	int64_t ts;
	int32_t pid, tid, cpu; /* -1 = the kernel did not say */
	uint32_t event;        /* number given by lg_perf_set_add(); UINT32_MAX = unknown */
	const uint8_t *body;   /* samples: what follows the head; others: after perf_event_header */
	size_t n_body;         /* without head or trailer */
};

/* ring_bytes a CPU, rounded to a power of two; pid -1 = everybody, else only that process tree. */
int lg_perf_set_new(struct lg_perf_set **ret, size_t ring_bytes, pid_t pid,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_perf_set_free(struct lg_perf_set *s);
/*
 * Open one event on all CPUs, disabled. attr's size, clock, identifiers and watermark are filled
 * in. filter: tracepoint filter or NULL. *ret_event numbers the events of the set from 0.
 */
int lg_perf_set_add(struct lg_perf_set *s, const struct perf_event_attr *attr, const char *filter,
		    const char *what, uint32_t *ret_event, struct lg_error *err) LG_MUST_CHECK;
int lg_perf_set_enable(struct lg_perf_set *s, struct lg_error *err) LG_MUST_CHECK;
void lg_perf_set_disable(struct lg_perf_set *s);
/* A BPF program that runs at each overflow of events that sample; to be set before they are added. */
void lg_perf_set_program(struct lg_perf_set *s, int prog_fd);
bool lg_perf_set_program_refused(const struct lg_perf_set *s);
/* File descriptors to poll: the i-th CPU's, -1 at the end. */
int lg_perf_set_fd(const struct lg_perf_set *s, size_t i);

typedef void lg_perf_record_fn(void *arg, int cpu, const struct perf_event_header *h);
/* Hand over every whole record in the rings; each is contiguous and valid during the call. */
int lg_perf_set_drain(struct lg_perf_set *s, lg_perf_record_fn *fn, void *arg,
		      struct lg_error *err) LG_MUST_CHECK;
/* CPUs that came online since the last call get their events. At most once a second is enough. */
int lg_perf_set_rescan(struct lg_perf_set *s, struct lg_error *err) LG_MUST_CHECK;

/* Split a record of a set. False where it is too short to be one. */
bool lg_perf_head(const struct lg_perf_set *s, const struct perf_event_header *h, size_t n,
		  struct lg_perf_head *ret);

/* A callchain at p: kernel and user part. False when it does not fit into n bytes. */
struct lg_perf_chain {
	const uint64_t *kernel, *user;
	size_t n_kernel, n_user;
	size_t bytes; /* of the whole field */
};
bool lg_perf_chain(const uint8_t *p, size_t n, struct lg_perf_chain *ret);

#endif /* LG_RECORD_PERF_RING_H */
