/* SPDX-License-Identifier: Apache-2.0 */
/* host_memory.h - what the memory of the host says (record/host_memory.h has the counters). */
#ifndef LG_ANALYSE_HOST_HOST_MEMORY_H
#define LG_ANALYSE_HOST_HOST_MEMORY_H
#include "analyse/case.h"

/* host_kills.c: processes that the kernel killed because their cgroup was full. */
void lg_find_host_kills(struct lg_case *c);

#endif /* LG_ANALYSE_HOST_HOST_MEMORY_H */
