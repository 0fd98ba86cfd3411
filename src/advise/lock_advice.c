/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_advice.c - host.lock_held, by kind of lock and what the holder was doing.
 *
 * Function names choose only the wording here; who is accused was settled by the wait chain.
 * Kernel functions: fs/proc/task_mmu.c (smaps, maps), mm/memory.c (__access_remote_vm),
 * mm/process_vm_access.c, mm/khugepaged.c, mm/mmap.c.
 */
#include <stdbool.h>
#include <string.h>

#include "advise/advise.h"

/* Is one of the words part of the holder's function or of a frame of its stack? */
static bool did(const struct lg_finding *f, const char *const *words)
{
	for (; *words; words++) {
		if (f->culprit.function && strstr(f->culprit.function, *words))
			return true;
		for (size_t i = 0; i < f->culprit.n_stack; i++)
			if (f->culprit.stack[i] && strstr(f->culprit.stack[i], *words))
				return true;
	}
	return false;
}

static const char *const smaps_words[] = { "smap", "show_map", "proc_pid_maps", "m_next",
					   "m_start", "pagemap", "numa_map", NULL };
static const char *const remote_words[] = { "process_vm_", "access_remote_vm", "ptrace", "mem_rw",
					    "environ_read", "get_cmdline", "get_mm_cmdline",
					    "proc_pid_cmdline", NULL };
static const char *const huge_words[] = { "khugepaged", "collapse_", "ksm", "ksmd", "compact", NULL };

static const struct lg_advice reader = {
	.fix = "Stop that reader from walking the trainer's page tables: switch its per-process "
	       "memory metric from /proc/PID/smaps, smaps_rollup or maps (PSS, USS) to "
	       "/proc/PID/statm or status (RSS), or to the cgroup's memory.current and memory.stat, "
	       "which take no mmap_lock; where PSS is needed, read it every few minutes instead. In "
	       "the trainer: back large memory with huge pages (a walk visits 512 times fewer "
	       "entries), map once with MAP_POPULATE or reuse buffers so that steps need no mmap, "
	       "munmap or first-touch fault. Kernels with per-VMA locking for /proc/PID/maps (6.17) "
	       "help maps readers, not smaps.",
	.tradeoff = "RSS counts shared pages in every process, PSS does not; a longer interval sees "
		    "short peaks later; huge pages and MAP_POPULATE use memory earlier.",
	.confirm = "kill -STOP the reader for one minute: the slow steps stop with it and return "
		   "after kill -CONT.",
};
static const struct lg_advice remote = {
	.fix = "Let the tool that reads the trainer's memory (profiler, debugger, ps-like scanner) do "
	       "it less often and in fewer calls: each process_vm_readv, ptrace peek or "
	       "/proc/PID/cmdline, environ or mem read takes the target's mmap_lock. Lower its "
	       "sampling rate, point it at one rank, or use a BPF-based sampler that reads in the "
	       "target's own context.",
	.tradeoff = "Fewer or less detailed samples from that tool.",
	.confirm = "Stop the tool for one minute and compare the slow steps.",
};
static const struct lg_advice foreign = {
	.fix = "Another process works on the trainer's address space while holding its mmap_lock: see "
	       "the holder's stack for the call. Make that work rarer or shorter, or point it at "
	       "processes that do not train. In the trainer, avoid mmap, munmap and page faults in "
	       "the step: reuse buffers, set MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ high, "
	       "populate memory at start.",
	.tradeoff = "The other process sees less; the trainer keeps more memory mapped.",
	.confirm = "kill -STOP the holder for one minute: the slow steps stop with it.",
};
static const struct lg_advice huge = {
	.fix = "The kernel rearranges the trainer's memory (huge page collapse, KSM, compaction) under "
	       "its mmap_lock: set /sys/kernel/mm/transparent_hugepage/khugepaged/"
	       "scan_sleep_millisecs higher or defrag to madvise, ask for huge pages up front "
	       "(madvise(MADV_HUGEPAGE) and touch at start), switch KSM off for the job, and raise "
	       "vm.min_free_kbytes so that compaction runs ahead of need.",
	.tradeoff = "Fewer huge pages later in the run, or more memory held free.",
	.confirm = "echo never > /sys/kernel/mm/transparent_hugepage/enabled (or defer) for a minute.",
};
static const struct lg_advice own = {
	.fix = "The trainer's own threads take its mmap_lock against each other: one maps, unmaps or "
	       "forks while another faults. Unmap less (MALLOC_TRIM_THRESHOLD_=-1 and a high "
	       "MALLOC_MMAP_THRESHOLD_, or jemalloc with dirty_decay_ms:-1), reuse pinned and loader "
	       "buffers, map with MAP_POPULATE at start, use huge pages, start loader workers before "
	       "memory is large (forkserver or spawn), and do not free large tensors in a side "
	       "thread.",
	.tradeoff = "Resident memory stays at its peak; populating takes time at the start.",
	.confirm = "Run with MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_THRESHOLD_=1073741824 and compare.",
};
static const struct lg_advice file = {
	.fix = "Writers and readers of one file or directory wait for each other (inode or journal "
	       "lock). Write logs and checkpoints to separate files per rank, on another file system "
	       "than the data, with larger and fewer writes; no fsync in the loop.",
	.tradeoff = "More files; data reaches the disk later.",
	.confirm = "Send the holder's output to another file system (or /dev/null) for a minute.",
};
static const struct lg_advice file_lock = {
	.fix = "The step takes a lock on a file (flock, fcntl) that the holder keeps while it works: "
	       "`grep PID /proc/locks` and `ls -l /proc/PID/fd` show which file. Hold it only around the "
	       "write itself, write to a file of one's own per process and merge later, or try it with "
	       "LOCK_NB and come back in the next step.",
	.tradeoff = "Several files to merge; with LOCK_NB a record may be written a step later.",
	.confirm = "Let the holder use another file for a minute.",
};
static const char *const file_words[] = { "inode", "i_rwsem", "ext4", "xfs", "btrfs", "nfs", "jbd2",
					  "shmem_file", "generic_file", NULL };

const struct lg_advice *lg_lock_advice(const struct lg_finding *f)
{
	const char *lock = f->culprit.lock ? f->culprit.lock : "";
	enum lg_relation rel = f->culprit.relation;

	if (strcmp(f->id, "host.lock_held"))
		return NULL;
	if (strstr(lock, "mmap")) {
		if (did(f, huge_words) || rel == LG_RELATION_KERNEL)
			return &huge;
		if (rel == LG_RELATION_SELF || rel == LG_RELATION_SAME_PROCESS)
			return &own;
		if (did(f, smaps_words))
			return &reader;
		return did(f, remote_words) ? &remote : &foreign;
	}
	if (strstr(lock, "file lock"))
		return &file_lock;
	if (did(f, file_words) || strstr(lock, "inode") || strstr(lock, "i_rwsem"))
		return &file;
	return NULL;
}
