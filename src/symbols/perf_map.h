/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_map.h - /tmp/perf-PID.map, in which a JIT names the code it made.
 *
 * Lines "START SIZE name" in hex (tools/perf/Documentation/jit-interface.txt). Where ranges
 * overlap the later line is the later code. Names are borrowed from the table.
 */
#ifndef LG_SYMBOLS_PERF_MAP_H
#define LG_SYMBOLS_PERF_MAP_H
#include <stdint.h>

#include "base/error.h"

struct lg_perf_map;

int lg_perf_map_open(struct lg_perf_map **ret, int fd, struct lg_error *err) LG_MUST_CHECK;
void lg_perf_map_free(struct lg_perf_map *m);
const char *lg_perf_map_find(const struct lg_perf_map *m, uint64_t addr);

#endif /* LG_SYMBOLS_PERF_MAP_H */
