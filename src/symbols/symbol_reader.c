/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol_reader.c - the two processes on the other side of symbol_wire.h.
 *
 * The reader runs code of libelf and libiberty on bytes that an attacker wrote. What it could do if he took
 * it over: compute, for as long as its limits allow, and send wrong names of files of one owner. It has no
 * user of its own, no capability, no file but those that it was sent, and no system call that opens, signals,
 * traces, connects or starts anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/confine.h"
#include "symbols/demangle.h"
#include "symbols/elf_exports.h"
#include "symbols/file_budget.h"
#include "symbols/perf_map.h"
#include "symbols/python_code.h"
#include "symbols/symbol_child.h"

enum {
	SOCK = 3,
	DEATHS_MAX = 64, /* then the keeper gives up: who kills it that often gets no more of our time */
	LEFT = 10, ENDED = 11, /* how a reader exits: asked to, or the recorder is gone */
	FORGET_EVERY = 512
};

/*
 * Memory that is written is bounded by RLIMIT_DATA. A file that is only read is mapped whole, and the
 * largest libraries of CUDA have 2 GB, their debug files more: that is what RLIMIT_AS must leave room for.
 */
#define DATA_BYTES ((rlim_t)112 << 20)
#define MAPPED_BYTES ((rlim_t)8 << 30)
#define CPU_SECONDS 30

/* -- confinement -- */

#define CALL(name) { .nr = SYS_##name }
#define IS(i, v) { .arg = (i), .used = 1, .equal = 1, .value = (v) }
#define HAS_NOT(i, v) { .arg = (i), .used = 1, .value = (v) }

/*
 * Memory is never made executable, and never shared: RLIMIT_DATA does not count what is. A C library
 * differs in what it calls for the same: fstat() is either of two.
 */
static const struct lg_syscall_rule reader_rules[] = {
	CALL(recvmsg), CALL(sendto), CALL(sendmsg), CALL(pread64), CALL(read), CALL(lseek), CALL(close),
	CALL(fstat), { .nr = SYS_newfstatat, .when = { IS(3, AT_EMPTY_PATH) } },
	{ .nr = SYS_fcntl, .when = { IS(1, F_GETFD) } }, { .nr = SYS_fcntl, .when = { IS(1, F_GETFL) } },
	{ .nr = SYS_fcntl, .when = { IS(1, F_DUPFD_CLOEXEC) } },
	{ .nr = SYS_mmap, .when = { HAS_NOT(2, PROT_EXEC), HAS_NOT(3, MAP_SHARED) } },
	{ .nr = SYS_mprotect, .when = { HAS_NOT(2, PROT_EXEC) } },
	CALL(munmap), CALL(mremap), CALL(brk), CALL(madvise), CALL(setitimer), CALL(clock_gettime),
	CALL(gettimeofday), CALL(getrandom), CALL(futex), CALL(rt_sigreturn), CALL(rt_sigprocmask),
	CALL(restart_syscall), CALL(exit_group), CALL(exit),
	CALL(sysinfo), /* qsort() wants to know how much memory there is */
};

/* What the keeper does beside that. The reader's own filter takes it away again. */
static const struct lg_syscall_rule keeper_rules[] = {
	/* fork() */
	{ .nr = SYS_clone, .when = { IS(0, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD) } },
	CALL(wait4), CALL(set_robust_list), CALL(getppid), CALL(getpid), CALL(gettid),
	{ .nr = SYS_prctl, .when = { IS(0, PR_SET_PDEATHSIG) } },
	{ .nr = SYS_prctl, .when = { IS(0, PR_SET_NO_NEW_PRIVS) } },
	{ .nr = SYS_prctl, .when = { IS(0, PR_SET_SECCOMP) } },
};

static int limit(int what, rlim_t value)
{
	struct rlimit r = { value, value }, old;

	if (!getrlimit(what, &old) && old.rlim_max < value)
		r.rlim_cur = r.rlim_max = old.rlim_max;
	return setrlimit(what, &r);
}

static int limits(struct lg_error *err)
{
	if (limit(RLIMIT_CORE, 0) || limit(RLIMIT_FSIZE, 0) || limit(RLIMIT_NOFILE, 32) ||
	    limit(RLIMIT_CPU, CPU_SECONDS) ||
	    (!LG_CONFINE_SANITIZER && (limit(RLIMIT_DATA, DATA_BYTES) || limit(RLIMIT_AS, MAPPED_BYTES))))
		return lg_fail_errno(err, errno, "setrlimit");
	return 0;
}

/* The recorder takes some signals through a descriptor, and ignores others. */
static void usual_signals(void)
{
	static const int those[] = { SIGALRM, SIGCHLD, SIGBUS, SIGSEGV, SIGABRT, SIGXCPU };
	sigset_t none;

	for (size_t i = 0; i < sizeof those / sizeof *those; i++)
		(void)signal(those[i], SIG_DFL);
	sigemptyset(&none);
	sigaddset(&none, SIGINT); /* of the terminal, to the whole group: the recorder decides */
	sigaddset(&none, SIGHUP);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int confine(pid_t recorder, struct lg_error *err)
{
	struct lg_syscall_rule rules[sizeof reader_rules / sizeof *reader_rules +
				     sizeof keeper_rules / sizeof *keeper_rules];
	int rc;

	(void)prctl(PR_SET_NAME, "laggard-names", 0, 0, 0);
	if ((rc = limits(err)) || (rc = lg_confine_to_own_user(err)))
		return rc;
	/* After the change of the user, which forgets it. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		return lg_fail_errno(err, errno, "prctl");
	if (getppid() != recorder)
		_exit(ENDED);
	memcpy(rules, reader_rules, sizeof reader_rules);
	memcpy((char *)rules + sizeof reader_rules, keeper_rules, sizeof keeper_rules);
	return lg_confine_syscalls(rules, sizeof rules / sizeof *rules, err);
}

/* -- packets -- */

static uint32_t seq; /* of the question that is answered */

static void say(const void *packet, size_t n)
{
	ssize_t sent;

	do
		sent = send(SOCK, packet, n, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent != (ssize_t)n)
		_exit(ENDED);
}

static void say_head(enum lg_say_kind kind, int status)
{
	struct lg_say s = { .kind = kind, .seq = seq, .status = status };

	say(&s, sizeof s);
}

/* Bytes of one packet behind its head; *ret_fd: -1 or a file that is ours to close. */
static size_t hear(struct lg_ask *ret, void *rest, size_t size, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec io[2] = { { ret, sizeof *ret }, { rest, size } };
	struct msghdr m = { .msg_iov = io, .msg_iovlen = 2, .msg_control = &control,
			    .msg_controllen = sizeof control };
	struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(SOCK, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof *ret)
		_exit(ENDED);
	*ret_fd = -1;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
	return (size_t)n - sizeof *ret;
}

/* lg_debug_opener: the recorder opens it. */
static int ask_for_debug(const struct lg_debug_names *d, int fd, const char *debug_dir, unsigned which)
{
	struct {
		struct lg_say head;
		struct lg_debug_names names;
	} p = { { .kind = LG_SAY_WANT_DEBUG, .seq = seq, .n = which }, *d };
	struct lg_ask a;
	int found;

	(void)fd;
	(void)debug_dir;
	say(&p, sizeof p);
	hear(&a, NULL, 0, &found);
	return found;
}

static void opened(int status, const char *build_id)
{
	struct {
		struct lg_say head;
		struct lg_say_id id;
	} p = { { .kind = LG_SAY_OPENED, .seq = seq, .status = status }, { "" } };

	memcpy(p.id.hex, build_id, strlen(build_id));
	say(&p, sizeof p);
}

static void exported(int fd)
{
	static const char *const names[LG_EXPORTS] = LG_EXPORT_NAMES;
	struct lg_elf_export v[LG_EXPORTS] = { 0 };
	struct {
		struct lg_say head;
		struct lg_say_exports exports;
	} p = { .head = { .kind = LG_SAY_EXPORTS, .seq = seq } };

	for (size_t i = 0; i < LG_EXPORTS; i++)
		v[i].name = names[i];
	(void)!lg_elf_exports(fd, v, LG_EXPORTS);
	for (size_t i = 0; i < LG_EXPORTS; i++) {
		p.exports.at[i] = v[i].at;
		p.exports.size[i] = v[i].size;
	}
	say(&p, sizeof p);
}

/* -- work -- */

struct names {
	char packet[LG_PACKET_BYTES];
	size_t n;
	const char *raw; /* of the record that is open, from first on */
	uint32_t first, count;
};

static void send_names(struct names *o)
{
	struct lg_say head = { .kind = LG_SAY_NAMES, .seq = seq };

	if (!o->n)
		return;
	memcpy(o->packet, &head, sizeof head);
	say(o->packet, o->n);
	o->n = 0;
}

static void close_record(struct names *o)
{
	struct lg_say_name r = { .first = o->first, .count = o->count };
	char buf[LG_SYMBOL_BYTES];
	const char *name;

	if (!o->count)
		return;
	name = lg_demangle(o->raw, buf, sizeof buf);
	r.len = (uint16_t)strnlen(name, LG_SYMBOL_BYTES - 1);
	o->count = 0;
	if (!r.len)
		return;
	if (o->n + sizeof r + r.len > sizeof o->packet)
		send_names(o);
	if (!o->n)
		o->n = sizeof(struct lg_say);
	memcpy(o->packet + o->n, &r, sizeof r);
	memcpy(o->packet + o->n + sizeof r, name, r.len);
	o->n += sizeof r + r.len;
}

/* Addresses come sorted: the same symbol repeats, its name is made and sent once. */
static void add_name(struct names *o, uint32_t i, const char *raw)
{
	if (o->count && raw == o->raw && i == o->first + o->count) {
		o->count++;
		return;
	}
	close_record(o);
	if (raw) {
		o->raw = raw;
		o->first = i;
		o->count = 1;
	}
}

/* Each has a text of its own: it goes out before the next is made. */
static void name_python(const struct lg_python_dump *dump, const uint64_t *pcs, uint32_t n)
{
	static struct names o;
	char buf[LG_SYMBOL_BYTES];

	o.n = 0;
	for (uint32_t i = 0; i < n; i++) {
		o.raw = lg_python_dump_find(dump, pcs[i], buf, sizeof buf);
		o.first = i;
		o.count = o.raw != NULL;
		close_record(&o);
	}
	send_names(&o);
}

static void name_all(struct lg_elf *elf, const struct lg_perf_map *map, const uint64_t *pcs, uint32_t n)
{
	static struct names o;
	uint64_t vaddr, offset;

	o.n = 0;
	for (uint32_t i = 0; i < n; i++) {
		const char *raw = NULL;

		if (map)
			raw = lg_perf_map_find(map, pcs[i]);
		else if (lg_elf_vaddr(elf, pcs[i], &vaddr))
			raw = lg_elf_find(elf, vaddr, &offset);
		add_name(&o, i, raw);
		if (elf && i % FORGET_EVERY == FORGET_EVERY - 1)
			lg_elf_forget(elf);
	}
	close_record(&o);
	send_names(&o);
}

static uint64_t *hear_pcs(uint32_t n)
{
	uint64_t *pcs = lg_calloc(n, sizeof *pcs);
	struct lg_ask a;
	int fd;

	for (uint32_t have = 0; pcs && have < n; have += a.n) {
		size_t got = hear(&a, pcs + have, (n - have) * sizeof *pcs, &fd);

		if (a.kind != LG_ASK_PCS || a.seq != seq || !a.n || got != a.n * sizeof *pcs)
			_exit(1);
	}
	return pcs;
}

static void name_job(const struct lg_ask *a, int fd)
{
	uint64_t *pcs = a->n <= LG_JOB_PCS_MAX ? hear_pcs(a->n) : NULL;
	struct lg_python_dump *dump = NULL;
	struct lg_perf_map *map = NULL;
	struct lg_elf *elf = NULL;
	struct lg_error err;
	int rc;

	lg_file_budget_begin(); /* one file at a time, within this process's own limits */
	rc = !pcs ? LG_E_NOMEM
	     : a->kind == LG_ASK_PERF_MAP ? lg_perf_map_open(&map, fd, &err)
	     : a->kind == LG_ASK_PYTHON   ? lg_python_dump_open(&dump, fd)
					  : lg_elf_open(&elf, fd, "", &err);

	opened(rc, elf ? lg_elf_build_id(elf) : "");
	if (dump)
		name_python(dump, pcs, a->n);
	else if (!rc)
		name_all(elf, map, pcs, a->n);
	say_head(LG_SAY_DONE, 0);
	lg_python_dump_free(dump);
	lg_perf_map_free(map);
	lg_elf_free(elf);
	lg_free(pcs);
}

static void read_for(uint32_t ms)
{
	struct itimerval t = { .it_value = { ms / 1000, ms % 1000 * 1000 } };

	(void)setitimer(ITIMER_REAL, &t, NULL); /* SIGALRM ends the process */
}

static void reader(void) __attribute__((noreturn));
static void reader(void)
{
	char id[LG_BUILD_ID_HEX];
	struct lg_ask a;
	int fd;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) ||
	    lg_confine_syscalls(reader_rules, sizeof reader_rules / sizeof *reader_rules, NULL))
		_exit(1);
	lg_debug_opener = ask_for_debug;
	for (;;) {
		hear(&a, NULL, 0, &fd);
		seq = a.seq;
		read_for(a.budget_ms);
		if (a.kind == LG_ASK_LEAVE) {
			_exit(LEFT);
		} else if (a.kind == LG_ASK_BUILD_ID && fd >= 0) {
			(void)!lg_elf_build_id_of(fd, id);
			opened(0, id);
		} else if (a.kind == LG_ASK_EXPORTS && fd >= 0) {
			exported(fd);
		} else if ((a.kind == LG_ASK_ELF || a.kind == LG_ASK_PERF_MAP || a.kind == LG_ASK_PYTHON) &&
			   fd >= 0) {
			name_job(&a, fd);
		} /* else: of a question that its reader did not survive */
		read_for(0);
		if (fd >= 0)
			close(fd);
	}
}

void lg_symbol_keeper(int sock, pid_t recorder)
{
	struct lg_error err;
	int rc;

	usual_signals();
	lg_confine_to_socket(sock, SOCK);
	rc = confine(recorder, &err);
	say_head(LG_SAY_DONE, rc);
	for (int deaths = 0; !rc && deaths < DEATHS_MAX;) {
		pid_t pid = fork();
		int st = 0;

		if (!pid)
			reader();
		if (pid > 0)
			say_head(LG_SAY_READER, pid);
		if (pid < 0 || waitpid(pid, &st, 0) != pid || (WIFEXITED(st) && WEXITSTATUS(st) == ENDED))
			break;
		if (WIFEXITED(st) && WEXITSTATUS(st) == LEFT)
			continue;
		deaths++;
		say_head(LG_SAY_DIED, WIFSIGNALED(st) ? WTERMSIG(st) : 0);
	}
	_exit(0);
}
