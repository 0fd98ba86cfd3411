/* SPDX-License-Identifier: Apache-2.0 */
/* asleep.h - for how long a thread has slept that has not run since the recording began. */
#ifndef LG_RECORD_ASLEEP_H
#define LG_RECORD_ASLEEP_H
#include <stdbool.h>
#include <stdint.h>

/* ns of se.exec_start in the text of /proc/PID/task/TID/sched (kernel/sched/debug.c); -1 = not there. */
int64_t lg_exec_start(const char *sched);
/*
 * By how much the clocks of two CPUs by which it is told may differ: a run queue's stands still while
 * interrupts or the hypervisor have the CPU (kernel/sched/core.c, update_rq_clock_task()), which /proc/stat
 * counts. ns.
 */
int64_t lg_rq_clock_skew(const char *stat, int64_t ns_per_tick);
/* At least so many ns, told by the clock of the CPU on which it ran last where the clocks are far apart (the
 * caller runs there for a moment); 0 = not known: the kernel was built without CONFIG_SCHED_DEBUG, or the
 * thread is gone. */
int64_t lg_asleep_ns(int32_t pid, int32_t tid);
/*
 * Does it sleep in a system call that ends by itself, by the text of /proc/PID/task/TID/syscall (proc(5))?
 * Who asks or tries again now and then sleeps like this. How long it lasts may lie in its memory: not read.
 */
bool lg_sleep_is_timed(const char *syscall);
bool lg_asleep_timed(int32_t pid, int32_t tid);

#endif /* LG_RECORD_ASLEEP_H */
