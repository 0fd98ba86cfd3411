/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * vmlinux_min.h - the few kernel types that laggard.bpf.c reads, written by hand.
 *
 * Only the names of structs and members matter: preserve_access_index makes libbpf look up the
 * real offsets in the running kernel's BTF, so the build needs no generated vmlinux.h and no
 * particular kernel. Suffixes like ___old mark other kernels' shapes of the same type.
 */
#ifndef LG_VMLINUX_MIN_H
#define LG_VMLINUX_MIN_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* Stable ABI of include/uapi/linux/bpf.h. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_F_USER_STACK = 256 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0,
       BPF_RB_PROD_POS = 3 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	long counter;
} atomic_long_t;

struct list_head {
	struct list_head *next;
};

struct rw_semaphore { /* with PREEMPT_RT another one, without count and wait_list */
	atomic_long_t count, owner;
	struct list_head wait_list;
};

struct task_struct;

struct rwsem_waiter { /* on the stack of who waits */
	struct list_head list;
	struct task_struct *task;
};

struct mutex { /* with PREEMPT_RT it starts with a rt_mutex_base */
	atomic_long_t owner;
};

struct rt_mutex_base { /* include/linux/rwbase_rt.h: with PREEMPT_RT a rw_semaphore starts with one, too */
	struct task_struct *owner;
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
	struct task_struct *owner; /* CONFIG_MEMCG */
};

struct upid {
	int nr; /* first of all: see context_now() */
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct signal_struct {
	struct {
		int counter;
	} live;
};

struct rq;

struct cfs_rq {
	struct rq *rq; /* CONFIG_FAIR_GROUP_SCHED */
};

struct sched_entity {
	unsigned long long sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

/* Where a sleeping thread's kernel stack ends: x86, arm64. */
struct thread_struct {
	unsigned long sp;
};

struct thread_struct___x86 { /* where thread-local storage is: x86-64, arm64 */
	unsigned long fsbase;
};

struct task_struct___x86 {
	struct thread_struct___x86 thread;
};

struct cpu_context {
	unsigned long sp;
};

struct thread_struct___arm64 {
	struct cpu_context cpu_context;
};

struct task_struct___arm64 {
	struct thread_struct___arm64 thread;
};

struct pt_regs___x86 {
	unsigned long orig_ax, ip, di;
};

struct pt_regs___arm64 {
	unsigned long long pc, orig_x0;
	int syscallno;
};

struct thread_info {
	unsigned int cpu; /* x86: since 5.16 */
};

struct thread_info___preempt { /* arm64 */
	unsigned long long preempt_count;
};

struct task_struct___cpu {
	unsigned int cpu;
};

struct task_struct {
	struct thread_info thread_info;
	struct thread_struct thread;
	unsigned int __state;
	struct sched_entity se;
	unsigned int flags;
	int on_cpu;
	int pid, tgid;
	struct mm_struct *mm;
	struct task_struct *real_parent, *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	unsigned long long start_boottime;
	char comm[16];
	unsigned int in_iowait : 1;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* x86 6.2 to 6.13 kept the preemption count in here. */
struct pcpu_hot { /* 6.2 to 6.14 */
	int preempt_count;
};

#pragma clang attribute pop

#endif /* LG_VMLINUX_MIN_H */
