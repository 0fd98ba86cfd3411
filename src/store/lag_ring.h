/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_ring.h - the last part of a recording, as compressed chunks in memory (record --ring DUR).
 *
 * Chunks of state, sample, span, counter, flow and mark are dropped once they end more than
 * keep_ns before the newest time seen, or when all chunks together exceed max_bytes. Strings,
 * dictionaries, meta, clock and diag rows are kept, since later rows refer to them. A dump is
 * an ordinary .lag file with a RING_DROPPED row where something was dropped; recording may go on
 * and dump again. One thread.
 */
#ifndef LG_STORE_LAG_RING_H
#define LG_STORE_LAG_RING_H
#include "store/builder.h"

struct lg_ring;

/* max_bytes 0 = 256 MiB of compressed chunks. */
int lg_ring_new(struct lg_ring **ret, int64_t keep_ns, size_t max_bytes,
		struct lg_error *err) LG_MUST_CHECK;
extern const struct lg_sink lg_ring_sink; /* self = struct lg_ring * */
/*
 * As base/place.h says: a failed dump leaves an older one untouched. On a full disk the oldest rows
 * are left out until the rest fits: the file is whole, says so in a RING_DROPPED row, and LG_E_IO
 * comes back with a line that says it too. The ring keeps everything, so a later dump may do better.
 *
 * since: what ended before is not needed, and left out; INT64_MIN = everything that is held.
 */
int lg_ring_dump(struct lg_ring *r, const char *path, int64_t since, struct lg_error *err) LG_MUST_CHECK;
size_t lg_ring_bytes(const struct lg_ring *r);     /* held now */
uint64_t lg_ring_dropped(const struct lg_ring *r); /* rows dropped so far */
void lg_ring_free(struct lg_ring *r);

#endif /* LG_STORE_LAG_RING_H */
