/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jitdump.h - jit-PID.dump, in which a JIT notes when which code lay where.
 *
 * Format: tools/perf/Documentation/jitdump-specification.txt. Unlike a perf map it knows time: an
 * address that was used again names the function of the moment. Names are borrowed from the table.
 */
#ifndef LG_SYMBOLS_JITDUMP_H
#define LG_SYMBOLS_JITDUMP_H
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_jitdump;

/* fd stays the caller's. A file that is cut off is read up to there. */
int lg_jitdump_open(struct lg_jitdump **ret, int fd, struct lg_error *err) LG_MUST_CHECK;
void lg_jitdump_free(struct lg_jitdump *j);
size_t lg_jitdump_count(const struct lg_jitdump *j);
/* What lay at addr at ts (the dump's clock, CLOCK_MONOTONIC as a rule); NULL = nothing. */
const char *lg_jitdump_find(const struct lg_jitdump *j, uint64_t addr, uint64_t ts,
			    uint64_t *ret_start);
/* The first moment after ts at which an address gets another function; UINT64_MAX = never. */
uint64_t lg_jitdump_next_reuse(const struct lg_jitdump *j, uint64_t ts);

#endif /* LG_SYMBOLS_JITDUMP_H */
