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

enum { RULES_MAX = 120, PROGRAM_MAX = 12 * RULES_MAX };

/* The first unknown one ends the loop; without CAP_SETPCAP the set stays, and no_new_privs makes it moot. */
static void drop_bounds(uint64_t keep)
{
	for (int cap = 0; cap < 64; cap++)
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			break;
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

/* Written from its end: how far a jump goes is known when it is put down. */
struct program {
	struct sock_filter in[PROGRAM_MAX];
	unsigned at; /* of the first instruction there is */
};

static void put(struct program *p, uint16_t code, uint32_t k, unsigned yes, unsigned no)
{
	p->in[--p->at] = (struct sock_filter){ code, (uint8_t)yes, (uint8_t)no, k };
}

#define LOAD (BPF_LD | BPF_W | BPF_ABS)
#define EQUAL (BPF_JMP | BPF_JEQ | BPF_K)
#define AT_LEAST (BPF_JMP | BPF_JGE | BPF_K)
#define ANY_BIT (BPF_JMP | BPF_JSET | BPF_K)
#define ALWAYS (BPF_JMP | BPF_JA)
#define RETURN (BPF_RET | BPF_K)

/* Little-endian: the low half of an argument comes first. */
static uint32_t argument(unsigned i)
{
	return (uint32_t)offsetof(struct seccomp_data, args) + 8 * i;
}

/* A rule, and what it does with a call that it fits. */
struct ruled {
	const struct lg_syscall_rule *rule;
	uint32_t action;
};

static bool has_arguments(const struct lg_syscall_rule *r)
{
	return r->when[0].used || r->when[1].used;
}

/* What does not fit a rule goes on to what is there already. */
static void put_rule(struct program *p, const struct ruled *r)
{
	unsigned next = p->at;

	put(p, RETURN, r->action, 0, 0);
	for (unsigned i = 2; i--;) {
		const struct lg_syscall_arg *a = &r->rule->when[i];

		if (!a->used)
			continue;
		if (a->equal)
			put(p, EQUAL, a->value, 0, next - p->at);
		else
			put(p, ANY_BIT, a->value, next - p->at, 0);
		put(p, LOAD, argument(a->arg), 0, 0);
	}
}

/* Numbers of calls up to where the next stretch begins, which all meet the same rules: n from rule on. */
struct stretch {
	uint32_t from;
	const struct ruled *rule;
	unsigned n;
};

static bool alike(const struct stretch *a, const struct stretch *b)
{
	if (!a->n || !b->n)
		return a->n == b->n;
	return !has_arguments(a->rule->rule) && !has_arguments(b->rule->rule) &&
	       a->rule->action == b->rule->action;
}

static unsigned add_stretch(struct stretch *s, unsigned n, struct stretch more)
{
	if (n && s[n - 1].from == more.from) /* nothing lies between the last rule's number and this one */
		n--;
	if (n && alike(&s[n - 1], &more))
		return n;
	s[n++] = more;
	return n;
}

static unsigned stretches(const struct ruled *r, unsigned n_rules, struct stretch *s)
{
	unsigned n = add_stretch(s, 0, (struct stretch){ 0 });

	for (unsigned i = 0, k; i < n_rules; i = k) {
		for (k = i + 1; k < n_rules && r[k].rule->nr == r[i].rule->nr;)
			k++;
		n = add_stretch(s, n, (struct stretch){ r[i].rule->nr, &r[i], k - i });
		n = add_stretch(s, n, (struct stretch){ .from = r[i].rule->nr + 1 });
	}
	return n;
}

/* An instruction that a condition put down next, or one later, can jump to: `to`, or one that leads there. */
static unsigned within_reach(struct program *p, unsigned to)
{
	if (to - p->at >= UINT8_MAX)
		put(p, ALWAYS, to - p->at, 0, 0);
	else
		return to;
	return p->at;
}

static unsigned put_return(struct program *p, uint32_t action)
{
	for (unsigned i = p->at; i < PROGRAM_MAX && i - p->at < UINT8_MAX / 2; i++)
		if (p->in[i].code == RETURN && p->in[i].k == action)
			return i;
	put(p, RETURN, action, 0, 0);
	return p->at;
}

/*
 * Where a call goes whose number is in one of these stretches. By halves: the kernel tries a new filter with
 * every number there is, to learn which calls it need not ask about (seccomp_cache_prepare() in
 * kernel/seccomp.c), and translates all of it; with rules in a row that took as long as a small file.
 */
static unsigned put_search(struct program *p, const struct stretch *s, unsigned n, uint32_t otherwise)
{
	unsigned from, below;

	if (n > 1) {
		from = put_search(p, s + n / 2, n - n / 2, otherwise);
		below = put_search(p, s, n / 2, otherwise);
		from = within_reach(p, from);
		below = within_reach(p, below);
		put(p, AT_LEAST, s[n / 2].from, from - p->at, below - p->at);
		return p->at;
	}
	if (!s->n || !has_arguments(s->rule->rule))
		return put_return(p, s->n ? s->rule->action : otherwise);
	put(p, RETURN, otherwise, 0, 0);
	for (unsigned i = s->n; i--;)
		put_rule(p, &s->rule[i]);
	return p->at;
}

/* By number; rules of one number stay in their order. */
static void sort_rules(struct ruled *r, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct ruled x = r[i];
		size_t k = i;

		for (; k && r[k - 1].rule->nr > x.rule->nr; k--)
			r[k] = r[k - 1];
		r[k] = x;
	}
}

#define UNKNOWN_CALL (SECCOMP_RET_ERRNO | ENOSYS)

/* r: at most RULES_MAX. */
static int install(struct ruled *r, size_t n, uint32_t otherwise, struct lg_error *err)
{
	struct stretch s[2 * RULES_MAX + 1];
	struct program p;
	struct sock_fprog prog;

	p.at = PROGRAM_MAX;
	sort_rules(r, n);
	(void)put_search(&p, s, stretches(r, (unsigned)n, s), otherwise);
#if defined(__x86_64__)
	/* x32's numbers (arch/x86/include/uapi/asm/unistd.h): the same calls once more. */
	put(&p, RETURN, UNKNOWN_CALL, 0, 0);
	put(&p, ANY_BIT, 0x40000000, 0, 1);
#endif
	put(&p, LOAD, offsetof(struct seccomp_data, nr), 0, 0);
	put(&p, RETURN, SECCOMP_RET_KILL_PROCESS, 0, 0);
	put(&p, EQUAL, ARCH, 1, 0);
	put(&p, LOAD, offsetof(struct seccomp_data, arch), 0, 0);
	prog = (struct sock_fprog){ .len = (unsigned short)(PROGRAM_MAX - p.at), .filter = p.in + p.at };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "this kernel filters no system calls (seccomp)");
	return 0;
}

int lg_confine_syscalls(const struct lg_syscall_rule *rule, size_t n, struct lg_error *err)
{
	struct ruled r[RULES_MAX];

	if (LG_CONFINE_SANITIZER)
		return 0;
	if (!ARCH || n > RULES_MAX)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "no filter of system calls for this processor");
	for (size_t i = 0; i < n; i++)
		r[i] = (struct ruled){ &rule[i], SECCOMP_RET_ALLOW };
	return install(r, n, UNKNOWN_CALL, err);
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
	struct ruled r[sizeof other_than_files / sizeof *other_than_files + 1] = {
		{ &itself, SECCOMP_RET_ALLOW }
	};

	_Static_assert(sizeof r / sizeof *r <= RULES_MAX, "the program is too small");
	if (LG_CONFINE_SANITIZER)
		return 0;
	if (!ARCH)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "no filter of system calls for this processor");
	for (size_t i = 0; i < n; i++)
		r[i + 1] = (struct ruled){ &other_than_files[i], UNKNOWN_CALL };
	return install(r, n + 1, SECCOMP_RET_ALLOW, err);
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
