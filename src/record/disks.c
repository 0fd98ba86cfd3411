/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disks.c - see disks.h.
 *
 * /proc/diskstats (Documentation/admin-guide/iostats.rst) is one small file. /proc/PID/io
 * (Documentation/filesystems/proc.rst 3.3) takes no lock of the process's memory, but there may be
 * thousands: they are read at the beginning, and then only at the end of a second in which a disk was busy.
 * Its write_bytes counts when a page is made dirty, in the writer's own context, not when a kernel worker
 * sends it to the disk: it is what names the writer behind the page cache.
 */
#include "record/disks.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/patient.h"
#include "record/procfs.h"

enum { BUF = 64 << 10, SECTOR = 512, DISKS_MAX = 256, NAME_MAX_BYTES = 32 };
#define BUSY_SHARE 0.05
#define WORTH_BYTES (UINT64_C(1) << 20)

struct disk {
	char name[NAME_MAX_BYTES];
	bool counts; /* a whole disk, with none below it */
	bool known;
	uint64_t read, written, busy_ms;
};

struct process {
	int32_t pid;
	uint32_t seen;          /* number of the listing */
	uint64_t read, written; /* told so far */
	uint64_t now_read, now_written;
};

struct lg_disks {
	struct lg_builder *b;
	char *buf;
	struct disk *disks;
	size_t n_disks;
	struct lg_map by_pid; /* index into processes + 1 */
	struct process *processes;
	size_t n, cap;
	int64_t last;
	uint32_t listing; /* their number; 0 = none yet */
	int64_t now; /* of the reading under way */
	int diskstats; /* see lg_proc_read_held() */
};

int lg_disks_new(struct lg_disks **ret, struct lg_builder *b, struct lg_error *err)
{
	struct lg_disks *d = lg_calloc(1, sizeof *d);

	if (d) {
		d->b = b;
		d->buf = lg_calloc(BUF, 1);
		d->disks = lg_calloc(DISKS_MAX, sizeof *d->disks);
	}
	if (!d || !d->buf || !d->disks) {
		lg_disks_free(d);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = d;
	return 0;
}

void lg_disks_free(struct lg_disks *d)
{
	if (!d)
		return;
	lg_proc_let_go(&d->diskstats);
	lg_free(d->buf);
	lg_free(d->disks);
	lg_free(d->processes);
	lg_map_done(&d->by_pid);
	lg_free(d);
}

/* Partitions repeat what their disk counts, dm and md what the disks below them do. */
static bool is_lowest(const char *name)
{
	char path[128];
	struct dirent *e;
	bool above = false;
	DIR *dir;

	snprintf(path, sizeof path, "/sys/class/block/%s/partition", name);
	if (!access(path, F_OK))
		return false;
	snprintf(path, sizeof path, "/sys/class/block/%s/slaves", name);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		above |= e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return !above;
}

static struct disk *disk_of(struct lg_disks *d, const char *name)
{
	for (size_t i = 0; i < d->n_disks; i++)
		if (!strcmp(d->disks[i].name, name))
			return &d->disks[i];
	if (d->n_disks == DISKS_MAX)
		return NULL;
	memcpy(d->disks[d->n_disks].name, name, NAME_MAX_BYTES);
	d->disks[d->n_disks].counts = is_lowest(name);
	return &d->disks[d->n_disks++];
}

static void put(struct lg_disks *d, const char *what, const char *disk, lg_prc prc, const char *unit,
		uint64_t value)
{
	char name[64];

	snprintf(name, sizeof name, "%s%s%s", what, *disk ? " " : "", disk);
	lg_add_counter(d->b, &(struct lg_counter_row){
				     .ts = d->now, .value = (double)value,
				     .track = lg_track_get(d->b, &(struct lg_track_row){
									 .kind = LG_TRACK_COUNTER,
									 .name = lg_intern(d->b, name),
									 .unit = lg_intern(d->b, unit),
									 .prc = prc, .index = -1 }) });
}

/* Counters of 32 bits may wrap, and a device may go and come again under its name. */
static uint64_t more(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static bool read_disks(struct lg_disks *d)
{
	int64_t span = d->now - d->last;
	bool busy = false;

	if (lg_proc_read_held(&d->diskstats, "/proc/diskstats", d->buf, BUF) <= 0)
		return false;
	for (char *line = d->buf, *next; line && *line; line = next) {
		char name[NAME_MAX_BYTES];
		unsigned long long v[10];
		struct disk *k;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (sscanf(line, "%*u %*u %31s %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", name, v, v + 1,
			   v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9) != 11)
			continue;
		k = disk_of(d, name);
		if (!k || !k->counts)
			continue;
		if (k->known && d->last) {
			uint64_t rd = more(v[2], k->read) * SECTOR, wr = more(v[6], k->written) * SECTOR;
			uint64_t ns = more(v[9], k->busy_ms) * 1000000;

			if (rd)
				put(d, "disk.read", name, 0, "bytes", rd);
			if (wr)
				put(d, "disk.written", name, 0, "bytes", wr);
			if (ns)
				put(d, "disk.busy", name, 0, "ns", ns);
			busy |= (double)ns >= BUSY_SHARE * (double)span;
		}
		k->known = true;
		k->read = v[2];
		k->written = v[6];
		k->busy_ms = v[9];
	}
	return busy;
}

bool lg_disks_parse_io(const char *text, uint64_t *ret_read, uint64_t *ret_written)
{
	const char *r = strstr(text, "\nread_bytes: "), *w = strstr(text, "\nwrite_bytes: ");

	if (!r || !w)
		return false;
	*ret_read = strtoull(r + 13, NULL, 10);
	*ret_written = strtoull(w + 14, NULL, 10);
	return true;
}

struct sums {
	int32_t pid;
	uint64_t rd, wr;
};

struct sums_of_all {
	struct sums *v;
	size_t n, cap;
};

static void read_sums(void *arg, int32_t pid)
{
	struct sums_of_all *all = arg;
	char path[32], text[512];
	struct sums *s = &all->v[all->n];

	if (all->n == all->cap || !lg_patient_about(pid))
		return;
	snprintf(path, sizeof path, "/proc/%d/io", pid);
	s->pid = pid;
	/* Else gone, or not ours to see. */
	all->n += lg_read_now(path, text, sizeof text) > 0 && lg_disks_parse_io(text, &s->rd, &s->wr);
}

/* An errand: of all processes. */
static int read_all_sums(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	struct sums_of_all all = { .v = answer, .cap = room / sizeof *all.v };

	(void)told;
	(void)n;
	(void)ret_fd;
	(void)lg_proc_each("/proc", read_sums, &all);
	*ret_n = all.n * sizeof *all.v;
	return 0;
}

static void add_sums(struct lg_disks *d, int32_t pid, uint64_t rd, uint64_t wr)
{
	uint32_t at = lg_map_get(&d->by_pid, (uint32_t)pid);
	struct process *p;

	if (!at) {
		if (lg_grow(&d->processes, &d->cap, d->n + 1, sizeof *d->processes) ||
		    lg_map_set(&d->by_pid, (uint32_t)pid, (uint32_t)d->n + 1))
			return;
		at = (uint32_t)++d->n;
		d->processes[at - 1] = (struct process){ .pid = pid };
	}
	p = &d->processes[at - 1];
	if (p->seen < d->listing || rd < p->now_read || wr < p->now_written)
		p->read = p->written = 0; /* the pid is another's now, or new */
	p->now_read = rd;
	p->now_written = wr;
	if (!d->listing) { /* what it had done before the recording */
		p->read = rd;
		p->written = wr;
	}
	p->seen = d->listing + 1;
}

/* The next of its ancestors that is still there; NULL = none that is known. */
static struct process *heir_of(struct lg_disks *d, int32_t pid)
{
	for (int i = 0; i < 16 && pid > 1; i++) {
		uint32_t at;

		/* Of what no source told of, the builder makes a row without a parent. */
		pid = lg_process_read(d->b, lg_process_get(d->b, pid)).ppid;
		at = lg_map_get(&d->by_pid, (uint32_t)pid);
		if (at && d->processes[at - 1].seen == d->listing)
			return &d->processes[at - 1];
	}
	return NULL;
}

/*
 * Who waits for a child inherits its sums (kernel/exit.c, wait_task_zombie(): psig->ioac). What was told of
 * the child is not told again of its parent. A parent that ignores SIGCHLD inherits nothing: then it has
 * grown by less.
 */
static void bury(struct lg_disks *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct process *p = &d->processes[i], *heir;

		if (p->seen != d->listing - 1)
			continue; /* lives, or was buried before */
		heir = heir_of(d, p->pid);
		if (heir && heir->now_read - heir->read >= p->now_read &&
		    heir->now_written - heir->written >= p->now_written) {
			heir->read += p->now_read;
			heir->written += p->now_written;
		}
	}
}

static void count_one(void *arg, int32_t pid)
{
	(void)pid;
	++*(size_t *)arg;
}

static void list_processes(struct lg_disks *d)
{
	size_t n = 64, got; /* some that come meanwhile */
	struct sums *v;

	(void)lg_proc_each("/proc", count_one, &n);
	v = lg_calloc(n, sizeof *v);
	/* Who withholds an answer makes this listing miss; of the next his processes are left out. */
	if (v && lg_patient_send(0, read_all_sums, "", 0, v, n * sizeof *v, &got, NULL))
		v = (lg_free(v), NULL);
	if (!v)
		return;
	for (size_t i = 0; i < got / sizeof *v; i++)
		add_sums(d, v[i].pid, v[i].rd, v[i].wr);
	lg_free(v);
	d->listing++;
	bury(d);
	/* Little by little is told, too, when it has become enough. */
	for (size_t i = 0; i < d->n && d->listing > 1; i++) {
		struct process *p = &d->processes[i];

		if (p->seen != d->listing)
			continue;
		if (p->now_read >= p->read + WORTH_BYTES) {
			put(d, "io.read", "", lg_process_get(d->b, p->pid), "bytes", p->now_read - p->read);
			p->read = p->now_read;
		}
		if (p->now_written >= p->written + WORTH_BYTES) {
			put(d, "io.written", "", lg_process_get(d->b, p->pid), "bytes",
			    p->now_written - p->written);
			p->written = p->now_written;
		}
	}
}

void lg_disks_read(struct lg_disks *d, int64_t now)
{
	bool busy;

	d->now = now;
	busy = read_disks(d);
	d->last = now;
	if (!d->listing || busy)
		list_processes(d);
}
