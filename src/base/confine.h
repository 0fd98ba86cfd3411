/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.h - giving up what a process may do, for good.
 *
 * Each call takes something from the calling thread that it and its children never get back.
 * Call them while there is one thread.
 */
#ifndef LG_BASE_CONFINE_H
#define LG_BASE_CONFINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * A sanitizer maps terabytes, executable pages, and calls what it likes: under one, limits of memory and the
 * filter of system calls are left out. Everything else is as ever.
 */
#if defined(__SANITIZE_ADDRESS__)
#define LG_CONFINE_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define LG_CONFINE_SANITIZER 1
#endif
#endif
#ifndef LG_CONFINE_SANITIZER
#define LG_CONFINE_SANITIZER 0
#endif

/*
 * Keep of the capabilities (bit CAP_X of linux/capability.h) those in keep, and none that the thread
 * has not. The bounding set loses the others too, where the thread may change it; no_new_privs.
 */
int lg_confine_capabilities(uint64_t keep, struct lg_error *err) LG_MUST_CHECK;
/*
 * Keep none, and become a user and a group that nobody else is, without other groups, if the process may
 * choose (it has CAP_SETUID); nobody, where its user namespace knows no such user; else it stays who it
 * is. Who shares a user may signal: processes of "nobody" are of many services, and not of one mind.
 */
int lg_confine_to_own_user(struct lg_error *err) LG_MUST_CHECK;

/*
 * Keep no descriptor but sock, which becomes number `at`; those below it lead to /dev/null. For a process
 * that was forked and shall not hold open what its parent had.
 */
void lg_confine_to_socket(int sock, int at);

/* What a call's argument must be: none of the bits in forbid; equal when that is asked for. */
struct lg_syscall_arg {
	uint8_t arg, used, equal; /* equal: must be value; else: none of the bits of value */
	uint32_t value;
};

struct lg_syscall_rule {
	uint32_t nr;
	struct lg_syscall_arg when[2];
};

/*
 * From here on only these calls. Any other fails with ENOSYS, as on a kernel that has it not: C libraries try
 * one and fall back to another, and which one is theirs to change. Only the low half of arguments counts.
 * LG_E_UNSUPPORTED where the kernel or this processor has no such filter.
 */
int lg_confine_syscalls(const struct lg_syscall_rule *rule, size_t n, struct lg_error *err) LG_MUST_CHECK;
/*
 * From here on none of the calls for which a program that only computes, reads and writes files has no
 * use: no program or process is started (threads are), none signalled but this one, none traced, nothing
 * mounted or loaded, no identity taken, no io_uring. Without network: no socket either. They fail with
 * ENOSYS. LG_E_UNSUPPORTED as above.
 */
int lg_confine_to_files(bool network, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_BASE_CONFINE_H */
