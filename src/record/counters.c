/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters.c - /proc/stat, /proc/pressure, /proc/meminfo and cpu.stat of the job's cgroups.
 *
 * CFS throttling has no tracepoint: cpu.stat is the only witness, in both hierarchies (v2
 * throttled_usec, v1 throttled_time in ns; kernel/sched/core.c, cpu_cfs_stat_show). The quota
 * may sit on any ancestor, so every ancestor that has one is watched.
 */
#include "record/counters.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "record/disks.h"
#include "record/host_memory.h"

#define EVERY INT64_C(1000000000)
#define REPEAT (5 * EVERY)
#define GROUPS_MAX 64
#define CPU_FIELDS 3

struct series {
	lg_trk track;
	double last;
	int64_t written;
	bool known;
};

struct cpu {
	uint64_t ticks[CPU_FIELDS];
	struct series out[CPU_FIELDS];
	bool known;
};

struct group {
	char dir[512]; /* of cpu.stat */
	bool v2;
	uint64_t throttled_ns;
	struct series out;
	bool known;
};

struct lg_counters {
	struct lg_builder *b;
	struct lg_lives *lives;
	struct lg_disks *disks;
	struct lg_host_memory *memory;
	int64_t last, groups_read, groups_wait;
	uint64_t grouped; /* whose groups were read: crowd.pids */
	struct cpu *cpus;
	size_t n_cpus, cpus_cap;
	struct { uint64_t total; struct series out; bool known; } psi[6];
	struct series mem;
	int stat, pressure[3], meminfo; /* see lg_proc_read_held() */
	struct group *groups;
	size_t n_groups;
	char v1[256], v2[256]; /* mount points; "" = none */
	char *buf;
};

enum { BUF = 128 << 10 };

static void find_mounts(struct lg_counters *c)
{
	if (lg_proc_read("/proc/self/mounts", c->buf, BUF) <= 0)
		return;
	for (char *line = c->buf; line && *line; line = strchr(line, '\n')) {
		char dir[256], type[32], flags[512];

		if (*line == '\n')
			line++;
		if (sscanf(line, "%*s %255s %31s %511s", dir, type, flags) != 3)
			continue;
		if (!strcmp(type, "cgroup2") && !*c->v2)
			memcpy(c->v2, dir, sizeof dir);
		if (strcmp(type, "cgroup") || *c->v1)
			continue;
		for (char *save = NULL, *o = strtok_r(flags, ",", &save); o;
		     o = strtok_r(NULL, ",", &save))
			if (!strcmp(o, "cpu"))
				memcpy(c->v1, dir, sizeof dir);
	}
}

int lg_counters_new(struct lg_counters **ret, struct lg_builder *b, struct lg_lives *lives,
		    struct lg_error *err)
{
	struct lg_counters *c = lg_calloc(1, sizeof *c);

	if (c) {
		c->buf = lg_calloc(BUF, 1);
		c->groups = lg_calloc(GROUPS_MAX, sizeof *c->groups);
	}
	if (!c || !c->buf || !c->groups) {
		lg_counters_free(c);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	c->b = b;
	c->lives = lives;
	find_mounts(c);
	if (lg_disks_new(&c->disks, b, err) || lg_host_memory_new(&c->memory, b, lives, err)) {
		lg_counters_free(c);
		return LG_E_NOMEM;
	}
	*ret = c;
	return 0;
}

void lg_counters_free(struct lg_counters *c)
{
	if (!c)
		return;
	lg_free(c->buf);
	lg_free(c->groups);
	lg_free(c->cpus);
	lg_disks_free(c->disks);
	lg_host_memory_free(c->memory);
	lg_proc_let_go(&c->stat);
	lg_proc_let_go(&c->meminfo);
	for (size_t i = 0; i < 3; i++)
		lg_proc_let_go(&c->pressure[i]);
	lg_free(c);
}

static void put(struct lg_counters *c, struct series *s, const char *name, const char *unit,
		int32_t index, int64_t now, double value)
{
	if (s->known && s->last == value && now - s->written < REPEAT)
		return;
	s->written = now;
	if (!s->track)
		s->track = lg_track_get(c->b, &(struct lg_track_row){
						      .kind = LG_TRACK_COUNTER,
						      .name = lg_intern(c->b, name),
						      .unit = lg_intern(c->b, unit),
						      .index = index });
	lg_add_counter(c->b, &(struct lg_counter_row){ now, s->track, value });
	s->last = value;
	s->known = true;
}

/* cpuN user nice system idle iowait irq softirq steal ... in ticks of 1/HZ (proc(5)). */
static void read_cpus(struct lg_counters *c, int64_t now, double seconds)
{
	static const char *const names[CPU_FIELDS] = { "cpu.irq", "cpu.softirq", "cpu.steal" };
	double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);

	if (lg_proc_read_held(&c->stat, "/proc/stat", c->buf, BUF) <= 0)
		return;
	for (char *line = strchr(c->buf, '\n'); line && !strncmp(line, "\ncpu", 4);
	     line = strchr(line + 1, '\n')) {
		char *p = line + 4;
		unsigned long i = strtoul(p, &p, 10);
		uint64_t v[8] = { 0 };

		if (i >= 65536)
			return;
		for (size_t k = 0; k < 8; k++)
			v[k] = strtoull(p, &p, 10);
		if (i >= c->n_cpus) {
			size_t was = c->n_cpus;

			if (lg_grow(&c->cpus, &c->cpus_cap, i + 1, sizeof *c->cpus))
				return;
			memset(c->cpus + was, 0, (i + 1 - was) * sizeof *c->cpus);
			c->n_cpus = i + 1;
		}
		for (size_t k = 0; k < CPU_FIELDS; k++) {
			struct cpu *u = &c->cpus[i];
			uint64_t was = u->ticks[k];

			u->ticks[k] = v[5 + k];
			/* Steal may step back over a migration of the guest. */
			if (u->known && seconds > 0)
				put(c, &u->out[k], names[k], "ratio", (int32_t)i, now,
				    v[5 + k] < was ? 0
						   : (double)(v[5 + k] - was) * tick / seconds);
		}
		c->cpus[i].known = true;
	}
}

static void read_psi(struct lg_counters *c, int64_t now, double seconds)
{
	static const struct { const char *file, *name[2]; } what[3] = {
		{ "/proc/pressure/cpu", { "psi.cpu.some", "psi.cpu.full" } },
		{ "/proc/pressure/memory", { "psi.memory.some", "psi.memory.full" } },
		{ "/proc/pressure/io", { "psi.io.some", "psi.io.full" } },
	};
	static const char *const line[2] = { "some", "full" };
	char text[512];

	for (size_t i = 0; i < 6; i++) {
		uint64_t total;
		char *p;

		if (i % 2 == 0 &&
		    lg_proc_read_held(&c->pressure[i / 2], what[i / 2].file, text, sizeof text) <= 0)
			text[0] = 0;
		p = strstr(text, line[i % 2]);
		p = p ? strstr(p, "total=") : NULL;
		if (!p)
			continue;
		total = strtoull(p + 6, NULL, 10); /* us */
		if (c->psi[i].known && seconds > 0 && total >= c->psi[i].total)
			put(c, &c->psi[i].out, what[i / 2].name[i % 2], "ratio", -1, now,
			    (double)(total - c->psi[i].total) * 1e-6 / seconds);
		c->psi[i].total = total;
		c->psi[i].known = true;
	}
}

static void read_memory(struct lg_counters *c, int64_t now)
{
	char text[1024], *p;

	if (lg_proc_read_held(&c->meminfo, "/proc/meminfo", text, sizeof text) <= 0)
		return;
	p = strstr(text, "MemAvailable:");
	if (p)
		put(c, &c->mem, "mem.available", "bytes", -1, now,
		    (double)strtoull(p + 13, NULL, 10) * 1024);
}

static bool has_quota(const char *dir, bool v2)
{
	char path[600], text[64];

	snprintf(path, sizeof path, "%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us");
	if (lg_proc_read(path, text, sizeof text) <= 0)
		return false;
	return v2 ? strncmp(text, "max", 3) != 0 : text[0] != '-';
}

static void add_group(struct lg_counters *c, const char *mount, const char *group, bool v2)
{
	char dir[512];

	if (!*mount || !*group || strstr(group, "/.."))
		return; /* outside of our cgroup namespace: its files cannot be reached */
	if (snprintf(dir, sizeof dir, "%s%s", mount, strcmp(group, "/") ? group : "") >=
	    (int)sizeof dir)
		return;
	for (size_t top = strlen(mount); strlen(dir) >= top;) {
		bool known = false;
		char *slash;

		for (size_t i = 0; i < c->n_groups; i++)
			known |= !strcmp(c->groups[i].dir, dir);
		if (!known && c->n_groups < GROUPS_MAX && has_quota(dir, v2)) {
			struct group *g = &c->groups[c->n_groups++];
			char path[600], text[64], key[640];

			memcpy(g->dir, dir, sizeof dir);
			g->v2 = v2;
			snprintf(path, sizeof path, "%s/%s", dir,
				 v2 ? "cpu.max" : "cpu.cfs_quota_us");
			if (lg_proc_read(path, text, sizeof text) > 0) {
				text[strcspn(text, "\n")] = 0;
				snprintf(key, sizeof key, "cgroup.quota %s",
					 *(dir + top) ? dir + top : "/");
				lg_meta_set(c->b, 0, key, text);
			}
		}
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < top)
			return;
		*slash = 0;
	}
}

static void job_groups(void *arg, int32_t pid)
{
	struct lg_counters *c = arg;
	char path[64], group[400];

	snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
	if (lg_proc_read(path, c->buf, BUF) <= 0)
		return;
	lg_proc_cgroup_path(c->buf, NULL, group, sizeof group);
	add_group(c, c->v2, group, true);
	lg_proc_cgroup_path(c->buf, "cpu", group, sizeof group);
	add_group(c, c->v1, group, false);
}

struct crowd {
	size_t n;
	uint64_t pids; /* their sum */
};

static void count_in(void *arg, int32_t pid)
{
	struct crowd *k = arg;

	k->n++;
	k->pids += (uint64_t)pid;
}

/* False: the group is gone. */
static bool read_throttled(const struct group *g, uint64_t *ret_ns)
{
	char path[600], text[1024], *p;

	snprintf(path, sizeof path, "%s/cpu.stat", g->dir);
	if (lg_proc_read(path, text, sizeof text) <= 0)
		return false;
	p = strstr(text, g->v2 ? "throttled_usec " : "throttled_time ");
	if (!p)
		return false;
	*ret_ns = strtoull(p + 15, NULL, 10) * (g->v2 ? 1000u : 1u);
	return true;
}

/*
 * A job is put into its group as it starts, or soon after. What grows is told from where it was first read
 * on, so whoever is new is looked at soon, again after twice as long, and so on; many are every 5 s.
 */
static void find_groups(struct lg_counters *c, int64_t now)
{
	enum { FEW = 32, SOON = EVERY / 4 };
	struct crowd k = { 0 };

	lg_lives_each_job(c->lives, count_in, &k);
	if (k.pids != c->grouped && k.n <= FEW)
		c->groups_wait = SOON;
	c->grouped = k.pids;
	if (c->groups_read && now - c->groups_read < c->groups_wait)
		return;
	c->groups_wait = LG_MIN(LG_MAX(2 * c->groups_wait, SOON), REPEAT);
	if (k.n > FEW)
		c->groups_wait = REPEAT;
	c->groups_read = now;
	lg_lives_each_job(c->lives, job_groups, c);
	for (size_t i = 0; i < c->n_groups; i++)
		if (!c->groups[i].known)
			c->groups[i].known = read_throttled(&c->groups[i], &c->groups[i].throttled_ns);
}

static void read_groups(struct lg_counters *c, int64_t now)
{
	for (size_t i = 0; i < c->n_groups; i++) {
		struct group *g = &c->groups[i];
		const char *top = g->v2 ? c->v2 : c->v1;
		char name[600];
		uint64_t ns;

		if (!read_throttled(g, &ns))
			continue;
		snprintf(name, sizeof name, "cgroup.throttled %s",
			 g->dir[strlen(top)] ? g->dir + strlen(top) : "/");
		if (g->known && ns >= g->throttled_ns)
			put(c, &g->out, name, "ns", -1, now, (double)(ns - g->throttled_ns));
		g->throttled_ns = ns;
		g->known = true;
	}
}

void lg_counters_read(struct lg_counters *c, int64_t now)
{
	double seconds = c->last ? (double)(now - c->last) * 1e-9 : 0;

	find_groups(c, now);
	if (c->last && now - c->last < EVERY)
		return;
	c->last = now;
	read_cpus(c, now, seconds);
	read_psi(c, now, seconds);
	read_memory(c, now);
	read_groups(c, now);
	lg_disks_read(c->disks, now);
	lg_host_memory_read(c->memory, now);
}

void lg_counters_last(struct lg_counters *c, int64_t now)
{
	lg_disks_read(c->disks, now);
	lg_host_memory_last(c->memory, now);
}
