/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_this_machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/perfdata/perfdata.h"
#include "symbols/open_foreign.h"

#define NS INT64_C(1000000000)

enum {
	LIVES_MAX = 64,
	/* A change has the time of the last tick, up to 10 ms old (current_time() in fs/inode.c). */
	TICK_NS = 20000000,
	SLEW = 2000,              /* see perfdata.c: how far two clocks drift apart */
	NO_RANDOMIZE = 0x0040000  /* ADDR_NO_RANDOMIZE */
};

void lg_pd_here_done(struct lg_pd_here *h)
{
	lg_free(h->inode);
	lg_map_done(&h->by_key);
	h->inode = NULL;
	h->n = h->cap = 0;
}

uint32_t lg_pd_here_inode(struct lg_pd_here *h, const struct lg_pd_inode *f)
{
	uint64_t dev = (uint64_t)f->maj << 32 | f->min;
	uint64_t key = lg_mix64(lg_mix64(lg_mix64(dev) ^ f->ino) ^ f->gen) ^ f->name;
	uint32_t i = lg_map_get(&h->by_key, key);

	if (i) {
		const struct lg_pd_inode *o = &h->inode[i - 1];

		if (o->name == f->name && o->maj == f->maj && o->min == f->min && o->ino == f->ino &&
		    o->gen == f->gen)
			return i;
	}
	if (h->n >= INT32_MAX || lg_grow(&h->inode, &h->cap, h->n + 1, sizeof *h->inode) ||
	    lg_map_set(&h->by_key, key, (uint32_t)h->n + 1))
		return 0;
	h->inode[h->n] = *f;
	return (uint32_t)++h->n;
}

uint64_t lg_pd_running_symbol(const char *name)
{
	char line[1024];
	FILE *f = fopen("/proc/kallsyms", "re");
	size_t n = strlen(name);
	uint64_t addr = 0;

	while (f && fgets(line, sizeof line, f)) {
		char *end;
		uint64_t v = strtoull(line, &end, 16);

		if (strlen(end) > 3 + n && !strncmp(end + 3, name, n) && strchr("\n\t ", end[3 + n])) {
			addr = v;
			break;
		}
	}
	if (f)
		fclose(f);
	return addr;
}

/* -- clocks -- */

static int64_t now(clockid_t id)
{
	struct timespec t = { 0 };

	clock_gettime(id, &t);
	return t.tv_sec * NS + t.tv_nsec;
}

/*
 * perf's own clock, which no call reads: the time of a record that changing one's name to what it is
 * leaves in a buffer of one's own. Of all on one CPU (-1 = of this thread alone): an event of a thread has
 * the kernel switch on what it does when threads change, which takes 5 to 20 ms (account_event() in
 * kernel/events/core.c: static_branch_enable(), synchronize_rcu()); one of a CPU does not, but takes a
 * privilege.
 */
static bool perf_now(int cpu, int64_t *ret)
{
	struct perf_event_attr a = { .size = sizeof a, .type = PERF_TYPE_SOFTWARE,
				     .config = PERF_COUNT_SW_DUMMY, .sample_type = PERF_SAMPLE_TIME,
				     .comm = 1, .sample_id_all = 1, .exclude_kernel = 1, .exclude_hv = 1 };
	int fd = (int)syscall(SYS_perf_event_open, &a, cpu < 0 ? 0 : -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *p = fd < 0 ? MAP_FAILED : mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool ok = false;
	char name[16];

	if (p != MAP_FAILED) {
		const struct perf_event_mmap_page *head = (const void *)p;
		struct perf_event_header r;
		uint64_t ts;

		if (!prctl(PR_GET_NAME, name) && !prctl(PR_SET_NAME, name) &&
		    __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE) >= sizeof r + sizeof ts) {
			memcpy(&r, p + page, sizeof r);
			ok = r.type == PERF_RECORD_COMM && r.size >= sizeof r + sizeof ts && r.size <= page;
			if (ok) {
				memcpy(&ts, p + page + r.size - sizeof ts, sizeof ts);
				*ret = (int64_t)(ts & INT64_MAX);
			}
		}
		munmap(p, 2 * page);
	}
	if (fd >= 0)
		close(fd);
	return ok;
}

/* How far perf's own clock is ahead of CLOCK_MONOTONIC, once for the process. */
static struct { bool tried, known; int64_t ahead; } perf_clock;

void lg_perfdata_clock(void)
{
	int64_t t;

	if (perf_clock.tried)
		return;
	perf_clock.tried = true;
	/* Moved to another CPU in between, it is not there. */
	perf_clock.known = perf_now(sched_getcpu(), &t) || perf_now(-1, &t);
	if (perf_clock.known)
		perf_clock.ahead = t - now(CLOCK_MONOTONIC);
}

static void read_clocks(struct lg_pd_here *h)
{
	if (h->clock_tried)
		return;
	h->clock_tried = true;
	h->wall_now = now(CLOCK_REALTIME);
	h->boot = h->wall_now - now(CLOCK_BOOTTIME);
	/* Clocks that stand still while the machine sleeps: it may have slept ever since the recording. */
	if (h->clockid != CLOCK_REALTIME && h->clockid != CLOCK_BOOTTIME)
		h->slept = now(CLOCK_BOOTTIME) - now(CLOCK_MONOTONIC);
	switch (h->clockid) {
	case -1:
		lg_perfdata_clock();
		h->clock_known = perf_clock.known;
		h->clock_now = now(CLOCK_MONOTONIC) + perf_clock.ahead;
		break;
	case CLOCK_REALTIME: case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_RAW: case CLOCK_BOOTTIME:
		h->clock_now = now(h->clockid);
		h->clock_known = true;
		break;
	default:
		break;
	}
}

/* -- the same boot? -- */

static bool is_default_text(uint64_t at)
{
	/* Where the kernel lies if nothing moves it: x86 (__START_KERNEL), arm64 (KIMAGE_VADDR, over the
	 * years, and the head before _stext). */
	return at == 0xffffffff81000000u || (at & ~(uint64_t)0x1ffff) == 0xffff800080000000u ||
	       (at & ~(uint64_t)0x1ffff) == 0xffff800010000000u ||
	       (at & ~(uint64_t)0x1ffff) == 0xffff800008000000u ||
	       (at & ~(uint64_t)0x1ffff) == 0xffff000008000000u;
}

static void try_kernel(struct lg_pd_here *h, const struct lg_pd_kernel_text *k)
{
	uint64_t at;

	if (h->kernel_tried || !k->at || !*k->symbol)
		return;
	h->kernel_tried = true;
	at = lg_pd_running_symbol(k->symbol);
	if (!at)
		return;
	if (at != k->at) {
		h->other = true;
		return;
	}
	/*
	 * x86 has but some 500 places for it: another boot can have the same. That kernel has the same
	 * text to the byte then (perf takes its end from these symbols), and is this one built once more at
	 * worst.
	 */
	if (!is_default_text(at) &&
	    (k->end == lg_pd_running_symbol("_etext") || k->end == lg_pd_running_symbol("_edata")))
		h->proof = LG_PD_BY_KERNEL;
}

static bool randomizes(int32_t pid)
{
	char path[64], text[32];
	bool ok = true;
	FILE *f = fopen("/proc/sys/kernel/randomize_va_space", "re");

	if (!f)
		return false;
	ok = fgets(text, sizeof text, f) && strtol(text, NULL, 10) > 0;
	fclose(f);
	snprintf(path, sizeof path, "/proc/%d/personality", pid);
	f = ok ? fopen(path, "re") : NULL;
	if (!f)
		return false;
	ok = fgets(text, sizeof text, f) && !(strtoul(text, NULL, 16) & NO_RANDOMIZE);
	fclose(f);
	return ok;
}

static bool is_mapped(const struct lg_pd_here *h, const struct lg_pd_layers *l, const char *line)
{
	uint64_t start, end, pgoff, ino;
	uint32_t maj, min;
	char perms[8];
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &start, &end, perms,
		   &pgoff, &maj, &min, &ino, &at) < 7 || line[at] != '/')
		return false;
	/* A program that is linked to an address of its own, below, lies there always. */
	if (start <= UINT32_MAX || !strchr(perms, 'x'))
		return false;
	for (size_t i = 0; i < l->n; i++) {
		const struct lg_pd_map *m = &l->map[i];
		const struct lg_pd_inode *f = m->inode ? &h->inode[m->inode - 1] : NULL;

		if (m->start == start && m->end == end && m->pgoff == pgoff &&
		    !strcmp(lg_string(h->trace, m->name), line + at) &&
		    (!f || (f->maj == maj && f->min == min && f->ino == ino)))
			return true;
	}
	return false;
}

static void try_process(struct lg_pd_here *h, const struct lg_pd_space *s)
{
	char line[4352], path[64];
	FILE *f;

	if (s->pid <= 0 || !s->l || !s->l->n || h->lives >= LIVES_MAX)
		return;
	snprintf(path, sizeof path, "/proc/%d/maps", s->pid);
	f = fopen(path, "re");
	if (!f)
		return;
	h->lives++;
	while (!h->proof && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		if (is_mapped(h, s->l, line) && randomizes(s->pid)) {
			h->proof = LG_PD_BY_PROCESS;
			h->pid = s->pid;
		}
	}
	fclose(f);
}

static bool same_inode(const struct lg_pd_inode *f, int fd, bool *ret_gen)
{
	struct stat st;
	uint32_t gen[2] = { 0 }; /* declared as a long, but an int is written */

	*ret_gen = false;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || major(st.st_dev) != f->maj ||
	    minor(st.st_dev) != f->min || st.st_ino != f->ino)
		return false;
	if (!f->gen || ioctl(fd, FS_IOC_GETVERSION, gen))
		return true;
	*ret_gen = true;
	return gen[0] == (uint32_t)f->gen;
}

/* The generation tells an inode from all others that had its number: one that was not there when this machine
 * started can have been mapped only since. */
static void try_file(struct lg_pd_here *h, const struct lg_pd_inode *f)
{
	const char *name = lg_string(h->trace, f->name);
	struct statx st;
	bool gen;
	int fd;

	if (!f->gen || *name != '/')
		return;
	fd = lg_foreign_open_path(name, 0);
	if (fd < 0)
		return;
	read_clocks(h);
	if (same_inode(f, fd, &gen) && gen && !statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) &&
	    (st.stx_mask & STATX_BTIME) && st.stx_btime.tv_sec > h->boot / NS + 1) {
		h->proof = LG_PD_BY_FILE;
		h->name = f->name;
	}
	close(fd);
}

bool lg_pd_here_prove(struct lg_pd_here *h, const struct lg_pd_spaces *s, const struct lg_pd_kernel_text *k)
{
	if (h->proof || h->other)
		return false;
	try_kernel(h, k);
	if (h->other)
		return false;
	/* The other two say more: this boot, and nothing else. */
	for (enum lg_pd_proof by = h->proof; h->spaces_tried < s->n; h->spaces_tried++) {
		h->proof = LG_PD_UNPROVEN;
		try_process(h, &s->space[h->spaces_tried]);
		if (h->proof)
			return true;
		h->proof = by;
	}
	for (; !h->proof && h->inodes_tried < h->n; h->inodes_tried++)
		try_file(h, &h->inode[h->inodes_tried]);
	return h->proof != LG_PD_UNPROVEN;
}

/*
 * The time of change cannot be set, only the clock that gives it. A file that was not changed since before
 * this boot is what was mapped in it; later ones need to have been changed before they were mapped. (The time
 * of modification will not do: cp -p over the same inode sets it back. The link that perf makes in its cache
 * when it ends is a change as well: so be it.)
 */
bool lg_pd_home(struct lg_pd_here *h, uint32_t inode, int fd)
{
	struct lg_pd_inode *f = inode ? &h->inode[inode - 1] : NULL;
	int64_t changed, ts, ago;
	struct stat st;
	bool gen, same = false;

	if (f && h->proof && same_inode(f, fd, &gen) && !fstat(fd, &st)) {
		read_clocks(h);
		changed = st.st_ctim.tv_sec * NS + st.st_ctim.tv_nsec;
		ts = f->ts != INT64_MIN ? f->ts : h->first_ts;
		ago = h->clock_known && ts > 0 && ts <= h->clock_now ? h->clock_now - ts : -1;
		same = changed < h->boot - NS ||
		       (ago >= 0 && changed < h->wall_now - ago - ago / SLEW - h->slept - TICK_NS);
	}
	/* It may be asked for again, once there is a proof. */
	h->refused += (size_t)!same - (f && f->refused);
	if (f)
		f->refused = !same;
	return same;
}
