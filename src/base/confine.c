/* SPDX-License-Identifier: Apache-2.0 */
#include "base/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534 /* Linux' overflow user and group (kernel/sys.c, DEFAULT_OVERFLOWUID) */

/*
 * A user for each process, by its pid (at most 2^22, linux/threads.h). No range that is given to anybody
 * reaches here: systemd's containers end at 0x6fffffff (uids-gids.md), its foreign users begin at 0x7ffe0000,
 * sssd maps to at most 2000200000 (sssd-ldap(5), ldap_idmap_range_max).
 */
#define OWN_USER 0x7f000000u

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH 0
#endif

enum { PROGRAM_MAX = 640, PER_RULE = 7, HEAD = 4 };

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

static bool become(uid_t id)
{
	return !setresgid(id, id, id) && !setresuid(id, id, id);
}

int lg_confine_to_own_user(struct lg_error *err)
{
	/* While there is CAP_SETPCAP: changing the user takes it. */
	drop_bounds(0);
	if (!geteuid()) {
		(void)!setgroups(0, NULL);
		if (!become(OWN_USER + (uid_t)getpid()))
			(void)become(NOBODY);
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
static void put_rule(struct program *p, const struct lg_syscall_rule *r, uint32_t action)
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
	put(p, RETURN, action, 0);
	for (unsigned i = 0; i < n; i++) {
		uint8_t over = (uint8_t)(&p->in[p->n] - fails[i] - 1);

		if (fails[i]->code == ANY_BIT)
			fails[i]->jt = over;
		else
			fails[i]->jf = over;
	}
}

#define UNKNOWN_CALL (SECCOMP_RET_ERRNO | ENOSYS)

static void begin(struct program *p)
{
	put(p, LOAD, offsetof(struct seccomp_data, arch), 0);
	put(p, EQUAL, ARCH, 1);
	put(p, RETURN, SECCOMP_RET_KILL_PROCESS, 0);
}

static int install(struct program *p, uint32_t otherwise, struct lg_error *err)
{
	struct sock_fprog prog = { .filter = p->in };

	put(p, RETURN, otherwise, 0);
	prog.len = p->n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "this kernel filters no system calls (seccomp)");
	return 0;
}

int lg_confine_syscalls(const struct lg_syscall_rule *rule, size_t n, struct lg_error *err)
{
	struct program p = { .n = 0 };

	if (LG_CONFINE_SANITIZER)
		return 0;
	if (!ARCH || n > (PROGRAM_MAX - HEAD - 1) / PER_RULE)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "no filter of system calls for this processor");
	begin(&p);
	/* x32's numbers (arch/x86/include/uapi/asm/unistd.h) are in no rule. */
	for (size_t i = 0; i < n; i++)
		put_rule(&p, &rule[i], SECCOMP_RET_ALLOW);
	return install(&p, UNKNOWN_CALL, err);
}

/* Of no use to who reads files. tgkill() of the process itself (abort()) is let through before. */
static const struct lg_syscall_rule other_than_files[] = {
#define NO(name) { .nr = SYS_##name }
#if defined(__x86_64__)
	NO(fork), NO(vfork), NO(iopl), NO(ioperm), NO(modify_ldt), NO(mknod),
#endif
	/* Programs and processes: a clone() that is no thread. clone3()'s flags are in memory. */
	NO(execve), NO(execveat), NO(clone3),
	{ .nr = SYS_clone, .when = { { .arg = 0, .used = 1, .value = CLONE_THREAD } } },
	/* Other processes */
	NO(kill), NO(tkill), NO(tgkill), NO(rt_sigqueueinfo), NO(rt_tgsigqueueinfo),
	NO(pidfd_send_signal), NO(pidfd_open), NO(pidfd_getfd), NO(ptrace),
	NO(process_vm_readv), NO(process_vm_writev), NO(process_madvise), NO(kcmp),
	NO(move_pages), NO(migrate_pages),
	{ .nr = SYS_ioctl, .when = { { .arg = 1, .used = 1, .equal = 1, .value = TIOCSTI } } },
	/* Another identity, other namespaces */
	NO(setuid), NO(setgid), NO(setreuid), NO(setregid), NO(setresuid), NO(setresgid),
	NO(setfsuid), NO(setfsgid), NO(setgroups), NO(capset), NO(personality), NO(setns),
	NO(unshare), NO(chroot), NO(pivot_root),
	/* The machine */
	NO(mount), NO(umount2), NO(move_mount), NO(open_tree), NO(fsopen), NO(fsconfig),
	NO(fsmount), NO(fspick), NO(mount_setattr), NO(open_by_handle_at), NO(mknodat),
	NO(swapon), NO(swapoff), NO(quotactl), NO(acct), NO(reboot), NO(kexec_load),
	NO(init_module), NO(finit_module), NO(delete_module), NO(settimeofday),
	NO(clock_settime), NO(adjtimex), NO(clock_adjtime), NO(sethostname),
	NO(setdomainname), NO(syslog),
	/* Much of the kernel behind one call */
	NO(bpf), NO(perf_event_open), NO(userfaultfd), NO(io_uring_setup),
	NO(io_uring_enter), NO(io_uring_register), NO(add_key), NO(request_key),
	NO(keyctl), NO(fanotify_init),
	/* Network */
	NO(socket),
#undef NO
};

int lg_confine_to_files(bool network, struct lg_error *err)
{
	const size_t n = sizeof other_than_files / sizeof *other_than_files - network;
	const struct lg_syscall_rule itself = {
		.nr = SYS_tgkill, .when = { { .arg = 0, .used = 1, .equal = 1, .value = (uint32_t)getpid() } }
	};
	struct program p = { .n = 0 };

	_Static_assert(sizeof other_than_files / sizeof *other_than_files + 2 <=
			       (PROGRAM_MAX - HEAD - 3) / PER_RULE,
		       "the program is too small");
	if (LG_CONFINE_SANITIZER)
		return 0;
	if (!ARCH)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "no filter of system calls for this processor");
	begin(&p);
#if defined(__x86_64__)
	/* x32's numbers (arch/x86/include/uapi/asm/unistd.h): the same calls once more. */
	put(&p, LOAD, offsetof(struct seccomp_data, nr), 0);
	p.in[p.n++] = (struct sock_filter){ ANY_BIT, 0, 1, 0x40000000 };
	put(&p, RETURN, UNKNOWN_CALL, 0);
#endif
	put_rule(&p, &itself, SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < n; i++)
		put_rule(&p, &other_than_files[i], UNKNOWN_CALL);
	return install(&p, SECCOMP_RET_ALLOW, err);
}

void lg_confine_to_socket(int sock, int at)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct rlimit r;

	/* Both above what is overwritten below. */
	null = fcntl(null, F_DUPFD_CLOEXEC, 16);
	sock = fcntl(sock, F_DUPFD_CLOEXEC, 16);
	for (int fd = 0; fd < at; fd++)
		(void)dup2(null, fd);
	(void)dup2(sock, at);
	if (!syscall(SYS_close_range, at + 1, ~0u, 0))
		return;
	if (getrlimit(RLIMIT_NOFILE, &r))
		r.rlim_cur = 1024;
	for (int fd = at + 1; fd < (int)r.rlim_cur; fd++)
		close(fd);
}
