/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.h - read /proc carefully: few calls, bounded buffers, every field checked.
 *
 * cmdline and environ take the target's mmap_lock for reading for as long as a small copy takes
 * (fs/proc/base.c, access_remote_vm): they are read once per process life or exec, never in
 * a loop. smaps, smaps_rollup, numa_maps and pagemap are never read: they hold that lock for as
 * long as a walk of the page tables takes, which is the very disease laggard looks for.
 */
#ifndef LG_RECORD_PROCFS_H
#define LG_RECORD_PROCFS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define LG_PROC_COMM 64 /* kernel workers have names longer than TASK_COMM_LEN */

struct lg_proc_stat {
	char comm[LG_PROC_COMM], state;
	int32_t pid, ppid, cpu;
	uint32_t flags, n_threads; /* flags: PF_* of include/linux/sched.h */
	uint64_t utime, stime, start; /* clock ticks; start since boot */
};
#define LG_PF_KTHREAD 0x00200000u

/* Whose variable the rank came from; a stronger one wins (torchrun under srun). */
enum lg_rank_kind { LG_RANK_NONE, LG_RANK_SLURM, LG_RANK_MPI, LG_RANK_TORCH, LG_RANK_TOLD };

struct lg_proc_rank {
	int32_t rank, world, local_rank; /* -1, 0, -1 = unknown */
	enum lg_rank_kind kind;
};

struct lg_proc_status {
	uint32_t uid;
	int32_t ns_pid; /* 0 = same as outside */
};

/* The whole of a small file, NUL-terminated; bytes read, or -errno. Longer files are cut. */
ssize_t lg_proc_read(const char *path, char *buf, size_t size);

/* The same of a file that is the system's own and read again and again: it stays open, in *held (0 = not yet;
 * a descriptor + 1), until lg_proc_let_go(). */
ssize_t lg_proc_read_held(int *held, const char *path, char *buf, size_t size);
void lg_proc_let_go(int *held);
/*
 * Several files of a process in one question, which costs more than what is read. Each text, with a zero
 * behind it, lies in buf; n: its bytes, or -errno.
 */
struct lg_proc_text {
	const char *name;
	size_t size; /* of it with its zero, at most; room for all, and 16 bytes for each, is in buf */
	char *text;
	ssize_t n;
};
enum { LG_PROC_TEXTS = 4 };
void lg_proc_texts(int32_t pid, struct lg_proc_text *v, size_t n_v, char *buf, size_t room);
/* tid 0 = the process. 0, or LG_E_NOTFOUND (gone) / LG_E_FORMAT / LG_E_IO (no answer: base/patient.h). */
int lg_proc_stat(int32_t pid, int32_t tid, struct lg_proc_stat *ret);
/* The same of many processes, asked together; rc[i] is of pid[i]. */
enum { LG_PROC_STATS = 64 }; /* at most */
void lg_proc_stats(const int32_t *pid, size_t n, struct lg_proc_stat *ret, int *rc);
int lg_proc_parse_stat(const char *text, size_t n, struct lg_proc_stat *ret);
void lg_proc_parse_status(const char *text, struct lg_proc_status *ret);
/* Arguments joined by spaces, control characters as '?'. buf is changed in place; returns n. */
size_t lg_proc_join_cmdline(char *buf, size_t n);
/*
 * The rank in the environment of a process, and through `keep` every variable of the closed list
 * that says which job it belongs to. Nothing else of an environment is ever kept.
 */
void lg_proc_parse_environ(const char *text, size_t n, struct lg_proc_rank *ret,
			   void (*keep)(void *arg, const char *key, const char *value), void *arg);
bool lg_environ_has(const char *text, size_t n, const char *key_value);
/* UID + 1 where LAGGARD_MARKS is /dev/shm/laggard-UID/kept, as `laggard env` says it; 0 = it is not. */
uint32_t lg_proc_kept_marks(const char *text, size_t n);
/* Short identity of the container, pod or batch step in the text of /proc/PID/cgroup; "" = none. */
void lg_proc_container(const char *text, char *buf, size_t size);
/* Path of the group in controller (v1) or in the unified hierarchy (NULL): "" = none. */
void lg_proc_cgroup_path(const char *text, const char *controller, char *buf, size_t size);
/* Call f for every numeric entry of a directory such as /proc or /proc/PID/task. */
int lg_proc_each(const char *dir, void (*f)(void *arg, int32_t id), void *arg);
/* Offset to add to a start time in ticks to get CLOCK_MONOTONIC ns. */
int64_t lg_proc_ticks_to_monotonic(uint64_t ticks);

#endif /* LG_RECORD_PROCFS_H */
