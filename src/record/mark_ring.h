/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark_ring.h - read one mark ring (include/laggard/mark.h) while its process writes it.
 *
 * The file belongs to the training process: everything in it is checked and nothing is believed.
 * It is read with pread(), not mapped: a writer that truncates its file would otherwise kill the
 * recorder with SIGBUS, and page faults on its pages would be ours.
 */
#ifndef LG_RECORD_MARK_RING_H
#define LG_RECORD_MARK_RING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAGGARD_MARK_FORMAT_ONLY
#include "base/error.h"
#include "laggard/mark.h"

struct lg_mark_slot {
	uint64_t head;
	int64_t ts;
	uint64_t what;
	uint64_t names; /* name | group << 32 */
	int64_t seq;
	uint64_t bytes, token, tail;
};

struct lg_mark_ring {
	int fd;               /* not owned */
	bool delayed;         /* weakly ordered CPU: take what was complete one read ago */
	uint64_t slots, slots_off, names_off, names_cap;
	uint64_t pos;         /* index of the next slot wanted */
	uint64_t settled;     /* delayed: slots below this index were complete at the last read */
	unsigned stuck;       /* reads that found pos unwritten and a later slot written */
	int64_t header[LAG_MARK_H_WORDS]; /* as of the last lg_mark_ring_header() */
};

/* Check the header. LG_E_FORMAT, LG_E_UNSUPPORTED, LG_E_LIMIT, LG_E_IO. */
int lg_mark_ring_init(struct lg_mark_ring *r, int fd, struct lg_error *err) LG_MUST_CHECK;
/*
 * Copy up to max slots in order; returns how many. *ret_lost: slots passed over since the last
 * call because they were overwritten or never completed; they lie before the slots returned.
 * final: the writer is gone, nothing will be completed any more.
 */
size_t lg_mark_ring_read(struct lg_mark_ring *r, struct lg_mark_slot *ret, size_t max, bool final,
			 uint64_t *ret_lost);
/* Read the header's changing words again; true when role, rank, world or flags changed. */
bool lg_mark_ring_header(struct lg_mark_ring *r);
/* Bytes of a name, not terminated; 0 when there is none. size >= 4096 fits every name. */
size_t lg_mark_ring_name(const struct lg_mark_ring *r, uint32_t id, char *buf, size_t size);

#endif /* LG_RECORD_MARK_RING_H */
