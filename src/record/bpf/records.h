/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.h - what the BPF programs hand to user space; the only contract between
 * laggard.bpf.c and bpf_source.c, included by both.
 *
 * Every record starts with struct lg_bpf_hdr; addresses of stacks follow the fixed part, kernel
 * frames first, then user frames, then the peer's kernel frames, then Python's, innermost first. Times are
 * CLOCK_MONOTONIC ns; 0 means "not known". Ids are those of the recorder's pid namespace.
 *
 * There is no switch and no wakeup record: one slice record when a thread leaves its CPU says
 * what it did since it left the CPU the time before (why it was off, who woke it, how long it
 * queued, how long it ran). That is one 56-byte record where perf writes two of about 100.
 */
#ifndef LG_RECORD_BPF_RECORDS_H
#define LG_RECORD_BPF_RECORDS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#define LG_BPF_KERNEL_FRAMES 32
#define LG_BPF_USER_FRAMES 16
#define LG_BPF_PEER_FRAMES 24
#define LG_BPF_PYTHON_FRAMES 24
#define LG_BPF_SENDER_FRAMES 48 /* from the wake-up through the network's receiving half to the sender's */

enum lg_bpf_kind {
	LG_BPF_NONE,   /* as index of `lost`: switches that the kernel did not report */
	LG_BPF_SLICE,
	LG_BPF_SUM,    /* slices below the threshold, added up */
	LG_BPF_SLEEP,  /* stack of a sleeping thread, taken as it is woken */
	LG_BPF_TASK,   /* a thread is there, was forked, renamed, or changed its program */
	LG_BPF_LOCK,   /* wait for a sleeping kernel lock, at its end */
	LG_BPF_HOLD,   /* hold of an mmap_lock, at its release */
	LG_BPF_MEMORY, /* direct reclaim or compaction, at its end */
	LG_BPF_SIGNAL,
	LG_BPF_MOVE,   /* a thread that waited for a CPU was put into another one's queue */
	LG_BPF_PYTHON, /* Python frames of a thread that a CPU sample struck, just before that sample */
	LG_BPF_OPEN,   /* only from the iterator at the end: what every thread was doing */
	LG_BPF_KINDS
};

/* flags of struct lg_bpf_hdr */
enum {
	LG_BPF_CTX_MASK = 7,      /* slice, sleep: enum lg_ctx of the waker */
	LG_BPF_LAST = 8,          /* slice: last thread of its process has left */
	LG_BPF_EDGE = 16,         /* slice: start or wait began before the recording */
	LG_BPF_MANY_KERNEL = 32,  /* the kernel stack was longer than recorded */
	LG_BPF_GAP = 64,          /* slice: its start was not reported, in_ts is not true */
	LG_BPF_SAME = 64,         /* sleep: the kernel frames are those of the thread's last one */
	LG_BPF_ASLEEP_THERE = 128, /* slice, open: it slept where its last plain sleep was (lg_bpf_sleep) */
	LG_BPF_FORK = 64,         /* task: new (else renamed) */
	LG_BPF_EXEC = 128         /* task: new program and mm */
};

struct lg_bpf_hdr {
	__u64 ts; /* the moment of emission: records of one ring are in this order */
	__u32 tid, tgid;
	__u8 kind, n_kernel, n_user, flags;
	__u16 cpu;
	__u8 n_peer, n_python;
};

/*
 * A Python frame: its code object's address; whether the interpreter was entered anew for it, so that its
 * caller is native; how far into the code object the instruction is, in units of two bytes (0xffff: farther).
 * An address of 0 is no frame, but says this of the one before.
 */
#define LG_BPF_PYTHON_CODE ((1ull << 47) - 1)
#define LG_BPF_PYTHON_ENTRY (1ull << 47)
#define LG_BPF_PYTHON_UNITS 48
#define LG_BPF_PYTHON_FAR 0xffffu

/*
 * What a sleep has to do with the lock of the thread's interpreter (the GIL): in off_why of a slice and of
 * what is open, above its reason.
 */
enum { LG_BPF_WHY_MASK = 15,
       LG_BPF_GIL_WAIT = 16, /* it waited for it, or to hand it over */
       LG_BPF_GIL_HELD = 32  /* it had it */ };

struct lg_bpf_slice { /* hdr.ts: left the CPU */
	struct lg_bpf_hdr h;
	__u64 in_ts, off_ts, wake_ts;
	__u32 waker_tid;
	__u8 off_why, out_why; /* enum lg_state_reason before in_ts (and LG_BPF_GIL_*), after h.ts */
	__u16 wake_cpu;
};

struct lg_bpf_sum { /* covers [since, hdr.ts) */
	struct lg_bpf_hdr h;
	__u64 since, run;
	__u32 n, zero;
};

/*
 * Frames: of hdr.tid, asleep since off_ts; its user frames; and, where a soft interrupt woke it, what was
 * on the CPU then: whether the thread there sent what came or was only struck is in them.
 *
 * Plain: one user frame at most, none of Python. A helper thread sleeps in one place ten thousand times, so
 * that a plain sleep in the place of its last one is not told, but a bit of the slice that follows it.
 */
struct lg_bpf_sleep {
	struct lg_bpf_hdr h;
	__u64 off_ts;
	__u32 sender_tid; /* whose frames those are; 0 = none */
	__u32 gil_holder; /* LG_BPF_GIL_WAIT: who had it when the sleep began, as the process numbers its
			   * threads; 0 = nobody, or not known */
};

static inline __attribute__((always_inline)) _Bool lg_bpf_is_plain(__u8 n_user, __u8 n_python)
{
	return n_user <= 1 && !n_python;
}

struct lg_bpf_task {
	struct lg_bpf_hdr h;
	__u64 mm, start; /* start: boot-clock ns of the thread's start, as in /proc/PID/stat */
	__u32 ptgid, task_flags; /* PF_* */
	char comm[16];
};

/* owner_flags of struct lg_bpf_lock */
enum { LG_BPF_OWNER_READER = 1, LG_BPF_OWNER_RUNNING = 2, LG_BPF_OWNER_VERIFIED = 4 };

struct lg_bpf_lock { /* frames: waiter's kernel, waiter's user, owner's kernel at the start */
	struct lg_bpf_hdr h;
	__u64 begin, lock, mm; /* mm: 0 = not an mmap_lock */
	__u32 lcb;             /* LCB_F_* of the kernel's lock tracepoints, or-ed */
	__u32 mm_tgid;         /* process of mm */
	__u32 owner_tid, owner_tgid;
	__u32 owner_flags, zero;
};

enum { LG_BPF_HOLD_WRITE = 1, LG_BPF_HOLD_READ = 2, LG_BPF_HOLD_FOREIGN = 4 };

struct lg_bpf_hold { /* frames: holder's, in its own context */
	struct lg_bpf_hdr h;
	__u64 begin, mm;
	__u32 mm_tgid, hold_flags;
};

enum { LG_BPF_RECLAIM = 1, LG_BPF_COMPACT = 2 };

struct lg_bpf_memory {
	struct lg_bpf_hdr h;
	__u64 begin;
	__u32 what, zero;
};

struct lg_bpf_signal { /* hdr.tid: target */
	struct lg_bpf_hdr h;
	__u32 sig, sender_tid, sender_tgid;
	__s32 result; /* TRACE_SIGNAL_*: 0 = delivered */
};

struct lg_bpf_move { /* hdr.ts: when; hdr.cpu: who moved it ran there */
	struct lg_bpf_hdr h;
	__u32 from_cpu, zero;
};

/* flags of its hdr: did the thread have its interpreter's lock? Neither: not known. */
enum { LG_BPF_SAMPLE_GIL = 1, LG_BPF_SAMPLE_NO_GIL = 2 };

struct lg_bpf_python { /* hdr.ts: of the sample, or a little before */
	struct lg_bpf_hdr h;
};

/*
 * Where CPython keeps a thread's frames: bytes into its structs (record/python_layout.c). What differs
 * between its versions is numbers, so that the walk has no branches.
 */
struct lg_bpf_python_layout {
	__u64 position_mask, code_mask; /* (position & position_mask) - (code's address & code_mask) ... */
	__u64 shim_mask;                /* all ones: a frame that is an entry has no code of its own */
	__s32 tls;                      /* from the thread's base to the slot that holds its state */
	__u16 state_frame;              /* in the state: the innermost frame ... */
	__u16 frame_behind;             /* ... or what points to it here; LG_BPF_PYTHON_DIRECT: itself */
	__u16 state_pthread;
	__u16 window;                   /* bytes below a frame that are read with it, for its callers */
	__u8 frame_bytes;               /* of a frame that are read; below: words of 8 bytes in them */
	__u8 frame_previous, frame_code, frame_position, frame_entry;
	__u8 position_shift;            /* ... >> that is in units of two bytes */
	__u8 entry_shift, entry_least;  /* the byte there is that or more: an entry */
};
#define LG_BPF_PYTHON_DIRECT 0xffffu

/*
 * What is told of a frame, of its words: LG_BPF_PYTHON_*. Without branches: the verifier would follow each
 * way through all rounds of a walk.
 */
static inline __attribute__((always_inline)) __u64 lg_bpf_python_told(const struct lg_bpf_python_layout *l,
								      const __u64 word[16])
{
	__u64 code = word[l->frame_code & 15] & LG_BPF_PYTHON_CODE & ~3ull;
	__u64 mark = word[l->frame_entry & 15] >> (l->entry_shift & 63) & 0xff;
	__u64 units = ((word[l->frame_position & 15] & l->position_mask) - (code & l->code_mask)) >>
		      (l->position_shift & 1);
	__u64 far = units >> 16, entry; /* 1 or 0 */

	far = (far | -far) >> 63;
	entry = (mark - l->entry_least) >> 63 ^ 1;
	code &= ~(-entry & l->shim_mask);
	units = (units | -far) & LG_BPF_PYTHON_FAR;
	return code | entry * LG_BPF_PYTHON_ENTRY | units << LG_BPF_PYTHON_UNITS;
}

/* struct _gil_runtime_state, the same from 3.8 to 3.14 (Include/internal/pycore_gil.h), in bytes. */
#define LG_BPF_GIL_HOLDER 8  /* the state of who has it, or had it last; then an int: is it held? */
#define LG_BPF_GIL_COND 32   /* from here on what is waited for: the condition, its mutex, the hand-over */
#define LG_BPF_GIL_BYTES 208

struct lg_bpf_python_process {
	__u32 layout, zero;
	__u64 gil; /* address; 0 = not known */
};

#define LG_BPF_PYTHON_LAYOUTS 64 /* builds of Python in one recording, and one more; at most 256 */

struct lg_bpf_open { /* fixed size, as the iterator writes it */
	struct lg_bpf_hdr h;
	__u64 in_ts, off_ts, wake_ts;
	__u64 sum_since, sum_run;
	__u64 lock_begin, lock, lock_mm;
	__u64 hold_begin[2], hold_mm[2]; /* foreign, own */
	__u32 waker_tid, lcb;
	__u32 lock_mm_tgid, owner_tid, owner_tgid, owner_flags;
	__u32 hold_tgid[2], hold_flags[2];
	__u32 sum_n;
	__u8 running, off_why;
	__u16 wake_cpu;
	__u8 hold_kernel, hold_user, peer_kernel, zero; /* hdr.n_python: where it sleeps */
	__u32 gil_holder;
	__u64 kernel[LG_BPF_KERNEL_FRAMES]; /* where it sleeps */
	__u64 user[LG_BPF_USER_FRAMES];
	__u64 hold_frames[LG_BPF_KERNEL_FRAMES + LG_BPF_USER_FRAMES]; /* foreign hold */
	__u64 peer_frames[LG_BPF_PEER_FRAMES];
	__u64 python[LG_BPF_PYTHON_FRAMES];
};

#define LG_BPF_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
LG_BPF_SIZE(lg_bpf_hdr, 24);
LG_BPF_SIZE(lg_bpf_slice, 56);
LG_BPF_SIZE(lg_bpf_sum, 48);
LG_BPF_SIZE(lg_bpf_sleep, 40);
LG_BPF_SIZE(lg_bpf_task, 64);
LG_BPF_SIZE(lg_bpf_lock, 72);
LG_BPF_SIZE(lg_bpf_hold, 48);
LG_BPF_SIZE(lg_bpf_memory, 40);
LG_BPF_SIZE(lg_bpf_signal, 40);
LG_BPF_SIZE(lg_bpf_python, 24);
LG_BPF_SIZE(lg_bpf_python_layout, 48);
LG_BPF_SIZE(lg_bpf_open, 1328);

/* Frames a record of variable length may carry, and so its greatest size. */
#define LG_BPF_MAX_FRAMES                                                                                  \
	(LG_BPF_KERNEL_FRAMES + LG_BPF_USER_FRAMES + LG_BPF_SENDER_FRAMES + LG_BPF_PYTHON_FRAMES)
#define LG_BPF_MAX_RECORD (sizeof(struct lg_bpf_lock) + 8 * LG_BPF_MAX_FRAMES)

#endif /* LG_RECORD_BPF_RECORDS_H */
