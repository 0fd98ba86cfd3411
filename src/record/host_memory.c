/* SPDX-License-Identifier: Apache-2.0 */
#include "record/host_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/order.h"
#include "record/memory_watch.h"
#include "record/procfs.h"

#define REPEAT INT64_C(5000000000) /* a value that stands is written again */
enum { AT_ONCE = 64, STATUS = 4096 };

struct series {
	lg_trk track;
	double last;
	int64_t written; /* 0 = not yet */
};

struct lg_host_memory {
	struct lg_builder *b;
	struct lg_lives *lives;
	struct lg_memory_watch *groups;
	struct process {
		struct series rss, anon;
	} * process;
	size_t n, cap;
	struct lg_map of_prc;	/* row of the process -> its entry + 1 */
	struct lg_map of_track; /* of groups: name -> entry + 1 */
	struct group {
		struct series used, limit, kills;
	} * group;
	size_t n_groups, cap_groups;
	uint64_t turn; /* readings so far */
	size_t every;  /* a process is read at each so many of them */
	size_t living;
	int64_t now;
};

int lg_host_memory_new(struct lg_host_memory **ret, struct lg_builder *b, struct lg_lives *lives,
		       struct lg_error *err)
{
	struct lg_host_memory *h = lg_calloc(1, sizeof *h);
	int rc = h ? lg_memory_watch_new(&h->groups, err)
		   : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");

	if (rc) {
		lg_free(h);
		return rc;
	}
	h->b = b;
	h->lives = lives;
	h->every = 1;
	*ret = h;
	return 0;
}

void lg_host_memory_free(struct lg_host_memory *h)
{
	if (!h)
		return;
	lg_memory_watch_free(h->groups);
	lg_map_done(&h->of_prc);
	lg_map_done(&h->of_track);
	lg_free(h->process);
	lg_free(h->group);
	lg_free(h);
}

bool lg_host_memory_parse(const char *status, struct lg_process_memory *ret)
{
	static const char *const keys[] = { "\nVmRSS:", "\nRssAnon:", "\nRssShmem:", "\nVmSwap:" };
	uint64_t v[LG_COUNT(keys)] = { 0 };

	for (size_t i = 0; i < LG_COUNT(keys); i++) {
		const char *p = strstr(status, keys[i]);

		if (!p && i < 2) /* RssAnon: Linux 4.5 */
			return false;
		v[i] = p ? strtoull(p + strlen(keys[i]), NULL, 10) : 0;
		if (v[i] > UINT64_MAX >> 12)
			return false;
		v[i] *= 1024;
	}
	*ret = (struct lg_process_memory){ .rss = v[0], .anon = v[1] + v[2] + v[3] };
	return true;
}

static void put(struct lg_host_memory *h, struct series *s, lg_prc prc, const char *name, const char *unit,
		double value)
{
	if (s->written && s->last == value && h->now - s->written < REPEAT)
		return;
	if (!s->track)
		s->track = lg_track_get(h->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
								      .name = lg_intern(h->b, name),
								      .unit = lg_intern(h->b, unit),
								      .prc = prc,
								      .index = -1 });
	lg_add_counter(h->b, &(struct lg_counter_row){ h->now, s->track, value });
	s->written = h->now;
	s->last = value;
}

static void read_process(void *arg, int32_t pid)
{
	struct lg_host_memory *h = arg;
	lg_prc prc = lg_process_get(h->b, pid);
	uint32_t at = lg_map_get(&h->of_prc, prc);
	struct lg_process_memory m;
	char path[64], text[STATUS];

	h->living++;
	if (!at) {
		if (LG_APPEND(h->process, h->n, h->cap, (struct process){ 0 }) ||
		    lg_map_set(&h->of_prc, prc, (uint32_t)h->n)) {
			lg_builder_fail(h->b);
			return;
		}
		at = (uint32_t)h->n;
	}
	if ((h->turn + at) % h->every)
		return;
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (lg_proc_read(path, text, sizeof text) <= 0 || !lg_host_memory_parse(text, &m))
		return;
	put(h, &h->process[at - 1].rss, prc, "process.rss", "bytes", (double)m.rss);
	put(h, &h->process[at - 1].anon, prc, "process.anon", "bytes", (double)m.anon);
}

static void read_group(void *arg, const struct lg_memory_group *g)
{
	struct lg_host_memory *h = arg;
	lg_str name = lg_intern(h->b, g->name);
	uint32_t at = lg_map_get(&h->of_track, name);
	char text[640];

	if (!at) {
		if (LG_APPEND(h->group, h->n_groups, h->cap_groups, (struct group){ 0 }) ||
		    lg_map_set(&h->of_track, name, (uint32_t)h->n_groups)) {
			lg_builder_fail(h->b);
			return;
		}
		at = (uint32_t)h->n_groups;
	}
	snprintf(text, sizeof text, "cgroup.memory %s", g->name);
	put(h, &h->group[at - 1].used, 0, text, "bytes", g->used);
	snprintf(text, sizeof text, "cgroup.memory_limit %s", g->name);
	put(h, &h->group[at - 1].limit, 0, text, "bytes", g->limit);
	snprintf(text, sizeof text, "cgroup.oom_kills %s", g->name);
	if (g->kills >= 0)
		put(h, &h->group[at - 1].kills, 0, text, "count", g->kills);
}

void lg_host_memory_read(struct lg_host_memory *h, int64_t now)
{
	h->now = now;
	h->turn++;
	h->living = 0;
	lg_lives_each_job(h->lives, read_process, h);
	h->every = h->living / AT_ONCE + 1;
	lg_memory_watch_each(h->groups, h->lives, now, read_group, h);
}

void lg_host_memory_last(struct lg_host_memory *h, int64_t now)
{
	h->now = now;
	lg_memory_watch_each(h->groups, NULL, now, read_group, h);
}
