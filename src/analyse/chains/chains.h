/* SPDX-License-Identifier: Apache-2.0 */
/* chains.h - the account of steps, and what each wait leads to. */
#ifndef LG_ANALYSE_CHAINS_CHAINS_H
#define LG_ANALYSE_CHAINS_CHAINS_H
#include "analyse/case.h"

/* ---- waits.c: what kind of wait a kernel stack shows ---- */
enum lg_wait_class {
	LG_WAIT_UNKNOWN, LG_WAIT_FUTEX, LG_WAIT_POLL, LG_WAIT_PIPE, LG_WAIT_SOCKET, LG_WAIT_SLEEP,
	LG_WAIT_LOCK, LG_WAIT_DISK, LG_WAIT_CHILD, LG_WAIT_STOP, LG_WAIT_FAULT, LG_WAIT_RECLAIM,
	LG_WAIT_GPU, LG_WAIT_FILE_LOCK, LG_WAIT_ANSWER
};
int lg_waits_new(struct lg_case *c) LG_MUST_CHECK;
void lg_waits_free(struct lg_wait_cache *w);
enum lg_wait_class lg_wait_class_of(struct lg_case *c, uint32_t state_row);
/* The kernel function that a blocked row waited in; 0 = no stack. */
lg_str lg_wait_name_of(struct lg_case *c, uint32_t state_row);
/* What whoever ended a wait in that kernel function did for it ("to post the semaphore"), and the detail of
 * host.waited_for; NULL = none of its own. */
const char *lg_peer_words(const char *function, const char **ret_detail);
/* A piece's lock as one says it: a file lock is known by the function that waits for it. */
const char *lg_lock_text(const struct lg_case *c, lg_str lock);

/* What a wait for a disk was for. */
enum lg_io_kind { LG_IO_UNKNOWN, LG_IO_READ, LG_IO_WRITE, LG_IO_SYNC };
/* What the blocked row waits for, by the system call on its stack; *ret_call: its name. */
enum lg_io_kind lg_io_kind_of(const struct lg_case *c, uint32_t row, const char **ret_call);

/* ---- senders.c ---- */
/* Who ended the blocked row, where that is sure; 0 = nobody, or an interrupt. */
lg_thr lg_waker_of(const struct lg_case *c, uint32_t state_row);
/*
 * It waited until a time of its own: whoever woke it before that (a heartbeat, an answer to something else)
 * sent it back to wait in the same place, and the last of these waits was ended by a timer.
 */
bool lg_until_own_timer(const struct lg_case *c, uint32_t state_row);

/* ---- locks.c: who held what ---- */
int lg_locks_new(struct lg_case *c) LG_MUST_CHECK;
void lg_locks_free(struct lg_lock_table *l);
/* The lock wait of thr that covers part of [a, b), first one at or after a; UINT32_MAX = none. */
uint32_t lg_lock_wait_in(struct lg_case *c, lg_thr thr, int64_t a, int64_t b);
/* Split [a, b) of a lock wait by who held the lock; pieces tile [a, b). */
void lg_lock_pieces(struct lg_case *c, uint32_t wait_row, lg_thr of, int64_t a, int64_t b, int hops,
		    struct lg_pieces *out);

/* ---- gil.c: Python's lock ---- */
int lg_find_gil_waits(struct lg_case *c) LG_MUST_CHECK;
/* Native code of CPython itself. */
bool lg_is_interpreters(const struct lg_trace *t, lg_frm f);
/* What a thread was at in that stack: innermost Python frame, and what it had called (0: the interpreter). */
struct lg_gil_place {
	enum lg_gil_did did; /* LG_GIL_PYTHON, NATIVE or LIBRARY */
	lg_frm python;
	lg_str native;
};
struct lg_gil_place lg_gil_place_of(const struct lg_trace *t, lg_stk stack);
/* ns that a CPU sample stands for. */
int64_t lg_gil_weight(const struct lg_trace *t, uint32_t row);
/* gil_account.c: fills the verdict's gil. */
int lg_account_gil(struct lg_case *c) LG_MUST_CHECK;
/* The first wait of thr for it that covers part of [a, b); NULL = none. */
const struct lg_gil_wait *lg_gil_wait_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b);

/* ---- chores.c: the kernel's work in a main thread, by samples ---- */
int lg_find_chores(struct lg_case *c) LG_MUST_CHECK;
/* Was the kernel at such work in that stack? */
bool lg_is_chore(const struct lg_trace *t, lg_stk stack);
/* "copied its page tables for 20.0 ms; the copy was pid 17 (tool)", of a piece that ends in LG_END_FORK. */
const char *lg_fork_text(struct lg_case *c, const struct lg_piece *p);
/* The first one of thr that covers part of [a, b); NULL = none. */
const struct lg_chore *lg_chore_in(const struct lg_case *c, lg_thr thr, int64_t a, int64_t b);

/* ---- collectives.c: who arrived last ---- */
int lg_match_collectives(struct lg_case *c) LG_MUST_CHECK;
/* The collective rank r was waiting in at ts, NULL when none. */
const struct lg_arrival *lg_arrival_at(const struct lg_rank *r, int64_t ts);

/* ---- chain.c: why did thr not get on in [a, b)? ---- */
/* Pieces tile [a, b) exactly, in time order. */
void lg_follow(struct lg_case *c, lg_thr thr, int64_t a, int64_t b, int hops, struct lg_pieces *out);

/* ---- quota.c ---- */
/* Did a cgroup of the job have no quota left at some time near [a, b)? */
bool lg_quota_used_up(struct lg_case *c, int64_t a, int64_t b);
/* Would this recording tell of used-up quotas? Only laggard's own do. */
bool lg_quota_is_told(struct lg_case *c);
/* "/slice/job: 2.5 CPUs"; NULL = not told. */
const char *lg_quota_text(struct lg_case *c);

/* ---- account.c: parts of every step; invariant: parts tile the step ---- */
int lg_account(struct lg_case *c) LG_MUST_CHECK;
/* Parts of steps that are told without scheduler states: which stage is known, what the thread did is not.
 * They replace all that there were. */
int lg_account_stages(struct lg_case *c) LG_MUST_CHECK;

/* ---- path.c: the critical path of the run through all ranks ---- */
/* Pieces tile [first step's start, last step's end) of rank ref, in time order. */
int lg_critical_path(struct lg_case *c, uint32_t ref, struct lg_pieces *out) LG_MUST_CHECK;

#endif /* LG_ANALYSE_CHAINS_CHAINS_H */
