/* SPDX-License-Identifier: Apache-2.0 */
/* perf_syscalls.h - names for the numbers of raw_syscalls tracepoints. */
#ifndef LG_IMPORT_PERFDATA_PERF_SYSCALLS_H
#define LG_IMPORT_PERFDATA_PERF_SYSCALLS_H
#include <stdint.h>

/* arch: as uname -m says it. NULL where machine or number are not known. */
const char *lg_pd_syscall_name(const char *arch, uint64_t nr);

#endif /* LG_IMPORT_PERFDATA_PERF_SYSCALLS_H */
