/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - the checks behind laggard doctor, one function each. */
#include "record/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/patient.h"
#include "record/procfs.h"
#include "record/runtime_dir.h"
#include "record/tier.h"

struct probing {
	const char *dir, *program;
	char **env;
	struct lg_check *c; /* the one being filled */
};

static void found(struct probing *p, enum lg_grade grade, const char *fmt, ...) LG_PRINTF(3, 4);
static void found(struct probing *p, enum lg_grade grade, const char *fmt, ...)
{
	va_list ap;

	p->c->grade = grade;
	va_start(ap, fmt);
	vsnprintf(p->c->found, sizeof p->c->found, fmt, ap);
	va_end(ap);
}

static void lost(struct probing *p, const char *text)
{
	snprintf(p->c->lost, sizeof p->c->lost, "%s", text);
}

static void fix(struct probing *p, const char *fmt, ...) LG_PRINTF(2, 3);
static void fix(struct probing *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->c->fix, sizeof p->c->fix, fmt, ap);
	va_end(ap);
}

static long read_number(const char *path, long missing)
{
	char text[64];

	return lg_proc_read(path, text, sizeof text) > 0 ? strtol(text, NULL, 10) : missing;
}

/* A whole tier's source, really loaded and attached. */
static void check_source(struct probing *p, enum lg_tier tier, const char *works)
{
	struct lg_probe r;

	lg_probe_source(lg_tier_main(tier), lg_tier_name(tier), &r);
	if (r.works) {
		found(p, *r.why ? LG_GRADE_LIMITED : LG_GRADE_OK, "%s", *r.why ? r.why : works);
		if (*r.why)
			lost(p, r.lost);
		return;
	}
	found(p, LG_GRADE_MISSING, "%s", r.why);
	lost(p, r.lost);
	fix(p, "%s", r.fix);
}

static void check_bpf(struct probing *p)
{
	check_source(p, LG_TIER_BPF, "programs load and attach");
	if (p->c->grade == LG_GRADE_OK)
		return;
	if (!*p->c->lost)
		lost(p, "who holds a kernel lock with its own stack; wakers; exact states of all "
			"processes at low cost");
	if (!*p->c->fix && geteuid())
		fix(p, "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog,"
		       "cap_dac_read_search+ep %s", p->program);
}

static void check_tracepoints(struct probing *p)
{
	check_source(p, LG_TIER_PERF, "scheduler and lock tracepoints open");
	if (p->c->grade == LG_GRADE_OK)
		return;
	if (!*p->c->lost)
		lost(p, "scheduler states of all processes where eBPF is not available");
	if (!*p->c->fix && geteuid())
		fix(p, "sudo setcap cap_perfmon,cap_dac_read_search+ep %s", p->program);
}

static int perf_open(uint32_t type, uint64_t config, pid_t pid, int cpu, bool kernel)
{
	struct perf_event_attr a = { .size = sizeof a, .type = type, .config = config,
				     .sample_period = 10 * 1000 * 1000,
				     .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN,
				     .exclude_kernel = !kernel, .disabled = 1 };

	return (int)syscall(SYS_perf_event_open, &a, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void check_samples(struct probing *p)
{
	long paranoid = read_number("/proc/sys/kernel/perf_event_paranoid", -2);
	int fd = perf_open(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, -1, 0, true);

	if (fd >= 0) {
		close(fd);
		found(p, LG_GRADE_OK, "CPU samples of every process, with kernel stacks");
		return;
	}
	fd = perf_open(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 0, -1, false);
	if (fd >= 0) {
		close(fd);
		found(p, LG_GRADE_LIMITED, "own processes only (perf_event_paranoid is %ld)",
		      paranoid);
		lost(p, "what other users' processes and the kernel run");
	} else {
		found(p, LG_GRADE_MISSING, "perf_event_open: %s (perf_event_paranoid is %ld)",
		      strerror(errno), paranoid);
		lost(p, "all CPU samples");
	}
	fix(p, "sudo sysctl kernel.perf_event_paranoid=-1");
}

static void check_pmu(struct probing *p)
{
	int fd = perf_open(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 0, -1, false);

	if (fd >= 0) {
		close(fd);
		found(p, LG_GRADE_OK, "hardware cycles are counted");
		return;
	}
	found(p, LG_GRADE_LIMITED, "no hardware counters (%s): samples come from a timer",
	      strerror(errno));
	lost(p, "samples inside sections with interrupts off pile up at their end");
}

static void check_tracefs(struct probing *p)
{
	static const char *const roots[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	static const char *const need[] = {
		"sched/sched_switch", "sched/sched_waking", "sched/sched_process_fork",
		"lock/contention_begin", "lock/contention_end",
		"mmap_lock/mmap_lock_acquire_returned", "mmap_lock/mmap_lock_released",
	};
	char path[256], text[256], missing[200] = "";
	const char *root = NULL;
	int error = 0;

	for (size_t i = 0; i < 2 && !root; i++) {
		snprintf(path, sizeof path, "%s/events/sched/sched_switch/format", roots[i]);
		if (lg_proc_read(path, text, sizeof text) > 0)
			root = roots[i];
		else if (!error || errno == EACCES)
			error = errno;
	}
	if (!root) {
		found(p, LG_GRADE_MISSING, "tracefs cannot be read: %s", strerror(error));
		lost(p, "the formats of tracepoints: no tier perf, no exact kernel fields");
		if (error == ENOENT)
			fix(p, "sudo mount -t tracefs tracefs /sys/kernel/tracing");
		else
			fix(p, "sudo mount -o remount,mode=755 /sys/kernel/tracing");
		return;
	}
	for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
		size_t n = strlen(missing);

		snprintf(path, sizeof path, "%s/events/%s/format", root, need[i]);
		if (lg_proc_read(path, text, sizeof text) <= 0)
			snprintf(missing + n, sizeof missing - n, "%s%s", n ? ", " : "", need[i]);
	}
	if (*missing) {
		found(p, LG_GRADE_LIMITED, "this kernel has no %s", missing);
		lost(p, "what these tracepoints would tell; a kernel with them has "
			"CONFIG_TRACEPOINTS and is 5.19 or newer for contention_*");
		return;
	}
	found(p, LG_GRADE_OK, "scheduler, contention and mmap_lock tracepoints are readable");
}

static void check_btf(struct probing *p)
{
	if (!access("/sys/kernel/btf/vmlinux", R_OK)) {
		found(p, LG_GRADE_OK, "kernel types are readable");
		return;
	}
	found(p, LG_GRADE_MISSING, "/sys/kernel/btf/vmlinux: %s", strerror(errno));
	lost(p, "eBPF programs cannot adapt to this kernel: tier perf at best");
	fix(p, "install a kernel built with CONFIG_DEBUG_INFO_BTF=y");
}

static void check_kallsyms(struct probing *p)
{
	char text[32768]; /* per-CPU symbols come first and have small addresses everywhere */
	bool real = false;

	if (lg_proc_read("/proc/kallsyms", text, sizeof text) > 0)
		for (char *line = text; line && *line && !real; line = strchr(line, '\n')) {
			if (*line == '\n')
				line++;
			real = strtoull(line, NULL, 16) > UINT32_MAX;
		}
	if (real) {
		found(p, LG_GRADE_OK, "kernel functions have names");
		return;
	}
	found(p, LG_GRADE_MISSING, "kernel addresses are hidden (kptr_restrict is %ld)",
	      read_number("/proc/sys/kernel/kptr_restrict", -1));
	lost(p, "names of kernel functions in stacks");
	/* kernel/ksyms_common.c, kallsyms_show_value(): with kptr_restrict 0 it is
	 * perf_event_paranoid that decides. */
	if (read_number("/proc/sys/kernel/kptr_restrict", 1) == 0)
		fix(p, "sudo sysctl kernel.perf_event_paranoid=1");
	else
		fix(p, "sudo sysctl kernel.kptr_restrict=0 (or setcap cap_syslog)");
}

struct readable {
	unsigned yes, no;
};

/* Opening is enough: the permission is checked then (mm_access in fs/proc/base.c), nothing read. */
static void try_environ(void *arg, int32_t pid)
{
	struct readable *r = arg;
	char path[64];
	int fd;

	if (r->yes + r->no >= 2000)
		return;
	snprintf(path, sizeof path, "/proc/%d/environ", pid);
	fd = lg_patient_open(pid, path, O_RDONLY);
	if (fd >= 0) {
		close(fd);
		r->yes++;
	} else if (errno == EACCES || errno == EPERM || errno == EAGAIN) {
		r->no++;
	}
}

static void check_others(struct probing *p)
{
	long scope = read_number("/proc/sys/kernel/yama/ptrace_scope", -1);
	struct readable r = { 0 };

	(void)lg_proc_each("/proc", try_environ, &r);
	if (!r.no) {
		found(p, LG_GRADE_OK, "all processes can be read");
		return;
	}
	found(p, LG_GRADE_LIMITED, "%u of %u processes cannot be read%s", r.no, r.yes + r.no,
	      scope > 1 ? " (yama.ptrace_scope restricts even own ones)" : "");
	lost(p, "rank, mappings and function names of those processes");
	if (geteuid())
		fix(p, "sudo setcap cap_sys_ptrace+ep %s", p->program);
}

static void check_caps(struct probing *p)
{
	static const struct { int bit; const char *name; } caps[] = {
		{ 38, "perfmon" }, { 39, "bpf" }, { 19, "sys_ptrace" }, { 34, "syslog" },
		{ 2, "dac_read_search" }, { 40, "checkpoint_restore" },
	};
	char text[4096], have[128] = "", miss[128] = "", *e;
	unsigned long long eff = 0;

	if (lg_proc_read("/proc/self/status", text, sizeof text) > 0 &&
	    (e = strstr(text, "\nCapEff:")))
		eff = strtoull(e + 8, NULL, 16);
	for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
		bool h = eff >> caps[i].bit & 1;
		char *to = h ? have : miss;
		size_t n = strlen(to);

		snprintf(to + n, sizeof have - n, "%s%s", n ? "," : "", caps[i].name);
	}
	/* CAP_SYS_ADMIN (21) stands for perfmon and bpf on every kernel. */
	if (!*miss || eff >> 21 & 1) {
		found(p, LG_GRADE_OK, "%s%s", eff >> 21 & 1 ? "sys_admin," : "", have);
		return;
	}
	found(p, LG_GRADE_LIMITED, "missing: %s", miss);
	lost(p, "what each one opens: see the lines above");
	fix(p, "sudo setcap cap_perfmon,cap_bpf,cap_sys_ptrace,cap_syslog,cap_dac_read_search,"
	       "cap_checkpoint_restore+ep %s", p->program);
}

static void check_memlock(struct probing *p)
{
	struct rlimit r;
	long mlock_kb = read_number("/proc/sys/kernel/perf_event_mlock_kb", 516);

	if (getrlimit(RLIMIT_MEMLOCK, &r))
		r.rlim_cur = 0;
	if (!geteuid() || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= 64u << 20) {
		found(p, LG_GRADE_OK, "buffers may be locked");
		return;
	}
	found(p, LG_GRADE_LIMITED, "%llu kB a process, and %ld kB a CPU for perf",
	      (unsigned long long)r.rlim_cur / 1024, mlock_kb);
	lost(p, "events, when a burst overflows the small buffers (counted as lost)");
	fix(p, "ulimit -l unlimited (limits.conf: memlock)");
}

static void check_marks(struct probing *p)
{
	struct lg_error err = { 0 };
	struct lg_runtime_dir d;

	if (lg_runtime_dir_make(&d, true, p->env, &err)) {
		found(p, LG_GRADE_MISSING, "%s", err.message);
		lost(p, "steps and stages of the training program");
		fix(p, "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
		return;
	}
	found(p, d.memory ? LG_GRADE_OK : LG_GRADE_LIMITED, "in %.*s%s",
	      (int)(strrchr(d.path, '/') - d.path), d.path,
	      d.memory ? "" : ", which is no memory or has less than 32 MB free");
	if (!d.memory) {
		lost(p, "marks go through a file on disk: slower");
		fix(p, "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
	}
	lg_runtime_dir_remove(&d);
}

/* In a process of its own: none of a maker's code runs in this one. */
static void check_gpu(struct probing *p)
{
	struct lg_probe r;

	lg_probe_source(&lg_source_devices, "devices", &r);
	if (r.works) {
		found(p, *r.why ? LG_GRADE_LIMITED : LG_GRADE_OK, "%.120s%s%.120s", r.found, *r.why ? "; " : "", r.why);
	} else {
		found(p, LG_GRADE_MISSING, "%s", r.why);
	}
	lost(p, "nothing on a machine without a GPU; else its clocks, power, heat, memory and errors");
}

static void check_psi(struct probing *p)
{
	char text[256];
	ssize_t n = lg_proc_read("/proc/pressure/cpu", text, sizeof text);

	if (n > 0) {
		found(p, LG_GRADE_OK, "pressure of CPU, memory and I/O is counted");
		return;
	}
	found(p, LG_GRADE_MISSING, "/proc/pressure: %s", strerror((int)-n));
	lost(p, "how long tasks waited for CPU, memory and I/O machine-wide");
	fix(p, "boot with psi=1");
}

static void check_cgroup(struct probing *p)
{
	bool v1 = !access("/sys/fs/cgroup/cpu/cpu.stat", R_OK) ||
		  !access("/sys/fs/cgroup/cpu,cpuacct/cpu.stat", R_OK);
	bool v2 = !access("/sys/fs/cgroup/cgroup.controllers", R_OK);

	if (v1 || v2) {
		found(p, LG_GRADE_OK, "version %s", v2 ? "2" : "1");
		return;
	}
	/* The root group of v1 has no cpu.stat with bandwidth; a mounted controller is enough. */
	if (!access("/sys/fs/cgroup/cpu", X_OK) || !access("/sys/fs/cgroup/cpu,cpuacct", X_OK)) {
		found(p, LG_GRADE_OK, "version 1");
		return;
	}
	found(p, LG_GRADE_MISSING, "no CPU controller is mounted under /sys/fs/cgroup");
	lost(p, "throttling by a CPU quota");
}

static void check_disk(struct probing *p)
{
	struct statvfs v;
	double gb;

	if (statvfs(p->dir, &v) || access(p->dir, W_OK)) {
		found(p, LG_GRADE_MISSING, "%s: %s", p->dir, strerror(errno));
		lost(p, "recordings cannot be written here");
		fix(p, "cd to a directory that can be written, or use -o FILE");
		return;
	}
	gb = (double)v.f_bavail * (double)v.f_frsize * 1e-9;
	found(p, gb < 1 ? LG_GRADE_LIMITED : LG_GRADE_OK, "%.1f GB free in %s", gb, p->dir);
	if (gb < 1) {
		lost(p, "a long recording may fill the disk");
		fix(p, "use -o FILE elsewhere, or --ring 60s");
	}
}

void lg_probe_machine(const char *dir, const char *program, char **env, struct lg_check *ret, size_t max,
		      size_t *ret_n)
{
	static const struct { const char *name; void (*f)(struct probing *p); } checks[] = {
		{ "ebpf", check_bpf }, { "tracepoints", check_tracepoints },
		{ "samples", check_samples }, { "counters", check_pmu },
		{ "tracefs", check_tracefs }, { "btf", check_btf }, { "kallsyms", check_kallsyms },
		{ "other-processes", check_others }, { "capabilities", check_caps },
		{ "memlock", check_memlock }, { "marks", check_marks }, { "gpu", check_gpu },
		{ "psi", check_psi }, { "cgroup", check_cgroup }, { "disk", check_disk },
	};
	struct probing p = { .dir = dir, .program = program, .env = env };
	size_t n = 0;

	for (size_t i = 0; i < sizeof checks / sizeof *checks && n < max; i++, n++) {
		p.c = &ret[n];
		*p.c = (struct lg_check){ 0 };
		snprintf(p.c->name, sizeof p.c->name, "%s", checks[i].name);
		checks[i].f(&p);
	}
	*ret_n = n;
}
