/* SPDX-License-Identifier: Apache-2.0 */
#include "base/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534 /* Linux' overflow user and group (kernel/sys.c, DEFAULT_OVERFLOWUID) */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH 0
#endif

enum { PROGRAM_MAX = 512, PER_RULE = 7, HEAD = 4 };

/* Unknown ones end the loop; without CAP_SETPCAP the set stays, and no_new_privs makes it moot. */
static void drop_bounds(uint64_t keep)
{
	for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(keep >> cap & 1))
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

int lg_confine_capabilities(uint64_t keep, struct lg_error *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return lg_fail_errno(err, errno, "capget");
	drop_bounds(keep);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return lg_fail_errno(err, errno, "no_new_privs");
	for (int i = 0; i < 2; i++) {
		d[i].permitted &= (uint32_t)(keep >> 32 * i);
		d[i].effective = d[i].permitted;
		d[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &h, d))
		return lg_fail_errno(err, errno, "capset");
	return 0;
}

int lg_confine_to_nobody(struct lg_error *err)
{
	/* While there is CAP_SETPCAP: changing the user takes it. */
	drop_bounds(0);
	if (!geteuid()) {
		(void)!setgroups(0, NULL);
		(void)!setresgid(NOBODY, NOBODY, NOBODY);
		(void)!setresuid(NOBODY, NOBODY, NOBODY);
	}
	return lg_confine_capabilities(0, err);
}

struct program {
	struct sock_filter in[PROGRAM_MAX];
	unsigned short n;
};

static void put(struct program *p, uint16_t code, uint32_t k, uint8_t yes)
{
	p->in[p->n++] = (struct sock_filter){ code, yes, 0, k };
}

#define LOAD (BPF_LD | BPF_W | BPF_ABS)
#define EQUAL (BPF_JMP | BPF_JEQ | BPF_K)
#define ANY_BIT (BPF_JMP | BPF_JSET | BPF_K)
#define RETURN (BPF_RET | BPF_K)

/* Little-endian: the low half of an argument comes first. */
static uint32_t argument(unsigned i)
{
	return (uint32_t)offsetof(struct seccomp_data, args) + 8 * i;
}

/* What does not fit a rule goes on to the next. */
static void put_rule(struct program *p, const struct lg_syscall_rule *r)
{
	struct sock_filter *fails[3];
	unsigned n = 0;

	put(p, LOAD, offsetof(struct seccomp_data, nr), 0);
	fails[n++] = &p->in[p->n];
	put(p, EQUAL, r->nr, 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct lg_syscall_arg *a = &r->when[i];

		if (!a->used)
			continue;
		put(p, LOAD, argument(a->arg), 0);
		fails[n++] = &p->in[p->n];
		put(p, a->equal ? EQUAL : ANY_BIT, a->value, 0);
	}
	put(p, RETURN, SECCOMP_RET_ALLOW, 0);
	for (unsigned i = 0; i < n; i++) {
		uint8_t over = (uint8_t)(&p->in[p->n] - fails[i] - 1);

		if (fails[i]->code == ANY_BIT)
			fails[i]->jt = over;
		else
			fails[i]->jf = over;
	}
}

int lg_confine_syscalls(const struct lg_syscall_rule *rule, size_t n, struct lg_error *err)
{
	struct program p = { .n = 0 };
	struct sock_fprog prog = { .filter = p.in };

	if (LG_CONFINE_SANITIZER)
		return 0;
	if (!ARCH || n > (PROGRAM_MAX - HEAD - 1) / PER_RULE)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "no filter of system calls for this processor");
	put(&p, LOAD, offsetof(struct seccomp_data, arch), 0);
	put(&p, EQUAL, ARCH, 1);
	put(&p, RETURN, SECCOMP_RET_KILL_PROCESS, 0);
	/* x32's numbers (arch/x86/include/uapi/asm/unistd.h) are in no rule. */
	for (size_t i = 0; i < n; i++)
		put_rule(&p, &rule[i]);
	put(&p, RETURN, SECCOMP_RET_ERRNO | ENOSYS, 0);
	prog.len = p.n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "this kernel filters no system calls (seccomp)");
	return 0;
}
