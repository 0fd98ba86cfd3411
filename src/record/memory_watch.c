/* SPDX-License-Identifier: Apache-2.0 */
#include "record/memory_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "record/procfs.h"

#define GROUPS_EVERY INT64_C(2000000000)
#define UNLIMITED 1e18 /* v1 writes PAGE_COUNTER_MAX */

enum { GROUPS_MAX = 16, TEXT = 64 << 10 };

struct lg_memory_watch {
	char v2[256], v1[256]; /* where the hierarchies are mounted; "" = not */
	struct group {
		char dir[512];
		bool v2;
	} group[GROUPS_MAX];
	size_t n_groups;
	int64_t looked;
	char text[TEXT];
};

int lg_memory_watch_new(struct lg_memory_watch **ret, struct lg_error *err)
{
	struct lg_memory_watch *w = lg_calloc(1, sizeof *w);

	if (!w)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (lg_proc_read("/proc/self/mounts", w->text, sizeof w->text) <= 0)
		w->text[0] = 0;
	for (char *save = NULL, *line = strtok_r(w->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char dir[256], type[32], flags[512];

		if (sscanf(line, "%*s %255s %31s %511s", dir, type, flags) != 3)
			continue;
		if (!strcmp(type, "cgroup2") && !*w->v2)
			memcpy(w->v2, dir, sizeof dir);
		else if (!strcmp(type, "cgroup") && strstr(flags, ",memory") && !*w->v1)
			memcpy(w->v1, dir, sizeof dir);
	}
	w->looked = INT64_MIN;
	*ret = w;
	return 0;
}

void lg_memory_watch_free(struct lg_memory_watch *w)
{
	lg_free(w);
}

static double limit_of(const char *dir, bool v2)
{
	char path[600], text[64];
	double v;

	snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.max" : "memory.limit_in_bytes");
	if (lg_proc_read(path, text, sizeof text) <= 0 || *text < '0' || *text > '9')
		return 0;
	v = strtod(text, NULL);
	return v < UNLIMITED ? v : 0;
}

/* The group and those above it that have a limit. */
static void add_groups(struct lg_memory_watch *w, const char *mount, const char *name, bool v2)
{
	char dir[512];
	size_t top = strlen(mount);

	if (!*mount || !*name || strstr(name, "/..") ||
	    snprintf(dir, sizeof dir, "%s%s", mount, strcmp(name, "/") ? name : "") >= (int)sizeof dir)
		return;
	for (char *slash; strlen(dir) >= top; *slash = 0) {
		bool known = false;

		for (size_t i = 0; i < w->n_groups; i++)
			known |= !strcmp(w->group[i].dir, dir);
		if (!known && w->n_groups < GROUPS_MAX && limit_of(dir, v2) > 0) {
			memcpy(w->group[w->n_groups].dir, dir, sizeof dir);
			w->group[w->n_groups++].v2 = v2;
		}
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < top)
			return;
	}
}

static void of_process(void *arg, int32_t pid)
{
	struct lg_memory_watch *w = arg;
	char path[64], name[400];

	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	if (lg_proc_read(path, w->text, sizeof w->text) <= 0)
		return;
	lg_proc_cgroup_path(w->text, NULL, name, sizeof name);
	add_groups(w, w->v2, name, true);
	lg_proc_cgroup_path(w->text, "memory", name, sizeof name);
	add_groups(w, w->v1, name, false);
}

double lg_memory_stat_used(const char *text, bool v2)
{
	static const char *const two[] = { "anon ", "shmem ", "slab_unreclaimable ", "kernel_stack ", "pagetables " };
	static const char *const one[] = { "total_rss ", "total_shmem " };
	double sum = 0;

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		for (size_t i = 0; i < (v2 ? LG_COUNT(two) : LG_COUNT(one)); i++) {
			const char *key = v2 ? two[i] : one[i];

			if (!strncmp(line, key, strlen(key)))
				sum += strtod(line + strlen(key), NULL);
		}
	}
	return sum;
}

static double of_machine(struct lg_memory_watch *w, double *ret_all)
{
	const char *all, *free_;

	if (lg_proc_read("/proc/meminfo", w->text, sizeof w->text) <= 0)
		return -1;
	all = strstr(w->text, "MemTotal:");
	free_ = strstr(w->text, "MemAvailable:");
	if (!all || !free_)
		return -1;
	*ret_all = strtod(all + strlen("MemTotal:"), NULL) * 1024;
	return *ret_all > 0 ? 1 - strtod(free_ + strlen("MemAvailable:"), NULL) * 1024 / *ret_all : -1;
}

/* memory.events of version 2, memory.oom_control of 1 (Linux 4.13). */
static double kills_of(const struct group *g)
{
	char path[600], text[512], *p;

	snprintf(path, sizeof path, "%s/%s", g->dir, g->v2 ? "memory.events" : "memory.oom_control");
	if (lg_proc_read(path, text, sizeof text) <= 0 || !(p = strstr(text, "\noom_kill ")))
		return -1;
	return strtod(p + strlen("\noom_kill "), NULL);
}

void lg_memory_watch_each(struct lg_memory_watch *w, struct lg_lives *lives, int64_t now,
			  void (*f)(void *arg, const struct lg_memory_group *g), void *arg)
{
	if (lives && (w->looked == INT64_MIN || now - w->looked >= GROUPS_EVERY)) {
		w->looked = now;
		w->n_groups = 0; /* limits come and go, and so do groups */
		lg_lives_each_job(lives, of_process, w);
	}
	for (size_t i = 0; i < w->n_groups; i++) {
		const struct group *g = &w->group[i];
		struct lg_memory_group of = { .name = g->dir + strlen(g->v2 ? w->v2 : w->v1),
					      .limit = limit_of(g->dir, g->v2), .kills = kills_of(g) };
		char path[600];

		snprintf(path, sizeof path, "%s/memory.stat", g->dir);
		if (!(of.limit > 0) || lg_proc_read(path, w->text, sizeof w->text) <= 0)
			continue;
		of.used = lg_memory_stat_used(w->text, g->v2);
		if (!*of.name)
			of.name = "/";
		f(arg, &of);
	}
}

struct fullest {
	double share;
	char *of;
	size_t size;
};

static void take_fuller(void *arg, const struct lg_memory_group *g)
{
	struct fullest *m = arg;

	if (g->used / g->limit <= m->share)
		return;
	m->share = g->used / g->limit;
	snprintf(m->of, m->size, "the %.1f GB that cgroup %.120s may have", g->limit / 1e9, g->name);
}

double lg_memory_watch_look(struct lg_memory_watch *w, struct lg_lives *lives, int64_t now, char *ret_of,
			    size_t size)
{
	double all = 0;
	struct fullest m = { .share = of_machine(w, &all), .of = ret_of, .size = size };

	snprintf(ret_of, size, "the machine's %.1f GB of memory", all / 1e9);
	lg_memory_watch_each(w, lives, now, take_fuller, &m);
	return m.share;
}
