/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_memory.h - how much memory the job's processes and its groups hold, as counter rows.
 *
 *   process.rss                  bytes of the track's process in memory (VmRSS)
 *   process.anon                 of it what no file stands behind, and what of that is swapped out: RssAnon,
 *                                RssShmem, VmSwap; pages that a fork shares count in both processes
 *   cgroup.memory GROUP          bytes in use that cannot be dropped (memory_watch.h); a group with a limit
 *   cgroup.memory_limit GROUP    bytes it may have
 *   cgroup.oom_kills GROUP       processes that the kernel killed because the group was full, ever
 *
 * A process is read in /proc/PID/status, which takes no lock of its memory. What it shares with others (PSS)
 * stands only in smaps_rollup, whose reader holds that lock for as long as a walk of the page tables takes:
 * it is never read here. Loader workers read their own (hook/laggard/_memory.py).
 */
#ifndef LG_RECORD_HOST_MEMORY_H
#define LG_RECORD_HOST_MEMORY_H
#include "record/lives.h"

struct lg_host_memory;

int lg_host_memory_new(struct lg_host_memory **ret, struct lg_builder *b, struct lg_lives *lives,
		       struct lg_error *err) LG_MUST_CHECK;
void lg_host_memory_free(struct lg_host_memory *h);
/* About once a second; of more processes than it reads at once, each the less often. */
void lg_host_memory_read(struct lg_host_memory *h, int64_t now);
/* At the end: who was killed is told by groups that nobody of the job is left in. */
void lg_host_memory_last(struct lg_host_memory *h, int64_t now);

struct lg_process_memory {
	uint64_t rss, anon; /* bytes */
};
/* The text of /proc/PID/status; false: it tells no memory (a kernel thread, a process that has ended). */
bool lg_host_memory_parse(const char *status, struct lg_process_memory *ret);

#endif /* LG_RECORD_HOST_MEMORY_H */
