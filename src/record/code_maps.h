/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_maps.h - which code lies where: the address spaces of all processes and the kernel.
 *
 * The calls of sources and of the session are in session.h (lg_addrs_*, lg_session_stack(),
 * lg_session_map()); here is what only this recorder's own files and tests use.
 */
#ifndef LG_RECORD_CODE_MAPS_H
#define LG_RECORD_CODE_MAPS_H
#include "record/session.h"

/* Kernel code that came (len > 0) or went (len 0) at run time: BPF programs, trampolines. */
void lg_addrs_ksymbol(struct lg_addrs *a, uint64_t addr, uint64_t len, const char *name);
/*
 * Read /proc/PID/maps now instead of at the first user frame. Each read takes the target's
 * mmap_lock for reading (before Linux 6.17, where per-VMA locks do): a source calls it for the
 * job's processes before they are busy, never in a loop.
 */
void lg_addrs_read_now(struct lg_addrs *a, int32_t pid);
/* As lg_session_stack(), which only looks the object up. */
lg_stk lg_addrs_stack(struct lg_addrs *a, const struct lg_addresses *of);
void lg_addrs_map(struct lg_addrs *a, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		  uint64_t inode, const char *name);

#endif /* LG_RECORD_CODE_MAPS_H */
