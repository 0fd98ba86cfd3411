/* SPDX-License-Identifier: Apache-2.0 */
/* perf_syscalls.h - names for the numbers of raw_syscalls tracepoints. */
#ifndef LG_IMPORT_PERFDATA_PERF_SYSCALLS_H
#define LG_IMPORT_PERFDATA_PERF_SYSCALLS_H
#include <stdbool.h>
#include <stdint.h>

/* arch: as uname -m says it; is_32: of a 32-bit program there. NULL where machine or number are not known. */
const char *lg_pd_syscall_name(const char *arch, bool is_32, uint64_t nr);

#endif /* LG_IMPORT_PERFDATA_PERF_SYSCALLS_H */
