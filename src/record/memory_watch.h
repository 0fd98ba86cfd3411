/* SPDX-License-Identifier: Apache-2.0 */
/* memory_watch.h - how much of the memory that the job may have is in use and cannot be taken back. */
#ifndef LG_RECORD_MEMORY_WATCH_H
#define LG_RECORD_MEMORY_WATCH_H
#include <stddef.h>

#include "record/lives.h"

struct lg_memory_watch;

int lg_memory_watch_new(struct lg_memory_watch **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_memory_watch_free(struct lg_memory_watch *w);
/*
 * The fullest of the machine and of each cgroup with a limit that a process of the job is in, 0 to 1, and its
 * name in ret_of. Of a cgroup: what is anonymous or shared memory, or the kernel's and stays, of memory.max
 * (v1: limit_in_bytes); what is read from files can be dropped and does not count. Of the machine: all but
 * MemAvailable. Negative: not known.
 */
double lg_memory_watch_look(struct lg_memory_watch *w, struct lg_lives *lives, int64_t now, char *ret_of,
			    size_t size);

struct lg_memory_group {
	const char *name;    /* below the mount point; "/" = all of it */
	double used, limit;  /* bytes, used as above */
	double kills;        /* processes of it that the kernel killed for want of room; -1 = not told */
};
/* Each such group. lives NULL: the groups that were known last, also where nobody of the job is left. */
void lg_memory_watch_each(struct lg_memory_watch *w, struct lg_lives *lives, int64_t now,
			  void (*f)(void *arg, const struct lg_memory_group *g), void *arg);

/* The sum of what counts in the text of a memory.stat, bytes. */
double lg_memory_stat_used(const char *text, bool v2);

#endif /* LG_RECORD_MEMORY_WATCH_H */
