/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_ring.c - the reader's half of the kernel's ring (kernel/events/ring_buffer.c).
 *
 *   [ control page: data_head, data_tail ][ 2^k data pages ]
 *
 * The kernel writes data_head after the data; the reader loads it with acquire order, copies,
 * and stores data_tail with release order, which hands the bytes back. Both only grow. A record
 * that wraps is put together in `whole` (a record's size is a u16).
 */
#include "record/perf_ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "record/procfs.h"

#define EVENTS_MAX 16
#define RING_MIN ((size_t)32 << 10)
#define CPUS_MAX 4096

struct event {
	struct perf_event_attr attr;
	char *filter;
};

struct ring {
	int cpu, fd[EVENTS_MAX]; /* fd[0] owns the mapping */
	struct perf_event_mmap_page *page;
	bool dead; /* its CPU went away */
};

struct lg_perf_set {
	size_t ring_bytes, page_bytes;
	pid_t pid;
	struct event event[EVENTS_MAX];
	uint32_t n_event;
	struct ring *ring;
	size_t n, cap;
	bool enabled, program_refused;
	int program; /* its file + 1; 0 = none */
	int online;  /* which CPUs are: see lg_proc_read_held() */
	struct lg_map event_of_id; /* kernel id -> event + 1 */
	uint64_t whole[65536 / 8];
};

static int perf_event_open(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Many CPUs times many events pass the usual soft limit of 1024 files. */
static bool raise_fd_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= r.rlim_max)
		return false;
	r.rlim_cur = r.rlim_max;
	return !setrlimit(RLIMIT_NOFILE, &r);
}

/* "0-3,8-11" of a sysfs file; returns the count, 0 when unreadable. */
static size_t cpus_online(struct lg_perf_set *set, uint8_t online[CPUS_MAX])
{
	char text[4096], *s = text;
	size_t n = 0;

	memset(online, 0, CPUS_MAX);
	if (lg_proc_read_held(&set->online, "/sys/devices/system/cpu/online", text, sizeof text) < 0)
		text[0] = 0;
	while (*s >= '0' && *s <= '9') {
		unsigned long a = strtoul(s, &s, 10), b = a;

		if (*s == '-')
			b = strtoul(s + 1, &s, 10);
		for (; a <= b && a < CPUS_MAX; a++) {
			n += !online[a];
			online[a] = 1;
		}
		if (*s == ',')
			s++;
	}
	if (!n) { /* no sysfs: count from 0 */
		long conf = sysconf(_SC_NPROCESSORS_ONLN);

		for (n = 0; n < (size_t)(conf > 0 ? conf : 1) && n < CPUS_MAX; n++)
			online[n] = 1;
	}
	return n;
}

static struct ring *ring_find(struct lg_perf_set *s, int cpu)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->ring[i].cpu == cpu && !s->ring[i].dead)
			return &s->ring[i];
	return NULL;
}

static int ring_new(struct lg_perf_set *s, int cpu, struct ring **ret)
{
	struct ring *r;

	if (lg_grow(&s->ring, &s->cap, s->n + 1, sizeof *s->ring))
		return LG_E_NOMEM;
	r = &s->ring[s->n++];
	*r = (struct ring){ .cpu = cpu };
	for (size_t k = 0; k < EVENTS_MAX; k++)
		r->fd[k] = -1;
	*ret = r;
	return 0;
}

int lg_perf_set_new(struct lg_perf_set **ret, size_t ring_bytes, pid_t pid, struct lg_error *err)
{
	struct lg_perf_set *s = lg_calloc(1, sizeof *s);
	uint8_t online[CPUS_MAX];

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	s->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	s->pid = pid;
	for (s->ring_bytes = s->page_bytes; s->ring_bytes < ring_bytes; s->ring_bytes *= 2)
		;
	cpus_online(s, online);
	for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
		struct ring *r;

		if (online[cpu] && ring_new(s, cpu, &r)) {
			lg_perf_set_free(s);
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		}
	}
	*ret = s;
	return 0;
}

static void ring_close(struct lg_perf_set *s, struct ring *r)
{
	if (r->page)
		munmap(r->page, s->page_bytes + s->ring_bytes);
	r->page = NULL;
	for (size_t k = EVENTS_MAX; k-- > 0;) {
		if (r->fd[k] >= 0)
			close(r->fd[k]);
		r->fd[k] = -1;
	}
}

void lg_perf_set_free(struct lg_perf_set *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		ring_close(s, &s->ring[i]);
	for (size_t k = 0; k < s->n_event; k++)
		lg_free(s->event[k].filter);
	lg_free(s->ring);
	lg_map_done(&s->event_of_id);
	lg_proc_let_go(&s->online);
	lg_free(s);
}

/* The first ring may shrink to what RLIMIT_MEMLOCK and perf_event_mlock_kb allow. */
static int ring_map(struct lg_perf_set *s, struct ring *r, bool may_shrink)
{
	for (;;) {
		void *p = mmap(NULL, s->page_bytes + s->ring_bytes, PROT_READ | PROT_WRITE,
			       MAP_SHARED, r->fd[0], 0);

		if (p != MAP_FAILED) {
			r->page = p;
			return 0;
		}
		if (!may_shrink || (errno != EPERM && errno != ENOMEM) ||
		    s->ring_bytes / 2 < RING_MIN)
			return -errno;
		s->ring_bytes /= 2;
	}
}

/* 0, or -errno; -ENODEV: the CPU is offline. */
static int open_one(struct lg_perf_set *s, struct ring *r, uint32_t k)
{
	struct event *e = &s->event[k];
	uint64_t id;
	int fd = perf_event_open(&e->attr, s->pid, r->cpu), rc;

	if (fd < 0 && errno == EMFILE && raise_fd_limit())
		fd = perf_event_open(&e->attr, s->pid, r->cpu);
	if (fd < 0)
		return -errno;
	r->fd[k] = fd;
	if (e->attr.sample_period && s->program && ioctl(fd, PERF_EVENT_IOC_SET_BPF, s->program - 1))
		s->program_refused = true;
	if (!k) {
		bool first = true;

		for (size_t i = 0; i < s->n; i++)
			first = first && !s->ring[i].page;
		rc = ring_map(s, r, first);
		if (rc)
			return rc;
	} else if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, r->fd[0])) {
		return -errno;
	}
	if (e->filter && ioctl(fd, PERF_EVENT_IOC_SET_FILTER, e->filter))
		return -errno;
	if (ioctl(fd, PERF_EVENT_IOC_ID, &id))
		return -errno;
	return lg_map_set(&s->event_of_id, id, k + 1) ? -ENOMEM : 0;
}

int lg_perf_set_add(struct lg_perf_set *s, const struct perf_event_attr *attr, const char *filter,
		    const char *what, uint32_t *ret_event, struct lg_error *err)
{
	struct event *e = &s->event[s->n_event];
	size_t opened = 0;

	if (s->n_event == EVENTS_MAX)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "too many perf events");
	e->attr = *attr;
	e->attr.size = sizeof e->attr;
	e->attr.disabled = 1;
	e->attr.inherit = s->pid > 0;
	e->attr.use_clockid = 1;
	e->attr.clockid = CLOCK_MONOTONIC;
	e->attr.sample_id_all = 1;
	e->attr.sample_type |= PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			       PERF_SAMPLE_CPU;
	/* Wake up early enough that a scheduling delay of the recorder loses nothing. */
	e->attr.watermark = 1;
	e->attr.wakeup_watermark = (uint32_t)(s->ring_bytes / 4);
	e->filter = filter ? lg_strdup(filter) : NULL;
	if (filter && !e->filter)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	for (size_t i = 0; i < s->n; i++) {
		int rc = s->ring[i].dead ? -ENODEV : open_one(s, &s->ring[i], s->n_event);

		if (rc == -ENODEV) { /* went offline since it was listed */
			ring_close(s, &s->ring[i]);
			s->ring[i].dead = true;
			continue;
		}
		if (rc) {
			lg_free(e->filter);
			e->filter = NULL;
			for (size_t k = 0; k <= i; k++) {
				if (s->ring[k].fd[s->n_event] >= 0)
					close(s->ring[k].fd[s->n_event]);
				s->ring[k].fd[s->n_event] = -1;
			}
			return lg_fail_errno(err, -rc, "perf event %s on CPU %d", what,
					     s->ring[i].cpu);
		}
		opened++;
	}
	if (!opened)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "perf event %s: no CPU has it",
			       what);
	*ret_event = s->n_event++;
	return 0;
}

static int ring_enable(struct lg_perf_set *s, const struct ring *r)
{
	for (size_t k = 0; k < s->n_event; k++)
		if (r->fd[k] >= 0 && ioctl(r->fd[k], PERF_EVENT_IOC_ENABLE, 0))
			return -errno;
	return 0;
}

int lg_perf_set_enable(struct lg_perf_set *s, struct lg_error *err)
{
	for (size_t i = 0; i < s->n; i++) {
		int rc = ring_enable(s, &s->ring[i]);

		if (rc && rc != -ENODEV)
			return lg_fail_errno(err, -rc, "enabling perf events on CPU %d",
					     s->ring[i].cpu);
	}
	s->enabled = true;
	return 0;
}

void lg_perf_set_disable(struct lg_perf_set *s)
{
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->n_event; k++)
			if (s->ring[i].fd[k] >= 0)
				ioctl(s->ring[i].fd[k], PERF_EVENT_IOC_DISABLE, 0);
	s->enabled = false;
}

void lg_perf_set_program(struct lg_perf_set *s, int prog_fd)
{
	s->program = prog_fd + 1;
}

bool lg_perf_set_program_refused(const struct lg_perf_set *s)
{
	return s->program_refused;
}

int lg_perf_set_fd(const struct lg_perf_set *s, size_t i)
{
	return i < s->n ? s->ring[i].fd[0] : -1;
}

int lg_perf_set_rescan(struct lg_perf_set *s, struct lg_error *err)
{
	uint8_t online[CPUS_MAX];

	cpus_online(s, online);
	for (size_t i = 0; i < s->n; i++)
		if (!s->ring[i].dead && !online[s->ring[i].cpu])
			s->ring[i].dead = true; /* still drained; a return opens a new ring */
	for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
		struct ring *r;
		int rc = 0;

		if (!online[cpu] || ring_find(s, cpu))
			continue;
		if (ring_new(s, cpu, &r))
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		for (uint32_t k = 0; k < s->n_event && !rc; k++)
			rc = open_one(s, r, k);
		if (!rc && s->enabled)
			rc = ring_enable(s, r);
		if (rc) {
			ring_close(s, r);
			r->dead = true;
			if (rc != -ENODEV)
				return lg_fail_errno(err, -rc, "perf events on new CPU %d", cpu);
		}
	}
	return 0;
}

static int ring_drain(struct lg_perf_set *s, struct ring *r, lg_perf_record_fn *fn, void *arg,
		      struct lg_error *err)
{
	const uint8_t *base = (const uint8_t *)r->page + s->page_bytes;
	size_t mask = s->ring_bytes - 1;
	uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = r->page->data_tail;

	while (tail < head) {
		size_t at = (size_t)tail & mask, left = s->ring_bytes - at;
		/* Records are 8-byte aligned, so a header never wraps. */
		const struct perf_event_header *h = (const void *)(base + at);
		size_t n = h->size;

		if (n < sizeof *h || n > head - tail || (n & 7))
			return lg_fail(err, LG_E_FORMAT, tail, "damaged perf ring of CPU %d", r->cpu);
		if (n > left) {
			memcpy(s->whole, base + at, left);
			memcpy((uint8_t *)s->whole + left, base, n - left);
			h = (const void *)s->whole;
		}
		fn(arg, r->cpu, h);
		tail += n;
	}
	__atomic_store_n(&r->page->data_tail, tail, __ATOMIC_RELEASE);
	return 0;
}

int lg_perf_set_drain(struct lg_perf_set *s, lg_perf_record_fn *fn, void *arg, struct lg_error *err)
{
	for (size_t i = 0; i < s->n; i++) {
		int rc = s->ring[i].page ? ring_drain(s, &s->ring[i], fn, arg, err) : 0;

		if (rc)
			return rc;
	}
	return 0;
}

/*
 * Samples:  header, identifier u64, (IP no), pid u32 tid u32, time u64, [addr no], cpu u32 res u32
 * Others:   header, body ..., pid u32 tid u32, time u64, cpu u32 res u32, identifier u64
 * (include/uapi/linux/perf_event.h, PERF_RECORD_SAMPLE and struct sample_id.)
 */
/*
 * Where a KSYMBOL record's own fields end. The kernel grows the header's size once for each event
 * that takes the record and never puts it back (kernel/events/core.c,
 * perf_event_ksymbol_output()): from the second ring on the sample id is not at the record's end.
 * Delete when kernels that do this are gone.
 */
static size_t ksymbol_body(const void *fields, size_t n)
{
	enum { NAME = 16 }; /* u64 addr; u32 len; u16 type, flags; char name[], padded to 8 */
	size_t end = NAME;

	if (n < NAME)
		return n;
	end += (strnlen((const char *)fields + NAME, n - NAME) + 1 + 7) & ~(size_t)7;
	return end < n ? end : n;
}

bool lg_perf_head(const struct lg_perf_set *s, const struct perf_event_header *h, size_t n,
		  struct lg_perf_head *ret)
{
	const uint8_t *p = (const uint8_t *)(h + 1);
	const bool sample = h->type == PERF_RECORD_SAMPLE;
	uint64_t id, ts;
	uint32_t tid[2], cpu;

	if (n < sizeof *h + 32 || n < h->size)
		return false;
	n -= sizeof *h + 32;
	if (!sample)
		p += h->type == PERF_RECORD_KSYMBOL ? ksymbol_body(h + 1, n) : n;
	if (sample) {
		memcpy(&id, p, 8);
		p += 8;
	}
	memcpy(tid, p, 8);
	memcpy(&ts, p + 8, 8);
	memcpy(&cpu, p + 16, 4);
	if (!sample)
		memcpy(&id, p + 24, 8);
	*ret = (struct lg_perf_head){ .ts = (int64_t)ts, .pid = (int32_t)tid[0],
				      .tid = (int32_t)tid[1], .cpu = (int32_t)cpu,
				      .event = lg_map_get(&s->event_of_id, id) - 1, .n_body = n };
	ret->body = sample ? p + 24 : (const uint8_t *)(h + 1);
	return true;
}

bool lg_perf_chain(const uint8_t *p, size_t n, struct lg_perf_chain *ret)
{
	const uint64_t *ip = (const uint64_t *)(const void *)(p + 8);
	uint64_t n_ip;
	enum { NONE, KERNEL, USER } mode = NONE;

	if (n < 8)
		return false;
	memcpy(&n_ip, p, 8);
	if (n_ip > (n - 8) / 8)
		return false;
	*ret = (struct lg_perf_chain){ .bytes = 8 + 8 * (size_t)n_ip };
	for (size_t i = 0; i < n_ip; i++) {
		if (ip[i] >= (uint64_t)PERF_CONTEXT_MAX) {
			mode = ip[i] == (uint64_t)PERF_CONTEXT_KERNEL ? KERNEL
			       : ip[i] == (uint64_t)PERF_CONTEXT_USER ? USER
								      : NONE;
			if (mode == KERNEL && !ret->n_kernel)
				ret->kernel = ip + i + 1;
			if (mode == USER && !ret->n_user)
				ret->user = ip + i + 1;
		} else if (mode == KERNEL) {
			ret->n_kernel++;
		} else if (mode == USER) {
			ret->n_user++;
		}
	}
	return true;
}
