/* SPDX-License-Identifier: Apache-2.0 */
/* duration.h - lengths of time as people write them. */
#ifndef LG_BASE_DURATION_H
#define LG_BASE_DURATION_H
#include <stdint.h>

/* "2.5s" "500ms" "1m" "7d" "3" (seconds) to ns; <0 when it is none of these. */
int64_t lg_parse_duration(const char *s);

/* Of ns. */
#define lg_ms(ns) ((double)(ns) / 1e6)
#define lg_seconds(ns) ((double)(ns) / 1e9)

#endif /* LG_BASE_DURATION_H */
